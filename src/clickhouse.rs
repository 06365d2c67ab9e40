//! ClickHouse: inserts, and the tables they go to. The only file that names the clickhouse crate.
//!
//! Guarantee: `Ok` from an insert means that the server committed it (with fsync, as the tables ask for),
//! and every failure is sorted into what to do about it. Migrations are numbered one-statement files, each
//! idempotent, recorded with a checksum; applying them twice, or from two places at once, changes nothing.

mod connector;

use std::error::Error as StdError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use clickhouse::Client;
use clickhouse::error::Error as ClientError;
use clickhouse::query::RowCursor;
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use tracing::{info, warn};
use twox_hash::XxHash3_128;

use self::connector::Connector;
use crate::config;
use crate::decode::Reason;
use crate::encode::Insert;
use crate::insert::{Attempt, FailureKind, Sink, SinkError};
use crate::position::Timestamp;
use crate::tls::{self, Tls};

include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

/// Below the server's keep-alive: an idle connection is dropped by us, not under our feet.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a statement that is not an insert may take, on the server, and until its answer is here.
const STATEMENT_SECONDS_MAX: &str = "60";
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(65);
/// How long a question may take.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(15);

/// ClickHouse's error codes that only a person can mend: unknown column, table, database, format, setting or
/// user, wrong types, a read-only or constrained profile, no grant, failed login.
const PERMANENT_CODES: [u32; 15] = [16, 27, 33, 53, 60, 62, 81, 117, 164, 192, 193, 194, 452, 497, 516];
const UNKNOWN_TABLE: u32 = 60;
const UNKNOWN_DATABASE: u32 = 81;
const AUTHENTICATION_FAILED: u32 = 516;
const NO_GRANT: u32 = 497;

/// One numbered file of `sql/`.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
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
}

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server did not do what it was asked.
    #[error("{what} failed")]
    Server {
        /// What was asked, in words.
        what: String,
        /// What to do about it.
        kind: FailureKind,
        /// The server's, if it answered with one.
        code: Option<u32>,
        /// The server's words, and ours on what to change.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The file is not what it was when it was applied.
    #[error(
        "migration {name} was edited after it was applied here (recorded {recorded}, now {now}): \
         restore the file, and put the change into a new one"
    )]
    Edited {
        /// The migration.
        name: &'static str,
        /// Its checksum in the database.
        recorded: String,
        /// Its checksum in this binary.
        now: String,
    },
    /// The password file.
    #[error("clickhouse.password_file cannot be read")]
    Password(#[source] std::io::Error),
}

impl Error {
    /// The server's code, if it answered with one.
    #[must_use]
    pub fn code(&self) -> Option<u32> {
        match self {
            Self::Server { code, .. } => *code,
            Self::Edited { .. } | Self::Password(_) => None,
        }
    }

    /// The server may do it later: it is not there, or not now.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Server { kind, .. } if *kind != FailureKind::Permanent)
    }

    fn server(what: impl Into<String>, error: ClientError, advice: Option<String>) -> Self {
        let (kind, code) = (kind(&error), code(&error));
        Self::Server { what: what.into(), kind, code, source: advised(error, advice) }
    }
}

/// What to change, before the reason.
#[derive(Debug, thiserror::Error)]
#[error("{advice}")]
struct Advised {
    advice: String,
    source: ClientError,
}

fn advised(error: ClientError, advice: Option<String>) -> Box<dyn StdError + Send + Sync> {
    match advice {
        Some(advice) => Box::new(Advised { advice, source: error }),
        None => Box::new(error),
    }
}

/// A client of one database.
pub struct ClickHouse {
    client: RwLock<Client>,
    password: Option<config::Secret>,
    database: String,
    plain: bool,
    /// The server has spoken ClickHouse to us.
    answered: AtomicBool,
}

impl std::fmt::Debug for ClickHouse {
    /// Not derived: the client knows the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClickHouse").field("database", &self.database).finish_non_exhaustive()
    }
}

impl ClickHouse {
    /// Connects with the first statement, not here.
    ///
    /// # Errors
    /// The password file cannot be read.
    pub fn new(config: &config::ClickHouse) -> Result<Self, Error> {
        let tls = config.tls.clone().map(|files| Arc::new(Tls::new(files)));
        let http = legacy::Client::builder(TokioExecutor::new())
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .build(Connector::new(tls));

        let client = Client::with_http_client(http)
            .with_url(&config.url)
            .with_user(&config.user)
            .with_setting("async_insert", if config.async_insert { "1" } else { "0" })
            .with_setting("wait_for_async_insert", "1");
        let this = Self {
            client: RwLock::new(client),
            password: config.password.clone(),
            database: config.database.clone(),
            plain: config.tls.is_none(),
            answered: AtomicBool::new(false),
        };
        this.read_password().map_err(Error::Password)?;
        Ok(this)
    }

