//! Where a batch is, and what runs for it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::delivery::File;
use crate::delivery::events::{Piece, StoreBecause};
use crate::delivery::retry::Tries;

/// After this the disk counts as hanging, and inserts do not wait for it.
pub(super) const DISK_PATIENCE: Duration = Duration::from_secs(5);

/// Where a batch is, and what runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// In memory alone; its next attempt is due then.
    Waiting { at: Instant },
    /// In memory alone, being inserted.
    Inserting { since: Instant },
    /// In memory, being inserted and being written to the spool.
    InsertingAndStoring { since: Instant, storing_since: Instant },
    /// Being inserted; its file is there.
    InsertingStored { since: Instant, file: File },
    /// In memory, being written to the spool, for the replay to go on with. If the spool refuses, the next attempt is due
    /// when it would have been: a spool that always refuses must not put it off for ever.
    Storing { since: Instant, attempt_at: Instant },
    /// In ClickHouse, while its file is still being written.
    InsertedWhileStoring { since: Instant },
    /// Being read from its file.
    Loading { file: File, since: Instant },
    /// A row of it is too large for any way to the server, and is being written to a file of its own. `file`: the batch's, if
    /// there is one.
    QuarantiningRow { since: Instant, file: Option<File> },
    /// In ClickHouse, or of no use: its file is being removed or put into quarantine.
    Removing { file: File, since: Instant },
}

/// A batch that is not done, as decisions need it. Its rows are the executor's, and which messages it completes is the intake's:
/// both are told by its id.
#[derive(Debug)]
pub(super) struct BatchState {
    pub(super) stage: Stage,
    pub(super) origin: Origin,
    pub(super) positions: u64,
    pub(super) progress: Progress,
    /// An attempt was ended because the server had been silent; not done twice, or a server that flickers would get nothing.
    pub(super) was_aborted: bool,
}

/// Where a batch comes from.
#[derive(Debug)]
pub(super) enum Origin {
    Intake(Fresh),
    /// From its file, so it is durable.
    Spool,
}

/// What is known of a batch from the intake.
#[derive(Debug)]
pub(super) struct Fresh {
    /// Positions and rejects.
    pub(super) rows: usize,
    /// When its first row came.
    pub(super) opened_at: Option<Instant>,
    pub(super) bytes: usize,
    pub(super) at_least_once: bool,
    /// When the spool last refused it.
    pub(super) refused_at: Option<Instant>,
    /// Why it was last given to the spool.
    pub(super) stored_because: Option<StoreBecause>,
    /// The intake knows that it is durable.
    pub(super) reported: bool,
}

/// How much of a batch is in ClickHouse. It outlives the batch in memory, as long as its file is there.
#[derive(Debug, Clone)]
pub(super) struct Progress {
    pub(super) tries: Tries,
    /// What is not in ClickHouse; the front is next. Empty for a file that was never read.
    pub(super) pieces: VecDeque<Piece>,
    /// Positions that something on the way to the server does not let through.
    pub(super) quarantined: u64,
    /// Positions that were left out because their driver is erased.
    pub(super) erased: u64,
}

impl Progress {
    pub(super) fn new(tries: Tries, pieces: VecDeque<Piece>) -> Self {
        Self { tries, pieces, quarantined: 0, erased: 0 }
    }
}

/// A piece for each insert.
pub(super) fn pieces(rows: impl IntoIterator<Item = usize>) -> VecDeque<Piece> {
    rows.into_iter().enumerate().map(|(insert, rows)| Piece { insert, rows: 0..rows }).collect()
}

impl BatchState {
    pub(super) fn new(stage: Stage, origin: Origin, positions: u64, progress: Progress) -> Self {
        Self { stage, origin, positions, progress, was_aborted: false }
    }

    /// What is known of it, if it comes from the intake.
    pub(super) fn fresh(&self) -> Option<&Fresh> {
        if let Origin::Intake(fresh) = &self.origin { Some(fresh) } else { None }
    }

    pub(super) fn fresh_mut(&mut self) -> Option<&mut Fresh> {
        if let Origin::Intake(fresh) = &mut self.origin { Some(fresh) } else { None }
    }

    /// Nothing is left to do for the front piece; whether it is one of positions.
    pub(super) fn pass_piece(&mut self) -> bool {
        let piece = self.progress.pieces.pop_front();
        piece.is_some_and(|Piece { insert, .. }| insert == 0 && self.positions > 0)
    }

    /// It takes a place among the batches being inserted.
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
    /// Neither in the spool nor on its way there, and not in ClickHouse.
    pub(super) fn is_unstored(self) -> bool {
        matches!(self, Self::Waiting { .. } | Self::Inserting { .. })
    }

    /// An attempt should begin: its time has come, or the disk that has it does not answer.
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

    /// Since when an attempt has been under way.
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

    /// Since when the disk has been asked for something.
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
