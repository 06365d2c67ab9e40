//! Finds members of a point that the format does not read but that change what the point means: a
//! time, a hemisphere, a misspelt field.
//!
//! A point with a time and coordinates, and without a key that may be a hemisphere, costs nothing
//! here: the walks over a point's members run only for other points, and on request.

use std::collections::BTreeSet;

use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::driver::Driver;
use super::exponent;
use super::hemisphere::{hemisphere, normalised, says_negative};
use super::json::{Scalar, Text, number};
use super::keep::{Keep, Origin, Value, visit_values};
use super::refusal::{Refusal, refuse};
use super::schema::Schema;
use super::time::{epoch_ms_from_float, is_date_in_digits, is_time_of_day, may_be_time};
use super::unit::TimeUnit;
use crate::position::Timestamp;
use crate::reject::Reason;

/// Names of the time that milepost's own format reads, the preferred one first.
const TIME_NAMES: [&str; 6] = ["ts", "timestamp", "time", "datetime", "fixtime", "tst"];
/// Each field with its names in other formats.
const ALIASES: [(&str, &[&str]); 8] = [
    ("lat", &["latitude", "gpslat", "gpslatitude", "y"]),
    ("lng", &["lon", "long", "longitude", "gpslon", "gpslng", "gpslongitude", "x"]),
    ("ts", &TIME_NAMES),
    ("speed", &["velocity", "vel", "spd", "sog", "groundspeed"]),
    ("heading", &["course", "bearing", "cog", "hdg", "direction", "track"]),
    ("alt", &["altitude", "ele", "elevation", "height"]),
    ("acc", &["accuracy", "hacc", "horizontalaccuracy", "horizontal_accuracy"]),
    ("seq", &["sequence", "seqno", "counter"]),
];
/// Words in names of times.
const TIME_WORDS: [&str; 6] = ["time", "date", "stamp", "epoch", "utc", "when"];
/// Names under which devices send the time of a fix, besides [`TIME_NAMES`].
const FIX_TIME_NAMES: [&str; 34] = [
    "date",
    "when",
    "at",
    "t",
    "timeutc",
    "datetimeutc",
    "utcdatetime",
    "timestamputc",
    "gpsdatetime",
    "recordedat",
    "recordtime",
    "recordedtime",
    "capturedat",
    "measuredat",
    "observedat",
    "sampledat",
    "locatedat",
    "loggedat",
    "logtime",
    "locationtime",
    "loctime",
    "positiontime",
    "sampletime",
    "epochms",
    "utc",
    "utctime",
    "gpstime",
    "gpstimestamp",
    "devicetime",
    "timestampms",
    "timems",
    "createdat",
    "epoch",
    "unixtime",
];
/// Names under which devices send only the time of day, with the date in another field.
const TIME_OF_DAY_NAMES: [&str; 5] = ["time", "utctime", "gpstime", "timeutc", "fixtime"];
/// Maximum distance from the time of receipt, in milliseconds, up to which a value under such a
/// name counts as the time of the fix.
const PLAUSIBLE_MS: i64 = 366 * 86_400_000;

/// Returns the milepost field that `name` may be meant for.
pub fn meant(name: &str) -> Option<&'static str> {
    let name = normalised(name.rsplit('/').next().unwrap_or(name));
    let alias = ALIASES.iter().find(|(field, aliases)| *field == name || aliases.contains(&&*name));
    let near = || {
        let all = ALIASES.iter().flat_map(|(field, aliases)| {
            std::iter::once(*field).chain(aliases.iter().copied()).map(move |known| (*field, known))
        });
        all.filter(|(_, known)| known.len() >= 5).find(|(_, known)| distance_is_small(known, &name))
    };
    alias.map(|(field, _)| *field).or_else(|| near().map(|(field, _)| field))
}

