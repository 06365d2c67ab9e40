//! Tests milepost with strict-broker, a broker that runs as two nodes. Like EMQX, strict-broker
//! keeps the subscriptions of a dead node.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lab_stack::{Broker, BrokerKind, Milepost, wait_until};

use crate::world::{SOON, World, finish, publish_in_background, world};

/// Starts a strict-broker of two nodes with this strategy of shared subscriptions.
pub fn cluster(name: &str, strategy: &str) -> Result<World> {
    cluster_with(name, &["--strategy", strategy])
}

/// Starts a strict-broker of two nodes with these options; the settings name both nodes.
pub fn cluster_with(name: &str, options: &[&str]) -> Result<World> {
    let mut world = world(name)?;
    let options = [&["--max-inflight", "32000"], options].concat();
    let kind = BrokerKind::Strict {
        binary: Path::new(env!("CARGO_BIN_EXE_milepost")).with_file_name("strict-broker"),
        options: options.into_iter().map(str::to_owned).collect(),
    };
    world.broker = Broker::start_kind(kind, world.folder.path())?;
    let nodes = ports(&world).map(|port| format!("mqtt://127.0.0.1:{port}")).join(",");
    world.settings = world.settings.with("MQTT__URL", nodes);
    Ok(world)
}

fn ports(world: &World) -> [u16; 2] {
    [world.broker.port, world.broker.second_port.expect("a second node")]
}

/// Waits until `/readyz` reports this number of sessions on each node.
fn wait_for_spread(world: &World, milepost: &Milepost, sessions: [usize; 2]) -> Result<()> {
    let line = |(port, sessions)| format!("node 127.0.0.1:{port}: sessions: {sessions}\n");
    let lines: String = ports(world).into_iter().zip(sessions).map(line).collect();
    wait_until(&lines, SOON, || Ok(milepost.get("/readyz").is_ok_and(|text| text.contains(&lines))))
}

#[test]
fn sessions_leave_a_dead_node_and_one_is_added_when_it_is_back() -> Result<()> {
    let world = cluster("nodes", "local")?;
    let mut milepost = world.settings.start()?;
    wait_for_spread(&world, &milepost, [2, 2])?;
    let mut plan = world.plan("nodes", 500, 10);
    plan.broker = format!("127.0.0.1:{}", ports(&world)[1]);
    let fleet = publish_in_background(plan);
    world.broker.command("node 0 down")?;
    wait_for_spread(&world, &milepost, [0, 4])?;
    world.broker.command("node 0 up")?;
    wait_for_spread(&world, &milepost, [1, 4])?;
    let node = format!("mqtt_node_sessions{{node=\"127.0.0.1:{}\"}}", ports(&world)[1]);
    assert!((milepost.metric(&node)? - 4.0).abs() < 0.1);
    // milepost had received all messages of the node's sessions before the node died, so the lost
    // sessions do not count as at risk.
    assert_eq!(milepost.metric("mqtt_sessions_lost_total")?, 2.0);
    assert_eq!(milepost.metric("mqtt_sessions_lost_at_risk_total")?, 0.0);
    let verdict = world.verify(&finish(fleet)?)?;
    assert!(verdict.is_exact(), "{verdict}");
    assert_eq!(milepost.terminate(SOON)?, 0);

    // A restarted milepost has four sessions again. The fifth one, whose number is 4, is now a
    // former session, and milepost ends it.
    let mut milepost = world.settings.start()?;
    wait_for_spread(&world, &milepost, [2, 2])?;
    wait_until("the added session is ended", SOON, || {
        Ok(!world.broker.command("sessions")?.contains("-4 "))
    })?;
    assert_eq!(milepost.terminate(SOON)?, 0);
    Ok(())
}

