//! The intake: decodes messages into batches, with one open batch and one backlog for all sessions.
//!
//! A message is *complete* when all its rows are durable. As batches become durable, the intake
//! returns for each session the arrival number below which every message is complete.
//!
//! Guarantee:
//!
//! - Rows leave in the order of arrival. Every row that was taken leaves, even if its connection
//!   ends first.
//! - A message is complete only when the batch with its last row is durable, and every earlier
//!   batch is durable too. A message without rows is complete together with the open batch. If the
//!   open batch is empty, the message is complete together with the last closed batch, or at once
//!   if no closed batch is outstanding.
//! - The memory of closed batches that wait is at most `buffer_bytes_max`, plus one batch, plus one
//!   message. A message takes at most 33 times the bytes of its packet, or 33 KB if that is more.
//!
//! The intake reads no clock: callers pass `now`. It handles no packet ids, sockets or servers.

mod ages;
mod unread;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use self::ages::Ages;
use self::unread::UnreadFields;
pub use self::unread::{UnreadField, UnreadNotice};
use crate::batch::{self, Batch, Batcher};
use crate::erased::Erased;
use milepost_decode::Message;
use milepost_decode::position::{Position, Timestamp};
use milepost_decode::reject::{Reason, Reject};
use milepost_decode::{Decoded, Decoder, Ignored, Omissions};

/// Largest difference between the time of a fix and this host's clock at which the fix counts as
/// fresh, in milliseconds.
const FRESH_MS: u64 = 300_000;

/// The ages of a message's fixes by this host's clock.
#[derive(Debug, Clone, Copy)]
pub struct AgeCheck {
    /// Every fix has a time, and at least one of these times is within five minutes of this host's
    /// clock.
    pub has_fresh: bool,
    /// At least one fix would be rejected as too old or too new.
    pub has_out_of_range: bool,
    /// At least one fix has no time, and would get this host's time.
    pub has_undated: bool,
}

/// A session of this process; its client id ends in this number.
pub type SessionIndex = usize;

/// The time, as the shell read it: the core has no clock.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Monotonic time, for deadlines.
    pub instant: Instant,
    /// Wall-clock time, for rows.
    pub wall: Timestamp,
}

/// Configuration of the intake.
#[derive(Debug, Clone)]
pub struct IntakeConfig {
    pub batch: batch::Limits,
    /// Upper bound for the bytes of closed batches in the backlog.
    pub buffer_bytes_max: usize,
}

/// Declares messages of a session complete: all messages with a lower arrival number than `below`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    pub session: SessionIndex,
    /// The lowest arrival number that is not declared complete.
    pub below: u64,
}

/// The condition under which the open batch closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseWhen {
    /// The batch is due, by rows or by age.
    Due,
    /// The batch has at least one row. The consumer uses this condition if the broker may send
    /// nothing more before an acknowledgement, if the process is leaving, or if the batch is old
    /// enough for the spool.
    NotEmpty,
}

/// Counters since the intake began, and gauges; in positions unless stated otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IntakeTotals {
    /// Points, valid or not. A message that was rejected as a whole counts as one point.
    pub received: u64,
    /// Points and messages rejected, by [`Reason`].
    pub rejected: [u64; Reason::ALL.len()],
    /// Valid messages, or parts of a message, without a fix, by [`Ignored`].
    pub ignored: [u64; Ignored::ALL.len()],
    /// Points of QoS 0 messages that were dropped because the buffer was full, the clock was not
    /// trusted, or the process was leaving.
    pub shed: u64,
    /// Points of erased drivers.
    pub erased: u64,
    pub omissions: Omissions,
    pub ages: Ages,
    /// Messages on topics that match no configured filter.
    pub foreign_messages: u64,
    /// Fields that no mapping reads, counted in sampled messages.
    pub unread: Arc<Vec<UnreadField>>,
    /// Positions in the open batch and in the backlog.
    pub in_flight: u64,
}

