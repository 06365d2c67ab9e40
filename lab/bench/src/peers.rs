//! Installs the consumers that milepost is compared with: the Node packages of the lock file, and
//! the pinned version of Telegraf.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use lab_stack::{Process, repository};

const NODE_MIN: u32 = 20;
/// Longest time for an installation. With an empty cache, Go needs five minutes on two cores to
/// build Telegraf, in addition to the downloads.
const INSTALL_WITHIN: Duration = Duration::from_secs(30 * 60);
/// Build tags that select the plugins of telegraf.conf.
const TELEGRAF_TAGS: &str = "custom,inputs.internal,inputs.mqtt_consumer,outputs.prometheus_client,outputs.sql,\
    parsers.json,processors.defaults,processors.rename,processors.round,processors.scale";

/// Returns the folder with the files of these consumers.
#[must_use]
pub fn folder() -> PathBuf {
    repository().join("lab/bench/peers")
}

/// Returns the path of Telegraf's configuration.
#[must_use]
pub fn telegraf_configuration() -> PathBuf {
    folder().join("telegraf/telegraf.conf")
}

/// Returns Node's binary. Runs `npm ci` unless it has run with the current lock file.
pub fn node(logs: &Path) -> Result<PathBuf> {
    let node = PathBuf::from("node");
    let version = version(&node)?;
    let major =
        version.trim_start_matches('v').split('.').next().and_then(|major| major.parse().ok());
    ensure!(
        major >= Some(NODE_MIN),
        "Node {version}: @clickhouse/client needs {NODE_MIN} or newer"
    );
    let lock = fs::read_to_string(folder().join("package-lock.json"))?;
    let stamp = folder().join("node_modules/installed-lock.json");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == lock) {
        return Ok(node);
    }
    eprintln!("running npm ci in {} (only once)", folder().display());
    let mut command = Command::new("npm");
    command.arg("ci").current_dir(folder());
    install("npm ci", &mut command, logs.join("npm.log"))?;
    fs::write(stamp, lock)?;
    Ok(node)
}

/// Returns the Bun binary that runs on this machine. `npm ci` may install several binaries, one per
/// libc.
pub fn bun(logs: &Path) -> Result<PathBuf> {
    node(logs)?;
    let packages =
        fs::read_dir(folder().join("node_modules/@oven")).context("npm did not install Bun")?;
    let mut binaries = packages.flatten().map(|package| package.path().join("bin/bun"));
    binaries
        .find(|binary| version(binary).is_ok())
        .context("none of the Bun binaries that npm installed runs on this machine")
}

/// Returns Telegraf's binary. Builds the binary unless it was built from the current go.mod. The
/// build uses a copy of go.mod, to which Go adds the indirect dependencies. There is no go.sum, so
/// Go verifies the modules with its checksum database.
pub fn telegraf(logs: &Path) -> Result<PathBuf> {
    let modules = fs::read_to_string(folder().join("telegraf/go.mod"))?;
    let (build, inputs) =
        (repository().join(".local/peers/telegraf"), modules.clone() + TELEGRAF_TAGS);
    let (binary, stamp) = (build.join("telegraf"), build.join("stamp"));
    if binary.is_file() && fs::read_to_string(&stamp).is_ok_and(|built_from| built_from == inputs) {
        return Ok(binary);
    }
    Command::new("go")
        .arg("version")
        .output()
        .context("cannot build Telegraf: no go on the PATH")?;
    eprintln!("building Telegraf {} (only once; takes a few minutes)", telegraf_version()?);
    fs::create_dir_all(&build)?;
    fs::write(build.join("go.mod"), modules)?;
    let mut command = Command::new("go");
    // Run two compilers at a time, because linking alone takes a gigabyte. Omit the symbols: the
    // binary is then a third smaller.
    command.args([
        "build",
        "-mod=mod",
        "-p",
        "2",
        "-ldflags",
        "-s -w",
        "-tags",
        TELEGRAF_TAGS,
        "-o",
    ]);
    command.arg(&binary).arg("github.com/influxdata/telegraf/cmd/telegraf").current_dir(&build);
    install("go build", &mut command, logs.join("telegraf-build.log"))?;
    fs::write(stamp, inputs)?;
    Ok(binary)
}

/// Returns the version of Telegraf that go.mod pins.
pub fn telegraf_version() -> Result<String> {
    let modules = fs::read_to_string(folder().join("telegraf/go.mod"))?;
    let version = modules.split_whitespace().last().context("no version in go.mod")?;
    Ok(version.to_owned())
}

fn install(name: &str, command: &mut Command, log: PathBuf) -> Result<()> {
    let mut process = Process::start(name, command, log)?;
    let status = process.wait(INSTALL_WITHIN)?;
    let text = process.log()?;
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no output");
    ensure!(status.success(), "{name} failed: {last}");
    Ok(())
}

/// Returns the output of a program's `--version`.
pub fn version(binary: &Path) -> Result<String> {
    let output = Command::new(binary)
        .arg("--version")
        .output()
        .with_context(|| format!("cannot run {}", binary.display()))?;
    ensure!(output.status.success(), "{} --version failed", binary.display());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn telegraf_is_built_with_exactly_its_configured_plugins() {
        let configuration = fs::read_to_string(telegraf_configuration()).unwrap();
        let tags: Vec<&str> = TELEGRAF_TAGS.split(',').skip(1).collect();
        let sections =
            configuration.lines().filter_map(|line| line.strip_prefix("[[")?.strip_suffix("]]"));
        for section in sections {
            assert!(tags.contains(&section), "{section} is not built");
        }
        for tag in tags {
            let is_json_parser =
                tag == "parsers.json" && configuration.contains("data_format = \"json\"");
            assert!(
                is_json_parser || configuration.contains(&format!("[[{tag}]]")),
                "{tag} is not configured"
            );
        }
        for setting in
            ["metric_batch_size = 5000", "flush_interval = \"1s\"", "$share/milepost/drivers/+/gps"]
        {
            assert!(
                configuration.contains(setting),
                "telegraf.conf lacks {setting}, which every consumer has"
            );
        }
        assert!(telegraf_version().unwrap().starts_with('v'));
    }
}
