//! Columns of `[fields.NAME]`. ClickHouse computes the value from `attributes` when a row is
//! inserted. For a row that was stored before the column existed, ClickHouse computes the value
//! when the row is read or merged.
//!
//! The tables are the only record of the existing fields. The comment of a field's column ends with
//! the field's origin, such as `[field from batt; min 0; max 100]`.
//!
//! Guarantee: a value satisfies the field's type and limits, or is NULL. Inserts do not name these
//! columns, so processes with other fields keep inserting.

use std::collections::BTreeSet;

use tracing::info;

use super::client::{ClickHouse, Error};
use super::column::{column_type, comment, list, origin, origin_in, quoted, stored_definition};
use super::files::{MIGRATIONS, Migration};
use super::query_names::names_in_queries;
use super::render::Layout;
use super::shards;
use milepost_config::Field;

/// The tables of fixes, in the order in which columns are added. Inserts into `positions` fill
/// `last_positions_state`, so the latter must get each new column first.
const TABLES: [&str; 2] = ["last_positions_state", "positions"];
/// The views of fixes: the file that creates each, and its name.
const VIEWS: [(&str, &str); 2] = [("011_fixes", "fixes"), ("022_last_positions", "last_positions")];

/// Separates the different comments of one column in ClickHouse's answer.
const COMMENT_SEPARATOR: char = '\u{1f}';

/// A column of a table, on all hosts that have it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Column {
    table: String,
    name: String,
    /// The column's type. If the hosts differ, all types, joined by "and".
    kind: String,
    /// The column's comment. If the hosts differ, all comments.
    comments: Vec<String>,
    /// Number of hosts whose table has the column.
    hosts: usize,
}

impl Column {
    fn is_field(&self) -> bool {
        self.comments.iter().any(|comment| origin_in(comment).is_some())
    }

    /// Returns the origins of the field; there are several if the hosts differ. Returns `None` if
    /// the column is not a field's on some host.
    fn origins(&self) -> Option<BTreeSet<&str>> {
        self.comments.iter().map(|comment| origin_in(comment)).collect()
    }

    fn has_comment(&self, comment: &str) -> bool {
        self.comments.iter().all(|actual| actual == comment)
    }
}

/// The existing columns of the tables and views of fixes.
#[derive(Debug, Clone, Default)]
pub(super) struct ExistingColumns {
    columns: Vec<Column>,
}

