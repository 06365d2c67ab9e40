//! Keeps the state of the query loop between two queries. No I/O.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::fleet::parts::Parts;

/// Interval of the query.
pub(super) const PERIOD: Duration = Duration::from_secs(1);
/// The state is `stale` after this long without an insert, if there was one before.
const STALE_AFTER: Duration = Duration::from_secs(15);
/// Time after which a new generation of tiles begins even if no driver has moved: a driver becomes
/// silent without a new row.
const GENERATION_AGE_MAX: Duration = Duration::from_secs(15);
/// Number of queries over which the rate is averaged.
const RATE_TICKS: usize = 10;

/// Progress, health and rate of the query loop.
#[derive(Default)]
pub(super) struct Reading {
    pub(super) parts: Parts,
    /// Time of the last full read; `None`: the next one is full.
    pub(super) last_full_read: Option<Instant>,
    /// Time of the last insert, by this machine's clock, in milliseconds since 1970.
    last_insert_ms: Option<i64>,
    is_failing: bool,
    /// Time at which a read last began a new generation of tiles. New names also begin one.
    pub(super) last_generation_at: Option<Instant>,
    /// Time of each query, and how many drivers changed with it; newest last.
    counts: VecDeque<(Instant, usize)>,
}

impl Reading {
    /// Returns whether the next read must be full.
    pub(super) fn is_full_read_due(&self, every: Duration) -> bool {
        self.last_full_read.is_none_or(|at| at.elapsed() >= every)
    }

    /// Records a query that succeeded.
    pub(super) fn record_answer(&mut self, moved: usize, now: Instant) {
        self.is_failing = false;
        // In the first read, every driver is new. That does not count as movement.
        let counted = if self.counts.is_empty() { 0 } else { moved };
        self.counts.push_back((now, counted));
        if self.counts.len() > RATE_TICKS + 1 {
            self.counts.pop_front();
        }
    }

    /// Records the time of the newest insert. A time at most [`PERIOD`] later counts as the same
    /// insert, because the computed time of one insert differs by milliseconds from query to query.
    pub(super) fn record_insert(&mut self, at_ms: i64) {
        if self.last_insert_ms.is_none_or(|last_ms| at_ms > last_ms + ms(PERIOD)) {
            self.last_insert_ms = Some(at_ms);
        }
    }

    /// Returns the time of the last insert, if it was at least [`STALE_AFTER`] ago.
    pub(super) fn stale_since(&self, now_ms: i64) -> Option<i64> {
        self.last_insert_ms.filter(|at_ms| now_ms - at_ms >= ms(STALE_AFTER))
    }

    pub(super) fn is_new_generation_due(&self, now: Instant) -> bool {
        self.last_generation_at.is_none_or(|at| now.duration_since(at) >= GENERATION_AGE_MAX)
    }

    /// Returns the number of drivers that moved per second, averaged over the last queries.
    pub(super) fn rate(&self) -> f64 {
        let (Some((first, _)), Some((last, _))) = (self.counts.front(), self.counts.back()) else {
            return 0.0;
        };
        let seconds = last.duration_since(*first).as_secs_f64();
        let moved: usize = self.counts.iter().skip(1).map(|(_, moved)| moved).sum();
        if seconds > 0.0 { (moved as f64 / seconds * 10.0).round() / 10.0 } else { 0.0 }
    }

    /// Makes the next read a full one, because a server that was down may have lost rows. Returns
    /// whether this is the first failure in a row.
    pub(super) fn record_failure(&mut self) -> bool {
        self.last_full_read = None;
        !std::mem::replace(&mut self.is_failing, true)
    }

    /// Returns whether everything has been read once and the last query succeeded.
    pub(super) fn is_healthy(&self) -> bool {
        self.last_full_read.is_some() && !self.is_failing
    }

    /// Resets the rate when there is no viewer, so that later moves are not averaged over idle
    /// time.
    pub(super) fn reset_rate(&mut self) {
        self.counts.clear();
    }
}

pub(super) fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
