//! A session's inputs and outputs: events, commands, log lines, counts.

use std::fmt;
use std::time::{Duration, Instant};

use crate::counted::counted;
use crate::session::connack::ConnAck;

/// Configuration of one MQTT session.
#[derive(Debug, Clone, Copy)]
pub struct SessionConfig {
    /// Receive Maximum in CONNECT.
    pub receive_maximum: u16,
    /// Longest time for CONNACK, SUBACK or UNSUBACK to arrive.
    pub answer_timeout: Duration,
    /// Time for which the broker keeps the session while it is not connected.
    pub session_expiry: Duration,
    /// Seed of the jitter in reconnect delays.
    pub seed: u64,
}

/// An event on a connection, reported by the shell.
#[derive(Debug)]
pub enum SessionEvent {
    /// CONNACK. With Session Present the broker resumes the session and resends unacknowledged
    /// messages.
    Connected(ConnAck),
    /// SUBACK.
    Subscribed {
        /// One entry per refused filter.
        refusals: Vec<String>,
    },
    /// UNSUBACK.
    Unsubscribed {
        /// One entry per refused filter. "No subscription existed" is not a refusal.
        refusals: Vec<String>,
    },
    /// The shell refused a message at QoS 2, or a step of its handshake.
    ExactlyOnceRefused,
    /// Our DISCONNECT, and everything before it, has been written to the socket.
    DisconnectSent,
    /// The connection ended, or the attempt to connect failed.
    Disconnected {
        /// Another client connected with the same client id (reason 0x8E).
        taken_over: bool,
        /// The cause, for the log.
        why: String,
    },
    /// The process shuts down.
    Leave(Leave),
}

/// States what happens to the session when its process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// The broker keeps the session for the next process with this client id.
    KeepSession,
    /// The session is unsubscribed and emptied first. The other members receive its share of the
    /// messages from then on.
    Unsubscribe,
}

/// The decision about one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Take the message. The value is its arrival number; `None` at QoS 0.
    Take(Option<u64>),
    /// Leave the message unacknowledged. The broker redelivers it on the next connection. If the
    /// message is a copy of a message in flight, it needs no PUBACK of its own.
    Defer,
    /// Drop the message and count its points: at QoS 0 the broker does not send it again.
    Shed,
}

/// A command for the shell that owns the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionCommand {
    /// Send SUBSCRIBE for every filter.
    Subscribe,
    /// Send UNSUBSCRIBE for every filter.
    Unsubscribe,
    /// Send DISCONNECT after the acknowledgements that are already in the write buffer.
    Disconnect {
        /// Ask the broker to end the session at once.
        end_session: bool,
    },
    /// Drop the connection without DISCONNECT.
    HangUp,
}

/// The state of a session's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionState {
    /// No connection before `until`.
    BackingOff {
        until: Instant,
        /// The last connection reached [`Live`](Self::Live). It may have done so, and ended,
        /// between two calls of `handle_timeout`.
        was_live: bool,
    },
    /// The shell connects; the session waits for CONNACK.
    Connecting,
    /// CONNACK arrived; the session waits for SUBACK, or for UNSUBACK while it is emptied.
    Subscribing {
        /// Deadline.
        until: Instant,
    },
    /// SUBACK or UNSUBACK arrived.
    Live { since: Instant },
    /// DISCONNECT is being sent, or the broker has not closed the connection yet.
    Closing {
        /// Deadline.
        until: Instant,
        /// A new connection follows.
        reconnects: bool,
        /// DISCONNECT, and everything before it, has been written.
        disconnect_sent: bool,
    },
    /// No connection follows.
    Ended,
}

impl ConnectionState {
    /// Returns since when the connection has been live; `None` if it is not.
    pub fn live_since(self) -> Option<Instant> {
        if let Self::Live { since } = self { Some(since) } else { None }
    }

    /// Returns when the session acts if no event arrives first; `None` if it waits for an event.
    pub fn deadline(self) -> Option<Instant> {
        match self {
            Self::BackingOff { until, .. }
            | Self::Subscribing { until }
            | Self::Closing { until, .. } => Some(until),
            Self::Connecting | Self::Live { .. } | Self::Ended => None,
        }
    }
}

/// Why messages are deferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeferReason {
    /// `mqtt.buffer_bytes_max` is full.
    BufferFull,
    /// The clock cannot be trusted.
    ClockFault,
}

