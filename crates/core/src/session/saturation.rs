//! Detects a window that stays full: the broker then sends the next message only when milepost
//! acknowledges one, and all others wait in the broker's queue.
//!
//! A window that fills shortly before each insert does not stay full. So time is divided into slots,
//! and a slot counts if the window was full for at least half of it.

use std::time::{Duration, Instant};

/// Length of a slot: shorter than the delay that matters, and longer than a batch takes to fill and
/// to be inserted.
const SLOT: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Saturation {
    /// Start of the current slot, and time of the last sample in it.
    slot: Option<(Instant, Instant)>,
    /// How long the window was full in this slot.
    full: Duration,
    /// Start of the first slot since which every slot counts.
    since: Option<Instant>,
}

impl Saturation {
    /// Records whether the window was full since the last call. Call it at every turn.
    pub(super) fn sample(&mut self, is_full: bool, now: Instant) {
        let (began, last) = self.slot.unwrap_or((now, now));
        if is_full {
            self.full += now.saturating_duration_since(last);
        }
        self.slot = Some((began, now));
        let length = now.saturating_duration_since(began);
        if length < SLOT {
            return;
        }
        self.since = (self.full * 2 >= length).then(|| self.since.unwrap_or(began));
        (self.slot, self.full) = (Some((now, now)), Duration::ZERO);
    }

    /// Resets the state after a connection ended: the next one begins with an empty window.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Returns for how long every slot has counted.
    pub(super) fn lasts(&self, now: Instant) -> Duration {
        self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays turns of 20 ms, `full_turns` of every ten with a full window.
    fn lasts_after(full_turns: u32, turns: u32) -> Duration {
        let (mut saturation, began) = (Saturation::default(), Instant::now());
        let turn = Duration::from_millis(20);
        for count in 0..turns {
            saturation.sample(count % 10 < full_turns, began + turn * count);
        }
        saturation.lasts(began + turn * turns)
    }

    #[test]
    fn only_a_mostly_full_window_counts_as_saturated() {
        assert!(lasts_after(10, 600) >= Duration::from_secs(11));
        assert!(lasts_after(7, 600) >= Duration::from_secs(11));
        assert_eq!(lasts_after(3, 600), Duration::ZERO);
        assert_eq!(lasts_after(0, 600), Duration::ZERO);
    }

    #[test]
    fn window_with_free_slots_ends_saturation() {
        let (mut saturation, began) = (Saturation::default(), Instant::now());
        let at = |millis| began + Duration::from_millis(millis);
        (0..200).for_each(|turn| saturation.sample(true, at(turn * 20)));
        assert!(saturation.lasts(at(4_000)) >= Duration::from_secs(3));
        (200..260).for_each(|turn| saturation.sample(false, at(turn * 20)));
        assert_eq!(saturation.lasts(at(5_200)), Duration::ZERO);
    }
}
