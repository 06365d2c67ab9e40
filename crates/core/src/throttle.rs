//! Limits log lines that would repeat: once, or at most once per interval.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Limits one log line.
#[derive(Debug)]
pub struct Throttle {
    /// Shortest time between two lines. `None`: one line until [`reset`](Self::reset).
    interval: Option<Duration>,
    /// Time of the last line; `None` since a reset.
    last: Option<Instant>,
}

impl Throttle {
    /// Allows one line until [`reset`](Self::reset).
    pub const fn once() -> Self {
        Self { interval: None, last: None }
    }

    /// Allows one line per interval.
    pub const fn every(interval: Duration) -> Self {
        Self { interval: Some(interval), last: None }
    }

    /// Returns whether to log now. If so, the interval starts anew.
    pub fn allow(&mut self, now: Instant) -> bool {
        let is_due = self
            .last
            .is_none_or(|last| self.interval.is_some_and(|interval| now >= last + interval));
        if is_due {
            self.last = Some(now);
        }
        is_due
    }

    /// Resets the limit. Call it when the condition has ended: its next occurrence is then logged
    /// at once.
    pub fn reset(&mut self) {
        self.last = None;
    }

    /// Returns whether to log now that `condition` holds. Resets the limit if `condition` is
    /// `false`.
    pub fn allow_while(&mut self, condition: bool, now: Instant) -> bool {
        if !condition {
            self.reset();
        }
        condition && self.allow(now)
    }
}

/// Limits the log line of a condition that may begin and end often: one line for each time that it
/// holds, but at most one per interval.
#[derive(Debug)]
pub struct ConditionThrottle {
    throttle: Throttle,
    /// The condition held at the last call.
    held: bool,
}

impl ConditionThrottle {
    pub const fn every(interval: Duration) -> Self {
        Self { throttle: Throttle::every(interval), held: false }
    }

    /// Returns whether to log now that the condition begins to hold. `holds`: whether it does.
    pub fn allow_beginning(&mut self, holds: bool, now: Instant) -> bool {
        let begins = holds && !self.held;
        self.held = holds;
        begins && self.throttle.allow(now)
    }
}

/// Limits the log lines of a failure that can have several reasons: each reason has a limit of its
/// own. Digits are ignored, so "no answer for 3 s" and "no answer for 4 s" count as the same
/// reason.
#[derive(Debug)]
pub struct ReasonThrottle {
    interval: Duration,
    /// The last reasons, the newest first.
    recent: VecDeque<(String, Throttle)>,
}

impl ReasonThrottle {
    /// Maximum number of reasons that are remembered.
    const MAX: usize = 4;

    pub const fn every(interval: Duration) -> Self {
        Self { interval, recent: VecDeque::new() }
    }

    /// Like [`Throttle::allow`], for this reason.
    pub fn allow(&mut self, why: &str, now: Instant) -> bool {
        let why: String = why.chars().filter(|c| !c.is_ascii_digit()).collect();
        if !self.recent.iter().any(|(reason, _)| *reason == why) {
            self.recent.truncate(Self::MAX - 1);
            self.recent.push_front((why.clone(), Throttle::every(self.interval)));
        }
        self.recent.iter_mut().any(|(reason, throttle)| *reason == why && throttle.allow(now))
    }

    /// Forgets all reasons: the next occurrence of each is logged at once.
    pub fn reset(&mut self) {
        self.recent.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttle_allows_once_per_interval_or_after_reset() {
        let began = Instant::now();
        let after = |seconds| began + Duration::from_secs(seconds);
        let (mut once, mut minutely) = (Throttle::once(), Throttle::every(Duration::from_secs(60)));
        assert_eq!(
            [0, 59, 60, 200].map(|seconds| once.allow(after(seconds))),
            [true, false, false, false]
        );
        assert_eq!(
            [0, 59, 60, 100, 120].map(|seconds| minutely.allow(after(seconds))),
            [true, false, true, false, true]
        );
        minutely.reset();
        assert!(minutely.allow(after(121)));
        assert_eq!(
            [true, true, false, true].map(|holds| once.allow_while(holds, began)),
            [false, false, false, true]
        );
    }

    #[test]
    fn condition_that_begins_often_is_logged_once_per_interval() {
        let began = Instant::now();
        let mut minutely = ConditionThrottle::every(Duration::from_secs(60));
        // Holds for ten seconds, then not for two.
        let logged = (0..240).filter(|&second| {
            minutely.allow_beginning(second % 12 < 10, began + Duration::from_secs(second))
        });
        assert_eq!(logged.collect::<Vec<_>>(), [0, 60, 120, 180]);
        assert!(minutely.allow_beginning(true, began + Duration::from_secs(240)));
        let lasts_for_an_hour = (241..3_840)
            .filter(|&second| minutely.allow_beginning(true, began + Duration::from_secs(second)));
        assert_eq!(lasts_for_an_hour.count(), 0);
    }

    #[test]
    fn alternating_reasons_are_each_logged_once_per_interval() {
        let began = Instant::now();
        let mut reasons = ReasonThrottle::every(Duration::from_secs(60));
        let mut logs =
            |why: &str, seconds| reasons.allow(why, began + Duration::from_secs(seconds));
        assert!(logs("refused", 0) && logs("no answer for 3 s", 1));
        for second in 2..60 {
            assert!(
                !logs("refused", second) && !logs(&format!("no answer for {second} s"), second)
            );
        }
        assert!(logs("refused", 60) && !logs("no answer for 9 s", 60));
        for why in ["a", "b", "c", "d", "e"] {
            assert!(logs(why, 61));
        }
        assert!(
            reasons.allow("a", began + Duration::from_secs(61)),
            "only four reasons are remembered"
        );
        reasons.reset();
        assert!(reasons.allow("e", began));
    }
}
