//! Finds a time under a name that the format does not read. If the format has a `ts`, and a point
//! has only such a time, the point is rejected: otherwise, milepost would store the time of receipt
//! instead of the time of the fix.
//!
//! The value decides whether a member is a time. A time within a day of the receipt counts under
//! any name, except names of other times, such as `expires_at`. An older time, or a part of a time,
//! counts only under a name of a time.

use super::age::{DAY_MS, EPOCHS};
use super::epoch::{epoch_ms_from_float, epoch_ms_from_integer, rounded};
use super::exponent;
use super::field_names::{TIME_NAMES, TIME_WORDS, normalised, words};
use super::hemisphere::is_parent;
use super::json::{Scalar, number};
use super::keep::{Origin, Value, visit_values};
use super::reader::{as_text, elements, members};
use super::refusal::{Refusal, refuse};
use super::schema::Schema;
use super::time::{is_time_of_day, may_be_time};
use super::unit::TimeUnit;
use super::unread_age::stated_age;
use crate::position::Timestamp;
use crate::reject::Reason;

/// Names of times in all formats.
const NAMES: [&str; 12] =
    ["date", "when", "at", "t", "ts", "unix", "clock", "datum", "zeit", "fecha", "hora", "heure"];
/// Ends of names of times in all formats, such as `recordedat` and `gpsTimestamp`.
const ENDINGS: [&str; 6] = ["time", "stamp", "utc", "tst", "epoch", "edat"];
/// Names of the inner member if a time is an object, such as
/// `{"createdAt":{"_seconds":1795000000}}`. The libraries of Firestore, protobuf and MongoDB write
/// such objects.
const INNER_NAMES: [&str; 5] = ["seconds", "$date", "$numberlong", "value", "iso"];
/// Beginnings of words that name a time other than that of the fix.
const OTHER_TIMES: [&str; 21] = [
    "expir",
    "valid",
    "until",
    "next",
    "boot",
    "reboot",
    "start",
    "restart",
    "build",
    "install",
    "firmware",
    "fw",
    "version",
    "release",
    "updatecheck",
    "uptime",
    "duration",
    "elapsed",
    "eta",
    "due",
    "deadline",
];
/// Ends of names of numbers, such as ids and counters, whose value may look like a time.
const IDS: [&str; 4] = ["id", "seq", "nonce", "counter"];
/// Names of a time of day, as [`bare_name`] returns them: without words such as `gps`.
const CLOCK_NAMES: [&str; 10] =
    ["time", "utc", "t", "clock", "hora", "zeit", "uhrzeit", "heure", "tod", "timeofday"];
/// Words in names of a date.
const DATE_NAMES: [&str; 4] = ["date", "datum", "fecha", "day"];
/// Maximum number of values of a point that are checked under any name. Further values are checked
/// only under a name of a time, so a point with thousands of strings does not delay others.
const VALUES_MAX: usize = 256;
/// A value under a name of a time counts only within this distance from the time of receipt.
const YEAR_MS: i64 = 366 * DAY_MS;
const WEEK_S: f64 = 604_800.0;
/// Start of the GPS time scale, 1980-01-06, in Unix seconds.
const GPS_EPOCH_S: f64 = 315_964_800.0;
/// End of errors about an unread time: how to store the time of receipt on purpose.
const WITHOUT_TS: &str = "; a format without ts stores the time of receipt";

/// Returns the substitute for a missing `ts`: in milepost's own format, the value under another
/// usual name of the time; otherwise `Missing`.
///
/// # Errors
/// The point has a time that is not read, or states that its fix is older than the message.
#[cold]
pub(super) fn substitute_time<'j>(
    origin: &Origin<'j>,
    schema: &Schema,
    received_at: Timestamp,
) -> Result<Scalar<'j>, Refusal> {
    let json = origin.raw;
    let Some(ts) = &schema.ts_name else { return Ok(Scalar::Missing) };
    if schema.is_own {
        let mut members = members(json);
        members.retain(|(_, value)| !value.is_missing());
        for usual in TIME_NAMES {
            if let Some(at) = members.iter().position(|(name, _)| normalised(name) == usual) {
                let (name, value) = members.swap_remove(at);
                if exponent::may_have_exponent(&value) {
                    check_exponent(json, &name)?;
                }
                return Ok(value);
            }
        }
    }
    match unread_time(json, schema.is_own, &schema.used, received_at) {
        Some(UnreadTime { path, value, kind }) => {
            let problem = match kind {
                Kind::Whole => "is {value}: rename it, or map it with [formats.NAME]",
                Kind::TimeOfDay => {
                    "is the time of day {value}: map it as ts, and its date as ts_date, with \
                     [formats.NAME]"
                }
                Kind::Part => {
                    "is {value}, a part of a time: send the time in one field, or map date and \
                     time of day as ts_date and ts with [formats.NAME]"
                }
            };
            let problem = problem.replace("{value}", &format!("{value:.40}"));
            let detail = format!("there is no {ts}, but {path:.60} {problem}{WITHOUT_TS}");
            refuse(Reason::BadTs, detail)
        }
        None => match stated_age(origin, &schema.keep) {
            Some((path, value)) => refuse(
                Reason::BadTs,
                format!(
                    "there is no {ts}, and {path:.40} is {value:.20}, so the place is older than \
                     its message: send the time of the fix, or store the time of receipt with \
                     keep = [\"{path:.40}\"] (import: --keep)"
                ),
            ),
            None => Ok(Scalar::Missing),
        },
    }
}

