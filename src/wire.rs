//! MQTT 5 as bytes: what came in, as packets; what we say, as bytes. The only file that names rumqttc, whose
//! codec reads and writes everything but PUBLISH and PUBACK.
//!
//! Guarantee: no PUBLISH whose packet id can be read is ever an error, because a message that cannot be
//! acknowledged comes again for ever. Its properties are never looked at; one larger than Maximum Packet Size
//! is cut, not refused. [`Input`] holds at most the larger of that size and a topic's, and one read.
//! Topic and payload are borrowed from where they were read. Refuses what no server may send us.

use std::ops::Range;

use bytes::{BufMut as _, BytesMut};
use rumqttc::v5::mqttbytes::v5::{
    Connect, ConnectProperties, Disconnect, DisconnectReasonCode, Filter, Login, Packet as Rest, PingReq,
    Publish as Outgoing, Subscribe, SubscribeReasonCode, Unsubscribe,
};
use rumqttc::v5::mqttbytes::{Error as CodecError, QoS};

use crate::decode::REJECT_PAYLOAD_BYTES_MAX;
use crate::position::Qos;

/// Packet types, the upper half of a packet's first byte (MQTT 5, 2.1.2).
const CONNACK: u8 = 2;
const PUBLISH: u8 = 3;
/// Only `milepost check` publishes.
pub const PUBACK: u8 = 4;
const SUBACK: u8 = 9;
const UNSUBACK: u8 = 11;
const PINGRESP: u8 = 13;
const DISCONNECT: u8 = 14;

/// A DISCONNECT's reason when another client comes with our client id (MQTT 5, 3.14.2.1).
const SESSION_TAKEN_OVER: u8 = 0x8E;
/// A PUBLISH up to its properties: both headers, the longest topic, packet id, property length.
const PUBLISH_HEAD_BYTES_MAX: usize = 5 + 2 + 65_535 + 2 + 4;
/// There is always room for a read of this size.
const READ_BYTES_MIN: usize = 16 * 1024;
/// What the buffer begins with: a busy millisecond fits.
const READ_BYTES_FIRST: usize = 64 * 1024;
/// Ours need not differ: one request of each kind is under way at most.
const SUBSCRIBE_ID: u16 = 1;
const UNSUBSCRIBE_ID: u16 = 2;

/// Why a connection cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// No such length exists (MQTT 5, 1.5.5).
    #[error("the broker sends a malformed length: does it speak MQTT?")]
    RemainingLength,
    /// Not a packet for a client that only subscribes, or not now.
    #[error("the broker sends packet type {0}, which has no place here: does it speak MQTT 5?")]
    Unexpected(u8),
    /// Longer than any such packet has a reason to be.
    #[error("the broker sends {bytes} bytes of packet type {kind}, above mqtt.max_packet_bytes")]
    TooLarge {
        /// Packet type.
        kind: u8,
        /// The whole packet's.
        bytes: usize,
    },
    /// We subscribe at 1 or below.
    #[error("the broker sends a PUBLISH at QoS 2: another program's session? Give us our own mqtt.client_id")]
    ExactlyOnce,
    /// Nothing that could be acknowledged.
    #[error("the broker sends a PUBLISH without a whole topic and packet id")]
    Publish,
    /// CONNACK says no.
    #[error("the broker refuses us: {0}")]
    Refused(String),
    /// The broker's DISCONNECT.
    #[error("the broker ends the connection: {words}")]
    Disconnected {
        /// Reason 0x8E.
        taken_over: bool,
        /// The reason's name.
        words: String,
    },
    /// Another packet that cannot be read, or cannot be written.
    #[error("no valid packet")]
    Codec(#[from] CodecError),
}

/// What the broker says.
#[derive(Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// PUBLISH.
    Published(Publish<'a>),
    /// CONNACK, of a connection that is accepted.
    Connected(Welcome),
    /// SUBACK: an answer for each filter, in the order asked.
    Subscribed(Vec<Grant>),
    /// PUBACK, with its reason.
    Acked(u8),
    /// UNSUBACK.
    Unsubscribed,
    /// PINGRESP.
    Pong,
}

