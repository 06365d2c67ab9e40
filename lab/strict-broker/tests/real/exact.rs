//! What every broker should do, and this one does exactly.

use std::time::{Duration, Instant};

use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{
    ConnectReturnCode, DisconnectReasonCode, Packet, PubAckReason, Publish, SubscribeReasonCode,
    UnsubAckReason,
};

use crate::client::{Broker, Client, Hello, LONG, Next, SHARED, ids, numbers, sequence, wait_until};

fn window_is_32(announce: &str, announced: Option<u16>) {
    let broker = Broker::start(&["--max-inflight", "32", "--announce", announce]);
    let mut member = Client::member(&broker, &Hello::keep("member"));
    assert_eq!(member.announced(), announced);
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    publisher.publish(0..100);

    let first = member.take();
    assert_eq!(numbers(&first), sequence(0..32));
    member.ack(&first[0]);
    assert_eq!(numbers(&member.take()), [32]);
    member.ack(&first[20]); // out of turn
    assert_eq!(numbers(&member.take()), [33]);
    member.ack(&first[20]); // again
    assert_eq!(numbers(&member.take()), []);
}

#[test]
fn the_window_is_kept_and_told() {
    window_is_32("true", Some(32));
}

#[test]
fn the_window_is_kept_and_not_told() {
    window_is_32("false", None);
}

#[test]
fn the_clients_own_maximum_is_the_window_when_smaller() {
    let broker = Broker::start(&[]);
    let hello = Hello { window: Some(3), ..Hello::keep("member") };
    let mut member = Client::member(&broker, &hello);
    assert_eq!(member.announced(), Some(3));
    Client::connect(&broker, &Hello::once("publisher")).publish(0..10);
    assert_eq!(numbers(&member.take()), sequence(0..3));
}

#[test]
fn a_session_comes_back_with_what_it_is_owed() {
    for announce in ["true", "false"] {
        let broker = Broker::start(&["--max-inflight", "32", "--announce", announce]);
        let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
        let mut member = Client::member(&broker, &Hello::keep("member"));
        assert!(!member.present);
        publisher.publish(0..40);
        let first = member.take();
        assert_eq!(first.len(), 32);
        member.ack(&first[0]);
        assert_eq!(numbers(&member.take()), [32]);
        member.break_off(&broker, "member");
        publisher.publish(40..50); // while it is away

        // Without subscribing again: the old subscription holds.
        let mut member = Client::connect(&broker, &Hello::keep("member"));
        assert!(member.present);
        let again = member.take();
        assert_eq!(numbers(&again), sequence(1..33));
        assert!(again.iter().all(|p| p.dup), "sent before");
        assert_eq!(ids(&again[..31]), ids(&first[1..]), "under the same packet identifiers");
        member.ack_all(&again);
        let rest = member.take();
        assert_eq!(numbers(&rest), sequence(33..50));
        assert!(rest.iter().all(|p| !p.dup), "never sent before");
    }
}

#[test]
fn nothing_is_lost_while_the_member_comes_and_goes() {
    const COUNT: usize = 40_000;
    let broker = Broker::start(&["--max-inflight", "200"]);
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    let mut member = Client::member(&broker, &Hello::keep("member"));
    let publishing = std::thread::spawn(move || {
        for start in (0..COUNT).step_by(100) {
            publisher.publish(start..start + 100);
            std::thread::sleep(Duration::from_millis(5)); // so that it lasts
        }
    });

    let mut seen = vec![false; COUNT];
    let mut connections = 1;
    loop {
        // Every second time it takes over its own live connection.
        let until = Instant::now() + Duration::from_millis(150);
        let mut got = 0;
        while let Next::Packet(packet) = member.next(until.saturating_duration_since(Instant::now())) {
            let Packet::Publish(publish) = packet else { panic!("{packet:?}") };
            seen[numbers(std::slice::from_ref(&publish))[0]] = true;
            member.ack(&publish);
            got += 1;
        }
        if publishing.is_finished() && got == 0 {
            break;
        }
        if connections % 2 == 0 {
            member.break_off(&broker, "member");
            member = Client::connect(&broker, &Hello::keep("member"));
        } else {
            member = Client::connect(&broker, &Hello::keep("member"));
        }
        assert!(member.present);
        connections += 1;
    }
    publishing.join().unwrap();
    let lost: Vec<_> = (0..COUNT).filter(|n| !seen[*n]).collect();
    assert!(lost.is_empty(), "{} lost in {connections} connections: {lost:?}", lost.len());
}

