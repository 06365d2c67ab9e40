//! The consumer's log lines.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::former_sessions::CONNECTIONS_MAX;
use crate::counted::counted;
use crate::delivery;
use crate::intake::{SessionIndex, UnreadNotice};
use crate::session;
use crate::throttle::{ConditionThrottle, Throttle};

/// A node of the broker: `host:port`.
pub type Node = Arc<str>;

/// A log line of the consumer, a session or delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConsumerNotice {
    Session(SessionIndex, session::events::SessionNotice),
    Delivery(delivery::events::DeliveryNotice),
    /// The windows add up to fewer messages than `wanted`. So some insert slots stay idle, or
    /// insert batches that are not full.
    WindowSmall {
        /// Messages in flight that the broker allows, over all sessions.
        window: usize,
        /// Messages in flight that keep every insert slot busy while the open batch fills: (inserts
        /// in flight + 1) × rows of a full batch.
        wanted: usize,
        sessions: usize,
    },
    /// A window stays full. The text is the line of `/readyz`.
    WindowFull(String),
    /// Messages wait, and none is acknowledged. The text is the line of `/readyz`.
    Stalled(String),
    /// QoS 0 messages are dropped.
    Shedding,
    /// Messages arrive on topics that match no configured filter.
    Foreign {
        messages: u64,
    },
    /// Encrypted OwnTracks messages arrive, for which milepost has no key.
    Encrypted,
    /// At least one former session had expired, or had been dropped by the broker, before a visit
    /// could empty it.
    FormerSessionsExpired {
        sessions: u64,
    },
    /// A source has fields that are not read, or sent its first fix without a time.
    Unread(UnreadNotice),
    /// A session is added: a node of the broker has no session, or the windows of the existing
    /// sessions are too small.
    Growing {
        /// Number of sessions, including the new one.
        sessions: usize,
        /// The node that had no session; `None` if the windows were too small.
        node: Option<Node>,
    },
    /// A node has no session, and the maximum number of sessions is reached.
    NoMoreSessions {
        node: Node,
    },
    /// The number of members has changed the age at which a batch closes.
    GroupAge {
        members: u32,
        age: Duration,
    },
    /// A session has moved to another node.
    Moved {
        session: SessionIndex,
        from: Node,
        to: Node,
    },
}

/// Minimum interval between two log lines about messages that match no source, or about dropped QoS
/// 0 messages.
const LOGGED_EVERY: Duration = Duration::from_secs(60);

/// Limits the log lines that would repeat, and remembers what was logged.
#[derive(Debug)]
pub(super) struct LogThrottles {
    pub(super) shedding: Throttle,
    pub(super) window: Throttle,
    /// For [`ConsumerNotice::WindowFull`]: one line until no window is full, but at most one per
    /// [`LOGGED_EVERY`].
    pub(super) window_full: ConditionThrottle,
    /// For [`ConsumerNotice::Stalled`]: one line until a message is acknowledged, but at most one
    /// per [`LOGGED_EVERY`].
    pub(super) stalled: ConditionThrottle,
    pub(super) encrypted: Throttle,
    pub(super) expired: Throttle,
    /// For [`ConsumerNotice::NoMoreSessions`]: one line until every node has a session again.
    pub(super) no_more_sessions: Throttle,
    pub(super) foreign: Throttle,
    /// The number of foreign messages that was last logged.
    pub(super) foreign_messages: u64,
}

impl Default for LogThrottles {
    fn default() -> Self {
        let [window, encrypted, expired, no_more_sessions] = [const { Throttle::once() }; 4];
        let [window_full, stalled] = [const { ConditionThrottle::every(LOGGED_EVERY) }; 2];
        let [shedding, foreign] = [const { Throttle::every(LOGGED_EVERY) }; 2];
        Self {
            shedding,
            window,
            window_full,
            stalled,
            encrypted,
            expired,
            no_more_sessions,
            foreign,
            foreign_messages: 0,
        }
    }
}

/// Typical time from a message's arrival to its acknowledgement, in which the batch fills and is
/// inserted. It only serves to estimate message rates; it is not a limit.
pub const TYPICAL_ACK_TIME: Duration = Duration::from_millis(200);

