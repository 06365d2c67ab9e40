//! One MQTT session over all its connections, as a state machine: events in, commands out.
//!
//! A session decides when to connect, which messages to take, which messages may be acknowledged,
//! and how to leave. It handles packet ids and arrival numbers; the intake handles rows.
//!
//! Guarantee: no message is acknowledged before the intake declares it complete. A message is
//! acknowledged only on the connection that delivered it. Every wait has a deadline.
//!
//! A session holds no clock, socket or task. Its shell, `src/mqtt/transport.rs`, reports events
//! with their time and executes the commands.

pub mod acks;
mod connack;
mod continuity;
pub mod events;
mod purpose;
mod reconnect;
mod saturation;
mod view;
pub mod window;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use self::acks::Acks;
pub use self::connack::ConnAck;
use self::continuity::{Continuity, SessionAtEnd, Terms};
use self::events::{
    Admission, ConnectionState, DeferReason, Leave, SessionCommand, SessionConfig, SessionEvent,
    SessionNotice, SessionTotals,
};
use self::purpose::{AfterEmptying, Emptying, EmptyingStep, Purpose};
use self::reconnect::{ConnectionEnd, Reconnect};
use self::saturation::Saturation;
use self::window::Window;
use crate::throttle::Throttle;
use milepost_decode::Message;

/// Number of failed attempts after which a visit gives up, unless the broker has already confirmed
/// that the former session exists. With their delays, the attempts span several seconds: the
/// broker's node may be restarting.
const VISIT_ATTEMPTS_MAX: u32 = 8;
/// Longest time for the broker to close the connection after DISCONNECT.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The state machine of one MQTT session; see the module's documentation.
#[derive(Debug)]
pub struct Session {
    settings: SessionConfig,
    connection: ConnectionState,
    purpose: Purpose,
    acks: Acks,
    window: Window,
    saturation: Saturation,
    /// Why messages are deferred on this connection: the buffer is full, or the clock is not
    /// trusted. The reason stays set until the connection ends: PUBACKs are sent in order
    /// (MQTT-4.6.0-2), so no message after a deferred one can be acknowledged on this connection.
    paused: Option<DeferReason>,
    /// Messages deferred on this connection.
    deferred: u64,
    continuity: Continuity,
    /// Time for which the broker keeps the session without a connection: the time that the last
    /// CONNACK granted, but at most the time that we requested.
    session_expiry: Duration,
    /// A SUBACK granted the subscription at least once.
    has_been_live: bool,
    /// Throttles [`SessionNotice::ExactlyOnceRefused`].
    exactly_once_log: Throttle,
    /// Throttles [`SessionNotice::CopiesIgnored`].
    copies_log: Throttle,
    /// The last connection ended with unacknowledged or deferred messages, or with
    /// acknowledgements that may not have been written. Or this process is leaving, and the session
    /// may stay subscribed: the broker refused to unsubscribe it, or another client took it over.
    held_by_broker: bool,
    reconnect: Reconnect,
    commands: VecDeque<SessionCommand>,
    notices: VecDeque<SessionNotice>,
    totals: SessionTotals,
}

impl Session {
    /// Creates a session that consumes: it subscribes in the share group. It connects at once.
    pub fn consuming(settings: SessionConfig) -> Self {
        Self::new(settings, Purpose::Consume)
    }

    /// Creates a visit to a session that an earlier process may have left behind. The visit
    /// unsubscribes, empties and ends that session.
    pub fn visit(settings: SessionConfig) -> Self {
        Self::new(settings, Purpose::Empty(Emptying::Unsubscribing, AfterEmptying::End))
    }

    fn new(settings: SessionConfig, purpose: Purpose) -> Self {
        Self {
            connection: ConnectionState::Connecting,
            purpose,
            acks: Acks::default(),
            window: Window::new(settings.receive_maximum),
            saturation: Saturation::default(),
            paused: None,
            deferred: 0,
            continuity: Continuity::default(),
            session_expiry: settings.session_expiry,
            has_been_live: false,
            exactly_once_log: Throttle::once(),
            copies_log: Throttle::once(),
            held_by_broker: false,
            reconnect: Reconnect::new(settings.session_expiry, settings.seed),
            commands: VecDeque::new(),
            notices: VecDeque::new(),
            totals: SessionTotals::default(),
            settings,
        }
    }

