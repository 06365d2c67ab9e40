//! Gives each test its own database. All tests share one engine, except those that kill it.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use anyhow::{Context as _, Result};
use lab_stack::{ClickHouse, Map, Settings, unix_ms, wait_until};
use tempfile::TempDir;

use crate::tile_format::{DecodedTile, NamedTile, read_all};

/// Timeout of anything that should happen soon, even on a busy machine.
pub const SOON: Duration = Duration::from_secs(300);

/// An engine with the folder it lives in.
pub struct Engine {
    pub server: ClickHouse,
    folder: TempDir,
}

impl Engine {
    /// Returns the folder and the server, for tests that kill and restart the server. A test that
    /// binds both in this order drops the server before the folder.
    pub fn folder_and_server(self) -> (TempDir, ClickHouse) {
        (self.folder, self.server)
    }
}

/// Engine that tests share; it ends with the last test that uses it.
static SHARED: Mutex<Weak<Engine>> = Mutex::new(Weak::new());

pub fn start_engine() -> Result<Engine> {
    let folder = lab_stack::folder()?;
    Ok(Engine { server: ClickHouse::start(folder.path())?, folder })
}

fn shared_engine() -> Result<Arc<Engine>> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(engine) = shared.upgrade() {
        return Ok(engine);
    }
    let engine = Arc::new(start_engine()?);
    *shared = Arc::downgrade(&engine);
    Ok(engine)
}

/// A test's own database on the shared engine, with the settings of a map.
pub struct World {
    pub engine: Arc<Engine>,
    pub database: String,
    pub settings: Settings,
    pub folder: TempDir,
}

/// Creates milepost's tables in a database of their own, and the settings of a map that reads them.
pub fn world(name: &str) -> Result<World> {
    let engine = shared_engine()?;
    engine.server.copy_tables(name, |template| engine.server.create_tables(template))?;
    let folder = lab_stack::folder()?;
    let settings = settings(folder.path(), &engine.server.url()).with("CLICKHOUSE__DATABASE", name);
    Ok(World { engine, database: name.to_owned(), settings, folder })
}

/// Settings of the binary under test.
pub fn settings(folder: &Path, clickhouse_url: &str) -> Settings {
    Settings::map(Path::new(env!("CARGO_BIN_EXE_milepost-map")), folder, clickhouse_url)
}

impl World {
    /// Runs a statement on the engine; `{db}` is this test's database.
    pub fn query(&self, sql: &str) -> Result<String> {
        self.engine
            .server
            .query(&sql.replace("{db}", &self.database))
            .map(|text| text.trim_end().to_owned())
    }

    /// Inserts a fix as milepost does.
    pub fn insert(&self, driver: &str, ts_ms: i64, lat: f64, lng: f64) -> Result<()> {
        self.query(&insert(driver, ts_ms, lat, lng)).map(drop)
    }
}

/// Returns the statement that inserts a fix at 12.4 m/s, which has just arrived; `{db}` is the
/// database.
pub fn insert(driver: &str, ts_ms: i64, lat: f64, lng: f64) -> String {
    format!(
        "INSERT INTO {{db}}.positions (driver_id, ts, seq, lat_e7, lng_e7, speed_cms, \
         heading_cdeg, alt_dm, acc_dm, received_at) \
         SELECT '{driver}', fromUnixTimestamp64Milli({ts_ms}), 0, {lat} * 1e7, {lng} * 1e7, 1240, \
         27100, 2147483647, 35, \
         fromUnixTimestamp64Milli({})",
        unix_ms()
    )
}

/// A response.
pub struct Answer {
    pub status: u16,
    pub headers: ureq::http::HeaderMap,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    pub fn json(&self) -> Result<serde_json::Value> {
        serde_json::from_slice(&self.body)
            .with_context(|| String::from_utf8_lossy(&self.body).into_owned())
    }
}

/// Sends a GET request; any status counts as a response.
pub fn get(map: &Map, path: &str, headers: &[(&str, &str)]) -> Result<Answer> {
    let config =
        ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(SOON));
    let mut request = config.build().new_agent().get(format!("{}{path}", map.url()));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut response = request.call()?;
    let body = response.body_mut().with_config().limit(1 << 30).read_to_vec()?;
    Ok(Answer { status: response.status().as_u16(), headers: response.headers().clone(), body })
}

/// Requests tiles. The response leaves out tiles whose requested version is up to date.
pub fn tiles(map: &Map, of: &str) -> Result<Vec<NamedTile>> {
    let answer = get(map, &format!("/api/tiles?of={of}"), &[])?;
    anyhow::ensure!(answer.status == 200, "{}", String::from_utf8_lossy(&answer.body));
    Ok(read_all(&answer.body))
}

/// Returns the tile of zoom 0, which is the whole world.
pub fn whole_world(map: &Map) -> Result<DecodedTile> {
    tiles(map, "0/0/0")?.pop().map(|part| part.tile).context("no tile")
}

/// Waits until the condition holds for the tile of the whole world.
pub fn wait_for(what: &str, map: &Map, mut holds: impl FnMut(&DecodedTile) -> bool) -> Result<()> {
    wait_until(what, SOON, || Ok(whole_world(map).is_ok_and(|tile| holds(&tile))))
}
