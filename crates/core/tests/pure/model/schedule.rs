//! Steps of a schedule: the inputs and faults of a process, and how a [`World`] plays them.

use std::time::Duration;

use proptest::prelude::*;

use super::server::{Disk, Mood};
use super::{Backend, Setup, World};
use crate::rows::{self, consumer_settings, intake_settings, policy_settings};

/// A step of a schedule; [`play`] calls the method of [`World`] or of the broker.
#[derive(Debug, Clone)]
pub enum Step {
    /// Publish messages, each with this many points.
    Publish {
        messages: u32,
        points: u32,
        qos1: bool,
        broken: bool,
    },
    Turn,
    /// Wait for this many milliseconds.
    Wait(u64),
    /// End the connection of a session, see [`World::cut`].
    Cut {
        session: usize,
        kept: bool,
        remembered: bool,
    },
    /// Redeliver the unacknowledged messages of this session on the same connection.
    Resend(usize),
    /// `true`: the broker accepts connections. `false`: it accepts none, and ends the open ones.
    Broker(bool),
    /// A node becomes unreachable; `dead`: its sessions are lost.
    NodeUnreachable {
        node: usize,
        dead: bool,
    },
    /// A node accepts connections without answering; its current connections are cut.
    NodeHung(usize),
    /// All nodes respond again.
    NodesBack,
    Server(Mood),
    Disk(Disk),
    /// A comparison of the clocks finds that this host's clock is wrong (`true`) or right.
    Clock(bool),
    /// Kill the process, and start a new one.
    Kill,
    /// Erase one of the two drivers.
    Erase,
}

pub fn step() -> impl Strategy<Value = Step> {
    let mood = prop_oneof![
        3 => Just(Mood::Fine),
        1 => Just(Mood::Slow),
        1 => Just(Mood::Refusing),
        1 => Just(Mood::Hanging),
        1 => Just(Mood::Dying),
        2 => Just(Mood::Flaky),
        1 => Just(Mood::NoTable),
        1 => Just(Mood::Narrow),
    ];
    let disk = prop_oneof![2 => Just(Disk::Fine), 1 => Just(Disk::Full), 1 => Just(Disk::Hanging)];
    prop_oneof![
        20 => (1_u32..30, 1_u32..6, prop::bool::weighted(0.85), prop::bool::weighted(0.1))
            .prop_map(|(messages, points, qos1, broken)| {
                Step::Publish { messages, points, qos1, broken }
            }),
        10 => Just(Step::Turn),
        14 => (1_u64..3_000).prop_map(Step::Wait),
        2 => (15_000_u64..90_000).prop_map(Step::Wait),
        3 => (0_usize..4, prop::bool::weighted(0.7), any::<bool>())
            .prop_map(|(session, kept, remembered)| Step::Cut { session, kept, remembered }),
        2 => (0_usize..4).prop_map(Step::Resend),
        1 => any::<bool>().prop_map(Step::Broker),
        2 => (0_usize..3, any::<bool>())
            .prop_map(|(node, dead)| Step::NodeUnreachable { node, dead }),
        1 => (0_usize..3).prop_map(Step::NodeHung),
        1 => Just(Step::NodesBack),
        5 => mood.prop_map(Step::Server),
        2 => disk.prop_map(Step::Disk),
        1 => any::<bool>().prop_map(Step::Clock),
        1 => Just(Step::Kill),
        1 => Just(Step::Erase),
    ]
}

pub fn setup() -> impl Strategy<Value = Setup> {
    (
        (1_usize..4, 1_usize..4),
        1_usize..12,
        3_u16..60,
        1_usize..4,
        any::<bool>(),
        prop_oneof![Just(4_000_usize), Just(1 << 20)],
    )
        .prop_map(
            |((sessions, nodes), rows_max, window, slots, has_spool, buffer_bytes_max)| {
                let mut setup = Setup {
                    consumer: consumer_settings(sessions),
                    intake: intake_settings(rows_max),
                    delivery: policy_settings(),
                    window,
                    members: 1,
                };
                setup.consumer.nodes = rows::nodes(nodes);
                setup.delivery.inserts_in_flight = slots;
                setup.delivery.has_spool = has_spool;
                setup.delivery.insert_timeout = Duration::from_secs(5);
                setup.intake.buffer_bytes_max = buffer_bytes_max;
                setup.consumer.buffer_bytes_max = buffer_bytes_max;
                setup
            },
        )
}

pub fn play<B: Backend>(world: &mut World<B>, step: Step) {
    match step {
        Step::Publish { messages, points, qos1, broken } => {
            (0..messages).for_each(|_| world.publish_message(points, qos1, broken));
        }
        Step::Turn => world.turn(),
        Step::Wait(ms) => world.wait(Duration::from_millis(ms)),
        Step::Cut { session, kept, remembered } => world.cut(session, kept, remembered),
        Step::Resend(session) => world.broker.resend(session),
        Step::Broker(up) => {
            world.broker_up = up;
            if !up {
                (0..world.consumer.sessions()).for_each(|session| world.disconnect(session));
            }
        }
        Step::NodeUnreachable { node, dead } => world.disconnect_node(node, dead),
        Step::NodeHung(node) => world.hang_node(node),
        Step::NodesBack => {
            world.broker.unreachable.clear();
            world.broker.hung.clear();
        }
        Step::Server(mood) => world.server.set_mood(mood),
        Step::Disk(disk) => world.server.set_disk(disk, world.instant()),
        Step::Clock(is_wrong) => world.report_clock(is_wrong.then(|| "wrong".to_owned()), 0),
        Step::Kill => world.kill(),
        Step::Erase => world.erase(),
    }
}

/// Returns a setup with one session, whose window is larger than any schedule fills.
pub fn plain() -> Setup {
    Setup {
        consumer: consumer_settings(1),
        intake: intake_settings(5),
        delivery: policy_settings(),
        window: 1_000,
        members: 1,
    }
}