/// A message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Publish<'a> {
    /// As sent.
    pub topic: &'a [u8],
    /// As sent, or the first [`REJECT_PAYLOAD_BYTES_MAX`] of a packet larger than Maximum Packet Size.
    pub payload: &'a [u8],
    /// How long the payload was before the cut.
    pub payload_bytes: usize,
    /// `None` at QoS 0.
    pub packet_id: Option<u16>,
}

/// CONNACK's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Welcome {
    /// The broker still holds our session.
    pub session_present: bool,
    /// Receive Maximum.
    pub receive_maximum: Option<u16>,
    /// Server Keep Alive, in seconds; 0 is none.
    pub keep_alive_seconds: Option<u16>,
    /// Session Expiry Interval, where it is not the one we asked for.
    pub session_expiry_seconds: Option<u32>,
    /// The server's Maximum Packet Size: for what is published there.
    pub packet_bytes_max: Option<u32>,
    /// Shared Subscription Available.
    pub shared_subscriptions: bool,
}

/// What became of one filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grant {
    /// At most this.
    Granted(Qos),
    /// By the broker's access rules.
    NotAuthorized,
    /// The broker has none, or they are off.
    NoSharedSubscriptions,
    /// The reason's name.
    Refused(String),
}

/// What we ask for when we connect.
#[derive(Debug)]
pub struct Hello<'a> {
    /// Names the session.
    pub client_id: String,
    /// Forget what the broker holds of this client.
    pub clean_start: bool,
    /// User name and password.
    pub login: Option<&'a (String, String)>,
    /// Seconds.
    pub keep_alive_seconds: u16,
    /// How long the broker is to keep the session without us.
    pub session_expiry_seconds: u32,
    /// Unacknowledged messages.
    pub receive_maximum: u16,
    /// Maximum Packet Size.
    pub packet_bytes_max: u32,
}

/// Bytes on their way in. One connection's: a new one gets a new `Input`.
#[derive(Debug)]
pub struct Input {
    buffer: Vec<u8>,
    /// Where the bytes not yet taken are.
    waiting: Range<usize>,
    packet_bytes_max: usize,
    welcomed: bool,
    cut: Option<Cut>,
}

impl Input {
    /// Packets above `packet_bytes_max` are cut.
    #[must_use]
    pub fn new(packet_bytes_max: usize) -> Self {
        let first = READ_BYTES_FIRST.min(Self::bytes_max(packet_bytes_max));
        Self { buffer: vec![0; first], waiting: 0..0, packet_bytes_max, welcomed: false, cut: None }
    }

    /// The memory it never exceeds.
    fn bytes_max(packet_bytes_max: usize) -> usize {
        packet_bytes_max.max(PUBLISH_HEAD_BYTES_MAX) + READ_BYTES_MIN
    }

    /// Where to read into; then say how much [came](Self::came). Only when [`packet`](Self::packet) gave `None`.
    pub fn space(&mut self) -> &mut [u8] {
        if self.waiting.is_empty() {
            self.waiting = 0..0;
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
    }

    /// The next packet that is there as a whole, or cut as far as it will be.
    ///
    /// # Errors
    /// The connection must end.
    pub fn packet(&mut self) -> Result<Option<Packet<'_>>, WireError> {
        self.cut.take_if(|cut| cut.is_complete());
        if self.cut.is_none() {
            match self.frame()? {
                Frame::Incomplete => return Ok(None),
                Frame::Whole(header, body) => return header.decode(&self.buffer, body).map(Some),
                Frame::Cut(cut) => self.cut = Some(cut),
            }
        }
        let Some(cut) = &mut self.cut else { return Ok(None) };
        self.waiting.start += cut.take(&self.buffer[self.waiting.clone()]);
        Ok(cut.is_complete().then(|| Packet::Published(cut.publish())))
    }

