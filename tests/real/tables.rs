//! The tables of a test's database. `milepost migrate` costs seconds of CPU, because the engine
//! analyses every view. So it runs once on the shared engine, and the tests get copies of its
//! tables.

use std::sync::PoisonError;

use anyhow::Result;
use lab_stack::Settings;
use lab_stack::sql::REFRESH_ROLLUPS;

use crate::world::{Engine, unmigrated, world};

/// The database that is migrated and copied. A copy replaces this name wherever it occurs.
const TEMPLATE: &str = "template_of_tables";

/// The definitions of all tables and views of [`TEMPLATE`]. A view is attached, not created: the
/// engine does not analyse its query then. This needs a UUID, and the columns, which parameterized
/// views do not have.
const DEFINITIONS: &str = r"
    SELECT if(match(create_table_query, '^CREATE (MATERIALIZED VIEW|VIEW \\S+\\s*\\()'),
        replaceRegexpOne(create_table_query, '^CREATE ((MATERIALIZED )?VIEW \\S+)', concat('ATTACH \\1 UUID ''', toString(generateUUIDv4()), '''')),
        create_table_query) AS definition
    FROM system.tables WHERE database IN ('{template}', '{template}_ask')
    ORDER BY engine LIKE '%View' FORMAT JSONCompactColumns";

/// Creates the databases of a test on the shared engine, with the tables of `milepost migrate`.
/// `settings` are those of the test.
///
/// The roll-ups are stopped until [`REFRESH_ROLLUPS`] starts them.
/// Otherwise, the engine would refresh those of all tests every five minutes, all at once.
pub fn create(engine: &Engine, database: &str, settings: &Settings) -> Result<()> {
    migrate_template(engine, settings)?;
    let query = |sql: &str| engine.server.query(&sql.replace("{template}", TEMPLATE));
    let [definitions]: [Vec<String>; 1] = serde_json::from_str(&query(DEFINITIONS)?)?;
    for name in [database, &format!("{database}_ask")] {
        query(&format!("CREATE DATABASE {name}"))?;
    }
    for definition in definitions {
        query(&definition.replace(TEMPLATE, database))?;
    }
    stop_rollups(engine, database)?;
    query(&format!(
        "INSERT INTO {database}.schema_migrations SELECT * FROM {{template}}.schema_migrations"
    ))?;
    Ok(())
}

/// Migrates [`TEMPLATE`], unless another test has done it.
fn migrate_template(engine: &Engine, settings: &Settings) -> Result<()> {
    let mut has_template = engine.has_template.lock().unwrap_or_else(PoisonError::into_inner);
    if !*has_template {
        settings.clone().with("CLICKHOUSE__DATABASE", TEMPLATE).migrate()?;
        stop_rollups(engine, TEMPLATE)?;
        *has_template = true;
    }
    Ok(())
}

fn stop_rollups(engine: &Engine, database: &str) -> Result<()> {
    let sql = format!("SELECT view FROM system.view_refreshes WHERE database = '{database}'");
    for view in engine.server.query(&sql)?.lines() {
        engine.server.query(&format!("SYSTEM STOP VIEW {database}.{view}"))?;
    }
    Ok(())
}

#[test]
fn copied_tables_are_those_of_migrate() -> Result<()> {
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
