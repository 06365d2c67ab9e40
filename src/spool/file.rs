//! A file of the spool, by its name, which says everything that the replay's order and the ledger need.

use std::fmt;

/// The extension of a batch that is to be replayed.
pub(super) const BATCH: &str = "batch";

/// A batch on disk.
///
/// The order is that of the sequence numbers. Two files can have the same one, where directories were put together by
/// hand: the tag tells them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct File {
    /// Its place in the order.
    pub sequence: u64,
    /// Position rows in it.
    pub positions: u64,
    /// A random number of the process that wrote it. (Up to format 1's first writers: how many attempts to insert it had
    /// ended ambiguously.)
    pub tag: u32,
    pub bytes: u64,
}

impl File {
    /// From a file's name without its extension; `None` if it is not one of ours.
    #[must_use]
    pub fn from_stem(stem: &str, bytes: u64) -> Option<Self> {
        let mut parts = stem.split('-');
        let file = Self {
            sequence: parts.next()?.parse().ok()?,
            positions: parts.next()?.parse().ok()?,
            tag: parts.next()?.parse().ok()?,
            bytes,
        };
        parts.next().is_none().then_some(file)
    }

    /// Its name.
    #[must_use]
    pub(crate) fn name(&self, extension: &str) -> String {
        format!("{:020}-{}-{}.{extension}", self.sequence, self.positions, self.tag)
    }
}

impl fmt::Display for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name(BATCH))
    }
}
