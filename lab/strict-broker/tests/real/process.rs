//! A session as one process with a mailbox, and what a listener takes from a client.

use std::time::{Duration, Instant};

use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{ConnectReturnCode, Packet};

use crate::client::{Broker, Client, Hello, numbers, sequence, wait_until};

#[test]
fn a_full_mailbox_makes_it_slower() {
    let broker = Broker::start(&["--session-rate", "1000", "--mailbox-scan", "200us"]);
    let mut member = Client::member(&broker, &Hello::keep("member"));
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    let began = Instant::now();
    publisher.publish(0..100);
    assert_eq!(numbers(&member.take_exactly(100)), sequence(0..100));
    // 100 × 1 ms, and (100 + 99 + … + 1) × 200 µs.
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(1_090), "{took:?}");
}

#[test]
fn a_mailbox_that_overflows_kills_the_session_without_a_trace() {
    let broker = Broker::start(&["--session-rate", "1", "--max-mailbox", "50"]);
    let mut member = Client::member(&broker, &Hello::keep("member"));
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    publisher.publish(0..50);
    assert!(broker.session("member").is_some(), "50 are not too many");
    publisher.publish(50..60);
    assert_eq!(member.told(), None, "TCP is closed without DISCONNECT");
    assert!(broker.said("session member killed: MailboxOverflow"));
    assert_eq!(broker.session("member"), None);
    assert_eq!(broker.counter("delivery.dropped"), 0);
    assert!(!Client::connect(&broker, &Hello::keep("member")).present);
}

/// Fills the socket of a member that does not read: more than the sockets hold.
fn stuff(broker: &Broker, count: usize, bytes: usize) {
    let mut publisher = Client::connect(broker, &Hello::once("publisher"));
    for _ in 0..count {
        publisher.publish_to("drivers/1/gps", QoS::AtLeastOnce, vec![b'0'; bytes]);
    }
}

#[test]
fn a_socket_that_takes_nothing_is_closed_and_the_session_stays() {
    let broker = Broker::start(&["--send-timeout", "2s"]);
    let mut frozen = Client::member(&broker, &Hello::keep("member"));
    let began = Instant::now();
    stuff(&broker, 300, 65_000);
    broker.wait_for("member", "away");
    let after = began.elapsed();
    assert!(after >= Duration::from_secs(2), "closed after {after:?}");
    assert!(frozen.rest().iter().all(|packet| matches!(packet, Packet::Publish(_))), "without a word");
    let mut member = Client::connect(&broker, &Hello::keep("member"));
    assert!(member.present);
    member.take_exactly(300);
}

#[test]
fn a_broker_that_is_starting_refuses_with_each_code_in_turn() {
    let broker = Broker::start(&["--starting", "3s"]);
    let code = || Client::dial(&broker, &Hello::keep("client")).greeted().connack.unwrap().code;
    let expected = [
        ConnectReturnCode::NotAuthorized,
        ConnectReturnCode::ServerUnavailable,
        ConnectReturnCode::ServerBusy,
    ];
    for expected in expected {
        assert_eq!(code(), expected);
    }
    let mut refused = Client::dial(&broker, &Hello::keep("client")).greeted();
    assert_eq!(refused.rest(), [], "and closes");
    wait_until("it has started", || code() == ConnectReturnCode::Success);
}
