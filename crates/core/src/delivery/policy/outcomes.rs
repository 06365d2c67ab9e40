//! What a report does to a batch: an attempt ended, or something on the disk did.

use std::time::{Duration, Instant};

use super::files::Failure;
use super::stage::{BatchState, DISK_PATIENCE, Origin, Stage, pieces};
use super::{Delivery, STORE_AGAIN};
use crate::delivery::File;
use crate::delivery::events::{BatchId, Command, Loaded, Notice, Piece};
use crate::delivery::retry;
use crate::delivery::sink::FailureKind;

impl Delivery {
    /// An insert committed.
    pub(super) fn inserted(&mut self, id: BatchId, took: Duration, erased: u64, now: Instant) {
        self.needs_no_spool(id);
        self.answered(id);
        self.server.succeeded(took);
        let Some(held) = self.batches.get_mut(&id) else { return };
        let failures = held.progress.tries.succeeded();
        if failures > 0 {
            self.notices.push_back(Notice::InsertSucceeded { batch: id, failures });
        }
        if held.fresh().is_none() {
            self.files.succeeded();
        }
        held.progress.erased += if held.pass_piece() { erased } else { 0 };
        self.go_on(id, now);
    }

    /// Every row of the piece is of an erased driver. That says nothing of the server.
    pub(super) fn left_out(&mut self, id: BatchId, rows: u64, now: Instant) {
        self.needs_no_spool(id);
        self.answered(id);
        let Some(held) = self.batches.get_mut(&id) else { return };
        held.progress.erased += if held.pass_piece() { rows } else { 0 };
        self.go_on(id, now);
    }

    /// If no other batch was refused by the spool either, its next need will tell whether it takes batches.
    fn needs_no_spool(&mut self, id: BatchId) {
        let refused = |held: &BatchState| held.fresh().is_some_and(|fresh| fresh.refused_at.is_some());
        if !self.batches.iter().any(|(other, held)| *other != id && refused(held)) {
            self.spool_refusal = None;
        }
    }

    /// An attempt has had an answer that says nothing against the server: another one's may be waited for.
    fn answered(&mut self, id: BatchId) {
        let others = self.batches.iter().filter(|(other, _)| **other != id);
        self.server.waits_since(others.filter_map(|(_, held)| held.stage.attempt_since()).min());
    }

    /// With the next piece, if there is one; not if the tables have gone meanwhile, or others took its place while a row of it was written.
    fn go_on(&mut self, id: BatchId, now: Instant) {
        match self.batches.get(&id) {
            Some(held) if held.progress.pieces.is_empty() => self.finished(id, now),
            Some(_) if self.may_attempt(id) => self.attempt(id, now),
            Some(_) => self.put_back(id, now),
            None => {}
        }
    }

    /// To where it waits for the tables.
    fn put_back(&mut self, id: BatchId, now: Instant) {
        let Some(held) = self.batches.get_mut(&id) else { return };
        match held.stage {
            Stage::Inserting { .. } | Stage::QuarantiningRow { file: None, .. } => {
                held.stage = Stage::Waiting { at: now };
            }
            Stage::InsertingAndStoring { storing_since: since, .. } => {
                held.stage = Stage::Storing { since, attempt_at: now };
            }
            Stage::InsertingStored { file, .. }
            | Stage::QuarantiningRow { file: Some(file), .. }
            | Stage::Loading { file, .. } => {
                self.leave_to_replay(id, file, None, now);
            }
            Stage::Waiting { .. }
            | Stage::Storing { .. }
            | Stage::InsertedWhileStoring { .. }
            | Stage::Removing { .. } => unreachable!("it was neither being inserted nor being loaded"),
        }
    }

    /// Every piece of it is in ClickHouse, or in quarantine.
    fn finished(&mut self, id: BatchId, now: Instant) {
        self.report_durable(id);
        let Some(held) = self.batches.get_mut(&id) else { return };
        self.totals.inserted += held.positions - held.progress.quarantined - held.progress.erased;
        self.totals.erased += held.progress.erased;
        self.totals.quarantined += held.progress.quarantined;
        self.totals.batches_inserted += 1;
        self.replayed += u64::from(held.fresh().is_none());
        match held.stage {
            Stage::Inserting { .. } | Stage::QuarantiningRow { file: None, .. } => self.forget(id),
            Stage::InsertingStored { file, .. }
            | Stage::QuarantiningRow { file: Some(file), .. }
            | Stage::Loading { file, .. } => {
                held.stage = Stage::Removing { file, since: now };
                self.files.remove(&file);
                self.commands.push_back(Command::Remove(id, file));
            }
            Stage::InsertingAndStoring { storing_since: since, .. } => {
                held.stage = Stage::InsertedWhileStoring { since };
            }
            Stage::Waiting { .. }
            | Stage::Storing { .. }
            | Stage::InsertedWhileStoring { .. }
            | Stage::Removing { .. } => unreachable!("it was neither being inserted nor being loaded"),
        }
    }

