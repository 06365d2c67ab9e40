//! Splits the bytes of a connection into packets.

use std::ops::Range;

use rumqttc::v5::mqttbytes::Error as LibraryError;
use rumqttc::v5::mqttbytes::v5::{DisconnectReasonCode, Packet as LibraryPacket};

use super::answers;
use super::header::Header;
use super::packet::{
    CONNACK, CodecError, DISCONNECT, PINGRESP, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, Packet,
    SUBACK, Subscribing, UNSUBACK,
};
use milepost_decode::{Message, PAYLOAD_BYTES_MAX};

/// DISCONNECT's reason when another client connects with the same client id (MQTT 5, 3.14.2.1).
const SESSION_TAKEN_OVER: u8 = 0x8E;
/// PUBREC's reason for a valid message that milepost does not accept: "Implementation specific
/// error" (MQTT 5, 3.5.2.1).
const NOT_ACCEPTED: u8 = 0x83;
/// PUBCOMP's reason for a PUBREL without an earlier PUBREC (MQTT 5, 3.7.2.1).
const PACKET_ID_NOT_FOUND: u8 = 0x92;
/// Maximum bytes of a PUBLISH before its properties: fixed header, length of the topic, topic,
/// packet id, length of the properties.
const PUBLISH_HEAD_BYTES_MAX: usize = 5 + 2 + 65_535 + 2 + 4;
/// Minimum free space for each read, in bytes.
const READ_BYTES_MIN: usize = 8 * 1024;
/// Initial size of the buffer in bytes: enough for an idle connection.
const BUFFER_BYTES_INITIAL: usize = 16 * 1024;
/// Size of the buffer in bytes after a read filled it: what a busy connection receives between two
/// reads.
const BUFFER_BYTES_BUSY: usize = 64 * 1024;

/// The read buffer of one connection.
#[derive(Debug)]
pub struct Input {
    buffer: Vec<u8>,
    /// The range of the bytes that are not split into packets yet.
    waiting: Range<usize>,
    packet_bytes_max: usize,
    /// Whether CONNACK has arrived. It must be the first packet, and must not be repeated.
    has_connack: bool,
    /// The PUBLISH that is being truncated; `None` between such packets.
    truncated: Option<Truncated>,
}

impl Input {
    /// Creates the buffer of a new connection. `packet_bytes_max`: the Maximum Packet Size that
    /// milepost requested. The payload of a larger PUBLISH is truncated.
    #[must_use]
    pub fn new(packet_bytes_max: usize) -> Self {
        Self {
            buffer: vec![0; BUFFER_BYTES_INITIAL],
            waiting: 0..0,
            packet_bytes_max,
            has_connack: false,
            truncated: None,
        }
    }

    /// Returns the free part of the buffer. Read into it, then call [`advance`](Self::advance).
    /// Call this method only after [`packet`](Self::packet) has returned `None`.
    pub fn space(&mut self) -> &mut [u8] {
        if self.waiting.is_empty() {
            self.waiting = 0..0;
            // Release the memory of a large packet.
            if self.buffer.len() > BUFFER_BYTES_BUSY {
                self.buffer.truncate(BUFFER_BYTES_BUSY);
                self.buffer.shrink_to_fit();
            }
        }
        if self.buffer.len() - self.waiting.end < READ_BYTES_MIN {
            self.buffer.copy_within(self.waiting.clone(), 0);
            self.waiting = 0..self.waiting.len();
        }
        let free = self.buffer.len() - self.waiting.end;
        if free < READ_BYTES_MIN {
            let bytes_max = self.packet_bytes_max.max(PUBLISH_HEAD_BYTES_MAX) + READ_BYTES_MIN;
            self.buffer.resize((2 * self.buffer.len()).min(bytes_max), 0);
        }
        assert!(
            self.waiting.end < self.buffer.len(),
            "call packet() until it returns None before the next read"
        );
        &mut self.buffer[self.waiting.end..]
    }

    /// Records that `bytes` were read into [`space`](Self::space).
    pub fn advance(&mut self, bytes: usize) {
        self.waiting.end += bytes;
        // The read filled the buffer, so the socket may hold more: grow the buffer.
        if self.waiting.end == self.buffer.len() && self.buffer.len() < BUFFER_BYTES_BUSY {
            self.buffer.resize(BUFFER_BYTES_BUSY, 0);
        }
    }

