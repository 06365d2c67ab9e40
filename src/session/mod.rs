//! What one MQTT session does next, over all its connections: events in, commands out.
//!
//! It knows arrival numbers and packet ids, not rows. It decides when to connect, which messages to take, which may be
//! acknowledged, and how to leave.
//!
//! Guarantee: no message is acknowledged before the intake calls it complete. No message of one connection is acknowledged on
//! another. What a connection took is acknowledged on it, if it lives. Every wait has a deadline.
//! It holds no clock, socket or task: its shell, `mqtt/transport.rs`, reports what happened and when, and obeys.

pub mod acks;
mod continuity;
pub mod events;
mod purpose;
mod reconnect;
pub(crate) mod window;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use self::acks::Acks;
use self::continuity::{Continuity, Found};
use self::events::{
    Admission, Command, ConnectionState, Event, Leave, NoRoom, Notice, Settings, Terms, Totals,
};
use self::purpose::{Emptying, Purpose, Step, Then};
use self::reconnect::{End, Reconnect};
use self::window::Window;
use crate::codec::Message;
use crate::throttle::Throttle;

/// Attempts to connect to a former session that was not found yet. It may not exist, so they do not go on for ever; but its node may be
/// away for some seconds.
const VISITS_MAX: u32 = 8;
/// How long the broker may take to close after DISCONNECT.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Session {
    settings: Settings,
    connection: ConnectionState,
    purpose: Purpose,
    acks: Acks,
    window: Window,
    /// Why messages are deferred on this connection, if they are. None is taken before the next connection.
    paused: Option<NoRoom>,
    /// Messages deferred on this connection.
    deferred: u64,
    continuity: Continuity,
    /// It has been subscribed at least once.
    has_lived: bool,
    exactly_once_logged: Throttle,
    /// The last connection ended with messages unacknowledged, or with acknowledgements that may not have left.
    held_by_broker: bool,
    reconnect: Reconnect,
    commands: VecDeque<Command>,
    notices: VecDeque<Notice>,
    totals: Totals,
}

impl Session {
    /// A member of the group. It connects at once.
    #[must_use]
    pub(crate) fn member(settings: Settings) -> Self {
        Self::new(settings, Purpose::Consume)
    }

    /// A visit to a session that an earlier process may have left: it is unsubscribed, emptied and ended.
    #[must_use]
    pub(crate) fn visit(settings: Settings) -> Self {
        Self::new(settings, Purpose::Empty(Emptying::Unsubscribing, Then::End))
    }

    fn new(settings: Settings, purpose: Purpose) -> Self {
        Self {
            connection: ConnectionState::Connecting,
            purpose,
            acks: Acks::default(),
            window: Window::new(settings.receive_maximum),
            paused: None,
            deferred: 0,
            continuity: Continuity::default(),
            has_lived: false,
            exactly_once_logged: Throttle::once(),
            held_by_broker: false,
            reconnect: Reconnect::new(settings.session_expiry, settings.seed),
            commands: VecDeque::new(),
            notices: VecDeque::new(),
            totals: Totals::default(),
            settings,
        }
    }

    /// Call [`handle_timeout`](Self::handle_timeout) afterwards.
    pub(crate) fn handle_event(&mut self, event: Event, now: Instant) {
        match event {
            Event::Connected { session_present, receive_maximum } => {
                self.connected(session_present, receive_maximum, now);
            }
            Event::Subscribed { refusals } => self.subscribed(&refusals, now),
            Event::Unsubscribed { refusals } => self.unsubscribed(&refusals, now),
            Event::ExactlyOnceRefused => {
                let first = self.exactly_once_logged.allow(now);
                self.notices.extend(first.then_some(Notice::ExactlyOnceRefused));
            }
            Event::DisconnectSent => {
                if let ConnectionState::Closing { sent, .. } = &mut self.connection {
                    *sent = true;
                }
            }
            Event::Disconnected { taken_over, why } => self.disconnected(taken_over, why, now),
            Event::Leave(leave) => self.leave(leave, now),
        }
    }

    /// Decides what to do with a message.
    pub(crate) fn published(
        &mut self,
        Message { packet_id, redelivered, .. }: Message<'_>,
        room: Result<(), NoRoom>,
        now: Instant,
    ) -> Admission {
        if let Purpose::Empty(emptying, _) = &mut self.purpose {
            emptying.handle_message(now);
        }
        let Some(packet_id) = packet_id else {
            let takes = room.is_ok() && self.purpose.takes_messages();
            self.totals.messages_received += 1;
            return if takes { Admission::Take(None) } else { Admission::Shed };
        };
        if let Some(notice) = self.continuity.arrived(redelivered) {
            self.notices.push_back(notice);
        }
        let is_open = self.purpose.takes_messages() && self.is_connected();
        if let (true, None, Err(why)) = (is_open, self.paused, room) {
            self.paused = Some(why);
            self.notices.push_back(Notice::Paused(why));
        }
        if !is_open || self.paused.is_some() {
            self.deferred += 1;
            self.totals.messages_deferred += u64::from(self.paused.is_some());
            return Admission::Defer;
        }
        self.totals.messages_received += 1;
        let arrival = self.acks.arrived(packet_id);
        self.window.arrived(self.acks.unacked(), now);
        Admission::Take(Some(arrival))
    }

