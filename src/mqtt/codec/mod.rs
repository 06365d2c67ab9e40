//! MQTT 5: bytes that came in → packets, and packets → bytes. The only room that names rumqttc. Its codec reads and writes
//! everything but PUBLISH, its acknowledgements and DISCONNECT.
//!
//! Guarantee: no PUBLISH whose packet id can be read is ever an error, because a message that cannot be acknowledged comes
//! again for ever. Its properties are never looked at; one larger than Maximum Packet Size is cut, not refused. [`Input`]
//! holds at most the larger of that size and a topic's, and one read. Topic and payload are borrowed from where they were
//! read. Refuses what no server may send us.

mod answers;
mod header;
mod input;
mod output;
mod packet;

pub use self::input::Input;
pub(crate) use self::output::put_publish;
pub use self::output::{
    put_ack, put_completed, put_connect, put_disconnect, put_ping, put_subscribe, put_unsubscribe,
};
pub(crate) use self::packet::PUBACK;
pub use self::packet::{CodecError, ConnAck, Connect, Grant, Packet, Publish, Subscribing, Unsubscribing};
