//! A session's inputs and outputs: events, commands, things to log, counts.

use std::fmt;
use std::time::{Duration, Instant};

/// The delivery guarantee of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Qos {
    /// QoS 0: the broker forgets what it has sent.
    AtMostOnce,
    /// QoS 1: the broker keeps it until it is acknowledged.
    AtLeastOnce,
}

impl Qos {
    /// The number.
    #[must_use]
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::AtMostOnce => 0,
            Self::AtLeastOnce => 1,
        }
    }
}

/// What a session needs to know.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Receive Maximum asked for.
    pub receive_maximum: u16,
    /// How long CONNACK, SUBACK and UNSUBACK may take.
    pub answer_within: Duration,
    /// What it is for.
    pub role: Role,
    /// For the jitter.
    pub seed: u64,
}

/// What a session is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A member of the group.
    Member,
    /// A visit to a session that an earlier run may have left behind: it is unsubscribed, emptied and ended.
    Leftover,
}

/// What a session is told.
#[derive(Debug)]
pub enum Event {
    /// CONNACK.
    Connected {
        /// The broker still holds our session, and sends again what was not acknowledged.
        session_present: bool,
        /// CONNACK's Receive Maximum, if it gave one.
        receive_maximum: Option<u16>,
    },
    /// SUBACK.
    Subscribed {
        /// What was refused, in words, an entry a filter; empty: everything was granted.
        refusals: Vec<String>,
    },
    /// UNSUBACK.
    Unsubscribed {
        /// What was refused, in words, an entry a filter; that there was no such subscription is no refusal.
        refusals: Vec<String>,
    },
    /// Our DISCONNECT, and everything before it, has been written.
    DisconnectSent,
    /// The connection is gone.
    Disconnected {
        /// The broker said that another client came with our client id (reason 0x8E).
        taken_over: bool,
        /// Why, for people.
        why: String,
    },
    /// Shut down.
    Leave(Leave),
}

/// What becomes of the session when its process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// It stays, for the next process with this client id.
    KeepSession,
    /// It is unsubscribed and emptied first: other members take its share.
    Unsubscribe,
}

/// What becomes of a PUBLISH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Take its rows; `Some`: its arrival number, below which it is complete.
    Take(Option<u64>),
    /// Leave it unacknowledged: the broker keeps it for the next connection.
    LetGo,
    /// Drop it, and count its points: nobody sends it again (QoS 0).
    Shed,
}

/// What the shell is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Send SUBSCRIBE for every configured filter, and UNSUBSCRIBE for the former ones.
    Subscribe,
    /// Send UNSUBSCRIBE for every filter, also the former ones.
    Unsubscribe,
    /// Send DISCONNECT after the acknowledgements already handed over.
    Disconnect {
        /// The broker shall forget the session at once.
        end_session: bool,
    },
    /// Drop the connection without DISCONNECT.
    HangUp,
}

/// Where the connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionState {
    /// No connection, and none wanted before this instant.
    BackingOff {
        /// When to try again.
        until: Instant,
    },
    /// The shell connects, CONNACK is awaited.
    Connecting,
    /// CONNACK came; SUBACK, or while leaving UNSUBACK, is awaited.
    Subscribing {
        /// When not to wait longer.
        until: Instant,
    },
    /// Subscribed, or while leaving unsubscribed.
    Live {
        /// Since when.
        since: Instant,
    },
    /// DISCONNECT is on its way.
    Closing {
        /// When not to wait longer.
        until: Instant,
        /// For a new connection, not for good.
        again: bool,
    },
    /// Nothing left to do.
    Ended,
}

impl ConnectionState {
    /// Since when it is live, if it is.
    pub(crate) fn live_since(self) -> Option<Instant> {
        if let Self::Live { since } = self { Some(since) } else { None }
    }

    /// When not to wait longer, for what is waited for.
    #[must_use]
    pub(crate) fn deadline(self) -> Option<Instant> {
        match self {
            Self::BackingOff { until } | Self::Subscribing { until } | Self::Closing { until, .. } => {
                Some(until)
            }
            Self::Connecting | Self::Live { .. } | Self::Ended => None,
        }
    }
}

/// How the next connection is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// The broker shall forget what it holds of this client, now and when the connection ends.
    pub end_session: bool,
}

/// Why messages are let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRoom {
    /// `mqtt.buffer_bytes_max` is full.
    BufferFull,
    /// The clock cannot be trusted.
    ClockOff,
}

/// What is worth a log line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A session is there.
    Connected {
        /// The broker had kept it.
        session_present: bool,
        /// Unacknowledged messages it lets us have, as far as known.
        window: usize,
    },
    /// Granted.
    Subscribed,
    /// No connection.
    Disconnected {
        why: String,
        /// When it is tried again.
        retry_in: Duration,
    },
    /// The broker had kept nothing of us.
    SessionLost,
    /// The broker says that it kept our session, and does not send what it owes us.
    SessionEmptied {
        /// Messages it had sent before, and we have not acknowledged.
        owed: usize,
    },
    /// The broker gives this session fewer messages in flight than before.
    WindowLowered { from: usize, to: usize },
    /// A SUBSCRIBE was not granted.
    SubscriptionRefused(String),
    /// An UNSUBSCRIBE was not granted.
    UnsubscriptionRefused(String),
    /// Another client uses our id.
    TakenOver,
    /// The broker closes one granted connection after the other.
    ClosedSoon { times: u32 },
    /// Messages are left with the broker.
    LettingGo(NoRoom),
    /// There is room again: a new connection, on which the broker sends them.
    Renewed {
        /// Messages that were let go.
        let_go: u64,
    },
    /// Messages come at QoS 2.
    ExactlyOnce,
    /// The session of an earlier run was found and emptied.
    LeftoverEmptied {
        /// Messages that were in it.
        messages: u64,
    },
}

