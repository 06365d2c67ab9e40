//! Reads NMEA 0183: RMC and GGA sentences of any talker, one or several lines per message. Speeds
//! are in knots, coordinates in ddmm.mmmm, times in UTC.
//!
//! All sentences of a message with the same time are one fix, in any order: RMC gives position,
//! speed and course; GGA adds the altitude. A sentence without a date gets its day from the nearest
//! RMC or ZDA of the message that has a date: the day on which the two times are closest. If there
//! is no such RMC or ZDA, the time of receipt is used instead. The altitude is above the ellipsoid:
//! the sum of GGA's altitude above mean sea level and its geoid separation.

use std::collections::HashMap;

use arrayvec::ArrayVec;
use memchr::memchr_iter;

use crate::age::DAY_MS;
use crate::ignored::Ignored;
use crate::json::{Scalar, number};
use crate::keep::Origin;
use crate::point::Point;
use crate::points::Points;
use crate::refusal::{Refusal, refuse};
use crate::reject::Reason;
use crate::unit::SpeedUnit;

/// Longest line that is read as a sentence, in bytes. The standard allows 82.
const LINE_BYTES_MAX: usize = 256;
/// Maximum number of fields that are split off a sentence. RMC, GGA and ZDA have fewer.
const FIELDS_MAX: usize = 20;
/// Maximum number of sentences that are compared one by one. In a longer message, a hash table
/// finds the sentences with the same time.
const COMPARED_MAX: usize = 32;

/// A valid RMC or GGA sentence.
struct Fix<'a> {
    line: &'a str,
    /// Milliseconds since midnight.
    time_ms: i64,
    /// Midnight of the sentence's date in Unix milliseconds; RMC only.
    day_ms: Option<i64>,
    lat: f64,
    lng: f64,
    motion: Option<Motion<'a>>,
    alt: Option<f64>,
}

/// Fields that only RMC sentences have.
struct Motion<'a> {
    knots: &'a str,
    course: &'a str,
}

enum Sentence<'a> {
    Fix(Fix<'a>),
    /// The time of a ZDA sentence in Unix milliseconds.
    Clock(i64),
    Ignored(Ignored),
}

/// A sentence with a fix or a clock, and its line in the message.
struct Entry<'a> {
    /// Index of the line in the message.
    line: usize,
    /// Unix milliseconds: the sentence's own time, or its time of day on the nearest day.
    at: Option<i64>,
    /// `None`: a ZDA sentence, or a fix that was merged into an earlier sentence with the same
    /// time.
    fix: Option<Fix<'a>>,
}

/// Reads the sentences of a message. Rejects only the invalid ones.
///
/// # Errors
/// The message has too many lines or no line, or its only line is invalid.
pub(super) fn read(points: &mut Points<'_>, payload: &[u8]) -> Result<(), Refusal> {
    // A line has at least one byte, so a short payload needs no count of its lines.
    if payload.len() > points.points_max && lines(payload).nth(points.points_max).is_some() {
        return refuse(
            Reason::TooManyPoints,
            format!("the message has more than {} lines", points.points_max),
        );
    }
    let mut lines = lines(payload).enumerate().peekable();
    let (mut entries, mut last) = (Vec::with_capacity(2), None);
    while let Some((index, line)) = lines.next() {
        last = Some(index);
        match utf8(line).and_then(sentence) {
            Ok(Sentence::Fix(fix)) => {
                let at = fix.day_ms.map(|day| day + fix.time_ms);
                entries.push(Entry { line: index, at, fix: Some(fix) });
            }
            Ok(Sentence::Clock(unix_ms)) => {
                entries.push(Entry { line: index, at: Some(unix_ms), fix: None });
                points.ignore(Ignored::Sentence);
            }
            Ok(Sentence::Ignored(kind)) => points.ignore(kind),
            Err(refusal) if index == 0 && lines.peek().is_none() => return Err(refusal),
            Err(refusal) => points.refuse(line, line, refusal),
        }
    }
    let Some(last) = last else {
        return refuse(Reason::InvalidSentence, "the payload contains no sentence");
    };
    assign_days(&mut entries, points.received_at.unix_ms());
    merge_same_time(&mut entries);
    let without_rmc = edge_lines_without_rmc(&entries, last);
    for entry in &entries {
        match (entry.at, &entry.fix) {
            (_, Some(fix)) if fix.motion.is_none() && without_rmc.contains(&Some(entry.line)) => {
                points.ignore(Ignored::Sentence);
            }
            (Some(unix_ms), Some(fix)) => add_fix(points, unix_ms, fix),
            (None, _) | (_, None) => {}
        }
    }
    Ok(())
}

