//! `milepost run`: connects the components, and shuts them down.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::event_loop::{self, Wiring};
use super::schema::{self, Watcher};
use super::{leaving, members};
use crate::executor::Executor;
use crate::mqtt::shared::names;
use milepost_clickhouse::{Cause, ClickHouse, EndpointStatus};
use milepost_command::{Outcome, Signals, StartupContext, StartupTask};
use milepost_config::Config;
use milepost_core::consumer::{self, Consumer, ConsumerTotals};
use milepost_core::delivery::SpoolInventory;
use milepost_core::delivery::events::{ServerStatus, WatcherRequest};
use milepost_core::delivery::policy::{self, Delivery};
use milepost_core::intake::{self, Intake};
use milepost_core::peers::member::Member;
use milepost_core::screened::ErasedSnapshot;
use milepost_core::session::events::{self, Leave};
use milepost_decode::Decoder;
use milepost_observe::endpoints::EndpointUse;
use milepost_observe::health::Health;
use milepost_observe::http;
use milepost_observe::metrics::Metrics;
use milepost_spool::Spool;

/// Key of the process's own reasons in [`Health`].
const HEALTH_KEY: &str = "process";

/// Runs the consumer. `startup_tasks`: tasks that the companions run while the consumer starts.
///
/// # Errors
/// The start failed, or a task ended unexpectedly.
pub async fn run(
    config: Config,
    startup_tasks: impl Iterator<Item = StartupTask>,
) -> Result<Outcome> {
    let shared = SharedState::new(&config);
    let SharedState { metrics, health, member } = &shared;
    let spool_bytes_max = config.spool.as_ref().map_or(0, |spool| spool.bytes_max);
    metrics.set_configured_limits(spool_bytes_max, rows_in_full_batches(&config));
    // Report the consumer as not ready from the start: a probe may arrive before the event loop's
    // thread runs.
    health.set(event_loop::HEALTH_KEY, vec!["consumer: starting".to_owned()]);
    let mut signals = Signals::new()?;
    let listener = TcpListener::bind(config.http.listen)
        .await
        .with_context(|| format!("http.listen: cannot listen on {}", config.http.listen))?;
    info!(listen = %listener.local_addr()?, "serving /metrics, /livez, /readyz and /member");
    leaving::log_if_auto_cannot_work(&config);
    let mut tasks = JoinSet::new();
    let answers = http::answers(Arc::clone(metrics), Arc::clone(health), Arc::clone(member));
    tasks.spawn(named("http server", http::serve(listener, answers)));

    let (spool, inventory) = tokio::select! {
        opened = open_spool(&config) => opened?,
        () = signals.next() => return Ok(Outcome::Clean),
    };
    let delivery = Delivery::new(delivery_config(&config), inventory);
    let started = start(&config, spool.clone(), delivery, &shared, &mut tasks)?;
    let Started { mut watcher_task, mut event_loop, leave, server } = started;
    let mut running_startup_tasks = JoinSet::new();
    let context = StartupContext { config: config.clone(), server, metrics: Arc::clone(metrics) };
    for startup_task in startup_tasks {
        running_startup_tasks.spawn(startup_task(context.clone()));
    }

    tokio::select! {
        () = signals.next() => {}
        // Startup tasks end by themselves once they have logged their findings.
        Some(Err(panic)) = running_startup_tasks.join_next() => {
            bail!("the preflight panicked: {panic}")
        }
        Some(ended) = tasks.join_next() => {
            bail!("task `{}` ended unexpectedly", ended.context("a task panicked")?)
        }
        ended = &mut event_loop => {
            let totals = ended.context("its thread panicked; see stderr")?;
            bail!("the event loop ended unexpectedly: {totals:?}")
        }
        Some(ended) = watcher_task.join_next() => {
            let error = ended.context("a task panicked")?.unwrap_err();
            bail!("the watcher of ClickHouse ended unexpectedly: {error:#}")
        }
    }
    let grace_ends = Instant::now() + config.shutdown.grace;
    member.set_leaving(); // before any peer is asked: peers must not count on this member
    health.set(HEALTH_KEY, vec!["leaving".to_owned()]);
    info!(grace = ?config.shutdown.grace, "leaving: flushing the messages received");
    let totals = tokio::select! {
        ended = decide_and_stop(&config, &shared, &leave, &mut event_loop) => Ok(ended?),
        () = sleep_until(grace_ends) => Err("shutdown.grace has passed"),
        () = signals.next() => Err("a second signal"),
    };
    let outcome = match totals {
        Ok((totals, uncertain)) => log_flushed(&totals, uncertain),
        Err(why) => log_unflushed(&metrics.totals(), why),
    };
    log_ledger(&metrics.totals());
    Ok(if spool.is_some() && log_batches_left_in_spool(&config, &metrics.totals()) {
        Outcome::DataLeft
    } else {
        outcome
    })
}

