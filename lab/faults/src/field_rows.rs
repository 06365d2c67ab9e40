//! Adds two fields while a fleet publishes: writes `[fields.NAME]`, runs `milepost migrate`, and
//! restarts the members one after the other.
//!
//! The source stores the value of one field (`keep`) from the beginning, so every fix has this
//! value in the end. Each member stores the value of the other field only after its restart.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, ensure};
use lab_harness::proxy::Fault;
use lab_stack::fields::{ADDED, SATELLITES, SOURCE, TABLES};
use lab_stack::wait_until;
use loadgen::format::Format;

use crate::row::{Row, SETTLE, row};
use crate::scene::{EXIT_INCOMPLETE, Scene};

const MEMBERS: usize = 2;
const ENGINE_AWAY: Duration = Duration::from_secs(4);
/// Time for which ClickHouse refuses inserts; longer than a batch may stay open.
const REFUSED: Duration = Duration::from_millis(1_500);
/// Value of the field `tracker_event` in every message of the fleet.
const EVENT: u32 = 0;

pub(crate) fn all() -> Vec<Row> {
    let added = |name, description, act| {
        let row = row(name, description, (2_000, 30), act).members(2).in_format(Format::Teltonika);
        SOURCE.iter().fold(row, |row, (key, value)| row.with(key, value))
    };
    vec![
        added(
            "field",
            "fields added: migrate, and one member restarted after the other",
            restarted,
        ),
        added(
            "field-outage",
            "fields added while older files wait in spools, ClickHouse away twice",
            outage,
        )
        .spool(),
        added(
            "field-killed",
            "fields added, and each member ended by kill -9 while ClickHouse refuses",
            killed,
        ),
    ]
}

/// Restarts each member after the migration.
fn restarted(scene: &mut Scene) -> Result<()> {
    add_fields(scene)?;
    for n in 0..MEMBERS {
        scene.wait_for_unacked(n)?;
        let code = scene.members[n].milepost.terminate(SETTLE)?;
        ensure!(code == 0, "a drain ended with exit code {code}");
        scene.restart_member(n)?;
        scene.wait_until_recovered(SETTLE)?;
        if n == 0 {
            wait_until_filled(scene)?;
        }
    }
    check_columns(scene)
}

/// Kills ClickHouse before `milepost migrate`, and again while the second member restarts. The
/// members then replay spool files from before the migration into the migrated tables.
fn outage(scene: &mut Scene) -> Result<()> {
    scene.wait_for_unacked(0)?;
    scene.kill_engine()?;
    sleep(ENGINE_AWAY);
    let waiting = scene.metric("positions_in_spool")?;
    if waiting < scene.rate() {
        add_violation(scene, &format!("only {waiting} positions waited for ClickHouse"));
    }
    scene.restart_engine()?;
    add_fields(scene)?;
    scene.wait_for_unacked(0)?;
    let code = scene.members[0].milepost.terminate(SETTLE)?;
    ensure!(code == 0 || code == EXIT_INCOMPLETE, "a drain ended with exit code {code}");
    scene.restart_member(0)?;
    scene.wait_until_recovered(SETTLE)?;
    wait_until_filled(scene)?;
    scene.kill_engine()?;
    sleep(ENGINE_AWAY);
    let code = scene.members[1].milepost.terminate(SETTLE)?;
    ensure!(code == 0 || code == EXIT_INCOMPLETE, "a drain ended with exit code {code}");
    scene.restart_member(1)?;
    scene.restart_engine()?;
    scene.wait_until_recovered(SETTLE)?;
    wait_until("both spools are empty", 2 * SETTLE, || {
        let files = |member: &crate::scene::Member| member.milepost.metric("spool_batches");
        Ok(scene.members.iter().all(|member| files(member).is_ok_and(|files| files == 0.0)))
    })?;
    check_columns(scene)
}

