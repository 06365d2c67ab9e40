//! Checks the rows of a CSV file for unread columns that change the meaning of the columns that are
//! read: zones, AM and PM, hemispheres, minutes of degrees.
//!
//! Guarantee: no wrong place or time is stored because of such a column. If one of the first rows
//! has such a value, the file is refused; a later row is rejected.

use std::borrow::Cow;

use super::hemispheres::{LateHemispheres, SignedColumn};
use super::names::Column;
use super::values::{is_split, is_time_of_day};
use super::zones::ZoneCheck;

const SEPARATE_MINUTES: &str = "its minutes or seconds are in a separate column, which is not read: \
                             join them with the degrees in one column, such as 52°30'36\"";

/// The checks of the rows of a file.
#[derive(Debug, Default)]
pub(super) struct RowChecks {
    /// Pairs of columns: one with degrees, one with their minutes or seconds.
    pub(super) split_degrees: Vec<(usize, usize)>,
    pub(super) zones: Option<ZoneCheck>,
    pub(super) meridiems: Option<Meridiems>,
    pub(super) signed: Vec<SignedColumn>,
    pub(super) hemispheres: Option<LateHemispheres>,
}

impl RowChecks {
    pub(super) fn is_empty(&self) -> bool {
        let Self { split_degrees, zones, meridiems, signed, hemispheres } = self;
        split_degrees.is_empty()
            && signed.is_empty()
            && (zones.is_none() && meridiems.is_none() && hemispheres.is_none())
    }

    /// Returns an error message if a row fails a check. `value`: returns the row's value in a
    /// column.
    pub(super) fn fault<'v>(
        &self,
        value: impl Fn(usize) -> Cow<'v, str>,
    ) -> Option<Cow<'static, str>> {
        let is_split = |(whole, part): &(usize, usize)| is_split(&value(*whole), &value(*part));
        if self.split_degrees.iter().any(is_split) {
            return Some(SEPARATE_MINUTES.into());
        }
        let zone = || self.zones.as_ref()?.fault(&value);
        let meridiem = || self.meridiems.as_ref()?.fault(&value);
        let hemisphere = || self.hemispheres.as_ref()?.fault(&value);
        let sign = || self.signed.iter().find_map(|column| column.fault(&value));
        zone().or_else(meridiem).or_else(sign).or_else(hemisphere).map(Cow::from)
    }
}

/// Columns whose values may be AM or PM.
#[derive(Debug)]
pub(super) struct Meridiems {
    ts: usize,
    candidates: Vec<(usize, String)>,
}

impl Meridiems {
    pub(super) fn new(
        columns: &[String],
        rows: &[Vec<String>],
        found: &[(&'static str, Column)],
    ) -> Option<Self> {
        let (_, ts) = found.iter().find(|(field, _)| *field == "ts")?;
        let is_candidate = |at: &usize| {
            let mut values = rows.iter().filter_map(|row| Some(row.get(*at)?.trim()));
            found.iter().all(|(_, column)| column.at != *at)
                && values.all(|value| value.is_empty() || is_pm(value).is_some())
        };
        let candidates: Vec<_> =
            (0..columns.len()).filter(is_candidate).map(|at| (at, columns[at].clone())).collect();
        (!candidates.is_empty()).then_some(Self { ts: ts.at, candidates })
    }

    /// Returns an error message if the hour of a row would be another one with AM or PM. The hours
    /// of a 24-hour clock would not change.
    fn fault<'v>(&self, value: impl Fn(usize) -> Cow<'v, str>) -> Option<String> {
        let (at, name, is_pm) = self
            .candidates
            .iter()
            .find_map(|(at, name)| Some((*at, name, is_pm(value(*at).trim())?)))?;
        let time = value(self.ts);
        let hour = hour(time.trim())?;
        let contradicts = if is_pm { (1..12).contains(&hour) } else { hour == 12 };
        contradicts.then(|| {
            format!(
                "its column {name}, which is not read, says {}: join it with the time in one \
                 column, such as 9:00:00 PM",
                value(at).trim()
            )
        })
    }
}

/// Returns whether a value is PM; `None` if it is neither AM nor PM.
fn is_pm(value: &str) -> Option<bool> {
    // A single `A` is no AM: it is the status of NMEA's RMC.
    let is_one_of = |words: [&str; 2]| words.iter().any(|word| value.eq_ignore_ascii_case(word));
    if is_one_of(["am", "a.m."]) {
        return Some(false);
    }
    is_one_of(["pm", "p.m."]).then_some(true)
}

/// Returns the hour of a time that has no AM or PM of its own.
fn hour(time: &str) -> Option<u8> {
    let digits = match time.split_once(':') {
        Some((before, after)) => {
            let after = after.to_ascii_lowercase();
            let has_own = ["am", "pm", "a.m", "p.m"].iter().any(|own| after.contains(own));
            let begin = before.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
            before.get(begin..).filter(|_| !has_own)?
        }
        None if is_time_of_day(time) => time.get(..2)?,
        None => return None,
    };
    digits.parse().ok()
}
