//! Tests a process with fewer sessions than its predecessor: the broker still queues messages for
//! the predecessor's further sessions. The process visits these former sessions: it connects to
//! each of them to empty it.

use std::time::{Duration, Instant};

use milepost_core::consumer::{Connections, Consumer, ConsumerConfig, FormerSessionTotals};
use milepost_core::delivery::SpoolInventory;
use milepost_core::delivery::policy::Delivery;
use milepost_core::intake::Intake;
use milepost_core::session::events::{ConnectionState, Leave, SessionCommand, SessionEvent};
use proptest::prelude::*;

use crate::model::server::{Mood, Server};
use crate::model::{Backend as _, Setup, World};
use crate::rows::{
    consumer_settings, decoder, intake_settings, new_session, policy_settings, resumed,
};

/// Runs a process with `consuming` + `former` sessions, and then a process with `consuming`
/// sessions, while devices publish. Each of `kills` is the time, in milliseconds, after which a
/// process is killed.
fn shrink(consuming: usize, former: usize, expiry: Duration, kills: &[u64]) -> World<Server> {
    let setup = Setup {
        consumer: consumer_settings(consuming + former),
        intake: intake_settings(50),
        delivery: policy_settings(),
        window: 20,
        members: 1,
    };
    let mut world = World::new(setup, Server::new(1), Instant::now());
    world.wait(Duration::from_secs(1));
    (0..200).for_each(|_| world.publish(1));
    world.setup.consumer.connections = Connections::Fixed(consuming);
    world.broker.expiry = Some(expiry);
    world.kill();
    for kill in kills {
        world.publish(1);
        world.wait(Duration::from_millis(*kill));
        world.kill();
    }
    for _ in 0..100 {
        (0..20).for_each(|_| world.publish(1));
        world.wait(Duration::from_millis(250));
    }
    world
}

#[test]
fn former_sessions_are_emptied_before_any_of_them_expires() {
    let mut world = shrink(4, 60, Duration::from_secs(10), &[]);
    assert!(
        world.broker.sessions.values().skip(4).all(|session| !session.subscribed),
        "all are unsubscribed"
    );
    world.recover();
    let missing = world.missing();
    assert!(
        missing.is_empty(),
        "{} messages expired with sessions that were not visited",
        missing.len()
    );
    assert_eq!(world.broker.sessions.len(), 4, "former sessions are ended");
    assert_eq!(
        world.consumer.totals().former_sessions,
        FormerSessionTotals { found: 60, ..FormerSessionTotals::default() }
    );
}

/// Under load, a CONNACK can take a second, and messages wait in each session until the session is
/// visited. Visits therefore run concurrently.
#[test]
fn sixty_former_sessions_are_visited_in_four_rounds() {
    let delivery = Delivery::new(policy_settings(), SpoolInventory::default());
    let mut consumer =
        Consumer::new(consumer_settings(4), Intake::new(intake_settings(50), decoder()), delivery);
    let now = Instant::now();
    (0..4).for_each(|index| {
        consumer.handle_event(index, resumed(None), now);
        consumer.handle_event(index, SessionEvent::Subscribed { refusals: Vec::new() }, now);
    });
    consumer.handle_timeout(now);
    let (mut answered, mut rounds) = (4, 0);
    while answered < consumer.sessions() {
        let dialed = consumer.sessions();
        (answered..dialed).for_each(|index| consumer.handle_event(index, resumed(None), now));
        consumer.handle_timeout(now);
        (answered, rounds) = (dialed, rounds + 1);
    }
    assert_eq!(answered, 64);
    assert!(rounds <= 4, "{rounds} rounds of CONNACKs");
}

