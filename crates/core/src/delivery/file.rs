//! The name of a spool file. The name holds the replay order and the number of positions, so the
//! spool is listed without opening a file.

use std::fmt;

/// Extension of the file of a batch that waits for replay.
pub const BATCH: &str = "batch";

/// The name of a batch's file. Files are ordered by sequence number. If an operator has merged the
/// directories of two spools, two files can have the same number and different tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct File {
    pub sequence: u64,
    /// Number of positions in the batch.
    pub positions: u64,
    /// A random number of the process that wrote the file.
    pub tag: u32,
    /// Size of the file, which is not part of its name.
    pub bytes: u64,
}

impl File {
    /// Parses a name without extension, such as `00000000000000000042-4980-730194`; `None` if
    /// [`Self::name`] does not write it this way, as with `42-4980-730194`: such a file would be
    /// looked for under another name than its own. `bytes`: size of the file.
    #[must_use]
    pub fn from_stem(stem: &str, bytes: u64) -> Option<Self> {
        let mut parts = stem.split('-');
        let file = Self {
            sequence: parts.next()?.parse().ok()?,
            positions: parts.next()?.parse().ok()?,
            tag: parts.next()?.parse().ok()?,
            bytes,
        };
        (file.stem() == stem).then_some(file)
    }

    /// Returns the name with this extension.
    #[must_use]
    pub fn name(&self, extension: &str) -> String {
        format!("{}.{extension}", self.stem())
    }

    /// Returns the name without extension.
    fn stem(&self) -> String {
        format!("{:020}-{}-{}", self.sequence, self.positions, self.tag)
    }
}

impl fmt::Display for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name(BATCH))
    }
}

/// The files that an earlier process left in the spool.
#[derive(Debug, Clone, Default)]
pub struct SpoolInventory {
    /// Batches to replay, oldest first.
    pub files: Vec<File>,
    /// Size of the files that are never inserted: those in quarantine, and those whose names
    /// milepost does not write.
    pub quarantined_bytes: u64,
    /// Number of these files.
    pub files_quarantined: u64,
}