/// Returns whether at most two letters differ, are missing or are added (Levenshtein distance).
fn distance_is_small(a: &str, b: &str) -> bool {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().abs_diff(b.len()) > 2 || b.len() < 4 {
        return false;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.iter().enumerate() {
        let mut above = row[0];
        row[0] = i + 1;
        for (j, right) in b.iter().enumerate() {
            let change = above + usize::from(left != right);
            above = row[j + 1];
            row[j + 1] = change.min(above + 1).min(row[j] + 1);
        }
    }
    row[b.len()] <= 2
}

/// Returns the first 256 members of an object with their names; repeated names are not merged.
fn members(json: &[u8]) -> Vec<(String, Scalar<'_>)> {
    struct Members<'m, 'a>(&'m mut Vec<(String, Scalar<'a>)>);
    impl<'de> Visitor<'de> for Members<'_, 'de> {
        type Value = ();

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            while let Some(key) = map.next_key::<Text<'de>>()? {
                if self.0.len() < 256 {
                    self.0.push((key.0.into_owned(), map.next_value()?));
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(())
        }
    }
    let mut found = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    // Keep the members that were found before an error.
    let _ = deserializer.deserialize_map(Members(&mut found));
    found
}

/// Returns the substitute for a missing `ts`: in milepost's own format, the value under another
/// usual name of the time; otherwise `Missing`.
///
/// # Errors
/// The point has a time under a name that is not read. The time of receipt, which would replace it,
/// would be wrong.
#[cold]
pub(super) fn substitute_time<'j>(
    json: &'j [u8],
    schema: &Schema,
    received_at: Timestamp,
) -> Result<Scalar<'j>, Refusal> {
    let Some(ts) = &schema.ts_name else { return Ok(Scalar::Missing) };
    if schema.is_own {
        let mut members = members(json);
        members.retain(|(_, value)| !value.is_missing());
        for known in TIME_NAMES {
            if let Some(at) = members.iter().position(|(name, _)| normalised(name) == known) {
                let (name, value) = members.swap_remove(at);
                if exponent::may_have_exponent(&value) {
                    check_exponent(json, &name)?;
                }
                return Ok(value);
            }
        }
    }
    match unread_time(json, schema.is_own, received_at) {
        Some(UnreadTime { path, value, is_time_of_day: true }) => refuse(
            Reason::BadTs,
            format!(
                "there is no {ts}, but {path:.60} is the time of day {value:.40}: map it as ts, and \
                 its date as ts_date, with [formats.NAME]"
            ),
        ),
        Some(UnreadTime { path, value, .. }) => refuse(
            Reason::BadTs,
            format!(
                "there is no {ts}, but {path:.60} is {value:.40}: rename it, or map it with \
                 [formats.NAME]"
            ),
        ),
        None => Ok(Scalar::Missing),
    }
}

/// Checks the time that a number under the name `name` states.
///
/// # Errors
/// The number has lost its last digits.
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

/// A time under a name that is not read.
#[derive(Debug, Clone)]
pub(super) struct UnreadTime {
    pub(super) path: String,
    pub(super) value: String,
    is_time_of_day: bool,
}

/// Returns the first time of day in an object or, if there is none, the first other time. Only
/// members with a name of a time count.
#[cold]
pub(super) fn unread_time(json: &[u8], is_own: bool, received_at: Timestamp) -> Option<UnreadTime> {
    let is_near = |ms: i64| ms.abs_diff(received_at.unix_ms()) < PLAUSIBLE_MS.unsigned_abs();
    let is_time = |value: &str| {
        let number = number(value).and_then(|number| number.as_f64()).map(epoch_ms_from_float);
        match number {
            Some(ms) if !is_date_in_digits(value) => is_near(ms),
            Some(_) | None => may_be_time(value, is_near),
        }
    };
    let (mut time_of_day, mut time) = (None, None);
    // Visit all paths, even those in `used`: they begin at the format's root, so a `time` next to
    // the properties of a Feature would be taken for the `time` in the properties.
    visit_values(json, &[], &mut |path, value| {
        let name = || normalised(path.rsplit('/').next().unwrap_or(path));
        let found = |value: &str, is_time_of_day| {
            Some(UnreadTime { path: path.to_owned(), value: value.to_owned(), is_time_of_day })
        };
        match value {
            Value::Scalar(text) => {
                if time_of_day.is_none()
                    && is_time_of_day(text)
                    && TIME_OF_DAY_NAMES.contains(&&*name())
                {
                    time_of_day = found(text, true);
                }
                if time.is_none() && is_time_name(path, is_own) && is_time(text) {
                    time = found(text, false);
                }
            }
            Value::Array(array) => {
                let is_place = path.ends_with("geometry/coordinates");
                if time.is_none() && (is_place || is_time_name(path, is_own)) {
                    let texts = times_in_array(array, is_place);
                    if texts.iter().any(|text| is_time(text)) {
                        time = found(array, false);
                    }
                }
            }
        }
    });
    time_of_day.or(time)
}

