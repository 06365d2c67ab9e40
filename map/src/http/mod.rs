//! The HTTP server. Connections above `http.connections_max` wait until another one closes, and
//! streams above `http.viewers_max` get 429. A connection whose request head is not complete in
//! time is closed. At shutdown, requests in flight are finished.

mod answers;
mod api;
mod basemap;
mod files;
mod gates;
mod guard;
mod page;
mod queries;
mod refusal;
mod state;
mod writes;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use milepost_core::throttle::Throttle;
use milepost_observe::http::ReadInTime;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tracing::{debug, warn};

pub use self::gates::Gates;
use self::gates::Peer;
pub use self::state::State;
use self::state::until_shutdown;
use crate::config;

/// Timeout of the TLS handshake, and then of each request's head.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for the client to read a response, or the next event of a stream. Even a slow line
/// transfers a view of the map in less time.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval of reloading certificates.
const CERTIFICATE_PERIOD: Duration = Duration::from_secs(60);
/// Minimum time between two warnings that connections cannot be accepted.
const ACCEPT_WARNING_PERIOD: Duration = Duration::from_secs(60);
/// Grace period of requests in flight at shutdown.
const GRACE: Duration = Duration::from_secs(5);

/// Builds all routes, with the guard around each.
pub fn router(state: Arc<State>) -> Router {
    let routes = api::routes().merge(queries::routes()).merge(writes::routes());
    let routes = routes.merge(basemap::routes()).merge(page::routes());
    guard::wrap(routes.with_state(Arc::clone(&state)), state)
}

/// Serves until `shutdown` becomes true. Then waits until requests in flight are finished, at most
/// for `GRACE`.
///
/// # Errors
/// The certificate cannot be read: its files have changed since the configuration read them. The
/// server then refuses to start, rather than serve plain text.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    config: &config::Http,
    mut shutdown: watch::Receiver<bool>,
) -> Result<(), String> {
    let connections = Arc::new(Semaphore::new(config.connections_max));
    let acceptor = match config.tls.clone() {
        None => None,
        Some(files) => {
            let (sender, receiver) = watch::channel(crate::tls::read(&files.0, &files.1)?);
            tokio::spawn(reload_certificates(sender, files));
            Some(receiver)
        }
    };
    let graceful = GracefulShutdown::new();
    let mut accept_log = Throttle::every(ACCEPT_WARNING_PERIOD);
    loop {
        // At a shutdown, do not wait for a free connection: clients may keep all of them open.
        let permit = tokio::select! {
            permit = Arc::clone(&connections).acquire_owned() => permit,
            () = until_shutdown(&mut shutdown) => break,
        };
        let Ok(permit) = permit else { return Ok(()) };
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // A client that gives up while it connects is no reason for a warning.
                    let is_aborted = error.kind() == std::io::ErrorKind::ConnectionAborted;
                    if !is_aborted && accept_log.allow(Instant::now()) {
                        warn!(
                            %error,
                            "connections cannot be accepted: is the limit of open files \
                             (ulimit -n) above http.connections_max?"
                        );
                    }
                    // Wait before the next attempt: the process may be out of file descriptors.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
            () = until_shutdown(&mut shutdown) => break,
        };
        let _ = stream.set_nodelay(true);
        let (router, watcher, peer) = (router.clone(), graceful.watcher(), Peer(peer.ip()));
        let tls = acceptor.as_ref().map(|tls| TlsAcceptor::from(Arc::clone(&tls.borrow())));
        tokio::spawn(async move {
            match tls {
                None => connection(stream, peer, router, watcher).await,
                Some(tls) => match handshake(tls, stream).await {
                    Some(stream) => connection(stream, peer, router, watcher).await,
                    None => debug!("the TLS handshake failed or timed out"),
                },
            }
            drop(permit);
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(GRACE, graceful.shutdown()).await;
    Ok(())
}

async fn handshake(
    tls: TlsAcceptor,
    stream: TcpStream,
) -> Option<impl AsyncRead + AsyncWrite + Unpin + Send + 'static> {
    tokio::time::timeout(HEADER_TIMEOUT, tls.accept(stream)).await.ok()?.ok()
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    router: Router,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let routes = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(peer);
        routes.call(request)
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(ReadInTime::new(stream, READ_TIMEOUT)), service);
    if let Err(error) = watcher.watch(connection).await {
        debug!(%error, "connection ended early");
    }
}

/// Reads the certificate again every [`CERTIFICATE_PERIOD`]. If the files are invalid, the previous
/// certificate stays in use.
async fn reload_certificates(
    current: watch::Sender<Arc<ServerConfig>>,
    (cert, key): (std::path::PathBuf, std::path::PathBuf),
) {
    loop {
        tokio::time::sleep(CERTIFICATE_PERIOD).await;
        let (cert, key) = (cert.clone(), key.clone());
        match tokio::task::spawn_blocking(move || crate::tls::read(&cert, &key)).await {
            Ok(Ok(new)) => drop(current.send_replace(new)),
            Ok(Err(error)) => {
                warn!(error, "the new certificate cannot be used; keeping the previous one")
            }
            Err(_) => {}
        }
        if current.is_closed() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn shutdown_ends_the_server_while_clients_use_all_connections() {
        let mut config = config::Config::parse("").expect("defaults").http;
        config.connections_max = 1;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", get(|| async { "here" }));
        let (sender, shutdown) = watch::channel(false);
        let server = tokio::spawn(async move { serve(listener, router, &config, shutdown).await });
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"here") {
            assert!(client.read_buf(&mut answer).await.unwrap() > 0);
        }
        // The client neither sends another request nor closes the connection.
        sender.send(true).unwrap();
        let ended = tokio::time::timeout(GRACE + Duration::from_secs(2), server).await;
        ended.expect("the server ends within its grace period").unwrap().unwrap();
    }

    #[tokio::test]
    async fn server_whose_certificate_is_gone_does_not_serve_plain_text() {
        let mut config = config::Config::parse("").expect("defaults").http;
        config.tls = Some(("/none/cert.pem".into(), "/none/key.pem".into()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (_sender, shutdown) = watch::channel(false);
        let served = serve(listener, Router::new(), &config, shutdown);
        let served = tokio::time::timeout(Duration::from_secs(5), served).await;
        let why = served.expect("the server ends at once").unwrap_err();
        assert!(why.starts_with("http.cert_file: /none/cert.pem"), "{why}");
    }
}
