//! Detects CSV files whose times are in a zone other than UTC. A file states this in the name or
//! the unit of a time column, in a comment, in the offset of another of its times, or in a column
//! that milepost does not read.

use std::borrow::Cow;

use jiff::tz::TimeZone;

use super::cities::{area_zone, ends_in_city, is_city_of_zone};
use super::names::{Column, normalised, words};
use super::seasons::{CLOCK_WORDS, FLAGS_OF_SUMMER_TIME, has_only_seasons, names_both_seasons};
use super::unix_columns::shifted_from_unix_time;
use super::values::{has_offset, is_instant};
use milepost_decode::{Local, PatternZone, Zone, is_unset, is_zone_in_other_language};

/// Checks the rows of a file whose columns state a zone.
#[derive(Debug)]
pub(super) struct ZoneCheck {
    ts: usize,
    /// Zone of times that do not state one, if `--zone` or the format names it.
    zone: Option<Zone>,
    /// The column of times or dates, or the comment, that states a zone.
    local: Option<String>,
    /// Columns that hold zones.
    zones: Vec<ZoneColumn>,
    /// The times are parsed by a pattern that does not state their offset.
    has_pattern: bool,
    /// A time with an offset other than that of UTC.
    shifted: Option<String>,
    /// The error message if an unread column of Unix times says that the times are not in UTC.
    unix: Option<String>,
}

/// A column that holds zones.
#[derive(Debug)]
struct ZoneColumn {
    at: usize,
    name: String,
    evidence: Evidence,
}

/// The reason why a column counts as a column of zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Evidence {
    /// The name says so.
    Name,
    /// The name may mean something else, so a value must look like a zone.
    Value,
    /// Like `Value`, but the value may also be a number of hours, minutes or seconds.
    ValueOrNumber,
    /// The name is that of a flag that states whether daylight saving time is in force.
    Flag,
    /// The name is that of a flag that states whether the times are in UTC.
    UtcFlag,
}

