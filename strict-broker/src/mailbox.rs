//! A session as EMQX has it: one process, whose messages wait in its mailbox until it has handled those before.
//!
//! Handling a message costs `1 / rate`, and `scan` for each message in the mailbox: EMQX's process looks through it at
//! each send. So one that is a little too slow becomes slower, until it is killed.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::packet::Message;

/// How fast a session's process is, and how much it may have before it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// What a message costs, alone.
    pub(crate) each: Duration,
    /// What it costs more for each one that waits.
    pub(crate) scan: Duration,
    /// Above it the process is killed.
    pub(crate) waiting_max: usize,
}

/// The mailbox has grown beyond its bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overflow;

/// See the module.
#[derive(Debug)]
pub(crate) struct Mailbox {
    waiting: VecDeque<Message>,
    busy_until: Instant,
}

impl Mailbox {
    /// Empty.
    pub(crate) fn new(now: Instant) -> Self {
        Self { waiting: VecDeque::new(), busy_until: now }
    }

    /// Messages that wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// A message is routed to the session.
    pub(crate) fn push(&mut self, message: Message, now: Instant, pace: Pace) -> Result<(), Overflow> {
        if self.waiting.is_empty() {
            self.busy_until = self.busy_until.max(now);
        }
        self.waiting.push_back(message);
        if self.waiting.len() > pace.waiting_max { Err(Overflow) } else { Ok(()) }
    }

    /// The next message that is handled by now.
    pub(crate) fn pop(&mut self, now: Instant, pace: Pace) -> Option<Message> {
        let done_at = self.due(pace)?;
        if done_at > now {
            return None;
        }
        self.busy_until = done_at;
        self.waiting.pop_front()
    }

    /// When the next message is handled.
    pub(crate) fn due(&self, pace: Pace) -> Option<Instant> {
        let waiting = u32::try_from(self.waiting.len()).unwrap_or(u32::MAX);
        (waiting > 0).then(|| self.busy_until + pace.each + pace.scan * waiting)
    }

    /// The process cannot work: its socket takes nothing.
    pub(crate) fn stalled(&mut self, now: Instant) {
        self.busy_until = self.busy_until.max(now);
    }

    /// Loses all of it.
    pub(crate) fn forget(&mut self) {
        self.waiting.clear();
    }

    /// For the snapshot.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Message> {
        self.waiting.iter()
    }
}
