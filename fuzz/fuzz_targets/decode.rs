//! The input is one line, and then the payload: `0drivers/7/gps\n{"lat":…}`. The first byte of the
//! line is a digit with two flags: 2 means that the payload was truncated, 4 means tight limits,
//! and 6 means both. The rest of the line is the topic. The topic selects the format, see
//! [`SOURCES`]. If `MILEPOST_FUZZ_FORMAT` names a format, every message has that format.

#![no_main]

use std::sync::LazyLock;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use milepost_config::Config;
use milepost_core::batch::Batch;
use milepost_core::encode::encode;
use milepost_decode::Message;
use milepost_decode::position::{Accuracy, Altitude, Heading, Position, Speed, Timestamp};
use milepost_decode::reject::{PAYLOAD_BYTES_MAX, Reason, Reject};
use milepost_decode::{Decoded, Decoder, Limits};

/// Arrival time of every message, 2026-09-21. It is fixed, so that an input always has the same
/// result.
const RECEIVED_AT_MS: i64 = 1_790_000_000_000;
/// Size of the fixed RowBinary columns after the driver's id: ts, seq, lat, lng, speed, heading,
/// alt, acc, `received_at`. The attributes follow.
const ROW_BYTES_AFTER_ID: usize = 8 + 4 + 4 + 4 + 2 + 2 + 4 + 2 + 8;

/// Sources of every format. Some keep all fields; some read the driver from the payload.
const SOURCES: &str = r#"
[formats.acme]
points = "/t"
lat = "/a"
lng = "/b/0"
ts = "/c"
ts_unit = "rfc3339"
speed = "/s"
speed_unit = "mph"
alt = "/h"
alt_unit = "ft"
driver = "/id"
[[sources]]
topic = "drivers/+/gps"
[[sources]]
topic = "+"
keep = "*"
[[sources]]
topic = "o/+/+"
driver = "{1}:{2}"
format = "owntracks"
keep = ["batt", "a/b"]
[[sources]]
topic = "t/r"
driver = "/device/uniqueId"
format = "traccar"
keep = "*"
[[sources]]
topic = "c/r"
driver = "/device_id"
format = "traccar-client"
keep = "*"
[[sources]]
topic = "k/+"
format = "teltonika"
keep = "*"
[[sources]]
topic = "b/+"
format = "thingsboard"
speed_unit = "knots"
keep = "*"
[[sources]]
topic = "g/+"
format = "geojson"
speed_unit = "km/h"
keep = "*"
[[sources]]
topic = "n/+"
format = "nmea"
[[sources]]
topic = "w/+"
format = "w3c"
keep = "*"
[[sources]]
topic = "m/r"
format = "acme"
keep = "*"
"#;

/// Limits near the defaults of the configuration.
static WIDE: LazyLock<(Decoder, Limits)> =
    LazyLock::new(|| decoder(1_000_000, 10_000, 30 * 86_400, 300));
/// Limits that are low enough for small inputs to reach.
static TIGHT: LazyLock<(Decoder, Limits)> = LazyLock::new(|| decoder(200, 3, 1, 0));

/// A topic of the format in `MILEPOST_FUZZ_FORMAT`, if it is set.
static ONLY_TOPIC: LazyLock<Option<&str>> = LazyLock::new(|| {
    let format = std::env::var("MILEPOST_FUZZ_FORMAT").ok()?;
    Some(match &*format {
        "milepost" => "7",
        "owntracks" => "o/jo/phone",
        "traccar" => "t/r",
        "traccar-client" => "c/r",
        "teltonika" => "k/7",
        "thingsboard" => "b/7",
        "geojson" => "g/7",
        "nmea" => "n/7",
        "w3c" => "w/7",
        "mapped" => "m/r",
        other => panic!("MILEPOST_FUZZ_FORMAT: no format {other}"),
    })
});

fn decoder(
    payload_bytes_max: usize,
    points_max: usize,
    age_s: u64,
    future_s: u64,
) -> (Decoder, Limits) {
    let limits = Limits {
        payload_bytes_max,
        points_max,
        fix_age_max: Duration::from_secs(age_s),
        fix_future_max: Duration::from_secs(future_s),
    };
    let config = Config::parse(SOURCES).expect("the sources are well formed");
    (Decoder::new(&config.sources, limits.clone()), limits)
}

