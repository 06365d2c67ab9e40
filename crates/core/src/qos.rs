//! The delivery guarantee of a subscription.

/// The delivery guarantee of a subscription. milepost never requests QoS 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Qos {
    /// QoS 0: the broker sends each message once and forgets it.
    AtMostOnce,
    /// QoS 1: the broker keeps a message until it is acknowledged.
    AtLeastOnce,
}

impl Qos {
    /// Returns the number of the QoS in MQTT packets.
    pub const fn number(self) -> u8 {
        match self {
            Self::AtMostOnce => 0,
            Self::AtLeastOnce => 1,
        }
    }
}
