//! Reads exports of Google's Timeline: `Records.json` and the semantic history of Takeout, and the
//! files that Android and iOS export. Visits and activities are not read: they have no track.

use std::collections::BTreeSet;
use std::io::Read;

use anyhow::Result;
use serde_json::Value;

use super::features::elements_of;
use super::read::Emit;
use super::record::Record;
use super::xml::GPX_TIME;

/// Names of the arrays whose elements hold fixes.
const LISTS: [&str; 4] = ["locations", "timelineObjects", "semanticSegments", "rawSignals"];

/// The names and values of a fix as strings. The names are those of GPX, and `accuracy`.
type Fix = Vec<(&'static str, String)>;

/// Emits each fix. Returns the names of the parts that are not read.
pub(super) fn timeline(input: impl Read, emit: Emit<'_>) -> Result<BTreeSet<String>> {
    let (mut record, mut unread) = (Record::default(), BTreeSet::new());
    elements_of(input, &LISTS, &mut |element, length, line| {
        let Ok(element) = serde_json::from_slice::<Value>(element) else {
            return emit(element, length, line);
        };
        for name in ["visit", "activity", "placeVisit", "timelineMemory", "wifiScan"] {
            if element.get(name).is_some() {
                unread.insert(name.to_owned());
            }
        }
        for fix in fixes(&element) {
            record.clear();
            fix.iter().for_each(|(name, value)| record.put(name, value));
            let payload = record.finish();
            emit(payload, payload.len(), line)?;
        }
        Ok(())
    })?;
    Ok(unread)
}

/// Returns the fixes of an element of one of the [`LISTS`], or of the array that iOS exports.
fn fixes(element: &Value) -> Vec<Fix> {
    let start = element["startTime"].as_str();
    let list = |path: &str| element.pointer(path).and_then(Value::as_array).into_iter().flatten();
    let path = list("/timelinePath").map(|point| {
        let time = to_text(&point["time"])
            .or_else(|| time_after(start?, &point["durationMinutesOffsetFromStartTime"]));
        let mut fix = parse_place(&point["point"]);
        fix.extend(time.map(|time| (GPX_TIME, time)));
        fix
    });
    let raw = list("/activitySegment/simplifiedRawPath/points").map(record_fix);
    let mut fixes: Vec<Fix> = path.chain(raw).collect();
    if element.get("latitudeE7").is_some() || element.get("longitudeE7").is_some() {
        fixes.push(record_fix(element));
    }
    if let Some(position) = element.get("position") {
        let mut fix = parse_place(&position["LatLng"]);
        fix.extend(other_fields(position));
        fixes.push(fix);
    }
    fixes
}

/// Returns the fix in a record of Takeout.
fn record_fix(point: &Value) -> Fix {
    let e7 = |names: [&str; 2]| {
        let number = names.iter().find_map(|name| point[*name].as_f64());
        // Google wrote some negative numbers as unsigned 32-bit integers.
        let signed = |number: f64| if number > 1.8e9 { number - 4_294_967_296.0 } else { number };
        number.map(|number| (signed(number) / 1e7).to_string())
    };
    let lat = e7(["latitudeE7", "latE7"]).map(|lat| ("lat", lat));
    let lng = e7(["longitudeE7", "lngE7"]).map(|lng| ("lon", lng));
    lat.into_iter().chain(lng).chain(other_fields(point)).collect()
}

/// Returns the fields other than the place.
fn other_fields(point: &Value) -> impl Iterator<Item = (&'static str, String)> {
    const NAMES: [(&str, &str); 11] = [
        ("timestamp", GPX_TIME),
        ("timestampMs", GPX_TIME),
        ("time", GPX_TIME),
        ("altitude", "ele"),
        ("altitudeMeters", "ele"),
        ("accuracy", "accuracy"),
        ("accuracyMeters", "accuracy"),
        ("velocity", "speed"),
        ("speedMetersPerSecond", "speed"),
        ("heading", "course"),
        ("source", "source"),
    ];
    NAMES.into_iter().filter_map(|(name, gpx_name)| Some((gpx_name, to_text(&point[name])?)))
}

/// Parses `52.5°, 13.4°` or `geo:52.5,13.4`, which may have a height and parameters (RFC 5870).
fn parse_place(point: &Value) -> Fix {
    let whole = point.as_str().unwrap_or_default();
    let uri = whole.strip_prefix("geo:").map(|uri| uri.split(';').next().unwrap_or_default());
    let point = uri.unwrap_or(whole).replace('°', "");
    let numbers: Vec<String> = point.split(',').map(|number| number.trim().to_owned()).collect();
    if numbers.len() > if uri.is_some() { 3 } else { 2 } {
        // The place has decimal commas. Emit it unchanged: the decoder rejects such a latitude.
        return vec![("lat", whole.to_owned())];
    }
    ["lat", "lon", "ele"].into_iter().zip(numbers).collect()
}

/// Returns a string or a number as text; `None` for other JSON values.
fn to_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Returns the time that is `minutes` after `start`; `None` if one of them is invalid, or the sum
/// is out of range.
fn time_after(start: &str, minutes: &Value) -> Option<String> {
    let minutes = to_text(minutes)?.parse::<i64>().ok()?;
    let start = start.parse::<jiff::Timestamp>().ok()?;
    let time = start.checked_add(jiff::SignedDuration::try_from_mins(minutes)?).ok()?;
    Some(time.to_string())
}
