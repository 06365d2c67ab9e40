//! Tables that are spread over shards. Each shard has the files' tables with its own drivers' rows, and over each such
//! table stands one named `…_all`, which reads all shards and sends each row of an insert to its own.
//!
//! A driver lives on one shard. So FINAL, which each shard does for itself, shows each fix once, a subquery behind IN may
//! read the shard's own table, and each shard counts its own drivers' quarters of an hour.

use super::files::{BACKFILLS, ERASED, LEDGER, Migration};
use crate::pipeline::encode::TABLES;

/// What is spread, and what decides where a row goes. Without it nobody may insert through the table over it.
/// It is made of the row alone: the same insert sent again goes to the same shards.
const SPREAD: [(&str, Option<&str>); 8] = [
    ("positions", Some("cityHash64(driver_id)")),
    ("last_positions_state", Some("cityHash64(driver_id)")),
    ("rejects", Some("cityHash64(topic)")),
    ("driver_quarters_state", None),
    ("driver_blocks_state", None),
    ("episodes_state", None),
    ("cell_quarters_state", None),
    (HERE, None),
];
/// Small, and every shard joins its fixes with all of it, or asks for all of it: a copy on every host.
const ON_EVERY_HOST: [&str; 4] = [LEDGER, "fences", ERASED, BACKFILLS];
/// It compares two tables of a shard with each other, so each shard looks at its own, and another view at all.
const ROLLUPS: &str = "rollups";
const HERE: &str = "rollups_here";
const ROLLUPS_OF_ALL: &str = "CREATE VIEW IF NOT EXISTS {database}.rollups
(
    name           String               COMMENT 'Of the roll-up',
    inserted_until DateTime64(3, 'UTC') COMMENT 'All fixes that were inserted until then are in it, on every shard',
    pending        UInt64               COMMENT 'Fixes inserted since',
    behind_s       Float64              COMMENT 'Age of the oldest of them in seconds, 0 if there is none'
)
AS SELECT name, min(inserted_until) AS inserted_until, sum(pending) AS pending, max(behind_s) AS behind_s
FROM {database}.rollups_here_all
GROUP BY name
COMMENT 'How far behind the roll-ups are, over all shards. system.view_refreshes on each says why'";
/// The view of 027 counts this shard's drivers, so it reads this shard's fixes, as 012 shows them.
const FIXES_HERE: [(&str, &str); 2] = [
    ("FROM {database}.fixes", "FROM {database}.positions FINAL"),
    (
        "\nSETTINGS ",
        "\nSETTINGS do_not_merge_across_partitions_select_final = 1, optimize_move_to_prewhere_if_final = 1, ",
    ),
];

/// The table is the same on all shards.
pub(super) fn is_on_every_host(table: &str) -> bool {
    ON_EVERY_HOST.contains(&table)
}

/// The table that reads all shards' tables of this name.
pub(super) fn over(table: &str) -> String {
    format!("{table}_all")
}

/// What is made beside the files' tables and views.
pub(super) fn names() -> Vec<String> {
    SPREAD.iter().map(|(table, _)| over(table)).chain([HERE.to_owned()]).collect()
}

/// A file's statements, from its own.
pub(super) fn statements(migration: &Migration, sql: String, cluster: &str) -> Vec<String> {
    if migration.makes() == Some(ROLLUPS) {
        let here = sql.replacen("{database}.rollups\n", "{database}.rollups_here\n", 1);
        return vec![here, create_over(HERE, None, cluster), ROLLUPS_OF_ALL.to_owned()];
    }
    if sql.contains("CREATE OR REPLACE VIEW {database}.rollups\n") {
        return vec![sql.replacen("{database}.rollups\n", "{database}.rollups_here\n", 1)];
    }
    let is_spread = |name: &str| SPREAD.iter().find(|(table, _)| *table == name);
    if let Some((table, key)) = migration.table().and_then(is_spread) {
        return vec![sql, create_over(table, *key, cluster)];
    }
    let alters =
        |(table, _): &&(&str, Option<&str>)| sql.contains(&format!("ALTER TABLE {{database}}.{table}\n"));
    if let Some((table, _)) = SPREAD.iter().find(alters).filter(|_| sql.contains("ADD COLUMN ")) {
        let all = sql.replace(&format!("{{database}}.{table}\n"), &format!("{{database}}.{table}_all\n"));
        return vec![sql, all];
    }
    if sql.contains("CREATE MATERIALIZED VIEW ") {
        let is_counted = sql.contains(FIXES_HERE[0].0);
        return vec![if is_counted {
            FIXES_HERE.iter().fold(sql, |sql, (of, to)| sql.replace(of, to))
        } else {
            sql
        }];
    }
    vec![if sql.contains("VIEW ") { of_all(&sql) } else { sql }]
}

/// As it stands, over all shards; for one of ours that says so.
pub(super) fn of_all(sql: &str) -> String {
    SPREAD.iter().fold(sql.to_owned(), |sql, (table, _)| {
        let from = format!("FROM {{database}}.{table}");
        let into = format!("INSERT INTO {{database}}.{table} ");
        let sql = sql.replace(&into, &format!("INSERT INTO {{database}}.{table}_all "));
        let mut pieces = sql.split(&from);
        let mut done = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            let is_whole = !piece.starts_with(|c: char| c.is_alphanumeric() || c == '_');
            let all = if is_whole && !is_behind_in(&done) { "_all" } else { "" };
            done = format!("{done}{from}{all}{piece}");
        }
        done
    })
}

