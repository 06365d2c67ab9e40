//! Delivery's inputs and outputs: commands, reports, log lines, counts.

use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::sink::{Attempt, FailureKind};
use crate::batch::Batch;
use crate::counted::counted;
use crate::delivery::File;

/// [`Batch::id`], or the number of a batch that was loaded from a spool file.
pub type BatchId = u64;
/// Lowest id of batches that are loaded from spool files. The intake's batches have lower ids.
pub(super) const FIRST_LOADED: BatchId = 1 << 63;

/// A range of rows of one insert of a batch. It is the whole insert, unless ClickHouse or a proxy
/// refused the insert as too large: then it is a smaller range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Index of the insert in the batch. A batch has at most two inserts: one of its positions,
    /// then one of its rejects.
    pub insert: usize,
    /// The rows, by index.
    pub rows: Range<usize>,
}

/// A command for the executor. The executor sends one report for each command, except for
/// [`DeliveryCommand::Encode`], [`DeliveryCommand::Abort`] and [`DeliveryCommand::Forget`].
#[derive(Debug)]
pub enum DeliveryCommand {
    /// Encode the batch, and keep its inserts in memory.
    Encode(Batch),
    /// Insert a piece of the batch.
    Attempt { batch: BatchId, piece: Piece, attempt: Attempt },
    /// Cancel the attempt of the batch, if an attempt is in flight. The executor reports the
    /// cancelled attempt as [`Outcome::aborted`].
    Abort(BatchId),
    /// Write the batch to the spool.
    Store(BatchId),
    /// Read the batch from the spool, and keep its inserts in memory.
    Load(BatchId, File),
    /// Remove the batch's file.
    Remove(BatchId, File),
    /// Rename the batch's damaged file, so that it is not replayed.
    Quarantine(BatchId, File),
    /// Write a row that is too large to insert to a file of its own.
    QuarantineRow(BatchId, Piece),
    /// Drop the batch's inserts from memory.
    Forget(BatchId),
}

/// The executor's report about one command.
#[derive(Debug)]
pub struct Report {
    pub batch: BatchId,
    pub outcome: Outcome,
}

/// The outcome of a command.
#[derive(Debug)]
pub enum Outcome {
    /// The insert committed. `took`: duration; `erased`: rows left out because their driver is
    /// erased.
    Inserted { took: Duration, erased: u64 },
    /// No insert was sent: the drivers of all these rows are erased.
    LeftOut { rows: u64 },
    /// The attempt failed.
    Failed {
        /// The kind of failure, which determines the retry.
        kind: FailureKind,
        /// The whole error chain.
        why: String,
    },
    /// The batch's file has the columns of another version, so the insert cannot be split, and
    /// rows of erased drivers cannot be left out.
    UnknownColumns,
    /// The batch's file is fsynced.
    Stored(File),
    /// The spool refused the batch, or the row for quarantine, for this reason.
    Refused(String),
    /// The result of reading the batch's file.
    Loaded(Loaded),
    /// The batch's file is removed. A removal that failed is reported like this as well.
    Removed,
    /// The batch's damaged file is renamed. A rename that failed is reported like this as well.
    Quarantined,
    /// The row's file is fsynced.
    RowQuarantined(File),
}

impl Outcome {
    /// Returns the outcome of an attempt that [`DeliveryCommand::Abort`] has cancelled. ClickHouse
    /// may have committed the insert, and only its answer was lost.
    #[must_use]
    pub fn aborted() -> Self {
        let why =
            "aborted: ClickHouse answers again after a silence, but has not answered this insert"
                .to_owned();
        Self::Failed { kind: FailureKind::Ambiguous, why }
    }
}

/// The result of reading a spool file.
#[derive(Debug)]
pub enum Loaded {
    /// The file was read. The value is the number of rows of each of its inserts.
    Rows(Vec<usize>),
    /// The content differs from what was written; a checksum or a length is wrong.
    Damaged(String),
    /// The file is missing.
    Gone,
    /// The file is intact, and was written by a newer version.
    Newer(String),
    /// The disk failed; a later read may succeed.
    Unreadable(String),
}

