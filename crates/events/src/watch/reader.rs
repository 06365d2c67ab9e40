//! Decides which inserts to read. Reads new inserts, and reads older inserts again, because an
//! insert gets its time before its rows become visible. While the answering replica may lack older
//! inserts, newer ones wait, up to a lag of [`LAG_MAX_MS`].
//!
//! Guarantee: if the server's clock is set back, no insert is skipped, unless a replica lags by
//! more than 30 s at that moment. The poll that notices the step first reads the rest of the
//! inserts from before the step. Then it continues from the last poll, whose time it converts to
//! the new clock.

use std::time::Duration;

use super::{Event, Fix, Watch};

/// Milliseconds before the newest insert that each poll reads again.
const BACK_MS: i64 = 2_000;
/// Ages in milliseconds at which every insert is read again, to find rows that became visible that
/// late. Each poll rereads only a slice, so that no poll delays its events.
const AGES_MS: [i64; 2] = [6_000, 30_000];
/// If the server's clock steps by more than this many milliseconds, it was set. Clocks of replicas
/// differ by less.
pub(crate) const STEP_MS: i64 = 30_000;
/// If the server shows a time more than this many milliseconds before an earlier one, either its
/// clock was set back, or a replica with a slower clock answered. The reader cannot tell the two
/// apart, so it treats both alike.
const BACKWARDS_MS: i64 = 2_000;
/// Maximum error, in milliseconds, of the length of a step: a query may begin as late as its
/// timeout allows.
const STEP_ERROR_MS: i64 = 15_000;
/// Longest lag of a replica, in milliseconds, that the reader waits for. Beyond it, a driver's
/// fixes may be processed in another order than they were inserted.
pub(crate) const LAG_MAX_MS: i64 = 900_000;

/// Milliseconds after an outage of ClickHouse for which no driver falls silent, because the fixes
/// sent during the outage are still being inserted.
const SETTLE_MS: i64 = 60_000;

/// A span of insert times in milliseconds: after the first time, up to and including the second. If
/// the second is above [`ENDLESS_MS`], the span has no end.
pub type Span = (i64, i64);
/// A time above this means "no end". Before the first poll the server's clock is not known, so the
/// spans that are read again end at `i64::MAX` minus their age.
pub const ENDLESS_MS: i64 = i64::MAX / 2;

/// The answer to one query: the fixes that were inserted in the spans that the query asked for.
#[derive(Debug)]
pub struct Inserted {
    /// Fixes in the order of their inserts.
    pub fixes: Vec<Fix>,
    /// The answer has reached its limit of fixes, so more may follow the last one.
    pub is_cut: bool,
    /// Server time at which the query began.
    pub now: i64,
    /// Lag behind the other replicas, in milliseconds; 0 for a single server.
    pub lag_ms: i64,
}

/// Progress in reading the inserts that were made before the server's clock was set back.
#[derive(Debug)]
struct EarlierClock {
    /// Two times of the moment at which the step was noticed: the time that the earlier clock would
    /// have shown, and this process's clock.
    shown: (i64, i64),
    /// Insert time up to which fixes are read. A replica's clock may be ahead, so this is later
    /// than the time shown.
    end: i64,
    /// Insert times up to which fixes have been read: for the first time, and again at each of
    /// [`AGES_MS`].
    cursors: [i64; 3],
}

impl EarlierClock {
    /// Returns the spans to read, for each cursor, as if the earlier clock still ran. `at`: this
    /// process's clock.
    fn spans(&self, at: i64) -> [Span; 3] {
        let [second, third] = AGES_MS.map(|age| (self.shown_at(at) - age).min(self.end));
        let [cursor, reread, reread_late] = self.cursors;
        [(cursor, self.end), (reread, second), (reread_late, third)]
    }

    /// Returns the time that the earlier clock would show.
    fn shown_at(&self, at: i64) -> i64 {
        let (shown, noticed_at) = self.shown;
        shown + at - noticed_at
    }

    /// Returns whether all inserts before the step have been read, and read again.
    fn is_read(&self) -> bool {
        self.cursors.iter().all(|cursor| *cursor >= self.end)
    }

    /// Merges a later step back if its earlier clock was about the same, as when two replicas
    /// answer in turn. The inserts before both steps are then read by the slower of the two clocks:
    /// by the faster one, they would be read again too early, before all of their rows are visible.
    /// Returns whether the clocks were near enough to be merged.
    fn merge(&mut self, later: &Self) -> bool {
        let (shown, at) = later.shown;
        let is_near = (self.shown_at(at) - shown).abs() <= STEP_MS;
        if is_near {
            self.shown = (self.shown_at(at).min(shown), at);
            self.end = self.end.max(later.end);
            for (cursor, of_later) in self.cursors.iter_mut().zip(later.cursors) {
                *cursor = of_later.min(*cursor);
            }
        }
        is_near
    }
}

