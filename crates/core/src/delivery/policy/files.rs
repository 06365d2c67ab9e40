//! The replay queue: which file of the spool is replayed next.
//!
//! Files are replayed one at a time, the oldest first. A file whose insert fails moves to the end
//! of the queue. A file is *deferred* if the fault may lie in the file itself: its next replay is
//! postponed, with exponential backoff. These files are deferred:
//!
//! - a file whose insert fails, although other inserts have committed since the file first failed
//!   or was last deferred;
//! - a file whose insert fails permanently, or is not answered before the timeout;
//! - a file that cannot be read;
//! - a file with unknown columns whose insert must be split, or checked for erased drivers;
//! - a file with a row that is too large to insert, and that the spool cannot put in quarantine.
//!
//! After each failed insert or read of a file, the whole queue pauses. The pause grows with each
//! consecutive failure. A file of a newer format is never replayed by this process: it stays in the
//! spool for a newer milepost.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::stage::Progress;
use crate::delivery::File;
use crate::delivery::retry;
use crate::delivery::sink::FailureKind;

/// First delay of a file that is at fault; doubles up to [`DEFERRED_MAX`].
const DEFERRED_MIN: Duration = Duration::from_secs(1);
/// Longest delay: a file is replayed at most this long after its fault was fixed.
const DEFERRED_MAX: Duration = Duration::from_secs(30);

/// A failed attempt to insert a file.
pub(super) struct Failure<'a> {
    pub(super) kind: FailureKind,
    pub(super) why: &'a str,
    /// The file's progress, including this failed attempt.
    pub(super) progress: Progress,
}

/// A file in the replay queue.
#[derive(Debug, Default)]
struct Entry {
    /// `None`: the file is from an earlier process, and this process has recorded no attempt yet.
    progress: Option<Progress>,
    /// Number of inserts (of any batch) that had committed when the file first failed or was last
    /// deferred. If more have committed at a later failure, the file itself is at fault.
    successes: Option<u64>,
    /// Number of times that the file was deferred.
    deferrals: u32,
    /// The file is not replayed before this time, which is also its place in the queue. `None`: the
    /// file is from an earlier process and comes first.
    not_before: Option<Instant>,
    /// Why the file is not inserted, if the file itself is at fault or has a newer format.
    why: Option<String>,
    /// The file has a newer format: this process never replays it.
    has_newer_format: bool,
}

/// The replay queue; see the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Files {
    entries: BTreeMap<File, Entry>,
    /// Consecutive failures of any file while no insert commits.
    failures: u32,
    /// Number of calls of [`pause_after_deferral`](Self::pause_after_deferral) since a file was
    /// last inserted.
    deferrals: u32,
    /// No file is replayed before this time.
    paused_until: Option<Instant>,
}

impl Files {
    /// Queues a file. `progress` and `now` are `None` for a file of an earlier process, which comes
    /// first in the queue. A file that was queued before keeps its number of deferrals.
    pub(super) fn add(&mut self, file: File, progress: Option<Progress>, now: Option<Instant>) {
        let entry = self.entries.entry(file).or_default();
        (entry.progress, entry.not_before) = (progress, now);
    }

    /// Removes a file from the queue.
    pub(super) fn remove(&mut self, file: &File) {
        self.entries.remove(file);
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether any file can be replayed by this version.
    pub(super) fn has_replayable(&self) -> bool {
        self.entries.values().any(|entry| !entry.has_newer_format)
    }

    /// Returns the positions in all files, from their names.
    pub(super) fn positions(&self) -> u64 {
        self.entries.keys().map(|file| file.positions).sum()
    }

    /// Returns the due file that has queued longest; `None` if no file is due.
    pub(super) fn next(&self, now: Instant) -> Option<File> {
        if self.paused_until.is_some_and(|until| until > now) {
            return None;
        }
        let due = self.entries.iter().filter(|(_, entry)| entry.is_due(now));
        due.min_by_key(|(file, entry)| (entry.not_before, **file)).map(|(file, _)| *file)
    }

    /// Returns when the next file is due; a time in the past means now. `None` if a file of an
    /// earlier process comes first and `paused_until` is `None`, which means now as well. `None`
    /// also if this version can replay no file.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let due = self
            .entries
            .values()
            .filter(|entry| !entry.has_newer_format)
            .map(|entry| entry.not_before);
        due.min().map(|at| at.max(self.paused_until)).unwrap_or_default()
    }

    /// Returns the file's progress, if it was attempted.
    pub(super) fn progress(&self, file: &File) -> Option<Progress> {
        self.entries.get(file)?.progress.clone()
    }

    /// Returns the number of consecutive failures of any file.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    /// Records that a file was inserted.
    pub(super) fn succeeded(&mut self) {
        (self.failures, self.deferrals) = (0, 0);
    }

