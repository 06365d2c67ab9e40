//! Computes how long the thread of `app/event_loop.rs` sleeps between two rounds of reads.
//!
//! Brokers write each PUBLISH as a small segment. A reader that never waits pays a wake-up and a
//! recv for every message. A wake-up costs as much as fifty messages, mostly because caches have
//! gone cold. So a round should read a few hundred messages.

use std::time::Duration;

use milepost_core::Qos;
use milepost_core::session::window::SILENCE_MIN;

/// Number of bytes that should arrive between two rounds: a few hundred messages, and a quarter of
/// a socket buffer.
const TARGET_BYTES: usize = 32 * 1024;
/// Bytes added to the target for each further connection: a round costs one system call per
/// connection with data.
const TARGET_BYTES_PER_EXTRA_CONNECTION: usize = 8 * 1024;
/// Shortest delay after a round that received data, unless a deadline comes earlier.
const DELAY_MIN: Duration = Duration::from_millis(1);
/// Longest delay after a round that received data.
const DELAY_MAX: Duration = Duration::from_millis(50);
// A silence of the broker is suspicious after `SILENCE_MIN`. A delay must be too short to look like
// one.
const _: () = assert!(SILENCE_MIN.as_millis() >= 3 * DELAY_MAX.as_millis());
/// Longest delay of one connection at QoS 0. Only the socket's buffer and the broker's queue hold a
/// burst at QoS 0; messages that overflow them are lost. Each further connection adds the same time
/// to the longest delay, up to [`DELAY_MAX`].
const DELAY_MAX_QOS_0: Duration = Duration::from_millis(5);
/// Longest delay during a replay, which advances by one step per round.
const DELAY_MAX_REPLAYING: Duration = Duration::from_millis(5);
/// Window, in messages, below which the delay is [`DELAY_MIN`]: the broker fills a small window
/// soon, and then waits for PUBACKs until the delay ends.
const WINDOW_MIN: usize = 1_024;

/// The delay after a round that received data, adapted to the rate of received bytes.
#[derive(Debug)]
pub(super) struct ReadDelay {
    delay: Duration,
    qos: Qos,
}

impl ReadDelay {
    pub(super) fn new(qos: Qos) -> Self {
        Self { delay: DELAY_MIN, qos }
    }

    /// Returns the next delay.
    ///
    /// - `bytes`: number of bytes received since the last delay, on all connections
    /// - `connections`: number of connections that received any bytes
    /// - `window`: unacknowledged messages that the broker allows on the connection with the
    ///   smallest window
    /// - `is_replaying`: true while spool files are replayed
    pub(super) fn next(
        &mut self,
        bytes: usize,
        connections: usize,
        window: usize,
        is_replaying: bool,
    ) -> Duration {
        let extra_connections = connections.saturating_sub(1);
        let target = TARGET_BYTES + TARGET_BYTES_PER_EXTRA_CONNECTION * extra_connections;
        // The delay after which a round would have read the target, at the current rate.
        let fitting = self.delay.mul_f64(target as f64 / bytes.max(1) as f64);
        let max = match self.qos {
            _ if window < WINDOW_MIN => DELAY_MIN,
            _ if is_replaying => DELAY_MAX_REPLAYING,
            Qos::AtLeastOnce => DELAY_MAX,
            Qos::AtMostOnce => {
                DELAY_MAX.min(DELAY_MAX_QOS_0.mul_f64(1.0 + extra_connections as f64))
            }
        };
        // A burst shortens the delay at once; a lull lengthens it step by step.
        self.delay = fitting.min(self.delay * 5 / 4).clamp(DELAY_MIN, max);
        self.delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE_WINDOW: usize = 32_000;

    /// Simulates 1,000 rounds at this rate. Returns the average number of bytes per round, and the
    /// last delay.
    fn receive_at(bytes_per_second: f64, window: usize) -> (f64, Duration) {
        let (mut read_delay, mut delay) = (ReadDelay::new(Qos::AtLeastOnce), DELAY_MIN);
        let (mut bytes, rounds) = (0.0, 1_000);
        for _ in 0..rounds {
            let received = bytes_per_second * delay.as_secs_f64();
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "small and positive"
            )]
            let next = read_delay.next(received as usize, 1, window, false);
            (bytes, delay) = (bytes + received, next);
        }
        (bytes / f64::from(rounds), delay)
    }

    fn last_delay(bytes_per_second: f64, window: usize) -> Duration {
        let (_, delay) = receive_at(bytes_per_second, window);
        delay
    }

    #[test]
    fn each_round_reads_about_the_target() {
        for bytes_per_second in [2e6, 5e6, 2e7] {
            let (bytes, _) = receive_at(bytes_per_second, LARGE_WINDOW);
            assert!(
                (0.6..=1.1).contains(&(bytes / TARGET_BYTES as f64)),
                "{bytes} bytes a round at {bytes_per_second} bytes/s"
            );
        }
    }

    #[test]
    fn delay_stays_between_its_minimum_and_maximum() {
        assert_eq!(last_delay(100.0, LARGE_WINDOW), DELAY_MAX);
        assert_eq!(last_delay(1e9, LARGE_WINDOW), DELAY_MIN);
        let mut delay = ReadDelay::new(Qos::AtMostOnce);
        let longest = (0..100).map(|_| delay.next(0, 1, LARGE_WINDOW, false)).max();
        assert_eq!(longest, Some(DELAY_MAX_QOS_0));
    }

    #[test]
    fn replay_shortens_the_read_delay() {
        let mut delay = ReadDelay::new(Qos::AtLeastOnce);
        let longest = (0..100).map(|_| delay.next(0, 1, LARGE_WINDOW, true)).max();
        assert_eq!(longest, Some(DELAY_MAX_REPLAYING));
    }

    #[test]
    fn read_delay_grows_with_the_number_of_connections() {
        for (qos, delay_of_one, delay_of_eight) in [
            (Qos::AtLeastOnce, Duration::from_millis(8), Duration::from_millis(22)),
            (Qos::AtMostOnce, DELAY_MAX_QOS_0, Duration::from_millis(22)),
        ] {
            for (connections, expected) in [(1, delay_of_one), (8, delay_of_eight)] {
                let (mut read_delay, mut delay) = (ReadDelay::new(qos), DELAY_MIN);
                for _ in 0..100 {
                    #[expect(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        reason = "small"
                    )]
                    let received = (4e6 * delay.as_secs_f64()) as usize;
                    delay = read_delay.next(received, connections, LARGE_WINDOW, false);
                }
                let ratio = delay.as_secs_f64() / expected.as_secs_f64();
                assert!(
                    (0.9..1.1).contains(&ratio),
                    "{qos:?}, {connections} connections: {delay:?}"
                );
            }
        }
    }

    #[test]
    fn small_window_has_the_shortest_read_delay() {
        assert_eq!(last_delay(100.0, 32), DELAY_MIN);
        let mut delay = ReadDelay::new(Qos::AtLeastOnce);
        while delay.next(0, 1, LARGE_WINDOW, false) < DELAY_MAX {}
        assert_eq!(delay.next(0, 1, 32, false), DELAY_MIN, "the delay must shrink at once");
    }

    #[test]
    fn burst_resets_a_long_read_delay() {
        let mut delay = ReadDelay::new(Qos::AtLeastOnce);
        while delay.next(0, 1, LARGE_WINDOW, false) < DELAY_MAX {}
        assert_eq!(delay.next(1 << 21, 1, LARGE_WINDOW, false), DELAY_MIN);
    }
}
