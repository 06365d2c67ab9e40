//! Erased drivers: milepost drops their messages and leaves their rows out of every insert.

use std::collections::HashSet;
use std::fmt;

use twox_hash::XxHash3_128;

use super::position::DriverId;

/// Erased drivers at a time. A member that cannot load the whole list inserts nothing.
pub const ERASED_MAX: usize = 50_000;

/// The list of erased drivers, read from ClickHouse at one moment.
#[derive(Default, PartialEq, Eq)]
pub struct Erased {
    ids: HashSet<Vec<u8>>,
    digest: u128,
    /// When somebody was last added or lifted, by the server's clock: of two lists the one with the lower is the older.
    changed_ms: u64,
}

impl fmt::Debug for Erased {
    /// Without the ids: they do not belong in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} drivers, {}", self.ids.len(), self.digest())
    }
}

impl Erased {
    /// `ids` in any order.
    #[must_use]
    pub fn new(ids: impl IntoIterator<Item = String>) -> Self {
        let mut sorted: Vec<String> = ids.into_iter().collect();
        sorted.sort_unstable();
        let digest = if sorted.is_empty() { 0 } else { XxHash3_128::oneshot(sorted.join("\n").as_bytes()) };
        Self { ids: sorted.into_iter().map(String::into_bytes).collect(), digest, changed_ms: 0 }
    }

    pub(crate) fn changed_at(self, changed_ms: u64) -> Self {
        Self { changed_ms, ..self }
    }

    /// It comes from a replica that lags, say.
    pub(crate) fn is_older_than(&self, other: &Self) -> bool {
        self.changed_ms < other.changed_ms
    }

    #[must_use]
    pub(crate) fn count(&self) -> usize {
        self.ids.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    #[must_use]
    pub(crate) fn has(&self, driver_id: &DriverId) -> bool {
        self.has_bytes(driver_id.as_bytes())
    }

    /// As [`Self::has`], with the id as RowBinary encodes it.
    #[must_use]
    pub fn has_bytes(&self, driver_id: &[u8]) -> bool {
        self.ids.contains(driver_id)
    }

    /// Those who are not in the other list, in any order.
    pub(crate) fn not_in<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a str> {
        self.ids.difference(&other.ids).filter_map(|id| str::from_utf8(id).ok())
    }

    /// A hash of the list: equal lists have equal digests, and the ids cannot be read from it.
    #[must_use]
    pub fn digest(&self) -> String {
        format!("{:032x}", self.digest)
    }
}
