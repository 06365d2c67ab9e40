//! Takes closed batches, makes them durable, says so.
//!
//! Guarantee: a batch is reported as settled only after every one of its inserts succeeded, or its file is in the
//! spool; else it is retried for ever: never dropped, never changed. A definite failure is retried under the same
//! deduplication token; after an end that may or may not have been committed, under a fresh one (see
//! [`Insert::token`]). The server sits behind [`Sink`], so that tests can script one.
//!
//! With a spool, a batch whose attempt failed goes there, and those that follow go there unasked until the replay
//! gets through again. A failure that only a person can mend is not spooled: nothing more is acknowledged, and the
//! consuming stops by itself. QoS 0 cannot be stopped, so that it is spooled even then.

use std::error::Error as StdError;
use std::fmt::Write as _;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{info, warn};

use crate::batch::Batch;
use crate::encode::{self, Insert};
use crate::health::Health;
use crate::lane::Fate;
use crate::metrics::Metrics;
use crate::position::Qos;
use crate::spool::{Entry, Spool};

/// First delay before a retry; doubles up to [`RETRY_DELAY_MAX`], halved at random.
const RETRY_DELAY_MIN: Duration = Duration::from_millis(100);
/// Longest delay before a retry.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(5);
/// The timeout doubles with every attempt that ran into it, up to here.
const TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// Transient failures in a row after which this process calls itself not ready.
pub const FAILURES_UNREADY: u32 = 3;
/// A spool that refused is asked again after this long.
const STORE_AGAIN: Duration = Duration::from_secs(1);

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

/// The attempts at one insert so far: what the next one looks like.
#[derive(Debug, Clone)]
pub struct Tries {
    /// In a row.
    pub failures: u32,
    /// May or may not have been committed.
    pub ambiguous_ends: u32,
    timeout: Duration,
}

impl Tries {
    /// None yet in this process.
    #[must_use]
    pub fn new(timeout: Duration, ambiguous_ends: u32) -> Self {
        Self { failures: 0, ambiguous_ends, timeout }
    }

    /// The next one.
    #[must_use]
    pub fn next(&self, insert: &Insert) -> Attempt {
        Attempt { token: insert.token(self.ambiguous_ends), timeout: self.timeout }
    }

    /// It failed; the next one should wait this long.
    pub fn failed(&mut self, kind: FailureKind) -> Duration {
        self.failures = self.failures.saturating_add(1);
        match kind {
            FailureKind::Transient | FailureKind::Permanent => {}
            FailureKind::Ambiguous => self.ambiguous_ends = self.ambiguous_ends.saturating_add(1),
            FailureKind::TimedOut => {
                self.ambiguous_ends = self.ambiguous_ends.saturating_add(1);
                self.timeout = (self.timeout * 2).min(TIMEOUT_MAX);
            }
        }
        retry_delay(self.failures)
    }
}

/// How long to wait after so many failures in a row, at least one.
#[must_use]
pub fn retry_delay(failures: u32) -> Duration {
    let doubled = RETRY_DELAY_MIN.saturating_mul(1 << (failures - 1).min(10));
    doubled.min(RETRY_DELAY_MAX).mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// What a lane asks for.
#[derive(Debug)]
pub enum Work {
    /// Insert it; a slot is free.
    Insert(Batch),
    /// Put it into the spool; insert it if the spool refuses.
    Spool(Batch),
    /// Save what is being inserted, too, and go on inserting it.
    SaveUnderWay,
}

/// The fate of a batch.
#[derive(Debug)]
pub struct Settled {
    /// [`Batch::id`].
    pub batch: u64,
    /// Where its rows are.
    pub fate: Fate,
    /// With [`Fate::Spooled`]: to be [released](Spool::release) when the lane knows.
    pub entry: Option<Entry>,
}

/// Whether the tables are there: rows inserted before a view exists never reach it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// Nobody has answered yet.
    Unknown,
    /// They are not, or the login is refused: a person must act.
    Refused,
    /// They are.
    Open,
}

/// How an attempt ended.
enum Attempted {
    Inserted,
    Failed(SinkError),
    /// Not known, and no longer asked: the batch is in the spool.
    LeftToSpool,
}

impl From<Result<(), SinkError>> for Attempted {
    fn from(result: Result<(), SinkError>) -> Self {
        result.map_or_else(Self::Failed, |()| Self::Inserted)
    }
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
    /// Where batches go meanwhile, if there is one.
    pub spool: Option<Arc<Spool>>,
    /// Whether anything may be inserted yet.
    pub gate: watch::Receiver<Gate>,
    /// Observations.
    pub metrics: Arc<Metrics>,
    /// Troubles.
    pub health: Arc<Health>,
}

