//! The mind of one MQTT connection: events in, commands out.
//!
//! Guarantee: nothing is acknowledged before every row of it is durable; nothing of one connection is
//! acknowledged on another; memory stays within `buffer_bytes_max` plus the batches that are open, being inserted
//! or being spooled; every position is in exactly one of the places that [`Totals`] names. It holds no clock, socket
//! or task: its shell, `subscriber.rs`, tells it what happened and when, and carries out what it says.
//! Refuses: publishes while it is leaving (the broker keeps those), and QoS 0 publishes on a full buffer.

mod words;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

pub use self::words::{Command, Event, Fate, Link, Notice, Now, Settings, Totals};
use crate::ack::AckQueue;
use crate::batch::{Batch, Batcher};
use crate::decode::{Decoded, Decoder, Message};
use crate::position::Qos;
use crate::window::Window;

/// A full buffer may stop the reading this long; then the connection is closed until there is room, before
/// the broker closes it for missing its keep-alive.
const HOLD_MAX: Duration = Duration::from_secs(10);
/// First delay before a reconnect; doubles up to [`RECONNECT_DELAY_MAX`], halved at random.
const RECONNECT_DELAY_MIN: Duration = Duration::from_millis(250);
/// Longest delay before a reconnect.
const RECONNECT_DELAY_MAX: Duration = Duration::from_secs(5);
/// Delay when another client took our id: a configuration error, and each attempt throws the other one out.
const TAKEN_OVER_DELAY: Duration = Duration::from_secs(30);
/// A connection that lived this long was a good one: the next delay starts from the minimum.
const GOOD_CONNECTION: Duration = Duration::from_secs(10);
/// After UNSUBACK, what the broker had already routed to us arrives within this silence.
const LEAVE_QUIET: Duration = Duration::from_secs(1);
/// With half the window unacknowledged, an insert that takes longer than this sends its rows to the spool, too: a
/// broker whose window is full queues little, and then drops.
const SLOW_AFTER: Duration = Duration::from_millis(250);
/// What goes to the spool before it is due waits this long for company: a file costs two fsyncs and an insert.
const SPOOL_BATCH_AGE: Duration = Duration::from_millis(100);
/// A slow server is logged this often.
const SLOW_LOGGED_EVERY: Duration = Duration::from_secs(60);
/// How long UNSUBACK may take, and how long the broker may take to close after DISCONNECT.
const LEAVE_STEP_MAX: Duration = Duration::from_secs(5);

#[derive(Debug)]
enum Leaving {
    No,
    Unsubscribing { until: Instant },
    Flushing { since: Instant },
}

/// A batch in the inserter's hands.
#[derive(Debug)]
struct Sent {
    batch: u64,
    positions: u64,
    bytes: usize,
    since: Instant,
    /// It was asked to put the batch into the spool, too.
    save_asked: bool,
    saved: bool,
}

