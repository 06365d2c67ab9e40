//! Tests members whose value may name a unit, a notation, a reference system or a level. A point is
//! rejected if this is not the unit, notation, system or level in which the format reads the point.
//! Every other value of such a member is accepted.

mod common;

use common::{decode_by, fields, format_called, mapped_source, pointer, source};
use milepost_decode::formats::{Degrees, Fields, Format, Mapping, More};
use milepost_decode::{Decoder, Driver, Keep, Limits, Source, SpeedUnit, Template, TimeUnit};

/// Returns `ok`, or the detail of the only reject.
fn outcome(source: &Source, payload: &str) -> String {
    let decoder = Decoder::new(std::slice::from_ref(source), Limits::default());
    let decoded = decode_by(&decoder, payload);
    match (&decoded.positions[..], &decoded.rejects[..]) {
        ([_], []) => "ok".to_owned(),
        ([], [reject]) => format!("{} {}", reject.reason.name(), reject.detail),
        _ => panic!("{payload}: {decoded:?}"),
    }
}

fn milepost_source() -> Source {
    source(Format::Milepost)
}

fn mapped_fields() -> Fields {
    Fields {
        speed: Some((pointer("/speed"), 1.0)),
        heading: Some(pointer("/heading")),
        alt: Some((pointer("/alt"), 1.0)),
        ..fields(TimeUnit::BySize)
    }
}

fn mapping(change: impl FnOnce(&mut Fields)) -> Source {
    let mut fields = mapped_fields();
    change(&mut fields);
    mapped_source(fields)
}

fn geojson() -> Format {
    Format::GeoJson(SpeedUnit::MetresPerSecond)
}

fn keeping(format: Format, name: &str) -> Source {
    let keep = Keep::of_names(&[name.to_owned()]).expect("valid");
    Source::new("in/+", Driver::Topic(Template::first()), format, keep)
}

/// A point with all numbers, and these members.
fn fix(members: &str) -> String {
    format!(
        r#"{{"lat":12.5,"lng":13.25,"ts":1795770000,"speed":36,"heading":90,"alt":50,{members}}}"#
    )
}

/// A Feature with all numbers, and these properties.
fn feature(members: &str) -> String {
    format!(
        r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[13.25,12.5]}},
        "properties":{{"ts":1795770000,"speed":36,"heading":90,"alt":50,{members}}}}}"#
    )
}

