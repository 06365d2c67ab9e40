//! Where a batch is, and what runs for it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::delivery::events::Piece;
use crate::delivery::retry::Tries;
use crate::spool::File;

/// A disk that has not answered for so long hangs: inserts go on without it.
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
    /// In ClickHouse, or of no use: its file is being removed or put into quarantine.
    Removing { file: File, since: Instant },
}

/// A batch that is not done.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) stage: Stage,
    /// It came from the intake, not from a file.
    pub(super) fresh: bool,
    pub(super) positions: u64,
    /// Positions and rejects, of a fresh one.
    pub(super) rows: usize,
    /// When its first row came.
    pub(super) opened_at: Option<Instant>,
    /// Positions among these that something on the way to the server does not let through.
    pub(super) quarantined: u64,
    /// Positions that were left out, because their driver's data is to be gone.
    pub(super) erased: u64,
    pub(super) bytes: usize,
    pub(super) at_least_once: bool,
    /// What is not in ClickHouse; the front is next.
    pub(super) pieces: VecDeque<Piece>,
    pub(super) tries: Tries,
    /// When the spool last refused it.
    pub(super) refused_at: Option<Instant>,
    pub(super) told_durable: bool,
    /// Its attempt began before the server fell silent.
    pub(super) suspect: bool,
    /// One was ended because the server had been silent; not done twice, or a server that flickers would get nothing.
    pub(super) was_aborted: bool,
}

/// A piece for each insert.
pub(super) fn pieces(rows: impl IntoIterator<Item = usize>) -> VecDeque<Piece> {
    rows.into_iter().enumerate().map(|(insert, rows)| Piece { insert, rows: 0..rows }).collect()
}

impl Held {
    /// It takes a place among the batches being inserted.
    pub(super) fn holds_insert_slot(&self) -> bool {
        match self.stage {
            Stage::Waiting { .. }
            | Stage::Inserting { .. }
            | Stage::InsertingAndStoring { .. }
            | Stage::InsertingStored { .. }
            | Stage::Storing { .. }
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
            | Self::Loading { since, .. }
            | Self::Removing { since, .. } => Some(since),
            Self::Waiting { .. } | Self::Inserting { .. } | Self::InsertingStored { .. } => None,
        }
    }
}
