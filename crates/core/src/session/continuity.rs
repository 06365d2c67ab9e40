//! Detects whether the broker kept a session, with its queue, from one connection to the next.

use std::time::{Duration, Instant};

use super::events::{AtRisk, LostSession, SessionNotice};
use crate::session::connack::ConnAck;

/// The state of a session at the moment its connection ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct SessionAtEnd {
    /// Messages that milepost had accepted and not acknowledged. milepost stores their rows in any
    /// case.
    pub(super) accepted: usize,
    /// Messages that the broker had sent and milepost had deferred.
    pub(super) deferred: usize,
    /// The in-flight window was full, so more messages may have waited in the broker's queue.
    pub(super) window_full: bool,
    /// When the connection ended.
    pub(super) at: Instant,
}

/// The terms of a new connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    /// Receive Maximum in our CONNECT.
    pub(super) requested: u16,
    /// CONNECT had a clean start.
    pub(super) clean_start: bool,
    /// Time for which the broker kept the session without a connection: the expiry granted before
    /// this connection.
    pub(super) session_expiry: Duration,
}

/// The history of a session over its connections.
#[derive(Debug, Default)]
pub(super) struct Continuity {
    /// At least one connection to this session was accepted.
    pub(super) has_connected: bool,
    /// At least one connection resumed the session.
    pub(super) was_found: bool,
    pub(super) reconnects: u64,
    pub(super) sessions_lost: u64,
    /// Lost sessions that may have held messages that are stored nowhere.
    pub(super) lost_at_risk: u64,
    /// The end of the last connection that the broker accepted; `None` until one has ended.
    last: Option<SessionAtEnd>,
    /// A connection attempt has failed after `last`, so the broker or its node was down.
    attempt_failed: bool,
    /// Messages that were unacknowledged when a connection ended, and that the broker has not
    /// redelivered yet.
    owed: usize,
    /// Receive Maximum in the last CONNACK; `None` if it had none.
    announced: Option<u16>,
}

impl Continuity {
    /// Forgets the connections so far, because the next connection may be to a new session. That
    /// connection counts neither as a reconnect nor as a loss.
    pub(super) fn forget(&mut self) {
        (self.has_connected, self.owed) = (false, 0);
    }

    /// Records the end of a connection that the broker had accepted.
    pub(super) fn connection_ended(&mut self, end: SessionAtEnd) {
        // A connection that ended without unacknowledged messages does not change `owed`: the
        // broker may still owe messages of an earlier connection.
        let owed = end.accepted + end.deferred;
        if owed > 0 {
            self.owed = owed;
        }
        (self.last, self.attempt_failed) = (Some(end), false);
    }

    /// Records that a connection ended before the broker accepted it.
    pub(super) fn attempt_failed(&mut self) {
        self.attempt_failed = true;
    }

    /// Processes CONNACK. Returns a warning if the broker lost the session or lowered its window.
    pub(super) fn connected(
        &mut self,
        connack: ConnAck,
        terms: Terms,
        now: Instant,
    ) -> Option<SessionNotice> {
        let ConnAck { session_present, receive_maximum: announced, .. } = connack;
        self.was_found |= session_present;
        let announced_before = std::mem::replace(&mut self.announced, announced);
        let owed = std::mem::take(&mut self.owed);
        if session_present {
            self.owed = owed;
        }
        if !std::mem::replace(&mut self.has_connected, true) {
            return None;
        }
        self.reconnects += 1;
        if !session_present {
            return (!terms.clean_start)
                .then(|| self.session_lost(owed, terms.session_expiry, now));
        }
        let (from, to) = (announced_before?.min(terms.requested), announced?);
        (to < from).then_some(SessionNotice::WindowLowered { from: from.into(), to: to.into() })
    }

    fn session_lost(
        &mut self,
        owed: usize,
        session_expiry: Duration,
        now: Instant,
    ) -> SessionNotice {
        self.sessions_lost += 1;
        let at_risk = self.at_risk(session_expiry, now);
        self.lost_at_risk += u64::from(at_risk.is_some());
        let deferred = self.last.map_or(0, |last| last.deferred);
        SessionNotice::SessionLost(LostSession { accepted: owed.saturating_sub(deferred), at_risk })
    }

    /// Returns why the lost session may have held messages that are stored nowhere. `None` if it
    /// held no such messages: the window was not full, and milepost had accepted every message that
    /// the broker had sent. An attempt to reconnect then failed, so the broker had stopped when the
    /// connection ended, and queued no further messages.
    fn at_risk(&self, session_expiry: Duration, now: Instant) -> Option<AtRisk> {
        let last = self.last?;
        let away = now.saturating_duration_since(last.at);
        if last.deferred > 0 {
            Some(AtRisk::Deferred { messages: last.deferred })
        } else if last.window_full {
            Some(AtRisk::WindowFull)
        } else if away >= session_expiry {
            Some(AtRisk::Expired { away })
        } else if !self.attempt_failed {
            Some(AtRisk::BrokerNotRestarted)
        } else {
            None
        }
    }

