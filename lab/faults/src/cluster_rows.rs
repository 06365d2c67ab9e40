//! A broker that is a cluster of two, one of whose nodes dies; sessions that become fewer; peers that do not answer.
//!
//! The fleet publishes to the second node, and the first one is killed for ten seconds.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::row::{Row, SETTLE, row};
use crate::scene::{Scene, UNDONE};

const NODE_AWAY: Duration = Duration::from_secs(10);
/// Sixty sessions that are emptied one after the other, a second each, take longer.
const SHRINK_EXPIRY: &str = "20s";
const SHRUNK_AFTER: Duration = Duration::from_secs(60);

pub(crate) fn all(strict_broker: &Path) -> Vec<Row> {
    let killed = |name, what, strategy| {
        row(name, what, (1_500, 25), node_killed).on_cluster(strict_broker, strategy).by_name_only()
    };
    vec![
        killed("node-killed", "a cluster's node killed for 10 s, strategy local", "local"),
        killed(
            "node-killed-round-robin",
            "the same with round_robin: what its ghosts are given is lost, and no more",
            "round-robin",
        ),
        row("shrink", "64 connections, then 4, a session that lasts 20 s", (800, 40), shrink)
            .with("MQTT__CONNECTIONS", "64")
            .with("MQTT__SESSION_EXPIRY", SHRINK_EXPIRY),
        row("peers-unreachable", "leave = auto, and no peer answers", (2_000, 20), peers_unreachable)
            .members(2)
            .with("SHUTDOWN__LEAVE", "auto")
            .with("SHUTDOWN__PEERS", "127.0.0.1:1,127.0.0.1:2")
            .by_name_only(),
    ]
}

/// What the dead node's sessions held is lost in any case: with `local` that is nothing, because nobody publishes there.
fn node_killed(scene: &mut Scene) -> Result<()> {
    scene.meet_unacked(0)?;
    scene.tell_broker("node 0 down")?;
    sleep(NODE_AWAY);
    scene.tell_broker("node 0 up")?;
    scene.wait_until_recovered(SETTLE)?;
    let counters = scene.tell_broker("counters")?;
    let count =
        |name: &str| counters.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    let (held, ghosts) = (count("lost_with_node ").unwrap_or(0), count("given_to_ghosts ").unwrap_or(0));
    eprintln!("    {held} were with the node's sessions, {ghosts} were given to its ghosts");
    scene.damaged = held + ghosts;
    Ok(())
}

/// The sessions beyond the new number collect messages until they are unsubscribed, and lose them when they expire.
fn shrink(scene: &mut Scene) -> Result<()> {
    scene.meet_unacked(0)?;
    let code = scene.members[0].process.terminate(SETTLE)?;
    ensure!(code == 0, "a drain ended with exit code {code}");
    scene.set("MQTT__CONNECTIONS", "4");
    scene.restart_member(0)?;
    scene.wait_until_recovered(SETTLE)?;
    sleep(SHRUNK_AFTER);
    Ok(())
}

/// Whether the others stay cannot be known: the exit code says so, and whoever comes back soon has lost nothing.
fn peers_unreachable(scene: &mut Scene) -> Result<()> {
    scene.set("SHUTDOWN__LEAVE", "false");
    for n in 0..2 {
        scene.meet_unacked(n)?;
        let code = scene.members[n].process.terminate(SETTLE)?;
        let log = scene.members[n].process.process.log()?;
        ensure!(code == UNDONE, "no peer answered, and it ended with exit code {code}");
        ensure!(
            log.lines().any(|line| line.contains("WARN") && line.contains("shutdown.leave")),
            "no WARN says why"
        );
        scene.restart_member(n)?;
        scene.wait_until_recovered(SETTLE)?;
    }
    Ok(())
}
