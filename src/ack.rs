//! Which messages may be acknowledged, and in which order.
//!
//! Guarantee: an acknowledgement becomes due only when every batch that holds one of the message's points
//! has settled, and in the order in which the messages arrived (MQTT 5, 4.6.0-2). Messages are known by
//! arrival number, never by packet id: brokers use packet ids again. A new connection is a new epoch, in
//! which nothing of the old one can be acknowledged any more.
//!
//! Rows fill batches in arrival order, so a batch completes a run of messages: those whose last point it
//! holds. One number a batch says where the run ends, and nothing has to be counted a message.

use std::collections::VecDeque;

/// Messages of one connection that the broker still waits for.
#[derive(Debug, Default)]
pub struct AckQueue {
    /// Packet ids in arrival order; the front is the oldest.
    unacked: VecDeque<u16>,
    /// Arrival number of the front. Numbers go on over epochs: none is ever used twice.
    front: u64,
    /// Batches that hold points of these messages, in the order they closed.
    batches: VecDeque<ClosedBatch>,
    /// Messages below this arrival number may be acknowledged.
    settled_below: u64,
}

#[derive(Debug)]
struct ClosedBatch {
    id: u64,
    /// Messages below this arrival number have their last point in this batch or an earlier one.
    completes_below: u64,
    settled: bool,
}

impl AckQueue {
    /// A message has arrived; from here on it is complete once its rows are.
    pub fn arrived(&mut self, packet_id: u16) {
        self.unacked.push_back(packet_id);
    }

    /// The arrival number the next message will have.
    #[must_use]
    pub fn next_arrival(&self) -> u64 {
        self.front + self.unacked.len() as u64
    }

    /// A batch closed. It holds the last points of all messages below `completes_below`, that no earlier
    /// batch holds.
    pub fn closed(&mut self, batch: u64, completes_below: u64) {
        self.batches.push_back(ClosedBatch { id: batch, completes_below, settled: false });
    }

    /// A batch is durable. One of an older epoch is not known any more, and changes nothing.
    pub fn settled(&mut self, batch: u64) {
        if let Some(closed) = self.batches.iter_mut().find(|closed| closed.id == batch) {
            closed.settled = true;
        }
        while let Some(oldest) = self.batches.front()
            && oldest.settled
        {
            self.settled_below = oldest.completes_below;
            self.batches.pop_front();
        }
    }

    /// All rows so far are settled and no batch is open: messages that left no row are complete too.
    pub fn nothing_open(&mut self) {
        if self.batches.is_empty() {
            self.settled_below = self.next_arrival();
        }
    }

    /// The packet id to acknowledge next, if any is due.
    #[must_use]
    pub fn due(&self) -> Option<u16> {
        if self.front < self.settled_below { self.unacked.front().copied() } else { None }
    }

    /// The one that was [due](Self::due) has been handed to the connection.
    pub fn sent(&mut self) {
        assert!(self.front < self.settled_below, "an acknowledgement was sent that was not due");
        self.unacked.pop_front();
        self.front += 1;
    }

    /// Messages taken and not yet acknowledged.
    #[must_use]
    pub fn unacked(&self) -> usize {
        self.unacked.len()
    }

    /// The connection is gone: the broker will send all of these again, so none may be acknowledged.
    pub fn new_epoch(&mut self) {
        self.front = self.next_arrival();
        self.settled_below = self.front;
        self.unacked.clear();
        self.batches.clear();
    }
}
