//! What a session owes its client: messages that wait, and messages that are sent and unacknowledged.
//!
//! Unacknowledged ones never exceed the window, but for one case: a client that comes back with a smaller one gets all
//! of them again, as on EMQX, and nothing new until there is room. The n-th message has packet id n modulo 65,535: when
//! the next id still belongs to an unacknowledged message, EMQX's session dies of it, and this one says so.

use std::collections::VecDeque;
use std::ops::AddAssign;

use bytes::BytesMut;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{Packet, PubRel};

use crate::packet::{self, Message};

/// As many packet ids as there are (2.2.1).
const IDS: u64 = 65_535;

/// The next packet id is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdInUse;

/// What was dropped for want of room.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// QoS 1 and 2.
    pub(crate) queue_full: u64,
    /// QoS 0.
    pub(crate) qos0: u64,
    /// Larger than the client takes.
    pub(crate) too_large: u64,
}

impl AddAssign for Dropped {
    fn add_assign(&mut self, more: Self) {
        self.queue_full += more.queue_full;
        self.qos0 += more.qos0;
        self.too_large += more.too_large;
    }
}

/// A message under a packet id.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Slot {
    /// Neither PUBACK nor PUBREC yet.
    Unacked(Message),
    /// PUBREC is here, PUBCOMP is not.
    Released,
    /// Over, behind one that is not.
    Done,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Outbox {
    queue_max: usize,
    /// Those that wait for the window leave one by one, by [`send`](Self::send), and not as soon as it has room.
    paced: bool,
    window: usize,
    bytes_max: usize,
    /// In the order of their packet ids, without a gap; the first is not done.
    sent: VecDeque<Slot>,
    /// The number of the first in `sent`.
    first: u64,
    /// How many in `sent` are not done.
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
            bytes_max: usize::MAX,
            sent: VecDeque::new(),
            first: 0,
            open: 0,
            next: 0,
            again_below: 0,
            quick: VecDeque::new(),
            queue: VecDeque::new(),
        }
    }

    /// As it was saved.
    pub(crate) fn restore(&mut self, first: u64, sent: Vec<Slot>, queue: Vec<Message>) {
        self.open = sent.iter().filter(|slot| **slot != Slot::Done).count();
        (self.first, self.next) = (first, first);
        (self.sent, self.queue) = (sent.into(), queue.into());
    }

    /// For the snapshot: the number of the first, those sent, those that wait.
    pub(crate) fn parts(&self) -> (u64, &VecDeque<Slot>, &VecDeque<Message>) {
        (self.first, &self.sent, &self.queue)
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
        if message.size() > self.bytes_max {
            dropped.too_large = 1;
            return Ok(dropped);
        }
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
            match self.queue.pop_front().map(|oldest| oldest.qos) {
                Some(QoS::AtMostOnce) => dropped.qos0 = 1,
                Some(QoS::AtLeastOnce | QoS::ExactlyOnce) => dropped.queue_full = 1,
                None => {}
            }
        }
        Ok(dropped)
    }

    /// Whether one that waits may be sent.
    pub(crate) fn can_send(&self) -> bool {
        self.queue.front().is_some_and(|next| next.qos == QoS::AtMostOnce || self.open < self.window)
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
        self.sent.extend(self.queue.pop_front().map(Slot::Unacked));
        self.open += 1;
        Ok(true)
    }

    fn fill_window(&mut self) -> Result<(), IdInUse> {
        while !self.paced && self.send()? {}
        Ok(())
    }

    /// A new connection: everything unacknowledged is to be sent again, then what waits.
    pub(crate) fn resume(&mut self, window: u16, bytes_max: usize) -> Result<(), IdInUse> {
        self.window = window.into();
        self.bytes_max = bytes_max;
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
        let slot = self.slot(packet_id);
        if let Some(slot) = slot
            && matches!(slot, Slot::Unacked(message) if message.qos == QoS::AtLeastOnce)
        {
            *slot = Slot::Done;
            self.open -= 1;
        }
        self.advance()
    }

    /// PUBREC; one that refuses ends the message (4.3.3). `true`: answer with PUBREL.
    pub(crate) fn received(&mut self, packet_id: u16, refused: bool) -> Result<bool, IdInUse> {
        let Some(slot) = self.slot(packet_id) else { return Ok(false) };
        match slot {
            Slot::Unacked(message) if message.qos == QoS::ExactlyOnce && refused => {
                *slot = Slot::Done;
                self.open -= 1;
                self.advance()?;
                Ok(false)
            }
            Slot::Unacked(message) if message.qos == QoS::ExactlyOnce => {
                *slot = Slot::Released;
                Ok(true)
            }
            Slot::Released => Ok(true),
            Slot::Unacked(_) | Slot::Done => Ok(false),
        }
    }

    /// PUBCOMP.
    pub(crate) fn completed(&mut self, packet_id: u16) -> Result<(), IdInUse> {
        if let Some(slot) = self.slot(packet_id)
            && *slot == Slot::Released
        {
            *slot = Slot::Done;
            self.open -= 1;
        }
        self.advance()
    }

    fn slot(&mut self, packet_id: u16) -> Option<&mut Slot> {
        let ahead = (u64::from(packet_id.checked_sub(1)?) + IDS - self.first % IDS) % IDS;
        self.sent.get_mut(usize::try_from(ahead).ok()?)
    }

    fn advance(&mut self) -> Result<(), IdInUse> {
        while self.sent.front() == Some(&Slot::Done) {
            self.sent.pop_front();
            self.first += 1;
        }
        self.next = self.next.max(self.first);
        self.fill_window()
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
            match slot {
                Slot::Unacked(message) => message.put(packet_id, self.next < self.again_below, out),
                Slot::Released => packet::put(&Packet::PubRel(PubRel::new(packet_id, None)), out),
                Slot::Done => {}
            }
            self.next += 1;
        }
    }

    /// Takes out what another member of the group may have: unacknowledged ones at QoS 1, for one at QoS 2 may have
    /// been taken (4.8.2), then those that wait.
    pub(crate) fn take_shared(&mut self) -> Vec<Message> {
        let sent = self.sent.drain(..).filter_map(|slot| match slot {
            Slot::Unacked(message) => (message.qos == QoS::AtLeastOnce).then_some(message),
            Slot::Released | Slot::Done => None,
        });
        let queued = self.queue.drain(..).filter(|message| message.qos != QoS::AtMostOnce);
        let all = sent.chain(queued).filter(|message| message.share.is_some()).collect();
        self.open = 0;
        self.forget();
        all
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
