//! Tests that no fix is stored at a wrong position or dropped, although its payload states the
//! right position.

mod common;

use common::{decode_by, fields, format_called, mapped_source, pointer, source};
use milepost_decode::formats::{Fields, Format, More};
use milepost_decode::{
    Decoded, Decoder, Driver, Field, Keep, Limits, Source, SpeedUnit, Template, TimeUnit,
};

/// Returns a mapping with the pointers `/lat`, `/lng` and `/ts`.
fn mapping(more: More) -> Source {
    mapping_of("/lat", "/lng", more)
}

fn mapping_of(lat: &str, lng: &str, more: More) -> Source {
    mapped_source(Fields {
        lat: pointer(lat),
        lng: pointer(lng),
        more: Some(Box::new(more)),
        ..fields(TimeUnit::BySize)
    })
}

fn decode(source: &Source, payload: &str) -> Decoded {
    decode_by(&Decoder::new(std::slice::from_ref(source), Limits::default()), payload)
}

/// Asserts that the payload is rejected with this reason and a detail that contains `message`.
#[track_caller]
fn assert_refused(source: &Source, payload: &str, reason: &str, message: &str) {
    let decoded = decode(source, payload);
    assert!(decoded.positions.is_empty(), "{payload}: {decoded:?}");
    let [reject] = &decoded.rejects[..] else { panic!("{payload}: {decoded:?}") };
    assert_eq!(reject.reason.name(), reason, "{payload}: {}", reject.detail);
    assert!(reject.detail.contains(message), "{payload}: {}", reject.detail);
}

/// Asserts that the payload is one fix at this position.
#[track_caller]
fn assert_place(source: &Source, payload: &str, [lat, lng]: [f64; 2]) {
    let decoded = decode(source, payload);
    let [fix] = &decoded.positions[..] else { panic!("{payload}: {decoded:?}") };
    let found = [fix.lat.e7(), fix.lng.e7()].map(|units| f64::from(units) / 1e7);
    assert!((found[0] - lat).abs() < 1e-6 && (found[1] - lng).abs() < 1e-6, "{payload}: {found:?}");
}

#[track_caller]
fn assert_ignored(source: &Source, payload: &str, kind: &str) {
    let decoded = decode(source, payload);
    let kinds: Vec<&str> = decoded.ignored.iter().map(|kind| kind.name()).collect();
    assert_eq!((kinds, decoded.rejects.len()), (vec![kind], 0), "{payload}: {decoded:?}");
}

