//! A group in one schedule: members that are killed, hang while a successor starts, leave, get
//! fewer sessions and are drained; peers that lie; a broker of two nodes; ClickHouse as one server,
//! or as two replicas that lose the connection to each other, after which one loses its disk; a disk
//! for each process. Members, intake, delivery and the decision to leave are the real ones. The
//! seed of a schedule is its number.
//!
//! Invariants of each schedule: some member is always subscribed. After recovery, every message
//! that the broker accepted is stored, except those of a node that died, and no session is left
//! over. No row of an erased driver is stored once every process has the list. A fix that was
//! delivered twice has one identity (`model/server.rs`), so ClickHouse shows it once.

use std::collections::BTreeSet;
use std::iter;
use std::ops::Range;
use std::time::{Duration, Instant};

use milepost_core::consumer::Connections;
use milepost_core::peers::decision::{Decision, Inquiry};
use milepost_core::peers::standing::{Member, Standing};
use milepost_core::session::events::Leave;

use crate::cases::cases;
use crate::model::broker::{Broker, Client};
use crate::model::server::{Disk, Mood, Replicas, Server, Table};
use crate::model::{Backend as _, Setup, World};
use crate::rows::{Sent, consumer_settings, intake_settings, payload, policy_settings};

const STEPS: usize = 60;
/// Sessions of a member.
const SESSIONS_MAX: usize = 12;
/// Time after which a session without a connection expires.
const EXPIRY: Duration = Duration::from_secs(30);
/// Delay until a process that died is started again, as by a kubelet; a leaving process must end
/// within it.
const RESTARTED_AFTER: Duration = Duration::from_secs(8);
const GRACE: Duration = Duration::from_secs(20);
const HOUR: Duration = Duration::from_secs(3_600);

/// A planted mistake, in the code or in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    /// `shared_subscription_strategy = round_robin`: the sessions of a dead node get their share of
    /// the messages.
    RoundRobin,
    /// Sessions beyond `mqtt.connections` are left to expire.
    FormerUnvisited,
    /// A member unsubscribes although no peer answered.
    LeaveWithoutAnswers,
    /// `milepost erase` does not wait for the members.
    EraseWithoutMembers,
    /// An insert asks for no quorum.
    NoQuorum,
    /// An insert keeps its token after an unknown outcome, though Keeper has recorded the token.
    SameToken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    /// Leaves after SIGTERM; is killed at this time.
    Leaving(Duration),
    /// Is stopped by SIGSTOP, with its connections open; is killed at this time, unless it has a
    /// successor.
    Hung(Duration),
    /// Was killed; is restarted at this time.
    Dead(Duration),
    /// Ended, and is not restarted before the end of the schedule.
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answers {
    Honestly,
    Never,
    Nonsense,
    /// Echoes the asker's own standing.
    Echo,
    OtherTopics,
    /// Claims to be leaving, and stays.
    Modestly,
}

struct Process {
    /// Index of the member whose sessions the process has.
    name: usize,
    world: World<Server>,
    state: State,
    started: Duration,
    answers: Answers,
    member: Member,
    inquiry: Option<Inquiry>,
    /// The process is `milepost drain`.
    drains: bool,
}

struct Group {
    mistake: Mistake,
    /// Number of members; the first processes are theirs.
    members: usize,
    setup: Setup,
    began: Instant,
    after: Duration,
    broker: Broker,
    table: Table,
    /// The first processes, then successors of hung ones, and drains.
    processes: Vec<Process>,
    down: Option<usize>,
    /// The network between the peers is cut.
    is_cut_up: bool,
    next_seq: u32,
    owed: BTreeSet<u32>,
    /// Messages that were lost with a node that died.
    lost_with_node: BTreeSet<u32>,
    /// Subset of these that no process received and lived to insert: their loss is excused.
    excused: BTreeSet<u32>,
    /// Messages of the driver that will be erased.
    theirs: BTreeSet<u32>,
    erased: bool,
    /// Rows of the erased driver that were stored when the last process got the list; no more may
    /// be stored afterwards.
    stored_of_them: Option<BTreeSet<u32>>,
    /// First former session that expired although its member's only process ran all the time.
    left_to_expire: Option<usize>,
}

