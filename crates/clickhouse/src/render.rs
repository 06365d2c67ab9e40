//! Fills the templates of `sql/`: the same files create the tables of one server, of replicas and
//! of shards.
//!
//! - `{database}`: `clickhouse.database`
//! - `{on_cluster}`: ` ON CLUSTER '…'` if `clickhouse.cluster` is set, else nothing
//! - `{engine:ReplacingMergeTree}`: `ReplacingMergeTree` on one server, else its replicated form,
//!   with its path in Keeper if `clickhouse.replication` is `macros`
//! - `{tokens}`: the settings for how many insert tokens the table remembers; for a replicated
//!   table, also for how long
//! - `{no_tokens}`: the setting with which the table remembers no insert tokens
//! - `{retention:positions, toDateTime(ts)}`: when rows expire, by `clickhouse.retention`
//! - `{policy}`: the storage policy of `clickhouse.retention` and a comma, if one is configured
//! - `{shards}` before a statement: leaves the statement out unless `clickhouse.shards` is true
//! - `{all}` after a table's name: `_all`, the table that reads all shards, if `clickhouse.shards`
//!   is true, else nothing
//! - `{cluster}`: `clickhouse.cluster`
//!
//! More placeholders stand for the current columns of a fix, which `sql/columns.sql` lists. A new
//! table is created with all of them; a later migration adds the missing ones to existing tables
//! (docs/add-a-field.md).
//!
//! - `{stored}`: the columns of `positions` and `last_positions_state`: the first section of
//!   `sql/columns.sql`, then those of `[fields.NAME]`
//! - `{stored_plain}`: the same columns with the server's default compression
//! - `{add_stored}`, `{add_stored_plain}`: `ADD COLUMN IF NOT EXISTS` for each of these columns
//!   except the fields
//! - `{shown}`: the columns of `fixes` and `last_positions`: the second section of
//!   `sql/columns.sql`, then those of `[fields.NAME]`
//! - `{shown_names}`: the names of the shown columns
//! - `{again:011_fixes}` as a statement: the statements of that earlier file
//!
//! Everything else in braces is a parameter of a view, with its type: `{driver:String}`. Statements
//! end with `;` at the end of a line.

use super::column;
use super::files::{MIGRATIONS, Migration, SCHEMA_MIGRATIONS};
use milepost_config as config;
use milepost_config::{Field, Replication, Retention, Tier};

/// The setting for how many insert tokens a table remembers.
const TOKENS: &str = "non_replicated_deduplication_window = 10000";
/// Replicated tables also forget a token after some time. The default is an hour; a week is longer
/// than milepost retries a batch with one token.
const REPLICATED_TOKENS: &str =
    "replicated_deduplication_window = 10000, replicated_deduplication_window_seconds = 604800";
/// Setting of tables that people fill with INSERT: they may insert the same values again.
const NO_TOKENS: &str = "non_replicated_deduplication_window = 0";
/// The setting [`NO_TOKENS`] of replicated tables.
const REPLICATED_NO_TOKENS: &str = "replicated_deduplication_window = 0";
/// Beginning of the placeholder for a table's time-to-live.
const RETENTION: &str = "{retention:";
/// The table of the numbers of rows inserted for each day.
const TOUCHED: &str = "touched";
/// Number of days by which rows of [`TOUCHED`] expire before fixes. The roll-up computes only days
/// with a row there, so it never computes a day again of which fixes have expired, even if their
/// retention is prolonged later.
const TOUCHED_DAYS_LESS: u32 = 2;
/// The columns of a fix, in two sections: see [`sections`].
const COLUMNS: &str = include_str!("../../../sql/columns.sql");

/// The layout of the tables: on one server, on replicas, or on shards.
pub(super) struct Layout {
    pub(super) config: config::ClickHouse,
}

impl Layout {
    pub(super) fn new(config: &config::ClickHouse) -> Self {
        Self { config: config.clone() }
    }

    /// Returns the cluster whose hosts one statement reaches.
    pub(super) fn cluster(&self) -> Option<&str> {
        self.config.cluster.as_deref()
    }

    /// Returns the cluster if its shards have different rows (`clickhouse.shards`).
    pub(super) fn shards(&self) -> Option<&str> {
        self.cluster().filter(|_| self.config.shards)
    }

    /// Returns the storage policy of `positions`, if one is configured.
    pub(super) fn policy(&self) -> Option<&str> {
        self.config.retention.positions_policy.as_deref()
    }

