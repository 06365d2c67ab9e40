//! The consumers.

/// A consumer, in the report's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Milepost,
    Node,
    Telegraf,
    Floor,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Milepost, Self::Node, Self::Telegraf, Self::Floor];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Milepost => "milepost",
            Self::Node => "node",
            Self::Telegraf => "telegraf",
            Self::Floor => "floor",
        }
    }

    /// What it is, and when it acknowledges at QoS 1.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Milepost => "this project, its defaults; PUBACK after the durable insert, in order",
            Self::Node => {
                "mqtt.js, @clickhouse/client, prom-client on Node, async_insert off; PUBACK after the insert"
            }
            Self::Telegraf => {
                "mqtt_consumer → three processors that make the table's integers → sql (clickhouse-go, Native), \
                 MQTT 3.1.1; PUBACK after the insert"
            }
            Self::Floor => {
                "the least a consumer could cost: no validation, retries, reconnects or session; PUBACK after the insert"
            }
        }
    }

    /// Where it answers, and with which words, as soon as it is ready.
    pub(crate) fn ready(self) -> (&'static str, &'static str) {
        match self {
            Self::Milepost | Self::Node | Self::Floor => ("/readyz", ""),
            // Its inputs count from when all of them have started, and mqtt_consumer has with its SUBACK.
            Self::Telegraf => ("/metrics", "internal_mqtt_consumer_messages_received"),
        }
    }
}
