//! Where every position is.

use std::time::Duration;

use super::broker_drops::Dropped;
use super::former::FormerTotals;
use super::nodes::Node;
use crate::{delivery, intake, session};

/// Counts and levels of the whole process, all of one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    pub sessions: session::events::Totals,
    pub intake: intake::Totals,
    pub delivery: delivery::events::Totals,
    /// The broker's nodes, each with the number of its subscribed sessions.
    pub nodes: Vec<(Node, u64)>,
    /// Messages that the broker reports as dropped.
    pub broker_dropped: Dropped,
    pub former: FormerTotals,
    /// The longest time for which a member's window has been full for most of the time.
    pub window_full_for: Duration,
    /// A session wanted to unsubscribe, and has not been able to.
    pub still_subscribed: bool,
}

impl Totals {
    /// Points and messages refused.
    pub fn rejected(&self) -> u64 {
        self.intake.rejected.iter().sum()
    }

    /// Valid messages without a fix.
    pub fn ignored(&self) -> u64 {
        self.intake.ignored.iter().sum()
    }

    /// Points of erased drivers.
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
