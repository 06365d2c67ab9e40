//! Rows with one or two members on Mosquitto. Each fault is one function. A function returns when
//! its fault has ended. The conditions that must hold afterwards are the same for every fault.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use lab_harness::proxy::Fault;
use lab_harness::scripted_clickhouse::Behaviour;
use lab_stack::wait_until;

use crate::row::{Row, SETTLE, row};
use crate::scene::{PASSWORD, Scene};

/// Returns the rows on Mosquitto, and the rows on a strict broker with a window of 32. Mosquitto
/// exceeds its window once all 65,535 packet ids are in use. So in the rows on Mosquitto, fewer
/// than 65,535 messages arrive during each outage.
pub(crate) fn all() -> Vec<Row> {
    vec![
        row("kill", "kill -9 milepost mid-batch, at 20 random moments", (2_500, 45), |scene| {
            kill_times(scene, 20)
        }),
        row("kill-once", "kill -9 milepost mid-batch, at 3 random moments", (2_500, 8), |scene| {
            kill_times(scene, 3)
        })
        .only_quick(),
        row(
            "kill-unsaved",
            "kill -9 milepost while ClickHouse refuses, three times",
            (3_000, 12),
            kill_unsaved,
        )
        .quick(),
        row(
            "kill-one-of-two",
            "two members; kill -9 one, restart it before its session ends",
            (3_000, 20),
            kill_one_of_two,
        )
        .members(2),
        row(
            "scale",
            "scale 1 → 3 → 1 under load, leaving for good on the way down",
            (3_000, 25),
            scale,
        )
        .with("SHUTDOWN__LEAVE", "true"),
        row("restart", "SIGTERM and restart of the only member, five times", (3_000, 20), restart),
        row(
            "clickhouse-killed",
            "ClickHouse killed, and away 20 s",
            (2_000, 40),
            clickhouse_killed,
        ),
        row("answer-lost", "insert committed, its answer lost", (4_000, 12), |scene| {
            harm_inserts(scene, 4, Behaviour::SwallowAnswer)
        })
        .quick(),
        row("answer-late", "answer later than the timeout", (3_000, 25), answer_late)
            .with("LAB__INSERT_TIMEOUT", "1s"),
        row("http-500", "HTTP 500 instead of an answer", (4_000, 15), |scene| {
            harm_inserts(scene, 6, Behaviour::ProxyError { status: 500 })
        }),
        row(
            "reset-mid-body",
            "connection reset in the middle of an insert",
            (4_000, 15),
            |scene| harm_inserts(scene, 4, Behaviour::ResetInBody { after_bytes: 5_000 }),
        ),
        row("clickhouse-slow", "ClickHouse takes 2 s an insert", (5_000, 25), clickhouse_slow)
            .with("LAB__INSERT_TIMEOUT", "30s"),
        row("broker-restarted", "broker restarted, persistence on", (3_000, 20), broker_restarted)
            .broker_forgets(),
        row("broker-away", "broker away 30 s", (1_500, 50), broker_away).broker_forgets(),
        row("cut", "connection to the broker cut, five times", (4_000, 20), cut).quick(),
        row(
            "cut-then-kill",
            "connection cut, then kill -9 as soon as it is back, five times",
            (4_000, 15),
            cut_then_kill,
        )
        .quick(),
        row("hung", "connection to the broker hangs both ways for 12 s", (2_500, 30), |scene| {
            break_connection(scene, Fault::HangBoth, false)
        }),
        row("half-open", "bytes to the broker vanish for 12 s", (2_500, 30), |scene| {
            break_connection(scene, Fault::HalfOpen, true)
        }),
        row(
            "window-announced",
            "broker's window of 32, announced",
            (SMALL_WINDOW_RATE, 8),
            small_window,
        )
        .with("MQTT__CONNECTIONS", "1")
        .on_strict_broker("--max-inflight 32"),
        row(
            "window-unannounced",
            "broker's window of 32, not announced",
            (SMALL_WINDOW_RATE, 8),
            small_window,
        )
        .with("MQTT__CONNECTIONS", "1")
        .on_strict_broker("--max-inflight 32 --announce false"),
        row("table-renamed", "a table renamed away, then back", (3_000, 20), table_renamed).quick(),
        row(
            "wrong-password",
            "a wrong ClickHouse password, then the right one",
            (3_000, 20),
            wrong_password,
        )
        .with_password(),
    ]
}

/// Kills a member repeatedly. Inserts take half a second, so a kill hits rows in every state: in
/// the open batch, in flight, and committed but not acknowledged.
fn kill_times(scene: &mut Scene, times: u32) -> Result<()> {
    scene.http.set(Fault::Delay(Duration::from_millis(250)));
    for time in 1..=times {
        scene.wait_for_unacked(0)?;
        scene.kill_and_restart(0)?;
        if time < times {
            scene.wait_until_recovered(SETTLE)?;
        }
    }
    scene.http.set(Fault::None);
    Ok(())
}

