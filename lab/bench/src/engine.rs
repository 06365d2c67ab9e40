//! What the engine did, by its own account: `system.events`, which chDB and a ClickHouse server both have.
//!
//! Its CPU time is that of the threads that parse, sort, write and merge. The HTTP front is not in it: locally that
//! is a Python program, whose CPU a row is as much as the engine's own for parsing.

use std::time::Duration;

use anyhow::Result;

use lab_stack::{ClickHouse, query};

const EVENTS: &str = "SELECT event, value FROM system.events \
    WHERE event IN ('UserTimeMicroseconds', 'SystemTimeMicroseconds', 'InsertedRows', 'MergedRows')";

/// An insert with the settings of the consumers', and as little to parse as can be.
const ONE_ROW_SETTINGS: &str = "async_insert=0&insert_deduplication_token=one-row";
const ONE_ROW: &str = "INSERT INTO fleet.positions (driver_id, ts, seq, lat_e7, lng_e7, speed_cms, heading_cdeg, \
    alt_dm, acc_dm, received_at) FORMAT JSONEachRow \
    {\"driver_id\":\"one\",\"ts\":1,\"seq\":1,\"lat_e7\":1,\"lng_e7\":1,\"received_at\":1}";
const ONE_ROW_TIMES: u32 = 200;

/// Sums since the engine started, merges included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// User and system time.
    pub(crate) cpu: Duration,
    /// User time alone: the rest is mostly the kernel's for fsync, as busy as the disk is.
    pub(crate) user: Duration,
    /// Rows that inserts wrote, those of the views' tables included.
    pub(crate) rows: u64,
    /// Rows that merges read: a table's own work, at moments of its choice.
    pub(crate) merged_rows: u64,
}

impl Work {
    pub(crate) fn of(engine: &ClickHouse) -> Result<Self> {
        Ok(Self::read(&engine.query(EVENTS)?))
    }

    /// CPU of an insert into the Null table, whatever is in it: its statement, its settings, its pipeline. More than
    /// parsing five thousand rows of RowBinary. One right after the other they are cheaper than the load's, so that
    /// what is left for parsing is rather too much than too little.
    pub(crate) fn of_an_insert(engine: &ClickHouse) -> Result<Duration> {
        let url = format!("{}/?{ONE_ROW_SETTINGS}", engine.url());
        let before = Self::of(engine)?;
        for _ in 0..ONE_ROW_TIMES {
            query(&url, None, ONE_ROW)?;
        }
        Ok((Self::of(engine)?.cpu - before.cpu) / ONE_ROW_TIMES)
    }

    /// An event that has not happened yet has no line.
    fn read(lines: &str) -> Self {
        let value = |event: &str| -> u64 {
            let of = |line: &str| line.split_once('\t').filter(|(name, _)| *name == event)?.1.parse().ok();
            lines.lines().find_map(of).unwrap_or(0)
        };
        Self {
            cpu: Duration::from_micros(value("UserTimeMicroseconds") + value("SystemTimeMicroseconds")),
            user: Duration::from_micros(value("UserTimeMicroseconds")),
            rows: value("InsertedRows"),
            merged_rows: value("MergedRows"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_accounts_for_an_insert() {
        let folder = tempfile::tempdir().unwrap();
        let engine = ClickHouse::start(folder.path()).unwrap();
        let before = Work::of(&engine).unwrap();
        engine.query("CREATE TABLE nothing (n UInt64) ENGINE = Null").unwrap();
        engine.query("INSERT INTO nothing SELECT number FROM numbers(100000)").unwrap();
        let after = Work::of(&engine).unwrap();
        assert_eq!(after.rows - before.rows, 100_000);
        assert!(after.cpu > before.cpu, "{before:?} {after:?}");
    }

    #[test]
    fn what_has_not_happened_is_zero() {
        let work = Work::read("UserTimeMicroseconds\t5\nSystemTimeMicroseconds\t2\n");
        assert_eq!(
            work,
            Work { cpu: Duration::from_micros(7), user: Duration::from_micros(5), ..Work::default() }
        );
    }
}
