//! What delivery shows: deadlines, counts, `/readyz` lines and log lines.

use std::time::{Duration, Instant};

use super::stage::{BatchState, DISK_PATIENCE, Stage};
use super::{Delivery, LOOK_EVERY, SLOW_AFTER};
use crate::delivery::events::{Notice, Totals};

impl Delivery {
    /// When the next [timeout](Self::handle_timeout) is due, if nothing happens before.
    #[must_use]
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        if self.batches.is_empty() && self.files.len() == 0 {
            return None;
        }
        let slow = self.fresh().filter_map(|held| match held.stage {
            Stage::Inserting { since } if self.under_pressure && self.settings.spool => {
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
        slow.chain(self.files.deadline()).filter(|at| *at > now).chain([now + LOOK_EVERY]).min()
    }

    /// There are files that this binary can replay.
    #[must_use]
    pub fn has_more_to_replay(&self) -> bool {
        !self.is_idle() || self.files.has_any()
    }

    /// Nothing is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.batches.is_empty()
    }

    /// A file is being replayed.
    #[must_use]
    pub fn is_replaying(&self) -> bool {
        self.batches.values().any(|held| held.fresh().is_none())
    }

    /// Fresh batches of which something is under way: an acknowledgement may follow.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.fresh().any(BatchState::holds_insert_slot)
    }

    /// Lines of `/readyz`: why batches do not become durable.
    #[must_use]
    pub fn unready_reasons(&self, now: Instant) -> Vec<String> {
        let mut reasons = self.server.unready_reasons(now);
        reasons.extend(self.spool_refusal.as_ref().map(|why| format!("spool: {why}")));
        if let Some(for_) = self.disk_hangs(now) {
            reasons.push(format!("spool: {}", Notice::SpoolHangs { for_ }));
        }
        reasons.extend(self.files.unready_reason());
        reasons
    }

    /// Counts and levels now.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let in_flight = self.fresh().filter(|held| held.holds_insert_slot()).map(|held| held.positions).sum();
        Totals {
            in_flight,
            in_spool: self.files.positions(),
            spool_batches: self.files.len() as u64,
            spool_bytes: self.files.bytes() + self.quarantined_bytes,
            ..self.totals
        }
    }

    fn disk_hangs(&self, now: Instant) -> Option<Duration> {
        let since = self.batches.values().filter_map(|held| held.stage.disk_since()).min()?;
        Some(now.saturating_duration_since(since)).filter(|for_| *for_ >= DISK_PATIENCE)
    }

    pub(super) fn log(&mut self, now: Instant) {
        if let Some(for_) = self.server.no_answer_to_log(now) {
            self.notices.push_back(Notice::NoAnswer { for_ });
        }
        let hangs = self.disk_hangs(now);
        if self.disk_log.allow_while(hangs.is_some(), now) {
            self.notices.extend(hangs.map(|for_| Notice::SpoolHangs { for_ }));
        }
    }
}
