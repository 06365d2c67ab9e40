//! A session as EMQX has it: one process, whose messages wait in its mailbox until it has handled
//! those before.
//!
//! Handling a message costs `1 / rate`, and so does sending one that waited for the window; each of
//! them costs `scan` more for each message in the mailbox, for EMQX's process looks through it at
//! each send. So one that is a little too slow becomes slower, until it is killed.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::packet::Message;

/// How fast a session's process is, and how much it may have before it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) each: Duration,
    /// Extra time per message for each one that waits behind it.
    pub(crate) scan: Duration,
    /// Above it the process is killed.
    pub(crate) waiting_max: usize,
}

/// The mailbox has grown beyond its bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overflow;

/// A piece of work that is done.
#[derive(Debug)]
pub(crate) enum Work {
    /// This message came out of the mailbox.
    Handled(Message),
    /// One that waited for the window is to be sent.
    Sends,
}

#[derive(Debug)]
pub(crate) struct Mailbox {
    waiting: VecDeque<Message>,
    /// When the last piece of work was done, or this one was begun.
    since: Instant,
    busy: bool,
    stuck: bool,
    sent_last: bool,
}

impl Mailbox {
    pub(crate) fn new(now: Instant) -> Self {
        Self { waiting: VecDeque::new(), since: now, busy: false, stuck: false, sent_last: false }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// A message is routed to the session.
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

    /// The next piece of work that is done by now. `sends`: there is one to send.
    pub(crate) fn work(&mut self, sends: bool, now: Instant, pace: Pace) -> Option<Work> {
        if self.waiting.is_empty() && !sends {
            self.busy = false;
            return None;
        }
        self.begin(now);
        if self.stuck {
            return None;
        }
        self.since = Some(self.done_at(pace)).filter(|done_at| *done_at <= now)?;
        self.sent_last = sends && (self.waiting.is_empty() || !self.sent_last);
        if self.sent_last { Some(Work::Sends) } else { self.waiting.pop_front().map(Work::Handled) }
    }

    fn done_at(&self, pace: Pace) -> Instant {
        self.since + pace.each + pace.scan * u32::try_from(self.waiting.len()).unwrap_or(u32::MAX)
    }

    /// When the work that was begun is done.
    pub(crate) fn due(&self, pace: Pace) -> Option<Instant> {
        (self.busy && !self.stuck).then(|| self.done_at(pace))
    }

    /// While its socket takes nothing, the process is stuck in sending.
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
