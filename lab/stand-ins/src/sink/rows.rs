//! Who sent which fix, from the bytes of an INSERT, as cheaply as it can be had.

use std::collections::HashMap;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use super::native;
use lab_stack::repository;

/// ClickHouse's compressed block: a checksum, then method, compressed size with these nine bytes, plain size.
const CHECKSUM_BYTES: usize = 16;
const HEAD_BYTES: usize = 9;
const METHOD_LZ4: u8 = 0x82;
const METHOD_NONE: u8 = 0x02;
/// A plain block; clients send one a batch.
const BLOCK_BYTES_MAX: usize = 256 << 20;

/// How wide a value is in RowBinary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    /// A length, then bytes.
    Text,
    Fixed(usize),
    /// A byte, and if it is 0, the value.
    Nullable(usize),
}

impl Width {
    /// `None`: not a type our tables have.
    pub(super) fn of(kind: &str) -> Option<Self> {
        let fixed = |kind: &str| {
            let widths = [
                ("DateTime64", 8),
                ("UInt64", 8),
                ("Int64", 8),
                ("Float64", 8),
                ("DateTime", 4),
                ("UInt32", 4),
                ("Int32", 4),
                ("Float32", 4),
                ("UInt16", 2),
                ("Int16", 2),
                ("UInt8", 1),
                ("Int8", 1),
                ("Bool", 1),
            ];
            widths.iter().find(|(name, _)| kind.starts_with(name)).map(|(_, width)| *width)
        };
        if kind.starts_with("String") || kind.starts_with("LowCardinality(String)") {
            return Some(Self::Text);
        }
        match kind.strip_prefix("Nullable(") {
            Some(inner) => fixed(inner).map(Self::Nullable),
            None => fixed(kind).map(Self::Fixed),
        }
    }
}

/// The columns of every table in sql/.
#[derive(Debug)]
pub(super) struct Columns(HashMap<String, Width>);

/// Where an INSERT goes, and how it is written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target<'a> {
    pub(super) table: &'a str,
    columns: Vec<&'a str>,
    format: &'a str,
}