/// As a frozen process, or a network that swallows everything.
#[test]
fn nothing_is_lost_when_a_member_stops_reading_and_comes_back() {
    const COUNT: usize = 600;
    let broker = Broker::start(&[]);
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    let frozen = Client::member(&broker, &Hello::keep("member"));
    for n in 0..COUNT {
        let payload = format!("{n:0>65000}"); // 39 MB in all: more than the sockets hold
        publisher.publish_to("drivers/1/gps", QoS::AtLeastOnce, payload);
    }
    let mut member = Client::connect(&broker, &Hello::keep("member"));
    assert!(member.present);
    assert_eq!(numbers(&member.take_exactly(COUNT)), sequence(0..COUNT));
    drop(frozen);
}

#[test]
fn a_full_queue_drops_its_oldest() {
    let broker = Broker::start(&["--max-inflight", "10", "--max-queue", "20"]);
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    let mut member = Client::member(&broker, &Hello::keep("member"));
    publisher.publish(0..10);
    let first = member.take(); // they fill the window
    publisher.publish(10..100);
    assert_eq!(numbers(&member.take()), []);
    assert_eq!(broker.counter("delivery.dropped.queue_full"), 70);
    member.ack_all(&first);
    assert_eq!(numbers(&member.take()), sequence(80..90));
}

