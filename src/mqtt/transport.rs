//! The connection of one session: down, dialing, or open. Carries packets between the socket and
//! the consumer.
//!
//! The session's [`ConnectionState`] is the desired state. The state in this module is the actual
//! state of the socket, which can close at any time. [`Transport::sync_connection`] opens or closes
//! the socket to match the desired state; events report the actual state to the session.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::connection::{Connection, ConnectionError};
use super::shared::Shared;
use milepost_core::Qos;
use milepost_core::consumer::nodes::{NODE_ANSWER_TIMEOUT, Node};
use milepost_core::consumer::{Consumer, Now};
use milepost_core::error_chain;
use milepost_core::intake::SessionIndex;
use milepost_core::session::ConnAck;
use milepost_core::session::events::{ConnectionState, SessionCommand, SessionEvent};
use milepost_mqtt as codec;
use milepost_mqtt::{CodecError, Packet, Subscribing};
use milepost_tls as tls;
use milepost_tls::Server;

type Dialing = Pin<Box<dyn Future<Output = Result<Connection, ConnectionError>> + Send>>;
type Probing = Pin<Box<dyn Future<Output = bool> + Send>>;

enum State {
    Down,
    Dialing {
        dialing: Dialing,
        waiting: AnswerWait,
    },
    /// `waiting`: the wait for CONNACK; `None` once CONNACK has arrived.
    Open {
        connection: Box<Connection>,
        waiting: Option<AnswerWait>,
    },
}

/// The wait for a node's answer to CONNECT, TCP and TLS included.
struct AnswerWait {
    /// Time at which the node is probed because it has not answered CONNECT. If CONNECT has not
    /// been sent by then, the attempt fails instead. Equal to `latest` if no probe is needed: there
    /// is no other node to try, or a probe has succeeded.
    probe_at: Instant,
    /// Time at which the wait ends, whatever the probe shows.
    latest: Instant,
    /// The probe: a second client that shows whether the node hangs.
    probing: Option<Probing>,
}

