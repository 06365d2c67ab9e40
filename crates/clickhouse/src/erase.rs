//! The queries and statements of `milepost erase`, and the list of erased drivers, which every
//! milepost process reads.
//!
//! A lightweight DELETE hides rows from all queries at once. APPLY DELETED MASK then rewrites the
//! parts without the hidden rows. A plain ALTER TABLE … DELETE would not remove these rows, because
//! it cannot see them, and skips their parts. The old parts stay on the disk for
//! `old_parts_lifetime`, eight minutes. A part that a mutation has not processed has a
//! `data_version` below the mutation's number; the query for old parts finds them by this.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tracing::warn;

use super::client::{ClickHouse, Error};
use super::column::{identifier, quoted};
use super::errors::NO_GRANT;
use super::files::{ERASED, MIGRATIONS, Migration};
use super::rows_body::now_with_suspends;
use milepost_config::Replication;
use milepost_core::counted::counted;
use milepost_core::delivery::sink::FailureKind;
use milepost_core::erased::{ERASED_MAX, Erased, ErasedVersion};
use milepost_core::screened::ErasedSnapshot;
use milepost_decode::position::DriverId;

/// Maximum number of old parts per table that [`Traces`] names.
const OLD_PARTS_NAMED_MAX: u8 = 3;
/// Maximum number of versions of fences that [`ClickHouse::fences_naming`] returns.
const FENCES_NAMED_MAX: u8 = 100;

/// A table with a column `driver_id`: one of milepost's, or one that the operator has created in
/// the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableOfDrivers {
    pub name: String,
    /// Whether the column is a string, as in milepost's tables. Values of other types, such as
    /// numbers and UUIDs, are converted to strings before they are compared.
    is_string: bool,
}

impl TableOfDrivers {
    /// Returns the SQL condition for a driver's rows. A string column uses the table's index.
    fn driver_condition(&self, driver_id: &DriverId) -> String {
        let column = if self.is_string { "driver_id" } else { "toString(driver_id)" };
        format!("{column} = '{}'", driver_id.as_str())
    }
}

/// The data of a driver that a table still has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traces {
    pub table: TableOfDrivers,
    /// Number of rows that queries see.
    pub seen: u64,
    /// Number of rows on the disk, hidden ones included, in parts that are in use.
    pub stored: u64,
    /// Number of unfinished mutations of the table, including those of other users.
    pub mutations: u64,
    /// Failure of one of these mutations; empty if none fails.
    pub failure: String,
    /// Whether rows were hidden after the last removal of hidden rows. Such rows may be in old
    /// parts that `old_parts` does not count yet, even if a merge has removed them from the parts
    /// in use.
    pub is_masked: bool,
    /// Number of inactive parts that are still on the disk and that the last erasure, of any
    /// driver, has not processed.
    pub old_parts: u64,
    /// Names of some old parts, and why each is still there, in ClickHouse's words.
    pub old_part_names: String,
}

/// The hosts that are asked for data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hosts {
    /// Only one server exists.
    OnlyServer,
    /// Other servers may exist, but the server in use knows no cluster with which to reach them.
    OthersUnknown,
    /// All servers of this cluster.
    Cluster(String),
}

impl Hosts {
    /// Returns the name under which a query reads the table on these hosts.
    fn table(&self, database: &str, table: &str) -> String {
        let table = identifier(table);
        match self {
            Self::Cluster(cluster) => {
                format!("clusterAllReplicas('{cluster}', {database}.{table})")
            }
            Self::OnlyServer | Self::OthersUnknown => format!("{database}.{table}"),
        }
    }
}

