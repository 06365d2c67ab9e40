//! Which inserts are read: the new ones; older ones again, because an insert gets its time before
//! its rows can be read; and none before which the replica that answers lacks something.

use std::time::Duration;

use super::{Event, Fix, Watch};

/// Each look reads the inserts of so long before the last one again.
const BACK_MS: i64 = 2_000;
/// Every insert is read again at these ages, which finds one that took as long. Each look reads a
/// slice: all of them at once would hold up the events of that look.
const AGES_MS: [i64; 2] = [6_000, 30_000];
/// The server's clock was set, or another replica with another clock answers.
const STEP_MS: i64 = 30_000;
/// A replica that is behind by more is waited for no longer: a driver's fixes may then be taken in
/// another order than that of their inserts.
pub(crate) const LAG_MAX_MS: i64 = 900_000;

/// So long after ClickHouse was away nobody falls silent: what drivers sent meanwhile is inserted
/// first.
const SETTLE_MS: i64 = 60_000;

/// Times of inserts: after the first, up to the second.
pub type Span = (i64, i64);

/// One answer: what was inserted in some spans.
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
    /// Inserted so far is read again, at each of [`AGES_MS`].
    again: [i64; 2],
    /// The server's time in the first answer of the last look, and ours then.
    compared: Option<(i64, i64)>,
    /// ClickHouse was away; and until when nobody falls silent.
    was_away: bool,
    settled_at: i64,
    /// Of this look.
    at: i64,
    again_until: [i64; 2],
    new_after: i64,
    /// Inserted so far is read.
    from: i64,
    complete_until: i64,
    lag_ms: i64,
    step_ms: i64,
}

impl Reader {
    #[must_use]
    pub fn new(since: i64) -> Self {
        Self { cursor: since, again: [since - BACK_MS; 2], ..Self::default() }
    }

    /// A look begins, so many milliseconds after any fixed moment.
    pub fn begin(&mut self, at: i64) {
        self.at = at;
        let now = self.compared.map_or(i64::MAX, |(then, at_then)| then + at - at_then);
        self.again_until = AGES_MS.map(|age| now.saturating_sub(age));
        (self.new_after, self.from) = (self.cursor - BACK_MS, i64::MIN);
        (self.complete_until, self.lag_ms, self.step_ms) = (i64::MAX, 0, 0);
    }

    /// ClickHouse did not answer.
    pub fn lost_clickhouse(&mut self) {
        self.was_away = true;
    }

    /// What was inserted then is to be read. Spans may overlap.
    pub fn wanted(&self) -> impl Iterator<Item = Span> {
        let again = self.again.into_iter().zip(self.again_until);
        let all = again.chain([(self.new_after, i64::MAX)]);
        all.map(|(after, until)| (after.max(self.from), until))
            .filter(|(after, until)| after < until)
    }

    /// Whether more is to be read in this look.
    pub fn take(&mut self, inserted: Inserted, watch: &mut Watch, out: &mut Vec<Event>) -> bool {
        let Inserted { fixes, is_cut, now, lag_ms } = inserted;
        if self.complete_until == i64::MAX {
            self.compare(now, watch); // the first answer: our time is that of the look's begin
        }
        self.lag_ms = self.lag_ms.max(lag_ms);
        self.complete_until = self.complete_until.min(now - self.lag_ms.min(LAG_MAX_MS));
        if std::mem::take(&mut self.was_away) {
            self.settled_at = now + SETTLE_MS;
        }
        let last = fixes.last().map(|fix| fix.inserted_at);
        let is_complete = |fix: &Fix| self.lag_ms == 0 || fix.inserted_at <= self.complete_until;
        for fix in fixes.into_iter().take_while(is_complete) {
            // Not past the server's time: another replica, whose clock is ahead, may have inserted
            // it.
            self.cursor = self.cursor.max(fix.inserted_at.min(now));
            watch.take(fix, out);
        }
        let Some(last) = last else { return false };
        // Rows of one moment may be on both sides of a cut.
        let is_more = is_cut && last - 1 > self.from && last <= self.complete_until;
        self.from = last - 1;
        is_more
    }

    /// After a step of the server's clock nobody's silence can be measured; and if it went back, so
    /// does what is read.
    fn compare(&mut self, now: i64, watch: &Watch) {
        let before = self.compared.replace((now, self.at));
        let step = before.map_or(0, |(then, at)| now - then - (self.at - at));
        if step.abs() > STEP_MS {
            self.step_ms = step;
            self.settled_at = now + watch.rules.silent_for.unwrap_or(0).max(SETTLE_MS);
            self.cursor = self.cursor.min(now);
            self.again = self.again.map(|again| again.min(now));
        }
    }

    pub fn end(&mut self, watch: &mut Watch, out: &mut Vec<Event>) {
        self.cursor = self.cursor.max(self.complete_until - BACK_MS);
        for (n, age) in AGES_MS.into_iter().enumerate() {
            self.again[n] = self.again[n].max(self.again_until[n].min(self.complete_until - age));
        }
        // A driver of the last seconds is not silent, though the row cannot be read yet; nor is one
        // whose rows are on another replica.
        let all_read_until = self.complete_until + self.lag_ms.min(LAG_MAX_MS) - self.lag_ms;
        if all_read_until >= self.settled_at {
            watch.tick(all_read_until - BACK_MS, out);
        }
    }

    /// Of the last look.
    #[must_use]
    pub fn lag(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.lag_ms).unwrap_or(0))
    }

    /// By how many milliseconds the server's clock was set, or differs from that of the replica
    /// that answered before; 0: it was not.
    #[must_use]
    pub fn step_ms(&self) -> i64 {
        self.step_ms
    }
}
