//! Tests that `milepost erase` removes all data of a driver, even while messages arrive.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, ensure};
use lab_harness::proxy::{self, Proxy};
use lab_stack::{Process, free_port, wait_until};

use crate::secure::{ProxyAction, scripted_clickhouse};
use crate::world::{
    EXIT_INCOMPLETE, SOON, World, finish, publish_in_background, wait_for_metric, world,
};

/// The erased driver, a member of the fleet `gone`.
const DRIVER: &str = "sim-gone-7";
/// Number of [`DRIVER`] in the fleet.
const DRIVER_INDEX: usize = 7;

/// Table settings that remove old parts at once. By default, old parts stay for eight minutes, and
/// the thread that removes them sleeps for up to five minutes.
const FAST_CLEANUP: &str = "old_parts_lifetime = 1, cleanup_delay_period = 1, \
                            max_cleanup_delay_period = 1, cleanup_delay_period_random_add = 0";

/// Query for the tables that store rows.
const MERGE_TREES: &str =
    "SELECT name FROM system.tables WHERE database = '{db}' AND engine LIKE '%MergeTree'";

fn refresh_rollups(world: &World) -> Result<()> {
    lab_stack::sql::REFRESH_ROLLUPS.into_iter().try_for_each(|sql| world.query(sql).map(drop))
}

/// Returns the tables with a column `driver_id`, except the list of erased drivers.
fn tables(world: &World) -> Result<Vec<String>> {
    let tables = world.query(
        "SELECT DISTINCT table FROM system.parts_columns WHERE database = '{db}' \
         AND column = 'driver_id' AND table != 'erased'",
    )?;
    Ok(tables.lines().map(str::to_owned).collect())
}

/// Returns the number of rows of [`DRIVER`] in every table, hidden rows included.
fn row_counts(world: &World) -> Result<Vec<(String, u64)>> {
    let count = |table: String| -> Result<(String, u64)> {
        let sql = format!(
            "SELECT count() FROM {{db}}.{table} WHERE driver_id = '{DRIVER}' \
             SETTINGS apply_deleted_mask = 0"
        );
        let count = world.query(&sql)?.parse()?;
        Ok((table, count))
    };
    tables(world)?.into_iter().map(count).collect()
}

