//! Raises the age at which a batch closes in a large group.
//!
//! Each insert creates parts in ClickHouse, even if the insert has few rows. With an age of
//! `batch.age_max`, each member that receives messages would insert at least once per
//! `batch.age_max`. So the age grows with the number of members, up to a bound. Below the bound, if
//! no batch closes for another reason, the whole group makes at most about [`INSERTS_PER_AGE`]
//! inserts per `batch.age_max`.
//!
//! Guarantee: the age is at least `batch.age_max`, and at most the larger of `batch.age_max` and
//! `batch.members_age_max`. Every other reason to close a batch still applies. While half of a
//! window or half of the buffer is used, the consumer ignores the raised age and uses
//! `batch.age_max`, so a broker with a full window never waits for a raised age.

use std::time::Duration;

/// Inserts of a large group per `batch.age_max`, if batches close by age and the age is below its
/// bound. In a group of at most this many members, the age is not raised.
const INSERTS_PER_AGE: u32 = 2;

/// The size of the group, and the age at which a batch closes in a group of that size.
#[derive(Debug)]
pub(super) struct GroupAge {
    /// `batch.age_max`.
    age_max: Duration,
    /// `batch.members_age_max`; zero: off.
    members_age_max: Duration,
    members: u32,
}

impl GroupAge {
    /// Assumes a group of one member.
    pub(super) fn new(age_max: Duration, members_age_max: Duration) -> Self {
        Self { age_max, members_age_max, members: 1 }
    }

    /// Sets the number of members. Returns the new age, if it changed.
    pub(super) fn set_members(&mut self, members: u32) -> Option<Duration> {
        let before = self.age();
        self.members = members;
        Some(self.age()).filter(|age| *age != before)
    }

    /// Returns the age at which a batch closes while the consumer is not under pressure
    /// (`Consumer::is_under_pressure`).
    pub(super) fn age(&self) -> Duration {
        let proportional = self.age_max.saturating_mul(self.members) / INSERTS_PER_AGE;
        proportional.min(self.members_age_max).max(self.age_max)
    }
}
