//! MQTT 5 packets as bytes: the codec of the fleet, the firehose, the floor and the benchmark.
//!
//! The codec is written by hand, and its packets borrow from the buffer that was read. The firehose
//! sends millions of messages a second, and the floor is the yardstick of cost, so neither may
//! include the cost of a library's codec (rumqttc's copies each topic and payload). Numbers in
//! brackets are sections of the MQTT 5 standard.

use anyhow::{Context as _, Result, bail, ensure};
use bytes::BufMut;

/// Packet types: the upper four bits of the first byte (2.1.2).
pub mod kind {
    pub const CONNECT: u8 = 1;
    pub const CONNACK: u8 = 2;
    pub const PUBLISH: u8 = 3;
    pub const PUBACK: u8 = 4;
    pub const SUBSCRIBE: u8 = 8;
    pub const SUBACK: u8 = 9;
    pub const UNSUBSCRIBE: u8 = 10;
    pub const UNSUBACK: u8 = 11;
    pub const PINGREQ: u8 = 12;
    pub const PINGRESP: u8 = 13;
    pub const DISCONNECT: u8 = 14;
}

/// Longest packet, in bytes. The laboratory sends no longer packets.
const PACKET_BYTES_MAX: usize = 1 << 20;
/// Longest encoding of a remaining length, in bytes (2.2.3).
const LENGTH_BYTES_MAX: usize = 4;
/// Property identifiers (2.2.2.2).
const SESSION_EXPIRY: u8 = 17;
const RECEIVE_MAXIMUM: u8 = 33;

/// A packet of any type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Packet type, one of [`kind`].
    pub kind: u8,
    /// The lower four bits of the first byte.
    pub flags: u8,
    pub body: &'a [u8],
    /// Length of the whole packet, in bytes.
    pub len: usize,
}

/// Returns the first packet in `input` if it is complete. Fails if the bytes cannot be MQTT.
pub fn first_packet(input: &[u8]) -> Result<Option<Packet<'_>>> {
    let Some((body_len, head_len)) = length(input.get(1..).unwrap_or_default())? else {
        return Ok(None);
    };
    ensure!(
        body_len <= PACKET_BYTES_MAX,
        "a packet of {body_len} bytes is longer than {PACKET_BYTES_MAX}"
    );
    let len = 1 + head_len + body_len;
    let Some(body) = input.get(1 + head_len..len) else { return Ok(None) };
    Ok(Some(Packet { kind: input[0] >> 4, flags: input[0] & 0xf, body, len }))
}

/// Reads a variable byte integer (1.5.5) if it is complete. Returns its value and its length in
/// bytes.
pub fn length(input: &[u8]) -> Result<Option<(usize, usize)>> {
    let mut value = 0;
    for (index, &byte) in input.iter().take(LENGTH_BYTES_MAX).enumerate() {
        value |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Ok(Some((value, index + 1)));
        }
    }
    ensure!(
        input.len() < LENGTH_BYTES_MAX,
        "a remaining length is encoded in more than {LENGTH_BYTES_MAX} bytes"
    );
    Ok(None)
}

/// Appends a variable byte integer (1.5.5).
pub fn put_length(mut value: usize, out: &mut impl BufMut) {
    while value >= 0x80 {
        out.put_u8(u8::try_from(value & 0x7f).expect("seven bits") | 0x80);
        value >>= 7;
    }
    out.put_u8(u8::try_from(value).expect("less than 0x80"));
}

/// Appends a packet: its type, flags, remaining length and body (2.1).
pub fn put_packet(kind: u8, flags: u8, body: &[u8], out: &mut impl BufMut) {
    out.put_u8(kind << 4 | flags);
    put_length(body.len(), out);
    out.put_slice(body);
}

/// Appends a string (1.5.4).
pub fn put_string(text: &str, out: &mut impl BufMut) {
    out.put_u16(u16::try_from(text.len()).expect("the laboratory sends strings below 64 KiB"));
    out.put_slice(text.as_bytes());
}