#[test]
fn position_under_other_names_is_not_ignored_as_telemetry() {
    let thingsboard = format_called("thingsboard");
    for values in [
        r#""lat":52.5,"lon":13.4"#,
        r#""Latitude":52.5,"Longitude":13.4"#,
        r#""LAT":"52.5","LNG":"13.4""#,
        r#""gps":{"latitude":52.5,"longitude":13.4}"#,
        r#""gps_lat":52.5,"gps_lon":13.4,"temp":21"#,
        r#""纬度":52.5,"经度":13.4"#,
        r#""Широта":52.5,"Долгота":13.4"#,
        r#""Breite":52.5,"Länge":13.4"#,
        r#""latitud":52.5,"longitud":13.4"#,
    ] {
        let message = "which are not read: format thingsboard reads latitude and longitude";
        let payload = format!(r#"{{"ts":1795770000123,"values":{{{values}}}}}"#);
        assert_refused(&thingsboard, &payload, "missing_field", message);
        assert_refused(&thingsboard, &format!("{{{values}}}"), "missing_field", message);
    }
    for values in [
        r#""temperature":21.5"#,
        r#""latency":5,"longest":7,"platform":"y""#,
        r#""lat":0,"lon":0.0"#,
        r#""lat":null,"lon":null"#,
        r#""home":{"lat":52.5,"lng":13.4}"#,
        r#""Breite":2.5,"Höhe":3"#,
        r#""lat":52.5,"mode":"LONG""#,
        r#""x":0.1,"y":-0.2,"z":9.8"#,
    ] {
        let payload = format!(r#"{{"ts":1795770000123,"values":{{{values}}}}}"#);
        assert_ignored(&thingsboard, &payload, "telemetry");
    }
    let teltonika = format_called("teltonika");
    for position in [r#""lat":52.5,"lng":13.4"#, r#""latitude":52.5,"longitude":13.4"#] {
        let payload = format!(r#"{{"state":{{"reported":{{"ts":1795770000123,{position}}}}}}}"#);
        assert_refused(&teltonika, &payload, "missing_field", "format teltonika reads latlng");
    }
    assert_ignored(
        &teltonika,
        r#"{"state":{"reported":{"ts":1795770000123,"66":12}}}"#,
        "telemetry",
    );
    let geojson = format_called("geojson");
    let feature = |properties: &str| {
        format!(r#"{{"type":"Feature","geometry":null,"properties":{{{properties}}}}}"#)
    };
    let message = "send them as a Point in geometry, which is null";
    let payload = feature(r#""latitude":52.5,"longitude":13.4"#);
    assert_refused(&geojson, &payload, "missing_field", message);
    assert_ignored(&geojson, &feature(r#""name":"later""#), "no_fix");
    let without_position = mapping(More { may_lack_position: true, ..More::default() });
    let message = "map them as lat and lng in [formats.NAME]";
    assert_refused(
        &without_position,
        r#"{"gps":{"lat":52.5,"lon":13.4}}"#,
        "missing_field",
        message,
    );
    assert_ignored(&without_position, r#"{"batt":5,"lat":null,"lng":null}"#, "telemetry");
}

#[test]
fn degree_and_minute_marks_decide_the_unit() {
    let plain_mapping = mapping(More::default());
    let fix = |lat: &str| format!(r#"{{"lat":{lat:?},"lng":"1°05'.50W","ts":1795770000}}"#);
    for (lat, degrees) in [
        ("50°47'.32N", 50.788_667),
        ("50°47.32'N", 50.788_667),
        ("50 47 .32 N", 50.788_667),
        ("50°.5N", 50.5),
        ("50°47'19.2\"N", 50.788_667),
        ("50°47'19.2''N", 50.788_667),
    ] {
        assert_place(&plain_mapping, &fix(lat), [degrees, -1.091_667]);
    }
    for lat in ["33°56\"S", "26'S", "50'30\"N", "50°47\"N"] {
        assert_refused(&plain_mapping, &fix(lat), "wrong_type", "lat is");
    }
}

#[test]
fn degrees_with_zeros_before_them_may_be_degrees_and_minutes() {
    let plain_mapping = mapping(More::default());
    let fix = |lat: &str, lng: &str| format!(r#"{{"lat":{lat:?},"lng":{lng:?},"ts":1795770000}}"#);
    for (lat, lng) in [("0030N", "2E"), ("N0030.5", "2E"), ("1N", "00105W"), ("1N", "W 00105.5")] {
        assert_refused(
            &plain_mapping,
            &fix(lat, lng),
            "wrong_type",
            "may be degrees and minutes: set",
        );
    }
    for (lat, lng, place) in [
        ("05.5N", "002.5W", [5.5, -2.5]),
        ("005.5N", "W 130", [5.5, -130.0]),
        ("0005.5", "2E", [5.5, 2.0]),
        ("00°30'N", "001 05 W", [0.5, -1.083_333]),
    ] {
        assert_place(&plain_mapping, &fix(lat, lng), place);
    }
    assert_refused(&plain_mapping, &fix("5230N", "2E"), "lat_range", "degrees and minutes?");
}

#[test]
fn unit_that_is_not_read_is_rejected_beside_its_number() {
    for (members, message) in [
        (r#""speed":600,"speed_unit":"m/min""#, "speed_unit says m/min, which is not read"),
        (r#""speed":40,"speedUnits":"ft/s""#, "speedUnits says ft/s"),
        (r#""heading":100,"heading_unit":"gon""#, "heading_unit says gon"),
        (r#""alt":100,"alt_unit":"yards""#, "alt_unit says yards"),
        (r#""speed":600,"unit":"m/min""#, "unit says m/min, which is not read"),
        (r#""speed":40,"uom":"ft/s""#, "uom says ft/s"),
        (r#""heading":100,"angle_unit":"gon""#, "angle_unit says gon"),
        (r#""heading":1.57,"angle_unit":"rad""#, "angle_unit says rad, but heading is read in deg"),
    ] {
        let fix = format!(r#"{{"lat":52.5,"lng":13.4,"ts":1795770000,{members}}}"#);
        assert_refused(&format_called("milepost"), &fix, "wrong_type", message);
    }
    for members in [
        r#""speed":10,"speed_unit":"","unit":"mach""#,
        r#""speed":10,"flow":{"unit":"m/min"},"unit":"N/A""#,
        r#""angle_unit":"gon","heading":"90 deg""#,
        r#""speed":10,"speed_unit":"default","heading":90,"heading_unit":"Grad""#,
        r#""speed":10,"distance_unit":"miles","angle_unit":"deg""#,
        r#""speed_unit":"m/min","heading":90,"mil_unit":"mil""#,
    ] {
        let fix = format!(r#"{{"lat":52.5,"lng":13.4,"ts":1795770000,{members}}}"#);
        assert_place(&format_called("milepost"), &fix, [52.5, 13.4]);
    }
}

/// Returns a dated fix of milepost's own format at 52, 13 with these members.
fn whole_degrees(members: &str) -> String {
    format!(r#"{{"lat":52,"lng":13,"ts":1795770000,{members}}}"#)
}

#[test]
fn whole_degrees_with_minutes_beside_them_are_rejected() {
    let geojson = format_called("geojson");
    for members in [
        r#""lat_min":31.2,"lng_min":24.3"#,
        r#""latMinutes":31,"latSeconds":12.5"#,
        r#""lat_frac":520008,"lng_frac":404954"#,
        r#""latitude_minutes":"31.2""#,
        r#""lat_billionths":520008000"#,
        r#""gps":{"lat":{"min":31.2}}"#,
    ] {
        for source in [format_called("milepost"), mapping(More::default())] {
            let message = "which is not read: send degrees with decimals";
            assert_refused(&source, &whole_degrees(members), "wrong_type", message);
            let payload =
                whole_degrees(members).replace(":52,", ":52.0,").replace(":13,", ":13.0,");
            assert_refused(&source, &payload, "wrong_type", message);
        }
        let payload = format!(
            r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[13,52]}},
            "properties":{{"ts":1795770000,{members}}}}}"#
        );
        assert_refused(&geojson, &payload, "wrong_type", "which is not read");
    }
    for members in [
        r#""lat_min":0,"lng_min":0.0"#,
        r#""lat_min":51,"lat_max":53,"lng_min":12,"lng_max":14"#,
        r#""minutes":31,"seconds":12,"min":4"#,
        r#""latency":31,"lat_err":5,"longest":3"#,
        r#""duration_min":31"#,
    ] {
        assert_place(&format_called("milepost"), &whole_degrees(members), [52.0, 13.0]);
    }
    let fix = r#"{"lat":52.52,"lng":13.4,"ts":1795770000,"lat_min":31.2}"#;
    assert_place(&format_called("milepost"), fix, [52.52, 13.4]);
}

#[test]
fn two_different_longitudes_are_rejected() {
    let milepost = format_called("milepost");
    let fix =
        |lng: &str, lon: &str| format!(r#"{{"lat":52.5,"lng":{lng},"lon":{lon},"ts":1795770000}}"#);
    for (lng, lon) in [("0", "13.4"), ("13.5", "13.4"), ("13.4", "-13.4")] {
        assert_refused(&milepost, &fix(lng, lon), "wrong_type", "send only one of them");
    }
    for (lng, lon) in [
        ("13.4", "13.4"),
        ("13.4", "13.40001"),
        ("13.4", "null"),
        ("null", "13.4"),
        ("13.4", "\"x\""),
    ] {
        assert_place(&milepost, &fix(lng, lon), [52.5, 13.4]);
    }
}

#[test]
fn geojson_altitude_property_replaces_a_height_of_0() {
    let geojson = format_called("geojson");
    for (height, properties, alt_dm) in [
        (",0", r#","altitude":34"#, 340),
        (",0.0", r#","ele":34.5"#, 345),
        (",0", "", 0),
        (",0", r#","altitude":"high""#, 0),
        (",12", r#","altitude":34"#, 120),
        ("", r#","altitude":34"#, 340),
    ] {
        let payload = format!(
            r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[13.4,52.5{height}]}},
            "properties":{{"ts":1795770000{properties}}}}}"#
        );
        let decoded = decode(&geojson, &payload);
        assert_eq!(decoded.positions[0].alt.dm(), alt_dm, "{payload}");
    }
}

/// Returns a dated fix at 33.4, 3.7 with these members.
fn unsigned(members: &str) -> String {
    format!(r#"{{"lat":33.4,"lng":3.7,"ts":1795770000,{members}}}"#)
}

#[test]
fn unread_hemisphere_rejects_coordinates_without_a_sign() {
    for members in [
        r#""hemisphere":"SW""#,
        r#""hemisphere":"S W""#,
        r#""hemi":"south""#,
        r#""south":true"#,
        r#""is_south":true"#,
        r#""isWest":1"#,
        r#""north":false"#,
        r#""ns":-1"#,
        r#""ns":83"#,
        r#""ew":"87""#,
        r#""lat_sign":-1"#,
        r#""lng_sign":"-""#,
        r#""lat_negative":true"#,
        r#""lon_suffix":"W""#,
        r#""latSide":"S""#,
        r#""nsi":"S""#,
        r#""ewi":"W""#,
        r#""n_or_s":"S""#,
        r#""E/O":"O""#,
        r#""lon_dir":"O""#,
        r#""lon_dir":"Oeste""#,
        r#""O/W":"W""#,
        r#""hemisphere":"southwest""#,
        r#""nsew":"SW""#,
        r#""dir":["S","W"]"#,
        r#""dirs":["W","N"]"#,
        r#""latLngRef":["S","E"]"#,
        r#""gps_dir":["S","W"]"#,
        r#""hemisphere":["south","west"]"#,
        r#""hemispheres":["SW"]"#,
        r#""GPSLatitudeRef":["S"]"#,
        r#""dir":{"lat":"S","lng":"E"}"#,
        r#""hemi":{"lat":"N","lon":"W"}"#,
        r#""signs":["-","-"]"#,
        r#""signs":[-1,-1]"#,
        r#""signs":["+","-"]"#,
        r#""latlng_signs":["-","+"]"#,
        r#""sign":{"lat":"-","lng":"-"}"#,
        r#""signs":{"lat":-1,"lng":1}"#,
        r#""signs":"--""#,
        r#""sign":"+,-""#,
        r#""sign":"-""#,
        r#""sign_lat":"-""#,
        r#""signLon":-1"#,
        r#""hemisphere":"南半球""#,
        r#""半球":["南","西"]"#,
        r#""полушарие":["ю.ш.","з.д."]"#,
        r#""半球":"南""#,
        r#""半球":"西南""#,
        r#""纬度半球":"南纬""#,
        r#""东西":"西""#,
        r#""南北":"S""#,
        r#""lat_dir":"南纬""#,
        r#""lon_dir":"з.д.""#,
        r#""lat_dir":"Ю""#,
        r#""полушарие":"южное""#,
        r#""широта_полушарие":"ю.ш.""#,
        r#""hémisphère":"Sud""#,
        r#""latitud_ref":"Sur""#,
        r#""Breite_Richtung":"S","lat_ref":"südlich""#,
        r#""lonRef":"batı""#,
    ] {
        for source in [format_called("milepost"), mapping(More::default())] {
            assert_refused(&source, &unsigned(members), "wrong_type", "not read");
        }
    }
    let milepost = format_called("milepost");
    assert_refused(
        &milepost,
        &unsigned(r#""hemisphere":{"lat":"S"}"#),
        "wrong_type",
        "hemisphere/lat",
    );
    for members in [
        r#""hemisphere":"NE""#,
        r#""hemisphere":{"lat":"N","lng":"E"},"dest":{"ns":"S"}"#,
        r#""south":false,"isWest":0,"north":true"#,
        r#""ns":9,"ew":1,"nsat":-1"#,
        r#""north":0,"east":0,"up":-1"#,
        r#""south":33,"west":3,"north":34,"east":4"#,
        r#""lat_sign":1,"lng_sign":"+""#,
        r#""lat_negative":false"#,
        r#""O/W":"O""#,
        r#""E/O":"E","lon_dir":"Ost""#,
        r#""quadrant":"SW","wind":"W","direction":"S","dir":"SW""#,
        r#""dir":["N","E"],"windDir":["N"],"refs":["S"],"wind":["S","W"]"#,
        r#""dir":[1,-1],"refs":["S","W","N"],"direction":["S","S"],"ref":[],"hemi":{}"#,
        r#""signs":["+","+"],"sign":"+","signal":-1,"sign_lat":1,"signature":"-""#,
        r#""sign":"q3+w8/S2aW1=""#,
        r#""signs":[1,1],"sign":"stop","design":["-","-"],"road":{"sign":["-","-"]}"#,
        r#""gust_dir":["S","W"],"swell_dir":["S","E"],"location":"x","wind":{"dir":["S","W"]}"#,
        r#""directions":["W","N"],"location":{"home":{"dir":["S","W"]}}"#,
        r#""半球":"北","东西":"东","lat_dir":"с.ш.","lon_dir":"в.д.""#,
        r#""方向":"南","道路":"西","город":"Юг","風向":"北""#,
        r#""breite":2,"länge":4,"breiteNs":"N","latitud_ref":"Norte""#,
        r#""reference":{"site":"S","lane":"W"},"directions":{"a":[{"b":"S"}]},"dirs":[[1],["S"]]"#,
    ] {
        for source in [&milepost, &mapping(More::default())] {
            assert_place(source, &unsigned(members), [33.4, 3.7]);
        }
    }
    let signed = r#"{"lat":-33.4,"lng":-3.7,"ts":1795770000,"hemisphere":"SW","lon_dir":"O"}"#;
    assert_place(&milepost, signed, [-33.4, -3.7]);
    let nested = mapping_of("/lat/deg", "/lng/deg", More::default());
    let payload = r#"{"lat":{"deg":33.4,"negative":true},"lng":{"deg":3.7},"ts":1795770000}"#;
    assert_refused(&nested, payload, "wrong_type", "negative says south");
}

#[test]
fn hemisphere_is_read_as_letter_word_sign_or_flag() {
    let source_and_payload = |names: [&str; 2], values: [&str; 2]| {
        let hemispheres = names.map(|name| Some(pointer(&format!("/{name}"))));
        let source = mapping(More { hemispheres, ..More::default() });
        let [ns, ew] = names.map(|name| name.replace("~1", "/"));
        let members = format!(r#""{ns}":{},"{ew}":{}"#, values[0], values[1]);
        (source, unsigned(&members))
    };
    for (names, values, place) in [
        (["ns", "ew"], [r#""S""#, r#""W""#], [-33.4, -3.7]),
        (["ns", "ew"], [r#""Sud""#, r#""Ouest""#], [-33.4, -3.7]),
        (["ns", "ew"], [r#""Nord""#, r#""Ost""#], [33.4, 3.7]),
        (["N~1S", "E~1O"], [r#""S""#, r#""O""#], [-33.4, -3.7]),
        (["N~1S", "O~1W"], [r#""S""#, r#""O""#], [-33.4, 3.7]),
        (["lat_sign", "lng_sign"], ["-1", "1"], [-33.4, 3.7]),
        (["lat_negative", "lng_negative"], ["true", "false"], [-33.4, 3.7]),
        (["ns", "ew"], ["83", "87"], [-33.4, -3.7]),
        (["ns", "ew"], [r#""南""#, r#""西经""#], [-33.4, -3.7]),
        (["ns", "ew"], [r#""ю.ш.""#, r#""в.д.""#], [-33.4, 3.7]),
    ] {
        let (source, payload) = source_and_payload(names, values);
        assert_place(&source, &payload, place);
    }
    let (source, payload) = source_and_payload(["ns", "ew"], [r#""S""#, r#""O""#]);
    assert_refused(&source, &payload, "wrong_type", "O is east in German and west in French");
    let (source, payload) = source_and_payload(["ns", "ew"], ["9", r#""W""#]);
    assert_refused(&source, &payload, "wrong_type", "/ns, the hemisphere of lat, is 9, not N or S");
    for none in [r#""None""#, r#""null""#, r#""N/A""#, r#""no fix""#] {
        let (source, payload) = source_and_payload(["ns", "ew"], [none, r#""W""#]);
        assert_refused(&source, &payload, "wrong_type", "not N or S");
    }
}

#[test]
fn value_with_its_unit_is_read_in_every_format() {
    let values = r#""speed":"36 km/h","heading":"270°","alt":"1000ft","acc":"12 m""#;
    let milepost = unsigned(values);
    let feature = format!(
        r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[3.7,33.4]}},
        "properties":{{"ts":1795770000,{values}}}}}"#
    );
    let kmh = source(Format::GeoJson(SpeedUnit::KilometresPerHour));
    let w3c = r#"{"coords":{"latitude":33.4,"longitude":3.7,"speed":"36 km/h","heading":"270°",
        "altitude":"1000ft","accuracy":"12 m"},
        "timestamp":1795770000000}"#;
    let thingsboard = r#"{"ts":1795770000000,
        "values":{"latitude":33.4,"longitude":3.7,"speed":"36 km/h","heading":"270°",
        "altitude":"1000ft","accuracy":"12 m"}}"#;
    for (source, payload) in [
        (&format_called("milepost"), &*milepost),
        (&kmh, &feature),
        (&format_called("w3c"), w3c),
        (&format_called("thingsboard"), thingsboard),
    ] {
        let decoded = decode(source, payload);
        let fix = &decoded.positions[0];
        let found = (fix.speed.cms(), fix.heading.cdeg(), fix.alt.dm(), fix.acc.dm());
        assert_eq!(found, (1_000, 27_000, 3_048, 120), "{payload}");
        assert_eq!(decoded.omissions.fields.iter().sum::<u64>(), 0, "{payload}");
    }
    for speed in ["36", "fast", "36 ft", "-5 km/h", ""] {
        let decoded =
            decode(&format_called("milepost"), &unsigned(&format!(r#""speed":"{speed}""#)));
        assert_eq!(decoded.positions[0].speed.cms(), u16::MAX, "{speed}");
        assert_eq!(decoded.omissions.fields[Field::Speed as usize], 1, "{speed}");
    }
}

#[test]
fn out_of_range_error_names_every_plausible_cause() {
    let milepost = format_called("milepost");
    for (lat, lng, reason, hints) in [
        ("5820073", "391779", "lat_range", &["metres of a projection", "1e-5 deg or 1e-6 deg"][..]),
        ("2600000", "1200000", "lat_range", &["metres of a projection", "or is it an integer"]),
        ("5820073.25", "391779.5", "lat_range", &["metres of a projection"]),
        ("525200081", "134049540", "lat_range", &["such as 1e-7 deg", "--unit lat='1e-7 deg'"]),
        ("525200", "-134049", "lat_range", &["projection", "1e-4 deg"]),
        ("104.5", "52.5", "lat_range", &["swapped"]),
        ("52.5", "200.5", "lng_range", &["from 0 to 360"]),
        ("5231.2", "1324.3", "lat_range", &["ddmm.mmmm"]),
    ] {
        let payload = format!(r#"{{"lat":{lat},"lng":{lng},"ts":1795770000}}"#);
        for hint in hints {
            assert_refused(&milepost, &payload, reason, hint);
        }
    }
}

/// Every format reads a number in one unit. A payload that states another unit is rejected.
#[test]
fn other_unit_beside_a_number_is_rejected() {
    let milepost = format_called("milepost");
    for (members, message) in [
        (r#""speed":36,"speed_unit":"km/h""#, "speed_unit says km/h, but speed is read in m/s"),
        (
            r#""speedUnit":"kmh","speed":36.5"#,
            "speed is read in m/s: convert it, or map it with speed_unit",
        ),
        (r#""speed":36,"speed_units":"knots""#, "speed_units says knots"),
        (r#""alt":1000,"alt_unit":"ft""#, "alt_unit says ft"),
        (r#""speed":43,"SPEED_UNIT":"mph""#, "SPEED_UNIT says mph"),
        (r#""speed":43,"uom":"mph""#, "uom says mph"),
        (r#""speed":43,"speedUom":"knots""#, "speedUom says knots"),
        (r#""speed":43,"unit_speed":"mph""#, "unit_speed says mph"),
        (r#""speed":43,"unitsSpeed":"km/h""#, "unitsSpeed says km/h"),
        (r#""speed":43,"unitSpeed":"km/h""#, "unitSpeed says km/h"),
        (r#""speed":43,"unit_of_speed":"mph""#, "unit_of_speed says mph"),
        (r#""speed":43,"velocity_unit":"mph""#, "velocity_unit says mph"),
        (r#""alt":1000,"altitude_unit":"ft""#, "altitude_unit says ft"),
        (r#""alt":1000,"unit":"feet""#, "unit says ft, but alt is read in m"),
        (r#""speed":43,"units":"imperial""#, "units says imperial (mph), but speed is read in m/s"),
        (r#""alt":1000,"units":"US""#, "units says US (ft), but alt is read in m"),
        (r#""speed":43,"unit_system":"Imperial""#, "unit_system says Imperial (mph)"),
        (r#""speed":43,"unitSystem":"nautical""#, "(knots), but speed"),
        (r#""speed":43,"velocidad_unidad":"km/h""#, "velocidad_unidad says km/h"),
        (r#""speed":43,"unidadVelocidad":"km/h""#, "unidadVelocidad says km/h"),
        (r#""speed":43,"unidad_de_velocidad":"nudos""#, "unidad_de_velocidad says knots"),
        (r#""speed":43,"einheit":"km/h""#, "einheit says km/h"),
        (r#""speed":43,"Geschwindigkeit_Einheit":"Knoten""#, "says knots"),
        (r#""speed":43,"Geschwindigkeitseinheit":"km/h""#, "Geschwindigkeitseinheit says km/h"),
        (r#""speed":43,"measurementSystem":"imperial""#, "says imperial (mph)"),
        (r#""units":"semicircles""#, "units says semicircles, but lat is read in deg"),
        (r#""coord_unit":"radians""#, "coord_unit says rad, but lat is read in deg"),
        (r#""speed":43,"imperial":true"#, "imperial says imperial (mph), but speed is read in m/s"),
        (r#""speed":43,"isMetric":false"#, "isMetric says imperial (mph)"),
        (r#""speed":43,"use_metric":"no""#, "use_metric says imperial (mph)"),
        (r#""alt":1000,"is_imperial":1"#, "is_imperial says imperial (ft)"),
        (r#""speed":43,"isMetric":0"#, "isMetric says imperial (mph)"),
        (r#""speed":43,"metric":"False""#, "metric says imperial (mph)"),
        (r#""speed":43,"metric":false"#, "metric says imperial (mph)"),
        (r#""speed":43,"units":{"isMetric":false}"#, "units/isMetric says imperial (mph)"),
        (r#""alt":1000,"units":{"imperial":true}"#, "units/imperial says imperial (ft)"),
        (
            r#""speed":3,"speed_unit":"m/s","isMetric":false,"alt":9"#,
            "isMetric says imperial (ft), but alt is read in m",
        ),
        (r#""speed":43,"system_of_units":"US""#, "system_of_units says US (mph)"),
        (r#""speed":43,"systemOfUnits":"marine""#, "systemOfUnits says marine (knots)"),
        (r#""speed":43,"measurement_system":"US""#, "measurement_system says US (mph)"),
        (r#""alt":1000,"systemOfMeasurement":"US""#, "systemOfMeasurement says US (ft)"),
        (r#""speed":43,"unité_vitesse":"km/h""#, "unité_vitesse says km/h"),
        (r#""speed":43,"unite":"km/h""#, "unite says km/h"),
        (r#""speed":43,"unità":"nodi""#, "unità says knots"),
        (r#""speed":43,"Jednostka":"km/h""#, "Jednostka says km/h"),
        (r#""speed":43,"единица":"км/ч""#, "единица says km/h"),
        (r#""speed":43,"速度单位":"公里/小时""#, "速度单位 says km/h"),
        (r#""speed":43,"unit_of_measurement":"mph""#, "unit_of_measurement says mph"),
        (r#""alt":1000,"unidad_altitud":"pies""#, "unidad_altitud says ft"),
        (r#""alt":1000,"altitude_unite":"pieds""#, "altitude_unite says ft"),
        (r#""speed":43,"unidades":"imperial""#, "unidades says imperial (mph)"),
    ] {
        assert_refused(&milepost, &unsigned(members), "wrong_type", message);
    }
    assert_refused(
        &milepost,
        &unsigned(r#""speed":36,"units":{"speed":"mph"}"#),
        "wrong_type",
        "mph",
    );
    assert_refused(
        &milepost,
        &unsigned(r#""speed":36,"unit":"km/h""#),
        "wrong_type",
        "unit says km/h",
    );
    for members in [
        r#""speed":36,"speed_unit":"m/s""#,
        r#""speed":36,"speed_unit":"Mps","heading":9,"heading_unit":"deg""#,
        r#""speed":"36 km/h","speed_unit":"km/h""#,
        r#""speed":36,"temp_unit":"C","unit":7,"units":"metric","speed_unit":null"#,
        r#""speed_unit":"km/h""#,
        r#""speed":36,"unit_id":"mph","unitName":"US","unit":"km","album":"knots""#,
        r#""speed":10,"velocity":36,"velocity_unit":"km/h""#,
        r#""alt":30,"unit":"km","odo":3,"level_uom":"ft","unit_accel":"ft""#,
        r#""speed":10,"alt":30,"units":"SI","heading":3,"uom":"m""#,
        r#""speed":10,"alt":30,"unit":"US""#,
        r#""speed":10,"alt":30,"unit":"Marine""#,
        r#""speed":10,"velocidad_unidad":"m/s","alt":3,"unidad_altitud":"metros""#,
        r#""speed":10,"einheit":"Zug 3","Einheit":"US","unidad":"km""#,
        r#""speed":10,"measurementSystem":"metric","system":"imperial","item":"mph""#,
        r#""speed":10,"system_of_units":"metric","systemOfMeasurement":"SI""#,
        r#""unit":"deg","coord_unit":"degrees","pitch_unit":"rad""#,
        r#""speed":10,"imperial":false,"isMetric":true,"use_imperial":0,"ismetric":1"#,
        r#""speed":10,"metric":"cpu","imperial":"march","is_metric":null"#,
        r#""speed":10,"metric":0,"symmetric":false,"asymmetric":false"#,
        r#""isMetric":false"#,
        r#""speed":10,"temperatura_unidad":"mph","unidad_id":"mph","unite":"SAMU 7""#,
        r#""speed":10,"unidad_medica":"knots","facilidad":"mph","suite":"mph""#,
        r#""speed":"36 km/h","velocidad_unidad":"km/h""#,
        r#""speed":10,"velocidad":36,"velocidad_unidad":"km/h""#,
        r#""speed":10,"units":{"temp":"imperial"},"company":{"units":"imperial"}"#,
        // Neither 33.4 nor 3.7 is a coordinate in radians, so this is the unit of another angle.
        r#""yaw":1.2,"unit":"rad""#,
        r#""speed":3,"speed_unit":"m/s","isMetric":false"#,
        r#""speed":3,"speed_unit":"m/s","units":"imperial""#,
        r#""speed":3,"unit":"m/s","imperial":true"#,
        r#""speed":3,"metric":"N""#,
        r#""speed":3,"metric":"F","heading":5"#,
        r#""speed":3,"metric":"no""#,
        r#""speed":10,"units":{"isMetric":true},"company":{"units":{"imperial":true}}"#,
    ] {
        assert_place(&milepost, &unsigned(members), [33.4, 3.7]);
    }
}

#[test]
fn coordinates_of_another_reference_system_are_rejected() {
    let feature = |member: &str| {
        format!(
            r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[3.7,33.4]}},
            "properties":{{"ts":1795770000,{member}}}}}"#
        )
    };
    let sources = [format_called("milepost"), mapping(More::default()), format_called("geojson")];
    for (member, is_refused) in [
        (r#""coordType":"gcj02""#, true),
        (r#""coord_type":"bd09ll""#, true),
        (r#""coordinate_system":"GCJ-02""#, true),
        (r#""datum":"OSGB36""#, true),
        (r#""CRS":"NAD27""#, true),
        (r#""geodeticDatum":"Tokyo""#, true),
        (r#""coord_type_input":"gcj02""#, true),
        (r#""datum":"NAD 1927""#, true),
        (r#""crs":"EPSG:4277""#, true),
        (r#""crs":"urn:ogc:def:crs:EPSG::27700""#, true),
        (r#""crs":{"name":"GCJ02"}"#, true),
        (r#""crs":{"type":"name","properties":{"name":"urn:ogc:def:crs:EPSG::4267"}}"#, true),
        (r#""crs":{"type":"name","properties":{"name":"urn:ogc:def:crs:OGC:1.3:CRS84"}}"#, false),
        (r#""crs":{"type":"name","properties":{"name":"urn:ogc:def:crs:EPSG::4326"}}"#, false),
        (r#""crs":{"id":"gcj02"},"crs_name":"gcj02","srs":"EPSG:42770","datum":"4277""#, false),
        (r#""coordType":"wgs84","datum":"WGS 84","crs":"EPSG:4326""#, false),
        (r#""datum":"2026-11-26","geodesic":"gcj02","home":{"coordType":"gcj02"}"#, false),
        (r#""coords":"gcj02","map":"tokyo""#, false),
    ] {
        let payloads = [unsigned(member), unsigned(member), feature(member)];
        for (source, payload) in sources.iter().zip(payloads) {
            if is_refused {
                assert_refused(source, &payload, "wrong_type", "are read in WGS 84");
            } else {
                assert_place(source, &payload, [33.4, 3.7]);
            }
        }
    }
    let keep = || Keep::of_names(&["coordType".to_owned()]).unwrap();
    let kept = |format| Source::new("in/+", Driver::Topic(Template::first()), format, keep());
    let milepost = kept(Format::Milepost);
    assert_place(&milepost, &unsigned(r#""coordType":"gcj02""#), [33.4, 3.7]);
    // The object around the points may state the system of all of them.
    let batch = |member: &str| format!(r#"{{{member},"points":[{}]}}"#, unsigned(r#""x":1"#));
    let collection = |member: &str| {
        let feature = feature(r#""x":1"#);
        format!(r#"{{"type":"FeatureCollection",{member},"features":[{feature}]}}"#)
    };
    let in_batch =
        mapped_source(Fields { points: Some(pointer("/points")), ..fields(TimeUnit::BySize) });
    let geojson = format_called("geojson");
    for (member, is_refused) in [
        (r#""coordType":"gcj02""#, true),
        (r#""crs":{"type":"name","properties":{"name":"EPSG:4277"}}"#, true),
        (r#""crs":{"type":"name","properties":{"name":"urn:ogc:def:crs:OGC:1.3:CRS84"}}"#, false),
        (r#""coordType":"wgs84""#, false),
    ] {
        for (source, payload) in [(&in_batch, batch(member)), (&geojson, collection(member))] {
            if is_refused {
                assert_refused(source, &payload, "wrong_type", "are read in WGS 84");
            } else {
                assert_place(source, &payload, [33.4, 3.7]);
            }
        }
    }
    let kept = kept(Format::GeoJson(SpeedUnit::MetresPerSecond));
    assert_place(&kept, &collection(r#""coordType":"gcj02""#), [33.4, 3.7]);
}

#[test]
fn bare_radians_apply_to_a_place_that_may_be_in_radians() {
    let milepost = format_called("milepost");
    let place = |lat: &str, lng: &str| {
        format!(r#"{{"lat":{lat},"lng":{lng},"ts":1795770000,"unit":"rad"}}"#)
    };
    for (lat, lng) in [("0.58", "0.06"), ("-1.57", "3.14")] {
        assert_refused(&milepost, &place(lat, lng), "wrong_type", "unit says rad");
    }
    for (lat, lng) in [("0.58", "3.7"), ("33.4", "0.06")] {
        let expected = [lat, lng].map(|text| text.parse().unwrap());
        assert_place(&milepost, &place(lat, lng), expected);
    }
    let stated = mapped_source(Fields { has_unit_of_degrees: true, ..fields(TimeUnit::BySize) });
    assert_place(&stated, &place("0.58", "0.06"), [0.58, 0.06]);
    let in_batch =
        mapped_source(Fields { points: Some(pointer("/points")), ..fields(TimeUnit::BySize) });
    let batch = |points: &str| format!(r#"{{"unit":"rad","points":[{points}]}}"#);
    let point = |lat: &str| format!(r#"{{"lat":{lat},"lng":0.06,"ts":1795770000}}"#);
    assert_refused(&in_batch, &batch(&point("0.58")), "wrong_type", "unit says rad");
    assert_place(&in_batch, &batch(&point("33.4")), [33.4, 0.06]);
}

#[test]
fn other_unit_beside_a_mapped_number_is_rejected() {
    let mapped = mapped_source(Fields {
        speed: Some((pointer("/speed"), 1.0 / 3.6)),
        alt: Some((pointer("/z/value"), 1.0)),
        heading: Some(pointer("/course")),
        ..fields(TimeUnit::BySize)
    });
    let feature = |members: &str| {
        format!(
            r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[3.7,33.4]}},
            "properties":{{"ts":1795770000,{members}}}}}"#
        )
    };
    let geojson = source(Format::GeoJson(SpeedUnit::KilometresPerHour));
    for members in [
        r#""speed":43,"speed_unit":"mph""#,
        r#""speedUnits":"m/s","speed":"43""#,
        r#""speed":43,"unit":"knots""#,
        r#""speed":43,"units":{"speed":"mph"}"#,
        r#""speed":43,"SPEED_UNIT":"mph""#,
        r#""speed":43,"SpeedUNITS":"MPH""#,
        r#""course":1,"heading_unit":"rad""#,
    ] {
        for (source, payload) in [(&mapped, unsigned(members)), (&geojson, feature(members))] {
            assert_refused(source, &payload, "wrong_type", " is read in ");
        }
    }
    let message = "z/unit says ft, but alt is read in m: convert it, or map it with alt_unit in \
                   [formats.NAME], or give --alt-unit to import";
    let payload = unsigned(r#""z":{"value":120,"unit":"ft"}"#);
    assert_refused(&mapped, &payload, "wrong_type", message);
    let payload = feature(r#""altitude":120,"altitude_unit":"feet""#);
    assert_refused(&geojson, &payload, "wrong_type", "says ft, but alt is read in m");
    let nested = r#"{"ts":1795770000000,
        "values":{"latitude":33.4,"longitude":3.7,"speed":9,"speed_unit":"mph"}}"#;
    assert_refused(&format_called("thingsboard"), nested, "wrong_type", "values/speed_unit says");
    for members in [
        r#""speed":43,"speed_unit":"kmh","z":{"value":1,"unit":"metres"}"#,
        r#""speed":"43 mph","speed_unit":"km/h""#,
        r#""speed":43,"unit":"ms""#,
        r#""speed":43,"units":"metric","temp":9,"temp_unit":"C","odo":1,"odo_unit":"mph""#,
        r#""speed":43,"unit":"km","z":{"value":1,"units":"m"},"device":{"speed_unit":"mph"}"#,
        r#""speed":null,"speed_unit":"mph","unit":{"id":7},"units":["mph"]"#,
    ] {
        for (source, payload) in [(&mapped, unsigned(members)), (&geojson, feature(members))] {
            assert_place(source, &payload, [33.4, 3.7]);
        }
    }
    // The object around the points may state the unit for all of them.
    let batch = |members: &str| {
        format!(r#"{{"points":[{{"lat":33.4,"lng":3.7,"ts":1795770000,"speed":43}}],{members}}}"#)
    };
    let collection = |members: &str| {
        format!(
            r#"{{"type":"FeatureCollection","features":[{}],{members}}}"#,
            feature(r#""speed":43"#)
        )
    };
    let in_batch = mapped_source(Fields {
        points: Some(pointer("/points")),
        speed: Some((pointer("/speed"), 1.0 / 3.6)),
        ..fields(TimeUnit::BySize)
    });
    for members in [r#""speed_unit":"mph""#, r#""units":{"speed":"mph"}"#, r#""unit":"knots""#] {
        for (source, payload) in [(&in_batch, batch(members)), (&geojson, collection(members))] {
            assert_refused(source, &payload, "wrong_type", "but speed is read in km/h");
        }
    }
    for members in [r#""speed_unit":"kmh""#, r#""alt_unit":"ft""#, r#""unit":"Truck 7""#] {
        for (source, payload) in [(&in_batch, batch(members)), (&geojson, collection(members))] {
            assert_place(source, &payload, [33.4, 3.7]);
        }
    }
    // A unit in the string itself overrides the units around it.
    for speed in [r#""43 mph""#, "null"] {
        let unit = r#""speed_unit":"mph""#;
        for (source, payload) in [(&in_batch, batch(unit)), (&geojson, collection(unit))] {
            assert_place(source, &payload.replace(":43", &format!(" : {speed}")), [33.4, 3.7]);
        }
    }
    assert_refused(
        &in_batch,
        &batch(r#""speed_unit":"mph""#).replace(":43", r#" : "43""#),
        "wrong_type",
        "but speed is read in km/h",
    );
    for members in [
        r#""units":"imperial""#,
        r#""unit_speed":"mph""#,
        r#""uom":"knots""#,
        r#""properties":{"speed_unit":"mph"}"#,
        r#""properties":{"units":{"speed":"mph"}}"#,
    ] {
        assert_refused(&geojson, &collection(members), "wrong_type", "but speed is read in km/h");
    }
    // A unit beside the object that holds the number, and a unit of the height.
    let outer = feature(r#""speed":43"#).replacen('{', r#"{"speed_unit":"mph","#, 1);
    assert_refused(&geojson, &outer, "wrong_type", "speed_unit says mph");
    for (members, is_refused) in [
        (r#""alt_unit":"ft""#, true),
        (r#""unit_altitude":"feet""#, true),
        (r#""altitude_uom":"m""#, false),
        (r#""unit":"ft","depth":20"#, false),
    ] {
        let payload = feature(members).replace("33.4]", "33.4,1000]");
        if is_refused {
            assert_refused(&geojson, &payload, "wrong_type", "but alt is read in m");
        } else {
            assert_place(&geojson, &payload, [33.4, 3.7]);
        }
    }
    // Other members do not hide a unit.
    let many: String = (0..1_000).map(|index| format!(r#""x{index}":"x","#)).collect();
    let payload = unsigned(&format!(r#"{many}"speed":43,"speed_unit":"mph""#));
    assert_refused(&mapped, &payload, "wrong_type", " is read in ");
}

#[test]
fn control_characters_around_json_are_ignored() {
    for source in [format_called("milepost"), mapping(More::default())] {
        for (before, after) in
            [("\u{c}", ""), ("\u{1} \u{b}", "\0\u{1a}"), ("\u{feff}\u{c}", "\u{c}")]
        {
            let payload = unsigned(r#""x":1"#);
            assert_place(&source, &format!("{before}{payload}{after}"), [33.4, 3.7]);
            assert_place(&source, &format!("{before}[{payload}]{after}"), [33.4, 3.7]);
        }
    }
}

#[test]
fn unit_beside_the_features_applies_to_heights_in_coordinates() {
    let geojson = format_called("geojson");
    let collection = |members: &str, coordinates: &str| {
        format!(
            r#"{{"type":"FeatureCollection",{members},
            "features":[{{"type":"Feature",
            "geometry":{{"type":"Point","coordinates":{coordinates}}},
            "properties":{{"ts":1795770000}}}}]}}"#
        )
    };
    for member in
        [r#""alt_unit":"ft""#, r#""units":{"altitude":"feet"}"#, r#""elevationUnit":"km""#]
    {
        let payload = collection(member, "[13.4, 52.5, 1200]");
        assert_refused(&geojson, &payload, "wrong_type", "but alt is read in m");
    }
    for (member, coordinates) in [
        (r#""alt_unit":"ft""#, "[13.4,52.5]"),
        (r#""alt_unit":"ft""#, "[13.4,52.5,0]"),
        (r#""alt_unit":"m""#, "[13.4,52.5,1200]"),
        (r#""speed_unit":"km/h""#, "[13.4,52.5,1200]"),
        (r#""unit":"ft""#, "[13.4,52.5,1200]"),
    ] {
        assert_place(&geojson, &collection(member, coordinates), [52.5, 13.4]);
    }
}

#[test]
fn swapped_geojson_coordinates_are_rejected_if_members_show_it() {
    let geojson = format_called("geojson");
    let payload = |coordinates: &str, properties: &str, beside: &str| {
        format!(
            r#"{{"type":"Feature",{beside}
            "geometry":{{"type":"Point","coordinates":{coordinates}}},
            "properties":{{"ts":1795770000{properties}}}}}"#
        )
    };
    for (properties, beside) in [
        (r#","latitude":52.5,"longitude":13.4"#, ""),
        (r#","lat":52.5,"lon":13.4"#, ""),
        (r#","lat":"52.5","lng":"13.4""#, ""),
        ("", r#""lat":52.5,"lng":13.4,"#),
        (r#","gps":{"lat":52.5,"lng":13.4},"lat":52.5"#, ""),
        (r#","Latitude":52.5,"Longitude":13.4"#, ""),
        (r#","LAT":52.5,"LON":13.4"#, ""),
        (r#","gps_lat":52.5,"gps_lon":13.4"#, ""),
        (r#","gpsLat":"52.5","gpsLng":"13.4""#, ""),
        ("", r#""Lat":52.5,"Lng":13.4,"#),
    ] {
        let swapped = payload("[52.5,13.4]", properties, beside);
        assert_refused(&geojson, &swapped, "wrong_type", "GeoJSON has the longitude first");
        assert_place(&geojson, &payload("[13.4,52.5]", properties, beside), [52.5, 13.4]);
    }
    for (coordinates, properties, place) in [
        ("[52.5,13.4]", "", [13.4, 52.5]),
        ("[13.4,52.5]", r#","latitude":null,"longitude":null"#, [52.5, 13.4]),
        ("[13.4,52.5]", r#","latitude":"52°30' N","longitude":"E""#, [52.5, 13.4]),
        ("[52.5,52.5]", r#","lat":52.5,"lon":52.5"#, [52.5, 52.5]),
        ("[13.4,52.5]", r#","lat":53.1,"lon":9.9"#, [52.5, 13.4]),
        ("[13.4,52.5]", r#","home":{"lat":13.4,"lon":52.5}"#, [52.5, 13.4]),
        ("[13.4,52.5]", r#","lat":13.4"#, [52.5, 13.4]),
    ] {
        assert_place(&geojson, &payload(coordinates, properties, ""), place);
    }
}

/// The object around the points is searched once for their driver, not once for each point, which
/// took minutes.
#[test]
#[expect(clippy::disallowed_methods, reason = "the test measures how long the search takes")]
fn driver_beside_many_points_takes_linear_time() {
    const POINTS: usize = 9_000;
    let driver = Driver::Payload(pointer("/device"));
    let format = Format::GeoJson(SpeedUnit::MetresPerSecond);
    let source = Source::new("in/+", driver, format, Keep::Nothing);
    let geometry = r#""geometry":{"type":"Point","coordinates":[13.4,52.5]}"#;
    let point = format!(r#"{{"type":"Feature",{geometry},"properties":{{"ts":1795770000}}}}"#);
    let own = point.replacen('{', r#"{"device":"own","#, 1);
    let unlocated = point.replace("13.4,52.5", "null,52.5");
    let points = [own, unlocated].into_iter().chain(std::iter::repeat_n(point, POINTS));
    let points = points.collect::<Vec<_>>().join(",");
    let message = r#""type":"FeatureCollection","device":"all""#;
    let began = std::time::Instant::now();
    let decoded = decode(&source, &format!(r#"{{{message},"features":[{points}]}}"#));
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    let drivers: Vec<&str> = decoded.positions.iter().map(|fix| fix.driver_id.as_str()).collect();
    assert_eq!((drivers.len(), drivers[0]), (POINTS + 1, "own"));
    assert!(drivers[1..].iter().all(|driver| *driver == "all"));
    let [reject] = &decoded.rejects[..] else { panic!("{:?}", decoded.rejects) };
    assert_eq!((reject.reason.name(), &*reject.driver_id), ("missing_field", "all"));
}