    /// Every row of the messages below this arrival number is durable.
    pub(crate) fn complete_below(&mut self, arrival: u64, now: Instant) {
        self.acks.complete_below(arrival);
        self.window.acked(now);
    }

    /// The packet id to acknowledge next. Write it, then call [`ack_sent`](Self::ack_sent); until then it stays first.
    #[must_use]
    pub fn ack_due(&self) -> Option<u16> {
        self.acks.due()
    }

    pub fn ack_sent(&mut self) {
        self.acks.sent();
        self.totals.acks += 1;
    }

    /// Steps that depend on time and on acknowledgements. `room`: there is room for what was deferred. `may_end`: a former
    /// session that is empty may be ended.
    pub(crate) fn handle_timeout(&mut self, room: bool, may_end: bool, now: Instant) {
        self.window.tick(now);
        let settled = self.is_settled();
        if let Purpose::Empty(emptying, then) = &mut self.purpose {
            let then = *then;
            match emptying.handle_timeout(settled, now) {
                Step::Unsubscribe => self.unsubscribe(now),
                Step::Finish if then == Then::Keep || may_end => self.finish_emptying(then, now),
                Step::Finish | Step::Wait => {}
            }
        }
        self.advance(room, now);
    }

    pub fn poll_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    pub(crate) fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// The shell keeps a connection in every state but `BackingOff` and `Ended`.
    #[must_use]
    pub fn connection(&self) -> ConnectionState {
        self.connection
    }

    #[must_use]
    pub fn terms(&self) -> Terms {
        Terms { end_session: self.purpose == Purpose::End }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due, if nothing happens before.
    #[must_use]
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let emptying = self.purpose.emptying().filter(|_| self.is_settled()).and_then(Emptying::poll_timeout);
        self.connection.deadline().into_iter().chain(emptying).min()
    }

    /// Messages taken on this connection and not acknowledged.
    #[must_use]
    pub fn unacked(&self) -> usize {
        self.acks.unacked()
    }

    #[must_use]
    pub(crate) fn window(&self) -> &Window {
        &self.window
    }

    /// The open batch closes early because of a [suspicion](Window::suspicion_at).
    pub(crate) fn probed(&mut self, now: Instant) {
        self.window.probed(self.acks.unacked(), now);
    }

    #[must_use]
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// It takes no more messages, so the open batch need not wait.
    #[must_use]
    pub(crate) fn is_flushing(&self) -> bool {
        matches!(self.purpose, Purpose::Flush | Purpose::End) || self.connection == ConnectionState::Ended
    }

    /// Turns a visit that has ended into a member. Arrival numbers continue.
    pub(crate) fn become_member(&mut self) {
        self.purpose = Purpose::Consume;
        self.connection = ConnectionState::Connecting;
        self.continuity.forget();
    }

    /// When it connects again. It may be put forward, unless another client has taken the session over.
    pub(crate) fn next_try(&mut self) -> Option<&mut Instant> {
        let ConnectionState::BackingOff { until, .. } = &mut self.connection else { return None };
        (!self.reconnect.was_taken_over()).then_some(until)
    }

    #[must_use]
    pub(crate) fn has_lived(&self) -> bool {
        self.has_lived
    }

    /// The broker held this session when we came.
    #[must_use]
    pub(crate) fn was_found(&self) -> bool {
        self.continuity.was_found()
    }

    /// A visit that gave up before the session was empty.
    #[must_use]
    pub(crate) fn was_left(&self) -> bool {
        self.connection == ConnectionState::Ended && matches!(self.purpose, Purpose::Empty(_, Then::End))
    }

    /// A visit to a session that another client has taken back, as far as one can tell.
    pub(crate) fn is_contested(&self) -> bool {
        self.purpose.is_visit() && self.reconnect.is_contested()
    }

    /// UNSUBSCRIBE was not answered yet.
    #[must_use]
    pub(crate) fn is_still_subscribed(&self) -> bool {
        self.purpose == Purpose::Empty(Emptying::Unsubscribing, Then::Keep)
    }

    /// Why it does not consume, for `/readyz`.
    #[must_use]
    pub(crate) fn unready_reason(&self, now: Instant) -> Option<String> {
        if self.purpose != Purpose::Consume {
            return Some("leaving".to_owned());
        }
        let paused = self.paused.map(|why| Notice::Paused(why).to_string());
        self.reconnect.unready_reason(self.connection.live_since(), now).or(paused)
    }

