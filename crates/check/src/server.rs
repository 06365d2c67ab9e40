//! Checks of ClickHouse: version, clock, grants, tables, and the settings that make an insert
//! durable and free of duplicates.

use std::time::Duration;

use url::Url;

use super::inserts;
use super::replicas::{self, setting};
use super::report::Report;
use super::shards;
use milepost_clickhouse::{ClickHouse, Error, FieldChanges, named};
use milepost_config::Config;
use milepost_core::encode::TABLES;
use milepost_core::error_chain;

/// Oldest version that has everything that tables and inserts use. Earlier ones create refreshable
/// views (`sql/111_driver_days_mv.sql`) only with an experimental setting.
const VERSION_MIN: (u32, u32) = (24, 10);
/// Oldest version that is tested: the container stack runs it, the tests run 26.9.
const VERSION_TRIED: (u32, u32) = (26, 8);
/// Largest difference between the clocks that is not reported.
const CLOCKS_MAY_DIFFER: Duration = Duration::from_secs(2);
/// Smallest deduplication window, in inserts, that recognises every retry.
const WINDOW_MIN: u64 = 1_000;
/// Smallest number of partitions that one insert must be allowed: the months that
/// `decode.fix_age_max` and `decode.fix_future_max` can span.
const PARTITIONS_MIN: u64 = 15;

/// Checks each endpoint. The checks of an endpoint run in order until one cannot be made.
pub(super) async fn check(report: &mut Report, config: &Config, unix_ms: fn() -> i64) {
    for url in &config.clickhouse.urls {
        let mut of_one = config.clone();
        of_one.clickhouse.urls = vec![url.clone()];
        check_endpoint(report, &of_one, url, unix_ms).await;
    }
}

async fn check_endpoint(report: &mut Report, config: &Config, url: &str, unix_ms: fn() -> i64) {
    let clickhouse = match ClickHouse::new(&config.clickhouse) {
        Ok(clickhouse) => clickhouse,
        Err(error) => return report.failure("clickhouse", error_chain(&error)),
    };
    let before = unix_ms();
    let asked = clickhouse.ask(
        "asking for the version",
        "SELECT version(), toString(toUnixTimestamp64Milli(now64(3)))",
    );
    let [its_version, its_ms]: [String; 2] = match asked.await {
        Ok(rows) => rows.into_iter().next().unwrap_or_default(),
        Err(error) => return not_reached(report, url, &error),
    };
    let after = unix_ms();
    report.ok("clickhouse", format!("{url} answers as {}", config.clickhouse.user));
    transport(report, config, url);
    version(report, &its_version);
    // The server read its clock between `before` and `after`, however long the answer took: a time
    // within both is no difference.
    clocks(report, config, its_ms.parse::<i64>().ok().map(|its| its - its.max(before).min(after)));
    let checks = async {
        grants(report, config, &clickhouse).await?;
        if !migrations(report, &clickhouse).await {
            return Ok(());
        }
        tables(report, config, &clickhouse).await?;
        fields(report, config, &clickhouse).await?;
        views(report, &clickhouse).await?;
        inserts::check(report, &clickhouse).await?;
        settings(report, &clickhouse).await
    };
    if let Err(error) = checks.await {
        report.failure("clickhouse", error_chain(&error));
    }
}

fn not_reached(report: &mut Report, url: &str, error: &Error) {
    let chain = error_chain(error);
    let why = format!("{url}: {chain}");
    // An error that names a setting is its own advice.
    if error.code().is_none() && error.may_pass() && !chain.contains("clickhouse.") {
        report.error(
            "clickhouse",
            why,
            "set clickhouse.url to its HTTP port (8123, TLS 8443), and open the network to it",
        );
    } else {
        report.failure("clickhouse", why);
    }
}

fn transport(report: &mut Report, config: &Config, url: &str) {
    let url = Url::parse(url).expect("the configuration has checked it");
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let advice = "https:// in clickhouse.url (ClickHouse: https_port and openSSL.server, see deploy/clickhouse)";
    report.transport(["clickhouse TLS", "server"], config.clickhouse.tls.as_ref(), host, advice);
}