impl Sent {
    fn new(batch: &Batch, since: Instant) -> Self {
        let (positions, bytes) = (batch.positions.len() as u64, batch.bytes);
        Self { batch: batch.id, positions, bytes, since, save_asked: false, saved: false }
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Lane {
    settings: Settings,
    decoder: Decoder,
    link: Link,
    leaving: Leaving,
    acks: AckQueue,
    window: Window,
    batcher: Batcher,
    waiting: VecDeque<Batch>,
    waiting_bytes: usize,
    /// Each takes a slot.
    sent: Vec<Sent>,
    /// On its way to the spool.
    spooling: Option<Sent>,
    slow_logged_at: Option<Instant>,
    commands: VecDeque<Command>,
    totals: Totals,
    decoded: Decoded,
    ever_connected: bool,
    failures: u32,
    /// Since when a QoS 1 publish has met a full buffer.
    full_since: Option<Instant>,
    shedding: bool,
    /// The last connection went with messages unacknowledged, or with acknowledgements that may not have left.
    broker_holds: bool,
    disconnect_sent: bool,
    jitter: fastrand::Rng,
}

impl Lane {
    /// A lane that wants to connect at once.
    #[must_use]
    pub fn new(settings: Settings, decoder: Decoder) -> Self {
        Self {
            decoder,
            link: Link::Connecting,
            leaving: Leaving::No,
            acks: AckQueue::default(),
            window: Window::new(settings.receive_maximum),
            batcher: Batcher::new(settings.batch.clone()),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            sent: Vec::with_capacity(settings.inserts_in_flight),
            spooling: None,
            slow_logged_at: None,
            commands: VecDeque::new(),
            totals: Totals::default(),
            decoded: Decoded::default(),
            ever_connected: false,
            failures: 0,
            full_since: None,
            shedding: false,
            broker_holds: false,
            disconnect_sent: false,
            jitter: fastrand::Rng::with_seed(settings.seed),
            settings,
        }
    }

    /// Tells the lane what happened. Then carry out [`command`](Self::command) and
    /// [`ack_due`](Self::ack_due) until both are empty.
    pub fn handle(&mut self, event: Event<'_>, now: Now) {
        match event {
            Event::Published { topic, payload, payload_bytes, packet_id } => {
                let qos = if packet_id.is_some() { Qos::AtLeastOnce } else { Qos::AtMostOnce };
                let message = Message { topic, payload, payload_bytes, qos, received_at: now.wall };
                self.published(message, packet_id, now.instant);
            }
            Event::Settled { batch, fate } => self.settled(batch, fate, now.instant),
            Event::Connected { session_present, receive_maximum } => {
                self.connected(session_present, receive_maximum);
            }
            Event::Subscribed { refusals } => self.subscribed(&refusals, now.instant),
            Event::Unsubscribed => self.unsubscribed(now.instant),
            Event::Disconnected { taken_over } => self.disconnected(taken_over, now.instant),
            Event::DisconnectSent => self.disconnect_sent = true,
            Event::Leave => self.leave(now.instant),
            Event::Tick => {}
        }
        self.window.tick(now.instant);
        self.send_due_batches(now.instant);
        self.spool_what_waits(now.instant);
        self.watch_buffer(now.instant);
        self.advance_link(now.instant);
    }

    /// The next thing to do, if any.
    pub fn command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// The packet id to acknowledge next, if any; offer it to the connection, then say
    /// [`ack_sent`](Self::ack_sent). One that the connection cannot take now stays first.
    #[must_use]
    pub fn ack_due(&self) -> Option<u16> {
        self.acks.due()
    }

    /// The acknowledgement that was due is in the connection's hands.
    pub fn ack_sent(&mut self) {
        self.acks.sent();
        self.totals.acks += 1;
    }

    /// Where the connection stands: the shell keeps one in every state but `Resting` and `Ended`.
    #[must_use]
    pub fn link(&self) -> Link {
        self.link
    }

    /// A QoS 1 publish met a full buffer: the shell leaves the connection unread for now. QoS 0 is shed instead.
    #[must_use]
    pub fn is_holding(&self) -> bool {
        self.full_since.is_some()
    }

    /// When to send [`Event::Tick`], if nothing else happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let batch = self.batcher.deadline().filter(|_| self.has_slot() && self.may_insert());
        let link = match self.link {
            Link::Resting { until } | Link::Closing { until } => Some(until),
            Link::Connecting | Link::Subscribing | Link::Live { .. } | Link::Ended => None,
        };
        let leaving = match self.leaving {
            Leaving::Unsubscribing { until } => Some(until),
            Leaving::No | Leaving::Flushing { .. } => None,
        };
        let hold = self.full_since.filter(|_| self.is_connected()).map(|since| since + HOLD_MAX);
        [batch, self.suspicion_at(), self.spool_at(), link, leaving, hold].into_iter().flatten().min()
    }

    /// How many unacknowledged messages the broker lets us have, as far as is known.
    #[must_use]
    pub fn window(&self) -> usize {
        self.window.messages()
    }

    /// Counts and levels now.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = self.totals.clone();
        totals.in_flight = self.batcher.open().positions.len() as u64
            + self.waiting.iter().map(|batch| batch.positions.len() as u64).sum::<u64>()
            + self.sent.iter().chain(&self.spooling).map(|sent| sent.positions).sum::<u64>();
        totals.unacked = self.acks.unacked() as u64;
        totals.window = self.window() as u64;
        totals.connected = matches!(self.link, Link::Live { .. });
        totals.broker_holds = self.broker_holds || self.acks.unacked() > 0;
        totals
    }

