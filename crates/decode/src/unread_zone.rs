//! Checks the zone that a payload states beside its time, such as `"tz":"America/New_York"` or
//! `"is_utc":false`. No format reads such a member, so a point is rejected if the stated zone
//! contradicts the configured one. A configured offset or UTC is not compared.

use jiff::tz::TimeZone;

use super::date_words::{in_english, is_abbreviation, zone_example};
use super::field_names::normalised;
use super::hemisphere::is_parent;
use super::json::{Scalar, is_unset, number};
use super::keep::{Value, visit_values};
use super::refusal::{Refusal, refuse};
use super::time::{Local, Zone, parse_offset};
use super::unread_announced::check_time_scale;
use crate::position::Timestamp;
use crate::reject::Reason;

/// Names of flags that state that the time is in UTC.
const UTC_FLAGS: [&str; 6] = ["utc", "isutc", "timeisutc", "tsisutc", "timeutc", "tsutc"];
/// Names of zones, and parts of such names.
const ZONES: [&str; 3] = ["tz", "tzname", "tzid"];
const ZONE_PARTS: [&str; 5] = ["timezone", "utcoffset", "gmtoffset", "tzoffset", "offsetutc"];
/// Words for a zone in languages other than English.
const TRANSLATIONS: [&str; 17] = [
    "zeitzone",
    "zonahoraria",
    "husohorario",
    "fuseau",
    "fusohorário",
    "fusohorario",
    "fusoorario",
    "tijdzone",
    "tidszon",
    "tidssone",
    "strefaczasowa",
    "časovépásmo",
    "saatdilimi",
    "часовойпояс",
    "时区",
    "時區",
    "タイムゾーン",
];

/// Returns whether a name names a zone in a language other than English. `name`: in lower case,
/// without spaces and marks between its parts.
#[must_use]
pub fn is_zone_in_other_language(name: &str) -> bool {
    TRANSLATIONS.iter().any(|word| name.contains(word))
}

/// Checks the time of a point against members that state its time scale or its zone.
///
/// # Errors
/// The time ends in `Z`, but a flag such as `"is_utc":false` states that the time is not in UTC. Or
/// the time does not end in `Z`, and a member names a time scale that is ahead of UTC, such as GPS.
#[cold]
pub(super) fn check_utc_flag(json: &[u8], ts: &Scalar<'_>) -> Result<(), Refusal> {
    check_time_scale(json, ts, is_parent)?;
    let Some(ts) = ts.as_text().filter(|ts| ts.trim_end().ends_with(['Z', 'z'])) else {
        return Ok(());
    };
    let mut flag = None;
    each_own_member(json, &mut |path, name, value| {
        // `"utc":0` may be an offset, and `"time_utc":0` a time.
        let is_flag = UTC_FLAGS.contains(&name) && (name.contains("is") || value != "0");
        if flag.is_none() && is_flag && is_unset(value) {
            flag = Some(format!("{path:.40} is {value}, but the time {ts:.40} is in UTC"));
        }
    });
    let remedy = "which is right? Send a local time with its offset, such as +02:00";
    flag.map_or(Ok(()), |flag| refuse(Reason::BadTs, format!("{flag}: {remedy}")))
}

/// Checks a point whose time was read in the configured zone, because the time has no offset. Does
/// not check an offset or UTC: some devices send the zone of their display beside times in UTC.
///
/// # Errors
/// A member of the point states a zone that contradicts the configured one.
#[inline]
pub(super) fn check_zone(
    json: &[u8],
    local: &Local,
    text: &str,
    ts: Timestamp,
) -> Result<(), Refusal> {
    match &local.zone {
        Some(zone)
            if !text.ends_with(['Z', 'z'])
                && is_named_after_place(zone)
                && may_state_zone(json) =>
        {
            check_stated_zone(json, zone, (local, text), ts)
        }
        Some(_) | None => Ok(()),
    }
}

/// Returns whether the JSON may contain the name of a zone or of a flag of UTC.
fn may_state_zone(json: &[u8]) -> bool {
    json.windows(3).any(|part| {
        let [a, b, c] = [part[0] | 0x20, part[1] | 0x20, part[2] | 0x20];
        matches!([a, b, c], [b't', b'z', _] | [b'o', b'n', b'e'] | [b'u', b't', b'c'])
            || matches!([a, b, c], [b'g', b'm', b't'] | [b'f', b'u', b's'] | [b's', b't', b'r'])
            || matches!([a, b, c], [b'z', b'o', b'n'] | [b'h', b'u', b's'] | [b's', b'a', b'a'])
            || part[0] >= 0x80
    })
}

