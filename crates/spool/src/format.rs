//! The bytes of a spool file: the inserts of one batch as milepost sends them.
//!
//! All numbers are little-endian.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | `MILEPOST` |
//! | 4 | format version, 1 |
//! | 4 | number of inserts, 1 or 2 |
//! | 8 | for each insert: number of rows |
//! | 4 | length of the statement in bytes |
//! | 8 | length of the body in bytes |
//! | length of the statement | statement (UTF-8) |
//! | length of the body | body |
//! | 16 | after all inserts: XXH3-128 of all bytes before it |
//!
//! A reader verifies the checksum first. A file that was truncated, altered or extended is
//! [`Damaged`], and no part of it is used.

use std::io::{self, Write};

use bytes::{Buf, Bytes};
use twox_hash::XxHash3_128;

use milepost_core::encode::Insert;

const MAGIC: &[u8; 8] = b"MILEPOST";
const VERSION: u32 = 1;
const CHECKSUM_BYTES: usize = 16;
/// Bytes of the head of a file: magic, version, number of inserts.
const HEAD_BYTES: usize = 16;
/// Bytes of the head of an insert: number of rows, and the two lengths.
const INSERT_HEAD_BYTES: usize = 20;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Damaged {
    /// The checksum does not match.
    #[error("the checksum does not match: the file was truncated, or changed after it was written")]
    Checksum,
    /// The checksum matches, but the file is not a spool file.
    #[error("not a spool file")]
    NotSpoolFile,
    /// A newer milepost wrote the file.
    #[error("format version {0}; this binary reads version {VERSION}")]
    Version(u32),
    /// The checksum matches, but the content contradicts itself: a bug in the writer.
    #[error("{0} is invalid")]
    Content(&'static str),
}

/// Returns the number of bytes that [`write()`] writes.
#[must_use]
pub fn length(inserts: &[Insert]) -> u64 {
    let insert_bytes =
        |insert: &Insert| INSERT_HEAD_BYTES + insert.statement.len() + insert.body.len();
    (HEAD_BYTES + inserts.iter().map(insert_bytes).sum::<usize>() + CHECKSUM_BYTES) as u64
}

/// Writes the inserts without copying their bodies.
pub fn write(inserts: &[Insert], to: &mut impl Write) -> io::Result<()> {
    let mut hasher = XxHash3_128::new();
    let mut write_hashed = |bytes: &[u8]| {
        hasher.write(bytes);
        to.write_all(bytes)
    };
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput);
    write_hashed(MAGIC)?;
    write_hashed(&VERSION.to_le_bytes())?;
    write_hashed(
        &u32::try_from(inserts.len()).map_err(|_| io::ErrorKind::InvalidInput)?.to_le_bytes(),
    )?;
    for insert in inserts {
        write_hashed(&(insert.rows as u64).to_le_bytes())?;
        write_hashed(&length(insert.statement.as_bytes())?.to_le_bytes())?;
        write_hashed(&(insert.body.len() as u64).to_le_bytes())?;
        write_hashed(insert.statement.as_bytes())?;
        write_hashed(&insert.body)?;
    }
    let checksum = hasher.finish_128();
    to.write_all(&checksum.to_le_bytes())
}

/// Parses a file. The bodies of the inserts are slices of `file`.
///
/// # Errors
/// See [`Damaged`].
pub fn read(file: &Bytes) -> Result<Vec<Insert>, Damaged> {
    let Some(content_end) = file.len().checked_sub(CHECKSUM_BYTES) else {
        return Err(Damaged::Checksum);
    };
    let mut checksum = file.slice(content_end..);
    if checksum.get_u128_le() != XxHash3_128::oneshot(&file[..content_end]) {
        return Err(Damaged::Checksum);
    }
    let mut unread = file.slice(..content_end);
    if !unread.starts_with(MAGIC) {
        return Err(Damaged::NotSpoolFile);
    }
    unread.advance(MAGIC.len());
    let version = unread.try_get_u32_le().map_err(|_| Damaged::Content("the head"))?;
    if version != VERSION {
        return Err(Damaged::Version(version));
    }
    let count = unread.try_get_u32_le().map_err(|_| Damaged::Content("the head"))?;
    let mut inserts = Vec::new();
    for _ in 0..count {
        inserts.push(read_insert(&mut unread)?);
    }
    if inserts.is_empty() || !unread.is_empty() {
        return Err(Damaged::Content("the number of inserts"));
    }
    Ok(inserts)
}

/// Parses the next insert, and removes its bytes from `unread`.
fn read_insert(unread: &mut Bytes) -> Result<Insert, Damaged> {
    const HEAD: Damaged = Damaged::Content("an insert's head");
    let rows = unread.try_get_u64_le().map_err(|_| HEAD)?;
    let statement_length = unread.try_get_u32_le().map_err(|_| HEAD)?;
    let body_length = unread.try_get_u64_le().map_err(|_| HEAD)?;
    let mut take = |length: u64, length_name| match usize::try_from(length) {
        Ok(length) if length <= unread.len() => Ok(unread.split_to(length)),
        _ => Err(Damaged::Content(length_name)),
    };
    let statement = take(statement_length.into(), "a statement's length")?;
    let body = take(body_length, "a body's length")?;
    let statement =
        String::from_utf8(statement.into()).map_err(|_| Damaged::Content("a statement"))?;
    let rows = usize::try_from(rows).map_err(|_| HEAD)?;
    Ok(Insert { statement, body, rows })
}