/// A closed batch that is not durable, or that waits for an earlier batch.
#[derive(Debug)]
struct Closed {
    batch: u64,
    /// Messages that are complete once this batch and all earlier batches are durable.
    completes: Vec<Completion>,
    is_durable: bool,
}

impl Closed {
    /// Adds a completion. Keeps only the latest per session, so that messages without rows cannot
    /// pile up while this batch waits.
    fn complete(&mut self, completion: Completion) {
        match self.completes.iter_mut().find(|earlier| earlier.session == completion.session) {
            Some(earlier) => earlier.below = completion.below,
            None => self.completes.push(completion),
        }
    }
}

/// The intake; see the module's documentation.
#[derive(Debug)]
pub struct Intake {
    settings: IntakeConfig,
    decoder: Decoder,
    erased: Arc<Erased>,
    /// The list of erased drivers when the open batch got its first row.
    erased_at_open: Arc<Erased>,
    batcher: Batcher,
    /// Closed batches that delivery has not accepted yet.
    backlog: VecDeque<Batch>,
    backlog_bytes: usize,
    /// Number of batches that delivery still accepts: a cached result of `Delivery::demand`, which
    /// iterates over all batches, and so is too slow to call for each message.
    /// `Consumer::move_batches` sets this number, and [`next_batch`](Self::next_batch) decrements
    /// it.
    demand: usize,
    /// For each session, the arrival number below which the open batch completes all messages; 0 if
    /// the open batch completes no message of the session.
    arrived_below: Vec<u64>,
    /// Closed batches that are not complete, in the order in which they closed.
    closed: VecDeque<Closed>,
    completions: VecDeque<Completion>,
    decoded: Decoded,
    unread: UnreadFields,
    totals: IntakeTotals,
}

impl Intake {
    #[must_use]
    pub fn new(settings: IntakeConfig, decoder: Decoder) -> Self {
        Self {
            batcher: Batcher::new(settings.batch.clone()),
            settings,
            unread: UnreadFields::new(&decoder),
            decoder,
            erased: Arc::default(),
            erased_at_open: Arc::default(),
            backlog: VecDeque::new(),
            backlog_bytes: 0,
            demand: 0,
            arrived_below: Vec::new(),
            closed: VecDeque::new(),
            completions: VecDeque::new(),
            decoded: Decoded::default(),
            totals: IntakeTotals::default(),
        }
    }

    /// Sets how many batches delivery accepts now. While the backlog has fewer batches than this
    /// number, a due batch closes before the next row is added.
    pub fn set_demand(&mut self, batches: usize) {
        self.demand = batches;
    }

    /// Sets the list of erased drivers; messages that arrive from now on are checked against it.
    pub fn set_erased(&mut self, erased: Arc<Erased>) {
        self.erased = erased;
        if self.batcher.open().is_empty() {
            self.erased_at_open = Arc::clone(&self.erased);
        }
    }

    /// Decodes a message and adds its rows to the open batch. `arrival`: the message's session and
    /// arrival number; `None` at QoS 0.
    pub fn push(&mut self, message: Message<'_>, arrival: Option<(SessionIndex, u64)>, now: Now) {
        self.decode(message, now.wall);
        let now = now.instant;
        let at_least_once = arrival.is_some();
        self.totals.omissions.add(self.decoded.omissions);
        self.totals.ages.observe(&self.decoded);
        // The usual case: all rows of the message fit into the open batch.
        self.batcher.push_positions(&mut self.decoded.positions, at_least_once, now);
        // Otherwise push row by row, and close batches as they fill. `mem::take` moves the vector
        // out, so that `self` can be borrowed mutably inside the loop. The vector is put back
        // afterwards, to reuse its allocation.
        let mut positions = std::mem::take(&mut self.decoded.positions);
        let mut pending = positions.drain(..);
        while let Some(next) = pending.as_slice().first() {
            if !self.batcher.fits_position(next) || (self.has_demand() && self.batcher.is_due(now))
            {
                self.close();
            }
            pending
                .next()
                .into_iter()
                .for_each(|position| self.batcher.push_position(position, at_least_once, now));
        }
        drop(pending);
        self.decoded.positions = positions;
        for reject in std::mem::take(&mut self.decoded.rejects) {
            self.totals.rejected[reject.reason as usize] += 1;
            if !self.batcher.fits_reject(&reject) || (self.has_demand() && self.batcher.is_due(now))
            {
                self.close();
            }
            self.batcher.push_reject(reject, at_least_once, now);
        }
        for kind in self.decoded.ignored.drain(..) {
            self.totals.ignored[kind as usize] += 1;
        }
        if let Some((session, arrival)) = arrival {
            self.record_arrival(session, arrival + 1);
        }
    }

