//! Teltonika's Codec JSON over MQTT: `state.reported`, `latlng` as one text, km/h, milliseconds; numbers may be texts.
//! Everything else there is named by its AVL id. <https://wiki.teltonika-gps.com/view/Codec_JSON>

use crate::pipeline::decode::ignored::Ignored;
use crate::pipeline::decode::json::{Scalar, number};
use crate::pipeline::decode::keep::Origin;
use crate::pipeline::decode::point::Point;
use crate::pipeline::decode::points::Points;
use crate::pipeline::decode::refusal::{Refusal, refuse};
use crate::pipeline::decode::unit::SpeedUnit;
use crate::pipeline::reject::Reason;

pub(super) const FIELDS: &[&str] = &[
    "state/reported/latlng",
    "state/reported/ts",
    "state/reported/sp",
    "state/reported/ang",
    "state/reported/alt",
    "state/reported",
    "CMD",
    "RSP",
];

pub(super) fn read(points: &mut Points<'_>, json: &str) -> Result<(), Refusal> {
    let found = points.reading.paths.find(json).map_err(|error| Refusal::from_json(&error))?;
    let [latlng, ts, sp, ang, alt, reported, cmd, rsp, .., driver] = found;
    if reported.is_missing() && !(cmd.is_missing() && rsp.is_missing()) {
        points.ignore(Ignored::Command);
        return Ok(());
    }
    if matches!(reported, Scalar::Other("an object")) && latlng.is_missing() {
        points.ignore(Ignored::Telemetry);
        return Ok(());
    }
    let (lat, lng) = both(&latlng)?;
    let point = Point {
        lat,
        lng,
        ts: ts.or_number_in_text(),
        speed: sp.or_number_in_text().times(SpeedUnit::KilometresPerHour.metres_per_second()),
        heading: ang.or_number_in_text(),
        alt: alt.or_number_in_text(),
        ..Point::default()
    };
    points.add(&point, &Origin { driver, root: &["state", "reported"], ..Origin::whole(json) })
}

fn both(latlng: &Scalar<'_>) -> Result<(Scalar<'static>, Scalar<'static>), Refusal> {
    if let Scalar::Text(text) = latlng
        && let Some((lat, lng)) = text.split_once(',')
        && let (Some(lat), Some(lng)) = (number(lat), number(lng))
    {
        return Ok((lat, lng));
    }
    refuse(Reason::MissingField, || format!("state/reported/latlng is {latlng}, not \"LAT,LNG\""))
}
