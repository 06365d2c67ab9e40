//! The end and the takeover of sessions, and the fate of their messages, compared with EMQX.

use std::time::Duration;

use crate::client::{Broker, Client, Hello, Next, SHARED, numbers, sequence, wait_until};

/// Starts a broker with two members. `a` has 3 unacknowledged and 3 queued messages; `b` has
/// acknowledged its 6 messages.
fn two_members<'a>(options: &[&str], a: Hello<'a>) -> (Broker, Client, Client, Client) {
    let broker = Broker::start(&[&["--max-inflight", "3"], options].concat());
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    let mut first = Client::member(&broker, &a);
    let mut second = Client::member(&broker, &Hello::keep("b"));
    publisher.publish(0..12);
    assert_eq!(numbers(&first.take()), [0, 2, 4]);
    let received = second.take();
    assert_eq!(numbers(&received), [1, 3, 5]);
    second.ack_all(&received);
    let received = second.take();
    assert_eq!(numbers(&received), [7, 9, 11]);
    second.ack_all(&received);
    (broker, publisher, first, second)
}

/// Returns all messages that `b` receives from now on, until its queue is empty.
fn take_all(broker: &Broker, b: &mut Client) -> Vec<usize> {
    let mut all = Vec::new();
    loop {
        let received = b.take();
        b.ack_all(&received);
        all.extend(numbers(&received));
        if received.is_empty() && broker.session("b").unwrap().contains("queued=0 unacked=0") {
            return all;
        }
    }
}

/// Waits until the session is gone. The broker has redispatched the session's messages by then.
fn wait_until_gone(broker: &Broker, client: &str) {
    wait_until(&format!("{client} is gone"), || broker.session(client).is_none());
}

#[test]
fn expired_session_gives_its_messages_to_its_group_in_order() {
    let (broker, _, a, mut b) = two_members(&[], Hello { expiry_s: Some(3), ..Hello::keep("a") });
    drop(a);
    broker.wait_for("a", "away");
    assert_eq!(take_all(&broker, &mut b), [], "the session has not expired yet");
    wait_until_gone(&broker, "a");
    assert_eq!(take_all(&broker, &mut b), [0, 2, 4, 6, 8, 10]);
}

#[test]
fn clean_start_gives_the_old_messages_to_the_group() {
    let (broker, _, a, mut b) = two_members(&[], Hello::keep("a"));
    let renewed = Client::connect(&broker, &Hello { clean: true, ..Hello::keep("a") });
    assert!(!renewed.session_present);
    assert_eq!(take_all(&broker, &mut b), [0, 2, 4, 6, 8, 10]);
    assert!(
        broker.session("a").unwrap().contains("queued=0 unacked=0"),
        "the new session has no messages"
    );
    drop(a);
}

#[test]
fn session_without_expiry_gives_its_messages_to_its_group() {
    for with_disconnect in [true, false] {
        let (broker, _, mut a, mut b) = two_members(&[], Hello::once("a"));
        if with_disconnect {
            a.disconnect(None);
        }
        drop(a);
        wait_until_gone(&broker, "a");
        assert_eq!(
            take_all(&broker, &mut b),
            [0, 2, 4, 6, 8, 10],
            "with DISCONNECT: {with_disconnect}"
        );
    }
}

#[test]
fn expiry_zero_in_disconnect_loses_the_messages() {
    let (broker, mut publisher, mut a, mut b) = two_members(&[], Hello::keep("a"));
    a.disconnect(Some(0));
    wait_until_gone(&broker, "a");
    assert_eq!(b.next(Duration::from_millis(3_500)), Next::Nothing);
    publisher.publish(12..14);
    assert_eq!(take_all(&broker, &mut b), [12, 13], "the group has one member");
}

#[test]
fn messages_of_a_killed_session_are_lost_and_not_counted() {
    let (broker, mut publisher, mut a, mut b) = two_members(&[], Hello::keep("a"));
    let dropped = broker.counter("delivery.dropped");
    broker.command("kill a");
    assert_eq!(a.disconnect_reason(), None);
    publisher.publish(12..14);
    assert_eq!(take_all(&broker, &mut b), [12, 13]);
    assert_eq!(broker.counter("delivery.dropped"), dropped, "no counter shows the loss");
    assert!(!Client::connect(&broker, &Hello::keep("a")).session_present);
}

#[test]
fn dying_member_loses_its_share_of_the_messages() {
    let (broker, mut publisher, a, mut b) = two_members(&["--dying", "3s"], Hello::once("a"));
    drop(a);
    broker.wait_for("a", "dying");
    publisher.publish(12..16);
    assert_eq!(take_all(&broker, &mut b).len(), 6 + 2);
    wait_until_gone(&broker, "a");
    publisher.publish(16..20);
    assert_eq!(take_all(&broker, &mut b), sequence(16..20));
}

/// Starts a broker that takes over 100 messages a second, with an offline member that holds 200.
fn broker_with_large_session() -> Broker {
    let broker = Broker::start(&["--resume-rate", "100"]);
    Client::member(&broker, &Hello::keep("member")).break_off(&broker, "member");
    Client::connect(&broker, &Hello::once("publisher")).publish(0..200);
    broker
}

#[test]
fn client_that_gives_up_leaves_an_empty_session() {
    for taken_over in [true, false] {
        let broker = broker_with_large_session();
        let impatient = Client::dial(&broker, &Hello::keep("member"));
        broker.wait_for("member", "connected");
        let member = if taken_over {
            let next = Client::dial(&broker, &Hello::keep("member")).receive_connack();
            drop(impatient);
            next
        } else {
            impatient.break_off(&broker, "member");
            Client::connect(&broker, &Hello::keep("member"))
        };
        let mut member = member;
        assert!(member.session_present);
        assert_eq!(member.take(), []);
        assert!(
            !broker.session("member").unwrap().contains(SHARED),
            "the session's subscription is gone as well"
        );
    }
}
