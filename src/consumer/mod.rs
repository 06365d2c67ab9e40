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
//! [`Consumer::troubles`] says why.
//!
//! Its shell is `mqtt/driver.rs`, which owns the connections; `delivery/executor.rs` does what delivery says.

mod back_pressure;
pub(crate) mod broker_drops;
mod clock;
mod connections;
mod notice;
mod totals;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::back_pressure::{BackPressure, READ_ROOM_BYTES};
use self::broker_drops::BrokerDrops;
use self::clock::Clock;
pub use self::clock::Now;
pub use self::connections::{CONNECTIONS_MAX, Connections};
use self::connections::{Growth, Step};
pub(crate) use self::notice::{ACKNOWLEDGED_WITHIN, Notice};
pub(crate) use self::totals::Totals;
use crate::delivery::events::{Command, Durable, Report, Schema};
use crate::delivery::policy::{Policy, Want};
use crate::intake::{CloseWhen, Intake, SessionIndex};
use crate::pipeline::decode::{Ignored, Message};
use crate::pipeline::erased::Erased;
use crate::session::Session;
use crate::session::acks::Ack;
use crate::session::events::{self, Admission, ConnectionState, Event, Leave, NoRoom, Qos, Role};

/// What goes to the spool before it is due waits this long for more: a file costs two fsyncs and an insert.
const FILE_AGE: Duration = Duration::from_millis(100);
/// Acknowledgements that stand still for so long are a trouble, whatever the cause.
const STALLED_AFTER: Duration = Duration::from_secs(20);
/// A subscription of former days is told of this often.
const FOREIGN_LOGGED_EVERY: Duration = Duration::from_secs(60);

/// What a consumer needs to know.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How many sessions.
    pub connections: Connections,
    /// Of each session.
    pub session: events::Settings,
    /// Unacknowledged messages that keep every insert busy: (inserts in flight + 1) × rows of a batch.
    pub window_wanted: usize,
    /// `mqtt.qos`.
    pub qos: Qos,
    /// `mqtt.buffer_bytes_max`.
    pub buffer_bytes_max: usize,
    /// A larger jump of the wall clock stops the taking until ClickHouse has said what time it is.
    pub clock_jump_max: Duration,
}

/// A PUBLISH, as the connection read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Publish<'a> {
    /// Topic as sent.
    pub topic: &'a [u8],
    /// Payload as sent; of a packet larger than Maximum Packet Size its beginning.
    pub payload: &'a [u8],
    /// How long it was as sent.
    pub payload_bytes: usize,
    /// What it wants to be answered with; none at QoS 0.
    pub ack: Option<Ack>,
    /// The broker may have sent it before (DUP).
    pub redelivered: bool,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Consumer {
    settings: Settings,
    sessions: Vec<Session>,
    intake: Intake,
    delivery: Policy,
    growth: Growth,
    clock: Clock,
    broker_drops: BrokerDrops,
    leaving: Option<Leave>,
    back_pressure: BackPressure,
    shedding: bool,
    window_told: bool,
    foreign_told: Option<(u64, Instant)>,
    encrypted_told: bool,
    /// Acknowledgements at the last look, and since when there have been no more while messages waited.
    progress: (u64, Option<Instant>),
    notices: VecDeque<Notice>,
    durable: VecDeque<Durable>,
}

impl Consumer {
    /// A consumer whose sessions want to connect at once.
    #[must_use]
    pub fn new(settings: Settings, intake: Intake, delivery: Policy) -> Self {
        let mut consumer = Self {
            growth: Growth::new(settings.connections),
            clock: Clock::new(settings.clock_jump_max),
            settings,
            sessions: Vec::new(),
            intake,
            delivery,
            broker_drops: BrokerDrops::default(),
            leaving: None,
            back_pressure: BackPressure::default(),
            shedding: false,
            window_told: false,
            foreign_told: None,
            encrypted_told: false,
            progress: (0, None),
            notices: VecDeque::new(),
            durable: VecDeque::new(),
        };
        for _ in 0..consumer.growth.members() {
            consumer.add_session(Role::Member);
        }
        consumer
    }

    fn add_session(&mut self, role: Role) {
        let seed = self.settings.session.seed.wrapping_add(self.sessions.len() as u64);
        self.sessions.push(Session::new(events::Settings { role, seed, ..self.settings.session.clone() }));
    }

    /// Sessions there are; they only become more. A session's client id ends in its index.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// One of them.
    #[must_use]
    pub fn session(&self, index: SessionIndex) -> &Session {
        &self.sessions[index]
    }

