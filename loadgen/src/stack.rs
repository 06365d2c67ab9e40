//! Starts and kills the real parts on free ports of the loopback: Mosquitto, the ClickHouse engine, milepost.
//! For the demo, the tests and the fault harness. Whatever was started dies with its handle.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::procfs;
use crate::prom;
use crate::verify::Store;

const READY_WITHIN: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);
/// Below those which the system gives to whoever connects or asks for any: it may take minutes until ours is bound.
const PORTS: Range<u16> = 10_000..32_000;
const TRIES: usize = 1_000;

/// A port nobody listens on now.
///
/// # Errors
/// The system has none left.
pub fn free_port() -> Result<u16> {
    // Two who ask at once must not get the same one, before either has bound it.
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    for _ in 0..TRIES {
        let port = fastrand::u16(PORTS);
        let is_free = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        if is_free && GIVEN.lock().unwrap_or_else(PoisonError::into_inner).insert(port) {
            return Ok(port);
        }
    }
    bail!("none of {TRIES} ports was free")
}

/// Waits until `condition` holds, with a bound.
///
/// # Errors
/// It did not within the bound, or it failed.
pub fn wait_until(what: &str, within: Duration, mut condition: impl FnMut() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while !condition().with_context(|| format!("while waiting until {what}"))? {
        ensure!(began.elapsed() < within, "waited {within:?}, but never: {what}");
        sleep(POLL);
    }
    Ok(())
}

/// The checkout that holds `deploy/local`.
#[must_use]
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("loadgen is a folder of the checkout")
}

/// Ids of the children that live, for [`kill_all`].
static LIVING: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Kills every child, for an interrupt that leaves no time to drop their handles.
pub fn kill_all() {
    for pid in LIVING.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        let _ = Command::new("kill").arg("-KILL").arg(pid.to_string()).status();
    }
}

/// Runs `work` on a thread of its own; an interrupt kills every child and ends it early.
///
/// # Errors
/// The work's, or the interrupt.
pub fn unless_interrupted<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let outcome = runtime.block_on(async {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        tokio::select! {
            outcome = tokio::task::spawn_blocking(work) => outcome.context("a thread died")?,
            _ = tokio::signal::ctrl_c() => bail!("interrupted; nothing is left running"),
            _ = terminate.recv() => bail!("terminated; nothing is left running"),
        }
    });
    kill_all();
    runtime.shutdown_background();
    outcome
}

/// A child process with its log; killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts it; what it prints goes to the end of `log`.
    ///
    /// # Errors
    /// There is no such program, or the log cannot be written.
    pub fn start(name: &str, command: &mut Command, log: PathBuf) -> Result<Self> {
        let file = File::options().create(true).append(true).open(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        LIVING.lock().unwrap_or_else(PoisonError::into_inner).insert(child.id());
        Ok(Self { name: name.to_owned(), child, log })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything it has written so far.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn log(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&std::fs::read(&self.log)?).into_owned())
    }

    /// kill -9.
    ///
    /// # Errors
    /// The system refuses.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// kill -9, to it and then to all that it started, which would live on.
    ///
    /// # Errors
    /// The system refuses.
    pub fn kill_tree(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(()); // its number may be another's by now
        }
        let others = procfs::descendants(self.pid());
        self.kill()?;
        if !others.is_empty() {
            // Those that ended with their parent are no longer there to be killed.
            Command::new("kill").arg("-KILL").args(others.iter().map(u32::to_string)).output()?;
        }
        Ok(())
    }

    /// Sends a signal by name: `TERM`, `STOP`, …
    ///
    /// # Errors
    /// The process is gone.
    pub fn signal(&self, name: &str) -> Result<()> {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.pid().to_string()).status()?;
        ensure!(status.success(), "kill -{name} {} failed", self.name);
        Ok(())
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It did not end within the bound.
    pub fn wait(&mut self, within: Duration) -> Result<ExitStatus> {
        let mut status = None;
        wait_until(&format!("{} ends", self.name), within, || {
            status = self.child.try_wait()?;
            Ok(status.is_some())
        })?;
        status.context("it has ended")
    }

    /// Fails with the end of its log if it has ended.
    ///
    /// # Errors
    /// It has ended.
    pub fn ensure_alive(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            let log = self.log()?;
            let last = log
                .lines()
                .rev()
                .take(3)
                .collect::<Vec<_>>()
                .into_iter()
                .rev()
                .collect::<Vec<_>>()
                .join(" | ");
            bail!("{} ended ({status}): {last}", self.name);
        }
        Ok(())
    }

    fn wait_until(&mut self, what: &str, mut condition: impl FnMut() -> bool) -> Result<()> {
        wait_until(&format!("{} {what}", self.name), READY_WITHIN, || {
            self.ensure_alive()?;
            Ok(condition())
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        LIVING.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.pid());
    }
}

