//! Models of ClickHouse (rows and tokens) and of a disk, with scripted faults and delays. They use
//! neither tasks nor files, so thousands of schedules run per minute.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use milepost_core::delivery::events::{BatchId, DeliveryCommand, Loaded, Outcome, Piece, Report};
use milepost_core::delivery::sink::FailureKind;
use milepost_core::delivery::{File, SpoolInventory};
use milepost_core::erased::Erased;
use milepost_decode::position::DriverId;

use super::Backend;

/// How ClickHouse treats inserts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    Fine,
    /// Needs two seconds per insert.
    Slow,
    /// Refuses every insert for now.
    Refusing,
    /// Neither answers nor commits.
    Hanging,
    /// Records the token of every insert, but stores only some of the inserts.
    Dying,
    /// Random behaviour, including commits whose answers are lost.
    Flaky,
    /// The table is missing.
    NoTable,
    /// Accepts at most three rows per insert, and no row whose number is a multiple of seven.
    Narrow,
    /// Needs this many seconds per insert; a client with a shorter timeout loses the answer.
    InsertsTake(u64),
}

/// How the disk treats operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disk {
    Fine,
    Full,
    Hanging,
}

/// A row of an insert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// A position, by its number.
    Position(u32),
    /// A reject row that counts this many rejects.
    Reject(u64),
}

impl Row {
    /// Returns the number of a position; `None` for a reject row.
    fn position(self) -> Option<u32> {
        match self {
            Self::Position(seq) => Some(seq),
            Self::Reject(_) => None,
        }
    }
}

/// Rows of each insert of a batch.
type Rows = Vec<Vec<Row>>;

/// A report that is due at a later time.
struct Pending {
    at: Instant,
    report: Report,
    /// The report ends an insert attempt, which can be aborted.
    is_attempt: bool,
}

/// Two replicas that share one Keeper, which records every token.
pub struct Replicas {
    /// The replicas cannot reach each other: an insert's quorum times out, but its rows stay on one
    /// replica.
    is_cut: bool,
    /// Rows that only one of the replicas has.
    on_one_replica: BTreeSet<u32>,
    /// A planted mistake: an insert does not ask for a quorum.
    without_quorum: bool,
    /// A planted mistake: an insert keeps its token after an unknown outcome.
    same_token: bool,
}

impl Replicas {
    pub fn new(without_quorum: bool, same_token: bool) -> Self {
        Self { is_cut: false, on_one_replica: BTreeSet::new(), without_quorum, same_token }
    }
}

/// ClickHouse's table, shared by all members of a group.
pub struct Table {
    pub mood: Mood,
    pub replicas: Option<Replicas>,
    rng: fastrand::Rng,
    /// Numbers of the stored positions.
    pub stored: BTreeSet<u32>,
    /// Number of rejects that the table `rejects` counts.
    rejects: u64,
    /// Rows of the insert that recorded each token. A later insert with the same token stores
    /// nothing, even if the rows of the first insert are lost: with [`Mood::Dying`], a replica died
    /// before the other replicas had its rows.
    tokens: BTreeMap<String, Vec<Row>>,
    /// Identity of each row's fix in ClickHouse.
    identities: BTreeMap<u32, Identity>,
}

/// Driver, time in milliseconds, latitude and longitude in units of 1e-7 degrees.
type Identity = (DriverId, i64, i32, i32);

/// Returns whether an insert exceeds the limit of [`Mood::Narrow`].
pub fn is_too_large(rows: usize, mut positions: impl Iterator<Item = u32>) -> bool {
    rows > 3 || positions.any(|seq| seq.is_multiple_of(7))
}

impl Table {
    pub fn new(seed: u64) -> Self {
        Self {
            mood: Mood::Fine,
            replicas: None,
            rng: fastrand::Rng::with_seed(seed),
            stored: BTreeSet::new(),
            rejects: 0,
            tokens: BTreeMap::new(),
            identities: BTreeMap::new(),
        }
    }

    /// Cuts the link between the replicas.
    pub fn cut(&mut self) {
        if let Some(replicas) = &mut self.replicas {
            replicas.is_cut = true;
        }
    }

