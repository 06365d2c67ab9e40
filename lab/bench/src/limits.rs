//! The pod's limits, by cgroup: v2 where its controllers are there, else v1.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

const PERIOD_US: u64 = 100_000;
const ROOT: &str = "/sys/fs/cgroup";
const NAME: &str = "milepost-bench-";

/// The pod of the story.
pub(crate) const POD_CPUS: f64 = 0.25;
pub(crate) const POD_MEMORY_BYTES: u64 = 128 << 20;

/// A group of processes that may use so much; removed when dropped.
#[derive(Debug)]
pub(crate) struct Limits {
    folders: Vec<PathBuf>,
}

impl Limits {
    /// The pod's limits.
    ///
    /// Fails where the system does not let us: no cgroup file system, or no right to it.
    pub(crate) fn of_the_pod() -> Result<Self> {
        let name = format!("{NAME}{}", std::process::id());
        let root = Path::new(ROOT);
        let mut limits = Self { folders: Vec::new() };
        let v2 = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        let quota_us = (POD_CPUS * PERIOD_US as f64).round();
        if v2.contains("cpu") && v2.contains("memory") {
            fs::write(root.join("cgroup.subtree_control"), "+cpu +memory")
                .context("cgroup v2: no right to it")?;
            let folder = limits.make(root.join(&name))?;
            fs::write(folder.join("cpu.max"), format!("{quota_us} {PERIOD_US}"))?;
            fs::write(folder.join("memory.max"), POD_MEMORY_BYTES.to_string())?;
        } else {
            let cpu = limits.make(root.join("cpu").join(&name))?;
            fs::write(cpu.join("cpu.cfs_period_us"), PERIOD_US.to_string())?;
            fs::write(cpu.join("cpu.cfs_quota_us"), quota_us.to_string())?;
            let memory = limits.make(root.join("memory").join(&name))?;
            fs::write(memory.join("memory.limit_in_bytes"), POD_MEMORY_BYTES.to_string())?;
        }
        Ok(limits)
    }

    fn make(&mut self, folder: PathBuf) -> Result<PathBuf> {
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        self.folders.push(folder.clone());
        Ok(folder)
    }

    /// Puts a process in; those it starts come with it.
    pub(crate) fn add(&self, pid: u32) -> Result<()> {
        for folder in &self.folders {
            fs::write(folder.join("cgroup.procs"), pid.to_string())?;
        }
        Ok(())
    }
}

/// An interrupt leaves a group behind, empty; one that is in use cannot be removed.
pub(crate) fn remove_forgotten() {
    let root = Path::new(ROOT);
    for parent in [root.to_owned(), root.join("cpu"), root.join("memory")] {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(NAME) {
                let _ = fs::remove_dir(entry.path());
            }
        }
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        // Only empty groups can be removed: the processes are dropped first.
        for folder in &self.folders {
            let _ = fs::remove_dir(folder);
        }
    }
}