impl ZoneCheck {
    /// Returns the check of a file; `None` if the file needs none. `unit`: the value of
    /// `--unit ts=…`; `zone`: the zone of times that do not state one.
    pub(super) fn new(
        columns: &[String],
        comments: &[String],
        rows: &[Vec<String>],
        found: &[(&'static str, Column)],
        unit: Option<&str>,
        zone: Option<&Zone>,
    ) -> Option<Self> {
        let has_pattern = unit.is_some_and(|unit| unit.contains('%'));
        let is_zone_known = match unit {
            Some(pattern) if has_pattern => {
                Local::zone_of_pattern(pattern) == Some(PatternZone::Known)
            }
            Some(unit) => ["s", "ms", "us", "ns"].contains(&unit),
            None => false,
        };
        let (_, ts) = found.iter().find(|(field, _)| *field == "ts")?;
        let time_columns = || found.iter().filter(|(field, _)| matches!(*field, "ts" | "date"));
        let local = time_columns().find_map(|(_, column)| {
            let name = &columns[column.at];
            // A row of units may name the zone.
            let value = rows.first().and_then(|row| row.get(column.at));
            let local_unit = value.filter(|value| is_unit(value) && is_local_time(value));
            let from_unit = || local_unit.map(|unit| format!("{name} ({unit})"));
            let named = if is_local_time(name) { Some(name.clone()) } else { from_unit() };
            named.map(|name| format!("the column {name}"))
        });
        let comment = || comments.iter().find(|comment| states_zone(comment));
        let local = local.or_else(|| Some(format!("the comment \"{:.60}\"", comment()?)));
        let is_time = |at: usize| time_columns().any(|(_, column)| column.at == at);
        let other_columns = columns.iter().enumerate().filter(|(at, _)| !is_time(*at));
        let zones: Vec<_> = other_columns
            .filter_map(|(at, name)| {
                let evidence = evidence(name, at, rows)?;
                Some(ZoneColumn { at, name: name.clone(), evidence })
            })
            .collect();
        let times = rows.iter().filter_map(|row| row.get(ts.at));
        let shifted = times.filter(|_| !has_pattern).find(|time| is_shifted(time)).cloned();
        let pattern = unit.filter(|_| has_pattern);
        let unix = shifted_from_unix_time(columns, rows, found, pattern);
        let is_stated = local.is_some() || shifted.is_some() || unix.is_some();
        // Only a column that holds zones can contradict a given zone.
        let is_needed = !zones.is_empty() || zone.is_none() && is_stated;
        let zone = zone.cloned();
        let check = Self { ts: ts.at, zone, local, zones, has_pattern, shifted, unix };
        (is_needed && !is_zone_known).then_some(check)
    }

    /// Returns an error message if the time of a row has no zone, and the file states a zone that
    /// would be ignored. `value`: returns the row's value in a column.
    pub(super) fn fault<'v>(&self, value: impl Fn(usize) -> Cow<'v, str>) -> Option<String> {
        let time = value(self.ts);
        let time = time.trim();
        let has_digit = time.contains(|c: char| c.is_ascii_digit());
        if !has_digit || is_unit(time) || !self.has_pattern && is_instant(time) {
            return None;
        }
        if let Some(zone) = &self.zone {
            return self.zones.iter().find_map(|column| other_zone(column, zone, &value));
        }
        if let Some(place) = &self.local {
            return Some(format!(
                "its times are in a zone other than UTC, as {place} says: give --zone"
            ));
        }
        if let Some(shifted) = &self.shifted {
            return Some(format!(
                "its time {time:.40} has no offset, and others have one, such as {shifted:.40}: \
                 give --zone"
            ));
        }
        let from_column = self.zones.iter().find_map(|column| {
            let zone = value(column.at);
            let zone = zone.trim();
            // A value that means UTC is no other zone. But the `0` of a flag such as `is_utc` only
            // looks like UTC.
            let is_other = match column.evidence {
                Evidence::Name => true,
                Evidence::Value => is_time_zone(zone),
                Evidence::ValueOrNumber => is_time_zone(zone) || is_offset(zone),
                Evidence::Flag => is_set(zone),
                Evidence::UtcFlag => is_unset(zone),
            } && (column.evidence == Evidence::UtcFlag || !is_utc(zone));
            is_other.then(|| {
                format!(
                    "its times have no zone, and its column {}, which is not read, says {zone}: \
                     give --zone",
                    column.name
                )
            })
        });
        from_column.or_else(|| self.unix.clone())
    }
}

/// Returns an error message if a column names another zone of the IANA database than `given`.
fn other_zone<'v>(
    column: &ZoneColumn,
    given: &Zone,
    value: impl Fn(usize) -> Cow<'v, str>,
) -> Option<String> {
    let zone = value(column.at);
    let zone = zone.trim();
    has_other_clock(zone, given).then(|| {
        format!(
            "its column {}, which is not read, says {zone}, and the zone of its times is given as \
             {}: import the rows of each zone on their own",
            column.name,
            given.name()
        )
    })
}

/// Returns whether a value names a zone of the IANA database whose clock differs from that of
/// `given`, in winter or in summer. Returns `false` if `given` is a fixed offset, because the
/// operator chose it on purpose.
pub(super) fn has_other_clock(value: &str, given: &Zone) -> bool {
    let zones = area_zone(value).zip(area_zone(given.name()));
    let differ = |(stated, given): (TimeZone, TimeZone)| {
        ["2026-01-15T12:00:00Z", "2026-07-15T12:00:00Z"].iter().any(|time| {
            let time: Option<jiff::Timestamp> = time.parse().ok();
            time.is_some_and(|time| stated.to_offset(time) != given.to_offset(time))
        })
    };
    zones.is_some_and(differ)
}

/// Returns whether a value states a zone other than UTC: `Europe/Berlin`, `CET`, `+01:00`, `3600`
/// or `local`.
pub(super) fn is_other_than_utc(value: &str) -> bool {
    let is_zone = is_time_zone(value) || is_offset(value) || value.eq_ignore_ascii_case("local");
    is_zone && !is_utc(value)
}

/// Returns whether a value of a column of times is the column's unit, such as `local`, `CET` or
/// `GMT+1`, and not a time. A unit has no digit, or is an offset.
pub(super) fn is_unit(value: &str) -> bool {
    let begins =
        |mark: &&str| value.get(..mark.len()).is_some_and(|v| v.eq_ignore_ascii_case(mark));
    !value.contains(|c: char| c.is_ascii_digit())
        || value.len() <= 10 && ["utc", "gmt", "+", "(", "["].iter().any(begins)
}

