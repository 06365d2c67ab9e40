//! Compares the fixes sent with those stored on each replica, as sets.

use std::time::Duration;

use anyhow::Result;
use lab_stack::{Store, wait_until};
use loadgen::manifest::Manifest;
use loadgen::verify::verify;

pub(super) const HEAD: [&str; 8] = [
    "row",
    "sent",
    "lost without it",
    "left in the spool",
    "lost",
    "twice in fixes",
    "extra rows",
    "verdict",
];

/// The result of one row of the report: what became of the fleet's fixes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) sent: u64,
    /// Fixes missing on the second replica after a replay of the spool, while the first replica was
    /// away. `None`: the row has no such check.
    pub(super) lost_without_first: Option<u64>,
    /// Batches left in the spool.
    pub(super) spooled: u64,
    /// Fixes missing on the replica with the most missing fixes.
    pub(super) lost: u64,
    /// Fixes stored twice on the replica with the most such fixes.
    pub(super) twice: u64,
    /// Duplicate rows of `positions` that no merge has removed yet, on the replica with the most
    /// such rows.
    pub(super) extra_rows: u64,
    /// Rows of an erased driver that are still stored.
    pub(super) erased_left: u64,
    /// Rows that lack the value of an added field.
    pub(super) without_value: u64,
    /// `true` if the last positions of the replicas differ.
    pub(super) positions_differ: bool,
}

impl Verdict {
    pub(super) fn holds(&self) -> bool {
        let Self { lost_without_first, spooled, lost, twice, erased_left, without_value, .. } =
            self;
        let lost_without_first = lost_without_first.unwrap_or(0);
        let bad = [lost_without_first, *spooled, *lost, *twice, *erased_left, *without_value];
        self.sent > 0 && bad.iter().all(|count| *count == 0) && !self.positions_differ
    }

    /// Returns the cells of the table, in the order of [`HEAD`].
    pub(super) fn cells(&self, name: &str) -> Vec<String> {
        let without = self.lost_without_first.map_or("–".to_owned(), |lost| lost.to_string());
        let reason = if self.positions_differ {
            ": last positions differ".to_owned()
        } else if self.erased_left > 0 {
            format!(": {} rows of the erased driver", self.erased_left)
        } else if self.without_value > 0 {
            format!(": {} rows lack the value of the field", self.without_value)
        } else {
            String::new()
        };
        let verdict =
            if self.holds() { "holds".to_owned() } else { format!("DOES NOT HOLD{reason}") };
        let Self { sent, spooled, lost, twice, extra_rows, .. } = self;
        let numbers = [*spooled, *lost, *twice, *extra_rows].map(|number| number.to_string());
        [vec![name.to_owned(), sent.to_string(), without], numbers.to_vec(), vec![verdict]].concat()
    }

    /// Compares the sent fixes with the fixes of each replica. Waits first until the replica has
    /// caught up.
    pub(super) fn compare(
        &mut self,
        replicas: &[Store],
        manifest: &Manifest,
        within: Duration,
    ) -> Result<()> {
        self.sent = manifest.sent();
        for store in replicas {
            let found = verify(store, manifest, within)?;
            self.lost = self.lost.max(found.lost);
            self.twice = self.twice.max(found.duplicates_in_fixes);
            self.extra_rows = self.extra_rows.max(found.duplicates_raw);
        }
        // ClickHouse replicates the last positions separately from `positions`, so the replicas may
        // differ for a moment.
        let all_agree = || -> Result<bool> {
            let answers: Vec<String> =
                replicas.iter().map(last_positions).collect::<Result<_>>()?;
            Ok(answers.windows(2).all(|pair| pair[0] == pair[1]))
        };
        self.positions_differ = wait_until("the replicas agree", within, all_agree).is_err();
        Ok(())
    }
}

/// Returns the number of last positions, and a hash of all last positions.
fn last_positions(store: &Store) -> Result<String> {
    store.query(&format!(
        "SELECT count(), groupBitXor(cityHash64(* EXCEPT inserted_at)) FROM {}.last_positions",
        store.database
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab_stack::{ClickHouse, in_scratch_folder};

    #[test]
    fn row_holds_only_if_every_replica_is_complete() {
        let good = Verdict { sent: 9, extra_rows: 4, ..Verdict::default() };
        assert!(good.holds(), "duplicate rows that ClickHouse merges away are allowed");
        assert!(Verdict { lost_without_first: Some(0), ..good.clone() }.holds());
        for bad in [
            Verdict { sent: 0, ..good.clone() },
            Verdict { lost_without_first: Some(1), ..good.clone() },
            Verdict { spooled: 1, ..good.clone() },
            Verdict { lost: 1, ..good.clone() },
            Verdict { twice: 1, ..good.clone() },
            Verdict { erased_left: 1, ..good.clone() },
            Verdict { without_value: 1, ..good.clone() },
            Verdict { positions_differ: true, ..good.clone() },
        ] {
            assert!(!bad.holds(), "{bad:?}");
            assert!(bad.cells("row").last().is_some_and(|cell| cell.starts_with("DOES NOT HOLD")));
            assert_eq!(bad.cells("row").len(), HEAD.len());
        }
    }

    /// Simulates two replicas by two databases of one engine.
    #[test]
    fn missing_and_duplicate_fixes_of_one_replica_are_found() -> Result<()> {
        in_scratch_folder("judge-", |folder| {
            let engine = ClickHouse::start(folder)?;
            let replicas = ["a", "b"].map(|name| engine.store(name));
            let manifest =
                Manifest { run: "x".to_owned(), last_seq: vec![5, 5], ..Manifest::default() };
            let insert = |store: &Store, seqs: &str| {
                store.query(&format!(
                    "INSERT INTO {}.positions (driver_id, ts, seq, lat_e7, lng_e7) SELECT concat('sim-x-', toString(number % 2)), \
                     toDateTime64('2026-01-01 00:00:00', 3, 'UTC') + number, intDiv(number, 2) + 1, 1, 2 FROM numbers(10) WHERE {seqs}",
                    store.database
                ))
            };
            let compare = || -> Result<Verdict> {
                let mut verdict = Verdict::default();
                verdict.compare(&replicas, &manifest, Duration::ZERO)?;
                Ok(verdict)
            };
            for store in &replicas {
                engine.create_tables(&store.database)?;
            }
            insert(&replicas[0], "1")?;
            insert(&replicas[1], "number != 9")?;
            let found = compare()?;
            assert!(found.lost == 1 && found.positions_differ && !found.holds(), "{found:?}");
            insert(&replicas[1], "1")?;
            let found = compare()?;
            assert!(
                found.holds() && found.extra_rows == 9,
                "rows inserted twice must count once: {found:?}"
            );
            replicas[1].query("CREATE OR REPLACE VIEW b.fixes AS SELECT * FROM b.positions")?;
            let found = compare()?;
            assert!(found.twice == 9 && !found.holds(), "{found:?}");
            Ok(())
        })
    }
}
