//! Child processes and free ports. Dropping a child's handle kills the child; an interrupt kills
//! every child.

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

/// Longest wait until a server answers or is ready, and longest time of a query.
pub(crate) const READY_TIMEOUT: Duration = Duration::from_secs(240);
/// Shortest and longest pause between two checks of a condition.
const POLL: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(400)];
/// Range of the free ports. The range is below the ephemeral ports of the kernel, so no outgoing
/// connection takes a port in the minutes until the server binds it.
const PORTS: Range<u16> = 10_000..32_000;
/// Number of random ports to try.
const ATTEMPTS: usize = 1_000;

/// Returns a port on which no process listens now, and which this process has not used before.
pub fn free_port() -> Result<u16> {
    // Remember the port, so that no other caller gets it before this caller has bound it.
    static RETURNED: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    for _ in 0..ATTEMPTS {
        let port = fastrand::u16(PORTS);
        let is_free = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        if is_free && lock(&RETURNED).insert(port) {
            return Ok(port);
        }
    }
    bail!("none of {ATTEMPTS} ports was free")
}

/// Locks a mutex even if a thread has panicked while it held the lock: counters stay valid.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until `condition` holds, and fails after `within`. `description` completes the sentence
/// "waiting until …". A condition that takes long to check, such as a query, is checked less often:
/// otherwise the checks would take the CPU from the server.
pub fn wait_until(
    description: &str,
    within: Duration,
    mut condition: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let began = Instant::now();
    loop {
        let check_began = Instant::now();
        if condition().with_context(|| format!("while waiting until {description}"))? {
            return Ok(());
        }
        ensure!(began.elapsed() < within, "waited {within:?}, but never: {description}");
        sleep((4 * check_began.elapsed()).clamp(POLL[0], POLL[1]));
    }
}

/// Returns the checkout of milepost: the folder above this program, or else above the current
/// folder, that contains `lab/local`. A copy of the program outside a checkout thus never writes
/// into the checkout that built it.
///
/// # Panics
/// Neither the program nor the current folder is within a checkout.
#[must_use]
pub fn repository() -> &'static Path {
    static REPOSITORY: OnceLock<PathBuf> = OnceLock::new();
    REPOSITORY.get_or_init(|| {
        let program = std::env::current_exe().unwrap_or_default();
        let started_in = std::env::current_dir().unwrap_or_default();
        checkout(&program).or_else(|| checkout(&started_in)).expect(
            "lab/local is neither above this program nor above the current folder: start it in a \
             checkout of milepost",
        )
    })
}

/// Returns the nearest folder that contains `lab/local`: `path`, or a folder above it.
fn checkout(path: &Path) -> Option<PathBuf> {
    let mut above = path.ancestors();
    above.find(|folder| folder.join("lab/local/setup").is_file()).map(Path::to_owned)
}

/// Returns the command for a program of lab/local. These programs run in the foreground.
pub(crate) fn local_program(program: &str, folder: &Path) -> Command {
    let mut command = Command::new(repository().join("lab/local").join(program));
    command.env("STATE_DIR", folder);
    command
}

/// Process ids of the running children, for [`kill_all`].
static RUNNING: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Kills every child. An interrupt leaves no time to drop the children's handles.
fn kill_all() {
    for pid in lock(&RUNNING).iter() {
        let _ = Command::new("kill").arg("-KILL").arg(pid.to_string()).status();
    }
}

/// Runs `work` on its own thread. An interrupt kills every child and returns early.
pub fn unless_interrupted<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let outcome = runtime.block_on(async {
        let mut terminate =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        tokio::select! {
            outcome = tokio::task::spawn_blocking(work) => outcome.context("the thread panicked")?,
            _ = tokio::signal::ctrl_c() => bail!("interrupted; nothing is left running"),
            _ = terminate.recv() => bail!("terminated; nothing is left running"),
        }
    });
    kill_all();
    runtime.shutdown_background();
    outcome
}