/// Decides, while the event loop still runs, whether this process keeps its sessions. Then stops
/// the event loop. Returns the event loop's last totals, and whether the decision is uncertain (see
/// [`leaving::decide`]).
async fn decide_and_stop(
    config: &Config,
    shared: &SharedState,
    leave: &watch::Sender<Option<Leave>>,
    event_loop: &mut oneshot::Receiver<ConsumerTotals>,
) -> Result<(ConsumerTotals, bool)> {
    let own_status = shared.member.status(shared.metrics.is_subscribed(), 0);
    let (decision, uncertain) = leaving::decide(config, own_status).await;
    leave.send_replace(Some(decision));
    let totals = event_loop.await.context("the event loop's thread panicked; see stderr")?;
    Ok((totals, uncertain))
}

/// State that the tasks write and the HTTP server reads.
pub(super) struct SharedState {
    pub(super) metrics: Arc<Metrics>,
    health: Arc<Health>,
    member: Arc<Member>,
}

impl SharedState {
    pub(super) fn new(config: &Config) -> Self {
        let member = Member::new(&config.mqtt.client_id, &config.mqtt.group, &config.mqtt.topics);
        Self { metrics: Arc::default(), health: Arc::default(), member: Arc::new(member) }
    }
}

/// The running components of a consumer.
pub(super) struct Started {
    /// The watcher of ClickHouse: one task, which ends only with an error.
    pub(super) watcher_task: JoinSet<Result<Infallible>>,
    /// Receives the last totals when the event loop ends.
    pub(super) event_loop: oneshot::Receiver<ConsumerTotals>,
    /// Stops the event loop.
    pub(super) leave: watch::Sender<Option<Leave>>,
    server: watch::Receiver<ServerStatus>,
}

/// Starts the executor, the event loop's thread and the watcher of ClickHouse.
pub(super) fn start(
    config: &Config,
    spool: Option<Arc<Spool>>,
    delivery: Delivery,
    SharedState { metrics, health, member }: &SharedState,
    tasks: &mut JoinSet<&'static str>,
) -> Result<Started> {
    let clickhouse = Arc::new(ClickHouse::new(&config.clickhouse)?);
    let scraped = Arc::clone(&clickhouse);
    metrics.watch_endpoints(move || scraped.endpoints().into_iter().map(endpoint_use).collect());
    let capacity = Delivery::commands_max(config.clickhouse.inserts_in_flight);
    let (commands, command_queue) = mpsc::channel(capacity);
    let (report_sender, reports) = mpsc::channel(capacity);
    let (server, server_status) = watch::channel(schema::initial_status());
    let (watcher_request, latest_request) = watch::channel(WatcherRequest::default());
    let (leave, leaving) = watch::channel(None);
    let (erased, erased_list) = watch::channel(ErasedSnapshot::default());
    member.set_initial_erased(erased_list.borrow().erased());
    let executor = Executor {
        sink: Arc::clone(&clickhouse),
        spool: spool.clone(),
        database: config.clickhouse.database.clone(),
        erased: erased_list.clone(),
        reports: report_sender,
    };
    tasks.spawn(named("executor", executor.run(command_queue)));
    let (members, member_count) = watch::channel(1);
    if !config.members_age_max.is_zero() {
        let counter = members::count(config.shutdown.peers.clone(), members);
        tasks.spawn(named("counter of members", counter));
    }
    let wiring = Wiring {
        mqtt: config.mqtt.clone(),
        commands,
        reports,
        server: server_status.clone(),
        watcher_request,
        leave: leaving,
        members: member_count,
        erased: erased_list,
        metrics: Arc::clone(metrics),
        health: Arc::clone(health),
    };
    let event_loop = event_loop::spawn(wiring, new_consumer(config, delivery))
        .context("cannot start the event loop's thread")?;
    let mut watcher_task = JoinSet::new();
    let watcher = Watcher {
        clickhouse,
        server,
        erased,
        member: Arc::clone(member),
        request: latest_request,
        clock_tolerance: clock_tolerance(config),
    };
    watcher_task.spawn(watcher.run());
    Ok(Started { watcher_task, event_loop, leave, server: server_status })
}

/// Converts the status of one endpoint to the form of the metrics.
fn endpoint_use(EndpointStatus { url, in_use, failovers }: EndpointStatus) -> EndpointUse {
    let failovers = Cause::ALL.iter().map(|cause| (cause.name(), failovers[*cause as usize]));
    EndpointUse { url, in_use, failovers: failovers.collect() }
}

async fn open_spool(config: &Config) -> Result<(Option<Arc<Spool>>, SpoolInventory)> {
    let Some(settings) = config.spool.clone() else { return Ok((None, SpoolInventory::default())) };
    let (spool, inventory) =
        spawn_blocking(move || Spool::open(&settings.dir, settings.bytes_max)).await??;
    if !inventory.files.is_empty() {
        info!(
            dir = %spool.dir().display(), batches = inventory.files.len(),
            "an earlier process left batches in the spool: replaying them"
        );
    }
    if inventory.files_quarantined > 0 {
        warn!(
            dir = %spool.dir().display(), files = inventory.files_quarantined,
            "the spool has files that are never inserted: files in quarantine, or with names that \
             milepost does not write; see `milepost spool list`"
        );
    }
    Ok((Some(Arc::new(spool)), inventory))
}

