//! Counts messages that the broker reports as dropped. EMQX publishes its counters about once a
//! minute to subscribers of [`FILTER`].
//!
//! Each node has its own counters, which start at 0 when the node restarts. This module adds up
//! their increases over all nodes and restarts, so its counts never decrease. Drops before the
//! first report of a node are not counted.
//!
//! A report is recognised by its topic. Reports are not decoded, and they do not count as received
//! messages.

use std::collections::BTreeMap;

/// Topic filter that matches every counter of every node. The broker's access rules must allow
/// exactly this filter.
pub const FILTER: &str = "$SYS/brokers/+/metrics/#";
/// Prefix of the brokers' own topics. A filter that begins with a wildcard does not match them
/// (MQTT-4.7.2-1).
const BROKER_TOPICS_PREFIX: &[u8] = b"$SYS/";
/// Maximum number of nodes whose drops are counted. Reports of further nodes are ignored.
const NODES_MAX: usize = 64;

/// Why a broker dropped messages. For each reason: the label of milepost's metric, and the name of
/// EMQX's counter below `metrics/`.
pub const REASONS: [(&str, &str); 6] = [
    // A session's queue was full, and the oldest message was dropped.
    ("queue_full", "delivery/dropped/queue_full"),
    // The message's expiry interval had passed.
    ("expired", "delivery/dropped/expired"),
    // The message was larger than the subscriber accepts.
    ("too_large", "delivery/dropped/too_large"),
    // A QoS 0 message, for a session that was disconnected or full.
    ("qos0", "delivery/dropped/qos0_msg"),
    // No session, connected or not, was subscribed to the topic.
    ("no_subscribers", "messages/dropped/no_subscribers"),
    // The publisher exceeded a limit.
    ("quota_exceeded", "messages/dropped/quota_exceeded"),
];

/// Messages dropped, in the order of [`REASONS`].
pub type Dropped = [u64; REASONS.len()];

/// The reported drops of all nodes.
#[derive(Debug, Default)]
pub(super) struct BrokerDrops {
    /// Each node's last reported counters, by the node's name and in the order of [`REASONS`].
    /// `None`: not reported yet.
    nodes: BTreeMap<Vec<u8>, [Option<u64>; REASONS.len()]>,
    /// Sums over all nodes, each counted from the node's first report.
    dropped: Dropped,
}

impl BrokerDrops {
    pub(super) fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// If the message reports one of the counters in [`REASONS`], counts the drops that it reports.
    /// Returns whether the topic is one of the broker's own (`$SYS/…`); such a message is not for
    /// the intake.
    pub(super) fn handle_message(&mut self, topic: &[u8], payload: &[u8]) -> bool {
        let Some(topic) = topic.strip_prefix(BROKER_TOPICS_PREFIX) else { return false };
        if let Some((node, reason, count)) = counter(topic, payload) {
            self.count(node, reason, count);
        }
        true
    }

    fn count(&mut self, node: &[u8], reason: usize, count: u64) {
        if self.nodes.len() == NODES_MAX && !self.nodes.contains_key(node) {
            return;
        }
        let counters = self.nodes.entry(node.to_vec()).or_default();
        let added = match counters[reason].replace(count) {
            None => 0,
            // A value below the last one shows that the node restarted and counts from 0 again.
            Some(last) => count.checked_sub(last).unwrap_or(count),
        };
        self.dropped[reason] = self.dropped[reason].saturating_add(added);
    }
}

/// Parses a report: topic `brokers/{node}/metrics/{counter}`, payload a number. Returns the node,
/// the index of the reason in [`REASONS`], and the number. `None` for any other report.
fn counter<'a>(topic: &'a [u8], payload: &[u8]) -> Option<(&'a [u8], usize, u64)> {
    let topic = topic.strip_prefix(b"brokers/")?;
    let node = topic.split(|byte| *byte == b'/').next()?;
    let name = topic[node.len()..].strip_prefix(b"/metrics/")?;
    let reason = REASONS.iter().position(|(_, counter)| counter.as_bytes() == name)?;
    let count = std::str::from_utf8(payload).ok()?.parse().ok()?;
    Some((node, reason, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE_FULL: &str = "metrics/delivery/dropped/queue_full";

    /// Reports a counter. Returns the number of drops with the reason `queue_full` so far.
    fn report(drops: &mut BrokerDrops, node: &str, counter: &str, payload: &str) -> u64 {
        let topic = format!("$SYS/brokers/{node}/{counter}");
        assert!(drops.handle_message(topic.as_bytes(), payload.as_bytes()));
        drops.dropped()[0]
    }

    #[test]
    fn drops_are_counted_from_the_first_report_on() {
        let mut drops = BrokerDrops::default();
        assert_eq!(
            report(&mut drops, "a", QUEUE_FULL, "700"),
            0,
            "drops before the first report do not count"
        );
        assert_eq!(report(&mut drops, "a", QUEUE_FULL, "700"), 0);
        assert_eq!(report(&mut drops, "a", QUEUE_FULL, "705"), 5);
        assert_eq!(report(&mut drops, "a", QUEUE_FULL, "3"), 8, "a restarted broker counts from 0");
        assert_eq!(report(&mut drops, "a", QUEUE_FULL, "4"), 9);
    }

    #[test]
    fn drops_are_summed_over_at_most_64_nodes() {
        let mut drops = BrokerDrops::default();
        for count in ["1", "2"] {
            for node in 0..2 * NODES_MAX {
                report(&mut drops, &node.to_string(), QUEUE_FULL, count);
            }
        }
        assert_eq!(drops.dropped()[0], NODES_MAX as u64);
    }

    #[test]
    fn drops_are_counted_by_reason_and_other_reports_ignored() {
        let mut drops = BrokerDrops::default();
        for count in ["0", "1"] {
            for (_, counter) in REASONS {
                report(&mut drops, "a", &format!("metrics/{counter}"), count);
            }
        }
        assert_eq!(drops.dropped(), [1; REASONS.len()]);
        for (counter, payload) in [
            ("metrics/delivery/dropped", "9"),
            (QUEUE_FULL, "-1"),
            (QUEUE_FULL, "many"),
            ("uptime", "9"),
            (QUEUE_FULL, ""),
        ] {
            report(&mut drops, "a", counter, payload);
        }
        assert_eq!(drops.dropped(), [1; REASONS.len()]);
        assert!(!drops.handle_message(b"drivers/d7/gps", b"1"), "not a topic of the broker itself");
    }
}
