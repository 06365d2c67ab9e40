//! Third-party formats that milepost ships as mappings: the pointers and units of their values, and
//! the quirks of their devices. Lengths are in metres, angles in degrees, other numbers in the
//! units named here.

use super::mapped::{Fields, Mapping, Quirks};
use super::more::{EXTRA, LAT, LNG, ROOT};
use crate::extract::{Found, Pointer};
use crate::ignored::Ignored;
use crate::json::Scalar;
use crate::names::refuse_unread_position;
use crate::refusal::{Refusal, refuse};
use crate::reject::Reason;
use crate::unit::{SpeedUnit, TimeUnit};

/// A format that milepost ships.
struct Shipped {
    name: &'static str,
    /// Pointers of lat, lng, speed, heading, alt, acc; an empty string if the format has no such
    /// field.
    at: [&'static str; 6],
    ts: (&'static str, TimeUnit),
    /// `None`: the format defines no unit, so the source or `--speed-unit` states the unit.
    speed_unit: Option<SpeedUnit>,
    /// Pointer of an array of points, if a message can hold several.
    points: Option<&'static str>,
    quirks: Quirks,
}

const COORDS: [&str; 6] = [
    "/coords/latitude",
    "/coords/longitude",
    "/coords/speed",
    "/coords/heading",
    "/coords/altitude",
    "/coords/accuracy",
];

static SHIPPED: [Shipped; 6] = [
    // `_type` is the kind of the message. The app for iOS sends -1 for an unknown value.
    // https://owntracks.org/booklet/tech/json/
    Shipped {
        name: "owntracks",
        at: ["/lat", "/lon", "/vel", "/cog", "/alt", "/acc"],
        ts: ("/tst", TimeUnit::Seconds),
        speed_unit: Some(SpeedUnit::KilometresPerHour),
        points: None,
        // OwnTracks Greenwich trackers, and apps from before 2015, send numbers as strings.
        quirks: Quirks {
            numbers_may_be_strings: true,
            negative_is_unknown: true,
            extra: &["_type"],
            usual_strings: &[("_type", "location")],
            unread: &[
                "_id",
                "BSSID",
                "SSID",
                "batt",
                "bs",
                "conn",
                "created_at",
                "inregions",
                "inrids",
                "m",
                "motionactivities",
                "p",
                "poi",
                "rad",
                "t",
                "tag",
                "tid",
                "topic",
                "vac",
            ],
            ignored_kind: ignored_by_owntracks,
            ..Quirks::NONE
        },
    },
    // The JSON that a Traccar server forwards. https://www.traccar.org/forward/
    Shipped {
        name: "traccar",
        at: [
            "/position/latitude",
            "/position/longitude",
            "/position/speed",
            "/position/course",
            "/position/altitude",
            "/position/accuracy",
        ],
        ts: ("/position/fixTime", TimeUnit::Rfc3339),
        speed_unit: Some(SpeedUnit::Knots),
        points: None,
        quirks: Quirks {
            root: &["position"],
            extra: &["event"],
            ignored_kind: ignored_by_traccar,
            ..Quirks::NONE
        },
    },
    // Traccar Client from version 9 on, and other apps on the same background-geolocation SDK:
    // `location` is a point, or an array of the points that were stored while there was no network.
    // The payload itself may also be a point. -1 means unknown. https://www.traccar.org/osmand/
    Shipped {
        name: "traccar-client",
        at: COORDS,
        ts: ("/timestamp", TimeUnit::Rfc3339),
        speed_unit: Some(SpeedUnit::MetresPerSecond),
        points: Some("/location"),
        quirks: Quirks {
            negative_is_unknown: true,
            root: &["location"],
            root_is_optional: true,
            ..Quirks::NONE
        },
    },
    // Codec JSON over MQTT. `latlng` holds both coordinates in one string. The device's I/O values
    // have AVL ids as keys.
    // https://wiki.teltonika-gps.com/view/Codec_JSON
    Shipped {
        name: "teltonika",
        at: [
            "/state/reported/latlng",
            "",
            "/state/reported/sp",
            "/state/reported/ang",
            "/state/reported/alt",
            "",
        ],
        ts: ("/state/reported/ts", TimeUnit::Milliseconds),
        speed_unit: Some(SpeedUnit::KilometresPerHour),
        points: None,
        quirks: Quirks {
            numbers_may_be_strings: true,
            lat_lng_is_one_string: true,
            root: &["state", "reported"],
            extra: &["CMD", "RSP"],
            ignored_kind: ignored_by_teltonika,
            ..Quirks::NONE
        },
    },
    // Device telemetry: `{"ts": …, "values": {…}}`, or the values alone, which have no time.
    // https://thingsboard.io/docs/reference/mqtt-api/telemetry/
    Shipped {
        name: "thingsboard",
        at: ["/latitude", "/longitude", "/speed", "/heading", "/altitude", "/accuracy"],
        ts: ("/ts", TimeUnit::Milliseconds),
        speed_unit: None,
        points: None,
        quirks: Quirks {
            numbers_may_be_strings: true,
            root: &["values"],
            root_is_optional: true,
            ts_is_beside_root: true,
            ignored_kind: ignored_by_thingsboard,
            ..Quirks::NONE
        },
    },
    // A browser's GeolocationPosition; null means unknown.
    // https://www.w3.org/TR/geolocation/#position_interface
    Shipped {
        name: "w3c",
        at: COORDS,
        ts: ("/timestamp", TimeUnit::Milliseconds),
        speed_unit: Some(SpeedUnit::MetresPerSecond),
        points: None,
        quirks: Quirks::NONE,
    },
];

/// Returns the shipped mapping of this name. `speed_unit`: the unit that the source states, for a
/// format that defines none.
pub fn shipped(name: &str, speed_unit: Option<SpeedUnit>) -> Option<Mapping> {
    let Shipped { at, ts, speed_unit: own, points, quirks, .. } =
        SHIPPED.iter().find(|shipped| shipped.name == name)?;
    let pointer = |text: &str| Pointer::new(text).expect("the table is well formed");
    let [lat, lng, speed, heading, alt, acc] =
        at.map(|text| if text.is_empty() { None } else { Some(pointer(text)) });
    let lat = lat?;
    let fields = Fields {
        points: points.map(pointer),
        lng: lng.unwrap_or_else(|| lat.clone()),
        lat,
        ts: Some((pointer(ts.0), ts.1)),
        speed: speed.zip(own.or(speed_unit).map(SpeedUnit::metres_per_second)),
        heading,
        alt: alt.map(|pointer| (pointer, 1.0)),
        acc,
        seq: None,
        driver: None,
        has_unit_of_degrees: false,
        more: None,
    };
    Some(Mapping::shipped(fields, *quirks))
}

fn ignored_by_owntracks(found: &Found<'_>, _: &[u8]) -> Result<Option<Ignored>, Refusal> {
    let kind = &found[EXTRA];
    Ok(Some(match kind.as_text().unwrap_or_default() {
        "location" => return Ok(None),
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
        _ => {
            return refuse(Reason::UnknownFormatKind, format!("_type is {kind}, not \"location\""));
        }
    }))
}

/// Ignores an event. The Traccar server forwards the position of an event in another message, too.
fn ignored_by_traccar(found: &Found<'_>, _: &[u8]) -> Result<Option<Ignored>, Refusal> {
    Ok((!found[EXTRA].is_missing()).then_some(Ignored::Event))
}

fn ignored_by_teltonika(found: &Found<'_>, json: &[u8]) -> Result<Option<Ignored>, Refusal> {
    let (latlng, reported) = (&found[LAT], &found[ROOT]);
    let is_command = !(found[EXTRA].is_missing() && found[EXTRA + 1].is_missing());
    match reported {
        Scalar::Missing if is_command => Ok(Some(Ignored::Command)),
        Scalar::Other("an object") if latlng.is_missing() => {
            telemetry(json, "format teltonika reads latlng")
        }
        Scalar::Missing
        | Scalar::Other(_)
        | Scalar::Integer(_)
        | Scalar::Number(_)
        | Scalar::Text(_) => Ok(None),
    }
}

fn ignored_by_thingsboard(found: &Found<'_>, json: &[u8]) -> Result<Option<Ignored>, Refusal> {
    match (found[LAT].is_missing() && found[LNG].is_missing(), json.starts_with(b"[")) {
        (true, true) => refuse(Reason::WrongShape, "the array contains another array"),
        (true, false) => telemetry(json, "format thingsboard reads latitude and longitude"),
        (false, _) => Ok(None),
    }
}

/// Ignores a message without a position. `reads`: the names that the format reads, for the error.
///
/// # Errors
/// The message has a position under other names.
fn telemetry(json: &[u8], reads: &str) -> Result<Option<Ignored>, Refusal> {
    let remedy = format!("{reads}; map other names with [formats.NAME]");
    refuse_unread_position(json, &remedy).map(|()| Some(Ignored::Telemetry))
}
