//! The faults of the proxy, and the state that its connections share.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::watch;

/// The behaviour of the proxy. Up is from client to server, down is from server to client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Resets the existing connections, and resets new connections as soon as they are accepted.
    Refuse,
    /// Resets the existing connections, and behaves as [`Fault::None`] from then on.
    Cut,
    /// Forwards nothing and connects to no server. When the fault ends, all bytes flow again.
    HangBoth,
    /// Discards bytes up and the client's end of stream, and forwards bytes down. When the fault
    /// ends, the connections are reset.
    HalfOpen,
    /// Forwards bytes up, and holds back bytes down and the server's end of stream. When the fault
    /// ends, the held bytes and the end of stream are forwarded.
    HangDown,
    /// Forwards all bytes with this delay in each direction. At most 256 KiB are in flight.
    Delay(Duration),
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) upstream: SocketAddr,
    pub(super) state: watch::Sender<State>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    pub(super) fault: Fault,
    /// Number of times that all connections were cut. A connection older than the last cut must be
    /// reset.
    pub(super) cuts: u64,
}
