//! Tests `milepost import` with files that look like the output of other programs. Their dates are
//! recent, because milepost rejects fixes that the tables' TTL would soon remove.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use lab_stack::{unix_ms, wait_until};

use crate::secure::{ProxyAction, scripted_clickhouse};
use crate::world::{EXIT_INCOMPLETE, SOON, World, world};

const HOUR_MS: i64 = 3_600_000;

/// Returns the time an hour ago in milliseconds, at a whole second.
fn began_ms() -> i64 {
    (unix_ms() / 1_000 - 3_600) * 1_000
}

fn iso(ms: i64) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(ms.unsigned_abs()))
        .to_string()
}

/// Writes a file into the folder of the test, and creates missing folders. Returns its path.
fn write_file(world: &World, name: &str, text: &str) -> Result<PathBuf> {
    let path = world.folder.path().join(name);
    fs::create_dir_all(path.parent().context("a folder")?)?;
    fs::write(&path, text)?;
    Ok(path)
}

fn import(world: &World, arguments: &[&str], file: &Path) -> Result<(i32, String)> {
    world.settings.call(&[&["import"], arguments, &[&*file.to_string_lossy()]].concat())
}

/// Returns the driver's rows of `fixes`, oldest first: seconds after `began`, lat, lng, speed,
/// heading, alt, acc, the kept fields, and 1 if `ts` equals `received_at`.
fn fixes(world: &World, driver: &str, began: i64) -> Result<String> {
    world.query(&format!(
        "SELECT concatWithSeparator(' ', toString((toUnixTimestamp64Milli(ts) - {began}) / 1000), \
         toString(lat), toString(lng), ifNull(toString(round(speed, 2)), '-'), \
         ifNull(toString(heading), '-'), ifNull(toString(alt), '-'), ifNull(toString(acc), '-'), \
         replaceAll(toString(attributes), '''', ''), toString(ts = received_at)) FROM {{db}}.fixes \
         WHERE driver_id = '{driver}' ORDER BY ts"
    ))
}

