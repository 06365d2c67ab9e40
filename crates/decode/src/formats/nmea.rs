//! NMEA 0183: RMC and GGA sentences of any talker, one or several lines a message. Knots,
//! ddmm.mmmm, UTC.
//!
//! All sentences of one moment in a message are one fix, wherever they stand: RMC gives place,
//! speed and course, GGA adds the altitude. A sentence with a time of day and no date gets the day
//! that fits: next to the nearest RMC or ZDA of the message, else next to the time of receipt. GGA
//! gives metres above the sea and the sea's height above the ellipsoid: the altitude is their sum.

use std::collections::HashMap;

use crate::ignored::Ignored;
use crate::json::{Scalar, number};
use crate::keep::Origin;
use crate::point::Point;
use crate::points::Points;
use crate::refusal::{Refusal, refuse};
use crate::reject::Reason;
use crate::unit::SpeedUnit;

/// Longer lines are no sentences: the standard allows 82.
const LINE_BYTES_MAX: usize = 256;
const DAY_MS: i64 = 86_400_000;

/// A valid RMC or GGA.
struct Fix<'a> {
    line: &'a str,
    /// Milliseconds of the day.
    time_ms: i64,
    /// Midnight of its date; RMC only.
    day_ms: Option<i64>,
    lat: f64,
    lng: f64,
    motion: Option<Motion<'a>>,
    alt: Option<f64>,
}

/// What only RMC has.
struct Motion<'a> {
    knots: &'a str,
    course: &'a str,
}

enum Sentence<'a> {
    Fix(Fix<'a>),
    /// A ZDA, in Unix milliseconds.
    Clock(i64),
    Ignored(Ignored),
}

