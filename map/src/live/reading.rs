//! State of the query loop between two queries. Pure.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::fleet::parts::Parts;

/// Interval of the query.
pub(super) const PERIOD: Duration = Duration::from_secs(1);
/// Without an insert for this long, after there were some, the state is `stale`.
const STALE_AFTER: Duration = Duration::from_secs(15);
/// Tiles are cut anew after this long without a move: drivers fall silent without a row.
const RECUT_AFTER: Duration = Duration::from_secs(15);
/// The rate is a mean over this many queries.
const RATE_TICKS: usize = 10;

/// State of the loop between two queries.
#[derive(Default)]
pub(super) struct Reading {
    pub(super) parts: Parts,
    /// Time of the last full read; `None`: the next one is full.
    pub(super) all_read: Option<Instant>,
    /// Time of the last insert by this machine's clock, in milliseconds since 1970.
    came: Option<i64>,
    is_failing: bool,
    /// Time of the last new generation of tiles.
    pub(super) recut: Option<Instant>,
    /// How many drivers moved, and when, newest last.
    counts: VecDeque<(Instant, usize)>,
}

impl Reading {
    /// Whether the next read is full.
    pub(super) fn wants_all(&self, every: Duration) -> bool {
        self.all_read.is_none_or(|at| at.elapsed() >= every)
    }

    pub(super) fn answered(&mut self, moved: usize, now: Instant) {
        self.is_failing = false;
        // In the first read every driver is new.
        let counted = if self.counts.is_empty() { 0 } else { moved };
        self.counts.push_back((now, counted));
        if self.counts.len() > RATE_TICKS + 1 {
            self.counts.pop_front();
        }
    }

    /// Rows were inserted then. The same moment, computed again, differs by milliseconds.
    pub(super) fn came(&mut self, at_ms: i64) {
        if self.came.is_none_or(|known| at_ms > known + ms(PERIOD)) {
            self.came = Some(at_ms);
        }
    }

    /// The last insert, if it was long ago.
    pub(super) fn stopped(&self, now_ms: i64) -> Option<i64> {
        self.came.filter(|came| now_ms - came >= ms(STALE_AFTER))
    }

    pub(super) fn is_recut_due(&self, now: Instant) -> bool {
        self.recut.is_none_or(|at| now.duration_since(at) >= RECUT_AFTER)
    }

    /// Mean per second between the first and the last query.
    pub(super) fn rate(&self) -> f64 {
        let (Some((first, _)), Some((last, _))) = (self.counts.front(), self.counts.back()) else {
            return 0.0;
        };
        let seconds = last.duration_since(*first).as_secs_f64();
        let moved: usize = self.counts.iter().skip(1).map(|(_, moved)| moved).sum();
        if seconds > 0.0 { (moved as f64 / seconds * 10.0).round() / 10.0 } else { 0.0 }
    }

    /// Returns whether this is the first failure after an answer: a server that was down may have
    /// lost rows, so the next read is full.
    pub(super) fn failed(&mut self) -> bool {
        self.all_read = None;
        !std::mem::replace(&mut self.is_failing, true)
    }

    pub(super) fn is_well(&self) -> bool {
        self.all_read.is_some() && !self.is_failing
    }

    /// No viewer: later fixes do not count towards the rate.
    pub(super) fn rest(&mut self) {
        self.counts.clear();
    }
}

pub(super) fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
