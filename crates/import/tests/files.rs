//! Tests `milepost import --dry-run` with files as devices and people write them. Each file is read
//! correctly, or refused with an error that names the line or value, the cause and a remedy.
//! `tests/pure/data_kinds.rs` does the same with payloads.
#![expect(clippy::unwrap_used, reason = "a helper may panic, which fails its test")]

use std::fmt::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use clap::Parser;
use milepost_command::Shown as _;
use milepost_config::Config;
use milepost_import as import;
use milepost_import::ImportArgs;
use serde_json::Value;

type Encode = fn(&str) -> Vec<u8>;
/// Formats 10:12:47 UTC of a day.
type FormatTime = fn(&str) -> String;

#[derive(Parser)]
struct CommandLine {
    #[command(flatten)]
    args: ImportArgs,
}

/// Returns a time of yesterday, which is within the retention. `clock`: the time of day.
fn yesterday(clock: &str) -> String {
    let now = jiff::Timestamp::from_millisecond(milepost_observe::now_ms()).unwrap();
    let today = jiff::tz::TimeZone::UTC.to_datetime(now).date();
    format!("{}T{clock}", today.yesterday().unwrap())
}

/// Returns the output of `milepost import --dry-run --json`, or its error.
fn import(toml: &str, arguments: &[&str], name: &str, bytes: &[u8]) -> Result<Value, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    let path: &Path = &path;
    let line = ["import", "--dry-run"].into_iter().chain(arguments.iter().copied());
    let line = CommandLine::try_parse_from(line.chain([path.to_str().unwrap()]))
        .map_err(|error| error.to_string())?;
    let config = Config::parse(toml).map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let opened = import::open(&config, line.args).map_err(|error| format!("{error:#}"))?;
        let imported =
            import::import(&config, opened).await.map_err(|error| format!("{error:#}"))?;
        Ok(serde_json::from_str::<Value>(&imported.shown(true)).unwrap())
    })
}

/// Returns the output of `milepost import --dry-run` for people.
fn shown(arguments: &[&str], paths: &[&Path]) -> String {
    let paths = paths.iter().map(|path| path.to_str().unwrap());
    let line = ["import", "--dry-run", "--driver", "d7"].into_iter();
    let line =
        CommandLine::try_parse_from(line.chain(arguments.iter().copied()).chain(paths)).unwrap();
    let config = Config::parse("").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let opened = import::open(&config, line.args).unwrap();
        import::import(&config, opened).await.unwrap().shown(false)
    })
}

/// Returns `lat lng speed heading alt acc` of the first fix, with `-` for unknown.
fn fix(result: &Value) -> String {
    let example = &result["understood"][0]["example"];
    let mut output = String::new();
    for field in ["lat", "lng", "speed", "heading", "alt", "acc"] {
        write!(output, "{} ", example[field]).unwrap();
    }
    output.trim_end().replace("null", "-").replace(".0 ", " ").trim_end_matches(".0").to_owned()
}

/// Checks that a file has one fix, of yesterday 10:12:47 UTC, with the values `expected`.
#[track_caller]
fn check(arguments: &[&str], name: &str, bytes: impl AsRef<[u8]>, expected: &str) {
    let result = import("", &[&["--driver", "d7"], arguments].concat(), name, bytes.as_ref());
    let content = String::from_utf8_lossy(bytes.as_ref()).into_owned();
    let result = result.unwrap_or_else(|error| panic!("{name} {content}: {error}"));
    assert_eq!(fix(&result), expected, "{arguments:?}\n{content}\n{result}");
    assert_eq!(result["positions"], 1, "{content}\n{result}");
    let utc = format!("{}.000Z", yesterday("10:12:47"));
    assert_eq!(result["understood"][0]["example"]["ts"], utc, "{arguments:?}\n{content}");
}

/// Checks that a file is refused, rejected or not read to its end, and that the reason contains
/// `message`.
#[track_caller]
fn check_refused(arguments: &[&str], name: &str, bytes: impl AsRef<[u8]>, message: &str) {
    let content = String::from_utf8_lossy(bytes.as_ref()).into_owned();
    let why = match import("", &[&["--driver", "d7"], arguments].concat(), name, bytes.as_ref()) {
        Err(why) => why,
        Ok(result) => {
            assert_eq!(result["positions"], 0, "{content}\n{result}");
            format!("{} {} {}", result["failures"], result["details"], result["understood"])
        }
    };
    assert!(why.contains(message), "{name} {content}: {why}");
}

