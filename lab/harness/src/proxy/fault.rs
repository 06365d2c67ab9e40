//! What a proxy does wrong now, and what it has counted.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use lab_stack::lock;
use tokio::sync::watch;

/// How the proxy behaves. Up is from client to server, down is back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Passes everything on at once.
    None,
    /// Cuts the existing connections, and new ones as soon as they are accepted.
    Refuse,
    /// Cuts the existing connections, and is [`Fault::None`] from then on.
    Cut,
    /// No byte passes, no connection is made to the server; on end everything flows on.
    HangBoth,
    /// Bytes up and the client's end are swallowed, bytes down pass; on end the connections are cut.
    HalfOpen,
    /// Bytes up pass, bytes down and the server's end are held back; on end they flow on.
    HangDown,
    /// The next INSERTs that the server answers with 2xx have their answers thrown away and their connections cut.
    SwallowAnswer {
        /// How many.
        count: u32,
    },
    /// The next INSERTs are answered with a 500 from here, and do not reach the server.
    Status500 {
        /// How many.
        count: u32,
    },
    /// The next INSERTs that are long enough are cut in the middle.
    ResetMidBody {
        /// How much of the request goes up, its head included.
        after_bytes: u64,
        /// How many.
        count: u32,
    },
    /// Everything passes this much later; at most 256 KiB are under way.
    Delay(Duration),
}

impl Fault {
    fn count_mut(&mut self) -> Option<&mut u32> {
        match self {
            Self::SwallowAnswer { count } | Self::Status500 { count } | Self::ResetMidBody { count, .. } => {
                Some(count)
            }
            Self::None
            | Self::Refuse
            | Self::Cut
            | Self::HangBoth
            | Self::HalfOpen
            | Self::HangDown
            | Self::Delay(_) => None,
        }
    }

    /// What stays of it: nothing of a one-shot or used-up fault.
    pub(crate) fn settled(mut self) -> Self {
        let used_up = self.count_mut().is_some_and(|count| *count == 0);
        if used_up || self == Self::Cut { Self::None } else { self }
    }
}

/// What the caller's thread and the connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) upstream: SocketAddr,
    pub(crate) state: watch::Sender<State>,
    pub(crate) inserts_hit: AtomicU64,
    pub(crate) inserts_took: Mutex<Vec<Duration>>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct State {
    pub(crate) fault: Fault,
    /// How often all connections were cut: an older connection than the last cut has to go.
    pub(crate) cuts: u64,
}

impl Shared {
    pub(crate) fn new(upstream: SocketAddr) -> Self {
        Self {
            upstream,
            state: watch::Sender::new(State { fault: Fault::None, cuts: 0 }),
            inserts_hit: AtomicU64::new(0),
            inserts_took: Mutex::default(),
        }
    }

    pub(crate) fn inserts_took(&self) -> MutexGuard<'_, Vec<Duration>> {
        lock(&self.inserts_took)
    }

    /// Uses one of a counted fault, unless it is no longer the one that was `seen`.
    pub(crate) fn take(&self, seen: Fault) -> bool {
        let taken = self.state.send_if_modified(|state| {
            let fresh = state.fault == seen;
            if fresh && let Some(count) = state.fault.count_mut() {
                *count -= 1;
                state.fault = state.fault.settled();
            }
            fresh
        });
        self.inserts_hit.fetch_add(u64::from(taken), Ordering::Relaxed);
        taken
    }
}
