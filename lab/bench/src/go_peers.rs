//! Builds the peers in Go into .local/peers: their own programs at pinned versions, with the parts that the bench
//! configures and no others.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use lab_stack::{Process, repository};

use crate::peers::{self, last_line};

/// On two cores with an empty cache Telegraf takes five minutes, and downloads before that.
const BUILD_WITHIN: Duration = Duration::from_secs(30 * 60);
/// Compilers at once: linking either program takes a gigabyte as it is.
const COMPILERS: &str = "2";

/// A program in Go; its module is the folder of its name in lab/bench/peers.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    module: &'static str,
    /// What to build of the module, with the flags it needs.
    build: &'static [&'static str],
    configuration: &'static str,
    /// What it is called with besides.
    flags: &'static [&'static str],
}

/// Telegraf's own command. Its tags choose the plugins: those of telegraf.conf.
pub(crate) const TELEGRAF: Program = Program {
    name: "telegraf",
    module: "github.com/influxdata/telegraf",
    build: &[
        "-tags",
        "custom,inputs.internal,inputs.mqtt_consumer,outputs.prometheus_client,outputs.sql,parsers.json,\
         processors.defaults,processors.rename,processors.round,processors.scale",
        "github.com/influxdata/telegraf/cmd/telegraf",
    ],
    configuration: "telegraf.conf",
    // For a variable that is a number.
    flags: &["--non-strict-env-handling"],
};

/// Bento's own command line over the components that main.go names.
pub(crate) const BENTO: Program = Program {
    name: "bento",
    module: "github.com/warpstreamlabs/bento",
    build: &["."],
    configuration: "bento.yaml",
    flags: &[],
};

impl Program {
    /// What it is started with.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let file = self.file(self.configuration).into_os_string();
        ["--config".into(), file].into_iter().chain(self.flags.iter().map(OsString::from)).collect()
    }

    fn file(&self, name: &str) -> PathBuf {
        peers::folder().join(self.name).join(name)
    }

    /// As go.mod pins it.
    pub(crate) fn version(&self) -> Result<String> {
        let modules = fs::read_to_string(self.file("go.mod"))?;
        let required = modules.split_once(&format!("{} v", self.module)).context("no version in go.mod")?.1;
        Ok(required.split_whitespace().next().unwrap_or_default().to_owned())
    }

    /// The binary, built unless that was done from the same files.
    pub(crate) fn build(&self, logs: &Path) -> Result<PathBuf> {
        let mut made_of = self.build.join(" ");
        for name in ["go.mod", "go.sum", "main.go"] {
            made_of += &fs::read_to_string(self.file(name)).unwrap_or_default();
        }
        let folder = repository().join(".local/peers");
        fs::create_dir_all(&folder)?;
        let (binary, stamp) = (folder.join(self.name), folder.join(format!("{}.stamp", self.name)));
        if binary.is_file() && fs::read_to_string(&stamp).is_ok_and(|before| before == made_of) {
            return Ok(binary);
        }
        let go = Command::new("go").arg("version").output().context("no go on the PATH to build it with")?;
        ensure!(go.status.success(), "go version failed");
        eprintln!("building {} {}, once, a few minutes", self.name, self.version()?);
        let mut command = Command::new("go");
        // Without symbols a third smaller, and nothing else.
        command.args(["build", "-p", COMPILERS, "-ldflags", "-s -w", "-o"]).arg(&binary);
        command.args(self.build).current_dir(peers::folder().join(self.name));
        let mut build =
            Process::start("go build", &mut command, logs.join(format!("{}-build.log", self.name)))?;
        let status = build.wait(BUILD_WITHIN)?;
        ensure!(status.success(), "go build failed: {}", last_line(&build.log()?));
        fs::write(stamp, made_of)?;
        Ok(binary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_pinned() {
        for program in [TELEGRAF, BENTO] {
            let version = program.version().unwrap();
            assert!(version.split('.').count() == 3, "{version}");
            assert!(program.file("go.sum").is_file());
        }
    }

    #[test]
    fn telegraf_has_the_plugins_it_is_configured_with_and_no_others() {
        let configuration = fs::read_to_string(TELEGRAF.file(TELEGRAF.configuration)).unwrap();
        let tags: Vec<&str> = TELEGRAF.build[1].split(',').skip(1).collect();
        let sections = configuration.lines().filter_map(|line| line.strip_prefix("[[")?.strip_suffix("]]"));
        for section in sections {
            assert!(tags.contains(&section), "{section} is not built");
        }
        for tag in tags {
            let format = tag == "parsers.json" && configuration.contains("data_format = \"json\"");
            assert!(format || configuration.contains(&format!("[[{tag}]]")), "{tag} is not configured");
        }
    }

    #[test]
    fn both_make_the_batches_that_all_consumers_make() {
        let telegraf = fs::read_to_string(TELEGRAF.file(TELEGRAF.configuration)).unwrap();
        let bento = fs::read_to_string(BENTO.file(BENTO.configuration)).unwrap();
        for (text, settings) in [
            (&telegraf, ["metric_batch_size = 5000", "flush_interval = \"1s\""]),
            (&bento, ["count: 5000", "period: 1s"]),
        ] {
            for setting in settings.into_iter().chain(["$share/milepost/drivers/+/gps"]) {
                assert!(text.lines().any(|line| line.contains(setting)), "{setting}");
            }
        }
    }
}
