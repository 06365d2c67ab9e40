//! Collects rows into the open batch.
//!
//! Guarantee: rows leave in arrival order, each once. One exception limits floods: if too many
//! rejects, or too many bytes of rejects, arrive in a second, a further reject only raises the
//! count of an earlier row with the same reason, if the open batch has one. The open batch is due
//! by rows or by age. No row is added that would make it larger than `bytes_max`.
//!
//! The caller passes `now`. The consumer decides whether a due batch may close, because that
//! depends on the free insert slots.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::erased::Erased;
use milepost_decode::position::Position;
use milepost_decode::reject::{DETAIL_CHARS_MAX, PAYLOAD_BYTES_MAX, Reject, TOPIC_BYTES_MAX};

/// Upper bound of the bytes that a position without attributes takes in memory: the row itself, and
/// the encoded row during the insert.
pub const POSITION_BYTES_MAX: usize = size_of::<Position>() + 128;
/// Upper bound of the bytes that a reject takes, not counting its strings and its payload, whose
/// sizes vary. They are added to this constant, and count twice: in the row, and in the encoded
/// row.
const REJECT_FIXED_BYTES: usize = size_of::<Reject>() + 64;
/// Smallest allowed `bytes_max`: every single row fits into a batch of this size. The assertion
/// below checks this for the largest reject. An invalid byte of a topic is stored as a character of
/// 3 bytes. A character of a detail has at most 4 bytes, and a driver's id has at most 64 bytes.
pub const BYTES_MAX_MIN: usize = 256 * 1024;
const _: () = assert!(
    REJECT_FIXED_BYTES + 2 * (PAYLOAD_BYTES_MAX + 3 * TOPIC_BYTES_MAX + 4 * DETAIL_CHARS_MAX + 64)
        <= BYTES_MAX_MIN
);

/// Flood limit: above this many rejects per second, one row stands for several rejects with the
/// same reason.
pub const REJECT_ROWS_PER_SECOND_MAX: u32 = 100;
/// Flood limit in bytes of rejects per second, counted as in [`Batch::bytes`].
pub const REJECT_BYTES_PER_SECOND_MAX: usize = 1024 * 1024;

/// `[batch]` in the configuration.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Number of rows at which a batch is due.
    pub rows_max: usize,
    /// Age at which a batch is due, counted from its first row, unless [`Batcher::set_age_max`] has
    /// set a greater age.
    pub age_max: Duration,
    /// Maximum size of a batch, as [`Batch::bytes`] counts it; at least [`BYTES_MAX_MIN`].
    pub bytes_max: usize,
}

/// Rows that go to ClickHouse together and become durable together.
#[derive(Debug, Default)]
pub struct Batch {
    /// Number of the batch, unique in the process and ascending.
    pub id: u64,
    /// Positions in arrival order.
    pub positions: Vec<Position>,
    /// Rejects in arrival order.
    pub rejects: Vec<Reject>,
    /// Upper bound of the memory that the rows take, in bytes.
    pub bytes: usize,
    /// Arrival time of the first row; `None` while the batch is empty.
    pub opened_at: Option<Instant>,
    /// At least one of the batch's messages is QoS 1, so the broker waits for a PUBACK.
    pub at_least_once: bool,
    /// The list of erased drivers when the batch got its first row: the oldest list that its rows
    /// were checked against. A later list may name a driver of these rows, so each insert checks
    /// the rows again.
    pub erased: Arc<Erased>,
}

impl Batch {
    #[must_use]
    pub fn rows(&self) -> usize {
        self.positions.len() + self.rejects.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows() == 0
    }
}

/// Builds the open batch. There is one open batch at a time.
#[derive(Debug)]
pub struct Batcher {
    limits: Limits,
    /// Maximum size of the open batch; at most `limits.bytes_max`.
    bytes_max: usize,
    /// Age at which the open batch is due; at least `limits.age_max`.
    age_max: Duration,
    open: Batch,
    flood: FloodLimit,
}

