//! kill -9 at load: what is lost, what is there twice, how soon the consumer is back.
//!
//! The rule for the moment is the same for every consumer, and goes by its own inserts. It is killed when half a batch
//! has come in since an insert was answered, and, the second time of three, when an insert is committed whose answer
//! it has not had. The first shows who acknowledges too early, the second who inserts again what is there already.
//! Whatever it started dies with it. It is started again at once, under the same client id; the load goes on.

use std::fmt::Write as _;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::account::Account;
use crate::cases::{Case, WARM_UP_SECONDS, thousands};
use crate::consumer::{Consumer, Kind, Place};
use crate::report::repetitions_in_words;
use crate::servers::Servers;
use crate::trial::{DRAINED_WITHIN, Load, QUIET, RATE_MIN, Stage, Trial, check_the_count};
use lab_harness::proxy::{Fault, Proxy};
use loadgen::manifest::Manifest;
use loadgen::verify::progress;

/// Half of every consumer's 5,000 rows.
const HALF_A_BATCH_MESSAGES: u32 = 2_500;
/// A consumer that inserts nothing for so long is killed all the same.
const PATIENCE: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(1);
/// Between two looks at the tables.
const LOOK: Duration = Duration::from_millis(200);
/// All is there; a batch may still wait for its second to be over, with what is there already.
const COMPLETE_QUIET: Duration = Duration::from_millis(1_500);

/// What the kills showed, beside lost and twice.
#[derive(Debug, Clone, Serialize, Default)]
pub(crate) struct Kills {
    /// Under load.
    pub(crate) count: u32,
    /// From each kill to being subscribed again.
    pub(crate) back_after_ms: Vec<f64>,
    /// Rows of `positions` beyond one a fix; merges are stopped, so these are all that were inserted again.
    pub(crate) duplicates_raw: u64,
    /// Messages for which the broker had no session any more. It said so, and the fleet sent them again: no loss here,
    /// but one with devices that do not listen.
    pub(crate) no_subscriber: u64,
    /// Why it did not come back.
    pub(crate) gone: Option<String>,
}

impl Kills {
    /// For the progress line.
    pub(crate) fn in_a_line(&self, trial: &Trial) -> String {
        let back = self.gone.as_ref().map_or_else(
            || format!("back after {:.2} s", worst_back_after(std::slice::from_ref(&trial)).unwrap_or(0.0)),
            |why| format!("did not come back: {why}"),
        );
        let (lost, twice) = (trial.lost.unwrap_or(0), trial.duplicates.unwrap_or(0));
        format!("{} kills, lost {lost}, twice {twice}, {back}", self.count)
    }
}

/// What the consumer is at when it is killed.
#[derive(Debug, Clone, Copy)]
enum Moment {
    HalfABatch,
    AnswerUnderWay,
}

impl Moment {
    fn of(kill: u32) -> Self {
        if kill % 3 == 1 { Self::AnswerUnderWay } else { Self::HalfABatch }
    }

    fn wait(self, proxy: &Proxy, rate: u32) {
        match self {
            Self::HalfABatch => {
                let before = proxy.inserts_answered();
                wait_for(|| proxy.inserts_answered() > before);
                sleep(Duration::from_secs(1) * HALF_A_BATCH_MESSAGES / rate);
            }
            Self::AnswerUnderWay => {
                let before = proxy.inserts_hit();
                proxy.set(Fault::SwallowAnswer { count: 1 });
                wait_for(|| proxy.inserts_hit() > before);
                proxy.set(Fault::None);
            }
        }
    }
}

fn wait_for(condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() && began.elapsed() < PATIENCE {
        sleep(POLL);
    }
}

/// The load, the kills, the judge.
pub(crate) fn measure(
    stage: &Stage<'_>,
    folder: &Path,
    servers: &Servers,
    mut consumer: Consumer,
    trial: &mut Trial,
) -> Result<()> {
    servers.stop_merges()?;
    let load = Load::start(stage.case, servers)?;
    let (began, lasts) = (Instant::now(), lasts(stage.case));
    let mut kills = Kills::default();
    kill_again_and_again(stage, folder, servers, &mut consumer, &mut kills)?;
    // By the end of the load, not by the last byte: what met no session is sent again a second later.
    let held_to_the_end = lasts.checked_sub(began.elapsed()).map(|left| {
        sleep(left);
        load.sent() as f64 / began.elapsed().as_secs_f64()
    });
    let manifest = load.finish(servers)?.manifest.context("a fleet sends, and keeps an account")?;
    trial.rate_held = held_to_the_end.unwrap_or(manifest.rate_held);
    if kills.gone.is_none() {
        check_the_load(trial, stage.case, servers, &manifest)?;
    }
    wait_until_settled(servers, &manifest)?;
    if let Err(error) = consumer.process.ensure_alive() {
        kills.gone.get_or_insert_with(|| format!("{error:#}"));
    }
    let verdict = servers.verify(&manifest, Duration::ZERO)?;
    consumer.process.kill_tree()?;
    if kills.count == 0 {
        trial.refuse(true, "the load was over before the first kill".to_owned());
    }
    trial.messages = manifest.messages;
    (trial.lost, trial.duplicates) =
        (Some(verdict.lost), Some(verdict.duplicates_in_fixes + verdict.never_sent));
    kills.duplicates_raw = verdict.duplicates_raw;
    kills.no_subscriber = manifest.no_subscriber;
    trial.kills = Some(kills);
    Ok(())
}

