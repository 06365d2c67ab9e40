//! The purpose of a session, and the steps that empty the session before the process leaves it or
//! ends it.

use std::time::{Duration, Instant};

/// How long the broker must be silent, after UNSUBACK and the last acknowledgement, before a second
/// UNSUBSCRIBE checks whether the session is empty.
const QUIET: Duration = Duration::from_secs(1);

/// The purpose of a session; it decides which commands follow a CONNACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Subscribe, and take messages.
    Consume,
    /// Unsubscribe, and take the messages that the broker still holds.
    Empty(Emptying, AfterEmptying),
    /// Take no more messages. Disconnect when all taken messages are acknowledged; the broker keeps
    /// the session.
    Flush,
    /// Make the broker discard the session, which is empty: by the DISCONNECT of the connection
    /// that created the session, or by a further connection, with a clean start.
    End,
}

/// States what happens to a session once it is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterEmptying {
    /// Keep the session, because this process is leaving: the next process with its client id
    /// resumes the session, or the session expires.
    Keep,
    /// End the session, because it is a former session, which no process will resume.
    End,
}

/// The progress of emptying a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Emptying {
    /// The session waits for UNSUBACK, on this connection or the next one.
    Unsubscribing,
    /// UNSUBACK arrived. The broker may still send queued messages, so the session waits until
    /// `quiet_until`. Messages and outstanding acknowledgements postpone that time.
    Draining { quiet_until: Instant },
    /// The broker was silent for [`QUIET`]. A busy broker can be silent with a full queue, so this
    /// process sends a second UNSUBSCRIBE. If no message arrives before the second UNSUBACK, the
    /// session is empty. This relies on a broker that answers in order, as the tested brokers do.
    Confirming {
        /// A message arrived after the second UNSUBSCRIBE was sent.
        message_arrived: bool,
    },
    /// The second UNSUBACK arrived before any message: the session is empty.
    Done,
}

/// The next step towards an empty session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EmptyingStep {
    Wait,
    Unsubscribe,
    /// The session is empty.
    Finish,
}

impl Purpose {
    pub(super) fn takes_messages(self) -> bool {
        matches!(self, Self::Consume | Self::Empty(..))
    }

    /// Returns whether the session is a visit to a former session, which may or may not exist.
    pub(super) fn is_visit(self) -> bool {
        matches!(self, Self::Empty(_, AfterEmptying::End) | Self::End)
    }

    /// Returns when [`Emptying::handle_timeout`] is due: when the broker has been silent for long
    /// enough. The time applies only while the session is settled.
    pub(super) fn poll_timeout(self) -> Option<Instant> {
        if let Self::Empty(Emptying::Draining { quiet_until }, _) = self {
            Some(quiet_until)
        } else {
            None
        }
    }
}

impl Emptying {
    /// Records a message, which shows that the session is not empty yet.
    pub(super) fn handle_message(&mut self, now: Instant) {
        match self {
            Self::Draining { .. } | Self::Done => {
                *self = Self::Draining { quiet_until: now + QUIET }
            }
            Self::Confirming { message_arrived } => *message_arrived = true,
            Self::Unsubscribing => {}
        }
    }

    /// Records an UNSUBACK. Returns `false` if no UNSUBACK was awaited.
    pub(super) fn handle_unsuback(&mut self, now: Instant) -> bool {
        *self = match self {
            Self::Unsubscribing | Self::Confirming { message_arrived: true } => {
                Self::Draining { quiet_until: now + QUIET }
            }
            Self::Confirming { message_arrived: false } => Self::Done,
            Self::Draining { .. } | Self::Done => return false,
        };
        true
    }

    /// Returns the next step. `settled`: the connection is open, all taken messages are
    /// acknowledged, and none was deferred. While the session is not settled, a silent broker
    /// proves nothing: the broker may be waiting for acknowledgements.
    pub(super) fn handle_timeout(&mut self, settled: bool, now: Instant) -> EmptyingStep {
        match self {
            Self::Draining { quiet_until } if !settled => {
                *quiet_until = (*quiet_until).max(now + QUIET);
                EmptyingStep::Wait
            }
            Self::Draining { quiet_until } if *quiet_until <= now => {
                *self = Self::Confirming { message_arrived: false };
                EmptyingStep::Unsubscribe
            }
            Self::Done if settled => EmptyingStep::Finish,
            Self::Unsubscribing | Self::Draining { .. } | Self::Confirming { .. } | Self::Done => {
                EmptyingStep::Wait
            }
        }
    }
}
