//! Models of the broker, ClickHouse, the disk and the shell around one consumer. The shell is the
//! code that owns sockets, files and the clock.

pub mod broker;
pub mod schedule;
pub mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use milepost_core::Qos;
use milepost_core::consumer::nodes::NODE_ANSWER_TIMEOUT;
use milepost_core::consumer::{Connections, Consumer, ConsumerConfig};
use milepost_core::delivery::SpoolInventory;
use milepost_core::delivery::events::{ClockComparison, DeliveryCommand, Report, ServerStatus};
use milepost_core::delivery::policy::{self, Delivery};
use milepost_core::erased::Erased;
use milepost_core::intake::{self, Intake};
use milepost_core::session::events::{ConnectionState, Leave, SessionCommand, SessionEvent};
use milepost_decode::Message;

use self::broker::{Broker, Sending};
use self::server::{Disk, Mood};
use crate::rows::{Sent, connected, decoder, now, payload};

/// CONNACK timeout of the shell when no other node is available.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time for which acknowledgements may stall while `/readyz` gives no reason.
const STALL_WITHOUT_REASON_MAX: Duration = Duration::from_secs(25);
/// Longest time for which acknowledgements may stall at all: the largest insert timeout, and the
/// steps after it.
const STALL_MAX: Duration = Duration::from_secs(630);
/// Time after which a status query to a server that hangs counts as unanswered.
const SILENT_AFTER: Duration = Duration::from_secs(3);

/// Configuration of a process.
#[derive(Debug, Clone)]
pub struct Setup {
    pub consumer: ConsumerConfig,
    pub intake: intake::IntakeConfig,
    pub delivery: policy::DeliveryConfig,
    /// In-flight window of each session, as the broker announces it in CONNACK.
    pub window: u16,
    /// Members of the group, as the process counts them.
    pub members: u32,
}

/// ClickHouse, the disk, and the executor of commands between them and the consumer.
pub trait Backend {
    /// Restarts the process, which loses its pending reports. Returns the spool's files.
    /// `has_spool`: the process has a spool.
    fn restart(&mut self, has_spool: bool) -> SpoolInventory;
    fn set_mood(&mut self, mood: Mood);
    fn set_disk(&mut self, disk: Disk, now: Instant);
    /// Skips rows of these drivers in every insert that begins from now on, even after a restart.
    fn erase(&mut self, erased: Arc<Erased>);
    fn execute(&mut self, command: DeliveryCommand, now: Instant);
    /// Returns the next report that is due.
    fn report(&mut self, now: Instant) -> Option<Report>;
    /// Advances time to the next report, at most to `until`. Returns the new time.
    fn advance_time(&mut self, until: Instant) -> Instant;
    /// Returns whether ClickHouse does not answer status queries.
    fn is_silent(&self) -> bool;
    /// Returns whether the row is in ClickHouse, in quarantine or in a spool file, or was dropped
    /// because there is no spool.
    fn is_durable(&self, seq: u32) -> bool;
    /// Returns whether the row is in ClickHouse or in quarantine, or was dropped because there is
    /// no spool.
    fn is_stored(&self, seq: u32) -> bool;
    /// Returns the number of rejects that the table `rejects` counts.
    fn rejects(&self) -> u64;
    /// Returns the number of spool files that wait for replay.
    fn files(&self) -> usize;
    /// Returns the number of inserts in flight.
    fn attempts(&self) -> usize;
    /// Returns the number of inserts that were running when a driver was erased and are still
    /// running, whether or not a process waits for them.
    fn inserts_begun_before_erasure(&self) -> usize;
}