    /// Restores the link between the replicas, which then copy each other's rows. `disk_lost`: the
    /// replica that has rows of its own loses its disk first.
    pub fn join(&mut self, disk_lost: bool) {
        if let Some(replicas) = &mut self.replicas {
            let on_one_replica = std::mem::take(&mut replicas.on_one_replica);
            replicas.is_cut = false;
            if disk_lost {
                self.stored.retain(|seq| !on_one_replica.contains(seq));
            }
        }
    }
}

/// A process's connection to ClickHouse, and its disk.
pub struct Server {
    pub table: Table,
    disk_mood: Disk,
    files: BTreeMap<File, Rows>,
    /// Rows of the batches that the executor holds.
    encoded: BTreeMap<BatchId, Rows>,
    pending: Vec<Pending>,
    next_sequence: u64,
    /// Rows in quarantine; without a spool, the rows that would be in quarantine.
    quarantined: BTreeSet<u32>,
    has_spool: bool,
    erased: Arc<Erased>,
}

impl Server {
    pub fn new(seed: u64) -> Self {
        Self {
            table: Table::new(seed),
            disk_mood: Disk::Fine,
            files: BTreeMap::new(),
            encoded: BTreeMap::new(),
            pending: Vec::new(),
            next_sequence: 0,
            quarantined: BTreeSet::new(),
            has_spool: false,
            erased: Arc::default(),
        }
    }

    /// Decides whether an insert commits, and schedules its report.
    fn attempt(
        &mut self,
        batch: BatchId,
        insert: usize,
        rows: Range<usize>,
        token: &str,
        timeout: Duration,
        now: Instant,
    ) {
        let mut rows = self.encoded[&batch][insert][rows].to_vec();
        let rows_before = rows.len();
        rows.retain(|row| row.position().is_none_or(|seq| !self.is_erased(seq)));
        let erased = (rows_before - rows.len()) as u64;
        let token = match &self.table.replicas {
            Some(Replicas { same_token: true, .. }) => {
                token.rsplit_once('-').expect("a token ends with the attempt's number").0
            }
            _ => token,
        };
        let token = &if erased > 0 {
            format!("{token}-{}", self.erased.digest())
        } else {
            token.to_owned()
        };
        if rows.is_empty() {
            let outcome = Outcome::LeftOut { rows: erased };
            return self.pending.push(Pending {
                at: now,
                report: Report { batch, outcome },
                is_attempt: true,
            });
        }
        let used_for = self.table.tokens.get(token);
        assert!(
            used_for.is_none_or(|used_for| *used_for == rows),
            "a token was used again for different rows"
        );
        let chance = self.table.rng.u32(..8);
        let duration = Duration::from_millis(if self.table.mood == Mood::Slow {
            2_000
        } else {
            20 + u64::from(chance) * 7
        });
        let failed = |kind| Outcome::Failed { kind, why: "scripted".to_owned() };
        let (commits, records_token, mut outcome, mut duration) = match (self.table.mood, chance) {
            (Mood::InsertsTake(seconds), _) if Duration::from_secs(seconds) > timeout => {
                (true, true, failed(FailureKind::TimedOut), timeout)
            }
            (Mood::InsertsTake(seconds), _) => {
                let duration = Duration::from_secs(seconds);
                (true, true, Outcome::Inserted { took: duration, erased }, duration)
            }
            (Mood::Narrow, _)
                if is_too_large(rows.len(), rows.iter().filter_map(|row| row.position())) =>
            {
                // Without a spool, milepost drops a single row that is too large: it cannot put
                // the row into quarantine.
                let dropped = rows.iter().filter(|_| rows.len() == 1 && !self.has_spool);
                self.quarantined.extend(dropped.filter_map(|row| row.position()));
                (false, false, failed(FailureKind::TooLarge), duration)
            }
            (Mood::Fine | Mood::Slow | Mood::Narrow, _) | (Mood::Flaky, 0..3) => {
                (true, true, Outcome::Inserted { took: duration, erased }, duration)
            }
            (Mood::Refusing, _) | (Mood::Flaky, 3) => {
                (false, false, failed(FailureKind::Transient), duration)
            }
            (Mood::NoTable, _) | (Mood::Flaky, 4) => {
                (false, false, failed(FailureKind::Permanent), duration)
            }
            (Mood::Hanging, _) | (Mood::Flaky, 5) => {
                (false, false, failed(FailureKind::TimedOut), timeout)
            }
            (Mood::Dying, 0..4) => (false, true, failed(FailureKind::Ambiguous), duration),
            (Mood::Dying, _) | (Mood::Flaky, 6) => {
                (true, true, failed(FailureKind::Ambiguous), duration)
            }
            (Mood::Flaky, _) => (true, true, failed(FailureKind::TimedOut), timeout),
        };
        if commits && !self.table.tokens.contains_key(token) {
            if let Some(replicas) = &mut self.table.replicas {
                if replicas.is_cut {
                    let seqs = rows.iter().filter_map(|row| row.position());
                    replicas
                        .on_one_replica
                        .extend(seqs.filter(|seq| !self.table.stored.contains(seq)));
                    if !replicas.without_quorum && matches!(outcome, Outcome::Inserted { .. }) {
                        (outcome, duration) = (failed(FailureKind::Ambiguous), timeout);
                    }
                } else {
                    replicas.on_one_replica.retain(|seq| !rows.contains(&Row::Position(*seq)));
                }
            }
            for row in &rows {
                match row {
                    Row::Position(seq) => drop(self.table.stored.insert(*seq)),
                    Row::Reject(count) => self.table.rejects += count,
                }
            }
        }
        if records_token {
            self.table.tokens.insert(token.to_owned(), rows);
        }
        self.pending.push(Pending {
            at: now + duration,
            report: Report { batch, outcome },
            is_attempt: true,
        });
    }