    /// The login as it was last read. Clones are cheap: the connections are shared.
    fn client(&self) -> Client {
        self.client.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes note of a failure: the password's file may have changed since it was read.
    fn refused(&self, error: &ClientError) -> Option<String> {
        let code = code(error);
        if code.is_some() {
            self.answered.store(true, Ordering::Relaxed);
        }
        match code {
            Some(AUTHENTICATION_FAILED) => {
                if let Err(unreadable) = self.read_password() {
                    warn!(error = %unreadable, "clickhouse.password_file cannot be read; keeping the last password");
                }
                Some("wrong login; set clickhouse.user and clickhouse.password_file".to_owned())
            }
            Some(NO_GRANT) => Some("grant clickhouse.user what it lacks, see deploy/clickhouse".to_owned()),
            Some(_) => None,
            None => (self.plain && !self.answered.load(Ordering::Relaxed) && speaks_no_http(error))
                .then(|| tls::is_this_the_port("clickhouse", false)),
        }
    }

    fn failed(&self, what: impl Into<String>, error: ClientError) -> Error {
        let advice = self.refused(&error);
        Error::server(what, error, advice)
    }

    fn read_password(&self) -> std::io::Result<()> {
        if let Some(password) = &self.password {
            let client = self.client().with_password(password.read()?);
            *self.client.write().unwrap_or_else(PoisonError::into_inner) = client;
        }
        Ok(())
    }

    /// Applies what is missing, in order; returns the names of what was applied.
    ///
    /// # Errors
    /// See [`Error`]. What was applied before stays applied.
    pub async fn migrate(&self) -> Result<Vec<&'static str>, Error> {
        self.create_database().await?;
        let mut applied = Vec::new();
        for migration in self.pending().await? {
            let failed = |error| self.failed(format!("migration {}", migration.name), error);
            let statement = migration.sql.replace("{database}", &self.database);
            self.statement(&statement).await.map_err(failed)?;
            // Both are idempotent: a stop in between is mended by the next run, and another pod that does the
            // same at the same time does no harm.
            self.record(migration).await.map_err(failed)?;
            info!(migration = migration.name, "applied");
            applied.push(migration.name);
        }
        Ok(applied)
    }

    /// The migrations this binary was built with that are not recorded in the database, in order.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn pending(&self) -> Result<Vec<Migration>, Error> {
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

    /// Only where it is missing: a user who may not create databases can be given one.
    async fn create_database(&self) -> Result<(), Error> {
        let failed = |error| self.failed(format!("creating database {}", self.database), error);
        let sql = format!("SELECT count() FROM system.databases WHERE name = '{}'", self.database);
        let count = self.client().query_raw(&sql).fetch_one::<u64>();
        if within(QUESTION_TIMEOUT, count).await.map_err(failed)? == 0 {
            self.statement(&format!("CREATE DATABASE IF NOT EXISTS {}", self.database))
                .await
                .map_err(failed)?;
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
            Ok(recorded) => {
                self.answered.store(true, Ordering::Relaxed);
                Ok(recorded)
            }
            Err(error) if matches!(code(&error), Some(UNKNOWN_TABLE | UNKNOWN_DATABASE)) => Ok(Vec::new()),
            Err(error) => Err(self.failed("reading the recorded migrations", error)),
        }
    }

    /// What the server answers to a question: rows of texts, as tab-separated values have them.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn ask(&self, what: &str, sql: &str) -> Result<Vec<Vec<String>>, Error> {
        let answer = async { self.client().query_raw(sql).fetch_bytes("TSVRaw")?.collect().await };
        let answer = within(QUESTION_TIMEOUT, answer).await.map_err(|error| self.failed(what, error))?;
        let text = String::from_utf8_lossy(&answer);
        Ok(text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
    }