fn lasts(case: &Case) -> Duration {
    Duration::from_secs(u64::from(WARM_UP_SECONDS + case.seconds))
}

/// Evenly over the load; a consumer that takes long to come back meets fewer kills.
fn kill_again_and_again(
    stage: &Stage<'_>,
    folder: &Path,
    servers: &Servers,
    consumer: &mut Consumer,
    kills: &mut Kills,
) -> Result<()> {
    let case = stage.case;
    let (rate, proxy) =
        case.rate.zip(servers.proxy()).context("kills need a rate, and a proxy before ClickHouse")?;
    let url = servers.clickhouse_url();
    let place =
        Place { folder, mqtt_port: servers.mqtt_port(), clickhouse_url: &url, qos: case.qos, member: 0 };
    let (began, lasts) = (Instant::now(), lasts(case));
    for kill in 0..case.kills {
        // So that the last one, too, comes back under load.
        let due = lasts * (2 * kill + 1) / (2 * (case.kills + 1));
        sleep(due.saturating_sub(began.elapsed()));
        Moment::of(kill).wait(proxy, rate);
        if began.elapsed() >= lasts {
            break;
        }
        let killed = Instant::now();
        consumer.process.kill_tree()?;
        kills.count += 1;
        *consumer = Consumer::start(stage.kind, stage.binaries, &place)?;
        match consumer.wait_until_ready() {
            Ok(_) => kills.back_after_ms.push(killed.elapsed().as_secs_f64() * 1e3),
            Err(error) => {
                kills.gone = Some(format!("{error:#}"));
                break;
            }
        }
    }
    Ok(())
}

/// Whether the generator sent what it should, and told the truth about it.
fn check_the_load(trial: &mut Trial, case: &Case, servers: &Servers, manifest: &Manifest) -> Result<()> {
    check_the_count(trial, servers, manifest)?;
    let (held, wanted) = (trial.rate_held, f64::from(case.rate.unwrap_or(0)));
    if held < wanted * RATE_MIN {
        trial.refuse(true, format!("the generator held {held:.0} of {wanted:.0} messages a second"));
    }
    Ok(())
}

/// Until nothing more is stored: a consumer that has lost something would be waited for in vain.
fn wait_until_settled(servers: &Servers, manifest: &Manifest) -> Result<()> {
    let tables = servers.tables()?;
    let (began, mut before, mut changed) = (Instant::now(), progress(&tables, manifest)?, Instant::now());
    loop {
        let complete = before.different >= manifest.sent();
        let quiet = if complete { COMPLETE_QUIET } else { QUIET };
        if changed.elapsed() >= quiet || began.elapsed() >= DRAINED_WITHIN {
            return Ok(());
        }
        sleep(LOOK);
        let now = progress(&tables, manifest)?;
        if now != before {
            (before, changed) = (now, Instant::now());
        }
    }
}

/// In seconds.
fn worst_back_after(trials: &[&Trial]) -> Option<f64> {
    let kills = trials.iter().filter_map(|trial| trial.kills.as_ref());
    kills.flat_map(|kills| &kills.back_after_ms).copied().reduce(f64::max).map(|ms| ms / 1e3)
}

fn sum(trials: &[&Trial], of: impl Fn(&Kills) -> u64) -> u64 {
    trials.iter().filter_map(|trial| trial.kills.as_ref()).map(of).sum()
}

/// What is wrong with a consumer, in words.
fn in_words(trials: &[&Trial], account: &Account) -> String {
    // What one that is gone did not store may still be with the broker.
    if let Some(why) = trials.iter().find_map(|trial| trial.kills.as_ref()?.gone.as_ref()) {
        return format!("**did not come back**: {}", why.replace(['|', '\n'], " "));
    }
    let found = [(account.lost > 0, "**loses data**"), (account.twice > 0, "**stores twice**")];
    let found: Vec<&str> = found.into_iter().filter(|(is, _)| *is).map(|(_, words)| words).collect();
    found.join(", ")
}

