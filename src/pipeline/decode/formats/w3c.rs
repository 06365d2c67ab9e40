//! A browser's `GeolocationPosition` as JSON: m/s, milliseconds, null where it does not know.
//! <https://www.w3.org/TR/geolocation/#position_interface>

use crate::pipeline::decode::keep::Origin;
use crate::pipeline::decode::point::Point;
use crate::pipeline::decode::points::Points;
use crate::pipeline::decode::refusal::Refusal;

pub(super) const FIELDS: &[&str] = &[
    "coords/latitude",
    "coords/longitude",
    "timestamp",
    "coords/speed",
    "coords/heading",
    "coords/altitude",
    "coords/accuracy",
];

pub(super) fn read(points: &mut Points<'_>, json: &str) -> Result<(), Refusal> {
    let found = points.reading.paths.find(json).map_err(|error| Refusal::from_json(&error))?;
    let [lat, lng, ts, speed, heading, alt, acc, .., driver] = found;
    let point = Point { lat, lng, ts, speed, heading, alt, acc, ..Point::default() };
    points.add(&point, &Origin { driver, ..Origin::whole(json) })
}
