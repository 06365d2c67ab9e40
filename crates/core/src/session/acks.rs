//! Which messages of a connection may be acknowledged, and in which order.
//!
//! Guarantee: a message is acknowledged only after the intake has called it complete, and in the order of arrival (MQTT 5,
//! 4.6.0-2). Messages are known by arrival number, because brokers reuse packet ids. The numbers continue over connections, so
//! a late "complete" for an old connection acknowledges nothing on a new one.

use std::collections::VecDeque;

/// Messages of one connection that the broker waits for.
#[derive(Debug, Default)]
pub struct Acks {
    /// Packet ids of what was taken, in arrival order; the front is the oldest.
    unacked: VecDeque<u16>,
    /// These ids, and those of what was left with the broker.
    ids: PacketIds,
    /// Arrival number of the front.
    front: u64,
    /// Messages below this arrival number are complete.
    complete_below: u64,
}

impl Acks {
    /// A message came; `false`: under the id of another one that came on this connection and is unacknowledged.
    pub fn came(&mut self, packet_id: u16) -> bool {
        self.ids.insert(packet_id)
    }

    /// A message was taken; returns its arrival number.
    pub fn arrived(&mut self, packet_id: u16) -> u64 {
        self.unacked.push_back(packet_id);
        self.front + self.unacked.len() as u64 - 1
    }

    /// Every row of the messages below this arrival number is durable.
    pub fn complete_below(&mut self, arrival: u64) {
        self.complete_below = self.complete_below.max(arrival);
    }

    /// The packet id to acknowledge next, if any.
    #[must_use]
    pub fn due(&self) -> Option<u16> {
        self.unacked.front().copied().filter(|_| self.front < self.complete_below)
    }

    /// What was [due](Self::due) has been handed to the connection.
    pub fn sent(&mut self) {
        let packet_id = self.due().expect("an acknowledgement is sent when it is due");
        self.ids.remove(packet_id);
        self.unacked.pop_front();
        self.front += 1;
    }

    #[must_use]
    pub fn unacked(&self) -> usize {
        self.unacked.len()
    }

    /// The connection is gone: the broker sends all of these again, so none may be acknowledged.
    pub fn new_epoch(&mut self) {
        self.front += self.unacked.len() as u64;
        self.unacked.clear();
        self.ids = PacketIds::default();
    }
}

/// A set of packet ids: 8 KiB, a bit for each.
#[derive(Debug)]
struct PacketIds(Box<[u64; 1024]>);

impl Default for PacketIds {
    fn default() -> Self {
        Self(Box::new([0; 1024]))
    }
}

impl PacketIds {
    /// `false`: it was there.
    fn insert(&mut self, packet_id: u16) -> bool {
        let (word, bit) = self.bit(packet_id);
        let was_there = *word & bit != 0;
        *word |= bit;
        !was_there
    }

    fn remove(&mut self, packet_id: u16) {
        let (word, bit) = self.bit(packet_id);
        *word &= !bit;
    }

    fn bit(&mut self, packet_id: u16) -> (&mut u64, u64) {
        (&mut self.0[usize::from(packet_id / 64)], 1 << (packet_id % 64))
    }
}
