//! The whole flow of a process, as one state machine without I/O: sessions → intake → delivery, and
//! back to the sessions' acknowledgements.
//!
//! ```text
//! PUBLISH ─▶ session: take? ─▶ intake: decode, batch     ─▶ delivery: insert, spool   ─▶ commands
//! PUBACK  ◀─ session: order ◀─ intake: messages complete ◀─ delivery: batches durable ◀─ reports
//! ```
//!
//! Guarantee: a message is acknowledged only after all its rows are durable. Every position is
//! counted in exactly one term of the sum that [`ConsumerTotals::adds_up`] checks. Memory is
//! bounded. When acknowledgements stall, [`Consumer::unready_reasons`] explains why. The guarantees
//! of [`session`](crate::session), [`intake`](crate::intake) and [`delivery`](crate::delivery)
//! apply as well.
//!
//! The shell of this state machine is `src/app/event_loop.rs`, which owns the connections.
//! `src/executor.rs` executes the commands.

pub mod broker_drops;
mod clock;
mod connections;
mod former_sessions;
mod full_window;
mod group_age;
pub mod nodes;
mod notice;
mod room;
mod totals;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::broker_drops::BrokerDrops;
use self::clock::Clock;
pub use self::connections::Connections;
use self::connections::{Growth, GrowthStep};
pub use self::former_sessions::{CONNECTIONS_MAX, FormerSessionTotals};
use self::group_age::GroupAge;
use self::nodes::{Node, Nodes};
use self::notice::LogThrottles;
pub use self::notice::{ConsumerNotice, TYPICAL_ACK_TIME};
pub use self::totals::ConsumerTotals;
use crate::counted::counted;
use crate::delivery::events::{DeliveryCommand, Durable, Report, ServerStatus, WatcherRequest};
use crate::delivery::policy::{Delivery, Demand};
use crate::erased::Erased;
pub use crate::intake::Now;
use crate::intake::{CloseWhen, Intake, SessionIndex};
use crate::qos::Qos;
use crate::session::Session;
use crate::session::events::{self, Admission, ConnectionState, Leave, SessionEvent};
use milepost_decode::Ignored;
use milepost_decode::Message;

/// Age at which the open batch may close early: for the spool, or while the process is leaving. The
/// batch waits this long for more rows, because each spool file costs two fsyncs and an insert. It
/// closes at once if the process is leaving and no session takes further messages.
const EARLY_AGE: Duration = Duration::from_millis(100);
/// Time without any acknowledgement, while messages are unacknowledged, after which `/readyz`
/// reports a stall, unless [`SLOW_INSERT`] requires a longer one.
const STALLED_AFTER: Duration = Duration::from_secs(20);
/// Time that a slow insert may take, after the batch has waited for its age, before `/readyz`
/// reports a stall.
const SLOW_INSERT: Duration = Duration::from_secs(10);

/// Configuration of the whole consumer.
#[derive(Debug, Clone)]
pub struct ConsumerConfig {
    /// The broker's nodes; at least one. [`Consumer::set_nodes`] replaces them.
    pub nodes: Vec<Node>,
    pub connections: Connections,
    pub session: events::SessionConfig,
    /// Number of messages in flight that keeps every insert slot busy while the open batch fills:
    /// (insert slots + 1) × rows of a full batch.
    pub window_wanted: usize,
    pub qos: Qos,
    /// Upper bound for the bytes of closed batches that delivery has not accepted yet.
    pub buffer_bytes_max: usize,
    /// Longest age of a batch in a large group. Zero: the age does not depend on the size of the
    /// group.
    pub members_age_max: Duration,
    /// Largest tolerated jump of the wall clock. After a larger jump, messages are deferred until
    /// this host's clock has been compared with ClickHouse's.
    pub clock_jump_max: Duration,
}

