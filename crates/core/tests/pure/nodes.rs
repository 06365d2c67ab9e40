//! Tests the distribution of sessions over a broker's nodes: how they are spread, when they leave a
//! node, and which sessions a returning node gets.

use std::time::{Duration, Instant};

use milepost_core::consumer::nodes::{NODE_ANSWER_TIMEOUT, PATIENCE};
use milepost_core::consumer::{CONNECTIONS_MAX, Connections, Consumer};
use milepost_core::delivery::SpoolInventory;
use milepost_core::delivery::policy::Delivery;
use milepost_core::intake::Intake;
use milepost_core::session::events::{ConnectionState, Leave, SessionEvent};
use proptest::prelude::*;

use crate::model::schedule::plain;
use crate::model::server::Server;
use crate::model::{Setup, World};
use crate::rows::{
    connected, consumer_settings, decoder, intake_settings, new_session, nodes, policy_settings,
    resumed,
};

/// Builds a world with this many nodes, and runs it until every session is connected and the search
/// for former sessions has ended.
fn world(sessions: Connections, node_count: usize) -> World<Server> {
    let mut setup = Setup {
        consumer: consumer_settings(1),
        intake: intake_settings(5),
        delivery: policy_settings(),
        window: 100,
        members: 1,
    };
    (setup.consumer.connections, setup.consumer.nodes) = (sessions, nodes(node_count));
    let mut world = World::new(setup, Server::new(1), Instant::now());
    world.wait(Duration::from_secs(10));
    world
}

#[test]
fn sessions_are_spread_evenly_and_auto_counts_nodes() {
    assert_eq!(world(Connections::Fixed(4), 3).spread(), [2, 1, 1]);
    assert_eq!(world(Connections::Fixed(2), 3).spread(), [1, 1, 0], "at most one session per node");
    assert_eq!(world(Connections::Auto, 1).spread(), [4]);
    assert_eq!(world(Connections::Auto, 6).spread(), [1; 6]);
}

#[test]
fn disconnected_session_tries_its_own_node_first() {
    let mut world = world(Connections::Fixed(4), 2);
    for seconds in [20, 3, 3, 3, 3, 3, 20] {
        (0..4).for_each(|id| world.disconnect(id));
        world.wait(Duration::from_secs(seconds));
    }
    assert_eq!((world.spread(), world.broker.takeovers), (vec![2, 2], 0));
}

#[test]
fn suback_counts_as_reaching_the_node() {
    let mut world = world(Connections::Fixed(4), 2);
    for _ in 0..5 {
        (0..4).for_each(|id| world.disconnect(id));
        world.cut_at_suback = 8;
        world.wait(Duration::from_secs(30));
        assert_eq!((world.spread(), world.broker.takeovers), (vec![2, 2], 0));
    }
}

#[test]
fn returning_node_gets_a_new_session_and_no_session_moves_back() {
    let mut world = world(Connections::Fixed(4), 2);
    for dead in [false, true] {
        let (sessions, takeovers) = (world.consumer.sessions(), world.broker.takeovers);
        let sessions_on_node = usize::try_from(world.spread()[0]).unwrap();
        world.disconnect_node(0, dead);
        world.wait(PATIENCE / 2);
        assert_eq!(world.spread()[0], 0);
        assert_eq!(world.broker.takeovers, takeovers, "the node may still come back");
        world.wait(Duration::from_secs(1).saturating_sub(PATIENCE / 2));
        assert!(world.spread()[1] >= 4, "{:?}", world.spread());
        assert_eq!(world.broker.takeovers - takeovers, if dead { 0 } else { sessions_on_node });
        world.wait(Duration::from_secs(60));
        world.broker.unreachable.clear();
        let moved = world.broker.takeovers;
        world.wait(Duration::from_secs(10));
        assert_eq!(world.spread()[0], 1, "the node that returns gets a new session");
        assert_eq!(world.broker.takeovers, moved, "no session moves back");
        assert!(world.consumer.sessions() <= sessions + 1);
    }
}

/// The node accepts TCP connections but sends no CONNACK. It may be resuming a large session. So a
/// second client, which has no session, connects: if it gets no CONNACK either, the node hangs.
#[test]
fn session_leaves_a_hung_node_after_one_attempt() {
    let left_within = 2 * NODE_ANSWER_TIMEOUT + Duration::from_secs(1);
    let mut setup = Setup {
        consumer: consumer_settings(1),
        intake: intake_settings(5),
        delivery: policy_settings(),
        window: 100,
        members: 1,
    };
    (setup.consumer.connections, setup.consumer.nodes) = (Connections::Fixed(4), nodes(2));
    let mut starting = World::before_start(setup, Server::new(1), Instant::now());
    starting.broker.hung.insert(0);
    starting.kill();
    starting.wait(left_within);
    assert_eq!(starting.spread(), [0, 4]);

    let mut running = world(Connections::Fixed(4), 2);
    running.hang_node(0);
    running.wait(left_within);
    assert_eq!((running.spread(), running.broker.takeovers), (vec![0, 4], 2));
}

