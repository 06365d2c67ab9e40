//! What the engine did, by its own account: `system.events`, which chDB and a ClickHouse server both have.
//!
//! Its CPU time is that of the threads that parse, sort, write and merge. The HTTP front is not in it: locally that
//! is a Python program, whose CPU a row is as much as the engine's own for parsing.

use std::time::Duration;

use anyhow::Result;

use crate::stack::ClickHouse;

const EVENTS: &str = "SELECT event, value FROM system.events \
    WHERE event IN ('UserTimeMicroseconds', 'SystemTimeMicroseconds', 'InsertedRows', 'MergedRows')";

/// Sums since the engine started, merges included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Work {
    /// User and system time.
    pub(super) cpu: Duration,
    /// Rows that inserts wrote, those of the views' tables included.
    pub(super) rows: u64,
    /// Rows that merges read: a table's own work, at moments of its choice.
    pub(super) merged_rows: u64,
}

impl Work {
    pub(super) fn of(engine: &ClickHouse) -> Result<Self> {
        Ok(Self::read(&engine.query(EVENTS)?))
    }

    /// An event that has not happened yet has no line.
    fn read(lines: &str) -> Self {
        let value = |event: &str| -> u64 {
            let of = |line: &str| line.split_once('\t').filter(|(name, _)| *name == event)?.1.parse().ok();
            lines.lines().find_map(of).unwrap_or(0)
        };
        Self {
            cpu: Duration::from_micros(value("UserTimeMicroseconds") + value("SystemTimeMicroseconds")),
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
        assert_eq!(work, Work { cpu: Duration::from_micros(7), rows: 0, merged_rows: 0 });
    }
}
