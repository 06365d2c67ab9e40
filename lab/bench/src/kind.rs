//! The kinds of consumers.

/// A kind of consumer, in the order of the report.
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

    /// Returns the HTTP path that reports readiness, and the text that its answer contains once the
    /// consumer is ready.
    pub(crate) fn readiness_probe(self) -> (&'static str, &'static str) {
        match self {
            Self::Milepost | Self::Node | Self::Floor => ("/readyz", ""),
            // Telegraf reports this metric once all inputs have started. mqtt_consumer has started
            // when its SUBACK arrives.
            Self::Telegraf => ("/metrics", "internal_mqtt_consumer_messages_received"),
        }
    }
}
