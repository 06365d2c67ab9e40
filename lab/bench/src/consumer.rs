//! The consumers side by side: how each is started, and how it is asked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::cases::Case;
use crate::go_peers::{BENTO, Program, TELEGRAF};
use crate::peers;
use lab_stack::prom;
use lab_stack::{Process, Settings, free_port, get};

const READY_WITHIN: Duration = Duration::from_secs(30);
const NODE_MIN: u32 = 20;
const READY_POLL: Duration = Duration::from_millis(5);

/// Who is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Milepost,
    Node,
    Bun,
    NodePublished,
    BunPublished,
    Telegraf,
    Bento,
    Floor,
}

/// Where a consumer's HTTP endpoints are, and what it calls what the bench reads.
#[derive(Debug)]
struct Endpoints {
    ready: &'static str,
    /// What is in the answer when it is ready, and is not before.
    ready_says: &'static str,
    messages: &'static str,
    /// A histogram, in seconds.
    flush: Option<&'static str>,
}

impl Kind {
    /// In the order of the report.
    pub(crate) const ALL: [Self; 8] = [
        Self::Milepost,
        Self::Node,
        Self::Bun,
        Self::NodePublished,
        Self::BunPublished,
        Self::Telegraf,
        Self::Bento,
        Self::Floor,
    ];
    /// Those of `make bench`: the peers as ours, which promise the same as milepost.
    pub(crate) const QUICK: [Self; 4] = [Self::Milepost, Self::Node, Self::Bun, Self::Floor];
    /// All but the published ones, which differ from the others here in when they acknowledge alone.
    pub(crate) const WITHOUT_PUBLISHED: [Self; 6] =
        [Self::Milepost, Self::Node, Self::Bun, Self::Telegraf, Self::Bento, Self::Floor];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Milepost => "milepost",
            Self::Node => "node",
            Self::Bun => "bun",
            Self::NodePublished => "node-published",
            Self::BunPublished => "bun-published",
            Self::Telegraf => "telegraf",
            Self::Bento => "bento",
            Self::Floor => "floor",
        }
    }

    /// What it is, and when it acknowledges at QoS 1.
    pub(crate) fn describe(self) -> &'static str {
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
            Self::Telegraf => {
                "Telegraf, mqtt_consumer → three processors that make the table's integers → sql (clickhouse-go, Native), \
                 MQTT 3.1.1; PUBACK after the insert"
            }
            Self::Bento => {
                "Bento, mqtt → sql_insert (clickhouse-go, Native), MQTT 3.1.1; PUBACK on receipt, which no setting \
                 changes (a crash loses what is not inserted)"
            }
            Self::Floor => {
                "the least a consumer could cost: no validation, no retries, no reconnects, no session kept; PUBACK after the insert"
            }
        }
    }

    /// When it acknowledges at QoS 1: the end of its description.
    pub(crate) fn acknowledges(self) -> &'static str {
        let what = self.describe();
        what.find("PUBACK").map_or("not said", |at| &what[at..])
    }

    fn endpoints(self) -> Endpoints {
        let ours =
            |messages, flush| Endpoints { ready: "/readyz", ready_says: "", messages, flush: Some(flush) };
        match self {
            Self::Milepost => ours("milepost_messages_received_total", "milepost_insert_duration_seconds"),
            Self::Node | Self::Bun | Self::NodePublished | Self::BunPublished => {
                ours("peer_messages_received_total", "peer_insert_duration_seconds")
            }
            Self::Floor => ours("floor_messages_received_total", "floor_insert_duration_seconds"),
            // Its inputs count from when all of them have started, and mqtt_consumer has with its SUBACK.
            Self::Telegraf => Endpoints {
                ready: "/metrics",
                ready_says: "internal_mqtt_consumer_messages_received",
                messages: "internal_mqtt_consumer_messages_received",
                flush: None,
            },
            Self::Bento => Endpoints {
                ready: "/ready",
                ready_says: "",
                messages: "input_received",
                flush: Some("output_latency_ns"),
            },
        }
    }
}

/// What the consumers run on, or why one cannot be had.
#[derive(Debug)]
pub(crate) struct Binaries {
    pub(crate) milepost: PathBuf,
    laboratory: PathBuf,
    node: Result<PathBuf, String>,
    bun: Result<PathBuf, String>,
    telegraf: Result<PathBuf, String>,
    bento: Result<PathBuf, String>,
    /// Beyond the usual arguments of the floor, for the bench's test of itself.
    pub(crate) floor_arguments: Vec<String>,
}

impl Binaries {
    /// Finds them, and installs what the cases need.
    pub(crate) fn find(milepost: PathBuf, cases: &[Case], logs: &Path) -> Result<Self> {
        let wanted = |kind| cases.iter().any(|case| case.kinds.contains(&kind));
        let in_javascript = [Kind::Node, Kind::Bun, Kind::NodePublished, Kind::BunPublished];
        let (node, bun) = if in_javascript.into_iter().any(wanted) {
            find_peers(logs)
        } else {
            (Err(String::new()), Err(String::new()))
        };
        let in_go = |kind, program: &Program| {
            if wanted(kind) {
                program.build(logs).map_err(|error| format!("{error:#}"))
            } else {
                Err(String::new())
            }
        };
        let (telegraf, bento) = (in_go(Kind::Telegraf, &TELEGRAF), in_go(Kind::Bento, &BENTO));
        let laboratory = std::env::current_exe()?;
        Ok(Self { milepost, laboratory, node, bun, telegraf, bento, floor_arguments: Vec::new() })
    }