    fn is_erased(&self, seq: u32) -> bool {
        self.table
            .identities
            .get(&seq)
            .is_some_and(|(driver, ..)| self.erased.contains_bytes(driver.as_str().as_bytes()))
    }

    fn store(&mut self, batch: BatchId, now: Instant) {
        let rows = self.encoded[&batch].clone();
        let duration = self.disk_duration();
        if self.disk_mood == Disk::Full {
            return self.report_later(batch, Outcome::Refused("full".to_owned()), duration, now);
        }
        let positions = rows.iter().flatten().filter(|row| row.position().is_some()).count() as u64;
        let file = File { sequence: self.next_sequence, positions, tag: 1, bytes: 100 };
        self.next_sequence += 1;
        // The file exists before it is reported as durable: after a crash in between, it is
        // replayed.
        self.files.insert(file, rows);
        self.report_later(batch, Outcome::Stored(file), duration, now);
    }

    fn disk_duration(&self) -> Duration {
        if self.disk_mood == Disk::Hanging {
            Duration::from_secs(3_600)
        } else {
            Duration::from_millis(10)
        }
    }

    fn report_later(&mut self, batch: BatchId, outcome: Outcome, duration: Duration, now: Instant) {
        self.pending.push(Pending {
            at: now + duration,
            report: Report { batch, outcome },
            is_attempt: false,
        });
    }
}

impl Backend for Server {
    fn restart(&mut self, has_spool: bool) -> SpoolInventory {
        self.has_spool = has_spool;
        self.encoded.clear();
        self.pending.clear();
        SpoolInventory {
            files: self.files.keys().copied().collect(),
            quarantined_bytes: 0,
            files_quarantined: 0,
        }
    }

    fn set_mood(&mut self, mood: Mood) {
        self.table.mood = mood;
    }

    fn set_disk(&mut self, disk: Disk, now: Instant) {
        self.disk_mood = disk;
        if disk == Disk::Fine {
            // Operations that hung complete now.
            let hung = self.pending.iter_mut().filter(|pending| !pending.is_attempt);
            hung.for_each(|pending| pending.at = pending.at.min(now));
        }
    }

    fn erase(&mut self, erased: Arc<Erased>) {
        self.erased = erased;
    }

    fn report(&mut self, now: Instant) -> Option<Report> {
        let due = self.pending.iter().enumerate().filter(|(_, pending)| pending.at <= now);
        let (index, _) = due.min_by_key(|(_, pending)| pending.at)?;
        Some(self.pending.remove(index).report)
    }

    fn advance_time(&mut self, until: Instant) -> Instant {
        self.pending.iter().map(|pending| pending.at).min().map_or(until, |at| at.min(until))
    }

