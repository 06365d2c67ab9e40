//! A broker that dies and comes back with what it once knew.

use rumqttc::v5::mqttbytes::QoS;

use crate::client::{Broker, Client, Hello, SHARED, ids, numbers, sequence};

#[test]
fn a_killed_broker_comes_back_with_an_old_snapshot() {
    let broker = Broker::start(&["--max-inflight", "3"]);
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    let mut member = Client::member(&broker, &Hello::keep("member"));
    publisher.publish(0..6);
    let first = member.take();
    member.ack(&first[0]);
    member.ack(&first[2]); // out of turn: a gap
    assert_eq!(numbers(&member.take()), [3, 4]);
    broker.tell("snapshot");
    member.ack_all(&first);
    publisher.publish(6..8);
    member.take();

    let broker = broker.restart(lab_stack::Broker::kill);
    let mut member = Client::connect(&broker, &Hello::keep("member"));
    assert!(member.present, "all the same");
    let again = member.take();
    assert_eq!(numbers(&again), [1, 3, 4], "acknowledged since, but not for this broker");
    assert_eq!(ids(&again)[0], first[1].pkid);
    assert!(again.iter().all(|publish| publish.dup));
    member.ack_all(&again);
    assert_eq!(numbers(&member.take()), [5], "and the later ones it has never seen");
    assert!(broker.session("member").unwrap().contains(SHARED));
    Client::connect(&broker, &Hello::once("publisher")).publish(8..9);
    assert_eq!(numbers(&member.take()), [8]);
}

#[test]
fn a_broker_that_is_stopped_keeps_its_sessions() {
    let broker = Broker::start(&[]);
    Client::connect(&broker, &Hello::keep("member")).subscribe("a/+", QoS::ExactlyOnce);
    broker.wait_for("member", "away");
    Client::connect(&broker, &Hello::once("publisher")).publish_to("a/b", QoS::AtLeastOnce, vec![0, 255]);

    let broker = broker.restart(lab_stack::Broker::stop);
    let mut member = Client::connect(&broker, &Hello::keep("member"));
    let kept = member.take();
    assert_eq!(kept.len(), 1);
    assert_eq!((&kept[0].topic[..], &kept[0].payload[..]), (&b"a/b"[..], &[0, 255][..]));
}

#[test]
fn a_restored_sessions_time_runs_and_its_messages_go_to_its_group() {
    let broker = Broker::start(&[]);
    let mut a = Client::member(&broker, &Hello { expiry_s: Some(3), ..Hello::keep("a") });
    Client::connect(&broker, &Hello::once("publisher")).publish(0..3);
    assert_eq!(a.take().len(), 3);
    broker.tell("snapshot");

    let broker = broker.restart(lab_stack::Broker::kill);
    let mut b = Client::member(&broker, &Hello::keep("b"));
    assert_eq!(numbers(&b.take_exactly(3)), sequence(0..3));
}

#[test]
fn a_damaged_snapshot_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions");
    std::fs::write(&file, "{\"client\":\"mem").unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_strict-broker"))
        .args(["--port", "0", "--snapshot", file.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("is damaged"));
}