impl ConsumerNotice {
    /// Returns whether to log at WARN instead of INFO.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        match self {
            Self::Session(_, notice) => notice.is_warning(),
            Self::Delivery(notice) => notice.is_warning(),
            Self::WindowSmall { .. }
            | Self::WindowFull(_)
            | Self::Stalled(_)
            | Self::Shedding
            | Self::Foreign { .. }
            | Self::Encrypted
            | Self::Unread(UnreadNotice { is_undated: true, .. })
            | Self::NoMoreSessions { .. }
            | Self::Moved { .. }
            | Self::FormerSessionsExpired { .. } => true,
            Self::Growing { .. } | Self::GroupAge { .. } | Self::Unread(_) => false,
        }
    }
}

impl fmt::Display for ConsumerNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(_, notice) => notice.fmt(f),
            Self::Delivery(notice) => notice.fmt(f),
            Self::WindowSmall { window, wanted, sessions } => write!(
                f,
                "the broker allows {} over {}, enough for about {} messages/s. Above that rate \
                 its queue fills up, and the broker drops messages: EMQX the oldest one in the \
                 queue, Mosquitto the one that arrives. Allow {wanted} to keep every insert slot \
                 busy (EMQX: mqtt.max_inflight and mqtt.max_mqueue_len, Mosquitto: \
                 max_inflight_messages and max_queued_messages)",
                counted(*window, "unacknowledged message"),
                counted(*sessions, "session"),
                window * 1_000
                    / usize::try_from(TYPICAL_ACK_TIME.as_millis()).unwrap_or(usize::MAX)
            ),
            Self::WindowFull(line) | Self::Stalled(line) => f.write_str(line),
            Self::Shedding => f.write_str(
                "QoS 0 messages are dropped and counted as shed: the buffer is full, this host's \
                 clock may be wrong, or this process is leaving",
            ),
            Self::Foreign { messages } => write!(
                f,
                "{} so far on topics that no source matches; each becomes a reject (bad_topic). \
                 The broker still holds an older subscription of this process's sessions: stop \
                 this process for longer than mqtt.session_expiry, or choose another \
                 mqtt.client_id",
                counted(*messages, "message")
            ),
            Self::Encrypted => f.write_str(
                "OwnTracks messages are encrypted, and milepost has no key: they are counted as \
                 ignored (kind=\"encrypted\") and not stored. Remove the encryption key in the \
                 app, and use TLS",
            ),
            Self::Unread(notice) => notice.fmt(f),
            Self::FormerSessionsExpired { sessions } => {
                let (were, subject, object) =
                    if *sessions == 1 { ("was", "it", "it") } else { ("were", "they", "them") };
                write!(
                    f,
                    "{} {were} gone before {subject} could be emptied: {subject} expired \
                     (mqtt.session_expiry), or the broker dropped {object}, and the messages that \
                     it had queued for {object} are lost. Nothing is lost if the broker's node was \
                     away when the former process would have created {object}",
                    counted(*sessions, "former session")
                )
            }
            Self::Growing { sessions, node: None } => {
                write!(
                    f,
                    "one more session, now {sessions}: the windows of the existing sessions are \
                     too small"
                )
            }
            Self::Growing { sessions, node: Some(node) } => {
                write!(
                    f,
                    "one more session, now {sessions}: no session was on the broker's node {node}"
                )
            }
            Self::GroupAge { members, age } => write!(
                f,
                "the group has {}: a batch closes {age:?} after its first row, or earlier if it is \
                 full; while half of a window or of the buffer is used, it closes after \
                 batch.age_max (see batch.members_age_max)",
                counted(*members, "member")
            ),
            Self::NoMoreSessions { node } => write!(
                f,
                "the broker's node {node} has no session of this process, which has \
                 {CONNECTIONS_MAX} sessions already and opens no more. Restart milepost when the \
                 node answers: that spreads the sessions again"
            ),
            Self::Moved { session, from, to } => write!(
                f,
                "session {session} has left the broker's node {from}, which was unusable, for \
                 {to}, and stays there until a restart. Messages in transit between the nodes can \
                 be lost"
            ),
        }
    }
}
