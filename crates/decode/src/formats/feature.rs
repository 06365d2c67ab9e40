//! Completes what a mapping reads of a GeoJSON feature. So a file that `milepost import` reads with
//! options such as `--field` has the same names of properties as format `geojson`, and the same
//! features without a place.

use std::mem::take;
use std::sync::LazyLock;

use super::geojson;
use super::more::{ACC, ALT, EXTRA, FIELDS, HEADING, LAT, LNG, More, ROOT, SPEED, TS};
use crate::extract::{Found, Pointer};
use crate::json::{Scalar, number};
use crate::measured::Measured;
use crate::names::refuse_unread_position;
use crate::refusal::Refusal;

/// Path of the height in the coordinates of a point.
pub(super) const HEIGHT: &str = "geometry/coordinates/2";
/// Path of the object that holds the coordinates.
pub(super) const COORDINATES: &str = "geometry/coordinates";
/// Path of the object with the other values of a feature.
pub(super) const PROPERTIES: &str = "properties";

/// Slot of the geometry: that of the root, which a mapping of features does not have.
const GEOMETRY: usize = ROOT;
/// Slots of times, which count if the feature has no `ts`.
const TIMESTAMP: usize = EXTRA;
const TIME: usize = EXTRA + 1;
/// Slot of an altitude in the properties, which counts if the coordinates have no height.
const PROPERTY_ALT: usize = EXTRA + 2;

/// Paths and types that every GeoJSON feature with a point has. The reader skips these strings in
/// features. In other JSON, a `type` may be the type of the fix, so the reader does not skip it.
pub(super) const TYPES: [(&str, &str); 2] = [("type", "Feature"), ("geometry/type", "Point")];

/// Another path of a value.
pub(super) struct OtherPath {
    pub(super) path: &'static str,
    pub(super) slot: usize,
    /// Another path of the slot takes precedence.
    pub(super) is_alias: bool,
}

impl OtherPath {
    /// Returns whether this is a path of the field.
    pub(super) fn is_of(&self, field: &str) -> bool {
        let at = if self.slot == PROPERTY_ALT { ALT } else { self.slot };
        FIELDS.get(at) == Some(&field)
    }

    pub(super) fn is_of_time(&self) -> bool {
        [TIMESTAMP, TIME].contains(&self.slot)
    }
}

/// Returns the paths that are read besides those of the mapping: the path of the geometry, and the
/// other names of each field that has its usual pointer. `pointers`: those of the fields, by slot.
pub(super) fn other_paths(pointers: [Option<&Pointer>; 8], more: Option<&More>) -> Vec<OtherPath> {
    let is_usual = |field: usize, path: &str| {
        pointers[field].is_some_and(|pointer| pointer.as_str().strip_prefix('/') == Some(path))
    };
    let more = more.into_iter().flat_map(More::pointers).map(|(_, pointer)| pointer);
    let read: Vec<&str> =
        pointers.into_iter().flatten().chain(more).map(|pointer| &pointer.as_str()[1..]).collect();
    let own = [
        ("properties/timestamp", geojson::TIMESTAMP),
        ("properties/time", geojson::TIME),
        ("properties/alt", geojson::ALT),
    ];
    let own = own.into_iter().map(|path| (path, false));
    let aliases = geojson::ALIASES.into_iter().map(|path| (path, true));
    let others = own.chain(aliases).filter_map(|((path, slot), is_alias)| {
        let (field, usual, slot) = match slot {
            geojson::TIMESTAMP => (TS, "properties/ts", TIMESTAMP),
            geojson::TIME => (TS, "properties/ts", TIME),
            geojson::SPEED => (SPEED, "properties/speed", SPEED),
            geojson::HEADING => (HEADING, "properties/heading", HEADING),
            geojson::ALT => (ALT, HEIGHT, PROPERTY_ALT),
            geojson::ACC => (ACC, "properties/acc", ACC),
            _ => return None,
        };
        let is_other = is_usual(field, usual) && !read.contains(&path);
        is_other.then_some(OtherPath { path, slot, is_alias })
    });
    let geometry = OtherPath { path: "geometry", slot: GEOMETRY, is_alias: false };
    std::iter::once(geometry).chain(others).collect()
}

/// Moves the values at other paths to the slots of their fields.
pub(super) fn complete(found: &mut Found<'_>) {
    if found[TS].is_missing() {
        let [timestamp, time] = [TIMESTAMP, TIME].map(|slot| take(&mut found[slot]));
        found[TS] = if timestamp.is_missing() { time } else { timestamp };
    }
    let alt = take(&mut found[PROPERTY_ALT]);
    let is_number = |value: &Scalar<'_>| {
        value.is_number() || value.as_text().is_some_and(|text| number(text).is_some())
    };
    // QGIS and PostGIS write a height of 0 if the height is unknown.
    if found[ALT].is_missing() || found[ALT].as_f64() == Some(0.0) && is_number(&alt) {
        found[ALT] = alt;
    }
}

/// Returns whether a feature has no geometry, although the mapping reads its coordinates.
///
/// # Errors
/// The feature has a position in other members.
pub(super) fn is_unlocated(
    found: &Found<'_>,
    pointers: [Option<&Pointer>; 8],
    json: &[u8],
) -> Result<bool, Refusal> {
    static TYPE: LazyLock<Pointer> = LazyLock::new(|| Pointer::new("/type").expect("well formed"));
    let is_in_geometry = |slot: usize| {
        pointers[slot].is_some_and(|pointer| pointer.as_str().starts_with("/geometry/"))
    };
    if !found[GEOMETRY].is_missing()
        || ![LAT, LNG].into_iter().all(is_in_geometry)
        || TYPE.value(json)?.as_text() != Some("Feature")
    {
        return Ok(false);
    }
    refuse_unread_position(json, geojson::SEND_A_POINT)?;
    Ok(true)
}

/// Returns the altitude of a feature as a property, if the mapping reads the height in the
/// coordinates: a member such as `alt_unit` is in the properties.
pub(super) fn height(measured: Vec<Measured>) -> Option<Measured> {
    let height = measured.into_iter().find(|field| field.path == HEIGHT)?;
    Some(Measured { path: "properties/alt".to_owned(), ..height })
}
