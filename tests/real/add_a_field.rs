//! Checks docs/add-a-field.md: the patch applies, builds and passes the tests. Every table and view
//! of fixes has the new column, even on a replica that is added later.

use std::process::Command;
use std::sync::Arc;

use anyhow::{Result, ensure};
use lab_harness::patched;
use lab_stack::{Settings, repository};

use crate::cluster::{self, Hosts};
use crate::world::{SOON, World, unmigrated};

/// Largest number of files that the patch may change.
const FILES_MAX: usize = 4;
/// Largest number of lines that the patch may add.
const LINES_MAX: usize = 30;

/// Returns the columns, with the properties that must be equal on every replica.
fn columns(world: &World) -> Result<String> {
    world.query(
        "SELECT table, position, name, type, default_kind, default_expression, compression_codec, \
         comment FROM system.columns WHERE database = '{db}' \
         AND table IN ('positions', 'last_positions_state', 'fixes', 'last_positions') \
         ORDER BY table, position",
    )
}

fn patch() -> Result<String> {
    Ok(std::fs::read_to_string(repository().join("docs/examples/add-a-field.diff"))?)
}

#[test]
fn add_a_field_recipe_applies_and_is_short() -> Result<()> {
    let patch = patch()?;
    let files = patch.lines().filter(|line| line.starts_with("+++ ")).count();
    let lines =
        patch.lines().filter(|line| line.starts_with('+') && !line.starts_with("+++ ")).count();
    ensure!(files <= FILES_MAX && lines <= LINES_MAX, "{files} files, {lines} lines");
    let mut git = Command::new("git");
    git.args(["apply", "--check", "docs/examples/add-a-field.diff"]).current_dir(repository());
    ensure!(git.status()?.success(), "the recipe's patch no longer applies");
    Ok(())
}

#[test]
#[ignore = "compiles every test a second time: make recipe"]
fn add_a_field_recipe_works_as_written() -> Result<()> {
    let patch = patch()?;
    let binary = patched::build(&patch)?;
    patched::test()?;
    let patched_settings = |world: &World| {
        Settings::new(&binary, world.folder.path(), world.broker.port, &world.engine.server.url())
            .with("CLICKHOUSE__DATABASE", &*world.database)
    };

    let world = unmigrated("add_a_field")?;
    world.settings.migrate()?;
    let settings = patched_settings(&world);
    settings.migrate()?;
    let _milepost = settings.run()?;
    world.publish(&[
        ("drivers/d1/gps", br#"{"lat":1,"lng":2,"hdop":1.3}"#),
        ("drivers/d2/gps", br#"{"lat":1,"lng":2,"hdop":"?"}"#),
        ("drivers/d3/gps", br#"{"lat":1,"lng":2}"#),
    ])?;
    for table in ["positions", "fixes", "last_positions"] {
        let sql = format!("SELECT driver_id, hdop FROM {{db}}.{table} ORDER BY driver_id");
        world.wait_for(&sql, "d1\t1.3\nd2\t\\N\nd3\t\\N", SOON)?;
    }

    let replica = unmigrated("add_a_field_replica")?;
    let settings =
        cluster::on_cluster(patched_settings(&replica), &replica, &Arc::new(Hosts::default()))?;
    settings.migrate()?;
    assert_eq!(
        columns(&replica)?,
        columns(&world)?,
        "a replica that is added later must have the same columns"
    );
    ensure!(columns(&world)?.contains("hdop_tenths"), "{}", columns(&world)?);
    Ok(())
}