    /// An attempt failed.
    pub(super) fn failed(&mut self, id: BatchId, kind: FailureKind, why: String, now: Instant) {
        let Some(held) = self.batches.get_mut(&id) else { return };
        if kind == FailureKind::TooLarge {
            return self.too_large(id, why, now);
        }
        held.progress.tries.failed(kind);
        let failures = held.progress.tries.failures;
        let rows = held.progress.pieces.front().map_or(0, |piece| piece.rows.len());
        // Files take turns, so their failures count together.
        let in_a_row = if held.fresh().is_some() { failures } else { self.files.failures() + 1 };
        self.server.failed(kind, &why, in_a_row, now);
        let delay = retry::delay(failures, &mut self.jitter);
        let retry_in = match held.stage {
            Stage::InsertingStored { file, .. } => {
                self.leave_to_replay(id, file, Some((kind, &why)), now);
                None
            }
            Stage::InsertingAndStoring { storing_since: since, .. } => {
                held.stage = Stage::Storing { since, attempt_at: now + delay };
                None
            }
            Stage::Waiting { .. }
            | Stage::Inserting { .. }
            | Stage::Storing { .. }
            | Stage::InsertedWhileStoring { .. }
            | Stage::QuarantiningRow { .. }
            | Stage::Loading { .. }
            | Stage::Removing { .. } => {
                held.stage = Stage::Waiting { at: now + delay };
                Some(delay)
            }
        };
        if self.failure_log.allow(&why, now) {
            self.notices.push_back(Notice::InsertFailed { batch: id, rows, failures, retry_in, why });
        }
    }

    /// Halves the piece; a row that is too large by itself goes into quarantine, or is gone if there is no spool.
    fn too_large(&mut self, id: BatchId, why: String, now: Instant) {
        self.answered(id);
        let Some(held) = self.batches.get_mut(&id) else { return };
        let Some(Piece { insert, rows }) = held.progress.pieces.front().cloned() else { return };
        if rows.len() > 1 {
            held.progress.pieces.pop_front();
            let middle = rows.start + rows.len() / 2;
            held.progress.pieces.push_front(Piece { insert, rows: middle..rows.end });
            held.progress.pieces.push_front(Piece { insert, rows: rows.start..middle });
            if held.fresh().is_some() {
                self.bound_batches(id, rows.len(), why);
            }
            self.go_on(id, now);
        } else {
            if self.row_log.allow(now) {
                self.notices.push_back(Notice::RowTooLarge { why });
            }
            if self.settings.spool {
                self.quarantine_row(id, Piece { insert, rows }, now);
            } else {
                self.row_passed(id, now);
            }
        }
    }

    fn quarantine_row(&mut self, id: BatchId, row: Piece, now: Instant) {
        let Some(held) = self.batches.get_mut(&id) else { return };
        let file = match held.stage {
            // One thing at a time: the row's turn comes with the next attempt, from the file if the spool takes it.
            Stage::InsertingAndStoring { storing_since: since, .. } => {
                held.stage = Stage::Storing { since, attempt_at: now + DISK_PATIENCE };
                return;
            }
            Stage::InsertingStored { file, .. } => Some(file),
            Stage::Waiting { .. }
            | Stage::Inserting { .. }
            | Stage::Storing { .. }
            | Stage::InsertedWhileStoring { .. }
            | Stage::QuarantiningRow { .. }
            | Stage::Loading { .. }
            | Stage::Removing { .. } => None,
        };
        held.stage = Stage::QuarantiningRow { since: now, file };
        self.commands.push_back(Command::QuarantineRow(id, row));
    }

    /// The row's file is durable.
    pub(super) fn row_quarantined(&mut self, id: BatchId, file: File, now: Instant) {
        self.spool_takes();
        self.totals.spool_quarantined += 1;
        self.quarantined_bytes += file.bytes;
        self.row_passed(id, now);
    }

    fn row_passed(&mut self, id: BatchId, now: Instant) {
        let Some(held) = self.batches.get_mut(&id) else { return };
        held.progress.quarantined += u64::from(held.pass_piece());
        self.go_on(id, now);
    }

    /// A file that something on the way to ClickHouse does not let through, and that cannot be split.
    pub(super) fn unsplittable(&mut self, id: BatchId, now: Instant) {
        self.answered(id);
        let Some(held) = self.batches.get(&id) else { return };
        let Stage::InsertingStored { file, .. } = held.stage else { return };
        let why = "something on the way to ClickHouse does not let an insert of this size through, and it cannot be split: \
                   its columns are those of another version of milepost";
        self.files.defer(&file, why, self.server.successes(), now);
        self.notices.push_back(Notice::Deferred { file, why: why.to_owned() });
        self.forget(id);
    }

    /// What was too large this time shall not be tried again with every batch.
    fn bound_batches(&mut self, id: BatchId, rows: usize, why: String) {
        let Some(fresh) = self.batches.get(&id).and_then(BatchState::fresh) else { return };
        let batch_bytes_max = fresh.bytes / 2;
        if self.batch_bytes_max.is_none_or(|max| batch_bytes_max < max) {
            self.batch_bytes_max = Some(batch_bytes_max);
            self.notices.push_back(Notice::TooLarge { rows, batch_bytes_max, why });
        }
    }