#[cold]
fn check_stated_zone(
    json: &[u8],
    zone: &Zone,
    (local, text): (&Local, &str),
    ts: Timestamp,
) -> Result<(), Refusal> {
    let Ok(at) = jiff::Timestamp::from_millisecond(ts.unix_ms()) else { return Ok(()) };
    let mut other = None;
    each_own_member(json, &mut |path, name, value| {
        if other.is_none() && is_other_zone(name, value, zone.time_zone(), at) {
            other = Some((path.to_owned(), value.to_owned()));
        }
    });
    let Some((path, value)) = other else { return Ok(()) };
    if states_offset(local, text) {
        return Ok(());
    }
    refuse(
        Reason::BadTs,
        format!(
            "the time {text:.40} has no offset and is read in {}, but {path:.40} is {value:.40}: \
             which is right? Send the time with its offset, or change `zone`, `ts_zone` or --zone",
            zone.name()
        ),
    )
}

/// Returns whether a time states its offset, so that it needs no zone.
#[cold]
pub(super) fn states_offset(local: &Local, text: &str) -> bool {
    (Local { zone: None, ..local.clone() }).unix_ms(text).is_ok()
}

/// Calls `each` with the path, the normalised name and the value of each member that describes the
/// point itself.
fn each_own_member(json: &[u8], each: &mut dyn FnMut(&str, &str, &str)) {
    visit_values(json, &[], &mut |path, value| {
        let Value::Scalar(value) = value else { return };
        let mut names = path.rsplit('/');
        let mut name = normalised(names.next().unwrap_or_default());
        // In `timezone/name`, `tz/id` and `timezone/offset`, the object has the name of a zone.
        if let Some((parent, rest)) = path.rsplit_once('/').map(|(parents, _)| {
            parents.rsplit_once('/').map_or((parents, ""), |(rest, parent)| (parent, rest))
        }) && is_zone_name(&normalised(parent))
            && ["name", "id", "offset", "iana", "value"].contains(&&*name)
            // A numeric id belongs to the sender's database, and is not a zone.
            && !(name == "id" && value.trim().parse::<f64>().is_ok())
        {
            name = normalised(parent);
            names = rest.rsplit('/');
        }
        if names.all(|name| name.is_empty() || is_parent(name)) {
            each(path, &name, value.trim());
        }
    });
}

/// Returns whether a normalised name names a zone.
fn is_zone_name(name: &str) -> bool {
    ZONES.contains(&name)
        || ZONE_PARTS.iter().any(|part| name.contains(part))
        || is_zone_in_other_language(name)
}

/// Checks the zone that the object around an array of points states. `zone`: the configured zone.
///
/// # Errors
/// The object names a zone whose offset differs from the offset of `zone` in winter or in summer.
/// Or the object states an offset, an abbreviation or a flag of UTC that is wrong both in winter
/// and in summer.
#[cold]
pub(super) fn check_zone_of_enclosing(enclosing: &[u8], zone: &Zone) -> Result<(), Refusal> {
    /// Noon on 15 January and on 15 July 2026, UTC: once in winter, once in summer.
    const TIMES: [i64; 2] = [1_768_478_400, 1_784_116_800];
    if !is_named_after_place(zone) {
        return Ok(());
    }
    // The names in a file may contain bytes that are not UTF-8.
    let enclosing = String::from_utf8_lossy(enclosing);
    let mut other = None;
    each_own_member(enclosing.as_bytes(), &mut |path, name, value| {
        let is_other = |seconds: &i64| {
            let at = jiff::Timestamp::from_second(*seconds);
            at.is_ok_and(|at| is_other_zone(name, value, zone.time_zone(), at))
        };
        // An offset need be right only in winter or in summer.
        let is_place = value.contains('/');
        let differs =
            if is_place { TIMES.iter().any(is_other) } else { TIMES.iter().all(is_other) };
        if other.is_none() && differs {
            other = Some((path.to_owned(), value.to_owned()));
        }
    });
    let Some((path, value)) = other else { return Ok(()) };
    refuse(
        Reason::BadTs,
        format!(
            "{path:.40} is {value:.40}, but times without an offset are read in {}: which is \
             right? Change `zone`, `ts_zone` or --zone; leave it out if every time has its offset",
            zone.name()
        ),
    )
}

