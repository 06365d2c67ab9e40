//! The client of one database: queries and statements.

use std::error::Error as StdError;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clickhouse::Client;
use clickhouse::error::Error as ClientError;
use tracing::warn;
use url::Url;

use super::connector::Connector;
use super::endpoints::{Cause, EndpointStatus, Endpoints};
use super::errors::{
    NO_GRANT, advice, cause_of_code, cause_of_silence, code, got_no_http_answer, kind,
};
use super::insert::{Inserter, refused_code};
use super::login::Login;
use super::render::Layout;
use super::whole::{check_lines, with_complete_summary};
use milepost_config as config;
use milepost_core::delivery::sink::{Attempt, FailureKind, Sink, SinkError};
use milepost_core::encode::TABLES;
use milepost_core::erased::NewestErased;
use milepost_core::error_chain;
use milepost_core::screened::Screened;
use milepost_tls as tls;
use milepost_tls::{Server, Tls};

/// The server's time limit, in seconds, for a statement other than an insert.
pub(super) const STATEMENT_SECONDS_MAX: &str = "60";
/// The client's timeout for a statement other than an insert. It is longer than the server's limit,
/// so that the server's error still arrives.
pub(super) const STATEMENT_TIMEOUT: Duration = Duration::from_secs(65);
/// The client's timeout of a query.
pub const QUERY_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum bytes of a query's answer. Without this limit, the client library would collect an error
/// of any length in memory. The longest list of erased drivers takes 4.6 MB if a proxy removes the
/// compression.
const ANSWER_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Why a query or statement failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{step} failed")]
    Server {
        step: String,
        kind: FailureKind,
        /// The server's error code, if it answered with one.
        code: Option<u32>,
        /// Why another endpoint may succeed; `None` if the endpoint did not cause the failure.
        cause: Option<Cause>,
        /// The server's message, with the setting to change.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    #[error(
        "migration {name} was edited after it was applied here (recorded {recorded}, now {now}): \
         restore the file, and put the change into a new one"
    )]
    Edited { name: &'static str, recorded: String, now: String },
    #[error(
        "the database {database} has the engine {engine}, which replicates nothing, but \
         clickhouse.replication is \"managed\": drop the database if it is empty, and create it on \
         every host: CREATE DATABASE {database} ENGINE = \
         Replicated('/clickhouse/databases/{database}', '{{shard}}', '{{replica}}')"
    )]
    NotManaged { database: String, engine: String },
    #[error(
        "the tables of {database} were created without clickhouse.shards, so a driver's rows may \
         be on any shard: migrate another database (set clickhouse.database), and copy the history \
         through positions_all, see docs/clickhouse.md"
    )]
    NotForShards { database: String },
    #[error("fields do not fit the tables:\n  {}", .violations.join("\n  "))]
    Fields { violations: Vec<String> },
    #[error("there is no field {name} in the tables; existing fields: {existing}")]
    NoField { name: String, existing: String },
    #[error("clickhouse.password_file cannot be read")]
    Password(#[source] std::io::Error),
}

impl Error {
    /// Returns the server's error code, if it answered with one.
    #[must_use]
    pub fn code(&self) -> Option<u32> {
        if let Self::Server { code, .. } = self { *code } else { None }
    }

    /// Returns why another endpoint may succeed; `None` if the endpoint did not cause the failure.
    #[must_use]
    pub fn cause_to_leave(&self) -> Option<Cause> {
        if let Self::Server { cause, .. } = self { *cause } else { None }
    }

    /// Returns whether a retry may succeed, for example because the server is down or busy.
    /// `false`: an operator must fix the fault first.
    #[must_use]
    pub fn may_succeed_on_retry(&self) -> bool {
        matches!(self, Self::Server { kind, .. } if *kind != FailureKind::Permanent)
    }