    /// The tables and views that the migrations make.
    #[must_use]
    pub fn tables() -> Vec<&'static str> {
        let name = |migration: &Migration| {
            let name = migration.sql.split_once("IF NOT EXISTS {database}.")?.1;
            name.split(|c: char| !c.is_alphanumeric() && c != '_').next()
        };
        MIGRATIONS.iter().filter_map(name).collect()
    }

    /// Stored rejects of a reason since a moment, oldest first.
    ///
    /// # Errors
    /// The server does not answer, or refuses.
    pub fn rejects(&self, reason: Reason, since: Timestamp) -> Result<StoredRejects, Error> {
        let sql = format!(
            "SELECT toUnixTimestamp64Milli(received_at), topic, hex(payload), payload_bytes, count \
             FROM {}.rejects WHERE reason = '{}' AND received_at >= fromUnixTimestamp64Milli({}) \
             ORDER BY received_at",
            self.database,
            reason.name(),
            since.unix_ms(),
        );
        let rows = self.client().query_raw(&sql).fetch().map_err(reading_rejects)?;
        Ok(StoredRejects { rows })
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

fn reading_rejects(error: ClientError) -> Error {
    Error::server("reading rejects", error, None)
}

/// A row of the `rejects` table.
#[derive(Debug)]
pub struct StoredReject {
    /// When milepost took the message from the broker.
    pub received_at: Timestamp,
    /// The message's topic.
    pub topic: String,
    /// The broken point, else the whole message; perhaps cut.
    pub payload: Vec<u8>,
    /// How long it was before the cut.
    pub payload_bytes: u64,
    /// How many refusals this row stands for.
    pub count: u64,
}

/// Rows as they come from the server, never all at once.
pub struct StoredRejects {
    rows: RowCursor<(i64, String, String, u64, u64)>,
}

impl StoredRejects {
    /// The next row.
    ///
    /// # Errors
    /// The server ended before the rows did.
    pub async fn next(&mut self) -> Result<Option<StoredReject>, Error> {
        let row = within(QUESTION_TIMEOUT, self.rows.next()).await.map_err(reading_rejects)?;
        Ok(row.map(|(received_ms, topic, payload_hex, payload_bytes, count)| StoredReject {
            received_at: Timestamp::from_unix_ms(received_ms),
            topic,
            payload: from_hex(&payload_hex),
            payload_bytes,
            count,
        }))
    }
}

/// What ClickHouse's `hex` made.
fn from_hex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => byte - b'0',
        _ => byte.to_ascii_uppercase().wrapping_sub(b'A').wrapping_add(10),
    };
    text.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

impl Sink for ClickHouse {
    async fn insert(&self, insert: &Insert, attempt: &Attempt) -> Result<(), SinkError> {
        let mut request = self
            .client()
            .insert_formatted_with(insert.statement.as_str())
            .with_setting("insert_deduplication_token", &attempt.token)
            .with_setting("deduplicate_blocks_in_dependent_materialized_views", "1")
            .with_timeouts(Some(attempt.timeout), Some(attempt.timeout));
        let sent = request.send(insert.body.clone()).await;
        let ended = if sent.is_ok() { request.end().await } else { sent };
        ended.map_err(|error| {
            let (kind, advice) = (kind(&error), self.refused(&error));
            SinkError { kind, source: advised(error, advice) }
        })
    }
}

/// The crate's own timeouts are for inserts only.
async fn within<T>(
    timeout: Duration,
    answer: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    tokio::time::timeout(timeout, answer).await.unwrap_or(Err(ClientError::TimedOut))
}

/// A server that answered with a code is alive and knows whether it committed: the same token is right. A
/// connection that was lost, or an answer that is not ClickHouse's, leaves it open.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the crate's enum is non-exhaustive; unknown ends are ambiguous"
)]
fn kind(error: &ClientError) -> FailureKind {
    match error {
        ClientError::BadResponse(_) => match code(error) {
            Some(code) if PERMANENT_CODES.contains(&code) => FailureKind::Permanent,
            Some(_) => FailureKind::Transient,
            None => FailureKind::Ambiguous,
        },
        ClientError::TimedOut => FailureKind::TimedOut,
        ClientError::Network(source) if never_connected(source.as_ref()) => FailureKind::Transient,
        ClientError::InvalidParams(_) | ClientError::Unsupported(_) => FailureKind::Permanent,
        _ => FailureKind::Ambiguous,
    }
}

fn never_connected(error: &(dyn StdError + Send + Sync + 'static)) -> bool {
    error.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect)
}

/// It was connected, and what came back was nothing, or no HTTP.
fn speaks_no_http(error: &ClientError) -> bool {
    matches!(error, ClientError::Network(source) if !never_connected(source.as_ref()))
}

/// The `N` of ClickHouse's `Code: N. DB::Exception: …`.
fn code(error: &ClientError) -> Option<u32> {
    let ClientError::BadResponse(text) = error else { return None };
    let digits = text.split_once("Code: ")?.1;
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad(text: &str) -> FailureKind {
        kind(&ClientError::BadResponse(text.to_owned()))
    }

    #[test]
    fn failures_are_sorted_by_what_to_do_about_them() {
        assert_eq!(
            bad("Code: 60. DB::Exception: Table fleet.positions does not exist."),
            FailureKind::Permanent
        );
        assert_eq!(bad("Code: 497. DB::Exception: default: Not enough privileges."), FailureKind::Permanent);
        assert_eq!(bad("Code: 241. DB::Exception: Memory limit exceeded"), FailureKind::Transient);
        assert_eq!(bad("Code: 12345"), FailureKind::Transient, "codes nobody listed");
        assert_eq!(bad("502 Bad Gateway"), FailureKind::Ambiguous, "a proxy's answer");
        assert_eq!(kind(&ClientError::TimedOut), FailureKind::TimedOut);
        assert_eq!(kind(&ClientError::Network("reset".into())), FailureKind::Ambiguous);
    }

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
    }
}
