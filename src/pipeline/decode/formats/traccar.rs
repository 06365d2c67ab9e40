//! What a Traccar server forwards: knots, RFC 3339. `device.uniqueId` is what the tracker calls itself.
//! <https://www.traccar.org/forward/>

use crate::pipeline::decode::ignored::Ignored;
use crate::pipeline::decode::keep::Origin;
use crate::pipeline::decode::point::Point;
use crate::pipeline::decode::points::Points;
use crate::pipeline::decode::refusal::Refusal;
use crate::pipeline::decode::unit::SpeedUnit;

pub(super) const FIELDS: &[&str] = &[
    "position/latitude",
    "position/longitude",
    "position/fixTime",
    "position/speed",
    "position/course",
    "position/altitude",
    "position/accuracy",
    "event",
];

pub(super) fn read(points: &mut Points<'_>, json: &str) -> Result<(), Refusal> {
    let found = points.reading.paths.find(json).map_err(|error| Refusal::from_json(&error))?;
    let [lat, lng, ts, speed, course, alt, acc, event, .., driver] = found;
    if !event.is_missing() {
        points.ignore(Ignored::Event); // it repeats a position that is forwarded by itself
        return Ok(());
    }
    let point = Point {
        lat,
        lng,
        ts,
        speed: speed.times(SpeedUnit::Knots.metres_per_second()),
        heading: course,
        alt,
        acc,
        ..Point::default()
    };
    points.add(&point, &Origin { driver, root: &["position"], ..Origin::whole(json) })
}
