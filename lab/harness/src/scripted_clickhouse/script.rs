//! What the server is told to do, and what it has seen: shared by its owner and its connections.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use lab_stack::lock;
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::message::{Body, Head};

/// How a server says what it wrote.
pub(super) const SUMMARY: &str = "X-ClickHouse-Summary";

/// What becomes of an INSERT. Where nothing else is said, one that is not answered honestly stores
/// nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// The engine stores it and answers.
    Honest,
    /// The same, without the header X-ClickHouse-Summary: a proxy drops what it does not know.
    HonestWithoutSummary,
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
    /// The engine gets the request without its body: it answers 200, and its summary says that it
    /// wrote 0 rows.
    BodyDropped,
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
        then: TooLarge,
    },
    /// Silence, until another behaviour is set.
    Hang(HangAt),
    /// The engine stores it, and the answer is ClickHouse's for a view that failed behind the
    /// table.
    ViewFailed,
    /// The engine stores it, and the connection is reset instead of the answer.
    SwallowAnswer,
    /// The connection is reset after so many bytes of the body; a shorter one passes honestly.
    ResetInBody {
        after_bytes: usize,
    },
    /// 307 to the same path and query at another port of this machine.
    Redirect {
        port: u16,
    },
    /// A proxy's HTML page, with an error of ClickHouse's quoted in the middle.
    ProxyError {
        /// 404, 500, 502 or 503.
        status: u16,
    },
    /// A load balancer before two replicas, of which the engine is the second. The first one takes
    /// each body once, names its token in the Keeper, answers with this error and dies; what it
    /// took is gone. The second one knows the token: it says 319 where the insert wants a quorum,
    /// else 200 without storing anything. A token that is new to it is stored.
    ReplicaDies {
        code: u32,
    },
    /// ClickHouse's answer for one of its errors: text, status and X-ClickHouse-Exception-Code.
    ClickHouseError {
        /// 60, 81, 159, 164, 241, 242, 252, 285, 319, 344, 469, 516 or 999.
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
    /// After the body, and nothing releases it: the machine is gone, and another one has taken its
    /// address.
    ForGood,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub token: String,
    /// A hash of its body as it came over the wire.
    pub body_hash: u64,
}

/// What the caller's thread and the connections share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) engines: Vec<String>,
    pub(super) turn: AtomicUsize,
    pub(super) script: watch::Sender<Script>,
    pub(super) seen: Mutex<Vec<Seen>>,
    /// From each INSERT's head to its answer, of those that the engine answered with 200.
    pub(super) took: Mutex<Vec<Duration>>,
    pub(super) hits: AtomicU64,
    /// Bodies that the replica which dies has taken, and under which tokens.
    pub(super) taken: Mutex<BTreeMap<u64, String>>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Script {
    pub(super) behaviour: Behaviour,
    /// How many INSERTs it is still for; `None`: all.
    pub(super) left: Option<u32>,
    pub(super) changes: u64,
}

impl Shared {
    pub(super) fn new(engines: Vec<String>) -> Self {
        Self {
            engines,
            turn: AtomicUsize::new(0),
            script: watch::Sender::new(Script {
                behaviour: Behaviour::Honest,
                left: None,
                changes: 0,
            }),
            seen: Mutex::default(),
            took: Mutex::default(),
            hits: AtomicU64::new(0),
            taken: Mutex::default(),
        }
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, Vec<Seen>> {
        lock(&self.seen)
    }

    pub(super) fn engine(&self) -> &str {
        let in_turn = self.script.borrow().behaviour == Behaviour::InTurn;
        let turn = if in_turn { self.turn.fetch_add(1, Ordering::Relaxed) } else { 0 };
        &self.engines[turn % self.engines.len()]
    }

    /// Uses one of a behaviour that is for some INSERTs; with the last one, the server is honest
    /// again.
    pub(super) fn hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
        self.script.send_modify(|script| {
            script.left = script.left.map(|left| left.saturating_sub(1));
            if script.left == Some(0) {
                (script.behaviour, script.left) = (Behaviour::Honest, None);
            }
        });
    }

    /// Returns when another behaviour was set than at `script`.
    pub(super) async fn released(&self, script: Script) {
        let _ = self.script.subscribe().wait_for(|now| now.changes != script.changes).await;
    }

    /// Gives a request to the engine; its answer.
    pub(super) async fn ask_engine(&self, head: &Head, body: &[u8]) -> io::Result<(Head, Vec<u8>)> {
        let mut engine = BufReader::new(TcpStream::connect(self.engine()).await?);
        engine.get_mut().write_all(&head.to_bytes(body.len(), "close")).await?;
        engine.get_mut().write_all(body).await?;
        let head = Head::read(&mut engine).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut body = Vec::new();
        Body::of_answer(&head).pull_all(&mut engine, &mut body).await?;
        Ok((head, body))
    }
}