impl ExistingColumns {
    fn column(&self, table: &str, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.table == table && column.name == name)
    }

    fn has_table(&self, table: &str) -> bool {
        self.hosts_of(table) > 0
    }

    /// Returns the number of hosts that have this table.
    fn hosts_of(&self, table: &str) -> usize {
        let columns = self.columns.iter().filter(|column| column.table == table);
        columns.map(|column| column.hosts).max().unwrap_or(0)
    }

    fn is_on_all_hosts(&self, column: &Column) -> bool {
        column.hosts >= self.hosts_of(&column.table)
    }

    /// Returns the columns in a table that are fields, configured or not.
    fn fields<'f>(&'f self, table: &'f str) -> impl Iterator<Item = &'f Column> {
        self.columns.iter().filter(move |column| column.table == table && column.is_field())
    }

    /// Returns the names of fields that have a column but are not configured.
    fn hidden<'f>(&'f self, fields: &'f [Field]) -> Vec<&'f str> {
        let is_configured = |name: &str| fields.iter().any(|field| field.name == name);
        let existing = self.fields("positions").map(|column| &*column.name);
        existing.filter(|name| !is_configured(name)).collect()
    }

    /// Returns why configured fields conflict with the tables, one line each.
    fn violations(&self, fields: &[Field]) -> Vec<String> {
        let mut violations = Vec::new();
        let reserved_names = names_in_queries();
        for field in fields {
            if reserved_names.contains(&*field.name) {
                let exists = self.is_field(&field.name);
                violations.push(reserved_name_violation(&field.name, exists));
                continue;
            }
            let column = TABLES.iter().rev().find_map(|table| self.column(table, &field.name));
            let Some(column) = column else { continue };
            let (name, table) = (&field.name, &column.table);
            let Some(origins) = column.origins() else {
                violations.push(format!(
                    "fields.{name}: {table} has a column of this name that is not a field: choose \
                     another name"
                ));
                continue;
            };
            let (kind, origin) = (column_type(&field.kind), origin(field));
            let mut differs = Vec::new();
            if column.kind != kind {
                differs.push(format!("{} but configured as {kind}", column.kind));
            }
            if origins.iter().any(|actual| *actual != origin) {
                let actual = origins.into_iter().collect::<Vec<_>>().join(" and ");
                differs.push(format!("{actual} but configured as {origin}"));
            }
            if !differs.is_empty() {
                violations.push(format!(
                    "fields.{name}: the column is {}. Stored values do not change: either give the \
                     new field another name, so that it is computed from `attributes`, for stored \
                     fixes too; or have this field computed again with `milepost migrate \
                     --drop-field {name}` (repeat the option for several fields)",
                    differs.join(", ")
                ));
            }
        }
        violations
    }

    /// Returns whether a table has a field of this name, configured or not.
    fn is_field(&self, name: &str) -> bool {
        TABLES.iter().any(|table| self.fields(table).any(|column| column.name == name))
    }

    /// Returns advice for each column of `positions` that is not in the configuration and has a
    /// name that milepost's queries define.
    fn name_conflicts(&self, fields: &[Field]) -> Vec<String> {
        let reserved_names = names_in_queries();
        let is_configured = |name: &str| fields.iter().any(|field| field.name == name);
        let columns = self.columns.iter().filter(|column| column.table == "positions");
        let names = columns
            .map(|column| &*column.name)
            .filter(|name| reserved_names.contains(name) && !is_configured(name));
        names
            .map(|name| {
                let remedy = if self.is_field(name) {
                    format!("drop it with `milepost migrate --drop-field {name}`")
                } else {
                    "rename it with ALTER TABLE … RENAME COLUMN".to_owned()
                };
                format!("positions has a column {name}, {RESERVED_NAME}: {remedy}")
            })
            .collect()
    }

    /// Returns the statements that add the configured columns to the tables, or change the comments
    /// of existing columns, each with its purpose.
    fn table_changes(&self, layout: &Layout) -> Vec<(String, String)> {
        let fields = &layout.config.fields;
        let mut changes = Vec::new();
        for table in tables_of_fixes(layout).filter(|table| self.has_table(table)) {
            let mut clauses = Vec::new();
            let mut names: Vec<&str> = self.fields(&table).map(|column| &*column.name).collect();
            for field in fields {
                // The columns of fields are in alphabetical order, so that a host that joins later
                // creates the same table.
                let previous = names.iter().filter(|name| ***name < *field.name).max();
                let previous = previous.copied().unwrap_or(layout.last_fixed_column());
                match self.column(&table, &field.name) {
                    Some(column) if self.is_on_all_hosts(column) => {
                        if !column.has_comment(&comment(field)) {
                            let comment = quoted(&comment(field));
                            clauses.push(format!("COMMENT COLUMN `{}` {comment}", field.name));
                        }
                    }
                    Some(_) | None => {
                        clauses.push(format!(
                            "ADD COLUMN IF NOT EXISTS {} AFTER `{previous}`",
                            stored_definition(field)
                        ));
                    }
                }
                names.push(&field.name);
            }
            if !clauses.is_empty() {
                changes.push((format!("fields of {table}"), alter(layout, &table, &clauses)));
            }
        }
        changes
    }

    /// Returns the files of the views that show other fields than the configured ones.
    fn stale_views(&self, fields: &[Field]) -> Vec<&'static Migration> {
        let is_stale = |view: &str| {
            let shown: Vec<_> = (self.fields(view))
                .map(|column| (&*column.name, column.kind.clone(), column.comments.clone()))
                .collect();
            let configured: Vec<_> = (fields.iter())
                .map(|field| (&*field.name, column_type(&field.kind), vec![comment(field)]))
                .collect();
            let is_complete = self.fields(view).all(|column| self.is_on_all_hosts(column));
            shown != configured || !is_complete
        };
        let stale = VIEWS.iter().filter(|(_, view)| is_stale(view));
        let migration = |file: &str| MIGRATIONS.iter().find(|migration| migration.name == file);
        stale.filter_map(|(file, _)| migration(file)).collect()
    }
}

/// The end of an error message: why a column must not have a name that milepost's queries define.
const RESERVED_NAME: &str = "a name that milepost's own queries define: with such a column, trips \
                             and other answers would be wrong or fail";