#[test]
fn traccar_dawarich_and_recorder_files_are_imported() -> Result<()> {
    let world = world("import_formats")?;
    let began = began_ms();
    let at = |seconds: i64| iso(began + seconds * 1_000);
    let spaced = |seconds: i64| at(seconds).replace('T', " ").replace('Z', "");
    let check = |arguments: &[&str], file: &Path, driver: &str, rows: &[&str]| -> Result<()> {
        let (code, printed) = import(&world, arguments, file)?;
        ensure!(code == 0, "{}: {printed}", file.display());
        let stored = fixes(&world, driver, began)?;
        ensure!(stored == rows.join("\n"), "{}: {stored}\n{printed}", file.display());
        Ok(())
    };

    // Traccar's reports/CsvExportProvider.java: times in the user's zone, speeds in knots, an
    // attribute as a column.
    let csv = write_file(
        &world,
        "traccar.csv",
        &format!(
            "id,deviceId,protocol,serverTime,deviceTime,fixTime,valid,latitude,longitude,altitude,speed,course,address,accuracy,batteryLevel\n\
             12,7,osmand,{0},{0},{0},true,-23.55052,-46.633308,760.0,10.0,180.0,,0.0,85\n\
             13,7,osmand,{1},{1},{1},true,-23.55,-46.63,760.0,0.0,0.0,,0.0,84\n",
            spaced(0),
            spaced(10)
        ),
    )?;
    let traccar = ["--driver", "van", "--speed-unit", "knots", "--keep", "batteryLevel"];
    let rows = [
        "0 -23.55052 -46.633308 5.14 180 760 0 {batteryLevel:85} 1",
        "10 -23.55 -46.63 0 0 760 0 {batteryLevel:84} 1",
    ];
    check(&traccar, &csv, "van", &rows)?;
    // The same file, with the times of a zone two hours ahead of UTC.
    let east = ["--zone", "+02:00", "--driver", "/deviceId", "--speed-unit", "knots"];
    check(
        &east,
        &csv,
        "7",
        &["-7200 -23.55052 -46.633308 5.14 180 760 0 {} 1", "-7190 -23.55 -46.63 0 0 760 0 {} 1"],
    )?;
    // Traccar's database, exported with the device's id: COPY (SELECT …) TO … CSV HEADER.
    let csv = write_file(
        &world,
        "tc_positions.csv",
        &format!(
            "uniqueid,fixtime,latitude,longitude,altitude,speed,course,accuracy\n\
             356307042441013,{}+00,55.66,12.58,12,10,270,4.5\n",
            spaced(5)
        ),
    )?;
    check(
        &["--driver", "/uniqueid", "--speed-unit", "knots"],
        &csv,
        "356307042441013",
        &["5 55.66 12.58 5.14 270 12 4.5 {} 1"],
    )?;
    // Traccar's reports/GpxExportProvider.java, with the device name of its test.
    let gpx = write_file(
        &world,
        "bike.gpx",
        &format!(
            "<?xml version='1.0' encoding='UTF-8'?><gpx version=\"1.0\"><trk><name>A &amp; B \
             &lt;test></name><trkseg><trkpt lat=\"10.5\" \
             lon=\"20.25\"><ele>30.75</ele><time>{}</time></trkpt></trkseg></trk></gpx>",
            at(1)
        ),
    )?;
    check(&["--driver", "{file}"], &gpx, "bike", &["1 10.5 20.25 - - 30.8 - {} 1"])?;

    // dawarich's exports/point_gpx_serializer.rb, and point_geojson_serializer.rb with
    // point_serializer.rb.
    let gpx = write_file(
        &world,
        "dawarich.gpx",
        &format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <gpx xmlns=\"http://www.topografix.com/GPX/1/1\" version=\"1.1\" \
             creator=\"Dawarich\">\n  <trk>\n    <name>dawarich_x</name>\n    <trkseg>\n      \
             <trkpt lat=\"52.5\" lon=\"13.4\">\n        <ele>34.0</ele>\n        \
             <speed>1.5</speed>\n        <time>{}</time>\n        <extensions>\n          \
             <course>90.0</course>\n        </extensions>\n      </trkpt>\n    </trkseg>\n  \
             </trk>\n</gpx>\n",
            at(2)
        ),
    )?;
    check(&["--driver", "jo"], &gpx, "jo", &["2 52.5 13.4 1.5 90 34 - {} 1"])?;
    let geojson = write_file(
        &world,
        "dawarich.json",
        &format!(
            r#"{{"type":"FeatureCollection","features":[{{"type":"Feature","geometry":{{"type":"Point","coordinates":[13.4,52.5]}},
            "properties":{{"battery_status":"unplugged","battery":53,"tracker_id":"jo","topic":"owntracks/jo/phone","altitude":34,"longitude":"13.4",
            "velocity":"1.5","accuracy":8,"timestamp":{},"latitude":"52.5","course":null,"inrids":[]}}}}]}}"#,
            began / 1_000
        ),
    )?;
    let dawarich = [
        "--driver",
        "jane",
        "--field",
        "ts=/properties/timestamp",
        "--field",
        "speed=/properties/velocity",
        "--field",
        "alt=/properties/altitude",
        "--field",
        "acc=/properties/accuracy",
        "--field",
        "heading=/properties/course",
        "--speed-unit",
        "m/s",
        "--keep",
        "properties/battery",
    ];
    check(&dawarich, &geojson, "jane", &["0 52.5 13.4 1.5 - 34 8 {properties/battery:53} 1"])?;

    // OwnTracks Recorder (recorder.c, RECFORMAT): the source in the configuration determines the
    // driver from the topic.
    let rec = write_file(
        &world,
        "store/rec/jane/phone/2026-01.rec",
        &format!(
            "{0}\t{1:<18}\t{{\"_type\":\"location\",\"lat\":48.856826,\"lon\":2.292713,\"tst\":{2},\"vel\":54,\"batt\":53,\"_http\":true}}\n\
             {0}\t{3:<18}\t{{\"_type\":\"lwt\",\"tst\":{2}}}\n",
            at(3),
            "*",
            began / 1_000 + 3,
            "lwt"
        ),
    )?;
    let mut owntracks = world.settings.clone();
    for (key, value) in [
        ("TOPIC", "owntracks/+/+"),
        ("DRIVER", "{1}:{2}"),
        ("FORMAT", "owntracks"),
        ("KEEP", "batt"),
    ] {
        owntracks = owntracks.with(&format!("SOURCE__{key}"), value);
    }
    let (code, printed) = owntracks.call(&["import", &*rec.to_string_lossy()])?;
    ensure!(code == 0 && printed.contains("without a fix                        1"), "{printed}");
    ensure!(fixes(&world, "jane:phone", began)? == "3 48.856826 2.292713 15 - - - {batt:53} 1");
    let (code, printed) = import(&world, &[], &rec)?;
    ensure!(
        code == 64
            && printed.contains("no configured source matches the topic owntracks/jane/phone"),
        "{printed}"
    );
    Ok(())
}

