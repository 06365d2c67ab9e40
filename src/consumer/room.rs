//! Whether a message can be taken now, and whether a session may ask for those that it left.

use super::Consumer;
use super::back_pressure::READ_ROOM_BYTES;
use crate::codec::{Message, Qos};
use crate::intake::SessionIndex;
use crate::pipeline::position::Timestamp;
use crate::session::Session;
use crate::session::events::NoRoom;

impl Consumer {
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
