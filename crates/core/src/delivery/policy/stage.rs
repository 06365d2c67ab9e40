//! The states of a batch: where its rows are, and which operations are in flight.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::delivery::File;
use crate::delivery::events::{Outcome, Piece, StoreReason};
use crate::delivery::retry::Attempts;

/// Time after which a disk operation counts as hung. If a batch is being written to the spool while
/// no insert of it is in flight, its next insert waits this long for the disk, and then starts
/// without the disk's answer.
pub(super) const DISK_PATIENCE: Duration = Duration::from_secs(5);

/// The state of a batch; ARCHITECTURE.md draws the transitions. `since`: start of the attempt or,
/// in a stage without an attempt, of the disk operation. `storing_since`: start of the write to the
/// spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// In memory only; the next attempt is due at `at`.
    Waiting { at: Instant },
    /// In memory only, being inserted.
    Inserting { since: Instant },
    /// In memory, being inserted and written to the spool at the same time.
    InsertingAndStoring { since: Instant, storing_since: Instant },
    /// Being inserted; the batch's file is fsynced.
    InsertingStored { since: Instant, file: File },
    /// In memory, being written to the spool; the replay inserts the batch later. If the spool
    /// refuses the batch, the next attempt is due at `attempt_at`. A refusal does not move that
    /// time, so a spool that always refuses does not postpone the attempt for ever.
    Storing { since: Instant, attempt_at: Instant },
    /// In ClickHouse, while the batch's file is still being written; the file is removed
    /// afterwards.
    InsertedWhileStoring { since: Instant },
    /// Being read from the batch's file.
    Loading { file: File, since: Instant },
    /// One row is too large to insert, and is being written to a file of its own. `file`: the
    /// batch's own file, if there is one.
    QuarantiningRow { since: Instant, file: Option<File> },
    /// The file is being removed or renamed: the batch is in ClickHouse, or its file is damaged or
    /// missing.
    Removing { file: File, since: Instant },
}

/// Whether the spool has a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spooled {
    No,
    /// The batch's file is being written.
    Writing {
        since: Instant,
    },
    /// The batch's file is fsynced.
    Yes(File),
}

/// A batch in delivery, without its rows. The executor holds the encoded rows, and the intake knows
/// which messages the batch completes. Both refer to the batch by its id.
#[derive(Debug)]
pub(super) struct BatchState {
    pub(super) stage: Stage,
    pub(super) origin: Origin,
    pub(super) positions: u64,
    pub(super) progress: Progress,
    /// An attempt was cancelled when the server answered again after a silence. Only one attempt
    /// of a batch is cancelled: otherwise a server that repeatedly stops and answers would never
    /// commit the batch.
    pub(super) was_aborted: bool,
}

/// The origin of a batch.
#[derive(Debug)]
pub(super) enum Origin {
    Intake(Fresh),
    /// The batch is from a file of the spool, so it is durable already.
    Spool,
}

/// The details of a batch from the intake.
#[derive(Debug)]
pub(super) struct Fresh {
    /// Positions and rejects.
    pub(super) rows: usize,
    /// Arrival time of the batch's first row.
    pub(super) opened_at: Option<Instant>,
    /// Upper bound of the memory that the rows take, in bytes.
    pub(super) bytes: usize,
    /// At least one of the batch's messages is QoS 1.
    pub(super) at_least_once: bool,
    /// When the spool last refused the batch; `None` if it never did.
    pub(super) refused_at: Option<Instant>,
    /// Why the batch was last sent to the spool; `None` if it never was.
    pub(super) store_reason: Option<StoreReason>,
    /// The intake was notified that the batch is durable.
    pub(super) is_reported: bool,
}

/// The progress of inserting a batch. The replay queue keeps it for each file that this process has
/// attempted, so the next replay continues with the next piece.
#[derive(Debug, Clone)]
pub(super) struct Progress {
    pub(super) attempts: Attempts,
    /// Pieces that are not in ClickHouse yet; the front is next. Empty for a file that was never
    /// read.
    pub(super) pieces: VecDeque<Piece>,
    /// Positions that are too large to insert. They are in quarantine, or dropped if there is no
    /// spool.
    pub(super) positions_too_large: u64,
    /// Rejects that are too large to insert.
    pub(super) rejects_too_large: u64,
    /// The front piece is a row that is too large to insert, and may not be dropped.
    pub(super) is_held_by_row: bool,
    /// Positions that were left out because their driver is erased.
    pub(super) erased: u64,
}

