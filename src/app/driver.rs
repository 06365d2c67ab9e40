//! The consumer's shell: one thread that polls every connection of the process, with one wait between two rounds.
//!
//! Guarantee: read and write buffers are dropped with their connection ([`Transport`]). So no acknowledgement of an old
//! connection goes out on a new one, and no message of an old one reaches the consumer later. This thread blocks for at most a
//! [`ReadDelay`], touches no disk, and buffers a bounded amount: acknowledgements wait in the session until the broker takes them.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::yield_now;
use tokio::time::{sleep_until, timeout};
use tracing::{info, warn};

use super::read_delay::ReadDelay;
use super::schema::not_asked;
use crate::mqtt::nodes;
use crate::mqtt::shared::Shared;
use crate::mqtt::transport::Transport;
use milepost_config as config;
use milepost_core::consumer::{Consumer, Notice, Now, Totals};
use milepost_core::delivery::events::{Attention, Command, Durable, Report, ServerStatus};
use milepost_core::screened::ReadList;
use milepost_core::session::events::Leave;
use milepost_observe::health::Health;
use milepost_observe::metrics::Metrics;
use milepost_tls::Address;

/// Longest wait, so that `/livez` sees a beat.
const BEAT: Duration = Duration::from_secs(5);
/// Rounds before reports and commands have their turn, when a connection never runs dry.
const LOOKS_PER_TURN: u32 = 16;
/// Shortest interval between updates of `/readyz` while it is ready, and while it is not: what waits for a start asks it.
const HEALTH_EVERY: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(2)];
/// How long leaving waits for a replay that is under way.
const REPLAY_ENDS_WITHIN: Duration = Duration::from_secs(2);
/// How long the first connection waits for ClickHouse's first answers. Then only what the clock would judge waits on.
const FIRST_ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// The consumer's name in `/readyz` and `/livez`.
pub(crate) const PART: &str = "consumer";

#[derive(Debug)]
pub(crate) struct Wiring {
    pub mqtt: config::Mqtt,
    /// To the executor; there is a place for every command that delivery can have under way.
    pub commands: mpsc::Sender<Command>,
    /// From the executor.
    pub reports: mpsc::Receiver<Report>,
    /// From the watcher.
    pub server: watch::Receiver<ServerStatus>,
    /// To the watcher.
    pub attention: watch::Sender<Attention>,
    /// `Some` when the process shuts down.
    pub leave: watch::Receiver<Option<Leave>>,
    pub erased: watch::Receiver<ReadList>,
    pub metrics: Arc<Metrics>,
    pub health: Arc<Health>,
}

/// Starts the driver's thread; the receiver gets its last totals, or an error if the thread died.
pub(crate) fn spawn(wiring: Wiring, consumer: Consumer) -> std::io::Result<oneshot::Receiver<Totals>> {
    let (ended, end) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("driver".to_owned()).spawn(move || {
        // Unconstrained: tokio's cooperative budget would make a full socket look dry.
        let totals = runtime.block_on(tokio::task::unconstrained(Driver::new(wiring, consumer).run()));
        let _ = ended.send(totals);
        runtime.shutdown_background(); // a name or a file that is still being looked up must not hold the end
    })?;
    Ok(end)
}

struct Driver {
    wiring: Wiring,
    work: Work,
    delay: ReadDelay,
    nodes: watch::Receiver<Vec<Address>>,
    /// When `/readyz` may be updated next, and whether that waits for it.
    tells_at: Instant,
    is_untold: bool,
    ended_at: Option<Instant>,
}

struct Work {
    consumer: Consumer,
    transports: Vec<Transport>,
    shared: Shared,
}

impl Driver {
    fn new(wiring: Wiring, mut consumer: Consumer) -> Self {
        consumer.erase(Arc::clone(wiring.erased.borrow().erased()));
        let shared = Shared::new(wiring.mqtt.clone());
        let delay = ReadDelay::new(wiring.mqtt.qos);
        let (_, nodes) = watch::channel(Vec::new());
        Self {
            nodes,
            wiring,
            work: Work { consumer, transports: Vec::new(), shared },
            delay,
            tells_at: Instant::now(),
            is_untold: false,
            ended_at: None,
        }
    }

