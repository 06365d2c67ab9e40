//! Tests the comments of tables, views and columns, which analysts read in their tools.

use anyhow::Result;

use crate::world::{World, unmigrated};

/// Tables and views that 0.1.0 created. Only migration 380 replaces their old comments.
const COMMENTED_BY_0_1_0: [&str; 14] = [
    "schema_migrations",
    "positions",
    "fixes",
    "last_positions_state",
    "last_positions",
    "rejects",
    "fences",
    "erased",
    "events",
    "touched",
    "driver_days_state",
    "driver_quarters",
    "trips",
    "stops",
];

fn comments(world: &World) -> Result<String> {
    world.query(
        "SELECT * FROM (SELECT table, name, comment FROM system.columns WHERE database = '{db}' \
         UNION ALL SELECT name, '', comment FROM system.tables WHERE database = '{db}') \
         ORDER BY ALL",
    )
}

#[test]
fn migration_380_replaces_the_comments_of_0_1_0() -> Result<()> {
    let world = unmigrated("comments")?;
    world.settings.migrate()?;
    let new = comments(&world)?;

    for table in COMMENTED_BY_0_1_0 {
        let columns = world.query(&format!(
            "SELECT name FROM system.columns WHERE database = '{{db}}' AND table = '{table}'"
        ))?;
        let changes: String = (columns.lines())
            .map(|column| format!("MODIFY COLUMN {column} COMMENT 'former', "))
            .collect();
        world.query(&format!("ALTER TABLE {{db}}.{table} {changes}MODIFY COMMENT 'former'"))?;
    }
    let former = comments(&world)?;
    assert!(former.matches("\tformer").count() > 100, "{former}");

    world.query("DELETE FROM {db}.schema_migrations WHERE version = 380")?;
    world.settings.migrate()?;
    let migrated = comments(&world)?;
    let only_in = |lines: &str, other: &str| -> Vec<String> {
        let is_missing = |line: &&str| other.lines().all(|other_line| other_line != *line);
        lines.lines().filter(is_missing).map(str::to_owned).collect()
    };
    let only_migrated = only_in(&migrated, &new);
    let only_new = only_in(&new, &migrated);
    assert!(
        migrated == new,
        "only in the migrated database: {only_migrated:#?}, only in a new one: {only_new:#?}"
    );
    Ok(())
}

#[test]
fn comments_have_more_than_one_word() -> Result<()> {
    let world = unmigrated("comment_words")?;
    world.settings.migrate()?;
    let short = world.query(
        "SELECT database, table, name, comment FROM system.columns \
         WHERE startsWith(database, '{db}') AND comment != '' AND NOT position(comment, ' ') \
         UNION ALL SELECT database, name, '', comment FROM system.tables \
         WHERE startsWith(database, '{db}') AND comment != '' AND NOT position(comment, ' ')",
    )?;
    assert_eq!(short, "");
    Ok(())
}