/// Returns the violation for a configured field with a name that milepost's queries define.
/// `exists`: whether the tables already have its column.
fn reserved_name_violation(name: &str, exists: bool) -> String {
    let remedy = if exists {
        format!(
            "rename it in the configuration and run `milepost migrate --drop-field {name}`, then \
             `milepost migrate`; the new column is computed from `attributes`, for stored fixes too"
        )
    } else {
        format!("choose another, such as {name}_value")
    };
    format!("fields.{name}: {RESERVED_NAME}: {remedy}")
}

/// Returns the tables of fixes. Distributed tables, which span all shards, come last.
fn tables_of_fixes(layout: &Layout) -> impl Iterator<Item = String> + use<> {
    let is_sharded = layout.shards().is_some();
    let distributed = TABLES.into_iter().filter(move |_| is_sharded).map(shards::distributed_name);
    TABLES.into_iter().map(str::to_owned).chain(distributed)
}

/// Returns an ALTER TABLE statement with these clauses.
fn alter(layout: &Layout, table: &str, clauses: &[String]) -> String {
    let head = layout.render(&format!("ALTER TABLE {{database}}.{table}{{on_cluster}}"));
    format!("{head}\n    {}", clauses.join(",\n    "))
}

/// Returns the statements that add the configured fields to tables and views without fields, each
/// with its purpose, for `milepost migrate --plan`.
pub(super) fn plan(layout: &Layout) -> Vec<(String, String)> {
    let column = |table: String| Column {
        table,
        name: String::new(),
        kind: String::new(),
        comments: Vec::new(),
        hosts: 1,
    };
    let existing = ExistingColumns { columns: tables_of_fixes(layout).map(column).collect() };
    let alters = existing.table_changes(layout).into_iter();
    let alters = alters.map(|(step, sql)| (format!("missing {step}"), sql));
    let views = existing.stale_views(&layout.config.fields).into_iter().flat_map(|file| {
        let step = format!("fields of {}, if they differ", file.name);
        layout.render_file(file).into_iter().map(move |sql| (step.clone(), sql))
    });
    alters.chain(views).collect()
}

impl ClickHouse {
    /// Adds the columns of fields to existing tables; new tables are created with them. Returns the
    /// columns that existed before.
    pub(super) async fn add_fields(&self) -> Result<ExistingColumns, Error> {
        let existing = self.existing_columns(self.layout.cluster()).await?;
        let violations = existing.violations(&self.layout.config.fields);
        if !violations.is_empty() {
            return Err(Error::Fields { violations });
        }
        for (step, sql) in existing.table_changes(&self.layout) {
            self.statement(&step, &sql).await?;
            info!(place = self.layout.place(), "{step} changed");
        }
        Ok(existing)
    }

    /// Recreates the views that do not show exactly the configured fields. `existing`: the existing
    /// columns; `None` if they must be read again because views were created since.
    pub(super) async fn show_fields(&self, existing: Option<ExistingColumns>) -> Result<(), Error> {
        let existing = match existing {
            Some(existing) => existing,
            None => self.existing_columns(self.layout.cluster()).await?,
        };
        self.recreate_stale_views(&self.layout, &existing).await?;
        let hidden = existing.hidden(&self.layout.config.fields);
        if !hidden.is_empty() {
            info!(
                fields = hidden.join(", "),
                "these fields are not configured: the views hide them, and their columns stay; \
                 `milepost migrate --drop-field NAME` drops one"
            );
        }
        Ok(())
    }

    /// Recreates the views that show other fields than `layout` configures.
    async fn recreate_stale_views(
        &self,
        layout: &Layout,
        existing: &ExistingColumns,
    ) -> Result<(), Error> {
        for file in existing.stale_views(&layout.config.fields) {
            for sql in layout.render_file(file) {
                self.statement(&format!("fields of {}", file.name), &sql).await?;
            }
            info!(view = file.name, place = layout.place(), "fields of a view changed");
        }
        Ok(())
    }

