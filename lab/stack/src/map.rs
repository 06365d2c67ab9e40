//! The real milepost-map.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::clickhouse::get;
use crate::process::{Process, free_port};
use crate::prom;

/// What a milepost-map of a test or a demo is told.
#[derive(Debug, Clone)]
pub struct MapSettings {
    binary: PathBuf,
    folder: PathBuf,
    variables: BTreeMap<String, String>,
}

/// The real binary, with its configuration in the environment.
#[derive(Debug)]
pub struct Map {
    /// Its process.
    pub process: Process,
    /// Where it listens, on the loopback.
    pub port: u16,
}

impl MapSettings {
    /// `binary` against this ClickHouse; logs go to `folder`.
    #[must_use]
    pub fn new(binary: &Path, folder: &Path, clickhouse_url: &str) -> Self {
        let settings = Self { binary: binary.into(), folder: folder.into(), variables: BTreeMap::new() };
        settings.with("CLICKHOUSE__URL", clickhouse_url)
    }

    /// Sets `MILEPOST_MAP__{key}`.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<String>) -> Self {
        self.variables.insert(format!("MILEPOST_MAP__{key}"), value.into());
        self
    }

    /// Runs a command that ends by itself; its exit code and what it printed.
    pub fn call(&self, arguments: &[&str]) -> Result<(i32, String)> {
        let output = self.command().args(arguments).output().context("cannot start milepost-map")?;
        let text = [output.stdout, output.stderr].concat();
        Ok((output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned()))
    }

    /// `milepost-map run` on a free port, listening; perhaps it has not read anything yet.
    pub fn start(&self) -> Result<Map> {
        let port = free_port()?;
        let mut command = self.command();
        command.arg("run").env("MILEPOST_MAP__HTTP__LISTEN", format!("127.0.0.1:{port}"));
        let mut process = Process::start("milepost-map", &mut command, self.folder.join("milepost-map.log"))?;
        let is_there = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
        process.wait_until("listens", is_there)?;
        Ok(Map { process, port })
    }

    /// The same, when everybody's last position has been read.
    pub fn run(&self) -> Result<Map> {
        let mut map = self.start()?;
        let url = map.url();
        map.process.wait_until("is ready", || get(&format!("{url}/readyz")).is_ok())?;
        Ok(map)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command.current_dir(&self.folder).envs(&self.variables);
        command
    }
}

impl Map {
    /// `http://127.0.0.1:port`
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Its answer to GET `path`.
    pub fn get(&self, path: &str) -> Result<String> {
        get(&format!("{}{path}", self.url()))
    }

    /// The sum of a metric over its labels.
    pub fn metric(&self, name: &str) -> Result<f64> {
        prom::value(&self.get("/metrics")?, &format!("milepost_map_{name}"))
            .with_context(|| format!("no metric {name}"))
    }

    /// SIGTERM, and its exit code.
    pub fn terminate(&mut self, within: Duration) -> Result<i32> {
        self.process.signal("TERM")?;
        Ok(self.process.wait(within)?.code().unwrap_or(-1))
    }
}
