//! Refuses a CSV file that states, in a way that milepost does not read, that its times are in a
//! zone other than UTC.

use anyhow::{Result, bail};

use super::columns::{Column, normalised};

/// Checks that no name or value of a column states a time zone that would be ignored.
///
/// # Errors
/// The file states that its times are not UTC, in a way that milepost does not read.
pub(super) fn refuse_other_zones(
    columns: &[String],
    sample: &[String],
    found: &[(&'static str, Column)],
) -> Result<()> {
    let value = |at: usize| sample.get(at).map_or("", String::as_str);
    let Some((_, ts)) = found.iter().find(|(field, _)| *field == "ts") else { return Ok(()) };
    let is_instant = value(ts.at).parse::<f64>().is_ok() || has_offset(value(ts.at));
    if is_instant {
        return Ok(());
    }
    let of_time = found.iter().filter(|(field, _)| matches!(*field, "ts" | "date"));
    if let Some(name) =
        of_time.map(|(_, column)| &columns[column.at]).find(|name| is_local_time(name))
    {
        bail!("its times are in a zone other than UTC, as the column {name} says: give --zone");
    }
    let zones =
        ["timezone", "tz", "zone", "utcofst", "utcoffset", "gmtoffset", "offset", "tzoffset"];
    let is_zone = |(at, name): &(usize, &String)| {
        let is_utc = ["", "z", "utc", "gmt", "0", "+00:00", "+0000", "00:00"];
        zones.contains(&&*normalised(name)) && !is_utc.contains(&&*value(*at).to_ascii_lowercase())
    };
    if let Some((at, name)) = columns.iter().enumerate().find(is_zone) {
        bail!(
            "its times have no zone, and its column {name}, which is not read, says {}: give --zone",
            value(at)
        );
    }
    Ok(())
}

/// Returns whether a time ends in Z, UTC, GMT or an offset.
fn has_offset(time: &str) -> bool {
    let time = time.to_ascii_lowercase();
    let digits = time.trim_end_matches(|c: char| c.is_ascii_digit() || c == ':');
    ["z", "utc", "gmt"].iter().any(|zone| time.ends_with(zone))
        || digits.ends_with(['+', '-']) && digits.contains(':')
}

/// Returns whether a column's name states that its times are local, or in a zone other than UTC.
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
        for (names, row, said) in [
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
            let why = refuse_other_zones(&columns, &sample, &[ts]).err();
            let why = why.map_or(String::new(), |why| why.to_string());
            assert!(why.contains(said) && why.is_empty() == said.is_empty(), "{names}: {why}");
        }
    }
}