impl<S: Sink> Inserter<S> {
    /// Inserts until `work` is closed and all are settled. The lane bounds how many are under way.
    pub async fn run(self, mut work: mpsc::Receiver<Work>, settled: mpsc::Sender<Settled>) {
        let this = Arc::new(Shared { inserter: self, settled, stopped: AtomicBool::new(false) });
        let save = watch::Sender::new(());
        let mut under_way = JoinSet::new();
        loop {
            tokio::select! {
                work = work.recv() => match work {
                    // Each with an ear of its own from here on: a wish that follows at once is meant for it, too.
                    Some(Work::Insert(batch)) => {
                        drop(under_way.spawn(Arc::clone(&this).settle(batch, false, save.subscribe())));
                    }
                    Some(Work::Spool(batch)) => {
                        drop(under_way.spawn(Arc::clone(&this).settle(batch, true, save.subscribe())));
                    }
                    Some(Work::SaveUnderWay) => save.send_replace(()),
                    None => break,
                },
                Some(done) = under_way.join_next() => done.expect("inserts neither panic nor are cancelled"),
            }
        }
        while let Some(done) = under_way.join_next().await {
            done.expect("inserts neither panic nor are cancelled");
        }
    }
}

/// What the tasks of a lane's inserter share.
struct Shared<S> {
    inserter: Inserter<S>,
    settled: mpsc::Sender<Settled>,
    /// The last failure was one that only a person can mend.
    stopped: AtomicBool,
}

/// A batch in the inserter's hands.
struct Held {
    id: u64,
    inserts: Arc<Vec<Insert>>,
    positions: u64,
    rows: usize,
    opened_at: Option<std::time::Instant>,
    /// Some of it will be acknowledged, so that not acknowledging it stops the broker.
    at_least_once: bool,
    /// It came for the spool, and without a slot.
    to_spool: bool,
    /// Its file, if it has one.
    entry: Option<Entry>,
    /// The lane knows that it is durable.
    told_durable: bool,
    /// When the spool last did not take it.
    refused_at: Option<Instant>,
}

impl Held {
    fn new(batch: Batch, to_spool: bool, database: &str) -> Self {
        let at_least_once = batch.positions.iter().any(|position| position.qos == Qos::AtLeastOnce)
            || batch.rejects.iter().any(|reject| reject.qos == Qos::AtLeastOnce);
        Self {
            id: batch.id,
            positions: batch.positions.len() as u64,
            rows: batch.rows(),
            opened_at: batch.opened_at,
            at_least_once,
            to_spool,
            inserts: Arc::new(encode::encode(batch, database)),
            entry: None,
            told_durable: false,
            refused_at: None,
        }
    }
}

impl<S: Sink> Shared<S> {
    async fn settle(self: Arc<Self>, batch: Batch, to_spool: bool, mut save: watch::Receiver<()>) {
        let mut held = Held::new(batch, to_spool, &self.inserter.database);
        let spool_goes_first = self.inserter.spool.as_ref().is_some_and(|spool| spool.goes_first());
        let is_open = *self.inserter.gate.borrow() == Gate::Open;
        if (to_spool || spool_goes_first || !is_open) && self.store(&mut held, 0).await {
            return self.tell(&mut held, Fate::Spooled).await;
        }
        for index in 0..held.inserts.len() {
            if !self.insert(&mut held, index, &mut save).await {
                return self.tell(&mut held, Fate::Spooled).await;
            }
        }
        if let (Some(spool), Some(entry)) = (&self.inserter.spool, &held.entry) {
            spool.remove(entry);
        }
        self.tell(&mut held, Fate::Inserted).await;
    }

    /// Returns when the rows are in ClickHouse; `false`: the batch is the spool's instead.
    async fn insert(&self, held: &mut Held, index: usize, save: &mut watch::Receiver<()>) -> bool {
        let mut tries = Tries::new(self.inserter.timeout, 0);
        loop {
            let began = Instant::now();
            let error = match self.attempt(held, index, &tries, save).await {
                Attempted::Inserted => {
                    self.succeeded(held, tries.failures, began.elapsed());
                    return true;
                }
                Attempted::LeftToSpool => return false,
                Attempted::Failed(error) => error,
            };
            let delay = tries.failed(error.kind);
            self.failed(held, index, &error, tries.failures, delay);
            if self.leave_to_spool(held, error.kind, tries.ambiguous_ends).await {
                return false;
            }
            sleep(delay).await;
        }
    }

    /// One attempt; the batch is saved meanwhile if the lane asks for it.
    async fn attempt(
        &self,
        held: &mut Held,
        index: usize,
        tries: &Tries,
        save: &mut watch::Receiver<()>,
    ) -> Attempted {
        let inserts = Arc::clone(&held.inserts);
        let attempt = tries.next(&inserts[index]);
        let mut gate = self.inserter.gate.clone();
        let mut insert = pin!(async {
            let _ = gate.wait_for(|gate| *gate == Gate::Open).await;
            self.inserter.sink.insert(&inserts[index], &attempt).await
        });
        loop {
            let Some(spool) = self.inserter.spool.as_ref().filter(|_| held.entry.is_none()) else {
                return insert.await.into();
            };
            tokio::select! {
                result = &mut insert => return result.into(),
                () = save_wanted(save, held.refused_at) => {
                    if !self.store(held, tries.ambiguous_ends).await {
                        continue;
                    }
                    if held.to_spool {
                        // It takes no slot, so it must not go on beside those that do.
                        held.entry = held.entry.map(|entry| spool.ended_ambiguously(&entry));
                        return Attempted::LeftToSpool;
                    }
                    self.tell(held, Fate::Saved).await;
                }
            }
        }
    }

