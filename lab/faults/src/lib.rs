//! `lab faults` causes faults on demand. It runs the real binary between real servers. Proxies
//! between the binary and the servers cut, hang and delay connections, and swallow answers. Then
//! `lab faults` judges the result.
//!
//! Each row of the printed table is one fault. A row holds when every fix that the broker
//! acknowledged is stored once, milepost recovered in time without help, and its memory stayed
//! small. For a row that does not hold, `lab faults` prints the seed and the command that repeats
//! the row.

mod broker_rows;
mod cluster_rows;
mod event_rows;
mod field_rows;
mod harm_rows;
mod mistakes;
mod outage_rows;
mod pod_rows;
mod row;
mod rows;
mod scene;
mod spool_rows;
mod tls_rows;
mod watch;

pub use self::mistakes::KEEPS_NO_FIELD_PATCH;

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use lab_harness::table::Table;
use lab_stack::{ClickHouse, say};
use loadgen::verify::{Verdict, verify};

use self::mistakes::{CommandMistake, Mistake};
use self::row::Row;
use self::scene::Scene;

/// Longest allowed time between the end of a fault and the recovery of every member. A row that
/// takes longer fails.
const RECOVERY_MAX: Duration = Duration::from_secs(10);
/// Maximum peak memory of a member, which includes the resident pages of its executable.
///
/// A debug build of `lab` runs debug builds of milepost. Their executable is 40 MiB larger, and
/// much of it is resident: in the same row, a debug build had 66 MiB, an optimised build 36 MiB.
const RSS_BYTES_MAX: u64 = if cfg!(debug_assertions) { 96 << 20 } else { 64 << 20 };
/// The verifier stops waiting for missing fixes when no new fix has been stored for this time.
const VERIFY_WITHIN: Duration = Duration::from_secs(60);
/// Longest time for a member to end after SIGTERM.
const TERMINATE_WITHIN: Duration = Duration::from_secs(60);
/// Longest time until the rows of a table must be visible in its view.
const VIEW_WITHIN: Duration = Duration::from_secs(5);
const MIB: f64 = 1_048_576.0;

/// Arguments of `lab faults`.
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// The milepost binary
    #[arg(long, default_value = "target/release/milepost")]
    milepost: PathBuf,
    /// The strict-broker binary, a broker that never exceeds its window; see lab/strict-broker/
    #[arg(long, default_value = "target/release/strict-broker")]
    strict_broker: PathBuf,
    /// Only this row; may be given several times
    #[arg(long)]
    only: Vec<String>,
    /// Only the quick subset
    #[arg(long)]
    quick: bool,
    /// Use TLS to both servers in all rows, except those of a cluster
    #[arg(long)]
    tls: bool,
    /// Seed of the random moments and tracks
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// List the rows and exit
    #[arg(long)]
    list: bool,
    /// Test the laboratory itself: build mileposts with planted mistakes, and check that each
    /// mistake makes its row or test fail. With --only, only the mistakes of these rows and tests
    #[arg(long)]
    prove: bool,
}

/// The result of a row.
struct Finding {
    description: &'static str,
    messages: u64,
    verdict: Verdict,
    /// Time from the end of the fault to the recovery of every member.
    recovered: Duration,
    peak_rss_bytes: u64,
    /// Drivers whose last position is not their newest fix.
    wrong_last_positions: u64,
    silent_stall: Option<String>,
    /// A member whose exit code reports that it left data behind.
    unclean_exit: Option<String>,
    /// The smallest number of unacknowledged messages at the start of a fault.
    unacked: Option<u64>,
    /// Positions that may be missing, because the row damaged their spool files, or the cluster's
    /// broker lost them.
    allowed_losses: u64,
    /// Failure that the row observed, other than a loss.
    violation: Option<String>,
    /// Messages for which the broker had no subscriber.
    no_subscriber: u64,
}

impl Finding {
    /// Describes each condition that does not hold. Ignores the recovery time in the quick subset,
    /// because that subset runs at the same time as other tests: in it, a member must only recover
    /// before [`run_scene`] stops waiting.
    fn violations(&self, is_quick: bool) -> Vec<String> {
        let mut violations = Vec::new();
        let Verdict { lost, duplicates_in_fixes, never_sent, .. } = &self.verdict;
        if *lost > self.allowed_losses || *duplicates_in_fixes > 0 || *never_sent > 0 {
            violations.push(format!(
                "{lost} fixes lost, {duplicates_in_fixes} stored twice, {never_sent} stored but \
                 never sent"
            ));
        }
        if self.no_subscriber > 0 {
            violations.push(format!(
                "the broker had no subscriber for {} messages: a session was lost",
                self.no_subscriber
            ));
        }
        if self.wrong_last_positions > 0 {
            violations
                .push(format!("{} drivers have a wrong last position", self.wrong_last_positions));
        }
        violations.extend(self.violation.clone());
        violations.extend(self.silent_stall.clone());
        violations.extend(self.unclean_exit.clone());
        if self.recovered > RECOVERY_MAX && !is_quick {
            violations
                .push(format!("recovered after {:?}, more than {RECOVERY_MAX:?}", self.recovered));
        }
        if self.peak_rss_bytes > RSS_BYTES_MAX {
            violations.push(format!("{:.0} MiB of memory", self.peak_rss_bytes as f64 / MIB));
        }
        violations
    }
}

