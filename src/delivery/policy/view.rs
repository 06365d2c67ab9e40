//! What the policy shows: when it is due, how it stands, and why it does not go on.

use std::time::{Duration, Instant};

use super::stage::{DISK_PATIENCE, Held, Stage};
use super::{LOOK_EVERY, Policy, SLOW_AFTER, SLOW_LOGGED_EVERY};
use crate::delivery::events::{Notice, Totals};

impl Policy {
    /// When the next [turn](Self::turn) is due, if nothing happens before.
    #[must_use]
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        if self.batches.is_empty() && self.files.len() == 0 {
            return None;
        }
        let slow = self.fresh().filter_map(|held| match held.stage {
            Stage::Inserting { since } if self.crowded && self.settings.spool => Some(since + SLOW_AFTER),
            Stage::Waiting { at } => Some(at),
            Stage::Inserting { .. }
            | Stage::InsertingAndStoring { .. }
            | Stage::InsertingStored { .. }
            | Stage::Storing { .. }
            | Stage::InsertedWhileStoring { .. }
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
    pub(crate) fn is_idle(&self) -> bool {
        self.batches.is_empty()
    }

    /// A file is being replayed.
    #[must_use]
    pub(crate) fn is_replaying(&self) -> bool {
        self.batches.values().any(|held| !held.fresh)
    }

    /// Fresh batches of which something is under way: an acknowledgement may follow.
    #[must_use]
    pub(crate) fn is_busy(&self) -> bool {
        self.fresh().any(Held::holds_insert_slot)
    }

    /// Why batches do not get through, a line each.
    #[must_use]
    pub fn troubles(&self, now: Instant) -> Vec<String> {
        let mut troubles = self.server.troubles(now);
        troubles.extend(self.spool_refusal.as_ref().map(|why| format!("spool: {why}")));
        if let Some(for_) = self.disk_hangs(now) {
            troubles.push(format!("spool: {}", Notice::SpoolHangs { for_ }));
        }
        troubles.extend(self.files.trouble());
        troubles
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

    pub(super) fn tell(&mut self, now: Instant) {
        if let Some(for_) = self.server.no_answer_to_tell(now) {
            self.notices.push_back(Notice::NoAnswer { for_ });
        }
        let hangs = self.disk_hangs(now);
        if let Some(for_) = hangs.filter(|_| !self.spool_hang_told) {
            self.notices.push_back(Notice::SpoolHangs { for_ });
        }
        self.spool_hang_told = hangs.is_some();
    }

    pub(super) fn tell_of_slowness(&mut self, now: Instant) {
        let told = self.slow_logged_at.is_some_and(|at| now < at + SLOW_LOGGED_EVERY);
        let oldest = self.fresh().filter_map(|held| held.stage.attempt_since()).min();
        if let Some(oldest) = oldest.filter(|_| !told) {
            self.slow_logged_at = Some(now);
            self.notices.push_back(Notice::Spooling { under_way: now.saturating_duration_since(oldest) });
        }
    }
}
