//! The HTTP server. Connections and streams above their limits are refused; a connection
//! whose request is not complete in time is closed; at shutdown, requests in flight are finished.

mod answers;
mod api;
mod asked;
mod basemap;
mod files;
mod gates;
mod guard;
mod page;
mod refusal;
mod state;
mod written;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
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

/// Timeout of a client's handshake, and then of its request's head.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for the client to read a response or a stream's next event. Even a slow line transfers
/// a view of the map in less.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval of reloading certificates.
const CERTIFICATE_PERIOD: Duration = Duration::from_secs(60);
/// Grace period of requests in flight at shutdown.
const GRACE: Duration = Duration::from_secs(5);

/// Builds all routes, with the guard around each.
pub fn router(state: Arc<State>) -> Router {
    let routes = api::routes().merge(asked::routes()).merge(written::routes());
    let routes = routes.merge(basemap::routes()).merge(page::routes());
    guard::around(routes.with_state(Arc::clone(&state)), state)
}

/// Serves until `ending` becomes true, and then until requests in flight are finished, at most for
/// `GRACE`.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    config: &config::Http,
    mut ending: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(config.connections_max));
    let certificates = config
        .tls
        .clone()
        .and_then(|files| Some((crate::tls::read(&files.0, &files.1).ok()?, files)));
    let acceptor = certificates.map(|(first, files)| {
        let (sender, receiver) = watch::channel(first);
        tokio::spawn(renew(sender, files));
        receiver
    });
    let graceful = GracefulShutdown::new();
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    debug!(%error, "accept failed");
                    tokio::time::sleep(Duration::from_millis(100)).await; // out of file descriptors: do not spin
                    continue;
                }
            },
            () = until_shutdown(&mut ending) => break,
        };
        let _ = stream.set_nodelay(true);
        let (router, watcher, peer) = (router.clone(), graceful.watcher(), Peer(peer.ip()));
        let tls = acceptor.as_ref().map(|tls| TlsAcceptor::from(Arc::clone(&tls.borrow())));
        tokio::spawn(async move {
            match tls {
                None => connection(stream, peer, router, watcher).await,
                Some(tls) => match handshake(tls, stream).await {
                    Some(stream) => connection(stream, peer, router, watcher).await,
                    None => debug!("no TLS handshake"),
                },
            }
            drop(place);
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(GRACE, graceful.shutdown()).await;
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

/// Replaces certificates whose files have changed.
async fn renew(
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
