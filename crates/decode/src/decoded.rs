//! The result of decoding a message.

use std::collections::BTreeSet;

use super::ignored::Ignored;
use super::point::Lacking;
use crate::position::Position;
use crate::reject::Reject;

/// Reused from message to message: [`Decoded::clear`].
#[derive(Debug, Default, PartialEq)]
pub struct Decoded {
    /// In the order sent.
    pub positions: Vec<Position>,
    /// Rejected points in the order sent, or one reject for the whole message.
    pub rejects: Vec<Reject>,
    /// Valid messages, or parts of one, without a fix.
    pub ignored: Vec<Ignored>,
    pub lacking: Lacking,
    /// Fields of the positions that are neither read nor kept, if the decoder lists them.
    pub unread: BTreeSet<String>,
    /// Number of the source that read it.
    pub source: Option<usize>,
    /// The topic matches no source: the broker keeps an older subscription of this session.
    pub is_foreign: bool,
}

impl Decoded {
    /// Keeps the allocated memory.
    pub fn clear(&mut self) {
        self.positions.clear();
        self.rejects.clear();
        self.ignored.clear();
        self.lacking = Lacking::default();
        self.unread.clear();
        self.source = None;
        self.is_foreign = false;
    }

    /// Points, good or broken, plus one for a message that was rejected or ignored whole.
    #[must_use]
    pub fn points(&self) -> u64 {
        (self.positions.len() + self.rejects.len() + self.ignored.len()) as u64
    }
}
