//! `lab story`: the experiment of docs/story.md. It compares milepost with Node, Bun and an
//! afternoon's Rust, from a thousand drivers to ten million.
//!
//! `story.toml` lists the consumers and the steps. Each consumer runs alone, on fresh servers.
//! `watch` samples the process tree, the broker and the store every second, and `stage` finds lost
//! messages by comparing sets of (driver, seq). The record is written after every step. `page.py`
//! makes the page from the record; `docs.py` makes docs/story.md and the picture in the README.

mod consumer;
mod findings;
mod limits;
mod plan;
mod programs;
mod record;
mod resume;
mod servers;
mod stage;
mod watch;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use lab_bench::machine::Machine;
use lab_stack::{repository, say};

use self::plan::{Consumer, Limit, Plan, Seconds, Step};
use self::programs::Program;
use self::record::{ConsumerRecord, Outcome, Record};
use self::stage::{Fault, Stage};

/// The parts of the experiment, in the order in which they run.
const PARTS: [&str; 8] =
    ["ramp", "kill", "outage", "hostile", "pod", "smaller", "everyone", "memory"];
/// Parts that run only with `--full`.
const FULL_ONLY: [&str; 2] = ["smaller", "everyone"];
/// Parts that `--prove` runs: the parts in which the planted mistakes show.
const PROVE_PARTS: [&str; 3] = ["ramp", "kill", "memory"];
/// Length of the memory part of `--prove`, in seconds; long enough to tell a leak from a cache.
const PROVE_MEMORY_SECONDS: u32 = 60;
/// Maximum CPU cores that other processes may use during a run without `--busy`.
const OTHERS_CORES_MAX: f64 = 0.1;

/// Arguments of `lab story`.
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Run everything: 20 s a step, every step, Telegraf, smaller pods, ten minutes of memory
    #[arg(long)]
    full: bool,
    /// Check in a minute or two that everything runs; the figures mean nothing
    #[arg(long, conflicts_with = "full")]
    smoke: bool,
    /// The plan
    #[arg(long, default_value = "lab/story/story.toml")]
    plan: PathBuf,
    /// Only this part: ramp, kill, outage, hostile, pod, smaller, everyone, memory; may be given
    /// several times
    #[arg(long)]
    only: Vec<String>,
    /// Only this consumer of the plan; may be given several times
    #[arg(long)]
    consumer: Vec<String>,
    /// Use a running broker, such as EMQX: mqtt://host:port
    #[arg(long)]
    broker: Option<String>,
    /// Measure even while other processes use the machine
    #[arg(long)]
    busy: bool,
    /// Continue the interrupted run whose record is in the folder, without the steps that it has
    /// measured. The command and the commit must be the same
    #[arg(long, conflicts_with_all = ["prove", "smoke"])]
    resume: bool,
    /// Plant consumers that lose, leak and drop, and check that the report names each
    #[arg(long)]
    prove: bool,
    /// List the steps and exit
    #[arg(long)]
    list: bool,
    /// Folder of the record
    #[arg(long, default_value = "bench-results")]
    results: PathBuf,
}

impl Arguments {
    fn length(&self) -> &'static str {
        match (self.full, self.smoke) {
            (true, _) => "full",
            (_, true) => "smoke",
            _ => "quick",
        }
    }

    /// Returns the command that repeats this run from its beginning.
    fn command(&self) -> String {
        let mut words = Vec::new();
        let mut flag = |is_set: bool, word: &str| words.extend(is_set.then(|| word.to_owned()));
        flag(self.full, "--full");
        flag(self.smoke, "--smoke");
        flag(self.busy, "--busy");
        flag(self.prove, "--prove");
        words.extend(self.only.iter().map(|part| format!("--only {part}")));
        words.extend(self.consumer.iter().map(|name| format!("--consumer {name}")));
        words.extend(self.broker.iter().map(|broker| format!("--broker {broker}")));
        if self.plan != Path::new("lab/story/story.toml") {
            words.push(format!("--plan {}", self.plan.display()));
        }
        match words.as_slice() {
            [] => "make story".to_owned(),
            [word] if !word.contains(' ') => format!("make story ARGS={word}"),
            words => format!("make story ARGS='{}'", words.join(" ")),
        }
    }
}