    /// Decodes a message without taking it, and checks the ages of its fixes against this host's
    /// clock.
    pub fn check_ages(&mut self, message: Message<'_>, received_at: Timestamp) -> AgeCheck {
        self.decoded.clear();
        self.decoder.decode(message, received_at, &mut self.decoded);
        let Decoded { positions, rejects, omissions, .. } = &self.decoded;
        let is_out_of_range =
            |reject: &Reject| matches!(reject.reason, Reason::TooOld | Reason::TooNew);
        let is_fresh =
            |fix: &Position| fix.ts.unix_ms().abs_diff(received_at.unix_ms()) <= FRESH_MS;
        AgeCheck {
            has_fresh: omissions.undated == 0 && positions.iter().any(is_fresh),
            has_out_of_range: rejects.iter().any(is_out_of_range),
            has_undated: omissions.undated > 0,
        }
    }

    /// Returns the next log line about fields that are not read.
    pub fn poll_notice(&mut self) -> Option<UnreadNotice> {
        self.unread.notices.pop()
    }

    /// Counts the points of a QoS 0 message that is dropped.
    pub fn shed(&mut self, message: Message<'_>, received_at: Timestamp) {
        self.decode(message, received_at);
        self.totals.shed += self.decoded.points();
    }

    /// Decodes a message into `self.decoded`, counts it, and drops the points of erased drivers.
    fn decode(&mut self, message: Message<'_>, received_at: Timestamp) {
        self.decoded.clear();
        self.decoder.decode(message, received_at, &mut self.decoded);
        self.unread.record(message, received_at, &self.decoded);
        self.totals.received += self.decoded.points();
        self.totals.foreign_messages += u64::from(self.decoded.is_foreign);
        if !self.erased.is_empty() {
            let points = self.decoded.points();
            self.decoded.positions.retain(|position| !self.erased.contains(&position.driver_id));
            self.decoded
                .rejects
                .retain(|reject| !self.erased.contains_bytes(reject.driver_id.as_bytes()));
            self.totals.erased += points - self.decoded.points();
        }
    }

    /// Records which batch completes the messages of this session below this arrival number: the
    /// open batch, if it has rows.
    fn record_arrival(&mut self, session: SessionIndex, below: u64) {
        if self.batcher.open().is_empty() {
            // Neither this message nor an earlier one has a row in the open batch. So the message
            // is complete with the last closed batch, or at once if no closed batch is outstanding.
            let completion = Completion { session, below };
            match self.closed.back_mut() {
                Some(last) => last.complete(completion),
                None => self.completions.push_back(completion),
            }
            return;
        }
        if self.arrived_below.len() <= session {
            self.arrived_below.resize(session + 1, 0);
        }
        self.arrived_below[session] = below;
    }

    /// Returns whether delivery accepts more batches than the backlog has.
    fn has_demand(&self) -> bool {
        self.backlog.len() < self.demand
    }

