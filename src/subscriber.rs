//! The lane's shell: one MQTT connection on a thread of its own.
//!
//! Guarantee: what was read and not taken, and what was to be written and is not, dies with its connection
//! ([`Line`]): so no acknowledgement of an old one can go out on a new one, and no message of an old one
//! reaches the lane later. Acknowledgements leave in the order in which the lane gives them. Nothing here
//! blocks for longer than a rest of its [`Pace`], and nothing grows: what the broker does not take waits in the lane.

mod line;
mod pace;

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep_until;
use tracing::{info, warn};

use self::line::{Line, LineError};
use self::pace::Pace;
use crate::config;
use crate::health::Health;
use crate::insert::{Settled, Work, chain};
use crate::lane::{Command, Event, Lane, Link, Notice, Now, Totals};
use crate::metrics::Metrics;
use crate::position::{Qos, Timestamp};
use crate::spool::Spool;
use crate::tls::{self, Stream, Tls};
use crate::wire::{self, Grant, Hello, Packet, Publish, Welcome, WireError};

/// An idle loop turns at least this often, to show that it lives.
const BEAT: Duration = Duration::from_secs(5);
/// How long TCP connect, TLS and CONNACK may take together.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Reads in a row before the totals are published, when the connection never runs dry.
const READS_PER_PUBLICATION: u32 = 16;

/// What `/readyz` says of a lane until its subscription is granted.
pub const NOT_SUBSCRIBED: &str = "not subscribed yet";

/// A lane's name in `/readyz` and `/livez`.
#[must_use]
pub fn part(lane: usize) -> String {
    format!("lane {lane}")
}

/// What a lane's thread works with.
#[derive(Debug)]
pub struct Wiring {
    /// Which lane.
    pub index: usize,
    /// The broker, and our place in it.
    pub mqtt: config::Mqtt,
    /// To the inserter: a place for every slot, for what is spooled, and for the wish to save.
    pub work: mpsc::Sender<Work>,
    /// From the inserter.
    pub settled: mpsc::Receiver<Settled>,
    /// Where batches go that the lane gives away.
    pub spool: Option<Arc<Spool>>,
    /// Turns true when it is time to go.
    pub leave: watch::Receiver<bool>,
    /// Observations.
    pub metrics: Arc<Metrics>,
    /// Troubles.
    pub health: Arc<Health>,
}

/// Starts the lane's thread; the receiver gets its last totals, or an error if the thread died.
///
/// # Errors
/// The system gives no thread, or no runtime.
pub fn spawn(wiring: Wiring, lane: Lane) -> std::io::Result<oneshot::Receiver<Totals>> {
    let (ended, end) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name(format!("lane-{}", wiring.index)).spawn(move || {
        // Unconstrained: tokio's cooperative budget would make a full socket look dry.
        let totals = runtime.block_on(tokio::task::unconstrained(Subscriber::new(wiring, lane).run()));
        let _ = ended.send(totals);
    })?;
    Ok(end)
}

struct Subscriber {
    wiring: Wiring,
    lane: Lane,
    part: String,
    filters: Vec<String>,
    tls: Option<Arc<Tls>>,
    /// User name and password as they were when last read.
    login: Option<(String, String)>,
    /// A message came since the connection last ran dry.
    fresh: bool,
    reads_unpublished: u32,
    reported: Option<Link>,
}

impl Subscriber {
    fn new(wiring: Wiring, lane: Lane) -> Self {
        let mqtt = &wiring.mqtt;
        let share = |topic: &String| format!("$share/{}/{topic}", mqtt.group);
        Self {
            part: part(wiring.index),
            filters: mqtt.topics.iter().map(share).collect(),
            tls: mqtt.tls.clone().map(|files| Arc::new(Tls::new(files))),
            login: None,
            fresh: false,
            reads_unpublished: 0,
            reported: None,
            lane,
            wiring,
        }
    }

