//! Checks each row of a CSV file for a time that has lost its zone or its leading zeros. Such a
//! fault may begin in the middle of a file. In London, local time is UTC in winter and an hour
//! ahead of UTC in summer. A spreadsheet that stores times of day as numbers keeps 235959, but
//! turns 001507 into 1507.

use std::borrow::Cow;
use std::cell::Cell;

use anyhow::{Result, ensure};

use super::columns::explain_short_clock;
use super::names::Column;
use super::unix_columns::{
    RowTime, describe_offset, names_fix_time, quarters_of_hour, unix_ms, value_of,
};
use super::values::{is_instant, is_shifted_clock};
use super::zones::is_shifted;

/// The column of times of day beside a column of dates, if no pattern says how to read them.
#[derive(Debug)]
pub(super) struct ShortClock {
    ts: (usize, String),
    date: String,
}

impl ShortClock {
    /// Returns the check of a file; `None` if its times need none. `unit`: the unit or the pattern
    /// of the times.
    pub(super) fn new(
        columns: &[String],
        rows: &[Vec<String>],
        found: &[(&'static str, Column)],
        unit: Option<&str>,
    ) -> Option<Self> {
        let column_of = |field: &str| found.iter().find(|(name, _)| *name == field);
        let has_pattern = unit.is_some_and(|unit| unit.contains('%'));
        let (_, ts) = column_of("ts").filter(|_| !has_pattern)?;
        let (_, date) = column_of("date")?;
        // `0915` has kept its zero, so such a file has `hhmm`.
        let clocks =
            || rows.iter().map(|row| value_of(row, ts.at)).filter(|clock| !clock.is_empty());
        let has_minutes = clocks().any(|clock| clock.starts_with('0'))
            && clocks().all(|clock| clock.len() == 4 && clock.parse::<u16>().is_ok());
        (!has_minutes)
            .then(|| Self { ts: (ts.at, columns[ts.at].clone()), date: columns[date.at].clone() })
    }

    /// Returns an error message if the time of day of a row is a number that has lost zeros: `1507`
    /// may be 15:07 or 00:15:07. `value`: returns the row's value in a column.
    pub(super) fn fault<'v>(&self, value: impl Fn(usize) -> Cow<'v, str>) -> Option<String> {
        let (at, name) = &self.ts;
        let time = value(*at);
        let (meaning, remedy) = explain_short_clock(time.trim())?;
        let date = &self.date;
        Some(format!(
            "its column {name} has {:.20}, {meaning}, beside {date}: {remedy}, or give a pattern \
             with --unit ts= or ts_unit, such as \"%Y-%m-%d %H%M\"",
            time.trim()
        ))
    }
}

/// Columns of times in UTC that are not read, and that agree with the column of times in the first
/// row.
#[derive(Debug)]
pub(super) struct OtherClocks {
    row_time: RowTime,
    ts_name: String,
    /// Columns of Unix times.
    unix: Vec<(usize, String)>,
    /// The column of times of day in UTC, or of dates with such times.
    utc: Option<(usize, String)>,
}

impl OtherClocks {
    /// Returns the check of a file; `None` if the file has no such column. `pattern`: the pattern
    /// of the times; `utc`: a column whose name says that its times are in UTC.
    pub(super) fn new(
        columns: &[String],
        rows: &[Vec<String>],
        found: &[(&'static str, Column)],
        pattern: Option<&str>,
        utc: Option<usize>,
    ) -> Option<Self> {
        let row_time = RowTime::new(found, pattern)?;
        let is_unread = |at: usize| found.iter().all(|(_, column)| column.at != at);
        let agrees = |at: usize| {
            let mut shifts = row_time.shifts(rows, at);
            shifts.next() == Some(Some(0)) && shifts.all(|shift| shift.is_some())
        };
        let unix = columns.iter().enumerate();
        let unix = unix.filter(|(at, name)| is_unread(*at) && names_fix_time(name) && agrees(*at));
        let named = |at: usize| (at, columns[at].clone());
        let unix: Vec<_> = unix.map(|(at, _)| named(at)).collect();
        let utc = utc.filter(|at| is_unread(*at)).map(named);
        let ts_name = columns[row_time.ts].clone();
        (!unix.is_empty() || utc.is_some()).then_some(Self { row_time, ts_name, unix, utc })
    }

    /// Returns an error message if the time of a row has no zone, and differs from a time in UTC
    /// that is not read as the times of another zone would: by quarters of an hour from a Unix
    /// time, or by hours from a time of day. `value`: returns the row's value in a column.
    pub(super) fn fault<'v>(&self, value: impl Fn(usize) -> Cow<'v, str>) -> Option<String> {
        let from_unix = || {
            let time = self.row_time.unix_ms(&value)?;
            self.unix.iter().find_map(|(at, name)| {
                let quarters = quarters_of_hour(time - unix_ms(&value(*at))?)?;
                (quarters != 0).then(|| {
                    format!(
                        "its time {:.40} has no zone, and its column {name}, which is not read, \
                         says that it is {} UTC: give --zone, or give --field ts='{name}'",
                        value(self.row_time.ts).trim(),
                        describe_offset(quarters)
                    )
                })
            })
        };
        let from_utc = || {
            let (at, name) = self.utc.as_ref()?;
            let (time, utc) = (value(self.row_time.ts), value(*at));
            let (time, utc) = (time.trim(), utc.trim());
            (!is_instant(time) && is_shifted_clock(time, utc)).then(|| {
                format!(
                    "its columns {} ({time:.40}) and {name} ({utc:.40}) name two times: give \
                     --zone, or say which is in UTC with --field ts=COLUMN or ts=DATE+TIME",
                    self.ts_name
                )
            })
        };
        from_unix().or_else(from_utc)
    }
}

/// Compares the times of all rows: some may have an offset, and others none.
#[derive(Debug)]
pub(super) struct Offsets {
    row_time: RowTime,
    /// A row had a time without an offset, which was read as UTC.
    has_local: Cell<bool>,
}

impl Offsets {
    pub(super) fn new(found: &[(&'static str, Column)]) -> Option<Self> {
        Some(Self { row_time: RowTime::new(found, None)?, has_local: Cell::default() })
    }

    /// Checks a row that is not rejected. `value`: returns the row's value in a column; `line`: the
    /// row's line.
    ///
    /// # Errors
    /// The time has an offset other than that of UTC, and a row above had none: the times above may
    /// be in that zone, too.
    pub(super) fn check<'v>(&self, value: impl Fn(usize) -> Cow<'v, str>, line: u64) -> Result<()> {
        let time = value(self.row_time.ts);
        let time = time.trim();
        if !is_instant(time) {
            self.has_local.set(self.has_local.get() || self.row_time.unix_ms(&value).is_some());
        }
        ensure!(
            !(self.has_local.get() && is_shifted(time)),
            "line {line}: its time {time:.40} has an offset, and a time above has none, which was \
             read as UTC: give --zone, such as --zone Europe/Berlin, or --zone Z if the times \
             without an offset are in UTC. The fixes above may be stored already: check the \
             driver's fixes"
        );
        Ok(())
    }
}
