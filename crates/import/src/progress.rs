//! Shows the progress of an import, and records it in a state file for the next run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{IsTerminal as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use memchr::memmem::Finder;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tracing::info;
use twox_hash::XxHash3_128;

/// Interval at which the line on a terminal is redrawn.
const DRAW_INTERVAL: Duration = Duration::from_millis(250);
/// Interval of the log lines if standard error is not a terminal.
const LOG_INTERVAL: Duration = Duration::from_secs(5);
/// Width of the bar in characters.
const BAR_WIDTH: u64 = 24;

/// The progress of an import. The reading thread and the inserting task both update it.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Number of bytes that were read.
    pub(super) bytes: AtomicU64,
    pub(super) fixes: AtomicU64,
    /// Number of inserted positions.
    pub(super) inserted: AtomicU64,
    pub(super) waits_for_merges: AtomicBool,
}

/// Shows the progress until it is dropped: a line that is redrawn on a terminal, or else a log line
/// every 5 s.
pub(super) struct Bar {
    drawing: JoinHandle<()>,
    is_terminal: bool,
}

impl Bar {
    /// Starts the task that shows the progress. `bytes`: the length of all files; 0 for pipes.
    pub(super) fn start(progress: Arc<Progress>, bytes: u64) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        Self { drawing: tokio::spawn(draw(progress, bytes, is_terminal)), is_terminal }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.drawing.abort();
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }
}

async fn draw(progress: Arc<Progress>, bytes: u64, is_terminal: bool) {
    let began = Instant::now();
    loop {
        sleep(if is_terminal { DRAW_INTERVAL } else { LOG_INTERVAL }).await;
        let (read, fixes, inserted) = (
            progress.bytes.load(Relaxed),
            progress.fixes.load(Relaxed),
            progress.inserted.load(Relaxed),
        );
        let waits = progress.waits_for_merges.load(Relaxed);
        if is_terminal {
            let line = bar(read, bytes, fixes, began.elapsed(), waits);
            let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
        } else {
            info!(fixes, inserted, bytes = read, of = bytes, waits_for_merges = waits, "importing");
        }
    }
}

/// Formats the line on a terminal. `read`: number of bytes that were read; `bytes`: number of bytes
/// of all files; `waits`: the import waits for merges.
fn bar(read: u64, bytes: u64, fixes: u64, took: Duration, waits: bool) -> String {
    let percent = (read * 100).checked_div(bytes).map_or(0, |percent| percent.min(100));
    let done = percent * BAR_WIDTH / 100;
    let bar: String = (0..BAR_WIDTH).map(|n| if n < done { '#' } else { '.' }).collect();
    let rate = fixes as f64 / took.as_secs_f64();
    let waits = if waits { "  ClickHouse is merging" } else { "" };
    format!("[{bar}] {percent:>3} %  {fixes} fixes  {rate:.0}/s{waits}")
}

/// The part of a file that was read: the number, length and hash of its first fixes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    pub(super) fixes: u64,
    /// Bytes of these fixes as the reader emitted them.
    bytes: u64,
    /// Hash of the fixes. Each fix is hashed with the hash of the fixes before it as the seed.
    hash: u64,
    /// Hash of the options with which the file was read; 0 in a state file of an older version.
    #[serde(default)]
    options: u64,
    /// Hash of the configuration with which the file was read; 0 in a state file of an older
    /// version.
    #[serde(default)]
    configuration: u64,
}

impl Mark {
    /// Returns the mark of a file of which nothing was read. `options`: the hash of the options.
    pub(super) fn new(options: u64, configuration: &Configuration) -> Self {
        Self { options, configuration: configuration.hash(), ..Self::default() }
    }

    pub(super) fn set_configuration(&mut self, configuration: &Configuration) {
        self.configuration = configuration.hash();
    }

    #[expect(clippy::cast_possible_truncation, reason = "a hash")]
    pub(super) fn add(&mut self, fix: &[u8]) {
        self.fixes += 1;
        self.bytes += fix.len() as u64;
        self.hash = XxHash3_128::oneshot_with_seed(self.hash, fix) as u64;
    }
}

/// The part of the configuration that determines how a file is read and which values are stored.
#[derive(Debug, Clone)]
pub(super) struct Configuration {
    /// Stable description of the configured format or source, if one reads the file.
    reading: Option<String>,
    /// Paths of further values to store, in alphabetical order. A fix may lack these values.
    kept: Vec<KeptName>,
}

