//! The scene of a fault: broker, engine, two proxies, members, and a fleet that keeps publishing.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use lab_harness::background::Background;
use lab_harness::proxy::Proxy;
use lab_harness::scripted_clickhouse::ScriptedClickHouse;
use lab_harness::tls::{Authority, TlsFront};
use lab_stack::{
    Broker, BrokerKind, ClickHouse, Milepost, Process, Settings, free_port, wait_until,
};
use loadgen::format::Format;
use loadgen::manifest::Manifest;
use loadgen::publish::Plan;

use crate::watch::Watch;

/// Longest wait for a condition. In a working system, every condition takes less time.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Number of HTTP ports for pods: the largest number of members in a row that uses `pods()`.
const PODS: usize = 4;
/// Exit code of a milepost that left data with the broker or in the spool.
pub(crate) const EXIT_INCOMPLETE: i32 = 75;
/// Password of the engine in the password row.
pub(crate) const PASSWORD: &str = "the right one";

/// Host of both servers, as in their certificates.
const HOST: &str = "127.0.0.1";

/// The setup of a row.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    /// Options of a strict-broker; `None`: Mosquitto.
    pub(crate) strict: Option<String>,
    /// Format of the fleet's messages.
    pub(crate) format: Format,
    /// Messages a second, and duration of the load in seconds.
    pub(crate) rate: u32,
    pub(crate) seconds: u32,
    pub(crate) members: u32,
    /// `true`: ClickHouse requires [`PASSWORD`].
    pub(crate) password: bool,
    /// `true`: the row restarts the broker. Mosquitto 2.0.11 restores sessions after a restart,
    /// but not their shared subscriptions: until the consumer has subscribed again, Mosquitto drops
    /// messages and answers them with "no matching subscribers", so the fleet sends them again.
    pub(crate) broker_forgets: bool,
    /// `true`: members have a spool.
    pub(crate) spool: bool,
    /// `true`: the row sets the wall clock of the members.
    pub(crate) clock: bool,
    /// `true`: the row sets the duration of the members' fsyncs.
    pub(crate) slow_disk: bool,
    /// `true`: members have fixed HTTP ports, and know the addresses of all [`PODS`] possible
    /// members.
    pub(crate) pods: bool,
    /// `true`: the broker is a cluster of two nodes. The fleet publishes to the second node, and
    /// members know both.
    pub(crate) cluster: bool,
    /// `true`: milepost uses TLS to both servers. Not with `cluster`, whose second node has no
    /// proxy.
    pub(crate) tls: bool,
    /// Further settings of milepost: `MILEPOST__` keys and values.
    pub(crate) settings: Vec<(&'static str, &'static str)>,
}

impl Setup {
    /// Returns the plan of the fleet.
    fn plan(&self, broker_port: u16, run: &str, seed: u64) -> Plan {
        Plan {
            broker: format!("127.0.0.1:{}", broker_port),
            run: run.to_owned(),
            format: self.format,
            drivers: 500,
            connections: 8,
            rate: f64::from(self.rate),
            messages: u64::from(self.rate) * u64::from(self.seconds),
            seed,
            late_share: 0.005,
            duplicate_share: 0.005,
            drain: Duration::from_secs(60),
            ..Plan::default()
        }
    }
}

/// The running servers, members and fleet of a row.
pub(crate) struct Scene {
    pub(crate) settings: Settings,
    pub(crate) members: Vec<Member>,
    pub(crate) mqtt: Proxy,
    /// Proxy between milepost and the script, which forwards to the engine.
    pub(crate) http: Proxy,
    pub(crate) script: ScriptedClickHouse,
    pub(crate) rng: fastrand::Rng,
    /// The smallest number of unacknowledged messages at the start of a fault of this row.
    pub(crate) unacked: Option<u64>,
    pub(crate) password_file: PathBuf,
    /// Number of positions that may be missing at the end: those in spool files that the row
    /// damaged, or those that the cluster's broker lost.
    pub(crate) allowed_losses: u64,
    /// Failure of milepost that the row observed, other than a loss. Such a failure makes the row
    /// fail.
    pub(crate) violation: Option<String>,
    tls: Option<Tls>,
    spool: bool,
    /// HTTP ports of the members, by member number; empty unless [`Setup::pods`] is set.
    ports: Vec<u16>,
    clock_file: PathBuf,
    disk_file: PathBuf,
    broker: Option<Broker>,
    engine: Option<ClickHouse>,
    fleet: Option<Background>,
    pub(crate) watch: Watch,
    plan: Plan,
    broker_forgets: bool,
    /// Declared last, because it must be dropped last: the processes above write into this folder.
    folder: TempDir,
}

