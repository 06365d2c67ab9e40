//! Executes delivery's commands: encodes batches, sends inserts, writes and reads spool files, and
//! reports each outcome.
//!
//! The executor never blocks: every attempt and every disk operation is a task of its own. The
//! executor makes no decisions. Delivery's policy decides the next step of a batch;
//! [`prepare`](milepost_core::delivery::prepare) decides which rows an attempt sends, by the newest
//! list of erased drivers.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinHandle, JoinSet, spawn_blocking};

use milepost_clickhouse::now_with_suspends;
use milepost_core::delivery::events::{BatchId, DeliveryCommand, Loaded, Outcome, Piece, Report};
use milepost_core::delivery::prepare::{Prepared, outcome_instead_of_quarantine, prepare};
use milepost_core::delivery::sink::{Attempt, Sink};
use milepost_core::encode::{self, Insert};
use milepost_core::erased::Erased;
use milepost_core::error_chain;
use milepost_core::screened::ErasedSnapshot;
use milepost_spool::{LoadError, Spool};

/// The executor's connections to ClickHouse, the spool, and the event loop.
#[derive(Debug)]
pub struct Executor<S> {
    pub sink: Arc<S>,
    pub spool: Option<Arc<Spool>>,
    pub database: String,
    /// The list of erased drivers, whose rows are left out of every insert.
    pub erased: watch::Receiver<ErasedSnapshot>,
    pub reports: mpsc::Sender<Report>,
}

/// The encoded inserts of a batch, kept until delivery sends [`DeliveryCommand::Forget`].
struct EncodedBatch {
    inserts: Arc<Vec<Insert>>,
    positions: u64,
    /// The list of erased drivers that the rows were checked against. While the batch holds an
    /// older list, it may still write rows of a newly erased driver to a file. So `Member::erased`
    /// reports the newest list only when no `Arc` of an older list is left. Dropping the batch
    /// drops its `Arc`, even if a task panics.
    _erased: Arc<Erased>,
    attempt: Option<AbortHandle>,
}

impl<S: Sink> Executor<S> {
    /// Runs until `commands` is closed. Tasks that are still running are cancelled then.
    pub async fn run(self, mut commands: mpsc::Receiver<DeliveryCommand>) {
        let mut state = State { executor: self, batches: HashMap::new(), tasks: JoinSet::new() };
        loop {
            tokio::select! {
                command = commands.recv() => match command {
                    Some(command) => state.execute(command),
                    None => return,
                },
                Some(ended) = state.tasks.join_next() => state.task_ended(ended),
            }
        }
    }
}

struct State<S> {
    executor: Executor<S>,
    batches: HashMap<BatchId, EncodedBatch>,
    tasks: JoinSet<Done>,
}

/// The result of a task.
enum Done {
    /// The task has reported to the event loop.
    Reported,
    /// The task has read a file. The file's inserts are added to `batches` before the report is
    /// sent, because the next command may need them.
    Loaded(BatchId, Result<Vec<Insert>, LoadError>),
}

impl<S: Sink> State<S> {
    fn execute(&mut self, command: DeliveryCommand) {
        match command {
            DeliveryCommand::Encode(batch) => {
                let (id, positions, erased) =
                    (batch.id, batch.positions.len() as u64, Arc::clone(&batch.erased));
                self.add_batch(
                    id,
                    encode::encode(batch, &self.executor.database),
                    positions,
                    erased,
                );
            }
            DeliveryCommand::Attempt { batch, piece, attempt } => {
                self.start_attempt(batch, &piece, attempt)
            }
            DeliveryCommand::Abort(batch) => {
                if let Some(attempt) =
                    self.batches.get(&batch).and_then(|encoded| encoded.attempt.as_ref())
                {
                    attempt.abort();
                }
            }
            DeliveryCommand::Store(batch) => self.store(batch),
            DeliveryCommand::Load(batch, file) => {
                let spool = self.spool();
                let load = blocking(move || spool.load(&file));
                self.tasks.spawn(async move { Done::Loaded(batch, load.await) });
            }
            DeliveryCommand::Remove(batch, file) => {
                let spool = self.spool();
                self.on_disk(batch, move || {
                    if let Err(error) = spool.remove(&file) {
                        tracing::warn!(
                            %file, %error,
                            "the file of a replayed batch cannot be removed"
                        );
                    }
                    Outcome::Removed
                });
            }
            DeliveryCommand::Quarantine(batch, file) => {
                let spool = self.spool();
                self.on_disk(batch, move || {
                    if let Err(error) = spool.quarantine(&file) {
                        tracing::warn!(%file, %error, "a damaged file cannot be renamed");
                    }
                    Outcome::Quarantined
                });
            }
            DeliveryCommand::QuarantineRow(batch, piece) => self.quarantine_row(batch, &piece),
            DeliveryCommand::Forget(batch) => drop(self.batches.remove(&batch)),
        }
    }