/// One of deploy/local's programs, which run in the foreground.
fn local_program(program: &str, folder: &Path) -> Command {
    let mut command = Command::new(repository().join("deploy/local").join(program));
    command.env("STATE_DIR", folder);
    command
}

fn accepts(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok()
}

/// A real broker on a port of its own.
#[derive(Debug)]
pub struct Broker {
    process: Process,
    folder: PathBuf,
    kind: BrokerKind,
    /// Where it listens.
    pub port: u16,
    /// Where a strict-broker takes commands.
    control: Option<u16>,
}

/// Which broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BrokerKind {
    /// Mosquitto with our configuration; sessions and queues survive [`Broker::restart`].
    Mosquitto,
    /// `strict-broker`, which keeps to its window, and has the manners it is asked for. Its sessions survive
    /// [`Broker::stop`]; after kill -9 they are as they were at the last `snapshot`, if there was one.
    Strict {
        /// The binary.
        binary: PathBuf,
        /// Messages it has in flight to a client.
        window: u16,
        /// Whether CONNACK says so.
        announced: bool,
        /// Messages it keeps for a client beyond the window; then it drops the oldest.
        queue: u32,
        /// What else it is asked for; see `strict-broker --help`.
        options: Vec<String>,
    },
}

impl Broker {
    /// Starts Mosquitto with its state in `folder`, and waits until it answers.
    ///
    /// # Errors
    /// It is not installed, or does not start.
    pub fn start(folder: &Path) -> Result<Self> {
        Self::launch(BrokerKind::Mosquitto, folder, free_port()?)
    }

    /// Starts a broker of this kind.
    ///
    /// # Errors
    /// It is not installed or built, or does not start.
    pub fn start_kind(kind: BrokerKind, folder: &Path) -> Result<Self> {
        Self::launch(kind, folder, free_port()?)
    }

    fn launch(kind: BrokerKind, folder: &Path, port: u16) -> Result<Self> {
        let control = matches!(kind, BrokerKind::Strict { .. }).then(free_port).transpose()?;
        let mut command = match &kind {
            BrokerKind::Mosquitto => {
                let mut command = local_program("broker", folder);
                command.env("MQTT_PORT", port.to_string());
                command
            }
            BrokerKind::Strict { binary, window, announced, queue, options } => {
                let mut command = Command::new(binary);
                command.args(["--port", &port.to_string(), "--max-inflight", &window.to_string()]);
                command.args(["--max-queue", &queue.to_string()]);
                command.args(["--announce", if *announced { "true" } else { "false" }]);
                command.args(control.iter().flat_map(|port| ["--control".to_owned(), port.to_string()]));
                command.arg("--snapshot").arg(folder.join("sessions")).args(options);
                command
            }
        };
        let process = Process::start("broker", &mut command, folder.join("broker.log"))?;
        let mut broker = Self { process, folder: folder.into(), kind, port, control };
        broker.process.wait_until("answers", || accepts(port))?;
        Ok(broker)
    }

    /// Stops it in the regular way, in which Mosquitto writes its state to disk.
    ///
    /// # Errors
    /// It does not end.
    pub fn stop(&mut self) -> Result<()> {
        self.process.signal("TERM")?;
        self.process.wait(Duration::from_secs(30)).map(drop)
    }

