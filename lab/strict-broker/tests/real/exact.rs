//! Rules of MQTT that this broker follows exactly.

use std::time::{Duration, Instant};

use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{DisconnectReasonCode, Packet, PubAckReason, UnsubAckReason};

use crate::client::{Broker, Client, Hello, SHARED, ids, numbers, sequence};

#[test]
fn window_is_announced_and_never_exceeded() {
    let broker = Broker::start(&["--max-inflight", "32"]);
    let mut member = Client::member(&broker, &Hello::keep("member"));
    assert_eq!(member.announced_window(), Some(32));
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    publisher.publish(0..100);

    let first = member.take();
    assert_eq!(numbers(&first), sequence(0..32));
    member.ack(&first[0]);
    assert_eq!(numbers(&member.take()), [32]);
    member.ack(&first[20]); // before earlier messages
    assert_eq!(numbers(&member.take()), [33]);
    member.ack(&first[20]); // a second PUBACK of the same message
    assert_eq!(numbers(&member.take()), []);
}

#[test]
fn resumed_session_receives_unacked_and_queued_messages() {
    for announce in ["true", "false"] {
        let broker = Broker::start(&["--max-inflight", "32", "--announce", announce]);
        let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
        let mut member = Client::member(&broker, &Hello::keep("member"));
        assert!(!member.session_present);
        publisher.publish(0..40);
        let first = member.take();
        assert_eq!(first.len(), 32);
        member.ack(&first[0]);
        assert_eq!(numbers(&member.take()), [32]);
        member.break_off(&broker, "member");
        publisher.publish(40..50); // while the member is away

        // The client does not subscribe again: the session has its subscription.
        let mut member = Client::connect(&broker, &Hello::keep("member"));
        assert!(member.session_present);
        let again = member.take();
        assert_eq!(numbers(&again), sequence(1..33));
        assert!(again.iter().all(|p| p.dup), "these messages were sent before");
        assert_eq!(ids(&again[..31]), ids(&first[1..]), "the packet ids are the same");
        member.ack_all(&again);
        let rest = member.take();
        assert_eq!(numbers(&rest), sequence(33..50));
        assert!(rest.iter().all(|p| !p.dup), "these messages were not sent before");
    }
}

#[test]
fn full_queue_drops_the_oldest_message() {
    let broker = Broker::start(&["--max-inflight", "10", "--max-queue", "20"]);
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    let mut member = Client::member(&broker, &Hello::keep("member"));
    publisher.publish(0..10);
    let first = member.take(); // these ten messages fill the window
    publisher.publish(10..100);
    assert_eq!(numbers(&member.take()), []);
    assert_eq!(broker.counter("delivery.dropped.queue_full"), 70);
    member.ack_all(&first);
    assert_eq!(numbers(&member.take()), sequence(80..90));
}

#[test]
fn members_share_evenly_even_if_one_is_offline() {
    let broker = Broker::start(&[]);
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    let mut a = Client::member(&broker, &Hello::keep("a"));
    let mut b = Client::member(&broker, &Hello::keep("b"));
    publisher.publish(0..1000);
    assert_eq!((a.take().len(), b.take().len()), (500, 500));

    b.break_off(&broker, "b");
    publisher.publish(1000..1100);
    assert_eq!(a.take().len(), 50);
    let mut b = Client::connect(&broker, &Hello::keep("b"));
    assert_eq!(b.take().len(), 550);
}

#[test]
fn puback_reports_no_matching_subscribers() {
    let broker = Broker::start(&[]);
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    let mut reason = || match publisher.publish_to("drivers/1/gps", QoS::AtLeastOnce, "1") {
        Some(Packet::PubAck(ack)) => ack.reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(reason(), PubAckReason::NoMatchingSubscribers);
    let mut member = Client::member(&broker, &Hello::keep("member"));
    assert_eq!(reason(), PubAckReason::Success);
    assert_eq!(member.take().len(), 1);
    assert_eq!(member.unsubscribe(SHARED), UnsubAckReason::Success);
    assert_eq!(reason(), PubAckReason::NoMatchingSubscribers);
    assert_eq!(broker.counter("messages.dropped.no_subscribers"), 2);
}

#[test]
fn silent_client_is_disconnected_after_its_keep_alive() {
    let (broker, began) = (Broker::start(&[]), Instant::now());
    let mut client = Client::connect(&broker, &Hello { keep_alive_s: 1, ..Hello::once("silent") });
    assert_eq!(client.disconnect_reason(), Some(DisconnectReasonCode::KeepAliveTimeout));
    assert!(began.elapsed() >= Duration::from_millis(1_500), "one and a half times the keep-alive");
}