    /// After a failure: whether the batch is in the spool, so that the replay goes on with it.
    async fn leave_to_spool(&self, held: &mut Held, kind: FailureKind, ambiguous_ends: u32) -> bool {
        let Some(spool) = &self.inserter.spool else { return false };
        if let Some(entry) = &mut held.entry {
            if matches!(kind, FailureKind::Ambiguous | FailureKind::TimedOut) {
                *entry = spool.ended_ambiguously(entry);
            }
            return true;
        }
        self.store(held, ambiguous_ends).await
    }

    /// Puts the batch on disk; `false`: there is no spool, it has no room, or a person must act first.
    async fn store(&self, held: &mut Held, ambiguous_ends: u32) -> bool {
        let Some(spool) = &self.inserter.spool else { return false };
        held.refused_at = Some(Instant::now());
        let a_person_must_act =
            self.stopped.load(Ordering::Relaxed) || *self.inserter.gate.borrow() == Gate::Refused;
        if held.at_least_once && a_person_must_act {
            return false;
        }
        let (spool, inserts, positions) = (Arc::clone(spool), Arc::clone(&held.inserts), held.positions);
        let stored = spawn_blocking(move || spool.store(&inserts, positions, ambiguous_ends)).await;
        match stored.expect("storing neither panics nor is cancelled") {
            Ok(entry) => {
                if self.inserter.health.fine(SPOOL_PART) {
                    info!(lane = self.inserter.lane, "the spool takes batches again");
                }
                held.entry = Some(entry);
                true
            }
            Err(error) => {
                let why = chain(&error);
                self.inserter.metrics.spool_refused();
                if self.inserter.health.trouble(SPOOL_PART, why.clone()) {
                    warn!(lane = self.inserter.lane, batch = held.id, error = %why, "the spool takes no batch: what comes is not acknowledged until it does, or ClickHouse does");
                }
                false
            }
        }
    }

    fn succeeded(&self, held: &Held, failures: u32, took: Duration) {
        let Inserter { lane, metrics, health, spool, .. } = &self.inserter;
        self.stopped.store(false, Ordering::Relaxed);
        if let Some(spool) = spool {
            spool.insert_succeeded();
            health.fine(SPOOL_PART); // not needed now; the next need will tell
        }
        metrics.inserted(took);
        if failures > 0 {
            info!(lane, batch = held.id, failures, "insert succeeded after failures");
        }
        health.fine(&self.part(held.id));
    }

    fn failed(&self, held: &Held, index: usize, error: &SinkError, failures: u32, delay: Duration) {
        let Inserter { lane, metrics, health, spool, .. } = &self.inserter;
        let permanent = error.kind == FailureKind::Permanent;
        self.stopped.store(permanent, Ordering::Relaxed);
        if let Some(spool) = spool {
            spool.insert_failed(permanent);
        }
        metrics.insert_failed(error.kind.name());
        let cause = chain(error);
        warn!(lane, batch = held.id, rows = held.inserts[index].rows, failures, retry_in = ?delay, error = %cause, "insert failed");
        if permanent || failures >= FAILURES_UNREADY {
            health.trouble(&self.part(held.id), cause);
        }
    }

    async fn tell(&self, held: &mut Held, fate: Fate) {
        if !std::mem::replace(&mut held.told_durable, true) {
            let age = |at| Instant::now().into_std().duration_since(at);
            self.inserter.metrics.settled(held.rows, held.opened_at.map_or(Duration::ZERO, age));
        }
        let entry = held.entry.filter(|_| fate == Fate::Spooled);
        self.inserter.health.fine(&self.part(held.id));
        // A lane that is gone has no use for the answer: its process is ending.
        let _ = self.settled.send(Settled { batch: held.id, fate, entry }).await;
    }

    /// Each batch has a trouble of its own: another one's success does not mend it.
    fn part(&self, batch: u64) -> String {
        format!("lane {} batch {batch}", self.inserter.lane)
    }
}

/// The spool's name in `/readyz`.
const SPOOL_PART: &str = "spool";

/// Returns when the lane wants what is under way to be saved; after a refusal, when it is time to ask again.
async fn save_wanted(save: &mut watch::Receiver<()>, refused_at: Option<Instant>) {
    if let Some(refused_at) = refused_at {
        return sleep_until(refused_at + STORE_AGAIN).await;
    }
    if save.changed().await.is_err() {
        std::future::pending::<()>().await; // nobody asks any more
    }
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
