//! Where inserts go, and what can become of one. The server sits behind a trait, so that tests can script it.

use std::error::Error as StdError;
use std::fmt::Write as _;
use std::future::Future;
use std::time::Duration;

use crate::pipeline::encode::Insert;

/// Takes inserts.
pub trait Sink: Send + Sync + 'static {
    /// One attempt. `Ok` only when the rows are durable.
    fn insert(
        &self,
        insert: &Insert,
        attempt: &Attempt,
    ) -> impl Future<Output = Result<(), SinkError>> + Send;
}

/// One attempt to insert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Deduplication token: never used for other rows, nor again after an end that may have been a commit.
    pub token: String,
    /// Give up, ambiguously, after this long.
    pub timeout: Duration,
}

/// What to do about an attempt that did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// Not committed; may go better next time.
    Transient,
    /// May have been committed: the connection was lost, or the answer is not ClickHouse's.
    Ambiguous,
    /// May have been committed: it took longer than the timeout.
    TimedOut,
    /// Not committed, and not before somebody mends the table, the grant or the login.
    Permanent,
    /// Something on the way takes no insert of this size; smaller ones may pass.
    TooLarge,
}

impl FailureKind {
    /// The metric's label.
    #[must_use]
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Ambiguous | Self::TimedOut => "ambiguous",
            Self::Permanent => "permanent",
            Self::TooLarge => "too_large",
        }
    }
}

/// A failed attempt.
#[derive(Debug, thiserror::Error)]
#[error("insert failed ({})", kind.name())]
pub struct SinkError {
    /// What to do about it.
    pub kind: FailureKind,
    #[source]
    pub source: Box<dyn StdError + Send + Sync>,
}

/// An error with all its causes, on one line.
#[must_use]
pub(crate) fn error_chain(error: &dyn StdError) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        // Wrappers often repeat what they wrap.
        if !line.contains(&text) {
            let _ = write!(line, ": {text}");
        }
        cause = error.source();
    }
    line.replace('\n', " ")
}