/// Runs milepost under libfaketime, so that a row can change milepost's clock and leave the
/// machine's clock alone.
fn with_clock(settings: Settings, clock_file: &Path) -> Result<Settings> {
    let libraries = std::fs::read_dir("/usr/lib")?.filter_map(Result::ok);
    let library = libraries
        .map(|folder| folder.path().join("faketime/libfaketime.so.1"))
        .find(|path| path.exists());
    let library = library.context("libfaketime is missing: apt-get install faketime")?;
    std::fs::write(clock_file, "+0s")?;
    Ok(settings
        .with_variable("LD_PRELOAD", library.display().to_string())
        .with_variable("FAKETIME_TIMESTAMP_FILE", clock_file.display().to_string())
        .with_variable("FAKETIME_CACHE_DURATION", "1")
        .with_variable("FAKETIME_DONT_FAKE_MONOTONIC", "1"))
}

/// TLS proxies between the fault proxies and the servers.
struct Tls {
    authority: Authority,
    mqtt: TlsFront,
    http: TlsFront,
}

impl Tls {
    fn start(mqtt_port: u16, http_port: u16) -> Result<Self> {
        let authority = Authority::new("lab")?;
        let identity = authority.sign(&[HOST])?;
        let (mqtt, http) =
            (TlsFront::start(&identity, mqtt_port)?, TlsFront::start(&identity, http_port)?);
        Ok(Self { authority, mqtt, http })
    }
}

/// A member and its client id.
pub(crate) struct Member {
    pub(crate) client_id: String,
    pub(crate) milepost: Milepost,
}

impl Scene {
    pub(crate) fn begin(
        binary: &Path,
        strict_broker: &Path,
        setup: &Setup,
        run: &str,
        seed: u64,
    ) -> Result<Self> {
        let folder = lab_stack::folder()?;
        let broker = match &setup.strict {
            None => Broker::start(folder.path())?,
            Some(options) => {
                let options = options.split_whitespace().map(str::to_owned).collect();
                let kind = BrokerKind::Strict { binary: strict_broker.to_owned(), options };
                Broker::start_kind(kind, folder.path())?
            }
        };
        let engine = if setup.password {
            ClickHouse::start_with_password(folder.path(), PASSWORD)?
        } else {
            ClickHouse::start(folder.path())?
        };
        let script = ScriptedClickHouse::start(&[engine.url()])?;
        let tls = if setup.tls { Some(Tls::start(broker.port, script.port)?) } else { None };
        let (mqtt_port, http_port) =
            tls.as_ref().map_or((broker.port, script.port), |tls| (tls.mqtt.port, tls.http.port));
        let (mqtt, http) = (Proxy::start(mqtt_port)?, Proxy::start(http_port)?);
        let scheme = if setup.tls { "https" } else { "http" };
        let mut settings = Settings::new(
            binary,
            folder.path(),
            mqtt.port,
            &format!("{scheme}://{HOST}:{}", http.port),
        )
        .with("LAB__KEEP_ALIVE", "5s")
        .with("MQTT__SESSION_EXPIRY", "5m")
        .with("LAB__INSERT_TIMEOUT", "5s");
        if let Some(tls) = &tls {
            let ca_file = folder.path().join("ca.pem");
            std::fs::write(&ca_file, &tls.authority.pem)?;
            settings = settings
                .with("MQTT__URL", format!("mqtts://{HOST}:{}", mqtt.port))
                .with("MQTT__CA_FILE", ca_file.display().to_string())
                .with("CLICKHOUSE__CA_FILE", ca_file.display().to_string());
        }
        let password_file = folder.path().join("password");
        if setup.password {
            std::fs::write(&password_file, PASSWORD)?;
            settings =
                settings.with("CLICKHOUSE__PASSWORD_FILE", password_file.display().to_string());
        }
        let clock_file = folder.path().join("clock");
        if setup.clock {
            settings = with_clock(settings, &clock_file)?;
        }
        let disk = folder.path().join("disk");
        if setup.slow_disk {
            std::fs::write(&disk, "0")?;
            settings = settings
                .with_preloaded("lab/faults/src/slow_disk.c")?
                .with_variable("SLOW_DISK", disk.display().to_string());
        }
        for (key, value) in &setup.settings {
            settings = settings.with(key, *value);
        }
        let mut ports = Vec::new();
        if setup.pods {
            ports = (0..PODS).map(|_| free_port()).collect::<Result<_>>()?;
            let peers: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
            settings = settings.with("SHUTDOWN__PEERS", peers.join(","));
        }
        let mut fleet_port = broker.port;
        if let Some(second) = broker.second_port.filter(|_| setup.cluster) {
            let nodes = [mqtt.port, second].map(|port| format!("mqtt://127.0.0.1:{port}"));
            settings = settings.with("MQTT__URL", nodes.join(","));
            fleet_port = second;
        }
        settings.migrate()?;
        let mut scene = Self {
            settings,
            members: Vec::new(),
            mqtt,
            http,
            script,
            rng: fastrand::Rng::with_seed(seed),
            unacked: None,
            password_file,
            allowed_losses: 0,
            violation: None,
            tls,
            spool: setup.spool,
            ports,
            clock_file,
            disk_file: disk,
            plan: setup.plan(fleet_port, run, seed),
            broker: Some(broker),
            engine: Some(engine),
            fleet: None,
            watch: Watch::start(),
            broker_forgets: setup.broker_forgets,
            folder,
        };
        for n in 0..setup.members {
            scene.add_member(&format!("member-{n}"))?;
        }
        Ok(scene)
    }