fn version(report: &mut Report, text: &str) {
    let mut numbers = text.split('.').map_while(|part| part.parse::<u32>().ok());
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else {
        return report.warning("version", format!("{text:?}"), "not a version of ClickHouse");
    };
    let (min, tried) = (VERSION_MIN, VERSION_TRIED);
    if (major, minor) < min {
        report.error(
            "version",
            text,
            format!("update ClickHouse to {}.{} or later", tried.0, tried.1),
        );
    } else if (major, minor) < tried {
        report.warning(
            "version",
            text,
            format!("milepost is tested with {}.{} and later: update ClickHouse", tried.0, tried.1),
        );
    } else {
        report.ok("version", text);
    }
}

fn clocks(report: &mut Report, config: &Config, difference_ms: Option<i64>) {
    let Some(difference_ms) = difference_ms else {
        return report.warning(
            "clocks",
            "the server does not report its time",
            "compare by hand: SELECT now64(3)",
        );
    };
    let difference = Duration::from_millis(difference_ms.unsigned_abs());
    let found = match difference_ms {
        0 => "ClickHouse and this host have the same time".to_owned(),
        1.. => format!("ClickHouse is {difference:?} ahead of this host"),
        ..0 => format!("ClickHouse is {difference:?} behind this host"),
    };
    let advice = "synchronise both hosts by NTP (chronyd or systemd-timesyncd): received_at and too_new use this host's clock, inserted_at ClickHouse's";
    if difference > config.decode.fix_future_max.max(CLOCKS_MAY_DIFFER) {
        report.error("clocks", found, advice);
    } else if difference > CLOCKS_MAY_DIFFER {
        report.warning("clocks", found, advice);
    } else {
        report.ok("clocks", found);
    }
}

async fn grants(
    report: &mut Report,
    config: &Config,
    clickhouse: &ClickHouse,
) -> Result<(), Error> {
    let (database, user) = (&config.clickhouse.database, &config.clickhouse.user);
    let mut missing = Vec::new();
    let [positions, rejects] = if config.clickhouse.shards {
        ["positions_all", "rejects_all"]
    } else {
        ["positions", "rejects"]
    };
    let read = ["schema_migrations", "erased"].map(|table| ("SELECT", table));
    for (what, table) in [("INSERT", positions), ("INSERT", rejects)].into_iter().chain(read) {
        let Some(has_it) = has_grant(clickhouse, what, &format!("{database}.{table}")).await?
        else {
            report.ok("grants", "not visible on this server (no CHECK GRANT)");
            return Ok(());
        };
        if !has_it {
            missing.push(format!("GRANT {what} ON {database}.{table} TO {user}"));
        }
    }
    if missing.is_empty() {
        report.ok(
            "grants",
            format!("{user} can insert, and read the migrations and the erased drivers"),
        );
    } else {
        report.error(
            "grants",
            format!("{user} lacks {}", missing.len()),
            format!("in ClickHouse, to a DEFAULT ROLE or the user: {}", missing.join("; ")),
        );
    }
    Ok(())
}

/// Returns whether this user has the grant; `None` if the server does not support CHECK GRANT.
async fn has_grant(clickhouse: &ClickHouse, what: &str, on: &str) -> Result<Option<bool>, Error> {
    let answer =
        clickhouse.ask_if_allowed("CHECK GRANT", &format!("CHECK GRANT {what} ON {on}")).await?;
    Ok(answer.and_then(|rows| rows.into_iter().next()).map(|[flag]| flag == "1"))
}

/// Checks that all migrations are recorded. Returns `false` if the tables cannot be checked yet.
async fn migrations(report: &mut Report, clickhouse: &ClickHouse) -> bool {
    match clickhouse.pending().await {
        Ok(pending) if pending.is_empty() => {
            report.ok("migrations", "all that this version knows are applied");
            true
        }
        Ok(pending) => {
            let advice = "milepost migrate, with a user who may create tables";
            report.error("migrations", format!("not applied: {}", named(&pending)), advice);
            false
        }
        Err(error) => {
            report.failure("migrations", error_chain(&error));
            false
        }
    }
}

