//! Decides the next stage of a batch after the executor reported the outcome of an attempt or of a
//! disk operation. [`Delivery::handle_report`] has already asserted that the outcome fits the
//! batch's stage.

use std::time::{Duration, Instant};

use super::files::Failure;
use super::stage::{BatchState, DISK_PATIENCE, Origin, Spooled, Stage, pieces};
use super::{Delivery, STORE_RETRY_DELAY};
use crate::delivery::File;
use crate::delivery::events::{
    BatchId, DeliveryCommand, DeliveryNotice, Loaded, Piece, TooLargeRow,
};
use crate::delivery::retry;
use crate::delivery::sink::FailureKind;

impl Delivery {
    /// Handles an insert that committed. `took`: its duration. `erased`: rows left out because
    /// their driver is erased.
    pub(super) fn inserted(&mut self, id: BatchId, took: Duration, erased: u64, now: Instant) {
        self.clear_spool_refusal(id);
        self.attempt_answered(id);
        self.server.succeeded(took);
        let Some(state) = self.batches.get_mut(&id) else { return };
        let failures = state.progress.attempts.succeeded();
        if failures > 0 {
            self.notices.push_back(DeliveryNotice::InsertSucceeded { batch: id, failures });
        }
        if state.fresh().is_none() {
            self.files.succeeded();
        }
        let has_positions = state.finish_piece();
        state.progress.erased += if has_positions { erased } else { 0 };
        self.continue_batch(id, now);
    }

    /// Handles a piece whose rows all belong to erased drivers. No insert was sent, so the server's
    /// health is unchanged.
    pub(super) fn left_out(&mut self, id: BatchId, rows: u64, now: Instant) {
        self.clear_spool_refusal(id);
        self.attempt_answered(id);
        let Some(state) = self.batches.get_mut(&id) else { return };
        let has_positions = state.finish_piece();
        state.progress.erased += if has_positions { rows } else { 0 };
        self.continue_batch(id, now);
    }

    /// Clears the spool's refusal, unless another batch that the spool has refused is still in
    /// delivery. Without such a batch, only the next write can show whether the spool still
    /// refuses.
    fn clear_spool_refusal(&mut self, id: BatchId) {
        let refused =
            |state: &BatchState| state.fresh().is_some_and(|fresh| fresh.refused_at.is_some());
        if !self.batches.iter().any(|(other, state)| *other != id && refused(state)) {
            self.spool_refusal = None;
        }
    }

    /// Records that the attempt of this batch was answered. The wait for an answer now counts from
    /// the start of the oldest attempt that is still in flight.
    fn attempt_answered(&mut self, id: BatchId) {
        let others = self.batches.iter().filter(|(other, _)| **other != id);
        let oldest = others.filter_map(|(_, state)| state.stage.attempt_since()).min();
        self.server.record_answer(oldest);
    }

    /// Inserts the next piece, or ends the batch if no piece is left. Parks the batch if the tables
    /// are no longer confirmed or no slot is free.
    fn continue_batch(&mut self, id: BatchId, now: Instant) {
        match self.batches.get(&id) {
            Some(state) if state.progress.pieces.is_empty() => self.finished(id, now),
            Some(_) if self.may_attempt(id) => self.attempt(id, now),
            Some(_) => self.park(id, now),
            None => {}
        }
    }

    /// Parks the batch until it may be inserted.
    fn park(&mut self, id: BatchId, now: Instant) {
        let Some(state) = self.batches.get_mut(&id) else { return };
        match state.stage.spooled() {
            Spooled::No => state.stage = Stage::Waiting { at: now },
            Spooled::Writing { since } => state.stage = Stage::Storing { since, attempt_at: now },
            Spooled::Yes(file) => self.release_to_replay(id, file, None, now),
        }
    }

