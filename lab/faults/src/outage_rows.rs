//! Outages longer than the session expiry, and servers that lose their state.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use lab_harness::proxy::Fault;
use lab_harness::scripted_clickhouse::Behaviour;
use lab_stack::wait_until;

use crate::row::{Row, SETTLE, row};
use crate::rows::harm_next_inserts;
use crate::scene::{EXIT_INCOMPLETE, Scene};

/// Session expiry, shorter than [`OUTAGE`].
const EXPIRY: &str = "10s";
const OUTAGE: Duration = Duration::from_secs(30);

pub(crate) fn all() -> Vec<Row> {
    vec![
        row(
            "outage-kill",
            "ClickHouse away 30 s, kill -9 in it, a session that lasts 10 s",
            (1_000, 45),
            kill_in_outage,
        )
        .with("MQTT__SESSION_EXPIRY", EXPIRY),
        row(
            "outage-full",
            "ClickHouse away 30 s, a full buffer, a session that lasts 10 s",
            (1_500, 45),
            full_buffer,
        )
        .with("MQTT__SESSION_EXPIRY", EXPIRY)
        .with("MQTT__BUFFER_BYTES_MAX", "1048576")
        .on_strict_broker(""),
        row(
            "old-snapshot",
            "ClickHouse away, the broker killed and back from an old snapshot",
            (2_000, 6),
            old_snapshot,
        ),
        row(
            "session-emptied",
            "ClickHouse away, the broker empties the session and loses its CONNACK",
            (2_000, 6),
            session_emptied,
        )
        .on_strict_broker(""),
        row(
            "session-reborn",
            "ClickHouse away, the session lost twice, kill -9 when the old rows are stored",
            (10_000, 8),
            session_reborn,
        )
        .with("MQTT__CONNECTIONS", "1")
        .with("LAB__BATCH_BYTES_MAX", "1048576")
        .on_strict_broker(""),
        row(
            "leave-away",
            "SIGTERM to leave for good while the broker is away",
            (2_000, 25),
            leave_while_away,
        )
        .members(2)
        .with("SHUTDOWN__LEAVE", "true")
        .with("SHUTDOWN__GRACE", "6s")
        .on_strict_broker(""),
        row("answers-missing", "CONNACK and SUBACK late, then never", (2_000, 30), answers_missing)
            .with("LAB__CONNECT_TIMEOUT", "3s")
            .on_strict_broker(""),
        row("fsync-slow", "fsync takes 0.5 s, and every insert is reset", (3_000, 25), fsync_slow)
            .spool()
            .slow_disk(),
        row(
            "fsync-hung",
            "fsync hangs, probes answer, SIGTERM ends in time",
            (2_000, 20),
            fsync_hung,
        )
        .spool()
        .slow_disk()
        .with("SHUTDOWN__GRACE", "3s"),
        row(
            "tables-again",
            "view, state and ledger dropped, then migrated again",
            (3_000, 20),
            tables_again,
        ),
        row(
            "spools-merged",
            "the files of one spool put into another's folder",
            (3_000, 20),
            spools_merged,
        )
        .members(2)
        .spool(),
        row(
            "clock-40-days",
            "milepost's clock 40 days back, then right again",
            (2_000, 25),
            clock_40_days,
        )
        .clock(),
    ]
}

/// Kills the member early in the outage. The new process must keep the session alive.
fn kill_in_outage(scene: &mut Scene) -> Result<()> {
    scene.wait_for_unacked(0)?;
    scene.http.set(Fault::Refuse);
    sleep(Duration::from_secs(5));
    scene.kill_and_restart(0)?;
    sleep(OUTAGE);
    scene.http.set(Fault::None);
    Ok(())
}

/// Refuses inserts until the buffer is full, and then for longer than the session expiry.
fn full_buffer(scene: &mut Scene) -> Result<()> {
    scene.wait_for_unacked(0)?;
    scene.http.set(Fault::Refuse);
    wait_until(
        "the buffer is full",
        OUTAGE,
        || Ok(scene.metric("messages_deferred_total")? > 0.0),
    )?;
    sleep(OUTAGE);
    scene.http.set(Fault::None);
    Ok(())
}

/// Ends the fleet while ClickHouse refuses inserts, and waits until milepost holds all messages of
/// the fleet unacknowledged.
pub(crate) fn receive_all_unacked(scene: &mut Scene) -> Result<()> {
    let sent = scene.wait_until_sent()? as f64;
    wait_until("milepost has received every message", SETTLE, || {
        Ok(scene.metric("messages_received_total")? >= sent)
    })
}

/// Kills the broker and restores an older snapshot, which lacks the messages that milepost received
/// since.
fn old_snapshot(scene: &mut Scene) -> Result<()> {
    scene.wait_for_unacked(0)?;
    scene.http.set(Fault::Refuse);
    scene.snapshot_broker()?;
    receive_all_unacked(scene)?;
    scene.kill_broker()?;
    scene.restart_broker()?;
    sleep(Duration::from_secs(2));
    scene.http.set(Fault::None);
    Ok(())
}

