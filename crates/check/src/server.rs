//! Checks ClickHouse: version, clock, grants, tables, and the settings that make an insert durable
//! and free of duplicates.

use std::collections::BTreeSet;
use std::time::Duration;

use url::Url;

use super::inserts;
use super::replicas::{self, TABLES_WITHOUT_WINDOW, setting};
use super::report::Report;
use super::shards;
use milepost_clickhouse::{ClickHouse, Error, FieldChanges, migration_names};
use milepost_config::Config;
use milepost_core::encode::TABLES;
use milepost_core::error_chain;

/// Oldest version that supports everything that milepost's tables and inserts use. An earlier
/// version may not know the setting `merge_selector_base` (`sql/307_merges.sql`), and `milepost
/// migrate` then fails.
const VERSION_MIN: (u32, u32) = (24, 12);
/// Oldest tested version. The container stack runs it; the other tests run 26.9.
const VERSION_TESTED: (u32, u32) = (26, 8);
/// Clock difference above which the check warns. If the difference is also above
/// `decode.fix_future_max`, the check reports an error.
const CLOCK_DIFFERENCE_MAX: Duration = Duration::from_secs(2);
/// Smallest deduplication window, in inserts, that recognises every retry.
const WINDOW_MIN: u64 = 1_000;
/// Number of partitions that the server must allow for one insert: the months that
/// `decode.fix_age_max` and `decode.fix_future_max` can span.
const PARTITIONS_MIN: u64 = 15;

/// Checks each endpoint. The checks of an endpoint run in order, and stop at the first one that
/// gets no result.
pub(super) async fn check(report: &mut Report, config: &Config, unix_ms: fn() -> i64) {
    for url in &config.clickhouse.urls {
        let mut endpoint = config.clone();
        endpoint.clickhouse.urls = vec![url.clone()];
        check_endpoint(report, &endpoint, url, unix_ms).await;
    }
}

async fn check_endpoint(report: &mut Report, config: &Config, url: &str, unix_ms: fn() -> i64) {
    let clickhouse = match ClickHouse::new(&config.clickhouse) {
        Ok(clickhouse) => clickhouse,
        Err(error) => return report.error_without_advice("clickhouse", error_chain(&error)),
    };
    let before = unix_ms();
    let answer = clickhouse.query_rows(
        "asking for the version",
        "SELECT version(), toString(toUnixTimestamp64Milli(now64(3)))",
    );
    let [server_version, server_ms]: [String; 2] = match answer.await {
        Ok(rows) => rows.into_iter().next().unwrap_or_default(),
        Err(error) => return report_unreachable(report, url, &error),
    };
    let after = unix_ms();
    report.ok("clickhouse", format!("{url} answers as {}", config.clickhouse.user));
    check_transport(report, config, url);
    check_version(report, &server_version);
    // The server read its clock between `before` and `after`. A time in that range counts as no
    // difference, however long the answer took.
    check_clocks(
        report,
        config,
        server_ms.parse::<i64>().ok().map(|ms| ms - ms.max(before).min(after)),
    );
    let checks = async {
        check_grants(report, config, &clickhouse).await?;
        if !check_migrations(report, &clickhouse).await {
            return Ok(());
        }
        check_tables(report, config, &clickhouse).await?;
        check_fields(report, config, &clickhouse).await?;
        check_views(report, &clickhouse).await?;
        inserts::check(report, &clickhouse).await?;
        check_profile(report, &clickhouse).await
    };
    if let Err(error) = checks.await {
        report.error_without_advice("clickhouse", error_chain(&error));
    }
}

fn report_unreachable(report: &mut Report, url: &str, error: &Error) {
    let chain = error_chain(error);
    let why = format!("{url}: {chain}");
    // An error that names a setting needs no further advice.
    if error.code().is_none() && error.may_succeed_on_retry() && !chain.contains("clickhouse.") {
        report.error(
            "clickhouse",
            why,
            "set clickhouse.url to ClickHouse's HTTP port (8123, or 8443 for TLS), and allow \
             connections to it",
        );
    } else {
        report.error_without_advice("clickhouse", why);
    }
}

