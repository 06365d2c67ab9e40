//! Tests a whole group with random schedules. The number of a schedule is its seed. Members,
//! intake, delivery and the decision to leave are milepost's own code; the broker and ClickHouse
//! are models. The faults are:
//!
//! - Members are killed, hang while a successor starts, leave, restart with fewer sessions, and are
//!   drained.
//! - Peers give wrong answers.
//! - One of the broker's two nodes dies.
//! - ClickHouse is one server, or two replicas that lose the connection to each other. After that,
//!   one replica may lose its disk. Each process has a disk of its own.
//!
//! Invariants of every schedule:
//!
//! - Some member is always subscribed.
//! - After recovery, every message that the broker accepted is stored, unless it was lost with a
//!   node that died. No session is left over.
//! - No row of an erased driver is stored once every process has the list of erased drivers.
//! - A fix that was delivered twice has one identity (`model/server.rs`), so ClickHouse shows the
//!   fix once.

use std::collections::BTreeSet;
use std::iter;
use std::ops::Range;
use std::time::{Duration, Instant};

use milepost_core::consumer::Connections;
use milepost_core::peers::decision::{Decision, Inquiry};
use milepost_core::peers::member::{Member, MemberStatus};
use milepost_core::session::events::Leave;

use crate::cases::cases;
use crate::model::broker::{Broker, Client};
use crate::model::server::{Disk, Mood, Replicas, Server, Table};
use crate::model::{Backend as _, Setup, World};
use crate::rows::{Sent, consumer_settings, intake_settings, payload, policy_settings};

/// Steps of a schedule.
const STEPS: usize = 60;
/// Highest number of sessions of a member.
const SESSIONS_MAX: usize = 12;
/// Size of each member's range of client ids.
const CLIENT_IDS: usize = 100;
/// Time after which a session without a connection expires.
const EXPIRY: Duration = Duration::from_secs(30);
/// Delay until a process that died is started again, as a kubelet does. Also the delay until a
/// process that hangs is killed.
const RESTARTED_AFTER: Duration = Duration::from_secs(8);
/// Time after SIGTERM at which a process that has not ended is killed.
const GRACE: Duration = Duration::from_secs(20);
const HOUR: Duration = Duration::from_secs(3_600);

/// A planted mistake, in the code or in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    /// `shared_subscription_strategy = round_robin`: the sessions of a dead node still get their
    /// share of the messages.
    RoundRobin,
    /// Sessions beyond `mqtt.connections` are left to expire.
    FormerSessionsUnvisited,
    /// A member unsubscribes although no peer answered.
    LeaveWithoutAnswers,
    /// `milepost erase` does not wait for the members.
    EraseWithoutMembers,
    /// An insert does not ask for a quorum.
    NoQuorum,
    /// An insert keeps its token after an unknown outcome, although Keeper has recorded the token.
    SameToken,
}

/// The state of a process. Times count from the start of the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    /// The process received SIGTERM and is leaving. It is killed at this time.
    Leaving(Duration),
    /// The process was stopped by SIGSTOP, with its connections open. It is killed at this time,
    /// unless it has a successor.
    Hung(Duration),
    /// The process was killed. It is restarted at this time.
    Dead(Duration),
    /// The process has ended, and is not restarted before the end of the schedule.
    Gone,
}

/// Behaviour of a process when a peer asks for its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answers {
    Honestly,
    Never,
    Nonsense,
    /// Echoes the asking peer's own status.
    Echo,
    OtherTopics,
    /// Claims to be leaving, but stays.
    ClaimsToLeave,
}

struct Process {
    /// Number of the member whose sessions the process has; selects the range of client ids.
    member_number: usize,
    world: World<Server>,
    state: State,
    /// Time of the last start, since the start of the schedule.
    started_at: Duration,
    answers: Answers,
    member: Member,
    /// Set while the process is leaving and has not yet decided whether it unsubscribes.
    inquiry: Option<Inquiry>,
    /// The process is `milepost drain`.
    is_drain: bool,
}