    async fn run(mut self) -> Totals {
        loop {
            self.obey_without_line();
            match self.lane.link() {
                Link::Ended => break,
                Link::Resting { .. } => {
                    self.publish_totals();
                    self.wait(None, pending::<()>()).await;
                }
                Link::Connecting | Link::Subscribing | Link::Live { .. } | Link::Closing { .. } => {
                    // The line lives in there: from here on nothing of it is left.
                    let end = self.connection().await;
                    self.ended(end);
                }
            }
        }
        self.publish_totals();
        self.lane.totals()
    }

    /// One connection from TCP to its end: an error, or the lane does not want it any longer.
    async fn connection(&mut self) -> Result<(), LineError> {
        let connected_by = Instant::now() + CONNECT_MAX;
        let hello = self.hello()?;
        let Some(stream) = self.reach(connected_by).await? else { return Ok(()) };
        let max = self.wiring.mqtt.max_packet_bytes;
        let mut line = Line::new(stream, hello, max, Instant::now());
        let mut pace = Pace::new(wanted_qos(self.wiring.mqtt.qos));
        loop {
            let all_taken = self.hand_on(&mut line)?;
            self.serve_settled();
            if !self.obey(&mut line).await? {
                return Ok(());
            }
            if !self.lane.is_holding() {
                if !all_taken {
                    continue; // what settled has ended the hold
                }
                let read = poll_fn(|cx| Poll::Ready(line.poll_read(cx))).await;
                if let Poll::Ready(read) = read {
                    read?;
                    self.turn_without_rest(&mut line)?;
                    continue;
                }
            }

            self.publish_totals();
            if std::mem::take(&mut self.fresh) {
                let rest = pace.rest(line.take_bytes(), self.lane.window());
                let due_in = |at: Instant| at.saturating_duration_since(Instant::now());
                thread::sleep(self.lane.deadline().map_or(rest, |at| rest.min(due_in(at))));
            }
            let now = Instant::now();
            let until = if !matches!(self.lane.link(), Link::Connecting) {
                line.watch(now)?;
                line.deadline()
            } else if now < connected_by {
                Some(connected_by)
            } else {
                return Err(LineError::Unanswered(CONNECT_MAX));
            };
            let reading = !self.lane.is_holding();
            if let Some(moved) = self.wait(until, poll_fn(|cx| line.poll(cx, reading))).await {
                moved?;
            }
        }
    }

    /// Connects TCP, and TLS over it; `None` if the lane has changed its mind meanwhile.
    async fn reach(&mut self, by: Instant) -> Result<Option<Box<dyn Stream>>, LineError> {
        let mqtt = &self.wiring.mqtt;
        let mut reaching = pin!(tls::open(mqtt.host.clone(), mqtt.port, self.tls.clone()));
        loop {
            self.publish_totals();
            match self.wait(Some(by), reaching.as_mut()).await {
                Some(reached) => return Ok(Some(reached?)),
                None if Instant::now() >= by => return Err(LineError::Unanswered(CONNECT_MAX)),
                None => {}
            }
            self.obey_without_line();
            if !matches!(self.lane.link(), Link::Connecting) {
                return Ok(None);
            }
        }
    }

    /// CONNECT, with the password as its file has it now.
    fn hello(&mut self) -> Result<BytesMut, LineError> {
        let mqtt = &self.wiring.mqtt;
        match mqtt.password.as_ref().map(config::Secret::read).transpose() {
            Ok(password) => {
                let login = |username: &String| (username.clone(), password.unwrap_or_default());
                self.login = mqtt.username.as_ref().map(login);
            }
            Err(error) => {
                warn!(lane = self.wiring.index, %error, "mqtt.password_file cannot be read; keeping the last password");
            }
        }
        let hello = Hello {
            client_id: format!("{}-{}", mqtt.client_id, self.wiring.index),
            clean_start: false, // true would throw the unacknowledged window away
            login: self.login.as_ref(),
            keep_alive_seconds: u16::try_from(mqtt.keep_alive.as_secs()).unwrap_or(u16::MAX),
            session_expiry_seconds: u32::try_from(mqtt.session_expiry.as_secs()).unwrap_or(u32::MAX),
            receive_maximum: mqtt.receive_maximum,
            packet_bytes_max: mqtt.max_packet_bytes,
        };
        let mut bytes = BytesMut::new();
        wire::put_connect(hello, &mut bytes)?;
        Ok(bytes)
    }

