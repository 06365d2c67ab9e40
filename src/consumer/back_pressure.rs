//! At QoS 0 nothing is acknowledged, so a broker sends as fast as we read. Not reading is the only way to slow it down.
//!
//! Guarantee: while there is no room, nothing is read, for [`HELD_BACK_MAX`] at most. After that, messages are read and
//! dropped until there is room again: a broker that cannot write closes the connection.

use std::time::{Duration, Instant};

/// An insert that hangs for longer is an outage. EMQX gives up a socket that takes nothing for 15 s.
const HELD_BACK_MAX: Duration = Duration::from_secs(2);
/// What is kept free for the messages of one more read (64 KiB): they are taken out of the socket already.
pub(super) const READ_ROOM_BYTES: usize = 128 * 1024;

#[derive(Debug, Default)]
pub(super) struct BackPressure {
    full_since: Option<Instant>,
}

impl BackPressure {
    pub(super) fn turn(&mut self, is_full: bool, now: Instant) {
        if !is_full {
            self.full_since = None;
        } else {
            self.full_since.get_or_insert(now);
        }
    }

    /// When reading resumes even without room.
    pub(super) fn until(&self) -> Option<Instant> {
        self.full_since.map(|since| since + HELD_BACK_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_for_a_while_and_anew_after_there_was_room() {
        let began = Instant::now();
        let mut pressure = BackPressure::default();
        let mut turn = |is_full, after_ms| {
            pressure.turn(is_full, began + Duration::from_millis(after_ms));
            pressure.until().map(|until| until - began)
        };
        assert_eq!(turn(false, 0), None);
        assert_eq!(turn(true, 100), Some(Duration::from_millis(2_100)));
        assert_eq!(turn(true, 3_000), Some(Duration::from_millis(2_100)), "the same stall");
        assert_eq!(turn(false, 4_000), None);
        assert_eq!(turn(true, 5_000), Some(Duration::from_secs(7)));
    }
}