    /// Returns the place where a statement runs, for logs and plans.
    pub(super) fn place(&self) -> String {
        match (&self.config.cluster, self.config.replication) {
            (Some(cluster), _) => format!("on all hosts of the cluster {cluster}"),
            (None, Replication::None) => "on this server".to_owned(),
            (None, Replication::Macros) => "on this host alone; run it on each".to_owned(),
            (None, Replication::Managed) => "on all replicas, by the database itself".to_owned(),
        }
    }

    /// Renders a file. Returns its statements in order.
    ///
    /// # Panics
    /// The file has a placeholder that this module does not list. A test renders every file.
    pub(super) fn render_file(&self, migration: &Migration) -> Vec<String> {
        let mut statements = Vec::new();
        for statement in migration.sql.trim_end().split(";\n").map(str::trim_start) {
            if let Some(name) = statement.strip_prefix("{again:") {
                statements.extend(self.earlier_file(name.trim_end_matches('}'), migration));
                continue;
            }
            match statement.strip_prefix("{shards}") {
                Some(_) if self.shards().is_none() => {}
                Some(statement) => statements.push(self.replace_placeholders(statement, migration)),
                None => statements.push(self.replace_placeholders(statement, migration)),
            }
        }
        statements
    }

    /// Returns the statements of the earlier file `name`, for `{again:NAME}` in `migration`.
    fn earlier_file(&self, name: &str, migration: &Migration) -> Vec<String> {
        let earlier = MIGRATIONS
            .iter()
            .find(|earlier| earlier.name == name && earlier.version < migration.version);
        self.render_file(
            earlier
                .unwrap_or_else(|| panic!("{}: no earlier file is named {name}", migration.name)),
        )
    }

    /// Renders a statement that is not in a file. It may use `{database}`, `{on_cluster}` and
    /// `{all}`.
    pub(super) fn render(&self, sql: &str) -> String {
        self.replace_placeholders(sql, &Migration { version: 0, name: "", sql: "" })
    }