/// Appends a CONNECT of MQTT 5 (3.1). Clean Start is set unless the session has an expiry. The
/// keep-alive is 18 hours, because no PINGREQ follows. A keep-alive of 0 would turn it off, but
/// rumqttd refuses 0.
pub fn put_connect(
    client_id: &str,
    login: Option<(&str, &str)>,
    expiry_s: u32,
    out: &mut impl BufMut,
) {
    let mut body = Vec::new();
    put_string("MQTT", &mut body);
    let flags =
        if expiry_s == 0 { 0b10 } else { 0 } | if login.is_some() { 0b1100_0000 } else { 0 };
    body.put_slice(&[5, flags]);
    body.put_u16(u16::MAX);
    if expiry_s == 0 {
        body.put_u8(0);
    } else {
        body.put_slice(&[5, SESSION_EXPIRY]);
        body.put_u32(expiry_s);
    }
    put_string(client_id, &mut body);
    if let Some((username, password)) = login {
        put_string(username, &mut body);
        put_string(password, &mut body);
    }
    put_packet(kind::CONNECT, 0, &body, out);
}

/// Appends a SUBSCRIBE of MQTT 5 to one filter (3.8).
pub fn put_subscribe(packet_id: u16, filter: &str, qos: u8, out: &mut impl BufMut) {
    let mut body = packet_id.to_be_bytes().to_vec();
    body.put_u8(0); // no properties
    put_string(filter, &mut body);
    body.put_u8(qos);
    put_packet(kind::SUBSCRIBE, 0b10, &body, out);
}

/// Appends a PUBLISH of MQTT 5 without properties (3.3), at QoS 1 if `packet_id` is given.
pub fn put_publish(topic: &str, packet_id: Option<u16>, payload: &[u8], out: &mut impl BufMut) {
    out.put_u8(kind::PUBLISH << 4 | if packet_id.is_some() { 0b10 } else { 0 });
    put_length(2 + topic.len() + packet_id.map_or(0, |_| 2) + 1 + payload.len(), out);
    put_string(topic, out);
    if let Some(packet_id) = packet_id {
        out.put_u16(packet_id);
    }
    out.put_u8(0);
    out.put_slice(payload);
}

/// A broker's answer to a CONNECT of MQTT 5 (3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnAck {
    /// `true` if the broker still has the session, with its subscriptions.
    pub session_present: bool,
    /// Reason code; 0: accepted.
    pub reason: u8,
    /// Largest number of unacknowledged messages at QoS 1 that the broker accepts.
    pub receive_maximum: u16,
}

impl ConnAck {
    /// Reads a CONNACK. Fails if the packet is truncated.
    pub fn read(body: &[u8]) -> Result<Self> {
        let mut reader = Reader(body);
        let (flags, reason) = (reader.u8()?, reader.u8()?);
        let receive_maximum = reader.receive_maximum()?;
        Ok(Self { session_present: flags & 1 == 1, reason, receive_maximum })
    }
}

/// Returns the packet id and the reason code of a PUBACK of MQTT 5 (3.4). A missing reason code is
/// 0.
pub fn read_puback(body: &[u8]) -> Result<(u16, u8)> {
    Ok((packet_id(body)?, body.get(2).copied().unwrap_or(0)))
}

/// A message in a PUBLISH of MQTT 5 (3.3).
#[derive(Debug, Clone, Copy)]
pub struct Publish<'a> {
    pub topic: &'a [u8],
    /// Packet id; `None` at QoS 0.
    pub packet_id: Option<u16>,
    pub payload: &'a [u8],
}

impl<'a> Publish<'a> {
    /// Reads a PUBLISH of MQTT 5. Fails if the packet is truncated.
    pub fn read(packet: Packet<'a>) -> Result<Self> {
        let mut reader = Reader(packet.body);
        let topic = reader.string()?;
        let packet_id = if packet.flags & 0b110 == 0 { None } else { Some(reader.u16()?) };
        reader.properties()?;
        Ok(Self { topic, packet_id, payload: reader.0 })
    }
}

