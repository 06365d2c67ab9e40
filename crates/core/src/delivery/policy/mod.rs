//! The delivery policy: the only module that decides the next step of each batch.
//!
//! Input: batches, reports of the executor, the state of ClickHouse. Output: commands (attempt,
//! store, load, remove). A fresh batch comes from the intake, a replayed batch from the spool. Both
//! pass through the same states, see [`Stage`]. [`Delivery::store_reason`] decides when a batch
//! goes to the spool.
//!
//! Guarantee: a batch is reported as durable only when every piece of the batch was inserted, or
//! the batch's file is fsynced. [`delivery`](super) names the rows that are left out. Every wait
//! has a deadline, or a reason in [`Delivery::unready_reasons`].
//!
//! The policy does no I/O and reads no clock: callers pass `now`, and `src/executor.rs` executes
//! the commands.

mod batch_size;
mod files;
mod outcomes;
mod server;
mod stage;
mod view;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use self::batch_size::BatchSize;
use self::files::Files;
use self::server::Server;
use self::stage::{BatchState, Fresh, Origin, Progress, Stage, pieces};
use super::events::{
    BatchId, DeliveryCommand, DeliveryNotice, DeliveryTotals, Durable, FIRST_LOADED, Outcome,
    Report, ServerStatus, StoreReason, WatcherRequest,
};
use super::retry::{Attempts, Identity};
use crate::batch::Batch;
use crate::delivery::SpoolInventory;
use crate::throttle::{ReasonThrottle, Throttle};

/// Time after which an insert counts as slow. While the process is under pressure (see
/// [`Delivery::set_under_pressure`]), a batch whose insert is slow is also written to the spool.
/// Its messages can then be acknowledged, and the window has room again. While a window is full,
/// the broker queues a limited number of messages, and drops all others.
pub const SLOW_AFTER: Duration = Duration::from_millis(250);
/// Minimum interval between two log lines about the same event. The events are: batches go to the
/// spool, for one reason; inserts fail, with one cause; the spool refuses a batch or a row; a row
/// is too large to insert.
const LOGGED_EVERY: Duration = Duration::from_secs(60);
/// Delay before a batch that the spool refused is stored again, or a batch with a row that is too
/// large, and that may not be dropped, is inserted again.
const STORE_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Interval of [`Delivery::handle_timeout`] while any batch or file exists.
const RECHECK_EVERY: Duration = Duration::from_millis(250);

/// Configuration of the delivery policy.
#[derive(Debug, Clone)]
pub struct DeliveryConfig {
    /// Maximum number of fresh batches that are inserted at the same time: the insert slots.
    pub inserts_in_flight: usize,
    /// `spool.dir` is set.
    pub has_spool: bool,
    /// Without a spool, a row that is too large to insert is dropped. `false`: its batch waits, and
    /// the broker keeps its messages and all later ones, because messages are completed in order.
    pub may_drop_rows: bool,
    /// Timeout of the first insert, and minimum timeout of later inserts.
    pub insert_timeout: Duration,
    /// Time after [`Delivery::leave`] at which uninserted batches go to the spool, if there is a
    /// spool.
    pub store_when_leaving_after: Duration,
    /// Random number of this process, for deduplication tokens.
    pub incarnation: u64,
    /// Seed of the jitter in retry delays.
    pub seed: u64,
}

/// The batches that delivery accepts now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// This many batches: the free insert slots.
    ToInsert(usize),
    /// One batch for the spool, although no insert slot is free.
    ToStore,
    Nothing,
}

/// The delivery policy; see the module's documentation.
#[derive(Debug)]
pub struct Delivery {
    settings: DeliveryConfig,
    server: Server,
    batches: BTreeMap<BatchId, BatchState>,
    files: Files,
    /// Id of the next batch that is loaded from a spool file.
    next_loaded: BatchId,
    /// Batches replayed since the spool was last empty.
    replayed: u64,
    /// Half of a session's window, or of the buffer, is used.
    under_pressure: bool,
    leaving_since: Option<Instant>,
    /// Throttles [`DeliveryNotice::Spooling`], by [`StoreReason`].
    store_log: [Throttle; StoreReason::ALL.len()],
    /// Why the spool last refused a batch or a row; `None` once it may accept again.
    spool_refusal: Option<String>,
    /// Throttles [`DeliveryNotice::SpoolRefuses`].
    refusal_log: Throttle,
    /// Throttles [`DeliveryNotice::InsertFailed`], by cause.
    failure_log: ReasonThrottle,
    /// Throttles [`DeliveryNotice::RowTooLarge`].
    too_large_row_log: Throttle,
    /// A refusal by the spool was logged, and the end of the refusals has not been logged yet.
    is_refusal_logged: bool,
    /// Throttles [`DeliveryNotice::SpoolHangs`].
    disk_log: Throttle,
    /// Upper bound for the size of new batches.
    batch_size: BatchSize,
    /// Bytes of the files in quarantine.
    quarantined_bytes: u64,
    commands: VecDeque<DeliveryCommand>,
    durable: VecDeque<Durable>,
    notices: VecDeque<DeliveryNotice>,
    totals: DeliveryTotals,
    jitter: fastrand::Rng,
}

