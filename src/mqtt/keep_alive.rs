//! Decides when to ping, and when to close a connection that hangs.
//!
//! milepost sends a ping when either direction has been idle for three quarters of the keep-alive.
//! It closes the connection if no packet arrives within one and a quarter keep-alives after a ping,
//! or if the broker reads no bytes for two keep-alives. The broker closes a connection on which it
//! has received no packet for one and a half keep-alives (MQTT-3.1.2-22).

use std::time::{Duration, Instant};

/// The action that is due next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// Send PINGREQ.
    Ping,
    /// Close: no packet has arrived since a ping.
    Silent,
    /// Close: the broker reads no bytes.
    Blocked,
}

#[derive(Debug)]
pub(super) struct KeepAlive {
    /// The keep-alive; `None` until CONNACK, which has its own timeout.
    keep_alive: Option<Duration>,
    /// Time of the last packet from the broker.
    pub(super) received_at: Instant,
    /// Time of the last write.
    written_at: Instant,
    /// Time since which the write buffer has made no progress.
    pub(super) waiting_since: Instant,
    /// Time of the first ping since the last packet from the broker.
    pinged_at: Option<Instant>,
}

impl KeepAlive {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            keep_alive: None,
            received_at: now,
            written_at: now,
            waiting_since: now,
            pinged_at: None,
        }
    }

    /// Starts pinging, once CONNACK has arrived.
    pub(super) fn start(&mut self, keep_alive: Duration) {
        self.keep_alive = Some(keep_alive);
    }

    /// Records that a packet arrived.
    pub(super) fn received(&mut self, now: Instant) {
        self.received_at = now;
        self.pinged_at = None;
    }

    /// Records that the socket accepted bytes.
    pub(super) fn written(&mut self, now: Instant) {
        self.written_at = now;
        self.waiting_since = now;
    }

    /// Records that bytes wait in the write buffer, which was empty.
    pub(super) fn waiting(&mut self, now: Instant) {
        self.waiting_since = now;
    }

    /// Records that a ping was put into the write buffer.
    pub(super) fn pinged(&mut self, now: Instant) {
        self.pinged_at.get_or_insert(now);
    }

    /// Returns the next action and its time; `None` before CONNACK. `has_unsent`: whether bytes
    /// wait in the write buffer. No ping is due then, because it would wait behind those bytes.
    pub(super) fn next(&self, has_unsent: bool) -> Option<(Instant, Due)> {
        let keep_alive = self.keep_alive?;
        let quarter = keep_alive / 4;
        let silent = self.pinged_at.map(|pinged_at| (pinged_at + 5 * quarter, Due::Silent));
        let outbound = if has_unsent {
            (self.waiting_since + 2 * keep_alive, Due::Blocked)
        } else if self.pinged_at.is_some() {
            // A ping is unanswered. Send another one only to keep the outbound direction from
            // being idle.
            (self.written_at + 3 * quarter, Due::Ping)
        } else {
            (self.written_at.min(self.received_at) + 3 * quarter, Due::Ping)
        };
        silent.into_iter().chain([outbound]).min_by_key(|(at, _)| *at)
    }
}