impl Progress {
    pub(super) fn new(attempts: Attempts, pieces: VecDeque<Piece>) -> Self {
        Self {
            attempts,
            pieces,
            positions_too_large: 0,
            rejects_too_large: 0,
            is_held_by_row: false,
            erased: 0,
        }
    }
}

/// Returns one piece for each INSERT statement of a batch, which has one for positions and one for
/// rejects. A piece has all rows of its statement. `rows`: number of rows of each statement.
pub(super) fn pieces(rows: impl IntoIterator<Item = usize>) -> VecDeque<Piece> {
    rows.into_iter().enumerate().map(|(insert, rows)| Piece { insert, rows: 0..rows }).collect()
}

impl BatchState {
    pub(super) fn new(stage: Stage, origin: Origin, positions: u64, progress: Progress) -> Self {
        Self { stage, origin, positions, progress, was_aborted: false }
    }

    /// Returns the details of a batch from the intake; `None` for a batch from the spool.
    pub(super) fn fresh(&self) -> Option<&Fresh> {
        if let Origin::Intake(fresh) = &self.origin { Some(fresh) } else { None }
    }

    pub(super) fn fresh_mut(&mut self) -> Option<&mut Fresh> {
        if let Origin::Intake(fresh) = &mut self.origin { Some(fresh) } else { None }
    }

    /// Removes the front piece, which was inserted or skipped. Returns whether the piece held
    /// positions.
    pub(super) fn finish_piece(&mut self) -> bool {
        // A batch's first insert has its positions; if the batch has none, the first insert has its
        // rejects.
        let piece = self.progress.pieces.pop_front();
        self.progress.is_held_by_row = false;
        piece.is_some_and(|Piece { insert, .. }| insert == 0 && self.positions > 0)
    }

    /// Returns whether the batch occupies an insert slot.
    pub(super) fn holds_insert_slot(&self) -> bool {
        match self.stage {
            Stage::Waiting { .. }
            | Stage::Inserting { .. }
            | Stage::InsertingAndStoring { .. }
            | Stage::InsertingStored { .. }
            | Stage::Storing { .. }
            | Stage::QuarantiningRow { .. }
            | Stage::Loading { .. } => true,
            Stage::InsertedWhileStoring { .. } | Stage::Removing { .. } => false,
        }
    }
}

impl Stage {
    /// Returns whether the executor may report this outcome in this stage.
    pub(super) fn expects(self, outcome: &Outcome) -> bool {
        let is_inserting = self.attempt_since().is_some();
        let is_storing = matches!(
            self,
            Self::InsertingAndStoring { .. }
                | Self::Storing { .. }
                | Self::InsertedWhileStoring { .. }
        );
        let is_quarantining_row = matches!(self, Self::QuarantiningRow { .. });
        match outcome {
            Outcome::Inserted { .. } | Outcome::Failed { .. } => is_inserting,
            Outcome::LeftOut { .. } => is_inserting || is_quarantining_row,
            // Only a file can have the columns of another version.
            Outcome::UnknownColumns => matches!(self, Self::InsertingStored { .. }),
            Outcome::Stored(_) => is_storing,
            Outcome::Refused(_) => is_storing || is_quarantining_row,
            Outcome::Loaded(_) => matches!(self, Self::Loading { .. }),
            Outcome::Removed | Outcome::Quarantined => matches!(self, Self::Removing { .. }),
            Outcome::RowQuarantined(_) => is_quarantining_row,
        }
    }

    /// Returns whether the spool has the batch. Call it only when an attempt, a load or the
    /// quarantine of a row has just ended, and before the stage changes.
    ///
    /// # Panics
    /// If none of these operations can be in flight in this stage, which is a bug in the caller.
    pub(super) fn spooled(self) -> Spooled {
        match self {
            Self::Inserting { .. } | Self::QuarantiningRow { file: None, .. } => Spooled::No,
            Self::InsertingAndStoring { storing_since: since, .. } => Spooled::Writing { since },
            Self::InsertingStored { file, .. }
            | Self::QuarantiningRow { file: Some(file), .. }
            | Self::Loading { file, .. } => Spooled::Yes(file),
            Self::Waiting { .. }
            | Self::Storing { .. }
            | Self::InsertedWhileStoring { .. }
            | Self::Removing { .. } => unreachable!("no such operation was in flight: {self:?}"),
        }
    }