impl Delivery {
    /// Creates the policy. `inventory`: the files that an earlier process left in the spool.
    #[must_use]
    pub fn new(settings: DeliveryConfig, inventory: SpoolInventory) -> Self {
        let mut files = Files::default();
        inventory.files.into_iter().for_each(|file| files.add(file, None, None));
        Self {
            server: Server::new(settings.insert_timeout),
            batches: BTreeMap::new(),
            next_loaded: FIRST_LOADED,
            replayed: 0,
            under_pressure: false,
            leaving_since: None,
            store_log: [const { Throttle::every(LOGGED_EVERY) }; StoreReason::ALL.len()],
            spool_refusal: None,
            refusal_log: Throttle::every(LOGGED_EVERY),
            failure_log: ReasonThrottle::every(LOGGED_EVERY),
            too_large_row_log: Throttle::every(LOGGED_EVERY),
            is_refusal_logged: false,
            disk_log: Throttle::once(),
            batch_size: BatchSize::default(),
            quarantined_bytes: inventory.quarantined_bytes,
            commands: VecDeque::new(),
            durable: VecDeque::new(),
            notices: VecDeque::new(),
            totals: DeliveryTotals {
                spool_at_start: files.positions(),
                spool_quarantined: inventory.files_quarantined,
                ..DeliveryTotals::default()
            },
            jitter: fastrand::Rng::with_seed(settings.seed),
            files,
            settings,
        }
    }

    /// Returns how many batches the intake should close and pass to [`accept`](Self::accept).
    #[must_use]
    pub fn demand(&self, now: Instant) -> Demand {
        let slots = self.settings.inserts_in_flight;
        let used = self.insert_slots_held();
        if used < slots {
            return Demand::ToInsert(slots - used);
        }
        // Every slot is taken. If an insert is slow under pressure, or the shutdown takes too long,
        // accept one more batch. It goes to the spool, so its messages can be acknowledged before a
        // slot is free.
        if used == slots
            && self.may_store(true, None, now)
            && (self.has_slow_insert_under_pressure(now) || self.stores_because_leaving(now))
        {
            return Demand::ToStore;
        }
        Demand::Nothing
    }

    /// Accepts a batch. Call it only while there is [demand](Self::demand).
    ///
    /// # Panics
    /// There is no demand: a bug in the caller.
    pub fn accept(&mut self, batch: Batch, now: Instant) {
        assert!(
            self.demand(now) != Demand::Nothing,
            "a batch was passed to delivery without demand for it"
        );
        let id = batch.id;
        let rows = [batch.positions.len(), batch.rejects.len()];
        let fresh = Fresh {
            rows: batch.rows(),
            opened_at: batch.opened_at,
            bytes: batch.bytes,
            at_least_once: batch.at_least_once,
            refused_at: None,
            store_reason: None,
            is_reported: false,
        };
        let positions = batch.positions.len() as u64;
        let progress =
            Progress::new(self.new_attempts(id), pieces(rows.into_iter().filter(|rows| *rows > 0)));
        let state =
            BatchState::new(Stage::Waiting { at: now }, Origin::Intake(fresh), positions, progress);
        self.batches.insert(id, state);
        self.commands.push_back(DeliveryCommand::Encode(batch));
        self.step(id, now);
    }

    fn insert_slots_held(&self) -> usize {
        self.fresh().filter(|state| state.holds_insert_slot()).count()
    }