impl AnswerWait {
    /// Polls the wait; ready with an error once the node counts as hung, or the time is over.
    fn poll(
        &mut self,
        probe: impl FnOnce() -> Probing,
        shared: &Shared,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Poll<ConnectionError> {
        if now >= self.latest {
            return Poll::Ready(ConnectionError::Unanswered(shared.mqtt.connect_timeout));
        }
        if now < self.probe_at {
            return Poll::Pending;
        }
        match self.probing.get_or_insert_with(probe).as_mut().poll(cx) {
            Poll::Ready(true) => {
                // The node is alive, so it is probably resuming a large session.
                (self.probe_at, self.probing) = (self.latest, None);
                Poll::Pending
            }
            Poll::Ready(false) => Poll::Ready(ConnectionError::Hung(NODE_ANSWER_TIMEOUT)),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Returns when to poll the wait again. A running probe wakes the task when it has its result.
    fn deadline(&self) -> Instant {
        if self.probing.is_some() { self.latest } else { self.probe_at }
    }
}

pub(crate) struct Transport {
    index: SessionIndex,
    state: State,
    /// The node of the last connection.
    node: Option<Node>,
    /// Whether `node` had accepted a CONNECT before that connection. If so, the configured port and
    /// scheme are right.
    had_node_answered: bool,
}

impl Transport {
    pub(crate) fn new(index: SessionIndex) -> Self {
        Self { index, state: State::Down, node: None, had_node_answered: false }
    }

    /// Opens or closes the socket to match the session's connection state.
    pub(crate) fn sync_connection(
        &mut self,
        consumer: &mut Consumer,
        shared: &Shared,
        now: Instant,
    ) {
        let session = consumer.session(self.index);
        let is_down = matches!(self.state, State::Down);
        match session.connection() {
            ConnectionState::Connecting if is_down => {
                let ends_session = session.ends_session();
                let (node, tcp_timeout) = consumer.dial(self.index, now);
                let address = shared.address(&node);
                self.had_node_answered = shared.answered.contains(&node);
                self.node = Some(node);
                let dialing =
                    Box::pin(shared.dialer.dial(self.index, ends_session, address, tcp_timeout));
                let latest = now + shared.mqtt.connect_timeout;
                // The consumer sets a TCP timeout only if it can try another node instead.
                let probe_at =
                    tcp_timeout.map_or(latest, |_| latest.min(now + NODE_ANSWER_TIMEOUT));
                self.state = State::Dialing {
                    dialing,
                    waiting: AnswerWait { probe_at, latest, probing: None },
                };
            }
            // Dropping the connection drops its buffers: no unsent PUBACK reaches the next
            // connection, where its packet id may belong to another message.
            ConnectionState::BackingOff { .. } | ConnectionState::Ended => self.state = State::Down,
            ConnectionState::Connecting
            | ConnectionState::Subscribing { .. }
            | ConnectionState::Live { .. }
            | ConnectionState::Closing { .. } => {}
        }
    }

    /// Reads and writes the socket. Ready when the consumer's state may have changed.
    pub(crate) fn poll(
        &mut self,
        consumer: &mut Consumer,
        shared: &mut Shared,
        now: Now,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let result = match &mut self.state {
            State::Down => return Poll::Pending,
            State::Dialing { dialing, waiting } => match dialing.as_mut().poll(cx) {
                Poll::Ready(Ok(connection)) => {
                    let (probe_at, latest) = (waiting.probe_at, waiting.latest);
                    let waiting = Some(AnswerWait { probe_at, latest, probing: None });
                    self.state = State::Open { connection: Box::new(connection), waiting };
                    Ok(())
                }
                Poll::Ready(Err(error)) => Err(error),
                // CONNECT has not been sent yet, so the node is not resuming a large session: do
                // not probe it.
                Poll::Pending if now.instant >= waiting.probe_at => {
                    let has_other_node = waiting.probe_at < waiting.latest;
                    let waited = if has_other_node {
                        NODE_ANSWER_TIMEOUT
                    } else {
                        shared.mqtt.connect_timeout
                    };
                    Err(ConnectionError::Unanswered(waited))
                }
                Poll::Pending => return Poll::Pending,
            },
            State::Open { connection, waiting } => {
                // Back-pressure never delays CONNACK.
                let may_read = waiting.is_some() || !consumer.holds_back(now.instant);
                if may_read && let Poll::Ready(read) = connection.poll_read(cx) {
                    read.and_then(|()| self.dispatch_packets(consumer, shared, now))
                } else if connection.has_unsent()
                    && let Poll::Ready(written) = connection.poll_write(cx)
                {
                    written
                } else if let Err(error) = connection.check_keep_alive(now.instant) {
                    Err(error)
                } else {
                    let Some(waiting) = waiting else { return Poll::Pending };
                    let address = self.node.as_ref().map(|node| shared.address(node));
                    let probe = || -> Probing {
                        match address {
                            Some(address) => Box::pin(shared.dialer.probe(self.index, address)),
                            None => Box::pin(std::future::ready(false)),
                        }
                    };
                    match waiting.poll(probe, shared, now.instant, cx) {
                        Poll::Ready(error) => Err(error),
                        Poll::Pending => return Poll::Pending,
                    }
                }
            }
        };
        if let Err(error) = result {
            self.connection_ended(&error, consumer, now.instant);
        }
        Poll::Ready(())
    }

    /// Passes the packets that were read to the consumer. All packets share one `now`, because they
    /// arrived within one read delay.
    fn dispatch_packets(
        &mut self,
        consumer: &mut Consumer,
        shared: &mut Shared,
        now: Now,
    ) -> Result<(), ConnectionError> {
        let index = self.index;
        let State::Open { connection, waiting } = &mut self.state else { return Ok(()) };
        connection.keep_alive.received(now.instant);
        let (mut replies, mut asks_for_metrics) = (Vec::new(), false);
        while let Some(packet) = connection.packet()? {
            match packet {
                Packet::Published(message) => consumer.handle_publish(index, message, now),
                Packet::Connected(connack) => {
                    *waiting = None;
                    shared.answered.extend(self.node.clone());
                    shared.log_shorter_expiry(connack, now.instant);
                    consumer.handle_event(index, SessionEvent::Connected(connack), now.instant);
                    connection.keep_alive.start(agreed_keep_alive(shared.mqtt.keep_alive, connack));
                }
                Packet::Subscribed(Subscribing::Group, grants) => {
                    let refusals = shared.refusals(&grants);
                    consumer.handle_event(
                        index,
                        SessionEvent::Subscribed { refusals },
                        now.instant,
                    );
                    // The session is live from the granted subscription until UNSUBSCRIBE.
                    let is_live = consumer.session(index).connection().live_since().is_some();
                    asks_for_metrics = is_live && shared.metrics.begin_subscription(index);
                }
                Packet::Subscribed(Subscribing::BrokerMetrics, grants) => {
                    shared.metrics.handle_suback(&grants)
                }
                Packet::Unsubscribed(refusals) => {
                    consumer.handle_event(
                        index,
                        SessionEvent::Unsubscribed { refusals },
                        now.instant,
                    );
                }
                Packet::ExactlyOnce { reply } => {
                    replies.extend(reply);
                    consumer.handle_event(index, SessionEvent::ExactlyOnceRefused, now.instant);
                }
                Packet::Pong => {}
                // The consumer publishes nothing.
                Packet::Acked(_) => return Err(CodecError::Unexpected(codec::PUBACK).into()),
            }
        }
        connection.refuse(&replies, now.instant)?;
        if asks_for_metrics {
            let filter = shared.metrics.filters(index);
            let output = connection.output(now.instant);
            codec::put_subscribe(Subscribing::BrokerMetrics, filter, Qos::AtMostOnce, output)?;
        }
        Ok(())
    }

    /// Executes the session's commands and writes its due PUBACKs into the buffer. Returns whether
    /// there was anything to do.
    pub(crate) fn execute_commands(
        &mut self,
        consumer: &mut Consumer,
        shared: &Shared,
        now: Instant,
    ) -> bool {
        let session = consumer.session_mut(self.index);
        let mut did_anything = false;
        while let Some(command) = session.poll_command() {
            did_anything = true;
            // Ignore commands for a connection that has ended.
            let State::Open { connection, .. } = &mut self.state else { continue };
            if let Err(error) = execute(command, self.index, connection, shared, now) {
                self.connection_ended(&error, consumer, now);
                return true;
            }
            if command == SessionCommand::HangUp {
                self.state = State::Down;
            }
        }
        let State::Open { connection, .. } = &mut self.state else { return did_anything };
        // PUBACKs are sent in the order in which the messages arrived (MQTT-4.6.0-2). The write
        // buffer is bounded: further PUBACKs wait in the session, two bytes each, until the broker
        // reads.
        while let Some(ack) = session.ack_due().filter(|_| connection.has_write_space()) {
            codec::put_ack(ack, connection.output(now));
            session.ack_sent();
            did_anything = true;
        }
        if connection.take_disconnect_sent() {
            consumer.handle_event(self.index, SessionEvent::DisconnectSent, now);
            did_anything = true;
        }
        did_anything
    }

    /// Writes the buffer to the socket, and checks the keep-alive.
    pub(crate) fn write(&mut self, consumer: &mut Consumer, now: Instant, cx: &mut Context<'_>) {
        let State::Open { connection, .. } = &mut self.state else { return };
        let written = match connection.poll_write(cx) {
            Poll::Ready(written) => written,
            Poll::Pending => Ok(()), // the socket is full; `poll` writes the remaining bytes
        };
        if let Err(error) = written.and_then(|()| connection.check_keep_alive(now)) {
            self.connection_ended(&error, consumer, now);
        }
    }

    /// Returns the latest time for the next [`poll`](Self::poll) and [`write`](Self::write).
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Down => None,
            State::Dialing { waiting, .. } => Some(waiting.deadline()),
            State::Open { connection, waiting } => connection
                .deadline()
                .into_iter()
                .chain(waiting.as_ref().map(AnswerWait::deadline))
                .min(),
        }
    }

    /// Returns the number of bytes read since the last call.
    pub(crate) fn take_bytes_read(&mut self) -> usize {
        match &mut self.state {
            State::Open { connection, .. } => connection.take_bytes_read(),
            State::Down | State::Dialing { .. } => 0,
        }
    }

    /// Closes the socket, and reports to the session why the connection ended.
    fn connection_ended(&mut self, error: &ConnectionError, consumer: &mut Consumer, now: Instant) {
        let is_before_connack = match &self.state {
            State::Dialing { .. } | State::Open { waiting: Some(_), .. } => true,
            State::Down | State::Open { waiting: None, .. } => false,
        };
        self.state = State::Down;
        let taken_over = matches!(
            error,
            ConnectionError::Codec(CodecError::Disconnected { taken_over: true, .. })
        );
        let mut why = error_chain(error);
        // A TLS port closes a plain connection before CONNACK: suggest the scheme for TLS.
        if is_before_connack && !self.had_node_answered && error.may_be_tls_mismatch() {
            why = format!("{why}; {}", tls::port_hint(Server::Broker, false));
        }
        consumer.handle_event(self.index, SessionEvent::Disconnected { taken_over, why }, now);
    }
}

/// Executes one command of the session.
fn execute(
    command: SessionCommand,
    index: SessionIndex,
    connection: &mut Connection,
    shared: &Shared,
    now: Instant,
) -> Result<(), ConnectionError> {
    let filters = shared.filters.as_slice();
    match command {
        SessionCommand::Subscribe => {
            codec::put_subscribe(
                Subscribing::Group,
                filters,
                shared.mqtt.qos,
                connection.output(now),
            )?;
        }
        SessionCommand::Unsubscribe => {
            let all = [filters, shared.metrics.filters(index)].concat();
            codec::put_unsubscribe(&all, connection.output(now))?;
        }
        SessionCommand::Disconnect { end_session } => connection.disconnect(end_session, now),
        SessionCommand::HangUp => {} // the caller drops the connection
    }
    Ok(())
}

/// Returns the shorter of milepost's keep-alive and the broker's Server Keep Alive (MQTT 5,
/// 3.2.2.3.14).
fn agreed_keep_alive(ours: Duration, connack: ConnAck) -> Duration {
    match connack.keep_alive_seconds {
        None | Some(0) => ours,
        Some(seconds) => ours.min(Duration::from_secs(seconds.into())),
    }
}
