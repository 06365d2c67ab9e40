//! Unpacks payloads that are compressed with gzip or zstd, and converts CBOR to JSON.
//!
//! Guarantee: a payload in UTF-8 passes unchanged, because no valid UTF-8 begins with the bytes by
//! which this module recognises gzip, zstd and CBOR.
//! The output is limited in bytes and, for compressed payloads, in its ratio to the input.
//! Unpacking stops at the limit.

use std::io::Read as _;

use ciborium_ll::{Decoder, Header, simple};
use flate2::read::MultiGzDecoder;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::refusal::{Refusal, refuse};
use crate::reject::Reason;

/// Maximum ratio of unpacked to compressed bytes. For comparison: an array of points of a parked
/// vehicle has a ratio of about 20.
const RATIO_MAX: usize = 100;
/// Maximum number of zstd frames. Each frame needs a decoder of its own.
const ZSTD_FRAMES_MAX: usize = 16;
/// Largest accepted window in bytes: RFC 8878 recommends that every decoder support it.
const ZSTD_WINDOW_BYTES_MAX: u64 = 8 << 20;
/// Maximum nesting depth of CBOR, about that of serde_json.
const CBOR_DEPTH_MAX: usize = 100;
/// First bytes of floats of 16 and 32 bits in CBOR.
const HALF_FLOAT: u8 = 0xf9;
const SINGLE_FLOAT: u8 = 0xfa;
/// 2²⁴: a float of 32 bits represents all whole numbers up to this one.
const WHOLE_SINGLE_MAX: f64 = 16_777_216.0;

/// Unpacks a payload; `None` if it is neither gzip nor zstd nor CBOR. CBOR may be compressed.
/// `is_json`: the format reads JSON, so CBOR is allowed. `is_time`: returns whether a member with
/// the given name may hold the time of the fix.
///
/// # Errors
/// The payload cannot be unpacked, or exceeds a limit.
pub(super) fn unpack(
    payload: &[u8],
    is_json: bool,
    is_time: impl Fn(&str) -> bool,
    bytes_max: usize,
) -> Result<Option<Vec<u8>>, Refusal> {
    let limit = bytes_max.min(payload.len().saturating_mul(RATIO_MAX));
    let unpacked = match payload {
        [0x1f, 0x8b, ..] => gzip(payload, limit)?,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => zstd(payload, limit)?,
        _ if is_json && is_cbor(payload) => {
            return CborToJson::convert(payload, &is_time, bytes_max).map(Some);
        }
        _ => return Ok(None),
    };
    if unpacked.len() > limit {
        return refuse(
            Reason::TooLarge,
            format!(
                "{} compressed bytes hold more than {limit} bytes, the limit for a payload of this \
                 size",
                payload.len()
            ),
        );
    }
    if is_json && is_cbor(&unpacked) {
        CborToJson::convert(&unpacked, &is_time, bytes_max).map(Some)
    } else {
        Ok(Some(unpacked))
    }
}

/// Returns whether the payload begins with an array, a map, or the tag "self-described CBOR".
fn is_cbor(payload: &[u8]) -> bool {
    matches!(payload, [0x80..=0xbf, ..] | [0xd9, 0xd9, 0xf7, ..])
}

/// Creates the refusal of gzip, zstd or CBOR that cannot be read. Its reason is that of any payload
/// that cannot be read as text.
fn unreadable(detail: String) -> Refusal {
    Refusal::new(Reason::InvalidUtf8, detail)
}

/// Unpacks gzip. May return one byte more than `limit`.
fn gzip(payload: &[u8], limit: usize) -> Result<Vec<u8>, Refusal> {
    let mut unpacked = Vec::new();
    let read = MultiGzDecoder::new(payload).take(limit as u64 + 1).read_to_end(&mut unpacked);
    read.map(|_| unpacked).map_err(|error| unreadable(format!("gzip: {error}")))
}

/// Unpacks all zstd frames of a payload, just as [`gzip`] unpacks all gzip members. May exceed
/// `limit` by up to 128 KiB, the size of a block.
fn zstd(mut payload: &[u8], limit: usize) -> Result<Vec<u8>, Refusal> {
    let mut unpacked = Vec::new();
    for _ in 0..ZSTD_FRAMES_MAX {
        unpacked.append(&mut frame(&mut payload, limit - unpacked.len())?);
        if payload.is_empty() || unpacked.len() > limit {
            return Ok(unpacked);
        }
    }
    Err(unreadable(format!("zstd: more than {ZSTD_FRAMES_MAX} frames")))
}