impl ClickHouse {
    /// Reads the list of erased drivers. If the replica that answers lags and returns an older list
    /// than an earlier query did, returns the newer list. Fails if the list is longer than
    /// [`ERASED_MAX`].
    pub async fn erased(&self) -> Result<ErasedSnapshot, Error> {
        let step = "reading the list of erased drivers";
        // One query returns the list, its version and its length. The first row has no id, and
        // carries the version even if no driver is erased.
        let sql = format!(
            "SELECT arrayJoin(arrayPushFront(ids, '')), changed, drivers, length(ids) FROM \
             (SELECT groupArrayIf(driver_id, NOT is_lifted) AS ids, \
             toUnixTimestamp64Milli(max(written_at)) AS changed, count() AS drivers \
             FROM {}.{ERASED} FINAL) LIMIT {} \
             SETTINGS empty_result_for_aggregation_by_empty_set = 0",
            self.database,
            ERASED_MAX + 2
        );
        // The list is as old as the start of the query, because the answer may take a while.
        let read_at = now_with_suspends();
        let rows: Vec<[String; 4]> = self.query_rows(step, &sql).await?;
        if rows.len() > ERASED_MAX + 1 {
            let why = format!(
                "more than {ERASED_MAX} drivers are erased: lift some (milepost erase --lift)"
            );
            return Err(Error::unusable_answer(step, FailureKind::Permanent, why));
        }
        // A proxy may pass on an answer that ClickHouse did not finish. With a truncated list, rows
        // of erased drivers would be stored.
        let version = rows.first().and_then(|[_, changed_ms, drivers, length]| {
            let is_one_version = rows.iter().all(|[_, row_changed_ms, row_drivers, row_length]| {
                (row_changed_ms, row_drivers, row_length) == (changed_ms, drivers, length)
            });
            let has_all = length.parse() == Ok(rows.len() - 1);
            let version = ErasedVersion {
                changed_ms: changed_ms.parse().ok()?,
                drivers: drivers.parse().ok()?,
            };
            (is_one_version && has_all).then_some(version)
        });
        let Some(version) = version else {
            let why = "the answer lacks the version of the list, or its end: it was cut off, or is \
                       not ClickHouse's";
            return Err(Error::unusable_answer(step, FailureKind::Transient, why));
        };
        let ids = rows.into_iter().map(|[id, ..]| id).filter(|id| !id.is_empty());
        let answer = Arc::new(Erased::new(ids).with_version(version));
        let mut newest = self.erased.lock().unwrap_or_else(PoisonError::into_inner);
        if newest.update(answer, read_at) {
            warn!(
                "this replica's list of erased drivers is older than the last one that was read: \
                 the newer one stays in force"
            );
        }
        Ok(ErasedSnapshot::new(newest.list(), read_at))
    }

    /// Adds a driver to the list of erased drivers, or lifts the erasure.
    pub async fn erase(&self, driver_id: &DriverId, is_lifted: bool) -> Result<(), Error> {
        // The row must be newer than the driver's previous one, even if the server's clock was set
        // back.
        let sql = format!(
            "INSERT INTO {0}.{ERASED} (driver_id, is_lifted, written_at) SELECT '{1}', {2}, \
             greatest(now64(3), max(written_at) + INTERVAL 1 MILLISECOND) \
             FROM {0}.{ERASED} WHERE driver_id = '{1}'",
            self.database,
            driver_id.as_str(),
            u8::from(is_lifted)
        );
        self.statement("updating the list of erased drivers", &sql).await
    }

    /// Returns how long ago this driver was erased; `None` if the driver was not erased, or the
    /// erasure was lifted.
    pub async fn erased_for(&self, driver_id: &DriverId) -> Result<Option<Duration>, Error> {
        let sql = format!(
            "SELECT toUInt64(greatest(0, dateDiff('second', written_at, now64(3)))) \
             FROM {}.{ERASED} FINAL \
             WHERE driver_id = '{}' AND NOT is_lifted",
            self.database,
            driver_id.as_str()
        );
        let step = "reading the list of erased drivers";
        let Some(seconds) = self.value(step, &sql).await? else { return Ok(None) };
        let seconds = seconds.parse().map_err(|_| Error::not_clickhouse(step, "number"))?;
        Ok(Some(Duration::from_secs(seconds)))
    }

    /// Returns every table with rows of drivers. `positions` is first, because other tables are
    /// filled from `positions`. Fails if the login cannot see one of milepost's tables: the erasure
    /// would miss the rows of that table.
    pub async fn tables_of_drivers(&self) -> Result<Vec<TableOfDrivers>, Error> {
        let sql = format!(
            "SELECT match(type, '^(LowCardinality\\\\()?(Nullable\\\\()?String\\\\)*$'), table \
             FROM system.columns WHERE database = '{0}' AND name = 'driver_id' \
             AND table != '{ERASED}' AND table IN \
             (SELECT name FROM system.tables WHERE database = '{0}' AND engine LIKE '%MergeTree') \
             ORDER BY table != 'positions', table",
            self.database
        );
        let step = "asking for the tables";
        let table =
            |[is_string, name]: [String; 2]| TableOfDrivers { is_string: is_string == "1", name };
        let tables: Vec<TableOfDrivers> =
            self.query_rows(step, &sql).await?.into_iter().map(table).collect();
        // system.columns leaves out tables that this login may not see. Compare the answer with the
        // files that create a column `driver_id`, directly or through `{stored}` or
        // `{stored_plain}`.
        let files_of_drivers = MIGRATIONS.iter().filter(|migration| {
            ["\n    driver_id ", "\n{stored"].iter().any(|column| migration.sql.contains(column))
        });
        let expected =
            files_of_drivers.filter_map(Migration::table).filter(|table| *table != ERASED);
        let invisible: Vec<&str> =
            expected.filter(|table| !tables.iter().any(|visible| visible.name == *table)).collect();
        if invisible.is_empty() {
            return Ok(tables);
        }
        let why = format!(
            "this login cannot see {}: grant it what milepost_eraser has in access.sql",
            invisible.join(", ")
        );
        Err(Error::unusable_answer(step, FailureKind::Permanent, why))
    }