    /// Hands what was read to the lane, while it takes it; `true` if that was all. One `now` for all of it: it
    /// came within a rest.
    fn hand_on(&mut self, line: &mut Line) -> Result<bool, LineError> {
        let now = read_clocks();
        // While the lane holds nothing is read, and the silence is ours.
        if line.take_came() || self.lane.is_holding() {
            line.heard(now.instant);
        }
        while !self.lane.is_holding() && self.wants_line() {
            match line.input.packet()? {
                None => return Ok(true),
                Some(Packet::Published(Publish { topic, payload, payload_bytes, packet_id })) => {
                    self.fresh = true;
                    self.lane.handle(Event::Published { topic, payload, payload_bytes, packet_id }, now);
                }
                Some(Packet::Connected(welcome)) => {
                    line.keep_alive(self.agreed_keep_alive(welcome));
                    self.connected(welcome);
                }
                Some(Packet::Subscribed(grants)) => {
                    let refusals = self.refusals(&grants);
                    self.tell(Event::Subscribed { refusals });
                }
                Some(Packet::Unsubscribed) => self.tell(Event::Unsubscribed),
                Some(Packet::Pong) => {}
                Some(Packet::Acked(_)) => return Err(WireError::Unexpected(wire::PUBACK).into()),
            }
        }
        Ok(false)
    }

    /// Waits for `other`, or for anything the lane must be told: then `None`. It has been told.
    async fn wait<T>(&mut self, until: Option<Instant>, other: impl Future<Output = T>) -> Option<T> {
        let beat = Instant::now() + BEAT;
        let until = [self.lane.deadline(), until].into_iter().flatten().fold(beat, Instant::min);
        tokio::select! {
            biased; // what settled and the wish to leave are looked at between two reads as well
            done = other => return Some(done),
            Some(settled) = self.wiring.settled.recv() => self.settled(&settled),
            Ok(()) = self.wiring.leave.changed() => self.tell(Event::Leave),
            () = sleep_until(until.into()) => self.tell(Event::Tick),
        }
        None
    }

    /// What settled while the connection kept us busy.
    fn serve_settled(&mut self) {
        while let Ok(settled) = self.wiring.settled.try_recv() {
            self.settled(&settled);
        }
    }

    /// What [`wait`](Self::wait) would see to, for a connection that never runs dry.
    fn turn_without_rest(&mut self, line: &mut Line) -> Result<(), LineError> {
        self.reads_unpublished += 1;
        if self.reads_unpublished < READS_PER_PUBLICATION {
            return Ok(());
        }
        self.publish_totals();
        if self.wiring.leave.has_changed().unwrap_or(false) {
            self.wiring.leave.mark_unchanged();
            self.tell(Event::Leave);
        }
        if self.lane.deadline().is_some_and(|deadline| deadline <= Instant::now()) {
            self.tell(Event::Tick);
        }
        line.watch(Instant::now())
    }

    fn settled(&mut self, settled: &Settled) {
        self.tell(Event::Settled { batch: settled.batch, fate: settled.fate });
        if let (Some(entry), Some(spool)) = (settled.entry, &self.wiring.spool) {
            // Counted as the spool's before it can leave the spool.
            self.wiring.metrics.handed_to_spool(self.wiring.index, self.lane.totals(), entry.positions);
            spool.release(entry);
        }
    }

    fn tell(&mut self, event: Event<'_>) {
        self.lane.handle(event, read_clocks());
    }

    fn wants_line(&self) -> bool {
        !matches!(self.lane.link(), Link::Resting { .. } | Link::Ended)
    }

