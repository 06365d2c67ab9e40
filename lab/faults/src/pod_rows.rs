//! Rows in which members start and stop as pods do: several at once, and no member knows which of
//! them stay.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, ensure};
use lab_stack::wait_until;

use crate::row::{Row, SETTLE, row};
use crate::scene::Scene;

/// Session expiry, shorter than a row: the messages of a subscription that a member leaves behind
/// are lost within the row, so the comparison finds them missing.
const EXPIRY: &str = "15s";
/// Time after which a session without a connection has expired at every kind of broker used here.
const EXPIRED_AFTER: Duration = Duration::from_secs(20);
/// Time without any running member; shorter than the expiry.
const NO_MEMBERS: Duration = Duration::from_secs(5);
/// Longest wait until each of two processes has taken the sessions over from the other. A process
/// reconnects 30 s after another client took its session.
const TAKEOVERS_WITHIN: Duration = Duration::from_secs(90);
const SESSIONS: usize = 4;
/// Time in which further takeovers are counted. With a delay of 30 s, no takeover falls into it.
const COUNTED_FOR: Duration = Duration::from_secs(10);

pub(crate) fn all() -> Vec<Row> {
    let description = "pods: 2 → 4 → 1 → 0 → 2, a rolling restart, 2 → 0 → 2 at once";
    let pods = |name, description| {
        row(name, description, (2_000, 30), pods)
            .members(2)
            .pods()
            .with("MQTT__SESSION_EXPIRY", EXPIRY)
    };
    vec![
        pods("pods", description),
        pods(
            "pods-emqx",
            "the same on a broker with EMQX's manners: messages for an ending session are lost",
        )
        .on_emqx("--dying 3s"),
        drained("drain", "a member dies for good: milepost drain empties its sessions"),
        drained("drain-emqx", "the same on a broker with EMQX's manners").on_emqx("--dying 3s"),
        row(
            "zombie",
            "a hung member wakes up beside its successor, which has its client id",
            (2_000, 20),
            zombie,
        )
        .on_strict_broker("--max-inflight 32000")
        .with("MQTT__CONNECTIONS", "4"),
    ]
}

/// Simulates a node that hangs, and wakes up after its pod has been started elsewhere: two
/// processes with the same client id take the sessions over from each other until one of them is
/// killed.
fn zombie(scene: &mut Scene) -> Result<()> {
    scene.wait_for_unacked(0)?;
    let zombie = scene.members.remove(0);
    zombie.milepost.process.signal("STOP")?;
    scene.add_member(&zombie.client_id)?;
    zombie.milepost.process.signal("CONT")?;
    let successor = &scene.members[0].milepost;
    let taken_over = "another client connected with this client id";
    wait_until("the successor reports that another client uses its id", TAKEOVERS_WITHIN, || {
        Ok(successor.get("/readyz").is_err_and(|error| error.to_string().contains(taken_over)))
    })?;
    sleep(COUNTED_FOR);
    let times = successor.process.log()?.matches(taken_over).count();
    if times > 2 * SESSIONS {
        scene.violation = Some(format!(
            "{times} log lines report takeovers, above 2 for each of {SESSIONS} sessions"
        ));
    }
    drop(zombie);
    scene.wait_until_recovered(TAKEOVERS_WITHIN).map(drop)
}

/// Returns a row whose sessions do not expire while it runs: messages that stay in a session are
/// missing at the end.
fn drained(name: &'static str, description: &'static str) -> Row {
    row(name, description, (2_000, 15), drain).members(2).pods()
}

/// Kills a member for good, and empties its sessions with `milepost drain`.
fn drain(scene: &mut Scene) -> Result<()> {
    scene.wait_for_unacked(1)?;
    let mut killed = scene.members.split_off(1);
    killed[0].milepost.process.kill()?;
    sleep(NO_MEMBERS);
    let (code, printed) = scene.drain(&killed[0].client_id)?;
    ensure!(code == 0, "milepost drain ended with exit code {code}: {printed}");
    scene.wait_until_recovered(SETTLE).map(drop)
}

/// Starts, stops and restarts members as the row's description says.
fn pods(scene: &mut Scene) -> Result<()> {
    scene.wait_for_unacked(0)?;
    scene.add_member("member-2")?;
    scene.add_member("member-3")?;
    sleep(Duration::from_secs(2));

    scene.wait_for_unacked(3)?;
    let stopped = stop(scene, 1)?;
    ensure!(stopped == ["member-1", "member-2", "member-3"], "these members stopped: {stopped:?}");
    sleep(EXPIRED_AFTER);
    scene.wait_until_recovered(SETTLE)?;

    stop_all_and_return(scene, 0, &["member-0", "member-1"])?;

    for n in (0..scene.members.len()).rev() {
        scene.wait_for_unacked(n)?;
        let code = scene.members[n].milepost.terminate(SETTLE)?;
        ensure!(scene.allows_exit_code(code), "a restart ended with exit code {code}");
        scene.restart_member(n)?;
        scene.wait_until_recovered(SETTLE)?;
    }

    stop_all_and_return(scene, 1, &["member-0", "member-1"])
}

/// Stops all members at once when `member` has unacknowledged messages, and later starts the
/// members `returning`.
fn stop_all_and_return(scene: &mut Scene, member: usize, returning: &[&str]) -> Result<()> {
    scene.wait_for_unacked(member)?;
    stop(scene, 0)?;
    sleep(NO_MEMBERS);
    returning.iter().try_for_each(|client_id| scene.add_member(client_id))?;
    scene.wait_until_recovered(SETTLE).map(drop)
}

/// Sends SIGTERM to all members but the first `staying`, and waits until they have ended. Returns
/// their client ids.
fn stop(scene: &mut Scene, staying: usize) -> Result<Vec<String>> {
    let mut stopping = scene.members.split_off(staying);
    stopping.iter().rev().try_for_each(|member| member.milepost.process.signal("TERM"))?;
    for member in &mut stopping {
        let code = member.milepost.process.wait(SETTLE)?.code();
        let is_allowed = code.is_some_and(|code| scene.allows_exit_code(code));
        ensure!(is_allowed, "{} ended with exit code {code:?}", member.client_id);
    }
    Ok(stopping.into_iter().map(|member| member.client_id).collect())
}
