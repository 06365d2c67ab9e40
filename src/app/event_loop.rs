//! The consumer's event loop: one thread that polls every connection of the process in rounds, and
//! waits between two rounds.
//!
//! Guarantee: read and write buffers are dropped with their connection ([`Transport`]). So no
//! acknowledgement of an old connection is sent on a new one, and no message of an old connection
//! reaches the consumer later. This thread blocks for at most a [`ReadDelay`], touches no disk, and
//! buffers a bounded amount: acknowledgements wait in the session until the broker reads them.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{sleep_until, timeout};
use tracing::{info, warn};

use super::read_delay::ReadDelay;
use crate::mqtt::shared::Shared;
use crate::mqtt::transport::Transport;
use milepost_command::tables::not_asked;
use milepost_config as config;
use milepost_core::consumer::{Consumer, ConsumerNotice, ConsumerTotals, Now};
use milepost_core::delivery::events::{
    DeliveryCommand, Durable, Report, ServerStatus, WatcherRequest,
};
use milepost_core::screened::ErasedSnapshot;
use milepost_core::session::events::Leave;
use milepost_observe::health::Health;
use milepost_observe::metrics::Metrics;
use milepost_tls::Address;
use milepost_tls::nodes;

/// Longest wait between two rounds. Each round records a heartbeat for `/livez`.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// After this many consecutive polls with progress, the loop processes reports and channels, even
/// if the connections still have data.
const CONSECUTIVE_POLLS_MAX: u32 = 16;
/// Shortest interval between updates of `/readyz` while the consumer is ready.
const HEALTH_INTERVAL_READY: Duration = Duration::from_millis(100);
/// Shortest interval between updates while the consumer is not ready. It is short for the sake of
/// scripts that poll `/readyz` during a start.
const HEALTH_INTERVAL_UNREADY: Duration = Duration::from_millis(2);
/// How long the shutdown waits for a running replay, and for inserts of batches that the spool
/// already has.
const INSERT_END_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the first connection waits for ClickHouse's first answers. After that, the consumer
/// connects anyway. Until the clocks have been compared, the consumer may defer messages whose
/// fixes it would reject as too old or too new, because its own clock may be wrong.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Key of the consumer's reasons and heartbeats in [`Health`].
pub(crate) const HEALTH_KEY: &str = "consumer";

/// The event loop's settings, and its channels to the other tasks.
#[derive(Debug)]
pub(crate) struct Wiring {
    pub mqtt: config::Mqtt,
    /// Commands for the executor. The capacity is [`Delivery::commands_max`], so a send never
    /// waits.
    ///
    /// [`Delivery::commands_max`]: milepost_core::delivery::policy::Delivery::commands_max
    pub commands: mpsc::Sender<DeliveryCommand>,
    /// Reports of the executor.
    pub reports: mpsc::Receiver<Report>,
    /// ClickHouse's state, from the watcher.
    pub server: watch::Receiver<ServerStatus>,
    /// Requests that the watcher query ClickHouse sooner than at its next interval.
    pub watcher_request: watch::Sender<WatcherRequest>,
    /// `Some` once the process shuts down.
    pub leave: watch::Receiver<Option<Leave>>,
    /// Number of members of the group.
    pub members: watch::Receiver<u32>,
    /// The newest list of erased drivers.
    pub erased: watch::Receiver<ErasedSnapshot>,
    pub metrics: Arc<Metrics>,
    pub health: Arc<Health>,
}

/// Starts the event loop's thread. The receiver gets the consumer's last totals, or an error if the
/// thread died.
pub(crate) fn spawn(
    wiring: Wiring,
    consumer: Consumer,
) -> std::io::Result<oneshot::Receiver<ConsumerTotals>> {
    let (send_totals, totals) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("event-loop".to_owned()).spawn(move || {
        // Without `unconstrained`, tokio's cooperative budget could report that a socket has no
        // data although it has some.
        let last =
            runtime.block_on(tokio::task::unconstrained(EventLoop::new(wiring, consumer).run()));
        let _ = send_totals.send(last);
        runtime.shutdown_background(); // a hanging DNS lookup or file read must not delay the exit
    })?;
    Ok(totals)
}

struct EventLoop {
    wiring: Wiring,
    state: State,
    read_delay: ReadDelay,
    nodes: watch::Receiver<Vec<Address>>,
    /// The task that resolves the nodes' names.
    resolver: Option<JoinHandle<()>>,
    /// Earliest time of the next update of `/readyz`.
    next_health_update: Instant,
    health_update_pending: bool,
    /// Time at which the consumer ended; `None` until then.
    ended_at: Option<Instant>,
}

struct State {
    consumer: Consumer,
    transports: Vec<Transport>,
    shared: Shared,
}