    /// Ends a batch that has no pieces left: each row is in ClickHouse or in quarantine, or was
    /// left out or dropped.
    fn finished(&mut self, id: BatchId, now: Instant) {
        self.report_durable(id);
        let Some(state) = self.batches.get_mut(&id) else { return };
        self.totals.inserted +=
            state.positions - state.progress.positions_too_large - state.progress.erased;
        self.totals.erased += state.progress.erased;
        if self.settings.has_spool {
            self.totals.quarantined += state.progress.positions_too_large;
        } else {
            self.totals.dropped += state.progress.positions_too_large;
            self.totals.rejects_dropped += state.progress.rejects_too_large;
        }
        self.totals.batches_inserted += 1;
        self.replayed += u64::from(state.fresh().is_none());
        match state.stage.spooled() {
            Spooled::No => self.forget(id),
            Spooled::Writing { since } => state.stage = Stage::InsertedWhileStoring { since },
            Spooled::Yes(file) => {
                state.stage = Stage::Removing { file, since: now };
                self.files.remove(&file);
                self.commands.push_back(DeliveryCommand::Remove(id, file));
            }
        }
    }

    /// Handles a failed attempt: decides the next stage and the delay. Afterwards `handle_report`
    /// sends the batch to the spool if there is a [`Delivery::store_reason`].
    pub(super) fn failed(&mut self, id: BatchId, kind: FailureKind, why: String, now: Instant) {
        let Some(state) = self.batches.get_mut(&id) else { return };
        if kind == FailureKind::TooLarge {
            return self.too_large(id, why, now);
        }
        state.progress.attempts.failed(kind);
        let failures = state.progress.attempts.failures;
        let rows = state.progress.pieces.front().map_or(0, |piece| piece.rows.len());
        // During an outage, the files are attempted one after the other, so each file fails only
        // now and then. Count the failures of all files together.
        let consecutive_failures =
            if state.fresh().is_some() { failures } else { self.files.failures() + 1 };
        self.server.failed(kind, &why, consecutive_failures, now);
        let delay = retry::delay(failures, &mut self.jitter);
        let retry_in = match state.stage.spooled() {
            Spooled::Yes(file) => {
                self.release_to_replay(id, file, Some((kind, &why)), now);
                None
            }
            Spooled::Writing { since } => {
                state.stage = Stage::Storing { since, attempt_at: now + delay };
                None
            }
            Spooled::No => {
                state.stage = Stage::Waiting { at: now + delay };
                Some(delay)
            }
        };
        if self.failure_log.allow(&why, now) {
            self.notices.push_back(DeliveryNotice::InsertFailed {
                batch: id,
                rows,
                failures,
                retry_in,
                why,
            });
        }
    }

    /// Handles an insert that was refused as too large: halves the piece. A single row that is too
    /// large goes into quarantine; without a spool it is dropped and counted, or waits with its
    /// batch.
    fn too_large(&mut self, id: BatchId, why: String, now: Instant) {
        self.attempt_answered(id);
        let Some(state) = self.batches.get_mut(&id) else { return };
        let Some(Piece { insert, rows }) = state.progress.pieces.front().cloned() else { return };
        if rows.len() > 1 {
            state.progress.pieces.pop_front();
            let middle = rows.start + rows.len() / 2;
            state.progress.pieces.push_front(Piece { insert, rows: middle..rows.end });
            state.progress.pieces.push_front(Piece { insert, rows: rows.start..middle });
            if state.fresh().is_some() {
                self.lower_batch_bytes_max(id, rows.len(), why, now);
            }
            self.continue_batch(id, now);
        } else {
            let then = match (self.settings.has_spool, self.settings.may_drop_rows) {
                (true, _) => TooLargeRow::Quarantined,
                (false, true) => TooLargeRow::Dropped,
                (false, false) => TooLargeRow::Waits,
            };
            if self.too_large_row_log.allow(now) {
                self.notices.push_back(DeliveryNotice::RowTooLarge { why, then });
            }
            match then {
                TooLargeRow::Quarantined => self.quarantine_row(id, Piece { insert, rows }, now),
                TooLargeRow::Dropped => self.skip_row(id, now),
                TooLargeRow::Waits => {
                    state.progress.is_held_by_row = true;
                    state.stage = Stage::Waiting { at: now + STORE_RETRY_DELAY };
                }
            }
        }
    }

