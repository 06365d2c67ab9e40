//! How far an import is: a bar for who watches, and a file for the next run.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tracing::info;

const DRAWN_EVERY: Duration = Duration::from_millis(250);
const LOGGED_EVERY: Duration = Duration::from_secs(5);
const BAR_WIDTH: u64 = 24;

/// What the reading thread and the inserts have done.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) bytes: AtomicU64,
    pub(super) fixes: AtomicU64,
    /// Positions.
    pub(super) inserted: AtomicU64,
    pub(super) waits_for_merges: AtomicBool,
}

/// Draws until it is dropped: on a terminal a line that changes, else a line of the log now and then.
pub(super) struct Bar {
    drawing: JoinHandle<()>,
    is_terminal: bool,
}

impl Bar {
    pub(super) fn start(seen: Arc<Seen>, bytes: u64) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        Self { drawing: tokio::spawn(draw(seen, bytes, is_terminal)), is_terminal }
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

async fn draw(seen: Arc<Seen>, bytes: u64, is_terminal: bool) {
    let began = Instant::now();
    loop {
        sleep(if is_terminal { DRAWN_EVERY } else { LOGGED_EVERY }).await;
        let (read, fixes, inserted) =
            (seen.bytes.load(Relaxed), seen.fixes.load(Relaxed), seen.inserted.load(Relaxed));
        let waits = seen.waits_for_merges.load(Relaxed);
        if is_terminal {
            let line = bar(read, bytes, fixes, began.elapsed(), waits);
            let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
        } else {
            info!(fixes, inserted, bytes = read, of = bytes, waits_for_merges = waits, "importing");
        }
    }
}

fn bar(read: u64, bytes: u64, fixes: u64, took: Duration, waits: bool) -> String {
    let percent = (read * 100).checked_div(bytes).map_or(0, |percent| percent.min(100));
    let done = percent * BAR_WIDTH / 100;
    let bar: String = (0..BAR_WIDTH).map(|n| if n < done { '#' } else { '.' }).collect();
    let rate = fixes as f64 / took.as_secs_f64();
    let waits = if waits { "  ClickHouse merges" } else { "" };
    format!("[{bar}] {percent:>3} %  {fixes} fixes  {rate:.0}/s{waits}")
}

/// How many fixes of each file are stored, by its path.
#[derive(Debug)]
pub(super) struct Resume {
    path: PathBuf,
    files: BTreeMap<PathBuf, u64>,
}

impl Resume {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let files = match fs::read(path) {
            Ok(json) => serde_json::from_slice(&json).with_context(|| {
                format!("--resume {}: not written by an import; remove it to begin anew", path.display())
            })?,
            Err(error) if error.kind() == ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error).with_context(|| format!("{}", path.display())),
        };
        // Written once: what stands in the way is known before anything is imported.
        let mut resume = Self { path: path.to_owned(), files };
        resume.save(Vec::new())?;
        Ok(resume)
    }

    pub(super) fn stored(&self, file: &Path) -> u64 {
        self.files.get(file).copied().unwrap_or_default()
    }

    /// Replaces the file; whatever happens, it is the old one or the new one.
    pub(super) fn save(&mut self, stored: Vec<(PathBuf, u64)>) -> Result<()> {
        self.files.extend(stored);
        let mut new = self.path.clone().into_os_string();
        new.push(".new");
        let save = || {
            let mut file = File::create(&new)?;
            file.write_all(&serde_json::to_vec(&self.files)?)?;
            file.sync_all()?;
            fs::rename(&new, &self.path)
        };
        save().with_context(|| format!("{} cannot be written", self.path.display()))
    }
}
