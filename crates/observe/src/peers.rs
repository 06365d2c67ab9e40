//! Requests `/member` from peers within a time limit. Begins with a few requests at a time, and
//! doubles that number at short intervals. Ends when the caller needs no more answers, or when all
//! peers have answered.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, RandomState};
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
use tokio::time::{Instant, sleep, timeout, timeout_at};

use milepost_core::peers::Peer;
use milepost_core::peers::decision::{Decision, FollowUp, Inquiry};
use milepost_core::peers::member::MemberStatus;
use milepost_core::peers::waves::Waves;

/// Path on the member's HTTP port.
pub const MEMBER_PATH: &str = "/member";
/// Time without an answer after which a further request is sent to the same address. A single
/// connection may hang although the peer is healthy.
const HEDGE_AFTER: Duration = Duration::from_secs(2);
/// Pause before a request or a lookup is repeated.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Interval at which the number of concurrent requests doubles. The number reaches 256 within two
/// seconds.
const WIDEN_EVERY: Duration = Duration::from_millis(250);
/// Maximum number of addresses to which requests are sent. A group is smaller.
const ADDRESSES_MAX: usize = 256;
/// Maximum bytes of a `/member` document, which lists the topics of all sources. A longer answer is
/// an error.
pub const MEMBER_BYTES_MAX: usize = 1024 * 1024;

/// How to handle a host name that does not resolve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnUnresolved {
    /// Look the name up again until the time limit.
    Retry,
    /// Do not look the name up again; report it at the end.
    Report,
}

/// The result of one lookup or request.
enum Reply {
    /// The index of a peer, and the addresses of its host name.
    Addresses(usize, Result<Vec<SocketAddr>, String>),
    /// The address that was asked, and its answer.
    Answer(SocketAddr, Result<MemberStatus, String>),
}

/// Decides whether this member leaves the group, by the `/member` documents of its peers. Repeats a
/// request that gets no answer. `ours`: this member's own status. Returns as soon as the decision
/// is certain, at the latest after `time_limit`.
pub async fn decide_by_peers(peers: &[Peer], ours: MemberStatus, time_limit: Duration) -> Decision {
    let mut inquiry = Inquiry::new(ours);
    query_peers(peers, time_limit, OnUnresolved::Retry, |address, answer| {
        inquiry.handle_answer(address, answer)
    })
    .await;
    inquiry.decision()
}