impl EventLoop {
    fn new(wiring: Wiring, mut consumer: Consumer) -> Self {
        consumer.set_erased(Arc::clone(wiring.erased.borrow().erased()));
        let shared = Shared::new(wiring.mqtt.clone());
        let read_delay = ReadDelay::new(wiring.mqtt.qos);
        let (_, nodes) = watch::channel(Vec::new()); // until `prepare` resolves the names
        Self {
            nodes,
            resolver: None,
            wiring,
            state: State { consumer, transports: Vec::new(), shared },
            read_delay,
            next_health_update: Instant::now(),
            health_update_pending: false,
            ended_at: None,
        }
    }

    /// Runs until the consumer has ended. Returns its last totals.
    async fn run(mut self) -> ConsumerTotals {
        self.prepare().await;
        self.drain_channels();
        let mut consecutive_polls = 0;
        loop {
            let has_progressed = poll_fn(|cx| Poll::Ready(self.state.poll(cx).is_ready())).await;
            consecutive_polls = if has_progressed { consecutive_polls + 1 } else { 0 };
            // Poll again while connections progress, so that a batch gets the rows of many reads.
            if has_progressed && consecutive_polls < CONSECUTIVE_POLLS_MAX {
                self.advance().await;
                continue;
            }
            self.drain_channels();
            self.advance().await;
            self.report_progress();
            if self.may_stop() {
                break;
            }
            if has_progressed {
                consecutive_polls = 0;
                yield_now().await; // lets tokio poll the other sockets for readiness
                continue;
            }
            self.sleep_for_read_delay();
            self.wait().await;
        }
        self.publish_health();
        self.state.consumer.totals()
    }

    /// Resolves the nodes' names and waits for ClickHouse's first answers, at the same time.
    /// Returns early if the process shuts down.
    async fn prepare(&mut self) {
        let Wiring { server, leave, mqtt, .. } = &mut self.wiring;
        let names = async {
            let (nodes, resolver) = nodes::watch(mqtt.nodes.clone()).await;
            (self.nodes, self.resolver) = (nodes, Some(resolver));
        };
        let first_answer = async {
            let is_answered = |status: &ServerStatus| status.schema != not_asked();
            let _ = timeout(FIRST_ANSWER_TIMEOUT, server.wait_for(is_answered)).await;
            server.mark_changed(); // `drain_channels` has not processed this status yet
        };
        tokio::select! {
            _ = async { tokio::join!(names, first_answer) } => {}
            () = changed(leave) => {}
        }
    }

    /// Passes all reports and all changes from the channels to the consumer.
    fn drain_channels(&mut self) {
        let now = Instant::now();
        let is_dead = self.resolver.as_ref().is_some_and(JoinHandle::is_finished);
        // Without this task, new addresses of the broker would never be used.
        assert!(!is_dead, "the task that resolves the broker's names has died");
        while let Ok(report) = self.wiring.reports.try_recv() {
            self.handle_report(report, now);
        }
        if let Some(status) = take_change(&mut self.wiring.server) {
            self.state.consumer.handle_server_status(status, now);
        }
        if let Some(nodes) = take_change(&mut self.nodes) {
            let nodes = self.state.shared.set_nodes(&nodes);
            self.state.consumer.set_nodes(&nodes);
        }
        if let Some(members) = take_change(&mut self.wiring.members) {
            self.state.consumer.set_members(members);
        }
        if let Some(erased) = take_change(&mut self.wiring.erased) {
            self.state.consumer.set_erased(Arc::clone(erased.erased()));
        }
        if let Some(leave) = take_change(&mut self.wiring.leave).flatten() {
            self.state.consumer.leave(leave, now);
        }
    }

    fn handle_report(&mut self, report: Report, now: Instant) {
        self.wiring.metrics.observe_report(&report);
        self.state.consumer.handle_report(report, now);
    }

    /// Advances the consumer, and executes its commands until none is left.
    async fn advance(&mut self) {
        loop {
            let now = Instant::now();
            self.state.consumer.handle_timeout(now);
            let did_anything =
                poll_fn(|cx| Poll::Ready(self.state.execute_commands(now, cx))).await;
            self.send_commands();
            if !did_anything {
                return;
            }
        }
    }

    /// Sends delivery's commands to the executor.
    fn send_commands(&mut self) {
        while let Some(command) = self.state.consumer.poll_command() {
            match self.wiring.commands.try_send(command) {
                // `Closed`: the process is ending, and the broker keeps the batch's messages.
                Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
                Err(mpsc::error::TrySendError::Full(command)) => {
                    panic!("the channel for commands is full: {command:?}");
                }
            }
        }
    }

    /// Sleeps for one [`ReadDelay`] if data has arrived, so that the next round reads a few hundred
    /// messages at once.
    fn sleep_for_read_delay(&mut self) {
        let received = self
            .state
            .transports
            .iter_mut()
            .map(Transport::take_bytes_read)
            .filter(|bytes| *bytes > 0);
        let (bytes, connections) =
            received.fold((0, 0), |(sum, count), bytes| (sum + bytes, count + 1));
        if bytes == 0 {
            return;
        }
        let consumer = &self.state.consumer;
        let delay = self.read_delay.next(
            bytes,
            connections,
            consumer.smallest_window(),
            consumer.is_replaying(),
        );
        let now = Instant::now();
        thread::sleep(
            self.deadline(now).map_or(delay, |at| delay.min(at.saturating_duration_since(now))),
        );
    }