/// Unpacks the frame at the beginning of `payload`, and advances `payload` past it.
fn frame(payload: &mut &[u8], limit: usize) -> Result<Vec<u8>, Refusal> {
    let mut decoder = FrameDecoder::new();
    decoder.set_max_window_size(ZSTD_WINDOW_BYTES_MAX);
    let read = decoder.init(&mut *payload).and_then(|()| {
        decoder.decode_blocks(&mut *payload, BlockDecodingStrategy::UptoBytes(limit + 1))
    });
    match read {
        Err(error) => return Err(unreadable(format!("zstd: {error}"))),
        // The frame exceeds `limit`. Return a result that is too long as well: its length makes the
        // caller reject the payload.
        Ok(false) => return Ok(vec![0; limit + 1]),
        Ok(true) => {}
    }
    let unpacked = decoder.collect().unwrap_or_default();
    if decoder
        .get_checksum_from_data()
        .is_none_or(|sum| Some(sum) == decoder.get_calculated_checksum())
    {
        Ok(unpacked)
    } else {
        Err(unreadable("zstd: the checksum is wrong".into()))
    }
}

/// Converts CBOR to JSON (RFC 8949, 6.1): drops tags; writes null for values that JSON lacks, and
/// for byte strings; writes bignums as numbers; turns integer keys into strings.
struct CborToJson<'a> {
    payload: &'a [u8],
    cbor: Decoder<&'a [u8]>,
    /// The current item is a float of 16 or 32 bits.
    is_short_float: bool,
    /// The last key of a map.
    key: String,
    /// Returns whether a member with the given name may hold the time of the fix.
    is_time: &'a dyn Fn(&str) -> bool,
    /// The tag before the current item, if it has one.
    tag: Option<u64>,
    out: Vec<u8>,
    bytes_max: usize,
}

impl<'a> CborToJson<'a> {
    /// Converts a payload that is one item.
    fn convert(
        payload: &'a [u8],
        is_time: &'a dyn Fn(&str) -> bool,
        bytes_max: usize,
    ) -> Result<Vec<u8>, Refusal> {
        let mut json = Self {
            payload,
            cbor: Decoder::from(payload),
            is_short_float: false,
            key: String::new(),
            is_time,
            tag: None,
            out: Vec::with_capacity(2 * payload.len()),
            bytes_max,
        };
        let first = json.pull()?;
        json.item(first, 0)?;
        if json.cbor.offset() < payload.len() { Err(json.malformed()) } else { Ok(json.out) }
    }

    fn malformed(&mut self) -> Refusal {
        unreadable(format!(
            "neither UTF-8 nor valid CBOR: byte {} cannot be read as CBOR",
            self.cbor.offset()
        ))
    }

    /// Returns the next item without its tags.
    fn pull(&mut self) -> Result<Header, Refusal> {
        self.tag = None;
        loop {
            let head = self.payload.get(self.cbor.offset());
            self.is_short_float = matches!(head, Some(&(HALF_FLOAT | SINGLE_FLOAT)));
            match self.cbor.pull() {
                Ok(Header::Tag(tag)) => self.tag = Some(tag),
                Ok(header) => return Ok(header),
                Err(_) => return Err(self.malformed()),
            }
        }
    }