    /// Gives a strict-broker a command, and returns what it says; `strict-broker/src/control.rs` lists them.
    ///
    /// # Errors
    /// It is another broker, or does not understand.
    pub fn tell(&self, command: &str) -> Result<String> {
        let port = self.control.context("this broker takes no commands")?;
        let mut stream = BufReader::new(TcpStream::connect((Ipv4Addr::LOCALHOST, port))?);
        writeln!(stream.get_mut(), "{command}")?;
        let mut said = String::new();
        loop {
            let mut line = String::new();
            ensure!(stream.read_line(&mut line)? > 0, "{command}: the broker has ended");
            ensure!(!line.starts_with("error"), "{command}: {}", line.trim_end());
            if line == "ok\n" {
                return Ok(said);
            }
            said.push_str(&line);
        }
    }

    /// Starts it again on the same port with the same state.
    ///
    /// # Errors
    /// It does not start.
    pub fn restart(self) -> Result<Self> {
        let Self { process, folder, kind, port, control: _ } = self;
        drop(process);
        Self::launch(kind, &folder, port)
    }
}

/// The ClickHouse engine; data survives [`kill`](Self::kill) and [`restart`](Self::restart).
#[derive(Debug)]
pub struct ClickHouse {
    process: Process,
    folder: PathBuf,
    /// Where it listens.
    pub port: u16,
    password: Option<String>,
}

impl ClickHouse {
    /// Starts it with its data in `folder`, and waits until it answers.
    ///
    /// # Errors
    /// It is not installed, or does not start.
    pub fn start(folder: &Path) -> Result<Self> {
        Self::launch(folder, free_port()?, None)
    }

    /// The same, for a user "default" with a password.
    ///
    /// # Errors
    /// It is not installed, or does not start.
    pub fn start_with_password(folder: &Path, password: &str) -> Result<Self> {
        Self::launch(folder, free_port()?, Some(password.to_owned()))
    }

