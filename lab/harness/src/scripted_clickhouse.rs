//! A ClickHouse that misbehaves by script, in front of a real engine. For the harness.
//!
//! Guarantee: what it says it stored is stored, because the engine has said so first. What brings rows (an INSERT
//! whose statement is in the URL) is treated by the [`Behaviour`] that the test sets at run time. Every other
//! statement goes to the engine, and its answer comes back, whatever the behaviour.
//! Refuses: TLS, pipelined requests, bodies above 256 MiB.

mod answers;
mod client;
mod message;
#[cfg(test)]
mod tests;

use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{oneshot, watch};

use self::client::Client;
use self::message::{Body, Head};

/// Small, so that a client is still writing a large body when the answer comes.
const RECEIVE_BUFFER_BYTES: u32 = 64 * 1024;
const BACKLOG: u32 = 128;
/// How a server says what it wrote.
const SUMMARY: &str = "X-ClickHouse-Summary";

/// What becomes of an INSERT. Where nothing else is said, one that is not answered honestly stores nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// The engine stores it and answers.
    Honest,
    /// The same, without the header X-ClickHouse-Summary: a proxy drops what it does not know.
    HonestWithoutSummary,
    /// The same, so much later.
    Slow(Duration),
    /// A load balancer: each request, of any kind, goes to the next engine.
    InTurn,
    /// 200 with the summary, and a server's exception in the body, split over many chunks.
    ExceptionInChunks,
    /// The same without its end: the connection ends, and with it the body, within `__exception__`.
    ExceptionCutInMarker,
    /// The same within the exception's words.
    ExceptionCutInText,
    /// 200 with the summary, and an exception as older servers write it, without its last newline.
    ExceptionInOldFormat,
    /// 200 with a proxy's HTML page.
    PageWithStatus200,
    /// 200, an empty body, no summary.
    EmptyWithoutSummary,
    /// 500 with a body that does not end as long as the client reads.
    EndlessError,
    /// 500 with a body of 600 MiB.
    HugeError,
    /// A proxy that takes bodies up to a length; shorter ones are treated honestly.
    TooLarge {
        /// The longest body that passes, as it comes over the wire.
        body_bytes_max: usize,
        /// What becomes of longer ones.
        then: TooLarge,
    },
    /// Silence, until another behaviour is set.
    Hang(HangAt),
    /// The engine stores it, and the answer is ClickHouse's for a view that failed behind the table.
    ViewFailed,
    /// 307 to the same path and query at another port of this machine.
    Redirect {
        /// The port.
        port: u16,
    },
    /// A proxy's HTML page, with an error of ClickHouse's quoted in the middle.
    ProxyError {
        /// 404, 502 or 503.
        status: u16,
    },
    /// ClickHouse's answer for one of its errors: text, status and X-ClickHouse-Exception-Code.
    ClickHouseError {
        /// 60, 81, 159, 164, 241, 242, 252, 319, 344, 469 or 516.
        code: u32,
        /// Whether the engine has stored it all the same.
        stored: bool,
    },
}

/// How a proxy refuses a body that is too large for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooLarge {
    /// Reads all of it, then answers 413 with its page.
    AnswersAfterIt,
    /// Answers 413 with its page as soon as it is too much, and resets the connection.
    AnswersAtOnce,
    /// Resets the connection as soon as it is too much.
    Resets,
}

/// Where the silence begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HangAt {
    /// After the request's head; goes on honestly when it is released.
    BeforeBody,
    /// After the first bytes of the body; goes on honestly when it is released.
    InBody,
    /// Nothing is stored; the connection is reset when it is released.
    AfterBody,
    /// The engine has stored it; its answer comes when it is released.
    AfterStoring,
    /// After the body, and nothing releases it: the machine is gone, and another one has taken its address.
    ForGood,
}

/// An INSERT that came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Its insert_deduplication_token.
    pub token: String,
    /// A hash of its body as it came over the wire.
    pub body_hash: u64,
}

/// A running server; everything is closed when it is dropped.
#[derive(Debug)]
pub struct ScriptedClickHouse {
    /// Where it listens on the loopback.
    pub port: u16,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ScriptedClickHouse {
    /// Listens on a free port of the loopback, in front of engines at these addresses (`http://127.0.0.1:8123`), and is
    /// honest. All but [`Behaviour::InTurn`] use the first one.
    ///
    /// # Errors
    /// There is no engine's address, or no port or thread left.
    pub fn start(engines: &[String]) -> Result<Self> {
        let address = |url: &String| url.strip_prefix("http://").map(str::to_owned).context("it is http://…");
        let engines: Vec<String> = engines.iter().map(address).collect::<Result<_>>()?;
        ensure!(!engines.is_empty(), "a scripted ClickHouse needs an engine behind it");
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let listener = runtime.block_on(async { listen() })?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared::new(engines));
        let (stop, stopped) = oneshot::channel();
        let accepting = accept(Arc::clone(&shared), listener);
        let thread = std::thread::Builder::new()
            .name("clickhouse".to_owned())
            .spawn(move || run(&runtime, accepting, stopped))?;
        Ok(Self { port, shared, stop: Some(stop), thread: Some(thread) })
    }