fuzz_target!(|data: &[u8]| {
    let Some((&flags, data)) = data.split_first() else { return };
    let mut lines = data.splitn(2, |byte| *byte == b'\n');
    let (topic, payload) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let topic = ONLY_TOPIC.map_or(topic, str::as_bytes);
    let is_tight = flags & 4 != 0;
    let (decoder, limits) = if is_tight { &*TIGHT } else { &*WIDE };
    let payload_bytes = payload.len() + if flags & 2 == 0 { 0 } else { 1_000 };
    let received_at = Timestamp::from_unix_ms(RECEIVED_AT_MS);
    let message = Message { payload_bytes, ..Message::new(topic, payload) };

    let mut decoded = Decoded::default();
    decoder.decode(message, received_at, &mut decoded);
    if serde_json::from_slice::<serde_json::Value>(payload).is_ok() {
        let is_valid = |reject: &Reject| reject.reason != Reason::InvalidJson;
        assert!(decoded.rejects.iter().all(is_valid), "serde_json can read it: {decoded:?}");
    }

    let (position_count, reject_count) = (decoded.positions.len(), decoded.rejects.len());
    assert!(
        (1..=limits.points_max).contains(&(position_count + reject_count + decoded.ignored.len())),
        "{decoded:?}"
    );
    for position in &decoded.positions {
        check(position, message, limits);
    }
    for reject in &decoded.rejects {
        assert!(reject.payload.len() <= PAYLOAD_BYTES_MAX && reject.detail.chars().count() <= 200);
        assert!(reject.payload.len() as u64 <= reject.payload_bytes);
        assert_eq!((reject.count, reject.received_at), (1, received_at));
    }
    assert!(decoded.omissions.undated <= position_count as u64);
    assert!(decoded.omissions.fields.iter().all(|unknown| *unknown <= position_count as u64));

    let Decoded { positions, rejects, .. } = decoded;
    let inserts = encode(Batch { positions, rejects, ..Batch::default() }, "fleet");
    let rows_of = |table: &str| {
        let table_inserts = inserts.iter().filter(|insert| insert.statement.contains(table));
        table_inserts.map(|insert| insert.rows).sum::<usize>()
    };
    assert_eq!(
        (rows_of("fleet.positions "), rows_of("fleet.rejects ")),
        (position_count, reject_count)
    );
    for insert in &inserts {
        let middle = insert.rows / 2;
        let halves = [0..middle, middle..insert.rows]
            .map(|rows| insert.part(rows).expect("the columns are known"));
        assert_eq!(halves.map(|half| half.body).concat(), insert.body);
    }
    if position_count > 0 {
        assert_eq!(rows_in(&inserts[0].body), position_count);
    }
});

/// Asserts that each value of a position is in its range, and that the driver's id comes from the
/// topic. For topics that end in `/r`, the payload names the driver.
fn check(position: &Position, message: Message<'_>, limits: &Limits) {
    let within =
        |value: i64, min: i64, max: i64| assert!((min..=max).contains(&value), "{position:?}");
    within(position.lat.e7().into(), -900_000_000, 900_000_000);
    within(position.lng.e7().into(), -1_800_000_000, 1_800_000_000);
    if position.speed != Speed::UNKNOWN {
        within(position.speed.cms().into(), 0, 20_000);
    }
    if position.heading != Heading::UNKNOWN {
        within(position.heading.cdeg().into(), 0, 35_999);
    }
    if position.alt != Altitude::UNKNOWN {
        within(position.alt.dm().into(), -10_000, 1_000_000);
    }
    if position.acc != Accuracy::UNKNOWN {
        within(position.acc.dm().into(), 0, 65_534);
    }
    let ms = |duration: Duration| {
        i64::try_from(duration.as_millis()).expect("an age limit fits into i64")
    };
    let (oldest, newest) =
        (RECEIVED_AT_MS - ms(limits.fix_age_max), RECEIVED_AT_MS + ms(limits.fix_future_max));
    within(position.ts.unix_ms(), oldest, newest);
    let id = position.driver_id.as_str();
    assert!((1..=64).contains(&id.len()));
    let topic = std::str::from_utf8(message.topic).expect("a source matched the topic");
    let parts = || id.split(':').all(|part| topic.contains(part));
    assert!(topic.ends_with("/r") || topic.contains(id) || parts(), "{id} {topic}");
    let kept: usize =
        position.attributes.iter().map(|(name, value)| name.len() + value.len()).sum();
    assert!(kept <= 4_096 && position.attributes.iter().count() <= 64);
    assert_eq!(position.received_at.unix_ms(), RECEIVED_AT_MS);
}

/// Counts the rows of a RowBinary body of `positions`, as the server would.
fn rows_in(mut body: &[u8]) -> usize {
    let mut rows = 0;
    while let Some(id_bytes) = body.first() {
        // An id is at most 64 bytes long, so its length is one byte.
        body = &body[1 + usize::from(*id_bytes) + ROW_BYTES_AFTER_ID..];
        for _ in 0..2 * count(&mut body) {
            let length = count(&mut body);
            body = &body[length..];
        }
        rows += 1;
    }
    rows
}

/// Reads a count in unsigned LEB128.
fn count(body: &mut &[u8]) -> usize {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (byte, rest) = body.split_first().expect("a count");
        *body = rest;
        value |= usize::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}
