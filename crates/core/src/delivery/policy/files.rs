//! Which file of the spool is replayed next.
//!
//! Files queue for their turn, the oldest first. A file that failed queues behind the others. One that fails while inserts of others
//! commit is itself at fault: it is deferred, for longer each time, before it queues again. So is one that cannot be read. A
//! file of a newer format is left for a newer milepost. After a replayed file did not get in or could not be read, none is tried for
//! a while, which is longer the more of them there were in a row.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::stage::Progress;
use crate::delivery::File;
use crate::delivery::retry;
use crate::delivery::sink::FailureKind;

/// How long a file at fault is deferred the first time; doubles up to [`DEFERRED_MAX`].
const DEFERRED_MIN: Duration = Duration::from_secs(1);
/// Longest deferral: a mended cause is noticed within it.
const DEFERRED_MAX: Duration = Duration::from_secs(30);

/// A failed attempt to insert a file.
pub(super) struct Failure<'a> {
    pub(super) kind: FailureKind,
    pub(super) why: &'a str,
    /// With this attempt.
    pub(super) progress: Progress,
}

#[derive(Debug, Default)]
struct Entry {
    progress: Option<Progress>,
    /// Committed inserts, of any batch, when it failed first or was last deferred.
    successes: Option<u64>,
    deferrals: u32,
    /// Since when, or from when on, it queues; `None`: from the start.
    not_before: Option<Instant>,
    /// Why it does not get in, if that is its own fault.
    why: Option<String>,
    /// Of a newer format: never, in this process.
    newer: bool,
}

#[derive(Debug, Default)]
pub(super) struct Files {
    entries: BTreeMap<File, Entry>,
    /// In a row, of any file, while nothing gets through.
    failures: u32,
    /// In a row, of files that were deferred.
    deferrals: u32,
    /// No file is tried before.
    rests_until: Option<Instant>,
}

impl Files {
    /// A file from before this process queues from the start, any other from `now`. One that is known keeps its deferrals.
    pub(super) fn add(&mut self, file: File, progress: Option<Progress>, now: Option<Instant>) {
        let entry = self.entries.entry(file).or_default();
        (entry.progress, entry.not_before) = (progress, now);
    }

    /// A file is gone, or is not replayed from now on.
    pub(super) fn remove(&mut self, file: &File) {
        self.entries.remove(file);
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// There are some that are not of a newer format.
    pub(super) fn has_any(&self) -> bool {
        self.entries.values().any(|entry| !entry.newer)
    }

    /// Positions in them, by their names.
    pub(super) fn positions(&self) -> u64 {
        self.entries.keys().map(|file| file.positions).sum()
    }

    /// The file that has queued longest, if any is due.
    pub(super) fn next(&self, now: Instant) -> Option<File> {
        if self.rests_until.is_some_and(|until| until > now) {
            return None;
        }
        let due = self.entries.iter().filter(|(_, entry)| entry.is_due(now));
        due.min_by_key(|(file, entry)| (entry.not_before, **file)).map(|(file, _)| *file)
    }

    /// When a file that is deferred now is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let due = self.entries.values().filter(|entry| !entry.newer).map(|entry| entry.not_before);
        due.min().map(|at| at.max(self.rests_until)).unwrap_or_default()
    }

    /// How much of it is in ClickHouse, if it was tried.
    pub(super) fn progress(&self, file: &File) -> Option<Progress> {
        self.entries.get(file)?.progress.clone()
    }

