//! Five bytes say how the rest is read, the rest is what the broker sends: Maximum Packet Size, the
//! sizes of the pieces (two, by turns), and where how much filler goes, since a topic or a payload
//! that makes the buffer grow is longer than any input.

#![no_main]

use libfuzzer_sys::fuzz_target;
use milepost_mqtt::{Input, Packet};
use milepost_decode::{Message, PAYLOAD_BYTES_MAX};

/// Owned copy of a [`Packet`], which borrows from its input.
#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Message {
        topic: Vec<u8>,
        payload: Vec<u8>,
        payload_bytes: usize,
        packet_id: Option<u16>,
        redelivered: bool,
    },
    Other(String),
    /// The last.
    Error(String),
}

fuzz_target!(|data: &[u8]| {
    let Some((&[packet, small, large, at, filler], sent)) = data.split_first_chunk() else { return };
    let packet_bytes_max = 1_024 << (packet % 8); // 128 KiB: larger than all that must fit anyway
    let at = usize::from(at).min(sent.len());
    let filler = vec![0; usize::from(filler) * 1_024];
    let sent = [&sent[..at], &filler, &sent[at..]].concat();

    let pieces = [1 + usize::from(small), 1 + 256 * usize::from(large)];
    let heard = hear(&sent, pieces, packet_bytes_max);
    assert_eq!(heard, hear(&sent, [usize::MAX; 2], packet_bytes_max), "the pieces make a difference");
    assert!(heard.len() <= sent.len() + 1);
});

fn hear(mut sent: &[u8], pieces: [usize; 2], packet_bytes_max: usize) -> Vec<Heard> {
    // The promise of `Input`: the larger of Maximum Packet Size and a PUBLISH's head, and one read.
    // `space` never makes its buffer larger and panics when that is not enough, so this sees both
    // sides of it.
    let bytes_max = packet_bytes_max.max(5 + 2 + 65_535 + 2 + 4) + 16 * 1_024;
    let mut input = Input::new(packet_bytes_max);
    let mut heard = Vec::new();
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
                Ok(Some(Packet::Published(publish))) => heard.push(message(publish)),
                Ok(Some(other)) => heard.push(Heard::Other(format!("{other:?}"))),
                Err(error) => {
                    heard.push(Heard::Error(error.to_string()));
                    return heard;
                }
            }
        }
    }
    heard
}

fn message(message: Message<'_>) -> Heard {
    let Message { topic, payload, payload_bytes, packet_id, redelivered } = message;
    let kept_min = payload_bytes.min(PAYLOAD_BYTES_MAX);
    assert!((kept_min..=payload_bytes).contains(&payload.len()), "{} of {payload_bytes}", payload.len());
    assert_ne!(packet_id, Some(0));
    Heard::Message { topic: topic.to_vec(), payload: payload.to_vec(), payload_bytes, packet_id, redelivered }
}