/// A hung node accepts TCP and sends no CONNACK. milepost restarts while one of two nodes hangs.
#[test]
fn restart_while_a_node_hangs_moves_all_sessions_to_the_other_node() -> Result<()> {
    let world = cluster("hung", "local")?;
    let settings = world.settings.clone().with("MQTT__SESSION_EXPIRY", "45s");
    let mut milepost = settings.start()?;
    wait_for_spread(&world, &milepost, [2, 2])?;
    world.broker.command("node 0 hang")?;
    milepost.process.kill()?;
    let mut plan = world.plan("hung", 500, 10);
    plan.broker = format!("127.0.0.1:{}", ports(&world)[1]);
    let fleet = publish_in_background(plan);
    let began = Instant::now();
    let mut milepost = settings.start()?;
    wait_for_spread(&world, &milepost, [0, 4])?;
    let took = began.elapsed();
    ensure!(took < Duration::from_secs(30), "the sessions left the hung node after {took:?}");
    let verdict = world.verify(&finish(fleet)?)?;
    assert!(verdict.is_exact(), "{verdict}");
    world.broker.command("node 0 up")?;
    wait_for_spread(&world, &milepost, [1, 4])?;
    assert_eq!(milepost.terminate(SOON)?, 0);
    Ok(())
}

/// A broker needs seconds to resume a session with a long queue. If milepost gave up too early and
/// connected to the other node, that node would take the session over.
#[test]
fn session_waits_for_a_node_that_resumes_a_long_queue() -> Result<()> {
    let world = cluster("resumes", "local")?;
    let mut milepost = world.settings.start()?;
    wait_for_spread(&world, &milepost, [2, 2])?;
    milepost.process.kill()?;
    world.broker.command("next 1 connack late 9s for test-0")?;
    let milepost = world.settings.start()?;
    wait_for_spread(&world, &milepost, [2, 2])?;
    let counters = world.broker.command("counters")?;
    ensure!(counters.lines().any(|line| line == "takeovers 0"), "{counters}");
    Ok(())
}

#[test]
fn check_names_the_strategy_and_a_hung_node() -> Result<()> {
    for (strategy, found) in
        [("local", "ok       strategy             local"), ("round-robin", "not local")]
    {
        let world = cluster(&format!("check_{}", strategy.replace('-', "_")), strategy)?;
        let check = ["check", "--probe-topic", "drivers/check/gps-check"];
        let (_, printed) = world.settings.call(&check)?;
        assert!(printed.contains(found) && printed.contains("2 nodes"), "{printed}");
        world.broker.command("node 0 down")?;
        let (code, printed) = world.settings.call(&check)?;
        assert_eq!(code, 1, "{printed}");
        assert!(printed.contains(&format!("127.0.0.1:{}: ", ports(&world)[0])), "{printed}");
    }
    Ok(())
}

/// EMQX refuses a client id with 0x89 while it cleans up the former connection of this client id.
#[test]
fn check_result_is_stable_while_the_broker_cleans_up_client_ids() -> Result<()> {
    let world = cluster_with("check_cleanup", &["--strategy", "local", "--cleanup", "1h"])?;
    for settings in [&world.settings, &world.settings.clone().with("MQTT__BROKER_METRICS", "true")]
    {
        for _ in 0..3 {
            let check = ["check", "--probe-topic", "drivers/check/gps-check"];
            let (code, printed) = settings.call(&check)?;
            assert!(code == 0 && printed.ends_with("0 errors, 0 warnings\n"), "{printed}");
        }
    }
    Ok(())
}

/// EMQX kills a session whose mailbox overflows, and continues to run.
#[test]
fn session_ended_by_a_running_broker_counts_as_at_risk() -> Result<()> {
    let world = cluster("ended_session", "local")?;
    let mut milepost = world.settings.start()?;
    wait_for_spread(&world, &milepost, [2, 2])?;
    let sessions = world.broker.command("sessions")?;
    let first = sessions.split(' ').next().unwrap_or_default();
    world.broker.command(&format!("kill {first}"))?;
    crate::world::wait_for_metric(&milepost, "mqtt_sessions_lost_at_risk_total", 1.0)?;
    assert_eq!(milepost.metric("mqtt_sessions_lost_total")?, 1.0);
    let log = milepost.process.log()?;
    assert!(log.contains("the broker was not restarted, so it ended the session"), "{log}");
    milepost.terminate(SOON).map(drop)
}