    fn is_silent(&self) -> bool {
        self.table.mood == Mood::Hanging
    }

    fn is_durable(&self, seq: u32) -> bool {
        let in_file =
            || self.files.values().flatten().flatten().any(|row| *row == Row::Position(seq));
        self.is_stored(seq) || in_file()
    }

    fn is_stored(&self, seq: u32) -> bool {
        self.table.stored.contains(&seq) || self.quarantined.contains(&seq)
    }

    fn rejects(&self) -> u64 {
        self.table.rejects
    }

    fn files(&self) -> usize {
        self.files.len()
    }

    /// An attempt commits when it begins, so no insert from before an erasure commits after it.
    fn inserts_begun_before_erasure(&self) -> usize {
        0
    }

    fn attempts(&self) -> usize {
        self.pending.iter().filter(|pending| pending.is_attempt).count()
    }

    fn execute(&mut self, command: DeliveryCommand, now: Instant) {
        match command {
            DeliveryCommand::Encode(batch) => {
                for position in &batch.positions {
                    let identity = (
                        position.driver_id,
                        position.ts.unix_ms(),
                        position.lat.e7(),
                        position.lng.e7(),
                    );
                    let first = *self.table.identities.entry(position.seq).or_insert(identity);
                    assert_eq!(first, identity, "a redelivered message became a different fix");
                }
                let positions: Vec<_> =
                    batch.positions.iter().map(|position| Row::Position(position.seq)).collect();
                let rejects: Vec<_> =
                    batch.rejects.iter().map(|reject| Row::Reject(reject.count)).collect();
                let rows =
                    [positions, rejects].into_iter().filter(|rows| !rows.is_empty()).collect();
                assert!(self.encoded.insert(batch.id, rows).is_none(), "a batch is encoded twice");
            }
            DeliveryCommand::Attempt { batch, piece, attempt } => {
                let Piece { insert, rows } = piece;
                self.attempt(batch, insert, rows, &attempt.token, attempt.timeout, now);
            }
            DeliveryCommand::Abort(batch) => {
                let is_in_flight =
                    |pending: &&mut Pending| pending.is_attempt && pending.report.batch == batch;
                if let Some(pending) = self.pending.iter_mut().find(is_in_flight) {
                    pending.at = now;
                    pending.report.outcome = Outcome::aborted();
                }
            }
            DeliveryCommand::Store(batch) => self.store(batch, now),
            DeliveryCommand::Load(batch, file) => {
                let rows = self.files.get(&file).cloned();
                let loaded = rows.as_ref().map_or(Loaded::Damaged("gone".to_owned()), |rows| {
                    Loaded::Rows(rows.iter().map(Vec::len).collect())
                });
                self.encoded.extend(rows.map(|rows| (batch, rows)));
                self.report_later(batch, Outcome::Loaded(loaded), self.disk_duration(), now);
            }
            DeliveryCommand::Remove(batch, file) => {
                self.files.remove(&file);
                self.report_later(batch, Outcome::Removed, self.disk_duration(), now);
            }
            DeliveryCommand::Quarantine(batch, file) => {
                self.files.remove(&file);
                self.report_later(batch, Outcome::Quarantined, self.disk_duration(), now);
            }
            DeliveryCommand::QuarantineRow(batch, _) if self.disk_mood == Disk::Full => {
                self.report_later(
                    batch,
                    Outcome::Refused("full".to_owned()),
                    self.disk_duration(),
                    now,
                );
            }
            DeliveryCommand::QuarantineRow(batch, piece) => {
                let row = self.encoded[&batch][piece.insert][piece.rows][0].position();
                if row.is_some_and(|seq| self.is_erased(seq)) {
                    return self.report_later(
                        batch,
                        Outcome::LeftOut { rows: 1 },
                        self.disk_duration(),
                        now,
                    );
                }
                self.quarantined.extend(row);
                let file = File { sequence: self.next_sequence, positions: 1, tag: 1, bytes: 100 };
                self.next_sequence += 1;
                self.report_later(batch, Outcome::RowQuarantined(file), self.disk_duration(), now);
            }
            DeliveryCommand::Forget(batch) => drop(self.encoded.remove(&batch)),
        }
    }
}