    /// `http://127.0.0.1:port`
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Treats INSERTs like this from now on, and releases those that hang. One whose answer has begun goes on as it was.
    ///
    /// # Panics
    /// The code of an error is not among those that are known here.
    pub fn set(&self, behaviour: Behaviour) {
        if let Behaviour::ClickHouseError { code, .. } = behaviour {
            assert!(answers::is_known(code), "there is no text for ClickHouse's error {code}");
        }
        self.shared.script.send_modify(|script| {
            script.behaviour = behaviour;
            script.changes += 1;
        });
    }

    /// Connections accepted so far.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// INSERTs whose head came so far.
    #[must_use]
    pub fn inserts_begun(&self) -> u64 {
        self.shared.inserts_begun.load(Ordering::Relaxed)
    }

    /// INSERTs the engine has stored so far, as it said.
    #[must_use]
    pub fn inserts_stored(&self) -> u64 {
        self.shared.inserts_stored.load(Ordering::Relaxed)
    }

    /// Rows of these, as the engine's summaries count them: those a view makes of them too, and those it knew already.
    #[must_use]
    pub fn rows_written(&self) -> u64 {
        self.shared.rows_written.load(Ordering::Relaxed)
    }

    /// Bytes sent to clients so far.
    #[must_use]
    pub fn bytes_sent(&self) -> u64 {
        self.shared.bytes_sent.load(Ordering::Relaxed)
    }

    /// Every INSERT whose body came whole, in that order.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.seen().clone()
    }
}

impl Drop for ScriptedClickHouse {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// What the caller's thread and the connections share.
#[derive(Debug)]
struct Shared {
    engines: Vec<String>,
    turn: AtomicUsize,
    script: watch::Sender<Script>,
    connections: AtomicU64,
    inserts_begun: AtomicU64,
    inserts_stored: AtomicU64,
    rows_written: AtomicU64,
    bytes_sent: AtomicU64,
    seen: Mutex<Vec<Seen>>,
}

#[derive(Debug, Clone, Copy)]
struct Script {
    behaviour: Behaviour,
    changes: u64,
}

impl Shared {
    fn new(engines: Vec<String>) -> Self {
        Self {
            engines,
            turn: AtomicUsize::new(0),
            script: watch::Sender::new(Script { behaviour: Behaviour::Honest, changes: 0 }),
            connections: AtomicU64::new(0),
            inserts_begun: AtomicU64::new(0),
            inserts_stored: AtomicU64::new(0),
            rows_written: AtomicU64::new(0),
            bytes_sent: AtomicU64::new(0),
            seen: Mutex::default(),
        }
    }

    fn seen(&self) -> MutexGuard<'_, Vec<Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn engine(&self) -> &str {
        let in_turn = self.script.borrow().behaviour == Behaviour::InTurn;
        let turn = if in_turn { self.turn.fetch_add(1, Ordering::Relaxed) } else { 0 };
        &self.engines[turn % self.engines.len()]
    }

    /// Returns when another behaviour was set than at `script`.
    async fn released(&self, script: Script) {
        let _ = self.script.subscribe().wait_for(|now| now.changes != script.changes).await;
    }

    /// Gives a request to the engine; its answer.
    async fn ask_engine(&self, head: &Head, body: &[u8]) -> io::Result<(Head, Vec<u8>)> {
        let mut engine = BufReader::new(TcpStream::connect(self.engine()).await?);
        engine.get_mut().write_all(&head.to_bytes(body.len(), "close")).await?;
        engine.get_mut().write_all(body).await?;
        let head = Head::read(&mut engine).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut body = Vec::new();
        Body::of_answer(&head).pull_all(&mut engine, &mut body).await?;
        Ok((head, body))
    }

    /// The same with an INSERT, which is counted when it is stored.
    async fn store(&self, head: &Head, body: &[u8]) -> io::Result<(Head, Vec<u8>)> {
        let answer = self.ask_engine(head, body).await?;
        if answer.0.first_line.contains(" 200 ") {
            let summary = answer.0.header(SUMMARY).unwrap_or_default();
            self.inserts_stored.fetch_add(1, Ordering::Relaxed);
            self.rows_written.fetch_add(number_in(summary, "written_rows"), Ordering::Relaxed);
        }
        Ok(answer)
    }
}

/// The value of `"name":"123"`; 0 if there is none.
fn number_in(json: &str, name: &str) -> u64 {
    let behind = json.split_once(&format!("\"{name}\"")).map_or("", |(_, behind)| behind);
    let digits = behind.trim_start_matches([':', ' ', '"']);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().unwrap_or(0)
}

fn listen() -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
    socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    socket.listen(BACKLOG)
}

fn run(runtime: &Runtime, accepting: impl Future<Output = ()>, stopped: oneshot::Receiver<()>) {
    runtime.block_on(async {
        tokio::select! {
            _ = stopped => {}
            () = accepting => {}
        }
    });
}

async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await; // no file handle is free
            continue;
        };
        shared.connections.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::clone(&shared);
        // How a connection ends is the client's affair: it is what the tests look at.
        tokio::spawn(async move { Client::new(stream, shared).serve().await });
    }
}