#[derive(Debug, Clone)]
struct KeptName {
    path: String,
    /// The whole path and its last part, in quotes. If a fix contains one of these strings, it may
    /// have the value.
    keys: Vec<Finder<'static>>,
    /// A fix so far contained one of `keys`. Also true if the path cannot be searched for.
    is_found: bool,
}

impl KeptName {
    fn new(path: String) -> Self {
        // Only plain characters can be searched for, because JSON may escape the others. A path
        // with other characters counts as found from the start.
        let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(&byte));
        let last_part = path.rsplit('/').next().unwrap_or_default();
        let mut names = vec![last_part, &path];
        names.dedup();
        let key = |name| Finder::new(&format!("\"{name}\"")).into_owned();
        let keys = names.into_iter().map(key).collect();
        Self { path, keys, is_found: !is_plain }
    }
}

impl Configuration {
    /// Returns the settings for a file of which no fix was read yet. `kept`: paths of further
    /// values to store.
    pub(super) fn new(reading: Option<String>, kept: impl IntoIterator<Item = String>) -> Self {
        let kept: BTreeSet<String> = kept.into_iter().collect();
        Self { reading, kept: kept.into_iter().map(KeptName::new).collect() }
    }

    /// Marks each kept value as found if the fix contains one of its keys. Returns whether this
    /// call marked any value.
    pub(super) fn add(&mut self, fix: &[u8]) -> bool {
        let mut is_first = false;
        for name in self.kept.iter_mut().filter(|name| !name.is_found) {
            name.is_found = name.keys.iter().any(|key| key.find(fix).is_some());
            is_first |= name.is_found;
        }
        is_first
    }

    /// Returns the hash, never 0, of the settings that matter for the fixes so far. A new
    /// `[fields.NAME]` does not change the hash if no fix has its value.
    #[expect(clippy::cast_possible_truncation, reason = "a hash")]
    pub(super) fn hash(&self) -> u64 {
        let found = self.kept.iter().filter(|name| name.is_found);
        let found: Vec<&String> = found.map(|name| &name.path).collect();
        let text = format!("{:?}", (&self.reading, found));
        (XxHash3_128::oneshot(text.as_bytes()) as u64).max(1)
    }
}

/// The state file's entry for a file.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Stored {
    Read(Mark),
    /// An entry of a version up to 2026-11-25: only the number of fixes, without a hash.
    Fixes(u64),
}

impl Stored {
    pub(super) fn fixes(self) -> u64 {
        match self {
            Self::Read(mark) => mark.fixes,
            Self::Fixes(fixes) => fixes,
        }
    }

    /// Returns whether the file was read with the configuration of `mark`. Returns true if the
    /// entry does not record its configuration, as in older versions.
    pub(super) fn has_configuration_of(self, mark: Mark) -> bool {
        match self {
            Self::Read(stored) => [0, mark.configuration].contains(&stored.configuration),
            Self::Fixes(_) => true,
        }
    }

    /// Returns whether the file still begins with the stored fixes, and is read with the same
    /// options and configuration.
    pub(super) fn matches(self, mark: Mark) -> bool {
        match self {
            Self::Read(stored) => {
                // Do not compare a hash that an older version did not record.
                let if_recorded = |stored: u64, now: u64| if stored == 0 { 0 } else { now };
                let options = if_recorded(stored.options, mark.options);
                let configuration = if_recorded(stored.configuration, mark.configuration);
                stored == Mark { options, configuration, ..mark }
            }
            Self::Fixes(fixes) => fixes == mark.fixes,
        }
    }
}

/// The state of `--resume`: the stored part of each file, by path. Only one import can use it at a
/// time.
#[derive(Debug)]
pub(super) struct Resume {
    path: PathBuf,
    /// The locked state file. Each save replaces it with a new file that is locked beforehand.
    file: File,
    files: BTreeMap<PathBuf, Stored>,
}