    /// Processes an event of the connection. Call [`handle_timeout`](Self::handle_timeout)
    /// afterwards.
    pub fn handle_event(&mut self, event: SessionEvent, now: Instant) {
        match event {
            SessionEvent::Connected(connack) => self.connected(connack, now),
            SessionEvent::Subscribed { refusals } => self.subscribed(&refusals, now),
            SessionEvent::Unsubscribed { refusals } => self.unsubscribed(&refusals, now),
            SessionEvent::ExactlyOnceRefused => {
                let is_first = self.exactly_once_log.allow(now);
                self.notices.extend(is_first.then_some(SessionNotice::ExactlyOnceRefused));
            }
            SessionEvent::DisconnectSent => {
                if let ConnectionState::Closing { disconnect_sent, .. } = &mut self.connection {
                    *disconnect_sent = true;
                }
            }
            SessionEvent::Disconnected { taken_over, why } => {
                self.disconnected(taken_over, why, now)
            }
            SessionEvent::Leave(leave) => self.leave(leave, now),
        }
    }

    /// Decides whether to take a message. `can_take`: `Ok` if there is room for the message and the
    /// clock is trusted; otherwise the reason to defer the message, or at QoS 0 to drop it.
    pub fn admit(
        &mut self,
        Message { packet_id, redelivered, .. }: Message<'_>,
        can_take: Result<(), DeferReason>,
        now: Instant,
    ) -> Admission {
        if let Purpose::Empty(emptying, _) = &mut self.purpose {
            emptying.handle_message(now);
        }
        let Some(packet_id) = packet_id else {
            let takes = can_take.is_ok() && self.purpose.takes_messages();
            self.totals.messages_received += 1;
            return if takes { Admission::Take(None) } else { Admission::Shed };
        };
        // The message arrived in the same read as the disconnect; the broker redelivers it.
        if !self.is_open() {
            return Admission::Defer;
        }
        if !self.acks.register(packet_id) {
            self.handle_duplicate(packet_id, redelivered, now);
            return Admission::Defer;
        }
        if let Some(notice) = self.continuity.handle_message(redelivered) {
            self.notices.push_back(notice);
        }
        let takes = self.purpose.takes_messages() && self.is_connected();
        if let (true, None, Err(why)) = (takes, self.paused, can_take) {
            self.paused = Some(why);
            self.notices.push_back(SessionNotice::Paused(why));
        }
        // No PUBACK may overtake an older one (MQTT-4.6.0-2). So once a message is deferred, all
        // later messages of this connection are deferred too, until a reconnect makes the broker
        // redeliver them.
        if !takes || self.paused.is_some() {
            self.deferred += 1;
            self.totals.messages_deferred += u64::from(self.paused.is_some());
            return Admission::Defer;
        }
        self.totals.messages_received += 1;
        let arrival = self.acks.accept(packet_id);
        self.window.arrived(self.acks.unacked(), now);
        Admission::Take(Some(arrival))
    }

    /// Handles a message whose packet id is already in flight on this connection.
    ///
    /// If DUP is set (MQTT 5, 3.3.1.1), the message is a copy of the message in flight. The copy is
    /// ignored: one PUBACK answers both.
    ///
    /// If DUP is not set, the message is new: the broker has received a PUBACK for this packet id,
    /// and has used the id again. So the message in flight is a copy, which the broker sent before
    /// it received that PUBACK. A PUBACK for the copy would now acknowledge the new message, which
    /// is not stored. So the session reconnects, and the broker redelivers every unacknowledged
    /// message.
    fn handle_duplicate(&mut self, packet_id: u16, redelivered: bool, now: Instant) {
        if redelivered {
            let is_first = self.copies_log.allow(now);
            self.notices.extend(is_first.then_some(SessionNotice::CopiesIgnored));
        } else {
            self.hang_up(
                format!("the broker reused packet id {packet_id} before it was acknowledged"),
                now,
            );
        }
    }

