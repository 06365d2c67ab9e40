//! What it was measured on.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;

use lab_stack::{repository, unix_ms};

/// The top of a report.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Machine {
    pub(crate) date: String,
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) memory_mib: u64,
    pub(crate) kernel: String,
    pub(crate) versions: BTreeMap<String, String>,
}

impl Machine {
    /// In two sentences, with the versions of what ran.
    pub(crate) fn in_words(&self) -> String {
        let Self { cpu, cores, memory_mib, kernel, versions, .. } = self;
        let version = |(name, version): (&String, &String)| {
            format!("{name} {}", version.trim_start_matches("milepost "))
        };
        let versions: Vec<String> = versions.iter().map(version).collect();
        format!(
            "{cores} cores ({cpu}), {memory_mib} MiB, Linux {kernel}. Everything on this one machine, so only the ratios \
             carry over.\n{}.",
            versions.join(" · ")
        )
    }

    /// This one, and what runs on it.
    pub(crate) fn here(consumers: BTreeMap<&'static str, String>) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| -> String {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            line.split_once(':').map_or("unknown", |(_, value)| value.trim()).to_owned()
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let memory_kib: u64 = memory.split(' ').next().and_then(|kib| kib.parse().ok()).unwrap_or(0);
        let mut versions: BTreeMap<String, String> =
            consumers.into_iter().map(|(name, version)| (name.to_owned(), version)).collect();
        let broker = first_line(Command::new("mosquitto").arg("-h").env("PATH", path_with_sbin()));
        versions.insert("Mosquitto".to_owned(), broker.trim_start_matches("mosquitto version ").to_owned());
        let commit = ["rev-parse", "--short", "HEAD"];
        versions.insert(
            "commit".to_owned(),
            first_line(Command::new("git").args(commit).current_dir(repository())),
        );
        let lock = read(&crate::peers::folder().join("package-lock.json").display().to_string());
        if let Ok(lock) = serde_json::from_str::<serde_json::Value>(&lock) {
            for name in ["mqtt", "@clickhouse/client", "prom-client"] {
                let version = &lock["packages"][format!("node_modules/{name}")]["version"];
                versions.insert(name.to_owned(), version.as_str().unwrap_or("unknown").to_owned());
            }
        }
        let now = Duration::from_millis(u64::try_from(unix_ms()).unwrap_or(0));
        Self {
            date: humantime::format_rfc3339_seconds(UNIX_EPOCH + now).to_string(),
            cpu: field(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_mib: memory_kib >> 10,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            versions,
        }
    }
}

/// Debian keeps the broker where not every user's PATH leads.
fn path_with_sbin() -> String {
    format!("{}:/usr/sbin:/usr/local/sbin", std::env::var("PATH").unwrap_or_default())
}

fn first_line(command: &mut Command) -> String {
    let text = command.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().next().unwrap_or("unknown").to_owned()
}