    fn agreed_keep_alive(&self, welcome: Welcome) -> Duration {
        let ours = self.wiring.mqtt.keep_alive;
        match welcome.keep_alive_seconds {
            None | Some(0) => ours,
            Some(seconds) => ours.min(Duration::from_secs(seconds.into())),
        }
    }

    fn connected(&mut self, welcome: Welcome) {
        let asked = self.wiring.mqtt.session_expiry;
        if let Some(granted) = welcome.session_expiry_seconds
            && u64::from(granted) < asked.as_secs()
        {
            warn!(
                lane = self.wiring.index,
                granted_s = granted,
                asked_s = asked.as_secs(),
                "the broker keeps our session shorter than mqtt.session_expiry: a longer absence loses what it queued"
            );
        }
        let Welcome { session_present, receive_maximum, .. } = welcome;
        self.tell(Event::Connected { session_present, receive_maximum });
    }

    fn refusals(&self, grants: &[Grant]) -> Vec<String> {
        let asked = wanted_qos(self.wiring.mqtt.qos);
        let refusal = |(index, filter): (usize, &String)| match grants.get(index) {
            Some(Grant::Granted(Qos::AtMostOnce)) if asked == Qos::AtLeastOnce => Some(format!(
                "{filter}: only {:?} granted; set mqtt.qos = 0 if losses are acceptable",
                Qos::AtMostOnce
            )),
            Some(Grant::Granted(Qos::AtMostOnce | Qos::AtLeastOnce)) => None,
            Some(Grant::NotAuthorized) => {
                Some(format!("{filter}: not authorized; let this user subscribe to it in the broker's ACL"))
            }
            Some(Grant::NoSharedSubscriptions) => {
                Some(format!("{filter}: the broker has no shared subscriptions; enable them there"))
            }
            Some(Grant::Refused(why)) => Some(format!("{filter}: {why}")),
            None => Some(format!("{filter}: the broker did not answer to it")),
        };
        self.filters.iter().enumerate().filter_map(refusal).collect()
    }

    /// The connection is no more; sees to it that the lane knows.
    fn ended(&mut self, end: Result<(), LineError>) {
        let was_closing = matches!(self.lane.link(), Link::Closing { .. });
        let was_connecting = matches!(self.lane.link(), Link::Connecting);
        let taken_over =
            matches!(end, Err(LineError::Wire(WireError::Disconnected { taken_over: true, .. })));
        self.fresh = false;
        if self.wants_line() {
            self.tell(Event::Disconnected { taken_over });
        }
        match (end, self.lane.link()) {
            (Err(error), Link::Resting { until }) => {
                let retry_in = until.saturating_duration_since(Instant::now());
                let mut why = chain(&error);
                if was_connecting && error.may_be_tls() {
                    why = format!("{why}; {}", tls::is_this_the_port("mqtt", self.tls.is_some()));
                }
                self.wiring.health.trouble(&self.part, format!("no connection: {why}"));
                warn!(
                    lane = self.wiring.index,
                    broker = %format_args!("{}:{}", self.wiring.mqtt.host, self.wiring.mqtt.port),
                    ?retry_in,
                    error = why,
                    "no connection"
                );
            }
            (Err(_), _) if was_closing => info!(lane = self.wiring.index, "disconnected"),
            (Ok(()) | Err(_), _) => {}
        }
    }

    /// Carries out what the lane wants, and writes what the broker takes now; `false` if the lane does not
    /// want this connection any longer.
    async fn obey(&mut self, line: &mut Line) -> Result<bool, LineError> {
        loop {
            self.obey_commands(Some(line))?;
            if self.put_acks(line) {
                // Leaving waits for the last acknowledgement, and nothing else may come to wake it.
                self.tell(Event::Tick);
                self.obey_commands(Some(line))?;
            }
            if line.is_hung_up() || !self.wants_line() {
                return Ok(false);
            }
            if line.take_disconnect_sent() {
                self.tell(Event::DisconnectSent);
            }
            if !line.has_unsent() {
                return Ok(true);
            }
            match poll_fn(|cx| Poll::Ready(line.poll_write(cx))).await {
                Poll::Ready(written) => written?,
                Poll::Pending => return Ok(true), // the rest goes when the broker takes it
            }
        }
    }