/// Returns the strings in which an array may state a time: its first element; all elements, joined
/// by spaces; and a date with a time of day, if the array is like `[2026,11,27,9,0]`, as Java's
/// Jackson writes it. `is_place`: the array holds coordinates, so only the fourth element may be a
/// time.
fn times_in_array(json: &str, is_place: bool) -> Vec<String> {
    const ELEMENTS_MAX: usize = 8;
    let Ok(values) = serde_json::from_str::<Vec<&RawValue>>(json) else { return Vec::new() };
    let is_scalar = |value: &str| !value.starts_with(['[', '{', 'n']);
    if values.len() > ELEMENTS_MAX || !values.iter().all(|value| is_scalar(value.get())) {
        return Vec::new();
    }
    let texts: Vec<&str> = values.iter().map(|value| value.get().trim_matches('"')).collect();
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

/// Returns whether the name at this path is one of a fix's time. In milepost's own format, devices
/// name their fields freely, so any name of a time counts. Devices of other formats may send other
/// times, too, so only names that refer to the fix count.
fn is_time_name(path: &str, is_own: bool) -> bool {
    let name = normalised(path.rsplit('/').next().unwrap_or(path));
    if !is_own {
        let is_feature_start = normalised(path).ends_with("when/start");
        return is_feature_start
            || TIME_NAMES.contains(&&*name)
            || FIX_TIME_NAMES.contains(&&*name);
    }
    let has_time_suffix =
        path.ends_with("_at") || path.ends_with("At") || name == "at" || name == "t";
    has_time_suffix || TIME_WORDS.iter().any(|word| normalised(path).contains(word))
}

/// Like [`hemisphere`], for the path of a member. The member's name may contain a `/`, as `N/S`
/// does.
fn hemisphere_in_path(path: &str) -> Option<usize> {
    let mut parts = path.rsplit('/');
    let name = parts.next().unwrap_or_default();
    hemisphere(name).or_else(|| hemisphere(&format!("{}{name}", parts.next()?)))
}

/// Checks a point of milepost's own format for hemispheres.
///
/// # Errors
/// A hemisphere is south or west, but the number of its coordinate is positive.
#[cold]
pub(super) fn check_hemispheres(json: &[u8], [lat, lng]: [&Scalar<'_>; 2]) -> Result<(), Refusal> {
    let degrees = [("lat", lat.as_f64()), ("lng", lng.as_f64())];
    for (name, value) in members(json) {
        let Some(coordinate) = hemisphere(&name) else { continue };
        let (field, degrees) = degrees[coordinate];
        let is_negative = value.as_text().is_some_and(|text| says_negative(text, coordinate));
        if let Some(degrees) = degrees.filter(|degrees| is_negative && *degrees > 0.0) {
            return refuse(
                Reason::WrongType,
                format!(
                    "{field} is {degrees}, and {name:.40} is {value}, which is not read in format \
                     milepost: send a sign, or map it as {field}_hemisphere in [formats.NAME]"
                ),
            );
        }
    }
    Ok(())
}

/// Checks a point of a mapping for hemispheres that the mapping does not read. `south` and `west`:
/// the names of the members that say south or west, from the format's pass.
///
/// # Errors
/// A hemisphere is south or west, but the number of its coordinate is positive.
pub(super) fn check_unnamed_hemispheres(
    [south, west]: [&Scalar<'_>; 2],
    [lat, lng]: [&Scalar<'_>; 2],
) -> Result<(), Refusal> {
    for (name, (field, degrees), says) in
        [(south, ("lat", lat), "south"), (west, ("lng", lng), "west")]
    {
        let Some(name) = name.as_text() else { continue };
        if let Some(degrees) = degrees.as_f64().filter(|degrees| *degrees > 0.0) {
            return refuse(
                Reason::WrongType,
                format!(
                    "{field} is {degrees}, and {name:.40} says {says}, which is not read: send a \
                     sign, or map it as {field}_hemisphere in [formats.NAME]"
                ),
            );
        }
    }
    Ok(())
}

/// Checks all unread fields of a point for hemispheres. Sets `has_hemisphere` if there is one, even
/// if it is north or east.
///
/// # Errors
/// A hemisphere is south or west, but the number of its coordinate is positive.
#[cold]
pub(super) fn check_unread_hemispheres(
    origin: &Origin<'_>,
    schema: &Schema,
    [lat, lng]: [&Scalar<'_>; 2],
    has_hemisphere: &mut bool,
) -> Result<(), Refusal> {
    let degrees = [("lat", lat.as_f64()), ("lng", lng.as_f64())];
    let mut checked = Ok(());
    visit_values(origin.raw, origin.root, &mut |path, value| {
        let Value::Scalar(value) = value else { return };
        let is_used = || schema.used.iter().any(|used| used == path);
        let Some(coordinate) = hemisphere_in_path(path).filter(|_| !is_used()) else { return };
        *has_hemisphere = true;
        let (field, degrees) = degrees[coordinate];
        let is_negative = says_negative(value, coordinate);
        if let Some(degrees) = degrees.filter(|degrees| is_negative && *degrees > 0.0)
            && checked.is_ok()
        {
            let at = [origin.root.join("/").as_str(), path].join("/");
            let at = at.trim_start_matches('/');
            checked = refuse(
                Reason::WrongType,
                format!(
                    "{field} is {degrees}, and {path:.40} is {value:.20}, which is not read: give \
                     --field {field}_hemisphere=/{at:.60}, or map it in [formats.NAME]"
                ),
            );
        }
    });
    checked
}

/// Extends the error for a missing field: by a similar name that the point has, or by all of its
/// names.
pub(super) fn hint(mut refusal: Refusal, json: &[u8], schema: &Schema) -> Refusal {
    let names: Vec<String> = members(json).into_iter().map(|(name, _)| name).collect();
    let missing =
        refusal.detail.split(' ').next().unwrap_or_default().trim_start_matches('/').to_owned();
    let near = names.iter().find(|name| {
        schema.is_own && meant(name) == Some(&*missing) && normalised(name) != missing
    });
    match near {
        Some(name) => {
            let hint = format!(
                "; {name:.40} is not read in format milepost: rename it to {missing}, or \
                 set `format`"
            );
            refusal.detail.push_str(&hint);
        }
        None if names.is_empty() => {}
        None => refusal.detail.push_str(&format!("; the names here are {}", names.join(", "))),
    }
    refusal
}

/// Adds the paths of a point's fields that are neither read nor kept to `unread`, up to 256.
pub(super) fn collect_unread(origin: &Origin<'_>, schema: &Schema, unread: &mut BTreeSet<String>) {
    const NAMES_MAX: usize = 256;
    if schema.keep == Keep::All || !origin.raw.starts_with(b"{") {
        return;
    }
    let driver = match &schema.driver {
        Driver::Payload(pointer) => pointer.path(),
        Driver::Topic(_) => String::new(),
    };
    let is_driver = |name: &str| {
        driver.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
    };
    let (kept, _) = schema.keep.collect(origin, &schema.used);
    visit_values(origin.raw, origin.root, &mut |name, value| {
        // A format may read an element of an array.
        let is_used = |used: &String| {
            let rest = used.strip_prefix(name);
            rest.is_some_and(|rest| {
                rest.is_empty() || matches!(value, Value::Array(_)) && rest.starts_with('/')
            })
        };
        let is_kept = kept.iter().any(|(kept, _)| kept == name);
        let is_time = schema.is_own && TIME_NAMES.contains(&&*normalised(name));
        if !is_kept
            && !is_time
            && !is_driver(name)
            && !schema.used.iter().any(is_used)
            && unread.len() < NAMES_MAX
        {
            unread.insert(name.to_owned());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_name_suggests_the_intended_field() {
        for (name, field) in [
            ("hedding", Some("heading")),
            ("accuracy", Some("acc")),
            ("Latitude", Some("lat")),
            ("gps_lat", Some("lat")),
            ("coords/altitude", Some("alt")),
            ("time_stamp", Some("ts")),
            ("longitud", Some("lng")),
            ("battery", None),
            ("hdop", None),
            ("sat", None),
            ("temp", None),
        ] {
            assert_eq!(meant(name), field, "{name}");
        }
    }
}
