//! Tests typical payloads of devices in the field, for every JSON format.

use std::time::{Duration, UNIX_EPOCH};

use milepost_config::Config;
use milepost_decode::Message;
use milepost_decode::position::Timestamp;
use milepost_decode::reject::Reason;
use milepost_decode::{Decoded, Decoder, Field, Limits};

/// 2026-01-01.
const NOW_MS: i64 = 1_767_225_600_000;
const UNKNOWN: u16 = u16::MAX;

/// A device that writes fixes in one format. In `fix`, `<lat>`, `<lng>`, `<speed>` and `<time>`
/// stand for JSON values.
struct Device {
    source: &'static str,
    fix: &'static str,
    time: Time,
    /// Expected speed in cm/s for a payload whose speed is 36 in the format's unit.
    speed_of_36: u16,
    minus_one_is_unknown: bool,
    allows_numeric_strings: bool,
    /// Text before and after a list of fixes in one payload.
    list_brackets: [&'static str; 2],
}

#[derive(Clone, Copy)]
enum Time {
    Seconds,
    Milliseconds,
    Rfc3339,
}

const ARRAY: [&str; 2] = ["[", "]"];

const DEVICES: [Device; 9] = [
    Device {
        source: "format = 'milepost'",
        fix: r#"{"lat":<lat>,"lng":<lng>,"speed":<speed>,"ts":<time>}"#,
        time: Time::Milliseconds,
        speed_of_36: 3_600,
        minus_one_is_unknown: false,
        allows_numeric_strings: false,
        list_brackets: ARRAY,
    },
    Device {
        source: "format = 'owntracks'",
        fix: r#"{"_type":"location","lat":<lat>,"lon":<lng>,"vel":<speed>,"tst":<time>}"#,
        time: Time::Seconds,
        speed_of_36: 1_000,
        minus_one_is_unknown: true,
        allows_numeric_strings: true,
        list_brackets: ARRAY,
    },
    Device {
        source: "format = 'traccar'",
        fix: r#"{"position":{"latitude":<lat>,"longitude":<lng>,"speed":<speed>,"fixTime":<time>},"device":{"uniqueId":"7"}}"#,
        time: Time::Rfc3339,
        speed_of_36: 1_852,
        minus_one_is_unknown: false,
        allows_numeric_strings: false,
        list_brackets: ARRAY,
    },
    Device {
        source: "format = 'traccar-client'",
        fix: r#"{"coords":{"latitude":<lat>,"longitude":<lng>,"speed":<speed>},"timestamp":<time>}"#,
        time: Time::Rfc3339,
        speed_of_36: 3_600,
        minus_one_is_unknown: true,
        allows_numeric_strings: false,
        list_brackets: [r#"{"location":["#, "]}"],
    },
    Device {
        source: "format = 'teltonika'",
        fix: r#"{"state":{"reported":{"latlng":"<lat>,<lng>","sp":<speed>,"ts":<time>}}}"#,
        time: Time::Milliseconds,
        speed_of_36: 1_000,
        minus_one_is_unknown: false,
        allows_numeric_strings: true,
        list_brackets: ARRAY,
    },
    Device {
        source: "format = 'thingsboard'\nspeed_unit = 'mph'",
        fix: r#"{"ts":<time>,"values":{"latitude":<lat>,"longitude":<lng>,"speed":<speed>}}"#,
        time: Time::Milliseconds,
        speed_of_36: 1_609,
        minus_one_is_unknown: false,
        allows_numeric_strings: true,
        list_brackets: ARRAY,
    },
    Device {
        source: "format = 'geojson'\nspeed_unit = 'knots'",
        fix: r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[<lng>,<lat>]},"properties":{"speed":<speed>,"ts":<time>}}"#,
        time: Time::Seconds,
        speed_of_36: 1_852,
        minus_one_is_unknown: false,
        allows_numeric_strings: false,
        list_brackets: [r#"{"type":"FeatureCollection","features":["#, "]}"],
    },
    Device {
        source: "format = 'w3c'",
        fix: r#"{"coords":{"latitude":<lat>,"longitude":<lng>,"speed":<speed>},"timestamp":<time>}"#,
        time: Time::Milliseconds,
        speed_of_36: 3_600,
        minus_one_is_unknown: false,
        allows_numeric_strings: false,
        list_brackets: ARRAY,
    },
    Device {
        source: "format = 'acme'\n[formats.acme]\npoints = '/p'\nlat = '/a'\nlng = '/b'\n\
                 speed = '/c/0'\nspeed_unit = 'km/h'\nts = '/d'\nts_unit = 's'",
        fix: r#"{"a":<lat>,"b":<lng>,"c":[<speed>],"d":<time>}"#,
        time: Time::Seconds,
        speed_of_36: 1_000,
        minus_one_is_unknown: false,
        allows_numeric_strings: true,
        list_brackets: [r#"{"p":["#, "]}"],
    },
];

impl Device {
    fn decode(&self, payload: &str) -> Decoded {
        let sources = Config::parse(&format!("[[sources]]\ntopic = 'in/+'\n{}", self.source))
            .unwrap()
            .sources;
        let day = Duration::from_secs(86_400);
        let limits = Limits {
            payload_bytes_max: 1_000_000,
            points_max: 100,
            fix_age_max: 30 * day,
            fix_future_max: Duration::from_secs(300),
        };
        let mut decoded = Decoded::default();
        let message = Message::new(b"in/d7", payload.as_bytes());
        Decoder::new(&sources, limits).decode(
            message,
            Timestamp::from_unix_ms(NOW_MS),
            &mut decoded,
        );
        decoded
    }

    fn fix(&self, [lat, lng]: [&str; 2], speed: &str, ms: i64) -> String {
        let time = match self.time {
            Time::Seconds => (ms / 1_000).to_string(),
            Time::Milliseconds => ms.to_string(),
            Time::Rfc3339 => {
                let since = Duration::from_millis(ms.unsigned_abs());
                format!("\"{}\"", humantime::format_rfc3339_millis(UNIX_EPOCH + since))
            }
        };
        let [lat, lng] = if self.fix.contains("\"<lat>") {
            [lat, lng].map(|number| number.trim_matches('"'))
        } else {
            [lat, lng]
        };
        let values = [("<lat>", lat), ("<lng>", lng), ("<speed>", speed), ("<time>", &time)];
        values.iter().fold(self.fix.to_owned(), |fix, (name, value)| fix.replace(name, value))
    }

    #[track_caller]
    fn reasons(&self, payload: &str) -> Vec<Reason> {
        let decoded = self.decode(payload);
        assert!(
            decoded.positions.is_empty() && decoded.ignored.is_empty(),
            "{payload}: {decoded:?}"
        );
        decoded.rejects.iter().map(|reject| reject.reason).collect()
    }
}

const PLACE: [&str; 2] = ["25.76", "-80.19"];
const PLACE_E7: (i32, i32) = (257_600_000, -801_900_000);
const MINUTE_MS: i64 = 60_000;

#[test]
fn fix_is_read_in_the_units_of_its_format() {
    for device in DEVICES {
        for place in [PLACE, ["2.576e1", "-8019E-2"]] {
            let decoded = device.decode(&device.fix(place, "36", NOW_MS - MINUTE_MS));
            let [fix] = &decoded.positions[..] else { panic!("{}: {decoded:?}", device.source) };
            assert_eq!((fix.lat.e7(), fix.lng.e7()), PLACE_E7, "{}", device.source);
            assert_eq!(fix.speed.cms(), device.speed_of_36, "{}", device.source);
            assert_eq!(fix.ts.unix_ms(), NOW_MS - MINUTE_MS, "{}", device.source);
            let omissions = decoded.omissions.fields.iter().sum::<u64>();
            assert_eq!((decoded.omissions.undated, omissions), (0, 0), "{}", device.source);
        }
    }
}

#[test]
fn buffered_hours_arrive_newest_first_with_duplicates() {
    for device in DEVICES {
        let hours: Vec<i64> =
            [0, 1, 1, 2, 3].iter().map(|hour| NOW_MS - hour * 60 * MINUTE_MS).collect();
        let fixes: Vec<String> = hours.iter().map(|ms| device.fix(PLACE, "36", *ms)).collect();
        let [open, close] = device.list_brackets;
        let decoded = device.decode(&format!("{open}{}{close}", fixes.join(" ,\n")));
        let stored: Vec<i64> = decoded.positions.iter().map(|fix| fix.ts.unix_ms()).collect();
        assert_eq!(stored, hours, "{}: not in the order sent: {decoded:?}", device.source);
        assert_eq!(
            decoded.positions[1], decoded.positions[2],
            "{}: the duplicates differ",
            device.source
        );
    }
}

#[test]
fn fix_from_1970_or_2100_is_rejected() {
    for device in DEVICES {
        assert_eq!(
            device.reasons(&device.fix(PLACE, "36", 12_000)),
            [Reason::TooOld],
            "{}",
            device.source
        );
        let in_2100 = 4_102_444_800_000;
        assert_eq!(
            device.reasons(&device.fix(PLACE, "36", in_2100)),
            [Reason::TooNew],
            "{}",
            device.source
        );
    }
}

#[test]
fn unknown_speed_keeps_the_fix() {
    for device in DEVICES {
        // Returns the number of speeds that count as unusable.
        let unusable = |speed: &str| {
            let decoded = device.decode(&device.fix(PLACE, speed, NOW_MS));
            assert_eq!(
                decoded.positions[0].speed.cms(),
                UNKNOWN,
                "{} {speed}: {decoded:?}",
                device.source
            );
            decoded.omissions.fields[Field::Speed as usize]
        };
        assert_eq!(unusable("null"), 0, "{}: null counts as unusable", device.source);
        assert_eq!(unusable("-1"), u64::from(!device.minus_one_is_unknown), "{}", device.source);
        assert_eq!(unusable("1e300"), 1, "{}", device.source);
        assert_eq!(unusable("{\"a\":[1]}"), 1, "{}", device.source);
    }
}

#[test]
fn numeric_strings_need_a_format_that_allows_them() {
    for device in DEVICES {
        let payload = device.fix(["\"25.76\"", "\"-80.19\""], "\"36\"", NOW_MS);
        if device.allows_numeric_strings {
            let decoded = device.decode(&payload);
            let [fix] = &decoded.positions[..] else { panic!("{}: {decoded:?}", device.source) };
            assert_eq!((fix.lat.e7(), fix.lng.e7()), PLACE_E7, "{}", device.source);
            assert_eq!(fix.speed.cms(), device.speed_of_36, "{}", device.source);
        } else {
            assert_eq!(device.reasons(&payload), [Reason::WrongType], "{}", device.source);
        }
    }
}

#[test]
fn invalid_coordinates_are_rejected() {
    for device in DEVICES {
        let refused = |place| device.reasons(&device.fix(place, "36", NOW_MS));
        assert_eq!(refused(["0", "-0.0"]), [Reason::NullIsland], "{}", device.source);
        assert_eq!(refused(["90.0000001", "0"]), [Reason::LatRange], "{}", device.source);
        assert_eq!(refused(["0", "-180.0000001"]), [Reason::LngRange], "{}", device.source);
        assert_eq!(refused(["25.76", "null"]), [Reason::MissingField], "{}", device.source);
    }
}

#[test]
fn empty_and_nested_arrays_are_rejected() {
    for device in DEVICES {
        let [open, close] = device.list_brackets;
        assert_eq!(device.reasons("[]"), [Reason::WrongShape], "{}", device.source);
        assert_eq!(
            device.reasons(&format!("{open}{close}")),
            [Reason::WrongShape],
            "{}",
            device.source
        );
        let nested = format!("[[{}]]", device.fix(PLACE, "36", NOW_MS));
        assert_eq!(device.reasons(&nested).len(), 1, "{}", device.source);
        for payload in ["null", "7", "\"text\"", "[null]", "[7]", "{\"lat\":1", "{}x"] {
            assert_eq!(device.reasons(payload).len(), 1, "{} {payload}", device.source);
        }
    }
}