    /// Processes a report of the executor.
    ///
    /// # Panics
    /// The report does not fit the batch's stage: a bug in this process. Continuing would be worse
    /// than stopping: the batch could be acknowledged without being stored, or wait forever.
    pub fn handle_report(&mut self, Report { batch, outcome }: Report, now: Instant) {
        let stage = self.batches.get(&batch).map(|state| state.stage);
        assert!(
            stage.is_some_and(|stage| stage.expects(&outcome)),
            "a report does not fit the batch's stage: {outcome:?}, {stage:?}"
        );
        match outcome {
            Outcome::Inserted { took, erased } => self.inserted(batch, took, erased, now),
            Outcome::LeftOut { rows } => self.left_out(batch, rows, now),
            Outcome::Failed { kind, why } => self.failed(batch, kind, why, now),
            Outcome::UnknownColumns => self.unknown_columns(batch, now),
            Outcome::Stored(file) => self.stored(batch, file, now),
            Outcome::Refused(why) => self.refused(batch, why, now),
            Outcome::Loaded(loaded) => self.loaded(batch, loaded, now),
            Outcome::Removed | Outcome::Quarantined => self.forget(batch),
            Outcome::RowQuarantined(file) => self.row_quarantined(batch, file, now),
        }
        self.step(batch, now);
        if !self.has_batches_to_deliver() {
            self.server.clear_failures();
        }
    }

    /// Processes the result of the last queries that the watcher (`src/app/schema.rs`) sent to
    /// ClickHouse.
    pub fn handle_server_status(&mut self, status: ServerStatus, now: Instant) {
        if status.answers.is_ok() && self.server.is_silent() {
            // ClickHouse answers again after a silence. It may never answer the inserts that were
            // sent before the silence, so cancel these inserts instead of waiting for their
            // timeouts.
            self.files.wake(now);
            for (id, state) in &mut self.batches {
                let is_inserting = state.stage.attempt_since().is_some();
                if is_inserting && !std::mem::replace(&mut state.was_aborted, true) {
                    self.commands.push_back(DeliveryCommand::Abort(*id));
                }
                // Retry at once, without waiting for the end of a delay.
                if let Stage::Waiting { at } | Stage::Storing { attempt_at: at, .. } =
                    &mut state.stage
                {
                    *at = now.min(*at);
                }
            }
        }
        self.server.update(status, now);
    }

    /// Returns which queries the watcher should send, and how soon.
    #[must_use]
    pub fn watcher_request(&self, now: Instant) -> WatcherRequest {
        self.server.watcher_request(now)
    }

    /// Sets whether half of a session's window, or of the buffer, is used.
    pub fn set_under_pressure(&mut self, under_pressure: bool) {
        self.under_pressure = under_pressure;
    }

    /// Starts the shutdown: no further file is replayed.
    pub fn leave(&mut self, now: Instant) {
        self.leaving_since.get_or_insert(now);
    }

    /// Takes the steps of all batches that are due at `now`, and starts the replay of the next
    /// file.
    pub fn handle_timeout(&mut self, now: Instant) {
        let ids: Vec<BatchId> = self.batches.keys().copied().collect();
        ids.into_iter().for_each(|id| self.step(id, now));
        self.replay(now);
        self.batch_size.handle_timeout(now);
        self.log(now);
    }

    /// Returns the next command for the executor.
    pub fn poll_command(&mut self) -> Option<DeliveryCommand> {
        self.commands.pop_front()
    }

    /// Returns the next fresh batch that has become durable.
    pub fn poll_durable(&mut self) -> Option<Durable> {
        self.durable.pop_front()
    }

    /// Returns the next log line.
    pub fn poll_notice(&mut self) -> Option<DeliveryNotice> {
        self.notices.pop_front()
    }

    /// Returns the upper bound for new batches, in bytes; `None` if only the configured size
    /// applies.
    #[must_use]
    pub fn batch_bytes_max(&self) -> Option<usize> {
        self.batch_size.bytes_max()
    }

    /// Returns the capacity that the executor's queue needs. The number of batches is bounded, and
    /// each batch has at most eight outstanding commands.
    #[must_use]
    pub const fn commands_max(inserts_in_flight: usize) -> usize {
        8 * (inserts_in_flight + 1 + disk_operations_max(inserts_in_flight))
    }