    fn published(&mut self, message: Message<'_>, packet_id: Option<u16>, now: Instant) {
        let flushing = matches!(self.leaving, Leaving::Flushing { .. });
        let qos = message.qos;
        if qos == Qos::AtLeastOnce && (flushing || !self.is_connected()) {
            return; // unacknowledged, so the broker keeps it for whoever comes next
        }
        if let Leaving::Unsubscribing { until } = &mut self.leaving {
            *until = (*until).max(now + LEAVE_QUIET);
        }

        let mut decoded = std::mem::take(&mut self.decoded);
        decoded.clear();
        self.decoder.decode(message, &mut decoded);
        self.totals.messages_received += 1;
        self.totals.received += (decoded.positions.len() + decoded.rejects.len()) as u64;

        if qos == Qos::AtMostOnce && (flushing || self.is_full()) {
            self.totals.shed += (decoded.positions.len() + decoded.rejects.len()) as u64;
            if !std::mem::replace(&mut self.shedding, true) {
                self.log(if flushing { Notice::SheddingWhileLeaving } else { Notice::Shedding });
            }
        } else {
            if let Some(packet_id) = packet_id {
                self.acks.arrived(packet_id);
                self.window.arrived(self.acks.unacked(), now);
            }
            self.take_rows(&mut decoded, qos, now);
            if qos == Qos::AtLeastOnce && self.is_full() && self.full_since.is_none() {
                self.full_since = Some(now);
                self.totals.stalls += 1;
                self.log(Notice::BufferFull);
            }
        }
        self.decoded = decoded;
    }

    /// Moves the message's rows into the open batch. One that fills up on the way is closed, and completes
    /// the messages before this one.
    fn take_rows(&mut self, decoded: &mut Decoded, qos: Qos, now: Instant) {
        self.totals.undated += decoded.undated;
        for (total, count) in self.totals.fields_unknown.iter_mut().zip(decoded.fields_unknown) {
            *total += count;
        }
        let before_this = self.acks.next_arrival() - u64::from(qos == Qos::AtLeastOnce);

        for position in decoded.positions.drain(..) {
            if !self.batcher.fits_position() || (self.has_slot() && self.batcher.is_due(now)) {
                self.close(before_this);
                self.send_due_batches(now);
            }
            self.batcher.push_position(position, now);
        }
        for reject in decoded.rejects.drain(..) {
            self.totals.rejected[reject.reason as usize] += 1;
            if !self.batcher.fits_reject(&reject) {
                self.close(before_this);
                self.send_due_batches(now);
            }
            self.batcher.push_reject(reject, now);
        }
    }

    /// Closes the open batch; it completes the messages below `completes_below`.
    fn close(&mut self, completes_below: u64) {
        let batch = self.batcher.close();
        self.acks.closed(batch.id, completes_below);
        self.waiting_bytes += batch.bytes;
        self.waiting.push_back(batch);
    }

    fn send_due_batches(&mut self, now: Instant) {
        while self.has_slot() && self.may_insert() {
            if self.waiting.is_empty() {
                if !self.open_is_due(now) {
                    if self.suspicion_at().is_none_or(|at| at > now) {
                        return;
                    }
                    self.window.probed(self.acks.unacked(), now);
                }
                self.close(self.acks.next_arrival());
            }
            let Some(batch) = self.waiting.pop_front() else { return };
            self.waiting_bytes -= batch.bytes;
            self.sent.push(Sent::new(&batch, now));
            self.commands.push_back(Command::Insert(batch));
        }
    }

