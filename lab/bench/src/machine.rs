//! The machine and the versions that a measurement ran on.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use lab_stack::{repository, unix_ms};

/// The head of a report. Its commit pins the versions of the packages that npm and Go install.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Machine {
    pub date: String,
    pub cpu: String,
    pub cores: usize,
    pub kernel: String,
    pub versions: BTreeMap<String, String>,
}

impl Machine {
    /// Formats the machine and the versions as a sentence.
    #[must_use]
    pub fn in_words(&self) -> String {
        let Self { cpu, cores, kernel, versions, .. } = self;
        let versions: Vec<String> =
            versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
        format!("{cores} cores ({cpu}), Linux {kernel}; {}.", versions.join(" · "))
    }

    /// Describes this machine, with the consumers' versions.
    #[must_use]
    pub fn here(consumers: BTreeMap<&'static str, String>) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpu = read("/proc/cpuinfo");
        let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let mut versions: BTreeMap<String, String> =
            consumers.into_iter().map(|(name, version)| (name.to_owned(), version)).collect();
        let mut git = Command::new("git");
        let commit = git.args(["rev-parse", "--short", "HEAD"]).current_dir(repository()).output();
        let commit = commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        versions.insert("commit".to_owned(), commit.unwrap_or_default());
        let now = Duration::from_millis(u64::try_from(unix_ms()).unwrap_or(0));
        Self {
            date: humantime::format_rfc3339_seconds(UNIX_EPOCH + now).to_string(),
            cpu: model.map_or("unknown", |(_, name)| name).to_owned(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            versions,
        }
    }
}
