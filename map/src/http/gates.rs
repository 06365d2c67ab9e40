//! How often a login may be wrong.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

/// The address a request comes from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer(pub(super) IpAddr);

/// Addresses whose logins wait for their own wrong ones alone, because a right one came from there.
const KNOWN_PEERS_MAX: usize = 10_000;

/// Every login passes a gate before it is compared, and a wrong one keeps it shut for a second,
/// also when its client hangs up: else 200 connections would guess 200 times a second. An address
/// that has logged in has a gate of its own, so that who guesses does not lock out people at work.
#[derive(Debug, Default)]
pub struct Gates {
    strangers: Arc<Mutex<()>>,
    known: std::sync::Mutex<HashMap<IpAddr, Arc<Mutex<()>>>>,
}

impl Gates {
    fn lock_known(&self) -> std::sync::MutexGuard<'_, HashMap<IpAddr, Arc<Mutex<()>>>> {
        self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// `peer`: `None` behind a proxy, where all come from one address.
    pub(super) async fn pass(&self, peer: Option<IpAddr>) -> OwnedMutexGuard<()> {
        let own = peer.and_then(|peer| self.lock_known().get(&peer).cloned());
        own.unwrap_or_else(|| Arc::clone(&self.strangers)).lock_owned().await
    }

    pub(super) fn knows(&self, peer: Option<IpAddr>) {
        let mut known = self.lock_known();
        if let Some(peer) = peer
            && known.len() < KNOWN_PEERS_MAX
        {
            known.entry(peer).or_default();
        }
    }
}