struct Group {
    mistake: Mistake,
    /// Number of members. The first processes belong to the members, in the order of the member
    /// numbers.
    members: usize,
    setup: Setup,
    began: Instant,
    /// Time since `began`.
    elapsed: Duration,
    broker: Broker,
    table: Table,
    /// One process per member, then successors of hung processes, and drains.
    processes: Vec<Process>,
    /// Node of the broker that is down.
    node_down: Option<usize>,
    /// The network between the peers is cut.
    are_peers_cut_off: bool,
    next_seq: u32,
    /// Messages that the broker accepted.
    accepted: BTreeSet<u32>,
    /// Messages that were lost with a node that died.
    lost_with_node: BTreeSet<u32>,
    /// The messages of `lost_with_node` that no process could insert: no process received them, or
    /// the process that received them has died. Their loss is excused.
    excused: BTreeSet<u32>,
    /// Messages of the driver that is erased in this schedule.
    erasable: BTreeSet<u32>,
    /// The driver has been erased.
    erased: bool,
    /// Rows of the erased driver that were already stored when the last process received the list
    /// of erased drivers. No further row may be stored afterwards.
    stored_erasable: Option<BTreeSet<u32>>,
    /// First former session that expired although its member's only process was running during the
    /// whole expiry interval.
    left_to_expire: Option<usize>,
}

impl Group {
    fn new(members: usize, mistake: Mistake, setup: Setup, seed: u64) -> Self {
        let mut group = Self {
            mistake,
            members,
            setup,
            began: Instant::now(),
            elapsed: Duration::ZERO,
            broker: Broker::default(),
            table: Table::new(seed),
            processes: Vec::new(),
            node_down: None,
            are_peers_cut_off: false,
            next_seq: 0,
            accepted: BTreeSet::new(),
            lost_with_node: BTreeSet::new(),
            excused: BTreeSet::new(),
            erasable: BTreeSet::new(),
            erased: false,
            stored_erasable: None,
            left_to_expire: None,
        };
        group.broker.expiry = Some(EXPIRY);
        group.broker.round_robin = mistake == Mistake::RoundRobin;
        group.table.replicas = seed
            .is_multiple_of(2)
            .then(|| Replicas::new(mistake == Mistake::NoQuorum, mistake == Mistake::SameToken));
        (0..members).for_each(|member_number| {
            group.add(
                member_number,
                1 + (member_number + usize::try_from(seed).unwrap()) % 4,
                false,
            )
        });
        group
    }

    /// Starts a process with a disk of its own.
    fn add(&mut self, member_number: usize, connections: usize, is_drain: bool) {
        let process_number = self.processes.len() as u64;
        let mut setup = self.setup.clone();
        setup.delivery.has_spool &= !is_drain;
        (setup.delivery.seed, setup.consumer.session.seed) = (process_number, process_number);
        setup.consumer.connections = Connections::Fixed(connections);
        let mut world = World::before_start(setup, Server::new(0), self.began);
        // No two processes may have the same incarnation, because it is a part of the tokens.
        (world.incarnation, world.erasable) = (process_number * 1_000, self.erasable.clone());
        self.processes.push(Process {
            member_number,
            world,
            state: State::Gone,
            started_at: Duration::ZERO,
            answers: Answers::Honestly,
            member: member(member_number),
            inquiry: None,
            is_drain,
        });
        self.start(self.processes.len() - 1);
    }

    fn start(&mut self, index: usize) {
        let process = &mut self.processes[index];
        (process.state, process.started_at) = (State::Running, self.elapsed);
        (process.inquiry, process.member) = (None, member(process.member_number));
        process.world.skips_former_sessions =
            self.mistake == Mistake::FormerSessionsUnvisited && !process.is_drain;
        let erased = self.erased;
        self.act_as(index, |world| {
            if erased {
                world.erase();
            }
            world.kill();
        });
    }

    /// Calls `act` with the world of one process, connected to the group's broker and ClickHouse.
    fn act_as<T>(&mut self, index: usize, act: impl FnOnce(&mut World<Server>) -> T) -> T {
        let process = &mut self.processes[index];
        let home = process.member_number % 2;
        self.broker.client = Client {
            first_id: first_client_id(process.member_number),
            process: index as u64,
            node: if self.node_down == Some(home) { 1 - home } else { home },
        };
        let world = &mut process.world;
        world.elapsed = self.elapsed;
        std::mem::swap(&mut world.broker, &mut self.broker);
        std::mem::swap(&mut world.server.table, &mut self.table);
        let result = act(world);
        std::mem::swap(&mut world.server.table, &mut self.table);
        std::mem::swap(&mut world.broker, &mut self.broker);
        result
    }