/// How far the polls have read; see the module. A poll calls [`begin`](Self::begin), then
/// [`handle_answer`](Self::handle_answer) for each answer, then [`end`](Self::end).
#[derive(Debug, Default)]
pub struct Reader {
    /// Insert time up to which all fixes are processed.
    cursor: i64,
    /// Insert time up to which fixes have been read again, for each of [`AGES_MS`].
    reread_cursors: [i64; 2],
    /// The server's time in the first answer of the last poll, and this process's clock then;
    /// `None` before the first poll.
    compared: Option<(i64, i64)>,
    /// The inserts before recent steps back of the server's clock.
    earlier_clocks: Vec<EarlierClock>,
    /// ClickHouse did not answer the last poll.
    had_outage: bool,
    /// Server time until which no driver falls silent.
    settled_at: i64,
    /// Bounds of the current poll: its start by this process's clock (`began_at`), the ends of the
    /// spans that it reads again (`reread_ends`), and the start of the span of new inserts
    /// (`new_after`).
    began_at: i64,
    reread_ends: [i64; 2],
    new_after: i64,
    /// The current poll has compared the clocks.
    is_compared: bool,
    /// The current poll reads the spans of `earlier_clocks`, before all others.
    reads_earlier_clocks: bool,
    /// Insert time up to which the current poll has read.
    read_until: i64,
    /// Insert time up to which the replicas that answered the current poll have all inserts.
    complete_until: i64,
    lag_ms: i64,
    step_ms: i64,
    /// An answer of the current poll had room for only some of the fixes with one insert time.
    is_crowded: bool,
}

impl Reader {
    /// Creates a reader of the fixes that were inserted after this server time.
    #[must_use]
    pub fn new(since: i64) -> Self {
        Self { cursor: since, reread_cursors: [since - BACK_MS; 2], ..Self::default() }
    }

    /// Begins a poll. `at`: this process's monotonic clock, in milliseconds.
    pub fn begin(&mut self, at: i64) {
        self.began_at = at;
        (self.is_compared, self.is_crowded) = (false, false);
        self.begin_at(self.compared.map_or(i64::MAX, |(then, at_then)| then + at - at_then));
        (self.complete_until, self.lag_ms, self.step_ms) = (i64::MAX, 0, 0);
    }

    /// Sets the spans of a poll that begins at this server time.
    fn begin_at(&mut self, now: i64) {
        self.reread_ends = AGES_MS.map(|age| now.saturating_sub(age));
        (self.new_after, self.read_until) = (self.cursor - BACK_MS, i64::MIN);
        let mut spans = self.earlier_clocks.iter().flat_map(|clock| clock.spans(self.began_at));
        self.reads_earlier_clocks = spans.any(|(after, until)| after < until);
    }

    /// Records that ClickHouse did not answer.
    pub fn lost_clickhouse(&mut self) {
        self.had_outage = true;
    }

    /// Returns the spans of insert times that are still to be read. They may overlap.
    pub fn wanted(&self) -> impl Iterator<Item = Span> {
        let of_earlier = self.earlier_clocks.iter().flat_map(|clock| clock.spans(self.began_at));
        let reread = self.reread_cursors.into_iter().zip(self.reread_ends);
        let others = reread.chain([(self.new_after, i64::MAX)]);
        of_earlier
            .filter(|_| self.reads_earlier_clocks)
            .chain(others.filter(|_| !self.reads_earlier_clocks))
            .map(|(after, until)| (after.max(self.read_until), until))
            .filter(|(after, until)| after < until)
    }

