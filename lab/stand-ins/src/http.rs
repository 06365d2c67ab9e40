//! The sink's HTTP server, on hyper.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::time::Instant;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;

/// Maximum bytes of a body; milepost's largest batch has 8 MiB.
const BODY_BYTES_MAX: usize = 256 << 20;

/// A request that has arrived completely.
pub(crate) struct ReceivedRequest {
    /// Path of the URL, such as `/`.
    pub(crate) path: String,
    parameters: Vec<(String, String)>,
    pub(crate) body: Bytes,
    /// Time at which the head of the request had arrived.
    pub(crate) began: Instant,
}

impl ReceivedRequest {
    /// Returns a parameter of the URL, decoded.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters
            .iter()
            .find(|(parameter, _)| parameter == name)
            .map(|(_, value)| value.as_str())
    }

    async fn read(
        request: Request<Incoming>,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let began = Instant::now();
        let query = request.uri().query().unwrap_or_default().as_bytes();
        let parameters = form_urlencoded::parse(query).into_owned().collect();
        let path = request.uri().path().to_owned();
        let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await?.to_bytes();
        Ok(Self { path, parameters, body, began })
    }
}

/// An answer to a request.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    /// Number of rows that an insert has written, for the header X-ClickHouse-Summary. The header
    /// also counts the lines of the body as the result's rows.
    pub(crate) written_rows: Option<u64>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self { status: StatusCode::OK, written_rows: None, body: body.into() }
    }

    fn response(self) -> Response<Full<Bytes>> {
        let mut response = Response::builder().status(self.status);
        let rows = self.body.iter().filter(|byte| **byte == b'\n').count();
        let written = self.written_rows.unwrap_or(0);
        let summary = format!("{{\"written_rows\":\"{written}\",\"result_rows\":\"{rows}\"}}");
        response = response.header("X-ClickHouse-Summary", summary);
        response.body(Full::new(Bytes::from(self.body))).expect("the header is well formed")
    }
}

/// Listens on a free port of the loopback, and returns the port. The server's threads end with the
/// process.
pub(crate) fn listen(
    threads: usize,
    answer: impl Fn(&ReceivedRequest) -> Answer + Clone + Send + Sync + 'static,
) -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            let listener =
                tokio::net::TcpListener::from_std(listener).expect("set to nonblocking above");
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                let answer = answer.clone();
                let service = service_fn(move |request| {
                    let answer = answer.clone();
                    async move {
                        let answer = answer(&ReceivedRequest::read(request).await?);
                        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(answer.response())
                    }
                });
                // Ignore errors: a request that was not read completely has inserted nothing.
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
    });
    Ok(port)
}
