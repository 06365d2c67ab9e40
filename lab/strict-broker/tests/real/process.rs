//! A session as one process with a mailbox.

use std::time::{Duration, Instant};

use crate::client::{Broker, Client, Hello, numbers, sequence};

#[test]
fn full_mailbox_slows_the_session_down() {
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
fn mailbox_overflow_kills_the_session_without_a_counter() {
    let broker = Broker::start(&["--session-rate", "1", "--max-mailbox", "50"]);
    let mut member = Client::member(&broker, &Hello::keep("member"));
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    publisher.publish(0..50);
    assert!(broker.session("member").is_some(), "50 are not too many");
    publisher.publish(50..60);
    assert_eq!(member.disconnect_reason(), None, "TCP is closed without DISCONNECT");
    assert!(broker.has_logged("session member killed: MailboxOverflow"));
    assert_eq!(broker.session("member"), None);
    assert_eq!(broker.counter("delivery.dropped"), 0);
    assert!(!Client::connect(&broker, &Hello::keep("member")).session_present);
}