/// Kills a member while ClickHouse refuses inserts. The broker must keep the messages that milepost
/// could not store.
fn kill_unsaved(scene: &mut Scene) -> Result<()> {
    for time in 1..=3 {
        scene.http.set(Fault::Refuse);
        sleep(Duration::from_millis(1_500)); // longer than a batch may stay open
        scene.wait_for_unacked(0)?;
        scene.kill_and_restart(0)?;
        scene.http.set(Fault::None);
        if time < 3 {
            scene.wait_until_recovered(SETTLE)?;
        }
    }
    Ok(())
}

/// Kills one of two members, and restarts it before its session expires.
fn kill_one_of_two(scene: &mut Scene) -> Result<()> {
    for _ in 0..3 {
        scene.wait_for_unacked(0)?;
        scene.members[0].milepost.process.kill()?;
        // The other member continues, and the broker keeps the session of the killed member.
        sleep(Duration::from_secs(2));
        scene.restart_member(0)?;
        scene.wait_until_recovered(SETTLE)?;
    }
    Ok(())
}

/// Adds two members, which later leave for good.
fn scale(scene: &mut Scene) -> Result<()> {
    scene.add_member("member-1")?;
    scene.add_member("member-2")?;
    sleep(Duration::from_secs(4));
    scene.wait_for_unacked(1)?;
    for _ in 0..2 {
        let mut leaving = scene.members.pop().context("no member is left")?;
        let code = leaving.milepost.terminate(SETTLE)?;
        ensure!(code == 0, "{} left with exit code {code}", leaving.client_id);
    }
    Ok(())
}

fn restart(scene: &mut Scene) -> Result<()> {
    for time in 1..=5 {
        scene.wait_for_unacked(0)?;
        let code = scene.members[0].milepost.terminate(SETTLE)?;
        ensure!(code == 0, "a drain ended with exit code {code}");
        scene.restart_member(0)?;
        if time < 5 {
            scene.wait_until_recovered(SETTLE)?;
        }
    }
    Ok(())
}

fn clickhouse_killed(scene: &mut Scene) -> Result<()> {
    scene.wait_for_unacked(0)?;
    scene.kill_engine()?;
    sleep(Duration::from_secs(20));
    scene.restart_engine()
}

/// Holds ClickHouse's answers back for longer than the insert timeout. milepost must not count rows
/// as inserted before it has the answer.
fn answer_late(scene: &mut Scene) -> Result<()> {
    scene.wait_for_unacked(0)?;
    let before = scene.metric("positions_inserted_total")?;
    scene.http.set(Fault::HangDown);
    sleep(Duration::from_secs(5));
    let reported = scene.metric("positions_inserted_total")?;
    let stored: f64 =
        scene.engine()?.query("SELECT count() FROM fleet.positions")?.trim().parse()?;
    scene.http.set(Fault::None);
    ensure!(
        stored > reported && reported - before <= 3.0 * scene.rate(),
        "milepost reported {reported} inserted rows, and {stored} are stored"
    );
    Ok(())
}

/// Waits for unacknowledged messages, then calls [`harm_next_inserts`].
fn harm_inserts(scene: &mut Scene, count: u32, behaviour: Behaviour) -> Result<()> {
    scene.wait_for_unacked(0)?;
    harm_next_inserts(scene, count, behaviour)
}

/// Sets the behaviour for the next `count` inserts, and waits until they have arrived.
pub(crate) fn harm_next_inserts(scene: &Scene, count: u32, behaviour: Behaviour) -> Result<()> {
    scene.script.set_for(count, behaviour);
    wait_until("every planned fault has hit an insert", SETTLE, || Ok(scene.script.is_honest()))
}

fn clickhouse_slow(scene: &mut Scene) -> Result<()> {
    scene.wait_for_unacked(0)?;
    scene.http.set(Fault::Delay(Duration::from_secs(1))); // each way
    sleep(Duration::from_secs(12));
    let reconnects = scene.members[0].milepost.metric("mqtt_reconnects_total")?;
    scene.http.set(Fault::None);
    ensure!(reconnects == 0.0, "a slow ClickHouse caused {reconnects} reconnects to the broker");
    Ok(())
}

fn broker_restarted(scene: &mut Scene) -> Result<()> {
    scene.wait_for_unacked(0)?;
    scene.stop_broker()?;
    scene.restart_broker()
}

fn broker_away(scene: &mut Scene) -> Result<()> {
    scene.wait_for_unacked(0)?;
    scene.stop_broker()?;
    sleep(Duration::from_secs(30));
    scene.restart_broker()
}

fn cut(scene: &mut Scene) -> Result<()> {
    for time in 1..=5 {
        scene.wait_for_unacked(0)?;
        let before = scene.metric("mqtt_reconnects_total")?;
        scene.mqtt.set(Fault::Cut);
        wait_until("milepost is connected again", SETTLE, || {
            Ok(scene.metric("mqtt_reconnects_total")? > before)
        })?;
        if time < 5 {
            scene.wait_until_recovered(SETTLE)?;
        }
        if time == 4 {
            // After the third short connection in a row, the backoff takes seconds, and `/readyz`
            // returns 503 for ten more seconds. The load of the machine decides which cut is the
            // third of a series. The recovery after the last cut is judged, so the last cut must
            // not be the third of a series.
            sleep(GOOD_CONNECTION);
        }
    }
    Ok(())
}