#[test]
fn repeated_import_stores_each_fix_and_reject_once() -> Result<()> {
    let world = world("import_again")?;
    let began = began_ms();
    let rows: String = (0..200)
        .map(|n| format!("d{},{},{},2\n", n % 7, began + n * 1_000, 1.0 + n as f64 / 1e4))
        .collect();
    let bad = format!(
        "d1,{began},91,2\nd1,,1,2\nno driver,{began},1,2\nd1,2001-01-01 00:00:00,1,2\nd1,{began}\n"
    );
    let file = write_file(&world, "fleet.csv", &format!("driver_id,ts,lat,lng\n{rows}{bad}"))?;
    let count = "SELECT count(), uniqExact(driver_id) FROM {db}.fixes";
    let rejects = "SELECT groupArray((reason, n)) FROM (SELECT reason, sum(count) AS n \
                   FROM {rejects} GROUP BY reason ORDER BY reason)";

    let (code, printed) = import(&world, &["--dry-run"], &file)?;
    ensure!(code == 1 && printed.contains("valid                              200"), "{printed}");
    ensure!(
        printed.contains("nothing is imported: a dry run") && world.query(count)? == "0\t0",
        "{printed}"
    );
    for _ in 0..2 {
        let (code, printed) = import(&world, &["--json"], &file)?;
        ensure!(code == 0 && printed.contains("\"inserted\":200"), "{printed}");
        ensure!(world.query(count)? == "200\t7");
        let expected =
            "[('bad_driver',1),('bad_ts',1),('lat_range',1),('missing_field',1),('too_old',1)]";
        ensure!(world.query(rejects)? == expected, "{}", world.query(rejects)?);
    }
    // An erased driver stays erased.
    let (code, printed) =
        world.settings.call(&["erase", "--driver", "d3", "--yes", "--within", "1s"])?;
    ensure!(code == EXIT_INCOMPLETE, "{printed}");
    let (_, printed) = import(&world, &["--json"], &file)?;
    // Of the 200 rows, every seventh is of d3.
    ensure!(printed.contains("\"erased\":29,"), "{printed}");
    // An equal bad row further down, or of another driver, is another reject. An unclosed quote
    // does not affect the neighbouring rows.
    let state = world.folder.path().join("state.json").display().to_string();
    let resume = |file: &Path| import(&world, &["--driver", "grows", "--resume", &state], file);
    let (bad, unclosed) = (format!("{began},91,2\n"), format!("{began},\"1,2\n"));
    let good = |n: i64| format!("{},1,\"2\"\n", began + n * 1_000);
    let mut text = format!("ts,lat,lng\n{}{bad}", good(1));
    for addition in ["", &bad, &format!("{unclosed}{}{unclosed}{}", good(2), good(3).repeat(20))] {
        text += addition;
        let (code, printed) = resume(&write_file(&world, "grows.csv", &text)?)?;
        ensure!(code == 0, "{printed}");
    }
    import(&world, &["--driver", "other"], &write_file(&world, "grows.csv", &text)?)?;
    // Query the table itself: two of these rows are equal, so `{rejects}` would count them once.
    let counts = "SELECT groupArray((driver_id, reason, n)) \
                  FROM (SELECT driver_id, reason, sum(count) AS n FROM {db}.rejects \
                  WHERE driver_id IN ('grows', 'other') GROUP BY ALL ORDER BY ALL)";
    let expected = "[('grows','invalid_json',2),('grows','lat_range',2),('other','invalid_json',2),('other','lat_range',2)]";
    ensure!(world.query(counts)? == expected, "{}", world.query(counts)?);
    ensure!(world.query("SELECT count() FROM {db}.fixes WHERE driver_id = 'grows'")? == "3");
    let detail = "SELECT any(detail) FROM {db}.rejects WHERE reason = 'invalid_json'";
    ensure!(world.query(detail)? == "a quote in this row is never closed");
    // `import` does not guess the unit of a speed. It reads a truncated file up to the point where
    // the file was cut, and then fails.
    let file = write_file(&world, "speed.csv", "driver_id,ts,lat,lng,speed\n")?;
    let (code, printed) = import(&world, &[], &file)?;
    ensure!(code == 64 && printed.contains("--speed-unit"), "{printed}");
    let point = format!("<trkpt lat=\"1\" lon=\"2\"><time>{}</time></trkpt>", iso(began));
    let file = write_file(&world, "cut.gpx", &format!("<gpx><trk><trkseg>{point}<trkpt lat="))?;
    let (code, printed) = import(&world, &["--driver", "cut"], &file)?;
    ensure!(code == 1 && printed.contains("cut.gpx: not read to its end"), "{printed}");
    ensure!(world.query("SELECT count() FROM {db}.fixes WHERE driver_id = 'cut'")? == "1");
    Ok(())
}

