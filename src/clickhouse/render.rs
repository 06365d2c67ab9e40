//! The files of `sql/` as a server, or several, are to have them.
//!
//! For one server a file is its text with the database's name in it. For replicas three things change: a table's engine
//! becomes its replicated form, the settings of its memory for tokens get their other names, and where a cluster is named
//! every statement says ON CLUSTER. What shards need on top is in [`shards`]. Refuses: a statement whose place for ON
//! CLUSTER it does not know.
//!
//! A replica that comes later must make its table as it is by then, or its Keeper refuses it. So what later files
//! do to columns and time-to-live is in the CREATE of a replicated table from the beginning; the files change nothing then.

use super::files::{BY_DAY_FILE, LEDGER, Migration};
use super::shards;
use crate::config::{self, Replication, Retention};

const WINDOW: &str = "non_replicated_deduplication_window = 10000";
/// Tokens end by age, too: a week instead of an hour, which is longer than a batch is tried under one token.
const REPLICATED_WINDOW: &str =
    "replicated_deduplication_window = 10000, replicated_deduplication_window_seconds = 604800";
/// What stands before the name of what is made or changed; ON CLUSTER stands behind it.
const BEFORE_A_NAME: [&str; 14] = [
    "CREATE DATABASE IF NOT EXISTS ",
    "CREATE TABLE IF NOT EXISTS ",
    "CREATE OR REPLACE TABLE ",
    "CREATE VIEW IF NOT EXISTS ",
    "CREATE OR REPLACE VIEW ",
    "CREATE MATERIALIZED VIEW IF NOT EXISTS ",
    "CREATE DICTIONARY IF NOT EXISTS ",
    "CREATE OR REPLACE DICTIONARY ",
    "ALTER TABLE ",
    "DELETE FROM ",
    "DROP TABLE IF EXISTS ",
    "DROP VIEW IF EXISTS ",
    "SYSTEM REFRESH VIEW ",
    "OPTIMIZE TABLE ",
];
/// ON CLUSTER stands between it and the name.
const BEFORE_ON_CLUSTER: &str = "SYSTEM SYNC REPLICA ";
/// ON CLUSTER stands at their end.
const WITH_TWO_NAMES: [&str; 2] = ["EXCHANGE TABLES ", "RENAME TABLE "];
/// These run on the host that is asked.
const ON_ONE_HOST: [&str; 2] = ["INSERT INTO ", "SELECT "];

/// Where tables are to be.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    database: String,
    replication: Replication,
    cluster: Option<String>,
    shards: bool,
    retention: Retention,
}

impl Layout {
    pub(super) fn new(config: &config::ClickHouse) -> Self {
        let config::ClickHouse { database, replication, cluster, shards, retention, .. } = config;
        Self {
            database: database.clone(),
            replication: *replication,
            cluster: cluster.clone(),
            shards: *shards,
            retention: *retention,
        }
    }

    pub(super) fn replication(&self) -> Replication {
        self.replication
    }

    /// All hosts of it are reached by one statement.
    pub(super) fn cluster(&self) -> Option<&str> {
        self.cluster.as_deref()
    }

    /// The cluster, if its shards have different rows.
    pub(super) fn shards(&self) -> Option<&str> {
        self.cluster().filter(|_| self.shards)
    }

    /// A table of the server's own, of all hosts that are reached by one statement.
    pub(super) fn everywhere(&self, table: &str) -> String {
        match &self.cluster {
            Some(cluster) => format!("clusterAllReplicas('{cluster}', {table})"),
            None => table.to_owned(),
        }
    }

    /// Where a statement runs, in words.
    pub(super) fn place(&self) -> String {
        match (&self.cluster, self.replication) {
            (Some(cluster), _) => format!("on all hosts of the cluster {cluster}"),
            (None, Replication::None) => "on this server".to_owned(),
            (None, Replication::Macros) => "on this host alone; run it on each".to_owned(),
            (None, Replication::Managed) => "on all replicas, by the database itself".to_owned(),
        }
    }

