//! Tracks which of ClickHouse's parts have been read. A part never changes, and its name states
//! which inserts it holds: `all_7_9_1` holds inserts 7 to 9. So a part that was merged from read
//! parts holds nothing new.

use std::collections::BTreeMap;

/// Numbers of inserts that have been read, as runs without holes.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Parts {
    /// First → last number of each run.
    runs: BTreeMap<u64, u64>,
}

impl Parts {
    /// Records that the inserts `first` to `last` have been read.
    pub fn add(&mut self, first: u64, last: u64) {
        let (mut first, mut last) = (first, last.max(first));
        // Merge with every adjacent or overlapping run.
        while let Some((&from, &to)) = self.runs.range(..=last.saturating_add(1)).next_back() {
            if to.saturating_add(1) < first {
                break;
            }
            self.runs.remove(&from);
            (first, last) = (first.min(from), last.max(to));
        }
        self.runs.insert(first, last);
    }

    /// Returns the first numbers of the runs, and their last numbers.
    #[must_use]
    pub fn runs(&self) -> (Vec<u64>, Vec<u64>) {
        self.runs.iter().unzip()
    }

    /// Returns whether nothing has been read yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(crate::cases::cases(256))]

        #[test]
        fn runs_hold_exactly_the_added_numbers(
            parts in proptest::collection::vec((0_u64..60, 0_u64..8), 0..40),
        ) {
            let (mut runs, mut numbers) = (Parts::default(), BTreeSet::new());
            for (first, more) in parts {
                runs.add(first, first + more);
                numbers.extend(first..=first + more);
            }
            let (from, to) = runs.runs();
            let all: Vec<u64> = from.iter().zip(&to).flat_map(|(from, to)| *from..=*to).collect();
            prop_assert_eq!(all, numbers.into_iter().collect::<Vec<_>>());
            prop_assert!(to.iter().zip(from.iter().skip(1)).all(|(to, next)| to + 1 < *next));
        }
    }
}
