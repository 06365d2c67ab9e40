//! Packets as they come and go.
//!
//! rumqttc's codec does the work. It takes a DISCONNECT without a reason for damage, and says of a damaged packet that
//! more bytes are wanted: both are mended here.

use std::rc::Rc;

use bytes::{BufMut as _, Bytes, BytesMut};
use rumqttc::v5::mqttbytes::v5::{Disconnect, DisconnectReasonCode, Packet, Publish, PublishProperties};
use rumqttc::v5::mqttbytes::{Error, QoS};

/// A remaining length has at most so many bytes (2.1.4).
const LENGTH_BYTES_MAX: usize = 4;
const DISCONNECT: u8 = 0xE0;

/// Why a client's bytes end its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Larger than we said that we take.
    TooLarge,
    /// Another version of the protocol.
    Version,
    /// Not MQTT 5.
    Malformed,
}

impl Fault {
    /// Its reason code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::TooLarge => 0x95,
            Self::Version => 0x84,
            Self::Malformed => 0x81,
        }
    }
}

/// Takes the first packet from `input`, if it is there as a whole.
pub(crate) fn read(input: &mut BytesMut, bytes_max: usize) -> Result<Option<Packet>, Fault> {
    let Some((head, body)) = lengths(input)? else { return Ok(None) };
    if head + body > bytes_max {
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

/// How long the first packet's head is, and what follows it.
fn lengths(input: &[u8]) -> Result<Option<(usize, usize)>, Fault> {
    let mut body = 0;
    for (index, &byte) in input.iter().skip(1).take(LENGTH_BYTES_MAX).enumerate() {
        body |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Ok(Some((index + 2, body)));
        }
    }
    if input.len() > LENGTH_BYTES_MAX { Err(Fault::Malformed) } else { Ok(None) }
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
    let mut length = codes.len() + 3;
    out.put_u8(head);
    while length >= 0x80 {
        out.put_u8(u8::try_from(length & 0x7f).expect("seven bits") | 0x80);
        length >>= 7;
    }
    out.put_u8(u8::try_from(length).expect("less than 0x80"));
    out.put_u16(packet_id);
    out.put_u8(0);
    out.put_slice(codes);
}

/// A share group and its filter: `$share/NAME/FILTER`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// The group.
    pub(crate) group: String,
    /// What its members have in common.
    pub(crate) filter: String,
}

/// A message for one session.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Message {
    /// Where it was published to.
    pub(crate) topic: Bytes,
    /// What it says.
    pub(crate) payload: Bytes,
    /// The smaller of the publisher's and the subscription's.
    pub(crate) qos: QoS,
    /// As it is delivered.
    pub(crate) retain: bool,
    /// The publisher's.
    pub(crate) properties: Option<Rc<PublishProperties>>,
    /// Whose other members may take it.
    pub(crate) share: Option<Rc<Share>>,
}

impl Message {
    /// What a publisher sent.
    pub(crate) fn new(publish: Publish) -> Self {
        let Publish { topic, payload, qos, retain, properties, .. } = publish;
        Self { topic, payload, qos, retain, properties: properties.map(Rc::new), share: None }
    }

    /// Appends the PUBLISH.
    pub(crate) fn put(&self, packet_id: u16, dup: bool, out: &mut BytesMut) {
        let publish = Publish {
            dup,
            qos: self.qos,
            retain: self.retain,
            topic: self.topic.clone(),
            pkid: packet_id,
            payload: self.payload.clone(),
            properties: self.properties.as_deref().cloned(),
        };
        publish.write(out).expect("it came in as a packet");
    }

    /// Bytes of its packet, and a few more.
    pub(crate) fn size(&self) -> usize {
        const HEAD: usize = 1 + LENGTH_BYTES_MAX + 2 + 2 + LENGTH_BYTES_MAX;
        HEAD + self.topic.len() + self.payload.len() + self.properties.as_deref().map_or(0, properties_size)
    }
}

/// Bytes of the properties, and a few more.
fn properties_size(properties: &PublishProperties) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, |text| 3 + text.len());
    let user: usize =
        properties.user_properties.iter().map(|(name, value)| 5 + name.len() + value.len()).sum();
    let data = properties.correlation_data.as_ref().map_or(0, |data| 3 + data.len());
    let ids = properties.subscription_identifiers.len() * (1 + LENGTH_BYTES_MAX);
    10 + text(&properties.response_topic) + text(&properties.content_type) + user + data + ids
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(bytes: &[u8]) -> Result<Option<Packet>, Fault> {
        read(&mut BytesMut::from(bytes), 100)
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
        assert_eq!(read_all(&[0x30, 99]), Err(Fault::TooLarge));
        assert_eq!(read_all(&[0x30, 98]), Ok(None));
    }
}
