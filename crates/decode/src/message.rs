//! Defines a message as the broker sent it.

/// Maximum bytes kept of a payload that is truncated or rejected.
pub const PAYLOAD_BYTES_MAX: usize = 64 * 1024;

/// A PUBLISH. Topic and payload are borrowed from the connection's read buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    pub topic: &'a [u8],
    /// The payload, or at least its first [`PAYLOAD_BYTES_MAX`] bytes.
    pub payload: &'a [u8],
    /// Length as sent. Larger than the length of `payload` if the packet exceeded Maximum Packet
    /// Size.
    pub payload_bytes: usize,
    /// Packet id, never 0; `None` at QoS 0.
    pub packet_id: Option<u16>,
    /// The DUP flag: the broker may have sent the message before.
    pub redelivered: bool,
}

impl<'a> Message<'a> {
    /// Creates an untruncated message at QoS 0, for commands and tests.
    #[must_use]
    pub fn new(topic: &'a [u8], payload: &'a [u8]) -> Self {
        Self { topic, payload, payload_bytes: payload.len(), packet_id: None, redelivered: false }
    }
}