/// Runs the rows. Returns `true` if all hold.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let arguments = arguments.clone();
    lab_stack::unless_interrupted(move || run_rows(&arguments))
}

fn run_rows(arguments: &Arguments) -> Result<bool> {
    let mut all = [
        rows::all(),
        outage_rows::all(),
        broker_rows::all(),
        pod_rows::all(),
        spool_rows::all(),
        cluster_rows::all(),
        harm_rows::all(),
        event_rows::all(),
        field_rows::all(),
        tls_rows::all(),
    ]
    .into_iter()
    .flatten()
    .collect::<Vec<_>>();
    for row in all.iter_mut().filter(|row| !row.setup.cluster) {
        row.setup.tls |= arguments.tls;
    }
    for name in &arguments.only {
        let has_mistake = arguments.prove
            && mistakes::COMMAND_MISTAKES.iter().any(|mistake| mistake.test == name);
        ensure!(
            has_mistake || all.iter().any(|row| row.name == name),
            "no row is called {name}; --list prints the rows of a full run, and --list --quick \
             those of the quick subset"
        );
    }
    let chosen = |row: &&Row| match arguments.only.as_slice() {
        [] if arguments.quick => row.quick,
        [] => row.in_full_run,
        only => only.iter().any(|name| name == row.name),
    };
    let rows: Vec<&Row> = all.iter().filter(chosen).collect();
    if arguments.list {
        rows.iter().for_each(|row| say(&format!("{:<20} {}", row.name, row.description)));
        return Ok(true);
    }
    if arguments.prove {
        return prove(&all, arguments);
    }
    let binary = std::fs::canonicalize(&arguments.milepost)
        .with_context(|| format!("no binary at {}", arguments.milepost.display()))?;

    let began = Instant::now();
    let (mut findings, mut failed) = (Vec::new(), Vec::new());
    for (index, row) in rows.iter().enumerate() {
        eprintln!("[{}/{}] {}: {}", index + 1, rows.len(), row.name, row.description);
        let row_began = Instant::now();
        let mut kept_folder = None;
        let violations = match run_row(row, &binary, arguments, &mut kept_folder) {
            Ok(finding) => {
                let violations = finding.violations(arguments.quick);
                findings.push(finding);
                violations
            }
            Err(error) => vec![format!("{error:#}")],
        };
        if violations.is_empty() {
            eprintln!("    holds, after {:.0} s", row_began.elapsed().as_secs_f64());
        } else {
            let tls = if arguments.tls { "--tls " } else { "" };
            let repeat = format!(
                "target/release/lab faults {tls}--only {} --seed {}",
                row.name, arguments.seed
            );
            eprintln!("    DOES NOT HOLD: {}\n    repeat: {repeat}", violations.join("; "));
            if let Some(folder) = kept_folder {
                eprintln!("    kept: {}", folder.display());
            }
            failed.push(row.name);
        }
    }
    say(&format!("\n{}", table(&findings).markdown()));
    let messages: u64 = findings.iter().map(|finding| finding.messages).sum();
    say(&format!("{messages} QoS 1 messages in {:.0} s.", began.elapsed().as_secs_f64()));
    if !failed.is_empty() {
        say(&format!("Does not hold: {}", failed.join(", ")));
    }
    Ok(failed.is_empty())
}

/// Judges the laboratory itself: each planted mistake must make its row fail.
fn prove(rows: &[Row], arguments: &Arguments) -> Result<bool> {
    let mut all_found = true;
    let is_chosen =
        |name: &&str| arguments.only.is_empty() || arguments.only.iter().any(|only| only == name);
    for Mistake { description, rows: names, patch } in mistakes::ALL {
        let chosen: Vec<&str> = names.iter().copied().filter(is_chosen).collect();
        if chosen.is_empty() {
            continue;
        }
        eprintln!("building a milepost that {description}");
        let binary = lab_harness::patched::build(patch)?;
        for name in chosen {
            let row = rows
                .iter()
                .find(|row| row.name == name)
                .context("no row has the name that the mistake gives")?;
            // A row that could not run has not found its mistake.
            let verdict = match run_row(row, &binary, arguments, &mut None)
                .map(|finding| finding.violations(false))
            {
                Ok(violations) if violations.is_empty() => "NOT FOUND".to_owned(),
                Ok(violations) => format!("found: {}", violations.join("; ")),
                Err(error) => format!("NOT FOUND, the row did not run: {error:#}"),
            };
            all_found &= verdict.starts_with("found");
            say(&format!("a milepost that {description}, on row {name}: {verdict}"));
        }
    }
    for CommandMistake { description, test, patch } in mistakes::COMMAND_MISTAKES {
        if !is_chosen(&test) {
            continue;
        }
        eprintln!("building a milepost that {description}");
        let binary = lab_harness::patched::build(patch)?;
        let is_found = lab_harness::patched::test_fails(test, &binary)?;
        all_found &= is_found;
        let verdict = if is_found { "found" } else { "NOT FOUND" };
        say(&format!("a milepost that {description}, in test {test}: {verdict}"));
    }
    Ok(all_found)
}

