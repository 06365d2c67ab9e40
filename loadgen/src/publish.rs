//! Sends a fleet's fixes over MQTT 5 at a rate, and counts exactly what the broker took.
//!
//! Guarantee: at QoS 1 every message is sent until the broker has taken it, over reconnects too, and also when
//! the broker says that it has dropped it for want of a subscriber (PUBACK 0x10); what was not acknowledged at
//! the end is listed. When the rate could not be held, the result says so. A broker that is starting refuses for a
//! while (EMQX: CONNACK 0x87, 0x88 or 0x89, and PUBACK 0x87): that is waited out, within a bound, and counted.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use bytes::{Buf as _, BufMut as _, BytesMut};
use indicatif::{ProgressBar, ProgressStyle};
use rumqttc::v5::mqttbytes::Error as PacketError;
use rumqttc::v5::mqttbytes::v5::{Connect, ConnectReturnCode, Login, Packet, PubAckReason};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::fleet::{BUFFERED_ACC_M, Fix, Fleet, LIVE_ACC_M};
use crate::manifest::Manifest;
use crate::mqtt::put_length;

/// Time between two looks at what is due.
const TICK: Duration = Duration::from_millis(2);
/// Messages made in one go; what is still due then waits for the next look.
const BURST_MAX: u64 = 20_000;
/// Bytes that may wait for the socket; a broker that does not read slows us down, and that is reported.
const OUT_BYTES_MAX: usize = 1 << 20;
const PACKET_BYTES_MAX: u32 = 1 << 20;
/// A message that met no subscriber is sent again after this long.
const RETRY_DROPPED: Duration = Duration::from_secs(1);
/// A broker that has refused us for so long is not starting: it means it.
const STARTING_PATIENCE: Duration = Duration::from_secs(20);
/// Fixes a connection may hold back as late ones.
const LATE_MAX: usize = 1_000;
/// How many times its plan a fleet sends at most that [goes on](Progress::goes_on).
const BEYOND_PLAN: u64 = 5;
/// A broker that is away this long will not come back.
const RECONNECT_PATIENCE: Duration = Duration::from_secs(180);

/// What to send, and how.
#[derive(Debug, Clone)]
pub struct Plan {
    /// `host:port`
    pub broker: String,
    /// Login, if any.
    pub login: Option<(String, String)>,
    /// Names the drivers and the client ids.
    pub run: String,
    /// How many drivers.
    pub drivers: u32,
    /// How many connections speak for them.
    pub connections: u32,
    /// 0 or 1.
    pub qos: u8,
    /// Messages a second, over all connections.
    pub rate: f64,
    /// Messages to send, over all connections.
    pub messages: u64,
    /// The same seed gives the same tracks.
    pub seed: u64,
    /// Share of messages that are arrays of points buffered offline.
    pub burst_share: f64,
    /// Points of such an array.
    pub burst_points: u32,
    /// Share of messages held back, and sent after newer ones.
    pub late_share: f64,
    /// Share of messages sent twice.
    pub duplicate_share: f64,
    /// How long to wait for the last acknowledgements.
    pub drain: Duration,
}

/// Live counts, for whoever watches.
#[derive(Debug, Default)]
pub struct Progress {
    /// Messages written.
    pub sent: AtomicU64,
    /// Messages acknowledged.
    pub acked: AtomicU64,
    /// While it is set a fleet goes on beyond its plan, up to five times that: for whoever needs a load for as long as
    /// something takes.
    pub goes_on: AtomicBool,
}

