//! Builds responses of several tiles. docs/map.md describes the format.
//!
//! Guarantee: a tile is compressed once for all viewers. This is possible because a gzip stream may
//! consist of blocks that were compressed separately.

use std::cell::RefCell;
use std::io::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use flate2::write::GzEncoder;
use flate2::{Compress, Compression, Crc, FlushCompress};
use twox_hash::XxHash3_64;

use crate::geo::Tile;
use crate::tiles::HEADER_BYTES;

/// Minimum length of a body that is compressed, in bytes.
pub const GZIP_BYTES_MIN: usize = 512;
/// Bytes before the tile in a part: z, x, y, the tile's length and the version.
const PART_HEADER_BYTES: usize = 24;
/// A header without file name, time and operating system (RFC 1952).
const GZIP_BEGIN: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// An empty final block (RFC 1951).
const DEFLATE_END: [u8; 2] = [3, 0];

/// A tile as a part of a response: coordinates, length and version, then its bytes.
#[derive(Debug)]
pub struct Part {
    /// Hash of the tile without its time.
    pub version: u64,
    plain: Bytes,
    deflated: Bytes,
    crc: Crc,
}

impl Part {
    /// Builds the part of a tile from the result of [`crate::tiles::cut`].
    #[must_use]
    pub fn new(tile: Tile, body: &[u8]) -> Self {
        // Hashes the columns and the kind (`body[1]`), but not the rest of the header, whose time
        // changes even when nothing else does.
        let version = XxHash3_64::oneshot(&body[HEADER_BYTES..]) ^ u64::from(body[1]);
        let length =
            u32::try_from(body.len()).expect("map.points_max and the cells of a tile are bounded");
        let mut plain = Vec::with_capacity(PART_HEADER_BYTES + body.len());
        for number in [u32::from(tile.z), tile.x, tile.y, length] {
            plain.extend(number.to_le_bytes());
        }
        plain.extend(version.to_le_bytes());
        plain.extend_from_slice(body);
        let mut crc = Crc::new();
        crc.update(&plain);
        Self { version, deflated: deflated(&plain), plain: plain.into(), crc }
    }

    /// Returns the memory in use, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.plain.len() + self.deflated.len()
    }
}

/// Returns the body of a response with these parts, as gzip or plain.
#[must_use]
pub fn joined(parts: &[Arc<Part>], as_gzip: bool) -> Vec<Bytes> {
    if !as_gzip {
        return parts.iter().map(|part| part.plain.clone()).collect();
    }
    let mut crc = Crc::new();
    let mut pieces = vec![Bytes::from_static(&GZIP_BEGIN)];
    for part in parts {
        crc.combine(&part.crc);
        pieces.push(part.deflated.clone());
    }
    let end = [&DEFLATE_END[..], &crc.sum().to_le_bytes(), &crc.amount().to_le_bytes()].concat();
    pieces.push(end.into());
    pieces
}

thread_local! {
    /// Reused: a new compressor would allocate a quarter of a megabyte for each tile.
    static DEFLATE: RefCell<(Compress, Vec<u8>)> =
        RefCell::new((Compress::new(Compression::fast(), false), Vec::new()));
}

/// Compresses to non-final DEFLATE blocks that end on a byte boundary.
fn deflated(bytes: &[u8]) -> Bytes {
    if let Some(length) = u16::try_from(bytes.len()).ok().filter(|_| bytes.len() < GZIP_BYTES_MIN) {
        // A stored block (RFC 1951, 3.2.4).
        return [&[0], &length.to_le_bytes()[..], &(!length).to_le_bytes(), bytes].concat().into();
    }
    DEFLATE.with_borrow_mut(|(compress, out)| {
        compress.reset();
        out.clear();
        let mut remaining = bytes;
        // If a call fills `out`, more output may follow; if it leaves space, the flush is complete.
        while out.len() == out.capacity() || !remaining.is_empty() {
            out.reserve(bytes.len());
            let before = compress.total_in();
            compress
                .compress_vec(remaining, out, FlushCompress::Sync)
                .expect("writing to memory does not fail");
            let consumed = usize::try_from(compress.total_in() - before)
                .expect("at most the length of a slice");
            remaining = &remaining[consumed..];
        }
        Bytes::copy_from_slice(out)
    })
}

/// Compresses to gzip.
#[must_use]
pub fn gzip(bytes: &[u8], level: Compression) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 2), level);
    encoder.write_all(bytes).expect("writing to memory does not fail");
    encoder.finish().expect("writing to memory does not fail")
}