    /// Returns the last fixed column in a table of fixes. The columns of `[fields.NAME]` follow it.
    pub(super) fn last_fixed_column(&self) -> &'static str {
        let [stored, _] = sections();
        column_lines(stored).last().and_then(column_name).expect("a column")
    }

    /// Returns every table whose rows expire, with its time-to-live.
    pub(super) fn ttls(&self) -> Vec<(&'static str, String)> {
        let ttl = |migration: &Migration| {
            let (_, after) = migration.sql.split_once(RETENTION)?;
            let (arguments, _) = after.split_once('}')?;
            let table = migration.table()?;
            Some((table, self.render_ttl(table, arguments)))
        };
        MIGRATIONS.iter().filter_map(ttl).collect()
    }

    /// Replaces the placeholders of one statement.
    fn replace_placeholders(&self, template: &str, migration: &Migration) -> String {
        let mut filled = String::with_capacity(template.len());
        let mut remaining = template;
        while let Some((before, after)) = remaining.split_once('{') {
            let (placeholder, after) = after
                .split_once('}')
                .unwrap_or_else(|| panic!("{}: a brace is left open", migration.name));
            filled.push_str(before);
            match placeholder.split_once(':') {
                None => filled.push_str(&self.value_of(placeholder, migration)),
                Some(("engine", engine)) => filled.push_str(&self.engine(engine, migration)),
                Some(("retention", arguments)) => {
                    let table = migration.table().unwrap_or_default();
                    filled.push_str(&self.render_ttl(table, arguments));
                }
                Some(_) => filled.extend(["{", placeholder, "}"]),
            }
            remaining = after;
        }
        filled + remaining
    }

    /// Returns the text for a placeholder without arguments.
    fn value_of(&self, placeholder: &str, migration: &Migration) -> String {
        let [stored, shown] = sections();
        match placeholder {
            "database" => self.config.database.clone(),
            "on_cluster" => {
                self.cluster().map_or(String::new(), |cluster| format!(" ON CLUSTER '{cluster}'"))
            }
            "cluster" => self.cluster().unwrap_or_default().to_owned(),
            "all" if self.shards().is_some() => "_all".to_owned(),
            "all" => String::new(),
            "policy" => self
                .policy()
                .map_or(String::new(), |policy| format!("storage_policy = '{policy}', ")),
            "stored" => self.with_fields(stored, column::stored_definition),
            "stored_plain" => {
                self.with_fields(&with_default_codec(stored), column::stored_definition)
            }
            "add_stored" => add_columns(stored),
            "add_stored_plain" => add_columns(&with_default_codec(stored)),
            "shown" => self.with_fields(shown, column::shown_definition),
            "shown_names" => {
                let fixed = column_lines(shown).filter_map(column_name).map(str::to_owned);
                let fields = self.config.fields.iter().map(|field| format!("`{}`", field.name));
                fixed.chain(fields).collect::<Vec<_>>().join(", ")
            }
            "tokens" if self.config.replication == Replication::None => TOKENS.to_owned(),
            "tokens" => REPLICATED_TOKENS.to_owned(),
            "no_tokens" if self.config.replication == Replication::None => NO_TOKENS.to_owned(),
            "no_tokens" => REPLICATED_NO_TOKENS.to_owned(),
            unknown => panic!("{}: there is no placeholder {{{unknown}}}", migration.name),
        }
    }

    /// Returns a section of columns, followed by those of `[fields.NAME]`.
    fn with_fields(&self, section: &str, render: fn(&Field) -> String) -> String {
        let fields = self.config.fields.iter().map(|field| format!(",\n    {}", render(field)));
        std::iter::once(section.to_owned()).chain(fields).collect()
    }

    /// Returns the engine `name(arguments)` in its form for this layout.
    fn engine(&self, engine: &str, migration: &Migration) -> String {
        let table = migration.table().unwrap_or_default();
        let is_per_host = table == SCHEMA_MIGRATIONS
            && self.config.replication == Replication::Macros
            && self.config.cluster.is_none();
        if self.config.replication == Replication::None || is_per_host {
            return engine.to_owned(); // without a cluster, each host records its own migrations
        }
        // The path contains the table's name instead of the macro `{table}`, so that a renamed
        // table keeps its path. A table that is not sharded has one path on all shards.
        let database = &self.config.database;
        let has_one_path =
            table == SCHEMA_MIGRATIONS || self.config.shards && migration.sharded_table().is_none();
        let path = if has_one_path {
            format!("'/clickhouse/tables/{database}/{table}', '{{shard}}-{{replica}}'")
        } else {
            format!("'/clickhouse/tables/{database}/{table}/{{shard}}', '{{replica}}'")
        };
        let (name, arguments) = engine.split_once('(').unwrap_or((engine, ")"));
        let arguments = arguments.trim_end_matches(')');
        match (self.config.replication, arguments.is_empty()) {
            (Replication::Macros, true) => format!("Replicated{name}({path})"),
            (Replication::Macros, false) => format!("Replicated{name}({path}, {arguments})"),
            (Replication::Managed | Replication::None, _) => format!("Replicated{engine}"),
        }
    }

    /// Renders the time-to-live of `key, time` for a table: a key of `clickhouse.retention`, and
    /// the column from which a row's age is counted.
    fn render_ttl(&self, table: &str, arguments: &str) -> String {
        let (key, time) =
            arguments.split_once(", ").expect("a key of clickhouse.retention, and a time");
        let Retention {
            positions_days,
            positions_tier,
            positions_policy: _,
            rejects_days,
            rollups_days,
        } = &self.config.retention;
        let (days, tier) = match key {
            "positions" => (*positions_days, positions_tier.as_ref()),
            "rejects" => (*rejects_days, None),
            _ if table == TOUCHED => (positions_days.saturating_sub(TOUCHED_DAYS_LESS), None),
            "rollups" => (*rollups_days, None),
            unknown => panic!("there is no clickhouse.retention.{unknown}_days"),
        };
        let moves = tier.map_or(String::new(), |Tier { volume, after_days }| {
            format!("{time} + toIntervalDay({after_days}) TO VOLUME '{volume}', ")
        });
        format!("{moves}{time} + toIntervalDay({days})")
    }
}

/// Returns the columns for `{stored}` and `{shown}`, each section with its leading comment.
fn sections() -> [&'static str; 2] {
    let sections: Vec<_> = COLUMNS.trim_end().split("\n\n").skip(1).collect();
    sections.try_into().expect("an empty line before each of the two sections, and no other")
}

/// Returns the section with the server's default compression for every column.
fn with_default_codec(section: &str) -> String {
    let with_default = |line: &str| match line.split_once("CODEC(") {
        Some((column, rest)) => {
            let (_, comment) = rest.split_once("COMMENT").expect("a comment after the codec");
            format!("{column}CODEC(Default) COMMENT{comment}")
        }
        None => line.to_owned(),
    };
    section.lines().map(with_default).collect::<Vec<_>>().join("\n")
}

/// Returns the clauses that add each column at its place in `sql/columns.sql`, before the columns
/// of `[fields.NAME]`.
fn add_columns(section: &str) -> String {
    let mut added = String::new();
    let mut previous = None;
    for line in column_lines(section) {
        let (column, comma) = line.strip_suffix(',').map_or((line, ""), |column| (column, ","));
        let after = previous.map_or(String::new(), |previous| format!(" AFTER {previous}"));
        added += &format!("\n    ADD COLUMN IF NOT EXISTS {column}{after}{comma}");
        previous = column_name(line);
    }
    added
}

