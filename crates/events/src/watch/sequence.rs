//! Counts the sequence numbers that were never received from a device: the gaps in its `seq`.
//!
//! The broker and the network can lose messages without counting them. A device that numbers its
//! fixes reveals such a loss: a number between two received ones is missing until it is received
//! too.
//!
//! Guarantee: the count is the number of values that no fix had, between the first and the highest
//! `seq` of each run of the device's counter. A run ends when the counter is reset. Neither the
//! order of the fixes nor repeated fixes change the count.
//!
//! Exception: a late fix does not reduce the count if it belongs to an earlier run, or to a gap
//! older than the newest [`GAPS_MAX`].

/// Maximum number of gaps of a device that late fixes can fill. The numbers of older gaps stay
/// missing for ever.
const GAPS_MAX: usize = 64;
/// If a number is at least this far ahead of the highest one, the counter is considered reset.
const RESET_JUMP_MIN: u32 = 1_000_000;
/// Decides about a fix that is older than the fix with the highest number, and yet has a higher
/// number. If its number is higher by at least this much, the fix belongs to an earlier run and
/// does not change the count. If it is higher by less, the device's clock was set back, and the fix
/// continues the current run.
const EARLIER_RUN_JUMP_MIN: u32 = 100;

/// One device's counter: 40 bytes, and 8 for each open gap.
#[derive(Debug, Clone, Default)]
pub(super) struct Sequence {
    /// Time of the fix with the highest number, in milliseconds since 1970.
    highest_ts: i64,
    /// Missing numbers below the highest one: first and last number of each gap, ascending.
    gaps: Vec<(u32, u32)>,
    /// The highest number; 0 before the first one.
    highest: u32,
    /// Time of the fix that showed that the counter was reset, in seconds since 1970; 0 in the
    /// first run. An older fix belongs to an earlier run, so it fills no gap of the current run.
    run_began_s: u32,
}

const _: () = assert!(size_of::<Sequence>() <= 40, "a driver's counter must not exceed 40 bytes");

impl Sequence {
    /// Starts the count at the device's first fix or, if milepost has restarted, at the newest fix
    /// from before the restart. Numbers missing before that fix are not counted.
    pub(super) fn begin(&mut self, seq: u32, ts: i64) {
        if seq > 0 && (self.highest == 0 || ts >= self.highest_ts) {
            (self.highest, self.highest_ts) = (seq, ts);
        }
    }

    /// Records a fix. Returns by how much it changes the count of missing numbers. `seq` is 0 if
    /// the device has no counter.
    pub(super) fn record(&mut self, seq: u32, ts: i64) -> i64 {
        if seq == 0 {
            return 0;
        }
        if self.highest == 0 {
            self.begin(seq, ts);
            return 0;
        }
        match seq.checked_sub(self.highest) {
            Some(EARLIER_RUN_JUMP_MIN..) if ts < self.highest_ts => 0,
            Some(1..RESET_JUMP_MIN) => {
                let missing = seq - self.highest - 1;
                if missing > 0 {
                    if self.gaps.len() == GAPS_MAX {
                        self.gaps.remove(0);
                    }
                    self.gaps.push((self.highest + 1, seq - 1));
                }
                (self.highest, self.highest_ts) = (seq, ts);
                i64::from(missing)
            }
            Some(0) => 0,
            // The device's counter was reset; the numbers missing before the reset stay missing.
            Some(RESET_JUMP_MIN..) => self.restart(seq, ts),
            None if self.is_of_this_run(ts) && self.fill(seq) => -1,
            None if ts > self.highest_ts => self.restart(seq, ts),
            None => 0,
        }
    }

    fn restart(&mut self, seq: u32, ts: i64) -> i64 {
        (self.highest, self.highest_ts) = (seq, ts);
        self.run_began_s = u32::try_from(ts / 1_000).unwrap_or(0);
        self.gaps.clear();
        0
    }

    /// Returns whether a fix with a lower number than the highest one belongs to the current run. A
    /// newer fix with a lower number shows that the counter was reset.
    fn is_of_this_run(&self, ts: i64) -> bool {
        ts <= self.highest_ts && ts / 1_000 >= i64::from(self.run_began_s)
    }

