//! Parses times as strings: with an offset, or in a zone that the configuration names.
//!
//! Guarantee: a string stands for one instant, or is rejected. milepost never guesses
//!
//! - the order of day, month and year, as in `03/04/2026`;
//! - the instant of a time that a clock change skips or repeats;
//! - a missing zone.

use jiff::ZonedDateTime;
use jiff::civil::{Date, DateTime, Time};
use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};

use super::date_words::{
    explain_scale, in_english, is_abbreviation, month, numeric_date, split_weekday, zone_example,
};
use super::notations::{check_weekday, explain_spreadsheet, with_meridiem_at_end, without_remark};
use super::patterns::{conversion_end, has_open_fraction, patterns, with_leading_zero};
use crate::position::Timestamp;

/// A time zone: one of IANA's database such as `Europe/Berlin`, or a fixed offset.
#[derive(Debug, Clone, PartialEq)]
pub struct Zone {
    name: String,
    zone: TimeZone,
}

impl Zone {
    /// Parses a zone.
    ///
    /// # Errors
    /// The name is neither an offset nor a zone of the database.
    pub fn new(name: &str) -> Result<Self, String> {
        let invalid =
            || format!("\"{name}\": must be a zone such as Europe/Berlin, or +02:00, or Z");
        let zone = match parse_offset(name) {
            Some(seconds) => TimeZone::fixed(Offset::from_seconds(seconds).map_err(|_| invalid())?),
            None => TimeZone::get(name).map_err(|_| invalid())?,
        };
        Ok(Self { name: name.to_owned(), zone })
    }

    pub fn utc() -> Self {
        Self { name: "Z".to_owned(), zone: TimeZone::UTC }
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn time_zone(&self) -> &TimeZone {
        &self.zone
    }

    /// Returns the instant of a time in this zone.
    ///
    /// # Errors
    /// A clock change skips or repeats the time.
    fn unix_ms(&self, time: DateTime) -> Result<i64, String> {
        let instants = self.zone.to_ambiguous_timestamp(time);
        let name = &self.name;
        match instants.offset() {
            AmbiguousOffset::Unambiguous { .. } => instants
                .unambiguous()
                .map(jiff::Timestamp::as_millisecond)
                .map_err(|error| error.to_string()),
            AmbiguousOffset::Gap { .. } => {
                Err(format!("{time} does not exist in {name}: the clocks go forward over it"))
            }
            AmbiguousOffset::Fold { .. } => Err(format!(
                "{time} happens twice in {name}, when the clocks go back: send it with its offset"
            )),
        }
    }

    /// Checks that the zone's offset is `seconds` at the instant `ms`, in Unix milliseconds.
    /// Returns the instant.
    fn check_offset(&self, ms: i64, seconds: i32) -> Result<i64, String> {
        let at = jiff::Timestamp::from_millisecond(ms).map_err(|error| error.to_string())?;
        let offset = self.zone.to_offset(at);
        if offset.seconds() == seconds {
            Ok(ms)
        } else {
            Err(format!("the offset of {} is {offset} then: which is right?", self.name))
        }
    }

    /// Returns the instant of a time with an abbreviation such as EST, if the zone uses the
    /// abbreviation at this time. If a clock change repeats the hour, the abbreviation selects one
    /// of the two instants.
    fn unix_ms_by_abbreviation(&self, time: DateTime, abbreviation: &str) -> Option<i64> {
        let abbreviation = in_english(abbreviation);
        let offsets = match self.zone.to_ambiguous_timestamp(time).offset() {
            AmbiguousOffset::Unambiguous { offset } => [offset; 2],
            AmbiguousOffset::Fold { before, after } => [before, after],
            AmbiguousOffset::Gap { .. } => return None,
        };
        let times = offsets.into_iter().filter_map(|offset| offset.to_timestamp(time).ok());
        let has_abbreviation =
            |at: &jiff::Timestamp| self.zone.to_offset_info(*at).abbreviation() == abbreviation;
        times.clone().find(has_abbreviation).map(jiff::Timestamp::as_millisecond)
    }
}

/// Parser of times as strings, for a source or a file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Local {
    /// Zone of times without an offset; `None`: such times are rejected.
    pub zone: Option<Zone>,
    /// Pattern of strftime, such as `%d/%m/%Y %H:%M:%S`; `None`: only unambiguous forms are parsed.
    pub pattern: Option<String>,
}

impl Local {
    /// Returns the names of the zone and the pattern.
    pub(super) fn stable_description(&self) -> String {
        format!("{:?}", (self.zone.as_ref().map(Zone::name), &self.pattern))
    }

