//! What happens to each batch next: the only room that decides it.
//!
//! Events in (a batch, an attempt ended, stored, refused, the tables, leaving), commands out (attempt, store, load,
//! remove). Fresh batches and those that come back from the spool pass through the same states, see [`Stage`].
//! [`Delivery::store_because`] says when a batch goes to the spool.
//!
//! Guarantee: a batch is called durable only when every piece of it was inserted or its file is fsynced; no state waits
//! for something that may never come, unless [`Delivery::unready_reasons`] names it.
//!
//! Pure: it takes `now`. The executor obeys its commands.

mod files;
mod outcomes;
mod server;
mod stage;
mod view;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use self::files::Files;
use self::server::Server;
use self::stage::{BatchState, Fresh, Origin, Progress, Stage, pieces};
use super::events::{
    Attention, BatchId, Command, Durable, FIRST_LOADED, Notice, Outcome, Report, ServerStatus, StoreBecause,
    Totals,
};
use super::retry::{Identity, Tries};
use crate::batch::Batch;
use crate::delivery::Left;
use crate::throttle::{Reasons, Throttle};

/// With half the window unacknowledged, an insert that takes longer than this sends its rows to the spool, too: a
/// broker whose window is full queues little, and then drops.
pub const SLOW_AFTER: Duration = Duration::from_millis(250);
/// Interval between log lines with the same reason to store a batch, or about a spool that refuses.
const STORING_LOGGED_EVERY: Duration = Duration::from_secs(60);
/// A spool that refused is asked again after this long.
const STORE_AGAIN: Duration = Duration::from_secs(1);
/// While anything is amiss, everything is looked at this often.
const LOOK_EVERY: Duration = Duration::from_millis(250);

#[derive(Debug, Clone)]
pub struct Settings {
    /// Fresh batches that may be inserted at once.
    pub inserts_in_flight: usize,
    pub spool: bool,
    /// First timeout of an insert.
    pub insert_timeout: Duration,
    /// With a spool: how long leaving waits for inserts before it stores what is left.
    pub store_when_leaving_after: Duration,
    /// A random number that no other process has, for tokens.
    pub incarnation: u64,
    /// Seed of the jitter in retry delays.
    pub seed: u64,
}

/// What delivery takes now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// So many batches to insert.
    ToInsert(usize),
    /// One for the spool, though nothing is free.
    ToStore,
    Nothing,
}

#[derive(Debug)]
pub struct Delivery {
    settings: Settings,
    server: Server,
    batches: BTreeMap<BatchId, BatchState>,
    files: Files,
    next_loaded: BatchId,
    /// Batches replayed since the spool was last empty.
    replayed: u64,
    /// Half of a window or of the buffer is used up.
    under_pressure: bool,
    leaving_since: Option<Instant>,
    store_log: [Throttle; StoreBecause::ALL.len()],
    spool_refusal: Option<String>,
    refusal_log: Throttle,
    failure_log: Reasons,
    row_log: Throttle,
    /// The log says that the spool refuses, and not yet that it takes batches again.
    is_refusal_logged: bool,
    disk_log: Throttle,
    /// Something on the way to the server refused a batch of twice this size.
    batch_bytes_max: Option<usize>,
    /// Size of damaged files.
    quarantined_bytes: u64,
    commands: VecDeque<Command>,
    durable: VecDeque<Durable>,
    notices: VecDeque<Notice>,
    totals: Totals,
    jitter: fastrand::Rng,
}

impl Delivery {
    /// With what an earlier process left in the spool.
    #[must_use]
    pub fn new(settings: Settings, left: Left) -> Self {
        let mut files = Files::default();
        left.files.into_iter().for_each(|file| files.add(file, None, None));
        Self {
            server: Server::new(settings.insert_timeout),
            batches: BTreeMap::new(),
            next_loaded: FIRST_LOADED,
            replayed: 0,
            under_pressure: false,
            leaving_since: None,
            store_log: [const { Throttle::every(STORING_LOGGED_EVERY) }; StoreBecause::ALL.len()],
            spool_refusal: None,
            refusal_log: Throttle::every(STORING_LOGGED_EVERY),
            failure_log: Reasons::every(STORING_LOGGED_EVERY),
            row_log: Throttle::every(STORING_LOGGED_EVERY),
            is_refusal_logged: false,
            disk_log: Throttle::once(),
            batch_bytes_max: None,
            quarantined_bytes: left.quarantined_bytes,
            commands: VecDeque::new(),
            durable: VecDeque::new(),
            notices: VecDeque::new(),
            totals: Totals {
                spool_at_start: files.positions(),
                spool_quarantined: left.files_quarantined,
                ..Totals::default()
            },
            jitter: fastrand::Rng::with_seed(settings.seed),
            files,
            settings,
        }
    }

