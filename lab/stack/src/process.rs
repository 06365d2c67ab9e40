//! Processes and ports of ours: whatever was started dies with its handle, and all of it at an
//! interrupt.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::procfs;

pub(crate) const READY_WITHIN: Duration = Duration::from_secs(240);
const POLL: Duration = Duration::from_millis(20);
/// Below those which the system gives to whoever connects or asks for any: it may take minutes
/// until ours is bound.
const PORTS: Range<u16> = 10_000..32_000;
const TRIES: usize = 1_000;

/// A port nobody listens on now.
pub fn free_port() -> Result<u16> {
    // Two who ask at once must not get the same one, before either has bound it.
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    for _ in 0..TRIES {
        let port = fastrand::u16(PORTS);
        let is_free = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        if is_free && lock(&GIVEN).insert(port) {
            return Ok(port);
        }
    }
    bail!("none of {TRIES} ports was free")
}

/// Takes a lock, also after a thread has panicked with it: what we count stays right.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until `condition` holds, with a bound.
pub fn wait_until(
    what: &str,
    within: Duration,
    mut condition: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let began = Instant::now();
    while !condition().with_context(|| format!("while waiting until {what}"))? {
        ensure!(began.elapsed() < within, "waited {within:?}, but never: {what}");
        sleep(POLL);
    }
    Ok(())
}

/// Returns the checkout that holds `deploy/local`: the one that this program was built in, and for a
/// program that was copied elsewhere the one that it is started in. So a copy never writes into the
/// checkout that it came from.
///
/// # Panics
/// Neither is a checkout.
#[must_use]
pub fn repository() -> &'static Path {
    static REPOSITORY: OnceLock<PathBuf> = OnceLock::new();
    REPOSITORY.get_or_init(|| {
        let program = std::env::current_exe().unwrap_or_default();
        let started_in = std::env::current_dir().unwrap_or_default();
        checkout(&program).or_else(|| checkout(&started_in)).expect(
            "deploy/local is neither above this program nor above the current folder: start it in a checkout of milepost",
        )
    })
}

fn checkout(path: &Path) -> Option<PathBuf> {
    let mut above = path.ancestors();
    above.find(|folder| folder.join("deploy/local/setup").is_file()).map(Path::to_owned)
}

/// One of deploy/local's programs, which run in the foreground.
pub(crate) fn local_program(program: &str, folder: &Path) -> Command {
    let mut command = Command::new(repository().join("deploy/local").join(program));
    command.env("STATE_DIR", folder);
    command
}

/// Ids of the children that live, for [`kill_all`].
static LIVING: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Kills every child, for an interrupt that leaves no time to drop their handles.
fn kill_all() {
    for pid in lock(&LIVING).iter() {
        let _ = Command::new("kill").arg("-KILL").arg(pid.to_string()).status();
    }
}

/// Runs `work` on a thread of its own; an interrupt kills every child and ends it early.
pub fn unless_interrupted<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let outcome = runtime.block_on(async {
        let mut terminate =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        tokio::select! {
            outcome = tokio::task::spawn_blocking(work) => outcome.context("a thread died")?,
            _ = tokio::signal::ctrl_c() => bail!("interrupted; nothing is left running"),
            _ = terminate.recv() => bail!("terminated; nothing is left running"),
        }
    });
    kill_all();
    runtime.shutdown_background();
    outcome
}

/// The same in a folder of its own in the checkout, which is removed afterwards.
pub fn in_scratch_folder<T: Send + 'static>(
    prefix: &str,
    work: impl FnOnce(&Path) -> Result<T> + Send + 'static,
) -> Result<T> {
    let local = repository().join(".local");
    std::fs::create_dir_all(&local)?;
    // Held here, not by the work: an interrupt removes it too.
    let folder = tempfile::TempDir::with_prefix_in(prefix, &local)?;
    let path = folder.path().to_owned();
    unless_interrupted(move || work(&path))
}

/// A folder for a test's servers, which goes with its handle. With KEEP_FOLDERS in the environment
/// it stays: whoever runs the tests removes it when they have passed.
pub fn folder() -> Result<tempfile::TempDir> {
    let mut folder = tempfile::TempDir::with_prefix("milepost-")?;
    folder.disable_cleanup(std::env::var_os("KEEP_FOLDERS").is_some());
    Ok(folder)
}

/// A child process with its log; killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts it; what it prints goes to the end of `log`.
    pub fn start(name: &str, command: &mut Command, log: PathBuf) -> Result<Self> {
        let file = File::options().create(true).append(true).open(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        lock(&LIVING).insert(child.id());
        Ok(Self { name: name.to_owned(), child, log })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything it has written so far. A line comes a moment after what it reports, because a
    /// thread of its own writes the log: read until the file has stopped growing, for a second at
    /// most.
    pub fn log(&self) -> Result<String> {
        let mut bytes = std::fs::read(&self.log)?;
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(50));
            let before = std::mem::replace(&mut bytes, std::fs::read(&self.log)?);
            if before.len() == bytes.len() {
                break;
            }
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// kill -9.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// kill -9, to it and then to all that it started, which would live on.
    pub fn kill_tree(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(()); // its number may be another's by now
        }
        let others = procfs::descendants(self.pid());
        self.kill()?;
        if !others.is_empty() {
            // Those that ended with their parent are no longer there to be killed.
            Command::new("kill").arg("-KILL").args(others.iter().map(u32::to_string)).output()?;
        }
        Ok(())
    }

    /// Sends a signal by name: `TERM`, `STOP`, …
    pub fn signal(&self, name: &str) -> Result<()> {
        let status =
            Command::new("kill").arg(format!("-{name}")).arg(self.pid().to_string()).status()?;
        ensure!(status.success(), "kill -{name} {} failed", self.name);
        Ok(())
    }

    /// Waits for its end.
    pub fn wait(&mut self, within: Duration) -> Result<ExitStatus> {
        let mut status = None;
        wait_until(&format!("{} ends", self.name), within, || {
            status = self.child.try_wait()?;
            Ok(status.is_some())
        })?;
        status.context("it has ended")
    }

    /// Fails with the end of its log if it has ended.
    pub fn ensure_alive(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            let log = self.log()?;
            let last = log
                .lines()
                .rev()
                .take(3)
                .collect::<Vec<_>>()
                .into_iter()
                .rev()
                .collect::<Vec<_>>()
                .join(" | ");
            bail!("{} ended ({status}): {last}", self.name);
        }
        Ok(())
    }

    pub(crate) fn wait_until(
        &mut self,
        what: &str,
        mut condition: impl FnMut() -> bool,
    ) -> Result<()> {
        wait_until(&format!("{} {what}", self.name), READY_WITHIN, || {
            self.ensure_alive()?;
            Ok(condition())
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        lock(&LIVING).remove(&self.pid());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkout_is_above_a_program_of_it_and_not_above_a_copy() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("checkout/target/demo");
        std::fs::create_dir_all(&inside).unwrap();
        std::fs::create_dir_all(folder.path().join("checkout/deploy/local")).unwrap();
        std::fs::write(folder.path().join("checkout/deploy/local/setup"), "").unwrap();
        assert_eq!(checkout(&inside.join("lab")), Some(folder.path().join("checkout")));
        assert_eq!(checkout(&folder.path().join("lab")), None);
    }
}