    fn add_batch(
        &mut self,
        batch: BatchId,
        inserts: Vec<Insert>,
        positions: u64,
        erased: Arc<Erased>,
    ) {
        self.batches.insert(
            batch,
            EncodedBatch { inserts: Arc::new(inserts), positions, _erased: erased, attempt: None },
        );
    }

    /// Returns the rows of a piece; `None` if the batch is unknown, or its insert cannot be split.
    fn piece(&self, batch: BatchId, Piece { insert, rows }: &Piece) -> Option<Insert> {
        self.batches.get(&batch)?.inserts.get(*insert)?.part(rows.clone())
    }

    /// Starts one attempt to insert a piece, without the rows of erased drivers.
    fn start_attempt(&mut self, batch: BatchId, piece: &Piece, attempt: Attempt) {
        let began = Instant::now();
        let rows = self.piece(batch, piece);
        let prepared = prepare(rows, attempt, &self.executor.erased.borrow(), now_with_suspends());
        let (insert, attempt) = match prepared {
            Prepared::Send(insert, attempt) => (insert, attempt),
            Prepared::Report(outcome) => {
                return self.report_when_done(batch, async { outcome });
            }
        };
        let sink = Arc::clone(&self.executor.sink);
        let running = tokio::spawn(async move {
            let erased = insert.left_out() as u64;
            match sink.insert(&insert, &attempt).await {
                Ok(()) => Outcome::Inserted { took: began.elapsed(), erased },
                Err(error) => Outcome::Failed { kind: error.kind, why: error_chain(&error) },
            }
        });
        if let Some(encoded) = self.batches.get_mut(&batch) {
            encoded.attempt = Some(running.abort_handle());
        }
        // The attempt is a task of its own, so that `Abort` can cancel the attempt while this
        // future still reports the outcome.
        let mut running = AbortOnDrop(running);
        self.report_when_done(batch, async move {
            match (&mut running.0).await {
                Ok(outcome) => outcome,
                Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
                Err(_) => Outcome::aborted(),
            }
        });
    }

    /// Writes a batch to a spool file.
    fn store(&mut self, batch: BatchId) {
        let (spool, encoded) = (
            self.spool(),
            self.batches.get(&batch).expect("a batch is encoded before it is stored"),
        );
        let (inserts, positions) = (Arc::clone(&encoded.inserts), encoded.positions);
        self.on_disk(batch, move || match spool.store(&inserts, positions) {
            Ok(file) => Outcome::Stored(file),
            Err(error) => Outcome::Refused(error_chain(&error)),
        });
    }

    /// Writes one row to a file in quarantine, unless the driver of the row is erased.
    fn quarantine_row(&mut self, batch: BatchId, piece: &Piece) {
        let row = self
            .piece(batch, piece)
            .expect("a row is quarantined only after an attempt with the same piece");
        let settled = outcome_instead_of_quarantine(&row, self.executor.erased.borrow().erased());
        if let Some(outcome) = settled {
            return self.report_when_done(batch, async { outcome });
        }
        let spool = self.spool();
        self.on_disk(batch, move || match spool.quarantine_row(&row) {
            Ok(file) => Outcome::RowQuarantined(file),
            Err(error) => Outcome::Refused(error_chain(&error)),
        });
    }

    /// Runs a disk operation on a thread for blocking work, and reports its outcome.
    fn on_disk(&mut self, batch: BatchId, work: impl FnOnce() -> Outcome + Send + 'static) {
        self.report_when_done(batch, blocking(work));
    }

    fn report_when_done(
        &mut self,
        batch: BatchId,
        outcome: impl Future<Output = Outcome> + Send + 'static,
    ) {
        let reports = self.executor.reports.clone();
        self.tasks.spawn(async move {
            let outcome = outcome.await;
            // Sending fails only when the process ends; the broker still holds the messages.
            let _ = reports.send(Report { batch, outcome }).await;
            Done::Reported
        });
    }

    /// Handles the end of a task. If the task has read a file, keeps the file's inserts and reports
    /// the result. Panics if the task panicked.
    fn task_ended(&mut self, ended: Result<Done, tokio::task::JoinError>) {
        match ended.expect("tasks here neither panic nor are cancelled") {
            Done::Reported => {}
            Done::Loaded(batch, loaded) => {
                let (inserts, loaded) = split_loaded(loaded);
                let erased = Arc::clone(self.executor.erased.borrow().erased());
                // A loaded batch is in a file already and is not stored again, so its number of
                // positions is not needed.
                self.add_batch(batch, inserts, 0, erased);
                self.report_when_done(batch, async { Outcome::Loaded(loaded) });
            }
        }
    }

