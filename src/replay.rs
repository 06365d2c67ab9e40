//! Takes the spool's batches to ClickHouse, oldest first, while new ones go straight there.
//!
//! Guarantee: a file is removed only when every insert in it succeeded; an attempt that may have been committed is
//! counted in its name before the next one, so that the token rule of `insert.rs` holds across restarts.
//!
//! While nothing gets through, the oldest batch is tried again and again, and another one now and then. A batch that
//! fails while others get through is itself at fault: it is put aside for a while, for longer each time, so that it
//! does not stand in their way. So is one that cannot be read. A damaged file is set aside for good; one of a newer
//! format is left for a newer milepost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{info, warn};

use crate::encode::Insert;
use crate::health::Health;
use crate::insert::{FAILURES_UNREADY, FailureKind, Gate, Sink, SinkError, Tries, chain, retry_delay};
use crate::metrics::Metrics;
use crate::spool::{Entry, LoadError, Spool};

/// How long a batch at fault is put aside the first time; doubles up to [`ASIDE_MAX`].
const ASIDE_MIN: Duration = Duration::from_secs(1);
/// Longest time: what is mended is noticed within it.
const ASIDE_MAX: Duration = Duration::from_secs(30);
/// Of so many failures in a row, one is another batch's.
const TRY_ANOTHER_EVERY: u32 = 5;
/// Of so many turns, one is that of the oldest batch, even if it was at fault before.
const TURNS_OF_FRESH: u32 = 8;
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
    /// What was tried with the batches that failed, by sequence.
    tried: BTreeMap<u64, Tried>,
    /// Of a newer format, by sequence.
    newer: BTreeSet<u64>,
    /// In a row, of any batch, while nothing gets through.
    failures: u32,
    /// In a row, of batches that were put aside.
    asides: u32,
    /// Batches tried.
    turns: u32,
    /// Batches since the spool was last empty.
    replayed: u64,
}

