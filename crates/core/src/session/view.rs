//! Read-only accessors of [`Session`]: counters, gauges, and the current state.

use std::time::{Duration, Instant};

use super::Session;
use super::events::{ConnectionState, SessionNotice, SessionTotals};
use super::purpose::{AfterEmptying, Emptying, Purpose};

impl Session {
    /// Returns the number of messages that were taken on this connection and are not acknowledged
    /// yet.
    #[must_use]
    pub fn unacked(&self) -> usize {
        self.acks.unacked()
    }

    /// Returns how many messages in flight the broker allows on this connection, as far as known.
    pub fn window(&self) -> usize {
        self.window.messages()
    }

    /// Returns when to probe whether the broker's window is full. `None` if no message is
    /// unacknowledged, or if the window needs no probe.
    pub fn probe_at(&self) -> Option<Instant> {
        if self.acks.unacked() > 0 { self.window.probe_at() } else { None }
    }

    /// Returns how long the window has been mostly full: full for at least half of each interval of
    /// a second or more.
    pub fn window_full_for(&self, now: Instant) -> Duration {
        self.saturation.full_for(now)
    }

    /// Returns whether messages are deferred on this connection.
    pub fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// Returns whether the session takes no more messages, so the open batch need not wait for rows
    /// from it.
    pub fn is_flushing(&self) -> bool {
        matches!(self.purpose, Purpose::Flush | Purpose::End)
            || self.connection == ConnectionState::Ended
    }

    /// Returns whether the broker has accepted a connection to this session.
    pub fn has_connected(&self) -> bool {
        self.continuity.has_connected
    }

    /// Returns whether a SUBACK has granted the subscription at least once.
    pub fn has_been_live(&self) -> bool {
        self.has_been_live
    }

    /// Returns whether the broker has resumed this session at least once: a CONNACK had Session
    /// Present.
    pub fn was_found(&self) -> bool {
        self.continuity.was_found
    }

    /// Returns whether a visit gave up before the session was empty.
    pub fn was_abandoned(&self) -> bool {
        self.connection == ConnectionState::Ended
            && matches!(self.purpose, Purpose::Empty(_, AfterEmptying::End))
    }

    /// Returns whether another client seems to use the session.
    pub fn is_contested(&self) -> bool {
        self.reconnect.is_contested()
    }

    /// Returns whether the session is leaving, and its UNSUBACK has not arrived yet.
    pub fn is_still_subscribed(&self) -> bool {
        self.purpose == Purpose::Empty(Emptying::Unsubscribing, AfterEmptying::Keep)
    }

    /// Returns why the session does not consume, as a line of `/readyz`; `None` if it does.
    pub fn unready_reason(&self, now: Instant) -> Option<String> {
        if self.purpose != Purpose::Consume {
            return Some("leaving".to_owned());
        }
        let paused = self.paused.map(|why| SessionNotice::Paused(why).to_string());
        self.reconnect.unready_reason(self.connection.live_since(), now).or(paused)
    }

    /// Returns the number of PUBACKs sent so far.
    pub fn acks(&self) -> u64 {
        self.totals.acks
    }

    #[must_use]
    pub fn totals(&self) -> SessionTotals {
        let is_visit = self.purpose.is_visit();
        SessionTotals {
            unacked: self.acks.unacked() as u64,
            // A visit unsubscribes, so its window receives no new messages.
            window: if is_visit { 0 } else { self.window.messages() as u64 },
            connected: u64::from(!is_visit && self.connection.live_since().is_some()),
            held_by_broker: u64::from(self.held_by_broker || self.acks.unacked() > 0),
            reconnects: self.continuity.reconnects,
            takeovers: self.reconnect.takeovers,
            sessions_lost: self.continuity.sessions_lost,
            sessions_lost_at_risk: self.continuity.lost_at_risk,
            ..self.totals
        }
    }
}
