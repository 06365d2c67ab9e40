//! Checks the reference system that a payload states beside its coordinates, such as
//! `"coordType":"gcj02"`. Refuses a system that is far from WGS 84: coordinates in such a system,
//! read as WGS 84, could be hundreds of metres off.

use super::announced::names_notation;
use super::field_names::normalised;
use super::hemisphere::is_parent;
use super::keep::{Keep, Value, visit_values};
use super::refusal::{Refusal, refuse};
use super::unread_unit::may_describe_points;
use crate::reject::Reason;

/// Names of members that state a reference system.
const NAMES: [&str; 13] = [
    "datum",
    "geodeticdatum",
    "crs",
    "srs",
    "coordtype",
    "coordtypeinput",
    "coordinatetype",
    "coordstype",
    "coordsys",
    "coordsystem",
    "coordinatesystem",
    "coordinatesys",
    "coordinatereferencesystem",
];
/// Beginnings of names of systems that differ from WGS 84 by about 100 m or more: the systems of
/// Chinese maps, and older national systems.
const SYSTEMS: [&str; 12] = [
    "gcj",
    "bd09",
    "osgb36",
    "nad27",
    "nad1927",
    "ed50",
    "tokyo",
    "sk42",
    "ск42",
    "pulkovo1942",
    "agd66",
    "agd1966",
];
/// Codes of EPSG for the same systems: OSGB36 and the British National Grid, NAD27, ED50, Tokyo,
/// Pulkovo 1942 and AGD66.
const CODES: [&str; 7] = ["4277", "27700", "4267", "4230", "4301", "4284", "4202"];

/// Returns whether a key may name a member that states a reference system; reads only a few bytes.
#[inline]
pub(super) fn may_be_name(key: &[u8]) -> bool {
    let lower = |at: usize| key.get(at).map_or(0, |byte| byte | 0x20);
    match (lower(0), lower(1), lower(2)) {
        (b'd', b'a', b't') => key.len() == 5 && lower(3) == b'u',
        (b'g', b'e', b'o') => lower(3) == b'd',
        (b'c' | b's', b'r', b's') => key.len() == 3,
        // Excludes `coords` and `coordinates`. `coordSystem` is as long as `coordinates`, but has
        // an `s` after `coord`.
        (b'c', b'o', b'o') => key.len() > 6 && (key.len() != 11 || lower(5) == b's'),
        _ => false,
    }
}

/// Returns whether a key names a member that states a reference system.
pub(super) fn is_name(key: &[u8]) -> bool {
    may_be_name(key) && NAMES.contains(&&*normalised(&String::from_utf8_lossy(key)))
}

/// Returns whether a member with this name states a reference system, as `datum` and `coordType`
/// do.
#[must_use]
pub fn names_reference_system(name: &str) -> bool {
    is_name(name.as_bytes())
}

/// Returns whether a text such as `GCJ02`, `EPSG:4277` or `urn:ogc:def:crs:EPSG::4277` is a system
/// that is far from WGS 84.
fn is_far(text: &str) -> bool {
    let system = normalised(text);
    let last = system.rsplit([':', '/']).next().unwrap_or_default();
    let code = system.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    // `Datum` is also German for date, so its text may name a place or an event: `Tokyo Marathon`.
    let is_system = |name: &str, rest: &str| {
        let is_end = ["", "datum", "1918"].contains(&rest);
        name != "tokyo" || is_end || rest.starts_with(|c: char| !c.is_alphanumeric())
    };
    let has_name = |text: &str| {
        SYSTEMS.iter().any(|name| text.strip_prefix(name).is_some_and(|rest| is_system(name, rest)))
    };
    has_name(&system) || has_name(last) || system.contains("epsg") && CODES.contains(&code)
}

/// Checks a point for a reference system of its coordinates. `root`: the path of the object at
/// which the paths of `keep` begin.
///
/// # Errors
/// A member states a system that is far from WGS 84, and `keep` does not name that member.
#[cold]
pub(super) fn check_system(
    json: &[u8],
    root: &'static [&'static str],
    keep: &Keep,
) -> Result<(), Refusal> {
    let prefix: String = root.iter().map(|name| format!("{name}/")).collect();
    check(json, &prefix, is_parent, keep, Place::Message)
}