    /// Closes the open batch and queues it. The batch completes every message that
    /// [`record_arrival`](Self::record_arrival) has recorded for it.
    fn close(&mut self) {
        let mut batch = self.batcher.close();
        batch.erased = std::mem::replace(&mut self.erased_at_open, Arc::clone(&self.erased));
        let arrived_below = self.arrived_below.iter_mut().map(std::mem::take).enumerate();
        let completes = arrived_below
            .filter(|(_, below)| *below > 0)
            .map(|(session, below)| Completion { session, below });
        let completes = completes.collect();
        self.closed.push_back(Closed { batch: batch.id, completes, is_durable: false });
        self.backlog_bytes += batch.bytes;
        self.backlog.push_back(batch);
    }

    /// Returns the oldest batch of the backlog. If the backlog is empty, closes the open batch if
    /// `when` allows it, and returns that batch. Otherwise returns `None`.
    pub fn next_batch(&mut self, when: CloseWhen, now: Instant) -> Option<Batch> {
        let may_close = match when {
            CloseWhen::Due => self.batcher.is_due(now),
            CloseWhen::NotEmpty => !self.batcher.open().is_empty(),
        };
        if self.backlog.is_empty() && may_close {
            self.close();
        }
        let batch = self.backlog.pop_front()?;
        self.backlog_bytes -= batch.bytes;
        self.demand = self.demand.saturating_sub(1);
        Some(batch)
    }

    /// Returns whether delivery accepts a batch, and a batch is closed or due.
    pub fn is_due(&self, now: Instant) -> bool {
        self.demand > 0 && (!self.backlog.is_empty() || self.batcher.is_due(now))
    }

    /// Returns whether messages of this session are complete only once the open batch is durable.
    #[must_use]
    pub fn open_batch_completes(&self, session: SessionIndex) -> bool {
        self.arrived_below.get(session).is_some_and(|below| *below > 0)
    }

    /// Records that a batch is durable. Batches may become durable in any order, but messages
    /// become complete in order: a batch completes its messages only after all batches before it.
    pub fn mark_durable(&mut self, batch: u64) {
        if let Some(closed) = self.closed.iter_mut().find(|closed| closed.batch == batch) {
            closed.is_durable = true;
        }
        while self.closed.front().is_some_and(|oldest| oldest.is_durable) {
            self.completions
                .extend(self.closed.pop_front().into_iter().flat_map(|oldest| oldest.completes));
        }
    }

    /// Returns the next completion for a session.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// Sets the age at which a batch is due: `age`, but at least the configured `age_max`.
    pub fn set_batch_age_max(&mut self, age: Duration) {
        self.batcher.set_age_max(age);
    }

    /// Returns the age at which the open batch is due.
    #[must_use]
    pub fn batch_age_max(&self) -> Duration {
        self.batcher.age_max()
    }

    /// Bounds the size of batches, in bytes. `None`: only the configured size applies.
    pub fn set_batch_bytes_max(&mut self, bytes: Option<usize>) {
        self.batcher.set_bytes_max(bytes);
    }

    #[must_use]
    pub fn open(&self) -> &Batch {
        self.batcher.open()
    }

