//! A session as one process with a mailbox, and what a listener takes from a client.

use std::time::{Duration, Instant};

use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{ConnectReturnCode, Packet, PubAckReason, SubscribeReasonCode};

use crate::client::{Broker, Client, Hello, Next, SHARED, numbers, sequence, wait_until};

/// How long it takes until a member has 100 messages that were published at once.
fn hundred(options: &[&str]) -> Duration {
    let broker = Broker::start(options);
    let mut member = Client::member(&broker, &Hello::keep("member"));
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    let began = Instant::now();
    publisher.publish(0..100);
    assert_eq!(numbers(&member.take_exactly(100)), sequence(0..100));
    began.elapsed()
}

#[test]
fn a_session_handles_so_many_messages_a_second() {
    let took = hundred(&["--session-rate", "100", "--mailbox-scan", "0s"]);
    assert!(took >= Duration::from_millis(990), "100 at 100/s in {took:?}");
}

#[test]
fn a_full_mailbox_makes_it_slower() {
    // 100 × 1 ms, and (100 + 99 + … + 1) × 200 µs.
    let took = hundred(&["--session-rate", "1000", "--mailbox-scan", "200us"]);
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

#[test]
fn what_waited_for_the_window_takes_its_time_too() {
    let broker = Broker::start(&["--session-rate", "100", "--mailbox-scan", "0s"]);
    Client::member(&broker, &Hello::keep("member")).break_off(&broker, "member");
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    publisher.publish(0..100);
    broker.wait_for("member", "mailbox=0 queued=100");
    let began = Instant::now();
    let mut member = Client::connect(&broker, &Hello::keep("member"));
    publisher.publish(100..110); // what comes now takes turns with it
    assert_eq!(numbers(&member.take_exactly(110)), sequence(0..110), "in order");
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(1_090), "110 at 100/s in {took:?}");
}

#[test]
fn a_heap_that_overflows_kills_the_session_too() {
    // Room for 100 messages of 4 KiB.
    let broker = Broker::start(&["--max-heap-bytes", "409600"]);
    Client::member(&broker, &Hello::keep("member")).break_off(&broker, "member");
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    publisher.publish(0..100);
    broker.wait_for("member", "queued=100");
    publisher.publish(100..101);
    assert_eq!(broker.session("member"), None);
    assert!(broker.said("session member killed: HeapOverflow"));
}

#[test]
fn a_heap_doubles_while_the_session_is_taken_over() {
    let broker = Broker::start(&["--max-heap-bytes", "409600"]);
    for (count, survives) in [(50, true), (51, false)] {
        let id = format!("member-{count}");
        Client::member(&broker, &Hello::keep(&id)).break_off(&broker, &id);
        Client::connect(&broker, &Hello::once("publisher")).publish(0..count);
        let mut again = Client::dial(&broker, &Hello::keep(&id));
        if survives {
            again = again.greeted();
            again.take_exactly(count);
            again.unsubscribe(SHARED);
        } else {
            assert_eq!(again.rest(), [], "closed without a word");
        }
        assert_eq!(broker.session(&id).is_some(), survives);
    }
}

#[test]
fn a_session_without_a_connection_works_too() {
    let broker = Broker::start(&["--session-rate", "1000", "--max-mailbox", "100"]);
    Client::member(&broker, &Hello::keep("member")).break_off(&broker, "member");
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    publisher.publish(0..100);
    broker.wait_for("member", "mailbox=0 queued=100");
    publisher.publish(100..200);
    broker.wait_for("member", "mailbox=0 queued=200");
    let mut member = Client::connect(&broker, &Hello::keep("member"));
    assert_eq!(numbers(&member.take_exactly(200)), sequence(0..200));
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
fn a_socket_that_takes_little_is_not_closed() {
    let broker = Broker::start(&["--send-timeout", "2s", "--max-packet-bytes", "8000000"]);
    let mut slow = Client::member(&broker, &Hello::keep("member"));
    std::thread::scope(|threads| {
        // Packets so large that for seconds no one of them is sent to its end.
        threads.spawn(|| stuff(&broker, 4, 7_900_000));
        for _ in 0..20 {
            slow.read_bytes(400_000);
            std::thread::sleep(Duration::from_millis(200)); // it is slow
        }
    });
    assert!(broker.session("member").unwrap().contains("connected"));
}

#[test]
fn a_process_that_is_stuck_in_sending_handles_nothing() {
    let broker = Broker::start(&["--session-rate", "20000", "--max-mailbox", "100"]);
    let mut frozen = Client::member(&broker, &Hello::keep("member"));
    stuff(&broker, 600, 65_000);
    wait_until("it is killed", || broker.session("member").is_none());
    assert!(frozen.rest().len() < 600);
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

#[test]
fn whom_a_starting_broker_lets_in_it_refuses_to_serve() {
    let broker = Broker::start(&["--starting", "3s", "--starting-codes", "0x00"]);
    let mut client = Client::connect(&broker, &Hello::once("client"));
    assert_eq!(client.connack.clone().unwrap().code, ConnectReturnCode::Success);
    let reason = |client: &mut Client| match client.publish_to("drivers/1/gps", QoS::AtLeastOnce, "1") {
        Some(Packet::PubAck(ack)) => ack.reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(reason(&mut client), PubAckReason::NotAuthorized);
    assert_eq!(client.subscribe("x", QoS::AtLeastOnce), SubscribeReasonCode::NotAuthorized);
    wait_until("it has started", || reason(&mut client) == PubAckReason::NoMatchingSubscribers);
    assert_eq!(client.subscribe("x", QoS::AtLeastOnce), SubscribeReasonCode::Success(QoS::AtLeastOnce));
    assert_eq!(client.next(Duration::ZERO), Next::Nothing);
}