/// The text ends within the parentheses of an IN.
fn is_behind_in(text: &str) -> bool {
    let mut depth = 0_u32;
    for (at, c) in text.char_indices().rev() {
        match c {
            ')' => depth += 1,
            '(' if depth == 0 => {
                return text[..at].trim_end().ends_with(" IN");
            }
            '(' => depth -= 1,
            _ => {}
        }
    }
    false
}

fn create_over(table: &str, key: Option<&str>, cluster: &str) -> String {
    let key = key.map_or(String::new(), |key| format!(", {key}"));
    format!(
        "CREATE TABLE IF NOT EXISTS {{database}}.{table}_all\nAS {{database}}.{table}\n\
         ENGINE = Distributed('{cluster}', '{{database}}', '{table}'{key})"
    )
}

/// What is inserted is encoded, and spooled, for the table itself, and is sent through the one over it.
pub(super) fn insert(statement: &str) -> String {
    TABLES.iter().fold(statement.to_owned(), |statement, table| {
        statement.replacen(&format!(".{} (", table.name), &format!(".{}_all (", table.name), 1)
    })
}

#[cfg(test)]
mod tests {
    use super::super::files::MIGRATIONS;
    use super::*;

    fn of(name: &str) -> Vec<String> {
        let migration = MIGRATIONS.iter().find(|migration| migration.name == name).unwrap();
        statements(migration, migration.sql.to_owned(), "c")
    }

    #[test]
    fn every_table_with_drivers_rows_is_spread_and_every_view_reads_all_of_it() {
        let tables = MIGRATIONS.iter().filter_map(Migration::table);
        for table in tables {
            let is_spread = SPREAD.iter().any(|(name, _)| *name == table);
            assert!(
                is_spread != is_on_every_host(table),
                "{table}: neither spread nor on every host, or both"
            );
        }
        for migration in MIGRATIONS.iter().filter(|migration| migration.sql.contains("VIEW ")) {
            let here = migration.sql.contains("CREATE MATERIALIZED VIEW ");
            let last = statements(migration, migration.sql.to_owned(), "c").pop().unwrap();
            for (table, _) in SPREAD {
                let own = last.matches(&format!("FROM {{database}}.{table}\n")).count()
                    + last.matches(&format!("FROM {{database}}.{table} ")).count();
                // The drivers in a box are looked for where they are.
                let expected =
                    usize::from(migration.name == "023_ask_in_box" && table == "last_positions_state");
                let here = here || last.contains("VIEW {database}.rollups_here\n");
                assert!(here || own == expected, "{} reads {table} of one shard: {last}", migration.name);
            }
        }
    }

    #[test]
    fn an_insert_goes_through_the_table_over_all_shards() {
        assert_eq!(
            insert("INSERT INTO fleet.positions (a) FORMAT RowBinary"),
            "INSERT INTO fleet.positions_all (a) FORMAT RowBinary"
        );
        assert_eq!(insert("INSERT INTO rejects.rejects (a) X"), "INSERT INTO rejects.rejects_all (a) X");
        assert_eq!(insert("INSERT INTO fleet.other (a) X"), "INSERT INTO fleet.other (a) X");
    }

    #[test]
    fn each_kind_of_file_becomes_what_shards_need() {
        let positions = of("002_positions");
        assert!(positions[0].contains("ENGINE = ReplacingMergeTree"), "{positions:?}");
        assert_eq!(
            positions[1],
            "CREATE TABLE IF NOT EXISTS {database}.positions_all\nAS {database}.positions\n\
             ENGINE = Distributed('c', '{database}', 'positions', cityHash64(driver_id))"
        );
        let added = of("010_attributes");
        assert!(
            added.len() == 2 && added[1].contains("ALTER TABLE {database}.positions_all\n    ADD COLUMN"),
            "{added:?}"
        );
        assert_eq!(of("009_rejects_ttl").len(), 1, "what is over the table has no time-to-live");
        let box_ = of("023_ask_in_box").remove(0);
        let (outer, inner) = box_.split_once("WHERE driver_id IN").unwrap();
        assert!(outer.ends_with("FROM {database}.last_positions_state_all\n    "), "{box_}");
        assert!(inner.contains("FROM {database}.last_positions_state\n"), "{box_}");
        let quarters = of("027_driver_quarters_mv").remove(0);
        assert!(!quarters.contains("{database}.fixes") && !quarters.contains("_all"), "{quarters}");
        assert!(quarters.contains("SETTINGS do_not_merge_across_partitions_select_final = 1,"), "{quarters}");
        let rollups = of("029_rollups");
        assert!(
            rollups[0].starts_with("-- How")
                && rollups[0].contains("VIEW IF NOT EXISTS {database}.rollups_here\n"),
            "{rollups:?}"
        );
        assert!(rollups[0].contains("FROM {database}.positions\n"), "of this shard: {rollups:?}");
        assert_eq!(rollups.len(), 3);
        let replaced = of("049_rollups");
        assert!(
            replaced.len() == 1 && replaced[0].contains("OR REPLACE VIEW {database}.rollups_here\n"),
            "{replaced:?}"
        );
        let trips = of("044_trips").remove(0);
        assert!(trips.contains("FROM {database}.episodes_state_all FINAL"), "{trips}");
        let episodes = of("043_episodes_mv").remove(0);
        assert!(!episodes.contains("_all"), "{episodes}");
    }
}
