//! Tests that no fix is stored with the time of receipt, or with another wrong time, although its
//! payload states the right one.

mod common;

use std::sync::Arc;

use common::{NOW_MS, decode_by, fields, format_called, mapped_source, pointer};
use milepost_decode::formats::{Degrees, Fields, Format, Mapping, More};
use milepost_decode::position::Timestamp;
use milepost_decode::{
    Decoded, Decoder, Driver, Keep, Limits, Local, Message, Source, SpeedUnit, Template, TimeUnit,
    Zone,
};

fn decode(source: &Source, payload: impl AsRef<[u8]>) -> Decoded {
    let decoder = Decoder::new(std::slice::from_ref(source), Limits::default());
    decode_by(&decoder.listing_unread(), payload)
}

/// Asserts that every point is rejected as `bad_ts`, with `message` in the detail.
#[track_caller]
fn assert_refused(source: &Source, payload: &str, message: &str) {
    let decoded = decode(source, payload);
    assert!(decoded.positions.is_empty() && !decoded.rejects.is_empty(), "{payload}: {decoded:?}");
    for reject in &decoded.rejects {
        assert_eq!(reject.reason.name(), "bad_ts", "{payload}: {}", reject.detail);
        assert!(reject.detail.contains(message), "{payload}: {}", reject.detail);
    }
}

/// Asserts that the payload is one fix that is stored without a time.
#[track_caller]
fn assert_undated(source: &Source, payload: &str) {
    let decoded = decode(source, payload);
    let found = (decoded.positions.len(), decoded.rejects.len(), decoded.omissions.undated);
    assert_eq!(found, (1, 0, 1), "{payload}: {decoded:?}");
}

fn feature(members: &str) -> String {
    format!(
        r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[13.4,52.5]}},{members}}}"#
    )
}

