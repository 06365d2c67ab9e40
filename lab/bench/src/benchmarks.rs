//! The benchmarks that are separate programs: `lab bench --what sql`, `inserts`, `map` and `micro`.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use lab_stack::repository;

/// The benchmark to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Benchmark {
    /// milepost compared with Node, Telegraf and the floor
    Peers,
    /// Analysts' queries, compared with the obvious schema; `-- --millions 40` for more fixes
    Sql,
    /// The cost of a position in ClickHouse, compared with the story's schema, with 1, 4 and 16
    /// members; takes twenty minutes
    Inserts,
    /// The live map with a million drivers; takes four minutes
    Map,
    /// One message, one batch and one spool file; instructions per message need valgrind
    Micro,
}

/// Returns the commands of a benchmark, in order. The commands run in the root of the repository.
/// Like `make bench`, the commands build the whole workspace: for fewer packages, cargo would
/// choose other features, and build the dependencies again.
fn commands(benchmark: Benchmark) -> &'static [&'static str] {
    match benchmark {
        Benchmark::Peers => &[],
        Benchmark::Sql => &[
            "lab/local/setup --dev",
            "cargo build --locked --workspace --bin milepost",
            "PYTHON lab/bench-sql/bench_sql.py MORE",
        ],
        Benchmark::Inserts => &[
            "lab/local/setup --dev",
            "cargo build --release --locked --workspace",
            "PYTHON lab/bench-inserts/bench_inserts.py MORE",
        ],
        Benchmark::Map => &[
            "make page",
            "lab/local/setup --dev",
            "cargo build --release --locked --workspace",
            "PYTHON lab/bench-map/bench_map.py MORE",
            "lab/local/setup --map",
            "lab/local/npm --prefix map/page run frames",
        ],
        Benchmark::Micro => {
            &["cargo bench --locked --bench micro", "cargo bench --locked --bench instructions"]
        }
    }
}

/// Runs the commands of a benchmark, and returns `true`. Fails if a command fails. `more`:
/// arguments for the command that measures.
pub(crate) fn run(benchmark: Benchmark, more: &[String]) -> Result<bool> {
    let venv = std::env::var("VENV_DIR").unwrap_or_else(|_| ".local/venv".to_owned());
    let python = format!("{venv}/bin/python");
    for line in commands(benchmark) {
        let mut words = line.split(' ').map(|word| if word == "PYTHON" { &python } else { word });
        let mut command = Command::new(words.next().context("the command is empty")?);
        for word in words {
            if word == "MORE" {
                command.args(more)
            } else {
                command.arg(word)
            };
        }
        let status =
            command.current_dir(repository()).status().with_context(|| (*line).to_owned())?;
        ensure!(status.success(), "{line}: {status}");
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn every_file_that_a_benchmark_runs_exists() {
        for benchmark in Benchmark::value_variants() {
            for word in commands(*benchmark).iter().flat_map(|line| line.split(' ')) {
                let is_file = word.contains('/') && word != "map/page";
                assert!(!is_file || repository().join(word).is_file(), "{benchmark:?}: {word}");
            }
        }
    }
}
