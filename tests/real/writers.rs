//! Tests that every command that writes to ClickHouse skips erased drivers and splits large
//! inserts.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lab_stack::{unix_ms, wait_until};

use crate::events::{Watcher, YARD};
use crate::secure::{ProxyAction, scripted_clickhouse, scripted_clickhouse_with_size};
use crate::world::{SOON, World, world};

/// Writes a file into the folder of the test. Returns its path.
fn write_file(world: &World, name: &str, text: &str) -> Result<PathBuf> {
    let path = world.folder.path().join(name);
    fs::write(&path, text)?;
    Ok(path)
}

/// A driver is erased while ClickHouse refuses the insert with the driver's rows. The command
/// retries the other rows.
#[test]
fn retried_insert_skips_a_driver_erased_meanwhile() -> Result<()> {
    let world = world("erased_meanwhile")?;
    let now = unix_ms();
    let csv = write_file(
        &world,
        "two.csv",
        &format!("driver_id,ts,lat,lng\ngone,{0},1,2\nstays,{0},1,2\n", now - 3_600_000),
    )?;
    world.query(
        "INSERT INTO {db}.rejects (received_at, topic, driver_id, reason, payload, payload_bytes, \
         count) SELECT now64(3), concat('drivers/', d, '/gps'), d, 'invalid_json', \
         '{\"lat\":1,\"lng\":2}', 17, 1 FROM (SELECT arrayJoin(['gone', 'stays']) AS d)",
    )?;
    let csv = csv.display().to_string();
    for command in [
        &["import", &*csv][..],
        &["rejects", "replay", "--reason", "invalid_json", "--since", "1h"],
    ] {
        let (is_refusing, refusals) =
            (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
        let (refuse, count) = (Arc::clone(&is_refusing), Arc::clone(&refusals));
        let url = scripted_clickhouse(world.engine.server.port, move |statement| {
            if statement.contains("query=INSERT") && refuse.load(Ordering::SeqCst) {
                count.fetch_add(1, Ordering::SeqCst);
                return ProxyAction::Answer(
                    500,
                    "Code: 241. DB::Exception: Memory limit exceeded".to_owned(),
                );
            }
            ProxyAction::Pass
        })?;
        world.query("TRUNCATE TABLE {db}.erased")?;
        let settings = world.settings.clone().with("CLICKHOUSE__URL", url);
        let arguments: Vec<String> =
            command.iter().map(|argument| (*argument).to_owned()).collect();
        let running = thread::spawn(move || {
            settings.call(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
        });
        wait_until("the insert is refused", SOON, || Ok(refusals.load(Ordering::SeqCst) > 0))?;
        world.query("INSERT INTO {db}.erased (driver_id) VALUES ('gone')")?;
        // No insert may start once its list of erased drivers is 35 s old. `milepost erase` waits
        // for longer than that.
        let erased_at = Instant::now();
        wait_until("the list from before the erasure is too old", SOON, || {
            Ok(erased_at.elapsed() > Duration::from_secs(36))
        })?;
        is_refusing.store(false, Ordering::SeqCst);
        let (code, printed) = running.join().expect("no panic")?;
        ensure!(code == 0, "{command:?}: {code} {printed}");
        let count_fixes = |driver: &str| {
            world.query(&format!("SELECT count() FROM {{db}}.fixes WHERE driver_id = '{driver}'"))
        };
        assert_eq!(count_fixes("gone")?, "0", "{command:?} {printed}");
        assert_ne!(count_fixes("stays")?, "0", "{command:?} {printed}");
        world.query("TRUNCATE TABLE {db}.positions")?;
    }
    Ok(())
}

#[test]
fn import_repeats_its_queries_while_clickhouse_refuses_them() -> Result<()> {
    let world = world("import_queries")?;
    let csv = format!("driver_id,ts,lat,lng\nd7,{},1,2\n", unix_ms() - 3_600_000);
    let csv = write_file(&world, "one.csv", &csv)?.display().to_string();
    for query in ["system.parts", "received_at != ts"] {
        let refusals = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&refusals);
        let url = scripted_clickhouse(world.engine.server.port, move |statement| {
            if statement.contains(query) && count.fetch_add(1, Ordering::SeqCst) < 2 {
                let why = "Code: 241. DB::Exception: Memory limit exceeded".to_owned();
                return ProxyAction::Answer(500, why);
            }
            ProxyAction::Pass
        })?;
        let settings = world.settings.clone().with("CLICKHOUSE__URL", url);
        let (code, printed) = settings.call(&["import", &csv])?;
        ensure!(code == 0, "{query}: {code} {printed}");
        ensure!(refusals.load(Ordering::SeqCst) > 2, "{query} was not repeated: {printed}");
    }
    assert_eq!(world.query("SELECT count() FROM {db}.fixes")?, "1");
    Ok(())
}

/// The operator changes the password in ClickHouse first, and in the file some seconds later. A
/// command that has begun to write waits for the new password. A command that starts in between
/// fails before it writes anything.
#[test]
fn writing_command_waits_for_a_rotated_password() -> Result<()> {
    /// Number of queries and inserts that are refused.
    const REFUSALS: usize = 4;
    let world = world("writers_rotated")?;
    world.query(
        "INSERT INTO {db}.rejects (received_at, topic, driver_id, reason, payload, payload_bytes, \
         count) VALUES (now64(3), 'drivers/d1/gps', 'd1', 'invalid_json', '{\"lat\":1,\"lng\":2}', \
         17, 1)",
    )?;
    let yard = write_file(&world, "yard.json", YARD)?.display().to_string();
    let password = write_file(&world, "password", "secret\n")?.display().to_string();
    for (command, table) in [
        (&["rejects", "replay", "--reason", "invalid_json", "--since", "1h"][..], "fixes"),
        (&["fences", "import", &*yard], "fences"),
    ] {
        // `refused_from` occurs in the first statement that is refused. "SELECT" occurs in the
        // first query of the command, when the command has not begun to write. ".erased FINAL"
        // occurs in the query for the list of erased drivers. Each insert begins with this query,
        // so the command has begun to write. `expected`: the exit code, and the number of stored
        // rows.
        for (refused_from, expected) in [("SELECT", (1, "0")), (".erased FINAL", (0, "1"))] {
            let refusals = Arc::new(AtomicUsize::new(0));
            let (count, is_refusing) = (Arc::clone(&refusals), AtomicBool::new(false));
            let url = scripted_clickhouse(world.engine.server.port, move |statement| {
                let has_text = statement.contains(refused_from);
                let is_refusing = is_refusing.fetch_or(has_text, Ordering::SeqCst) || has_text;
                // If the command has begun to write, refuse the query for the list of erased
                // drivers twice, and then the insert twice.
                let is_insert = statement.contains("query=INSERT");
                let nth = count.load(Ordering::SeqCst);
                let is_refused = refused_from == "SELECT" || is_insert == (nth >= REFUSALS / 2);
                if is_refusing && nth < REFUSALS && is_refused {
                    count.fetch_add(1, Ordering::SeqCst);
                    let why = "Code: 516. DB::Exception: milepost: Authentication failed.";
                    return ProxyAction::Answer(403, why.to_owned());
                }
                ProxyAction::Pass
            })?;
            let settings = world.settings.clone().with("CLICKHOUSE__URL", url);
            let settings = settings.with("CLICKHOUSE__PASSWORD_FILE", password.clone());
            let (code, printed) = settings.call(command)?;
            let rows = world.query(&format!("SELECT count() FROM {{db}}.{table}"))?;
            ensure!((code, &*rows) == expected, "{command:?}: {code} {rows} {printed}");
            let refusals = refusals.load(Ordering::SeqCst);
            ensure!(code == 1 || refusals == REFUSALS, "{command:?}: {refusals} refusals");
            ensure!(code == 0 || printed.contains("wrong login"), "{command:?}: {printed}");
        }
    }
    Ok(())
}

/// Largest body that the proxy accepts, in bytes. nginx's default is 1 MiB; this limit is lower, so
/// that a test needs few rows.
const BODY_BYTES_MAX: usize = 40_000;

/// Starts a proxy that accepts no body larger than [`BODY_BYTES_MAX`], and records the size of the
/// largest accepted insert in `largest`. Returns its URL.
fn start_limiting_proxy(world: &World, largest: &Arc<AtomicUsize>) -> Result<String> {
    let largest = Arc::clone(largest);
    scripted_clickhouse_with_size(world.engine.server.port, move |statement, bytes| {
        if bytes > BODY_BYTES_MAX {
            return ProxyAction::Answer(
                413,
                "<html>413 Request Entity Too Large</html>".to_owned(),
            );
        }
        if statement.contains("query=INSERT") {
            largest.fetch_max(bytes, Ordering::SeqCst);
        }
        ProxyAction::Pass
    })
}

#[test]
fn every_command_splits_an_insert_refused_as_too_large() -> Result<()> {
    let world = world("too_large")?;
    let largest = Arc::new(AtomicUsize::new(0));
    let settings =
        world.settings.clone().with("CLICKHOUSE__URL", start_limiting_proxy(&world, &largest)?);
    let (mut csv, began) = ("driver_id,ts,lat,lng\n".to_owned(), unix_ms() - 7_200_000);
    for n in 0..20_000_u32 {
        writeln!(
            csv,
            "d{},{},{:.7},{:.7}",
            n % 100,
            began + i64::from(n) * 100,
            f64::from(n).sin(),
            f64::from(n).cos()
        )?;
        // Add a hundred rows without a valid time, which become rejects.
        if n % 200 == 0 {
            writeln!(csv, "d1,never,{n},x{}", "y".repeat(n as usize % 97))?;
        }
    }
    let csv = write_file(&world, "many.csv", &csv)?;
    let (code, printed) = settings.call(&["import", &csv.display().to_string()])?;
    ensure!(code == 0, "{code} {printed}");
    assert_eq!(world.query("SELECT count() FROM {db}.fixes")?, "20000");
    assert_eq!(world.query("SELECT sum(count) FROM {rejects}")?, "100");
    assert!(
        largest.swap(0, Ordering::SeqCst) > BODY_BYTES_MAX / 5,
        "the insert must not be split into too small pieces"
    );

    let ring = |n: u32| {
        let point = |k: u32| {
            let angle = f64::from(k) * std::f64::consts::TAU / 300.0;
            format!("[{:.6},{:.6}]", 20.0 + f64::from(n) + angle.cos() / 3.0, angle.sin() / 3.0)
        };
        (0..300).chain([0]).map(point).collect::<Vec<_>>().join(",")
    };
    // The first fence is the yard, which the drivers below enter.
    let feature = |n: u32| {
        let (yard, circle) =
            ("[[13,52],[13.1,52],[13.1,52.1],[13,52.1],[13,52]]".to_owned(), ring(n));
        format!(
            r#"{{"type":"Feature","properties":{{"name":"f{n}"}},"geometry":{{"type":"Polygon","coordinates":[{}]}}}}"#,
            if n == 0 { yard } else { format!("[{circle}]") }
        )
    };
    let features = (0..30).map(feature).collect::<Vec<_>>().join(",");
    let fences = write_file(
        &world,
        "fences.geojson",
        &format!(r#"{{"type":"FeatureCollection","features":[{features}]}}"#),
    )?;
    let (code, printed) = settings.call(&["fences", "import", &fences.display().to_string()])?;
    ensure!(code == 0, "{code} {printed}");
    assert_eq!(world.query("SELECT count() FROM {db}.fences")?, "30");

    let mut watcher = Watcher::start_watching(&settings, &world, "events")?;
    world.query(
        "INSERT INTO {db}.positions (driver_id, ts, lat_e7, lng_e7) \
         SELECT concat('e', toString(cityHash64(number % 2000))), now64(3) - intDiv(number, 2000), \
         520500000, 130500000 FROM numbers(4000)",
    )?;
    world.wait_for("SELECT count() FROM {db}.events FINAL WHERE kind = 'entered'", "2000", SOON)?;
    watcher.process.signal("TERM")?;
    ensure!(watcher.process.wait(SOON)?.success(), "{}", watcher.process.log()?);
    Ok(())
}
