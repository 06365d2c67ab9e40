//! Tests that no position is stored if its payload states that the receiver had no fix.

mod common;

use common::{decode_by, fields, format_called, mapped_source, pointer, source};
use milepost_decode::formats::{Fields, Format};
use milepost_decode::position::{Accuracy, Altitude, Heading, Speed};
use milepost_decode::{
    Decoded, Decoder, Driver, Field, Ignored, Keep, Limits, Source, Template, TimeUnit,
};

fn decode(source: &Source, payload: &str) -> Decoded {
    decode_by(&Decoder::new(std::slice::from_ref(source), Limits::default()), payload)
}

/// Asserts that the payload is rejected, and that the detail names the flag and the remedy.
#[track_caller]
fn assert_no_fix(source: &Source, payload: &str, flag: &str) {
    let decoded = decode(source, payload);
    assert!(decoded.positions.is_empty(), "{payload}: {decoded:?}");
    let [reject] = &decoded.rejects[..] else { panic!("{payload}: {decoded:?}") };
    assert_eq!(reject.reason.name(), "wrong_type", "{payload}: {}", reject.detail);
    let begin = format!("{flag}: the receiver had no fix");
    assert!(reject.detail.starts_with(&begin), "{payload}: {}", reject.detail);
    assert!(reject.detail.ends_with("(import: --keep)"), "{payload}: {}", reject.detail);
}

#[track_caller]
fn assert_stored(source: &Source, payload: &str) {
    let decoded = decode(source, payload);
    assert_eq!((decoded.positions.len(), decoded.rejects.len()), (1, 0), "{payload}: {decoded:?}");
}

/// Returns a point with one more member in milepost's own format, a mapping and GeoJSON.
fn with_member(member: &str) -> [(Source, String); 3] {
    let own = format!(r#"{{"lat":52.5,"lng":13.4,"ts":1795770000,{member}}}"#);
    let feature = format!(
        r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[13.4,52.5]}},
        "properties":{{"ts":1795770000,{member}}}}}"#
    );
    [
        (format_called("milepost"), own.clone()),
        (mapped_source(fields(TimeUnit::BySize)), own),
        (format_called("geojson"), feature),
    ]
}