    /// Why a consumer cannot be had.
    pub(crate) fn missing(&self, kind: Kind) -> Option<&str> {
        match kind {
            Kind::Milepost | Kind::Floor => None,
            Kind::Node | Kind::NodePublished => self.node.as_ref().err().map(String::as_str),
            Kind::Bun | Kind::BunPublished => self.bun.as_ref().err().map(String::as_str),
            Kind::Telegraf => self.telegraf.as_ref().err().map(String::as_str),
            Kind::Bento => self.bento.as_ref().err().map(String::as_str),
        }
    }

    /// Name and version of each.
    pub(crate) fn versions(&self) -> BTreeMap<&'static str, String> {
        let version = |binary: &Path| peers::version(binary).unwrap_or_else(|error| error.to_string());
        let mut versions = BTreeMap::from([("milepost", version(&self.milepost))]);
        for (name, binary) in [("Node", &self.node), ("Bun", &self.bun)] {
            if let Ok(binary) = binary {
                versions.insert(name, version(binary));
            }
        }
        for (name, binary, program) in [("Telegraf", &self.telegraf, TELEGRAF), ("Bento", &self.bento, BENTO)]
        {
            if let Some(version) = binary.is_ok().then(|| program.version().ok()).flatten() {
                versions.insert(name, version);
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
pub(crate) struct Place<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) mqtt_port: u16,
    pub(crate) clickhouse_url: &'a str,
    pub(crate) qos: u8,
    /// Number of the member in its group.
    pub(crate) member: u32,
}

/// A running consumer.
#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) process: Process,
    http: String,
    endpoints: Endpoints,
    began: Instant,
}

impl Consumer {
    pub(crate) fn start(kind: Kind, binaries: &Binaries, place: &Place<'_>) -> Result<Self> {
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
            Kind::Telegraf => in_go(&TELEGRAF, &binaries.telegraf, place)?,
            Kind::Bento => in_go(&BENTO, &binaries.bento, place)?,
            Kind::Floor => floor(binaries, place)?,
        };
        Ok(Self { process, http, endpoints: kind.endpoints(), began })
    }

    /// Waits until it is subscribed; since its start.
    pub(crate) fn wait_until_ready(&mut self) -> Result<Duration> {
        loop {
            let said = get(&format!("{}{}", self.http, self.endpoints.ready));
            if said.is_ok_and(|text| text.contains(self.endpoints.ready_says)) {
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
    pub(crate) fn scrape(&self) -> Result<Scrape> {
        let text = get(&format!("{}/metrics", self.http))?;
        let Endpoints { flush, messages, .. } = self.endpoints;
        let ms = |q: f64| prom::quantile(&text, flush?, q).map(|seconds| seconds * 1e3);
        Ok(Scrape {
            messages: prom::value(&text, messages).with_context(|| format!("no {messages}"))?,
            flush_ms: ms(0.5).zip(ms(0.99)),
        })
    }
}

/// A consumer's own figures.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scrape {
    pub(crate) messages: f64,
    pub(crate) flush_ms: Option<(f64, f64)>,
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

fn in_go(
    program: &Program,
    binary: &Result<PathBuf, String>,
    place: &Place<'_>,
) -> Result<(Process, String)> {
    let binary = binary.as_ref().map_err(|why| anyhow::anyhow!("{why}"))?;
    let port = free_port()?;
    let mut command = Command::new(binary);
    command
        .args(program.arguments())
        .env("MQTT_PORT", place.mqtt_port.to_string())
        .env("MQTT_QOS", place.qos.to_string())
        .env("MEMBER", place.member.to_string())
        .env("CLICKHOUSE_ADDRESS", place.clickhouse_url.trim_start_matches("http://"))
        .env("HTTP_PORT", port.to_string());
    let process =
        Process::start(program.name, &mut command, place.folder.join(format!("{}.log", program.name)))?;
    Ok((process, format!("http://127.0.0.1:{port}")))
}

fn floor(binaries: &Binaries, place: &Place<'_>) -> Result<(Process, String)> {
    let port = free_port()?;
    let mut command = Command::new(&binaries.laboratory);
    command.arg("floor").args(["--broker", &format!("127.0.0.1:{}", place.mqtt_port)]);
    command.args(["--clickhouse", place.clickhouse_url.trim_start_matches("http://")]);
    command.args(["--qos", &place.qos.to_string(), "--http-port", &port.to_string()]);
    command.args(&binaries.floor_arguments);
    let process = Process::start("floor", &mut command, place.folder.join("floor.log"))?;
    Ok((process, format!("http://127.0.0.1:{port}")))
}
