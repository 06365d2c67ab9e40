//! The script and the INSERTs that arrived: state that the test's thread and the connections share.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use lab_stack::lock;
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::message::{Body, Head};

/// Header in which a server reports the rows that it read and wrote.
pub(super) const SUMMARY: &str = "X-ClickHouse-Summary";

/// Treatment of an INSERT. Unless stated otherwise, only [`Behaviour::Honest`] stores the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// The engine stores the rows and answers.
    Honest,
    /// The engine stores the rows and answers, and the header X-ClickHouse-Summary is removed, as
    /// by a proxy that drops unknown headers.
    HonestWithoutSummary,
    /// Like `Honest`, after this delay.
    Slow(Duration),
    /// A load balancer: each request, of any kind, is forwarded to the next engine.
    RoundRobin,
    /// 200 with the summary, and an exception in the body, split over many chunks.
    ExceptionInChunks,
    /// 200 with the summary, and an exception that is cut within `__exception__`, where the
    /// connection ends.
    ExceptionCutInMarker,
    /// 200 with the summary, and an exception that is cut within its text, where the connection
    /// ends.
    ExceptionCutInText,
    /// 200 with the summary, and an exception as older servers write it, without its last newline.
    ExceptionInOldFormat,
    /// The engine receives the request without its body, answers 200, and reports 0 written rows in
    /// its summary.
    BodyDropped,
    /// 200 with a proxy's HTML page.
    PageWithStatus200,
    /// 200 with an empty body and no summary.
    EmptyWithoutSummary,
    /// 500 with a body that does not end as long as the client reads.
    EndlessError,
    /// 500 with a body of 600 MiB.
    HugeError,
    /// A proxy that accepts bodies up to a length. Accepted bodies are treated honestly.
    TooLarge {
        /// Longest accepted body, in bytes on the wire.
        body_bytes_max: usize,
        then: TooLarge,
    },
    /// No answer until another behaviour is set.
    Hang(HangAt),
    /// The engine stores the rows; the answer is ClickHouse's for a view that failed behind the
    /// table.
    ViewFailed,
    /// The engine stores the rows; instead of the answer, the connection is reset.
    SwallowAnswer,
    /// The connection is reset after this many bytes of the body. A shorter body is treated
    /// honestly.
    ResetInBody { after_bytes: usize },
    /// 307 to the same path and query at another port of this machine.
    Redirect { port: u16 },
    /// A proxy's HTML page that quotes a ClickHouse error.
    ProxyError {
        /// 404, 500, 502 or 503.
        status: u16,
    },
    /// A load balancer in front of two replicas, the second of which is the engine. The first
    /// replica takes each body once, records its token in the Keeper, answers with this error and
    /// dies; the rows are lost. The second replica knows the token: it answers 319 if the insert
    /// requires a quorum, else 200 without storing anything. It stores an insert whose token is
    /// new.
    ReplicaDies { code: u32 },
    /// ClickHouse's answer for an error: text, status and X-ClickHouse-Exception-Code.
    ClickHouseError {
        /// 60, 81, 159, 164, 241, 242, 252, 285, 319, 344, 469, 516 or 999.
        code: u32,
        /// `true`: the engine stores the rows nevertheless.
        stored: bool,
    },
}

/// How a proxy refuses a body that is too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooLarge {
    /// Reads the whole body, then answers 413 with a page.
    AnswersAfterBody,
    /// Answers 413 with a page as soon as the limit is exceeded, and resets the connection.
    AnswersAtOnce,
    /// Resets the connection as soon as the limit is exceeded.
    Resets,
}

/// The moment at which an INSERT hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HangAt {
    /// After the request's head. Continues honestly when released.
    BeforeBody,
    /// After the first bytes of the body. Continues honestly when released.
    InBody,
    /// After the body. Stores nothing; the connection is reset when released.
    AfterBody,
    /// After the engine has stored the rows. The answer is sent when released.
    AfterStoring,
    /// After the body, and never released, as if the machine had died and another one had taken
    /// its address.
    Forever,
}

/// An INSERT that arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedInsert {
    /// The INSERT's `insert_deduplication_token`; empty if the INSERT has none.
    pub token: String,
    /// Hash of the body as received on the wire.
    pub body_hash: u64,
}

