//! State that all connections share: the dialer, the filters, and throttles of log lines that would
//! otherwise repeat for each connection.

use std::collections::BTreeSet;
use std::time::Instant;

use tracing::warn;

use super::broker_metrics::BrokerMetrics;
use super::dialer::Dialer;
use milepost_config as config;
use milepost_core::Qos;
use milepost_core::consumer::nodes::Node;
use milepost_core::session::ConnAck;
use milepost_core::throttle::Throttle;
use milepost_mqtt::Grant;
use milepost_tls::Address;

/// Returns the names by which the consumer knows the nodes, such as `10.0.0.1:1883`.
pub(crate) fn names(addresses: &[Address]) -> Vec<Node> {
    addresses.iter().map(|address| address.to_string().into()).collect()
}

pub(crate) struct Shared {
    pub(super) mqtt: config::Mqtt,
    pub(super) dialer: Dialer,
    /// The broker's nodes.
    addresses: Vec<Address>,
    /// Nodes that have accepted a CONNECT.
    pub(super) answered: BTreeSet<Node>,
    /// The topic filter of each source: `$share/GROUP/TOPIC`.
    pub(super) filters: Vec<String>,
    pub(super) metrics: BrokerMetrics,
    expiry_log: Throttle,
}

impl Shared {
    pub(crate) fn new(mqtt: config::Mqtt) -> Self {
        let share = |topic: &String| format!("$share/{}/{topic}", mqtt.group);
        let filters = mqtt.topics.iter().map(share).collect();
        Self {
            dialer: Dialer::new(&mqtt),
            addresses: mqtt.nodes.clone(),
            answered: BTreeSet::new(),
            filters,
            metrics: BrokerMetrics::new(mqtt.broker_metrics),
            mqtt,
            expiry_log: Throttle::once(),
        }
    }

    /// Sets the broker's nodes as they were last resolved. Returns their names for the consumer.
    pub(crate) fn set_nodes(&mut self, addresses: &[Address]) -> Vec<Node> {
        self.addresses = addresses.to_vec();
        names(addresses)
    }

    /// Returns the address of a node; the first address if the list no longer has the node.
    pub(super) fn address(&self, node: &Node) -> Address {
        let named = self.addresses.iter().find(|address| address.to_string() == **node);
        named.unwrap_or(&self.addresses[0]).clone()
    }

    /// Logs, once for all sessions, that the broker granted a shorter session expiry than
    /// requested.
    pub(super) fn log_shorter_expiry(&mut self, connack: ConnAck, now: Instant) {
        let requested = self.mqtt.session_expiry.as_secs();
        if let Some(granted) =
            connack.session_expiry_seconds.map(u64::from).filter(|granted| *granted < requested)
            && self.expiry_log.allow(now)
        {
            warn!(
                granted_s = granted,
                asked_s = requested,
                "the broker keeps sessions for less than mqtt.session_expiry: \
                 a longer absence loses the queued messages"
            );
        }
    }

    /// Returns the reason for each filter that the broker did not grant as requested.
    pub(super) fn refusals(&self, grants: &[Grant]) -> Vec<String> {
        let requested = self.mqtt.qos;
        let refusal = |(index, filter): (usize, &String)| match grants.get(index) {
            Some(Grant::Granted(Qos::AtMostOnce)) if requested == Qos::AtLeastOnce => {
                Some(format!(
                    "{filter}: only QoS 0 granted, at which the broker expects no acknowledgement; \
                     configure it to grant QoS 1"
                ))
            }
            Some(Grant::Granted(Qos::AtMostOnce | Qos::AtLeastOnce)) => None,
            Some(Grant::NotAuthorized) => Some(format!(
                "{filter}: not authorized. A starting broker also reports this; if it lasts, allow \
                 this user to subscribe to it in the broker's ACL"
            )),
            Some(Grant::NoSharedSubscriptions) => {
                Some(format!("{filter}: the broker has no shared subscriptions; enable them"))
            }
            Some(Grant::Refused(why)) => Some(format!("{filter}: {why}")),
            None => Some(format!("{filter}: missing from the broker's SUBACK")),
        };
        self.filters.iter().enumerate().filter_map(refusal).collect()
    }
}