/// Whether the tables and views exist with this version's columns. Rows that are inserted before a
/// materialized view exists never reach that view, so inserts wait for the views as well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Schema {
    /// ClickHouse has not answered yet, or not recently.
    Unknown(String),
    /// The tables are missing or different, or the login is refused: an operator must act.
    Refused(String),
    Ready,
}

/// The state of ClickHouse, as the watcher (`src/app/schema.rs`) sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerStatus {
    pub schema: Schema,
    /// Whether ClickHouse answers, or why not. An error code of ClickHouse is an answer.
    pub answers: Result<(), String>,
    /// The last comparison of the clocks; `None` before ClickHouse has reported its time.
    pub clock: Option<ClockComparison>,
    /// Value of [`WatcherRequest::refusals`] when the tables were checked.
    pub refusals: u64,
}

/// A comparison of this host's clock with ClickHouse's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClockComparison {
    /// Why this host's clock cannot be trusted: it differs too much from ClickHouse's. `None` if
    /// the clock can be trusted.
    pub fault: Option<String>,
    /// Value of [`WatcherRequest::clock_jumps`] when the clocks were compared.
    pub jumps: u64,
}

impl ServerStatus {
    /// Returns the status of a healthy server: the tables exist, and the clocks agree.
    #[must_use]
    pub fn ready() -> Self {
        Self {
            schema: Schema::Ready,
            answers: Ok(()),
            clock: Some(ClockComparison::default()),
            refusals: 0,
        }
    }
}

/// Which queries the watcher (`src/app/schema.rs`) should send to ClickHouse, and how soon.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WatcherRequest {
    /// Send all queries every second, because an insert failed, ClickHouse is silent, or the tables
    /// are not confirmed.
    pub in_doubt: bool,
    /// Query the clock every second, because an insert is slow: the query shows whether ClickHouse
    /// answers. The other queries would add load to a server that may be slow because of its load.
    pub insert_is_slow: bool,
    /// Number of inserts that failed permanently. When it rises, check the tables at once.
    pub refusals: u64,
    /// Number of jumps of this host's clock. When it rises, compare the clocks at once.
    pub clock_jumps: u64,
}

/// Why a batch goes to the spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreReason {
    /// It is unknown whether the tables exist. A batch that has only QoS 0 messages is also stored
    /// while the tables are known to be wrong.
    NoTables,
    /// An attempt to insert the batch failed.
    InsertFailed,
    /// Inserts of other batches fail, and the spool already holds files.
    ServerIsAway,
    /// The batch's insert is slow, and the process is under pressure: half of a window or of the
    /// buffer is used.
    ServerIsSlow,
    /// All insert slots were taken, and at least one insert was slow under pressure, so delivery
    /// accepted this batch for the spool.
    NoSlot,
    /// The process is leaving.
    Leaving,
}

impl StoreReason {
    pub const ALL: [Self; 6] = [
        Self::NoTables,
        Self::InsertFailed,
        Self::ServerIsAway,
        Self::ServerIsSlow,
        Self::NoSlot,
        Self::Leaving,
    ];

    /// Returns the label of the metric.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoTables => "no_tables",
            Self::InsertFailed => "insert_failed",
            Self::ServerIsAway => "clickhouse_away",
            Self::ServerIsSlow => "clickhouse_slow",
            Self::NoSlot => "inserts_busy",
            Self::Leaving => "leaving",
        }
    }
}

impl fmt::Display for StoreReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoTables => "ClickHouse has not confirmed that the tables exist",
            Self::InsertFailed => "an insert failed",
            Self::ServerIsAway => "inserts fail, and the spool already holds files",
            Self::ServerIsSlow => {
                "an insert is slow, and half of the broker's window or of the buffer is used"
            }
            Self::NoSlot => {
                "all inserts are busy, at least one is slow, and half of the broker's window or of \
                 the buffer is used"
            }
            Self::Leaving => "this process is leaving, and ClickHouse has not stored these batches",
        })
    }
}

