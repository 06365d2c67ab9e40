//! Sends each format's documented example through the real broker and the real engine, and compares
//! the rows with rows that are written by hand.
//!
//! The examples are quoted from their documents, except for the time of a fix: `<s>`, `<ms>`,
//! `<iso>`, `<hhmmss>` and `<ddmmyy>` stand for a recent time, because milepost rejects a fix that
//! is years old. If a document gives names and units but no values, the values are ours, and a
//! comment at the example says so.

use anyhow::{Result, ensure};
use lab_stack::unix_ms;

use crate::world::{SOON, wait_for_metric, world};

/// One source for each format. The source takes the driver id from the topic or the field in which
/// the devices of the format send the id.
const SOURCES: &str = r#"
[formats.particle]
lat = "/loc/lat"
lng = "/loc/lon"
ts = "/loc/time"
ts_unit = "s"
heading = "/loc/hd"
alt = "/loc/alt"
alt_unit = "m"
acc = "/loc/h_acc"
[formats.hwb]
lat = "/latitudeDegree"
lng = "/longitudeDegree"
ts = "/eventTimestamp"
ts_unit = "rfc3339"
heading = "/trackDegreeTrue"
[[sources]]
topic = "bus/+/sensors/location"
format = "hwb"
keep = ["speedOverGround"]
[[sources]]
topic = "owntracks/+/+"
driver = "{1}:{2}"
format = "owntracks"
keep = ["batt"]
[[sources]]
topic = "traccar/positions"
driver = "/device/uniqueId"
format = "traccar"
keep = ["attributes/batteryLevel"]
[[sources]]
topic = "traccar-client"
driver = "/device_id"
format = "traccar-client"
keep = ["battery/level"]
[[sources]]
topic = "sdk"
driver = "/user_id"
format = "traccar-client"
[[sources]]
topic = "teltonika/+/data"
format = "teltonika"
keep = ["239"]
[[sources]]
topic = "v1/devices/+/telemetry"
format = "thingsboard"
speed_unit = "km/h"
keep = ["temperature"]
[[sources]]
topic = "geojson/+"
format = "geojson"
speed_unit = "km/h"
keep = ["name", "prop0"]
[[sources]]
topic = "nmea/+"
format = "nmea"
[[sources]]
topic = "w3c/+"
format = "w3c"
[[sources]]
topic = "particle/+"
format = "particle"
keep = ["loc/batt"]
"#;

/// An NMEA sentence without `$` and without its checksum, which depends on the date.
const RMC: &str = "GPRMC,<hhmmss>,A,4807.038,N,01131.000,E,022.4,084.4,<ddmmyy>,003.1,W";
/// An NMEA sentence in the form of [`RMC`], with an altitude and without a date.
const GGA: &str = "GPGGA,<hhmmss>,4807.038,N,01131.000,E,1,08,0.9,545.4,M,46.9,M,,";

struct Example {
    topic: &'static str,
    payload: &'static str,
    driver: &'static str,
    /// The rows, from north to south. Columns, separated by spaces: lat, lng, speed, heading, alt,
    /// acc; the fix's time in milliseconds after `<s>`, or `now` for the time of receipt; the kept
    /// fields, or `-` if there are none.
    rows: &'static [&'static str],
}