impl Group {
    fn new(members: usize, mistake: Mistake, setup: Setup, seed: u64) -> Self {
        let mut group = Self {
            mistake,
            members,
            setup,
            began: Instant::now(),
            after: Duration::ZERO,
            broker: Broker::default(),
            table: Table::new(seed),
            processes: Vec::new(),
            down: None,
            is_cut_up: false,
            next_seq: 0,
            owed: BTreeSet::new(),
            lost_with_node: BTreeSet::new(),
            excused: BTreeSet::new(),
            theirs: BTreeSet::new(),
            erased: false,
            stored_of_them: None,
            left_to_expire: None,
        };
        group.broker.expiry = Some(EXPIRY);
        group.broker.round_robin = mistake == Mistake::RoundRobin;
        group.table.replicas = seed
            .is_multiple_of(2)
            .then(|| Replicas::new(mistake == Mistake::NoQuorum, mistake == Mistake::SameToken));
        (0..members).for_each(|name| {
            group.add(name, 1 + (name + usize::try_from(seed).unwrap()) % 4, false)
        });
        group
    }

    /// Starts a process with a disk of its own.
    fn add(&mut self, name: usize, connections: usize, drains: bool) {
        let number = self.processes.len() as u64;
        let mut setup = self.setup.clone();
        setup.delivery.spool &= !drains;
        (setup.delivery.seed, setup.consumer.session.seed) = (number, number);
        setup.consumer.connections = Connections::Fixed(connections);
        let mut world = World::before_start(setup, Server::new(0), self.began);
        (world.lives, world.theirs) = (number * 1_000, self.theirs.clone());
        self.processes.push(Process {
            name,
            world,
            state: State::Gone,
            started: Duration::ZERO,
            answers: Answers::Honestly,
            member: member(name),
            inquiry: None,
            drains,
        });
        self.start(self.processes.len() - 1);
    }

    fn start(&mut self, of: usize) {
        let process = &mut self.processes[of];
        (process.state, process.started) = (State::Running, self.after);
        (process.inquiry, process.member) = (None, member(process.name));
        process.world.only_members = self.mistake == Mistake::FormerUnvisited && !process.drains;
        let erased = self.erased;
        self.with(of, |world| {
            if erased {
                world.erase();
            }
            world.kill();
        });
    }

    /// Runs a step of one process against the shared broker and ClickHouse.
    fn with<T>(&mut self, of: usize, act: impl FnOnce(&mut World<Server>) -> T) -> T {
        let process = &mut self.processes[of];
        let home = process.name % 2;
        self.broker.client = Client {
            first_id: name_first(process.name),
            process: of as u64,
            node: if self.down == Some(home) { 1 - home } else { home },
        };
        let world = &mut process.world;
        world.after = self.after;
        std::mem::swap(&mut world.broker, &mut self.broker);
        std::mem::swap(&mut world.server.table, &mut self.table);
        let result = act(world);
        std::mem::swap(&mut world.server.table, &mut self.table);
        std::mem::swap(&mut world.broker, &mut self.broker);
        result
    }

    fn indices_of(&self, is: impl Fn(&Process) -> bool) -> Vec<usize> {
        (0..self.processes.len()).filter(|of| is(&self.processes[*of])).collect()
    }

    fn is_alive(&self, of: usize) -> bool {
        matches!(self.processes[of].state, State::Running | State::Leaving(_))
    }

    fn publish(&mut self, messages: u32, node: usize) -> Result<(), String> {
        let node = if self.down == Some(node) { 1 - node } else { node };
        for _ in 0..messages {
            let seq = self.next_seq;
            self.next_seq += 1;
            let theirs = seq.is_multiple_of(3);
            if theirs {
                self.theirs.insert(seq);
                self.processes.iter_mut().for_each(|process| process.world.theirs.extend([seq]));
            }
            let topic = if theirs { "drivers/e/gps" } else { "drivers/d/gps" };
            let sent = Sent { topic, seqs: vec![seq], payload: payload(&[seq]), qos1: true };
            if !self.broker.publish(sent, node) {
                return Err("nobody is subscribed".to_owned());
            }
            self.owed.insert(seq);
        }
        Ok(())
    }

