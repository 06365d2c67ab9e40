//! One attempt to insert, over HTTP, without the client library: the library accepts any 200 as a
//! success, and collects the whole body of an error.
//!
//! Guarantee: `Ok` means that ClickHouse itself confirmed the commit of all rows. They are fsynced,
//! as the tables require. If the tables are replicated, the rows are on as many replicas as
//! [`Quorum`] requires.
//!
//! A confirmation is a 200 with an empty body and a summary that counts at least as many rows as
//! were sent. The count may be higher, because views add their own rows to it. With shards, a count
//! of 1 is enough: it is untested how a Distributed table counts the rows that it forwards.
//!
//! If an insert is repeated with the same token, the server that stored its rows counts all of them
//! again; another replica counts none of them. If the count is below the number of rows sent, the
//! failure is ambiguous. The next attempt then has another token, because with the same one a
//! replica would again count no rows. Any other response is a failure too. Its [`FailureKind`] says
//! whether the rows may have been committed. At most 8 KiB of a response body are read.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::client::legacy;
use tokio::time::timeout;
use tracing::debug;
use url::Url;

use super::compress::compress;
use super::connector::Connector;
use super::endpoints::{Cause, Endpoints};
use super::errors::{Topology, advice, cause_of_break, cause_of_code, code_in, kind_of_code};
use super::login::Login;
use super::quorum::Quorum;
use super::rows_body::RowsBody;
use super::shards;
use milepost_config as config;
use milepost_config::Replication;
use milepost_core::delivery::sink::{Attempt, FailureKind, Sink, SinkError};
use milepost_core::error_chain;
use milepost_core::screened::{NotScreened, Screened};
use milepost_tls as tls;
use milepost_tls::Server;

/// Maximum number of bytes read from a response body.
const ANSWER_BYTES_MAX: usize = 8 * 1024;
/// Maximum number of characters of a response that an error quotes.
const LOGGED_CHARS_MAX: usize = 400;
/// Size up to which every proxy must accept a row: a proxy that refuses such a row is
/// misconfigured.
const SMALL_ROW_BYTES_MAX: usize = 4 * 1024;
/// Timeout for reading the body of an error response, after its head has arrived.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of a request that finds out whether the proxies accept a body of a given size.
const SIZE_PROBE_TIMEOUT: Duration = Duration::from_secs(30);
/// Header with ClickHouse's counts, in JSON.
const SUMMARY: &str = "X-ClickHouse-Summary";
/// Header with ClickHouse's error code.
const EXCEPTION_CODE: &str = "X-ClickHouse-Exception-Code";

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
enum InsertError {
    #[error("cannot be reached")]
    NotReached(#[source] legacy::Error),
    /// The list of erased drivers became too old before the rows were sent.
    #[error(transparent)]
    ErasedListTooOld(NotScreened),
    #[error("the connection broke")]
    ConnectionBroke(#[source] legacy::Error),
    #[error("{advice}")]
    NotHttp {
        advice: String,
        #[source]
        source: legacy::Error,
    },
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    #[error("{}{text}", advice.map_or(String::new(), |advice| format!("{advice}: ")))]
    Refused { code: u32, kind: FailureKind, advice: Option<&'static str>, text: String },
    /// `bytes`: size of the rows, before compression.
    #[error("a proxy in between refused an insert of {bytes} bytes (HTTP 413): {text}")]
    TooLarge { bytes: usize, text: String },
    #[error("HTTP {status} from something that is not ClickHouse: {text}")]
    NotClickHouse { status: StatusCode, text: String },
    #[error("unexpected body in a success response, so the rows may not have been inserted: {0}")]
    WithBody(String),
    #[error(
        "a success without X-ClickHouse-Summary and its written_rows: the response is not \
         ClickHouse's, or a proxy removed that header"
    )]
    WithoutSummary,
    #[error(
        "a success response, but ClickHouse counted {written} of {sent} rows: another replica may \
         have stored them in an earlier attempt, or a proxy may have cut off the request's body"
    )]
    WroteFewerRows { sent: u64, written: u64 },
    #[error("the response was cut off")]
    ResponseCutOff(#[source] hyper::Error),
}

