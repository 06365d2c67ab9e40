//! What is wrong right now, in words: the answer of `/readyz` and `/livez`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A lane that has not turned for this long hangs; an idle one turns every few seconds.
const BEAT_AGE_MAX: Duration = Duration::from_secs(30);

/// Shared by every room that can be in trouble.
#[derive(Debug, Default)]
pub struct Health {
    troubles: Mutex<BTreeMap<String, String>>,
    beats: Mutex<BTreeMap<String, Instant>>,
}

impl Health {
    /// `part` cannot do its work, because of `why`; `true` if that is new.
    pub fn trouble(&self, part: &str, why: impl Into<String>) -> bool {
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        troubles.insert(part.to_owned(), why.into()).is_none()
    }

    /// `part` does its work; `true` if that is new.
    pub fn fine(&self, part: &str) -> bool {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner).remove(part).is_some()
    }

    /// `part` turned at `now`.
    pub fn beat(&self, part: &str, now: Instant) {
        let mut beats = self.beats.lock().unwrap_or_else(PoisonError::into_inner);
        match beats.get_mut(part) {
            Some(beat) => *beat = now,
            None => drop(beats.insert(part.to_owned(), now)),
        }
    }

    /// Why this process does not do its work, a line each; empty when it does.
    #[must_use]
    pub fn unready(&self) -> Vec<String> {
        let troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        troubles.iter().map(|(part, why)| format!("{part}: {why}")).collect()
    }

    /// What hangs and needs a restart, a line each.
    #[must_use]
    pub fn dead(&self, now: Instant) -> Vec<String> {
        let beats = self.beats.lock().unwrap_or_else(PoisonError::into_inner);
        let hangs = |beat: Instant| now.duration_since(beat) > BEAT_AGE_MAX;
        let line = |(part, beat): (&String, &Instant)| {
            hangs(*beat)
                .then(|| format!("{part}: has not turned for {} s", now.duration_since(*beat).as_secs()))
        };
        beats.iter().filter_map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_unready_until_it_says_otherwise_and_dead_when_it_stops_turning() {
        let health = Health::default();
        let start = Instant::now();
        health.trouble("lane 0", "not connected");
        assert_eq!(health.unready(), ["lane 0: not connected"]);
        health.fine("lane 0");
        assert!(health.unready().is_empty());

        health.beat("lane 0", start);
        assert!(health.dead(start + Duration::from_secs(30)).is_empty());
        assert_eq!(health.dead(start + Duration::from_secs(31)), ["lane 0: has not turned for 31 s"]);
    }
}