    fn indices_of(&self, matches: impl Fn(&Process) -> bool) -> Vec<usize> {
        (0..self.processes.len()).filter(|index| matches(&self.processes[*index])).collect()
    }

    fn is_alive(&self, index: usize) -> bool {
        matches!(self.processes[index].state, State::Running | State::Leaving(_))
    }

    /// Publishes messages from devices that are connected to this node, or to the other node if
    /// this one is down. Fails if no member is subscribed and there is no ghost. A ghost is a
    /// subscription that outlived its session when a node died.
    fn publish(&mut self, messages: u32, node: usize) -> Result<(), String> {
        let node = if self.node_down == Some(node) { 1 - node } else { node };
        for _ in 0..messages {
            let seq = self.next_seq;
            self.next_seq += 1;
            let erasable = seq.is_multiple_of(3);
            if erasable {
                self.erasable.insert(seq);
                self.processes.iter_mut().for_each(|process| process.world.erasable.extend([seq]));
            }
            let topic = if erasable { "drivers/e/gps" } else { "drivers/d/gps" };
            let sent = Sent { topic, seqs: vec![seq], payload: payload(&[seq]), qos1: true };
            if !self.broker.publish(sent, node) {
                return Err("no member is subscribed".to_owned());
            }
            self.accepted.insert(seq);
        }
        Ok(())
    }

    /// Advances time, with a turn at each deadline of a process.
    fn wait(&mut self, duration: Duration) {
        let until = self.began + self.elapsed + duration;
        let mut turns = 0;
        self.turn();
        loop {
            let alive = self
                .indices_of(|process| matches!(process.state, State::Running | State::Leaving(_)));
            let next =
                alive.into_iter().map(|index| self.act_as(index, |world| world.next(until))).min();
            let at = next.unwrap_or(until).max(self.began + self.elapsed);
            turns = if at > self.began + self.elapsed { 0 } else { turns + 1 };
            assert!(turns < 1_000, "a deadline does not advance: the shell would spin");
            self.elapsed = at - self.began;
            self.turn();
            if at >= until {
                return;
            }
        }
    }

    /// Runs a turn of each process, and moves processes to their next state if it is time.
    fn turn(&mut self) {
        for index in 0..self.processes.len() {
            if self.is_alive(index) {
                self.act_as(index, World::turn);
            }
            let Process { world, state, is_drain, .. } = &self.processes[index];
            let (is_drain, leave) = (*is_drain, world.shutdown);
            let has_successor = self.processes[index + 1..]
                .iter()
                .any(|process| process.member_number == self.processes[index].member_number);
            let has_ended = world.consumer.has_ended()
                && (!is_drain
                    || world.server.files() == 0 && world.consumer.totals().in_flight() == 0);
            match *state {
                State::Running if is_drain && has_ended => {
                    self.processes[index].state = State::Gone
                }
                State::Leaving(_) if has_ended => {
                    self.kill(index);
                    if leave == Some(Leave::Unsubscribe) {
                        self.processes[index].state = State::Gone;
                    }
                }
                State::Leaving(until) if self.elapsed >= until => self.kill(index),
                State::Dead(until) if self.elapsed >= until => self.start(index),
                State::Hung(until) if self.elapsed >= until && !has_successor => self.kill(index),
                State::Running
                | State::Leaving(_)
                | State::Hung(_)
                | State::Dead(_)
                | State::Gone => {}
            }
        }
        for id in std::mem::take(&mut self.broker.expired) {
            let ran_all_the_time = |process: &Process| {
                process.state == State::Running && process.started_at + EXPIRY < self.elapsed
            };
            let has_no_successors = self.processes.len() == self.members;
            if has_no_successors && ran_all_the_time(&self.processes[id / CLIENT_IDS]) {
                self.left_to_expire.get_or_insert(id);
            }
        }
        let has_list = |process: &Process| process.world.erased || is_dead(process.state);
        let all_have_list =
            self.processes.iter().all(has_list) || self.mistake == Mistake::EraseWithoutMembers;
        if self.erased && self.stored_erasable.is_none() && all_have_list {
            self.stored_erasable =
                Some(self.erasable.intersection(&self.table.stored).copied().collect());
        }
    }

