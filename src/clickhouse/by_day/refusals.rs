//! What a person must change before `positions` can be moved without a loss.

use super::statements::{OLD, POSITIONS, SECOND, VIEW};
use crate::clickhouse::client::{ClickHouse, Error};
use crate::config::Replication;

impl ClickHouse {
    /// # Errors
    /// [`Error::Refused`]: where the tables cannot be exchanged, on all hosts at once, or another shard would be forgotten.
    pub(super) async fn ensure_it_can_be_moved(&self) -> Result<(), Error> {
        self.ensure_all_hosts_exchange().await?;
        self.ensure_tables_can_be_exchanged().await?;
        self.ensure_it_may_exchange().await
    }

    async fn ensure_all_hosts_exchange(&self) -> Result<(), Error> {
        let Some(cluster) = self.layout.cluster() else {
            return match self.layout.replication() {
                Replication::None | Replication::Managed => Ok(()),
                Replication::Macros => Err(Error::Refused(
                    "all hosts must exchange the tables: set clickhouse.cluster to a cluster of all of them"
                        .to_owned(),
                )),
            };
        };
        let sql = format!("SELECT uniqExact(_shard_num) FROM clusterAllReplicas('{cluster}', system.one)");
        if self.layout.shards().is_some() || self.numbers("counting the shards", &sql).await? != [1] {
            return Err(Error::Refused(format!(
                "the cluster {cluster} has several shards, and only one would be copied: see docs/clickhouse.md"
            )));
        }
        Ok(())
    }

    async fn ensure_tables_can_be_exchanged(&self) -> Result<(), Error> {
        let database = &self.database;
        let sql = format!("SELECT engine FROM system.databases WHERE name = '{database}'");
        let engine = self.ask("asking for the database's engine", &sql).await?.concat().concat();
        if !matches!(&*engine, "Atomic" | "Replicated" | "Shared") {
            return Err(Error::Refused(format!(
                "the database {database} is {engine}, in which tables cannot be exchanged: Atomic is wanted. See \
                 convert_ordinary_to_atomic in ClickHouse's documentation"
            )));
        }
        let sql =
            format!("SELECT count() FROM system.tables WHERE database = '{database}' AND name = '{OLD}'");
        if self.numbers("looking for what an earlier move left", &sql).await? != [0] {
            return Err(Error::Refused(format!(
                "{database}.{OLD} is there, from an earlier move: look whether you need it, then drop or rename it"
            )));
        }
        Ok(())
    }

    async fn ensure_it_may_exchange(&self) -> Result<(), Error> {
        let mut missing = Vec::new();
        for (grant, table) in [("DROP TABLE", POSITIONS), ("DROP TABLE", SECOND), ("DROP VIEW", VIEW)] {
            let grant = format!("{grant} ON {}.{table}", self.database);
            // A server without this statement says so later.
            let answer = self.ask("CHECK GRANT", &format!("CHECK GRANT {grant}")).await;
            if answer.is_ok_and(|answer| answer.concat().concat() == "0") {
                missing.push(grant);
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        Err(Error::Refused(format!(
            "exchanging tables wants grants that this user lacks: {}. deploy/clickhouse/access.sql has them",
            missing.join(", ")
        )))
    }

    /// # Errors
    /// [`Error::Refused`]: a column would be left behind.
    pub(super) async fn ensure_every_column_has_its_place(&self, columns: &[String]) -> Result<(), Error> {
        let there = self.columns(SECOND).await?;
        let left: Vec<&str> =
            columns.iter().filter(|name| !there.contains(name)).map(String::as_str).collect();
        if left.is_empty() {
            return Ok(());
        }
        Err(Error::Refused(format!(
            "positions has columns that are not milepost's: {}. Add them to {}.{SECOND} with ALTER TABLE … ADD COLUMN, \
             and run milepost backfill again",
            left.join(", "),
            self.database
        )))
    }
}