/// A log line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionNotice {
    /// CONNACK arrived.
    Connected {
        session_present: bool,
        /// Messages in flight that the broker allows, as far as known.
        window: usize,
    },
    Subscribed,
    Disconnected {
        why: String,
        retry_in: Duration,
    },
    /// CONNACK came without Session Present, although the session had existed.
    SessionLost(LostSession),
    /// The broker resumed the session, but sent a new message before it had redelivered all
    /// unacknowledged messages.
    SessionEmptied {
        /// Messages that were unacknowledged and were not redelivered.
        owed: usize,
    },
    /// The Receive Maximum of a resumed session is smaller than before.
    WindowLowered {
        from: usize,
        to: usize,
    },
    /// The broker refused to unsubscribe, for this reason.
    UnsubscriptionRefused(String),
    /// This process is leaving, and does not unsubscribe the session, because another client has
    /// taken it over.
    LeftToAnother,
    /// Another client uses the same client id.
    TakenOver {
        retry_in: Duration,
    },
    /// The broker repeatedly closes connections soon after SUBACK.
    ClosedSoon {
        times: u32,
    },
    /// Messages are deferred.
    Paused(DeferReason),
    /// Messages can be taken again. The session reconnects, so that the broker redelivers the
    /// deferred messages.
    Renewed {
        deferred: u64,
    },
    /// The broker sent a message at QoS 2.
    ExactlyOnceRefused,
    /// The broker sent an unacknowledged message again on the same connection.
    CopiesIgnored,
    /// A former session was found and emptied.
    FormerSessionEmptied {
        messages: u64,
    },
    /// The visit to a former session gave up. The session may not exist.
    FormerSessionAbandoned {
        why: String,
    },
}

/// A session that the broker did not keep, and what happened to its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostSession {
    /// Messages that milepost had accepted and not acknowledged. milepost stores them.
    pub accepted: usize,
    /// Why the session may have held messages that are stored nowhere. `None`: it held no such
    /// messages.
    pub at_risk: Option<AtRisk>,
}

/// Why a lost session may have held messages that are stored nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtRisk {
    /// The broker had sent these messages, and milepost had deferred them.
    Deferred { messages: usize },
    /// The in-flight window was full, so more messages may have waited in the broker's queue.
    WindowFull,
    /// The session had no connection for at least the session expiry, so the broker ended it.
    Expired { away: Duration },
    /// The broker had discarded the session without a restart: it accepted the first attempt to
    /// reconnect.
    BrokerNotRestarted,
}

impl fmt::Display for AtRisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deferred { messages } => {
                let messages = counted(*messages, "message");
                write!(f, "it held {messages} that milepost had left with the broker")
            }
            Self::WindowFull => f.write_str("its window was full, so it may have queued more"),
            Self::Expired { away } => {
                write!(
                    f,
                    "it had no connection for {away:.0?}, and may have queued messages meanwhile"
                )
            }
            Self::BrokerNotRestarted => f.write_str(
                "the broker was not restarted, so it ended the session and discarded its queue",
            ),
        }
    }
}

impl SessionNotice {
    /// Returns whether to log at WARN instead of INFO.
    pub fn is_warning(&self) -> bool {
        !matches!(
            self,
            Self::Connected { .. }
                | Self::Subscribed
                | Self::Renewed { .. }
                | Self::CopiesIgnored
                | Self::FormerSessionEmptied { .. }
        )
    }
}

/// The usual causes of a lost session, the most likely one first.
const LOSS_CAUSES: &str = "the broker was restarted, it killed the session (EMQX: force_shutdown, \
     look for check_oom_shutdown in its log), or this process was away for longer than \
     mqtt.session_expiry";