async fn tables(
    report: &mut Report,
    config: &Config,
    clickhouse: &ClickHouse,
) -> Result<(), Error> {
    let database = &config.clickhouse.database;
    let all_seen =
        has_grant(clickhouse, "SHOW TABLES", &format!("{database}.*")).await? != Some(false);
    let sql = format!(
        "SELECT name, engine, engine_full FROM system.tables WHERE database = '{database}'"
    );
    let there: Vec<[String; 3]> = clickhouse.ask("reading system.tables", &sql).await?;
    let is_inserted = |name: &str| TABLES.iter().any(|table| table.name == name);
    let is_there = |name: &str| there.iter().any(|[there, ..]| there == name);
    let ours = clickhouse.tables();
    let missing: Vec<&str> = (ours.iter().map(String::as_str))
        .filter(|name| !is_there(name) && (all_seen || is_inserted(name)))
        .collect();
    let misfits = clickhouse.misfits().await?;
    if !missing.is_empty() {
        report.error("tables", format!("{} missing in {database}", missing.join(", ")), "if they were renamed, rename them back; else run milepost migrate, which makes what is missing, empty");
    }
    if !misfits.is_empty() {
        report.error(
            "columns",
            misfits.join(", "),
            "ALTER TABLE … ADD or MODIFY COLUMN as sql/ has it, or run the milepost that these tables are for",
        );
    }
    if missing.is_empty() && misfits.is_empty() {
        let rest = if all_seen { "" } else { "; this user cannot see the views" };
        report.ok("tables", format!("all exist, with every column that milepost inserts{rest}"));
    }
    // Reading this table may require a grant. Without it only the tables' own settings count.
    let sql = "SELECT name, value FROM system.merge_tree_settings";
    let defaults = clickhouse.ask_if_allowed("reading system.merge_tree_settings", sql).await?;
    let defaults = defaults.unwrap_or_default();
    // Skip tables that the operator has created: their settings are the operator's.
    let holds_rows = |[name, engine, _]: &&[String; 3]| {
        ours.contains(name) && name != "schema_migrations" && engine.ends_with("MergeTree")
    };
    let with_rows: Vec<_> = there.iter().filter(holds_rows).cloned().collect();
    durability(report, database, &with_rows, &defaults);
    shards::check(report, &config.clickhouse, clickhouse, &there).await?;
    replicas::check(report, &config.clickhouse, clickhouse, &with_rows, &defaults).await
}

/// Checks the columns of the configured fields. A missing column stops no insert, because inserts
/// do not name it.
async fn fields(
    report: &mut Report,
    config: &Config,
    clickhouse: &ClickHouse,
) -> Result<(), Error> {
    let FieldChanges { violations, to_add, stale_views, hidden } =
        clickhouse.field_changes().await?;
    let advice = "milepost migrate, with a user who may change tables";
    for violation in &violations {
        report.error(
            "fields",
            violation,
            "see docs/fields.md; the consumer stores the attributes meanwhile",
        );
    }
    if !to_add.is_empty() {
        report.warning("fields", format!("without a column: {}", to_add.join(", ")), advice);
    }
    if to_add.is_empty() && !stale_views.is_empty() {
        report.warning("fields", format!("{} show other fields", stale_views.join(", ")), advice);
    }
    if violations.is_empty() && to_add.is_empty() && stale_views.is_empty() {
        let columns = config.clickhouse.fields.len();
        if columns > 0 {
            report.ok("fields", format!("{columns} have their column"));
        }
    }
    if !hidden.is_empty() {
        let found = format!("not configured, so not in the views: {}", hidden.join(", "));
        report.ok("fields", format!("{found}; milepost migrate --drop-field NAME drops one"));
    }
    Ok(())
}

/// Checks the parameterised views, which analysts need and milepost does not. Skips them if this
/// user cannot see them.
async fn views(report: &mut Report, clickhouse: &ClickHouse) -> Result<(), Error> {
    let (database, names) = clickhouse.views();
    if has_grant(clickhouse, "SHOW TABLES", &format!("{database}.*")).await? == Some(false) {
        return Ok(());
    }
    let sql = format!("SELECT name FROM system.tables WHERE database = '{database}'");
    let there = clickhouse.ask("reading system.tables", &sql).await?;
    let missing: Vec<&str> =
        names.into_iter().filter(|name| !there.iter().any(|[there]| there == name)).collect();
    if missing.is_empty() {
        report.ok("views", format!("all of {database} exist"));
    } else {
        report.warning(
            "views",
            format!("{} missing in {database}", missing.join(", ")),
            "milepost migrate makes them, with a user who may create views there",
        );
    }
    Ok(())
}