/// Returns whether a time has an offset other than that of UTC.
pub(super) fn is_shifted(time: &str) -> bool {
    let offset = time.rfind(['+', '-']).map_or("", |at| &time[at + 1..]);
    let is_offset = offset.chars().all(|c| c.is_ascii_digit() || c == ':')
        && offset.contains(|c: char| matches!(c, '1'..='9'));
    has_offset(time) && is_offset || time.ends_with(']') && !time.ends_with("[UTC]")
}

/// Returns why a column counts as a column of zones; `None` if it does not.
fn evidence(name: &str, at: usize, rows: &[Vec<String>]) -> Option<Evidence> {
    const NAMES: [&str; 4] = ["tzname", "tzid", "tzoffset", "tzinfo"];
    const PARTS: [&str; 7] =
        ["timezone", "utcoffset", "utcofst", "utcdiff", "gmtoffset", "gmtofst", "gmtdiff"];
    const OF_TIME: [&str; 12] = [
        "time", "zone", "local", "utc", "gmt", "dst", "clock", "minutes", "hours", "hour", "hrs",
        "h",
    ];
    let words = words(name);
    let has_word = |wanted: &str| words.iter().any(|word| word == wanted);
    let whole = normalised(name);
    if has_word("tz")
        || NAMES.contains(&&*whole)
        || PARTS.iter().any(|part| whole.contains(part))
        || is_zone_in_other_language(&whole)
    {
        return Some(Evidence::Name);
    }
    // A column `zone` may hold areas of a town, and a column `offset` positions in a recording.
    if whole == "zone" {
        return Some(Evidence::Value);
    }
    const OFFSETS: [&str; 7] =
        ["offset", "gmt", "desfase", "décalage", "decalage", "zeitverschiebung", "fuso"];
    if OFFSETS.contains(&&*whole) || words.iter().any(|word| word.starts_with("tz")) {
        return Some(Evidence::ValueOrNumber);
    }
    let values = || {
        let values = rows.iter().filter_map(|row| row.get(at)).map(|value| value.trim());
        values.filter(|value| !value.is_empty())
    };
    let without_apostrophes = whole.replace(['\'', '’'], "");
    if CLOCK_WORDS.iter().any(|word| has_word(word))
        && (names_both_seasons(&words) || has_only_seasons(values()))
    {
        return Some(Evidence::Name);
    }
    if FLAGS_OF_SUMMER_TIME.contains(&&*without_apostrophes) {
        let are_flags = values().all(|value| is_set(value) || is_unset(value));
        return are_flags.then_some(Evidence::Flag);
    }
    if matches!(&*whole, "utc" | "isutc" | "timeisutc" | "timeutc") {
        let are_flags = values().all(|value| is_set(value) || is_unset(value));
        // A number under `utc` may be an offset, such as 0.
        let may_be_offset = !whole.contains("is") && values().any(is_offset);
        return (are_flags && !may_be_offset).then_some(Evidence::UtcFlag);
    }
    // A column such as `time offset` may instead hold the time since the start of a recording. That
    // time differs from row to row; the offset of a zone has at most two values in a file.
    if has_word("offset") && OF_TIME.iter().any(|word| has_word(word)) {
        let first = values().next();
        let mut others = values().filter(|value| Some(*value) != first);
        let second = others.next();
        let has_few = others.all(|value| Some(value) == second);
        let are_offsets = values().all(|value| is_time_zone(value) || is_offset(value));
        return (has_few && are_offsets).then_some(Evidence::ValueOrNumber);
    }
    let is_shifted = |value: &str| {
        let offset = ["UTC", "GMT"].iter().find_map(|zone| value.strip_prefix(zone));
        offset.is_some_and(|offset| offset.starts_with(['+', '-']) && is_other_than_utc(offset))
    };
    let is_zone =
        |value: &str| is_clock_offset(value) || is_shifted(value) || area_zone(value).is_some();
    // Test the first value first: it rules out most columns, so that few values are looked up in
    // the list of zones.
    let are_zones = values().next().is_some_and(is_zone) && values().all(is_zone);
    are_zones.then_some(Evidence::Value)
}

/// Returns whether a value is an offset such as `+01:00`.
fn is_clock_offset(value: &str) -> bool {
    let number = |text: &str| text.parse::<u8>().ok().filter(|_| text.len() == 2);
    let offset = value.strip_prefix(['+', '-']).and_then(|value| value.split_once(':'));
    offset.is_some_and(|(hours, minutes)| {
        number(hours).is_some_and(|hours| hours <= 14)
            && number(minutes).is_some_and(|minutes| minutes % 15 == 0 && minutes < 60)
    })
}

