//! MQTT 5 packets: the broker's bytes become packets, and packets become bytes.
//!
//! ```text
//! bytes read ─▶ Input ─▶ Packet (PUBLISH borrows topic and payload from the read buffer)
//! bytes to write ◀─ put_connect, put_subscribe, put_ack …
//! ```
//!
//! Guarantee: a PUBLISH with a valid QoS, a complete topic and a valid packet id is never an error.
//! If it were, the broker would send the same message again on every connection. The properties of
//! a PUBLISH are not parsed. The payload of a PUBLISH above Maximum Packet Size is truncated.
//!
//! Memory: [`Input`] buffers at most one read, and one packet of Maximum Packet Size. If that size
//! is small, the longest PUBLISH header counts instead. While a PUBLISH is truncated, [`Input`]
//! also holds its topic and the beginning of its payload.
//!
//! rumqttc's codec decodes CONNACK, SUBACK and UNSUBACK, and encodes CONNECT, SUBSCRIBE,
//! UNSUBSCRIBE, PUBLISH and PINGREQ. This crate does the rest.
//!
//! Refuses: packets that no server may send, and QoS 2.

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
