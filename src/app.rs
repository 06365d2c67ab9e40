//! Wiring and supervision: the only file that knows every room.
//!
//! Guarantee: every task and thread is owned here; any that ends outside a shutdown ends the process with an
//! error. A shutdown flushes within `shutdown.grace`, and says so when it could not.

pub mod rejects;
pub mod spooled;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::check::{self, Level, Report};
use crate::clickhouse::{ClickHouse, Error};
use crate::config::Config;
use crate::decode::Decoder;
use crate::health::Health;
use crate::http;
use crate::insert::{Gate, Inserter, chain};
use crate::lane::{self, Lane, Totals};
use crate::metrics::Metrics;
use crate::position::Timestamp;
use crate::replay::Replayer;
use crate::spool::Spool;
use crate::subscriber::{self, Wiring};

/// How often a server that is not there, or not migrated, is asked again.
const WAIT_FOR_SERVER: Duration = Duration::from_secs(1);
/// How often the waiting is logged again.
const WAITS_PER_LOG_LINE: u32 = 10;

/// How long a replay that is under way may take when everything else is done.
const REPLAY_ENDS_WITHIN: Duration = Duration::from_secs(2);

/// The server's name in `/readyz`.
const CLICKHOUSE_PART: &str = "clickhouse";

/// How a process ended, as its exit code says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Everything taken is durable and acknowledged.
    Clean,
    /// Shut down with data left in the spool, or in the broker, which keeps it for the session's expiry.
    DataLeft,
}

/// `milepost run`.
///
/// # Errors
/// What ended the process outside a shutdown.
pub async fn run(config: Config) -> Result<Outcome> {
    let metrics = Arc::new(Metrics::new(usize::from(config.mqtt.connections)));
    let health = Arc::new(Health::default());
    // Not ready until each has said otherwise: a probe may ask before the lanes' threads run.
    health.trouble(CLICKHOUSE_PART, "not asked yet");
    for index in 0..usize::from(config.mqtt.connections) {
        health.trouble(&subscriber::part(index), subscriber::NOT_SUBSCRIBED);
    }
    let mut signals = Signals::new()?;

    let listener = TcpListener::bind(config.http.listen)
        .await
        .with_context(|| format!("http.listen: cannot listen on {}", config.http.listen))?;
    info!(listen = %listener.local_addr()?, "serving /metrics, /livez and /readyz");
    let mut tasks = JoinSet::new();
    tasks.spawn(named("http server", http::serve(listener, Arc::clone(&metrics), Arc::clone(&health))));

    let clickhouse = Arc::new(ClickHouse::new(&config.clickhouse)?);
    let spool = open_spool(&config, &metrics)?;
    let (gate, at_gate) = watch::channel(Gate::Unknown);
    if spool.is_none() {
        // Nowhere to put what comes meanwhile: it stays with the broker.
        tokio::select! {
            ready = wait_until_migrated(&clickhouse, &health, &gate) => ready?,
            () = signals.next() => return Ok(Outcome::Clean),
        }
    }

    let (leave, leaving) = watch::channel(false);
    let mut lanes = JoinSet::new();
    for index in 0..usize::from(config.mqtt.connections) {
        // A place for each slot, for what is spooled, and for the wish to save what is under way.
        let places = config.clickhouse.inserts_in_flight + 2;
        let (work, to_insert) = mpsc::channel(places);
        let (to_settle, settled) = mpsc::channel(places);
        let inserter = Inserter {
            sink: Arc::clone(&clickhouse),
            lane: index,
            database: config.clickhouse.database.clone(),
            timeout: config.clickhouse.insert_timeout,
            spool: spool.clone(),
            gate: at_gate.clone(),
            metrics: Arc::clone(&metrics),
            health: Arc::clone(&health),
        };
        tasks.spawn(named("inserter", inserter.run(to_insert, to_settle)));
        let wiring = Wiring {
            index,
            mqtt: config.mqtt.clone(),
            work,
            settled,
            spool: spool.clone(),
            leave: leaving.clone(),
            metrics: Arc::clone(&metrics),
            health: Arc::clone(&health),
        };
        let end = subscriber::spawn(wiring, lane(&config)).context("no thread for a lane")?;
        lanes.spawn(async move { end.await.context("a lane's thread died; its panic is on stderr") });
    }
    let mut replays = JoinSet::new();
    if let Some(spool) = &spool {
        let timeout = config.clickhouse.insert_timeout;
        let (metrics, health) = (Arc::clone(&metrics), Arc::clone(&health));
        let replayer = Replayer::new(Arc::clone(&clickhouse), Arc::clone(spool), timeout, metrics, health);
        replays.spawn(replayer.run(at_gate.clone(), leaving));
    }

    let mut preflight = JoinSet::new();
    preflight.spawn(log_preflight(config.clone(), at_gate));

    tokio::select! {
        () = signals.next() => {}
        Some(ended) = tasks.join_next() => bail!("the {} ended", ended.context("a task died")?),
        Some(ended) = lanes.join_next() => bail!("a lane ended: {:?}", ended.context("a lane died")??),
        Some(ended) = replays.join_next() => bail!("the replay ended: {ended:?}"),
        error = open_gate(&clickhouse, &health, &gate) => return Err(error),
    }
    info!(grace = ?config.shutdown.grace, "leaving: flushing what was taken");
    leave.send_replace(true);
    let flush = async {
        let outcome = flushed(&mut lanes).await;
        let _ = tokio::time::timeout(REPLAY_ENDS_WITHIN, replays.join_next()).await;
        outcome
    };
    let outcome = tokio::select! {
        outcome = flush => outcome?,
        () = tokio::time::sleep(config.shutdown.grace) => left(&metrics, "shutdown.grace is over"),
        () = signals.next() => left(&metrics, "a second signal"),
    };
    log_ledger(&metrics);
    Ok(if spool.is_some_and(|spool| spool_keeps(&spool)) { Outcome::DataLeft } else { outcome })
}

