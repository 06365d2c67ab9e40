//! Decides which messages of a connection may be acknowledged, and in which order.
//!
//! Guarantee: a message is acknowledged only after the intake has declared it complete, and PUBACKs
//! are sent in the order in which the PUBLISH packets arrived (MQTT-4.6.0-2). Messages are
//! identified by arrival number, because brokers reuse packet ids. The numbers continue across
//! connections, so a late completion for an old connection acknowledges nothing on a new one.

use std::collections::VecDeque;

use fixedbitset::FixedBitSet;

/// A packet id has 16 bits.
const PACKET_IDS: usize = 1 << 16;

/// The messages of one connection that are not acknowledged yet.
#[derive(Debug)]
pub struct Acks {
    /// Packet ids of the messages that were taken and are not acknowledged, in arrival order; the
    /// front is the oldest.
    unacked: VecDeque<u16>,
    /// All packet ids in flight on this connection: those in `unacked`, and those of deferred
    /// messages. One bit for each possible id: 8 KiB.
    ids: FixedBitSet,
    /// Arrival number of the front of `unacked`.
    front: u64,
    /// Messages below this arrival number are complete.
    complete_below: u64,
}

impl Default for Acks {
    fn default() -> Self {
        Self {
            unacked: VecDeque::new(),
            ids: FixedBitSet::with_capacity(PACKET_IDS),
            front: 0,
            complete_below: 0,
        }
    }
}

impl Acks {
    /// Registers a packet id. Returns `false` if it is already in flight on this connection.
    pub fn register(&mut self, packet_id: u16) -> bool {
        !self.ids.put(packet_id.into())
    }

    /// Queues a message until its acknowledgement is sent. Returns its arrival number.
    pub fn accept(&mut self, packet_id: u16) -> u64 {
        self.unacked.push_back(packet_id);
        self.front + self.unacked.len() as u64 - 1
    }

    /// Records that every row of the messages below this arrival number is durable.
    pub fn complete_below(&mut self, arrival: u64) {
        // Completions can arrive out of order after a reconnect; the watermark never goes back.
        self.complete_below = self.complete_below.max(arrival);
    }

    /// Returns the packet id to acknowledge next, if the oldest unacknowledged message is complete.
    #[must_use]
    pub fn due(&self) -> Option<u16> {
        self.unacked.front().copied().filter(|_| self.front < self.complete_below)
    }

    /// Removes the message that was [due](Self::due), once its PUBACK is in the write buffer.
    pub fn mark_sent(&mut self) {
        let packet_id =
            self.due().expect("mark_sent is called only while an acknowledgement is due");
        self.ids.remove(packet_id.into());
        self.unacked.pop_front();
        self.front += 1;
    }

    #[must_use]
    pub fn unacked(&self) -> usize {
        self.unacked.len()
    }

    /// Forgets all messages of the connection that ended. The broker redelivers them on the next
    /// connection (MQTT-4.4.0-1), or reuses their packet ids in a new session. So no PUBACK for
    /// them may be sent on the next connection.
    pub fn new_epoch(&mut self) {
        // Arrival numbers continue after the forgotten messages. A late completion of one of these
        // is therefore not above `front`, and acknowledges nothing.
        self.front += self.unacked.len() as u64;
        self.unacked.clear();
        self.ids.clear();
    }
}