    /// A migration's statements: one, and for shards what they need beside it. `all`: every migration, in order. `by_day`:
    /// `positions` was moved, and a host that is new gets it as it is by now.
    ///
    /// # Panics
    /// Nobody has said where ON CLUSTER stands in it; a test renders every file.
    pub(super) fn migration(&self, migration: &Migration, all: &[Migration], by_day: bool) -> Vec<String> {
        let is_moved = by_day && migration.table() == BY_DAY_FILE.table();
        let migration = if is_moved { &BY_DAY_FILE } else { migration };
        if self.replication == Replication::None {
            return vec![self.named(migration.sql)];
        }
        let sql = self.replicated_by_now(migration, all);
        let statements = match self.shards() {
            Some(cluster) => shards::statements(migration, sql, cluster),
            None => vec![sql],
        };
        statements.iter().map(|sql| self.statement(sql)).collect()
    }

    /// A migration's table by another name, as later files leave it.
    ///
    /// # Panics
    /// As [`Layout::migration`].
    pub(super) fn beside(&self, create: &Migration, all: &[Migration], name: &str) -> String {
        let Some(table) = create.table() else { return self.statement(create.sql) };
        let sql = match self.replication {
            Replication::None => as_it_is_by_now(create, table, all),
            Replication::Macros | Replication::Managed => self.replicated_by_now(create, all),
        };
        let named = |name: &str| format!("EXISTS {{database}}.{name}\n");
        self.statement(&sql.replacen(&named(table), &named(name), 1))
    }

    fn replicated_by_now(&self, migration: &Migration, all: &[Migration]) -> String {
        let Some(table) = migration.table() else {
            let alters =
                |(table, _): &(_, _)| migration.sql.contains(&format!("ALTER TABLE {{database}}.{table}\n"));
            let ttl = self.ttls().into_iter().find(alters).map(|(_, ttl)| ttl);
            return with_ttl(migration.sql, ttl.as_deref());
        };
        let sql = with_ttl(&as_it_is_by_now(migration, table, all), self.ttl(table).as_deref());
        self.replicated(&sql, table, path(migration, table, all))
    }

    /// One of ours that reads rows and inserts them, with `{database}` in it.
    pub(super) fn copying(&self, sql: &str) -> String {
        match self.shards() {
            Some(_) => self.named(&shards::of_all(sql).replacen(
                "SETTINGS ",
                "SETTINGS distributed_foreground_insert = 1, ",
                1,
            )),
            None => self.named(sql),
        }
    }

