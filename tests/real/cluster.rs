//! Tests `migrate` on a cluster. The tested engine does not support ON CLUSTER, so a proxy in front
//! of the engine removes the cluster from each statement, and simulates the other hosts.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, ensure};
use lab_stack::{Settings, sql};

use crate::secure::{ProxyAction, scripted_clickhouse};
use crate::world::{Engine, SOON, World, unmigrated, unmigrated_on, wait_for_metric, world};

/// State of the simulated hosts of a cluster.
#[derive(Debug, Default)]
pub struct Hosts {
    /// Number of further statements on `positions` for which one host is unreachable.
    unreachable_for: AtomicUsize,
    /// Number of hosts without any of the tables.
    without_tables: AtomicUsize,
    /// Number of statements that every host has executed.
    executed: AtomicUsize,
    /// Number of statements that failed because a host was unreachable.
    failed: AtomicUsize,
}

/// Rewrites a statement for a single server: without `ON CLUSTER` and without replication.
/// `hosts_without_tables`: the number of simulated hosts that have none of the tables.
fn rewrite_for_single_server(statement: &str, hosts_without_tables: usize) -> String {
    let mut sql = statement.replace("ENGINE = Replicated", "ENGINE = ");
    for cluster in ["c", "two"] {
        let all_replicas = |table: &str| format!("clusterAllReplicas('{cluster}', system.{table})");
        sql = sql
            .replace(&format!(" ON CLUSTER '{cluster}'"), "")
            .replace(&all_replicas("one"), &format!("numbers({})", hosts_without_tables + 1))
            .replace(&all_replicas("databases"), "system.databases")
            .replace(&all_replicas("columns"), "system.columns")
            .replace(&all_replicas("tables"), "system.tables");
    }
    if let Some((before, rest)) = sql.split_once("('/clickhouse/tables/") {
        let (_, after) = rest.split_once(')').unwrap_or_default();
        sql = format!("{before}{after}");
    }
    sql
}

fn cluster_settings(world: &World, hosts: &Arc<Hosts>) -> Result<Settings> {
    on_cluster(world.settings.clone(), world, hosts)
}

/// Returns these settings for the cluster `c`, which a proxy in front of the engine simulates.
pub fn on_cluster(settings: Settings, world: &World, hosts: &Arc<Hosts>) -> Result<Settings> {
    let hosts = Arc::clone(hosts);
    let url = scripted_clickhouse(world.engine.server.port, move |statement| {
        if statement.contains(" ON CLUSTER 'c'") {
            let decrement = |count: usize| count.checked_sub(1);
            let is_unreachable = statement.contains(".positions ON")
                && hosts
                    .unreachable_for
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, decrement)
                    .is_ok();
            if is_unreachable {
                hosts.failed.fetch_add(1, Ordering::SeqCst);
                let message = "Code: 159. DB::Exception: Distributed DDL task is not finished on 1 \
                               of 2 hosts.";
                return ProxyAction::Answer(500, message.to_owned());
            }
            hosts.executed.fetch_add(1, Ordering::SeqCst);
        }
        ProxyAction::Replace(rewrite_for_single_server(
            statement,
            hosts.without_tables.load(Ordering::SeqCst),
        ))
    })?;
    let settings = settings.with("CLICKHOUSE__URL", url);
    Ok(settings.with("CLICKHOUSE__REPLICATION", "macros").with("CLICKHOUSE__CLUSTER", "c"))
}

/// Returns the number of migrations.
fn migration_count() -> Result<usize> {
    Ok(sql::migrations()?.len())
}

