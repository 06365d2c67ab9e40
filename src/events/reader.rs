//! How far the inserts are read: again a little, because an insert gets its time before its rows can be read; and no further than the
//! replica that answers has everything.

use std::time::Duration;

use super::{Event, Fix, Watch};

/// Most looks go back by the shorter time, every tenth by the longer one.
const BACK_MS: [i64; 2] = [2_000, 30_000];
const LOOKS_BACK: u64 = 10;
/// A replica that is behind by more is waited for no longer: a driver's fixes may then be taken in another order than that of their inserts.
pub(crate) const LAG_MAX_MS: i64 = 900_000;

/// So long after ClickHouse was away nobody falls silent: what drivers sent meanwhile is inserted first.
const SETTLE_MS: i64 = 60_000;

/// One answer: what was inserted after a moment.
#[derive(Debug)]
pub struct Inserted {
    /// In the order of their inserts.
    pub fixes: Vec<Fix>,
    /// There may be more behind the last one.
    pub is_cut: bool,
    /// By the server's clock, before it read.
    pub now: i64,
    /// How far it is behind the other replicas: 0 of a server alone.
    pub lag_ms: i64,
}

/// See the module. A look is [`begin`](Self::begin), answers, [`end`](Self::end).
#[derive(Debug, Default)]
pub struct Reader {
    /// Inserted so far is taken.
    cursor: i64,
    looks: u64,
    /// ClickHouse was away; and until when nobody falls silent.
    was_away: bool,
    settled_at: i64,
    /// Of this look.
    from: i64,
    complete_until: i64,
    lag_ms: i64,
}

impl Reader {
    #[must_use]
    pub fn new(since: i64) -> Self {
        Self { cursor: since, ..Self::default() }
    }

    pub fn begin(&mut self) {
        self.looks += 1;
        self.from = self.cursor - BACK_MS[usize::from(self.looks.is_multiple_of(LOOKS_BACK))];
        (self.complete_until, self.lag_ms) = (i64::MAX, 0);
    }

    /// ClickHouse did not answer.
    pub fn lost_clickhouse(&mut self) {
        self.was_away = true;
    }

    /// What was inserted after this is to be read.
    #[must_use]
    pub fn from(&self) -> i64 {
        self.from
    }

    /// Whether more is to be read in this look.
    pub fn take(&mut self, inserted: Inserted, watch: &mut Watch, out: &mut Vec<Event>) -> bool {
        let Inserted { fixes, is_cut, now, lag_ms } = inserted;
        self.lag_ms = self.lag_ms.max(lag_ms);
        self.complete_until = self.complete_until.min(now - self.lag_ms.min(LAG_MAX_MS));
        if std::mem::take(&mut self.was_away) {
            self.settled_at = now + SETTLE_MS;
        }
        let last = fixes.last().map_or(self.from, |fix| fix.inserted_at);
        let is_complete = |fix: &Fix| self.lag_ms == 0 || fix.inserted_at <= self.complete_until;
        for fix in fixes.into_iter().take_while(is_complete) {
            self.cursor = self.cursor.max(fix.inserted_at);
            watch.take(fix, out);
        }
        // Rows of one moment may be on both sides of a cut.
        let is_more = is_cut && last - 1 > self.from && last <= self.complete_until;
        self.from = last - 1;
        is_more
    }

    pub fn end(&mut self, watch: &mut Watch, out: &mut Vec<Event>) {
        self.cursor = self.cursor.max(self.complete_until - BACK_MS[0]);
        // A driver of the last seconds is not silent, though the row cannot be read yet; nor is one whose rows are on another replica.
        let all_read_until = self.complete_until + self.lag_ms.min(LAG_MAX_MS) - self.lag_ms;
        if all_read_until >= self.settled_at {
            watch.tick(all_read_until - BACK_MS[0], out);
        }
    }

    /// Of the last look.
    #[must_use]
    pub fn lag(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.lag_ms).unwrap_or(0))
    }
}
