//! Tests members that get SIGTERM and ask their peers whether one stays. With the default,
//! `shutdown.leave = "auto"`, a member unsubscribes only if a peer with a lower name stays.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::thread;

use anyhow::Result;
use lab_stack::{free_port, wait_until};

use crate::world::{EXIT_INCOMPLETE, SOON, wait_for_metric, world};

#[test]
fn member_leaves_only_if_a_lower_one_is_known_to_stay() -> Result<()> {
    let world = world("peers")?;
    let (first, second) = (free_port()?, free_port()?);
    let closed = free_port()?;
    let hung = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?; // accepts TCP, never answers
    // ClickHouse answers at this port.
    let not_a_member = world.engine.server.port;
    let peers = [closed, hung.local_addr()?.port(), not_a_member, first, second]
        .map(|port| format!("127.0.0.1:{port}"));
    let settings = world.settings.clone().with("SHUTDOWN__PEERS", peers.join(","));
    // A member asks its peers for at most a third of this time.
    let settings = settings.with("SHUTDOWN__GRACE", "30s");
    let mut lower = settings.clone().with("MQTT__CLIENT_ID", "pod-9").start_at(first)?;
    let mut higher = settings.clone().with("MQTT__CLIENT_ID", "pod-10").start_at(second)?;
    lower.wait_until_ready()?;
    higher.wait_until_ready()?;
    assert_eq!(
        lower.get("/member")?,
        r#"{"erased":"00000000000000000000000000000000","group":"milepost","leaving":false,"name":"pod-9","spool_files":0,"subscribed":true,"topics":["drivers/+/gps"]}"#
            .to_owned()
            + "\n"
    );

    assert_eq!(higher.terminate(SOON)?, 0);
    let log = higher.process.log()?;
    assert!(log.contains("unsubscribing: pod-9 at 127.0.0.1:"), "{log}");

    lower.process.signal("TERM")?;
    wait_until("/readyz says that the member is leaving", SOON, || {
        Ok(lower.get("/readyz").is_err_and(|error| error.to_string().contains("leaving")))
    })?;
    assert!(
        lower.get("/member")?.contains(r#""leaving":true"#),
        "peers must see that the member leaves"
    );
    assert_eq!(
        lower.process.wait(SOON)?.code(),
        Some(EXIT_INCOMPLETE),
        "75: the session is kept, and may never be resumed"
    );
    // A hung peer delays the shutdown at most by the timeout of the request.
    let log = lower.process.log()?;
    let keeping = log.lines().find(|line| line.contains("keeping the session")).unwrap_or_default();
    let hint = "milepost drain --client-id pod-9";
    for words in [
        "WARN",
        "cannot be reached",
        "no answer within 10s",
        "not a milepost of this version",
        hint,
    ] {
        assert!(keeping.contains(words), "{words}: {log}");
    }

    // The broker still queues messages for the kept session.
    world.publish(&[("drivers/d1/gps", br#"{"lat":1,"lng":2,"seq":1}"#)])?;
    let mut lower = settings.with("MQTT__CLIENT_ID", "pod-9").start_at(first)?;
    lower.wait_until_ready()?;
    wait_for_metric(&lower, "acks_total", 1.0)?;
    assert_eq!(world.query("SELECT count() FROM {db}.fixes")?, "1");
    Ok(())
}

#[test]
fn peer_with_a_hung_first_connection_is_asked_again() -> Result<()> {
    let world = world("asked_again")?;
    let peer = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = peer.local_addr()?;
    let settings = world.settings.clone().with("SHUTDOWN__PEERS", address.to_string());
    let mut member = settings.with("MQTT__CLIENT_ID", "pod-1").start()?;
    member.wait_until_ready()?;
    let lower = member.get("/member")?.replace("pod-1", "pod-0");
    let peer_thread = thread::spawn(move || -> Result<()> {
        let _hangs = peer.accept()?;
        answer(&peer, &lower)
    });
    assert_eq!(member.terminate(SOON)?, 0);
    let log = member.process.log()?;
    assert!(log.contains(&format!("unsubscribing: pod-0 at {address} stays")), "{log}");
    peer_thread.join().expect("the peer does not panic")
}

#[test]
fn peer_resolved_at_the_second_lookup_causes_no_warning() -> Result<()> {
    let world = world("late_name")?;
    let peer = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = peer.local_addr()?;
    let settings = world
        .settings
        .clone()
        .with("SHUTDOWN__PEERS", format!("late.invalid:{}", address.port()))
        .with_variable("RESOLVER_LOG", world.folder.path().join("lookups").display().to_string())
        .with_preloaded("tests/real/scripted_resolver.c")?;
    let mut member = settings.with("MQTT__CLIENT_ID", "pod-1").start()?;
    member.wait_until_ready()?;
    let higher = member.get("/member")?.replace("pod-1", "pod-2");
    let peer_thread = thread::spawn(move || answer(&peer, &higher));
    assert_eq!(member.terminate(SOON)?, 0);
    let log = member.process.log()?;
    let keeping = log.lines().find(|line| line.contains("keeping the session")).unwrap_or_default();
    assert!(keeping.contains(&format!("(pod-2 at {address} has a higher name)")), "{log}");
    assert!(!keeping.contains("WARN"), "{log}");
    peer_thread.join().expect("the peer does not panic")
}

/// Answers the next request for `/member` with this body.
fn answer(peer: &TcpListener, body: &str) -> Result<()> {
    let (mut client, _) = peer.accept()?;
    let mut request = [0; 4096];
    let length = client.read(&mut request)?;
    assert!(request[..length].starts_with(b"GET /member "));
    let head =
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    Ok(client.write_all((head + body).as_bytes())?)
}
