//! OwnTracks: `_type` says what a message is; km/h, seconds; -1 where iOS does not know.
//! <https://owntracks.org/booklet/tech/json/>

use crate::pipeline::decode::ignored::Ignored;
use crate::pipeline::decode::json::Scalar;
use crate::pipeline::decode::keep::Origin;
use crate::pipeline::decode::point::Point;
use crate::pipeline::decode::points::Points;
use crate::pipeline::decode::refusal::{Refusal, refuse};
use crate::pipeline::decode::unit::SpeedUnit;
use crate::pipeline::reject::Reason;

pub(super) const FIELDS: &[&str] = &["_type", "lat", "lon", "tst", "vel", "cog", "alt", "acc"];

pub(super) fn read(points: &mut Points<'_>, json: &str) -> Result<(), Refusal> {
    let found = points.reading.paths.find(json).map_err(|error| Refusal::from_json(&error))?;
    let [kind, lat, lng, ts, vel, cog, alt, acc, .., driver] = found;
    match &kind {
        Scalar::Text(name) if name == "location" => {}
        Scalar::Text(name) if ignored(name).is_some() => {
            ignored(name).into_iter().for_each(|kind| points.ignore(kind));
            return Ok(());
        }
        Scalar::Missing | Scalar::Text(_) | Scalar::Integer(_) | Scalar::Number(_) | Scalar::Other(_) => {
            return refuse(Reason::UnknownFormatKind, || format!("_type is {kind}, not \"location\""));
        }
    }
    let point = Point {
        lat,
        lng,
        ts,
        speed: vel.unless_negative().times(SpeedUnit::KilometresPerHour.metres_per_second()),
        heading: cog.unless_negative(),
        alt,
        acc: acc.unless_negative(),
        ..Point::default()
    };
    points.add(&point, &Origin { driver, ..Origin::whole(json) })
}

fn ignored(kind: &str) -> Option<Ignored> {
    Some(match kind {
        "beacon" => Ignored::Beacon,
        "card" => Ignored::Card,
        "cmd" => Ignored::Command,
        "configuration" | "dump" => Ignored::Configuration,
        "encrypted" => Ignored::Encrypted,
        "lwt" => Ignored::Lwt,
        "request" => Ignored::Request,
        "status" => Ignored::Status,
        "steps" => Ignored::Steps,
        "transition" => Ignored::Transition,
        "waypoint" | "waypoints" => Ignored::Waypoint,
        _ => return None,
    })
}