/// Returns a GeoJSON Feature with a Point. `coordinates`: longitude and latitude; `properties`: the
/// members as JSON.
fn feature_at(coordinates: &str, properties: &str) -> String {
    let geometry = format!(r#""geometry":{{"type":"Point","coordinates":[{coordinates}]}}"#);
    format!(r#"{{"type":"Feature",{geometry},"properties":{{{properties}}}}}"#)
}

/// Some programs write the unit after each value. Such a value must neither become NULL nor be read
/// in another unit.
#[test]
fn unit_after_a_value_is_read() {
    let ts = yesterday("10:12:47Z");
    for (arguments, names, row, expected) in [
        (&[][..], "speed,alt", "36 km/h,1000ft", "1 2 10 - 304.8 -"),
        (&[], "speed,alt", "36kmh,1000 feet", "1 2 10 - 304.8 -"),
        (&[], "speed,alt", "\"36,0 km/h\",12 m", "1 2 10 - 12 -"),
        (&[], "speed,heading,acc", "10 m/s,270°,10 ft", "1 2 10 270 - 3"),
        // The unit after the number takes precedence over the option.
        (
            &["--speed-unit", "m/s", "--alt-unit", "m"],
            "speed,alt",
            "36 km/h,1000ft",
            "1 2 10 - 304.8 -",
        ),
        (&["--unknown", "speed=102.3"], "speed", "102.3 knots", "1 2 - - - -"),
    ] {
        check(arguments, "a.csv", format!("lat,lon,ts,{names}\n1,2,{ts},{row}\n"), expected);
    }
    check_refused(&[], "a.csv", format!("lat,lon,ts,speed\n1,2,{ts},36 ft\n"), "--speed-unit");
    // If the unit of such a column were not read, its altitudes would be read in metres.
    for name in ["altitud (pies)", "altitude_pieds", "Höhe (Fuß)", "altitude [piedi]", "alt, voet"]
    {
        let file = format!("lat;lon;ts;{name}\n1;2;{ts};1000\n");
        check(&["--field", &format!("alt={name}")], "a.csv", file, "1 2 - - 304.8 -");
    }
    // A unit in the name of a column counts, unless an option replaces it.
    for (options, name, message) in [
        (&["--field", "alt=Alt (yd)"][..], "Alt (yd)", "give --alt-unit"),
        (&["--field", "alt=Alt (x100 ft)"], "Alt (x100 ft)", "a unit that is not read"),
        (&["--alt-unit", "m"], "Altitude (ft)", "states ft, and --alt-unit another unit"),
        (&["--speed-unit", "km/h"], "Speed (mph)", "states mph, and --speed-unit another"),
        (&["--field", "heading=hdg (gon)"], "hdg (gon)", "give --unit heading=deg if"),
    ] {
        check_refused(options, "a.csv", format!("lat,lon,ts,{name}\n1,2,{ts},10\n"), message);
    }
    let places = format!("lat_ddmm,lon_ddmm,ts\n1.5,2.25,{ts}\n");
    let fields = ["--field", "lat=lat_ddmm", "--field", "lng=lon_ddmm"];
    check_refused(&fields, "a.csv", &places, "give --unit lat=deg if its numbers are degrees");
    let degrees = [&fields[..], &["--unit", "lat=deg"]].concat();
    check(&degrees, "a.csv", &places, "1.5 2.25 - - - -");
    let marked = format!("lat_dms;Longitude (DMS);ts\n52°31'12\"N;70°15'0\"W;{ts}\n");
    let fields = ["--field", "lat=lat_dms", "--field", "lng=Longitude (DMS)"];
    check(&fields, "a.csv", marked, "52.52 -70.25 - - - -");
    let gpx = format!(
        "<gpx><trk><trkseg><trkpt lat=\"1\" lon=\"2\"><time>{ts}</time><ele>1000 ft</ele>\
         <speed>36 km/h</speed></trkpt></trkseg></trk></gpx>"
    );
    check(&[], "a.gpx", gpx, "1 2 10 - 304.8 -");
}

/// A feature may repeat its place in its properties.
#[test]
fn swapped_geojson_is_refused_if_its_properties_show_it() {
    let ts = yesterday("10:12:47Z");
    let file = |place: &str, properties: &str| {
        let feature = feature_at(place, &format!(r#""ts":"{ts}",{properties}"#));
        format!(r#"{{"type":"FeatureCollection","features":[{feature}]}}"#)
    };
    let unit = ["--speed-unit", "m/s"];
    let own = r#""latitude":-33.4489,"longitude":-70.6693"#;
    check_refused(&unit, "a.geojson", file("-33.4489,-70.6693", own), "GeoJSON has the longitude");
    check(&unit, "a.geojson", file("-70.6693,-33.4489", own), "-33.4489 -70.6693 - - - -");
    let swap = ["--field", "lat=/geometry/coordinates/0", "--field", "lng=/geometry/coordinates/1"];
    let swapped = file("-33.4489,-70.6693", own);
    check(&[&unit[..], &swap].concat(), "a.geojson", swapped, "-33.4489 -70.6693 - - - -");
    for others in [r#""lat":1,"lon":2"#, r#""lat":"x","lon":-33.4489"#, r#""x":-33.4489,"y":2"#] {
        check(&unit, "a.geojson", file("-70.6693,-33.4489", others), "-33.4489 -70.6693 - - - -");
    }
    // The advice for other kinds of files does not mention GeoJSON.
    let record = format!(
        r#"{{"_type":"location","lat":-70.6693,"lon":-33.4489,"tst":{},{own}}}"#,
        milepost_observe::now_ms() / 1_000 - 60
    );
    let record = format!("{ts}\t*                 \t{record}\n");
    check_refused(&[], "a.rec", record, "have these in the other order: swap them\"");
}

/// Text that was copied from a document may have a soft hyphen, or another dash, as its minus.
#[test]
fn dash_that_is_no_minus_is_refused() {
    let ts = yesterday("10:12:47Z");
    for dash in ['\u{ad}', '\u{2011}', '\u{2010}', '⁃', '－', '−'] {
        let file = format!("ts,lat,lon\n{ts},{dash}33.5,{dash}70.5\n");
        check_refused(&[], "a.csv", file, "write a plain minus");
    }
    check_refused(&[], "a.csv", format!("ts,lat,lon\n{ts},33.5\u{ad},7\n"), "");
    check(&[], "a.csv", format!("ts,l\u{ad}at,lon\n{ts},1,\u{200e}2\n"), "1 2 - - - -");
    // A soft hyphen that is not before or after a number is left out, in names and in values.
    let file =
        format!("ts,lat,lon,speed,driver_\u{ad}id\n{ts},1,2,3\u{ad}6 k\u{ad}m/h,d\u{ad}8x\u{ad}\n");
    let result = import("", &["--speed-unit", "m/s"], "a.csv", file.as_bytes()).unwrap();
    assert_eq!(fix(&result), "1 2 10 - - -");
    assert_eq!(result["understood"][0]["example"]["driver_id"], "d8x", "{result}");
}

/// A file with unusual first lines is read, or the error says how to convert it.
#[test]
fn unusual_first_lines_are_read_or_explained() {
    let ts = yesterday("10:12:47Z");
    let ais = format!("# Timestamp,Type of mobile,MMSI,Latitude,Longitude\n{ts},Class A,7,1,2\n");
    check(&[], "a.csv", &ais, "1 2 - - - -");
    check(
        &[],
        "a.csv",
        format!("# by a logger, of lat\n{ais}").replace(", of", " of"),
        "1 2 - - - -",
    );
    let cr = format!("lat,lon,ts\r1,2,{ts}\r");
    check_refused(&[], "a.csv", cr, "its lines end in CR alone; convert them: tr");
    let feature = feature_at("2,1", &format!(r#""ts":"{ts}""#));
    for lines in [format!("{feature},\n"), format!("[\n{feature}\n]\n"), format!("[{feature}]\n")] {
        check(&["--speed-unit", "m/s"], "a.geojsonl", lines, "1 2 - - - -");
    }
    let garmin = "timestamp,position_lat[semicircles],position_long[semicircles]";
    let file = format!("{garmin}\n{ts},626349397,159868227\n");
    check(&[], "a.csv", file, "52.5 13.4 - - - -");
}

/// A line in the middle of a quoted value is not a row. Its beginning is not a time.
#[test]
fn line_of_a_quoted_value_is_not_sampled_as_a_row() {
    let ts = yesterday("10:12:47");
    let row = format!("{ts},1,2,\"a call\n10:00-11:30\n\"\n");
    check(&[], "a.csv", format!("ts,lat,lon,note\n{row}"), "1 2 - - - -");
    // A quote without an end makes no row of the lines after it.
    let message = "has no offset, and others have one, such as 10:00-11:30";
    let file = format!("ts,lat,lon,note\n{ts},1,2,x\n{ts},1,2,\"a call\n10:00-11:30,1,2,x\n");
    check_refused(&[], "a.csv", file, message);
}

/// A row that cannot be read is rejected for the same reason in every encoding.
#[test]
fn unreadable_row_in_latin_1_is_rejected_with_its_cause() {
    let ts = yesterday("10:12:47Z");
    for (row, cause) in [
        ("1,2,TIME,Köln,x", "more values than columns"),
        ("Ä,\"1,2,TIME", "a quote in this row is not closed"),
        ("1,2,TIME,\"Köln", "a quote in this row is not closed"),
    ] {
        let file = format!("lat,lon,ts,city\n{}\n", row.replace("TIME", &ts));
        // Each of these characters is one byte in Latin-1, with the number of the character.
        let latin_1: Vec<u8> = file.chars().map(|c| u8::try_from(c).unwrap()).collect();
        for bytes in [file.as_bytes(), &latin_1] {
            let result = import("", &["--driver", "d7"], "a.csv", bytes).unwrap();
            assert_eq!(result["rejected"], serde_json::json!({ "invalid_json": 1 }), "{result}");
            let detail = result["details"]["invalid_json"].as_str().unwrap();
            assert!(detail.contains(cause), "{detail}");
        }
    }
}

/// `mqtt.max_packet_bytes` limits messages, not the rows of a file.
#[test]
fn row_may_be_larger_than_a_packet() {
    let file = |bytes: usize| {
        let ts = yesterday("10:12:47Z");
        format!("lat,lon,ts,note\n1,2,{ts},{}\n", "x".repeat(bytes))
    };
    let read = |packet: usize, bytes: usize| {
        let toml = format!("mqtt.max_packet_bytes = {packet}");
        import(&toml, &["--driver", "d7"], "a.csv", file(bytes).as_bytes()).unwrap()
    };
    let result = read(2_048, 4_096);
    assert_eq!((&result["positions"], &result["rejected"]), (&1.into(), &serde_json::json!({})));
    let result = read(8 * 1_024 * 1_024, 2 * 1_024 * 1_024);
    let detail = result["details"]["too_large"].as_str().unwrap();
    assert!(detail.contains("the limit is 1048576"), "{detail}");
}

/// A line of GeoJSON may be an array. A point without a time does not affect the others.
#[test]
fn point_without_a_time_is_rejected_alone() {
    let timed = feature_at("2,1", &format!(r#""ts":"{}""#, yesterday("10:12:47Z")));
    let untimed = feature_at("2,1", "");
    let arguments = ["--driver", "d7", "--speed-unit", "m/s"];
    for (line, positions, rejects) in [
        (format!("[{timed},{untimed},{untimed}]\n"), 1, 2),
        (format!("[{untimed},{timed},{timed}]\n"), 2, 1),
        (format!("{untimed}\n"), 0, 1),
    ] {
        let result = import("", &arguments, "a.geojsonl", line.as_bytes()).unwrap();
        assert_eq!(result["positions"], positions, "{line}\n{result}");
        assert_eq!(result["rejected"]["bad_ts"], rejects, "{line}\n{result}");
        assert_eq!(result["understood"][0]["rejected"], rejects, "{line}\n{result}");
    }
}

/// A comment above the names of the columns may state the zone of the times.
#[test]
fn zone_in_a_comment_is_not_ignored() {
    let ts = yesterday("10:12:47");
    let file = |comment: &str, ts: &str| format!("{comment}\nlat,lon,time\n1,2,{ts}\n");
    for comment in ["# times are in EST", "# by a logger\n#\n## timezone: Europe/Berlin", "#UTC+2"]
    {
        let message = "its times are in a zone other than UTC, as the comment";
        check_refused(&[], "a.csv", file(comment, &ts), message);
        check(&["--zone", "Z"], "a.csv", file(comment, &ts), "1 2 - - - -");
        check(&[], "a.csv", file(comment, &format!("{ts}Z")), "1 2 - - - -");
    }
    for comment in ["# all times UTC", "# exported 2026-11-26 10:00 CET", "# tz=Z"] {
        check(&[], "a.csv", file(comment, &ts), "1 2 - - - -");
    }
}

/// The first value that is stored as NULL is reported with its line.
#[test]
fn first_invalid_value_is_reported_with_its_line() {
    let ts = yesterday("10:12:47Z");
    let file = format!("lat,lon,ts,alt\n1,2,{ts},5\n1,2,{ts},5 fathoms\n1,2,{ts},6 fathoms\n");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.csv");
    std::fs::write(&path, file).unwrap();
    let output = shown(&[], &[&path]);
    assert!(output.contains("   2   could not be used, and is NULL: "), "{output}");
    assert!(output.contains("a.csv:3\n"), "{output}");
}

/// A file without a fix does not change the exit code, so the last line names the file.
#[test]
fn last_line_names_the_files_without_a_fix() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let full = write("a.csv", &format!("lat,lon,ts\n1,2,{}\n", yesterday("10:12:47Z")));
    let empty = [
        (write("b.csv", "lat,lon,ts\n"), "it has names of columns, and no row"),
        (write("b.gpx", "<gpx></gpx>"), "it has no trkpt"),
        (write("b.tcx", "<TrainingCenterDatabase><Courses/></TrainingCenterDatabase>"), "Activity"),
        (write("b.geojson", r#"{"type":"FeatureCollection","features":[]}"#), "it has no features"),
        (write("t.json", r#"{"semanticSegments":[]}"#), "it has no places with times"),
        (
            write("c.geojson", r#"[{"type":"Feature","geometry":null,"properties":{}}]"#),
            "none of the 1 objects in the file has a fix",
        ),
    ];
    for (path, message) in &empty {
        let output = shown(&["--speed-unit", "m/s"], &[&full, path]);
        assert!(output.contains(message), "{output}");
        let last = output.lines().last().unwrap();
        assert_eq!(last, format!("no fix was found in {}", path.display()), "{output}");
    }
    let routes = write("r.gpx", "<gpx><rte><rtept lat=\"1\" lon=\"2\"/></rte></gpx>");
    let output = shown(&[], &[&routes]);
    assert!(output.contains("it has no track") && !output.contains("no fix was found"), "{output}");
    let output = shown(&[], &[&full]);
    assert_eq!(output.lines().last(), Some("nothing is imported: a dry run"), "{output}");
    let all: Vec<&Path> = std::iter::repeat_n(&*empty[0].0, 22).collect();
    let output = shown(&[], &all);
    assert!(output.trim_end().ends_with("b.csv and 2 more files"), "{output}");
}

/// A shell passes `<(zcat a.csv.gz)` as a path such as `/dev/fd/63`. It names a pipe, which has no
/// other path.
#[test]
fn unnamed_pipe_is_read_by_its_path() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let text = format!("lat,lon,ts\n1,2,{}\n", yesterday("10:12:47Z"));
    std::io::Write::write_all(&mut writer, text.as_bytes()).unwrap();
    drop(writer);
    let pipe = format!("/dev/fd/{}", reader.as_raw_fd());
    let refusal = |arguments: &[&str]| {
        let line = ["import"].into_iter().chain(arguments.iter().copied());
        let line = CommandLine::try_parse_from(line.chain([&*pipe])).unwrap();
        let opened = import::open(&Config::parse("").unwrap(), line.args);
        format!("{:#}", opened.unwrap_err())
    };
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state.json");
    let state = state.to_str().unwrap();
    let why = refusal(&["--format", "csv", "--driver", "d7", "--resume", state]);
    assert!(why.contains("not standard input or a pipe"), "{why}");
    let output = shown(&["--format", "csv"], &[Path::new(&pipe)]);
    assert!(output.contains(&format!("valid {:>32}", 1)), "{output}");
    // The number in the path does not name a driver. The pipe is empty now.
    let why = refusal(&["--format", "gpx", "--driver", "{file}"]);
    assert!(why.contains("standard input has no name"), "{why}");
}

/// The first hundred rows determine the columns; later rows are checked as well.
#[test]
fn minutes_in_their_own_column_reject_rows_of_whole_degrees() {
    let ts = yesterday("10:12:47Z");
    let begin = format!(
        "lat_deg,lat_min,lon_deg,lon_min,ts\n{}",
        format!("52.5,0,13.4,0,{ts}\n").repeat(150)
    );
    for (row, rejected) in [
        ("52,30,13,24", 1),
        ("52,\"30,5\",13,0", 1),
        ("52.5,0,13,24.5", 1),
        ("52,0,13,0.0", 0),
        ("52.5,30,13.4,24", 0),
        ("52,,13,", 0),
    ] {
        let file = format!("{begin}{row},{ts}\n");
        let result = import("", &["--driver", "d7"], "a.csv", file.as_bytes()).unwrap();
        assert_eq!(result["positions"], 151 - rejected, "{row}: {result}");
        let details = result["details"].to_string();
        let has_message = details.contains("a.csv:152: ") && details.contains("52°30'36");
        assert_eq!(has_message, rejected == 1, "{row}: {details}");
    }
}

#[test]
fn columns_state_hemispheres_units_and_dates() {
    let ts = yesterday("10:12:47Z");
    let (day, clock) = (&ts[..10], "10:12:47");
    let file = |names: &str, row: &str| {
        let row = row.replace("TS", &ts).replace("DAY", day).replace("CLOCK", clock);
        format!("{names}\n{}\n", row.replace("FIGURES", &day.replace('-', "")))
    };
    for (arguments, names, row, expected) in [
        (&[][..], "TIME,LATITUDE,N/S,LONGITUDE,E/W", "TS,33.5,S,70.25,W", "-33.5 -70.25 - - - -"),
        (&[], "time,lat,lat_ns,lon,lon_ew", "TS,33.5,N,70.25,E", "33.5 70.25 - - - -"),
        (&[], "time,lat,lon", "TS,33.5S,70.25W", "-33.5 -70.25 - - - -"),
        (
            &[],
            "time,GPSLatitude,GPSLatitudeRef,GPSLongitude,GPSLongitudeRef",
            "TS,33.5,South,70.25,West",
            "-33.5 -70.25 - - - -",
        ),
        (
            &[],
            "time,lat,N/S Indicator,lon,E/W Indicator",
            "TS,33.5,S,70.25,E",
            "-33.5 70.25 - - - -",
        ),
        (&[], "time,latitude,,longitude,", "TS,33.5,S,70.25,W", "-33.5 -70.25 - - - -"),
        (&[], "time,lat,lon,direction", "TS,52.5,13.4,W", "52.5 13.4 - - - -"),
        (&[], "x,lat,lon,time", "S,52.5,13.4,TS", "52.5 13.4 - - - -"),
        (&[], "time,lat,lon,altFt,speedKmh", "TS,1,2,1000,36", "1 2 10 - 304.8 -"),
        (&["--zone", "Z"], "time,lat,lon,tz", "TS,1,2,Asia/Tokyo", "1 2 - - - -"),
        (&[], "mmsi,time,lat,lon,course", "7,TS,1,2,360.0", "1 2 - - - -"),
        (&[], "time,latitudeE7,longitudeE7", "TS,335000000,-702500000", "33.5 -70.25 - - - -"),
        (
            &["--unit", "lat=1e-6 deg"],
            "time,lat,lon",
            "TS,33500000,-70250000",
            "33.5 -70.25 - - - -",
        ),
        (
            &["--unit", "lng=-1 deg"],
            "time,Latitude (N),Longitude (W)",
            "TS,33.5,70.25",
            "33.5 -70.25 - - - -",
        ),
        (&[], "time,Latitude (N),Longitude (W)", "TS,33.5,-70.25", "33.5 -70.25 - - - -"),
        (
            &["--unit", "lat=-1 deg"],
            "time,Latitude (S),lon",
            "TS,33.5,70.25",
            "-33.5 70.25 - - - -",
        ),
        (&["--unit", "lng=deg"], "time,lat,Longitude (W)", "TS,33.5,70.25", "33.5 70.25 - - - -"),
        (
            &["--unit", "lng=-ddmm.mmmm"],
            "time,lat,Longitude (W)",
            "TS,33.5,07015.0",
            "33.5 -70.25 - - - -",
        ),
        (&[], "BaseDateTime,LAT,LON", "TS,1,2", "1 2 - - - -"),
        (&["--unit", "lat=ddmm.mmmm"], "time,lat,lon", "TS,3330.0,-07015.0", "33.5 -70.25 - - - -"),
        (&[], "time,lat,lon,Speed (km/h)", "TS,1,2,36", "1 2 10 - - -"),
        (&[], "time,lat,lon,speed_kn", "TS,1,2,10", "1 2 5.14 - - -"),
        (&["--speed-unit", "mph"], "time,lat,lon,speed", "TS,1,2,10", "1 2 4.47 - - -"),
        (&["--speed-unit", "0.1 km/h"], "time,lat,lon,speed", "TS,1,2,360", "1 2 10 - - -"),
        (&[], "time,lat,lon,Altitude (ft)", "TS,1,2,1000", "1 2 - - 304.8 -"),
        (&["--alt-unit", "ft"], "time,lat,lon,alt", "TS,1,2,1000", "1 2 - - 304.8 -"),
        (
            &["--field", "alt=GPS Alt ft"],
            "time,lat,lon,GPS Alt ft",
            "TS,1,2,1000",
            "1 2 - - 304.8 -",
        ),
        (&["--unit", "acc=ft"], "time,lat,lon,acc", "TS,1,2,100", "1 2 - - - 30.5"),
        (&["--unit", "heading=0.01 deg"], "time,lat,lon,course", "TS,1,2,9000", "1 2 - 90 - -"),
        (&[], "DATE,TIME,lat,lon", "DAY,CLOCK,1,2", "1 2 - - - -"),
        (&["--field", "ts=D+T"], "D,T,lat,lon", "DAY,CLOCK,1,2", "1 2 - - - -"),
        (&[], "date,time,lat,lon", "FIGURES,101247,1,2", "1 2 - - - -"),
        (&[], "time,lat,lon", "FIGURES101247,1,2", "1 2 - - - -"),
        (&["--zone", "+01:00"], "time,lat,lon", "FIGURES111247,1,2", "1 2 - - - -"),
        (
            &["--unknown", "speed=-1", "--speed-unit", "m/s"],
            "time,lat,lon,speed",
            "TS,1,2,-1.0",
            "1 2 - - - -",
        ),
        (
            &["--speed-unit", "knots", "--field", "speed=SOG", "--field", "heading=COG"],
            "MMSI,time,lat,lon,SOG,COG",
            "7,TS,1,2,102.3,360.0",
            "1 2 - - - -",
        ),
        (&[], "\"time\",\"lat\",\"lon\"", "\"TS\",\"1,5\",\"2,25\"", "1.5 2.25 - - - -"),
        (&[], "time|lat|lon", "TS|1.5|2.25", "1.5 2.25 - - - -"),
        (&[], "time;lat;lon;alt", "TS;1,5;2,25;1.234,5", "1.5 2.25 - - 1234.5 -"),
        (&[], "time;lat;lon;alt", "TS;1.5;2.25;1,234.5", "1.5 2.25 - - 1234.5 -"),
        (&[], "time;lat;lon", "TS;1.5°;-2°15'", "1.5 -2.25 - - - -"),
        (&[], "time,lat,lat_min,lon", "TS,52.5,30,13.4", "52.5 13.4 - - - -"),
        (&["--unit", "lat=ddmm.mmmm"], "time,lat,lon", "TS,5230.0N,01324.0E", "52.5 13.4 - - - -"),
        (&[], "time,lat,lon,Speed Over Ground [mi/hr]", "TS,1,2,10", "1 2 4.47 - - -"),
        (&[], "time,lat,lon,course over ground", "TS,1,2,10", "1 2 - 10 - -"),
        (&[], "time;lat;lon", "TS;1°30,0'S;2,25", "-1.5 2.25 - - - -"),
        (&["--unit", "lat=ddmm.mmmm"], "time,lat,lon", "TS,0130.0S,00215.0E", "-1.5 2.25 - - - -"),
    ] {
        check(arguments, "log.csv", file(names, row), expected);
    }
    for (arguments, names, row, message) in [
        (&[][..], "time,lat,n/s,lon,e/w", "TS,33.5,,70.25,W", "not N or S"),
        (&[], "time,lat,n/s,lon,e/w", "TS,-33.5,N,70.25,W", "which is right"),
        (&[], "time,Latitude (N),Longitude (W)", "TS,33.5,70.25", "says west, and 70.25 has"),
        (&["--field", "lng=lon_w"], "time,lat,lon_w", "TS,33.5,70.25", "says west"),
        (&[], "time,lat,Longitude (W)", "TS,1,n/a\nTS,1,-70.2\nTS,1,70.3", "70.3 has no sign"),
        (
            &["--unit", "lng=ddmm.mmmm"],
            "time,lat,Longitude (W)",
            "TS,33.5,07015.0",
            "give --unit lng='-ddmm.mmmm'",
        ),
        (&["--unit", "lng=-1 deg"], "time,lat,lon", "TS,33.5,70.25W", "its unit is negative"),
        (&[], "time lat lon", "TS 1 2", "the first row must name the columns, separated by"),
        (&[], "TS,52.5,13.4", "TS,52.6,13.4", "the first row must name the columns"),
        (&[], "time,lat,n/s,lon,e/w", "TS,33.5,N,70.25,ESE", "not E or W"),
        (
            &[],
            "time,lat,lon,lat",
            "TS,1,2,3",
            "the columns lat and lat name the same field: rename one",
        ),
        (&[], "TIME,lat,lon", "CLOCK,1,2", "without a date"),
        (&[], "Local Time,lat,lon", "DAY CLOCK,1,2", "it has no column ts"),
        (&["--field", "ts=Local Time"], "Local Time,lat,lon", "DAY CLOCK,1,2", "give --zone"),
        (&["--field", "ts=t (UTC+2)"], "t (UTC+2),lat,lon", "DAY CLOCK,1,2", "give --zone"),
        (&[], "time,lat,lon,timezone", "DAY CLOCK,1,2,Asia/Tokyo", "says Asia/Tokyo: give --zone"),
        (
            &["--field", "ts=D+T"],
            "D,T,UTCOfst,lat,lon",
            "DAY,CLOCK,+01:00,1,2",
            "its column UTCOfst, which is not read, says +01:00",
        ),
        (&[], "time,lat,latitude,lon", "TS,48.1,52.5,13.4", "name two places"),
        (&["--keep", "hr"], "time,lat,lon,hr,hr", "TS,1,2,3,4", "two columns are named hr"),
        (&["--unit", "lat=1e-7 deg"], "time,lat,lon", "TS,52.52,13.4", "are degrees already"),
        (&["--unit", "lat=ddmm.mmmm"], "time,lat,lon", "TS,52.52,13.4", "are degrees already"),
        (&["--unit", "lat=ddmm.mmmm"], "time,lat,lon", "TS,5275.0,1324.0", "60 minutes or more"),
        (&[], "time,lat,lon", "1.79555E+12,1,2", "lost its last digits"),
        (&[], "time,lat,lon", "TS,1.2E+01,2", "lost its last digits"),
        (&[], "time,lat,lon", "03/04/2026 10:00:00,1,2", "which order"),
        (&[], "time,lat,lon", "251126101500,1,2", "such as \\\"%d%m%y%H%M%S"),
        (&[], "time,lat,lon", "20261125,1,2", "a date without a time of day"),
        (&[], "time;lat;lon", "TS;1,5;12.50", "write a decimal point"),
        (&[], "time;lat;lon", "TS;−1.5;12.50", "write a plain minus"),
        (&[], "time;lat;lon", "TS;'1.5;12.50", "save the file without the quotes"),
        (&[], "time;lat;lon", "TS;52.5;286.6", "Subtract 360"),
        (&[], "time;lat;lon", "TS;5230.0;1324.0", "--unit lat=ddmm.mmmm"),
        (&[], "time;lat;lon", "TS;5230.0N;01324.0E", "--unit lat=ddmm.mmmm"),
        (&[], "time;lat;lon", "TS;525000000;134000000", "--unit lat='1e-7 deg'"),
        (&[], "time,lat_deg,lat_min,lon_deg,lon_min", "TS,52,30,13,24", "lat_min has its minutes"),
        (&[], "time,lat,lon,Longitude Minutes", "TS,52,13,24", "Longitude Minutes has its"),
        (&[], "time,lat,latSec,lon", "TS,52,24,13", "latSec has its seconds"),
        (&[], "time;lat;lon", "TS;1.5;2.5O", "write E or W"),
        (&["--unit", "lat=ddmm.mmmm"], "time;lat;lon", "TS;1.5°;215.0", "remove the unit"),
        (&[], "time,lat,lon", "46000.5,1,2", "spreadsheet's number of days"),
        (&[], "time,lat,lon", "TS,104.5,52.5", "swapped"),
        (&[], "time,lat,lon", "TS,52,5200,13,4050", "decimal commas"),
        (&[], "time,lat,lon,speed", "TS,1,2,3", "--speed-unit"),
        (&["--zone", "Europe/Berln"], "time,lat,lon", "TS,1,2", "zone such as Europe/Berlin"),
        (&["--zone", "Europe/Berlin"], "time,lat,lon", "2026-10-25 02:30:00,1,2", "happens twice"),
        (&["--format", "acme"], "time,lat,lon", "TS,1,2", "--format acme"),
        (&["--unknown", "velocity=1"], "time,lat,lon", "TS,1,2", "such as"),
        (&["--unit", "speed=x"], "time,lat,lon", "TS,1,2", "--speed-unit"),
        (
            &[],
            "1,2026-11-24T10:00:00Z,52.5",
            "2,TS,52.5",
            "it has no column lat, only 1, 2026-11-24T10:00:00Z, 52.5",
        ),
        (&[], "Time,My Latitude Value,lon", "TS,1,2", "--field lat='My Latitude Value'"),
        (
            &[],
            "time,lat,lon",
            "2001-01-01T00:00:00Z,1,2",
            "raise clickhouse.retention.positions_days",
        ),
    ] {
        check_refused(arguments, "log.csv", file(names, row), message);
    }
}

#[test]
fn one_configured_format_reads_csv_and_geojson() {
    let ts = yesterday("10:12:47");
    let toml = "[formats.acme]\nimport = true\nlat = '/y'\nlng = '/x'\nlat_unit = '1e-6 deg'\n\
                ts = '/when'\nts_unit = 'rfc3339'\nts_zone = 'Z'\nspeed = '/v'\n\
                speed_unit = 'km/h'\nunknown = ['speed=-1']\ndriver = '/who'";
    let lines =
        format!("{{\"who\":\"d7\",\"y\":1500000,\"x\":\"-2250000\",\"when\":\"{ts}\",\"v\":36}}\n");
    let row = format!("who;y;x;when;v\nd7;1500000;-2250000;{ts};36\n");
    for (name, text, formats) in [
        ("a.geojsonl", &lines, &["--format", "acme"][..]),
        ("a.csv", &row, &["--format", "acme"]),
        ("a.txt", &row, &["--format", "csv", "--format", "acme"]),
    ] {
        let result = import(toml, formats, name, text.as_bytes()).unwrap();
        assert_eq!(fix(&result), "1.5 -2.25 10 - - -", "{name}: {result}");
        assert_eq!(result["understood"][0]["example"]["driver_id"], "d7");
    }
    let unknown =
        import(toml, &["--format", "acme"], "a.csv", row.replace(";36", ";-1").as_bytes()).unwrap();
    assert_eq!(fix(&unknown), "1.5 -2.25 - - - -");
}

/// `--format` takes one kind of file and one configured format. A second one would be ignored.
#[test]
fn two_formats_of_one_sort_are_refused() {
    let file = format!("lat,lon,ts\n1,2,{}\n", yesterday("10:12:47Z"));
    for (formats, message) in [
        (["csv", "gpx"], "--format csv and --format gpx are both kinds of files: give only one"),
        (["a", "b"], "--format a and --format b are both names of formats: give only one"),
    ] {
        let [first, second] = formats;
        check_refused(&["--format", first, "--format", second], "a.csv", &file, message);
    }
    check(&["--format", "csv", "--format", "csv"], "a.csv", &file, "1 2 - - - -");
}

/// An option that a format would ignore is refused.
#[test]
fn units_beside_a_format_are_refused() {
    let ts = yesterday("10:12:47Z");
    let toml = "[formats.f]\nimport = true\nlat = '/y'\nlng = '/x'\nlat_unit = '1e-6 deg'\n\
                ts = '/t'\nts_unit = 'rfc3339'\nspeed = '/v'\nspeed_unit = 'km/h'";
    let file = format!("y,x,t,v\n1500000,2500000,{ts},36\n");
    for option in [
        ["--unit", "lat=rad"],
        ["--unit", "lat=deg"],
        ["--unit", "ts=s"],
        ["--speed-unit", "knots"],
        ["--alt-unit", "ft"],
        ["--unknown", "speed=36"],
    ] {
        let all = [&["--driver", "d7", "--format", "f"][..], &option].concat();
        let why = import(toml, &all, "a.csv", file.as_bytes()).unwrap_err();
        let message = format!("{} and --format f both say how to read the fields", option[0]);
        assert!(why.contains(&message) && why.contains("change [formats.f]"), "{why}");
        if option[0] != "--speed-unit" {
            let message = format!("leave out {}: the fields and units of a Rec", option[0]);
            check_refused(&option, "a.rec", "", &message);
        }
    }
    let all = ["--driver", "d7", "--format", "f", "--zone", "Z", "--keep", "v"];
    let read = import(toml, &all, "a.csv", file.as_bytes()).unwrap();
    assert_eq!(fix(&read), "1.5 2.5 10 - - -");
    // This format leaves the unit of its speeds to the source. A file has no source, so
    // `--speed-unit` is needed.
    let line = r#"{"ts":MS,"values":{"latitude":1,"longitude":2,"speed":36}}"#;
    let ms = ts.parse::<jiff::Timestamp>().unwrap().as_millisecond().to_string();
    let line = line.replace("MS", &ms);
    let arguments = ["--format", "thingsboard"];
    check_refused(&arguments, "a.geojsonl", &line, "the unit of its speeds: give --speed-unit");
    let arguments = ["--format", "thingsboard", "--speed-unit", "km/h"];
    check(&arguments, "a.geojsonl", &line, "1 2 10 - - -");
    // Without --driver, a source of the configuration says how a Recorder file is read.
    let why = import(toml, &["--format", "f"], "a.rec", b"").unwrap_err();
    assert!(why.contains("leave out --format f, since the format of the configured"), "{why}");
}

#[test]
fn unread_columns_and_implausible_fixes_are_reported() {
    let ts = yesterday("10:12:47Z");
    let file = format!("time,lat,lon,hedding,battery\n{ts},1,2,90,7\n");
    let result = import("", &["--driver", "d7"], "a.csv", file.as_bytes()).unwrap();
    let unread = result["understood"][0]["unread"].to_string();
    assert!(unread.contains("battery") && unread.contains("is it heading?"), "{unread}");
    // The track goes from Berlin to Santiago in ten seconds.
    let track = |row: &str| format!("time,lat,lon,speed\n{}", row.replace("DAY", &ts[..10]));
    let jumps = track("DAYT10:00:00Z,52.5,13.4,\nDAYT10:00:10Z,-33.5,-70.6,\n");
    let result =
        import("", &["--driver", "d7", "--speed-unit", "m/s"], "a.csv", jumps.as_bytes()).unwrap();
    assert!(
        result["understood"][0]["warnings"]
            .to_string()
            .contains("1 pairs of consecutive fixes would need more than 1,200 km/h"),
        "{result}"
    );
    for (rows, message) in [
        (
            "DAYT10:00:00Z,52.5,13.4,\nDAYT10:00:00Z,52.6,13.4,\n",
            "1 pairs of consecutive fixes have the same time",
        ),
        ("DAYT10:00:00Z,52,5,\nDAYT10:00:10Z,52,5,\n", "all places are whole degrees"),
        (
            "DAYT10:00:00Z,0.91,0.2,\nDAYT10:10:00Z,0.91,0.2,\n",
            "all latitudes are within 1.57° and all longitudes within 3.14° of 0: are they \
             radians?",
        ),
    ] {
        let result =
            import("", &["--driver", "d7", "--speed-unit", "m/s"], "a.csv", track(rows).as_bytes());
        let warnings = result.unwrap()["understood"][0]["warnings"].to_string();
        assert!(warnings.contains(message), "{warnings}");
    }
    // The driver moves 100 m in ten seconds: 36 km/h.
    let rows: String = (0..40).fold(String::new(), |mut rows, n| {
        writeln!(
            rows,
            "DAYT10:{:02}:{:02}Z,{:.7},13.4,36",
            n / 6,
            n % 6 * 10,
            52.5 + f64::from(n) * 0.000_898_32
        )
        .unwrap();
        rows
    });
    for (unit, has_warning) in [("m/s", true), ("km/h", false)] {
        let result =
            import("", &["--driver", "d7", "--speed-unit", unit], "a.csv", track(&rows).as_bytes())
                .unwrap();
        let warnings = result["understood"][0]["warnings"].to_string();
        assert_eq!(warnings.contains("km/h read as m/s"), has_warning, "{unit}: {warnings}");
    }
}

#[test]
fn gpx_and_geojson_tolerate_unusual_names_and_encodings() {
    let ts = yesterday("10:12:47Z");
    let gpx = |head: &str, name: &str| {
        format!(
            "{head}<gpx><trk><name>{name}</name><trkseg><trkpt lat=\"1.5\" lon=\"-2.25\">\
             <ele>7</ele><time>{ts}</time></trkpt></trkseg></trk></gpx>"
        )
    };
    let expected = "1.5 -2.25 - - 7 -";
    for name in [
        "Smith & Sons",
        "AT&T;",
        "a &nbsp; b",
        "&#0;",
        "a < b".replace('<', "&lt;").as_str(),
        "Höhe",
    ] {
        check(&[], "t.gpx", gpx("", name), expected);
        check(&[], "t.gpx", gpx("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n", name), expected);
    }
    let point = |inner: &str| {
        format!(
            "<gpx><trk><trkseg><trkpt lat=\"1.5\" lon=\"-2.25\"><time>{ts}</time>\
             <desc>{inner}</desc><ele>7</ele></trkpt></trkseg></trk></gpx>"
        )
    };
    for html in ["a <br> b", "<p>a<p>b", "</b>", "a < b", "<img src=\"x\">", "1 <2"] {
        check(&[], "t.gpx", point(html), expected);
        check(&[], "t.gpx", gpx("", html), expected);
    }
    check_refused(&[], "t.gpx", point("").split("<ele>").next().unwrap(), "ends before");
    check(&[], "t.gpx", gpx("<?xml version='1.0' encoding='UTF-16'?>", "a"), expected);
    for label in ["ISO-8859-1", "windows-1252", "latin1", "UTF-8"] {
        let text = gpx(&format!("<?xml version='1.0' encoding='{label}'?>"), "Hohe");
        let mut bytes = text.into_bytes();
        let at = bytes.windows(4).position(|word| word == b"Hohe").unwrap();
        bytes[at + 1] = 0xf6;
        check(&[], "t.gpx", bytes, expected);
    }
    let utf_16: Vec<u8> = gpx("\u{feff}<?xml version='1.0' encoding='UTF-16'?>", "Höhe")
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    check(&[], "t.gpx", utf_16, expected);
    check_refused(
        &[],
        "t.gpx",
        "<gpx><rte><rtept lat='1' lon='2'/></rte><wpt lat='1' lon='2'/></gpx>",
        "1 points of routes and 1 waypoints",
    );
    let feature =
        |properties: &str| feature_at("-2.25,1.5", &format!(r#""time":"{ts}"{properties}"#));
    let unit = ["--speed-unit", "m/s"];
    for (properties, expected) in [
        (r#","speed":NaN"#, "1.5 -2.25 - - - -"),
        (r#","speed":-Infinity,"note":"NaN, Infinity""#, "1.5 -2.25 - - - -"),
        (r#","accuracy":5,"altitude":7,"bearing":90,"velocity":10"#, "1.5 -2.25 10 90 7 5"),
        (r#","acc":5,"accuracy":6,"speed":10,"velocity":1"#, "1.5 -2.25 10 - - 5"),
        (r#","accuracy":6,"acc":5,"velocity":1,"speed":10"#, "1.5 -2.25 10 - - 5"),
        (r#","course":90,"ele":7"#, "1.5 -2.25 - 90 7 -"),
    ] {
        check(&unit, "a.geojson", feature(properties), expected);
        check(&unit, "a.geojson", format!("[{}]", feature(properties)), expected);
        check(
            &unit,
            "a.geojson",
            format!(
                "{{\"type\":\"FeatureCollection\",\"features\":[\n{},\n]}}",
                feature(properties)
            ),
            expected,
        );
        check(&unit, "a.geojson", format!("\u{1e}{}\n", feature(properties)), expected);
    }
    check_refused(&unit, "a.geojson", r#"{"type":"Topology"}"#, "neither GeoJSON nor");
    // GeoJSON from before RFC 7946 may name its reference system.
    let with_crs = |name: &str| {
        let crs = format!(r#""crs":{{"type":"name","properties":{{"name":"{name}"}}}}"#);
        format!(r#"{{"type":"FeatureCollection",{crs},"features":[{}]}}"#, feature(""))
    };
    for name in ["urn:ogc:def:crs:OGC:1.3:CRS84", "EPSG:4326"] {
        check(&unit, "a.geojson", with_crs(name), "1.5 -2.25 - - - -");
    }
    for name in ["urn:ogc:def:crs:EPSG::3857", "EPSG:31467"] {
        check_refused(&unit, "a.geojson", with_crs(name), "not degrees of WGS 84; convert it");
    }
    // NUL, Ctrl-Z and line ends may follow the text.
    for end in ["\0\0\0", "\n\0\0\n", "\n\x1a", "\r\n\x1a\0"] {
        check(&unit, "a.geojson", feature("") + end, "1.5 -2.25 - - - -");
        check(&unit, "a.geojsonl", feature("") + end, "1.5 -2.25 - - - -");
        check(&[], "a.csv", format!("time,lat,lon\n{ts},1.5,-2.25{end}"), "1.5 -2.25 - - - -");
        check(&[], "t.gpx", gpx("", "a") + end, expected);
    }
    check_refused(
        &unit,
        "a.geojson",
        format!("{{\"features\":[{}", &feature("")[..40]),
        "EOF in line 1",
    );
}

/// Imports a file, and checks its number of fixes. Returns `time lat lng speed heading alt acc` of
/// the first fix, and the result.
#[track_caller]
fn first_fix(name: &str, text: &str, fixes: u64) -> (String, Value) {
    let result = import("", &["--driver", "d7"], name, text.as_bytes()).unwrap();
    assert_eq!(result["positions"], fixes, "{text}\n{result}");
    assert_eq!(result["failures"], serde_json::json!([]), "{text}\n{result}");
    let time = result["understood"][0]["example"]["ts"].as_str().unwrap_or_default().to_owned();
    (format!("{} {}", &time[11.min(time.len())..], fix(&result)), result)
}

#[test]
fn tcx_activities_are_read_and_courses_are_not() {
    let day = &yesterday("")[..10];
    let point = |clock: &str, inner: &str| {
        format!("<Trackpoint><Time>{day}T{clock}Z</Time>{inner}</Trackpoint>")
    };
    let place = "<Position><LatitudeDegrees>-33.5</LatitudeDegrees>\
                 <LongitudeDegrees>-70.25</LongitudeDegrees></Position>";
    let values = "<AltitudeMeters>520.5</AltitudeMeters><DistanceMeters>3</DistanceMeters>\
                  <HeartRateBpm><Value>150</Value></HeartRateBpm><Extensions><ns3:TPX>\
                  <ns3:Speed>3.5</ns3:Speed><ns3:Watts>210</ns3:Watts></ns3:TPX></Extensions>";
    let file = |inner: &str| {
        format!(
            "<?xml version=\"1.0\"?>\n<TrainingCenterDatabase xmlns:ns3=\"x\"><Activities>\
             <Activity Sport=\"Biking\"><Id>x</Id><Lap StartTime=\"{day}T08:00:00Z\">\
             <MaximumSpeed>9</MaximumSpeed><Track>{inner}</Track></Lap></Activity></Activities>\
             </TrainingCenterDatabase>"
        )
    };
    // The second point has no place, because the receiver had no fix.
    let track = point("08:00:00", &[place, values].concat()) + &point("08:00:01", values);
    let (first, result) = first_fix("t.tcx", &file(&track), 1);
    assert_eq!(first, "08:00:00.000Z -33.5 -70.25 3.5 - 520.5 -");
    assert_eq!((&result["ignored"], &result["rejected"]), (&1.into(), &serde_json::json!({})));
    let understood = result["understood"][0].to_string();
    for message in ["alt = AltitudeMeters", "HeartRateBpm", "Watts"] {
        assert!(understood.contains(message), "{understood}");
    }
    let (first, _) = first_fix("t.gpx", &file(&track), 1);
    assert_eq!(first, "08:00:00.000Z -33.5 -70.25 3.5 - 520.5 -", "by its content");
    let with_unit = values.replace("<ns3:Speed>", "<ns3:Speed unit=\"km/h\">").replace("3.5", "36");
    let (first, _) =
        first_fix("t.tcx", &file(&point("08:00:00", &(place.to_owned() + &with_unit))), 1);
    assert_eq!(first, "08:00:00.000Z -33.5 -70.25 10 - 520.5 -");
    let kept =
        import("", &["--driver", "d7", "--keep", "HeartRateBpm"], "t.tcx", file(&track).as_bytes());
    let kept = &kept.unwrap()["understood"][0]["example"]["attributes"];
    assert_eq!(kept["HeartRateBpm"], "150");
    // The summary shows where each field was read from.
    for (arguments, read) in [
        (
            &[][..],
            "lat, lng = Position; ts = Time; alt = AltitudeMeters; speed = Speed (1 = 1 m/s)",
        ),
        (
            &["--field", "speed=Watts", "--speed-unit", "0.5 m/s", "--alt-unit", "ft"],
            "lat, lng = Position; ts = Time; alt = AltitudeMeters (1 = 0.3048 m); \
             speed = Watts (1 = 0.5 m/s)",
        ),
        (
            &["--field", "lng=x", "--field", "acc=y", "--unit", "lat=rad"],
            "lat = Position (rad); ts = Time; alt = AltitudeMeters; speed = Speed (1 = 1 m/s); \
             lng = x (rad); acc = y",
        ),
    ] {
        let arguments = [&["--driver", "d7"], arguments].concat();
        let result = import("", &arguments, "t.tcx", file(&track).as_bytes()).unwrap();
        let output = result["understood"][0]["read"].as_array().unwrap();
        let output: Vec<&str> = output.iter().filter_map(Value::as_str).collect();
        assert_eq!(output.join("; "), read, "{arguments:?}");
    }
    // The times of a course are planned.
    let course = file(&track).replace("Activities", "Courses").replace("Activity", "Course");
    let message = "it has no track: 2 points of Courses are not read, because their times are";
    check_refused(&[], "t.tcx", course, message);
    let whole = file(&track);
    check_refused(&[], "t.tcx", &whole[..300], "not read to its end");
}

/// Unread properties and elements may state the hemisphere of a position.
#[test]
fn unread_hemisphere_south_or_west_rejects_an_unsigned_place() {
    let ts = yesterday("10:12:47Z");
    let feature =
        |properties: &str| feature_at("70.25,33.5", &format!(r#""ts":"{ts}"{properties}"#));
    let unit = &["--speed-unit", "m/s"][..];
    for (properties, message) in [
        (r#","lat_ref":"S""#, "--field lat_hemisphere=/properties/lat_ref"),
        (
            r#","gps":{"LongitudeRef":"West"}"#,
            "--field lng_hemisphere=/properties/gps/LongitudeRef",
        ),
        (r#","N/S":"s""#, "lat is 33.5"),
    ] {
        check_refused(unit, "a.geojson", feature(properties), message);
        let kept = [unit, &["--keep", "*"]].concat();
        check_refused(&kept, "a.geojson", feature(properties), message);
    }
    for properties in [r#","lat_ref":"N","EW":"E""#, r#","direction":"S""#, r#","state":"WA""#] {
        check(unit, "a.geojson", feature(properties), "33.5 70.25 - - - -");
    }
    let given = [unit, &["--field", "lat_hemisphere=/properties/lat_ref"]].concat();
    check(&given, "a.geojson", feature(r#","lat_ref":"S""#), "-33.5 70.25 - - - -");
    // One feature has a time without a zone, another a time split over two properties.
    let local = feature("").replace("Z\"", "\"");
    check_refused(unit, "a.geojson", &local, "name its zone with --zone");
    check(&[unit, &["--zone", "Z"]].concat(), "a.geojson", &local, "33.5 70.25 - - - -");
    let (date, clock) = ts.trim_end_matches('Z').split_once('T').unwrap();
    let date_and_time = format!(r#""date":"{date}","time":"{clock}""#);
    let split = feature("").replace(&format!(r#""ts":"{ts}""#), &date_and_time);
    check_refused(unit, "a.geojson", &split, "a time of day without a date");
    let joined = ["--zone", "Z", "--field", "ts=/properties/date+/properties/time"];
    check(&[unit, &joined].concat(), "a.geojson", &split, "33.5 70.25 - - - -");
    // Hemispheres are checked after the first 1,000 fixes, too, whether those are valid or not.
    for first in ["N", "S"] {
        let before = feature(&format!(r#","lat_ref":"{first}""#)) + "\n";
        let text = before.repeat(1_500) + &feature(r#","lat_ref":"S""#) + "\n";
        let arguments = [&["--driver", "d7"], unit].concat();
        let result = import("", &arguments, "a.geojsonl", text.as_bytes()).unwrap();
        let rejected = if first == "N" { 1 } else { 1_501 };
        assert_eq!(result["rejected"]["wrong_type"], rejected, "{result}");
    }
    let point = |element: &str| {
        format!("<gpx><trkpt lat='33.5' lon='70.25'><time>{ts}</time>{element}</trkpt></gpx>")
    };
    check_refused(&[], "a.gpx", point("<ns>S</ns>"), "--field lat_hemisphere=/ns");
    check(&["--field", "lat_hemisphere=/ns"], "a.gpx", point("<ns>S</ns>"), "-33.5 70.25 - - - -");
}

/// One of three fixes is rejected. The detail names the line on which that fix begins.
#[test]
fn reject_names_its_file_and_line() {
    let ts = yesterday("10:12:47Z");
    let point = |lat: &str| format!("<trkpt lat='{lat}' lon='2'>\n<time>{ts}</time></trkpt>\n");
    let feature = |lat: &str| {
        format!(
            r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[2,{lat}]}},
                "properties":{{"ts":"{ts}"}}}}"#
        )
    };
    let when = format!("<when>{ts}</when>\n");
    let location =
        |e7: &str| format!(r#"{{"latitudeE7":{e7},"longitudeE7":1,"timestamp":"{ts}"}}"#);
    let tst = ts.parse::<jiff::Timestamp>().unwrap().as_second();
    let owntracks = |lat: &str| {
        format!("{ts}\t*\t{{\"_type\":\"location\",\"lat\":{lat},\"lon\":2,\"tst\":{tst}}}")
    };
    for (name, line, text) in [
        ("a.csv", 5, format!("sep=,\n\ntime,lat,lon\n{ts},1,2\n{ts},95,2\n{ts},1,2\n")),
        ("b.csv", 4, format!("time,lat,lon,x\n{ts},1,2,\"\n\"\n{ts},95,2,\"\n\"\n{ts},1,2,\n")),
        ("c.csv", 2, format!("time,lat,lon,x\n{ts},95,2,\"open\n{ts},1,2,\n{ts},1,2,\n")),
        ("a.gpx", 4, format!("<gpx>\n{}{}{}</gpx>", point("1"), point("95"), point("1"))),
        (
            "a.geojson",
            2,
            format!("{{\"features\":[{},{},{}]}}", feature("1"), feature("95"), feature("1")),
        ),
        (
            "a.kml",
            5,
            format!(
                "<kml><Placemark><gx:Track>{when}{when}{when}<gx:coord>2 1</gx:coord>\n\
                 <gx:coord>2 95</gx:coord>\n<gx:coord>2 1</gx:coord></gx:Track></Placemark></kml>"
            ),
        ),
        (
            "Records.json",
            2,
            format!(
                "{{\"locations\":[{},\n{},\n{}]}}",
                location("1"),
                location("950000000"),
                location("1")
            ),
        ),
        ("a.rec", 2, [owntracks("1"), owntracks("95"), owntracks("1")].join("\n")),
    ] {
        let unit: &[&str] = if name == "a.geojson" { &["--speed-unit", "m/s"] } else { &[] };
        let arguments = [&["--driver", "d7"], unit].concat();
        let result = import("", &arguments, name, text.as_bytes()).unwrap();
        let details = result["details"].to_string();
        assert!(details.contains(&format!("{name}:{line}: ")), "{text}\n{result}");
    }
}

#[test]
fn kml_tracks_and_timed_points_are_read() {
    let day = &yesterday("")[..10];
    let file = |inner: &str| {
        format!(
            "<?xml version=\"1.0\"?><kml xmlns:gx=\"x\"><Document><Placemark>{inner}</Placemark>\
             </Document></kml>"
        )
    };
    let whens = format!("<when>{day}T08:00:00Z</when><when>{day}T08:00:10Z</when>");
    let coords = "<gx:coord>-70.25 -33.5 520</gx:coord><gx:coord>-70.26 -33.5 0</gx:coord>";
    let between = format!(
        "<when>{day}T08:00:00Z</when><gx:coord>-70.25 -33.5 520</gx:coord>\
         <when>{day}T08:00:10Z</when><gx:coord>-70.26 -33.5 0</gx:coord>"
    );
    for inner in [format!("{whens}{coords}"), format!("{coords}{whens}"), between] {
        let track = file(&format!("<gx:Track>{inner}</gx:Track>"));
        let (first, _) = first_fix("t.kml", &track, 2);
        assert_eq!(first, "08:00:00.000Z -33.5 -70.25 - - 520 -");
    }
    // The first of two tracks has a point without a place.
    let gap = whens.replace("10Z", "05Z");
    let two_tracks = format!(
        "<gx:MultiTrack><gx:Track>{gap}<gx:coord>-70.25 -33.5 520</gx:coord><gx:coord/></gx:Track>\
         <gx:Track>{whens}{coords}<ExtendedData><SchemaData><gx:SimpleArrayData name=\"speed\">\
         <gx:value>1</gx:value></gx:SimpleArrayData></SchemaData></ExtendedData></gx:Track>\
         </gx:MultiTrack>"
    );
    let (_, result) = first_fix("t.kml", &file(&two_tracks), 3);
    assert_eq!(result["ignored"], 1, "{result}");
    assert!(result["understood"][0]["unread"].to_string().contains("SimpleArrayData"), "{result}");
    let stamped = |height: &str, mode: &str| {
        file(&format!(
            "<TimeStamp><when>{day}T08:00:00+01:00</when></TimeStamp><Point>{mode}\
             <coordinates>\n 13.4,52.5{height}\n</coordinates></Point>"
        ))
    };
    let absolute = "<altitudeMode>absolute</altitudeMode>";
    for (height, mode, expected) in [
        ("", "", "07:00:00.000Z 52.5 13.4 - - - -"),
        (",34", "", "07:00:00.000Z 52.5 13.4 - - 34 -"),
        (",0", "", "07:00:00.000Z 52.5 13.4 - - - -"),
        (",0", absolute, "07:00:00.000Z 52.5 13.4 - - 0 -"),
        (",34", "<altitudeMode>relativeToGround</altitudeMode>", "07:00:00.000Z 52.5 13.4 - - - -"),
    ] {
        assert_eq!(first_fix("t.kml", &stamped(height, mode), 1).0, expected, "{height} {mode}");
    }
    let uneven = file(&format!("<gx:Track>{whens}<gx:coord>1 2 3</gx:coord></gx:Track>"));
    check_refused(&[], "t.kml", uneven, "a track has 2 times and 1 places");
    let line = "<LineString><coordinates>13.4,52.5,0 13.5,52.6,0</coordinates></LineString>";
    check_refused(&[], "t.kml", file(line), "0 points and 1 lines without times are not read");
    check_refused(&[], "t.kml", file(&format!("<gx:Track>{whens}")), "a track has no end");
    check_refused(&[], "t.kml", &file(&two_tracks)[..150], "not read to its end");
}

#[test]
fn google_timeline_exports_are_read() {
    let day = &yesterday("")[..10];
    let ms = format!("{day}T08:00:00Z").parse::<jiff::Timestamp>().unwrap().as_millisecond();
    let records = format!(
        r#"{{"locations":[{{"latitudeE7":-335000000,"longitudeE7":-702500000,"accuracy":12,
           "altitude":520,"velocity":3,"heading":90,"source":"GPS","activity":[{{"x":1}}],
           "timestamp":"{day}T08:00:00.000Z"}},
           {{"latitudeE7":-335000000,"longitudeE7":-702600000,"timestampMs":"{ms}"}}]}}"#
    );
    let (first, _) = first_fix("Records.json", &records, 2);
    assert_eq!(first, "08:00:00.000Z -33.5 -70.25 3 90 520 12");
    let android = format!(
        r#"{{"semanticSegments":[{{"startTime":"{day}T09:00:00.000+01:00","endTime":"x",
           "timelinePath":[{{"point":"-33.5°, -70.25°","time":"{day}T09:00:00.000+01:00"}}]}},
           {{"startTime":"x","visit":{{"probability":1}}}}],
           "rawSignals":[{{"position":{{"LatLng":"52.5°, 13.4°","accuracyMeters":7,
           "altitudeMeters":34.5,"speedMetersPerSecond":1.5,
           "timestamp":"{day}T09:00:00.000+01:00"}}}},{{"wifiScan":{{}}}}],
           "userLocationProfile":{{}}}}"#
    );
    let (first, result) = first_fix("Timeline.json", &android, 2);
    assert_eq!(first, "08:00:00.000Z -33.5 -70.25 - - - -");
    assert!(result["understood"][0]["unread"].to_string().contains("visit"), "{result}");
    let raw = android.replace("-33.5°", "").replace("-70.25°", "");
    let (first, _) = first_fix("x.json", &raw.replace("\"semanticSegments\"", "\"s\""), 1);
    assert_eq!(first, "08:00:00.000Z 52.5 13.4 1.5 - 34.5 7");
    let ios = format!(
        r#"[{{"startTime":"{day}T08:30:00.000+01:00","endTime":"x",
           "visit":{{"topCandidate":{{"placeLocation":"geo:1,2"}}}}}},
           {{"startTime":"{day}T08:30:00.000+01:00","endTime":"x","timelinePath":[
           {{"point":"geo:-33.5,-70.25","durationMinutesOffsetFromStartTime":"30"}}]}}]"#
    );
    let (first, _) = first_fix("location-history.json", &ios, 1);
    assert_eq!(first, "08:00:00.000Z -33.5 -70.25 - - - -");
    let semantic = format!(
        r#"{{"timelineObjects":[{{"placeVisit":{{"location":{{"latitudeE7":1}}}}}},
           {{"activitySegment":{{"simplifiedRawPath":{{"points":[{{"latE7":-335000000,
           "lngE7":-702500000,"accuracyMeters":5,"timestamp":"{day}T08:00:00Z"}}]}}}}}}]}}"#
    );
    let (first, _) = first_fix("2026_NOVEMBER.json", &semantic, 1);
    assert_eq!(first, "08:00:00.000Z -33.5 -70.25 - - - 5");
    let geo = "geo:-33.5,-70.25";
    let uri = ios.replace(geo, "geo:-33.5,-70.25,520;u=10");
    let (first, _) = first_fix("location-history.json", &uri, 1);
    assert_eq!(first, "08:00:00.000Z -33.5 -70.25 - - 520 -");
    for commas in ["-33,5°, -70,25°", "geo:-33,5,-70,25"] {
        check_refused(&[], "location-history.json", ios.replace(geo, commas), "not a number");
    }
    // Google may write a western longitude as an unsigned 32-bit integer.
    let unsigned = records.replace(":-702500000", ":3592467296");
    let (first, _) = first_fix("Records.json", &unsigned, 2);
    assert_eq!(first, "08:00:00.000Z -33.5 -70.25 3 90 520 12");
    let endless = ios.replace("\"30\"", "\"9223372036854775807\"");
    check_refused(&[], "location-history.json", endless, "no time");
    check_refused(&[], "Records.json", &records[..60], "EOF in line 1");
    // The files of several months, joined by `cat`.
    let joined = format!("{semantic}\n{semantic}\n{ios}");
    let (first, _) = first_fix("2026.json", &joined, 3);
    assert_eq!(first, "08:00:00.000Z -33.5 -70.25 - - - 5");
    let result = import("", &["--driver", "d7"], "2026.json", format!("{ios}\nx").as_bytes());
    let failures = result.unwrap()["failures"].to_string();
    assert!(failures.contains("'x' instead of '{'"), "{failures}");
    check_refused(&[], "Records.json", records.replace("timestamp", "t"), "no time");
}

/// Tests all combinations of encodings, separators, line ends, decimal signs and zones: at least
/// 200 files.
#[test]
fn every_combination_of_csv_notations_is_read_correctly() {
    let mut files = 0;
    let day = yesterday("")[..10].to_owned();
    let encodings: [Encode; 5] = [
        |text| text.as_bytes().to_vec(),
        // UTF-8 with a byte order mark.
        |text| format!("\u{feff}{text}").into_bytes(),
        // Windows-1252.
        |text| text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect(),
        |text| format!("\u{feff}{text}").encode_utf16().flat_map(u16::to_le_bytes).collect(),
        |text| text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
    ];
    let times: [(&[&str], FormatTime); 4] = [
        (&[], |day| format!("{day}T10:12:47Z")),
        (&["--zone", "-03:30"], |day| format!("{day} 06:42:47")),
        (&["--zone", "Asia/Kolkata"], |day| format!("{} 15:42:47", day.replace('-', "/"))),
        (&[], |day| format!("{}.{}.{} 10:12:47", &day[8..], &day[5..7], &day[..4])),
    ];
    for encode in encodings {
        for separator in [",", ";", "\t"] {
            for (zone, time) in times {
                for end in ["\n", "\r\n"] {
                    for comma in [false, true] {
                        let number = |text: &str| match (comma, separator) {
                            (false, _) => text.to_owned(),
                            (true, ",") => format!("\"{}\"", text.replace('.', ",")),
                            (true, _) => text.replace('.', ","),
                        };
                        let names = ["Zeit", "lat", "lon", "Höhe (ft)", "speed"].join(separator);
                        let row = [
                            time(&day),
                            number("-33.5"),
                            number("151.25"),
                            number("1000.5"),
                            number("36.0"),
                        ];
                        let text = format!("{names}{end}{}{end}", row.join(separator));
                        let arguments = [
                            zone,
                            &[
                                "--field",
                                "ts=Zeit",
                                "--field",
                                "alt=Höhe (ft)",
                                "--speed-unit",
                                "km/h",
                            ],
                        ]
                        .concat();
                        check(&arguments, "a.csv", encode(&text), "-33.5 151.25 10 - 305 -");
                        files += 1;
                    }
                }
            }
        }
    }
    assert!(files >= 200, "{files}");
}

/// Returns a file of `columns` and `rows`, in which yesterday's date replaces `DAY`, `M/D/Y` and
/// `DMY`.
fn rows_of(columns: &str, rows: &str) -> String {
    let day = &yesterday("")[..10];
    let [year, month, day_of_month] = [&day[..4], &day[5..7], &day[8..]];
    let rows = rows.replace("M/D/Y", &format!("{month}/{day_of_month}/{year}"));
    format!("{columns}\n{}\n", rows.replace("DMY", &format!("{day_of_month}{month}{year}")))
        .replace("DAY", day)
}

/// A pattern states the order of the parts of a time, but not the zone.
#[test]
fn stated_zone_counts_beside_a_pattern_without_a_zone() {
    let us = "ts=%m/%d/%Y %I:%M:%S %p";
    for (arguments, columns, row, message) in [
        (
            &["--field", "ts=Time (EST)", "--unit", us][..],
            "Time (EST),lat,lon",
            "M/D/Y 10:12:47 AM,1,2",
            "as the column Time (EST) says: give --zone",
        ),
        (
            &["--field", "ts=Local Time", "--unit", us],
            "Local Time,lat,lon",
            "M/D/Y 10:12:47 AM,1,2",
            "as the column Local Time says: give --zone",
        ),
        (
            &["--unit", us],
            "Time,TimeZone,lat,lon",
            "M/D/Y 10:12:47 AM,America/New_York,1,2",
            "says America/New_York: give --zone",
        ),
        (
            &["--unit", "ts=auto"],
            "Time,TimeZone,lat,lon",
            "DAY 10:12:47,America/New_York,1,2",
            "says America/New_York: give --zone",
        ),
        (
            &["--unit", "ts=%d%m%Y%H%M%S"],
            "Time,TimeZone,lat,lon",
            "DMY101247,Europe/Berlin,1,2",
            "says Europe/Berlin: give --zone",
        ),
        (
            &["--unit", "ts=%m/%d/%Y %I:%M:%S %p EST"],
            "Time,lat,lon",
            "M/D/Y 10:12:47 AM EST,1,2",
            "EST names a zone, but is not read as one: give --zone",
        ),
        (&[], "Time,lat,lon", "M/D/Y 10:12:47 AM EST,1,2", "%I:%M:%S %p EST\\\", with a --zone"),
        (
            &["--zone", "America/New_York"],
            "Time,lat,lon",
            "M/D/Y 05:12:47 AM EST,1,2",
            "%I:%M:%S %p EST\\\", with a --zone",
        ),
    ] {
        check_refused(arguments, "a.csv", rows_of(columns, row), message);
    }
    for (arguments, columns, row) in [
        (&["--unit", us][..], "Time,lat,lon", "M/D/Y 10:12:47 AM,1,2"),
        (&["--unit", us], "Time,tz,lat,lon", "M/D/Y 10:12:47 AM,UTC,1,2"),
        (
            &["--unit", "ts=%m/%d/%Y %H:%M:%S %z"],
            "Time,tz,lat,lon",
            "M/D/Y 11:12:47 +0100,Europe/Berlin,1,2",
        ),
        (
            &["--unit", "ts=%m/%d/%Y %H:%M:%S UTC"],
            "Time,tz,lat,lon",
            "M/D/Y 10:12:47 UTC,Europe/Berlin,1,2",
        ),
        (
            &["--unit", "ts=%m/%d/%Y %H:%M:%S GMT+1"],
            "Time,tz,lat,lon",
            "M/D/Y 11:12:47 GMT+1,Europe/Berlin,1,2",
        ),
        (
            &["--unit", "ts=%m/%d/%Y %H:%M:%S JST", "--zone", "Asia/Tokyo"],
            "Time,lat,lon",
            "M/D/Y 19:12:47 JST,1,2",
        ),
    ] {
        check(arguments, "a.csv", rows_of(columns, row), "1 2 - - - -");
    }
}

/// Namespaces of other programs may begin with `osm`.
#[test]
fn osmand_gpx_is_not_openstreetmap_data() {
    let ts = yesterday("10:12:47Z");
    let gpx = format!(
        "<?xml version='1.0'?>\n<!-- <osm> --><gpx xmlns:osmand='https://osmand.net'><trk><trkseg>\
         <trkpt lat=\"1\" lon=\"2\"><time>{ts}</time><extensions><osmand:speed>3.5</osmand:speed>\
         </extensions></trkpt></trkseg></trk></gpx>"
    );
    check(&[], "a.gpx", gpx, "1 2 3.5 - - -");
    for osm in ["<?xml version='1.0'?>\n<osm version='0.6'>", "<osm>", "<osmChange version='1'>"] {
        check_refused(&[], "a.gpx", osm, "it is OpenStreetMap data");
    }
}

/// A time without an offset is UTC only in GPX and CSV.
#[test]
fn times_without_an_offset_are_refused_in_tcx_kml_and_timeline() {
    let ts = yesterday("10:12:47");
    let tcx = format!(
        "<TrainingCenterDatabase><Activities><Activity><Lap><Track><Trackpoint><Time>{ts}</Time>\
         <Position><LatitudeDegrees>1</LatitudeDegrees><LongitudeDegrees>2</LongitudeDegrees>\
         </Position></Trackpoint></Track></Lap></Activity></Activities></TrainingCenterDatabase>"
    );
    let kml = format!(
        "<kml><Placemark><TimeStamp><when>{ts}</when></TimeStamp><Point><coordinates>2,1\
         </coordinates></Point></Placemark></kml>"
    );
    let timeline = format!(
        r#"{{"locations":[{{"latitudeE7":10000000,"longitudeE7":20000000,"timestamp":"{ts}"}}]}}"#
    );
    for (name, file) in [("a.tcx", &tcx), ("a.kml", &kml), ("a.json", &timeline)] {
        check_refused(&[], name, file, "has no zone: name it with --zone");
        check(&["--zone", "Z"], name, file, "1 2 - - - -");
        check(&[], name, file.replace(&ts, &format!("{ts}Z")), "1 2 - - - -");
        check(
            &[],
            name,
            file.replace(&ts, &ts.replace('T', " ")).replace(":47", ":47 +00:00"),
            "1 2 - - - -",
        );
    }
    let gpx = format!("<gpx><trkpt lat='1' lon='2'><time>{ts}</time></trkpt></gpx>");
    check(&[], "a.gpx", &gpx, "1 2 - - - -");
    let result = import("", &["--driver", "d7"], "a.gpx", gpx.as_bytes()).unwrap();
    let read = result["understood"][0]["read"].to_string();
    assert!(read.contains("ts = time (without an offset: Z)"), "{read}");
}

/// Returns the number of positions, and the details of the rejects or the error.
fn outcome(arguments: &[&str], file: &str) -> (u64, String) {
    match import("", &[&["--driver", "d7"], arguments].concat(), "a.csv", file.as_bytes()) {
        Ok(result) => (result["positions"].as_u64().unwrap(), result["details"].to_string()),
        Err(why) => (0, why),
    }
}

/// A zone, AM or PM, or a hemisphere in an unread column is checked in each row: one of the first
/// rows makes `import` refuse the file; a later row is rejected.
#[test]
fn unread_columns_that_change_a_value_are_checked_in_each_row() {
    for (arguments, columns, usual, other, message) in [
        (
            &[][..],
            "time,tz,lat,lon",
            "DAY 09:00:00,+00:00,1,2",
            "DAY 10:00:10,+01:00,1,2",
            "its column tz, which is not read, says +01:00: give --zone",
        ),
        (
            &[],
            "time,timezone,lat,lon",
            "DAY 09:00:00,UTC,1,2",
            "DAY 10:00:10,Europe/Berlin,1,2",
            "its column timezone, which is not read, says Europe/Berlin: give --zone",
        ),
        (
            &["--field", "ts=Local Time"],
            "Local Time,lat,lon",
            "DAYT09:00:00Z,1,2",
            "DAYT10:00:10,1,2",
            "as the column Local Time says: give --zone",
        ),
        (
            &[],
            "Date,Time,AM/PM,lat,lon",
            "DAY,9:00:00,AM,1,2",
            "DAY,9:00:10,PM,1,2",
            "its column AM/PM, which is not read, says PM: join it with the time in one column",
        ),
        (
            &[],
            "Date,Time,ap,lat,lon",
            "DAY,9:00:00,a.\u{a0}m.,1,2",
            "DAY,9:00:10,p.\u{a0}m.,1,2",
            "its column ap, which is not read, says p.\u{a0}m.: join it",
        ),
        (
            &[],
            "Date,Time,x,lat,lon",
            "DAY,9:00:00,上午,1,2",
            "DAY,9:00:10,下午,1,2",
            "its column x, which is not read, says 下午: join it",
        ),
        (
            &[],
            "time,Latitude (S),Longitude (W)",
            "DAY 09:00:00,,",
            "DAY 09:00:00,33.5,70.4",
            "its column Latitude (S) says south, and 33.5 has no sign: give --unit lat='-1 deg'",
        ),
        (
            &[],
            "time,lat,q1,lon,q2",
            "DAY 09:00:00,,,,",
            "DAY 09:00:00,33.5,S,70.4,W",
            "column q1, which is not read, says S, and 33.5 has no sign: give --field \
             lat_hemisphere='q1'",
        ),
        (
            &[],
            "time,lat,lat_ref,lon",
            "DAY 09:00:00,,,",
            "DAY 09:00:00,33.5,S,70.4",
            "column lat_ref, which is not read, says S, and 33.5 has no sign: give --field \
             lat_hemisphere='lat_ref'",
        ),
    ] {
        for before in [1, 150] {
            let file = rows_of(columns, &format!("{}{other}", format!("{usual}\n").repeat(before)));
            let (positions, why) = outcome(arguments, &file);
            let is_fix = !usual.contains(",,");
            let expected = if before == 150 && is_fix { 150 } else { 0 };
            // With few rows, a hemisphere that is named after its coordinate is read.
            if before == 1 && columns.contains("lat_ref") {
                assert_eq!(positions, 1, "{columns}: {why}");
                continue;
            }
            assert_eq!(positions, expected, "{columns}: {why}");
            let why = if before == 150 { why.replace("another row", "its row") } else { why };
            assert!(why.contains(message), "{columns}, {before}: {why}");
        }
    }
    for (columns, rows, expected) in [
        ("time,tz,lat,lon", "DAY 09:00:00Z,UTC,1,2\nDAY 10:00:00+01:00,Europe/Berlin,1,2", 2),
        // The hours are those of a 24-hour clock, so PM does not change them.
        ("Date,Time,AM/PM,lat,lon", "DAY,09:00:00,AM,1,2\nDAY,21:00:10,PM,1,2", 2),
        ("time,shift,lat,lon", "DAY 09:00:00,AM,1,2\nDAY 12:30:00,PM,1,2", 2),
        ("time,status,lat,lon", "DAY 12:00:00,A,1,2", 1),
        ("time,half,lat,lon", "DAY 9:00:00 PM,PM,1,2", 1),
        ("time,offset,lat,lon", "DAY 09:00:00,0,1,2\nDAY 09:00:01,0.04,1,2", 2),
        ("time,zone,lat,lon", "DAY 09:00:00,,1,2\nDAY 12:30:00,Depot 7,1,2", 2),
        // The numbers have a sign, or the hemisphere is north or east: nothing would change.
        ("time,lat,q1,lon,q2", "DAY 09:00:00,33.5,N,70.4,E", 1),
        ("time,Latitude (S),Longitude (W)", "DAY 09:00:00,-33.5,-70.4", 1),
        ("time,Latitude (S),Longitude (W)", "DAY 09:00:00,33.5° S,W 70.4", 1),
    ] {
        let (positions, why) = outcome(&[], &rows_of(columns, rows));
        assert_eq!(positions, expected, "{columns}: {why}");
    }
    for name in
        ["timezone_offset", "utc_offset_minutes", "utc offset (h)", "tz_name", "Zeitzone", "GPS TZ"]
    {
        let file = rows_of(&format!("time,{name},lat,lon"), "DAY 09:00:00,7,1,2");
        let (_, why) = outcome(&[], &file);
        assert!(why.contains("says 7: give --zone"), "{name}: {why}");
    }
}

#[test]
fn row_that_states_another_unit_is_rejected() {
    for name in ["speed_unit", "SPEED_UNIT", "SPEED UNITS"] {
        let columns = format!("time,lat,lon,SPEED,{name}");
        for (unit, expected) in [("mph", 0), ("km/h", 1)] {
            let file = rows_of(&columns, &format!("DAY 09:00:00,1,2,43,{unit}"));
            let (positions, why) = outcome(&["--speed-unit", "km/h"], &file);
            assert_eq!(positions, expected, "{name} {unit}: {why}");
            assert!(expected > 0 || why.contains("says mph, but speed"), "{name}: {why}");
        }
    }
    for (name, value, expected) in [
        ("isMetric", "false", 0),
        ("isMetric", "true", 1),
        ("imperial", "1", 0),
        ("metric", "0", 1),
    ] {
        let columns = format!("time,lat,lon,speed,{name}");
        let file = rows_of(&columns, &format!("DAY 09:00:00,1,2,43,{value}"));
        let (positions, why) = outcome(&["--speed-unit", "km/h"], &file);
        assert_eq!(positions, expected, "{name} {value}: {why}");
        assert!(expected > 0 || why.contains("says imperial (mph)"), "{name}: {why}");
    }
}

#[test]
fn west_in_a_column_name_needs_signed_numbers() {
    for (arguments, columns, row, message) in [
        (&[][..], "time,Latitude (N),Longitude (W)", "33.5°,70.4°", "says west, and 70.4° has"),
        (&[], "time,Latitude (N),Longitude (W)", "33°30',70°24'", "says west, and 70°24' has"),
        (&["--field", "lng=LonW"], "time,lat,LonW", "33.5,70.4", "LonW says west"),
        (&[], "time,lat,LonW", "33.5,70.4", "LonW says west"),
        (&[], "time,lat,LONW", "33.5,70.4", "LONW says west"),
        (&[], "time,lat,West Longitude", "33.5,70.4", "West Longitude says west"),
        (&[], "time,lat,westLongitude", "33.5,70.4", "westLongitude says west"),
        (
            &["--field", "lng=Longitude W (deg)"],
            "time,lat,Longitude W (deg)",
            "33.5,70.4",
            "says west",
        ),
        // A row of units may state the hemisphere, too.
        (&[], "time,lat,lon", "deg S,deg W\nDAY 10:12:47,33.5,70.4", "says south, and 33.5 has"),
        (&[], "time,lat,Longitude (W)", "33.5,7024.0", "give --unit lng='-ddmm.mmmm' to make"),
    ] {
        let time = if row.starts_with("deg") { "" } else { "DAY 10:12:47" };
        let file = rows_of(columns, &format!("{time},{row}"));
        check_refused(arguments, "a.csv", file, message);
    }
}

#[test]
fn minutes_in_another_column_are_refused_under_any_name() {
    for (arguments, columns, row, message) in [
        (&[][..], "time,lat,lat m,lon,lon m", "52,30,13,24", "lat m has its minutes"),
        (
            &["--field", "lat=Breite Grad", "--field", "lng=Länge Grad"],
            "time,Breite Grad,Breite Min,Länge Grad,Länge Min",
            "52,30,13,24",
            "Breite Min has its minutes",
        ),
        (&[], "time,lat,lat ',lon,lon '", "52,30,13,24", "lat ' has its minutes"),
    ] {
        check_refused(
            arguments,
            "a.csv",
            rows_of(columns, &format!("DAY 10:12:47,{row}")),
            message,
        );
    }
    for row in ["1.5,2.5,7", "1,2,5820000"] {
        let metres = rows_of("time,lat,lon,lat m", &format!("DAY 10:12:47,{row}"));
        let expected = row.split(',').take(2).collect::<Vec<_>>().join(" ");
        check(&[], "a.csv", metres, &format!("{expected} - - - -"));
    }
}

/// If a file has two columns of times, `import` reads the column whose name says UTC.
#[test]
fn date_and_time_in_utc_are_preferred_to_local_times() {
    let row = "DAY,DAY,10:12:47,1,2".replacen("DAY", "2001-01-01", 1);
    check(&[], "a.csv", rows_of("Date,UTC Date,UTC Time,lat,lon", &row), "1 2 - - - -");
    let row = "2001-01-01,03:00:00,DAY,10:12:47,1,2";
    for columns in
        ["Date,Time,UTC Date,UTC Time,lat,lon", "Date,Time,Date (UTC),Time (UTC),lat,lon"]
    {
        check(&[], "a.csv", rows_of(columns, row), "1 2 - - - -");
    }
    let one_date = rows_of("Date,Time,UTC Time,lat,lon", "DAY,03:00:00,10:12:47,1,2");
    let message = "Time (03:00:00) and UTC Time (10:12:47) name two times";
    check_refused(&[], "a.csv", &one_date, message);
    check(&["--field", "ts=Date+UTC Time"], "a.csv", &one_date, "1 2 - - - -");
    let with_zone = rows_of("time,utc_time,lat,lon", "DAYT10:12:47Z,10:12:47,1,2");
    check(&[], "a.csv", with_zone, "1 2 - - - -");
}

/// A program may begin to write offsets in the middle of a file, for example after an update.
#[test]
fn offset_after_times_without_one_ends_the_reading() {
    let rows = |first: &str, last: &str| {
        let rows = format!("{first},1,2\n").repeat(200) + &format!("{last},1,2\n{first},1,2");
        rows_of("time,lat,lon", &rows)
    };
    let read = |arguments: &[&str], file: &str| {
        let arguments = [&["--driver", "d7"], arguments].concat();
        let result = import("", &arguments, "a.csv", file.as_bytes()).unwrap();
        (result["positions"].as_u64().unwrap(), result["failures"].to_string())
    };
    let mixed = rows("DAY 10:12:47", "DAYT11:12:47+01:00");
    let (fixes, failures) = read(&[], &mixed);
    assert_eq!(fixes, 200, "{failures}");
    assert!(failures.contains("line 202: its time") && failures.contains("give --zone"));
    for (arguments, file) in [
        (&["--zone", "Z"][..], mixed),
        (&[], rows("DAY 10:12:47", "DAYT10:12:47Z")),
        (&[], rows("DAYT10:12:47Z", "DAYT11:12:47+01:00")),
    ] {
        assert_eq!(read(arguments, &file), (202, "[]".to_owned()), "{file}");
    }
    // Times without an offset after times with one are rejected, so none was read as UTC.
    let rejected = rows("DAYT11:12:47+01:00", "DAYT10:12:47");
    assert_eq!(read(&[], &rejected), (201, "[]".to_owned()));
}

/// A file may begin in winter, when London's local time is UTC, and end in summer.
#[test]
fn column_in_utc_is_compared_in_every_row() {
    let rows = |other: &[&str], count: usize| {
        let same = "DAY 10:12:47,SAME,1,2\n".replace("SAME", other[0]).repeat(count);
        same + &format!("DAY 11:12:48,{},1,2", other[1])
    };
    let unix = format!("{}Z", yesterday("10:12:47")).parse::<jiff::Timestamp>().unwrap();
    let unix = [0, 1].map(|later| (unix.as_second() + later).to_string());
    let unix = unix.each_ref().map(String::as_str);
    for (options, name, other, message) in [
        (
            ["--field", "ts=time"],
            "UTC Time",
            ["10:12:47", "10:12:48"],
            "and UTC Time (10:12:48) name two times",
        ),
        (
            ["--zone", "Z"],
            "unixtime",
            unix,
            "column unixtime, which is not read, says that it is 1 h",
        ),
    ] {
        let columns = format!("time,{name},lat,lon");
        for count in [1, 200] {
            let file = rows_of(&columns, &rows(&other, count));
            let (fixes, why) = outcome(&[], &file);
            assert_eq!(fixes, if count == 1 { 0 } else { 200 }, "{name} {count}: {why}");
            assert!(why.contains(message), "{name} {count}: {why}");
            assert_eq!(outcome(&options, &file).0, count as u64 + 1, "{name}");
        }
    }
    // One clock may have 12 hours, and a GPS clock may stand still without a fix.
    for other in ["DAY 01:00:00 PM,13:00:00", "DAY 12:30:00 AM,00:30:00", "DAY 10:15:00,10:00:00"] {
        for count in [1, 200] {
            let same = "DAY 10:12:47 AM,10:12:47,1,2\n".repeat(count);
            let file = rows_of("time,GPS time,lat,lon", &format!("{same}{other},1,2"));
            let (fixes, why) = outcome(&[], &file);
            assert_eq!(fixes, count as u64 + 1, "{other} {count}: {why}");
        }
    }
    // A column in UTC that has dates is read.
    let other = ["DAY 10:12:47", "DAY 10:12:47"];
    let file = rows_of("time,UTC time,lat,lon", &rows(&other, 1));
    let result = import("", &["--driver", "d7"], "a.csv", file.as_bytes()).unwrap();
    assert_eq!(result["understood"][0]["first"], result["understood"][0]["last"], "{result}");
}

#[test]
fn numbers_with_units_may_have_decimal_commas_and_thousands() {
    let ts = yesterday("10:12:47Z");
    for (row, expected) in [
        ("52,5;13,4;1.234,5 m", "52.5 13.4 - - 1234.5 -"),
        ("52,5;13,4;1 234 m", "52.5 13.4 - - 1234 -"),
        ("52.5;13.4;1,234.5 m", "52.5 13.4 - - 1234.5 -"),
        ("52.5;13.4;1 000 ft", "52.5 13.4 - - 304.8 -"),
    ] {
        check(&[], "a.csv", format!("ts;lat;lon;alt\n{ts};{row}\n"), expected);
    }
    for row in ["52,5°;13,4°", "52,5°N;13,4°E"] {
        let file = format!("ts;lat;lon\n{ts};{row}\n");
        check(&[], "a.csv", encoding_rs::WINDOWS_1252.encode(&file).0, "52.5 13.4 - - - -");
    }
}

/// Names of the columns, and one row; `TS` stands for the time.
type File = (&'static str, &'static str);

/// Returns a file with one row.
fn one_row((columns, row): File) -> String {
    format!("{columns}\n{}\n", row.replace("TS", &yesterday("10:12:47Z")))
}

/// Codes such as `S` and `W` in two unrelated columns are not read as hemispheres. If they may mean
/// that a number is negative, `import` refuses the file until an option says what they mean.
#[test]
fn letters_in_unrelated_columns_are_not_read_as_hemispheres() {
    for file in [
        ("time,lat,lon,state,transport", "TS,52.5,13.4,S,W"),
        ("time,lat,lon,site,line", "TS,52.5,13.4,South,West"),
        ("time,lat,lon,from,to", "TS,52.5,13.4,S,E\nTS,52.5,13.4,S,W"),
        ("time,platform,lat,lon,exit", "TS,S,52.5,13.4,W"),
        ("time,lat,lon,,", "TS,52.5,13.4,S,W"),
    ] {
        check_refused(&[], "a.csv", one_row(file), "has no sign: give --field lat_hemisphere=");
        check_refused(&[], "a.csv", one_row(file), "or --unit lat=deg if it is not");
        let result =
            import("", &["--driver", "d7", "--unit", "lat=deg"], "a.csv", one_row(file).as_bytes());
        assert_eq!(fix(&result.unwrap()), "52.5 13.4 - - - -", "{file:?}");
    }
    for (file, expected) in [
        // The letters would not change the numbers, or do not mean hemispheres.
        (("time,lat,lon,moving,fuel", "TS,-33.4,-70.6,N,E"), "-33.4 -70.6 - - - -"),
        (("time,lat,moving,lon,fuel", "TS,-33.4,N,-70.6,E"), "-33.4 -70.6 - - - -"),
        (("time,lat,lon,bound,lane", "TS,52.5,13.4,N,E"), "52.5 13.4 - - - -"),
        (("time,lat,lon,state", "TS,52.5,13.4,S"), "52.5 13.4 - - - -"),
        (("time,lat,lon,wind_from,wind_to", "TS,52.5,13.4,S,W"), "52.5 13.4 - - - -"),
        (("time,lat,lon,ns", "TS,52.5,13.4,9"), "52.5 13.4 - - - -"),
        (("time,lat,lon,NS,EW", "TS,52.5,13.4,12,3"), "52.5 13.4 - - - -"),
        // The letters are in columns without a name, next to their coordinates.
        (("time,lat,,lon,", "TS,33.5,S,70.25,W"), "-33.5 -70.25 - - - -"),
        (("time,lat,n,lon,e", "TS,33.5,S,70.25,W"), "-33.5 -70.25 - - - -"),
    ] {
        check(&[], "a.csv", one_row(file), expected);
    }
    let mixed = "TS,52.5,13.4,S,W\nTS,52.5,13.4,M,W\nTS,52.5,13.4,D,L";
    let (fixes, why) = outcome(&[], &one_row(("time,lat,lon,state,transport", mixed)));
    assert_eq!(fixes, 3, "{why}");
    // A code that appears only after the first rows is rejected, unless `--unit lat=deg` says that
    // the numbers are signed.
    let rows = format!("{}TS,52.5,13.4,S,W", "TS,52.5,13.4,,\n".repeat(150));
    let rows = rows.replace("TS", &yesterday("10:12:47Z"));
    let file = format!("time,lat,lon,state,transport\n{rows}\n");
    let (fixes, why) = outcome(&[], &file);
    assert!(fixes == 150 && why.contains("--unit lat=deg if it is not"), "{why}");
    assert_eq!(outcome(&["--unit", "lat=deg"], &file).0, 151);
}

#[test]
fn hemisphere_of_one_coordinate_needs_one_for_the_other() {
    for (file, message) in [
        (("time,lat,N/S,lon,q", "TS,33.4,S,70.7,O"), "column q, which is not read, says O"),
        (("time,lat,N/S,lon,q", "TS,33.4,S,70.7,Oeste"), "column q, which is not read, says Oeste"),
        (("time,Latitude Sud,Longitude Ouest", "TS,33.4,70.7"), "Latitude Sud says south"),
        (("time,lat,Longitude Ouest", "TS,33.4,70.7"), "Longitude Ouest says west"),
        (("time,lat,Longitude (O)", "TS,33.4,70.7"), "says O (east or west)"),
    ] {
        check_refused(&[], "a.csv", one_row(file), message);
    }
    // The decoder reads `O` as west beside `E`, or rejects it.
    for columns in ["time,lat,N/S,lon,E/O", "time,lat,lat_hem,lon,lon_hem"] {
        let file = one_row((columns, "TS,33.4,S,70.7,O"));
        let result = import("", &["--driver", "d7"], "a.csv", file.as_bytes()).unwrap();
        assert!(result["positions"] == 0 || fix(&result).starts_with("-33.4 -70.7"), "{result}");
    }
    for (file, expected) in [
        (("time,lat,N/S,lon,E/O", "TS,33.4,S,70.7,E"), "-33.4 70.7 - - - -"),
        (("time,lat,N/S,lon", "TS,33.4,S,-70.7"), "-33.4 -70.7 - - - -"),
        (("time,lat,N/S,lon", "TS,33.4,S,151.2"), "-33.4 151.2 - - - -"),
        (("time,lat,N/S,lon,state", "TS,33.4,S,151.2,NSW"), "-33.4 151.2 - - - -"),
    ] {
        check(&[], "a.csv", one_row(file), expected);
    }
}

/// A file may have thousands of columns with letters, each of which may be a hemisphere.
#[test]
fn many_columns_of_letters_take_linear_time() {
    let duration = |columns: usize| {
        let names: String = (0..columns).map(|n| format!(",c{n}")).collect();
        let row = |letter: &str| {
            format!(
                "{},52.5,13.4{}\n",
                yesterday("10:12:47Z"),
                format!(",{letter}").repeat(columns)
            )
        };
        let text = format!("time,lat,lon{names}\n{}{}", row("").repeat(20), row("S").repeat(40));
        let began = std::time::Instant::now();
        assert_eq!(outcome(&[], &text).0, 60);
        began.elapsed()
    };
    // Four times as many columns take about 4 times as long in linear time, and 16 times as long in
    // quadratic time. Another process may slow one of the two imports, so try again.
    let is_linear = || {
        let long = duration(16_000);
        assert!(long < std::time::Duration::from_secs(60), "{long:?}");
        long < duration(4_000) * 10
    };
    assert!((0..3).any(|_| is_linear()), "the import took more than linear time three times");
}

/// A format of the configuration says where the fields are. The checks still read the other
/// columns.
#[test]
fn format_of_the_configuration_checks_each_row() {
    let ts = yesterday("10:12:47");
    let format = |lines: &str| {
        format!("[formats.f]\nimport = true\nts = '/t'\nts_unit = 'rfc3339'\n{lines}\n")
    };
    let places = "lat = '/lat'\nlng = '/lng'";
    let zone = format!("{places}\nts_zone = 'Z'");
    // An empty `message`: the row is read.
    let refused = |toml: &str, arguments: &[&str], columns: &str, row: &str, message: &str| {
        let file = format!("{columns}\n{}\n", row.replace("TS", &ts));
        let all = [&["--driver", "d7", "--format", "f"], arguments].concat();
        let why = match import(&format(toml), &all, "a.csv", file.as_bytes()) {
            Ok(result) => {
                assert!(result["positions"] == 0 || message.is_empty(), "{file}\n{result}");
                result["details"].to_string()
            }
            Err(why) => why,
        };
        assert!(why.contains(message) && (message.is_empty() == (why == "{}")), "{file}: {why}");
    };
    refused(places, &[], "t,lat,lat_min,lng,lng_min", "TSZ,52,31.2,13,24.3", "52°30'36");
    refused(&zone, &[], "t,tz,lat,lng", "TS,Europe/Berlin,52.5,13.4", "says Europe/Berlin: give");
    refused(&zone, &["--zone", "Z"], "t,tz,lat,lng", "TS,Europe/Berlin,52.5,13.4", "");
    refused(&zone, &[], "t,tz,lat,lng", "TS,UTC,52.5,13.4", "");
    let utc: jiff::Timestamp = format!("{ts}Z").parse().unwrap();
    let row = format!("TS,{},52.5,13.4", utc.as_second() + 3_600);
    refused(&zone, &[], "t,epoch,lat,lng", &row, "or in [formats.f] set ts='/epoch'");
    let berlin = format!("{places}\nts_zone = 'Europe/Berlin'");
    refused(&berlin, &[], "t,tz,lat,lng", "TS,Europe/Berlin,52.5,13.4", "");
    refused(
        &berlin,
        &[],
        "t,tz,lat,lng",
        "TS,America/New_York,52.5,13.4",
        "given as Europe/Berlin",
    );
    let offset = format!("{places}\nts_zone = '+01:00'");
    refused(&offset, &[], "t,tz,lat,lng", "TS,+01:00,52.5,13.4", "");
    let west = "lat = '/lat'\nlng = '/Longitude (W)'";
    let row = "TSZ,52.5,70.6693";
    refused(west, &[], "t,lat,Longitude (W)", row, "lng_unit='-1 deg'");
    refused(west, &["--unit", "lng=deg"], "t,lat,Longitude (W)", row, "");
    refused(
        &format!("{west}\nlat_unit = 'deg'\nlng_unit = '-1 deg'"),
        &[],
        "t,lat,Longitude (W)",
        row,
        "",
    );
    let pm = "DAY 10:15:07,PM,52.5,13.4".replace("DAY", &ts[..10]);
    refused(&zone, &[], "t,AM/PM,lat,lng", &pm, "says PM: join it");
    refused(places, &[], "t,lat,lng,ns2,q", "TSZ,52.5,13.4,S,W", "set lat_hemisphere='/ns2'");
    let toml = format(&format!("{places}\nalt = '/alt'\nalt_unit = 'm'"));
    for (row, expected) in [("52,5;13,4;1.234,5", "52.5 13.4"), ("52.5;13.4;1,234.5", "52.5 13.4")]
    {
        let file = format!("t;lat;lng;alt\n{ts}Z;{row}\n");
        let result = import(&toml, &["--driver", "d7", "--format", "f"], "a.csv", file.as_bytes());
        assert_eq!(fix(&result.unwrap()), format!("{expected} - - 1234.5 -"));
    }
}

/// The zone of the times may be in another column, in the name of their column or in a row of
/// units.
#[test]
fn zone_is_found_wherever_a_file_states_it() {
    for (name, value) in [
        ("offset_minutes", "60"),
        ("zone_offset", "+01:00"),
        ("time_offset", "60"),
        ("local_offset", "3600"),
        ("gmt", "+1"),
        ("UTC diff", "1"),
        ("tzOffsetMin", "60"),
        ("ianaZone", "Europe/Berlin"),
        ("fuseau", "Europe/Paris"),
        ("where", "+05:30"),
        ("dst", "1"),
    ] {
        let file = rows_of(&format!("time,{name},lat,lon"), &format!("DAY 11:12:47,{value},1,2"));
        check_refused(&[], "a.csv", file, "give --zone");
    }
    for (name, value) in [
        ("offset", "0"),
        ("offset_x", "1.5"),
        ("antenna_offset", "1"),
        ("time_offset", "0.5"),
        ("time_offset", "0\nDAY 10:12:48,1,1,2\nDAY 10:12:49,2,1,2"),
        ("zone", "7"),
        ("dst", "120.5"),
        ("dst", "0"),
        ("road", "A/B"),
        ("unit", "km/h"),
        ("platz", "LTE"),
        ("gmt", "10:12:47.5"),
        ("utc_offset", "0"),
        ("delay", "+00:05"),
    ] {
        let file = rows_of(&format!("time,{name},lat,lon"), &format!("DAY 10:12:47,{value},1,2"));
        let (fixes, why) = outcome(&[], &file);
        assert!(fixes > 0, "{name}: {why}");
    }
    for name in [
        "Time (MEZ)",
        "Time (MESZ)",
        "Time (Europe/Berlin)",
        "Time (America/New_York)",
        "Time (+01:00)",
        "Time (+0100)",
        "Time (GMT1)",
        "Time (UTC +1)",
        "Time (SAST)",
        "Time (ART)",
        "Time (HKT)",
        "Time (EAT)",
        "Pacific Time",
        "Ortszeit",
        "Zeit lokal",
        "Heure locale",
        "Lokalzeit",
        "localTimestamp",
        "LocalDateTime",
        "timeLocal",
        "time_local",
        "Time [Asia/Kolkata]",
        "time_utc+2",
        "Time UTC-05:00",
        "timestamp_berlin",
        "Time Berlin",
        "timeNewYork",
        "heure_paris",
        "Datum-Zeit Zurich",
        "hora_sao_paulo",
        "fecha y hora Mexico City",
        "date_time_los_angeles",
        "Time: Buenos Aires",
    ] {
        let field = format!("ts={name}");
        let file = rows_of(&format!("{name},lat,lon"), "DAY 11:12:47,1,2");
        check_refused(&["--field", &field], "a.csv", file, "give --zone");
    }
    for name in [
        "Time (UTC)",
        "Time (GMT)",
        "time (s)",
        "localisation_time",
        "location_time",
        "Time (RTC)",
        "Time (UTC+0)",
        "time-2",
        "event_time",
        "Time (HH:MM:SS)",
        "last time",
        "time_utc",
        "GPS-Time",
        "Art der Zeit",
        "time_center",
        "Time Wake",
        "data_nome",
        "date_easter",
        "heure_reunion",
        "timestamp_canary",
        "time_general",
        "berlin_time_start",
        "Time Berlin Mitte",
        "paris",
    ] {
        let field = format!("ts={name}");
        let file = rows_of(&format!("{name},lat,lon"), "DAY 10:12:47,1,2");
        check(&["--field", &field], "a.csv", file, "1 2 - - - -");
    }
    for unit in ["CET", "local", "GMT+1", "UTC+01:00", "(Europe/Berlin)"] {
        let file = rows_of("time;lat;lon", &format!("{unit};deg;deg\nDAY 11:12:47;1;2"));
        check_refused(&[], "a.csv", file, "give --zone");
    }
    for unit in ["UTC", "GMT", "yyyy-mm-dd hh:mm:ss", "text", ""] {
        let file = rows_of("time;lat;lon", &format!("{unit};deg;deg\nDAY 10:12:47;1;2"));
        let (fixes, why) = outcome(&[], &file);
        assert_eq!(fixes, 1, "{unit}: {why}");
    }
}

/// Unix times beside times without a zone show the offset of these times from UTC.
#[test]
fn unread_unix_time_that_contradicts_the_times_refuses_the_file() {
    let utc: jiff::Timestamp = format!("{}Z", yesterday("10:12:47")).parse().unwrap();
    let unix = utc.as_second();
    let row = |clock: &str, unix: String| format!("DAY {clock},{unix},1,2");
    for (name, clock, unix, message) in [
        ("unixtime", "05:12:47", format!("{unix}"), "says that they are 5 h behind UTC"),
        ("epoch", "11:12:47", format!("{unix}"), "column epoch says that they are 1 h ahead of"),
        ("timestamp_ms", "11:12:47", format!("{unix}000"), "1 h ahead of UTC"),
        ("gps_time_ms", "15:57:47", format!("{unix}123"), "5 h 45 min ahead of UTC"),
        ("Unix Time (s)", "10:42:47", format!("{unix}.4"), "30 min ahead of UTC"),
        ("utcTimeMillis", "06:42:47", format!("{unix}999"), "3 h 30 min behind UTC"),
        ("epoch_us", "11:12:47", format!("{unix}000000"), "1 h ahead of UTC"),
        ("ts", "11:12:47", format!("{unix}"), "give --zone, or give --field ts='ts'"),
    ] {
        let file = rows_of(&format!("datetime,{name},lat,lon"), &row(clock, unix));
        let ts = ["--field", "ts=datetime"];
        check_refused(&ts, "a.csv", &file, message);
        check_refused(&ts, "a.csv", &file, "its times have no zone, and its column ");
        assert_eq!(outcome(&[&ts[..], &["--zone", "Z"]].concat(), &file).0, 1, "{name}");
    }
    // Date and time in two columns, and a time that a pattern reads.
    let joined = rows_of("Date,Time,epoch,lat,lon", &format!("DAY,11:12:47,{unix},1,2"));
    check_refused(&[], "a.csv", joined, "1 h ahead of UTC: give --zone");
    let (year, month, day) =
        (&utc.to_string()[..4], &utc.to_string()[5..7], &utc.to_string()[8..10]);
    let file =
        |clock: &str| format!("time,epoch,lat,lon\n{day}/{month}/{year} {clock},{unix},1,2\n");
    let pattern = ["--unit", "ts=%d/%m/%Y %I:%M:%S %p"];
    check_refused(&pattern, "a.csv", file("09:12:47 AM"), "1 h behind UTC: give --zone");
    check(&pattern, "a.csv", file("10:12:47 AM"), "1 2 - - - -");
    // These files are read: the Unix times agree with UTC, no offset of a zone fits all rows, or
    // the column's name is not that of the fixes' times.
    let later = unix + 3_600;
    for (name, values) in [
        ("unixtime", vec![unix]),
        ("unixtime", vec![unix - 2]),
        ("unixtime", vec![unix - 18]),
        ("gps_time_ms", vec![unix * 1_000 + 18_000]),
        ("unixtime", vec![unix + 61]),
        ("unixtime", vec![later, unix + 7]),
        ("unixtime", vec![later, later + 7_200]),
        ("unixtime", vec![unix + 15 * 3_600]),
        ("unixtime", vec![0]),
        ("time_id", vec![later]),
        ("expires_at", vec![later]),
        ("valid_until_unixtime", vec![later]),
        ("eta_timestamp", vec![later]),
        ("next_stop_epoch", vec![later]),
        ("start_time", vec![later]),
        ("session_timestamp", vec![later]),
        ("odometer", vec![later]),
    ] {
        let rows: Vec<_> = values.iter().map(|unix| row("10:12:47", unix.to_string())).collect();
        let file = rows_of(&format!("datetime,{name},lat,lon"), &rows.join("\n"));
        let (fixes, why) = outcome(&[], &file);
        assert!(fixes > 0, "{name} {values:?}: {why}");
    }
    let zoned = rows_of("datetime,epoch,lat,lon", &format!("DAYT10:12:47Z,{later},1,2"));
    check(&[], "a.csv", zoned, "1 2 - - - -");
}

#[test]
fn rows_of_another_zone_than_the_given_one_are_rejected() {
    let rows = "DAY 11:12:47,Europe/Berlin,1,2\nDAY 11:12:47,America/New_York,1,2";
    let berlin = ["--zone", "Europe/Berlin"];
    check_refused(&berlin, "a.csv", rows_of("time,tz,lat,lon", rows), "says America/New_York");
    for (zone, stated) in [
        ("Europe/Berlin", "Europe/Berlin"),
        ("Europe/Berlin", "Europe/Vienna"),
        ("Europe/Berlin", "CET"),
        ("Europe/Berlin", ""),
        ("+01:00", "Europe/Berlin"),
    ] {
        let file = rows_of("time,tz,lat,lon", &format!("DAY 11:12:47,{stated},1,2"));
        check(&["--zone", zone], "a.csv", file, "1 2 - - - -");
    }
    // An offset in one row does not mean that a row without an offset is in UTC.
    let mixed = rows_of("time,lat,lon", "DAYT11:12:47+01:00,1,2\nDAYT11:12:47,1,2");
    check_refused(&[], "a.csv", mixed, "has no offset, and others have one, such as");
    for rows in ["DAYT10:12:47Z,1,2\nDAYT10:12:48,1,2", "DAYT10:12:47+00:00,1,2\nDAYT10:12:48,1,2"]
    {
        assert_eq!(outcome(&[], &rows_of("time,lat,lon", rows)).0, 2, "{rows}");
    }
}

#[test]
fn gps_time_is_preferred_to_the_phone_clock() {
    for (columns, row) in [
        ("Date,Time,GPS Date,GPS Time,lat,lon", "DAY,11:12:47,DAY,10:12:47,1,2"),
        ("timestamp,gps_timestamp,lat,lon", "DAY 11:12:47,DAY 10:12:47,1,2"),
        ("gps_timestamp,lat,lon", "DAY 10:12:47,1,2"),
        // The column `time` counts from a start, so it is not combined with the date.
        ("date,time,datetime,lat,lon", "DAY,00:00:10,DAY 10:12:47,1,2"),
        // This `gps_time` counts the seconds of the week.
        ("time,gps_time,lat,lon", "DAY 10:12:47,382507.5,1,2"),
        ("time,gps_time,lat,lon", "DAY 10:12:47,10:12:47,1,2"),
        ("date,time,gps_time,lat,lon", "DAY,10:12:47,10:12:46,1,2"),
        ("time,GPS Time,lat,lon", "DAY 10:12:47,101246.5,1,2"),
    ] {
        check(&[], "a.csv", rows_of(columns, row), "1 2 - - - -");
    }
    let different_times = rows_of("time,GPS Time,lat,lon", "DAY 11:12:47,10:12:47,1,2");
    check_refused(&[], "a.csv", different_times, "name two times");
}

#[test]
fn column_of_meridiems_may_have_single_letters() {
    for name in ["AMPM", "AM/PM", "M", "meridiem"] {
        let file = rows_of(&format!("Date,Time,{name},lat,lon"), "DAY,9:00:00,P,1,2");
        check_refused(&[], "a.csv", file, "says P: join it with the time");
    }
    for (name, letter) in [("AMPM", "A"), ("status", "A"), ("status", "P"), ("lamp", "P")] {
        let file =
            rows_of(&format!("Date,Time,{name},lat,lon"), &format!("DAY,9:00:00,{letter},1,2"));
        assert_eq!(outcome(&[], &file).0, 1, "{name} {letter}");
    }
}

/// A cell that is not a number does not change the notation of the row's other numbers.
#[test]
fn one_unreadable_cell_does_not_reject_a_row_with_decimal_commas() {
    let ts = yesterday("10:12:47Z");
    for (row, expected) in [
        ("52,5;13,4;n.a.", "52.5 13.4 - - - -"),
        ("52,5;13,4;k. A.", "52.5 13.4 - - - -"),
        ("52,5;13,4;34 ü.d.M.", "52.5 13.4 - - - -"),
        ("52,5;13,4;.", "52.5 13.4 - - - -"),
        ("52,5;13,4;5.0", "52.5 13.4 - - - -"),
        ("52,5;13,4;1.234", "52.5 13.4 - - - -"),
        ("52,5;13,4;1.000 ft", "52.5 13.4 - - - -"),
        ("52,5;13,4;1.234.567,5", "52.5 13.4 - - - -"),
        ("52.5;13.4;34,5", "52.5 13.4 - - - -"),
        ("52.5;13.4;34.5", "52.5 13.4 - - 34.5 -"),
        ("52,5;13,4;34,5", "52.5 13.4 - - 34.5 -"),
        ("52;13;34,5", "52 13 - - 34.5 -"),
    ] {
        check(&[], "a.csv", format!("ts;lat;lon;alt\n{ts};{row}\n"), expected);
    }
}

#[test]
fn geojson_with_keys_of_a_timeline_file_is_read() {
    let ts = yesterday("10:12:47Z");
    let feature = feature_at("2,1", &format!(r#""ts":"{ts}","latitudeE7":10000000"#));
    let file = format!(r#"{{"type":"FeatureCollection","features":[{feature}]}}"#);
    for arguments in [&["--speed-unit", "m/s"][..], &["--speed-unit", "m/s", "--format", "geojson"]]
    {
        check(arguments, "a.json", &file, "1 2 - - - -");
    }
    let gpx = format!(
        "<!-- <kml> --><gpx><name><![CDATA[<kml>]]></name><trk><trkseg><trkpt lat='1' lon='2'>\
         <time>{ts}</time></trkpt></trkseg></trk></gpx>"
    );
    check(&[], "k.gpx", gpx, "1 2 - - - -");
    let moving = r#"{"type":"FeatureCollection","features":[{"type":"Feature","geometry":null,
                    "temporalGeometry":{"coordinates":[[2,1]]},"properties":{}}]}"#;
    let unit = ["--driver", "d7", "--speed-unit", "m/s"];
    let result = import("", &unit, "m.geojson", moving.as_bytes()).unwrap();
    let warnings = result["understood"][0]["warnings"].to_string();
    assert!(warnings.contains("none of the 1 objects in the file has a fix"), "{result}");
    check_refused(&[], "a.csv", r#"[{"lat": 52.5, "lon": 13.4}]"#, "it is JSON, not CSV");
}

#[test]
fn names_may_have_line_ends_and_invisible_characters() {
    let ts = yesterday("10:12:47Z");
    for (head, row) in [
        ("\"Time\n(UTC)\",\"lat\",\"lon\"", "TS,1,2"),
        ("time,\"Latitude\r\n(deg)\",\"Longitude\r\n(deg)\"", "TS,1,2"),
        ("time,lat\u{200b},lon\u{a0}", "TS,1,2"),
        ("time,lat:,lon*", "TS,1,2"),
        ("time,`lat`,‘lon’", "TS,1,2"),
        ("'time','lat','lon'", "TS,1,2"),
        ("time,lat,lon", "TS,\u{200e}1,\u{202a}2\u{202c}"),
        ("time\u{feff},lat,lon", "TS\u{200b},1,2"),
    ] {
        let field: &[&str] = if head.contains("UTC") { &["--field", "ts=Time (UTC)"] } else { &[] };
        check(field, "a.csv", format!("{head}\n{}\n", row.replace("TS", &ts)), "1 2 - - - -");
    }
    let open = format!("time,lat,\"lon\n{ts},1,2\n{ts},1,2\n");
    check_refused(&[], "a.csv", open, "a quote in the first row is never closed");
}

#[test]
fn driver_ids_that_pandas_wrote_as_floats_are_whole_numbers() {
    let ts = yesterday("10:12:47Z");
    for (ids, expected) in [
        (["356307042441013.0", "356307042441013.0"], "356307042441013"),
        (["7.0", "8.0"], "7"),
        (["7", "8.0"], "7"),
        (["v1.0", "v2.0"], "v1.0"),
        (["1.0", "1.5"], "1.0"),
    ] {
        let file = format!("imei,time,lat,lon\n{},{ts},1,2\n{},{ts},1,2\n", ids[0], ids[1]);
        let result = import("", &["--driver", "/imei"], "a.csv", file.as_bytes()).unwrap();
        assert_eq!(result["understood"][0]["example"]["driver_id"], expected, "{ids:?}");
    }
}

/// The error states what would work, not only that a column is missing.
#[test]
fn error_for_a_missing_column_names_what_the_file_has() {
    for (arguments, columns, row, message) in [
        (&[][..], "id,wkt,time", "1,POINT (13.4 52.5),TS", "its column wkt has a place as WKT"),
        (&[], "id,geom,time", "1,SRID=4326;POINT(13.4 52.5),TS", "ST_Y(geom)"),
        (&[], "id;place;time", "1;52.5,13.4;TS", "column place has both coordinates: split it"),
        (&[], "id;place;time", "1;52.5 13.4;TS", "column place has both coordinates: split it"),
        (
            &["--field", "lat=wkt", "--field", "lng=wkt"],
            "id,wkt,time",
            "1,POINT (13.4 52.5),TS",
            "lat and lng are the same column wkt",
        ),
        (
            &["--field", "lat=place", "--field", "lng=place"],
            "id;place;time",
            "1;52.5,13.4;TS",
            "each needs its own: split it into two columns",
        ),
        (&[], "year,month,day,hour,lat,lon", "2026,11,26,10,1,2", "its time is in several columns"),
        (&[], "date,hour,min,lat,lon", "2026-11-26,10,15,1,2", "its time is in several columns"),
        (&[], "week,tow,lat,lon", "2446,382507,1,2", "its time is in several columns"),
        (&[], "time,My Latitude Value,lon", "TS,1,2", "--field lat='My Latitude Value'"),
        (&[], "time,lat_dd,lon", "TS,1,2", "--field lat='lat_dd'"),
        (&[], "time,lat1,lon", "TS,1,2", "--field lat='lat1'"),
        (&[], "time,driver's lat,lon", "TS,1,2", "--field lat='driver'\\''s lat'"),
        (&[], "time,latency,lon", "TS,1,2", "give --field lat=COLUMN"),
        (&[], "time,UTM Easting,UTM Northing", "TS,391000,5818000", "metres of a projection"),
        (&[], "time,plate,lon", "TS,1,2", "give --field lat=COLUMN"),
        (&[], "time,GPS Date,lon", "TS,1,2", "give --field lat=COLUMN"),
    ] {
        check_refused(arguments, "a.csv", one_row((columns, row)), message);
    }
}

/// A speed is read with the unit in its name, or `not read` suggests the field.
#[test]
fn unit_in_a_column_name_is_read_in_any_usual_spelling() {
    for (name, value, expected) in [
        ("\"Speed, km/h\"", "36", "1 2 10 - - -"),
        ("Speed:km/h", "36", "1 2 10 - - -"),
        ("Speed(Kmph)", "36", "1 2 10 - - -"),
        ("speed_kmph", "36", "1 2 10 - - -"),
        ("speed_km_h", "36", "1 2 10 - - -"),
        ("Speed (Meters/second)", "10", "1 2 10 - - -"),
        ("Elevation (Ft.)", "1000", "1 2 - - 304.8 -"),
        ("Altitude (ft MSL)", "1000", "1 2 - - 304.8 -"),
        ("\"Altitude, m\"", "34", "1 2 - - 34 -"),
    ] {
        let file = format!("time,lat,lon,{name}\nTS,1,2,{value}\n");
        check(&[], "a.csv", file.replace("TS", &yesterday("10:12:47Z")), expected);
    }
    for (name, advice) in [
        ("GPS Speed (km/h)", "is it speed? --field speed='GPS Speed (km/h)'"),
        ("Speed (ft/s)", "is it speed?"),
        ("altitude_msl", "is it alt?"),
        ("millis", "a fraction of the time?"),
        ("time(millisecond)", "a fraction of the time?"),
    ] {
        let file =
            one_row(("time,lat,lon,", "TS,1,2,7")).replacen("lon,", &format!("lon,{name}"), 1);
        let result = import("", &["--driver", "d7"], "a.csv", file.as_bytes()).unwrap();
        let unread = result["understood"][0]["unread"].to_string();
        assert!(unread.contains(advice), "{name}: {unread}");
    }
}

/// Flags, signs and quadrants say that an unsigned number is in the south or west.
#[test]
fn other_notations_of_a_hemisphere_need_signed_numbers() {
    for (columns, values) in [
        ("lat,lat_sign,lon,lon_sign", "33.4,-1,70.7,-1"),
        ("lat,lat_sign,lon,lon_sign", "33.4,-,70.7,-"),
        ("lat,lon,quadrant", "33.4,70.7,SW"),
        ("lat,lon,hemisphere", "33.4,70.7,S W"),
        ("lat,lon,is_south,is_west", "33.4,70.7,true,true"),
        ("lat,lon,south,west", "33.4,70.7,1,1"),
        ("lat,lon,north,east", "33.4,70.7,0,0"),
        ("lat,lon,半球", "33.4,70.7,南西"),
        ("lat,lon,полушарие", "33.4,70.7,юг запад"),
    ] {
        let file = one_row_of(columns, values);
        check_refused(&[], "a.csv", &file, "write a minus before the number");
        // With `--unit lat=deg`, the fix is read, unless the decoder knows the name and rejects the
        // value.
        if outcome(&[], &file).1.contains("--unit lat=deg") {
            let (fixes, why) = outcome(&["--unit", "lat=deg"], &file);
            assert!(fixes == 1 || why.contains("wrong_type"), "{columns}: {why}");
        }
        check(
            &[],
            "a.csv",
            file.replace("33.4,", "-33.4,").replace("70.7", "-70.7"),
            "-33.4 -70.7 - - - -",
        );
    }
    for (columns, values) in [
        ("lat,lat_sign,lon,lon_sign", "33.4,1,70.7,+"),
        ("lat,lon,quadrant", "33.4,70.7,NE"),
        ("lat,lon,quadrant", "33.4,70.7,3"),
        ("lat,lon,north,east,south,west", "33.4,70.7,12,7,3,1"),
        ("lat,lon,south,west", "33.4,70.7,0,0"),
        ("lat,lon,south", "33.4,70.7,1"),
        ("lat,lon,sign", "33.4,70.7,-1"),
        ("lat,lon,半球", "33.4,70.7,北东"),
        ("lat,lon,方向", "33.4,70.7,南"),
    ] {
        check(&[], "a.csv", one_row_of(columns, values), "33.4 70.7 - - - -");
    }
}

/// Returns a file with a time and one row of other values.
fn one_row_of(columns: &str, values: &str) -> String {
    format!("time,{columns}\n{},{values}\n", yesterday("10:12:47Z"))
}

#[test]
fn value_split_over_several_columns_is_refused() {
    for (columns, values, message) in [
        ("lat,lat_frac,lon,lon_frac", "52,520008,13,404954", "lat_frac has its fraction"),
        ("lat,lat_decimal,lon,lon_decimal", "52,.52,13,.4", "lat_decimal has its fraction"),
    ] {
        check_refused(&[], "a.csv", one_row_of(columns, values), message);
    }
    check(&[], "a.csv", one_row_of("lat,lat_decimal,lon", "52.5,52.5,13.4"), "52.5 13.4 - - - -");
    for clock in ["91507", "1507", "7", "91507.5", "80000.0"] {
        let file = rows_of("date,time,lat,lon", &format!("DAY,{clock},1,2"));
        check_refused(&[], "a.csv", file, "a time of day without its leading zeros or its seconds");
    }
    for clock in ["0.333333333", "0.5", "0.0", "2.31481E-05", "\"0,425\""] {
        let file = rows_of("Date,Time,lat,lon", &format!("DAY,{clock},1,2"));
        check_refused(&[], "a.csv", file, "a fraction of a day, beside Date: format the column as");
    }
    // In these files, the column `time` counts from a start.
    for time in ["0.333333333", "91507.5"] {
        let elapsed =
            rows_of("date,time,datetime,lat,lon", &format!("DAY,{time},DAY 10:12:47,1,2"));
        check(&[], "a.csv", elapsed, "1 2 - - - -");
    }
    for clock in ["101247", "101247.0", "10:12:47.0"] {
        check(
            &[],
            "a.csv",
            rows_of("date,time,lat,lon", &format!("DAY,{clock},1,2")),
            "1 2 - - - -",
        );
    }
    let unix =
        format!("{}Z", yesterday("10:12:47")).parse::<jiff::Timestamp>().unwrap().as_second();
    let file = rows_of("date,time,lat,lon", &format!("DAY,{unix}.0,1,2"));
    check(&[], "a.csv", file, "1 2 - - - -");
    let pattern = ["--field", "ts=date+time", "--unit", "ts=%Y-%m-%d %H%M"];
    let file = rows_of("date,time,lat,lon", "DAY,1012,1,2");
    assert_eq!(outcome(&pattern, &file).0, 1, "{}", outcome(&pattern, &file).1);
    // In later rows, too: `1507` is 00:15:07 here, and must not be read as 15:07.
    for arguments in [&[][..], &["--field", "ts=date+time"]] {
        let rows = ["101247", "1507", "91507", "0"].map(|clock| format!("DAY,{clock},1,2"));
        let (fixes, why) = outcome(arguments, &rows_of("date,time,lat,lon", &rows.join("\n")));
        assert_eq!(fixes, 1, "{why}");
        assert!(why.contains("its column time has 1507, a time of day without its"), "{why}");
    }
    // A file that has kept its zeros has `hhmm`, if the operator chose these columns.
    let rows = ["0915", "1015", "0005"].map(|clock| format!("DAY,{clock},1,2"));
    let file = rows_of("date,time,lat,lon", &rows.join("\n"));
    assert_eq!(outcome(&["--field", "ts=date+time"], &file).0, 3);
    let elapsed = rows_of("date,time,datetime,lat,lon", "DAY,7,DAY 10:12:47,1,2");
    check(&[], "a.csv", elapsed, "1 2 - - - -");
    let same = ["--field", "alt=h", "--field", "acc=h"];
    check_refused(&same, "a.csv", one_row_of("lat,lon,h", "1,2,3"), "are the same column h");
    let same = ["--field", "ts=time+time"];
    check_refused(&same, "a.csv", one_row_of("lat,lon", "1,2"), "are the same column time");
}

#[test]
fn twelve_hour_clock_without_am_and_pm_causes_a_warning() {
    let warnings = |clocks: [&str; 3]| {
        let rows = clocks.map(|clock| format!("DAY {clock},52.5,13.4"));
        let file = rows_of("time,lat,lon", &rows.join("\n"));
        let result = import("", &["--driver", "d7"], "a.csv", file.as_bytes()).unwrap();
        result["understood"][0]["warnings"].to_string()
    };
    assert!(warnings(["12:58:00", "12:59:58", "01:00:02"]).contains("lost AM and PM?"));
    for clocks in [
        ["12:58:00", "12:59:58", "13:00:02"],
        ["12:58:00", "00:10:00", "00:11:00"],
        ["11:00:00", "10:59:00", "09:00:00"],
    ] {
        assert_eq!(warnings(clocks), "[]", "{clocks:?}");
    }
}

/// A FeatureCollection may state the units of all its features.
#[test]
fn unit_beside_the_features_is_not_ignored() {
    let ts = yesterday("10:12:47Z");
    let feature = feature_at("2,1", &format!(r#""ts":"{ts}","speed":10"#));
    let before = |members: &str| {
        format!("{{\"type\":\"FeatureCollection\",{members},\n\"features\":[{feature}]}}")
    };
    let after = |members: &str| {
        format!("{{\"type\":\"FeatureCollection\",\n\"features\":[{feature}],{members}}}")
    };
    for (members, message) in [
        (r#""units":"imperial""#, "units says imperial (mph), but speed is read in m/s"),
        (r#""units":{"isMetric":false}"#, "units/isMetric says imperial (mph)"),
        (r#""coordType":"gcj02""#, "coordType says gcj02, but lat and lng are read in WGS 84"),
        (r#""speed_unit":"mph""#, "speed_unit says mph"),
        (r#""properties":{"speedUnits":"km/h"}"#, "says km/h"),
        (r#""metadata":{"units":{"speed":"knots"}}"#, "says knots"),
        (r#""unit_speed":"mph""#, "give --speed-unit to import"),
        (r#""uom":"kmh""#, "says km/h"),
    ] {
        let options = ["--speed-unit", "m/s"];
        let read = import(
            "",
            &[&["--driver", "d7"][..], &options].concat(),
            "a.geojson",
            before(members).as_bytes(),
        )
        .unwrap();
        let failure = read["failures"].to_string();
        assert!(failure.contains(message) && failure.contains("line 2: "), "{members}: {failure}");
        assert_eq!(read["positions"], 0, "{members}");
        let read = import(
            "",
            &[&["--driver", "d7"][..], &options].concat(),
            "a.geojson",
            after(members).as_bytes(),
        )
        .unwrap();
        let failure = read["failures"].to_string();
        assert!(failure.contains(message), "{members}: {failure}");
        assert!(failure.contains("before it may be stored already"), "{members}: {failure}");
    }
    let alt = before(r#""units":{"speed":"m/s","alt":"ft"}"#);
    check(&["--speed-unit", "m/s"], "a.geojson", &alt, "1 2 10 - - -");
    let high = alt.replace("[2,1]", "[2,1,30]");
    check_refused(&["--speed-unit", "m/s"], "a.geojson", &high, "alt is read in m");
    check(&["--speed-unit", "m/s", "--alt-unit", "m"], "a.geojson", &alt, "1 2 10 - - -");
    let mph = ["--speed-unit", "mph", "--alt-unit", "ft"];
    check(&mph, "a.geojson", before(r#""units":"imperial""#), "1 2 4.47 - - -");
    let kept = ["--speed-unit", "m/s", "--keep", "coordType"];
    check(&kept, "a.geojson", before(r#""coordType":"gcj02""#), "1 2 10 - - -");
    for members in [
        r#""units":"metric","unit_id":"mph","name":"mph""#,
        r#""properties":{"speed_unit":"m/s"},"units":{"temperature":"F"}"#,
        r#""vehicle":{"speed_unit":"mph"},"bbox":[1,2,1,2]"#,
    ] {
        for file in [before(members), after(members)] {
            check(&["--speed-unit", "m/s"], "a.geojson", file, "1 2 10 - - -");
        }
    }
}

#[test]
fn time_scale_other_than_utc_is_refused() {
    let ts = yesterday("10:12:47Z");
    let options: &[&str] = &["--field", "ts=GPST"];
    check_refused(options, "a.csv", format!("GPST,lat,lon\n{ts},1,2\n"), "18 s ahead of it");
    let tai = format!("time (TAI),lat,lon\n{ts},1,2\n");
    check_refused(&["--field", "ts=time (TAI)"], "a.csv", tai, "37 s ahead of it");
    let commented = format!("# time system: GPS\ntime,lat,lon\n{ts},1,2\n");
    check_refused(&[], "a.csv", &commented, "the comment \"time system: GPS\"");
    for settled in [["--zone", "Z"], ["--unit", "ts=rfc3339"]] {
        check(&settled, "a.csv", &commented, "1 2 - - - -");
    }
    let row_of_units = format!("time,lat,lon\nGPST,deg,deg\n{ts},1,2\n");
    check_refused(&[], "a.csv", row_of_units, "the unit GPST of its column time");
    let times = format!("# times in GPST\ntime,lat,lon\n{ts},1,2\n");
    check_refused(&[], "a.csv", times, "the comment \"times in GPST\"");
    for comment in [
        "Real-time system: GPS tracker v2",
        "one-time system: Taiwan",
        "Time system: GPS disciplined, UTC",
        "time scale: GPS receivers in UTC",
        "time system: UTC, from GPS",
    ] {
        check(&[], "a.csv", format!("# {comment}\ntime,lat,lon\n{ts},1,2\n"), "1 2 - - - -");
    }
    let finnish = format!("aika tai aikaleima,lat,lon\n{ts},1,2\n");
    check(&["--field", "ts=aika tai aikaleima"], "a.csv", finnish, "1 2 - - - -");
    for file in [
        format!("GPS Time,lat,lon\n{ts},1,2\n"),
        format!("# time system: UTC\ntime,lat,lon\n{ts},1,2\n"),
        format!("time,GPST,lat,lon\n{ts},2446,1,2\n"),
    ] {
        check(&[], "a.csv", file, "1 2 - - - -");
    }
}

#[test]
fn option_that_contradicts_the_row_of_units_is_refused() {
    let ts = yesterday("10:12:47Z");
    let file = format!("time,lat,lon,speed,alt,acc\nUTC,deg,deg,knots,ft,m\n{ts},1,2,10,100,5\n");
    for options in [["--speed-unit", "km/h"], ["--alt-unit", "m"], ["--unit", "acc=ft"]] {
        check_refused(&options, "a.csv", &file, "the row of units below the names states");
    }
    for options in [
        &[][..],
        &["--speed-unit", "knots", "--alt-unit", "ft", "--unit", "acc=m", "--unit", "lat=deg"],
    ] {
        check(options, "a.csv", &file, "1 2 5.14 - 30.5 5");
    }
    let file = format!("time,lat,lon\nUTC,deg,deg\n{ts},100.5,230\n");
    check(&["--unit", "lat=ddmm.mmmm"], "a.csv", &file, "1.0083333 2.5 - - - -");
    let file = format!("time,lat,lon\nUTC,deg,deg\n{ts},1,2\n");
    check(&["--unit", "lng=-1 deg"], "a.csv", &file, "1 -2 - - - -");
}

#[test]
fn factor_at_the_end_of_a_column_name_is_not_ignored() {
    let ts = yesterday("10:12:47Z");
    let file = format!("time,lat,lon,speed_x10,alt/10\n{ts},1,2,365,1000\n");
    let fields = ["--field", "speed=speed_x10"];
    let plain = [&fields[..], &["--speed-unit", "km/h"]].concat();
    check_refused(&plain, "a.csv", &file, "states another unit than --speed-unit: give the size");
    let scaled = [&fields[..], &["--speed-unit", "0.1 km/h"]].concat();
    check(&scaled, "a.csv", &file, "1 2 10.14 - - -");
    let alt = [&scaled[..], &["--field", "alt=alt/10"]].concat();
    check_refused(&alt, "a.csv", &file, "states a unit that is not read: give --alt-unit");
    check(&[&alt[..], &["--alt-unit", "0.1 m"]].concat(), "a.csv", &file, "1 2 10.14 - 100 -");
    for name in ["speedX10", "speedx10", "speed_10x", "speed x 10", "speed_div10", "speed_x10_kmh"]
    {
        let file = format!("time,lat,lon,{name}\n{ts},1,2,365\n");
        let field = format!("speed={name}");
        let options = ["--field", &field, "--speed-unit", "km/h"];
        check_refused(&options, "a.csv", &file, "states another unit than --speed-unit: give");
        let options = ["--field", &field, "--speed-unit", "0.1 km/h"];
        check(&options, "a.csv", &file, "1 2 10.14 - - -");
    }
    for name in ["speed max10", "speedbox10", "speed_10", "X10 speed", "10x speed"] {
        let file = format!("time,lat,lon,{name}\n{ts},1,2,36\n");
        let field = format!("speed={name}");
        let options = ["--field", &field, "--speed-unit", "km/h"];
        check(&options, "a.csv", &file, "1 2 10 - - -");
    }
    let acc = format!("time,lat,lon,acc_x10\n{ts},1,2,50\n");
    let field = ["--field", "acc=acc_x10"];
    check_refused(&field, "a.csv", &acc, "give --unit acc='0.1 m' or another size, or map");
    let plain = [&field[..], &["--unit", "acc=m"]].concat();
    check_refused(&plain, "a.csv", &acc, "such as --unit acc='0.1 m', or rename the column");
    check(&[&field[..], &["--unit", "acc=0.1 m"]].concat(), "a.csv", &acc, "1 2 - - - 5");
}

#[test]
fn reference_system_beside_the_points_is_not_ignored() {
    let ts = yesterday("10:12:47Z");
    let csv = |comment: &str| format!("{comment}\ntime,lat,lon\n{ts},1,2\n");
    let gpx = |before: &str| {
        format!(
            "<gpx {before}<trk><trkseg><trkpt lat=\"1\" lon=\"2\"><time>{ts}</time></trkpt>\
             </trkseg></trk></gpx>"
        )
    };
    let files = [
        ("a.csv", csv("# datum: NAD27")),
        ("a.csv", csv("# Coordinate system: GCJ-02, speed in km/h")),
        ("a.csv", csv("# CRS=EPSG:4277")),
        ("a.csv", csv("# Map datum: NAD27")),
        ("a.csv", csv("# horizontal datum NAD27")),
        ("a.csv", csv("# crs = urn:ogc:def:crs:EPSG::4277")),
        ("a.gpx", gpx("><metadata><extensions><datum>NAD27</datum></extensions></metadata>")),
        ("a.gpx", gpx("datum=\"Tokyo\">")),
        ("a.gpx", gpx("><!-- coordType: gcj02 -->")),
    ];
    for (name, file) in files {
        check_refused(&[], name, &file, "but lat and lng are read in WGS 84: convert them");
        check_refused(&[], name, &file, "or delete it from the file to store them as they are");
    }
    let named = "Coordinate system says GCJ-02, but lat";
    check_refused(&[], "a.csv", csv("# Coordinate system: GCJ-02"), named);
    for (name, file) in [
        ("a.csv", csv("# datum: WGS84")),
        ("a.csv", csv("# Datum: 2026-11-27, Tokyo")),
        ("a.csv", csv("# Datum: Tokyo Marathon 2026")),
        ("a.csv", csv("# the map of the datum NAD27")),
        ("a.gpx", gpx("><!-- Datum: Tokyo Marathon 2026 -->")),
        ("a.csv", csv("# coordinates of Tokyo")),
        ("a.gpx", gpx("><metadata><extensions><datum>WGS84</datum></extensions></metadata>")),
        ("a.gpx", gpx("><metadata><name>datum NAD27</name></metadata>")),
    ] {
        check(&[], name, &file, "1 2 - - - -");
    }
}

/// GPX times without an offset are UTC, unless the file states otherwise.
#[test]
fn zone_in_xml_is_read_or_refused() {
    let (utc, local) = (yesterday("10:12:47"), yesterday("12:12:47"));
    let gpx = |head: &str, time: &str, tail: &str| {
        format!(
            "<?xml version=\"1.0\"?>\n<gpx>{head}<trk><trkseg>\n<trkpt lat=\"1\" lon=\"2\">{time}\
             </trkpt></trkseg></trk>{tail}</gpx>"
        )
    };
    let time = |time: &str| format!("<time>{time}</time>");
    for statement in [
        "<!-- times are in EET -->",
        "<!-- Timezone: Africa/Johannesburg -->",
        "<metadata><timezone>Africa/Johannesburg</timezone></metadata>",
        "<metadata tz=\"+02:00\"/>",
        "<extensions><utcOffset>7200</utcOffset></extensions>",
        "<metadata><time>x</time><tz>CAT</tz></metadata>",
        "<metadata><time>2026-01-31T08:00:00+02:00</time></metadata>",
        "<metadata><time>2026-01-31T08:00:00.000+0200</time></metadata>",
        "<metadata lastUpdate=\"2026-01-31T08:00:00+02:00\"/>",
        "<wpt lat=\"1\" lon=\"2\"><time>2026-01-31T08:00:00+02:00</time></wpt>",
        "<rte><rtept lat=\"1\" lon=\"2\"><time>2026-01-31T08:00:00+02:00</time></rtept></rte>",
        "<trk><extensions><x:startTime>2026-01-31T08:00:00+02:00</x:startTime></extensions></trk>",
    ] {
        for file in [gpx(statement, &time(&local), ""), gpx("", &time(&local), statement)] {
            check_refused_or_cut(&file, "its times have no offset, and ");
            check(&["--zone", "Africa/Johannesburg"], "a.gpx", file, "1 2 - - - -");
        }
        let with_offset = gpx(statement, &time(&format!("{utc}Z")), "");
        check(&[], "a.gpx", with_offset, "1 2 - - - -");
    }
    let instant = gpx("", &format!("<time tz=\"GMT+1\">{utc}Z</time>"), "");
    check(&[], "a.gpx", instant, "1 2 - - - -");
    let abbreviated = gpx("", &format!("<time zone=\"EST\">{}</time>", yesterday("05:12:47")), "");
    check(&[], "a.gpx", abbreviated, "1 2 - - - -");
    let other = gpx("<metadata><tz>Asia/Tokyo</tz></metadata>", &time(&local), "");
    let johannesburg = ["--zone", "Africa/Johannesburg"];
    check_refused(
        &johannesburg,
        "a.gpx",
        &other,
        "states another zone: import the times of each zone",
    );
    let of_point = gpx("", &format!("<tz>Europe/Berlin</tz>{}", time(&local)), "");
    check_refused(&[], "a.gpx", &of_point, "states a zone other than UTC");
    // The offset of one time is a hint to the zone of the times that have no offset.
    let two_points = |times: [&str; 2]| {
        let [first, second] = times.map(time);
        gpx("", &format!("{first}</trkpt><trkpt lat=\"1\" lon=\"2\">{second}"), "")
    };
    let shifted = format!("{local}+02:00");
    let failures = |arguments: &[&str], file: &str| {
        let arguments = [&["--driver", "d7"], arguments].concat();
        import("", &arguments, "a.gpx", file.as_bytes()).unwrap()["failures"].to_string()
    };
    for times in [[&*shifted, &*local], [&*local, &*shifted]] {
        let why = failures(&[], &two_points(times));
        assert!(why.contains("its times have no offset, and the time "), "{times:?}: {why}");
        assert_eq!(failures(&johannesburg, &two_points(times)), "[]", "{times:?}");
    }
    // A time that states its zone in any form has an offset. A bad time is rejected alone.
    let day = &local[..10];
    let compact = format!("{}T121347+0200", day.replace('-', ""));
    let bracketed = format!("{day}T12:13:47 (UTC+02:00)");
    let minus = format!("{day}T08:13:47\u{2212}02:00");
    let seconds = (milepost_observe::now_ms() / 1_000 - 86_400).to_string();
    for time in [&compact, &bracketed, &minus, &seconds] {
        let file = two_points([&shifted, time]);
        assert_eq!(failures(&[], &file), "[]", "{time}");
    }
    for time in [day, "n/a 0", &format!("{local} EST")] {
        let file = two_points([&shifted, time]);
        let result = import("", &["--driver", "d7"], "a.gpx", file.as_bytes()).unwrap();
        assert_eq!(result["failures"].to_string(), "[]", "{time}");
        assert_eq!(result["positions"], 1, "{result}");
        assert_eq!(result["rejected"], serde_json::json!({ "bad_ts": 1 }), "{time}");
    }
    for offset in ["Z", "+00:00"] {
        let file = two_points([&format!("{utc}{offset}"), &utc]);
        assert_eq!(failures(&[], &file), "[]", "{offset}");
    }
    for attribute in ["zone=\"Africa/Johannesburg\"", "tz=\"+02:00\"", "utcOffset=\"+02:00\""] {
        let read = gpx("", &format!("<time {attribute}>{local}</time>"), "");
        check(&[], "a.gpx", &read, "1 2 - - - -");
        let kml = format!(
            "<kml><Placemark><TimeStamp><when {attribute}>{local}</when></TimeStamp><Point>\
             <coordinates>2,1</coordinates></Point></Placemark></kml>"
        );
        check(&[], "a.kml", kml, "1 2 - - - -");
    }
    let unknown = gpx("", &format!("<time zone=\"local/here\">{local}</time>"), "");
    check_refused(&[], "a.gpx", unknown, "must be a zone such as Europe/Berlin");
    for statement in [
        "<!-- created 2026-11-26 10:00:00 CET -->",
        "<metadata><tz>UTC</tz><time zone=\"Europe/Berlin\">2026-01-01T00:00:00</time></metadata>",
        "<metadata><zone>5</zone><name>Europe/Berlin</name></metadata>",
        "<!-- all times are UTC --><metadata timezone=\"Etc/UTC\"/>",
        "<extensions><speedzone>fast</speedzone></extensions>",
        "<metadata><time>2026-01-31T08:00:00Z</time></metadata>",
        "<metadata><time>2026-01-31T08:00:00+00:00</time></metadata>",
        "<metadata><time>2026-01-31T08:00:00</time></metadata>",
        "<metadata><time>2026-01-31</time></metadata>",
        "<wpt lat=\"1\" lon=\"2\"><extensions><time>10:00-11:30</time></extensions></wpt>",
        "<extensions><dates>2026-01-31 - 2026-02-01</dates><tide>-1:30</tide></extensions>",
        "<copyright><year>2026+02:00</year></copyright>",
    ] {
        check(&[], "a.gpx", gpx(statement, &time(&utc), ""), "1 2 - - - -");
    }
}

/// Checks that a GPX file is not read to its end, and that the reason contains `message`.
#[track_caller]
fn check_refused_or_cut(file: &str, message: &str) {
    let read = import("", &["--driver", "d7"], "a.gpx", file.as_bytes()).unwrap();
    let failure = read["failures"].to_string();
    assert!(failure.contains(message) && failure.contains("--zone"), "{file}: {read}");
    let is_after = read["positions"] != 0;
    assert_eq!(failure.contains("may be stored already"), is_after, "{file}: {read}");
}

/// A column of flags may state that the times are not in UTC.
#[test]
fn flag_that_times_are_not_utc_refuses_the_file() {
    let ts = yesterday("10:12:47");
    let file = |ts: &str, flag: &str| format!("lat,lon,ts,is_utc\n1,2,{ts},{flag}\n");
    check_refused(&[], "a.csv", file(&ts, "false"), "column is_utc, which is not read, says false");
    check_refused(&[], "a.csv", file(&format!("{ts}Z"), "false"), "is in UTC: which is right?");
    check(&[], "a.csv", file(&ts, "true"), "1 2 - - - -");
    check(&["--zone", "Z"], "a.csv", file(&ts, "0"), "1 2 - - - -");
    check(&[], "a.csv", file(&format!("{ts}Z"), "1"), "1 2 - - - -");
    let offset = format!("lat,lon,ts,utc\n1,2,{ts}Z,0\n");
    check(&[], "a.csv", offset, "1 2 - - - -");
}

/// Text outside of the features of a GeoJSON file need not be UTF-8.
#[test]
fn geojson_with_a_latin_1_name_is_read() {
    let feature = feature_at("2,1", &format!(r#""ts":"{}""#, yesterday("10:12:47Z")));
    let mut file =
        b"{\"type\":\"FeatureCollection\",\"name\":\"Stra\xDFe\",\"features\":[".to_vec();
    file.extend(feature.bytes());
    file.extend(b"]}");
    check(&["--speed-unit", "m/s"], "a.geojson", file, "1 2 - - - -");
}

/// The state of `--resume` records the configuration with which a file was read.
#[test]
fn resume_after_another_configuration_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().join("a.csv");
    let ts = yesterday("10:12:47Z");
    std::fs::write(&path, format!("A,B,C,D\n1,2,{ts},3\n")).unwrap();
    let state = folder.path().join("state.json");
    let format = |unit: &str| {
        format!(
            "[formats.mine]\nimport = true\nlat = \"/A\"\nlng = \"/B\"\nts = \"/C\"\n\
             ts_unit = \"rfc3339\"\nspeed = \"/D\"\nspeed_unit = \"{unit}\"\n"
        )
    };
    let run = |toml: &str| {
        let line = ["import", "--driver", "d7", "--format", "mine", "--format", "csv", "--resume"];
        let paths = [state.to_str().unwrap(), path.to_str().unwrap()];
        let mut line = CommandLine::try_parse_from(line.into_iter().chain(paths)).unwrap();
        line.args.dry_run = true;
        let config = Config::parse(toml).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let opened = import::open(&config, line.args).unwrap();
            import::import(&config, opened).await.unwrap().shown(true)
        })
    };
    // The state file has the hashes of another run.
    let entry = |configuration: &str| {
        format!(
            r#"{{"{}":{{"fixes":1,"bytes":2,"hash":3,"options":0{configuration}}}}}"#,
            path.display()
        )
    };
    std::fs::write(&state, entry(r#","configuration":7"#)).unwrap();
    let output = run(&format("km/h"));
    assert!(output.contains("[formats.NAME], [fields.NAME] or [[sources]]"), "{output}");
    assert!(output.contains("without --resume, or with another state file"), "{output}");
    let reading = |toml: &str| Config::parse(toml).unwrap().formats["mine"].stable_description();
    let in_zone = format("km/h") + "ts_zone = \"Europe/Berlin\"\n";
    for other in [format("mph"), format("km/h").replace("/A", "/E"), in_zone] {
        assert_ne!(reading(&format("km/h")), reading(&other), "{other}");
    }
    assert_eq!(reading(&format("km/h")), reading(&(format("km/h") + "# a comment\n")));
    // A state file of an older version records no configuration.
    std::fs::write(&state, entry("")).unwrap();
    let output = run(&format("km/h"));
    assert!(output.contains("no longer begins with"), "{output}");
}

/// If the name of a symbolic link names the driver, the state of `--resume` has an entry for each
/// link, because each link stores the fixes for another driver.
#[test]
fn resume_distinguishes_links_that_name_drivers() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().canonicalize().unwrap().join(name);
    let ts = yesterday("10:12:47Z");
    std::fs::write(path("d7.csv"), format!("lat,lon,ts\n1,2,{ts}\n")).unwrap();
    std::os::unix::fs::symlink(path("d7.csv"), path("d8.csv")).unwrap();
    std::fs::create_dir(path("links")).unwrap();
    std::os::unix::fs::symlink(path("d7.csv"), path("links/d7.csv")).unwrap();
    let state = path("state.json");
    std::fs::write(&state, format!(r#"{{"{}":1}}"#, path("d7.csv").display())).unwrap();
    let skipped = |driver: &str, name: &str| {
        let file = path(name);
        let line = ["import", "--driver", driver, "--resume", state.to_str().unwrap()];
        let line = line.into_iter().chain([file.to_str().unwrap()]);
        let mut line = CommandLine::try_parse_from(line).unwrap();
        line.args.dry_run = true;
        let config = Config::parse("").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let shown = runtime.block_on(async {
            let opened = import::open(&config, line.args).unwrap();
            import::import(&config, opened).await.unwrap().shown(true)
        });
        let result: Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(result["fixes"], 1, "{result}");
        result["skipped"].as_u64()
    };
    assert_eq!(skipped("{file}", "d7.csv"), Some(1));
    assert_eq!(skipped("{file}", "d8.csv"), Some(0));
    assert_eq!(skipped("{file}", "links/d7.csv"), Some(1));
    assert_eq!(skipped("d7", "d8.csv"), Some(1));
    // A link may lead to another file each month. Each of these files has its own entry.
    std::fs::write(path("2026-12.csv"), format!("lat,lon,ts\n3,4,{ts}\n")).unwrap();
    let [old, new] = ["d7.csv/d8", "2026-12.csv/d8"].map(|name| path(name).display().to_string());
    std::fs::write(&state, format!(r#"{{"{old}":1}}"#)).unwrap();
    assert_eq!(skipped("{file}", "d8.csv"), Some(1));
    std::fs::remove_file(path("d8.csv")).unwrap();
    std::os::unix::fs::symlink(path("2026-12.csv"), path("d8.csv")).unwrap();
    assert_eq!(skipped("{file}", "d8.csv"), Some(0));
    std::fs::write(&state, format!(r#"{{"{old}":1,"{new}":1}}"#)).unwrap();
    assert_eq!(skipped("{file}", "d8.csv"), Some(1));
}

/// A file that was replaced by a shorter one is reported, even if a quote at its end is open.
#[test]
fn resume_of_a_shorter_file_with_an_open_quote_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().join("a.csv");
    let state = folder.path().join("state.json");
    let ts = yesterday("10:12:47Z");
    std::fs::write(&path, format!("lat,lon,ts\n1,2,{ts}\n1,\"2,{ts}\n")).unwrap();
    for (stored, is_refused) in [(1, false), (5, true)] {
        std::fs::write(&state, format!(r#"{{"{}":{stored}}}"#, path.display())).unwrap();
        let line = ["import", "--driver", "d7", "--resume", state.to_str().unwrap()];
        let line = line.into_iter().chain([path.to_str().unwrap()]);
        let mut line = CommandLine::try_parse_from(line).unwrap();
        line.args.dry_run = true;
        let config = Config::parse("").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let output = runtime.block_on(async {
            let opened = import::open(&config, line.args).unwrap();
            import::import(&config, opened).await.unwrap().shown(true)
        });
        assert_eq!(output.contains("no longer begins with"), is_refused, "{output}");
    }
}

/// A comment or an element may state the units of a whole file.
#[test]
fn unit_beside_the_points_is_not_ignored() {
    let ts = yesterday("10:12:47Z");
    let csv = |comment: &str| format!("{comment}\nlat,lon,ts,alt\n1,2,{ts},1000\n");
    for comment in ["# altitude in feet", "# speed in mph, elevation: ft", "# units: imperial"] {
        check_refused(&[], "a.csv", csv(comment), "alt is read in m");
        check(&["--alt-unit", "ft"], "a.csv", csv(comment), "1 2 - - 304.8 -");
    }
    for comment in ["# altitude in m", "# max altitude 1000 ft", "# units: metric", "# feet first"]
    {
        check(&[], "a.csv", csv(comment), "1 2 - - 1000 -");
    }
    let gpx = |head: &str| {
        format!(
            "<gpx>{head}<trk><trkseg><trkpt lat=\"1\" lon=\"2\"><time>{ts}</time><speed>36</speed>\
             </trkpt></trkseg></trk></gpx>"
        )
    };
    for head in [
        "<!-- speed in km/h -->",
        "<metadata><extensions><speedUnit>km/h</speedUnit></extensions></metadata>",
        "<extensions><speed_unit>kmh</speed_unit></extensions>",
        "<metadata speed_unit=\"km/h\"/>",
    ] {
        check_refused(&[], "a.gpx", gpx(head), "km/h, but speed is read in m/s");
        check(&["--speed-unit", "km/h"], "a.gpx", gpx(head), "1 2 10 - - -");
    }
    for head in [
        "<!-- speed in m/s -->",
        "<metadata><unit>mph-7</unit></metadata>",
        "<extensions><maxSpeed unit=\"mph\">43</maxSpeed></extensions>",
    ] {
        check(&[], "a.gpx", gpx(head), "1 2 36 - - -");
    }
}

/// Columns with names in another language are not read: the error names the options to read those
/// of required fields, and the summary suggests the others.
#[test]
fn columns_in_other_languages_are_suggested() {
    for (names, row, options) in [
        (
            "Zeit;Breite;Länge;Geschwindigkeit",
            "TS;52,5;13,4;36",
            "--field lat='Breite' --field lng='Länge' --field ts='Zeit'",
        ),
        (
            "Datum;Uhrzeit;Breitengrad;Laengengrad",
            "2026-11-26;10:12:47;52,5;13,4",
            "--field lat='Breitengrad' --field lng='Laengengrad' --field ts='Datum+Uhrzeit'",
        ),
        (
            "fecha_hora,Latitud [°],Longitud [°],Velocidad",
            "TS,-33.4,-70.6,10",
            "--field lat='Latitud [°]' --field lng='Longitud [°]' --field ts='fecha_hora'",
        ),
        ("horodatage;latitude;longitude;vitesse", "TS;48.8;2.3;10", "give --field ts='horodatage'"),
        (
            "Tijdstip,Breedtegraad,Lengtegraad,Snelheid",
            "TS,52.1,5.1,10",
            "--field lat='Breedtegraad' --field lng='Lengtegraad' --field ts='Tijdstip'",
        ),
        ("Data/Hora,lat,lng", "TS,-23.5,-46.6", "give --field ts='Data/Hora'"),
        (
            "timestamp,szerokość,długość",
            "TS,50.1,19.9",
            "--field lat='szerokość' --field lng='długość'",
        ),
        ("время,широта,долгота", "TS,55.7,37.6", "--field lat='широта' --field lng='долгота'"),
    ] {
        check_refused(&[], "a.csv", one_row((names, row)), options);
    }
    // A word in another language names no field, if the field is known or is not required.
    for (names, row) in
        [("ts,lat,lon,Länge", "TS,1,2,4.5"), ("ts,lat,lon,Breite,Zeit,Data", "TS,1,2,2.5,7,x")]
    {
        check(&[], "a.csv", one_row((names, row)), "1 2 - - - -");
    }
    let file = one_row(("ts,lat,lon,Geschwindigkeit (km/h),Höhe", "TS,1,2,36,34"));
    let result = import("", &["--driver", "d7"], "a.csv", file.as_bytes()).unwrap();
    let unread = result["understood"][0]["unread"].to_string();
    for advice in
        ["is it speed? --field speed='Geschwindigkeit (km/h)'", "is it alt? --field alt='Höhe'"]
    {
        assert!(unread.contains(advice), "{unread}");
    }
    let fields = ["--field", "speed=Geschwindigkeit (km/h)", "--field", "alt=Höhe"];
    check(&fields, "a.csv", file, "1 2 10 - 34 -");
}

/// A GPX file may list the units of its fields in an element of their own.
#[test]
fn element_units_states_the_units_of_the_fields_in_it() {
    let ts = yesterday("10:12:47Z");
    let gpx = |head: &str, inner: &str| {
        format!(
            "<gpx>{head}<trk><trkseg><trkpt lat=\"1\" lon=\"2\"><ele>100</ele><time>{ts}</time>\
             <speed>36</speed><extensions>{inner}</extensions></trkpt></trkseg></trk></gpx>"
        )
    };
    for (units, message) in [
        ("<units><speed>km/h</speed></units>", "says km/h, but speed is read in m/s"),
        ("<units><distance>mi</distance><speed>mph</speed></units>", "says mph, but speed"),
        ("<x:Units><x:elevation>ft</x:elevation></x:Units>", "says ft, but alt is read in m"),
        ("<units><velocity>knots</velocity></units>", "says knots, but speed"),
    ] {
        let head = format!("<metadata><extensions>{units}</extensions></metadata>");
        check_refused(&[], "a.gpx", gpx(&head, ""), message);
        check_refused(&[], "a.gpx", gpx("", units), message);
    }
    check_refused(&[], "a.gpx", gpx("<units speed=\"km/h\"/>", ""), "says km/h");
    for units in [
        "<units><speed>m/s</speed><elevation>m</elevation></units>",
        "<units><temperature>F</temperature></units><limit><speed>50</speed></limit>",
        "<units>metric</units>",
        "<units><speed/></units><maxSpeed unit=\"mph\">43</maxSpeed>",
    ] {
        let head = format!("<metadata><extensions>{units}</extensions></metadata>");
        check(&[], "a.gpx", gpx(&head, units), "1 2 36 - 100 -");
    }
}

/// A FeatureCollection may state the zone of its times.
#[test]
fn zone_beside_the_features_is_compared_with_the_given_one() {
    let day = yesterday("");
    let file = |members: &str, time: &str| {
        let feature = feature_at("2,1", &format!(r#""ts":"{day}{time}""#));
        format!(r#"{{"type":"FeatureCollection",{members},"features":[{feature}]}}"#)
    };
    let lagos = ["--speed-unit", "m/s", "--zone", "Africa/Lagos"];
    for member in [
        r#""timezone":"America/New_York""#,
        r#""properties":{"tz":"Asia/Tokyo"}"#,
        r#""utc_offset":"-05:00""#,
        r#""timeZone":{"id":"Europe/Berlin"}"#,
    ] {
        let message = "but times without an offset are read in Africa/Lagos";
        check_refused(&lagos, "a.geojson", file(member, "10:12:47"), message);
    }
    for member in [
        r#""timezone":"Africa/Lagos""#,
        r#""timezone":"Africa/Algiers""#,
        r#""utc_offset":"+01:00""#,
        r#""zone":"North""#,
        r#""name":"America/New_York""#,
    ] {
        check(&lagos, "a.geojson", file(member, "11:12:47"), "1 2 - - - -");
    }
    let fixed = ["--speed-unit", "m/s", "--zone", "-05:00"];
    check(&fixed, "a.geojson", file(r#""timezone":"Europe/Berlin""#, "05:12:47"), "1 2 - - - -");
    let plain = ["--speed-unit", "m/s"];
    let file = file(r#""timezone":"America/New_York""#, "10:12:47Z");
    check(&plain, "a.geojson", file, "1 2 - - - -");
}

/// A point of a track may have a flag that the receiver had no fix.
#[test]
fn point_without_a_fix_is_rejected_unless_the_flag_is_kept() {
    let ts = yesterday("10:12:47Z");
    let gpx = |fix: &str| {
        format!(
            "<gpx><trk><trkseg><trkpt lat=\"1\" lon=\"2\"><time>{ts}</time><fix>{fix}</fix>\
             <sat>0</sat></trkpt></trkseg></trk></gpx>"
        )
    };
    check_refused(&[], "a.gpx", gpx("none"), "fix is none: the receiver had no fix");
    check(&["--keep", "fix"], "a.gpx", gpx("none"), "1 2 - - - -");
    for fix in ["3d", "2d", "dgps", "pps"] {
        check(&[], "a.gpx", gpx(fix), "1 2 - - - -");
    }
    let csv = |value: &str| format!("ts,lat,lon,Valid\n{ts},1,2,{value}\n");
    for no in ["FALSE", "0", "f", "V", "no"] {
        check_refused(&[], "a.csv", csv(no), "Valid is ");
        check(&["--keep", "Valid"], "a.csv", csv(no), "1 2 - - - -");
    }
    for yes in ["TRUE", "1", "t", "A", "yes", "", "-"] {
        check(&[], "a.csv", csv(yes), "1 2 - - - -");
    }
}

/// A date at midnight and a time of day on a spreadsheet's day 0 are joined.
#[test]
fn date_and_time_columns_of_spreadsheets_are_joined() {
    let yesterday = yesterday("10:12:47");
    let day = yesterday.split_once('T').unwrap().0;
    for (date, time, arguments) in [
        (format!("{day} 00:00:00"), "10:12:47", &[][..]),
        (format!("{day}T00:00:00.000"), "10:12:47", &[]),
        (format!("{day} 0:00"), "10:12:47", &[]),
        (day.to_owned(), "10:12:47", &[]),
        (day.to_owned(), "1899-12-30 10:12:47", &["--field", "ts=date+time"]),
        (format!("{day} 00:00:00"), "1899-12-30T10:12:47", &["--field", "ts=date+time"]),
    ] {
        let file = format!("date,time,lat,lon\n{date},{time},52.5,13.4\n");
        check(arguments, "a.csv", file, "52.5 13.4 - - - -");
    }
    let file = format!("date,time,lat,lon\n{day},上午 10:12:47,52.5,13.4\n");
    check(&[], "a.csv", file, "52.5 13.4 - - - -");
    let file = format!("date,time,lat,lon\n{day},1899-12-30 10:12:47,52.5,13.4\n");
    check_refused(&[], "a.csv", file, "--field ts=DATE+TIME");
    let file = format!("date,time,lat,lon\n{day} 08:00:00,10:12:47,52.5,13.4\n");
    check_refused(&[], "a.csv", file, "is not a time");
}

#[test]
fn error_names_another_calendar_or_time_count() {
    let ts = yesterday("10:12:47Z");
    let seconds = ts.parse::<jiff::Timestamp>().unwrap().as_second();
    let year: i64 = ts[..4].parse().unwrap();
    let of_year = |year: i64| format!("{year:04}-06-15 10:12:47");
    // `at_1970`: number of days at the beginning of 1970.
    let days = |at_1970: f64| {
        (at_1970 + f64::from(i32::try_from(seconds).unwrap()) / 86_400.0).to_string()
    };
    for (time, message) in [
        (of_year(year - 621), "a date of the Persian calendar"),
        (of_year((year - 621) * 1_000 / 970), "a date of the Islamic calendar"),
        (of_year(year + 543), "a date of the Buddhist calendar"),
        ((seconds * 10_000_000 + 116_444_736_000_000_000).to_string(), "as Windows writes it"),
        ((seconds * 10_000_000 + 621_355_968_000_000_000).to_string(), "as .NET writes it"),
        ((seconds + 2_082_844_800).to_string(), "seconds since 1904"),
        (days(2_440_587.5), "a Julian day"),
        (days(40_587.0), "a modified Julian day"),
        ("1970-01-01 00:00:07".to_owned(), "the device's clock was never set"),
    ] {
        let file = format!("time,lat,lon\n{time},52.5,13.4\n");
        check_refused(&[], "a.csv", file, message);
    }
}

#[test]
fn gpx_without_a_track_names_the_converter() {
    let ts = yesterday("10:12:47Z");
    let file =
        |name: &str| format!("<gpx><{name} lat='1' lon='2'><time>{ts}</time></{name}></gpx>");
    check_refused(&[], "a.gpx", file("wpt"), "-x transform,trk=wpt");
    check_refused(&[], "a.gpx", format!("<gpx><rte>{}</rte></gpx>", file("rtept")), "trk=rte");
}

#[test]
fn unit_in_a_column_or_comment_of_another_language_is_not_ignored() {
    let kmh = &["--speed-unit", "km/h"][..];
    for (columns, values, message) in [
        ("lat,lon,speed,velocidad_unidad", "52.5,13.4,22,mph", "velocidad_unidad says mph"),
        ("lat,lon,speed,Einheit", "52.5,13.4,22,Knoten", "Einheit says knots"),
        ("lat,lon,speed,unité_vitesse", "52.5,13.4,22,nœuds", "unité_vitesse says knots"),
        ("lat,lon,alt,altitud_unidad", "52.5,13.4,22,pies", "altitud_unidad says ft"),
    ] {
        check_refused(kmh, "a.csv", one_row_of(columns, values), message);
    }
    for (columns, values, expected) in [
        ("lat,lon,speed,velocidad_unidad", "52.5,13.4,36,km/h", "52.5 13.4 10 - - -"),
        ("lat,lon,speed,Einheit", "52.5,13.4,36,Zug 7", "52.5 13.4 10 - - -"),
    ] {
        check(kmh, "a.csv", one_row_of(columns, values), expected);
    }
    let gpx = |head: &str, time: &str| {
        format!(
            "<gpx>{head}<trk><trkseg><trkpt lat='1' lon='2'><ele>9</ele><time>{time}</time>\
             </trkpt></trkseg></trk></gpx>"
        )
    };
    let (ts, local) = (yesterday("10:12:47Z"), yesterday("11:12:47"));
    let unit = "<altitud_unidad>pies</altitud_unidad>";
    check_refused(&[], "a.gpx", gpx(unit, &ts), "altitud_unidad says ft");
    let zone = "<fuseau>Europe/Paris</fuseau>";
    check_refused(&[], "a.gpx", gpx(zone, &local), "fuseau \\\"Europe/Paris\\\"");
    check(&[], "a.gpx", gpx(zone, &ts), "1 2 - - 9 -");
    let file = one_row_of("lat,lon,alt", "52.5,13.4,1000");
    check_refused(&[], "a.csv", format!("# Höhe in Fuß\n{file}"), "says ft");
}

/// A file that was joined from several files has names of columns in the middle, too.
#[test]
fn other_column_names_in_the_middle_stop_the_reading() {
    let row = |clock: &str, values: &str| format!("{},{values}\n", yesterday(clock));
    let file = |middle: &str| {
        let rows = [row("10:12:47Z", "1.5,2.5,36"), row("10:12:48Z", "3.5,4.5,22")];
        format!("time,lat,lon,speed (km/h)\n{}{middle}\n{}", rows[0], rows[1])
    };
    for names in [
        "time,lon,lat,speed (km/h)",
        "time,lat,lon,speed (mph)",
        "time,Latitude,Longitude,Speed",
        "time, lon, lat, speed (km/h)",
        "time,lon,lat,speed (km/h),note",
        "time (CET),lat,lon,speed (km/h)",
        "time,lat,lon",
    ] {
        let result = import("", &["--driver", "d7"], "a.csv", file(names).as_bytes()).unwrap();
        let failure = result["failures"].to_string();
        assert_eq!(result["positions"], 1, "{names}: {result}");
        assert!(failure.contains("line 3 names the columns again"), "{names}: {failure}");
    }
    for line in [
        "time,lat,lon,speed (km/h)",
        "Time,LAT,Lon,Speed (km/h)",
        "\"time\",\"lat\",\"lon\",\"speed (km/h)\"",
        "\u{feff}\"time\",lat,lon,speed (km/h)",
        "# time,lat,lon,speed (km/h)",
        "Total,none,,22",
        "driver d7 lat lon,x,y,z",
        "x,lat,y,z",
    ] {
        let (fixes, why) = outcome(&[], &file(line));
        assert_eq!(fixes, 2, "{line}: {why}");
    }
}

#[test]
fn same_column_names_in_the_middle_do_not_stop_the_reading() {
    for names in [
        &b"# time,lat,lon,name\n"[..],
        b"time,lat,lon,H\xf6he\n",
        b"\xef\xbb\xbf\"time\",\"lat\",lon,name\n",
        b"time,lat,lon,\"name\nof it\"\n",
    ] {
        let row = |clock: &str| format!("{},1.5,2.5,3\n", yesterday(clock)).into_bytes();
        let file = [names, &row("10:12:47Z"), names, &row("10:12:48Z")].concat();
        let result = import("", &["--driver", "d7"], "a.csv", &file).unwrap();
        let names = String::from_utf8_lossy(names);
        assert_eq!(result["positions"], 2, "{names}: {result}");
    }
}

#[test]
fn times_with_one_time_of_day_cause_a_warning() {
    let row = |clock: &str, lat: u8| format!("{},{lat}.5,13.4\n", yesterday(clock));
    let has_warning = |rows: &[String]| {
        let text = format!("time,lat,lon\n{}", rows.concat());
        let result = import("", &["--driver", "d7"], "a.csv", text.as_bytes()).unwrap();
        let warnings = result["understood"][0]["warnings"].to_string();
        warnings.contains("all times have the same time of day")
    };
    assert!(has_warning(&[row("00:00:00", 1), row("00:00:00", 2)]));
    assert!(!has_warning(&[row("00:00:00", 1)]));
    assert!(!has_warning(&[row("00:00:00", 1), row("00:00:01", 2)]));
}

/// A column's name, a value, a comment or a row of units may state a unit in words. Headings must
/// count from true north.
#[test]
fn unit_in_words_is_read_or_refused() {
    let ts = yesterday("10:12:47Z");
    for (column, value, expected) in [
        ("speed (kilometres per hour)", "36", "1 2 10 - - -"),
        ("Speed in km/h", "36", "1 2 10 - - -"),
        ("speed_kilometers_per_hour", "36", "1 2 10 - - -"),
        ("Speed (nautical miles per hour)", "36", "1 2 18.52 - - -"),
        ("SOG [metres/second]", "36", "1 2 36 - - -"),
        ("altitude (metres above sea level)", "36", "1 2 - - 36 -"),
        ("alt (ft AMSL)", "100", "1 2 - - 30.5 -"),
        ("Altitude in feet", "100", "1 2 - - 30.5 -"),
        ("elevation (m a.s.l.)", "36", "1 2 - - 36 -"),
        ("course (degrees true)", "36", "1 2 - 36 - -"),
        ("heading (°T)", "36", "1 2 - 36 - -"),
        ("Accuracy (metres)", "5", "1 2 - - - 5"),
        ("speed", "36 kilometres per hour", "1 2 10 - - -"),
        ("alt", "100 feet above sea level", "1 2 - - 30.5 -"),
    ] {
        let file = format!("lat,lng,ts,{column}\n1.0,2.0,{ts},{value}\n");
        check(&[], "a.csv", file, expected);
    }
    for (arguments, column, message) in [
        (
            &["--field", "speed=v (feet per second)", "--speed-unit", "m/s"][..],
            "v (feet per second)",
            "states another unit than --speed-unit",
        ),
        (&["--field", "alt=alt (ft AGL)"], "alt (ft AGL)", "states a unit that is not read"),
        (&["--field", "heading=heading_magnetic"], "heading_magnetic", "--unit heading=deg"),
        (&["--field", "heading=course (°M)"], "course (°M)", "counts from magnetic north"),
    ] {
        check_refused(arguments, "a.csv", format!("lat,lng,ts,{column}\n1,2,{ts},36\n"), message);
    }
    let magnetic = ["--field", "heading=heading_magnetic", "--unit", "heading=deg"];
    let file = format!("lat,lng,ts,heading_magnetic\n1.0,2.0,{ts},36\n");
    check(&magnetic, "a.csv", file, "1 2 - 36 - -");
    let file = format!("lat,lng,ts,heading,heading_reference\n1.0,2.0,{ts},36,magnetic\n");
    check_refused(&[], "a.csv", &file, "import: --unit heading=deg");
    check(&["--unit", "heading=deg"], "a.csv", file, "1 2 - 36 - -");
    for (arguments, comment, message) in [
        (&[][..], "altitude: feet above sea level", "alt_unit says ft"),
        (&[], "heading in degrees magnetic", "read from true north"),
        (&[], "headings are magnetic", "the magnetic one plus the declination"),
        (&[], "altitude in yards", "which is not read"),
    ] {
        let file = format!("# {comment}\nlat,lng,ts,alt,heading\n1.0,2.0,{ts},36,40\n");
        check_refused(arguments, "a.csv", file, message);
    }
    for comment in [
        "heading in degrees true",
        "speed in metres per second",
        "heading home",
        "altitude in metres above sea level",
        "course: Magnetic Mile 10k",
    ] {
        let file = format!("# {comment}\nlat,lng,ts,speed,alt,heading\n1.0,2.0,{ts},10,36,40\n");
        check(&["--speed-unit", "m/s"], "a.csv", file, "1 2 10 40 36 -");
    }
    for (arguments, units, message) in [
        (&["--speed-unit", "m/s"][..], "ft/s,m,deg", "states ft/s for speed, which is not read"),
        (&["--speed-unit", "m/s"], "feet per second,m,deg", "--speed-unit '0.3048 m/s'"),
        (&[], "km/h,yd,deg", "--alt-unit '0.9144 m'"),
        (&[], "km/h,m,degrees magnetic", "--unit heading=deg"),
    ] {
        let file = format!("lat,lng,ts,speed,alt,heading\ndeg,deg,,{units}\n1,2,{ts},36,40,50\n");
        check_refused(arguments, "a.csv", file, message);
    }
    let file = format!("lat,lng,ts,speed\ndeg,deg,,feet per second\n1,2,{ts},100\n");
    check(&["--speed-unit", "0.3048 m/s"], "a.csv", file, "1 2 30.48 - - -");
}

/// A comment about headings, speeds or altitudes matters only if the file has them.
#[test]
fn comment_about_a_field_is_refused_only_if_the_file_has_it() {
    let clocks = ["10:12:47Z", "10:12:57Z", "10:13:07Z"];
    let gpx = |comment: &str, members: [&str; 3]| {
        let points = clocks.iter().zip(members).map(|(clock, members)| {
            let ts = yesterday(clock);
            format!("<trkpt lat='1' lon='2'><time>{ts}</time>{members}</trkpt>")
        });
        let points: String = points.collect();
        format!("<gpx>{comment}<trk><trkseg>{points}</trkseg></trk></gpx>")
    };
    let read = |arguments: &[&str], file: &str| {
        let arguments = [&["--driver", "d7"], arguments].concat();
        let result = import("", &arguments, "a.gpx", file.as_bytes()).unwrap();
        (result["positions"].clone(), result["failures"].to_string())
    };
    for (comment, field, message) in [
        ("<!-- heading: magnetic -->", "<course>40</course>", "read from true north"),
        (
            "<extensions><heading_reference>magnetic</heading_reference></extensions>",
            "<course>40</course>",
            "read from true north",
        ),
        ("<!-- speed in km/h -->", "<speed>3</speed>", "says km/h"),
        ("<!-- altitude in feet -->", "<ele>3</ele>", "says ft"),
        ("<!-- units: imperial -->", "<ele>3</ele>", "says imperial (ft)"),
        ("<!-- units: imperial -->", "<speed>3</speed>", "says imperial (mph)"),
    ] {
        let others: String = ["<course>40</course>", "<speed>3</speed>", "<ele>3</ele>"]
            .into_iter()
            .filter(|other| *other != field && !comment.contains("imperial"))
            .collect();
        let (positions, failures) = read(&[], &gpx(comment, [&others, "", &others]));
        assert_eq!(positions, 3, "{comment}: {failures}");
        for (members, is_first) in [([field, "", ""], true), (["", "", field], false)] {
            let (_, failures) = read(&[], &gpx(comment, members));
            assert!(failures.contains(message) && failures.contains("line 1"), "{failures}");
            assert_eq!(failures.contains("may be stored already"), !is_first, "{failures}");
        }
    }
    let late = gpx("", ["<course>40</course>", "", ""]);
    let late = late.replace("</trk>", "<!-- heading: magnetic --></trk>");
    assert!(read(&[], &late).1.contains("read from true north"));
    assert_eq!(read(&["--unit", "heading=deg"], &late).0, 3);
    let system = gpx("<!-- datum: NAD27 -->", [""; 3]);
    assert!(read(&[], &system).1.contains("WGS 84"));
    let ts = yesterday("10:12:47Z");
    let csv = |head: &str, row: &str| {
        format!("# headings are magnetic\nlat,lng,ts{head}\n1.0,2.0,{ts}{row}\n")
    };
    check(&[], "a.csv", csv("", ""), "1 2 - - - -");
    check(&[], "a.csv", csv(",heading", ","), "1 2 - - - -");
    check_refused(&[], "a.csv", csv(",heading", ",40"), "read from true north");
    check_refused(&[], "a.csv", csv(",heading", ",40"), "headings are magnetic");
}

/// A column may state in which unit or notation the numbers beside it are.
#[test]
fn column_that_names_another_unit_or_notation_is_rejected() {
    let ts = yesterday("10:12:47Z");
    let file = |column: &str, value: &str| {
        format!("lat,lng,ts,alt,heading,{column}\n1.5,2.5,{ts},30,40,{value}\n")
    };
    for (column, value, message) in [
        ("altitude_ref", "AGL", "import: --keep altitude_ref"),
        ("format", "ddmm.mmmm", "format says ddmm.mmmm"),
        ("coordinate_format", "GCJ02", "are read in WGS 84"),
        ("compass", "magnetic", "read from true north"),
        ("true_north", "false", "read from true north"),
    ] {
        check_refused(&[], "a.csv", file(column, value), message);
    }
    for (arguments, column, value) in [
        (&[][..], "altitude_ref", "MSL"),
        (&["--keep", "altitude_ref"], "altitude_ref", "AGL"),
        (&[], "format", "csv"),
        (&["--unit", "lat=deg"], "format", "DMS"),
        (&[], "compass", "N"),
        (&[], "true_north", "true"),
    ] {
        check(arguments, "a.csv", file(column, value), "1.5 2.5 - 40 30 -");
    }
    let collection = format!(
        r#"{{"type":"FeatureCollection","altitude_ref":"AGL","features":[{{"type":"Feature",
        "geometry":{{"type":"Point","coordinates":[2,1,30]}},"properties":{{"ts":"{ts}"}}}}]}}"#
    );
    let options = ["--speed-unit", "m/s", "--alt-unit", "m"];
    check_refused(&options[..2], "a.geojson", &collection, "with --alt-unit of import");
    check(&options, "a.geojson", collection, "1 2 - - 30 -");
    // The coordinates of GPX are always degrees.
    let point = format!("<trkpt lat='1' lon='2'><time>{ts}</time></trkpt>");
    let file =
        format!("<gpx><extensions><format>DMS</format></extensions><trk>{point}</trk></gpx>");
    check(&[], "a.gpx", file, "1 2 - - - -");
}

/// A file without a line end may be cut off. If only its last row lacks values, that row is
/// rejected. If that row has all values, it causes a warning.
#[test]
fn file_cut_off_in_its_last_row_is_noticed() {
    let (first, second) = (yesterday("10:12:47Z"), yesterday("10:12:57Z"));
    let read = |arguments: &[&str], text: &str| {
        import("", &[&["--driver", "d7"], arguments].concat(), "a.csv", text.as_bytes()).unwrap()
    };
    let file = |rows: &str| format!("ts,lat,lng,alt,note\n{first},1.25,2.25,30.5,a\n{rows}");
    for values in ["1.2501,2.2", "1.2501,2.2501,3", "1.2501", "1.2501,2.2501,30.5", "1.2501,2.25,"]
    {
        let result = read(&[], &file(&format!("{second},{values}")));
        assert_eq!(result["positions"], 1, "{values}: {result}");
        let details = result["details"].to_string();
        assert!(details.contains("a.csv:3: the file ends within this row"), "{values}: {details}");
    }
    let warns = |result: &Value| {
        let warnings = result["understood"][0]["warnings"].to_string();
        warnings.contains("line 3, the last one, has no line end")
    };
    for (arguments, text, expected) in [
        (&[][..], format!("ts,lat,lng\n{first},1.25,2.25\n{second},1.2501,2.25"), true),
        (&["--keep", "note"], file(&format!("{second},1.2501,2.2501,30.5,ab")), true),
        // A line end, or a last value that is quoted, empty or not read.
        (&[], format!("ts,lat,lng\n{first},1.25,2.25\n{second},1.2501,2.25\n"), false),
        (&[], format!("ts,lat,lng\r\n{first},1.25,2.25\r\n{second},1.2501,2.25\r\n"), false),
        (&[], format!("ts,lat,lng\n{first},1.25,2.25\n{second},1.2501,2.25\n\0\0"), false),
        (&[], format!("ts,lat,lng\n{first},1.25,2.25\n{second},1.2501,\"2.25\""), false),
        (&[], format!("ts,lat,lng,alt\n{first},1.25,2.25,\n{second},1.2501,2.25,"), false),
        (
            &[],
            format!("ts\tlat\tlng\talt\n{first}\t1.25\t2.25\t5\n{second}\t1.2501\t2.25\t"),
            false,
        ),
        (&[], file(&format!("{second},1.2501,2.2501,30.5,ab")), false),
        (&["--keep", "note"], file(&format!("{second},1.2501,2.2501,30.5,\"a\nb\"")), false),
        // Each line of the file was joined to the next one with a comma and a line end.
        (
            &["--keep", "alt"],
            format!("ts,lat,lng,alt,\n{first},1.25,2.25,3,\n{second},1.25,2.25,4"),
            false,
        ),
    ] {
        let result = read(arguments, &text);
        assert_eq!(result["positions"], 2, "{text}: {result}");
        assert_eq!(warns(&result), expected, "{text}: {result}");
    }
    // A row that is cut off within its first value may be valid JSON.
    let result = read(&[], &format!("ts,lat,lng\n{first},1.25,2.25\n1795770010"));
    let details = result["details"].to_string();
    assert!(details.contains("the file ends within this row"), "{result}");
    // Every row lacks the last value, as some programs write it.
    let text = format!("ts,lat,lng,alt\n{first},1.25,2.25\n{second},1.2501,2.25");
    assert_eq!(read(&[], &text)["positions"], 2);
}

/// An option such as `--field` or `--unit` concerns one field. The other fields of GeoJSON are read
/// and checked as without the option.
#[test]
fn geojson_is_read_alike_with_options_for_fields() {
    let ts = yesterday("10:12:47Z");
    let unit = ["--speed-unit", "m/s"];
    let option_lists =
        [&[][..], &["--unit", "acc=m"], &["--field", "seq=/properties/n"], &["--alt-unit", "m"]];
    for options in option_lists {
        let options = [&unit[..], options].concat();
        for (place, properties, expected) in [
            ("2,1", r#""ts":TS,"speed":10,"heading":90,"alt":7,"acc":5"#, "1 2 10 90 7 5"),
            ("2,1", r#""time":TS,"velocity":10,"course":90,"ele":7"#, "1 2 10 90 7 -"),
            ("2,1", r#""timestamp":TS,"bearing":90,"altitude":7,"accuracy":5"#, "1 2 - 90 7 5"),
            ("2,1", r#""time":"x","timestamp":TS,"velocity":1,"speed":10"#, "1 2 10 - - -"),
            ("2,1,7", r#""fixTime":TS,"altitude":8"#, "1 2 - - 7 -"),
            ("2,1,0", r#""datetime":TS,"altitude":8"#, "1 2 - - 8 -"),
            ("2,1,0", r#""ts":TS"#, "1 2 - - 0 -"),
            ("2,1", r#""ts":TS,"heading":0,"hasBearing":false"#, "1 2 - - - -"),
            ("2,1,7", r#""ts":TS,"alt_valid":false"#, "1 2 - - - -"),
            ("2,1,7", r#""ts":TS,"valid":true,"alt_unit":"m""#, "1 2 - - 7 -"),
        ] {
            let file = feature_at(place, &properties.replace("TS", &format!("\"{ts}\"")));
            check(&options, "a.geojson", file, expected);
        }
        for (properties, message) in [
            (r#""valid":false"#, "valid is false: the receiver had no fix"),
            (r#""gps":{"fix":"none"}"#, "the receiver had no fix"),
            (r#""validTime":0"#, "the device did not know the time"),
            (r#""alt_unit":"ft""#, "alt_unit says ft, but alt is read in m"),
            (r#""altitude_ref":"AGL""#, "altitude_ref says AGL"),
            (r#""velocity":3,"velocity_unit":"mph""#, "velocity_unit says mph"),
        ] {
            let file = feature_at("2,1,7", &format!(r#""ts":"{ts}",{properties}"#));
            check_refused(&options, "a.geojson", file, message);
        }
        let fix = feature_at("2,1", &format!(r#""ts":"{ts}""#));
        let unlocated = r#"{"type":"Feature","geometry":null,"properties":{"speed":1}}"#;
        check(&options, "a.geojsonl", format!("{fix}\n{unlocated}\n"), "1 2 - - - -");
        check_refused(&options, "a.geojsonl", r#"{"type":"x","speed":1}"#, r#""rejected":1"#);
    }
    // The coordinates of GeoJSON are always degrees.
    let file = feature_at("2,1", &format!(r#""ts":"{ts}""#));
    let file = format!(r#"{{"coordinate_format":"DMS","features":[{file}]}}"#);
    check(&unit, "a.geojson", &file, "1 2 - - - -");
    check(&[&unit[..], &["--unit", "acc=m"]].concat(), "a.geojson", file, "1 2 - - - -");
    // A field with an option has no other name.
    let file = feature_at("2,1", &format!(r#""ts":"{ts}","v":3,"velocity":10"#));
    let field = ["--field", "speed=/properties/v"];
    check(&[&unit[..], &field].concat(), "a.geojson", &file, "1 2 3 - - -");
    let feet = feature_at("2,1,100", &format!(r#""time":"{ts}","alt_unit":"ft""#));
    check(&[&unit[..], &["--alt-unit", "ft"]].concat(), "a.geojson", feet, "1 2 - - 30.5 -");
}

#[test]
fn names_that_keep_does_not_name_are_listed_as_not_read() {
    let ts = yesterday("10:12:47Z");
    let gpx = format!(
        "<gpx><trkpt lat='1' lon='2'><time>{ts}</time><extensions><hr>80</hr><cad>90</cad>\
         </extensions></trkpt></gpx>"
    );
    for (keep, unread) in [("hr", &["cad"][..]), ("hr,cad", &[]), ("*", &[])] {
        let result =
            import("", &["--driver", "d7", "--keep", keep], "a.gpx", gpx.as_bytes()).unwrap();
        assert_eq!(result["understood"][0]["unread"], serde_json::json!(unread), "{keep}");
    }
}

#[test]
fn field_of_tcx_is_found_by_the_name_of_its_element() {
    let ts = yesterday("10:12:47Z");
    let file = format!(
        "<TrainingCenterDatabase><Trackpoint><Time>{ts}</Time><Position>\
         <LatitudeDegrees>1</LatitudeDegrees><LongitudeDegrees>2</LongitudeDegrees></Position>\
         <AltitudeMeters>7</AltitudeMeters><Extensions><TPX><Speed>10</Speed></TPX></Extensions>\
         </Trackpoint></TrainingCenterDatabase>"
    );
    for field in ["speed=Speed", "alt=AltitudeMeters", "ts=Time", "lat=LatitudeDegrees"] {
        check(&["--field", field], "a.tcx", &file, "1 2 10 - 7 -");
    }
}
