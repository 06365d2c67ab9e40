//! Tests three faults at an unfortunate moment: the address of a host name changes at run time, a
//! process freezes during a write, and a node hangs when a drain connects to it.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use lab_harness::proxy::{Fault, Proxy};
use lab_stack::wait_until;

use crate::events::{Watcher, YARD, retained};
use crate::nodes::cluster;
use crate::secure::{ProxyAction, scripted_clickhouse};
use crate::world::{SOON, finish, publish_in_background, wait_for_metric, world};

/// Listens on 127.0.0.2:`port`, and forwards each connection to 127.0.0.1:`broker_port`.
fn forward_second_address(port: u16, broker_port: u16) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 2), port))?;
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, broker_port)) else {
                continue;
            };
            for (from, to) in [(&client, &server), (&server, &client)] {
                let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) else { break };
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
    Ok(())
}

/// The broker moves to another host, and its name resolves to the new address.
#[test]
fn milepost_follows_a_broker_to_its_new_address() -> Result<()> {
    let world = world("moving_name")?;
    let first = Proxy::start(world.broker.port)?;
    forward_second_address(first.port, world.broker.port)?;
    let address_file = world.folder.path().join("address");
    std::fs::write(&address_file, "127.0.0.1\n")?;
    let mut milepost = world
        .settings
        .clone()
        .with("MQTT__URL", format!("mqtt://moving.test:{}", first.port))
        .with_preloaded("tests/real/moving_name.c")?
        .with_variable("MOVING_NAME", address_file.display().to_string())
        .run()?;
    let fleet = publish_in_background(world.plan("moving", 500, 10));
    wait_for_metric(&milepost, "acks_total", 500.0)?;
    first.set(Fault::Refuse);
    // For a while, the host name has no address.
    std::fs::write(&address_file, "")?;
    std::thread::sleep(Duration::from_secs(3));
    let before = milepost.metric("acks_total")?;
    std::fs::write(&address_file, "127.0.0.2\n")?;
    wait_for_metric(&milepost, "acks_total", before + 500.0)?;
    let verdict = world.verify(&finish(fleet)?)?;
    assert!(verdict.is_exact(), "{verdict}");
    assert_eq!(milepost.terminate(SOON)?, 0);
    Ok(())
}

/// A process sends an insert, and freezes before the answer arrives. The engine commits the insert,
/// and a second process takes over before the first one continues.
#[test]
fn process_that_freezes_during_an_insert_repeats_no_event() -> Result<()> {
    let world = world("events_frozen")?;
    let yard = world.folder.path().join("yard.json");
    std::fs::write(&yard, YARD)?;
    let (code, printed) =
        world.settings.call(&["fences", "import", &yard.display().to_string()])?;
    ensure!(code == 0, "{printed}");
    let (arrived, frozen) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (arrived_clone, frozen_clone) = (Arc::clone(&arrived), Arc::clone(&frozen));
    let url = scripted_clickhouse(world.engine.server.port, move |statement| {
        let is_write = statement.contains("query=INSERT") && statement.contains("events");
        if is_write && !arrived_clone.swap(true, Ordering::SeqCst) {
            while !frozen_clone.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        ProxyAction::Pass
    })?;
    let next_seq = AtomicU32::new(0);
    // Two fixes at each place: the second fix confirms the crossing that the first fix shows.
    let drive = |lng_e7: i64| {
        let seq = next_seq.fetch_add(1, Ordering::SeqCst);
        world.query(&format!(
            "INSERT INTO {{db}}.positions (driver_id, ts, seq, lat_e7, lng_e7) \
             SELECT 'd1', now64(3) - INTERVAL 5 MINUTE + INTERVAL {} SECOND + number, {seq}, \
             520500000, {lng_e7} FROM numbers(2)",
            seq * 60
        ))
    };
    let wait_for_count =
        |expected: &str| world.wait_for("SELECT count() FROM {db}.events FINAL", expected, SOON);
    // `outside` is farther from the fence than events.fence_margin.
    let (outside, inside) = (131_010_000, 130_999_999);
    let settings = world.settings.clone().with("CLICKHOUSE__URL", url);
    let first = Watcher::start_watching(&settings, &world, "first")?;
    drive(outside)?;
    drive(inside)?;
    wait_until("the insert has arrived", SOON, || Ok(arrived.load(Ordering::SeqCst)))?;
    first.process.signal("STOP")?;
    frozen.store(true, Ordering::SeqCst);
    wait_for_count("1")?;

    let _second = Watcher::start_watching(&world.settings, &world, "second")?;
    drive(outside)?;
    wait_for_count("2")?;
    let retains = |event: &str| {
        let states = retained(world.broker.port, "fleet/events/d1/#")?;
        Ok(states.len() == 1 && states.values().all(|state| state["event"] == event))
    };
    wait_until("the broker retains the event `left`", SOON, || retains("left"))?;
    first.process.signal("CONT")?;
    drive(inside)?;
    wait_for_count("3")?;
    drive(outside)?;
    wait_for_count("4")?;
    // Both processes publish, and the newest state remains.
    world.wait_for("SELECT count() FROM {db}.events FINAL WHERE mqtt_at IS NULL", "0", SOON)?;
    wait_until("the broker retains the newest state", SOON, || retains("left"))?;
    // Wait, so that the first process could publish an older state by mistake.
    std::thread::sleep(Duration::from_secs(3));
    ensure!(retains("left")?, "an older state replaced the newest one");
    wait_for_count("4")
}

/// The lost member has sessions on a node that hangs: the node accepts TCP connections, but never
/// answers.
#[test]
fn drain_of_a_hung_node_goes_through_the_other_node() -> Result<()> {
    let world = cluster("drain_hung", "local")?;
    let member = |name: &str| {
        let settings = world.settings.clone().with("MQTT__SESSION_EXPIRY", "10m");
        settings.with("MQTT__CLIENT_ID", name)
    };
    let mut survivor = member("pod-0").run()?;
    let mut lost = member("pod-1").run()?;
    lost.process.kill()?;
    let fleet = publish_in_background(world.plan("drain_hung", 500, 6));
    let manifest = finish(fleet)?;
    world.broker.command("node 0 hang")?;
    let drain = ["drain", "--client-id", "pod-1", "--leave", "--within", "2m"];
    let (code, printed) = world.settings.call(&drain)?;
    ensure!(code == 0, "{code} {printed}");
    let sessions = world.broker.command("sessions")?;
    ensure!(!sessions.contains("pod-1"), "{sessions}");
    let verdict = world.verify(&manifest)?;
    assert!(verdict.is_exact(), "{verdict} {printed}");
    assert_eq!(survivor.terminate(SOON)?, 0);
    Ok(())
}