    /// Returns the next packet; `None` until all of its bytes have been read.
    ///
    /// # Errors
    /// The connection must end.
    pub fn packet(&mut self) -> Result<Option<Packet<'_>>, CodecError> {
        // If the last call returned a truncated packet, drop that packet now.
        self.truncated.take_if(|truncated| truncated.is_complete());
        if self.truncated.is_none() {
            match self.frame()? {
                Frame::Incomplete => return Ok(None),
                Frame::Whole(header, body) => return decode(header, &self.buffer, body).map(Some),
                Frame::Truncated(truncated) => self.truncated = Some(truncated),
            }
        }
        let Some(truncated) = &mut self.truncated else { return Ok(None) };
        self.waiting.start += truncated.consume(&self.buffer[self.waiting.clone()]);
        Ok(truncated.is_complete().then(|| truncated.packet()))
    }

    /// Splits off the next frame. Fails if the packet is malformed, or not allowed at this point.
    /// Also fails if a packet other than PUBLISH is too large.
    fn frame(&mut self) -> Result<Frame, CodecError> {
        let waiting = &self.buffer[self.waiting.clone()];
        let Some(&first) = waiting.first() else { return Ok(Frame::Incomplete) };
        let (kind, flags) = (first >> 4, first & 0x0F);
        // Refuse another packet before CONNACK, and a second CONNACK.
        if (kind == CONNACK) == self.has_connack {
            return Err(CodecError::Unexpected(kind));
        }
        let (body_bytes, length_bytes) = match Varint::read(&waiting[1..]) {
            Varint::Whole { value, bytes } => (value, bytes),
            Varint::Incomplete => return Ok(Frame::Incomplete),
            Varint::Malformed => return Err(CodecError::RemainingLength),
        };
        let header = Header { kind, flags, body_bytes };
        let body_at = 1 + length_bytes;
        if body_at + body_bytes > self.packet_bytes_max {
            if kind != PUBLISH {
                return Err(CodecError::TooLarge { kind, bytes: body_at + body_bytes });
            }
            let body = &waiting[body_at..];
            return Ok(match Head::read(header, &body[..body.len().min(body_bytes)])? {
                None => Frame::Incomplete,
                Some(head) => {
                    let truncated = Truncated::new(header, &head, &body[head.topic.clone()]);
                    self.waiting.start += body_at + head.properties.start;
                    Frame::Truncated(truncated)
                }
            });
        }
        if waiting.len() - body_at < body_bytes {
            return Ok(Frame::Incomplete);
        }
        self.has_connack = true;
        let body_at = self.waiting.start + body_at;
        self.waiting.start = body_at + body_bytes;
        Ok(Frame::Whole(header, body_at..body_at + body_bytes))
    }
}

enum Frame {
    /// More bytes are needed.
    Incomplete,
    /// A whole frame, with the range of its body in the buffer.
    Whole(Header, Range<usize>),
    /// A PUBLISH above Maximum Packet Size; its properties and payload follow.
    Truncated(Truncated),
}

/// Decodes the packet with this fixed header. `body`: the range of the packet's body in `buffer`.
fn decode(header: Header, buffer: &[u8], body: Range<usize>) -> Result<Packet<'_>, CodecError> {
    let body = &buffer[body];
    match header.kind {
        PUBLISH => {
            let head = Head::read(header, body)?.ok_or(CodecError::Publish)?;
            let payload = &body[head.properties.end..];
            Ok(published(header, &body[head.topic], payload, payload.len(), head.packet_id))
        }
        CONNACK => answers::connack(body),
        SUBACK => {
            let LibraryPacket::SubAck(answer) = header.decode_by_library(body)? else {
                return Err(CodecError::Unexpected(header.kind));
            };
            let filters = Subscribing::from_packet_id(answer.pkid)
                .ok_or(CodecError::UnknownPacketId(answer.pkid))?;
            Ok(Packet::Subscribed(
                filters,
                answer.return_codes.into_iter().map(answers::grant).collect(),
            ))
        }
        PUBACK => Ok(Packet::Acked(body.get(2).copied().unwrap_or(0))),
        PUBREL => {
            let packet_id = u16_at(body, 0).ok_or(LibraryError::MalformedPacket)?;
            Ok(refused(PUBCOMP, packet_id, PACKET_ID_NOT_FOUND))
        }
        UNSUBACK => answers::unsuback(header, body),
        PINGRESP => Ok(Packet::Pong),
        DISCONNECT => {
            let reason = body.first().copied().unwrap_or(0);
            let explanation = DisconnectReasonCode::try_from(reason)
                .map_or_else(|_| format!("reason {reason:#04x}"), |reason| format!("{reason:?}"));
            let taken_over = reason == SESSION_TAKEN_OVER;
            Err(CodecError::Disconnected { reason, taken_over, explanation })
        }
        other => Err(CodecError::Unexpected(other)),
    }
}

/// Returns the message of a PUBLISH, or the refusal of a PUBLISH at QoS 2.
///
/// milepost subscribes at QoS 1 at most, so a QoS 2 message means that another program has
/// subscribed with this client id. A PUBREC with an error code makes the broker discard the message
/// (MQTT 5, 4.4). Without an answer, the broker would redeliver the message on every connection.
fn published<'a>(
    header: Header,
    topic: &'a [u8],
    payload: &'a [u8],
    payload_bytes: usize,
    packet_id: Option<u16>,
) -> Packet<'a> {
    match packet_id {
        Some(packet_id) if header.qos() == 2 => refused(PUBREC, packet_id, NOT_ACCEPTED),
        packet_id => Packet::Published(Message {
            topic,
            payload,
            payload_bytes,
            packet_id,
            redelivered: header.is_redelivered(),
        }),
    }
}

