//! The whole flow of a process, as one pure machine: sessions → intake → delivery, and back to the sessions'
//! acknowledgements.
//!
//! ```text
//! published ─▶ session: take it? ─▶ intake: decode, batch ─▶ delivery: insert, retry, store ─▶ commands
//! acks      ◀─ session: in order ◀─ intake: complete below ◀─ delivery: durable             ◀─ reports
//! ```
//!
//! Guarantee: what [`session`](crate::session), [`intake`](crate::intake) and
//! [`delivery`](crate::delivery) promise, put together. Nothing is acknowledged before every row of it is durable. Every
//! position is in exactly one of the places that [`Totals`] names. Memory is bounded. When no acknowledgements go out,
//! [`Consumer::unready_reasons`] says why.
//!
//! Its shell is `app/driver.rs`, which owns the connections. `delivery/executor.rs` obeys its commands.

pub mod broker_drops;
mod clock;
mod connections;
mod former;
mod full_window;
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
use self::connections::{Growth, Step};
pub use self::former::{CONNECTIONS_MAX, FormerTotals};
use self::nodes::{Node, Nodes};
use self::notice::Log;
pub use self::notice::{ACKNOWLEDGED_WITHIN, Notice};
pub use self::totals::Totals;
use crate::delivery::events::{Attention, Command, Durable, Report, ServerStatus};
use crate::delivery::policy::{Delivery, Want};
use crate::erased::Erased;
pub use crate::intake::Now;
use crate::intake::{CloseWhen, Intake, SessionIndex};
use crate::qos::Qos;
use crate::session::Session;
use crate::session::events::{self, Admission, ConnectionState, Event, Leave};
use milepost_decode::Ignored;
use milepost_decode::Message;

/// An open batch that closes early for the spool, or because the process is leaving, waits this long for more rows: a file costs two
/// fsyncs and an insert.
const EARLY_AGE: Duration = Duration::from_millis(100);
/// `/readyz` reports acknowledgements that stand still for this long, whatever the cause.
const STALLED_AFTER: Duration = Duration::from_secs(20);

#[derive(Debug, Clone)]
pub struct Settings {
    /// Not empty. [`Consumer::set_nodes`] changes it.
    pub nodes: Vec<Node>,
    pub connections: Connections,
    pub session: events::Settings,
    /// Unacknowledged messages that keep every insert busy: (inserts in flight + 1) × rows of a batch.
    pub window_wanted: usize,
    pub qos: Qos,
    pub buffer_bytes_max: usize,
    /// After a larger jump of the wall clock, messages are deferred until it was compared with ClickHouse's.
    pub clock_jump_max: Duration,
}

#[derive(Debug)]
pub struct Consumer {
    settings: Settings,
    sessions: Vec<Session>,
    intake: Intake,
    delivery: Delivery,
    growth: Growth,
    nodes: Nodes,
    clock: Clock,
    broker_drops: BrokerDrops,
    leaving: Option<Leave>,
    /// At QoS 0: since when there has been no room for one more read.
    full_since: Option<Instant>,
    log: Log,
    /// The longest time for which a member's window has been full.
    window_full_for: Duration,
    /// Acknowledgements at the last look, and since when there have been no more while messages waited.
    progress: (u64, Option<Instant>),
    notices: VecDeque<Notice>,
    durable: VecDeque<Durable>,
}

impl Consumer {
    #[must_use]
    pub fn new(settings: Settings, intake: Intake, delivery: Delivery) -> Self {
        let mut consumer = Self {
            growth: Growth::new(settings.connections),
            nodes: Nodes::new(&settings.nodes),
            clock: Clock::new(settings.clock_jump_max),
            settings,
            sessions: Vec::new(),
            intake,
            delivery,
            broker_drops: BrokerDrops::default(),
            leaving: None,
            full_since: None,
            log: Log::default(),
            window_full_for: Duration::ZERO,
            progress: (0, None),
            notices: VecDeque::new(),
            durable: VecDeque::new(),
        };
        for _ in 0..consumer.growth.members() {
            consumer.add_session(false);
        }
        consumer
    }

    fn add_session(&mut self, is_visit: bool) {
        let seed = self.settings.session.seed.wrapping_add(self.sessions.len() as u64);
        let settings = events::Settings { seed, ..self.settings.session };
        self.sessions.push(if is_visit { Session::visit(settings) } else { Session::member(settings) });
        self.nodes.add_session(is_visit);
    }

