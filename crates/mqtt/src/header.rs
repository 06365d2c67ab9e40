//! Fixed headers, and the packets that rumqttc's codec decodes.

use bytes::{BufMut as _, BytesMut};
use rumqttc::v5::mqttbytes::Error as LibraryError;
use rumqttc::v5::mqttbytes::v5::Packet as LibraryPacket;

/// A fixed header (MQTT 5, 2.1).
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) body_bytes: usize,
}

impl Header {
    /// Returns the QoS of a PUBLISH, 0 to 3; 3 is invalid (MQTT-3.3.1-4).
    pub(super) fn qos(self) -> u8 {
        (self.flags >> 1) & 3
    }

    /// Returns the DUP flag: the broker has sent this message before.
    pub(super) fn is_redelivered(self) -> bool {
        self.flags & 8 != 0
    }

    /// Decodes a packet with the library. The library reads whole packets, so this method puts the
    /// fixed header back in front of the body.
    pub(super) fn decode_by_library(self, body: &[u8]) -> Result<LibraryPacket, LibraryError> {
        let mut packet = BytesMut::with_capacity(5 + body.len());
        packet.put_u8(self.kind << 4 | self.flags);
        put_varint(body.len(), &mut packet);
        packet.put_slice(body);
        LibraryPacket::read(&mut packet, None)
    }
}

/// Appends a Variable Byte Integer (MQTT 5, 1.5.5).
fn put_varint(mut value: usize, out: &mut BytesMut) {
    loop {
        let byte = u8::try_from(value % 128).unwrap_or(0);
        value /= 128;
        out.put_u8(if value > 0 { byte | 0x80 } else { byte });
        if value == 0 {
            return;
        }
    }
}