/// Returns the largest difference between this host's clock and ClickHouse's clock that is not a
/// fault: `decode.fix_future_max`, but at least two seconds. Even if this host's clock is behind by
/// `decode.fix_future_max`, it accepts a new fix whose time is right.
fn clock_tolerance(config: &Config) -> Duration {
    config.decode.fix_future_max.max(Duration::from_secs(2))
}

/// Returns the number of rows that the batches in flight and the open batch hold when all are full.
fn rows_in_full_batches(config: &Config) -> usize {
    (config.clickhouse.inserts_in_flight + 1) * config.batch.rows_max
}

/// Builds the consumer from the configuration.
fn new_consumer(config: &Config, delivery: Delivery) -> Consumer {
    let seed = fastrand::u64(..);
    let intake_config = intake::IntakeConfig {
        batch: config.batch.clone(),
        buffer_bytes_max: config.mqtt.buffer_bytes_max,
    };
    let decoder = Decoder::new(&config.sources, config.decode.clone());
    let consumer_config = consumer::ConsumerConfig {
        nodes: names(&config.mqtt.nodes),
        connections: config.mqtt.connections,
        session: events::SessionConfig {
            receive_maximum: config.mqtt.receive_maximum,
            answer_timeout: config.mqtt.connect_timeout,
            session_expiry: config.mqtt.session_expiry,
            seed,
        },
        window_wanted: rows_in_full_batches(config),
        qos: config.mqtt.qos,
        buffer_bytes_max: config.mqtt.buffer_bytes_max,
        members_age_max: config.members_age_max,
        clock_jump_max: clock_tolerance(config),
    };
    Consumer::new(consumer_config, Intake::new(intake_config, decoder), delivery)
}

pub(super) fn delivery_config(config: &Config) -> policy::DeliveryConfig {
    policy::DeliveryConfig {
        inserts_in_flight: config.clickhouse.inserts_in_flight,
        has_spool: config.spool.is_some(),
        may_drop_rows: true,
        insert_timeout: config.clickhouse.insert_timeout,
        store_when_leaving_after: config.shutdown.grace / 2,
        incarnation: fastrand::u64(..),
        seed: fastrand::u64(..),
    }
}

/// Logs the ledger: how many positions were received, or in the spool at the start, and what
/// happened to them.
fn log_ledger(totals: &ConsumerTotals) {
    let ConsumerTotals { intake, delivery, .. } = totals;
    info!(
        received = intake.received,
        spool_at_start = delivery.spool_at_start,
        inserted = delivery.inserted,
        rejected = totals.rejected(),
        ignored = totals.ignored(),
        shed = intake.shed,
        erased = totals.erased(),
        quarantined = delivery.quarantined,
        dropped = delivery.dropped,
        in_spool = delivery.in_spool,
        in_flight = totals.in_flight(),
        adds_up = totals.adds_up(),
        "ledger, in positions"
    );
}

/// Logs the batches that stay in the spool, and where. Returns whether there are any.
fn log_batches_left_in_spool(config: &Config, totals: &ConsumerTotals) -> bool {
    let batches = totals.delivery.spool_batches;
    if let Some(spool) = config.spool.as_ref().filter(|_| batches > 0) {
        warn!(
            dir = %spool.dir.display(), batches,
            "batches left in the spool: start a process with this spool.dir, or run \
             `milepost spool replay`"
        );
    }
    batches > 0
}

/// Logs a shutdown that ended within the grace period, and returns its outcome. `uncertain`: see
/// [`leaving::decide`].
fn log_flushed(totals: &ConsumerTotals, uncertain: bool) -> Outcome {
    if totals.sessions.held_by_broker > 0 {
        warn!(
            "all positions are durable, but the broker may hold messages for this process: \
             unacknowledged ones, or those of a session that is still subscribed"
        );
        return Outcome::DataLeft;
    }
    info!("all positions are durable and all messages acknowledged");
    if uncertain { Outcome::DataLeft } else { Outcome::Clean }
}

/// Logs the data that an interrupted shutdown leaves with the broker, and returns its outcome.
fn log_unflushed(totals: &ConsumerTotals, why: &str) -> Outcome {
    let (positions, unacked_messages) = (totals.in_flight(), totals.sessions.unacked);
    if totals.still_subscribed {
        warn!(
            "still subscribed: the broker queues this process's messages for mqtt.session_expiry"
        );
    }
    let held = if totals.sessions.held_by_broker > 0 {
        ": unacknowledged messages stay with the broker, for mqtt.session_expiry"
    } else {
        ""
    };
    warn!(positions, unacked_messages, "{why}{held}");
    Outcome::DataLeft
}

/// Runs a task, and returns its name for the error if it ends unexpectedly.
async fn named(name: &'static str, task: impl Future<Output = ()>) -> &'static str {
    task.await;
    name
}
