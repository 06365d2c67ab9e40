//! The destination of inserts, and the kinds of failure. The destination is a trait, so that tests
//! can replace ClickHouse with a scripted server.

use std::error::Error as StdError;
use std::fmt::Write as _;
use std::future::Future;
use std::time::Duration;

use crate::screened::Screened;

/// The destination of inserts.
pub trait Sink: Send + Sync + 'static {
    /// Makes one attempt. Returns `Ok` only if the server confirmed that the rows are durable.
    fn insert(
        &self,
        insert: &Screened,
        attempt: &Attempt,
    ) -> impl Future<Output = Result<(), SinkError>> + Send;
}

/// One attempt to insert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Deduplication token. One token never stands for different rows. After an attempt that may
    /// have committed, the next attempt has a new token.
    pub token: String,
    /// The attempt ends as [`FailureKind::TimedOut`] after this long.
    pub timeout: Duration,
}

/// The kind of a failed attempt, which decides the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The rows were not committed; a retry may succeed.
    Transient,
    /// The rows may be committed: the connection broke, or the response is not from ClickHouse.
    Ambiguous,
    /// The rows may be committed: the insert took longer than the timeout.
    TimedOut,
    /// The rows were not committed; an operator must fix the table, the grant or the login first.
    Permanent,
    /// The rows were not committed: ClickHouse, or a proxy, refused an insert of this size. A
    /// smaller insert may succeed.
    TooLarge,
}

impl FailureKind {
    /// Returns the label of the metric.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Ambiguous | Self::TimedOut => "ambiguous",
            Self::Permanent => "permanent",
            Self::TooLarge => "too_large",
        }
    }
}

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
#[error("insert failed ({})", kind.name())]
pub struct SinkError {
    pub kind: FailureKind,
    #[source]
    pub source: Box<dyn StdError + Send + Sync>,
}

/// Returns an error with all its causes, on one line.
#[must_use]
pub fn error_chain(error: &dyn StdError) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        // An error often repeats the text of its cause: print that text once.
        if !line.contains(&text) {
            let _ = write!(line, ": {text}");
        }
        cause = error.source();
    }
    line.replace('\n', " ")
}
