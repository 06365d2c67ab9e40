//! Detects CSV files whose times are in a zone other than UTC: compares the times with a column of
//! Unix times that milepost does not read.

use milepost_decode::{Local, Zone, field_in_other_language};

use super::names::{Column, normalised};

/// Returns an error message if an unread column of Unix times shows that the times of the first
/// rows are not in UTC. This is so if, in all rows that have a time without a zone and a Unix time,
/// the two differ by the same offset, which is not 0. `pattern`: the pattern of the times.
pub(super) fn shifted_from_unix_time(
    columns: &[String],
    rows: &[Vec<String>],
    found: &[(&'static str, Column)],
    pattern: Option<&str>,
) -> Option<String> {
    let column_of = |name: &str| found.iter().find(|(field, _)| *field == name);
    let index_of = |name: &str| column_of(name).map(|(_, column)| column.at);
    let (ts, date) = (index_of("ts")?, index_of("date"));
    let local = |zone| Local { zone, pattern: pattern.map(str::to_owned) };
    let (without_zone, in_utc) = (local(None), local(Some(Zone::utc())));
    // Returns the time of a row as if it were in UTC; `None` if the time states its zone, or is not
    // valid.
    let time_ms = |row: &[String]| {
        let day = date.and_then(|date| row.get(date));
        let clock = row.get(ts)?.trim();
        let time = day.map_or_else(|| clock.to_owned(), |day| format!("{} {clock}", day.trim()));
        in_utc.unix_ms(&time).ok().filter(|_| without_zone.unix_ms(&time).is_err())
    };
    let is_unread = |at: usize| at != ts && Some(at) != date;
    let names =
        columns.iter().enumerate().filter(|(at, name)| is_unread(*at) && names_fix_time(name));
    let shifted = names.filter_map(|(at, name)| {
        let times = rows.iter().filter_map(|row| Some((time_ms(row)?, unix_ms(row.get(at)?)?)));
        let mut shifts = times.map(|(time, unix)| quarters_of_hour(time - unix));
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

/// Returns whether a column of Unix times holds the times of the fixes, by its name: all parts of
/// the name must be known. `valid_until_epoch` and `eta_timestamp` have unknown parts.
fn names_fix_time(name: &str) -> bool {
    // A part precedes the shorter parts that it contains.
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
fn unix_ms(value: &str) -> Option<i64> {
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
fn quarters_of_hour(ms: i64) -> Option<i64> {
    const QUARTER_MS: i64 = 15 * 60_000;
    let quarters = (ms + QUARTER_MS / 2).div_euclid(QUARTER_MS);
    let clock_error_ms = ms - quarters * QUARTER_MS;
    (quarters.abs() <= 14 * 4 && clock_error_ms.abs() <= 2_000).then_some(quarters)
}

/// Describes an offset: `5 h 45 min ahead of`.
fn describe_offset(quarters: i64) -> String {
    let (hours, minutes) = (quarters.abs() / 4, quarters.abs() % 4 * 15);
    let parts = [(hours, "h"), (minutes, "min")];
    let parts = parts.iter().filter(|(number, _)| *number > 0);
    let size: Vec<_> = parts.map(|(number, unit)| format!("{number} {unit}")).collect();
    format!("{} {}", size.join(" "), if quarters > 0 { "ahead of" } else { "behind" })
}
