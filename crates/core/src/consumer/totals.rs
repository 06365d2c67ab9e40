//! The counts of the whole process. Together they account for every position.

use std::time::Duration;

use super::broker_drops::Dropped;
use super::former_sessions::FormerSessionTotals;
use super::nodes::Node;
use crate::{delivery, intake, session};

/// Counters and gauges of the whole process, all read at the same moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConsumerTotals {
    pub sessions: session::events::SessionTotals,
    pub intake: intake::IntakeTotals,
    pub delivery: delivery::events::DeliveryTotals,
    /// The broker's nodes, each with the number of its subscribed sessions.
    pub nodes: Vec<(Node, u64)>,
    /// Messages that the broker reports as dropped.
    pub broker_dropped: Dropped,
    pub former_sessions: FormerSessionTotals,
    /// How long the window of a consuming session has been mostly full: the longest such time of
    /// all consuming sessions.
    pub window_full_for: Duration,
    /// Age at which the open batch closes.
    pub batch_age_max: Duration,
    /// At least one session is leaving, and its UNSUBACK has not arrived yet.
    pub still_subscribed: bool,
}

impl ConsumerTotals {
    /// Returns the number of rejected points and messages.
    pub fn rejected(&self) -> u64 {
        self.intake.rejected.iter().sum()
    }

    /// Returns the number of valid messages, or parts of a message, without a fix.
    pub fn ignored(&self) -> u64 {
        self.intake.ignored.iter().sum()
    }

    /// Returns the number of points of erased drivers.
    #[must_use]
    pub fn erased(&self) -> u64 {
        self.intake.erased + self.delivery.erased
    }

    /// Returns the number of positions that are neither in ClickHouse nor in the spool yet.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.intake.in_flight + self.delivery.in_flight
    }

    /// Returns whether the counters balance: `received + spool at start = inserted + rejected +
    /// ignored + shed + erased + quarantined + dropped + in spool + in flight`.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        let Self { intake, delivery, .. } = self;
        let lost = delivery.quarantined + delivery.dropped;
        let not_stored = self.rejected() + self.ignored() + intake.shed + self.erased() + lost;
        intake.received + delivery.spool_at_start
            == delivery.inserted + not_stored + delivery.in_spool + self.in_flight()
    }
}