    /// Returns the error for an answer that cannot be used.
    pub(super) fn unusable_answer(step: &str, kind: FailureKind, why: impl Into<String>) -> Self {
        let (step, source) = (step.to_owned(), why.into().into());
        Self::Server { step, kind, code: None, cause: None, source }
    }

    /// Returns the error for an answer that does not come from ClickHouse. `expected`: a noun for
    /// the value that ClickHouse would return, such as `number`.
    pub(super) fn not_clickhouse(step: &str, expected: &str) -> Self {
        let why = format!("the answer is not a {expected}: is this ClickHouse?");
        Self::Server {
            step: step.to_owned(),
            kind: FailureKind::Ambiguous,
            code: None,
            cause: Some(Cause::NotClickHouse),
            source: why.into(),
        }
    }

    /// Returns the error for a failure that the client library reported.
    pub(super) fn server(
        step: impl Into<String>,
        error: ClientError,
        advice: Option<String>,
    ) -> Self {
        let (kind, code) = (kind(&error), code(&error));
        let cause = cause_of_silence(&error).or_else(|| code.and_then(cause_of_code));
        let source: Box<dyn StdError + Send + Sync> = match advice {
            Some(advice) => Box::new(Advised { advice, source: error }),
            None => Box::new(error),
        };
        Self::Server { step: step.into(), kind, code, cause, source }
    }
}

/// An error with advice. The message is the advice, such as the setting to change; the source is
/// the original error.
#[derive(Debug, thiserror::Error)]
#[error("{advice}")]
struct Advised {
    advice: String,
    source: ClientError,
}

/// A client of one database.
pub struct ClickHouse {
    /// The client for queries, whose answers are bounded.
    client: Client,
    /// The client for reading whole tables, whose answers are not bounded.
    unbounded: Client,
    inserter: Inserter,
    endpoints: Arc<Endpoints>,
    login: Arc<Login>,
    pub database: String,
    pub(super) layout: Layout,
    /// True while TLS is not configured and ClickHouse has not answered yet: the configured port
    /// may expect TLS.
    may_be_tls: AtomicBool,
    /// The newest list of erased drivers that was read.
    pub(super) erased: Mutex<NewestErased>,
}

impl ClickHouse {
    /// Creates a client. Reads the password file; connects with the first statement.
    pub fn new(config: &config::ClickHouse) -> Result<Self, Error> {
        let login = Login::new(&config.user, config.password.as_ref()).map_err(Error::Password)?;
        Ok(Self::with_login(config, login))
    }

    /// Creates a client with this login, without reading the password file.
    fn with_login(config: &config::ClickHouse, login: Arc<Login>) -> Self {
        let tls = config.tls.clone().map(|files| Arc::new(Tls::new(files)));
        let client = |connector: Connector| Client::with_http_client(connector.client());
        let connector = Connector::new(tls);
        let endpoints = Arc::new(Endpoints::new(&config.urls, config.home));
        Self {
            client: client(connector.bounded(ANSWER_BYTES_MAX)),
            unbounded: client(connector.clone()),
            inserter: Inserter::new(config, connector, Arc::clone(&login), Arc::clone(&endpoints)),
            endpoints,
            login,
            database: config.database.clone(),
            layout: Layout::new(config),
            may_be_tls: AtomicBool::new(config.tls.is_none()),
            erased: Mutex::default(),
        }
    }

    /// Returns a client for the endpoint in use, with the login that was last read. Clones are
    /// cheap, because they share the connections.
    pub fn client(&self) -> Client {
        self.login.log_in(self.client.clone().with_url(self.endpoints.current_url().as_str()))
    }

    /// Like [`client`](Self::client), for answers of any length.
    pub fn unbounded(&self) -> Client {
        self.login.log_in(self.unbounded.clone().with_url(self.endpoints.current_url().as_str()))
    }

    /// Returns the name of a table, with its database. If `clickhouse.shards` is set, returns the
    /// name of the Distributed table, which reads all shards.
    pub fn table_on_all_shards(&self, table: &str) -> String {
        let suffix = if self.layout.shards().is_some() { "_all" } else { "" };
        format!("{}.{table}{suffix}", self.database)
    }

