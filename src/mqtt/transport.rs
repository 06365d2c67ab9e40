//! One session's connection over its life: none, being opened, open. Carries packets between it and the consumer.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::codec::{self, CodecError, ConnAck, Packet, Subscribing, Unsubscribing};
use super::connection::{Connection, ConnectionError};
use super::shared::Shared;
use crate::consumer::{Consumer, Now};
use crate::delivery::sink::error_chain;
use crate::intake::SessionIndex;
use crate::session::events::{Command, ConnectionState, Event, Qos};
use crate::tls::{self, Server};

type Dialing = Pin<Box<dyn Future<Output = Result<Connection, ConnectionError>> + Send>>;

enum State {
    Down,
    Dialing {
        dialing: Dialing,
        by: Instant,
    },
    /// `connack_by`: until CONNACK has come.
    Open {
        connection: Box<Connection>,
        connack_by: Option<Instant>,
    },
}

/// See the module's documentation.
pub(super) struct Transport {
    index: SessionIndex,
    state: State,
}

impl Transport {
    pub(super) fn new(index: SessionIndex) -> Self {
        Self { index, state: State::Down }
    }

    /// Begins and ends connections as the session wants them.
    pub(super) fn follow(&mut self, consumer: &Consumer, shared: &Shared, now: Instant) {
        let session = consumer.session(self.index);
        let is_down = matches!(self.state, State::Down);
        match session.connection() {
            ConnectionState::Connecting if is_down => {
                let dialing = Box::pin(shared.dialer.dial(self.index, session.terms()));
                self.state = State::Dialing { dialing, by: now + shared.mqtt.connect_timeout };
            }
            // What was read and not taken, and what was to be written and is not, goes with it.
            ConnectionState::BackingOff { .. } | ConnectionState::Ended => self.state = State::Down,
            ConnectionState::Connecting
            | ConnectionState::Subscribing { .. }
            | ConnectionState::Live { .. }
            | ConnectionState::Closing { .. } => {}
        }
    }

    /// Reads and writes what can be; ready when anything happened that the consumer should look at.
    pub(super) fn poll(
        &mut self,
        consumer: &mut Consumer,
        shared: &mut Shared,
        now: Now,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let polled = match &mut self.state {
            State::Down => return Poll::Pending,
            State::Dialing { dialing, by } => match dialing.as_mut().poll(cx) {
                Poll::Ready(Ok(connection)) => {
                    self.state = State::Open { connection: Box::new(connection), connack_by: Some(*by) };
                    return Poll::Ready(());
                }
                Poll::Ready(Err(error)) => Err(error),
                Poll::Pending if now.instant >= *by => Err(unanswered(shared)),
                Poll::Pending => return Poll::Pending,
            },
            State::Open { connection, connack_by } => {
                if connack_by.is_some_and(|by| now.instant >= by) {
                    Err(unanswered(shared))
                } else {
                    let reads = connack_by.is_some() || !consumer.holds_back(now.instant);
                    poll_open(connection, reads, cx, now.instant)
                }
            }
        };
        let polled = polled.and_then(|polled| match polled {
            Polled::Read => self.hand_on(consumer, shared, now).map(|()| polled),
            Polled::Written | Polled::Nothing => Ok(polled),
        });
        match polled {
            Ok(Polled::Read | Polled::Written) => Poll::Ready(()),
            Ok(Polled::Nothing) => Poll::Pending,
            Err(error) => {
                self.ended(&error, consumer, now.instant);
                Poll::Ready(())
            }
        }
    }

    /// Hands what was read to the consumer. One `now` for all of it: it came within one delay.
    fn hand_on(
        &mut self,
        consumer: &mut Consumer,
        shared: &mut Shared,
        now: Now,
    ) -> Result<(), ConnectionError> {
        let index = self.index;
        let State::Open { connection, connack_by } = &mut self.state else { return Ok(()) };
        connection.heard(now.instant);
        let (mut released, mut asks_for_metrics) = (Vec::new(), false);
        while let Some(packet) = connection.packet()? {
            match packet {
                Packet::Published(publish) => consumer.published(index, publish, now),
                Packet::Connected(connack) => {
                    *connack_by = None;
                    let keep_alive = agreed_keep_alive(shared.mqtt.keep_alive, connack);
                    shared.compare_expiry(connack);
                    let ConnAck { session_present, receive_maximum, .. } = connack;
                    consumer.handle(
                        index,
                        Event::Connected { session_present, receive_maximum },
                        now.instant,
                    );
                    connection.agree_on(keep_alive);
                }
                Packet::Subscribed(Subscribing::Group, grants) => {
                    let refusals = shared.refusals(&grants);
                    asks_for_metrics = refusals.is_empty() && shared.metrics.asks(index);
                    consumer.handle(index, Event::Subscribed { refusals }, now.instant);
                }
                Packet::Subscribed(Subscribing::BrokerMetrics, grants) => shared.metrics.answered(&grants),
                Packet::Unsubscribed(which, answers) => {
                    let refusals = answers.into_iter().flatten().collect();
                    match which {
                        Unsubscribing::Former => shared.former_answered(&refusals),
                        Unsubscribing::Everything => {
                            consumer.handle(index, Event::Unsubscribed { refusals }, now.instant);
                        }
                    }
                }
                Packet::Released(packet_id) => released.push(packet_id),
                Packet::Pong => {}
                Packet::Acked(_) => return Err(CodecError::Unexpected(codec::PUBACK).into()),
            }
        }
        for packet_id in released {
            codec::put_completed(packet_id, connection.output(now.instant));
        }
        if asks_for_metrics {
            let filter = shared.metrics.filters(index);
            let output = connection.output(now.instant);
            codec::put_subscribe(Subscribing::BrokerMetrics, filter, Qos::AtMostOnce, output)?;
        }
        Ok(())
    }