impl Batcher {
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let (bytes_max, age_max) = (limits.bytes_max, limits.age_max);
        Self { limits, bytes_max, age_max, open: Batch::default(), flood: FloodLimit::default() }
    }

    #[must_use]
    pub fn open(&self) -> &Batch {
        &self.open
    }

    /// Bounds the size of the open batch and of later ones: to `bytes`, but not below
    /// [`BYTES_MAX_MIN`], nor above [`Limits::bytes_max`]. `None`: only the latter applies.
    pub fn set_bytes_max(&mut self, bytes: Option<usize>) {
        let bytes = bytes.map_or(usize::MAX, |bytes| bytes.max(BYTES_MAX_MIN));
        self.bytes_max = self.limits.bytes_max.min(bytes);
    }

    /// Sets the age at which the open batch and later ones are due: `age`, but at least
    /// [`Limits::age_max`].
    pub fn set_age_max(&mut self, age: Duration) {
        self.age_max = age.max(self.limits.age_max);
    }

    /// Returns the age at which the open batch is due.
    #[must_use]
    pub fn age_max(&self) -> Duration {
        self.age_max
    }

    /// Returns whether this position still fits under `bytes_max`.
    #[must_use]
    pub fn fits_position(&self, position: &Position) -> bool {
        self.open.bytes + bytes_of_position(position) <= self.bytes_max
    }

    /// Returns whether this reject still fits under `bytes_max`.
    #[must_use]
    pub fn fits_reject(&self, reject: &Reject) -> bool {
        self.open.bytes + bytes_of_reject(reject) <= self.bytes_max
    }

    /// Adds a position that [fits](Self::fits_position). `at_least_once`: the position's message is
    /// QoS 1, so the broker waits for its PUBACK.
    pub fn push_position(&mut self, position: Position, at_least_once: bool, now: Instant) {
        self.open.at_least_once |= at_least_once;
        let bytes = bytes_of_position(&position);
        self.open.positions.push(position);
        self.grow(bytes, now);
    }

    /// Moves all positions of a message into the batch at once, which is the fast path for most
    /// messages. Moves none if they would exceed `bytes_max` or `rows_max`, or if the batch is due
    /// by age.
    #[expect(
        clippy::extend_with_drain,
        reason = "most messages have one position, and append would call memcpy, which is slower"
    )]
    pub fn push_positions(
        &mut self,
        positions: &mut Vec<Position>,
        at_least_once: bool,
        now: Instant,
    ) {
        let bytes: usize = positions.iter().map(bytes_of_position).sum();
        let fits = self.open.bytes + bytes <= self.bytes_max
            && self.open.rows() + positions.len() <= self.limits.rows_max
            && self.deadline().is_none_or(|deadline| now < deadline);
        if fits && !positions.is_empty() {
            self.open.at_least_once |= at_least_once;
            self.open.positions.extend(positions.drain(..));
            self.grow(bytes, now);
        }
    }

    /// Adds a reject that [fits](Self::fits_reject). The reject becomes a row. Above the flood
    /// limit, it instead raises the count of the batch's latest row with the same reason, if there
    /// is one.
    pub fn push_reject(&mut self, reject: Reject, at_least_once: bool, now: Instant) {
        self.open.at_least_once |= at_least_once;
        let bytes = bytes_of_reject(&reject);
        if self.flood.count_reject(bytes, now)
            && let Some(row) =
                self.open.rejects.iter_mut().rev().find(|row| row.reason == reject.reason)
        {
            row.count += reject.count;
            return;
        }
        self.open.rejects.push(reject);
        self.grow(bytes, now);
    }

    /// Adds to the size of the open batch. The batch's age counts from its first row.
    fn grow(&mut self, bytes: usize, now: Instant) {
        self.open.bytes += bytes;
        self.open.opened_at.get_or_insert(now);
        assert!(
            self.open.bytes <= self.bytes_max,
            "a batch exceeds bytes_max: the caller did not check that the row fits"
        );
    }

    /// Returns whether the batch has `rows_max` rows, or has reached its age limit.
    #[must_use]
    pub fn is_due(&self, now: Instant) -> bool {
        self.is_full() || self.deadline().is_some_and(|deadline| deadline <= now)
    }

    /// Returns whether the batch has `rows_max` rows.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.open.rows() >= self.limits.rows_max
    }

    /// Returns when the open batch becomes due by age; `None` while it is empty.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.open.opened_at.map(|opened_at| opened_at + self.age_max)
    }

    /// Closes the open batch and starts the next one, with the next id.
    pub fn close(&mut self) -> Batch {
        let next = Batch { id: self.open.id + 1, ..Batch::default() };
        std::mem::replace(&mut self.open, next)
    }
}

/// Returns an upper bound of the memory that a position takes, in bytes. Attributes count twice: in
/// the row, and in the encoded row.
fn bytes_of_position(position: &Position) -> usize {
    POSITION_BYTES_MAX + 2 * position.attributes.memory_bytes()
}

/// Returns an upper bound of the memory that a reject takes, in bytes.
fn bytes_of_reject(reject: &Reject) -> usize {
    REJECT_FIXED_BYTES
        + 2 * (reject.payload.len()
            + reject.topic.len()
            + reject.driver_id.len()
            + reject.detail.len())
}

/// Counts the rejects of the current second, and their bytes.
#[derive(Debug, Default)]
struct FloodLimit {
    second_began_at: Option<Instant>,
    rejects: u32,
    bytes: usize,
}

impl FloodLimit {
    /// Counts a reject of this size. Returns whether the limit is exceeded.
    fn count_reject(&mut self, bytes: usize, now: Instant) -> bool {
        let began_at = *self.second_began_at.get_or_insert(now);
        if now.duration_since(began_at) >= Duration::from_secs(1) {
            *self = Self { second_began_at: Some(now), ..Self::default() };
        }
        self.rejects = self.rejects.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
        self.rejects > REJECT_ROWS_PER_SECOND_MAX || self.bytes > REJECT_BYTES_PER_SECOND_MAX
    }
}