    /// Splits the next frame off.
    fn frame(&mut self) -> Result<Frame, WireError> {
        let waiting = &self.buffer[self.waiting.clone()];
        let Some(&first) = waiting.first() else { return Ok(Frame::Incomplete) };
        let (kind, flags) = (first >> 4, first & 0x0F);
        if (kind == CONNACK) == self.welcomed {
            return Err(WireError::Unexpected(kind)); // anything before CONNACK, or a second one
        }
        let (body_bytes, length_bytes) = match Varint::read(&waiting[1..]) {
            Varint::Whole { value, bytes } => (value, bytes),
            Varint::Incomplete => return Ok(Frame::Incomplete),
            Varint::Malformed => return Err(WireError::RemainingLength),
        };
        let header = Header { kind, flags, body_bytes };
        let body_at = 1 + length_bytes;
        if body_at + body_bytes > self.packet_bytes_max {
            if kind != PUBLISH {
                return Err(WireError::TooLarge { kind, bytes: body_at + body_bytes });
            }
            let body = &waiting[body_at..];
            return Ok(match Head::read(header, &body[..body.len().min(body_bytes)])? {
                None => Frame::Incomplete,
                Some(head) => {
                    let cut = Cut::new(&head, &body[head.topic.clone()], body_bytes);
                    self.waiting.start += body_at + head.properties.start;
                    Frame::Cut(cut)
                }
            });
        }
        if waiting.len() - body_at < body_bytes {
            return Ok(Frame::Incomplete);
        }
        self.welcomed = true;
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

/// A packet's first bytes.
#[derive(Debug, Clone, Copy)]
struct Header {
    kind: u8,
    flags: u8,
    body_bytes: usize,
}

impl Header {
    fn decode(self, buffer: &[u8], body: Range<usize>) -> Result<Packet<'_>, WireError> {
        let body = &buffer[body];
        match self.kind {
            PUBLISH => {
                let head = Head::read(self, body)?.ok_or(WireError::Publish)?;
                let payload = &body[head.properties.end..];
                Ok(Packet::Published(Publish {
                    topic: &body[head.topic],
                    payload,
                    payload_bytes: payload.len(),
                    packet_id: head.packet_id,
                }))
            }
            CONNACK => welcome(body),
            SUBACK => {
                let Rest::SubAck(answer) = self.decode_rest(body)? else {
                    return Err(WireError::Unexpected(self.kind));
                };
                Ok(Packet::Subscribed(answer.return_codes.into_iter().map(grant).collect()))
            }
            PUBACK => Ok(Packet::Acked(body.get(2).copied().unwrap_or(0))),
            UNSUBACK => Ok(Packet::Unsubscribed),
            PINGRESP => Ok(Packet::Pong),
            DISCONNECT => {
                let reason = body.first().copied().unwrap_or(0);
                let words = DisconnectReasonCode::try_from(reason)
                    .map_or_else(|_| format!("reason {reason:#04x}"), |reason| format!("{reason:?}"));
                Err(WireError::Disconnected { taken_over: reason == SESSION_TAKEN_OVER, words })
            }
            other => Err(WireError::Unexpected(other)),
        }
    }

    /// By the codec, which takes whole packets.
    fn decode_rest(self, body: &[u8]) -> Result<Rest, CodecError> {
        let mut packet = BytesMut::with_capacity(5 + body.len());
        packet.put_u8(self.kind << 4 | self.flags);
        put_varint(body.len(), &mut packet);
        packet.put_slice(body);
        Rest::read(&mut packet, None)
    }
}

/// Where the parts of a PUBLISH's body are.
struct Head {
    topic: Range<usize>,
    packet_id: Option<u16>,
    /// With their length; empty if that does not fit: then the payload begins here.
    properties: Range<usize>,
}

impl Head {
    /// From the body's first bytes; `None` if there are too few of them.
    fn read(header: Header, body: &[u8]) -> Result<Option<Self>, WireError> {
        let has_id = match (header.flags >> 1) & 3 {
            0 => false,
            1 => true,
            2 => return Err(WireError::ExactlyOnce),
            _ => return Err(WireError::Publish),
        };
        if header.body_bytes < 2 {
            return Err(WireError::Publish);
        }
        let Some(topic_bytes) = u16_at(body, 0) else { return Ok(None) };
        let topic = 2..2 + usize::from(topic_bytes);
        let head_bytes = topic.end + if has_id { 2 } else { 0 };
        if head_bytes > header.body_bytes {
            return Err(WireError::Publish);
        }
        if head_bytes > body.len() {
            return Ok(None);
        }
        let packet_id = if has_id { u16_at(body, topic.end) } else { None };
        if packet_id == Some(0) {
            return Err(WireError::Publish);
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

/// A PUBLISH above Maximum Packet Size. What is not kept is skipped as it comes.
#[derive(Debug)]
struct Cut {
    /// The topic, then the first bytes of the payload.
    kept: Vec<u8>,
    topic_bytes: usize,
    packet_id: Option<u16>,
    payload_bytes: usize,
    /// Still to come of each.
    properties_left: usize,
    payload_left: usize,
}

impl Cut {
    fn new(head: &Head, topic: &[u8], body_bytes: usize) -> Self {
        let payload_bytes = body_bytes - head.properties.end;
        let mut kept = Vec::with_capacity(topic.len() + payload_bytes.min(REJECT_PAYLOAD_BYTES_MAX));
        kept.extend_from_slice(topic);
        Self {
            kept,
            topic_bytes: topic.len(),
            packet_id: head.packet_id,
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
        let room = self.topic_bytes + REJECT_PAYLOAD_BYTES_MAX - self.kept.len();
        self.kept.extend_from_slice(&payload[..payload.len().min(room)]);
        properties + payload.len()
    }

    fn is_complete(&self) -> bool {
        self.properties_left == 0 && self.payload_left == 0
    }

    fn publish(&self) -> Publish<'_> {
        let (topic, payload) = self.kept.split_at(self.topic_bytes);
        Publish { topic, payload, payload_bytes: self.payload_bytes, packet_id: self.packet_id }
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

fn u16_at(bytes: &[u8], index: usize) -> Option<u16> {
    bytes.get(index..index + 2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
}

fn welcome(body: &[u8]) -> Result<Packet<'static>, WireError> {
    let header = Header { kind: CONNACK, flags: 0, body_bytes: body.len() };
    match body.get(1) {
        None => return Err(CodecError::MalformedPacket.into()),
        Some(0) => {}
        Some(&reason) => {
            let said = match header.decode_rest(body) {
                Ok(Rest::ConnAck(answer)) => {
                    answer.properties.and_then(|properties| properties.reason_string)
                }
                Ok(_) | Err(_) => None,
            };
            let said = said.map_or(String::new(), |said| format!(" (\"{said}\")"));
            return Err(WireError::Refused(format!("{}{said}", refusal(reason))));
        }
    }
    let Rest::ConnAck(answer) = header.decode_rest(body)? else {
        return Err(WireError::Unexpected(CONNACK));
    };
    let terms = answer.properties.as_ref();
    Ok(Packet::Connected(Welcome {
        session_present: answer.session_present,
        receive_maximum: terms.and_then(|terms| terms.receive_max),
        keep_alive_seconds: terms.and_then(|terms| terms.server_keep_alive),
        session_expiry_seconds: terms.and_then(|terms| terms.session_expiry_interval),
        packet_bytes_max: terms.and_then(|terms| terms.max_packet_size),
        shared_subscriptions: terms.and_then(|terms| terms.shared_subscription_available) != Some(0),
    }))
}

/// CONNACK's reason, and what to change (MQTT 5, 3.2.2.2; below 0x80 it is MQTT 3.1.1's).
fn refusal(reason: u8) -> String {
    let words = match reason {
        0x01 | 0x84 => "it does not speak MQTT 5",
        0x02 | 0x85 => "it does not take this client id; change mqtt.client_id",
        0x04 | 0x86 => "bad user name or password; set mqtt.username and mqtt.password_file",
        0x05 | 0x87 => "not authorized; set mqtt.username and mqtt.password_file, or let this user in there",
        0x03 | 0x88 => "the server is unavailable",
        0x89 => "the server is busy",
        0x8A => "this client is banned there",
        0x8C => "bad authentication method; we have user name and password only",
        0x97 => "a quota is exceeded there",
        0x9C | 0x9D => "use another server; change mqtt.url",
        0x9F => "too many connections a second",
        _ => return format!("reason {reason:#04x}"),
    };
    words.to_owned()
}

fn grant(code: SubscribeReasonCode) -> Grant {
    match code {
        SubscribeReasonCode::Success(QoS::AtMostOnce) => Grant::Granted(Qos::AtMostOnce),
        SubscribeReasonCode::Success(QoS::AtLeastOnce | QoS::ExactlyOnce) => Grant::Granted(Qos::AtLeastOnce),
        SubscribeReasonCode::NotAuthorized => Grant::NotAuthorized,
        SubscribeReasonCode::SharedSubscriptionsNotSupported => Grant::NoSharedSubscriptions,
        SubscribeReasonCode::Failure
        | SubscribeReasonCode::Unspecified
        | SubscribeReasonCode::ImplementationSpecific
        | SubscribeReasonCode::TopicFilterInvalid
        | SubscribeReasonCode::PkidInUse
        | SubscribeReasonCode::QuotaExceeded
        | SubscribeReasonCode::SubscriptionIdNotSupported
        | SubscribeReasonCode::WildcardSubscriptionsNotSupported => Grant::Refused(format!("{code:?}")),
    }
}

/// CONNECT.
///
/// # Errors
/// Something in it is longer than MQTT allows.
pub fn put_connect(hello: Hello<'_>, out: &mut BytesMut) -> Result<(), WireError> {
    let connect = Connect {
        keep_alive: hello.keep_alive_seconds,
        client_id: hello.client_id,
        clean_start: hello.clean_start,
        properties: Some(ConnectProperties {
            session_expiry_interval: Some(hello.session_expiry_seconds),
            receive_maximum: Some(hello.receive_maximum),
            max_packet_size: Some(hello.packet_bytes_max),
            topic_alias_max: None, // an aliased PUBLISH has no topic
            ..ConnectProperties::new()
        }),
    };
    let login = hello.login.map(|(username, password)| Login::new(username, password));
    connect.write(&None, &login, out)?;
    Ok(())
}

/// SUBSCRIBE.
///
/// # Errors
/// The filters are longer than MQTT allows.
pub fn put_subscribe(filters: &[String], qos: Qos, out: &mut BytesMut) -> Result<(), WireError> {
    let qos = match qos {
        Qos::AtMostOnce => QoS::AtMostOnce,
        Qos::AtLeastOnce => QoS::AtLeastOnce,
    };
    let filters = filters.iter().map(|filter| Filter::new(filter, qos)).collect();
    Subscribe { pkid: SUBSCRIBE_ID, filters, properties: None }.write(out)?;
    Ok(())
}

/// PUBLISH at QoS 1.
///
/// # Errors
/// The topic is longer than MQTT allows.
pub fn put_publish(topic: &str, payload: &[u8], out: &mut BytesMut) -> Result<(), WireError> {
    let mut publish = Outgoing::new(topic, QoS::AtLeastOnce, payload.to_vec(), None);
    publish.pkid = 1;
    publish.write(out)?;
    Ok(())
}

/// UNSUBSCRIBE.
///
/// # Errors
/// The filters are longer than MQTT allows.
pub fn put_unsubscribe(filters: &[String], out: &mut BytesMut) -> Result<(), WireError> {
    Unsubscribe { pkid: UNSUBSCRIBE_ID, filters: filters.to_vec(), properties: None }.write(out)?;
    Ok(())
}

/// PINGREQ.
///
/// # Errors
/// None that we know of.
pub fn put_ping(out: &mut BytesMut) -> Result<(), WireError> {
    PingReq::write(out)?;
    Ok(())
}

/// DISCONNECT, without reason and properties: the session stays.
///
/// # Errors
/// None that we know of.
pub fn put_disconnect(out: &mut BytesMut) -> Result<(), WireError> {
    Disconnect::new(DisconnectReasonCode::NormalDisconnection).write(out)?;
    Ok(())
}

/// PUBACK, with success.
pub fn put_ack(packet_id: u16, out: &mut BytesMut) {
    let [high, low] = packet_id.to_be_bytes();
    out.put_slice(&[0x40, 2, high, low]);
}
