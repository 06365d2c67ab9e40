//! Tests a fleet that the broker refuses: for a while, as EMQX does while it starts, or for good.
#![expect(clippy::unwrap_used, reason = "a helper may panic, which fails its test")]

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use loadgen::publish::{self, EndedEarly, Plan, Progress};
use rumqttc::v5::mqttbytes::Error;
use rumqttc::v5::mqttbytes::v5::{ConnAck, ConnectReturnCode, Packet, PubAck, PubAckReason};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Answers of a scripted broker, in order. The broker repeats the last answer of each list.
struct Script {
    connects: Vec<ConnectReturnCode>,
    publishes: Vec<PubAckReason>,
}

impl Script {
    /// Serves one client after the other.
    async fn play(mut self, listener: TcpListener) {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            self.serve(stream).await;
        }
    }

    /// Serves one client until it disconnects, or until its CONNECT is refused.
    async fn serve(&mut self, mut stream: TcpStream) {
        let (mut input, mut out) = (BytesMut::new(), BytesMut::new());
        loop {
            let mut closes = false;
            match Packet::read(&mut input, None) {
                Ok(Packet::Connect(..)) => {
                    let code = next(&mut self.connects);
                    closes = code != ConnectReturnCode::Success;
                    let answer = ConnAck { session_present: false, code, properties: None };
                    Packet::ConnAck(answer).write(&mut out, None).unwrap();
                }
                Ok(Packet::Publish(publish)) => {
                    let reason = next(&mut self.publishes);
                    let answer = PubAck { pkid: publish.pkid, reason, properties: None };
                    Packet::PubAck(answer).write(&mut out, None).unwrap();
                }
                Err(Error::InsufficientBytes(_)) => {
                    if stream.read_buf(&mut input).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
                Ok(_) | Err(_) => return, // a DISCONNECT
            }
            if stream.write_all(&out.split()).await.is_err() || closes {
                return;
            }
        }
    }
}

/// Takes the next answer from the list. The last answer stays in the list, so that it repeats.
fn next<T: Copy>(answers: &mut Vec<T>) -> T {
    if answers.len() > 1 { answers.remove(0) } else { answers[0] }
}

/// Runs a fleet of one connection against the scripted broker.
async fn fleet(script: Script) -> (anyhow::Result<loadgen::manifest::Manifest>, Arc<Progress>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let broker = listener.local_addr().unwrap().to_string();
    let plan = Plan {
        broker,
        run: "starting".to_owned(),
        messages: 20,
        rate: 1_000.0,
        drain: Duration::from_secs(60),
        ..Plan::default()
    };
    let progress = Arc::new(Progress::default());
    tokio::select! {
        outcome = publish::run(&plan, Arc::clone(&progress)) => (outcome, progress),
        () = script.play(listener) => unreachable!("the broker serves for ever"),
    }
}

#[tokio::test]
async fn fleet_waits_for_a_broker_that_is_starting() {
    use ConnectReturnCode::{NotAuthorized, ServerBusy, ServerUnavailable, Success};
    let script = Script {
        connects: vec![NotAuthorized, ServerUnavailable, ServerBusy, Success],
        publishes: vec![
            PubAckReason::NotAuthorized,
            PubAckReason::NotAuthorized,
            PubAckReason::Success,
        ],
    };
    let (manifest, progress) = fleet(script).await;
    let manifest = manifest.unwrap();
    assert_eq!((manifest.messages, manifest.unacked.len()), (20, 0));
    assert_eq!(progress.acked.load(std::sync::atomic::Ordering::Relaxed), 20);
    assert_eq!(manifest.starting, 3 + 2, "refused connections and messages");
}

#[tokio::test]
async fn final_refusal_ends_the_fleet() {
    for (code, expected) in [
        (ConnectReturnCode::BadUserNamePassword, "bad user name or password"),
        (ConnectReturnCode::Banned, "0x8a"),
    ] {
        let script = Script { connects: vec![code], publishes: vec![PubAckReason::Success] };
        let refused = tokio::time::timeout(Duration::from_secs(120), fleet(script)).await;
        let (manifest, _) = refused.unwrap_or_else(|_| panic!("still waiting after {code:?}"));
        assert!(format!("{:#}", manifest.unwrap_err()).contains(expected));
    }
}

#[tokio::test]
async fn refused_fleet_returns_the_manifest_of_what_it_sent() {
    use ConnectReturnCode::{Banned, Success};
    // The refused message ends the connection, and the next CONNECT is refused for good.
    let mut publishes = vec![PubAckReason::Success; 5];
    publishes.push(PubAckReason::QuotaExceeded);
    let (outcome, progress) = fleet(Script { connects: vec![Success, Banned], publishes }).await;
    let failure = outcome.unwrap_err();
    let EndedEarly { manifest, .. } = failure.downcast_ref().unwrap();
    assert_eq!(progress.acked.load(std::sync::atomic::Ordering::Relaxed), 5);
    let generated = u64::from(manifest.last_seq[0]);
    assert_eq!(
        (manifest.sent(), manifest.unacked.len() as u64),
        (generated, generated - 5),
        "{failure:#}"
    );
    assert!(generated >= 6, "{generated}");
}

#[tokio::test]
async fn stopped_fleet_returns_the_manifest_of_what_it_sent() {
    let script = Script {
        connects: vec![ConnectReturnCode::NotAuthorized],
        publishes: vec![PubAckReason::Success],
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let broker = listener.local_addr().unwrap().to_string();
    let plan = Plan { broker, run: "stopped".to_owned(), messages: 20, ..Plan::default() };
    let progress = Arc::new(Progress::default());
    progress.stopped.store(true, std::sync::atomic::Ordering::Relaxed);
    tokio::select! {
        outcome = publish::run(&plan, progress) => assert!(outcome.unwrap_err().is::<EndedEarly>()),
        () = script.play(listener) => unreachable!("the broker serves for ever"),
    }
}
