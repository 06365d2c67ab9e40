//! How sessions end and come back, as EMQX does it, and what becomes of their messages.

use std::time::{Duration, Instant};

use rumqttc::v5::mqttbytes::v5::{DisconnectReasonCode, Packet};

use crate::client::{Broker, Client, Hello, Next, SHARED, ids, numbers, sequence, wait_until};

/// Two members, of whom `a` has 3 messages unacknowledged and 3 that wait, as `b` has.
fn two_members<'a>(options: &[&str], a: Hello<'a>) -> (Broker, Client, Client, Client) {
    let broker = Broker::start(&[&["--max-inflight", "3"], options].concat());
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    let mut first = Client::member(&broker, &a);
    let mut second = Client::member(&broker, &Hello::keep("b"));
    publisher.publish(0..12);
    assert_eq!(numbers(&first.take()), [0, 2, 4]);
    let seconds = second.take();
    assert_eq!(numbers(&seconds), [1, 3, 5]);
    second.ack_all(&seconds);
    let seconds = second.take();
    assert_eq!(numbers(&seconds), [7, 9, 11]);
    second.ack_all(&seconds);
    (broker, publisher, first, second)
}

/// All that `b` gets from now on, until its queue is empty.
fn inherited(broker: &Broker, b: &mut Client) -> Vec<usize> {
    let mut all = Vec::new();
    loop {
        let some = b.take();
        b.ack_all(&some);
        all.extend(numbers(&some));
        if some.is_empty() && broker.session("b").unwrap().contains("queued=0 unacked=0") {
            return all;
        }
    }
}

/// Waits until there is no such session, and the others have what they inherit.
fn gone(broker: &Broker, client: &str) {
    wait_until(&format!("{client} is gone"), || broker.session(client).is_none());
}

#[test]
fn an_expired_sessions_messages_go_to_its_group_in_order() {
    let (broker, _, a, mut b) = two_members(&[], Hello { expiry_s: Some(3), ..Hello::keep("a") });
    drop(a);
    broker.wait_for("a", "away");
    assert_eq!(inherited(&broker, &mut b), [], "it is expected back");
    gone(&broker, "a");
    assert_eq!(inherited(&broker, &mut b), [0, 2, 4, 6, 8, 10]);
}

#[test]
fn a_clean_start_gives_the_old_sessions_messages_to_its_group() {
    let (broker, _, a, mut b) = two_members(&[], Hello::keep("a"));
    let anew = Client::connect(&broker, &Hello { clean: true, ..Hello::keep("a") });
    assert!(!anew.present);
    assert_eq!(inherited(&broker, &mut b), [0, 2, 4, 6, 8, 10]);
    assert!(broker.session("a").unwrap().contains("queued=0 unacked=0"), "and itself has none");
    drop(a);
}

#[test]
fn a_session_that_ends_with_its_connection_gives_its_messages_to_its_group() {
    for politely in [true, false] {
        let (broker, _, mut a, mut b) = two_members(&[], Hello::once("a"));
        if politely {
            a.disconnect(None);
        }
        drop(a);
        gone(&broker, "a");
        assert_eq!(inherited(&broker, &mut b), [0, 2, 4, 6, 8, 10], "politely: {politely}");
    }
}

#[test]
fn an_expiry_that_is_taken_back_at_the_end_loses_the_messages() {
    let (broker, mut publisher, mut a, mut b) = two_members(&[], Hello::keep("a"));
    a.disconnect(Some(0));
    gone(&broker, "a");
    assert_eq!(b.next(Duration::from_millis(3_500)), Next::Nothing);
    publisher.publish(12..14);
    assert_eq!(inherited(&broker, &mut b), [12, 13], "the group has one member");
}

#[test]
fn who_is_killed_leaves_nothing() {
    let (broker, mut publisher, mut a, mut b) = two_members(&[], Hello::keep("a"));
    let dropped = broker.counter("delivery.dropped");
    broker.tell("kill a");
    assert_eq!(a.told(), None);
    publisher.publish(12..14);
    assert_eq!(inherited(&broker, &mut b), [12, 13]);
    assert_eq!(broker.counter("delivery.dropped"), dropped, "no counter shows it");
    assert!(!Client::connect(&broker, &Hello::keep("a")).present);
}

#[test]
fn the_last_members_messages_are_lost() {
    let broker = Broker::start(&[]);
    let mut member = Client::member(&broker, &Hello::once("member"));
    Client::connect(&broker, &Hello::once("publisher")).publish(0..3);
    assert_eq!(member.take().len(), 3);
    drop(member);
    gone(&broker, "member");
    assert_eq!(numbers(&Client::member(&broker, &Hello::once("member")).take()), []);
}

