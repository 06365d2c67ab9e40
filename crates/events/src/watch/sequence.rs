//! Counts the sequence numbers that were never received from a device: the gaps in its `seq`.
//!
//! The broker and the network can lose messages without counting them. A device that numbers its
//! fixes reveals such a loss: a number between two received ones is missing until it is received
//! too.
//!
//! Guarantee: the count is the number of values between the first and the highest `seq` of each run
//! of the device's counter that no fix had, in whatever order and however often the fixes arrive,
//! as long as no late fix belongs to a gap older than the last [`GAPS_MAX`].

/// Maximum number of gaps of a device that late fixes can fill. The numbers of older gaps stay
/// missing for ever.
const GAPS_MAX: usize = 64;
/// Jump ahead from which on the counter counts as reset.
const JUMP_MAX: u32 = 1_000_000;
/// Jump ahead from which on a fix that is older than the one with the highest number belongs to an
/// earlier run. A device whose clock was set back sends the next numbers instead.
const OLDER_JUMP_MAX: u32 = 100;

/// One device's counter: 40 bytes, and 8 for each open gap.
#[derive(Debug, Clone, Default)]
pub(super) struct Sequence {
    /// Time of the fix with the highest number, in milliseconds since 1970.
    highest_ts: i64,
    /// Missing numbers below the highest one: first and last number of each gap, ascending.
    gaps: Vec<(u32, u32)>,
    /// The highest number; 0: none yet.
    highest: u32,
}

const _: () = assert!(size_of::<Sequence>() <= 40, "the memory that each live driver may use");

impl Sequence {
    /// Starts the count after a fix from before the process began. Earlier gaps are not counted.
    pub(super) fn begin(&mut self, seq: u32, ts: i64) {
        if seq > 0 && (self.highest == 0 || ts >= self.highest_ts) {
            (self.highest, self.highest_ts) = (seq, ts);
        }
    }

    /// Takes a fix; returns by how much the count of missing numbers changes. A device without a
    /// counter sends 0.
    pub(super) fn take(&mut self, seq: u32, ts: i64) -> i64 {
        if seq == 0 {
            return 0;
        }
        if self.highest == 0 {
            self.begin(seq, ts);
            return 0;
        }
        match seq.checked_sub(self.highest) {
            Some(OLDER_JUMP_MAX..) if ts < self.highest_ts => 0,
            Some(1..JUMP_MAX) => {
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
            // The device's counter was reset; the numbers missing from the run before stay missing.
            Some(JUMP_MAX..) => self.restart(seq, ts),
            None if self.fill(seq) => -1,
            None if ts > self.highest_ts => self.restart(seq, ts),
            None => 0,
        }
    }

    fn restart(&mut self, seq: u32, ts: i64) -> i64 {
        (self.highest, self.highest_ts) = (seq, ts);
        self.gaps.clear();
        0
    }

    /// Removes the number from the gaps. Returns whether it was missing.
    fn fill(&mut self, seq: u32) -> bool {
        let at = self.gaps.partition_point(|(_, last)| *last < seq);
        let Some((first, last)) = self.gaps.get(at).copied().filter(|(first, _)| *first <= seq)
        else {
            return false;
        };
        let rest = [(first, seq.wrapping_sub(1)), (seq.wrapping_add(1), last)];
        let is_left = [first < seq, seq < last];
        self.gaps.splice(
            at..=at,
            rest.into_iter().zip(is_left).filter_map(|(gap, is)| is.then_some(gap)),
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
        let mut it = Sequence::default();
        seqs.iter().map(|seq| it.take(*seq, i64::from(*seq) * 1_000)).sum()
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
            (&[1, 1 + JUMP_MAX], 0),
        ] {
            assert_eq!(missing_after(seqs), missing, "{seqs:?}");
        }
    }

    #[test]
    fn counter_reset_keeps_the_earlier_missing_numbers() {
        let mut it = Sequence::default();
        let fixes = [
            (900, 1_000),
            (903, 2_000),
            (1, 3_000),
            (3, 4_000),
            (901, 1_500),
            (2, 3_500),
            (4, 5_000),
        ];
        let changes: Vec<i64> = fixes.iter().map(|(seq, ts)| it.take(*seq, *ts)).collect();
        // 901 is too late: it belongs to the run before.
        assert_eq!(changes, [0, 2, 0, 1, 0, -1, 0]);
    }

    #[test]
    fn memory_of_gaps_is_bounded_and_their_count_is_not() {
        let mut it = Sequence::default();
        let missing: i64 = (1..=1_000).map(|n| it.take(n * 2, i64::from(n))).sum();
        assert_eq!((missing, it.gaps.len()), (999, GAPS_MAX));
        assert_eq!(it.take(3, 0), 0, "its gap was forgotten");
        assert_eq!(it.take(1_999, 0), -1);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        /// Compares the count with the set of all received numbers, in any order and repetition.
        #[test]
        fn count_matches_the_set_of_numbers(order in prop::collection::vec(2_u32..60, 0..200)) {
            let mut it = Sequence::default();
            let mut missing = it.take(1, 0);
            missing += order.iter().map(|seq| it.take(*seq, 0)).sum::<i64>();
            let received: BTreeSet<u32> = order.into_iter().chain([1]).collect();
            let highest = received.last().copied().unwrap_or_default();
            prop_assert_eq!(missing, i64::from(highest) - i64::try_from(received.len()).unwrap_or_default());
        }
    }
}