    /// Returns the batch's own fsynced file while some of its rows may not be in ClickHouse. The
    /// replay queue does not hold the file of a batch from the intake in these stages.
    pub(super) fn stored_file(self) -> Option<File> {
        match self {
            Self::InsertingStored { file, .. } | Self::QuarantiningRow { file: Some(file), .. } => {
                Some(file)
            }
            Self::Waiting { .. }
            | Self::Inserting { .. }
            | Self::InsertingAndStoring { .. }
            | Self::Storing { .. }
            | Self::InsertedWhileStoring { .. }
            | Self::QuarantiningRow { file: None, .. }
            | Self::Loading { .. }
            | Self::Removing { .. } => None,
        }
    }

    /// Returns whether the batch is only in memory, and no disk operation for it is in flight.
    pub(super) fn is_in_memory_only(self) -> bool {
        matches!(self, Self::Waiting { .. } | Self::Inserting { .. })
    }

    /// Returns whether an attempt should start: it is due, and no write to the spool is in
    /// progress, or that write hangs.
    pub(super) fn is_attempt_due(self, now: Instant) -> bool {
        match self {
            Self::Waiting { at } => at <= now,
            Self::Storing { since, attempt_at } => attempt_at.max(since + DISK_PATIENCE) <= now,
            Self::Inserting { .. }
            | Self::InsertingAndStoring { .. }
            | Self::InsertingStored { .. }
            | Self::InsertedWhileStoring { .. }
            | Self::QuarantiningRow { .. }
            | Self::Loading { .. }
            | Self::Removing { .. } => false,
        }
    }

    /// Returns the start of the attempt that is in flight; `None` if no attempt is.
    pub(super) fn attempt_since(self) -> Option<Instant> {
        match self {
            Self::Inserting { since }
            | Self::InsertingAndStoring { since, .. }
            | Self::InsertingStored { since, .. } => Some(since),
            Self::Waiting { .. }
            | Self::Storing { .. }
            | Self::InsertedWhileStoring { .. }
            | Self::QuarantiningRow { .. }
            | Self::Loading { .. }
            | Self::Removing { .. } => None,
        }
    }

    /// Returns the start of the disk operation that is in flight; `None` if no operation is.
    pub(super) fn disk_since(self) -> Option<Instant> {
        match self {
            Self::InsertingAndStoring { storing_since: since, .. }
            | Self::Storing { since, .. }
            | Self::InsertedWhileStoring { since }
            | Self::QuarantiningRow { since, .. }
            | Self::Loading { since, .. }
            | Self::Removing { since, .. } => Some(since),
            Self::Waiting { .. } | Self::Inserting { .. } | Self::InsertingStored { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::events::Loaded;
    use crate::delivery::sink::FailureKind;

    #[test]
    fn every_stage_expects_only_the_outcomes_of_its_operations() {
        let since = Instant::now();
        let file = File { sequence: 1, positions: 1, tag: 1, bytes: 1 };
        let why = || "why".to_owned();
        let (inserted, failed) = (
            Outcome::Inserted { took: Duration::ZERO, erased: 0 },
            Outcome::Failed { kind: FailureKind::Transient, why: why() },
        );
        let outcomes = [
            ("inserted", inserted),
            ("failed", failed),
            ("left out", Outcome::LeftOut { rows: 1 }),
            ("unknown columns", Outcome::UnknownColumns),
            ("stored", Outcome::Stored(file)),
            ("refused", Outcome::Refused(why())),
            ("loaded", Outcome::Loaded(Loaded::Gone)),
            ("removed", Outcome::Removed),
            ("quarantined", Outcome::Quarantined),
            ("row quarantined", Outcome::RowQuarantined(file)),
        ];
        let insert = ["inserted", "failed", "left out"];
        let store = ["stored", "refused"];
        let row = ["left out", "refused", "row quarantined"];
        for (stage, expected) in [
            (Stage::Waiting { at: since }, vec![]),
            (Stage::Inserting { since }, insert.to_vec()),
            (
                Stage::InsertingAndStoring { since, storing_since: since },
                [&insert[..], &store].concat(),
            ),
            (Stage::InsertingStored { since, file }, [&insert[..], &["unknown columns"]].concat()),
            (Stage::Storing { since, attempt_at: since }, store.to_vec()),
            (Stage::InsertedWhileStoring { since }, store.to_vec()),
            (Stage::Loading { file, since }, vec!["loaded"]),
            (Stage::QuarantiningRow { since, file: None }, row.to_vec()),
            (Stage::Removing { file, since }, vec!["removed", "quarantined"]),
        ] {
            let fits = outcomes.iter().filter(|(_, outcome)| stage.expects(outcome));
            let fits: Vec<_> = fits.map(|(name, _)| *name).collect();
            assert_eq!(fits, expected, "{stage:?}");
        }
    }
}