    /// Writes a row that is too large to a file of its own.
    fn quarantine_row(&mut self, id: BatchId, row: Piece, now: Instant) {
        let Some(state) = self.batches.get_mut(&id) else { return };
        let file = match state.stage.spooled() {
            // This batch is being written to the spool, and a batch has only one disk operation at
            // a time. If the next attempt is refused as too large again, the row goes to quarantine
            // then.
            Spooled::Writing { since } => {
                state.stage = Stage::Storing { since, attempt_at: now + DISK_PATIENCE };
                return;
            }
            Spooled::Yes(file) => Some(file),
            Spooled::No => None,
        };
        state.stage = Stage::QuarantiningRow { since: now, file };
        self.commands.push_back(DeliveryCommand::QuarantineRow(id, row));
    }

    /// Handles a row whose file in quarantine is fsynced.
    pub(super) fn row_quarantined(&mut self, id: BatchId, file: File, now: Instant) {
        self.spool_accepted();
        self.totals.spool_quarantined += 1;
        self.quarantined_bytes += file.bytes;
        self.skip_row(id, now);
    }

    /// Counts a row that is too large to insert, and continues with the next piece.
    fn skip_row(&mut self, id: BatchId, now: Instant) {
        let Some(state) = self.batches.get_mut(&id) else { return };
        let is_position = state.finish_piece();
        state.progress.positions_too_large += u64::from(is_position);
        state.progress.rejects_too_large += u64::from(!is_position);
        self.continue_batch(id, now);
    }

    /// Defers a file whose columns this version does not know. Its insert must be split, or checked
    /// for erased drivers, and unknown columns allow neither.
    pub(super) fn unknown_columns(&mut self, id: BatchId, now: Instant) {
        self.attempt_answered(id);
        let Some(state) = self.batches.get(&id) else { return };
        let Stage::InsertingStored { file, .. } = state.stage else {
            unreachable!("only a file can have the columns of another version")
        };
        let why = "its columns are those of another version of milepost, so it cannot be split for \
                   a size limit, nor can rows of erased drivers be left out";
        self.files.defer(&file, why, self.server.successes(), now);
        self.notices.push_back(DeliveryNotice::Deferred { file, why: why.to_owned() });
        self.forget(id);
    }

    /// Lowers the size limit of new batches to half of this batch's size, so that later batches are
    /// not refused as well.
    fn lower_batch_bytes_max(&mut self, id: BatchId, rows: usize, why: String, now: Instant) {
        let Some(fresh) = self.batches.get(&id).and_then(BatchState::fresh) else { return };
        if let Some(batch_bytes_max) = self.batch_size.refused(fresh.bytes, now) {
            self.notices.push_back(DeliveryNotice::TooLarge { rows, batch_bytes_max, why });
        }
    }

    /// Drops the batch from memory, and queues its file for replay. `failure`: the kind and the
    /// cause, if an attempt failed. The failure of a fresh batch does not count against its file,
    /// which was never replayed.
    fn release_to_replay(
        &mut self,
        id: BatchId,
        file: File,
        failure: Option<(FailureKind, &str)>,
        now: Instant,
    ) {
        self.report_durable(id);
        let Some(BatchState { origin, progress, .. }) = self.batches.remove(&id) else { return };
        self.commands.push_back(DeliveryCommand::Forget(id));
        let failure = match origin {
            Origin::Intake(_) => None,
            Origin::Spool => failure,
        };
        let Some((kind, why)) = failure else {
            return self.files.add(file, Some(progress), Some(now));
        };
        let failure = Failure { kind, why, progress };
        if self.files.failed(&file, failure, self.server.successes(), &mut self.jitter, now) {
            self.notices.push_back(DeliveryNotice::Deferred { file, why: why.to_owned() });
        }
    }

    /// Handles a write that the spool accepted: clears the refusal, and logs the recovery if the
    /// refusal was logged.
    fn spool_accepted(&mut self) {
        self.spool_refusal = None;
        let was_logged = std::mem::take(&mut self.is_refusal_logged);
        self.notices.extend(was_logged.then_some(DeliveryNotice::SpoolAcceptsAgain));
    }

