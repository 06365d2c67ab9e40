//! Reads the driver id and sequence number of each fix from the body of an INSERT, as cheaply as
//! possible.

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use super::bytes::{Width, take_value};

/// The fields of a line of JSONEachRow that the sink reads.
#[derive(Deserialize)]
struct Line<'a> {
    driver_id: &'a str,
    seq: u32,
}

/// Table, columns and format of an INSERT.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target<'a> {
    pub(super) table: &'a str,
    columns: Vec<&'a str>,
    format: &'a str,
}

impl<'a> Target<'a> {
    /// Parses `INSERT INTO database.table (columns) FORMAT format`. The list of columns is
    /// optional, because JSONEachRow names them in the data.
    pub(super) fn parse(statement: &'a str) -> Result<Self> {
        let (head, format) =
            statement.rsplit_once("FORMAT ").context("an INSERT without FORMAT")?;
        let (into, columns) = match head.split_once('(') {
            Some((into, columns)) => (
                into,
                columns.split_once(')').context("an INSERT whose list of columns does not end")?.0,
            ),
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

    /// Calls `row` with the driver id and `seq` of every row.
    pub(super) fn read(
        &self,
        columns: &[(String, String)],
        data: &[u8],
        mut row: impl FnMut(&[u8], u32),
    ) -> Result<()> {
        match self.format {
            "RowBinary" => self.read_row_binary(columns, data, row),
            "JSONEachRow" => {
                for line in serde_json::Deserializer::from_slice(data).into_iter::<Line<'_>>() {
                    let line = line.context("a line of JSONEachRow is invalid")?;
                    row(line.driver_id.as_bytes(), line.seq);
                }
                Ok(())
            }
            other => bail!("FORMAT {other} is not supported by the sink"),
        }
    }

    fn read_row_binary(
        &self,
        columns: &[(String, String)],
        data: &[u8],
        mut row: impl FnMut(&[u8], u32),
    ) -> Result<()> {
        let width = |name: &&str| {
            let (_, kind) = columns.iter().find(|(column, _)| column == name)?;
            Width::parse(kind)
        };
        let width = |name: &&str| width(name).with_context(|| format!("no column {name} in sql/"));
        let widths: Vec<Width> = self.columns.iter().map(width).collect::<Result<_>>()?;
        let index = |name: &str| self.columns.iter().position(|column| *column == name);
        let (driver_index, seq_index) = (
            index("driver_id").context("the INSERT has no driver_id")?,
            index("seq").context("the INSERT has no seq")?,
        );
        ensure!(
            widths[driver_index] == Width::String && widths[seq_index] == Width::Fixed(4),
            "driver_id must be a String, and seq a UInt32"
        );
        let mut unread = data;
        while !unread.is_empty() {
            let (mut driver_id, mut seq) = (&[][..], 0);
            for (column, width) in widths.iter().enumerate() {
                let value = take_value(*width, &mut unread)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_of_all_clients_are_understood() {
        let target =
            Target::parse("INSERT INTO fleet.positions (driver_id, ts) FORMAT RowBinary").unwrap();
        assert_eq!(
            (target.table, target.columns, target.format),
            ("positions", vec!["driver_id", "ts"], "RowBinary")
        );
        let target =
            Target::parse("INSERT INTO fleet.positions (`driver_id`, `seq`) FORMAT JSONEachRow")
                .unwrap();
        assert_eq!((target.columns, target.format), (vec!["driver_id", "seq"], "JSONEachRow"));
    }
}
