//! The real binary.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::clickhouse::get;
use crate::process::{Process, free_port, repository};
use crate::prom;

/// The real binary, with its configuration in the environment.
#[derive(Debug)]
pub struct Milepost {
    /// Its process.
    pub process: Process,
    http: String,
}

/// What a milepost of a test or a demo is told.
#[derive(Debug, Clone)]
pub struct Settings {
    binary: PathBuf,
    folder: PathBuf,
    variables: BTreeMap<String, String>,
}

impl Settings {
    /// `binary` against these servers; logs go to `folder`.
    #[must_use]
    pub fn new(binary: &Path, folder: &Path, mqtt_port: u16, clickhouse_url: &str) -> Self {
        let settings = Self { binary: binary.into(), folder: folder.into(), variables: BTreeMap::new() };
        settings
            .with("MQTT__URL", format!("mqtt://127.0.0.1:{mqtt_port}"))
            .with("MQTT__CLIENT_ID", "test")
            .with("CLICKHOUSE__URL", clickhouse_url)
    }

    /// Sets `MILEPOST__{key}`.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<String>) -> Self {
        self.variables.insert(format!("MILEPOST__{key}"), value.into());
        self
    }

    /// Sets a variable of another kind.
    #[must_use]
    pub fn with_variable(mut self, name: &str, value: impl Into<String>) -> Self {
        self.variables.insert(name.to_owned(), value.into());
        self
    }

    /// Loads a library before libc, compiled from a C file of the repository.
    ///
    /// # Errors
    /// It does not compile.
    pub fn with_preloaded(self, source: &str) -> Result<Self> {
        let (source, library) = (repository().join(source), self.folder.join("preloaded.so"));
        let options = ["-shared", "-fPIC", "-Wall", "-Werror", "-o"];
        let compiled = Command::new("cc").args(options).arg(&library).arg(source).arg("-ldl").status()?;
        ensure!(compiled.success(), "cc failed");
        Ok(self.with_variable("LD_PRELOAD", library.display().to_string()))
    }

    /// A command that is not started yet.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(arguments).current_dir(&self.folder).envs(&self.variables);
        command
    }

    /// Runs a command that ends by itself; its exit code and what it printed.
    pub fn call(&self, arguments: &[impl AsRef<OsStr>]) -> Result<(i32, String)> {
        let output = self.command(&[]).args(arguments).output().context("cannot start milepost")?;
        let text = [output.stdout, output.stderr].concat();
        Ok((output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned()))
    }

    /// `milepost migrate`.
    pub fn migrate(&self) -> Result<()> {
        let (code, printed) = self.call(&["migrate"])?;
        ensure!(code == 0, "milepost migrate: exit {code}: {printed}");
        Ok(())
    }

    /// `milepost run`, without waiting for anything.
    pub fn start(&self) -> Result<Milepost> {
        self.start_at(free_port()?)
    }

    /// The same, with its HTTP port where others look for it.
    pub fn start_at(&self, port: u16) -> Result<Milepost> {
        let mut command = self.command(&["run"]);
        command.env("MILEPOST__HTTP__LISTEN", format!("127.0.0.1:{port}"));
        let process = Process::start("milepost", &mut command, self.folder.join("milepost.log"))?;
        Ok(Milepost { process, http: format!("http://127.0.0.1:{port}") })
    }

    /// `milepost run`, subscribed.
    pub fn run(&self) -> Result<Milepost> {
        let mut milepost = self.start()?;
        milepost.wait_until_ready()?;
        Ok(milepost)
    }
}

impl Milepost {
    /// `host:port` of its metrics and probes.
    #[must_use]
    pub fn address(&self) -> &str {
        self.http.trim_start_matches("http://")
    }

    /// Waits until it is subscribed, and its servers are well.
    pub fn wait_until_ready(&mut self) -> Result<()> {
        let http = self.http.clone();
        self.process.wait_until("is ready", || get(&format!("{http}/readyz")).is_ok())
    }

    /// Its answer to GET `path`.
    pub fn get(&self, path: &str) -> Result<String> {
        get(&format!("{}{path}", self.http))
    }

    /// The `q` quantile of a histogram, interpolated within its bucket as Prometheus does.
    pub fn quantile(&self, name: &str, q: f64) -> Result<f64> {
        prom::quantile(&self.get("/metrics")?, &format!("milepost_{name}"), q)
            .with_context(|| format!("no histogram {name}"))
    }

    /// The sum of a metric over its labels.
    pub fn metric(&self, name: &str) -> Result<f64> {
        prom::value(&self.get("/metrics")?, &format!("milepost_{name}"))
            .with_context(|| format!("no metric {name}"))
    }

    /// SIGTERM, and its exit code.
    pub fn terminate(&mut self, within: Duration) -> Result<i32> {
        self.process.signal("TERM")?;
        Ok(self.process.wait(within)?.code().unwrap_or(-1))
    }
}