/// For a table of several cases: lost and twice, and what that means.
pub(crate) fn in_a_cell(trials: &[&Trial]) -> String {
    let Some(account) = Account::of(trials.iter().copied()) else { return "–".to_owned() };
    format!("{}, {} {}", account.lost, account.twice, in_words(trials, &account)).trim_end().to_owned()
}

/// One row a consumer: sums over the repetitions, and the longest absence.
pub(crate) fn write_table<'a>(
    case: &Case,
    rows: impl Iterator<Item = (Kind, &'a [&'a Trial])>,
    out: &mut String,
) -> std::fmt::Result {
    writeln!(
        out,
        "`--only {}`: {} drivers; {} s of load a step, {}; sums, and the longest absence. Killed {} times a \
         step, with half a batch in memory or, the second time, with an insert committed whose answer it has not had; \
         what it started dies with it. Cost does not count here. What is lost is what is not stored once the count has \
         stood still for {} s.\n",
        case.name,
        thousands(case.drivers),
        WARM_UP_SECONDS + case.seconds,
        repetitions_in_words(case.repetitions),
        case.kills,
        QUIET.as_secs()
    )?;
    writeln!(
        out,
        "| consumer | acknowledges | kills | messages | lost | twice in `fixes` | raw duplicates | back after | |\n\
         |---|---|--:|--:|--:|--:|--:|--:|---|"
    )?;
    let mut unheard = Vec::new();
    for (kind, trials) in rows {
        write!(out, "| {} | {} |", kind.name(), kind.acknowledges())?;
        let Some(account) = Account::of(trials.iter().copied()) else {
            writeln!(out, " – | – | – | – | – | – | |")?;
            continue;
        };
        let back = worst_back_after(trials).map_or("–".to_owned(), |seconds| format!("{seconds:.2} s"));
        let wrong = in_words(trials, &account);
        writeln!(
            out,
            " {} | {} | {} | {} | {} | {back} | {} |",
            sum(trials, |kills| u64::from(kills.count)),
            account.messages,
            account.lost,
            account.twice,
            sum(trials, |kills| kills.duplicates_raw),
            if wrong.is_empty() { "nothing lost, each fix once" } else { &wrong }
        )?;
        let times = sum(trials, |kills| kills.no_subscriber);
        if times > 0 {
            unheard.push(format!("{} {times}", kind.name()));
        }
    }
    writeln!(out)?;
    if !unheard.is_empty() {
        writeln!(
            out,
            "- Messages for which the broker had no session, which this fleet then sent again, and another would not: {}",
            unheard.join(", ")
        )?;
    }
    writeln!(
        out,
        "- Raw duplicates are rows inserted again. Merges, which collapse them, are stopped here; `fixes` shows each fix once."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(lost: u64, gone: Option<&str>) -> Trial {
        let kills = Kills {
            count: 3,
            back_after_ms: vec![20.0, 310.0],
            gone: gone.map(str::to_owned),
            ..Kills::default()
        };
        Trial {
            messages: 60_000,
            lost: Some(lost),
            duplicates: Some(0),
            kills: Some(kills),
            ..Trial::default()
        }
    }

    #[test]
    fn a_row_says_in_words_what_is_wrong() {
        let (good, bad, gone) = (trial(0, None), trial(7_500, None), trial(10, Some("peer ended | x")));
        assert_eq!(in_a_cell(&[&good]), "0, 0");
        assert_eq!(in_a_cell(&[&good, &bad]), "7500, 0 **loses data**");
        assert_eq!(in_a_cell(&[]), "–");
        let case = Case { kills: 3, ..crate::cases::quick().remove(0) };
        let rows = [
            (Kind::Milepost, vec![&good]),
            (Kind::NodePublished, vec![&bad]),
            (Kind::Bun, vec![&gone]),
            (Kind::Floor, vec![]),
        ];
        let mut out = String::new();
        write_table(&case, rows.iter().map(|(kind, trials)| (*kind, &trials[..])), &mut out).unwrap();
        assert!(
            out.contains("| milepost | PUBACK after the durable insert, in order | 3 | 60000 | 0 | 0 | 0 | 0.31 s | nothing lost, each fix once |"),
            "{out}"
        );
        assert!(
            out.contains(
                "| node-published | PUBACK on receipt (a crash loses a batch) | 3 | 60000 | 7500 | 0 | 0 | 0.31 s | **loses data** |"
            ),
            "{out}"
        );
        assert!(out.contains("**did not come back**: peer ended   x |"), "{out}");
        assert!(out.contains("| floor | PUBACK after the insert | – |"), "{out}");
    }
}