impl Resume {
    /// Opens and locks the state file, and checks that it can be written.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let option = || format!("--resume {}", path.display());
        let file = lock(path).with_context(option)?;
        let json = fs::read(path).with_context(option)?;
        let files = if json.is_empty() {
            BTreeMap::new()
        } else {
            serde_json::from_slice(&json).with_context(|| {
                let option = option();
                format!("{option}: the file was not written by an import; remove it to start over")
            })?
        };
        // Write the file once, so that an error shows before anything is imported.
        let mut resume = Self { path: path.to_owned(), file, files };
        resume.save(Vec::new())?;
        Ok(resume)
    }

    /// Returns the entry for a file. `file`: the key under which the state file lists the file.
    pub(super) fn stored(&self, file: &Path) -> Option<Stored> {
        self.files.get(file).copied()
    }

    /// Adds the stored parts, and replaces the state file atomically: after a crash, the path has
    /// either the old or the new file.
    pub(super) fn save(&mut self, stored: Vec<(PathBuf, Mark)>) -> Result<()> {
        self.files.extend(stored.into_iter().map(|(path, mark)| (path, Stored::Read(mark))));
        let mut new = self.path.clone().into_os_string();
        new.push(".new");
        let mut save = || {
            let mut file = File::create(&new)?;
            file.lock()?;
            file.write_all(&serde_json::to_vec(&self.files)?)?;
            file.sync_all()?;
            fs::rename(&new, &self.path)?;
            self.file = file;
            Ok::<_, std::io::Error>(())
        };
        save().with_context(|| format!("{} cannot be written", self.path.display()))
    }
}

/// Opens the file of this name, creates it if necessary, and locks it for this process.
fn lock(path: &Path) -> Result<File> {
    if let Ok(found) = fs::metadata(path) {
        ensure!(found.is_file(), "it is not a regular file");
    }
    loop {
        let open =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = open.with_context(|| format!("{} cannot be written", path.display()))?;
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            bail!(
                "another import uses it: give each import a state file of its own, or name all \
                 files in one import"
            );
        }
        // Another process may have replaced the file before this process locked it. In that case,
        // open and lock the new file.
        let is_same = fs::metadata(path).is_ok_and(|current| {
            file.metadata()
                .is_ok_and(|ours| (current.dev(), current.ino()) == (ours.dev(), ours.ino()))
        });
        if is_same {
            return Ok(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_file_is_regular_and_has_one_user_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        let mut first = Resume::open(&path).unwrap();
        let mark = Mark { fixes: 1, bytes: 2, hash: 3, options: 4, configuration: 5 };
        first.save(vec![(PathBuf::from("a"), mark)]).unwrap();
        assert!(
            format!("{:#}", Resume::open(&path).unwrap_err()).contains("another import uses it")
        );
        drop(first);
        let stored = Resume::open(&path).unwrap().stored(Path::new("a"));
        assert!(stored.is_some_and(|stored| stored.matches(mark)));
        assert!(
            format!("{:#}", Resume::open(Path::new("/dev/full")).unwrap_err())
                .contains("regular file")
        );
        // A state file of an older version has no options.
        fs::write(&path, r#"{"a":{"fixes":1,"bytes":2,"hash":3}}"#).unwrap();
        let stored = Resume::open(&path).unwrap().stored(Path::new("a"));
        assert!(stored.is_some_and(|stored| stored.matches(mark)));
        assert!(stored.is_some_and(|stored| stored.has_configuration_of(mark)));
        assert!(!Stored::Read(Mark { options: 5, ..mark }).matches(mark), "other options");
        let other = Stored::Read(Mark { configuration: 6, ..mark });
        assert!(!other.matches(mark) && !other.has_configuration_of(mark));
        fs::write(&path, r#"{"a":7}"#).unwrap();
        assert_eq!(Resume::open(&path).unwrap().stored(Path::new("a")).map(Stored::fixes), Some(7));
    }

    #[test]
    fn configuration_hash_ignores_values_that_no_fix_has() {
        let hash = |reading: Option<&str>, kept: &[&str], fixes: &[&str]| {
            let kept = kept.iter().map(|name| (*name).to_owned());
            let mut configuration = Configuration::new(reading.map(str::to_owned), kept);
            for fix in fixes {
                configuration.add(fix.as_bytes());
            }
            configuration.hash()
        };
        let fixes = [r#"{"lat":1,"batt":80}"#, r#"{"lat":1,"io":{"239":1}}"#];
        let stored = hash(Some("x"), &["batt", "io/239"], &fixes);
        // The hash ignores the order of the fields, a duplicate field, and a field that no fix has.
        for kept in [&["io/239", "batt"][..], &["batt", "io/239", "batt"], &["a", "batt", "io/239"]]
        {
            assert_eq!(hash(Some("x"), kept, &fixes), stored, "{kept:?}");
        }
        for kept in [&["batt"][..], &["batt", "io/239", "lat"], &["batt", "io/239", "ä"]] {
            assert_ne!(hash(Some("x"), kept, &fixes), stored, "{kept:?}");
        }
        assert_ne!(hash(None, &["batt", "io/239"], &fixes), stored);
        assert_ne!(hash(Some("y"), &["batt", "io/239"], &fixes), stored);
    }
}
