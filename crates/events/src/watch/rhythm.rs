//! Measures the usual gap between a driver's fixes, so that the driver of a device that reports
//! hourly is not reported silent every hour.

/// The last two gaps between fixes, in milliseconds by the server's clock.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rhythm {
    gaps: [i64; 2],
}

impl Rhythm {
    /// Adds the gap before a fix. `inserted`: the gap by the server's clock; `sent`: the gap by the
    /// device's clock. If `inserted` is less than half of `sent`, the gap does not count: the fix
    /// comes from the device's buffer.
    pub(super) fn add(&mut self, inserted: i64, sent: i64) {
        if inserted.saturating_mul(2) >= sent {
            self.gaps = [self.gaps[1], inserted];
        }
    }

    /// Returns the usual gap at present: the shorter of the last two, so that a single pause
    /// changes nothing, and one short gap ends a slow rhythm.
    pub(super) fn usual(self) -> i64 {
        self.gaps[0].min(self.gaps[1])
    }
}