    fn wait(&mut self, duration: Duration) {
        let until = self.began + self.after + duration;
        let mut turns = 0;
        self.turn();
        loop {
            let alive = self
                .indices_of(|process| matches!(process.state, State::Running | State::Leaving(_)));
            let next = alive.into_iter().map(|of| self.with(of, |world| world.next(until))).min();
            let at = next.unwrap_or(until).max(self.began + self.after);
            turns = if at > self.began + self.after { 0 } else { turns + 1 };
            assert!(turns < 1_000, "a deadline does not move on: the shell would spin");
            self.after = at - self.began;
            self.turn();
            if at >= until {
                return;
            }
        }
    }

    fn turn(&mut self) {
        for of in 0..self.processes.len() {
            if self.is_alive(of) {
                self.with(of, World::turn);
            }
            let Process { world, state, drains, .. } = &self.processes[of];
            let (drains, leave) = (*drains, world.left);
            let has_successor =
                self.processes[of + 1..].iter().any(|it| it.name == self.processes[of].name);
            let has_ended = world.consumer.has_ended()
                && (!drains
                    || world.server.files() == 0 && world.consumer.totals().in_flight() == 0);
            match *state {
                State::Running if drains && has_ended => self.processes[of].state = State::Gone,
                State::Leaving(_) if has_ended => {
                    self.kill(of);
                    if leave == Some(Leave::Unsubscribe) {
                        self.processes[of].state = State::Gone;
                    }
                }
                State::Leaving(until) if self.after >= until => self.kill(of),
                State::Dead(until) if self.after >= until => self.start(of),
                State::Hung(until) if self.after >= until && !has_successor => self.kill(of),
                State::Running
                | State::Leaving(_)
                | State::Hung(_)
                | State::Dead(_)
                | State::Gone => {}
            }
        }
        for id in std::mem::take(&mut self.broker.expired) {
            let was_present =
                |it: &Process| it.state == State::Running && it.started + EXPIRY < self.after;
            let is_single = self.processes.len() == self.members;
            if is_single && was_present(&self.processes[id / 100]) {
                self.left_to_expire.get_or_insert(id);
            }
        }
        let has_list = |process: &Process| process.world.erased || is_dead(process.state);
        let all_have_it =
            self.processes.iter().all(has_list) || self.mistake == Mistake::EraseWithoutMembers;
        if self.erased && self.stored_of_them.is_none() && all_have_it {
            self.stored_of_them =
                Some(self.theirs.intersection(&self.table.stored).copied().collect());
        }
    }

    fn kill(&mut self, of: usize) {
        self.with(of, |world| world.broker.process_died());
        let process = &mut self.processes[of];
        (process.state, process.inquiry) = (State::Dead(self.after + RESTARTED_AFTER), None);
        process.world.taken.clear();
        self.excuse();
    }

    /// Excuses the messages that were lost with a dead node and that no process holds any more.
    fn excuse(&mut self) {
        let holds = |seq: &u32| {
            let in_process = |process: &Process| process.world.taken.contains(seq);
            self.table.stored.contains(seq)
                || self
                    .processes
                    .iter()
                    .any(|it| in_process(it) || it.world.server.is_durable(*seq))
        };
        let gone: Vec<u32> =
            self.lost_with_node.iter().copied().filter(|seq| !holds(seq)).collect();
        self.excused.extend(gone);
    }

    /// Kills a node if a member on the other one stays. Without such a member EMQX gives every
    /// message to the dead node's sessions, whatever its strategy.
    fn kill_node(&mut self, node: usize) {
        let stays = self
            .indices_of(|process| process.state == State::Running && !process.drains)
            .into_iter()
            .any(|of| {
                let first = name_first(self.processes[of].name);
                let mut sessions = self.broker.sessions.range(first..first + 100);
                sessions.any(|(_, session)| {
                    session.connected && session.subscribed && session.node != node
                })
            });
        let nobody_leaves =
            self.indices_of(|process| matches!(process.state, State::Leaving(_))).is_empty();
        if self.down.is_some() || !stays || !nobody_leaves {
            return;
        }
        let before = self.broker.lost.clone();
        self.broker.kill_node(node);
        self.down = Some(node);
        self.lost_with_node.extend(self.broker.lost.difference(&before));
        self.excuse();
    }

