//! The access rules for ClickHouse, which the local engine cannot run, are at least parsed by it.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use lab_stack::repository;

use crate::world::shared_engine;

/// Statements between semicolons, without comments.
fn statements(sql: &str) -> Vec<String> {
    let code: Vec<&str> = sql.lines().map(|line| line.split("--").next().unwrap_or_default()).collect();
    let statements = code.join("\n");
    statements.split(';').map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()).collect()
}

#[test]
fn every_statement_of_the_access_rules_is_one_to_the_engine() -> Result<()> {
    let engine = shared_engine()?;
    let parse = |statement: &str| -> Result<String> {
        let quoted = statement.replace('\\', "\\\\").replace('\'', "\\'");
        engine
            .server
            .query(&format!("SELECT formatQuerySingleLine('{quoted}')"))
            .context(statement.to_owned())
    };
    ensure!(parse("GRANT NONSENSE ON fleet.* TO milepost").is_err(), "it does parse");

    let deploy = repository().join("deploy/clickhouse");
    let mut rules = statements(&fs::read_to_string(deploy.join("access.sql"))?);
    assert!(rules.len() >= 15, "{rules:#?}");
    let users = fs::read_to_string(deploy.join("users.xml"))?;
    let grants = users.split("<query>").skip(1).filter_map(|rest| rest.split("</query>").next());
    rules.extend(grants.map(|grant| format!("{grant} TO somebody")));
    for statement in &rules {
        parse(statement)?;
    }
    for kind in ["CREATE ROLE", "CREATE USER", "CREATE QUOTA", "CREATE SETTINGS PROFILE", "GRANT INSERT"] {
        ensure!(rules.iter().any(|rule| rule.starts_with(kind)), "no {kind}");
    }
    // What `milepost check` wants of the writer is what the rules give.
    for wanted in [
        "GRANT INSERT ON fleet.positions TO",
        "GRANT INSERT ON fleet.rejects TO",
        "GRANT SELECT ON fleet.schema_migrations TO",
    ] {
        ensure!(rules.iter().any(|rule| rule.starts_with(wanted)), "{wanted}");
    }
    Ok(())
}
