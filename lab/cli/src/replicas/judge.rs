//! What was lost or doubled, on each replica, as sets.

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
    "rows more",
    "verdict",
];

/// What became of a fleet's fixes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) sent: u64,
    /// While the first replica was away, those that were neither on another one nor in the spool;
    /// `None`: nobody looked.
    pub(super) lost_without_it: Option<u64>,
    pub(super) left: u64,
    /// On the replica that lacks most.
    pub(super) lost: u64,
    /// On the replica that has most.
    pub(super) twice: u64,
    /// Rows of `positions` beyond one a fix, which collapse.
    pub(super) more: u64,
    /// Rows of a driver who was erased.
    pub(super) erased_left: u64,
    /// The replicas say different things of last positions.
    pub(super) differ: bool,
}

impl Verdict {
    pub(super) fn holds(&self) -> bool {
        let Self { lost_without_it, left, lost, twice, erased_left, differ, sent, more: _ } = self;
        let bad = [lost_without_it.unwrap_or(0), *left, *lost, *twice, *erased_left];
        *sent > 0 && bad.iter().all(|count| *count == 0) && !differ
    }

    /// As [`HEAD`] has them.
    pub(super) fn cells(&self, name: &str) -> Vec<String> {
        let without = self.lost_without_it.map_or("–".to_owned(), |lost| lost.to_string());
        let verdict = match (self.holds(), self.differ, self.erased_left) {
            (true, ..) => "holds".to_owned(),
            (false, false, 0) => "DOES NOT HOLD".to_owned(),
            (false, false, rows) => format!("DOES NOT HOLD: {rows} rows of whoever was erased"),
            (false, true, _) => "DOES NOT HOLD: last positions differ".to_owned(),
        };
        let Self { sent, left, lost, twice, more, .. } = self;
        let numbers = [*left, *lost, *twice, *more].map(|number| number.to_string());
        [vec![name.to_owned(), sent.to_string(), without], numbers.to_vec(), vec![verdict]].concat()
    }

    /// Compares what was sent with what each replica has, once it has caught up.
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
            self.more = self.more.max(found.duplicates_raw);
        }
        // The view's own table is replicated by itself, a moment later.
        let all_say_the_same = || -> Result<bool> {
            let said: Vec<String> = replicas.iter().map(last_positions).collect::<Result<_>>()?;
            Ok(said.windows(2).all(|pair| pair[0] == pair[1]))
        };
        self.differ = wait_until("the replicas agree", within, all_say_the_same).is_err();
        Ok(())
    }
}

/// How many there are, and a hash of them all.
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
    fn a_row_holds_only_when_nothing_is_missing_anywhere() {
        let good = Verdict { sent: 9, more: 4, ..Verdict::default() };
        assert!(good.holds(), "rows that collapse do no harm");
        assert!(Verdict { lost_without_it: Some(0), ..good.clone() }.holds());
        for bad in [
            Verdict { sent: 0, ..good.clone() },
            Verdict { lost_without_it: Some(1), ..good.clone() },
            Verdict { left: 1, ..good.clone() },
            Verdict { lost: 1, ..good.clone() },
            Verdict { twice: 1, ..good.clone() },
            Verdict { erased_left: 1, ..good.clone() },
            Verdict { differ: true, ..good.clone() },
        ] {
            assert!(!bad.holds(), "{bad:?}");
            assert!(bad.cells("row").last().is_some_and(|cell| cell.starts_with("DOES NOT HOLD")));
            assert_eq!(bad.cells("row").len(), HEAD.len());
        }
    }

    /// Two databases of one engine stand for two replicas.
    #[test]
    fn what_one_replica_lacks_or_has_twice_is_found() -> Result<()> {
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
            let judged = || -> Result<Verdict> {
                let mut verdict = Verdict::default();
                verdict.compare(&replicas, &manifest, Duration::ZERO)?;
                Ok(verdict)
            };
            for store in &replicas {
                engine.create_tables(&store.database)?;
            }
            insert(&replicas[0], "1")?;
            insert(&replicas[1], "number != 9")?;
            let found = judged()?;
            assert!(found.lost == 1 && found.differ && !found.holds(), "{found:?}");
            insert(&replicas[1], "1")?;
            let found = judged()?;
            assert!(found.holds() && found.more == 9, "inserted twice, and there once: {found:?}");
            replicas[1].query("CREATE OR REPLACE VIEW b.fixes AS SELECT * FROM b.positions")?;
            let found = judged()?;
            assert!(found.twice == 9 && !found.holds(), "{found:?}");
            Ok(())
        })
    }
}
