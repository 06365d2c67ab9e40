//! Tests large groups, of a hundred members: the work of one member at its start does not depend on
//! the size of the group. In a rollout, the number of requests between all members grows more
//! slowly than the square of the group's size.

use std::time::{Duration, Instant};

use milepost_core::peers::decision::{Decision, FollowUp, Inquiry};
use milepost_core::peers::member::Member;
use milepost_core::peers::waves::Waves;

use crate::model::World;
use crate::model::schedule::plain;
use crate::model::server::Server;
use crate::rows::{consumer_settings, nodes};

struct Group {
    members: Vec<Member>,
    requests: usize,
    rng: fastrand::Rng,
}

impl Group {
    fn new(members: usize) -> Self {
        let member =
            |number| Member::new(&format!("milepost-{number}"), "milepost", &["d/+".to_owned()]);
        let rng = fastrand::Rng::with_seed(members as u64);
        Self { members: (0..members).map(member).collect(), requests: 0, rng }
    }

    /// Sends SIGTERM to one member, which asks its peers as the shell does: the answers arrive in
    /// the order of the requests.
    fn leave(&mut self, leaving: usize) -> Decision {
        self.members[leaving].set_leaving();
        let mut inquiry = Inquiry::new(self.members[leaving].status(true, 0));
        let mut waves = Waves::new(self.rng.u64(..));
        (0..self.members.len()).for_each(|peer| waves.add(peer));
        let mut pending = std::collections::VecDeque::new();
        loop {
            while let Some(peer) = waves.start() {
                self.requests += 1;
                pending.push_back(peer);
            }
            let Some(peer) = pending.pop_front() else { return inquiry.decision() };
            waves.answered();
            let answer = Ok(self.members[peer].status(true, 0));
            if inquiry.handle_answer(&format!("10.0.0.{peer}:9464"), answer) == FollowUp::Stop {
                return inquiry.decision();
            }
        }
    }

    /// Returns the requests per member in a rolling restart, from the highest member down. Each
    /// member is back before the next one leaves.
    fn requests_per_member(size: usize) -> f64 {
        let mut group = Self::new(size);
        for leaving in (0..size).rev() {
            let decision = group.leave(leaving);
            assert_eq!(matches!(decision, Decision::Keep { .. }), leaving == 0, "{decision}");
            let (name, topics) = (format!("milepost-{leaving}"), ["d/+".to_owned()]);
            group.members[leaving] = Member::new(&name, "milepost", &topics);
        }
        group.requests as f64 / size as f64
    }
}

#[test]
fn requests_in_a_rollout_grow_slower_than_group_size_squared() {
    let [small, large] = [10, 100].map(Group::requests_per_member);
    eprintln!("requests of a member in a rollout: {small} with 10 members, {large} with 100");
    assert!(large < 10.0, "{large} requests per member");
    assert!(large < 2.5 * small, "{large} requests per member with 100 members, {small} with 10");
}

#[test]
fn member_asks_few_peers_when_half_of_the_group_leaves() {
    let mut group = Group::new(100);
    (50..100).for_each(|leaving| group.members[leaving].set_leaving());
    for leaving in 50..100 {
        assert!(matches!(group.leave(leaving), Decision::Leave { .. }));
    }
    assert!(group.requests < 50 * 5, "{} requests from 50 members", group.requests);
}

#[test]
fn lowest_member_keeps_its_session_when_all_leave_at_once() {
    let mut group = Group::new(100);
    (0..100).for_each(|leaving| group.members[leaving].set_leaving());
    for leaving in 0..100 {
        assert!(matches!(group.leave(leaving), Decision::Keep { certain: true, .. }));
    }
    assert_eq!(group.requests, 100 * 100, "each member needs an answer from every member");
}

/// At its start, a member connects its own sessions, and visits former sessions.
#[test]
fn connections_at_start_are_bounded_by_the_number_of_nodes() {
    for number in [1, 2, 8] {
        let mut setup = plain();
        setup.consumer = consumer_settings(4);
        setup.consumer.nodes = nodes(number);
        let mut world = World::new(setup, Server::new(1), Instant::now());
        world.wait(Duration::from_secs(60));
        let sessions = world.consumer.sessions();
        let own = 4.max(number);
        assert!(sessions <= own + 3 + number, "{sessions} sessions on {number} nodes");
    }
}
