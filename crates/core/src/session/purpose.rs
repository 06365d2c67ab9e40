//! What a session is for, and how one is emptied before it is left or ended.

use std::time::{Duration, Instant};

/// Silence after UNSUBACK and the last acknowledgement, before a second UNSUBSCRIBE asks whether the session is empty.
const QUIET: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Subscribe, and take messages.
    Consume,
    /// Unsubscribe, and take what the broker still holds.
    Empty(Emptying, Then),
    /// Take nothing more. Disconnect when everything is acknowledged; the broker keeps the session.
    Flush,
    /// The session is empty: make the broker forget it, by a connection with a clean start.
    End,
}

/// What becomes of a session that is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// This process is leaving: the session expires, or its next process resumes it.
    Keep,
    /// It is a former session: no process resumes it.
    End,
}

/// How far emptying is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Emptying {
    /// UNSUBACK is awaited, on this connection or the next.
    Unsubscribing,
    /// The broker confirmed UNSUBSCRIBE. It may still hold messages until it has been silent up to `quiet_until`, which each message moves.
    Draining {
        quiet_until: Instant,
    },
    /// The broker was silent. A busy broker can be silent with a full queue, so this process sent UNSUBSCRIBE again: if no message comes
    /// before this UNSUBACK, the session is empty. That needs a broker that answers in order, as the tested ones do.
    Confirming {
        came: bool,
    },
    Done,
}

/// What a session does next to become empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Wait,
    Unsubscribe,
    /// The session is empty.
    Finish,
}

impl Purpose {
    pub(super) fn takes_messages(self) -> bool {
        matches!(self, Self::Consume | Self::Empty(..))
    }

    pub(super) fn is_visit(self) -> bool {
        matches!(self, Self::Empty(_, Then::End) | Self::End)
    }

    /// When [`Emptying::handle_timeout`] has something to do, once the session is settled.
    pub(super) fn poll_timeout(self) -> Option<Instant> {
        if let Self::Empty(Emptying::Draining { quiet_until }, _) = self { Some(quiet_until) } else { None }
    }
}

impl Emptying {
    pub(super) fn handle_message(&mut self, now: Instant) {
        match self {
            Self::Draining { .. } | Self::Done => *self = Self::Draining { quiet_until: now + QUIET },
            Self::Confirming { came } => *came = true,
            Self::Unsubscribing => {}
        }
    }

    /// UNSUBACK came; `false`: none was awaited.
    pub(super) fn handle_unsuback(&mut self, now: Instant) -> bool {
        *self = match self {
            Self::Unsubscribing | Self::Confirming { came: true } => {
                Self::Draining { quiet_until: now + QUIET }
            }
            Self::Confirming { came: false } => Self::Done,
            Self::Draining { .. } | Self::Done => return false,
        };
        true
    }

    /// `settled`: the connection is open, everything taken is acknowledged, and nothing was deferred. Until then the broker
    /// may be waiting for acknowledgements.
    pub(super) fn handle_timeout(&mut self, settled: bool, now: Instant) -> Step {
        match self {
            Self::Draining { quiet_until } if !settled => {
                *quiet_until = (*quiet_until).max(now + QUIET);
                Step::Wait
            }
            Self::Draining { quiet_until } if *quiet_until <= now => {
                *self = Self::Confirming { came: false };
                Step::Unsubscribe
            }
            Self::Done if settled => Step::Finish,
            Self::Unsubscribing | Self::Draining { .. } | Self::Confirming { .. } | Self::Done => Step::Wait,
        }
    }
}
