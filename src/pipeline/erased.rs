//! Drivers whose data is to be gone: nothing of them is taken, and nothing goes to ClickHouse.

use std::collections::HashSet;
use std::fmt;

use twox_hash::XxHash3_128;

use super::position::DriverId;

/// At most so many. A member that cannot know all of them inserts nothing.
pub const ERASED_MAX: usize = 50_000;

/// A list of drivers, as ClickHouse had it at one moment.
#[derive(Default, PartialEq, Eq)]
pub struct Erased {
    ids: HashSet<Vec<u8>>,
    digest: u128,
}

impl fmt::Debug for Erased {
    /// Not who: a log is no place for that.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} drivers, {}", self.ids.len(), self.digest())
    }
}

impl Erased {
    /// In any order.
    #[must_use]
    pub fn new(ids: impl IntoIterator<Item = String>) -> Self {
        let mut sorted: Vec<String> = ids.into_iter().collect();
        sorted.sort_unstable();
        let digest = if sorted.is_empty() { 0 } else { XxHash3_128::oneshot(sorted.join("\n").as_bytes()) };
        Self { ids: sorted.into_iter().map(String::into_bytes).collect(), digest }
    }

    /// How many.
    #[must_use]
    pub(crate) fn count(&self) -> usize {
        self.ids.len()
    }

    /// Nobody.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Whether this driver is one of them.
    #[must_use]
    pub(crate) fn has(&self, driver_id: &DriverId) -> bool {
        self.has_bytes(driver_id.as_str().as_bytes())
    }

    /// The same, as the id is encoded.
    #[must_use]
    pub fn has_bytes(&self, driver_id: &[u8]) -> bool {
        self.ids.contains(driver_id)
    }

    /// Equal lists have the same, and others do not; it tells nobody who is on it.
    #[must_use]
    pub fn digest(&self) -> String {
        format!("{:032x}", self.digest)
    }
}