/// Makes a dry run, which needs no server. Returns its exit code and its report.
fn dry_run(world: &World, arguments: &[&str], file: &Path) -> Result<(i32, serde_json::Value)> {
    let (code, printed) = import(world, &[&["--dry-run", "--json"], arguments].concat(), file)?;
    let line =
        printed.lines().find(|line| line.starts_with('{')).with_context(|| printed.clone())?;
    Ok((code, serde_json::from_str(line)?))
}

#[test]
fn import_reports_unread_and_unused_input() -> Result<()> {
    let world = world("import_reports")?;
    let (began, driver) = (began_ms(), ["--driver", "d1"]);
    let with_speed = [&driver[..], &["--speed-unit", "m/s"]].concat();
    // `import` reads all of several concatenated collections, reports trailing data, and skips a
    // byte order mark.
    let feature = |ms: i64| {
        format!(
            r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[1,2]}},"properties":{{"ts":{ms}}}}}"#
        )
    };
    let collection = |ms| format!(r#"{{"type":"FeatureCollection","features":[{}]}}"#, feature(ms));
    let two = format!("\u{feff}{}\n{}\n", collection(began), collection(began + 1_000));
    let (code, report) = dry_run(&world, &with_speed, &write_file(&world, "two.geojson", &two)?)?;
    ensure!((code, report["positions"].as_u64()) == (0, Some(2)), "{report}");
    let (code, report) =
        dry_run(&world, &with_speed, &write_file(&world, "cut.geojson", &format!("{two}404"))?)?;
    ensure!(
        code == 1
            && report["failures"][0]
                .as_str()
                .is_some_and(|why| why.contains("not read to its end")),
        "{report}"
    );
    let lines = format!("\u{feff}{}\n", feature(began));
    let (code, report) =
        dry_run(&world, &with_speed, &write_file(&world, "one.geojsonl", &lines)?)?;
    ensure!((code, report["positions"].as_u64()) == (0, Some(1)), "{report}");
    // A time without a zone is refused, unless `--zone` gives one.
    let local = two.replace(&began.to_string(), &format!("\"{}\"", iso(began).replace('Z', "")));
    let file = write_file(&world, "zone.geojson", &local)?;
    let (code, report) = dry_run(&world, &with_speed, &file)?;
    ensure!(code == 1 && report["rejected"]["bad_ts"] == 1, "{report}");
    let (code, report) =
        dry_run(&world, &[&with_speed[..], &["--zone", "+05:00"]].concat(), &file)?;
    ensure!(code == 0 && report["oldest"] == began - 5 * HOUR_MS, "{report}");
    // Error responses that were saved in place of a track are refused.
    let page = write_file(&world, "page.gpx", "<html><body>404</body></html>")?;
    let (code, printed) = import(&world, &driver, &page)?;
    ensure!(code == 64 && printed.contains("it is a web page"), "{printed}");
    for text in ["", "404 page not found"] {
        let (code, report) = dry_run(&world, &driver, &write_file(&world, "none.gpx", text)?)?;
        ensure!(
            code == 1 && report["failures"][0].as_str().is_some_and(|why| why.contains("not GPX")),
            "{report}"
        );
    }
    // A decimal comma splits a number in two. The parts never become a position; a split speed
    // becomes unknown, and is counted.
    let (code, report) = dry_run(
        &world,
        &driver,
        &write_file(&world, "a.csv", &format!("lat,lon,ts\n52,5,13,4,{began}\n"))?,
    )?;
    ensure!(
        code == 1 && report["rejected"]["invalid_json"] == 1 && report["positions"] == 0,
        "{report}"
    );
    let comma =
        write_file(&world, "b.csv", &format!("lat;lon;ts;speed\n52.5;13.4;{began};12,5\n"))?;
    let (code, report) = dry_run(&world, &with_speed, &comma)?;
    ensure!(
        code == 0 && report["fields_unknown"]["speed"] == 1 && report["positions"] == 1,
        "{report}"
    );
    let (_, printed) = import(&world, &[&with_speed[..], &["--dry-run"]].concat(), &comma)?;
    ensure!(
        printed.contains("speed                                1   could not be used"),
        "{printed}"
    );
    let (code, printed) = import(&world, &driver, &write_file(&world, "none.csv", "")?)?;
    ensure!(code == 64 && printed.contains("the first row must name the columns"), "{printed}");
    // `import` refuses arguments with which it would skip data silently.
    let heart = write_file(&world, "heart.csv", &format!("lat,lon,ts,hr\n1,2,{began},60\n"))?;
    for (arguments, expected) in [
        (&["--keep", "/hr"][..], "must be a name such as"),
        (&["--keep", "*,hr"], "give it alone"),
        (&["--keep", "nosuch"], "no such column"),
    ] {
        let (code, printed) = import(&world, &[&driver[..], arguments].concat(), &heart)?;
        ensure!(code == 64 && printed.contains(expected), "{arguments:?}: {code} {printed}");
    }
    let (code, report) = dry_run(&world, &[&driver[..], &["--keep", "hr, ts"]].concat(), &heart)?;
    ensure!(code == 0 && report["positions"] == 1, "{report}");
    let (code, printed) =
        import(&world, &["--driver", "{file}", "--format", "gpx"], Path::new("-"))?;
    ensure!(code == 64 && printed.contains("standard input has no name"), "{printed}");
    let state = world.folder.path().join("nowhere/state.json").display().to_string();
    let (code, printed) = import(&world, &[&driver[..], &["--resume", &state]].concat(), &heart)?;
    ensure!(code == 64 && printed.contains("cannot be written"), "{printed}");
    let (code, printed) = import(&world, &driver, world.folder.path())?;
    ensure!(code == 64 && printed.contains("it is a directory"), "{printed}");
    // Character references of XML are resolved.
    let point = format!(
        "<trkpt lat=\"1\" lon=\"2\"><time>{}</time><name>A &amp; B</name></trkpt>",
        iso(began).replacen(':', "&#58;", 1)
    );
    let file =
        write_file(&world, "amp.gpx", &format!("<gpx><trk><trkseg>{point}</trkseg></trk></gpx>"))?;
    let (code, printed) = import(&world, &["--driver", "amp", "--keep", "name"], &file)?;
    ensure!(code == 0, "{printed}");
    let kept = world.query("SELECT attributes['name'] FROM {db}.fixes WHERE driver_id = 'amp'")?;
    ensure!(kept == "A & B", "{kept}");
    // A pipe can be read only once.
    let pipe = world.folder.path().join("pipe.csv");
    ensure!(Command::new("mkfifo").arg(&pipe).status()?.success());
    let writer = std::thread::spawn({
        let (pipe, text) = (pipe.clone(), format!("lat,lon,ts\n1,2,{began}\n"));
        move || fs::write(pipe, text)
    });
    let (code, report) = dry_run(&world, &driver, &pipe)?;
    ensure!(code == 0 && report["positions"] == 1, "{report}");
    writer.join().expect("the writer does not panic")?;
    // Use a zone west of Greenwich. `{file}` is the name of the link, not of its target.
    let file = write_file(&world, "b37.csv", "lat,lon,ts\n1,2,2026-01-31 08:00:00\n")?;
    let text = fs::read_to_string(&file)?
        .replace("2026-01-31 08:00:00", &iso(began - 10 * HOUR_MS).replace(['T', 'Z'], " "));
    fs::write(&file, text)?;
    let link = world.folder.path().join("jo.csv");
    std::os::unix::fs::symlink(&file, &link)?;
    let (code, printed) = import(&world, &["--driver", "{file}", "--zone", "-05:00"], &link)?;
    ensure!(code == 0, "{printed}");
    let stored = fixes(&world, "jo", began)?;
    // Ten hours earlier in local time, which is five hours earlier in UTC.
    ensure!(stored == "-18000 1 2 - - - - {} 1", "{stored}");
    Ok(())
}

