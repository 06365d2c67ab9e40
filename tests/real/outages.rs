//! Tests each kind of outage once; the fault harness, `lab faults`, repeats them many times.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use anyhow::Result;
use lab_stack::{Broker, ClickHouse, free_port, unix_ms, wait_until};

use crate::secure::{ProxyAction, scripted_clickhouse};
use crate::world::{
    EXIT_INCOMPLETE, SOON, World, finish, publish, publish_in_background, settings, unmigrated,
    wait_for_metric, world,
};

/// Time for which `scripted_resolver.c` delays an answer.
const RESOLVER_HANG: Duration = Duration::from_secs(60);

#[test]
fn kill_9_under_load_loses_nothing() -> Result<()> {
    let world = world("kill9")?;
    let mut milepost = world.settings.run()?;
    let fleet = publish_in_background(world.plan("kill", 3_000, 5));
    for _ in 0..3 {
        wait_until("more than 100 messages are unacknowledged", SOON, || {
            Ok(milepost.metric("mqtt_unacked")? > 100.0)
        })?;
        milepost.process.kill()?;
        milepost = world.settings.run()?;
        wait_for_metric(&milepost, "batch_rows_count", 1.0)?;
    }
    let verdict = world.verify(&finish(fleet)?)?;
    assert!(verdict.is_exact(), "{verdict}");
    Ok(())
}

#[test]
fn sigterm_and_restart_under_load_lose_nothing() -> Result<()> {
    let world = world("sigterm")?;
    let mut milepost = world.settings.run()?;
    let fleet = publish_in_background(world.plan("term", 3_000, 5));
    for _ in 0..3 {
        wait_for_metric(&milepost, "batch_rows_count", 1.0)?;
        assert_eq!(milepost.terminate(SOON)?, 0);
        milepost = world.settings.run()?;
    }
    let verdict = world.verify(&finish(fleet)?)?;
    assert!(verdict.is_exact(), "{verdict}");
    assert_eq!(
        verdict.duplicates_raw, 0,
        "a shutdown acknowledges every received message, so the broker redelivers none"
    );
    Ok(())
}

#[test]
fn start_waits_for_servers_that_are_not_up_yet() -> Result<()> {
    let folder = lab_stack::folder()?;
    let (mqtt_port, clickhouse_port) = (free_port()?, free_port()?);
    let settings =
        settings(folder.path(), mqtt_port, &format!("http://127.0.0.1:{clickhouse_port}"));
    let mut milepost = settings.start()?;
    wait_until("/readyz and the log name ClickHouse", SOON, || {
        let unready =
            milepost.get("/readyz").is_err_and(|error| error.to_string().contains("clickhouse: "));
        Ok(unready && milepost.process.log()?.contains("waiting for ClickHouse"))
    })?;
    assert!(milepost.get("/livez").is_ok());
    assert_eq!(
        milepost.terminate(SOON)?,
        0,
        "milepost received no message, so it leaves none unstored"
    );
    Ok(())
}

#[test]
fn names_resolve_in_parallel_and_shutdown_ignores_a_hung_resolver() -> Result<()> {
    let folder = lab_stack::folder()?;
    let lookups = folder.path().join("lookups");
    let names = "mqtt://a.invalid,mqtt://b.invalid,mqtt://c.invalid";
    let settings =
        settings(folder.path(), free_port()?, &format!("http://127.0.0.1:{}", free_port()?))
            .with("MQTT__URL", names)
            .with_variable("RESOLVER_LOG", lookups.display().to_string())
            .with_preloaded("tests/real/scripted_resolver.c")?;
    let mut milepost = settings.start()?;
    let mut times_ms = Vec::new();
    wait_until("three names are looked up", SOON, || {
        milepost.process.ensure_alive()?;
        let lookups = std::fs::read_to_string(&lookups).unwrap_or_default();
        times_ms = lookups
            .lines()
            .filter_map(|line| line.split_once(' ')?.1.parse::<u64>().ok())
            .collect();
        Ok(times_ms.len() >= 3)
    })?;
    // If the lookups ran one after the other, they would start three seconds apart.
    assert!(
        times_ms.get(2).zip(times_ms.first()).is_some_and(|(third, first)| third - first < 2_500),
        "the names were looked up at {times_ms:?} ms"
    );
    assert_eq!(
        milepost.terminate(RESOLVER_HANG / 2)?,
        0,
        "the shutdown does not wait for the resolver"
    );
    Ok(())
}