    /// Records that every row of the messages below this arrival number is durable.
    pub fn complete_below(&mut self, arrival: u64, now: Instant) {
        self.acks.complete_below(arrival);
        self.window.acked(now);
    }

    /// Returns the packet id to acknowledge next. Write its PUBACK, then call
    /// [`ack_sent`](Self::ack_sent). Until then, this method returns the same id.
    #[must_use]
    pub fn ack_due(&self) -> Option<u16> {
        self.acks.due()
    }

    /// Records that the PUBACK of [`ack_due`](Self::ack_due) is in the write buffer.
    pub fn ack_sent(&mut self) {
        self.acks.mark_sent();
        self.totals.acks += 1;
    }

    /// Advances the session to `now`: handles deadlines that have passed, and reacts to
    /// acknowledgements that were sent since the last call. `has_room`: the deferred messages can
    /// be taken now. `may_end`: if this is a former session, it may be ended once it is empty.
    pub fn handle_timeout(&mut self, has_room: bool, may_end: bool, now: Instant) {
        self.window.expire_probe(now);
        // A window that is nine tenths full counts as full, because the last acknowledgements may
        // be in transit.
        self.saturation.sample(self.acks.unacked() * 10 >= self.window.messages() * 9, now);
        let settled = self.is_settled();
        if let Purpose::Empty(ref mut emptying, then) = self.purpose {
            match emptying.handle_timeout(settled, now) {
                EmptyingStep::Unsubscribe => self.unsubscribe(now),
                EmptyingStep::Finish if then == AfterEmptying::Keep || may_end => {
                    self.finish_emptying(then, now)
                }
                EmptyingStep::Finish | EmptyingStep::Wait => {}
            }
        }
        self.advance(has_room, now);
    }

    pub fn poll_command(&mut self) -> Option<SessionCommand> {
        self.commands.pop_front()
    }

    pub fn poll_notice(&mut self) -> Option<SessionNotice> {
        self.notices.pop_front()
    }

    /// Returns the state of the connection. The shell holds a socket in every state but
    /// `BackingOff` and `Ended`.
    #[must_use]
    pub fn connection(&self) -> ConnectionState {
        self.connection
    }

    /// Returns whether the next CONNECT or DISCONNECT asks the broker to discard the session.
    /// CONNECT does so by Clean Start = 1 (MQTT 5, 3.1.2.4). Both packets do so by a Session Expiry
    /// Interval of 0 (MQTT 5, 3.1.2.11.2).
    #[must_use]
    pub fn ends_session(&self) -> bool {
        self.purpose == Purpose::End
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is due, unless an event arrives first.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let emptying = self.purpose.poll_timeout().filter(|_| self.is_settled());
        self.connection.deadline().into_iter().chain(emptying).min()
    }

    /// Records that the open batch closes early as a [probe](Window::probe_at).
    pub fn probed(&mut self, now: Instant) {
        self.window.probed(self.acks.unacked(), now);
    }

    /// Turns a visit that has ended into a consuming session. Its arrival numbers continue those of
    /// the visit, so they stay unique.
    pub fn start_consuming(&mut self) {
        self.purpose = Purpose::Consume;
        self.connection = ConnectionState::Connecting;
        self.continuity.forget();
    }

    /// Returns the time of the next connection attempt. `None` if no attempt is planned, or if
    /// another client has taken the session over.
    #[must_use]
    pub fn next_try(&self) -> Option<Instant> {
        let ConnectionState::BackingOff { until, .. } = self.connection else { return None };
        (!self.reconnect.taken_over).then_some(until)
    }

    /// Moves the [next attempt](Self::next_try) to `now`, because the session has moved to another
    /// node. Does nothing if no attempt is planned, or if another client has taken over the
    /// session.
    pub fn try_now(&mut self, now: Instant) {
        if let ConnectionState::BackingOff { until, .. } = &mut self.connection
            && !self.reconnect.taken_over
        {
            *until = now;
        }
    }

