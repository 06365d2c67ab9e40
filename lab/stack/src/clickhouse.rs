//! The ClickHouse engine, and queries to any ClickHouse server.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result, ensure};

use crate::process::{Process, READY_TIMEOUT, free_port, local_program, lock};
use crate::sql;

/// Time zone of the engine, UTC+14: its date is tomorrow for most of a UTC day, so code that takes
/// a local date for a UTC date fails.
const FAR_FROM_UTC: &str = "Pacific/Kiritimati";

/// The database that [`ClickHouse::copy_tables`] copies. A copy replaces this name wherever it
/// occurs.
const TEMPLATE: &str = "template_of_tables";

/// The definitions of all tables and views of a database. A view is attached, not created, because
/// the engine then does not analyse the view's query. ATTACH needs a UUID and the columns;
/// parameterized views have no columns, so these are created. A roll-up is EMPTY: otherwise, the
/// engine would refresh it at once.
const DEFINITIONS: &str = r"
    SELECT arrayStringConcat(groupArray(definition), char(0)) FROM (
    SELECT if(match(create_table_query, '^CREATE (MATERIALIZED VIEW|VIEW \\S+\\s*\\()'),
        replaceRegexpOne(replaceRegexpOne(create_table_query,
            '(?s)^(CREATE MATERIALIZED VIEW \\S+\\s+REFRESH .*?)\\s+AS\\s+(WITH|SELECT)\\s',
            '\\1 EMPTY AS \\2 '),
            '^CREATE ((MATERIALIZED )?VIEW \\S+)', 'ATTACH \\1 UUID ''{uuid}'''),
        create_table_query) AS definition
    FROM system.tables WHERE database IN ('{db}', '{db}_ask')
    ORDER BY engine LIKE '%View') FORMAT TSVRaw";

/// A running ClickHouse engine. Its data survives [`kill`](Self::kill) and
/// [`restart`](Self::restart).
pub struct ClickHouse {
    process: Process,
    folder: PathBuf,
    /// Port of the HTTP interface.
    pub port: u16,
    password: Option<String>,
    /// Configuration file of the server, for example with clusters and macros.
    config: Option<PathBuf>,
    /// The [`DEFINITIONS`] of [`TEMPLATE`], once that exists.
    definitions: Mutex<Option<Arc<str>>>,
}

impl ClickHouse {
    /// Starts the engine with its data in `folder`, and waits until it answers.
    pub fn start(folder: &Path) -> Result<Self> {
        Self::launch(folder, free_port()?, None, None)
    }

    /// Starts the engine as [`start`](Self::start) does, with a password for the user "default".
    pub fn start_with_password(folder: &Path, password: &str) -> Result<Self> {
        Self::launch(folder, free_port()?, Some(password.to_owned()), None)
    }

    /// Starts the engine as [`start`](Self::start) does, with a configuration file, for example
    /// with clusters.
    pub fn start_with_config(folder: &Path, config: &Path) -> Result<Self> {
        Self::launch(folder, free_port()?, None, Some(config.into()))
    }

    fn launch(
        folder: &Path,
        port: u16,
        password: Option<String>,
        config: Option<PathBuf>,
    ) -> Result<Self> {
        let mut command = local_program("clickhouse", folder);
        command.env("CLICKHOUSE_PORT", port.to_string()).env("CLICKHOUSE_USER", "default");
        command.env("CLICKHOUSE_PASSWORD", password.clone().unwrap_or_default());
        command.env("TZ", FAR_FROM_UTC);
        command.envs(config.as_ref().map(|file| ("CLICKHOUSE_CONFIG", file)));
        let process = Process::start("clickhouse", &mut command, folder.join("clickhouse.log"))?;
        let (folder, definitions) = (folder.into(), Mutex::new(None));
        let mut engine = Self { process, folder, port, password, config, definitions };
        let url = format!("{}/ping", engine.url());
        engine.process.wait_until("answers", || get(&url).is_ok())?;
        Ok(engine)
    }

