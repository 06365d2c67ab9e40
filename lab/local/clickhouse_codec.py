"""Encodings of ClickHouse's HTTP interface: content encodings and native compressed blocks.

Every decoder takes the largest size that it may produce. It returns exactly the bytes that the client compressed, or raises
DbError if the input is too large, truncated or altered.
"""
from __future__ import annotations

import struct
import zlib

import lz4.block
import lz4.frame
from clickhouse_cityhash.cityhash import CityHash128

# A native block: 16 bytes of checksum, then method, size on the wire (without the checksum) and original size.
BLOCK_CHECKSUM = struct.Struct("<QQ")
BLOCK_HEADER = struct.Struct("<BII")
METHOD_NONE = 0x02
METHOD_LZ4 = 0x82
RESPONSE_BLOCK_BYTES = 1 << 20

# From this revision on, clients of the binary protocol expect two additions in the format Native, over HTTP as well: a head before
# each block (no overflow, no bucket, end), and a byte before the data of each column (no custom serialization).
NATIVE_REVISION_MIN = 54454
NATIVE_BLOCK_HEAD = b"\x01\x00\x02\xff\xff\xff\xff\x00"
NATIVE_COLUMN_HEAD = b"\x00"
NATIVE_WIDTHS = {"UInt8": 1, "Bool": 1, "Int8": 1, "UInt16": 2, "Int16": 2, "UInt32": 4, "Int32": 4, "DateTime": 4,
                 "Float32": 4, "UInt64": 8, "Int64": 8, "Float64": 8, "DateTime64": 8}


class DbError(Exception):
    """An error, with its number and name in ClickHouse."""

    def __init__(self, code: int, name: str, message: str):
        super().__init__(f"Code: {code}. DB::Exception: {message}. ({name})")
        self.code = code


def too_large(limit: int) -> DbError:
    return DbError(241, "MEMORY_LIMIT_EXCEEDED", f"Request body is larger than {limit} bytes; send smaller batches")


def truncated(container: str) -> DbError:
    return DbError(33, "CANNOT_READ_ALL_DATA", f"Request body ends inside a {container}")


def decode_content(body: bytes, encoding: str, limit: int) -> bytes:
    """Decodes a body by its HTTP header Content-Encoding."""
    if encoding in ("", "identity"):
        return body
    if encoding == "lz4":
        decoder, container = lz4.frame.LZ4FrameDecompressor(), "LZ4 frame"
    elif encoding in ("gzip", "deflate"):
        decoder, container = zlib.decompressobj(wbits=47), f"{encoding} stream"  # 47: gzip or zlib, by the data's own header
    else:
        raise DbError(89, "UNKNOWN_COMPRESSION_METHOD", f"Content-Encoding {encoding} is not lz4, gzip or deflate")
    try:
        decoded = decoder.decompress(body, limit + 1)
    except (RuntimeError, zlib.error) as error:
        raise DbError(271, "CANNOT_DECOMPRESS", f"Request body is not a valid {container}: {error}") from None
    if len(decoded) > limit:
        raise too_large(limit)
    if not decoder.eof:
        raise truncated(container)
    if decoder.unused_data:
        raise DbError(271, "CANNOT_DECOMPRESS", f"Request body continues after the end of the {container}")
    return decoded


def encode_content(body: bytes, encoding: str) -> bytes:
    if encoding == "lz4":
        return lz4.frame.compress(body)
    encoder = zlib.compressobj(level=1, wbits=31 if encoding == "gzip" else 15)
    return encoder.compress(body) + encoder.flush()


