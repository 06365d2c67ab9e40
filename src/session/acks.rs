//! Which messages of a connection may be acknowledged, and in which order.
//!
//! Guarantee: a message is acknowledged only after the intake has called it complete, and in the order of arrival (MQTT 5,
//! 4.6.0-2). Messages are known by arrival number, because brokers reuse packet ids. The numbers continue over connections, so
//! a late "complete" for an old connection acknowledges nothing on a new one.

use std::collections::VecDeque;

/// Messages of one connection that the broker waits for.
#[derive(Debug, Default)]
pub struct Acks {
    /// Packet ids in arrival order; the front is the oldest.
    unacked: VecDeque<u16>,
    /// Arrival number of the front.
    front: u64,
    /// Messages below this arrival number are complete.
    complete_below: u64,
}

impl Acks {
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
        assert!(self.due().is_some(), "an acknowledgement was sent that was not due");
        self.unacked.pop_front();
        self.front += 1;
    }

    #[must_use]
    pub(crate) fn unacked(&self) -> usize {
        self.unacked.len()
    }

    /// The connection is gone: the broker sends all of these again, so none may be acknowledged.
    pub(crate) fn new_epoch(&mut self) {
        self.front += self.unacked.len() as u64;
        self.unacked.clear();
    }
}