    /// Kills a process. It is restarted later, unless the caller changes its state.
    fn kill(&mut self, index: usize) {
        self.act_as(index, |world| world.broker.process_died());
        let process = &mut self.processes[index];
        (process.state, process.inquiry) = (State::Dead(self.elapsed + RESTARTED_AFTER), None);
        process.world.received.clear();
        self.excuse();
    }

    /// Excuses messages that were lost with a dead node and are no longer held by any process.
    fn excuse(&mut self) {
        let holds = |seq: &u32| {
            let in_process = |process: &Process| process.world.received.contains(seq);
            self.table.stored.contains(seq)
                || self
                    .processes
                    .iter()
                    .any(|process| in_process(process) || process.world.server.is_durable(*seq))
        };
        let not_held: Vec<u32> =
            self.lost_with_node.iter().copied().filter(|seq| !holds(seq)).collect();
        self.excused.extend(not_held);
    }

    /// Kills a node if a member on the other node stays subscribed. Without such a member, EMQX
    /// gives every message to the dead node's sessions, whatever its strategy.
    fn kill_node(&mut self, node: usize) {
        let other_node_has_member = self
            .indices_of(|process| process.state == State::Running && !process.is_drain)
            .into_iter()
            .any(|index| {
                let first_id = first_client_id(self.processes[index].member_number);
                let mut sessions = self.broker.sessions.range(first_id..first_id + CLIENT_IDS);
                sessions.any(|(_, session)| {
                    session.connected && session.subscribed && session.node != node
                })
            });
        let none_is_leaving =
            self.indices_of(|process| matches!(process.state, State::Leaving(_))).is_empty();
        if self.node_down.is_some() || !other_node_has_member || !none_is_leaving {
            return;
        }
        let before = self.broker.lost.clone();
        self.broker.kill_node(node);
        self.node_down = Some(node);
        self.lost_with_node.extend(self.broker.lost.difference(&before));
        self.excuse();
    }

    fn start_node(&mut self) {
        if let Some(node) = self.node_down.take() {
            self.broker.start_node(node);
        }
    }

    /// Sends SIGTERM with `shutdown.leave = auto`: the process announces at once that it leaves,
    /// and asks its peers in [`decide`](Self::decide).
    fn leave(&mut self, index: usize) {
        let process = &mut self.processes[index];
        if process.state == State::Running && !process.is_drain && self.node_down.is_none() {
            process.member.set_leaving();
            process.state = State::Leaving(self.elapsed + GRACE);
            process.inquiry = Some(Inquiry::new(status_of(process)));
        }
    }

    /// Lets each leaving process ask its peers, and executes its decision.
    fn decide(&mut self) {
        for index in 0..self.processes.len() {
            let Some(mut inquiry) = self.processes[index].inquiry.take() else { continue };
            let own_status = status_of(&self.processes[index]);
            let mut any_answer = false;
            for (peer, process) in
                self.processes.iter().enumerate().filter(|(peer, _)| *peer != index)
            {
                let answer = if self.are_peers_cut_off {
                    Err("no answer".to_owned())
                } else {
                    answer(process, &own_status)
                };
                any_answer |= answer.is_ok();
                inquiry.handle_answer(&format!("10.0.0.{peer}:9464"), answer);
            }
            let leaves = matches!(inquiry.decision(), Decision::Leave { .. })
                || self.mistake == Mistake::LeaveWithoutAnswers && !any_answer;
            let leave = if leaves { Leave::Unsubscribe } else { Leave::KeepSession };
            self.act_as(index, |world| world.leave(leave));
        }
    }

    /// Starts `milepost drain` for a member that is gone, while another member is subscribed.
    fn drain(&mut self, member_number: usize) {
        let is_gone =
            |process: &Process| process.member_number != member_number || is_dead(process.state);
        let takes_over = |process: &Process| {
            let is_other = process.member_number != member_number && !process.is_drain;
            is_other && process.state == State::Running && status_of(process).subscribed
        };
        if self.processes.iter().all(is_gone)
            && self.processes.iter().any(takes_over)
            && self.node_down.is_none()
        {
            let dead =
                self.processes.iter_mut().filter(|process| process.member_number == member_number);
            dead.for_each(|process| process.state = State::Gone);
            self.add(member_number, 0, true);
        }
    }

