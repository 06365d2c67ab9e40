//! ClickHouse's own framing of a compressed body (`decompress=1`): a checksum, a header, an LZ4
//! block.
//!
//! | bytes | content |
//! |---|---|
//! | 16 | checksum: CityHash128 1.0.2 of the header and the data |
//! | 1 | header: compression method |
//! | 4 | header: compressed size, including the 9 bytes of the header |
//! | 4 | header: uncompressed size |
//! | the rest | compressed data |
//!
//! Numbers are little-endian. The server refuses a block whose checksum does not match. See
//! <https://clickhouse.com/docs/native-protocol/compression>.

use bytes::{BufMut as _, Bytes};
use lz4_flex::block;

const CHECKSUM_BYTES: usize = 16;
const HEADER_BYTES: usize = 9;
/// The compression method LZ4.
const LZ4: u8 = 0x82;
/// Maximum uncompressed bytes of one block. The format stores sizes as 32-bit numbers, and a small
/// block needs little memory at once.
const BLOCK_BYTES: usize = 16 * 1024 * 1024;

/// Compresses the body of a request into a sequence of blocks.
pub(super) fn compress(body: &[u8]) -> Bytes {
    let mut out = Vec::new();
    for block in body.chunks(BLOCK_BYTES) {
        put_block(block, &mut out);
    }
    out.into()
}

/// Appends one block with these uncompressed bytes.
fn put_block(bytes: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    let data = start + CHECKSUM_BYTES + HEADER_BYTES;
    out.resize(data + block::get_maximum_output_size(bytes.len()), 0);
    let compressed =
        block::compress_into(bytes, &mut out[data..]).expect("the buffer holds the largest output");
    out.truncate(data + compressed);
    let size = |bytes: usize| u32::try_from(bytes).expect("a block is smaller than 4 GiB");
    let mut header = &mut out[start + CHECKSUM_BYTES..data];
    header.put_u8(LZ4);
    header.put_u32_le(size(HEADER_BYTES + compressed));
    header.put_u32_le(size(bytes.len()));
    // ClickHouse sends the lower half of the hash first; the crate returns it in the upper 64 bits.
    let checksum = cityhash_rs::cityhash_102_128(&out[start + CHECKSUM_BYTES..]).rotate_right(64);
    out[start..start + CHECKSUM_BYTES].copy_from_slice(&checksum.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_blocks_decompress_to_the_body() {
        let body: Vec<u8> = (0..=250).cycle().take(BLOCK_BYTES + 1_000).collect();
        let compressed = compress(&body);
        let (mut remaining, mut decompressed) = (&compressed[..], Vec::new());
        while !remaining.is_empty() {
            let number =
                |at: usize| u32::from_le_bytes(remaining[at..at + 4].try_into().unwrap()) as usize;
            let (size, original_size) = (number(17), number(21));
            let (checksum, content) = remaining[..16 + size].split_at(CHECKSUM_BYTES);
            let expected = cityhash_rs::cityhash_102_128(content).rotate_right(64);
            assert_eq!(checksum, expected.to_le_bytes());
            let block = block::decompress(&content[HEADER_BYTES..], original_size);
            decompressed.extend(block.unwrap());
            remaining = &remaining[16 + size..];
        }
        assert!(decompressed == body, "the decompressed body must equal the original");
    }
}
