//! Finds the columns of a CSV file that hold the fields, and the units that their names state.

use anyhow::{Context as _, Result, bail, ensure};

use super::encodings;
use super::hemispheres::{add_hemispheres, split_hemisphere};
use super::name_units::is_magnetic;
use super::names::{
    Column, FIELD_NAMES, is_name_of, normalised, quantity_of, translated_field, words,
};
use super::values::{
    degrees, is_clock_in_digits, is_instant, is_same_clock, is_shifted_clock, is_time_of_day,
};
use milepost_decode::{Quantity, is_date_in_other_language, suggested_field};

/// Suffixes of names such as `latitudeE7`, each with the unit of degrees that it states.
const SCALED: [(&str, &str); 3] = [("e7", "1e-7 deg"), ("e6", "1e-6 deg"), ("e5", "1e-5 deg")];

/// Finds the column of each field, by `--field` or by the column's name. `sample`: the first value
/// of each column; `rows`: the first rows; `given`: the values of `--field`.
///
/// # Errors
/// `--field` names a field or a column that does not exist, the names of two columns match one
/// field, or the columns contradict each other.
pub(super) fn find(
    columns: &[String],
    sample: &[String],
    rows: &[Vec<String>],
    given: &[(String, String)],
) -> Result<Vec<(&'static str, Column)>> {
    if let Some((field, _)) =
        given.iter().find(|(field, _)| !FIELD_NAMES.iter().any(|(name, ..)| name == field))
    {
        let all: Vec<&str> = FIELD_NAMES.iter().map(|(field, ..)| *field).collect();
        bail!("--field {field}: must be one of {}", all.join(", "));
    }
    let given_name =
        |field: &str| given.iter().rev().find(|(name, _)| name == field).map(|(_, at)| at.as_str());
    let index_of = |field: &str, name: &str| {
        let mut matching = (0..columns.len()).filter(|n| columns[*n].eq_ignore_ascii_case(name));
        let at = matching.next().with_context(|| {
            let advice = encodings::advice(columns);
            let advice = advice.map_or(String::new(), |advice| format!("; {advice}"));
            format!(
                "--field {field}={name}: the file has no column {name}, only {}{advice}",
                columns.join(", ")
            )
        })?;
        ensure!(matching.next().is_none(), "two columns are named {name}: rename one");
        Ok::<_, anyhow::Error>(at)
    };
    let value = |at: usize| sample.get(at).map_or("", String::as_str);
    let mut found: Vec<(&'static str, Column)> = Vec::new();
    for (field, quantity, names) in FIELD_NAMES {
        let unit_in = |name: &str| quantity.and_then(|quantity| quantity.unit_in_name(name));
        match given_name(field) {
            // The name of a column may contain a +, so try the whole name first.
            Some(name) if field == "ts" && name.contains('+') && index_of("ts", name).is_err() => {
                let (date, time) = name.split_once('+').unwrap_or((name, ""));
                found.push(("date", Column { at: index_of("ts", date)?, unit: None }));
                found.push(("ts", Column { at: index_of("ts", time)?, unit: None }));
            }
            Some(name) => {
                let at = index_of(field, name)?;
                let column = Column { at, unit: unit_in(&columns[at]) };
                if is_coordinate(field) {
                    refuse_separate_minutes(columns, column, names, rows)?;
                }
                found.push((field, column));
            }
            // `FIELD_NAMES` lists `date` after `ts`, so `found` has the column of times already.
            None if field == "date" => {
                let has_date = found.iter().any(|(field, _)| *field == "date");
                let is_clock = found.iter().any(|(field, ts)| {
                    *field == "ts" && sample.get(ts.at).is_some_and(|value| is_time_of_day(value))
                });
                let ts = found.iter().find(|(field, _)| *field == "ts");
                let ts_name = ts.map_or(String::new(), |(_, ts)| normalised(&columns[ts.at]));
                // Take the date of `UTC Time` from `UTC Date`, even if there is also a column
                // `Date`.
                let clock = ["utc", "gps"].into_iter().find(|clock| ts_name.contains(clock));
                let mut names = names.to_vec();
                names.sort_by_key(|name| clock.is_some_and(|clock| !name.contains(clock)));
                let date = find_by_name(columns, quantity, &names)?;
                let time = ts.map_or("", |(_, ts)| value(ts.at));
                if let (Some(date), false, Some((_, ts))) = (date, has_date, ts)
                    && let Some((meaning, remedy)) = explain_short_clock(time)
                {
                    let (ts, date) = (&columns[ts.at], &columns[date.at]);
                    bail!("its column {ts} has {time}, {meaning}, beside {date}: {remedy}");
                }
                // Only times of day need a date from another column.
                found.extend(date.filter(|_| is_clock && !has_date).map(|date| ("date", date)));
            }
            None => {
                let mut column = find_by_name(columns, quantity, names)?;
                if let (Some(times), "ts") = (column, field) {
                    let dated = dated_column(columns, sample, times);
                    column = Some(utc_column(columns, sample, rows, dated)?);
                }
                if field.ends_with("_hemisphere") {
                    column = column.filter(|column| may_be_hemisphere(column.at, rows));
                }
                if let (Some(column), "lat" | "lng") = (column, field) {
                    refuse_ambiguous_coordinate(columns, column, names, rows)?;
                    refuse_separate_minutes(columns, column, names, rows)?;
                }
                found.extend(column.map(|column| (field, column)));
            }
        }
    }
    for (field, column) in &mut found {
        let quantity = quantity_of(field);
        // Some programs write the units in a row below the names, others after each value. The
        // decoder itself reads a unit after the number of a coordinate.
        if let (Some(quantity), None) = (quantity, column.unit) {
            let value = value(column.at);
            let after_value =
                || quantity.unit_after_number(value).filter(|_| !is_coordinate(field));
            column.unit = quantity.unit_named(value).or_else(after_value);
        }
    }
    for (n, (field, column)) in found.iter().enumerate() {
        let same = found[..n].iter().find(|(_, other)| other.at == column.at);
        // If both coordinates are in one column, `fields_of_columns` reports it.
        if let Some((other, _)) = same.filter(|(other, _)| !is_coordinate(other)) {
            let name = &columns[column.at];
            bail!("{other} and {field} are the same column {name}, and each needs its own");
        }
    }
    add_hemispheres(columns, rows, &mut found);
    // Without a column of times, read a column `Date` as the time if it has times of day.
    if !found.iter().any(|(field, _)| *field == "ts") {
        let date = find_by_name(columns, None, &["date"])?;
        found.extend(
            date.filter(|date| sample.get(date.at).is_some_and(|value| value.contains(':')))
                .map(|date| ("ts", date)),
        );
    }
    Ok(found)
}

/// Returns what a number of up to five digits means as a time of day, and how to mend the file.
/// Returns `None` for any other value.
pub(super) fn explain_short_clock(value: &str) -> Option<(&'static str, &'static str)> {
    let number = degrees(value).filter(|number| (0.0..1e5).contains(number))?;
    // A spreadsheet stores 08:00:00 as 0.333333333.
    if number < 1.0 && value.contains(['.', ',']) {
        return Some((
            "a fraction of a day",
            "format the column as hh:mm:ss in the spreadsheet, and save the file again",
        ));
    }
    let whole = value.split(['.', ',']).next().unwrap_or_default();
    (whole.len() < 6).then_some((
        "a time of day without its leading zeros or its seconds",
        "write it such as 09:15:00",
    ))
}

/// Returns whether the values of a column with a hemisphere's name may be hemispheres. A column
/// `ns` may instead hold numbers of satellites. The only numbers that may be hemispheres are the
/// signs 1 and -1, and 78, 83, 69 and 87, the ASCII codes of N, S, E and W.
fn may_be_hemisphere(at: usize, rows: &[Vec<String>]) -> bool {
    let mut numbers = rows.iter().filter_map(|row| degrees(row.get(at)?));
    !numbers.any(|number| ![-1.0, 1.0, 78.0, 83.0, 69.0, 87.0].contains(&number))
}

/// Returns `found`, a column of times, if its times have dates. Otherwise returns another column of
/// times that have dates, or `found` if there is no such column. A small number counts as a time
/// without a date, because it may count from the start of a recording.
fn dated_column(columns: &[String], sample: &[String], found: Column) -> Column {
    let value = |at: usize| sample.get(at).map_or("", String::as_str);
    // As Unix time, a number of up to seven digits is in 1970.
    let is_small = degrees(value(found.at)).is_some_and(|number| number.abs() < 1e7);
    if !is_small && !is_time_of_day(value(found.at)) {
        return found;
    }
    let is_dated = |at: &usize| {
        let time = value(*at);
        is_name_of("ts", &columns[*at])
            && (is_instant(time) || time.contains(':') && !is_time_of_day(time))
    };
    let dated = (0..columns.len()).find(is_dated);
    dated.map_or(found, |at| Column { at, unit: None })
}

/// Returns the column whose name says that its times are in UTC. GPS time counts as UTC.
///
/// # Errors
/// Two columns have the same name, and this name says that their times are in UTC.
pub(super) fn column_in_utc(columns: &[String]) -> Result<Option<Column>> {
    const TIMES: [&str; 10] = [
        "utcdatetime",
        "datetimeutc",
        "utctimestamp",
        "timestamputc",
        "utctime",
        "timeutc",
        "gpsdatetime",
        "gpstimestamp",
        "timestampgps",
        "gpstime",
    ];
    find_by_name(columns, None, &TIMES)
}

/// Returns the column of UTC times beside `local`, a column of times without a zone. Returns
/// `local` if there is no column of UTC times, or if both columns have the same times in the first
/// rows.
///
/// # Errors
/// The file has times of day in UTC that differ from those of `local`, but no date in UTC.
fn utc_column(
    columns: &[String],
    sample: &[String],
    rows: &[Vec<String>],
    local: Column,
) -> Result<Column> {
    let value = |at: usize| sample.get(at).map_or("", String::as_str);
    let local_value = value(local.at);
    let Some(utc) = column_in_utc(columns)?.filter(|utc| utc.at != local.at) else {
        return Ok(local);
    };
    // A number in a column of GPS times may count the seconds of the week.
    let is_number = normalised(&columns[utc.at]).contains("gps")
        && !value(utc.at).contains(':')
        && !is_clock_in_digits(value(utc.at));
    let first =
        Some((local_value, value(utc.at))).filter(|(local, utc)| !is_same_clock(local, utc));
    // The two columns may differ only in the rows after a clock change.
    let shifted = || {
        let times = rows.iter().filter_map(|row| Some((row.get(local.at)?, row.get(utc.at)?)));
        let mut times = times.map(|(local, utc)| (local.as_str(), utc.as_str()));
        times.find(|(local, utc)| is_shifted_clock(local, utc))
    };
    let Some((local_value, utc_value)) =
        first.or_else(shifted).filter(|_| !is_number && !is_instant(local_value))
    else {
        return Ok(local);
    };
    let has_date = !is_time_of_day(value(utc.at))
        || find_by_name(columns, None, &["utcdate", "dateutc", "gpsdate"])?.is_some();
    let local_name = normalised(&columns[local.at]);
    ensure!(
        has_date || local_name.contains("utc") || local_name.contains("gps"),
        "its columns {} ({local_value}) and {} ({utc_value}) name two times: say which with \
         --field ts=DATE+TIME",
        columns[local.at],
        columns[utc.at]
    );
    Ok(if has_date { utc } else { local })
}

/// Checks that all columns that are named after one coordinate have the same values.
///
/// # Errors
/// In some row, another column differs from `chosen` by more than 0.001 degrees: the position is
/// ambiguous.
fn refuse_ambiguous_coordinate(
    columns: &[String],
    chosen: Column,
    names: &[&str],
    rows: &[Vec<String>],
) -> Result<()> {
    let is_another = |at: &usize| *at != chosen.at && names.contains(&&*normalised(&columns[*at]));
    for other in (0..columns.len()).filter(is_another) {
        for row in rows {
            let value = |at: usize| row.get(at).map_or("", String::as_str);
            let number = |at: usize| degrees(value(at));
            let places = number(chosen.at).zip(number(other));
            if places.is_some_and(|(a, b)| (a - b).abs() > 1e-3) {
                let (chosen_name, other_name) = (&columns[chosen.at], &columns[other]);
                bail!(
                    "columns {chosen_name} ({}) and {other_name} ({}) name two places: say which \
                     with --field",
                    value(chosen.at),
                    value(other)
                );
            }
        }
    }
    Ok(())
}

/// Checks that no other column holds the minutes or seconds of a coordinate, such as `lat_min`
/// beside `lat_deg`.
///
/// # Errors
/// There is such a column, and the coordinate has no fraction in any row.
fn refuse_separate_minutes(
    columns: &[String],
    chosen: Column,
    names: &[&str],
    rows: &[Vec<String>],
) -> Result<()> {
    let value = |row: &Vec<String>| degrees(row.get(chosen.at)?);
    let has_fraction = rows.iter().filter_map(value).any(|value| value.fract() != 0.0);
    let own = normalised(&columns[chosen.at]);
    let names = name_prefixes(names, &own);
    let other_columns = columns.iter().enumerate().filter(|(at, _)| *at != chosen.at);
    let found = other_columns
        .filter_map(|(at, name)| Some((at, name, minutes_or_seconds(name, &names)?)))
        .find(|(at, _, part)| may_be_part(part, *at, rows));
    if let (Some((_, name, part)), false) = (found, has_fraction) {
        bail!(
            "its column {} has whole degrees, and {name} has its {part}, which are not read: join \
             them in one column, such as 52°30'36\"",
            columns[chosen.at]
        );
    }
    Ok(())
}

/// Returns whether a column may hold the `part` of a degree that its name states. Minutes and
/// seconds are below 60; a fraction may be any number.
fn may_be_part(part: &str, at: usize, rows: &[Vec<String>]) -> bool {
    let mut values = rows.iter().filter_map(|row| degrees(row.get(at)?));
    part == "fraction" || values.all(|value| value.abs() < 60.0)
}

/// Returns the beginnings that the name of a column of minutes may have. These are the names of the
/// coordinate, and the name of the chosen column, with and without its word for degrees.
fn name_prefixes<'n>(names: &[&'n str], own: &'n str) -> Vec<&'n str> {
    const DEGREES: [&str; 7] = ["degrees", "degree", "deg", "grados", "grad", "d", "°"];
    let bare = DEGREES.iter().find_map(|word| own.strip_suffix(word)).filter(|s| !s.is_empty());
    let own = Some(own).filter(|own| own.chars().count() > 2);
    names.iter().copied().chain(own).chain(bare).collect()
}

