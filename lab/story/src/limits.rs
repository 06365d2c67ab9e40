//! Runs the consumer in a cgroup. The cgroup limits CPU and memory as a pod does, and counts memory
//! as `docker stats` does. It is of version 2 if version 2 has the controllers, and of version 1
//! otherwise. If the cgroup cannot be created, a step with a limit fails, and any other step lacks
//! the memory that `docker stats` would show.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::plan::Limit;

const ROOT: &str = "/sys/fs/cgroup";
/// Period of a CPU quota, in microseconds.
const PERIOD_US: u32 = 100_000;

/// The control groups of one consumer. Dropping this value removes the groups, so end the consumer
/// first.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    cpu: Option<PathBuf>,
    memory: Option<PathBuf>,
    is_v2: bool,
}

impl Limits {
    /// Creates the groups. Fails without a cgroup file system, or without the permission to use it.
    pub(crate) fn new(limit: Option<Limit>) -> Result<Self> {
        let root = Path::new(ROOT);
        let name = format!("milepost-story-{}", std::process::id());
        // Only version 2 has this file.
        let controllers = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        if controllers.contains("cpu") && controllers.contains("memory") {
            fs::write(root.join("cgroup.subtree_control"), "+cpu +memory")
                .context("cgroup v2 is read-only")?;
            let folder = create_group(root.join(name))?;
            let limits =
                Self { cpu: Some(folder.clone()), memory: Some(folder.clone()), is_v2: true };
            if let Some(limit) = limit {
                fs::write(folder.join("cpu.max"), format!("{} {PERIOD_US}", quota_us(limit)))?;
                fs::write(folder.join("memory.max"), bytes(limit))?;
            }
            return Ok(limits);
        }
        // If a later step fails, dropping `limits` removes the group that exists by then.
        let mut limits = Self::default();
        let cpu = create_group(own_group("cpu")?.join(&name))?;
        limits.cpu = Some(cpu.clone());
        let memory = create_group(own_group("memory")?.join(&name))?;
        limits.memory = Some(memory.clone());
        if let Some(limit) = limit {
            fs::write(cpu.join("cpu.cfs_period_us"), PERIOD_US.to_string())?;
            fs::write(cpu.join("cpu.cfs_quota_us"), quota_us(limit))?;
            fs::write(memory.join("memory.limit_in_bytes"), bytes(limit))?;
        }
        Ok(limits)
    }

    /// Returns a command that enters the groups and then executes the program.
    pub(crate) fn enter(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        let mut script = String::new();
        for folder in [&self.cpu, &self.memory].into_iter().flatten() {
            script += &format!("echo $$ > {}/cgroup.procs && ", folder.display());
        }
        command.args(["-c", &(script + "exec \"$0\" \"$@\"")]).arg(program);
        command
    }

    /// Returns the memory in use, without inactive pages of files, as `docker stats` shows it.
    pub(crate) fn docker_bytes(&self) -> Option<u64> {
        let folder = self.memory.as_ref()?;
        let (usage, inactive) = if self.is_v2 {
            ("memory.current", "inactive_file ")
        } else {
            ("memory.usage_in_bytes", "total_inactive_file ")
        };
        let usage: u64 = fs::read_to_string(folder.join(usage)).ok()?.trim().parse().ok()?;
        let stat = fs::read_to_string(folder.join("memory.stat")).ok()?;
        let inactive: u64 =
            stat.lines().find_map(|line| line.strip_prefix(inactive))?.trim().parse().ok()?;
        Some(usage.saturating_sub(inactive))
    }

    /// Returns the share of the quota's periods in which the kernel throttled the processes.
    pub(crate) fn throttled_share(&self) -> Option<f64> {
        let stat = fs::read_to_string(self.cpu.as_ref()?.join("cpu.stat")).ok()?;
        let count = |name: &str| {
            stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok())
        };
        let periods = count("nr_periods ")?;
        (periods > 0.0).then(|| count("nr_throttled ").unwrap_or(0.0) / periods)
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        // A group is busy until the kernel has reaped its last process.
        for _ in 0..50 {
            let mut folders =
                [&self.cpu, &self.memory].into_iter().flatten().filter(|folder| folder.is_dir());
            if folders.all(|folder| fs::remove_dir(folder).is_ok()) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

fn quota_us(limit: Limit) -> String {
    (limit.cores * f64::from(PERIOD_US)).round().to_string()
}

fn bytes(limit: Limit) -> String {
    (limit.memory_mib << 20).to_string()
}

fn create_group(folder: PathBuf) -> Result<PathBuf> {
    let _ = fs::remove_dir(&folder);
    fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

/// Returns this process's own group of a v1 controller. The consumer's group is created inside this
/// group, so the limits of the laboratory apply to the consumer as well.
fn own_group(controller: &str) -> Result<PathBuf> {
    let root = Path::new(ROOT).join(controller);
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    let own = groups.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers
            .split(',')
            .any(|name| name == controller)
            .then(|| path.trim_start_matches('/').to_owned())
    });
    let nested = root.join(own.with_context(|| format!("no cgroup controller {controller}"))?);
    Ok(if nested.is_dir() { nested } else { root })
}