/// Checks the object around an array of points for a reference system of their coordinates.
///
/// # Errors
/// A member states a system that is far from WGS 84, and `keep` does not name that member.
#[cold]
pub(super) fn check_system_around(json: &[u8], keep: &Keep, place: Place) -> Result<(), Refusal> {
    // The names in a file may contain bytes that are not UTF-8.
    let json = String::from_utf8_lossy(json);
    check(json.as_bytes(), "", may_describe_points, keep, place)
}

/// The origin of an object, for errors.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Message,
    /// A member beside the points of a file, or a comment. `--keep` is not offered as a remedy: in
    /// CSV, it can name only columns.
    File,
}

/// Looks for a system in the object's own members, and in nested objects if `is_about_points`
/// accepts all names in their paths. Refuses a system that is far from WGS 84.
fn check(
    json: &[u8],
    prefix: &str,
    is_about_points: impl Fn(&str) -> bool,
    keep: &Keep,
    place: Place,
) -> Result<(), Refusal> {
    let mut found = None;
    visit_values(json, &[], &mut |path, value| {
        // `"crs":{"name":"GCJ02"}`, and `"crs":{"properties":{"name":"GCJ02"}}` of GeoJSON.
        let object = path.strip_suffix("/name");
        let object = object.map_or(path, |path| path.strip_suffix("/properties").unwrap_or(path));
        let mut names = object.rsplit('/');
        if let Value::Scalar(text) = value
            && names.next().is_some_and(|name| is_name(name.as_bytes()) || names_notation(name))
            && names.all(&is_about_points)
            && is_far(text)
        {
            let [name, object] = [path, object].map(|at| at.strip_prefix(prefix).unwrap_or(at));
            if !keep.has(name) && !keep.has(object) {
                found = Some((name.to_owned(), text.to_owned()));
            }
        }
    });
    let Some((name, text)) = found else { return Ok(()) };
    let remedy = match place {
        Place::Message => {
            format!("store them as they are with keep = [\"{name:.40}\"] (import: --keep)")
        }
        Place::File => "delete it from the file to store them as they are".to_owned(),
    };
    refuse(
        Reason::WrongType,
        format!(
            "{name:.40} says {text:.40}, but lat and lng are read in WGS 84: convert them, or \
             {remedy}"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_of_a_reference_system_is_seen_in_each_spelling() {
        for name in NAMES {
            for key in [name, &name.to_uppercase()] {
                assert!(is_name(key.as_bytes()), "{key}");
            }
        }
        for key in ["coordSystem", "coord_system", "coordinateSystem", "Coord-Sys", "geodeticDatum"]
        {
            assert!(is_name(key.as_bytes()), "{key}");
        }
        for key in
            ["coords", "coordinates", "Coordinates", "coordinate", "date", "data", "geometry"]
        {
            assert!(!is_name(key.as_bytes()), "{key}");
        }
    }

    #[test]
    fn each_system_far_from_wgs_84_is_seen() {
        for system in SYSTEMS {
            assert!(is_far(system) && is_far(&system.to_uppercase()), "{system}");
        }
        for code in CODES {
            assert!(is_far(&format!("EPSG:{code}")), "{code}");
            assert!(is_far(&format!("http://www.opengis.net/def/crs/EPSG/0/{code}")), "{code}");
            assert!(is_far(&format!("urn:ogc:def:crs:EPSG::{code}")), "{code}");
        }
        for tokyo in ["Tokyo datum", "Tokyo (1918)", "Tokyo / UTM zone 54N"] {
            assert!(is_far(tokyo), "{tokyo}");
        }
        for near in
            ["Tokyo Marathon 2026", "WGS84", "WGS 84", "EPSG:4326", "CRS84", "ETRS89", "NAD83", ""]
        {
            assert!(!is_far(near), "{near}");
        }
    }
}