/// After a kill at any moment, the import resumes after the last row that ClickHouse confirmed.
#[test]
fn killed_import_resumes_where_it_stopped() -> Result<()> {
    const FIXES: i64 = 400_000;
    let world = world("import_resume")?;
    let began = began_ms() - FIXES * 1_000;
    let file = world.folder.path().join("long.csv");
    let rows: String =
        (0..FIXES).map(|n| format!("{},{},2\n", began + n * 1_000, 1.0 + n as f64 / 1e6)).collect();
    fs::write(&file, format!("time,lat,lon\n{rows}"))?;
    let state = world.folder.path().join("state.json");
    let arguments = [
        "import",
        "--driver",
        "d1",
        "--json",
        "--resume",
        &*state.to_string_lossy(),
        &*file.to_string_lossy(),
    ];
    let confirmed = || -> Result<i64> {
        let Some(state) = fs::read(&state).ok().filter(|state| !state.is_empty()) else {
            return Ok(0);
        };
        let state: serde_json::Value = serde_json::from_slice(&state)?;
        let files = state.as_object().context("files and numbers")?;
        files.values().next().map_or(Ok(0), |mark| mark["fixes"].as_i64().context("a number"))
    };
    let count = || -> Result<i64> { Ok(world.query("SELECT count() FROM {db}.fixes")?.parse()?) };

    let mut first: Command = world.settings.command(&arguments);
    let mut first = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    wait_until("a batch is stored", SOON, || Ok(confirmed()? > 0))?;
    first.kill()?;
    first.wait()?;
    let confirmed_at_kill = confirmed()?;
    ensure!(
        count()? >= confirmed_at_kill,
        "the state has {confirmed_at_kill} fixes, the table {}",
        count()?
    );

    let (code, printed) = world.settings.call(&arguments)?;
    ensure!(
        code == 0 && printed.contains(&format!("\"skipped\":{confirmed_at_kill},")),
        "{confirmed_at_kill}: {printed}"
    );
    ensure!(count()? == FIXES, "{} of {FIXES}", count()?);
    ensure!(confirmed()? == FIXES);
    // If the file has grown, only the new rows are imported.
    fs::write(&file, format!("time,lat,lon\n{rows}{},3,2\n", began + FIXES * 1_000))?;
    let (code, printed) = world.settings.call(&arguments)?;
    ensure!(code == 0 && printed.contains("\"inserted\":1,"), "{printed}");
    ensure!(count()? == FIXES + 1);
    Ok(())
}

