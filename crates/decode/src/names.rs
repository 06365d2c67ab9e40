//! Finds unread members of a point that change the point's meaning, such as a hemisphere or a
//! misspelt field. `unread_time.rs` finds unread times, and `unread_unit.rs` finds unread units.
//!
//! A walk over all members of a point is slow. So this module walks only on request, and for
//! unusual points, such as a point without a time or with a key that may be a hemisphere.

use std::collections::BTreeSet;

use memchr::memmem;

use super::driver::Driver;
use super::field_names::{TIME_NAMES, normalised, suggested_field};
use super::hemisphere::{Side, coordinate, is_coordinate_with, is_parent, sides, sides_in_list};
use super::json::{Scalar, number};
use super::keep::{Keep, Origin, Value, visit_values};
use super::reader::members;
use super::refusal::{Refusal, refuse};
use super::schema::Schema;
use crate::reject::Reason;

/// Checks whether a message, in which the format has found no position, has a position under other
/// names.
///
/// # Errors
/// The message has a latitude and a longitude, by their names, and the two numbers are not both 0.
/// The text of the error ends with `remedy`.
#[cold]
pub(super) fn refuse_unread_position(json: &[u8], remedy: &str) -> Result<(), Refusal> {
    let is_in_json = |word: &str| memmem::find(json, word.as_bytes()).is_some();
    // If there is a backslash, an escape may hide the word.
    const WORDS: [&str; 8] = ["lat", "Lat", "LAT", "\\", "reite", "ирот", "纬", "緯"];
    if !WORDS.into_iter().any(is_in_json) {
        return Ok(());
    }
    let mut found = [None, None];
    visit_values(json, &[], &mut |path, value| {
        if let Value::Scalar(text) = value
            && let Some(index) = coordinate_at(path)
            && let Some(degrees) = number(text).and_then(|number| number.as_f64())
        {
            found[index] = Some((path.to_owned(), degrees));
        }
    });
    match found {
        [Some((lat_path, lat)), Some((lng_path, lng))] if (lat, lng) != (0.0, 0.0) => refuse(
            Reason::MissingField,
            format!(
                "{lat_path:.60} is {lat} and {lng_path:.60} is {lng}, which are not read: {remedy}"
            ),
        ),
        _ => Ok(()),
    }
}

/// Checks a point whose lat and lng are whole degrees. Other members may hold the minutes.
///
/// # Errors
/// The point has minutes, seconds or a fraction that the format does not read.
#[cold]
pub(super) fn check_minutes(json: &[u8]) -> Result<(), Refusal> {
    const PARTS: [&str; 12] = [
        "min",
        "mins",
        "minute",
        "minutes",
        "sec",
        "second",
        "seconds",
        "frac",
        "fraction",
        "decimal",
        "decimals",
        "billionths",
    ];
    let (mut found, mut is_box) = (None, false);
    visit_values(json, &[], &mut |path, value| {
        let Value::Scalar(text) = value else { return };
        let mut names = path.rsplit('/');
        let name = names.next().unwrap_or_default();
        let in_parent = format!("{}{name}", names.next().unwrap_or_default());
        let ends_with =
            |ends: &[&str]| is_coordinate_with(name, ends) || is_coordinate_with(&in_parent, ends);
        // `lat_min` and `lat_max` are the sides of a box.
        is_box |= ends_with(&["max", "maximum"]);
        let is_zero = || number(text).and_then(|number| number.as_f64()) == Some(0.0);
        if found.is_none() && ends_with(&PARTS) && !is_zero() {
            found = Some((path.to_owned(), text.to_owned()));
        }
    });
    match found {
        Some((path, text)) if !is_box => refuse(
            Reason::WrongType,
            format!(
                "lat and lng are whole degrees, and {path:.60} is {text:.20}, which is not read: \
                 send degrees with decimals"
            ),
        ),
        Some(_) | None => Ok(()),
    }
}