    fn open_is_due(&self, now: Instant) -> bool {
        !self.batcher.open().is_empty()
            && (self.batcher.is_due(now)
                || self.acks.unacked() >= self.window()
                || matches!(self.leaving, Leaving::Flushing { .. }))
    }

    /// When what is not durable goes to the spool, unless an insert ends before.
    fn spool_at(&self) -> Option<Instant> {
        if !self.settings.spool {
            return None;
        }
        let crowded = self.acks.unacked() * 2 >= self.window()
            || self.buffered_bytes() * 2 >= self.settings.buffer_bytes_max;
        let slow_at = self.sent.iter().map(|sent| sent.since + SLOW_AFTER).min().filter(|_| crowded);
        let leaving_at = match self.leaving {
            Leaving::Flushing { since } => Some(since + self.settings.spool_when_leaving_after),
            Leaving::No | Leaving::Unsubscribing { .. } => None,
        };
        let at = [slow_at, leaving_at].into_iter().flatten().min()?;
        let save_at = self.sent.iter().any(|sent| !sent.save_asked).then_some(at);
        let next_at = self.next_to_spool_at().map(|ripe_at| ripe_at.max(at));
        [save_at, next_at].into_iter().flatten().min()
    }

    /// When a batch is there for the spool that has no slot: one that waits, or the open one, once it is worth a file.
    fn next_to_spool_at(&self) -> Option<Instant> {
        if self.spooling.is_some() || self.has_slot() {
            return None;
        }
        let long_ago = self.sent.iter().map(|sent| sent.since).min();
        let enough = self.batcher.open().rows() >= self.settings.batch.rows_max;
        if !self.waiting.is_empty() || enough || matches!(self.leaving, Leaving::Flushing { .. }) {
            return long_ago.filter(|_| self.has_unsent());
        }
        self.batcher.open().opened_at.map(|opened_at| opened_at + SPOOL_BATCH_AGE)
    }

    /// Acknowledgements leave in order, so the batches that are being inserted are saved along with those that
    /// wait behind them.
    fn spool_what_waits(&mut self, now: Instant) {
        if self.spool_at().is_none_or(|at| at > now) {
            return;
        }
        self.tell_of_slowness(now);
        if self.sent.iter().any(|sent| !sent.save_asked) {
            self.sent.iter_mut().for_each(|sent| sent.save_asked = true);
            self.commands.push_back(Command::SaveUnderWay);
        }
        if self.next_to_spool_at().is_none_or(|at| at > now) {
            return;
        }
        if self.waiting.is_empty() {
            self.close(self.acks.next_arrival());
        }
        if let Some(batch) = self.waiting.pop_front() {
            self.waiting_bytes -= batch.bytes;
            self.spooling = Some(Sent::new(&batch, now));
            self.commands.push_back(Command::Spool(batch));
        }
    }

    fn tell_of_slowness(&mut self, now: Instant) {
        let told = self.slow_logged_at.is_some_and(|at| now < at + SLOW_LOGGED_EVERY);
        let oldest = self.sent.iter().map(|sent| sent.since).min();
        if let Some(oldest) = oldest.filter(|_| !told && matches!(self.leaving, Leaving::No)) {
            self.slow_logged_at = Some(now);
            self.log(Notice::Spooling { under_way: now - oldest });
        }
    }

    /// When a silence means that the broker's window is full. While a batch is under way, its acknowledgements
    /// are what the broker may be waiting for.
    fn suspicion_at(&self) -> Option<Instant> {
        let waits_for_us = self.sent.is_empty() && self.may_insert() && self.acks.unacked() > 0;
        if waits_for_us && !self.batcher.open().is_empty() { self.window.suspicion_at() } else { None }
    }