const EXAMPLES: &[Example] = &[
    // https://owntracks.org/booklet/guide/quicksetup/ shows this message.
    Example {
        topic: "owntracks/jane/nokia",
        payload: r#"{"_type":"location","SSID":"mywifi","alt":154,"batt":53,"conn":"w","created_at":1706856299,"lat":48.856826,"lon":2.292713,"tid":"j1","tst":<s>,"vel":0}"#,
        driver: "jane:nokia",
        rows: &["48.856826 2.292713 0 NULL 154 NULL 0 batt=53"],
    },
    // https://owntracks.org/booklet/images/OwnTracksPosterA1.pdf shows vel, cog, alt and acc; the
    // place is ours. 54 km/h ÷ 3.6 = 15 m/s.
    Example {
        topic: "owntracks/jane/phone",
        payload: r#"{"_type":"location","batt":80,"cog":270,"lat":25.76,"lon":-80.19,"acc":75,"tid":"YY","tst":<s>,"alt":13,"vel":54}"#,
        driver: "jane:phone",
        rows: &["25.76 -80.19 15 270 13 75 0 batt=80"],
    },
    // https://www.traccar.org/forward/ and the server's model of a position and a device; the
    // values are ours. 10 knots × 0.514444 = 5.14 m/s.
    Example {
        topic: "traccar/positions",
        payload: r#"{"position":{"id":12345,"attributes":{"batteryLevel":85,"distance":15.4,"motion":true},"deviceId":10,"protocol":"osmand",
            "serverTime":"<iso>+00:00","deviceTime":"<iso>+00:00","fixTime":"<iso>+00:00","outdated":false,"valid":true,
            "latitude":-23.55052,"longitude":-46.633308,"altitude":760.0,"speed":10.0,"course":180.0,"address":null,"accuracy":0.0,
            "network":null,"geofenceIds":null},"device":{"id":10,"name":"Car","uniqueId":"123456789012345","status":"online"}}"#,
        driver: "123456789012345",
        rows: &["-23.55052 -46.633308 5.14 180 760 0 0 attributes/batteryLevel=85"],
    },
    // https://www.traccar.org/osmand/ shows this message at 0, 0, which milepost rejects (see
    // below); the place is ours.
    Example {
        topic: "traccar-client",
        payload: r#"{"location":{"timestamp":"<iso>Z","coords":{"latitude":25.76,"longitude":-80.19,"accuracy":0,"speed":0,"heading":0,
            "altitude":0},"is_moving":false,"odometer":0,"event":"motionchange","battery":{"level":1,"is_charging":false},
            "activity":{"type":"still"},"extras":{}},"device_id":"48241179"}"#,
        driver: "48241179",
        rows: &["25.76 -80.19 0 0 0 0 0 battery/level=1"],
    },
    // https://transistorsoft.github.io/react-native-background-geolocation/latest/interfaces/Location.html
    // and HttpConfig.html: `location` is an array, `params` are next to `location`, and -1 is
    // unknown; the values are ours.
    Example {
        topic: "sdk",
        payload: r#"{"location":[
            {"coords":{"latitude":25.77,"longitude":-80.2,"accuracy":5,"speed":12.4,"heading":271,"altitude":-1.5,"ellipsoidal_altitude":-1.5},
             "activity":{"type":"in_vehicle","confidence":100},"battery":{"level":0.8,"is_charging":true},"timestamp":"<iso>Z","uuid":"a"},
            {"coords":{"latitude":25.76,"longitude":-80.19,"accuracy":5,"speed":-1,"heading":-1,"altitude":0},"timestamp":"<iso>Z"}
            ],"user_id":1234}"#,
        driver: "1234",
        rows: &["25.77 -80.2 12.4 271 -1.5 5 0 -", "25.76 -80.19 NULL NULL 0 5 0 -"],
    },
    // https://wiki.teltonika-gps.com/view/Codec_JSON; the values are ours. 54 km/h ÷ 3.6 = 15 m/s.
    Example {
        topic: "teltonika/356307042441013/data",
        payload: r#"{"state":{"reported":{"ts":<ms>,"pr":0,"latlng":"55.661378,12.584098","alt":12,"ang":270,"sat":9,"sp":54,"evt":240,"239":1,"240":0}}}"#,
        driver: "356307042441013",
        rows: &["55.661378 12.584098 15 270 12 NULL 123 239=1"],
    },
    // https://thingsboard.io/docs/reference/mqtt-api/telemetry/: an array of `ts` and `values`; the
    // place and the speed are ours.
    Example {
        topic: "v1/devices/van/telemetry",
        payload: r#"[{"ts":<ms>,"values":{"temperature":22.5,"humidity":61,"latitude":25.76,"longitude":-80.19,"speed":36}},
            {"ts":<ms>,"values":{"temperature":22.7,"humidity":60}}]"#,
        driver: "van",
        rows: &["25.76 -80.19 10 NULL NULL NULL 123 temperature=22.5"],
    },
    // https://geojson.org shows this Feature. Longitude comes first, and there is no time.
    Example {
        topic: "geojson/island",
        payload: r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[125.6,10.1]},"properties":{"name":"Dinagat Islands"}}"#,
        driver: "island",
        rows: &["10.1 125.6 NULL NULL NULL NULL now name=Dinagat Islands"],
    },
    // https://www.rfc-editor.org/rfc/rfc7946#section-1.5: the Point of the collection; ts and speed
    // are ours. 36 km/h ÷ 3.6 = 10 m/s.
    Example {
        topic: "geojson/rfc",
        payload: r#"{"type":"FeatureCollection","features":[{"type":"Feature","geometry":{"type":"Point","coordinates":[102.0,0.5]},
            "properties":{"prop0":"value0","ts":<s>,"speed":36}}]}"#,
        driver: "rfc",
        rows: &["0.5 102 10 NULL NULL NULL 0 prop0=value0"],
    },
    // http://www.gpsinformation.org/dale/nmea.htm shows both sentences. 7.038′ ÷ 60 = 0.1173°. 31′
    // ÷ 60 = 0.5166667°. 22.4 knots × 0.514444 = 11.52 m/s. The fix is 545.4 m above the sea, which
    // is 46.9 m above the ellipsoid: 592.3 m.
    Example {
        topic: "nmea/both",
        payload: "<rmc>\r\n<gga>\r\n",
        driver: "both",
        rows: &["48.1173 11.5166667 11.52 84.4 592.3 NULL 0 -"],
    },
    // The same GGA alone has no date: its fix gets the day nearest to the time of receipt.
    Example {
        topic: "nmea/alone",
        payload: "<gga>\r\n",
        driver: "alone",
        rows: &["48.1173 11.5166667 NULL NULL 592.3 NULL 0 -"],
    },
    // https://www.w3.org/TR/geolocation/: null is unknown; values are ours.
    Example {
        topic: "w3c/standing",
        payload: r#"{"coords":{"accuracy":20.5,"latitude":25.76,"longitude":-80.19,"altitude":null,"altitudeAccuracy":null,"heading":null,"speed":null},"timestamp":<ms>}"#,
        driver: "standing",
        rows: &["25.76 -80.19 NULL NULL NULL 20.5 123 -"],
    },
    Example {
        topic: "w3c/moving",
        payload: r#"{"coords":{"accuracy":5,"latitude":25.76,"longitude":-80.19,"altitude":3.2,"altitudeAccuracy":1,"heading":271.5,"speed":12.4},"timestamp":<ms>}"#,
        driver: "moving",
        rows: &["25.76 -80.19 12.4 271.5 3.2 5 123 -"],
    },
    // https://docs.particle.io/assets/files/tracker/point-schema.json; values are ours.
    Example {
        topic: "particle/tracker",
        payload: r#"{"cmd":"loc","time":<s>,"loc":{"lck":1,"time":<s>,"lat":42.469732,"lon":-75.064801,"alt":324.16,"hd":122.29,"h_acc":6.0,
            "v_acc":14.0,"cell":37.1,"batt":98.8},"trig":["lock"],"req_id":2}"#,
        driver: "tracker",
        rows: &["42.469732 -75.064801 NULL 122.29 324.2 6 0 loc/batt=98.8"],
    },
    // https://hwb.developer.frammr.no/topic/sensors/location shows this message. The page does not
    // state the unit of the speed.
    Example {
        topic: "bus/b12/sensors/location",
        payload: r#"{"traceId":"48b12d1f-6b96-4f70-94f9-f785cef96812","eventTimestamp":"<iso>Z","latitudeDegree":62.734393,
            "longitudeDegree":7.150033,"altitude":124,"messageNumber":12345,"speedOverGround":15.3,"trackDegreeTrue":324,
            "signalQuality":1,"numberOfSatellites":12,"hdop":2.4}"#,
        driver: "b12",
        rows: &["62.734393 7.150033 NULL 324 NULL NULL 0 speedOverGround=15.3"],
    },
];

