//! The terms that a broker grants in CONNACK.

/// The terms of one connection. A field is `None` if the CONNACK lacks its property. The default
/// value is a CONNACK without properties.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConnAck {
    /// The broker resumes the session: it still has our subscriptions and unacknowledged messages.
    pub session_present: bool,
    pub receive_maximum: Option<u16>,
    /// Server Keep Alive, in seconds; 0 turns it off.
    pub keep_alive_seconds: Option<u16>,
    /// Session Expiry Interval in seconds, if it differs from the one that we requested.
    pub session_expiry_seconds: Option<u32>,
    /// Maximum Packet Size: the largest packet that we may publish to this broker.
    pub packet_bytes_max: Option<u32>,
    /// Shared Subscription Available is 0: the broker refuses `$share/…` filters.
    pub no_shared_subscriptions: bool,
}