/// Empties the session at the broker. The next CONNACK says "session present", for a session
/// without messages.
fn session_emptied(scene: &mut Scene) -> Result<()> {
    scene.wait_for_unacked(0)?;
    scene.http.set(Fault::Refuse);
    receive_all_unacked(scene)?;
    scene.control_broker("next 4 connack lose for member")?;
    scene.mqtt.set(Fault::Cut);
    sleep(Duration::from_secs(3));
    scene.http.set(Fault::None);
    Ok(())
}

/// Deletes the session at the broker while milepost holds all its messages. Returns the number of
/// positions that milepost holds.
fn lose_session(scene: &Scene) -> Result<f64> {
    scene.pause_fleet(true)?;
    let (mut queued, mut unacked) = (u64::MAX, u64::MAX);
    wait_until("milepost has received every message", SETTLE, || {
        sleep(Duration::from_millis(300)); // messages that the fleet has already generated
        let sessions = scene.control_broker("sessions")?;
        let line = sessions
            .lines()
            .find(|line| line.starts_with("member"))
            .context("the broker has no session of the member")?;
        let number = |name: &str| -> Result<u64> {
            let word = line
                .split(' ')
                .find_map(|word| word.strip_prefix(name))
                .context(name.to_owned())?;
            Ok(word.parse()?)
        };
        (queued, unacked) = (number("queued=")? + number("mailbox=")?, number("unacked=")?);
        Ok(queued == 0 && scene.metric("mqtt_unacked")? >= unacked as f64)
    })
    .with_context(|| format!("{queued} queued, {unacked} unacknowledged"))?;
    let positions = scene.metric("positions_received_total")?;
    let reconnects = scene.metric("mqtt_reconnects_total")?;
    scene.control_broker("kill member")?;
    wait_until("milepost is back", SETTLE, || {
        Ok(scene.metric("mqtt_reconnects_total")? > reconnects
            && scene.metric("mqtt_connected")? == 1.0)
    })?;
    scene.pause_fleet(false)?;
    Ok(positions)
}

/// Replaces the session while milepost holds its messages. The new session starts its packet ids at
/// 1 again, so they equal the packet ids of the held messages.
fn session_reborn(scene: &mut Scene) -> Result<()> {
    scene.wait_for_unacked(0)?;
    scene.http.set(Fault::Refuse);
    lose_session(scene)?;
    sleep(Duration::from_secs(2));
    let old_positions = lose_session(scene)?;
    sleep(Duration::from_secs(2));
    scene.http.set(Fault::Delay(Duration::from_millis(300)));
    wait_until("the old rows are stored", SETTLE, || {
        Ok(scene.metric("positions_inserted_total")? >= old_positions)
    })?;
    scene.kill_and_restart(0)?;
    scene.http.set(Fault::None);
    Ok(())
}

/// Ends a member while the broker is unreachable. A member that cannot unsubscribe reports that by
/// its exit code. A member that can unsubscribe in time leaves no subscription behind.
fn leave_while_away(scene: &mut Scene) -> Result<()> {
    scene.wait_for_unacked(1)?;
    scene.mqtt.set(Fault::Refuse);
    let code = scene.members[1].milepost.terminate(SETTLE)?;
    ensure!(
        code == EXIT_INCOMPLETE,
        "the member could not unsubscribe, but ended with exit code {code}"
    );
    scene.mqtt.set(Fault::None);
    scene.restart_member(1)?;
    scene.wait_until_recovered(SETTLE)?;

    scene.wait_for_unacked(1)?;
    scene.mqtt.set(Fault::Refuse);
    scene.members[1].milepost.process.signal("TERM")?;
    sleep(Duration::from_secs(3));
    scene.mqtt.set(Fault::None);
    let mut leaving = scene.members.remove(1);
    let code = leaving.milepost.process.wait(SETTLE)?.code();
    ensure!(code == Some(0), "the leaving member ended with exit code {code:?}");
    let sessions = scene.control_broker("sessions")?;
    let is_subscribed =
        |line: &str| line.starts_with(&leaving.client_id) && line.contains("$share");
    ensure!(
        !sessions.lines().any(is_subscribed),
        "the member left a subscription behind:\n{sessions}"
    );
    Ok(())
}

/// Delays or withholds the broker's answers to CONNECT and SUBSCRIBE.
fn answers_missing(scene: &mut Scene) -> Result<()> {
    let commands = [
        "next 2 connack late 2s",
        "next 2 suback late 2s",
        "next 4 connack never",
        "next 4 suback never",
    ];
    for command in commands {
        scene.wait_for_unacked(0)?;
        scene.control_broker(&format!("{command} for member"))?;
        scene.mqtt.set(Fault::Cut);
        scene.wait_until_recovered(SETTLE)?;
    }
    Ok(())
}

