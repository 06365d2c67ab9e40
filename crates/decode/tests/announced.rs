//! Tests two kinds of payloads that must not be misread in silence: payloads that announce how
//! their values are written, and payloads with fixes beside those that the format reads.

mod common;

use common::{decode_by, fields, format_called, mapped_source, pointer, source};
use milepost_decode::formats::{Degrees, Fields, Format, Mapping, More};
use milepost_decode::{Decoded, Decoder, Driver, Keep, Limits, Source, Template, TimeUnit};

fn decode(source: &Source, payload: &str) -> Decoded {
    decode_by(&Decoder::new(std::slice::from_ref(source), Limits::default()), payload)
}

/// Returns `ok`, or the detail of the only reject.
fn outcome(source: &Source, payload: &str) -> String {
    let decoded = decode(source, payload);
    match (&decoded.positions[..], &decoded.rejects[..]) {
        ([_], []) => "ok".to_owned(),
        ([], [reject]) => format!("{} {}", reject.reason.name(), reject.detail),
        _ => panic!("{payload}: {decoded:?}"),
    }
}

fn milepost_source() -> Source {
    source(Format::Milepost)
}

/// A mapping of `/lat`, `/lng`, `/ts`, `/speed`, `/heading` and `/alt`. `factor`: size of the units
/// of speed and altitude.
fn mapping(factor: f64, more: More) -> Source {
    mapped_source(Fields {
        speed: Some((pointer("/speed"), factor)),
        heading: Some(pointer("/heading")),
        alt: Some((pointer("/alt"), factor)),
        more: Some(Box::new(more)),
        ..fields(TimeUnit::BySize)
    })
}