    /// Removes the number from the gaps. Returns whether it was missing.
    fn fill(&mut self, seq: u32) -> bool {
        let index = self.gaps.partition_point(|(_, last)| *last < seq);
        let Some((first, last)) = self.gaps.get(index).copied().filter(|(first, _)| *first <= seq)
        else {
            return false;
        };
        let parts = [(first, seq.wrapping_sub(1)), (seq.wrapping_add(1), last)];
        let is_nonempty = [first < seq, seq < last];
        self.gaps.splice(
            index..=index,
            parts
                .into_iter()
                .zip(is_nonempty)
                .filter_map(|(gap, is_nonempty)| is_nonempty.then_some(gap)),
        );
        if self.gaps.len() > GAPS_MAX {
            self.gaps.remove(0);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn missing_after(seqs: &[u32]) -> i64 {
        let mut sequence = Sequence::default();
        seqs.iter().map(|seq| sequence.record(*seq, i64::from(*seq) * 1_000)).sum()
    }

    #[test]
    fn late_fix_fills_its_gap_and_repeated_fix_changes_nothing() {
        for (seqs, missing) in [
            (&[][..], 0),
            (&[7], 0),
            (&[7, 8, 9], 0),
            (&[7, 10], 2),
            (&[7, 10, 8], 1),
            (&[7, 10, 8, 9], 0),
            (&[7, 10, 8, 8, 10, 7, 9, 9], 0),
            (&[7, 12, 9], 3),
            (&[7, 12, 9, 15], 5),
            (&[7, 12, 3, 5], 4),
            (&[0, 7, 0, 9, 0], 1),
            (&[1, 1 + RESET_JUMP_MIN], 0),
        ] {
            assert_eq!(missing_after(seqs), missing, "{seqs:?}");
        }
    }

    #[test]
    fn counter_reset_keeps_the_earlier_missing_numbers() {
        let mut sequence = Sequence::default();
        let fixes = [
            (900, 1_000),
            (903, 2_000),
            (1, 3_000),
            (3, 4_000),
            (901, 1_500),
            (2, 3_500),
            (4, 5_000),
        ];
        let changes: Vec<i64> = fixes.iter().map(|(seq, ts)| sequence.record(*seq, *ts)).collect();
        // 901 arrives after the reset, so it no longer fills its gap.
        assert_eq!(changes, [0, 2, 0, 1, 0, -1, 0]);
    }

    #[test]
    fn late_fix_of_an_earlier_run_fills_no_gap_of_the_current_one() {
        let mut sequence = Sequence::default();
        let fixes = [(900, 100_000), (901, 101_000), (1, 200_000), (4, 203_000)];
        let changes: Vec<i64> = fixes.iter().map(|(seq, ts)| sequence.record(*seq, *ts)).collect();
        assert_eq!(changes, [0, 0, 0, 2]);
        assert_eq!(sequence.record(3, 50_000), 0, "sent before the reset");
        assert_eq!(sequence.record(3, 202_000), -1, "sent after the reset");
    }

    #[test]
    fn all_gaps_are_counted_but_only_the_newest_can_be_filled() {
        let mut sequence = Sequence::default();
        let missing: i64 = (1..=1_000).map(|n| sequence.record(n * 2, i64::from(n))).sum();
        assert_eq!((missing, sequence.gaps.len()), (999, GAPS_MAX));
        assert_eq!(sequence.record(3, 0), 0, "a forgotten gap must stay counted");
        assert_eq!(sequence.record(1_999, 0), -1);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::with_cases(256)
        })]

        /// Sends numbers in any order, with repeats, and compares the count with the numbers that
        /// were never sent.
        #[test]
        fn count_matches_the_numbers_never_sent(seqs in prop::collection::vec(2_u32..60, 0..200)) {
            let mut sequence = Sequence::default();
            let mut missing = sequence.record(1, 0);
            missing += seqs.iter().map(|seq| sequence.record(*seq, 0)).sum::<i64>();
            let received: BTreeSet<u32> = seqs.into_iter().chain([1]).collect();
            let highest = received.last().copied().unwrap_or_default();
            let received = i64::try_from(received.len()).unwrap_or_default();
            prop_assert_eq!(missing, i64::from(highest) - received);
        }
    }
}
