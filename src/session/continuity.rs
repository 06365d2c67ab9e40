//! Whether the broker kept a session from one connection to the next, with everything in it.

use super::events::Notice;
use crate::codec::ConnAck;

#[derive(Debug, Default)]
pub(super) struct Continuity {
    /// To this session.
    pub(super) has_connected: bool,
    /// At least one connection resumed the session.
    pub(super) was_found: bool,
    pub(super) reconnects: u64,
    pub(super) sessions_lost: u64,
    /// Messages that were unacknowledged when the last connection ended, and have not come again.
    owed: usize,
    /// Receive Maximum in the last CONNACK.
    announced: Option<u16>,
}

impl Continuity {
    /// The next connection is of another session.
    pub(super) fn forget(&mut self) {
        (self.has_connected, self.owed) = (false, 0);
    }

    /// A connection ended; `owed`: messages that the broker sent and this process has not acknowledged.
    pub(super) fn ended(&mut self, owed: usize) {
        if owed > 0 {
            self.owed = owed;
        }
    }

    /// A connection begins; `asked`: Receive Maximum in our CONNECT; `clean`: with a clean start. Returns a warning if the broker lost
    /// the session or shrank its window.
    pub(super) fn connected(&mut self, connack: ConnAck, asked: u16, clean: bool) -> Option<Notice> {
        let ConnAck { session_present, receive_maximum: announced, .. } = connack;
        self.was_found |= session_present;
        let before = std::mem::replace(&mut self.announced, announced);
        self.owed = if session_present { self.owed } else { 0 };
        if !std::mem::replace(&mut self.has_connected, true) {
            return None;
        }
        self.reconnects += 1;
        if !session_present {
            return (!clean).then(|| self.lost(Notice::SessionLost));
        }
        let (from, to) = (before?.min(asked), announced?);
        (to < from).then_some(Notice::WindowLowered { from: from.into(), to: to.into() })
    }

    /// A message came. A broker that kept the session resends unacknowledged messages before new ones (MQTT 5, 4.4 and 4.6).
    pub(super) fn arrived(&mut self, redelivered: bool) -> Option<Notice> {
        if redelivered {
            self.owed = self.owed.saturating_sub(1);
            return None;
        }
        let owed = std::mem::take(&mut self.owed);
        (owed > 0).then(|| self.lost(Notice::SessionEmptied { owed }))
    }

    fn lost(&mut self, notice: Notice) -> Notice {
        self.sessions_lost += 1;
        notice
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connect(continuity: &mut Continuity, session_present: bool, clean: bool) -> Option<Notice> {
        let connack = ConnAck { session_present, receive_maximum: Some(100), ..ConnAck::default() };
        continuity.connected(connack, 1_000, clean)
    }

    #[test]
    fn what_the_broker_lost_is_told_and_counted_once() {
        let mut it = Continuity::default();
        assert!(connect(&mut it, false, false).is_none() && !it.was_found, "nobody had a session before");
        assert_eq!((it.reconnects, it.sessions_lost), (0, 0));

        // It sends the two that were not acknowledged again, and then a new one.
        it.ended(2);
        assert!(connect(&mut it, true, false).is_none() && it.was_found);
        assert!([true, true, false].into_iter().all(|redelivered| it.arrived(redelivered).is_none()));
        // It sends one of two. A connection without a message says nothing of what is owed.
        it.ended(2);
        assert!(connect(&mut it, true, false).is_none());
        it.ended(0);
        assert!(connect(&mut it, true, false).is_none() && it.arrived(true).is_none());
        assert!(matches!(it.arrived(false), Some(Notice::SessionEmptied { owed: 1 })));
        assert!(it.arrived(false).is_none(), "told once");
        assert_eq!((it.reconnects, it.sessions_lost), (3, 1));

        it.ended(5);
        assert!(matches!(connect(&mut it, false, false), Some(Notice::SessionLost)));
        assert!(it.arrived(false).is_none(), "that is told");
        assert!(connect(&mut it, false, true).is_none(), "it was asked to");
        assert_eq!((it.reconnects, it.sessions_lost), (5, 2));

        it.ended(5);
        it.forget();
        assert!(connect(&mut it, true, false).is_none() && it.arrived(false).is_none(), "another session's");
        assert_eq!((it.reconnects, it.sessions_lost), (5, 2));
    }

    #[test]
    fn a_window_that_became_smaller_than_what_was_asked_for_is_told() {
        let mut it = Continuity::default();
        let mut announces = |receive_maximum, asked| {
            let connack = ConnAck { session_present: true, receive_maximum, ..ConnAck::default() };
            it.connected(connack, asked, false)
                .map(|notice| matches!(notice, Notice::WindowLowered { from: 50, to: 20 }))
        };
        let said =
            [Some(100), Some(50), Some(100), Some(20), Some(20), None, Some(10)].map(|to| announces(to, 50));
        assert_eq!(said, [None, None, None, Some(true), None, None, None]);
    }
}
