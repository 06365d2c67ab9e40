//! Tests the payloads that devices and people send, one test per kind. milepost reads each payload
//! correctly, or rejects it with a detail that states cause and remedy.
//! `crates/import/tests/files.rs` tests files in the same way.

use std::time::Duration;

use milepost_config::Config;
use milepost_decode::Message;
use milepost_decode::position::Timestamp;
use milepost_decode::{Decoded, Decoder, Limits};

/// 2026-11-24T12:00:00Z.
const NOW_S: i64 = 1_795_521_600;

fn decoder(toml: &str) -> Decoder {
    let sources = Config::parse(toml).unwrap_or_else(|error| panic!("{toml}: {error}")).sources;
    let limits = Limits {
        payload_bytes_max: 100_000,
        points_max: 1_000,
        fix_age_max: Duration::from_secs(390 * 86_400),
        fix_future_max: Duration::from_secs(300),
    };
    Decoder::new(&sources, limits)
}

fn decode_on(toml: &str, topic: &str, payload: impl AsRef<[u8]>) -> Decoded {
    let mut decoded = Decoded::default();
    let received_at = Timestamp::from_unix_ms(NOW_S * 1_000);
    let message = Message::new(topic.as_bytes(), payload.as_ref());
    decoder(toml).listing_unread().decode(message, received_at, &mut decoded);
    decoded
}

/// Returns a configuration with one source. Its topic is `in/+`, and `keys` are its other keys.
fn source(keys: &str) -> String {
    format!("[[sources]]\ntopic = 'in/+'\n{keys}")
}

/// Returns a configuration with the custom format `f`, which has these keys, and a source that uses
/// it.
fn mapped(mapping: &str) -> String {
    format!("[formats.f]\n{mapping}\n{}", source("format = 'f'"))
}

/// Returns a line for each result. A fix: seconds after noon (negative: before), lat, lng, speed in
/// m/s, heading in degrees, altitude and accuracy in m. A reject: reason and detail. An ignored
/// part: its kind.
fn summary_lines(decoded: &Decoded) -> Vec<String> {
    let number = |units: i64, per_one: f64, unknown: i64| {
        if units == unknown { "-".to_owned() } else { (units as f64 / per_one).to_string() }
    };
    let fixes = decoded.positions.iter().map(|fix| {
        let unknown = i64::from(u16::MAX);
        format!(
            "{} {} {} {} {} {} {}",
            fix.ts.unix_ms() / 1_000 - NOW_S,
            f64::from(fix.lat.e7()) / 1e7,
            f64::from(fix.lng.e7()) / 1e7,
            number(fix.speed.cms().into(), 100.0, unknown),
            number(fix.heading.cdeg().into(), 100.0, unknown),
            number(fix.alt.dm().into(), 10.0, i32::MAX.into()),
            number(fix.acc.dm().into(), 10.0, unknown),
        )
    });
    let rejects =
        decoded.rejects.iter().map(|reject| format!("{}: {}", reject.reason.name(), reject.detail));
    fixes.chain(rejects).chain(decoded.ignored.iter().map(|kind| kind.name().to_owned())).collect()
}

/// Asserts the lines of [`summary_lines`]. Each item of `expected` is the whole line of a fix, or a
/// part of the line of a reject or of an ignored part.
#[track_caller]
fn check(toml: &str, payload: impl AsRef<[u8]>, expected: &[&str]) {
    let decoded = decode_on(toml, "in/d7", &payload);
    let (lines, payload) =
        (summary_lines(&decoded), String::from_utf8_lossy(payload.as_ref()).into_owned());
    assert_eq!(lines.len(), expected.len(), "{toml}\n{payload}: {lines:?}");
    for (line, expected) in lines.iter().zip(expected) {
        // The line of every fix in these tests begins with one of these characters.
        let is_fix = expected.starts_with(['-', '0', '1']);
        let is_right = if is_fix { line == expected } else { line.contains(expected) };
        assert!(is_right, "{toml}\n{payload}: {line}, expected {expected}");
    }
    assert_eq!(decoded.omissions.undated, 0, "{payload}: a fix got the time of receipt");
}

fn nmea(bodies: &[&str]) -> String {
    let line =
        |body: &&str| format!("${body}*{:02X}\r\n", body.bytes().fold(0, |sum, byte| sum ^ byte));
    bodies.iter().map(line).collect()
}

