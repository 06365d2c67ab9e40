//! docs/add-a-field.md is true: its patch applies, builds, and the column is there.

use anyhow::{Context as _, Result, ensure};
use lab_harness::patched;
use lab_stack::{Broker, Settings, repository};
use tempfile::TempDir;

use crate::world::{SOON, publish, shared_engine};

const FILES_MAX: usize = 4;
const LINES_MAX: usize = 25;

/// The way to the table, and the way on to `fixes`.
fn patches() -> Result<[String; 2]> {
    let text = std::fs::read_to_string(repository().join("docs/add-a-field.md"))?;
    let blocks = text.split("```diff\n").skip(1).filter_map(|rest| rest.split("```").next());
    let blocks: Vec<String> = blocks.map(str::to_owned).collect();
    blocks.try_into().ok().context("docs/add-a-field.md does not have two diffs")
}

#[test]
fn the_recipe_works_as_written() -> Result<()> {
    let [patch, for_fixes] = patches()?;
    let files = patch.lines().filter(|line| line.starts_with("+++ ")).count();
    let lines = patch.lines().filter(|line| line.starts_with('+') && !line.starts_with("+++ ")).count();
    ensure!(files <= FILES_MAX && lines <= LINES_MAX, "{files} files, {lines} lines");

    let binary = patched::build(&format!("{patch}{for_fixes}"))?;
    let folder = TempDir::new()?;
    let engine = shared_engine()?;
    let broker = Broker::start(folder.path())?;
    let settings = Settings::new(&binary, folder.path(), broker.port, &engine.server.url())
        .with("CLICKHOUSE__DATABASE", "add_a_field");
    settings.migrate()?;
    let _milepost = settings.run()?;
    publish(
        broker.port,
        &[
            ("drivers/d1/gps", br#"{"lat":1,"lng":2,"hdop":1.3}"#),
            ("drivers/d2/gps", br#"{"lat":1,"lng":2,"hdop":"?"}"#),
            ("drivers/d3/gps", br#"{"lat":1,"lng":2}"#),
        ],
    )?;
    for table in ["positions", "fixes"] {
        let sql = format!("SELECT driver_id, hdop FROM add_a_field.{table} ORDER BY driver_id");
        let mut rows = String::new();
        lab_stack::wait_until("three rows are there", SOON, || {
            rows = engine.server.query(&sql)?;
            Ok(rows.lines().count() == 3)
        })?;
        assert_eq!(rows, "d1\t1.3\nd2\t\\N\nd3\t\\N\n", "{table}");
    }
    Ok(())
}