    fn start_node(&mut self) {
        if let Some(node) = self.down.take() {
            self.broker.start_node(node);
        }
    }

    /// Sends SIGTERM with `shutdown.leave = auto`: the process announces it at once, and asks its
    /// peers in [`decide`](Self::decide).
    fn leave(&mut self, of: usize) {
        let process = &mut self.processes[of];
        if process.state == State::Running && !process.drains && self.down.is_none() {
            process.member.set_leaving();
            process.state = State::Leaving(self.after + GRACE);
            process.inquiry = Some(Inquiry::new(standing(process)));
        }
    }

    fn decide(&mut self) {
        for of in 0..self.processes.len() {
            let Some(mut inquiry) = self.processes[of].inquiry.take() else { continue };
            let ours = standing(&self.processes[of]);
            let mut any_answer = false;
            for (peer, process) in self.processes.iter().enumerate().filter(|(peer, _)| *peer != of)
            {
                let answer = if self.is_cut_up {
                    Err("no answer".to_owned())
                } else {
                    answer(process, &ours)
                };
                any_answer |= answer.is_ok();
                inquiry.handle_answer(&format!("10.0.0.{peer}:9464"), answer);
            }
            let leaves = matches!(inquiry.decision(), Decision::Leave { .. })
                || self.mistake == Mistake::LeaveWithoutAnswers && !any_answer;
            let leave = if leaves { Leave::Unsubscribe } else { Leave::KeepSession };
            self.with(of, |world| world.leave(leave));
        }
    }

    /// Starts `milepost drain` for a member that is gone, while another is known to stay.
    fn drain(&mut self, name: usize) {
        let is_gone = |process: &Process| process.name != name || is_dead(process.state);
        let heir = |process: &Process| {
            let is_other = process.name != name && !process.drains;
            is_other && process.state == State::Running && standing(process).subscribed
        };
        if self.processes.iter().all(is_gone)
            && self.processes.iter().any(heir)
            && self.down.is_none()
        {
            let of_it = self.processes.iter_mut().filter(|process| process.name == name);
            of_it.for_each(|process| process.state = State::Gone);
            self.add(name, 0, true);
        }
    }

