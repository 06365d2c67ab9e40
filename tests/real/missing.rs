//! What a broker loses and counts nowhere: the drivers' `seq` shows it.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use lab_stack::wait_until;

use crate::events::Watcher;
use crate::nodes::cluster_with;
use crate::world::{SOON, World, finish, publish_in_background, wait_for_metric};

/// A counter of strict-broker.
fn counter(world: &World, name: &str) -> Result<u64> {
    let counters = world.broker.tell("counters")?;
    let value = counters.lines().find_map(|line| line.strip_prefix(name)).context("the counter")?;
    Ok(value.trim().parse()?)
}

/// `milepost_positions_missing`.
fn missing(watcher: &Watcher) -> Result<u64> {
    let metrics = watcher.get("/metrics")?;
    let line = metrics.lines().find_map(|line| line.strip_prefix("milepost_positions_missing "));
    Ok(line.context("the metric")?.parse()?)
}

#[test]
fn missing_positions_equal_what_the_broker_lost_over_kills_of_milepost() -> Result<()> {
    let world = cluster_with("missing", &["--strategy", "local"])?;
    let watcher = Watcher::watching(&world.settings, &world, "events")?;
    let mut milepost = world.settings.run()?;
    // Fixes that come late are not missing.
    let mut plan = world.plan("missing", 500, 30);
    plan.late_share = 0.02;
    let fleet = publish_in_background(plan);
    // Each driver has a first fix, between which and its last one a number can be missing.
    wait_for_metric(&milepost, "acks_total", 1_000.0)?;
    world.broker.tell("lose 37")?;
    std::thread::sleep(Duration::from_secs(2));
    milepost.process.kill()?;
    world.broker.tell("lose 100")?;
    std::thread::sleep(Duration::from_secs(2));
    milepost = world.settings.run()?;
    wait_for_metric(&milepost, "acks_total", 1_000.0)?;
    milepost.process.kill()?;
    milepost = world.settings.run()?;
    world.broker.tell("lose 5")?;
    wait_for_metric(&milepost, "acks_total", 1_000.0)?;

    let manifest = finish(fleet)?;
    let lost = counter(&world, "lost_on_purpose ")?;
    ensure!(lost == 142, "{lost}");
    let stored = (manifest.sent() - lost).to_string();
    world.wait_for("SELECT uniqExact(driver_id, seq) FROM {db}.positions", &stored, SOON)?;
    wait_until("the metric equals what the broker lost", SOON, || Ok(missing(&watcher)? == lost))?;
    let view = world.query(
        "SELECT sum(missing) FROM {db}_ask.health(driver = '', from = '2020-01-01', to = '2100-01-01', tz = 'UTC')",
    )?;
    assert_eq!(view.parse::<u64>()?, lost);
    assert_eq!(milepost.terminate(SOON)?, 0);
    Ok(())
}
