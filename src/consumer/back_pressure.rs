//! At QoS 0 nothing is acknowledged, so a broker sends as fast as we read. Not reading is the only way to slow it down.
//!
//! Guarantee: while there is no room, nothing is read, for [`HELD_BACK_MAX`] at most. After that, messages are read and
//! dropped until there is room again: a broker that cannot write gives up the connection, and others are behind it.

use std::time::{Duration, Instant};

/// An insert that hangs for longer is an outage. EMQX gives up a socket that takes nothing for 15 s.
const HELD_BACK_MAX: Duration = Duration::from_secs(2);
/// What is kept free for the messages of one more read (64 KiB): they are taken out of the socket already.
pub(super) const READ_ROOM_BYTES: usize = 128 * 1024;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct BackPressure {
    /// Since when there has been no room.
    full_since: Option<Instant>,
    /// How often that began.
    times: u64,
}

impl BackPressure {
    /// Whether there is no room for another read.
    pub(super) fn turn(&mut self, is_full: bool, now: Instant) {
        if !is_full {
            self.full_since = None;
        } else if self.full_since.is_none() {
            self.full_since = Some(now);
            self.times += 1;
        }
    }

    /// When reading goes on although there is no room.
    pub(super) fn until(&self) -> Option<Instant> {
        self.full_since.map(|since| since + HELD_BACK_MAX)
    }

    pub(super) fn times(&self) -> u64 {
        self.times
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
            (pressure.until().map(|until| until - began), pressure.times())
        };
        assert_eq!(turn(false, 0), (None, 0));
        assert_eq!(turn(true, 100), (Some(Duration::from_millis(2_100)), 1));
        assert_eq!(turn(true, 3_000), (Some(Duration::from_millis(2_100)), 1), "the same stall");
        assert_eq!(turn(false, 4_000), (None, 1));
        assert_eq!(turn(true, 5_000), (Some(Duration::from_secs(7)), 2));
    }
}