    #[must_use]
    pub fn wants(&self, now: Instant) -> Want {
        let slots = self.settings.inserts_in_flight;
        let held = self.insert_slots_held();
        if held < slots {
            return Want::ToInsert(slots - held);
        }
        if held == slots
            && self.may_store(true, None, now)
            && (self.is_slow(now) || self.leaves_for_long(now))
        {
            return Want::ToStore;
        }
        Want::Nothing
    }

    /// A batch that was [wanted](Self::wants).
    pub fn take(&mut self, batch: Batch, now: Instant) {
        assert!(self.wants(now) != Want::Nothing, "a batch was handed over that delivery does not want");
        let id = batch.id;
        let rows = [batch.positions.len(), batch.rejects.len()];
        let fresh = Fresh {
            rows: batch.rows(),
            opened_at: batch.opened_at,
            bytes: batch.bytes,
            at_least_once: batch.at_least_once,
            refused_at: None,
            stored_because: None,
            reported: false,
        };
        let positions = batch.positions.len() as u64;
        let progress = Progress::new(self.tries(id), pieces(rows.into_iter().filter(|rows| *rows > 0)));
        let held = BatchState::new(Stage::Waiting { at: now }, Origin::Intake(fresh), positions, progress);
        self.batches.insert(id, held);
        self.commands.push_back(Command::Take(batch));
        self.step(id, now);
    }

    fn insert_slots_held(&self) -> usize {
        self.fresh().filter(|held| held.holds_insert_slot()).count()
    }

    pub fn handle_report(&mut self, Report { batch, outcome }: Report, now: Instant) {
        match outcome {
            Outcome::Inserted { took, erased } => self.inserted(batch, took, erased, now),
            Outcome::LeftOut { rows } => self.left_out(batch, rows, now),
            Outcome::Failed { kind, why } => self.failed(batch, kind, why, now),
            Outcome::Unsplittable => self.unsplittable(batch, now),
            Outcome::Stored(file) => self.stored(batch, file, now),
            Outcome::Refused(why) => self.refused(batch, why, now),
            Outcome::Loaded(loaded) => self.loaded(batch, loaded, now),
            Outcome::Removed | Outcome::Quarantined => self.forget(batch),
            Outcome::RowQuarantined(file) => self.row_quarantined(batch, file, now),
        }
        self.step(batch, now);
        if !self.has_more_to_replay() {
            self.server.nothing_waits();
        }
    }

    /// What ClickHouse answered when it was last asked.
    pub fn server(&mut self, status: ServerStatus, now: Instant) {
        if status.answers.is_ok() && self.server.is_silent() {
            // It is back, and will not answer what it had not answered by then.
            self.files.wake(now);
            for (id, held) in &mut self.batches {
                let hangs = held.stage.attempt_since().is_some();
                if hangs && !std::mem::replace(&mut held.was_aborted, true) {
                    self.commands.push_back(Command::Abort(*id));
                }
                if let Stage::Waiting { at } | Stage::Storing { attempt_at: at, .. } = &mut held.stage {
                    *at = now.min(*at);
                }
            }
        }
        self.server.observed(status, now);
    }

    /// What to ask ClickHouse, and how soon.
    #[must_use]
    pub fn attention(&self, now: Instant) -> Attention {
        self.server.attention(now)
    }

    /// Whether half of a window or of the buffer is used up.
    pub fn set_under_pressure(&mut self, under_pressure: bool) {
        self.under_pressure = under_pressure;
    }

    /// The process shuts down: no file is replayed any more.
    pub fn leave(&mut self, now: Instant) {
        self.leaving_since.get_or_insert(now);
    }

