//! Collects rows until they are worth an insert.
//!
//! Guarantee: rows come out in the order they went in, none twice, none missing; an open batch knows when
//! it is due, by rows or by age, and never holds more than `bytes_max`. It takes `now`, never asks for
//! it, and does not know whether the server has room: the lane decides when a due batch closes.

use std::time::{Duration, Instant};

use crate::decode::{Reason, Reject};
use crate::position::{Position, Qos};

/// What a position may take in memory: the row, and its encoded form beside it while it is being sent.
pub const POSITION_BYTES_MAX: usize = size_of::<Position>() + 128;

/// What a reject's fixed part may take; its texts and payload count twice, for the same reason.
const REJECT_FIXED_BYTES: usize = size_of::<Reject>() + 64;

/// Above this many a second, one reject row stands for several of its reason (the flood limit).
pub const REJECT_ROWS_PER_SECOND_MAX: u32 = 100;

/// `[batch]` in the configuration.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Due at this many rows.
    pub rows_max: usize,
    /// Due this long after its first row.
    pub age_max: Duration,
    /// Never larger than this, by [`Batch::bytes`].
    pub bytes_max: usize,
}

/// Rows that go to ClickHouse together and are settled together.
#[derive(Debug, Default)]
pub struct Batch {
    /// For logs, and to recognise the batch when it settles. Unique in the lane.
    pub id: u64,
    /// Good points, in arrival order.
    pub positions: Vec<Position>,
    /// Refused points and messages, in arrival order.
    pub rejects: Vec<Reject>,
    /// What the rows take in memory, an upper bound.
    pub bytes: usize,
    /// When the first row came.
    pub opened_at: Option<Instant>,
}

impl Batch {
    /// Positions and reject rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.positions.len() + self.rejects.len()
    }

    /// No rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows() == 0
    }

    /// Drops the rows that the broker will send again; returns how many positions those were.
    pub fn abandon_at_least_once(&mut self) -> u64 {
        let before = self.positions.len();
        self.positions.retain(|position| position.qos == Qos::AtMostOnce);
        self.rejects.retain(|reject| reject.qos == Qos::AtMostOnce);
        self.bytes =
            self.positions.len() * POSITION_BYTES_MAX + self.rejects.iter().map(bytes_of).sum::<usize>();
        (before - self.positions.len()) as u64
    }
}

/// The one open batch of a lane.
#[derive(Debug)]
pub struct Batcher {
    limits: Limits,
    open: Batch,
    next_id: u64,
    flood: FloodGate,
}

impl Batcher {
    /// An empty batcher.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, open: Batch::default(), next_id: 0, flood: FloodGate::default() }
    }

    /// The open batch's rows.
    #[must_use]
    pub fn open(&self) -> &Batch {
        &self.open
    }

    /// Whether another position still fits under `bytes_max`.
    #[must_use]
    pub fn fits_position(&self) -> bool {
        self.open.bytes + POSITION_BYTES_MAX <= self.limits.bytes_max
    }

    /// Whether this reject still fits under `bytes_max`.
    #[must_use]
    pub fn fits_reject(&self, reject: &Reject) -> bool {
        self.open.bytes + bytes_of(reject) <= self.limits.bytes_max
    }

    /// Adds a position that [fits](Self::fits_position).
    pub fn push_position(&mut self, position: Position, now: Instant) {
        self.open.positions.push(position);
        self.grow(POSITION_BYTES_MAX, now);
    }

    /// Adds a reject that [fits](Self::fits_reject), as a row of its own or, above the flood limit, to the
    /// count of one of its reason.
    pub fn push_reject(&mut self, reject: Reject, now: Instant) {
        if self.flood.is_above_limit(now)
            && let Some(row) = self.open.rejects.iter_mut().rev().find(|row| stands_for(row, &reject))
        {
            row.count += reject.count;
            return;
        }
        let bytes = bytes_of(&reject);
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
        self.open.rows() >= self.limits.rows_max || self.deadline().is_some_and(|deadline| deadline <= now)
    }

    /// When the open batch becomes due by age; `None` while it is empty.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.open.opened_at.map(|opened_at| opened_at + self.limits.age_max)
    }

    /// Takes the open batch and begins the next.
    pub fn close(&mut self) -> Batch {
        let mut batch = std::mem::take(&mut self.open);
        batch.id = self.next_id;
        self.next_id += 1;
        batch
    }

    /// Drops the open rows that the broker will send again; returns how many positions those were.
    pub fn abandon_at_least_once(&mut self) -> u64 {
        let abandoned = self.open.abandon_at_least_once();
        if self.open.is_empty() {
            self.open = Batch::default();
        }
        abandoned
    }
}

/// Rows that one row may stand for: same reason, and the same fate if their connection dies.
fn stands_for(row: &Reject, reject: &Reject) -> bool {
    let same_reason: (Reason, Qos) = (row.reason, row.qos);
    same_reason == (reject.reason, reject.qos)
}

fn bytes_of(reject: &Reject) -> usize {
    REJECT_FIXED_BYTES
        + 2 * (reject.payload.len() + reject.topic.len() + reject.driver_id.len() + reject.detail.len())
}

/// Counts rejects by the second.
#[derive(Debug, Default)]
struct FloodGate {
    second_began_at: Option<Instant>,
    rejects: u32,
}

impl FloodGate {
    fn is_above_limit(&mut self, now: Instant) -> bool {
        let began_at = *self.second_began_at.get_or_insert(now);
        if now.duration_since(began_at) >= Duration::from_secs(1) {
            *self = Self { second_began_at: Some(now), rejects: 0 };
        }
        self.rejects = self.rejects.saturating_add(1);
        self.rejects > REJECT_ROWS_PER_SECOND_MAX
    }
}
