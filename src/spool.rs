//! Batches on disk while ClickHouse cannot take them.
//!
//! Guarantee: a batch that [`Spool::store`] has taken survives a crash and a power cut: its file is written under
//! another name, fsynced, renamed, and the directory fsynced. It comes back as it was or, torn or flipped, not at
//! all. One process a directory (a lock says so), and never more than `bytes_max` of files in it.
//!
//! One file a batch, never changed, named
//!
//! ```text
//! 00000000000000000042-4980-1.batch      sequence - positions - ambiguous ends
//! ```
//!
//! so that the listing is the order in which they came, the ledger is known without opening them, and the attempts
//! that may have been committed are counted across restarts by renaming (see [`Insert::token`]). A restart is an
//! ambiguous end: an attempt may have been under way. A damaged file is renamed to `….damaged`: out of the way,
//! counted, and kept for a person to look at. `spool/format.rs` says what is inside.

pub mod format;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::warn;

use crate::encode::Insert;
use crate::metrics::Metrics;

/// While ClickHouse seems to be away, a batch is tried this often all the same.
const PROBE_EVERY: Duration = Duration::from_secs(5);
const LOCK: &str = "lock";
const BATCH: &str = "batch";
const DAMAGED: &str = "damaged";
const UNFINISHED: &str = "unfinished";

/// A batch on disk; its name says it all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Its place in the order.
    pub sequence: u64,
    /// Position rows in it.
    pub positions: u64,
    /// Attempts to insert it that may or may not have been committed.
    pub ambiguous_ends: u32,
    /// Size of the file.
    pub bytes: u64,
}

impl Entry {
    fn file_name(&self, extension: &str) -> String {
        format!("{:020}-{}-{}.{extension}", self.sequence, self.positions, self.ambiguous_ends)
    }

    fn from_stem(stem: &str, bytes: u64) -> Option<Self> {
        let mut parts = stem.split('-');
        let entry = Self {
            sequence: parts.next()?.parse().ok()?,
            positions: parts.next()?.parse().ok()?,
            ambiguous_ends: parts.next()?.parse().ok()?,
            bytes,
        };
        parts.next().is_none().then_some(entry)
    }
}

/// Why there is no spool.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A second process would replay what the first one does.
    #[error("spool.dir {0} is in use by another process: give each its own")]
    InUse(PathBuf),
    /// The directory, or a file in it.
    #[error("spool.dir: cannot use {path}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Why a batch was not taken.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The bound.
    #[error("the spool holds {bytes} bytes, and spool.bytes_max is {bytes_max}")]
    Full {
        /// Before this batch.
        bytes: u64,
        /// The bound.
        bytes_max: u64,
    },
    /// The disk, for instance full.
    #[error("the spool cannot be written")]
    Io(#[source] io::Error),
}

/// Why a batch did not come back.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Not what was written: set it aside.
    #[error(transparent)]
    Damaged(format::Damaged),
    /// Whole, and written by a newer milepost: it will read it again.
    #[error("a spooled batch has format version {0}: a newer milepost must replay it")]
    Newer(u32),
    /// Not readable now.
    #[error("a spooled batch cannot be read")]
    Io(#[source] io::Error),
}

/// One process' directory of batches.
#[derive(Debug)]
pub struct Spool {
    dir: PathBuf,
    bytes_max: u64,
    metrics: Arc<Metrics>,
    state: Mutex<State>,
    changed: Notify,
    _lock: File,
}

#[derive(Debug, Default)]
struct State {
    /// To be replayed, by sequence.
    ready: BTreeMap<u64, Entry>,
    next_sequence: u64,
    batches: u64,
    /// Of every file of ours, damaged ones and those being written too.
    bytes: u64,
    /// The last attempt to insert failed: what comes follows the others to disk, but for a batch now and then.
    away: bool,
    probe_at: Option<Instant>,
    /// Inserts that got through, straight or from here.
    successes: u64,
}

