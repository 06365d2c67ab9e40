//! Which messages of a connection may be acknowledged, and in which order.
//!
//! Guarantee: a message is acknowledged only when the intake has said that it is complete, and in the order in which the
//! messages arrived (MQTT 5, 4.6.0-2). Messages are known by arrival number, never by packet id: brokers use packet ids
//! again. The numbers go on over connections, so a late "complete" for an old connection acknowledges nothing on a new one.

use std::collections::VecDeque;

/// What is said to the broker when a message is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ack {
    /// PUBACK, of QoS 1.
    Acknowledged(u16),
    /// PUBREC, of QoS 2: a broker may have such messages for us from another program's subscription.
    Received(u16),
}

/// Messages of one connection that the broker waits for.
#[derive(Debug, Default)]
pub struct Acks {
    /// Packet ids in arrival order; the front is the oldest.
    unacked: VecDeque<u16>,
    /// Those of QoS 2 among them, by arrival number; there are rarely any.
    at_qos2: VecDeque<u64>,
    /// Arrival number of the front.
    front: u64,
    /// Messages below this arrival number are complete.
    complete_below: u64,
}

impl Acks {
    /// A message was taken; returns its arrival number.
    pub fn arrived(&mut self, ack: Ack) -> u64 {
        let arrival = self.front + self.unacked.len() as u64;
        match ack {
            Ack::Acknowledged(packet_id) => self.unacked.push_back(packet_id),
            Ack::Received(packet_id) => {
                self.unacked.push_back(packet_id);
                self.at_qos2.push_back(arrival);
            }
        }
        arrival
    }

    /// Every row of the messages below this arrival number is durable.
    pub fn complete_below(&mut self, arrival: u64) {
        self.complete_below = self.complete_below.max(arrival);
    }

    /// What is to be said next, if anything.
    #[must_use]
    pub fn due(&self) -> Option<Ack> {
        if self.front >= self.complete_below {
            return None;
        }
        let packet_id = *self.unacked.front()?;
        let at_qos2 = self.at_qos2.front() == Some(&self.front);
        Some(if at_qos2 { Ack::Received(packet_id) } else { Ack::Acknowledged(packet_id) })
    }

    /// What was [due](Self::due) has been handed to the connection.
    pub fn sent(&mut self) {
        assert!(self.due().is_some(), "an acknowledgement was sent that was not due");
        if self.at_qos2.front() == Some(&self.front) {
            self.at_qos2.pop_front();
        }
        self.unacked.pop_front();
        self.front += 1;
    }

    /// Messages taken and not yet acknowledged.
    #[must_use]
    pub(crate) fn unacked(&self) -> usize {
        self.unacked.len()
    }

    /// The connection is gone: the broker sends all of these again, so none may be acknowledged.
    pub(crate) fn new_epoch(&mut self) {
        self.front += self.unacked.len() as u64;
        self.unacked.clear();
        self.at_qos2.clear();
    }
}
