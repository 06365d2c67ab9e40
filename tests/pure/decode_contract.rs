//! Checks the input contract of milepost's own format, rule by rule.

use milepost_config::Config;
use milepost_decode::Message;
use milepost_decode::position::{Position, Timestamp};
use milepost_decode::reject::Reason;
use milepost_decode::{Decoded, Decoder, Field, Limits};
use proptest::prelude::*;

use crate::rows::{WALL_MS, decoder, limits};

fn decode_on(topic: &str, payload: &[u8]) -> Decoded {
    let mut out = Decoded::default();
    let received_at = Timestamp::from_unix_ms(WALL_MS);
    decoder().decode(Message::new(topic.as_bytes(), payload), received_at, &mut out);
    out
}

fn decode(payload: &str) -> Decoded {
    decode_on("drivers/d7/gps", payload.as_bytes())
}

/// Returns the single position of a valid payload.
fn good(payload: &str) -> Position {
    let mut decoded = decode(payload);
    assert!(decoded.rejects.is_empty(), "{payload}: {:?}", decoded.rejects);
    assert_eq!(decoded.positions.len(), 1, "{payload}");
    decoded.positions.remove(0)
}

#[track_caller]
fn check_refused(topic: &str, payload: &[u8], reason: Reason) {
    let decoded = decode_on(topic, payload);
    let payload_start = String::from_utf8_lossy(&payload[..payload.len().min(80)]).into_owned();
    assert!(decoded.positions.is_empty(), "{topic} {payload_start}: accepted");
    assert_eq!(decoded.rejects.len(), 1, "{topic} {payload_start}");
    assert_eq!(
        decoded.rejects[0].reason, reason,
        "{topic} {payload_start}: {}",
        decoded.rejects[0].detail
    );
    assert!(!decoded.rejects[0].detail.is_empty(), "{topic} {payload_start}: the detail is empty");
}

