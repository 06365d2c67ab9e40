//! Writes the rows of all commands but `run` and `spool replay`: import, rejects replay, fences,
//! events.
//!
//! Guarantee: each piece of an insert is [screened](milepost_core::screened) by a list of erased
//! drivers that is read again while the insert is retried. An insert that a proxy refuses as too
//! large (HTTP 413) is halved until it passes; later inserts of a refused size are halved before
//! they are sent. A retry has the token that [`Attempts`] gives it. `run` and `spool replay` use
//! the same parts through the executor, with delivery's policy instead of this loop.

use std::collections::VecDeque;
use std::error::Error as StdError;
use std::time::{Duration, Instant};

use tokio::time::sleep;
use tracing::warn;

use super::client::{ClickHouse, Error};
use super::retries::Retries;
use milepost_core::delivery::events::Piece;
use milepost_core::delivery::retry::{Attempts, Identity};
use milepost_core::delivery::sink::{FailureKind, Sink as _, SinkError};
use milepost_core::encode::Insert;
use milepost_core::error_chain;
use milepost_core::screened::{ErasedSnapshot, NotScreened, Screened};

/// Age above which the list of erased drivers is read again before an attempt.
const LIST_READ_AGAIN: Duration = Duration::from_secs(5);

/// Whether to retry after a failure that is not permanent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Retry until it succeeds. Each reason is logged, at most once a minute.
    UntilDone,
    /// Do not retry: the caller retries at its own interval, and reports why it waits.
    Never,
}

/// Returns a new identity for a batch's tokens. `number` is unique in this process.
#[must_use]
pub fn fresh_identity(number: u64) -> Identity {
    Identity { incarnation: fastrand::u64(..), number }
}

/// Row counts of one insert.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Rows inserted.
    pub rows: u64,
    /// Rows left out because their driver is erased.
    pub erased: u64,
}

/// Why rows were not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error(transparent)]
    Insert(#[from] SinkError),
    #[error("the list of erased drivers cannot be read, so nothing is inserted")]
    List(#[from] Error),
    #[error(transparent)]
    NotScreened(#[from] NotScreened),
    #[error(
        "a proxy in between refused a row of {bytes} bytes: raise its limit (nginx: client_max_body_size) to 8 MiB \
         or more"
    )]
    RowTooLarge {
        bytes: usize,
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
}

impl WriteError {
    fn kind(&self) -> FailureKind {
        match self {
            Self::Insert(error) => error.kind,
            Self::List(error) if error.may_succeed_on_retry() => FailureKind::Transient,
            Self::NotScreened(NotScreened::Unread | NotScreened::TooOld(_)) => {
                FailureKind::Transient
            }
            Self::List(_)
            | Self::NotScreened(NotScreened::UnknownColumns)
            | Self::RowTooLarge { .. } => FailureKind::Permanent,
        }
    }
}

/// Writes inserts, one at a time.
pub struct Writer {
    timeout: Duration,
    retry: Retry,
    list: ErasedSnapshot,
    /// Size in bytes of the smallest piece that a proxy refused as too large; `None` if none was.
    refused_bytes: Option<usize>,
    retries: Retries,
}

impl Writer {
    /// Creates a writer. `timeout`: time limit of one attempt.
    pub fn new(timeout: Duration, retry: Retry) -> Self {
        Self {
            timeout,
            retry,
            list: ErasedSnapshot::default(),
            refused_bytes: None,
            retries: Retries::new(),
        }
    }

    /// Writes all rows of `insert`. `identity` is unique to these rows. After an error some of the
    /// rows may have been written.
    pub async fn write(
        &mut self,
        clickhouse: &ClickHouse,
        insert: &Insert,
        identity: Identity,
    ) -> Result<Written, WriteError> {
        let (mut attempts, mut written) = (Attempts::new(identity), Written::default());
        let mut pieces = VecDeque::from([Piece { insert: 0, rows: 0..insert.rows }]);
        while let Some(piece) = pieces.front() {
            let part = insert.part(piece.rows.clone()).ok_or(NotScreened::UnknownColumns)?;
            let (rows, bytes) = (part.rows, part.body.len());
            if rows > 1 && self.refused_bytes.is_some_and(|refused| bytes >= refused) {
                halve(&mut pieces);
                continue;
            }
            match self.attempt(clickhouse, part, &attempts, piece).await {
                Ok(screened) => {
                    attempts.succeeded();
                    written.rows += screened.rows as u64;
                    written.erased += screened.left_out() as u64;
                    pieces.pop_front();
                }
                Err(WriteError::Insert(error)) if error.kind == FailureKind::TooLarge => {
                    if rows == 1 {
                        return Err(WriteError::RowTooLarge { bytes, source: error.source });
                    }
                    self.record_refused_size(rows, bytes, &error);
                    halve(&mut pieces);
                }
                Err(error) => self.wait_before_retry(error, &mut attempts, rows).await?,
            }
        }
        Ok(written)
    }

    /// Leaves out the rows of erased drivers, and makes one attempt to insert the others.
    async fn attempt(
        &mut self,
        clickhouse: &ClickHouse,
        part: Insert,
        attempts: &Attempts,
        piece: &Piece,
    ) -> Result<Screened, WriteError> {
        if self.list.age(Instant::now()).is_none_or(|age| age >= LIST_READ_AGAIN) {
            self.list = clickhouse.erased().await?;
        }
        let screened = self.list.screen(part, Instant::now())?;
        if screened.rows > 0 {
            let mut attempt = attempts.next(piece, self.timeout);
            attempt.token = screened.token(attempt.token);
            clickhouse.insert(&screened, &attempt).await?;
        }
        Ok(screened)
    }

    /// Records the size that was refused as too large. Logs the first refusal.
    fn record_refused_size(&mut self, rows: usize, bytes: usize, error: &SinkError) {
        if self.refused_bytes.is_none() {
            warn!(
                rows,
                bytes,
                error = %error_chain(error),
                "a proxy in between refused an insert of this size, which is now split; raise the proxy's limit to \
                 8 MiB or more"
            );
        }
        self.refused_bytes = Some(self.refused_bytes.map_or(bytes, |refused| refused.min(bytes)));
    }

    /// Waits until the next attempt is due. Returns the error if it is permanent, or if retries are
    /// off.
    async fn wait_before_retry(
        &mut self,
        error: WriteError,
        attempts: &mut Attempts,
        rows: usize,
    ) -> Result<(), WriteError> {
        let kind = error.kind();
        attempts.failed(kind);
        if kind == FailureKind::Permanent || self.retry == Retry::Never {
            return Err(error);
        }
        let (failures, why) = (attempts.failures, error_chain(&error));
        let (delay, is_logged) = self.retries.next(failures, &why);
        if is_logged {
            warn!(rows, failures, retry_in = ?delay, error = why, "insert failed");
        }
        sleep(delay).await;
        Ok(())
    }
}

/// Replaces the front piece by its halves.
fn halve(pieces: &mut VecDeque<Piece>) {
    let Some(Piece { insert, rows }) = pieces.pop_front() else { return };
    let middle = rows.start + rows.len() / 2;
    pieces.push_front(Piece { insert, rows: middle..rows.end });
    pieces.push_front(Piece { insert, rows: rows.start..middle });
}
