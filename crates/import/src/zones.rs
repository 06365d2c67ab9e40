//! Detects CSV files that state, in a column or name that milepost does not read, that their times
//! are in a zone other than UTC.

use std::borrow::Cow;

use super::names::{Column, normalised};
use super::values::is_instant;
use milepost_decode::{Local, PatternZone};

/// The check of a file whose columns state a zone.
#[derive(Debug)]
pub(super) struct ZoneCheck {
    ts: usize,
    /// Name of a column of times or dates that states a zone.
    local: Option<String>,
    /// Columns that hold zones.
    zones: Vec<(usize, String)>,
    /// The times are parsed by a pattern that does not state their offset.
    has_pattern: bool,
}

impl ZoneCheck {
    /// Returns `None` if the file needs no check. `unit`: the value of `--unit ts=…`.
    pub(super) fn new(
        columns: &[String],
        found: &[(&'static str, Column)],
        unit: Option<&str>,
    ) -> Option<Self> {
        let has_pattern = unit.is_some_and(|unit| unit.contains('%'));
        let is_instant = match unit {
            Some(pattern) if has_pattern => {
                Local::zone_of_pattern(pattern) == Some(PatternZone::Known)
            }
            Some(unit) => ["s", "ms", "us", "ns"].contains(&unit),
            None => false,
        };
        let (_, ts) = found.iter().find(|(field, _)| *field == "ts")?;
        let time_columns = || found.iter().filter(|(field, _)| matches!(*field, "ts" | "date"));
        let names = time_columns().map(|(_, column)| &columns[column.at]);
        let local = names.into_iter().find(|name| is_local_time(name)).cloned();
        let is_zone = |(at, name): &(usize, &String)| {
            time_columns().all(|(_, column)| column.at != *at) && is_zone(name)
        };
        let zones: Vec<_> = columns
            .iter()
            .enumerate()
            .filter(is_zone)
            .map(|(at, name)| (at, name.clone()))
            .collect();
        let is_needed = !is_instant && (local.is_some() || !zones.is_empty());
        is_needed.then_some(Self { ts: ts.at, local, zones, has_pattern })
    }

    /// Returns an error message if the time of a row has no zone, and the file states a zone that
    /// would be ignored.
    pub(super) fn fault<'v>(&self, value: impl Fn(usize) -> Cow<'v, str>) -> Option<String> {
        let time = value(self.ts);
        let time = time.trim();
        let has_digit = time.contains(|c: char| c.is_ascii_digit());
        if !has_digit || !self.has_pattern && is_instant(time) {
            return None;
        }
        if let Some(name) = &self.local {
            return Some(format!(
                "its times are in a zone other than UTC, as the column {name} says: give --zone"
            ));
        }
        self.zones.iter().find_map(|(at, name)| {
            let zone = value(*at);
            let zone = zone.trim();
            // A column `zone` may hold areas, and `offset` positions in a recording.
            let is_other = match &*normalised(name) {
                "zone" => is_time_zone(zone),
                "offset" => is_time_zone(zone) || is_offset(zone),
                _ => true,
            } && !is_utc(zone);
            is_other.then(|| {
                format!(
                    "its times have no zone, and its column {name}, which is not read, says \
                     {zone}: give --zone"
                )
            })
        })
    }
}

/// Returns whether the name of a column says that it holds time zones.
fn is_zone(name: &str) -> bool {
    const NAMES: [&str; 6] = ["zone", "offset", "tzname", "tzid", "tzoffset", "tzinfo"];
    const PARTS: [&str; 8] = [
        "timezone",
        "utcoffset",
        "utcofst",
        "gmtoffset",
        "gmtofst",
        "zeitzone",
        "zonahoraria",
        "fuseauhoraire",
    ];
    let mut words = name.split(|c: char| !c.is_alphanumeric());
    let is_tz = words.any(|word| word.eq_ignore_ascii_case("tz"));
    let name = normalised(name);
    is_tz || NAMES.contains(&&*name) || PARTS.iter().any(|part| name.contains(part))
}

/// Returns whether the value of a column of zones is UTC or empty.
fn is_utc(zone: &str) -> bool {
    let zone = zone.to_ascii_lowercase();
    let zone = zone.strip_prefix("etc/").unwrap_or(&zone);
    let rest = ["utc", "gmt", "z"].iter().find_map(|name| zone.strip_prefix(name)).unwrap_or(zone);
    rest.chars().all(|c| matches!(c, '0' | '+' | '-' | ':' | '.'))
}

/// Returns whether a value looks like a time zone: `Europe/Berlin`, `+01:00`, `UTC+1` or `CET`.
fn is_time_zone(value: &str) -> bool {
    let has_letters = value.starts_with(|c: char| c.is_ascii_uppercase());
    value.starts_with(['+', '-'])
        || has_letters && (value.contains('/') || value.contains(['+', '-']))
        || (3..=5).contains(&value.len()) && value.bytes().all(|b| b.is_ascii_uppercase())
}

/// Returns whether a number may be the offset of a zone, in hours, minutes or seconds.
fn is_offset(value: &str) -> bool {
    let number: Option<f64> = value.replace(',', ".").parse().ok();
    let is_multiple =
        |number: f64, step: f64, max: f64| number % step == 0.0 && number.abs() <= max;
    let is_offset = |number| {
        is_multiple(number, 0.25, 14.0)
            || is_multiple(number, 15.0, 840.0)
            || is_multiple(number, 900.0, 50_400.0)
    };
    number.map_or_else(|| value.len() == 5 && value.as_bytes()[2] == b':', is_offset)
}

/// Returns whether the name of a column states that its times are local or in a zone other than
/// UTC.
fn is_local_time(name: &str) -> bool {
    let lower = name.to_lowercase();
    let mut words = lower.split(|c: char| !(c.is_alphanumeric() || c == '+' || c == '-'));
    const ZONES: [&str; 18] = [
        "local",
        "lcl",
        "localtime",
        "cet",
        "cest",
        "est",
        "edt",
        "cst",
        "cdt",
        "mst",
        "mdt",
        "pst",
        "pdt",
        "bst",
        "ist",
        "jst",
        "msk",
        "aest",
    ];
    let is_shifted = |word: &str| {
        ["utc", "gmt"]
            .iter()
            .any(|zone| word.strip_prefix(zone).is_some_and(|rest| rest.starts_with(['+', '-'])))
    };
    words.any(|word| ZONES.contains(&word) || is_shifted(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_with_other_zones_are_refused() {
        for (names, row, message) in [
            ("Local Time,lat", "2026-11-24 10:00:00,1", "the column Local Time says"),
            ("Lcl Date,Lcl Time", "2026-11-24,10:00:00", "the column Lcl"),
            ("time (UTC+2),lat", "2026-11-24 10:00:00,1", "time (UTC+2) says"),
            ("time_cet,lat", "2026-11-24 10:00:00,1", "time_cet says"),
            ("time,UTCOfst", "10:00:00,+01:00", "column UTCOfst, which is not read, says +01:00"),
            ("time,timezone", "2026-11-24T10:00:00,Asia/Tokyo", "says Asia/Tokyo"),
            ("time,tz", "2026-11-24T10:00:00,UTC", ""),
            ("time,tz", "2026-11-24T10:00:00+01:00,Asia/Tokyo", ""),
            ("time,tz", "2026-11-24 10:00:00-0330,Asia/Tokyo", ""),
            ("Local Time,lat", "1795514400,1", ""),
            ("Local Time,lat", "2026-11-24T10:00:00Z,1", ""),
            ("UTC time,lat", "2026-11-24 10:00:00,1", ""),
            ("time,lat", "2026-11-24,1", ""),
        ] {
            let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
            let (columns, sample) = (list(names), list(row));
            let at = columns.iter().position(|name| name.to_lowercase().contains("time"));
            let ts = ("ts", Column { at: at.unwrap(), unit: None });
            let check = ZoneCheck::new(&columns, &[ts], None);
            let why = check.and_then(|check| check.fault(|at| sample[at].as_str().into()));
            let why = why.unwrap_or_default();
            assert!(
                why.contains(message) && why.is_empty() == message.is_empty(),
                "{names}: {why}"
            );
        }
    }
}
