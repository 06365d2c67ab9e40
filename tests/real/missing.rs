//! Tests `milepost_positions_missing`: gaps in the drivers' `seq` reveal messages that a broker
//! lost and did not count.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use lab_stack::{unix_ms, wait_until};

use crate::events::Watcher;
use crate::nodes::cluster_with;
use crate::world::{SOON, World, finish, publish_in_background, wait_for_metric};

/// Returns a counter of strict-broker.
fn counter(world: &World, name: &str) -> Result<u64> {
    let counters = world.broker.command("counters")?;
    let value = counters.lines().find_map(|line| line.strip_prefix(name)).context("the counter")?;
    Ok(value.trim().parse()?)
}

/// Returns the value of `milepost_positions_missing`.
fn missing(watcher: &Watcher) -> Result<u64> {
    let metrics = watcher.get("/metrics")?;
    let line = metrics.lines().find_map(|line| line.strip_prefix("milepost_positions_missing "));
    Ok(line.context("the metric")?.parse()?)
}

#[test]
fn missing_positions_equal_the_brokers_losses_despite_kills() -> Result<()> {
    let world = cluster_with("missing", &["--strategy", "local"])?;
    let watcher = Watcher::start_watching(&world.settings, &world, "events")?;
    let mut milepost = world.settings.run()?;
    // Fixes that arrive late are not missing.
    let mut plan = world.plan("missing", 500, 30);
    plan.late_share = 0.02;
    let fleet = publish_in_background(plan);
    // Wait until each driver has a stored fix: a number counts as missing only if it comes after
    // the driver's first stored number.
    wait_for_metric(&milepost, "acks_total", 1_000.0)?;
    // strict-broker acknowledges the next 37 messages, but discards them.
    world.broker.command("lose 37")?;
    std::thread::sleep(Duration::from_secs(2));
    milepost.process.kill()?;
    world.broker.command("lose 100")?;
    std::thread::sleep(Duration::from_secs(2));
    milepost = world.settings.run()?;
    wait_for_metric(&milepost, "acks_total", 1_000.0)?;
    milepost.process.kill()?;
    milepost = world.settings.run()?;
    world.broker.command("lose 5")?;
    wait_for_metric(&milepost, "acks_total", 1_000.0)?;

    let manifest = finish(fleet)?;
    let lost = counter(&world, "lost_on_purpose ")?;
    ensure!(lost == 142, "{lost}");
    let stored = (manifest.sent() - lost).to_string();
    world.wait_for("SELECT uniqExact(driver_id, seq) FROM {db}.positions", &stored, SOON)?;
    wait_until("the metric equals what the broker lost", SOON, || Ok(missing(&watcher)? == lost))?;
    let view = world.query(
        "SELECT sum(missing) FROM {db}_ask.health(driver = '', from = '2020-01-01', \
         to = '2100-01-01', tz = 'UTC')",
    )?;
    assert_eq!(view.parse::<u64>()?, lost);
    assert_eq!(milepost.terminate(SOON)?, 0);
    Ok(())
}

const DRIVERS: u32 = 20;

/// Publishes a fix of each driver for each sequence number in `seqs`, to the node at `port`.
fn publish_numbers(port: u16, began: i64, seqs: std::ops::Range<u32>) -> Result<()> {
    let fix = |driver: u32, seq: u32| {
        let ts = began + i64::from(seq) * 100;
        let payload = format!(r#"{{"lat":52.5,"lng":13.4,"ts":{ts},"seq":{seq}}}"#);
        (format!("drivers/d{driver}/gps"), payload)
    };
    let fixes: Vec<_> =
        seqs.flat_map(|seq| (0..DRIVERS).map(move |driver| fix(driver, seq))).collect();
    let messages: Vec<_> =
        fixes.iter().map(|(topic, payload)| (topic.as_str(), payload.as_bytes())).collect();
    crate::world::publish(port, &messages)
}

/// Waits until every session of the broker has nothing left to deliver.
fn wait_until_delivered(world: &World) -> Result<()> {
    wait_until("the broker has delivered everything", SOON, || {
        let sessions = world.broker.command("sessions")?;
        Ok(sessions
            .lines()
            .filter(|line| line.contains("node="))
            .all(|line| line.contains("mailbox=0 queued=0 unacked=0 ")))
    })
}

/// A node dies together with a member that had not acknowledged the node's messages, so these
/// messages are lost. The other node keeps its messages until the member has restarted.
#[test]
fn missing_positions_equal_the_losses_of_a_dead_node_and_member() -> Result<()> {
    let world = cluster_with("missing_node", &["--strategy", "local"])?;
    let ports = [world.broker.port, world.broker.second_port.context("a second node")?];
    let began = unix_ms() - 60_000;
    let mut watcher = Watcher::start_watching(&world.settings, &world, "first")?;
    let mut first = world.settings.run()?;
    let rows = |seqs: u32| (DRIVERS * seqs).to_string();
    let count = "SELECT uniqExact(driver_id, seq) FROM {db}.positions";
    publish_numbers(ports[0], began, 1..6)?;
    world.wait_for(count, &rows(5), SOON)?;
    wait_until_delivered(&world)?;

    // The stopped member reads nothing more, so its messages stay unacknowledged on both nodes.
    first.process.signal("STOP")?;
    publish_numbers(ports[0], began, 6..11)?;
    publish_numbers(ports[1], began, 11..16)?;
    world.broker.command("node 0 down")?;
    first.process.kill()?;
    let lost = counter(&world, "lost_with_node ")?;
    assert_eq!(lost, u64::from(DRIVERS) * 5);

    // The next process has the same name, as a restarted pod does: it resumes the sessions on the
    // other node.
    let mut milepost = world.settings.start()?;
    world.wait_for(count, &rows(10), SOON)?;
    watcher.process.kill()?;
    watcher = Watcher::start_watching(&world.settings, &world, "second")?;
    publish_numbers(ports[1], began, 16..21)?;
    world.wait_for(count, &rows(15), SOON)?;
    for name in ["third", "fourth"] {
        wait_until("the metric equals what the broker lost", SOON, || {
            Ok(missing(&watcher)? == lost)
        })?;
        watcher.process.kill()?;
        watcher = Watcher::start_watching(&world.settings, &world, name)?;
    }
    wait_until("the metric equals what the broker lost", SOON, || Ok(missing(&watcher)? == lost))?;
    assert_eq!(milepost.terminate(SOON)?, 0);
    Ok(())
}
