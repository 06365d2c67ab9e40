//! What all connections share: how to connect, what to subscribe to, and what is said once for all of them.

use tracing::warn;

use super::broker_metrics::BrokerMetrics;
use super::codec::{ConnAck, Grant};
use super::dialer::Dialer;
use crate::config;
use crate::session::events::Qos;

/// What all transports share.
pub(super) struct Shared {
    pub(super) mqtt: config::Mqtt,
    pub(super) dialer: Dialer,
    /// What we subscribe to.
    pub(super) filters: Vec<String>,
    pub(super) metrics: BrokerMetrics,
    expiry_told: bool,
}

impl Shared {
    pub(super) fn new(mqtt: config::Mqtt) -> Self {
        let share = |topic: &String| format!("$share/{}/{topic}", mqtt.group);
        let filters = mqtt.topics.iter().map(share).collect();
        Self {
            dialer: Dialer::new(&mqtt),
            filters,
            metrics: BrokerMetrics::new(mqtt.broker_metrics),
            mqtt,
            expiry_told: false,
        }
    }

    /// Said once: it is the same for every session.
    pub(super) fn compare_expiry(&mut self, connack: ConnAck) {
        let asked = self.mqtt.session_expiry.as_secs();
        if let Some(granted) =
            connack.session_expiry_seconds.map(u64::from).filter(|granted| *granted < asked)
            && !std::mem::replace(&mut self.expiry_told, true)
        {
            warn!(
                granted_s = granted,
                asked_s = asked,
                "the broker keeps our sessions shorter than mqtt.session_expiry: a longer absence loses what it queued"
            );
        }
    }

    pub(super) fn former_answered(&self, refusals: &Vec<String>) {
        if !refusals.is_empty() {
            warn!(?refusals, filters = ?self.mqtt.unsubscribe, "the broker does not end former subscriptions (mqtt.unsubscribe)");
        }
    }

    pub(super) fn refusals(&self, grants: &[Grant]) -> Vec<String> {
        let asked = self.mqtt.qos;
        let refusal = |(index, filter): (usize, &String)| match grants.get(index) {
            Some(Grant::Granted(Qos::AtMostOnce)) if asked == Qos::AtLeastOnce => {
                Some(format!("{filter}: only QoS 0 granted; set mqtt.qos = 0 if losses are acceptable"))
            }
            Some(Grant::Granted(Qos::AtMostOnce | Qos::AtLeastOnce)) => None,
            Some(Grant::NotAuthorized) => {
                Some(format!("{filter}: not authorized; let this user subscribe to it in the broker's ACL"))
            }
            Some(Grant::NoSharedSubscriptions) => {
                Some(format!("{filter}: the broker has no shared subscriptions; enable them there"))
            }
            Some(Grant::Refused(why)) => Some(format!("{filter}: {why}")),
            None => Some(format!("{filter}: the broker did not answer to it")),
        };
        self.filters.iter().enumerate().filter_map(refusal).collect()
    }
}