/// An error with the `log_comment` of its attempt, with which to find the attempt in
/// `system.query_log`.
#[derive(Debug, thiserror::Error)]
#[error("log_comment {log_comment}")]
struct WithLogComment {
    log_comment: String,
    source: InsertError,
}

impl InsertError {
    /// Returns why another endpoint may accept the insert: this one is unreachable, hangs, or
    /// cannot write. Returns `None` if the failure is not the endpoint's.
    fn cause_to_leave(&self) -> Option<Cause> {
        match self {
            Self::Refused { code, .. } => cause_of_code(*code),
            Self::ErasedListTooOld(_) | Self::TooLarge { .. } | Self::WroteFewerRows { .. } => None,
            Self::NotReached(source)
            | Self::ConnectionBroke(source)
            | Self::NotHttp { source, .. } => Some(cause_of_break(source)),
            Self::ResponseCutOff(source) => Some(cause_of_break(source)),
            Self::TimedOut(_) => Some(Cause::NoAnswer),
            Self::NotClickHouse { .. } | Self::WithBody(_) | Self::WithoutSummary => {
                Some(Cause::NotClickHouse)
            }
        }
    }

    fn kind(&self) -> FailureKind {
        match self {
            Self::NotReached(_) | Self::ErasedListTooOld(_) => FailureKind::Transient,
            Self::TimedOut(_) => FailureKind::TimedOut,
            Self::Refused { kind, .. } => *kind,
            Self::TooLarge { .. } => FailureKind::TooLarge,
            Self::ConnectionBroke(_)
            | Self::NotHttp { .. }
            | Self::NotClickHouse { .. }
            | Self::WithBody(_)
            | Self::WithoutSummary
            | Self::WroteFewerRows { .. }
            | Self::ResponseCutOff(_) => FailureKind::Ambiguous,
        }
    }
}

/// Returns the code with which ClickHouse refused an insert; `None` if it did not answer with one.
pub(super) fn refused_code(error: &SinkError) -> Option<u32> {
    let WithLogComment { source, .. } = error.source.downcast_ref()?;
    if let InsertError::Refused { code, .. } = source { Some(*code) } else { None }
}

/// Sends inserts to the endpoint in use.
pub(super) struct Inserter {
    http: legacy::Client<Connector, RowsBody>,
    /// The client for requests without rows, which measure the accepted size.
    probes: legacy::Client<Connector, Full<Bytes>>,
    endpoints: Arc<Endpoints>,
    pub(super) quorum: Quorum,
    topology: Topology,
    /// True while TLS is not configured and no server has answered in HTTP yet: the configured port
    /// may expect TLS.
    may_be_tls: AtomicBool,
    login: Arc<Login>,
}

impl Inserter {
    pub(super) fn new(
        config: &config::ClickHouse,
        connector: Connector,
        login: Arc<Login>,
        endpoints: Arc<Endpoints>,
    ) -> Self {
        Self {
            http: connector.clone().client(),
            probes: connector.client(),
            endpoints,
            quorum: Quorum::new(config),
            topology: match config.replication {
                _ if config.shards => Topology::Sharded,
                Replication::Macros | Replication::Managed => Topology::Replicated,
                Replication::None => Topology::SingleServer,
            },
            may_be_tls: AtomicBool::new(config.tls.is_none()),
            login,
        }
    }

    /// Builds the request of one attempt.
    fn request(&self, endpoint: &Url, insert: &Screened, attempt: &Attempt) -> Request<RowsBody> {
        let mut url = endpoint.clone();
        url.query_pairs_mut()
            .append_pair("decompress", "1")
            // Delay the answer until the insert has ended: an earlier 200 may precede a failure.
            .append_pair("wait_end_of_query", "1")
            .append_pair("send_progress_in_http_headers", "0")
            // A profile may enable async inserts; then the answer would not count the rows written.
            .append_pair("async_insert", "0")
            // Do not merge an insert's rows by their key: for rows with attributes, that costs as
            // much as storing them. Queries with FINAL merge them anyway, and last_positions_mv
            // merges the rows for its own table.
            .append_pair("optimize_on_insert", "0")
            .append_pair("deduplicate_blocks_in_dependent_materialized_views", "1");
        if self.topology == Topology::Sharded {
            // Without this setting, the server would answer as soon as the rows are queued, before
            // they reach their shards.
            url.query_pairs_mut().append_pair("distributed_foreground_insert", "1");
        }
        let statement = match self.topology {
            Topology::Sharded => Cow::from(shards::distributed_insert(&insert.statement)),
            Topology::SingleServer | Topology::Replicated => Cow::from(&insert.statement),
        };
        url.query_pairs_mut()
            .extend_pairs(self.quorum.settings(attempt.timeout))
            .append_pair("insert_deduplication_token", &attempt.token)
            .append_pair("log_comment", &attempt.token)
            .append_pair("query", &statement);
        let mut request = Request::builder().method(Method::POST).uri(url.as_str());
        for (name, value) in self.login.headers() {
            request = request.header(name, value);
        }
        let body = RowsBody::new(compress(&insert.body), insert.list_age());
        request.body(body).expect("the URL and headers were validated when they were read")
    }

