//! Reads GeoJSON (RFC 7946): a Feature with a Point, or a FeatureCollection of such Features.
//! Longitude comes first, then latitude, then metres above the ellipsoid. GeoJSON itself has no
//! time and no speed, so `ts`, `seq`, `speed`, `heading`, `alt` and `acc` are properties. These
//! properties mean the same as in milepost's own format, except that the unit of `speed` is the
//! `speed_unit` of the source.

use std::sync::LazyLock;

use memchr::memmem;

use crate::exponent;
use crate::extract::{Found, Paths, Pointer};
use crate::ignored::Ignored;
use crate::json::{Scalar, number};
use crate::keep::{Kept, Origin};
use crate::measured::Measured;
use crate::names;
use crate::point::Point;
use crate::points::Points;
use crate::reader::as_text;
use crate::reference_system::{Place, check_system_around};
use crate::refusal::{Refusal, refuse};
use crate::reject::Reason;
use crate::unit::{Quantity, SpeedUnit, TimeUnit};
use crate::unread_unit::{check_unit_of_element, check_units, check_units_around};
use crate::unread_zone::check_utc_flag;

/// Paths of the values, by slot.
pub(super) const FIELDS: &[&str] = &[
    "type",
    "geometry/type",
    "geometry/coordinates/0",
    "geometry/coordinates/1",
    "geometry/coordinates/2",
    "properties/ts",
    "properties/speed",
    "properties/heading",
    "properties/alt",
    "properties/acc",
    "properties/seq",
    "geometry",
    // Other common names of the time.
    "properties/timestamp",
    "properties/time",
];
// Slots of some of these paths.
const TS: usize = 5;
pub(super) const SPEED: usize = 6;
pub(super) const HEADING: usize = 7;
pub(super) const ALT: usize = 8;
pub(super) const ACC: usize = 9;
pub(super) const TIMESTAMP: usize = 12;
pub(super) const TIME: usize = 13;
/// Other names of a property, each with the slot of the property in [`FIELDS`].
pub(super) const ALIASES: [(&str, usize); 10] = [
    ("properties/velocity", SPEED),
    ("properties/course", HEADING),
    ("properties/bearing", HEADING),
    ("properties/altitude", ALT),
    ("properties/elevation", ALT),
    ("properties/ele", ALT),
    ("properties/accuracy", ACC),
    ("properties/datetime", TIME),
    ("properties/fixTime", TIME),
    ("properties/fixtime", TIME),
];
/// The remedy for a position in the properties of a feature without a geometry.
pub(super) const SEND_A_POINT: &str = "send them as a Point in geometry, which is null";
/// Slot of a latitude that a payload sends in addition to the coordinates.
const REPEATED_LAT: usize = 14;
/// Paths of such a latitude.
const REPEATED_LATS: [&str; 10] = [
    "properties/latitude",
    "properties/lat",
    "properties/Latitude",
    "properties/Lat",
    "properties/LAT",
    "properties/gps_lat",
    "properties/gpsLat",
    "latitude",
    "lat",
    "Lat",
];
static FEATURES: LazyLock<Pointer> =
    LazyLock::new(|| Pointer::new("/features").expect("well formed"));

/// Pointers of the time, the preferred one first.
static TIMES: LazyLock<Vec<Pointer>> = LazyLock::new(|| {
    let aliases = ALIASES.iter().filter(|(_, slot)| *slot == TIME).map(|(name, _)| *name);
    let names = [TS, TIMESTAMP, TIME].into_iter().map(|slot| FIELDS[slot]).chain(aliases);
    names.map(|name| Pointer::new(&format!("/{name}")).expect("well formed")).collect()
});

