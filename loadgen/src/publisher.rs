//! One connection of a fleet. It generates messages when they are due, and keeps each message until
//! the broker acknowledges it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::{Buf as _, BytesMut};
use lab_mqtt::{ConnAck, first_packet, kind, put_connect, put_publish, read_puback};
use lab_stack::unix_ms;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::fleet::{BUFFERED_ACC_M, Fix, Fleet, LIVE_ACC_M};
use crate::plan::{Plan, Progress};

/// Shortest interval between checks for due messages.
const TICK: Duration = Duration::from_millis(2);
/// Maximum number of messages that wait to be written. If more are due, a later check generates
/// them.
const READY_MAX: u64 = 20_000;
/// Maximum number of bytes that wait for the socket. With this limit, a broker that reads slowly
/// slows the fleet down, and the manifest shows a lower rate.
const OUT_BYTES_MAX: usize = 1 << 20;
/// Reason code of PUBACK and CONNACK: not authorized (3.2.2.2, 3.4.2.1). EMQX also sends it while
/// it starts.
const NOT_AUTHORIZED: u8 = 0x87;
/// Reason code of CONNACK (3.2.2.2).
const SERVER_UNAVAILABLE: u8 = 0x88;
/// Reason code of CONNACK (3.2.2.2).
const SERVER_BUSY: u8 = 0x89;
/// Longest time for which a starting broker refuses everything. If a broker refuses for longer, it
/// is not starting: its access rules forbid the messages.
const STARTING_PATIENCE: Duration = Duration::from_secs(20);
/// Like [`STARTING_PATIENCE`], for a broker that has accepted messages of this connection before.
/// EMQX refuses for about 20 s around a graceful stop, and again while it boots.
const RESTARTING_PATIENCE: Duration = Duration::from_secs(60);
/// Reason code of PUBACK: dropped, because no client was subscribed (3.4.2.1).
const NO_SUBSCRIBER: u8 = 0x10;
/// Delay before a message that the broker dropped or refused is sent again.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Maximum number of messages that a connection holds back, to send them late.
const LATE_MAX: usize = 1_000;
/// An [endless](Progress::endless) fleet sends at most this many times the messages of its plan.
const BEYOND_PLAN: u64 = 5;
/// Longest time for which a connection tries to reach the broker.
const RECONNECT_PATIENCE: Duration = Duration::from_secs(180);

/// A message that was written and that the broker has not acknowledged.
#[derive(Debug)]
pub(crate) struct Unacked {
    frame: Vec<u8>,
    pub(crate) driver: u32,
    pub(crate) seq_first: u32,
    pub(crate) seq_last: u32,
}

/// A message that waits to be written.
#[derive(Debug)]
struct Ready {
    driver: u32,
    seq_first: u32,
    seq_last: u32,
    payload: String,
}

/// One connection, and the drivers for which it publishes.
#[derive(Default)]
pub(crate) struct Publisher {
    client_id: String,
    /// Whether this is the fleet's first connection, which prints why it cannot be opened.
    is_first: bool,
    plan: Plan,
    progress: Arc<Progress>,
    pub(crate) fleet: Fleet,
    rng: fastrand::Rng,
    /// Messages a second on this connection.
    rate: f64,
    /// This connection's share of the plan's messages.
    messages: u64,
    next_driver: u32,
    /// Number of messages generated; at most `messages`, unless the fleet is endless.
    generated: u64,
    /// Number of messages written to the output buffer, including intended duplicates.
    pub(crate) sent: u64,
    pub(crate) duplicates: u64,
    pub(crate) no_subscriber: u64,
    /// Refusals of a broker that was starting.
    pub(crate) starting: u64,
    /// Time since which the broker has refused every message of this connection.
    refused_since: Option<Instant>,
    /// The broker has acknowledged a message of this connection.
    has_accepted: bool,
    /// Packet ids of messages that the broker dropped or refused, with the time at which to send
    /// them again.
    retries: VecDeque<(Instant, u16)>,
    ready: VecDeque<Ready>,
    /// Messages that are held back, each until its time, or until all messages are generated.
    late: VecDeque<(Instant, Ready)>,
    pub(crate) unacked: HashMap<u16, Unacked>,
    last_packet_id: u16,
    /// Maximum number of unacknowledged messages: the broker's Receive Maximum, at most 60,000.
    window: usize,
    /// Bytes that wait for the socket.
    out: BytesMut,
    pub(crate) last_sent_at: Option<Instant>,
}

