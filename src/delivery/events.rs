//! The policy's inputs and outputs: commands, reports, things to log, counts.

use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::sink::{Attempt, FailureKind};
use crate::pipeline::batch::Batch;
use crate::spool::File;

/// [`Batch::id`], or the number of a file that was loaded.
pub type BatchId = u64;

/// A run of rows of one insert of a batch. The whole insert, unless something on the way to the server does not
/// let it through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Which insert of the batch: its positions, or its rejects.
    pub insert: usize,
    /// Which rows of it.
    pub rows: Range<usize>,
}

/// What the executor is to do. Everything but [`Command::Take`] and [`Command::Forget`] is reported, once.
#[derive(Debug)]
pub enum Command {
    /// Encode it, and keep its inserts.
    Take(Batch),
    /// Insert a piece of it.
    Attempt { batch: BatchId, piece: Piece, attempt: Attempt },
    /// End its attempt now, if one is still under way.
    Abort(BatchId),
    /// Write it to the spool.
    Store(BatchId),
    /// Read it from the spool, and keep its inserts.
    Load(BatchId, File),
    /// Remove its file.
    Remove(BatchId, File),
    /// Put its damaged file out of the way.
    Quarantine(BatchId, File),
    /// Keep a copy of a row that no way to the server takes, if there is a spool.
    QuarantineRow(BatchId, Piece),
    /// Drop its inserts.
    Forget(BatchId),
}

/// What became of a command.
#[derive(Debug)]
pub struct Report {
    pub batch: BatchId,
    pub outcome: Outcome,
}

/// See [`Report`].
#[derive(Debug)]
pub enum Outcome {
    /// The piece is in ClickHouse, after so long, without so many rows of drivers whose data is to be gone.
    Inserted {
        took: Duration,
        erased: u64,
    },
    /// The attempt failed.
    Failed {
        /// What to do about it.
        kind: FailureKind,
        /// The whole error chain.
        why: String,
    },
    /// It was to be split, and cannot be: a file whose columns are those of another version.
    Unsplittable,
    /// Its file is durable.
    Stored(File),
    /// The spool did not take it.
    Refused(String),
    Loaded(Loaded),
    /// Its file is gone, or as good as.
    Removed,
    /// Its file is out of the way.
    Quarantined,
    /// The row is out of the way.
    RowQuarantined,
}

/// What was in a file.
#[derive(Debug)]
pub enum Loaded {
    /// These many rows, insert by insert.
    Rows(Vec<usize>),
    /// Not what was written.
    Damaged(String),
    /// Whole, and of a newer format.
    Newer(String),
    /// It cannot be read now.
    Unreadable(String),
}

/// Whether the tables are there, and as ours: rows inserted before a view exists never reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Schema {
    /// Nobody has answered yet, or not lately.
    Unknown(String),
    /// They are not, or the login is refused: a person must act.
    Refused(String),
    Ready,
}

/// A fresh batch that became durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Durable {
    pub batch: BatchId,
    /// Positions and rejects.
    pub rows: usize,
    /// When its first row came.
    pub opened_at: Option<Instant>,
}

/// What is worth a log line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// An attempt failed.
    InsertFailed {
        batch: BatchId,
        /// Rows of the piece.
        rows: usize,
        failures: u32,
        /// When it is tried again; `None`: when its turn comes.
        retry_in: Option<Duration>,
        /// The error chain.
        why: String,
    },
    /// It got through after that.
    InsertSucceeded { batch: BatchId, failures: u32 },
    /// An insert has had no answer for a while.
    NoAnswer { for_: Duration },
    /// Half the window is unacknowledged, and no insert ends.
    Spooling {
        /// How long the oldest has been under way.
        under_way: Duration,
    },
    /// The spool does not take batches.
    SpoolRefuses(String),
    /// It does again.
    SpoolTakesAgain,
    /// The disk has not answered for a while.
    SpoolHangs { for_: Duration },
    /// The spool was not empty, and is.
    SpoolEmpty {
        /// Batches replayed since it was not.
        batches: u64,
    },
    /// The way to the server takes no insert of this size.
    TooLarge {
        /// Rows of the piece.
        rows: usize,
        /// Batches are at most this large from now on.
        batch_bytes_max: usize,
        /// The error chain.
        why: String,
    },
    /// It does not even take a row.
    RowTooLarge {
        /// The error chain.
        why: String,
    },
    /// A file cannot be used.
    Quarantined {
        file: String,
        /// By its name.
        positions: u64,
        /// What is wrong with it.
        why: String,
    },
    /// A file is left in the spool for now.
    Deferred { file: String, why: String },
}