    fn step(&mut self, rng: &mut fastrand::Rng) -> Result<(), String> {
        let of = rng.usize(..self.processes.len());
        let process = &self.processes[of];
        let (name, state, drains) = (process.name, process.state, process.drains);
        let is_alone = self.processes.iter().filter(|it| it.name == name).count() == 1;
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
                let now = self.began + self.after;
                self.processes[of].world.server.disk(disk, now);
            }
            72..76 if self.is_alive(of) => self.kill(of),
            76..79 if self.is_alive(of) => {
                let id = rng.usize(..SESSIONS_MAX);
                self.with(of, |world| world.cut(id, true, false));
            }
            // The next process has fewer or more sessions. Skipped while the member has another
            // process: once that one is killed, nobody would visit the sessions that it has more.
            79..81 if !drains && !matches!(state, State::Hung(_)) && is_alone => {
                let connections = Connections::Fixed(rng.usize(1..=SESSIONS_MAX));
                self.processes[of].world.setup.consumer.connections = connections;
                if self.is_alive(of) {
                    self.kill(of);
                }
            }
            81..83 if state == State::Running && !drains => {
                self.processes[of].state = State::Hung(self.after + RESTARTED_AFTER);
            }
            83..87 if matches!(state, State::Hung(_)) => {
                if rng.bool() {
                    self.processes[of].state = State::Running;
                } else {
                    let Connections::Fixed(sessions) = process.world.setup.consumer.connections
                    else {
                        unreachable!()
                    };
                    self.add(name, sessions, false);
                }
            }
            87..89 => self.leave(of),
            89 => (0..self.processes.len()).for_each(|of| self.leave(of)),
            90..93 => self.decide(),
            93 => self.drain(name),
            94 => self.kill_node(rng.usize(..2)),
            95 => self.start_node(),
            96 => self.erased = true,
            97..99 if self.erased && self.is_alive(of) => self.with(of, World::erase),
            99 if rng.bool() => self.is_cut_up = !self.is_cut_up,
            99 => {
                use Answers::{Echo, Honestly, Modestly, Never, Nonsense, OtherTopics};
                let all = [Honestly, Honestly, Never, Nonsense, Echo, OtherTopics, Modestly];
                self.processes[of].answers = rng.choice(all).unwrap();
            }
            _ => {}
        }
        Ok(())
    }

    /// Cuts, joins or damages the replicas. Uses a generator of its own, so that schedules without
    /// replicas do not change.
    fn step_of_replicas(&mut self, rng: &mut fastrand::Rng) {
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

    /// Ends all faults but those between peers. Kills hung processes and those with a successor;
    /// the disk of the latter is replayed under another name.
    fn recover(&mut self) -> Result<(), String> {
        self.start_node();
        self.table.join(false);
        self.table.mood = Mood::Fine;
        let now = self.began + self.after;
        for of in 0..self.processes.len() {
            let name = self.processes[of].name;
            let process = &mut self.processes[of];
            process.world.server.disk(Disk::Fine, now);
            if process.drains {
                continue;
            }
            let is_last =
                self.indices_of(|other| other.name == name && !other.drains).last() == Some(&of);
            if matches!(self.processes[of].state, State::Hung(_)) || !is_last && self.is_alive(of) {
                self.kill(of);
            }
            if !is_last {
                let process = &mut self.processes[of];
                (process.name, process.drains) = (50 + of, true);
                process.world.setup.consumer.connections = Connections::Fixed(0);
                self.start(of);
            }
        }
        let until = self.after + HOUR;
        while self.after < until {
            self.decide();
            self.wait(Duration::from_millis(500));
            for of in self.indices_of(|process| process.state == State::Gone && !process.drains) {
                let name = self.processes[of].name;
                let drains = |it: &Process| it.name == name && it.drains && it.state != State::Gone;
                if !self.processes.iter().any(drains) {
                    self.start(of);
                }
            }
            if self.erased {
                (0..self.processes.len()).for_each(|of| self.with(of, World::erase));
            }
            if self.is_well() {
                return self.judge();
            }
        }
        let waiting = self.broker.waiting();
        let files: usize = self.processes.iter().map(|it| it.world.server.files()).sum();
        let sessions: Vec<_> = self.broker.sessions.keys().collect();
        let of = |it: &Process| (it.name, it.state, it.world.setup.consumer.connections);
        let processes: Vec<_> = self.processes.iter().map(of).collect();
        Err(format!(
            "not well after an hour: {waiting} messages wait, {files} files, sessions {sessions:?}, processes {processes:?}"
        ))
    }

    fn is_well(&self) -> bool {
        let done = |process: &Process| {
            let world = &process.world;
            // Messages in flight at a killed drain are redelivered to its successor.
            let is_idle = process.state == State::Gone || world.consumer.totals().in_flight() == 0;
            let is_quiet = is_idle && world.server.files() == 0;
            let state = if process.drains { State::Gone } else { State::Running };
            process.state == state && is_quiet
        };
        let expected = self.processes.iter().filter(|it| !it.drains).flat_map(|it| {
            let Connections::Fixed(sessions) = it.world.setup.consumer.connections else {
                unreachable!()
            };
            (0..sessions).map(|id| name_first(it.name) + id)
        });
        let is_counted = !self.erased || self.stored_of_them.is_some();
        is_counted
            && self.processes.iter().all(done)
            && self.broker.waiting() == 0
            && self.broker.sessions.keys().copied().eq(expected.collect::<BTreeSet<_>>())
    }

    fn judge(&self) -> Result<(), String> {
        let is_stored = |seq: &u32| {
            self.table.stored.contains(seq)
                || self.excused.contains(seq)
                || self.erased && self.theirs.contains(seq)
                || self.processes.iter().any(|it| it.world.server.is_stored(*seq))
        };
        let missing = self.owed.iter().filter(|seq| !is_stored(seq)).count();
        if missing > 0 {
            return Err(format!("{missing} of {} messages are lost", self.owed.len()));
        }
        if let Some(id) = self.left_to_expire {
            return Err(format!("session {id} was left to expire"));
        }
        let before: BTreeSet<u32> = self.stored_of_them.iter().flatten().copied().collect();
        let after: BTreeSet<u32> = self.theirs.intersection(&self.table.stored).copied().collect();
        if self.erased && !after.is_subset(&before) {
            return Err("a row of an erased driver is stored".to_owned());
        }
        Ok(())
    }
}

