//! Delivery's inputs and outputs: commands, reports, log lines, counts.

use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::sink::{Attempt, FailureKind};
use crate::batch::Batch;
use crate::delivery::File;

/// [`Batch::id`], or the number of a file that was loaded.
pub type BatchId = u64;
/// Numbers of batches that come from files; others are below.
pub(super) const FIRST_LOADED: BatchId = 1 << 63;

/// A run of rows of one insert of a batch. The whole insert, unless something on the way to the server does not
/// let it through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Which insert of the batch: its positions, or its rejects.
    pub insert: usize,
    /// Which rows of it.
    pub rows: Range<usize>,
}

/// What the executor has to do. It reports each once, except [`Command::Take`] and [`Command::Forget`].
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
    /// Keep a row that no way to the server takes in a file of its own.
    QuarantineRow(BatchId, Piece),
    /// Drop its inserts.
    Forget(BatchId),
}

#[derive(Debug)]
pub struct Report {
    pub batch: BatchId,
    pub outcome: Outcome,
}

/// See [`Report`].
#[derive(Debug)]
pub enum Outcome {
    /// The insert committed. `took`: duration; `erased`: rows left out because their driver is erased.
    Inserted {
        took: Duration,
        erased: u64,
    },
    /// ClickHouse was not asked: the drivers of all these rows are erased.
    LeftOut {
        rows: u64,
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
    /// The spool did not take it, or the row.
    Refused(String),
    Loaded(Loaded),
    /// Its file is gone, or as good as.
    Removed,
    /// Its file is out of the way.
    Quarantined,
    /// The row's file is durable.
    RowQuarantined(File),
}

/// What was in a file.
#[derive(Debug)]
pub enum Loaded {
    /// These many rows, insert by insert.
    Rows(Vec<usize>),
    /// Not what was written.
    Damaged(String),
    /// It is not there any more.
    Gone,
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

/// What is known of ClickHouse, from questions on a connection of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerStatus {
    pub schema: Schema,
    /// Whether it answers, or why not.
    pub answers: Result<(), String>,
    /// Why our clock cannot be trusted, if it differs too much from ClickHouse's.
    pub clock_off: Option<String>,
    /// [`Attention::clock_jumps`] when the clock was compared.
    pub clock_jumps: u64,
    /// [`Attention::refusals`] when the tables were looked at.
    pub refusals: u64,
}

impl ServerStatus {
    /// The tables are there, and the clocks agree.
    #[must_use]
    pub fn ready() -> Self {
        Self { schema: Schema::Ready, answers: Ok(()), clock_off: None, clock_jumps: 0, refusals: 0 }
    }
}

/// What to ask ClickHouse, and how soon.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attention {
    /// An insert is slow or failed, or ClickHouse is silent: ask every second.
    pub in_doubt: bool,
    /// Rises with each insert that was refused for good: ask now whether the tables are still ours.
    pub refusals: u64,
    /// Rises with each jump of our clock: compare the clocks now.
    pub clock_jumps: u64,
}

/// Why a batch goes to the spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreBecause {
    /// It is not known that the tables are there.
    NoTables,
    /// An attempt to insert it failed.
    ItFailed,
    /// An attempt to insert another batch failed, and files wait already.
    ServerIsAway,
    /// It takes long, and the broker will soon send nothing more.
    ServerIsSlow,
    /// It is one more than can be inserted: the server is slow, and it was taken for the spool.
    NoSlot,
    /// The process is leaving.
    Leaving,
}

impl StoreBecause {
    pub const ALL: [Self; 6] =
        [Self::NoTables, Self::ItFailed, Self::ServerIsAway, Self::ServerIsSlow, Self::NoSlot, Self::Leaving];

    /// The metric's label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoTables => "no_tables",
            Self::ItFailed => "insert_failed",
            Self::ServerIsAway => "clickhouse_away",
            Self::ServerIsSlow => "clickhouse_slow",
            Self::NoSlot => "inserts_busy",
            Self::Leaving => "leaving",
        }
    }
}

impl fmt::Display for StoreBecause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoTables => "it is not known that the tables are there",
            Self::ItFailed => "its insert failed",
            Self::ServerIsAway => "inserts fail, and files wait already",
            Self::ServerIsSlow => {
                "its insert takes long, and half the broker's window or of the buffer is used up"
            }
            Self::NoSlot => {
                "every insert takes long, and half the broker's window or of the buffer is used up"
            }
            Self::Leaving => "this process is leaving, and ClickHouse has not taken it",
        })
    }
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