    /// The same, for its shell to carry out commands and acknowledgements.
    pub fn session_mut(&mut self, index: SessionIndex) -> &mut Session {
        &mut self.sessions[index]
    }

    /// Something happened to a session. Then take a [turn](Self::turn).
    pub fn handle(&mut self, index: SessionIndex, event: Event, now: Instant) {
        self.sessions[index].handle(event, now);
    }

    /// A PUBLISH came.
    pub fn published(&mut self, index: SessionIndex, publish: Publish<'_>, now: Now) {
        if publish.ack.is_none() && self.broker_drops.heard(publish.topic, publish.payload) {
            return;
        }
        let room = self.room();
        let admission = self.sessions[index].published(publish.ack, publish.redelivered, room, now.instant);
        let Publish { topic, payload, payload_bytes, .. } = publish;
        let message = Message { topic, payload, payload_bytes, received_at: now.wall };
        match admission {
            Admission::Take(arrival) => {
                self.intake.take(message, arrival.map(|arrival| (index, arrival)), now.instant);
                // The other reasons to close a batch concern all sessions, and can wait for the turn.
                if self.intake.is_due(now.instant) {
                    self.move_batches(now.instant);
                }
            }
            Admission::LetGo => {}
            Admission::Shed => {
                self.intake.shed(message);
                if !std::mem::replace(&mut self.shedding, true) {
                    self.notices.push_back(Notice::Shedding);
                }
            }
        }
    }

    /// What became of a command of delivery's.
    pub fn report(&mut self, report: Report, now: Instant) {
        self.delivery.report(report, now);
    }

    /// Whether the tables are there.
    pub fn schema(&mut self, schema: Schema) {
        self.delivery.schema(schema);
    }

    /// Whose data is to be gone, from now on.
    pub fn erase(&mut self, erased: Arc<Erased>) {
        self.intake.erase(erased);
    }

    /// Whether ClickHouse answers questions on a connection of their own.
    pub fn answers(&mut self, answer: Result<(), String>, now: Instant) {
        self.delivery.answers(answer, now);
    }

    /// The clocks were read. Before anything that they judge is handed over.
    pub fn read_clock(&mut self, now: Now) {
        self.clock.read(now);
    }

    /// Whether our clock agrees with ClickHouse's, which was asked after so many [jumps](Self::clock_jumps) of ours; if not,
    /// why nothing is taken meanwhile.
    pub fn clock(&mut self, off: Option<String>, jumps: u64) {
        self.clock.compared(off, jumps);
    }

    /// Rises whenever our clock has jumped: somebody should ask ClickHouse for the time.
    pub fn clock_jumps(&self) -> u64 {
        self.clock.jumps()
    }

    /// It is time to go.
    pub fn leave(&mut self, leave: Leave, now: Instant) {
        self.leaving.get_or_insert(leave);
        self.delivery.leave(now);
        self.sessions.iter_mut().for_each(|session| session.handle(Event::Leave(leave), now));
    }

    /// Everything that follows from what happened, and from the time.
    pub fn turn(&mut self, now: Instant) {
        self.delivery.crowded(self.is_crowded());
        self.move_batches(now);
        self.delivery.turn(now);
        self.complete(now);
        let room = self.has_room_to_renew();
        self.sessions.iter_mut().for_each(|session| session.turn(room, now));
        self.back_pressure.turn(self.is_full_for_a_read(), now);
        self.shedding &= self.room().is_err();
        self.watch_progress(now);
        self.tell(now);
        if self.leaving.is_none() {
            self.grow();
        }
    }

    /// Delivery's next command, if any.
    pub fn command(&mut self) -> Option<Command> {
        self.delivery.command()
    }

    /// The next thing to log, if any.
    pub fn notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// The next batch that has become durable, for whoever counts.
    pub fn durable(&mut self) -> Option<Durable> {
        self.durable.pop_front()
    }