/// Returns a point with these members. Adds a position if `members` does not begin with one, and a
/// time if `members` has none.
fn fix(members: &str) -> String {
    let place = if members.starts_with("\"lat\":") { "" } else { r#""lat":12.5,"lng":13.25,"# };
    let ts = if members.contains("\"ts\":") { "" } else { r#""ts":1795770000,"# };
    format!(r#"{{{place}{ts}"speed":36,"heading":90,{members}}}"#)
}

#[test]
fn scale_notation_or_north_beside_the_values_is_rejected() {
    for (members, message) in [
        (r#""speed_scale":0.1"#, "speed_scale is 0.1, but speed is read in m/s, unscaled"),
        (r#""speedScale":"1/10""#, "speedScale is 1/10"),
        (r#""speed_multiplier":10"#, "speed_multiplier is 10"),
        (r#""velocity_scale":0.01"#, "velocity_scale is 0.01"),
        (r#""heading_divisor":100"#, "heading_divisor is 100"),
        (r#""lat_scale":10000000"#, "lat_scale is 10000000"),
        (r#""coordinate_scale":1e-7"#, "coordinate_scale is 1e-7"),
        (r#""lat_format":"ddmm.mmmm""#, "lat_format says ddmm.mmmm, but lat is read in degrees"),
        (r#""coordinate_format":"DDMM.MMMM""#, "set lat_unit"),
        (r#""coord_format":"DMS""#, "coord_format says DMS"),
        (r#""positionFormat":"degrees minutes""#, "positionFormat says degrees minutes"),
        (r#""lat_format":"1e7""#, "lat_format says 1e7"),
        (r#""heading_unit":"deg magnetic""#, "send the true one"),
        (r#""heading_reference":"magnetic""#, "the magnetic one plus the declination"),
        (r#""heading_ref":"M""#, "heading is read from true north"),
        (r#""course_ref":"Magnetic North""#, "heading is read from true north"),
        (r#""north_reference":"magnetic""#, "heading is read from true north"),
        (r#""heading_magnetic":true"#, "heading is read from true north"),
        (r#""speed_unit":"feet per second""#, "says feet per second, which is not read"),
        (r#""unit":"feet per second""#, "says feet per second, which is not read"),
        (r#""speed_unit":"kilometres per hour""#, "says km/h"),
        (r#""alt":5,"alt_unit":"feet above sea level""#, "says ft"),
        (r#""alt":5,"alt_unit":"m AGL""#, "says m AGL, which is not read"),
    ] {
        for source in [milepost_source(), mapping(1.0, More::default())] {
            let outcome = outcome(&source, &fix(members));
            assert!(outcome.contains(message), "{members}: {outcome}");
            assert!(outcome.starts_with("wrong_type"), "{members}: {outcome}");
        }
    }
}

#[test]
fn usual_scale_notation_or_north_is_accepted() {
    for members in [
        r#""speed_scale":1"#,
        r#""speed_scale":1.0"#,
        r#""speed_scale":"1""#,
        r#""speed_scale":null"#,
        r#""speed_scale":"linear""#,
        r#""scale":0.5"#,
        r#""map_scale":25000"#,
        r#""volume_scale":0.1"#,
        r#""factor":3"#,
        r#""lat_format":"decimal""#,
        r#""coordinate_format":"DD""#,
        r#""coordinate_format":"DD.DDDDD""#,
        r#""coordinate_format":"decimal degrees""#,
        r#""coordinateFormat":"WGS84""#,
        r#""format":"json""#,
        r#""payload_format":"ddmm""#,
        r#""time_format":"rfc3339""#,
        r#""heading_unit":"degrees true""#,
        r#""heading_unit":"deg clockwise from north""#,
        r#""heading_reference":"true""#,
        r#""heading_ref":"T""#,
        r#""course_reference":"gps""#,
        r#""heading_magnetic":88.5"#,
        r#""heading_magnetic":1"#,
        r#""heading_magnetic":false"#,
        r#""magnetic":true"#,
        r#""magnetic_variation":2.5"#,
        r#""order_ref":"M""#,
        r#""alt":5,"alt_unit":"metres above sea level""#,
        r#""speed_unit":"metres per second""#,
        r#""time_scale":"UTC""#,
        r#""time_system":"utc""#,
        r#""time_source":"GPS""#,
        r#""time_scale":60"#,
    ] {
        for source in [milepost_source(), mapping(1.0, More::default())] {
            assert_eq!(outcome(&source, &fix(members)), "ok", "{members}");
        }
    }
    // The operator has stated the size of the scaled unit, or the notation.
    for (source, members) in [
        (mapping(0.1, More::default()), r#""speed_scale":0.1"#),
        (mapping(1.0, More { heading: 0.01, ..More::default() }), r#""heading_divisor":100"#),
        (
            mapping(1.0, More { degrees: [Degrees::Factor(1e-7); 2], ..More::default() }),
            r#""lat":125000000,"lng":132500000,"coordinate_format":"1e7","lat_scale":1e-7"#,
        ),
        (
            mapping(1.0, More { degrees: [Degrees::Minutes; 2], ..More::default() }),
            r#""lat":1230.5,"lng":1315.5,"lat_format":"ddmm.mmmm""#,
        ),
        (mapping(1.0, More::default()), r#""lat":"12°30'N","lng":"13°15'E","lat_format":"DMS""#),
    ] {
        assert_eq!(outcome(&source, &fix(members)), "ok", "{members}");
    }
}

#[test]
fn scale_beside_the_values_of_a_shipped_format_is_rejected() {
    let owntracks = format_called("owntracks");
    let location = |members: &str| {
        format!(
            r#"{{"_type":"location","lat":12.5,"lon":13.25,"tst":1795770000,
            "vel":36,"cog":9,{members}}}"#
        )
    };
    for members in [r#""vel_scale":0.1"#, r#""cog_ref":"magnetic""#] {
        let outcome = outcome(&owntracks, &location(members));
        assert!(outcome.starts_with("wrong_type"), "{members}: {outcome}");
    }
    for members in [r#""vel_scale":1"#, r#""cog_ref":"true""#, r#""batt_scale":100"#] {
        assert_eq!(outcome(&owntracks, &location(members)), "ok", "{members}");
    }
}

#[test]
fn time_scale_ahead_of_utc_is_rejected() {
    for (members, message) in [
        (r#""time_scale":"GPS""#, "bad_ts time_scale is GPS, which is 18 s ahead of UTC"),
        (r#""timeSystem":"GPST""#, "18 s ahead"),
        (r#""time_scale":"TAI""#, "37 s ahead"),
        (r#""time_system":"GPS","ts":"2026-11-27T09:00:00+00:00""#, "18 s ahead"),
    ] {
        for source in [milepost_source(), mapping(1.0, More::default())] {
            let outcome = outcome(&source, &fix(members));
            assert!(outcome.contains(message), "{members}: {outcome}");
        }
    }
    let utc = r#""time_system":"GPS","ts":"2026-11-27T09:00:00Z""#;
    assert_eq!(outcome(&milepost_source(), &fix(utc)), "ok");
}

/// The fixes that a format reads are stored. The message is rejected once for the other fixes.
#[test]
fn fixes_in_another_array_are_reported() {
    let with_points = |keep: Keep| {
        let fields = Fields { points: Some(pointer("/locations")), ..fields(TimeUnit::BySize) };
        let mapped = Format::Mapped(std::sync::Arc::new(Mapping::new(fields)));
        Source::new("in/+", Driver::Topic(Template::first()), mapped, keep)
    };
    let points = with_points(Keep::Nothing);
    let point = |number: u32| format!(r#"{{"lat":{number}.5,"lng":13.25,"ts":179577000{number}}}"#);
    let (first, second) = (point(1), point(2));
    let both = |name: &str| format!(r#"{{"locations":[{first}],"{name}":[{second},{first}]}}"#);
    for name in ["buffered", "history", "buffered_locations", "points"] {
        let decoded = decode(&points, &both(name));
        assert_eq!(decoded.positions.len(), 1, "{name}");
        let [reject] = &decoded.rejects[..] else { panic!("{name}: {decoded:?}") };
        let message =
            format!("{name} has 2 points, which are not read: send all fixes in one array");
        assert!(reject.detail.contains(&message), "{}", reject.detail);
    }
    for source in [milepost_source(), mapping(1.0, More::default())] {
        let decoded = decode(&source, &fix(&format!(r#""buffered":[{second}]"#)));
        assert_eq!((decoded.positions.len(), decoded.rejects.len()), (1, 1), "{decoded:?}");
    }
    let place = r#"{"lat":2.5,"lng":13.25}"#;
    for payload in [
        both("route"),
        both("stops"),
        format!(r#"{{"locations":[{first}],"history":[{first}]}}"#),
        format!(r#"{{"locations":[{first}],"history":[]}}"#),
        format!(r#"{{"locations":[{first}],"history":null}}"#),
        format!(r#"{{"locations":[{first}],"points":[{place}]}}"#),
        format!(r#"{{"locations":[{first}],"samples":[1,2,3]}}"#),
        format!(r#"{{"locations":[{first}],"records":[{{"ts":1795770000,"temp":5}}]}}"#),
    ] {
        assert_eq!(outcome(&points, &payload), "ok", "{payload}");
    }
    let keep = Keep::of_names(&["history".to_owned()]).expect("valid");
    assert_eq!(outcome(&with_points(keep), &both("history")), "ok");
}

#[test]
fn degrees_with_zeros_beside_a_hemisphere_may_be_minutes() {
    let more =
        More { hemispheres: [Some(pointer("/ns")), Some(pointer("/ew"))], ..More::default() };
    let source = mapping(1.0, more);
    let place = |lat: &str, lng: &str| {
        format!(r#"{{"lat":{lat:?},"ns":"S","lng":{lng:?},"ew":"E","ts":1795770000}}"#)
    };
    for (lat, lng) in [("0030.5", "13.25"), ("12.5", "00105.25"), ("0030", "00105")] {
        let outcome = outcome(&source, &place(lat, lng));
        assert!(outcome.contains("may be degrees and minutes"), "{lat} {lng}: {outcome}");
    }
    for (lat, lng) in [("12.5", "013.25"), ("07.5", "007.25"), ("0075.5", "0075.5"), ("0.5", "0")] {
        assert_eq!(outcome(&source, &place(lat, lng)), "ok", "{lat} {lng}");
    }
}

/// A mapping with the fields of [`mapping`] and `/acc`. `change` may set other pointers or factors.
fn mapping_of(change: impl FnOnce(&mut Fields)) -> Source {
    let mut fields = Fields {
        speed: Some((pointer("/speed"), 1.0)),
        heading: Some(pointer("/heading")),
        alt: Some((pointer("/alt"), 1.0)),
        acc: Some(pointer("/acc")),
        ..fields(TimeUnit::BySize)
    };
    change(&mut fields);
    mapped_source(fields)
}

#[test]
fn scale_that_the_configured_unit_has_is_accepted() {
    let alt = |factor: f64| mapping_of(|fields| fields.alt = Some((pointer("/alt"), factor)));
    let speed = |factor: f64| mapping_of(|fields| fields.speed = Some((pointer("/speed"), factor)));
    let acc = |acc: f64| {
        mapping_of(|fields| fields.more = Some(Box::new(More { acc, ..More::default() })))
    };
    for (source, members) in [
        (alt(0.1), r#""alt":360,"alt_scale":0.1"#),
        (alt(0.1), r#""alt":360,"alt_divisor":10"#),
        (speed(0.01), r#""speed_divisor":100"#),
        (speed(0.01), r#""speed_scale":0.01"#),
        (speed(0.01), r#""speed_scale":"0.01 m/s""#),
        (acc(0.001), r#""acc":5000,"acc_scale":0.001"#),
    ] {
        assert_eq!(outcome(&source, &fix(members)), "ok", "{members}");
    }
    for (source, members) in [
        (alt(1.0), r#""alt":360,"alt_scale":0.1"#),
        (alt(0.304_8), r#""alt":360,"alt_scale":0.1"#),
        (speed(1.0), r#""speed_scale":0.1"#),
        (speed(1.0), r#""speed_scale":"0.1 m/s""#),
        (speed(1.0), r#""speed_scale":"1 km/h""#),
        (speed(1.0), r#""speedScalingFactor":0.1"#),
        (speed(1.0), r#""speed_factor":0.1"#),
        (speed(0.1 / 3.6 * 10.0), r#""speed_scale":0.1"#),
    ] {
        let outcome = outcome(&source, &fix(members));
        assert!(outcome.contains("unscaled: convert"), "{members}: {outcome}");
        assert!(outcome.contains("is already scaled"), "{members}: {outcome}");
    }
}

#[test]
fn scale_in_keep_is_accepted() {
    let keep = |format: Format, name: &str| {
        let keep = Keep::of_names(&[name.to_owned()]).expect("valid");
        Source::new("in/+", Driver::Topic(Template::first()), format, keep)
    };
    let fields = || Fields { speed: Some((pointer("/speed"), 1.0)), ..fields(TimeUnit::BySize) };
    let mapped = || Format::Mapped(std::sync::Arc::new(Mapping::new(fields())));
    let geojson = || Format::GeoJson(milepost_decode::SpeedUnit::MetresPerSecond);
    for name in ["speed_scale", "*"] {
        for format in [Format::Milepost, mapped()] {
            let members = fix(r#""speed_scale":0.1"#);
            assert_eq!(outcome(&keep(format, name), &members), "ok", "{name}");
        }
    }
    let feature = r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[13.25,12.5]},
        "properties":{"ts":1795770000,"speed":36,"speed_scale":0.1}}"#;
    let refused = outcome(&source(geojson()), feature);
    assert!(refused.contains("keep = [\"speed_scale\"]"), "{refused}");
    assert_eq!(outcome(&keep(geojson(), "speed_scale"), feature), "ok");
}

#[test]
fn announcement_about_another_member_is_accepted() {
    let cog = || mapping_of(|fields| fields.heading = Some(pointer("/cog")));
    let gps = || mapping_of(|fields| fields.speed = Some((pointer("/gps/speed"), 1.0)));
    let batch = mapping_of(|fields| fields.points = Some(pointer("/points")));
    for (source, members) in [
        (cog(), r#""cog":90,"heading":88,"heading_ref":"M""#),
        (cog(), r#""cog":90,"hdg":88,"hdg_ref":"M""#),
        (cog(), r#""cog":90,"heading":88,"heading_magnetic":true"#),
        (milepost_source(), r#""velocity":30,"velocity_scale":0.1"#),
        (milepost_source(), r#""hdg":88,"hdg_ref":"M""#),
        (gps(), r#""speed":120,"speed_scale":0.1,"gps":{"speed":12}"#),
        (milepost_source(), r#""x_scale":0.01,"y_scale":0.01"#),
        (milepost_source(), r#""long_scale":0.01"#),
        (milepost_source(), r#""gps_format":"NMEA""#),
        (milepost_source(), r#""gps_encoding":"nmea""#),
        (milepost_source(), r#""lat_format":"NMEA""#),
    ] {
        assert_eq!(outcome(&source, &fix(members)), "ok", "{members}");
    }
    let payload = |members: &str| {
        format!(r#"{{{members},"points":[{{"lat":1,"lng":2,"ts":1795770000,"speed":3}}]}}"#)
    };
    assert_eq!(outcome(&batch, &payload(r#""speed":120,"speed_scale":0.1"#)), "ok");
    assert!(outcome(&batch, &payload(r#""speed_scale":0.1"#)).contains("speed_scale is 0.1"));
    let xy = mapping_of(|fields| (fields.lat, fields.lng) = (pointer("/y"), pointer("/x")));
    let outcome = outcome(&xy, r#"{"y":12.5,"x":13.25,"ts":1795770000,"y_scale":10000000}"#);
    assert!(outcome.contains("y_scale is 10000000"), "{outcome}");
}

#[test]
fn north_is_checked_under_each_name_of_a_heading() {
    let own_name = |name: &str| {
        let at = pointer(&format!("/{name}"));
        mapping_of(|fields| fields.heading = Some(at))
    };
    for (name, reference) in [
        ("direction", "direction_ref"),
        ("track", "track_ref"),
        ("track", "trackRef"),
        ("cog", "cogRef"),
        ("hdg", "hdgRef"),
        ("course", "course_ref"),
    ] {
        let members = format!(r#""{name}":88,"{reference}":"magnetic""#);
        let outcome = outcome(&own_name(name), &fix(&members));
        assert!(outcome.contains("is read from true north"), "{members}: {outcome}");
        assert!(outcome.contains("--unit heading=deg) if it is true"), "{members}: {outcome}");
    }
}

#[test]
fn magnetic_north_is_accepted_if_the_unit_of_heading_is_stated() {
    let source = mapping(1.0, More { has_unit_of_heading: true, ..More::default() });
    for members in [
        r#""heading_ref":"M""#,
        r#""heading_reference":"magnetic""#,
        r#""heading_magnetic":true"#,
        r#""heading_unit":"deg magnetic""#,
    ] {
        assert_eq!(outcome(&source, &fix(members)), "ok", "{members}");
    }
}

#[test]
fn time_standard_ahead_of_utc_is_rejected() {
    for standard in ["TAI", "GPS"] {
        let members = format!(r#""time_standard":"{standard}""#);
        let outcome = outcome(&milepost_source(), &fix(&members));
        assert!(outcome.contains("ahead of UTC"), "{members}: {outcome}");
    }
}

#[test]
fn degrees_with_zeros_are_accepted_if_their_unit_is_stated() {
    let hemispheres = [Some(pointer("/ns")), Some(pointer("/ew"))];
    let beside = More { hemispheres, ..More::default() };
    for (more, place) in [
        (Some(Box::new(beside)), r#""lat":"0012.50","ns":"S","lng":"0001.25","ew":"E""#),
        (None, r#""lat":"0012.50S","lng":"0001.25E""#),
    ] {
        let payload = format!(r#"{{{place},"ts":1795770000}}"#);
        let source = |has_unit_of_degrees| {
            let more = more.clone();
            mapped_source(Fields { has_unit_of_degrees, more, ..fields(TimeUnit::BySize) })
        };
        let refused = outcome(&source(false), &payload);
        assert!(refused.contains("lat_unit = \"deg\""), "{payload}: {refused}");
        let [position] = &decode(&source(true), &payload).positions[..] else {
            panic!("{payload}")
        };
        let place = (position.lat.e7(), position.lng.e7());
        assert_eq!(place, (-125_000_000, 12_500_000), "{payload}");
    }
}

/// Adds the time of a fix before members with times of their own.
fn timed(members: &str) -> String {
    format!(r#""ts":1795770000,{members}"#)
}

#[test]
fn fixes_beside_a_point_that_the_format_reads_are_reported() {
    let batch = mapping_of(|fields| fields.points = Some(pointer("/locations")));
    let nested = mapping_of(|fields| {
        (fields.lat, fields.lng) = (pointer("/gps/lat"), pointer("/gps/lng"));
    });
    let other = r#"{"lat":2.5,"lng":13.25,"ts":1795770002}"#;
    let nested_other = r#"{"ts":1795770002,"gps":{"lat":2.5,"lng":13.25}}"#;
    let history = format!(r#""history":[{other}]"#);
    for (source, payload) in [
        (&batch, fix(&timed(&history))),
        (&batch, format!(r#"{{"locations":[{}]}}"#, fix(&timed(&history)))),
        (&milepost_source(), fix(&timed(&format!(r#""points":[{{"latitude":1}},{other}]"#)))),
        (
            &nested,
            format!(r#"{{"ts":1795770000,"gps":{{"lat":1,"lng":2}},"history":[{nested_other}]}}"#),
        ),
        (
            &nested,
            format!(
                r#"{{"ts":1795770000,"gps":{{"lat":1,"lng":2,"history":[{other}]}},
                "alt_unit":"m"}}"#
            ),
        ),
    ] {
        let decoded = decode(source, &payload);
        assert_eq!((decoded.positions.len(), decoded.rejects.len()), (1, 1), "{decoded:?}");
        assert!(decoded.rejects[0].detail.contains("which are not read"), "{decoded:?}");
    }
}

#[test]
fn other_arrays_of_points_are_not_reported() {
    let untimed = || mapping_of(|fields| fields.ts = None);
    let other = r#"{"lat":2.5,"lng":13.25,"ts":1795770002}"#;
    let same = r#"{"ts":1795770000.0,"lng":13.250,"lat":12.50}"#;
    for (source, payload) in [
        (untimed(), r#"{"lat":1.5,"lng":2,"points":[{"lat":1,"lng":2}]}"#.to_owned()),
        (milepost_source(), fix(&timed(r#""points":[{"lat":1,"lng":2},{"lat":2,"lng":2}]"#))),
        (milepost_source(), fix(&timed(&format!(r#""history":[{same}]"#)))),
        (mapping(1.0, More::default()), fix(&timed(&format!(r#""history":[{same}]"#)))),
        // In an object that is not around the values.
        (milepost_source(), fix(&timed(&format!(r#""trip":{{"points":[{other}]}}"#)))),
        (
            milepost_source(),
            fix(&timed(&format!(r#""trip":{{"points":[{other}]}},"alt_unit":"m""#))),
        ),
    ] {
        assert_eq!(outcome(&source, &payload), "ok", "{payload}");
    }
    let batch = mapping_of(|fields| fields.points = Some(pointer("/locations")));
    let with = |path: &str| format!(r#"{{"locations":[{}],{path}}}"#, fix(r#""a":1"#));
    assert_eq!(outcome(&batch, &with(&format!(r#""history":[{same}]"#))), "ok");
    assert_eq!(
        outcome(&batch, &with(&format!(r#""trip":{{"points":[{other}]}},"past":[]"#))),
        "ok"
    );
}

#[test]
fn fixes_in_another_array_are_reported_with_a_remedy_unless_keep_names_it() {
    let other = r#"{"lat":2.5,"lng":13.25,"ts":1795770002}"#;
    let payload = fix(&timed(&format!(r#""history":[{other}]"#)));
    for (keep, is_reported) in [("*", true), ("history", false)] {
        let names = Keep::of_names(&[keep.to_owned()]).expect("valid");
        let source = Source::new("in/+", Driver::Topic(Template::first()), Format::Milepost, names);
        let decoded = decode(&source, &payload);
        assert_eq!(decoded.rejects.len(), usize::from(is_reported), "{keep}: {decoded:?}");
        if let [reject] = &decoded.rejects[..] {
            let detail = &reject.detail;
            assert!(detail.contains("instead of \"*\", with [\"history\"]"), "{detail}");
        }
    }
}

#[test]
fn stated_degrees_of_heading_do_not_change_the_description_of_a_mapping() {
    let description = |more: Option<More>| {
        let more = more.map(Box::new);
        Mapping::new(Fields { more, ..fields(TimeUnit::BySize) }).stable_description()
    };
    let stated = More { has_unit_of_heading: true, ..More::default() };
    assert_eq!(description(Some(stated.clone())), description(None));
    let small = More { heading: 0.1, ..stated };
    assert_ne!(description(Some(small.clone())), description(None));
    let unstated = More { has_unit_of_heading: false, ..small.clone() };
    assert_eq!(description(Some(small)), description(Some(unstated)));
}