    /// Carries out what the session wants; `true` if there was anything.
    pub(super) fn obey(&mut self, consumer: &mut Consumer, shared: &Shared, now: Instant) -> bool {
        let session = consumer.session_mut(self.index);
        let mut did_anything = false;
        while let Some(command) = session.command() {
            did_anything = true;
            // What was wanted of a connection that is gone is void.
            let State::Open { connection, .. } = &mut self.state else { continue };
            if let Err(error) = carry_out(command, self.index, connection, shared, now) {
                self.ended(&error, consumer, now);
                return true;
            }
            if command == Command::HangUp {
                self.state = State::Down;
            }
        }
        let State::Open { connection, .. } = &mut self.state else { return did_anything };
        while let Some(ack) = session.ack_due().filter(|_| connection.takes_more()) {
            codec::put_ack(ack, connection.output(now));
            session.ack_sent();
            did_anything = true;
        }
        if connection.take_disconnect_sent() {
            consumer.handle(self.index, Event::DisconnectSent, now);
            did_anything = true;
        }
        did_anything
    }

    /// Writes what the socket takes now.
    pub(super) fn write(&mut self, consumer: &mut Consumer, now: Instant, cx: &mut Context<'_>) {
        let State::Open { connection, .. } = &mut self.state else { return };
        let written = match connection.poll_write(cx) {
            Poll::Ready(written) => written,
            Poll::Pending => Ok(()), // the rest goes when the broker takes it
        };
        if let Err(error) = written.and_then(|()| connection.watch(now)) {
            self.ended(&error, consumer, now);
        }
    }

    /// When [`poll`](Self::poll) and [`write`](Self::write) have something to do at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Down => None,
            State::Dialing { by, .. } => Some(*by),
            State::Open { connection, connack_by } => {
                connection.deadline().into_iter().chain(*connack_by).min()
            }
        }
    }

    /// Bytes read since this was last asked.
    pub(super) fn take_bytes(&mut self) -> usize {
        match &mut self.state {
            State::Open { connection, .. } => connection.take_bytes(),
            State::Down | State::Dialing { .. } => 0,
        }
    }

    /// The connection is no more.
    fn ended(&mut self, error: &ConnectionError, consumer: &mut Consumer, now: Instant) {
        let before_connack = match &self.state {
            State::Dialing { .. } | State::Open { connack_by: Some(_), .. } => true,
            State::Down | State::Open { connack_by: None, .. } => false,
        };
        self.state = State::Down;
        let taken_over =
            matches!(error, ConnectionError::Codec(CodecError::Disconnected { taken_over: true, .. }));
        let mut why = error_chain(error);
        if before_connack && error.may_be_tls() {
            why = format!("{why}; {}", tls::is_this_the_port(Server::Broker, false));
        }
        consumer.handle(self.index, Event::Disconnected { taken_over, why }, now);
    }
}

/// What became of an open connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Polled {
    Read,
    /// The broker has taken all that waited: more may be written.
    Written,
    Nothing,
}

fn poll_open(
    connection: &mut Connection,
    reads: bool,
    cx: &mut Context<'_>,
    now: Instant,
) -> Result<Polled, ConnectionError> {
    if reads && let Poll::Ready(read) = connection.poll_read(cx) {
        return read.map(|()| Polled::Read);
    }
    if connection.has_unsent()
        && let Poll::Ready(written) = connection.poll_write(cx)
    {
        return written.map(|()| Polled::Written);
    }
    connection.watch(now)?;
    Ok(Polled::Nothing)
}

fn carry_out(
    command: Command,
    index: SessionIndex,
    connection: &mut Connection,
    shared: &Shared,
    now: Instant,
) -> Result<(), ConnectionError> {
    let (filters, former) = (shared.filters.as_slice(), shared.mqtt.unsubscribe.as_slice());
    match command {
        Command::Subscribe => {
            codec::put_subscribe(Subscribing::Group, filters, shared.mqtt.qos, connection.output(now))?;
            if !former.is_empty() {
                codec::put_unsubscribe(Unsubscribing::Former, former, connection.output(now))?;
            }
        }
        Command::Unsubscribe => {
            let all = [filters, former, shared.metrics.filters(index)].concat();
            codec::put_unsubscribe(Unsubscribing::Everything, &all, connection.output(now))?;
        }
        Command::Disconnect { end_session } => connection.disconnect(end_session, now),
        Command::HangUp => {}
    }
    Ok(())
}

fn unanswered(shared: &Shared) -> ConnectionError {
    ConnectionError::Unanswered(shared.mqtt.connect_timeout)
}

fn agreed_keep_alive(ours: Duration, connack: ConnAck) -> Duration {
    match connack.keep_alive_seconds {
        None | Some(0) => ours,
        Some(seconds) => ours.min(Duration::from_secs(seconds.into())),
    }
}
