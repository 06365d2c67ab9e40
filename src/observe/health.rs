//! What is wrong now, in words: the answers of `/readyz` and `/livez`.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A part that has not turned for this long hangs; an idle one turns every few seconds.
const BEAT_AGE_MAX: Duration = Duration::from_secs(30);

/// Shared by every part that can be in trouble.
#[derive(Debug, Default)]
pub(crate) struct Health {
    troubles: Mutex<BTreeMap<&'static str, Vec<String>>>,
    beats: Mutex<BTreeMap<&'static str, Instant>>,
}

impl Health {
    /// Why `part` cannot do its work, a line each; none: it does.
    pub(crate) fn set(&self, part: &'static str, troubles: Vec<String>) {
        lock(&self.troubles).insert(part, troubles);
    }

    /// `part` turned at `now`.
    pub(crate) fn beat(&self, part: &'static str, now: Instant) {
        lock(&self.beats).insert(part, now);
    }

    /// Why this process does not do its work, a line each; empty when it does.
    #[must_use]
    pub(crate) fn unready(&self) -> Vec<String> {
        lock(&self.troubles).values().flatten().cloned().collect()
    }

    /// What hangs and needs a restart, a line each.
    #[must_use]
    pub(crate) fn dead(&self, now: Instant) -> Vec<String> {
        let hangs = |(part, beat): (&&str, &Instant)| {
            let age = now.saturating_duration_since(*beat);
            (age > BEAT_AGE_MAX).then(|| format!("{part}: has not turned for {} s", age.as_secs()))
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
    fn a_part_is_unready_until_it_says_otherwise_and_dead_when_it_stops_turning() {
        let health = Health::default();
        let start = Instant::now();
        health.set("consumer", vec!["session 0: not subscribed yet".to_owned()]);
        assert_eq!(health.unready(), ["session 0: not subscribed yet"]);
        health.set("consumer", Vec::new());
        assert!(health.unready().is_empty());

        health.beat("consumer", start);
        assert!(health.dead(start + Duration::from_secs(30)).is_empty());
        assert_eq!(health.dead(start + Duration::from_secs(31)), ["consumer: has not turned for 31 s"]);
    }
}