/// Returns whether a value is that of a set flag, such as `1` or `yes`.
fn is_set(value: &str) -> bool {
    const WORDS: [&str; 14] =
        ["1", "y", "yes", "true", "t", "dst", "ja", "oui", "vrai", "si", "sí", "sim", "да", "是"];
    value.len() <= 8 && WORDS.contains(&&*value.to_lowercase())
}

/// Returns whether the value of a column of zones is UTC or empty.
pub(super) fn is_utc(zone: &str) -> bool {
    let zone = zone.to_ascii_lowercase();
    let zone = zone.strip_prefix("etc/").unwrap_or(&zone);
    let without_utc = ["utc", "gmt", "z"].iter().find_map(|name| zone.strip_prefix(name));
    without_utc.unwrap_or(zone).chars().all(|c| matches!(c, '0' | '+' | '-' | ':' | '.'))
}

/// Returns whether a value looks like a time zone: `Europe/Berlin`, `+01:00`, `UTC+1` or `CET`.
fn is_time_zone(value: &str) -> bool {
    let has_letters = value.starts_with(|c: char| c.is_ascii_uppercase());
    value.starts_with(['+', '-'])
        || has_letters && (value.contains('/') || value.contains(['+', '-']))
        || (3..=5).contains(&value.len()) && value.bytes().all(|b| b.is_ascii_uppercase())
}

/// Returns whether a value may be the offset of a zone: a number of hours, minutes or seconds, or
/// `hh:mm`.
fn is_offset(value: &str) -> bool {
    let number: Option<f64> = value.replace(',', ".").parse().ok();
    let is_multiple =
        |number: f64, step: f64, max: f64| number % step == 0.0 && number.abs() <= max;
    let is_offset = |number: f64| {
        // Below 2.5 hours, the offset of every zone is a whole number of hours.
        let may_be_hours = number.fract() == 0.0 || number.abs() >= 2.5;
        is_multiple(number, 0.25, 14.0) && may_be_hours
            || is_multiple(number, 15.0, 840.0)
            || is_multiple(number, 900.0, 50_400.0)
    };
    number.map_or_else(|| value.len() == 5 && value.as_bytes()[2] == b':', is_offset)
}

/// Abbreviations of zones other than UTC, and words that say that a time is local.
const LOCAL_WORDS: [&str; 48] = [
    "lcl",
    "cet",
    "cest",
    "mez",
    "mesz",
    "eet",
    "eest",
    "est",
    "edt",
    "cst",
    "cdt",
    "mst",
    "mdt",
    "pst",
    "pdt",
    "akst",
    "akdt",
    "bst",
    "ist",
    "jst",
    "kst",
    "msk",
    "aest",
    "aedt",
    "acst",
    "acdt",
    "awst",
    "nzst",
    "nzdt",
    "sast",
    "sgt",
    "hkt",
    "brt",
    "brst",
    "wib",
    "wita",
    "ortszeit",
    "eastern",
    "central",
    "mountain",
    "pacific",
    "clst",
    "sommerzeit",
    "winterzeit",
    "hiver",
    "été",
    "zomertijd",
    "wintertijd",
];
/// Abbreviations of zones that often mean something else. They count only in brackets.
const IN_BRACKETS: [&str; 9] = ["art", "cat", "eat", "hst", "ict", "pkt", "wat", "west", "wet"];