impl Publisher {
    /// Builds connection `index`, with a contiguous share of the drivers and of the plan's
    /// messages.
    pub(crate) fn new(
        index: u32,
        connections: u32,
        plan: &Plan,
        progress: &Arc<Progress>,
    ) -> Result<Self> {
        let share = |total: u64, index: u32| total * u64::from(index) / u64::from(connections);
        let first_driver = |index: u32| u32::try_from(share(plan.drivers.into(), index));
        let drivers = first_driver(index)?..first_driver(index + 1)?;
        let fleet = Fleet::new(&plan.run, drivers, plan.seed);
        let messages = share(plan.messages, index + 1) - share(plan.messages, index);
        Ok(Self {
            client_id: format!("loadgen-{}-{index}", plan.run),
            is_first: index == 0,
            rate: plan.rate * messages as f64 / plan.messages.max(1) as f64,
            messages,
            rng: fastrand::Rng::with_seed(plan.seed ^ u64::from(index)),
            plan: plan.clone(),
            progress: Arc::clone(progress),
            next_driver: fleet.numbers().start,
            fleet,
            ..Self::default()
        })
    }

    /// Runs until all messages are sent and, at QoS 1, acknowledged. Stops earlier if
    /// [`Plan::drain`] has passed since the last message, or if the fleet is stopped. Returns
    /// `self` even after a failure, because the manifest records the messages that were sent.
    pub(crate) async fn run(mut self) -> (Self, Result<()>) {
        let outcome = self.publish_all().await;
        (self, outcome)
    }

    async fn publish_all(&mut self) -> Result<()> {
        let mut stream = self.connect().await?;
        let began = Instant::now();
        let mut input = BytesMut::new();
        let mut drain_until = None;
        while !self.is_stopped() {
            self.generate_due(began);
            self.send_retries();
            self.write_ready();
            let all_sent =
                self.generated >= self.target() && self.ready.is_empty() && self.late.is_empty();
            if all_sent && self.out.is_empty() {
                let until = *drain_until.get_or_insert_with(|| Instant::now() + self.plan.drain);
                if self.unacked.is_empty() || Instant::now() >= until {
                    break;
                }
            }
            if let Err(error) =
                self.poll_socket(&mut stream, &mut input, self.next_check(began)).await
            {
                // At QoS 0, nothing is sent again, so another connection is pointless.
                if self.plan.qos == 0 && all_sent {
                    break;
                }
                if error.is::<MessagesRefused>() {
                    return Err(error);
                }
                eprintln!("loadgen: {}: {error:#}; connecting again", self.client_id);
                input.clear();
                drop(stream);
                stream = self.connect().await?;
                self.resend_unacked();
            }
        }
        self.out.extend_from_slice(&[0xE0, 0x00]); // DISCONNECT
        let _ = stream.write_all(&self.out).await;
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        self.progress.stopped.load(Ordering::Relaxed)
    }

    /// Returns (driver, seq) of every point that was generated and not acknowledged. Such a point
    /// may or may not be stored.
    pub(crate) fn unacknowledged(&self) -> impl Iterator<Item = (u32, u32)> {
        let sent = self
            .unacked
            .values()
            .map(|message| (message.driver, message.seq_first, message.seq_last));
        let late = self.late.iter().map(|(_, message)| message);
        let waiting = self
            .ready
            .iter()
            .chain(late)
            .map(|message| (message.driver, message.seq_first, message.seq_last));
        sent.chain(waiting)
            .flat_map(|(driver, first, last)| (first..=last).map(move |seq| (driver, seq)))
    }

    /// Waits until the socket is ready or the next check is due, and reads or writes.
    async fn poll_socket(
        &mut self,
        stream: &mut TcpStream,
        input: &mut BytesMut,
        next_check: Duration,
    ) -> Result<()> {
        let (mut reader, mut writer) = stream.split();
        tokio::select! {
            read = reader.read_buf(input) => {
                ensure!(read? > 0, "the broker closed the connection");
                self.handle_packets(input)?;
            }
            written = writer.write(&self.out), if !self.out.is_empty() => {
                self.out.advance(written?);
                self.last_sent_at = Some(Instant::now());
            }
            () = tokio::time::sleep(next_check) => {}
        }
        Ok(())
    }