/// The message of https://www.traccar.org/osmand/, unchanged except for its time.
const AT_NULL_ISLAND: &str = r#"{"location":{"timestamp":"<iso>Z","coords":{"latitude":0.0,"longitude":0.0,"accuracy":0,"speed":0,
    "heading":0,"altitude":0},"is_moving":false},"device_id":"48241179"}"#;

/// Fills the placeholders of a payload with the time `moment_ms`, a whole second.
fn fill_time(payload: &str, moment_ms: i64) -> String {
    let iso = humantime::format_rfc3339_millis(
        std::time::UNIX_EPOCH + std::time::Duration::from_millis(moment_ms.unsigned_abs()),
    )
    .to_string();
    let sentence = |body: &str| {
        let body = body
            .replace("<hhmmss>", &iso[11..19].replace(':', ""))
            .replace("<ddmmyy>", &[&iso[8..10], &iso[5..7], &iso[2..4]].concat());
        format!("${body}*{:02X}", body.bytes().fold(0, |sum, byte| sum ^ byte))
    };
    payload
        .replace("<rmc>", &sentence(RMC))
        .replace("<gga>", &sentence(GGA))
        .replace("<iso>", iso.trim_end_matches('Z'))
        .replace("<ms>", &(moment_ms + 123).to_string())
        .replace("<s>", &(moment_ms / 1_000).to_string())
}