/// Resets inserts while fsync is slow.
fn fsync_slow(scene: &mut Scene) -> Result<()> {
    scene.set_fsync_delay(Duration::from_millis(500))?;
    for _ in 0..8 {
        harm_next_inserts(scene, 2, Behaviour::ResetInBody { after_bytes: 2_000 })?;
    }
    scene.wait_until_recovered(SETTLE)?;
    scene.set_fsync_delay(Duration::ZERO)
}

/// Hangs fsync while ClickHouse refuses. Probes must answer, and SIGTERM must end milepost in time.
fn fsync_hung(scene: &mut Scene) -> Result<()> {
    scene.wait_for_unacked(0)?;
    scene.set_fsync_delay(Duration::from_secs(3_600))?;
    scene.http.set(Fault::Refuse);
    sleep(Duration::from_secs(5));
    for path in ["/livez", "/metrics"] {
        let began = Instant::now();
        scene.members[0].milepost.get(path)?;
        let took = began.elapsed();
        ensure!(took < Duration::from_secs(1), "{path} took {took:?} while the disk hung");
    }
    let began = Instant::now();
    let code = scene.members[0].milepost.terminate(SETTLE)?;
    let took = began.elapsed();
    ensure!(took < Duration::from_secs(6), "shutdown with a grace of 3 s took {took:?}");
    ensure!(code == EXIT_INCOMPLETE, "milepost kept messages, but ended with exit code {code}");
    scene.set_fsync_delay(Duration::ZERO)?;
    scene.restart_member(0)?;
    scene.http.set(Fault::None);
    Ok(())
}

/// Drops the view and creates it again while rows arrive. Rows that arrive in between never pass
/// through the view. If their drivers send nothing more, no later row fills the gap. So `migrate`
/// must fill the table of the view that it creates.
fn tables_again(scene: &mut Scene) -> Result<()> {
    scene.wait_for_unacked(0)?;
    drop_and_migrate(scene)?;
    scene.wait_until_recovered(SETTLE)?;
    scene.wait_until_sent()?;
    wait_until("everything is stored", SETTLE, || Ok(scene.metric("mqtt_unacked")? == 0.0))?;
    drop_and_migrate(scene)
}

fn drop_and_migrate(scene: &Scene) -> Result<()> {
    for table in ["last_positions_mv", "last_positions_state", "schema_migrations"] {
        scene.engine()?.query(&format!("DROP TABLE fleet.{table} SYNC"))?;
    }
    sleep(Duration::from_secs(2));
    scene.settings.migrate()
}

/// Moves the spool files of one member into the spool of the other, while both are down.
fn spools_merged(scene: &mut Scene) -> Result<()> {
    scene.http.set(Fault::Refuse);
    wait_until("both members have batches in their spools", SETTLE, || {
        let batches = |n: usize| scene.members[n].milepost.metric("spool_batches");
        Ok(batches(0)? >= 3.0 && batches(1)? >= 3.0)
    })?;
    for member in &mut scene.members {
        member.milepost.process.kill()?;
    }
    let (from, to) = (scene.spool_dir("member-1"), scene.spool_dir("member-0"));
    for file in std::fs::read_dir(from)? {
        let file = file?;
        if file.file_name() == "lock" {
            continue;
        }
        let target = to.join(file.file_name());
        ensure!(!target.exists(), "two spools have a file called {}", target.display());
        std::fs::rename(file.path(), target)?;
    }
    scene.restart_member(0)?;
    scene.restart_member(1)?;
    sleep(Duration::from_secs(2));
    scene.http.set(Fault::None);
    wait_until("the spools are empty", 2 * SETTLE, || {
        let batches = |n: usize| scene.members[n].milepost.metric("spool_batches").unwrap_or(1.0);
        Ok(batches(0) == 0.0 && batches(1) == 0.0)
    })
}

/// Sets the clock 40 days back. A milepost that trusted this clock would reject valid fixes because
/// they are in the future, and store other fixes with a wrong date.
fn clock_40_days(scene: &mut Scene) -> Result<()> {
    scene.wait_for_unacked(0)?;
    scene.set_clock(-40 * 86_400)?;
    wait_until("/readyz reports the wrong clock", SETTLE, || {
        Ok(scene.members[0]
            .milepost
            .get("/readyz")
            .is_err_and(|why| why.to_string().contains("clock")))
    })?;
    sleep(Duration::from_secs(5));
    scene.set_clock(0)?;
    scene.wait_until_recovered(SETTLE)?;
    let rejects = scene.engine()?.query("SELECT sum(count) FROM fleet.rejects")?;
    ensure!(rejects.trim() == "0", "{} valid fixes were rejected", rejects.trim());
    Ok(())
}