    fn settled(&mut self, batch: u64, fate: Fate, now: Instant) {
        self.acks.settled(batch);
        self.window.acked(now);
        if fate == Fate::Saved {
            let sent = self.sent.iter_mut().chain(&mut self.spooling).find(|sent| sent.batch == batch);
            sent.expect("only what was sent can be saved").saved = true;
            return;
        }
        let sent = match self.sent.iter().position(|sent| sent.batch == batch) {
            Some(index) => Some(self.sent.remove(index)),
            None => self.spooling.take_if(|spooling| spooling.batch == batch),
        };
        let sent = sent.expect("only what was sent can settle, and only once");
        if fate == Fate::Inserted {
            self.totals.inserted += sent.positions;
            self.totals.batches_inserted += 1;
        } else {
            self.totals.spooled += sent.positions;
        }
    }

    fn connected(&mut self, session_present: bool, receive_maximum: Option<u16>) {
        self.acks.new_epoch();
        self.broker_holds = false;
        self.window.connected(receive_maximum);
        let window = self.window();
        self.log(Notice::Connected { session_present, window });
        let wanted = (self.settings.inserts_in_flight + 1) * self.settings.batch.rows_max;
        if window < wanted {
            self.log(Notice::WindowSmall { window, wanted });
        }
        if self.ever_connected {
            self.totals.reconnects += 1;
            self.settle_dead_epoch(session_present);
        }
        self.ever_connected = true;
        self.link = Link::Subscribing;
        self.commands.push_back(Command::Subscribe);
    }

    /// Decides the fate of rows that came on the connection before this one and were not sent yet.
    fn settle_dead_epoch(&mut self, session_present: bool) {
        if !session_present {
            self.totals.sessions_lost += 1;
            self.log(Notice::SessionLost { kept: self.totals().in_flight });
            return;
        }
        let mut positions = self.batcher.abandon_at_least_once();
        for batch in &mut self.waiting {
            positions += batch.abandon_at_least_once();
        }
        self.waiting.retain(|batch| !batch.is_empty());
        self.waiting_bytes = self.waiting.iter().map(|batch| batch.bytes).sum();
        self.totals.abandoned += positions;
        if positions > 0 {
            self.log(Notice::Abandoned { positions });
        }
    }

    fn subscribed(&mut self, refusals: &[String], now: Instant) {
        if refusals.is_empty() {
            if matches!(self.link, Link::Subscribing) {
                self.link = Link::Live { since: now };
            }
            return;
        }
        self.log(Notice::SubscriptionRefused(refusals.join("; ")));
        self.commands.push_back(Command::HangUp);
        self.disconnected(false, now);
    }

    fn disconnected(&mut self, taken_over: bool, now: Instant) {
        let was_good =
            matches!(self.link, Link::Live { since } if now.duration_since(since) >= GOOD_CONNECTION);
        self.failures = if was_good { 0 } else { self.failures.saturating_add(1) };
        self.broker_holds |= self.acks.unacked() > 0 || self.is_closing_unsent();
        self.acks.new_epoch();
        if matches!(self.link, Link::Closing { .. } | Link::Ended) {
            self.link = Link::Ended;
            return;
        }
        let delay = if taken_over {
            self.log(Notice::TakenOver);
            TAKEN_OVER_DELAY
        } else {
            let doubled = RECONNECT_DELAY_MIN.saturating_mul(1 << self.failures.min(10));
            doubled.min(RECONNECT_DELAY_MAX).mul_f64(0.5 + self.jitter.f64() / 2.0)
        };
        self.link = Link::Resting { until: now + delay };
        if matches!(self.leaving, Leaving::Unsubscribing { .. }) {
            self.leaving = Leaving::Flushing { since: now };
        }
    }