    /// What the lane says while there is no connection; what it wanted of the last one is void.
    fn obey_without_line(&mut self) {
        let obeyed = self.obey_commands(None);
        debug_assert!(obeyed.is_ok(), "only a connection fails");
    }

    /// Everything here is a hand-over that cannot block.
    fn obey_commands(&mut self, mut line: Option<&mut Line>) -> Result<(), LineError> {
        while let Some(command) = self.lane.command() {
            match (command, line.as_deref_mut()) {
                (Command::Insert(batch), _) => self.hand_over(Work::Insert(batch)),
                (Command::Spool(batch), _) => self.hand_over(Work::Spool(batch)),
                (Command::SaveUnderWay, _) => self.hand_over(Work::SaveUnderWay),
                (Command::Log(notice), _) => self.log(&notice),
                (Command::Subscribe, Some(line)) => {
                    let qos = wanted_qos(self.wiring.mqtt.qos);
                    wire::put_subscribe(&self.filters, qos, line.output(Instant::now()))?;
                }
                (Command::Unsubscribe, Some(line)) => {
                    wire::put_unsubscribe(&self.filters, line.output(Instant::now()))?;
                }
                (Command::Disconnect, Some(line)) => line.disconnect(Instant::now())?,
                (Command::HangUp, Some(line)) => line.hang_up(),
                (Command::Subscribe | Command::Unsubscribe | Command::Disconnect | Command::HangUp, None) => {
                }
            }
        }
        Ok(())
    }

    /// There is a place for everything, so only an inserter that is gone refuses; and then the process is ending,
    /// and the broker still holds the batch.
    fn hand_over(&self, work: Work) {
        if self.wiring.work.try_send(work).is_err() {
            warn!(lane = self.wiring.index, "the inserter is gone: a batch stays with the broker");
        }
    }

    /// `true` if there were any.
    fn put_acks(&mut self, line: &mut Line) -> bool {
        let Some(mut packet_id) = self.lane.ack_due() else { return false };
        let now = Instant::now();
        while line.takes_more() {
            wire::put_ack(packet_id, line.output(now));
            self.lane.ack_sent();
            match self.lane.ack_due() {
                Some(next) => packet_id = next,
                None => break,
            }
        }
        true
    }

    fn log(&self, notice: &Notice) {
        let lane = self.wiring.index;
        match notice {
            Notice::Connected { .. } => info!(lane, "{notice}"),
            Notice::WindowSmall { .. }
            | Notice::SessionLost { .. }
            | Notice::Abandoned { .. }
            | Notice::SubscriptionRefused(_)
            | Notice::TakenOver
            | Notice::BufferFull
            | Notice::BufferStayedFull
            | Notice::Spooling { .. }
            | Notice::Shedding
            | Notice::SheddingWhileLeaving => warn!(lane, "{notice}"),
        }
        if let Notice::SubscriptionRefused(_) | Notice::TakenOver | Notice::BufferStayedFull = notice {
            self.wiring.health.trouble(&self.part, notice.to_string());
        }
    }

    /// Makes the lane's state visible.
    fn publish_totals(&mut self) {
        self.reads_unpublished = 0;
        self.wiring.metrics.lane(self.wiring.index, self.lane.totals());
        self.wiring.health.beat(&self.part, Instant::now());
        let link = self.lane.link();
        if self.reported.replace(link) == Some(link) {
            return;
        }
        match link {
            Link::Live { .. } => {
                info!(lane = self.wiring.index, filters = ?self.filters, "subscribed");
                self.wiring.health.fine(&self.part);
            }
            Link::Connecting | Link::Subscribing => {
                self.wiring.health.trouble(&self.part, NOT_SUBSCRIBED);
            }
            Link::Closing { .. } | Link::Ended => {
                self.wiring.health.trouble(&self.part, "leaving");
            }
            // The reason was set where it happened, or the next state says it.
            Link::Resting { .. } => {}
        }
    }
}

