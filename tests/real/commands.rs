//! Tests `migrate`, `config`, `decode`, `trace`, `top`, `health`, and the errors of bad usage.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context as _, Result};
use lab_stack::{Broker, Process, free_port, wait_until};

use crate::secure::{ProxyAction, scripted_clickhouse};
use crate::world::{Engine, SOON, settings, unmigrated, unmigrated_on, world};

#[test]
fn migrations_can_be_repeated_and_run_by_two_processes_at_once() -> Result<()> {
    let world = unmigrated("migrations")?;
    let migrations: Vec<_> = (0..2)
        .map(|_| {
            let settings = world.settings.clone();
            thread::spawn(move || settings.migrate())
        })
        .collect();
    for migration in migrations {
        migration.join().expect("the migration does not panic")?;
    }
    world.settings.migrate()?;
    let files = lab_stack::sql::migrations()?.len();
    assert_eq!(world.query("SELECT count() FROM {db}.schema_migrations FINAL")?, files.to_string());
    Ok(())
}

#[test]
fn dropped_objects_are_recreated_from_the_history() -> Result<()> {
    const DROPPED: [&[&str]; 4] = [
        &["{db}.last_positions_mv", "{db}.last_positions_state", "{db}.schema_migrations"],
        &["{db}.last_positions_mv"],
        &["{db}.touched_mv"],
        &["{db}.events", "{db}_ask.track"],
    ];
    let world = world("dropped")?;
    for (round, dropped) in DROPPED.into_iter().enumerate() {
        for table in dropped {
            world.query(&format!("DROP TABLE {table} SYNC"))?;
        }
        // These rows arrive while the dropped objects are missing.
        world.query(&format!(
            "INSERT INTO {{db}}.positions (driver_id, ts, seq, speed_cms) \
             SELECT toString(number % 3), now64(3), 1000 * {round} + number, 100 + {round} \
             FROM numbers(300)"
        ))?;
        let newest = world
            .query("SELECT driver_id, max(seq) FROM {db}.positions GROUP BY ALL ORDER BY ALL")?;
        world.settings.migrate()?;
        assert_eq!(
            world.query("SELECT driver_id, seq FROM {db}.last_positions ORDER BY driver_id")?,
            newest
        );
        for sql in lab_stack::sql::REFRESH_ROLLUPS {
            world.query(sql)?;
        }
        // Count the drivers whose rows in `touched` are incomplete. The ids of the drivers have one
        // character; `touched` also has a row whose driver_id is the server's UUID.
        let incomplete_drivers = format!(
            "SELECT count() FROM (SELECT driver_id FROM {{db}}.touched WHERE length(driver_id) = 1 \
             GROUP BY driver_id HAVING sum(rows) < (SELECT count() / 3 FROM {{db}}.positions) \
             OR max(speed_max) < 100 + {round})"
        );
        assert_eq!(world.query(&incomplete_drivers)?, "0", "{dropped:?}");
        for table in dropped {
            assert_eq!(world.query(&format!("EXISTS TABLE {table}"))?, "1", "{table}");
        }
    }
    // Drop only the target table of a view: inserts fail until the migration has recreated the
    // table. The new table has every driver.
    let newest =
        world.query("SELECT driver_id, max(seq) FROM {db}.positions GROUP BY ALL ORDER BY ALL")?;
    world.query("DROP TABLE {db}.last_positions_state SYNC")?;
    world.settings.migrate()?;
    assert_eq!(
        world.query("SELECT driver_id, seq FROM {db}.last_positions ORDER BY driver_id")?,
        newest
    );
    Ok(())
}