pub(super) fn read(points: &mut Points<'_>, text: &str) -> Result<(), Refusal> {
    let lines = || text.lines().map(str::trim_ascii).filter(|line| !line.is_empty());
    let count = lines().take(points.points_max + 1).count();
    if count > points.points_max {
        return refuse(Reason::TooManyPoints, format!("more than {} lines", points.points_max));
    }
    if count == 0 {
        return refuse(Reason::InvalidSentence, "no sentence");
    }
    // Both with the number of their line.
    let (mut fixes, mut clocks) = (Vec::new(), Vec::new());
    for (n, line) in lines().enumerate() {
        match sentence(line) {
            Ok(Sentence::Fix(fix)) => {
                clocks.extend(fix.day_ms.map(|day| (n, day + fix.time_ms)));
                fixes.push((n, fix));
            }
            Ok(Sentence::Clock(unix_ms)) => {
                clocks.push((n, unix_ms));
                points.ignore(Ignored::Sentence);
            }
            Ok(Sentence::Ignored(kind)) => points.ignore(kind),
            Err(refusal) if count == 1 => return Err(refusal),
            Err(refusal) => points.refuse(line.as_bytes(), line.as_bytes(), refusal),
        }
    }
    let receipt = points.received_at.unix_ms();
    let (mut moments, mut known): (Vec<(i64, Fix<'_>)>, HashMap<i64, usize>) = Default::default();
    for (n, fix) in fixes {
        let unix_ms = match fix.day_ms {
            Some(day) => day + fix.time_ms,
            None => on_the_nearest_day(fix.time_ms, nearest(&clocks, n).unwrap_or(receipt)),
        };
        match known.get(&unix_ms) {
            Some(at) => moments[*at].1.join(fix),
            None => {
                known.insert(unix_ms, moments.len());
                moments.push((unix_ms, fix));
            }
        }
    }
    let halves = halves_of_pairs(&moments, lines().next(), lines().next_back());
    for (n, (unix_ms, fix)) in moments.iter().enumerate() {
        if halves.contains(&Some(n)) {
            points.ignore(Ignored::Sentence);
        } else {
            add(points, *unix_ms, fix);
        }
    }
    Ok(())
}

/// Where a device sends pairs and a message begins or ends with a GGA alone, the RMC of that moment
/// is in the message before or behind it. As a fix the GGA would replace that one, which knows
/// more.
fn halves_of_pairs(
    moments: &[(i64, Fix<'_>)],
    first: Option<&str>,
    last: Option<&str>,
) -> [Option<usize>; 2] {
    let is_alone = |fix: &Fix<'_>| fix.motion.is_none();
    let is_pair = |fix: &Fix<'_>| fix.motion.is_some() && fix.alt.is_some();
    let at = |line: Option<&str>| {
        moments.iter().position(|(_, fix)| is_alone(fix) && Some(fix.line) == line)
    };
    let edges = [at(first), at(last)];
    let alone = moments.iter().filter(|(_, fix)| is_alone(fix)).count();
    let is_pairs = moments.iter().any(|(_, fix)| is_pair(fix));
    if is_pairs && alone <= edges.iter().flatten().count() { edges } else { [None, None] }
}

/// The clock on the line nearest to line `n`; of two the earlier one. `clocks` are in the order of
/// their lines.
fn nearest(clocks: &[(usize, i64)], n: usize) -> Option<i64> {
    let after = clocks.partition_point(|(line, _)| *line < n);
    let around = [after.checked_sub(1), Some(after)].into_iter().flatten();
    let around = around.filter_map(|at| clocks.get(at));
    around.min_by_key(|(line, _)| line.abs_diff(n)).map(|(_, unix_ms)| *unix_ms)
}

/// A time of day on the day on which it is nearest to `unix_ms`.
fn on_the_nearest_day(time_ms: i64, unix_ms: i64) -> i64 {
    let today = unix_ms - unix_ms.rem_euclid(DAY_MS) + time_ms;
    let days = [today, today - DAY_MS, today + DAY_MS];
    days.into_iter().min_by_key(|day| day.abs_diff(unix_ms)).unwrap_or(today)
}

impl Fix<'_> {
    /// Adds what another sentence of the same moment knows. The place is that of the first RMC.
    fn join(&mut self, mut other: Self) {
        if self.motion.is_none() && other.motion.is_some() {
            std::mem::swap(self, &mut other);
        }
        self.alt = self.alt.or(other.alt);
    }
}

fn add(points: &mut Points<'_>, unix_ms: i64, fix: &Fix<'_>) {
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

fn sentence(line: &str) -> Result<Sentence<'_>, Refusal> {
    let fields = checked(line)?;
    let mut fields = fields.split(',');
    let address = fields.next().unwrap_or_default();
    let fields: arrayvec::ArrayVec<&str, 20> = fields.take(20).collect();
    let field = |index: usize| fields.get(index).copied().unwrap_or_default();
    // A talker has two letters; proprietary sentences begin with P.
    match (address.len(), address.get(2..)) {
        (5, Some("RMC")) if field(1) == "A" => {
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
        (5, Some("GGA")) if !matches!(field(5), "" | "0") => {
            let metres = |index| number(field(index)).and_then(|number| number.as_f64());
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
        (5, Some("ZDA")) => {
            let [day, month, year] = [1, 2, 3].map(field);
            let clock = time_ms(field(0)).ok().zip(midnight(year, month, day));
            Ok(clock.map_or(Sentence::Ignored(Ignored::Sentence), |(time, day)| {
                Sentence::Clock(day + time)
            }))
        }
        (5, Some("RMC" | "GGA")) => Ok(Sentence::Ignored(Ignored::NoFix)),
        _ => Ok(Sentence::Ignored(Ignored::Sentence)),
    }
}

/// What is between `$` and `*`, if the checksum after it is right.
fn checked(line: &str) -> Result<&str, Refusal> {
    let invalid = || Refusal::new(Reason::InvalidSentence, "no sentence such as $GPRMC,…*hh");
    let body = line
        .strip_prefix(['$', '!'])
        .filter(|_| line.len() <= LINE_BYTES_MAX)
        .ok_or_else(invalid)?;
    let Some((body, given)) = body.split_once('*') else {
        return refuse(Reason::BadChecksum, "the sentence has no checksum, *hh");
    };
    let computed = body.bytes().fold(0, |sum, byte| sum ^ byte);
    let is_hex = given.len() == 2 && given.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_hex || u8::from_str_radix(given, 16) != Ok(computed) {
        return refuse(
            Reason::BadChecksum,
            format!("the sentence says {given:.8}; its checksum is {computed:02X}"),
        );
    }
    Ok(body)
}

/// `ddmm.mmmm` or `dddmm.mmmm`, and the half of the earth.
fn degrees([text, half]: [&str; 2], [positive, negative]: [&str; 2]) -> Result<f64, Refusal> {
    let wanted = || {
        Refusal::new(
            Reason::InvalidSentence,
            format!("\"{text},{half}\": ddmm.mmmm,{positive} or {negative} is wanted"),
        )
    };
    let point = text.find('.').unwrap_or(text.len());
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if !(3..=5).contains(&point) || !plain {
        return Err(wanted());
    }
    let (whole, minutes) = text.split_at(point - 2);
    let (whole, minutes): (f64, f64) = whole
        .parse()
        .ok()
        .zip(minutes.parse().ok())
        .filter(|(_, minutes)| *minutes < 60.0)
        .ok_or_else(wanted)?;
    let degrees = whole + minutes / 60.0;
    if half == positive {
        Ok(degrees)
    } else if half == negative {
        Ok(-degrees)
    } else {
        Err(wanted())
    }
}

/// `ddmmyy`, as its midnight. Two digits of a year: GPS begins in 1980, so 80 to 99 are of that
/// century.
fn day_ms(date: &str) -> Result<i64, Refusal> {
    let read = || {
        let parts = [date.get(..2)?, date.get(2..4)?, date.get(4..6).filter(|_| date.len() == 6)?];
        let [day, month, year] = parts;
        let century = if digits(year)? < 80 { "20" } else { "19" };
        midnight(&format!("{century}{year}"), month, day)
    };
    read().ok_or_else(|| Refusal::new(Reason::BadTs, format!("date \"{date}\": ddmmyy is wanted")))
}

fn midnight(year: &str, month: &str, day: &str) -> Option<i64> {
    let [year, month, day] = [digits(year)?, digits(month)?, digits(day)?];
    let day = chrono::NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, day)?;
    Some(day.and_time(chrono::NaiveTime::MIN).and_utc().timestamp_millis())
}

/// `hhmmss.sss` in milliseconds. A leap second is the second after it.
fn time_ms(time: &str) -> Result<i64, Refusal> {
    let read = || {
        let [hour, minute, second] =
            [digits(time.get(..2)?)?, digits(time.get(2..4)?)?, digits(time.get(4..6)?)?];
        let fraction = match time.get(6..)? {
            "" | "." => 0,
            fraction => milliseconds(fraction.strip_prefix('.')?)?,
        };
        let is_time = hour < 24 && minute < 60 && second <= 60;
        is_time.then(|| i64::from((hour * 60 + minute) * 60 + second) * 1_000 + i64::from(fraction))
    };
    read()
        .ok_or_else(|| Refusal::new(Reason::BadTs, format!("time \"{time}\": hhmmss.ss is wanted")))
}

fn digits(text: &str) -> Option<u32> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

fn milliseconds(fraction: &str) -> Option<u32> {
    digits(fraction.get(..1)?)?;
    let three: String = fraction.chars().chain("00".chars()).take(3).collect();
    digits(&three).filter(|_| fraction.bytes().all(|byte| byte.is_ascii_digit()))
}