/// The whole flow of one process; see the module's documentation.
#[derive(Debug)]
pub struct Consumer {
    settings: ConsumerConfig,
    sessions: Vec<Session>,
    intake: Intake,
    delivery: Delivery,
    growth: Growth,
    nodes: Nodes,
    clock: Clock,
    broker_drops: BrokerDrops,
    /// The age at which a batch closes; it is raised in a large group.
    group_age: GroupAge,
    leaving: Option<Leave>,
    /// At QoS 0: the time since which the messages of one more read from a socket cannot be taken,
    /// because the buffer lacks room or the clock is not trusted. `None` while they can be taken,
    /// while the process leaves, and at QoS 1.
    no_room_since: Option<Instant>,
    log: LogThrottles,
    /// How long the window of a consuming session has been mostly full: the longest such time of
    /// all consuming sessions.
    window_full_for: Duration,
    /// Number of acknowledgements that all sessions had sent at the last
    /// [`handle_timeout`](Self::handle_timeout).
    acks: u64,
    /// Since when messages have waited without a new acknowledgement; `None` if no message waits.
    stalled_since: Option<Instant>,
    notices: VecDeque<ConsumerNotice>,
    durable: VecDeque<Durable>,
}

impl Consumer {
    #[must_use]
    pub fn new(settings: ConsumerConfig, intake: Intake, delivery: Delivery) -> Self {
        let group_age = GroupAge::new(intake.batch_age_max(), settings.members_age_max);
        let mut consumer = Self {
            growth: Growth::new(settings.connections),
            nodes: Nodes::new(&settings.nodes),
            clock: Clock::new(settings.clock_jump_max),
            settings,
            sessions: Vec::new(),
            intake,
            delivery,
            broker_drops: BrokerDrops::default(),
            group_age,
            leaving: None,
            no_room_since: None,
            log: LogThrottles::default(),
            window_full_for: Duration::ZERO,
            acks: 0,
            stalled_since: None,
            notices: VecDeque::new(),
            durable: VecDeque::new(),
        };
        for _ in 0..consumer.growth.consuming() {
            consumer.add_session(false);
        }
        consumer
    }

    fn add_session(&mut self, is_visit: bool) {
        let seed = self.settings.session.seed.wrapping_add(self.sessions.len() as u64);
        let settings = events::SessionConfig { seed, ..self.settings.session };
        self.sessions.push(if is_visit {
            Session::visit(settings)
        } else {
            Session::consuming(settings)
        });
        self.nodes.add_session(is_visit);
    }

    /// Returns the number of sessions; it never decreases. The client id of a session ends with the
    /// session's index.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    #[must_use]
    pub fn session(&self, index: SessionIndex) -> &Session {
        &self.sessions[index]
    }

    /// Returns a session, so that the shell can execute its commands and send its acknowledgements.
    pub fn session_mut(&mut self, index: SessionIndex) -> &mut Session {
        &mut self.sessions[index]
    }

    /// Replaces the broker's nodes after their names were resolved again. `nodes` must not be
    /// empty.
    pub fn set_nodes(&mut self, nodes: &[Node]) {
        self.nodes.set(nodes);
    }

    /// Sets how many members the group has, as far as this process knows.
    pub fn set_members(&mut self, members: u32) {
        let new_age = self.group_age.set_members(members);
        self.notices.extend(new_age.map(|age| ConsumerNotice::GroupAge { members, age }));
    }

    /// Records that the shell starts to connect this session. Returns the session's node, and the
    /// timeout of the TCP connection if another node is available; `None` if the usual connect
    /// timeout applies.
    pub fn dial(&mut self, index: SessionIndex, now: Instant) -> (Node, Option<Duration>) {
        self.nodes.dial(index, now)
    }

    /// Processes an event of a session. Call [`handle_timeout`](Self::handle_timeout) afterwards.
    pub fn handle_event(&mut self, index: SessionIndex, event: SessionEvent, now: Instant) {
        self.sessions[index].handle_event(event, now);
    }

