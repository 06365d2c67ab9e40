//! Bytes on their way in, split into packets.

use std::ops::Range;

use rumqttc::v5::mqttbytes::Error as LibraryError;
use rumqttc::v5::mqttbytes::v5::{DisconnectReasonCode, Packet as Rest};

use super::answers;
use super::header::Header;
use super::packet::{
    CONNACK, CodecError, DISCONNECT, PINGRESP, PUBACK, PUBLISH, PUBREL, Packet, Publish, SUBACK, Subscribing,
    UNSUBACK,
};
use crate::pipeline::reject::PAYLOAD_BYTES_MAX;
use crate::session::acks::Ack;

/// A DISCONNECT's reason when another client comes with our client id (MQTT 5, 3.14.2.1).
const SESSION_TAKEN_OVER: u8 = 0x8E;
/// A PUBLISH up to its properties: both headers, the longest topic, packet id, property length.
const PUBLISH_HEAD_BYTES_MAX: usize = 5 + 2 + 65_535 + 2 + 4;
/// There is always room for a read of this size.
const READ_BYTES_MIN: usize = 8 * 1024;
/// What the buffer begins with: an idle connection needs no more.
const READ_BYTES_FIRST: usize = 16 * 1024;
/// What it grows to when reads fill it: what comes to a busy connection between two reads.
const READ_BYTES_BUSY: usize = 64 * 1024;

/// Bytes on their way in. One connection's: a new one gets a new `Input`.
#[derive(Debug)]
pub struct Input {
    buffer: Vec<u8>,
    /// Where the bytes not yet taken are.
    waiting: Range<usize>,
    packet_bytes_max: usize,
    accepted: bool,
    cut: Option<Cut>,
}

impl Input {
    /// Packets above `packet_bytes_max` are cut.
    #[must_use]
    pub fn new(packet_bytes_max: usize) -> Self {
        Self {
            buffer: vec![0; READ_BYTES_FIRST],
            waiting: 0..0,
            packet_bytes_max,
            accepted: false,
            cut: None,
        }
    }

    /// The memory it never exceeds.
    fn bytes_max(packet_bytes_max: usize) -> usize {
        packet_bytes_max.max(PUBLISH_HEAD_BYTES_MAX) + READ_BYTES_MIN
    }

    /// Where to read into; then say how much [came](Self::came). Only when [`packet`](Self::packet) gave `None`.
    pub fn space(&mut self) -> &mut [u8] {
        if self.waiting.is_empty() {
            self.waiting = 0..0;
            // One large packet does not take its memory for the connection's life.
            if self.buffer.len() > READ_BYTES_BUSY {
                self.buffer.truncate(READ_BYTES_BUSY);
                self.buffer.shrink_to_fit();
            }
        }
        if self.buffer.len() - self.waiting.end < READ_BYTES_MIN {
            self.buffer.copy_within(self.waiting.clone(), 0);
            self.waiting = 0..self.waiting.len();
        }
        let free = self.buffer.len() - self.waiting.end;
        if free < READ_BYTES_MIN {
            let bytes = (2 * self.buffer.len()).min(Self::bytes_max(self.packet_bytes_max));
            self.buffer.resize(bytes, 0);
        }
        assert!(self.waiting.end < self.buffer.len(), "packets were left untaken");
        &mut self.buffer[self.waiting.end..]
    }

    /// So many bytes have been read into [`space`](Self::space).
    pub fn came(&mut self, bytes: usize) {
        self.waiting.end += bytes;
        // More is there, perhaps: the next read shall take all of it.
        if self.waiting.end == self.buffer.len() && self.buffer.len() < READ_BYTES_BUSY {
            self.buffer.resize(READ_BYTES_BUSY, 0);
        }
    }

    /// The next packet that is there as a whole, or cut as far as it will be.
    ///
    /// # Errors
    /// The connection must end.
    pub fn packet(&mut self) -> Result<Option<Packet<'_>>, CodecError> {
        self.cut.take_if(|cut| cut.is_complete());
        if self.cut.is_none() {
            match self.frame()? {
                Frame::Incomplete => return Ok(None),
                Frame::Whole(header, body) => return decode(header, &self.buffer, body).map(Some),
                Frame::Cut(cut) => self.cut = Some(cut),
            }
        }
        let Some(cut) = &mut self.cut else { return Ok(None) };
        self.waiting.start += cut.take(&self.buffer[self.waiting.clone()]);
        Ok(cut.is_complete().then(|| Packet::Published(cut.publish())))
    }

    /// Splits the next frame off.
    fn frame(&mut self) -> Result<Frame, CodecError> {
        let waiting = &self.buffer[self.waiting.clone()];
        let Some(&first) = waiting.first() else { return Ok(Frame::Incomplete) };
        let (kind, flags) = (first >> 4, first & 0x0F);
        if (kind == CONNACK) == self.accepted {
            return Err(CodecError::Unexpected(kind)); // anything before CONNACK, or a second one
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
                    let cut = Cut::new(header, &head, &body[head.topic.clone()]);
                    self.waiting.start += body_at + head.properties.start;
                    Frame::Cut(cut)
                }
            });
        }
        if waiting.len() - body_at < body_bytes {
            return Ok(Frame::Incomplete);
        }
        self.accepted = true;
        let body_at = self.waiting.start + body_at;
        self.waiting.start = body_at + body_bytes;
        Ok(Frame::Whole(header, body_at..body_at + body_bytes))
    }
}

enum Frame {
    Incomplete,
    /// Its body's place in the buffer.
    Whole(Header, Range<usize>),
    Cut(Cut),
}

