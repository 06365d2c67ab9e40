//! A session's messages for its client: queued ones, and those that are sent and unacknowledged.
//!
//! Unacknowledged ones never exceed the window, but for one case: a client that comes back with a
//! smaller one gets all of them again, as on EMQX, and nothing new until there is room. The n-th
//! message has packet id n modulo 65,535: when the next id still belongs to an unacknowledged
//! message, EMQX's session dies of it, and this one says so.

use std::collections::VecDeque;
use std::ops::AddAssign;

use bytes::BytesMut;
use rumqttc::v5::mqttbytes::QoS;

use crate::packet::Message;

/// Number of packet ids (MQTT 5, 2.2.1).
const IDS: u64 = 65_535;

/// The next packet id is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdInUse;

/// Counts of messages dropped because the queue was full.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// QoS 1.
    pub(crate) queue_full: u64,
    /// QoS 0.
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
    /// Those that wait for the window leave one by one, by [`send`](Self::send), and not as soon as
    /// it has room.
    paced: bool,
    window: usize,
    /// In the order of their packet ids, without a gap. `None` is acknowledged, behind one that is
    /// not.
    sent: VecDeque<Option<Message>>,
    /// The number of the first in `sent`.
    first: u64,
    /// How many in `sent` are not acknowledged.
    open: usize,
    /// The next of them to write on this connection.
    next: u64,
    /// Below it, messages went out on an earlier connection.
    again_below: u64,
    /// QoS 0, which does not wait for the window.
    quick: VecDeque<Message>,
    queue: VecDeque<Message>,
}

impl Outbox {
    /// Empty; at most `queue_max` messages wait beyond the window.
    pub(crate) fn new(queue_max: usize, paced: bool) -> Self {
        Self {
            queue_max,
            paced,
            window: 0,
            sent: VecDeque::new(),
            first: 0,
            open: 0,
            next: 0,
            again_below: 0,
            quick: VecDeque::new(),
            queue: VecDeque::new(),
        }
    }

    /// Messages that wait beyond the window.
    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Messages that are sent and not acknowledged.
    pub(crate) fn unacked(&self) -> usize {
        self.open
    }

    /// Takes a message. To a connected client it goes out as soon as the window has room.
    pub(crate) fn push(&mut self, message: Message, connected: bool) -> Result<Dropped, IdInUse> {
        let mut dropped = Dropped::default();
        if connected && message.qos == QoS::AtMostOnce {
            self.quick.push_back(message);
            if self.quick.len() > self.queue_max {
                self.quick.pop_front();
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

    /// Whether one that waits may be sent.
    pub(crate) fn can_send(&self) -> bool {
        self.queue
            .front()
            .is_some_and(|next| next.qos == QoS::AtMostOnce || self.open < self.window)
    }

    /// Sends one that waits, if there is one and it may be.
    pub(crate) fn send(&mut self) -> Result<bool, IdInUse> {
        if !self.can_send() {
            return Ok(false);
        }
        if self.queue.front().is_some_and(|next| next.qos == QoS::AtMostOnce) {
            self.quick.extend(self.queue.pop_front());
            return Ok(true);
        }
        if self.sent.len() as u64 >= IDS {
            return Err(IdInUse);
        }
        self.sent.push_back(self.queue.pop_front());
        self.open += 1;
        Ok(true)
    }

    fn fill_window(&mut self) -> Result<(), IdInUse> {
        while !self.paced && self.send()? {}
        Ok(())
    }

    /// A new connection: everything unacknowledged is to be sent again, then what waits.
    pub(crate) fn resume(&mut self, window: u16) -> Result<(), IdInUse> {
        self.window = window.into();
        self.next = self.first;
        self.again_below = self.first + self.sent.len() as u64;
        self.fill_window()
    }

    /// The connection is gone, and with it what was QoS 0.
    pub(crate) fn suspend(&mut self) {
        self.quick.clear();
    }

    /// PUBACK. One for an id that is not waiting for it changes nothing.
    pub(crate) fn acknowledged(&mut self, packet_id: u16) -> Result<(), IdInUse> {
        if self.unacked_mut(packet_id).is_some_and(|slot| slot.take().is_some()) {
            self.open -= 1;
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

    /// Appends what is to be sent, until `out` has `enough` bytes.
    pub(crate) fn write(&mut self, out: &mut BytesMut, enough: usize) {
        while out.len() < enough {
            if let Some(message) = self.quick.pop_front() {
                message.put(0, false, out);
                continue;
            }
            let index = usize::try_from(self.next - self.first).expect("at most 65,535");
            let Some(slot) = self.sent.get(index) else { return };
            let packet_id = u16::try_from(self.next % IDS).expect("at most 65,534") + 1;
            if let Some(message) = slot {
                message.put(packet_id, self.next < self.again_below, out);
            }
            self.next += 1;
        }
    }

    /// Takes out what another member of the group may have: unacknowledged ones, then those that
    /// wait.
    pub(crate) fn take_shared(&mut self) -> Vec<Message> {
        let queued = self.queue.drain(..).filter(|message| message.qos != QoS::AtMostOnce);
        let all = self.sent.iter_mut().filter_map(Option::take).chain(queued);
        let shared = all.filter(|message| message.share.is_some()).collect();
        self.forget();
        shared
    }

    /// Loses all of it; packet ids go on.
    pub(crate) fn forget(&mut self) {
        self.first += self.sent.len() as u64;
        self.next = self.first;
        self.open = 0;
        self.sent.clear();
        self.quick.clear();
        self.queue.clear();
    }
}
