//! Checks the access rules in deploy/clickhouse. The local engine parses these rules, but cannot
//! execute them.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result, ensure};
use lab_stack::repository;

use crate::world::{DatabaseGuard, Engine, shared_engine};

/// Splits a file into its statements, without comments.
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

/// Returns the tables that have a column `driver_id`; views are left out.
fn tables_with_drivers(engine: &Engine) -> Result<Vec<String>> {
    engine.server.create_tables("access")?;
    let sql = "SELECT table FROM system.columns WHERE database = 'access' AND name = 'driver_id' \
               AND table IN (SELECT name FROM system.tables WHERE database = 'access' \
               AND engine LIKE '%MergeTree') ORDER BY table";
    Ok(engine.server.query(sql)?.lines().map(str::to_owned).collect())
}

#[test]
fn access_rules_parse_and_cover_every_table_with_drivers() -> Result<()> {
    let engine = shared_engine()?;
    let _database_guard = DatabaseGuard::new(&engine, "access");
    let parse = |statement: &str| -> Result<String> {
        let quoted = statement.replace('\\', "\\\\").replace('\'', "\\'");
        engine
            .server
            .query(&format!("SELECT formatQuerySingleLine('{quoted}')"))
            .context(statement.to_owned())
    };
    ensure!(
        parse("GRANT NONSENSE ON fleet.* TO milepost").is_err(),
        "the parser must refuse an unknown privilege"
    );

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
    // All customers have the role `milepost_customer`. The policy that shows all drivers must
    // exclude this role, and the quota must apply to the role. If the policy and the quota named
    // single customers, a customer who is added later would see all drivers, without a quota.
    for clause in [
        "EXCEPT milepost_customer",
        "ALTER QUOTA IF EXISTS milepost_readers TO milepost_reader, milepost_customer",
    ] {
        ensure!(customer.contains(clause), "customer.sql lacks {clause}");
    }
    ensure!(
        !customer.contains("EXCEPT customer_"),
        "a policy must exclude the role of all customers, not one customer by name"
    );
    // access.sql has this statement in a comment only.
    let expire_login = "ALTER USER migrate VALID UNTIL '2020-01-01'";
    ensure!(sql.contains(expire_login), "access.sql lacks {expire_login}");
    parse(expire_login)?;
    // The rules create each user and then alter the user, so that a second run with other hashes
    // changes the passwords.
    for (user, hash) in [
        ("milepost", "MILEPOST"),
        ("migrate", "MIGRATE"),
        ("eraser", "ERASER"),
        ("fencer", "FENCER"),
        ("watcher", "WATCHER"),
        ("reader", "READER"),
    ] {
        let password = format!("IDENTIFIED WITH sha256_hash BY 'HASH_OF_THE_PASSWORD_OF_{hash}'");
        for statement in [
            format!("CREATE USER IF NOT EXISTS {user} {password}"),
            format!("ALTER USER {user} {password}"),
        ] {
            ensure!(rules.iter().any(|rule| rule.starts_with(&statement)), "no {statement}");
        }
    }
    // A customer can read the tables behind the views, and the tables of a live map.
    for table in ["positions", "touched", "driver_days_state", "fences", "drivers", "alerts_seen"] {
        let grant = format!("GRANT SELECT ON fleet.{table} TO customer_acme");
        ensure!(rules.contains(&grant), "customer.sql lacks {grant}");
    }
    // Every table with driver ids, and `fences`, has exactly two row policies: one for the
    // customer, and one for everybody else. Views need none, because they run with the rights of
    // their caller.
    let tables = tables_with_drivers(&engine)?;
    assert!(tables.len() >= 3, "{tables:?}");
    for table in tables.iter().map(String::as_str).chain(["fences"]) {
        let policies = rules.iter().filter(|rule| rule.starts_with("CREATE ROW POLICY"));
        ensure!(
            policies.filter(|policy| policy.contains(&format!("fleet.{table}"))).count() == 2,
            "{table} must have two row policies"
        );
    }
    // The eraser may delete from each of these tables, except the list of erased drivers.
    for table in tables.iter().filter(|table| *table != "erased") {
        let grant = format!(
            "GRANT SELECT(driver_id), ALTER DELETE, ALTER UPDATE(_row_exists) ON fleet.{table} TO \
             milepost_eraser"
        );
        ensure!(rules.contains(&grant), "access.sql lacks {grant}");
    }
    for kind in
        ["CREATE ROLE", "CREATE USER", "CREATE QUOTA", "CREATE SETTINGS PROFILE", "GRANT INSERT"]
    {
        ensure!(rules.iter().any(|rule| rule.starts_with(kind)), "no {kind}");
    }
    // The rules contain the grants that the writer, `migrate`, readers and the eraser need. This
    // test does not detect further grants.
    for expected in [
        "GRANT INSERT ON fleet.positions TO",
        "GRANT INSERT ON fleet.rejects TO",
        "GRANT SELECT ON fleet.schema_migrations TO",
        "GRANT SELECT ON fleet.erased TO milepost_writer",
        "GRANT SELECT ON system.replicas TO milepost_writer",
        "GRANT CREATE DATABASE, CREATE VIEW, DROP VIEW, SELECT ON fleet_ask.* TO milepost_migrator",
        "GRANT SELECT ON fleet_ask.* TO milepost_reader",
        "GRANT SELECT ON system.processes TO milepost_eraser",
    ] {
        ensure!(rules.iter().any(|rule| rule.starts_with(expected)), "no {expected}");
    }
    Ok(())
}

/// The login `migrate` must have the right to drop every object that a migration replaces.
/// access.sql and users.xml must grant the same rights.
#[test]
fn access_sql_and_users_xml_grant_what_migrations_need() -> Result<()> {
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
        let user_section = xml
            .split(&format!("<{user}>"))
            .nth(1)
            .and_then(|rest| rest.split(&format!("</{user}>")).next());
        let queries = user_section.unwrap_or_default().split("<query>").skip(1);
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

    // A migration that adds a field (docs/add-a-field.md) replaces the first two views. A
    // migration that adds a roll-up replaces the third view.
    for view in ["fixes", "last_positions", "rollups"] {
        let grants = to_role("milepost_migrator");
        let expected = format!(" ON fleet.{view}");
        ensure!(
            grants.iter().any(|grant| grant.contains("DROP VIEW") && grant.ends_with(&expected)),
            "{view}: {grants:?}"
        );
    }
    Ok(())
}