fn open_spool(config: &Config, metrics: &Arc<Metrics>) -> Result<Option<Arc<Spool>>> {
    let Some(settings) = &config.spool else { return Ok(None) };
    let spool = Spool::open(&settings.dir, settings.bytes_max, Arc::clone(metrics))?;
    if spool.batches() > 0 {
        let dir = settings.dir.display();
        info!(%dir, batches = spool.batches(), "an earlier process left batches in the spool: replaying them");
    }
    Ok(Some(Arc::new(spool)))
}

/// What will go wrong, in the log; beside the work, which it neither delays nor stops.
async fn log_preflight(config: Config, mut gate: watch::Receiver<Gate>) {
    let of_spool = config.clone();
    if let Ok(report) = tokio::task::spawn_blocking(move || check::spool_at_start(&of_spool)).await {
        log_findings(&report);
    }
    if gate.wait_for(|gate| *gate == Gate::Open).await.is_ok() {
        log_findings(&check::server_at_start(&config, now_ms).await);
    }
}

fn log_findings(report: &Report) {
    for finding in report.findings() {
        match finding.level {
            Level::Ok => {}
            Level::Warning | Level::Error => {
                let advice = finding.advice.as_deref().unwrap_or_default();
                warn!(check = finding.what, advice, "{}", finding.found);
            }
        }
    }
}

/// `milepost check`.
///
/// # Errors
/// A topic that cannot be probed.
pub async fn check(config: &Config, probe_topic: Option<&str>) -> Result<Report> {
    if let Some(why) = probe_topic.and_then(|topic| check::unusable_probe(config, topic)) {
        bail!("--probe-topic: {why}");
    }
    Ok(check::all(config, probe_topic, now_ms).await)
}

fn now_ms() -> i64 {
    now().unix_ms()
}

/// Lets inserts through once the tables are there; returns only if that cannot be.
async fn open_gate(clickhouse: &ClickHouse, health: &Health, gate: &watch::Sender<Gate>) -> anyhow::Error {
    if *gate.borrow() != Gate::Open
        && let Err(error) = wait_until_migrated(clickhouse, health, gate).await
    {
        return error;
    }
    std::future::pending().await
}

/// Every position that was taken, and where it is.
fn log_ledger(metrics: &Metrics) {
    let ledger = metrics.ledger();
    info!(
        received = ledger.sum(|totals| totals.received),
        spool_at_start = ledger.spool_at_start,
        inserted = ledger.inserted(),
        rejected = ledger.sum(|totals| totals.rejected.iter().sum()),
        ignored = ledger.sum(|totals| totals.ignored),
        shed = ledger.sum(|totals| totals.shed),
        abandoned = ledger.sum(|totals| totals.abandoned),
        quarantined = ledger.quarantined,
        in_spool = ledger.in_spool,
        in_flight = ledger.sum(|totals| totals.in_flight),
        adds_up = ledger.adds_up(),
        "ledger, in positions"
    );
}