    fn spool(&self) -> Arc<Spool> {
        Arc::clone(self.executor.spool.as_ref().expect("disk commands are only sent with a spool"))
    }
}

/// Cancels a task when its handle is dropped. A plain `JoinHandle` would detach it, and the attempt
/// would outlive its executor.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs disk work on a thread for blocking work, and returns its result.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    spawn_blocking(work).await.expect("disk work neither panics nor is cancelled")
}

/// Splits the result of reading a file into the inserts to keep and the report.
fn split_loaded(loaded: Result<Vec<Insert>, LoadError>) -> (Vec<Insert>, Loaded) {
    match loaded {
        Ok(inserts) => {
            let rows = inserts.iter().map(|insert| insert.rows).collect();
            (inserts, Loaded::Rows(rows))
        }
        Err(LoadError::Damaged(why)) => (Vec::new(), Loaded::Damaged(why.to_string())),
        Err(LoadError::Gone) => (Vec::new(), Loaded::Gone),
        Err(error @ LoadError::Newer(_)) => (Vec::new(), Loaded::Newer(error.to_string())),
        Err(error @ LoadError::Io(_)) => (Vec::new(), Loaded::Unreadable(error_chain(&error))),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use milepost_config::Config;
    use milepost_core::batch::Batch;
    use milepost_core::delivery::sink::SinkError;
    use milepost_core::screened::Screened;
    use milepost_decode::Message;
    use milepost_decode::position::Timestamp;
    use milepost_decode::{Decoded, Decoder};

    /// A sink that accepts every insert and stores nothing.
    struct NullSink;

    impl Sink for NullSink {
        async fn insert(&self, _: &Screened, _: &Attempt) -> Result<(), SinkError> {
            Ok(())
        }
    }

    /// The test's ends of the executor's channels.
    struct ChannelEnds {
        reports: mpsc::Receiver<Report>,
        erased: watch::Sender<ErasedSnapshot>,
    }

    fn snapshot(erased: &[&str]) -> ErasedSnapshot {
        let erased = Erased::new(erased.iter().map(|id| (*id).to_owned()));
        ErasedSnapshot::new(Arc::new(erased), Instant::now())
    }

    fn batch_of_d1() -> Batch {
        let mut decoded = Decoded::default();
        let config = Config::defaults().unwrap();
        let message = Message::new(b"drivers/d1/gps", br#"{"lat":1,"lng":2}"#);
        Decoder::new(&config.sources, config.decode).decode(
            message,
            Timestamp::from_unix_ms(1),
            &mut decoded,
        );
        Batch { positions: decoded.positions, ..Batch::default() }
    }

    fn new_state() -> (State<NullSink>, ChannelEnds) {
        let (report_sender, reports) = mpsc::channel(1);
        let (erased_sender, erased) = watch::channel(snapshot(&[]));
        let (sink, database) = (Arc::new(NullSink), "fleet".to_owned());
        let executor = Executor { sink, spool: None, database, erased, reports: report_sender };
        let state = State { executor, batches: HashMap::new(), tasks: JoinSet::new() };
        (state, ChannelEnds { reports, erased: erased_sender })
    }

    #[tokio::test]
    async fn insert_of_only_erased_drivers_is_not_sent() {
        let (mut state, ChannelEnds { mut reports, erased }) = new_state();
        state.execute(DeliveryCommand::Encode(batch_of_d1()));
        erased.send_replace(snapshot(&["d1"]));
        let attempt = Attempt { token: String::new(), timeout: Duration::from_secs(1) };
        state.execute(DeliveryCommand::Attempt {
            batch: 0,
            piece: Piece { insert: 0, rows: 0..1 },
            attempt,
        });
        let outcome = reports.recv().await.unwrap().outcome;
        assert!(matches!(outcome, Outcome::LeftOut { rows: 1 }), "{outcome:?}");
    }

    /// Guards against reporting a driver as erased while rows of that driver may still go to a
    /// file.
    #[tokio::test]
    async fn batch_holds_its_erased_list_until_it_is_forgotten() {
        let (mut state, ChannelEnds { reports: _reports, erased }) = new_state();
        let old_list = Arc::downgrade(erased.borrow().erased());
        let batch = Batch { erased: Arc::clone(erased.borrow().erased()), ..Batch::default() };
        erased.send_replace(snapshot(&["d1"]));
        state.execute(DeliveryCommand::Encode(batch));
        assert!(old_list.upgrade().is_some(), "a waiting batch may still have rows of d1");
        state.execute(DeliveryCommand::Forget(0));
        assert!(old_list.upgrade().is_none(), "a forgotten batch must release its list");
    }
}
