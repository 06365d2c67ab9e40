//! Checks the rows of a CSV file for unread columns that change the meaning of the columns that are
//! read: zones, AM and PM, other clocks, hemispheres, minutes of degrees. Also checks for times of
//! day that have lost their zeros.
//!
//! Guarantee: no wrong place or time is stored because of such a column. If one of the first rows
//! has such a value, the file is refused; a later row is rejected.

use std::borrow::Cow;

use super::hemispheres::{SignedColumn, UnreadHemispheres};
use super::names::{Column, normalised};
use super::other_clocks::{Offsets, OtherClocks, ShortClock};
use super::values::{is_split, is_time_of_day};
use super::zones::ZoneCheck;
use milepost_decode::EAST_ASIAN_MERIDIEMS;

const SEPARATE_MINUTES: &str = "its minutes, seconds or fraction are in a separate column, which \
                                is not read: join them with the degrees in one column, such as \
                                52°30'36\"";

/// The checks of the rows of a file.
#[derive(Debug, Default)]
pub(super) struct RowChecks {
    /// Name of the configured format that maps the columns to fields, if the import uses one.
    pub(super) format: Option<String>,
    /// Pairs of columns: one with degrees, one with their minutes or seconds.
    pub(super) split_degrees: Vec<(usize, usize)>,
    pub(super) short_clock: Option<ShortClock>,
    pub(super) other_clocks: Option<OtherClocks>,
    pub(super) offsets: Option<Offsets>,
    pub(super) zones: Option<ZoneCheck>,
    pub(super) meridiems: Option<Meridiems>,
    pub(super) signed: Vec<SignedColumn>,
    pub(super) hemispheres: Option<UnreadHemispheres>,
}

impl RowChecks {
    pub(super) fn is_empty(&self) -> bool {
        let Self {
            format: _,
            split_degrees,
            short_clock,
            other_clocks,
            offsets,
            zones,
            meridiems,
            signed,
            hemispheres,
        } = self;
        split_degrees.is_empty()
            && signed.is_empty()
            && (short_clock.is_none() && other_clocks.is_none() && offsets.is_none())
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
        let short_clock = || self.short_clock.as_ref()?.fault(&value);
        let other_clock = || self.other_clocks.as_ref()?.fault(&value);
        let zone = || self.zones.as_ref()?.fault(&value);
        let meridiem = || self.meridiems.as_ref()?.fault(&value);
        let hemisphere = || self.hemispheres.as_ref()?.fault(&value);
        let sign = || self.signed.iter().find_map(|column| column.fault(&value));
        let of_time = || short_clock().or_else(zone).or_else(other_clock).or_else(meridiem);
        let why = of_time().or_else(sign).or_else(hemisphere)?;
        Some(self.format.as_ref().map_or(why.clone(), |name| in_format(&why, name)).into())
    }
}

/// Replaces `give --field` and `give --unit` in a message by settings of the format, because these
/// options do not apply to a format. Keeps `--zone`, and a `--unit` that takes numbers as they are.
fn in_format(why: &str, name: &str) -> String {
    why.replace("give --field ", &format!("in [formats.{name}] set "))
        .replace("_hemisphere='", "_hemisphere='/")
        .replace("set ts='", "set ts='/")
        .replace("give --unit lat=", &format!("in [formats.{name}] set lat_unit="))
        .replace("give --unit lng=", &format!("in [formats.{name}] set lat_unit, and lng_unit="))
        .replace("or --unit", "or give --unit")
}

/// The column of times, and the unread columns whose values may be AM or PM.
#[derive(Debug)]
pub(super) struct Meridiems {
    ts: usize,
    candidates: Vec<Meridiem>,
}

/// A column whose values may be AM or PM.
#[derive(Debug)]
struct Meridiem {
    at: usize,
    name: String,
    /// The column's name says that it holds AM and PM, so `A` and `P` stand for them.
    may_be_letter: bool,
}

impl Meridiem {
    /// Returns whether a value is PM; `None` if it is neither AM nor PM.
    fn is_pm(&self, value: &str) -> Option<bool> {
        // Spreadsheets in Spanish write `p. m.`.
        let value: String = value.chars().filter(|c| *c != '.' && !c.is_whitespace()).collect();
        // A single `A` in another column is not AM: it may be the status of an NMEA RMC sentence.
        let is_one_of = |words: &[&str]| {
            let mut words = words.iter().filter(|word| word.len() > 1 || self.may_be_letter);
            words.any(|word| value.eq_ignore_ascii_case(word))
        };
        let east_asian = || EAST_ASIAN_MERIDIEMS.iter().find(|(word, _)| *word == value);
        match (is_one_of(&["am", "a"]), is_one_of(&["pm", "p"])) {
            (true, _) => Some(false),
            (_, true) => Some(true),
            (false, false) => east_asian().map(|(_, is_pm)| *is_pm),
        }
    }
}

/// Returns whether the name of a column says that it holds AM and PM.
fn is_meridiem(name: &str) -> bool {
    let name = normalised(name);
    let is_part = ["ampm", "meridi"].iter().any(|part| name.contains(part));
    is_part || ["am", "pm", "ap", "m"].contains(&&*name)
}

impl Meridiems {
    pub(super) fn new(
        columns: &[String],
        rows: &[Vec<String>],
        found: &[(&'static str, Column)],
    ) -> Option<Self> {
        let (_, ts) = found.iter().find(|(field, _)| *field == "ts")?;
        let candidates = columns.iter().enumerate().filter_map(|(at, name)| {
            let mut values = rows.iter().filter_map(|row| Some(row.get(at)?.trim()));
            let column = Meridiem { at, name: name.clone(), may_be_letter: is_meridiem(name) };
            let is_unread = found.iter().all(|(_, column)| column.at != at);
            let has_only_meridiems =
                is_unread && values.all(|value| value.is_empty() || column.is_pm(value).is_some());
            has_only_meridiems.then_some(column)
        });
        let candidates: Vec<_> = candidates.collect();
        (!candidates.is_empty()).then_some(Self { ts: ts.at, candidates })
    }

    /// Returns an error message if AM or PM in an unread column would change the hour of the row's
    /// time. Returns none for a time of a 24-hour clock, such as 21:00 beside PM.
    fn fault<'v>(&self, value: impl Fn(usize) -> Cow<'v, str>) -> Option<String> {
        let stated = |column: &'_ Meridiem| column.is_pm(value(column.at).trim());
        let (column, is_pm) =
            self.candidates.iter().find_map(|column| Some((column, stated(column)?)))?;
        let time = value(self.ts);
        let hour = hour(time.trim())?;
        let contradicts = if is_pm { (1..12).contains(&hour) } else { hour == 12 };
        contradicts.then(|| {
            format!(
                "its column {}, which is not read, says {}: join it with the time in one \
                 column, such as 9:00:00 PM",
                column.name,
                value(column.at).trim()
            )
        })
    }
}

/// Returns the hour of a time that has no AM or PM of its own.
fn hour(time: &str) -> Option<u8> {
    let digits = match time.split_once(':') {
        Some((before, after)) => {
            let after = after.to_ascii_lowercase();
            let meridiems = ["am", "pm", "a.m", "p.m", "a. m", "p. m"];
            let has_own = meridiems.iter().any(|meridiem| after.contains(meridiem));
            let begin = before.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
            before.get(begin..).filter(|_| !has_own)?
        }
        None if is_time_of_day(time) => time.get(..2)?,
        None => return None,
    };
    digits.parse().ok()
}