/// Whether something stays in the spool; says where.
fn spool_keeps(spool: &Spool) -> bool {
    let batches = spool.batches();
    if batches > 0 {
        warn!(
            dir = %spool.dir().display(), batches,
            "batches stay in the spool: a process with this spool.dir replays them, or `milepost spool replay`"
        );
    }
    batches > 0
}

fn lane(config: &Config) -> Lane {
    let settings = lane::Settings {
        batch: config.batch.clone(),
        inserts_in_flight: config.clickhouse.inserts_in_flight,
        buffer_bytes_max: config.mqtt.buffer_bytes_max,
        receive_maximum: config.mqtt.receive_maximum,
        spool: config.spool.is_some(),
        spool_when_leaving_after: config.shutdown.grace / 2,
        leave: config.shutdown.leave,
        seed: fastrand::u64(..),
    };
    Lane::new(settings, Decoder::new(&config.mqtt.topics, config.decode.clone()))
}

async fn named(name: &'static str, task: impl Future<Output = ()>) -> &'static str {
    task.await;
    name
}

/// A view that does not exist yet misses the rows that come before it: nothing is subscribed until the
/// migrations of this binary are recorded.
async fn wait_until_migrated(
    clickhouse: &ClickHouse,
    health: &Health,
    gate: &watch::Sender<Gate>,
) -> Result<()> {
    for wait in 0_u32.. {
        let (why, state) = match clickhouse.pending().await {
            Ok(pending) if pending.is_empty() => break,
            Ok(pending) => {
                let names: Vec<_> = pending.iter().map(|migration| migration.name).collect();
                let why = format!("not migrated: `milepost migrate` applies {}", names.join(", "));
                (why, Gate::Refused)
            }
            Err(error @ (Error::Edited { .. } | Error::Password(_))) => bail!(error),
            Err(error @ Error::Server { .. }) => {
                (chain(&error), if error.may_pass() { Gate::Unknown } else { Gate::Refused })
            }
        };
        if wait.is_multiple_of(WAITS_PER_LOG_LINE) {
            warn!(why, "waiting for ClickHouse");
        }
        health.trouble(CLICKHOUSE_PART, why);
        gate.send_replace(state);
        tokio::time::sleep(WAIT_FOR_SERVER).await;
    }
    health.fine(CLICKHOUSE_PART);
    gate.send_replace(Gate::Open);
    Ok(())
}

async fn flushed(lanes: &mut JoinSet<Result<Totals>>) -> Result<Outcome> {
    let mut broker_holds = false;
    while let Some(ended) = lanes.join_next().await {
        broker_holds |= ended.context("a lane died")??.broker_holds;
    }
    if broker_holds {
        warn!("everything taken is durable, but not all of it acknowledged: the broker sends it again");
        return Ok(Outcome::DataLeft);
    }
    info!("everything taken is durable and acknowledged");
    Ok(Outcome::Clean)
}

fn left(metrics: &Metrics, why: &str) -> Outcome {
    let ledger = metrics.ledger();
    warn!(
        positions = ledger.sum(|totals| totals.in_flight),
        unacked_messages = ledger.sum(|totals| totals.unacked),
        "{why}: unacknowledged messages stay with the broker, for mqtt.session_expiry"
    );
    Outcome::DataLeft
}

/// `milepost migrate`.
///
/// # Errors
/// The server's refusal, or an edited migration.
pub async fn migrate(config: &Config) -> Result<()> {
    let clickhouse = ClickHouse::new(&config.clickhouse)?;
    let mut waited = 0_u32;
    let applied = loop {
        match clickhouse.migrate().await {
            Ok(applied) => break applied,
            Err(error) if error.may_pass() => {
                if waited.is_multiple_of(WAITS_PER_LOG_LINE) {
                    warn!(url = config.clickhouse.url, why = %chain(&error), "waiting for ClickHouse");
                }
                waited += 1;
                tokio::time::sleep(WAIT_FOR_SERVER).await;
            }
            Err(error) => return Err(error.into()),
        }
    };
    info!(database = config.clickhouse.database, applied = applied.len(), "migrated");
    Ok(())
}

/// The wall clock, for commands.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "a command's beginning; the lanes' shell reads the clocks for them"
)]
pub fn now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix_ms(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
