//! How far a session is with leaving.

use std::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaving {
    No,
    /// UNSUBACK is wanted, on this connection or the next.
    Unsubscribing,
    /// Unsubscribed: what the broker still has for us is taken. Asked at this time whether that was all, unless something comes.
    Draining {
        quiet_until: Instant,
    },
    /// It was silent, which a busy broker can be with a full queue. UNSUBSCRIBE went out again: where a broker
    /// answers in order, as those tried do, the session is empty if nothing comes before this UNSUBACK.
    Confirming {
        came: bool,
    },
    /// Nothing is taken any more.
    Flushing,
    /// A leftover that is empty: once more, to end it.
    EndingSession,
}

impl Leaving {
    /// What comes is still taken.
    pub(super) fn unsubscribes(self) -> bool {
        matches!(self, Self::Unsubscribing | Self::Draining { .. } | Self::Confirming { .. })
    }
}