/// One consumer with its shell, its broker, and ClickHouse with a disk.
pub struct World<B> {
    pub setup: Setup,
    pub consumer: Consumer,
    pub broker: Broker,
    pub server: B,
    began: Instant,
    /// Time since `began`.
    pub elapsed: Duration,
    /// `false`: the broker accepts no connection.
    pub broker_up: bool,
    /// Number of the next point that is published. The sets below hold numbers of points.
    next_seq: u32,
    /// Points published at QoS 1 that the broker accepted.
    accepted: BTreeSet<u32>,
    /// Points received by this process.
    pub received: BTreeSet<u32>,
    /// Points whose loss is excused. The broker lost them, and either this process had not received
    /// them, or the process that had received them was killed before it made them durable.
    excused: BTreeSet<u32>,
    /// Points whose message was acknowledged.
    pub acked: BTreeSet<u32>,
    /// Number of rejected messages that were acknowledged.
    acked_rejects: u64,
    /// Number of rows in batches that the consumer reported as durable.
    pub durable: usize,
    /// Points of the driver that is erased in this schedule.
    pub erasable: BTreeSet<u32>,
    /// The driver has been erased.
    pub erased: bool,
    /// Rows of the erased driver that were already stored when the last insert from before the
    /// erasure ended. `milepost erase` waits for the inserts from before the erasure.
    stored_erasable: Option<BTreeSet<u32>>,
    /// ClickHouse's status as last reported to the process.
    status: ServerStatus,
    /// Commands that the executor has not received yet.
    commands: Vec<DeliveryCommand>,
    /// Time since which ClickHouse has not answered status queries; `None`: it answers.
    silent_since: Option<Instant>,
    /// Time until which the broker delivers no messages and sends no UNSUBACK.
    broker_busy_until: Instant,
    /// Sessions whose UNSUBSCRIBE the broker has not answered.
    unsubscribing: Vec<usize>,
    /// Sessions that wait for the CONNACK of a hung node, each with its node and deadline.
    dialing: BTreeMap<usize, (usize, Instant)>,
    /// Number of further connections that end right after their SUBACK, before the consumer's turn.
    pub cut_at_suback: usize,
    /// Highest number of commands in one turn.
    most_commands: usize,
    /// Incarnation of the process, which rises at each start.
    pub incarnation: u64,
    /// How the process shuts down; `None`: it keeps running.
    pub shutdown: Option<Leave>,
    /// Log lines of the process.
    pub notices: Vec<String>,
    /// A planted mistake: former sessions are not visited.
    pub skips_former_sessions: bool,
}

impl<B: Backend> World<B> {
    pub fn new(setup: Setup, server: B, began: Instant) -> Self {
        let mut world = Self::before_start(setup, server, began);
        world.report_server_status();
        world.turn();
        world
    }

    /// Builds a world whose process has not started; [`kill`](Self::kill) starts it.
    pub fn before_start(setup: Setup, mut server: B, began: Instant) -> Self {
        let inventory = server.restart(setup.delivery.has_spool);
        Self {
            consumer: process(&setup, inventory, 1),
            setup,
            broker: Broker::default(),
            server,
            began,
            elapsed: Duration::ZERO,
            dialing: BTreeMap::new(),
            broker_up: true,
            next_seq: 0,
            accepted: BTreeSet::new(),
            received: BTreeSet::new(),
            excused: BTreeSet::new(),
            acked: BTreeSet::new(),
            acked_rejects: 0,
            durable: 0,
            erasable: BTreeSet::new(),
            erased: false,
            stored_erasable: None,
            status: ServerStatus::ready(),
            commands: Vec::new(),
            silent_since: None,
            broker_busy_until: began,
            unsubscribing: Vec::new(),
            cut_at_suback: 0,
            most_commands: 0,
            incarnation: 1,
            shutdown: None,
            notices: Vec::new(),
            skips_former_sessions: false,
        }
    }

    pub fn instant(&self) -> Instant {
        self.began + self.elapsed
    }

