//! Queries ClickHouse. The server enforces a time and a memory limit on each query, and also a
//! limit of rows on a query for a viewer. The server cancels a query when the map disconnects.

use std::time::{Duration, Instant};

use clickhouse::error::Error as ClientError;
use clickhouse::query::Query;
use clickhouse::{Client, Row, RowOwned, RowRead};
use milepost_clickhouse::{FetchWhole as _, Reader};
use serde::{Deserialize, Serialize};

use crate::config;
use crate::fleet::Fix;
use crate::fleet::directory::Directory;
use crate::fleet::filter::Scope;
use crate::fleet::parts::Parts;
use crate::optional::OptionalTables;

/// Time limit of a read of the last positions, incremental or full.
const CHANGES_TIMEOUT: Duration = Duration::from_secs(60);

/// A failed query, with a message for the viewer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The query exceeded a limit of time, memory or rows.
    #[error("{0}")]
    LimitExceeded(String),
    /// ClickHouse does not know what a parameter names.
    #[error("{0}")]
    Invalid(String),
    /// ClickHouse does not answer, or rejected the query for another reason.
    #[error("{0}")]
    Unavailable(String),
}

/// A row of `last_positions_state`, with the numbers of the first and last insert in its part.
#[derive(Debug, Row, Serialize, Deserialize)]
pub struct Changed<'a> {
    pub first: u64,
    pub last: u64,
    pub driver_id: &'a str,
    ts_ms: i64,
    seq: u32,
    lat_e7: i32,
    lng_e7: i32,
    speed_cms: u16,
    heading_cdeg: u16,
    alt_dm: i32,
    acc_dm: u16,
    received_ms: i64,
    /// Time since the insert, by ClickHouse's clock.
    pub age_ms: i64,
}

impl Changed<'_> {
    /// Returns the driver's fix.
    #[must_use]
    pub fn fix(&self) -> Fix {
        Fix {
            ts_ms: self.ts_ms,
            seq: self.seq,
            lat_e7: self.lat_e7,
            lng_e7: self.lng_e7,
            speed_cms: self.speed_cms,
            heading_cdeg: self.heading_cdeg,
            alt_dm: self.alt_dm,
            acc_dm: self.acc_dm,
            received_ms: self.received_ms,
        }
    }
}

/// The database, with a reader's login.
pub struct Store {
    reader: Reader,
    config: config::ClickHouse,
    names: config::Names,
    optional: OptionalTables,
}

impl Store {
    /// Connects at the first query. Reads the password file.
    ///
    /// # Errors
    /// The password file cannot be read.
    pub fn new(
        config: &config::ClickHouse,
        names: &config::Names,
        answer_bytes_max: u64,
    ) -> std::io::Result<Self> {
        let reader = Reader::new(&config.server, answer_bytes_max)?;
        Ok(Self {
            reader,
            config: config.clone(),
            names: names.clone(),
            optional: OptionalTables::default(),
        })
    }

    /// Returns the name of the database.
    #[must_use]
    pub fn database(&self) -> &str {
        &self.config.server.database
    }

    /// Returns `clickhouse.query_timeout`.
    #[must_use]
    pub fn query_timeout(&self) -> Duration {
        self.config.query_timeout
    }

    /// Builds a query with the limits of `[clickhouse]`; `{db}` in the SQL stands for the database.
    pub fn query(&self, sql: &str) -> Query {
        self.limited(&self.reader.client(), sql, self.config.query_timeout)
            .with_setting("max_rows_to_read", self.config.query_rows_max.to_string())
    }

    /// Fetches the rows of the query that `query` builds, and fails if the answer is incomplete. If
    /// the query fails because optional tables are missing, repeats it with these tables read as
    /// empty.
    ///
    /// # Errors
    /// The query failed for another reason.
    pub async fn fetch_all<T: RowOwned + RowRead + Send>(
        &self,
        query: impl Fn() -> Query,
    ) -> Result<Vec<T>, ClientError> {
        let mut replaced = Vec::new();
        loop {
            let rows = query().fetch_whole().await;
            let unknown = rows.as_ref().err().and_then(|error| self.reader.unknown_table(error));
            let Some(message) = unknown else { return rows };
            let table = self.optional.record(self.database(), message, Instant::now());
            // A view that reads the missing table fails again.
            let Some(table) = table.filter(|table| !replaced.contains(table)) else { return rows };
            replaced.push(table);
        }
    }

    /// Returns advice if some of these optional tables are missing; `None`: no table is missing.
    #[must_use]
    pub fn hint(&self, tables: &[&str]) -> Option<String> {
        self.optional.hint(tables, Instant::now())
    }

    /// Selects the rows of all parts with unread inserts; ClickHouse opens no other parts. Each
    /// column is cast to the type in [`Changed`], so the client can skip its type check of every
    /// row.
    pub fn changes(&self, read: &Parts) -> Query {
        const SQL: &str = "WITH splitByChar('_', _part) AS name, toUInt64OrZero(name[2]) AS first,
            toUInt64OrZero(name[3]) AS last_one
            SELECT first, last_one AS last, toString(driver_id),
                toInt64(toUnixTimestamp64Milli(ts)), toUInt32(seq), toInt32(lat_e7),
                toInt32(lng_e7), toUInt16(speed_cms), toUInt16(heading_cdeg), toInt32(alt_dm),
                toUInt16(acc_dm), toInt64(toUnixTimestamp64Milli(received_at)),
                toInt64(toUnixTimestamp64Milli(now64(3)) - toUnixTimestamp64Milli(inserted_at))
            FROM {db}.last_positions_state
            WHERE NOT arrayExists((a, b) -> a <= first AND last_one <= b,
                {firsts:Array(UInt64)}, {lasts:Array(UInt64)})";
        let (firsts, lasts) = read.runs();
        let client = self.reader.client().with_validation(false);
        self.limited(&client, SQL, CHANGES_TIMEOUT).param("firsts", firsts).param("lasts", lasts)
    }

