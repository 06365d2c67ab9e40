//! Finds and starts the consumers that are compared, and waits until each is ready.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use lab_stack::{Process, Settings, free_port, get};

use crate::kind::Kind;
use crate::peers;

const READY_WITHIN: Duration = Duration::from_secs(30);
const READY_POLL: Duration = Duration::from_millis(5);

/// The programs of the requested consumers. For an unavailable consumer, `found` has the reason.
#[derive(Debug)]
pub(crate) struct Binaries {
    pub(crate) milepost: PathBuf,
    found: BTreeMap<Kind, Result<PathBuf, String>>,
    /// Further arguments for the floor. They plant faults that tests expect the benchmark to find.
    pub(crate) floor_arguments: Vec<String>,
}

impl Binaries {
    /// Finds the programs, and installs or builds those that are missing.
    pub(crate) fn find(milepost: PathBuf, kinds: &BTreeSet<Kind>, logs: &Path) -> Self {
        let program_of = |kind: Kind| match kind {
            Kind::Milepost => Ok(milepost.clone()),
            Kind::Floor => Ok(std::env::current_exe()?),
            Kind::Node => peers::node(logs),
            Kind::Telegraf => peers::telegraf(logs),
        };
        let find = |kind: &Kind| (*kind, program_of(*kind).map_err(|error| format!("{error:#}")));
        let found = kinds.iter().map(find).collect();
        Self { milepost, found, floor_arguments: Vec::new() }
    }

    fn path(&self, kind: Kind) -> Result<&Path, &str> {
        let found = self.found.get(&kind).ok_or("this consumer was not requested")?;
        found.as_deref().map_err(String::as_str)
    }

    /// Returns why a consumer is unavailable, or `None` if it is available.
    pub(crate) fn unavailable_reason(&self, kind: Kind) -> Option<&str> {
        self.path(kind).err()
    }

    /// Returns the version of each available program, by name. The floor is left out, because it is
    /// a part of this program.
    pub(crate) fn versions(&self) -> BTreeMap<&'static str, String> {
        let version_of = |kind: &Kind| {
            let binary = self.path(*kind).ok()?;
            let version = || peers::version(binary).unwrap_or_else(|error| error.to_string());
            match kind {
                Kind::Milepost => Some(("milepost", version())),
                Kind::Node => Some(("Node", version())),
                Kind::Telegraf => Some(("Telegraf", peers::telegraf_version().ok()?)),
                Kind::Floor => None,
            }
        };
        self.found.keys().filter_map(version_of).collect()
    }
}

/// The servers, QoS and folder that a consumer uses.
#[derive(Clone, Copy)]
pub(crate) struct RunConfig<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) mqtt_port: u16,
    pub(crate) clickhouse_url: &'a str,
    pub(crate) qos: u8,
    pub(crate) connections: Option<u32>,
}

impl RunConfig<'_> {
    /// Returns the environment variables of the peers. Each peer reads the variables that it
    /// understands.
    fn environment(&self, http_port: u16) -> [(&'static str, String); 10] {
        let Self { mqtt_port, clickhouse_url, qos, .. } = self;
        [
            ("MQTT_URL", format!("mqtt://127.0.0.1:{mqtt_port}")),
            ("MQTT_HOST", "127.0.0.1".to_owned()),
            ("MQTT_PORT", mqtt_port.to_string()),
            ("MQTT_QOS", qos.to_string()),
            ("MQTT_CLIENT_ID", "peer".to_owned()),
            ("MEMBER", "0".to_owned()),
            ("CLICKHOUSE_URL", (*clickhouse_url).to_owned()),
            ("CLICKHOUSE_ADDRESS", clickhouse_url.trim_start_matches("http://").to_owned()),
            ("HTTP_PORT", http_port.to_string()),
            ("NODE_ENV", "production".to_owned()),
        ]
    }
}

/// A running consumer.
#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) process: Process,
    /// URL of the consumer's HTTP interface.
    http: String,
    kind: Kind,
    began: Instant,
}

impl Consumer {
    pub(crate) fn start(kind: Kind, binaries: &Binaries, config: &RunConfig<'_>) -> Result<Self> {
        let began = Instant::now();
        let binary = binaries.path(kind).map_err(|reason| anyhow!("{reason}"))?;
        let RunConfig { folder, mqtt_port, clickhouse_url, qos, connections } = *config;
        if kind == Kind::Milepost {
            let mut settings = Settings::new(binary, folder, mqtt_port, clickhouse_url)
                .with("LAB__QOS", qos.to_string())
                .with("MQTT__CLIENT_ID", "milepost-0");
            if let Some(connections) = connections {
                settings = settings.with("MQTT__CONNECTIONS", connections.to_string());
            }
            let milepost = settings.start()?;
            let http = milepost.url().to_owned();
            return Ok(Self { process: milepost.process, http, kind, began });
        }
        let port = free_port()?;
        let mut command = Command::new(binary);
        command.envs(config.environment(port));
        match kind {
            Kind::Node => command.arg(peers::folder().join("consumer.js")),
            Kind::Telegraf => {
                // Without this flag, Telegraf replaces variables only in strings, but `qos` is a
                // number.
                command
                    .arg("--config")
                    .arg(peers::telegraf_configuration())
                    .arg("--non-strict-env-handling")
            }
            Kind::Milepost | Kind::Floor => command
                .args(["floor", "--broker", &format!("127.0.0.1:{mqtt_port}")])
                .args(["--clickhouse", clickhouse_url.trim_start_matches("http://")])
                .args(["--qos", &qos.to_string(), "--http-port", &port.to_string()])
                .args(&binaries.floor_arguments),
        };
        let log = folder.join(format!("{}.log", kind.name()));
        let process = Process::start(kind.name(), &mut command, log)?;
        Ok(Self { process, http: format!("http://127.0.0.1:{port}"), kind, began })
    }

    /// Waits until the consumer is subscribed, and returns the time since its start.
    pub(crate) fn wait_until_ready(&mut self) -> Result<Duration> {
        let (path, expected) = self.kind.readiness_probe();
        loop {
            if get(&format!("{}{path}", self.http)).is_ok_and(|text| text.contains(expected)) {
                return Ok(self.began.elapsed());
            }
            self.process.ensure_alive()?;
            ensure!(
                self.began.elapsed() < READY_WITHIN,
                "not ready within {READY_WITHIN:?}: {}",
                self.process.log()?
            );
            std::thread::sleep(READY_POLL);
        }
    }
}