    /// Kills the process (kill -9) and starts a new one with the same client ids and spool.
    pub fn kill(&mut self) {
        // The process may have held points that the broker lost: now nothing holds them.
        let not_durable: Vec<u32> =
            self.broker.lost.iter().copied().filter(|seq| !self.server.is_durable(*seq)).collect();
        self.excused.extend(not_durable);
        self.received.clear();
        self.commands.clear();
        self.unsubscribing.clear();
        self.dialing.clear();
        self.broker.process_died();
        self.incarnation += 1;
        self.consumer = process(
            &self.setup,
            self.server.restart(self.setup.delivery.has_spool),
            self.incarnation,
        );
        (self.silent_since, self.shutdown) = (None, None);
        if self.erased {
            self.consumer.set_erased(erased_list());
        }
        self.status = ServerStatus::ready();
        if self.server.is_silent() {
            self.status.answers = Err("no answer".to_owned()); // so the clock is not compared
        }
        self.report_server_status();
        self.turn();
    }

    /// Erases one of the two drivers.
    pub fn erase(&mut self) {
        if std::mem::replace(&mut self.erased, true) {
            return;
        }
        self.server.erase(erased_list());
        self.consumer.set_erased(erased_list());
        self.record_stored_erasable();
    }

    /// Records which rows of the erased driver are stored, once no insert from before the erasure
    /// is running.
    fn record_stored_erasable(&mut self) {
        if self.erased
            && self.stored_erasable.is_none()
            && self.server.inserts_begun_before_erasure() == 0
        {
            let stored = self.erasable.iter().copied().filter(|seq| self.server.is_stored(*seq));
            self.stored_erasable = Some(stored.collect());
        }
    }

    /// Publishes a valid message at QoS 1 with this many points.
    pub fn publish(&mut self, points: u32) {
        self.publish_message(points, true, false);
    }

    /// Publishes a valid message at QoS 0 with this many points.
    pub fn publish_at_most_once(&mut self, points: u32) {
        self.publish_message(points, false, false);
    }

    /// Publishes a message with this many points. `broken`: milepost rejects the message.
    pub fn publish_message(&mut self, points: u32, qos1: bool, broken: bool) {
        let seqs: Vec<u32> =
            if broken { Vec::new() } else { (self.next_seq..self.next_seq + points).collect() };
        self.next_seq += points;
        let payload = match broken {
            true if points.is_multiple_of(2) => r#"{"lat":1,"lng":2,"ts":1}"#.to_owned(), // too old
            true => "oops".to_owned(),
            false => payload(&seqs),
        };
        let erasable = !broken && self.next_seq.is_multiple_of(3);
        let topic = if erasable { "drivers/e/gps" } else { "drivers/d/gps" };
        self.erasable.extend(seqs.iter().filter(|_| erasable));
        let sent = Sent { topic, seqs: seqs.clone(), payload, qos1 };
        if self.broker.publish(sent, 0) && qos1 {
            self.accepted.extend(seqs);
        }
    }

    /// Publishes a message with this payload; its points are not tracked.
    pub fn send(&mut self, payload: &str, qos: Qos) {
        let sent = Sent {
            topic: "drivers/d/gps",
            seqs: Vec::new(),
            payload: payload.to_owned(),
            qos1: qos == Qos::AtLeastOnce,
        };
        self.broker.publish(sent, 0);
    }

    /// Ends the connection of a session. The broker keeps the session.
    pub fn disconnect(&mut self, id: usize) {
        self.cut(id, true, false);
    }

    /// Ends the connection of a session. `kept`: the broker keeps the session; otherwise it loses
    /// the session with its messages. `remembered`: if it loses the session, the broker still
    /// reports it as present.
    pub fn cut(&mut self, id: usize, kept: bool, remembered: bool) {
        if !kept {
            self.lose(id, remembered);
        }
        self.broker.disconnected(id);
        self.dialing.remove(&id);
        self.unsubscribing.retain(|other| *other != id);
        if id < self.consumer.sessions()
            && !matches!(
                self.consumer.session(id).connection(),
                ConnectionState::BackingOff { .. } | ConnectionState::Ended
            )
        {
            let event = SessionEvent::Disconnected { taken_over: false, why: "cut".to_owned() };
            self.consumer.handle_event(id, event, self.instant());
        }
    }

    /// Makes a node unreachable. `dead`: its sessions are lost; otherwise the broker keeps them.
    pub fn disconnect_node(&mut self, node: usize, dead: bool) {
        self.broker.unreachable.insert(node);
        for id in self.sessions_on(node) {
            self.cut(id, !dead, false);
        }
    }

