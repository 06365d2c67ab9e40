//! What CONNACK grants.

/// CONNACK's terms. The default is those of a CONNACK without properties.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConnAck {
    /// The broker still holds our session.
    pub session_present: bool,
    pub receive_maximum: Option<u16>,
    /// Server Keep Alive, in seconds; 0 is none.
    pub keep_alive_seconds: Option<u16>,
    /// Session Expiry Interval, where it is not the one we asked for.
    pub session_expiry_seconds: Option<u32>,
    /// The server's Maximum Packet Size: for what is published there.
    pub packet_bytes_max: Option<u32>,
    /// Shared Subscription Available is 0.
    pub no_shared_subscriptions: bool,
}
