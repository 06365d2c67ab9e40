//! Runs the real binaries, milepost and milepost-map. Both share one handle, because their
//! configuration, HTTP interface and metrics work alike.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Read;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};

use crate::clickhouse::get;
use crate::process::{Process, free_port, repository, wait_until};
use crate::prom;

/// Longest time for a command. Without a limit, a command that waits for ever would block all tests
/// and show no output.
const CALL_TIMEOUT: Duration = Duration::from_secs(600);

/// A running binary, configured by its environment.
#[derive(Debug)]
pub struct Milepost {
    pub process: Process,
    /// Port of the HTTP interface, on the loopback.
    pub port: u16,
    http: String,
    name: &'static str,
}

pub type Map = Milepost;

/// The binary and the environment with which a test or a demo starts it.
#[derive(Debug, Clone)]
pub struct Settings {
    name: &'static str,
    binary: PathBuf,
    folder: PathBuf,
    variables: BTreeMap<String, String>,
}

impl Settings {
    /// Configures milepost for these servers. Logs are written to `folder`.
    #[must_use]
    pub fn new(binary: &Path, folder: &Path, mqtt_port: u16, clickhouse_url: &str) -> Self {
        Self::for_program("milepost", binary, folder, clickhouse_url)
            .with("MQTT__URL", format!("mqtt://127.0.0.1:{mqtt_port}"))
            .with("MQTT__CLIENT_ID", "test")
    }

    /// Configures milepost-map for this ClickHouse. Logs are written to `folder`.
    #[must_use]
    pub fn map(binary: &Path, folder: &Path, clickhouse_url: &str) -> Self {
        Self::for_program("milepost-map", binary, folder, clickhouse_url)
    }

    fn for_program(name: &'static str, binary: &Path, folder: &Path, clickhouse_url: &str) -> Self {
        let settings =
            Self { name, binary: binary.into(), folder: folder.into(), variables: BTreeMap::new() };
        settings.with("CLICKHOUSE__URL", clickhouse_url)
    }

    /// Sets `MILEPOST__{key}` or, for the map, `MILEPOST_MAP__{key}`.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<String>) -> Self {
        self.variables.insert(self.variable(key), value.into());
        self
    }

    fn variable(&self, key: &str) -> String {
        format!("{}__{key}", self.name.to_uppercase().replace('-', "_"))
    }

    /// Sets an environment variable that is not a setting.
    #[must_use]
    pub fn with_variable(mut self, name: &str, value: impl Into<String>) -> Self {
        self.variables.insert(name.to_owned(), value.into());
        self
    }

    /// Loads a library before libc, compiled from a C file of the repository.
    ///
    /// # Errors
    /// The file does not compile.
    pub fn with_preloaded(self, source: &str) -> Result<Self> {
        let (source, library) = (repository().join(source), self.folder.join("preloaded.so"));
        let options = ["-shared", "-fPIC", "-Wall", "-Werror", "-o"];
        let compiled =
            Command::new("cc").args(options).arg(&library).arg(source).arg("-ldl").status()?;
        ensure!(compiled.success(), "cc failed");
        Ok(self.with_variable("LD_PRELOAD", library.display().to_string()))
    }

    /// Returns a command of the binary, not started yet.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(arguments).current_dir(&self.folder).envs(&self.variables);
        command
    }

    /// Runs a command that ends by itself. Returns its exit code and its output.
    ///
    /// # Errors
    /// The command does not end within [`CALL_TIMEOUT`]: then the command is killed, and the error
    /// contains its output.
    pub fn call(&self, arguments: &[impl AsRef<OsStr>]) -> Result<(i32, String)> {
        self.call_within(arguments, CALL_TIMEOUT)
    }

    fn call_within(
        &self,
        arguments: &[impl AsRef<OsStr>],
        within: Duration,
    ) -> Result<(i32, String)> {
        let mut command = self.command(&[]);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {}", self.name))?;
        let read_to_end = |mut from: Box<dyn Read + Send>| {
            thread::spawn(move || {
                let mut text = Vec::new();
                from.read_to_end(&mut text).map(|_| text)
            })
        };
        let stdout = read_to_end(Box::new(child.stdout.take().context("stdout is piped")?));
        let stderr = read_to_end(Box::new(child.stderr.take().context("stderr is piped")?));
        let ended = wait_until("the command ends", within, || Ok(child.try_wait()?.is_some()));
        if ended.is_err() {
            child.kill()?;
        }
        let code = child.wait()?.code().unwrap_or(-1);
        let mut text = Vec::new();
        for reader in [stdout, stderr] {
            text.append(&mut reader.join().map_err(|_| anyhow!("a reader panicked"))??);
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        let arguments: Vec<_> = arguments.iter().map(AsRef::as_ref).collect();
        ended.with_context(|| format!("{} {arguments:?}: {text}", self.name))?;
        Ok((code, text))
    }

    /// Runs `milepost migrate`.
    pub fn migrate(&self) -> Result<()> {
        let (code, printed) = self.call(&["migrate"])?;
        ensure!(code == 0, "milepost migrate: exit {code}: {printed}");
        Ok(())
    }

    /// Starts the command `run`, without waiting for anything.
    pub fn start(&self) -> Result<Milepost> {
        self.start_at(free_port()?)
    }

    /// Starts the command `run` with its HTTP interface on a given port.
    pub fn start_at(&self, port: u16) -> Result<Milepost> {
        let mut command = self.command(&["run"]);
        command.env(self.variable("HTTP__LISTEN"), format!("127.0.0.1:{port}"));
        let log = self.folder.join(format!("{}.log", self.name));
        let process = Process::start(self.name, &mut command, log)?;
        Ok(Milepost { process, port, http: format!("http://127.0.0.1:{port}"), name: self.name })
    }

    /// Starts the command `run`, and waits until its HTTP interface accepts connections. The
    /// process may not be ready yet.
    pub fn listen(&self) -> Result<Milepost> {
        let mut milepost = self.start()?;
        let port = milepost.port;
        let accepts = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
        milepost.process.wait_until("listens", accepts)?;
        Ok(milepost)
    }

    /// Starts the command `run`, and waits until it is ready: milepost has subscribed, the map has
    /// read the last position of every driver.
    pub fn run(&self) -> Result<Milepost> {
        let mut milepost = self.start()?;
        milepost.wait_until_ready()?;
        Ok(milepost)
    }
}

