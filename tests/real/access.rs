//! Checks the access rules for ClickHouse. The local engine cannot execute them, but it parses them.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result, ensure};
use lab_stack::repository;

use crate::world::{Engine, shared_engine};

/// Returns the statements, without comments.
fn statements(sql: &str) -> Vec<String> {
    let code: Vec<&str> =
        sql.lines().map(|line| line.split("--").next().unwrap_or_default()).collect();
    let statements = code.join("\n");
    statements
        .split(';')
        .map(|text| text.trim().to_owned())
        .filter(|text| !text.is_empty())
        .collect()
}

/// Returns the tables, without views, that have a column of driver ids.
fn engine_tables(engine: &Engine) -> Result<Vec<String>> {
    engine.server.create_tables("access")?;
    let sql = "SELECT table FROM system.columns WHERE database = 'access' AND name = 'driver_id' AND table IN \
               (SELECT name FROM system.tables WHERE database = 'access' AND engine LIKE '%MergeTree') ORDER BY table";
    Ok(engine.server.query(sql)?.lines().map(str::to_owned).collect())
}

#[test]
fn engine_parses_every_statement_of_the_access_rules() -> Result<()> {
    let engine = shared_engine()?;
    let parse = |statement: &str| -> Result<String> {
        let quoted = statement.replace('\\', "\\\\").replace('\'', "\\'");
        engine
            .server
            .query(&format!("SELECT formatQuerySingleLine('{quoted}')"))
            .context(statement.to_owned())
    };
    ensure!(parse("GRANT NONSENSE ON fleet.* TO milepost").is_err(), "the parser accepts nonsense");

    let deploy = repository().join("deploy/clickhouse");
    let sql = fs::read_to_string(deploy.join("access.sql"))?;
    let mut rules = statements(&sql);
    assert!(rules.len() >= 15, "{rules:#?}");
    let users = fs::read_to_string(deploy.join("users.xml"))?;
    let grants = users.split("<query>").skip(1).filter_map(|rest| rest.split("</query>").next());
    rules.extend(grants.map(|grant| format!("{grant} TO somebody")));
    let customer = fs::read_to_string(deploy.join("customer.sql"))?;
    rules.extend(statements(&customer));
    for statement in &rules {
        parse(statement)?;
    }
    // A second customer is not part of "all others", and does not reduce their quota.
    for general in [
        "EXCEPT milepost_customer",
        "ALTER QUOTA IF EXISTS milepost_readers TO milepost_reader, milepost_customer",
    ] {
        ensure!(customer.contains(general), "{general}");
    }
    ensure!(!customer.contains("EXCEPT customer_"), "a policy must not except a single customer");
    let closed = "ALTER USER migrate VALID UNTIL '2020-01-01'";
    ensure!(sql.contains(closed), "{closed}");
    parse(closed)?;
    // A second run with other hashes changes the passwords.
    for (user, hash) in [
        ("milepost", "MILEPOST"),
        ("migrate", "MIGRATE"),
        ("eraser", "ERASER"),
        ("fencer", "FENCER"),
        ("watcher", "WATCHER"),
        ("reader", "READER"),
    ] {
        let by = format!("IDENTIFIED WITH sha256_hash BY 'HASH_OF_THE_PASSWORD_OF_{hash}'");
        for begin in
            [format!("CREATE USER IF NOT EXISTS {user} {by}"), format!("ALTER USER {user} {by}")]
        {
            ensure!(rules.iter().any(|rule| rule.starts_with(&begin)), "{begin}");
        }
    }
    // Every table with driver ids has a policy; views run with the rights of their caller.
    let tables = engine_tables(&engine)?;
    assert!(tables.len() >= 3, "{tables:?}");
    for table in &tables {
        let policies = rules.iter().filter(|rule| rule.starts_with("CREATE ROW POLICY"));
        ensure!(
            policies.filter(|policy| policy.contains(&format!("fleet.{table}"))).count() == 2,
            "{table}"
        );
    }
    // The eraser may delete from these tables, too.
    for table in tables.iter().filter(|table| *table != "erased") {
        let grant = format!(
            "GRANT SELECT(driver_id), ALTER DELETE, ALTER UPDATE(_row_exists) ON fleet.{table} TO milepost_eraser"
        );
        ensure!(rules.contains(&grant), "{grant}");
    }
    for kind in
        ["CREATE ROLE", "CREATE USER", "CREATE QUOTA", "CREATE SETTINGS PROFILE", "GRANT INSERT"]
    {
        ensure!(rules.iter().any(|rule| rule.starts_with(kind)), "no {kind}");
    }
    // The rules grant exactly what `milepost check` requires of the writer, what `migrate` needs
    // and what readers query.
    for wanted in [
        "GRANT INSERT ON fleet.positions TO",
        "GRANT INSERT ON fleet.rejects TO",
        "GRANT SELECT ON fleet.schema_migrations TO",
        "GRANT SELECT ON fleet.erased TO milepost_writer",
        "GRANT CREATE DATABASE, CREATE VIEW, DROP VIEW, SELECT ON fleet_ask.* TO milepost_migrator",
        "GRANT SELECT ON fleet_ask.* TO milepost_reader",
        "GRANT SELECT ON system.processes TO milepost_eraser",
    ] {
        ensure!(rules.iter().any(|rule| rule.starts_with(wanted)), "{wanted}");
    }
    Ok(())
}

/// The migrations' login must have the right to drop every object that a migration replaces, and
/// both files must grant the same.
#[test]
fn both_access_files_grant_what_the_migrations_need() -> Result<()> {
    let deploy = repository().join("deploy/clickhouse");
    let sql = statements(&fs::read_to_string(deploy.join("access.sql"))?);
    let xml = fs::read_to_string(deploy.join("users.xml"))?;
    let to_role = |role: &str| -> BTreeSet<String> {
        let to = format!(" TO {role}");
        let grants = sql.iter().filter_map(|statement| statement.strip_suffix(&to));
        grants
            .filter(|statement| statement.starts_with("GRANT ") && statement.contains(" ON "))
            .map(str::to_owned)
            .collect()
    };
    let to_user = |user: &str| -> BTreeSet<String> {
        let of_user = xml
            .split(&format!("<{user}>"))
            .nth(1)
            .and_then(|rest| rest.split(&format!("</{user}>")).next());
        let queries = of_user.unwrap_or_default().split("<query>").skip(1);
        queries.filter_map(|rest| rest.split("</query>").next()).map(str::to_owned).collect()
    };
    for (role, user) in [
        ("milepost_migrator", "migrate"),
        ("milepost_writer", "milepost"),
        ("milepost_reader", "reader"),
    ] {
        ensure!(!to_role(role).is_empty(), "{role} has no grants");
        assert_eq!(to_role(role), to_user(user), "access.sql for {role}, users.xml for {user}");
    }

    // Adding a field (docs/add-a-field.md) replaces the first two, adding a roll-up the third.
    let replaced = ["fixes", "last_positions", "rollups"];
    for view in replaced {
        let grants = to_role("milepost_migrator");
        let wanted = format!(" ON fleet.{view}");
        ensure!(
            grants.iter().any(|grant| grant.contains("DROP VIEW") && grant.ends_with(&wanted)),
            "{view}: {grants:?}"
        );
    }
    Ok(())
}