/// Returns whether a zone is named after a place, as an offset and UTC are not.
fn is_named_after_place(zone: &Zone) -> bool {
    zone.name().contains('/') && !zone.name().starts_with("Etc/")
}

/// Returns whether a member states a zone that contradicts `given` at this instant.
fn is_other_zone(name: &str, value: &str, given: &TimeZone, at: jiff::Timestamp) -> bool {
    let seconds = given.to_offset(at).seconds();
    if UTC_FLAGS.contains(&name) {
        let is_set = ["true", "yes"].iter().any(|set| value.eq_ignore_ascii_case(set))
            || value == "1" && name.contains("is");
        return is_set && seconds != 0;
    }
    let is_zone = is_zone_name(name);
    if !is_zone && name != "zone" {
        return false;
    }
    if value.contains('/')
        && let Ok(stated) = TimeZone::get(value)
    {
        return stated.to_offset(at).seconds() != seconds;
    }
    // `zone` may also mean an area of the fleet, by name or number.
    if !is_zone {
        return false;
    }
    if let Some(number) = number(value).and_then(|number| number.as_f64())
        && !value.starts_with('+')
    {
        return is_other_offset(number, seconds);
    }
    if let Some(stated) = parse_offset(value) {
        return stated != seconds;
    }
    is_abbreviation(value) && !zone_example(value).is_empty() && !uses(given, in_english(value), at)
}

/// Returns whether a number of hours, minutes or seconds is the offset of another zone. Returns
/// `false` for 0, which may mean that the device has no zone.
fn is_other_offset(number: f64, seconds: i32) -> bool {
    let is_multiple = |step: f64, max: f64| number % step == 0.0 && number.abs() <= max;
    let may_be =
        is_multiple(0.25, 14.0) || is_multiple(15.0, 840.0) || is_multiple(900.0, 50_400.0);
    // JavaScript's offset has the opposite sign: it is the minutes from local time to UTC.
    let is_same = |factor: f64| (number * factor - f64::from(seconds)).abs() < 1.0;
    // `0900` is nine hours.
    let clock = (number / 100.0).trunc() * 3_600.0 + number % 100.0 * 60.0;
    let is_clock = (clock - f64::from(seconds)).abs() < 1.0;
    may_be && number != 0.0 && !is_clock && ![3_600.0, 60.0, 1.0, -60.0].into_iter().any(is_same)
}

/// Returns whether a zone uses an abbreviation in winter or in summer. Many people write EST all
/// year.
fn uses(zone: &TimeZone, abbreviation: &str, at: jiff::Timestamp) -> bool {
    const HALF_A_YEAR: i64 = 183 * 86_400;
    let other = at.checked_add(jiff::SignedDuration::from_secs(HALF_A_YEAR)).unwrap_or(at);
    [at, other].iter().any(|at| zone.to_offset_info(*at).abbreviation() == abbreviation)
}

/// Returns whether a string is a date and a time of day without a zone.
#[must_use]
pub fn lacks_zone(text: &str) -> bool {
    let is_read = |zone| Local { zone, pattern: None }.unix_ms(text).is_ok();
    !is_read(None) && is_read(Some(Zone::utc()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_of_a_zone_passes_the_first_check() {
        for name in TRANSLATIONS.iter().chain(&ZONES).chain(&ZONE_PARTS).chain(&UTC_FLAGS) {
            assert!(may_state_zone(format!("\"{name}\"").as_bytes()), "{name}");
        }
    }

    #[test]
    fn time_lacks_a_zone_if_only_its_zone_is_missing() {
        for text in ["2026-11-26T09:01:00", "Nov 26, 2026, 10:15 AM", "26.11.2026 10:15"] {
            assert!(lacks_zone(text), "{text}");
        }
        for text in [
            "20261126T090100+0200",
            "2026-11-26T09:01:00 (UTC+02:00)",
            "Thu Nov 26 09:01:00 +0200 2026",
            "2026-11-26T09:01:00\u{2212}02:00",
            "2026-11-26T09:01:00[Europe/Berlin]",
            "2026-11-26T09:01:00 EST",
            "1795770000",
            "2026-11-26",
            "09:01:00",
            "03/04/2026 10:15",
            "n/a 0",
            "",
        ] {
            assert!(!lacks_zone(text), "{text}");
        }
    }
}
