//! The messages of a session for its client: the queued messages, and the messages that are sent
//! and unacknowledged.
//!
//! The unacknowledged messages never exceed the window, with one exception: a client that resumes
//! with a smaller window receives all unacknowledged messages again, as on EMQX. New messages
//! follow when the window has room. The n-th message has packet id n modulo 65,535. When the next
//! id still belongs to an unacknowledged message, EMQX's session dies; here [`IdInUse`] is
//! returned.

use std::collections::VecDeque;
use std::ops::AddAssign;

use bytes::BytesMut;
use rumqttc::v5::mqttbytes::QoS;

use crate::packet::Message;

/// Number of packet ids (MQTT 5, 2.2.1).
const IDS: u64 = 65_535;

/// The next packet id belongs to an unacknowledged message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdInUse;

/// Messages dropped because the queue was full.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// Messages at QoS 1.
    pub(crate) queue_full: u64,
    /// Messages at QoS 0.
    pub(crate) qos0: u64,
}

impl AddAssign for Dropped {
    fn add_assign(&mut self, more: Self) {
        self.queue_full += more.queue_full;
        self.qos0 += more.qos0;
    }
}

#[derive(Debug)]
pub(crate) struct Outbox {
    queue_max: usize,
    /// `true`: the session's process sends waiting messages one by one, by [`send`](Self::send).
    /// `false`: waiting messages are sent as soon as the window has room.
    paced: bool,
    window: usize,
    /// Sent messages in the order of their packet ids, without a gap. `None`: acknowledged before
    /// an earlier message.
    sent: VecDeque<Option<Message>>,
    /// Number of the first message in `sent`.
    first: u64,
    /// Number of unacknowledged messages in `sent`.
    unacked: usize,
    /// Number of the next message to write to this connection.
    next: u64,
    /// Number below which messages were sent on an earlier connection.
    dup_below: u64,
    /// Messages at QoS 0. These messages do not wait for the window.
    qos0_queue: VecDeque<Message>,
    queue: VecDeque<Message>,
}

impl Outbox {
    /// Creates an empty outbox. At most `queue_max` messages wait beyond the window.
    pub(crate) fn new(queue_max: usize, paced: bool) -> Self {
        Self {
            queue_max,
            paced,
            window: 0,
            sent: VecDeque::new(),
            first: 0,
            unacked: 0,
            next: 0,
            dup_below: 0,
            qos0_queue: VecDeque::new(),
            queue: VecDeque::new(),
        }
    }

    /// Returns the number of messages that wait beyond the window.
    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Returns the number of messages that are sent and unacknowledged.
    pub(crate) fn unacked(&self) -> usize {
        self.unacked
    }

    /// Adds a message. `connected`: the client is connected, so the message is sent as soon as the
    /// window has room.
    pub(crate) fn push(&mut self, message: Message, connected: bool) -> Result<Dropped, IdInUse> {
        let mut dropped = Dropped::default();
        if connected && message.qos == QoS::AtMostOnce {
            self.qos0_queue.push_back(message);
            if self.qos0_queue.len() > self.queue_max {
                self.qos0_queue.pop_front();
                dropped.qos0 = 1;
            }
            return Ok(dropped);
        }
        let is_next = self.queue.is_empty();
        self.queue.push_back(message);
        if connected && (is_next || !self.paced) {
            while self.send()? {}
        }
        if self.queue.len() > self.queue_max {
            match self.queue.pop_front() {
                Some(Message { qos: QoS::AtMostOnce, .. }) => dropped.qos0 = 1,
                _ => dropped.queue_full = 1,
            }
        }
        Ok(dropped)
    }

    /// Returns whether a waiting message may be sent.
    pub(crate) fn can_send(&self) -> bool {
        self.queue
            .front()
            .is_some_and(|next| next.qos == QoS::AtMostOnce || self.unacked < self.window)
    }

    /// Sends a waiting message if there is one and the window has room.
    pub(crate) fn send(&mut self) -> Result<bool, IdInUse> {
        if !self.can_send() {
            return Ok(false);
        }
        if self.queue.front().is_some_and(|next| next.qos == QoS::AtMostOnce) {
            self.qos0_queue.extend(self.queue.pop_front());
            return Ok(true);
        }
        if self.sent.len() as u64 >= IDS {
            return Err(IdInUse);
        }
        self.sent.push_back(self.queue.pop_front());
        self.unacked += 1;
        Ok(true)
    }

    fn fill_window(&mut self) -> Result<(), IdInUse> {
        while !self.paced && self.send()? {}
        Ok(())
    }

    /// Handles a new connection: all unacknowledged messages are sent again, then the queued
    /// messages are sent.
    pub(crate) fn resume(&mut self, window: u16) -> Result<(), IdInUse> {
        self.window = window.into();
        self.next = self.first;
        self.dup_below = self.first + self.sent.len() as u64;
        self.fill_window()
    }

    /// Handles the end of the connection, with which the messages at QoS 0 are lost.
    pub(crate) fn suspend(&mut self) {
        self.qos0_queue.clear();
    }

    /// Handles a PUBACK. An id that is not in flight changes nothing.
    pub(crate) fn ack(&mut self, packet_id: u16) -> Result<(), IdInUse> {
        if self.unacked_mut(packet_id).is_some_and(|slot| slot.take().is_some()) {
            self.unacked -= 1;
        }
        while let Some(None) = self.sent.front() {
            self.sent.pop_front();
            self.first += 1;
        }
        self.next = self.next.max(self.first);
        self.fill_window()
    }

    fn unacked_mut(&mut self, packet_id: u16) -> Option<&mut Option<Message>> {
        let ahead = (u64::from(packet_id.checked_sub(1)?) + IDS - self.first % IDS) % IDS;
        self.sent.get_mut(usize::try_from(ahead).ok()?)
    }

    /// Appends packets to `out` until it holds at least `enough` bytes.
    pub(crate) fn write(&mut self, out: &mut BytesMut, enough: usize) {
        while out.len() < enough {
            if let Some(message) = self.qos0_queue.pop_front() {
                message.encode(0, false, out);
                continue;
            }
            let index = usize::try_from(self.next - self.first).expect("at most 65,535");
            let Some(slot) = self.sent.get(index) else { return };
            let packet_id = u16::try_from(self.next % IDS).expect("at most 65,534") + 1;
            if let Some(message) = slot {
                message.encode(packet_id, self.next < self.dup_below, out);
            }
            self.next += 1;
        }
    }

    /// Empties the outbox, and returns the messages that another member of the group may receive:
    /// first the unacknowledged messages, then the queued messages.
    pub(crate) fn take_shared(&mut self) -> Vec<Message> {
        let queued = self.queue.drain(..).filter(|message| message.qos != QoS::AtMostOnce);
        let all = self.sent.iter_mut().filter_map(Option::take).chain(queued);
        let shared = all.filter(|message| message.share.is_some()).collect();
        self.forget();
        shared
    }

    /// Discards all messages. Packet ids continue.
    pub(crate) fn forget(&mut self) {
        self.first += self.sent.len() as u64;
        self.next = self.first;
        self.unacked = 0;
        self.sent.clear();
        self.qos0_queue.clear();
        self.queue.clear();
    }
}