/// State shared by the caller's thread and the connections.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) engines: Vec<String>,
    /// Number of requests forwarded while the behaviour was [`Behaviour::RoundRobin`].
    pub(super) turn: AtomicUsize,
    pub(super) script: watch::Sender<Script>,
    pub(super) received: Mutex<Vec<ReceivedInsert>>,
    /// Durations of the INSERTs that the engine answered with 200, from the request's head to the
    /// engine's answer.
    pub(super) durations: Mutex<Vec<Duration>>,
    /// Number of INSERTs that a scripted behaviour has affected.
    pub(super) hits: AtomicU64,
    /// Number of INSERTs in progress that began while the behaviour was [`Behaviour::Honest`].
    pub(super) honest: AtomicUsize,
    /// Tokens of the INSERTs that the dying replica has taken, by the hash of their body.
    pub(super) tokens: Mutex<BTreeMap<u64, String>>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Script {
    pub(super) behaviour: Behaviour,
    /// INSERTs for which the behaviour still applies. `None`: all.
    pub(super) remaining: Option<u32>,
    /// Number of times that the test set a behaviour. A change releases the INSERTs that hang.
    pub(super) changes: u64,
}

impl Shared {
    pub(super) fn new(engines: Vec<String>) -> Self {
        Self {
            engines,
            turn: AtomicUsize::new(0),
            script: watch::Sender::new(Script {
                behaviour: Behaviour::Honest,
                remaining: None,
                changes: 0,
            }),
            received: Mutex::default(),
            durations: Mutex::default(),
            hits: AtomicU64::new(0),
            honest: AtomicUsize::new(0),
            tokens: Mutex::default(),
        }
    }

    pub(super) fn received(&self) -> MutexGuard<'_, Vec<ReceivedInsert>> {
        lock(&self.received)
    }

    /// Returns the address of the engine for the next request.
    pub(super) fn engine(&self) -> &str {
        let in_turn = self.script.borrow().behaviour == Behaviour::RoundRobin;
        let turn = if in_turn { self.turn.fetch_add(1, Ordering::Relaxed) } else { 0 };
        &self.engines[turn % self.engines.len()]
    }

    /// Returns the script for an INSERT that begins. The caller drops the second value when the
    /// INSERT ends.
    pub(super) fn begin_insert(self: &Arc<Self>) -> (Script, Option<HonestInsert>) {
        // Count before reading: after a change, the count never misses an honest INSERT.
        self.honest.fetch_add(1, Ordering::SeqCst);
        let counted = HonestInsert(Arc::clone(self));
        let script = *self.script.borrow();
        (script, (script.behaviour == Behaviour::Honest).then_some(counted))
    }

    /// Counts an INSERT that the behaviour affects (a hit). After the last hit of
    /// [`set_for`](super::ScriptedClickHouse::set_for), the server is honest again.
    pub(super) fn hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
        self.script.send_modify(|script| {
            script.remaining = script.remaining.map(|remaining| remaining.saturating_sub(1));
            if script.remaining == Some(0) {
                (script.behaviour, script.remaining) = (Behaviour::Honest, None);
            }
        });
    }

    /// Waits until the test sets a behaviour again. `script`: the script when the INSERT began.
    pub(super) async fn wait_for_release(&self, script: Script) {
        let _ = self.script.subscribe().wait_for(|now| now.changes != script.changes).await;
    }

    /// Forwards a request to the engine, and returns its answer.
    pub(super) async fn ask_engine(&self, head: &Head, body: &[u8]) -> io::Result<(Head, Vec<u8>)> {
        let mut engine = BufReader::new(TcpStream::connect(self.engine()).await?);
        engine.get_mut().write_all(&head.to_bytes(body.len(), "close")).await?;
        engine.get_mut().write_all(body).await?;
        let head = Head::read(&mut engine).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut body = Vec::new();
        Body::answer(&head).pull_all(&mut engine, &mut body).await?;
        Ok((head, body))
    }
}

/// Counts an honest INSERT until it is dropped.
#[derive(Debug)]
pub(super) struct HonestInsert(Arc<Shared>);

impl Drop for HonestInsert {
    fn drop(&mut self) {
        self.0.honest.fetch_sub(1, Ordering::SeqCst);
    }
}