/// Returns which part of a coordinate a column holds, judged by its name: "minutes", "seconds" or
/// "fraction"; `None` if it holds none of them. `names`: the names of the coordinate.
fn minutes_or_seconds(name: &str, names: &[&str]) -> Option<&'static str> {
    const MINUTES: [&str; 8] = ["m", "min", "mins", "minute", "minutes", "minuten", "minutos", "'"];
    const SECONDS: [&str; 9] =
        ["s", "sec", "secs", "sek", "second", "seconds", "sekunden", "segundos", "\""];
    // Require a separator before a single letter: `lats` may be a plural.
    let has_separator = name.len() > normalised(name).len();
    let name = normalised(name).replace('′', "'").replace('″', "\"");
    let has_ending = |ending: &&&str| {
        let follows_name = names.iter().any(|prefix| name.strip_prefix(prefix) == Some(**ending));
        follows_name && (has_separator || ending.len() > 1)
    };
    const FRACTIONS: [&str; 4] = ["frac", "fraction", "decimal", "decimals"];
    let parts = [(&MINUTES[..], "minutes"), (&SECONDS, "seconds"), (&FRACTIONS, "fraction")];
    parts
        .into_iter()
        .find(|(endings, _)| endings.iter().any(|ending| has_ending(&ending)))
        .map(|(_, part)| part)
}

