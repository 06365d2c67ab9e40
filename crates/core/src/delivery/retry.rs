//! When an insert is tried again, and under which token.

use std::time::Duration;

use super::events::Piece;
use super::sink::{Attempt, FailureKind};

/// First delay before a retry; doubles up to [`DELAY_MAX`], halved at random.
const DELAY_MIN: Duration = Duration::from_millis(100);
/// Longest delay before a retry.
const DELAY_MAX: Duration = Duration::from_secs(5);

/// Delay after this many consecutive failures.
pub fn delay(failures: u32, jitter: &mut fastrand::Rng) -> Duration {
    let doubled = DELAY_MIN.saturating_mul(1 << failures.saturating_sub(1).min(10));
    doubled.min(DELAY_MAX).mul_f64(0.5 + jitter.f64() / 2.0)
}

/// Identifies a batch among those of all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// A random number of this process.
    pub incarnation: u64,
    pub number: u64,
}

/// The attempts at one batch so far.
#[derive(Debug, Clone)]
pub struct Tries {
    identity: Identity,
    pub failures: u32,
    /// Attempts that may have been committed.
    ambiguous_ends: u32,
}

impl Tries {
    /// A batch that an earlier process tried gets another identity here: its last attempt may have been committed.
    #[must_use]
    pub fn new(identity: Identity) -> Self {
        Self { identity, failures: 0, ambiguous_ends: 0 }
    }

    /// The next attempt. After an error the same token lets the server recognise rows that it has. A server that crashed can know
    /// a token and have lost its rows, so after an ambiguous end the token is fresh.
    #[must_use]
    pub fn next(&self, piece: &Piece, timeout: Duration) -> Attempt {
        let Identity { incarnation, number } = self.identity;
        let Piece { insert, rows } = piece;
        let ends = self.ambiguous_ends;
        let token = format!("{incarnation:016x}-{number}-{insert}-{}-{}-{ends}", rows.start, rows.end);
        Attempt { token, timeout }
    }

    /// An attempt failed.
    pub fn failed(&mut self, kind: FailureKind) {
        self.failures = self.failures.saturating_add(1);
        match kind {
            FailureKind::Transient | FailureKind::Permanent | FailureKind::TooLarge => {}
            FailureKind::Ambiguous | FailureKind::TimedOut => {
                self.ambiguous_ends = self.ambiguous_ends.saturating_add(1);
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
        let token = |tries: &Tries, rows| tries.next(&Piece { insert: 0, rows }, Duration::ZERO).token;
        let mut tries = Tries::new(Identity { incarnation: 7, number: 1 });
        let first = token(&tries, 0..10);
        tries.failed(FailureKind::Transient);
        assert_eq!(token(&tries, 0..10), first);
        tries.failed(FailureKind::Ambiguous);
        let second = token(&tries, 0..10);
        assert_ne!(second, first);
        tries.failed(FailureKind::TimedOut);
        assert_ne!(token(&tries, 0..10), second);
        assert_eq!(tries.succeeded(), 3);

        assert_ne!(token(&tries, 0..5), token(&tries, 0..10), "other rows");
        let again = Tries::new(Identity { incarnation: 8, number: 1 });
        assert_ne!(token(&again, 0..10), first, "another process");
        let other = Tries::new(Identity { incarnation: 7, number: 2 });
        assert_ne!(token(&other, 0..10), first, "another batch of the same rows");
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
