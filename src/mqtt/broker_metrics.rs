//! The question for the broker's own counters (`mqtt.broker_metrics`): a second SUBSCRIBE, on the first session alone, once
//! the broker has granted the first one. What comes of it is counted in `consumer/broker_drops.rs`.
//!
//! Guarantee: whatever the answer is, positions go on. A broker that refuses is told of once. One that closes the
//! connection instead of answering is not asked again.

use tracing::{info, warn};

use super::codec::Grant;
use crate::consumer::broker_drops::FILTER;
use crate::intake::SessionIndex;

/// Every session would hear the same.
const ASKING: SessionIndex = 0;
/// So many questions in a row without an answer: it is the question that ends the connections.
const UNANSWERED_MAX: u32 = 3;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct BrokerMetrics {
    /// The configuration wants it.
    wanted: Option<String>,
    /// Questions since the last answer.
    unanswered: u32,
    /// The answer that was last told.
    granted: Option<bool>,
}

impl BrokerMetrics {
    pub(super) fn new(wanted: bool) -> Self {
        Self { wanted: wanted.then(|| FILTER.to_owned()), unanswered: 0, granted: None }
    }

    /// Whether this session is to ask, now that it is subscribed; `true`: it does.
    pub(super) fn asks(&mut self, index: SessionIndex) -> bool {
        if self.filters(index).is_empty() {
            return false;
        }
        if self.unanswered == UNANSWERED_MAX {
            self.wanted = None;
            warn!(
                "the broker ended {UNANSWERED_MAX} connections instead of answering our question for its counters \
                 ({FILTER}): it is not asked again; set mqtt.broker_metrics = false, or let this user subscribe to them"
            );
            return false;
        }
        self.unanswered += 1;
        true
    }

    /// What this session asks for.
    pub(super) fn filters(&self, index: SessionIndex) -> &[String] {
        if index == ASKING { self.wanted.as_slice() } else { &[] }
    }

    /// SUBACK.
    pub(super) fn answered(&mut self, grants: &[Grant]) {
        self.unanswered = 0;
        let granted = grants.iter().all(|grant| matches!(grant, Grant::Granted(_)));
        if self.granted.replace(granted) == Some(granted) {
            return;
        }
        if granted {
            info!("the broker tells us what it drops ({FILTER}): milepost_broker_dropped_total");
        } else {
            info!(
                "the broker does not tell us what it drops ({FILTER}: {grants:?}): milepost_broker_dropped_total stays \
                 0; let this user subscribe to it (EMQX: acl.conf), or set mqtt.broker_metrics = false"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::events::Qos;

    #[test]
    fn only_the_first_session_asks_and_only_if_that_is_wanted() {
        assert!(!BrokerMetrics::new(false).asks(0));
        let mut metrics = BrokerMetrics::new(true);
        assert!(!metrics.asks(1));
        assert!(metrics.filters(1).is_empty());
        assert!(metrics.asks(0));
        assert_eq!(metrics.filters(0), [FILTER]);
    }

    #[test]
    fn a_broker_that_answers_is_asked_on_every_connection() {
        let mut metrics = BrokerMetrics::new(true);
        for grant in [Grant::NotAuthorized, Grant::Granted(Qos::AtMostOnce)].iter().cycle().take(20) {
            assert!(metrics.asks(0));
            metrics.answered(std::slice::from_ref(grant));
        }
    }

    #[test]
    fn a_broker_that_closes_instead_is_left_alone() {
        let mut metrics = BrokerMetrics::new(true);
        for _ in 0..UNANSWERED_MAX {
            assert!(metrics.asks(0));
        }
        assert!(!metrics.asks(0));
        assert!(!metrics.asks(0));
        assert!(metrics.filters(0).is_empty());
    }
}