    /// Writes an item. So far, only the header of the item was read.
    fn item(&mut self, header: Header, depth: usize) -> Result<(), Refusal> {
        if self.out.len() > self.bytes_max {
            return refuse(
                Reason::TooLarge,
                format!("the CBOR has more than {} bytes as JSON", self.bytes_max),
            );
        }
        match header {
            Header::Positive(number) => self.scalar(&number),
            Header::Negative(number) => self.scalar(&(-1 - i128::from(number))),
            // A time in a float of 32 bits may be a minute off. Write it without the digits that
            // the float does not determine.
            Header::Float(number)
                if self.is_short_float
                    && number.abs() >= WHOLE_SINGLE_MAX
                    && number.is_finite()
                    && (self.is_time)(&self.key) =>
            {
                self.rounded(number);
            }
            Header::Float(number) => self.scalar(&number),
            Header::Simple(simple::TRUE) => self.scalar(&true),
            Header::Simple(simple::FALSE) => self.scalar(&false),
            Header::Simple(_) => self.scalar(&()),
            Header::Text(length) => {
                let text = self.text(length)?;
                self.scalar(&text);
            }
            Header::Bytes(length) => {
                // RFC 8949, 3.4.3: tag 2 is the bignum n; tag 3 is -1 - n.
                let is_negative = match self.tag {
                    Some(2) => Some(false),
                    Some(3) => Some(true),
                    Some(_) | None => None,
                };
                let magnitude = self.bytes(length)?;
                match (is_negative, magnitude) {
                    (None, _) => self.scalar(&()),
                    (Some(false), Some(number)) => self.scalar(&number),
                    (Some(true), Some(number)) => self.scalar(&(-1 - i128::from(number))),
                    // The JSON gets this string in place of the number. The conversion goes on.
                    (Some(_), None) => self.scalar(&"a bignum of more than 64 bits"),
                }
            }
            Header::Array(_) | Header::Map(_) if depth == CBOR_DEPTH_MAX => {
                return Err(self.malformed());
            }
            Header::Array(count) => {
                self.out.push(b'[');
                self.items(count, |json, header| json.item(header, depth + 1))?;
                self.out.push(b']');
            }
            Header::Map(count) => {
                self.out.push(b'{');
                self.items(count, |json, header| {
                    json.key(header)?;
                    json.out.push(b':');
                    let value = json.pull()?;
                    json.item(value, depth + 1)
                })?;
                self.out.push(b'}');
            }
            Header::Break | Header::Tag(_) => return Err(self.malformed()),
        }
        Ok(())
    }

    fn key(&mut self, header: Header) -> Result<(), Refusal> {
        let key = match header {
            Header::Text(length) => self.text(length)?,
            Header::Positive(number) => number.to_string(),
            Header::Negative(number) => (-1 - i128::from(number)).to_string(),
            Header::Float(_)
            | Header::Simple(_)
            | Header::Bytes(_)
            | Header::Array(_)
            | Header::Map(_) => {
                return Err(self.malformed());
            }
            Header::Tag(_) | Header::Break => return Err(self.malformed()),
        };
        self.scalar(&key);
        self.key = key;
        Ok(())
    }

    /// Writes the items of an array or map. `count`: `None` if a break ends the items.
    fn items(
        &mut self,
        count: Option<usize>,
        each: impl Fn(&mut Self, Header) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        for index in 0..count.unwrap_or(usize::MAX) {
            let header = self.pull()?;
            if count.is_none() && header == Header::Break {
                break;
            }
            if index > 0 {
                self.out.push(b',');
            }
            each(self, header)?;
        }
        Ok(())
    }

    fn scalar(&mut self, value: &impl serde::Serialize) {
        serde_json::to_writer(&mut self.out, value)
            .expect("writing a scalar to memory cannot fail");
    }

    /// Writes a float of 32 bits with the fewest digits that identify the float, and with an
    /// exponent: `1.7958637e+9`. The plus of the exponent marks the number as rounded, see
    /// `exponent.rs`.
    fn rounded(&mut self, number: f64) {
        #[expect(clippy::cast_possible_truncation, reason = "the float was sent with 32 bits")]
        let shortest = format!("{:e}", number as f32);
        self.out.extend(shortest.replacen('e', "e+", 1).as_bytes());
    }

    fn text(&mut self, length: Option<usize>) -> Result<String, Refusal> {
        let (mut text, mut buffer) = (String::new(), [0; 256]);
        let mut segments = self.cbor.text(length);
        let mut read = || {
            while let Some(mut segment) = segments.pull().ok()? {
                while let Some(piece) = segment.pull(&mut buffer).ok()? {
                    text.push_str(piece);
                }
            }
            Some(())
        };
        read().map(|()| text).ok_or_else(|| self.malformed())
    }

    /// Reads a byte string as a number, the highest byte first; `None` if it has more than 64 bits.
    fn bytes(&mut self, length: Option<usize>) -> Result<Option<u64>, Refusal> {
        let (mut number, mut buffer) = (Some(0_u64), [0; 256]);
        let mut segments = self.cbor.bytes(length);
        let mut read = || {
            while let Some(mut segment) = segments.pull().ok()? {
                while let Some(piece) = segment.pull(&mut buffer).ok()? {
                    for byte in piece {
                        let shifted = number.and_then(|number| number.checked_mul(256));
                        number = shifted.map(|shifted| shifted + u64::from(*byte));
                    }
                }
            }
            Some(())
        };
        read().ok_or_else(|| self.malformed())?;
        Ok(number)
    }
}
