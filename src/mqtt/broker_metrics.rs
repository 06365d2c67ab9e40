//! Subscribes to the broker's own counters (`mqtt.broker_metrics`). Only session 0 does so, with a
//! second SUBSCRIBE, after the broker has granted its subscription to the topics.
//! `consumer/broker_drops.rs` counts the reports.
//!
//! Guarantee: the broker's answer does not affect the positions. milepost logs an answer that
//! differs from the last one. If the broker closes three connections in a row instead of answering,
//! milepost stops subscribing to the counters.

use tracing::{info, warn};

use milepost_core::consumer::broker_drops::FILTER;
use milepost_core::intake::SessionIndex;
use milepost_mqtt::Grant;

/// The session that subscribes to the counters. Every session would receive the same reports.
const COUNTER_SESSION: SessionIndex = 0;
/// After this many consecutive connections that ended without a SUBACK, milepost assumes that the
/// subscription to the counters ended them.
const UNANSWERED_MAX: u32 = 3;

#[derive(Debug)]
pub(super) struct BrokerMetrics {
    /// Filter of the counters; `None`: do not subscribe to them.
    filter: Option<String>,
    /// Consecutive subscriptions without a SUBACK.
    unanswered: u32,
    /// Whether the last answer granted the subscription; `None` before the first answer.
    granted: Option<bool>,
}

impl BrokerMetrics {
    pub(super) fn new(enabled: bool) -> Self {
        Self { filter: enabled.then(|| FILTER.to_owned()), unanswered: 0, granted: None }
    }

    /// Called when a session's own subscription is granted. Returns `true` if the session must now
    /// send a SUBSCRIBE for the counters; that SUBSCRIBE then counts as unanswered until
    /// [`Self::handle_suback`]. After [`UNANSWERED_MAX`] consecutive unanswered subscriptions,
    /// returns `false` for as long as the process runs.
    pub(super) fn begin_subscription(&mut self, index: SessionIndex) -> bool {
        if self.filters(index).is_empty() {
            return false;
        }
        if self.unanswered == UNANSWERED_MAX {
            self.filter = None;
            warn!(
                "the broker closed {UNANSWERED_MAX} connections instead of answering a \
                 subscription to its counters ({FILTER}): milepost stops asking; set \
                 mqtt.broker_metrics = false, or let this user subscribe to them"
            );
            return false;
        }
        self.unanswered += 1;
        true
    }

    /// Returns the filter of the counters if this session subscribes to them, else no filter.
    pub(super) fn filters(&self, index: SessionIndex) -> &[String] {
        if index == COUNTER_SESSION { self.filter.as_slice() } else { &[] }
    }

    /// Logs the broker's answer, if it differs from the last one.
    pub(super) fn handle_suback(&mut self, grants: &[Grant]) {
        self.unanswered = 0;
        let granted = grants.iter().all(|grant| matches!(grant, Grant::Granted(_)));
        if self.granted.replace(granted) == Some(granted) {
            return;
        }
        if granted {
            info!(
                "the broker reports what it drops ({FILTER}): \
                 milepost_broker_dropped_total counts it"
            );
        } else {
            info!(
                "the broker does not report what it drops ({FILTER}: {grants:?}): \
                 milepost_broker_dropped_total stays 0; let this user subscribe to it (EMQX: \
                 acl.conf), or set mqtt.broker_metrics = false"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use milepost_core::Qos;

    #[test]
    fn only_the_first_session_subscribes_to_counters_if_configured() {
        assert!(!BrokerMetrics::new(false).begin_subscription(0));
        let mut metrics = BrokerMetrics::new(true);
        assert!(!metrics.begin_subscription(1));
        assert!(metrics.filters(1).is_empty());
        assert!(metrics.begin_subscription(0));
        assert_eq!(metrics.filters(0), [FILTER]);
    }

    #[test]
    fn counters_are_requested_on_every_connection_if_the_broker_answers() {
        let mut metrics = BrokerMetrics::new(true);
        for grant in [Grant::NotAuthorized, Grant::Granted(Qos::AtMostOnce)].iter().cycle().take(20)
        {
            assert!(metrics.begin_subscription(0));
            metrics.handle_suback(std::slice::from_ref(grant));
        }
    }

    #[test]
    fn counters_are_not_requested_after_three_unanswered_requests() {
        let mut metrics = BrokerMetrics::new(true);
        for _ in 0..UNANSWERED_MAX {
            assert!(metrics.begin_subscription(0));
        }
        assert!(!metrics.begin_subscription(0));
        assert!(!metrics.begin_subscription(0));
        assert!(metrics.filters(0).is_empty());
    }
}
