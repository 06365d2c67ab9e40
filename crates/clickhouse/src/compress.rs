//! ClickHouse's own framing of a compressed body (`decompress=1`): a checksum, a header, an LZ4
//! block.
//!
//! <https://clickhouse.com/docs/native-protocol/compression>: a checksum of 16 bytes (CityHash128
//! 1.0.2 of the header and the data), then the header: 1 byte for the method, 4 bytes for the
//! compressed size including this header, 4 bytes for the uncompressed size. Numbers are
//! little-endian. The server refuses a block whose checksum does not match.

use bytes::{BufMut as _, Bytes};
use lz4_flex::block;

const CHECKSUM_BYTES: usize = 16;
const HEADER_BYTES: usize = 9;
const LZ4: u8 = 0x82;
/// Maximum uncompressed bytes of one block. The format stores sizes as 32-bit numbers. Smaller
/// blocks than that also need less memory at once.
const BLOCK_BYTES: usize = 16 * 1024 * 1024;

/// Compresses the body of a request into a sequence of blocks.
pub(super) fn compress(body: &[u8]) -> Bytes {
    let mut out = Vec::new();
    for block in body.chunks(BLOCK_BYTES) {
        put_block(block, &mut out);
    }
    out.into()
}

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
        let (mut rest, mut decompressed) = (&compressed[..], Vec::new());
        while !rest.is_empty() {
            let number =
                |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap()) as usize;
            let (size, original) = (number(17), number(21));
            let checksum = cityhash_rs::cityhash_102_128(&rest[16..16 + size]).rotate_right(64);
            assert_eq!(rest[..16], checksum.to_le_bytes());
            decompressed.extend(block::decompress(&rest[25..16 + size], original).unwrap());
            rest = &rest[16 + size..];
        }
        assert!(decompressed == body, "the decompressed body must equal the original");
    }
}