    /// Returns the process id of the engine.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Returns the URL, `http://127.0.0.1:port`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Kills the engine with SIGKILL.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }

    /// Suspends the engine: it answers nothing and closes no connection.
    pub fn hang(&self) -> Result<()> {
        self.process.signal("STOP")
    }

    /// Resumes the engine after [`hang`](Self::hang).
    pub fn resume(&self) -> Result<()> {
        self.process.signal("CONT")
    }

    /// Starts the engine again, on the same port and with the same data.
    pub fn restart(self) -> Result<Self> {
        let Self { process, folder, port, password, config, definitions } = self;
        drop(process);
        Ok(Self { definitions, ..Self::launch(&folder, port, password, config)? })
    }

    /// Runs a statement. Rows are tab-separated unless the statement names a format.
    pub fn query(&self, sql: &str) -> Result<String> {
        query(&self.url(), self.password.as_deref(), sql)
    }

    /// Creates milepost's tables without the milepost binary.
    pub fn create_tables(&self, database: &str) -> Result<()> {
        self.query(&format!("CREATE DATABASE {database}"))?;
        self.query(&format!("CREATE DATABASE {database}_ask"))?;
        for file in sql::migrations()? {
            for statement in render_statements(&std::fs::read_to_string(file)?, database)? {
                self.query(&statement)?;
            }
        }
        Ok(())
    }

    /// Creates a database with copies of the tables that `migrate` creates in the database whose
    /// name it receives. Migrating costs seconds of CPU, because the engine analyses every view, so
    /// only the first copy on this engine calls `migrate`.
    ///
    /// The roll-ups are stopped until [`sql::REFRESH_ROLLUPS`] starts them. Otherwise, the engine
    /// would refresh the roll-ups of all databases every five minutes, all at once.
    pub fn copy_tables(
        &self,
        database: &str,
        migrate: impl FnOnce(&str) -> Result<()>,
    ) -> Result<()> {
        let definitions = self.definitions(migrate)?;
        for name in [database, &format!("{database}_ask")] {
            self.query(&format!("CREATE DATABASE {name}"))?;
        }
        for definition in definitions.split('\0') {
            let uuid = format!("{:032x}", fastrand::u128(..));
            self.query(&definition.replace("{uuid}", &uuid).replace(TEMPLATE, database))?;
        }
        self.stop_rollups(database)?;
        let ledger = "schema_migrations";
        self.query(&format!("INSERT INTO {database}.{ledger} SELECT * FROM {TEMPLATE}.{ledger}"))
            .map(drop)
    }

    /// Returns the [`DEFINITIONS`] of [`TEMPLATE`], which the first caller migrates.
    fn definitions(&self, migrate: impl FnOnce(&str) -> Result<()>) -> Result<Arc<str>> {
        let mut cached = lock(&self.definitions);
        if let Some(definitions) = &*cached {
            return Ok(Arc::clone(definitions));
        }
        migrate(TEMPLATE)?;
        self.stop_rollups(TEMPLATE)?;
        let definitions = self.query(&DEFINITIONS.replace("{db}", TEMPLATE))?;
        Ok(Arc::clone(cached.insert(definitions.trim_end().into())))
    }

    fn stop_rollups(&self, database: &str) -> Result<()> {
        let sql = format!("SELECT view FROM system.view_refreshes WHERE database = '{database}'");
        for view in self.query(&sql)?.lines() {
            self.query(&format!("SYSTEM STOP VIEW {database}.{view}"))?;
        }
        Ok(())
    }

    /// Returns the address and login with which a verifier queries this engine.
    #[must_use]
    pub fn store(&self, database: &str) -> Store {
        Store { url: self.url(), password: self.password.clone(), database: database.to_owned() }
    }
}

