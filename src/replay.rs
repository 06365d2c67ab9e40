//! Takes the spool's batches to ClickHouse, oldest first, while new ones go straight there.
//!
//! Guarantee: a file is removed only when every insert in it succeeded; an attempt that may have been committed is
//! counted in its name before the next one, so that the token rule of `insert.rs` holds across restarts. A batch
//! that only a person can mend, or whose file cannot be read now, does not stand in the way of the others; a
//! damaged one is set aside.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::encode::Insert;
use crate::health::Health;
use crate::insert::{FAILURES_UNREADY, FailureKind, Sink, SinkError, Tries, chain};
use crate::metrics::Metrics;
use crate::spool::{Entry, LoadError, Spool};

/// A file that cannot be read now is tried again after this long.
const READ_AGAIN: Duration = Duration::from_secs(1);
/// The replay's name in `/readyz`.
const PART: &str = "spool replay";

/// See the module's documentation.
#[derive(Debug)]
pub struct Replayer<S> {
    sink: Arc<S>,
    spool: Arc<Spool>,
    timeout: Duration,
    metrics: Arc<Metrics>,
    health: Arc<Health>,
    /// The batch before the next one: `None` starts with the oldest.
    after: Option<u64>,
    /// What was tried with the batch of this sequence.
    current: Option<Current>,
    /// Batches since the spool was last empty.
    replayed: u64,
}

#[derive(Debug)]
struct Current {
    sequence: u64,
    tries: Tries,
    /// Inserts of it that are in ClickHouse.
    done: usize,
}

impl<S: Sink> Replayer<S> {
    /// `timeout` is the first one of an insert.
    #[must_use]
    pub fn new(
        sink: Arc<S>,
        spool: Arc<Spool>,
        timeout: Duration,
        metrics: Arc<Metrics>,
        health: Arc<Health>,
    ) -> Self {
        Self { sink, spool, timeout, metrics, health, after: None, current: None, replayed: 0 }
    }

    /// Replays, from when the tables are there until it is time to leave; what is under way then is finished.
    pub async fn run(mut self, mut migrated: watch::Receiver<bool>, mut leave: watch::Receiver<bool>) {
        let mut delay = Duration::ZERO;
        loop {
            let ready = async {
                let _ = migrated.wait_for(|migrated| *migrated).await;
                sleep(delay).await;
                self.spool.oldest_after(self.after).await
            };
            let entry = tokio::select! {
                _ = leave.wait_for(|leave| *leave) => return,
                entry = ready => entry,
            };
            delay = self.replay(entry).await;
        }
    }

    /// Replays until nothing is left.
    pub async fn drain(&mut self) {
        while !self.spool.has_replayed_all() {
            let entry = self.spool.oldest_after(self.after).await;
            let delay = self.replay(entry).await;
            sleep(delay).await;
        }
    }

    /// Tries one batch; the next try should wait this long.
    async fn replay(&mut self, entry: Entry) -> Duration {
        let spool = Arc::clone(&self.spool);
        let loaded = spawn_blocking(move || spool.load(&entry)).await;
        match loaded.expect("loading neither panics nor is cancelled") {
            Ok(inserts) => self.insert_all(entry, &inserts).await,
            Err(LoadError::Damaged(why)) => {
                self.spool.set_aside(&entry, &why);
                Duration::ZERO
            }
            Err(error @ LoadError::Io(_)) => {
                let why = chain(&error);
                if self.health.trouble(PART, why.clone()) {
                    warn!(sequence = entry.sequence, error = %why, "replay waits");
                }
                self.after = Some(entry.sequence);
                READ_AGAIN
            }
        }
    }

    async fn insert_all(&mut self, entry: Entry, inserts: &[Insert]) -> Duration {
        let mut current = match self.current.take() {
            Some(current) if current.sequence == entry.sequence => current,
            other => {
                let mut tries = Tries::new(self.timeout, entry.ambiguous_ends);
                // A server that refuses one batch after the other is not to be asked faster for it.
                tries.failures = other.map_or(0, |other| other.tries.failures);
                Current { sequence: entry.sequence, tries, done: 0 }
            }
        };
        while let Some(insert) = inserts.get(current.done) {
            let began = Instant::now();
            if let Err(error) = self.sink.insert(insert, &current.tries.next(insert)).await {
                let delay = current.tries.failed(error.kind);
                self.failed(&entry, &error, current.tries.failures, delay);
                self.current = Some(current);
                return delay;
            }
            self.metrics.inserted(began.elapsed());
            self.spool.clickhouse_is_away(false);
            current.done += 1;
        }
        self.spool.remove(&entry);
        self.metrics.replayed(entry.positions);
        self.health.fine(PART);
        self.after = None;
        self.replayed += 1;
        if self.spool.has_replayed_all() {
            info!(batches = std::mem::take(&mut self.replayed), "the spool is empty again");
        }
        Duration::ZERO
    }

    fn failed(&mut self, entry: &Entry, error: &SinkError, failures: u32, delay: Duration) {
        self.metrics.insert_failed(error.kind.name());
        let cause = chain(error);
        warn!(sequence = entry.sequence, failures, retry_in = ?delay, error = %cause, "replay failed");
        if error.kind == FailureKind::Permanent || failures >= FAILURES_UNREADY {
            self.health.trouble(PART, cause);
        }
        match error.kind {
            FailureKind::Transient => {}
            FailureKind::Ambiguous | FailureKind::TimedOut => drop(self.spool.ended_ambiguously(entry)),
            FailureKind::Permanent => self.after = Some(entry.sequence),
        }
    }
}