    /// Returns whether the broker has accepted the connection, and the connection has not ended.
    fn is_open(&self) -> bool {
        self.is_connected() || matches!(self.connection, ConnectionState::Closing { .. })
    }

    /// Returns whether the connection is [open](Self::is_open), and is not being closed by our
    /// DISCONNECT.
    fn is_connected(&self) -> bool {
        matches!(
            self.connection,
            ConnectionState::Subscribing { .. } | ConnectionState::Live { .. }
        )
    }

    /// Returns whether the session is connected, every message of this connection is acknowledged,
    /// and no message is deferred.
    fn is_settled(&self) -> bool {
        self.is_connected() && self.acks.unacked() == 0 && self.paused.is_none()
    }

    fn connected(&mut self, connack: ConnAck, now: Instant) {
        let ConnAck { session_present, receive_maximum, session_expiry_seconds, .. } = connack;
        let requested = self.settings.session_expiry;
        // With an expiry of 0 the session ends when its connection ends. No reconnect is fast
        // enough to prevent that, so the usual delays apply.
        let granted_s = session_expiry_seconds.filter(|seconds| *seconds > 0);
        let expiry = granted_s
            .map_or(requested, |seconds| Duration::from_secs(seconds.into()).min(requested));
        let previous_expiry = std::mem::replace(&mut self.session_expiry, expiry);
        self.reconnect.set_session_expiry(expiry);
        self.held_by_broker = false;
        self.window.connected(receive_maximum);
        if self.reconnect.record_connected(now)
            && (session_present || self.purpose == Purpose::Consume)
        {
            let window = self.window.messages();
            self.notices.push_back(SessionNotice::Connected { session_present, window });
        }
        let terms = Terms {
            requested: self.settings.receive_maximum,
            clean_start: self.ends_session(),
            // The expiry granted before this CONNACK: it applied to the session that may be lost.
            session_expiry: previous_expiry,
        };
        let warning = self.continuity.connected(connack, terms, now);
        self.notices.extend(warning);
        self.connection =
            ConnectionState::Subscribing { until: now + self.settings.answer_timeout };
        match self.purpose {
            Purpose::Consume => self.commands.push_back(SessionCommand::Subscribe),
            Purpose::Empty(_, then) if session_present => {
                self.purpose = Purpose::Empty(Emptying::Unsubscribing, then);
                self.commands.push_back(SessionCommand::Unsubscribe);
            }
            // Without Session Present, the broker had no session, so there is no subscription to
            // remove.
            Purpose::Empty(_, then) => self.finish_emptying(then, now),
            Purpose::Flush | Purpose::End => self.disconnect(false, now),
        }
    }

    fn subscribed(&mut self, refusals: &[String], now: Instant) {
        if !matches!(self.connection, ConnectionState::Subscribing { .. })
            || self.purpose != Purpose::Consume
        {
            return;
        }
        if refusals.is_empty() {
            self.connection = ConnectionState::Live { since: now };
            self.has_been_live = true;
            self.notices
                .extend(self.reconnect.record_subscribed().then_some(SessionNotice::Subscribed));
            return;
        }
        self.hang_up(format!("subscription refused: {}", refusals.join("; ")), now);
    }

    fn unsubscribed(&mut self, refusals: &[String], now: Instant) {
        let Purpose::Empty(emptying, _) = &mut self.purpose else { return };
        if !matches!(self.connection, ConnectionState::Subscribing { .. })
            || !emptying.handle_unsuback(now)
        {
            return;
        }
        if refusals.is_empty() {
            self.connection = ConnectionState::Live { since: now };
        } else {
            self.notices.push_back(SessionNotice::UnsubscriptionRefused(refusals.join("; ")));
            self.held_by_broker = true;
            self.purpose = Purpose::Flush;
        }
    }