    /// When the next [turn](Self::turn) is due, if nothing happens before.
    #[must_use]
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        let sessions = self.sessions.iter().filter_map(Session::deadline);
        let batch = match self.delivery.wants(now) {
            Want::ToInsert(_) => self.intake.deadline(),
            Want::ToStore => self.intake.open().opened_at.map(|opened_at| opened_at + FILE_AGE),
            Want::Nothing => None,
        };
        let held = self.back_pressure.until().filter(|until| now < *until);
        sessions.chain(batch).chain(held).chain(self.suspicion_at()).chain(self.delivery.deadline(now)).min()
    }

    /// Whether nothing should be read now, so that the broker waits. Never where acknowledgements hold it back.
    #[must_use]
    pub fn holds_back(&self, now: Instant) -> bool {
        self.is_full_for_a_read() && self.back_pressure.until().is_none_or(|until| now < until)
    }

    /// Nothing is left to do: every session has ended, and nothing is under way that somebody waits for.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        (self.leaving.is_some() || self.growth.has_looked())
            && self.sessions.iter().all(|session| session.connection() == ConnectionState::Ended)
            && self.intake.is_empty()
            && !self.delivery.is_busy()
    }

    /// And nothing else is under way, such as a replay.
    #[must_use]
    pub(crate) fn is_idle(&self) -> bool {
        self.has_ended() && self.delivery.is_idle()
    }

    /// Files of the spool are being replayed.
    #[must_use]
    pub(crate) fn is_replaying(&self) -> bool {
        self.delivery.is_replaying()
    }

    /// How many unacknowledged messages the broker lets a session have, at least.
    #[must_use]
    pub(crate) fn smallest_window(&self) -> usize {
        let members = &self.sessions[..self.growth.members()];
        members.iter().map(|session| session.window().messages()).min().unwrap_or(usize::MAX)
    }

    /// Rises whenever somebody should look at the tables again.
    #[must_use]
    pub(crate) fn questions(&self) -> u64 {
        self.delivery.questions()
    }

    /// Whether ClickHouse should be asked often how it is.
    #[must_use]
    pub(crate) fn is_doubtful(&self) -> bool {
        self.delivery.is_doubtful()
    }

    /// Why this process does not do its work, a line each; empty when it does.
    #[must_use]
    pub fn troubles(&self, now: Instant) -> Vec<String> {
        let mut troubles = self.growth.troubles(&self.sessions, now);
        troubles.extend(self.delivery.troubles(now));
        troubles.extend(self.clock.off().map(|why| format!("clock: {why}")));
        let stalled = self.progress.1.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        if stalled >= STALLED_AFTER {
            troubles.push(format!(
                "acknowledgements: none for {} s, and {} messages wait",
                stalled.as_secs(),
                self.unacked()
            ));
        }
        troubles
    }

    /// Counts and levels now, all of one moment.
    #[must_use]
    pub fn totals(&self) -> Totals {
        Totals {
            sessions: self.sessions.iter().map(Session::totals).reduce(|a, b| a.plus(b)).unwrap_or_default(),
            intake: self.intake.totals(),
            delivery: self.delivery.totals(),
            broker_dropped: self.broker_drops.dropped(),
            held_back: self.back_pressure.times(),
            still_subscribed: self.sessions.iter().any(Session::is_still_subscribed),
        }
    }

    fn unacked(&self) -> usize {
        self.sessions.iter().map(Session::unacked).sum()
    }

    /// Whether another message can be taken.
    fn room(&self) -> Result<(), NoRoom> {
        if self.clock.off().is_some() {
            return Err(NoRoom::ClockOff);
        }
        if self.intake.room_bytes() == 0 { Err(NoRoom::BufferFull) } else { Ok(()) }
    }

    /// Without acknowledgements: whether what one more read brings might find no room. The open batch is not in the backlog yet.
    fn is_full_for_a_read(&self) -> bool {
        let has_room = self.intake.room_bytes() >= self.intake.open().bytes + READ_ROOM_BYTES;
        self.settings.qos == Qos::AtMostOnce
            && self.leaving.is_none()
            && !(has_room && self.clock.off().is_none())
    }

    /// Whether a session that has let messages go can take them now: half its share of the room is free.
    fn has_room_to_renew(&self) -> bool {
        let share = self.settings.buffer_bytes_max / self.sessions.len().max(1);
        self.clock.off().is_none() && self.intake.room_bytes() * 2 >= share
    }

    /// A broker that waits for acknowledgements queues little, and then drops.
    fn is_crowded(&self) -> bool {
        let crowded = |session: &Session| {
            session.is_letting_go() || session.unacked() * 2 >= session.window().messages()
        };
        self.intake.room_bytes() * 2 <= self.settings.buffer_bytes_max || self.sessions.iter().any(crowded)
    }

    /// From the intake to delivery, as far as delivery wants.
    fn move_batches(&mut self, now: Instant) {
        loop {
            let want = self.delivery.wants(now);
            let when = match want {
                Want::ToInsert(places) => {
                    self.intake.wants(places);
                    self.closes_to_insert(now)
                }
                Want::ToStore => {
                    self.intake.wants(0);
                    self.closes_to_store(now)
                }
                Want::Nothing => return self.intake.wants(0),
            };
            let Some(batch) = self.intake.next(when, now) else { return };
            self.delivery.take(batch, now);
        }
    }

    /// An open batch closes before it is due where nothing more will come.
    fn closes_to_insert(&mut self, now: Instant) -> CloseWhen {
        let mut sessions = self.sessions.iter().enumerate();
        if self.is_flushing() || sessions.any(|(index, session)| self.waits_for_open(index, session)) {
            return CloseWhen::NotEmpty;
        }
        if self.suspicion_at().is_none_or(|at| at > now) || self.intake.open().is_empty() {
            return CloseWhen::Due;
        }
        let suspects = |session: &&mut Session| {
            session.unacked() > 0 && suspicion_at(session).is_some_and(|at| at <= now)
        };
        self.sessions.iter_mut().filter(suspects).for_each(|session| session.probed(now));
        CloseWhen::NotEmpty
    }

    /// A session gets nothing more before rows in the open batch are durable.
    fn waits_for_open(&self, index: SessionIndex, session: &Session) -> bool {
        let is_full = session.unacked() > 0 && session.unacked() >= session.window().messages();
        session.is_letting_go() || is_full && self.intake.is_open_for(index)
    }

    fn closes_to_store(&self, now: Instant) -> CloseWhen {
        let old_enough = self.intake.open().opened_at.is_some_and(|opened_at| opened_at + FILE_AGE <= now);
        let worth_a_file = old_enough || self.intake.is_open_full() || self.is_flushing();
        if worth_a_file { CloseWhen::NotEmpty } else { CloseWhen::Due }
    }

    fn is_flushing(&self) -> bool {
        self.leaving.is_some() && self.sessions.iter().all(Session::is_flushing)
    }

    /// When a silence means that a broker's window is full. While a batch is under way, its acknowledgements are what
    /// the broker may be waiting for.
    fn suspicion_at(&self) -> Option<Instant> {
        if self.intake.open().is_empty() || self.delivery.is_busy() {
            return None;
        }
        self.sessions.iter().filter(|session| session.unacked() > 0).filter_map(suspicion_at).min()
    }

    /// From delivery through the intake to the sessions.
    fn complete(&mut self, now: Instant) {
        while let Some(durable) = self.delivery.next_durable() {
            self.intake.durable(durable.batch);
            self.durable.push_back(durable);
        }
        while let Some(completion) = self.intake.completion() {
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
            let notices = std::iter::from_fn(|| session.notice());
            self.notices.extend(notices.map(|notice| Notice::Session(index, notice)));
        }
        self.notices.extend(std::iter::from_fn(|| self.delivery.notice()).map(Notice::Delivery));
        let intake = self.intake.totals();
        let encrypted = intake.ignored[Ignored::Encrypted as usize];
        if encrypted > 0 && !std::mem::replace(&mut self.encrypted_told, true) {
            self.notices.push_back(Notice::Encrypted);
        }
        let foreign = intake.foreign_messages;
        let (told, at) = self.foreign_told.unwrap_or((0, now));
        if foreign > told && (self.foreign_told.is_none() || now >= at + FOREIGN_LOGGED_EVERY) {
            self.foreign_told = Some((foreign, now));
            self.notices.push_back(Notice::Foreign { messages: foreign });
        }
    }

    /// More sessions where their windows are small; visits to those of earlier runs.
    fn grow(&mut self) {
        let wanted = self.settings.window_wanted;
        match self.growth.step(&self.sessions, wanted) {
            Step::Nothing => {}
            Step::Visit => self.add_session(Role::Leftover),
            Step::Grow => {
                let sessions = self.growth.members();
                match self.sessions.get_mut(sessions - 1) {
                    Some(visited) => visited.become_member(),
                    None => self.add_session(Role::Member),
                }
                self.notices.push_back(Notice::Growing { sessions });
            }
        }
        let window = self.growth.window(&self.sessions);
        if window < wanted
            && self.growth.is_complete(&self.sessions, wanted)
            && !std::mem::replace(&mut self.window_told, true)
        {
            self.notices.push_back(Notice::WindowSmall { window, wanted, sessions: self.growth.members() });
        }
    }
}

fn suspicion_at(session: &Session) -> Option<Instant> {
    session.window().suspicion_at()
}