/// A packet that is there as a whole.
fn decode(header: Header, buffer: &[u8], body: Range<usize>) -> Result<Packet<'_>, CodecError> {
    let body = &buffer[body];
    match header.kind {
        PUBLISH => {
            let head = Head::read(header, body)?.ok_or(CodecError::Publish)?;
            let payload = &body[head.properties.end..];
            Ok(Packet::Published(Publish {
                topic: &body[head.topic],
                payload,
                payload_bytes: payload.len(),
                ack: head.ack,
                redelivered: header.is_redelivered(),
            }))
        }
        CONNACK => answers::connack(body),
        SUBACK => {
            let Rest::SubAck(answer) = header.decode_rest(body)? else {
                return Err(CodecError::Unexpected(header.kind));
            };
            let grants = answer.return_codes.into_iter().map(answers::grant).collect();
            Ok(Packet::Subscribed(Subscribing::from_packet_id(answer.pkid), grants))
        }
        PUBACK => Ok(Packet::Acked(body.get(2).copied().unwrap_or(0))),
        PUBREL => Ok(Packet::Released(u16_at(body, 0).ok_or(LibraryError::MalformedPacket)?)),
        UNSUBACK => answers::unsubscribed(header, body),
        PINGRESP => Ok(Packet::Pong),
        DISCONNECT => {
            let reason = body.first().copied().unwrap_or(0);
            let words = DisconnectReasonCode::try_from(reason)
                .map_or_else(|_| format!("reason {reason:#04x}"), |reason| format!("{reason:?}"));
            Err(CodecError::Disconnected { taken_over: reason == SESSION_TAKEN_OVER, words })
        }
        other => Err(CodecError::Unexpected(other)),
    }
}

/// Where the parts of a PUBLISH's body are.
struct Head {
    topic: Range<usize>,
    ack: Option<Ack>,
    /// With their length; empty if that does not fit: then the payload begins here.
    properties: Range<usize>,
}

impl Head {
    /// From the body's first bytes; `None` if there are too few of them.
    fn read(header: Header, body: &[u8]) -> Result<Option<Self>, CodecError> {
        let ack: Option<fn(u16) -> Ack> = match (header.flags >> 1) & 3 {
            0 => None,
            1 => Some(Ack::Acknowledged),
            2 => Some(Ack::Received),
            _ => return Err(CodecError::Publish),
        };
        if header.body_bytes < 2 {
            return Err(CodecError::Publish);
        }
        let Some(topic_bytes) = u16_at(body, 0) else { return Ok(None) };
        let topic = 2..2 + usize::from(topic_bytes);
        let head_bytes = topic.end + if ack.is_some() { 2 } else { 0 };
        if head_bytes > header.body_bytes {
            return Err(CodecError::Publish);
        }
        if head_bytes > body.len() {
            return Ok(None);
        }
        let packet_id = ack.and_then(|_| u16_at(body, topic.end));
        if packet_id == Some(0) {
            return Err(CodecError::Publish);
        }
        let ack = ack.zip(packet_id).map(|(ack, packet_id)| ack(packet_id));
        let properties = match Varint::read(&body[head_bytes..]) {
            Varint::Whole { value, bytes } if head_bytes + bytes + value <= header.body_bytes => {
                head_bytes..head_bytes + bytes + value
            }
            Varint::Incomplete if body.len() < header.body_bytes => return Ok(None),
            Varint::Whole { .. } | Varint::Incomplete | Varint::Malformed => head_bytes..head_bytes,
        };
        Ok(Some(Self { topic, ack, properties }))
    }
}

/// A PUBLISH above Maximum Packet Size. What is not kept is skipped as it comes.
#[derive(Debug)]
struct Cut {
    /// The topic, then the first bytes of the payload.
    kept: Vec<u8>,
    topic_bytes: usize,
    ack: Option<Ack>,
    redelivered: bool,
    payload_bytes: usize,
    /// Still to come of each.
    properties_left: usize,
    payload_left: usize,
}

impl Cut {
    fn new(header: Header, head: &Head, topic: &[u8]) -> Self {
        let payload_bytes = header.body_bytes - head.properties.end;
        let mut kept = Vec::with_capacity(topic.len() + payload_bytes.min(PAYLOAD_BYTES_MAX));
        kept.extend_from_slice(topic);
        Self {
            kept,
            topic_bytes: topic.len(),
            ack: head.ack,
            redelivered: header.is_redelivered(),
            payload_bytes,
            properties_left: head.properties.len(),
            payload_left: payload_bytes,
        }
    }

    /// Returns how many of the bytes belong to it.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let properties = bytes.len().min(self.properties_left);
        self.properties_left -= properties;
        let payload = &bytes[properties..];
        let payload = &payload[..payload.len().min(self.payload_left)];
        self.payload_left -= payload.len();
        let room = self.topic_bytes + PAYLOAD_BYTES_MAX - self.kept.len();
        self.kept.extend_from_slice(&payload[..payload.len().min(room)]);
        properties + payload.len()
    }

    fn is_complete(&self) -> bool {
        self.properties_left == 0 && self.payload_left == 0
    }

    fn publish(&self) -> Publish<'_> {
        let (topic, payload) = self.kept.split_at(self.topic_bytes);
        Publish {
            topic,
            payload,
            payload_bytes: self.payload_bytes,
            ack: self.ack,
            redelivered: self.redelivered,
        }
    }
}

/// A Variable Byte Integer (MQTT 5, 1.5.5).
enum Varint {
    Whole { value: usize, bytes: usize },
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
