//! Creates the tables of a test's database, as copies of the tables that `milepost migrate` has
//! created once on the shared engine.

use anyhow::Result;
use lab_stack::Settings;
use lab_stack::sql::REFRESH_ROLLUPS;

use crate::world::{Engine, unmigrated, world};

/// Creates the databases of a test, with the tables of `milepost migrate`. `settings` are the
/// settings of the test.
pub fn create(engine: &Engine, database: &str, settings: &Settings) -> Result<()> {
    let migrate =
        |template: &str| settings.clone().with("CLICKHOUSE__DATABASE", template).migrate();
    engine.server.copy_tables(database, migrate)
}

#[test]
fn copied_tables_equal_migrated_tables() -> Result<()> {
    let (copied, migrated) = (world("tables_copied")?, unmigrated("tables_migrated")?);
    migrated.settings.migrate()?;
    let definitions = "SELECT name, engine, replaceAll(create_table_query, '{db}', 'db') \
        FROM system.tables WHERE database IN ('{db}', '{db}_ask') ORDER BY database, name";
    assert_eq!(copied.query(definitions)?, migrated.query(definitions)?);
    let views = copied.query("SELECT view FROM system.view_refreshes WHERE database = '{db}'")?;
    assert!(!views.is_empty());
    for view in views.lines() {
        let refresh = format!("SYSTEM REFRESH VIEW {{db}}.{view}");
        assert!(REFRESH_ROLLUPS.contains(&&*refresh), "{view} is not in REFRESH_ROLLUPS");
    }
    let (code, printed) = copied.settings.call(&["migrate"])?;
    assert!(code == 0 && printed.contains("applied=0"), "{printed}");
    Ok(())
}