impl<'a> Target<'a> {
    /// Reads `INSERT INTO database.table (columns) FORMAT format`; the data itself may name its columns.
    pub(super) fn of(statement: &'a str) -> Result<Self> {
        let (head, format) = statement.rsplit_once("FORMAT ").context("an INSERT without FORMAT")?;
        let (into, columns) = match head.split_once('(') {
            Some((into, columns)) => (into, columns.split_once(')').context("columns without an end")?.0),
            None => (head, ""),
        };
        let table = into.split_whitespace().last().context("an INSERT without a table")?;
        let plain = |name: &'a str| name.trim().trim_matches(['`', '"']);
        Ok(Self {
            table: plain(table.rsplit('.').next().unwrap_or(table)),
            columns: columns.split(',').map(plain).filter(|name| !name.is_empty()).collect(),
            format: format.trim(),
        })
    }
}

/// What a line of JSONEachRow must hold.
#[derive(Deserialize)]
struct Line<'a> {
    driver_id: &'a str,
    seq: u32,
}

impl Columns {
    /// As sql/ declares them: a name, then a type.
    pub(super) fn of_the_tables() -> Result<Self> {
        let mut columns = HashMap::new();
        for entry in std::fs::read_dir(repository().join("sql")).context("no sql/ in the checkout")? {
            let path = entry?.path();
            if path.is_file() {
                for line in std::fs::read_to_string(&path)?.lines() {
                    let words: Vec<&str> = line.split_whitespace().collect();
                    for pair in words.windows(2) {
                        if let Some(width) = Width::of(pair[1]) {
                            columns.entry(pair[0].to_owned()).or_insert(width);
                        }
                    }
                }
            }
        }
        Ok(Self(columns))
    }

    /// Calls `row` with driver and seq of every row.
    pub(super) fn read(
        &self,
        target: &Target<'_>,
        data: &[u8],
        mut row: impl FnMut(&[u8], u32),
    ) -> Result<()> {
        match target.format {
            "RowBinary" => self.read_row_binary(target, data, row),
            "Native" => native::read(data, row),
            "JSONEachRow" => {
                for line in serde_json::Deserializer::from_slice(data).into_iter::<Line<'_>>() {
                    let line = line.context("a line of JSONEachRow")?;
                    row(line.driver_id.as_bytes(), line.seq);
                }
                Ok(())
            }
            other => bail!("FORMAT {other} is not understood here"),
        }
    }

    fn read_row_binary(
        &self,
        target: &Target<'_>,
        data: &[u8],
        mut row: impl FnMut(&[u8], u32),
    ) -> Result<()> {
        let width =
            |name: &&str| self.0.get(*name).copied().with_context(|| format!("no column {name} in sql/"));
        let widths: Vec<Width> = target.columns.iter().map(width).collect::<Result<_>>()?;
        let index = |name: &str| target.columns.iter().position(|column| *column == name);
        let (driver_index, seq_index) =
            (index("driver_id").context("no driver_id")?, index("seq").context("no seq")?);
        ensure!(
            widths[driver_index] == Width::Text && widths[seq_index] == Width::Fixed(4),
            "driver_id String, seq UInt32"
        );
        let mut rest = data;
        while !rest.is_empty() {
            let (mut driver_id, mut seq) = (&[][..], 0);
            for (column, width) in widths.iter().enumerate() {
                let value = take_value(*width, &mut rest)?;
                if column == driver_index {
                    driver_id = value;
                } else if column == seq_index {
                    seq = u32::from_le_bytes(value.try_into()?);
                }
            }
            row(driver_id, seq);
        }
        Ok(())
    }
}

pub(super) fn take_value<'a>(width: Width, rest: &mut &'a [u8]) -> Result<&'a [u8]> {
    let len = match width {
        Width::Fixed(len) => len,
        Width::Nullable(len) => {
            if take(1, rest)?[0] == 0 {
                len
            } else {
                0
            }
        }
        Width::Text => take_length(rest)?,
    };
    take(len, rest)
}

/// Seven bits a byte, lowest first.
pub(super) fn take_length(rest: &mut &[u8]) -> Result<usize> {
    let (mut len, mut shift) = (0, 0);
    loop {
        let byte = take(1, rest)?[0];
        len |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            return Ok(len);
        }
        ensure!(shift < 64, "a length has no end");
    }
}

pub(super) fn take<'a>(len: usize, rest: &mut &'a [u8]) -> Result<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(len).context("a row is cut")?;
    *rest = after;
    Ok(taken)
}

/// Undoes `decompress=1`. The checksums are not looked at: the bytes came over the loopback.
pub(super) fn decompress(mut blocks: &[u8]) -> Result<Vec<u8>> {
    let mut plain = Vec::new();
    while !blocks.is_empty() {
        let head = take(CHECKSUM_BYTES + HEAD_BYTES, &mut blocks)?;
        let size = |at: usize| -> Result<usize> {
            Ok(u32::from_le_bytes(head[CHECKSUM_BYTES + at..][..4].try_into()?) as usize)
        };
        let (packed_len, plain_len) = (size(1)?, size(5)?);
        ensure!(plain_len <= BLOCK_BYTES_MAX, "a block of {plain_len} bytes");
        let packed = take(
            packed_len.checked_sub(HEAD_BYTES).context("a block is shorter than its head")?,
            &mut blocks,
        )?;
        let start = plain.len();
        match head[CHECKSUM_BYTES] {
            METHOD_LZ4 => {
                plain.resize(start + plain_len, 0);
                let len = lz4_flex::block::decompress_into(packed, &mut plain[start..])
                    .context("a block of LZ4")?;
                ensure!(len == plain_len, "a block of {len} bytes says it has {plain_len}");
            }
            METHOD_NONE => plain.extend_from_slice(packed),
            other => bail!("compression method {other:#x} is not understood here"),
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_of_all_clients_are_understood() {
        let target = Target::of("INSERT INTO fleet.positions (driver_id, ts) FORMAT RowBinary").unwrap();
        assert_eq!(
            (target.table, target.columns, target.format),
            ("positions", vec!["driver_id", "ts"], "RowBinary")
        );
        let target =
            Target::of("INSERT INTO fleet.positions (`driver_id`, `seq`) FORMAT JSONEachRow").unwrap();
        assert_eq!((target.columns, target.format), (vec!["driver_id", "seq"], "JSONEachRow"));
        let target = Target::of("INSERT INTO \"positions\" (\"ts\",\"seq\") FORMAT Native").unwrap();
        assert_eq!((target.table, target.columns), ("positions", vec!["ts", "seq"]));
        let target = Target::of("INSERT INTO fleet.positions FORMAT Native").unwrap();
        assert_eq!((target.table, target.columns, target.format), ("positions", Vec::new(), "Native"));
    }

    #[test]
    fn the_tables_columns_are_known_with_their_widths() {
        let columns = Columns::of_the_tables().unwrap();
        assert_eq!(columns.0["driver_id"], Width::Text);
        assert_eq!(columns.0["ts"], Width::Fixed(8));
        assert_eq!(columns.0["speed_cms"], Width::Fixed(2));
        assert_eq!(columns.0["payload"], Width::Text);
    }

    #[test]
    fn a_cut_row_is_an_error() {
        let columns = Columns::of_the_tables().unwrap();
        let target = Target::of("INSERT INTO fleet.positions (driver_id, seq) FORMAT RowBinary").unwrap();
        let data = [&[2][..], b"d7", &9_u32.to_le_bytes()].concat();
        let mut rows = Vec::new();
        columns.read(&target, &data, |driver, seq| rows.push((driver.to_vec(), seq))).unwrap();
        assert_eq!(rows, [(b"d7".to_vec(), 9)]);
        assert!(columns.read(&target, &data[..5], |_, _| {}).is_err());
    }
}
