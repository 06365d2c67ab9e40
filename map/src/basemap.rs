//! Reads ranges of a PMTiles file on the disk, from which the page draws streets. Reads on blocking
//! threads.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

/// Maximum length of a range in one response, in bytes: a tile has at most a megabyte, a directory
/// less.
pub const RANGE_BYTES_MAX: u64 = 4 << 20;
/// First bytes of a PMTiles file, version 3.
const MAGIC: &[u8] = b"PMTiles\x03";

/// A range of bytes of the file.
#[derive(Debug, PartialEq, Eq)]
pub struct Range {
    pub first: u64,
    pub bytes: Vec<u8>,
    /// Length of the whole file.
    pub total: u64,
    /// Entity tag; changes when the file changes.
    pub tag: String,
}

/// Reads at most [`RANGE_BYTES_MAX`] bytes from `first` to `last`, both included. `None`: the file
/// ends before `first`, or the range is empty.
///
/// # Errors
/// The file cannot be read.
pub fn read(path: &Path, first: u64, last: u64) -> io::Result<Option<Range>> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    let total = metadata.len();
    if first >= total || last < first {
        return Ok(None);
    }
    let length = (last.min(total - 1) - first + 1).min(RANGE_BYTES_MAX);
    let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
    file.read_exact_at(&mut bytes, first)?;
    let tag = format!("\"{:x}-{:x}-{:x}\"", total, metadata.mtime(), metadata.mtime_nsec());
    Ok(Some(Range { first, bytes, total, tag }))
}

/// Checks that the file is a readable PMTiles file.
///
/// # Errors
/// The file cannot be read, or is not a PMTiles file.
pub fn check(path: &Path) -> Result<(), String> {
    let start = read(path, 0, MAGIC.len() as u64 - 1)
        .map_err(|error| format!("{}: {error}", path.display()))?;
    if start.is_some_and(|range| range.bytes == MAGIC) {
        return Ok(());
    }
    Err(format!("{} is not a PMTiles file of version 3", path.display()))
}

/// Parses `bytes=FIRST-LAST` or `bytes=FIRST-`, the only forms that PMTiles readers send. Returns
/// the first and the last byte; the last is `u64::MAX` if the range has no end.
#[must_use]
pub fn parse(header: &str) -> Option<(u64, u64)> {
    let (first, last) = header.strip_prefix("bytes=")?.split_once('-')?;
    let first = first.parse().ok()?;
    let last = if last.is_empty() { u64::MAX } else { last.parse().ok()? };
    (first <= last).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_is_cut_at_the_end_of_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"PMTiles\x03 and more").unwrap();
        let range = read(file.path(), 9, 1_000).unwrap().unwrap();
        assert_eq!((range.first, &range.bytes[..], range.total), (9, &b"and more"[..], 17));
        assert_eq!(read(file.path(), 17, 20).unwrap(), None);
        assert_eq!(check(file.path()), Ok(()));
        std::fs::write(file.path(), b"PMTiles\x02").unwrap();
        assert!(check(file.path()).unwrap_err().contains("not a PMTiles file"));
    }

    #[test]
    fn only_one_plain_range_is_parsed() {
        assert_eq!(parse("bytes=0-16383"), Some((0, 16_383)));
        assert_eq!(parse("bytes=5-"), Some((5, u64::MAX)));
        for wrong in ["", "bytes=-5", "bytes=3-2", "bytes=0-1,3-4", "items=0-1"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
