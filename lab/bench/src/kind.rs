//! Who is measured, and what each says of itself.

/// A consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Milepost,
    Node,
    Bun,
    NodePublished,
    BunPublished,
    Telegraf,
    Bento,
    Floor,
}

/// Where a consumer's HTTP endpoints are, and what it calls what the bench reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Endpoints {
    pub(crate) ready: &'static str,
    /// What is in the answer when it is ready, and is not before.
    pub(crate) ready_says: &'static str,
    pub(crate) messages: &'static str,
    /// A histogram, in seconds.
    pub(crate) flush: Option<&'static str>,
}

const fn ours(messages: &'static str, flush: &'static str) -> Endpoints {
    Endpoints { ready: "/readyz", ready_says: "", messages, flush: Some(flush) }
}

const MILEPOST: Endpoints = ours("milepost_messages_received_total", "milepost_insert_duration_seconds");
const JAVASCRIPT: Endpoints = ours("peer_messages_received_total", "peer_insert_duration_seconds");
const FLOOR: Endpoints = ours("floor_messages_received_total", "floor_insert_duration_seconds");
/// Its inputs count from when all of them have started, and mqtt_consumer has with its SUBACK.
const TELEGRAF: Endpoints = Endpoints {
    ready: "/metrics",
    ready_says: "internal_mqtt_consumer_messages_received",
    messages: "internal_mqtt_consumer_messages_received",
    flush: None,
};
const BENTO: Endpoints = Endpoints {
    ready: "/ready",
    ready_says: "",
    messages: "input_received",
    flush: Some("output_latency_ns"),
};

impl Kind {
    /// In the order of the report.
    pub(crate) const ALL: [Self; 8] = [
        Self::Milepost,
        Self::Node,
        Self::Bun,
        Self::NodePublished,
        Self::BunPublished,
        Self::Telegraf,
        Self::Bento,
        Self::Floor,
    ];
    /// Those of `make bench`: the peers as ours, which promise the same as milepost.
    pub(crate) const QUICK: [Self; 4] = [Self::Milepost, Self::Node, Self::Bun, Self::Floor];
    /// All but the published ones, which differ from the others here in when they acknowledge alone.
    pub(crate) const WITHOUT_PUBLISHED: [Self; 6] =
        [Self::Milepost, Self::Node, Self::Bun, Self::Telegraf, Self::Bento, Self::Floor];

    /// Its name, what it is, when it acknowledges at QoS 1, and how it is asked.
    const fn facts(self) -> (&'static str, &'static str, &'static str, Endpoints) {
        match self {
            Self::Milepost => (
                "milepost",
                "this project, its defaults",
                "PUBACK after the durable insert, in order",
                MILEPOST,
            ),
            Self::Node => (
                "node",
                "mqtt.js, @clickhouse/client, prom-client on Node, as ours: async_insert off",
                "PUBACK after the insert",
                JAVASCRIPT,
            ),
            Self::Bun => {
                ("bun", "the same on Bun, metrics by Bun.serve", "PUBACK after the insert", JAVASCRIPT)
            }
            Self::NodePublished => (
                "node-published",
                "the same on Node as published: async_insert on",
                "PUBACK on receipt (a crash loses a batch)",
                JAVASCRIPT,
            ),
            Self::BunPublished => (
                "bun-published",
                "the same on Bun as published",
                "PUBACK on receipt (a crash loses a batch)",
                JAVASCRIPT,
            ),
            Self::Telegraf => (
                "telegraf",
                "Telegraf, mqtt_consumer → three processors that make the table's integers → sql (clickhouse-go, \
                 Native), MQTT 3.1.1",
                "PUBACK after the insert",
                TELEGRAF,
            ),
            Self::Bento => (
                "bento",
                "Bento, mqtt → sql_insert (clickhouse-go, Native), MQTT 3.1.1",
                "PUBACK on receipt, which no setting changes (a crash loses what is not inserted)",
                BENTO,
            ),
            Self::Floor => (
                "floor",
                "the least a consumer could cost: no validation, no retries, no reconnects, no session kept",
                "PUBACK after the insert",
                FLOOR,
            ),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        self.facts().0
    }

    pub(crate) fn what(self) -> &'static str {
        self.facts().1
    }

    /// When, at QoS 1.
    pub(crate) fn acknowledges(self) -> &'static str {
        self.facts().2
    }

    pub(crate) fn endpoints(self) -> Endpoints {
        self.facts().3
    }

    pub(crate) fn describe(self) -> String {
        format!("{}; {}", self.what(), self.acknowledges())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_consumer_says_when_it_acknowledges() {
        for kind in Kind::ALL {
            assert!(kind.acknowledges().starts_with("PUBACK "), "{}: {}", kind.name(), kind.describe());
        }
    }
}
