//! Traccar Client from version 9 on, and other apps on the same background-geolocation SDK: m/s, RFC 3339, -1 unknown.
//! `location` is one, or an array of those kept while there was no network; or the payload itself is one.
//! <https://www.traccar.org/osmand/>

use std::sync::LazyLock;

use crate::pipeline::decode::extract::{Paths, Pointer};
use crate::pipeline::decode::json::Scalar;
use crate::pipeline::decode::keep::Origin;
use crate::pipeline::decode::point::Point;
use crate::pipeline::decode::points::Points;
use crate::pipeline::decode::refusal::Refusal;

/// As a browser has them.
pub(super) use super::w3c::FIELDS;
/// The same one level further in.
pub(super) fn add_paths(paths: &mut Paths) {
    for (slot, path) in FIELDS.iter().enumerate() {
        paths.add(["location"].into_iter().chain(path.split('/')), slot);
    }
    paths.add(["location"], FIELDS.len());
}
static LOCATION: LazyLock<Pointer> = LazyLock::new(|| Pointer::new("/location").expect("well formed"));

pub(super) fn read(points: &mut Points<'_>, json: &str) -> Result<(), Refusal> {
    let found = points.reading.paths.find(json).map_err(|error| Refusal::from_json(&error))?;
    let [lat, lng, ts, speed, heading, alt, acc, location, .., driver] = found;
    if matches!(location, Scalar::Other("an array"))
        && let Some(locations) = LOCATION.raw(json).map_err(|error| Refusal::from_json(&error))?
    {
        return points
            .elements(locations.get(), Some(json), |points, element| read_one(points, element, json));
    }
    let point = point([lat, lng, ts, speed, heading, alt, acc]);
    let root: &[&str] = if location.is_missing() { &[] } else { &["location"] };
    points.add(&point, &Origin { driver, root, ..Origin::whole(json) })
}

fn read_one(points: &mut Points<'_>, json: &str, within: &str) -> Result<(), Refusal> {
    let found = points.reading.paths.find(json).map_err(|error| Refusal::from_json(&error))?;
    let [lat, lng, ts, speed, heading, alt, acc, .., driver] = found;
    points.add(
        &point([lat, lng, ts, speed, heading, alt, acc]),
        &Origin { driver, within, ..Origin::whole(json) },
    )
}

fn point([lat, lng, ts, speed, heading, alt, acc]: [Scalar<'_>; 7]) -> Point<'_> {
    Point {
        lat,
        lng,
        ts,
        speed: speed.unless_negative(),
        heading: heading.unless_negative(),
        alt,
        acc: acc.unless_negative(),
        ..Point::default()
    }
}