    /// Hangs a node: it accepts connections without answering, and its current connections are cut.
    pub fn hang_node(&mut self, node: usize) {
        self.broker.hung.insert(node);
        for id in self.sessions_on(node) {
            self.disconnect(id);
        }
    }

    /// Returns the sessions that the broker has on this node.
    fn sessions_on(&self, node: usize) -> Vec<usize> {
        let sessions = self.broker.sessions.iter().filter(|(_, session)| session.node == node);
        sessions.map(|(id, _)| *id).collect()
    }

    /// Returns the number of live sessions on each node.
    pub fn spread(&self) -> Vec<u64> {
        self.consumer.totals().nodes.into_iter().map(|(_, sessions)| sessions).collect()
    }

    /// Makes the broker lose a session. Excuses the loss of the points that this process had not
    /// received.
    fn lose(&mut self, id: usize, remembered: bool) {
        let before = self.broker.lost.clone();
        self.broker.lose(id, remembered);
        let lost = self.broker.lost.difference(&before).filter(|seq| !self.received.contains(seq));
        self.excused.extend(lost);
    }

    /// Runs one turn of the shell: handles everything that arrived, then executes the resulting
    /// commands.
    pub fn turn(&mut self) {
        self.broker.expire(self.instant());
        self.report_closed_connections();
        for _ in 0..3 {
            self.connect();
            if self.instant() >= self.broker_busy_until {
                self.deliver();
                self.send_unsubacks();
            }
        }
        while let Some(report) = self.server.report(self.instant()) {
            self.consumer.handle_report(report, self.instant());
        }
        self.query_server();
        loop {
            self.consumer.handle_timeout(self.instant());
            if !self.execute() {
                break;
            }
        }
        // The executor is another thread: it receives the turn's commands only now.
        self.most_commands = self.most_commands.max(self.commands.len());
        let commands_max = Delivery::commands_max(self.setup.delivery.inserts_in_flight);
        assert!(
            self.commands.len() <= commands_max,
            "{} commands in one turn, room for {commands_max}",
            self.commands.len()
        );
        for command in std::mem::take(&mut self.commands) {
            self.server.execute(command, self.instant());
        }
        self.record_stored_erasable();
        self.check();
    }

    fn check(&self) {
        let totals = self.consumer.totals();
        assert!(totals.adds_up(), "the counters do not add up: {totals:?}");
        // A replay needs no slot, so one more attempt may be in flight.
        let attempts_max = self.setup.delivery.inserts_in_flight + 1;
        let attempts = self.server.attempts();
        assert!(attempts <= attempts_max, "{attempts} attempts in flight");
    }

    /// Reports the connections that the broker has closed because another process took over the
    /// session, or because its node died.
    fn report_closed_connections(&mut self) {
        use ConnectionState::{Closing, Live, Subscribing};
        for id in 0..self.consumer.sessions() {
            let connection = self.consumer.session(id).connection();
            let is_open = matches!(connection, Subscribing { .. } | Live { .. } | Closing { .. });
            if is_open && self.broker.session(id).is_none() {
                self.unsubscribing.retain(|other| *other != id);
                let taken_over = self.broker.is_connected(id);
                let event = SessionEvent::Disconnected { taken_over, why: "the broker".to_owned() };
                self.consumer.handle_event(id, event, self.instant());
            }
        }
    }

    /// Returns whether the shell connects this session now, and the broker accepts connections.
    fn connects(&self, id: usize) -> bool {
        let is_skipped = self.skips_former_sessions
            && match self.setup.consumer.connections {
                Connections::Fixed(consuming) => id >= consuming,
                Connections::Auto => true,
            };
        self.broker_up
            && !is_skipped
            && self.consumer.session(id).connection() == ConnectionState::Connecting
    }