/// A fresh batch that became durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Durable {
    pub batch: BatchId,
    /// Number of positions and rejects.
    pub rows: usize,
    /// Arrival time of the batch's first row; `None` if the batch has no rows.
    pub opened_at: Option<Instant>,
}

/// Outcome of a row that is too large to insert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooLargeRow {
    /// It goes into a file of its own.
    Quarantined,
    /// It is dropped, because there is no spool.
    Dropped,
    /// Its batch waits. There is no spool, and no row may be dropped. The messages of later batches
    /// wait with it.
    Waits,
}

/// A log line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryNotice {
    InsertFailed {
        batch: BatchId,
        /// Rows of the piece.
        rows: usize,
        /// Consecutive failed attempts of this batch.
        failures: u32,
        /// Delay before the retry. `None` if the batch is in the spool or is being written to it,
        /// because the replay inserts it later.
        retry_in: Option<Duration>,
        /// The error chain.
        why: String,
    },
    InsertSucceeded {
        batch: BatchId,
        /// Consecutive failed attempts before this one.
        failures: u32,
    },
    /// ClickHouse has not answered an insert for a while.
    NoAnswer { waited: Duration },
    /// A batch goes to the spool.
    Spooling(StoreReason),
    /// The spool refused a batch or a row, for this reason.
    SpoolRefuses(String),
    /// The spool accepted a batch or a row after a refusal that was logged.
    SpoolAcceptsAgain,
    /// The disk has not answered for a while.
    SpoolHangs { waited: Duration },
    /// The spool has become empty.
    SpoolEmpty {
        /// Batches replayed since the spool was last empty.
        batches: u64,
    },
    /// A proxy or the server refuses an insert of this size.
    TooLarge {
        /// Rows of the piece.
        rows: usize,
        /// Upper bound for the size of later batches, in bytes.
        batch_bytes_max: usize,
        /// The error chain.
        why: String,
    },
    /// Even a one-row insert is refused as too large.
    RowTooLarge {
        /// The error chain.
        why: String,
        then: TooLargeRow,
    },
    /// A file is damaged.
    Quarantined {
        file: File,
        /// The damage.
        why: String,
    },
    /// A file is missing: another program removed it.
    Gone(File),
    /// A file is left in the spool for now.
    Deferred { file: File, why: String },
}

/// The name of a batch in log lines.
struct BatchName(BatchId);

impl fmt::Display for BatchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            FIRST_LOADED.. => f.write_str("a batch from the spool"),
            batch => write!(f, "batch {batch}"),
        }
    }
}

impl DeliveryNotice {
    /// Returns whether to log at WARN instead of INFO.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        !matches!(
            self,
            Self::InsertSucceeded { .. } | Self::SpoolAcceptsAgain | Self::SpoolEmpty { .. }
        )
    }
}