    /// Parses a time into Unix milliseconds.
    ///
    /// # Errors
    /// The text is not a time of day with a date and a zone.
    pub fn unix_ms(&self, text: &str) -> Result<i64, String> {
        let text = text.trim();
        if let Some(pattern) = &self.pattern {
            return self.parse_by_pattern(text, pattern);
        }
        if let Some(time) = rfc3339(text) {
            return Ok(time.unix_ms());
        }
        // .NET's JSON: milliseconds in UTC. An offset after them does not change the instant.
        if let Some(rest) = text.strip_prefix("/Date(").and_then(|rest| rest.strip_suffix(")/")) {
            // The first character may be the minus of the milliseconds.
            let offset_at = rest.get(1..).and_then(|after| after.find(['+', '-']));
            let ms = offset_at.map_or(rest, |at| &rest[..=at]);
            return ms.parse().map_err(|_| explain_unparsed(text));
        }
        // RFC 9557: a time with its zone in brackets. If the time has an offset, the zone must have
        // the same offset at that time. `Z` does not state an offset.
        if let Some((time, zone)) = text.strip_suffix(']').and_then(|text| text.split_once('[')) {
            let zone = Zone::new(zone.trim_start_matches('!'))?;
            let ms = Self { zone: Some(zone.clone()), pattern: None }.unix_ms(time)?;
            return match chrono::DateTime::parse_from_rfc3339(time) {
                Ok(stated) if !time.ends_with(['Z', 'z']) => {
                    zone.check_offset(ms, stated.offset().local_minus_utc())
                }
                Ok(_) | Err(_) => Ok(ms),
            };
        }
        let (stated_weekday, text) = split_weekday(text);
        let numeric = numeric_date(text);
        let text = &*with_meridiem_at_end(numeric.as_deref().unwrap_or(text));
        let (date, clock) = split_date_and_clock(text).ok_or_else(|| explain_unparsed(text))?;
        let Clock { time, next_second, zone } =
            parse_clock(clock).ok_or_else(|| explain_unparsed(text))?;
        let date = parse_date(date).map_err(|why| ask_for_order(text).unwrap_or(why))?;
        check_weekday(date, stated_weekday)?;
        let time = DateTime::from_parts(date, time);
        let ms = match zone {
            Some(stated) => self.in_stated_zone(time, &stated)?,
            None => self.in_default_zone(time)?,
        };
        Ok(ms + if next_second { 1_000 } else { 0 })
    }

    /// Returns the instant of a time in the zone that the string states after it.
    fn in_stated_zone(&self, time: DateTime, stated: &StatedZone<'_>) -> Result<i64, String> {
        match *stated {
            StatedZone::Offset(seconds) => Offset::from_seconds(seconds)
                .and_then(|offset| offset.to_timestamp(time))
                .map(jiff::Timestamp::as_millisecond)
                .map_err(|error| error.to_string()),
            StatedZone::Abbreviation(name) => {
                let zone = self.zone.as_ref();
                zone.and_then(|zone| zone.unix_ms_by_abbreviation(time, name)).ok_or_else(|| {
                    let example = zone_example(name);
                    let why = match zone.filter(|zone| zone.zone != TimeZone::UTC) {
                        Some(zone) => format!("{} is not called {name} at {time}", zone.name),
                        None => format!("more than one zone is called {name}"),
                    };
                    explain_scale(name)
                        .unwrap_or_else(|| format!("{why}: {NAME_THE_ZONE}{example}"))
                })
            }
        }
    }

    /// Returns the instant of a time whose string states no zone.
    fn in_default_zone(&self, time: DateTime) -> Result<i64, String> {
        let zone =
            self.zone.as_ref().ok_or_else(|| format!("{time} has no zone: {NAME_THE_ZONE}"))?;
        zone.unix_ms(time)
    }

    /// Parses a time by a pattern into Unix milliseconds.
    fn parse_by_pattern(&self, text: &str, pattern: &str) -> Result<i64, String> {
        let invalid = |error: jiff::Error| format!("\"{text}\" is not {pattern}: {error}");
        let text = &*with_leading_zero(text, pattern)?;
        let parts = BrokenDownTime::parse(pattern, text).map_err(invalid)?;
        if parts.offset().is_some() || parts.timestamp().is_some() {
            return parts.to_timestamp().map(jiff::Timestamp::as_millisecond).map_err(invalid);
        }
        let time = parts.to_datetime().map_err(invalid)?;
        if let Some(name) = parts.iana_time_zone() {
            return Zone::new(name)?.unix_ms(time);
        }
        match zone_in_pattern(pattern) {
            Some(stated) => self.in_stated_zone(time, &stated),
            None => self.in_default_zone(time),
        }
    }

    /// Checks a pattern, and returns it.
    ///
    /// # Errors
    /// The pattern is not one of strftime, lacks a date or a time of day, or would hide a lost
    /// leading zero.
    pub fn check_pattern(pattern: &str) -> Result<String, String> {
        let invalid = |error: jiff::Error| format!("\"{pattern}\": {error}");
        if has_open_fraction(pattern) {
            return Err(format!(
                "\"{pattern}\": %f or %N after digits reads any number of digits, and would hide a \
                 lost leading zero: write %3f for milliseconds, %2f for hundredths, %6f or %9f"
            ));
        }
        let (example, parts) = round_trip_example(pattern).map_err(invalid)?;
        let is_complete = if parts.offset().is_some() || parts.timestamp().is_some() {
            parts.to_timestamp().map_err(invalid)? == example.timestamp()
        } else {
            // The zone that the pattern states does not matter here.
            parts.to_datetime().map_err(invalid)? == example.datetime()
        };
        if is_complete {
            Ok(pattern.to_owned())
        } else {
            Err(format!(
                "\"{pattern}\": must contain a date and a time, such as \"%d/%m/%Y %H:%M:%S\""
            ))
        }
    }