fn check_transport(report: &mut Report, config: &Config, url: &str) {
    let url = Url::parse(url).expect("the URL was validated with the configuration");
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let advice = "use https:// in clickhouse.url (ClickHouse: https_port and openSSL.server, see \
                  deploy/clickhouse)";
    report.transport(["clickhouse TLS", "server"], config.clickhouse.tls.as_ref(), host, advice);
}

fn check_version(report: &mut Report, text: &str) {
    let mut numbers = text.split('.').map_while(|part| part.parse::<u32>().ok());
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else {
        return report.warning(
            "version",
            format!("{text:?} is not a version of ClickHouse"),
            "check which server answers at clickhouse.url",
        );
    };
    let (tested_major, tested_minor) = VERSION_TESTED;
    if (major, minor) < VERSION_MIN {
        report.error(
            "version",
            text,
            format!("update ClickHouse to {tested_major}.{tested_minor} or later"),
        );
    } else if (major, minor) < VERSION_TESTED {
        report.warning(
            "version",
            text,
            format!(
                "milepost is tested with {tested_major}.{tested_minor} and later: update ClickHouse"
            ),
        );
    } else {
        report.ok("version", text);
    }
}

/// Compares the clocks. `difference_ms`: ClickHouse's time minus this host's; `None` if the server
/// did not report its time.
fn check_clocks(report: &mut Report, config: &Config, difference_ms: Option<i64>) {
    let Some(difference_ms) = difference_ms else {
        return report.warning(
            "clocks",
            "the server does not report its time",
            "compare the clocks by hand: SELECT now64(3)",
        );
    };
    let difference = Duration::from_millis(difference_ms.unsigned_abs());
    let found = match difference_ms {
        0 => "ClickHouse and this host have the same time".to_owned(),
        1.. => format!("ClickHouse is {difference:?} ahead of this host"),
        ..0 => format!("ClickHouse is {difference:?} behind this host"),
    };
    let advice = "synchronise both hosts with NTP (chronyd or systemd-timesyncd): received_at and \
                  too_new use this host's clock, inserted_at ClickHouse's";
    if difference > config.decode.fix_future_max.max(CLOCK_DIFFERENCE_MAX) {
        report.error("clocks", found, advice);
    } else if difference > CLOCK_DIFFERENCE_MAX {
        report.warning("clocks", found, advice);
    } else {
        report.ok("clocks", found);
    }
}

/// Checks that this user may insert, and read the migrations and the erased drivers.
async fn check_grants(
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
    for (privilege, table) in [("INSERT", positions), ("INSERT", rejects)].into_iter().chain(read) {
        let on = format!("{database}.{table}");
        let Some(is_granted) = has_grant(clickhouse, privilege, &on).await? else {
            report.ok("grants", "not visible: this server does not support CHECK GRANT");
            return Ok(());
        };
        if !is_granted {
            missing.push(format!("GRANT {privilege} ON {on} TO {user}"));
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
            format!("{user} lacks {} of the required grants", missing.len()),
            format!(
                "run in ClickHouse, for {user} or one of its default roles: {}",
                missing.join("; ")
            ),
        );
    }
    Ok(())
}

/// Returns whether this user has the grant; `None` if the server does not support CHECK GRANT.
async fn has_grant(
    clickhouse: &ClickHouse,
    privilege: &str,
    on: &str,
) -> Result<Option<bool>, Error> {
    let sql = format!("CHECK GRANT {privilege} ON {on}");
    let answer = clickhouse.query_rows_if_allowed("CHECK GRANT", &sql).await?;
    Ok(answer.and_then(|rows| rows.into_iter().next()).map(|[flag]| flag == "1"))
}

