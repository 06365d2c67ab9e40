//! The spool's files as the policy sees them: which is replayed next.
//!
//! While nothing gets through, the oldest file is tried again and again, and another one now and then. A file that fails
//! while others get through is itself at fault: it is deferred, for longer each time, so that it does not stand in their
//! way. So is one that cannot be read. One of a newer format is left for a newer milepost.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::delivery::events::Piece;
use crate::delivery::retry::{self, Tries};
use crate::delivery::sink::FailureKind;
use crate::spool::File;

/// How long a file at fault is deferred the first time; doubles up to [`DEFERRED_MAX`].
const DEFERRED_MIN: Duration = Duration::from_secs(1);
/// Longest time: what is mended is noticed within it.
const DEFERRED_MAX: Duration = Duration::from_secs(30);
/// Of so many failures in a row, one is another file's.
const TRY_ANOTHER_EVERY: u32 = 5;
/// Of so many turns, one is that of the oldest file, even if it was at fault before.
const TURNS_OF_FRESH: u32 = 8;

/// What is known of a file that has been tried.
#[derive(Debug, Clone)]
pub(super) struct Tried {
    pub(super) tries: Tries,
    /// What of it is not in ClickHouse.
    pub(super) pieces: VecDeque<Piece>,
    /// Positions of it that no way to the server takes.
    pub(super) quarantined: u64,
    /// Positions that were left out, because their driver's data is to be gone.
    pub(super) erased: u64,
}

/// A failed attempt to insert a file.
pub(super) struct Failure<'a> {
    pub(super) kind: FailureKind,
    pub(super) why: &'a str,
    /// With this attempt.
    pub(super) tried: Tried,
}

#[derive(Debug, Default)]
struct Entry {
    tried: Option<Tried>,
    /// Inserts that had got through, anyone's, when it failed first, or when it was last deferred.
    successes: Option<u64>,
    deferrals: u32,
    not_before: Option<Instant>,
    /// Why it does not get in, if that is its own fault.
    why: Option<String>,
    /// Of a newer format: never, in this process.
    newer: bool,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Files {
    entries: BTreeMap<File, Entry>,
    /// In a row, of any file, while nothing gets through.
    failures: u32,
    /// In a row, of files that were deferred.
    deferrals: u32,
    turns: u32,
    /// No file is tried before.
    rests_until: Option<Instant>,
}

impl Files {
    /// A file is there to be replayed.
    pub(super) fn add(&mut self, file: File, tried: Option<Tried>) {
        self.entries.insert(file, Entry { tried, ..Entry::default() });
    }

    /// A file is gone, or is not replayed from now on.
    pub(super) fn remove(&mut self, file: &File) {
        self.entries.remove(file);
    }

    /// How many.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// There are some that are not of a newer format.
    pub(super) fn has_any(&self) -> bool {
        self.entries.values().any(|entry| !entry.newer)
    }

    /// By their names.
    pub(super) fn positions(&self) -> u64 {
        self.entries.keys().map(|file| file.positions).sum()
    }

    /// The next file's turn, if any is due.
    pub(super) fn next(&mut self, now: Instant) -> Option<File> {
        if self.rests_until.is_some_and(|until| until > now) {
            return None;
        }
        // Those that were never at fault come before those whose time is over, or many of these would take every turn;
        // now and then it is theirs, or ever new ones would.
        let fresh_only = !(self.turns + 1).is_multiple_of(TURNS_OF_FRESH);
        let oldest = |fresh_only: bool, but: Option<File>| {
            let mut due = self.entries.iter().filter(|(file, entry)| {
                entry.is_due(now) && !(fresh_only && entry.deferrals > 0) && but != Some(**file)
            });
            due.next().map(|(file, _)| *file)
        };
        let first = oldest(fresh_only, None).or_else(|| oldest(false, None))?;
        let another = self.failures > 0 && self.failures.is_multiple_of(TRY_ANOTHER_EVERY);
        let file = if another { oldest(false, Some(first)).unwrap_or(first) } else { first };
        self.turns = self.turns.wrapping_add(1);
        Some(file)
    }

    /// When a file that is deferred now is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let due = self.entries.values().filter(|entry| !entry.newer).map(|entry| entry.not_before);
        due.min().map(|at| at.max(self.rests_until)).unwrap_or_default()
    }

    /// What was tried with it.
    pub(super) fn tried(&self, file: &File) -> Option<Tried> {
        self.entries.get(file)?.tried.clone()
    }

    /// An insert of a file got through.
    pub(super) fn succeeded(&mut self) {
        (self.failures, self.deferrals) = (0, 0);
    }

    /// It cannot be read now.
    pub(super) fn defer(&mut self, file: &File, why: &str, successes: u64, now: Instant) {
        let Some(entry) = self.entries.get_mut(file) else { return };
        entry.why = Some(why.to_owned());
        let deferred = DEFERRED_MIN.saturating_mul(1 << entry.deferrals.min(10)).min(DEFERRED_MAX);
        entry.deferrals += 1;
        entry.successes = Some(successes);
        entry.not_before = Some(now + deferred);
    }

    /// It is for a newer milepost.
    pub(super) fn leave(&mut self, file: &File, why: &str) {
        if let Some(entry) = self.entries.get_mut(file) {
            entry.why = Some(why.to_owned());
            entry.newer = true;
        }
    }

    /// An attempt to insert it failed. `successes`: inserts that got through so far, anyone's. Returns whether it was
    /// deferred.
    pub(super) fn failed(
        &mut self,
        file: &File,
        failure: Failure<'_>,
        successes: u64,
        jitter: &mut fastrand::Rng,
        now: Instant,
    ) -> bool {
        let Failure { kind, why, tried } = failure;
        self.failures = self.failures.saturating_add(1);
        let others_get_through = self.entries.get_mut(file).is_some_and(|entry| {
            entry.tried = Some(tried);
            successes > *entry.successes.get_or_insert(successes)
        });
        // One that takes its whole timeout each time is not asked about the server's health again and again.
        let defers = others_get_through || matches!(kind, FailureKind::Permanent | FailureKind::TimedOut);
        if defers {
            self.defer(file, why, successes, now);
        }
        let failures = if others_get_through {
            // The next one's turn; but many at fault in a row mean a server that takes little.
            self.failures = 0;
            self.deferrals = self.deferrals.saturating_add(1);
            self.deferrals
        } else {
            self.failures
        };
        self.rests_until = Some(now + retry::delay(failures, jitter));
        defers
    }

    /// The oldest file that is deferred, and why.
    pub(super) fn trouble(&self) -> Option<String> {
        let mut at_fault = self.entries.iter().filter_map(|(file, entry)| Some((file, entry.why.as_ref()?)));
        at_fault.next().map(|(file, why)| format!("spool replay: {file}: {why}"))
    }

    /// Of all of them.
    pub(super) fn bytes(&self) -> u64 {
        self.entries.keys().map(|file| file.bytes).sum()
    }

    /// The server may take inserts again: nothing is to wait.
    pub(super) fn wake(&mut self) {
        self.rests_until = None;
        self.entries.values_mut().for_each(|entry| entry.not_before = None);
    }
}

impl Entry {
    fn is_due(&self, now: Instant) -> bool {
        !self.newer && self.not_before.is_none_or(|not_before| not_before <= now)
    }
}
