//! `lab replicas`: milepost on somebody's replicas, which the caller's own commands kill, cut off and bring back.
//!
//! A row holds when every fix the broker took is on each replica once in the end, all replicas say the same of last
//! positions, nothing is left in the spool, and, where a replica stays away, the others or the spool had everything before
//! it is back. Needs Mosquitto here; tables are made on each replica with `clickhouse.replication = "macros"`, in databases
//! that are dropped afterwards.

mod judge;
mod mistakes;
mod rows;
mod scene;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use lab_harness::{patched, table::Table};
use lab_stack::say;

use self::rows::Row;

/// Where the replicas are, and how they are harmed. A command is one for the shell; rows without theirs are left out.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Arguments {
    /// A replica's `http://host:port`; at least two, and the first one is harmed
    #[arg(long, required = true)]
    replica: Vec<String>,
    /// What balances them, `http://host:port`; it is to ask the first one first
    #[arg(long)]
    balancer: String,
    /// Kills the first replica
    #[arg(long)]
    kill: Option<String>,
    /// Kills it, and takes its disk
    #[arg(long)]
    wipe: Option<String>,
    /// Starts it again, with what it has on its disk
    #[arg(long)]
    start: Option<String>,
    /// Lets no replica fetch from it, nor it from them
    #[arg(long)]
    cut: Option<String>,
    /// Ends that
    #[arg(long)]
    heal: Option<String>,
    /// Has the balancer ask the second replica first
    #[arg(long)]
    turn: Option<String>,
    /// And the first one again
    #[arg(long)]
    turn_back: Option<String>,
    /// Takes the Keeper away
    #[arg(long)]
    keeper_stop: Option<String>,
    /// Brings it back
    #[arg(long)]
    keeper_start: Option<String>,
    /// Only this row; may be given several times
    #[arg(long)]
    only: Vec<String>,
    /// As clickhouse.insert_quorum; 0 breaks the rule on purpose
    #[arg(long, default_value = "auto")]
    insert_quorum: String,
    /// Builds mileposts with planted mistakes instead; each must fail its row
    #[arg(long)]
    prove: bool,
    /// The binary
    #[arg(long, default_value = "target/release/milepost")]
    milepost: PathBuf,
}

/// Whether every row holds; of planted mistakes, whether each is found.
pub(crate) fn run(arguments: &Arguments) -> Result<bool> {
    ensure!(arguments.replica.len() > 1, "at least two --replica are wanted");
    let wanted = |row: &Row| arguments.only.is_empty() || arguments.only.iter().any(|name| name == row.name);
    let rows: Vec<Row> = rows::all(arguments).into_iter().filter(wanted).collect();
    ensure!(!rows.is_empty(), "no row has its commands: see lab replicas --help");
    if arguments.prove { prove(arguments, &rows) } else { judge_all(arguments, &rows) }
}

fn judge_all(arguments: &Arguments, rows: &[Row]) -> Result<bool> {
    let mut table = Table::of(judge::HEAD);
    let mut holds = true;
    for row in rows {
        let verdict = scene::judge(arguments, row)?;
        let cells = verdict.cells(row.name);
        say(&cells.join(", "));
        table.rows.push(cells);
        holds &= verdict.holds();
    }
    say(&table.markdown());
    Ok(holds)
}

fn prove(arguments: &Arguments, rows: &[Row]) -> Result<bool> {
    let mut table =
        Table::of(["a milepost that", "found by"].into_iter().chain(judge::HEAD.into_iter().skip(1)));
    let mut all_found = true;
    for mistake in &mistakes::ALL {
        let Some(row) = rows.iter().find(|row| row.name == mistake.row) else { continue };
        let mut arguments = arguments.clone();
        match mistake.made {
            mistakes::Made::ByPatch(patch) => arguments.milepost = patched::build(patch)?,
            mistakes::Made::ByQuorum(quorum) => arguments.insert_quorum = quorum.to_owned(),
        }
        let verdict = scene::judge(&arguments, row)?;
        let mut cells = vec![mistake.what.to_owned()];
        cells.extend(verdict.cells(row.name));
        say(&cells.join(", "));
        table.rows.push(cells);
        all_found &= !verdict.holds();
    }
    ensure!(!table.rows.is_empty(), "no planted mistake has its row's commands");
    say(&table.markdown());
    Ok(all_found)
}