    /// Starts the fleet, and waits until the first rows are acknowledged.
    pub(crate) fn start_fleet(&mut self) -> Result<()> {
        // The fleet publishes until `finish_fleet`, so the whole row takes place under load.
        self.fleet = Some(Background::start(self.plan.clone(), true));
        wait_until("the first rows are acknowledged", WAIT_MAX, || Ok(self.acks()? > 0.0))
    }

    /// Waits until the fleet has sent everything.
    pub(crate) fn finish_fleet(&mut self) -> Result<Manifest> {
        let manifest = self.fleet.take().context("the fleet is not running")?.finish()?;
        ensure!(
            manifest.unacked.is_empty(),
            "the broker did not acknowledge {} fixes, so no verdict is possible",
            manifest.unacked.len()
        );
        Ok(manifest)
    }

    /// Returns the number of messages for which the broker had no subscriber. Each such message
    /// means that a session was lost. Returns 0 for a broker that forgets subscriptions.
    pub(crate) fn messages_without_subscriber(&self, manifest: &Manifest) -> u64 {
        if self.broker_forgets { 0 } else { manifest.no_subscriber }
    }

    /// Starts a member, and waits until it is ready.
    pub(crate) fn add_member(&mut self, client_id: &str) -> Result<()> {
        let mut milepost = self.start(client_id)?;
        milepost.wait_until_ready()?;
        self.watch.add(&milepost);
        self.members.push(Member { client_id: client_id.to_owned(), milepost });
        Ok(())
    }

    /// Starts the process of a member. In a row with pods, the number at the end of the client id
    /// selects the HTTP port.
    fn start(&self, client_id: &str) -> Result<Milepost> {
        let settings = self.member_settings(client_id);
        let number =
            client_id.rsplit_once('-').and_then(|(_, number)| number.parse::<usize>().ok());
        match number.and_then(|number| self.ports.get(number)) {
            Some(port) => settings.start_at(*port),
            None => settings.start(),
        }
    }

    fn member_settings(&self, client_id: &str) -> Settings {
        let settings = self.settings.clone().with("MQTT__CLIENT_ID", client_id);
        if !self.spool {
            return settings;
        }
        settings.with("SPOOL__DIR", self.spool_dir(client_id).display().to_string())
    }

    /// Keeps the folder with logs and data after the scene has ended, and returns its path.
    pub(crate) fn keep(&mut self) -> PathBuf {
        self.folder.disable_cleanup(true);
        self.folder.path().to_owned()
    }

    pub(crate) fn spool_dir(&self, client_id: &str) -> PathBuf {
        self.folder.path().join(format!("spool-{client_id}"))
    }

    /// Gives both servers a certificate that expires at the beginning of `year`, for new
    /// connections.
    pub(crate) fn certify_until(&self, year: i32) -> Result<()> {
        let tls = self.tls.as_ref().context("the row does not use TLS")?;
        let identity = tls.authority.sign_until(&[HOST], year)?;
        tls.mqtt.set_certificate(&identity)?;
        tls.http.set_certificate(&identity)
    }