    /// From here on it is a file among others.
    fn leave_to_replay(
        &mut self,
        id: BatchId,
        file: File,
        failure: Option<(FailureKind, &str)>,
        now: Instant,
    ) {
        self.report_durable(id);
        let Some(BatchState { origin, progress, .. }) = self.batches.remove(&id) else { return };
        self.commands.push_back(Command::Forget(id));
        let failure = match origin {
            Origin::Intake(_) => None,
            Origin::Spool => failure,
        };
        let Some((kind, why)) = failure else {
            return self.files.add(file, Some(progress), Some(now));
        };
        let failure = Failure { kind, why, progress };
        if self.files.failed(&file, failure, self.server.successes(), &mut self.jitter, now) {
            self.notices.push_back(Notice::Deferred { file, why: why.to_owned() });
        }
    }

    fn spool_takes(&mut self) {
        self.spool_refusal = None;
        let is_news = std::mem::take(&mut self.is_refusal_logged);
        self.notices.extend(is_news.then_some(Notice::SpoolTakesAgain));
    }

    /// Its file is durable.
    pub(super) fn stored(&mut self, id: BatchId, file: File, now: Instant) {
        self.spool_takes();
        let Some(held) = self.batches.get_mut(&id) else { return };
        if let Some(because) = held.fresh().and_then(|fresh| fresh.stored_because) {
            self.totals.stored[because as usize] += 1;
        }
        match held.stage {
            Stage::InsertingAndStoring { since, .. } => {
                held.stage = Stage::InsertingStored { since, file };
                self.report_durable(id);
            }
            Stage::InsertedWhileStoring { .. } => {
                held.stage = Stage::Removing { file, since: now };
                self.commands.push_back(Command::Remove(id, file));
            }
            Stage::Waiting { .. }
            | Stage::Inserting { .. }
            | Stage::InsertingStored { .. }
            | Stage::Storing { .. }
            | Stage::QuarantiningRow { .. }
            | Stage::Loading { .. }
            | Stage::Removing { .. } => self.leave_to_replay(id, file, None, now),
        }
    }

    /// The spool did not take it, or a row of it.
    pub(super) fn refused(&mut self, id: BatchId, why: String, now: Instant) {
        self.totals.refused += 1;
        self.spool_refusal = Some(why.clone());
        if self.refusal_log.allow(now) {
            self.is_refusal_logged = true;
            self.notices.push_back(Notice::SpoolRefuses(why.clone()));
        }
        let Some(held) = self.batches.get_mut(&id) else { return };
        if let Some(fresh) = held.fresh_mut() {
            fresh.refused_at = Some(now);
        }
        match held.stage {
            Stage::InsertingAndStoring { since, .. } => held.stage = Stage::Inserting { since },
            Stage::InsertedWhileStoring { .. } => self.forget(id),
            Stage::Storing { attempt_at: at, .. } => held.stage = Stage::Waiting { at },
            // The row is attempted again: whoever makes room for it may as well have raised the limit that it meets.
            Stage::QuarantiningRow { file: None, .. } => {
                held.stage = Stage::Waiting { at: now + STORE_AGAIN };
            }
            Stage::QuarantiningRow { file: Some(file), .. } => {
                self.leave_to_replay(id, file, None, now);
                self.files.defer(&file, &why, self.server.successes(), now);
            }
            Stage::Waiting { .. }
            | Stage::Inserting { .. }
            | Stage::InsertingStored { .. }
            | Stage::Loading { .. }
            | Stage::Removing { .. } => unreachable!("nothing was being stored"),
        }
    }

    /// What was in its file.
    pub(super) fn loaded(&mut self, id: BatchId, loaded: Loaded, now: Instant) {
        let Some(held) = self.batches.get_mut(&id) else { return };
        let Stage::Loading { file, .. } = held.stage else { return };
        match loaded {
            Loaded::Rows(rows) => {
                if held.progress.pieces.is_empty() {
                    held.progress.pieces = pieces(rows);
                }
                self.go_on(id, now);
            }
            Loaded::Damaged(_) | Loaded::Gone => {
                held.stage = Stage::Removing { file, since: now };
                self.files.remove(&file);
                self.totals.quarantined += file.positions;
                self.totals.files_quarantined += 1;
                if let Loaded::Damaged(why) = loaded {
                    self.totals.spool_quarantined += 1;
                    self.quarantined_bytes += file.bytes;
                    self.notices.push_back(Notice::Quarantined { file, why });
                    self.commands.push_back(Command::Quarantine(id, file));
                } else {
                    self.notices.push_back(Notice::Gone(file));
                    self.commands.push_back(Command::Remove(id, file));
                }
            }
            Loaded::Newer(why) => {
                self.files.leave(&file, &why);
                self.notices.push_back(Notice::Deferred { file, why });
                self.forget(id);
            }
            Loaded::Unreadable(why) => {
                self.files.defer(&file, &why, self.server.successes(), now);
                self.files.rest_after_deferral(&mut self.jitter, now);
                self.notices.push_back(Notice::Deferred { file, why });
                self.forget(id);
            }
        }
    }
}
