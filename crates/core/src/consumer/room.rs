//! Whether a message can be taken now, and whether a session may ask for those that it left.
//!
//! At QoS 0 nothing is acknowledged, so a broker sends as fast as we read. Not reading is the only way to slow it down.
//! Guarantee: while there is no room, nothing is read, for [`HELD_BACK_MAX`] at most. After that, messages are read and
//! dropped until there is room again: a broker that cannot write closes the connection.

use std::time::{Duration, Instant};

use super::Consumer;
use crate::intake::SessionIndex;
use crate::qos::Qos;
use crate::session::Session;
use crate::session::events::NoRoom;
use milepost_decode::Message;
use milepost_decode::position::Timestamp;

/// An insert that hangs for longer is an outage. EMQX gives up a socket that takes nothing for 15 s.
const HELD_BACK_MAX: Duration = Duration::from_secs(2);
/// What is kept free for the messages of one more read (64 KiB): they are taken out of the socket already.
const READ_ROOM_BYTES: usize = 128 * 1024;

impl Consumer {
    /// Whether to stop reading, so that the broker waits. Only at QoS 0: at QoS 1 acknowledgements hold it back.
    #[must_use]
    pub fn holds_back(&self, now: Instant) -> bool {
        self.is_full_for_a_read() && self.held_back_until().is_none_or(|until| now < until)
    }

    /// When reading resumes even without room.
    pub(super) fn held_back_until(&self) -> Option<Instant> {
        self.full_since.map(|since| since + HELD_BACK_MAX)
    }

    pub(super) fn room_for(
        &mut self,
        index: SessionIndex,
        message: Message<'_>,
        received_at: Timestamp,
    ) -> Result<(), NoRoom> {
        self.room()?;
        if self.clock.was_compared() {
            return Ok(());
        }
        let judged = self.intake.judged_by_clock(message, received_at);
        let session = message.packet_id.map(|_| index);
        if self.clock.may_judge(session, judged) { Ok(()) } else { Err(NoRoom::ClockOff) }
    }

    fn room(&self) -> Result<(), NoRoom> {
        if self.clock.off().is_some() {
            return Err(NoRoom::ClockOff);
        }
        if self.intake.room_bytes() == 0 { Err(NoRoom::BufferFull) } else { Ok(()) }
    }

    /// At QoS 0: whether one more read may find no room. The open batch is not in the backlog yet.
    pub(super) fn is_full_for_a_read(&self) -> bool {
        let has_room = self.intake.room_bytes() >= self.intake.open().bytes + READ_ROOM_BYTES;
        self.settings.qos == Qos::AtMostOnce
            && self.leaving.is_none()
            && !(has_room && self.clock.off().is_none())
    }

    /// Whether a session can take the messages it deferred: half its share of the buffer is free.
    pub(super) fn has_room_to_renew(&self, index: SessionIndex) -> bool {
        let share = self.settings.buffer_bytes_max / self.sessions.len().max(1);
        self.clock.off().is_none() && !self.clock.is_wanted_by(index) && self.intake.room_bytes() * 2 >= share
    }

    /// A broker that waits for acknowledgements queues little, and then drops messages. A session that waits for the clock
    /// alone waits for none.
    pub(super) fn is_under_pressure(&self) -> bool {
        let is_pressed = |session: &Session| {
            let unacked = session.unacked();
            unacked > 0 && (session.is_paused() || unacked * 2 >= session.window())
        };
        self.intake.room_bytes() * 2 <= self.settings.buffer_bytes_max || self.sessions.iter().any(is_pressed)
    }
}
