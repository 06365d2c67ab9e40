//! `migrate` on a cluster. The engine here runs no ON CLUSTER: something in front of it takes the cluster out of each
//! statement, and says of the other hosts what the test wants.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, ensure};
use lab_stack::{Settings, repository};

use crate::secure::{Scripted, scripted_clickhouse};
use crate::world::{World, unmigrated};

/// What the hosts do.
#[derive(Debug, Default)]
struct Hosts {
    /// So many statements on `positions` find one of them away.
    away: AtomicUsize,
    /// Hosts that have none of the tables.
    new: AtomicUsize,
    /// Statements that all hosts had to do.
    done: AtomicUsize,
    /// Those that found one away.
    waited: AtomicUsize,
}

/// As one server would have it: without ON CLUSTER and what is replicated.
fn alone(statement: &str, new: usize) -> String {
    let mut sql = statement
        .replace(" ON CLUSTER 'c'", "")
        .replace("clusterAllReplicas('c', system.one)", &format!("numbers({})", new + 1))
        .replace("clusterAllReplicas('c', system.databases)", "system.databases")
        .replace("clusterAllReplicas('c', system.tables)", "system.tables")
        .replace("ENGINE = Replicated", "ENGINE = ");
    if let Some((before, rest)) = sql.split_once("('/clickhouse/tables/") {
        let (_, after) = rest.split_once(')').unwrap_or_default();
        sql = format!("{before}{after}");
    }
    sql
}

fn cluster(world: &World, hosts: &Arc<Hosts>) -> Result<Settings> {
    let hosts = Arc::clone(hosts);
    let url = scripted_clickhouse(world.engine.server.port, move |statement| {
        if statement.contains(" ON CLUSTER 'c'") {
            let one_less = |left: usize| left.checked_sub(1);
            let is_away = statement.contains(".positions ON")
                && hosts.away.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok();
            if is_away {
                hosts.waited.fetch_add(1, Ordering::SeqCst);
                let words = "Code: 159. DB::Exception: Distributed DDL task is not finished on 1 of 2 hosts.";
                return Scripted::Answer(500, words.to_owned());
            }
            hosts.done.fetch_add(1, Ordering::SeqCst);
        }
        Scripted::Instead(alone(statement, hosts.new.load(Ordering::SeqCst)))
    })?;
    let settings = world.settings.clone().with("CLICKHOUSE__URL", url);
    Ok(settings.with("CLICKHOUSE__REPLICATION", "macros").with("CLICKHOUSE__CLUSTER", "c"))
}

#[test]
fn a_migration_is_recorded_when_every_host_has_done_it() -> Result<()> {
    let world = unmigrated("cluster")?;
    let hosts = Arc::new(Hosts::default());
    let settings = cluster(&world, &hosts)?;
    let files = std::fs::read_dir(repository().join("sql"))?
        .filter(|entry| {
            entry.as_ref().is_ok_and(|entry| entry.path().extension().is_some_and(|e| e == "sql"))
        })
        .count();
    let recorded = || world.query("SELECT count() FROM {db}.schema_migrations FINAL");

    hosts.away.store(2, Ordering::SeqCst);
    settings.migrate()?;
    ensure!(hosts.waited.load(Ordering::SeqCst) == 2, "it goes on asking while a host is away: {hosts:?}");
    ensure!(recorded()? == files.to_string(), "{files} migrations are recorded, not {}", recorded()?);
    let order = "SELECT version FROM {db}.schema_migrations FINAL ORDER BY applied_at, version LIMIT 2";
    ensure!(
        world.query(order)? == "1\n2",
        "nothing is recorded before the one that waits: {}",
        world.query(order)?
    );
    let done = hosts.done.swap(0, Ordering::SeqCst);
    ensure!(done > files, "every file, and the database: {done} statements of {files} files");

    settings.migrate()?;
    ensure!(hosts.done.load(Ordering::SeqCst) == 0, "there is nothing to do again: {hosts:?}");

    hosts.new.store(1, Ordering::SeqCst);
    settings.migrate()?;
    let again = hosts.done.load(Ordering::SeqCst);
    ensure!(again >= files, "a new host gets everything: {again} statements of {files} files");
    ensure!(recorded()? == files.to_string(), "{files} migrations are recorded, not {}", recorded()?);
    Ok(())
}