fn name_first(name: usize) -> usize {
    name * 100
}

fn member(name: usize) -> Member {
    Member::new(&format!("milepost-{name}"), "milepost", &["drivers/+/gps".to_owned()])
}

fn is_dead(state: State) -> bool {
    matches!(state, State::Dead(_) | State::Gone)
}

fn standing(process: &Process) -> Standing {
    process.member.standing(process.world.consumer.totals().sessions.connected > 0, 0)
}

fn answer(process: &Process, asker: &Standing) -> Result<Standing, String> {
    let standing = standing(process);
    let topics = ["other/+".to_owned()].into();
    match (process.state, process.answers) {
        _ if process.drains => Err("refused".to_owned()),
        (State::Dead(_) | State::Gone, _) => Err("refused".to_owned()),
        (State::Hung(_), _) | (_, Answers::Never) => Err("no answer".to_owned()),
        (_, Answers::Honestly) => Ok(standing),
        (_, Answers::Nonsense) => Standing::from_json(b"<html>"),
        (_, Answers::Echo) => Ok(asker.clone()),
        (_, Answers::OtherTopics) => Ok(Standing { topics, ..standing }),
        (_, Answers::Modestly) => Ok(Standing { leaving: true, ..standing }),
    }
}

/// Adds the schedule's number to a failed assertion.
struct Schedule(u64);

impl Drop for Schedule {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("schedule {}", self.0);
        }
    }
}

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
    setup.delivery.spool = rng.bool();
    setup.consumer.session.session_expiry = EXPIRY;
    setup.delivery.insert_timeout = Duration::from_secs(5);
    let mut group = Group::new(rng.usize(2..5), mistake, setup, seed);
    group.wait(Duration::from_secs(1));
    let mut replicas = fastrand::Rng::with_seed(!seed);
    for _ in 0..STEPS {
        group.step_of_replicas(&mut replicas);
        group.step(&mut rng)?;
    }
    group.recover()
}

fn seeds(count: u32) -> Range<u64> {
    let first = std::env::var("PROPTEST_RNG_SEED").map_or(0, |seed| seed.parse().expect("a seed"));
    first..first + u64::from(cases(count).cases)
}

#[test]
fn group_loses_nothing_stays_subscribed_and_leaves_no_session() {
    // 1246851: a zombie took over a successor's session, which had expired when the successor
    // looked for it. 820097748: a batch with one row in quarantine continued its inserts although
    // its slot was taken.
    for seed in [1_246_851, 820_097_748].into_iter().chain(seeds(150)) {
        if let Err(why) = play(seed, Mistake::None) {
            panic!("schedule {seed}: {why}");
        }
    }
}

/// The schedule of each mistake is tried first, then 0 to 1,999. If the output names another one,
/// write that here.
#[test]
fn planted_mistakes_in_a_group_are_found() {
    let found_by = [
        (Mistake::RoundRobin, 0),
        (Mistake::FormerUnvisited, 1),
        (Mistake::LeaveWithoutAnswers, 85),
        (Mistake::EraseWithoutMembers, 3),
        (Mistake::NoQuorum, 0),
        (Mistake::SameToken, 0),
    ];
    for (mistake, schedule) in found_by {
        let mut schedules = iter::once(schedule).chain(0..2_000);
        let found = schedules.find_map(|seed| {
            // The world's own assertions find some of the mistakes.
            let asserted = |_| Err("an acknowledgement too early".to_owned());
            let why =
                std::panic::catch_unwind(|| play(seed, mistake)).unwrap_or_else(asserted).err()?;
            play(seed, Mistake::None).is_ok().then_some((seed, why))
        });
        let (seed, why) = found.unwrap_or_else(|| panic!("{mistake:?} is not found"));
        eprintln!("{mistake:?}: schedule {seed}: {why}");
    }
}
