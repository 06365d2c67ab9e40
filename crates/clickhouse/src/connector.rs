//! Connections to the server: TCP, and TLS if the URL requires it.

use std::error::Error as StdError;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper::body::Body;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower_service::Service;

use milepost_tls::{Stream, Tls};

/// Timeout for connecting over TCP, and the same timeout again for the TLS handshake. The operating
/// system's default is minutes.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Idle time after which TCP keep-alive probes begin. They detect that the server's machine died:
/// a dead machine does not close its connections.
const TCP_KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// Time after which an idle connection is closed. Shorter than the server's keep-alive timeout, so
/// that the server does not close a connection just as a request begins on it.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(2);

/// Opens connections to ClickHouse. Each TLS handshake reads the certificate files again, so an
/// operator can replace them without a restart.
#[derive(Debug, Clone)]
pub struct Connector {
    tcp: HttpConnector,
    tls: Option<Arc<Tls>>,
    /// Maximum bytes of the answer to one request.
    answer_bytes_max: u64,
}

impl Connector {
    pub fn new(tls: Option<Arc<Tls>>) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false); // also accept https: URLs; this connector adds the TLS
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(TCP_KEEPALIVE_IDLE));
        Self { tcp, tls, answer_bytes_max: u64::MAX }
    }

    /// Returns a connector whose connections fail if an answer is longer than `answer_bytes_max`.
    pub fn bounded(&self, answer_bytes_max: u64) -> Self {
        Self { answer_bytes_max, ..self.clone() }
    }

    /// Returns a client that reuses connections for later requests.
    pub(super) fn client<B: Body<Data: Send> + Send>(self) -> legacy::Client<Self, B> {
        legacy::Client::builder(TokioExecutor::new())
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .build(self)
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Bounded>;
    type Error = Box<dyn StdError + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        // Remove the brackets that a URI has around an IPv6 address.
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let (connecting, tls) = (self.tcp.call(uri), self.tls.clone());
        let bytes_max = self.answer_bytes_max;
        Box::pin(async move {
            let stream = connecting.await?.into_inner();
            let stream = match tls {
                None => Box::new(stream),
                Some(tls) => {
                    tokio::time::timeout(CONNECT_TIMEOUT, tls.handshake(&host, stream)).await??
                }
            };
            Ok(TokioIo::new(Bounded { stream, bytes_max, remaining: bytes_max }))
        })
    }
}

/// A stream that limits the length of each answer: a read after the limit returns an error. A write
/// belongs to a new request, so each write resets the number of bytes that may be read.
pub struct Bounded {
    stream: Box<dyn Stream>,
    bytes_max: u64,
    /// Number of bytes that may still be read of the current answer.
    remaining: u64,
}

impl Connection for Bounded {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Bounded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.remaining == 0 {
            let message = format!("the answer is longer than {} bytes", self.bytes_max);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::FileTooLarge, message)));
        }
        let filled_before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.remaining =
            self.remaining.saturating_sub((buffer.filled().len() - filled_before) as u64);
        polled
    }
}

impl AsyncWrite for Bounded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.remaining = self.bytes_max;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.remaining = self.bytes_max;
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }
}