/// Sends a request to the peers' addresses, at most [`ADDRESSES_MAX`] of them. Passes each answer,
/// or the reason why there is none, to `handle_answer`, which decides whether to ask that address
/// again. Takes at most `time_limit`.
pub async fn query_peers(
    peers: &[Peer],
    time_limit: Duration,
    on_unresolved: OnUnresolved,
    mut handle_answer: impl FnMut(&str, Result<MemberStatus, String>) -> FollowUp,
) {
    let deadline = Instant::now() + time_limit;
    let mut requests = JoinSet::new();
    let not_found = || format!("its addresses were not found within {time_limit:?}");
    // Peers whose host names have no addresses yet, by index in `peers`, each with the reason.
    let mut unresolved: BTreeMap<usize, String> =
        (0..peers.len()).map(|index| (index, not_found())).collect();
    // `queried`: the addresses found so far, at most `ADDRESSES_MAX`. `silent`: those that have not
    // answered yet.
    let (mut queried, mut silent) = (BTreeSet::new(), BTreeSet::new());
    let lookup = |index: usize, pause: Duration| {
        let Peer { host, port } = peers[index].clone();
        async move {
            sleep(pause).await;
            Reply::Addresses(index, resolve(&host, port).await)
        }
    };
    let request = |address: SocketAddr, pause: Duration| async move {
        sleep(pause).await;
        Reply::Answer(address, request_hedged(address).await)
    };
    for index in 0..peers.len() {
        requests.spawn(lookup(index, Duration::ZERO));
    }
    let mut waves = Waves::new(RandomState::new().hash_one(peers.len()));
    let mut widened_at = Instant::now();
    loop {
        // `start` returns the next address, unless enough requests are under way.
        while let Some(address) = waves.start() {
            requests.spawn(request(address, Duration::ZERO));
        }
        let widen_at = waves.has_waiting().then(|| widened_at + WIDEN_EVERY);
        let wake_at = widen_at.map_or(deadline, |at| at.min(deadline));
        let reply = match timeout_at(wake_at, requests.join_next()).await {
            Ok(Some(reply)) => reply,
            Ok(None) => break,
            Err(_) if Instant::now() >= deadline => break,
            Err(_) => {
                waves.widen();
                widened_at = Instant::now();
                continue;
            }
        };
        match reply.expect("a request does not panic") {
            // Keep the failure for the end: with `Retry`, a later lookup may find addresses.
            Reply::Addresses(index, Err(why)) => {
                unresolved.insert(index, why);
                if on_unresolved == OnUnresolved::Retry {
                    requests.spawn(lookup(index, RETRY_PAUSE));
                }
            }
            Reply::Addresses(index, Ok(addresses)) => {
                unresolved.remove(&index);
                for address in addresses {
                    if queried.len() < ADDRESSES_MAX && queried.insert(address) {
                        silent.insert(address);
                        waves.add(address);
                    }
                }
            }
            Reply::Answer(address, answer) => {
                if silent.remove(&address) {
                    waves.answered();
                }
                match handle_answer(&address.to_string(), answer) {
                    FollowUp::Settled => {}
                    FollowUp::AskAgain => drop(requests.spawn(request(address, RETRY_PAUSE))),
                    FollowUp::Stop => return,
                }
            }
        }
    }
    for (index, why) in unresolved {
        handle_answer(&peers[index].host, Err(why));
    }
    for address in silent {
        handle_answer(&address.to_string(), Err(format!("no answer within {time_limit:?}")));
    }
}

/// Returns the addresses of a host name, at most [`ADDRESSES_MAX`].
pub async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let addresses = lookup_host((host, port)).await.map_err(|error| error.to_string())?;
    Ok(addresses.take(ADDRESSES_MAX).collect())
}

/// Sends a request to `address`, and a further one whenever [`HEDGE_AFTER`] passes without an
/// answer. Returns the first answer. If all requests so far have failed, returns the last error at
/// once: a refused connection means that no process listens there. Has no timeout.
async fn request_hedged(address: SocketAddr) -> Result<MemberStatus, String> {
    let mut requests = JoinSet::new();
    loop {
        requests.spawn(request_status(address));
        while let Ok(Some(answer)) = timeout(HEDGE_AFTER, requests.join_next()).await {
            let answer = answer.expect("a request does not panic");
            if answer.is_ok() || requests.is_empty() {
                return answer;
            }
        }
    }
}

/// Requests `/member` from one address. Has no timeout.
async fn request_status(address: SocketAddr) -> Result<MemberStatus, String> {
    match get(address, MEMBER_PATH, MEMBER_BYTES_MAX).await? {
        (StatusCode::OK, answer) => MemberStatus::from_json(&answer),
        (status, _) => {
            Err(format!("HTTP {status} to GET {MEMBER_PATH}: not a milepost of this version"))
        }
    }
}

/// Requests a path of a member's HTTP port. Fails if the answer is longer than `bytes_max`. Has no
/// timeout.
pub async fn get(
    address: SocketAddr,
    path: &str,
    bytes_max: usize,
) -> Result<(StatusCode, Bytes), String> {
    let broken = |error: hyper::Error| format!("the connection broke: {error}");
    let stream =
        TcpStream::connect(address).await.map_err(|error| format!("cannot be reached: {error}"))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let request = Request::get(path)
        .header(HOST, address.to_string())
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .expect("the parts of the request are valid");
    let answer = async move {
        let response = sender.send_request(request).await.map_err(broken)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), bytes_max).collect().await;
        Ok((
            status,
            body.map_err(|error| format!("the answer cannot be read: {error}"))?.to_bytes(),
        ))
    };
    // The connection ends when the answer has arrived and the sender is dropped.
    let (answer, _) = tokio::join!(answer, connection);
    answer
}
