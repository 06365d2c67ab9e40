//! QoS 2, both ways: what a client that never asked for it gets on a session another program has left.

use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{
    Packet, PubAck, PubComp, PubRec, PubRecReason, PubRel, Publish, SubscribeReasonCode,
};

use crate::client::{Broker, Client, Hello, numbers};

fn pubrec(publish: &Publish) -> Packet {
    Packet::PubRec(PubRec::new(publish.pkid, None))
}

/// A member at QoS 2 with a window of 2, and a publisher of three messages.
fn member() -> (Broker, Client, Client) {
    let broker = Broker::start(&["--max-inflight", "2"]);
    let mut member = Client::connect(&broker, &Hello::keep("member"));
    let code = member.subscribe("$share/g/a", QoS::ExactlyOnce);
    assert_eq!(code, SubscribeReasonCode::Success(QoS::ExactlyOnce));
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    for n in 0..3 {
        let Some(Packet::PubRec(answer)) = publisher.publish_to("a", QoS::ExactlyOnce, n.to_string()) else {
            panic!("no PUBREC")
        };
        assert_eq!(answer.reason, PubRecReason::Success);
    }
    (broker, member, publisher)
}

#[test]
fn a_handshake_at_qos_2_frees_its_place_when_it_is_complete() {
    let (_broker, mut member, _publisher) = member();
    let first = member.take();
    assert_eq!(numbers(&first), [0, 1]);
    assert!(first.iter().all(|publish| publish.qos == QoS::ExactlyOnce));
    member.send(&Packet::PubAck(PubAck::new(first[0].pkid, None))); // no answer to QoS 2
    assert_eq!(member.take(), []);
    member.send(&pubrec(&first[0]));
    assert_eq!(member.packet(), Packet::PubRel(PubRel::new(first[0].pkid, None)));
    assert_eq!(member.take(), [], "half of it frees nothing");
    member.send(&Packet::PubComp(PubComp::new(first[0].pkid, None)));
    assert_eq!(numbers(&member.take()), [2]);
}

#[test]
fn a_pubrec_that_refuses_ends_the_message() {
    let (_broker, mut member, _publisher) = member();
    let first = member.take();
    let mut refusal = PubRec::new(first[1].pkid, None);
    refusal.reason = PubRecReason::UnspecifiedError;
    member.send(&Packet::PubRec(refusal));
    assert_eq!(numbers(&member.take()), [2]);
}

#[test]
fn a_session_comes_back_with_pubrel_and_publish_at_qos_2() {
    let (mut broker, mut member, _publisher) = member();
    let first = member.take();
    member.send(&pubrec(&first[0]));
    member.packet();
    member.break_off(&mut broker, "member");

    let mut member = Client::connect(&broker, &Hello::keep("member"));
    assert!(member.present);
    assert_eq!(member.packet(), Packet::PubRel(PubRel::new(first[0].pkid, None)));
    let again = member.take_exactly(1).remove(0);
    assert_eq!(again, Publish { dup: true, ..first[1].clone() });
}

#[test]
fn a_message_that_is_sent_twice_at_qos_2_is_taken_once() {
    let broker = Broker::start(&[]);
    let mut member = Client::connect(&broker, &Hello::once("member"));
    member.subscribe("a", QoS::AtLeastOnce);
    let mut publisher = Client::connect(&broker, &Hello::keep("publisher"));
    let mut message = Publish::new("a", QoS::ExactlyOnce, "1", None);
    message.pkid = 5;
    publisher.send(&Packet::Publish(message.clone()));
    publisher.packet();

    let mut publisher = Client::connect(&broker, &Hello::keep("publisher"));
    message.dup = true;
    publisher.send(&Packet::Publish(message.clone()));
    assert_eq!(publisher.packet(), Packet::PubRec(PubRec::new(5, None)));
    publisher.send(&Packet::PubRel(PubRel::new(5, None)));
    assert_eq!(publisher.packet(), Packet::PubComp(PubComp::new(5, None)));
    assert_eq!(numbers(&member.take()), [1]);

    publisher.send(&Packet::Publish(Publish { dup: false, ..message }));
    publisher.packet();
    assert_eq!(numbers(&member.take()), [1], "the id is free: another message");
}

#[test]
fn at_qos_2_a_publisher_is_told_too_when_nobody_is_subscribed() {
    let broker = Broker::start(&[]);
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    let Some(Packet::PubRec(answer)) = publisher.publish_to("a", QoS::ExactlyOnce, "1") else {
        panic!("no PUBREC")
    };
    assert_eq!(answer.reason, PubRecReason::NoMatchingSubscribers);
}

#[test]
fn what_may_have_been_taken_at_qos_2_is_not_passed_on() {
    let (mut broker, mut member, _publisher) = member();
    assert_eq!(member.take().len(), 2);
    let mut heir = Client::connect(&broker, &Hello::keep("heir"));
    heir.subscribe("$share/g/a", QoS::ExactlyOnce);
    let anew = Client::connect(&broker, &Hello { clean: true, ..Hello::keep("member") });
    assert!(!anew.present);
    assert_eq!(numbers(&heir.take()), [2], "what waited alone");
    assert!(broker.session("heir").unwrap().contains("queued=0"));
}