    pub(crate) fn acks(&self) -> u64 {
        self.totals.acks
    }

    #[must_use]
    pub fn totals(&self) -> Totals {
        Totals {
            unacked: self.acks.unacked() as u64,
            // A visit is unsubscribed.
            window: if self.purpose.is_visit() { 0 } else { self.window.messages() as u64 },
            connected: u64::from(self.connection.live_since().is_some()),
            held_by_broker: u64::from(self.held_by_broker || self.acks.unacked() > 0),
            reconnects: self.continuity.reconnects(),
            sessions_lost: self.continuity.sessions_lost(),
            ..self.totals
        }
    }

    fn is_open(&self) -> bool {
        self.is_connected() || matches!(self.connection, ConnectionState::Closing { .. })
    }

    fn is_connected(&self) -> bool {
        matches!(self.connection, ConnectionState::Subscribing { .. } | ConnectionState::Live { .. })
    }

    /// The broker waits for no acknowledgement and holds no deferred message.
    fn is_settled(&self) -> bool {
        self.is_connected() && self.acks.unacked() == 0 && self.paused.is_none()
    }

    fn connected(&mut self, session_present: bool, announced: Option<u16>, now: Instant) {
        self.held_by_broker = false;
        self.window.connected(announced);
        if session_present || self.purpose == Purpose::Consume {
            let window = self.window.messages();
            self.notices.push_back(Notice::Connected { session_present, window });
        }
        let found = Found { session_present, announced, asked: self.settings.receive_maximum };
        let lost = self.continuity.connected(found, self.terms().end_session);
        self.notices.extend(lost);
        self.connection = ConnectionState::Subscribing { until: now + self.settings.answer_within };
        match &mut self.purpose {
            Purpose::Consume => self.commands.push_back(Command::Subscribe),
            Purpose::Empty(emptying, _) if session_present => {
                *emptying = Emptying::Unsubscribing;
                self.commands.push_back(Command::Unsubscribe);
            }
            // There is no session, so no subscription either.
            Purpose::Empty(_, then) => {
                let then = *then;
                self.finish_emptying(then, now);
            }
            Purpose::Flush | Purpose::End => self.disconnect(false, now),
        }
    }

    fn subscribed(&mut self, refusals: &[String], now: Instant) {
        if !matches!(self.connection, ConnectionState::Subscribing { .. }) || self.purpose != Purpose::Consume
        {
            return;
        }
        if refusals.is_empty() {
            self.connection = ConnectionState::Live { since: now };
            self.has_lived = true;
            self.reconnect.succeeded();
            self.notices.push_back(Notice::Subscribed);
            return;
        }
        let why = refusals.join("; ");
        self.notices.push_back(Notice::SubscriptionRefused(why.clone()));
        self.hang_up(format!("subscription refused: {why}"), now);
    }

    fn unsubscribed(&mut self, refusals: &[String], now: Instant) {
        let Purpose::Empty(emptying, _) = &mut self.purpose else { return };
        if !matches!(self.connection, ConnectionState::Subscribing { .. }) || !emptying.handle_unsuback(now) {
            return;
        }
        if refusals.is_empty() {
            self.connection = ConnectionState::Live { since: now };
        } else {
            self.notices.push_back(Notice::UnsubscriptionRefused(refusals.join("; ")));
            self.held_by_broker = true;
            self.purpose = Purpose::Flush;
        }
    }

    /// The broker holds no more messages of this session.
    fn finish_emptying(&mut self, then: Then, now: Instant) {
        self.purpose = match then {
            Then::Keep => Purpose::Flush,
            // A clean start ends it, and the broker gives what came meanwhile to the group.
            Then::End if self.was_found() => {
                let messages = self.totals.messages_received;
                self.notices.push_back(Notice::FormerEmptied { messages });
                self.disconnect(true, now);
                Purpose::End
            }
            Then::End => Purpose::End,
        };
        if self.purpose == Purpose::End && !self.was_found() {
            self.disconnect(false, now);
        }
    }

    /// `again`: a new connection follows.
    fn disconnect(&mut self, again: bool, now: Instant) {
        self.commands.push_back(Command::Disconnect { end_session: self.purpose == Purpose::End });
        self.connection = ConnectionState::Closing { until: now + CLOSE_WITHIN, again, sent: false };
    }

    fn hang_up(&mut self, why: String, now: Instant) {
        self.commands.push_back(Command::HangUp);
        self.disconnected(false, why, now);
    }

