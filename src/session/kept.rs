//! What the broker should have kept of a session from one connection to the next, and whether it did.

use super::events::Notice;

/// What a new connection begins with.
pub(super) struct Found {
    /// By CONNACK, the broker kept the session.
    pub(super) session_present: bool,
    /// CONNACK's Receive Maximum.
    pub(super) announced: Option<u16>,
    /// Ours.
    pub(super) asked: u16,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Kept {
    connections: u64,
    was_found: bool,
    reconnects: u64,
    sessions_lost: u64,
    /// Messages that the broker had sent, and that we had not acknowledged when the last connection ended.
    owed: Option<usize>,
    /// The window that it last announced.
    announced: Option<u16>,
}

impl Kept {
    /// Some connection found the session there.
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
        (self.connections, self.owed) = (0, None);
    }

    /// A connection ended, with so many messages sent and not acknowledged.
    pub(super) fn ended(&mut self, owed: usize) {
        if owed > 0 {
            self.owed = Some(owed);
        }
    }

    /// A connection begins; `clean`: we asked for a new session. Returns what is missing.
    pub(super) fn connected(&mut self, found: Found, clean: bool) -> Option<Notice> {
        let Found { session_present, announced, asked } = found;
        self.connections += 1;
        self.was_found |= session_present;
        let before = std::mem::replace(&mut self.announced, announced);
        self.owed = self.owed.filter(|_| session_present);
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

    /// A message came. A broker that kept our session sends what it owes before anything new (MQTT 5, 4.4 and 4.6).
    pub(super) fn arrived(&mut self, redelivered: bool) -> Option<Notice> {
        let owed = self.owed.take()?;
        (!redelivered).then(|| self.lost(Notice::SessionEmptied { owed }))
    }

    fn lost(&mut self, notice: Notice) -> Notice {
        self.sessions_lost += 1;
        notice
    }
}
