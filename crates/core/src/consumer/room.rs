//! Decides whether a message can be taken: the buffer must have room, and the message must not have
//! to wait for the clock (see `clock.rs`). Deferred messages of a session are taken only once more
//! room is free: half of the session's share of the buffer.
//!
//! At QoS 0 there are no acknowledgements to withhold: the broker sends as fast as milepost reads.
//! So the only back-pressure is to pause reading.
//!
//! Guarantee: while there is no room, reading pauses for at most [`HELD_BACK_MAX`]. After that,
//! messages are read and dropped until there is room again, because a broker closes a connection to
//! which it cannot write.

use std::time::{Duration, Instant};

use super::Consumer;
use crate::intake::SessionIndex;
use crate::qos::Qos;
use crate::session::Session;
use crate::session::events::DeferReason;
use milepost_decode::Message;
use milepost_decode::position::Timestamp;

/// Longest pause of reading. EMQX closes a socket from which nothing is read for 15 s.
const HELD_BACK_MAX: Duration = Duration::from_secs(2);
/// Buffer space reserved for the messages of one more read from a socket, of up to 64 KiB. Bytes
/// that have been read must be kept, because they cannot go back into the socket.
const READ_ROOM_BYTES: usize = 128 * 1024;

impl Consumer {
    /// Returns whether to pause reading, as back-pressure. `false` at QoS 1, where withheld
    /// acknowledgements are the back-pressure.
    #[must_use]
    pub fn holds_back(&self, now: Instant) -> bool {
        self.lacks_room_for_a_read() && self.held_back_until().is_none_or(|until| now < until)
    }

    /// Returns the time at which reading resumes at the latest, even if messages still cannot be
    /// taken. `None` while there is no reason to pause reading.
    pub(super) fn held_back_until(&self) -> Option<Instant> {
        self.no_room_since.map(|since| since + HELD_BACK_MAX)
    }

    /// Checks whether this message can be taken now. An error is the reason to defer it.
    pub(super) fn check_can_take(
        &mut self,
        index: SessionIndex,
        message: Message<'_>,
        received_at: Timestamp,
    ) -> Result<(), DeferReason> {
        self.check_can_take_any()?;
        if self.clock.was_compared() {
            return Ok(());
        }
        let ages = self.intake.check_ages(message, received_at);
        let session = message.packet_id.map(|_| index);
        if self.clock.may_accept(session, ages) { Ok(()) } else { Err(DeferReason::ClockFault) }
    }

    /// Checks whether any message can be taken now. An error is the reason to defer all messages.
    fn check_can_take_any(&self) -> Result<(), DeferReason> {
        if self.clock.fault().is_some() {
            return Err(DeferReason::ClockFault);
        }
        if self.intake.room_bytes() == 0 { Err(DeferReason::BufferFull) } else { Ok(()) }
    }

    /// Returns whether, at QoS 0, the messages of one more read cannot be taken: they might not fit
    /// into the buffer, or the clock is not trusted. The open batch counts as used space here,
    /// because it may move into the buffer. Always `false` at QoS 1, and while the process leaves.
    pub(super) fn lacks_room_for_a_read(&self) -> bool {
        let has_room = self.intake.room_bytes() >= self.intake.open().bytes + READ_ROOM_BYTES;
        self.settings.qos == Qos::AtMostOnce
            && self.leaving.is_none()
            && !(has_room && self.clock.fault().is_none())
    }

    /// Returns whether a session can take its deferred messages: half its share of the buffer is
    /// free, and the clock is trusted.
    pub(super) fn has_room_for_deferred(&self, index: SessionIndex) -> bool {
        let share = self.settings.buffer_bytes_max / self.sessions.len().max(1);
        self.clock.fault().is_none()
            && !self.clock.defers_messages_of(index)
            && self.intake.room_bytes() * 2 >= share
    }

    /// Returns whether half of the buffer, or half of a session's window, is used, or a paused
    /// session has unacknowledged messages. The process is then under pressure: once a window is
    /// full, the broker queues a limited number of messages, and drops all others.
    pub(super) fn is_under_pressure(&self) -> bool {
        let is_session_under_pressure = |session: &Session| {
            let unacked = session.unacked();
            unacked > 0 && (session.is_paused() || unacked * 2 >= session.window())
        };
        self.intake.room_bytes() * 2 <= self.settings.buffer_bytes_max
            || self.sessions.iter().any(is_session_under_pressure)
    }
}