    /// Sends an INSERT with a body of `bytes` spaces, which contains no row. Returns `false` if the
    /// size is refused (HTTP 413). `statement`: an INSERT in a format that skips spaces.
    pub(super) async fn accepts_body_size(
        &self,
        statement: &str,
        bytes: usize,
    ) -> Result<bool, Box<dyn StdError + Send + Sync>> {
        let mut url = self.endpoints.current_url().clone();
        let statement = match self.topology {
            Topology::Sharded => Cow::from(shards::distributed_insert(statement)),
            Topology::SingleServer | Topology::Replicated => Cow::from(statement),
        };
        url.query_pairs_mut()
            .append_pair("wait_end_of_query", "1")
            .append_pair("async_insert", "0")
            .append_pair("query", &statement);
        let mut request = Request::builder().method(Method::POST).uri(url.as_str());
        for (name, value) in self.login.headers() {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::from(vec![b' '; bytes])))?;
        let answer = async {
            let response = self.probes.request(request).await?;
            let status = response.status();
            let exception = response.headers().contains_key(EXCEPTION_CODE);
            let is_clickhouse = response.headers().contains_key(SUMMARY);
            let body = timeout(ERROR_BODY_TIMEOUT, read_beginning(response)).await;
            let text = excerpt(&body.ok().and_then(Result::ok).unwrap_or_default());
            match status {
                StatusCode::OK if !exception && is_clickhouse => Ok(true),
                StatusCode::OK if !exception => Err(InsertError::WithoutSummary.into()),
                StatusCode::PAYLOAD_TOO_LARGE if !exception => Ok(false),
                _ => Err(format!("HTTP {status}: {text}").into()),
            }
        };
        timeout(SIZE_PROBE_TIMEOUT, answer)
            .await
            .unwrap_or(Err(Box::new(InsertError::TimedOut(SIZE_PROBE_TIMEOUT))))
    }

    /// Sends one attempt to this endpoint. The caller limits the time.
    async fn send(
        &self,
        endpoint: &Url,
        insert: &Screened,
        attempt: &Attempt,
    ) -> Result<(), InsertError> {
        let response = self
            .http
            .request(self.request(endpoint, insert, attempt))
            .await
            .map_err(|error| self.request_failed(error))?;
        self.may_be_tls.store(false, Ordering::Relaxed);
        let status = response.status();
        let header = |name: &str| response.headers().get(name)?.to_str().ok().map(str::to_owned);
        let exception = header(EXCEPTION_CODE).and_then(|code| code.trim().parse::<u32>().ok());
        if status == StatusCode::OK && exception.is_none() {
            let written = header(SUMMARY).and_then(|summary| written_rows(&summary));
            let body = read_beginning(response).await.map_err(InsertError::ResponseCutOff)?;
            let sent = insert.rows as u64;
            // A Distributed table forwards the rows. A count of 1 is enough there, because it is
            // untested how such a table counts. To find out, insert 5,000 rows into a cluster with
            // two shards and `distributed_foreground_insert = 1`, and read the summary.
            let written_min = if self.topology == Topology::Sharded { sent.min(1) } else { sent };
            return match written {
                _ if !body.is_empty() => Err(InsertError::WithBody(excerpt(&body))),
                None => Err(InsertError::WithoutSummary),
                Some(written) if written < written_min => {
                    Err(InsertError::WroteFewerRows { sent, written })
                }
                Some(_) => Ok(()),
            };
        }
        let body = timeout(ERROR_BODY_TIMEOUT, read_beginning(response)).await;
        let body = body.ok().and_then(Result::ok).unwrap_or_default();
        let text = excerpt(&body);
        match exception.or_else(|| code_in(&text)) {
            Some(code) => Err(self.refused(code, text)),
            // A smaller insert may pass. But if the proxy refuses even one small row, its limit is
            // misconfigured, and splitting does not help.
            None if status == StatusCode::PAYLOAD_TOO_LARGE
                && (insert.rows > 1 || insert.body.len() > SMALL_ROW_BYTES_MAX) =>
            {
                Err(InsertError::TooLarge { bytes: insert.body.len(), text })
            }
            None => Err(InsertError::NotClickHouse { status, text }),
        }
    }

    /// Returns the error for ClickHouse's error code. `text`: the beginning of the response. Reads
    /// the password file again if the login failed.
    fn refused(&self, code: u32, text: String) -> InsertError {
        self.login.reread_if_login_failed(code);
        let (kind, advice) = (kind_of_code(code, self.topology), advice(code));
        let text = if text.is_empty() { format!("code {code}") } else { text };
        InsertError::Refused { code, kind, advice, text }
    }

    /// Returns the error for a request without a response.
    fn request_failed(&self, error: legacy::Error) -> InsertError {
        if error.is_connect() {
            InsertError::NotReached(error)
        } else if let Some(not_screened) = not_screened(&error) {
            InsertError::ErasedListTooOld(not_screened)
        } else if self.may_be_tls.load(Ordering::Relaxed) {
            let advice = tls::port_hint(Server::ClickHouse, false);
            InsertError::NotHttp { advice, source: error }
        } else {
            InsertError::ConnectionBroke(error)
        }
    }
}

