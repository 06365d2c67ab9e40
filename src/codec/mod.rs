//! MQTT 5 packets: the bytes that came in → packets, and packets → bytes. The only room that names rumqttc. Its codec reads and
//! writes everything but PUBLISH, its acknowledgements and DISCONNECT.
//!
//! Guarantee: a PUBLISH whose packet id can be read is never an error, because the broker would send it again on every
//! connection. Properties are skipped unread. If a packet is larger than Maximum Packet Size, the payload is truncated.
//! [`Input`] holds at most the larger of that size and a topic's, and one read. Topic and payload are borrowed from the read
//! buffer. Packets that no server may send are errors.

mod answers;
mod header;
mod input;
mod message;
mod output;
mod packet;

pub use self::input::Input;
pub use self::message::{Message, PAYLOAD_BYTES_MAX, Qos};
pub(crate) use self::output::put_publish;
pub use self::output::{put_ack, put_connect, put_disconnect, put_ping, put_subscribe, put_unsubscribe};
pub(crate) use self::packet::PUBACK;
pub use self::packet::{CodecError, ConnAck, Connect, Grant, Packet, Subscribing};
