//! Tests `milepost drain`, which consumes the sessions of a member that is gone for good.

use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result};
use lab_stack::{free_port, wait_until};
use rumqttc::v5::{Client, MqttOptions};

use crate::world::{EXIT_INCOMPLETE, SOON, finish, publish_in_background, wait_for_metric, world};

#[test]
fn drain_takes_the_messages_of_a_lost_member_and_ends_its_sessions() -> Result<()> {
    let world = world("drain")?;
    let ports = [free_port()?, free_port()?];
    let settings = world.settings.clone().with("MQTT__SESSION_EXPIRY", "10m");
    let start = |number: usize| {
        settings.clone().with("MQTT__CLIENT_ID", format!("pod-{number}")).start_at(ports[number])
    };
    let (mut survivor, mut lost) = (start(0)?, start(1)?);
    survivor.wait_until_ready()?;
    lost.wait_until_ready()?;

    let fleet = publish_in_background(world.plan("drained", 1_000, 20));
    wait_for_metric(&lost, "acks_total", 1.0)?;
    let drain = |settings: &lab_stack::Settings, flags: &[&str]| {
        settings.call(&[&["drain", "--client-id", "pod-1"], flags].concat())
    };
    let with_peers = settings
        .clone()
        .with("SHUTDOWN__PEERS", ports.map(|port| format!("127.0.0.1:{port}")).join(","));
    let (code, printed) = drain(&with_peers, &[])?;
    assert_eq!(code, 1, "{printed}");
    assert!(printed.contains("pod-1 is running at 127.0.0.1:"), "{printed}");

    let sessions = lost.metric("mqtt_connected")?;
    lost.process.kill()?;
    let accepted = || fleet.progress.acked.load(Ordering::Relaxed);
    let accepted_before = accepted();
    let (code, printed) = drain(&settings, &[])?;
    assert_eq!(code, 1, "{printed}");
    assert!(printed.contains("shutdown.peers is not set"), "{printed}");

    // The lost member's sessions are still subscribed, so the broker queues their share of the
    // messages. Wait until the broker has acknowledged enough messages to the fleet. The survivor's
    // acknowledgements do not show how many messages were sent since the kill, because the survivor
    // acknowledges whole batches, with earlier messages.
    wait_until("the broker has accepted enough", SOON, || {
        Ok(accepted() >= accepted_before + 2_000)
    })?;
    let (code, printed) = drain(&with_peers, &[])?;
    assert_eq!(code, 0, "{printed}");
    let number_after = |label: &str| -> f64 {
        let value = printed.lines().find_map(|line| line.strip_prefix(label)).expect("a line");
        value.trim().parse().expect("a number")
    };
    assert!(number_after("messages taken") >= 500.0, "{printed}");
    assert!(number_after("sessions found") >= sessions, "{sessions}: {printed}");

    // The sessions are empty, and queue no further messages.
    let manifest = finish(fleet)?;
    let verdict = world.verify(&manifest)?;
    assert!(verdict.is_exact(), "{verdict}");
    let (code, printed) = drain(&with_peers, &[])?;
    assert_eq!(code, 0, "{printed}");
    assert!(printed.contains("there is no such session"), "{printed}");
    assert_eq!(survivor.terminate(SOON)?, 0);
    Ok(())
}

/// An interrupted drain can leave gaps in the session numbers.
#[test]
fn drain_finds_a_session_after_a_gap() -> Result<()> {
    let world = world("drain_gap")?;
    let settings = world.settings.clone().with("MQTT__SESSION_EXPIRY", "10m");
    let member = settings.clone().with("MQTT__CLIENT_ID", "pod-1").with("MQTT__CONNECTIONS", "6");
    let mut lost = member.start()?;
    lost.wait_until_ready()?;
    lost.process.kill()?;
    // End all sessions but number 5. A member searches for former sessions by connecting to them.
    // Each connection creates its session, so a kill during the search can leave sessions 6 to 8.
    for session in (0..5).chain(6..9) {
        end_session(world.broker.port, &format!("pod-1-{session}"))?;
    }
    let (code, printed) = settings.call(&["drain", "--client-id", "pod-1", "--leave"])?;
    assert_eq!(code, 0, "{printed}");
    let found =
        printed.lines().find_map(|line| line.strip_prefix("sessions found")).expect("a line");
    assert_eq!(found.trim(), "1", "{printed}");
    Ok(())
}

/// Ends a session: connects under its client id with a clean start and without a session expiry.
fn end_session(port: u16, client_id: &str) -> Result<()> {
    let mut options = MqttOptions::new(client_id, "127.0.0.1", port);
    options.set_clean_start(true);
    let (_client, mut connection) = Client::new(options, 1);
    connection.iter().next().context("no CONNACK")??;
    Ok(())
}

/// `shutdown.peers` is not set, and the group has only this member. On the member's own host,
/// `drain` finds the running member by its HTTP port.
#[test]
fn drain_refuses_to_drain_a_live_member() -> Result<()> {
    let world = world("drain_living")?;
    let port = free_port()?;
    let settings =
        world.settings.clone().with("MQTT__CLIENT_ID", "pod-1").with("MQTT__SESSION_EXPIRY", "3s");
    let mut running = settings.start_at(port)?;
    running.wait_until_ready()?;
    let drain = |settings: &lab_stack::Settings, flags: &[&str]| {
        settings.call(&[&["drain", "--client-id", "pod-1"], flags].concat())
    };
    let on_this_host = settings.clone().with("HTTP__LISTEN", format!("0.0.0.0:{port}"));
    for flags in [&["--leave"][..], &[]] {
        let (code, printed) = drain(&on_this_host, flags)?;
        assert_eq!(code, 1, "{printed}");
        assert!(printed.contains(&format!("pod-1 is running at 127.0.0.1:{port}")), "{printed}");
    }
    assert_eq!(running.metric("mqtt_reconnects_total")?, 0.0, "its sessions were not taken over");

    // On another host, `drain` does not find the member's HTTP port. It takes the sessions over,
    // and detects the running member only when that member takes its sessions back.
    let elsewhere = settings.with("HTTP__LISTEN", format!("127.0.0.1:{}", free_port()?));
    let (code, printed) = drain(&elsewhere, &["--leave"])?;
    assert_eq!(code, EXIT_INCOMPLETE, "{printed}");
    assert!(printed.contains("another client took"), "{printed}");
    running.wait_until_ready()?;
    let manifest = finish(publish_in_background(world.plan("living", 100, 4)))?;
    let verdict = world.verify(&manifest)?;
    assert!(verdict.is_exact(), "{verdict}");
    assert_eq!(running.terminate(SOON)?, 0);
    Ok(())
}
