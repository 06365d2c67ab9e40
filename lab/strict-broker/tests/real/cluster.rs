//! Two nodes, of which one is killed, compared with EMQX 5.8.9.

use rumqttc::v5::mqttbytes::QoS;

use crate::client::{Broker, Client, Hello, SHARED, numbers, sequence};

/// Kills the first of two nodes, with a member on each and a publisher on the second. Returns the
/// broker, and how many of ten messages the second member receives.
fn count_received_after_a_kill(strategy: &str) -> (Broker, usize) {
    let broker = Broker::start(&["--strategy", strategy]);
    let mut first = Client::member(&broker, &Hello::keep("first"));
    let mut second = Client::connect_to_second(&broker, &Hello::keep("second"));
    second.subscribe(SHARED, QoS::AtLeastOnce);
    let mut publisher = Client::connect_to_second(&broker, &Hello::once("publisher"));
    broker.command("node 0 down");
    assert_eq!(
        (first.disconnect_reason(), broker.session("first")),
        (None, None),
        "the connection is cut without a DISCONNECT, and the session is gone"
    );
    publisher.publish(0..10); // all ten messages are acknowledged
    let received = second.take().len();
    broker.command("node 0 up");
    publisher.publish(10..20);
    assert_eq!(second.take().len(), 10, "a node that is back has no ghosts");
    (broker, received)
}

#[test]
fn ghost_loses_its_share_of_the_messages() {
    let (broker, received) = count_received_after_a_kill("round-robin");
    assert_eq!((received, broker.counter("given_to_ghosts")), (5, 5));
    assert_eq!(broker.counter("delivery.dropped"), 0, "EMQX counts no drop");
}

#[test]
fn local_strategy_gives_nothing_to_ghosts_of_another_node() {
    let (broker, received) = count_received_after_a_kill("local");
    assert_eq!((received, broker.counter("given_to_ghosts")), (10, 0));
}

#[test]
fn messages_during_a_takeover_are_lost_and_not_counted() {
    let broker = Broker::start(&["--takeover-gap", "1h"]);
    Client::member(&broker, &Hello::keep("member")).break_off(&broker, "member");
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    publisher.publish(0..3);
    let mut member = Client::connect_to_second(&broker, &Hello::keep("member"));
    publisher.publish(3..5);
    assert_eq!(numbers(&member.take()), sequence(0..3));
    assert_eq!((broker.counter("takeovers"), broker.counter("lost_in_takeovers")), (1, 2));
    assert_eq!(broker.counter("delivery.dropped"), 0);
}

#[test]
fn other_node_takes_over_a_session_with_its_messages() {
    let broker = Broker::start(&["--strategy", "local"]);
    Client::member(&broker, &Hello::keep("member")).break_off(&broker, "member");
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    publisher.publish(0..3);
    let mut member = Client::connect_to_second(&broker, &Hello::keep("member"));
    assert!(member.session_present);
    assert_eq!(numbers(&member.take()), sequence(0..3));
    broker.command("node 0 down");
    Client::connect_to_second(&broker, &Hello::once("other")).publish(3..4);
    assert_eq!(numbers(&member.take()), [3], "the session is on the second node now");
}