    fn connect(&mut self) {
        for id in 0..self.consumer.sessions() {
            if !self.connects(id) {
                continue;
            }
            let clean_start = self.consumer.session(id).ends_session();
            if self.waits_for_hung_node(id) {
                continue;
            }
            let (node_name, short_timeout) = self.consumer.dial(id, self.instant());
            let mut nodes = self.setup.consumer.nodes.iter();
            let node = nodes.position(|node| *node == node_name).expect("the node is listed");
            if self.broker.hung.contains(&node) {
                // If another node is available, the shell gives up once a second client has got no
                // answer either.
                let timeout = short_timeout.map_or(CONNECT_TIMEOUT, |_| 2 * NODE_ANSWER_TIMEOUT);
                self.dialing.insert(id, (node, self.instant() + timeout));
                continue;
            }
            if self.broker.unreachable.contains(&node) {
                let event =
                    SessionEvent::Disconnected { taken_over: false, why: "refused".to_owned() };
                self.consumer.handle_event(id, event, self.instant());
                continue;
            }
            let session_present = self.broker.connect(id, node, clean_start);
            let event = connected(session_present, Some(self.setup.window));
            self.consumer.handle_event(id, event, self.instant());
        }
    }

    /// Returns whether the session waits for the CONNACK of a hung node, or has just given up. If
    /// it has given up, reports the failed attempt.
    fn waits_for_hung_node(&mut self, id: usize) -> bool {
        let Some((node, until)) = self.dialing.get(&id).copied() else { return false };
        let is_hung = self.broker.hung.contains(&node);
        if is_hung && self.instant() < until {
            return true;
        }
        self.dialing.remove(&id);
        if !is_hung {
            return false;
        }
        let event = SessionEvent::Disconnected { taken_over: false, why: "no CONNACK".to_owned() };
        self.consumer.handle_event(id, event, self.instant());
        true
    }

    /// Delivers everything that the windows allow, session by session, before the consumer's turn.
    fn deliver(&mut self) {
        for id in 0..self.consumer.sessions() {
            while let Some(Sending { packet_id, redelivered, message }) =
                self.broker.deliver(id, self.setup.window.into())
            {
                let publish = Message {
                    packet_id,
                    redelivered,
                    ..Message::new(message.topic.as_bytes(), message.payload.as_bytes())
                };
                let before = self.consumer.session(id).totals().messages_received;
                self.consumer.handle_publish(id, publish, now(self.began, self.elapsed));
                if self.consumer.session(id).totals().messages_received > before {
                    self.received.extend(&message.seqs);
                }
            }
        }
    }

    /// Reports whether ClickHouse answers, as the shell's watcher does.
    fn query_server(&mut self) {
        let is_silent = self.server.is_silent();
        let since = is_silent.then(|| *self.silent_since.get_or_insert(self.instant()));
        let answer = match since {
            None => {
                self.silent_since = None;
                Ok(())
            }
            Some(since) if self.instant() < since + SILENT_AFTER => return,
            Some(_) => Err("no answer".to_owned()),
        };
        self.status.answers = answer;
        self.report_server_status();
    }

    fn report_server_status(&mut self) {
        self.status.refusals = self.consumer.watcher_request(self.instant()).refusals;
        self.consumer.handle_server_status(self.status.clone(), self.instant());
    }

    /// Reports a comparison of this host's clock with ClickHouse's. `fault`: why the clock is not
    /// trusted. `jumps`: number of jumps of the clock at the time of the comparison.
    pub fn report_clock(&mut self, fault: Option<String>, jumps: u64) {
        self.status.clock = Some(ClockComparison { fault, jumps });
        self.report_server_status();
    }

