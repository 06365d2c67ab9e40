//! How rarely a driver is heard at present, so that a device which reports hourly is not silent each
//! hour.

/// The last two gaps between fixes, in milliseconds by the server's clock.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rhythm {
    gaps: [i64; 2],
}

impl Rhythm {
    /// Adds the gap before a fix: its length by the server's clock, and by the device's. A fix that
    /// catches up comes from the device's buffer, so its gap is no pause.
    pub(super) fn add(&mut self, inserted: i64, sent: i64) {
        if inserted.saturating_mul(2) >= sent {
            self.gaps = [self.gaps[1], inserted];
        }
    }

    /// Returns the gap that is usual now: the shorter one of the last two. So a single pause changes
    /// nothing, and one short gap ends a slow rhythm.
    pub(super) fn usual(self) -> i64 {
        self.gaps[0].min(self.gaps[1])
    }
}