    async fn run(mut self) -> Totals {
        self.prepare().await;
        self.listen();
        let mut looks = 0;
        loop {
            let read = poll_fn(|cx| Poll::Ready(self.work.poll(cx).is_ready())).await;
            looks = if read { looks + 1 } else { 0 };
            if read && looks < LOOKS_PER_TURN {
                self.turn().await;
                continue;
            }
            self.listen();
            self.turn().await;
            self.tell();
            if self.may_stop() {
                break;
            }
            if read {
                looks = 0;
                yield_now().await; // the other connections may have become readable
                continue;
            }
            self.delay();
            self.wait().await;
        }
        self.publish();
        self.work.consumer.totals()
    }

    /// Resolves the nodes' names and waits for ClickHouse's first answers, side by side, unless the process is to end.
    async fn prepare(&mut self) {
        let Wiring { server, leave, mqtt, .. } = &mut self.wiring;
        let names = async { self.nodes = nodes::watch(mqtt.nodes.clone()).await };
        let first_answer = async {
            let has_looked = |status: &ServerStatus| status.schema != not_asked();
            let _ = timeout(FIRST_ANSWER_WITHIN, server.wait_for(has_looked)).await;
            server.mark_changed();
        };
        tokio::select! {
            _ = async { tokio::join!(names, first_answer) } => {}
            () = has_news(leave) => {}
        }
    }

    fn listen(&mut self) {
        let now = Instant::now();
        while let Ok(report) = self.wiring.reports.try_recv() {
            self.reported(report, now);
        }
        if let Some(status) = news(&mut self.wiring.server) {
            self.work.consumer.server(status, now);
        }
        if let Some(nodes) = news(&mut self.nodes) {
            let nodes = self.work.shared.set_nodes(&nodes);
            self.work.consumer.set_nodes(&nodes);
        }
        if let Some(erased) = news(&mut self.wiring.erased) {
            self.work.consumer.erase(Arc::clone(erased.erased()));
        }
        if let Some(leave) = news(&mut self.wiring.leave).flatten() {
            self.work.consumer.leave(leave, now);
        }
    }

    fn reported(&mut self, report: Report, now: Instant) {
        self.wiring.metrics.reported(&report);
        self.work.consumer.handle_report(report, now);
    }

    /// Until no further command follows.
    async fn turn(&mut self) {
        loop {
            let now = Instant::now();
            self.work.consumer.handle_timeout(now);
            let did_anything = poll_fn(|cx| Poll::Ready(self.work.obey(now, cx))).await;
            self.hand_over();
            if !did_anything {
                return;
            }
        }
    }

    fn hand_over(&mut self) {
        while let Some(command) = self.work.consumer.poll_command() {
            match self.wiring.commands.try_send(command) {
                // The process is ending, and the broker still holds the batch.
                Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
                Err(mpsc::error::TrySendError::Full(command)) => {
                    panic!("more commands than there can be batches: {command:?}");
                }
            }
        }
    }

    /// Sleeps until a few hundred messages have come together.
    fn delay(&mut self) {
        let came = self.work.transports.iter_mut().map(Transport::take_bytes).filter(|bytes| *bytes > 0);
        let (bytes, connections) = came.fold((0, 0), |(sum, count), bytes| (sum + bytes, count + 1));
        if bytes == 0 {
            return;
        }
        let consumer = &self.work.consumer;
        let delay = self.delay.next(bytes, connections, consumer.smallest_window(), consumer.is_replaying());
        let now = Instant::now();
        thread::sleep(self.deadline(now).map_or(delay, |at| delay.min(at.saturating_duration_since(now))));
    }