    /// Tables whose rows go after a time that is configured: each with its time-to-live.
    pub(super) fn ttls(&self) -> [(&'static str, String); 6] {
        let Retention { positions_days, rejects_days, rollups_days } = self.retention;
        [
            ("positions", "toDateTime(ts)", positions_days),
            ("rejects", "toDateTime(inserted_at)", rejects_days),
            ("driver_quarters_state", "quarter", rollups_days),
            ("driver_blocks_state", "block", rollups_days),
            ("episodes_state", "toDateTime(began)", rollups_days),
            ("cell_quarters_state", "quarter", rollups_days),
        ]
        .map(|(table, from, days)| (table, format!("{from} + toIntervalDay({days})")))
    }

    fn ttl(&self, table: &str) -> Option<String> {
        self.ttls().into_iter().find(|(known, _)| *known == table).map(|(_, ttl)| ttl)
    }

    /// One of ours, with `{database}` in it.
    ///
    /// # Panics
    /// As [`Layout::migration`].
    pub(super) fn statement(&self, sql: &str) -> String {
        let sql = self.named(sql);
        match &self.cluster {
            Some(cluster) => on_cluster(&sql, cluster),
            None => sql,
        }
    }

    fn named(&self, sql: &str) -> String {
        sql.replace("{database}", &self.database)
    }

    /// With the engine's replicated form.
    fn replicated(&self, sql: &str, table: &str, path: &str) -> String {
        let own_ledger = self.replication == Replication::Macros && self.cluster.is_none();
        if table == LEDGER && own_ledger {
            return sql.to_owned(); // each host records what was done on it
        }
        let Some((before, engine, after)) = engine(sql) else { return sql.to_owned() };
        let (name, arguments) = engine.split_once('(').unwrap_or((engine, ")"));
        let arguments = arguments.trim_end_matches(')');
        // Written out, not `{table}`: a table that is renamed keeps its path. There is one ledger for all shards.
        let path = match table == LEDGER || self.shards && shards::is_on_every_host(table) {
            true => format!("'/clickhouse/tables/{{database}}/{table}', '{{shard}}-{{replica}}'"),
            false => format!("'/clickhouse/tables/{{database}}/{path}/{{shard}}', '{{replica}}'"),
        };
        let path = if self.replication == Replication::Macros { path } else { String::new() };
        let all: Vec<&str> = [&*path, arguments].into_iter().filter(|part| !part.is_empty()).collect();
        let all = if all.is_empty() { String::new() } else { format!("({})", all.join(", ")) };
        format!("{before}Replicated{name}{all}{}", after.replace(WINDOW, REPLICATED_WINDOW))
    }
}

/// A table that is moved is another one to Keeper: it has its file's name there.
fn path(create: &Migration, table: &'static str, all: &[Migration]) -> &'static str {
    let is_first = all.iter().all(|other| other.table() != Some(table) || other.version >= create.version);
    if is_first { table } else { create.name.split_once('_').map_or(create.name, |(_, name)| name) }
}

/// What stands before a table's engine, the engine with its arguments, and what follows.
fn engine(sql: &str) -> Option<(&str, &str, &str)> {
    let begin = sql.find("\nENGINE = ")? + "\nENGINE = ".len();
    let name = sql[begin..].find(|c: char| !c.is_alphanumeric())?;
    let is_ours = sql[begin..begin + name].ends_with("MergeTree");
    let arguments = &sql[begin + name..];
    let end = if arguments.starts_with('(') { arguments.find(')')? + 1 } else { 0 };
    let end = begin + name + end;
    is_ours.then(|| (&sql[..begin], &sql[begin..end], &sql[end..]))
}

/// The CREATE of a table with what later files add to its columns and change in its time-to-live.
fn as_it_is_by_now(create: &Migration, table: &str, all: &[Migration]) -> String {
    let mut sql = create.sql.to_owned();
    let alter = format!("ALTER TABLE {{database}}.{table}\n");
    for later in all.iter().filter(|later| later.version > create.version) {
        let Some((_, change)) = later.sql.split_once(&alter) else { continue };
        let change = change.trim();
        if let Some(column) = change.strip_prefix("ADD COLUMN IF NOT EXISTS ") {
            let (columns, engine) =
                sql.split_once("\n)\nENGINE").expect("a list of columns, then the engine");
            sql = format!("{columns},\n    {column}\n)\nENGINE{engine}");
        } else if let Some(ttl) = change.strip_prefix("MODIFY TTL ") {
            let ttl = ttl.split('\n').next().unwrap_or_default();
            let lines = sql.lines().map(|line| match line.starts_with("TTL ") {
                true => format!("TTL {ttl}"),
                false => line.to_owned(),
            });
            sql = lines.collect::<Vec<_>>().join("\n");
        }
    }
    sql
}

/// A statement that gives a table a time-to-live gives it this one.
fn with_ttl(sql: &str, ttl: Option<&str>) -> String {
    let Some(ttl) = ttl else { return sql.to_owned() };
    let line = |line: &str| {
        let keyword = ["TTL ", "    MODIFY TTL "].into_iter().find(|keyword| line.starts_with(keyword));
        keyword.map_or_else(|| line.to_owned(), |keyword| format!("{keyword}{ttl}"))
    };
    sql.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// After its leading comment.
fn text(sql: &str) -> &str {
    let mut text = sql;
    while let Some(rest) = text.strip_prefix("--") {
        text = rest.split_once('\n').map_or("", |(_, text)| text);
    }
    text.trim_end()
}

fn on_cluster(sql: &str, cluster: &str) -> String {
    let text = text(sql);
    let on = format!("ON CLUSTER '{cluster}'");
    if ON_ONE_HOST.iter().any(|begin| text.starts_with(begin)) {
        return text.to_owned();
    }
    if WITH_TWO_NAMES.iter().any(|begin| text.starts_with(begin)) {
        return format!("{text} {on}");
    }
    if let Some(name) = text.strip_prefix(BEFORE_ON_CLUSTER) {
        return format!("{BEFORE_ON_CLUSTER}{on} {name}");
    }
    let begin = BEFORE_A_NAME.iter().find_map(|begin| text.strip_prefix(begin).map(|_| begin.len()));
    let begin = begin.unwrap_or_else(|| panic!("where does ON CLUSTER stand in {text}?"));
    let name = text[begin..].find(|c: char| c.is_whitespace()).unwrap_or(text.len() - begin);
    format!("{} {on}{}", &text[..begin + name], &text[begin + name..])
}

#[cfg(test)]
mod tests {
    use super::super::files::MIGRATIONS;
    use super::*;
    use crate::config::Config;

    fn layout(toml: &str) -> Layout {
        Layout::new(&Config::parse(&format!("[clickhouse]\n{toml}")).unwrap().clickhouse)
    }

    fn rendered(toml: &str, name: &str) -> String {
        let migration = MIGRATIONS.iter().find(|migration| migration.name == name).unwrap();
        layout(toml).migration(migration, MIGRATIONS, false).remove(0)
    }

    const CLUSTER: &str = "replication = 'macros'\ncluster = '{cluster}'";

    #[test]
    fn a_host_that_comes_later_does_not_shorten_what_others_keep() {
        let sql = rendered("replication = 'macros'\nretention.rejects_days = 90", "009_rejects_ttl");
        assert!(sql.contains("\n    MODIFY TTL toDateTime(inserted_at) + toIntervalDay(90)\n"), "{sql}");
    }

    #[test]
    fn for_one_server_a_file_is_its_text() {
        for migration in MIGRATIONS {
            let sql = layout("").migration(migration, MIGRATIONS, false);
            assert_eq!(sql, [migration.sql.replace("{database}", "fleet")]);
        }
    }

    #[test]
    fn a_table_gets_its_engine_its_path_and_the_replicated_window() {
        for (toml, engine) in [
            (
                "replication = 'macros'",
                "ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/fleet/positions/{shard}', '{replica}')\n",
            ),
            ("replication = 'managed'", "ENGINE = ReplicatedReplacingMergeTree\n"),
        ] {
            let sql = rendered(toml, "002_positions");
            assert!(sql.contains(&format!("{engine}PARTITION BY toYYYYMM(ts)\nPRIMARY KEY")), "{sql}");
            let settings = "SETTINGS replicated_deduplication_window = 10000, \
                            replicated_deduplication_window_seconds = 604800, fsync_after_insert = 1";
            assert!(sql.contains(settings) && !sql.contains("non_replicated"), "{sql}");
        }
        let create = Migration {
            version: 1,
            name: "001_t",
            sql: "CREATE TABLE IF NOT EXISTS {database}.t\n(\n    n UInt8\n)\nENGINE = ReplacingMergeTree(n)\nORDER BY n",
        };
        let sql = |toml| layout(toml).migration(&create, &[], true).remove(0);
        let path = "('/clickhouse/tables/fleet/t/{shard}', '{replica}', n)\nORDER BY n";
        assert!(sql("replication = 'macros'").contains(path), "{}", sql("replication = 'macros'"));
        assert!(
            sql("replication = 'managed'").contains("Tree(n)\nORDER"),
            "{}",
            sql("replication = 'managed'")
        );
    }

    #[test]
    fn a_new_host_gets_positions_as_it_is_by_now() {
        let find = |name: &str| MIGRATIONS.iter().find(|migration| migration.name == name).unwrap();
        let (by_driver, by_day) = (find("002_positions"), &BY_DAY_FILE);
        let anew = |toml| layout(toml).migration(by_driver, MIGRATIONS, true).remove(0);
        assert_eq!(anew(""), by_day.sql.replace("{database}", "fleet"));
        for toml in [CLUSTER, "replication = 'managed'"] {
            assert!(anew(toml).contains("PRIMARY KEY (toDate(ts), driver_id)\n"), "{}", anew(toml));
            assert!(anew(toml).contains("EXISTS fleet.positions"), "{}", anew(toml));
        }
        // To Keeper they are two tables, whatever they are called by now.
        let path = "('/clickhouse/tables/fleet/positions_by_day/{shard}', '{replica}')\n";
        assert!(anew(CLUSTER).contains(path), "{}", anew(CLUSTER));
        let old = layout(CLUSTER).migration(by_driver, MIGRATIONS, false).remove(0);
        assert!(old.contains("('/clickhouse/tables/fleet/positions/{shard}', '{replica}')\n"), "{old}");

        let sharded = layout(&format!("{CLUSTER}\nshards = true")).migration(by_driver, MIGRATIONS, true);
        assert!(sharded[0].contains("ORDER BY (toDate(ts), ") && sharded[0].contains(path), "{sharded:?}");
        assert!(sharded[1].contains("EXISTS fleet.positions_all ON CLUSTER"), "{sharded:?}");

        let second = layout(CLUSTER).beside(by_day, MIGRATIONS, "second");
        let begin = "CREATE TABLE IF NOT EXISTS fleet.second ON CLUSTER '{cluster}'\n(";
        assert!(second.contains(begin) && second.contains(path), "{second}");
        let later = Migration {
            version: 99,
            name: "099_more",
            sql: "ALTER TABLE {database}.positions\n    ADD COLUMN IF NOT EXISTS more UInt8",
        };
        let all = [MIGRATIONS, &[later]].concat();
        for toml in [CLUSTER, ""] {
            let second = layout(toml).beside(by_day, &all, "second");
            assert!(second.contains(",\n    more UInt8\n)\nENGINE"), "{second}");
        }
    }

    #[test]
    fn the_ledger_is_one_for_all_hosts_that_are_reached_at_once() {
        let ledger = |toml| rendered(toml, "001_schema_migrations");
        assert!(ledger("replication = 'macros'").contains("\nENGINE = ReplacingMergeTree\n"));
        let path =
            "ReplicatedReplacingMergeTree('/clickhouse/tables/fleet/schema_migrations', '{shard}-{replica}')";
        assert!(ledger(CLUSTER).contains(path), "{}", ledger(CLUSTER));
        let fences = rendered(&format!("{CLUSTER}\nshards = true"), "030_fences");
        let path = "MergeTree('/clickhouse/tables/fleet/fences', '{shard}-{replica}', written_at)";
        assert!(fences.contains(path), "every shard joins its fixes with all of them: {fences}");
        assert!(rendered(CLUSTER, "030_fences").contains("/fences/{shard}', '{replica}', written_at)"));
        assert!(ledger("replication = 'managed'").contains("\nENGINE = ReplicatedReplacingMergeTree\n"));
    }

    #[test]
    fn a_table_is_made_as_later_files_leave_it() {
        let sql = rendered("replication = 'macros'", "007_rejects");
        assert!(sql.contains("\nTTL toDateTime(inserted_at) + toIntervalDay(30)\n"), "{sql}");
        assert!(!sql.contains("received_at) + INTERVAL"), "{sql}");
        let last =
            "How many refusals this row stands for',\n    inserted_at DateTime64(3, 'UTC') DEFAULT now64(3)";
        assert!(sql.contains(last), "{sql}");
        let sql = rendered("replication = 'managed'", "002_positions");
        assert!(sql.contains("COMMENT 'Metres',\n    attributes Map("), "{sql}");
        // What changes a table is known above, or leaves what Keeper compares alone.
        for migration in MIGRATIONS.iter().filter(|migration| text(migration.sql).starts_with("ALTER TABLE "))
        {
            let change = text(migration.sql).split_once('\n').unwrap().1.trim();
            let known = ["ADD COLUMN IF NOT EXISTS ", "MODIFY TTL ", "MODIFY COMMENT ", "COMMENT COLUMN "];
            assert!(known.iter().any(|known| change.starts_with(known)), "{}: {change}", migration.name);
        }
    }

    #[test]
    fn on_cluster_stands_where_it_must_in_every_file() {
        for toml in [CLUSTER.to_owned(), format!("{CLUSTER}\nshards = true")] {
            let rendered = |migration| layout(&toml).migration(migration, MIGRATIONS, true);
            for sql in MIGRATIONS.iter().flat_map(rendered) {
                assert_eq!(sql.matches(" ON CLUSTER '{cluster}'").count(), 1, "{sql}");
                let first = sql.lines().next().unwrap();
                assert!(first.contains(" ON CLUSTER "), "{first}");
            }
        }
        for (sql, expected) in [
            (
                "CREATE DATABASE IF NOT EXISTS {database}",
                "CREATE DATABASE IF NOT EXISTS fleet ON CLUSTER '{cluster}'",
            ),
            (
                "-- What it is for.\nEXCHANGE TABLES {database}.a AND {database}.b\n",
                "EXCHANGE TABLES fleet.a AND fleet.b ON CLUSTER '{cluster}'",
            ),
            (
                "CREATE MATERIALIZED VIEW IF NOT EXISTS {database}.v\nREFRESH EVERY 1 HOUR TO {database}.t AS SELECT 1",
                "CREATE MATERIALIZED VIEW IF NOT EXISTS fleet.v ON CLUSTER '{cluster}'\nREFRESH EVERY 1 HOUR TO fleet.t AS SELECT 1",
            ),
            ("SYSTEM SYNC REPLICA {database}.t", "SYSTEM SYNC REPLICA ON CLUSTER '{cluster}' fleet.t"),
            ("INSERT INTO {database}.t SELECT 1", "INSERT INTO fleet.t SELECT 1"),
        ] {
            assert_eq!(layout(CLUSTER).statement(sql), expected);
        }
    }
}
