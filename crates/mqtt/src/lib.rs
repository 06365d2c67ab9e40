//! MQTT 5 packets: the broker's bytes become packets, and packets become bytes.
//!
//! ```text
//! bytes read ─▶ Input ─▶ Packet (PUBLISH borrows topic and payload from the read buffer)
//! bytes to write ◀─ put_connect, put_subscribe, put_ack …
//! ```
//!
//! Guarantee: a PUBLISH whose packet id can be read is never an error, because the broker would
//! send it again on every connection. Properties are skipped unread. If a packet is larger than
//! Maximum Packet Size, the payload is truncated.
//! [`Input`] holds at most the larger of that size and a topic's, and one read. rumqttc's codec reads and writes
//! everything but PUBLISH, its acknowledgements and DISCONNECT.
//!
//! Refuses: packets that no server may send, QoS 2.

mod answers;
mod header;
mod input;
mod output;
mod packet;

pub use self::input::Input;
pub use self::output::put_publish;
pub use self::output::{
    put_ack, put_connect, put_disconnect, put_ping, put_subscribe, put_unsubscribe,
};
pub use self::packet::PUBACK;
pub use self::packet::{CodecError, Connect, Grant, Packet, Subscribing};