    /// Plays a random step. Fails if a message was published while no member was subscribed and
    /// there was no ghost.
    fn step(&mut self, rng: &mut fastrand::Rng) -> Result<(), String> {
        let index = rng.usize(..self.processes.len());
        let process = &self.processes[index];
        let (member_number, state, is_drain) =
            (process.member_number, process.state, process.is_drain);
        let is_alone =
            self.processes.iter().filter(|process| process.member_number == member_number).count()
                == 1;
        match rng.u32(..100) {
            0..30 => self.publish(rng.u32(1..40), rng.usize(..2))?,
            30..60 => self.wait(Duration::from_millis(rng.u64(1..2_500))),
            60..68 => {
                use Mood::{Dying, Fine, Flaky, Hanging, Narrow, Refusing, Slow};
                self.table.mood = rng
                    .choice([Fine, Fine, Slow, Refusing, Hanging, Dying, Flaky, Narrow])
                    .unwrap();
            }
            68..72 => {
                let disk = rng.choice([Disk::Fine, Disk::Full, Disk::Hanging]).unwrap();
                let now = self.began + self.elapsed;
                self.processes[index].world.server.set_disk(disk, now);
            }
            72..76 if self.is_alive(index) => self.kill(index),
            76..79 if self.is_alive(index) => {
                let id = rng.usize(..SESSIONS_MAX);
                self.act_as(index, |world| world.disconnect(id));
            }
            // Restarts the member with fewer or more sessions. Skipped while the member has a
            // second process: once `recover` has killed the earlier process, no process would
            // visit the sessions that only the earlier process had.
            79..81 if !is_drain && !matches!(state, State::Hung(_)) && is_alone => {
                let connections = Connections::Fixed(rng.usize(1..=SESSIONS_MAX));
                self.processes[index].world.setup.consumer.connections = connections;
                if self.is_alive(index) {
                    self.kill(index);
                }
            }
            81..83 if state == State::Running && !is_drain => {
                self.processes[index].state = State::Hung(self.elapsed + RESTARTED_AFTER);
            }
            83..87 if matches!(state, State::Hung(_)) => {
                if rng.bool() {
                    self.processes[index].state = State::Running;
                } else {
                    let Connections::Fixed(sessions) = process.world.setup.consumer.connections
                    else {
                        unreachable!()
                    };
                    self.add(member_number, sessions, false);
                }
            }
            87..89 => self.leave(index),
            89 => (0..self.processes.len()).for_each(|index| self.leave(index)),
            90..93 => self.decide(),
            93 => self.drain(member_number),
            94 => self.kill_node(rng.usize(..2)),
            95 => self.start_node(),
            96 => self.erased = true,
            97..99 if self.erased && self.is_alive(index) => self.act_as(index, World::erase),
            99 if rng.bool() => self.are_peers_cut_off = !self.are_peers_cut_off,
            99 => {
                use Answers::{ClaimsToLeave, Echo, Honestly, Never, Nonsense, OtherTopics};
                let choices =
                    [Honestly, Honestly, Never, Nonsense, Echo, OtherTopics, ClaimsToLeave];
                self.processes[index].answers = rng.choice(choices).unwrap();
            }
            _ => {}
        }
        Ok(())
    }

    /// Cuts, joins or damages the replicas. `rng` is not the generator of [`step`](Self::step), so
    /// that the other steps of a schedule do not depend on the replicas.
    fn step_replicas(&mut self, rng: &mut fastrand::Rng) {
        match rng.u32(..30) {
            0 | 1 => self.table.cut(),
            2 => self.table.join(false),
            3 => {
                self.table.join(true);
                self.excuse();
            }
            _ => {}
        }
    }