#[test]
fn milepost_reconnects_after_a_broker_outage() -> Result<()> {
    let mut world = world("broker_away")?;
    let milepost = world.settings.run()?;
    world.publish(&[("drivers/d1/gps", br#"{"lat":1,"lng":2,"seq":1}"#)])?;
    wait_for_metric(&milepost, "acks_total", 1.0)?;
    world.broker.stop()?;
    wait_until("/readyz reports the lost session", SOON, || {
        Ok(milepost.get("/readyz").is_err_and(|error| error.to_string().contains("session 0")))
    })?;
    world.broker = world.broker.restart()?;
    wait_until("milepost is ready again", SOON, || Ok(milepost.get("/readyz").is_ok()))?;
    publish(world.broker.port, &[("drivers/d1/gps", br#"{"lat":1,"lng":2,"seq":2}"#)])?;
    wait_for_metric(&milepost, "acks_total", 2.0)?;
    assert_eq!(
        milepost.metric("mqtt_reconnects_total")?,
        4.0,
        "each of the four sessions reconnects once"
    );
    assert_eq!(
        milepost.metric("mqtt_sessions_lost_total")?,
        0.0,
        "the broker kept the sessions during its restart"
    );
    Ok(())
}

#[test]
fn shutdown_during_a_clickhouse_outage_loses_nothing() -> Result<()> {
    let folder = lab_stack::folder()?;
    let broker = Broker::start(folder.path())?;
    let mut server = ClickHouse::start(folder.path())?;
    let settings =
        settings(folder.path(), broker.port, &server.url()).with("SHUTDOWN__GRACE", "1s");
    settings.migrate()?;
    let mut milepost = settings.run()?;
    publish(broker.port, &[("drivers/d1/gps", br#"{"lat":1,"lng":2,"seq":1}"#)])?;
    wait_for_metric(&milepost, "acks_total", 1.0)?;

    server.kill()?;
    publish(broker.port, &[("drivers/d1/gps", br#"{"lat":1,"lng":2,"seq":2}"#)])?;
    wait_for_metric(&milepost, "insert_errors_total", 2.0)?;
    assert_eq!(
        milepost.metric("acks_total")?,
        1.0,
        "the second message is not durable, so it is not acknowledged"
    );
    wait_until("milepost is not ready", SOON, || Ok(milepost.get("/readyz").is_err()))?;
    assert_eq!(
        milepost.terminate(SOON)?,
        EXIT_INCOMPLETE,
        "the second message is left in the broker"
    );

    let server = server.restart()?;
    assert_eq!(
        server.query("SELECT groupArray(seq) FROM fleet.fixes")?.trim(),
        "[1]",
        "the acknowledged message is stored"
    );
    let milepost = settings.run()?;
    wait_for_metric(&milepost, "acks_total", 1.0)?;
    assert_eq!(server.query("SELECT count() FROM fleet.fixes")?.trim(), "2");
    Ok(())
}

#[test]
fn missing_table_stops_inserts_until_it_is_back() -> Result<()> {
    let world = world("renamed")?;
    let milepost = world.settings.run()?;
    world.query("RENAME TABLE {db}.positions TO {db}.elsewhere")?;
    world.publish(&[("drivers/d1/gps", br#"{"lat":1,"lng":2,"seq":1}"#)])?;
    wait_until("/readyz names the table", SOON, || {
        Ok(milepost.get("/readyz").is_err_and(|error| error.to_string().contains("positions")))
    })?;
    assert!(milepost.metric("insert_errors_total")? >= 1.0);
    world.query("RENAME TABLE {db}.elsewhere TO {db}.positions")?;
    wait_for_metric(&milepost, "acks_total", 1.0)?;
    world.wait_for("SELECT count() FROM {db}.fixes", "1", SOON)?;
    wait_until("milepost is ready again", SOON, || Ok(milepost.get("/readyz").is_ok()))
}

#[test]
fn nothing_is_inserted_or_acked_before_migrations_are_recorded() -> Result<()> {
    let world = unmigrated("late_migration")?;
    let milepost = world.settings.start()?;
    wait_until("/readyz names the command", SOON, || {
        Ok(milepost
            .get("/readyz")
            .is_err_and(|error| error.to_string().contains("milepost migrate")))
    })?;
    wait_until("milepost subscribes without tables, so that no session expires", SOON, || {
        Ok(milepost.metric("mqtt_connected")? == 4.0)
    })?;
    world.publish(&[("drivers/d1/gps", br#"{"lat":1,"lng":2,"seq":1}"#)])?;
    wait_for_metric(&milepost, "messages_received_total", 1.0)?;
    assert_eq!(milepost.metric("acks_total")?, 0.0);
    world.settings.migrate()?;
    wait_until("milepost is ready without a restart", SOON, || {
        Ok(milepost.get("/readyz").is_ok())
    })?;
    wait_for_metric(&milepost, "acks_total", 1.0)?;
    assert_eq!(
        world.query("SELECT count() FROM {db}.last_positions")?,
        "1",
        "the view must be filled too"
    );
    Ok(())
}

#[test]
fn remaining_member_receives_all_messages_once_the_other_leaves() -> Result<()> {
    let world = world("leave")?;
    let staying = world.settings.clone().with("MQTT__CLIENT_ID", "stays").run()?;
    let leaving =
        world.settings.clone().with("MQTT__CLIENT_ID", "leaves").with("SHUTDOWN__LEAVE", "true");
    let mut leaving = leaving.run()?;
    let fleet = publish_in_background(world.plan("leave", 2_000, 5));
    wait_for_metric(&leaving, "acks_total", 500.0)?;
    assert_eq!(leaving.terminate(SOON)?, 0);
    let log = leaving.process.log()?;
    assert!(log.contains("all positions are durable"), "{log}");
    let so_far = staying.metric("messages_received_total")?;
    wait_for_metric(&staying, "messages_received_total", so_far + 2_000.0)?;
    let verdict = world.verify(&finish(fleet)?)?;
    assert!(
        verdict.is_exact(),
        "the remaining member did not receive all later messages: {verdict}"
    );
    Ok(())
}

/// ClickHouse is unreachable at first. Then its clock is an hour ahead of this host's, and finally
/// both clocks agree.
#[test]
fn fix_from_the_future_is_deferred_until_the_clocks_agree() -> Result<()> {
    let world = world("clock_at_start")?;
    let phase = Arc::new(AtomicU8::new(0));
    let current_phase = Arc::clone(&phase);
    let url = scripted_clickhouse(world.engine.server.port, move |statement| {
        match (current_phase.load(Ordering::SeqCst), statement.contains("now64(3)")) {
            (0, _) => ProxyAction::Answer(503, "away".to_owned()),
            (1, false) => ProxyAction::NoAnswer,
            (1, true) => {
                ProxyAction::Replace("SELECT toUnixTimestamp64Milli(now64(3)) + 3600000".to_owned())
            }
            (_, _) => ProxyAction::Pass,
        }
    })?;
    let spool = world.folder.path().join("spool").display().to_string();
    let settings = world.settings.clone().with("CLICKHOUSE__URL", url).with("SPOOL__DIR", spool);
    let milepost = settings.with("MQTT__CONNECTIONS", "2").start()?;
    wait_until("milepost is subscribed", SOON, || {
        Ok(milepost.metric("mqtt_connected").unwrap_or(0.0) == 2.0)
    })?;
    let fix = |ts: i64, seq: u32| format!(r#"{{"lat":1,"lng":2,"ts":{ts},"seq":{seq}}}"#);
    let (good, ahead) = (fix(unix_ms(), 1), fix(unix_ms() + 3_600_000, 2));
    world.publish(&[("drivers/d1/gps", good.as_bytes())])?;
    wait_for_metric(&milepost, "acks_total", 1.0)?;
    world.publish(&[("drivers/d1/gps", ahead.as_bytes())])?;
    wait_for_metric(&milepost, "messages_deferred_total", 1.0)?;
    let wait_for_reason = |reason: &str| {
        wait_until(reason, SOON, || {
            Ok(milepost.get("/readyz").is_err_and(|error| error.to_string().contains(reason)))
        })
    };
    wait_for_reason("clock: this host's clock has not been compared")?;
    phase.store(1, Ordering::SeqCst);
    wait_for_reason("clock: ClickHouse's clock is 3600s ahead of this host's")?;
    assert_eq!(
        (milepost.metric("acks_total")?, milepost.metric("positions_received_total")?),
        (1.0, 1.0)
    );
    phase.store(2, Ordering::SeqCst);
    wait_for_metric(&milepost, "acks_total", 2.0)?;
    world.wait_for("SELECT groupArray(reason) FROM {rejects}", "['too_new']", SOON)?;
    wait_until("milepost is ready", SOON, || Ok(milepost.get("/readyz").is_ok()))
}

/// Starts a proxy with a switch. While the switch is on, the proxy refuses each statement that
/// contains `fragment`. Returns the proxy's URL and the switch.
fn start_refusing_proxy(
    world: &World,
    fragment: &'static str,
    status: u16,
    message: &'static str,
) -> Result<(String, Arc<AtomicBool>)> {
    let is_on = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&is_on);
    let url = scripted_clickhouse(world.engine.server.port, move |statement| {
        if is_on.load(Ordering::SeqCst) && statement.contains(fragment) {
            ProxyAction::Answer(status, message.to_owned())
        } else {
            ProxyAction::Pass
        }
    })?;
    Ok((url, switch))
}

/// The login is revoked while no insert is in flight, so milepost must detect the refusal with a
/// query.
#[test]
fn revoked_login_is_reported_and_messages_stay_with_the_broker() -> Result<()> {
    let world = world("revoked")?;
    let (url, is_revoked) = start_refusing_proxy(
        &world,
        "",
        403,
        "Code: 516. DB::Exception: milepost: Authentication failed.",
    )?;
    let spool = world.folder.path().join("spool").display().to_string();
    let settings = world.settings.clone().with("CLICKHOUSE__URL", url).with("SPOOL__DIR", spool);
    let settings = settings.with("SHUTDOWN__GRACE", "2s");
    let mut milepost = settings.run()?;
    is_revoked.store(true, Ordering::SeqCst);
    wait_until("/readyz names the refusal", SOON, || {
        Ok(milepost.get("/readyz").is_err_and(|error| error.to_string().contains("Code: 516")))
    })?;
    world.publish(&[("drivers/d1/gps", br#"{"lat":1,"lng":2,"seq":1}"#)])?;
    wait_for_metric(&milepost, "positions_in_flight", 1.0)?;
    // A shutdown usually spools the open batches. After a refused login it must not: the messages
    // stay with the broker.
    assert_eq!(milepost.terminate(SOON)?, EXIT_INCOMPLETE);
    let listed = settings.call(&["spool", "list"])?.1;
    assert!(listed.contains("0 batches"), "{listed}");
    is_revoked.store(false, Ordering::SeqCst);
    let milepost = settings.run()?;
    wait_for_metric(&milepost, "acks_total", 1.0)?;
    world.wait_for("SELECT count() FROM {db}.fixes", "1", SOON)
}

#[test]
fn inserts_stop_once_the_erased_list_is_too_old() -> Result<()> {
    let world = world("old_list")?;
    let (url, is_refused) = start_refusing_proxy(
        &world,
        ".erased FINAL",
        500,
        "Code: 241. DB::Exception: Memory limit exceeded.",
    )?;
    let spool = world.folder.path().join("spool").display().to_string();
    let milepost =
        world.settings.clone().with("CLICKHOUSE__URL", url).with("SPOOL__DIR", spool).run()?;
    is_refused.store(true, Ordering::SeqCst);
    world.publish(&[("drivers/d1/gps", br#"{"lat":1,"lng":2,"seq":1}"#)])?;
    world.wait_for("SELECT count() FROM {db}.fixes", "1", SOON)?;
    wait_until("/readyz names the cause", SOON, || {
        let cause = " s old, so nothing is inserted";
        Ok(milepost.get("/readyz").is_err_and(|error| error.to_string().contains(cause)))
    })?;
    world.publish(&[("drivers/d1/gps", br#"{"lat":1,"lng":2,"seq":2}"#)])?;
    wait_for_metric(&milepost, "positions_in_spool", 1.0)?;
    assert_eq!(world.query("SELECT count() FROM {db}.fixes")?, "1");
    is_refused.store(false, Ordering::SeqCst);
    world.wait_for("SELECT count() FROM {db}.fixes", "2", SOON)?;
    wait_until("milepost is ready again", SOON, || Ok(milepost.get("/readyz").is_ok()))
}