    /// Defers the file: the first time for [`DEFERRED_MIN`], then twice as long as the time before,
    /// up to [`DEFERRED_MAX`]. `successes`: inserts of any batch that have committed so far.
    pub(super) fn defer(&mut self, file: &File, why: &str, successes: u64, now: Instant) {
        let Some(entry) = self.entries.get_mut(file) else { return };
        entry.why = Some(why.to_owned());
        let deferred = DEFERRED_MIN.saturating_mul(1 << entry.deferrals.min(10)).min(DEFERRED_MAX);
        entry.deferrals += 1;
        entry.successes = Some(successes);
        entry.not_before = Some(now + deferred);
    }

    /// Leaves the file for a newer milepost.
    pub(super) fn leave_for_newer_version(&mut self, file: &File, why: &str) {
        if let Some(entry) = self.entries.get_mut(file) {
            entry.why = Some(why.to_owned());
            entry.has_newer_format = true;
        }
    }

    /// Handles a failed attempt to insert the file. `successes`: inserts of any batch that have
    /// committed so far. Returns whether the file was deferred.
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
        let others_succeed = self.entries.get_mut(file).is_some_and(|entry| {
            entry.progress = Some(progress);
            entry.not_before = Some(now);
            successes > *entry.successes.get_or_insert(successes)
        });
        // A file that times out would block the queue for the whole timeout at each replay. So it
        // is deferred even if no other insert commits, like a file that is refused permanently.
        let defers =
            others_succeed || matches!(kind, FailureKind::Permanent | FailureKind::TimedOut);
        if defers {
            self.defer(file, why, successes, now);
        }
        if others_succeed {
            self.failures = 0;
            self.pause_after_deferral(jitter, now);
        } else {
            self.paused_until = Some(now + retry::delay(self.failures, jitter));
        }
        defers
    }

    /// Pauses the queue after a deferral. The pause grows with each consecutive deferral: many of
    /// them mean that the server refuses most inserts, or that the disk fails.
    pub(super) fn pause_after_deferral(&mut self, jitter: &mut fastrand::Rng, now: Instant) {
        self.deferrals = self.deferrals.saturating_add(1);
        self.paused_until = Some(now + retry::delay(self.deferrals, jitter));
    }

    /// Returns the line of `/readyz` for the oldest file that is deferred or has a newer format,
    /// with the reason.
    pub(super) fn unready_reason(&self) -> Option<String> {
        let mut at_fault =
            self.entries.iter().filter_map(|(file, entry)| Some((file, entry.why.as_ref()?)));
        at_fault.next().map(|(file, why)| format!("spool replay: {file}: {why}"))
    }

    pub(super) fn bytes(&self) -> u64 {
        self.entries.keys().map(|file| file.bytes).sum()
    }

    /// Makes every file due now, because the server answers again.
    pub(super) fn wake(&mut self, now: Instant) {
        self.paused_until = None;
        self.entries
            .values_mut()
            .for_each(|entry| entry.not_before = entry.not_before.map(|at| at.min(now)));
    }
}

impl Entry {
    fn is_due(&self, now: Instant) -> bool {
        !self.has_newer_format && self.not_before.is_none_or(|not_before| not_before <= now)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::delivery::retry::{Attempts, Identity};

    fn files() -> (Files, [File; 2], Instant) {
        let mut files = Files::default();
        let queued = [1, 2].map(|sequence| File { sequence, positions: 10, tag: 1, bytes: 100 });
        queued.iter().for_each(|file| files.add(*file, None, None));
        (files, queued, Instant::now())
    }

    fn failure(kind: FailureKind) -> Failure<'static> {
        Failure {
            kind,
            why: "why",
            progress: Progress::new(
                Attempts::new(Identity { incarnation: 1, number: 1 }),
                VecDeque::new(),
            ),
        }
    }

    #[test]
    fn faulty_file_backs_off_and_is_due_when_the_server_is_back() {
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
        files.leave_for_newer_version(&file, "newer");
        assert_eq!(files.deadline(), None);
    }

    #[test]
    fn file_is_deferred_if_refused_or_timed_out_or_if_others_commit() {
        use FailureKind::{Permanent, TimedOut, Transient};
        let mut jitter = fastrand::Rng::with_seed(1);
        for (kind, is_deferred) in [(Transient, false), (Permanent, true), (TimedOut, true)] {
            let (mut files, [file, _], now) = files();
            assert_eq!(
                files.failed(&file, failure(kind), 5, &mut jitter, now),
                is_deferred,
                "{kind:?}"
            );
            assert_eq!(
                (files.failures(), files.next(now)),
                (1, None),
                "{kind:?}: the other file pauses as well"
            );
            assert!(files.next(files.deadline().unwrap()).is_some());
            assert!(
                files.failed(&file, failure(kind), 6, &mut jitter, now),
                "another insert committed"
            );
            assert_eq!(files.failures(), 0);
            assert!(
                !files.failed(&file, failure(Transient), 6, &mut jitter, now),
                "no insert has committed since"
            );
            assert_eq!(files.failures(), 1);
            files.succeeded();
            assert_eq!(files.failures(), 0);
        }
    }
}