/// An NMEA sentence has a time of day: `110000` is 11:00:00, which is 3,600 s before `NOW_S`.
#[test]
fn nmea_sentences_of_one_moment_are_one_dated_fix() {
    let toml = source("format = 'nmea'");
    let rmc = |time: &str| format!("GPRMC,{time},A,3351.0000,S,15112.0000,E,20.0,45.0,241126,,,A");
    let gga =
        |time: &str| format!("GNGGA,{time},3351.0000,S,15112.0000,E,1,09,0.9,50.0,M,40.0,M,,");
    let (combined, gga_only) = ("-3600 -33.85 151.2 10.29 45 90 -", "-3600 -33.85 151.2 - - 90 -");
    for (first, second) in [
        ("110000", "110000.00"),
        ("110000.000", "110000"),
        ("110000.0", "110000.00"),
        ("110000", "110000"),
    ] {
        check(&toml, nmea(&[&rmc(first), &gga(second)]), &[combined]);
        check(&toml, nmea(&[&gga(first), &rmc(second)]), &[combined]);
    }
    // The sentences may be in any order, such as all RMCs before all GGAs.
    let next_second = "-3599 -33.85 151.2 10.29 45 90 -";
    check(
        &toml,
        nmea(&[&rmc("110000"), &rmc("110001"), &gga("110000"), &gga("110001")]),
        &[combined, next_second],
    );
    // A GGA has no date. Alone, it gets the date that is nearest to the time of receipt. A fix in
    // the future is rejected.
    check(&toml, nmea(&[&gga("110000")]), &[gga_only]);
    check(&toml, nmea(&[&gga("010000")]), &["-39600 -33.85 151.2 - - 90 -"]);
    check(&toml, nmea(&[&gga("230000")]), &["too_new: 2026-11-24T23:00:00Z"]);
    // A GGA gets the date of an RMC or ZDA in the same message. Here this date is yesterday.
    let zda = "GPZDA,110005.00,23,11,2026,00,00";
    let yesterday = "-90000 -33.85 151.2 - - 90 -";
    check(&toml, nmea(&[zda, &gga("110000")]), &[yesterday, "sentence"]);
    check(&toml, nmea(&[&gga("110000"), zda]), &[yesterday, "sentence"]);
    let late = "GPRMC,110500,A,3351.0000,S,15112.0000,E,20.0,45.0,231126,,,A";
    check(&toml, nmea(&[&gga("110000"), late]), &[yesterday, "-89700 -33.85 151.2 10.29 45 - -"]);
    // Around midnight: the RMC of the next day dates the GGA before it.
    let next = "GPRMC,000001,A,3351.0000,S,15112.0000,E,20.0,45.0,241126,,,A";
    let before = "-43201 -33.85 151.2 - - 90 -";
    check(&toml, nmea(&[&gga("235959"), next]), &[before, "-43199 -33.85 151.2 10.29 45 - -"]);
    // A damaged line does not affect the others.
    let damaged = nmea(&[&rmc("110000")]).replace("45.0", "45,0");
    let both = damaged + &nmea(&[&gga("110000"), &rmc("110001"), &gga("110001")]);
    check(&toml, both, &[gga_only, next_second, "bad_checksum"]);
    // If a pair is split between two messages, its RMC becomes the fix and its GGA is ignored.
    let split_pair = [&*rmc("110000"), &*gga("110000"), &*rmc("110001")];
    check(&toml, nmea(&split_pair), &[combined, "-3599 -33.85 151.2 10.29 45 - -"]);
    check(
        &toml,
        nmea(&[&gga("110001"), &rmc("110002"), &gga("110002")]),
        &["-3598 -33.85 151.2 10.29 45 90 -", "sentence"],
    );
    // Some devices write no line end.
    check(&toml, nmea(&[&rmc("110000"), &gga("110000")]).replace("\r\n", ""), &[combined]);
    // A line that is not UTF-8 does not affect the others; lines may end in CR or NUL.
    let noise = [b"$GP\xff\xfeRMC,x*00\r\n", nmea(&[&rmc("110000")]).as_bytes()].concat();
    check(&toml, noise, &["-3600 -33.85 151.2 10.29 45 - -", "invalid_utf8"]);
    for end in ["\r", "\n", "\0", "\r\n\0"] {
        let lines = nmea(&[&rmc("110000"), &gga("110000"), &rmc("110001"), &gga("110001")]);
        check(&toml, lines.replace("\r\n", end), &[combined, next_second]);
    }
    // A long log: the sentences of one moment are still one fix.
    let times: Vec<String> = (0..60).map(|second| format!("1100{second:02}")).collect();
    let long: Vec<String> =
        times.iter().map(|time| rmc(time)).chain(times.iter().map(|time| gga(time))).collect();
    let long: Vec<&str> = long.iter().map(String::as_str).collect();
    let fixes = summary_lines(&decode_on(&toml, "in/d7", nmea(&long)));
    assert_eq!(fixes.len(), 60, "{fixes:?}");
    assert!(fixes.iter().all(|fix| fix.ends_with("10.29 45 90 -")), "{fixes:?}");
    // An RMC without a date, and invalid times.
    let undated = rmc("110000").replace("241126", "");
    check(&toml, nmea(&[&undated]), &["-3600 -33.85 151.2 10.29 45 - -"]);
    for time in ["", "11000", "256000", "11:00:00"] {
        check(&toml, nmea(&[&gga(time)]), &["bad_ts: time"]);
    }
}