/// Empty sessions are kept until the last session is empty: a gap in the numbers would hide the
/// sessions after the gap from the next process.
#[test]
fn killed_process_leaves_no_gap_in_session_numbers() {
    let setup = Setup {
        consumer: consumer_settings(9),
        intake: intake_settings(50),
        delivery: policy_settings(),
        window: 20,
        members: 1,
    };
    let mut world = World::new(setup, Server::new(1), Instant::now());
    world.wait(Duration::from_secs(1));
    (0..16).for_each(|_| world.publish(1));
    world.wait(Duration::from_secs(10));
    world.server.set_mood(Mood::Refusing);
    world.publish(1); // the seventeenth message goes to the last of the nine sessions
    world.setup.consumer.connections = Connections::Fixed(1);
    world.broker.expiry = Some(Duration::from_secs(30));
    world.kill();
    world.wait(Duration::from_secs(10));
    assert_eq!(world.broker.sessions.len(), 9, "no session is ended before the last one is empty");
    world.kill();
    world.server.set_mood(Mood::Fine);
    world.wait(Duration::from_secs(60));
    world.recover();
    assert!(world.missing().is_empty());
    assert_eq!(world.broker.sessions.len(), 1);
}

/// An empty session waits for the sessions with higher indices. It is ended when the search is
/// complete, even if no other event follows.
#[test]
fn empty_former_session_is_ended_when_the_search_completes() {
    let delivery = Delivery::new(policy_settings(), SpoolInventory::default());
    let mut consumer =
        Consumer::new(consumer_settings(1), Intake::new(intake_settings(50), decoder()), delivery);
    let mut now = Instant::now();
    let disconnected = || SessionEvent::Disconnected { taken_over: false, why: String::new() };
    consumer.handle_event(0, resumed(None), now);
    consumer.handle_event(0, SessionEvent::Subscribed { refusals: Vec::new() }, now);
    consumer.handle_timeout(now);
    assert_eq!(consumer.sessions(), 4, "the next three indices are visited");

    // Only the first of the visited sessions exists. It is empty before the other visits end.
    consumer.handle_event(1, resumed(None), now);
    consumer.handle_timeout(now);
    assert_eq!(consumer.sessions(), 5, "a found session adds one more index");
    for _ in 0..2 {
        consumer.handle_event(1, SessionEvent::Unsubscribed { refusals: Vec::new() }, now);
        now += Duration::from_secs(2);
        consumer.handle_timeout(now);
    }
    for absent in 2..5 {
        consumer.handle_event(absent, new_session(None), now);
        consumer.handle_event(absent, disconnected(), now);
    }
    let last_command = |consumer: &mut Consumer| {
        std::iter::from_fn(|| consumer.session_mut(1).poll_command()).last()
    };
    assert_eq!(last_command(&mut consumer), Some(SessionCommand::Unsubscribe));
    consumer.handle_timeout(now);
    assert_eq!(
        last_command(&mut consumer),
        Some(SessionCommand::Disconnect { end_session: false }),
        "the session itself is ended on the next connection"
    );
}

/// Prometheus treats a counter that falls as restarted, and adds its whole value.
#[test]
fn unfinished_visit_stays_counted_when_its_session_consumes() {
    let delivery = Delivery::new(policy_settings(), SpoolInventory::default());
    let settings = ConsumerConfig {
        connections: Connections::Auto,
        window_wanted: 4_000,
        ..consumer_settings(1)
    };
    let mut consumer =
        Consumer::new(settings, Intake::new(intake_settings(50), decoder()), delivery);
    let now = Instant::now();
    let go_live = |consumer: &mut Consumer, index, window| {
        consumer.handle_event(index, resumed(Some(window)), now);
        consumer.handle_event(index, SessionEvent::Subscribed { refusals: Vec::new() }, now);
    };
    (0..4).for_each(|index| go_live(&mut consumer, index, 1_000));
    consumer.handle_timeout(now);
    let cut = |taken_over| SessionEvent::Disconnected { taken_over, why: String::new() };
    consumer.handle_event(4, resumed(Some(1_000)), now);
    consumer.handle_event(4, cut(true), now);
    consumer.handle_timeout(now);
    let expected = FormerSessionTotals { found: 1, unfinished: 1, contested: 1, expired: 0 };
    assert_eq!((consumer.totals().former_sessions, consumer.sessions()), (expected, 8));

    // The broker's window is smaller than before, so the process needs one more session.
    consumer.handle_event(0, cut(false), now);
    consumer.handle_timeout(now + Duration::from_secs(60));
    go_live(&mut consumer, 0, 500);
    consumer.handle_timeout(now + Duration::from_secs(60));
    assert_eq!(
        consumer.session_mut(4).connection(),
        ConnectionState::Connecting,
        "the visited session begins to consume"
    );
    assert_eq!(consumer.totals().former_sessions, expected);

    // The session makes the process unready once it has been subscribed and then disconnected.
    let is_reported = |consumer: &Consumer| {
        consumer.unready_reasons(now).iter().any(|reason| reason.starts_with("session 4:"))
    };
    assert!(!is_reported(&consumer));
    go_live(&mut consumer, 4, 1_000);
    consumer.handle_event(4, cut(false), now);
    assert!(is_reported(&consumer));
}

