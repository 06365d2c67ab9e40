//! MQTT as bytes, by hand: what the firehose and the floor need of 3.1.1 and 5, borrowed from the buffer that was
//! read. The fleet's own connection uses rumqttc's codec; here the cost of a codec is what must not be measured.

use anyhow::{Context as _, Result, bail, ensure};
use bytes::BufMut;

/// Packet types, the upper four bits of a packet (2.1.2).
pub const CONNECT: u8 = 1;
/// The broker's answer to CONNECT.
pub const CONNACK: u8 = 2;
/// A message.
pub const PUBLISH: u8 = 3;
/// The answer to a message at QoS 1.
pub const PUBACK: u8 = 4;
/// A subscription.
pub const SUBSCRIBE: u8 = 8;
/// The broker's answer to it.
pub const SUBACK: u8 = 9;
/// The end of a subscription.
pub const UNSUBSCRIBE: u8 = 10;
/// The broker's answer to it.
pub const UNSUBACK: u8 = 11;
/// Are you there?
pub const PINGREQ: u8 = 12;
/// Yes.
pub const PINGRESP: u8 = 13;
/// Goodbye.
pub const DISCONNECT: u8 = 14;

/// Larger packets are nobody's here.
const PACKET_BYTES_MAX: usize = 1 << 20;
/// A remaining length has at most so many bytes (2.2.3).
const LENGTH_BYTES_MAX: usize = 4;
/// MQTT 5's property Receive Maximum (3.1.2.11.3).
const RECEIVE_MAXIMUM: u8 = 33;

/// A packet, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// One of the constants above.
    pub kind: u8,
    /// The lower four bits of the first byte.
    pub flags: u8,
    /// What follows the remaining length.
    pub body: &'a [u8],
    /// How many bytes all of it takes.
    pub len: usize,
}

/// The first packet in `input`, if it is there as a whole.
///
/// # Errors
/// It cannot be MQTT.
pub fn first_packet(input: &[u8]) -> Result<Option<Packet<'_>>> {
    let Some((body_len, head_len)) = length(input.get(1..).unwrap_or_default())? else { return Ok(None) };
    ensure!(body_len <= PACKET_BYTES_MAX, "a packet of {body_len} bytes");
    let len = 1 + head_len + body_len;
    let Some(body) = input.get(1 + head_len..len) else { return Ok(None) };
    Ok(Some(Packet { kind: input[0] >> 4, flags: input[0] & 0xf, body, len }))
}

/// A variable byte integer (1.5.5) and how many bytes it takes, if it is there as a whole.
fn length(input: &[u8]) -> Result<Option<(usize, usize)>> {
    let mut value = 0;
    for (index, &byte) in input.iter().take(LENGTH_BYTES_MAX).enumerate() {
        value |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Ok(Some((value, index + 1)));
        }
    }
    ensure!(input.len() < LENGTH_BYTES_MAX, "a length of more than {LENGTH_BYTES_MAX} bytes");
    Ok(None)
}

/// Appends a variable byte integer.
pub fn put_length(mut value: usize, out: &mut impl BufMut) {
    while value >= 0x80 {
        out.put_u8(u8::try_from(value & 0x7f).expect("seven bits") | 0x80);
        value >>= 7;
    }
    out.put_u8(u8::try_from(value).expect("less than 0x80"));
}

/// Appends a packet.
pub fn put_packet(kind: u8, flags: u8, body: &[u8], out: &mut Vec<u8>) {
    out.push(kind << 4 | flags);
    put_length(body.len(), out);
    out.extend_from_slice(body);
}

/// Appends a string (1.5.4).
pub fn put_string(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&u16::try_from(text.len()).expect("our strings are short").to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// A message, borrowed.
#[derive(Debug, Clone, Copy)]
pub struct Publish<'a> {
    /// Where it was published to.
    pub topic: &'a [u8],
    /// At QoS 1.
    pub packet_id: Option<u16>,
    /// What it says.
    pub payload: &'a [u8],
}

impl<'a> Publish<'a> {
    /// Reads an MQTT 5 PUBLISH.
    ///
    /// # Errors
    /// It is cut.
    pub fn read(packet: Packet<'a>) -> Result<Self> {
        let mut reader = Reader(packet.body);
        let topic = reader.string()?;
        let packet_id = if packet.flags & 0b110 == 0 { None } else { Some(reader.u16()?) };
        reader.properties()?;
        Ok(Self { topic, packet_id, payload: reader.0 })
    }
}