    /// Executes the sessions' commands, sends acknowledgements, and collects the executor's
    /// commands and the log lines. Returns whether a session had commands or acknowledgements.
    fn execute(&mut self) -> bool {
        let mut did_anything = false;
        for id in 0..self.consumer.sessions() {
            while let Some(command) = self.consumer.session_mut(id).poll_command() {
                did_anything = true;
                self.execute_session_command(id, command);
            }
            while let Some(packet_id) = self.consumer.session(id).ack_due() {
                did_anything = true;
                self.consumer.session_mut(id).ack_sent();
                let seqs = self.broker.acknowledged(id, packet_id);
                self.acked_rejects += u64::from(seqs.is_empty());
                for seq in seqs {
                    let is_erased = self.erased && self.erasable.contains(&seq);
                    assert!(
                        is_erased || self.server.is_durable(seq),
                        "seq {seq} acknowledged before it was durable"
                    );
                    self.acked.insert(seq);
                }
            }
        }
        self.commands.extend(std::iter::from_fn(|| self.consumer.poll_command()));
        self.notices.extend(
            std::iter::from_fn(|| self.consumer.poll_notice()).map(|notice| notice.to_string()),
        );
        self.durable += std::iter::from_fn(|| self.consumer.poll_durable())
            .map(|batch| batch.rows)
            .sum::<usize>();
        did_anything
    }

    fn execute_session_command(&mut self, id: usize, command: SessionCommand) {
        let now = self.instant();
        let Some(session) = self.broker.session(id) else { return };
        match command {
            SessionCommand::Subscribe => {
                session.subscribed = true;
                self.consumer.handle_event(
                    id,
                    SessionEvent::Subscribed { refusals: Vec::new() },
                    now,
                );
                if self.cut_at_suback > 0 {
                    self.cut_at_suback -= 1;
                    self.disconnect(id);
                }
            }
            SessionCommand::Unsubscribe => {
                session.subscribed = false;
                self.unsubscribing.push(id);
            }
            SessionCommand::Disconnect { end_session } => {
                assert_eq!(
                    self.consumer.session(id).unacked(),
                    0,
                    "disconnected with messages unacknowledged"
                );
                self.consumer.handle_event(id, SessionEvent::DisconnectSent, now);
                self.disconnect(id);
                if end_session {
                    self.broker.redispatch(id);
                }
            }
            SessionCommand::HangUp => {
                self.broker.disconnected(id);
                self.unsubscribing.retain(|other| *other != id);
            }
        }
    }

    /// Sends UNSUBACK. Packets arrive in order, so every earlier delivery has arrived.
    fn send_unsubacks(&mut self) {
        for id in std::mem::take(&mut self.unsubscribing) {
            self.consumer.handle_event(
                id,
                SessionEvent::Unsubscribed { refusals: Vec::new() },
                self.instant(),
            );
        }
    }

    /// Advances time, with a turn at each of the consumer's deadlines and at each report.
    pub fn wait(&mut self, duration: Duration) {
        let until = self.instant() + duration;
        self.turn();
        let mut turns = 0;
        loop {
            let at = self.next(until);
            turns = if at > self.instant() { 0 } else { turns + 1 };
            assert!(
                turns < 100,
                "a deadline does not advance, so the shell would spin: {:?}",
                self.consumer
            );
            self.elapsed = self.elapsed.max(at.saturating_duration_since(self.began));
            self.turn();
            if at >= until {
                return;
            }
        }
    }

    /// Returns the time of the next event, at most `until`.
    pub fn next(&mut self, until: Instant) -> Instant {
        let dials = |id: &usize| self.connects(*id) && !self.dialing.contains_key(id);
        if (0..self.consumer.sessions()).any(|id| dials(&id)) {
            return self.server.advance_time(self.instant());
        }
        let timeout = self.consumer.poll_timeout(self.instant());
        let next = timeout
            .into_iter()
            .chain(self.dialing.values().map(|(_, at)| *at))
            .fold(until, Instant::min);
        self.server.advance_time(next)
    }