fn wanted_qos(qos: u8) -> Qos {
    if qos == 0 { Qos::AtMostOnce } else { Qos::AtLeastOnce }
}

#[expect(clippy::disallowed_methods, reason = "this is the shell that reads the clocks for the lane")]
fn read_clocks() -> Now {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let unix_ms = i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX);
    Now { instant: Instant::now(), wall: Timestamp::from_unix_ms(unix_ms) }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;
    use crate::config::Config;
    use crate::decode::Decoder;
    use crate::lane::{Fate, Settings};

    const MESSAGES: u16 = 20_000;

    /// CONNACK, SUBACK, everything at once; then the packet ids that are acknowledged.
    fn serve(listener: &TcpListener) -> Vec<u16> {
        let (mut stream, _) = listener.accept().unwrap();
        let mut chunk = [0; 4_096];
        assert!(stream.read(&mut chunk).unwrap() > 0);
        stream.write_all(&[0x20, 3, 0, 0, 0]).unwrap();
        assert!(stream.read(&mut chunk).unwrap() > 0);
        let mut bytes = vec![0x90, 4, 0, 1, 0, 1];
        for packet_id in 1..=MESSAGES {
            let [high, low] = packet_id.to_be_bytes();
            bytes.extend_from_slice(&[0x32, 36, 0, 14]);
            bytes.extend_from_slice(b"drivers/d1/gps");
            bytes.extend_from_slice(&[high, low, 0]);
            bytes.extend_from_slice(br#"{"lat":1,"lng":2}"#);
        }
        stream.write_all(&bytes).unwrap();
        let mut acks = vec![0; 4 * usize::from(MESSAGES)];
        stream.read_exact(&mut acks).unwrap();
        acks.chunks(4).map(|ack| u16::from_be_bytes([ack[2], ack[3]])).collect()
    }

    #[test]
    fn holds_that_come_and_go_in_the_midst_of_a_read_lose_nothing_and_keep_to_the_order() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let config = Config::defaults().unwrap();
        let mqtt = config::Mqtt {
            host: "127.0.0.1".to_owned(),
            port: listener.local_addr().unwrap().port(),
            max_packet_bytes: 1_024,
            ..config.mqtt
        };
        let broker = thread::spawn(move || serve(&listener));
        let settings = Settings {
            batch: crate::batch::Limits { bytes_max: 20_000, ..config.batch },
            inserts_in_flight: 1,
            buffer_bytes_max: 1_000,
            receive_maximum: 32_000,
            spool: false,
            spool_when_leaving_after: Duration::ZERO,
            leave: false,
            seed: 1,
        };
        let lane = Lane::new(settings, Decoder::new(&mqtt.topics, config.decode));
        let (work, mut to_insert) = mpsc::channel(1);
        let (to_settle, settled) = mpsc::channel(1);
        let (leave, leaving) = watch::channel(false);
        let (metrics, health) = (Arc::new(Metrics::new(1)), Arc::new(Health::default()));
        let wiring = Wiring { index: 0, mqtt, work, settled, spool: None, leave: leaving, metrics, health };
        let end = spawn(wiring, lane).unwrap();
        let inserter = thread::spawn(move || {
            while let Some(Work::Insert(batch)) = to_insert.blocking_recv() {
                let settled = Settled { batch: batch.id, fate: Fate::Inserted, entry: None };
                if to_settle.blocking_send(settled).is_err() {
                    return;
                }
            }
        });

        assert_eq!(broker.join().unwrap(), (1..=MESSAGES).collect::<Vec<_>>());
        leave.send(true).unwrap();
        let totals = end.blocking_recv().unwrap();
        assert_eq!((totals.inserted, totals.in_flight), (MESSAGES.into(), 0));
        assert!(totals.stalls > 10, "{} holds", totals.stalls);
        inserter.join().unwrap();
    }
}