/// Returns the hemispheres of lat and of lng that the member at this path states. The member's name
/// may contain a `/`, as `N/S` does.
fn sides_at(path: &str, value: &Value<'_>) -> [Option<Side>; 2] {
    let value = match value {
        Value::Scalar(value) => value,
        Value::Array(json) => return sides_in_list(path, json),
    };
    let mut parts = path.rsplit('/');
    let name = parts.next().unwrap_or_default();
    match (sides(name, value), parts.next()) {
        ([None, None], Some(parent)) => sides(&format!("{parent}/{name}"), value),
        (sides, _) => sides,
    }
}

/// Checks a point of milepost's own format for hemispheres.
///
/// # Errors
/// A hemisphere is south, west or unclear, but the number of its coordinate is positive.
#[cold]
pub(super) fn check_hemispheres(json: &[u8], [lat, lng]: [&Scalar<'_>; 2]) -> Result<(), Refusal> {
    let mut checked = Ok(());
    visit_values(json, &[], &mut |path, value| {
        let (sides, text) = match value {
            Value::Scalar(text) => (sides(path, text), format!("\"{text:.20}\"")),
            Value::Array(json) => (sides_in_list(path, json), format!("{json:.20}")),
        };
        // Use the whole path as the name, such as `N/S` or `hemisphere/lat`: a hemisphere in
        // another object may belong to another place.
        if let Some((field, degrees)) = contradiction(sides, [lat, lng])
            && checked.is_ok()
        {
            checked = refuse(
                Reason::WrongType,
                format!(
                    "{field} is {degrees}, and {path:.40} is {text}, which is not read in \
                     format milepost: send a signed number, or set {field}_hemisphere in \
                     [formats.NAME]"
                ),
            );
        }
    });
    checked
}

/// Returns the name and the number of the first coordinate that is positive although its hemisphere
/// is south, west or unclear.
fn contradiction(
    sides: [Option<Side>; 2],
    degrees: [&Scalar<'_>; 2],
) -> Option<(&'static str, f64)> {
    ["lat", "lng"].into_iter().zip(degrees).zip(sides).find_map(|((field, degrees), side)| {
        let is_negative = side.is_some_and(|side| side != Side::Positive);
        let degrees = degrees.as_f64().filter(|degrees| is_negative && *degrees > 0.0)?;
        Some((field, degrees))
    })
}

/// Checks the unread hemispheres of a point. `south` and `west`: the names of the members that
/// state south and west. A name is missing if no member states that hemisphere.
///
/// # Errors
/// A hemisphere is south or west, but the number of its coordinate is positive.
pub(super) fn check_unmapped_hemispheres(
    [south, west]: [&Scalar<'_>; 2],
    [lat, lng]: [&Scalar<'_>; 2],
) -> Result<(), Refusal> {
    for (name, (field, degrees), side) in
        [(south, ("lat", lat), "south"), (west, ("lng", lng), "west")]
    {
        let Some(name) = name.as_text() else { continue };
        if let Some(degrees) = degrees.as_f64().filter(|degrees| *degrees > 0.0) {
            return refuse(
                Reason::WrongType,
                format!(
                    "{field} is {degrees}, and {name:.40} says {side}, which is not read: send a \
                     signed number, or set {field}_hemisphere in [formats.NAME]"
                ),
            );
        }
    }
    Ok(())
}

/// Searches all unread fields of a point for hemispheres, and for coordinates that show that lat
/// and lng are swapped. Sets `has_hemisphere` if it finds any of these fields, even a hemisphere
/// that is north or east.
///
/// # Errors
/// A hemisphere is south, west or unclear, but the number of its coordinate is positive. Or members
/// such as `latitude` and `longitude` show that the coordinates are swapped.
#[cold]
pub(super) fn check_unread_hemispheres(
    origin: &Origin<'_>,
    schema: &Schema,
    [lat, lng]: [&Scalar<'_>; 2],
    has_hemisphere: &mut bool,
) -> Result<(), Refusal> {
    let (mut checked, mut named) = (Ok(()), [None, None]);
    visit_values(origin.raw, origin.root, &mut |path, value| {
        if schema.used.iter().any(|used| used == path) {
            return;
        }
        if let (Value::Scalar(text), Some(index)) = (&value, coordinate_at(path)) {
            named[index] = number(text).and_then(|number| number.as_f64());
        }
        let sides = sides_at(path, &value);
        *has_hemisphere |= sides != [None, None];
        if let Some((field, degrees)) = contradiction(sides, [lat, lng])
            && checked.is_ok()
        {
            let at = [origin.root.join("/").as_str(), path].join("/");
            let at = at.trim_start_matches('/');
            let (Value::Scalar(value) | Value::Array(value)) = value;
            checked = refuse(
                Reason::WrongType,
                format!(
                    "{field} is {degrees}, and {path:.40} is {value:.20}, which is not read: give \
                     --field {field}_hemisphere=/{at:.60}, or map it in [formats.NAME]"
                ),
            );
        }
    });
    if checked.is_ok() && are_swapped(named, [lat, lng].map(Scalar::as_f64)) {
        *has_hemisphere = true;
        let is_geojson = schema.lat_lng_names[0].ends_with("geometry/coordinates/1")
            && schema.lat_lng_names[1].ends_with("geometry/coordinates/0");
        return refuse_swapped([lat, lng], is_geojson);
    }
    checked
}

/// Returns the error for coordinates that are swapped.
fn refuse_swapped([lat, lng]: [&Scalar<'_>; 2], is_geojson: bool) -> Result<(), Refusal> {
    let advice = if is_geojson {
        "GeoJSON has the longitude first; swap them, or map them in [formats.NAME], or give \
         --field lat=/geometry/coordinates/0 --field lng=/geometry/coordinates/1 to import"
    } else {
        "swap them"
    };
    refuse(
        Reason::WrongType,
        format!(
            "lat is {lat} and lng is {lng}, and other members have these in the other order: \
             {advice}"
        ),
    )
}

/// Checks whether other members of a Feature show that its coordinates are swapped.
///
/// # Errors
/// Members such as `latitude` and `longitude` have the same numbers, but swapped.
#[cold]
pub(super) fn check_order(json: &[u8], [lat, lng]: [&Scalar<'_>; 2]) -> Result<(), Refusal> {
    let mut named = [None, None];
    visit_values(json, &[], &mut |path, value| {
        if let (Value::Scalar(text), Some(index)) = (value, coordinate_at(path)) {
            named[index] = number(text).and_then(|number| number.as_f64());
        }
    });
    let is_swapped = are_swapped(named, [lat, lng].map(Scalar::as_f64));
    if is_swapped { refuse_swapped([lat, lng], true) } else { Ok(()) }
}

/// Returns the index of the coordinate at this path: 0 for lat, 1 for lng. `None`: the path does
/// not name a coordinate, or the coordinate belongs to another position than the point's own.
fn coordinate_at(path: &str) -> Option<usize> {
    let mut names = path.rsplit('/');
    let name = normalised(names.next().unwrap_or_default());
    let index = coordinate(name.strip_prefix("gps").unwrap_or(&name))?;
    names.all(is_parent).then_some(index)
}

/// Returns whether `named` and `read` are the same two numbers in opposite order. `named`: the
/// coordinates in other members of a point; `read`: the coordinates that the format has read.
fn are_swapped(named: [Option<f64>; 2], read: [Option<f64>; 2]) -> bool {
    let is_near = |a: f64, b: f64| (a - b).abs() < 1e-4;
    match (named, read) {
        ([Some(north), Some(east)], [Some(lat), Some(lng)]) => {
            is_near(north, lng) && is_near(east, lat) && !is_near(lat, lng)
        }
        _ => false,
    }
}

/// Adds a hint to the error for a missing field: a name in the point that is similar, or all names
/// in the point if none is.
#[cold]
pub(super) fn hint(mut refusal: Refusal, json: &[u8], schema: &Schema) -> Refusal {
    let names: Vec<String> = members(json).into_iter().map(|(name, _)| name).collect();
    let missing =
        refusal.detail.split(' ').next().unwrap_or_default().trim_start_matches('/').to_owned();
    let similar = names.iter().find(|name| {
        schema.is_own && suggested_field(name) == Some(&*missing) && normalised(name) != missing
    });
    match similar {
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

/// Adds paths to `unread`: those of the point's fields that are neither read nor kept. Stops adding
/// once `unread` has 256 paths.
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
