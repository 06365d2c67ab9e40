//! Writes the rows of all commands except `run`, `drain` and `spool replay`: import, rejects
//! replay, fences, events.
//!
//! Guarantee: each piece of an insert is [screened](milepost_core::screened) by the list of erased
//! drivers, which is read again while the insert is retried. If a proxy refuses an insert as too
//! large (HTTP 413), the insert is halved until it passes. Later inserts of a refused size are
//! halved before they are sent. [`Attempts`] decides the token of each retry.
//!
//! `run`, `drain` and `spool replay` insert through the executor instead, and delivery's policy
//! decides when to retry.

use std::collections::VecDeque;
use std::error::Error as StdError;
use std::time::Duration;

use tokio::time::sleep;
use tracing::warn;

use super::client::{ClickHouse, Error};
use super::retries::Retries;
use super::rows_body::now_with_suspends;
use milepost_core::delivery::events::Piece;
use milepost_core::delivery::retry::{Attempts, Identity};
use milepost_core::delivery::sink::{FailureKind, Sink as _, SinkError};
use milepost_core::encode::Insert;
use milepost_core::error_chain;
use milepost_core::screened::{ErasedSnapshot, NotScreened, Screened};

/// Age above which the list of erased drivers is read again before an attempt.
const LIST_REREAD_AGE: Duration = Duration::from_secs(5);

/// Whether to retry after a failure that is not permanent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Retry until the insert succeeds. A refused login is retried too if the password comes from a
    /// file. Each reason is logged at most once a minute.
    UntilDone,
    /// Do not retry: the caller retries at an interval of its own, and reports the reason.
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
        "a proxy in between refused a row of {bytes} bytes: raise its limit (nginx: \
         client_max_body_size) to 8 MiB or more"
    )]
    RowTooLarge {
        bytes: usize,
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
}

impl WriteError {
    /// Returns the kind of a failed attempt, which decides the token of the next one. An attempt
    /// that sent no row leaves the token unchanged.
    fn kind(&self) -> FailureKind {
        match self {
            Self::Insert(error) => error.kind,
            Self::List(_) | Self::NotScreened(_) | Self::RowTooLarge { .. } => {
                FailureKind::Transient
            }
        }
    }

    /// Returns whether a retry may succeed. `false`: an operator must fix the fault first.
    fn may_succeed_later(&self, clickhouse: &ClickHouse) -> bool {
        match self {
            Self::Insert(error) => clickhouse.insert_may_succeed_later(error),
            Self::List(error) => clickhouse.may_succeed_later(error),
            Self::NotScreened(NotScreened::Unread | NotScreened::TooOld(_)) => true,
            Self::NotScreened(NotScreened::UnknownColumns) | Self::RowTooLarge { .. } => false,
        }
    }
}

/// Writes inserts, one at a time.
pub struct Writer {
    timeout: Duration,
    retry: Retry,
    /// The list of erased drivers that was last read.
    list: ErasedSnapshot,
    /// Size in bytes of the smallest piece that a proxy refused as too large; `None` if no piece
    /// was refused.
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
                Err(error) => {
                    let is_retried =
                        self.retry == Retry::UntilDone && error.may_succeed_later(clickhouse);
                    attempts.failed(error.kind());
                    if !is_retried {
                        return Err(error);
                    }
                    self.wait_before_retry(&error, attempts.failures, rows).await;
                }
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
        let now = now_with_suspends();
        if self.list.age(now).is_none_or(|age| age >= LIST_REREAD_AGE) {
            self.list = clickhouse.erased().await?;
        }
        let screened = self.list.screen(part, now_with_suspends())?;
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
                "a proxy in between refused an insert of this size, which is now split; raise the \
                 proxy's limit to 8 MiB or more"
            );
        }
        self.refused_bytes = Some(self.refused_bytes.map_or(bytes, |refused| refused.min(bytes)));
    }

    /// Waits until the next attempt is due. Logs each reason at most once a minute.
    async fn wait_before_retry(&mut self, error: &WriteError, failures: u32, rows: usize) {
        let why = error_chain(error);
        let (delay, is_logged) = self.retries.next(failures, &why);
        if is_logged {
            warn!(rows, failures, retry_in = ?delay, error = why, "insert failed");
        }
        sleep(delay).await;
    }
}

