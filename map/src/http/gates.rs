//! Limits the rate of failed logins.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

/// Remote address of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer(pub(super) IpAddr);

/// Maximum number of addresses with a gate of their own.
const KNOWN_PEERS_MAX: usize = 10_000;

/// Locks ("gates") that logins pass one at a time, before the password is compared. A wrong login
/// keeps its gate closed for a second, even if the client disconnects. Without gates, 200
/// connections could guess 200 passwords per second. After a successful login, the client's address
/// gets a gate of its own, so that an attacker elsewhere cannot lock the client out.
#[derive(Debug, Default)]
pub struct Gates {
    /// The gate that all other addresses share.
    shared: Arc<Mutex<()>>,
    /// Gates of addresses that have logged in.
    known: std::sync::Mutex<HashMap<IpAddr, Arc<Mutex<()>>>>,
}

impl Gates {
    fn lock_known(&self) -> std::sync::MutexGuard<'_, HashMap<IpAddr, Arc<Mutex<()>>>> {
        self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Waits until the gate of `peer` is open. `None`: the viewers log in through a proxy, whose
    /// address they share, so they wait at the shared gate.
    pub(super) async fn pass(&self, peer: Option<IpAddr>) -> OwnedMutexGuard<()> {
        let own = peer.and_then(|peer| self.lock_known().get(&peer).cloned());
        own.unwrap_or_else(|| Arc::clone(&self.shared)).lock_owned().await
    }

    /// Gives the address its own gate, after a successful login.
    pub(super) fn add_known(&self, peer: Option<IpAddr>) {
        let mut known = self.lock_known();
        if let Some(peer) = peer
            && known.len() < KNOWN_PEERS_MAX
        {
            known.entry(peer).or_default();
        }
    }
}
