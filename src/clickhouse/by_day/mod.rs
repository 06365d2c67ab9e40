//! The move of `positions` from the order of drivers to the order of days, while fixes come in. ORDER BY cannot be altered.
//!
//! A view copies what is inserted from now on into a second table ([`second`]); what was there before is copied piece by piece
//! ([`pieces`]); then the two tables change names. Views follow the names: those that read `positions` read the new table from the next
//! insert on, and the copying view turns round and feeds the old one, so that hosts which exchange one after the other show the same.
//! Last, the view goes, and what inserts that were under way brought into the old table is copied.
//!
//! Guarantee: what is acknowledged before the exchange, or begins after it, is in `fixes` at every moment. An insert that the server begins
//! in that very moment can miss the view; its fixes are in the old table, and in `fixes` when the last step has copied them. Every step
//! can be repeated, and a stop in between is mended by the next run ([`records`]): identity is the content. Who is erased is not
//! copied. Refuses what it cannot do without a loss ([`refusals`]); one at a time does it ([`alone`]).

mod alone;
mod pieces;
mod records;
mod refusals;
mod second;
mod statements;

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::info;

use self::statements::{EXCHANGE, VIEW, changed_since, drop_view, last_pass, rename};
pub(crate) use self::statements::{OLD, plan};
pub(super) use self::statements::{POSITIONS, SECOND};
use super::client::{ClickHouse, Error};
use crate::config::Replication;

/// As the server shows where their order begins.
const BY_DRIVER: &str = "driver_id, ";
const BY_DAY: &str = "toDate(ts), driver_id, ";
/// Statements, as the server shows them.
const INSERTING: &str = "query_kind IN ('Insert', 'AsyncInsertFlush')";
const EXCHANGING: &str = "startsWith(query, 'EXCHANGE TABLES')";
/// No insert takes longer (`clickhouse.insert_timeout`).
const INSERT_MAX: Duration = Duration::from_secs(600);
const ASK_EVERY: Duration = Duration::from_millis(200);

/// How far the move is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Move {
    /// `positions` is in the order of drivers.
    ByDriver,
    /// Some hosts have exchanged the tables, others have not: the server sees to it.
    HostsDiffer,
    /// `positions` is in the order of days, and the other table may have what it lacks.
    Exchanged,
    /// `positions` is in the order of days, and that is all.
    ByDay,
}

impl ClickHouse {
    /// # Errors
    /// See [`Error`].
    pub(crate) async fn how_far_is_the_move(&self) -> Result<Move, Error> {
        let tables = self.layout.everywhere("system.tables");
        let database = &self.database;
        let sql = format!(
            "SELECT countIf(name = '{POSITIONS}' AND startsWith(sorting_key, '{BY_DRIVER}')), countIf(name = '{POSITIONS}' AND \
             startsWith(sorting_key, '{BY_DAY}')), countIf(name = '{SECOND}') FROM {tables} WHERE database = '{database}'"
        );
        let counts = self.numbers("asking for the order of positions", &sql).await?;
        Ok(match counts[..] {
            [0, _, 0] => Move::ByDay,
            [0, _, _] => Move::Exchanged,
            [_, 0, _] => Move::ByDriver,
            _ => Move::HostsDiffer,
        })
    }

    /// Whether the hosts have moved it: one that is new among them must have the same, or Keeper refuses it.
    pub(super) async fn positions_are_by_day(&self) -> Result<bool, Error> {
        let sql = format!(
            "SELECT count() > 0 FROM {} WHERE database = '{}' AND name = '{POSITIONS}' AND startsWith(sorting_key, '{BY_DAY}')",
            self.layout.everywhere("system.tables"),
            self.database
        );
        Ok(self.numbers("asking for the order of positions", &sql).await? == [1])
    }

    /// Makes the second table and the view that feeds it. Returns when every insert that did not pass the view has ended.
    ///
    /// # Errors
    /// See [`Error`]. [`Error::Refused`] where the tables cannot be exchanged, a column would be left behind, or another
    /// shard would be forgotten.
    pub(crate) async fn begin_the_move(&self) -> Result<(), Error> {
        self.ensure_it_can_be_moved().await?;
        self.record_begin().await?;
        self.make_the_second().await?;
        let columns = self.columns(POSITIONS).await?;
        self.ensure_every_column_has_its_place(&columns).await?;
        let sql = self.layout.statement(&statements::view(&columns));
        self.statement(&sql).await.map_err(|error| self.failed(format!("making {VIEW}"), error))?;
        self.until_earlier_statements_end(INSERTING).await
    }

    /// Exchanges the names, if that was not done, and nobody is doing it: doing it twice would undo it.
    ///
    /// # Errors
    /// See [`Error`].
    pub(crate) async fn exchange(&self) -> Result<(), Error> {
        let failed = |error| self.failed("exchanging the tables", error);
        if self.layout.replication() != Replication::None {
            self.statement(&self.layout.statement(&statements::sync())).await.map_err(failed)?;
        }
        self.record_step(EXCHANGE, "").await?;
        self.until_earlier_statements_end(EXCHANGING).await?;
        if self.how_far_is_the_move().await? == Move::ByDriver {
            self.statement(&self.layout.statement(&statements::exchange())).await.map_err(failed)?;
        }
        Ok(())
    }

    /// Copies what inserts that began before the exchange brought into the other table since, and gives that its last name.
    ///
    /// # Errors
    /// See [`Error`].
    pub(crate) async fn end_the_move(&self) -> Result<(), Error> {
        let failed = |error| self.failed("ending the move", error);
        self.statement(&self.layout.statement(&drop_view())).await.map_err(failed)?;
        self.until_earlier_statements_end(INSERTING).await?;
        let columns = self.columns(POSITIONS).await?;
        let what = "asking what changed since the exchange";
        for month in self.ask(what, &changed_since(&self.database)).await?.concat() {
            let sql = last_pass(&self.database, &columns, &month, self.layout.replication());
            self.run_copying("copying what came meanwhile", &sql).await?;
        }
        self.statement(&self.layout.statement(&rename())).await.map_err(failed)?;
        self.record_end().await
    }

    /// An insert finds its table and the views behind it when it begins. Those that are under way now have another answer than those
    /// that begin from now on.
    async fn until_earlier_statements_end(&self, which: &str) -> Result<(), Error> {
        if self.layout.replication() == Replication::Managed {
            info!(wait = ?INSERT_MAX, "waiting for statements that are under way; which, no host says for all");
            sleep(INSERT_MAX).await;
            return Ok(());
        }
        let what = "asking what is under way";
        let now = self.numbers(what, "SELECT toUnixTimestamp64Milli(now64(3))").await?;
        let sql = format!(
            "SELECT count() FROM {} WHERE {which} AND position(query, '{POSITIONS}') > 0 AND \
             toUnixTimestamp64Milli(now64(3)) - elapsed * 1000 <= {}",
            self.layout.everywhere("system.processes"),
            now.first().copied().unwrap_or_default(),
        );
        let began = Instant::now();
        while self.numbers(what, &sql).await? != [0] {
            if began.elapsed() > INSERT_MAX {
                return Err(Error::Refused(format!(
                    "a statement on positions has been under way for {INSERT_MAX:?}: end it (system.processes), and run milepost \
                     backfill again"
                )));
            }
            sleep(ASK_EVERY).await;
        }
        Ok(())
    }
}