    /// Sets the wall clock of every member to the machine's clock plus `seconds`. The members'
    /// monotonic clock is unaffected.
    pub(crate) fn set_clock(&self, seconds: i64) -> Result<()> {
        Ok(std::fs::write(&self.clock_file, format!("{seconds:+}s"))?)
    }

    /// Delays every fsync of the members by `delay` from now on, including fsyncs that already
    /// wait.
    pub(crate) fn set_fsync_delay(&self, delay: Duration) -> Result<()> {
        Ok(std::fs::write(&self.disk_file, delay.as_millis().to_string())?)
    }

    /// Returns the port of the broker itself, without the proxy.
    pub(crate) fn broker_port(&self) -> Result<u16> {
        Ok(self.broker.as_ref().context("the broker is not running")?.port)
    }

    /// Returns the fleet's rate, in messages a second.
    pub(crate) fn rate(&self) -> f64 {
        self.plan.rate
    }

    /// Kills a member with SIGKILL, and starts a new process with the same client id at once,
    /// without waiting until it is ready.
    pub(crate) fn kill_and_restart(&mut self, n: usize) -> Result<()> {
        self.members[n].milepost.process.kill()?;
        self.restart_member(n)
    }

    /// Runs `milepost drain` for a client id. Returns the exit code and the output.
    pub(crate) fn drain(&self, client_id: &str) -> Result<(i32, String)> {
        self.member_settings("drain").call(&["drain", "--client-id", client_id])
    }

    /// Returns whether a member may end with this exit code. A pod that cannot reach its peers
    /// keeps its session and exits with [`EXIT_INCOMPLETE`]. That is not a failure: the comparison
    /// of sent and stored fixes finds any loss.
    pub(crate) fn allows_exit_code(&self, code: i32) -> bool {
        code == 0 || code == EXIT_INCOMPLETE && !self.ports.is_empty()
    }

    /// Runs a milepost command other than `run`, which must succeed.
    pub(crate) fn run_command(&self, arguments: &[&str]) -> Result<()> {
        let (code, printed) = self.settings.call(arguments)?;
        ensure!(code == 0, "{arguments:?} ended with exit code {code}: {printed}");
        Ok(())
    }

    /// Starts a long-running command of milepost in addition to the members.
    pub(crate) fn start_command(&self, command: &str) -> Result<Process> {
        let settings =
            self.settings.clone().with("HTTP__LISTEN", format!("127.0.0.1:{}", free_port()?));
        let log = self.folder.path().join(format!("{command}-{}.log", fastrand::u32(..)));
        Process::start(command, &mut settings.command(&[command]), log)
    }

