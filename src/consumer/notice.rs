//! What the consumer has to log.

use std::fmt;
use std::time::Duration;

use crate::delivery;
use crate::intake::SessionIndex;
use crate::session;

/// What is worth a log line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    Session(SessionIndex, session::events::Notice),
    Delivery(delivery::events::Notice),
    /// The sum of the windows caps every batch below `rows_max`.
    WindowSmall {
        /// Unacknowledged messages the broker lets us have, over all sessions.
        window: usize,
        /// Enough for every insert and the open batch.
        wanted: usize,
        sessions: usize,
    },
    /// QoS 0 input is dropped, for the first time since there was room.
    Shedding,
    /// Messages come on topics of no configured filter.
    Foreign {
        messages: u64,
    },
    /// Somebody's app encrypts what it sends.
    Encrypted,
    /// Another session, because the windows of the others hold too few messages.
    Growing {
        sessions: usize,
    },
}

/// From a message's arrival to its acknowledgement: a batch's rows come, and an insert takes a while.
pub(crate) const ACKNOWLEDGED_WITHIN: Duration = Duration::from_millis(200);

impl Notice {
    /// Something is wrong, or was lost.
    #[must_use]
    pub(crate) fn is_warning(&self) -> bool {
        match self {
            Self::Session(_, notice) => notice.is_warning(),
            Self::Delivery(notice) => notice.is_warning(),
            Self::Growing { .. } => false,
            Self::WindowSmall { .. } | Self::Shedding | Self::Encrypted | Self::Foreign { .. } => true,
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(_, notice) => notice.fmt(f),
            Self::Delivery(notice) => notice.fmt(f),
            Self::WindowSmall { window, wanted, sessions } => write!(
                f,
                "the broker gives {window} messages in flight over {sessions} sessions: at most about {} messages/s here; \
                 above that its queue overflows and drops the oldest. {wanted} keep every insert busy (EMQX: \
                 mqtt.max_inflight and mqtt.max_mqueue_len, Mosquitto: max_inflight_messages and max_queued_messages, \
                 here: mqtt.receive_maximum)",
                window * 1_000 / usize::try_from(ACKNOWLEDGED_WITHIN.as_millis()).unwrap_or(usize::MAX)
            ),
            Self::Shedding => f.write_str(
                "QoS 0 messages are dropped and counted as shed: there is no room, or it is time to go",
            ),
            Self::Foreign { messages } => write!(
                f,
                "{messages} messages so far on topics that no source matches: the broker has another \
                 subscription for our sessions; they are rejects (bad_topic). Name the former filter in \
                 mqtt.unsubscribe: $share/GROUP/FILTER"
            ),
            Self::Encrypted => f.write_str(
                "OwnTracks messages are encrypted, and milepost has no key: they are counted as ignored \
                 (kind=\"encrypted\") and not stored. Remove the encryption key in the app, and use TLS",
            ),
            Self::Growing { sessions } => {
                write!(f, "one more session, now {sessions}: the windows of the others hold too few messages")
            }
        }
    }
}