    fn leave(&mut self, now: Instant) {
        if !matches!(self.leaving, Leaving::No) {
            return;
        }
        if self.settings.leave && matches!(self.link, Link::Live { .. }) {
            self.leaving = Leaving::Unsubscribing { until: now + LEAVE_STEP_MAX };
            self.commands.push_back(Command::Unsubscribe);
        } else {
            self.leaving = Leaving::Flushing { since: now };
        }
    }

    fn unsubscribed(&mut self, now: Instant) {
        if let Leaving::Unsubscribing { until } = &mut self.leaving {
            *until = now + LEAVE_QUIET;
        }
    }

    /// Ends the hold when there is room, and closes the connection if there is none for long.
    fn watch_buffer(&mut self, now: Instant) {
        if !self.is_full() {
            self.full_since = None;
            self.shedding &= matches!(self.leaving, Leaving::Flushing { .. });
            return;
        }
        if self.is_connected() && self.full_since.is_some_and(|since| now >= since + HOLD_MAX) {
            self.log(Notice::BufferStayedFull);
            self.commands.push_back(Command::HangUp);
            self.disconnected(false, now);
        }
    }

    /// Steps that depend on time, and on everything being settled.
    fn advance_link(&mut self, now: Instant) {
        if let Leaving::Unsubscribing { until } = self.leaving
            && until <= now
        {
            self.leaving = Leaving::Flushing { since: now };
            self.send_due_batches(now);
        }
        if !self.has_unsent() {
            self.acks.nothing_open();
        }
        match self.link {
            Link::Resting { .. } | Link::Connecting if self.is_flushed() => self.link = Link::Ended,
            Link::Resting { until } if until <= now => {
                if self.is_full() {
                    self.link = Link::Resting { until: now + RECONNECT_DELAY_MIN };
                } else {
                    self.link = Link::Connecting;
                }
            }
            Link::Subscribing | Link::Live { .. } if self.is_flushed() && self.acks.unacked() == 0 => {
                self.commands.push_back(Command::Disconnect);
                self.link = Link::Closing { until: now + LEAVE_STEP_MAX };
            }
            Link::Closing { until } if until <= now => {
                self.broker_holds |= self.is_closing_unsent();
                self.link = Link::Ended;
            }
            Link::Resting { .. }
            | Link::Connecting
            | Link::Subscribing
            | Link::Live { .. }
            | Link::Closing { .. }
            | Link::Ended => {}
        }
    }

    /// The last acknowledgements may still be on our side.
    fn is_closing_unsent(&self) -> bool {
        matches!(self.link, Link::Closing { .. }) && !self.disconnect_sent
    }

    fn is_flushed(&self) -> bool {
        matches!(self.leaving, Leaving::Flushing { .. })
            && !self.has_unsent()
            && self.sent.iter().chain(&self.spooling).all(|sent| sent.saved)
    }

    /// Rows of a dead connection wait for the next CONNACK, which says whether the broker sends them again;
    /// unless there will be none, or none before there is room.
    fn may_insert(&self) -> bool {
        self.is_connected() || matches!(self.leaving, Leaving::Flushing { .. }) || self.is_full()
    }

    /// Rows that are nobody's but ours.
    fn has_unsent(&self) -> bool {
        !self.batcher.open().is_empty() || !self.waiting.is_empty()
    }

    fn is_connected(&self) -> bool {
        matches!(self.link, Link::Subscribing | Link::Live { .. } | Link::Closing { .. })
    }

    fn has_slot(&self) -> bool {
        self.sent.len() < self.settings.inserts_in_flight
    }

    fn is_full(&self) -> bool {
        self.buffered_bytes() >= self.settings.buffer_bytes_max
    }

    /// What `buffer_bytes_max` bounds: closed batches without a slot.
    fn buffered_bytes(&self) -> usize {
        self.waiting_bytes + self.spooling.as_ref().map_or(0, |spooling| spooling.bytes)
    }

    fn log(&mut self, notice: Notice) {
        self.commands.push_back(Command::Log(notice));
    }
}
