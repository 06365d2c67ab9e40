//! Reads lines of any length in bounded memory.

use std::io::{self, BufRead, Read as _};

use milepost_decode::{Message, PAYLOAD_BYTES_MAX};

/// Maximum bytes that [`next_line`] keeps of a line. With the default limits, the decoder rejects a
/// longer payload, and needs only its length and beginning for this.
const LINE_BYTES_MAX: usize = 1024 * 1024;

/// Reads the next line into `line`. Keeps at most [`LINE_BYTES_MAX`] bytes, and removes whitespace,
/// NUL and Ctrl-Z bytes at the end. Returns the length of the whole line without the removed bytes,
/// even if only the beginning was kept. Returns `None` at the end of the input.
pub fn next_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Option<usize>> {
    next_line_up_to(LINE_BYTES_MAX, input, line)
}

/// Like [`next_line`], but keeps at most `bytes_max` bytes of the line.
pub fn next_line_up_to(
    bytes_max: usize,
    input: &mut impl BufRead,
    line: &mut Vec<u8>,
) -> io::Result<Option<usize>> {
    line.clear();
    let mut length = input.by_ref().take(bytes_max as u64).read_until(b'\n', line)?;
    if length == 0 {
        return Ok(None);
    }
    if line.len() == bytes_max && !line.ends_with(b"\n") {
        length += input.skip_until(b'\n')?;
    }
    // A writer with a buffer of fixed size pads its text with NUL. DOS ends a text file with Ctrl-Z
    // (0x1a).
    let is_padding = |byte: &u8| byte.is_ascii_whitespace() || matches!(*byte, 0 | 0x1a);
    let end = line.iter().rposition(|byte| !is_padding(byte)).map_or(0, |last| last + 1);
    length -= line.len().min(length) - end; // do not count the removed bytes
    line.truncate(end);
    Ok(Some(length))
}

/// Returns a message with this payload. `length`: number of bytes of the whole line; `payload` may
/// be only its beginning.
pub fn message<'a>(topic: &'a str, payload: &'a [u8], length: usize) -> Message<'a> {
    let payload = if length > payload.len() {
        &payload[..PAYLOAD_BYTES_MAX.min(payload.len())]
    } else {
        payload
    };
    Message { payload_bytes: length, ..Message::new(topic.as_bytes(), payload) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_line_is_truncated_and_the_next_one_is_whole() {
        let long = "x".repeat(3 * LINE_BYTES_MAX);
        let text = format!("a b\0\r\n\n{long}\nlast\n\0\x1a");
        let (mut input, mut line) = (text.as_bytes(), Vec::new());
        let mut next = || {
            let length = next_line(&mut input, &mut line).unwrap();
            length.map(|length| (length, line.len(), line.first().copied()))
        };
        assert_eq!(next(), Some((3, 3, Some(b'a'))));
        assert_eq!(next(), Some((0, 0, None)));
        let (length, kept_bytes, first) = next().unwrap();
        assert_eq!((kept_bytes, first), (LINE_BYTES_MAX, Some(b'x')));
        assert!(length >= 3 * LINE_BYTES_MAX, "{length}");
        assert_eq!(next(), Some((4, 4, Some(b'l'))));
        assert_eq!(next(), Some((0, 0, None)));
        assert_eq!(next(), None);
    }
}
