//! Runs the consumer model with the real executor and the real spool, under paused time, against a
//! sink that simulates every fault of a server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use milepost::executor::Executor;
use milepost_core::delivery::SpoolInventory;
use milepost_core::delivery::events::{BatchId, DeliveryCommand, Outcome, Report};
use milepost_core::delivery::sink::{Attempt, FailureKind, Sink, SinkError};
use milepost_core::encode::Insert;
use milepost_core::erased::Erased;
use milepost_core::screened::{ErasedSnapshot, Screened};
use milepost_spool as spool;
use milepost_spool::{Kind, OpenError, Spool};
use proptest::prelude::*;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};

use crate::model::schedule::{plain, play, setup, step};
use crate::model::server::{Disk, Mood, is_too_large};
use crate::model::{Backend, World};
use crate::saved::with_saved_seeds;

/// Size in bytes of a position of driver "d" in RowBinary.
const ROW_BYTES: usize = 2 + 8 + 4 + 4 + 4 + 2 + 2 + 4 + 2 + 8 + 1;
/// Offset of the sequence number in a row, in bytes.
const SEQ_AT: usize = 2 + 8;
/// Size limit of the spool, in bytes: small enough to be reached.
const SPOOL_BYTES_MAX: u64 = 20_000;

/// The real executor and the real spool, with a scripted server.
pub struct RealBackend {
    runtime: Runtime,
    server: Arc<Scripted>,
    folder: TempDir,
    commands: Option<mpsc::Sender<DeliveryCommand>>,
    reports: Option<mpsc::Receiver<Report>>,
    /// Reports received and not yet returned by `report`.
    received: Vec<Report>,
    /// Batches with an attempt in flight. Other operations, such as writing a row to quarantine,
    /// are not counted.
    attempts: BTreeSet<BatchId>,
    erased: watch::Sender<ErasedSnapshot>,
}

#[derive(Debug)]
struct Scripted {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    mood: Mood,
    rng: fastrand::Rng,
    stored: BTreeSet<u32>,
    has_spool: bool,
    /// Rows refused as too large while no spool was configured: milepost drops them, and the model
    /// excuses this loss.
    lost_without_spool: BTreeSet<u32>,
    rejects: u64,
    tokens: BTreeMap<String, Vec<u8>>,
    /// Inserts in progress, by number.
    in_flight: BTreeSet<u64>,
    /// Number of the newest insert; 0 before the first one.
    last_insert: u64,
    /// Number of the first insert after the last erasure; 0 if nothing was erased.
    first_after_erasure: u64,
}

impl Scripted {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

fn is_positions(insert: &Insert) -> bool {
    insert.statement.contains(".positions ")
}

/// Returns the sequence numbers of the positions in an insert.
pub fn seqs(insert: &Insert) -> impl Iterator<Item = u32> {
    let seq = |row: &[u8]| u32::from_le_bytes(row[SEQ_AT..SEQ_AT + 4].try_into().unwrap());
    insert.body.chunks(ROW_BYTES).map(seq)
}

/// Returns the number of rejects that an insert represents: the sum of the counts in the last 8
/// bytes of each row.
fn reject_count(insert: &Insert) -> u64 {
    (0..insert.rows)
        .map(|row| {
            let row = insert.part(row..row + 1).unwrap().body;
            u64::from_le_bytes(row[row.len() - 8..].try_into().unwrap())
        })
        .sum()
}

impl State {
    fn commit(&mut self, insert: &Insert, token: &str) {
        // A server ignores an insert whose token it knows.
        if !self.tokens.contains_key(token) {
            if is_positions(insert) {
                self.stored.extend(seqs(insert));
            } else {
                self.rejects += reject_count(insert);
            }
        }
        self.remember_token(insert, token);
    }

