//! ThingsBoard's device telemetry: `{"ts": …, "values": {…}}`, or the values alone, which have no time; an array of either.
//! Milliseconds; numbers may be texts; the source says the unit of `speed`.
//! <https://thingsboard.io/docs/reference/mqtt-api/telemetry/>

use crate::pipeline::decode::extract::Paths;
use crate::pipeline::decode::ignored::Ignored;
use crate::pipeline::decode::keep::Origin;
use crate::pipeline::decode::point::Point;
use crate::pipeline::decode::points::Points;
use crate::pipeline::decode::refusal::{Refusal, refuse};
use crate::pipeline::decode::unit::SpeedUnit;
use crate::pipeline::reject::Reason;

pub(super) const FIELDS: &[&str] =
    &["latitude", "longitude", "speed", "heading", "altitude", "accuracy", "ts"];

/// The same one level further in.
pub(super) fn add_paths(paths: &mut Paths) {
    for (slot, name) in FIELDS.iter().enumerate().filter(|(_, name)| **name != "ts") {
        paths.add(["values", name], slot);
    }
    paths.add(["values"], FIELDS.len());
}

pub(super) fn read(points: &mut Points<'_>, json: &str, unit: SpeedUnit) -> Result<(), Refusal> {
    let found = points.reading.paths.find(json).map_err(|error| Refusal::from_json(&error))?;
    let [lat, lng, speed, heading, alt, acc, ts, values, .., driver] = found;
    if lat.is_missing() && lng.is_missing() {
        if json.starts_with('[') {
            return refuse(Reason::WrongShape, || "an array in an array".into());
        }
        points.ignore(Ignored::Telemetry);
        return Ok(());
    }
    let point = Point {
        lat: lat.or_number_in_text(),
        lng: lng.or_number_in_text(),
        ts: ts.or_number_in_text(),
        speed: speed.or_number_in_text().times(unit.metres_per_second()),
        heading: heading.or_number_in_text(),
        alt: alt.or_number_in_text(),
        acc: acc.or_number_in_text(),
        ..Point::default()
    };
    let root: &[&str] = if values.is_missing() { &[] } else { &["values"] };
    points.add(&point, &Origin { driver, root, ..Origin::whole(json) })
}
