//! The table in the order of days, while `positions` is still in that of drivers: made like `positions`, and changed with it.

use super::statements::{self, POSITIONS, SECOND, VIEW, select};
use crate::clickhouse::client::{ClickHouse, Error};
use crate::clickhouse::files::Migration;

impl ClickHouse {
    pub(super) async fn make_the_second(&self) -> Result<(), Error> {
        let create = self.as_it_was_changed(&statements::create(&self.layout)).await?;
        self.statement(&create).await.map_err(|error| self.failed(format!("making {SECOND}"), error))
    }

    /// A migration that changes `positions` while it is moved changes the second table, and the view.
    ///
    /// # Errors
    /// See [`Error`].
    pub(crate) async fn change_the_second_too(&self, migration: &Migration) -> Result<(), Error> {
        let failed = |error| self.failed(format!("migration {} on {SECOND}", migration.name), error);
        let alter = |table: &str| format!("ALTER TABLE {{database}}.{table}\n");
        if !migration.sql.contains(&alter(POSITIONS)) || self.columns(SECOND).await?.is_empty() {
            return Ok(());
        }
        let sql = migration.sql.replacen(&alter(POSITIONS), &alter(SECOND), 1);
        self.statement(&self.layout.statement(&sql)).await.map_err(failed)?;
        if !self.columns(VIEW).await?.is_empty() {
            let query = format!("MODIFY QUERY {}", select(&self.columns(POSITIONS).await?));
            self.statement(&self.layout.statement(&format!("{}{query}", alter(VIEW))))
                .await
                .map_err(failed)?;
        }
        Ok(())
    }

    /// Those that are stored.
    pub(super) async fn columns(&self, table: &str) -> Result<Vec<String>, Error> {
        let sql = format!(
            "SELECT name FROM system.columns WHERE database = '{}' AND table = '{table}' AND default_kind IN ('', 'DEFAULT') \
             ORDER BY position",
            self.database
        );
        Ok(self.ask("reading system.columns", &sql).await?.concat())
    }

    /// With the time-to-live and the disks that somebody gave to `positions`.
    async fn as_it_was_changed(&self, create: &str) -> Result<String, Error> {
        let sql = format!(
            "SELECT extract(engine_full, ' TTL (.*) SETTINGS '), storage_policy FROM system.tables \
             WHERE database = '{}' AND name = '{POSITIONS}'",
            self.database
        );
        let answer = self.ask("asking how positions was changed", &sql).await?;
        let cell = |n: usize| answer.first().and_then(|row| row.get(n)).map_or("", String::as_str);
        let (ttl, policy) = (cell(0), cell(1));
        let lines = create.lines().filter_map(|line| match line.starts_with("TTL ") {
            true if ttl.is_empty() => None,
            true => Some(format!("TTL {ttl}")),
            false => Some(line.to_owned()),
        });
        let create = lines.collect::<Vec<_>>().join("\n");
        Ok(match policy {
            "" | "default" => create,
            policy => format!("{create}, storage_policy = '{policy}'"),
        })
    }
}