/// Returns the packet id and the filters of a SUBSCRIBE. Fails if the packet is truncated.
pub fn read_subscribe(body: &[u8]) -> Result<(u16, Vec<&[u8]>)> {
    let mut reader = Reader(body);
    let packet_id = reader.u16()?;
    reader.properties()?;
    let mut filters = Vec::new();
    while !reader.0.is_empty() {
        filters.push(reader.string()?);
        reader.u8()?;
    }
    Ok((packet_id, filters))
}

/// Returns the packet id at the beginning of a PUBACK, SUBACK or UNSUBSCRIBE. Fails if the packet
/// is truncated.
pub fn packet_id(body: &[u8]) -> Result<u16> {
    Reader(body).u16()
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len).context("a packet is truncated")?;
        self.0 = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    fn u16(&mut self) -> Result<u16> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn string(&mut self) -> Result<&'a [u8]> {
        let len = self.u16()?;
        self.take(len.into())
    }

    /// Reads the property block of an MQTT 5 packet.
    fn properties(&mut self) -> Result<&'a [u8]> {
        let (len, head_len) = length(self.0)?.context("a packet is truncated")?;
        self.take(head_len)?;
        self.take(len)
    }

    /// Returns the Receive Maximum of a CONNACK; 65,535 if the property is absent (3.2.2.3.3).
    fn receive_maximum(&mut self) -> Result<u16> {
        let mut block = Reader(self.properties()?);
        while !block.0.is_empty() {
            match block.u8()? {
                RECEIVE_MAXIMUM => return block.u16(),
                36 | 37 | 40..=42 => block.take(1)?,
                19 | 34 => block.take(2)?,
                SESSION_EXPIRY | 39 => block.take(4)?,
                18 | 21 | 22 | 26 | 28 | 31 => block.string()?,
                // A user property: its name and value.
                38 => block.string().and_then(|_| block.string())?,
                id => bail!("a CONNACK with an unknown property, {id}"),
            };
        }
        Ok(u16::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_packet_is_not_returned() {
        let mut bytes = Vec::new();
        put_packet(kind::PUBLISH, 0b10, &[7; 300], &mut bytes);
        for cut in 0..bytes.len() {
            assert_eq!(first_packet(&bytes[..cut]).unwrap(), None, "cut at {cut}");
        }
        let packet = first_packet(&bytes).unwrap().unwrap();
        assert_eq!(
            (packet.kind, packet.flags, packet.body.len(), packet.len),
            (kind::PUBLISH, 2, 300, bytes.len())
        );
        assert!(first_packet(&[0x30, 0x80, 0x80, 0x80, 0x80]).is_err());
    }

    #[test]
    fn written_packets_are_read_back() {
        let mut out = Vec::new();
        put_connect("me", Some(("name", "secret")), 60, &mut out);
        let packet = first_packet(&out).unwrap().unwrap();
        assert_eq!((packet.kind, packet.len), (kind::CONNECT, out.len()));
        assert!(packet.body.ends_with(b"\0\x02me\0\x04name\0\x06secret"), "{packet:?}");
        for packet_id in [None, Some(7)] {
            let mut out = Vec::new();
            put_publish("a/b", packet_id, b"payload", &mut out);
            let publish = Publish::read(first_packet(&out).unwrap().unwrap()).unwrap();
            assert_eq!(
                (publish.topic, publish.packet_id, publish.payload),
                (&b"a/b"[..], packet_id, &b"payload"[..])
            );
        }
        // EMQX's order of properties: the assigned client id, Receive Maximum, then the
        // "available" flags; and a user property.
        let answer = [
            1,
            0,
            19,
            38,
            0,
            1,
            b'n',
            0,
            1,
            b'v',
            18,
            0,
            2,
            b'i',
            b'd',
            RECEIVE_MAXIMUM,
            0,
            32,
            40,
            1,
            42,
            1,
        ];
        let expected = ConnAck { session_present: true, reason: 0, receive_maximum: 32 };
        assert_eq!(ConnAck::read(&answer).unwrap(), expected);
        assert!(ConnAck::read(&answer[..12]).is_err(), "a truncated CONNACK");
        assert_eq!(
            (read_puback(&[0, 9]).unwrap(), read_puback(&[0, 9, 0x10, 0]).unwrap()),
            ((9, 0), (9, 0x10))
        );
    }
}