/// Returns the non-empty lines. Devices end a line with CR LF, LF, CR or NUL. Some devices send no
/// line end, so a line also ends after a checksum that is followed by another sentence.
fn lines(payload: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends_line = |byte: &u8| *byte <= b'\r' && *byte != b'\t';
    let begins = |at: &usize| matches!(payload.get(*at), Some(b'$' | b'!'));
    // A checksum is `*` and two hexadecimal digits.
    let ends = memchr_iter(b'*', payload).map(|at| at + 3).filter(begins);
    let mut from = 0;
    let parts = ends.chain(std::iter::once(payload.len())).flat_map(move |end| {
        let part = &payload[from..end];
        from = end;
        part.split(ends_line)
    });
    parts.map(<[u8]>::trim_ascii).filter(|line| !line.is_empty())
}

fn utf8(line: &[u8]) -> Result<&str, Refusal> {
    str::from_utf8(line).map_err(|error| Refusal::new(Reason::InvalidUtf8, error.to_string()))
}

/// Sets the day of each fix without a date. Takes the nearest sentence with a date, or the earlier
/// of two equally near ones, and chooses the day that brings the two times closest together. If no
/// sentence has a date, the time of receipt takes the place of that sentence.
fn assign_days(entries: &mut [Entry<'_>], received_at_ms: i64) {
    let (mut before, mut next): (Option<(usize, i64)>, usize) = (None, 0);
    for index in 0..entries.len() {
        let Entry { line, at, fix } = &entries[index];
        let Some(Fix { time_ms, day_ms: None, .. }) = fix else {
            before = at.map(|unix_ms| (*line, unix_ms));
            continue;
        };
        let (line, time_ms) = (*line, *time_ms);
        // For a later fix, the next dated sentence is the same or a later one, so the search never
        // goes back.
        next = next.max(index + 1);
        while entries.get(next).is_some_and(|entry| entry.at.is_none()) {
            next += 1;
        }
        let after = entries.get(next).and_then(|entry| Some((entry.line, entry.at?)));
        let clocks = before.into_iter().chain(after);
        let clock = clocks
            .min_by_key(|(at_line, _)| at_line.abs_diff(line))
            .map_or(received_at_ms, |(_, ms)| ms);
        entries[index].at = Some(on_the_nearest_day(time_ms, clock));
    }
}

/// Merges all sentences with the same time into one fix. The fix stays in the entry of the first of
/// these sentences.
fn merge_same_time(entries: &mut [Entry<'_>]) {
    let mut first_at: HashMap<i64, usize> = HashMap::new();
    for index in 0..entries.len() {
        let (Some(unix_ms), true) = (entries[index].at, entries[index].fix.is_some()) else {
            continue;
        };
        let earlier = if entries.len() > COMPARED_MAX {
            Some(*first_at.entry(unix_ms).or_insert(index)).filter(|first| *first < index)
        } else {
            let has_time = |entry: &Entry<'_>| entry.at == Some(unix_ms) && entry.fix.is_some();
            entries[..index].iter().position(has_time)
        };
        if let Some(earlier) = earlier
            && let Some(fix) = entries[index].fix.take()
            && let Some(first) = &mut entries[earlier].fix
        {
            first.merge(fix);
        }
    }
}

/// Checks the first and the last line of a message. Returns the index of each of these lines that
/// may be a GGA sentence whose RMC sentence is in the previous or the next message. Such a GGA
/// sentence must not become a fix of its own: it would replace the fix of the RMC sentence, which
/// has more fields.
fn edge_lines_without_rmc(entries: &[Entry<'_>], last: usize) -> [Option<usize>; 2] {
    let fixes = || entries.iter().filter_map(|entry| Some((entry.line, entry.fix.as_ref()?)));
    let lines_without_rmc =
        || fixes().filter(|(_, fix)| fix.motion.is_none()).map(|(line, _)| line);
    let edges = [0, last].map(|edge| lines_without_rmc().find(|line| *line == edge));
    let at_edges = edges.iter().flatten().count();
    let has_pairs = || fixes().any(|(_, fix)| fix.motion.is_some() && fix.alt.is_some());
    // A receiver may also send GGA sentences alone. Therefore, the two lines count only if the
    // message has a pair of an RMC and a GGA sentence, and if every GGA sentence between the two
    // lines has its RMC sentence.
    if at_edges > 0 && lines_without_rmc().count() <= at_edges && has_pairs() {
        edges
    } else {
        [None, None]
    }
}

/// Returns the Unix milliseconds of a time of day, on the day that brings it nearest to `unix_ms`.
fn on_the_nearest_day(time_ms: i64, unix_ms: i64) -> i64 {
    let today = unix_ms - unix_ms.rem_euclid(DAY_MS) + time_ms;
    let days = [today, today - DAY_MS, today + DAY_MS];
    days.into_iter().min_by_key(|day| day.abs_diff(unix_ms)).unwrap_or(today)
}

impl Fix<'_> {
    /// Adds the fields of another sentence with the same time. Keeps the position of the first RMC
    /// sentence.
    fn merge(&mut self, mut other: Self) {
        if self.motion.is_none() && other.motion.is_some() {
            std::mem::swap(self, &mut other);
        }
        self.alt = self.alt.or(other.alt);
    }
}

fn add_fix(points: &mut Points<'_>, unix_ms: i64, fix: &Fix<'_>) {
    let Fix { line, lat, lng, motion, alt, .. } = fix;
    let optional = |text: &str| {
        if text.is_empty() {
            Scalar::Missing
        } else {
            number(text).unwrap_or(Scalar::Other("no number"))
        }
    };
    let mut point = Point {
        lat: Scalar::Number((*lat).into()),
        lng: Scalar::Number((*lng).into()),
        ts: Scalar::Integer(unix_ms),
        alt: alt.map_or(Scalar::Missing, |alt| Scalar::Number(alt.into())),
        ..Point::default()
    };
    if let Some(Motion { knots, course }) = motion {
        point.speed = optional(knots).times(SpeedUnit::Knots.metres_per_second());
        point.heading = optional(course);
    }
    if let Err(refusal) = points.add(&point, &Origin::whole(line.as_bytes())) {
        points.refuse(line.as_bytes(), line.as_bytes(), refusal);
    }
}

/// Parses a sentence. A fix of a simulator (mode `S` or quality 8), or of mode `N` (not valid),
/// counts as no fix.
///
/// # Errors
/// The line is not a sentence, its checksum is wrong, or one of its fields cannot be read.
fn sentence(line: &str) -> Result<Sentence<'_>, Refusal> {
    let (address, fields) = split_fields(verify_checksum(line)?);
    let field = |index: usize| fields.get(index).copied().unwrap_or_default();
    // A talker has two letters; proprietary sentences begin with P.
    match (address.len(), address.get(2..)) {
        // Fields: time, status, lat, N or S, lng, E or W, knots, course, date, magnetic variation
        // (two fields), mode.
        (5, Some("RMC")) if field(1) == "A" && !matches!(field(11), "N" | "S") => {
            let (time, date) = (field(0), field(8));
            let motion = Motion { knots: field(6), course: field(7) };
            Ok(Sentence::Fix(Fix {
                line,
                time_ms: time_ms(time)?,
                day_ms: if date.is_empty() { None } else { Some(day_ms(date)?) },
                lat: degrees([field(2), field(3)], ["N", "S"])?,
                lng: degrees([field(4), field(5)], ["E", "W"])?,
                motion: Some(motion),
                alt: None,
            }))
        }
        // Fields: time, lat, N or S, lng, E or W, quality, satellites, HDOP, altitude, its unit,
        // geoid separation, its unit.
        (5, Some("GGA")) if !matches!(field(5), "" | "0" | "8") => {
            // The unit is the field after the number.
            let metres = |index| {
                let is_metres = matches!(field(index + 1), "M" | "m" | "");
                number(field(index)).filter(|_| is_metres).and_then(|number| number.as_f64())
            };
            Ok(Sentence::Fix(Fix {
                line,
                time_ms: time_ms(field(0))?,
                day_ms: None,
                lat: degrees([field(1), field(2)], ["N", "S"])?,
                lng: degrees([field(3), field(4)], ["E", "W"])?,
                motion: None,
                alt: metres(8).map(|above_sea| above_sea + metres(10).unwrap_or(0.0)),
            }))
        }
        // Fields: time, day, month, year.
        (5, Some("ZDA")) => {
            let date = || midnight(digits(field(3))?, digits(field(2))?, digits(field(1))?);
            let clock = time_ms(field(0)).ok().zip(date());
            Ok(clock.map_or(Sentence::Ignored(Ignored::Sentence), |(time, day)| {
                Sentence::Clock(day + time)
            }))
        }
        (5, Some("RMC" | "GGA")) => Ok(Sentence::Ignored(Ignored::NoFix)),
        _ => Ok(Sentence::Ignored(Ignored::Sentence)),
    }
}

/// Splits the text of a sentence at its commas into the address and the first fields.
fn split_fields(text: &str) -> (&str, ArrayVec<&str, FIELDS_MAX>) {
    let mut commas = text.bytes().enumerate().filter(|(_, byte)| *byte == b',').map(|(at, _)| at);
    let Some(first) = commas.next() else { return (text, ArrayVec::new()) };
    let mut from = first + 1;
    let ends = commas.chain(std::iter::once(text.len()));
    let fields = ends.map(|end| &text[std::mem::replace(&mut from, end + 1)..end]);
    (&text[..first], fields.take(FIELDS_MAX).collect())
}

/// Returns the text between `$` and `*`, if the checksum after it is correct. A TAG block of
/// NMEA 4 before the sentence, such as `\s:r1,c:1795680000*4A\`, is skipped.
fn verify_checksum(line: &str) -> Result<&str, Refusal> {
    let tagged = line.strip_prefix('\\').and_then(|rest| rest.split_once('\\'));
    let line = tagged.map_or(line, |(_, sentence)| sentence);
    let invalid = || {
        let why = if !line.starts_with('$') && line.contains("$G") {
            "the line has text before its sentence: remove what stands before the $"
        } else {
            "the line is not a sentence such as $GPRMC,…*hh"
        };
        Refusal::new(Reason::InvalidSentence, why)
    };
    let body = line
        .strip_prefix(['$', '!'])
        .filter(|_| line.len() <= LINE_BYTES_MAX)
        .ok_or_else(invalid)?;
    let Some((body, given)) = body.split_once('*').filter(|(_, given)| !given.is_empty()) else {
        return refuse(Reason::BadChecksum, "the sentence has no checksum, *hh");
    };
    let computed = body.bytes().fold(0, |sum, byte| sum ^ byte);
    let is_hex = given.len() == 2 && given.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_hex || u8::from_str_radix(given, 16) != Ok(computed) {
        return refuse(
            Reason::BadChecksum,
            format!("the checksum is {given:.8}, but must be {computed:02X}"),
        );
    }
    Ok(body)
}

/// Parses `ddmm.mmmm` or `dddmm.mmmm` with its hemisphere.
fn degrees([text, letter]: [&str; 2], [positive, negative]: [&str; 2]) -> Result<f64, Refusal> {
    let invalid = || {
        Refusal::new(
            Reason::InvalidSentence,
            format!("\"{text},{letter}\": must be ddmm.mmmm,{positive} or ddmm.mmmm,{negative}"),
        )
    };
    let point_at = text.find('.').unwrap_or(text.len());
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if !(3..=5).contains(&point_at) || !is_plain {
        return Err(invalid());
    }
    let (whole, minutes) = text.split_at(point_at - 2);
    let (whole, minutes): (f64, f64) = whole
        .parse()
        .ok()
        .zip(minutes.parse().ok())
        .filter(|(_, minutes)| *minutes < 60.0)
        .ok_or_else(invalid)?;
    let degrees = whole + minutes / 60.0;
    if letter == positive {
        Ok(degrees)
    } else if letter == negative {
        Ok(-degrees)
    } else {
        Err(invalid())
    }
}

/// Parses `ddmmyy`; returns midnight of that day in Unix milliseconds. GPS began in 1980, so the
/// years 80 to 99 are 1980 to 1999.
fn day_ms(date: &str) -> Result<i64, Refusal> {
    let read = || {
        let [day, month, year] = pairs(date.as_bytes()).filter(|_| date.len() == 6)?;
        midnight(if year < 80 { 2_000 + year } else { 1_900 + year }, month, day)
    };
    read().ok_or_else(|| Refusal::new(Reason::BadTs, format!("date \"{date}\": must be ddmmyy")))
}

/// Returns midnight of a day in Unix milliseconds; `None` if there is no such day.
fn midnight(year: u32, month: u32, day: u32) -> Option<i64> {
    let day = chrono::NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, day)?;
    Some(i64::from(day.to_epoch_days()) * DAY_MS)
}