/// Sends everything.
///
/// # Errors
/// The broker refuses us, or stays away.
pub async fn run(plan: &Plan, progress: Arc<Progress>) -> Result<Manifest> {
    ensure!(
        plan.drivers > 0 && plan.connections > 0 && plan.rate > 0.0,
        "drivers, connections and rate are above 0"
    );
    let connections = plan.connections.min(plan.drivers);
    let began_ms = unix_ms();
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for index in 0..connections {
        // Runs of neighbours, as even as they can be.
        let cut =
            |index: u32| u32::try_from(u64::from(plan.drivers) * u64::from(index) / u64::from(connections));
        let fleet = Fleet::new(&plan.run, cut(index)?..cut(index + 1)?, plan.seed);
        let part = |total: u64| {
            total * u64::from(index + 1) / u64::from(connections)
                - total * u64::from(index) / u64::from(connections)
        };
        let messages = part(plan.messages);
        let publisher = Publisher {
            client_id: format!("loadgen-{}-{index}", plan.run),
            rate: plan.rate * messages as f64 / plan.messages.max(1) as f64,
            messages,
            rng: fastrand::Rng::with_seed(plan.seed ^ u64::from(index)),
            plan: plan.clone(),
            progress: Arc::clone(&progress),
            next_driver: fleet.numbers().start,
            fleet,
            ..Publisher::default()
        };
        tasks.spawn(publisher.run());
        if index % 100 == 99 {
            tokio::time::sleep(Duration::from_millis(20)).await; // brokers have a short queue of new connections
        }
    }

    let mut manifest = Manifest {
        run: plan.run.clone(),
        qos: plan.qos,
        last_seq: vec![0; plan.drivers as usize],
        unacked: Vec::new(),
        messages: 0,
        duplicates: 0,
        no_subscriber: 0,
        starting: 0,
        rate_wanted: plan.rate,
        rate_held: 0.0,
        began_ms,
    };
    let mut last_sent_at = began;
    while let Some(done) = tasks.join_next().await {
        let done = done.context("a publisher died")??;
        for n in done.fleet.numbers() {
            manifest.last_seq[n as usize] = done.fleet.last_seq(n);
        }
        for message in done.unacked.values() {
            manifest.unacked.extend((message.seq_first..=message.seq_last).map(|seq| (message.driver, seq)));
        }
        manifest.messages += done.sent;
        manifest.duplicates += done.duplicates;
        manifest.no_subscriber += done.no_subscriber;
        manifest.starting += done.starting;
        last_sent_at = last_sent_at.max(done.last_sent_at.unwrap_or(began));
    }
    manifest.unacked.sort_unstable();
    manifest.rate_held = manifest.messages as f64 / (last_sent_at - began).as_secs_f64().max(1e-3);
    Ok(manifest)
}

/// A fleet that sends from a thread of its own.
pub struct Background {
    /// How far it is.
    pub progress: Arc<Progress>,
    thread: JoinHandle<Result<Manifest>>,
}

impl Background {
    /// Starts it; one that [goes on](Progress::goes_on) does so until [`finish`](Self::finish).
    #[must_use]
    pub fn start(plan: Plan, goes_on: bool) -> Self {
        let progress = Arc::new(Progress { goes_on: AtomicBool::new(goes_on), ..Progress::default() });
        let watched = Arc::clone(&progress);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(run(&plan, watched))
        });
        Self { progress, thread }
    }

    /// It has sent everything, or failed.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits until it has sent everything.
    ///
    /// # Errors
    /// As [`run`], or its thread died.
    pub fn finish(self) -> Result<Manifest> {
        self.progress.goes_on.store(false, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the fleet's thread died"))?
    }
}