    fn launch(folder: &Path, port: u16, password: Option<String>) -> Result<Self> {
        let mut command = local_program("clickhouse", folder);
        command.env("CLICKHOUSE_PORT", port.to_string()).env("CLICKHOUSE_USER", "default");
        command.env("CLICKHOUSE_PASSWORD", password.clone().unwrap_or_default());
        let process = Process::start("clickhouse", &mut command, folder.join("clickhouse.log"))?;
        let mut this = Self { process, folder: folder.into(), port, password };
        let url = format!("{}/ping", this.url());
        this.process.wait_until("answers", || get(&url).is_ok())?;
        Ok(this)
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// `http://127.0.0.1:port`
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// kill -9.
    ///
    /// # Errors
    /// The system refuses.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }

    /// Starts it again on the same port with the same data.
    ///
    /// # Errors
    /// It does not start.
    pub fn restart(self) -> Result<Self> {
        let Self { process, folder, port, password } = self;
        drop(process);
        Self::launch(&folder, port, password)
    }

    /// Runs a statement; rows come tab-separated unless it names a format.
    ///
    /// # Errors
    /// The server's words.
    pub fn query(&self, sql: &str) -> Result<String> {
        query(&self.url(), self.password.as_deref(), sql)
    }

    /// milepost's tables, where there is no milepost to make them.
    ///
    /// # Errors
    /// The server's words.
    pub fn create_tables(&self, database: &str) -> Result<()> {
        self.query(&format!("CREATE DATABASE {database}"))?;
        let mut files: Vec<PathBuf> = std::fs::read_dir(repository().join("sql"))?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()?;
        files.retain(|path| path.extension().is_some_and(|extension| extension == "sql"));
        files.sort();
        for file in files {
            self.query(&std::fs::read_to_string(file)?.replace("{database}", database))?;
        }
        Ok(())
    }

    /// What a verifier needs in order to ask this engine.
    #[must_use]
    pub fn store(&self, database: &str) -> Store {
        Store { url: self.url(), password: self.password.clone(), database: database.to_owned() }
    }
}

/// Runs a statement on the server at `url`; with a password, as the user of CLICKHOUSE_USER or "default".
///
/// # Errors
/// The server's words.
pub fn query(url: &str, password: Option<&str>, sql: &str) -> Result<String> {
    let mut request = agent().post(url);
    if let Some(password) = password {
        let user = std::env::var("CLICKHOUSE_USER").unwrap_or_else(|_| "default".to_owned());
        request = request.header("X-ClickHouse-User", user).header("X-ClickHouse-Key", password);
    }
    let mut response = request.send(sql).with_context(|| format!("no answer from {url}"))?;
    let text = response.body_mut().with_config().limit(u64::MAX).read_to_string()?;
    ensure!(response.status().is_success(), "{}: {sql}", text.trim());
    Ok(text)
}

/// GET; the body of a successful answer.
///
/// # Errors
/// No answer, or not a 2xx one; then the error holds the body.
pub fn get(url: &str) -> Result<String> {
    let mut response = agent().get(url).call().with_context(|| format!("no answer from {url}"))?;
    let text = response.body_mut().read_to_string()?;
    ensure!(response.status().is_success(), "{url}: {} {}", response.status(), text.trim());
    Ok(text)
}

fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(READY_WITHIN));
    config.build().new_agent()
}

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

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(arguments).current_dir(&self.folder).envs(&self.variables);
        command
    }

    /// Runs a command that ends by itself; its exit code and what it printed.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn call(&self, arguments: &[impl AsRef<OsStr>]) -> Result<(i32, String)> {
        let output = self.command(&[]).args(arguments).output().context("cannot start milepost")?;
        let text = [output.stdout, output.stderr].concat();
        Ok((output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned()))
    }

    /// `milepost migrate`.
    ///
    /// # Errors
    /// What it printed, if it failed.
    pub fn migrate(&self) -> Result<()> {
        let (code, printed) = self.call(&["migrate"])?;
        ensure!(code == 0, "milepost migrate: exit {code}: {printed}");
        Ok(())
    }

    /// `milepost run`, without waiting for anything.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(&self) -> Result<Milepost> {
        let port = free_port()?;
        let mut command = self.command(&["run"]);
        command.env("MILEPOST__HTTP__LISTEN", format!("127.0.0.1:{port}"));
        let process = Process::start("milepost", &mut command, self.folder.join("milepost.log"))?;
        Ok(Milepost { process, http: format!("http://127.0.0.1:{port}") })
    }

    /// `milepost run`, subscribed.
    ///
    /// # Errors
    /// It ends, or is not ready within a minute.
    pub fn run(&self) -> Result<Milepost> {
        let mut milepost = self.start()?;
        let http = milepost.http.clone();
        milepost.process.wait_until("is ready", || get(&format!("{http}/readyz")).is_ok())?;
        Ok(milepost)
    }
}

impl Milepost {
    /// `host:port` of its metrics and probes.
    #[must_use]
    pub fn address(&self) -> &str {
        self.http.trim_start_matches("http://")
    }

    /// Its answer to GET `path`.
    ///
    /// # Errors
    /// No answer, or not 200.
    pub fn get(&self, path: &str) -> Result<String> {
        get(&format!("{}{path}", self.http))
    }

    /// The `q` quantile of a histogram, interpolated within its bucket as Prometheus does.
    ///
    /// # Errors
    /// No answer, or no such histogram.
    pub fn quantile(&self, name: &str, q: f64) -> Result<f64> {
        prom::quantile(&self.get("/metrics")?, &format!("milepost_{name}"), q)
            .with_context(|| format!("no histogram {name}"))
    }

    /// The sum of a metric over its labels.
    ///
    /// # Errors
    /// No answer, or no such metric.
    pub fn metric(&self, name: &str) -> Result<f64> {
        prom::value(&self.get("/metrics")?, &format!("milepost_{name}"))
            .with_context(|| format!("no metric {name}"))
    }

    /// SIGTERM, and its exit code.
    ///
    /// # Errors
    /// It does not end within the bound.
    pub fn terminate(&mut self, within: Duration) -> Result<i32> {
        self.process.signal("TERM")?;
        Ok(self.process.wait(within)?.code().unwrap_or(-1))
    }
}