/// Returns the statements of a file of sql/, as `milepost migrate` renders them for one server (see
/// crates/clickhouse/src/render.rs).
fn render_statements(template: &str, database: &str) -> Result<Vec<String>> {
    let [stored, shown] = sql::columns()?;
    let lines = shown.lines().map(str::trim).filter(|line| !line.starts_with("--"));
    let names: Vec<&str> = lines.filter_map(|line| line.split(' ').next()).collect();
    let statements =
        template.trim_end().split(";\n").filter(|sql| !sql.trim_start().starts_with("{shards}"));
    let fill = |statement: &str| {
        let mut parts = statement.split('{');
        let mut filled = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (placeholder, text) = part.split_once('}').unwrap_or((part, ""));
            match placeholder.split_once(':').unwrap_or((placeholder, "")) {
                ("database", _) => filled += database,
                ("on_cluster" | "all" | "policy", _) => {}
                ("stored", _) => filled += &stored,
                ("stored_plain", _) => filled += &with_default_codec(&stored),
                ("shown", _) => filled += &shown,
                ("shown_names", _) => filled += &names.join(", "),
                ("tokens", _) => filled += "non_replicated_deduplication_window = 10000",
                ("no_tokens", _) => filled += "non_replicated_deduplication_window = 0",
                ("engine", engine) => filled += engine,
                ("retention", argument) => {
                    let time = argument.split_once(", ").map_or(argument, |(_, time)| time);
                    filled += &format!("{time} + toIntervalDay(400)");
                }
                _ => filled.extend(["{", placeholder, "}"]), // a view's parameter
            }
            filled += text;
        }
        filled
    };
    Ok(statements.map(fill).collect())
}

/// Replaces the codec of each column by the default one, as crates/clickhouse/src/render.rs does
/// for `{stored_plain}`.
fn with_default_codec(section: &str) -> String {
    let replace_codec = |line: &str| match line.split_once("CODEC(") {
        Some((column, codec)) => {
            let comment = codec.split_once("COMMENT").map_or("", |(_, comment)| comment);
            format!("{column}CODEC(Default) COMMENT{comment}")
        }
        None => line.to_owned(),
    };
    section.lines().map(replace_codec).collect::<Vec<_>>().join("\n")
}

/// A database, with the address and login to query it.
#[derive(Clone)]
pub struct Store {
    /// `http://host:port`
    pub url: String,
    /// Password of [`user`]; `None`: requests carry no login.
    pub password: Option<String>,
    /// Name of the database.
    pub database: String,
}

impl Store {
    /// Runs a statement. Rows are tab-separated unless the statement names a format.
    pub fn query(&self, sql: &str) -> Result<String> {
        query(&self.url, self.password.as_deref(), sql)
    }
}

/// Returns the user for a server that the laboratory did not start: CLICKHOUSE_USER, or else
/// "default".
#[must_use]
pub fn user() -> String {
    std::env::var("CLICKHOUSE_USER").unwrap_or_else(|_| "default".to_owned())
}

/// Returns the password of [`user`], from CLICKHOUSE_PASSWORD; `None` if it is unset or empty. A
/// command-line argument would be visible to every process.
#[must_use]
pub fn password() -> Option<String> {
    std::env::var("CLICKHOUSE_PASSWORD").ok().filter(|password| !password.is_empty())
}

/// Runs a statement on the server at `url`, with a password as [`user`].
pub fn query(url: &str, password: Option<&str>, sql: &str) -> Result<String> {
    let mut request = agent().post(url);
    if let Some(password) = password {
        request = request.header("X-ClickHouse-User", user()).header("X-ClickHouse-Key", password);
    }
    let mut response = request.send(sql).with_context(|| format!("no answer from {url}"))?;
    let text = response.body_mut().with_config().limit(u64::MAX).read_to_string()?;
    ensure!(response.status().is_success(), "{}: {sql}", text.trim());
    Ok(text)
}

/// Returns the body of a successful answer to GET `url`.
pub fn get(url: &str) -> Result<String> {
    let mut response = agent().get(url).call().with_context(|| format!("no answer from {url}"))?;
    let text = response.body_mut().read_to_string()?;
    ensure!(response.status().is_success(), "{url}: {} {}", response.status(), text.trim());
    Ok(text)
}

fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(READY_TIMEOUT));
    config.build().new_agent()
}
