//! The in-flight window of a connection: how many unacknowledged messages the broker allows, as far
//! as milepost can learn it.
//!
//! Messages are acknowledged after the insert, so the window limits how many messages of this
//! connection a batch can have. When the window is full, the broker sends nothing more on this
//! connection until the batch is inserted. Waiting for more rows would then only delay the batch.
//!
//! CONNACK does not state the window reliably: its Receive Maximum limits what *we* may publish
//! (MQTT 5, 3.2.2.3.3). EMQX announces its delivery window as Receive Maximum; HiveMQ and Mosquitto
//! do not. So the window is a guess:
//!
//! - The first guess is the announced value, but at most our own Receive Maximum. If the broker
//!   announces no value, the first guess is our own Receive Maximum. If more messages than the
//!   guess are unacknowledged, the guess was too low, and our own Receive Maximum becomes the
//!   guess.
//! - If rows wait, and no message arrives for much longer than usual, the window may be full. To
//!   find out, a probe inserts the open batch early. If messages arrive again right after the
//!   acknowledgements, the probe is answered. If two consecutive probes are answered, at the same
//!   number of unacknowledged messages, that number becomes the guess.
//! - After an unanswered probe, no further probe is made for some time, so a quiet fleet causes few
//!   early inserts.

use std::time::{Duration, Instant};

/// Length of a suspicious silence, in average gaps between arrivals. Shorter silences than
/// [`SILENCE_MIN`] are never suspicious.
const SILENCE_GAPS: u32 = 20;
/// Shortest suspicious silence. Threads and brokers pause for milliseconds, and so does our own
/// read loop (`app/read_delay.rs`).
pub const SILENCE_MIN: Duration = Duration::from_millis(150);
/// Longest silence that leads to a probe. If the average gap times [`SILENCE_GAPS`] is longer, no
/// probe is made, and batches close by age. A longer gap enters the average as this value.
const SILENCE_MAX: Duration = Duration::from_millis(500);
/// A message answers a probe if it arrives soon enough after the acknowledgements: within the
/// length of the silence before the probe, divided by this number. A broker that waited for
/// acknowledgements sends as soon as it has them. A fleet that publishes in bursts sends its next
/// burst later.
const ANSWER_SILENCE_DIVISOR: u32 = 2;
/// Latest time for an answer to a probe, however long the silence was.
const PROBE_ANSWER_MAX: Duration = Duration::from_millis(100);
/// Pause after the first unanswered probe; doubles up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_secs(5);
/// Longest pause after an unanswered probe.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The in-flight window of one connection.
#[derive(Debug)]
pub struct Window {
    /// Receive Maximum in our CONNECT.
    receive_maximum: usize,
    /// Size of the window in messages, as far as it is known.
    guess: usize,
    /// Time between two arrivals, as a moving average.
    gap: Duration,
    last_arrival: Option<Instant>,
    /// The probe whose batch is not acknowledged yet, or whose answer may still arrive.
    probe: Option<Probe>,
    /// Number of unacknowledged messages at the last probe, if that probe was answered.
    unacked_at_answered_probe: Option<usize>,
    /// End of the pause after the last unanswered probe.
    no_probe_before: Option<Instant>,
    /// Pause after the next unanswered probe.
    pause: Duration,
}

/// An early insert that shows whether the window is full.
#[derive(Debug)]
struct Probe {
    /// Number of unacknowledged messages when the probe was made.
    unacked: usize,
    /// Time from the last arrival to the probe.
    silence: Duration,
    /// When the acknowledgements of the batch were sent; `None` until then.
    acked_at: Option<Instant>,
}

impl Window {
    /// Creates the window of a connection. `receive_maximum`: Receive Maximum in our CONNECT.
    pub fn new(receive_maximum: u16) -> Self {
        let receive_maximum = usize::from(receive_maximum);
        Self {
            receive_maximum,
            guess: receive_maximum,
            gap: SILENCE_MAX,
            last_arrival: None,
            probe: None,
            unacked_at_answered_probe: None,
            no_probe_before: None,
            pause: PAUSE_MIN,
        }
    }

    /// Resets the window for a new connection. `announced`: the Receive Maximum in the broker's
    /// CONNACK, if the CONNACK has it.
    pub fn connected(&mut self, announced: Option<u16>) {
        *self = Self::new(u16::try_from(self.receive_maximum).unwrap_or(u16::MAX));
        if let Some(announced) = announced {
            self.guess = usize::from(announced).min(self.receive_maximum);
        }
    }

    /// Records an arrival; `unacked` counts this message too.
    pub fn arrived(&mut self, unacked: usize, now: Instant) {
        // More messages are in flight than the guess allows, so the window is larger: start over.
        if unacked > self.guess {
            self.guess = self.receive_maximum;
            self.unacked_at_answered_probe = None;
        }
        self.expire_probe(now);
        if let Some(probe) = self.probe.take_if(|probe| probe.acked_at.is_some()) {
            if self.unacked_at_answered_probe == Some(probe.unacked) {
                self.guess = probe.unacked;
            }
            self.unacked_at_answered_probe = Some(probe.unacked);
            self.pause = PAUSE_MIN;
        } else if let Some(last) = self.last_arrival {
            // Leave the gap before an answer out of the average: the broker waited for
            // acknowledgements, so this gap does not show how often the fleet publishes.
            self.gap = (self.gap * 31 + now.duration_since(last).min(SILENCE_MAX)) / 32;
        }
        self.last_arrival = Some(now);
    }

