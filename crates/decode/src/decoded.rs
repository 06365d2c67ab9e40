//! Defines the result of decoding a message.

use std::collections::BTreeSet;

use super::ignored::Ignored;
use super::point::Omissions;
use crate::position::Position;
use crate::reject::Reject;

/// The decoder's output, reused for each message after [`Decoded::clear`].
#[derive(Debug, Default, PartialEq)]
pub struct Decoded {
    /// Positions in the order sent.
    pub positions: Vec<Position>,
    /// Rejected points in the order sent, or one reject for the whole message.
    pub rejects: Vec<Reject>,
    /// Messages, or parts of a message, that are valid but have no fix.
    pub ignored: Vec<Ignored>,
    pub omissions: Omissions,
    /// Fields of the positions that are neither read nor kept, if the decoder lists them.
    pub unread: BTreeSet<String>,
    /// An unread field may be a hemisphere; set only if the decoder checks hemispheres.
    pub has_hemisphere: bool,
    /// Index of the source that read the message.
    pub source: Option<usize>,
    /// No source matches the topic. This happens if the broker keeps an older subscription of the
    /// session.
    pub is_foreign: bool,
}

impl Decoded {
    /// Empties the result and keeps its allocations.
    pub fn clear(&mut self) {
        self.positions.clear();
        self.rejects.clear();
        self.ignored.clear();
        self.omissions = Omissions::default();
        self.unread.clear();
        self.has_hemisphere = false;
        self.source = None;
        self.is_foreign = false;
    }

    /// Returns the number of points, valid or rejected, plus one for a message that was rejected or
    /// ignored as a whole.
    #[must_use]
    pub fn points(&self) -> u64 {
        (self.positions.len() + self.rejects.len() + self.ignored.len()) as u64
    }
}
