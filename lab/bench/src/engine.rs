//! What the engine did, by its own account: `system.events`, which chDB and a ClickHouse server both have.
//!
//! Its CPU time is that of the threads that parse, sort, write and merge. The HTTP front is not in it: locally that
//! is a Python program, whose CPU a row is as much as the engine's own for parsing.

use std::time::Duration;

use anyhow::Result;

use lab_stack::ClickHouse;

const EVENTS: &str = "SELECT event, value FROM system.events \
    WHERE event IN ('UserTimeMicroseconds', 'SystemTimeMicroseconds', 'InsertedRows')";

/// Sums since the engine started, merges included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) cpu: Duration,
    /// Rows that inserts wrote, those of the views' tables included.
    pub(crate) rows: u64,
}

impl Work {
    pub(crate) fn of(engine: &ClickHouse) -> Result<Self> {
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
}