    /// Returns when to send a probe: the time at which the silence since the last arrival becomes
    /// suspicious. `None` if no probe is due.
    pub fn probe_at(&self) -> Option<Instant> {
        let silence = (self.gap * SILENCE_GAPS).max(SILENCE_MIN);
        if silence > SILENCE_MAX || self.probe.is_some() {
            return None;
        }
        let probe_at = self.last_arrival? + silence;
        Some(self.no_probe_before.map_or(probe_at, |before| before.max(probe_at)))
    }

    /// Records a probe: the open batch closes early because of a suspicious silence. `unacked`:
    /// number of unacknowledged messages.
    pub fn probed(&mut self, unacked: usize, now: Instant) {
        let silence = self.last_arrival.map_or(Duration::ZERO, |last| now.duration_since(last));
        self.probe = Some(Probe { unacked, silence, acked_at: None });
    }

    /// Records that messages are durable, so their acknowledgements are sent now.
    pub fn acked(&mut self, now: Instant) {
        if let Some(probe) = &mut self.probe {
            probe.acked_at.get_or_insert(now);
        }
    }

    /// Drops a probe whose answer is overdue. The next probe follows after a pause, which doubles
    /// with each unanswered probe.
    pub fn expire_probe(&mut self, now: Instant) {
        let is_overdue = |probe: &mut Probe| {
            let answer_max = (probe.silence / ANSWER_SILENCE_DIVISOR).min(PROBE_ANSWER_MAX);
            probe.acked_at.is_some_and(|at| now.duration_since(at) > answer_max)
        };
        if self.probe.take_if(is_overdue).is_some() {
            self.unacked_at_answered_probe = None;
            self.no_probe_before = Some(now + self.pause);
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
    }

    /// Returns the size of the window, in messages, as far as it is known.
    pub fn messages(&self) -> usize {
        self.guess
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A broker with a window, a fleet with a rate, and inserts that take 20 ms.
    struct Scene {
        window: Window,
        now: Instant,
        unacked: usize,
        probes: u32,
    }

    impl Scene {
        fn new() -> Self {
            Self { window: Window::new(32_000), now: Instant::now(), unacked: 0, probes: 0 }
        }

        fn arrive(&mut self, count: usize, gap: Duration) {
            for _ in 0..count {
                self.now += gap;
                self.unacked += 1;
                self.window.arrived(self.unacked, self.now);
            }
        }

        /// Closes and acknowledges a batch as milepost does: waits until the silence is suspicious
        /// or the batch is old, and inserts the batch. Returns whether the silence was suspicious.
        fn flush(&mut self) -> bool {
            self.now += PROBE_ANSWER_MAX + Duration::from_millis(1);
            self.window.expire_probe(self.now);
            let probe_at =
                self.window.probe_at().filter(|at| *at <= self.now + Duration::from_millis(500));
            if probe_at.is_some() {
                self.window.probed(self.unacked, self.now);
                self.probes += 1;
            }
            self.now += Duration::from_millis(20);
            self.unacked = 0;
            self.window.acked(self.now);
            probe_at.is_some()
        }
    }

    #[test]
    fn announced_window_is_capped_and_dropped_if_exceeded() {
        let mut window = Window::new(32_000);
        window.connected(Some(65_535));
        assert_eq!(window.messages(), 32_000);
        window.connected(Some(32));
        window.arrived(32, Instant::now());
        assert_eq!(window.messages(), 32);
        window.arrived(33, Instant::now());
        assert_eq!(window.messages(), 32_000);
    }

    #[test]
    fn unannounced_window_is_learned_by_two_probes() {
        let mut scene = Scene::new();
        scene.arrive(200, Duration::from_micros(200)); // so that the usual gap is known
        scene.unacked = 0;
        // Answered probes at different counts do not show the window; two at the same count do.
        for (count, learned) in [(60, 32_000), (50, 32_000), (50, 50)] {
            scene.arrive(count, Duration::from_micros(200));
            assert!(scene.flush(), "silence with rows waiting is suspicious");
            scene.arrive(1, Duration::from_micros(200));
            assert_eq!(scene.window.messages(), learned);
            scene.unacked = 0;
        }
        scene.arrive(50, Duration::from_micros(200));
        scene.arrive(1, Duration::from_micros(200));
        assert_eq!(scene.window.messages(), 32_000, "one more message refutes the guess");
    }

    #[test]
    fn fleet_that_sends_in_bursts_is_rarely_probed() {
        let mut scene = Scene::new();
        scene.arrive(200, Duration::from_micros(200));
        for _ in 0..60 {
            scene.unacked = 0;
            scene.arrive(100, Duration::from_micros(100));
            scene.flush();
            scene.now += Duration::from_secs(1);
        }
        assert!(scene.probes < 12, "{} probes in a minute", scene.probes);
        assert_eq!(scene.window.messages(), 32_000);
    }

    #[test]
    fn slow_fleet_is_never_probed() {
        let mut scene = Scene::new();
        scene.arrive(300, Duration::from_millis(100));
        assert_eq!(scene.window.probe_at(), None);
        scene.window.gap = SILENCE_MAX / SILENCE_GAPS;
        assert_eq!(
            scene.window.probe_at(),
            Some(scene.now + SILENCE_MAX),
            "a fleet that is just fast enough for a probe"
        );
    }

    #[test]
    fn probe_is_answered_only_within_half_the_silence() {
        for (after_ms, is_answer) in [(75, true), (76, false)] {
            let mut scene = Scene::new();
            scene.arrive(200, Duration::from_micros(200));
            scene.now += SILENCE_MIN;
            scene.window.probed(scene.unacked, scene.now);
            scene.window.acked(scene.now);
            scene.arrive(1, Duration::from_millis(after_ms));
            assert_eq!(scene.window.unacked_at_answered_probe.is_some(), is_answer, "{after_ms}");
        }
    }
}