/// The second former session exists in every case. The first one has expired, is taken over, or
/// does not respond. The last case is `milepost drain`, which has no consuming session: it visits
/// every index, and counts no session as expired, because it does not know how many sessions there
/// were.
#[test]
fn expired_session_is_logged_once_if_a_later_session_exists() {
    let disconnected = |taken_over| SessionEvent::Disconnected { taken_over, why: String::new() };
    let one_found = FormerSessionTotals { found: 1, ..FormerSessionTotals::default() };
    let cases = [
        (
            1,
            vec![new_session(None), disconnected(false)],
            FormerSessionTotals { expired: 1, ..one_found },
        ),
        (
            1,
            vec![resumed(None), disconnected(true)],
            FormerSessionTotals { found: 2, unfinished: 1, contested: 1, ..one_found },
        ),
        (1, vec![], one_found),
        (0, vec![new_session(None), disconnected(false)], one_found),
    ];
    for (consuming, events_of_first, totals) in cases {
        let delivery = Delivery::new(policy_settings(), SpoolInventory::default());
        let intake = Intake::new(intake_settings(50), decoder());
        let (mut consumer, now) =
            (Consumer::new(consumer_settings(consuming), intake, delivery), Instant::now());
        if consuming > 0 {
            consumer.handle_event(0, resumed(None), now);
            consumer.handle_event(0, SessionEvent::Subscribed { refusals: Vec::new() }, now);
        }
        consumer.handle_timeout(now);
        events_of_first.into_iter().for_each(|event| consumer.handle_event(consuming, event, now));
        consumer.handle_event(consuming + 1, resumed(None), now);
        consumer.handle_timeout(now);
        assert_eq!(
            consumer.totals().former_sessions.expired,
            0,
            "sessions count as expired only after every visit has ended"
        );
        for absent in consuming + 2..consumer.sessions() {
            consumer.handle_event(absent, new_session(None), now);
            consumer.handle_event(absent, disconnected(false), now);
        }
        (0..2).for_each(|_| consumer.handle_timeout(now));
        assert_eq!(consumer.totals().former_sessions, totals);
        let lines = std::iter::from_fn(|| consumer.poll_notice()).map(|notice| notice.to_string());
        let is_expiry_line = |line: &String| line.starts_with("1 former session was gone");
        assert_eq!(lines.filter(is_expiry_line).count() as u64, totals.expired);
    }
}

#[test]
fn unfinished_visit_stays_counted_when_the_process_leaves() {
    let delivery = Delivery::new(policy_settings(), SpoolInventory::default());
    let mut consumer =
        Consumer::new(consumer_settings(0), Intake::new(intake_settings(50), decoder()), delivery);
    let now = Instant::now();
    consumer.handle_timeout(now);
    consumer.handle_event(0, resumed(None), now);
    consumer.handle_event(
        0,
        SessionEvent::Disconnected { taken_over: true, why: String::new() },
        now,
    );
    let expected = FormerSessionTotals { found: 1, unfinished: 1, contested: 1, expired: 0 };
    assert_eq!(consumer.totals().former_sessions, expected);
    consumer.leave(Leave::KeepSession, now);
    consumer.handle_timeout(now);
    assert_eq!(consumer.totals().former_sessions, expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// A process that dies during a visit leaves no gap that hides a session from its successor.
    #[test]
    fn next_process_continues_an_interrupted_visit(
        consuming in 1_usize..5,
        former in 1_usize..30,
        kills in prop::collection::vec(1_u64..4_000, 0..4),
    ) {
        let mut world = shrink(consuming, former, Duration::from_secs(10), &kills);
        world.recover();
        let missing = world.missing();
        prop_assert!(missing.is_empty(), "lost: {missing:?}");
        prop_assert_eq!(world.broker.sessions.len(), consuming);
    }
}