/// A step to run with one consumer.
struct Turn<'a> {
    part: &'static str,
    consumer: &'a Consumer,
    step: Step,
    limit: Option<Limit>,
    seconds: u32,
}

/// Runs the plan. Returns `true` if everything could be measured; with `--prove`, if the report
/// names every planted mistake.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let (plan, seconds) = select(arguments)?;
    if arguments.list {
        for turn in turns(arguments, &plan, seconds, None) {
            let Step { drivers, rate, .. } = turn.step;
            say(&format!(
                "{:<10} {:<8} {drivers:>9} drivers {rate:>9}/s",
                turn.consumer.name, turn.part
            ));
        }
        return Ok(true);
    }
    if !arguments.busy && !arguments.smoke {
        ensure_quiet()?;
    }
    let arguments = arguments.clone();
    lab_stack::in_scratch_folder("story-", move |folder| {
        run_turns(&arguments, &plan, seconds, folder)
    })
}

/// Returns the plan with the consumers and steps that take part, and the seconds of each part.
fn select(arguments: &Arguments) -> Result<(Plan, Seconds)> {
    let planted = arguments.prove.then(|| repository().join("lab/story/planted.toml"));
    let exists = arguments.plan.is_file();
    let path = if exists { arguments.plan.clone() } else { repository().join(&arguments.plan) };
    let mut plan = Plan::read(&path, planted.as_deref())?;
    let names: Vec<String> = plan.consumers.iter().map(|consumer| consumer.name.clone()).collect();
    for name in &arguments.consumer {
        ensure!(names.contains(name), "no consumer is called {name}: {}", names.join(", "));
    }
    for part in &arguments.only {
        ensure!(PARTS.contains(&part.as_str()), "no part is called {part}: {}", PARTS.join(", "));
    }
    plan.consumers.retain(|consumer| {
        let is_named = arguments.consumer.contains(&consumer.name);
        is_named || arguments.consumer.is_empty() && (arguments.full || !consumer.full_only)
    });
    plan.ramp.retain(|step| arguments.full || !step.full_only);
    let seconds = *plan
        .seconds
        .get(arguments.length())
        .context("the plan has no [seconds] for a run of this length")?;
    Ok((plan, seconds))
}

/// Refuses a machine that other processes use, because its figures would vary from run to run.
fn ensure_quiet() -> Result<()> {
    const SAMPLE: Duration = Duration::from_secs(3);
    let before = watch::others_cpu_seconds()?;
    std::thread::sleep(SAMPLE);
    let cores = (watch::others_cpu_seconds()? - before) / SAMPLE.as_secs_f64();
    ensure!(
        cores <= OTHERS_CORES_MAX,
        "other processes use {cores:.2} cores of this machine, more than {OTHERS_CORES_MAX}: wait for them to end, or measure \
         anyway with --busy"
    );
    Ok(())
}

