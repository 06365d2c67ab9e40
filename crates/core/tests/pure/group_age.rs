//! Tests the age of batches in a large group. The age never exceeds its bound. A batch closes
//! earlier if the broker, a shutdown or another limit requires it.

use std::time::{Duration, Instant};

use milepost_core::session::events::Leave;
use proptest::prelude::*;

use crate::model::schedule::{plain, play, setup, step};
use crate::model::server::Server;
use crate::model::{Setup, World};
use crate::rows::intake_settings;

const AGE_MAX: Duration = Duration::from_secs(1);
/// `batch.members_age_max`: upper bound of a batch's age in a large group.
const MEMBERS_AGE_MAX: Duration = Duration::from_secs(8);

/// Returns the setup of a member of a group of this size, with one session and batches of 1,000
/// rows.
fn group_of(members: u32) -> Setup {
    let mut setup = plain();
    setup.intake = intake_settings(1_000);
    setup.consumer.members_age_max = MEMBERS_AGE_MAX;
    setup.members = members;
    setup
}

/// Returns the time until the broker receives the next acknowledgement, in milliseconds. The time
/// is measured in steps of 50 ms, up to 20,000 ms.
fn acknowledged_after_ms(world: &mut World<Server>) -> u64 {
    let acked = world.acked.len();
    let mut waited_ms = 0;
    while world.acked.len() == acked && waited_ms < 20_000 {
        world.wait(Duration::from_millis(50));
        waited_ms += 50;
    }
    waited_ms
}

#[test]
fn batch_waits_longer_with_more_members_up_to_its_bound() {
    for (members, seconds) in
        [(0, 1), (1, 1), (2, 1), (3, 1), (4, 2), (10, 5), (16, 8), (100, 8), (u32::MAX, 8)]
    {
        let mut world = World::new(group_of(members), Server::new(1), Instant::now());
        world.publish(1);
        let waited_ms = acknowledged_after_ms(&mut world);
        let expected_ms = if members == 3 { 1_500 } else { seconds * 1_000 };
        assert!(
            (expected_ms..expected_ms + 150).contains(&waited_ms),
            "{members} members: {waited_ms} ms"
        );
        assert_eq!(world.consumer.totals().batch_age_max.as_millis(), u128::from(expected_ms));
    }
}

#[test]
fn group_size_has_no_effect_without_members_age_max() {
    let mut setup = group_of(100);
    setup.consumer.members_age_max = Duration::ZERO;
    let mut world = World::new(setup, Server::new(1), Instant::now());
    world.publish(1);
    assert!((1_000..1_150).contains(&acknowledged_after_ms(&mut world)));
    assert!(!world.notices.iter().any(|line| line.contains("members")), "{:?}", world.notices);
}

#[test]
fn batch_age_is_logged_only_when_it_changes() {
    let mut world = World::new(group_of(16), Server::new(1), Instant::now());
    for members in [16, 16, 40, 16, 2, 1] {
        world.consumer.set_members(members);
        world.turn();
    }
    let lines: Vec<_> = world.notices.iter().filter(|line| line.contains("members")).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("the group has 16 members: a batch closes 8s after"), "{lines:?}");
    assert!(lines[1].starts_with("the group has 2 members: a batch closes 1s after"), "{lines:?}");
}

#[test]
fn smaller_group_shortens_the_age_of_the_open_batch() {
    let mut world = World::new(group_of(16), Server::new(1), Instant::now());
    world.publish(1);
    world.wait(Duration::from_secs(3));
    assert_eq!(world.acked.len(), 0);
    world.consumer.set_members(1);
    world.wait(Duration::from_millis(200));
    assert_eq!(world.acked.len(), 1);
}

#[test]
fn full_window_flushes_at_once_in_a_large_group() {
    let mut setup = group_of(16);
    setup.window = 8;
    let mut world = World::new(setup, Server::new(1), Instant::now());
    (0..8).for_each(|_| world.publish(1));
    world.wait(Duration::from_millis(200));
    assert_eq!(world.acked.len(), 8);
}

#[test]
fn half_full_window_flushes_after_age_max_in_a_large_group() {
    for (messages, expected_ms) in [(3, 8_000), (4, 1_000)] {
        let mut setup = group_of(16);
        setup.window = 8;
        let mut world = World::new(setup, Server::new(1), Instant::now());
        (0..messages).for_each(|_| world.publish(1));
        let waited_ms = acknowledged_after_ms(&mut world);
        assert!(
            (expected_ms..expected_ms + 150).contains(&waited_ms),
            "{messages} messages: {waited_ms} ms"
        );
    }
}

#[test]
fn full_batch_closes_at_once_in_a_large_group() {
    let mut world = World::new(group_of(16), Server::new(1), Instant::now());
    (0..10).for_each(|_| world.publish(100));
    world.wait(Duration::from_millis(200));
    assert_eq!(world.acked.len(), 1_000);
}

#[test]
fn leaving_member_of_a_large_group_flushes_at_once() {
    for leave in [Leave::KeepSession, Leave::Unsubscribe] {
        let mut world = World::new(group_of(16), Server::new(1), Instant::now());
        (0..10).for_each(|_| world.publish(1));
        world.turn();
        world.leave(leave);
        world.wait(Duration::from_millis(500));
        assert_eq!(world.acked.len(), 10, "{leave:?}");
    }
}

proptest! {
    #![proptest_config(crate::cases::cases(64))]

    /// After any schedule, a healthy member acknowledges a fix within the bound. The bound is at
    /// most `MEMBERS_AGE_MAX`, however large the group is.
    #[test]
    fn fix_is_acknowledged_within_the_bound_after_any_schedule(
        setup in setup(),
        members in 1_u32..200,
        seed: u64,
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let mut setup = Setup { members, ..setup };
        setup.consumer.members_age_max = MEMBERS_AGE_MAX;
        let mut world = World::new(setup, Server::new(seed), Instant::now());
        for step in steps {
            play(&mut world, step);
        }
        world.recover();
        let missing = world.missing();
        prop_assert!(missing.is_empty(), "lost: {missing:?}");
        world.wait(Duration::from_secs(120));
        let bound = (AGE_MAX * members / 2).clamp(AGE_MAX, MEMBERS_AGE_MAX);
        for _ in 0..5 {
            world.publish(1);
            let is_erased = world.erased;
            let waited_ms = acknowledged_after_ms(&mut world);
            let bound_ms = u64::try_from(bound.as_millis()).unwrap() + 400;
            // Rows of an erased driver are exempt: they are acknowledged without an insert.
            prop_assert!(
                is_erased || waited_ms <= bound_ms,
                "{waited_ms} ms with {members} members"
            );
        }
    }
}
