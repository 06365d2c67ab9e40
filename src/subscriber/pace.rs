//! How long the lane's thread rests between two looks at its connection.
//!
//! Brokers write each PUBLISH as a small segment, so an eager reader pays a wake-up and a recv for every message.
//! A wake-up costs as much as fifty messages, most of it caches that have grown cold; so a turn should find a few hundred.

use std::time::Duration;

use crate::position::Qos;

/// What should come during a rest: a few hundred messages, and a quarter of what a socket's buffer holds.
const BYTES: usize = 32 * 1024;
const REST_MIN: Duration = Duration::from_millis(1);
/// A third of the shortest silence that a [`Window`](crate::window::Window) suspects.
const REST_MAX: Duration = Duration::from_millis(50);
/// Without acknowledgements nothing holds a burst back but the sockets' buffers; what overflows them and the broker's
/// queue is gone.
const REST_MAX_UNACKNOWLEDGED: Duration = Duration::from_millis(5);
/// A broker that lets us have fewer unacknowledged messages than this stops soon, and a long rest would be a pause.
const WINDOW_MIN: usize = 1_024;

/// The rest that suits what came lately.
#[derive(Debug)]
pub(super) struct Pace {
    rest: Duration,
    max: Duration,
}

impl Pace {
    pub(super) fn new(qos: Qos) -> Self {
        let max = match qos {
            Qos::AtMostOnce => REST_MAX_UNACKNOWLEDGED,
            Qos::AtLeastOnce => REST_MAX,
        };
        Self { rest: REST_MIN, max }
    }

    /// How long to rest now: `bytes` came since the rest before, and the broker lets us have `window` messages.
    pub(super) fn rest(&mut self, bytes: usize, window: usize) -> Duration {
        let suits = self.rest.mul_f64(BYTES as f64 / bytes.max(1) as f64);
        let max = if window < WINDOW_MIN { REST_MIN } else { self.max };
        // A burst shortens it at once, a lull lengthens it bit by bit.
        self.rest = suits.min(self.rest * 5 / 4).clamp(REST_MIN, max);
        self.rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOMY: usize = 32_000;

    /// Bytes a turn and the rest, after a while at this many bytes a second.
    fn settled(bytes_per_second: f64, window: usize) -> (f64, Duration) {
        let (mut pace, mut rest) = (Pace::new(Qos::AtLeastOnce), REST_MIN);
        let (mut bytes, turns) = (0.0, 1_000);
        for _ in 0..turns {
            let came = bytes_per_second * rest.as_secs_f64();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
            let next = pace.rest(came as usize, window);
            (bytes, rest) = (bytes + came, next);
        }
        (bytes / f64::from(turns), rest)
    }

    #[test]
    fn a_turn_takes_about_what_it_should() {
        for bytes_per_second in [2e6, 5e6, 2e7] {
            let (bytes, _) = settled(bytes_per_second, ROOMY);
            assert!((0.6..=1.1).contains(&(bytes / BYTES as f64)), "{bytes} at {bytes_per_second}");
        }
    }

    #[test]
    fn rests_are_bounded_both_ways() {
        assert_eq!(settled(100.0, ROOMY).1, REST_MAX);
        assert_eq!(settled(1e9, ROOMY).1, REST_MIN);
        let mut pace = Pace::new(Qos::AtMostOnce);
        let longest = (0..100).map(|_| pace.rest(0, ROOMY)).max();
        assert_eq!(longest, Some(REST_MAX_UNACKNOWLEDGED));
    }

    #[test]
    fn a_narrow_window_is_not_kept_waiting() {
        assert_eq!(settled(100.0, 32).1, REST_MIN);
        let mut pace = Pace::new(Qos::AtLeastOnce);
        while pace.rest(0, ROOMY) < REST_MAX {}
        assert_eq!(pace.rest(0, 32), REST_MIN, "from the moment it is known");
    }

    #[test]
    fn a_burst_ends_long_rests_at_once() {
        let mut pace = Pace::new(Qos::AtLeastOnce);
        while pace.rest(0, ROOMY) < REST_MAX {}
        assert_eq!(pace.rest(1 << 21, ROOMY), REST_MIN);
    }
}