/// Reads a Feature or a FeatureCollection. `enclosing`: the FeatureCollection around a Feature, or
/// `json` itself.
pub(super) fn read(
    points: &mut Points<'_>,
    json: &[u8],
    enclosing: &[u8],
    unit: SpeedUnit,
) -> Result<(), Refusal> {
    let mut found = Found::default();
    points.schema.paths.find(json, &mut found)?;
    let [
        kind,
        shape,
        lng,
        lat,
        height,
        ts,
        speed,
        heading,
        alt,
        acc,
        seq,
        geometry,
        timestamp,
        time,
        repeated_lat,
        unread,
        south,
        west,
        driver,
    ] = found;
    let has_unread = !unread.is_missing();
    match kind.as_text() {
        Some("Feature") => {}
        Some("FeatureCollection") if std::ptr::eq(json, enclosing) => {
            let Some(features) = FEATURES.raw_in(json)?.value else {
                return refuse(Reason::WrongShape, "the FeatureCollection has no features");
            };
            if has_unread {
                check_units_around(json, measured(unit), &points.schema.keep)?;
                check_system_around(json, &points.schema.keep, Place::Message)?;
                if has_heights(as_text(features)) {
                    let kept = Kept { keep: &points.schema.keep, root: &[] };
                    check_unit_of_height(json, unit, kept)?;
                }
            }
            return points.elements(features, Some(json), |points, feature| {
                read(points, feature, enclosing, unit)
            });
        }
        Some(_) | None => {
            return refuse(
                Reason::UnknownFormatKind,
                format!("type is {kind}, not \"Feature\" or \"FeatureCollection\""),
            );
        }
    }
    if geometry.is_missing() {
        names::refuse_unread_position(json, SEND_A_POINT)?;
        points.ignore(Ignored::NoFix); // RFC 7946, 3.2: an unlocated Feature
        return Ok(());
    }
    if shape.as_text() != Some("Point") {
        return refuse(
            Reason::UnknownFormatKind,
            format!("geometry/type is {shape}, not \"Point\""),
        );
    }
    let states_hemisphere = !south.is_missing() || !west.is_missing();
    if states_hemisphere && !points.schema.checks_hemispheres {
        names::check_unmapped_hemispheres([&south, &west], [&lat, &lng])?;
    }
    if !repeated_lat.is_missing() {
        check_repeated_lat(json, [&repeated_lat, &lat, &lng])?;
    }
    let ts = [ts, timestamp, time].into_iter().find(|ts| !ts.is_missing()).unwrap_or_default();
    if exponent::may_have_exponent(&ts) {
        check_exponent(json)?;
    }
    // QGIS and PostGIS write a height of 0 if the height is unknown.
    let has_height =
        !(height.is_missing() || height.as_f64() == Some(0.0) && alt.as_f64().is_some());
    if has_unread {
        let kept = Kept { keep: &points.schema.keep, root: &["properties"] };
        check_units(json, &measured(unit), kept)?;
        if has_height {
            check_unit_of_height(json, unit, kept)?;
        }
        check_utc_flag(json, &ts)?;
    }
    let point = Point {
        lat,
        lng,
        ts,
        seq,
        speed: speed.times(unit.metres_per_second()),
        heading,
        alt: if has_height { height } else { alt },
        acc,
        may_have_no_fix: has_unread,
        ..Point::default()
    };
    points.add(&point, &Origin { driver, enclosing, root: &["properties"], raw: json })
}

/// Returns the paths of the values that are read from a Feature.
pub(super) fn paths() -> Paths {
    let mut paths = Paths::new(FIELDS);
    ALIASES.iter().for_each(|(path, slot)| paths.add_alias(path, *slot));
    REPEATED_LATS.iter().for_each(|path| paths.add(path.split('/'), REPEATED_LAT));
    paths
}

/// Compares the latitude in the coordinates with `repeated`, which another member sends.
///
/// # Errors
/// The repeated latitude differs, and members such as `latitude` and `longitude` show that the
/// coordinates are swapped.
fn check_repeated_lat(json: &[u8], [repeated, lat, lng]: [&Scalar<'_>; 3]) -> Result<(), Refusal> {
    let number = repeated.as_number().or_else(|| number(repeated.as_text()?)?.as_number());
    let difference = number.zip(lat.as_f64()).map(|(number, lat)| (number.as_f64() - lat).abs());
    // In nearly every payload, the two latitudes are equal.
    if difference.is_none_or(|difference| difference < 1e-4) {
        return Ok(());
    }
    names::check_order(json, [lat, lng])
}

/// Returns the properties that have a unit. `unit`: the unit of the speed.
pub(super) fn measured(unit: SpeedUnit) -> Vec<Measured> {
    let own = FIELDS.iter().enumerate().map(|(slot, path)| (*path, slot));
    let fields = own.chain(ALIASES).filter_map(|(path, slot)| {
        let (field, quantity, factor) = match slot {
            SPEED => ("speed", Quantity::Speed, unit.metres_per_second()),
            HEADING => ("heading", Quantity::Angle, 1.0),
            ALT => ("alt", Quantity::Length, 1.0),
            ACC => ("acc", Quantity::Length, 1.0),
            _ => return None,
        };
        Some(Measured { field, path: path.to_owned(), quantity, factor, has_unit: false })
    });
    fields.collect()
}

/// Checks the unit of the heights in the coordinates.
///
/// # Errors
/// A member such as `alt_unit` states a unit other than metres.
#[cold]
fn check_unit_of_height(json: &[u8], unit: SpeedUnit, kept: Kept<'_>) -> Result<(), Refusal> {
    let alt = measured(unit).into_iter().find(|field| field.field == "alt");
    alt.map_or(Ok(()), |alt| check_unit_of_element(json, &alt, kept))
}

/// Returns whether one of the features has a height other than 0 in its coordinates.
#[cold]
fn has_heights(features: &str) -> bool {
    const KEY: &str = "\"coordinates\"";
    let mut places = memmem::find_iter(features.as_bytes(), KEY.as_bytes());
    places.any(|at| {
        let rest = features[at + KEY.len()..].trim_start();
        let value = rest.strip_prefix(':').map(str::trim_start);
        let Some(list) = value.filter(|value| value.starts_with('[')) else { return false };
        let end = list.find(']').unwrap_or(list.len());
        let height = list[..end].split(',').nth(2).and_then(number);
        height.and_then(|height| height.as_f64()).is_some_and(|height| height != 0.0)
    })
}

/// Checks a time that may have been sent with an exponent, such as `1.7958e9`.
///
/// # Errors
/// The exponent form has lost the last digits of the time.
#[cold]
fn check_exponent(json: &[u8]) -> Result<(), Refusal> {
    if !exponent::is_in(json) {
        return Ok(());
    }
    for pointer in TIMES.iter() {
        if let Some(raw) = pointer.raw(json)?.filter(|raw| *raw != "null") {
            return exponent::check_time_sent(raw, TimeUnit::BySize);
        }
    }
    Ok(())
}
