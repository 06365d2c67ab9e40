//! Detects CSV files whose times are in a zone other than UTC: compares the times with a column of
//! Unix times that milepost does not read.

use std::borrow::Cow;

use milepost_decode::{Local, Zone, field_in_other_language};

use super::names::{Column, normalised};

/// Returns an error message if an unread column of Unix times shows that the times of the first
/// rows are not in UTC. Compares the two times of each row that has both a time without a zone and
/// a Unix time. The column shows a zone if the two times differ by the same offset in all these
/// rows, and the offset is not 0. `pattern`: the pattern of the times.
pub(super) fn shifted_from_unix_time(
    columns: &[String],
    rows: &[Vec<String>],
    found: &[(&'static str, Column)],
    pattern: Option<&str>,
) -> Option<String> {
    let row_time = RowTime::new(found, pattern)?;
    let (ts, date) = (row_time.ts, row_time.date);
    let is_unread = |at: usize| at != ts && Some(at) != date;
    let names =
        columns.iter().enumerate().filter(|(at, name)| is_unread(*at) && names_fix_time(name));
    let shifted = names.filter_map(|(at, name)| {
        let mut shifts = row_time.shifts(rows, at);
        let first = shifts.next()??;
        shifts.all(|shift| shift == Some(first)).then_some((name, first))
    });
    let (name, quarters) = shifted.into_iter().find(|(_, quarters)| *quarters != 0)?;
    Some(format!(
        "its times have no zone, and its column {name} says that they are {} UTC: give --zone, or \
         give --field ts='{name}'",
        describe_offset(quarters)
    ))
}

/// Returns whether a column of Unix times holds the times of the fixes, judged by the name of the
/// column: all parts of the name must be known. `valid_until_epoch` and `eta_timestamp` have
/// unknown parts.
pub(super) fn names_fix_time(name: &str) -> bool {
    // The list has each part before the shorter parts that the part contains.
    const PARTS: [&str; 29] = [
        "milliseconds",
        "microseconds",
        "nanoseconds",
        "since1970",
        "timestamp",
        "datetime",
        "seconds",
        "millis",
        "micros",
        "system",
        "device",
        "nanos",
        "epoch",
        "posix",
        "phone",
        "unix",
        "time",
        "date",
        "gnss",
        "secs",
        "sec",
        "gps",
        "utc",
        "fix",
        "ts",
        "ms",
        "us",
        "ns",
        "in",
    ];
    let unknown = PARTS.iter().fold(normalised(name), |unknown, part| unknown.replace(part, ""));
    matches!(&*unknown, "" | "s" | "t") || field_in_other_language(&unknown) == Some("ts")
}

/// Parses a Unix time since the year 2001 into milliseconds. The number of digits gives the unit.
pub(super) fn unix_ms(value: &str) -> Option<i64> {
    let value = value.trim();
    let whole = value.split(['.', ',']).next()?;
    let number: i64 = whole.parse().ok().filter(|number| *number > 0)?;
    match whole.len() {
        10 => Some(number * 1_000),
        13 => Some(number),
        16 => Some(number / 1_000),
        19 => Some(number / 1_000_000),
        _ => None,
    }
}

/// Returns a difference of times as a number of quarters of an hour; `None` if the difference
/// cannot be the offset of a zone. Two clocks may differ by two seconds.
pub(super) fn quarters_of_hour(ms: i64) -> Option<i64> {
    const QUARTER_MS: i64 = 15 * 60_000;
    let quarters = (ms + QUARTER_MS / 2).div_euclid(QUARTER_MS);
    let clock_error_ms = ms - quarters * QUARTER_MS;
    (quarters.abs() <= 14 * 4 && clock_error_ms.abs() <= 2_000).then_some(quarters)
}

/// Describes an offset: `5 h 45 min ahead of`.
pub(super) fn describe_offset(quarters: i64) -> String {
    let (hours, minutes) = (quarters.abs() / 4, quarters.abs() % 4 * 15);
    let parts = [(hours, "h"), (minutes, "min")];
    let parts = parts.iter().filter(|(number, _)| *number > 0);
    let size: Vec<_> = parts.map(|(number, unit)| format!("{number} {unit}")).collect();
    format!("{} {}", size.join(" "), if quarters > 0 { "ahead of" } else { "behind" })
}

/// Returns the value of a row in a column; empty if the row is shorter.
pub(super) fn value_of(row: &[String], at: usize) -> Cow<'_, str> {
    row.get(at).map_or("", String::as_str).into()
}

/// The columns of a time and its date, and parsers of times without a zone.
#[derive(Debug)]
pub(super) struct RowTime {
    pub(super) ts: usize,
    pub(super) date: Option<usize>,
    without_zone: Local,
    in_utc: Local,
}

impl RowTime {
    /// `pattern`: the pattern of the times.
    pub(super) fn new(found: &[(&'static str, Column)], pattern: Option<&str>) -> Option<Self> {
        let column_of = |name: &str| found.iter().find(|(field, _)| *field == name);
        let index_of = |name: &str| column_of(name).map(|(_, column)| column.at);
        let local = |zone| Local { zone, pattern: pattern.map(str::to_owned) };
        let (without_zone, in_utc) = (local(None), local(Some(Zone::utc())));
        Some(Self { ts: index_of("ts")?, date: index_of("date"), without_zone, in_utc })
    }

    /// Returns the time of a row as if it were in UTC, in Unix milliseconds; `None` if the time
    /// states its zone, or is not valid. `value`: returns the row's value in a column.
    pub(super) fn unix_ms<'v>(&self, value: impl Fn(usize) -> Cow<'v, str>) -> Option<i64> {
        let time = value(self.ts);
        let time = self.date.map_or_else(
            || time.trim().to_owned(),
            |date| format!("{} {}", value(date).trim(), time.trim()),
        );
        self.in_utc.unix_ms(&time).ok().filter(|_| self.without_zone.unix_ms(&time).is_err())
    }

    /// Returns for each row by how many quarters of an hour its time differs from the Unix time in
    /// a column. Leaves out rows that lack either time. `None`: the difference cannot be the offset
    /// of a zone.
    pub(super) fn shifts(
        &self,
        rows: &[Vec<String>],
        at: usize,
    ) -> impl Iterator<Item = Option<i64>> {
        rows.iter().filter_map(move |row| {
            let time = self.unix_ms(|at| value_of(row, at))?;
            Some(quarters_of_hour(time - unix_ms(row.get(at)?)?))
        })
    }
}