    /// Returns the operator's tables with rows of the driver that `erase` cannot remove, each with
    /// the number of rows. The table's engine does not support DELETE, or its column with the
    /// driver's id has another name than `driver_id`, such as `driverId`.
    pub async fn rows_out_of_reach(&self, driver_id: &DriverId) -> Result<Vec<String>, Error> {
        let sql = format!(
            "SELECT c.table, c.name, t.engine FROM system.columns AS c \
             INNER JOIN system.tables AS t \
             ON t.database = c.database AND t.name = c.table \
             WHERE c.database = '{}' AND lower(replaceAll(c.name, '_', '')) = 'driverid' \
             AND (t.engine IN ('Log', 'TinyLog', 'StripeLog', 'Memory', 'EmbeddedRocksDB', \
             'KeeperMap', 'Join') \
             OR t.engine LIKE '%MergeTree' AND c.name != 'driver_id') ORDER BY c.table",
            self.database
        );
        let columns: Vec<[String; 3]> =
            self.query_rows("asking for tables that erase does not reach", &sql).await?;
        let mut out_of_reach = Vec::new();
        for [table, column, engine] in columns {
            let sql = format!(
                "SELECT count() FROM {}.{} WHERE toString({}) = '{}'",
                self.database,
                identifier(&table),
                identifier(&column),
                driver_id.as_str()
            );
            let rows = match self.number("counting rows that erase does not reach", &sql).await {
                Ok(0) => continue,
                Ok(rows) => counted(rows, "row"),
                Err(error) if error.code().is_some() => "cannot be counted".to_owned(),
                Err(error) => return Err(error),
            };
            out_of_reach.push(format!("{table} ({engine}, column {column}): {rows}"));
        }
        Ok(out_of_reach)
    }

