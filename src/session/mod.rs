//! What one MQTT session does next, over all its connections: events in, commands out.
//!
//! It knows arrival numbers and packet ids, not rows. It decides when to connect, which messages to take, which may be
//! acknowledged, and how to leave.
//!
//! Guarantee: nothing is acknowledged before the intake says that it is complete. Nothing of one connection is
//! acknowledged on another. What a connection took is acknowledged on it, if it lives. Every wait has a deadline.
//! It holds no clock, socket or task: its shell, `mqtt/driver.rs`, tells it what happened and when, and does as it says.

pub mod acks;
pub mod events;
mod kept;
mod leaving;
mod outage;
pub(crate) mod window;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use self::acks::{Ack, Acks};
use self::events::{
    Admission, Command, ConnectionState, Event, Leave, NoRoom, Notice, Role, Settings, Terms, Totals,
};
use self::kept::{Found, Kept};
use self::leaving::Leaving;
use self::outage::{End, Outage};
use self::window::Window;

/// After UNSUBACK and the last acknowledgement, a silence of this length is worth the question whether that was all.
const DRAIN_QUIET: Duration = Duration::from_secs(1);
/// A session that may be left behind is visited so often, if it cannot be reached.
const VISITS_MAX: u32 = 3;
/// How long the broker may take to close after DISCONNECT.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// See the module's documentation.
#[derive(Debug)]
pub struct Session {
    settings: Settings,
    connection: ConnectionState,
    leaving: Leaving,
    acks: Acks,
    window: Window,
    letting_go: Option<NoRoom>,
    /// Messages let go on this connection.
    let_go: u64,
    kept: Kept,
    /// It has been subscribed.
    has_lived: bool,
    exactly_once_told: bool,
    /// The last connection went with messages unacknowledged, or with acknowledgements that may not have left.
    held_by_broker: bool,
    outage: Outage,
    disconnect_sent: bool,
    commands: VecDeque<Command>,
    notices: VecDeque<Notice>,
    totals: Totals,
}