impl fmt::Display for DeliveryNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InsertFailed { batch, rows, failures, retry_in, why } => {
                f.write_str("insert failed")?;
                if *failures > 1 {
                    write!(f, " {failures} times in a row")?;
                }
                write!(f, ", {}, {}", BatchName(*batch), counted(*rows, "row"))?;
                if let Some(retry_in) = retry_in {
                    write!(f, ", next try in {retry_in:.1?}")?;
                }
                write!(f, ": {why}")
            }
            Self::InsertSucceeded { batch, failures } => {
                let failures = counted(*failures, "failure");
                write!(f, "insert succeeded after {failures}, {}", BatchName(*batch))
            }
            Self::NoAnswer { waited } => write!(
                f,
                "no answer from ClickHouse to an insert for {waited:.0?}: the messages of its \
                 batch are acknowledged once they are inserted or spooled"
            ),
            Self::Spooling(reason) => write!(f, "batches go to the spool: {reason}"),
            Self::SpoolRefuses(why) => write!(
                f,
                "the spool refuses batches: nothing is acknowledged until the spool or ClickHouse \
                 accepts rows again: {why}"
            ),
            Self::SpoolAcceptsAgain => f.write_str("the spool accepts batches again"),
            Self::SpoolHangs { waited } => {
                write!(f, "the disk of spool.dir has not answered for {waited:.0?}")
            }
            Self::SpoolEmpty { batches } => {
                write!(f, "the spool is empty again; {} replayed", counted(*batches, "batch"))
            }
            Self::TooLarge { rows, batch_bytes_max, why } => write!(
                f,
                "ClickHouse, or a proxy in front of it, refuses an insert of {rows} rows as too \
                 large: milepost splits it, and batches are at most {batch_bytes_max} bytes, or \
                 twice as large for every ten minutes without a refusal; raise the size limit to 8 \
                 MiB or more: {why}"
            ),
            Self::RowTooLarge { why, then } => {
                let end = match then {
                    TooLargeRow::Quarantined => "it goes into quarantine",
                    TooLargeRow::Dropped => {
                        "it is dropped, because there is no spool; raise the size limit, or set \
                         spool.dir, with which `milepost run` keeps such rows"
                    }
                    TooLargeRow::Waits => {
                        "it and all messages after it, of every session, stay with the broker \
                         until the size limit is raised"
                    }
                };
                write!(
                    f,
                    "ClickHouse, or a proxy in front of it, refuses a single row as too large: \
                     {end}: {why}"
                )
            }
            Self::Quarantined { file, why } => write!(
                f,
                "a spooled batch is unusable: {file} goes into quarantine with {}, not \
                 inserted: {why}",
                counted(file.positions, "position")
            ),
            Self::Gone(file) => write!(
                f,
                "a spooled batch is missing: another program removed {file} with {}, not \
                 inserted",
                counted(file.positions, "position")
            ),
            Self::Deferred { file, why } => write!(f, "{file} stays in the spool for now: {why}"),
        }
    }
}

/// Counters since the process began, and gauges; in positions unless stated otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeliveryTotals {
    /// Durable in ClickHouse, directly or through the spool.
    pub inserted: u64,
    /// Batches durable in ClickHouse.
    pub batches_inserted: u64,
    /// Batches that were written to the spool, by [`StoreReason`].
    pub stored: [u64; StoreReason::ALL.len()],
    /// Positions in fresh batches that hold an insert slot: batches that are not completely in
    /// ClickHouse. While the process is leaving, batches in an fsynced file count as in the spool.
    pub in_flight: u64,
    /// Positions in the spool when it was opened.
    pub spool_at_start: u64,
    /// Positions in the spool that will be replayed. While the process is leaving, also those in
    /// files of batches whose inserts still run.
    pub in_spool: u64,
    /// Positions in damaged or missing files and, if there is a spool, positions too large to
    /// insert.
    pub quarantined: u64,
    /// Positions too large to insert, dropped because there is no spool.
    pub dropped: u64,
    /// Rejects too large to insert, dropped because there is no spool. `rejects` has no rows
    /// for them.
    pub rejects_dropped: u64,
    /// Rows that are too large to insert, and hold back their batches because they may not be
    /// dropped.
    pub rows_held: u64,
    /// Positions of erased drivers, left out of an insert or a replay.
    pub erased: u64,
    /// Files that were damaged or missing.
    pub files_quarantined: u64,
    /// Times that the spool refused a batch, or a row for quarantine.
    pub refused: u64,
    /// Batches in the spool, counted as the positions of `in_spool`.
    pub spool_batches: u64,
    /// Files in quarantine, including those of earlier processes.
    pub spool_quarantined: u64,
    /// Bytes of all spool files, quarantine included.
    pub spool_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_is_logged_as_info() {
        for (notice, is_warning) in [
            (DeliveryNotice::InsertSucceeded { batch: 1, failures: 2 }, false),
            (DeliveryNotice::SpoolAcceptsAgain, false),
            (DeliveryNotice::SpoolEmpty { batches: 3 }, false),
            (DeliveryNotice::SpoolRefuses("full".to_owned()), true),
        ] {
            assert_eq!(notice.is_warning(), is_warning, "{notice}");
        }
    }
}
