//! Starts a consumer as the plan says, and waits until its HTTP interface reports the subscription.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use lab_bench::peers;
use lab_stack::{Process, free_port, get};

use crate::limits::Limits;
use crate::plan;

const READY_WITHIN: Duration = Duration::from_secs(40);
const READY_POLL: Duration = Duration::from_millis(5);

/// The program, arguments and addresses with which a consumer is started, and restarted after a
/// kill.
pub(crate) struct Recipe<'a> {
    pub(crate) spec: &'a plan::Consumer,
    pub(crate) program: PathBuf,
    pub(crate) folder: &'a Path,
    /// Address of the broker, `host:port`.
    pub(crate) mqtt: String,
    pub(crate) clickhouse_url: String,
    pub(crate) qos: u8,
    pub(crate) limits: &'a Limits,
}

/// A running consumer.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) process: Process,
    /// URL of the consumer's HTTP interface.
    pub(crate) http: String,
    began: Instant,
}

impl Recipe<'_> {
    /// Replaces the placeholders of the plan.
    fn fill(&self, template: &str, http_port: u16) -> String {
        let (host, port) = self.mqtt.rsplit_once(':').unwrap_or((&self.mqtt, "1883"));
        let values = [
            ("{mqtt_host}", host.to_owned()),
            ("{mqtt_port}", port.to_owned()),
            ("{qos}", self.qos.to_string()),
            ("{clickhouse_url}", self.clickhouse_url.clone()),
            ("{clickhouse_address}", self.clickhouse_url.trim_start_matches("http://").to_owned()),
            ("{http_port}", http_port.to_string()),
            ("{folder}", self.folder.display().to_string()),
            ("{peers}", peers::folder().display().to_string()),
        ];
        values.iter().fold(template.to_owned(), |text, (name, value)| text.replace(name, value))
    }

    fn configure(&self, command: &mut Command, arguments: &[String], http_port: u16) {
        command
            .current_dir(self.folder)
            .args(arguments.iter().map(|word| self.fill(word, http_port)));
        let environment = self.spec.environment.iter();
        command.envs(environment.map(|(name, value)| (name, self.fill(value, http_port))));
    }

    /// Runs the preparing command, such as `migrate`, if the plan has one for this consumer.
    pub(crate) fn prepare(&self) -> Result<()> {
        if self.spec.prepare.is_empty() {
            return Ok(());
        }
        let mut command = Command::new(&self.program);
        self.configure(&mut command, &self.spec.prepare, free_port()?);
        let output =
            command.output().with_context(|| format!("cannot start {}", self.program.display()))?;
        ensure!(
            output.status.success(),
            "{:?}: {}",
            self.spec.prepare,
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    pub(crate) fn start(&self) -> Result<Running> {
        let port = free_port()?;
        let mut command = self.limits.enter(&self.program);
        self.configure(&mut command, &self.spec.arguments, port);
        let began = Instant::now();
        let log = self.folder.join(format!("{}.log", self.spec.name));
        let process = Process::start(&self.spec.name, &mut command, log)?;
        Ok(Running { process, http: format!("http://127.0.0.1:{port}"), began })
    }

    /// Starts the consumer, and waits until it is subscribed. Returns the consumer, and the time
    /// from its start to its subscription.
    pub(crate) fn start_until_ready(&self) -> Result<(Running, Duration)> {
        let mut running = self.start()?;
        let url = format!("{}{}", running.http, self.spec.ready);
        loop {
            if get(&url).is_ok_and(|text| text.contains(&self.spec.ready_words)) {
                let took = running.began.elapsed();
                return Ok((running, took));
            }
            running.process.ensure_alive()?;
            ensure!(
                running.began.elapsed() < READY_WITHIN,
                "not subscribed within {READY_WITHIN:?}"
            );
            std::thread::sleep(READY_POLL);
        }
    }
}