    fn remember_token(&mut self, insert: &Insert, token: &str) {
        let rows = [insert.statement.as_bytes(), &insert.body].concat();
        let before = self.tokens.entry(token.to_owned()).or_insert_with(|| rows.clone());
        assert_eq!(*before, rows, "a token was reused for other rows");
    }
}

impl Sink for Scripted {
    /// A server continues an insert that it has received, even if the sending process is killed or
    /// has stopped waiting.
    async fn insert(&self, insert: &Screened, attempt: &Attempt) -> Result<(), SinkError> {
        let (server, insert, attempt) =
            (Self { state: Arc::clone(&self.state) }, Insert::clone(insert), attempt.clone());
        let task = tokio::spawn(async move {
            let number = {
                let mut state = server.state();
                state.last_insert += 1;
                let number = state.last_insert;
                state.in_flight.insert(number);
                number
            };
            let result = server.respond(&insert, &attempt).await;
            server.state().in_flight.remove(&number);
            result
        });
        task.await.expect("the task neither panics nor is cancelled")
    }
}

impl Scripted {
    async fn respond(&self, insert: &Insert, attempt: &Attempt) -> Result<(), SinkError> {
        let (mood, chance) = {
            let mut state = self.state();
            (state.mood, state.rng.u32(..8))
        };
        let latency = match mood {
            Mood::Slow => Duration::from_secs(2),
            Mood::InsertsTake(seconds) => Duration::from_secs(seconds),
            Mood::Fine
            | Mood::Refusing
            | Mood::Hanging
            | Mood::Dying
            | Mood::Flaky
            | Mood::NoTable
            | Mood::Narrow => Duration::from_millis(20 + u64::from(chance) * 7),
        };
        tokio::time::sleep(latency).await;
        let failed = |kind| Err(SinkError { kind, source: "scripted".into() });
        let hang = || tokio::time::sleep(attempt.timeout);
        let token = attempt.token.as_str();
        let positions = || is_positions(insert).then(|| seqs(insert)).into_iter().flatten();
        match (mood, chance) {
            (Mood::Narrow, _) if is_too_large(insert.rows, positions()) => {
                let mut state = self.state();
                let lost_without_spool = (insert.rows == 1 && !state.has_spool).then(positions);
                state.lost_without_spool.extend(lost_without_spool.into_iter().flatten());
                failed(FailureKind::TooLarge)
            }
            (Mood::Fine | Mood::Slow | Mood::Narrow | Mood::InsertsTake(_), _)
            | (Mood::Flaky, 0..3) => {
                self.state().commit(insert, token);
                Ok(())
            }
            (Mood::Refusing, _) | (Mood::Flaky, 3) => failed(FailureKind::Transient),
            (Mood::NoTable, _) | (Mood::Flaky, 4) => failed(FailureKind::Permanent),
            (Mood::Hanging, _) | (Mood::Flaky, 5) => {
                hang().await;
                failed(FailureKind::TimedOut)
            }
            (Mood::Dying, 0..4) => {
                self.state().remember_token(insert, token);
                failed(FailureKind::Ambiguous)
            }
            (Mood::Dying, _) | (Mood::Flaky, 6) => {
                self.state().commit(insert, token);
                failed(FailureKind::Ambiguous)
            }
            (Mood::Flaky, _) => {
                self.state().commit(insert, token);
                hang().await;
                failed(FailureKind::TimedOut)
            }
        }
    }
}

impl RealBackend {
    /// Creates the backend, and returns it with its current time.
    pub fn new(seed: u64) -> (Self, Instant) {
        let runtime = runtime();
        let state = State {
            mood: Mood::Fine,
            rng: fastrand::Rng::with_seed(seed),
            stored: BTreeSet::new(),
            has_spool: false,
            lost_without_spool: BTreeSet::new(),
            rejects: 0,
            tokens: BTreeMap::new(),
            in_flight: BTreeSet::new(),
            last_insert: 0,
            first_after_erasure: 0,
        };
        // In memory if possible, so that the model does not wait for a disk.
        let folder = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap();
        let began = runtime.block_on(async { tokio::time::Instant::now().into_std() });
        let server = Arc::new(Scripted { state: Arc::new(Mutex::new(state)) });
        let real = Self {
            runtime,
            server,
            folder,
            commands: None,
            reports: None,
            received: Vec::new(),
            attempts: BTreeSet::new(),
            erased: watch::channel(ErasedSnapshot::new(Arc::default(), Instant::now())).0,
        };
        (real, began)
    }