#[test]
fn time_beside_the_points_rejects_points_without_a_time() {
    let batch =
        mapped_source(Fields { points: Some(pointer("/fixes")), ..fields(TimeUnit::BySize) });
    for (members, path) in [
        (r#""ts":1795770000"#, "ts"),
        (r#""recorded_at":"2026-11-27T09:00:00Z""#, "recorded_at"),
        (r#""head":{"time":1795770000}"#, "head/time"),
        (r#""date":"2026-11-27","time":"09:00:00""#, "time"),
        (r#""time":[2026,11,27,9,0]"#, "time"),
    ] {
        let fixes = r#""fixes":[{"lat":52.5,"lng":13.4},{"lat":52.6,"lng":13.4}]"#;
        for payload in [format!("{{{members},{fixes}}}"), format!("{{{fixes},{members}}}")] {
            let message = format!("no /ts in the point, but {path} beside the points is");
            assert_refused(&batch, &payload, &message);
        }
        // A point with its own time is stored.
        let payload =
            format!(r#"{{{members},"fixes":[{{"lat":52.5,"lng":13.4,"ts":1795770000}}]}}"#);
        assert_eq!(decode(&batch, payload).positions.len(), 1);
        // A point with a time is stored even after a point without a time.
        let payload = format!(
            r#"{{{members},"fixes":[{{"lat":1,"lng":2}},{{"lat":3,"lng":4,"ts":1795770000}}]}}"#
        );
        let decoded = decode(&batch, payload);
        assert_eq!((decoded.positions.len(), decoded.rejects.len()), (1, 1), "{decoded:?}");
    }
    // The time of one message does not count for the next message in the same payload.
    let two = r#"[{"ts":1795770000,"fixes":[{"lat":1,"lng":2}]},{"fixes":[{"lat":3,"lng":4}]}]"#;
    let decoded = decode(&batch, two);
    assert_eq!((decoded.positions.len(), decoded.rejects.len()), (1, 1), "{decoded:?}");
    assert_refused(
        &format_called("traccar-client"),
        r#"{"location":[{"coords":{"latitude":1,"longitude":2}}],
        "timestamp":"2026-11-27T09:00:00Z"}"#,
        "but timestamp beside the points is",
    );
    let geojson = format_called("geojson");
    for beside in
        [r#""timestamp":"2026-11-27T09:00:00Z""#, r#""properties":{"timestamp":1795770000}"#]
    {
        let payload = format!(
            r#"{{"type":"FeatureCollection",{beside},"features":[{}]}}"#,
            feature(r#""properties":{}"#)
        );
        assert_refused(&geojson, &payload, "timestamp beside the points is");
    }
    // An array of points is never a time, even if its name is that of a time, such as `when`.
    assert_undated(&batch, r#"{"when":[{"ts":1795770000}],"fixes":[{"lat":52.5,"lng":13.4}]}"#);
}

#[test]
fn time_in_an_array_rejects_the_fix() {
    let milepost = format_called("milepost");
    for value in [
        "[2026,11,27,9,0,0]",
        "[2026, 11, 27, 9, 0, 0, 123000000]",
        "[1795770000,0]",
        "[\"2026-11-27T09:00:00Z\"]",
        "[\"2026-11-27\",\"09:00:00\"]",
    ] {
        let fix = format!(r#"{{"lat":52.5,"lng":13.4,"recordedAt":{value}}}"#);
        assert_refused(&milepost, &fix, "recordedAt is");
        assert_refused(
            &format_called("thingsboard"),
            &format!(r#"{{"latitude":1,"longitude":2,"recordedAt":{value}}}"#),
            "recordedAt is",
        );
        assert_refused(
            &format_called("w3c"),
            &format!(r#"{{"coords":{{"latitude":1,"longitude":2}},"time":{value}}}"#),
            "time is",
        );
        assert_refused(
            &format_called("geojson"),
            &feature(&format!(r#""properties":{{}},"when":{value}"#)),
            "when is",
        );
    }
    assert_refused(
        &format_called("geojson"),
        r#"{"type":"Feature","properties":{},
        "geometry":{"type":"Point","coordinates":[13.4,52.5,30,1795770000]}}"#,
        "geometry/coordinates is",
    );
    for other in
        ["\"times\":[]", "\"uptimes\":[1,2,3]", "\"date\":[[1795770000]]", "\"gps_time\":[1,2]"]
    {
        assert_undated(&milepost, &format!(r#"{{"lat":52.5,"lng":13.4,{other}}}"#));
    }
    let decoded =
        decode(&milepost, r#"{"lat":52.5,"lng":13.4,"ts":1795770000,"can":[1,2],"a":{"b":[]}}"#);
    assert_eq!(decoded.unread.into_iter().collect::<Vec<_>>(), ["a/b", "can"]);
    let one_array = mapped_source(Fields {
        lat: pointer("/p/0"),
        lng: pointer("/p/1"),
        ..fields(TimeUnit::BySize)
    });
    let decoded = decode(&one_array, r#"{"p":[52.5,13.4],"ts":1795770000}"#);
    assert!(decoded.unread.is_empty() && decoded.positions.len() == 1, "{decoded:?}");
}

#[test]
fn rounded_time_is_rejected_under_every_name() {
    let milepost = format_called("milepost");
    for name in ["ts", "timestamp", "time", "fixTime", "Date_Time"] {
        let fix = |value: &str| format!(r#"{{"lat":52.5,"lng":13.4,"{name}":{value}}}"#);
        assert_refused(&milepost, &fix("1.795771e+09"), "lost its last digits");
        assert_eq!(decode(&milepost, fix("1.79577000E9")).positions.len(), 1, "{name}");
        assert_eq!(decode(&milepost, fix("1795770000.5")).positions.len(), 1, "{name}");
    }
    let geojson = format_called("geojson");
    for name in ["ts", "timestamp", "time", "datetime", "fixTime"] {
        let payload = feature(&format!(r#""properties":{{"{name}":1.79577e9}}"#));
        assert_refused(&geojson, &payload, "lost its last digits");
    }
    let both = feature(r#""properties":{"ts":1795770000.5,"time":1.79577e9}"#);
    assert_eq!(decode(&geojson, both).positions.len(), 1);
}

#[test]
fn time_after_many_fields_rejects_the_fix() {
    let many: String = (0..70).map(|n| format!(r#""io{n}":{n},"#)).collect();
    let fix = format!(r#"{{"lat":52.5,"lng":13.4,{many}"recorded_at":"2026-11-27T09:00:00Z"}}"#);
    assert_refused(&format_called("milepost"), &fix, "recorded_at is");
    let dated = format!(r#"{{"lat":52.5,"lng":13.4,{many}"ts":1795770000,"zebra":1}}"#);
    let decoded = decode(&format_called("milepost"), dated);
    assert!(decoded.unread.contains("zebra"), "{:?}", decoded.unread);
}

#[test]
fn time_of_unknown_order_or_zone_rejects_the_fix() {
    let milepost = format_called("milepost");
    for (name, value) in [
        ("date", "27/11/2026 09:00:00"),
        ("gps_time", "11/27/2026 9:00:00 AM"),
        ("recorded_at", "27-11-26 09:00"),
        ("recorded_at", "2026-11-27 04:00:00 EST"),
        ("recorded_at", "11/27/2026 04:00:00 AM EST"),
        ("recorded_at", "27.Nov.2026 09:00"),
    ] {
        assert_refused(
            &milepost,
            &format!(r#"{{"lat":52.5,"lng":13.4,"{name}":"{value}"}}"#),
            value,
        );
    }
    assert_undated(&milepost, r#"{"lat":52.5,"lng":13.4,"update":"11/27/1999 09:00:00"}"#);
}

#[test]
fn date_without_its_time_of_day_rejects_the_fix() {
    let more = More { date: Some(pointer("/date")), ..More::default() };
    let source = mapped_source(Fields { more: Some(Box::new(more)), ..fields(TimeUnit::Rfc3339) });
    for ts in ["", r#","ts":null"#] {
        let fix = format!(r#"{{"lat":52.5,"lng":13.4,"date":"271126"{ts}}}"#);
        assert_refused(&source, &fix, "the date \"271126\" has no time of day");
    }
    assert_undated(&source, r#"{"lat":52.5,"lng":13.4}"#);
}

/// Decodes a time by a pattern, in `zone` unless it is empty. Returns the time's distance from
/// 2026-11-27T09:00:00Z in seconds.
fn decode_by_pattern(pattern: &str, zone: &str, text: &str) -> Result<i64, String> {
    let pattern = Some(Local::check_pattern(pattern)?);
    let zone = if zone.is_empty() { None } else { Some(Zone::new(zone)?) };
    let more = More { local: Some(Arc::new(Local { zone, pattern })), ..More::default() };
    let source = mapped_source(Fields { more: Some(Box::new(more)), ..fields(TimeUnit::Pattern) });
    let decoded = decode(&source, format!(r#"{{"lat":52.5,"lng":13.4,"ts":"{text}"}}"#));
    match decoded.rejects.first() {
        Some(reject) => Err(reject.detail.clone()),
        None => Ok(decoded.positions[0].ts.unix_ms() / 1_000 - 1_795_770_000),
    }
}

#[test]
fn zone_in_a_pattern_applies_to_the_time() {
    let us_pattern = "%m/%d/%Y %I:%M:%S %p";
    for (end, zone, text) in [
        (" EST", "America/New_York", "11/27/2026 04:00:00 AM EST"),
        (" MEZ", "Europe/Berlin", "11/27/2026 10:00:00 AM MEZ"),
        (" GMT", "Europe/Berlin", "11/27/2026 09:00:00 AM GMT"),
        (" GMT", "", "11/27/2026 09:00:00 AM GMT"),
        (" (UTC)", "Asia/Tokyo", "11/27/2026 09:00:00 AM (UTC)"),
        (" GMT+1", "", "11/27/2026 10:00:00 AM GMT+1"),
        ("-05:00", "Europe/Berlin", "11/27/2026 04:00:00 AM-05:00"),
        ("Z", "Asia/Tokyo", "11/27/2026 09:00:00 AMZ"),
        (" Uhr", "Europe/Berlin", "11/27/2026 10:00:00 AM Uhr"),
    ] {
        let pattern = format!("{us_pattern}{end}");
        assert_eq!(decode_by_pattern(&pattern, zone, text), Ok(0), "{end} {zone}");
    }
    let with_name = "27.11.2026 10:00:00 Europe/Berlin";
    assert_eq!(decode_by_pattern("%d.%m.%Y %H:%M:%S %Q", "Asia/Tokyo", with_name), Ok(0));
    let unix_pattern = "%a %b %d %H:%M:%S EST %Y";
    let unix_date = "Fri Nov 27 04:00:00 EST 2026";
    assert_eq!(decode_by_pattern(unix_pattern, "America/New_York", unix_date), Ok(0));
    for (end, zone, cause) in [
        ("EST", "", "more than one zone is called EST"),
        ("EST", "Z", "such as America/New_York"),
        ("EST", "Europe/Berlin", "Europe/Berlin is not called EST"),
        ("CET", "Z", "such as Europe/Berlin"),
    ] {
        let why = decode_by_pattern(
            &format!("{us_pattern} {end}"),
            zone,
            &format!("11/27/2026 04:00:00 AM {end}"),
        )
        .unwrap_err();
        assert!(why.contains(cause), "{end} {zone}: {why}");
    }
    let milepost = format_called("milepost").in_zone(Zone::new("America/New_York").unwrap());
    assert_refused(
        &milepost,
        r#"{"lat":52.5,"lng":13.4,"ts":"11/27/2026 04:00:00 AM EST"}"#,
        "such as \"%m/%d/%Y %I:%M:%S %p EST\"",
    );
}

#[test]
fn null_does_not_replace_the_value_of_another_name() {
    let geojson = format_called("geojson");
    for properties in [
        r#""velocity":3,"speed":null,"fixTime":"2026-11-27T09:00:00Z","time":null"#,
        r#""speed":null,"velocity":3,"time":null,"fixTime":"2026-11-27T09:00:00Z""#,
        r#""velocity":4,"speed":3,"fixTime":1,"time":"2026-11-27T09:00:00Z""#,
        r#""speed":3,"velocity":4,"time":"2026-11-27T09:00:00Z","fixTime":1"#,
    ] {
        let payload = feature(&format!(r#""properties":{{{properties}}}"#));
        let decoded = decode(&geojson, &payload);
        assert_eq!(decoded.rejects, [], "{payload}");
        assert_eq!(decoded.positions[0].speed.cms(), 300, "{payload}");
        assert_eq!(decoded.positions[0].ts.unix_ms(), 1_795_770_000_000, "{payload}");
    }
}

#[test]
fn hemisphere_is_recognised_by_its_usual_names() {
    for names in [
        ["ns_indicator", "ew_indicator"],
        ["nsIndicator", "ewIndicator"],
        ["NorthSouth", "EastWest"],
        ["north_south", "east_west"],
        ["latPole", "lonPole"],
        ["lat_hem", "lon_hem"],
        ["dirLat", "dirLon"],
        ["dir_lat", "dir_lng"],
        ["hemisphereLatitude", "hemisphereLongitude"],
        ["lat_dir", "lon_dir"],
    ] {
        for (at, letter) in [(0, "S"), (1, "W")] {
            let fix =
                format!(r#"{{"lat":33.5,"lng":70.4,"ts":1795770000,"{}":"{letter}"}}"#, names[at]);
            for source in [format_called("milepost"), mapped_source(fields(TimeUnit::BySize))] {
                let decoded = decode(&source, &fix);
                let reasons: Vec<_> =
                    decoded.rejects.iter().map(|reject| reject.reason.name()).collect();
                assert_eq!(reasons, ["wrong_type"], "{fix}");
            }
        }
    }
    for name in ["note", "node", "direction", "east_gate", "dirty", "northing"] {
        let fix = format!(r#"{{"lat":33.5,"lng":70.4,"ts":1795770000,"{name}":"S"}}"#);
        assert_eq!(decode(&format_called("milepost"), &fix).positions.len(), 1, "{fix}");
    }
}

#[test]
fn bignum_in_cbor_is_a_number() {
    let fix = |ts: &[u8]| {
        let mut cbor = vec![0xa3, 0x63];
        cbor.extend(b"lat\x01\x63lng\x02\x62ts");
        cbor.extend(ts);
        decode(&format_called("milepost"), cbor)
    };
    // 1795770000 with and without leading zeros, as an integer, and in two pieces.
    for ts in [
        &[0xc2, 0x44, 0x6b, 0x09, 0x46, 0x90][..],
        &[0xc2, 0x46, 0, 0, 0x6b, 0x09, 0x46, 0x90],
        &[0x1a, 0x6b, 0x09, 0x46, 0x90],
        &[0xc2, 0x5f, 0x42, 0x6b, 0x09, 0x42, 0x46, 0x90, 0xff],
    ] {
        let decoded = fix(ts);
        let times: Vec<_> = decoded.positions.iter().map(|fix| fix.ts.unix_ms()).collect();
        assert_eq!((times, decoded.omissions.undated), (vec![1_795_770_000_000], 0), "{decoded:?}");
    }
    let long = [&[0xc2, 0x58, 40, 1][..], &[0; 39]].concat();
    assert_eq!(fix(&long).rejects[0].reason.name(), "bad_ts");
    let negative = fix(&[0xc3, 0x44, 0x6b, 0x09, 0x46, 0x90]);
    assert_eq!(negative.rejects[0].reason.name(), "too_old");
    // Other byte strings count as null.
    assert_eq!(fix(&[0x44, 0x6b, 0x09, 0x46, 0x90]).omissions.undated, 1);
}

#[test]
fn rounded_time_in_cbor_is_rejected() {
    let fix = |ts: &[u8]| {
        let mut cbor = vec![0xa3, 0x63];
        cbor.extend(b"lat\xfa\x42\x52\x14\x7b\x63lng\x02\x62ts");
        cbor.extend(ts);
        decode(&format_called("milepost"), cbor)
    };
    // 1795770037 and 1795770037000 as floats of 32 bits, the first with and without a tag.
    for ts in [
        &[0xfa, 0x4e, 0xd6, 0x12, 0x8d][..],
        &[0xc1, 0xfa, 0x4e, 0xd6, 0x12, 0x8d],
        &[0xfa, 0x53, 0xd1, 0x0d, 0x65],
    ] {
        let decoded = fix(ts);
        let [reject] = &decoded.rejects[..] else { panic!("{ts:x?}: {decoded:?}") };
        assert_eq!(reject.reason.name(), "bad_ts", "{ts:x?}");
        assert!(reject.detail.contains("a float of 32 bits"), "{}", reject.detail);
    }
    // A float of 64 bits is accepted as a time, and a float of 32 bits as a latitude.
    let decoded = fix(&[0xfb, 0x41, 0xda, 0xc2, 0x51, 0xa4, 0x00, 0x00, 0x00]);
    assert_eq!(decoded.positions[0].ts.unix_ms(), 1_795_770_000_000, "{decoded:?}");
    assert!(decoded.positions[0].lat.e7().abs_diff(525_200_000) < 100, "{decoded:?}");
    // A small number is no time since 1970.
    assert_eq!(fix(&[0xf9, 0x3c, 0x00]).rejects[0].reason.name(), "too_old");
}

#[test]
fn rounded_number_in_cbor_is_kept_as_it_was_unless_it_is_a_time() {
    let keep = Keep::of_names(&["odo".to_owned()]).unwrap();
    let more = More { degrees: [Degrees::new("1e-7 deg").unwrap(); 2], ..More::default() };
    let fields = Fields { more: Some(Box::new(more)), ..fields(TimeUnit::BySize) };
    let format = Format::Mapped(Arc::new(Mapping::new(fields)));
    let source = Source::new("in/+", Driver::Topic(Template::first()), format, keep);
    // The shortest text of each latitude has few digits: 5.252e8 and 5.2e8.
    for lat in [525_200_000.0_f32, 520_000_000.0] {
        let mut cbor = b"\xa4\x63lat\xfa".to_vec();
        cbor.extend(lat.to_be_bytes());
        cbor.extend(b"\x63lng\xfa\x4d\x00\x00\x00\x62ts\x1a\x6b\x09\x46\x90\x63odo\xfa");
        cbor.extend(23_456_788.0_f32.to_be_bytes());
        let decoded = decode(&source, cbor);
        let [fix] = &decoded.positions[..] else { panic!("{lat}: {decoded:?}") };
        assert!((f64::from(fix.lat.e7()) - f64::from(lat)).abs() < 40.0, "{lat}: {fix:?}");
        let kept: Vec<_> = fix.attributes.iter().collect();
        assert_eq!(kept, [("odo", "23456788.0")]);
    }
}

#[test]
fn year_below_100_without_a_pattern_means_that_the_clock_was_not_set() {
    for ts in ["0001-01-01T00:00:00Z", "0026-11-27T10:00:00Z"] {
        let decoded = decode(&format_called("milepost"), milepost_fix(&format!(r#""ts":"{ts}""#)));
        let detail = &decoded.rejects[0].detail;
        assert!(detail.ends_with("the device's clock was never set"), "{detail}");
    }
    let why = decode_by_pattern("%d/%m/%Y %H:%M:%S", "Z", "01/01/0001 00:00:00").unwrap_err();
    assert!(why.ends_with("the device's clock was never set"), "{why}");
}

#[test]
fn time_scale_ahead_of_utc_is_named_as_the_cause() {
    for (scale, seconds) in [("GPST", 18), ("TAI", 37)] {
        let ts = format!("2026-11-27 09:00:00 {scale}");
        let decoded = decode(&mapped_source(utc()), milepost_fix(&format!(r#""ts":"{ts}""#)));
        let detail = &decoded.rejects[0].detail;
        assert!(detail.contains(&format!("{scale} is {seconds} s ahead of UTC")), "{detail}");
    }
}

fn utc() -> Fields {
    let local = Arc::new(Local { zone: Some(Zone::utc()), pattern: None });
    let more = More { local: Some(local), ..More::default() };
    Fields { more: Some(Box::new(more)), ..fields(TimeUnit::BySize) }
}

#[test]
fn two_digits_of_a_year_are_named_as_the_cause() {
    let why = decode_by_pattern("%d/%m/%Y %H:%M:%S", "Europe/Berlin", "27/11/26 10:00:00");
    assert!(
        why.unwrap_err().ends_with("the year has two digits; use %y instead of %Y in the pattern")
    );
    assert_eq!(decode_by_pattern("%d/%m/%y %H:%M:%S", "Z", "27/11/26 09:00:00"), Ok(0));
}

#[test]
fn fix_older_than_its_message_is_rejected_without_a_time() {
    for members in [
        r#""fix_age":3600"#,
        r#""age_ms":3600000"#,
        r#""gps":{"age":7200}"#,
        r#""buffered":true"#,
        r#""live":false"#,
        r#""fix_age_days":2"#,
        r#""age_h":1"#,
        r#""age(s)":3600"#,
        r#""outdated":true"#,
        r#""secondsSinceFix":3600"#,
        r#""min_ago":5"#,
    ] {
        for source in [format_called("milepost"), mapped_source(fields(TimeUnit::Seconds))] {
            assert_refused(
                &source,
                &milepost_fix(members),
                "older than its message: send the time",
            );
            let dated = milepost_fix(&format!(r#"{members},"ts":1795770000"#));
            assert_eq!(decode(&source, dated).positions.len(), 1, "{members}");
        }
        let timeless = mapped_source(Fields { ts: None, ..fields(TimeUnit::Seconds) });
        assert_undated(&timeless, &milepost_fix(members));
    }
    for members in [
        r#""age":523,"fix_age_s":2,"gps_age_ms":900"#,
        r#""buffered":false,"live":true,"driver":{"age":4000},"stale":null"#,
        r#""buffered":1,"cached":1,"historical":"1","live":0"#,
        r#""minAge":3600,"ages":3600,"sage":3600,"min_fix_age":3600"#,
        r#""outdated":false,"age_h":0,"fix_age_days":0,"hage":9000"#,
    ] {
        assert_undated(&format_called("milepost"), &milepost_fix(members));
    }
    for (names, member) in [
        (vec!["buffered".to_owned()], r#""buffered":true"#),
        (vec!["*".to_owned()], r#""age":3600"#),
    ] {
        let keep = Keep::of_names(&names).unwrap();
        let driver = Driver::Topic(Template::first());
        let source = Source::new("in/+", driver.clone(), Format::Milepost, keep.clone());
        assert_undated(&source, &milepost_fix(member));
        let geojson = Format::GeoJson(SpeedUnit::MetresPerSecond);
        let source = Source::new("in/+", driver, geojson, keep);
        assert_undated(&source, &feature(&format!(r#""properties":{{{member}}}"#)));
    }
    let named = "or store the time of receipt with keep = [\"buffered\"] (import: --keep)";
    let geojson = feature(r#""properties":{"buffered":true}"#);
    assert_refused(&format_called("geojson"), &geojson, named);
}

/// Returns a fix of milepost's own format that has a position and these members.
fn milepost_fix(members: &str) -> String {
    format!(r#"{{"lat":52.5,"lng":13.4,{members}}}"#)
}

#[test]
fn recent_time_under_any_name_rejects_the_fix() {
    let milepost = format_called("milepost");
    let mapping = mapped_source(fields(TimeUnit::Seconds));
    for name in [
        "ts_ms",
        "gps_ts",
        "fix_ts",
        "unix",
        "dt",
        "tm",
        "sec",
        "created",
        "recorded",
        "moment",
        "datum",
        "zeit",
        "hora",
        "last_seen",
        "fixed_on",
        "rx",
        "event_time",
        "sentAt",
        "lastUpdate",
        "rtc",
        "isotst",
    ] {
        for value in [
            "1795770000",
            "1795770000123",
            "1795769000.5",
            "\"2026-11-27T08:00:00Z\"",
            "\"27/11/2026 09:00:00\"",
            "\"1795770000\"",
            "1795770000123456789",
        ] {
            let payload = milepost_fix(&format!(r#""{name}":{value}"#));
            for source in [&milepost, &mapping] {
                assert_refused(source, &payload, &format!("but {name} is "));
                assert_refused(source, &payload, "a format without ts stores the time of receipt");
            }
        }
    }
    for members in [
        r#""fix":{"at":1795770000}"#,
        r#""header":{"x":1795770000}"#,
        r#""stamp":{"sec":1795770000,"nanosec":5}"#,
        // GPS time: seconds since 1980.
        r#""gpsTime":1479805218"#,
        r#""tick":"0x6b094690""#,
        // A date and a time in twelve digits.
        r#""dt":271126085900"#,
    ] {
        assert_refused(&milepost, &milepost_fix(members), "there is no ts, but ");
    }
    // A format without a time keeps the time of receipt, whatever the payload has.
    let timeless = mapped_source(Fields { ts: None, ..fields(TimeUnit::Seconds) });
    assert_undated(&timeless, &milepost_fix(r#""created":1795770000,"hour":9,"minute":0"#));
}

#[test]
fn older_time_rejects_the_fix_under_a_name_of_a_time() {
    let mapping = mapped_source(fields(TimeUnit::Seconds));
    for name in ["gps_ts", "eventTime", "updated_at", "gps_utc", "msgTimestamp", "recordedat"] {
        for source in [&format_called("milepost"), &mapping] {
            for value in ["1795000000", "\"2026-11-20 08:00:00\""] {
                assert_refused(source, &milepost_fix(&format!(r#""{name}":{value}"#)), name);
            }
            // As the libraries of Firestore, protobuf and MongoDB write a time.
            for value in [
                r#"{"_seconds":1795000000,"_nanoseconds":0}"#,
                r#"{"seconds":"1795000000","nanos":5}"#,
                r#"{"$date":"2026-11-20T08:00:00Z"}"#,
                r#"{"$date":{"$numberLong":"1795000000000"}}"#,
                r#"{"value":1795000000000}"#,
            ] {
                assert_refused(source, &milepost_fix(&format!(r#""{name}":{value}"#)), name);
            }
        }
    }
    // In milepost's own format, `$date` is a word for a time whatever is around it.
    for name in ["created", "last", "battery"] {
        for value in
            [r#"{"$date":"2026-11-20T08:00:00Z"}"#, r#"{"$date":{"$numberLong":"1795000000000"}}"#]
        {
            let payload = milepost_fix(&format!(r#""{name}":{value}"#));
            assert_refused(&format_called("milepost"), &payload, "$date");
        }
    }
}

#[test]
fn other_times_and_numbers_leave_the_fix_undated() {
    for source in [format_called("milepost"), mapped_source(fields(TimeUnit::Seconds))] {
        for members in [
            r#""expires_at":1795773600"#,
            r#""valid_until":"2026-11-27T12:00:00Z""#,
            r#""bootTime":1795760000"#,
            r#""build_time":"2026-11-27T02:00:00Z""#,
            r#""last_update_check":1795760000"#,
            r#""eta":"2026-11-27T10:00:00Z""#,
            r#""trip_start":"2026-11-27T08:00:00Z""#,
            r#""next_report":1795770600"#,
            r#""fw_version":"20261127080000","release":"2026-11-27 08:00""#,
            r#""id":1795770000,"msgId":"1795770000","seq_nonce":1795770000"#,
            r#""imei":"356307042441013","iccid":"8949020000012345678","mac":187723572702975"#,
            r#""speed":12.5,"batt":3971,"odometer":1795770,"temp":21.5,"fw":"2.4.1""#,
            r#""uptime":"10:15:07","drive_time":"01:23:45","moving_time":5025"#,
            r#""purchase_date":"2024-05-01","lastService":"2026-05-01 10:00:00""#,
            r#""hours":1234,"minutes":30,"week":47,"day":3"#,
            r#""expires_at":{"_seconds":1795000000},"drive_time":{"seconds":5025}"#,
            r#""odometer":{"value":1795000000},"seconds":1795000"#,
            r#""battery":{"at":{"value":1795000000}}"#,
            r#""year":2000,"month":1,"day":1,"hour":0,"minute":0"#,
            r#""device":"123456","gps":"3D","fix":3,"t":123456"#,
        ] {
            assert_undated(&source, &milepost_fix(members));
        }
    }
}

#[test]
fn time_in_parts_rejects_the_fix() {
    let milepost = format_called("milepost");
    for (members, detail) in [
        (r#""hour":9,"minute":0"#, "hour is 9, a part of a time"),
        (r#""gps_hour":9,"gps_min":0,"gps_sec":10"#, "gps_hour is 9, a part"),
        (r#""year":2026,"month":11,"day":27,"hour":9,"minute":0"#, "year is 2026, a part"),
        (r#""year":26,"month":11,"day":27"#, "year is 26, a part"),
        (r#""date":"2026-11-27""#, "date is 2026-11-27, a part"),
        (r#""date":"271126","clock":"090000.00""#, "clock is the time of day 090000.00"),
        (r#""date":"271126","utc":90000"#, "date is 271126, a part"),
        (r#""fecha":"27/11/2026","hora":"9:00:00""#, "hora is the time of day 9:00:00"),
        (r#""gps_time":"10h15""#, "gps_time is the time of day 10h15"),
        (r#""datum":"27.11.2026","zeit":"09:00""#, "zeit is the time of day"),
        (r#""d":"2026-11-27","t":"09:00:00""#, "t is the time of day"),
        (r#""gps_date":20261127,"gps_clock":"09:00:00""#, "gps_clock is the time of day"),
        (r#""week":2446,"tow":464428"#, "week is 2446, a part"),
        (r#""gps_week":398,"gps_sow":464428"#, "gps_week is 398, a part"),
        (r#""week":2446,"tow":464428000"#, "week is 2446, a part"),
    ] {
        assert_refused(&milepost, &milepost_fix(members), detail);
        assert_refused(&mapped_source(fields(TimeUnit::Seconds)), &milepost_fix(members), detail);
    }
}

#[test]
fn lost_leading_zero_of_a_time_is_restored() {
    let source = |pattern: &str| {
        let pattern = Some(Local::check_pattern(pattern).expect("a pattern"));
        let more = More {
            date: Some(pointer("/date")),
            local: Some(Arc::new(Local { zone: Some(Zone::utc()), pattern })),
            ..More::default()
        };
        mapped_source(Fields { more: Some(Box::new(more)), ..fields(TimeUnit::Pattern) })
    };
    for (pattern, time, seconds) in [
        ("%d%m%y %H%M%S", "11507", Ok(-7 * 3_600 - 44 * 60 - 53)),
        ("%d%m%y %H%M%S", "\"011507\"", Ok(-7 * 3_600 - 44 * 60 - 53)),
        ("%d%m%y %H%M", "859", Ok(-60)),
        ("%d%m%y %H%M%S%2f", "8595900", Ok(-1)),
        ("%d%m%y %H%M%S", "1507", Err("\"1507\" has lost leading zeros")),
        ("%d%m%y %H%M%S%3f", "85959000", Ok(-1)),
        ("%d%m%y %H%M%S%3f", "1150300", Err("\"1150300\" has lost leading zeros")),
        ("%d%m%y %H%M%S%2f", "115007250", Err("has 9 digits, and the pattern 8")),
        ("%d%m%y %H%M%S%3f", "8.5959e+07", Err("has lost its last digits")),
    ] {
        let payload = milepost_fix(&format!(r#""date":271126,"ts":{time}"#));
        match seconds {
            Ok(seconds) => {
                let decoded = decode(&source(pattern), &payload);
                let times: Vec<_> = decoded.positions.iter().map(|fix| fix.ts.unix_ms()).collect();
                assert_eq!(times, [1_795_770_000_000 + seconds * 1_000], "{pattern} {time}");
            }
            Err(message) => assert_refused(&source(pattern), &payload, message),
        }
    }
    // `11500725` may be 01:15:00.725 without its zero, or 11:50:07.25.
    let why = Local::check_pattern("%d%m%y %H%M%S%f").expect_err("an open fraction");
    assert!(why.contains("write %3f for milliseconds"), "{why}");
    // A pattern reads text and whole numbers.
    let pattern = Some(Local::check_pattern("%d%m%y%H%M%S%.f").expect("a pattern"));
    let local = Some(Arc::new(Local { zone: Some(Zone::utc()), pattern }));
    let more = More { local, ..More::default() };
    let whole = mapped_source(Fields { more: Some(Box::new(more)), ..fields(TimeUnit::Pattern) });
    let fix = |time: &str| milepost_fix(&format!(r#""ts":{time}"#));
    for number in ["271126090000.25", "27112609000025000000"] {
        assert_refused(&whole, &fix(number), "a fraction or too many digits: send it as text");
    }
    assert_eq!(decode(&whole, fix("\"271126090000.25\"")).positions.len(), 1);
    // Without a pattern, a JSON number of four digits may be hhmm, or mmss after midnight.
    let more = More {
        date: Some(pointer("/date")),
        local: Some(Arc::new(Local { zone: Some(Zone::utc()), pattern: None })),
        ..More::default()
    };
    let without_pattern =
        mapped_source(Fields { more: Some(Box::new(more)), ..fields(TimeUnit::Rfc3339) });
    let fix = |time: &str| milepost_fix(&format!(r#""date":"2026-11-27","ts":{time}"#));
    for time in ["\"0859\"", "\"08:59\"", "\"085900\""] {
        assert_eq!(decode(&without_pattern, fix(time)).positions.len(), 1, "{time}");
    }
    for time in ["1507", "85900"] {
        assert_refused(&without_pattern, &fix(time), "has lost leading zeros: send it as text");
    }
}

#[test]
fn error_for_a_too_old_time_suggests_a_rollover_and_another_epoch() {
    // 2026-11-27T08:00:00Z in seconds since 1989-12-31, as a file may hold them.
    let payload = milepost_fix(r#""ts":1164700800"#);
    let year = std::time::Duration::from_secs(390 * 86_400);
    let limits = Limits { fix_age_max: year, ..Limits::default() };
    let milepost = format_called("milepost");
    let mut decoded = Decoded::default();
    Decoder::new(std::slice::from_ref(&milepost), limits).decode(
        Message::new(b"in/d7", payload.as_bytes()),
        Timestamp::from_unix_ms(NOW_MS),
        &mut decoded,
    );
    let detail = &decoded.rejects[0].detail;
    assert!(detail.contains("GPS week rollover"), "{detail}");
    assert!(detail.contains("; or adding 631065600 s corrects it"), "{detail}");
}

/// Some devices send a flag that states that their time is not in UTC, although it ends in Z.
#[test]
fn utc_flag_that_is_false_rejects_a_time_with_z() {
    let mapped = mapped_source(fields(TimeUnit::BySize));
    let fix = |ts: &str, members: &str| format!(r#"{{"lat":52.5,"lng":13.4,"ts":{ts},{members}}}"#);
    let utc_time = r#""2026-11-27T09:00:00Z""#;
    for members in [
        r#""is_utc":false"#,
        r#""utc":false"#,
        r#""isUTC":0"#,
        r#""time_is_utc":"no""#,
        r#""Is_Utc":"False""#,
    ] {
        let sources = [format_called("milepost"), mapped.clone(), format_called("geojson")];
        let properties = feature(&format!(r#""properties":{{"ts":{utc_time},{members}}}"#));
        let payloads = [fix(utc_time, members), fix(utc_time, members), properties];
        for (source, payload) in sources.iter().zip(&payloads) {
            assert_refused(source, payload, "is in UTC: which is right?");
        }
    }
    for (ts, members) in [
        (utc_time, r#""is_utc":true,"utc":true"#),
        (utc_time, r#""utc":0,"device":{"is_utc":false}"#),
        (utc_time, r#""gps_utc":false,"utc":null,"utc_offset":-5"#),
        (utc_time, r#""time_utc":0"#),
        (r#""2026-11-27T10:00:00+01:00""#, r#""is_utc":false"#),
        ("1795770000", r#""is_utc":false"#),
    ] {
        for source in [&format_called("milepost"), &mapped] {
            let decoded = decode(source, fix(ts, members));
            assert_eq!(decoded.positions.len(), 1, "{members}: {decoded:?}");
        }
    }
}

/// A zone of the configuration applies to times without an offset. A payload may contradict it.
#[test]
fn stated_zone_that_contradicts_the_configured_one_rejects_the_fix() {
    let in_zone = |zone: &str| format_called("milepost").in_zone(Zone::new(zone).unwrap());
    let fix = |members: &str| {
        format!(r#"{{"lat":52.5,"lng":13.4,"ts":"2026-11-27 10:00:00",{members}}}"#)
    };
    for members in [
        r#""tz":"America/New_York""#,
        r#""timezone":"Asia/Tokyo""#,
        r#""TimeZone":"+02:00""#,
        r#""tz":"UTC""#,
        r#""utc_offset":-5"#,
        r#""timezoneOffset":"+0200""#,
        r#""tz_offset":7200"#,
        r#""zone":"Europe/Moscow""#,
        r#""tz":"EST""#,
        r#""is_utc":true"#,
        r#""gps":{"tz":"GMT+3"}"#,
    ] {
        let payload = fix(members);
        assert_refused(&in_zone("Europe/Berlin"), &payload, "which is right?");
    }
    for (zone, members) in [
        ("Europe/Berlin", r#""tz":"Europe/Paris","timezone":"Europe/Berlin""#),
        ("Europe/Berlin", r#""tz":"+01:00","utc_offset":1,"tz_offset":3600"#),
        ("Europe/Berlin", r#""timezoneOffset":-60,"timezone":"CET","tz":"CEST""#),
        ("Europe/Berlin", r#""tz":0,"is_utc":false,"zone":"Tokyo","tzname":"local""#),
        ("Europe/Berlin", r#""user":{"timezone":"Asia/Tokyo"},"zone":5,"phone":"+02:00""#),
        // If an offset is configured, the stated zone is not compared.
        ("+01:00", r#""tz":"Asia/Tokyo""#),
    ] {
        let decoded = decode(&in_zone(zone), fix(members));
        assert_eq!(decoded.positions.len(), 1, "{members}: {decoded:?}");
        assert_eq!(decoded.positions[0].ts.unix_ms(), 1_795_770_000_000, "{members}");
    }
    for (zone, hour, members) in [
        // `0900` is nine hours.
        ("Asia/Tokyo", "18:00:00", r#""tz":"0900""#),
        ("Etc/UTC", "09:00:00", r#""tz":"Asia/Tokyo""#),
    ] {
        let decoded = decode(&in_zone(zone), fix(members).replace("10:00:00", hour));
        assert_eq!(decoded.positions.len(), 1, "{zone} {members}: {decoded:?}");
        assert_eq!(decoded.positions[0].ts.unix_ms(), 1_795_770_000_000, "{zone} {members}");
    }
    // A time with an offset needs no zone.
    let payload = fix(r#""tz":"Asia/Tokyo""#).replace("10:00:00", "09:00:00 UTC");
    assert_eq!(decode(&in_zone("Europe/Berlin"), payload).positions.len(), 1);
}

#[test]
fn zone_beside_the_points_is_compared_with_the_zone_of_their_times() {
    let source = format_called("geojson").in_zone(Zone::new("Europe/Berlin").unwrap());
    let collection = |member: &str, ts: &str| {
        format!(
            r#"{{"type":"FeatureCollection",{member},
            "features":[{{"type":"Feature",
            "geometry":{{"type":"Point","coordinates":[13.4,52.5]}},
            "properties":{{"ts":"{ts}"}}}}]}}"#
        )
    };
    for (member, ts, is_stored) in [
        (r#""timezone":"America/New_York""#, "2026-11-27 09:55:00", false),
        (r#""tz":{"name":"Asia/Tokyo"}"#, "2026-11-27 09:55:00", false),
        (r#""timezone":"America/New_York""#, "2026-11-27T08:55:00Z", true),
        (r#""timezone":"Europe/Berlin""#, "2026-11-27 09:55:00", true),
        (r#""timezone":"Europe/Paris""#, "2026-11-27 09:55:00", true),
        (r#""zone":"B7""#, "2026-11-27 09:55:00", true),
    ] {
        let decoded = decode(&source, collection(member, ts));
        assert_eq!(decoded.positions.len(), usize::from(is_stored), "{member} {ts}: {decoded:?}");
        let is_refused = decoded.rejects.iter().any(|reject| reject.reason.name() == "bad_ts");
        assert_eq!(is_refused, !is_stored, "{member} {ts}: {decoded:?}");
        // Without the object around it, a replay of the reject would store the point.
        for reject in &decoded.rejects {
            let payload = String::from_utf8_lossy(&reject.payload);
            assert!(payload.contains(member), "{member} {ts}: {payload}");
        }
    }
}