    /// Processes a PUBLISH: the session decides whether to take it, and the intake decodes it.
    pub fn handle_publish(&mut self, index: SessionIndex, message: Message<'_>, now: Now) {
        // The broker publishes its counters on topics that are subscribed at QoS 0, so these
        // messages have no packet id.
        if message.packet_id.is_none()
            && self.broker_drops.handle_message(message.topic, message.payload)
        {
            return;
        }
        let can_take = self.check_can_take(index, message, now.wall);
        match self.sessions[index].admit(message, can_take, now.instant) {
            Admission::Take(arrival) => {
                self.intake.push(message, arrival.map(|arrival| (index, arrival)), now);
                // The other reasons to close a batch concern all sessions: `handle_timeout` checks
                // them.
                if self.intake.is_due(now.instant) {
                    self.move_batches(now.instant);
                }
            }
            Admission::Defer => {}
            Admission::Shed => {
                self.intake.shed(message, now.wall);
                self.notices.extend(
                    self.log.shedding.allow(now.instant).then_some(ConsumerNotice::Shedding),
                );
            }
        }
    }

    /// Processes the executor's report about a command.
    pub fn handle_report(&mut self, report: Report, now: Instant) {
        self.delivery.handle_report(report, now);
    }

    /// Processes the result of the last queries that the watcher (`src/app/schema.rs`) sent to
    /// ClickHouse.
    pub fn handle_server_status(&mut self, status: ServerStatus, now: Instant) {
        if let (Ok(()), Some(comparison)) = (&status.answers, &status.clock) {
            self.clock.record_comparison(comparison.clone());
        }
        self.delivery.handle_server_status(status, now);
    }

    /// Returns which queries the watcher should send to ClickHouse, and how soon.
    #[must_use]
    pub fn watcher_request(&self, now: Instant) -> WatcherRequest {
        WatcherRequest { clock_jumps: self.clock.jumps(), ..self.delivery.watcher_request(now) }
    }

    /// Sets the list of erased drivers; their messages are dropped from now on.
    pub fn set_erased(&mut self, erased: Arc<Erased>) {
        self.intake.set_erased(erased);
    }

    /// Checks the wall clock for jumps. Call it before [`handle_publish`](Self::handle_publish),
    /// with the same `now`: the intake measures the age of each fix with that clock.
    pub fn read_clock(&mut self, now: Now) {
        self.clock.detect_jump(now);
    }

    /// Starts the shutdown. `leave`: whether the sessions stay subscribed for the next process, or
    /// are unsubscribed and emptied.
    pub fn leave(&mut self, leave: Leave, now: Instant) {
        self.leaving.get_or_insert(leave);
        self.delivery.leave(now);
        for (index, session) in self.sessions.iter_mut().enumerate() {
            // A session that still waits for its node was never subscribed, so the broker holds no
            // messages for it.
            let is_unused = self.nodes.is_waiting(index) && !session.has_connected();
            let leave = if is_unused { Leave::KeepSession } else { leave };
            session.handle_event(SessionEvent::Leave(leave), now);
        }
    }

    /// Advances sessions, intake and delivery: processes the events so far, and the deadlines up to
    /// `now`. The order matters: batches move first, so that their completions reach the sessions
    /// in the same call.
    pub fn handle_timeout(&mut self, now: Instant) {
        let is_under_pressure = self.is_under_pressure();
        self.delivery.set_under_pressure(is_under_pressure);
        // An age of zero means `batch.age_max`: the intake never uses a lower age.
        let age = if is_under_pressure { Duration::ZERO } else { self.group_age.age() };
        self.intake.set_batch_age_max(age);
        self.move_batches(now);
        self.delivery.handle_timeout(now);
        self.complete(now);
        self.nodes.reassign(&mut self.sessions, now, &mut self.notices);
        // Grow before the sessions advance: `grow` may complete the search for former sessions, and
        // then a former session may end at once.
        if self.leaving.is_none() {
            self.grow(now);
        }
        for index in 0..self.sessions.len() {
            let may_end = self.growth.former_sessions.may_end(&self.sessions, index);
            let has_room = self.has_room_for_deferred(index);
            self.sessions[index].handle_timeout(has_room, may_end, now);
        }
        self.no_room_since =
            self.lacks_room_for_a_read().then(|| self.no_room_since.unwrap_or(now));
        self.watch_progress(now);
        self.window_full_for = self.longest_full_window(now);
        self.collect_notices(now);
    }