#[test]
fn restart_resumes_sessions_of_a_hung_node_before_they_expire() {
    let mut world = world(Connections::Fixed(4), 2);
    world.broker.expiry = Some(Duration::from_secs(45));
    world.broker.hung.insert(1);
    world.kill();
    world.wait(Duration::from_secs(40));
    assert_eq!((world.spread(), world.broker.expired.len()), (vec![4, 0], 0));
    // All sessions are on the first node now. This node hangs when the process is restarted; the
    // second node is healthy.
    world.broker.hung = [0].into();
    world.kill();
    world.wait(Duration::from_secs(40));
    assert_eq!((world.spread()[1], world.broker.expired.len()), (4, 0));
}

/// If every move were logged at once, an outage of the whole broker would log a line per attempt
/// and session.
#[test]
fn session_without_a_node_is_logged_as_moved_once_connected() {
    let mut world = world(Connections::Fixed(4), 2);
    let moves = [["n0", "n1"], ["n1", "n0"]];
    let phrases =
        moves.map(|[from, to]| format!("node {from}:1883, which was unusable, for {to}:1883"));
    let moved = |world: &World<Server>| {
        let is_move_line = |line: &&String| phrases.iter().any(|phrase| line.contains(phrase));
        world.notices.iter().filter(is_move_line).count()
    };
    (0..2).for_each(|node| world.disconnect_node(node, false));
    world.wait(Duration::from_secs(600));
    assert_eq!((world.spread(), moved(&world)), (vec![0, 0], 0));
    world.broker.unreachable.clear();
    world.wait(Duration::from_secs(30));
    assert!(world.spread().iter().sum::<u64>() >= 4);
    assert_eq!(moved(&world), world.broker.takeovers);
    assert!(moved(&world) > 0);
}

/// Without backoff, the session would change nodes every 750 ms while the broker refuses it.
#[test]
fn session_refused_by_every_node_backs_off() {
    let mut world = world(Connections::Fixed(3), 3);
    world.broker_up = false; // the other two sessions stay connected
    world.disconnect(0);
    let (mut tried_nodes, mut tried_at) = (Vec::new(), Vec::new());
    while world.elapsed < Duration::from_secs(20) {
        world.turn();
        let now = world.instant();
        let at = world.consumer.poll_timeout(now).expect("a deadline for the next attempt");
        world.wait(at - now);
        let next = world.consumer.poll_timeout(at);
        assert!(next.is_none_or(|next| next > at), "a deadline does not advance");
        if world.consumer.session(0).connection() == ConnectionState::Connecting {
            let (node, _) = world.consumer.dial(0, at);
            tried_nodes.push(node);
            tried_at.push(world.elapsed);
            world.disconnect(0);
        }
    }
    let is_first_try = |index: &usize| !tried_nodes[..*index].contains(&tried_nodes[*index]);
    let third_node = (0..tried_nodes.len())
        .filter(is_first_try)
        .nth(2)
        .expect("each of the three nodes is tried");
    let pause = tried_at[third_node + 1] - tried_at[third_node];
    assert!(
        pause >= Duration::from_secs(1),
        "paused for {pause:?}: {tried_nodes:?} at {tried_at:?}"
    );
}

#[test]
fn fewer_sessions_than_nodes_add_no_session() {
    let mut world = world(Connections::Fixed(1), 2);
    world.disconnect_node(0, true);
    world.wait(Duration::from_secs(1));
    assert_eq!(world.spread(), [0, 1]);
    world.broker.unreachable.clear();
    world.wait(Duration::from_secs(60));
    assert_eq!(world.spread(), [0, 1]);
}

#[test]
fn node_without_session_is_logged_once_at_the_session_limit() {
    for (sessions, lines) in [(CONNECTIONS_MAX - 1, 0), (CONNECTIONS_MAX, 1)] {
        let mut world = world(Connections::Fixed(sessions), 2);
        world.disconnect_node(0, true);
        world.wait(Duration::from_secs(2));
        world.broker.unreachable.clear();
        world.wait(Duration::from_secs(60));
        let is_limit_line =
            |line: &&String| line.contains("n0:1883") && line.contains("64 sessions already");
        let logged = world.notices.iter().filter(is_limit_line).count();
        assert_eq!((logged, world.spread()[0]), (lines, 1 - lines as u64), "{sessions} sessions");
    }
}

