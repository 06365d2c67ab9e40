//! `lab bench` compares milepost with Node, Telegraf and the floor. Each consumer runs alone, on
//! fresh servers, under the same load.
//!
//! The CPU and memory of the whole process tree are read from the operating system each second. The
//! first seconds of a step warm the consumer up and do not count. Losses are counted by sets of
//! (driver, seq). A step does not count if the generator fell behind, if its count differs from the
//! broker's, or if other processes used the machine; the report gives the reason. The report is
//! written after every step, so an interrupt loses only the current step.

mod benchmarks;
mod cases;
mod consumer;
mod figures;
mod kill;
mod kind;
mod load;
pub mod machine;
pub mod peers;
mod report;
mod servers;
mod step;
mod trial;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use lab_stack::procfs::{busy_time_of_machine, usage_of_tree};
use lab_stack::say;

use self::benchmarks::Benchmark;
use self::cases::Case;
use self::consumer::Binaries;
use self::kind::Kind;
use self::machine::Machine;
use self::report::Report;
use self::step::Stage;
use self::trial::Trial;

/// Maximum CPU cores that other processes may use on a quiet machine.
const OTHERS_CORES_MAX: f64 = 0.1;

/// Arguments of `lab bench`.
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Which benchmark; all other options apply to `peers`
    #[arg(long, value_enum, default_value = "peers")]
    what: Benchmark,
    /// The milepost binary
    #[arg(long, default_value = "target/release/milepost")]
    milepost: PathBuf,
    /// Run all cases, including Telegraf and one to 64 connections
    #[arg(long)]
    full: bool,
    /// Only this case; may be given several times; see --list
    #[arg(long)]
    only: Vec<String>,
    /// Only this consumer; may be given several times: milepost, node, telegraf, floor
    #[arg(long)]
    consumer: Vec<String>,
    /// Counted seconds of a step, after its warm-up
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: Option<u32>,
    /// Number of repetitions of each step
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: Option<u32>,
    /// Number of attempts at a step whose figures do not count because of the machine
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    tries: u32,
    /// Measure even while other processes use the machine
    #[arg(long)]
    busy: bool,
    /// List the cases and exit
    #[arg(long)]
    list: bool,
    /// Argument for the floor that plants a fault, which the benchmark must find
    #[arg(long, hide = true, allow_hyphen_values = true)]
    floor_argument: Vec<String>,
    /// Folder of the reports
    #[arg(long, default_value = "bench-results")]
    results: PathBuf,
    /// After `--`: arguments of another benchmark
    #[arg(last = true)]
    more: Vec<String>,
}

/// Runs the cases. Returns `true` if every available consumer has an accepted figure in each of
/// its cases.
pub fn run(arguments: &Arguments) -> Result<bool> {
    if arguments.what != Benchmark::Peers {
        return benchmarks::run(arguments.what, &arguments.more);
    }
    let cases = select_cases(arguments)?;
    if arguments.list {
        cases.iter().for_each(|case| say(&format!("{:<22} {}", case.name, case.title)));
        return Ok(true);
    }
    if !arguments.busy {
        ensure_quiet()?;
    }
    let arguments = arguments.clone();
    let written = arguments.results.join("latest.md");
    let outcome =
        lab_stack::in_scratch_folder("bench-", move |folder| measure(&arguments, &cases, folder));
    outcome.with_context(|| {
        format!(
            "the benchmark stopped early; {} has the steps that were measured",
            written.display()
        )
    })
}

/// Refuses a machine that other processes use, because its figures would vary from run to run.
fn ensure_quiet() -> Result<()> {
    const SAMPLE: Duration = Duration::from_secs(3);
    let cpu_of_others = || {
        Ok::<_, anyhow::Error>(
            busy_time_of_machine()?.saturating_sub(usage_of_tree(std::process::id())?.cpu),
        )
    };
    let before = cpu_of_others()?;
    std::thread::sleep(SAMPLE);
    let cores = cpu_of_others()?.saturating_sub(before).as_secs_f64() / SAMPLE.as_secs_f64();
    ensure!(
        cores <= OTHERS_CORES_MAX,
        "other processes use {cores:.2} cores of this machine, more than {OTHERS_CORES_MAX}: wait for them to end, or measure \
         anyway with --busy"
    );
    Ok(())
}