    /// Ends all faults except those between peers. Kills every process that hangs or has a
    /// successor; a process with a successor restarts as a drain under another name, to replay its
    /// disk. Fails if the group has not recovered after an hour, or if an invariant is violated.
    fn recover(&mut self) -> Result<(), String> {
        self.start_node();
        self.table.join(false);
        self.table.mood = Mood::Fine;
        let now = self.began + self.elapsed;
        for index in 0..self.processes.len() {
            let member_number = self.processes[index].member_number;
            let process = &mut self.processes[index];
            process.world.server.set_disk(Disk::Fine, now);
            if process.is_drain {
                continue;
            }
            let is_last = self
                .indices_of(|other| other.member_number == member_number && !other.is_drain)
                .last()
                == Some(&index);
            if matches!(self.processes[index].state, State::Hung(_))
                || !is_last && self.is_alive(index)
            {
                self.kill(index);
            }
            if !is_last {
                // No member has a number from 50 on.
                let process = &mut self.processes[index];
                (process.member_number, process.is_drain) = (50 + index, true);
                process.world.setup.consumer.connections = Connections::Fixed(0);
                self.start(index);
            }
        }
        let until = self.elapsed + HOUR;
        while self.elapsed < until {
            self.decide();
            self.wait(Duration::from_millis(500));
            for index in
                self.indices_of(|process| process.state == State::Gone && !process.is_drain)
            {
                let member_number = self.processes[index].member_number;
                let is_active_drain = |process: &Process| {
                    process.member_number == member_number
                        && process.is_drain
                        && process.state != State::Gone
                };
                if !self.processes.iter().any(is_active_drain) {
                    self.start(index);
                }
            }
            if self.erased {
                (0..self.processes.len()).for_each(|index| self.act_as(index, World::erase));
            }
            if self.has_recovered() {
                return self.check_invariants();
            }
        }
        let waiting = self.broker.waiting();
        let files: usize = self.processes.iter().map(|process| process.world.server.files()).sum();
        let sessions: Vec<_> = self.broker.sessions.keys().collect();
        let describe = |process: &Process| {
            (process.member_number, process.state, process.world.setup.consumer.connections)
        };
        let processes: Vec<_> = self.processes.iter().map(describe).collect();
        Err(format!(
            "not recovered after an hour: {waiting} messages wait, {files} files, sessions \
             {sessions:?}, processes {processes:?}"
        ))
    }

    /// Returns whether the group has recovered:
    ///
    /// - No message waits in the broker, in a process or in a spool file.
    /// - The erasure, if any, has reached every process.
    /// - Every process is in its final state.
    /// - The broker has the sessions of the members, and no others.
    fn has_recovered(&self) -> bool {
        let done = |process: &Process| {
            let world = &process.world;
            // Messages in flight at a killed drain are redelivered to its successor.
            let is_idle = process.state == State::Gone || world.consumer.totals().in_flight() == 0;
            let is_quiet = is_idle && world.server.files() == 0;
            let state = if process.is_drain { State::Gone } else { State::Running };
            process.state == state && is_quiet
        };
        let expected =
            self.processes.iter().filter(|process| !process.is_drain).flat_map(|process| {
                let Connections::Fixed(sessions) = process.world.setup.consumer.connections else {
                    unreachable!()
                };
                (0..sessions).map(|id| first_client_id(process.member_number) + id)
            });
        let is_erasure_done = !self.erased || self.stored_erasable.is_some();
        is_erasure_done
            && self.processes.iter().all(done)
            && self.broker.waiting() == 0
            && self.broker.sessions.keys().copied().eq(expected.collect::<BTreeSet<_>>())
    }

    fn check_invariants(&self) -> Result<(), String> {
        let is_stored = |seq: &u32| {
            self.table.stored.contains(seq)
                || self.excused.contains(seq)
                || self.erased && self.erasable.contains(seq)
                || self.processes.iter().any(|process| process.world.server.is_stored(*seq))
        };
        let missing = self.accepted.iter().filter(|seq| !is_stored(seq)).count();
        if missing > 0 {
            return Err(format!("{missing} of {} messages are lost", self.accepted.len()));
        }
        if let Some(id) = self.left_to_expire {
            return Err(format!("session {id} was left to expire"));
        }
        let before: BTreeSet<u32> = self.stored_erasable.iter().flatten().copied().collect();
        let after: BTreeSet<u32> =
            self.erasable.intersection(&self.table.stored).copied().collect();
        if self.erased && !after.is_subset(&before) {
            return Err("a row of an erased driver was stored after the erasure".to_owned());
        }
        Ok(())
    }
}

fn first_client_id(member_number: usize) -> usize {
    member_number * CLIENT_IDS
}

fn member(member_number: usize) -> Member {
    Member::new(&format!("milepost-{member_number}"), "milepost", &["drivers/+/gps".to_owned()])
}

