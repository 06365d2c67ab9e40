//! Members that start and stop as pods do: many at once, and without a list of those that stay.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, ensure};
use lab_stack::wait_until;

use crate::row::{Row, SETTLE, row};
use crate::scene::Scene;

/// Session expiry; shorter than a row. If a member leaves a subscription behind, the messages
/// routed to it are therefore lost within the row.
const EXPIRY: &str = "15s";
/// Time after which a session without a connection has expired at each of the brokers.
const EXPIRED_AFTER: Duration = Duration::from_secs(20);
/// Time without any member; shorter than the expiry.
const NOBODY: Duration = Duration::from_secs(5);
/// Longest wait until each of two processes has taken the sessions over from the other. A process
/// retries half a minute after a takeover.
const FIGHT: Duration = Duration::from_secs(90);
const SESSIONS: usize = 4;
/// Time after the takeovers in which the log may report no further one.
const CALM: Duration = Duration::from_secs(10);

pub(crate) fn all() -> Vec<Row> {
    let what = "pods: 2 → 4 → 1 → 0 → 2, a rolling restart, 2 → 0 → 2 at once";
    let pods = |name, what| {
        row(name, what, (2_000, 30), pods).members(2).pods().with("MQTT__SESSION_EXPIRY", EXPIRY)
    };
    vec![
        pods("pods", what),
        pods(
            "pods-emqx",
            "the same on a broker with EMQX's manners, that loses what comes while a session ends",
        )
        .on_emqx("--dying 3s"),
        drained("drain", "a member dies and does not come back: milepost drain takes what it left"),
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

/// Plays a node that hangs and wakes up after its pod has been started elsewhere: two processes
/// with the same client id take the sessions over from each other, until one of them is ended.
fn zombie(scene: &mut Scene) -> Result<()> {
    scene.meet_unacked(0)?;
    let zombie = scene.members.remove(0);
    zombie.process.process.signal("STOP")?;
    scene.add_member(&zombie.client_id)?;
    zombie.process.process.signal("CONT")?;
    let successor = &scene.members[0].process;
    let thrown_out = "another client connected with this client id";
    wait_until("the successor reports that another client uses its id", FIGHT, || {
        Ok(successor.get("/readyz").is_err_and(|error| error.to_string().contains(thrown_out)))
    })?;
    sleep(CALM);
    let times = successor.process.log()?.matches(thrown_out).count();
    if times > 2 * SESSIONS {
        scene.violation = Some(format!(
            "{times} log lines report takeovers, above 2 for each of {SESSIONS} sessions"
        ));
    }
    drop(zombie);
    scene.wait_until_recovered(FIGHT).map(drop)
}

/// Returns a row whose sessions do not expire while it is played: messages that no member receives
/// from them are missing at the end.
fn drained(name: &'static str, what: &'static str) -> Row {
    row(name, what, (2_000, 15), drain).members(2).pods()
}

fn drain(scene: &mut Scene) -> Result<()> {
    scene.meet_unacked(1)?;
    let mut killed = scene.members.split_off(1);
    killed[0].process.process.kill()?;
    sleep(NOBODY);
    let (code, printed) = scene.drain(&killed[0].client_id)?;
    ensure!(code == 0, "milepost drain ended with exit code {code}: {printed}");
    scene.wait_until_recovered(SETTLE).map(drop)
}

fn pods(scene: &mut Scene) -> Result<()> {
    scene.meet_unacked(0)?;
    scene.add_member("member-2")?;
    scene.add_member("member-3")?;
    sleep(Duration::from_secs(2));

    scene.meet_unacked(3)?;
    let stopped = stop(scene, 1)?;
    ensure!(stopped == ["member-1", "member-2", "member-3"], "these members stopped: {stopped:?}");
    sleep(EXPIRED_AFTER);
    scene.wait_until_recovered(SETTLE)?;

    stop_all_and_return(scene, 0, &["member-0", "member-1"])?;

    for n in (0..scene.members.len()).rev() {
        scene.meet_unacked(n)?;
        let code = scene.members[n].process.terminate(SETTLE)?;
        ensure!(scene.may_leave_with(code), "a restart ended with exit code {code}");
        scene.restart_member(n)?;
        scene.wait_until_recovered(SETTLE)?;
    }

    stop_all_and_return(scene, 1, &["member-0", "member-1"])
}

/// Stops all members at once, and later starts those of `back` at once.
fn stop_all_and_return(scene: &mut Scene, meet: usize, back: &[&str]) -> Result<()> {
    scene.meet_unacked(meet)?;
    stop(scene, 0)?;
    sleep(NOBODY);
    back.iter().try_for_each(|client_id| scene.add_member(client_id))?;
    scene.wait_until_recovered(SETTLE).map(drop)
}

/// Sends SIGTERM to all but the first `stay` members at once, and waits until they have ended.
fn stop(scene: &mut Scene, stay: usize) -> Result<Vec<String>> {
    let mut going = scene.members.split_off(stay);
    going.iter().rev().try_for_each(|member| member.process.process.signal("TERM"))?;
    for member in &mut going {
        let code = member.process.process.wait(SETTLE)?.code();
        let is_allowed = code.is_some_and(|code| scene.may_leave_with(code));
        ensure!(is_allowed, "{} ended with exit code {code:?}", member.client_id);
    }
    Ok(going.into_iter().map(|member| member.client_id).collect())
}