/// Returns whether the name of a column, or its unit, states that its times are local or in a zone
/// other than UTC.
fn is_local_time(name: &str) -> bool {
    let words = words(name);
    let is_local = |word: &str| {
        // Exclude `localisation`, which means a place.
        let begins = ["local", "lokal"].iter().any(|local| word.starts_with(local));
        begins && !word.starts_with("locali") && !word.starts_with("lokali")
    };
    let has_digit = |text: &str| text.contains(|c: char| matches!(c, '1'..='9'));
    let is_shifted = |word: &str| {
        let offset = ["utc", "gmt"].iter().find_map(|zone| word.strip_prefix(zone));
        let offset = offset.or_else(|| Some(word).filter(|word| word.starts_with(['+', '-'])));
        offset.is_some_and(|offset| {
            has_digit(offset) && offset.chars().all(|c| c.is_ascii_digit() || "+-".contains(c))
        })
    };
    // These words may be parts of longer ones, and in Chinese and Japanese no spaces surround them.
    const PARTS: [&str; 9] =
        ["日本時間", "本地", "当地", "當地", "北京", "местн", "мск", "brasilia", "brasília"];
    let lower = name.to_lowercase();
    let in_brackets = name.rsplit_once(['(', '[']).map_or("", |(_, inner)| inner);
    let inner = in_brackets.trim_matches([')', ']', ' ']);
    words.iter().any(|word| LOCAL_WORDS.contains(&&**word) || is_local(word) || is_shifted(word))
        || PARTS.iter().any(|part| lower.contains(part))
        || IN_BRACKETS.contains(&&*inner.to_lowercase())
        || area_zone(inner).is_some()
        || is_city_of_zone(inner)
        || ends_in_city(name)
        || name.split([' ', '(', '[', ')', ']']).any(|word| area_zone(word).is_some())
}

/// Returns whether a comment above the names of the columns states that the times are local, or in
/// a zone other than UTC: `times are in EST`, `timezone: Europe/Berlin`, `UTC+2`.
///
/// Other comments name places, persons and the time of an export. So a comment counts only in one
/// of these cases:
/// - It consists of nothing but a zone.
/// - It has a word for zones, or the word `Ortszeit`.
/// - It has a word for times, and no date.
///
/// A number without `UTC` or `GMT` is an offset only if its clause is about times: antennas have
/// offsets, too.
pub(super) fn states_zone(comment: &str) -> bool {
    const ZONE_WORDS: [&str; 7] =
        ["tz", "timezone", "zone", "zeitzone", "tzname", "utcoffset", "huso"];
    const TIME_WORDS: [&str; 14] = [
        "time",
        "times",
        "timestamp",
        "timestamps",
        "clock",
        "utc",
        "gmt",
        "zeit",
        "zeiten",
        "uhrzeit",
        "heure",
        "heures",
        "hora",
        "horas",
    ];
    let lower = comment.to_ascii_lowercase();
    // If UTC is named first, ignore the text from `local` on: in `times in UTC (local time is
    // UTC+2)`, that text is not about the times of the file.
    let local_at = ["local", "lokal"].iter().find_map(|word| lower.find(word));
    let comment = match local_at.map(|at| &comment[..at]) {
        Some(before) if names_utc(before) => before,
        Some(_) | None => comment,
    };
    let words_of_all = words(comment);
    let has_in =
        |words: &[String], wanted: &[&str]| words.iter().any(|word| wanted.contains(&&**word));
    let has = |wanted: &[&str]| has_in(&words_of_all, wanted);
    let is_abbreviation = |word: &str| {
        let is_upper = word.chars().all(char::is_uppercase);
        is_upper && LOCAL_WORDS.contains(&&*word.to_lowercase())
    };
    let parts = || parts_of(comment);
    let is_shifted = |part: &str| {
        let lower = part.to_lowercase();
        let offset = ["utc", "gmt"].iter().find_map(|zone| lower.strip_prefix(zone));
        let offset = offset.filter(|offset| !offset.is_empty()).unwrap_or(&lower);
        let is_offset = offset.starts_with(['+', '-', '±', '−'])
            && offset.contains(|c: char| matches!(c, '1'..='9'))
            && offset.chars().skip(1).all(|c| c.is_ascii_digit() || c == ':');
        is_offset && offset.len() <= 7
    };
    let has_local_time = || {
        let is_local = |word: &String| ["local", "lokal", "lokale", "locale"].contains(&&**word);
        words_of_all.iter().any(is_local) || has(&["ortszeit"])
    };
    let names_zone =
        |part: &str| is_abbreviation(part) || area_zone(part.trim_end_matches('.')).is_some();
    let has_zone_word = has(&ZONE_WORDS) || has(&["offset"]) && has(&TIME_WORDS);
    let is_alone = parts().count() == 1 && parts().any(|part| names_zone(part) || is_shifted(part));
    let has_date = parts().any(|part| {
        let digits = part.bytes().filter(u8::is_ascii_digit).count();
        digits >= 6 && part.contains(['-', '/', '.'])
    });
    if is_alone || has_zone_word || has(&TIME_WORDS) && !has_date {
        // `UTC +2` and `UTC offset: 7200` are not UTC; `UTC, not local time` is.
        let has_shift = |clause: &str| {
            let words = words(clause);
            let has_offset_word = has_in(&words, &["offset", "utcoffset"]);
            let is_of_time = is_alone
                || has_in(&words, &ZONE_WORDS)
                || has_in(&words, &TIME_WORDS)
                || words.first().is_some_and(|word| word == "offset");
            let has_unit = |part: &str| part.starts_with(char::is_alphabetic);
            let last = || parts_of(clause).next_back().filter(|last| *last != "0");
            parts_of(clause).any(|part| is_shifted(part) && (is_of_time || has_unit(part)))
                || is_of_time && has_offset_word && last().is_some_and(is_offset)
        };
        return comment.split([',', ';']).any(has_shift)
            || !names_utc(comment)
                && (parts().any(names_zone) || names_region(comment) || has_local_time());
    }
    has(&["ortszeit"])
}