fn is_dead(state: State) -> bool {
    matches!(state, State::Dead(_) | State::Gone)
}

fn status_of(process: &Process) -> MemberStatus {
    process.member.status(process.world.consumer.totals().sessions.connected > 0, 0)
}

/// Returns what a process answers to a leaving peer, whose status is `asker`.
fn answer(process: &Process, asker: &MemberStatus) -> Result<MemberStatus, String> {
    let status = status_of(process);
    let topics = ["other/+".to_owned()].into();
    match (process.state, process.answers) {
        _ if process.is_drain => Err("refused".to_owned()),
        (State::Dead(_) | State::Gone, _) => Err("refused".to_owned()),
        (State::Hung(_), _) | (_, Answers::Never) => Err("no answer".to_owned()),
        (_, Answers::Honestly) => Ok(status),
        (_, Answers::Nonsense) => MemberStatus::from_json(b"<html>"),
        (_, Answers::Echo) => Ok(asker.clone()),
        (_, Answers::OtherTopics) => Ok(MemberStatus { topics, ..status }),
        (_, Answers::ClaimsToLeave) => Ok(MemberStatus { leaving: true, ..status }),
    }
}

/// Prints the schedule's number when an assertion fails.
struct Schedule(u64);

impl Drop for Schedule {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("schedule {}", self.0);
        }
    }
}

/// Plays the schedule with this number. Fails if an invariant is violated.
fn play(seed: u64, mistake: Mistake) -> Result<(), String> {
    let _named = Schedule(seed);
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut setup = Setup {
        consumer: consumer_settings(1),
        intake: intake_settings(rng.usize(1..12)),
        delivery: policy_settings(),
        window: rng.u16(3..40),
        members: 1,
    };
    setup.delivery.has_spool = rng.bool();
    setup.consumer.session.session_expiry = EXPIRY;
    setup.delivery.insert_timeout = Duration::from_secs(5);
    let mut group = Group::new(rng.usize(2..5), mistake, setup, seed);
    group.wait(Duration::from_secs(1));
    let mut replicas = fastrand::Rng::with_seed(!seed);
    for _ in 0..STEPS {
        group.step_replicas(&mut replicas);
        group.step(&mut rng)?;
    }
    group.recover()
}

/// Returns the numbers of `count` schedules, beginning with `PROPTEST_RNG_SEED` if it is set.
fn seeds(count: u32) -> Range<u64> {
    let first = std::env::var("PROPTEST_RNG_SEED")
        .map_or(0, |seed| seed.parse().expect("PROPTEST_RNG_SEED is a number"));
    first..first + u64::from(cases(count).cases)
}

#[test]
fn group_survives_random_faults_without_losing_messages() {
    // Schedules that failed before. 1246851: a process that had hung took over a session of its
    // successor. The session had expired when the successor looked for it. 820097748: a batch with
    // one row in quarantine continued its inserts although its slot was taken.
    for seed in [1_246_851, 820_097_748].into_iter().chain(seeds(150)) {
        if let Err(why) = play(seed, Mistake::None) {
            panic!("schedule {seed}: {why}");
        }
    }
}

/// For each mistake, the schedule in `found_by` is tried first, then 0 to 1,999. If the output
/// names another schedule, update `found_by`.
#[test]
fn planted_mistakes_in_a_group_are_found() {
    let found_by = [
        (Mistake::RoundRobin, 0),
        (Mistake::FormerSessionsUnvisited, 1),
        (Mistake::LeaveWithoutAnswers, 85),
        (Mistake::EraseWithoutMembers, 3),
        (Mistake::NoQuorum, 0),
        (Mistake::SameToken, 0),
    ];
    for (mistake, schedule) in found_by {
        let mut schedules = iter::once(schedule).chain(0..2_000);
        let found = schedules.find_map(|seed| {
            // Some of the mistakes fail an assertion of the model instead of an invariant.
            let asserted = |_| Err("an assertion of the model failed".to_owned());
            let why =
                std::panic::catch_unwind(|| play(seed, mistake)).unwrap_or_else(asserted).err()?;
            play(seed, Mistake::None).is_ok().then_some((seed, why))
        });
        let (seed, why) = found.unwrap_or_else(|| panic!("no schedule finds {mistake:?}"));
        eprintln!("{mistake:?}: schedule {seed}: {why}");
    }
}