#[test]
fn leaving_member_does_not_wait_for_a_dead_node() {
    let mut world = world(Connections::Fixed(2), 2);
    world.disconnect_node(0, true);
    world.wait(Duration::from_secs(2));
    assert_eq!(world.spread(), [0, 2], "a third session waits for the dead node");
    world.leave(Leave::Unsubscribe);
    world.wait(Duration::from_secs(5));
    assert!(world.consumer.has_ended());
}

/// The broker has subscribed the session, but its SUBACK has not arrived.
#[test]
fn leaving_unsubscribes_a_session_whose_node_came_back() {
    let mut world = world(Connections::Fixed(2), 2);
    world.disconnect_node(0, true);
    world.wait(Duration::from_secs(2));
    while world.consumer.session(2).connection() != ConnectionState::Connecting {
        world.broker_up = false;
        world.wait(Duration::from_millis(100));
    }
    let now = world.instant();
    world.consumer.dial(2, now);
    let session_present = world.broker.connect(2, 0, false);
    world.consumer.handle_event(2, connected(session_present, None), now);
    world.leave(Leave::Unsubscribe);
    world.wait(Duration::from_secs(10));
    assert!(world.consumer.has_ended());
    assert!(world.broker.sessions.values().all(|session| !session.subscribed));
}

#[test]
fn dns_change_moves_sessions_to_the_listed_nodes() {
    let mut world = world(Connections::Fixed(2), 2);
    let [_, second, third] = nodes(3).try_into().unwrap();
    world.consumer.set_nodes(&[second, third]);
    world.setup.consumer.nodes = nodes(3);
    world.wait(Duration::from_secs(10));
    assert_eq!(
        world.spread(),
        [1, 1],
        "the session on the first node stays, and the third node gets a session"
    );
    world.disconnect_node(0, true);
    world.wait(Duration::from_millis(100));
    assert_eq!(world.spread().iter().sum::<u64>(), 3, "the first node is left at once");
}

#[test]
fn single_node_gets_no_extra_session_when_its_address_changes() {
    let mut world = world(Connections::Fixed(1), 1);
    world.setup.consumer.nodes = nodes(2);
    world.consumer.set_nodes(&nodes(2)[1..]);
    world.wait(Duration::from_secs(10));
    assert!(
        world.notices.iter().all(|line| !line.contains("one more session")),
        "{:?}",
        world.notices
    );
}

/// The fifth session was taken over while it was being emptied. The broker may hold messages in it,
/// which would otherwise wait for the new node.
#[test]
fn unfinished_visit_does_not_wait_for_a_new_node() {
    let mut setup = plain();
    (setup.consumer.connections, setup.consumer.nodes) = (Connections::Auto, nodes(2));
    let delivery = Delivery::new(setup.delivery, SpoolInventory::default());
    let mut consumer =
        Consumer::new(setup.consumer, Intake::new(setup.intake, decoder()), delivery);
    let now = Instant::now();
    let disconnected = |taken_over| SessionEvent::Disconnected { taken_over, why: String::new() };
    for session in 0..4 {
        consumer.handle_event(session, resumed(None), now);
        consumer.handle_event(session, SessionEvent::Subscribed { refusals: Vec::new() }, now);
    }
    consumer.handle_timeout(now);
    consumer.handle_event(4, resumed(None), now);
    consumer.handle_event(4, disconnected(true), now);
    consumer.handle_timeout(now);
    for absent in 5..consumer.sessions() {
        consumer.handle_event(absent, new_session(None), now);
        consumer.handle_event(absent, disconnected(false), now);
    }
    consumer.handle_timeout(now);
    consumer.set_nodes(&nodes(3));
    consumer.handle_timeout(now);
    let lines = std::iter::from_fn(|| consumer.poll_notice()).map(|notice| notice.to_string());
    let lines: Vec<_> = lines.filter(|line| line.starts_with("one more session")).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    let waits = lines.iter().position(|line| line.contains("was on the broker's node n2:1883"));
    assert_eq!(waits, Some(1), "the sixth session waits for the new node: {lines:?}");
}

