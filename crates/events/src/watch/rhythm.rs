//! Measures the usual gap between a driver's fixes, so that the driver of a device that reports
//! hourly is not reported silent every hour.

/// The last four gaps between fixes, in milliseconds by the server's clock.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rhythm {
    gaps: [i64; 4],
}

impl Rhythm {
    /// Adds the gap before a fix. `inserted`: the gap by the server's clock; `sent`: the gap by the
    /// device's clock. The gap does not count if it is 0, because both fixes are of one insert. If
    /// `inserted` is less than half of `sent`, it does not count either: the fix comes from the
    /// device's buffer.
    pub(super) fn add(&mut self, inserted: i64, sent: i64) {
        if inserted > 0 && inserted.saturating_mul(2) >= sent {
            self.gaps.rotate_left(1);
            self.gaps[3] = inserted;
        }
    }

    /// Returns the usual gap at present: the second longest of the last four. So a single pause
    /// changes nothing, a device may send two fixes in each of its reports, and three short gaps
    /// end a slow rhythm.
    pub(super) fn usual(self) -> i64 {
        let mut gaps = self.gaps;
        gaps.sort_unstable();
        gaps[2]
    }
}
