//! The tables, and the ledger of what was done to them.
//!
//! Guarantee: migrations are numbered one-statement files, each idempotent, recorded with a checksum; applying them twice,
//! or from two places at once, changes nothing.

use clickhouse::error::Error as ClientError;
use tracing::info;
use twox_hash::XxHash3_128;

use super::client::{ClickHouse, Error, QUESTION_TIMEOUT, STATEMENT_SECONDS_MAX, STATEMENT_TIMEOUT, within};
use super::errors::{UNKNOWN_DATABASE, UNKNOWN_TABLE, code};
use crate::pipeline::encode::TABLES;

include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

/// What the database of the parameterised views has after the other's name. They are apart because tools that ask every table for
/// its columns fail on them.
const ASK: &str = "_ask";
/// The view that keeps each driver's last position. Rows that came while it was away never passed it.
const LAST_POSITIONS_VIEW: &str = "last_positions_mv";
/// What it would have done with them. The maximum of the same rows is the same, however often it is asked.
const FILL_LAST_POSITIONS: &str = "INSERT INTO {database}.last_positions_state SELECT driver_id, \
    max((ts, seq, lat_e7, lng_e7, speed_cms, heading_cdeg, alt_dm, acc_dm, received_at)) AS last \
    FROM {database}.positions GROUP BY driver_id SETTINGS max_execution_time = 0, max_bytes_before_external_group_by = 1000000000";

/// One numbered file of `sql/`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Migration {
    /// The number.
    pub version: u32,
    /// File name without `.sql`.
    pub name: &'static str,
    /// One statement, with `{database}` where the database's name goes.
    pub sql: &'static str,
}

impl Migration {
    fn checksum(&self) -> String {
        format!("{:032x}", XxHash3_128::oneshot(self.sql.as_bytes()))
    }

    /// The table or view that it makes, if it makes one.
    fn makes(&self) -> Option<&'static str> {
        let name = self.sql.split_once("IF NOT EXISTS {database}.")?.1;
        name.split(|c: char| !c.is_alphanumeric() && c != '_').next()
    }
}

