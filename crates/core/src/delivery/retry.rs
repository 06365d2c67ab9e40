//! Retry delays, and the deduplication token of each attempt.

use std::time::Duration;

use super::events::Piece;
use super::sink::{Attempt, FailureKind};

/// First delay before a retry. It doubles up to [`DELAY_MAX`]; jitter shortens it by up to half.
const DELAY_MIN: Duration = Duration::from_millis(100);
/// Longest delay before a retry.
const DELAY_MAX: Duration = Duration::from_secs(5);

/// Returns the delay after this many consecutive failures: exponential, with jitter, at most 5 s.
pub fn delay(failures: u32, jitter: &mut fastrand::Rng) -> Duration {
    let doubled = DELAY_MIN.saturating_mul(1 << failures.saturating_sub(1).min(10));
    doubled.min(DELAY_MAX).mul_f64(0.5 + jitter.f64() / 2.0)
}

/// Identifies a batch across all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// A random number of this process.
    pub incarnation: u64,
    /// Number of the batch in this process.
    pub number: u64,
}

/// The failed attempts of one batch.
#[derive(Debug, Clone)]
pub struct Attempts {
    identity: Identity,
    /// Consecutive failures since a piece of the batch was last committed.
    pub failures: u32,
    /// Failed attempts that may have committed.
    ambiguous_failures: u32,
}

impl Attempts {
    /// Creates the record of a batch that this process has not attempted. A batch of an earlier
    /// process gets a new identity, and with it new tokens, because the earlier process's last
    /// attempt may have been ambiguous.
    #[must_use]
    pub fn new(identity: Identity) -> Self {
        Self { identity, failures: 0, ambiguous_failures: 0 }
    }

    /// Returns the next attempt. After a definite failure the token stays the same, so the server
    /// recognises rows that it already has. After an ambiguous failure the token is new, because a
    /// server that crashed may remember a token although it has lost the token's rows.
    #[must_use]
    pub fn next(&self, piece: &Piece, timeout: Duration) -> Attempt {
        let Identity { incarnation, number } = self.identity;
        let Piece { insert, rows } = piece;
        let ambiguous = self.ambiguous_failures;
        let token =
            format!("{incarnation:016x}-{number}-{insert}-{}-{}-{ambiguous}", rows.start, rows.end);
        Attempt { token, timeout }
    }

    /// Records a failed attempt.
    pub fn failed(&mut self, kind: FailureKind) {
        self.failures = self.failures.saturating_add(1);
        match kind {
            FailureKind::Transient | FailureKind::Permanent | FailureKind::TooLarge => {}
            FailureKind::Ambiguous | FailureKind::TimedOut => {
                self.ambiguous_failures = self.ambiguous_failures.saturating_add(1);
            }
        }
    }

    /// Records a commit. Returns how many attempts failed before it.
    pub fn succeeded(&mut self) -> u32 {
        std::mem::take(&mut self.failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_changes_only_after_an_ambiguous_failure() {
        let token = |attempts: &Attempts, rows| {
            attempts.next(&Piece { insert: 0, rows }, Duration::ZERO).token
        };
        let mut attempts = Attempts::new(Identity { incarnation: 7, number: 1 });
        let first = token(&attempts, 0..10);
        attempts.failed(FailureKind::Transient);
        assert_eq!(token(&attempts, 0..10), first);
        attempts.failed(FailureKind::Ambiguous);
        let second = token(&attempts, 0..10);
        assert_ne!(second, first);
        attempts.failed(FailureKind::TimedOut);
        assert_ne!(token(&attempts, 0..10), second);
        assert_eq!(attempts.succeeded(), 3);

        assert_ne!(
            token(&attempts, 0..5),
            token(&attempts, 0..10),
            "different rows must have different tokens"
        );
        let next_process = Attempts::new(Identity { incarnation: 8, number: 1 });
        assert_ne!(token(&next_process, 0..10), first, "another process must use different tokens");
        let next_batch = Attempts::new(Identity { incarnation: 7, number: 2 });
        assert_ne!(token(&next_batch, 0..10), first, "another batch must have different tokens");
    }

    #[test]
    fn retry_delays_double_up_to_a_bound() {
        let mut jitter = fastrand::Rng::with_seed(1);
        for (failures, longest) in [(1, 100), (2, 200), (5, 1_600), (40, 5_000)] {
            let longest = Duration::from_millis(longest);
            let delay = delay(failures, &mut jitter);
            assert!(longest / 2 <= delay && delay <= longest, "{failures}: {delay:?}");
        }
    }
}