#[test]
fn retention_follows_the_configuration() -> Result<()> {
    let world = world("retention")?;
    let ttl = |table: &str| {
        world.query(&format!(
            "SELECT extract(engine_full, 'TTL (.*) SETTINGS') FROM system.tables \
             WHERE database = '{{db}}' AND name = '{table}'"
        ))
    };
    assert_eq!(ttl("positions")?, "toDateTime(ts) + toIntervalDay(400)");
    assert_eq!(
        world.query(
            "SELECT count() FROM system.mutations WHERE database = '{db}' \
             AND command NOT LIKE '%MATERIALIZE INDEX%'"
        )?,
        "0",
        "the first migration must not change a retention"
    );
    world.query(
        "INSERT INTO {db}.positions (driver_id, ts) VALUES ('d', now64(3) - INTERVAL 60 DAY), \
         ('d', now64(3))",
    )?;
    let shorter = world.settings.clone().with("CLICKHOUSE__RETENTION__POSITIONS_DAYS", "50");
    let shorter = shorter
        .with("CLICKHOUSE__RETENTION__REJECTS_DAYS", "7")
        .with("CLICKHOUSE__RETENTION__ROLLUPS_DAYS", "90");
    shorter.migrate()?;
    assert_eq!(ttl("positions")?, "toDateTime(ts) + toIntervalDay(50)");
    assert_eq!(ttl("rejects")?, "toDateTime(inserted_at) + toIntervalDay(7)");
    assert_eq!(ttl("driver_days_state")?, "day + toIntervalDay(90)");
    assert_eq!(ttl("touched")?, "day + toIntervalDay(48)");
    world.wait_for("SELECT count() FROM {db}.positions", "1", SOON)?;
    let mutations = world.query("SELECT count() FROM system.mutations WHERE database = '{db}'")?;
    shorter.migrate()?;
    assert_eq!(
        world.query("SELECT count() FROM system.mutations WHERE database = '{db}'")?,
        mutations,
        "a repeated migration must not change a retention"
    );
    Ok(())
}

/// The sink of the benchmark answers the queries that milepost sends, and no others.
#[test]
fn milepost_can_migrate_and_run_on_the_bench_sink() -> Result<()> {
    let sink = lab_stand_ins::sink::Sink::start(1, 1)?;
    let folder = lab_stack::folder()?;
    let broker = Broker::start(folder.path())?;
    let settings = settings(folder.path(), broker.port, &sink.url());
    let (sender, outcome) = std::sync::mpsc::sync_channel(1);
    let migrating = settings.clone();
    // Migrate on a thread, and wait for the result with a timeout: milepost would retry an
    // unsupported query for ever.
    thread::spawn(move || sender.send(migrating.migrate()));
    outcome.recv_timeout(SOON)??;
    assert_eq!(settings.run()?.terminate(SOON)?, 0);
    Ok(())
}

#[test]
fn migration_edited_after_it_was_applied_is_refused() -> Result<()> {
    let world = world("edited")?;
    world.query(
        "INSERT INTO {db}.schema_migrations (version, name, checksum) \
         VALUES (10, '010_positions', 'other')",
    )?;
    let settings = world.settings.clone().with("HTTP__LISTEN", "127.0.0.1:0");
    for command in ["migrate", "run"] {
        let (code, printed) = settings.call(&[command])?;
        assert_eq!(code, 1, "{printed}");
        assert!(printed.contains("010_positions was edited"), "{printed}");
    }
    Ok(())
}

#[test]
fn record_of_a_removed_migration_changes_nothing() -> Result<()> {
    let world = world("former_migration")?;
    world.query(
        "INSERT INTO {db}.schema_migrations (version, name, checksum) \
         VALUES (303, '303_ask_speeding', 'any')",
    )?;
    world.settings.migrate()?;
    let (code, printed) = world.settings.call(&["check"])?;
    assert!(
        code == 0 && printed.contains("all migrations of this version are applied"),
        "{printed}"
    );
    // The removed file has a similar name to the file that creates the view `speeding`. The record
    // of the removed file did not prevent the creation of the view.
    let view = "SELECT positionCaseInsensitive(create_table_query, 'is_derived') > 0 \
                FROM system.tables WHERE database = '{db}_ask' AND name = 'speeding'";
    assert_eq!(world.query(view)?, "1");
    Ok(())
}

#[test]
fn migrate_plan_equals_what_migrate_executes() -> Result<()> {
    let world = unmigrated("plan")?;
    let plan = |settings: lab_stack::Settings| -> Result<Vec<String>> {
        let (code, printed) =
            settings.with("CLICKHOUSE__URL", "http://127.0.0.1:1").call(&["migrate", "--plan"])?;
        assert_eq!(code, 0, "{printed}");
        Ok(printed.split(";\n\n").filter(|sql| !sql.trim().is_empty()).map(str::to_owned).collect())
    };
    let replicated =
        |replication: &str| world.settings.clone().with("CLICKHOUSE__REPLICATION", replication);
    let cluster = replicated("macros").with("CLICKHOUSE__CLUSTER", "{cluster}");
    let shards = cluster.clone().with("CLICKHOUSE__SHARDS", "true");
    for settings in [replicated("macros"), replicated("managed"), cluster, shards] {
        let statements = plan(settings)?;
        assert!(
            statements.iter().any(|sql| sql.contains("ReplicatedReplacingMergeTree")),
            "{statements:#?}"
        );
        for sql in statements {
            world.query(&format!("EXPLAIN AST {sql}"))?;
        }
    }
    // Prove that the check above can fail: `EXPLAIN AST` refuses a statement with a syntax error.
    assert!(world.query("EXPLAIN AST CREATE TABLE t CLUSTER ON c (n UInt8)").is_err());
    // After the engine has executed the plan for one server, nothing is left for `migrate`.
    let statements = plan(world.settings.clone())?;
    for sql in &statements {
        world.query(sql)?;
    }
    let count = world.query("SELECT count() FROM {db}.schema_migrations FINAL")?;
    world.settings.migrate()?;
    assert_eq!(
        world.query("SELECT count() FROM {db}.schema_migrations")?,
        count,
        "migrate must record nothing again"
    );
    let (code, printed) = world.settings.call(&["check"])?;
    assert!(
        code == 0 && printed.contains("all migrations of this version are applied"),
        "{printed}"
    );
    Ok(())
}

