//! Rows on brokers with tight limits, or with the behaviour of EMQX. In EMQX, a session is one
//! process, which EMQX kills when the session falls behind.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use lab_harness::proxy::Fault;
use lab_stack::wait_until;

use crate::outage_rows::receive_all_unacked;
use crate::row::{Row, SETTLE, row};
use crate::scene::Scene;

pub(crate) fn all() -> Vec<Row> {
    vec![
        row(
            "emqx-30k",
            "30,000 msg/s on a broker with EMQX's manners, a minute",
            (30_000, 60),
            |scene| under_load(scene, 60),
        )
        .on_emqx(""),
        row(
            "window-32",
            "10,000 msg/s on a window of 32 and a queue of 1,000, half a minute",
            (10_000, 30),
            |scene| under_load(scene, 30),
        )
        .on_strict_broker("--max-inflight 32 --max-queue 1000"),
        row(
            "in-flight-100",
            "10,000 msg/s with 100 in flight, half a minute",
            (10_000, 30),
            |scene| under_load(scene, 30),
        )
        .on_strict_broker("--max-inflight 100 --max-queue 1000"),
        row("member-gone", "two members, one gone for good", (4_000, 15), member_gone)
            .members(2)
            .with("MQTT__SESSION_EXPIRY", "5s")
            .on_strict_broker(""),
        row(
            "member-replaced",
            "two members, one replaced before its session ends",
            (4_000, 15),
            replaced,
        )
        .members(2)
        .with("MQTT__SESSION_EXPIRY", "20s")
        .on_strict_broker("--max-inflight 32000 --session-rate 25000 --dying 3s"),
        row(
            "session-killed",
            "the broker kills every session, in an outage",
            (2_000, 6),
            session_killed,
        )
        .on_emqx(""),
        row("queued-600k", "600,000 messages queued while milepost is away", (12_000, 50), queued)
            .with("MQTT__CONNECTIONS", "1")
            .with("MQTT__SESSION_EXPIRY", "5m")
            .on_emqx(""),
        row("ids-left", "eight connections, then two", (4_000, 15), ids_left)
            .with("MQTT__CONNECTIONS", "8")
            .on_emqx(""),
    ]
}

/// Publishes for `seconds`. Fails if the fleet sends less than 95 % of the row's rate, because the
/// row then proves nothing.
fn under_load(scene: &Scene, seconds: u32) -> Result<()> {
    const MIN_SHARE: f64 = 0.95;
    let before = scene.sent();
    sleep(Duration::from_secs(seconds.into()));
    let rate = (scene.sent() - before) as f64 / f64::from(seconds);
    let connected = scene.members[0].milepost.metric("mqtt_connected")?;
    eprintln!("    {rate:.0} messages/s, {connected} connections");
    ensure!(
        rate >= MIN_SHARE * scene.rate(),
        "the fleet sent only {rate:.0} messages/s, so no verdict is possible"
    );
    Ok(())
}

/// Kills a member for good. When its sessions end, the broker gives their messages to the other
/// member.
fn member_gone(scene: &mut Scene) -> Result<()> {
    scene.wait_for_unacked(0)?;
    let mut killed = scene.members.remove(0);
    killed.milepost.process.kill()?;
    wait_until("the sessions of the killed member have ended", SETTLE, || {
        Ok(!scene.control_broker("sessions")?.contains(&killed.client_id))
    })
}

/// Kills a member and replaces it. Messages that arrive while a session ends are lost, so a
/// replacement with the same client id must take the session over before the session ends.
fn replaced(scene: &mut Scene) -> Result<()> {
    /// Shorter than the session expiry of the row.
    const AWAY: Duration = Duration::from_secs(6);
    for _ in 0..2 {
        scene.wait_for_unacked(0)?;
        scene.members[0].milepost.process.kill()?;
        sleep(AWAY);
        scene.restart_member(0)?;
        scene.wait_until_recovered(SETTLE)?;
    }
    Ok(())
}

/// Kills a session at the broker. The messages that the broker had not sent are lost with the
/// session. The messages that milepost has received must be stored.
fn session_killed(scene: &mut Scene) -> Result<()> {
    scene.wait_for_unacked(0)?;
    scene.http.set(Fault::Refuse);
    receive_all_unacked(scene)?;
    scene.control_broker("kill member")?;
    wait_until("milepost reports the lost sessions", SETTLE, || {
        Ok(scene.members[0].milepost.metric("mqtt_sessions_lost_at_risk_total")? > 0.0)
    })?;
    let log = scene.members[0].milepost.process.log()?;
    ensure!(log.contains("check_oom_shutdown"), "the log does not name the likely cause");
    scene.http.set(Fault::None);
    Ok(())
}

/// Resumes a session of 600,000 messages, for which the broker needs more time than most clients
/// wait.
fn queued(scene: &mut Scene) -> Result<()> {
    scene.wait_for_unacked(0)?;
    let code = scene.members[0].milepost.terminate(SETTLE)?;
    ensure!(code == 0, "a drain ended with exit code {code}");
    let before = scene.sent();
    let queued = || scene.sent() - before;
    wait_until("600,000 messages are queued", 3 * SETTLE, || Ok(queued() >= 600_000))
        .with_context(|| format!("{} were queued", queued()))?;
    scene.restart_member(0)?;
    wait_until("milepost is connected", SETTLE, || {
        Ok(scene.members[0]
            .milepost
            .metric("mqtt_connected")
            .is_ok_and(|connected| connected == 1.0))
    })
}

/// Restarts a member with fewer connections. The sessions of unused client ids must end, or these
/// sessions receive their share of the messages until they expire.
fn ids_left(scene: &mut Scene) -> Result<()> {
    scene.wait_for_unacked(0)?;
    let code = scene.members[0].milepost.terminate(SETTLE)?;
    ensure!(code == 0, "a drain ended with exit code {code}");
    sleep(Duration::from_secs(1));
    scene.set("MQTT__CONNECTIONS", "2");
    scene.restart_member(0)?;
    wait_until("only two sessions are left", SETTLE, || {
        let sessions = scene.control_broker("sessions").context("the broker does not answer")?;
        Ok(sessions.lines().filter(|line| line.starts_with("member-0")).count() == 2)
    })?;
    let window = scene.members[0].milepost.metric("mqtt_window")?;
    ensure!(
        window <= 2.0 * 32_000.0,
        "mqtt_window is {window}: it must not count visits to former sessions"
    );
    Ok(())
}