#[test]
fn migration_is_recorded_after_every_host_applied_it() -> Result<()> {
    let world = unmigrated("cluster")?;
    let hosts = Arc::new(Hosts::default());
    let settings = cluster_settings(&world, &hosts)?;
    let files = migration_count()?;
    let recorded = || world.query("SELECT count() FROM {db}.schema_migrations FINAL");

    // One host is unreachable for two statements: `migrate` must retry them.
    hosts.unreachable_for.store(2, Ordering::SeqCst);
    settings.migrate()?;
    ensure!(
        hosts.failed.load(Ordering::SeqCst) == 2,
        "a statement was not retried while a host was unreachable: {hosts:?}"
    );
    ensure!(recorded()? == files.to_string(), "{} of {files} migrations are recorded", recorded()?);
    let order =
        "SELECT version FROM {db}.schema_migrations FINAL ORDER BY applied_at, version LIMIT 2";
    ensure!(
        world.query(order)? == "1\n10",
        "a migration was recorded before the one that was retried: {}",
        world.query(order)?
    );
    let executed = hosts.executed.swap(0, Ordering::SeqCst);
    ensure!(executed > files, "{executed} statements for {files} files and the database");

    settings.migrate()?;
    ensure!(
        hosts.executed.load(Ordering::SeqCst) == 0,
        "a second run changed something: {hosts:?}"
    );

    // A host without tables joins the cluster: `migrate` must execute every file again.
    hosts.without_tables.store(1, Ordering::SeqCst);
    settings.migrate()?;
    let repeated = hosts.executed.load(Ordering::SeqCst);
    ensure!(repeated >= files, "a new host got {repeated} statements of {files} files");
    ensure!(recorded()? == files.to_string(), "{} of {files} migrations are recorded", recorded()?);
    Ok(())
}

#[test]
fn concurrent_migrations_of_a_cluster_apply_once() -> Result<()> {
    let world = unmigrated("cluster_twice")?;
    let settings = cluster_settings(&world, &Arc::new(Hosts::default()))?;
    let outcomes = std::thread::scope(|scope| {
        let handles = [scope.spawn(|| settings.migrate()), scope.spawn(|| settings.migrate())];
        handles.map(|handle| handle.join().expect("the migration does not panic"))
    });
    outcomes.into_iter().collect::<Result<()>>()?;
    let (code, printed) = settings.call(&["migrate"])?;
    ensure!(
        code == 0 && printed.contains("applied=0"),
        "the concurrent runs left a migration unapplied: {printed}"
    );
    let recorded = world.query("SELECT count() FROM {db}.schema_migrations FINAL")?;
    ensure!(recorded == migration_count()?.to_string(), "{recorded}");
    Ok(())
}

/// First lines of the insert requests, with their parameters.
type Inserts = Arc<Mutex<Vec<String>>>;