    /// Adds advice to an error of the client library. Reads the password file again if the server
    /// refused the login. `step`: the failed step, such as `counting parts`.
    pub fn failed(&self, step: impl Into<String>, error: ClientError) -> Error {
        let advice = match code(&error) {
            Some(code) => {
                self.may_be_tls.store(false, Ordering::Relaxed);
                self.login.reread_if_login_failed(code);
                advice(code).map(str::to_owned)
            }
            None => (self.may_be_tls.load(Ordering::Relaxed) && got_no_http_answer(&error))
                .then(|| tls::port_hint(Server::ClickHouse, false)),
        };
        Error::server(step, error, advice)
    }

    /// Returns whether the login was refused, but may be accepted later: the password comes from a
    /// file, and each refusal makes milepost read that file again.
    #[must_use]
    pub fn awaits_password(&self, error: &Error) -> bool {
        self.login.may_change_after(error.code())
    }

    /// Returns whether a running command repeats its request after this error: a retry may succeed,
    /// or a new password may be in the password file.
    #[must_use]
    pub fn may_succeed_later(&self, error: &Error) -> bool {
        error.may_succeed_on_retry() || self.awaits_password(error)
    }

    /// Like [`Self::may_succeed_later`], for a failed insert.
    pub(super) fn insert_may_succeed_later(&self, error: &SinkError) -> bool {
        error.kind != FailureKind::Permanent || self.login.may_change_after(refused_code(error))
    }

