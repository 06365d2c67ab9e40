//! The input is five bytes of parameters, and then the bytes that the broker sends. The first
//! parameter selects Maximum Packet Size. The next two select the sizes of the pieces in which the
//! bytes are read: a small and a large piece alternate. The last two are the position and the
//! length, in KiB, of a filler that is put into the bytes. Without a filler, no input would be long
//! enough for a topic or a payload that makes the buffer grow.

#![no_main]

use libfuzzer_sys::fuzz_target;
use milepost_decode::{Message, PAYLOAD_BYTES_MAX};
use milepost_mqtt::{Input, Packet};

/// Owned copy of a [`Packet`], which borrows from its input.
#[derive(Debug, PartialEq, Eq)]
enum Received {
    Message {
        topic: Vec<u8>,
        payload: Vec<u8>,
        payload_bytes: usize,
        packet_id: Option<u16>,
        redelivered: bool,
    },
    Other(String),
    /// An error ends the connection, so no packet follows.
    Error(String),
}

fuzz_target!(|data: &[u8]| {
    let Some((&[packet, small, large, at, filler], sent)) = data.split_first_chunk() else {
        return;
    };
    let packet_bytes_max = 1_024 << (packet % 8); // up to 128 KiB, more than a PUBLISH head
    let at = usize::from(at).min(sent.len());
    let filler = vec![0; usize::from(filler) * 1_024];
    let sent = [&sent[..at], &filler, &sent[at..]].concat();

    let pieces = [1 + usize::from(small), 1 + 256 * usize::from(large)];
    let received = receive(&sent, pieces, packet_bytes_max);
    assert_eq!(
        received,
        receive(&sent, [usize::MAX; 2], packet_bytes_max),
        "the result must not depend on the sizes of the pieces"
    );
    assert!(received.len() <= sent.len() + 1);
});

/// Reads the bytes in pieces of these sizes. Returns the packets, and the error that ends them.
fn receive(mut sent: &[u8], pieces: [usize; 2], packet_bytes_max: usize) -> Vec<Received> {
    // `Input` guarantees a bound of its buffer: the larger of Maximum Packet Size and the head of a
    // PUBLISH, plus one read. `space` never makes the buffer larger than that, and panics if a
    // packet does not fit. So this target checks that the bound is kept, and that it is sufficient.
    let bytes_max = packet_bytes_max.max(5 + 2 + 65_535 + 2 + 4) + 16 * 1_024;
    let mut input = Input::new(packet_bytes_max);
    let mut received = Vec::new();
    for piece in pieces.into_iter().cycle() {
        if sent.is_empty() {
            break;
        }
        let space = input.space();
        assert!((1..=bytes_max).contains(&space.len()));
        let bytes = piece.min(space.len()).min(sent.len());
        let (now, later) = sent.split_at(bytes);
        space[..bytes].copy_from_slice(now);
        input.advance(bytes);
        sent = later;
        loop {
            match input.packet() {
                Ok(None) => break,
                Ok(Some(Packet::Published(publish))) => received.push(message(publish)),
                Ok(Some(other)) => received.push(Received::Other(format!("{other:?}"))),
                Err(error) => {
                    received.push(Received::Error(error.to_string()));
                    return received;
                }
            }
        }
    }
    received
}

/// Checks the payload and the packet id of a message, and copies the message.
fn message(message: Message<'_>) -> Received {
    let Message { topic, payload, payload_bytes, packet_id, redelivered } = message;
    let kept_min = payload_bytes.min(PAYLOAD_BYTES_MAX);
    assert!(
        (kept_min..=payload_bytes).contains(&payload.len()),
        "{} of {payload_bytes}",
        payload.len()
    );
    assert_ne!(packet_id, Some(0));
    Received::Message {
        topic: topic.to_vec(),
        payload: payload.to_vec(),
        payload_bytes,
        packet_id,
        redelivered,
    }
}