    fn disconnected(&mut self, taken_over: bool, why: String, now: Instant) {
        if !self.is_open() && self.connection != ConnectionState::Connecting {
            return;
        }
        let (unacked, deferred) = (self.acks.unacked(), std::mem::take(&mut self.deferred));
        // The last acknowledgements may not have been written.
        let unsent = matches!(self.connection, ConnectionState::Closing { sent: false, .. });
        self.held_by_broker |= unacked > 0 || unsent;
        self.continuity.ended(unacked + usize::try_from(deferred).unwrap_or(usize::MAX));
        self.acks.new_epoch();
        self.paused = None;
        if let ConnectionState::Closing { again, .. } = self.connection {
            let next = again.then_some(ConnectionState::BackingOff { until: now, lived: true });
            self.connection = next.unwrap_or(ConnectionState::Ended);
        } else {
            self.back_off(taken_over, why, now);
        }
    }

    fn back_off(&mut self, taken_over: bool, why: String, now: Instant) {
        let lived = self.connection.live_since().map(|since| now.duration_since(since));
        let is_visit = self.purpose.is_visit();
        let leaving = self.purpose != Purpose::Consume && !is_visit;
        let end = End { lived, taken_over, leaving, why: why.clone() };
        let until = self.reconnect.failed(end, now, &mut self.notices);
        let is_nowhere = !self.was_found() && self.reconnect.failures() >= VISITS_MAX;
        // Another process uses the session, or nobody knows that it exists.
        self.connection = if is_visit && (taken_over || is_nowhere) {
            self.notices.push_back(Notice::FormerLeft { why });
            ConnectionState::Ended
        } else {
            ConnectionState::BackingOff { until, lived: lived.is_some() }
        };
    }

    fn leave(&mut self, leave: Leave, now: Instant) {
        match (self.purpose, leave) {
            // The next process visits a former session again.
            (Purpose::Empty(_, Then::End) | Purpose::End, _) | (Purpose::Consume, Leave::KeepSession) => {
                self.purpose = Purpose::Flush;
            }
            (Purpose::Consume, Leave::Unsubscribe) => {
                self.purpose = Purpose::Empty(Emptying::Unsubscribing, Then::Keep);
                if self.is_connected() {
                    self.unsubscribe(now);
                } else if let ConnectionState::BackingOff { until, .. } = &mut self.connection {
                    *until = now; // the grace may be shorter than that
                }
            }
            (Purpose::Empty(_, Then::Keep) | Purpose::Flush, _) => {}
        }
    }

    fn unsubscribe(&mut self, now: Instant) {
        self.commands.push_back(Command::Unsubscribe);
        self.connection = ConnectionState::Subscribing { until: now + self.settings.answer_within };
    }

    fn advance(&mut self, room: bool, now: Instant) {
        let flushes = self.purpose == Purpose::Flush;
        if flushes && !self.is_open() {
            self.connection = ConnectionState::Ended;
        } else if self.connection.deadline().is_some_and(|until| until <= now) {
            self.waited_long_enough(now);
        } else if self.acks.unacked() > 0 {
            // What this connection took is acknowledged on it.
        } else if flushes && self.is_connected() {
            self.disconnect(false, now);
        } else if self.paused.is_some() && room && self.may_renew() {
            // The next connection brings what was deferred on this one.
            self.notices.push_back(Notice::Renewed { deferred: self.deferred });
            self.disconnect(true, now);
        }
    }

    fn may_renew(&self) -> bool {
        self.connection.live_since().is_some() && self.purpose.takes_messages()
    }

    fn waited_long_enough(&mut self, now: Instant) {
        match self.connection {
            ConnectionState::BackingOff { .. } => self.connection = ConnectionState::Connecting,
            ConnectionState::Subscribing { .. } => {
                let asked = if self.purpose == Purpose::Consume { "SUBSCRIBE" } else { "UNSUBSCRIBE" };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_taken_while_there_is_a_connection_and_room() {
        let (answer_within, session_expiry) = (Duration::from_secs(10), Duration::from_secs(120));
        let settings = Settings { receive_maximum: 100, answer_within, session_expiry, seed: 1 };
        let (mut session, now) = (Session::member(settings), Instant::now());
        let at_least_once = |packet_id| Message { packet_id: Some(packet_id), ..Message::new(b"t", b"") };
        session.handle_event(Event::Connected { session_present: true, receive_maximum: None }, now);
        session.handle_event(Event::Subscribed { refusals: Vec::new() }, now);
        for _ in 0..2 {
            assert_eq!(session.published(Message::new(b"t", b""), Ok(()), now), Admission::Take(None));
        }
        assert_eq!(session.published(at_least_once(1), Ok(()), now), Admission::Take(Some(0)));
        assert_eq!(session.totals().messages_received, 3);
        session.handle_event(Event::Disconnected { taken_over: false, why: "cut".to_owned() }, now);
        assert_eq!(
            session.published(at_least_once(2), Ok(()), now),
            Admission::Defer,
            "its PUBACK could not leave"
        );
        assert_eq!(session.totals().messages_received, 3);
    }
}
