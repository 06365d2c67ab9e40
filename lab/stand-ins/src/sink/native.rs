//! ClickHouse's format Native as clickhouse-go, the driver of Telegraf and Bento, speaks it: blocks of columns, each
//! with its name and type. And what that driver asks before it inserts.

use anyhow::{Context as _, Result, bail};
use lab_mqtt::put_length;

use super::bytes::{Width, put_text, take, take_length, take_value};

/// From here on a client reads a head before each block, and a byte before each column.
const REVISION_WITH_HEADS: u32 = 54_454;
/// No overflow, no bucket, end.
const BLOCK_HEAD: [u8; 8] = [1, 0, 2, 0xff, 0xff, 0xff, 0xff, 0];
/// What we say we are.
const REVISION: u32 = 54_460;
const VERSION: &str = "26.3.1.1";
const DESCRIBED: [&str; 7] =
    ["name", "type", "default_type", "default_expression", "comment", "codec_expression", "ttl_expression"];

/// Calls `row` with driver and seq of every row. Inserts have no heads, whatever the client's revision.
pub(super) fn read(mut rest: &[u8], mut row: impl FnMut(&[u8], u32)) -> Result<()> {
    while !rest.is_empty() {
        let (columns, rows) = (take_length(&mut rest)?, take_length(&mut rest)?);
        let (mut drivers, mut seqs) = (None, None);
        for _ in 0..columns {
            let name = take_value(Width::Text, &mut rest)?;
            let kind = std::str::from_utf8(take_value(Width::Text, &mut rest)?)?;
            let width = Width::of(kind).with_context(|| format!("{kind} is not understood here"))?;
            let data = take_column(width, rows, &mut rest)?;
            match (name, width) {
                (b"driver_id", Width::Text) => drivers = Some(data),
                (b"seq", Width::Fixed(4)) => seqs = Some(data),
                (b"driver_id" | b"seq", _) => bail!("driver_id String, seq UInt32"),
                _ => {}
            }
        }
        if columns == 0 && rows == 0 {
            // Older drivers say so that this was all, as they do in the binary protocol.
            continue;
        }
        let (mut drivers, mut seqs) = drivers.zip(seqs).context("no driver_id, or no seq")?;
        for _ in 0..rows {
            let driver_id = take_value(Width::Text, &mut drivers)?;
            row(driver_id, u32::from_le_bytes(take(4, &mut seqs)?.try_into()?));
        }
    }
    Ok(())
}

fn take_column<'a>(width: Width, rows: usize, rest: &mut &'a [u8]) -> Result<&'a [u8]> {
    let bytes = |each: usize| rows.checked_mul(each).context("a block has too many rows");
    match width {
        Width::Fixed(len) => take(bytes(len)?, rest),
        Width::Nullable(len) => take(bytes(len + 1)?, rest),
        Width::TextPairs => bail!("a Map is not understood in Native here"),
        Width::Text => {
            let before = *rest;
            for _ in 0..rows {
                take_value(Width::Text, rest)?;
            }
            Ok(&before[..before.len() - rest.len()])
        }
    }
}

/// The answer to `DESCRIBE TABLE`.
pub(super) fn description(columns: &[(String, String)], revision: u32) -> Vec<u8> {
    let data = |part: &str| {
        let mut data = Vec::new();
        for (name, kind) in columns {
            let text = match part {
                "name" => name,
                "type" => kind,
                _ => "",
            };
            put_text(text, &mut data);
        }
        data
    };
    block(&DESCRIBED.map(|part| (part, "String", data(part))), columns.len(), revision)
}

/// The answer to `SELECT displayName(), version(), …`, one row.
pub(super) fn hello(expressions: &str, revision: u32) -> Result<Vec<u8>> {
    let column = |expression| {
        let mut data = Vec::new();
        let kind = match expression {
            "1" => {
                data.push(1);
                "UInt8"
            }
            "revision()" => {
                data.extend(REVISION.to_le_bytes());
                "UInt32"
            }
            "displayName()" | "version()" | "timezone()" => {
                let text = if expression == "timezone()" { "UTC" } else { VERSION };
                put_text(text, &mut data);
                "String"
            }
            _ => bail!("unknown here: SELECT {expression}"),
        };
        Ok((expression, kind, data))
    };
    let columns = expressions.split(',').map(|expression| column(expression.trim()));
    Ok(block(&columns.collect::<Result<Vec<_>>>()?, 1, revision))
}

fn block(columns: &[(&str, &str, Vec<u8>)], rows: usize, revision: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let heads = revision >= REVISION_WITH_HEADS;
    if heads {
        out.extend(BLOCK_HEAD);
    }
    put_length(columns.len(), &mut out);
    put_length(rows, &mut out);
    for (name, kind, data) in columns {
        put_text(name, &mut out);
        put_text(kind, &mut out);
        if heads {
            out.push(0);
        }
        out.extend(data);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::bytes::columns_of;

    #[test]
    fn rows_of_several_blocks_are_read_and_a_cut_one_is_an_error() {
        let columns = |first: u32| {
            let mut drivers = Vec::new();
            ["d7", "d8"].iter().for_each(|driver| put_text(driver, &mut drivers));
            [
                ("ts", "DateTime64(3, 'UTC')", vec![0; 16]),
                ("driver_id", "String", drivers),
                ("alt", "Nullable(Int32)", vec![0; 10]),
                ("seq", "UInt32", [first.to_le_bytes(), (first + 1).to_le_bytes()].concat()),
            ]
        };
        let data = [block(&columns(3), 2, 0), block(&columns(5), 2, 0)].concat();
        let ended = [&data[..], &block(&[], 0, 0)].concat();
        assert!(read(&ended, |_, _| {}).is_ok());
        let mut rows = Vec::new();
        read(&data, |driver_id, seq| rows.push((driver_id.to_vec(), seq))).unwrap();
        assert_eq!(rows.iter().map(|row| row.1).collect::<Vec<_>>(), [3, 4, 5, 6]);
        assert_eq!(rows[3].0, b"d8");
        for len in 1..data.len() {
            let whole = len == data.len() / 2;
            assert_eq!(read(&data[..len], |_, _| {}).is_ok(), whole, "cut at {len} of {}", data.len());
        }
        let array = block(&[("tags", "Array(String)", vec![0; 16])], 2, 0);
        assert!(read(&array, |_, _| {}).unwrap_err().to_string().contains("Array(String)"));
    }

    #[test]
    fn the_table_is_described_without_its_aliases() {
        let columns = columns_of("positions").unwrap();
        let kind =
            |name: &str| columns.iter().find(|column| column.0 == name).map(|column| column.1.as_str());
        assert_eq!(kind("driver_id"), Some("String"));
        assert_eq!(kind("ts"), Some("DateTime64(3, 'UTC')"));
        assert_eq!(kind("inserted_at"), Some("DateTime64(3, 'UTC')"));
        assert_eq!(kind("speed_cms"), Some("UInt16"));
        assert_eq!(kind("speed"), None);
        assert_eq!(columns.len(), 12);
    }

    #[test]
    fn heads_are_for_those_who_read_them() {
        let plain = hello("timezone(), 1", 0).unwrap();
        assert_eq!(plain, b"\x02\x01\x0atimezone()\x06String\x03UTC\x011\x05UInt8\x01");
        let known = hello("1", 54_460).unwrap();
        assert_eq!(known, [&BLOCK_HEAD[..], b"\x01\x01\x011\x05UInt8\x00\x01"].concat());
        assert!(hello("now()", 0).is_err());
    }
}
