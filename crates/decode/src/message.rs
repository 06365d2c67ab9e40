//! A message, from the broker's bytes to the decoder.

/// Bytes that are kept of a payload that is truncated or rejected.
pub const PAYLOAD_BYTES_MAX: usize = 64 * 1024;

/// A PUBLISH. Topic and payload are borrowed from the connection's read buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    pub topic: &'a [u8],
    /// At least the first [`PAYLOAD_BYTES_MAX`] bytes of it.
    pub payload: &'a [u8],
    /// Length as sent: more than `payload` holds if the packet exceeded Maximum Packet Size.
    pub payload_bytes: usize,
    /// Never 0; `None` at QoS 0.
    pub packet_id: Option<u16>,
    /// DUP: the broker may have sent it before.
    pub redelivered: bool,
}

impl<'a> Message<'a> {
    /// A whole message at QoS 0, as commands and tests make it.
    #[must_use]
    pub fn new(topic: &'a [u8], payload: &'a [u8]) -> Self {
        Self { topic, payload, payload_bytes: payload.len(), packet_id: None, redelivered: false }
    }
}