/// Parses `hhmmss.sss` into milliseconds since midnight. A leap second becomes the second after it.
fn time_ms(time: &str) -> Result<i64, Refusal> {
    let read = || {
        let [hour, minute, second] = pairs(time.as_bytes())?;
        let fraction = match &time.as_bytes()[6..] {
            [] => 0,
            [b'.', digits @ ..] => milliseconds(digits)?,
            _ => return None,
        };
        let is_time = hour < 24 && minute < 60 && second <= 60;
        is_time.then(|| i64::from((hour * 60 + minute) * 60 + second) * 1_000 + i64::from(fraction))
    };
    read().ok_or_else(|| Refusal::new(Reason::BadTs, format!("time \"{time}\": must be hhmmss.ss")))
}

/// Parses the first six bytes as three numbers of two digits.
fn pairs(text: &[u8]) -> Option<[u32; 3]> {
    let digits: &[u8; 6] = text.first_chunk()?;
    let digit = |at: usize| u32::from(digits[at].wrapping_sub(b'0'));
    let pair = |at: usize| digit(at) * 10 + digit(at + 1);
    digits.iter().all(u8::is_ascii_digit).then(|| [pair(0), pair(2), pair(4)])
}

/// Parses a number that consists only of digits.
fn digits(text: &str) -> Option<u32> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// Parses the decimals of a second; digits after the third are dropped.
fn milliseconds(digits: &[u8]) -> Option<u32> {
    let digit = |at: usize| digits.get(at).map_or(0, |digit| u32::from(digit.wrapping_sub(b'0')));
    let is_number = digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| digit(0) * 100 + digit(1) * 10 + digit(2))
}