    /// Returns the zone that a pattern states; `None` if it states none, or is invalid.
    #[must_use]
    pub fn zone_of_pattern(pattern: &str) -> Option<PatternZone<'_>> {
        let (_, parts) = round_trip_example(pattern).ok()?;
        if parts.offset().is_some()
            || parts.timestamp().is_some()
            || parts.iana_time_zone().is_some()
        {
            return Some(PatternZone::Known);
        }
        Some(match zone_in_pattern(pattern)? {
            StatedZone::Offset(_) => PatternZone::Known,
            StatedZone::Abbreviation(letters) => PatternZone::Letters(letters),
        })
    }
}

/// The zone that a pattern states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatternZone<'p> {
    /// Each time is one instant: the pattern has `%z`, `%Q` or `%s`, or states an offset such as
    /// `UTC`, `GMT+1` or `-05:00`.
    Known,
    /// An abbreviation such as EST: a time is parsed only in a zone that uses it at that time.
    Letters(&'p str),
}

/// Formats an example of a time by the pattern, and parses the result. Returns both times.
fn round_trip_example(pattern: &str) -> Result<(ZonedDateTime, BrokenDownTime), jiff::Error> {
    let example =
        TimeZone::UTC.to_zoned_datetime(jiff::civil::date(2026, 11, 24).at(22, 13, 0, 0))?;
    let text = jiff::fmt::strtime::format(pattern, &example)?;
    let parts = BrokenDownTime::parse(pattern, &text)?;
    Ok((example, parts))
}

const NAME_THE_ZONE: &str =
    "name it with `zone` of the source, `ts_zone` of the format, or --zone of import";

/// Returns the error for a string that is not a date and a time of day.
fn explain_unparsed(text: &str) -> String {
    let text: String = text.chars().take(40).collect();
    if parse_clock(&text).is_some() {
        return format!(
            "\"{text}\" is a time of day without a date: name the date's field, as in ts=DATE+TIME"
        );
    }
    if parse_date(&text).is_ok() {
        return date_alone(&text);
    }
    if let Some(why) = explain_spreadsheet(&text) {
        return format!("\"{text}\" {why}");
    }
    ask_for_order(&text).unwrap_or_else(|| {
        format!(
            "\"{text}\" is not a time such as 2026-01-31T08:00:00Z or 2026-01-31 08:00:00; for \
             other forms give {PATTERN}"
        )
    })
}

fn date_alone(text: &str) -> String {
    format!("\"{text}\" is a date without a time of day: name the time's field, as in ts=DATE+TIME")
}

/// Returns an error that suggests patterns for a time; `None` if no pattern can parse the time.
fn ask_for_order(text: &str) -> Option<String> {
    let patterns: Vec<String> =
        patterns(text).map(|(pattern, _)| format!("\"{pattern}\"")).collect();
    let mut examples = if patterns.is_empty() { return None } else { patterns.join(" or ") };
    let word = text.trim_end().rsplit(' ').next().unwrap_or_default();
    if is_abbreviation(word) && !["UTC", "GMT"].contains(&word) {
        examples += ", with a --zone";
    }
    Some(format!("in which order are day, month and year? Give {PATTERN}, such as {examples}"))
}

/// The settings that state a pattern, for errors.
const PATTERN: &str = "a pattern with --unit ts= or ts_unit";

/// Explains a number whose digits are a date, or a date and a time; `None` if they are neither.
/// `is_plausible`: returns whether the fix may have this time, in Unix milliseconds.
pub(super) fn explain_date_digits(
    number: i64,
    is_plausible: impl Fn(i64) -> bool,
) -> Option<String> {
    let mut text = number.to_string();
    if text.len() == 8 && parse_date(&text).is_ok() {
        return Some(date_alone(&text));
    }
    // Add the leading zero of a day below 10, which a number loses.
    if matches!(text.len(), 11 | 13) {
        text.insert(0, '0');
    }
    let plausible = patterns(&text).filter(|(_, ms)| is_plausible(*ms));
    let patterns: Vec<String> = plausible.map(|(pattern, _)| format!("\"{pattern}\"")).collect();
    let examples = if patterns.is_empty() { return None } else { patterns.join(" or ") };
    Some(format!("{number} may be a date and a time in digits: give {PATTERN}, such as {examples}"))
}

