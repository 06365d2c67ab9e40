//! Bounds the size of new batches while ClickHouse, or a proxy in front of it, refuses large
//! inserts.

use std::time::{Duration, Instant};

use crate::batch::BYTES_MAX_MIN;

/// Time without a refusal after which the bound doubles. If the size limit is still as low, a
/// larger batch is refused once in this time, and its insert is split.
const DOUBLED_AFTER: Duration = Duration::from_secs(600);

/// The bound; see the module's documentation.
#[derive(Debug, Default)]
pub(super) struct BatchSize {
    /// `None`: only the configured size applies.
    bound: Option<Bound>,
}

#[derive(Debug)]
struct Bound {
    bytes_max: usize,
    /// Size of the largest batch that was refused. Once the bound is as high, it is lifted.
    refused_bytes: usize,
    /// Time of the last refusal, or of the last doubling after it.
    since: Instant,
}

impl BatchSize {
    /// Returns the upper bound for new batches, in bytes; `None` if only the configured size
    /// applies.
    pub(super) fn bytes_max(&self) -> Option<usize> {
        self.bound.as_ref().map(|bound| bound.bytes_max)
    }

    /// Records that an insert of a batch of this size was refused as too large. Lowers the bound to
    /// half of that size, but not below [`BYTES_MAX_MIN`], and returns the new bound; `None` if the
    /// bound is as low already.
    pub(super) fn refused(&mut self, bytes: usize, now: Instant) -> Option<usize> {
        // `Batcher::set_bytes_max` does not apply a lower bound than this.
        let half = (bytes / 2).max(BYTES_MAX_MIN);
        let is_lower = self.bytes_max().is_none_or(|bytes_max| half < bytes_max);
        let bound =
            self.bound.get_or_insert(Bound { bytes_max: half, refused_bytes: bytes, since: now });
        bound.bytes_max = bound.bytes_max.min(half);
        bound.refused_bytes = bound.refused_bytes.max(bytes);
        bound.since = now;
        is_lower.then_some(half)
    }

    /// Doubles the bound if nothing has been refused for [`DOUBLED_AFTER`].
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if let Some(bound) = &mut self.bound
            && now >= bound.since + DOUBLED_AFTER
        {
            bound.bytes_max *= 2;
            bound.since = now;
            if bound.bytes_max >= bound.refused_bytes {
                self.bound = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bound_is_at_least_the_smallest_batch_size() {
        let (mut size, began) = (BatchSize::default(), Instant::now());
        assert_eq!(size.refused(6_000, began), Some(BYTES_MAX_MIN));
        assert_eq!(size.refused(5_000, began), None, "the bound is as low already");
        size.handle_timeout(began + DOUBLED_AFTER);
        assert_eq!(size.bytes_max(), None, "a batch of 6,000 bytes may be sent again");
    }
}