impl Sink for Inserter {
    async fn insert(&self, insert: &Screened, attempt: &Attempt) -> Result<(), SinkError> {
        let (index, endpoint) = self.endpoints.current();
        let outcome = timeout(attempt.timeout, self.send(endpoint, insert, attempt)).await;
        let outcome = outcome.unwrap_or(Err(InsertError::TimedOut(attempt.timeout)));
        if let Err(error) = &outcome
            && let Some(cause) = error.cause_to_leave()
        {
            self.endpoints.leave(index, cause, &error_chain(error), Instant::now());
        }
        debug!(
            log_comment = attempt.token,
            rows = insert.rows,
            ok = outcome.is_ok(),
            "insert ended"
        );
        outcome.map_err(|source| {
            let (kind, log_comment) = (source.kind(), attempt.token.clone());
            SinkError { kind, source: Box::new(WithLogComment { log_comment, source }) }
        })
    }
}

/// Returns why [`RowsBody`] refused to send the rows, if its refusal ended the request.
fn not_screened(error: &(dyn StdError + 'static)) -> Option<NotScreened> {
    let mut sources = std::iter::successors(Some(error), |&error| error.source());
    sources.find_map(|error| error.downcast_ref::<NotScreened>().copied())
}

/// Returns `written_rows` of a summary such as `{"read_rows":"0","written_rows":"5000"}`.
fn written_rows(summary: &str) -> Option<u64> {
    let summary: serde_json::Value = serde_json::from_str(summary).ok()?;
    let rows = summary.get("written_rows")?;
    rows.as_u64().or_else(|| rows.as_str()?.parse().ok())
}

/// Returns the first bytes of a body, at most [`ANSWER_BYTES_MAX`]. If the body is longer, its
/// connection is closed.
async fn read_beginning(response: Response<Incoming>) -> Result<Vec<u8>, hyper::Error> {
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    while bytes.len() < ANSWER_BYTES_MAX {
        let Some(frame) = body.frame().await else { break };
        if let Some(data) = frame?.data_ref() {
            let free_bytes = ANSWER_BYTES_MAX - bytes.len();
            bytes.extend_from_slice(&data[..data.len().min(free_bytes)]);
        }
    }
    Ok(bytes)
}

/// Returns the beginning of a response, for an error text.
fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let mut excerpt: String = text.trim().chars().take(LOGGED_CHARS_MAX).collect();
    if excerpt.len() < text.trim().len() {
        excerpt.push('…');
    }
    excerpt
}