    /// Ends the emptying: the broker holds no more messages of this session.
    fn finish_emptying(&mut self, then: AfterEmptying, now: Instant) {
        match then {
            AfterEmptying::Keep => self.purpose = Purpose::Flush,
            // Reconnect with a clean start, so that the broker discards the session. The broker
            // gives messages that it has queued meanwhile to the other members of the group.
            AfterEmptying::End if self.was_found() => {
                let messages = self.totals.messages_received;
                self.notices.push_back(SessionNotice::FormerSessionEmptied { messages });
                self.disconnect(true, now);
                self.purpose = Purpose::End;
            }
            // The session did not exist before this connection, whose DISCONNECT can end it. The
            // content of DISCONNECT depends on the purpose, so set the purpose first.
            AfterEmptying::End => {
                self.purpose = Purpose::End;
                self.disconnect(false, now);
            }
        }
    }

    /// Closes the connection with a DISCONNECT. `reconnects`: a new connection follows.
    fn disconnect(&mut self, reconnects: bool, now: Instant) {
        self.commands.push_back(SessionCommand::Disconnect { end_session: self.ends_session() });
        self.connection = ConnectionState::Closing {
            until: now + CLOSE_TIMEOUT,
            reconnects,
            disconnect_sent: false,
        };
    }

    /// Drops the connection without DISCONNECT, and backs off.
    fn hang_up(&mut self, why: String, now: Instant) {
        self.commands.push_back(SessionCommand::HangUp);
        self.disconnected(false, why, now);
    }

    /// Handles the end of a connection, or of an attempt to connect. Does nothing if the session
    /// has already handled that end.
    fn disconnected(&mut self, taken_over: bool, why: String, now: Instant) {
        if !self.is_open() && self.connection != ConnectionState::Connecting {
            return;
        }
        let (unacked, deferred) = (self.acks.unacked(), std::mem::take(&mut self.deferred));
        // The last PUBACKs may not have been written, so the broker may redeliver their messages.
        let may_have_unsent_acks =
            matches!(self.connection, ConnectionState::Closing { disconnect_sent: false, .. });
        self.held_by_broker |= unacked > 0 || may_have_unsent_acks || self.paused.is_some();
        if self.is_open() {
            let deferred = usize::try_from(deferred).unwrap_or(usize::MAX);
            let window_full = unacked.saturating_add(deferred) >= self.window.messages();
            self.continuity.connection_ended(SessionAtEnd {
                accepted: unacked,
                deferred,
                window_full,
                at: now,
            });
        } else {
            self.continuity.attempt_failed();
        }
        self.acks.new_epoch();
        self.saturation.reset();
        self.paused = None;
        if let ConnectionState::Closing { reconnects, .. } = self.connection {
            let next =
                reconnects.then_some(ConnectionState::BackingOff { until: now, was_live: true });
            self.connection = next.unwrap_or(ConnectionState::Ended);
        } else {
            self.back_off(taken_over, why, now);
        }
    }

    /// Waits before the next attempt to connect; a visit may give up instead.
    fn back_off(&mut self, taken_over: bool, why: String, now: Instant) {
        let live_for = self.connection.live_since().map(|since| now.duration_since(since));
        let is_visit = self.purpose.is_visit();
        let leaving = self.purpose != Purpose::Consume && !is_visit;
        let end = ConnectionEnd { live_for, taken_over, leaving, why: why.clone() };
        let until = self.reconnect.record_end(end, now, &mut self.notices);
        let seems_absent = !self.was_found() && self.reconnect.failures >= VISIT_ATTEMPTS_MAX;
        // A visit gives up if another process uses the session, or if the session probably does not
        // exist.
        self.connection = if is_visit && (taken_over || seems_absent) {
            self.notices.push_back(SessionNotice::FormerSessionAbandoned { why });
            ConnectionState::Ended
        } else {
            ConnectionState::BackingOff { until, was_live: live_for.is_some() }
        };
    }

