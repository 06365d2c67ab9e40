//! A process with fewer sessions than the one before it: what the broker goes on queueing for the others.

use std::time::{Duration, Instant};

use milepost::consumer::{Connections, FormerTotals};
use proptest::prelude::*;

use crate::model::server::{Mood, Server};
use crate::model::{Backend as _, Setup, World};
use crate::rows::{consumer_settings, intake_settings, policy_settings};

/// Runs with `former` sessions more than `members`, then with `members`, while devices publish. Each of `kills` ends a
/// process so many milliseconds after it began.
fn shrunk(members: usize, former: usize, expiry: Duration, kills: &[u64]) -> World<Server> {
    let setup = Setup {
        consumer: consumer_settings(members + former),
        intake: intake_settings(50),
        delivery: policy_settings(),
        window: 20,
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
    assert!(missing.is_empty(), "{} messages expired with sessions that nobody visited", missing.len());
    assert_eq!(world.broker.sessions.len(), 4, "former sessions are ended");
    assert_eq!(world.consumer.totals().former, FormerTotals { found: 60, ..FormerTotals::default() });
}

/// Sessions that are empty are there until the last one is: a gap before it would hide it from the next process.
#[test]
fn a_process_that_dies_while_the_last_former_session_is_full_leaves_no_gap_before_it() {
    let setup = Setup {
        consumer: consumer_settings(9),
        intake: intake_settings(50),
        delivery: policy_settings(),
        window: 20,
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// A process that dies in the midst of it leaves no gap that hides a session from the next one.
    #[test]
    fn a_visit_that_is_cut_short_is_taken_up_by_the_next_process(
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