/// Checks that all migrations are recorded. Returns `false` if the tables cannot be checked yet.
async fn check_migrations(report: &mut Report, clickhouse: &ClickHouse) -> bool {
    let advice = "run milepost migrate as a user that may create tables";
    let found = async {
        let pending = clickhouse.pending().await?;
        let unfinished = clickhouse.unfinished(&pending).await?;
        Ok::<_, Error>((pending, unfinished))
    };
    match found.await {
        Ok((pending, unfinished)) if pending.is_empty() && !unfinished.is_empty() => {
            let files: Vec<_> = unfinished.into_iter().map(|(migration, _)| migration).collect();
            let names = migration_names(&files);
            report.error("migrations", format!("not yet applied again: {names}"), advice);
            true
        }
        Ok((pending, _)) if pending.is_empty() => {
            report.ok("migrations", "all migrations of this version are applied");
            true
        }
        Ok((pending, _)) => {
            report.error(
                "migrations",
                format!("not applied: {}", migration_names(&pending)),
                advice,
            );
            false
        }
        Err(error) => {
            report.error_without_advice("migrations", error_chain(&error));
            false
        }
    }
}

/// Checks that the tables exist with their columns. Then checks their durability, shards and
/// replicas.
async fn check_tables(
    report: &mut Report,
    config: &Config,
    clickhouse: &ClickHouse,
) -> Result<(), Error> {
    let database = &config.clickhouse.database;
    let sees_all =
        has_grant(clickhouse, "SHOW TABLES", &format!("{database}.*")).await? != Some(false);
    let sql = format!(
        "SELECT name, engine, engine_full FROM system.tables WHERE database = '{database}'"
    );
    let existing: Vec<[String; 3]> = clickhouse.query_rows("reading system.tables", &sql).await?;
    let receives_inserts = |name: &str| TABLES.iter().any(|table| table.name == name);
    let exists = |name: &str| existing.iter().any(|[table, ..]| table == name);
    let expected = clickhouse.tables();
    // Without SHOW TABLES, this user sees only the tables for which it has a grant. In that case,
    // report a table as missing only if it receives inserts.
    let missing: Vec<&str> = (expected.iter().map(String::as_str))
        .filter(|name| !exists(name) && (sees_all || receives_inserts(name)))
        .collect();
    let misfits = clickhouse.misfits().await?;
    if !missing.is_empty() {
        report.error(
            "tables",
            format!("{} missing in {database}", missing.join(", ")),
            "if they were renamed, rename them back; otherwise run milepost migrate, which creates \
             them empty",
        );
    }
    if !misfits.is_empty() {
        report.error(
            "columns",
            misfits.join(", "),
            "run ALTER TABLE … ADD COLUMN or MODIFY COLUMN as in sql/, \
             or run the version of milepost that these tables were made for",
        );
    }
    if missing.is_empty() && misfits.is_empty() {
        let unseen = if sees_all { "" } else { "; this user cannot see the views" };
        report.ok("tables", format!("all exist, with every column that milepost inserts{unseen}"));
    }
    // Reading the server's defaults may require a grant. Without it, a setting that a table leaves
    // to the server is reported as unknown.
    let sql = "SELECT name, value FROM system.merge_tree_settings";
    let defaults =
        clickhouse.query_rows_if_allowed("reading system.merge_tree_settings", sql).await?;
    let defaults = defaults.unwrap_or_default();
    // Skip tables that the operator created: the operator chooses their settings.
    let holds_rows = |[name, engine, _]: &&[String; 3]| {
        expected.contains(name) && name != "schema_migrations" && engine.ends_with("MergeTree")
    };
    let with_rows: Vec<_> = existing.iter().filter(holds_rows).cloned().collect();
    check_durability(report, database, &with_rows, &defaults);
    shards::check(report, &config.clickhouse, clickhouse, &existing).await?;
    replicas::check(report, &config.clickhouse, clickhouse, &with_rows, &defaults).await
}