#[derive(Debug)]
struct Tried {
    tries: Tries,
    /// Inserts of it that are in ClickHouse.
    done: usize,
    /// [`Spool::successes`] before it failed first, or when it was last found at fault.
    successes: u64,
    asides: u32,
    not_before: Instant,
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
        Self {
            sink,
            spool,
            timeout,
            metrics,
            health,
            tried: BTreeMap::new(),
            newer: BTreeSet::new(),
            failures: 0,
            asides: 0,
            turns: 0,
            replayed: 0,
        }
    }

    /// Replays, from when the tables are there until it is time to leave; what is under way then is finished.
    pub async fn run(mut self, mut gate: watch::Receiver<Gate>, mut leave: watch::Receiver<bool>) {
        let mut delay = Duration::ZERO;
        loop {
            let ready = async {
                let _ = gate.wait_for(|gate| *gate == Gate::Open).await;
                sleep(delay).await;
                self.next().await
            };
            let entry = tokio::select! {
                _ = leave.wait_for(|leave| *leave) => return,
                entry = ready => entry,
            };
            delay = self.replay(entry).await;
        }
    }

    /// Replays until nothing is left that this binary can replay.
    pub async fn drain(&mut self) {
        while self.spool.oldest(|sequence| self.newer.contains(&sequence)).is_some() {
            let entry = self.next().await;
            let delay = self.replay(entry).await;
            sleep(delay).await;
        }
    }

    /// The oldest batch that is not put aside; waits for one.
    async fn next(&self) -> Entry {
        loop {
            let now = Instant::now();
            let is_aside = |sequence: u64| {
                let aside = self.tried.get(&sequence).is_some_and(|tried| tried.not_before > now);
                aside || self.newer.contains(&sequence)
            };
            let was_aside = |sequence: u64| self.tried.get(&sequence).is_some_and(|tried| tried.asides > 0);
            // Those that were never at fault come before those whose time is over, or many of these would take every
            // turn; now and then it is theirs, or ever new ones would.
            let fresh_only = !self.turns.is_multiple_of(TURNS_OF_FRESH);
            let first = self
                .spool
                .oldest(|sequence| is_aside(sequence) || fresh_only && was_aside(sequence))
                .or_else(|| self.spool.oldest(is_aside));
            let other = first
                .filter(|_| self.failures > 0 && self.failures.is_multiple_of(TRY_ANOTHER_EVERY))
                .and_then(|first| {
                    self.spool.oldest(|sequence| is_aside(sequence) || sequence == first.sequence)
                });
            if let Some(entry) = other.or(first) {
                return entry;
            }
            let aside_until = self.tried.values().map(|tried| tried.not_before).min();
            tokio::select! {
                () = self.spool.released() => {}
                () = sleep_until(aside_until.unwrap_or(now)), if aside_until.is_some() => {}
            }
        }
    }

    /// Tries one batch; the next try should wait this long.
    async fn replay(&mut self, entry: Entry) -> Duration {
        self.turns = self.turns.wrapping_add(1);
        let spool = Arc::clone(&self.spool);
        let loaded = spawn_blocking(move || spool.load(&entry)).await;
        let delay = match loaded.expect("loading neither panics nor is cancelled") {
            Ok(inserts) => self.insert_all(entry, &inserts).await,
            Err(LoadError::Damaged(why)) => {
                self.spool.set_aside(&entry, &why);
                self.tried.remove(&entry.sequence);
                Duration::ZERO
            }
            Err(error @ LoadError::Newer(_)) => {
                self.newer.insert(entry.sequence);
                self.tried.remove(&entry.sequence);
                warn!(sequence = entry.sequence, "{error}");
                self.health.trouble(PART, error.to_string());
                Duration::ZERO
            }
            Err(error @ LoadError::Io(_)) => {
                let why = chain(&error);
                if self.health.trouble(PART, why.clone()) {
                    warn!(sequence = entry.sequence, error = %why, "replay waits");
                }
                self.put_aside(&entry);
                Duration::ZERO
            }
        };
        if self.tried.is_empty() && self.newer.is_empty() {
            self.health.fine(PART);
        }
        delay
    }

    async fn insert_all(&mut self, entry: Entry, inserts: &[Insert]) -> Duration {
        let successes = self.spool.successes();
        let (mut tries, done) = match self.tried.get(&entry.sequence) {
            Some(tried) => (tried.tries.clone(), tried.done),
            None => (Tries::new(self.timeout, entry.ambiguous_ends), 0),
        };
        for (index, insert) in inserts.iter().enumerate().skip(done) {
            let began = Instant::now();
            if let Err(error) = self.sink.insert(insert, &tries.next(insert)).await {
                tries.failed(error.kind);
                let tried = self.tried(&entry, successes);
                (tried.tries, tried.done) = (tries, index);
                return self.failed(&entry, &error);
            }
            self.metrics.inserted(began.elapsed());
            self.spool.insert_succeeded();
            self.failures = 0;
            self.asides = 0;
        }
        self.spool.remove(&entry);
        self.metrics.replayed(entry.positions);
        self.tried.remove(&entry.sequence);
        self.replayed += 1;
        if self.spool.oldest(|_| false).is_none() {
            info!(batches = std::mem::take(&mut self.replayed), "the spool is empty again");
        }
        Duration::ZERO
    }

    fn tried(&mut self, entry: &Entry, successes: u64) -> &mut Tried {
        let fresh = || Tried {
            tries: Tries::new(self.timeout, entry.ambiguous_ends),
            done: 0,
            successes,
            asides: 0,
            not_before: Instant::now(),
        };
        self.tried.entry(entry.sequence).or_insert_with(fresh)
    }

    /// For longer each time.
    fn put_aside(&mut self, entry: &Entry) {
        let successes = self.spool.successes();
        let tried = self.tried(entry, successes);
        let aside = ASIDE_MIN.saturating_mul(1 << tried.asides.min(10)).min(ASIDE_MAX);
        tried.asides += 1;
        tried.successes = successes;
        tried.not_before = Instant::now() + aside;
    }

    fn failed(&mut self, entry: &Entry, error: &SinkError) -> Duration {
        self.failures = self.failures.saturating_add(1);
        // A server that refuses one batch after the other is not to be asked faster for it.
        let delay = retry_delay(self.failures);
        self.metrics.insert_failed(error.kind.name());
        let now = self.spool.successes();
        let tried = self.tried(entry, now);
        let (failures, others_get_through) = (tried.tries.failures, now > tried.successes);
        let cause = chain(error);
        warn!(sequence = entry.sequence, failures, error = %cause, "replay failed");
        if error.kind == FailureKind::Permanent || failures >= FAILURES_UNREADY {
            self.health.trouble(PART, cause);
        }
        match error.kind {
            FailureKind::Ambiguous | FailureKind::TimedOut => drop(self.spool.ended_ambiguously(entry)),
            FailureKind::Transient | FailureKind::Permanent => {}
        }
        // One that takes its whole timeout each time is not asked about the server's health again and again.
        if others_get_through || matches!(error.kind, FailureKind::Permanent | FailureKind::TimedOut) {
            self.put_aside(entry);
        }
        if !others_get_through {
            return delay;
        }
        // The next batch's turn; but many at fault in a row mean a server that takes little.
        self.failures = 0;
        self.asides = self.asides.saturating_add(1);
        retry_delay(self.asides)
    }
}