impl Notice {
    /// Something is wrong, or was lost.
    #[must_use]
    pub(crate) fn is_warning(&self) -> bool {
        match self {
            Self::InsertSucceeded { .. } | Self::SpoolTakesAgain | Self::SpoolEmpty { .. } => false,
            Self::InsertFailed { .. }
            | Self::NoAnswer { .. }
            | Self::Spooling { .. }
            | Self::SpoolRefuses(_)
            | Self::SpoolHangs { .. }
            | Self::TooLarge { .. }
            | Self::RowTooLarge { .. }
            | Self::Quarantined { .. }
            | Self::Deferred { .. } => true,
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InsertFailed { batch, rows, failures, retry_in, why } => {
                write!(f, "insert failed, batch {batch} of {rows} rows, {failures} in a row")?;
                if let Some(retry_in) = retry_in {
                    write!(f, ", next try in {retry_in:.1?}")?;
                }
                write!(f, ": {why}")
            }
            Self::InsertSucceeded { batch, failures } => {
                write!(f, "insert succeeded after {failures} failures, batch {batch}")
            }
            Self::NoAnswer { for_ } => write!(
                f,
                "no answer to an insert from ClickHouse for {for_:.0?}: without a spool nothing is acknowledged meanwhile"
            ),
            Self::Spooling { under_way } => write!(
                f,
                "ClickHouse is slow: no insert has ended for {} ms and half the window is unacknowledged; batches go \
                 to the spool",
                under_way.as_millis()
            ),
            Self::SpoolRefuses(why) => write!(
                f,
                "the spool takes no batch: nothing is acknowledged until the spool or ClickHouse takes rows again: {why}"
            ),
            Self::SpoolTakesAgain => f.write_str("the spool takes batches again"),
            Self::SpoolHangs { for_ } => {
                write!(f, "the disk of spool.dir has not answered for {for_:.0?}")
            }
            Self::SpoolEmpty { batches } => write!(f, "the spool is empty again; {batches} batches replayed"),
            Self::TooLarge { rows, batch_bytes_max, why } => write!(
                f,
                "something on the way to ClickHouse lets no insert of {rows} rows through: it is split, and batches are at \
                 most {batch_bytes_max} bytes from now on; raise the limit there, or lower batch.bytes_max: {why}"
            ),
            Self::RowTooLarge { why } => {
                write!(
                    f,
                    "something on the way to ClickHouse does not let a single row through: it goes into quarantine: {why}"
                )
            }
            Self::Quarantined { file, positions, why } => write!(
                f,
                "a spooled batch cannot be used: {file} goes into quarantine, and its {positions} positions are not \
                 inserted: {why}"
            ),
            Self::Deferred { file, why } => write!(f, "{file} stays in the spool for now: {why}"),
        }
    }
}

/// Counts since the process began, and levels now, in positions unless it says otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Durable in ClickHouse, straight or through the spool.
    pub inserted: u64,
    /// Batches durable in ClickHouse.
    pub batches_inserted: u64,
    /// In batches that no file holds and ClickHouse has not got, or that are being inserted beside their file.
    pub in_flight: u64,
    /// In the spool when it was opened.
    pub spool_at_start: u64,
    /// In the spool, to be replayed.
    pub in_spool: u64,
    /// Of damaged files, and rows that no way takes.
    pub quarantined: u64,
    /// Positions of drivers whose data is to be gone, left out of an insert or a replay.
    pub erased: u64,
    /// Files put into quarantine.
    pub files_quarantined: u64,
    /// Batches the spool did not take.
    pub refused: u64,
    /// Files in the spool.
    pub spool_batches: u64,
    /// Files in quarantine, also those of earlier processes.
    pub spool_quarantined: u64,
    /// Of these files.
    pub spool_bytes: u64,
}