    /// Processes a message. Returns a warning if the message proves that the broker had emptied the
    /// session.
    ///
    /// A broker that kept the session redelivers unacknowledged messages before it sends new ones
    /// (MQTT 5, 4.4 and 4.6). So the proof is a new message that arrives before all redeliveries.
    pub(super) fn handle_message(&mut self, redelivered: bool) -> Option<SessionNotice> {
        if redelivered {
            self.owed = self.owed.saturating_sub(1);
            return None;
        }
        let owed = std::mem::take(&mut self.owed);
        (owed > 0).then(|| {
            // The broker's queue is lost as well, and its length is unknown.
            self.sessions_lost += 1;
            self.lost_at_risk += 1;
            SessionNotice::SessionEmptied { owed }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPIRY: Duration = Duration::from_secs(120);

    fn connect_at(
        continuity: &mut Continuity,
        session_present: bool,
        clean_start: bool,
        now: Instant,
    ) -> Option<SessionNotice> {
        let connack = ConnAck { session_present, receive_maximum: Some(100), ..ConnAck::default() };
        continuity.connected(
            connack,
            Terms { requested: 1_000, clean_start, session_expiry: EXPIRY },
            now,
        )
    }

    fn resume(continuity: &mut Continuity) -> Option<SessionNotice> {
        connect_at(continuity, true, false, Instant::now())
    }

    fn connect_to_new_session(continuity: &mut Continuity) -> Option<SessionNotice> {
        connect_at(continuity, false, false, Instant::now())
    }

    fn clean_start(continuity: &mut Continuity) -> Option<SessionNotice> {
        connect_at(continuity, false, true, Instant::now())
    }

    fn end_with_unacked(accepted: usize) -> SessionAtEnd {
        SessionAtEnd { accepted, deferred: 0, window_full: false, at: Instant::now() }
    }

    #[test]
    fn lost_session_is_reported_and_counted_once() {
        let mut continuity = Continuity::default();
        assert!(
            connect_to_new_session(&mut continuity).is_none() && !continuity.was_found,
            "there was no earlier session to lose"
        );
        assert_eq!((continuity.reconnects, continuity.sessions_lost), (0, 0));

        // The broker redelivers both unacknowledged messages, and then sends a new one.
        continuity.connection_ended(end_with_unacked(2));
        assert!(resume(&mut continuity).is_none() && continuity.was_found);
        assert!(
            [true, true, false]
                .into_iter()
                .all(|redelivered| continuity.handle_message(redelivered).is_none())
        );
        // The broker redelivers only one of two unacknowledged messages. The connection in between,
        // without a message, does not change how many the broker owes.
        continuity.connection_ended(end_with_unacked(2));
        assert!(resume(&mut continuity).is_none());
        continuity.connection_ended(end_with_unacked(0));
        assert!(resume(&mut continuity).is_none() && continuity.handle_message(true).is_none());
        assert!(matches!(
            continuity.handle_message(false),
            Some(SessionNotice::SessionEmptied { owed: 1 })
        ));
        assert!(continuity.handle_message(false).is_none(), "reported once");
        assert_eq!(
            (continuity.reconnects, continuity.sessions_lost, continuity.lost_at_risk),
            (3, 1, 1)
        );

        continuity.connection_ended(end_with_unacked(5));
        assert!(matches!(
            connect_to_new_session(&mut continuity),
            Some(SessionNotice::SessionLost(_))
        ));
        assert!(continuity.handle_message(false).is_none(), "already reported");
        assert!(clean_start(&mut continuity).is_none(), "a clean start was requested");
        assert_eq!((continuity.reconnects, continuity.sessions_lost), (5, 2));

        continuity.connection_ended(end_with_unacked(5));
        continuity.forget();
        assert!(
            resume(&mut continuity).is_none() && continuity.handle_message(false).is_none(),
            "the forgotten session owed the messages"
        );
        assert_eq!((continuity.reconnects, continuity.sessions_lost), (5, 2));
    }

    #[test]
    fn lost_session_is_at_risk_only_if_it_can_have_held_messages() {
        let now = Instant::now();
        let all_accepted = SessionAtEnd { accepted: 7, deferred: 0, window_full: false, at: now };
        let restart = now + Duration::from_secs(30);
        for (last, attempt_failed, back_at, at_risk) in [
            (all_accepted, true, restart, None),
            (all_accepted, false, restart, Some(AtRisk::BrokerNotRestarted)),
            (
                SessionAtEnd { window_full: true, ..all_accepted },
                true,
                restart,
                Some(AtRisk::WindowFull),
            ),
            (
                SessionAtEnd { deferred: 3, ..all_accepted },
                true,
                restart,
                Some(AtRisk::Deferred { messages: 3 }),
            ),
            (all_accepted, true, now + EXPIRY, Some(AtRisk::Expired { away: EXPIRY })),
        ] {
            let mut continuity = Continuity::default();
            connect_at(&mut continuity, false, false, now);
            continuity.connection_ended(last);
            if attempt_failed {
                continuity.attempt_failed();
            }
            let notice = connect_at(&mut continuity, false, false, back_at);
            assert_eq!(
                notice,
                Some(SessionNotice::SessionLost(LostSession { accepted: 7, at_risk }))
            );
            assert_eq!(
                (continuity.sessions_lost, continuity.lost_at_risk),
                (1, u64::from(at_risk.is_some()))
            );
        }
    }

    #[test]
    fn lowered_window_is_reported() {
        let mut continuity = Continuity::default();
        let mut announces = |receive_maximum, requested| {
            let connack = ConnAck { session_present: true, receive_maximum, ..ConnAck::default() };
            let terms = Terms { requested, clean_start: false, session_expiry: EXPIRY };
            continuity
                .connected(connack, terms, Instant::now())
                .map(|notice| matches!(notice, SessionNotice::WindowLowered { from: 50, to: 20 }))
        };
        let reported = [Some(100), Some(50), Some(100), Some(20), Some(20), None, Some(10)]
            .map(|to| announces(to, 50));
        assert_eq!(reported, [None, None, None, Some(true), None, None, None]);
    }
}