    /// Returns the versions of fences whose column `drivers` names this driver, such as `depot` or
    /// `depot (valid_from 2026-11-28 10:00:00.000)`. Returns `None` if the login may not read the
    /// columns. `erase` does not change fences, because a fence without ids is for all drivers.
    pub async fn fences_naming(&self, driver_id: &DriverId) -> Result<Option<Vec<String>>, Error> {
        let sql = format!(
            "SELECT replaceRegexpAll(toValidUTF8(name), '[[:cntrl:]]', ' ') \
             || if(toUnixTimestamp64Milli(valid_from) = 0, '', \
             format(' (valid_from {{}})', toString(valid_from))) \
             FROM {}.fences FINAL WHERE has(drivers, '{}') ORDER BY 1 LIMIT {FENCES_NAMED_MAX}",
            self.database,
            driver_id.as_str()
        );
        let fences = self.query_rows("asking for fences of the driver", &sql).await;
        match fences {
            Ok(fences) => Ok(Some(fences.into_iter().map(|[name]| name).collect())),
            Err(error) if error.code() == Some(NO_GRANT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the hosts to query for a driver's data (see [`Hosts`]).
    pub async fn hosts(&self) -> Result<Hosts, Error> {
        Ok(match (self.layout.cluster(), self.layout.config.replication) {
            (Some(cluster), _) => Hosts::Cluster(cluster.to_owned()),
            (None, Replication::None) => Hosts::OnlyServer,
            (None, Replication::Macros) => Hosts::OthersUnknown,
            // A Replicated database is a cluster of the same name; ClickHouse Cloud names it
            // `default`.
            (None, Replication::Managed) => {
                let sql = format!(
                    "SELECT DISTINCT cluster FROM system.clusters \
                     WHERE cluster IN ('{0}', 'default') ORDER BY cluster != '{0}'",
                    self.database
                );
                self.value("asking for the cluster", &sql)
                    .await?
                    .map_or(Hosts::OthersUnknown, Hosts::Cluster)
            }
        })
    }

    /// Returns the data of this driver that each of these tables still has, on these hosts.
    pub async fn traces(
        &self,
        hosts: &Hosts,
        tables: &[TableOfDrivers],
        driver_id: &DriverId,
    ) -> Result<Vec<Traces>, Error> {
        let names = tables.iter().map(|table| quoted(&table.name)).collect::<Vec<_>>().join(", ");
        let table_filter = format!("WHERE database = '{}' AND table IN ({names})", self.database);
        let (parts, mutations) =
            (hosts.table("system", "parts"), hosts.table("system", "mutations"));
        let count = |table: &TableOfDrivers| {
            let (name, rows) = (quoted(&table.name), hosts.table(&self.database, &table.name));
            format!(
                "SELECT {name} AS table, count() FROM {rows} WHERE {}",
                table.driver_condition(driver_id)
            )
        };
        let counts = tables.iter().map(count).collect::<Vec<_>>().join(" UNION ALL ");
        let mutated = format!(
            "SELECT table, countIf(NOT is_done), \
             countIf(command LIKE '%_row_exists%') > 0 \
             AND maxIf(create_time, command LIKE '%_row_exists%') \
             >= maxIf(create_time, command LIKE '%APPLY DELETED MASK%'), \
             anyLastIf(\
             replaceRegexpAll(concat(mutation_id, ': ', latest_fail_reason), '\\\\s+', ' '), \
             NOT is_done AND latest_fail_reason != '') \
             FROM {mutations} {table_filter} GROUP BY table"
        );
        // A replicated table numbers its mutations per partition; a partition without parts has no
        // number. Any other table has one number for all partitions, with an empty partition id.
        let old = format!(
            "SELECT part.table AS table, count(), \
             arrayStringConcat(groupArray({OLD_PARTS_NAMED_MAX})(\
             concat(part.name, ' on ', part.host, ', used by ', toString(part.refcount - 1), \
             ' others, out of use since ', toString(part.remove_time), ': ', \
             part.removal_state)), '; ') \
             FROM (SELECT hostName() AS host, table, name, refcount, remove_time, removal_state, \
             partition_id, data_version FROM {parts} {table_filter} AND NOT active) AS part \
             INNER JOIN (SELECT host, table, partition_id, max(number) AS number \
             FROM (SELECT hostName() AS host, table, block_numbers.partition_id AS ids, \
             block_numbers.number AS numbers FROM {mutations} {table_filter} \
             AND command LIKE '%APPLY DELETED MASK%') \
             ARRAY JOIN ids AS partition_id, numbers AS number \
             GROUP BY host, table, partition_id) AS mutation \
             ON part.host = mutation.host AND part.table = mutation.table \
             WHERE (mutation.partition_id = '' OR mutation.partition_id = part.partition_id) \
             AND part.data_version < mutation.number GROUP BY part.table"
        );
        // Each query returns a row for every table. If a row is missing, the answer was cut off,
        // and `number` returns `u64::MAX`. So a missing row never counts as "no data". A profile
        // with `join_use_nulls = 1` would return NULL instead of 0 for a table without mutations.
        let answers = async |step: &str, select: &str, settings: &str| {
            let sql = format!(
                "SELECT asked.table, found.* EXCEPT table \
                 FROM (SELECT arrayJoin([{names}]) AS table) AS asked \
                 LEFT JOIN ({select}) AS found ON found.table = asked.table \
                 SETTINGS join_use_nulls = 0{settings}"
            );
            let rows = self.query_rows::<4>(step, &sql).await?.into_iter();
            Ok::<HashMap<_, _>, Error>(rows.map(|[table, cells @ ..]| (table, cells)).collect())
        };
        let seen = answers("counting", &counts, "").await?;
        let stored = answers("counting", &counts, ", apply_deleted_mask = 0").await?;
        let mutated = answers("asking for mutations", &mutated, "").await?;
        let old = answers("asking for old parts", &old, "").await?;

        let number = |cell: &str| cell.parse().unwrap_or(u64::MAX);
        let traces = |table: &TableOfDrivers| {
            let cells = |answer: &HashMap<String, [String; 3]>| {
                answer.get(&table.name).cloned().unwrap_or_default()
            };
            let ([seen, ..], [stored, ..]) = (cells(&seen), cells(&stored));
            let ([mutations, is_masked, failure], [old_parts, old_part_names, _]) =
                (cells(&mutated), cells(&old));
            Traces {
                table: table.clone(),
                seen: number(&seen),
                stored: number(&stored),
                mutations: number(&mutations),
                is_masked: number(&is_masked) != 0,
                failure,
                old_parts: number(&old_parts),
                old_part_names,
            }
        };
        Ok(tables.iter().map(traces).collect())
    }

    /// Counts the views that are being refreshed. Such a view may have read rows that were hidden
    /// after its refresh began.
    pub async fn refreshes(&self, hosts: &Hosts) -> Result<u64, Error> {
        let sql = format!(
            "SELECT countIf(status LIKE 'Running%') FROM {} WHERE database = '{}'",
            hosts.table("system", "view_refreshes"),
            self.database
        );
        self.number("counting", &sql).await
    }

    /// Counts the inserts into this database that have been running for at least this long. The
    /// server continues an insert even if the process that sent it was killed, or no longer waits
    /// for the answer. No member reports such an insert, but it may still commit rows of an erased
    /// driver.
    pub async fn inserts_older_than(&self, hosts: &Hosts, age: Duration) -> Result<u64, Error> {
        let sql = format!(
            "SELECT count() FROM {} \
             WHERE query_kind IN ('Insert', 'AsyncInsertFlush') AND elapsed >= {} \
             AND (current_database = '{2}' OR position(query, '{2}.') > 0)",
            hosts.table("system", "processes"),
            age.as_secs_f64(),
            self.database
        );
        self.number("counting", &sql).await
    }

    /// Starts the mutation that hides the rows of this driver.
    pub async fn hide(&self, table: &TableOfDrivers, driver_id: &DriverId) -> Result<(), Error> {
        let delete = format!(
            "DELETE FROM {} WHERE {}",
            self.on_every_host(table),
            table.driver_condition(driver_id)
        );
        let step = format!("hiding rows of {}", table.name);
        self.statement(&step, &format!("{delete} SETTINGS lightweight_deletes_sync = 0")).await
    }

    /// Starts the mutation that rewrites the parts without hidden rows. The rows leave the disk
    /// when ClickHouse removes the old parts.
    pub async fn remove_hidden(&self, table: &TableOfDrivers) -> Result<(), Error> {
        let alter = format!("ALTER TABLE {} APPLY DELETED MASK", self.on_every_host(table));
        let step = format!("removing hidden rows of {}", table.name);
        self.statement(&step, &format!("{alter} SETTINGS mutations_sync = 0")).await
    }

    /// Returns the table's name and, on a cluster, the ON CLUSTER clause, for a statement that
    /// reaches every host. Only the clause is rendered as a template, because braces in the name of
    /// an operator's table are not placeholders.
    fn on_every_host(&self, table: &TableOfDrivers) -> String {
        let on_cluster = self.layout.render("{on_cluster}");
        format!("{}.{}{on_cluster}", self.database, identifier(&table.name))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::scripted_server::ScriptedServer;
    use milepost_config::Config;

    #[test]
    fn names_and_driver_ids_are_quoted_in_statements() {
        assert_eq!(identifier(".inner_id.1-2"), "`.inner_id.1-2`");
        assert_eq!(identifier("a`b\\c"), "`a\\`b\\\\c`");
        assert_eq!(quoted("it's \\"), "'it\\'s \\\\'");
        let table = |is_string| TableOfDrivers { name: "t".to_owned(), is_string };
        let id = DriverId::new("7").unwrap();
        assert_eq!(table(true).driver_condition(&id), "driver_id = '7'");
        assert_eq!(table(false).driver_condition(&id), "toString(driver_id) = '7'");
    }

    /// Returns a client of a server that gives these answers, one after the other.
    async fn client_of(answers: Vec<String>) -> (ClickHouse, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            for rows in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
                let head = format!(
                    "HTTP/1.1 200 OK\r\nX-ClickHouse-Summary: {{\"result_rows\":\"{}\"}}\r\n\
                     Content-Length: {}\r\nConnection: close\r\n\r\n",
                    rows.matches('\n').count(),
                    rows.len()
                );
                stream.write_all((head + &rows).as_bytes()).await.unwrap();
            }
        });
        let config = Config::parse(&format!("[clickhouse]\nurl = '{url}'")).unwrap();
        (ClickHouse::new(&config.clickhouse).unwrap(), server)
    }

    /// A load balancer may direct the query to a replica that lags.
    #[tokio::test]
    async fn older_list_never_replaces_a_newer_one() {
        let answers = ["\t20\t2\t1\nd\t20\t2\t1\n", "\t10\t9\t0\n", "\t20\t1\t0\n", "\t30\t2\t0\n"];
        let (clickhouse, server) = client_of(answers.map(str::to_owned).into()).await;
        for is_erased in [true, true, true, false] {
            let erased = clickhouse.erased().await.unwrap();
            assert_eq!(erased.erased().contains_bytes(b"d"), is_erased);
        }
        server.await.unwrap();
    }

    /// A proxy that speaks HTTP/1.0 with ClickHouse cannot see that an answer has no end.
    #[tokio::test]
    async fn list_of_erased_drivers_that_was_cut_off_is_not_used() {
        let whole = "\t20\t3\t2\nd1\t20\t3\t2\nd23\t20\t3\t2\n";
        let answers = (0..whole.len() - 1).map(|end| whole[..end].to_owned());
        let (clickhouse, server) = client_of(answers.chain([whole.to_owned()]).collect()).await;
        for end in 0..whole.len() - 1 {
            assert!(clickhouse.erased().await.is_err(), "{:?}", &whole[..end]);
        }
        let erased = clickhouse.erased().await.unwrap();
        assert!([&b"d1"[..], b"d23"].iter().all(|id| erased.erased().contains_bytes(id)));
        server.await.unwrap();
    }

    /// A proxy may remove the header with which the client library asks for a compressed answer.
    #[tokio::test]
    async fn longest_list_of_erased_drivers_is_read_without_compression() {
        let row = |id: &str| format!("{id}\t1795680000000\t{ERASED_MAX}\t{ERASED_MAX}\n");
        let ids = (0..ERASED_MAX).map(|number| format!("{number:064}"));
        let answer = ids.fold(row(""), |answer, id| answer + &row(&id));
        let (clickhouse, server) = client_of(vec![answer]).await;
        assert_eq!(clickhouse.erased().await.unwrap().erased().count(), ERASED_MAX);
        server.await.unwrap();
    }

    /// If the login's profile sets `join_use_nulls = 1`, a table without mutations would have NULL
    /// mutations, which count as unknown: the erasure would never end.
    #[tokio::test]
    async fn traces_do_not_depend_on_the_profile_of_the_login() {
        let server = ScriptedServer::start(Some((200, "positions\t0\t0\t\n"))).await;
        let config = Config::parse(&format!("[clickhouse]\nurl = '{}'", server.url)).unwrap();
        let clickhouse = ClickHouse::new(&config.clickhouse).unwrap();
        let tables = [TableOfDrivers { name: "positions".to_owned(), is_string: true }];
        let driver_id = DriverId::new("7").unwrap();
        let traces = clickhouse.traces(&Hosts::OnlyServer, &tables, &driver_id).await.unwrap();
        assert_eq!((traces[0].seen, traces[0].mutations, traces[0].old_parts), (0, 0, 0));
        let request = server.request();
        assert!(request.contains("settings join_use_nulls = 0"), "{request}");
    }

    /// After any other failure, fences may still name the driver. A missing table or column means
    /// that a migration is missing.
    #[tokio::test]
    async fn fences_are_unknown_only_without_the_grant() {
        for (answer, is_failure) in [
            ("Code: 159. DB::Exception: Timeout exceeded", true),
            ("Code: 202. DB::Exception: Too many simultaneous queries", true),
            ("Code: 516. DB::Exception: Authentication failed", true),
            ("Code: 497. DB::Exception: Not enough privileges", false),
            ("Code: 60. DB::Exception: Unknown table fences", true),
            ("Code: 47. DB::Exception: Unknown identifier drivers", true),
        ] {
            let server = ScriptedServer::start(Some((500, answer))).await;
            let config = Config::parse(&format!("[clickhouse]\nurl = '{}'", server.url)).unwrap();
            let clickhouse = ClickHouse::new(&config.clickhouse).unwrap();
            let fences = clickhouse.fences_naming(&DriverId::new("7").unwrap()).await;
            let is_as_expected =
                if is_failure { fences.is_err() } else { matches!(fences, Ok(None)) };
            assert!(is_as_expected, "{answer}: {fences:?}");
        }
    }
}