impl Notice {
    /// Something is wrong, or was lost.
    #[must_use]
    pub(crate) fn is_warning(&self) -> bool {
        match self {
            Self::Connected { .. }
            | Self::Subscribed
            | Self::Renewed { .. }
            | Self::LeftoverEmptied { .. } => false,
            Self::Disconnected { .. }
            | Self::SessionLost
            | Self::SessionEmptied { .. }
            | Self::WindowLowered { .. }
            | Self::SubscriptionRefused(_)
            | Self::UnsubscriptionRefused(_)
            | Self::TakenOver
            | Self::ClosedSoon { .. }
            | Self::LettingGo(_)
            | Self::ExactlyOnce => true,
        }
    }
}

/// The usual causes of a session that is gone, most likely first.
const LOST_BECAUSE: &str = "the broker was restarted, it killed the session (EMQX: force_shutdown, look for \
     check_oom_shutdown in its log), or we were away for longer than mqtt.session_expiry";

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected { session_present: true, window } => {
                write!(f, "connected; the broker kept our session; window {window}")
            }
            Self::Connected { session_present: false, window } => {
                write!(f, "connected; new session; window {window}")
            }
            Self::Subscribed => f.write_str("subscribed"),
            Self::Disconnected { why, retry_in } => write!(f, "no connection: {why}; next try in {retry_in:.1?}"),
            Self::SessionLost => write!(
                f,
                "the broker lost our session, and what it had queued for us is gone: {LOST_BECAUSE}; \
                 what was taken before is stored"
            ),
            Self::SessionEmptied { owed } => write!(
                f,
                "the broker says that it kept our session, and does not send the {owed} messages again that we have \
                 not acknowledged: {LOST_BECAUSE}; what was taken before is stored"
            ),
            Self::WindowLowered { from, to } => write!(
                f,
                "the broker lowered the window of a living session from {from} to {to}: EMQX may kill such a \
                 session; set mqtt.max_inflight back there, or let the session expire first"
            ),
            Self::SubscriptionRefused(why) => write!(f, "subscription refused: {why}"),
            Self::UnsubscriptionRefused(why) => {
                write!(f, "unsubscribing refused, so the broker goes on queueing for us: {why}")
            }
            Self::TakenOver => f.write_str(
                "another client connected with our client id: give every process its own mqtt.client_id \
                 (next try in 30 s)",
            ),
            Self::ClosedSoon { times } => write!(
                f,
                "the broker closed {times} connections in a row soon after it had granted our subscription: most \
                 likely another process uses our mqtt.client_id (Mosquitto does not say so); see the broker's log"
            ),
            Self::LettingGo(NoRoom::BufferFull) => f.write_str(
                "mqtt.buffer_bytes_max is full: further messages are left with the broker until ClickHouse or the \
                 spool takes rows",
            ),
            Self::LettingGo(NoRoom::ClockOff) => {
                f.write_str("the clocks differ too much: messages are left with the broker")
            }
            Self::Renewed { let_go } => {
                write!(f, "there is room again: a new connection, on which the broker sends {let_go} messages again")
            }
            Self::ExactlyOnce => f.write_str(
                "messages come at QoS 2: the broker has another program's subscription under our client id. They are \
                 taken, and after a lost connection one may be taken twice",
            ),
            Self::LeftoverEmptied { messages } => {
                write!(f, "an earlier run's session held {messages} messages: they are taken, and the session ended")
            }
        }
    }
}

/// Counts since the session began, and levels now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// PUBLISH packets taken.
    pub messages_received: u64,
    /// Those among them that the broker had sent before (DUP).
    pub messages_redelivered: u64,
    /// PUBLISH packets left with the broker for want of room.
    pub messages_let_go: u64,
    /// Acknowledgements handed to the connection.
    pub acks: u64,
    /// Connections after the first.
    pub reconnects: u64,
    /// Sessions the broker did not keep.
    pub sessions_lost: u64,
    /// Times that messages began to be let go.
    pub stalls: u64,
    /// Messages taken and not acknowledged.
    pub unacked: u64,
    /// Unacknowledged messages the broker lets us have, as far as known.
    pub window: u64,
    /// Live connections.
    pub connected: u64,
    /// Sessions of which the broker will send something again, or may not have got an acknowledgement.
    pub held_by_broker: u64,
    /// Visits that found a session.
    pub leftovers_found: u64,
    /// Visits that ended before they could say that nothing is left.
    pub leftovers_left: u64,
}

impl Totals {
    /// The field-wise sum.
    #[must_use]
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            messages_received: self.messages_received + other.messages_received,
            messages_redelivered: self.messages_redelivered + other.messages_redelivered,
            messages_let_go: self.messages_let_go + other.messages_let_go,
            acks: self.acks + other.acks,
            reconnects: self.reconnects + other.reconnects,
            sessions_lost: self.sessions_lost + other.sessions_lost,
            stalls: self.stalls + other.stalls,
            unacked: self.unacked + other.unacked,
            window: self.window + other.window,
            connected: self.connected + other.connected,
            held_by_broker: self.held_by_broker + other.held_by_broker,
            leftovers_found: self.leftovers_found + other.leftovers_found,
            leftovers_left: self.leftovers_left + other.leftovers_left,
        }
    }
}
