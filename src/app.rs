//! Wiring and supervision: the only file that knows every room.
//!
//! Guarantee: every task and thread is owned here; any that ends outside a shutdown ends the process with an
//! error. A shutdown flushes within `shutdown.grace`, and says so when it could not.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::clickhouse::{ClickHouse, MigrateError};
use crate::config::Config;
use crate::decode::Decoder;
use crate::health::Health;
use crate::http;
use crate::insert::{Inserter, chain};
use crate::lane::{self, Lane, Totals};
use crate::metrics::Metrics;
use crate::subscriber::{self, Wiring};

/// How often a server that is not there, or not migrated, is asked again.
const WAIT_FOR_SERVER: Duration = Duration::from_secs(1);
/// How often the waiting is logged again.
const WAITS_PER_LOG_LINE: u32 = 10;

/// The server's name in `/readyz`.
const CLICKHOUSE_PART: &str = "clickhouse";

/// How a process ended, as its exit code says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Everything taken is durable and acknowledged.
    Clean,
    /// Shut down with data left in the broker, which keeps it for the session's expiry.
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
    tokio::select! {
        ready = wait_until_migrated(&clickhouse, &health) => ready?,
        () = signals.next() => return Ok(Outcome::Clean),
    }

    let (leave, leaving) = watch::channel(false);
    let mut lanes = JoinSet::new();
    for index in 0..usize::from(config.mqtt.connections) {
        let (batches, to_insert) = mpsc::channel(config.clickhouse.inserts_in_flight);
        let (to_settle, settled) = mpsc::channel(config.clickhouse.inserts_in_flight);
        let inserter = Inserter {
            sink: Arc::clone(&clickhouse),
            lane: index,
            database: config.clickhouse.database.clone(),
            timeout: config.clickhouse.insert_timeout,
            metrics: Arc::clone(&metrics),
            health: Arc::clone(&health),
        };
        tasks.spawn(named("inserter", inserter.run(to_insert, to_settle)));
        let wiring = Wiring {
            index,
            mqtt: config.mqtt.clone(),
            batches,
            settled,
            leave: leaving.clone(),
            metrics: Arc::clone(&metrics),
            health: Arc::clone(&health),
        };
        let end = subscriber::spawn(wiring, lane(&config)).context("no thread for a lane")?;
        lanes.spawn(async move { end.await.context("a lane's thread died; its panic is on stderr") });
    }

    tokio::select! {
        () = signals.next() => {}
        Some(ended) = tasks.join_next() => bail!("the {} ended", ended.context("a task died")?),
        Some(ended) = lanes.join_next() => bail!("a lane ended: {:?}", ended.context("a lane died")??),
    }
    info!(grace = ?config.shutdown.grace, "leaving: flushing what was taken");
    leave.send_replace(true);
    Ok(tokio::select! {
        outcome = flushed(&mut lanes) => outcome?,
        () = tokio::time::sleep(config.shutdown.grace) => left(&metrics, "shutdown.grace is over"),
        () = signals.next() => left(&metrics, "a second signal"),
    })
}

fn lane(config: &Config) -> Lane {
    let settings = lane::Settings {
        batch: config.batch.clone(),
        inserts_in_flight: config.clickhouse.inserts_in_flight,
        buffer_bytes_max: config.mqtt.buffer_bytes_max,
        receive_maximum: config.mqtt.receive_maximum,
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
async fn wait_until_migrated(clickhouse: &ClickHouse, health: &Health) -> Result<()> {
    for wait in 0_u32.. {
        let why = match clickhouse.pending().await {
            Ok(pending) if pending.is_empty() => break,
            Ok(pending) => {
                let names: Vec<_> = pending.iter().map(|migration| migration.name).collect();
                format!("not migrated: `milepost migrate` applies {}", names.join(", "))
            }
            Err(error @ (MigrateError::Edited { .. } | MigrateError::Password(_))) => bail!(error),
            Err(error @ MigrateError::Server { .. }) => chain(&error),
        };
        if wait.is_multiple_of(WAITS_PER_LOG_LINE) {
            warn!(why, "waiting for ClickHouse");
        }
        health.trouble(CLICKHOUSE_PART, why);
        tokio::time::sleep(WAIT_FOR_SERVER).await;
    }
    health.fine(CLICKHOUSE_PART);
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
    let totals = metrics.totals();
    let sum = |of: fn(&Totals) -> u64| totals.iter().map(of).sum::<u64>();
    warn!(
        positions = sum(|t| t.in_flight),
        unacked_messages = sum(|t| t.unacked),
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