impl Milepost {
    /// Returns the `host:port` of metrics and probes.
    #[must_use]
    pub fn address(&self) -> &str {
        self.http.trim_start_matches("http://")
    }

    /// Returns the URL, `http://127.0.0.1:port`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.http
    }

    /// Waits until `/readyz` succeeds.
    pub fn wait_until_ready(&mut self) -> Result<()> {
        let http = self.http.clone();
        self.process.wait_until("is ready", || get(&format!("{http}/readyz")).is_ok())
    }

    /// Returns the body of a successful answer to GET `path`.
    pub fn get(&self, path: &str) -> Result<String> {
        get(&format!("{}{path}", self.http))
    }

    /// Returns the `q` quantile of a histogram, interpolated within its bucket as Prometheus does.
    pub fn quantile(&self, name: &str, q: f64) -> Result<f64> {
        prom::quantile(&self.get("/metrics")?, &self.full_name(name), q)
            .with_context(|| format!("no histogram {name}"))
    }

    /// Returns the sum of a metric over its labels.
    pub fn metric(&self, name: &str) -> Result<f64> {
        prom::value(&self.get("/metrics")?, &self.full_name(name))
            .with_context(|| format!("no metric {name}"))
    }

    /// Returns the name of a metric with the prefix of its program.
    fn full_name(&self, name: &str) -> String {
        format!("{}_{name}", self.name.replace('-', "_"))
    }

    /// Sends SIGTERM, and returns the exit code.
    pub fn terminate(&mut self, within: Duration) -> Result<i32> {
        self.process.signal("TERM")?;
        Ok(self.process.wait(within)?.code().unwrap_or(-1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timed_out_command_reports_its_output() {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings::new(Path::new("/bin/sh"), folder.path(), 1, "http://127.0.0.1:1");
        let call = |script: &str, within| settings.call_within(&["-c", script], within);
        let error = call("echo waiting; exec sleep 600", Duration::from_millis(300)).unwrap_err();
        assert!(format!("{error:#}").contains("waiting"), "{error:#}");
        let ended = call("echo out; echo err >&2; exit 3", Duration::from_secs(60)).unwrap();
        assert_eq!(ended, (3, "out\nerr\n".to_owned()));
    }
}