/// A log line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
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
    InsertSucceeded {
        batch: BatchId,
        failures: u32,
    },
    /// An insert has had no answer for a while.
    NoAnswer {
        for_: Duration,
    },
    /// A batch goes to the spool.
    Spooling(StoreBecause),
    SpoolRefuses(String),
    SpoolTakesAgain,
    /// The disk has not answered for a while.
    SpoolHangs {
        for_: Duration,
    },
    /// The spool was not empty, and is.
    SpoolEmpty {
        /// Batches replayed since it was not.
        batches: u64,
    },
    /// A proxy or the server refuses an insert of this size.
    TooLarge {
        /// Rows of the piece.
        rows: usize,
        /// Batches are at most this large from now on.
        batch_bytes_max: usize,
        /// The error chain.
        why: String,
    },
    /// Not even a single row.
    RowTooLarge {
        /// The error chain.
        why: String,
    },
    /// A file cannot be used.
    Quarantined {
        file: File,
        /// What is wrong with it.
        why: String,
    },
    /// A file is not there any more.
    Gone(File),
    /// A file is left in the spool for now.
    Deferred {
        file: File,
        why: String,
    },
}

/// What people call a batch.
struct Name(BatchId);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            FIRST_LOADED.. => f.write_str("a batch from the spool"),
            batch => write!(f, "batch {batch}"),
        }
    }
}

impl Notice {
    /// Logged at WARN instead of INFO.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        !matches!(self, Self::InsertSucceeded { .. } | Self::SpoolTakesAgain | Self::SpoolEmpty { .. })
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InsertFailed { batch, rows, failures, retry_in, why } => {
                write!(f, "insert failed, {} of {rows} rows, {failures} in a row", Name(*batch))?;
                if let Some(retry_in) = retry_in {
                    write!(f, ", next try in {retry_in:.1?}")?;
                }
                write!(f, ": {why}")
            }
            Self::InsertSucceeded { batch, failures } => {
                write!(f, "insert succeeded after {failures} failures, {}", Name(*batch))
            }
            Self::NoAnswer { for_ } => write!(
                f,
                "no answer to an insert from ClickHouse for {for_:.0?}: its messages are acknowledged when they are inserted or in the spool"
            ),
            Self::Spooling(because) => write!(f, "batches go to the spool: {because}"),
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
                 most {batch_bytes_max} bytes from now on; raise the limit there, which must let 8 MiB through: {why}"
            ),
            Self::RowTooLarge { why } => {
                write!(
                    f,
                    "something on the way to ClickHouse does not let a single row through: it goes into quarantine: {why}"
                )
            }
            Self::Quarantined { file, why } => write!(
                f,
                "a spooled batch cannot be used: {file} goes into quarantine, and its {} positions are not \
                 inserted: {why}",
                file.positions
            ),
            Self::Gone(file) => write!(
                f,
                "a spooled batch is gone: another program has removed {file}, and its {} positions are not \
                 inserted",
                file.positions
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
    /// Batches that went to the spool, by [`StoreBecause`].
    pub stored: [u64; StoreBecause::ALL.len()],
    /// In batches that no file holds and ClickHouse has not got, or that are being inserted beside their file.
    pub in_flight: u64,
    /// In the spool when it was opened.
    pub spool_at_start: u64,
    /// In the spool, to be replayed.
    pub in_spool: u64,
    /// Of files that are damaged or gone, and rows that no way takes.
    pub quarantined: u64,
    /// Positions of erased drivers, left out of an insert or a replay.
    pub erased: u64,
    /// Damaged, or gone.
    pub files_quarantined: u64,
    /// Batches, and rows for quarantine, that the spool did not take.
    pub refused: u64,
    pub spool_batches: u64,
    /// Files in quarantine, also those of earlier processes.
    pub spool_quarantined: u64,
    /// Of these files.
    pub spool_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_of_trouble_is_no_warning() {
        for (notice, is_warning) in [
            (Notice::InsertSucceeded { batch: 1, failures: 2 }, false),
            (Notice::SpoolTakesAgain, false),
            (Notice::SpoolEmpty { batches: 3 }, false),
            (Notice::SpoolRefuses("full".to_owned()), true),
        ] {
            assert_eq!(notice.is_warning(), is_warning, "{notice}");
        }
    }
}