    fn leave(&mut self, leave: Leave, now: Instant) {
        match (self.purpose, leave) {
            // A visit that gave up keeps its purpose, so it stays counted as abandoned.
            _ if self.connection == ConnectionState::Ended => {}
            // Stop a visit where it is: the next process visits the former session again.
            (Purpose::Empty(_, AfterEmptying::End) | Purpose::End, _)
            | (Purpose::Consume, Leave::KeepSession) => {
                self.purpose = Purpose::Flush;
            }
            (Purpose::Consume, Leave::Unsubscribe) => {
                self.purpose = Purpose::Empty(Emptying::Unsubscribing, AfterEmptying::Keep);
                if self.is_connected() {
                    self.unsubscribe(now);
                } else if let ConnectionState::BackingOff { until, .. } = &mut self.connection {
                    *until = now; // the grace period may be shorter than the backoff
                }
            }
            (Purpose::Empty(_, AfterEmptying::Keep) | Purpose::Flush, _) => {}
        }
    }

    fn unsubscribe(&mut self, now: Instant) {
        self.commands.push_back(SessionCommand::Unsubscribe);
        self.connection =
            ConnectionState::Subscribing { until: now + self.settings.answer_timeout };
    }

    /// Keeps a session that another client has taken over, if this process is leaving and has no
    /// connection. Then takes the first of these steps that applies:
    ///
    /// - End a flushing session that has no open connection.
    /// - Handle a deadline that has passed.
    /// - Wait until all messages that this connection took are acknowledged.
    /// - Disconnect a flushing session.
    /// - Reconnect, if deferred messages can now be taken.
    fn advance(&mut self, has_room: bool, now: Instant) {
        // Another process has replaced this one. A further connection would take the session back,
        // and UNSUBSCRIBE would stop that process from consuming. If that process is gone since,
        // nothing consumes the session.
        if matches!(self.purpose, Purpose::Empty(_, AfterEmptying::Keep))
            && self.reconnect.taken_over
            && !self.is_open()
        {
            self.notices.push_back(SessionNotice::LeftToAnother);
            self.held_by_broker = true;
            self.purpose = Purpose::Flush;
        }
        let flushes = self.purpose == Purpose::Flush;
        if flushes && !self.is_open() {
            self.connection = ConnectionState::Ended;
        } else if self.connection.deadline().is_some_and(|until| until <= now) {
            self.handle_deadline(now);
        } else if self.acks.unacked() > 0 {
            // Messages can be acknowledged only on the connection that delivered them.
        } else if flushes && self.is_connected() {
            self.disconnect(false, now);
        } else if self.paused.is_some() && has_room && self.connection.live_since().is_some() {
            // Reconnect: the broker redelivers deferred messages only on a new connection
            // (MQTT-4.4.0-1).
            self.notices.push_back(SessionNotice::Renewed { deferred: self.deferred });
            self.disconnect(true, now);
        }
    }