impl Spool {
    /// Locks the directory, makes it if it is missing, and finds what an earlier process left.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(dir: &Path, bytes_max: u64, metrics: Arc<Metrics>) -> Result<Self, OpenError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| OpenError::Io { path, source }
        };
        if !dir.exists() {
            // Where everybody was is nobody else's business on this machine.
            DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed(dir))?;
            dir.parent().filter(|parent| parent.exists()).map_or(Ok(()), sync_dir).map_err(failed(dir))?;
        }
        let lock_path = dir.join(LOCK);
        let lock = File::create(&lock_path).map_err(failed(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::InUse(dir.to_owned())),
            Err(TryLockError::Error(error)) => return Err(failed(&lock_path)(error)),
        }
        let mut state = State::default();
        for file in list(dir).map_err(failed(dir))? {
            let path = dir.join(&file.name);
            match file.entry {
                Some(entry) if file.kind == Kind::Batch => {
                    let restarted = Entry { ambiguous_ends: entry.ambiguous_ends.saturating_add(1), ..entry };
                    fs::rename(&path, dir.join(restarted.file_name(BATCH))).map_err(failed(&path))?;
                    state.ready.insert(entry.sequence, restarted);
                    state.batches += 1;
                }
                // Never acknowledged: its messages are still with the broker.
                _ if file.kind == Kind::Unfinished => {
                    fs::remove_file(&path).map_err(failed(&path))?;
                    continue;
                }
                _ => {}
            }
            state.bytes += file.bytes;
            let sequence = file.entry.map_or(0, |entry| entry.sequence);
            state.next_sequence = state.next_sequence.max(sequence.saturating_add(1));
        }
        sync_dir(dir).map_err(failed(dir))?;
        metrics.spool_opened(state.ready.values().map(|entry| entry.positions).sum());
        metrics.spool_level(state.batches, state.bytes);
        Ok(Self {
            dir: dir.to_owned(),
            bytes_max,
            metrics,
            state: Mutex::new(state),
            changed: Notify::new(),
            _lock: lock,
        })
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Batches on disk: those to be replayed, and those that are saved while they are being inserted.
    #[must_use]
    pub fn batches(&self) -> u64 {
        self.state().batches
    }

    /// Writes a batch and makes it durable; blocks for the time of two fsyncs. It is not replayed before it is
    /// [`release`](Self::release)d.
    ///
    /// # Errors
    /// See [`StoreError`]; then nothing of it is left behind.
    pub fn store(
        &self,
        inserts: &[Insert],
        positions: u64,
        ambiguous_ends: u32,
    ) -> Result<Entry, StoreError> {
        let bytes = format::length(inserts);
        let entry = {
            let mut state = self.state();
            if state.bytes + bytes > self.bytes_max {
                return Err(StoreError::Full { bytes: state.bytes, bytes_max: self.bytes_max });
            }
            state.bytes += bytes;
            state.batches += 1;
            let sequence = state.next_sequence;
            state.next_sequence += 1;
            Entry { sequence, positions, ambiguous_ends, bytes }
        };
        let unfinished = self.dir.join(entry.file_name(UNFINISHED));
        let written = write_durably(&unfinished, inserts)
            .and_then(|()| fs::rename(&unfinished, self.path(&entry)))
            .and_then(|()| sync_dir(&self.dir));
        if let Err(error) = written {
            let _ = fs::remove_file(&unfinished);
            let _ = fs::remove_file(self.path(&entry));
            self.gone(&entry);
            return Err(StoreError::Io(error));
        }
        self.publish_level();
        Ok(entry)
    }

    /// Lets a stored batch be replayed.
    pub fn release(&self, entry: Entry) {
        self.state().ready.insert(entry.sequence, entry);
        self.changed.notify_one();
    }

    /// The oldest batch that is not `left_out`.
    pub fn oldest(&self, left_out: impl Fn(u64) -> bool) -> Option<Entry> {
        self.state().ready.iter().find(|(sequence, _)| !left_out(**sequence)).map(|(_, entry)| *entry)
    }

    /// Returns when a batch has been released, perhaps before.
    pub async fn released(&self) {
        self.changed.notified().await;
    }

    /// Reads a batch; blocks.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn load(&self, entry: &Entry) -> Result<Vec<Insert>, LoadError> {
        let file = fs::read(self.path(entry)).map_err(|error| {
            // If the directory is gone, too, it may come back.
            let only_the_file = error.kind() == io::ErrorKind::NotFound && self.dir.join(LOCK).exists();
            if only_the_file { LoadError::Damaged(format::Damaged::Gone) } else { LoadError::Io(error) }
        })?;
        format::read(&Bytes::from(file)).map_err(|damage| {
            if let format::Damaged::Version(version) = damage {
                LoadError::Newer(version)
            } else {
                LoadError::Damaged(damage)
            }
        })
    }

    /// Its rows are in ClickHouse. A file that cannot be removed is replayed once more after a restart, which
    /// changes nothing.
    pub fn remove(&self, entry: &Entry) {
        if let Err(error) = fs::remove_file(self.path(entry)) {
            warn!(file = %self.path(entry).display(), %error, "a replayed batch cannot be removed");
        }
        self.gone(entry);
    }

    /// An attempt ended without saying whether it was committed; kept in the name, so that no restart forgets it.
    pub fn ended_ambiguously(&self, entry: &Entry) -> Entry {
        let renamed = Entry { ambiguous_ends: entry.ambiguous_ends.saturating_add(1), ..*entry };
        if let Err(error) = fs::rename(self.path(entry), self.path(&renamed)) {
            warn!(file = %self.path(entry).display(), %error, "a spooled batch cannot be renamed");
            return *entry;
        }
        // Not durable is no harm: a restart counts one more.
        if let Err(error) = sync_dir(&self.dir) {
            warn!(%error, "the spool's directory cannot be synced");
        }
        if let Some(ready) = self.state().ready.get_mut(&entry.sequence) {
            *ready = renamed;
        }
        renamed
    }

    /// Puts a damaged file out of the way.
    pub fn set_aside(&self, entry: &Entry, why: &format::Damaged) {
        let aside = self.dir.join(entry.file_name(DAMAGED));
        let moved = fs::rename(self.path(entry), &aside).is_ok();
        warn!(
            file = %aside.display(), positions = entry.positions, %why, moved,
            "a spooled batch is damaged: set aside, its rows are not inserted"
        );
        let mut state = self.state();
        state.ready.remove(&entry.sequence);
        state.batches -= 1;
        if !moved {
            state.bytes -= entry.bytes;
        }
        drop(state);
        self.metrics.spool_set_aside(entry.positions);
        self.publish_level();
    }

    /// Whether a batch should come here without an attempt to insert it: the last attempt failed, and the batches
    /// before it wait. Now and then one is let through, so that a single batch nobody can insert does not speak for
    /// all.
    #[must_use]
    pub fn goes_first(&self) -> bool {
        let now = Instant::now();
        let mut state = self.state();
        if !state.away || state.ready.is_empty() {
            return false;
        }
        let is_probe = state.probe_at.is_none_or(|at| now >= at);
        if is_probe {
            state.probe_at = Some(now + PROBE_EVERY);
        }
        !is_probe
    }

    /// An insert got through.
    pub fn insert_succeeded(&self) {
        let mut state = self.state();
        state.away = false;
        state.probe_at = None;
        state.successes += 1;
    }

    /// A batch that came straight from a lane was not inserted. What only a person can mend does not lead here.
    pub fn insert_failed(&self, permanent: bool) {
        let mut state = self.state();
        state.away = !permanent;
        state.probe_at.get_or_insert(Instant::now() + PROBE_EVERY);
    }

    /// How many inserts got through so far: more of them later means that the server takes some.
    #[must_use]
    pub fn successes(&self) -> u64 {
        self.state().successes
    }

    fn gone(&self, entry: &Entry) {
        let mut state = self.state();
        state.ready.remove(&entry.sequence);
        state.bytes -= entry.bytes;
        state.batches -= 1;
        drop(state);
        self.publish_level();
    }

    fn publish_level(&self) {
        let (batches, bytes) = {
            let state = self.state();
            (state.batches, state.bytes)
        };
        self.metrics.spool_level(batches, bytes);
    }

    fn path(&self, entry: &Entry) -> PathBuf {
        self.dir.join(entry.file_name(BATCH))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a file of the directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A batch.
    Batch,
    /// One that was set aside.
    Damaged,
    /// What a crash left of one that was being written.
    Unfinished,
}

/// A file of the directory.
#[derive(Debug)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// By its extension.
    pub kind: Kind,
    /// By its name; `None` if that is not one of ours.
    pub entry: Option<Entry>,
    /// Its size.
    pub bytes: u64,
}

/// The spool's files in the order they came; others are not looked at.
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
            UNFINISHED => Kind::Unfinished,
            _ => continue,
        };
        let bytes = match file.metadata() {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue, // its owner is at work
            Err(error) => return Err(error),
        };
        files.push(Listed { entry: Entry::from_stem(stem, bytes), name, kind, bytes });
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

fn write_durably(path: &Path, inserts: &[Insert]) -> io::Result<()> {
    let mut file = BufWriter::new(OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?);
    format::write(inserts, &mut file)?;
    file.flush()?;
    file.get_ref().sync_all()
}

/// A name is durable when its directory is.
fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
