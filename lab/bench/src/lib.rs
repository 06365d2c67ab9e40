//! `lab bench`: milepost beside Node, Bun and the floor, each alone in turn on fresh servers, under the same load.
//!
//! CPU and memory come from the operating system, each second, for the whole process tree. The first seconds of a
//! step warm the consumer up and do not count. Loss is by sets of (driver, seq). A figure does not count when the
//! generator fell behind, or when its count is not the broker's: then the row says so instead. What was measured is
//! written down after every step, so an interrupt costs the step under way.

// A module imports those before it: words, kind, cases; engine, limits, peers, go_peers, consumer, machine; trial;
// servers, load, figures, kill, step; report, markdown, page.
mod cases;
mod consumer;
mod engine;
mod figures;
mod go_peers;
mod kill;
mod kind;
mod limits;
mod load;
mod machine;
mod markdown;
mod page;
mod peers;
mod report;
mod servers;
mod step;
mod trial;
mod words;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use lab_stack::say;

use self::cases::Case;
use self::consumer::Binaries;
use self::kind::Kind;
use self::machine::Machine;
use self::report::Report;
use self::step::Stage;
use self::trial::Trial;
use self::words::minutes;

/// What to measure.
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// The binary
    #[arg(long, default_value = "target/release/milepost")]
    milepost: PathBuf,
    /// Everything: all rates, members, limits, ceilings, fleet sizes, the slope of memory, and who must be built; over an hour
    #[arg(long)]
    full: bool,
    /// Only this case; may be given several times; see --list
    #[arg(long)]
    only: Vec<String>,
    /// Only this consumer; may be given several times: milepost, node, bun, node-published, bun-published, telegraf,
    /// bento, floor
    #[arg(long)]
    consumer: Vec<String>,
    /// Seconds a step counts, after its warm-up
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: Option<u32>,
    /// How often each step is repeated
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: Option<u32>,
    /// How often a step is tried whose figures do not count because the machine was busy
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    tries: u32,
    /// Name the cases, and end
    #[arg(long)]
    list: bool,
    /// An argument for the floor, for the bench's test of itself: it must find what the floor does wrong
    #[arg(long, hide = true, allow_hyphen_values = true)]
    floor_argument: Vec<String>,
    /// Where the reports go
    #[arg(long, default_value = "bench-results")]
    results: PathBuf,
}

/// Runs the cases; `true` if every row could be reported.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let cases = chosen(arguments)?;
    if arguments.list {
        cases.iter().for_each(|case| say(&format!("{:<22} {}", case.name, case.title)));
        return Ok(true);
    }
    let arguments = arguments.clone();
    let written = arguments.results.join("latest.md");
    let outcome = lab_stack::in_scratch_folder("bench-", move |folder| measure(&arguments, &cases, folder));
    limits::remove_forgotten();
    outcome.with_context(|| format!("not all was measured; {} has the rest", written.display()))
}

fn chosen(arguments: &Arguments) -> Result<Vec<Case>> {
    // Where both have a case of the same name, the one that was asked for counts.
    let (all, others) =
        if arguments.full { (cases::full(), cases::quick()) } else { (cases::quick(), cases::full()) };
    let every: Vec<Case> = all.iter().cloned().chain(others).collect();
    for name in &arguments.only {
        ensure!(
            every.iter().any(|case| case.name == *name),
            "no case is called {name}; --list --full names them"
        );
    }
    let mut cases = if arguments.only.is_empty() { all } else { every };
    let mut seen = std::collections::BTreeSet::new();
    cases.retain(|case| {
        (arguments.only.is_empty() || arguments.only.contains(&case.name)) && seen.insert(case.name.clone())
    });
    let known = Kind::ALL.map(Kind::name);
    for name in &arguments.consumer {
        ensure!(known.contains(&name.as_str()), "no consumer is called {name}: {}", known.join(", "));
    }
    for case in &mut cases {
        case.seconds = arguments.seconds.unwrap_or(case.seconds);
        case.repetitions = arguments.repetitions.unwrap_or(case.repetitions);
        // Who is asked for by name takes part wherever consumers are compared.
        if case.kinds.len() > 1 && !arguments.consumer.is_empty() {
            case.kinds = Kind::ALL.to_vec();
        }
        case.kinds.retain(|kind| {
            arguments.consumer.is_empty() || arguments.consumer.iter().any(|name| name == kind.name())
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
    let total: Duration = steps.iter().map(|(case, ..)| case.takes()).sum();
    let (mut done, began) = (Duration::ZERO, Instant::now());
    eprintln!("{} steps, about {}", steps.len(), minutes(total));
    for (index, &(case, kind, repetition)) in steps.iter().enumerate() {
        eprint!("[{}/{}] {} · {} · {} … ", index + 1, steps.len(), case.name, kind.name(), repetition + 1);
        if binaries.missing(kind).is_some() {
            eprintln!("not to be had, see the report");
        } else {
            let stage = Stage { case, kind, repetition, binaries: &binaries, folder };
            let trial = measure_once_or_again(&stage, arguments.tries);
            done += case.takes();
            // What a step took so far says more about the rest than its plan does.
            let scale = began.elapsed().as_secs_f64() / done.as_secs_f64().max(1.0);
            let left = (total - done).mul_f64(scale);
            eprintln!(
                "{}   ({} so far, {} left)",
                trial.in_a_line(),
                minutes(began.elapsed()),
                minutes(left)
            );
            report.add(trial);
            write_down(&report, &arguments.results)?;
        }
    }
    let written = write_down(&report, &arguments.results)?;
    say(&markdown::of(&report));
    say(&format!("Written to {}; the same as a page: .html.", written.display()));
    Ok(report.is_complete())
}

/// What has been measured so far, in three forms, under its date and as the latest; the Markdown file.
fn write_down(report: &Report, folder: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let dated = report.machine.date.replace(':', "").trim_end_matches('Z').replace('T', "-");
    let (markdown, json) = (markdown::of(report), serde_json::to_string_pretty(report)?);
    let page = page::of(report)?;
    for name in [&dated, "latest"] {
        for (kind, text) in [("md", &markdown), ("json", &json), ("html", &page)] {
            std::fs::write(folder.join(format!("{name}.{kind}")), text)?;
        }
    }
    Ok(folder.join(format!("{dated}.md")))
}

/// Each case by itself; within it the repetitions, each with the consumers in another order.
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

fn measure_once_or_again(stage: &Stage<'_>, tries: u32) -> Trial {
    let mut trial = stage.measure();
    for _ in 1..tries {
        if trial.refused.is_empty() || !trial.may_differ_next_time {
            break;
        }
        eprint!("{}; once more … ", trial.refused.join("; "));
        trial = stage.measure();
    }
    trial
}