/// What the firehose wants to know of a CONNECT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connect {
    /// 4 is MQTT 3.1.1, 5 is MQTT 5.
    pub version: u8,
    /// Messages at QoS 1 that may be unacknowledged; without a word about it, as many as there are packet ids.
    pub receive_maximum: u16,
}

impl Connect {
    /// Reads a CONNECT of either version.
    ///
    /// # Errors
    /// It is cut, or of another version.
    pub fn read(body: &[u8]) -> Result<Self> {
        let mut reader = Reader(body);
        ensure!(reader.string()? == b"MQTT", "a CONNECT of another protocol");
        let version = reader.u8()?;
        ensure!(matches!(version, 4 | 5), "MQTT version {version} is not spoken here");
        let (_flags, _keep_alive) = (reader.u8()?, reader.u16()?);
        let mut receive_maximum = u16::MAX;
        if version == 5 {
            let mut properties = Reader(reader.properties()?);
            while let Some(&id) = properties.0.first() {
                if id == RECEIVE_MAXIMUM {
                    properties.skip(1)?;
                    receive_maximum = properties.u16()?;
                    break;
                }
                properties.skip(property_len(properties.0)?)?;
            }
        }
        ensure!(receive_maximum > 0, "a Receive Maximum of 0 is a protocol error");
        Ok(Self { version, receive_maximum })
    }
}

/// How long the CONNECT property at the beginning of `input` is, its id included.
fn property_len(input: &[u8]) -> Result<usize> {
    let string = |at: usize| -> Result<usize> {
        Ok(2 + usize::from(Reader(input.get(at..).unwrap_or_default()).u16()?))
    };
    Ok(match input[0] {
        17 | 39 => 5,              // session expiry, maximum packet size
        34 => 3,                   // topic alias maximum
        23 | 25 => 2,              // request problem information, request response information
        21 | 22 => 1 + string(1)?, // authentication method and data
        38 => {
            let name = string(1)?; // user property
            1 + name + string(1 + name)?
        }
        id => bail!("CONNECT has no property {id}"),
    })
}

/// A SUBSCRIBE: its packet id, and the QoS asked for by each filter.
///
/// # Errors
/// It is cut.
pub fn read_subscribe(body: &[u8], version: u8) -> Result<(u16, Vec<u8>)> {
    let mut reader = Reader(body);
    let packet_id = reader.u16()?;
    if version == 5 {
        reader.properties()?;
    }
    let mut wanted = Vec::new();
    while !reader.0.is_empty() {
        reader.string()?;
        wanted.push(reader.u8()? & 0b11);
    }
    Ok((packet_id, wanted))
}

/// The first two bytes of a PUBACK, SUBACK or UNSUBSCRIBE.
///
/// # Errors
/// It is cut.
pub fn packet_id(body: &[u8]) -> Result<u16> {
    Reader(body).u16()
}

/// What is left to read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len).context("a packet is cut")?;
        self.0 = rest;
        Ok(taken)
    }

    fn skip(&mut self, len: usize) -> Result<()> {
        self.take(len).map(drop)
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

    /// MQTT 5's property block.
    fn properties(&mut self) -> Result<&'a [u8]> {
        let (len, head_len) = length(self.0)?.context("a packet is cut")?;
        self.skip(head_len)?;
        self.take(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_found_whole_or_not_at_all() {
        let mut bytes = Vec::new();
        put_packet(PUBLISH, 0b10, &[7; 300], &mut bytes);
        for cut in 0..bytes.len() {
            assert_eq!(first_packet(&bytes[..cut]).unwrap(), None, "cut at {cut}");
        }
        let packet = first_packet(&bytes).unwrap().unwrap();
        assert_eq!(
            (packet.kind, packet.flags, packet.body.len(), packet.len),
            (PUBLISH, 2, 300, bytes.len())
        );
        assert!(first_packet(&[0x30, 0x80, 0x80, 0x80, 0x80]).is_err());
    }

    #[test]
    fn receive_maximum_is_found_among_other_properties() {
        let mut body = Vec::new();
        put_string("MQTT", &mut body);
        body.extend([5, 2, 0, 60]);
        let mut properties = vec![17, 0, 0, 0, 60, 38];
        put_string("name", &mut properties);
        put_string("value", &mut properties);
        properties.extend([RECEIVE_MAXIMUM, 0x12, 0x34]);
        put_length(properties.len(), &mut body);
        body.extend(properties);
        put_string("client", &mut body);
        assert_eq!(Connect::read(&body).unwrap(), Connect { version: 5, receive_maximum: 0x1234 });
        assert!(Connect::read(&body[..12]).is_err(), "cut");
    }
}
