//! Decodes values of RowBinary by the column types in sql/, and ClickHouse's compressed blocks.

use std::fs;

use anyhow::{Context as _, Result, bail, ensure};
use lab_stack::sql;

/// A compressed block of ClickHouse begins with a checksum and a head of nine bytes: the method,
/// the compressed size including the head, and the plain size.
const CHECKSUM_BYTES: usize = 16;
const HEAD_BYTES: usize = 9;
const METHOD_LZ4: u8 = 0x82;
const METHOD_NONE: u8 = 0x02;
/// Maximum plain bytes of a block; clients send one block per batch.
const BLOCK_BYTES_MAX: usize = 256 << 20;

/// The width of a value in RowBinary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    String,
    Fixed(usize),
    /// A byte; if the byte is 0, the value follows.
    Nullable(usize),
    /// A count, then this number of pairs of strings.
    StringPairs,
}

impl Width {
    /// Returns the width of a type; `None` for a type that no table of milepost has.
    pub(super) fn parse(kind: &str) -> Option<Self> {
        let fixed = |kind: &str| {
            let widths = [
                (8, &["DateTime64", "UInt64", "Int64", "Float64"][..]),
                (4, &["DateTime", "UInt32", "Int32", "Float32"]),
                (2, &["UInt16", "Int16"]),
                (1, &["UInt8", "Int8", "Bool"]),
            ];
            let is_one_of = |names: &[&str]| names.iter().any(|name| kind.starts_with(name));
            widths.iter().find(|(_, names)| is_one_of(names)).map(|(width, _)| *width)
        };
        if kind.starts_with("String") || kind.starts_with("LowCardinality(String)") {
            return Some(Self::String);
        }
        if kind.starts_with("Map(LowCardinality(String), String)") {
            return Some(Self::StringPairs);
        }
        match kind.strip_prefix("Nullable(") {
            Some(inner) => fixed(inner).map(Self::Nullable),
            None => fixed(kind).map(Self::Fixed),
        }
    }
}

/// Returns name and type of each stored column of a table, from the files of sql/.
pub(super) fn columns(table: &str) -> Result<Vec<(String, String)>> {
    let [stored, _] = sql::columns()?;
    let mut columns = Vec::new();
    for path in sql::migrations()? {
        let text = fs::read_to_string(path)?;
        let names_table = |line: &str| {
            line.split_whitespace()
                .any(|word| word == format!("{{database}}.{table}{{on_cluster}}"))
        };
        let mut lines = text.lines().skip_while(|line| !names_table(line));
        let Some(first) = lines.next() else { continue };
        if first.starts_with("CREATE TABLE") {
            for line in lines.skip(1).take_while(|line| !line.starts_with(')')) {
                match line.starts_with("{stored") {
                    true => columns.extend(
                        stored.lines().filter(|line| !line.contains("--")).filter_map(column),
                    ),
                    false => columns.extend(column(line)),
                }
            }
        } else if first.starts_with("ALTER TABLE") {
            let added =
                lines.filter_map(|line| line.trim().strip_prefix("ADD COLUMN IF NOT EXISTS "));
            columns.extend(added.filter_map(column));
        }
    }
    ensure!(!columns.is_empty(), "no table {table} in sql/");
    Ok(columns)
}

/// Returns name and type of the column that a line defines; `None` for an ALIAS, which stores
/// nothing.
fn column(line: &str) -> Option<(String, String)> {
    let (name, definition) = line.trim().split_once(' ')?;
    let end_of_type = |word: &str| definition.find(word).unwrap_or(definition.len());
    let ends = [" CODEC(", " DEFAULT ", " COMMENT "].map(end_of_type);
    let kind = definition[..ends.into_iter().min()?].trim();
    (!definition.contains(" ALIAS ")).then(|| (name.to_owned(), kind.to_owned()))
}

/// Removes a value from the front of `unread`, and returns its bytes, without length or flag.
/// Returns no bytes for pairs of strings.
pub(super) fn take_value<'a>(width: Width, unread: &mut &'a [u8]) -> Result<&'a [u8]> {
    let len = match width {
        Width::Fixed(len) => len,
        Width::Nullable(len) => {
            if take(1, unread)?[0] == 0 {
                len
            } else {
                0
            }
        }
        Width::String => take_length(unread)?,
        Width::StringPairs => {
            for _ in 0..2 * take_length(unread)? {
                take_value(Width::String, unread)?;
            }
            0
        }
    };
    take(len, unread)
}

/// Reads a variable-length number, encoded as in MQTT.
fn take_length(unread: &mut &[u8]) -> Result<usize> {
    let (len, bytes) = lab_mqtt::length(unread)?.context("a row is cut off")?;
    take(bytes, unread)?;
    Ok(len)
}

/// Removes `len` bytes from the front of `unread`, and returns them.
fn take<'a>(len: usize, unread: &mut &'a [u8]) -> Result<&'a [u8]> {
    let (taken, after) = unread.split_at_checked(len).context("a row is cut off")?;
    *unread = after;
    Ok(taken)
}

/// Reverses `decompress=1`. The checksums are not verified: the bytes arrived over the loopback.
pub(super) fn decompress(mut blocks: &[u8]) -> Result<Vec<u8>> {
    let mut plain = Vec::new();
    while !blocks.is_empty() {
        let head = take(CHECKSUM_BYTES + HEAD_BYTES, &mut blocks)?;
        let size = |at: usize| -> Result<usize> {
            Ok(u32::from_le_bytes(head[CHECKSUM_BYTES + at..][..4].try_into()?) as usize)
        };
        let (packed_len, plain_len) = (size(1)?, size(5)?);
        ensure!(plain_len <= BLOCK_BYTES_MAX, "a block of {plain_len} bytes is too long");
        let packed = take(
            packed_len.checked_sub(HEAD_BYTES).context("a block is shorter than its head")?,
            &mut blocks,
        )?;
        let start = plain.len();
        match head[CHECKSUM_BYTES] {
            METHOD_LZ4 => {
                plain.resize(start + plain_len, 0);
                let len = lz4_flex::block::decompress_into(packed, &mut plain[start..])
                    .context("an LZ4 block cannot be decompressed")?;
                ensure!(len == plain_len, "a block of {len} bytes declares {plain_len}");
            }
            METHOD_NONE => plain.extend_from_slice(packed),
            other => bail!("compression method {other:#x} is not supported by the sink"),
        }
    }
    Ok(plain)
}
