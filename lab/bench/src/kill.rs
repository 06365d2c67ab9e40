//! Measures what `kill -9` under load costs: the lost and duplicate rows, and the time until the
//! consumer is subscribed again.
//!
//! Each kill waits for a moment in the consumer's own inserts, by the same rule for every consumer.
//! The first and the third of three kills strike when half a batch has arrived since the last
//! answer to an insert. These kills expose a consumer that acknowledges too early. The second kill
//! strikes when an insert is committed but not answered yet. This kill exposes a consumer that
//! inserts stored rows again. Each kill ends the whole process tree. The consumer is started again
//! at once with the same client id, while the load continues.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use lab_harness::scripted_clickhouse::{Behaviour, ScriptedClickHouse};
use loadgen::manifest::Manifest;
use loadgen::verify::progress;

use crate::cases::{Case, WARM_UP_SECONDS};
use crate::consumer::Consumer;
use crate::figures::check_rate;
use crate::load::{DRAINED_WITHIN, Load, QUIET, check_count};
use crate::servers::Servers;
use crate::trial::{Kills, Trial};

/// Half a batch, in messages. The largest batch of every consumer is 5,000 rows.
const HALF_A_BATCH_MESSAGES: u32 = 2_500;
/// Longest wait for the moment of a kill. A consumer that inserts nothing is killed after this
/// time.
const MOMENT_WAIT_MAX: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(1);
/// Interval between two counts of the stored rows.
const COUNT_EVERY: Duration = Duration::from_millis(200);
/// Once all fixes are stored, the tables count as settled if they have not grown for this long: the
/// consumer may keep a batch of duplicates open for up to a second.
const COMPLETE_QUIET: Duration = Duration::from_millis(1_500);

/// The state in which the consumer is killed.
#[derive(Debug, Clone, Copy)]
enum Moment {
    HalfABatch,
    AnswerInFlight,
}

impl Moment {
    /// Returns the moment for a kill. `kill`: the index of the kill, from 0.
    fn nth(kill: u32) -> Self {
        if kill % 3 == 1 { Self::AnswerInFlight } else { Self::HalfABatch }
    }

    fn wait(self, proxy: &ScriptedClickHouse, rate: u32) {
        match self {
            Self::HalfABatch => {
                let before = proxy.inserts_answered();
                wait_for(|| proxy.inserts_answered() > before);
                sleep(Duration::from_secs(1) * HALF_A_BATCH_MESSAGES / rate);
            }
            Self::AnswerInFlight => {
                let before = proxy.hits();
                proxy.set_for(1, Behaviour::SwallowAnswer);
                wait_for(|| proxy.hits() > before);
                proxy.set(Behaviour::Honest);
            }
        }
    }
}

fn wait_for(condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() && began.elapsed() < MOMENT_WAIT_MAX {
        sleep(POLL);
    }
}

/// Sends the load, kills the consumer, and compares the fixes stored with those sent. `start_again`
/// starts a consumer with the same client id.
pub(crate) fn measure(
    case: &Case,
    servers: &Servers,
    mut consumer: Consumer,
    start_again: &dyn Fn() -> Result<Consumer>,
    trial: &mut Trial,
) -> Result<()> {
    // A merge would remove duplicate rows from `positions` before they are counted.
    servers.engine()?.query("SYSTEM STOP MERGES fleet.positions")?;
    let load = Load::start(case, servers)?;
    let (began, planned) = (Instant::now(), load_duration(case));
    let mut kills = Kills::default();
    kill_repeatedly(case, servers, &mut consumer, start_again, &mut kills)?;
    // Measure the rate until the planned end of the load, not until the last message: a message
    // without a subscriber is sent again a second later.
    let rate_until_end = planned.checked_sub(began.elapsed()).map(|remaining| {
        sleep(remaining);
        load.sent() as f64 / began.elapsed().as_secs_f64()
    });
    let manifest =
        load.finish(servers)?.manifest.context("a case with kills needs a fleet as its source")?;
    trial.rate_held = rate_until_end.unwrap_or(manifest.rate_held);
    if kills.failure.is_none() {
        check_load(trial, case, servers, &manifest)?;
    }
    wait_until_settled(servers, &manifest)?;
    if let Err(error) = consumer.process.ensure_alive() {
        kills.failure.get_or_insert_with(|| format!("{error:#}"));
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

fn load_duration(case: &Case) -> Duration {
    Duration::from_secs(u64::from(WARM_UP_SECONDS + case.seconds))
}

/// Spreads the kills evenly over the load. A consumer that takes long to subscribe again is killed
/// fewer times.
fn kill_repeatedly(
    case: &Case,
    servers: &Servers,
    consumer: &mut Consumer,
    start_again: &dyn Fn() -> Result<Consumer>,
    kills: &mut Kills,
) -> Result<()> {
    let (rate, proxy) = (case.rate.context("a case with kills has no rate")?, servers.proxy()?);
    let (began, planned) = (Instant::now(), load_duration(case));
    for kill in 0..case.kills {
        // Leave time after the last kill, too: the consumer must subscribe again under load.
        let due = planned * (2 * kill + 1) / (2 * (case.kills + 1));
        sleep(due.saturating_sub(began.elapsed()));
        Moment::nth(kill).wait(proxy, rate);
        if began.elapsed() >= planned {
            break;
        }
        let killed_at = Instant::now();
        consumer.process.kill_tree()?;
        kills.count += 1;
        *consumer = start_again()?;
        match consumer.wait_until_ready() {
            Ok(_) => kills.back_after_ms.push(killed_at.elapsed().as_secs_f64() * 1e3),
            Err(error) => {
                kills.failure = Some(format!("{error:#}"));
                break;
            }
        }
    }
    Ok(())
}

/// Refuses the trial if the generator did not hold its rate, or if the broker counted another
/// number of messages than the generator.
fn check_load(
    trial: &mut Trial,
    case: &Case,
    servers: &Servers,
    manifest: &Manifest,
) -> Result<()> {
    check_count(trial, servers, manifest)?;
    check_rate(trial, f64::from(case.rate.unwrap_or(0)));
    Ok(())
}

/// Waits until the number of stored rows stops growing. A consumer may have lost rows, so this
/// function cannot wait until every row is stored.
fn wait_until_settled(servers: &Servers, manifest: &Manifest) -> Result<()> {
    let tables = servers.tables()?;
    let (began, mut before, mut changed) =
        (Instant::now(), progress(&tables, manifest)?, Instant::now());
    loop {
        let complete = before.distinct >= manifest.sent();
        let quiet = if complete { COMPLETE_QUIET } else { QUIET };
        if changed.elapsed() >= quiet || began.elapsed() >= DRAINED_WITHIN {
            return Ok(());
        }
        sleep(COUNT_EVERY);
        let now = progress(&tables, manifest)?;
        if now != before {
            (before, changed) = (now, Instant::now());
        }
    }
}