    /// Returns why a batch should go to the spool now; `None` if it should not. If several reasons
    /// apply, returns the first reason in the order below, because the log names only one.
    fn store_reason(&self, state: &BatchState, now: Instant) -> Option<StoreReason> {
        let fresh = state.fresh()?;
        if !state.stage.is_in_memory_only()
            || !self.may_store(fresh.at_least_once, fresh.refused_at, now)
        {
            return None;
        }
        if self.stores_because_leaving(now) {
            return Some(StoreReason::Leaving);
        }
        // An attempt in flight may still succeed. It is a reason only if it is slow and the process
        // is under pressure.
        if let Some(since) = state.stage.attempt_since() {
            return (self.under_pressure && now >= since + SLOW_AFTER)
                .then_some(StoreReason::ServerIsSlow);
        }
        if self.insert_slots_held() > self.settings.inserts_in_flight {
            Some(StoreReason::NoSlot)
        } else if !self.server.has_tables() {
            Some(StoreReason::NoTables)
        } else if state.progress.attempts.failures > 0 {
            Some(StoreReason::InsertFailed)
        } else if self.server.is_away(now) && self.files.len() > 0 {
            Some(StoreReason::ServerIsAway)
        } else {
            None
        }
    }

    /// Returns whether the spool may take a batch. `at_least_once`: the batch has QoS 1 messages.
    /// `refused_at`: when the spool last refused this batch.
    ///
    /// While an operator has to fix a fault, a batch with QoS 1 messages is not spooled. Its
    /// messages stay unacknowledged, so the broker soon stops sending, and the operator notices the
    /// fault. A batch that has only QoS 0 messages is spooled, because QoS 0 has no PUBACK to
    /// withhold.
    fn may_store(&self, at_least_once: bool, refused_at: Option<Instant>, now: Instant) -> bool {
        let is_held_back = at_least_once && self.server.needs_operator();
        let was_just_refused = refused_at.is_some_and(|at| now < at + STORE_RETRY_DELAY);
        self.settings.has_spool && !is_held_back && !was_just_refused && self.may_use_disk()
    }

    /// Returns whether another disk operation may start. The number of operations is bounded, so
    /// that they cannot pile up while the disk hangs.
    fn may_use_disk(&self) -> bool {
        let in_progress =
            self.batches.values().filter(|state| state.stage.disk_since().is_some()).count();
        in_progress < disk_operations_max(self.settings.inserts_in_flight)
    }

    /// Takes the next step of a batch, if a step is due: writes the batch to the spool, or starts
    /// an attempt if a slot is free.
    fn step(&mut self, id: BatchId, now: Instant) {
        let Some(state) = self.batches.get(&id) else { return };
        if let Some(reason) = self.store_reason(state, now) {
            if self.store_log[reason as usize].allow(now) {
                self.notices.push_back(DeliveryNotice::Spooling(reason));
            }
            self.store(id, reason, now);
        } else if state.stage.is_attempt_due(now) && self.may_attempt(id) {
            self.attempt(id, now);
        }
    }

    /// Returns whether the batch may be inserted now: the tables are confirmed, and fewer other
    /// fresh batches than slots are being inserted. A replayed file needs no slot, because only one
    /// file is replayed at a time.
    fn may_attempt(&self, id: BatchId) -> bool {
        let is_fresh = |state: &BatchState| state.fresh().is_some();
        let others = self.batches.iter().filter(|(other, state)| **other != id && is_fresh(state));
        let attempts = others.filter(|(_, state)| state.stage.attempt_since().is_some()).count();
        let has_slot = attempts < self.settings.inserts_in_flight
            || !self.batches.get(&id).is_some_and(is_fresh);
        self.server.has_tables() && has_slot
    }

    /// Starts an attempt to insert the next piece.
    fn attempt(&mut self, id: BatchId, now: Instant) {
        let Some(state) = self.batches.get_mut(&id) else { return };
        state.stage = match state.stage {
            Stage::Waiting { .. }
            | Stage::Inserting { .. }
            | Stage::QuarantiningRow { file: None, .. } => Stage::Inserting { since: now },
            Stage::Storing { since: storing_since, .. }
            | Stage::InsertingAndStoring { storing_since, .. } => {
                Stage::InsertingAndStoring { since: now, storing_since }
            }
            Stage::Loading { file, .. }
            | Stage::InsertingStored { file, .. }
            | Stage::QuarantiningRow { file: Some(file), .. } => {
                Stage::InsertingStored { since: now, file }
            }
            Stage::InsertedWhileStoring { .. } | Stage::Removing { .. } => {
                unreachable!("a batch that is in ClickHouse is not inserted again")
            }
        };
        let piece = state
            .progress
            .pieces
            .front()
            .expect("a batch whose pieces are all inserted is not attempted")
            .clone();
        let attempt = state.progress.attempts.next(&piece, self.server.timeout());
        self.server.attempted(now);
        self.commands.push_back(DeliveryCommand::Attempt { batch: id, piece, attempt });
    }

