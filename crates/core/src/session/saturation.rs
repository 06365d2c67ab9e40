//! Detects a window that stays full. While the window is full, the broker sends a message only when
//! milepost acknowledges one. All other messages wait in the broker's queue.
//!
//! A window that is full only for a moment before each insert is no bottleneck, and must not be
//! reported. So time is divided into intervals. An interval counts as saturated if the window was
//! full for at least half of it.

use std::time::{Duration, Instant};

/// Minimum length of an interval. Usually a batch fills and is inserted within this time, so an
/// interval covers the moments before and after an insert.
const INTERVAL: Duration = Duration::from_secs(1);

/// The saturation of one session's window; see the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Saturation {
    /// Start of the current interval, and time of the last sample in it.
    interval: Option<(Instant, Instant)>,
    /// Time for which the window was full in the current interval.
    full: Duration,
    /// Start of the current series of saturated intervals; `None` if the last interval was not
    /// saturated.
    since: Option<Instant>,
}

impl Saturation {
    /// Records whether the window is full now, and counts the time since the last call accordingly.
    /// Call it at each `handle_timeout`.
    pub(super) fn sample(&mut self, is_full: bool, now: Instant) {
        let (began, last) = self.interval.unwrap_or((now, now));
        if is_full {
            self.full += now.saturating_duration_since(last);
        }
        self.interval = Some((began, now));
        let length = now.saturating_duration_since(began);
        if length < INTERVAL {
            return;
        }
        self.since = (self.full * 2 >= length).then(|| self.since.unwrap_or(began));
        (self.interval, self.full) = (Some((now, now)), Duration::ZERO);
    }

    /// Resets the state after a connection ended, because the next connection begins with an empty
    /// window.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Returns how long the current series of saturated intervals has lasted; zero if the last
    /// interval was not saturated.
    pub(super) fn full_for(&self, now: Instant) -> Duration {
        self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes `samples` samples, one every 20 ms. In the first `full_of_ten` of every ten samples,
    /// the window is full. Returns how long the window has been saturated.
    fn saturated_for(full_of_ten: u32, samples: u32) -> Duration {
        let (mut saturation, began) = (Saturation::default(), Instant::now());
        let interval = Duration::from_millis(20);
        for index in 0..samples {
            saturation.sample(index % 10 < full_of_ten, began + interval * index);
        }
        saturation.full_for(began + interval * samples)
    }

    #[test]
    fn only_a_mostly_full_window_counts_as_saturated() {
        assert!(saturated_for(10, 600) >= Duration::from_secs(11));
        assert!(saturated_for(7, 600) >= Duration::from_secs(11));
        assert_eq!(saturated_for(3, 600), Duration::ZERO);
        assert_eq!(saturated_for(0, 600), Duration::ZERO);
    }

    #[test]
    fn saturation_ends_when_the_window_is_no_longer_full() {
        let (mut saturation, began) = (Saturation::default(), Instant::now());
        let at = |millis| began + Duration::from_millis(millis);
        (0..200).for_each(|index| saturation.sample(true, at(index * 20)));
        assert!(saturation.full_for(at(4_000)) >= Duration::from_secs(3));
        (200..260).for_each(|index| saturation.sample(false, at(index * 20)));
        assert_eq!(saturation.full_for(at(5_200)), Duration::ZERO);
    }
}
