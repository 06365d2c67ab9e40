//! The servers of a test. Each test has its own broker and its own database; tests that do not
//! disturb the ClickHouse engine share one.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use lab_harness::background::Background;
use lab_stack::{Broker, ClickHouse, Settings, wait_until};
use loadgen::manifest::Manifest;
use loadgen::publish::Plan;
use loadgen::verify::{Verdict, verify};
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::{Client, Event, Incoming, MqttOptions};
use tempfile::TempDir;

use crate::tables;

/// Timeout of waits that usually end within seconds. The timeout is long enough for a busy machine.
pub const SOON: Duration = Duration::from_secs(300);
/// Exit code of a command that leaves data or work behind, such as files in the spool.
pub const EXIT_INCOMPLETE: i32 = 75;

/// An engine with its data folder.
pub struct Engine {
    pub server: ClickHouse,
    _folder: TempDir,
}

impl Engine {
    /// Starts an engine with its data in this folder.
    pub fn start(folder: TempDir) -> Result<Self> {
        Ok(Self::new(ClickHouse::start(folder.path())?, folder))
    }

    /// Starts an engine with its data in this folder and with this server configuration.
    pub fn start_with_config(folder: TempDir, config: &str) -> Result<Self> {
        let file = folder.path().join("config.xml");
        std::fs::write(&file, config)?;
        Ok(Self::new(ClickHouse::start_with_config(folder.path(), &file)?, folder))
    }

    const fn new(server: ClickHouse, folder: TempDir) -> Self {
        Self { server, _folder: folder }
    }
}

/// The shared engine, which runs as long as any test uses it.
static SHARED: Mutex<Weak<Engine>> = Mutex::new(Weak::new());

pub fn shared_engine() -> Result<Arc<Engine>> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(engine) = shared.upgrade() {
        return Ok(engine);
    }
    let engine = Arc::new(Engine::start(lab_stack::folder()?)?);
    *shared = Arc::downgrade(&engine);
    Ok(engine)
}

/// A test's own broker and database, and settings that connect milepost to them.
pub struct World {
    pub broker: Broker,
    pub engine: Arc<Engine>,
    pub database: String,
    pub settings: Settings,
    pub folder: TempDir,
    _database_guard: Option<DatabaseGuard>,
}

/// Drops the databases of a test on the shared engine when the test ends. If the test panicked, the
/// databases are kept.
pub struct DatabaseGuard {
    engine: Arc<Engine>,
    database: String,
}

impl Drop for DatabaseGuard {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            for name in [format!("{}_ask", self.database), self.database.clone()] {
                let _ = self.engine.server.query(&format!("DROP DATABASE IF EXISTS {name}"));
            }
        }
    }
}

impl DatabaseGuard {
    pub fn new(engine: &Arc<Engine>, database: &str) -> Self {
        Self { engine: Arc::clone(engine), database: database.to_owned() }
    }
}

/// Creates a broker, a migrated database, and settings for a milepost between them.
pub fn world(name: &str) -> Result<World> {
    let world = unmigrated(name)?;
    tables::create(&world.engine, name, &world.settings)?;
    Ok(world)
}

/// Like `world`, without tables.
pub fn unmigrated(name: &str) -> Result<World> {
    let engine = shared_engine()?;
    let database_guard = DatabaseGuard::new(&engine, name);
    Ok(World { _database_guard: Some(database_guard), ..unmigrated_on(engine, name)? })
}

/// Like `unmigrated`, on the given engine.
pub fn unmigrated_on(engine: Arc<Engine>, name: &str) -> Result<World> {
    let folder = lab_stack::folder()?;
    let broker = Broker::start(folder.path())?;
    let settings = settings(folder.path(), broker.port, &engine.server.url())
        .with("CLICKHOUSE__DATABASE", name);
    Ok(World { broker, engine, database: name.to_owned(), settings, folder, _database_guard: None })
}

/// Returns settings that run the tested binary against these servers. The environment variable
/// `MILEPOST_TESTED` may name another binary: `lab faults --prove` uses it to test a binary that
/// contains a deliberate mistake.
pub fn settings(folder: &Path, mqtt_port: u16, clickhouse_url: &str) -> Settings {
    let given = std::env::var_os("MILEPOST_TESTED").map(PathBuf::from);
    let binary = given.unwrap_or_else(|| env!("CARGO_BIN_EXE_milepost").into());
    Settings::new(&binary, folder, mqtt_port, clickhouse_url)
}

