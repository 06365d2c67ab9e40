//! The consumers side by side: how each is started, and how it is asked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::cases::Case;
use super::peers;
use crate::prom;
use crate::stack::{Process, Settings, free_port, get};

const READY_WITHIN: Duration = Duration::from_secs(30);
const NODE_MIN: u32 = 20;
const READY_POLL: Duration = Duration::from_millis(5);

/// Who is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Milepost,
    Node,
    Bun,
    NodePublished,
    BunPublished,
    Floor,
}

impl Kind {
    /// In the order of the report.
    pub(super) const ALL: [Self; 6] =
        [Self::Milepost, Self::Node, Self::Bun, Self::NodePublished, Self::BunPublished, Self::Floor];
    /// Those of `make bench`: the peers as ours, which promise the same as milepost.
    pub(super) const FOUR: [Self; 4] = [Self::Milepost, Self::Node, Self::Bun, Self::Floor];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Milepost => "milepost",
            Self::Node => "node",
            Self::Bun => "bun",
            Self::NodePublished => "node-published",
            Self::BunPublished => "bun-published",
            Self::Floor => "floor",
        }
    }

    /// What it is, and when it acknowledges at QoS 1.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::Milepost => "this project, its defaults; PUBACK after the durable insert, in order",
            Self::Node => {
                "mqtt.js, @clickhouse/client, prom-client on Node, as ours: async_insert off, PUBACK after the insert"
            }
            Self::Bun => "the same on Bun, metrics by Bun.serve; PUBACK after the insert",
            Self::NodePublished => {
                "the same on Node as published: async_insert on, PUBACK on receipt (a crash loses a batch)"
            }
            Self::BunPublished => "the same on Bun as published: PUBACK on receipt (a crash loses a batch)",
            Self::Floor => {
                "the least a consumer could cost: no validation, no retries, no reconnects; PUBACK after the insert"
            }
        }
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::Milepost => "milepost",
            Self::Node | Self::Bun | Self::NodePublished | Self::BunPublished => "peer",
            Self::Floor => "floor",
        }
    }
}

/// What the consumers run on, or why one cannot be had.
#[derive(Debug)]
pub(super) struct Binaries {
    pub(super) milepost: PathBuf,
    loadgen: PathBuf,
    node: Result<PathBuf, String>,
    bun: Result<PathBuf, String>,
    /// Beyond the usual arguments of the floor, for the bench's test of itself.
    pub(super) floor_arguments: Vec<String>,
}

impl Binaries {
    /// Finds them, and installs what the cases need.
    pub(super) fn find(milepost: PathBuf, cases: &[Case], logs: &Path) -> Result<Self> {
        let peers_wanted = cases.iter().flat_map(|case| &case.kinds).any(|kind| kind.prefix() == "peer");
        let (node, bun) =
            if peers_wanted { find_peers(logs) } else { (Err(String::new()), Err(String::new())) };
        let loadgen = std::env::current_exe()?;
        Ok(Self { milepost, loadgen, node, bun, floor_arguments: Vec::new() })
    }

    /// Why a consumer cannot be had.
    pub(super) fn missing(&self, kind: Kind) -> Option<&str> {
        match kind {
            Kind::Milepost | Kind::Floor => None,
            Kind::Node | Kind::NodePublished => self.node.as_ref().err().map(String::as_str),
            Kind::Bun | Kind::BunPublished => self.bun.as_ref().err().map(String::as_str),
        }
    }

    /// Name and version of each.
    pub(super) fn versions(&self) -> BTreeMap<&'static str, String> {
        let version = |binary: &Path| peers::version(binary).unwrap_or_else(|error| error.to_string());
        let mut versions = BTreeMap::from([("milepost", version(&self.milepost))]);
        for (name, binary) in [("Node", &self.node), ("Bun", &self.bun)] {
            if let Ok(binary) = binary {
                versions.insert(name, version(binary));
            }
        }
        versions
    }
}

fn find_peers(logs: &Path) -> (Result<PathBuf, String>, Result<PathBuf, String>) {
    let node = PathBuf::from("node");
    let installed = peers::version(&node).and_then(|version| {
        let major = version.trim_start_matches('v').split('.').next().and_then(|major| major.parse().ok());
        ensure!(major >= Some(NODE_MIN), "Node {version}: @clickhouse/client wants {NODE_MIN} or newer");
        peers::install(logs)
    });
    match installed {
        Ok(()) => (Ok(node), peers::bun().map_err(|error| format!("{error:#}"))),
        Err(error) => (Err(format!("{error:#}")), Err(format!("{error:#}"))),
    }
}