/// Replaces the front piece with its halves.
fn halve(pieces: &mut VecDeque<Piece>) {
    let Some(Piece { insert, rows }) = pieces.pop_front() else { return };
    let middle = rows.start + rows.len() / 2;
    pieces.push_front(Piece { insert, rows: middle..rows.end });
    pieces.push_front(Piece { insert, rows: rows.start..middle });
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;
    use milepost_config::Config;

    /// Status, header and body of the answer to a wrong password.
    const REFUSED: (&str, &str, &str) = (
        "403 Forbidden",
        "X-ClickHouse-Exception-Code: 516\r\n",
        "Code: 516. DB::Exception: Authentication failed",
    );

    /// The answer to the query for the list of erased drivers if no driver is erased.
    const EMPTY_ERASED_LIST: &str = "\t20\t2\t0\n";

    /// Answers as a server that accepts only the password `new`.
    async fn serve(listener: TcpListener) {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 8192];
            let read = stream.read(&mut request).await.unwrap();
            let request = String::from_utf8_lossy(&request[..read]).to_lowercase();
            let (status, header, body) = if !request.contains("x-clickhouse-key: new") {
                REFUSED
            } else if request.contains("insert_deduplication_token") {
                ("200 OK", "X-ClickHouse-Summary: {\"written_rows\":\"1\"}\r\n", "")
            } else {
                ("200 OK", "X-ClickHouse-Summary: {\"result_rows\":\"1\"}\r\n", EMPTY_ERASED_LIST)
            };
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status}\r\n{header}Content-Length: {length}\r\nConnection: close"
            );
            stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await.unwrap();
        }
    }

    /// Returns a client with this password setting, and one row to insert.
    async fn client(password: &str) -> (ClickHouse, Insert) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(serve(listener));
        let config = Config::parse(&format!("[clickhouse]\nurl = '{url}'\n{password}")).unwrap();
        let statement = "INSERT INTO fleet.positions (driver_id) FORMAT RowBinary".to_owned();
        let insert = Insert { statement, body: Bytes::from_static(b"\x01a"), rows: 1 };
        (ClickHouse::new(&config.clickhouse).unwrap(), insert)
    }

    fn writer(retry: Retry) -> Writer {
        Writer::new(Duration::from_secs(5), retry)
    }

    #[tokio::test]
    async fn write_waits_until_the_password_file_is_updated() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "old").unwrap();
        let (clickhouse, insert) =
            client(&format!("password_file = '{}'", file.path().display())).await;
        let mut retrying = writer(Retry::UntilDone);
        let mut writing = Box::pin(retrying.write(&clickhouse, &insert, fresh_identity(0)));
        assert!(
            timeout(Duration::from_secs(1), &mut writing).await.is_err(),
            "the write must wait for the new password"
        );
        std::fs::write(file.path(), "new").unwrap();
        let written = timeout(Duration::from_secs(20), writing).await.unwrap().unwrap();
        assert_eq!(written, Written { rows: 1, erased: 0 });
    }

    #[tokio::test]
    async fn refused_login_without_a_password_file_ends_the_write() {
        let (clickhouse, insert) = client("password = 'old'").await;
        let mut retrying = writer(Retry::UntilDone);
        let writing = retrying.write(&clickhouse, &insert, fresh_identity(0));
        let error = timeout(Duration::from_secs(20), writing).await.unwrap().unwrap_err();
        assert!(error_chain(&error).contains("Code: 516"), "{}", error_chain(&error));
    }
}
