//! Checks replicated tables: whether an acknowledged insert is on more than one server, and whether
//! the replicas are healthy. The server that answers reports the state of its own replicas, and how
//! many replicas of each table have a session with Keeper.

use super::report::Report;
use milepost_clickhouse::{ClickHouse, Error};
use milepost_config as config;
use milepost_config::{InsertQuorum, Replication};

/// Delay of a replica, in seconds, above which the check warns. Quorums wait for such a replica,
/// and its readers see old rows.
const DELAY_SECONDS_MAX: u64 = 60;
/// Shortest time, in seconds, for which a table must remember a token: milepost may retry an insert
/// under one token for a day.
const TOKEN_SECONDS_MIN: u64 = 86_400;
/// Tables that people fill with INSERT. These tables have no deduplication window, because it would
/// drop an INSERT that sets a row back to an earlier value. They do not need one either: a row that
/// is inserted twice only replaces itself.
pub(super) const TABLES_WITHOUT_WINDOW: [&str; 3] = ["fences", "drivers", "trip_rules"];
/// Smallest number of deduplication tokens that a table must remember. ClickHouse counts the tokens
/// of all members together, and each member uses one or two a second.
const TOKENS_MIN: u64 = 10_000;

/// A row of `system.replicas`.
#[derive(Debug)]
struct Replica {
    table: String,
    is_readonly: bool,
    is_session_expired: bool,
    /// Delay in seconds.
    delay: u64,
    /// Number of entries in the replication queue.
    queue: u64,
    /// Number of replicas of the table.
    total: u64,
    /// Number of replicas of the table that have a session with Keeper.
    active: u64,
    exception: String,
}