fn select_cases(arguments: &Arguments) -> Result<Vec<Case>> {
    // Both lists may have a case of the same name. Use the case in the requested list.
    let (mut cases, others) = if arguments.full {
        (cases::full(), cases::quick())
    } else {
        (cases::quick(), cases::full())
    };
    if !arguments.only.is_empty() {
        let more =
            others.into_iter().filter(|other| cases.iter().all(|case| case.name != other.name));
        cases.extend(more.collect::<Vec<_>>());
    }
    for name in &arguments.only {
        ensure!(
            cases.iter().any(|case| case.name == *name),
            "no case is called {name}; --list --full names them"
        );
    }
    cases.retain(|case| arguments.only.is_empty() || arguments.only.contains(&case.name));
    let consumers = Kind::ALL.map(Kind::name);
    for name in &arguments.consumer {
        ensure!(
            consumers.contains(&name.as_str()),
            "no consumer is called {name}: {}",
            consumers.join(", ")
        );
    }
    for case in &mut cases {
        case.seconds = arguments.seconds.unwrap_or(case.seconds);
        case.repetitions = arguments.repetitions.unwrap_or(case.repetitions);
        case.kinds.retain(|kind| {
            arguments.consumer.is_empty()
                || arguments.consumer.iter().any(|name| name == kind.name())
        });
    }
    cases.retain(|case| !case.kinds.is_empty());
    Ok(cases)
}

fn measure(arguments: &Arguments, cases: &[Case], folder: &Path) -> Result<bool> {
    let milepost = std::fs::canonicalize(&arguments.milepost)
        .with_context(|| format!("no binary at {}", arguments.milepost.display()))?;
    let kinds = cases.iter().flat_map(|case| case.kinds.clone()).collect();
    let mut binaries = Binaries::find(milepost, &kinds, folder);
    binaries.floor_arguments.clone_from(&arguments.floor_argument);
    let mut report = Report::new(Machine::here(binaries.versions()), cases, Some(&binaries));
    let steps = steps(cases);
    let total: Duration = steps.iter().map(|(case, ..)| case.step_duration()).sum();
    let began = Instant::now();
    eprintln!("{} steps, about {} minutes", steps.len(), total.as_secs().div_ceil(60));
    let others_cores_max = if arguments.busy { f64::INFINITY } else { OTHERS_CORES_MAX };
    for (index, &(case, kind, repetition)) in steps.iter().enumerate() {
        eprint!(
            "[{}/{}] {} · {} · {} … ",
            index + 1,
            steps.len(),
            case.name,
            kind.name(),
            repetition + 1
        );
        if binaries.unavailable_reason(kind).is_some() {
            eprintln!("missing, see the report");
            continue;
        }
        let stage = Stage { case, kind, repetition, binaries: &binaries, folder, others_cores_max };
        let trial = measure_with_retries(&stage, arguments.tries);
        eprintln!("{}   ({} s so far)", trial.one_line(), began.elapsed().as_secs());
        report.add(trial);
        write_report(&report, &arguments.results)?;
    }
    write_report(&report, &arguments.results)?;
    say(&report.markdown());
    Ok(report.is_complete())
}

/// Writes the report of the steps measured so far.
fn write_report(report: &Report, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    std::fs::write(folder.join("latest.md"), report.markdown())?;
    std::fs::write(folder.join("latest.json"), serde_json::to_string_pretty(report)?)?;
    Ok(())
}

/// Returns the steps, case by case. The order of the consumers changes with each repetition of a
/// case.
fn steps(cases: &[Case]) -> Vec<(&Case, Kind, u32)> {
    let mut steps = Vec::new();
    for case in cases {
        for repetition in 0..case.repetitions {
            let mut kinds = case.kinds.clone();
            kinds.rotate_left(repetition as usize % case.kinds.len());
            steps.extend(kinds.into_iter().map(|kind| (case, kind, repetition)));
        }
    }
    steps
}

fn measure_with_retries(stage: &Stage<'_>, tries: u32) -> Trial {
    let mut trial = stage.measure();
    for _ in 1..tries {
        if trial.refused.is_empty() || !trial.is_worth_repeating {
            break;
        }
        eprint!("{}; trying again … ", trial.refused.join("; "));
        trial = stage.measure();
    }
    trial
}
