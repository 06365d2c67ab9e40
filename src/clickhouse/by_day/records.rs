//! What the move writes down of itself, in the table `backfills`.

use super::statements::{POSITIONS, SECOND, VIEW};
use crate::clickhouse::client::{ClickHouse, Error};
use crate::clickhouse::files::BACKFILLS;

/// The row that says whether there are two tables; its `until` is one of these two.
const MOVE: &str = "move";
const UNDER_WAY: &str = "under way";
pub(super) const ENDED: &str = "ended";

impl ClickHouse {
    /// Whether it has begun, and not ended: rows may be copied at any time.
    ///
    /// # Errors
    /// See [`Error`].
    pub(crate) async fn is_being_moved(&self) -> Result<bool, Error> {
        let sql = format!(
            "SELECT count() FROM {}.{BACKFILLS} FINAL WHERE job = '{MOVE}' AND until = '{UNDER_WAY}'",
            self.database
        );
        Ok(self.numbers("asking whether positions is being moved", &sql).await? != [0])
    }

    pub(super) async fn record_begin(&self) -> Result<(), Error> {
        self.note(MOVE, POSITIONS, UNDER_WAY).await
    }

    pub(super) async fn record_end(&self) -> Result<(), Error> {
        self.note(MOVE, POSITIONS, ENDED).await
    }

    pub(super) async fn record_step(&self, step: &str, until: &str) -> Result<(), Error> {
        self.note(&self.job().await?, step, until).await
    }

    /// What was copied, was so from this table to that one beside this view; with others it begins anew.
    pub(super) async fn job(&self) -> Result<String, Error> {
        let sql = format!(
            "SELECT arrayStringConcat(arraySort(groupArray(toString(uuid))), ' ') FROM system.tables \
             WHERE database = '{}' AND name IN ('{POSITIONS}', '{SECOND}', '{VIEW}')",
            self.database
        );
        Ok(self.ask("asking for the tables' ids", &sql).await?.concat().concat())
    }

    pub(super) async fn note(&self, job: &str, step: &str, until: &str) -> Result<(), Error> {
        // With the time: an insert of the same row again would be taken for a retry of the first, and done away with.
        let sql = format!(
            "INSERT INTO {}.{BACKFILLS} (job, step, until, done_at) SELECT '{job}', '{step}', '{until}', now64(3)",
            self.database
        );
        self.statement(&sql).await.map_err(|error| self.failed("recording how far it is", error))
    }
}