/// Where a consumer reads and writes.
pub(super) struct Place<'a> {
    pub(super) folder: &'a Path,
    pub(super) mqtt_port: u16,
    pub(super) clickhouse_url: &'a str,
    pub(super) qos: u8,
    /// Number of the member in its group.
    pub(super) member: u32,
}

/// A running consumer.
#[derive(Debug)]
pub(super) struct Consumer {
    pub(super) process: Process,
    http: String,
    prefix: &'static str,
    began: Instant,
}

impl Consumer {
    pub(super) fn start(kind: Kind, binaries: &Binaries, place: &Place<'_>) -> Result<Self> {
        let began = Instant::now();
        let (process, http) = match kind {
            Kind::Milepost => {
                let settings =
                    Settings::new(&binaries.milepost, place.folder, place.mqtt_port, place.clickhouse_url)
                        .with("MQTT__QOS", place.qos.to_string())
                        .with("MQTT__CLIENT_ID", format!("milepost-{}", place.member));
                let milepost = settings.start()?;
                let http = format!("http://{}", milepost.address());
                (milepost.process, http)
            }
            Kind::Node => peer(&binaries.node, "ours", place)?,
            Kind::NodePublished => peer(&binaries.node, "published", place)?,
            Kind::Bun => peer(&binaries.bun, "ours", place)?,
            Kind::BunPublished => peer(&binaries.bun, "published", place)?,
            Kind::Floor => floor(binaries, place)?,
        };
        Ok(Self { process, http, prefix: kind.prefix(), began })
    }

    /// Waits until it is subscribed; since its start.
    pub(super) fn wait_until_ready(&mut self) -> Result<Duration> {
        loop {
            if get(&format!("{}/readyz", self.http)).is_ok() {
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

    /// What it says about itself.
    pub(super) fn scrape(&self) -> Result<Scrape> {
        let text = get(&format!("{}/metrics", self.http))?;
        let (flush, messages) = (
            format!("{}_insert_duration_seconds", self.prefix),
            format!("{}_messages_received_total", self.prefix),
        );
        let ms = |q: f64| prom::quantile(&text, &flush, q).map(|seconds| seconds * 1e3);
        Ok(Scrape {
            messages: prom::value(&text, &messages).with_context(|| format!("no {messages}"))?,
            flush_ms: ms(0.5).zip(ms(0.99)),
        })
    }
}

/// A consumer's own figures.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scrape {
    pub(super) messages: f64,
    pub(super) flush_ms: Option<(f64, f64)>,
}

fn peer(runtime: &Result<PathBuf, String>, mode: &str, place: &Place<'_>) -> Result<(Process, String)> {
    let runtime = runtime.as_ref().map_err(|why| anyhow::anyhow!("{why}"))?;
    let port = free_port()?;
    let mut command = Command::new(runtime);
    command
        .arg(peers::folder().join("consumer.js"))
        .env("MODE", mode)
        .env("MQTT_URL", format!("mqtt://127.0.0.1:{}", place.mqtt_port))
        .env("MQTT_CLIENT_ID", format!("peer-{}", place.member))
        .env("MQTT_QOS", place.qos.to_string())
        .env("CLICKHOUSE_URL", place.clickhouse_url)
        .env("HTTP_PORT", port.to_string())
        .env("NODE_ENV", "production");
    let process = Process::start("peer", &mut command, place.folder.join("peer.log"))?;
    Ok((process, format!("http://127.0.0.1:{port}")))
}

fn floor(binaries: &Binaries, place: &Place<'_>) -> Result<(Process, String)> {
    let port = free_port()?;
    let mut command = Command::new(&binaries.loadgen);
    command.arg("floor").args(["--broker", &format!("127.0.0.1:{}", place.mqtt_port)]);
    command.args(["--clickhouse", place.clickhouse_url.trim_start_matches("http://")]);
    command.args(["--qos", &place.qos.to_string(), "--http-port", &port.to_string()]);
    command.args(&binaries.floor_arguments);
    let process = Process::start("floor", &mut command, place.folder.join("floor.log"))?;
    Ok((process, format!("http://127.0.0.1:{port}")))
}