    /// Returns a value that changes when names or groups may have changed.
    ///
    /// # Errors
    /// The query failed.
    pub async fn names_stamp(&self) -> Result<(u64, i64, i64), ClientError> {
        // Attributes have no time of change, so read them again every five minutes.
        let period =
            if self.names.uses_attributes() { "intDiv(toUnixTimestamp(now()), 300)" } else { "0" };
        let sql = format!(
            "SELECT count(), toUnixTimestamp64Milli(max(written_at)), \
             toInt64({period}) FROM {{db}}.drivers"
        );
        let stamps = self.fetch_all::<(u64, i64, i64)>(|| self.query(&sql)).await?;
        let stamp = stamps.into_iter().next().ok_or(ClientError::RowNotFound)?;
        let (count, _, _) = stamp;
        if count > 0 {
            self.optional.require_drivers();
        }
        Ok(stamp)
    }

    /// Reads names and groups: from attributes, overridden by the table `drivers`.
    ///
    /// # Errors
    /// The query failed.
    pub async fn names(&self) -> Result<Directory, ClientError> {
        type Rows = Vec<(String, String, String)>;
        const TABLE: &str = "SELECT driver_id, name, toString(`group`) FROM {db}.drivers FINAL";
        const ATTRIBUTES: &str =
            "SELECT driver_id, attributes[{name:String}] AS n, attributes[{group:String}] AS g
            FROM {db}.last_positions WHERE n != '' OR g != ''";
        let mut rows = Rows::new();
        if self.names.uses_attributes() {
            let query = self.query(ATTRIBUTES).param("name", self.names.name_attribute());
            rows = query.param("group", self.names.group_attribute()).fetch_whole().await?;
        }
        rows.extend(self.fetch_all::<(String, String, String)>(|| self.query(TABLE)).await?);
        Ok(Directory::new(rows))
    }

    /// Builds a query about the drivers of a scope: `{in_scope}` in the SQL becomes a condition on
    /// `driver_id`.
    pub fn query_in_scope(&self, scope: &Scope, sql: &str) -> Query {
        let Scope::Only { groups, drivers } = scope else {
            let query = self.query(&sql.replace("{in_scope}", "1"));
            return query.param("group_attribute", self.names.group_attribute());
        };
        let named = "driver_id IN {scope_drivers:Array(String)}
            OR driver_id IN (SELECT driver_id FROM {db}.drivers FINAL
                WHERE `group` IN {scope_groups:Array(String)})";
        let condition = if self.names.group_attribute().is_empty() {
            format!("({named})")
        } else {
            format!(
                "({named} OR driver_id IN (SELECT driver_id FROM {{db}}.last_positions
                    WHERE attributes[{{group_attribute:String}}] IN {{scope_groups:Array(String)}}
                        AND driver_id NOT IN (SELECT driver_id FROM {{db}}.drivers FINAL
                            WHERE `group` != '')))"
            )
        };
        let query = self.query(&sql.replace("{in_scope}", &condition));
        let query = query.param("scope_drivers", drivers.iter().collect::<Vec<_>>());
        let query = query.param("scope_groups", groups.iter().collect::<Vec<_>>());
        query.param("group_attribute", self.names.group_attribute())
    }

    /// Returns the client. The client also classifies the errors of its queries.
    #[must_use]
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    fn limited(&self, client: &Client, sql: &str, timeout: Duration) -> Query {
        let sql = self.optional.apply(sql, Instant::now());
        let sql = sql.replace("{db}", self.database());
        client
            .query_raw(&sql)
            // `readonly` must come first: the server cancels only readonly queries when the client
            // disconnects.
            .with_setting("readonly", "2")
            .with_setting("cancel_http_readonly_queries_on_client_close", "1")
            // A profile may set it; NULL instead of a default would not fit the types of the rows.
            .with_setting("join_use_nulls", "0")
            .with_setting("max_execution_time", timeout.as_secs().to_string())
            .with_setting("max_memory_usage", self.config.query_memory_bytes_max.to_string())
    }

    /// Converts a failure of a query to an error with a message for the viewer.
    pub fn error(&self, error: &ClientError) -> Error {
        let (code, advice) = self.reader.code_and_advice(error);
        match code {
            // TOO_MANY_ROWS, TIMEOUT_EXCEEDED, TOO_SLOW, MEMORY_LIMIT_EXCEEDED,
            // TOO_MANY_ROWS_OR_BYTES
            Some(158 | 159 | 160 | 241 | 396) => Error::LimitExceeded(
                "this reads more than is allowed at once (clickhouse.query_timeout, \
                 query_rows_max, query_memory_bytes_max): choose a shorter time, or a smaller area"
                    .to_owned(),
            ),
            Some(code) => {
                let words = advice
                    .unwrap_or_else(|| format!("see the log of milepost-map for code {code}"));
                Error::Unavailable(format!("ClickHouse refused the query: {words}"))
            }
            None => Error::Unavailable("ClickHouse does not answer".to_owned()),
        }
    }
}
