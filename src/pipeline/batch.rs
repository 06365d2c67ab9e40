//! Collects rows until they are worth an insert.
//!
//! Guarantee: rows come out in the order they went in, none twice, none missing; an open batch knows when it is due, by
//! rows or by age, and never holds more than `bytes_max`. It takes `now`, never asks for it, and does not know whether
//! the server has room: the intake decides when a due batch closes.

use std::time::{Duration, Instant};

use super::position::Position;
use super::reject::{DETAIL_CHARS_MAX, PAYLOAD_BYTES_MAX, Reject, TOPIC_BYTES_MAX};

/// What a position may take in memory, without attributes: the row, and its encoded form beside it while it is being sent.
pub const POSITION_BYTES_MAX: usize = size_of::<Position>() + 128;
/// What a reject's fixed part may take; its texts and payload count twice, for the same reason.
const REJECT_FIXED_BYTES: usize = size_of::<Reject>() + 64;
/// Any row fits into a batch of this size.
pub(crate) const BYTES_MAX_MIN: usize = 256 * 1024;
const _: () = assert!(
    REJECT_FIXED_BYTES + 2 * (PAYLOAD_BYTES_MAX + 3 * TOPIC_BYTES_MAX + 4 * DETAIL_CHARS_MAX + 64)
        <= BYTES_MAX_MIN
);

/// Above this many a second, one reject row stands for several of its reason (the flood limit).
pub const REJECT_ROWS_PER_SECOND_MAX: u32 = 100;
/// The same, above this many bytes of them a second.
pub const REJECT_BYTES_PER_SECOND_MAX: usize = 1024 * 1024;

/// `[batch]` in the configuration.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Due at this many rows.
    pub rows_max: usize,
    /// Due this long after its first row.
    pub age_max: Duration,
    /// Never larger than this, by [`Batch::bytes`]; at least [`BYTES_MAX_MIN`].
    pub bytes_max: usize,
}

/// Rows that go to ClickHouse together and become durable together.
#[derive(Debug, Default)]
pub struct Batch {
    /// For logs, and to recognise the batch when it is durable. Unique in the process, and rising.
    pub id: u64,
    /// Good points, in arrival order.
    pub positions: Vec<Position>,
    /// Refused points and messages, in arrival order.
    pub rejects: Vec<Reject>,
    /// What the rows take in memory, an upper bound.
    pub bytes: usize,
    /// When the first row came.
    pub opened_at: Option<Instant>,
    /// Some of it will be acknowledged: not to acknowledge it stops the broker.
    pub at_least_once: bool,
}

impl Batch {
    /// Positions and reject rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.positions.len() + self.rejects.len()
    }

    /// No rows.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.rows() == 0
    }
}

/// The one open batch.
#[derive(Debug)]
pub struct Batcher {
    limits: Limits,
    open: Batch,
    flood: FloodLimit,
}

impl Batcher {
    /// An empty batcher.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, open: Batch::default(), flood: FloodLimit::default() }
    }

    /// The open batch's rows.
    #[must_use]
    pub fn open(&self) -> &Batch {
        &self.open
    }

    /// From now on batches are at most this large, or [`BYTES_MAX_MIN`]; never larger than before.
    pub fn lower_bytes_max(&mut self, bytes: usize) {
        self.limits.bytes_max = self.limits.bytes_max.min(bytes.max(BYTES_MAX_MIN));
    }

    /// Whether this position still fits under `bytes_max`.
    #[must_use]
    pub fn fits_position(&self, position: &Position) -> bool {
        self.open.bytes + bytes_of_position(position) <= self.limits.bytes_max
    }

    /// Whether this reject still fits under `bytes_max`.
    #[must_use]
    pub fn fits_reject(&self, reject: &Reject) -> bool {
        self.open.bytes + bytes_of(reject) <= self.limits.bytes_max
    }

    /// Adds a position that [fits](Self::fits_position). `awaited`: its message is acknowledged once it is durable.
    pub fn push_position(&mut self, position: Position, awaited: bool, now: Instant) {
        self.open.at_least_once |= awaited;
        let bytes = bytes_of_position(&position);
        self.open.positions.push(position);
        self.grow(bytes, now);
    }

    /// Adds a reject that [fits](Self::fits_reject), as a row of its own or, above the flood limit, to the count of
    /// one of its reason.
    pub fn push_reject(&mut self, reject: Reject, awaited: bool, now: Instant) {
        self.open.at_least_once |= awaited;
        let bytes = bytes_of(&reject);
        if self.flood.is_above_limit(bytes, now)
            && let Some(row) = self.open.rejects.iter_mut().rev().find(|row| row.reason == reject.reason)
        {
            row.count += reject.count;
            return;
        }
        self.open.rejects.push(reject);
        self.grow(bytes, now);
    }

    fn grow(&mut self, bytes: usize, now: Instant) {
        self.open.bytes += bytes;
        self.open.opened_at.get_or_insert(now);
        assert!(
            self.open.bytes <= self.limits.bytes_max,
            "a batch outgrew bytes_max: the caller did not ask fits"
        );
    }

    /// Enough rows, or old enough.
    #[must_use]
    pub fn is_due(&self, now: Instant) -> bool {
        self.is_full() || self.deadline().is_some_and(|deadline| deadline <= now)
    }

    /// Enough rows.
    #[must_use]
    pub(crate) fn is_full(&self) -> bool {
        self.open.rows() >= self.limits.rows_max
    }

    /// When the open batch becomes due by age; `None` while it is empty.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.open.opened_at.map(|opened_at| opened_at + self.limits.age_max)
    }

    /// Takes the open batch and begins the next, which has the next id.
    pub fn close(&mut self) -> Batch {
        let next = Batch { id: self.open.id + 1, ..Batch::default() };
        std::mem::replace(&mut self.open, next)
    }
}

/// Attributes are there twice while they are being sent.
fn bytes_of_position(position: &Position) -> usize {
    POSITION_BYTES_MAX + 2 * position.attributes.memory_bytes()
}

fn bytes_of(reject: &Reject) -> usize {
    REJECT_FIXED_BYTES
        + 2 * (reject.payload.len() + reject.topic.len() + reject.driver_id.len() + reject.detail.len())
}

/// Counts rejects, and their bytes, by the second.
#[derive(Debug, Default)]
struct FloodLimit {
    second_began_at: Option<Instant>,
    rejects: u32,
    bytes: usize,
}

impl FloodLimit {
    fn is_above_limit(&mut self, bytes: usize, now: Instant) -> bool {
        let began_at = *self.second_began_at.get_or_insert(now);
        if now.duration_since(began_at) >= Duration::from_secs(1) {
            *self = Self { second_began_at: Some(now), ..Self::default() };
        }
        self.rejects = self.rejects.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
        self.rejects > REJECT_ROWS_PER_SECOND_MAX || self.bytes > REJECT_BYTES_PER_SECOND_MAX
    }
}