/// Checks the columns of the configured fields. Inserts succeed without such a column, because they
/// do not name it.
async fn check_fields(
    report: &mut Report,
    config: &Config,
    clickhouse: &ClickHouse,
) -> Result<(), Error> {
    let FieldChanges { violations, to_add, stale_views, hidden, name_conflicts } =
        clickhouse.field_changes().await?;
    let advice = "run milepost migrate as a user that may change tables";
    for violation in &violations {
        report.error(
            "fields",
            violation,
            "see docs/fields.md; meanwhile milepost keeps the values in attributes",
        );
    }
    if !to_add.is_empty() {
        report.warning("fields", format!("fields without a column: {}", to_add.join(", ")), advice);
    }
    for column in &name_conflicts {
        report.error("fields", column, "see docs/fields.md");
    }
    // Skip the views if there is a violation, because `migrate` would then change no view. Skip
    // them if a column is missing, because the advice would be the same.
    if violations.is_empty() && to_add.is_empty() && !stale_views.is_empty() {
        report.warning(
            "fields",
            format!("{} do not show exactly the configured fields", stale_views.join(", ")),
            advice,
        );
    }
    if violations.is_empty() && to_add.is_empty() && stale_views.is_empty() {
        let columns = config.clickhouse.fields.len();
        if columns > 0 {
            report.ok("fields", format!("{columns} configured, each with its column"));
        }
    }
    if !hidden.is_empty() {
        let found = format!("not configured, so not in the views: {}", hidden.join(", "));
        report.ok("fields", format!("{found}; milepost migrate --drop-field NAME drops one"));
    }
    Ok(())
}

/// Checks the parameterised views, which analysts use and milepost does not. Skips them if this
/// user cannot see them.
async fn check_views(report: &mut Report, clickhouse: &ClickHouse) -> Result<(), Error> {
    let (database, names) = clickhouse.views();
    if has_grant(clickhouse, "SHOW TABLES", &format!("{database}.*")).await? == Some(false) {
        return Ok(());
    }
    let sql = format!("SELECT name FROM system.tables WHERE database = '{database}'");
    let existing = clickhouse.query_rows("reading system.tables", &sql).await?;
    let missing: Vec<&str> =
        names.into_iter().filter(|name| !existing.iter().any(|[view]| view == name)).collect();
    if missing.is_empty() {
        report.ok("views", format!("all views of {database} exist"));
    } else {
        report.warning(
            "views",
            format!("{} missing in {database}", missing.join(", ")),
            "run milepost migrate as a user that may create views there",
        );
    }
    Ok(())
}

/// Checks deduplication and fsync of each table. A replicated table has its own deduplication
/// window, on by default, and relies on the other replicas instead of fsync.
fn check_durability(
    report: &mut Report,
    database: &str,
    tables: &[[String; 3]],
    defaults: &[[String; 2]],
) {
    // Statements that the operator must run, and settings whose value this user may not read.
    let (mut to_deduplicate, mut to_sync) = (Vec::new(), Vec::new());
    let mut unreadable = BTreeSet::new();
    for [name, engine, engine_full] in tables {
        let mut is_below = |setting_name: &'static str, min: u64| {
            let value = setting(engine_full, setting_name, defaults);
            if value.is_none() {
                unreadable.insert(setting_name);
            }
            value.is_some_and(|value| value < min)
        };
        let replicated = engine.starts_with("Replicated") || engine.starts_with("Shared");
        let window = if replicated {
            "replicated_deduplication_window"
        } else {
            "non_replicated_deduplication_window"
        };
        if !TABLES_WITHOUT_WINDOW.contains(&name.as_str()) && is_below(window, WINDOW_MIN) {
            to_deduplicate
                .push(format!("ALTER TABLE {database}.{name} MODIFY SETTING {window} = 10000"));
        }
        // `map` evaluates both settings, so each unreadable one is reported.
        let lacks_fsync = !replicated
            && ["fsync_after_insert", "fsync_part_directory"].map(|name| is_below(name, 1))
                != [false; 2];
        if lacks_fsync {
            to_sync.push(format!(
                "ALTER TABLE {database}.{name} MODIFY SETTING fsync_after_insert = 1, \
                 fsync_part_directory = 1"
            ));
        }
    }
    if !unreadable.is_empty() {
        let names: Vec<_> = unreadable.iter().copied().collect();
        report.warning(
            "table settings",
            format!(
                "unknown: a table leaves {} to the server, whose defaults this user may not read",
                names.join(", ")
            ),
            "GRANT SELECT ON system.merge_tree_settings to this user, and run milepost check again",
        );
    }
    let is_unknown = |part: &str| unreadable.iter().any(|name| name.contains(part));
    if !to_deduplicate.is_empty() {
        report.error(
            "deduplication",
            "a retried insert is stored twice, and counted twice in summing views",
            format!("run in ClickHouse: {}", to_deduplicate.join("; ")),
        );
    } else if !is_unknown("deduplication") {
        report.ok("deduplication", "the tables recognise repeated inserts");
    }
    if !to_sync.is_empty() {
        report.error(
            "fsync",
            "acknowledged rows do not survive a power failure",
            format!("run in ClickHouse: {}", to_sync.join("; ")),
        );
    } else if !is_unknown("fsync") {
        report.ok("fsync", "an insert survives a power failure");
    }
}

