//! Rows on a broker cluster of two nodes, one of which dies. Further rows: members whose number of
//! sessions is reduced, and peers that do not answer.
//!
//! The fleet publishes to the second node. The first node is killed for ten seconds.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use lab_harness::proxy::Fault;
use lab_stack::wait_until;

use crate::row::{Row, SETTLE, row};
use crate::scene::{EXIT_INCOMPLETE, Scene};

const NODE_AWAY: Duration = Duration::from_secs(10);
/// Time for which a session cannot reach its node; longer than the delay before a reconnect.
const CUT_OFF: Duration = Duration::from_secs(10);
/// Session expiry of the row with a hung node; shorter than two CONNACK timeouts of 30 s.
const HUNG_EXPIRY: &str = "45s";
/// Session expiry of the row that reduces the number of sessions. Emptying the sixty surplus
/// sessions one after the other, at a second each, would take longer.
const SHRINK_EXPIRY: &str = "20s";
/// Time after which every surplus session has been emptied or has expired.
const SHRUNK_AFTER: Duration = Duration::from_secs(60);

pub(crate) fn all() -> Vec<Row> {
    let killed = |name, description, strategy| {
        row(name, description, (1_500, 25), node_killed).on_cluster(strategy)
    };
    vec![
        killed("node-killed", "a cluster's node killed for 10 s, strategy local", "local"),
        killed(
            "node-killed-round-robin",
            "the same with round_robin: only the messages given to its ghosts are lost",
            "round-robin",
        ),
        row(
            "takeover",
            "a cluster's node cut off five times, then for 10 s: the other takes its sessions over",
            (1_500, 25),
            takeover,
        )
        .on_cluster("round-robin --takeover-gap 100ms"),
        row(
            "node-hung",
            "a node hangs, and a member is killed and returns meanwhile",
            (1_500, 25),
            node_hung,
        )
        .on_cluster("round-robin")
        .with("MQTT__SESSION_EXPIRY", HUNG_EXPIRY),
        row("shrink", "64 connections, then 4, a session that lasts 20 s", (800, 40), shrink)
            .with("MQTT__CONNECTIONS", "64")
            .with("MQTT__SESSION_EXPIRY", SHRINK_EXPIRY),
        row(
            "peers-unreachable",
            "leave = auto, and no peer answers",
            (2_000, 20),
            peers_unreachable,
        )
        .members(2)
        .with("SHUTDOWN__LEAVE", "auto")
        .with("SHUTDOWN__PEERS", "127.0.0.1:1,127.0.0.1:2"),
    ]
}

/// Kills a node for ten seconds. The messages in the node's sessions are lost in any case. With the
/// strategy `local` these sessions have no messages, because nobody publishes to this node.
fn node_killed(scene: &mut Scene) -> Result<()> {
    scene.wait_for_unacked(0)?;
    scene.control_broker("node 0 down")?;
    sleep(NODE_AWAY);
    scene.control_broker("node 0 up")?;
    scene.wait_until_recovered(SETTLE)?;
    let (held, ghosts) = (counter(scene, "lost_with_node ")?, counter(scene, "given_to_ghosts ")?);
    eprintln!(
        "    {held} messages were lost with the node's sessions, {ghosts} were given to its ghosts"
    );
    scene.allowed_losses = held + ghosts;
    Ok(())
}

/// Returns a counter of the broker. `name`: with the space after it.
fn counter(scene: &Scene, name: &str) -> Result<u64> {
    let counters = scene.control_broker("counters")?;
    let value = counters.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.with_context(|| format!("no counter {name}"))
}

/// Hangs a node, so that its CONNACKs never arrive. The sessions must survive: the other node takes
/// them over before they expire.
fn node_hung(scene: &mut Scene) -> Result<()> {
    scene.wait_for_unacked(0)?;
    scene.control_broker("node 0 hang")?;
    scene.members[0].milepost.process.kill()?;
    scene.restart_member(0)?;
    let began = Instant::now();
    // The restarted member may not listen yet.
    let readyz = || scene.members[0].milepost.get("/readyz");
    let is_moved = || Ok(readyz().is_ok_and(|page| page.contains("sessions: 4")));
    wait_until("all sessions are on the node that answers", SETTLE, is_moved)?;
    eprintln!("    all sessions were on the other node after {:?}", began.elapsed());
    scene.control_broker("node 0 up")?;
    scene.wait_until_recovered(SETTLE)?;
    scene.allowed_losses = counter(scene, "lost_in_takeovers ")?;
    Ok(())
}

/// Cuts sessions off. A takeover between nodes loses messages, so a session that was cut off
/// returns to its own node. A session that cannot return moves to the other node once, and does not
/// move back.
fn takeover(scene: &mut Scene) -> Result<()> {
    for _ in 0..5 {
        scene.wait_for_unacked(0)?;
        let before = scene.metric("mqtt_reconnects_total")?;
        scene.mqtt.set(Fault::Cut);
        // Wait for both sessions, so that each cut hits both. The delay before a reconnect grows,
        // and in the end exceeds the time for which a session waits for its node.
        let are_back = || Ok(scene.metric("mqtt_reconnects_total")? >= before + 2.0);
        wait_until("both sessions of the node are back", SETTLE, are_back)?;
        let needless = counter(scene, "takeovers ")?;
        if needless > 0 {
            scene.violation = Some(format!("{needless} sessions left a node that was alive"));
            return Ok(());
        }
    }
    scene.mqtt.set(Fault::Refuse);
    sleep(CUT_OFF);
    scene.mqtt.set(Fault::None);
    scene.wait_until_recovered(SETTLE)?;
    let readyz = || scene.members[0].milepost.get("/readyz");
    wait_until("each node has a session", SETTLE, || Ok(!readyz()?.contains("sessions: 0")))?;
    let (takeovers, lost) = (counter(scene, "takeovers ")?, counter(scene, "lost_in_takeovers ")?);
    eprintln!("    {takeovers} sessions were taken over, which lost {lost}");
    scene.violation = (takeovers != 2)
        .then(|| format!("{takeovers} takeovers, not one for each of the node's two sessions"));
    scene.allowed_losses = lost;
    Ok(())
}

/// Restarts the member with fewer connections. The surplus sessions collect messages until they are
/// unsubscribed, and lose the remaining messages when they expire.
fn shrink(scene: &mut Scene) -> Result<()> {
    scene.wait_for_unacked(0)?;
    let code = scene.members[0].milepost.terminate(SETTLE)?;
    ensure!(code == 0, "a drain ended with exit code {code}");
    scene.set("MQTT__CONNECTIONS", "4");
    scene.restart_member(0)?;
    scene.wait_until_recovered(SETTLE)?;
    sleep(SHRUNK_AFTER);
    Ok(())
}

/// Ends members that cannot ask their peers whether any stays. Each member keeps its session,
/// reports this by its exit code, and loses nothing if it returns soon.
fn peers_unreachable(scene: &mut Scene) -> Result<()> {
    scene.set("SHUTDOWN__LEAVE", "false");
    for n in 0..2 {
        scene.wait_for_unacked(n)?;
        let code = scene.members[n].milepost.terminate(SETTLE)?;
        let log = scene.members[n].milepost.process.log()?;
        ensure!(
            code == EXIT_INCOMPLETE,
            "no peer answered, but the member ended with exit code {code}"
        );
        ensure!(
            log.lines().any(|line| line.contains("WARN") && line.contains("shutdown.leave")),
            "no WARN line names shutdown.leave"
        );
        scene.restart_member(n)?;
        scene.wait_until_recovered(SETTLE)?;
    }
    Ok(())
}