/// A replica that joins later creates its tables with the `CREATE TABLE` statements of the plan. By
/// then, later migrations have changed the definition in Keeper, and ClickHouse refuses a table
/// that differs from this definition.
#[test]
fn created_tables_equal_migrated_tables() -> Result<()> {
    let world = unmigrated("created")?;
    world.settings.migrate()?;
    let (code, plan) = (world.settings.clone())
        .with("CLICKHOUSE__URL", "http://127.0.0.1:1")
        .call(&["migrate", "--plan"])?;
    assert_eq!(code, 0, "{plan}");
    let name = world.query("SELECT '{db}'")?;
    world.query("CREATE DATABASE {db}_new")?;
    for sql in plan.split(";\n\n").filter(|sql| sql.contains("CREATE TABLE IF NOT EXISTS")) {
        world.query(&sql.replace(&format!("{name}."), &format!("{name}_new.")))?;
    }
    let structure = |database: &str| {
        world.query(&format!(
            "SELECT table, what FROM (SELECT table, toString((position, name, type, default_kind, \
             default_expression, compression_codec, comment)) AS what FROM system.columns \
             WHERE database = '{database}' UNION ALL SELECT table, toString((name, type_full, \
             expr, granularity)) FROM system.data_skipping_indices WHERE database = '{database}' \
             UNION ALL SELECT name, comment FROM system.tables WHERE database = '{database}') \
             WHERE table IN (SELECT name FROM system.tables WHERE database = '{database}' \
             AND engine LIKE '%MergeTree' AND name NOT LIKE '.inner%') ORDER BY ALL"
        ))
    };
    let (new, migrated) = (structure("{db}_new")?, structure("{db}")?);
    assert!(new.lines().count() > 100, "{new}");
    let only_in = |lines: &str, other: &str| {
        lines.lines().filter(|line| !other.contains(line)).collect::<Vec<_>>().join("\n")
    };
    assert!(
        new == migrated,
        "only new tables have\n{}\nonly migrated tables have\n{}",
        only_in(&new, &migrated),
        only_in(&migrated, &new)
    );
    Ok(())
}