    fn handle_deadline(&mut self, now: Instant) {
        match self.connection {
            ConnectionState::BackingOff { .. } => self.connection = ConnectionState::Connecting,
            // A session that is leaving needs no SUBACK: only its acknowledgements are outstanding.
            ConnectionState::Subscribing { .. } if self.purpose == Purpose::Flush => {
                self.connection = ConnectionState::Live { since: now };
            }
            ConnectionState::Subscribing { .. } => {
                let packet =
                    if self.purpose == Purpose::Consume { "SUBSCRIBE" } else { "UNSUBSCRIBE" };
                self.hang_up(
                    format!("no answer to our {packet} within {:?}", self.settings.answer_timeout),
                    now,
                );
            }
            ConnectionState::Closing { .. } => self.hang_up(String::new(), now),
            ConnectionState::Connecting | ConnectionState::Live { .. } | ConnectionState::Ended => {
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> SessionConfig {
        let (answer_timeout, session_expiry) = (Duration::from_secs(10), Duration::from_secs(120));
        SessionConfig { receive_maximum: 100, answer_timeout, session_expiry, seed: 1 }
    }

    /// Returns a consuming session after a CONNACK that resumed it.
    fn connected() -> (Session, Instant) {
        let (mut session, now) = (Session::consuming(config()), Instant::now());
        connect(&mut session, now);
        (session, now)
    }

    fn connect(session: &mut Session, now: Instant) {
        session.connection = ConnectionState::Connecting;
        let connack = ConnAck { session_present: true, ..ConnAck::default() };
        session.handle_event(SessionEvent::Connected(connack), now);
    }

    fn subscribed(session: &mut Session, now: Instant) {
        session.handle_event(SessionEvent::Subscribed { refusals: Vec::new() }, now);
    }

    fn lose_connection(session: &mut Session, now: Instant) {
        session.handle_event(
            SessionEvent::Disconnected { taken_over: false, why: "cut".to_owned() },
            now,
        );
    }

    fn at_least_once(packet_id: u16) -> Message<'static> {
        Message { packet_id: Some(packet_id), ..Message::new(b"t", b"") }
    }

    fn redelivered(packet_id: u16) -> Message<'static> {
        Message { redelivered: true, ..at_least_once(packet_id) }
    }

    /// Completes all messages below this arrival number. Returns the packet ids that are
    /// acknowledged.
    fn complete_and_ack(session: &mut Session, below: u64, now: Instant) -> Vec<u16> {
        session.complete_below(below, now);
        let mut acks = Vec::new();
        while let Some(ack) = session.ack_due() {
            session.ack_sent();
            acks.push(ack);
        }
        acks
    }

    #[test]
    fn messages_are_accepted_only_while_connected() {
        let (mut session, now) = connected();
        subscribed(&mut session, now);
        for _ in 0..2 {
            assert_eq!(session.admit(Message::new(b"t", b""), Ok(()), now), Admission::Take(None));
        }
        assert_eq!(session.admit(at_least_once(1), Ok(()), now), Admission::Take(Some(0)));
        assert_eq!(session.totals().messages_received, 3);
        lose_connection(&mut session, now);
        assert_eq!(
            session.admit(at_least_once(2), Ok(()), now),
            Admission::Defer,
            "the PUBACK of this message could not be sent"
        );
        assert_eq!(session.totals().messages_received, 3);
    }

    #[test]
    fn copy_on_the_same_connection_is_ignored() {
        let (mut session, now) = connected();
        subscribed(&mut session, now);
        assert_eq!(session.admit(at_least_once(5), Ok(()), now), Admission::Take(Some(0)));
        session.admit(at_least_once(6), Err(DeferReason::BufferFull), now);
        let copies = || [redelivered(5), redelivered(6), redelivered(5)];
        for copy in copies() {
            assert_eq!(session.admit(copy, Ok(()), now), Admission::Defer);
        }
        let SessionTotals { messages_received, messages_deferred, unacked, .. } = session.totals();
        assert_eq!((messages_received, messages_deferred, unacked), (1, 1, 1));

        lose_connection(&mut session, now);
        connect(&mut session, now);
        subscribed(&mut session, now);
        let admissions = copies().map(|copy| session.admit(copy, Ok(()), now));
        assert_eq!(
            admissions,
            [Admission::Take(Some(1)), Admission::Take(Some(2)), Admission::Defer]
        );
        assert_eq!(
            complete_and_ack(&mut session, 3, now),
            [5, 6],
            "each message is acknowledged once"
        );
        session.admit(at_least_once(5), Ok(()), now);
        assert_eq!(session.totals().sessions_lost, 0, "both owed messages were redelivered");
        assert_eq!(complete_and_ack(&mut session, 4, now), [5], "a new message with the same id");
    }

    /// A broker can send a copy of a message, then receive our PUBACK, and then send a new message
    /// with the same packet id.
    #[test]
    fn ack_of_a_copy_does_not_ack_a_new_message_with_the_same_id() {
        let (mut session, now) = connected();
        subscribed(&mut session, now);
        session.admit(at_least_once(5), Ok(()), now);
        assert_eq!(complete_and_ack(&mut session, 1, now), [5]);
        assert_eq!(
            session.admit(redelivered(5), Ok(()), now),
            Admission::Take(Some(1)),
            "a redelivery may be the first delivery of another message"
        );
        assert_eq!(session.admit(at_least_once(5), Ok(()), now), Admission::Defer);
        assert_eq!(
            complete_and_ack(&mut session, 2, now),
            Vec::<u16>::new(),
            "the connection ends"
        );
        assert!(matches!(session.connection(), ConnectionState::BackingOff { .. }));
    }

    #[test]
    fn leaving_session_acks_all_accepted_messages() {
        let refused = SessionEvent::Unsubscribed { refusals: vec!["not authorized".to_owned()] };
        let cases = [
            ("SUBACK is awaited", vec![SessionEvent::Leave(Leave::KeepSession)]),
            ("UNSUBACK refuses", vec![SessionEvent::Leave(Leave::Unsubscribe), refused]),
        ];
        for (case, events) in cases {
            let (mut session, mut now) = connected();
            session.admit(at_least_once(1), Ok(()), now);
            for event in events {
                session.handle_event(event, now);
            }
            session.commands.clear();
            now += 2 * session.settings.answer_timeout;
            session.handle_timeout(true, false, now);
            assert_eq!(complete_and_ack(&mut session, 1, now), [1], "{case}");
            session.handle_timeout(true, false, now);
            assert_eq!(
                session.poll_command(),
                Some(SessionCommand::Disconnect { end_session: false }),
                "{case}"
            );
        }
    }

    #[test]
    fn shorter_granted_expiry_shortens_reconnect_delays() {
        let (mut session, now) = connected();
        let second = Duration::from_secs(1);
        for (session_expiry_seconds, delay_s) in
            [(None, 30), (Some(9), 3), (Some(600), 30), (Some(0), 30), (None, 30)]
        {
            session.connection = ConnectionState::Connecting;
            let connack =
                ConnAck { session_present: true, session_expiry_seconds, ..ConnAck::default() };
            session.handle_event(SessionEvent::Connected(connack), now);
            session.handle_event(
                SessionEvent::Disconnected { taken_over: true, why: "taken".to_owned() },
                now,
            );
            let until = now + delay_s * second;
            assert_eq!(
                session.connection(),
                ConnectionState::BackingOff { until, was_live: false },
                "{session_expiry_seconds:?}"
            );
        }
    }

    #[test]
    fn refused_subscription_is_logged_once_a_minute() {
        let (mut session, mut now) = connected();
        for _ in 0..20 {
            session.handle_event(
                SessionEvent::Subscribed { refusals: vec!["not authorized".to_owned()] },
                now,
            );
            now += Duration::from_secs(5);
            connect(&mut session, now);
        }
        let lines = session
            .notices
            .iter()
            .filter(|notice| notice.is_warning())
            .map(SessionNotice::to_string);
        let lines: Vec<_> =
            lines.filter(|line| line.contains("subscription refused: not authorized")).collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(
            session.notices.iter().any(|notice| !notice.is_warning()),
            "a successful connection is logged as INFO"
        );
    }

    #[test]
    fn visit_does_not_count_as_a_subscribed_connection() {
        let (mut session, now) = (Session::visit(config()), Instant::now());
        connect(&mut session, now);
        session.handle_event(SessionEvent::Unsubscribed { refusals: Vec::new() }, now);
        assert!(matches!(session.connection(), ConnectionState::Live { .. }));
        assert_eq!(session.totals().connected, 0);
    }

    #[test]
    fn messages_after_a_refused_subscription_are_deferred() {
        let (mut session, now) = connected();
        assert_eq!(session.admit(at_least_once(1), Ok(()), now), Admission::Take(Some(0)));
        session.handle_event(
            SessionEvent::Subscribed { refusals: vec!["not authorized".to_owned()] },
            now,
        );
        assert_eq!(session.admit(at_least_once(2), Ok(()), now), Admission::Defer);
        assert_eq!(session.totals().sessions_lost, 0, "no redelivery was due on this connection");

        connect(&mut session, now);
        subscribed(&mut session, now);
        let taken = [1, 2].map(|packet_id| session.admit(redelivered(packet_id), Ok(()), now));
        assert_eq!(taken, [1, 2].map(|arrival| Admission::Take(Some(arrival))));
        assert_eq!(complete_and_ack(&mut session, 3, now), [1, 2]);
        lose_connection(&mut session, now);
        connect(&mut session, now);
        session.admit(at_least_once(3), Ok(()), now);
        assert_eq!(session.totals().sessions_lost, 0, "nothing was unacknowledged");
    }
}