#[test]
fn a_dying_member_keeps_its_share_and_loses_it() {
    let (broker, mut publisher, a, mut b) = two_members(&["--dying", "3s"], Hello::once("a"));
    drop(a);
    broker.wait_for("a", "dying");
    publisher.publish(12..16);
    assert_eq!(inherited(&broker, &mut b).len(), 6 + 2);
    gone(&broker, "a");
    publisher.publish(16..20);
    assert_eq!(inherited(&broker, &mut b), sequence(16..20));
}

#[test]
fn a_dying_session_is_not_come_back_to() {
    let (broker, _, a, _b) = two_members(&["--dying", "60s"], Hello::once("a"));
    drop(a);
    broker.wait_for("a", "dying");
    let anew = Client::connect(&broker, &Hello::keep("a"));
    assert!(!anew.present);
    assert!(!broker.session("a").unwrap().contains(SHARED));
}

#[test]
fn a_session_that_was_to_end_cannot_be_made_to_stay() {
    let broker = Broker::start(&[]);
    let mut client = Client::connect(&broker, &Hello::once("client"));
    client.disconnect(Some(60));
    assert_eq!(client.told(), Some(DisconnectReasonCode::ProtocolError));
    gone(&broker, "client");
}

#[test]
fn a_disconnect_may_change_how_long_the_session_stays() {
    let broker = Broker::start(&[]);
    let mut client = Client::connect(&broker, &Hello::keep("client"));
    client.disconnect(Some(1));
    gone(&broker, "client");
}

#[test]
fn all_that_is_unacknowledged_comes_again_also_above_a_smaller_window() {
    let broker = Broker::start(&[]);
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    let mut member = Client::member(&broker, &Hello { window: Some(10), ..Hello::keep("member") });
    publisher.publish(0..15);
    let first = member.take();
    assert_eq!(numbers(&first), sequence(0..10));
    member.break_off(&broker, "member");

    let mut member = Client::connect(&broker, &Hello { window: Some(4), ..Hello::keep("member") });
    let again = member.take();
    assert_eq!((numbers(&again), ids(&again)), (sequence(0..10), ids(&first)));
    member.ack_all(&again[..6]);
    assert_eq!(numbers(&member.take()), [], "four are still unacknowledged");
    member.ack(&again[6]);
    assert_eq!(numbers(&member.take()), [10]);
}

#[test]
fn a_packet_id_that_is_still_in_use_kills_the_session() {
    const IDS: usize = 65_535;
    let broker = Broker::start(&[]);
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    let mut member = Client::member(&broker, &Hello { window: None, ..Hello::keep("member") });
    for start in (0..IDS).step_by(5_000) {
        publisher.publish(start..(start + 5_000).min(IDS));
        let some = member.take_exactly(5_000.min(IDS - start));
        member.ack_all(&some[usize::from(start == 0)..]); // all but the very first
    }
    broker.wait_for("member", "unacked=1 ");
    publisher.publish(IDS..IDS + 1);
    assert_eq!(member.told(), None);
    assert_eq!(broker.session("member"), None);
    assert!(broker.said("session member killed: IdInUse"));
}

/// A member with 200 messages that is away, on a broker that takes over 100 a second.
fn large_session() -> Broker {
    let broker = Broker::start(&["--resume-rate", "100"]);
    Client::member(&broker, &Hello::keep("member")).break_off(&broker, "member");
    Client::connect(&broker, &Hello::once("publisher")).publish(0..200);
    broker
}

#[test]
fn taking_over_a_large_session_takes_time() {
    let broker = large_session();
    let began = Instant::now();
    let mut member = Client::connect(&broker, &Hello::keep("member"));
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(2), "{took:?}");
    assert!(member.present);
    assert_eq!(numbers(&member.take_exactly(200)), sequence(0..200));
}

#[test]
fn giving_up_meanwhile_leaves_an_empty_session() {
    for taken_over in [true, false] {
        let broker = large_session();
        let impatient = Client::dial(&broker, &Hello::keep("member"));
        broker.wait_for("member", "connected");
        let member = if taken_over {
            let next = Client::dial(&broker, &Hello::keep("member")).greeted();
            drop(impatient);
            next
        } else {
            impatient.break_off(&broker, "member");
            Client::connect(&broker, &Hello::keep("member"))
        };
        let mut member = member;
        assert!(member.present);
        assert_eq!(member.take(), []);
        assert!(!broker.session("member").unwrap().contains(SHARED), "it is not even subscribed");
    }
}

#[test]
fn a_connection_is_not_spoken_to_before_its_connack() {
    let broker = large_session();
    let mut slow = Client::dial(&broker, &Hello::keep("member"));
    broker.wait_for("member", "connected");
    Client::connect(&broker, &Hello::once("publisher")).publish(200..210);
    let Next::Packet(Packet::ConnAck(_)) = slow.next(Duration::from_secs(60)) else {
        panic!("CONNACK comes first")
    };
    assert_eq!(numbers(&slow.take_exactly(210)), sequence(0..210));
}