    /// Returns when the open batch becomes due by age; `None` while it is empty.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.batcher.deadline()
    }

    /// Returns whether no row waits in the open batch or in the backlog.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.backlog.is_empty() && self.batcher.open().is_empty()
    }

    /// Returns the free bytes of the buffer. The open batch does not count.
    #[must_use]
    pub fn room_bytes(&self) -> usize {
        self.settings.buffer_bytes_max.saturating_sub(self.backlog_bytes)
    }

    #[must_use]
    pub fn totals(&self) -> IntakeTotals {
        let waiting: usize = self.backlog.iter().map(|batch| batch.positions.len()).sum();
        IntakeTotals {
            in_flight: (waiting + self.batcher.open().positions.len()) as u64,
            unread: self.unread.counts(),
            ..self.totals.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use milepost_decode::formats::{Format, shipped};
    use milepost_decode::{Driver, Field, Keep, Limits, Source, Template};

    const AGE_MAX: Duration = Duration::from_secs(1);

    /// A source with this topic filter; its `+` is the driver's id.
    fn source(topic: &str, format: Format, keep: Keep) -> Source {
        Source::new(topic, Driver::Topic(Template::first()), format, keep)
    }

    fn intake() -> Intake {
        let owntracks = Format::Mapped(Arc::new(shipped("owntracks", None).unwrap()));
        let sources = [
            source("drivers/+/gps", Format::Milepost, Keep::All),
            source("owntracks/+", owntracks, Keep::Nothing),
        ];
        let batch =
            batch::Limits { rows_max: 2, age_max: AGE_MAX, bytes_max: batch::BYTES_MAX_MIN };
        let decoder = Decoder::new(&sources, Limits::default());
        Intake::new(IntakeConfig { batch, buffer_bytes_max: 1 << 20 }, decoder)
    }

    /// Takes a message at QoS 0.
    fn take(intake: &mut Intake, topic: &str, payload: &str, instant: Instant) {
        let now = Now { instant, wall: Timestamp::from_unix_ms(1_760_000_000_000) };
        intake.push(Message::new(topic.as_bytes(), payload.as_bytes()), None, now);
    }

    #[test]
    fn due_batch_closes_before_the_next_row_while_delivery_accepts_it() {
        let (fix, invalid) = (r#"{"lat":1,"lng":2}"#, "broken");
        let began = Instant::now();
        for second in [fix, invalid] {
            for (first, age) in [
                (fix, AGE_MAX),
                (invalid, AGE_MAX),
                (fix, 2 * AGE_MAX),
                (invalid, 2 * AGE_MAX),
                (fix, Duration::ZERO),
                (invalid, Duration::ZERO),
            ] {
                let instant = began + age;
                for demand in 0..2 {
                    let mut intake = intake();
                    intake.set_demand(demand);
                    take(&mut intake, "drivers/a/gps", first, began);
                    take(&mut intake, "drivers/b/gps", second, instant);
                    let is_closed = demand > 0 && instant > began;
                    assert_eq!(
                        intake.open().rows(),
                        if is_closed { 1 } else { 2 },
                        "{first}, then {second}, demand {demand}"
                    );
                    assert_eq!(
                        intake.next_batch(CloseWhen::NotEmpty, instant).map(|batch| batch.rows()),
                        Some(if is_closed { 1 } else { 2 })
                    );
                }
            }
        }
    }

    #[test]
    fn large_message_fills_several_batches() {
        let (mut intake, now) = (intake(), Instant::now());
        intake.set_demand(9);
        let point = format!(r#"{{"lat":1,"lng":2,"acc":-1,"{}":1}}"#, "x".repeat(129));
        (0..2).for_each(|_| {
            take(&mut intake, "drivers/a/gps", &format!("[{point},{point},{point}]"), now)
        });
        let mut omissions = Omissions { undated: 6, attributes_cut: 6, ..Omissions::default() };
        omissions.fields[Field::Acc as usize] = 6;
        assert_eq!(intake.totals().omissions, omissions);
        let rows = || intake.next_batch(CloseWhen::NotEmpty, now).map(|batch| batch.rows());
        assert_eq!(std::iter::from_fn(rows).collect::<Vec<_>>(), [2, 2, 2]);
    }

    /// Otherwise a driver could be reported as erased while rows of that driver still go to a spool
    /// file.
    #[test]
    fn batch_keeps_the_erased_list_of_its_first_row() {
        let (mut intake, now) = (intake(), Instant::now());
        let lists = ["a", "b"].map(|driver| Arc::new(Erased::new([driver.to_owned()])));
        intake.set_erased(Arc::clone(&lists[0]));
        take(&mut intake, "drivers/b/gps", r#"{"lat":1,"lng":2}"#, now);
        intake.set_erased(Arc::clone(&lists[1]));
        intake.set_demand(2);
        let batch = intake.next_batch(CloseWhen::NotEmpty, now).unwrap();
        assert!(Arc::ptr_eq(&batch.erased, &lists[0]));
        take(&mut intake, "drivers/c/gps", r#"{"lat":1,"lng":2}"#, now);
        let batch = intake.next_batch(CloseWhen::NotEmpty, now).unwrap();
        assert!(Arc::ptr_eq(&batch.erased, &lists[1]));
    }

    /// docs/operations.md states the same factor.
    #[test]
    fn message_takes_at_most_33_times_its_bytes_or_33_kb() {
        let sources = [source("drivers/+/gps", Format::Milepost, Keep::All)];
        let names = (b'!'..=b'~').filter(|name| !matches!(name, b'"' | b'\\'));
        let attributes: String =
            names.take(64).map(|name| format!(r#","{}":1"#, char::from(name))).collect();
        for point in [
            format!(r#"{{"lat":1,"lng":2{attributes}}}"#),
            r#"{"lat":1,"lng":2}"#.to_owned(),
            "{}".to_owned(),
        ] {
            for points in [1, 100, ((1 << 20) / (point.len() + 1)).min(10_000)] {
                let payload = format!("[{}]", vec![point.as_str(); points].join(","));
                let batch = batch::Limits { rows_max: 5_000, age_max: AGE_MAX, bytes_max: 8 << 20 };
                let decoder = Decoder::new(&sources, Limits::default());
                let mut intake =
                    Intake::new(IntakeConfig { batch, buffer_bytes_max: 1 << 20 }, decoder);
                take(&mut intake, "drivers/a/gps", &payload, Instant::now());
                let bytes = intake.backlog_bytes + intake.open().bytes;
                assert!(
                    bytes <= 33 * payload.len().max(1_000),
                    "{bytes} bytes for a payload of {} bytes, points {point}",
                    payload.len()
                );
            }
        }
    }

    #[test]
    fn rowless_messages_complete_with_the_batch_before_them() {
        let (mut intake, instant) = (intake(), Instant::now());
        let now = Now { instant, wall: Timestamp::from_unix_ms(1_760_000_000_000) };
        intake.set_demand(1);
        intake.push(Message::new(b"drivers/a/gps", br#"{"lat":1,"lng":2}"#), Some((1, 0)), now);
        assert_eq!((intake.deadline(), intake.is_empty()), (Some(instant + AGE_MAX), false));
        let batch = intake.next_batch(CloseWhen::NotEmpty, instant).unwrap();
        assert_eq!(
            (batch.at_least_once, intake.is_empty(), intake.room_bytes()),
            (true, true, 1 << 20)
        );
        for arrival in 1..4 {
            intake.push(
                Message::new(b"owntracks/b", br#"{"_type":"lwt","tst":1}"#),
                Some((1, arrival)),
                now,
            );
        }
        assert_eq!((intake.poll_completion(), intake.deadline()), (None, None));
        intake.mark_durable(batch.id);
        let completions: Vec<_> = std::iter::from_fn(|| intake.poll_completion()).collect();
        assert_eq!(
            completions,
            [Completion { session: 1, below: 4 }],
            "no other session has a completion"
        );
    }

    #[test]
    fn ignored_and_erased_points_are_counted_and_dropped() {
        let (mut intake, now) = (intake(), Instant::now());
        intake.set_erased(Arc::new(Erased::new(["a".to_owned()])));
        for _ in 0..2 {
            take(&mut intake, "drivers/a/gps", r#"[{"lat":1,"lng":2},{"lat":91,"lng":2}]"#, now);
            take(&mut intake, "owntracks/b", r#"{"_type":"lwt","tst":1}"#, now);
        }
        let totals = intake.totals();
        assert_eq!(
            (totals.erased, totals.ignored[Ignored::Lwt as usize], totals.in_flight),
            (4, 2, 0)
        );
        assert_eq!(totals.rejected.iter().sum::<u64>(), 0);
        assert!(intake.is_empty());
        (0..2).for_each(|_| take(&mut intake, "other", "{}", now));
        assert_eq!(intake.totals().foreign_messages, 2);
    }
}
