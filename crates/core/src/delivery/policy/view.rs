//! Read-only accessors of [`Delivery`]: deadlines, counts, `/readyz` lines and log lines.

use std::time::{Duration, Instant};

use super::stage::{BatchState, DISK_PATIENCE, Stage};
use super::{Delivery, RECHECK_EVERY, SLOW_AFTER};
use crate::delivery::events::{DeliveryNotice, DeliveryTotals};

impl Delivery {
    /// Returns when [`handle_timeout`](Self::handle_timeout) is due, unless a report arrives first.
    #[must_use]
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        if self.batches.is_empty() && self.files.len() == 0 {
            return None;
        }
        let batches = self.fresh().filter_map(|state| match state.stage {
            Stage::Inserting { since } if self.under_pressure && self.settings.has_spool => {
                Some(since + SLOW_AFTER)
            }
            Stage::Waiting { at } => Some(at),
            Stage::Inserting { .. }
            | Stage::InsertingAndStoring { .. }
            | Stage::InsertingStored { .. }
            | Stage::Storing { .. }
            | Stage::InsertedWhileStoring { .. }
            | Stage::QuarantiningRow { .. }
            | Stage::Loading { .. }
            | Stage::Removing { .. } => None,
        });
        let due = batches.chain(self.files.deadline()).filter(|at| *at > now);
        due.chain([now + RECHECK_EVERY]).min()
    }

    /// Returns whether a batch is in delivery, or a file waits that this version can replay.
    #[must_use]
    pub fn has_batches_to_deliver(&self) -> bool {
        !self.is_idle() || self.files.has_replayable()
    }

    /// Returns whether no batch is in delivery.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.batches.is_empty()
    }

    /// Returns whether a file is being replayed.
    #[must_use]
    pub fn is_replaying(&self) -> bool {
        self.batches.values().any(|state| state.fresh().is_none())
    }

    /// Returns whether a fresh batch holds an insert slot. The broker may then be waiting for the
    /// acknowledgements of that batch.
    #[must_use]
    pub fn holds_insert_slot(&self) -> bool {
        self.fresh().any(BatchState::holds_insert_slot)
    }

    /// Returns whether every batch from the intake is durable, in ClickHouse or in an fsynced file.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.fresh().filter_map(BatchState::fresh).all(|fresh| fresh.is_reported)
    }

    /// Returns the lines of `/readyz` that explain why batches may not become durable.
    #[must_use]
    pub fn unready_reasons(&self, now: Instant) -> Vec<String> {
        let mut reasons = self.server.unready_reasons(now);
        reasons.extend(self.spool_refusal.as_ref().map(|why| format!("spool: {why}")));
        if let Some(waited) = self.disk_hung_for(now) {
            reasons.push(format!("spool: {}", DeliveryNotice::SpoolHangs { waited }));
        }
        reasons.extend(self.files.unready_reason());
        reasons
    }

    /// Returns the current values of the counters and gauges.
    #[must_use]
    pub fn totals(&self) -> DeliveryTotals {
        let mut totals = DeliveryTotals {
            in_spool: self.files.positions(),
            spool_batches: self.files.len() as u64,
            spool_bytes: self.files.bytes() + self.quarantined_bytes,
            rows_held: self.fresh().filter(|state| state.progress.is_held_by_row).count() as u64,
            ..self.totals
        };
        for state in self.fresh().filter(|state| state.holds_insert_slot()) {
            // An insert that still runs usually succeeds and removes the file. A process that is
            // leaving does not wait for it, so its file stays for the next process.
            let file = state.stage.stored_file().filter(|_| self.leaving_since.is_some());
            if let Some(file) = file {
                totals.in_spool += file.positions;
                totals.spool_batches += 1;
                totals.spool_bytes += file.bytes;
            } else {
                totals.in_flight += state.positions;
            }
        }
        totals
    }

    /// Returns for how long the oldest disk operation has run, if it counts as hung.
    fn disk_hung_for(&self, now: Instant) -> Option<Duration> {
        let since = self.batches.values().filter_map(|state| state.stage.disk_since()).min()?;
        Some(now.saturating_duration_since(since)).filter(|waited| *waited >= DISK_PATIENCE)
    }

    /// Logs that an insert has no answer, and that the disk hangs. The first is logged once until
    /// an insert commits, the second once until the disk answers.
    pub(super) fn log(&mut self, now: Instant) {
        if let Some(waited) = self.server.no_answer_to_log(now) {
            self.notices.push_back(DeliveryNotice::NoAnswer { waited });
        }
        let hangs = self.disk_hung_for(now);
        if self.disk_log.allow_while(hangs.is_some(), now) {
            self.notices.extend(hangs.map(|waited| DeliveryNotice::SpoolHangs { waited }));
        }
    }
}