    /// Ends all faults and runs until nothing is in flight. While messages wait, asserts that
    /// acknowledgements advance or that `/readyz` gives a reason. At the end, asserts that no rows
    /// are in flight or in spool files.
    pub fn recover(&mut self) {
        self.server.set_mood(Mood::Fine);
        self.server.set_disk(Disk::Fine, self.instant());
        self.broker_up = true;
        self.broker.unreachable.clear();
        self.broker.hung.clear();
        self.report_clock(None, 0);
        self.turn();
        let mut stalled_for = Duration::ZERO;
        while self.broker.waiting() > 0 {
            let acked = |world: &Self| world.acked.len() as u64 + world.acked_rejects;
            let before = acked(self);
            self.wait(Duration::from_secs(1));
            let is_stalled = acked(self) == before;
            stalled_for =
                if is_stalled { stalled_for + Duration::from_secs(1) } else { Duration::ZERO };
            // An insert whose answer was lost ends only at its timeout; `/readyz` then gives a
            // reason.
            let unready = self.consumer.unready_reasons(self.instant());
            assert!(
                stalled_for < STALL_WITHOUT_REASON_MAX || !unready.is_empty(),
                "no acknowledgement for {stalled_for:?}, and `/readyz` gives no reason"
            );
            assert!(stalled_for < STALL_MAX, "no acknowledgement for {stalled_for:?}: {unready:?}");
        }
        for _ in 0..1_500 {
            let is_ready = self.consumer.unready_reasons(self.instant()).is_empty();
            if is_ready && self.server.files() == 0 && self.consumer.totals().in_flight() == 0 {
                break;
            }
            self.wait(Duration::from_millis(500));
        }
        assert_eq!(
            (self.server.files(), self.consumer.totals().in_flight()),
            (0, 0),
            "spool files, or rows in flight, remain for ever"
        );
        assert_eq!(self.consumer.unready_reasons(self.instant()), Vec::<String>::new());
        let nodes = self.setup.consumer.nodes.len();
        let has_session_per_node = match self.setup.consumer.connections {
            Connections::Fixed(sessions) => sessions >= nodes,
            Connections::Auto => false,
        };
        for _ in 0..60 {
            if has_session_per_node && self.spread().contains(&0) {
                self.wait(Duration::from_millis(500));
            }
        }
        assert!(
            !has_session_per_node || !self.spread().contains(&0),
            "a node has no session: {:?}",
            self.consumer
        );
        let (stored, acked) = (self.server.rejects(), self.acked_rejects);
        assert!(stored >= acked, "{stored} rejects in the table, {acked} acknowledged");
        if self.erased {
            for _ in 0..1_500 {
                if self.stored_erasable.is_some() {
                    break;
                }
                self.wait(Duration::from_millis(500));
            }
            let stored_before = self
                .stored_erasable
                .as_ref()
                .expect("an insert from before the erasure has not ended");
            let mut not_stored_before = self.erasable.difference(stored_before);
            let stored_later = not_stored_before.find(|seq| self.server.is_stored(**seq));
            assert_eq!(stored_later, None, "stored after its driver had been erased");
        }
    }

    /// Returns the accepted points that are neither stored, erased nor excused.
    pub fn missing(&self) -> Vec<u32> {
        let is_erased = |seq: &u32| self.erased && self.erasable.contains(seq);
        let missing =
            self.accepted.difference(&self.excused).filter(|seq| !self.server.is_stored(**seq));
        missing.copied().filter(|seq| !is_erased(seq)).collect()
    }

    /// Makes the broker deliver no messages and send no UNSUBACK for this long.
    pub fn keep_broker_busy(&mut self, duration: Duration) {
        self.broker_busy_until = self.instant() + duration;
    }

    /// Starts the shutdown of the process.
    pub fn leave(&mut self, leave: Leave) {
        self.shutdown = Some(leave);
        self.consumer.leave(leave, self.instant());
        self.turn();
    }
}

/// Returns the list of erased drivers with one driver.
fn erased_list() -> Arc<Erased> {
    Arc::new(Erased::new(["e".to_owned()]))
}

/// Returns the consumer of a new process. `inventory`: the files in its spool.
fn process(setup: &Setup, inventory: SpoolInventory, incarnation: u64) -> Consumer {
    let delivery = policy::DeliveryConfig { incarnation, ..setup.delivery.clone() };
    let intake = Intake::new(setup.intake.clone(), decoder());
    let mut consumer =
        Consumer::new(setup.consumer.clone(), intake, Delivery::new(delivery, inventory));
    consumer.set_members(setup.members);
    consumer
}
