//! Where every position is.

use super::broker_drops::Dropped;
use crate::{delivery, intake, session};

/// Counts and levels of the whole process, all of one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// Of all sessions together.
    pub sessions: session::events::Totals,
    /// From messages to batches.
    pub intake: intake::Totals,
    /// From batches to durable rows.
    pub delivery: delivery::events::Totals,
    /// Messages that the broker says it dropped, by reason.
    pub(crate) broker_dropped: Dropped,
    /// Times that reading stopped at QoS 0 for want of room.
    pub(crate) held_back: u64,
    /// A session wanted to unsubscribe, and has not been able to.
    pub still_subscribed: bool,
}

impl Totals {
    /// Points and messages refused.
    #[must_use]
    pub(crate) fn rejected(&self) -> u64 {
        self.intake.rejected.iter().sum()
    }

    /// Messages that are in order and hold no fix.
    #[must_use]
    pub(crate) fn ignored(&self) -> u64 {
        self.intake.ignored.iter().sum()
    }

    /// Of drivers whose data is to be gone.
    #[must_use]
    pub fn erased(&self) -> u64 {
        self.intake.erased + self.delivery.erased
    }

    /// Received, and neither in ClickHouse nor in the spool.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.intake.in_flight + self.delivery.in_flight
    }

    /// `received + spool at start = inserted + rejected + ignored + shed + erased + quarantined + in spool + in flight`.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        let Self { intake, delivery, .. } = self;
        let gone = self.rejected() + self.ignored() + intake.shed + self.erased() + delivery.quarantined;
        intake.received + delivery.spool_at_start
            == delivery.inserted + gone + delivery.in_spool + self.in_flight()
    }
}