    async fn wait(&mut self) {
        let now = Instant::now();
        let health = self.is_untold.then_some(self.tells_at);
        let until = self.deadline(now).into_iter().chain(health).fold(now + BEAT, Instant::min);
        let Self { wiring, work, nodes, .. } = self;
        let report = tokio::select! {
            biased;
            () = poll_fn(|cx| work.poll(cx)) => None,
            report = wiring.reports.recv() => report,
            () = has_news(&mut wiring.server) => None,
            () = has_news(&mut wiring.leave) => None,
            () = has_news(nodes) => None,
            () = sleep_until(until.into()) => None,
        };
        if let Some(report) = report {
            self.reported(report, Instant::now());
        }
    }

    fn deadline(&self, now: Instant) -> Option<Instant> {
        let transports = self.work.transports.iter().filter_map(Transport::deadline);
        let ended = self.ended_at.map(|at| at + REPLAY_ENDS_WITHIN);
        self.work.consumer.poll_timeout(now).into_iter().chain(transports).chain(ended).min()
    }

    fn may_stop(&mut self) -> bool {
        let now = Instant::now();
        if !self.work.consumer.has_ended() {
            self.ended_at = None;
            return false;
        }
        let ended_at = *self.ended_at.get_or_insert(now);
        self.work.consumer.is_idle() || now >= ended_at + REPLAY_ENDS_WITHIN
    }

    fn tell(&mut self) {
        let now = Instant::now();
        while let Some(notice) = self.work.consumer.poll_notice() {
            log(&notice);
        }
        while let Some(Durable { rows, opened_at, .. }) = self.work.consumer.poll_durable() {
            let age = opened_at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
            self.wiring.metrics.durable(rows, age.as_secs_f64());
        }
        self.publish();
    }

    fn publish(&mut self) {
        let now = Instant::now();
        let consumer = &self.work.consumer;
        self.wiring.metrics.publish(consumer.totals());
        self.wiring.health.beat(PART, now);
        let attention = consumer.attention(now);
        self.wiring.attention.send_if_modified(|last| std::mem::replace(last, attention) != attention);
        self.is_untold = now < self.tells_at;
        if !self.is_untold {
            let reasons = self.work.consumer.unready_reasons(now);
            self.tells_at = now + HEALTH_EVERY[usize::from(!reasons.is_empty())];
            self.wiring.health.set(PART, reasons);
        }
    }
}

impl Work {
    /// Ready when something came, or a connection began or ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let now = Now { instant: Instant::now(), wall: milepost_observe::now() };
        self.consumer.read_clock(now);
        while self.transports.len() < self.consumer.sessions() {
            self.transports.push(Transport::new(self.transports.len()));
        }
        let mut polled = Poll::Pending;
        for transport in &mut self.transports {
            transport.follow(&mut self.consumer, &self.shared, now.instant);
            if transport.poll(&mut self.consumer, &mut self.shared, now, cx).is_ready() {
                polled = Poll::Ready(());
            }
        }
        polled
    }

    /// Carries out the sessions' commands, and writes; `true` if there were any.
    fn obey(&mut self, now: Instant, cx: &mut Context<'_>) -> bool {
        let mut did_anything = false;
        for transport in &mut self.transports {
            did_anything |= transport.obey(&mut self.consumer, &self.shared, now);
            transport.write(&mut self.consumer, now, cx);
        }
        did_anything
    }
}

/// A value that was not seen yet.
fn news<T: Clone>(receiver: &mut watch::Receiver<T>) -> Option<T> {
    receiver.has_changed().unwrap_or(false).then(|| receiver.borrow_and_update().clone())
}

/// Returns when there is one, and does not count as seeing it.
async fn has_news<T>(receiver: &mut watch::Receiver<T>) {
    match receiver.changed().await {
        Ok(()) => receiver.mark_changed(),
        Err(_) => pending().await, // its sender has ended
    }
}

fn log(notice: &Notice) {
    match (notice, notice.is_warning()) {
        (Notice::Session(session, notice), true) => warn!(session, "{notice}"),
        (Notice::Session(session, notice), false) => info!(session, "{notice}"),
        (notice, true) => warn!("{notice}"),
        (notice, false) => info!("{notice}"),
    }
}
