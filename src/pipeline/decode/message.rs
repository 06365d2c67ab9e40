//! What goes into a decoder, and what comes out.

use super::ignored::Ignored;
use super::point::Lacking;
use crate::pipeline::position::{Position, Timestamp};
use crate::pipeline::reject::Reject;

/// What one message held. Reused from message to message: [`Decoded::clear`].
#[derive(Debug, Default)]
pub struct Decoded {
    /// Good points, in the order sent.
    pub positions: Vec<Position>,
    /// Refused points, in the order sent, or one for the whole message.
    pub rejects: Vec<Reject>,
    /// Messages, or parts of one, that are in order and hold no fix.
    pub ignored: Vec<Ignored>,
    /// What the positions among these lacked.
    pub lacking: Lacking,
    /// The topic matches no configured filter: the broker holds another subscription for us.
    pub is_foreign: bool,
}

impl Decoded {
    /// Empties it and keeps its memory.
    pub fn clear(&mut self) {
        self.positions.clear();
        self.rejects.clear();
        self.ignored.clear();
        self.lacking = Lacking::default();
        self.is_foreign = false;
    }

    /// Points, good or broken, and one for a message that was refused or ignored whole.
    #[must_use]
    pub(crate) fn points(&self) -> u64 {
        (self.positions.len() + self.rejects.len() + self.ignored.len()) as u64
    }
}

/// A message as it came from the broker.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    /// Topic as sent.
    pub topic: &'a [u8],
    /// Payload as sent, or its beginning.
    pub payload: &'a [u8],
    /// How long it was as sent: more than `payload` holds if it was cut on the way.
    pub payload_bytes: usize,
    /// The wall clock when it was read.
    pub received_at: Timestamp,
}