/// A visit leaves an unreachable node at once. Its session is then needed, because the windows are
/// smaller than they were.
#[test]
fn session_that_was_visited_first_tries_its_own_node_as_long_as_others() {
    let mut setup = plain();
    (setup.consumer.connections, setup.consumer.nodes) = (Connections::Auto, nodes(2));
    setup.consumer.window_wanted = 4_000;
    let delivery = Delivery::new(setup.delivery, SpoolInventory::default());
    let mut consumer =
        Consumer::new(setup.consumer, Intake::new(setup.intake, decoder()), delivery);
    let mut now = Instant::now();
    let cut = || SessionEvent::Disconnected { taken_over: false, why: String::new() };
    let go_live = |consumer: &mut Consumer, session, window, now| {
        consumer.dial(session, now);
        consumer.handle_event(session, resumed(Some(window)), now);
        consumer.handle_event(session, SessionEvent::Subscribed { refusals: Vec::new() }, now);
        consumer.handle_timeout(now);
    };
    (0..4).for_each(|session| go_live(&mut consumer, session, 1_000, now));
    for absent in 4..consumer.sessions() {
        consumer.dial(absent, now);
        consumer.handle_event(absent, new_session(None), now);
        consumer.handle_event(absent, cut(), now);
    }
    consumer.handle_timeout(now);
    consumer.handle_event(0, cut(), now);
    now += Duration::from_secs(6);
    consumer.handle_timeout(now);
    go_live(&mut consumer, 0, 500, now);
    assert_eq!(consumer.session(4).connection(), ConnectionState::Connecting);
    go_live(&mut consumer, 4, 1_000, now);

    for session in [0, 4] {
        consumer.handle_event(session, cut(), now);
        consumer.handle_timeout(now);
        let (lost_at, mut tried_nodes) = (now, Vec::new());
        while tried_nodes.first() == tried_nodes.last() {
            now += Duration::from_millis(1);
            consumer.handle_timeout(now);
            if consumer.session(session).connection() == ConnectionState::Connecting {
                let (node, _) = consumer.dial(session, now);
                tried_nodes.push(node);
                consumer.handle_event(session, cut(), now);
                consumer.handle_timeout(now);
            }
        }
        let left_after = now - lost_at;
        assert!(left_after >= PATIENCE, "session {session} left its node after {left_after:?}");
        now += Duration::from_secs(20);
        consumer.handle_timeout(now);
        go_live(&mut consumer, session, 1_000, now);
    }
}

#[test]
fn restart_resumes_sessions_that_moved_to_another_node() {
    let mut world = world(Connections::Fixed(4), 2);
    world.disconnect_node(0, false);
    world.wait(Duration::from_secs(2));
    (0..40).for_each(|_| world.publish(1));
    world.broker.expiry = Some(Duration::from_secs(10));
    world.kill();
    world.wait(Duration::from_secs(9));
    assert_eq!(world.spread(), [0, 4]);
    world.recover();
    assert!(world.missing().is_empty());
}

#[test]
fn former_session_is_found_after_sessions_that_wait_for_nodes() {
    let mut world = world(Connections::Fixed(4), 4);
    (1..4).for_each(|node| world.disconnect_node(node, true));
    world.wait(Duration::from_secs(10));
    world.setup.consumer.nodes = nodes(5);
    world.consumer.set_nodes(&nodes(5));
    world.wait(Duration::from_secs(10));
    assert_eq!(
        world.spread(),
        [4, 0, 0, 0, 1],
        "the new session follows three sessions that wait for their nodes and that the broker does \
         not have"
    );
    world.broker.expiry = Some(Duration::from_secs(10));
    world.kill();
    world.wait(Duration::from_secs(30));
    assert!(world.broker.expired.is_empty(), "messages expired: {:?}", world.broker.expired);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// In any sequence of node failures, no session stays without a responding node for long.
    #[test]
    fn sessions_move_to_responding_nodes(
        sessions in 1_usize..7,
        node_count in 1_usize..4,
        turns in prop::collection::vec((0_usize..3, any::<bool>(), 100_u64..8_000), 0..20),
    ) {
        let mut world = world(Connections::Fixed(sessions), node_count);
        for (node, dead, ms) in turns {
            if world.broker.unreachable.contains(&node) {
                world.broker.unreachable.remove(&node);
            } else if node < node_count && world.broker.unreachable.len() + 1 < node_count {
                world.disconnect_node(node, dead);
                world.wait(Duration::from_secs(30)); // another node may have been down already
                let live = world.spread().iter().sum::<u64>();
                prop_assert!(live >= sessions as u64, "{:?}", world.spread());
            }
            (0..5).for_each(|_| world.publish(1));
            world.wait(Duration::from_millis(ms));
        }
        world.recover();
        prop_assert!(world.missing().is_empty());
    }
}