/// Returns whether a string is `yyyymmdd` or `yyyymmddhhmmss`, perhaps with a fraction after a
/// point or as three digits. Read as Unix time, such a number would be a time in 1970 or after
/// 2560.
pub(super) fn is_date_in_digits(text: &str) -> bool {
    // Return early for RFC 3339, the form of nearly every time.
    if text.as_bytes().get(4) == Some(&b'-') {
        return false;
    }
    let text = text.trim();
    let (digits, fraction) = text.split_once('.').unwrap_or((text, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    matches!(digits.len(), 8 | 14 | 17)
        && (digits.starts_with("19") || digits.starts_with("20"))
        && are_digits(digits)
        && are_digits(fraction)
        && parse_date(&digits[..8]).is_ok()
        && (digits.len() == 8 || parse_clock(&digits[8..]).is_some())
}

/// Returns whether a string may be a time that `is_near` accepts. Tries each order of day, month
/// and year, and ignores the letters of a zone.
pub(super) fn may_be_time(text: &str, is_near: impl Fn(i64) -> bool) -> bool {
    let utc = Local { zone: Some(Zone::utc()), pattern: None };
    let may_be = |text: &str| {
        utc.unix_ms(text).is_ok_and(&is_near) || patterns(text).any(|(_, ms)| is_near(ms))
    };
    let is_zone = |word: &str| is_abbreviation(word) && month(word).is_none();
    let without_zone = || {
        let words = text.split_whitespace();
        words.filter(|word| !is_zone(word)).collect::<Vec<_>>().join(" ")
    };
    let has_zone = || text.split_whitespace().any(is_zone);
    // A time with a wrong weekday counts as a time.
    let (weekday, without_weekday) = split_weekday(text);
    text.len() <= 100
        && (may_be(text)
            || has_zone() && may_be(&without_zone())
            || weekday.is_some() && may_be(without_weekday))
}

/// Returns whether a string is a time of day, with colons or as `hhmmss`.
pub(super) fn is_time_of_day(text: &str) -> bool {
    let text = text.trim();
    let has_colon = text.contains(':');
    (has_colon || text.split('.').next().is_some_and(|whole| whole.len() == 6))
        && parse_clock(text).is_some()
}

/// Splits a string into date and time of day, at the `T`, `_` or space between them, or after the
/// eight digits of `yyyymmdd`.
fn split_date_and_clock(text: &str) -> Option<(&str, &str)> {
    // `yyyymmddhhmmss`, perhaps with three digits of milliseconds.
    if matches!(text.bytes().take_while(u8::is_ascii_digit).count(), 14 | 17) {
        return Some(text.split_at(8));
    }
    let (at, separator) = text.char_indices().find(|(at, c)| {
        let is_t = matches!(c, 'T' | 't') && text[..*at].ends_with(|c: char| c.is_ascii_digit());
        c.is_whitespace() || *c == '_' || is_t
    })?;
    Some((&text[..at], text[at + separator.len_utf8()..].trim_start()))
}

/// Parses a date whose order of day, month and year is certain.
fn parse_date(text: &str) -> Result<Date, String> {
    let parts: Vec<&str> = text.trim_end_matches(',').split(['-', '/', '.', ':']).collect();
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let unknown_form = || format!("\"{text}\" is not a date; for other forms give {PATTERN}");
    let date = |year: &str, month: &str, day: &str| {
        let parsed = || Date::new(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?).ok();
        parsed().ok_or_else(|| format!("\"{text}\" is not a date"))
    };
    match parts[..] {
        [all] if all.len() == 8 && is_plain(all) => date(&all[..4], &all[4..6], &all[6..]),
        [year, month, day] if year.len() == 4 && is_plain(month) => date(year, month, day),
        [year, name, day] if year.len() == 4 => {
            date(year, &month(name).ok_or_else(unknown_form)?.to_string(), day)
        }
        [day, month, year] if year.len() == 4 && is_plain(month) && text.contains('.') => {
            date(year, month, day)
        }
        [day, name, year] if year.len() == 4 && !is_plain(name) => {
            date(year, &month(name).ok_or_else(unknown_form)?.to_string(), day)
        }
        [_, _, _] => {
            Err(format!("\"{text}\": in which order are day, month and year? Give {PATTERN}"))
        }
        _ => Err(unknown_form()),
    }
}

/// A time of day, and the zone that is stated after it.
struct Clock<'t> {
    time: Time,
    /// The instant is one second after `time`: the string is a leap second or 24:00.
    next_second: bool,
    zone: Option<StatedZone<'t>>,
}

/// The zone that a string states after the time.
enum StatedZone<'t> {
    /// Seconds east of UTC.
    Offset(i32),
    /// An abbreviation such as EST, which several zones use.
    Abbreviation(&'t str),
}

/// Parses `hh:mm`, `hhmm`, `hh:mm:ss`, `hhmmss`, `hh:mm:ss:SSS` or `hhmmssSSS`. A fraction, AM or
/// PM, and an offset or the letters of a zone may follow.
fn parse_clock(text: &str) -> Option<Clock<'_>> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || ":.,".contains(c))).unwrap_or(text.len());
    let (clock, mut rest) = (&text[..end], text[end..].trim());
    let mut meridiem_hours = None;
    // Spreadsheets in Spanish write a no-break space in `p. m.`.
    const MERIDIEMS: [(&str, i8); 14] = [
        ("am", 0),
        ("pm", 12),
        ("a.m.", 0),
        ("p.m.", 12),
        ("a. m.", 0),
        ("p. m.", 12),
        ("a.\u{a0}m.", 0),
        ("p.\u{a0}m.", 12),
        ("πμ", 0),
        ("μμ", 12),
        ("π.μ.", 0),
        ("μ.μ.", 12),
        ("ص", 0),
        ("م", 12),
    ];
    for (name, hours) in MERIDIEMS {
        if rest.get(..name.len()).is_some_and(|word| word.eq_ignore_ascii_case(name)) {
            (meridiem_hours, rest) = (Some(hours), rest[name.len()..].trim_start());
        }
    }
    if ["uhr", "h", "hrs"].iter().any(|word| rest.eq_ignore_ascii_case(word)) {
        rest = "";
    }
    // `(UTC+01:00)`
    let inner = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    let rest = inner.unwrap_or(rest);
    let zone = match parse_offset(without_remark(rest)) {
        Some(seconds) => Some(StatedZone::Offset(seconds)),
        None if is_abbreviation(rest) => Some(StatedZone::Abbreviation(rest)),
        None if rest.is_empty() => None,
        None => return None,
    };
    let (mut whole, mut fraction) = clock.split_once(['.', ',']).unwrap_or((clock, ""));
    if fraction.is_empty() && (whole.len() == 9 || whole.matches(':').count() == 3) {
        // Milliseconds: `hhmmssSSS`, or after a third colon.
        (whole, fraction) = whole.split_at(whole.len().checked_sub(3)?);
        whole = whole.trim_end_matches(':');
    }
    let parts: Vec<&str> = if whole.contains(':') {
        whole.split(':').collect()
    } else if matches!(whole.len(), 4 | 6) {
        (0..whole.len()).step_by(2).map(|at| &whole[at..at + 2]).collect()
    } else {
        return None;
    };
    let number = |part: &str| part.parse::<i8>().ok().filter(|_| (1..=2).contains(&part.len()));
    let (mut hour, minute, second) = match parts[..] {
        [hour, minute] if fraction.is_empty() => (number(hour)?, number(minute)?, 0),
        [hour, minute, second] => (number(hour)?, number(minute)?, number(second)?),
        _ => return None,
    };
    if let Some(meridiem_hours) = meridiem_hours {
        hour = if (1..=12).contains(&hour) { hour % 12 + meridiem_hours } else { return None };
    }
    let nanoseconds = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    let is_midnight = (hour, minute, second, nanoseconds) == (24, 0, 0, 0);
    if is_midnight {
        return Some(Clock { time: Time::new(23, 59, 59, 0).ok()?, next_second: true, zone });
    }
    let next_second = second == 60;
    let time = Time::new(hour, minute, if next_second { 59 } else { second }, nanoseconds).ok()?;
    Some(Clock { time, next_second, zone })
}

