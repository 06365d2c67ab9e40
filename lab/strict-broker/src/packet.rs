//! Reading and writing of packets.
//!
//! rumqttc's codec does the work, with two exceptions that are handled here: the codec rejects a
//! DISCONNECT without a reason code, and asks for more bytes when a packet is malformed.

use std::rc::Rc;

use bytes::{BufMut as _, Bytes, BytesMut};
use lab_mqtt::put_length;
use rumqttc::v5::mqttbytes::v5::{
    Disconnect, DisconnectReasonCode, Packet, Publish, PublishProperties,
};
use rumqttc::v5::mqttbytes::{Error, QoS};

/// Largest packet that a client may send, in bytes.
pub(crate) const PACKET_BYTES_MAX: u32 = 1_048_576;
const DISCONNECT: u8 = 0xE0;

/// Error in a client's bytes, which ends its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Larger than [`PACKET_BYTES_MAX`].
    TooLarge,
    /// The CONNECT is not for MQTT 5.
    Version,
    /// The bytes are not an MQTT 5 packet.
    Malformed,
}

impl Fault {
    /// Returns the reason code of the CONNACK or DISCONNECT.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::TooLarge => 0x95,
            Self::Version => 0x84,
            Self::Malformed => 0x81,
        }
    }
}

/// Takes the first packet from `input` if it is complete.
pub(crate) fn read(input: &mut BytesMut) -> Result<Option<Packet>, Fault> {
    let length =
        lab_mqtt::length(input.get(1..).unwrap_or_default()).map_err(|_| Fault::Malformed)?;
    let Some((body, length_bytes)) = length else { return Ok(None) };
    let head = 1 + length_bytes;
    if head + body > PACKET_BYTES_MAX as usize {
        return Err(Fault::TooLarge);
    }
    if input.len() < head + body {
        input.reserve(head + body - input.len());
        return Ok(None);
    }
    if input[0] == DISCONNECT && body < 2 {
        let mut packet = input.split_to(head + body).split_off(head);
        packet.resize(1, DisconnectReasonCode::NormalDisconnection as u8);
        let reason = DisconnectReasonCode::try_from(packet[0]).map_err(|_| Fault::Malformed)?;
        return Ok(Some(Packet::Disconnect(Disconnect::new(reason))));
    }
    let mut frame = input.split_to(head + body);
    match Packet::read(&mut frame, None) {
        Ok(packet) => Ok(Some(packet)),
        Err(Error::InvalidProtocolLevel(_)) => Err(Fault::Version),
        Err(_) => Err(Fault::Malformed),
    }
}

/// Appends a packet. The codec refuses only packets that this broker never builds.
pub(crate) fn encode(packet: &Packet, out: &mut BytesMut) {
    packet.write(out, None).expect("our packets are small and complete");
}

/// Appends a CONNACK that refuses the client with this reason code, even one that rumqttc lacks.
pub(crate) fn encode_refusal(code: u8, out: &mut BytesMut) {
    out.put_slice(&[0x20, 3, 0, code, 0]);
}

/// Appends a DISCONNECT with this reason code, even one that rumqttc lacks.
pub(crate) fn encode_disconnect(code: u8, out: &mut BytesMut) {
    out.put_slice(&[DISCONNECT, 2, code, 0]);
}

/// Appends a SUBACK or UNSUBACK with a reason code for each filter, even codes that rumqttc lacks.
pub(crate) fn encode_codes(head: u8, packet_id: u16, codes: &[u8], out: &mut BytesMut) {
    out.put_u8(head);
    put_length(codes.len() + 3, out);
    out.put_u16(packet_id);
    out.put_u8(0);
    out.put_slice(codes);
}

/// A share group and its filter: `$share/NAME/FILTER`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) group: String,
    /// Topic filter that all members of the group subscribe to.
    pub(crate) filter: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Message {
    pub(crate) topic: Bytes,
    pub(crate) payload: Bytes,
    /// The smaller of the publisher's QoS and the subscription's.
    pub(crate) qos: QoS,
    pub(crate) properties: Option<Rc<PublishProperties>>,
    /// The group whose other members may receive the message; `None`: a plain subscription.
    pub(crate) share: Option<Rc<Share>>,
}

impl Message {
    pub(crate) fn new(publish: Publish) -> Self {
        let Publish { topic, payload, qos, properties, .. } = publish;
        Self { topic, payload, qos, properties: properties.map(Rc::new), share: None }
    }

    pub(crate) fn encode(&self, packet_id: u16, dup: bool, out: &mut BytesMut) {
        let publish = Publish {
            dup,
            qos: self.qos,
            retain: false,
            topic: self.topic.clone(),
            pkid: packet_id,
            payload: self.payload.clone(),
            properties: self.properties.as_deref().cloned(),
        };
        publish.write(out).expect("decoded from a packet");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(bytes: &[u8]) -> Result<Option<Packet>, Fault> {
        read(&mut BytesMut::from(bytes))
    }

    #[test]
    fn disconnect_may_omit_reason_and_properties() {
        for (bytes, reason) in [
            (&[0xE0, 0][..], DisconnectReasonCode::NormalDisconnection),
            (&[0xE0, 1, 4], DisconnectReasonCode::DisconnectWithWillMessage),
            (&[0xE0, 2, 0x81, 0], DisconnectReasonCode::MalformedPacket),
        ] {
            assert_eq!(read_all(bytes), Ok(Some(Packet::Disconnect(Disconnect::new(reason)))));
        }
    }

    #[test]
    fn truncated_field_in_a_complete_packet_is_malformed() {
        let publish = [0x30, 5, 0, 3, b'a', b'/', b'b']; // no length of its properties
        assert_eq!(read_all(&publish), Err(Fault::Malformed));
        assert_eq!(read_all(&publish[..6]), Ok(None));
        assert_eq!(read_all(&[0x30, 0x80, 0x80, 0x80, 0x80]), Err(Fault::Malformed));
    }

    #[test]
    fn oversized_packet_is_refused_from_its_length() {
        // The head has four bytes and the body 1,048,573, one above the limit.
        assert_eq!(read_all(&[0x30, 0xFD, 0xFF, 0x3F]), Err(Fault::TooLarge));
        assert_eq!(read_all(&[0x30, 0xFC, 0xFF, 0x3F]), Ok(None));
    }
}