    /// Returns the delay until the next check. The check happens when the next message is due, so
    /// that thousands of slow connections do not wake up needlessly.
    fn next_check(&self, began: Instant) -> Duration {
        if !self.ready.is_empty() || self.generated >= self.target() {
            return TICK;
        }
        let due_at = Duration::from_secs_f64((self.generated + 1) as f64 / self.rate);
        due_at.saturating_sub(began.elapsed()).clamp(TICK, Duration::from_secs(1))
    }

    async fn connect(&mut self) -> Result<TcpStream> {
        let began = Instant::now();
        // Start of the current series of refusals. `began` would be too early, because the broker
        // may have been unreachable before it refused.
        let mut refused_since = None;
        let mut says_why = self.is_first;
        loop {
            ensure!(!self.is_stopped(), "stopped while connecting to {}", self.plan.broker);
            match tokio::time::timeout(Duration::from_secs(5), self.try_connect()).await {
                Ok(Ok(stream)) => {
                    self.refused_since = None;
                    return Ok(stream);
                }
                Ok(Err(error)) if began.elapsed() > RECONNECT_PATIENCE => {
                    return Err(error)
                        .with_context(|| format!("no connection to {}", self.plan.broker));
                }
                Ok(Err(error)) => {
                    if let Some(refused) = error.downcast_ref::<ConnectionRefused>() {
                        let refused_for = refused_since.get_or_insert_with(Instant::now).elapsed();
                        if refused.is_final(refused_for, self.patience()) {
                            return Err(error);
                        }
                        self.starting += 1;
                    } else {
                        refused_since = None;
                        if std::mem::take(&mut says_why) {
                            eprintln!(
                                "loadgen: no connection to {}: {error:#}; trying for \
                                 {RECONNECT_PATIENCE:?}",
                                self.plan.broker
                            );
                        }
                    }
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                Err(_) if began.elapsed() > RECONNECT_PATIENCE => {
                    bail!("no answer from {} to CONNECT", self.plan.broker);
                }
                Err(_) => {
                    if std::mem::take(&mut says_why) {
                        eprintln!(
                            "loadgen: no answer from {}; trying for {RECONNECT_PATIENCE:?}",
                            self.plan.broker
                        );
                    }
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            }
        }
    }

    async fn try_connect(&mut self) -> Result<TcpStream> {
        let mut stream = TcpStream::connect(&self.plan.broker).await?;
        stream.set_nodelay(true)?;
        let login =
            self.plan.login.as_ref().map(|(name, password)| (name.as_str(), password.as_str()));
        let mut out = BytesMut::new();
        put_connect(&self.client_id, login, 0, &mut out);
        stream.write_all(&out).await?;
        let mut input = BytesMut::new();
        let answer = loop {
            ensure!(stream.read_buf(&mut input).await? > 0, "the broker closed the connection");
            if let Some(packet) = first_packet(&input)? {
                ensure!(packet.kind == kind::CONNACK, "CONNACK expected, got {packet:?}");
                break ConnAck::read(packet.body)?;
            }
        };
        ensure!(answer.reason == 0, ConnectionRefused(answer.reason));
        self.window = usize::from(answer.receive_maximum).min(60_000);
        Ok(stream)
    }

    /// Returns the total number of messages to generate.
    fn target(&self) -> u64 {
        if self.progress.ends_early.load(Ordering::Relaxed) {
            self.generated
        } else if self.progress.endless.load(Ordering::Relaxed) {
            self.messages * BEYOND_PLAN
        } else {
            self.messages.max(self.generated)
        }
    }

    /// Generates the messages that are due.
    fn generate_due(&mut self, began: Instant) {
        if self.progress.paused.load(Ordering::Relaxed) {
            return;
        }
        let now = Instant::now();
        while self
            .late
            .front()
            .is_some_and(|(due, _)| *due <= now || self.generated >= self.target())
        {
            self.ready.extend(self.late.pop_front().map(|(_, message)| message));
        }
        let due = to_count(began.elapsed().as_secs_f64() * self.rate).min(self.target());
        let ready_more_max = READY_MAX.saturating_sub(self.ready.len() as u64);
        for _ in 0..due.saturating_sub(self.generated).min(ready_more_max) {
            self.generate_one(now);
        }
    }

    /// Generates the next driver's message, and perhaps its intended duplicate.
    fn generate_one(&mut self, now: Instant) {
        self.generated += 1;
        let numbers = self.fleet.numbers();
        let driver = self.next_driver;
        self.next_driver = if driver + 1 < numbers.end { driver + 1 } else { numbers.start };

        let mut chance = |share: f64| share > 0.0 && self.rng.f64() < share;
        let (burst, late, duplicate) = (
            chance(self.plan.burst_share),
            chance(self.plan.late_share),
            chance(self.plan.duplicate_share),
        );
        let message = if burst {
            self.burst(driver)
        } else {
            let acc_m = if late { BUFFERED_ACC_M } else { LIVE_ACC_M };
            let fix = self.fleet.fix(driver, unix_ms(), acc_m);
            self.encode(driver, &[fix])
        };
        if duplicate {
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

    /// Builds a message with an array of the points that a device has buffered since its last
    /// message.
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
        self.encode(driver, &fixes)
    }

    /// Builds one message with these fixes.
    fn encode(&self, driver: u32, fixes: &[Fix]) -> Ready {
        let mut payload = String::with_capacity(128 * fixes.len());
        self.plan.format.write(&self.fleet.driver_id(driver), fixes, &mut payload);
        Ready { driver, seq_first: fixes[0].seq, seq_last: fixes[fixes.len() - 1].seq, payload }
    }

    /// Encodes ready messages into the output buffer, until the window or the buffer is full.
    fn write_ready(&mut self) {
        while self.out.len() < OUT_BYTES_MAX
            && (self.plan.qos == 0 || self.unacked.len() < self.window)
            && let Some(message) = self.ready.pop_front()
        {
            let packet_id = (self.plan.qos == 1).then(|| self.free_packet_id());
            let start = self.out.len();
            put_publish(
                &self.plan.format.topic(&self.fleet.driver_id(message.driver)),
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

    /// Resends the messages that the broker dropped or refused at least [`RETRY_DELAY`] ago.
    fn send_retries(&mut self) {
        while let Some((due, packet_id)) = self.retries.front().copied()
            && due <= Instant::now()
        {
            self.retries.pop_front();
            if let Some(message) = self.unacked.get(&packet_id) {
                self.out.extend_from_slice(&message.frame);
            }
        }
    }

    /// Returns the next packet id that no unacknowledged message has.
    fn free_packet_id(&mut self) -> u16 {
        loop {
            self.last_packet_id = self.last_packet_id.checked_add(1).unwrap_or(1);
            if !self.unacked.contains_key(&self.last_packet_id) {
                return self.last_packet_id;
            }
        }
    }

    /// Handles the broker's packets that have arrived completely.
    fn handle_packets(&mut self, input: &mut BytesMut) -> Result<()> {
        while let Some(packet) = first_packet(input)? {
            match packet.kind {
                kind::PUBACK => match read_puback(packet.body)? {
                    (packet_id, NOT_AUTHORIZED) => {
                        ensure!(self.record_refusal(), MessagesRefused(self.patience()));
                        self.starting += 1;
                        self.retries.push_back((Instant::now() + RETRY_DELAY, packet_id));
                    }
                    (packet_id, NO_SUBSCRIBER) => {
                        self.refused_since = None;
                        self.no_subscriber += 1;
                        self.retries.push_back((Instant::now() + RETRY_DELAY, packet_id));
                    }
                    (packet_id, 0) => {
                        self.refused_since = None;
                        self.has_accepted = true;
                        self.unacked.remove(&packet_id);
                        self.progress.acked.fetch_add(1, Ordering::Relaxed);
                    }
                    (_, reason) => {
                        bail!(
                            "the broker refused a message: {reason:#04x} (check its ACL and its \
                             quota)"
                        )
                    }
                },
                kind::DISCONNECT => bail!("the broker disconnects: {:#04x?}", packet.body.first()),
                _ => {}
            }
            let len = packet.len;
            input.advance(len);
        }
        Ok(())
    }

    /// Records that a message was refused. Returns whether the broker may still be starting.
    fn record_refusal(&mut self) -> bool {
        let patience = self.patience();
        self.refused_since.get_or_insert_with(Instant::now).elapsed() < patience
    }

    /// Returns how long the broker may refuse everything before the fleet ends.
    fn patience(&self) -> Duration {
        if self.has_accepted { RESTARTING_PATIENCE } else { STARTING_PATIENCE }
    }

    /// Resends the unacknowledged messages after a reconnect, with DUP. The fixes of each driver
    /// keep their order.
    fn resend_unacked(&mut self) {
        // Clear the buffer, which may begin with half a packet. At QoS 1, its messages are also
        // unacknowledged, so they are sent again below.
        self.out.clear();
        self.retries.clear();
        let mut messages: Vec<&mut Unacked> = self.unacked.values_mut().collect();
        messages.sort_unstable_by_key(|message| (message.driver, message.seq_first));
        for message in messages {
            message.frame[0] |= 0b1000; // DUP
            self.out.extend_from_slice(&message.frame);
        }
    }
}

/// The broker has refused every message for this long, which is longer than a start may take.
#[derive(Debug, thiserror::Error)]
#[error("the broker refused every message for {0:?}: not authorized (check its ACL)")]
struct MessagesRefused(Duration);

/// The broker refused the connection, with its reason code (3.2.2.2).
#[derive(Debug, thiserror::Error)]
#[error("the broker refuses the connection: {name} ({0:#04x})", name = reason_name(*.0))]
struct ConnectionRefused(u8);

impl ConnectionRefused {
    /// Returns whether retries are pointless. While EMQX starts, it answers 0x87, 0x88 or 0x89. To
    /// a wrong password, it answers 0x87 for ever.
    fn is_final(&self, refused_for: Duration, patience: Duration) -> bool {
        let may_be_starting = [NOT_AUTHORIZED, SERVER_UNAVAILABLE, SERVER_BUSY].contains(&self.0);
        !may_be_starting || refused_for > patience
    }
}

fn reason_name(reason: u8) -> &'static str {
    match reason {
        0x86 => "bad user name or password",
        NOT_AUTHORIZED => "not authorized",
        SERVER_UNAVAILABLE => "server unavailable",
        SERVER_BUSY => "server busy",
        _ => "reason code",
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count of messages, not negative"
)]
fn to_count(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_of_a_starting_broker_is_retried_for_a_while() {
        let later = STARTING_PATIENCE + Duration::from_secs(1);
        for (code, is_retried) in [
            (NOT_AUTHORIZED, true),
            (SERVER_UNAVAILABLE, true),
            (SERVER_BUSY, true),
            (0x86, false),
            (0x8A, false),
        ] {
            assert_eq!(
                ConnectionRefused(code).is_final(Duration::ZERO, STARTING_PATIENCE),
                !is_retried,
                "{code:#04x}"
            );
            assert!(ConnectionRefused(code).is_final(later, STARTING_PATIENCE), "{code:#04x}");
        }
    }

    #[test]
    fn refused_messages_end_the_fleet_after_20_s() {
        let refusal: &[u8] = &[0x40, 4, 0, 1, NOT_AUTHORIZED, 0];
        let mut publisher = Publisher::default();
        publisher.handle_packets(&mut BytesMut::from(refusal)).unwrap();
        assert_eq!(publisher.retries.len(), 1);
        publisher.refused_since = Instant::now().checked_sub(STARTING_PATIENCE);
        assert!(
            publisher
                .handle_packets(&mut BytesMut::from(refusal))
                .unwrap_err()
                .is::<MessagesRefused>()
        );
    }

    /// Accepts one connection, and answers CONNECT with success.
    async fn accept(listener: tokio::net::TcpListener) {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_buf(&mut BytesMut::new()).await.unwrap();
        stream.write_all(&[0x20, 3, 0, 0, 0]).await.unwrap();
    }

    #[tokio::test]
    async fn new_connection_resets_the_time_of_refusals() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let broker = listener.local_addr().unwrap().to_string();
        let mut publisher =
            Publisher { plan: Plan { broker, ..Plan::default() }, ..Publisher::default() };
        publisher.refused_since = Instant::now().checked_sub(RESTARTING_PATIENCE);
        let (connected, ()) = tokio::join!(publisher.connect(), accept(listener));
        connected.unwrap();
        let refusal: &[u8] = &[0x40, 4, 0, 1, NOT_AUTHORIZED, 0];
        publisher.handle_packets(&mut BytesMut::from(refusal)).unwrap();
    }

    #[test]
    fn broker_that_accepted_messages_may_refuse_longer() {
        let refusal: &[u8] = &[0x40, 4, 0, 1, NOT_AUTHORIZED, 0];
        let mut publisher = Publisher { has_accepted: true, ..Publisher::default() };
        publisher.refused_since = Instant::now().checked_sub(STARTING_PATIENCE);
        publisher.handle_packets(&mut BytesMut::from(refusal)).unwrap();
        publisher.refused_since = Instant::now().checked_sub(RESTARTING_PATIENCE);
        assert!(
            publisher
                .handle_packets(&mut BytesMut::from(refusal))
                .unwrap_err()
                .is::<MessagesRefused>()
        );
    }
}