/// Builds the packet that refuses a step of a QoS 2 delivery. `kind`: PUBREC or PUBCOMP.
fn refused(kind: u8, packet_id: u16, reason: u8) -> Packet<'static> {
    let [high, low] = packet_id.to_be_bytes();
    Packet::ExactlyOnce { reply: [kind << 4, 3, high, low, reason] }
}

/// The parts of a PUBLISH's body before the payload: the packet id, and the ranges of the topic and
/// the properties.
struct Head {
    topic: Range<usize>,
    /// `None` at QoS 0.
    packet_id: Option<u16>,
    /// The properties, including their length field. If that length is invalid or exceeds the body,
    /// this range is empty, and the payload begins where the properties should begin.
    properties: Range<usize>,
}

impl Head {
    /// Parses the first bytes of the body; `None` if more are needed.
    fn read(header: Header, body: &[u8]) -> Result<Option<Self>, CodecError> {
        let has_packet_id = match header.qos() {
            0 => false,
            1 | 2 => true,
            _ => return Err(CodecError::Publish),
        };
        if header.body_bytes < 2 {
            return Err(CodecError::Publish);
        }
        let Some(topic_bytes) = u16_at(body, 0) else { return Ok(None) };
        let topic = 2..2 + usize::from(topic_bytes);
        let head_bytes = topic.end + if has_packet_id { 2 } else { 0 };
        if head_bytes > header.body_bytes {
            return Err(CodecError::Publish);
        }
        if head_bytes > body.len() {
            return Ok(None);
        }
        let packet_id = if has_packet_id { u16_at(body, topic.end) } else { None };
        if packet_id == Some(0) {
            return Err(CodecError::Publish);
        }
        let properties = match Varint::read(&body[head_bytes..]) {
            Varint::Whole { value, bytes } if head_bytes + bytes + value <= header.body_bytes => {
                head_bytes..head_bytes + bytes + value
            }
            Varint::Incomplete if body.len() < header.body_bytes => return Ok(None),
            Varint::Whole { .. } | Varint::Incomplete | Varint::Malformed => head_bytes..head_bytes,
        };
        Ok(Some(Self { topic, packet_id, properties }))
    }
}

/// A PUBLISH above Maximum Packet Size, while it arrives. Its properties, and its payload beyond
/// [`PAYLOAD_BYTES_MAX`], are skipped.
#[derive(Debug)]
struct Truncated {
    header: Header,
    packet_id: Option<u16>,
    /// The topic, then the first bytes of the payload.
    topic_and_payload: Vec<u8>,
    topic_bytes: usize,
    /// Length of the whole payload.
    payload_bytes: usize,
    /// Number of bytes of the properties that have not arrived yet.
    missing_property_bytes: usize,
    /// Number of bytes of the payload that have not arrived yet.
    missing_payload_bytes: usize,
}

impl Truncated {
    fn new(header: Header, head: &Head, topic: &[u8]) -> Self {
        let payload_bytes = header.body_bytes - head.properties.end;
        let capacity = topic.len() + payload_bytes.min(PAYLOAD_BYTES_MAX);
        let mut topic_and_payload = Vec::with_capacity(capacity);
        topic_and_payload.extend_from_slice(topic);
        Self {
            header,
            packet_id: head.packet_id,
            topic_and_payload,
            topic_bytes: topic.len(),
            payload_bytes,
            missing_property_bytes: head.properties.len(),
            missing_payload_bytes: payload_bytes,
        }
    }

    /// Consumes the bytes that belong to this packet, and returns their number.
    fn consume(&mut self, bytes: &[u8]) -> usize {
        let property_bytes = bytes.len().min(self.missing_property_bytes);
        self.missing_property_bytes -= property_bytes;
        let payload = &bytes[property_bytes..];
        let payload = &payload[..payload.len().min(self.missing_payload_bytes)];
        self.missing_payload_bytes -= payload.len();
        let free_bytes = self.topic_bytes + PAYLOAD_BYTES_MAX - self.topic_and_payload.len();
        self.topic_and_payload.extend_from_slice(&payload[..payload.len().min(free_bytes)]);
        property_bytes + payload.len()
    }

    fn is_complete(&self) -> bool {
        self.missing_property_bytes == 0 && self.missing_payload_bytes == 0
    }

    fn packet(&self) -> Packet<'_> {
        let (topic, payload) = self.topic_and_payload.split_at(self.topic_bytes);
        published(self.header, topic, payload, self.payload_bytes, self.packet_id)
    }
}

/// A Variable Byte Integer, of one to four bytes (MQTT 5, 1.5.5).
enum Varint {
    /// `bytes`: length of the encoded integer.
    Whole {
        value: usize,
        bytes: usize,
    },
    Incomplete,
    Malformed,
}

impl Varint {
    fn read(bytes: &[u8]) -> Self {
        let mut value = 0;
        for (index, byte) in bytes.iter().take(4).enumerate() {
            value |= usize::from(byte & 0x7F) << (7 * index);
            if byte & 0x80 == 0 {
                return Self::Whole { value, bytes: index + 1 };
            }
        }
        if bytes.len() < 4 { Self::Incomplete } else { Self::Malformed }
    }
}

fn u16_at(bytes: &[u8], index: usize) -> Option<u16> {
    bytes.get(index..index + 2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
}