def decode_native_blocks(body: bytes, limit: int) -> bytes:
    """Decodes a body that was sent with `decompress=1`."""
    view = memoryview(body)
    decoded, decoded_bytes, start = [], 0, 0
    while start < len(view):
        checked = start + BLOCK_CHECKSUM.size
        if len(view) < checked + BLOCK_HEADER.size:
            raise truncated("compressed block")
        method, wire_bytes, original_bytes = BLOCK_HEADER.unpack_from(view, checked)
        end = checked + wire_bytes
        if len(view) < end or wire_bytes < BLOCK_HEADER.size:
            raise truncated("compressed block")
        decoded_bytes += original_bytes
        if decoded_bytes > limit:
            raise too_large(limit)
        if checksum(view[checked:end]) != view[start:checked]:
            raise DbError(40, "CHECKSUM_DOESNT_MATCH", f"Compressed block at byte {start} was altered in transit")
        decoded.append(decompress_block(method, view[checked + BLOCK_HEADER.size : end], original_bytes))
        start = end
    return b"".join(decoded)


def decompress_block(method: int, payload: memoryview, original_bytes: int) -> bytes:
    if method == METHOD_NONE:
        block = bytes(payload)
    elif method == METHOD_LZ4:
        try:
            block = lz4.block.decompress(payload, uncompressed_size=original_bytes)
        except lz4.block.LZ4BlockError as error:
            raise DbError(271, "CANNOT_DECOMPRESS", f"Compressed block is not valid LZ4: {error}") from None
    else:
        raise DbError(89, "UNKNOWN_COMPRESSION_METHOD", f"Compression method {method:#x} is not LZ4 or none")
    if len(block) != original_bytes:
        raise DbError(271, "CANNOT_DECOMPRESS", f"Block has {len(block)} bytes, its header says {original_bytes}")
    return block


def encode_native_blocks(body: bytes) -> bytes:
    """Encodes a body for a request with `compress=1`."""
    encoded = []
    for start in range(0, len(body), RESPONSE_BLOCK_BYTES):
        original = body[start : start + RESPONSE_BLOCK_BYTES]
        payload = lz4.block.compress(original, store_size=False)
        block = BLOCK_HEADER.pack(METHOD_LZ4, BLOCK_HEADER.size + len(payload), len(original)) + payload
        encoded += [checksum(block), block]
    return b"".join(encoded)


def native_for_revision(body: bytes, revision: int) -> bytes:
    """Adds to the engine's Native format the bytes that a client of this protocol revision expects."""
    if revision < NATIVE_REVISION_MIN:
        return body
    written, at = [], 0
    while at < len(body):
        counts_start = at
        columns, at = read_length(body, at)
        rows, at = read_length(body, at)
        written += [NATIVE_BLOCK_HEAD, body[counts_start:at]]
        for _ in range(columns):
            name_start = at
            at = skip_string(body, at)
            type_start = at
            at = skip_string(body, at)
            written += [body[name_start:at], NATIVE_COLUMN_HEAD]
            data_start = at
            at = skip_native_data(body, at, body[read_length(body, type_start)[1]:at].decode(), rows)
            written.append(body[data_start:at])
    return b"".join(written)


def skip_native_data(body: bytes, at: int, kind: str, rows: int) -> int:
    """Returns the offset of the end of a column's data."""
    if kind.startswith("Nullable("):
        return skip_native_data(body, at + rows, kind[len("Nullable("):-1], rows)
    if kind == "String":
        for _ in range(rows):
            at = skip_string(body, at)
        return at
    width = NATIVE_WIDTHS.get(kind.split("(")[0])
    if width is None:
        raise DbError(48, "NOT_IMPLEMENTED", f"{kind} in the format Native is not supported here for clients of the binary protocol")
    return at + width * rows


def read_length(body: bytes, at: int) -> tuple[int, int]:
    """Reads a LEB128 length. Returns it and the offset of the byte after it."""
    length, shift = 0, 0
    while True:
        length |= (body[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if body[at - 1] < 0x80:
            return length, at


def skip_string(body: bytes, at: int) -> int:
    length, at = read_length(body, at)
    return at + length


def checksum(block) -> bytes:
    value = CityHash128(block)
    return BLOCK_CHECKSUM.pack(value >> 64, value & (2**64 - 1))