    /// Returns the tries of one request: at most one try at each endpoint. After an error, the
    /// request is repeated at the next endpoint only if `cause_to_leave` returns a cause.
    pub(super) fn tries(&self, cause_to_leave: fn(&ClientError) -> Option<Cause>) -> Tries<'_> {
        Tries { clickhouse: self, cause_to_leave, untried: self.endpoints.count() - 1, index: 0 }
    }

    /// Returns the endpoints of `clickhouse.url`, for the metrics.
    pub fn endpoints(&self) -> Vec<EndpointStatus> {
        self.endpoints.status()
    }

    /// Runs a query, and returns the cells of each row as strings. A missing cell is empty. Fails
    /// if the answer is truncated.
    pub async fn query_rows<const CELLS: usize>(
        &self,
        step: &str,
        sql: &str,
    ) -> Result<Vec<[String; CELLS]>, Error> {
        let mut tries = self.tries(cause_of_silence);
        let answer = loop {
            let query = with_complete_summary(tries.client().query_raw(sql));
            let answer = async {
                let mut cursor = query.fetch_bytes("TSVRaw")?;
                let text = String::from_utf8_lossy(&cursor.collect().await?).into_owned();
                check_lines(&cursor, &text)?;
                Ok(text)
            };
            match within(QUERY_TIMEOUT, answer).await {
                Err(error) if tries.retry_elsewhere(&error) => {}
                answer => break answer.map_err(|error| self.failed(step, error))?,
            }
        };
        self.may_be_tls.store(false, Ordering::Relaxed);
        // TSVRaw escapes nothing, so each query must replace tabs and line ends in its values.
        let row = |line: &str| {
            let mut cells = line.split('\t');
            std::array::from_fn(|_| cells.next().unwrap_or_default().to_owned())
        };
        Ok(answer.lines().map(row).collect())
    }

    /// Like [`query_rows`](Self::query_rows), but returns `None` if the server answers with an
    /// error code. The login may lack a grant, for example, or the server may be too old.
    pub async fn query_rows_if_allowed<const CELLS: usize>(
        &self,
        step: &str,
        sql: &str,
    ) -> Result<Option<Vec<[String; CELLS]>>, Error> {
        match self.query_rows(step, sql).await {
            Ok(rows) => Ok(Some(rows)),
            Err(error) if error.code().is_some() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the first value of the first row, if there is one.
    pub async fn value(&self, step: &str, sql: &str) -> Result<Option<String>, Error> {
        Ok(self.query_rows(step, sql).await?.into_iter().next().map(|[value]| value))
    }

    /// Like [`value`](Self::value), as a number. A missing or unparsable value becomes `u64::MAX`,
    /// so a caller that waits for 0 goes on waiting.
    pub async fn number(&self, step: &str, sql: &str) -> Result<u64, Error> {
        Ok(self.value(step, sql).await?.and_then(|number| number.parse().ok()).unwrap_or(u64::MAX))
    }

    /// Reads the number of replicas, if the quorum of inserts depends on that number. If the query
    /// fails, the last number stays in force. Logs, once, that the login lacks the grant.
    pub async fn count_replicas(&self) {
        static IS_LOGGED: AtomicBool = AtomicBool::new(false);
        if !self.inserter.quorum.depends_on_replicas() {
            return;
        }
        let sql = format!(
            "SELECT max(total_replicas) FROM system.replicas \
             WHERE database = '{}' AND table = '{}'",
            self.database, TABLES[0].name
        );
        let count = match self.value("counting the replicas", &sql).await {
            Ok(count) => count.and_then(|count| count.parse().ok()),
            Err(error) => {
                if error.code() == Some(NO_GRANT) && !IS_LOGGED.swap(true, Ordering::Relaxed) {
                    warn!(
                        why = error_chain(&error),
                        "cannot count the replicas: the last count stays in force or, if there is \
                         none, inserts wait for two replicas, which may be no majority: grant \
                         SELECT ON system.replicas"
                    );
                }
                None
            }
        };
        self.inserter.quorum.set_replicas(count.unwrap_or(0));
    }

    /// Returns the number of active parts of the partition that has the most parts, in this
    /// database and on the host that answers.
    pub async fn parts_of_fullest_partition(&self) -> Result<u64, Error> {
        let sql = format!(
            "SELECT max(parts) FROM (SELECT count() AS parts FROM system.parts \
             WHERE active AND database = '{}' \
             GROUP BY table, partition_id) SETTINGS empty_result_for_aggregation_by_empty_set = 0",
            self.database
        );
        self.parsed("counting parts", &sql, "number").await
    }

    /// Returns whether a request body of this size, in bytes, reaches ClickHouse. Sends an INSERT
    /// into `positions` without a row.
    ///
    /// # Errors
    /// ClickHouse does not answer, or refuses the statement.
    pub async fn accepts_body_size(&self, bytes: usize) -> Result<bool, Error> {
        let table = TABLES[0].name;
        let statement =
            format!("INSERT INTO {}.{table} (driver_id) FORMAT JSONEachRow", self.database);
        let accepts = self.inserter.accepts_body_size(&statement, bytes).await;
        accepts.map_err(|source| Error::Server {
            step: "measuring the size of an insert".to_owned(),
            kind: FailureKind::Ambiguous,
            code: None,
            cause: None,
            source,
        })
    }

    /// Returns the index of the endpoint in use, for [`Self::leave_endpoint`].
    pub fn endpoint_in_use(&self) -> usize {
        self.endpoints.current().0
    }

    /// Leaves this endpoint for the next one of `clickhouse.url`, unless another request has left
    /// it already. `endpoint`: the index of the endpoint that was in use before the failed query.
    pub fn leave_endpoint(&self, endpoint: usize, cause: Cause, why: &str) {
        self.endpoints.leave(endpoint, cause, why, Instant::now());
    }

    /// Moves from the endpoint in use to the first other endpoint that `is_usable` accepts within
    /// `timeout`. Returns whether there is such an endpoint. `why`: the reason, for the log.
    pub async fn leave_for_usable_endpoint(
        &self,
        cause: Cause,
        why: &str,
        timeout: Duration,
        is_usable: impl AsyncFn(&Self) -> bool,
    ) -> bool {
        let failing = self.endpoint_in_use();
        for (index, url) in self.endpoints.others(failing) {
            if self.is_usable_at(url, timeout, &is_usable).await {
                self.endpoints.leave_for(index, failing, cause, why, Instant::now());
                return true;
            }
        }
        false
    }

    /// If a query to this member's own endpoint is due, calls `is_usable` for that endpoint. Moves
    /// back if `is_usable` returns `true` within `timeout`. Returns whether the client moved back.
    pub async fn return_to_own_endpoint(
        &self,
        now: Instant,
        timeout: Duration,
        is_usable: impl AsyncFn(&Self) -> bool,
    ) -> bool {
        let Some(home) = self.endpoints.home_to_query(now) else { return false };
        let is_back = self.is_usable_at(home, timeout, &is_usable).await;
        if is_back {
            self.endpoints.return_home(now);
        }
        is_back
    }

    /// Calls `is_usable` with a client of this endpoint only. Returns `false` if `is_usable` takes
    /// longer than `timeout`. The client has this client's login: the password file may be missing
    /// now, or on a disk that hangs.
    async fn is_usable_at(
        &self,
        url: &Url,
        timeout: Duration,
        is_usable: &impl AsyncFn(&Self) -> bool,
    ) -> bool {
        let urls = vec![url.to_string()];
        let config = config::ClickHouse { urls, home: 0, ..self.layout.config.clone() };
        let client = Self::with_login(&config, Arc::clone(&self.login));
        tokio::time::timeout(timeout, Box::pin(is_usable(&client))).await.unwrap_or(false)
    }

    /// Returns the server's clock in milliseconds since 1970. The query never waits for an insert,
    /// because queries have connections of their own.
    pub async fn clock(&self) -> Result<i64, Error> {
        self.parsed("asking for the time", "SELECT toUnixTimestamp64Milli(now64(3))", "time").await
    }

    /// Queries and parses one value. `expected`: the kind of value, for the error.
    async fn parsed<T: FromStr>(&self, step: &str, sql: &str, expected: &str) -> Result<T, Error> {
        let value = self.value(step, sql).await?.and_then(|value| value.parse().ok());
        value.ok_or_else(|| Error::not_clickhouse(step, expected))
    }
}

/// The tries of one request: at most one per endpoint.
pub(super) struct Tries<'a> {
    clickhouse: &'a ClickHouse,
    cause_to_leave: fn(&ClientError) -> Option<Cause>,
    /// Number of endpoints that have not been tried yet.
    untried: usize,
    /// The endpoint of the current try.
    index: usize,
}

impl Tries<'_> {
    /// Returns the client for the next try, at the current endpoint.
    pub(super) fn client(&mut self) -> Client {
        let (index, url) = self.clickhouse.endpoints.current();
        self.index = index;
        self.clickhouse.login.log_in(self.clickhouse.client.clone().with_url(url.as_str()))
    }

    /// Moves to the next endpoint if this error is a reason to do so and an endpoint is untried.
    /// Returns whether to try again; `false`: the request has failed with this error.
    pub(super) fn retry_elsewhere(&mut self, error: &ClientError) -> bool {
        let Some(cause) = (self.cause_to_leave)(error).filter(|_| self.untried > 0) else {
            return false;
        };
        self.untried -= 1;
        self.clickhouse.endpoints.leave(self.index, cause, &error_chain(error), Instant::now());
        true
    }
}

impl Sink for ClickHouse {
    async fn insert(&self, insert: &Screened, attempt: &Attempt) -> Result<(), SinkError> {
        self.inserter.insert(insert, attempt).await
    }
}

/// Bounds the time of a request. The client library has timeouts for inserts only.
pub async fn within<T>(
    timeout: Duration,
    answer: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    tokio::time::timeout(timeout, answer).await.unwrap_or(Err(ClientError::TimedOut))
}
