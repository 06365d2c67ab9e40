//! NMEA 0183: RMC and GGA sentences of any talker, one or several lines a message. Knots, ddmm.mmmm, UTC.
//!
//! An RMC is a fix. A GGA of the same moment in the same message adds the altitude; alone it is a fix without a date, and so
//! undated. GGA gives metres above the sea and the sea's height above the ellipsoid: the altitude is their sum.

use crate::pipeline::decode::ignored::Ignored;
use crate::pipeline::decode::json::{Scalar, number};
use crate::pipeline::decode::keep::Origin;
use crate::pipeline::decode::point::Point;
use crate::pipeline::decode::points::Points;
use crate::pipeline::decode::refusal::{Refusal, refuse};
use crate::pipeline::decode::unit::SpeedUnit;
use crate::pipeline::reject::Reason;

/// Longer lines are no sentences: the standard allows 82.
const LINE_BYTES_MAX: usize = 256;

/// What is known of one moment.
struct Moment<'a> {
    time: &'a str,
    line: &'a str,
    lat: f64,
    lng: f64,
    rmc: Option<Rmc<'a>>,
    alt: Option<f64>,
}

struct Rmc<'a> {
    unix_ms: i64,
    knots: &'a str,
    course: &'a str,
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
    let mut last: Option<Moment<'_>> = None;
    for line in lines() {
        match sentence(line) {
            Ok(Sentence::Fix(moment)) => {
                last = Some(match last {
                    Some(before) => join(points, before, moment),
                    None => moment,
                });
            }
            Ok(Sentence::Ignored(kind)) => points.ignore(kind),
            Err(refusal) if count == 1 => return Err(refusal),
            Err(refusal) => points.refuse(line.as_bytes(), line.as_bytes(), refusal),
        }
    }
    last.into_iter().for_each(|moment| add(points, &moment));
    Ok(())
}

/// RMC and GGA of one moment are one fix; else the earlier one is complete.
fn join<'a>(points: &mut Points<'_>, before: Moment<'a>, next: Moment<'a>) -> Moment<'a> {
    let one_of_each = before.rmc.is_some() != next.rmc.is_some();
    if before.time != next.time || !one_of_each {
        add(points, &before);
        return next;
    }
    let alt = before.alt.or(next.alt);
    let rmc = if before.rmc.is_some() { before } else { next };
    Moment { alt, ..rmc }
}

fn add(points: &mut Points<'_>, moment: &Moment<'_>) {
    let Moment { line, lat, lng, rmc, alt, .. } = moment;
    let optional = |text: &str| {
        if text.is_empty() { Scalar::Missing } else { number(text).unwrap_or(Scalar::Other("no number")) }
    };
    let mut point = Point {
        lat: Scalar::Number((*lat).into()),
        lng: Scalar::Number((*lng).into()),
        alt: alt.map_or(Scalar::Missing, |alt| Scalar::Number(alt.into())),
        ..Point::default()
    };
    if let Some(Rmc { unix_ms, knots, course }) = rmc {
        point.ts = Scalar::Integer(*unix_ms);
        point.speed = optional(knots).times(SpeedUnit::Knots.metres_per_second());
        point.heading = optional(course);
    }
    if let Err(refusal) = points.add(&point, &Origin::whole(line.as_bytes())) {
        points.refuse(line.as_bytes(), line.as_bytes(), refusal);
    }
}

enum Sentence<'a> {
    Fix(Moment<'a>),
    Ignored(Ignored),
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
            let rmc = Rmc { unix_ms: unix_ms(date, time)?, knots: field(6), course: field(7) };
            let (lat, lng) =
                (degrees([field(2), field(3)], ["N", "S"])?, degrees([field(4), field(5)], ["E", "W"])?);
            Ok(Sentence::Fix(Moment { time, line, lat, lng, rmc: Some(rmc), alt: None }))
        }
        (5, Some("GGA")) if !matches!(field(5), "" | "0") => {
            let (lat, lng) =
                (degrees([field(1), field(2)], ["N", "S"])?, degrees([field(3), field(4)], ["E", "W"])?);
            let metres = |index| number(field(index)).and_then(|number| number.as_f64());
            let alt = metres(8).map(|above_sea| above_sea + metres(10).unwrap_or(0.0));
            Ok(Sentence::Fix(Moment { time: field(0), line, lat, lng, rmc: None, alt }))
        }
        (5, Some("RMC" | "GGA")) => Ok(Sentence::Ignored(Ignored::NoFix)),
        _ => Ok(Sentence::Ignored(Ignored::Sentence)),
    }
}

/// What is between `$` and `*`, if the checksum after it is right.
fn checked(line: &str) -> Result<&str, Refusal> {
    let invalid = || Refusal::new(Reason::InvalidSentence, "no sentence such as $GPRMC,…*hh");
    let body = line.strip_prefix(['$', '!']).filter(|_| line.len() <= LINE_BYTES_MAX).ok_or_else(invalid)?;
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

/// `ddmmyy` and `hhmmss.sss`. Two digits of a year: GPS begins in 1980, so 80 to 99 are of that century.
fn unix_ms(date: &str, time: &str) -> Result<i64, Refusal> {
    let refusal = || {
        Refusal::new(
            Reason::BadTs,
            format!("date \"{date}\", time \"{time}\": ddmmyy and hhmmss.ss are wanted"),
        )
    };
    let pair = |text: &str, at: usize| -> Option<u32> {
        let pair = text.get(at..at + 2).filter(|pair| pair.bytes().all(|byte| byte.is_ascii_digit()))?;
        pair.parse().ok()
    };
    let read = || {
        let (day, month, year) = (pair(date, 0)?, pair(date, 2)?, pair(date, 4)?);
        let year = if year < 80 { 2_000 + year } else { 1_900 + year };
        let (hour, minute, second) = (pair(time, 0)?, pair(time, 2)?, pair(time, 4)?);
        let fraction = match time.get(6..)? {
            "" | "." => 0,
            fraction => milliseconds(fraction.strip_prefix('.')?)?,
        };
        let day = chrono::NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, day)?;
        // A leap second is the second after it.
        let time = chrono::NaiveTime::from_hms_opt(hour, minute, second.min(59))?;
        let leap_ms = i64::from(second == 60) * 1_000;
        (date.len() == 6 && second <= 60)
            .then(|| day.and_time(time).and_utc().timestamp_millis() + leap_ms + i64::from(fraction))
    };
    read().ok_or_else(refusal)
}

fn milliseconds(digits: &str) -> Option<u32> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    let three: String = digits.chars().chain("00".chars()).take(3).collect();
    three.parse().ok().filter(|_| plain)
}