    /// Checks that each of these fields has a column in some table, and that no other configured
    /// field conflicts with the tables. Call this before `drop_field`: with a conflict, `migrate`
    /// would fail after the columns were already dropped.
    ///
    /// # Errors
    /// No table has one of the fields, another field conflicts, or the server refuses.
    pub async fn check_drop(&self, names: &[String]) -> Result<(), Error> {
        let existing = self.existing_columns(self.layout.cluster()).await?;
        if let Some(name) = names.iter().find(|name| !existing.is_field(name)) {
            let fields: Vec<&str> =
                existing.fields("positions").map(|column| &*column.name).collect();
            return Err(Error::NoField { name: name.clone(), existing: fields.join(", ") });
        }
        let mut others = self.layout.config.fields.clone();
        others.retain(|field| !names.contains(&field.name));
        let violations = existing.violations(&others);
        if violations.is_empty() { Ok(()) } else { Err(Error::Fields { violations }) }
    }

    /// Drops the columns of a field from every table that has them. The attributes from which the
    /// columns were computed stay.
    ///
    /// # Errors
    /// The server refuses.
    pub async fn drop_field(&self, name: &str) -> Result<(), Error> {
        let existing = self.existing_columns(self.layout.cluster()).await?;
        let fields: Vec<&str> = existing.fields("positions").map(|column| &*column.name).collect();
        // Change the views before the tables: a view that reads a dropped column fails.
        // The recreated views show the configured fields that `positions` has, except this one.
        let mut layout = Layout::new(&self.layout.config);
        layout.config.fields.retain(|field| field.name != name && fields.contains(&&*field.name));
        self.recreate_stale_views(&layout, &existing).await?;
        for table in tables_of_fixes(&layout).collect::<Vec<_>>().iter().rev() {
            if existing.has_table(table) {
                let sql = alter(&layout, table, &[format!("DROP COLUMN IF EXISTS `{name}`")]);
                self.statement(&format!("field {name} of {table}"), &sql).await?;
            }
        }
        info!(field = name, place = layout.place(), "field dropped; its values stay in attributes");
        Ok(())
    }

    /// Compares the configured fields with the tables of the host that answers, and changes
    /// nothing. Querying all hosts would require the grant REMOTE, which a login for inserts may
    /// lack.
    ///
    /// # Errors
    /// The server refuses.
    pub async fn field_changes(&self) -> Result<FieldChanges, Error> {
        let fields = &self.layout.config.fields;
        let existing = self.existing_columns(None).await?;
        let is_missing = |field: &&Field| {
            let lacks = |table: String| match existing.column(&table, &field.name) {
                Some(column) => !existing.is_on_all_hosts(column),
                None => existing.has_table(&table),
            };
            tables_of_fixes(&self.layout).any(lacks)
        };
        let violations = existing.violations(fields);
        let to_add = fields.iter().filter(is_missing).map(|field| field.name.clone()).collect();
        let stale = existing.stale_views(fields);
        let exists =
            |file: &&&Migration| file.created_object().is_some_and(|view| existing.has_table(view));
        let stale_views =
            stale.iter().filter(exists).filter_map(|file| file.created_object()).collect();
        let hidden = existing.hidden(fields).into_iter().map(str::to_owned).collect();
        let name_conflicts = existing.name_conflicts(fields);
        Ok(FieldChanges { violations, to_add, stale_views, hidden, name_conflicts })
    }

    /// Reads the columns on all hosts of this cluster; without a cluster, on the host that answers.
    async fn existing_columns(&self, cluster: Option<&str>) -> Result<ExistingColumns, Error> {
        let columns = match cluster {
            None => "system.columns".to_owned(),
            Some(cluster) => format!("clusterAllReplicas('{cluster}', system.columns)"),
        };
        let names =
            tables_of_fixes(&self.layout).chain(VIEWS.iter().map(|(_, view)| (*view).to_owned()));
        let names = list(names.map(|name| quoted(&name)));
        let sql = format!(
            "SELECT table, name, arrayStringConcat(arraySort(groupUniqArray(type)), ' and '), \
             arrayStringConcat(arraySort(groupUniqArray(replaceRegexpAll(comment, '\\s', ' '))), \
             '{COMMENT_SEPARATOR}'), toString(count()) \
             FROM {columns} WHERE database = '{}' AND table IN ({names}) \
             GROUP BY table, name ORDER BY table, min(position)",
            self.database
        );
        let rows: Vec<[String; 5]> =
            self.query_rows("asking for the columns of fields", &sql).await?;
        Ok(ExistingColumns { columns: rows.into_iter().map(parse_column).collect() })
    }
}

