//! ClickHouse queries. The server enforces limits of time, memory and rows for each, and cancels it when the map disconnects.

use std::time::Duration;

use clickhouse::error::Error as ClientError;
use clickhouse::query::Query;
use clickhouse::{Client, Row};
use milepost_clickhouse::Reader;
use serde::{Deserialize, Serialize};

use crate::config;
use crate::fleet::Fix;
use crate::fleet::parts::Parts;

/// Time limits of an incremental and of a full read.
const CHANGES_TIMEOUT: Duration = Duration::from_secs(60);

/// A failed query, with a message for the client.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A limit was exceeded.
    #[error("{0}")]
    TooMuch(String),
    /// ClickHouse does not answer, or answers with another error.
    #[error("{0}")]
    Away(String),
}

/// A row of `last_positions_state`, and the range of inserts in its part.
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
    /// Time since its insert, all by ClickHouse's clock.
    pub age_ms: i64,
}

impl Changed<'_> {
    /// The driver's.
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
}

impl Store {
    /// Connects at the first query. Reads the password file.
    ///
    /// # Errors
    /// The password file cannot be read.
    pub fn new(config: &config::ClickHouse, answer_bytes_max: u64) -> std::io::Result<Self> {
        Ok(Self { reader: Reader::new(&config.server, answer_bytes_max)?, config: config.clone() })
    }

    /// The database of all tables.
    #[must_use]
    pub fn database(&self) -> &str {
        &self.config.server.database
    }

    /// A query; `{db}` in it stands for the database.
    pub fn ask(&self, sql: &str) -> Query {
        self.limited(&self.reader.client(), sql, self.config.query_timeout)
            .with_setting("max_rows_to_read", self.config.query_rows_max.to_string())
    }

    /// The rows of all parts that have something new in them: ClickHouse opens no others. Each column is made what [`Changed`] has
    /// there, so the client need not compare their types, which it does for every row.
    pub fn changes(&self, read: &Parts) -> Query {
        const SQL: &str = "WITH splitByChar('_', _part) AS name, toUInt64OrZero(name[2]) AS first, toUInt64OrZero(name[3]) AS last_one
            SELECT first, last_one AS last, toString(driver_id), toInt64(toUnixTimestamp64Milli(ts)), toUInt32(seq), toInt32(lat_e7),
                toInt32(lng_e7), toUInt16(speed_cms), toUInt16(heading_cdeg), toInt32(alt_dm), toUInt16(acc_dm),
                toInt64(toUnixTimestamp64Milli(received_at)), toInt64(toUnixTimestamp64Milli(now64(3)) - toUnixTimestamp64Milli(inserted_at))
            FROM {db}.last_positions_state
            WHERE NOT arrayExists((a, b) -> a <= first AND last_one <= b, {firsts:Array(UInt64)}, {lasts:Array(UInt64)})";
        let (firsts, lasts) = read.runs();
        let client = self.reader.client().with_validation(false);
        self.limited(&client, SQL, CHANGES_TIMEOUT).param("firsts", firsts).param("lasts", lasts)
    }

    fn limited(&self, client: &Client, sql: &str, timeout: Duration) -> Query {
        let sql = sql.replace("{db}", self.database());
        client
            .query_raw(&sql)
            // Must come first: the server cancels only readonly queries when the client disconnects.
            .with_setting("readonly", "2")
            .with_setting("cancel_http_readonly_queries_on_client_close", "1")
            .with_setting("max_execution_time", timeout.as_secs().to_string())
            .with_setting("max_memory_usage", self.config.query_memory_bytes_max.to_string())
    }

    /// In words.
    pub fn error(&self, error: &ClientError) -> Error {
        let (code, advice) = self.reader.failed(error);
        match code {
            // TOO_MANY_ROWS, TIMEOUT_EXCEEDED, TOO_SLOW, MEMORY_LIMIT_EXCEEDED, TOO_MANY_ROWS_OR_BYTES
            Some(158 | 159 | 160 | 241 | 396) => Error::TooMuch(
                "this reads more than is allowed at once (clickhouse.query_timeout, query_rows_max, query_memory_bytes_max): \
                 choose a shorter time, or a smaller area"
                    .to_owned(),
            ),
            Some(code) => {
                let words = advice.unwrap_or_else(|| format!("see the log of milepost-map for code {code}"));
                Error::Away(format!("ClickHouse refuses the question: {words}"))
            }
            None => Error::Away("ClickHouse does not answer".to_owned()),
        }
    }
}