/// Returns the name of the column in a section's line.
fn column_name(line: &str) -> Option<&str> {
    line.split(' ').next()
}

/// Returns the lines of a section, each with its comma.
fn column_lines(section: &str) -> impl Iterator<Item = &str> {
    section.lines().map(str::trim).filter(|line| !line.starts_with("--"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use milepost_config::Config;

    const CLUSTER: &str = "replication = 'macros'\ncluster = 'c'";
    const SHARDS: &str = "replication = 'macros'\ncluster = 'c'\nshards = true";
    const LAYOUTS: [&str; 5] =
        ["", "replication = 'macros'", "replication = 'managed'", CLUSTER, SHARDS];

    fn layout(toml: &str) -> Layout {
        Layout::new(&Config::parse(&format!("[clickhouse]\n{toml}")).unwrap().clickhouse)
    }

    fn rendered(toml: &str, name: &str) -> Vec<String> {
        layout(toml)
            .render_file(MIGRATIONS.iter().find(|migration| migration.name == name).unwrap())
    }

    #[test]
    fn every_file_renders_for_every_layout() {
        for toml in LAYOUTS {
            for migration in MIGRATIONS {
                for sql in layout(toml).render_file(migration) {
                    let first = sql.lines().find(|line| !line.starts_with("--"));
                    let first = first
                        .unwrap_or_else(|| panic!("a semicolon ends a line of a comment: {sql}"));
                    let is_one_statement = !sql.contains(";\n") && !sql.ends_with(';');
                    assert!(is_one_statement, "{toml}: must be one statement: {sql}");
                    let is_known = ["CREATE ", "ALTER ", "DROP VIEW IF EXISTS "]
                        .iter()
                        .any(|start| first.starts_with(start));
                    assert!(is_known, "{toml}: {sql}");
                    let on_cluster = usize::from(toml.contains("cluster"));
                    assert_eq!(
                        first.matches(" ON CLUSTER 'c'").count(),
                        on_cluster,
                        "{toml}: {sql}"
                    );
                    assert_eq!(sql.matches(" ON CLUSTER ").count(), on_cluster, "{toml}: {sql}");
                    let is_plain = toml.is_empty() || !sql.contains("_deduplication_window");
                    assert!(is_plain || !sql.contains("non_replicated"), "{toml}: {sql}");
                }
            }
        }
    }

    #[test]
    fn table_has_the_engine_path_and_settings_of_its_replication() {
        for (toml, engine) in [
            ("", "ENGINE = ReplacingMergeTree\n"),
            (
                "replication = 'macros'",
                "ENGINE = ReplicatedReplacingMergeTree(\
                 '/clickhouse/tables/fleet/positions/{shard}', '{replica}')\n",
            ),
            ("replication = 'managed'", "ENGINE = ReplicatedReplacingMergeTree\n"),
        ] {
            let sql = rendered(toml, "010_positions").remove(0);
            assert!(
                sql.contains(&format!("{engine}PARTITION BY toYYYYMM(ts)\nPRIMARY KEY")),
                "{sql}"
            );
            assert_eq!(sql.contains(REPLICATED_TOKENS), !toml.is_empty(), "{sql}");
        }
        let fences = rendered("replication = 'macros'", "040_fences").remove(0);
        assert!(
            fences.contains("/fences/{shard}', '{replica}', written_at)\nORDER BY"),
            "{fences}"
        );
        let fences = rendered("replication = 'managed'", "040_fences").remove(0);
        assert!(fences.contains("ENGINE = ReplicatedReplacingMergeTree(written_at)\n"), "{fences}");
    }

    #[test]
    fn hosts_that_one_statement_reaches_share_schema_migrations() {
        let table = |toml| rendered(toml, "001_schema_migrations").remove(0);
        assert!(table("replication = 'macros'").contains("\nENGINE = ReplacingMergeTree\n"));
        let path = "ReplicatedReplacingMergeTree(\
                    '/clickhouse/tables/fleet/schema_migrations', '{shard}-{replica}')";
        assert!(table(CLUSTER).contains(path), "{}", table(CLUSTER));
        assert!(
            table("replication = 'managed'").contains("\nENGINE = ReplicatedReplacingMergeTree\n")
        );
    }

    #[test]
    fn only_sharded_tables_get_a_distributed_table() {
        let positions = rendered(SHARDS, "010_positions");
        assert_eq!(
            positions[1],
            "CREATE TABLE IF NOT EXISTS fleet.positions_all ON CLUSTER 'c'\nAS fleet.positions\n\
             ENGINE = Distributed('c', 'fleet', 'positions', cityHash64(driver_id))"
        );
        assert_eq!(rendered(CLUSTER, "010_positions").len(), 1);
        let fences = rendered(SHARDS, "040_fences").remove(0);
        let path = "MergeTree('/clickhouse/tables/fleet/fences', '{shard}-{replica}', written_at)";
        assert!(fences.contains(path), "every shard must have all fences: {fences}");
        let fixes = rendered(SHARDS, "011_fixes").remove(0);
        assert!(fixes.contains("FROM fleet.positions_all FINAL"), "{fixes}");
    }

    #[test]
    fn retention_sets_when_rows_expire() {
        let toml = "retention.positions_days = 50\nretention.rejects_days = 7\n\
                    retention.rollups_days = 90";
        let sql = rendered(toml, "010_positions").remove(0);
        assert!(sql.contains("\nTTL toDateTime(ts) + toIntervalDay(50)\n"), "{sql}");
        assert!(!sql.contains("storage_policy"), "{sql}");
        let tiered = rendered(
            "retention.positions_volume = 'cold'\nretention.positions_policy = 'tiered'\n\
             retention.positions_days = 399",
            "010_positions",
        )
        .remove(0);
        let ttl = "\nTTL toDateTime(ts) + toIntervalDay(30) TO VOLUME 'cold', \
                   toDateTime(ts) + toIntervalDay(399)\n";
        assert!(tiered.contains(ttl), "{tiered}");
        assert!(
            tiered.contains("\nSETTINGS storage_policy = 'tiered', index_granularity"),
            "{tiered}"
        );
        let ttls = layout(toml).ttls();
        assert!(
            ttls.contains(&("rejects", "toDateTime(inserted_at) + toIntervalDay(7)".to_owned())),
            "{ttls:?}"
        );
        let rollups = ttls.iter().filter(|(_, ttl)| ttl.contains("(90)")).map(|(table, _)| *table);
        assert_eq!(
            rollups.collect::<Vec<_>>(),
            ["events", "event_states", "alerts_seen", "driver_days_state"]
        );
        // The roll-up must not compute a day again of which fixes have expired.
        assert!(ttls.contains(&("touched", "day + toIntervalDay(48)".to_owned())), "{ttls:?}");
        let touched = rendered(toml, "100_touched").remove(0);
        assert!(touched.contains("\nTTL day + toIntervalDay(48)\n"), "{touched}");
    }

    #[test]
    fn later_migration_adds_columns_and_recreates_views() {
        let later = Migration {
            version: 400,
            name: "400_hdop",
            sql: "-- Why.\nALTER TABLE {database}.positions{on_cluster} {add_stored};\n\
                  {shards}ALTER TABLE {database}.positions_all{on_cluster} {add_stored};\n\
                  {again:011_fixes}\n",
        };
        let sql = layout("").render_file(&later);
        assert!(
            sql[0].starts_with(
                "-- Why.\nALTER TABLE fleet.positions \n    \
                 ADD COLUMN IF NOT EXISTS driver_id    String "
            ),
            "{sql:?}"
        );
        assert!(
            sql[0].ends_with("COMMENT 'Horizontal accuracy, metres; NULL: unknown' AFTER alt")
                && sql[0].contains("',\n    ADD COLUMN IF NOT EXISTS ts ")
                && sql[0].contains("' AFTER driver_id,\n    ADD COLUMN IF NOT EXISTS seq "),
            "{sql:?}"
        );
        assert_eq!(sql[1..], rendered("", "011_fixes"));
        let sharded = layout(SHARDS).render_file(&later);
        assert!(
            sharded[1]
                .starts_with("ALTER TABLE fleet.positions_all ON CLUSTER 'c' \n    ADD COLUMN"),
            "{sharded:?}"
        );
        assert_eq!(sharded[2..], rendered(SHARDS, "011_fixes"));
    }

    #[test]
    fn fixes_and_last_positions_show_the_same_columns() {
        let select = |name: &str| {
            let sql = rendered("", name).remove(0);
            sql.lines().find(|line| line.starts_with("AS SELECT ")).unwrap().to_owned()
        };
        assert_eq!(select("011_fixes"), select("022_last_positions"));
        assert!(
            select("011_fixes").starts_with("AS SELECT driver_id, ts, seq, lat, lng, "),
            "{}",
            select("011_fixes")
        );
    }

    #[test]
    #[should_panic(expected = "there is no placeholder {on_clustr}")]
    fn unknown_placeholder_panics() {
        layout("").render("DROP TABLE {database}.t{on_clustr}");
    }
}