#[test]
fn driver_is_erased_while_a_fleet_publishes_and_a_spool_has_rows() -> Result<()> {
    let world = world("erase")?;
    for table in world.query(MERGE_TREES)?.lines() {
        world.query(&format!("ALTER TABLE {{db}}.{table} MODIFY SETTING {FAST_CLEANUP}"))?;
    }
    let clickhouse_proxy = Proxy::start(world.engine.server.port)?;
    let ports = [free_port()?, free_port()?];
    let peers = ports.map(|port| format!("127.0.0.1:{port}")).join(",");
    let settings =
        world.settings.clone().with("SHUTDOWN__PEERS", peers).with("MQTT__SESSION_EXPIRY", "5m");
    let spooling = settings
        .clone()
        .with("MQTT__CLIENT_ID", "pod-0")
        .with("CLICKHOUSE__URL", format!("http://127.0.0.1:{}", clickhouse_proxy.port))
        .with("SPOOL__DIR", world.folder.path().join("spool").display().to_string());
    let other = settings.clone().with("MQTT__CLIENT_ID", "pod-1");
    let (mut spooling_member, mut other_member) =
        (spooling.start_at(ports[0])?, other.start_at(ports[1])?);
    spooling_member.wait_until_ready()?;
    other_member.wait_until_ready()?;

    let fleet = publish_in_background(world.plan("gone", 500, 10));
    let topic = format!("drivers/{DRIVER}/gps");
    world.publish(&[(&*topic, b"broken")])?;
    wait_for_metric(&other_member, "positions_inserted_total", 500.0)?;
    wait_for_metric(&spooling_member, "positions_inserted_total", 500.0)?;
    clickhouse_proxy.set(proxy::Fault::Refuse);
    wait_for_metric(&spooling_member, "positions_in_spool", 500.0)?;
    refresh_rollups(&world)?;
    wait_until("quarters are counted", 3 * SOON, || {
        Ok(world.query(&format!(
            "SELECT count() FROM {{db}}.driver_quarters WHERE driver_id = '{DRIVER}'"
        ))? != "0")
    })?;
    wait_until("the reject is stored", SOON, || {
        Ok(world
            .query(&format!("SELECT count() FROM {{db}}.rejects WHERE driver_id = '{DRIVER}'"))?
            == "1")
    })?;
    let before = row_counts(&world)?;
    assert!(before.len() >= 4 && before.iter().all(|(_, rows)| *rows > 0), "{before:?}");

    let erase = |flags: &[&str]| settings.call(&[&["erase", "--driver", DRIVER], flags].concat());
    let (code, printed) = erase(&[])?;
    assert!(code == 0 && printed.contains("dry run"), "{code} {printed}");
    assert_eq!(world.query("SELECT count() FROM {db}.erased")?, "0");

    // Kill the command as soon as it has begun.
    let mut command = Command::new(env!("CARGO_BIN_EXE_milepost"));
    command
        .args(["erase", "--driver", DRIVER, "--yes"])
        .env("MILEPOST__CLICKHOUSE__URL", world.engine.server.url());
    command.env("MILEPOST__CLICKHOUSE__DATABASE", &world.database);
    let mut killed =
        Process::start("milepost erase", &mut command, world.folder.path().join("erase.log"))?;
    wait_until("the command has begun", SOON, || {
        Ok(world.query("SELECT count() FROM {db}.erased")? != "0")
    })?;
    killed.kill()?;

    // The rows are hidden at once, and the report names the member that has not read the list of
    // erased drivers yet.
    let (code, printed) = erase(&["--yes", "--within", "4s"])?;
    assert_eq!(code, EXIT_INCOMPLETE, "{printed}");
    assert!(
        printed.contains("pod-0 at 127.0.0.1:") && printed.contains("has not read"),
        "{printed}"
    );

    clickhouse_proxy.set(proxy::Fault::None);
    let (code, printed) = erase(&["--yes", "--within", "20m"])?;
    assert_eq!(code, 0, "{printed}");
    assert!(printed.contains(&format!("nothing of {DRIVER} is left")), "{printed}");
    assert!(row_counts(&world)?.iter().all(|(_, rows)| *rows == 0), "{:?}", row_counts(&world)?);
    assert!(spooling_member.metric("positions_erased_total")? > 0.0);

    // New messages are dropped, refreshed roll-ups do not bring the driver back, and all other
    // drivers are complete.
    let mut manifest = finish(fleet)?;
    assert!(manifest.last_seq[DRIVER_INDEX] > 0);
    manifest.last_seq[DRIVER_INDEX] = 0;
    let verdict = world.verify(&manifest)?;
    assert!(verdict.is_exact(), "{verdict}");
    world.publish(&[(&*topic, br#"{"lat":1,"lng":2}"#), (&*topic, b"broken")])?;
    refresh_rollups(&world)?;
    // The second member finds no running peer, so it keeps its session and exits with code 75.
    for (milepost, code) in [(&mut spooling_member, 0), (&mut other_member, EXIT_INCOMPLETE)] {
        wait_until("everything is acknowledged", SOON, || {
            Ok(milepost.metric("mqtt_unacked")? == 0.0)
        })?;
        assert_eq!(milepost.terminate(SOON)?, code);
        let log = milepost.process.log()?;
        assert!(log.contains("adds_up=true"), "{log}");
    }
    wait_until("no roll-up is being refreshed", 3 * SOON, || {
        Ok(world.query(
            "SELECT countIf(status = 'Running') FROM system.view_refreshes WHERE database = '{db}'",
        )? == "0")
    })?;
    assert!(row_counts(&world)?.iter().all(|(_, rows)| *rows == 0), "{:?}", row_counts(&world)?);

    let (code, printed) = erase(&["--lift"])?;
    assert!(code == 0 && printed.starts_with("lifted"), "{printed}");
    let mut restarted = other.start_at(ports[1])?;
    restarted.wait_until_ready()?;
    // Several messages, because the sessions of the stopped member get a share of them.
    (0..16).try_for_each(|_| world.publish(&[(&*topic, &br#"{"lat":1,"lng":2}"#[..])]))?;
    world.wait_for(
        &format!("SELECT count() > 0 FROM {{db}}.fixes WHERE driver_id = '{DRIVER}'"),
        "1",
        SOON,
    )?;
    assert_eq!(restarted.terminate(SOON)?, EXIT_INCOMPLETE);
    Ok(())
}

/// A materialized view with a table of its own, and tables whose names need quotes and whose driver
/// columns have other types.
#[test]
fn erase_covers_tables_created_by_the_operator() -> Result<()> {
    let world = world("erase_theirs")?;
    world.query(
        "CREATE MATERIALIZED VIEW {db}.my_mv ENGINE = MergeTree ORDER BY driver_id AS \
         SELECT driver_id, ts FROM {db}.positions",
    )?;
    for (table, kind) in
        [("`my-drivers`", "UInt64"), ("`it's \\`odd\\` \\\\`", "LowCardinality(Nullable(String))")]
    {
        let settings = format!("allow_nullable_key = 1, {FAST_CLEANUP}");
        let sql = format!(
            "CREATE TABLE {{db}}.{table} (driver_id {kind}) ENGINE = MergeTree ORDER BY driver_id \
             SETTINGS {settings}"
        );
        world.query(&sql)?;
        world.query(&format!("INSERT INTO {{db}}.{table} VALUES ('7'), ('8')"))?;
    }
    // The two tables above have these settings already; the inner table of the view needs quotes.
    for table in world
        .query(MERGE_TREES)?
        .lines()
        .filter(|table| table.starts_with(|c: char| c.is_ascii_lowercase()))
    {
        if !table.contains(['-', ' ']) {
            world.query(&format!("ALTER TABLE {{db}}.{table} MODIFY SETTING {FAST_CLEANUP}"))?;
        }
    }
    let inner = world.query(&format!("{MERGE_TREES} AND name LIKE '.inner%'"))?;
    world.query(&format!("ALTER TABLE {{db}}.`{inner}` MODIFY SETTING {FAST_CLEANUP}"))?;
    world.query(
        "INSERT INTO {db}.positions (driver_id, ts, seq) \
         SELECT toString(7 + number % 2), now64(3), number FROM numbers(4)",
    )?;
    // A table with rows of the driver, whose engine does not support DELETE.
    world.query("CREATE TABLE {db}.my_log (Driver_Id String) ENGINE = Log")?;
    world.query("INSERT INTO {db}.my_log VALUES ('7'), ('8')")?;
    let store_fence = |name: &str, drivers: &str| {
        world.query(&format!(
            "INSERT INTO {{db}}.fences (name, drivers) VALUES ('{name}', {drivers})"
        ))
    };
    store_fence("depot", "['7', '8']")?;
    store_fence("yard", "['8']")?;
    let store_earlier_yard = |drivers: &str| {
        world.query(&format!(
            "INSERT INTO {{db}}.fences (name, valid_from, drivers) \
             VALUES ('yard', '2026-01-02 03:04:05', {drivers})"
        ))
    };
    store_earlier_yard("['7']")?;
    let (code, printed) =
        world.settings.call(&["erase", "--driver", "7", "--yes", "--within", "20m"])?;
    assert_eq!(code, EXIT_INCOMPLETE, "{printed}");
    assert!(printed.contains("my_log (Log, column Driver_Id): 1 row, which"), "{printed}");
    assert!(printed.contains("the fence depot names the driver"), "{printed}");
    assert!(
        printed.contains("the fence yard (valid_from 2026-01-02 03:04:05.000) names"),
        "{printed}"
    );
    assert!(!printed.contains("the fence yard names"), "{printed}");
    store_fence("depot", "['8']")?;
    store_earlier_yard("['8']")?;
    world.query("DROP TABLE {db}.my_log SYNC")?;
    let (code, printed) =
        world.settings.call(&["erase", "--driver", "7", "--yes", "--within", "20m"])?;
    assert_eq!(code, 0, "{printed}");
    for table in [inner.as_str(), "my-drivers", "it's `odd` \\"] {
        assert!(printed.contains(table), "{table} in {printed}");
    }
    let count_rows = |table: &str| {
        world.query(&format!(
            "SELECT countIf(toString(driver_id) = '7'), count() FROM {{db}}.{table} \
             SETTINGS apply_deleted_mask = 0"
        ))
    };
    for (table, expected) in [
        ("positions", "0\t2"),
        ("my_mv", "0\t2"),
        ("`my-drivers`", "0\t1"),
        ("`it's \\`odd\\` \\\\`", "0\t1"),
    ] {
        assert_eq!(count_rows(table)?, expected, "{table}");
    }
    Ok(())
}

#[test]
fn erase_and_lift_report_the_true_state() -> Result<()> {
    let world = world("erase_not")?;
    world.settings.migrate()?;
    let erase = |driver: &str, flags: &[&str]| {
        world.settings.call(&[&["erase", "--driver", driver, "--yes"], flags].concat())
    };
    let (code, printed) = erase("nobody", &["--within", "4s"])?;
    assert!(
        code == EXIT_INCOMPLETE
            && (printed.contains("not certain yet") || printed.contains("being refreshed")),
        "success before members have read the list of erased drivers again: {printed}"
    );

    // A merge removes the rows before the mutation runs, so only old parts have the rows. Keep the
    // old parts: on a slow machine, ClickHouse could remove them before the command counts them.
    world.query("ALTER TABLE {db}.positions MODIFY SETTING old_parts_lifetime = 86400")?;
    world.query(
        "INSERT INTO {db}.positions (driver_id, ts, seq) SELECT 'd7', now64(3), number + 1 \
         FROM numbers(9)",
    )?;
    world.query(
        "DELETE FROM {db}.positions WHERE driver_id = 'd7' SETTINGS lightweight_deletes_sync = 2",
    )?;
    world.query(
        "DELETE FROM {db}.last_positions_state WHERE driver_id = 'd7' \
         SETTINGS lightweight_deletes_sync = 2",
    )?;
    world.query("OPTIMIZE TABLE {db}.positions FINAL")?;
    world.query("OPTIMIZE TABLE {db}.last_positions_state FINAL")?;
    // On a slow machine, a command times out before its mutation ends, and the next command starts
    // another mutation. So double the timeout with each command. No command reports that all rows
    // are gone.
    let mut within = 4;
    wait_until("old parts are named", SOON, || {
        within *= 2;
        let (code, printed) = erase("d7", &["--within", &format!("{within}s")])?;
        assert!(code == EXIT_INCOMPLETE && printed.contains("not finished"), "{printed}");
        let positions =
            printed.lines().find(|line| line.starts_with("positions ")).unwrap_or_default();
        // After the table's name: rows seen, on disk, mutations, old parts.
        let cells: Vec<&str> = positions.split_whitespace().collect();
        Ok(cells[1..4] == ["0", "0", "0"] && cells[4] != "0")
    })?;

    // Put a file into quarantine. The member leaves this file as it is.
    let spool = world.folder.path().join("spool");
    std::fs::create_dir(&spool)?;
    std::fs::write(spool.join("00000000000000000001-1-7.row"), "rows of an unknown driver")?;
    let port = free_port()?;
    let settings = world.settings.clone().with("SHUTDOWN__PEERS", format!("127.0.0.1:{port}"));
    erase("d8", &["--within", "1s"])?; // so that the member has the list from the start
    let mut member =
        settings.clone().with("SPOOL__DIR", spool.display().to_string()).start_at(port)?;
    member.wait_until_ready()?;
    let (code, printed) = settings.call(&["erase", "--driver", "d8", "--yes", "--within", "1s"])?;
    assert!(code == EXIT_INCOMPLETE && printed.contains("its spool has 1 file:"), "{printed}");

    // The list is full: another driver is refused, and nothing is written.
    world.query(
        "INSERT INTO {db}.erased (driver_id) SELECT concat('x', toString(number)) \
         FROM numbers(50000)",
    )?;
    world.query(
        "INSERT INTO {db}.erased (driver_id, is_lifted) SELECT DISTINCT driver_id, true \
         FROM {db}.erased WHERE driver_id NOT LIKE 'x%'",
    )?;
    let (code, printed) = erase("d9", &["--within", "1s"])?;
    assert!(code == 1 && printed.contains("lift some"), "{code} {printed}");
    assert_eq!(world.query("SELECT count() FROM {db}.erased WHERE driver_id = 'd9'")?, "0");

    // Four concurrent commands compete for one free place: the list never exceeds its limit.
    world.query("INSERT INTO {db}.erased (driver_id, is_lifted) VALUES ('x0', true)")?;
    thread::scope(|scope| {
        let commands =
            ["e1", "e2", "e3", "e4"].map(|id| scope.spawn(move || erase(id, &["--within", "1s"])));
        commands.into_iter().try_for_each(|command| command.join().expect("no panic").map(drop))
    })?;
    let count: u64 =
        world.query("SELECT count() FROM {db}.erased FINAL WHERE NOT is_lifted")?.parse()?;
    assert!(count <= 50_000, "{count}");

    // The server's clock was ahead when this row was written.
    world.query(
        "INSERT INTO {db}.erased (driver_id, written_at) VALUES ('x1', now64(3) + INTERVAL 1 HOUR)",
    )?;
    let (code, printed) = world.settings.call(&["erase", "--driver", "x1", "--lift"])?;
    assert!(code == 0 && printed.starts_with("lifted"), "{code} {printed}");
    let (code, printed) = world.settings.call(&["erase", "--driver", "x1", "--lift"])?;
    assert!(code == 0 && printed.contains("is not erased"), "{code} {printed}");

    // Erase and lift a driver twice: the server must not treat an identical statement as a retry.
    for _ in 0..2 {
        let (code, printed) = erase("e9", &["--within", "1s"])?;
        assert_eq!(code, EXIT_INCOMPLETE, "{printed}");
        let (code, printed) = world.settings.call(&["erase", "--driver", "e9", "--lift"])?;
        assert!(code == 0 && printed.starts_with("lifted"), "{code} {printed}");
    }
    assert_eq!(member.terminate(SOON)?, 0);
    Ok(())
}

/// A killed process leaves an insert running on the server. No process waits for the result of this
/// insert, and no member reports it.
#[test]
fn erase_waits_for_an_insert_that_outlived_its_process() -> Result<()> {
    let world = world("erase_late")?;
    let insert = "INSERT INTO {db}.positions (driver_id, ts, seq) \
                  SELECT 'd7', now64(3), number + 1 FROM numbers(12) WHERE sleepEachRow(1) = 0 \
                  SETTINGS max_block_size = 1, min_insert_block_size_rows = 1000";
    let erase = || world.settings.call(&["erase", "--driver", "d7", "--yes", "--within", "4s"]);
    thread::scope(|scope| -> Result<()> {
        let inserting = scope.spawn(|| world.query(insert));
        let running = "SELECT count() FROM system.processes WHERE query LIKE '%{db}.positions%' \
                       AND query_kind = 'Insert' AND elapsed > 2";
        world.wait_for(running, "1", SOON)?;
        // List the driver as of 41 s ago. `erase` assumes that members read a new list within 40 s,
        // so every member has had this list for a second. Only an insert that began before that can
        // still contain the driver.
        world.query(
            "INSERT INTO {db}.erased (driver_id, written_at) \
             VALUES ('d7', now64(3) - INTERVAL 41 SECOND)",
        )?;
        let (code, printed) = erase()?;
        assert!(
            code == EXIT_INCOMPLETE && printed.contains("1 insert in flight"),
            "{code} {printed}"
        );
        inserting.join().expect("no panic")?;
        Ok(())
    })?;
    let count = "SELECT count() FROM {db}.positions WHERE driver_id = 'd7'";
    assert_eq!(world.query(count)?, "12", "the insert committed in the end");
    let (code, printed) = erase()?;
    assert!(code == EXIT_INCOMPLETE && !printed.contains("in flight began"), "{code} {printed}");
    // The mutation that hides the rows continues without the command.
    world.wait_for(count, "0", SOON)
}

/// A fault that hits one statement of `milepost erase`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The process is killed before the engine receives the statement.
    KilledBefore,
    /// The process is killed after the engine has executed the statement.
    KilledAfter,
    /// The engine does not get the statement, and the answer is a transient error.
    Refused,
    /// The engine executes the statement, but its answer is lost.
    AnswerLost,
}

/// Returns the kind of a statement: its text without digits, and with placeholders instead of the
/// driver and the table.
fn statement_kind(statement: &str, driver: &str, tables: &[String]) -> String {
    let mut kind = statement.replace(driver, "D");
    for table in tables {
        kind = kind.replace(&format!(".{table} "), ".T ").replace(&format!("'{table}'"), "'T'");
    }
    kind.retain(|c| !c.is_ascii_digit() && c != '.');
    kind
}

/// Erases a driver. The kinds of statements are numbered in the order in which the command first
/// sends them, and the fault hits the first statement of kind `kind_index`. Returns 1 if the
/// command sent such a statement, otherwise 0. Without a fault, returns the number of kinds.
fn erase_with_fault(
    world: &World,
    driver: &str,
    tables: &[String],
    kind_index: usize,
    fault: Option<Fault>,
) -> Result<usize> {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let reached = Arc::new(AtomicBool::new(false));
    let (kinds, flag) = (Arc::clone(&seen), Arc::clone(&reached));
    let (driver_id, table_names) = (driver.to_owned(), tables.to_vec());
    let url = scripted_clickhouse(world.engine.server.port, move |statement| {
        let kind = statement_kind(statement, &driver_id, &table_names);
        let mut kinds = kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !kinds.contains(&kind);
        if is_new {
            kinds.push(kind);
        }
        let Some(fault) = fault.filter(|_| is_new && kinds.len() == kind_index + 1) else {
            return ProxyAction::Pass;
        };
        flag.store(true, Ordering::SeqCst);
        match fault {
            Fault::KilledBefore => ProxyAction::NoAnswer,
            Fault::KilledAfter | Fault::AnswerLost => ProxyAction::LoseAnswer,
            Fault::Refused => ProxyAction::Answer(
                500,
                "Code: 241. DB::Exception: Memory limit exceeded.".to_owned(),
            ),
        }
    })?;
    let settings = world.settings.clone().with("CLICKHOUSE__URL", url);
    let mut command = settings.command(&["erase", "--driver", driver, "--yes", "--within", "60s"]);
    let log = world.folder.path().join(format!("{driver}.log"));
    let mut erase = Process::start("milepost erase", &mut command, log)?;
    let is_retrying = |erase: &Process| erase.log().is_ok_and(|log| log.contains("retrying"));
    let is_kill = matches!(fault, Some(Fault::KilledBefore | Fault::KilledAfter));
    wait_until("the command ends, or has met the fault", 6 * SOON, || {
        let is_met = reached.load(Ordering::SeqCst);
        Ok(is_met && (is_kill || is_retrying(&erase)) || erase.ensure_alive().is_err())
    })?;
    erase.kill()?;
    if fault.is_some() {
        return Ok(usize::from(reached.load(Ordering::SeqCst)));
    }
    let kinds = seen.lock().unwrap_or_else(PoisonError::into_inner).len();
    Ok(kinds)
}

/// At every kind of statement, the command is killed, the statement is refused, or its answer is
/// lost. A later run without faults succeeds.
#[test]
fn erase_succeeds_after_an_interruption_at_any_statement() -> Result<()> {
    let world = world("erase_broken")?;
    for table in world.query(MERGE_TREES)?.lines() {
        world.query(&format!("ALTER TABLE {{db}}.{table} MODIFY SETTING {FAST_CLEANUP}"))?;
    }
    let tables = world.query(
        "SELECT DISTINCT table FROM system.columns WHERE database = '{db}' AND name = 'driver_id'",
    )?;
    let tables: Vec<String> = tables.lines().map(str::to_owned).collect();
    world.query(
        "INSERT INTO {db}.positions (driver_id, ts, seq) \
         SELECT concat('f', toString(number % 100)), now64(3), number FROM numbers(1000)",
    )?;
    let kinds = erase_with_fault(&world, "f99", &tables, 0, None)?;
    ensure!((10..=20).contains(&kinds), "{kinds} kinds of statements");
    // A kill after one statement is also a kill before the next one. Only a kill before the first
    // statement needs a test of its own.
    let faults = [Fault::KilledAfter, Fault::Refused, Fault::AnswerLost];
    let each_kind = (0..kinds).flat_map(|at| faults.map(|fault| (at, fault)));
    let plans: Vec<(usize, Fault)> =
        [(0, Fault::KilledBefore)].into_iter().chain(each_kind).collect();
    let driver = |n: usize| format!("f{n}");
    let next = AtomicUsize::new(0);
    // Calls `work` with every number below `count`, on this number of threads.
    let run_parallel =
        |count: usize, threads: usize, work: &(dyn Fn(usize) -> Result<()> + Sync)| -> Result<()> {
            next.store(0, Ordering::SeqCst);
            thread::scope(|scope| {
                let spawn_worker = |_| {
                    scope.spawn(|| -> Result<()> {
                        loop {
                            let n = next.fetch_add(1, Ordering::SeqCst);
                            if n >= count {
                                return Ok(());
                            }
                            work(n)?;
                        }
                    })
                };
                let workers: Vec<_> = (0..threads).map(spawn_worker).collect();
                workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"))
            })
        };
    let reached: Vec<AtomicUsize> = (0..kinds).map(|_| AtomicUsize::new(0)).collect();
    run_parallel(plans.len(), 4, &|n| {
        let (at, fault) = plans[n];
        let is_reached = erase_with_fault(&world, &driver(n), &tables, at, Some(fault))?;
        reached[at].fetch_add(is_reached, Ordering::SeqCst);
        Ok(())
    })?;
    // A transient refusal or a lost answer does not end a command that has begun.
    let (mut begun, mut retried) = (0, 0);
    for n in (0..plans.len()).filter(|n| matches!(plans[*n].1, Fault::Refused | Fault::AnswerLost))
    {
        let log = std::fs::read_to_string(world.folder.path().join(format!("{}.log", driver(n))))?;
        begun += usize::from(log.contains("list of erased drivers: every member"));
        retried += usize::from(log.contains("retrying"));
    }
    ensure!(begun > 0 && retried > 0, "{retried} of {begun} retried");
    // A command also removes rows that other commands have hidden, so it is possible that none of
    // the concurrent commands sends the last kinds of statements. Test these kinds with one command
    // at a time.
    let mut spare_drivers = plans.len()..99;
    for at in (0..kinds).filter(|at| reached[*at].load(Ordering::SeqCst) == 0) {
        let n = spare_drivers.next().context("no driver is left")?;
        let is_reached =
            erase_with_fault(&world, &driver(n), &tables, at, Some(Fault::AnswerLost))?;
        ensure!(is_reached == 1, "statement {at} of {kinds}: {reached:?}");
    }
    let tried = spare_drivers.start; // the drivers from 0 to `tried` - 1
    // Run all commands at the same time. In sequence, each command would wait until the old parts
    // of the previous command are removed.
    run_parallel(tried, tried, &|n| {
        let (code, printed) =
            world.settings.call(&["erase", "--driver", &driver(n), "--yes", "--within", "20m"])?;
        ensure!(code == 0, "{} after {:?}: {code} {printed}", driver(n), plans.get(n));
        Ok(())
    })?;
    let remaining = "SELECT DISTINCT driver_id FROM {db}.positions WHERE driver_id LIKE 'f%' \
                     ORDER BY driver_id SETTINGS apply_deleted_mask = 0";
    let expected: Vec<String> = (tried..99).map(|n| format!("f{n}")).collect();
    let remaining = world.query(remaining)?;
    let mut remaining: Vec<&str> = remaining.lines().collect();
    remaining.sort_by_key(|id| id[1..].parse::<usize>().unwrap_or_default());
    assert_eq!(remaining, expected, "only drivers that were not erased may have rows");
    Ok(())
}