impl fmt::Display for SessionNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected { session_present: true, window } => {
                write!(f, "connected; session resumed; window {window}")
            }
            Self::Connected { session_present: false, window } => {
                write!(f, "connected; new session; window {window}")
            }
            Self::Subscribed => f.write_str("subscribed"),
            Self::Disconnected { why, retry_in } => {
                write!(f, "no connection: {why}; next try in {retry_in:.1?}")
            }
            Self::SessionLost(LostSession { accepted, at_risk: None }) => write!(
                f,
                "the broker was unreachable and no longer has this session. Nothing is lost: \
                 milepost holds and stores {}, and the session had queued no others",
                counted(*accepted, "unacknowledged message")
            ),
            Self::SessionLost(LostSession { accepted, at_risk: Some(why) }) => write!(
                f,
                "the broker lost this session, and messages may be lost with it: {why}. milepost \
                 holds and stores {}. Likely causes: {LOSS_CAUSES}",
                counted(*accepted, "unacknowledged message")
            ),
            Self::SessionEmptied { owed } => write!(
                f,
                "the broker reports that it kept this session, but does not resend {}: \
                 {LOSS_CAUSES}. milepost stores the messages that it holds; messages that the \
                 session had queued may be lost",
                counted(*owed, "unacknowledged message")
            ),
            Self::WindowLowered { from, to } => write!(
                f,
                "the broker lowered the window of a resumed session from {from} to {to}, and EMQX \
                 may kill such a session: restore mqtt.max_inflight in EMQX, or stop this process \
                 until the session has expired"
            ),
            Self::UnsubscriptionRefused(why) => write!(
                f,
                "the broker refused to unsubscribe this session, so it keeps queueing messages for \
                 it: {why}"
            ),
            Self::LeftToAnother => f.write_str(
                "another client has taken this session over: it is left as it is, and may stay \
                 subscribed. If that client is gone, too, start this process again, or run \
                 `milepost drain` before the session expires",
            ),
            Self::TakenOver { retry_in } => write!(
                f,
                "another client connected with this client id, and takes messages of this process \
                 while both run: give every process its own mqtt.client_id, and a second \
                 deployment its own mqtt.group (next try in {retry_in:.0?})"
            ),
            Self::ClosedSoon { times } => write!(
                f,
                "the broker closed {times} connections in a row soon after it had granted the \
                 subscription: most likely another process uses this mqtt.client_id (Mosquitto \
                 does not say so); see the broker's log"
            ),
            Self::Paused(DeferReason::BufferFull) => f.write_str(
                "the buffer (mqtt.buffer_bytes_max) is full: further messages stay with the broker \
                 until ClickHouse or the spool accepts rows",
            ),
            Self::Paused(DeferReason::ClockFault) => {
                f.write_str("this host's clock may be wrong: messages stay with the broker")
            }
            Self::Renewed { deferred } => {
                let deferred = counted(*deferred, "deferred message");
                write!(
                    f,
                    "messages can be taken again: reconnecting, so that the broker sends \
                     {deferred} again"
                )
            }
            Self::ExactlyOnceRefused => f.write_str(
                "the broker sends messages at QoS 2, and milepost subscribes at QoS 1 at most: \
                 another program has subscribed with this client id. milepost refuses these \
                 messages, and the broker discards them; give that program its own client id",
            ),
            Self::CopiesIgnored => f.write_str(
                "the broker sends unacknowledged messages again on the same connection, as EMQX \
                 before 5.8 does every mqtt.retry_interval: milepost ignores the copies",
            ),
            Self::FormerSessionEmptied { messages } => {
                let messages = counted(*messages, "message");
                write!(
                    f,
                    "a former session was emptied and ended: milepost received {messages} from it"
                )
            }
            Self::FormerSessionAbandoned { why } => write!(
                f,
                "a former session could not be emptied: {why}. If it exists, the broker keeps its \
                 messages until mqtt.session_expiry; the next start, or `milepost drain`, tries \
                 again"
            ),
        }
    }
}

/// Counters since the session began, and gauges.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionTotals {
    pub messages_received: u64,
    /// Messages that were deferred because the buffer was full or the clock was not trusted.
    pub messages_deferred: u64,
    /// PUBACKs sent.
    pub acks: u64,
    /// Connections after the first.
    pub reconnects: u64,
    /// Connections that ended because another client connected with the same client id.
    pub takeovers: u64,
    /// Sessions that the broker did not keep.
    pub sessions_lost: u64,
    /// Lost sessions that may have held messages that are stored nowhere.
    pub sessions_lost_at_risk: u64,
    /// Messages that were taken and are not acknowledged yet.
    pub unacked: u64,
    /// Messages in flight that the broker allows, as far as known.
    pub window: u64,
    /// Subscribed sessions; visits do not count.
    pub connected: u64,
    /// Sessions whose messages the broker may send again, or for which it may queue more although
    /// this process is leaving.
    pub held_by_broker: u64,
}

impl SessionTotals {
    /// Returns the sums of all counters and gauges.
    pub fn plus(self, other: Self) -> Self {
        Self {
            messages_received: self.messages_received + other.messages_received,
            messages_deferred: self.messages_deferred + other.messages_deferred,
            acks: self.acks + other.acks,
            reconnects: self.reconnects + other.reconnects,
            takeovers: self.takeovers + other.takeovers,
            sessions_lost: self.sessions_lost + other.sessions_lost,
            sessions_lost_at_risk: self.sessions_lost_at_risk + other.sessions_lost_at_risk,
            unacked: self.unacked + other.unacked,
            window: self.window + other.window,
            connected: self.connected + other.connected,
            held_by_broker: self.held_by_broker + other.held_by_broker,
        }
    }
}
