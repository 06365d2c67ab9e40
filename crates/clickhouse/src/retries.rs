//! The pauses between repeated statements, and how often their reasons are logged.

use std::time::{Duration, Instant};

use milepost_core::delivery::retry;
use milepost_core::throttle::ReasonThrottle;

/// Interval between log lines with the same reason.
const LOGGED_EVERY: Duration = Duration::from_secs(60);

/// Pauses and log throttle of the statements of one task.
pub struct Retries {
    log: ReasonThrottle,
    jitter: fastrand::Rng,
}

impl Retries {
    #[must_use]
    pub fn new() -> Self {
        Self { log: ReasonThrottle::every(LOGGED_EVERY), jitter: fastrand::Rng::new() }
    }

    /// Returns the pause before the next attempt, and whether to log the failure: each reason once
    /// a minute. `failures`: number of consecutive failures.
    pub fn next(&mut self, failures: u32, why: &str) -> (Duration, bool) {
        (retry::delay(failures, &mut self.jitter), self.log.allow(why, Instant::now()))
    }
}

impl Default for Retries {
    fn default() -> Self {
        Self::new()
    }
}