/// Returns whether a field is a coordinate.
fn is_coordinate(field: &str) -> bool {
    matches!(field, "lat" | "lng")
}

/// Returns pairs of column indices: a column with degrees, and a column that may hold the minutes
/// or seconds of these degrees.
pub(super) fn split_degrees(
    columns: &[String],
    rows: &[Vec<String>],
    found: &[(&'static str, Column)],
) -> Vec<(usize, usize)> {
    let coordinates = found.iter().filter(|(field, _)| is_coordinate(field));
    let pairs = coordinates.flat_map(|(field, column)| {
        let (_, _, names) = FIELD_NAMES
            .iter()
            .find(|(name, ..)| name == field)
            .expect("FIELD_NAMES has both coordinates");
        let own = normalised(&columns[column.at]);
        let names = name_prefixes(names, &own);
        let parts = (0..columns.len()).filter(|at| {
            let part = minutes_or_seconds(&columns[*at], &names);
            part.is_some_and(|part| may_be_part(part, *at, rows))
        });
        let parts: Vec<usize> = parts.collect();
        parts.into_iter().filter(|at| *at != column.at).map(|at| (column.at, at))
    });
    pairs.filter(|(_, part)| found.iter().all(|(_, column)| column.at != *part)).collect()
}

/// Returns the column whose name is one of `names`. Tries these names in their order. If several
/// columns have the name, prefers the column without a unit in words. If all of them have such
/// a unit, returns none of them: neither `Alt (m HAE)` nor `Alt (m above WGS84)`.
///
/// # Errors
/// Two columns match the same name, and both have no unit or a unit that is a symbol.
fn find_by_name(
    columns: &[String],
    quantity: Option<Quantity>,
    names: &[&str],
) -> Result<Option<Column>> {
    // Each column's name without its unit, the column, and whether it has no unit in words.
    let candidates = columns.iter().enumerate().map(|(at, name)| {
        let name = match split_hemisphere(name).filter(|_| quantity == Some(Quantity::Angle)) {
            Some(bare) if name.ends_with([')', ']']) || !name.contains('_') => bare,
            Some(_) | None => name.as_str(),
        };
        let split = quantity.and_then(|quantity| quantity.split_unit(name));
        let is_plain = split == quantity.and_then(|quantity| quantity.split_known(name));
        let (bare, unit) = split.map_or((name, None), |(bare, unit)| (bare, Some(unit)));
        let bare = normalised(bare);
        if quantity == Some(Quantity::Angle) {
            for (ending, unit) in SCALED {
                if let Some(bare) = bare.strip_suffix(ending) {
                    return (bare.to_owned(), Column { at, unit: Some(unit) }, true);
                }
            }
        }
        (bare, Column { at, unit }, is_plain)
    });
    let candidates: Vec<(String, Column, bool)> = candidates.collect();
    for name in names {
        let matching: Vec<_> = candidates.iter().filter(|(bare, ..)| bare == name).collect();
        let plain: Vec<_> = matching.iter().filter(|(_, _, is_plain)| *is_plain).collect();
        match (&*plain, &*matching) {
            ([(_, column, _)], _) | ([], [(_, column, _)]) => return Ok(Some(*column)),
            ([(_, column, _), (_, other, _), ..], _) => {
                let (name, other) = (&columns[column.at], &columns[other.at]);
                let choice = match name == other {
                    true => String::new(),
                    false => format!(", or choose it with --field FIELD='{name}'"),
                };
                bail!("the columns {name} and {other} name the same field: rename one{choice}");
            }
            ([], _) => {}
        }
    }
    Ok(None)
}

/// Returns the unread columns, each with advice if the column may be meant for a field. `sample`:
/// the first value of each column. `keep`, `driver`: names of columns that are read as attributes
/// and as the driver's id.
pub(super) fn unread(
    columns: &[String],
    sample: &[String],
    found: &[(&'static str, Column)],
    keep: &[String],
    driver: &str,
) -> Vec<String> {
    if keep.iter().any(|name| name == "*") {
        return Vec::new();
    }
    let is_read = |(at, name): &(usize, &String)| {
        found.iter().any(|(_, column)| column.at == *at) || keep.contains(name) || *name == driver
    };
    let other_columns = columns.iter().enumerate().filter(|column| !is_read(column));
    let value = |at: usize| sample.get(at).map_or("", String::as_str);
    let ts = found.iter().find(|(field, _)| *field == "ts").map_or("", |(_, ts)| value(ts.at));
    let (_, _, times) =
        FIELD_NAMES.iter().find(|(field, ..)| *field == "ts").expect("FIELD_NAMES has ts");
    let is_other_time = |at: usize, name: &str| {
        times.contains(&&*normalised(name)) && !["", ts].contains(&value(at))
    };
    let has_field = |field: &str| found.iter().any(|(name, _)| *name == field);
    let described = other_columns.map(|(at, name)| match suggested_column_field(name) {
        _ if is_other_time(at, name) => {
            format!("{name} (another time, {:.40}: --field ts='{name}' reads it)", value(at))
        }
        Some("heading") if is_magnetic(name) => {
            format!("{name} (from magnetic north, and headings are read from true north)")
        }
        _ if is_fraction_of_second(name) => {
            format!("{name} (a fraction of the time? join the two in one column)")
        }
        Some(field) if !has_field(field) => {
            format!("{name} (is it {field}? --field {field}='{name}')")
        }
        Some(_) | None => name.clone(),
    });
    described.collect()
}

/// Returns whether the columns hold a time in parts: year and day, date and hour, or the week of
/// GPS.
pub(super) fn has_split_date(columns: &[String]) -> bool {
    let has = |names: &[&str]| columns.iter().any(|column| names.contains(&&*normalised(column)));
    has(&["year", "yyyy", "yr"]) && has(&["day", "dd", "doy"])
        || has(&["date"]) && has(&["hour", "hh", "hr", "h"])
        || has(&["week", "gpsweek"])
}

/// Returns whether the name of a column says that it holds the fraction of a second.
fn is_fraction_of_second(name: &str) -> bool {
    const NAMES: [&str; 11] = [
        "ms",
        "msec",
        "msecs",
        "millis",
        "millisecond",
        "milliseconds",
        "hundredths",
        "centiseconds",
        "timemillisecond",
        "timemilliseconds",
        "timems",
    ];
    NAMES.contains(&&*normalised(name))
}

/// Returns the field that a column may be meant for. Compares the whole name, the part before a
/// bracket, comma or colon, and each word of that part with the names of the fields.
fn suggested_column_field(name: &str) -> Option<&'static str> {
    const FIELDS: [&str; 5] = ["speed", "heading", "alt", "acc", "seq"];
    let end = name.find(['(', '[', '{', ',', ':']).unwrap_or(name.len());
    let bare = name[..end].trim();
    // `GPS Date` differs from `GPS Lat` in two letters only. So for a name with `date` or `time`,
    // accept only `ts` as the similar field.
    let is_time = ["date", "time"].iter().any(|word| normalised(bare).contains(word));
    let suggested = [name, bare].into_iter().find_map(suggested_field);
    let by_word = || {
        let words = words(bare);
        FIELDS.into_iter().find(|field| words.iter().any(|word| is_name_of(field, word)))
    };
    let suggested = suggested.filter(|field| !is_time || *field == "ts");
    suggested.or_else(by_word).or_else(|| translated_field(bare))
}

/// Returns the columns of the date and the time of day if their names are in a language other than
/// English. An error message names them. `sample`: the first value of each column.
pub(super) fn date_and_time<'c>(
    columns: &'c [String],
    sample: &[String],
) -> Option<(&'c str, &'c str)> {
    let value = |at: usize| sample.get(at).map_or("", String::as_str);
    let find_column =
        |is_wanted: &dyn Fn(usize) -> bool| (0..columns.len()).find(|at| is_wanted(*at));
    let date = find_column(&|at| {
        is_date_in_other_language(&normalised(&columns[at])) && !value(at).contains(':')
    })?;
    let is_clock = |at| at != date && is_time_of_day(value(at));
    let time = find_column(&|at| is_clock(at) && translated_field(&columns[at]) == Some("ts"))?;
    Some((&columns[date], &columns[time]))
}

/// Returns a column whose name is similar to one of the field's names, for an error message.
pub(super) fn similar_column<'c>(columns: &'c [String], field: &str) -> Option<&'c str> {
    // The name must be a word of its own: `latency` and `plate` contain `lat`, too.
    let is_word =
        |word: &String| is_name_of(field, word.trim_end_matches(|c: char| c.is_ascii_digit()));
    let has_long_name = |name: &str| {
        let name = normalised(name);
        let names = FIELD_NAMES.iter().filter(|(name, ..)| *name == field);
        let mut names = names.flat_map(|(_, _, names)| *names);
        names.any(|usual| usual.len() > 6 && name.contains(usual))
    };
    let is_near = |name: &&String| {
        suggested_column_field(name) == Some(field)
            || words(name).iter().any(is_word)
            || has_long_name(name)
    };
    columns.iter().find(is_near).map(String::as_str)
}