    /// Waits for data, a report, a change or a deadline.
    async fn wait(&mut self) {
        let now = Instant::now();
        let health_update_at = self.health_update_pending.then_some(self.next_health_update);
        let deadlines = self.deadline(now).into_iter().chain(health_update_at);
        let until = deadlines.fold(now + WAIT_MAX, Instant::min);
        let Self { wiring, state, nodes, .. } = self;
        let report = tokio::select! {
            biased;
            () = poll_fn(|cx| state.poll(cx)) => None,
            report = wiring.reports.recv() => report,
            () = changed(&mut wiring.server) => None,
            () = changed(&mut wiring.leave) => None,
            () = changed(nodes) => None,
            () = sleep_until(until.into()) => None,
        };
        if let Some(report) = report {
            self.handle_report(report, Instant::now());
        }
    }

    fn deadline(&self, now: Instant) -> Option<Instant> {
        let transports = self.state.transports.iter().filter_map(Transport::deadline);
        let ended = self.ended_at.map(|at| at + INSERT_END_TIMEOUT);
        self.state.consumer.poll_timeout(now).into_iter().chain(transports).chain(ended).min()
    }

    /// Returns whether the consumer has ended, and the inserts that still run have ended or are
    /// overdue. Records when the consumer ended.
    fn may_stop(&mut self) -> bool {
        let now = Instant::now();
        if !self.state.consumer.has_ended() {
            self.ended_at = None;
            return false;
        }
        let ended_at = *self.ended_at.get_or_insert(now);
        self.state.consumer.is_idle() || now >= ended_at + INSERT_END_TIMEOUT
    }

    /// Logs the consumer's notices, and updates the metrics and `/readyz`.
    fn report_progress(&mut self) {
        let now = Instant::now();
        while let Some(notice) = self.state.consumer.poll_notice() {
            log(&notice);
        }
        while let Some(Durable { rows, opened_at, .. }) = self.state.consumer.poll_durable() {
            let age = opened_at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
            self.wiring.metrics.observe_durable_batch(rows, age.as_secs_f64());
        }
        self.publish_health();
    }

    fn publish_health(&mut self) {
        let now = Instant::now();
        let consumer = &self.state.consumer;
        self.wiring.metrics.publish(consumer.totals());
        self.wiring.health.beat(HEALTH_KEY, now);
        let request = consumer.watcher_request(now);
        self.wiring
            .watcher_request
            .send_if_modified(|last| std::mem::replace(last, request) != request);
        self.health_update_pending = now < self.next_health_update;
        if !self.health_update_pending {
            let reasons = self.state.consumer.unready_reasons(now);
            let interval =
                if reasons.is_empty() { HEALTH_INTERVAL_READY } else { HEALTH_INTERVAL_UNREADY };
            self.next_health_update = now + interval;
            self.wiring.health.set(HEALTH_KEY, reasons);
        }
    }
}

impl State {
    /// Polls every connection. Ready when data has arrived, or a connection was established or has
    /// ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let now = Now { instant: Instant::now(), wall: milepost_observe::now() };
        self.consumer.read_clock(now);
        while self.transports.len() < self.consumer.sessions() {
            self.transports.push(Transport::new(self.transports.len()));
        }
        let mut polled = Poll::Pending;
        for transport in &mut self.transports {
            transport.sync_connection(&mut self.consumer, &self.shared, now.instant);
            if transport.poll(&mut self.consumer, &mut self.shared, now, cx).is_ready() {
                polled = Poll::Ready(());
            }
        }
        polled
    }

    /// Executes the sessions' commands and writes to the sockets. Returns whether any command was
    /// executed.
    fn execute_commands(&mut self, now: Instant, cx: &mut Context<'_>) -> bool {
        let mut did_anything = false;
        for transport in &mut self.transports {
            did_anything |= transport.execute_commands(&mut self.consumer, &self.shared, now);
            transport.write(&mut self.consumer, now, cx);
        }
        did_anything
    }
}

/// Returns the channel's value, if it is new.
fn take_change<T: Clone>(receiver: &mut watch::Receiver<T>) -> Option<T> {
    receiver.has_changed().unwrap_or(false).then(|| receiver.borrow_and_update().clone())
}

/// Waits for a new value, without marking that value as seen.
async fn changed<T>(receiver: &mut watch::Receiver<T>) {
    match receiver.changed().await {
        Ok(()) => receiver.mark_changed(),
        Err(_) => pending().await, // the sender has ended, so no further value follows
    }
}

fn log(notice: &ConsumerNotice) {
    match (notice, notice.is_warning()) {
        (ConsumerNotice::Session(session, notice), true) => warn!(session, "{notice}"),
        (ConsumerNotice::Session(session, notice), false) => info!(session, "{notice}"),
        (notice, true) => warn!("{notice}"),
        (notice, false) => info!("{notice}"),
    }
}
