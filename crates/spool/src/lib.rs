//! Batches on disk while ClickHouse cannot take them.
//!
//! Guarantee: a batch for which [`Spool::store`] has returned `Ok` survives a crash and a power
//! cut. To this end, the file is written under another name, fsynced and renamed, and the directory
//! is fsynced. A truncated or altered file is never used, not even in part. One process owns the
//! directory and holds its lock; [`Spool::open`] refuses a directory that another process holds.
//! A write is refused if the files together would exceed `bytes_max`. No file overwrites another
//! one.
//!
//! Each batch is one file, which never changes:
//!
//! ```text
//! 00000000000000000042-4980-730194.batch      sequence - positions - tag
//! ```
//!
//! The names sort in the order of arrival. They contain the number of positions, so that counting
//! positions opens no file. Quarantine: milepost renames a damaged file to `….damaged`, and stores
//! a single row that is too large for ClickHouse or a proxy as `….row`. The operator removes both.
//!
//! Every function blocks for as long as the disk takes: never call one on a thread that serves
//! requests.

pub mod erase;
pub mod format;

use std::fs::{self, DirBuilder, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

pub use milepost_core::delivery::File;
use milepost_core::delivery::{BATCH, SpoolInventory};
use milepost_core::encode::Insert;

/// Name of the lock file.
const LOCK: &str = "lock";
/// Extension of a damaged file in quarantine.
const DAMAGED: &str = "damaged";
/// Extension of a row in quarantine.
const ROW: &str = "row";
/// Extension of a file that is being written.
const UNFINISHED: &str = "unfinished";

/// Why the spool cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process holds the lock.
    #[error("spool.dir {0} is in use by another process: give each process its own directory")]
    InUse(PathBuf),
    #[error("spool.dir: cannot use {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Why a batch was not stored.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The batch would exceed `spool.bytes_max`.
    #[error("the spool holds {bytes} bytes, and spool.bytes_max is {bytes_max}")]
    Full {
        /// Bytes of the spool before this batch.
        bytes: u64,
        /// `spool.bytes_max`.
        bytes_max: u64,
    },
    #[error("the spool cannot be written")]
    Io(#[source] io::Error),
}

/// Why a batch was not read.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Damaged(format::Damaged),
    /// The file is missing: another program removed it.
    #[error("a spooled batch is missing")]
    Gone,
    /// A newer milepost wrote the file. It stays until a newer milepost replays it.
    #[error("a spooled batch has format version {0}: a newer milepost must replay it")]
    Newer(u32),
    /// The disk failed; milepost retries.
    #[error("a spooled batch cannot be read")]
    Io(#[source] io::Error),
}

/// The spool directory, owned by one process.
#[derive(Debug)]
pub struct Spool {
    dir: PathBuf,
    /// `spool.bytes_max`.
    bytes_max: u64,
    /// Random number of this process, in the names of its files. It keeps names unique if the
    /// files of several directories are moved into one.
    tag: u32,
    state: Mutex<State>,
    _lock: fs::File,
}

#[derive(Debug, Default)]
struct State {
    next_sequence: u64,
    /// Bytes of all spool files, including unfinished files and files in quarantine.
    bytes: u64,
}

impl Spool {
    /// Creates the directory if it is missing, locks it, and lists the files of an earlier process.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(dir: &Path, bytes_max: u64) -> Result<(Self, SpoolInventory), OpenError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| OpenError::Io { path, source }
        };
        create_durably(dir).map_err(failed(dir))?;
        let lock_path = dir.join(LOCK);
        let lock = fs::File::create(&lock_path).map_err(failed(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::InUse(dir.to_owned())),
            Err(TryLockError::Error(error)) => return Err(failed(&lock_path)(error)),
        }
        let (mut state, mut inventory) = (State::default(), SpoolInventory::default());
        for listed in list(dir).map_err(failed(dir))? {
            let path = dir.join(&listed.name);
            match (listed.kind, listed.file) {
                (Kind::Batch, Some(file)) => inventory.files.push(file),
                // A crash interrupted this write. Its messages were not acknowledged, so the broker
                // redelivers them.
                (Kind::Unfinished, _) => {
                    fs::remove_file(&path).map_err(failed(&path))?;
                    continue;
                }
                (Kind::Damaged | Kind::Row | Kind::Batch, _) => {
                    inventory.quarantined_bytes += listed.bytes;
                    inventory.files_quarantined += 1;
                }
            }
            state.bytes += listed.bytes;
            let sequence = listed.file.map_or(0, |file| file.sequence);
            state.next_sequence = state.next_sequence.max(sequence.saturating_add(1));
        }
        sync_dir(dir).map_err(failed(dir))?;
        inventory.files.sort_unstable();
        let (dir, tag, state) = (dir.to_owned(), fastrand::u32(1..), Mutex::new(state));
        Ok((Self { dir, bytes_max, tag, state, _lock: lock }, inventory))
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes a batch and fsyncs the file and the directory.
    ///
    /// # Errors
    /// See [`StoreError`]; no file is left behind.
    pub fn store(&self, inserts: &[Insert], positions: u64) -> Result<File, StoreError> {
        self.write(inserts, positions, BATCH)
    }

    /// Stores a row that ClickHouse or a proxy refuses as too large.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn quarantine_row(&self, row: &Insert) -> Result<File, StoreError> {
        self.write(std::slice::from_ref(row), 1, ROW)
    }

    /// Writes and fsyncs a file under another name, renames it, and fsyncs the directory. So a
    /// power cut leaves either the whole file under its final name, or no file of that name.
    fn write(
        &self,
        inserts: &[Insert],
        positions: u64,
        extension: &str,
    ) -> Result<File, StoreError> {
        let file = self.reserve(format::length(inserts), positions)?;
        let (unfinished, path) = (self.path(&file, UNFINISHED), self.path(&file, extension));
        // A crash before the rename leaves an `.unfinished` file, which the next start removes. A
        // rename is durable only after an fsync of its directory; until then no PUBACK may be sent.
        let written = write_durably(&unfinished, inserts)
            .and_then(|()| fs::rename(&unfinished, &path))
            .and_then(|()| sync_dir(&self.dir));
        if let Err(error) = written {
            // Leave no file behind: the broker redelivers the batch's messages, so a replay would
            // insert their rows a second time.
            let _ = fs::remove_file(&unfinished);
            let _ = fs::remove_file(&path);
            self.state().bytes -= file.bytes;
            return Err(StoreError::Io(error));
        }
        Ok(file)
    }

    /// Reserves a sequence number and the file's bytes. A write must reserve its bytes first, or
    /// concurrent writes could together exceed `bytes_max`.
    fn reserve(&self, bytes: u64, positions: u64) -> Result<File, StoreError> {
        let mut state = self.state();
        if state.bytes + bytes > self.bytes_max {
            return Err(StoreError::Full { bytes: state.bytes, bytes_max: self.bytes_max });
        }
        state.bytes += bytes;
        let sequence = state.next_sequence;
        state.next_sequence += 1;
        Ok(File { sequence, positions, tag: self.tag, bytes })
    }

    /// Reads a batch.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn load(&self, file: &File) -> Result<Vec<Insert>, LoadError> {
        let bytes = fs::read(self.path(file, BATCH)).map_err(|error| {
            // If the lock file is missing too, the volume may be unmounted, and mounted again
            // later.
            let only_file_is_missing =
                error.kind() == io::ErrorKind::NotFound && self.dir.join(LOCK).exists();
            if only_file_is_missing { LoadError::Gone } else { LoadError::Io(error) }
        })?;
        format::read(&Bytes::from(bytes)).map_err(|damage| {
            if let format::Damaged::Version(version) = damage {
                LoadError::Newer(version)
            } else {
                LoadError::Damaged(damage)
            }
        })
    }

    /// Removes a file whose rows are in ClickHouse.
    ///
    /// # Errors
    /// The file cannot be removed. The next process replays it; the duplicate rows collapse in
    /// ClickHouse.
    pub fn remove(&self, file: &File) -> io::Result<()> {
        let removed = fs::remove_file(self.path(file, BATCH));
        let removed = if is_missing(&removed) { Ok(()) } else { removed };
        if removed.is_ok() {
            self.state().bytes -= file.bytes;
        }
        removed
    }

    /// Moves a damaged file to quarantine.
    ///
    /// # Errors
    /// The file is missing, or cannot be renamed.
    pub fn quarantine(&self, file: &File) -> io::Result<()> {
        let moved = fs::rename(self.path(file, BATCH), self.path(file, DAMAGED));
        if is_missing(&moved) {
            self.state().bytes -= file.bytes;
        }
        moved
    }

    fn path(&self, file: &File, extension: &str) -> PathBuf {
        self.dir.join(file.name(extension))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether an operation failed because the file is missing.
fn is_missing(outcome: &io::Result<()>) -> bool {
    outcome.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// The kind of a spool file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A batch that waits for replay.
    Batch,
    /// A damaged file in quarantine.
    Damaged,
    /// A row in quarantine that is too large to insert.
    Row,
    /// A file that a process is writing, or whose write was interrupted by a crash.
    Unfinished,
}

/// A file of the directory.
#[derive(Debug)]
pub struct Listed {
    pub name: String,
    /// The kind of file, by its extension.
    pub kind: Kind,
    /// The parts of the name; `None` if the name is not one that milepost gives.
    pub file: Option<File>,
    pub bytes: u64,
}

/// Lists the spool's files in order of arrival; ignores other files.
///
/// # Errors
/// The directory cannot be read.
pub fn list(dir: &Path) -> io::Result<Vec<Listed>> {
    let mut files = Vec::new();
    for file in fs::read_dir(dir)? {
        let file = file?;
        let name = file.file_name().to_string_lossy().into_owned();
        let Some((stem, extension)) = name.rsplit_once('.') else { continue };
        let kind = match extension {
            BATCH => Kind::Batch,
            DAMAGED => Kind::Damaged,
            ROW => Kind::Row,
            UNFINISHED => Kind::Unfinished,
            _ => continue,
        };
        let bytes = match file.metadata() {
            Ok(metadata) => metadata.len(),
            // The process that owns the directory has just removed the file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        files.push(Listed { file: File::from_stem(stem, bytes), name, kind, bytes });
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

/// Writes a new file that only this user can read, and fsyncs it.
fn write_durably(path: &Path, inserts: &[Insert]) -> io::Result<()> {
    let mut file =
        BufWriter::new(OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?);
    format::write(inserts, &mut file)?;
    file.flush()?;
    file.get_ref().sync_all()
}

/// Creates the directory and its missing parents, and fsyncs the parent of each new directory,
/// because only then is the new directory durable.
fn create_durably(dir: &Path) -> io::Result<()> {
    let parent =
        dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if dir.exists() {
        // An earlier milepost process may have created the directory and been killed before the
        // fsync. If this process lacks the permission for the fsync of the parent, an earlier
        // process lacked the permission to create a directory there. So the error is harmless.
        use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem, Unsupported};
        let is_harmless = |error: &io::Error| {
            matches!(
                error.kind(),
                PermissionDenied | ReadOnlyFilesystem | InvalidInput | Unsupported
            )
        };
        return sync_dir(parent)
            .or_else(|error| if is_harmless(&error) { Ok(()) } else { Err(error) });
    }
    create_durably(parent)?;
    // Positions are personal data: no other user of this machine may read them.
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    sync_dir(parent)
}

/// Fsyncs a directory: only then are renames in it durable.
fn sync_dir(dir: &Path) -> io::Result<()> {
    fs::File::open(dir)?.sync_all()
}
