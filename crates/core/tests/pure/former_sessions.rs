//! A process with fewer sessions than its predecessor: the broker still queues messages for the
//! surplus ones.

use std::time::{Duration, Instant};

use milepost_core::consumer::{Connections, Consumer, ConsumerConfig, FormerTotals};
use milepost_core::delivery::SpoolInventory;
use milepost_core::delivery::policy::Delivery;
use milepost_core::intake::Intake;
use milepost_core::session::events::{ConnectionState, Leave, SessionCommand, SessionEvent};
use proptest::prelude::*;

use crate::model::server::{Mood, Server};
use crate::model::{Backend as _, Setup, World};
use crate::rows::{connected, consumer_settings, decoder, intake_settings, policy_settings};

/// Runs with `former` sessions more than `members`, then with `members`, while devices publish.
/// Each of `kills` ends a process this many milliseconds after its start.
fn shrunk(members: usize, former: usize, expiry: Duration, kills: &[u64]) -> World<Server> {
    let setup = Setup {
        consumer: consumer_settings(members + former),
        intake: intake_settings(50),
        delivery: policy_settings(),
        window: 20,
        members: 1,
    };
    let mut world = World::new(setup, Server::new(1), Instant::now());
    world.wait(Duration::from_secs(1));
    (0..200).for_each(|_| world.publish(1, true, false));
    world.setup.consumer.connections = Connections::Fixed(members);
    world.broker.expiry = Some(expiry);
    world.kill();
    for kill in kills {
        world.publish(1, true, false);
        world.wait(Duration::from_millis(*kill));
        world.kill();
    }
    for _ in 0..100 {
        (0..20).for_each(|_| world.publish(1, true, false));
        world.wait(Duration::from_millis(250));
    }
    world
}

#[test]
fn former_sessions_are_emptied_before_any_of_them_expires() {
    let mut world = shrunk(4, 60, Duration::from_secs(10), &[]);
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
        world.consumer.totals().former,
        FormerTotals { found: 60, ..FormerTotals::default() }
    );
}

/// A broker's CONNACK can take a second under load, and messages wait in each session until it is
/// visited: so visits run at the same time.
#[test]
fn sixty_former_sessions_are_visited_within_four_answers() {
    let delivery = Delivery::new(policy_settings(), SpoolInventory::default());
    let mut it =
        Consumer::new(consumer_settings(4), Intake::new(intake_settings(50), decoder()), delivery);
    let now = Instant::now();
    (0..4).for_each(|index| {
        it.handle_event(index, connected(true, None), now);
        it.handle_event(index, SessionEvent::Subscribed { refusals: Vec::new() }, now);
    });
    it.handle_timeout(now);
    let (mut answered, mut rounds) = (4, 0);
    while answered < it.sessions() {
        let dialed = it.sessions();
        (answered..dialed).for_each(|index| it.handle_event(index, connected(true, None), now));
        it.handle_timeout(now);
        (answered, rounds) = (dialed, rounds + 1);
    }
    assert_eq!(answered, 64);
    assert!(rounds <= 4, "{rounds} rounds of answers");
}

/// Empty sessions are kept until the last one is empty: a gap would hide the sessions behind it
/// from the next process.
#[test]
fn killed_drain_leaves_no_gap_in_session_numbers() {
    let setup = Setup {
        consumer: consumer_settings(9),
        intake: intake_settings(50),
        delivery: policy_settings(),
        window: 20,
        members: 1,
    };
    let mut world = World::new(setup, Server::new(1), Instant::now());
    world.wait(Duration::from_secs(1));
    (0..16).for_each(|_| world.publish(1, true, false));
    world.wait(Duration::from_secs(10));
    world.server.mood(Mood::Refusing);
    world.publish(1, true, false); // the seventeenth: to the last of nine
    world.setup.consumer.connections = Connections::Fixed(1);
    world.broker.expiry = Some(Duration::from_secs(30));
    world.kill();
    world.wait(Duration::from_secs(10));
    assert_eq!(world.broker.sessions.len(), 9, "none is ended before the last one is empty");
    world.kill();
    world.server.mood(Mood::Fine);
    world.wait(Duration::from_secs(60));
    world.recover();
    assert!(world.missing().is_empty());
    assert_eq!(world.broker.sessions.len(), 1);
}

/// An empty session waits for those behind it, and ends when the last one is known, even if no
/// other event follows.
#[test]
fn empty_former_session_ends_with_the_search() {
    let delivery = Delivery::new(policy_settings(), SpoolInventory::default());
    let mut it =
        Consumer::new(consumer_settings(1), Intake::new(intake_settings(50), decoder()), delivery);
    let mut now = Instant::now();
    let gone = || SessionEvent::Disconnected { taken_over: false, why: String::new() };
    it.handle_event(0, connected(true, None), now);
    it.handle_event(0, SessionEvent::Subscribed { refusals: Vec::new() }, now);
    it.handle_timeout(now);
    assert_eq!(it.sessions(), 4, "it visits the next three indices");

    // The first one exists, the others do not, and the last visit takes longer than all the others.
    it.handle_event(1, connected(true, None), now);
    it.handle_timeout(now);
    assert_eq!(it.sessions(), 5, "and one more");
    for _ in 0..2 {
        it.handle_event(1, SessionEvent::Unsubscribed { refusals: Vec::new() }, now);
        now += Duration::from_secs(2);
        it.handle_timeout(now);
    }
    for absent in 2..5 {
        it.handle_event(absent, connected(false, None), now);
        it.handle_event(absent, gone(), now);
    }
    let commands =
        |it: &mut Consumer| std::iter::from_fn(|| it.session_mut(1).poll_command()).last();
    assert_eq!(commands(&mut it), Some(SessionCommand::Unsubscribe));
    it.handle_timeout(now);
    assert_eq!(
        commands(&mut it),
        Some(SessionCommand::Disconnect { end_session: false }),
        "the next connection ends it"
    );
}