    /// Handles a batch whose file and directory are fsynced: from here on its messages may be
    /// acknowledged.
    pub(super) fn stored(&mut self, id: BatchId, file: File, now: Instant) {
        self.spool_accepted();
        let Some(state) = self.batches.get_mut(&id) else { return };
        if let Some(reason) = state.fresh().and_then(|fresh| fresh.store_reason) {
            self.totals.stored[reason as usize] += 1;
        }
        match state.stage {
            Stage::InsertingAndStoring { since, .. } => {
                state.stage = Stage::InsertingStored { since, file };
                self.report_durable(id);
            }
            Stage::InsertedWhileStoring { .. } => {
                state.stage = Stage::Removing { file, since: now };
                self.commands.push_back(DeliveryCommand::Remove(id, file));
            }
            Stage::Storing { .. } => self.release_to_replay(id, file, None, now),
            Stage::Waiting { .. }
            | Stage::Inserting { .. }
            | Stage::InsertingStored { .. }
            | Stage::QuarantiningRow { .. }
            | Stage::Loading { .. }
            | Stage::Removing { .. } => unreachable!("the batch was not being stored"),
        }
    }

    /// Handles a refusal of the spool: it is full, or the disk failed.
    pub(super) fn refused(&mut self, id: BatchId, why: String, now: Instant) {
        self.totals.refused += 1;
        self.spool_refusal = Some(why.clone());
        if self.refusal_log.allow(now) {
            self.is_refusal_logged = true;
            self.notices.push_back(DeliveryNotice::SpoolRefuses(why.clone()));
        }
        let Some(state) = self.batches.get_mut(&id) else { return };
        if let Some(fresh) = state.fresh_mut() {
            fresh.refused_at = Some(now);
        }
        match state.stage {
            Stage::InsertingAndStoring { since, .. } => state.stage = Stage::Inserting { since },
            Stage::InsertedWhileStoring { .. } => self.forget(id),
            Stage::Storing { attempt_at: at, .. } => state.stage = Stage::Waiting { at },
            // Attempt the row again: the operator who makes room in the spool may also have raised
            // the size limit.
            Stage::QuarantiningRow { file: None, .. } => {
                state.stage = Stage::Waiting { at: now + STORE_RETRY_DELAY };
            }
            Stage::QuarantiningRow { file: Some(file), .. } => {
                self.release_to_replay(id, file, None, now);
                self.files.defer(&file, &why, self.server.successes(), now);
            }
            Stage::Waiting { .. }
            | Stage::Inserting { .. }
            | Stage::InsertingStored { .. }
            | Stage::Loading { .. }
            | Stage::Removing { .. } => unreachable!("nothing was being stored"),
        }
    }

    /// Handles the result of reading a file for its replay.
    pub(super) fn loaded(&mut self, id: BatchId, loaded: Loaded, now: Instant) {
        let Some(state) = self.batches.get_mut(&id) else { return };
        let Stage::Loading { file, .. } = state.stage else {
            unreachable!("the batch was not being loaded")
        };
        match loaded {
            Loaded::Rows(rows) => {
                // A file that was attempted before continues with the pieces that are left.
                if state.progress.pieces.is_empty() {
                    state.progress.pieces = pieces(rows);
                }
                self.continue_batch(id, now);
            }
            Loaded::Damaged(_) | Loaded::Gone => {
                state.stage = Stage::Removing { file, since: now };
                self.files.remove(&file);
                self.totals.quarantined += file.positions;
                self.totals.files_quarantined += 1;
                if let Loaded::Damaged(why) = loaded {
                    self.totals.spool_quarantined += 1;
                    self.quarantined_bytes += file.bytes;
                    self.notices.push_back(DeliveryNotice::Quarantined { file, why });
                    self.commands.push_back(DeliveryCommand::Quarantine(id, file));
                } else {
                    self.notices.push_back(DeliveryNotice::Gone(file));
                    self.commands.push_back(DeliveryCommand::Remove(id, file));
                }
            }
            Loaded::Newer(why) => {
                self.files.leave_for_newer_version(&file, &why);
                self.notices.push_back(DeliveryNotice::Deferred { file, why });
                self.forget(id);
            }
            Loaded::Unreadable(why) => {
                self.files.defer(&file, &why, self.server.successes(), now);
                self.files.pause_after_deferral(&mut self.jitter, now);
                self.notices.push_back(DeliveryNotice::Deferred { file, why });
                self.forget(id);
            }
        }
    }
}