/// Returns the values that mean "not available" in AIS (ITU-R M.1371), each after the index of its
/// field in [`formats::FIELDS`](milepost_decode::formats::FIELDS). They are 102.3 knots and a
/// course of 360.0 degrees (also in tenths, as 1,023 and 3,600), a heading of 511 degrees, and 91
/// and 181 degrees for lat and lng. Returns an empty list if the file is not AIS.
pub(super) fn ais_unavailable(
    found: &[(&'static str, Column)],
    columns: &[String],
) -> Vec<(usize, f64)> {
    let is_ais = columns.iter().any(|name| normalised(name).ends_with("mmsi"));
    let values = [
        ("speed", 3, 102.3),
        ("speed", 3, 1_023.0),
        ("heading", 4, 360.0),
        ("heading", 4, 511.0),
        ("heading", 4, 3_600.0),
        ("lat", 0, 91.0),
        ("lng", 1, 181.0),
    ];
    let has_field = |field: &str| found.iter().any(|(name, _)| *name == field);
    let used = values.into_iter().filter(|(field, ..)| is_ais && has_field(field));
    used.map(|(_, field_index, value)| (field_index, value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares `field=NAME[unit]` of each found column with `expected`.
    fn check(names: &str, sample: &str, expected: &str) {
        let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        let (columns, sample) = (list(names), list(sample));
        let found = match find(&columns, &sample, std::slice::from_ref(&sample), &[]) {
            Ok(found) => {
                let each = found.iter().map(|(field, column)| {
                    format!(
                        "{field}={}{}",
                        columns[column.at],
                        column.unit.map_or(String::new(), |unit| format!("[{unit}]"))
                    )
                });
                each.collect::<Vec<_>>().join(" ")
            }
            Err(why) => why.to_string(),
        };
        assert_eq!(found, expected, "{names}");
    }

    #[test]
    fn columns_are_found_by_their_names_and_units() {
        check("lat,lon,time", "1,2,3", "lat=lat lng=lon ts=time");
        check(
            "TIME,LATITUDE,N/S,LONGITUDE,E/W",
            "2026-01-01T00:00:00Z",
            "lat=LATITUDE lng=LONGITUDE lat_hemisphere=N/S lng_hemisphere=E/W ts=TIME",
        );
        check(
            "Latitude (deg),Longitude (deg),Time,Speed (km/h),alt_ft",
            "",
            "lat=Latitude (deg)[deg] lng=Longitude (deg)[deg] ts=Time speed=Speed (km/h)[km/h] \
             alt=alt_ft[ft]",
        );
        check(
            "latitudeE7,longitudeE7,timestamp",
            "",
            "lat=latitudeE7[1e-7 deg] lng=longitudeE7[1e-7 deg] ts=timestamp",
        );
        check("DATE,TIME,LAT,LON", "2026/11/24,10:12:47,1,2", "lat=LAT lng=LON ts=TIME date=DATE");
        check("DATE,TIME,LAT,LON", "x,2026-11-24T10:12:47Z,1,2", "lat=LAT lng=LON ts=TIME");
        check("date,time,lat,lon", "241126,101247.00,1,2", "lat=lat lng=lon ts=time date=date");
        check("Date,lat,lon", "2026-11-24 10:12:47,1,2", "lat=lat lng=lon ts=Date");
        // The column of a hemisphere may be named after its coordinate.
        check(
            "time,latitude,latitude_ref,longitude,longitude_ref",
            "x,33.5,S,70.5,W",
            "lat=latitude lng=longitude ts=time lat_hemisphere=latitude_ref \
             lng_hemisphere=longitude_ref",
        );
        check(
            "time,lat,column 3,lon,W",
            "x,33.5,south,70.5,WEST",
            "lat=lat lng=lon ts=time lat_hemisphere=column 3 lng_hemisphere=W",
        );
        check(
            "time,lat,lat_h,lon,EW",
            "x,33.5,S,70.5,W",
            "lat=lat lng=lon lng_hemisphere=EW ts=time lat_hemisphere=lat_h",
        );
        // A column that is named after its coordinate is read even if the other coordinate has no
        // hemisphere.
        check(
            "time,lat,lat_ref,lon",
            "x,33.5,S,-70.5",
            "lat=lat lng=lon ts=time lat_hemisphere=lat_ref",
        );
        check(
            "time,lat,lat_direction,lon,Longitude Indicator",
            "x,33.5,S,70.5,W",
            "lat=lat lng=lon ts=time lat_hemisphere=lat_direction \
             lng_hemisphere=Longitude Indicator",
        );
        // A column of directions is not a hemisphere.
        for (names, sample) in [
            ("time,lat,lon,wind", "x,33.5,70.5,N"),
            ("time,lat,lon,direction", "x,52.5,13.4,W"),
            ("direction,lat,lon,time", "S,52.5,13.4,x"),
            ("time,lat,lon,x", "x,52.5,13.4,w"),
            ("time,lat,lon,direction,wind", "x,52.5,13.4,W,N"),
            ("time,lat,lon,a,b,c", "x,52.5,13.4,W,N,S"),
            // Without a name that states a hemisphere, letters in two columns are not hemispheres.
            ("time,lat,lon,state,transport", "x,52.5,13.4,S,W"),
            ("time,lat,moving,lon,fuel", "x,52.5,N,13.4,E"),
            ("time,lat,lon,column 4,column 5", "x,52.5,13.4,S,W"),
            // In RTKLIB's files, `ns` is the number of satellites.
            ("time,lat,lon,ns,ew", "x,52.5,13.4,9,3"),
            // A column whose name contains `lat` or `lon` by chance is not a hemisphere.
            ("time,lon,lat,relative_wind", "x,13.4,52.5,S"),
            ("time,lon,lat,plate", "x,13.4,52.5,S"),
            ("platform,lat,lon,time", "S,52.5,13.4,x"),
            ("time,lat,lon,along", "x,52.5,13.4,W"),
        ] {
            check(names, sample, "lat=lat lng=lon ts=time");
        }
        check("time,lat,lon,alt", "x,deg,deg,ft", "lat=lat[deg] lng=lon[deg] ts=time alt=alt[ft]");
        check(
            "lat,latitude,lon,ts",
            "48.1,52.5,13.4,x",
            "columns lat (48.1) and latitude (52.5) name two places: say which with --field",
        );
        check("lat,latitude,lon,ts", "48.1,48.1,13.4,x", "lat=lat lng=lon ts=ts");
        // A name without a unit in words precedes a name with such a unit.
        for (names, read) in [
            ("lat,lon,ts,speed in km/h,speed", "speed=speed"),
            ("lat,lon,ts,heading (degrees true),heading", "heading=heading"),
            ("lat,lon,ts,Altitude (m a.s.l.)", "alt=Altitude (m a.s.l.)[m]"),
        ] {
            check(names, "", &format!("lat=lat lng=lon ts=ts {read}"));
        }
        check("lat,lon,ts,Alt (m HAE),Alt (m above WGS84)", "", "lat=lat lng=lon ts=ts");
        check("lat,lat,lon,ts", "", "the columns lat and lat name the same field: rename one");
        check(
            "Lat,LAT,lon,ts",
            "",
            "the columns Lat and LAT name the same field: rename one, or choose it with --field \
             FIELD='Lat'",
        );
        check("timestamp,time,lat,lon", "", "lat=lat lng=lon ts=timestamp");
        check(
            "location-lat,location-long,timestamp,ground-speed",
            "",
            "lat=location-lat lng=location-long ts=timestamp speed=ground-speed",
        );
    }

    #[test]
    fn coordinates_are_compared_within_a_row() {
        let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        let columns = list("lat,latitude,lon,ts");
        // Some rows have only one of the two latitudes, so the first values of the two columns are
        // from different rows.
        let rows = [list("48.1,,11.5,x"), list(",52.5,13.4,x"), list("52.6,52.6,13.4,x")];
        let sample = list("48.1,52.5,11.5,x");
        assert!(find(&columns, &sample, &rows, &[]).is_ok());
        let rows = [rows[0].clone(), list("48.1,52.5,11.5,x")];
        let why = find(&columns, &sample, &rows, &[]).unwrap_err().to_string();
        assert!(why.contains("lat (48.1) and latitude (52.5) name two places"), "{why}");
    }

    #[test]
    fn column_is_found_if_its_name_states_the_hemisphere() {
        for (names, expected) in [
            ("time,Latitude (N),Longitude (W)", "lat=Latitude (N) lng=Longitude (W) ts=time"),
            ("time,Latitude N,Longitude E", "lat=Latitude N lng=Longitude E ts=time"),
            ("time,Lat (°S),Lon (°W)", "lat=Lat (°S) lng=Lon (°W) ts=time"),
            ("time,LATITUDE_SOUTH,lat", "lat=lat ts=time"),
            ("time,LatN,LONW", "lat=LatN lng=LONW ts=time"),
        ] {
            check(names, "", expected);
        }
    }

    #[test]
    fn unread_time_is_listed_with_its_value() {
        let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        let columns = list("timestamp,gps_time,lat,lon,time");
        let sample = list("2026-11-24T18:00:00Z,2026-11-24T10:00:00Z,1,2,2026-11-24T18:00:00Z");
        let found = find(&columns, &sample, &[], &[]).unwrap();
        assert_eq!(
            unread(&columns, &sample, &found, &[], ""),
            [
                "gps_time (another time, 2026-11-24T10:00:00Z: --field ts='gps_time' reads it)",
                "time"
            ]
        );
    }
}