/// Prometheus treats a falling counter as a restarted one, and adds its whole value.
#[test]
fn unfinished_visit_stays_counted_when_it_becomes_a_member() {
    let delivery = Delivery::new(policy_settings(), SpoolInventory::default());
    let settings = ConsumerConfig {
        connections: Connections::Auto,
        window_wanted: 4_000,
        ..consumer_settings(1)
    };
    let mut it = Consumer::new(settings, Intake::new(intake_settings(50), decoder()), delivery);
    let now = Instant::now();
    let live = |it: &mut Consumer, index, window| {
        it.handle_event(index, connected(true, Some(window)), now);
        it.handle_event(index, SessionEvent::Subscribed { refusals: Vec::new() }, now);
    };
    (0..4).for_each(|index| live(&mut it, index, 1_000));
    it.handle_timeout(now);
    let cut = |taken_over| SessionEvent::Disconnected { taken_over, why: String::new() };
    it.handle_event(4, connected(true, Some(1_000)), now);
    it.handle_event(4, cut(true), now);
    it.handle_timeout(now);
    let left = FormerTotals { found: 1, unfinished: 1, contested: 1, expired: 0 };
    assert_eq!((it.totals().former, it.sessions()), (left, 8));

    // The broker's window is smaller than before, so the process needs one more member.
    it.handle_event(0, cut(false), now);
    it.handle_timeout(now + Duration::from_secs(60));
    live(&mut it, 0, 500);
    it.handle_timeout(now + Duration::from_secs(60));
    assert_eq!(it.session_mut(4).connection(), ConnectionState::Connecting, "a member");
    assert_eq!(it.totals().former, left);

    // It makes the process unready once it has lost its subscription.
    let is_told = |it: &Consumer| {
        it.unready_reasons(now).iter().any(|reason| reason.starts_with("session 4:"))
    };
    assert!(!is_told(&it));
    live(&mut it, 4, 1_000);
    it.handle_event(4, cut(false), now);
    assert!(is_told(&it));
}

/// The first former session has expired, is taken over, or does not respond; the second one exists.
/// `milepost drain` visits every index and counts none as expired, because it does not know how many
/// sessions there were.
#[test]
fn expired_session_is_logged_once_if_a_later_one_exists() {
    let gone = |taken_over| SessionEvent::Disconnected { taken_over, why: String::new() };
    let one = FormerTotals { found: 1, ..FormerTotals::default() };
    let cases = [
        (1, vec![connected(false, None), gone(false)], FormerTotals { expired: 1, ..one }),
        (
            1,
            vec![connected(true, None), gone(true)],
            FormerTotals { found: 2, unfinished: 1, contested: 1, ..one },
        ),
        (1, vec![], one),
        (0, vec![connected(false, None), gone(false)], one),
    ];
    for (members, first, totals) in cases {
        let delivery = Delivery::new(policy_settings(), SpoolInventory::default());
        let intake = Intake::new(intake_settings(50), decoder());
        let (mut it, now) =
            (Consumer::new(consumer_settings(members), intake, delivery), Instant::now());
        if members > 0 {
            it.handle_event(0, connected(true, None), now);
            it.handle_event(0, SessionEvent::Subscribed { refusals: Vec::new() }, now);
        }
        it.handle_timeout(now);
        first.into_iter().for_each(|event| it.handle_event(members, event, now));
        it.handle_event(members + 1, connected(true, None), now);
        it.handle_timeout(now);
        assert_eq!(it.totals().former.expired, 0, "not before every visit has ended");
        for absent in members + 2..it.sessions() {
            it.handle_event(absent, connected(false, None), now);
            it.handle_event(absent, gone(false), now);
        }
        (0..2).for_each(|_| it.handle_timeout(now));
        assert_eq!(it.totals().former, totals);
        let lines = std::iter::from_fn(|| it.poll_notice()).map(|notice| notice.to_string());
        let says_so = |line: &String| line.starts_with("1 former sessions were gone");
        assert_eq!(lines.filter(says_so).count() as u64, totals.expired);
    }
}

#[test]
fn unfinished_visit_stays_counted_when_the_process_leaves() {
    let delivery = Delivery::new(policy_settings(), SpoolInventory::default());
    let mut it =
        Consumer::new(consumer_settings(0), Intake::new(intake_settings(50), decoder()), delivery);
    let now = Instant::now();
    it.handle_timeout(now);
    it.handle_event(0, connected(true, None), now);
    it.handle_event(0, SessionEvent::Disconnected { taken_over: true, why: String::new() }, now);
    let left = FormerTotals { found: 1, unfinished: 1, contested: 1, expired: 0 };
    assert_eq!(it.totals().former, left);
    it.leave(Leave::KeepSession, now);
    it.handle_timeout(now);
    assert_eq!(it.totals().former, left);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// A process that dies during a visit leaves no gap that hides a session from its successor.
    #[test]
    fn next_process_continues_an_interrupted_visit(
        members in 1_usize..5,
        former in 1_usize..30,
        kills in prop::collection::vec(1_u64..4_000, 0..4),
    ) {
        let mut world = shrunk(members, former, Duration::from_secs(10), &kills);
        world.recover();
        let missing = world.missing();
        prop_assert!(missing.is_empty(), "lost: {missing:?}");
        prop_assert_eq!(world.broker.sessions.len(), members);
    }
}