/// Checks deduplication and fsync of each table. A replicated table has its own deduplication
/// window, on by default, and relies on the other replicas instead of fsync.
fn durability(
    report: &mut Report,
    database: &str,
    tables: &[[String; 3]],
    defaults: &[[String; 2]],
) {
    let (mut windows, mut syncs) = (Vec::new(), Vec::new());
    for [name, engine, full] in tables {
        let value = |name: &str| setting(full, name, defaults);
        let replicated = engine.starts_with("Replicated") || engine.starts_with("Shared");
        let window = if replicated {
            "replicated_deduplication_window"
        } else {
            "non_replicated_deduplication_window"
        };
        if value(window) < WINDOW_MIN {
            windows.push(format!("ALTER TABLE {database}.{name} MODIFY SETTING {window} = 10000"));
        }
        if !replicated && (value("fsync_after_insert") == 0 || value("fsync_part_directory") == 0) {
            syncs.push(format!("ALTER TABLE {database}.{name} MODIFY SETTING fsync_after_insert = 1, fsync_part_directory = 1"));
        }
    }
    if windows.is_empty() {
        report.ok("deduplication", "the tables recognise repeated inserts");
    } else {
        report.error(
            "deduplication",
            "a retried insert is stored twice, and counted twice in summing views",
            format!("in ClickHouse: {}", windows.join("; ")),
        );
    }
    if syncs.is_empty() {
        report.ok("fsync", "an insert survives a power failure");
    } else {
        report.error(
            "fsync",
            "acknowledged rows do not survive a power failure",
            format!("in ClickHouse: {}", syncs.join("; ")),
        );
    }
}

/// Checks the settings profile of the user.
async fn settings(report: &mut Report, clickhouse: &ClickHouse) -> Result<(), Error> {
    let sql = "SELECT name, value FROM system.settings WHERE name IN \
               ('readonly', 'insert_deduplicate', 'max_partitions_per_insert_block', 'materialized_views_ignore_errors')";
    let rows: Vec<[String; 2]> = clickhouse.ask("reading system.settings", sql).await?;
    let value = |name: &str| {
        rows.iter().find(|[set, _]| set == name).and_then(|[_, value]| value.parse::<u64>().ok())
    };
    let rules = [
        (value("readonly").is_some_and(|value| value != 0), "readonly = 0"),
        (value("insert_deduplicate") == Some(0), "insert_deduplicate = 1"),
        (
            value("max_partitions_per_insert_block")
                .is_some_and(|value| (1..PARTITIONS_MIN).contains(&value)),
            "max_partitions_per_insert_block = 100",
        ),
        (
            value("materialized_views_ignore_errors") == Some(1),
            "materialized_views_ignore_errors = 0 (else last_positions misses rows, and no insert says so)",
        ),
    ];
    let wrong: Vec<&str> =
        rules.into_iter().filter_map(|(is_wrong, right)| is_wrong.then_some(right)).collect();
    if wrong.is_empty() {
        report.ok("profile", "its settings allow inserts");
    } else {
        report.error(
            "profile",
            "the user's settings profile prevents inserts",
            format!("in ClickHouse, in the profile of this user: {}", wrong.join(", ")),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Level;
    use milepost_core::delivery::sink::FailureKind;

    #[test]
    fn version_below_the_minimum_is_an_error() {
        for (text, level) in [
            ("24.9.3.128", Level::Error),
            ("24.10.1.2812", Level::Warning),
            ("26.8.20.9", Level::Ok),
            ("27.1", Level::Ok),
            ("unknown", Level::Warning),
        ] {
            let mut report = Report::default();
            version(&mut report, text);
            assert_eq!(report.findings()[0].level, level, "{text}");
        }
    }

    #[test]
    fn host_named_clickhouse_gets_the_same_advice_as_any_other() {
        let advice = |host: &str, source: &str| {
            let config =
                Config::parse(&format!("[clickhouse]\nurl = 'http://{host}:8123'")).unwrap();
            let error = Error::Server {
                what: "asking".to_owned(),
                kind: FailureKind::Transient,
                code: None,
                cause: None,
                source: source.into(),
            };
            let mut report = Report::default();
            not_reached(&mut report, &config.clickhouse.urls[0], &error);
            report.findings()[0].advice.clone()
        };
        for host in ["db.internal", "clickhouse.internal"] {
            assert!(
                advice(host, "refused").is_some_and(|advice| advice.contains("8123")),
                "{host}"
            );
            assert_eq!(advice(host, "then clickhouse.url wants https://"), None, "{host}");
        }
    }
}