#[test]
fn degrees_may_be_integers_or_minutes_or_have_a_hemisphere() {
    let lat_lng = "lat = '/a'\nlng = '/o'\nts = '/t'\nts_unit = 's'\n";
    let ts = NOW_S - 60;
    for (keys, point, expected) in [
        ("lat_unit = '1e-7 deg'", r#""a":525200081,"o":-134049540"#, "52.5200081 -13.404954"),
        ("lat_unit = '1e-6 deg'", r#""a":52520008,"o":"-13404954""#, "52.520008 -13.404954"),
        ("lat_unit = '1e-5 deg'", r#""a":5252000,"o":1340495"#, "52.52 13.40495"),
        ("lat_unit = 'ddmm.mmmm'", r#""a":3351.5,"o":"-07040.5""#, "33.8583333 -70.675"),
        ("lat_unit = 'rad'", r#""a":0.5,"o":-1"#, "28.6478898 -57.2957795"),
        ("lat_unit = '-1 deg'", r#""a":33.5,"o":70.5"#, "-33.5 70.5"),
        ("lat_unit = '-1 deg'\nlng_unit = '-1 deg'", r#""a":33.5,"o":70.5"#, "-33.5 -70.5"),
        ("lat_unit = '-ddmm.mmmm'", r#""a":3351.5,"o":7040.5"#, "-33.8583333 70.675"),
        ("lat_unit = 'deg'\nlng_unit = '1e-6 deg'", r#""a":1.5,"o":2000000"#, "1.5 2"),
        (
            "lat_hemisphere = '/ns'\nlng_hemisphere = '/ew'",
            r#""a":33.5,"o":70.5,"ns":"S","ew":"W""#,
            "-33.5 -70.5",
        ),
        (
            "lat_hemisphere = '/ns'\nlng_hemisphere = '/ew'",
            r#""a":33.5,"o":70.5,"ns":"n","ew":" East""#,
            "33.5 70.5",
        ),
        ("lat_hemisphere = '/ns'", r#""a":-33.5,"o":70.5,"ns":"S""#, "-33.5 70.5"),
        ("", r#""a":"33.5 S","o":"W70.5""#, "-33.5 -70.5"),
        ("", r#""a":"33°30'0\"S","o":"70°30'W""#, "-33.5 -70.5"),
    ] {
        let payload = format!("{{{point},\"t\":{ts}}}");
        check(&mapped(&format!("{lat_lng}{keys}")), payload, &[&format!("-60 {expected} - - - -")]);
    }
    let with_hemispheres = format!("{lat_lng}lat_hemisphere = '/ns'\nlng_hemisphere = '/ew'");
    for (point, cause) in [
        (r#""a":33.5,"o":70.5"#, "hemisphere of lat, is missing, not N or S"),
        (r#""a":33.5,"o":70.5,"ns":"E","ew":"W""#, "not N or S"),
        (r#""a":-33.5,"o":70.5,"ns":"N","ew":"W""#, "which is right?"),
    ] {
        check(&mapped(&with_hemispheres), format!("{{{point},\"t\":{ts}}}"), &[cause]);
    }
    for (point, cause) in [
        (r#""a":525200081,"o":1"#, "such as 1e-7 deg"),
        (r#""a":104.2,"o":52.5"#, "swapped"),
        (r#""a":"5.25E+01","o":1"#, "lost its last digits"),
        (r#""a":"north","o":1"#, "wrong_type: /a is \"north\", not a number"),
        (r#""a":true,"o":1"#, "wrong_type: /a is a boolean, not a number"),
    ] {
        check(&mapped(lat_lng), format!("{{{point},\"t\":{ts}}}"), &[cause]);
    }
    // Garmin devices send semicircles. Semicircles that are read as 1e-7 degrees would be off by a
    // fifth.
    let semicircles = mapped(&format!("{lat_lng}lat_unit = 'semicircles'"));
    let garmin = format!(r#"{{"a":626349397,"o":159868227,"t":{ts}}}"#);
    check(&semicircles, &garmin, &["-60 52.5 13.4 - - - -"]);
    check(&mapped(lat_lng), &garmin, &["or in Garmin's semicircles?"]);
    let metres = format!(r#"{{"a":6891041.7,"o":1491681.2,"t":{ts}}}"#);
    check(&mapped(lat_lng), metres, &["metres of a projection? Convert them to WGS 84"]);
    for (sent, expected) in [("(33.5)", "a minus before"), ("33.5-", "a minus before")] {
        let point = format!(r#"{{"a":"{sent}","o":1,"t":{ts}}}"#);
        check(&mapped(lat_lng), point, &[expected]);
    }
    let strings = format!(r#"{{"lat":"33.5","lng":"70.5","ts":{ts}}}"#);
    check(&source(""), strings, &["not a number; send it without quotes"]);
    let two = format!(r#"{{"lat":1,"lng":2,"ts":{ts}}}{{"lat":1,"lng":2,"ts":{ts}}}"#);
    check(&source(""), two, &["a message is one object, or one array of objects"]);
    let southern = mapped(&format!("{lat_lng}lat_unit = '-1 deg'"));
    let lettered = format!(r#"{{"a":"33.5 S","o":70.5,"t":{ts}}}"#);
    check(&southern, lettered, &["wrong_type: lat 33.5 S has its own letter"]);
    // Read as 1e-7 degrees, a value in degrees would be a place near 0, 0.
    let scaled = mapped(&format!("{lat_lng}lat_unit = '1e-7 deg'"));
    for point in [r#""a":52.52,"o":13.4"#, r#""a":"52","o":"-13""#] {
        check(
            &scaled,
            format!("{{{point},\"t\":{ts}}}"),
            &["are degrees already: remove lat_unit"],
        );
    }
    check(
        &scaled,
        format!(r#"{{"a":5.252e+08,"o":1.34e+08,"t":{ts}}}"#),
        &["lost its last digits"],
    );
    let java = format!(r#"{{"a":5.25200081E8,"o":"1.3404954E8","t":{ts}}}"#);
    check(&scaled, java, &["-60 52.5200081 13.404954 - - - -"]);
    // milepost's own format reads no hemisphere fields. It rejects a fix if such a field would
    // change the place.
    for (members, expected) in [
        (r#""lat":33.5,"lng":70.5,"ns":"S","ew":"E""#, "lat is 33.5, and ns is \"S\""),
        (r#""lat":33.5,"lon":70.5,"N/S":"N","E/W":"W""#, "lng is 70.5, and E/W is \"W\""),
        (r#""lat":33.5,"lon":70.5,"lat_dir":"south""#, "lat_hemisphere in [formats.NAME]"),
        (r#""lat":33.5,"lon":70.5,"GPSLongitudeRef":"W""#, "lng_hemisphere in [formats.NAME]"),
        (r#""lat":33.5,"lon":70.5,"latitude_hemisphere":"S""#, "lat is 33.5"),
        (r#""lat":-33.5,"lon":70.5,"ns":"S","ew":"E""#, "-60 -33.5 70.5 - - - -"),
        (r#""lat":33.5,"lon":70.5,"ns":"N","news":"S","dir":"W""#, "-60 33.5 70.5 - - - -"),
    ] {
        check(&source(""), format!("{{{members},\"ts\":{ts}}}"), &[expected]);
    }
    // The other numeric fields, each in a unit of its own.
    let keys = "speed = '/v'\nspeed_unit = 'cm/s'\nheading = '/h'\nheading_unit = '0.01 deg'\n\
                alt = '/z'\nalt_unit = 'mm'\nacc = '/e'\nacc_unit = 'ft'";
    let payload = format!(r#"{{"a":1,"o":2,"t":{ts},"v":1250,"h":27000,"z":-1500,"e":100}}"#);
    check(&mapped(&format!("{lat_lng}{keys}")), payload, &["-60 1 2 12.5 270 -1.5 30.5"]);
    // A unit after the number overrides the unit of the format.
    let written =
        format!(r#"{{"a":1,"o":2,"t":{ts},"v":"36 km/h","h":"270°","z":"1000ft","e":"100.0 m"}}"#);
    check(&mapped(&format!("{lat_lng}{keys}")), written, &["-60 1 2 10 270 304.8 100"]);
    let velocity = format!(r#""_type":"location","lat":1,"lon":2,"tst":{ts},"vel":"20 knots""#);
    check(&source("format = 'owntracks'"), format!("{{{velocity}}}"), &["-60 1 2 10.29 - - -"]);
}

/// A mapping reads only the hemisphere fields that it names. If another hemisphere field near the
/// coordinates would change the place, milepost rejects the point.
#[test]
fn unread_hemisphere_rejects_the_point_in_every_format() {
    let (ts, ms) = (NOW_S - 60, (NOW_S - 60) * 1_000);
    let flat = mapped("lat = '/lat'\nlng = '/lng'\nts = '/t'\nts_unit = 's'");
    let at = |point: &str| format!("{{{point},\"t\":{ts}}}");
    for (point, expected) in [
        (r#""lat":33.4,"lng":70.6,"lat_dir":"S""#, "lat is 33.4, and lat_dir says south"),
        (r#""lng_dir":"W","lat":33.4,"lng":70.6"#, "lng is 70.6, and lng_dir says west"),
        (r#""lat":"33.4","lng":"70.6","ns":"s","ew":"E""#, "lat is 33.4, and ns says south"),
        (r#""lat":33.4,"lng":70.6,"N/S":"N","E/W":" West""#, "lng is 70.6, and E/W says west"),
        (r#""lat":33.4,"lng":70.6,"latitudeHemisphere":"SOUTH""#, "lat_hemisphere in [formats"),
        (r#""lat":33.4,"lng":70.6,"GPSLongitudeRef":"W""#, "lng_hemisphere in [formats"),
        (r#""lat":33.4,"lng":70.6,"l\u0061t_dir":"S""#, "lat is 33.4, and lat_dir says south"),
        (r#""lat":-33.4,"lng":-70.6,"ns":"S","ew":"W""#, "-60 -33.4 -70.6 - - - -"),
        (r#""lat":"33.4 S","lng":"70.6 W","ns":"S","ew":"W""#, "-60 -33.4 -70.6 - - - -"),
        (r#""lat":33.4,"lng":70.6,"ns":"N","ew":"E""#, "-60 33.4 70.6 - - - -"),
        (r#""lat":33.4,"lng":70.6,"ns":["S"]"#, "lat is 33.4, and ns says south"),
        // Neither a namespace nor a direction of travel or wind is a hemisphere.
        (r#""lat":33.4,"lng":70.6,"ns":"sensors","dir":"S""#, "-60 33.4 70.6 - - - -"),
        (
            r#""lat":33.4,"lng":70.6,"ns":["sensors"],"wind":"W","ew":1e999"#,
            "-60 33.4 70.6 - - - -",
        ),
        (r#""lat":33.4,"lng":70.6,"lat_dir":"\ud800","ns":null"#, "-60 33.4 70.6 - - - -"),
    ] {
        check(&flat, at(point), &[expected]);
    }
    let deep = mapped("lat = '/gps/lat/deg'\nlng = '/gps/lon/deg'\nts = '/t'\nts_unit = 's'");
    for (point, expected) in [
        (r#"{"lat":{"deg":33.4,"dir":"S"},"lon":{"deg":70.6,"dir":"W"}}"#, "dir says south"),
        (r#"{"lat":{"deg":33.4,"dir":"N"},"lon":{"ref":"W","deg":70.6}}"#, "ref says west"),
        (r#"{"lat":{"deg":33.4},"lon":{"deg":70.6},"ns":"S"}"#, "ns says south"),
        (r#"{"lat":{"deg":33.4},"lon":{"deg":70.6},"dir":"S"}"#, "-60 33.4 70.6 - - - -"),
    ] {
        check(&deep, at(&format!(r#""gps":{point}"#)), &[expected]);
    }
    let tst = format!(r#""_type":"location","lat":33.4,"lon":70.6,"tst":{ts},"lat_dir":"S""#);
    check(&source("format = 'owntracks'"), format!("{{{tst}}}"), &["lat_dir says south"]);
    let latlng = format!(r#""latlng":"33.4,70.6","ts":{ms},"ew":"W""#);
    let reported = format!(r#"{{"state":{{"reported":{{{latlng}}}}}}}"#);
    check(&source("format = 'teltonika'"), reported, &["ew says west"]);
    let feature = format!(
        r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[70.6,33.4]}},
            "properties":{{"ts":{ms},"lat_ref":"S"}}}}"#
    );
    let geojson = source("format = 'geojson'\nspeed_unit = 'm/s'");
    check(&geojson, feature, &["lat is 33.4, and lat_ref says south"]);
    // milepost's own format: a word that begins with S is not a hemisphere.
    let own = format!(r#"{{"lat":33.4,"lng":70.6,"ts":{ts},"ns":"sensors"}}"#);
    check(&source(""), own, &["-60 33.4 70.6 - - - -"]);
}

#[test]
fn messages_without_a_position_are_ignored_if_configured() {
    let base = "lat = '/p/a'\nlng = '/p/o'\nts = '/t'\nts_unit = 's'\n";
    let ignores = mapped(&format!("{base}without_position = 'ignore'"));
    let ts = NOW_S - 1;
    check(&ignores, format!(r#"{{"battery":90,"t":{ts}}}"#), &["telemetry"]);
    check(&ignores, format!(r#"{{"p":{{"a":null,"o":null}},"t":{ts}}}"#), &["telemetry"]);
    check(&ignores, format!(r#"{{"p":{{"a":1}},"t":{ts}}}"#), &["missing_field"]);
    check(&ignores, format!(r#"{{"p":{{"a":1,"o":2}},"t":{ts}}}"#), &["-1 1 2 - - - -"]);
    check(&mapped(base), format!(r#"{{"battery":90,"t":{ts}}}"#), &["missing_field"]);
}

/// AIS sends special values for "not available": 102.3 knots for the speed, 360° for the course,
/// 91° for the latitude and 181° for the longitude.
#[test]
fn configured_placeholder_values_are_read_as_unknown() {
    let ais = mapped(
        "lat = '/LAT'\nlng = '/LON'\nts = '/T'\nts_unit = 's'\nspeed = '/SOG'\n\
         speed_unit = 'knots'\nheading = '/COG'\nunknown = ['speed=102.3', 'heading=360', \
         'lat=91', 'lng=181']",
    );
    let payload = |lat: &str, sog: &str, cog: &str| {
        format!(r#"{{"LAT":{lat},"LON":9.5,"T":{},"SOG":{sog},"COG":{cog}}}"#, NOW_S - 5)
    };
    check(&ais, payload("53.5", "102.3", "360.0"), &["-5 53.5 9.5 - - - -"]);
    check(&ais, payload("53.5", "\"102.3\"", "\"360\""), &["-5 53.5 9.5 - - - -"]);
    check(&ais, payload("53.5", "10", "90"), &["-5 53.5 9.5 5.14 90 - -"]);
    check(&ais, payload("91", "10", "90"), &["no_fix"]);
}

#[test]
fn times_without_an_offset_are_in_the_configured_zone() {
    let mapping = |keys: &str| mapped(&format!("lat = '/a'\nlng = '/o'\nts = '/t'\n{keys}"));
    let fix = |members: &str| format!(r#"{{"a":1,"o":2,{members}}}"#);
    for (keys, members, seconds) in [
        ("ts_unit = 'rfc3339'\nts_zone = 'Z'", r#""t":"2026-11-24T10:30:37""#, -5_363),
        ("ts_unit = 'rfc3339'\nts_zone = '+01:00'", r#""t":"2026-11-24T11:30:37""#, -5_363),
        ("ts_unit = 'rfc3339'\nts_zone = 'Europe/Berlin'", r#""t":"2026-11-24 11:30:37""#, -5_363),
        (
            "ts_unit = 'rfc3339'\nts_zone = 'Europe/Berlin'",
            r#""t":"2026-07-01T12:00:00""#,
            -12_621_600,
        ),
        ("ts_unit = 'rfc3339'\nts_zone = 'Europe/Berlin'", r#""t":"2026-11-24T10:30:37Z""#, -5_363),
        (
            "ts_unit = '%d/%m/%Y %H:%M:%S'\nts_zone = 'America/Sao_Paulo'",
            r#""t":"24/11/2026 07:30:37""#,
            -5_363,
        ),
        (
            "ts_unit = '%m/%d/%Y %I:%M:%S %p'\nts_zone = 'Z'",
            r#""t":"11/24/2026 10:30:37 AM""#,
            -5_363,
        ),
        ("ts_unit = 'auto'\nts_zone = 'Z'", r#""t":1795510800123"#, -10_800),
        ("ts_unit = 'us'", r#""t":1795510800123456"#, -10_800),
        ("ts_unit = 'ns'", r#""t":1795510800123456789"#, -10_800),
        (
            "ts_unit = 'rfc3339'\nts_zone = 'Z'\nts_date = '/d'",
            r#""d":"2026/11/24","t":"10:30:37""#,
            -5_363,
        ),
        (
            "ts_unit = 'rfc3339'\nts_zone = 'Z'\nts_date = '/d'",
            r#""d":20261124,"t":"10:30:37.5""#,
            -5_363,
        ),
        (
            "ts_unit = '%d%m%y %H%M%S'\nts_zone = 'Z'\nts_date = '/d'",
            r#""d":"241126","t":"103037""#,
            -5_363,
        ),
    ] {
        check(&mapping(keys), fix(members), &[&format!("{seconds} 1 2 - - - -")]);
    }
    for (keys, members, cause) in [
        ("ts_unit = 'rfc3339'", r#""t":"2026-11-24T10:30:37""#, "ts_zone"),
        (
            "ts_unit = 'rfc3339'\nts_zone = 'Europe/Berlin'",
            r#""t":"2026-10-25T02:30:00""#,
            "happens twice",
        ),
        (
            "ts_unit = 'rfc3339'\nts_zone = 'Europe/Berlin'",
            r#""t":"2026-03-29T02:30:00""#,
            "does not exist",
        ),
        ("ts_unit = 'rfc3339'\nts_zone = 'Z'", r#""t":"03/04/2026 10:00:00""#, "which order"),
        ("ts_unit = 'rfc3339'\nts_zone = 'Z'\nts_date = '/d'", r#""t":"10:30:37""#, "has no date"),
        ("ts_unit = 'rfc3339'\nts_zone = 'Z'", r#""t":"10:30:37""#, "without a date"),
    ] {
        check(&mapping(keys), fix(members), &[cause]);
    }
    // The zone of a source applies to formats whose times are strings.
    let own_zone = source("zone = 'Europe/Berlin'");
    check(&own_zone, r#"{"lat":1,"lng":2,"ts":"2026-11-24T11:30:37"}"#, &["-5363 1 2 - - - -"]);
    check(&own_zone, r#"{"lat":1,"lng":2,"ts":"2026-11-24T10:30:37Z"}"#, &["-5363 1 2 - - - -"]);
    let geojson = source("format = 'geojson'\nspeed_unit = 'm/s'\nzone = '-03:00'");
    let feature = r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[2,1]},"properties":{"ts":"2026-11-24 07:30:37"}}"#;
    check(&geojson, feature, &["-5363 1 2 - - - -"]);
    // A string with an offset needs no zone. An abbreviation of a zone is read only if the
    // configured zone uses it.
    let at = |ts: &str| format!(r#"{{"lat":1,"lng":2,"ts":"{ts}"}}"#);
    for ts in [
        "Tue, 24 Nov 2026 11:30:37 +0100",
        "Tue Nov 24 2026 11:30:37 GMT+0100 (CET)",
        "2026-11-24 10:30:37 UTC",
        "2026-11-24T11:30:37[Europe/Berlin]",
        r"\/Date(1795516237000)\/",
    ] {
        check(&source(""), at(ts), &["-5363 1 2 - - - -"]);
    }
    check(&source(""), at("2026-11-24 05:30:37 EST"), &["zone is called EST: name it with `zone`"]);
    let new_york = source("zone = 'America/New_York'");
    check(&new_york, at("2026-11-24 05:30:37 EST"), &["-5363 1 2 - - - -"]);
    check(&new_york, at("2026-11-24 05:30:37 EDT"), &["New_York is not called EDT at 2026-11-24"]);
    // Read as microseconds, these digits would be a time in the year 2612.
    check(&source(""), at("20261124103037250"), &["name its zone with `zone` of the source"]);
    let number = r#"{"lat":1,"lng":2,"ts":20261124103037250}"#;
    check(
        &source(""),
        number,
        &["give a pattern with --unit ts= or ts_unit, such as \"%Y%m%d%H%M"],
    );
    let pattern =
        mapped("lat = '/lat'\nlng = '/lng'\nts = '/ts'\nts_unit = '%Y%m%d%H%M%S%f'\nts_zone = 'Z'");
    check(&pattern, number, &["-5363 1 2 - - - -"]);
}

#[test]
fn time_under_another_name_is_read_or_named_in_the_reject() {
    let toml = source("");
    let fix = |member: &str| format!(r#"{{"lat":1,"lon":2,{member}}}"#);
    for name in ["timestamp", "time", "datetime", "fixTime", "TS", "tst", "date_time", "Timestamp"]
    {
        for value in ["1795510800", "1795510800123", "\"2026-11-24T09:00:00Z\""] {
            check(&toml, fix(&format!("\"{name}\":{value}")), &["-10800 1 2 - - - -"]);
        }
    }
    check(&toml, fix(r#""time":"09:00""#), &["bad_ts"]);
    for name in ["gps_time", "utc", "updated_at", "when", "eventTimestamp"] {
        check(
            &toml,
            fix(&format!("\"{name}\":1795510800")),
            &[&format!("there is no ts, but {name} is 1795510800: rename it")],
        );
    }
    for value in ["2026-11-24 09:00:00", "Tue, 24 Nov 2026 09:00:00 GMT", "20261124090000"] {
        check(&toml, fix(&format!("\"recorded_at\":\"{value}\"")), &["but recorded_at is"]);
    }
    // A time of day alone is not a time, even if another member has the date.
    for members in [
        r#""utc_date":"2026-11-24","utc_time":"09:00:00""#,
        r#""gps_date":"241126","gps_time":"090000.00""#,
        r#""GpsTime":"09:00:00Z""#,
    ] {
        check(&toml, fix(members), &["is the time of day 09"]);
    }
    check(&toml, fix(r#""uptime":"09:00:00","ts":1795510800"#), &["-10800 1 2 - - - -"]);
    // The time of a Feature must be in its properties.
    let feature = r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[2,1]},"properties":{},"time":"2026-11-24T09:00:00Z"}"#;
    let geojson = source("format = 'geojson'\nspeed_unit = 'm/s'");
    check(&geojson, feature, &["there is no properties/ts, but time is 2026-11-24T09:00:00Z"]);
    // A string in RFC 3339 is read even if the format specifies numbers. If the format specifies
    // strings, a number needs a unit.
    for tst in ["1795510800", "\"2026-11-24T09:00:00Z\"", "\"2026-11-24T10:00:00.000+01:00\""] {
        let location = format!(r#"{{"_type":"location","lat":1,"lon":2,"tst":{tst}}}"#);
        check(&source("format = 'owntracks'"), location, &["-10800 1 2 - - - -"]);
    }
    let number =
        r#"{"location":{"timestamp":1795510800000,"coords":{"latitude":1,"longitude":2}}}"#;
    check(&source("format = 'traccar-client'"), number, &["not RFC 3339: set ts_unit = "]);
    for (path, payload) in [
        ("gps/time", r#"{"lat":1,"lng":2,"gps":{"time":1795510800}}"#),
        ("when/begin", r#"{"lat":1,"lng":2,"when":{"begin":"2026-11-24T09:00:00Z"}}"#),
    ] {
        check(&toml, payload, &[&format!("there is no ts, but {path} is")]);
    }
    // Other formats, too, reject such a fix: to store it with its time of receipt would be wrong.
    let own_format = mapped("lat = '/lat'\nlng = '/lng'\nts = '/at'\nts_unit = 's'");
    let geojson = source("format = 'geojson'\nspeed_unit = 'm/s'");
    let thingsboard = source("format = 'thingsboard'\nspeed_unit = 'm/s'");
    for (toml, payload, expected) in [
        (
            source("format = 'owntracks'"),
            r#"{"_type":"location","lat":1,"lon":2,"created_at":1795510800}"#,
            "there is no /tst, but created_at is 1795510800: rename it",
        ),
        (
            source("format = 'w3c'"),
            r#"{"coords":{"latitude":1,"longitude":2},"time":1795510800123}"#,
            "there is no /timestamp, but time is",
        ),
        (
            source("format = 'traccar'"),
            r#"{"position":{"latitude":1,"longitude":2,"deviceTime":"2026-11-24T09:00:00Z"}}"#,
            "there is no /position/fixTime, but position/deviceTime is",
        ),
        (
            source("format = 'teltonika'"),
            r#"{"state":{"reported":{"latlng":"1.0,2.0","timestamp":1795510800123}}}"#,
            "there is no /state/reported/ts, but state/reported/timestamp is",
        ),
        (
            thingsboard,
            r#"{"latitude":1,"longitude":2,"timestamp":1795510800}"#,
            "there is no /ts, but timestamp is",
        ),
        (
            own_format,
            r#"{"lat":1,"lng":2,"timestamp":1795510800}"#,
            "there is no /at, but timestamp",
        ),
        (
            geojson.clone(),
            r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[2,1]},"properties":{"gps_time":1795510800}}"#,
            "there is no properties/ts, but properties/gps_time is",
        ),
        (
            geojson.clone(),
            r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[2,1]},"properties":{"recordedAt":"2026-11-24T09:00:00Z"}}"#,
            "there is no properties/ts, but properties/recordedAt is",
        ),
        (
            source("format = 'thingsboard'\nspeed_unit = 'm/s'"),
            r#"{"latitude":1,"longitude":2,"location_time":1795510800123}"#,
            "there is no /ts, but location_time is",
        ),
        (
            geojson,
            r#"{"type":"Feature","when":{"start":"2026-11-24T09:00:00Z"},"geometry":{"type":"Point","coordinates":[2,1]},"properties":{}}"#,
            "there is no properties/ts, but when/start is",
        ),
    ] {
        check(&toml, payload, &[expected]);
    }
    // A mapping without `ts` stores the time of receipt: the operator chose this by leaving out
    // `ts`.
    let timeless = mapped("lat = '/lat'\nlng = '/lng'");
    let decoded = decode_on(&timeless, "in/d7", r#"{"lat":1,"lng":2,"time":1795510800}"#);
    assert_eq!((decoded.positions.len(), decoded.omissions.undated), (1, 1), "{decoded:?}");
    // Members whose name or value is not a time leave the fix undated.
    for member in [r#""uptime":500"#, r#""id":1795510800"#, r#""time":null"#] {
        let decoded = decode_on(&toml, "in/d7", fix(member));
        assert_eq!(
            (decoded.positions.len(), decoded.omissions.undated),
            (1, 1),
            "{member}: {decoded:?}"
        );
    }
    check(
        &toml,
        r#"{"latitude":1,"longitude":2,"ts":1795510800}"#,
        &["latitude is not read in format milepost: rename it to lat"],
    );
    check(
        &toml,
        r#"[{"lat":1,"longitude":2,"ts":1795510800}]"#,
        &["longitude is not read in format milepost: rename it to lng"],
    );
    let unread = |toml: &str, payload: &str| {
        decode_on(toml, "in/d7", payload).unread.into_iter().collect::<Vec<_>>().join(" ")
    };
    let payload = r#"{"lat":1,"lng":2,"ts":1795510800,"accuracy":5,"hedding":4,"battery":70,"a":{"b":1},"c":[1],"d":null}"#;
    assert_eq!(unread(&toml, payload), "a/b accuracy battery c hedding");
    assert_eq!(unread(&source("keep = ['battery', 'a/b']"), payload), "accuracy c hedding");
    assert_eq!(unread(&source("keep = ['*']"), payload), "");
    let owntracks = r#"{"_type":"location","lat":1,"lon":2,"tst":1795510800,"batt":7}"#;
    assert_eq!(unread(&source("format = 'owntracks'"), owntracks), "batt");
}

#[test]
fn nul_terminator_is_not_part_of_the_payload() {
    let json = format!(r#"{{"lat":1,"lng":2,"ts":{}}}"#, NOW_S - 9);
    for end in ["\0", "\0\0\0", "\n", "\r\n\0", "\n\0\0", " \0"] {
        check(&source(""), format!("{json}{end}"), &["-9 1 2 - - - -"]);
        check(&source(""), format!("[{json},{json}]{end}"), &["-9 1 2 - - - -", "-9 1 2 - - - -"]);
    }
    let owntracks =
        format!("{{\"_type\":\"location\",\"lat\":1,\"lon\":2,\"tst\":{}}}\0", NOW_S - 9);
    check(&source("format = 'owntracks'"), owntracks, &["-9 1 2 - - - -"]);
    let line = nmea(&["GPGGA,110000,3351.0000,S,15112.0000,E,1,09,0.9,50.0,M,40.0,M,,"]) + "\0";
    check(&source("format = 'nmea'"), line, &["-3600 -33.85 151.2 - - 90 -"]);
    check(&source(""), "\0\0", &["empty"]);
    // Invisible characters around the JSON are ignored.
    for (before, after) in
        [("\u{feff}", ""), ("\0", "\r\n\0\r\n"), ("", "\x1a"), ("\u{feff}", "\x04\n")]
    {
        check(&source(""), format!("{before}{json}{after}"), &["-9 1 2 - - - -"]);
    }
}

/// Python writes NaN and Infinity, which JSON does not have.
#[test]
fn nan_and_infinity_are_read_as_unknown() {
    let fix = |lat: &str, speed: &str, age: i64| {
        format!("{{\"lat\":{lat},\"lng\":2,\"ts\":{},\"speed\":{speed}}}", NOW_S - age)
    };
    for value in ["NaN", "-Infinity", "Infinity", "nan", "-inf"] {
        check(&source(""), fix("1", value, 5), &["-5 1 2 - - - -"]);
        let array = format!("[{},{}]", fix("1", value, 5), fix("1", "3", 4));
        check(&source(""), array, &["-5 1 2 - - - -", "-4 1 2 3 - - -"]);
    }
    let array = format!("[{},{}]", fix("NaN", "3", 5), fix("1", "3", 4));
    check(&source(""), array, &["-4 1 2 3 - - -", "missing_field: lat is missing"]);
    let owntracks =
        format!(r#"{{"_type":"location","lat":1,"lon":2,"tst":{},"vel":NaN}}"#, NOW_S - 5);
    check(&source("format = 'owntracks'"), owntracks, &["-5 1 2 - - - -"]);
    check(&source(""), fix("1", "None", 5), &["invalid_json"]);
}

#[test]
fn rejected_time_states_its_value_and_the_remedy() {
    let at = |ts: &str| format!(r#"{{"lat":1,"lng":2,"ts":{ts}}}"#);
    let own = source("");
    check(
        &own,
        at("1600000000"),
        &["2020-09-13T12:26:40Z is more than 390 days old; to store it, raise decode.fix_age_max"],
    );
    check(
        &own,
        at("1795525200"),
        &["2026-11-24T13:00:00Z is 3600 s ahead of milepost's clock; decode.fix_future_max \
             allows 300 s"],
    );
    check(&own, at("45985.4"), &["a spreadsheet's number of days"]);
    check(&own, at("86400"), &["never set"]);
    check(
        &own,
        at("1176113700"),
        &["2007-04-09T10:15:00Z is 1024 weeks before 2026-11-23: the receiver has the GPS week \
           rollover"],
    );
    let in_unit =
        |unit: &str| mapped(&format!("lat = '/lat'\nlng = '/lng'\nts = '/ts'\nts_unit = '{unit}'"));
    check(
        &in_unit("s"),
        at("1795510800123"),
        &["off by a factor of 1,000: the number is in ms, but is read in s; set ts_unit = \"ms\""],
    );
    check(
        &in_unit("ms"),
        at("1795510800"),
        &["off by a factor of 1,000: the number is in s, but is read in ms; set ts_unit = \"s\""],
    );
    for (unit, ts, expected) in [
        ("us", "1795510800", "off by a factor of 1,000,000: the number is in s"),
        ("ns", "1795510800123", "off by a factor of 1,000,000: the number is in ms"),
        ("s", "1795510800123456789", "off by a factor of 1,000,000,000: the number is in ns"),
        ("ms", "1795510800123456", "off by a factor of 1,000: the number is in us"),
    ] {
        check(&in_unit(unit), at(ts), &[expected]);
    }
    // Clocks with another epoch, and a GPS week rollover into the future.
    check(&own, at("817203600"), &["from 2001, as Apple's clocks do"]);
    check(&own, at("1479545982"), &["from 1980-01-06, as GPS does"]);
    check(&own, at("2414826000"), &["weeks after 2026-11-24: the receiver has the GPS week"]);
    check(&in_unit("auto"), at("\"1.79555E+12\""), &["lost its last digits"]);
    check(&in_unit("s"), at("\"1.7955108E9\""), &["lost its last digits"]);
    check(&in_unit("s"), at("\"1.795510800E9\""), &["-10800 1 2 - - - -"]);
    // JSON numbers written by C's %g or a spreadsheet are rounded; those written by Java are not.
    for rounded in ["1.7955e9", "1.79551e+09", "1.79551E+12"] {
        check(&own, at(rounded), &["lost its last digits"]);
        check(&in_unit("auto"), at(rounded), &["lost its last digits"]);
    }
    for whole in ["1.7955108E9", "1.795510800e9", "1.7955108E12"] {
        check(&own, at(whole), &["-10800 1 2 - - - -"]);
        check(&in_unit("auto"), at(whole), &["-10800 1 2 - - - -"]);
    }
    check(&own, r#"{"lat":4.75e1,"lng":-1E-1,"ts":1795510800}"#, &["-10800 47.5 -0.1 - - - -"]);
}

#[test]
fn driver_id_may_be_an_integer_or_a_string() {
    let toml = |keys: &str| {
        format!(
            "[formats.f]\nlat = '/lat'\nlng = '/lng'\nts = '/ts'\nts_unit = 's'\n[[sources]]\n\
             topic = 'in'\ndriver = '/id'\nformat = 'f'\n{keys}"
        )
    };
    let id = |keys: &str, sent: &str| {
        let payload = format!(r#"{{"id":{sent},"lat":1,"lng":2,"ts":{}}}"#, NOW_S);
        let decoded = decode_on(&toml(keys), "in", payload);
        let fix = decoded.positions.first().map(|fix| fix.driver_id.as_str().to_owned());
        fix.unwrap_or_else(|| decoded.rejects[0].detail.clone())
    };
    for (sent, expected) in [
        ("356307042441013.0", "356307042441013"),
        ("356307042441013.00", "356307042441013"),
        ("0.5e1", "5"),
        ("0.0", "0"),
        ("3.56307042441013e14", "356307042441013"),
        ("3.56307042441013E+14", "356307042441013"),
        ("18446744073709551615", "18446744073709551615"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("9223372036854775807", "9223372036854775807"),
    ] {
        assert_eq!(id("", sent), expected);
    }
    for (sent, cause) in [
        ("3.56307e14", "lost its last digits"),
        ("\"3.56307E+14\"", "lost its last digits"),
        ("\"3.56307E14\"", "lost its last digits"),
        ("\"3,56307E+14\"", "lost its last digits"),
        ("1.5", "1-64 bytes"),
        ("-7.0", "1-64 bytes"),
        ("true", "1-64 bytes"),
        ("\"jo@example.org\"", "driver_other"),
    ] {
        assert!(id("", sent).contains(cause), "{sent}: {}", id("", sent));
    }
    // Hexadecimal ids that look like numbers with an exponent.
    for sent in ["12e3", "1E5", "3e8a", "0012e034"] {
        assert_eq!(id("", &format!("\"{sent}\"")), sent);
    }
    for (keys, sent, expected) in [
        ("driver_other = 'hex'", "\"jo@example.org\"", "jo_40example.org"),
        ("driver_other = 'hex'", "\"+49 170\"", "_2B49_20170"),
        ("driver_other = 'hex'", "\"Jürg\"", "J_C3_BCrg"),
        ("driver_other = '_'", "\"Jürg@x y\"", "J_rg_x_y"),
        ("driver_other = 'hex'", "\"d-7_a\"", "d-7_a"),
    ] {
        assert_eq!(id(keys, sent), expected);
    }
    let toml = "[[sources]]\ntopic = 'owntracks/+/+'\ndriver = '{1}:{2}'\nformat = 'owntracks'\n\
                driver_other = 'hex'";
    let payload =
        format!(r#"{{"_type":"location","tst":{NOW_S},"lat":"48.85","lon":"2.29","vel":"36"}}"#);
    let decoded = decode_on(toml, "owntracks/jo@example.org/phone", payload);
    assert_eq!(decoded.positions[0].driver_id.as_str(), "jo_40example.org:phone", "{decoded:?}");
}
