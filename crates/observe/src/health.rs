//! The state that `/readyz` and `/livez` report.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time without a heartbeat after which a part of the process, such as the consumer, counts as
/// hung. Even an idle part sends a heartbeat every few seconds.
const BEAT_AGE_MAX: Duration = Duration::from_secs(30);

/// The reasons and heartbeats that the parts of the process report.
#[derive(Debug, Default)]
pub struct Health {
    reasons: Mutex<BTreeMap<&'static str, Vec<String>>>,
    beats: Mutex<BTreeMap<&'static str, Instant>>,
}

impl Health {
    /// Sets why `part` does not work, one line per reason; empty if it works.
    pub fn set(&self, part: &'static str, reasons: Vec<String>) {
        lock(&self.reasons).insert(part, reasons);
    }

    /// Records a heartbeat of `part`.
    pub fn beat(&self, part: &'static str, now: Instant) {
        lock(&self.beats).insert(part, now);
    }

    /// Returns why this process does not work, one line per reason; empty if it works.
    #[must_use]
    pub fn unready(&self) -> Vec<String> {
        lock(&self.reasons).values().flatten().cloned().collect()
    }

    /// Returns one line for each part that hangs. If any part hangs, the process needs a restart.
    #[must_use]
    pub fn dead(&self, now: Instant) -> Vec<String> {
        let hangs = |(part, beat): (&&str, &Instant)| {
            let age = now.saturating_duration_since(*beat);
            (age > BEAT_AGE_MAX).then(|| format!("{part}: no heartbeat for {} s", age.as_secs()))
        };
        lock(&self.beats).iter().filter_map(hangs).collect()
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_is_unready_while_it_has_reasons_and_dead_without_heartbeat() {
        let health = Health::default();
        let start = Instant::now();
        health.set("consumer", vec!["session 0: not subscribed yet".to_owned()]);
        assert_eq!(health.unready(), ["session 0: not subscribed yet"]);
        health.set("consumer", Vec::new());
        assert!(health.unready().is_empty());

        health.beat("consumer", start);
        assert!(health.dead(start + Duration::from_secs(30)).is_empty());
        assert_eq!(
            health.dead(start + Duration::from_secs(31)),
            ["consumer: no heartbeat for 31 s"]
        );
    }
}
