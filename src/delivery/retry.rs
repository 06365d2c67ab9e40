//! When an insert is tried again, for how long, and under which token.

use std::time::Duration;

use super::sink::FailureKind;
use super::words::{Attempt, Piece};

/// First delay before a retry; doubles up to [`DELAY_MAX`], halved at random.
const DELAY_MIN: Duration = Duration::from_millis(100);
/// Longest delay before a retry.
const DELAY_MAX: Duration = Duration::from_secs(5);
/// The timeout doubles with every attempt that ran into it, up to here.
const TIMEOUT_MAX: Duration = Duration::from_secs(600);

/// How long to wait after so many failures in a row.
pub fn delay(failures: u32, jitter: &mut fastrand::Rng) -> Duration {
    let doubled = DELAY_MIN.saturating_mul(1 << failures.saturating_sub(1).min(10));
    doubled.min(DELAY_MAX).mul_f64(0.5 + jitter.f64() / 2.0)
}

/// Names the rows of a batch among all that this process, and every other one, ever inserts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// This process, by a random number.
    pub incarnation: u64,
    /// The batch in it.
    pub number: u64,
}

/// The attempts at one batch so far: what the next one looks like.
#[derive(Debug, Clone)]
pub struct Tries {
    identity: Identity,
    /// In a row.
    pub failures: u32,
    /// May or may not have been committed.
    ambiguous_ends: u32,
    timeout: Duration,
}

impl Tries {
    /// None yet in this process. A batch that an earlier process has tried gets another identity here: its last attempt
    /// may have been committed.
    #[must_use]
    pub fn new(identity: Identity, timeout: Duration) -> Self {
        Self { identity, failures: 0, ambiguous_ends: 0, timeout }
    }

    /// The next one. A server that answered with an error knows whether it committed: the same token again lets it
    /// recognise rows that it has. One that died can know a token and not its rows: then the next one is fresh.
    #[must_use]
    pub fn next(&self, piece: &Piece) -> Attempt {
        let Identity { incarnation, number } = self.identity;
        let Piece { insert, rows } = piece;
        let ends = self.ambiguous_ends;
        let token = format!("{incarnation:016x}-{number}-{insert}-{}-{}-{ends}", rows.start, rows.end);
        Attempt { token, timeout: self.timeout }
    }

    /// An attempt failed.
    pub fn failed(&mut self, kind: FailureKind) {
        self.failures = self.failures.saturating_add(1);
        match kind {
            FailureKind::Transient | FailureKind::Permanent | FailureKind::TooLarge => {}
            FailureKind::Ambiguous => self.ambiguous_ends = self.ambiguous_ends.saturating_add(1),
            FailureKind::TimedOut => {
                self.ambiguous_ends = self.ambiguous_ends.saturating_add(1);
                self.timeout = (self.timeout * 2).min(TIMEOUT_MAX);
            }
        }
    }

    /// An attempt got through; returns how many failed before it.
    pub fn succeeded(&mut self) -> u32 {
        std::mem::take(&mut self.failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definite_failure_keeps_the_token_and_an_ambiguous_one_does_not() {
        let identity = Identity { incarnation: 7, number: 1 };
        let mut tries = Tries::new(identity, Duration::from_secs(1));
        let piece = Piece { insert: 0, rows: 0..10 };
        let first = tries.next(&piece);
        tries.failed(FailureKind::Transient);
        assert_eq!(tries.next(&piece), first);
        tries.failed(FailureKind::Ambiguous);
        let second = tries.next(&piece);
        assert_ne!(second.token, first.token);
        tries.failed(FailureKind::TimedOut);
        let third = tries.next(&piece);
        assert_eq!((third.token == second.token, third.timeout), (false, Duration::from_secs(2)));
        assert_eq!(tries.succeeded(), 3);

        let part = Piece { insert: 0, rows: 0..5 };
        assert_ne!(tries.next(&part).token, third.token, "other rows, another token");
        let again = Tries::new(Identity { incarnation: 8, number: 1 }, Duration::from_secs(1));
        assert_ne!(again.next(&piece).token, first.token, "another process");
    }

    #[test]
    fn delays_double_up_to_a_bound() {
        let mut jitter = fastrand::Rng::with_seed(1);
        for (failures, longest) in [(1, 100), (2, 200), (5, 1_600), (40, 5_000)] {
            let longest = Duration::from_millis(longest);
            let delay = delay(failures, &mut jitter);
            assert!(longest / 2 <= delay && delay <= longest, "{failures}: {delay:?}");
        }
    }
}
