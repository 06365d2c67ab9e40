//! What was in `positions` before the move: month by month, and a month in pieces, each recorded when it is copied.

use std::time::Duration;

use super::statements::{self, POSITIONS, only_of};
use crate::clickhouse::client::{ClickHouse, Error, within};
use crate::clickhouse::files::BACKFILLS;

/// So many rows of a month are copied at once.
const PIECE_ROWS: u64 = 20_000_000;
const PIECE_SECONDS_MAX: &str = "3500";
const PIECE_TIMEOUT: Duration = Duration::from_secs(3600);

/// A partition that is to be copied.
#[derive(Debug, Clone)]
pub(crate) struct Month {
    /// Such as `202606`.
    pub name: String,
    /// In it, each row that is there twice counted twice.
    pub rows: u64,
    /// See [`Piece::until`]; `None`: nothing was copied yet, or nothing by this move.
    pub copied_until: Option<String>,
}

/// Some of a month's drivers, in order.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    /// Those behind this one. Drivers are in hexadecimal here, whatever is in their names.
    after: String,
    /// Up to this one; empty: all.
    pub until: String,
    /// About.
    pub rows: u64,
}

impl ClickHouse {
    /// The months there are, and how far each is.
    ///
    /// # Errors
    /// See [`Error`].
    pub(crate) async fn months(&self) -> Result<Vec<Month>, Error> {
        let (database, job) = (&self.database, self.job().await?);
        let sql = format!(
            "SELECT partition, rows, until FROM (SELECT partition_id AS partition, sum(rows) AS rows FROM system.parts \
             WHERE database = '{database}' AND table = '{POSITIONS}' AND active GROUP BY partition) AS there \
             LEFT JOIN (SELECT step, concat('-', until) AS until FROM {database}.{BACKFILLS} FINAL WHERE job = '{job}') AS done \
             ON partition = step ORDER BY partition"
        );
        let rows = self.ask("asking for the months", &sql).await?;
        Ok(rows.iter().map(|row| month(row)).collect())
    }

    /// The next piece of a month: the drivers behind this one, in the order of the table.
    ///
    /// # Errors
    /// See [`Error`].
    pub(crate) async fn next_piece(&self, month: &Month, after: &str) -> Result<Piece, Error> {
        let sql = format!(
            "SELECT count(), if(count() < {PIECE_ROWS}, '', hex(max(driver_id))) FROM (SELECT driver_id FROM {}.{POSITIONS} \
             WHERE {} ORDER BY driver_id LIMIT {PIECE_ROWS}) SETTINGS max_execution_time = {PIECE_SECONDS_MAX}",
            self.database,
            only_of(&month.name, after, "")
        );
        let answer = async { self.client().query_raw(&sql).fetch_one::<(u64, String)>().await };
        let what = format!("looking for a piece of {}", month.name);
        let (rows, until) = within(PIECE_TIMEOUT, answer).await.map_err(|error| self.failed(what, error))?;
        Ok(Piece { after: after.to_owned(), until, rows })
    }

    /// Copies it, and records that.
    ///
    /// # Errors
    /// See [`Error`].
    pub(crate) async fn copy(&self, month: &Month, piece: &Piece) -> Result<(), Error> {
        let only = only_of(&month.name, &piece.after, &piece.until);
        let sql = statements::copy(&self.columns(POSITIONS).await?, &only, self.layout.replication());
        self.run_copying("copying a piece", &sql).await?;
        self.record_step(&month.name, &piece.until).await
    }

    pub(super) async fn run_copying(&self, what: &str, sql: &str) -> Result<(), Error> {
        let sql = self.layout.statement(sql);
        let query = self.client().query_raw(&sql).with_setting("max_execution_time", PIECE_SECONDS_MAX);
        within(PIECE_TIMEOUT, query.execute()).await.map_err(|error| self.failed(what, error))
    }
}

/// A row of [`ClickHouse::months`]: a step that was recorded begins with a dash.
fn month(row: &[String]) -> Month {
    let cell = |n: usize| row.get(n).map_or("", String::as_str);
    let copied_until = cell(2).strip_prefix('-').map(str::to_owned);
    Month { name: cell(0).to_owned(), rows: cell(1).parse().unwrap_or_default(), copied_until }
}
