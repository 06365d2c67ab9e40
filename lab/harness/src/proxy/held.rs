//! What one direction of a connection holds back: bounded, in order, each read with the time it came.

use std::collections::VecDeque;

use bytes::{Buf as _, BytesMut};
use tokio::time::Instant;

/// What a direction of a connection holds back at most.
pub(crate) const HELD_BYTES: usize = 256 * 1024;
/// The same in reads, for a client that sends single bytes.
pub(crate) const HELD_READS: usize = 4096;

/// What was read and has not been passed on.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) reads: VecDeque<Read>,
    pub(crate) end: Option<End>,
}

#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) bytes: BytesMut,
    pub(crate) arrived: Instant,
}

/// The end of what is read: it waits its turn like the bytes before it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End {
    pub(crate) arrived: Instant,
    /// Closed, not reset.
    pub(crate) regular: bool,
}

impl Held {
    /// How much may be read now.
    pub(crate) fn room(&self) -> usize {
        if self.end.is_some() || self.reads.len() >= HELD_READS {
            return 0;
        }
        HELD_BYTES - self.reads.iter().map(|read| read.bytes.len()).sum::<usize>()
    }

    /// Whether anything comes after the front read.
    pub(crate) fn more_may_come(&self) -> bool {
        self.end.is_none() || self.reads.len() > 1
    }

    pub(crate) fn arrived(&self) -> Option<Instant> {
        self.reads.front().map(|read| read.arrived).or(self.end.map(|end| end.arrived))
    }

    /// The front read, or its beginning.
    pub(crate) fn front(&self, at_most: usize) -> &[u8] {
        let bytes = self.reads.front().map_or(&[][..], |read| &read.bytes);
        &bytes[..bytes.len().min(at_most)]
    }

    pub(crate) fn push(&mut self, bytes: &[u8], arrived: Instant) {
        self.reads.push_back(Read { bytes: bytes.into(), arrived });
    }

    pub(crate) fn advance(&mut self, len: usize) {
        if let Some(front) = self.reads.front_mut() {
            front.bytes.advance(len);
            if front.bytes.is_empty() {
                self.reads.pop_front();
            }
        }
    }

    /// Makes one read of the first two, as late as the second; whether there were two.
    pub(crate) fn join_front(&mut self) -> bool {
        if self.reads.len() < 2 {
            return false;
        }
        if let (Some(first), Some(second)) = (self.reads.pop_front(), self.reads.front_mut()) {
            let joined = [&first.bytes[..], &second.bytes[..]].concat();
            second.bytes = joined[..].into();
        }
        true
    }
}