impl Session {
    /// A session that wants to connect at once.
    #[must_use]
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            connection: ConnectionState::Connecting,
            leaving: match settings.role {
                Role::Member => Leaving::No,
                Role::Leftover => Leaving::Unsubscribing,
            },
            acks: Acks::default(),
            window: Window::new(settings.receive_maximum),
            letting_go: None,
            let_go: 0,
            kept: Kept::default(),
            has_lived: false,
            exactly_once_told: false,
            held_by_broker: false,
            disconnect_sent: false,
            outage: Outage::new(settings.seed),
            commands: VecDeque::new(),
            notices: VecDeque::new(),
            totals: Totals::default(),
            settings,
        }
    }

    /// Tells the session what happened. Then let it take its [turn](Self::turn).
    pub(crate) fn handle(&mut self, event: Event, now: Instant) {
        match event {
            Event::Connected { session_present, receive_maximum } => {
                self.connected(session_present, receive_maximum, now);
            }
            Event::Subscribed { refusals } => self.subscribed(&refusals, now),
            Event::Unsubscribed { refusals } => self.unsubscribed(&refusals, now),
            Event::DisconnectSent => self.disconnect_sent = true,
            Event::Disconnected { taken_over, why } => self.disconnected(taken_over, why, now),
            Event::Leave(leave) => self.leave(leave, now),
        }
    }

    /// A PUBLISH came; `ack`: what it wants to be answered with, none at QoS 0; `redelivered`: its DUP flag.
    pub(crate) fn published(
        &mut self,
        ack: Option<Ack>,
        redelivered: bool,
        room: Result<(), NoRoom>,
        now: Instant,
    ) -> Admission {
        match &mut self.leaving {
            Leaving::Draining { quiet_until } => *quiet_until = now + DRAIN_QUIET,
            Leaving::Confirming { came } => *came = true,
            Leaving::No | Leaving::Unsubscribing | Leaving::Flushing | Leaving::EndingSession => {}
        }
        let Some(ack) = ack else {
            let takes = room.is_ok() && self.takes_messages();
            self.totals.messages_received += 1;
            return if takes { Admission::Take(None) } else { Admission::Shed };
        };
        self.notices.extend(self.kept.arrived(redelivered));
        let is_open = self.takes_messages() && self.is_connected();
        if let (true, None, Err(why)) = (is_open, self.letting_go, room) {
            self.letting_go = Some(why);
            self.totals.stalls += 1;
            self.notices.push_back(Notice::LettingGo(why));
        }
        if !is_open || self.letting_go.is_some() {
            self.let_go += 1;
            self.totals.messages_let_go += u64::from(self.letting_go.is_some());
            return Admission::LetGo;
        }
        if matches!(ack, Ack::Received(_)) && !std::mem::replace(&mut self.exactly_once_told, true) {
            self.notices.push_back(Notice::ExactlyOnce);
        }
        self.totals.messages_received += 1;
        self.totals.messages_redelivered += u64::from(redelivered);
        let arrival = self.acks.arrived(ack);
        self.window.arrived(self.acks.unacked(), now);
        Admission::Take(Some(arrival))
    }

    /// Every row of the messages below this arrival number is durable.
    pub(crate) fn complete_below(&mut self, arrival: u64, now: Instant) {
        self.acks.complete_below(arrival);
        self.window.acked(now);
    }

    /// What to acknowledge next, if anything; offer it to the connection, then say [`ack_sent`](Self::ack_sent). One
    /// that the connection cannot take now stays first.
    #[must_use]
    pub fn ack_due(&self) -> Option<Ack> {
        self.acks.due()
    }

    /// The acknowledgement that was due is in the connection's hands.
    pub fn ack_sent(&mut self) {
        self.acks.sent();
        self.totals.acks += 1;
    }

    /// Steps that depend on time, on what has been acknowledged, and on `room`: enough for a new connection.
    pub(crate) fn turn(&mut self, room: bool, now: Instant) {
        self.window.tick(now);
        let unacked = self.acks.unacked();
        if let Leaving::Draining { quiet_until } = &mut self.leaving {
            if unacked > 0 {
                *quiet_until = now + DRAIN_QUIET; // a full window is silent until it is acknowledged
            } else if *quiet_until <= now && self.letting_go.is_none() && self.is_connected() {
                self.leaving = Leaving::Confirming { came: false };
                self.unsubscribe(now);
            }
        }
        self.advance(room, now);
    }

    /// The next thing to do, if any.
    pub fn command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// The next thing to log, if any.
    pub(crate) fn notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Where the connection stands: the shell keeps one in every state but `BackingOff` and `Ended`.
    #[must_use]
    pub fn connection(&self) -> ConnectionState {
        self.connection
    }

    /// How to connect.
    #[must_use]
    pub fn terms(&self) -> Terms {
        Terms { end_session: self.leaving == Leaving::EndingSession }
    }

    /// When the next [turn](Self::turn) is due, if nothing happens before.
    #[must_use]
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let drained =
            if let Leaving::Draining { quiet_until } = self.leaving { Some(quiet_until) } else { None };
        let drained =
            drained.filter(|_| self.acks.unacked() == 0 && self.letting_go.is_none() && self.is_connected());
        self.connection.deadline().into_iter().chain(drained).min()
    }

    /// Messages taken on this connection and not acknowledged.
    #[must_use]
    pub fn unacked(&self) -> usize {
        self.acks.unacked()
    }

    /// How many unacknowledged messages the broker lets us have.
    #[must_use]
    pub(crate) fn window(&self) -> &Window {
        &self.window
    }

    /// Rows go out early because of a [suspicion](Window::suspicion_at).
    pub(crate) fn probed(&mut self, now: Instant) {
        self.window.probed(self.acks.unacked(), now);
    }

    /// Messages are being left with the broker.
    #[must_use]
    pub(crate) fn is_letting_go(&self) -> bool {
        self.letting_go.is_some()
    }

    /// Nothing is taken any more: what is open may go out.
    #[must_use]
    pub(crate) fn is_flushing(&self) -> bool {
        matches!(self.leaving, Leaving::Flushing | Leaving::EndingSession)
            || self.connection == ConnectionState::Ended
    }

    /// A visit that has ended goes on as a member. Arrival numbers go on, too.
    pub(crate) fn become_member(&mut self) {
        self.settings.role = Role::Member;
        self.leaving = Leaving::No;
        self.connection = ConnectionState::Connecting;
        self.kept.forget();
    }

    /// It has been subscribed.
    #[must_use]
    pub(crate) fn has_lived(&self) -> bool {
        self.has_lived
    }

    /// The broker held this session when we came.
    #[must_use]
    pub(crate) fn was_found(&self) -> bool {
        self.kept.was_found()
    }

    /// It wants to unsubscribe and has not been able to.
    #[must_use]
    pub(crate) fn is_still_subscribed(&self) -> bool {
        self.settings.role == Role::Member && self.leaving == Leaving::Unsubscribing
    }

    /// Why it does not do its work, in words.
    #[must_use]
    pub(crate) fn trouble(&self, now: Instant) -> Option<String> {
        if self.leaving != Leaving::No {
            return Some("leaving".to_owned());
        }
        let letting_go = self.letting_go.map(|why| Notice::LettingGo(why).to_string());
        self.outage.trouble(self.connection.live_since(), now).or(letting_go)
    }

    /// Acknowledgements sent.
    pub(crate) fn acks(&self) -> u64 {
        self.totals.acks
    }

    /// Counts and levels now.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let visits = self.settings.role == Role::Leftover;
        let is_left = self.connection == ConnectionState::Ended && self.leaving != Leaving::EndingSession;
        Totals {
            leftovers_found: u64::from(visits && self.was_found()),
            leftovers_left: u64::from(visits && is_left),
            unacked: self.acks.unacked() as u64,
            // A visit takes no share of the load.
            window: if self.settings.role == Role::Member { self.window.messages() as u64 } else { 0 },
            connected: u64::from(self.connection.live_since().is_some()),
            held_by_broker: u64::from(self.held_by_broker || self.acks.unacked() > 0),
            reconnects: self.kept.reconnects(),
            sessions_lost: self.kept.sessions_lost(),
            ..self.totals
        }
    }

    fn takes_messages(&self) -> bool {
        self.leaving == Leaving::No || self.leaving.unsubscribes()
    }

    /// CONNACK came, and the connection has not ended.
    fn is_open(&self) -> bool {
        self.is_connected() || matches!(self.connection, ConnectionState::Closing { .. })
    }

    fn is_connected(&self) -> bool {
        matches!(self.connection, ConnectionState::Subscribing { .. } | ConnectionState::Live { .. })
    }

    fn connected(&mut self, session_present: bool, announced: Option<u16>, now: Instant) {
        self.held_by_broker = false;
        self.window.connected(announced);
        if self.settings.role == Role::Member || session_present {
            let window = self.window.messages();
            self.notices.push_back(Notice::Connected { session_present, window });
        }
        let found = Found { session_present, announced, asked: self.settings.receive_maximum };
        let lost = self.kept.connected(found, self.terms().end_session);
        self.notices.extend(lost);
        self.connection = ConnectionState::Subscribing { until: now + self.settings.answer_within };
        match self.leaving {
            Leaving::No => self.commands.push_back(Command::Subscribe),
            Leaving::Unsubscribing | Leaving::Draining { .. } | Leaving::Confirming { .. }
                if session_present =>
            {
                self.leaving = Leaving::Unsubscribing;
                self.commands.push_back(Command::Unsubscribe);
            }
            // Nothing is there: not even a subscription.
            Leaving::Unsubscribing | Leaving::Draining { .. } | Leaving::Confirming { .. } => {
                self.drained(now)
            }
            Leaving::Flushing | Leaving::EndingSession => self.disconnect(false, now),
        }
    }

    fn subscribed(&mut self, refusals: &[String], now: Instant) {
        if !matches!(self.connection, ConnectionState::Subscribing { .. }) || self.leaving != Leaving::No {
            return;
        }
        if refusals.is_empty() {
            self.connection = ConnectionState::Live { since: now };
            self.has_lived = true;
            self.outage.is_over();
            self.notices.push_back(Notice::Subscribed);
            return;
        }
        let why = refusals.join("; ");
        self.notices.push_back(Notice::SubscriptionRefused(why.clone()));
        self.hang_up(format!("subscription refused: {why}"), now);
    }

    fn unsubscribed(&mut self, refusals: &[String], now: Instant) {
        if !matches!(self.leaving, Leaving::Unsubscribing | Leaving::Confirming { .. })
            || !matches!(self.connection, ConnectionState::Subscribing { .. })
        {
            return;
        }
        if refusals.is_empty() {
            self.connection = ConnectionState::Live { since: now };
            if self.leaving == (Leaving::Confirming { came: false }) {
                self.drained(now);
            } else {
                self.leaving = Leaving::Draining { quiet_until: now + DRAIN_QUIET };
            }
        } else {
            self.notices.push_back(Notice::UnsubscriptionRefused(refusals.join("; ")));
            self.held_by_broker = true;
            self.leaving = Leaving::Flushing;
        }
    }

    /// There is nothing more for us.
    fn drained(&mut self, now: Instant) {
        match self.settings.role {
            Role::Member => self.leaving = Leaving::Flushing,
            // One that was there is ended by a clean start: what came for it meanwhile goes to its group.
            Role::Leftover if self.was_found() => {
                let messages = self.totals.messages_received;
                self.notices.push_back(Notice::LeftoverEmptied { messages });
                self.disconnect(true, now);
                self.leaving = Leaving::EndingSession;
            }
            Role::Leftover => {
                self.leaving = Leaving::EndingSession;
                self.disconnect(false, now);
            }
        }
    }

    /// For good, or for a new connection.
    fn disconnect(&mut self, again: bool, now: Instant) {
        self.commands.push_back(Command::Disconnect { end_session: self.leaving == Leaving::EndingSession });
        self.disconnect_sent = false;
        self.connection = ConnectionState::Closing { until: now + CLOSE_WITHIN, again };
    }

    fn hang_up(&mut self, why: String, now: Instant) {
        self.commands.push_back(Command::HangUp);
        self.disconnected(false, why, now);
    }

    fn disconnected(&mut self, taken_over: bool, why: String, now: Instant) {
        if !self.is_open() && self.connection != ConnectionState::Connecting {
            return;
        }
        let (unacked, let_go) = (self.acks.unacked(), std::mem::take(&mut self.let_go));
        self.held_by_broker |= unacked > 0 || self.is_closing_unsent();
        self.kept.ended(unacked + usize::try_from(let_go).unwrap_or(usize::MAX));
        self.acks.new_epoch();
        self.letting_go = None;
        if let ConnectionState::Closing { again, .. } = self.connection {
            self.connection =
                if again { ConnectionState::BackingOff { until: now } } else { ConnectionState::Ended };
        } else {
            self.back_off(taken_over, why, now);
        }
    }

    fn back_off(&mut self, taken_over: bool, why: String, now: Instant) {
        let lived = self.connection.live_since().map(|since| now.duration_since(since));
        let leaving = self.leaving != Leaving::No;
        let until = self.outage.began(End { lived, taken_over, leaving, why }, now, &mut self.notices);
        let is_done =
            self.settings.role == Role::Leftover && (taken_over || self.outage.failures() >= VISITS_MAX);
        // A visit ends where somebody lives, or where we may not go.
        self.connection =
            if is_done { ConnectionState::Ended } else { ConnectionState::BackingOff { until } };
    }

    /// The last acknowledgements may still be on our side.
    fn is_closing_unsent(&self) -> bool {
        matches!(self.connection, ConnectionState::Closing { .. }) && !self.disconnect_sent
    }

    fn leave(&mut self, leave: Leave, now: Instant) {
        if self.settings.role == Role::Leftover {
            self.leaving = Leaving::Flushing; // the next run looks again
        }
        if self.leaving != Leaving::No {
            return;
        }
        self.leaving = match leave {
            Leave::KeepSession => Leaving::Flushing,
            Leave::Unsubscribe => Leaving::Unsubscribing,
        };
        if leave == Leave::KeepSession {
            return;
        }
        if self.is_connected() {
            self.unsubscribe(now);
        } else if let ConnectionState::BackingOff { until } = &mut self.connection {
            *until = now; // the grace may be shorter than that
        }
    }

    fn unsubscribe(&mut self, now: Instant) {
        self.commands.push_back(Command::Unsubscribe);
        self.connection = ConnectionState::Subscribing { until: now + self.settings.answer_within };
    }

    fn advance(&mut self, room: bool, now: Instant) {
        if self.leaving == Leaving::Flushing && !self.is_open() {
            self.connection = ConnectionState::Ended;
        } else if self.connection.deadline().is_some_and(|until| until <= now) {
            self.waited_long_enough(now);
        } else if self.acks.unacked() == 0 && self.leaving == Leaving::Flushing && self.is_connected() {
            self.disconnect(false, now);
        } else if self.acks.unacked() == 0 && self.letting_go.is_some() && room && self.may_renew() {
            // The next connection brings what was let go on this one.
            self.notices.push_back(Notice::Renewed { let_go: self.let_go });
            self.disconnect(true, now);
        }
    }

    fn may_renew(&self) -> bool {
        self.connection.live_since().is_some() && self.takes_messages()
    }

    fn waited_long_enough(&mut self, now: Instant) {
        match self.connection {
            ConnectionState::BackingOff { .. } => self.connection = ConnectionState::Connecting,
            ConnectionState::Subscribing { .. } => {
                let asked = if self.leaving.unsubscribes() { "UNSUBSCRIBE" } else { "SUBSCRIBE" };
                self.hang_up(
                    format!("no answer to our {asked} within {:?}", self.settings.answer_within),
                    now,
                );
            }
            ConnectionState::Closing { .. } => self.hang_up(String::new(), now),
            ConnectionState::Connecting | ConnectionState::Live { .. } | ConnectionState::Ended => {}
        }
    }
}