/// Kills each member while ClickHouse refuses inserts. The broker redelivers the member's messages
/// to a process that stores one field more.
fn killed(scene: &mut Scene) -> Result<()> {
    kill_with_unsaved_messages(scene, 0)?;
    add_fields(scene)?;
    for n in 0..MEMBERS {
        kill_with_unsaved_messages(scene, n)?;
        if n == 0 {
            wait_until_filled(scene)?;
        }
    }
    check_columns(scene)
}

fn kill_with_unsaved_messages(scene: &mut Scene, n: usize) -> Result<()> {
    scene.http.set(Fault::Refuse);
    sleep(REFUSED);
    scene.wait_for_unacked(n)?;
    scene.kill_and_restart(n)?;
    scene.http.set(Fault::None);
    scene.wait_until_recovered(SETTLE)?;
    Ok(())
}

/// Adds the fields to the tables, and to the configuration of members that start from now on. The
/// values that `keep` stored must be in their column at once.
fn add_fields(scene: &mut Scene) -> Result<()> {
    for (key, value) in ADDED {
        scene.set(key, value);
    }
    scene.settings.migrate()?;
    let filled = format!(
        "SELECT count() > 0 AND countIf(satellites = {SATELLITES}) = count() FROM fleet.fixes"
    );
    if scene.engine()?.query(&filled)?.trim() != "1" {
        add_violation(scene, "fixes from before the migration lack the value that `keep` stored");
    }
    Ok(())
}

/// Waits until the first member has filled the other column. Only this member has the new
/// configuration.
fn wait_until_filled(scene: &mut Scene) -> Result<()> {
    let rate = scene.rate();
    let filled = format!("SELECT countIf(tracker_event = {EVENT}) > {rate} FROM fleet.positions");
    let is_filled = || Ok(scene.engine()?.query(&filled)?.trim() == "1");
    if wait_until("the first member fills the column", SETTLE, is_filled).is_err() {
        add_violation(scene, "the first member that restarted does not fill the column");
    }
    Ok(())
}

/// Checks the columns after every member has restarted: each fix inserted from now on must have
/// both values.
fn check_columns(scene: &mut Scene) -> Result<()> {
    let now = scene.engine()?.query("SELECT now64(3, 'UTC')")?;
    let since = format!("FROM fleet.positions WHERE inserted_at > '{}'", now.trim());
    let rate = scene.rate();
    let has_enough_rows = format!("SELECT count() > {rate} {since}");
    wait_until("both members insert", SETTLE, || {
        Ok(scene.engine()?.query(&has_enough_rows)?.trim() == "1")
    })?;
    scene.wait_until_sent()?;
    scene.wait_until_recovered(SETTLE)?;
    let mut wrong = Vec::new();
    let mut expect_none = |description: &str, sql: String| -> Result<()> {
        let count = scene.engine()?.query(&sql)?;
        if count.trim() != "0" {
            wrong.push(format!("{} {description}", count.trim()));
        }
        Ok(())
    };
    expect_none(
        "fixes after the last restart lack the value",
        format!("SELECT countIf(ifNull(tracker_event != {EVENT}, true)) {since}"),
    )?;
    for table in TABLES {
        expect_none(
            &format!("rows of {table} lack the value that `keep` stored"),
            format!("SELECT countIf(ifNull(satellites != {SATELLITES}, true)) FROM fleet.{table}"),
        )?;
        expect_none(
            &format!("rows of {table} differ from their attributes"),
            format!(
                "SELECT countIf((tracker_event IS NULL) = mapContains(attributes, 'evt')) \
                 FROM fleet.{table}"
            ),
        )?;
    }
    if !wrong.is_empty() {
        add_violation(scene, &wrong.join("; "));
    }
    Ok(())
}

/// Adds a violation to those that the row has already observed.
fn add_violation(scene: &mut Scene, violation: &str) {
    let earlier = scene.violation.take();
    scene.violation = Some(
        earlier.map_or_else(|| violation.to_owned(), |earlier| format!("{earlier}; {violation}")),
    );
}
