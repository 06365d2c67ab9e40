//! How the proxy behaves, and what its connections share.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::watch;

/// How the proxy behaves. Up is from client to server, down is back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Cuts the existing connections, and new ones as soon as they are accepted.
    Refuse,
    /// Cuts the existing connections, and is [`Fault::None`] from then on.
    Cut,
    /// No byte passes, and no connection is made to the server; at its end everything flows on.
    HangBoth,
    /// Swallows bytes up and the client's end, passes bytes down; at its end it cuts the
    /// connections.
    HalfOpen,
    /// Passes bytes up, holds bytes down and the server's end back; at its end they flow on.
    HangDown,
    /// Passes everything this much later; at most 256 KiB are under way.
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
    /// How often all connections were cut: a connection older than the last cut has to go.
    pub(super) cuts: u64,
}