    /// Returns the next command for the executor.
    pub fn poll_command(&mut self) -> Option<DeliveryCommand> {
        self.delivery.poll_command()
    }

    pub fn poll_notice(&mut self) -> Option<ConsumerNotice> {
        self.notices.pop_front()
    }

    /// Returns the next batch that has become durable, for the metrics.
    pub fn poll_durable(&mut self) -> Option<Durable> {
        self.durable.pop_front()
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is due, unless an event arrives first.
    #[must_use]
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let sessions = self.sessions.iter().filter_map(Session::poll_timeout);
        let batch = match self.delivery.demand(now) {
            Demand::ToInsert(_) if self.leaving.is_none() => self.intake.deadline(),
            Demand::ToInsert(_) | Demand::ToStore => self.early_age_at(),
            Demand::Nothing => None,
        };
        let reading_resumes = self.held_back_until().filter(|until| now < *until);
        sessions
            .chain(batch)
            .chain(reading_resumes)
            .chain(self.probe_at())
            .chain(self.nodes.poll_timeout())
            .chain(self.delivery.poll_timeout(now))
            .min()
    }

    /// Returns whether every session has ended, and all received rows are durable. While no
    /// shutdown has started, the search for former sessions must be complete as well, because
    /// further visits may follow.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        (self.leaving.is_some() || self.growth.former_sessions.is_search_complete())
            && self.sessions.iter().all(|session| session.connection() == ConnectionState::Ended)
            && self.intake.is_empty()
            && self.delivery.is_durable()
    }

    /// Returns whether the consumer [has ended](Self::has_ended), and no batch is in delivery: no
    /// replay is running, and no insert of a batch that the spool already has.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.has_ended() && self.delivery.is_idle()
    }

    #[must_use]
    pub fn is_replaying(&self) -> bool {
        self.delivery.is_replaying()
    }

    /// Returns the smallest in-flight window of all consuming sessions, in messages; `usize::MAX`
    /// if no session consumes.
    #[must_use]
    pub fn smallest_window(&self) -> usize {
        let consuming = &self.sessions[..self.growth.consuming()];
        consuming.iter().map(Session::window).min().unwrap_or(usize::MAX)
    }

    /// Returns the lines of `/readyz`; empty when ready.
    #[must_use]
    pub fn unready_reasons(&self, now: Instant) -> Vec<String> {
        let mut reasons = self.growth.unready_reasons(&self.sessions, now);
        reasons.extend(self.delivery.unready_reasons(now));
        reasons.extend(self.clock.unready_reason().map(|why| format!("clock: {why}")));
        reasons.extend(self.window_full_reason(now));
        reasons.extend(self.stalled_reason(now));
        reasons
    }

    /// Returns the line of `/readyz` if messages have waited too long without an acknowledgement.
    fn stalled_reason(&self, now: Instant) -> Option<String> {
        let stalled = now.saturating_duration_since(self.stalled_since?);
        if stalled < STALLED_AFTER.max(self.intake.batch_age_max() + SLOW_INSERT) {
            return None;
        }
        let unacked = self.unacked();
        let wait = if unacked == 1 { "waits" } else { "wait" };
        Some(format!(
            "acknowledgements: none for {} s, and {} {wait}",
            stalled.as_secs(),
            counted(unacked, "message")
        ))
    }

    /// Returns the current values of all counters and gauges.
    #[must_use]
    pub fn totals(&self) -> ConsumerTotals {
        let (consuming, visits) = self.sessions.split_at(self.growth.consuming());
        ConsumerTotals {
            sessions: self
                .sessions
                .iter()
                .map(Session::totals)
                .reduce(|a, b| a.plus(b))
                .unwrap_or_default(),
            intake: self.intake.totals(),
            delivery: self.delivery.totals(),
            nodes: self.nodes.totals(consuming),
            broker_dropped: self.broker_drops.dropped(),
            former_sessions: self.growth.former_sessions.totals(visits),
            window_full_for: self.window_full_for,
            batch_age_max: self.intake.batch_age_max(),
            still_subscribed: self.sessions.iter().any(Session::is_still_subscribed),
        }
    }

    fn unacked(&self) -> usize {
        self.sessions.iter().map(Session::unacked).sum()
    }

    /// Moves batches from the intake to delivery, as many as delivery accepts.
    fn move_batches(&mut self, now: Instant) {
        loop {
            let demand = self.delivery.demand(now);
            let when = match demand {
                Demand::ToInsert(slots) => {
                    self.intake.set_demand(slots);
                    self.when_to_close_for_insert(now)
                }
                Demand::ToStore => {
                    self.intake.set_demand(0);
                    self.when_to_close_for_spool(now)
                }
                Demand::Nothing => return self.intake.set_demand(0),
            };
            let Some(batch) = self.intake.next_batch(when, now) else { return };
            self.delivery.accept(batch, now);
        }
    }

    /// Decides when the open batch closes for an insert: usually when it is due. The batch closes
    /// earlier if the process leaves, if a session [waits for it](Self::waits_for_open_batch), or
    /// as a probe: after a silence, the broker may be waiting for acknowledgements. Records the
    /// probe in each session whose probe is due.
    fn when_to_close_for_insert(&mut self, now: Instant) -> CloseWhen {
        let mut sessions = self.sessions.iter().enumerate();
        let closes_to_leave =
            self.is_flushing() || self.leaving.is_some() && self.is_early_age_reached(now);
        if closes_to_leave
            || sessions.any(|(index, session)| self.waits_for_open_batch(index, session))
        {
            return CloseWhen::NotEmpty;
        }
        if self.probe_at().is_none_or(|at| at > now) {
            return CloseWhen::Due;
        }
        let is_due = |session: &&mut Session| session.probe_at().is_some_and(|at| at <= now);
        self.sessions.iter_mut().filter(is_due).for_each(|session| session.probed(now));
        CloseWhen::NotEmpty
    }

    /// Returns whether a session receives nothing more until the open batch is durable. This is so
    /// if the session's window is full or the session is paused, and the open batch completes
    /// messages of the session.
    fn waits_for_open_batch(&self, index: SessionIndex, session: &Session) -> bool {
        let is_full = session.unacked() >= session.window();
        (session.is_paused() || is_full) && self.intake.open_batch_completes(index)
    }

    /// Decides when the open batch closes for the spool: when it is due, or [early](EARLY_AGE).
    fn when_to_close_for_spool(&self, now: Instant) -> CloseWhen {
        let closes_early = self.is_early_age_reached(now) || self.is_flushing();
        if closes_early { CloseWhen::NotEmpty } else { CloseWhen::Due }
    }

    /// Returns when the open batch reaches [`EARLY_AGE`]; `None` while it is empty.
    fn early_age_at(&self) -> Option<Instant> {
        self.intake.open().opened_at.map(|opened_at| opened_at + EARLY_AGE)
    }

    fn is_early_age_reached(&self, now: Instant) -> bool {
        self.early_age_at().is_some_and(|at| at <= now)
    }

    /// Returns whether the process is leaving, and no session takes further messages.
    fn is_flushing(&self) -> bool {
        self.leaving.is_some() && self.sessions.iter().all(Session::is_flushing)
    }

    /// Returns when to close the open batch early, to find out whether a session's window is full.
    /// `None` while a fresh batch holds an insert slot: its acknowledgements may be what the broker
    /// is waiting for.
    fn probe_at(&self) -> Option<Instant> {
        if self.intake.open().is_empty() || self.delivery.holds_insert_slot() {
            return None;
        }
        self.sessions.iter().filter_map(Session::probe_at).min()
    }

    /// Reports durable batches to the intake, and passes the completions that the intake returns to
    /// the sessions.
    fn complete(&mut self, now: Instant) {
        while let Some(durable) = self.delivery.poll_durable() {
            self.intake.mark_durable(durable.batch);
            self.durable.push_back(durable);
        }
        while let Some(completion) = self.intake.poll_completion() {
            self.sessions[completion.session].complete_below(completion.below, now);
        }
        self.intake.set_batch_bytes_max(self.delivery.batch_bytes_max());
    }

    /// Updates the time since which messages have waited without any new acknowledgement.
    fn watch_progress(&mut self, now: Instant) {
        let acks = self.sessions.iter().map(Session::acks).sum();
        let since = if acks > self.acks { None } else { self.stalled_since };
        self.acks = acks;
        self.stalled_since = (self.unacked() > 0).then(|| since.unwrap_or(now));
    }

    fn collect_notices(&mut self, now: Instant) {
        for (index, session) in self.sessions.iter_mut().enumerate() {
            let notices = std::iter::from_fn(|| session.poll_notice());
            self.notices.extend(notices.map(|notice| ConsumerNotice::Session(index, notice)));
        }
        self.notices.extend(
            std::iter::from_fn(|| self.delivery.poll_notice()).map(ConsumerNotice::Delivery),
        );
        let unread = std::iter::from_fn(|| self.intake.poll_notice());
        self.notices.extend(unread.map(ConsumerNotice::Unread));
        let full = self.window_full_reason(now);
        if self.log.window_full.allow_beginning(full.is_some(), now) {
            self.notices.extend(full.map(ConsumerNotice::WindowFull));
        }
        let stalled = self.stalled_reason(now);
        if self.log.stalled.allow_beginning(stalled.is_some(), now) {
            self.notices.extend(stalled.map(ConsumerNotice::Stalled));
        }
        let intake = self.intake.totals();
        let encrypted = intake.ignored[Ignored::Encrypted as usize];
        if encrypted > 0 && self.log.encrypted.allow(now) {
            self.notices.push_back(ConsumerNotice::Encrypted);
        }
        let foreign = intake.foreign_messages;
        if foreign > self.log.foreign_messages && self.log.foreign.allow(now) {
            self.log.foreign_messages = foreign;
            self.notices.push_back(ConsumerNotice::Foreign { messages: foreign });
        }
        let expired = self.growth.former_sessions.expired();
        if expired > 0 && self.log.expired.allow(now) {
            self.notices.push_back(ConsumerNotice::FormerSessionsExpired { sessions: expired });
        }
    }

    /// Adds consuming sessions while the windows are too small or a node has no session, and visits
    /// to former sessions while the search for them lasts.
    fn grow(&mut self, now: Instant) {
        let wanted = self.settings.window_wanted;
        let unserved_node = loop {
            let may_grow = self.settings.connections == Connections::Auto;
            let node = self.nodes.node_without_session(self.growth.consuming(), may_grow);
            match self.growth.step(&self.sessions, wanted, node.is_some(), self.nodes.count()) {
                GrowthStep::Nothing => {
                    break node.filter(|_| self.growth.consuming() == CONNECTIONS_MAX);
                }
                GrowthStep::Visit => self.add_session(true),
                GrowthStep::Grow => {
                    let sessions = self.growth.consuming();
                    let added = sessions - 1;
                    // Assign the node only to a session that cannot hold messages of a previous
                    // process: such messages must not wait for an unreachable node.
                    let was_abandoned =
                        self.sessions.get(added).is_some_and(Session::was_abandoned);
                    let node = node.filter(|_| {
                        self.growth.former_sessions.is_search_complete() && !was_abandoned
                    });
                    match self.sessions.get_mut(added) {
                        Some(visited) => {
                            visited.start_consuming();
                            self.nodes.start_consuming(added);
                        }
                        None => self.add_session(false),
                    }
                    node.iter().for_each(|node| self.nodes.assign(added, Arc::clone(node)));
                    self.notices.push_back(ConsumerNotice::Growing { sessions, node });
                }
            }
        };
        let may_log = self.log.no_more_sessions.allow_while(unserved_node.is_some(), now);
        self.notices.extend(
            unserved_node.filter(|_| may_log).map(|node| ConsumerNotice::NoMoreSessions { node }),
        );
        let window = self.growth.window(&self.sessions);
        if window < wanted
            && self.growth.is_complete(&self.sessions, wanted)
            && self.log.window.allow(now)
        {
            self.notices.push_back(ConsumerNotice::WindowSmall {
                window,
                wanted,
                sessions: self.growth.consuming(),
            });
        }
    }
}
