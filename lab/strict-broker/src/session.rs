//! One session: its subscriptions, the messages for its client, and its lifetime.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use rumqttc::v5::mqttbytes::QoS;
use tokio::sync::Notify;

use crate::mailbox::{Mailbox, Overflow, Pace, Work};
use crate::options::Options;
use crate::outbox::{Dropped, IdInUse, Outbox};
use crate::packet::Message;

/// Once a connection's output buffer has this many bytes, no more messages are written into the
/// buffer. Messages that a client does not read thus stay in its session.
pub(crate) const OUT_BYTES_ENOUGH: usize = 256 * 1024;

/// The session's end of a connection.
#[derive(Debug, Default)]
pub(crate) struct Link {
    /// Signals that the connection has something to send or to check.
    pub(crate) wake: Notify,
    pub(crate) ending: Cell<Option<Ending>>,
}

impl Link {
    pub(crate) fn end(&self, ending: Ending) {
        self.ending.set(Some(ending));
        self.wake.notify_one();
    }
}

/// How the broker ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Sends a DISCONNECT that reports the takeover.
    TakenOver,
    /// Closes the connection without a DISCONNECT.
    Cut,
}

/// How long a session outlives its connection (3.1.2.11.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// Time without a connection; zero ends the session with its connection.
    After(Duration),
    Never,
}

impl Expiry {
    pub(crate) fn from_seconds(seconds: u32) -> Self {
        if seconds == u32::MAX {
            Self::Never
        } else {
            Self::After(Duration::from_secs(seconds.into()))
        }
    }
}

/// Phase in the life of a session.
#[derive(Debug, Clone)]
pub(crate) enum Life {
    Connected(Rc<Link>),
    /// The session waits for a connection, at most until this time; `None`: without limit.
    Away(Option<Instant>),
    /// The session has ended, but remains a member of its group until this time: messages given to
    /// the session are lost.
    Dying(Instant),
}

/// The reason for which the broker kills a session, as EMQX does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Death {
    MailboxOverflow,
    /// The next packet id belongs to an unacknowledged message.
    IdInUse,
    /// The control command `kill`.
    Requested,
}

impl From<Overflow> for Death {
    fn from(_: Overflow) -> Self {
        Self::MailboxOverflow
    }
}

impl From<IdInUse> for Death {
    fn from(_: IdInUse) -> Self {
        Self::IdInUse
    }
}

#[derive(Debug)]
pub(crate) struct Session {
    /// Topic filters, each with its maximum QoS.
    pub(crate) subscriptions: BTreeMap<String, QoS>,
    pub(crate) outbox: Outbox,
    /// Messages that the process has not handled; unused without a [`Pace`].
    pub(crate) mailbox: Mailbox,
    /// How long the session outlives its connection.
    pub(crate) expiry: Expiry,
    pub(crate) life: Life,
    pub(crate) node: usize,
    /// Time until which messages are lost, after the other node has taken the session over.
    pub(crate) loses_until: Instant,
}

impl Session {
    pub(crate) fn new(options: &Options, expiry: Expiry, now: Instant) -> Self {
        Self {
            subscriptions: BTreeMap::new(),
            outbox: Outbox::new(options.max_queue, options.session_rate.is_some()),
            mailbox: Mailbox::new(now),
            expiry,
            life: Life::Away(None),
            node: 0,
            loses_until: now,
        }
    }

    pub(crate) fn link(&self) -> Option<&Rc<Link>> {
        match &self.life {
            Life::Connected(link) => Some(link),
            Life::Away(_) | Life::Dying(_) => None,
        }
    }

    /// Returns the number of messages that the session holds.
    pub(crate) fn held(&self) -> usize {
        self.outbox.unacked() + self.outbox.queued() + self.mailbox.len()
    }

    pub(crate) fn deliver(
        &mut self,
        message: Message,
        now: Instant,
        pace: Option<Pace>,
    ) -> Result<Dropped, Death> {
        if let Life::Dying(_) = self.life {
            return Ok(Dropped::default());
        }
        let dropped = match pace {
            Some(pace) => {
                // Complete the work that is due first: the new message must not slow it down.
                let dropped = self.advance(now, pace)?;
                self.mailbox.push(message, now, pace)?;
                dropped
            }
            None => self.outbox.push(message, self.link().is_some())?,
        };
        if let Some(link) = self.link() {
            link.wake.notify_one();
        }
        Ok(dropped)
    }

    /// Advances the session's process to `now`: the process handles and sends the messages that it
    /// had time for.
    pub(crate) fn advance(&mut self, now: Instant, pace: Pace) -> Result<Dropped, Death> {
        let connected = self.link().is_some();
        let mut all = Dropped::default();
        while let Some(work) =
            self.mailbox.next_work(connected && self.outbox.can_send(), now, pace)
        {
            match work {
                Work::Handled(message) => all += self.outbox.push(message, connected)?,
                Work::Sends => {
                    self.outbox.send()?;
                }
            }
        }
        Ok(all)
    }

    /// Writes the messages for the connection.
    pub(crate) fn write(&mut self, out: &mut BytesMut) {
        self.outbox.write(out, OUT_BYTES_ENOUGH);
    }

    pub(crate) fn forget(&mut self) {
        self.outbox.forget();
        self.mailbox.forget();
    }
}
