//! The mailbox of a session. On EMQX a session is one process, and messages wait in its mailbox
//! until the process has handled the earlier messages.
//!
//! Handling a message takes `1 / rate`, and sending a message that waited for the window takes as
//! long. Both take `scan` longer for each message in the mailbox, because EMQX's process searches
//! its mailbox at each send. A session that is slightly too slow therefore becomes ever slower,
//! until the session is killed.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::packet::Message;

/// Speed of a session's process, and the bound of its mailbox.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Time to handle or send one message, with an empty mailbox.
    pub(crate) per_message: Duration,
    /// Extra time for each message in the mailbox, per message handled.
    pub(crate) scan: Duration,
    /// Messages in the mailbox above which the process is killed.
    pub(crate) waiting_max: usize,
}

/// The mailbox has grown beyond its bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overflow;

/// A completed unit of work.
#[derive(Debug)]
pub(crate) enum Work {
    /// The process has taken this message out of the mailbox.
    Handled(Message),
    /// The process is ready to send a message that waited for the window.
    Sends,
}

#[derive(Debug)]
pub(crate) struct Mailbox {
    waiting: VecDeque<Message>,
    /// Time at which the last unit of work was completed, or the current unit began.
    since: Instant,
    /// A unit of work is under way.
    busy: bool,
    /// The process is suspended, because its socket accepts nothing.
    stuck: bool,
    /// The last unit of work was a send. Sends and handled messages alternate.
    sent_last: bool,
}

impl Mailbox {
    pub(crate) fn new(now: Instant) -> Self {
        Self { waiting: VecDeque::new(), since: now, busy: false, stuck: false, sent_last: false }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Adds a message that is routed to the session.
    pub(crate) fn push(
        &mut self,
        message: Message,
        now: Instant,
        pace: Pace,
    ) -> Result<(), Overflow> {
        self.begin(now);
        self.waiting.push_back(message);
        if self.waiting.len() > pace.waiting_max { Err(Overflow) } else { Ok(()) }
    }

    fn begin(&mut self, now: Instant) {
        if !self.busy {
            self.busy = true;
            self.since = self.since.max(now);
        }
    }

    /// Returns the next unit of work that is completed by now. `can_send`: a message waits and may
    /// be sent.
    pub(crate) fn next_work(&mut self, can_send: bool, now: Instant, pace: Pace) -> Option<Work> {
        if self.waiting.is_empty() && !can_send {
            self.busy = false;
            return None;
        }
        self.begin(now);
        if self.stuck {
            return None;
        }
        self.since = Some(self.done_at(pace)).filter(|done_at| *done_at <= now)?;
        self.sent_last = can_send && (self.waiting.is_empty() || !self.sent_last);
        if self.sent_last { Some(Work::Sends) } else { self.waiting.pop_front().map(Work::Handled) }
    }

    fn done_at(&self, pace: Pace) -> Instant {
        self.since
            + pace.per_message
            + pace.scan * u32::try_from(self.waiting.len()).unwrap_or(u32::MAX)
    }

    /// Returns the time at which the current unit of work will be completed; `None`: there is none,
    /// or the process is suspended.
    pub(crate) fn due(&self, pace: Pace) -> Option<Instant> {
        (self.busy && !self.stuck).then(|| self.done_at(pace))
    }

    /// Suspends the process while its socket accepts nothing, or resumes it.
    pub(crate) fn set_stuck(&mut self, stuck: bool, now: Instant) {
        if self.stuck {
            self.since = self.since.max(now);
        }
        self.stuck = stuck;
    }

    pub(crate) fn forget(&mut self) {
        self.waiting.clear();
    }
}