/// The distinct rows of `rejects`. milepost repeats an insert whose outcome is unknown, so the
/// table may contain each row of the insert twice (docs/promises.md).
const REJECTS: &str = "(SELECT DISTINCT received_at, topic, driver_id, reason, detail, payload, \
                       payload_bytes, count FROM {db}.rejects)";

impl World {
    /// Runs a statement on the engine; `{db}` is this test's database, `{rejects}` is [`REJECTS`].
    pub fn query(&self, sql: &str) -> Result<String> {
        let sql = sql.replace("{rejects}", REJECTS).replace("{db}", &self.database);
        self.engine.server.query(&sql).map(|text| text.trim_end().to_owned())
    }

    /// Waits until a query returns `expected`.
    pub fn wait_for(&self, sql: &str, expected: &str, within: Duration) -> Result<()> {
        let mut last = String::new();
        wait_until(&format!("{sql} returns {expected}"), within, || {
            last = self.query(sql)?;
            Ok(last == expected)
        })
        .with_context(|| format!("the query last returned {last}"))
    }

    /// Publishes messages at QoS 1, and returns when the broker has acknowledged them.
    pub fn publish(&self, messages: &[(&str, &[u8])]) -> Result<()> {
        publish(self.broker.port, messages)
    }

    /// Returns a plan for a fleet that publishes `rate` messages/s to this broker.
    pub fn plan(&self, run: &str, rate: u32, seconds: u32) -> Plan {
        Plan {
            broker: format!("127.0.0.1:{}", self.broker.port),
            run: run.to_owned(),
            drivers: 50,
            connections: 2,
            rate: f64::from(rate),
            messages: u64::from(rate) * u64::from(seconds),
            ..Plan::default()
        }
    }

    /// Compares the fixes that a fleet sent with the stored ones.
    pub fn verify(&self, manifest: &Manifest) -> Result<Verdict> {
        verify(&self.engine.server.store(&self.database), manifest, SOON)
    }
}

/// Publishes messages at QoS 1, and returns when the broker has acknowledged them.
pub fn publish(port: u16, messages: &[(&str, &[u8])]) -> Result<()> {
    publish_with_retain(port, false, messages)
}

/// Publishes messages at QoS 1, with the given retain flag.
pub fn publish_with_retain(port: u16, retain: bool, messages: &[(&str, &[u8])]) -> Result<()> {
    let mut options = MqttOptions::new(format!("device-{}", fastrand::u32(..)), "127.0.0.1", port);
    options.set_max_packet_size(Some(4 << 20)).set_connection_timeout(20);
    let (client, mut connection) = Client::new(options, messages.len() + 1);
    for (topic, payload) in messages {
        client.publish(*topic, QoS::AtLeastOnce, retain, payload.to_vec())?;
    }
    let mut acks = 0;
    for event in connection.iter() {
        if let Event::Incoming(Incoming::PubAck(_)) = event? {
            acks += 1;
        }
        if acks == messages.len() {
            return Ok(());
        }
    }
    anyhow::bail!("the broker acknowledged {acks} of {} messages", messages.len())
}

/// Publishes a plan in the background while the test injects faults. If the faults last longer than
/// the plan, the fleet continues until [`finish`].
pub fn publish_in_background(plan: Plan) -> Background {
    Background::start(plan, true)
}

/// Stops a fleet and returns the manifest of its messages; fails if the broker did not acknowledge
/// all of them.
pub fn finish(fleet: Background) -> Result<Manifest> {
    let manifest = fleet.finish()?;
    ensure!(manifest.unacked.is_empty(), "the broker did not acknowledge everything");
    Ok(manifest)
}

/// Waits until a metric has at least this value.
pub fn wait_for_metric(milepost: &lab_stack::Milepost, name: &str, at_least: f64) -> Result<()> {
    wait_until(&format!("{name} is at least {at_least}"), SOON, || {
        Ok(milepost.metric(name)? >= at_least)
    })
}