/// Returns all steps in the order of the run: part by part, and in each part every consumer at each
/// step. `ceiling`: the broker's maximum rate as measured by the ramp, messages a second; the part
/// `memory` depends on it.
fn turns<'a>(
    arguments: &Arguments,
    plan: &'a Plan,
    seconds: Seconds,
    ceiling: Option<f64>,
) -> Vec<Turn<'a>> {
    let is_selected = |part: &str| {
        let is_full = !FULL_ONLY.contains(&part) || arguments.full;
        let is_proof = !arguments.prove || PROVE_PARTS.contains(&part);
        if arguments.only.is_empty() {
            is_full && is_proof
        } else {
            arguments.only.iter().any(|only| only == part)
        }
    };
    let mut turns = Vec::new();
    let mut add = |part: &'static str, step: Step, limit: Option<Limit>, seconds: u32| {
        let takes_part =
            |consumer: &&Consumer| !step.has_stand_in() || consumer.stand_ins != Some(false);
        let turn = |consumer| Turn { part, consumer, step, limit, seconds };
        if is_selected(part) {
            turns.extend(plan.consumers.iter().filter(takes_part).map(turn));
        }
    };
    for step in &plan.ramp {
        // Planted mistakes show at ten thousand messages a second as well as at ten million, so
        // `--prove` runs no other step of the ramp.
        if !arguments.prove || step.rate == 10_000 {
            add("ramp", *step, None, seconds.step);
        }
    }
    add("kill", plan.kill.step(), None, seconds.kill);
    add("outage", plan.outage.step(), None, seconds.outage);
    add("hostile", plan.hostile.step(), None, seconds.hostile);
    add("pod", plan.pod.step(), Some(plan.pod.limit()), seconds.pod);
    for limit in &plan.smaller {
        add("smaller", plan.pod.step(), Some(*limit), seconds.pod);
    }
    let (everyone, everyone_seconds) = plan.everyone.each_once();
    add("everyone", everyone, None, everyone_seconds);
    let memory = if arguments.prove { PROVE_MEMORY_SECONDS } else { seconds.memory };
    add("memory", plan.memory.step(ceiling), None, memory);
    turns
}

fn run_turns(arguments: &Arguments, plan: &Plan, seconds: Seconds, folder: &Path) -> Result<bool> {
    let programs = programs::find(&plan.consumers, folder);
    let mut record = new_record(arguments, plan, &programs);
    if arguments.resume {
        resume::take_earlier_outcomes(&mut record, &arguments.results)?;
    }
    let (began, minutes_before) = (Instant::now(), record.minutes);
    let count = turns(arguments, plan, seconds, None).len();
    for index in 0..count {
        let ceiling = findings::broker_ceiling(&record.outcomes, 1).map(|ceiling| ceiling.rate);
        let turn = turns(arguments, plan, seconds, ceiling).swap_remove(index);
        let name = &turn.consumer.name;
        let Some(Ok(program)) = programs.get(name) else { continue };
        if arguments.resume && resume::has_step(&record, turn.part, name, &turn.step, turn.limit) {
            continue;
        }
        // The plan lists the pods from large to small: after a pod that was too small, all later
        // pods are too small.
        if turn.part == "smaller" && has_failed_in_an_earlier_pod(&record, name) {
            continue;
        }
        eprint!(
            "[{}/{count}] {} · {name} · {} drivers, {}/s … ",
            index + 1,
            turn.part,
            turn.step.drivers,
            turn.step.rate
        );
        let fault = match turn.part {
            "kill" => Fault::Kill { times: plan.kill.times },
            "outage" => Fault::Outage { away: Duration::from_secs(seconds.away.into()) },
            "hostile" => Fault::Hostile(&plan.hostile),
            _ => Fault::None,
        };
        let stage = Stage {
            part: turn.part,
            consumer: turn.consumer,
            program,
            step: turn.step,
            warm_up: seconds.warm_up,
            seconds: turn.seconds,
            limit: turn.limit,
            fault,
            broker: arguments.broker.as_deref().map(|url| url.trim_start_matches("mqtt://")),
            folder,
        };
        let outcome = stage.measure();
        eprintln!("{}   ({} s so far)", one_line(&outcome), began.elapsed().as_secs());
        for consumer in record.consumers_named(name) {
            consumer.findings.extend(findings::find(&outcome));
        }
        record.outcomes.push(outcome);
        record.minutes = minutes_before + began.elapsed().as_secs_f64() / 60.0;
        record.broker_ceilings = [0, 1]
            .into_iter()
            .filter_map(|qos| findings::broker_ceiling(&record.outcomes, qos))
            .collect();
        write_record(&record, &arguments.results)?;
    }
    for consumer in &record.consumers {
        say(&format!("{}: {}", consumer.title, summary(consumer)));
    }
    if arguments.prove {
        return prove(plan, &record);
    }
    Ok(record.consumers.iter().all(|consumer| consumer.missing.is_none())
        && record.outcomes.iter().all(|outcome| outcome.error.is_none()))
}