fn recorded(inserts: &Inserts) -> Vec<String> {
    inserts.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Three clusters: `c` has one shard, `two` has two shards, and `half` has two shards of which one
/// is unreachable. Every reachable shard is the engine itself, without a network. So both shards of
/// `two` are the same tables, and a query reads each row twice.
const SHARDS: &str =
    "<clickhouse><tcp_port>9000</tcp_port><macros><shard>01</shard></macros><remote_servers>
<c><shard><replica><host>127.0.0.1</host><port>9000</port></replica></shard></c>
<two><shard><replica><host>127.0.0.1</host><port>9000</port></replica></shard>
<shard><replica><host>127.0.0.1</host><port>9000</port></replica></shard></two>
<half><shard><replica><host>127.0.0.1</host><port>9000</port></replica></shard>
<shard><replica><host>127.0.0.1</host><port>1</port></replica></shard></half>
</remote_servers></clickhouse>";

/// Starts a proxy in front of an engine with [`SHARDS`]. Returns settings for the cluster `c`. The
/// proxy adds each insert to `inserts`.
fn sharded_settings(world: &World, inserts: &Inserts) -> Result<Settings> {
    let inserts = Arc::clone(inserts);
    let url = scripted_clickhouse(world.engine.server.port, move |statement| {
        if statement.contains("query=INSERT") {
            inserts.lock().unwrap_or_else(PoisonError::into_inner).push(statement.to_owned());
            return ProxyAction::Pass;
        }
        ProxyAction::Replace(rewrite_for_single_server(statement, 0))
    })?;
    let settings =
        world.settings.clone().with("CLICKHOUSE__URL", url).with("CLICKHOUSE__CLUSTER", "c");
    Ok(settings.with("CLICKHOUSE__REPLICATION", "macros").with("CLICKHOUSE__SHARDS", "true"))
}

/// Recreates a distributed table that uses the cluster `from`, so that it uses the cluster `to`.
fn repoint(world: &World, table: &str, from: &str, to: &str) -> Result<()> {
    let create = format!(
        "SELECT create_table_query FROM system.tables WHERE database = '{{db}}' \
         AND name = '{table}' FORMAT TSVRaw"
    );
    let create = world.query(&create)?.replacen("CREATE TABLE", "CREATE OR REPLACE TABLE", 1);
    world
        .query(&create.replace(&format!("Distributed('{from}'"), &format!("Distributed('{to}'")))
        .map(drop)
}

/// Every parameterised view, with arguments.
const PARAMETERISED_VIEWS: [&str; 12] = [
    "driver_days(driver='', since='2020-01-01', until='2100-01-01')",
    "episodes(driver='', from={f}, to={t}, tz='UTC')",
    "days(driver='', from={f}, to={t}, tz='UTC')",
    "track(driver='', from={f}, to={t}, tz='UTC')",
    "near(lat=0, lng=0, metres=20000000, driver='', from={f}, to={t}, tz='UTC')",
    "gaps(driver='', seconds=0, from={f}, to={t}, tz='UTC')",
    "speeding(driver='', speed=0, from={f}, to={t}, tz='UTC')",
    "heatmap(driver='', south=-90, west=-180, north=90, east=180, letters=5, from={f}, to={t}, \
     tz='UTC')",
    "in_box(south=-90, west=-180, north=90, east=180)",
    "heard_since(since={f}, tz='UTC')",
    "health(driver='', from={f}, to={t}, tz='UTC')",
    "fence_visits(fence='', driver='', from={f}, to={t}, tz='UTC')",
];

/// Stores a fence, and a driver whose last fix is in the fence and about 20 hours old. A query of
/// `fence_visits` for the last minute does not read this fix from `positions`: it finds the visit
/// only in `driver_days_state`.
fn store_driver_asleep_in_a_fence(world: &World) -> Result<()> {
    world.query(
        "INSERT INTO {db}.fences (name, polygons)
        VALUES ('yard', [[[(8, 50), (9, 50), (9, 51), (8, 51)]]])",
    )?;
    world.query(
        "INSERT INTO {db}.positions (driver_id, ts, lat_e7, lng_e7)
        SELECT 'asleep', now64(3) - INTERVAL 20 HOUR + INTERVAL number MINUTE,
            505000000 + if(number < 5, number, 5) * 50000, 85000000
        FROM numbers(30)",
    )?;
    for sql in lab_stack::sql::REFRESH_ROLLUPS {
        world.query(sql)?;
    }
    Ok(())
}

/// Returns the driver of each visit of the last minute, with the visit's number of fixes.
fn visits_of_the_last_minute(world: &World) -> Result<String> {
    world.query(
        "SELECT driver_id, fixes FROM {db}_ask.fence_visits(fence = 'yard', driver = '',
            from = toString(now('UTC') - 60), to = toString(now('UTC')), tz = 'UTC')",
    )
}

