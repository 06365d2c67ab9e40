//! The packets that milepost reads, and the parameters of those that it writes.

use rumqttc::v5::mqttbytes::Error as LibraryError;

use milepost_core::Qos;
use milepost_core::session::ConnAck;
use milepost_decode::Message;

/// Packet types, the upper half of a packet's first byte (MQTT 5, 2.1.2).
pub(super) const CONNACK: u8 = 2;
pub(super) const PUBLISH: u8 = 3;
pub const PUBACK: u8 = 4;
pub(super) const PUBREC: u8 = 5;
pub(super) const PUBREL: u8 = 6;
pub(super) const PUBCOMP: u8 = 7;
pub(super) const SUBACK: u8 = 9;
pub(super) const UNSUBACK: u8 = 11;
pub(super) const PINGRESP: u8 = 13;
pub(super) const DISCONNECT: u8 = 14;

/// An error that ends the connection.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// A Variable Byte Integer of more than four bytes (MQTT 5, 1.5.5).
    #[error("malformed packet length from the broker: does it speak MQTT?")]
    RemainingLength,
    /// A packet type that a subscriber never receives, or cannot receive in this state.
    #[error("unexpected packet type {0} from the broker: does it speak MQTT 5?")]
    Unexpected(u8),
    /// A packet other than PUBLISH above `mqtt.max_packet_bytes`.
    #[error(
        "packet of type {kind} with {bytes} bytes from the broker, above mqtt.max_packet_bytes"
    )]
    TooLarge {
        kind: u8,
        /// Length of the whole packet.
        bytes: usize,
    },
    /// SUBACK or UNSUBACK with a packet id that milepost did not send.
    #[error("reply to unknown packet id {0} from the broker")]
    UnknownPacketId(u16),
    /// A PUBLISH with an invalid QoS, an incomplete topic, or an incomplete or invalid packet id.
    /// Such a PUBLISH cannot be acknowledged.
    #[error("PUBLISH with an invalid QoS, topic or packet id from the broker")]
    Publish,
    /// CONNACK with a reason other than success.
    #[error("the broker refused the connection: {explanation}")]
    Refused {
        /// CONNACK's reason code (MQTT 5, 3.2.2.2).
        reason: u8,
        /// The reason in words, and what to change.
        explanation: String,
    },
    /// The broker's DISCONNECT.
    #[error("the broker ended the connection: {explanation}")]
    Disconnected {
        /// DISCONNECT's reason code (MQTT 5, 3.14.2.1).
        reason: u8,
        /// Whether the reason is 0x8E: another client has connected with the same client id.
        taken_over: bool,
        /// The reason's name.
        explanation: String,
    },
    /// A packet that the library cannot decode or encode.
    #[error("malformed packet")]
    Library(#[from] LibraryError),
}

/// A packet from the broker.
#[derive(Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// PUBLISH at QoS 0 or 1.
    Published(Message<'a>),
    /// A step of a QoS 2 delivery, which is refused.
    ExactlyOnce {
        /// The refusal: a whole packet for the broker.
        reply: [u8; 5],
    },
    /// CONNACK of an accepted connection.
    Connected(ConnAck),
    /// SUBACK, with an answer for each filter in the order of the request.
    Subscribed(Subscribing, Vec<Grant>),
    /// PUBACK, with its reason code.
    Acked(u8),
    /// UNSUBACK, with the reason for each refused filter. "No subscription existed" is not a
    /// refusal.
    Unsubscribed(Vec<String>),
    /// PINGRESP.
    Pong,
}

/// The kind of filters in a SUBSCRIBE. At most one SUBSCRIBE of each kind is unanswered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subscribing {
    /// The `$share/…` filters of milepost's group.
    Group,
    /// The broker's own counters.
    BrokerMetrics,
}

impl Subscribing {
    /// Returns the packet id of this SUBSCRIBE, which identifies the answer.
    pub(super) const fn packet_id(self) -> u16 {
        match self {
            Self::Group => 1,
            Self::BrokerMetrics => 4,
        }
    }

    pub(super) fn from_packet_id(packet_id: u16) -> Option<Self> {
        [Self::Group, Self::BrokerMetrics].into_iter().find(|kind| kind.packet_id() == packet_id)
    }
}

/// The packet id of UNSUBSCRIBE. At most one UNSUBSCRIBE is unanswered.
pub(super) const UNSUBSCRIBE_PACKET_ID: u16 = 3;

/// The broker's answer for one filter of a SUBSCRIBE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grant {
    /// The subscription is granted, with this maximum QoS.
    Granted(Qos),
    /// The broker's access rules do not allow the filter.
    NotAuthorized,
    /// The broker does not support shared subscriptions, or they are disabled.
    NoSharedSubscriptions,
    /// The filter is refused for another reason, with the reason's name.
    Refused(String),
}

/// The fields of CONNECT.
#[derive(Debug)]
pub struct Connect<'a> {
    /// The client id, which names the session.
    pub client_id: String,
    /// Clean Start: whether the broker discards the session that it holds for this client.
    pub clean_start: bool,
    /// User name and password; `None` to connect without a login.
    pub login: Option<&'a (String, String)>,
    pub keep_alive_seconds: u16,
    /// Session Expiry Interval: how long the broker keeps the session without a connection.
    pub session_expiry_seconds: u32,
    /// Receive Maximum: how many unacknowledged messages the broker may send.
    pub receive_maximum: u16,
    /// Maximum Packet Size.
    pub packet_bytes_max: u32,
}