/// The operator changes the password in ClickHouse first, and seconds later in the file.
#[test]
fn import_awaits_a_rotated_password() -> Result<()> {
    const FIXES: i64 = 300_000;
    /// Number of queries and inserts that are refused before the file has the new password.
    const REFUSALS: u32 = 6;
    let world = world("import_rotated")?;
    let (began, refused) = (began_ms() - FIXES * 1_000, Arc::new(AtomicU32::new(0)));
    let rows: String =
        (0..FIXES).map(|n| format!("{},{},2\n", began + n * 1_000, 1.0 + n as f64 / 1e6)).collect();
    let file = write_file(&world, "long.csv", &format!("time,lat,lon\n{rows}"))?;
    let (counter, inserts) = (Arc::clone(&refused), AtomicU32::new(0));
    let url = scripted_clickhouse(world.engine.server.port, move |statement| {
        let is_insert = statement.contains("query=INSERT");
        let is_rotated = inserts.fetch_add(u32::from(is_insert), Ordering::SeqCst) >= 2;
        if is_rotated && counter.load(Ordering::SeqCst) < REFUSALS {
            counter.fetch_add(1, Ordering::SeqCst);
            let why = "Code: 516. DB::Exception: milepost: Authentication failed.";
            return ProxyAction::Answer(403, why.to_owned());
        }
        ProxyAction::Pass
    })?;
    let password = write_file(&world, "password", "secret\n")?;
    let settings = world.settings.clone().with("CLICKHOUSE__URL", url);
    let settings = settings.with("CLICKHOUSE__PASSWORD_FILE", password.display().to_string());
    let arguments = ["import", "--driver", "d1", "--json", &*file.to_string_lossy()];
    let (code, printed) = settings.call(&arguments)?;
    ensure!(code == 0 && printed.contains(&format!("\"inserted\":{FIXES},")), "{code} {printed}");
    ensure!(
        refused.load(Ordering::SeqCst) == REFUSALS,
        "fewer than {REFUSALS} logins were refused"
    );
    ensure!(world.query("SELECT count() FROM {db}.fixes")? == FIXES.to_string());
    Ok(())
}

