//! When to ping, and when a connection that hangs is given up.
//!
//! Pings after three quarters of the keep-alive without a packet either way, and gives up after two whole ones: brokers
//! wait one and a half for us.

use std::time::{Duration, Instant};

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// A ping.
    Ping,
    /// Nothing came in spite of a ping: the end.
    Silent,
    /// The broker takes none of what we write: the end.
    Blocked,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct KeepAlive {
    /// `None` until CONNACK, which has a time limit of its own.
    keep_alive: Option<Duration>,
    heard_at: Instant,
    written_at: Instant,
    /// Since when bytes wait of which none has been written.
    waiting_since: Instant,
    /// The first ping since which nothing has been heard.
    pinged_at: Option<Instant>,
}

impl KeepAlive {
    pub(super) fn new(now: Instant) -> Self {
        Self { keep_alive: None, heard_at: now, written_at: now, waiting_since: now, pinged_at: None }
    }

    /// From CONNACK on there are pings.
    pub(super) fn agreed(&mut self, keep_alive: Duration) {
        self.keep_alive = Some(keep_alive);
    }

    pub(super) fn heard(&mut self, now: Instant) {
        self.heard_at = now;
        self.pinged_at = None;
    }

    pub(super) fn written(&mut self, now: Instant) {
        self.written_at = now;
        self.waiting_since = now;
    }

    /// Bytes wait, from now on.
    pub(super) fn waiting(&mut self, now: Instant) {
        self.waiting_since = now;
    }

    /// A ping was put among them.
    pub(super) fn pinged(&mut self, now: Instant) {
        self.pinged_at.get_or_insert(now);
    }

    /// Nothing has been heard for so long.
    pub(super) fn silence(&self, now: Instant) -> Duration {
        now.duration_since(self.heard_at)
    }

    /// Nothing has been taken for so long.
    pub(super) fn blockade(&self, now: Instant) -> Duration {
        now.duration_since(self.waiting_since)
    }

    /// What is due next, and when.
    pub(super) fn next(&self, has_unsent: bool) -> Option<(Instant, Due)> {
        let keep_alive = self.keep_alive?;
        let quarter = keep_alive / 4;
        let silent = self.pinged_at.map(|pinged_at| (pinged_at + 5 * quarter, Due::Silent));
        let other = if has_unsent {
            (self.waiting_since + 2 * keep_alive, Due::Blocked)
        } else if self.pinged_at.is_some() {
            (self.written_at + 3 * quarter, Due::Ping)
        } else {
            (self.written_at.min(self.heard_at) + 3 * quarter, Due::Ping)
        };
        Some(match silent {
            Some(silent) if silent.0 <= other.0 => silent,
            Some(_) | None => other,
        })
    }
}