#[test]
fn decode_prints_the_rows_of_a_file_and_fails_on_rejects() -> Result<()> {
    let folder = lab_stack::folder()?;
    let file = folder.path().join("message.json");
    // No server is running: `decode` needs none.
    let settings = settings(folder.path(), 1, "http://127.0.0.1:1").with("SOURCE__TOPIC", "in/+");
    let decode = |payload: &str| {
        std::fs::write(&file, payload)?;
        let file = file.to_string_lossy();
        settings.call(&[
            "decode",
            "--topic",
            "in/d7",
            "--received-at",
            "2026-01-01T00:00:00Z",
            &file,
        ])
    };
    let (code, printed) = decode(r#"{"lat":1,"lng":2,"speed":3,"ts":1767225599000}"#)?;
    assert_eq!(code, 0, "{printed}");
    for words in [
        r#""driver_id":"d7""#,
        r#""lat":1.0"#,
        r#""speed":3.0"#,
        r#""ts":"2025-12-31T23:59:59.000Z""#,
    ] {
        assert!(printed.contains(words), "{words} in {printed}");
    }
    let (code, printed) = decode(r#"[{"lat":1,"lng":2},{"lat":91,"lng":2}]"#)?;
    assert_eq!(code, 1, "{printed}");
    assert!(printed.contains("\"undated\":true") && printed.contains("\"lat_range\""), "{printed}");
    Ok(())
}

#[test]
fn decode_prints_each_message_before_reading_the_next() -> Result<()> {
    let folder = lab_stack::folder()?;
    let settings = settings(folder.path(), 1, "http://127.0.0.1:1");
    let mut decode = settings
        .command(&["decode", "--lines", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut device = decode.stdin.take().context("stdin")?;
    let mut rows = BufReader::new(decode.stdout.take().context("stdout")?).lines();
    for n in 1..=3 {
        let message = r#"{"topic":"drivers/d7/gps","qos":1,"retain":0,"payloadlen":24,"payload":"{\"lat\":LAT,\"lng\":2}"}"#;
        writeln!(device, "{}", message.replace("LAT", &n.to_string()))?;
        let mut next = || rows.next().context("the stream ended")?.context("stdout");
        assert!(next()?.contains(r#""topic":"drivers/d7/gps""#));
        let row = next()?;
        assert!(row.contains(&format!(r#""lat":{n}.0"#)), "{row}");
    }
    drop(device);
    assert!(decode.wait()?.success());
    Ok(())
}

#[test]
fn bad_configuration_stops_the_start_and_lists_all_violations() -> Result<()> {
    let folder = lab_stack::folder()?;
    let settings = settings(folder.path(), 1, "http://127.0.0.1:1")
        .with("MQTT__CONNECTIONS", "0")
        .with("BATCH__AGE_MAX", "soon")
        .with("BATCH__ROW_MAX", "5");
    let (code, printed) = settings.call(&["run"])?;
    assert_eq!(code, 64);
    for part in [
        "mqtt.connections: must be \"auto\" or a number in 1..=64",
        "batch.age_max: \"soon\"",
        "batch.row_max: unknown key",
        "batch.rows_max?",
    ] {
        assert!(printed.contains(part), "{part} is missing in {printed}");
    }
    Ok(())
}

/// A variable that resembles a setting is an error, but other MILEPOST_ variables are ignored:
/// Kubernetes sets variables such as MILEPOST_HTTP_PORT in every pod if a service is named
/// milepost.
#[test]
fn setting_with_one_underscore_stops_the_start() -> Result<()> {
    let folder = lab_stack::folder()?;
    let settings = settings(folder.path(), 1, "http://127.0.0.1:1");
    let config_with = |key| -> Result<(Option<i32>, String)> {
        let output = settings.command(&["config"]).env(key, "tcp://10.0.0.1:9464").output()?;
        Ok((output.status.code(), String::from_utf8(output.stderr)?))
    };
    let (code, stderr) = config_with("MILEPOST_CLICKHOUSE_RETENTION_REJECTS_DAYS")?;
    let expected =
        "not read; write MILEPOST__CLICKHOUSE__RETENTION__REJECTS_DAYS, with two underscores";
    assert!(code == Some(64) && stderr.contains(expected), "{code:?} {stderr}");
    for (key, setting) in [
        ("MILEPOST_CLICKHOUSE__USER", "MILEPOST__CLICKHOUSE__USER"),
        ("milepost_clickhouse_user", "MILEPOST__CLICKHOUSE__USER"),
        ("MILEPOST_SOURCE_TOPIC", "MILEPOST__SOURCE__TOPIC"),
    ] {
        let (code, stderr) = config_with(key)?;
        assert!(
            code == Some(64) && stderr.contains(&format!("{key}: not read; write {setting}")),
            "{code:?} {stderr}"
        );
    }
    assert_eq!(config_with("MILEPOST_HTTP_PORT")?, (Some(0), String::new()));
    Ok(())
}

/// Some deployment templates cannot omit a variable, and set it to an empty string instead. So an
/// empty variable counts as unset. `events.topic` is the only exception: an empty string turns MQTT
/// off.
#[test]
fn empty_variable_overrides_the_file_only_for_events_topic() -> Result<()> {
    let folder = lab_stack::folder()?;
    std::fs::write(
        folder.path().join("milepost.toml"),
        "[spool]\ndir = \"/from/file\"\n[events]\ntopic = \"from/file\"\n[[sources]]\n\
         topic = \"own/+\"\n",
    )?;
    let settings = settings(folder.path(), 1, "http://127.0.0.1:1");
    let empty = settings
        .with("SPOOL__DIR", "")
        .with("SPOOL", "")
        .with("SOURCES", "")
        .with("EVENTS__TOPIC", "");
    let (code, printed) = empty.call(&["config"])?;
    assert_eq!(code, 0, "{printed}");
    for line in ["dir = \"/from/file\"", "topic = \"own/+\"", "topic = \"\""] {
        assert!(printed.contains(line), "{line} is missing in {printed}");
    }
    Ok(())
}

#[test]
fn failing_command_prints_its_error_with_any_log_filter() -> Result<()> {
    let folder = lab_stack::folder()?;
    let settings = settings(folder.path(), 1, "http://127.0.0.1:1");
    for filter in ["off", "milepost_clickhouse=debug"] {
        let (code, printed) = settings
            .clone()
            .with("LOG__FILTER", filter)
            .call(&["rejects", "replay", "--reason", "too_old", "--since", "1h"])?;
        assert!(code == 1 && printed.contains("milepost: "), "{code} {printed:?}");
    }
    Ok(())
}

#[test]
fn bad_usage_or_a_missing_file_exits_with_64() -> Result<()> {
    let folder = lab_stack::folder()?;
    let settings = settings(folder.path(), 1, "http://127.0.0.1:1");
    assert_eq!(settings.call(&["fly"])?.0, 64);
    assert_eq!(settings.call(&["--help"])?.0, 0);
    for (arguments, expected) in [
        (&["erase", "--driver", "d1", "--within", "500000000000y"][..], "at most 1000d"),
        (&["drain", "--client-id", "c", "--within", "500000000000y"], "at most 1000d"),
        (&["trace", "d1", "--live", "--for", "500000000000y"], "at most 1000d"),
        (&["top", "--every", "0s"], "at least 100ms"),
        (&["trace", "a b"], "a driver id is 1-64 bytes"),
        (&["erase", "--driver", "", "--yes"], "a driver id is 1-64 bytes"),
        (
            &["rejects", "replay", "--reason", "too_old", "--since", "yesterday"],
            "an age such as 2h",
        ),
        (&["drain", "--client-id", "", "--leave"], "must have 1-200 bytes"),
        (&["drain", "--client-id", "a\nb", "--leave"], "without control characters"),
    ] {
        let (code, printed) = settings.call(arguments)?;
        assert!(code == 64 && printed.contains(expected), "{arguments:?}: {code} {printed}");
    }
    let (code, printed) = settings.call(&["config", "--config", "nowhere.toml"])?;
    assert_eq!(code, 64);
    assert!(printed.contains("nowhere.toml"), "{printed}");
    Ok(())
}

#[test]
fn config_merges_file_and_environment_and_hides_secrets() -> Result<()> {
    let folder = lab_stack::folder()?;
    std::fs::write(
        folder.path().join("milepost.toml"),
        "[mqtt]\ngroup = \"file\"\nmax_packet_bytes = 4096\n",
    )?;
    let settings = settings(folder.path(), 1883, "http://127.0.0.1:1")
        .with("MQTT__GROUP", "environment")
        .with("MQTT__USERNAME", "u")
        .with("MQTT__PASSWORD", "007")
        .with("MQTT__TOPICS", "a/+,b/+/c");
    let (code, printed) = settings.call(&["config"])?;
    assert_eq!(code, 0, "{printed}");
    for line in [
        "group = \"environment\"",
        "max_packet_bytes = 4096",
        "topics = [\"a/+\", \"b/+/c\"]",
        "password = \"***\"",
    ] {
        assert!(printed.contains(line), "{line} is missing in {printed}");
    }
    Ok(())
}

/// Each value is invalid and contains a secret: the error must not quote the value.
#[test]
fn secrets_in_the_environment_are_never_printed() -> Result<()> {
    use std::os::unix::ffi::OsStrExt as _;
    let folder = lab_stack::folder()?;
    let settings = settings(folder.path(), 1, "http://127.0.0.1:1");
    let not_utf8 = std::ffi::OsStr::from_bytes(b"hunter2\xff");
    for (key, value) in [
        ("MILEPOST__MQTT__URL", r#"["mqtt://u:hunter2@h"]"#.as_ref()),
        ("MILEPOST__SHUTDOWN__PEERS", "http://u:hunter2@x:1".as_ref()),
        ("MILEPOST__MQTT__PASSWORD", not_utf8),
    ] {
        let output = settings
            .command(&["check"])
            .env(key, value)
            .env("MILEPOST__BATCH__ROWS_MAX", "0")
            .output()?;
        let printed =
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert_eq!(output.status.code(), Some(64), "{printed}");
        let name = key.trim_start_matches("MILEPOST__").replace("__", ".").to_lowercase();
        assert!(!printed.contains("hunter"), "{printed}");
        assert!(printed.contains(&name) || printed.contains(key), "{printed}");
        assert!(
            printed.contains("batch.rows_max: 0 is outside"),
            "all violations are reported: {printed}"
        );
    }
    Ok(())
}

#[test]
fn health_queries_the_running_process() -> Result<()> {
    let world = world("health")?;
    let listen = format!("127.0.0.1:{}", free_port()?);
    let settings = world.settings.clone().with("HTTP__LISTEN", &listen);
    let (code, printed) = settings.call(&["health"])?;
    assert_eq!(code, 1);
    assert!(printed.contains("no answer"), "{printed}");

    let milepost = settings.run()?;
    let running = world.settings.clone().with("HTTP__LISTEN", milepost.address());
    wait_until("`milepost health` succeeds", SOON, || Ok(running.call(&["health"])?.0 == 0))?;
    assert!(milepost.get("/livez")?.contains("alive"));
    assert!(milepost.get("/nothing").is_err());
    Ok(())
}

/// The kernel delivers a signal to a container's PID 1 only if that process has a handler for the
/// signal.
#[test]
fn command_as_pid_1_ends_at_sigterm_and_sigint() -> Result<()> {
    let container = || {
        let mut unshare = Command::new("unshare");
        unshare.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child"]);
        unshare
    };
    let tried = container().arg("true").output();
    if !tried.as_ref().is_ok_and(|tried| tried.status.success()) {
        // Write to stderr directly: the harness captures eprintln!, and drops it if a test passes.
        writeln!(
            std::io::stderr(),
            "skipped: this machine does not allow a PID namespace: {tried:?}"
        )?;
        return Ok(());
    }
    let folder = lab_stack::folder()?;
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    let url = scripted_clickhouse(0, move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        ProxyAction::NoAnswer
    })?;
    let settings = settings(folder.path(), free_port()?, &url);
    for (number, (arguments, signal)) in
        [(&["migrate"][..], "TERM"), (&["migrate"], "INT"), (&["trace", "d1"], "TERM")]
            .into_iter()
            .enumerate()
    {
        let command = settings.command(arguments);
        let requests_before = requests.load(Ordering::SeqCst);
        let mut contained = container();
        contained.arg(command.get_program()).args(arguments);
        contained.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let log = folder.path().join(format!("{number}.log"));
        let mut process = Process::start("milepost as PID 1", &mut contained, log)?;
        wait_until("the command waits for ClickHouse", SOON, || {
            process.ensure_alive()?;
            Ok(requests.load(Ordering::SeqCst) > requests_before)
        })?;
        let pid = process.pid();
        let inside = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        assert!(Command::new("kill").args(["-s", signal, inside.trim()]).status()?.success());
        assert_eq!(process.wait(SOON)?.code(), Some(1), "{arguments:?}");
        let log = process.log()?;
        assert!(log.contains("ended by a signal"), "{log}");
    }
    Ok(())
}

#[test]
fn occupied_port_stops_the_start() -> Result<()> {
    let folder = lab_stack::folder()?;
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let settings = settings(folder.path(), 1, "http://127.0.0.1:1")
        .with("HTTP__LISTEN", taken.local_addr()?.to_string());
    let (code, printed) = settings.call(&["run"])?;
    assert_eq!(code, 1);
    assert!(printed.contains("http.listen: cannot listen on"), "{printed}");
    Ok(())
}

/// A storage policy with two volumes, both on this machine's disk. The move factor is 0 so that a
/// nearly full disk moves no parts.
const TIERED: &str = "<clickhouse><storage_configuration><disks><cold><path>COLD/</path></cold></disks>
<policies><tiered><volumes><default><disk>default</disk></default><cold><disk>cold</disk></cold></volumes><move_factor>0</move_factor></tiered></policies>
</storage_configuration></clickhouse>";

#[test]
fn older_positions_move_to_the_configured_volume() -> Result<()> {
    let cold = tempfile::TempDir::new()?;
    let config = TIERED.replace("COLD", &cold.path().display().to_string());
    let engine = Arc::new(Engine::start_with_config(tempfile::TempDir::new()?, &config)?);
    let world = unmigrated_on(engine, "tiered")?;
    world.settings.migrate()?;
    let tiered = world.settings.clone().with("CLICKHOUSE__RETENTION__POSITIONS_POLICY", "tiered");
    let tiered = tiered.with("CLICKHOUSE__RETENTION__POSITIONS_VOLUME", "cold");
    tiered.migrate()?;
    let (code, printed) = tiered.call(&["migrate"])?;
    assert!(
        code == 0 && !printed.contains("storage policy") && !printed.contains("retention (TTL)"),
        "a repeated migration must change nothing: {printed}"
    );
    world.query(
        "INSERT INTO {db}.positions (driver_id, ts) VALUES ('d', now64(3) - INTERVAL 60 DAY), \
         ('d', now64(3))",
    )?;
    let disks = "SELECT groupArray(disk_name) FROM (SELECT disk_name FROM system.parts \
                 WHERE database = '{db}' AND table = 'positions' AND active ORDER BY partition_id)";
    world.wait_for(disks, "['cold','default']", SOON)?;
    assert_eq!(world.query("SELECT count() FROM {db}.fixes")?, "2");

    let new = tiered.with("CLICKHOUSE__DATABASE", "tiered_new");
    new.migrate()?;
    let policy = "SELECT storage_policy FROM system.tables WHERE database = 'tiered_new' \
                  AND name = 'positions'";
    assert_eq!(world.query(policy)?, "tiered");
    Ok(())
}

#[test]
fn trace_fails_on_a_proxy_error_page() -> Result<()> {
    let world = world("trace_page")?;
    for (query, error) in [
        (".last_positions WHERE", "reading the last position failed"),
        ("dateDiff('second', written_at", "reading the list of erased drivers failed"),
    ] {
        let url = scripted_clickhouse(world.engine.server.port, move |statement| {
            if statement.contains(query) {
                ProxyAction::Answer(200, "<html>".to_owned())
            } else {
                ProxyAction::Pass
            }
        })?;
        let (code, printed) =
            world.settings.clone().with("CLICKHOUSE__URL", url).call(&["trace", "d7"])?;
        assert_eq!(code, 1, "{printed}");
        assert!(printed.contains(error) && printed.contains("is this ClickHouse?"), "{printed}");
    }
    Ok(())
}

#[test]
fn trace_finds_a_driver_in_clickhouse_rejects_and_spool() -> Result<()> {
    let mut world = world("trace")?;
    let dir = world.folder.path().join("spool");
    world.settings = world.settings.clone().with("SPOOL__DIR", dir.to_string_lossy());
    let trace =
        |settings: &lab_stack::Settings, driver: &str| -> Result<(i32, serde_json::Value)> {
            let (code, printed) = settings.call(&["trace", "--json", driver])?;
            Ok((code, serde_json::from_str(&printed).with_context(|| printed)?))
        };
    let (code, nothing) = trace(&world.settings, "d7")?;
    assert!(code == 1 && nothing["last"].is_null() && nothing["spool"]["rows"] == 0, "{nothing}");

    let mut milepost = world.settings.run()?;
    let fix = format!(
        r#"{{"lat":25.5,"lng":-80.25,"speed":12.5,"ts":{}}}"#,
        lab_stack::unix_ms() - 5_000
    );
    world.publish(&[
        ("drivers/d7/gps", fix.as_bytes()),
        ("drivers/d7/gps", br#"{"lat":91,"lng":1}"#),
        ("drivers/other/gps", br#"{"lat":92,"lng":1}"#),
    ])?;
    world.wait_for(
        "SELECT (SELECT count() FROM {db}.fixes), (SELECT sum(count) FROM {rejects})",
        "1\t2",
        SOON,
    )?;
    let settings = world.settings.clone().with("SHUTDOWN__PEERS", milepost.address());
    let (code, found) = trace(&settings, "d7")?;
    assert!(code == 0 && found["last"]["lat"] == 25.5 && found["last"]["speed"] == 12.5, "{found}");
    assert!(found["last"]["age_seconds"].as_i64().is_some_and(|age| age >= 5), "{found}");
    assert!(found["fixes_last_hour"] == 1 && found["erased_seconds_ago"].is_null(), "{found}");
    let rejects = found["rejects_last_hour"].as_array().context("rejects")?;
    assert!(
        rejects.len() == 1 && rejects[0]["reason"] == "lat_range" && rejects[0]["count"] == 1,
        "{found}"
    );
    let member = found["members"][0].as_str().context("a member")?;
    assert!(member.ends_with("its spool is empty"), "{found}");

    // ClickHouse is unreachable: new messages go to the spool.
    milepost.terminate(SOON)?;
    let mut spooling =
        world.settings.clone().with("CLICKHOUSE__URL", "http://127.0.0.1:1").start()?;
    wait_until("milepost is subscribed", SOON, || {
        Ok(spooling.metric("mqtt_connected").is_ok_and(|count| count > 0.0))
    })?;
    world.publish(&[
        ("drivers/d8/gps", br#"{"lat":1,"lng":1}"#),
        ("drivers/d9/gps", br#"{"lat":1,"lng":1}"#),
    ])?;
    wait_until("both fixes are spooled", SOON, || {
        Ok(spooling.metric("positions_in_spool")? >= 2.0)
    })?;
    spooling.terminate(SOON)?;
    let (code, printed) = world.settings.call(&["trace", "d8"])?;
    assert!(code == 1 && printed.contains("last fix     ClickHouse has no fix of d8"), "{printed}");
    assert!(printed.contains("spool        1 row in 1 file of"), "{printed}");
    Ok(())
}

#[test]
fn trace_live_shows_each_message_and_its_outcome() -> Result<()> {
    let world = world("live")?;
    let mut milepost = world.settings.run()?;
    let log = world.folder.path().join("live.log");
    let mut command = world.settings.command(&["trace", "d7", "--live", "--for", "1h"]);
    let mut live = Process::start("milepost trace --live", &mut command, log)?;
    let wait_for_line = |live: &mut Process, words: &[&str]| {
        wait_until(&format!("trace prints {words:?}"), SOON, || {
            live.ensure_alive()?;
            Ok(live.log()?.lines().any(|line| words.iter().all(|word| line.contains(word))))
        })
    };
    // Publish repeatedly, because `trace` misses the messages that arrive before it subscribes.
    wait_until("trace has subscribed", SOON, || {
        live.ensure_alive()?;
        world.publish(&[("drivers/d7/gps", br#"{"lat":1,"lng":2,"seq":1}"#)])?;
        Ok(!live.log()?.is_empty())
    })?;
    let ts = lab_stack::unix_ms() - 5_000;
    let dated = format!(r#"{{"lat":25.5,"lng":-80.25,"speed":12.5,"ts":{ts},"seq":2}}"#);
    world.publish(&[
        ("drivers/other/gps", br#"{"lat":1,"lng":2,"seq":99}"#),
        ("drivers/d7/gps", br#"{"lat":91,"lng":1}"#),
        ("drivers/d7/gps", b"online"),
        ("drivers/d7/gps", dated.as_bytes()),
    ])?;
    wait_for_line(&mut live, &["ignored", "presence"])?;
    wait_for_line(&mut live, &["position", "25.5", "12.5"])?;
    wait_for_line(&mut live, &["reject", "lat_range"])?;
    wait_for_line(&mut live, &["stored", r#""seq":1"#, "within_ms"])?;
    wait_for_line(&mut live, &["stored", r#""seq":2"#, "within_ms"])?;

    // Without a member, the next message is not stored.
    milepost.terminate(SOON)?;
    world.publish(&[("drivers/d7/gps", br#"{"lat":1,"lng":2,"seq":3}"#)])?;
    wait_for_line(&mut live, &["position", r#""seq":3"#])?;
    wait_for_line(&mut live, &["not_stored", r#""seq":3"#])?;
    assert!(!live.log()?.contains(r#""seq":99"#), "another driver: {}", live.log()?);
    live.kill()?;

    let (code, printed) = world.settings.call(&["trace", "d7", "--live", "--for", "1s"])?;
    assert_eq!(code, 0, "{printed}");
    Ok(())
}

#[test]
fn top_shows_every_member_and_which_one_is_unreachable() -> Result<()> {
    let world = world("top")?;
    let milepost = world.settings.run()?;
    let unreachable = format!("127.0.0.1:{}", free_port()?);
    let top = |arguments: &[&str]| {
        world.settings.call(
            &[&["top", "--once", "--every", "100ms", milepost.address(), &*unreachable], arguments]
                .concat(),
        )
    };
    let (code, printed) = top(&[])?;
    assert_eq!(code, 0, "{printed}");
    assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");
    assert!(
        printed.starts_with("member ")
            && printed.contains(&format!("{unreachable}: cannot be reached")),
        "{printed}"
    );
    let (_, printed) = top(&["--json"])?;
    let screen: serde_json::Value = serde_json::from_str(&printed).with_context(|| printed)?;
    let members = screen["members"].as_array().context("members")?;
    let by_address = |address: &str| {
        members.iter().find(|member| member["address"] == address).context("a member")
    };
    let (running, missing) = (by_address(milepost.address())?, by_address(&unreachable)?);
    assert!(
        running["ready"] == true
            && running["messages_per_second"] == 0.0
            && missing["answers"] == false,
        "{screen}"
    );
    assert!(running["connections"].as_f64() > Some(0.0), "{screen}");
    let (code, printed) =
        world.settings.call(&["top", "--once", "--every", "100ms", &*unreachable])?;
    assert!(code == 1 && printed.contains("no member answers"), "{printed}");
    assert_eq!(world.settings.call(&["top", "nowhere"])?.0, 64);
    Ok(())
}