    /// Writes a file into the folder of the scene, and returns its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<String> {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text)?;
        Ok(path.display().to_string())
    }

    /// Starts a new process for a member, without waiting until it is ready. Kills the old process
    /// if that still runs.
    pub(crate) fn restart_member(&mut self, n: usize) -> Result<()> {
        let client_id = self.members[n].client_id.clone();
        let milepost = self.start(&client_id)?;
        self.watch.add(&milepost);
        self.members[n].milepost = milepost;
        Ok(())
    }

    /// Returns how many messages the current members have acknowledged since they started. A member
    /// that does not answer counts as 0.
    pub(crate) fn acks(&self) -> Result<f64> {
        Ok(self
            .members
            .iter()
            .map(|member| member.milepost.metric("acks_total").unwrap_or(0.0))
            .sum())
    }

    /// Waits until every member is ready and has acknowledged another message, or has nothing left
    /// to acknowledge and the fleet has finished. Returns the time that this took.
    pub(crate) fn wait_until_recovered(&self, within: Duration) -> Result<Duration> {
        let began = Instant::now();
        let acks = |member: &Member| member.milepost.metric("acks_total").unwrap_or(0.0);
        let before: Vec<f64> = self.members.iter().map(acks).collect();
        wait_until("every member is ready and acknowledges again", within, || {
            let is_back = |(member, before): (&Member, &f64)| {
                let has_no_unacked =
                    member.milepost.metric("mqtt_unacked").is_ok_and(|unacked| unacked == 0.0);
                member.milepost.get("/readyz").is_ok()
                    && (acks(member) > *before || has_no_unacked && self.has_sent_everything())
            };
            Ok(self.members.iter().zip(&before).all(is_back))
        })?;
        Ok(began.elapsed())
    }

    /// Returns whether the fleet has sent everything, or is not running.
    fn has_sent_everything(&self) -> bool {
        self.fleet.as_ref().is_none_or(Background::is_finished)
    }

    /// Waits until the fleet has sent everything, and the broker has acknowledged all of it.
    /// Returns the number of messages.
    pub(crate) fn wait_until_sent(&self) -> Result<u64> {
        let fleet = self.fleet.as_ref().context("the fleet is not running")?;
        fleet.progress.endless.store(false, Ordering::Relaxed);
        wait_until("the fleet has sent everything", 2 * WAIT_MAX, || Ok(fleet.is_finished()))?;
        Ok(fleet.progress.acked.load(Ordering::Relaxed))
    }

    /// Pauses the fleet, or resumes it.
    pub(crate) fn pause_fleet(&self, paused: bool) -> Result<()> {
        let fleet = self.fleet.as_ref().context("the fleet is not running")?;
        fleet.progress.paused.store(paused, Ordering::Relaxed);
        Ok(())
    }

    /// Returns how many messages of the fleet the broker has acknowledged so far.
    pub(crate) fn sent(&self) -> u64 {
        self.fleet.as_ref().map_or(0, |fleet| fleet.progress.acked.load(Ordering::Relaxed))
    }

    /// Returns a metric of the first member.
    pub(crate) fn metric(&self, name: &str) -> Result<f64> {
        self.members[0].milepost.metric(name)
    }

    pub(crate) fn control_broker(&self, command: &str) -> Result<String> {
        self.broker.as_ref().context("the broker is not running")?.command(command)
    }

    /// Makes Mosquitto save its sessions. After kill -9, Mosquitto restores the saved sessions.
    pub(crate) fn snapshot_broker(&self) -> Result<()> {
        let file = self.folder.path().join("mosquitto/mosquitto.db");
        let written = || std::fs::metadata(&file).and_then(|file| file.modified()).ok();
        let before = written();
        self.broker.as_ref().context("the broker is not running")?.process().signal("USR1")?;
        wait_until("the broker has saved its sessions", WAIT_MAX, || Ok(written() != before))
    }

    pub(crate) fn kill_broker(&mut self) -> Result<()> {
        self.broker.as_mut().context("the broker is not running")?.kill()
    }

    /// Changes a setting of milepost, for members that start from now on.
    pub(crate) fn set(&mut self, key: &str, value: &str) {
        self.settings = self.settings.clone().with(key, value);
    }

    /// Waits for random times until member `n` holds unacknowledged messages: a fault without
    /// unacknowledged messages would test nothing. Records the number of these messages in
    /// [`Scene::unacked`].
    pub(crate) fn wait_for_unacked(&mut self, n: usize) -> Result<()> {
        let began = Instant::now();
        loop {
            ensure!(
                began.elapsed() < WAIT_MAX,
                "no moment with unacknowledged messages in {WAIT_MAX:?}"
            );
            sleep(Duration::from_millis(self.rng.u64(..900)));
            let unacked = self.members[n].milepost.metric("mqtt_unacked").unwrap_or(0.0);
            if unacked > 0.0 {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a count"
                )]
                let unacked = unacked as u64;
                self.unacked = Some(self.unacked.map_or(unacked, |fewest| fewest.min(unacked)));
                return Ok(());
            }
        }
    }

    pub(crate) fn stop_broker(&mut self) -> Result<()> {
        self.broker.as_mut().context("the broker is not running")?.stop()
    }

    pub(crate) fn restart_broker(&mut self) -> Result<()> {
        let broker = self.broker.take().context("the broker is not running")?;
        self.broker = Some(broker.restart()?);
        Ok(())
    }

    pub(crate) fn kill_engine(&mut self) -> Result<()> {
        self.engine.as_mut().context("the engine is not running")?.kill()
    }

    pub(crate) fn restart_engine(&mut self) -> Result<()> {
        let engine = self.engine.take().context("the engine is not running")?;
        self.engine = Some(engine.restart()?);
        Ok(())
    }

    pub(crate) fn engine(&self) -> Result<&ClickHouse> {
        self.engine.as_ref().context("the engine is not running")
    }
}