/// Returns the error for points without a time if the object around the points has one.
#[cold]
pub(super) fn refuse_outer_time(unread: &UnreadTime, ts: &str) -> Refusal {
    let UnreadTime { path, value, .. } = unread;
    Refusal::new(
        Reason::BadTs,
        format!(
            "there is no {ts} in the point, but {path:.60} beside the points is {value:.40}: send \
             the time in each point{WITHOUT_TS}"
        ),
    )
}

/// Checks the member `name`, a time that may have been sent with an exponent.
///
/// # Errors
/// The exponent form has lost the last digits of the time.
fn check_exponent(json: &[u8], name: &str) -> Result<(), Refusal> {
    let mut checked = Ok(());
    visit_values(json, &[], &mut |path, value| {
        if let Value::Scalar(sent) = value
            && path == name
            && checked.is_ok()
        {
            checked = exponent::check_time_sent(sent, TimeUnit::BySize);
        }
    });
    checked
}

/// A time, or a part of one, that the format does not read.
#[derive(Debug, Clone)]
pub(super) struct UnreadTime {
    path: String,
    value: String,
    kind: Kind,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Whole,
    TimeOfDay,
    /// A date alone, or one of several numbers such as hour and minute.
    Part,
}

/// Returns the first time of day in an object, or else the first other time, or else the first part
/// of a time. `is_own`: the format is milepost's own; `used`: the paths that the format reads.
#[cold]
pub(super) fn unread_time(
    json: &[u8],
    is_own: bool,
    used: &[String],
    received_at: Timestamp,
) -> Option<UnreadTime> {
    let is_within = |ms: i64, max: i64| ms.abs_diff(received_at.unix_ms()) < max.unsigned_abs();
    let (mut time_of_day, mut time, mut date) = (None, None, None);
    let (mut parts, mut values) = (Parts::default(), 0);
    // Visit all paths, even those in `used`, because a used path begins at the format's root and
    // not at the top of the point. For example, the used path `time` is in the properties of a
    // Feature; a `time` beside the properties is another member.
    visit_values(json, &[], &mut |path, value| {
        let unread = |value: &str, kind| {
            let time = UnreadTime { path: path.to_owned(), value: value.to_owned(), kind };
            (!is_other_time(path)).then_some(time)
        };
        match value {
            Value::Scalar(text) => {
                let name = bare_name(path);
                values += 1;
                // `10h15` is a time of day in French; a number `t` may count anything.
                let is_clock = || {
                    (name != "t" || text.contains(':'))
                        && (is_time_of_day(text) || is_time_of_day(&text.replacen('h', ":", 1)))
                };
                if time_of_day.is_none() && CLOCK_NAMES.contains(&&*name) && is_clock() {
                    time_of_day = unread(text, Kind::TimeOfDay);
                }
                let is_near = || {
                    values <= VALUES_MAX
                        && is_time(text, |ms| is_within(ms, DAY_MS))
                        && !is_id(&name)
                        && !is_used(used, path)
                };
                let is_named = || {
                    is_time_name(path, is_own, used)
                        && (is_time(text, |ms| is_within(ms, YEAR_MS))
                            || is_since_other_epoch(text, |ms| is_within(ms, DAY_MS)))
                };
                if time.is_none() && (is_near() || is_named()) {
                    time = unread(text, Kind::Whole);
                }
                let is_named_date = || DATE_NAMES.iter().any(|word| name.contains(word));
                if date.is_none()
                    && is_named_date()
                    && is_date(text, |ms| is_within(ms, 2 * DAY_MS))
                {
                    date = unread(text, Kind::Part);
                }
                parts.put(&name, path, text);
            }
            Value::Array(array) => {
                let is_place = path.ends_with("geometry/coordinates");
                if time.is_none() && (is_place || is_time_name(path, is_own, used)) {
                    let texts = times_in_array(array, is_place);
                    if texts.iter().any(|text| is_time(text, |ms| is_within(ms, YEAR_MS))) {
                        time = unread(array, Kind::Whole);
                    }
                }
            }
        }
    });
    let in_parts = || parts.time(|ms| is_within(ms, YEAR_MS));
    time_of_day.or(time).or(date).or_else(in_parts)
}