#[test]
fn value_that_names_another_unit_or_notation_is_rejected() {
    for (members, message) in [
        (r#""altitude_ref":"AGL""#, "altitude_ref says AGL, but alt is the height above sea level"),
        (r#""alt_ref":"above ground level""#, "keep = [\"alt_ref\"]"),
        (r#""altitudeReference":"relativeToGround""#, "alt is the height above sea level"),
        (r#""alt_datum":"agl""#, "alt is the height above sea level"),
        (r#""height_type":"A.G.L.""#, "alt is the height above sea level"),
        (r#""elevation_reference":"takeoff""#, "alt is the height above sea level"),
        (r#""speed_type":"kmh""#, "speed_type says km/h, but speed is read in m/s"),
        (r#""speedType":"MPH""#, "speedType says mph"),
        (r#""velocity_type":"knots""#, "velocity_type says knots"),
        (r#""speed_format":"km/h""#, "speed_format says km/h"),
        (r#""speed_format":"kilometres per hour""#, "says km/h"),
        (r#""speed_type":"ft/s""#, "says ft/s, which is not read"),
        (r#""true_north":false"#, "heading is read from true north"),
        (r#""isTrueNorth":"no""#, "heading is read from true north"),
        (r#""magnetic_north":true"#, "heading is read from true north"),
        (r#""compass":"magnetic""#, "compass says magnetic, but heading is read from true north"),
        (r#""compass":"Magnetic North""#, "heading is read from true north"),
        (r#""heading_type":"magnetic""#, "heading is read from true north"),
        (r#""courseType":"MAGNETIC""#, "heading is read from true north"),
    ] {
        for (source, payload) in [
            (milepost_source(), fix(members)),
            (mapping(|_| ()), fix(members)),
            (format_called("geojson"), feature(members)),
        ] {
            let outcome = outcome(&source, &payload);
            assert!(outcome.contains(message), "{members}: {outcome}");
            assert!(outcome.starts_with("wrong_type"), "{members}: {outcome}");
        }
    }
}

#[test]
fn value_that_names_another_notation_or_system_of_a_place_is_rejected() {
    for (members, message) in [
        (
            r#""lat_notation":"ddmm.mmmm""#,
            "lat_notation says ddmm.mmmm, but lat is read in degrees",
        ),
        (r#""lng_notation":"dddmm.mmmm""#, "lng_notation says dddmm.mmmm"),
        (r#""coordinate_notation":"DMS""#, "coordinate_notation says DMS"),
        (r#""coordNotation":"degrees minutes""#, "coordNotation says degrees minutes"),
        (r#""format":"ddmm.mmmm""#, "format says ddmm.mmmm"),
        (r#""format":"DDDMM.MMMM""#, "format says DDDMM.MMMM"),
        (r#""format":"DMS""#, "format says DMS"),
        (r#""notation":"degrees, minutes, seconds""#, "notation says degrees, minutes"),
        (r#""coordinate_format":"GCJ02""#, "coordinate_format says GCJ02, but lat and lng"),
        (r#""coordFormat":"gcj-02""#, "keep = [\"coordFormat\"]"),
        (r#""position_format":"BD09""#, "are read in WGS 84"),
        (r#""format":"bd09ll""#, "are read in WGS 84"),
        (r#""coord_type":"bd09""#, "are read in WGS 84"),
        (r#""coordType":"BD-09""#, "are read in WGS 84"),
        (r#""coordinate_type":"bd09mc""#, "are read in WGS 84"),
    ] {
        for source in [milepost_source(), mapping(|_| ())] {
            let outcome = outcome(&source, &fix(members));
            assert!(outcome.contains(message), "{members}: {outcome}");
            assert!(outcome.starts_with("wrong_type"), "{members}: {outcome}");
        }
    }
    let nested = mapping(|fields| {
        (fields.lat, fields.lng) = (pointer("/gps/lat"), pointer("/gps/lng"));
    });
    let payload = r#"{"ts":1795770000,"gps":{"lat":12.5,"lng":13.25,"format":"DMS"}}"#;
    assert!(outcome(&nested, payload).contains("gps/format says DMS"));
}

#[test]
fn value_that_contradicts_nothing_is_accepted() {
    for members in [
        r#""altitude_ref":"MSL""#,
        r#""altitude_ref":"WGS84""#,
        r#""altitude_ref":"ellipsoid""#,
        r#""altitude_ref":"above sea level""#,
        r#""altitude_ref":0"#,
        r#""altitude_ref":null"#,
        r#""alt_datum":"EGM96""#,
        r#""altitude_type":"baro""#,
        r#""altitude_type":"gps""#,
        r#""ground":"AGL""#,
        r#""alt_agl":12"#,
        r#""speed_type":"gps""#,
        r#""speed_type":"ground""#,
        r#""speed_type":"GPS speed""#,
        r#""speed_type":"ms""#,
        r#""speed_type":"m/s""#,
        r#""speed_type":"US""#,
        r#""speed_type":3"#,
        r#""speed_format":"%.1f""#,
        r#""speed_format":"float""#,
        r#""vehicle_type":"kmh""#,
        r#""type":"mph""#,
        r#""format":"json""#,
        r#""format":"v2""#,
        r#""format":"E6""#,
        r#""format":"e7""#,
        r#""format":"DDMMYY""#,
        r#""format":"ddMMyyyy""#,
        r#""format":"dd.mm.yyyy""#,
        r#""format":"DDMMM""#,
        r#""format":"DD""#,
        r#""format":"decimal degrees""#,
        r#""format":"DMS-1000""#,
        r#""format":2"#,
        r#""format":{"lat":"x"}"#,
        r#""display":{"format":"DMS"}"#,
        r#""date_format":"DDMM""#,
        r#""notation":"decimal""#,
        r#""lat_notation":"decimal""#,
        r#""lat_notation":"DD.dddd""#,
        r#""coordinate_notation":"WGS84""#,
        r#""coordinate_format":"WGS84""#,
        r#""coordinate_format":"EPSG:4326""#,
        r#""coord_type":"wgs84""#,
        r#""coord_type":"gps""#,
        r#""true_north":true"#,
        r#""true_north":"yes""#,
        r#""true_north":88.5"#,
        r#""true_north":0"#,
        r#""true_north":null"#,
        r#""magnetic_north":false"#,
        r#""magnetic_north":91.5"#,
        r#""compass":"N""#,
        r#""compass":"S""#,
        r#""compass":"M""#,
        r#""compass":"digital""#,
        r#""compass":"magnetometer ok""#,
        r#""compass":271"#,
        r#""compass":true"#,
        r#""compass_type":"magnetic""#,
        r#""heading_type":"true""#,
        r#""heading_type":"gyro""#,
        r#""heading_type":"M""#,
        r#""track_type":"walk""#,
        r#""station":"ddmm.mmmm""#,
        r#""rotation":"DMS""#,
        r#""location":"AGL""#,
    ] {
        for (source, payload) in [
            (milepost_source(), fix(members)),
            (mapping(|_| ()), fix(members)),
            (format_called("geojson"), feature(members)),
        ] {
            assert_eq!(outcome(&source, &payload), "ok", "{members}");
        }
    }
}

/// The value is about a number that is not sent, or about the number of another member.
#[test]
fn value_about_a_number_that_is_not_read_is_accepted() {
    let place = |members: &str| format!(r#"{{"lat":12.5,"lng":13.25,"ts":1795770000,{members}}}"#);
    for members in [
        r#""altitude_ref":"AGL""#,
        r#""speed_type":"mph""#,
        r#""true_north":false"#,
        r#""compass":"magnetic""#,
        r#""heading_type":"magnetic""#,
        r#""alt":null,"altitude_ref":"AGL""#,
        r#""alt":50,"altitude":9,"altitude_ref":"AGL""#,
        r#""speed":3,"velocity":9,"velocity_type":"mph""#,
        r#""alt":50,"camera":{"altitude_ref":"AGL"}"#,
        r#""speed":3,"wind":{"speed_type":"mph"}"#,
    ] {
        for source in [milepost_source(), mapping(|_| ())] {
            assert_eq!(outcome(&source, &place(members)), "ok", "{members}");
        }
    }
}

#[test]
fn value_that_the_operator_has_stated_is_accepted() {
    let mapped = || Format::Mapped(std::sync::Arc::new(Mapping::new(mapped_fields())));
    for name in ["altitude_ref", "*"] {
        let members = r#""altitude_ref":"AGL""#;
        for format in [Format::Milepost, mapped()] {
            assert_eq!(outcome(&keeping(format, name), &fix(members)), "ok", "{name}");
        }
        assert_eq!(outcome(&keeping(geojson(), name), &feature(members)), "ok", "{name}");
    }
    let gcj = keeping(Format::Milepost, "coordinate_format");
    assert_eq!(outcome(&gcj, &fix(r#""coordinate_format":"GCJ02""#)), "ok");
    let more = |more: More| mapping(|fields| fields.more = Some(Box::new(more)));
    for (source, members) in [
        (mapping(|fields| fields.speed = Some((pointer("/speed"), 1.0 / 3.6))), "\"kmh\""),
        (mapping(|fields| fields.speed = Some((pointer("/speed"), 0.123))), "\"ft/s\""),
    ] {
        let members = format!("\"speed_type\":{members}");
        assert_eq!(outcome(&source, &fix(&members)), "ok", "{members}");
    }
    let stated = || more(More { has_unit_of_heading: true, ..More::default() });
    for members in [r#""compass":"magnetic""#, r#""true_north":false"#] {
        assert_eq!(outcome(&stated(), &fix(members)), "ok", "{members}");
    }
    let minutes = more(More { degrees: [Degrees::Minutes; 2], ..More::default() });
    let payload = r#"{"lat":1230.5,"lng":1315.5,"ts":1795770000,"format":"ddmm.mmmm"}"#;
    assert_eq!(outcome(&minutes, payload), "ok");
    let degrees = mapping(|fields| fields.has_unit_of_degrees = true);
    assert_eq!(outcome(&degrees, &fix(r#""format":"DMS""#)), "ok");
}

#[test]
fn level_of_the_height_in_the_coordinates_is_checked() {
    let feature = |height: &str| {
        format!(
            r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[13.25,12.5{height}]}},
            "properties":{{"ts":1795770000,"altitude_ref":"AGL"}}}}"#
        )
    };
    assert!(outcome(&format_called("geojson"), &feature(",30")).contains("altitude_ref says AGL"));
    assert_eq!(outcome(&format_called("geojson"), &feature("")), "ok");
    assert_eq!(outcome(&keeping(geojson(), "altitude_ref"), &feature(",30")), "ok");
}

#[test]
fn value_beside_an_array_of_points_is_about_the_points() {
    let batch = mapping(|fields| fields.points = Some(pointer("/points")));
    let payload = |members: &str| {
        format!(
            r#"{{{members},"points":[{{"lat":1.5,"lng":2.5,"ts":1795770000,"speed":3,"alt":5}}]}}"#
        )
    };
    for (members, message) in [
        (r#""altitude_ref":"AGL""#, "altitude_ref says AGL"),
        (r#""speed_type":"mph""#, "speed_type says mph"),
        (r#""format":"ddmm.mmmm""#, "format says ddmm.mmmm"),
        (r#""coordinate_format":"gcj02""#, "coordinate_format says gcj02"),
    ] {
        let outcome = outcome(&batch, &payload(members));
        assert!(outcome.contains(message), "{members}: {outcome}");
    }
    for members in [r#""compass":"magnetic""#, r#""format":"json""#, r#""altitude_ref":"MSL""#] {
        assert_eq!(outcome(&batch, &payload(members)), "ok", "{members}");
    }
}

#[test]
fn unit_beside_an_array_is_about_the_elements_that_the_format_reads() {
    let in_array = |points: Option<&str>, parent: &str| {
        let at = |index: usize| pointer(&format!("{parent}/{index}"));
        mapped_source(Fields {
            points: points.map(pointer),
            lat: at(0),
            lng: at(1),
            alt: Some((at(2), 1.0)),
            speed: Some((at(3), 1.0)),
            ..fields(TimeUnit::BySize)
        })
    };
    let ts = r#""ts":1795770000"#;
    let single = (in_array(None, "/pos"), format!(r#"{{{ts},"pos":[1.5,2.5,5,3],MEMBERS}}"#));
    let nested = (
        in_array(None, "/gps/pos"),
        format!(r#"{{{ts},"gps":{{"pos":[1.5,2.5,"5",3],MEMBERS}}}}"#),
    );
    let batch = (
        in_array(Some("/points"), "/pos"),
        format!(r#"{{"points":[{{{ts},"pos" : [1.5,2.5,5,3]}}],MEMBERS}}"#),
    );
    let rows = mapped_source(Fields {
        points: Some(pointer("/points")),
        lat: pointer("/0"),
        lng: pointer("/1"),
        alt: Some((pointer("/2"), 1.0)),
        speed: Some((pointer("/3"), 1.0)),
        ts: Some((pointer("/4"), TimeUnit::BySize)),
        ..fields(TimeUnit::BySize)
    });
    let rows = (rows, r#"{"points":[[1.5,2.5,5,3,1795770000]],MEMBERS}"#.to_owned());
    for (source, payload) in [&single, &nested, &batch, &rows] {
        for (members, message) in [
            (r#""alt_unit":"ft""#, "alt_unit says ft, but alt is read in m"),
            (r#""speed_unit":"mph""#, "speed_unit says mph, but speed is read in m/s"),
            (r#""units":"imperial""#, "says imperial"),
            (r#""altitude_ref":"AGL""#, "altitude_ref says AGL"),
            (r#""speed_scale":0.1"#, "speed_scale is 0.1"),
            (r#""coord_format":"ddmm.mmmm""#, "coord_format says ddmm.mmmm"),
        ] {
            let outcome = outcome(source, &payload.replace("MEMBERS", members));
            assert!(outcome.contains(message), "{payload} {members}: {outcome}");
        }
        for members in [r#""alt_unit":"m""#, r#""speed_unit":"m/s""#, r#""acc_unit":"ft""#] {
            let outcome = outcome(source, &payload.replace("MEMBERS", members));
            assert_eq!(outcome, "ok", "{payload} {members}");
        }
    }
    // Without an altitude, its unit does not matter.
    let without_alt = r#"{"points":[{"ts":1795770000,"pos":[1.5,2.5]}],"alt_unit":"ft"}"#;
    assert_eq!(outcome(&batch.0, without_alt), "ok");
}