/// Runs `work` as [`unless_interrupted`] does, with a folder of its own in the checkout. The folder
/// is removed afterwards.
pub fn in_scratch_folder<T: Send + 'static>(
    prefix: &str,
    work: impl FnOnce(&Path) -> Result<T> + Send + 'static,
) -> Result<T> {
    let local = repository().join(".local");
    std::fs::create_dir_all(&local)?;
    // This function, not the thread, owns the folder, so that an interrupt removes it as well.
    let folder = tempfile::TempDir::with_prefix_in(prefix, &local)?;
    let path = folder.path().to_owned();
    unless_interrupted(move || work(&path))
}

/// Creates a folder for a test's servers, removed when its handle is dropped. If the environment
/// variable KEEP_FOLDERS is set, the folder is kept, and tests/run removes the folder when the
/// tests have passed.
pub fn folder() -> Result<tempfile::TempDir> {
    let mut folder = tempfile::TempDir::with_prefix("milepost-")?;
    folder.disable_cleanup(std::env::var_os("KEEP_FOLDERS").is_some());
    Ok(folder)
}

/// A child process with its log file, killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts the process. Its output is appended to `log`.
    pub fn start(name: &str, command: &mut Command, log: PathBuf) -> Result<Self> {
        let file = File::options().create(true).append(true).open(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        lock(&RUNNING).insert(child.id());
        Ok(Self { name: name.to_owned(), child, log })
    }

    /// Returns the process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the log so far. A separate thread of milepost writes it, so a line appears a moment
    /// after its event. This function therefore waits until the file has stopped growing, for a
    /// second at most.
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

    /// Kills the process with SIGKILL.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Kills the process and then all its descendants, which would outlive it, with SIGKILL.
    pub fn kill_tree(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(()); // its process id may belong to another process by now
        }
        let descendants = procfs::descendants(self.pid());
        self.kill()?;
        if !descendants.is_empty() {
            // Ignore the status: `kill` fails if a descendant has ended with its parent.
            Command::new("kill")
                .arg("-KILL")
                .args(descendants.iter().map(u32::to_string))
                .output()?;
        }
        Ok(())
    }

    /// Sends a signal by name, such as `TERM` or `STOP`.
    pub fn signal(&self, name: &str) -> Result<()> {
        let status =
            Command::new("kill").arg(format!("-{name}")).arg(self.pid().to_string()).status()?;
        ensure!(status.success(), "kill -{name} {} failed", self.name);
        Ok(())
    }

    /// Waits until the process ends, and returns its status. Fails after `within`.
    pub fn wait(&mut self, within: Duration) -> Result<ExitStatus> {
        let mut status = None;
        wait_until(&format!("{} ends", self.name), within, || {
            status = self.child.try_wait()?;
            Ok(status.is_some())
        })?;
        status.context("the process has ended")
    }

    /// Fails with the end of the log if the process has ended.
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

    /// Waits until `condition` holds. Fails after [`READY_TIMEOUT`], or if the process ends.
    pub(crate) fn wait_until(
        &mut self,
        description: &str,
        mut condition: impl FnMut() -> bool,
    ) -> Result<()> {
        wait_until(&format!("{} {description}", self.name), READY_TIMEOUT, || {
            self.ensure_alive()?;
            Ok(condition())
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        lock(&RUNNING).remove(&self.pid());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repository_is_found_above_the_program_but_not_above_a_copy() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("checkout/target/demo");
        std::fs::create_dir_all(&inside).unwrap();
        std::fs::create_dir_all(folder.path().join("checkout/lab/local")).unwrap();
        std::fs::write(folder.path().join("checkout/lab/local/setup"), "").unwrap();
        assert_eq!(checkout(&inside.join("lab")), Some(folder.path().join("checkout")));
        assert_eq!(checkout(&folder.path().join("lab")), None);
    }
}