    fn open(&self) -> (Spool, SpoolInventory) {
        loop {
            match Spool::open(self.folder.path(), SPOOL_BYTES_MAX) {
                Ok(opened) => return opened,
                // The lock may still be held for a moment. Another test may have forked a child,
                // which inherits the open lock file and closes it at its exec. Or the last write of
                // the previous process still runs.
                Err(OpenError::InUse(_)) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Returns the inserts in the spool's files of this kind, as a new process would read them.
    fn spooled(&self, kind: Kind) -> Vec<Insert> {
        let dir = self.folder.path();
        let files = spool::list(dir).unwrap().into_iter().filter(|file| file.kind == kind);
        // A file may have been removed since the directory was listed.
        files
            .filter_map(|file| std::fs::read(dir.join(file.name)).ok())
            .flat_map(|bytes| spool::format::read(&bytes.into()).unwrap())
            .collect()
    }

    fn is_in_file(&self, kind: Kind, seq: u32) -> bool {
        let inserts = self.spooled(kind);
        inserts
            .iter()
            .filter(|insert| is_positions(insert))
            .flat_map(seqs)
            .any(|other| other == seq)
    }

    fn record_report(&mut self, report: Report) {
        if matches!(
            report.outcome,
            Outcome::Inserted { .. } | Outcome::LeftOut { .. } | Outcome::Failed { .. }
        ) {
            self.attempts.remove(&report.batch);
        }
        self.received.push(report);
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

impl Backend for RealBackend {
    fn restart(&mut self, spool: bool) -> SpoolInventory {
        (self.commands, self.reports) = (None, None);
        self.attempts.clear();
        self.server.state().has_spool = spool;
        self.received.clear();
        // Let the former executor and its tasks end, because they hold the spool's lock.
        self.runtime.block_on(async {
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
        });
        let (spool, inventory) = if spool {
            let (spool, inventory) = self.open();
            (Some(Arc::new(spool)), inventory)
        } else {
            (None, SpoolInventory::default())
        };
        let ((commands, command_queue), (report_sender, reports)) =
            (mpsc::channel(100), mpsc::channel(100));
        let sink = Arc::clone(&self.server);
        let executor = Executor {
            sink,
            spool,
            database: "fleet".to_owned(),
            erased: self.erased.subscribe(),
            reports: report_sender,
        };
        self.runtime.spawn(executor.run(command_queue));
        (self.commands, self.reports) = (Some(commands), Some(reports));
        inventory
    }

    fn set_mood(&mut self, mood: Mood) {
        self.server.state().mood = mood;
    }

    fn erase(&mut self, erased: Arc<Erased>) {
        self.erased.send_replace(ErasedSnapshot::new(erased, Instant::now()));
        let mut state = self.server.state();
        state.first_after_erasure = state.last_insert + 1;
    }

    /// Does nothing: a real disk has no faults on demand.
    fn set_disk(&mut self, _: Disk, _: Instant) {}

    fn execute(&mut self, command: DeliveryCommand, _: Instant) {
        if let DeliveryCommand::Attempt { batch, .. } = &command {
            self.attempts.insert(*batch);
        }
        let commands = self.commands.as_ref().expect("restart was called");
        commands.try_send(command).expect("the channel has room for every command");
    }

    fn report(&mut self, _: Instant) -> Option<Report> {
        while let Ok(report) = self.reports.as_mut().expect("restart was called").try_recv() {
            self.record_report(report);
        }
        (!self.received.is_empty()).then(|| self.received.remove(0))
    }

    fn advance_time(&mut self, until: Instant) -> Instant {
        let reports = self.reports.as_mut().expect("restart was called");
        let (report, now) = self.runtime.block_on(async {
            let report = tokio::time::timeout_at(until.into(), reports.recv()).await.ok().flatten();
            (report, tokio::time::Instant::now().into_std())
        });
        if let Some(report) = report {
            self.record_report(report);
        }
        now
    }

    fn is_silent(&self) -> bool {
        self.server.state().mood == Mood::Hanging
    }

    fn is_durable(&self, seq: u32) -> bool {
        self.is_stored(seq) || self.is_in_file(Kind::Batch, seq)
    }

    fn is_stored(&self, seq: u32) -> bool {
        // A row that was lost because there is no spool counts as stored: the model excuses it.
        let is_settled = |state: MutexGuard<'_, State>| {
            state.stored.contains(&seq) || state.lost_without_spool.contains(&seq)
        };
        is_settled(self.server.state()) || self.is_in_file(Kind::Row, seq)
    }

    fn rejects(&self) -> u64 {
        self.server.state().rejects
    }

    fn files(&self) -> usize {
        spool::list(self.folder.path())
            .unwrap()
            .iter()
            .filter(|file| file.kind == Kind::Batch)
            .count()
    }

    fn attempts(&self) -> usize {
        self.attempts.len()
    }

    fn inserts_begun_before_erasure(&self) -> usize {
        let state = self.server.state();
        state.in_flight.range(..state.first_after_erasure).count()
    }
}

proptest! {
    #![proptest_config(with_saved_seeds(100))]

    #[test]
    fn consumer_model_holds_with_real_executor_and_spool(
        setup in setup(),
        seed: u64,
        steps in prop::collection::vec(step(), 0..80),
    ) {
        let (real, began) = RealBackend::new(seed);
        let mut world = World::new(setup, real, began);
        for step in steps {
            play(&mut world, step);
        }
        world.recover();
        let missing = world.missing();
        prop_assert!(missing.is_empty(), "lost: {missing:?}");
    }
}

/// The server commits the insert of a killed process even after the driver was erased. No insert
/// that begins after the erasure has rows of the driver.
#[test]
fn only_an_earlier_insert_of_a_killed_process_may_still_commit() {
    let (real, began) = RealBackend::new(1);
    let mut world = World::new(plain(), real, began);
    world.server.set_mood(Mood::InsertsTake(30));
    // The third row is of the driver that is erased below.
    (0..3).for_each(|_| world.publish(1));
    world.wait(Duration::from_secs(2));
    world.kill();
    world.erase();
    assert_eq!(world.server.inserts_begun_before_erasure(), 1, "the server still runs the insert");
    assert!(!world.server.is_stored(2));
    world.wait(Duration::from_secs(40));
    assert_eq!(world.server.inserts_begun_before_erasure(), 0);
    // `milepost erase` waits for such an insert, and hides its rows afterwards.
    assert!(world.server.is_stored(2), "the insert committed after the erasure");
    world.recover();
    assert_eq!(world.missing(), Vec::<u32>::new());
}