#[test]
fn two_members_share_evenly_also_when_one_is_away() {
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
fn both_levels_of_service_pass() {
    let broker = Broker::start(&[]);
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    let mut member = Client::member(&broker, &Hello::once("member"));
    for n in 0..20 {
        let qos = [QoS::AtMostOnce, QoS::AtLeastOnce][n / 10];
        publisher.publish_to("drivers/1/gps", qos, n.to_string()); // to a QoS 1 subscription
    }
    let all = member.take();
    assert_eq!(numbers(&all), sequence(0..20));
    assert!(all[..10].iter().all(|p| p.qos == QoS::AtMostOnce));
    assert!(all[10..].iter().all(|p| p.qos == QoS::AtLeastOnce));
}

#[test]
fn at_qos_0_nothing_waits_for_the_window() {
    let broker = Broker::start(&["--max-inflight", "1"]);
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    let mut member = Client::member(&broker, &Hello::once("member"));
    publisher.publish(0..2);
    publisher.publish_to("drivers/1/gps", QoS::AtMostOnce, "2");
    publisher.publish(3..4);
    let mut taken = numbers(&member.take());
    taken.sort_unstable();
    assert_eq!(taken, [0, 2]);
}

/// MQTT 5 forbids it (4.4).
#[test]
fn an_unacknowledged_message_is_not_sent_again_on_its_connection() {
    let broker = Broker::start(&[]);
    let mut member = Client::member(&broker, &Hello::keep("member"));
    Client::connect(&broker, &Hello::once("publisher")).publish(0..5);
    assert_eq!(member.take().len(), 5);
    assert_eq!(member.next(Duration::from_secs(3)), Next::Nothing);
}

#[test]
fn a_publisher_is_told_when_nobody_is_subscribed() {
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
fn what_is_unsubscribed_was_there_or_not_and_its_messages_stay() {
    let broker = Broker::start(&["--max-inflight", "2"]);
    let mut member = Client::member(&broker, &Hello::keep("member"));
    Client::connect(&broker, &Hello::once("publisher")).publish(0..6);
    let first = member.take();
    assert_eq!(member.unsubscribe("$share/other/drivers/+/gps"), UnsubAckReason::NoSubscriptionExisted);
    assert_eq!(member.unsubscribe(SHARED), UnsubAckReason::Success);
    assert_eq!(member.unsubscribe(SHARED), UnsubAckReason::NoSubscriptionExisted);
    member.ack_all(&first);
    assert_eq!(numbers(&member.take()), [2, 3]);
}

#[test]
fn subscribing_adds_to_what_the_session_has() {
    let broker = Broker::start(&[]);
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    Client::member(&broker, &Hello::keep("member"));
    let mut member = Client::connect(&broker, &Hello::keep("member"));
    let code = member.subscribe("$share/new/drivers/+/gps", QoS::AtLeastOnce);
    assert_eq!(code, SubscribeReasonCode::Success(QoS::AtLeastOnce));
    publisher.publish(0..4);
    assert_eq!(member.take().len(), 8, "as a member of both groups");
    member.subscribe(SHARED, QoS::AtMostOnce); // again: in place of the first
    publisher.publish(4..5);
    let taken: Vec<QoS> = member.take().iter().map(|publish| publish.qos).collect();
    assert_eq!(taken.len(), 2);
    assert!(taken.contains(&QoS::AtMostOnce));
    assert_eq!(member.subscribe("a/#/b", QoS::AtLeastOnce), SubscribeReasonCode::TopicFilterInvalid);
}

#[test]
fn who_is_taken_over_is_told() {
    let broker = Broker::start(&[]);
    let mut old = Client::member(&broker, &Hello::keep("member"));
    let new = Client::connect(&broker, &Hello::keep("member"));
    assert!(new.present);
    assert_eq!(old.told(), Some(DisconnectReasonCode::SessionTakenOver));
}

#[test]
fn who_is_silent_for_longer_than_it_promised_is_gone() {
    let broker = Broker::start(&[]);
    let hello = Hello { keep_alive_s: 2, ..Hello::keep("member") };
    let mut member = Client::connect(&broker, &hello);
    std::thread::sleep(Duration::from_millis(1_500));
    member.take(); // pings
    let began = Instant::now();
    assert_eq!(member.told(), Some(DisconnectReasonCode::KeepAliveTimeout));
    let after = began.elapsed();
    assert!((Duration::from_millis(2_900)..LONG).contains(&after), "1.5 × 2 s, not {after:?}");
    broker.wait_for("member", "away");
}

#[test]
fn packets_are_not_larger_than_either_side_says() {
    let broker = Broker::start(&["--max-packet-bytes", "1000"]);
    let hello = Hello { bytes_max: Some(500), ..Hello::keep("member") };
    let mut member = Client::member(&broker, &hello);
    let announced = member.connack.clone().unwrap().properties.unwrap().max_packet_size;
    assert_eq!(announced, Some(1000));
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    publisher.publish_to("drivers/1/gps", QoS::AtLeastOnce, format!("{:0>600}", 1));
    publisher.publish_to("drivers/1/gps", QoS::AtLeastOnce, "2");
    assert_eq!(numbers(&member.take()), [2]);
    assert_eq!(broker.counter("delivery.dropped.too_large"), 1);

    publisher.send(&Packet::Publish(Publish::new("drivers/1/gps", QoS::AtMostOnce, vec![b'0'; 1000], None)));
    assert_eq!(publisher.told(), Some(DisconnectReasonCode::PacketTooLarge));
}

#[test]
fn damage_and_what_is_not_spoken_end_the_connection_with_a_reason() {
    let broker = Broker::start(&[]);
    for (bytes, reason) in [
        (&[0x30, 5, 0, 3, b'a', b'/', b'b'][..], DisconnectReasonCode::MalformedPacket),
        (&[0x30, 4, 0, 1, b'+', 0], DisconnectReasonCode::TopicNameInvalid),
        (&[0x30, 7, 0, 1, b'a', 3, 35, 0, 1], DisconnectReasonCode::TopicAliasInvalid),
        (&[0x20, 3, 0, 0, 0], DisconnectReasonCode::ProtocolError),
        (&[0x50, 2, 0, 1], DisconnectReasonCode::ProtocolError),
        (&[0x34, 6, 0, 1, b'a', 0, 1, 0], DisconnectReasonCode::QoSNotSupported),
        (&[0x31, 4, 0, 1, b'a', 0], DisconnectReasonCode::RetainNotSupported),
        (
            &[0x82, 9, 0, 1, 2, 11, 7, 0, 1, b'a', 1],
            DisconnectReasonCode::SubscriptionIdentifiersNotSupported,
        ),
    ] {
        let mut client = Client::connect(&broker, &Hello::once("client"));
        client.send_bytes(bytes);
        assert_eq!(client.told(), Some(reason), "{bytes:?}");
    }
    let nameless = Client::connect(&broker, &Hello::once(""));
    assert_eq!(nameless.connack.unwrap().code, ConnectReturnCode::ClientIdentifierNotValid);
}

#[test]
fn the_counters_are_published_as_emqx_does() {
    let broker = Broker::start(&["--metrics-every", "100ms"]);
    let mut watcher = Client::connect(&broker, &Hello::once("watcher"));
    watcher.subscribe("$SYS/brokers/+/metrics/#", QoS::AtLeastOnce);
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    publisher.publish_to("nobody", QoS::AtLeastOnce, "1");
    wait_until("the counter has moved", || {
        let said = watcher.take_exactly(1).remove(0);
        let topic = std::str::from_utf8(&said.topic).unwrap();
        assert!(!said.retain && said.qos == QoS::AtMostOnce, "{said:?}");
        topic == "$SYS/brokers/strict-broker/metrics/messages/dropped/no_subscribers" && said.payload == "1"
    });
}