/// Shows how far it is until the manifest is there.
///
/// # Errors
/// As [`run`].
pub async fn run_with_bar(plan: &Plan) -> Result<Manifest> {
    let progress = Arc::new(Progress::default());
    let style = "{elapsed_precise} [{bar:40}] {pos}/{len} messages  {per_sec}";
    let bar = ProgressBar::new(plan.messages)
        .with_style(ProgressStyle::with_template(style)?.progress_chars("=> "));
    let watch = {
        let (bar, progress) = (bar.clone(), Arc::clone(&progress));
        async move {
            loop {
                bar.set_position(progress.sent.load(Ordering::Relaxed));
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    };
    let manifest = tokio::select! {
        manifest = run(plan, progress) => manifest?,
        () = watch => bail!("the progress bar ended"),
    };
    bar.finish_and_clear();
    if manifest.rate_held < plan.rate * 0.99 {
        eprintln!(
            "loadgen: held {:.0} of {:.0} messages a second: the broker or this machine is at its limit",
            manifest.rate_held, plan.rate
        );
    }
    if manifest.no_subscriber > 0 {
        eprintln!(
            "loadgen: {} times the broker dropped a message for want of a subscriber, and it was sent again \
             (is milepost subscribed?)",
            manifest.no_subscriber
        );
    }
    if manifest.starting > 0 {
        eprintln!(
            "loadgen: {} times the broker refused while it was starting; each was tried again",
            manifest.starting
        );
    }
    Ok(manifest)
}

/// A message the broker has not acknowledged.
#[derive(Debug)]
struct Unacked {
    frame: Vec<u8>,
    driver: u32,
    seq_first: u32,
    seq_last: u32,
}

/// A message that waits for its turn.
#[derive(Debug)]
struct Ready {
    driver: u32,
    seq_first: u32,
    seq_last: u32,
    payload: String,
}

#[derive(Default)]
struct Publisher {
    client_id: String,
    plan: Plan,
    progress: Arc<Progress>,
    fleet: Fleet,
    rng: fastrand::Rng,
    rate: f64,
    messages: u64,
    next_driver: u32,
    /// Made and counted against `messages`.
    made: u64,
    /// Written to the socket's buffer, with repetitions.
    sent: u64,
    duplicates: u64,
    no_subscriber: u64,
    /// Refusals of a broker that was starting.
    starting: u64,
    /// Since when it has refused every message.
    refused_since: Option<Instant>,
    /// Packet ids of messages the broker dropped, and when to send them again.
    dropped: VecDeque<(Instant, u16)>,
    ready: VecDeque<Ready>,
    late: VecDeque<(Instant, Ready)>,
    unacked: HashMap<u16, Unacked>,
    last_packet_id: u16,
    window: usize,
    out: BytesMut,
    last_sent_at: Option<Instant>,
}

struct Done {
    fleet: Fleet,
    unacked: HashMap<u16, Unacked>,
    sent: u64,
    duplicates: u64,
    no_subscriber: u64,
    starting: u64,
    last_sent_at: Option<Instant>,
}

impl Publisher {
    async fn run(mut self) -> Result<Done> {
        let mut stream = self.connect().await?;
        let began = Instant::now();
        let mut input = BytesMut::new();
        let mut drain_until = None;
        loop {
            self.make_due(began);
            self.write_dropped();
            self.write_ready();
            let all_sent = self.made >= self.wanted() && self.ready.is_empty() && self.late.is_empty();
            if all_sent && self.out.is_empty() {
                let until = *drain_until.get_or_insert_with(|| Instant::now() + self.plan.drain);
                if self.unacked.is_empty() || Instant::now() >= until {
                    break;
                }
            }
            if let Err(error) = self.turn(&mut stream, &mut input, self.next_look(began)).await {
                if self.plan.qos == 0 && all_sent {
                    break;
                }
                if error.is::<Denied>() {
                    return Err(error);
                }
                eprintln!("loadgen: {}: {error:#}; connecting again", self.client_id);
                input.clear();
                stream = self.connect().await?;
                self.send_again();
            }
        }
        self.out.extend_from_slice(&[0xE0, 0x00]); // DISCONNECT
        let _ = stream.write_all(&self.out).await;
        let Self { fleet, unacked, sent, duplicates, no_subscriber, starting, last_sent_at, .. } = self;
        Ok(Done { fleet, unacked, sent, duplicates, no_subscriber, starting, last_sent_at })
    }

    /// Waits for the socket or the clock, and moves bytes.
    async fn turn(
        &mut self,
        stream: &mut TcpStream,
        input: &mut BytesMut,
        next_look: Duration,
    ) -> Result<()> {
        let (mut reader, mut writer) = stream.split();
        tokio::select! {
            read = reader.read_buf(input) => {
                ensure!(read? > 0, "the broker closed the connection");
                self.take_acks(input)?;
            }
            written = writer.write(&self.out), if !self.out.is_empty() => {
                self.out.advance(written?);
                self.last_sent_at = Some(Instant::now());
            }
            () = tokio::time::sleep(next_look) => {}
        }
        Ok(())
    }

    /// Until the next message is due; thousands of slow connections must not turn all the time.
    fn next_look(&self, began: Instant) -> Duration {
        if !self.ready.is_empty() || self.made >= self.wanted() {
            return TICK;
        }
        let due_at = Duration::from_secs_f64((self.made + 1) as f64 / self.rate);
        due_at.saturating_sub(began.elapsed()).clamp(TICK, Duration::from_secs(1))
    }

    async fn connect(&mut self) -> Result<TcpStream> {
        let began = Instant::now();
        loop {
            match tokio::time::timeout(Duration::from_secs(5), self.try_connect()).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) if began.elapsed() > RECONNECT_PATIENCE => {
                    return Err(error).with_context(|| format!("no connection to {}", self.plan.broker));
                }
                Ok(Err(error)) => {
                    if let Some(refused) = error.downcast_ref::<Refused>() {
                        if refused.is_final(began.elapsed()) {
                            return Err(error);
                        }
                        self.starting += 1;
                    }
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
    }

    async fn try_connect(&mut self) -> Result<TcpStream> {
        let mut stream = TcpStream::connect(&self.plan.broker).await?;
        stream.set_nodelay(true)?;
        let connect =
            Connect { keep_alive: 0, client_id: self.client_id.clone(), clean_start: true, properties: None };
        let login = self.plan.login.clone().map(|(username, password)| Login { username, password });
        let mut out = BytesMut::new();
        Packet::Connect(connect, None, login).write(&mut out, None).context("CONNECT")?;
        stream.write_all(&out).await?;
        let mut input = BytesMut::new();
        loop {
            ensure!(stream.read_buf(&mut input).await? > 0, "the broker closed the connection");
            match Packet::read(&mut input, Some(PACKET_BYTES_MAX)) {
                Ok(Packet::ConnAck(answer)) if answer.code == ConnectReturnCode::Success => {
                    let announced = answer.properties.and_then(|properties| properties.receive_max);
                    self.window = usize::from(announced.unwrap_or(u16::MAX)).min(60_000);
                    return Ok(stream);
                }
                Ok(Packet::ConnAck(answer)) => return Err(Refused(answer.code).into()),
                Ok(other) => bail!("CONNACK expected, got {other:?}"),
                Err(PacketError::InsufficientBytes(_)) => {}
                Err(error) => bail!("CONNACK expected: {error}"),
            }
        }
    }

    /// Messages to make, as things stand.
    fn wanted(&self) -> u64 {
        if self.progress.goes_on.load(Ordering::Relaxed) {
            self.messages * BEYOND_PLAN
        } else {
            self.messages.max(self.made)
        }
    }

    /// Makes the messages whose time has come.
    fn make_due(&mut self, began: Instant) {
        let now = Instant::now();
        while self.late.front().is_some_and(|(due, _)| *due <= now || self.made >= self.wanted()) {
            self.ready.extend(self.late.pop_front().map(|(_, message)| message));
        }
        let due = whole(began.elapsed().as_secs_f64() * self.rate).min(self.wanted());
        let room = BURST_MAX.saturating_sub(self.ready.len() as u64);
        for _ in 0..due.saturating_sub(self.made).min(room) {
            self.make_one(now);
        }
    }

    fn make_one(&mut self, now: Instant) {
        self.made += 1;
        let numbers = self.fleet.numbers();
        let driver = self.next_driver;
        self.next_driver = if driver + 1 < numbers.end { driver + 1 } else { numbers.start };

        let mut chance = |share: f64| share > 0.0 && self.rng.f64() < share;
        let (burst, late, twice) =
            (chance(self.plan.burst_share), chance(self.plan.late_share), chance(self.plan.duplicate_share));
        let message = if burst {
            self.burst(driver)
        } else {
            let acc_m = if late { BUFFERED_ACC_M } else { LIVE_ACC_M };
            ready(driver, &[self.fleet.fix(driver, unix_ms(), acc_m)])
        };
        if twice {
            self.duplicates += u64::from(message.seq_last - message.seq_first + 1);
            let Ready { driver, seq_first, seq_last, ref payload } = message;
            self.ready.push_back(Ready { driver, seq_first, seq_last, payload: payload.clone() });
        }
        if late && self.late.len() < LATE_MAX {
            self.late.push_back((now + Duration::from_secs(5), message));
        } else {
            self.ready.push_back(message);
        }
    }

    /// Points a device recorded without a network since its last message, sent as one array.
    fn burst(&mut self, driver: u32) -> Ready {
        let now = unix_ms();
        let points = i64::from(self.plan.burst_points.max(1));
        let since = match self.fleet.last_ts_ms(driver) {
            0 => now - points * 1000,
            last => last,
        };
        let time = |point: i64| since + (now - since) * (point + 1) / points;
        let fixes: Vec<Fix> =
            (0..points).map(|point| self.fleet.fix(driver, time(point), BUFFERED_ACC_M)).collect();
        ready(driver, &fixes)
    }

    /// Moves ready messages into the socket's buffer, as far as window and buffer allow.
    fn write_ready(&mut self) {
        while self.out.len() < OUT_BYTES_MAX
            && (self.plan.qos == 0 || self.unacked.len() < self.window)
            && let Some(message) = self.ready.pop_front()
        {
            let packet_id = (self.plan.qos == 1).then(|| self.free_packet_id());
            let start = self.out.len();
            put_publish(
                &self.fleet.topic(message.driver),
                packet_id,
                message.payload.as_bytes(),
                &mut self.out,
            );
            if let Some(packet_id) = packet_id {
                let Ready { driver, seq_first, seq_last, .. } = message;
                let frame = self.out[start..].to_vec();
                self.unacked.insert(packet_id, Unacked { frame, driver, seq_first, seq_last });
            }
            self.sent += 1;
            self.progress.sent.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn write_dropped(&mut self) {
        while let Some((due, packet_id)) = self.dropped.front().copied()
            && due <= Instant::now()
        {
            self.dropped.pop_front();
            if let Some(message) = self.unacked.get(&packet_id) {
                self.out.extend_from_slice(&message.frame);
            }
        }
    }

    fn free_packet_id(&mut self) -> u16 {
        loop {
            self.last_packet_id = self.last_packet_id.checked_add(1).unwrap_or(1);
            if !self.unacked.contains_key(&self.last_packet_id) {
                return self.last_packet_id;
            }
        }
    }

    fn take_acks(&mut self, input: &mut BytesMut) -> Result<()> {
        loop {
            match Packet::read(input, Some(PACKET_BYTES_MAX)) {
                Ok(Packet::PubAck(ack)) if ack.reason == PubAckReason::NotAuthorized => {
                    ensure!(self.waits(), Denied);
                    self.starting += 1;
                    self.dropped.push_back((Instant::now() + RETRY_DROPPED, ack.pkid));
                }
                Ok(Packet::PubAck(ack)) => {
                    let taken =
                        matches!(ack.reason, PubAckReason::Success | PubAckReason::NoMatchingSubscribers);
                    ensure!(taken, "the broker refused a message: {:?} (its ACL, its quota?)", ack.reason);
                    self.refused_since = None;
                    if ack.reason == PubAckReason::NoMatchingSubscribers {
                        self.no_subscriber += 1;
                        self.dropped.push_back((Instant::now() + RETRY_DROPPED, ack.pkid));
                        continue;
                    }
                    self.unacked.remove(&ack.pkid);
                    self.progress.acked.fetch_add(1, Ordering::Relaxed);
                }
                Ok(Packet::Disconnect(disconnect)) => {
                    bail!("the broker disconnects: {:?}", disconnect.reason_code)
                }
                Ok(_) => {}
                Err(PacketError::InsufficientBytes(_)) => return Ok(()),
                Err(error) => bail!("the broker sent what is not MQTT: {error}"),
            }
        }
    }

    /// Whether a message that was refused may be taken by a broker that has started.
    fn waits(&mut self) -> bool {
        self.refused_since.get_or_insert_with(Instant::now).elapsed() < STARTING_PATIENCE
    }

    /// A new connection: what was not acknowledged goes out once more, marked as such.
    fn send_again(&mut self) {
        self.out.clear();
        self.dropped.clear();
        let mut again: Vec<&mut Unacked> = self.unacked.values_mut().collect();
        again.sort_unstable_by_key(|message| (message.driver, message.seq_first));
        for message in again {
            message.frame[0] |= 0b1000; // DUP
            self.out.extend_from_slice(&message.frame);
        }
    }
}

/// The broker has taken no message for longer than it may be starting.
#[derive(Debug)]
struct Denied;

impl std::fmt::Display for Denied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the broker refused every message for {STARTING_PATIENCE:?}: NotAuthorized (its ACL?)")
    }
}

impl std::error::Error for Denied {}

/// The broker does not want us; trying again will not help, unless it is starting.
#[derive(Debug)]
struct Refused(ConnectReturnCode);

impl Refused {
    /// Before its listener has authentication, EMQX says 0x87, 0x88 or 0x89. A wrong password is 0x87 as well, for ever.
    fn is_final(&self, tried_for: Duration) -> bool {
        use ConnectReturnCode::{NotAuthorized, ServerBusy, ServerUnavailable};
        let may_be_starting = [NotAuthorized, ServerUnavailable, ServerBusy].contains(&self.0);
        !may_be_starting || tried_for > STARTING_PATIENCE
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the broker refuses the connection: {:?}", self.0)
    }
}

impl std::error::Error for Refused {}

impl Default for Plan {
    fn default() -> Self {
        Self {
            broker: "127.0.0.1:1883".to_owned(),
            login: None,
            run: String::new(),
            drivers: 1,
            connections: 1,
            qos: 1,
            rate: 1.0,
            messages: 0,
            seed: 1,
            burst_share: 0.0,
            burst_points: 20,
            late_share: 0.0,
            duplicate_share: 0.0,
            drain: Duration::from_secs(30),
        }
    }
}

impl Default for Fleet {
    fn default() -> Self {
        Self::new("", 0..0, 0)
    }
}

/// One fix as an object, several as an array.
fn ready(driver: u32, fixes: &[Fix]) -> Ready {
    let mut payload = String::with_capacity(128 * fixes.len());
    match fixes {
        [fix] => fix.write_json(&mut payload),
        fixes => {
            for (index, fix) in fixes.iter().enumerate() {
                payload.push(if index == 0 { '[' } else { ',' });
                fix.write_json(&mut payload);
            }
            payload.push(']');
        }
    }
    Ready { driver, seq_first: fixes[0].seq, seq_last: fixes[fixes.len() - 1].seq, payload }
}

/// An MQTT 5 PUBLISH without properties (3.3); at QoS 1 with a packet id.
fn put_publish(topic: &str, packet_id: Option<u16>, payload: &[u8], out: &mut BytesMut) {
    out.put_u8(if packet_id.is_some() { 0x32 } else { 0x30 });
    put_length(2 + topic.len() + packet_id.map_or(0, |_| 2) + 1 + payload.len(), out);
    out.put_u16(u16::try_from(topic.len()).expect("our topics are short"));
    out.put_slice(topic.as_bytes());
    if let Some(packet_id) = packet_id {
        out.put_u16(packet_id);
    }
    out.put_u8(0);
    out.put_slice(payload);
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count of messages, not negative"
)]
fn whole(number: f64) -> u64 {
    number as u64
}

/// The wall clock, in milliseconds.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "a device has a clock")]
pub fn unix_ms() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_waited_out_for_a_while_if_a_broker_that_starts_says_it() {
        let later = STARTING_PATIENCE + Duration::from_secs(1);
        for (code, waits) in [
            (ConnectReturnCode::NotAuthorized, true),
            (ConnectReturnCode::ServerUnavailable, true),
            (ConnectReturnCode::ServerBusy, true),
            (ConnectReturnCode::BadUserNamePassword, false),
            (ConnectReturnCode::Banned, false),
        ] {
            assert_eq!(Refused(code).is_final(Duration::ZERO), !waits, "{code:?}");
            assert!(Refused(code).is_final(later), "{code:?}");
        }
    }

    #[test]
    fn refused_messages_are_waited_for_no_longer() {
        let refusal: &[u8] = &[0x40, 4, 0, 1, 0x87, 0];
        let mut publisher = Publisher::default();
        publisher.take_acks(&mut BytesMut::from(refusal)).unwrap();
        assert_eq!(publisher.dropped.len(), 1);
        publisher.refused_since = Instant::now().checked_sub(STARTING_PATIENCE);
        assert!(publisher.take_acks(&mut BytesMut::from(refusal)).unwrap_err().is::<Denied>());
    }
}
