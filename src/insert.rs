//! Takes closed batches, makes them durable, says so.
//!
//! Guarantee: a batch is reported as settled only after every one of its inserts succeeded, and it is
//! retried for ever: never dropped, never changed. A definite failure is retried under the same
//! deduplication token; after an end that may or may not have been committed, under a fresh one (see
//! [`Insert::token`]). The server sits behind [`Sink`], so that tests can script one.

use std::error::Error as StdError;
use std::fmt::Write as _;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::batch::Batch;
use crate::encode::{self, Insert};
use crate::health::Health;
use crate::metrics::Metrics;

/// First delay before a retry; doubles up to [`RETRY_DELAY_MAX`], halved at random.
const RETRY_DELAY_MIN: Duration = Duration::from_millis(100);
/// Longest delay before a retry.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(5);
/// The timeout doubles with every attempt that ran into it, up to here.
const TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// Transient failures in a row after which this process calls itself not ready.
const FAILURES_UNREADY: u32 = 3;

/// Where inserts go.
pub trait Sink: Send + Sync + 'static {
    /// One attempt. `Ok` only when the rows are durable.
    fn insert(
        &self,
        insert: &Insert,
        attempt: &Attempt,
    ) -> impl Future<Output = Result<(), SinkError>> + Send;
}

/// How one attempt is made.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// Deduplication token.
    pub token: String,
    /// Give up, ambiguously, after this long.
    pub timeout: Duration,
}

/// What became of an attempt that did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// Not committed; may go better next time.
    Transient,
    /// May have been committed: the connection was lost.
    Ambiguous,
    /// May have been committed: it took longer than the timeout.
    TimedOut,
    /// Not committed, and not before somebody mends the table, the grant or the login.
    Permanent,
}

impl FailureKind {
    /// The metric's label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Ambiguous | Self::TimedOut => "ambiguous",
            Self::Permanent => "permanent",
        }
    }
}

/// A failed attempt.
#[derive(Debug, thiserror::Error)]
#[error("insert failed ({})", kind.name())]
pub struct SinkError {
    /// What to do about it.
    pub kind: FailureKind,
    /// Why.
    #[source]
    pub source: Box<dyn StdError + Send + Sync>,
}

/// A durable batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    /// [`Batch::id`].
    pub batch: u64,
}

/// One lane's inserts.
#[derive(Debug)]
pub struct Inserter<S> {
    /// Where to.
    pub sink: Arc<S>,
    /// Which lane, for logs and `/readyz`.
    pub lane: usize,
    /// Database of the tables.
    pub database: String,
    /// First timeout of an insert.
    pub timeout: Duration,
    /// Observations.
    pub metrics: Arc<Metrics>,
    /// Troubles.
    pub health: Arc<Health>,
}

impl<S: Sink> Inserter<S> {
    /// Inserts until `batches` is closed and all are settled. The lane bounds how many are under way.
    pub async fn run(self, mut batches: mpsc::Receiver<Batch>, settled: mpsc::Sender<Settled>) {
        let this = Arc::new(self);
        let mut under_way = JoinSet::new();
        loop {
            tokio::select! {
                batch = batches.recv() => match batch {
                    Some(batch) => drop(under_way.spawn(Arc::clone(&this).settle(batch, settled.clone()))),
                    None => break,
                },
                Some(done) = under_way.join_next() => done.expect("inserts neither panic nor are cancelled"),
            }
        }
        while let Some(done) = under_way.join_next().await {
            done.expect("inserts neither panic nor are cancelled");
        }
    }

    async fn settle(self: Arc<Self>, batch: Batch, settled: mpsc::Sender<Settled>) {
        let Batch { id, opened_at, .. } = batch;
        let rows = batch.rows();
        for insert in encode::encode(batch, &self.database) {
            self.insert(id, insert).await;
        }
        self.health.fine(&self.part(id));
        let since_first_row =
            opened_at.map_or(Duration::ZERO, |at| Instant::now().into_std().duration_since(at));
        self.metrics.settled(rows, since_first_row);
        // A lane that is gone has no use for the answer: its process is ending.
        let _ = settled.send(Settled { batch: id }).await;
    }

    /// Returns when the rows are durable.
    async fn insert(&self, batch: u64, insert: Insert) {
        let mut failures = 0_u32;
        let mut ambiguous_ends = 0;
        let mut timeout = self.timeout;
        loop {
            let attempt = Attempt { token: insert.token(ambiguous_ends), timeout };
            let began = Instant::now();
            let Err(error) = self.sink.insert(&insert, &attempt).await else {
                self.metrics.inserted(began.elapsed());
                if failures > 0 {
                    info!(lane = self.lane, batch, failures, "insert succeeded after failures");
                }
                return;
            };
            failures = failures.saturating_add(1);
            self.metrics.insert_failed(error.kind.name());
            match error.kind {
                FailureKind::Transient | FailureKind::Permanent => {}
                FailureKind::Ambiguous => ambiguous_ends += 1,
                FailureKind::TimedOut => {
                    ambiguous_ends += 1;
                    timeout = (timeout * 2).min(TIMEOUT_MAX);
                }
            }
            let delay = retry_delay(failures);
            self.failed(batch, &insert, &error, failures, delay);
            tokio::time::sleep(delay).await;
        }
    }

    fn failed(&self, batch: u64, insert: &Insert, error: &SinkError, failures: u32, delay: Duration) {
        let cause = chain(error);
        warn!(lane = self.lane, batch, rows = insert.rows, failures, retry_in = ?delay, error = %cause, "insert failed");
        if error.kind == FailureKind::Permanent || failures >= FAILURES_UNREADY {
            self.health.trouble(&self.part(batch), cause);
        }
    }

    /// Each batch has a trouble of its own: another one's success does not mend it.
    fn part(&self, batch: u64) -> String {
        format!("lane {} batch {batch}", self.lane)
    }
}

fn retry_delay(failures: u32) -> Duration {
    let doubled = RETRY_DELAY_MIN.saturating_mul(1 << (failures - 1).min(10));
    doubled.min(RETRY_DELAY_MAX).mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// An error with all its causes, on one line.
#[must_use]
pub fn chain(error: &dyn StdError) -> String {
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