/// Runs a row. If the row does not hold, keeps the folder with its logs and data, and stores its
/// path in `kept_folder`.
fn run_row(
    row: &Row,
    binary: &Path,
    arguments: &Arguments,
    kept_folder: &mut Option<PathBuf>,
) -> Result<Finding> {
    // Mix the row's name into the seed: the random moments differ between rows, and are the same
    // when the row is repeated alone.
    let seed = arguments.seed;
    let seed = row
        .name
        .bytes()
        .fold(seed, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let mut scene = Scene::begin(binary, &arguments.strict_broker, &row.setup, row.name, seed)?;
    let outcome = run_scene(row, &mut scene);
    if !outcome.as_ref().is_ok_and(|finding| finding.violations(arguments.quick).is_empty()) {
        *kept_folder = Some(scene.keep());
    }
    outcome
}

fn run_scene(row: &Row, scene: &mut Scene) -> Result<Finding> {
    scene.start_fleet()?;
    (row.act)(scene)?;
    let recovered = scene.wait_until_recovered(RECOVERY_MAX * 4)?;
    let manifest = scene.finish_fleet()?;
    // Positions that may be lost never arrive, so a long wait for them is pointless.
    let within = if scene.allowed_losses > 0 { RECOVERY_MAX } else { VERIFY_WITHIN };
    let verdict = verify(&scene.engine()?.store("fleet"), &manifest, within)?;
    let wrong_last_positions = wrong_last_positions(scene.engine()?, VIEW_WITHIN)?;
    let mut unclean_exit = None;
    let mut codes = Vec::new();
    for member in &mut scene.members {
        codes.push((member.client_id.clone(), member.milepost.terminate(TERMINATE_WITHIN)?));
    }
    for (client_id, code) in codes {
        if !scene.allows_exit_code(code) {
            unclean_exit = Some(format!("{client_id} ended with exit code {code}"));
        }
    }
    Ok(Finding {
        description: row.description,
        messages: manifest.messages,
        verdict,
        recovered,
        peak_rss_bytes: scene.watch.peak_rss_bytes(),
        wrong_last_positions,
        silent_stall: scene.watch.silent_stall(),
        unclean_exit,
        unacked: scene.unacked,
        allowed_losses: scene.allowed_losses,
        violation: scene.violation.take(),
        no_subscriber: scene.messages_without_subscriber(&manifest),
    })
}

/// Counts the drivers that have no last position, or one that is not their newest fix. The rows
/// of an insert become visible a moment before those of its view, so an error counts only if it
/// persists for `within`.
fn wrong_last_positions(engine: &ClickHouse, within: Duration) -> Result<u64> {
    let until = Instant::now() + within;
    loop {
        let wrong = count_wrong_last_positions(engine)?;
        if wrong == 0 || Instant::now() >= until {
            return Ok(wrong);
        }
        sleep(Duration::from_millis(200));
    }
}

fn count_wrong_last_positions(engine: &ClickHouse) -> Result<u64> {
    let sql = "SELECT count() FROM \
               (SELECT driver_id, max(ts) AS newest FROM fleet.fixes GROUP BY driver_id) AS f \
               FULL JOIN (SELECT driver_id, ts AS newest FROM fleet.last_positions) AS l \
               USING driver_id WHERE f.newest != l.newest";
    Ok(engine.query(sql)?.trim().parse()?)
}

fn table(findings: &[Finding]) -> Table {
    let head = "fault|messages|lost|twice in `fixes`|raw duplicates|back after|peak RSS|\
                unacked at the fault";
    let mut table = Table::with_columns(head.split('|'));
    table.rows.extend(findings.iter().map(|finding| {
        let Finding { description, messages, verdict, recovered, peak_rss_bytes, unacked, .. } =
            finding;
        let Verdict { lost, duplicates_in_fixes, duplicates_raw, .. } = verdict;
        let counts = [messages, lost, duplicates_in_fixes, duplicates_raw].map(u64::to_string);
        let measured = [
            format!("{:.1} s", recovered.as_secs_f64()),
            format!("{:.1} MiB", *peak_rss_bytes as f64 / MIB),
            unacked.map_or("–".to_owned(), |unacked| unacked.to_string()),
        ];
        [(*description).to_owned()].into_iter().chain(counts).chain(measured).collect()
    }));
    table
}