/// Checks the settings profile of the user.
async fn check_profile(report: &mut Report, clickhouse: &ClickHouse) -> Result<(), Error> {
    let sql = "SELECT name, value FROM system.settings WHERE name IN \
               ('readonly', 'insert_deduplicate', 'max_partitions_per_insert_block', \
               'materialized_views_ignore_errors')";
    let rows: Vec<[String; 2]> = clickhouse.query_rows("reading system.settings", sql).await?;
    let value = |name: &str| {
        rows.iter().find(|[key, _]| key == name).and_then(|[_, value]| value.parse::<u64>().ok())
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
            "materialized_views_ignore_errors = 0 (otherwise last_positions can miss rows without \
             any insert failing)",
        ),
    ];
    let wrong: Vec<&str> =
        rules.into_iter().filter_map(|(is_wrong, right)| is_wrong.then_some(right)).collect();
    if wrong.is_empty() {
        report.ok("profile", "its settings allow inserts");
    } else {
        report.error(
            "profile",
            "settings in the user's profile break inserts, their deduplication, or last_positions",
            format!("set in ClickHouse, in the profile of this user: {}", wrong.join(", ")),
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
            ("24.11.1.2557", Level::Error),
            ("24.12.1.1614", Level::Warning),
            ("26.8.20.9", Level::Ok),
            ("27.1", Level::Ok),
            ("unknown", Level::Warning),
        ] {
            let mut report = Report::default();
            check_version(&mut report, text);
            assert_eq!(report.findings()[0].level, level, "{text}");
        }
    }

    #[test]
    fn unreadable_default_setting_is_reported_as_unknown() {
        let tables = |full: &str| [["positions", "MergeTree", full].map(str::to_owned)];
        let defaults =
            ["non_replicated_deduplication_window", "fsync_after_insert", "fsync_part_directory"]
                .map(|name| [name, "0"].map(str::to_owned));
        let own = "MergeTree ORDER BY ts SETTINGS non_replicated_deduplication_window = 10000, \
                   fsync_after_insert = 1, fsync_part_directory = 1";
        let bare = "MergeTree ORDER BY ts";
        for (full, defaults, expected) in [
            (own, &[][..], &[("deduplication", Level::Ok), ("fsync", Level::Ok)][..]),
            (bare, &defaults, &[("deduplication", Level::Error), ("fsync", Level::Error)]),
            (bare, &[], &[("table settings", Level::Warning)]),
        ] {
            let mut report = Report::default();
            check_durability(&mut report, "fleet", &tables(full), defaults);
            let found: Vec<_> =
                report.findings().iter().map(|finding| (finding.subject, finding.level)).collect();
            assert_eq!(found, expected, "{full} {defaults:?}");
        }
    }

    #[test]
    fn host_named_clickhouse_gets_the_same_advice_as_any_other() {
        let advice = |host: &str, source: &str| {
            let config =
                Config::parse(&format!("[clickhouse]\nurl = 'http://{host}:8123'")).unwrap();
            let error = Error::Server {
                step: "asking".to_owned(),
                kind: FailureKind::Transient,
                code: None,
                cause: None,
                source: source.into(),
            };
            let mut report = Report::default();
            report_unreachable(&mut report, &config.clickhouse.urls[0], &error);
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
