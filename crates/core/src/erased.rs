//! Erased drivers: milepost drops their messages and leaves their rows out of every insert.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use twox_hash::XxHash3_128;

use crate::counted::counted;
use crate::throttle::Throttle;
use milepost_decode::position::DriverId;

/// Maximum number of erased drivers. A member that cannot load the whole list inserts nothing.
pub const ERASED_MAX: usize = 50_000;

/// The version of a list of erased drivers. Of two lists, the one with the later change is newer.
/// If both have the same time of change, the one with more drivers ever listed is newer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ErasedVersion {
    /// Unix time of the last change, in milliseconds.
    pub changed_ms: u64,
    /// Number of drivers ever listed, including those whose erasure was lifted.
    pub drivers: u64,
}

/// The list of erased drivers, read from ClickHouse at one moment.
#[derive(Default, PartialEq, Eq)]
pub struct Erased {
    ids: HashSet<Vec<u8>>,
    digest: u128,
    version: ErasedVersion,
}

impl fmt::Debug for Erased {
    /// Omits the ids: they are personal data and do not belong in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", counted(self.ids.len(), "driver"), self.digest())
    }
}

impl Erased {
    /// Creates a list from ids in any order.
    #[must_use]
    pub fn new(ids: impl IntoIterator<Item = String>) -> Self {
        let mut sorted: Vec<String> = ids.into_iter().collect();
        sorted.sort_unstable();
        let digest =
            if sorted.is_empty() { 0 } else { XxHash3_128::oneshot(sorted.join("\n").as_bytes()) };
        Self {
            ids: sorted.into_iter().map(String::into_bytes).collect(),
            digest,
            version: ErasedVersion::default(),
        }
    }

    /// Returns the list with this version.
    #[must_use]
    pub fn with_version(self, version: ErasedVersion) -> Self {
        Self { version, ..self }
    }

    #[must_use]
    pub fn count(&self) -> usize {
        self.ids.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    #[must_use]
    pub fn contains(&self, driver_id: &DriverId) -> bool {
        self.contains_bytes(driver_id.as_bytes())
    }

    /// Like [`contains`](Self::contains), for the bytes of a driver's id.
    #[must_use]
    pub fn contains_bytes(&self, driver_id: &[u8]) -> bool {
        self.ids.contains(driver_id)
    }

    /// Returns the ids of this list that are not in the other list, in any order.
    pub fn not_in<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a str> {
        self.ids.difference(&other.ids).filter_map(|id| str::from_utf8(id).ok())
    }

    /// Returns a hash of the ids, in hexadecimal. Lists with the same ids have the same digest, and
    /// the digest does not reveal the ids.
    #[must_use]
    pub fn digest(&self) -> String {
        format!("{:032x}", self.digest)
    }
}

/// The newest list of erased drivers that was read from any replica.
#[derive(Debug)]
pub struct NewestErased {
    list: Arc<Erased>,
    /// Throttles the log line about an older list.
    older_log: Throttle,
}

impl Default for NewestErased {
    fn default() -> Self {
        Self { list: Arc::default(), older_log: Throttle::once() }
    }
}

impl NewestErased {
    pub fn list(&self) -> Arc<Erased> {
        Arc::clone(&self.list)
    }

    /// Replaces the list by `answer`, unless `answer` is older. Returns whether to log that
    /// `answer` is older, for example because a lagging replica sent it.
    pub fn update(&mut self, answer: Arc<Erased>, now: Instant) -> bool {
        let is_older = answer.version < self.list.version;
        if !is_older {
            self.list = answer;
        }
        self.older_log.allow_while(is_older, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erased_digest_ignores_order_and_debug_output_has_no_ids() {
        let list = |ids: &[&str]| Erased::new(ids.iter().map(|id| (*id).to_owned()));
        let (a_and_b, only_b) = (list(&["a", "b"]), list(&["b"]));
        assert_eq!(a_and_b.digest(), list(&["b", "a"]).digest());
        assert_ne!(a_and_b.digest(), only_b.digest());
        assert_eq!(format!("{a_and_b:?}"), format!("2 drivers, {}", a_and_b.digest()));
        assert_eq!(a_and_b.not_in(&only_b).collect::<Vec<_>>(), ["a"]);
        assert!(list(&[]).is_empty() && !only_b.is_empty() && a_and_b.count() == 2);
    }

    #[test]
    fn older_list_is_ignored_and_logged() {
        let list = |changed_ms| {
            Arc::new(Erased::default().with_version(ErasedVersion { changed_ms, drivers: 1 }))
        };
        let (mut newest, now) = (NewestErased::default(), Instant::now());
        let is_logged = [2, 2, 1, 3].map(|changed_ms| newest.update(list(changed_ms), now));
        assert_eq!(is_logged, [false, false, true, false]);
        assert_eq!(newest.list().version.changed_ms, 3);
    }
}
