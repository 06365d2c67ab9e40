//! Creates the tables by migrations, and records each in the table `schema_migrations`.
//!
//! Guarantee: migrations are numbered files of idempotent statements, recorded with a checksum.
//! Applying them twice, or from two places at once, has the same effect as applying them once.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use tracing::{info, warn};

use super::client::{ClickHouse, Error, STATEMENT_SECONDS_MAX, STATEMENT_TIMEOUT, within};
use super::errors::{UNKNOWN_DATABASE, UNKNOWN_TABLE, cause_of_refusal};
use super::fields;
use super::files::{MIGRATIONS, Migration, SCHEMA_MIGRATIONS};
use super::render::Layout;
use super::shards;
use super::whole::FetchWhole as _;
use milepost_config as config;
use milepost_config::Replication;
use milepost_core::encode::TABLES;

/// Suffix of the database of the parameterised views. These views have their own database, because
/// tools that query the columns of every table fail on a parameterised view.
const ASK: &str = "_ask";

/// End of the recorded name of a migration that must be applied again, because a table or view of
/// some recorded migration was missing. A `milepost run` ignores it, and goes on inserting.
const TO_APPLY: &str = ", to apply again";
/// Like [`TO_APPLY`], for a migration after which a table must be filled again.
const TO_FILL: &str = ", to fill again";

/// How to fill the table of a materialized view when the view is created. ClickHouse itself adds
/// only rows that are inserted later.
#[derive(Clone, Copy)]
struct Fill {
    view: &'static str,
    /// The table that the view writes to.
    table: &'static str,
    /// The idempotent statement that fills the table from rows stored before the view existed.
    statement: &'static str,
}

/// The materialized views whose tables must be filled when they are created.
const FILLS: [Fill; 3] = [
    Fill {
        view: "last_positions_mv",
        table: "last_positions_state",
        statement: "INSERT INTO {database}.last_positions_state{all} \
                    SELECT * FROM {database}.positions{all} \
                    SETTINGS max_execution_time = 0, distributed_foreground_insert = 1",
    },
    Fill {
        view: "event_states_mv",
        table: "event_states",
        statement: "INSERT INTO {database}.event_states \
                    (driver_id, state, fence, kind, ts, seq, lat, lng, speed, known_at, mqtt_at, \
                    webhook_at, written_at) \
                    SELECT driver_id, state, fence, newest.1, newest.2, newest.3, newest.4, \
                    newest.5, newest.6, newest.7, newest.8, newest.9, newest.10 FROM ( \
                    SELECT driver_id, multiIf(kind IN ('entered', 'overstayed', 'left'), 'fence', \
                    kind IN ('silent', 'heard'), 'contact', 'speed') AS state, fence, \
                    argMax((kind, ts, seq, lat, lng, speed, known_at, mqtt_at, webhook_at, \
                    written_at), (known_at, ts, seq, kind = 'overstayed', written_at)) AS newest \
                    FROM {database}.events WHERE kind NOT IN ('jump', 'off_hours') \
                    GROUP BY driver_id, state, fence) SETTINGS max_execution_time = 0",
    },
    Fill {
        view: "recent_events_mv",
        table: "recent_events",
        statement: "INSERT INTO {database}.recent_events \
                    (known_at, driver_id, ts, seq, kind, fence, lat, lng, speed, mqtt_at, \
                    webhook_at, written_at) \
                    SELECT known_at, driver_id, ts, seq, kind, fence, lat, lng, speed, mqtt_at, \
                    webhook_at, written_at FROM {database}.events \
                    WHERE known_at > now64(3) - INTERVAL 2 DAY SETTINGS max_execution_time = 0",
    },
];
/// The server's two time limits, in seconds, for a statement on all hosts of a cluster. First, how
/// long the server waits for all hosts before it returns an error that names the missing ones.
/// Second, how long the statement may take in total. The caller retries a statement that exceeds a
/// limit.
const HOSTS_SECONDS_MAX: [&str; 2] = ["180", "200"];
/// The client's timeout for a statement on all hosts of a cluster. It is longer than the server's
/// limits, so that the server's error still arrives.
const HOSTS_TIMEOUT: Duration = Duration::from_secs(210);