    /// Consecutive failures of any file.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    pub(super) fn succeeded(&mut self) {
        (self.failures, self.deferrals) = (0, 0);
    }

    /// Tries it again later.
    pub(super) fn defer(&mut self, file: &File, why: &str, successes: u64, now: Instant) {
        let Some(entry) = self.entries.get_mut(file) else { return };
        entry.why = Some(why.to_owned());
        let deferred = DEFERRED_MIN.saturating_mul(1 << entry.deferrals.min(10)).min(DEFERRED_MAX);
        entry.deferrals += 1;
        entry.successes = Some(successes);
        entry.not_before = Some(now + deferred);
    }

    /// Leaves it for a newer milepost.
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
        let Failure { kind, why, progress } = failure;
        self.failures = self.failures.saturating_add(1);
        let others_get_through = self.entries.get_mut(file).is_some_and(|entry| {
            entry.progress = Some(progress);
            entry.not_before = Some(now);
            successes > *entry.successes.get_or_insert(successes)
        });
        // One that takes its whole timeout each time is not asked about the server's health again and again.
        let defers = others_get_through || matches!(kind, FailureKind::Permanent | FailureKind::TimedOut);
        if defers {
            self.defer(file, why, successes, now);
        }
        if others_get_through {
            self.failures = 0;
            self.rest_after_deferral(jitter, now);
        } else {
            self.rests_until = Some(now + retry::delay(self.failures, jitter));
        }
        defers
    }

    /// A file was deferred, and the next one's turn comes. But many at fault in a row mean a server that takes little, or a disk that is
    /// away.
    pub(super) fn rest_after_deferral(&mut self, jitter: &mut fastrand::Rng, now: Instant) {
        self.deferrals = self.deferrals.saturating_add(1);
        self.rests_until = Some(now + retry::delay(self.deferrals, jitter));
    }

    /// The oldest file that is deferred, and why.
    pub(super) fn unready_reason(&self) -> Option<String> {
        let mut at_fault = self.entries.iter().filter_map(|(file, entry)| Some((file, entry.why.as_ref()?)));
        at_fault.next().map(|(file, why)| format!("spool replay: {file}: {why}"))
    }

    pub(super) fn bytes(&self) -> u64 {
        self.entries.keys().map(|file| file.bytes).sum()
    }

    /// The server may take inserts again: every file is due now.
    pub(super) fn wake(&mut self, now: Instant) {
        self.rests_until = None;
        self.entries.values_mut().for_each(|entry| entry.not_before = entry.not_before.map(|at| at.min(now)));
    }
}

impl Entry {
    fn is_due(&self, now: Instant) -> bool {
        !self.newer && self.not_before.is_none_or(|not_before| not_before <= now)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::delivery::retry::{Identity, Tries};

    fn files() -> (Files, [File; 2], Instant) {
        let mut files = Files::default();
        let both = [1, 2].map(|sequence| File { sequence, positions: 10, tag: 1, bytes: 100 });
        both.iter().for_each(|file| files.add(*file, None, None));
        (files, both, Instant::now())
    }

    fn failure(kind: FailureKind) -> Failure<'static> {
        Failure {
            kind,
            why: "why",
            progress: Progress::new(Tries::new(Identity { incarnation: 1, number: 1 }), VecDeque::new()),
        }
    }

    #[test]
    fn a_file_at_fault_is_deferred_twice_as_long_each_time_and_due_when_the_server_is_back() {
        let (mut files, [file, other], now) = files();
        files.remove(&other);
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            files.defer(&file, "why", 0, now);
            let due = now + Duration::from_secs(seconds);
            assert_eq!(files.deadline(), Some(due));
            assert_eq!([now, due].map(|at| files.next(at)), [None, Some(file)]);
        }
        files.wake(now);
        assert_eq!((files.next(now), files.bytes()), (Some(file), 100));
        files.leave(&file, "newer");
        assert_eq!(files.deadline(), None);
    }

    #[test]
    fn a_file_is_at_fault_if_others_get_through_or_a_retry_would_not_help() {
        use FailureKind::{Permanent, TimedOut, Transient};
        let mut jitter = fastrand::Rng::with_seed(1);
        for (kind, is_at_fault) in [(Transient, false), (Permanent, true), (TimedOut, true)] {
            let (mut files, [file, _], now) = files();
            assert_eq!(files.failed(&file, failure(kind), 5, &mut jitter, now), is_at_fault, "{kind:?}");
            assert_eq!((files.failures(), files.next(now)), (1, None), "{kind:?}: the others rest, too");
            assert!(files.next(files.deadline().unwrap()).is_some());
            assert!(files.failed(&file, failure(kind), 6, &mut jitter, now), "another got through");
            assert_eq!(files.failures(), 0);
            assert!(!files.failed(&file, failure(Transient), 6, &mut jitter, now), "and none since");
            assert_eq!(files.failures(), 1);
            files.succeeded();
            assert_eq!(files.failures(), 0);
        }
    }
}
