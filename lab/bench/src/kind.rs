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

    /// Where it answers, and with which words, as soon as it is ready.
    pub(crate) fn ready(self) -> (&'static str, &'static str) {
        match self {
            Self::Milepost | Self::Node | Self::Floor => ("/readyz", ""),
            // Its inputs count from when all of them have started, and mqtt_consumer has with its
            // SUBACK.
            Self::Telegraf => ("/metrics", "internal_mqtt_consumer_messages_received"),
        }
    }
}