#[test]
fn position_without_a_fix_is_rejected() {
    for (member, flag) in [
        (r#""valid":false"#, "valid is false"),
        (r#""Valid":"FALSE""#, "Valid is FALSE"),
        (r#""valid":"V""#, "valid is V"),
        (r#""valid":"f""#, "valid is f"),
        (r#""is_valid":0"#, "is_valid is 0"),
        (r#""gps_valid":0"#, "gps_valid is 0"),
        (r#""gpsFix":0"#, "gpsFix is 0"),
        (r#""gps_fix":"no""#, "gps_fix is no"),
        (r#""fix":"none""#, "fix is none"),
        (r#""fix":0"#, "fix is 0"),
        (r#""fix":false"#, "fix is false"),
        (r#""fix":"No fix""#, "fix is No fix"),
        (r#""hasFix":false"#, "hasFix is false"),
        (r#""fixType":0"#, "fixType is 0"),
        (r#""fix_type":"GPS_FIX_TYPE_NO_FIX""#, "fix_type is GPS_FIX_TYPE_NO_FIX"),
        (r#""fix_quality":0"#, "fix_quality is 0"),
        (r#""gnssFixOK":false"#, "gnssFixOK is false"),
        (r#""gps":{"valid":false}"#, "gps/valid is false"),
        (r#""gps":{"fix":0,"sats":0}"#, "gps/fix is 0"),
        (r#""gps":{"quality":"0"}"#, "gps/quality is 0"),
        (r#""gps_status":"V""#, "gps_status is V"),
        (r#""gps":"no fix""#, "gps is no fix"),
        (r#""status":"V","sat":0"#, "status is V"),
        (r#""status":"V","lat_dir":"N""#, "status is V"),
        (r#""status":"NO_FIX""#, "status is NO_FIX"),
        (r#""invalid":true"#, "invalid is true"),
        (r#""no_fix":1"#, "no_fix is 1"),
        (r#""fixFailed":true"#, "fixFailed is true"),
        (r#""fix":{"type":0}"#, "fix/type is 0"),
        (r#""gps":{"lock":false}"#, "gps/lock is false"),
        (r#""valido":1,"valid":"falso""#, "valid is falso"),
        (r#""valid":"nein""#, "valid is nein"),
        (r#""valid":"NON""#, "valid is NON"),
        (r#""valid":"ЛОЖЬ""#, "valid is ЛОЖЬ"),
        (r#""valid":"нет""#, "valid is нет"),
        (r#""valid":"não""#, "valid is não"),
        (r#""gültig":"nein""#, "gültig is nein"),
        (r#""Gueltig":0"#, "Gueltig is 0"),
        (r#""válido":false"#, "válido is false"),
        (r#""valido":"No""#, "valido is No"),
        (r#""действителен":"нет""#, "действителен is нет"),
        (r#""有效":0"#, "有效 is 0"),
        (r#""定位状态":"未定位""#, "定位状态 is 未定位"),
        (r#""gps_fix":"ungültig""#, "gps_fix is ungültig"),
        (r#""invalid":"ja""#, "invalid is ja"),
        (r#""class":"TPV","mode":1"#, "mode is 1"),
        (r#""class":"TPV","mode":0"#, "mode is 0"),
        (r#""gps_status":"searching""#, "gps_status is searching"),
        (r#""gps_signal":"lost""#, "gps_signal is lost"),
        (r#""isLocated":false"#, "isLocated is false"),
        (r#""Valid?":"no""#, "Valid? is no"),
        (r#""GPS Valid (Y/N)":"N""#, "GPS Valid (Y/N) is N"),
        (r#""Fix [1=yes, 0=no]":0"#, "Fix [1=yes, 0=no] is 0"),
    ] {
        for (source, payload) in with_member(member) {
            assert_no_fix(&source, &payload, flag);
        }
    }
}

#[test]
fn time_that_is_not_valid_is_rejected() {
    for (member, flag) in [
        (r#""time_valid":false"#, "time_valid is false"),
        (r#""validTime":0"#, "validTime is 0"),
        (r#""datetime_valid":"no""#, "datetime_valid is no"),
        (r#""time_invalid":true"#, "time_invalid is true"),
        (r#""has_time":false"#, "has_time is false"),
        (r#""gps":{"timeValid":false}"#, "gps/timeValid is false"),
        (r#""validDate":0,"valid":true"#, "validDate is 0"),
    ] {
        for (source, payload) in with_member(member) {
            let decoded = decode(&source, &payload);
            let [reject] = &decoded.rejects[..] else { panic!("{payload}: {decoded:?}") };
            assert_eq!(reject.reason.name(), "bad_ts", "{payload}: {}", reject.detail);
            let begin = format!("{flag}: the device did not know the time");
            assert!(reject.detail.starts_with(&begin), "{payload}: {}", reject.detail);
            assert!(reject.detail.ends_with("(import: --keep)"), "{payload}: {}", reject.detail);
        }
    }
    for member in [
        r#""time_valid":true,"validDate":1"#,
        r#""time_valid":null"#,
        r#""valid_time":120"#,
        r#""rtc_valid":0,"gps_time_valid":1"#,
        r#""clock_valid":false"#,
        r#""rtc_valid":0"#,
        r#""time_valid":false,"gps_time_valid":true"#,
        r#""time_invalid":false,"invalid_time":3"#,
    ] {
        for (source, payload) in with_member(member) {
            assert_stored(&source, &payload);
        }
    }
    // Without `ts`, the flag is accepted: the fix gets the time of receipt.
    assert_stored(&format_called("milepost"), r#"{"lat":52.5,"lng":13.4,"time_valid":false}"#);
}

/// Returns speed, heading, altitude and accuracy, each if it is known, and the number of values
/// that became unknown.
fn optional_fields(source: &Source, payload: &str) -> (String, u64) {
    let decoded = decode(source, payload);
    let [fix] = &decoded.positions[..] else { panic!("{payload}: {decoded:?}") };
    let known = [
        ("speed", fix.speed != Speed::UNKNOWN),
        ("heading", fix.heading != Heading::UNKNOWN),
        ("alt", fix.alt != Altitude::UNKNOWN),
        ("acc", fix.acc != Accuracy::UNKNOWN),
    ];
    let names: Vec<_> =
        known.iter().filter(|(_, is_known)| *is_known).map(|(name, _)| *name).collect();
    (
        names.join(" "),
        Field::ALL.iter().map(|field| decoded.omissions.fields[*field as usize]).sum(),
    )
}

/// Returns which of speed, heading, altitude and accuracy are known.
fn known_fields(source: &Source, payload: &str) -> String {
    let (known, _) = optional_fields(source, payload);
    known
}

#[test]
fn field_is_unknown_if_its_flag_says_so() {
    let own = |members: &str| {
        format!(
            r#"{{"lat":52.5,"lng":13.4,"ts":1795770000,
            "speed":0,"heading":0,"alt":9,"acc":5,{members}}}"#
        )
    };
    for (members, known, cleared) in [
        (r#""hasSpeed":false"#, "heading alt acc", 1),
        (r#""has_bearing":0,"hasAltitude":false"#, "speed acc", 2),
        (r#""speed_valid":false,"validCourse":"no""#, "alt acc", 2),
        (r#""hasAccuracy":false"#, "speed heading alt", 1),
        (r#""speedValid":"invalid""#, "heading alt acc", 1),
        (r#""hasSpeed":"none""#, "heading alt acc", 1),
        (r#""valid_speed":0,"validHeight":0"#, "speed heading alt acc", 0),
        (r#""validHeight":false"#, "speed heading acc", 1),
        (r#""hasSpeed":true,"course_valid":1,"hasFuel":false"#, "speed heading alt acc", 0),
        (r#""has_track":false,"hash":0,"phase":false"#, "speed heading alt acc", 0),
    ] {
        let (found, count) = optional_fields(&format_called("milepost"), &own(members));
        assert_eq!((&*found, count), (known, cleared), "{members}");
    }
    let feature = r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[13.4,52.5]},
        "properties":{"ts":1795770000,"speed":3,"bearing":0,"hasBearing":false}}"#;
    assert_eq!(known_fields(&format_called("geojson"), feature), "speed");
    let w3c = r#"{"coords":{"latitude":1,"longitude":2,"speed":0,"heading":4,"hasSpeed":false},
        "timestamp":1795770000000}"#;
    assert_eq!(optional_fields(&format_called("w3c"), w3c), ("heading".to_owned(), 1));
}

#[test]
fn flag_of_another_object_does_not_clear_a_field() {
    let elsewhere = Fields {
        lat: pointer("/gps/lat"),
        lng: pointer("/gps/lng"),
        speed: Some((pointer("/obd/speed"), 1.0)),
        alt: Some((pointer("/baro/alt"), 1.0)),
        ..fields(TimeUnit::BySize)
    };
    let in_gps = Fields {
        speed: Some((pointer("/gps/speed"), 1.0)),
        alt: Some((pointer("/gps/alt"), 1.0)),
        ..elsewhere.clone()
    };
    let fix = |in_gps: &str, beside_gps: &str| {
        format!(r#"{{"gps":{{"lat":52.5,"lng":13.4{in_gps}}},"ts":1795770000{beside_gps}}}"#)
    };
    let flags = r#","hasAltitude":false,"hasSpeed":false"#;
    let others = r#","baro":{"alt":812},"obd":{"speed":63}"#;
    let elsewhere = mapped_source(elsewhere);
    assert_eq!(known_fields(&elsewhere, &fix(flags, others)), "speed alt");
    assert_eq!(known_fields(&elsewhere, &fix("", &format!("{others}{flags}"))), "");
    let values_and_flags = format!(r#","alt":8,"speed":3{flags}"#);
    assert_eq!(known_fields(&mapped_source(in_gps), &fix(&values_and_flags, "")), "");
}

#[test]
fn other_members_are_no_flags_of_a_fix() {
    for member in [
        r#""status":"V""#,
        r#""status":"V","satellites":9"#,
        r#""FixType":0,"MessageID":4,"Valid":true"#,
        r#""fix_status":0"#,
        r#""type":0"#,
        r#""type":"none""#,
        r#""lock":false"#,
        r#""state":{"valid":false},"gps":{"hdop":1}"#,
        r#""status":"none","sat":0"#,
        r#""status":"invalid""#,
        r#""status":0"#,
        r#""valid":true"#,
        r#""valid":"A""#,
        r#""valid":null"#,
        r#""valid_until":0"#,
        r#""validity_days":0"#,
        r#""fix":"3d""#,
        r#""fix":1"#,
        r#""fix":{"fix":0}"#,
        r#""fix":"dgps""#,
        r#""fixType":"F""#,
        r#""fix_type":5"#,
        r#""fixed":false"#,
        r#""prefix":"none""#,
        r#""suffix":"V""#,
        r#""satellites":0"#,
        r#""hdop":99.99"#,
        r#""gps_status":0"#,
        r#""gps":false"#,
        r#""gps":{"hdop":0.9,"sats":7,"fix":3}"#,
        r#""quality":0"#,
        r#""invalid":false"#,
        r#""battery":{"valid":false}"#,
        r#""licence":{"status":"V","ns":"x"}"#,
        r#""door":"V","lat_dir":"N""#,
        r#""class":"TPV","mode":3"#,
        r#""class":"TPV","mode":2,"status":0"#,
        r#""mode":1"#,
        r#""Valid?":"yes","(valid)":"no","Valid (Y/N)":"Y","":0,"?":"no""#,
        r#""mode":0,"class":"car""#,
        r#""gültig":"ja","valido":"sí","有效":"是""#,
        r#""valid":"oui","действителен":"да""#,
        r#""nota":"non","zigbee":"nein","digital":0,"model":1"#,
        r#""gps_status":"ok","status":"searching""#,
        r#""status":"unavailable","sats":0"#,
        r#""有效期":0,"位置":"否""#,
    ] {
        for (source, payload) in with_member(member) {
            assert_stored(&source, &payload);
        }
    }
}

#[test]
fn point_is_stored_if_keep_names_its_flags() {
    let payload = r#"{"lat":52.5,"lng":13.4,"ts":1795770000,"valid":false,"gps":{"fix":0}}"#;
    let keeping = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let keep = Keep::of_names(&names).unwrap();
        Source::new("in/+", Driver::Topic(Template::first()), Format::Milepost, keep)
    };
    assert_stored(&keeping(&["valid", "gps/fix"]), payload);
    assert_stored(&keeping(&["*"]), payload);
    assert_no_fix(&keeping(&["valid"]), payload, "gps/fix is 0");
    assert_no_fix(&keeping(&["gps/fix", "batt"]), payload, "valid is false");
    // `[fields.NAME]` keeps the values from which its column is computed.
    let source = keeping(&["gps/fix"]).keeping(&["valid".to_owned()]).unwrap();
    assert_stored(&source, payload);
}

#[test]
fn flag_counts_beside_the_place_in_its_object() {
    let mapped = |object: &str| {
        mapped_source(Fields {
            lat: pointer(&format!("/{object}/lat")),
            lng: pointer(&format!("/{object}/lng")),
            ..fields(TimeUnit::BySize)
        })
    };
    let payload = |object: &str, member: &str| {
        format!(r#"{{"ts":1795770000,"{object}":{{"lat":52.5,"lng":13.4,{member}}}}}"#)
    };
    for (object, member, flag) in [
        ("nav", r#""fix":0"#, "nav/fix is 0"),
        ("nav", r#""valid":false"#, "nav/valid is false"),
        ("gps", r#""quality":0"#, "gps/quality is 0"),
    ] {
        assert_no_fix(&mapped(object), &payload(object, member), flag);
    }
    // The object is the fix, and its member `fix` may be the fix's number.
    assert_stored(&mapped("fix"), &payload("fix", r#""fix":0"#));
    assert_stored(&mapped("nav"), &payload("nav", r#""quality":0"#));
    let beside = payload("nav", r#""x":1"#).replace("{\"ts\"", r#"{"sim":{"valid":false},"ts""#);
    assert_stored(&mapped("nav"), &beside);
}

#[test]
fn shipped_formats_reject_an_invalid_position_unless_it_is_kept() {
    let payload = r#"{"position":{"fixTime":"2026-11-27T09:00:00Z","latitude":52.5,
        "longitude":13.4,"valid":false,"outdated":false},
        "device":{"id":1}}"#;
    assert_no_fix(&format_called("traccar"), payload, "valid is false");
    let source = format_called("traccar").keeping(&["valid".to_owned()]).unwrap();
    assert_eq!(decode(&source, payload).positions.len(), 1);
}

#[test]
fn other_faults_of_a_point_without_a_fix_keep_their_reasons() {
    for (place, reason) in [
        (r#""lat":0,"lng":0"#, "null_island"),
        (r#""lat":null,"lng":null"#, "missing_field"),
        (r#""lat":"x","lng":1"#, "wrong_type"),
    ] {
        let payload = format!(r#"{{{place},"ts":1795770000,"valid":false}}"#);
        let decoded = decode(&format_called("milepost"), &payload);
        assert_eq!(decoded.rejects[0].reason.name(), reason, "{payload}: {decoded:?}");
        assert!(!decoded.rejects[0].detail.contains("had no fix"), "{payload}: {decoded:?}");
    }
}

/// A receiver that simulates positions says so in the mode of RMC and the quality of GGA.
#[test]
fn nmea_without_a_real_fix_is_ignored() {
    let with_checksum = |body: &str| {
        let sum = body.bytes().fold(0, |sum, byte| sum ^ byte);
        format!("${body}*{sum:02X}")
    };
    let rmc = |mode: &str| {
        with_checksum(&format!("GNRMC,090000,A,5230.0,N,01324.0,E,10,90,271126,,,{mode}"))
    };
    let gga = |quality: u8| {
        with_checksum(&format!("GNGGA,090000,5230.0,N,01324.0,E,{quality},08,1,34,M,40,M,,"))
    };
    let nmea = source(Format::Nmea);
    for payload in [rmc("S"), rmc("N"), gga(8), gga(0), rmc("S,V") + "\n" + &gga(8)] {
        let decoded = decode(&nmea, &payload);
        assert!(decoded.positions.is_empty() && decoded.rejects.is_empty(), "{payload}");
        assert!(decoded.ignored.contains(&Ignored::NoFix), "{payload}: {decoded:?}");
    }
    for payload in [rmc("A"), rmc("D"), rmc("E"), rmc("M"), rmc(""), gga(1), gga(6), gga(7)] {
        assert_stored(&nmea, &payload);
    }
}

#[test]
fn position_under_other_names_is_not_ignored_as_presence() {
    for (payload, is_presence) in [
        (r#"{"status":"online"}"#, true),
        (r#"{"state":"connected","latency":5,"battery":80}"#, true),
        (r#"{"status":"online","latitude":0,"longitude":0}"#, true),
        (r#"{"status":"online","latitude":52.5,"longitude":13.4,"ts":1795770000}"#, false),
        (r#"{"state":"connected","gps":{"Lat":"52.5","Lon":"13.4"}}"#, false),
    ] {
        for format in ["milepost", "owntracks", "geojson", "w3c"] {
            let decoded = decode(&format_called(format), payload);
            assert_eq!(decoded.ignored.contains(&Ignored::Presence), is_presence, "{payload}");
            assert_eq!(decoded.rejects.len(), usize::from(!is_presence), "{format} {payload}");
        }
    }
}