fn has_failed_in_an_earlier_pod(record: &Record, name: &str) -> bool {
    let mut tried = record
        .outcomes
        .iter()
        .filter(|outcome| outcome.part == "smaller" && outcome.consumer == name);
    tried.any(|outcome| !outcome.holds)
}

fn new_record(
    arguments: &Arguments,
    plan: &Plan,
    programs: &BTreeMap<String, Result<Program, String>>,
) -> Record {
    let consumer_record = |consumer: &Consumer| {
        let found = programs.get(&consumer.name);
        let program = found.and_then(|found| found.as_ref().ok());
        ConsumerRecord {
            name: consumer.name.clone(),
            title: consumer.title.clone(),
            colour: consumer.colour.clone(),
            version: program.map_or(String::new(), |program| program.version.clone()),
            shipped_mib: program.map_or(0.0, |program| program.bytes as f64 / 1_048_576.0),
            missing: found.and_then(|found| found.as_ref().err().cloned()),
            findings: Vec::new(),
        }
    };
    let consumers: Vec<_> = plan.consumers.iter().map(consumer_record).collect();
    Record {
        command: arguments.command(),
        machine: Machine::here(Record::versions(&consumers)),
        profile: profile().unwrap_or_default(),
        broker: arguments.broker.clone().unwrap_or_else(|| "Mosquitto".to_owned()),
        minutes: 0.0,
        price: plan.price.clone(),
        consumers,
        outcomes: Vec::new(),
        broker_ceilings: Vec::new(),
    }
}

/// Returns the Cargo profile of this binary: the name of its folder.
fn profile() -> Option<String> {
    let folder = std::env::current_exe().ok()?.parent()?.file_name()?.to_owned();
    folder.into_string().ok()
}

fn one_line(outcome: &Outcome) -> String {
    if let Some(error) = &outcome.error {
        return format!("FAILED: {error}");
    }
    format!(
        "{:.0}/s stored, {:.2} cores, {:.1} MiB, lost {}",
        outcome.stored_per_s,
        outcome.cores,
        outcome.memory.resident,
        outcome.lost.map_or("?".to_owned(), |lost| lost.to_string())
    )
}

fn summary(consumer: &ConsumerRecord) -> String {
    if let Some(reason) = &consumer.missing {
        return format!("missing: {reason}");
    }
    let sentences: Vec<&str> =
        consumer.findings.iter().map(|finding| finding.sentence.as_str()).collect();
    if sentences.is_empty() { "no finding".to_owned() } else { sentences.join("; ") }
}

/// Returns whether each planted mistake is among its consumer's findings, and the consumer without
/// a mistake has no finding. Prints each planted mistake that is missing, and each finding against
/// the consumer without a mistake.
fn prove(plan: &Plan, record: &Record) -> Result<bool> {
    let mut missed = Vec::new();
    for consumer in &plan.consumers {
        let recorded = record.consumers.iter().find(|recorded| recorded.name == consumer.name);
        let Some(recorded) = recorded else {
            bail!("{} did not take part", consumer.name);
        };
        match &consumer.must_show {
            None if !recorded.findings.is_empty() => {
                missed.push(format!("{}: {}", recorded.name, summary(recorded)))
            }
            Some([part, what])
                if !recorded
                    .findings
                    .iter()
                    .any(|finding| finding.part == *part && finding.what == *what) =>
            {
                missed.push(format!(
                    "{}: the report does not say that it {what} ({part})",
                    recorded.name
                ));
            }
            None | Some(_) => {}
        }
    }
    missed.iter().for_each(|line| say(&format!("NOT PROVEN: {line}")));
    if missed.is_empty() {
        say(
            "every planted mistake is in the report, and there is no finding against the honest consumer",
        );
    }
    Ok(missed.is_empty())
}

