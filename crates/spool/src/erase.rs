//! Removes the rows of erased drivers from a spool directory that no process uses.
//!
//! Guarantee: all other rows stay. After a successful erasure, a power cut does not bring an erased
//! row back.
//!
//! A new file without the erased rows is fsynced before the old file is removed. A crash in between
//! leaves both files. The rows that are in both are then inserted twice, and ClickHouse collapses
//! the duplicates. The next erasure removes the old file.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use bytes::Bytes;

use super::{Kind, LoadError, Spool, StoreError, format, list, sync_dir};
use milepost_core::delivery::SpoolInventory;
use milepost_core::encode::Insert;

/// Counts of an erasure, or of [`count`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EraseCounts {
    /// Rows of erased drivers.
    pub rows: u64,
    /// Files that may hold such rows but cannot be read: damaged files, and files of a newer
    /// format.
    pub unreadable: u64,
}

/// Why an erasure failed. Files that were already rewritten or removed are not restored.
#[derive(Debug, thiserror::Error)]
pub enum EraseError {
    #[error("a file of the spool cannot be read or removed")]
    Io(#[source] std::io::Error),
    #[error(transparent)]
    Store(StoreError),
}

impl Spool {
    /// Removes the rows of erased drivers, and returns how many. `inventory`: the batches in the
    /// directory. `is_erased` takes the bytes of a driver's id.
    ///
    /// # Errors
    /// See [`EraseError`].
    pub fn erase(
        &self,
        inventory: &SpoolInventory,
        is_erased: impl Fn(&[u8]) -> bool,
    ) -> Result<EraseCounts, EraseError> {
        let mut counts = EraseCounts::default();
        for file in &inventory.files {
            let inserts = match self.load(file) {
                Ok(inserts) => inserts,
                Err(LoadError::Gone) => continue,
                Err(LoadError::Io(error)) => return Err(EraseError::Io(error)),
                Err(LoadError::Damaged(_) | LoadError::Newer(_)) => {
                    counts.unreadable += 1;
                    continue;
                }
            };
            let Some(remaining) = without_erased(&inserts, &is_erased) else {
                counts.unreadable += 1;
                continue;
            };
            let removed = |index: usize| (inserts[index].rows - remaining[index].rows) as u64;
            let rows: u64 = (0..inserts.len()).map(removed).sum();
            counts.rows += rows;
            if rows == 0 {
                continue;
            }
            // The insert of positions comes first, if there is one.
            let positions = if file.positions > 0 { file.positions - removed(0) } else { 0 };
            let remaining: Vec<Insert> =
                remaining.into_iter().filter(|insert| insert.rows > 0).collect();
            if !remaining.is_empty() {
                self.store(&remaining, positions).map_err(EraseError::Store)?;
            }
            self.remove(file).map_err(EraseError::Io)?;
        }
        self.erase_quarantined(&is_erased, &mut counts).map_err(EraseError::Io)?;
        sync_dir(&self.dir).map_err(EraseError::Io)?;
        Ok(counts)
    }

    /// Removes each row in quarantine whose driver is erased. Counts as unreadable: damaged files,
    /// row files that cannot be decoded, and batch files with a foreign name.
    fn erase_quarantined(
        &self,
        is_erased: &impl Fn(&[u8]) -> bool,
        counts: &mut EraseCounts,
    ) -> io::Result<()> {
        for listed in list(&self.dir)? {
            match listed.kind {
                Kind::Damaged => counts.unreadable += 1,
                // The file's name is not one that milepost gives.
                Kind::Batch if listed.file.is_none() => counts.unreadable += 1,
                Kind::Row => {
                    let path = self.dir.join(&listed.name);
                    let row = format::read(&Bytes::from(fs::read(&path)?)).ok();
                    let Some(remaining) = row.and_then(|row| without_erased(&row, is_erased))
                    else {
                        counts.unreadable += 1;
                        continue;
                    };
                    if remaining.iter().all(|insert| insert.rows == 0) {
                        counts.rows += 1;
                        fs::remove_file(path)?;
                    }
                }
                Kind::Batch | Kind::Unfinished => {}
            }
        }
        Ok(())
    }
}

/// Counts like [`Spool::erase`], but changes no file. A process may use the directory meanwhile.
///
/// # Errors
/// The directory or a file cannot be read.
pub fn count(dir: &Path, is_erased: impl Fn(&[u8]) -> bool) -> io::Result<EraseCounts> {
    let mut counts = EraseCounts::default();
    for listed in list(dir)?.into_iter().filter(|listed| listed.kind != Kind::Unfinished) {
        let bytes = match fs::read(dir.join(&listed.name)) {
            // The file was replayed after it was listed.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            bytes => Bytes::from(bytes?),
        };
        let inserts = format::read(&bytes).ok().filter(|_| listed.kind != Kind::Damaged);
        let counted = inserts.and_then(|inserts| {
            let rows =
                |inserts: &[Insert]| inserts.iter().map(|insert| insert.rows as u64).sum::<u64>();
            Some(rows(&inserts) - rows(&without_erased(&inserts, &is_erased)?))
        });
        match counted {
            Some(rows) => counts.rows += rows,
            None => counts.unreadable += 1,
        }
    }
    Ok(counts)
}

/// Returns the inserts without the rows of erased drivers; `None` if the driver ids cannot be
/// located, as in a file of a newer version.
fn without_erased(inserts: &[Insert], is_erased: &impl Fn(&[u8]) -> bool) -> Option<Vec<Insert>> {
    let remaining = |insert: &Insert| insert.without(is_erased).map(|(remaining, _)| remaining);
    inserts.iter().map(remaining).collect()
}
