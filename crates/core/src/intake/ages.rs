//! Histogram of message ages: the age of a message's newest fix when the message arrived.

use milepost_decode::Decoded;

/// Inclusive upper bounds of the buckets, in milliseconds. Most fixes are young, so a linear search
/// from the lowest bound is fast.
pub(super) const BOUNDS_MS: [i64; 14] = [
    250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 120_000, 300_000, 900_000, 3_600_000,
    21_600_000, 86_400_000,
];

/// Messages by age.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ages {
    /// Messages per bucket; the last bucket has no bound.
    buckets: [u64; BOUNDS_MS.len() + 1],
    /// Sum of all ages, in milliseconds. If the device's clock is ahead, the age is negative, and
    /// counts as 0.
    sum_ms: u64,
}

impl Ages {
    /// Counts a message by the age of its newest fix. Skips a message with an undated fix: such a
    /// fix gets the message's arrival time, so its true age is unknown.
    pub(super) fn observe(&mut self, decoded: &Decoded) {
        let newest = decoded.positions.iter().max_by_key(|position| position.ts);
        let Some(newest) = newest.filter(|_| decoded.omissions.undated == 0) else { return };
        let age_ms = newest.received_at.unix_ms().saturating_sub(newest.ts.unix_ms());
        let bucket = BOUNDS_MS.iter().position(|bound_ms| age_ms <= *bound_ms);
        self.buckets[bucket.unwrap_or(BOUNDS_MS.len())] += 1;
        self.sum_ms = self.sum_ms.saturating_add(u64::try_from(age_ms).unwrap_or(0));
    }

    /// Returns each bound of [`BOUNDS_MS`] with the number of messages that were at most that old.
    pub fn cumulative(&self) -> impl Iterator<Item = (i64, u64)> {
        let sums = self.buckets.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        BOUNDS_MS.into_iter().zip(sums)
    }

    /// Returns the number of counted messages. Messages without a fix, or with an undated fix, are
    /// not counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the sum of all ages, in milliseconds.
    pub fn sum_ms(&self) -> u64 {
        self.sum_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use milepost_decode::position::Timestamp;
    use milepost_decode::{Decoder, Limits, Message, Source};

    const RECEIVED_MS: i64 = 1_760_000_000_000;

    /// Decodes a message with fixes of these ages; `None`: a fix without a time.
    fn decoded(ages_ms: &[Option<i64>]) -> Decoded {
        let time = |age_ms: &i64| format!(r#","ts":{}"#, RECEIVED_MS - age_ms);
        let fix = |age: &Option<i64>| {
            format!(r#"{{"lat":1,"lng":1{}}}"#, age.as_ref().map(time).unwrap_or_default())
        };
        let payload = format!("[{}]", ages_ms.iter().map(fix).collect::<Vec<_>>().join(","));
        let mut decoded = Decoded::default();
        let message = Message::new(b"drivers/d/gps", payload.as_bytes());
        let received_at = Timestamp::from_unix_ms(RECEIVED_MS);
        let sources = [Source::milepost("drivers/+/gps")];
        Decoder::new(&sources, Limits::default()).decode(message, received_at, &mut decoded);
        decoded
    }

    #[test]
    fn message_counts_by_the_age_of_its_newest_fix() {
        let mut ages = Ages::default();
        ages.observe(&decoded(&[Some(90_000), Some(700), Some(60_000)]));
        ages.observe(&decoded(&[Some(250)]));
        ages.observe(&decoded(&[Some(-4_000)])); // the device's clock is ahead
        ages.observe(&decoded(&[Some(100_000_000)])); // older than every bound
        ages.observe(&decoded(&[]));
        ages.observe(&decoded(&[Some(0), None, Some(5)]));
        assert_eq!((ages.count(), ages.sum_ms()), (4, 700 + 250 + 100_000_000));
        let cumulative: Vec<_> = ages.cumulative().collect();
        assert_eq!(cumulative[..3], [(250, 2), (500, 2), (1_000, 3)]);
        assert_eq!(cumulative.last(), Some(&(86_400_000, 3)));
    }
}