impl Migration {
    /// Returns the entry of [`FILLS`] for the view that this file creates, if it has one.
    fn fill(&self) -> Option<Fill> {
        FILLS.into_iter().find(|fill| self.created_object() == Some(fill.view))
    }
}

impl ClickHouse {
    /// Applies the migrations that are not recorded, in order. If a table or view of a recorded
    /// migration is missing on some host, applies all migrations, because later ones may change
    /// that object. Returns the names of the applied migrations. After an error, the changes made
    /// so far stay, and the next call continues, also in another process.
    pub async fn migrate(&self) -> Result<Vec<&'static str>, Error> {
        for database in databases(&self.database) {
            self.create_database(&database).await?;
        }
        let pending = self.pending().await?;
        self.ensure_created_for_shards(&pending).await?;
        let is_pending =
            |file: &Migration| pending.iter().any(|migration| migration.version == file.version);
        let missing = self.missing_objects(&pending).await?;
        let unfinished = self.unfinished(&pending).await?;
        let left_over = |file: &Migration| {
            let same = unfinished.iter().find(|(migration, _)| migration.version == file.version);
            same.map(|(_, to_fill)| *to_fill)
        };
        if !missing.is_empty() {
            let names: Vec<&str> = missing.iter().map(|(name, _)| &**name).collect();
            warn!(
                missing = names.join(", "),
                "recorded objects are missing on some host; creating them again"
            );
        }
        // Fill a table only if it or its view is created. A table that is missing on only some
        // hosts was filled when it was first created.
        let fill_of = |migration: &Migration| {
            let is_new = |object| {
                let name = format!("{}.{object}", self.database);
                missing.iter().any(|(missing, is_nowhere)| *missing == name && *is_nowhere)
            };
            let is_due = is_pending(migration) || left_over(migration) == Some(true);
            migration.fill().filter(|fill| is_due || is_new(fill.view) || is_new(fill.table))
        };
        let existing_columns = self.add_fields().await?;
        // Once the missing objects exist, nothing else shows the next call that the files after
        // them, and the fills, are still to be done.
        let to_repeat = MIGRATIONS.iter().filter(|file| !missing.is_empty() && !is_pending(file));
        let to_repeat: Vec<_> = to_repeat
            .map(|file| (file, if fill_of(file).is_some() { TO_FILL } else { TO_APPLY }))
            .collect();
        if !to_repeat.is_empty() {
            let sql = record_statement(&self.database, &to_repeat);
            self.statement("recording which migrations to apply again", &sql).await?;
        }
        let mut applied = Vec::new();
        for migration in MIGRATIONS.iter().filter(|migration| {
            !missing.is_empty() || is_pending(migration) || left_over(migration).is_some()
        }) {
            let step = format!("migration {}", migration.name);
            for sql in self.layout.render_file(migration) {
                self.statement(&step, &sql).await?;
            }
            if let Some(Fill { view, statement, .. }) = fill_of(migration) {
                self.execute_fill(view, statement).await?;
            }
            // The migration's statements and this record are idempotent. After a crash between
            // them, the next run completes the migration. Several pods may do so at the same time.
            let record = record_statement(&self.database, &[(migration, "")]);
            self.statement(&step, &record).await?;
            info!(migration = migration.name, place = self.layout.place(), "applied");
            applied.push(migration.name);
        }
        self.show_fields(applied.is_empty().then_some(existing_columns)).await?;
        self.apply_retention().await?;
        Ok(applied)
    }

    /// Sets the configured storage policy on `positions`, and the time-to-live on each table, where
    /// they differ. ClickHouse then removes expired rows in the background.
    async fn apply_retention(&self) -> Result<(), Error> {
        let sql = format!(
            "SELECT name, engine_full FROM system.tables WHERE database = '{}'",
            self.database
        );
        let tables: HashMap<_, _> =
            (self.query_rows("reading the time-to-live of the tables", &sql).await?.into_iter())
                .map(|[name, engine]| (name, engine))
                .collect();
        let lacks = |table: &str, setting: &str| {
            tables.get(table).is_some_and(|engine| !engine.contains(setting))
        };
        if let Some(policy) = self.layout.policy() {
            let table = TABLES[0].name;
            if lacks(table, &format!("storage_policy = '{policy}'")) {
                let sql = self.layout.render(&modify_policy_template(table, policy));
                self.statement(&format!("setting the storage policy of {table}"), &sql).await?;
                info!(table, policy, place = self.layout.place(), "storage policy set");
            }
        }
        for (table, ttl) in self.layout.ttls() {
            if lacks(table, &format!("TTL {ttl} ")) {
                let sql = self.layout.render(&modify_ttl_template(table, &ttl));
                self.statement(&format!("setting the time-to-live of {table}"), &sql).await?;
                info!(table, ttl, place = self.layout.place(), "retention (TTL) updated");
            }
        }
        Ok(())
    }

    /// Fills a view from rows that were stored before the view existed. Has no timeout, because
    /// reading those rows can take long.
    async fn execute_fill(&self, view: &str, sql: &str) -> Result<(), Error> {
        let query = self.client().query_raw(&self.layout.render(sql));
        query.execute_whole().await.map_err(|error| {
            self.failed(format!("filling {view} from the rows stored before it"), error)
        })
    }

    /// Returns the tables and views of recorded migrations that are missing on some host; the flag
    /// is true if the object is missing on all hosts. An object is missing if it was dropped, or
    /// if a host joined the cluster later.
    async fn missing_objects(&self, pending: &[Migration]) -> Result<Vec<(String, bool)>, Error> {
        let is_recorded =
            |file: &&Migration| pending.iter().all(|migration| migration.version != file.version);
        let names = MIGRATIONS.iter().filter(is_recorded).flat_map(|migration| {
            let ask_view =
                migration.created_ask_view().map(|name| format!("{}{ASK}.{name}", self.database));
            self.objects_created_by(migration)
                .map(|name| format!("{}.{name}", self.database))
                .chain(ask_view)
        });
        let names = names.collect::<Vec<_>>().join("', '");
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let on_every_host = |table: &str| match self.layout.cluster() {
            None => format!("system.{table}"),
            Some(cluster) => format!("clusterAllReplicas('{cluster}', system.{table})"),
        };
        let sql = format!(
            "SELECT object, sum(hosts) = 0 FROM \
             (SELECT concat(database, '.', name) AS object, 1 AS hosts FROM {} \
             UNION ALL SELECT arrayJoin(['{names}']), 0) \
             WHERE object IN ('{names}') GROUP BY object \
             HAVING sum(hosts) < (SELECT count() FROM {}) ORDER BY object",
            on_every_host("tables"),
            on_every_host("one"),
        );
        let rows = self.query_rows("asking for the existing tables", &sql).await?;
        Ok(rows.into_iter().map(|[name, is_nowhere]| (name, is_nowhere == "1")).collect())
    }

    /// Fails if `clickhouse.shards` is set but the tables were created without that setting. Then
    /// the views read the tables of one shard only. No migration would replace the views, because
    /// their migrations are recorded as applied.
    async fn ensure_created_for_shards(&self, pending: &[Migration]) -> Result<(), Error> {
        let Some(cluster) = self.layout.shards() else { return Ok(()) };
        let file = MIGRATIONS.iter().find(|migration| migration.table() == Some(TABLES[0].name));
        let is_pending =
            |file: &Migration| pending.iter().any(|migration| migration.version == file.version);
        if file.is_none_or(is_pending) {
            return Ok(()); // `migrate` creates the tables next
        }
        let sql = format!(
            "SELECT count() > 0 FROM clusterAllReplicas('{cluster}', system.tables) \
             WHERE database = '{}' AND name = '{}'",
            self.database,
            shards::distributed_name(TABLES[0].name)
        );
        let exists = self
            .value("asking every host for its tables", &sql)
            .await?
            .is_some_and(|flag| flag == "1");
        if exists { Ok(()) } else { Err(Error::NotForShards { database: self.database.clone() }) }
    }

    /// Returns the migrations of this binary that are not recorded in the database, in order.
    pub async fn pending(&self) -> Result<Vec<Migration>, Error> {
        let recorded = self.recorded_migrations().await?;
        let mut pending = Vec::new();
        for migration in MIGRATIONS {
            match recorded.iter().find(|(version, _)| *version == migration.version) {
                None => pending.push(*migration),
                Some((_, recorded)) if *recorded == migration.checksum() => {}
                Some((_, recorded)) => {
                    return Err(Error::Edited {
                        name: migration.name,
                        recorded: recorded.clone(),
                        now: migration.checksum(),
                    });
                }
            }
        }
        Ok(pending)
    }

    /// Returns one line for each table or column that is missing or has another type than milepost
    /// inserts. RowBinary carries no types, so the server would misread the values.
    pub async fn misfits(&self) -> Result<Vec<String>, Error> {
        // Query only these tables, because a start waits for this query: with the columns of all
        // views, it would cost five times as much.
        let names = TABLES
            .iter()
            .flat_map(|table| [table.name.to_owned(), shards::distributed_name(table.name)]);
        let sql = format!(
            "SELECT table, name, type FROM system.columns \
             WHERE database = '{}' AND table IN ('{}')",
            self.database,
            names.collect::<Vec<_>>().join("', '")
        );
        let rows: Vec<[String; 3]> = self.query_rows("reading system.columns", &sql).await?;
        let mut misfits = Vec::new();
        for table in TABLES {
            let exists = |name: &str| rows.iter().any(|[table, ..]| table == name);
            let distributed = shards::distributed_name(table.name);
            let name = match self.layout.shards() {
                Some(_) => &distributed,
                None if exists(&distributed) => {
                    misfits.push(format!(
                        "{distributed} exists: these tables were created with \
                         clickhouse.shards = true"
                    ));
                    continue;
                }
                None => table.name,
            };
            if !exists(name) {
                misfits.push(format!("{name} is missing"));
                continue;
            }
            for (column, kind) in table.columns {
                match rows.iter().find(|[table, found, _]| table == name && found == column) {
                    None => misfits.push(format!("{name}.{column} is missing")),
                    Some([.., other]) if !kind.fits(other) => {
                        misfits.push(format!(
                            "{name}.{column} is {other}, which does not fit the values that \
                             milepost inserts"
                        ));
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(misfits)
    }

    /// Creates a database only if it is missing, so that a user without the grant CREATE DATABASE
    /// can use an existing one.
    async fn create_database(&self, name: &str) -> Result<(), Error> {
        let step = format!("creating database {name}");
        let is_everywhere = match self.layout.cluster() {
            None => format!("SELECT count() > 0 FROM system.databases WHERE name = '{name}'"),
            Some(cluster) => format!(
                "SELECT (SELECT count() FROM clusterAllReplicas('{cluster}', system.databases) \
                 WHERE name = '{name}') \
                 = (SELECT count() FROM clusterAllReplicas('{cluster}', system.one))"
            ),
        };
        if self.value(&step, &is_everywhere).await?.is_none_or(|flag| flag != "1") {
            let sql = self.layout.render(&create_database_template(name));
            self.statement(&step, &sql).await?;
        }
        if self.layout.config.replication == Replication::Managed {
            let sql = format!("SELECT engine FROM system.databases WHERE name = '{name}'");
            let engine = self.value(&step, &sql).await?.unwrap_or_default();
            if !matches!(&*engine, "Replicated" | "Shared") {
                return Err(Error::NotManaged { database: name.to_owned(), engine });
            }
        }
        Ok(())
    }

    /// Returns version and checksum of each recorded migration.
    async fn recorded_migrations(&self) -> Result<Vec<(u32, String)>, Error> {
        // ClickHouse always returns the row with version 0, so an answer without that row comes
        // from a proxy.
        let sql = format!(
            "SELECT version, checksum FROM (SELECT 0 AS version, '' AS checksum UNION ALL \
             SELECT version, checksum FROM {}.{SCHEMA_MIGRATIONS} FINAL) ORDER BY version",
            self.database
        );
        let step = "reading the recorded migrations";
        let rows = match self.query_rows(step, &sql).await {
            Err(error) if matches!(error.code(), Some(UNKNOWN_TABLE | UNKNOWN_DATABASE)) => {
                return Ok(Vec::new());
            }
            rows => rows?,
        };
        let migration = |[version, checksum]: [String; 2]| Some((version.parse().ok()?, checksum));
        let recorded = rows.into_iter().map(migration).collect::<Option<Vec<_>>>();
        let recorded =
            recorded.filter(|rows| rows.first().is_some_and(|(version, _)| *version == 0));
        let rows = recorded.ok_or_else(|| Error::not_clickhouse(step, "list of migrations"))?;
        Ok(rows.into_iter().skip(1).collect())
    }

    /// Returns the migrations that an interrupted [`Self::migrate`] has still to apply again, in
    /// order; the flag is true if the table must be filled again.
    pub async fn unfinished(&self, pending: &[Migration]) -> Result<Vec<(Migration, bool)>, Error> {
        if pending.len() == MIGRATIONS.len() {
            return Ok(Vec::new()); // perhaps `schema_migrations` does not exist
        }
        let step = "reading which migrations to apply again";
        let sql = format!("SELECT version, name FROM {}.{SCHEMA_MIGRATIONS} FINAL", self.database);
        let rows: Vec<[String; 2]> = self.query_rows(step, &sql).await?;
        if rows.is_empty() {
            return Err(Error::not_clickhouse(step, "list of migrations"));
        }
        let recorded_as = |file: &Migration, end| {
            let (version, name) = (file.version.to_string(), format!("{}{end}", file.name));
            rows.iter().any(|row| row[0] == version && row[1] == name)
        };
        let flagged = |file: &Migration| {
            let to_fill = recorded_as(file, TO_FILL);
            (to_fill || recorded_as(file, TO_APPLY)).then_some((*file, to_fill))
        };
        Ok(MIGRATIONS.iter().filter_map(flagged).collect())
    }

    /// Returns the tables and views that the migrations create.
    #[must_use]
    pub fn tables(&self) -> Vec<String> {
        MIGRATIONS.iter().flat_map(|migration| self.objects_created_by(migration)).collect()
    }

    /// Returns the table or view that a file creates and, with shards, the Distributed table over
    /// it.
    fn objects_created_by(&self, migration: &Migration) -> impl Iterator<Item = String> + use<> {
        let sharded = migration.sharded_table().filter(|_| self.layout.shards().is_some());
        let distributed = sharded.map(shards::distributed_name);
        migration.created_object().map(str::to_owned).into_iter().chain(distributed)
    }

    /// Returns the parameterised views that the migrations create, and their database.
    #[must_use]
    pub fn views(&self) -> (String, Vec<&'static str>) {
        let names = MIGRATIONS.iter().filter_map(Migration::created_ask_view);
        (format!("{}{ASK}", self.database), names.collect())
    }

    /// Executes a statement that changes data or tables. A single host has a minute to execute it;
    /// on a cluster, this returns once all hosts have executed it, or fails after three minutes.
    pub async fn statement(&self, step: &str, sql: &str) -> Result<(), Error> {
        let is_for_one_host = !self.layout.config.changes_all_hosts();
        let timeout = if is_for_one_host { STATEMENT_TIMEOUT } else { HOSTS_TIMEOUT };
        let mut tries = self.tries(cause_of_refusal);
        let executed = loop {
            let query = tries.client().query_raw(sql);
            let query = if is_for_one_host {
                query.with_setting("max_execution_time", STATEMENT_SECONDS_MAX)
            } else {
                // Wait until every host has executed the statement; if one has not, the server's
                // error names it.
                let [all_hosts, total] = HOSTS_SECONDS_MAX;
                query
                    .with_setting("distributed_ddl_task_timeout", all_hosts)
                    .with_setting("distributed_ddl_output_mode", "throw")
                    .with_setting("wait_end_of_query", "1")
                    .with_setting("max_execution_time", total)
            };
            match within(timeout, query.execute_whole()).await {
                Err(error) if tries.retry_elsewhere(&error) => {}
                executed => break executed,
            }
        };
        executed.map_err(|error| self.failed(step, error))
    }
}

/// Returns the template of the statement that creates a database.
fn create_database_template(name: &str) -> String {
    format!("CREATE DATABASE IF NOT EXISTS {name}{{on_cluster}}")
}

/// Returns the template of the statement that sets a table's storage policy.
fn modify_policy_template(table: &str, policy: &str) -> String {
    format!(
        "ALTER TABLE {{database}}.{table}{{on_cluster}}\n    \
         MODIFY SETTING storage_policy = '{policy}'"
    )
}

/// Returns the template of the statement that sets a table's time-to-live.
fn modify_ttl_template(table: &str, ttl: &str) -> String {
    format!("ALTER TABLE {{database}}.{table}{{on_cluster}}\n    MODIFY TTL {ttl}")
}

/// Returns the statement that records migrations, each with an end of its name.
fn record_statement(database: &str, migrations: &[(&Migration, &str)]) -> String {
    let row = |(migration, end): &(&Migration, &str)| {
        let (version, name, checksum) = (migration.version, migration.name, migration.checksum());
        format!("({version}, '{name}{end}', '{checksum}')")
    };
    let rows: Vec<_> = migrations.iter().map(row).collect();
    format!(
        "INSERT INTO {database}.{SCHEMA_MIGRATIONS} (version, name, checksum) VALUES {}",
        rows.join(", ")
    )
}

/// Returns the database of the tables, and that of the parameterised views.
fn databases(database: &str) -> [String; 2] {
    [database.to_owned(), format!("{database}{ASK}")]
}

/// Returns every statement of `migrate` on an empty server, in order, each with the place where it
/// runs. Contacts no server.
pub fn plan(config: &config::ClickHouse) -> String {
    let layout = Layout::new(config);
    let mut plan = String::new();
    let mut add = |step: &str, place: &str, sql: &str| {
        let _ = writeln!(plan, "-- {step}: {place}\n{};\n", sql.trim_end());
    };
    let place = layout.place();
    for database in databases(&config.database) {
        add("database", &place, &layout.render(&create_database_template(&database)));
    }
    for migration in MIGRATIONS {
        for sql in layout.render_file(migration) {
            add(migration.name, &place, &sql);
        }
        if let Some(fill) = migration.fill() {
            let sql = layout.render(fill.statement);
            add("rows stored before the view", "on the host to which milepost connects", &sql);
        }
        let sql = record_statement(&config.database, &[(migration, "")]);
        add(
            "record the migration",
            "on the host to which milepost connects, after the statement before",
            &sql,
        );
    }
    for (step, sql) in fields::plan(&layout) {
        add(&step, &place, &sql);
    }
    if let Some(policy) = layout.policy() {
        let table = TABLES[0].name;
        let step = format!("storage policy of {table}, if it differs");
        add(&step, &place, &layout.render(&modify_policy_template(table, policy)));
    }
    for (table, ttl) in layout.ttls() {
        let step = format!("time-to-live of {table}, if it differs");
        add(&step, &place, &layout.render(&modify_ttl_template(table, &ttl)));
    }
    plan
}

/// Names up to four migrations and counts the rest, for a message. On an empty database, all
/// migrations are pending, too many to name.
pub fn migration_names(migrations: &[Migration]) -> String {
    const SHOWN_MAX: usize = 4;
    let names: Vec<&str> = migrations.iter().map(|migration| migration.name).collect();
    match names.len().saturating_sub(SHOWN_MAX) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names[..SHOWN_MAX].join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_names_four_migrations_and_counts_the_rest() {
        assert_eq!(migration_names(&MIGRATIONS[1..3]), "010_positions, 011_fixes");
        let all = migration_names(MIGRATIONS);
        let more = format!("021_last_positions_mv and {} more", MIGRATIONS.len() - 5);
        assert_eq!(
            migration_names(&MIGRATIONS[1..]).split_once("020_last_positions_state, ").unwrap().1,
            more,
            "{all}"
        );
    }

    #[test]
    fn each_object_has_one_file_in_ascending_order() {
        assert!(MIGRATIONS.windows(2).all(|pair| pair[0].version < pair[1].version));
        assert_eq!(
            MIGRATIONS[0].created_object(),
            Some(SCHEMA_MIGRATIONS),
            "the table must be created before the migrations that it records"
        );
        // A file numbered 300 or higher may replace an object of an earlier file.
        let first_files = MIGRATIONS.iter().filter(|migration| migration.version < 300);
        let object = |name: &'static str| name.split_once('_').map(|(_, object)| object);
        let mut objects: Vec<_> = first_files.map(|migration| object(migration.name)).collect();
        objects.sort_unstable();
        assert!(objects.windows(2).all(|pair| pair[0] != pair[1]), "{objects:?}");
        for migration in MIGRATIONS.iter().filter(|migration| migration.sql.contains("CREATE ")) {
            let is_named =
                migration.created_object().is_some() || migration.created_ask_view().is_some();
            assert!(is_named, "{}: must be named after the object that it creates", migration.name);
        }
    }
}
