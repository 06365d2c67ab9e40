//! Runs `milepost events` under a fleet whose drivers cross a fence with every second fix. Each
//! process is killed in turn.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use lab_stack::{Process, unix_ms, wait_until};

use crate::harm_rows::{fix, publish};
use crate::row::{Row, SETTLE, row};
use crate::scene::Scene;

/// A fence whose eastern edge lies between the two places of the shuttles: drivers that move back
/// and forth. The places are too close to each other to count as a jump.
const FENCE: &str = r#"{"type":"Feature","properties":{"name":"pier"},"geometry":{"type":"Polygon",
    "coordinates":[[[0,0],[0.1,0],[0.1,0.1],[0,0.1],[0,0]]]}}"#;
/// Longitude of the places outside and inside the fence, in degrees.
const PLACES: [f64; 2] = [0.1004, 0.0996];
const SHUTTLES: usize = 20;
/// Number of fixes of each shuttle.
const STEPS: usize = 36;
/// Usual time between two fixes of a shuttle.
const STEP: Duration = Duration::from_secs(1);
const ENGINE_AWAY: Duration = Duration::from_secs(4);

pub(crate) fn all() -> Vec<Row> {
    vec![row(
        "events",
        "milepost events killed three times, milepost once, ClickHouse once, under drivers that \
         cross a fence",
        (1_000, 40),
        events,
    )]
}

/// Checks that every event belongs to a crossing, is stored once and was published, and that the
/// last event of each driver agrees with its newest two fixes. A fix that is stored after a newer
/// fix causes no event, so some crossings may have no event.
fn events(scene: &mut Scene) -> Result<()> {
    let fence = scene.write("fence.json", FENCE)?;
    scene.run_command(&["fences", "import", &fence])?;
    let mut watcher = start(scene)?;
    let mut crossed = BTreeSet::new();
    let mut expected = BTreeSet::new();
    for step in 0..STEPS {
        match step {
            6 | 14 | 28 => {
                watcher.kill()?;
                watcher = start(scene)?;
            }
            10 => {
                scene.wait_for_unacked(0)?;
                scene.kill_and_restart(0)?;
            }
            20 => {
                scene.kill_engine()?;
                sleep(ENGINE_AWAY);
                scene.restart_engine()?;
            }
            _ => sleep(STEP),
        }
        // Two fixes at each place: the second fix confirms the crossing that the first fix shows.
        let (side, is_crossing) = (step / 2 % 2, step % 2 == 0);
        let now = unix_ms();
        let shuttles = (0..SHUTTLES).map(|shuttle| format!("shuttle-{shuttle}"));
        let fixes: Vec<_> =
            shuttles.clone().map(|driver| fix(&driver, 0.05, PLACES[side], now)).collect();
        publish(scene.broker_port()?, &fixes)?;
        let kind = if side == 0 { "left" } else { "entered" };
        if is_crossing {
            expected = shuttles.map(|driver| format!("{driver}\t{kind}\t{now}")).collect();
            crossed.extend(expected.iter().cloned());
        }
    }
    scene.wait_until_recovered(SETTLE)?;

    let rows = "SELECT driver_id, kind, toUnixTimestamp64Milli(ts) FROM fleet.events FINAL \
                WHERE fence = 'pier'";
    let newest = format!("{rows} ORDER BY ts DESC LIMIT 1 BY driver_id");
    let mut latest = BTreeSet::new();
    let settled = wait_until(
        "the last event of each driver agrees with its newest two fixes",
        SETTLE,
        || {
            latest = lines(scene, &newest)?;
            Ok(latest == expected)
        },
    );
    let published = wait_until("every event has been published", SETTLE, || {
        Ok(lines(scene, &format!("{rows} AND mqtt_at IS NULL"))?.is_empty())
    });
    scene.violation = settled.and(published).err().map(|error| format!("{error:#}"));
    let stored = scene.engine()?.query(rows)?;
    let distinct: BTreeSet<String> = stored.lines().map(str::to_owned).collect();
    let twice = stored.lines().count() - distinct.len();
    let invented = distinct.difference(&crossed).count();
    eprintln!("    {} of {} crossings have an event", distinct.len(), crossed.len() - SHUTTLES);
    if twice + invented > 0 || distinct.len() < crossed.len() / 2 {
        scene.violation = Some(format!(
            "{} events for {} crossings, {twice} stored twice, {invented} without a crossing",
            distinct.len(),
            crossed.len()
        ));
    }
    Ok(())
}

/// Starts `milepost events`, and waits until the command is watching.
fn start(scene: &Scene) -> Result<Process> {
    let mut watcher = scene.start_command("events")?;
    wait_until("milepost events is watching", SETTLE, || {
        watcher.ensure_alive()?;
        Ok(watcher.log()?.contains("watching"))
    })?;
    Ok(watcher)
}

fn lines(scene: &Scene, sql: &str) -> Result<BTreeSet<String>> {
    Ok(scene.engine()?.query(sql)?.lines().map(str::to_owned).collect())
}
