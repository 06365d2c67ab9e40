//! Packets as they come and go.
//!
//! rumqttc's codec does the work. It takes a DISCONNECT without a reason for damage, and says of a
//! damaged packet that more bytes are wanted: both are mended here.

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

/// Why a client's bytes end its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Larger than we said that we take.
    TooLarge,
    Version,
    /// The bytes are no MQTT 5 packet.
    Malformed,
}

impl Fault {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::TooLarge => 0x95,
            Self::Version => 0x84,
            Self::Malformed => 0x81,
        }
    }
}

/// Takes the first packet from `input`, if it is there as a whole.
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

/// Appends what the codec writes. It refuses only what we never build.
pub(crate) fn put(packet: &Packet, out: &mut BytesMut) {
    packet.write(out, None).expect("our packets are small and complete");
}

/// Appends a CONNACK that refuses, with any code.
pub(crate) fn put_refusal(code: u8, out: &mut BytesMut) {
    out.put_slice(&[0x20, 3, 0, code, 0]);
}

/// Appends a DISCONNECT with any code.
pub(crate) fn put_disconnect(code: u8, out: &mut BytesMut) {
    out.put_slice(&[DISCONNECT, 2, code, 0]);
}

/// Appends a SUBACK or UNSUBACK of one code for each filter, with any code.
pub(crate) fn put_codes(head: u8, packet_id: u16, codes: &[u8], out: &mut BytesMut) {
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
    /// What its members have in common.
    pub(crate) filter: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Message {
    pub(crate) topic: Bytes,
    pub(crate) payload: Bytes,
    /// The smaller of the publisher's and the subscription's.
    pub(crate) qos: QoS,
    pub(crate) properties: Option<Rc<PublishProperties>>,
    /// Whose other members may take it.
    pub(crate) share: Option<Rc<Share>>,
}

impl Message {
    pub(crate) fn new(publish: Publish) -> Self {
        let Publish { topic, payload, qos, properties, .. } = publish;
        Self { topic, payload, qos, properties: properties.map(Rc::new), share: None }
    }

    pub(crate) fn put(&self, packet_id: u16, dup: bool, out: &mut BytesMut) {
        let publish = Publish {
            dup,
            qos: self.qos,
            retain: false,
            topic: self.topic.clone(),
            pkid: packet_id,
            payload: self.payload.clone(),
            properties: self.properties.as_deref().cloned(),
        };
        publish.write(out).expect("it came in as a packet");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(bytes: &[u8]) -> Result<Option<Packet>, Fault> {
        read(&mut BytesMut::from(bytes))
    }

    #[test]
    fn a_disconnect_may_be_short() {
        for (bytes, reason) in [
            (&[0xE0, 0][..], DisconnectReasonCode::NormalDisconnection),
            (&[0xE0, 1, 4], DisconnectReasonCode::DisconnectWithWillMessage),
            (&[0xE0, 2, 0x81, 0], DisconnectReasonCode::MalformedPacket),
        ] {
            assert_eq!(read_all(bytes), Ok(Some(Packet::Disconnect(Disconnect::new(reason)))));
        }
    }

    #[test]
    fn a_whole_packet_that_is_cut_inside_is_damage_and_no_reason_to_wait() {
        let publish = [0x30, 5, 0, 3, b'a', b'/', b'b']; // no length of its properties
        assert_eq!(read_all(&publish), Err(Fault::Malformed));
        assert_eq!(read_all(&publish[..6]), Ok(None));
        assert_eq!(read_all(&[0x30, 0x80, 0x80, 0x80, 0x80]), Err(Fault::Malformed));
    }

    #[test]
    fn a_packet_is_too_large_before_it_is_there() {
        assert_eq!(read_all(&[0x30, 0xFD, 0xFF, 0x3F]), Err(Fault::TooLarge)); // four bytes, and 1,048,573
        assert_eq!(read_all(&[0x30, 0xFC, 0xFF, 0x3F]), Ok(None));
    }
}