/// Returns the zone that a pattern states as text after the time of day, such as `EST` in
/// `%H:%M:%S EST`.
fn zone_in_pattern(pattern: &str) -> Option<StatedZone<'_>> {
    let mut is_after_time = false;
    for (index, piece) in pattern.split('%').enumerate() {
        // Each piece but the first begins with a conversion.
        let end = if index == 0 { 0 } else { conversion_end(piece) };
        is_after_time |= index > 0 && piece[..end].ends_with(['H', 'I', 'k', 'l', 'T', 'R']);
        let literal = piece.get(end..).filter(|_| is_after_time).unwrap_or_default();
        for word in literal.split_whitespace() {
            let is_mark = |c: char| c.is_ascii_digit() || "([.,;_".contains(c);
            let word = word.trim_start_matches(is_mark).trim_end_matches([')', ']', ',', ';']);
            if let Some(seconds) = parse_offset(word) {
                return Some(StatedZone::Offset(seconds));
            }
            if is_abbreviation(word) {
                return Some(StatedZone::Abbreviation(word));
            }
            if word.ends_with('Z') || word.ends_with("UTC") {
                return Some(StatedZone::Offset(0));
            }
        }
    }
    None
}

/// Parses `Z`, `UTC`, `GMT`, `+h`, `+hh`, `+hhmm`, `+hh:mm` or `UTC+h` into seconds east of UTC.
pub(super) fn parse_offset(text: &str) -> Option<i32> {
    let lower = text.to_ascii_lowercase();
    if ["z", "utc", "gmt"].contains(&&*lower) {
        return Some(0);
    }
    let text = ["utc", "gmt"].iter().find_map(|name| lower.strip_prefix(name)).unwrap_or(&lower);
    let (sign, digits) = match text.split_at_checked(1)? {
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = match digits.len() {
        1 | 2 => (digits, "00"),
        4 => digits.split_at(2),
        5 => digits.split_once(':')?,
        _ => return None,
    };
    let number = |text: &str| {
        text.parse::<u8>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours < 24 && minutes < 60).then(|| sign * (i32::from(hours) * 60 + i32::from(minutes)) * 60)
}

/// Parses RFC 3339, also with an offset without a colon, as Java's libraries write it.
pub fn rfc3339(text: &str) -> Option<Timestamp> {
    let time = chrono::DateTime::parse_from_rfc3339(text)
        .or_else(|_| chrono::DateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%.f%z"));
    time.ok().map(|time| Timestamp::from_unix_ms(time.timestamp_millis()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, zone: &str) -> Result<String, String> {
        let local = Local { zone: Some(Zone::new(zone).unwrap()), pattern: None };
        let ms = local.unix_ms(text)?;
        Ok(jiff::Timestamp::from_millisecond(ms).unwrap().to_string())
    }

    #[test]
    fn unambiguous_time_string_is_one_instant() {
        for (text, zone, expected) in [
            ("2026-01-31T08:00:00Z", "+05:00", "2026-01-31T08:00:00Z"),
            ("2026-01-31 08:00:00", "+01:00", "2026-01-31T07:00:00Z"),
            ("2026-01-31 08:00", "Z", "2026-01-31T08:00:00Z"),
            ("2026-01-31T08:00:00.25", "Z", "2026-01-31T08:00:00.25Z"),
            ("2026-01-31T08:00:00,250", "Z", "2026-01-31T08:00:00.25Z"),
            ("2026-01-31 08:00:00.5+00", "+05:00", "2026-01-31T08:00:00.5Z"),
            ("2026-01-31 08:00:00-03:30", "Z", "2026-01-31T11:30:00Z"),
            ("2026-01-31 08:00:00 +0200", "Z", "2026-01-31T06:00:00Z"),
            ("2026-01-31 08:00:00 UTC", "+05:00", "2026-01-31T08:00:00Z"),
            ("2026/01/31 08:00:00", "Z", "2026-01-31T08:00:00Z"),
            ("20260131 080000", "Z", "2026-01-31T08:00:00Z"),
            ("20260131080000", "+01:00", "2026-01-31T07:00:00Z"),
            ("20260131080000.25", "Z", "2026-01-31T08:00:00.25Z"),
            ("20260131080000Z", "+01:00", "2026-01-31T08:00:00Z"),
            ("20260131080000 +0200", "Z", "2026-01-31T06:00:00Z"),
            ("20260131T080000Z", "+05:00", "2026-01-31T08:00:00Z"),
            ("31.01.2026 08:00:00", "Z", "2026-01-31T08:00:00Z"),
            ("31-Jan-2026 08:00:00", "Z", "2026-01-31T08:00:00Z"),
            ("31.Jan.2026 08:00:00", "Z", "2026-01-31T08:00:00Z"),
            ("2026-01-31 08:00:00 PM", "Z", "2026-01-31T20:00:00Z"),
            ("2026-01-31 12:00:00 am", "Z", "2026-01-31T00:00:00Z"),
            ("2026-01-31 08:00:00 p.m.", "Z", "2026-01-31T20:00:00Z"),
            ("2026-01-31 8:00\u{202f}PM", "Z", "2026-01-31T20:00:00Z"),
            ("2026-01-31 8:00:00\u{a0}p.\u{a0}m.", "Z", "2026-01-31T20:00:00Z"),
            ("2026/01/31 下午8:00:00", "Z", "2026-01-31T20:00:00Z"),
            ("2026-01-31 오전 8:00:00", "Z", "2026-01-31T08:00:00Z"),
            ("2026年1月31日 午後8時00分", "Z", "2026-01-31T20:00:00Z"),
            ("2026-01-31 8:00:00 μμ", "Z", "2026-01-31T20:00:00Z"),
            ("31.01.2026 08:00:00 Uhr", "Z", "2026-01-31T08:00:00Z"),
            ("2026-01-31 08:00:00 +1", "Z", "2026-01-31T07:00:00Z"),
            ("2026-01-31 08:00:00 UTC+1", "Z", "2026-01-31T07:00:00Z"),
            ("2026-01-31 08:00:00 GMT-0330", "Z", "2026-01-31T11:30:00Z"),
            ("2026-01-31 08:00:00:250", "Z", "2026-01-31T08:00:00.25Z"),
            ("2026-01-31_08:00:00", "Z", "2026-01-31T08:00:00Z"),
            ("2026:01:31 08:00:00", "Z", "2026-01-31T08:00:00Z"),
            ("20260131080000250", "+01:00", "2026-01-31T07:00:00.25Z"),
            ("2026-01-31 24:00:00", "Z", "2026-02-01T00:00:00Z"),
            ("/Date(1769846400250)/", "+05:00", "2026-01-31T08:00:00.25Z"),
            ("/Date(1769846400250+0100)/", "+05:00", "2026-01-31T08:00:00.25Z"),
            ("2026-01-31T08:00:00[Asia/Tokyo]", "Z", "2026-01-30T23:00:00Z"),
            ("2026-01-31T08:00:00+09:00[Asia/Tokyo]", "Z", "2026-01-30T23:00:00Z"),
            ("2026-01-31T08:00:00Z[Asia/Tokyo]", "+05:00", "2026-01-31T08:00:00Z"),
            ("2026-07-01T10:00:00+02:00[Europe/Berlin]", "Z", "2026-07-01T08:00:00Z"),
            ("2026-10-25T02:30:00+01:00[Europe/Berlin]", "Z", "2026-10-25T01:30:00Z"),
            ("2026-01-31T08:00:00+01:00[+01:00]", "Z", "2026-01-31T07:00:00Z"),
            ("Sat, 31 Jan 2026 08:00:00 +0100", "Z", "2026-01-31T07:00:00Z"),
            ("Sat, 31 Jan 2026 08:00:00 GMT", "+05:00", "2026-01-31T08:00:00Z"),
            ("Sat Jan 31 08:00:00 UTC 2026", "+05:00", "2026-01-31T08:00:00Z"),
            (
                "Sat Jan 31 2026 08:00:00 GMT+0100 (Central European Standard Time)",
                "Z",
                "2026-01-31T07:00:00Z",
            ),
            ("Jan 31, 2026, 8:00:00 PM", "Z", "2026-01-31T20:00:00Z"),
            ("Saturday, January 31, 2026 8:00 PM", "Z", "2026-01-31T20:00:00Z"),
            ("Sat. 2026-01-31 08:00", "Z", "2026-01-31T08:00:00Z"),
            ("Sat,2026-01-31 08:00", "Z", "2026-01-31T08:00:00Z"),
            ("Sat,31 Jan 2026 08:00:00 +0100", "Z", "2026-01-31T07:00:00Z"),
            ("Samstag 31.01.2026 08:00", "Z", "2026-01-31T08:00:00Z"),
            // Accepted, although wrong: the weekday of the day before, and the Sunday that some
            // firmware states for every date.
            ("Fri, 31 Jan 2026 23:30:00 +0000", "Z", "2026-01-31T23:30:00Z"),
            ("Sun Jan 28 08:00:00 UTC 2026", "Z", "2026-01-28T08:00:00Z"),
            ("Sa, 31.01.2026 08:00", "Z", "2026-01-31T08:00:00Z"),
            ("sábado 31 de enero de 2026 08:00", "Z", "2026-01-31T08:00:00Z"),
            ("2026-01-31 09:00:00 (UTC+01:00)", "Z", "2026-01-31T08:00:00Z"),
            ("Thurs, 1 Jan 2026 00:30:00 +0100", "Z", "2025-12-31T23:30:00Z"),
            ("31. Januar 2026 08:00", "+01:00", "2026-01-31T07:00:00Z"),
            // An abbreviation is read in its zone, and selects the instant in an hour that happens
            // twice.
            ("2026-01-31 08:00:00 EST", "America/New_York", "2026-01-31T13:00:00Z"),
            ("2026-11-01 01:30:00 EDT", "America/New_York", "2026-11-01T05:30:00Z"),
            ("2026-11-01 01:30:00 EST", "America/New_York", "2026-11-01T06:30:00Z"),
            ("Sat Jan 31 08:00:00 CET 2026", "Europe/Berlin", "2026-01-31T07:00:00Z"),
            ("2016-12-31 23:59:60", "Z", "2017-01-01T00:00:00Z"),
            ("2026-07-01 12:00:00", "Europe/Berlin", "2026-07-01T10:00:00Z"),
            ("2026-11-24 12:00:00", "Europe/Berlin", "2026-11-24T11:00:00Z"),
            ("2026-01-15 12:00:00", "America/Santiago", "2026-01-15T15:00:00Z"),
            ("2026-06-15 12:00:00", "Asia/Kathmandu", "2026-06-15T06:15:00Z"),
            ("2026-10-25 01:59:59", "Europe/Berlin", "2026-10-24T23:59:59Z"),
            ("2026-10-25 03:00:00", "Europe/Berlin", "2026-10-25T02:00:00Z"),
        ] {
            assert_eq!(read(text, zone).as_deref(), Ok(expected), "{text} {zone}");
        }
    }

    #[test]
    fn ambiguous_time_is_refused_with_its_cause() {
        for (text, zone, cause) in [
            ("03/04/2026 08:00:00", "Z", "which order"),
            ("20261125", "Z", "a date without a time of day"),
            ("2026-11-25", "Z", "a date without a time of day"),
            ("251126 101500", "Z", "which order"),
            ("03-04-2026 08:00:00", "Z", "which order"),
            ("26.01.31 08:00:00", "Z", "which order"),
            ("2026-10-25 02:30:00", "Europe/Berlin", "twice"),
            ("2026-03-29 02:30:00", "Europe/Berlin", "does not exist"),
            ("Wed, 31 Jan 2026 08:00:00 +0100", "Z", "2026-01-31 is a Saturday, and"),
            ("Wed,2026-01-31 08:00", "Z", "2026-01-31 is a Saturday, and"),
            ("Sat", "Z", "not a time"),
            ("Do, 31.01.2026 08:00", "Z", "2026-01-31 is a Saturday, and"),
            ("46352,427164", "Z", "a spreadsheet's number of days"),
            ("1795688107,25", "Z", "a number with separators"),
            ("1 795 688 107", "Z", "a number with separators"),
            ("########", "Z", "the column is too narrow"),
            ("15:07.0", "Z", "has lost its date and hour"),
            ("Mon Jan 31 08:00:00 UTC 2026", "Z", "which is right?"),
            ("Tuesday 2026-01-31 08:00", "Z", "which is right?"),
            ("10:12:47", "Z", "without a date"),
            ("101247", "Z", "without a date"),
            ("2026-02-30 08:00:00", "Z", "not a date"),
            ("2026-01-31 24:00:01", "Z", "not a time"),
            ("2026-01-31 8 o'clock", "Z", "not a time"),
            ("yesterday", "Z", "not a time"),
            ("", "Z", "not a time"),
            ("é", "Z", "not a time"),
            ("2026-01-31 08:00:00 CET", "Z", "more than one zone is called CET"),
            ("2026-01-31 08:00:00 EST", "Z", "such as America/New_York"),
            ("2026-07-31 08:00:00 EST", "America/New_York", "not called EST at 2026-07-31T08:00"),
            ("2026-03-08 02:30:00 EST", "America/New_York", "not called EST"),
            ("2026-01-31 08:00:00 cet", "Z", "not a time"),
            ("2026-10-25T02:30:00[Europe/Berlin]", "Z", "twice"),
            ("2026-11-26T10:15:07+05:00[Europe/Berlin]", "Z", "offset of Europe/Berlin is +01"),
            ("2026-01-31T08:00:00[Mars/Olympus]", "Z", "must be a zone"),
            ("31-marraskuu-2026 08:00", "Z", "not a date"),
            ("2026-W05-6T08:00:00", "Z", "give a pattern"),
            ("/Date(x)/", "Z", "not a time"),
            ("[", "Z", "not a time"),
            ("]", "Z", "not a time"),
            ("x]", "Z", "not a time"),
        ] {
            let why = read(text, zone).unwrap_err();
            assert!(why.contains(cause), "{text}: {why}");
        }
        let why = Local::default().unix_ms("2026-01-31 08:00:00").unwrap_err();
        assert!(why.contains("no zone"), "{why}");
        for zone in ["Mars/Olympus", "+25:00", "", "2", "CEST+", "+", "UTC+"] {
            assert!(Zone::new(zone).is_err(), "{zone}");
        }
    }

    /// An error for an ambiguous time suggests patterns; each of them parses that time.
    #[test]
    fn suggested_patterns_read_the_time() {
        for (text, expected) in [
            ("03/04/2026 08:00:00", "%d/%m/%Y %H:%M:%S; %m/%d/%Y %H:%M:%S"),
            ("3/4/26 8:00", "%d/%m/%y %H:%M; %m/%d/%y %H:%M; %y/%m/%d %H:%M"),
            ("11/25/2026 08:00:00 PM", "%m/%d/%Y %I:%M:%S %p"),
            ("25-11-2026T08:00:00.5", "%d-%m-%YT%H:%M:%S%.f"),
            ("25/11/2026, 08:00:00Z", "%d/%m/%Y, %H:%M:%SZ"),
            ("25/11/2026 08:00:00 +0100", "%d/%m/%Y %H:%M:%S %z"),
            ("25.11.26 08:00:00+01:00", "%d.%m.%y %H:%M:%S%:z; %y.%m.%d %H:%M:%S%:z"),
            ("25-Nov-26 08:00:00", "%d-%b-%y %H:%M:%S"),
            ("25/11/2026 08:00:00 GMT", "%d/%m/%Y %H:%M:%S GMT"),
            ("251126 080000.00", "%d%m%y %H%M%S%.f; %y%m%d %H%M%S%.f"),
            ("251126080000", "%d%m%y%H%M%S; %y%m%d%H%M%S"),
            ("25112026080000", "%d%m%Y%H%M%S"),
            ("25112026 080000", "%d%m%Y %H%M%S"),
            ("20261125080000123", "%Y%m%d%H%M%S%f"),
            ("2026-01-31 08:00:00", ""),
            ("25/11/2026", ""),
            ("yesterday 8:00", ""),
            ("1795514400", ""),
            ("é/é/é é", ""),
        ] {
            let found: Vec<String> = patterns(text).map(|(pattern, _)| pattern).collect();
            assert_eq!(found.join("; "), expected, "{text}");
            for pattern in found {
                let local = Local { zone: Some(Zone::utc()), pattern: Some(pattern.clone()) };
                assert!(local.unix_ms(text).is_ok(), "{text} {pattern}");
                assert!(Local::check_pattern(&pattern).is_ok(), "{text} {pattern}");
            }
        }
    }

    #[test]
    fn pattern_defines_the_order_of_a_date() {
        let read = |pattern: &str, text: &str| {
            let pattern = Some(Local::check_pattern(pattern).unwrap());
            Local { zone: Some(Zone::utc()), pattern }.unix_ms(text).map(|ms| ms / 1_000)
        };
        assert_eq!(read("%d/%m/%Y %H:%M:%S", "03/04/2026 08:00:00"), Ok(1_775_203_200));
        assert_eq!(read("%m/%d/%Y %H:%M:%S", "03/04/2026 08:00:00"), Ok(1_772_611_200));
        assert_eq!(read("%y%m%d%H%M%S", "260403080000"), Ok(1_775_203_200));
        assert_eq!(read("%Y-%m-%dT%H:%M:%S%z", "2026-04-03T10:00:00+0200"), Ok(1_775_203_200));
        assert!(read("%d/%m/%Y %H:%M:%S", "2026-04-03 08:00:00").is_err());
        // A Z or UTC in the text takes precedence over the configured zone.
        for (pattern, text) in [
            ("%d/%m/%Y %H:%M:%SZ", "03/04/2026 08:00:00Z"),
            ("%d/%m/%Y %H:%M:%S UTC", "03/04/2026 08:00:00 UTC"),
        ] {
            let zone = Some(Zone::new("Asia/Tokyo").unwrap());
            let local = Local { zone, pattern: Some(pattern.to_owned()) };
            assert_eq!(local.unix_ms(text), Ok(1_775_203_200_000));
        }
        // After `%%`, a letter outside ASCII is not a conversion.
        assert_eq!(read("%d/%m/%Y %H:%M:%S %%é", "03/04/2026 08:00:00 %é"), Ok(1_775_203_200));
        for pattern in ["%d/%m/%Y", "%H:%M:%S", "%Q!", "d/m/y", ""] {
            assert!(Local::check_pattern(pattern).is_err(), "{pattern}");
        }
    }
}