    /// Starts to write the batch to the spool. An attempt that is in flight continues.
    fn store(&mut self, id: BatchId, reason: StoreReason, now: Instant) {
        let Some(state) = self.batches.get_mut(&id) else { return };
        if let Some(fresh) = state.fresh_mut() {
            fresh.store_reason = Some(reason);
        }
        state.stage = match state.stage {
            Stage::Waiting { at } => Stage::Storing { since: now, attempt_at: at },
            Stage::Inserting { since } => Stage::InsertingAndStoring { since, storing_since: now },
            Stage::InsertingAndStoring { .. }
            | Stage::InsertingStored { .. }
            | Stage::Storing { .. }
            | Stage::InsertedWhileStoring { .. }
            | Stage::QuarantiningRow { .. }
            | Stage::Loading { .. }
            | Stage::Removing { .. } => {
                unreachable!("a batch that is in the spool, or being stored, is not stored again")
            }
        };
        self.commands.push_back(DeliveryCommand::Store(id));
    }

    /// Starts the replay of the next file that is due. Does nothing while another replay runs, the
    /// tables are not confirmed, the process is leaving, or no further disk operation may start.
    /// Logs once when the last file has been replayed.
    fn replay(&mut self, now: Instant) {
        if self.is_replaying()
            || !self.server.has_tables()
            || self.leaving_since.is_some()
            || !self.may_use_disk()
        {
            return;
        }
        if self.files.len() == 0 && self.replayed > 0 {
            self.notices.push_back(DeliveryNotice::SpoolEmpty {
                batches: std::mem::take(&mut self.replayed),
            });
        }
        let Some(file) = self.files.next(now) else { return };
        let id = self.next_loaded;
        self.next_loaded += 1;
        let no_progress = || Progress::new(self.new_attempts(id), VecDeque::new());
        let progress = self.files.progress(&file).unwrap_or_else(no_progress);
        let state = BatchState::new(
            Stage::Loading { file, since: now },
            Origin::Spool,
            file.positions,
            progress,
        );
        self.batches.insert(id, state);
        self.commands.push_back(DeliveryCommand::Load(id, file));
    }

    /// Reports, once, that a fresh batch is durable.
    fn report_durable(&mut self, id: BatchId) {
        if let Some(fresh) = self.batches.get_mut(&id).and_then(BatchState::fresh_mut)
            && !std::mem::replace(&mut fresh.is_reported, true)
        {
            self.durable.push_back(Durable {
                batch: id,
                rows: fresh.rows,
                opened_at: fresh.opened_at,
            });
        }
    }

    /// Ends a batch: removes its state, and makes the executor drop its rows from memory.
    fn forget(&mut self, id: BatchId) {
        self.batches.remove(&id);
        self.commands.push_back(DeliveryCommand::Forget(id));
    }

    /// Returns the batches from the intake.
    fn fresh(&self) -> impl Iterator<Item = &BatchState> {
        self.batches.values().filter(|state| state.fresh().is_some())
    }

    /// Creates the record of the attempts to insert a batch, before this process attempts it.
    fn new_attempts(&self, number: BatchId) -> Attempts {
        let identity = Identity { incarnation: self.settings.incarnation, number };
        Attempts::new(identity)
    }

    /// Returns whether an insert of a fresh batch is slow while the process is under pressure.
    fn has_slow_insert_under_pressure(&self, now: Instant) -> bool {
        let is_slow = |state: &BatchState| {
            state.stage.attempt_since().is_some_and(|since| now >= since + SLOW_AFTER)
        };
        self.under_pressure && self.fresh().any(is_slow)
    }

    /// Returns whether uninserted batches now go to the spool, because the shutdown has lasted for
    /// `store_when_leaving_after`.
    fn stores_because_leaving(&self, now: Instant) -> bool {
        self.leaving_since
            .is_some_and(|since| now >= since + self.settings.store_when_leaving_after)
    }
}

/// Maximum number of files that are written, read or removed at the same time.
const fn disk_operations_max(inserts_in_flight: usize) -> usize {
    inserts_in_flight + 2
}