/// Returns whether `value` may be a time that `is_near` accepts. `is_near` takes Unix milliseconds.
fn is_time(value: &str, is_near: impl Fn(i64) -> bool) -> bool {
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    match number(value).and_then(|number| number.as_f64()) {
        Some(number) if is_near(epoch_ms_from_float(number)) => true,
        // Twelve digits may be a date and a time.
        Some(number) => number >= 1e11 && may_be_time(value, is_near),
        None => {
            let hex = value.strip_prefix("0x").and_then(|hex| i64::from_str_radix(hex, 16).ok());
            let is_hex_near = || hex.is_some_and(|number| is_near(epoch_ms_from_integer(number)));
            is_hex_near() || digits >= 8 && may_be_time(value, &is_near)
        }
    }
}

/// Returns whether a number counts from an epoch other than 1970, such as the epoch of GPS.
fn is_since_other_epoch(value: &str, is_near: impl Fn(i64) -> bool) -> bool {
    let ms = number(value).and_then(|number| number.as_f64()).map(epoch_ms_from_float);
    let is_near_with_epoch =
        |ms: i64| EPOCHS.iter().any(|(seconds, _)| is_near(ms.saturating_add(seconds * 1_000)));
    ms.is_some_and(is_near_with_epoch)
}

/// Returns whether `value` may be a date without a time of day, in any order of day, month and
/// year. `is_near` must accept noon of that day.
fn is_date(value: &str, is_near: impl Fn(i64) -> bool) -> bool {
    value.len() <= 20 && may_be_time(&format!("{value} 12:00:00"), is_near)
}

/// Returns whether the path, or its end, is one that the format reads.
fn is_used(used: &[String], path: &str) -> bool {
    let rest = |used: &String| path.strip_suffix(used.as_str());
    used.iter().filter_map(rest).any(|rest| rest.is_empty() || rest.ends_with('/'))
}

/// Returns whether `name` is that of an id or a counter, whose value may look like a time.
fn is_id(name: &str) -> bool {
    IDS.iter().any(|end| name.ends_with(end))
}

/// Numbers that together state a time, such as hour and minute, with their paths.
#[derive(Default)]
struct Parts([Option<(String, f64)>; 7]);

impl Parts {
    /// Names of the parts by slot.
    const NAMES: [&[&str]; 7] = [
        &["year"],
        &["month"],
        &["day"],
        &["hour"],
        &["minute", "min"],
        &["week", "wn"],
        &["tow", "itow", "sow", "towms", "tows"],
    ];

    fn put(&mut self, name: &str, path: &str, value: &str) {
        let slot = Self::NAMES.iter().position(|names| names.contains(&name));
        let number = || number(value).and_then(|number| number.as_f64());
        if let Some(slot) = slot.filter(|_| !is_other_time(path))
            && let Some(number) = number()
        {
            self.0[slot].get_or_insert((path.to_owned(), number));
        }
    }

    /// Returns one of the parts if together they state a time that `is_near` accepts.
    fn time(&self, is_near: impl Fn(i64) -> bool) -> Option<UnreadTime> {
        let [year, month, day, hour, minute, week, tow] =
            self.0.each_ref().map(|part| part.as_ref().map(|(_, number)| *number));
        let date = year.zip(month).zip(day).map(|((year, month), day)| {
            is_time(&format!("{year:04}-{month:02}-{day:02} 12:00:00"), &is_near)
                || is_time(&format!("20{year:02}-{month:02}-{day:02} 12:00:00"), &is_near)
        });
        let clock = hour
            .zip(minute)
            .map(|(hour, minute)| (0.0..24.0).contains(&hour) && (0.0..60.0).contains(&minute));
        let gps = week.zip(tow).map(|(week, tow)| {
            // The time of week may be in seconds or in milliseconds.
            let tow_s = if tow < WEEK_S { tow } else { tow / 1e3 };
            // Many receivers send only the last ten bits of the week.
            let unix_s =
                |rollovers: f64| (week + 1_024.0 * rollovers) * WEEK_S + tow_s + GPS_EPOCH_S;
            [0.0, 1.0, 2.0].iter().any(|rollovers| is_near(rounded(unix_s(*rollovers) * 1e3)))
        });
        let slot = match (date, clock, gps) {
            (Some(true), _, _) => 0, // the year
            // Ignore the hour and the minute if a date that is not near is beside them: the clock
            // of the device was never set.
            (None, Some(true), _) => 3,
            (_, _, Some(true)) => 5, // the week
            _ => return None,
        };
        let (path, value) = self.0[slot].clone()?;
        Some(UnreadTime { path, value: value.to_string(), kind: Kind::Part })
    }
}