    /// Processes an answer. Returns whether this poll has more to read.
    pub fn handle_answer(
        &mut self,
        inserted: Inserted,
        watch: &mut Watch,
        out: &mut Vec<Event>,
    ) -> bool {
        let Inserted { fixes, is_cut, now, lag_ms } = inserted;
        // The first answer is the nearest to `began_at`.
        if !std::mem::replace(&mut self.is_compared, true) && self.compare(now, watch) {
            self.begin_at(now);
            return true; // read these spans in place of those of the answer
        }
        let last = fixes.last().map(|fix| fix.inserted_at);
        let is_more = is_cut && last.is_some();
        // A full answer may lack rows of its last millisecond, so read that millisecond again. If
        // the answer has no other millisecond, continue after it: the same query would return the
        // same rows.
        let is_crowded = is_more && last.is_some_and(|last| last - 1 <= self.read_until);
        self.is_crowded |= is_crowded;
        let read_until = last.map(|last| last - i64::from(!is_crowded));
        if self.reads_earlier_clocks {
            fixes.into_iter().for_each(|fix| watch.handle_fix(fix, out));
            self.read_until = read_until.unwrap_or(self.read_until);
            // These spans are read if the answer was complete, or if none extends beyond
            // `read_until`.
            if !is_more || self.wanted().next().is_none() {
                for clock in &mut self.earlier_clocks {
                    clock.cursors =
                        clock.spans(self.began_at).map(|(after, until)| after.max(until));
                }
                self.earlier_clocks.retain(|clock| !clock.is_read());
                (self.reads_earlier_clocks, self.read_until) = (false, i64::MIN);
            }
            return true;
        }
        self.lag_ms = self.lag_ms.max(lag_ms);
        self.complete_until = self.complete_until.min(now - self.lag_ms.min(LAG_MAX_MS));
        if std::mem::take(&mut self.had_outage) {
            self.settled_at = now + SETTLE_MS;
        }
        let is_complete = |fix: &Fix| self.lag_ms == 0 || fix.inserted_at <= self.complete_until;
        for fix in fixes.into_iter().take_while(is_complete) {
            // Never advance beyond the server's time: another replica with a fast clock may have
            // inserted the fix.
            self.cursor = self.cursor.max(fix.inserted_at.min(now));
            watch.handle_fix(fix, out);
        }
        let (Some(last), Some(read_until)) = (last, read_until) else { return false };
        self.read_until = read_until;
        is_more && last <= self.complete_until
    }

    /// Compares the server's clock with this process's. A step restarts the measurement of every
    /// silence. Returns whether the clock was set back, which also moves the reader back.
    fn compare(&mut self, now: i64, watch: &mut Watch) -> bool {
        let Some((then, at)) = self.compared.replace((now, self.began_at)) else { return false };
        let expected = then + self.began_at - at;
        let step = now - expected;
        if step.abs() > STEP_MS {
            self.step_ms = step;
            self.settled_at = now + SETTLE_MS;
            watch.handle_clock_step(now, expected);
        }
        let is_back = step < -STEP_MS || now < then - BACKWARDS_MS;
        if is_back {
            let cursor = self.cursor.min(then);
            let [reread, reread_late] = self.reread_cursors;
            // Inserts up to `now` may have come after the step, so they are read like all others.
            let cursors = [cursor - BACK_MS, reread, reread_late].map(|cursor| cursor.max(now));
            let shown = (expected, self.began_at);
            let earlier = EarlierClock { shown, end: expected + STEP_MS, cursors };
            if !self.earlier_clocks.last_mut().is_some_and(|last| last.merge(&earlier)) {
                self.earlier_clocks.push(earlier);
            }
            self.cursor = cursor + step - STEP_ERROR_MS;
            self.reread_cursors =
                self.reread_cursors.map(|cursor| cursor.min(then) + step - STEP_ERROR_MS);
        }
        is_back
    }

    /// Ends a poll: advances the reader, and appends the events that time alone causes.
    pub fn end(&mut self, watch: &mut Watch, out: &mut Vec<Event>) {
        self.cursor = self.cursor.max(self.complete_until - BACK_MS);
        for (index, age) in AGES_MS.into_iter().enumerate() {
            let reread_until = self.reread_ends[index].min(self.complete_until - age);
            self.reread_cursors[index] = self.reread_cursors[index].max(reread_until);
        }
        // Measure silences only up to the time at which all rows are visible here: newer rows may
        // not be visible yet, or may still be on another replica only.
        let all_read_until = self.complete_until + self.lag_ms.min(LAG_MAX_MS) - self.lag_ms;
        if all_read_until >= self.settled_at {
            watch.tick(all_read_until - BACK_MS, out);
        }
    }

    /// Returns the replica's lag in the last poll.
    #[must_use]
    pub fn lag(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.lag_ms).unwrap_or(0))
    }

    /// Returns whether the last poll could not read all fixes with one insert time.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.is_crowded
    }

    /// Returns by how many milliseconds the server's clock was set, or differs from the clock of
    /// the replica that answered before. Returns 0 if neither happened.
    #[must_use]
    pub fn step_ms(&self) -> i64 {
        self.step_ms
    }
}
