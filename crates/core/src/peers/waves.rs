//! Decides which peers to ask, and how many at a time.
//!
//! A leaving member needs only one answer: that a member with a lower name stays. So the leaving
//! member asks two peers first, and asks more peers only while it has no such answer. When a group
//! of n members is restarted one by one, the members send about n log n requests in total. If each
//! member asked all peers at once, the members would send n² requests.
//!
//! Guarantee: the order is random, so the members do not all ask the same peers first. A peer that
//! does not answer delays the other requests at most until the next call of
//! [`widen`](Waves::widen).

use std::collections::VecDeque;

/// Number of peers that are asked at the same time at the beginning.
const FIRST_AT_ONCE: usize = 2;

/// The peers that have not been asked yet.
#[derive(Debug)]
pub struct Waves<T> {
    waiting: VecDeque<T>,
    /// Number of peers that may be asked at the same time now.
    at_once: usize,
    /// Number of peers that were asked and have not answered yet.
    unanswered: usize,
    rng: fastrand::Rng,
}

impl<T> Waves<T> {
    /// Starts without peers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            waiting: VecDeque::new(),
            at_once: FIRST_AT_ONCE,
            unanswered: 0,
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    /// Adds a peer at a random position in the order.
    pub fn add(&mut self, peer: T) {
        let index = self.rng.usize(..=self.waiting.len());
        self.waiting.insert(index, peer);
    }

    /// Returns the next peer to ask now. `None` if as many peers as allowed have not answered yet,
    /// or if no peer is left.
    pub fn start(&mut self) -> Option<T> {
        if self.unanswered >= self.at_once {
            return None;
        }
        let peer = self.waiting.pop_front()?;
        self.unanswered += 1;
        Some(peer)
    }

    /// Records the first answer of a peer, or the failure of the request.
    pub fn answered(&mut self) {
        self.unanswered = self.unanswered.saturating_sub(1);
    }

    /// Doubles the number of peers that are asked at the same time. Call it at regular intervals.
    pub fn widen(&mut self) {
        self.at_once = self.at_once.saturating_mul(2);
    }

    #[must_use]
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}