/// Splits a comment into its words, as written. A sign belongs to its word.
fn parts_of(comment: &str) -> impl DoubleEndedIterator<Item = &str> {
    let is_mark = |c: char| c.is_whitespace() || ",;:=()[]\"'".contains(c);
    comment.split(is_mark).filter(|part| !part.is_empty())
}

/// Returns whether a comment names UTC as a zone. `UTC offset` and `not UTC` do not name it.
fn names_utc(comment: &str) -> bool {
    let parts: Vec<&str> = parts_of(comment).collect();
    parts.iter().enumerate().any(|(at, part)| {
        let is_next = |word: &str| parts.get(at + 1).is_some_and(|n| n.eq_ignore_ascii_case(word));
        let is_negated = at > 0 && parts[at - 1].eq_ignore_ascii_case("not");
        let is_zone = part.contains(char::is_alphabetic) && is_utc(part);
        is_zone && !is_negated && !is_next("offset") && !is_next("difference")
    })
}

/// Returns whether a comment names a zone of North America or Europe by its words, in upper or
/// lower case: `Eastern Standard Time`, `times are Pacific`. `lap times in Central Park` names
/// none.
fn names_region(comment: &str) -> bool {
    const REGIONS: [&str; 4] = ["eastern", "central", "mountain", "pacific"];
    const AFTER: [&str; 5] = ["time", "times", "standard", "daylight", "summer"];
    const BEFORE: [&str; 5] = ["time", "times", "timestamp", "timestamps", "clock"];
    comment.replace("U.S.", "US").split([',', ';', '.', ')', ']']).any(|clause| {
        let words = words(clause);
        (0..words.len()).filter(|at| REGIONS.contains(&&*words[*at])).any(|at| {
            let is_between = |word: &&String| ["us", "usa", "in", "are", "is"].contains(&&***word);
            let before = words[..at].iter().rev().find(|word| !is_between(word));
            match words[at + 1..].iter().find(|word| *word != "european") {
                Some(after) => AFTER.contains(&&**after),
                None => before.is_some_and(|word| BEFORE.contains(&&**word)),
            }
        })
    })
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
            ("time (北京时间),lat", "2026-11-24 10:00:00,1", "says: give --zone"),
            ("time (МСК),lat", "2026-11-24 10:00:00,1", "says: give --zone"),
            ("time (Brasília),lat", "2026-11-24 10:00:00,1", "says: give --zone"),
            ("time (Paris),lat", "2026-11-24 10:00:00,1", "says: give --zone"),
            ("time (New York),lat", "2026-11-24 10:00:00,1", "says: give --zone"),
            ("time (日本時間),lat", "2026-11-24 10:00:00,1", "says: give --zone"),
            ("time (GPS),lat", "2026-11-24 10:00:00,1", ""),
            ("time (start),lat", "2026-11-24 10:00:00,1", ""),
            ("time (UTC),lat", "2026-11-24 10:00:00,1", ""),
            ("time,fuso orario", "2026-11-24 10:00:00,+1", "column fuso orario, which is not read"),
            ("time,Tijdzone", "2026-11-24 10:00:00,CET", "column Tijdzone, which is not read"),
            ("time,strefa czasowa", "2026-11-24 10:00:00,UTC", ""),
            ("time,décalage", "2026-11-24 10:00:00,+1", "column décalage, which is not read"),
            ("time,fuso", "2026-11-24 10:00:00,-3", "column fuso, which is not read, says -3"),
            ("time,x", "2026-11-24 10:00:00,UTC+8", "column x, which is not read, says UTC+8"),
            ("time,x", "2026-11-24 10:00:00,UTC", ""),
            ("time,décalage", "2026-11-24 10:00:00,0", ""),
            ("time,décalage", "2026-11-24T10:00:00Z,+1", ""),
            ("time,Heure d'été", "2026-07-24 10:00:00,oui", "Heure d'été, which is not read, says"),
            ("time,Heure d'hiver", "2026-11-24 10:00:00,oui", "says oui: give --zone"),
            ("time,Heure d'hiver/été", "2026-11-24 10:00:00,H", "says H: give --zone"),
            ("time,Sommerzeit", "2026-07-24 10:00:00,ja", "says ja: give --zone"),
            ("time,Zeit", "2026-11-24 10:00:00,Winterzeit", "says Winterzeit: give --zone"),
            ("time,hora", "2026-11-24 10:00:00,verano", "says verano: give --zone"),
            ("time (heure d'hiver),x", "2026-11-24 10:00:00,1", "says: give --zone"),
            ("Datum time (Sommerzeit),x", "2026-07-24 10:00:00,1", "says: give --zone"),
            ("time,Heure d'été", "2026-11-24 10:00:00,non", ""),
            ("time,Heure d'été", "2026-11-24T10:00:00Z,oui", ""),
            ("time,saison", "2026-11-24 10:00:00,hiver", ""),
            ("time,reifen", "2026-11-24 10:00:00,Winter", ""),
            ("time,hora", "2026-11-24 10:00:00,10:00", ""),
            ("time,driving_time_class", "2026-11-24 10:00:00,long", ""),
        ] {
            let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
            let (columns, sample) = (list(names), list(row));
            let at = columns.iter().position(|name| name.to_lowercase().contains("time"));
            let ts = ("ts", Column { at: at.unwrap(), unit: None });
            let rows = std::slice::from_ref(&sample);
            let check = ZoneCheck::new(&columns, &[], rows, &[ts], None, None);
            let why = check.and_then(|check| check.fault(|at| sample[at].as_str().into()));
            let why = why.unwrap_or_default();
            assert!(
                why.contains(message) && why.is_empty() == message.is_empty(),
                "{names}: {why}"
            );
        }
    }

    #[test]
    fn comment_states_a_zone_only_if_it_is_about_times() {
        for comment in [
            "times are in EST",
            "timezone: Europe/Berlin",
            "TZ=CET",
            "UTC+2",
            "Europe/Berlin",
            "Time zone: UTC +02:00",
            "all timestamps local",
            "local time",
            "Zeitzone: MEZ",
            "utc_offset: 2",
            "UTC offset = 7200",
            "Exported 2026-11-26 10:00, time zone CET",
            "time in GMT-5",
            "timestamps (America/New_York)",
            "Times are Eastern Standard Time",
            "all times US Pacific",
            "all times (U.S. Pacific)",
            "times in pacific daylight time",
            "Time: Central European Summer Time",
            "Times are Mountain. Distances are miles",
            "times are local, not UTC",
            "local time = UTC +2",
            "UTC offset of the local time: +2",
            "timezone: UTC, offset: +1",
            "Exported 2026-11-26, UTC offset +2",
            "antenna offset 2 m, times in EST",
        ] {
            assert!(states_zone(comment), "{comment}");
        }
        for comment in [
            "all times UTC",
            "times are UTC, not local time",
            "timezone: UTC",
            "UTC offset: 0",
            "UTC+0",
            "tz=Etc/UTC",
            "Exported on 2026-11-26 10:00:00 CET",
            "created 2026-11-26T10:00:00+01:00",
            "Device: Mountain Bike, EST 1987",
            "best of west central",
            "time, place and speed of the eastern fleet",
            "start time 10:00, est. duration 2 h",
            "speed limit zone: 30",
            "local group of drivers",
            "antenna offset 1.5 m",
            "geoid offset -34 m",
            "antenna offset: 2",
            "times UTC, antenna offset: 2",
            "geoid offset -9 m, time in seconds",
            "times in UTC (local time is UTC+2)",
            "times are UTC, not Eastern time",
            "lap times in Central Park",
            "driving times of the Pacific fleet",
            "time, place and speed of the eastern region",
            "",
        ] {
            assert!(!states_zone(comment), "{comment}");
        }
    }
}