/// `--resume` leaves a row with an open quote to the next run, and refuses a file whose beginning
/// has changed.
#[test]
fn resumed_import_skips_only_what_it_stored() -> Result<()> {
    let world = world("import_grows")?;
    let state = world.folder.path().join("state.json").display().to_string();
    let resume = |name: &str, text: &str| {
        import(
            &world,
            &["--driver", "{file}", "--resume", &state],
            &write_file(&world, name, text)?,
        )
    };
    let count = |driver: &str| {
        world.query(&format!("SELECT count() FROM {{db}}.fixes WHERE driver_id = '{driver}'"))
    };
    let (began, head) = (began_ms(), "ts,lat,lng,note\n");
    let row = |n: i64| format!("{},1,2,x\n", began + n * 1_000);
    // Import longer and longer prefixes of a file, as if another program were still writing the
    // file. One note has three lines.
    let complete = format!(
        "{head}{}{},1,2,\"first\nsecond\nthird\"\n{}",
        (0..4).map(row).collect::<String>(),
        began + 4_000,
        (5..11).map(row).collect::<String>()
    );
    for end in (head.len()..complete.len()).step_by(41).chain([complete.len()]) {
        let (code, printed) = resume("grows.csv", &complete[..end])?;
        ensure!(code == 0, "{end}: {code} {printed}");
    }
    assert_eq!(count("grows")?, "11");
    assert_eq!(world.query("SELECT count() FROM {db}.rejects")?, "0");

    let rows =
        |numbers: std::ops::Range<i64>| format!("{head}{}", numbers.map(row).collect::<String>());
    let (code, printed) = resume("replaced.csv", &rows(0..5))?;
    ensure!(code == 0, "{printed}");
    for other in [rows(100..115), rows(0..3), rows(0..5).replacen(",1,2,", ",3,2,", 1)] {
        let (code, printed) = resume("replaced.csv", &other)?;
        ensure!(code == 1 && printed.contains("it was changed or replaced"), "{code} {printed}");
        assert_eq!(count("replaced")?, "5");
    }
    let (code, printed) = resume("replaced.csv", &rows(0..7))?;
    ensure!(code == 0, "{printed}");
    assert_eq!(count("replaced")?, "7");

    // The same file for another driver has other fixes.
    let file = world.folder.path().join("replaced.csv");
    let (code, printed) = import(&world, &["--driver", "d7", "--resume", &state], &file)?;
    ensure!(code == 1 && printed.contains("with other options"), "{code} {printed}");
    Ok(())
}