/// Returns the strings in an array that may be a time:
///
/// - the first element;
/// - all elements, joined by spaces;
/// - a date and a time of day, if the array is like `[2026,11,27,9,0]`, as Java's Jackson writes.
///
/// `is_place`: the array holds coordinates, so only the fourth element may be a time.
fn times_in_array(json: &str, is_place: bool) -> Vec<String> {
    const ELEMENTS_MAX: usize = 8;
    let Some((values, count)) = elements(json.as_bytes(), ELEMENTS_MAX) else { return Vec::new() };
    let is_scalar = |value: &&[u8]| !matches!(value, [b'[' | b'{' | b'n', ..]);
    if count > ELEMENTS_MAX || !values.iter().all(is_scalar) {
        return Vec::new();
    }
    let texts: Vec<&str> = values.iter().map(|value| as_text(value).trim_matches('"')).collect();
    if is_place {
        return texts.get(3).map(|text| (*text).to_owned()).into_iter().collect();
    }
    let mut times: Vec<String> = texts.first().map(|text| (*text).to_owned()).into_iter().collect();
    times.push(texts.join(" "));
    if let [year, month, day, hour, minute, rest @ ..] = &texts[..] {
        let second = rest.first().unwrap_or(&"0");
        times.push(format!("{year}-{month}-{day} {hour}:{minute}:{second}"));
    }
    times
}

/// Returns whether the last name in the path is the name of a time. If the last name is one of
/// [`INNER_NAMES`], the object around the member may have the name of the time instead. This object
/// must belong to the point, as `createdAt` and `gps/time` do; `battery/at` does not. `used`: the
/// paths that the format reads.
fn is_time_name(path: &str, is_own: bool, used: &[String]) -> bool {
    let mut object = path;
    while let Some((outer, inner)) = object.rsplit_once('/')
        && INNER_NAMES.contains(&&*normalised(inner))
    {
        object = outer;
    }
    let is_of_point = || {
        let Some((parent, _)) = object.rsplit_once('/') else { return true };
        let is_beside = |path: &String| path.rsplit_once('/').is_some_and(|(at, _)| at == parent);
        parent.split('/').all(is_parent) || used.iter().any(is_beside)
    };
    let is_named_around = || object != path && is_of_point() && has_time_name(object, is_own);
    has_time_name(path, is_own) || is_named_around()
}

/// Returns whether the last name in the path is the name of a time. In milepost's own format, a
/// word for a time counts anywhere in the path.
fn has_time_name(path: &str, is_own: bool) -> bool {
    let name = normalised(last(path));
    let name = name.strip_suffix("ms").unwrap_or(&name);
    let has_word = || is_own && TIME_WORDS.iter().any(|word| normalised(path).contains(word));
    NAMES.contains(&name)
        || ENDINGS.iter().any(|end| name.ends_with(end))
        || ["at", "ts"].contains(&words(path).last().map_or("", String::as_str))
        || normalised(path).ends_with("when/start")
        || has_word()
}

/// Returns whether the path names a time other than that of the fix, such as `boot_time`.
fn is_other_time(path: &str) -> bool {
    let words = words(path);
    let from = |at: usize| words[at..].concat();
    let begins = |at| OTHER_TIMES.iter().any(|word| from(at).starts_with(word));
    !normalised(path).ends_with("when/start") && (0..words.len()).any(begins)
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Returns the last name of a path without words such as `gps`, `local` and `utc`, which occur in
/// names of times and of dates. If only `utc` is left, returns `utc`.
fn bare_name(path: &str) -> String {
    let name = normalised(last(path));
    let bare = ["gps", "gnss", "fix", "local", "device"]
        .iter()
        .fold(name, |name, word| name.replacen(word, "", 1));
    let without_utc = bare.replacen("utc", "", 1);
    if without_utc.is_empty() { bare } else { without_utc }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_times_are_recognised() {
        for path in ["boot_time", "fw/buildDate", "expiresAt", "last_update_check", "eta", "uptime"]
        {
            assert!(is_other_time(path), "{path}");
        }
        for path in ["when/start", "meta/timestamp", "update_time", "checked_at", "gpsTime"] {
            assert!(!is_other_time(path), "{path}");
        }
    }
}
