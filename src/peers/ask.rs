//! Asks the peers, all at once, within a bound in time.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::decision::{Decision, Inquiry};
use super::standing::Standing;

/// Where a member answers, on its HTTP port.
pub const PATH: &str = "/member";
/// A peer that has not answered by then is asked again, beside the first question: what hangs may be the connection, and not the peer.
const AGAIN_AFTER: Duration = Duration::from_secs(2);
/// So many addresses are asked; a group is smaller.
const ADDRESSES_MAX: usize = 256;
/// So much of an answer is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Where members answer: every address of the name is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// A name, or an address without brackets.
    pub host: String,
    pub port: u16,
}

/// What came of one question.
enum Came {
    Addresses(usize, Result<Vec<SocketAddr>, String>),
    Answer(SocketAddr, Result<Standing, String>),
}

/// Asks every address of every peer, as the member that `ours` is. Returns as soon as one answer decides, and at the latest
/// after `within`.
pub async fn ask(peers: &[Peer], ours: Standing, within: Duration) -> Decision {
    let mut inquiry = Inquiry::new(ours);
    hear(peers, within, |address, answer| inquiry.heard(address, answer)).await;
    inquiry.decision()
}

/// Asks every address of every peer, and tells `heard` each answer, or why there is none, until it says that it has heard enough.
/// Takes no longer than `within`.
pub(crate) async fn hear(
    peers: &[Peer],
    within: Duration,
    mut heard: impl FnMut(&str, Result<Standing, String>) -> bool,
) {
    let until = Instant::now() + within;
    let mut questions = JoinSet::new();
    let mut unresolved: BTreeSet<usize> = (0..peers.len()).collect();
    let (mut asked, mut silent) = (BTreeSet::new(), BTreeSet::new());
    for (index, Peer { host, port }) in peers.iter().cloned().enumerate() {
        questions.spawn(async move { Came::Addresses(index, resolve(&host, port).await) });
    }
    while let Ok(Some(came)) = timeout_at(until, questions.join_next()).await {
        match came.expect("asking does not panic") {
            Came::Addresses(index, found) => {
                unresolved.remove(&index);
                let addresses = found.unwrap_or_else(|why| {
                    heard(&peers[index].host, Err(why));
                    Vec::new()
                });
                for address in addresses {
                    if asked.len() < ADDRESSES_MAX && asked.insert(address) {
                        silent.insert(address);
                        questions.spawn(async move { Came::Answer(address, ask_again(address).await) });
                    }
                }
            }
            Came::Answer(address, answer) => {
                silent.remove(&address);
                if heard(&address.to_string(), answer) {
                    return;
                }
            }
        }
    }
    for index in unresolved {
        heard(&peers[index].host, Err(format!("its addresses were not found within {within:?}")));
    }
    for address in silent {
        heard(&address.to_string(), Err(format!("no answer within {within:?}")));
    }
}

async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let found = lookup_host((host, port)).await.map_err(|error| error.to_string())?;
    Ok(found.take(ADDRESSES_MAX).collect())
}

/// The first answer to any of its questions. A refusal is final if no other question is open: nobody is there. Has no time limit of
/// its own.
async fn ask_again(address: SocketAddr) -> Result<Standing, String> {
    let mut questions = JoinSet::new();
    loop {
        questions.spawn(ask_one(address));
        while let Ok(Some(answer)) = timeout(AGAIN_AFTER, questions.join_next()).await {
            let answer = answer.expect("asking does not panic");
            if answer.is_ok() || questions.is_empty() {
                return answer;
            }
        }
    }
}

/// Has no time limit of its own.
async fn ask_one(address: SocketAddr) -> Result<Standing, String> {
    let broken = |error: hyper::Error| format!("the connection broke: {error}");
    let stream = TcpStream::connect(address).await.map_err(|error| format!("cannot be reached: {error}"))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let request = Request::get(PATH)
        .header(HOST, address.to_string())
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .expect("its parts are good");
    let answer = async move {
        let response = sender.send_request(request).await.map_err(broken)?;
        if response.status() != StatusCode::OK {
            return Err(format!("HTTP {} to GET {PATH}: not a milepost of this version", response.status()));
        }
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        Standing::from_json(&body.map_err(|error| format!("the connection broke: {error}"))?.to_bytes())
    };
    // The connection ends when the answer is there, and its sender gone.
    let (answer, _) = tokio::join!(answer, connection);
    answer
}