#[test]
fn import_fails_if_the_answer_has_no_part_count() -> Result<()> {
    let world = world("import_parts")?;
    let file =
        write_file(&world, "a.csv", &format!("driver_id,ts,lat,lng\nd1,{},1,2\n", began_ms()))?;
    for answer in ["", "<html>"] {
        let url = scripted_clickhouse(world.engine.server.port, move |statement| {
            if statement.contains("system.parts") {
                ProxyAction::Answer(200, answer.to_owned())
            } else {
                ProxyAction::Pass
            }
        })?;
        let settings = world.settings.clone().with("CLICKHOUSE__URL", url);
        let (code, printed) = settings.call(&["import", &file.to_string_lossy()])?;
        ensure!(code == 1 && printed.contains("is this ClickHouse?"), "{answer}: {code} {printed}");
    }
    Ok(())
}

#[test]
fn import_without_seq_skips_fixes_already_stored_with_seq() -> Result<()> {
    let world = world("import_seq")?;
    let began = began_ms();
    let rows = |with_seq: bool| -> String {
        let row = |n: i64| {
            format!(
                "{},{},13.4{}\n",
                began + n * 60_000,
                52.0 + n as f64 / 10.0,
                if with_seq { format!(",{}", 41 + n) } else { String::new() }
            )
        };
        format!(
            "ts,lat,lng{}\n{}",
            if with_seq { ",seq" } else { "" },
            (0..3).map(row).collect::<String>()
        )
    };
    let sent = write_file(&world, "sent.csv", &rows(true))?;
    let (code, printed) = import(&world, &["--driver", "d7", "--json"], &sent)?;
    ensure!(code == 0 && printed.contains("\"inserted\":3"), "{printed}");
    let export = rows(false) + &format!("{},53,13.4\n", began + 900_000);
    let file = write_file(&world, "export.csv", &export)?;
    let (code, printed) = import(&world, &["--driver", "d7", "--json"], &file)?;
    ensure!(
        code == 0 && printed.contains("\"known\":3") && printed.contains("\"inserted\":1"),
        "{printed}"
    );
    let count = "SELECT count() FROM {db}.fixes WHERE driver_id = 'd7'";
    ensure!(world.query(count)? == "4", "{}", world.query(count)?);
    // A device that sends no seq: the stored fixes are kept, with speed and heading, unless the
    // file has more fields.
    world.query(&format!(
        "INSERT INTO {{db}}.positions (driver_id, ts, seq, lat_e7, lng_e7, speed_cms, \
         heading_cdeg, alt_dm, acc_dm, received_at) SELECT 'd9', fromUnixTimestamp64Milli({began} \
         + number * 60000), 0, 520000000 + number * 1000000, 134000000, 1000, 9000, 2147483647, \
         65535, fromUnixTimestamp64Milli({began} + 900000) FROM numbers(3)"
    ))?;
    let (_, printed) = import(&world, &["--driver", "d9", "--json"], &file)?;
    ensure!(printed.contains("\"known\":3") && printed.contains("\"inserted\":1"), "{printed}");
    let speeds = "SELECT count(), countIf(speed = 10) FROM {db}.fixes WHERE driver_id = 'd9'";
    ensure!(world.query(speeds)? == "4\t3", "{}", world.query(speeds)?);
    let higher = rows(false).replace("lng\n", "lng,alt\n").replace(",13.4\n", ",13.4,70\n");
    let higher = write_file(&world, "higher.csv", &higher)?;
    let (_, printed) = import(&world, &["--driver", "d9", "--json"], &higher)?;
    ensure!(printed.contains("\"known\":0") && printed.contains("\"inserted\":3"), "{printed}");
    // Store many more fixes of the device, with times between the first and the last fix of the
    // file: more than the client library accepts in one response.
    world.query(&format!(
        "INSERT INTO {{db}}.positions (driver_id, ts, seq, lat_e7, lng_e7, received_at) \
         SELECT 'd9', fromUnixTimestamp64Milli({began} + 1 + number), number + 100, 1, 2, \
         fromUnixTimestamp64Milli({began} + 900000) FROM numbers(400000)"
    ))?;
    let (code, printed) = import(&world, &["--driver", "d9", "--json"], &file)?;
    ensure!(code == 0 && printed.contains("\"known\":3"), "{printed}");
    // Fixes of another driver with the same places and times are not duplicates.
    let (_, printed) = import(&world, &["--driver", "d8", "--json"], &file)?;
    ensure!(printed.contains("\"inserted\":4"), "{printed}");
    Ok(())
}