    /// Steps that depend on time.
    pub fn handle_timeout(&mut self, now: Instant) {
        let ids: Vec<BatchId> = self.batches.keys().copied().collect();
        ids.into_iter().for_each(|id| self.step(id, now));
        self.replay(now);
        self.log(now);
    }

    /// The next thing for the executor to do, if any.
    pub fn poll_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// The next fresh batch that has become durable, if any.
    pub fn poll_durable(&mut self) -> Option<Durable> {
        self.durable.pop_front()
    }

    /// The next thing to log, if any.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Batches must not be larger, because something on the way has refused one.
    #[must_use]
    pub fn batch_bytes_max(&self) -> Option<usize> {
        self.batch_bytes_max
    }

    /// How many commands can wait for the executor at once: each batch has a few, and there are few batches.
    #[must_use]
    pub const fn commands_max(inserts_in_flight: usize) -> usize {
        8 * (inserts_in_flight + 1 + disk_operations_max(inserts_in_flight))
    }

    /// When a batch goes to the spool, and why. `None`: it does not, now.
    fn store_because(&self, held: &BatchState, now: Instant) -> Option<StoreBecause> {
        let fresh = held.fresh()?;
        if !held.stage.is_unstored() || !self.may_store(fresh.at_least_once, fresh.refused_at, now) {
            return None;
        }
        if self.leaves_for_long(now) {
            return Some(StoreBecause::Leaving);
        }
        if let Some(since) = held.stage.attempt_since() {
            return (self.under_pressure && now >= since + SLOW_AFTER).then_some(StoreBecause::ServerIsSlow);
        }
        if self.insert_slots_held() > self.settings.inserts_in_flight {
            Some(StoreBecause::NoSlot)
        } else if !self.server.has_tables() {
            Some(StoreBecause::NoTables)
        } else if held.progress.tries.failures > 0 {
            Some(StoreBecause::ItFailed)
        } else if self.server.is_away(now) && self.files.len() > 0 {
            Some(StoreBecause::ServerIsAway)
        } else {
            None
        }
    }

    /// What only a person can mend is not spooled over: not to acknowledge it is what stops the flow. QoS 0 knows no
    /// such stop.
    fn may_store(&self, at_least_once: bool, refused_at: Option<Instant>, now: Instant) -> bool {
        let held_back = at_least_once && self.server.needs_a_person();
        let refused = refused_at.is_some_and(|at| now < at + STORE_AGAIN);
        self.settings.spool && !held_back && !refused && self.has_disk_place()
    }

    /// A disk that hangs must not collect what it is asked.
    fn has_disk_place(&self) -> bool {
        let waiting = self.batches.values().filter(|held| held.stage.disk_since().is_some()).count();
        waiting < disk_operations_max(self.settings.inserts_in_flight)
    }

    /// The next step of one batch, as far as time or others allow it.
    fn step(&mut self, id: BatchId, now: Instant) {
        let Some(held) = self.batches.get(&id) else { return };
        if let Some(because) = self.store_because(held, now) {
            if self.store_log[because as usize].allow(now) {
                self.notices.push_back(Notice::Spooling(because));
            }
            self.store(id, because, now);
        } else if held.stage.is_attempt_due(now) && self.may_attempt(id) {
            self.attempt(id, now);
        }
    }

    /// A file's turn is counted apart: there is one at a time.
    fn may_attempt(&self, id: BatchId) -> bool {
        let is_fresh = |held: &BatchState| held.fresh().is_some();
        let others = self.batches.iter().filter(|(other, held)| **other != id && is_fresh(held));
        let attempts = others.filter(|(_, held)| held.stage.attempt_since().is_some()).count();
        let has_place =
            attempts < self.settings.inserts_in_flight || !self.batches.get(&id).is_some_and(is_fresh);
        self.server.has_tables() && has_place
    }