/// Writes the record of the steps so far: to `story.json`, and without samples to
/// `story-kept.json`.
fn write_record(record: &Record, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    std::fs::write(folder.join("story.json"), serde_json::to_string(record)?)?;
    std::fs::write(
        folder.join("story-kept.json"),
        serde_json::to_string_pretty(&record.without_samples())? + "\n",
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        arguments: Arguments,
    }

    /// Returns the arguments of a `make story` command.
    fn parse(command: &str) -> Arguments {
        let words = command.strip_prefix("make story").unwrap().trim();
        let words = words.strip_prefix("ARGS=").unwrap_or(words).trim_matches('\'').to_owned();
        Cli::try_parse_from(std::iter::once("story").chain(words.split_whitespace()))
            .unwrap()
            .arguments
    }

    #[test]
    fn command_repeats_the_run() {
        let all = "make story ARGS='--full --busy --only ramp --only kill --consumer node --broker mqtt://10.0.0.5:1883'";
        for command in
            ["make story", "make story ARGS=--full", "make story ARGS='--only kill'", all]
        {
            assert_eq!(parse(command).command(), command);
        }
    }

    #[test]
    fn prove_runs_the_part_of_each_planted_mistake() {
        let arguments = parse("make story ARGS=--prove");
        let (plan, seconds) = select(&arguments).unwrap();
        let turns = turns(&arguments, &plan, seconds, None);
        for consumer in &plan.consumers {
            let Some([part, _]) = &consumer.must_show else { continue };
            let is_selected =
                turns.iter().any(|turn| turn.part == part && turn.consumer.name == consumer.name);
            assert!(is_selected, "{}: {part} is not run", consumer.name);
        }
    }

    #[test]
    fn recorded_command_runs_every_recorded_outcome() {
        let text = std::fs::read_to_string(repository().join("docs/story.json")).unwrap();
        let record: Record = serde_json::from_str(&text).unwrap();
        let arguments = parse(&record.command);
        let (plan, seconds) = select(&arguments).unwrap();
        let turns = turns(&arguments, &plan, seconds, None);
        assert!(!record.outcomes.is_empty());
        for Outcome { part, consumer, step, .. } in &record.outcomes {
            let step = step.unwrap();
            let matches = |turn: &Turn<'_>| {
                turn.part == part
                    && turn.consumer.name == *consumer
                    && turn.step.drivers == step.drivers
                    && (part == "memory" || turn.step.rate == step.rate)
            };
            let command = &record.command;
            assert!(
                turns.iter().any(matches),
                "{command} does not run {consumer}, {part}, {} drivers",
                step.drivers
            );
        }
    }

    #[test]
    fn documents_and_picture_match_the_recorded_run() {
        for script in ["docs/figures/draw.py", "lab/story/docs.py"] {
            let checked = Command::new("python3")
                .arg(repository().join(script))
                .arg("--check")
                .output()
                .unwrap();
            assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
        }
        let picture = std::fs::read_to_string(repository().join("docs/figures/cost.svg")).unwrap();
        let text = std::fs::read_to_string(repository().join("docs/story.json")).unwrap();
        let record: Record = serde_json::from_str(&text).unwrap();
        for consumer in ["milepost", "afternoon", "node", "bun"] {
            let recorded =
                record.consumers.iter().find(|recorded| recorded.name == consumer).unwrap();
            let title = recorded.title.replace('\'', "&#x27;");
            assert!(
                picture.contains(&format!(">{title}</text>")),
                "the picture does not show {consumer}"
            );
        }
    }
}