#[test]
fn reject_detail_states_the_expected_value() {
    let expected = "neither a number nor RFC 3339 with an offset, such as 2026-01-31T08:00:00Z";
    for (payload, detail) in [
        (r#"{"lng":2}"#, "lat is missing; the names here are lng".to_owned()),
        ("[7]", "7 is not an object with lat and lng".to_owned()),
        ("[null]", "null is not an object with lat and lng".to_owned()),
        (r#"{"lat":1,"lng":"2"}"#, "lng is \"2\", not a number; send it without quotes".to_owned()),
        (
            r#"{"lat":1,"lng":2,"ts":"1760000000123"}"#,
            format!("ts is \"1760000000123\", {expected}"),
        ),
        (
            r#"{"lat":1,"lng":2,"ts":"2026-01-31T08:00:00"}"#,
            format!(
                "ts is \"2026-01-31T08:00:00\", {expected}; name its zone with `zone` of the \
                 source or `ts_zone` of the format"
            ),
        ),
    ] {
        assert_eq!(decode(payload).rejects[0].detail, detail, "{payload}");
    }
}

#[test]
fn full_fix_is_converted_to_the_units_of_the_table() {
    let fix = good(
        r#"{"lat":25.7617,"lng":-80.1918,"speed":12.4,"heading":271,"alt":-3.25,"acc":5,"ts":1767225599123,"seq":42}"#,
    );
    assert_eq!((fix.driver_id.as_str(), &*format!("{:?}", fix.driver_id)), ("d7", "\"d7\""));
    assert_eq!((fix.lat.e7(), fix.lng.e7()), (257_617_000, -801_918_000));
    assert_eq!(
        (fix.speed.cms(), fix.heading.cdeg(), fix.alt.dm(), fix.acc.dm()),
        (1_240, 27_100, -33, 50)
    );
    assert_eq!((fix.ts.unix_ms(), fix.seq), (1_767_225_599_123, 42));
    assert_eq!(fix.received_at.unix_ms(), WALL_MS);
}

#[test]
fn minimal_fix_is_undated_with_unknown_values() {
    let decoded = decode(r#"{"lat":1,"lon":2}"#);
    assert_eq!(decoded.omissions.undated, 1);
    assert_eq!(
        decoded.omissions.fields,
        [0; Field::ALL.len()],
        "an absent field counts as unusable"
    );
    let fix =
        good(r#" {"lat":1,"lng":2,"ts":null,"speed":null,"driver_id":"d7","extra":{"a":[1,2]}} "#);
    assert_eq!(fix.ts.unix_ms(), WALL_MS);
    assert_eq!((fix.seq, fix.speed.cms(), fix.heading.cdeg()), (0, u16::MAX, u16::MAX));
}

#[test]
fn every_reject_reason_has_a_payload() {
    let topic = "drivers/d7/gps";
    let at = |ts: i64| format!(r#"{{"lat":1,"lng":2,"ts":{ts}}}"#);
    let too_many = format!("[{}]", vec![r#"{"lat":1,"lng":2}"#; limits().points_max + 1].join(","));
    let month_ms = 30 * 86_400_000_i64;
    let cases: Vec<(&str, Vec<u8>, Reason)> = vec![
        (topic, vec![b' '; 1_000_001], Reason::TooLarge),
        ("other/d7/gps", b"{}".to_vec(), Reason::BadTopic),
        ("drivers/a/b/gps", b"{}".to_vec(), Reason::BadTopic),
        ("drivers//gps", b"{}".to_vec(), Reason::BadTopic),
        ("drivers/d 7/gps", b"{}".to_vec(), Reason::BadTopic),
        ("drivers/gps", b"{}".to_vec(), Reason::BadTopic),
        (topic, Vec::new(), Reason::Empty),
        (topic, b"{\"lat\":1,\"lng\":2,\"x\":\"\xff\"}".to_vec(), Reason::InvalidUtf8),
        (topic, br#"{"lat":1,"lng":2"#.to_vec(), Reason::InvalidJson),
        (topic, br#"{"lat":1,"lng":2} x"#.to_vec(), Reason::InvalidJson),
        (topic, br#"{"lat":None,"lng":2}"#.to_vec(), Reason::InvalidJson),
        (topic, br#"{"lat":1e999,"lng":2}"#.to_vec(), Reason::LatRange),
        (topic, br#"[{"lat":1,"lng":2},{"lat":1,]"#.to_vec(), Reason::InvalidJson),
        (topic, b"hello".to_vec(), Reason::InvalidJson),
        (topic, b"   ".to_vec(), Reason::InvalidJson),
        (topic, b"null".to_vec(), Reason::WrongShape),
        (topic, b"[]".to_vec(), Reason::WrongShape),
        (topic, b"42".to_vec(), Reason::WrongShape),
        (topic, br#""text""#.to_vec(), Reason::WrongShape),
        (topic, b"[7]".to_vec(), Reason::WrongShape),
        (topic, too_many.into_bytes(), Reason::TooManyPoints),
        (topic, br#"{"lat":1,"lng":2,"driver_id":"d8"}"#.to_vec(), Reason::DriverMismatch),
        (topic, br#"{"lat":1,"lng":2,"driver_id":7}"#.to_vec(), Reason::DriverMismatch),
        (topic, br#"{"lat":1}"#.to_vec(), Reason::MissingField),
        (topic, br#"{"lat":"1","lng":2}"#.to_vec(), Reason::WrongType),
        (topic, br#"{"lat":1,"lng":2,"lon":3}"#.to_vec(), Reason::WrongType),
        (topic, b"{}".to_vec(), Reason::MissingField),
        (topic, br#"{"lat":90.1,"lng":2}"#.to_vec(), Reason::LatRange),
        (topic, br#"{"lat":1,"lng":-180.1}"#.to_vec(), Reason::LngRange),
        (topic, br#"{"lat":0,"lng":-0.0}"#.to_vec(), Reason::NullIsland),
        (topic, br#"{"lat":1,"lng":2,"ts":"yesterday"}"#.to_vec(), Reason::BadTs),
        (topic, br#"{"lat":1,"lng":2,"ts":true}"#.to_vec(), Reason::BadTs),
        (topic, br#"{"lat":1,"lng":2,"ts":{"a":1}}"#.to_vec(), Reason::BadTs),
        (topic, at(0).into_bytes(), Reason::TooOld),
        (topic, at(WALL_MS - month_ms - 1).into_bytes(), Reason::TooOld),
        (topic, at(WALL_MS + 300_001).into_bytes(), Reason::TooNew),
        (topic, br#"{"lat":1,"lng":2,"ts":1e300}"#.to_vec(), Reason::TooNew),
        (topic, br#"{"lat":1,"lng":2,"ts":"2100-01-01T00:00:00Z"}"#.to_vec(), Reason::TooNew),
    ];
    for (topic, payload, reason) in &cases {
        check_refused(topic, payload, *reason);
    }
    // Reasons that only other formats give; formats.rs tests them.
    let other_format_reasons = [
        Reason::UnknownFormatKind,
        Reason::InvalidSentence,
        Reason::BadChecksum,
        Reason::BadDriver,
    ];
    for reason in Reason::ALL.into_iter().filter(|reason| !other_format_reasons.contains(reason)) {
        assert!(cases.iter().any(|(.., given)| *given == reason), "no payload gives {reason:?}");
    }
}

#[test]
fn first_reason_in_order_wins() {
    check_refused("other", &[b' '; 1_000_001], Reason::TooLarge);
    check_refused("other", b"", Reason::BadTopic);
    check_refused(
        "drivers/d7/gps",
        br#"{"lat":91,"lng":181,"driver_id":"x"}"#,
        Reason::DriverMismatch,
    );
    check_refused("drivers/d7/gps", br#"{"lat":91,"lng":181,"ts":0}"#, Reason::LatRange);
    check_refused("drivers/d7/gps", br#"{"lat":0,"lng":0,"ts":"x"}"#, Reason::NullIsland);
}

#[test]
fn null_island_is_exactly_0_0() {
    for (lat, lng) in [("0", "5"), ("5", "0"), ("0", "0.00000001"), ("0.00000001", "0")] {
        good(&format!(r#"{{"lat":{lat},"lng":{lng}}}"#));
    }
}

#[test]
fn times_are_read_in_any_unit_or_as_a_string() {
    let ts = |value: &str| good(&format!(r#"{{"lat":1,"lng":2,"ts":{value}}}"#)).ts.unix_ms();
    assert_eq!(ts("1767225600"), WALL_MS);
    assert_eq!(ts("1767225600.5"), WALL_MS + 500);
    assert_eq!(ts("1767225600123"), WALL_MS + 123);
    assert_eq!(ts("1767225600123456"), WALL_MS + 123);
    assert_eq!(ts("1767225600123456789"), WALL_MS + 123);
    for number in ["1767225600123.4", "1767225600123456.5", "1767225600123456789.5"] {
        assert_eq!(ts(number), WALL_MS + 123, "{number}");
    }
    assert_eq!(ts(r#""2026-01-01T00:00:00.123Z""#), WALL_MS + 123);
    assert_eq!(ts(r#""2026-01-01T00:00:00.123\u005a""#), WALL_MS + 123, "with an escape");
    assert_eq!(ts(r#""2026-01-01T02:00:00+02:00""#), WALL_MS);
}

#[test]
fn limits_of_the_time_range_are_inclusive() {
    let at = |ts: i64| good(&format!(r#"{{"lat":1,"lng":2,"ts":{ts}}}"#)).ts.unix_ms();
    for edge in [WALL_MS - 30 * 86_400_000, WALL_MS + 300_000] {
        assert_eq!(at(edge), edge);
    }
}

#[test]
fn unusable_optional_field_becomes_unknown() {
    let decoded =
        decode(r#"{"lat":1,"lng":2,"speed":-1,"heading":361,"alt":"high","acc":[5],"seq":-1}"#);
    assert_eq!(decoded.omissions.fields[..5], [1; 5]);
    let fix = &decoded.positions[0];
    assert_eq!(
        (fix.speed.cms(), fix.heading.cdeg(), fix.alt.dm(), fix.acc.dm()),
        (u16::MAX, u16::MAX, i32::MAX, u16::MAX)
    );
    assert_eq!(fix.seq, 0);
    assert_eq!(
        decode(r#"{"lat":1,"lng":2,"seq":4294967296}"#).omissions.fields[Field::Seq as usize],
        1
    );
    assert_eq!(good(r#"{"lat":1,"lng":2,"heading":360}"#).heading.cdeg(), 0);
}

#[test]
fn broken_point_does_not_affect_its_neighbours() {
    let decoded =
        decode(r#"[{"lat":1,"lng":2,"seq":1}, {"lat":91,"lng":2}, 5, {"lat":1,"lng":2,"seq":4}]"#);
    assert_eq!(decoded.positions.iter().map(|position| position.seq).collect::<Vec<_>>(), [1, 4]);
    let reported: Vec<_> = decoded
        .rejects
        .iter()
        .map(|reject| (reject.reason, String::from_utf8_lossy(&reject.payload).into_owned()))
        .collect();
    assert_eq!(
        reported,
        [
            (Reason::LatRange, r#"{"lat":91,"lng":2}"#.to_owned()),
            (Reason::WrongShape, "5".to_owned())
        ]
    );
}

#[test]
fn last_duplicate_key_wins() {
    assert_eq!(good(r#"{"lat":50,"lng":2,"lat":1}"#).lat.e7(), 10_000_000);
    assert_eq!(
        good(r#"{"lat":1,"lng":2,"lon":2.00001}"#).lng.e7(),
        20_000_000,
        "lng takes precedence over lon"
    );
    assert_eq!(
        good(r#"{"l\u0061t":1,"lng":2}"#).lat.e7(),
        10_000_000,
        "escapes in keys are decoded"
    );
}

#[test]
fn limits_are_inclusive_and_deep_nesting_uses_no_stack() {
    let full = format!("[{}]", vec![r#"{"lat":1,"lng":2}"#; limits().points_max].join(","));
    assert_eq!(decode(&full).positions.len(), limits().points_max);
    let point = r#"{"lat":1,"lng":2}"#;
    good(&[point, &" ".repeat(limits().payload_bytes_max - point.len())].concat());
    let one_point_decoder =
        Decoder::new(&Config::defaults().unwrap().sources, Limits { points_max: 1, ..limits() });
    let mut decoded = Decoded::default();
    let message = Message::new(b"drivers/d7/gps", br#"[{"lat":1,"lng":2},{"lat":1,"lng":2}]"#);
    one_point_decoder.decode(message, Timestamp::from_unix_ms(WALL_MS), &mut decoded);
    assert_eq!((decoded.positions.len(), decoded.rejects[0].reason), (0, Reason::TooManyPoints));
    let deep = format!(r#"{{"lat":1,"lng":2,"x":{}{}}}"#, "[".repeat(200_000), "]".repeat(200_000));
    assert_eq!(decode(&deep).positions.len() + decode(&deep).rejects.len(), 1);
    let deep_seq =
        format!(r#"{{"lat":1,"lng":2,"seq":{}{}}}"#, "[".repeat(200_000), "]".repeat(200_000));
    assert_eq!(decode(&deep_seq).positions.len() + decode(&deep_seq).rejects.len(), 1);
}

#[test]
fn rejects_keep_the_first_64_kib_and_the_full_length() {
    let long = format!(r#"{{"lat":91,"lng":2,"x":"{}"}}"#, "y".repeat(100_000));
    let reject = decode(&long).rejects.remove(0);
    assert_eq!((reject.payload.len(), reject.payload_bytes), (65_536, long.len() as u64));
    assert!(reject.detail.len() <= 800);
}

#[test]
fn truncated_payload_is_too_large_even_if_its_start_is_valid() {
    let mut out = Decoded::default();
    let (topic, payload) = (b"drivers/d7/gps", br#"{"lat":1,"lng":2}"#);
    let received_at = Timestamp::from_unix_ms(WALL_MS);
    decoder().decode(
        Message { payload_bytes: 99_999, ..Message::new(topic, payload) },
        received_at,
        &mut out,
    );
    let reject = out.rejects.remove(0);
    assert_eq!((reject.reason, reject.payload_bytes), (Reason::TooLarge, 99_999));
    assert_eq!(reject.payload, payload);
    assert!(out.positions.is_empty());
}

proptest! {
    #![proptest_config(crate::cases::cases(2_000))]

    #[test]
    fn any_bytes_give_a_result_without_a_panic(
        topic in prop::collection::vec(any::<u8>(), 0..40),
        payload in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut out = Decoded::default();
        let received_at = Timestamp::from_unix_ms(WALL_MS);
        decoder().decode(Message::new(&topic, &payload), received_at, &mut out);
        prop_assert!(out.positions.len() + out.rejects.len() == 1);
    }

    #[test]
    fn near_json_gives_a_result_without_a_panic(fragments in prop::collection::vec(prop::sample::select(vec![
        "{", "}", "[", "]", ",", ":", "\"lat\"", "\"lng\"", "\"ts\"", "\"seq\"", "\"speed\"", "1", "-0.0",
        "1e308", "1e-400", "9223372036854775808", "\"2026-01-01T00:00:00Z\"", "null", "true", " ",
        "\\u0000", "\"\\ud800\"", "\u{fffd}",
    ]), 0..40)) {
        let decoded = decode(&fragments.concat());
        prop_assert!(decoded.positions.len() + decoded.rejects.len() >= 1);
    }

    #[test]
    fn values_in_range_round_trip(
        lat in -90.0_f64..=90.0,
        lng in -180.0_f64..=180.0,
        seq: u32,
        speed in 0.0_f64..=200.0,
    ) {
        prop_assume!(lat != 0.0 || lng != 0.0);
        let fix = good(&format!(r#"{{"lat":{lat},"lng":{lng},"seq":{seq},"speed":{speed}}}"#));
        prop_assert!((f64::from(fix.lat.e7()) / 1e7 - lat).abs() <= 0.51e-7);
        prop_assert!((f64::from(fix.lng.e7()) / 1e7 - lng).abs() <= 0.51e-7);
        prop_assert!((f64::from(fix.speed.cms()) / 100.0 - speed).abs() <= 0.0051);
        prop_assert_eq!(fix.seq, seq);
    }
}
