//! What others read from a session: its counts and levels, and what it does now.

use std::time::{Duration, Instant};

use super::Session;
use super::events::{ConnectionState, Notice, Totals};
use super::purpose::{Emptying, Purpose, Then};

impl Session {
    /// Messages taken on this connection and not acknowledged.
    #[must_use]
    pub fn unacked(&self) -> usize {
        self.acks.unacked()
    }

    /// Messages in flight that the broker allows, as far as known.
    pub fn window(&self) -> usize {
        self.window.messages()
    }

    /// When the broker's silence suggests that the window is full. Not without messages that wait for acknowledgements.
    pub fn suspicion_at(&self) -> Option<Instant> {
        if self.acks.unacked() > 0 { self.window.suspicion_at() } else { None }
    }

    /// For how long its window has been full for most of the time.
    pub fn window_full_for(&self, now: Instant) -> Duration {
        self.saturation.lasts(now)
    }

    pub fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// It takes no more messages, so the open batch need not wait.
    pub fn is_flushing(&self) -> bool {
        matches!(self.purpose, Purpose::Flush | Purpose::End) || self.connection == ConnectionState::Ended
    }

    /// SUBSCRIBE has been sent at least once, if it is a member.
    pub fn has_connected(&self) -> bool {
        self.continuity.has_connected
    }

    pub fn has_lived(&self) -> bool {
        self.has_lived
    }

    /// The broker held this session when we came.
    pub fn was_found(&self) -> bool {
        self.continuity.was_found
    }

    /// A visit that gave up before the session was empty.
    pub fn was_left(&self) -> bool {
        self.connection == ConnectionState::Ended && matches!(self.purpose, Purpose::Empty(_, Then::End))
    }

    /// Another client uses the session, as far as one can tell.
    pub fn is_contested(&self) -> bool {
        self.reconnect.is_contested()
    }

    /// UNSUBSCRIBE was not answered yet.
    pub fn is_still_subscribed(&self) -> bool {
        self.purpose == Purpose::Empty(Emptying::Unsubscribing, Then::Keep)
    }

    /// Why it does not consume, for `/readyz`.
    pub fn unready_reason(&self, now: Instant) -> Option<String> {
        if self.purpose != Purpose::Consume {
            return Some("leaving".to_owned());
        }
        let paused = self.paused.map(|why| Notice::Paused(why).to_string());
        self.reconnect.unready_reason(self.connection.live_since(), now).or(paused)
    }

    pub fn acks(&self) -> u64 {
        self.totals.acks
    }

    #[must_use]
    pub fn totals(&self) -> Totals {
        let is_visit = self.purpose.is_visit();
        Totals {
            unacked: self.acks.unacked() as u64,
            // A visit is unsubscribed.
            window: if is_visit { 0 } else { self.window.messages() as u64 },
            connected: u64::from(!is_visit && self.connection.live_since().is_some()),
            held_by_broker: u64::from(self.held_by_broker || self.acks.unacked() > 0),
            reconnects: self.continuity.reconnects,
            sessions_lost: self.continuity.sessions_lost,
            sessions_lost_at_risk: self.continuity.lost_at_risk,
            ..self.totals
        }
    }
}