/// Parses a row of the answer.
fn parse_column([table, name, kind, comments, hosts]: [String; 5]) -> Column {
    let comments = comments.split(COMMENT_SEPARATOR).map(str::to_owned).collect();
    Column { table, name, kind, comments, hosts: hosts.parse().unwrap_or(1) }
}

/// The changes that `milepost migrate` would make for fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldChanges {
    /// Fields that conflict with the tables, each with advice.
    pub violations: Vec<String>,
    /// Fields without a column in some table.
    pub to_add: Vec<String>,
    /// Views that show other fields than the configured ones.
    pub stale_views: Vec<&'static str>,
    /// Fields that have a column but are not configured.
    pub hidden: Vec<String>,
    /// Columns that are not configured, and whose name makes milepost's queries fail, each with
    /// advice.
    pub name_conflicts: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use milepost_config::Config;

    const BATTERY: &str = "[fields.battery]\nfrom = 'batt'\ntype = 'UInt8'\nunknown = [255]\n";
    const IGNITION: &str = "[fields.ignition]\nfrom = ['io/239', 'ign']\ntype = 'Bool'\n\
                            comment = \"Key's {position}\"\n";

    fn layout(clickhouse: &str, fields: &[&str]) -> Layout {
        let toml = format!("[clickhouse]\n{clickhouse}\n{}", fields.concat());
        Layout::new(&Config::parse(&toml).unwrap().clickhouse)
    }

    fn column(table: &str, name: &str, kind: &str, comment: &str) -> Column {
        super::parse_column([table, name, kind, comment, "1"].map(str::to_owned))
    }

    /// Returns existing tables of fixes with these columns of fields.
    fn tables_with(columns: &[(&str, &str, &str)]) -> ExistingColumns {
        let tables = ["last_positions_state", "positions"];
        let fixed = tables.map(|table| column(table, "driver_id", "String", "Driver id"));
        let added = columns.iter().flat_map(|(name, kind, comment)| {
            tables.map(|table| column(table, name, kind, comment))
        });
        ExistingColumns { columns: fixed.into_iter().chain(added).collect() }
    }

    /// Returns the statements that change the two tables of fixes: `last_positions_state`, then
    /// `positions`.
    fn two_changes(existing: &ExistingColumns, layout: &Layout) -> [String; 2] {
        let statements: Vec<_> =
            existing.table_changes(layout).into_iter().map(|(_, sql)| sql).collect();
        statements.try_into().expect("a statement for each table")
    }

    #[test]
    fn field_columns_follow_the_fixed_columns_in_name_order() {
        let layout = layout("", &[BATTERY, IGNITION]);
        let existing =
            tables_with(&[("battery", "Nullable(UInt8)", "[field from batt; unknown 255]")]);
        let [of_state, of_positions] = two_changes(&existing, &layout);
        let start = "ALTER TABLE fleet.last_positions_state\n    \
                     ADD COLUMN IF NOT EXISTS `ignition` Nullable(Bool) MATERIALIZED ";
        assert!(of_state.starts_with(start), "{of_state}");
        let end =
            " CODEC(ZSTD(1)) COMMENT 'Key\\'s {position} [field from io/239, ign]' AFTER `battery`";
        assert!(of_positions.ends_with(end), "{of_positions}");
        let existing = tables_with(&[(
            "ignition",
            "Nullable(Bool)",
            "Key's {position} [field from io/239, ign]",
        )]);
        let [_, sql] = two_changes(&existing, &layout);
        assert!(
            sql.contains("`battery` Nullable(UInt8)") && sql.ends_with(" AFTER `acc`"),
            "{sql}"
        );
    }

    #[test]
    fn distributed_tables_are_changed_after_their_shards() {
        let layout = layout("replication = 'macros'\ncluster = 'c'\nshards = true", &[BATTERY]);
        let tables: Vec<String> = plan(&layout)
            .iter()
            .filter_map(|(_, sql)| sql.strip_prefix("ALTER TABLE fleet."))
            .map(|sql| sql.split_once('\n').unwrap().0.to_owned())
            .collect();
        let expected =
            ["last_positions_state", "positions", "last_positions_state_all", "positions_all"];
        assert_eq!(tables, expected.map(|table| format!("{table} ON CLUSTER 'c'")));
    }

    #[test]
    fn matching_tables_need_no_change() {
        let layout = layout("", &[BATTERY]);
        let mut existing =
            tables_with(&[("battery", "Nullable(UInt8)", "[field from batt; unknown 255]")]);
        assert!(existing.table_changes(&layout).is_empty());
        assert_eq!(existing.stale_views(&layout.config.fields).len(), 2);
        for view in ["fixes", "last_positions"] {
            let comment = "[field from batt; unknown 255]";
            existing.columns.push(column(view, "battery", "Nullable(UInt8)", comment));
        }
        assert!(existing.stale_views(&layout.config.fields).is_empty());
        assert_eq!(existing.stale_views(&[]).len(), 2, "a field that is not configured is hidden");
        assert_eq!(existing.hidden(&[]), ["battery"]);
    }

    #[test]
    fn changed_comment_alters_the_existing_column() {
        let existing =
            tables_with(&[("battery", "Nullable(UInt8)", "Charge [field from batt; unknown 255]")]);
        let [_, of_positions] = two_changes(&existing, &layout("", &[BATTERY]));
        let expected = "ALTER TABLE fleet.positions\n    \
                        COMMENT COLUMN `battery` '[field from batt; unknown 255]'";
        assert_eq!(of_positions, expected);
    }

    #[test]
    fn comment_that_differs_between_hosts_is_set_on_all() {
        let comments = "Charge [field from batt; unknown 255]\u{1f}[field from batt; unknown 255]";
        let existing = tables_with(&[("battery", "Nullable(UInt8)", comments)]);
        let layout = layout("replication = 'macros'\ncluster = 'c'", &[BATTERY]);
        assert!(existing.violations(&layout.config.fields).is_empty());
        let [_, of_positions] = two_changes(&existing, &layout);
        let end = "\n    COMMENT COLUMN `battery` '[field from batt; unknown 255]'";
        assert!(of_positions.ends_with(end), "{of_positions}");
    }

    #[test]
    fn field_that_differs_between_hosts_is_a_violation() {
        let comments = "[field from b]\u{1f}[field from batt; unknown 255]";
        let existing =
            tables_with(&[("battery", "Nullable(UInt16) and Nullable(UInt8)", comments)]);
        let violations = existing.violations(&layout("", &[BATTERY]).config.fields);
        let expected = "fields.battery: the column is Nullable(UInt16) and Nullable(UInt8) but \
                        configured as Nullable(UInt8), [field from b] and [field from batt; \
                        unknown 255] but configured as [field from batt; unknown 255].";
        assert!(violations[0].starts_with(expected), "{violations:?}");
    }

    #[test]
    fn name_that_queries_define_is_a_violation() {
        const SERVER: &str = "[fields.server]\nfrom = 'srv'\ntype = 'String'\n";
        let fields = layout("", &[SERVER]).config.fields;
        let new = tables_with(&[]).violations(&fields);
        assert!(
            new.len() == 1 && new[0].ends_with("choose another, such as server_value"),
            "{new:?}"
        );
        let existing = tables_with(&[("server", "Nullable(String)", "[field from srv]")]);
        let violations = existing.violations(&fields);
        assert!(violations[0].contains("--drop-field server"), "{violations:?}");
        let hidden = existing.name_conflicts(&[]);
        assert!(hidden.len() == 1 && hidden[0].contains("--drop-field server"), "{hidden:?}");
        let own = tables_with(&[("half", "UInt8", "The operator's own")]).name_conflicts(&[]);
        assert!(own.len() == 1 && own[0].contains("RENAME COLUMN"), "{own:?}");
        assert!(existing.name_conflicts(&fields).is_empty(), "a violation already");
    }

    #[test]
    fn every_violation_comes_with_advice() {
        let existing = tables_with(&[
            ("battery", "Nullable(UInt16)", "[field from b]"),
            ("ignition", "UInt8", "The operator's own"),
        ]);
        let violations = existing.violations(&layout("", &[BATTERY, IGNITION]).config.fields);
        assert_eq!(violations.len(), 2, "{violations:?}");
        for expected in [
            "fields.battery: the column is Nullable(UInt16) but configured as Nullable(UInt8), \
             [field from b] but configured as [field from batt; unknown 255].",
            "`milepost migrate --drop-field battery`",
        ] {
            assert!(violations[0].contains(expected), "{violations:?}");
        }
        let expected = "fields.ignition: positions has a column";
        assert!(violations[1].starts_with(expected), "{violations:?}");
    }
}