/// Cuts the connection, and kills the member once it is connected again. If milepost sent an
/// acknowledgement of the old connection on the new connection, the broker would settle another
/// message with the same packet id. The killed process could no longer insert that message.
fn cut_then_kill(scene: &mut Scene) -> Result<()> {
    for time in 1..=5 {
        scene.wait_for_unacked(0)?;
        scene.mqtt.set(Fault::Cut);
        wait_until("milepost is connected again", SETTLE, || {
            Ok(scene.members[0].milepost.metric("mqtt_reconnects_total")? > 0.0)
        })?;
        scene.kill_and_restart(0)?;
        if time < 5 {
            scene.wait_until_recovered(SETTLE)?;
        }
    }
    Ok(())
}

/// Breaks the connection to the broker. `still_receives`: messages from the broker must still
/// arrive during the fault.
fn break_connection(scene: &mut Scene, fault: Fault, still_receives: bool) -> Result<()> {
    scene.wait_for_unacked(0)?;
    let (received, reconnects) =
        (scene.metric("messages_received_total")?, scene.metric("mqtt_reconnects_total")?);
    scene.mqtt.set(fault);
    sleep(Duration::from_secs(3));
    let arrived = scene.metric("messages_received_total")? - received;
    sleep(Duration::from_secs(9));
    scene.mqtt.set(Fault::None);
    ensure!(
        (arrived > scene.rate()) == still_receives,
        "{arrived} messages arrived in 3 s of the fault"
    );
    wait_until("milepost is connected again after the fault", SETTLE, || {
        Ok(scene.metric("mqtt_reconnects_total")? > reconnects)
    })
}

/// Lifetime above which a connection counts as good (crates/core/src/session/reconnect.rs).
const GOOD_CONNECTION: Duration = Duration::from_secs(10);
/// Messages a second; higher than the rate that a window of 32 allows on most machines.
const SMALL_WINDOW_RATE: u32 = 3_000;

/// Checks that milepost receives about 32 messages per insert with a window of 32. A consumer that
/// keeps each batch open for a second would receive only 32 messages a second.
fn small_window(scene: &mut Scene) -> Result<()> {
    /// Lowest accepted share of the possible rate.
    const MIN_SHARE: f64 = 0.8;
    sleep(Duration::from_secs(3)); // time to learn the window
    let metric = |name| scene.metric(name);
    let acks_before = metric("acks_total")?;
    let insert_s_before = metric("insert_duration_seconds_sum")?;
    let inserts_before = metric("insert_duration_seconds_count")?;
    let seconds = 6.0;
    sleep(Duration::from_secs_f64(seconds));
    let rate = (metric("acks_total")? - acks_before) / seconds;
    let insert_s = (metric("insert_duration_seconds_sum")? - insert_s_before)
        / (metric("insert_duration_seconds_count")? - inserts_before);
    let possible = (32.0 / insert_s).min(SMALL_WINDOW_RATE.into());
    let share = rate * insert_s / 32.0;
    eprintln!(
        "    {rate:.0} messages/s of {SMALL_WINDOW_RATE}, {share:.2} of 32 per insert of {:.1} ms",
        insert_s * 1e3
    );
    ensure!(
        rate >= MIN_SHARE * possible,
        "{rate:.0} messages/s is less than {MIN_SHARE} × {possible:.0}"
    );
    Ok(())
}

/// Renames the table `positions`, which `/readyz` must report, and renames it back.
fn table_renamed(scene: &mut Scene) -> Result<()> {
    scene.wait_for_unacked(0)?;
    scene.engine()?.query("RENAME TABLE fleet.positions TO fleet.elsewhere")?;
    wait_until("/readyz names the table", SETTLE, || {
        Ok(scene.members[0]
            .milepost
            .get("/readyz")
            .is_err_and(|why| why.to_string().contains("positions")))
    })?;
    sleep(Duration::from_secs(3));
    scene.engine()?.query("RENAME TABLE fleet.elsewhere TO fleet.positions")?;
    Ok(())
}

/// Changes the password. The login is refused after a restart of milepost, until the password file
/// is corrected.
fn wrong_password(scene: &mut Scene) -> Result<()> {
    scene.wait_for_unacked(0)?;
    std::fs::write(&scene.password_file, "a wrong one")?;
    scene.kill_and_restart(0)?;
    wait_until("/readyz reports the refused login", SETTLE, || {
        Ok(scene.members[0]
            .milepost
            .get("/readyz")
            .is_err_and(|why| why.to_string().contains("516")))
    })?;
    sleep(Duration::from_secs(2));
    std::fs::write(&scene.password_file, PASSWORD)?;
    Ok(())
}