#[test]
fn documented_examples_are_stored_as_the_expected_rows() -> Result<()> {
    let world = world("documented")?;
    let file = world.folder.path().join("sources.toml");
    std::fs::write(&file, SOURCES)?;
    let settings = world.settings.clone().with_variable("MILEPOST_CONFIG", file.to_string_lossy());
    let milepost = settings.run()?;
    // An hour ago, so that no time of a fix equals a time of receipt.
    let moment_ms = (unix_ms() / 1_000 - 3_600) * 1_000;
    let null_island = ("traccar-client", fill_time(AT_NULL_ISLAND, moment_ms));
    let examples =
        EXAMPLES.iter().map(|example| (example.topic, fill_time(example.payload, moment_ms)));
    let messages: Vec<_> = examples.chain([null_island]).collect();
    let messages: Vec<_> =
        messages.iter().map(|(topic, payload)| (*topic, payload.as_bytes())).collect();
    world.publish(&messages)?;

    let columns = format!(
        "concatWithSeparator(' ', toString(lat), toString(lng), ifNull(toString(round(speed, 2)), \
         'NULL'), ifNull(toString(heading), 'NULL'), ifNull(toString(alt), 'NULL'), \
         ifNull(toString(acc), 'NULL'), if(ts = received_at, 'now', \
         toString(toUnixTimestamp64Milli(ts) - {moment_ms})), if(empty(attributes), '-', \
         arrayStringConcat(arrayMap((k, v) -> concat(k, '=', v), mapKeys(attributes), \
         mapValues(attributes)), ',')))"
    );
    for Example { topic, driver, rows, .. } in EXAMPLES {
        let sql = format!(
            "SELECT {columns} FROM {{db}}.fixes WHERE driver_id = '{driver}' ORDER BY lat DESC"
        );
        world.wait_for(&sql, &rows.join("\n"), SOON).map_err(|error| error.context(*topic))?;
    }
    world.wait_for("SELECT driver_id, reason FROM {rejects}", "48241179\tnull_island", SOON)?;
    // Telemetry without a position is not stored: there are no further rows.
    wait_for_metric(&milepost, "positions_ignored_total", 1.0)?;
    let rows: usize = EXAMPLES.iter().map(|example| example.rows.len()).sum();
    let stored = world.query("SELECT count() FROM {db}.fixes")?;
    ensure!(stored == rows.to_string(), "{stored} rows, not {rows}");
    Ok(())
}