impl ClickHouse {
    /// Applies what is missing, in order; returns the names of what was applied.
    ///
    /// # Errors
    /// See [`Error`]. What was applied before stays applied.
    pub(crate) async fn migrate(&self) -> Result<Vec<&'static str>, Error> {
        self.create_database(&self.database).await?;
        self.create_database(&format!("{}{ASK}", self.database)).await?;
        let mut applied = Vec::new();
        for migration in self.pending().await? {
            let failed = |error| self.failed(format!("migration {}", migration.name), error);
            self.statement(&self.render(migration.sql)).await.map_err(failed)?;
            if migration.makes() == Some(LAST_POSITIONS_VIEW) {
                self.fill_last_positions().await?;
            }
            // Both are idempotent: a stop in between is mended by the next run, and another pod that does the
            // same at the same time does no harm.
            self.record(migration).await.map_err(failed)?;
            info!(migration = migration.name, "applied");
            applied.push(migration.name);
        }
        Ok(applied)
    }

    /// The view exists from now on; what was inserted before it did is added. Takes as long as reading the table takes.
    async fn fill_last_positions(&self) -> Result<(), Error> {
        let failed = |error| self.failed("filling last_positions", error);
        info!("filling last_positions from positions");
        self.client().query_raw(&self.render(FILL_LAST_POSITIONS)).execute().await.map_err(failed)
    }

    fn render(&self, sql: &str) -> String {
        sql.replace("{database}", &self.database)
    }

    /// The migrations this binary was built with that are not recorded in the database, in order.
    ///
    /// # Errors
    /// See [`Error`].
    pub(crate) async fn pending(&self) -> Result<Vec<Migration>, Error> {
        let recorded = self.recorded().await?;
        let mut pending = Vec::new();
        for migration in MIGRATIONS {
            match recorded.iter().find(|(version, _)| *version == migration.version) {
                None => pending.push(*migration),
                Some((_, recorded)) if *recorded == migration.checksum() => {}
                Some((_, recorded)) => {
                    return Err(Error::Edited {
                        name: migration.name,
                        recorded: recorded.clone(),
                        now: migration.checksum(),
                    });
                }
            }
        }
        Ok(pending)
    }

    /// Columns of ours that a table lacks, or has with another type, in words. RowBinary carries no types: the server
    /// would take other numbers for ours.
    ///
    /// # Errors
    /// See [`Error`].
    pub(crate) async fn misfits(&self) -> Result<Vec<String>, Error> {
        let sql =
            format!("SELECT table, name, type FROM system.columns WHERE database = '{}'", self.database);
        let rows = self.ask("reading system.columns", &sql).await?;
        let mut misfits = Vec::new();
        for table in TABLES {
            let columns: Vec<&Vec<String>> =
                rows.iter().filter(|row| row.first().is_some_and(|name| name == table.name)).collect();
            if columns.is_empty() {
                misfits.push(format!("{} is missing", table.name));
                continue;
            }
            for (name, kind) in table.columns {
                let there = columns.iter().find(|row| row.get(1).is_some_and(|column| column == name));
                match there.and_then(|row| row.get(2)) {
                    None => misfits.push(format!("{}.{name} is missing", table.name)),
                    Some(other) if !kind.fits(other) => {
                        misfits
                            .push(format!("{}.{name} is {other}, which is not what is inserted", table.name));
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(misfits)
    }

    /// Only where it is missing: a user who may not create databases can be given one.
    async fn create_database(&self, name: &str) -> Result<(), Error> {
        let failed = |error| self.failed(format!("creating database {name}"), error);
        let sql = format!("SELECT count() FROM system.databases WHERE name = '{name}'");
        let count = self.client().query_raw(&sql).fetch_one::<u64>();
        if within(QUESTION_TIMEOUT, count).await.map_err(failed)? == 0 {
            self.statement(&format!("CREATE DATABASE IF NOT EXISTS {name}")).await.map_err(failed)?;
        }
        Ok(())
    }

    /// Version and checksum of each.
    async fn recorded(&self) -> Result<Vec<(u32, String)>, Error> {
        let sql = format!(
            "SELECT version, checksum FROM {}.schema_migrations FINAL ORDER BY version",
            self.database
        );
        let recorded = self.client().query_raw(&sql).fetch_all::<(u32, String)>();
        match within(QUESTION_TIMEOUT, recorded).await {
            Ok(recorded) => Ok(recorded),
            Err(error) if matches!(code(&error), Some(UNKNOWN_TABLE | UNKNOWN_DATABASE)) => Ok(Vec::new()),
            Err(error) => Err(self.failed("reading the recorded migrations", error)),
        }
    }

    /// The tables and views that the migrations make.
    #[must_use]
    pub(crate) fn tables() -> Vec<&'static str> {
        MIGRATIONS.iter().filter_map(Migration::makes).collect()
    }

    /// The parameterised views that the migrations make, and the database they are in.
    #[must_use]
    pub(crate) fn views(&self) -> (String, Vec<&'static str>) {
        let names = MIGRATIONS.iter().filter_map(|migration| {
            let name = migration.sql.split_once("VIEW {database}_ask.")?.1;
            name.split(|c: char| !c.is_alphanumeric() && c != '_').next()
        });
        (format!("{}{ASK}", self.database), names.collect())
    }

    async fn record(&self, migration: Migration) -> Result<(), ClientError> {
        self.statement(&format!(
            "INSERT INTO {}.schema_migrations (version, name, checksum) VALUES ({}, '{}', '{}')",
            self.database,
            migration.version,
            migration.name,
            migration.checksum(),
        ))
        .await
    }

    async fn statement(&self, sql: &str) -> Result<(), ClientError> {
        let query = self.client().query_raw(sql).with_setting("max_execution_time", STATEMENT_SECONDS_MAX);
        within(STATEMENT_TIMEOUT, query.execute()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_are_numbered_one_statement_files_in_order() {
        assert!(MIGRATIONS.windows(2).all(|pair| pair[0].version < pair[1].version));
        for migration in MIGRATIONS {
            assert!(
                !migration.sql.trim_end().contains(';'),
                "{}: one statement, no semicolon",
                migration.name
            );
            assert!(
                migration.sql.contains("{database}"),
                "{}: the database is configuration",
                migration.name
            );
        }
        assert!(MIGRATIONS[0].sql.contains("schema_migrations"), "what records the others comes first");
        assert!(MIGRATIONS.iter().any(|migration| migration.makes() == Some(LAST_POSITIONS_VIEW)));
    }
}