    /// Has the next piece inserted.
    fn attempt(&mut self, id: BatchId, now: Instant) {
        let Some(held) = self.batches.get_mut(&id) else { return };
        held.stage = match held.stage {
            Stage::Waiting { .. } | Stage::Inserting { .. } | Stage::QuarantiningRow { file: None, .. } => {
                Stage::Inserting { since: now }
            }
            Stage::Storing { since: storing_since, .. }
            | Stage::InsertingAndStoring { storing_since, .. } => {
                Stage::InsertingAndStoring { since: now, storing_since }
            }
            Stage::Loading { file, .. }
            | Stage::InsertingStored { file, .. }
            | Stage::QuarantiningRow { file: Some(file), .. } => Stage::InsertingStored { since: now, file },
            Stage::InsertedWhileStoring { .. } | Stage::Removing { .. } => {
                unreachable!("what is in ClickHouse is not inserted again")
            }
        };
        let piece = held
            .progress
            .pieces
            .front()
            .expect("a batch whose pieces are all inserted is not attempted")
            .clone();
        let attempt = held.progress.tries.next(&piece, self.server.timeout());
        self.server.attempted(now);
        self.commands.push_back(Command::Attempt { batch: id, piece, attempt });
    }

    /// Has the batch written to the spool, beside its attempt if there is one.
    fn store(&mut self, id: BatchId, because: StoreBecause, now: Instant) {
        let Some(held) = self.batches.get_mut(&id) else { return };
        if let Some(fresh) = held.fresh_mut() {
            fresh.stored_because = Some(because);
        }
        held.stage = match held.stage {
            Stage::Waiting { at } => Stage::Storing { since: now, attempt_at: at },
            Stage::Inserting { since } => Stage::InsertingAndStoring { since, storing_since: now },
            Stage::InsertingAndStoring { .. }
            | Stage::InsertingStored { .. }
            | Stage::Storing { .. }
            | Stage::InsertedWhileStoring { .. }
            | Stage::QuarantiningRow { .. }
            | Stage::Loading { .. }
            | Stage::Removing { .. } => {
                unreachable!("what is in the spool, or on its way there, is not stored again")
            }
        };
        self.commands.push_back(Command::Store(id));
    }

    /// Begins with the next file, if there is one and nothing stands in the way.
    fn replay(&mut self, now: Instant) {
        if self.is_replaying()
            || !self.server.has_tables()
            || self.leaving_since.is_some()
            || !self.has_disk_place()
        {
            return;
        }
        if self.files.len() == 0 && self.replayed > 0 {
            self.notices.push_back(Notice::SpoolEmpty { batches: std::mem::take(&mut self.replayed) });
        }
        let Some(file) = self.files.next(now) else { return };
        let id = self.next_loaded;
        self.next_loaded += 1;
        let untried = || Progress::new(self.tries(id), VecDeque::new());
        let progress = self.files.progress(&file).unwrap_or_else(untried);
        let held =
            BatchState::new(Stage::Loading { file, since: now }, Origin::Spool, file.positions, progress);
        self.batches.insert(id, held);
        self.commands.push_back(Command::Load(id, file));
    }

    fn report_durable(&mut self, id: BatchId) {
        if let Some(fresh) = self.batches.get_mut(&id).and_then(BatchState::fresh_mut)
            && !std::mem::replace(&mut fresh.reported, true)
        {
            self.durable.push_back(Durable { batch: id, rows: fresh.rows, opened_at: fresh.opened_at });
        }
    }

    fn forget(&mut self, id: BatchId) {
        self.batches.remove(&id);
        self.commands.push_back(Command::Forget(id));
    }

    fn fresh(&self) -> impl Iterator<Item = &BatchState> {
        self.batches.values().filter(|held| held.fresh().is_some())
    }

    fn tries(&self, number: BatchId) -> Tries {
        let identity = Identity { incarnation: self.settings.incarnation, number };
        Tries::new(identity)
    }

    fn is_slow(&self, now: Instant) -> bool {
        let slow =
            |held: &BatchState| held.stage.attempt_since().is_some_and(|since| now >= since + SLOW_AFTER);
        self.under_pressure && self.fresh().any(slow)
    }

    fn leaves_for_long(&self, now: Instant) -> bool {
        self.leaving_since.is_some_and(|since| now >= since + self.settings.store_when_leaving_after)
    }
}

/// Files that are being written, read or removed at once.
const fn disk_operations_max(inserts_in_flight: usize) -> usize {
    inserts_in_flight + 2
}