/// Returns the value of a MergeTree setting: the table's own value, else the server's default.
/// Returns `None` if `defaults` has no value either, because the user may not read the server's
/// defaults.
pub(super) fn setting(engine_full: &str, name: &str, defaults: &[[String; 2]]) -> Option<u64> {
    // Compare whole words: the name of one setting can be the end of another's. The words of a
    // setting are its name, `=` and its value.
    let own = engine_full.split([' ', ',']).skip_while(|word| *word != name).nth(2);
    let default = || defaults.iter().find(|[named, _]| named == name).map(|[_, value]| &**value);
    let text = own.or_else(default)?;
    if let Ok(is_on) = text.parse::<bool>() {
        return Some(u64::from(is_on)); // written by ALTER TABLE … MODIFY SETTING … = true
    }
    text.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Checks the engines, the quorum, the state of the replicas and the token windows. `tables`: name,
/// engine and `engine_full` of the tables that hold rows. `defaults`: name and value of the
/// server's MergeTree settings.
pub(super) async fn check(
    report: &mut Report,
    config: &config::ClickHouse,
    clickhouse: &ClickHouse,
    tables: &[[String; 3]],
    defaults: &[[String; 2]],
) -> Result<(), Error> {
    if !check_engines_and_quorum(report, config, tables) {
        return Ok(());
    }
    let sql = format!(
        "SELECT table, is_readonly, is_session_expired, absolute_delay, queue_size, \
         total_replicas, active_replicas, \
         replaceRegexpAll(zookeeper_exception, '\\\\s+', ' ') FROM system.replicas \
         WHERE database = '{}' ORDER BY table",
        config.database
    );
    let rows = clickhouse.query_rows_if_allowed("reading system.replicas", &sql).await?;
    if let Some(rows) = rows {
        let replicas: Vec<Replica> = rows.into_iter().map(replica).collect();
        check_health(report, config, &replicas);
    } else {
        report.warning(
            "replicas",
            "not known: this user cannot read system.replicas",
            "GRANT SELECT ON system.replicas to this user: without it milepost does not know how \
             many replicas there are, and insert_quorum = \"auto\" waits for two",
        );
    }
    check_token_windows(report, &config.database, tables, defaults);
    Ok(())
}

fn replica(row: [String; 8]) -> Replica {
    let [table, readonly, expired, delay, queue, total, active, exception] = row;
    let number = |text: String| text.parse().unwrap_or(0);
    Replica {
        table,
        is_readonly: number(readonly) != 0,
        is_session_expired: number(expired) != 0,
        delay: number(delay),
        queue: number(queue),
        total: number(total),
        active: number(active),
        exception,
    }
}

/// Checks the engines and the quorum. Returns whether there are replicas to check.
fn check_engines_and_quorum(
    report: &mut Report,
    config: &config::ClickHouse,
    tables: &[[String; 3]],
) -> bool {
    let tables_with = |test: fn(&str) -> bool| {
        let names =
            tables.iter().filter(|[_, engine, _]| test(engine)).map(|[name, ..]| name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    let replicated = tables_with(|engine| engine.starts_with("Replicated"));
    let shared = tables_with(|engine| engine.starts_with("Shared"));
    let plain =
        tables_with(|engine| !engine.starts_with("Replicated") && !engine.starts_with("Shared"));
    if replicated.is_empty() && shared.is_empty() {
        if config.replication != Replication::None {
            report.error(
                "replication",
                format!("{plain}: not replicated, so a quorum has no effect"),
                "set clickhouse.replication = \"none\", or move to replicated tables, see \
                 docs/clickhouse.md",
            );
        }
        return false;
    }
    if !plain.is_empty() {
        report.error(
            "replication",
            format!("{plain}: on one server alone, while other tables are replicated"),
            "make them replicated, see docs/clickhouse.md",
        );
    }
    if replicated.is_empty() {
        report.ok("insert quorum", "none is needed: all servers share the storage");
        return false;
    }
    let advice = match (config.replication, config.insert_quorum) {
        (Replication::None, _) => "set clickhouse.replication = \"macros\" or \"managed\"",
        (Replication::Macros | Replication::Managed, InsertQuorum::Replicas(0 | 1)) => {
            "set clickhouse.insert_quorum = \"auto\""
        }
        (
            Replication::Macros | Replication::Managed,
            InsertQuorum::Auto | InsertQuorum::Replicas(_),
        ) => {
            report.ok("insert quorum", "acknowledged rows are on more than one replica");
            return true;
        }
    };
    report.error(
        "insert quorum",
        format!(
            "{replicated}: replicated, but milepost acknowledges messages whose rows only one \
             replica has; if that replica is lost, so are the rows"
        ),
        advice,
    );
    true
}

/// Returns the number of replicas that an insert waits for. `replicas`: how many there are.
fn quorum(config: &config::ClickHouse, replicas: u64) -> u64 {
    match (config.replication, config.insert_quorum) {
        (Replication::None, _) => 0,
        (_, InsertQuorum::Replicas(number)) => u64::from(number),
        (_, InsertQuorum::Auto) => 2.max(replicas / 2 + 1),
    }
}

/// Reports the state of the replicas.
fn check_health(report: &mut Report, config: &config::ClickHouse, replicas: &[Replica]) {
    let tables_where = |test: &dyn Fn(&Replica) -> bool| {
        let names =
            replicas.iter().filter(|replica| test(replica)).map(|replica| replica.table.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    let without_keeper =
        tables_where(&|replica| replica.is_session_expired || !replica.exception.is_empty());
    if !without_keeper.is_empty() {
        let exception = replicas
            .iter()
            .map(|replica| replica.exception.as_str())
            .find(|exception| !exception.is_empty());
        report.error(
            "Keeper",
            format!("{without_keeper}: no session with Keeper: {}", exception.unwrap_or_default())
                .trim_end_matches(": ")
                .to_owned(),
            "start Keeper, and make sure that the server reaches it (<zookeeper> in the server's \
             configuration); until then nothing can be inserted",
        );
    }
    let readonly = tables_where(&|replica| replica.is_readonly);
    if !readonly.is_empty() {
        report.error(
            "read-only replica",
            format!("{readonly}: nothing can be inserted on this replica"),
            "if Keeper is reachable, run SYSTEM RESTART REPLICA; if the replica's metadata in \
             Keeper is lost, run SYSTEM RESTORE REPLICA",
        );
    }
    if !without_keeper.is_empty() || !readonly.is_empty() {
        return; // without Keeper, the other values are stale
    }
    // No row means that the server does not fill system.replicas, or hides the replicas from this
    // user.
    let Some(weakest) = replicas.iter().min_by_key(|replica| (replica.active, replica.total))
    else {
        return report.warning(
            "replicas",
            "system.replicas shows none to this user",
            "query it as an administrator: total_replicas, active_replicas, absolute_delay",
        );
    };
    let found = format!("{} of {} live ({})", weakest.active, weakest.total, weakest.table);
    let wanted = quorum(config, weakest.total);
    if weakest.total < wanted {
        report.error(
            "replicas",
            format!(
                "{found}: fewer than the {wanted} that an insert waits for, so nothing is inserted"
            ),
            "create the tables on another server, see docs/clickhouse.md; or lower \
             clickhouse.insert_quorum",
        );
    } else if weakest.active < wanted {
        report.error(
            "replicas",
            format!(
                "{found}: fewer than the {wanted} that an insert waits for, so nothing is inserted"
            ),
            "start the servers that are down; system.replicas names them",
        );
    } else if wanted > 0 && weakest.total == wanted {
        report.warning(
            "replicas",
            format!("{found}: an insert waits for all of them, so losing one stops inserts"),
            "add one more replica; until then set spool.dir, which holds the batches",
        );
    } else if weakest.active < weakest.total {
        report.warning("replicas", found, "start the servers that are down");
    } else {
        report.ok("replicas", found);
    }
    let behind = replicas.iter().max_by_key(|replica| replica.delay);
    if let Some(behind) = behind.filter(|replica| replica.delay > DELAY_SECONDS_MAX) {
        report.warning(
            "replica lag",
            format!(
                "{} is {} s behind here, {} entries wait",
                behind.table, behind.delay, behind.queue
            ),
            "see last_exception in system.replication_queue; check the network between the \
             replicas (port 9009) and the disk",
        );
    }
}

/// Checks that the replicated tables remember the tokens of inserts for long enough.
fn check_token_windows(
    report: &mut Report,
    database: &str,
    tables: &[[String; 3]],
    defaults: &[[String; 2]],
) {
    let (count_setting, seconds_setting) =
        ("replicated_deduplication_window", "replicated_deduplication_window_seconds");
    let mut statements = Vec::new();
    for [name, engine, engine_full] in tables {
        let value = |name: &str| setting(engine_full, name, defaults);
        // An unreadable default is reported by the check of durability.
        let is_short = value(count_setting).is_some_and(|value| value < TOKENS_MIN)
            || value(seconds_setting).is_some_and(|value| value < TOKEN_SECONDS_MIN);
        let has_window = !TABLES_WITHOUT_WINDOW.contains(&name.as_str());
        if has_window && is_short && engine.starts_with("Replicated") {
            let settings = format!("{count_setting} = 10000, {seconds_setting} = 604800");
            statements.push(format!("ALTER TABLE {database}.{name} MODIFY SETTING {settings}"));
        }
    }
    if !statements.is_empty() {
        report.warning(
            "token window",
            "replicas forget an insert's token before its last retry; then rejects are stored \
             twice",
            format!("run in ClickHouse: {}", statements.join("; ")),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Level;
    use milepost_config::Config;

    fn config(toml: &str) -> config::ClickHouse {
        Config::parse(&format!("[clickhouse]\n{toml}")).unwrap().clickhouse
    }

    fn engine_report(toml: &str, tables: &[[&str; 2]]) -> Report {
        let tables: Vec<_> =
            tables.iter().map(|[name, engine]| [name, engine, ""].map(str::to_owned)).collect();
        let mut report = Report::default();
        check_engines_and_quorum(&mut report, &config(toml), &tables);
        report
    }

    #[test]
    fn insert_acknowledged_by_one_replica_is_an_error() {
        let two_tables =
            [["positions", "ReplicatedReplacingMergeTree"], ["rejects", "ReplicatedMergeTree"]];
        let report = engine_report("", &two_tables);
        assert!(
            report.has_finding(Level::Error, "insert quorum", "clickhouse.replication = "),
            "{report}"
        );
        let report = engine_report("replication = 'macros'\ninsert_quorum = 0", &two_tables);
        assert!(
            report.has_finding(Level::Error, "insert quorum", "insert_quorum = \"auto\""),
            "{report}"
        );
        assert!(!engine_report("replication = 'macros'", &two_tables).has_errors());
        assert!(
            !engine_report("replication = 'managed'\ninsert_quorum = 3", &two_tables).has_errors()
        );
        let report =
            engine_report("replication = 'macros'", &[two_tables[0], ["rejects", "MergeTree"]]);
        assert!(
            report.has_finding(Level::Error, "replication", "rejects: on one server alone"),
            "{report}"
        );
        let report =
            engine_report("replication = 'macros'", &[["positions", "ReplacingMergeTree"]]);
        assert!(
            report.has_finding(Level::Error, "replication", "a quorum has no effect"),
            "{report}"
        );
        assert!(engine_report("", &[["positions", "ReplacingMergeTree"]]).findings().is_empty());
        let report =
            engine_report("replication = 'managed'", &[["positions", "SharedReplacingMergeTree"]]);
        assert!(report.has_finding(Level::Ok, "insert quorum", "none is needed"), "{report}");
    }

    /// Returns the report of one table. `row`: its row of `system.replicas`, without the name.
    fn replica_report(toml: &str, row: [&str; 7]) -> Report {
        let mut report = Report::default();
        let [readonly, expired, delay, queue, total, active, exception] = row;
        let row = ["positions", readonly, expired, delay, queue, total, active, exception]
            .map(str::to_owned);
        check_health(&mut report, &config(toml), &[replica(row)]);
        report
    }

    #[test]
    fn each_fault_of_a_replica_is_reported_with_advice() {
        let report_of = |row| replica_report("replication = 'macros'", row);
        // is_readonly, is_session_expired, delay, queue, total, active, exception.
        for (row, level, subject, expected) in [
            (["0", "0", "0", "0", "3", "3", ""], Level::Ok, "replicas", "3 of 3 live"),
            (
                ["0", "0", "0", "0", "2", "2", ""],
                Level::Warning,
                "replicas",
                "losing one stops inserts",
            ),
            (["0", "0", "0", "0", "3", "2", ""], Level::Warning, "replicas", "start the servers"),
            (["0", "0", "0", "0", "2", "1", ""], Level::Error, "replicas", "fewer than the 2"),
            (["0", "0", "0", "0", "5", "2", ""], Level::Error, "replicas", "fewer than the 3"),
            (["0", "0", "0", "0", "1", "1", ""], Level::Error, "replicas", "another server"),
            (
                ["0", "0", "61", "9", "3", "3", ""],
                Level::Warning,
                "replica lag",
                "system.replication_queue",
            ),
            (
                ["1", "0", "0", "0", "3", "3", ""],
                Level::Error,
                "read-only replica",
                "SYSTEM RESTART REPLICA",
            ),
            (["1", "1", "0", "0", "3", "3", ""], Level::Error, "Keeper", "<zookeeper>"),
            (
                ["0", "0", "0", "0", "0", "0", "Connection loss"],
                Level::Error,
                "Keeper",
                "Connection loss",
            ),
        ] {
            assert!(
                report_of(row).has_finding(level, subject, expected),
                "{row:?}: {}",
                report_of(row)
            );
        }
        let lag = report_of(["0", "0", "60", "0", "3", "3", ""]);
        assert!(lag.findings().iter().all(|finding| finding.level == Level::Ok), "{lag}");
        let four = replica_report(
            "replication = 'macros'\ninsert_quorum = 4",
            ["0", "0", "0", "0", "3", "3", ""],
        );
        assert!(four.has_finding(Level::Error, "replicas", "fewer than the 4"), "{four}");
        let mut none = Report::default();
        check_health(&mut none, &config("replication = 'macros'"), &[]);
        assert!(none.has_finding(Level::Warning, "replicas", "shows none"), "{none}");
    }

    #[test]
    fn setting_of_a_table_may_be_a_number_or_a_boolean() {
        let full = "MergeTree ORDER BY ts SETTINGS a = 10000, b = true, c = false";
        let defaults = [["a", "1"], ["e", "0"]].map(|default| default.map(str::to_owned));
        let values = ["a", "b", "c", "e", "f"].map(|name| setting(full, name, &defaults));
        assert_eq!(values, [Some(10_000), Some(1), Some(0), Some(0), None]);
    }

    #[test]
    fn short_token_window_is_reported_with_the_statement() {
        for (full, is_short) in [
            ("SETTINGS index_granularity = 8192", true),
            ("SETTINGS replicated_deduplication_window_seconds = 604800", false),
            (
                "SETTINGS replicated_deduplication_window = 100, \
                 replicated_deduplication_window_seconds = 604800",
                true,
            ),
        ] {
            let mut report = Report::default();
            let row = ["positions", "ReplicatedMergeTree", full].map(str::to_owned);
            let defaults = [
                ["replicated_deduplication_window", "10000"],
                ["replicated_deduplication_window_seconds", "3600"],
            ];
            check_token_windows(
                &mut report,
                "fleet",
                &[row],
                &defaults.map(|default| default.map(str::to_owned)),
            );
            let expected = "ALTER TABLE fleet.positions MODIFY SETTING \
                            replicated_deduplication_window = 10000";
            assert_eq!(
                report.has_finding(Level::Warning, "token window", expected),
                is_short,
                "{full}: {report}"
            );
        }
    }
}
