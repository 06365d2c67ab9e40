//! Serves `/metrics`, `/livez`, `/readyz`, and `/member` for the other members.
//!
//! Guarantee: the server answers as long as the process lives; a 503 lists the reasons. No client
//! can block another. If the maximum number of connections is open, a new connection replaces the
//! oldest. Each connection gets one answer, and is closed if the client does not read the answer in
//! time.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};
use tracing::{debug, warn};

use super::health::Health;
use super::logging;
use super::metrics::Metrics;
pub use super::read_in_time::ReadInTime;
use crate::peers::MEMBER_PATH;
use milepost_core::peers::member::Member;
use milepost_core::throttle::Throttle;

/// Maximum number of connections; a further connection ends the oldest one. No connection is
/// reserved for probes, because only the request shows whether a connection belongs to a probe.
const CONNECTIONS_MAX: usize = 64;
/// Minimum age of a connection that is ended to make room for a new one. A younger connection may
/// belong to a probe whose request has not been read yet.
const CONNECTION_AGE_MIN: Duration = Duration::from_millis(100);
/// Time limit for a client to send the head of a request, and then to read the answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of [`ask_ready`] for connecting, and for each read.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(3);
/// Content type of metrics and of plain-text answers.
pub const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns the handler for the paths of a member.
pub fn answers(
    metrics: Arc<Metrics>,
    health: Arc<Health>,
    member: Arc<Member>,
) -> impl Fn(&str) -> Response<Full<Bytes>> + Clone {
    move |path| {
        let (status, text) = match path {
            "/metrics" => (StatusCode::OK, metrics.render()),
            "/livez" => verdict("alive", health.dead(Instant::now())),
            "/readyz" => {
                let (status, mut text) = verdict("ready", health.unready());
                let nodes = metrics.totals().nodes;
                if nodes.len() > 1 {
                    text.extend(
                        nodes
                            .iter()
                            .map(|(node, sessions)| format!("node {node}: sessions: {sessions}\n")),
                    );
                }
                (status, text + &logging::warning().map_or(String::new(), |warning| warning + "\n"))
            }
            MEMBER_PATH => {
                let spool = metrics.totals().delivery;
                let files = spool.spool_batches + spool.spool_quarantined;
                (StatusCode::OK, member.status(metrics.is_subscribed(), files).to_json() + "\n")
            }
            _ => (
                StatusCode::NOT_FOUND,
                format!("not found: there are /metrics, /livez, /readyz and {MEMBER_PATH}\n"),
            ),
        };
        answer(status, text, if path == MEMBER_PATH { "application/json" } else { TEXT })
    }
}

/// Serves the answers until the future is dropped.
pub async fn serve(
    listener: TcpListener,
    answers: impl Fn(&str) -> Response<Full<Bytes>> + Clone + Send + 'static,
) {
    let mut tasks = JoinSet::new();
    let mut oldest_first = VecDeque::<(Instant, AbortHandle)>::new();
    let mut accept_log = Throttle::every(Duration::from_secs(60));
    loop {
        let accepted = listener.accept().await;
        while tasks.try_join_next().is_some() {}
        oldest_first.retain(|(_, connection)| !connection.is_finished());
        if oldest_first.len() >= CONNECTIONS_MAX
            && let Some((since, connection)) = oldest_first.pop_front()
        {
            tokio::time::sleep(CONNECTION_AGE_MIN.saturating_sub(since.elapsed())).await;
            connection.abort();
        }
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // A client that gives up while it connects is no reason for a warning.
                if error.kind() != ErrorKind::ConnectionAborted && accept_log.allow(Instant::now())
                {
                    warn!(
                        %error,
                        "requests for metrics and probes cannot be accepted: is the limit of open \
                         files (ulimit -n) high enough?"
                    );
                }
                // Wait before the next attempt: the process may be out of file descriptors.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let answers = answers.clone();
        let connection = tasks.spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let response = answers(request.uri().path());
                async { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                // Give one answer per connection. Otherwise many requests for metrics on one
                // connection could occupy the thread that also runs the inserts.
                .keep_alive(false)
                .header_read_timeout(CLIENT_TIMEOUT)
                .serve_connection(TokioIo::new(ReadInTime::new(stream, CLIENT_TIMEOUT)), service);
            if let Err(error) = connection.await {
                debug!(%error, "connection ended early");
            }
        });
        oldest_first.push_back((Instant::now(), connection));
    }
}

/// Returns 200 with `good` if there are no reasons, otherwise 503 with the reasons.
pub fn verdict(good: &str, reasons: Vec<String>) -> (StatusCode, String) {
    if reasons.is_empty() {
        (StatusCode::OK, format!("{good}\n"))
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, reasons.join("\n") + "\n")
    }
}

/// Builds a response. `kind`: its content type.
pub fn answer(status: StatusCode, text: String, kind: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Requests `/readyz` of a running milepost, for health checks in images without a shell.
///
/// # Errors
/// The server is not ready, or did not answer. The error states the reasons.
pub fn ask_ready(listen: SocketAddr) -> Result<(), String> {
    ask_ready_over(listen, |_, stream| Ok(stream))
}

/// Like [`ask_ready`], but over the stream that `wrap` makes of the connection, such as a TLS
/// stream.
///
/// # Errors
/// Fails like [`ask_ready`].
pub fn ask_ready_over<S: Read + Write>(
    listen: SocketAddr,
    wrap: impl FnOnce(SocketAddr, TcpStream) -> std::io::Result<S>,
) -> Result<(), String> {
    let host =
        if listen.ip().is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { listen.ip() };
    let address = SocketAddr::new(host, listen.port());
    let request = || -> std::io::Result<String> {
        let stream = TcpStream::connect_timeout(&address, HEALTH_TIMEOUT)?;
        stream.set_read_timeout(Some(HEALTH_TIMEOUT))?;
        let mut stream = wrap(address, stream)?;
        write!(stream, "GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        match stream.read_to_string(&mut answer) {
            // A peer may close TLS without a close_notify after it has sent the whole answer.
            Err(error) if error.kind() != ErrorKind::UnexpectedEof => Err(error),
            _ => Ok(answer),
        }
    };
    let answer = request().map_err(|error| format!("no answer at {address}: {error}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    if head.starts_with("HTTP/1.1 200 ") {
        Ok(())
    } else {
        Err(format!("not ready: {}", body.trim_end()))
    }
}
