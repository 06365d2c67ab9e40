//! Checks the times of each row of a CSV file. A fault may begin in the middle of a file: a
//! spreadsheet leaves 235959 as it is, but turns 001507 into the number 1507.

use std::borrow::Cow;

use super::columns::explain_short_clock;
use super::names::Column;

/// The column of times of day beside a column of dates, if no pattern says how to read them.
#[derive(Debug)]
pub(super) struct ShortClock {
    ts: (usize, String),
    date: String,
}

impl ShortClock {
    pub(super) fn new(
        columns: &[String],
        found: &[(&'static str, Column)],
        unit: Option<&str>,
    ) -> Option<Self> {
        let index_of = |field: &str| found.iter().find(|(name, _)| *name == field);
        let has_pattern = unit.is_some_and(|unit| unit.contains('%'));
        let (_, ts) = index_of("ts").filter(|_| !has_pattern)?;
        let (_, date) = index_of("date")?;
        Some(Self { ts: (ts.at, columns[ts.at].clone()), date: columns[date.at].clone() })
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