#[test]
fn shards_are_written_and_read_through_distributed_tables() -> Result<()> {
    let engine = Arc::new(Engine::start_with_config(lab_stack::folder()?, SHARDS)?);
    let world = unmigrated_on(engine, "sharded")?;
    let inserts = Inserts::default();
    let settings = sharded_settings(&world, &inserts)?;
    settings.migrate()?;
    settings.migrate()?;

    let milepost = settings.run()?;
    let mut messages = Vec::new();
    let now = world.query("SELECT toUnixTimestamp64Milli(now64(3))")?.parse::<u64>()?;
    for n in 0..200_u64 {
        // The drivers move fast enough for a trip.
        let (topic, lat) = (format!("drivers/d{}/gps", n % 10), 10.0 + (n as f64) / 2e3); // 55 m/s
        let ts = now - 600_000 + n * 1_000;
        messages.push((topic, format!(r#"{{"lat":{lat},"lng":20.5,"ts":{ts},"speed":9}}"#)));
    }
    messages.push(("drivers/d0/gps".to_owned(), "no position".to_owned()));
    let messages: Vec<(&str, &[u8])> =
        messages.iter().map(|(topic, payload)| (topic.as_str(), payload.as_bytes())).collect();
    world.publish(&messages)?;
    world.wait_for("SELECT count() FROM {db}.fixes", "200", SOON)?;
    wait_for_metric(&milepost, "acks_total", 201.0)?;
    drop(milepost);
    for table in ["positions", "rejects"] {
        let rows = |name: &str| world.query(&format!("SELECT count() FROM {{db}}.{name}"));
        ensure!(rows(table)? == rows(&format!("{table}_all"))?, "{table}");
        let sent = recorded(&inserts);
        let is_distributed = |line: &String| {
            line.contains(&format!(".{table}_all+"))
                && line.contains("distributed_foreground_insert=1")
        };
        ensure!(sent.iter().any(is_distributed), "{table}: {sent:#?}");
        ensure!(
            sent.iter().all(|line| line.contains("insert_quorum=2")),
            "an insert has no quorum: {sent:#?}"
        );
    }
    ensure!(world.query("SELECT sum(count) FROM {rejects}")? == "1");
    let (_, printed) = settings.call(&["check"])?;
    ensure!(printed.contains("1, and inserts reach all of them"), "{printed}");

    // With one shard, each view returns the same as on the engine's own tables.
    let view_calls: Vec<String> = (PARAMETERISED_VIEWS.iter())
        .map(|view| view.replace("{f}", "'2020-01-01'").replace("{t}", "'2100-01-01'"))
        .collect();
    for sql in lab_stack::sql::REFRESH_ROLLUPS {
        world.query(sql)?;
    }
    let views = ["fixes", "last_positions", "driver_quarters", "trips", "stops", "rollups"];
    let count_rows = || -> Result<Vec<String>> {
        let mut counts = Vec::new();
        for view in &view_calls {
            counts.push(world.query(&format!("SELECT count() FROM {{db}}_ask.{view}"))?);
        }
        for view in views {
            counts.push(world.query(&format!("SELECT count() FROM {{db}}.{view}"))?);
        }
        Ok(counts)
    };
    world.query("SELECT throwIf(sum(fixes) != 200) FROM {db}.driver_quarters")?;
    store_driver_asleep_in_a_fence(&world)?;
    let one_shard_counts = count_rows()?;
    ensure!(visits_of_the_last_minute(&world)? == "asleep\t2");
    world.query("SELECT throwIf(pending != 0) FROM {db}.rollups")?;

    // Repeat the queries with two shards. ClickHouse refuses some subqueries on distributed tables,
    // but must accept every view. Views that group by driver must still return one row for each
    // driver.
    let distributed =
        "SELECT name FROM system.tables WHERE database = '{db}' AND engine = 'Distributed'";
    for table in world.query(distributed)?.lines() {
        repoint(&world, table, "c", "two")?;
    }
    let two_shard_counts = count_rows()?;
    ensure!(visits_of_the_last_minute(&world)? == "asleep\t2", "a visit counts twice");
    for ((view, one_shard), two_shards) in view_calls
        .iter()
        .map(String::as_str)
        .chain(views)
        .zip(one_shard_counts)
        .zip(two_shard_counts)
    {
        // Both shards have the same rows. These views return the rows of both shards; the other
        // views merge equal rows.
        let by_row = ["driver_days", "track", "in_box", "heard_since", "fixes", "last_positions"];
        let name = view.split('(').next().unwrap_or_default();
        let (one_shard, two_shards) = (one_shard.parse::<u64>()?, two_shards.parse::<u64>()?);
        ensure!(
            one_shard > 0 || ["fence_visits", "stops"].contains(&name),
            "{view} returns no rows"
        );
        let expected = if by_row.contains(&name) { 2 * one_shard } else { one_shard };
        ensure!(
            two_shards == expected,
            "{view}: {one_shard} rows of one shard, {two_shards} rows of two shards"
        );
    }
    let (code, printed) = settings.call(&["rejects", "replay", "--reason", "invalid_json"])?;
    ensure!(
        code == 0 && printed.contains("rejects                            2"),
        "the rejects of both shards are read: {printed}"
    );
    Ok(())
}

#[test]
fn new_views_read_the_history_of_both_shards() -> Result<()> {
    let engine = Arc::new(Engine::start_with_config(lab_stack::folder()?, SHARDS)?);
    let world = unmigrated_on(engine, "filled")?;
    let settings =
        sharded_settings(&world, &Inserts::default())?.with("CLICKHOUSE__CLUSTER", "two");
    settings.migrate()?;
    world.query(
        "INSERT INTO {db}.positions (driver_id, ts) SELECT toString(number % 3), now64(3) \
         FROM numbers(300)",
    )?;
    for table in ["last_positions_mv", "last_positions_state", "touched_mv", "touched"] {
        world.query(&format!("DROP TABLE {{db}}.{table} SYNC"))?;
    }
    settings.migrate()?;
    // `touched` also has a row whose driver_id is the server's UUID.
    let drivers = |table: &str| {
        world.query(&format!(
            "SELECT uniqExact(driver_id) FROM {{db}}.{table} WHERE length(driver_id) = 1"
        ))
    };
    ensure!(drivers("last_positions_state")? == "3");
    for sql in lab_stack::sql::REFRESH_ROLLUPS {
        world.query(sql)?;
    }
    ensure!(drivers("touched")? == "3");
    Ok(())
}

#[test]
fn insert_stored_on_one_of_two_shards_is_retried_with_a_new_token() -> Result<()> {
    let engine = Arc::new(Engine::start_with_config(lab_stack::folder()?, SHARDS)?);
    let world = unmigrated_on(engine, "half_written")?;
    let inserts = Inserts::default();
    let settings = sharded_settings(&world, &inserts)?;
    settings.migrate()?;
    repoint(&world, "positions_all", "c", "half")?;
    let milepost = settings.run()?;
    let now = world.query("SELECT toUnixTimestamp64Milli(now64(3))")?;
    let payload = format!(r#"{{"lat":1,"lng":2,"ts":{now}}}"#);
    let topics: Vec<String> = (0..20).map(|n| format!("drivers/d{n}/gps")).collect();
    let messages: Vec<(&str, &[u8])> =
        topics.iter().map(|topic| (topic.as_str(), payload.as_bytes())).collect();
    world.publish(&messages)?;
    wait_for_metric(&milepost, "insert_errors_total", 2.0)?;
    let text = milepost.get("/metrics")?;
    let errors = text
        .lines()
        .filter(|line| line.starts_with("milepost_insert_errors_total{") && !line.ends_with(" 0"));
    let errors: Vec<&str> = errors.collect();
    ensure!(errors.iter().all(|line| line.contains("ambiguous")), "{errors:?}");
    ensure!(milepost.metric("acks_total")? < 1.0, "only one shard has its rows");
    repoint(&world, "positions_all", "half", "c")?;
    world.wait_for("SELECT count() FROM {db}.fixes", "20", SOON)?;
    wait_for_metric(&milepost, "acks_total", 20.0)?;
    let value = |line: &String, name: &str| {
        line.split('&')
            .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
    };
    let all = |name: &str| {
        recorded(&inserts).iter().filter_map(|line| value(line, name)).collect::<Vec<_>>()
    };
    let tokens = all("insert_deduplication_token");
    ensure!(
        all("log_comment") == tokens,
        "log_comment must equal the token, so that the log leads to the insert in system.query_log"
    );
    let log = milepost.process.log()?;
    ensure!(log.contains(&format!("log_comment {}: ", tokens[0])), "{log}");
    let distinct: std::collections::BTreeSet<&String> = tokens.iter().collect();
    ensure!(tokens.len() > 2 && distinct.len() == tokens.len(), "{tokens:?}");
    Ok(())
}

#[test]
fn unsharded_tables_are_refused_with_shards_and_vice_versa() -> Result<()> {
    let engine = Arc::new(Engine::start_with_config(lab_stack::folder()?, SHARDS)?);
    let world = unmigrated_on(engine, "half")?;
    let inserts = Inserts::default();
    let settings = sharded_settings(&world, &inserts)?;
    let without = settings.clone().with("CLICKHOUSE__SHARDS", "false");
    without.migrate()?;
    let (code, printed) = settings.call(&["migrate"])?;
    ensure!(code != 0 && printed.contains("another database"), "{printed}");
    let (code, printed) = settings.call(&["check"])?;
    ensure!(
        code == 1
            && printed.contains("positions_all is missing: these tables were created without"),
        "{printed}"
    );
    world.query("DROP DATABASE {db} SYNC")?;
    settings.migrate()?;
    let (code, printed) = without.call(&["check"])?;
    ensure!(code == 1 && printed.contains("inserts go to one shard's own table"), "{printed}");
    let mut milepost = without.start()?;
    world.publish(&[("drivers/d/gps", br#"{"lat":1,"lng":2}"#)])?;
    lab_stack::wait_until("/readyz names the setting", SOON, || {
        let reply =
            milepost.get("/readyz").map_or_else(|error| error.to_string(), |_| String::new());
        Ok(reply.contains("these tables were created with clickhouse.shards = true"))
    })?;
    milepost.process.kill()?;
    // `check` measures the accepted size with inserts that contain only blanks. Ignore these
    // inserts: they write no row.
    let with_rows = |insert: &&String| !insert.contains("FORMAT+JSONEachRow");
    let inserts = recorded(&inserts);
    let inserts: Vec<_> = inserts.iter().filter(with_rows).collect();
    ensure!(inserts.is_empty(), "one shard got rows of all shards: {inserts:?}");
    Ok(())
}

#[test]
fn unanswered_replica_count_query_delays_no_insert() -> Result<()> {
    let world = world("uncounted")?;
    let inserts = Inserts::default();
    let (seen, count_queries, column_queries) =
        (Arc::clone(&inserts), AtomicUsize::new(0), AtomicUsize::new(0));
    let url = scripted_clickhouse(world.engine.server.port, move |statement| {
        let is_first = |count: &AtomicUsize| count.fetch_add(1, Ordering::SeqCst) == 0;
        if statement.contains("query=INSERT") {
            seen.lock().unwrap_or_else(PoisonError::into_inner).push(statement.to_owned());
        } else if statement.contains("max(total_replicas)") {
            return if is_first(&count_queries) {
                ProxyAction::Replace("SELECT 5".to_owned())
            } else {
                ProxyAction::NoAnswer
            };
        } else if statement.contains("FROM system.columns") && is_first(&column_queries) {
            // After this error, the process queries the replica count again before its first
            // insert. The second query gets no answer.
            return ProxyAction::Answer(
                500,
                "Code: 202. DB::Exception: Too many simultaneous queries.".to_owned(),
            );
        }
        ProxyAction::Pass
    })?;
    let settings = world
        .settings
        .clone()
        .with("CLICKHOUSE__URL", url)
        .with("CLICKHOUSE__REPLICATION", "macros");
    let milepost = settings.run()?;
    world.publish(&[("drivers/d/gps", br#"{"lat":1,"lng":2}"#)])?;
    wait_for_metric(&milepost, "acks_total", 1.0)?;
    world.wait_for("SELECT count() FROM {db}.fixes", "1", SOON)?;
    let sent = recorded(&inserts);
    ensure!(
        sent.iter().all(|line| line.contains("insert_quorum=auto")),
        "the last known count, five, is not used: {sent:#?}"
    );
    Ok(())
}
