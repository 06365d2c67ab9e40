//! Installs what the peers in JavaScript need: pinned versions, from the lock file, into lab/bench/peers/node_modules.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use lab_stack::{Process, repository};

const NODE_MIN: u32 = 20;
const INSTALL_WITHIN: Duration = Duration::from_secs(300);

pub(crate) fn folder() -> PathBuf {
    repository().join("lab/bench/peers")
}

/// Installs them, unless that was done with this lock file; what they run on.
pub(crate) fn install(logs: &Path) -> Result<PathBuf> {
    let node = PathBuf::from("node");
    let version = version(&node)?;
    let major = version.trim_start_matches('v').split('.').next().and_then(|major| major.parse().ok());
    ensure!(major >= Some(NODE_MIN), "Node {version}: @clickhouse/client wants {NODE_MIN} or newer");
    let lock = std::fs::read_to_string(folder().join("package-lock.json"))?;
    let stamp = folder().join("node_modules/installed-lock.json");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == lock) {
        return Ok(node);
    }
    eprintln!(
        "npm ci in {}: mqtt.js, @clickhouse/client, prom-client, bun, d3, Plot; once",
        folder().display()
    );
    let mut command = Command::new("npm");
    command.arg("ci").current_dir(folder());
    let mut npm = Process::start("npm", &mut command, logs.join("npm.log"))?;
    let status = npm.wait(INSTALL_WITHIN)?;
    ensure!(status.success(), "npm ci failed: {}", last_line(&npm.log()?));
    std::fs::write(stamp, lock)?;
    Ok(node)
}

/// The binary that Bun's package brought for this machine: there is one for each libc.
pub(crate) fn bun() -> Result<PathBuf> {
    let packages = std::fs::read_dir(folder().join("node_modules/@oven")).context("npm brought no Bun")?;
    packages
        .flatten()
        .map(|package| package.path().join("bin/bun"))
        .find(|binary| version(binary).is_ok())
        .context("npm brought no Bun that runs here")
}

/// What `--version` says.
pub(crate) fn version(binary: &Path) -> Result<String> {
    let output =
        Command::new(binary).arg("--version").output().with_context(|| format!("no {}", binary.display()))?;
    ensure!(output.status.success(), "{} --version failed", binary.display());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// For a report: a failed command's last word.
pub(crate) fn last_line(text: &str) -> &str {
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no word about why")
}