    /// Number of sessions; it only grows. The client id of a session ends in its index.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    #[must_use]
    pub fn session(&self, index: SessionIndex) -> &Session {
        &self.sessions[index]
    }

    /// For its shell to carry out commands and acknowledgements.
    pub fn session_mut(&mut self, index: SessionIndex) -> &mut Session {
        &mut self.sessions[index]
    }

    /// The broker's nodes, when their names were resolved again. Not empty.
    pub fn set_nodes(&mut self, nodes: &[Node]) {
        self.nodes.set(nodes);
    }

    /// The shell connects this session: to which node, and how long to wait for it if another one may do better.
    pub fn dial(&mut self, index: SessionIndex, now: Instant) -> (Node, Option<Duration>) {
        self.nodes.dial(index, now)
    }

    /// Call [`handle_timeout`](Self::handle_timeout) afterwards.
    pub fn handle_event(&mut self, index: SessionIndex, event: Event, now: Instant) {
        self.sessions[index].handle_event(event, now);
    }

    pub fn published(&mut self, index: SessionIndex, message: Message<'_>, now: Now) {
        if message.packet_id.is_none() && self.broker_drops.heard(message.topic, message.payload) {
            return;
        }
        let room = self.room_for(index, message, now.wall);
        match self.sessions[index].published(message, room, now.instant) {
            Admission::Take(arrival) => {
                self.intake.take(message, arrival.map(|arrival| (index, arrival)), now);
                // The other reasons to close a batch concern all sessions, and wait for `handle_timeout`.
                if self.intake.is_due(now.instant) {
                    self.move_batches(now.instant);
                }
            }
            Admission::Defer => {}
            Admission::Shed => {
                self.intake.shed(message, now.wall);
                self.notices.extend(self.log.shedding.allow(now.instant).then_some(Notice::Shedding));
            }
        }
    }

    /// The outcome of a command.
    pub fn handle_report(&mut self, report: Report, now: Instant) {
        self.delivery.handle_report(report, now);
    }

    /// What ClickHouse answered when it was last asked.
    pub fn server(&mut self, status: ServerStatus, now: Instant) {
        if status.answers.is_ok() {
            self.clock.compared(status.clock_off.clone(), status.clock_jumps);
        }
        self.delivery.server(status, now);
    }

    /// What to ask ClickHouse, and how soon.
    #[must_use]
    pub fn attention(&self, now: Instant) -> Attention {
        Attention { clock_jumps: self.clock.jumps(), ..self.delivery.attention(now) }
    }

    /// From now on nothing of these drivers is taken.
    pub fn erase(&mut self, erased: Arc<Erased>) {
        self.intake.erase(erased);
    }

    /// The driver calls this before [`published`](Self::published) with the same `now`, which judges the age of each fix.
    pub fn read_clock(&mut self, now: Now) {
        self.clock.read(now);
    }

    /// The process shuts down.
    pub fn leave(&mut self, leave: Leave, now: Instant) {
        self.leaving.get_or_insert(leave);
        self.delivery.leave(now);
        for (index, session) in self.sessions.iter_mut().enumerate() {
            // What waits for its node is new: without a connection it was never subscribed.
            let is_unused = self.nodes.is_waiting(index) && !session.has_connected();
            let leave = if is_unused { Leave::KeepSession } else { leave };
            session.handle_event(Event::Leave(leave), now);
        }
    }

