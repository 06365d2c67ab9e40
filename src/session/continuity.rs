//! Whether the broker kept a session from one connection to the next, with everything in it.

use super::events::Notice;

/// CONNACK, compared with what this process asked for.
pub(super) struct Found {
    pub(super) session_present: bool,
    /// Receive Maximum in CONNACK.
    pub(super) announced: Option<u16>,
    /// Receive Maximum in our CONNECT.
    pub(super) asked: u16,
}

#[derive(Debug, Default)]
pub(super) struct Continuity {
    connections: u64,
    was_found: bool,
    reconnects: u64,
    sessions_lost: u64,
    /// Messages that were unacknowledged when the last connection ended, and have not come again.
    owed: usize,
    /// Receive Maximum in the last CONNACK.
    announced: Option<u16>,
}

impl Continuity {
    /// At least one connection resumed the session.
    pub(super) fn was_found(&self) -> bool {
        self.was_found
    }

    pub(super) fn reconnects(&self) -> u64 {
        self.reconnects
    }

    pub(super) fn sessions_lost(&self) -> u64 {
        self.sessions_lost
    }

    /// The next connection is of another session.
    pub(super) fn forget(&mut self) {
        (self.connections, self.owed) = (0, 0);
    }

    /// A connection ended; `owed`: messages that the broker sent and this process has not acknowledged.
    pub(super) fn ended(&mut self, owed: usize) {
        if owed > 0 {
            self.owed = owed;
        }
    }

    /// A connection begins; `clean`: with a clean start. Returns a warning if the broker lost the session or shrank its window.
    pub(super) fn connected(&mut self, found: Found, clean: bool) -> Option<Notice> {
        let Found { session_present, announced, asked } = found;
        self.connections += 1;
        self.was_found |= session_present;
        let before = std::mem::replace(&mut self.announced, announced);
        self.owed = if session_present { self.owed } else { 0 };
        if self.connections == 1 {
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