    /// Does everything that follows from the events so far and from the time.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.delivery.set_under_pressure(self.is_under_pressure());
        self.move_batches(now);
        self.delivery.handle_timeout(now);
        self.complete(now);
        self.nodes.follow(&mut self.sessions, now, &mut self.notices);
        // Before the sessions' turn: a former one may end as soon as the last look at an index has.
        if self.leaving.is_none() {
            self.grow(now);
        }
        for index in 0..self.sessions.len() {
            let may_end = self.growth.former.may_end(&self.sessions, index);
            let room = self.has_room_to_renew(index);
            self.sessions[index].handle_timeout(room, may_end, now);
        }
        self.full_since = self.is_full_for_a_read().then(|| self.full_since.unwrap_or(now));
        self.watch_progress(now);
        self.window_full_for = self.longest_full_window(now);
        self.tell(now);
    }

    /// The next command for the executor.
    pub fn poll_command(&mut self) -> Option<Command> {
        self.delivery.poll_command()
    }

    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// The next batch that has become durable, for the metrics.
    pub fn poll_durable(&mut self) -> Option<Durable> {
        self.durable.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due, if nothing happens before.
    #[must_use]
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let sessions = self.sessions.iter().filter_map(Session::poll_timeout);
        let batch = match self.delivery.wants(now) {
            Want::ToInsert(_) if self.leaving.is_none() => self.intake.deadline(),
            Want::ToInsert(_) | Want::ToStore => self.closes_early_at(),
            Want::Nothing => None,
        };
        let held = self.held_back_until().filter(|until| now < *until);
        sessions
            .chain(batch)
            .chain(held)
            .chain(self.suspicion_at())
            .chain(self.nodes.poll_timeout())
            .chain(self.delivery.poll_timeout(now))
            .min()
    }

    /// Every session has ended, and no batch of theirs is under way.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        (self.leaving.is_some() || self.growth.former.has_looked())
            && self.sessions.iter().all(|session| session.connection() == ConnectionState::Ended)
            && self.intake.is_empty()
            && !self.delivery.is_busy()
    }

    /// And no replay is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.has_ended() && self.delivery.is_idle()
    }

    #[must_use]
    pub fn is_replaying(&self) -> bool {
        self.delivery.is_replaying()
    }

    /// The smallest in-flight window of a member.
    #[must_use]
    pub fn smallest_window(&self) -> usize {
        let members = &self.sessions[..self.growth.members()];
        members.iter().map(Session::window).min().unwrap_or(usize::MAX)
    }

    /// The lines of `/readyz`; empty when ready.
    #[must_use]
    pub fn unready_reasons(&self, now: Instant) -> Vec<String> {
        let mut reasons = self.growth.unready_reasons(&self.sessions, now);
        reasons.extend(self.delivery.unready_reasons(now));
        reasons.extend(self.clock.unready_reason().map(|why| format!("clock: {why}")));
        reasons.extend(self.window_full_reason(now));
        let stalled = self.progress.1.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        if stalled >= STALLED_AFTER {
            reasons.push(format!(
                "acknowledgements: none for {} s, and {} messages wait",
                stalled.as_secs(),
                self.unacked()
            ));
        }
        reasons
    }

    /// Counts and levels of one moment.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let (members, visits) = self.sessions.split_at(self.growth.members());
        Totals {
            sessions: self.sessions.iter().map(Session::totals).reduce(|a, b| a.plus(b)).unwrap_or_default(),
            intake: self.intake.totals(),
            delivery: self.delivery.totals(),
            nodes: self.nodes.totals(members),
            broker_dropped: self.broker_drops.dropped(),
            former: self.growth.former.totals(visits),
            window_full_for: self.window_full_for,
            still_subscribed: self.sessions.iter().any(Session::is_still_subscribed),
        }
    }

    fn unacked(&self) -> usize {
        self.sessions.iter().map(Session::unacked).sum()
    }

    /// From the intake to delivery, as many as delivery wants.
    fn move_batches(&mut self, now: Instant) {
        loop {
            let want = self.delivery.wants(now);
            let when = match want {
                Want::ToInsert(places) => {
                    self.intake.set_wanted(places);
                    self.closes_to_insert(now)
                }
                Want::ToStore => {
                    self.intake.set_wanted(0);
                    self.closes_to_store(now)
                }
                Want::Nothing => return self.intake.set_wanted(0),
            };
            let Some(batch) = self.intake.next(when, now) else { return };
            self.delivery.take(batch, now);
        }
    }

    /// An open batch closes before it is due if the broker can send nothing more.
    fn closes_to_insert(&mut self, now: Instant) -> CloseWhen {
        let mut sessions = self.sessions.iter().enumerate();
        let leaves = self.is_flushing() || self.leaving.is_some() && self.closes_early(now);
        if leaves || sessions.any(|(index, session)| self.waits_for_open(index, session)) {
            return CloseWhen::NotEmpty;
        }
        if self.suspicion_at().is_none_or(|at| at > now) {
            return CloseWhen::Due;
        }
        let suspects = |session: &&mut Session| session.suspicion_at().is_some_and(|at| at <= now);
        self.sessions.iter_mut().filter(suspects).for_each(|session| session.probed(now));
        CloseWhen::NotEmpty
    }

    /// It gets nothing more, and rows of its messages are in the open batch.
    fn waits_for_open(&self, index: SessionIndex, session: &Session) -> bool {
        let is_full = session.unacked() >= session.window();
        (session.is_paused() || is_full) && self.intake.is_open_for(index)
    }

    fn closes_to_store(&self, now: Instant) -> CloseWhen {
        let worth_a_file = self.closes_early(now) || self.is_flushing();
        if worth_a_file { CloseWhen::NotEmpty } else { CloseWhen::Due }
    }

    fn closes_early_at(&self) -> Option<Instant> {
        self.intake.open().opened_at.map(|opened_at| opened_at + EARLY_AGE)
    }

    fn closes_early(&self, now: Instant) -> bool {
        self.closes_early_at().is_some_and(|at| at <= now)
    }

    fn is_flushing(&self) -> bool {
        self.leaving.is_some() && self.sessions.iter().all(Session::is_flushing)
    }

    /// When a silence suggests that a window is full. Not while a batch is under way: the broker may wait for its
    /// acknowledgements.
    fn suspicion_at(&self) -> Option<Instant> {
        if self.intake.open().is_empty() || self.delivery.is_busy() {
            return None;
        }
        self.sessions.iter().filter_map(Session::suspicion_at).min()
    }

    /// From delivery through the intake to the sessions.
    fn complete(&mut self, now: Instant) {
        while let Some(durable) = self.delivery.poll_durable() {
            self.intake.durable(durable.batch);
            self.durable.push_back(durable);
        }
        while let Some(completion) = self.intake.poll_completion() {
            self.sessions[completion.session].complete_below(completion.below, now);
        }
        if let Some(bytes) = self.delivery.batch_bytes_max() {
            self.intake.lower_batch_bytes(bytes);
        }
    }

    fn watch_progress(&mut self, now: Instant) {
        let acks = self.sessions.iter().map(Session::acks).sum();
        let (last, since) = self.progress;
        let since = if acks > last { None } else { since };
        self.progress = (acks, (self.unacked() > 0).then(|| since.unwrap_or(now)));
    }

    fn tell(&mut self, now: Instant) {
        for (index, session) in self.sessions.iter_mut().enumerate() {
            let notices = std::iter::from_fn(|| session.poll_notice());
            self.notices.extend(notices.map(|notice| Notice::Session(index, notice)));
        }
        self.notices.extend(std::iter::from_fn(|| self.delivery.poll_notice()).map(Notice::Delivery));
        let intake = self.intake.totals();
        let encrypted = intake.ignored[Ignored::Encrypted as usize];
        if encrypted > 0 && self.log.encrypted.allow(now) {
            self.notices.push_back(Notice::Encrypted);
        }
        let foreign = intake.foreign_messages;
        if foreign > self.log.foreign_messages && self.log.foreign.allow(now) {
            self.log.foreign_messages = foreign;
            self.notices.push_back(Notice::Foreign { messages: foreign });
        }
        let expired = self.growth.former.expired();
        if expired > 0 && self.log.expired.allow(now) {
            self.notices.push_back(Notice::FormerExpired { sessions: expired });
        }
    }

    /// More sessions where their windows are small, or a node has none; visits to former ones.
    fn grow(&mut self, now: Instant) {
        let wanted = self.settings.window_wanted;
        let without = loop {
            let may_grow = self.settings.connections == Connections::Auto;
            let node = self.nodes.without_session(self.growth.members(), may_grow);
            match self.growth.step(&self.sessions, wanted, node.is_some(), self.nodes.count()) {
                Step::Nothing => break node.filter(|_| self.growth.members() == CONNECTIONS_MAX),
                Step::Visit => self.add_session(true),
                Step::Grow => {
                    let sessions = self.growth.members();
                    // A session that may still hold a former process's messages must not wait for a node that is away.
                    let was_left = self.sessions.get(sessions - 1).is_some_and(Session::was_left);
                    let node = node.filter(|_| self.growth.former.has_looked() && !was_left);
                    match self.sessions.get_mut(sessions - 1) {
                        Some(visited) => visited.become_member(),
                        None => self.add_session(false),
                    }
                    node.iter().for_each(|node| self.nodes.assign(sessions - 1, Arc::clone(node)));
                    self.notices.push_back(Notice::Growing { sessions, node });
                }
            }
        };
        let is_new = self.log.no_more.allow_while(without.is_some(), now);
        self.notices.extend(without.filter(|_| is_new).map(|node| Notice::NoMoreSessions { node }));
        let window = self.growth.window(&self.sessions);
        if window < wanted && self.growth.is_complete(&self.sessions, wanted) && self.log.window.allow(now) {
            self.notices.push_back(Notice::WindowSmall { window, wanted, sessions: self.growth.members() });
        }
    }
}
