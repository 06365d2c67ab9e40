//! Checks that tables, views, hosts and `clickhouse.shards` agree. If they disagree, no query
//! fails, but readers miss drivers, or the fixes of one driver are on two shards.

use super::report::Report;
use milepost_clickhouse::{ClickHouse, Error};
use milepost_config as config;
use milepost_config::Replication;

const SUBJECT: &str = "shards";
const NEW_DATABASE_ADVICE: &str = "create the tables in another database (clickhouse.database), \
                                   and copy the history there, see docs/clickhouse.md";
/// The Distributed table over the shards' `positions`, for inserts and reads.
const SHARDED_POSITIONS: &str = "positions_all";
/// Views that must read all shards. A view that reads the tables of one shard misses drivers.
const VIEWS: [&str; 3] = ["fixes", "last_positions", "driver_quarters"];

/// A replica of the cluster, as configured on the server that answered.
#[derive(Debug)]
struct Host {
    shard: String,
    /// `internal_replication` is off, so the Distributed table itself writes each insert to every
    /// replica.
    is_written_directly: bool,
}

/// Checks the shards. `tables`: name, engine and `engine_full` of every table.
pub(super) async fn check(
    report: &mut Report,
    config: &config::ClickHouse,
    clickhouse: &ClickHouse,
    tables: &[[String; 3]],
) -> Result<(), Error> {
    // ClickHouse lists a Replicated database as a cluster of the same name.
    let cluster = match (&config.cluster, config.replication) {
        (Some(cluster), _) => cluster,
        (None, Replication::Managed) => &config.database,
        (None, Replication::None | Replication::Macros) => {
            compare_tables(report, config, tables, &[]);
            return Ok(());
        }
    };
    let sql = format!(
        "SELECT shard_num, internal_replication FROM system.clusters WHERE cluster = {} \
         ORDER BY shard_num, replica_num",
        cluster_name(cluster)
    );
    let Some(rows) = clickhouse.query_rows_if_allowed("reading system.clusters", &sql).await?
    else {
        if config.cluster.is_some() {
            report.warning(
                SUBJECT,
                "not checked: ClickHouse refused to read system.clusters",
                "GRANT SELECT ON system.clusters to this user, check that the server has the \
                 macros of clickhouse.cluster (system.macros), and run milepost check again",
            );
        }
        return Ok(());
    };
    let hosts: Vec<Host> = (rows.into_iter())
        .map(|[shard, internal_replication]| Host {
            shard,
            is_written_directly: internal_replication == "0",
        })
        .collect();
    let has_shards = compare_tables(report, config, tables, &hosts);
    if !has_shards {
        return Ok(());
    }
    let database = &config.database;
    let sql = format!(
        "SELECT name FROM system.tables WHERE database = '{database}' AND name IN ('{}') \
         AND position(as_select, '_all') = 0",
        VIEWS.join("', '")
    );
    report_views(
        report,
        &clickhouse.query_rows::<1>("reading what views select", &sql).await?.concat(),
    );
    // clusterAllReplicas numbers each replica as a shard, in the order of the cluster.
    let sql = format!(
        "SELECT shardNum(), hostName(), getMacro('shard') \
         FROM clusterAllReplicas('{cluster}', system.one) ORDER BY 1, 2"
    );
    match clickhouse.query_rows("asking every host for its macros", &sql).await {
        Ok(rows) => compare_macros(report, &hosts, &rows),
        Err(error) => report.warning(
            SUBJECT,
            format!("not every host could be asked for its macros: {error}"),
            "start the hosts that are down, and grant REMOTE to this user",
        ),
    }
    Ok(())
}

/// Returns the cluster's name as SQL. A part in braces, such as `{cluster}`, is a macro of the
/// server.
fn cluster_name(cluster: &str) -> String {
    let (mut parts, mut rest) = (Vec::new(), cluster);
    while let Some((before, after)) = rest.split_once('{')
        && let Some((name, end)) = after.split_once('}')
    {
        if !before.is_empty() {
            parts.push(format!("'{before}'"));
        }
        parts.push(format!("getMacro('{name}')"));
        rest = end;
    }
    if !rest.is_empty() || parts.is_empty() {
        parts.push(format!("'{rest}'"));
    }
    if parts.len() == 1 { parts.remove(0) } else { format!("concat({})", parts.join(", ")) }
}

/// Compares the tables with the configuration and the cluster. Returns whether both the
/// configuration and the tables have shards, so that the shards can be checked.
fn compare_tables(
    report: &mut Report,
    config: &config::ClickHouse,
    tables: &[[String; 3]],
    hosts: &[Host],
) -> bool {
    let sharded_engine =
        tables.iter().find(|[name, ..]| name == SHARDED_POSITIONS).map(|[.., full]| full);
    let shards =
        hosts.iter().map(|host| &host.shard).collect::<std::collections::BTreeSet<_>>().len();
    let Some(engine) = sharded_engine.filter(|_| config.shards) else {
        if config.shards {
            let found = format!(
                "{SHARDED_POSITIONS} is missing: these tables were created without \
                 clickhouse.shards"
            );
            report.error(SUBJECT, found, NEW_DATABASE_ADVICE);
        } else if sharded_engine.is_some() {
            let found =
                format!("{SHARDED_POSITIONS} exists, but inserts go to one shard's own table");
            report.error(SUBJECT, found, "set clickhouse.shards = true");
        } else if shards > 1 {
            let found =
                format!("the cluster has {shards} shards, but the view fixes shows only one");
            report.error(
                SUBJECT,
                found,
                format!("set clickhouse.shards = true; {NEW_DATABASE_ADVICE}"),
            );
        }
        return false;
    };
    let cluster = config.cluster.as_deref().unwrap_or_default();
    let expected = format!("'{}', 'positions', cityHash64(driver_id))", config.database);
    if !engine.contains(&expected) {
        let found = format!("{SHARDED_POSITIONS} is {engine}, not as milepost migrate creates it");
        report.error(
            SUBJECT,
            found,
            format!(
                "if nothing was inserted yet, drop it and run milepost migrate; else \
                 {NEW_DATABASE_ADVICE}"
            ),
        );
    } else if hosts.is_empty() {
        let found = format!("the server has no cluster {cluster}");
        report.error(
            SUBJECT,
            found,
            "add it to <remote_servers> on every host, or correct clickhouse.cluster",
        );
    } else if hosts.len() > shards && hosts.iter().any(|host| host.is_written_directly) {
        let found = format!(
            "the cluster {cluster} has replicas without internal_replication: one host writes each \
             insert to all of them"
        );
        report.error(
            SUBJECT,
            found,
            "set <internal_replication>true</internal_replication> in each <shard> of \
             <remote_servers>, on every host",
        );
    } else {
        report.ok(SUBJECT, format!("{shards}, and inserts reach all of them"));
    }
    true
}

/// Reports that the views in `names` read only one shard's table.
fn report_views(report: &mut Report, names: &[String]) {
    if names.is_empty() {
        return;
    }
    report.error(
        SUBJECT,
        format!(
            "{}: reads one shard's table, so it shows only the drivers there",
            names.join(", ")
        ),
        "run the statement of `milepost migrate --plan` that creates it",
    );
}

/// Compares the hosts' macros with the cluster. `rows`: the replica's number, its host name, and
/// its macro `{shard}`.
fn compare_macros(report: &mut Report, hosts: &[Host], rows: &[[String; 3]]) {
    let shard = |number: &str| {
        let index = number.parse::<usize>().ok()?.checked_sub(1)?;
        Some(&hosts.get(index)?.shard)
    };
    // The paths of the tables in Keeper contain the macro, so hosts with the same macro replicate
    // each other.
    for [number, host, shard_macro] in rows {
        for [other_number, other_host, other_macro] in rows {
            let is_one_shard = shard(number) == shard(other_number);
            let contradiction = match (is_one_shard, shard_macro == other_macro) {
                (true, false) => {
                    "are one shard but do not replicate each other: their macros {shard} differ"
                }
                (false, true) => {
                    "are two shards but replicate each other: their macro {shard} is the same"
                }
                (true, true) | (false, false) => continue,
            };
            let found =
                format!("{host} ({shard_macro}) and {other_host} ({other_macro}) {contradiction}");
            return report.error(
                SUBJECT,
                found,
                "set the macro {shard} of each host (<macros>) to its shard in <remote_servers>",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Level;
    use milepost_config::Config;

    const SHARDS: &str = "replication = 'macros'\ncluster = 'c'\nshards = true";
    const SHARDED: &str = "Distributed('c', 'fleet', 'positions', cityHash64(driver_id))";

    fn row(cells: [&str; 3]) -> [String; 3] {
        cells.map(str::to_owned)
    }

    fn table_report(toml: &str, sharded: Option<&str>, hosts: &[(&str, bool)]) -> Report {
        let config = Config::parse(&format!("[clickhouse]\n{toml}")).unwrap().clickhouse;
        let sharded = sharded.map(|full| row([SHARDED_POSITIONS, "Distributed", full]));
        let mut report = Report::default();
        compare_tables(&mut report, &config, sharded.as_slice(), &hosts_of_shards(hosts));
        report
    }

    fn hosts_of_shards(hosts: &[(&str, bool)]) -> Vec<Host> {
        let host = |(shard, is_written_directly): &(&str, bool)| Host {
            shard: (*shard).to_owned(),
            is_written_directly: *is_written_directly,
        };
        hosts.iter().map(host).collect()
    }

    #[test]
    fn incomplete_configuration_of_shards_is_an_error() {
        let two = [("1", false), ("2", false)];
        for (toml, sharded, hosts, expected) in [
            (SHARDS, None, &two[..], "another database"),
            ("", Some(SHARDED), &[], "clickhouse.shards = true"),
            ("replication = 'macros'\ncluster = 'c'", Some(SHARDED), &two, "one shard's own table"),
            (
                "replication = 'macros'\ncluster = 'c'",
                None,
                &two,
                "but the view fixes shows only one",
            ),
            ("replication = 'managed'", None, &two, "but the view fixes shows only one"),
            (
                SHARDS,
                Some("Distributed('c', 'fleet', 'positions', rand())"),
                &two,
                "not as milepost migrate creates it",
            ),
            (
                SHARDS,
                Some("Distributed('c', 'other', 'positions', cityHash64(driver_id))"),
                &two,
                "not as milepost migrate creates it",
            ),
            (SHARDS, Some(SHARDED), &[], "no cluster c"),
            (
                SHARDS,
                Some(SHARDED),
                &[("1", true), ("1", true), ("2", true)],
                "internal_replication",
            ),
        ] {
            let report = table_report(toml, sharded, hosts);
            assert!(
                report.has_finding(Level::Error, SUBJECT, expected),
                "{toml} {sharded:?} {hosts:?}: {report}"
            );
        }
        let good = table_report(SHARDS, Some(SHARDED), &[("1", false), ("1", false), ("2", false)]);
        assert!(good.has_finding(Level::Ok, SUBJECT, "2, and inserts reach all"), "{good}");
        let without_replicas = table_report(SHARDS, Some(SHARDED), &[("1", true), ("2", true)]);
        assert!(
            without_replicas.has_finding(Level::Ok, SUBJECT, "2, and"),
            "with one replica each, internal_replication does not matter: {without_replicas}"
        );
        for unsharded in [
            table_report("", None, &[]),
            table_report("replication = 'macros'\ncluster = 'c'", None, &two[..1]),
        ] {
            assert!(unsharded.findings().is_empty(), "{unsharded}");
        }
    }

    #[test]
    fn macros_in_the_name_of_the_cluster_are_expanded() {
        for (cluster, sql) in [
            ("c", "'c'"),
            ("{cluster}", "getMacro('cluster')"),
            ("fleet_{env}", "concat('fleet_', getMacro('env'))"),
            ("{a}{b}-x", "concat(getMacro('a'), getMacro('b'), '-x')"),
            ("a{", "'a{'"),
        ] {
            assert_eq!(cluster_name(cluster), sql);
        }
    }

    #[test]
    fn hosts_whose_macros_contradict_the_cluster_are_named() {
        for (shards, rows, expected) in [
            (["1", "2"], [["1", "a", "01"], ["2", "b", "01"]], "a (01) and b (01) are two shards"),
            (["1", "1"], [["1", "a", "01"], ["2", "b", "02"]], "a (01) and b (02) are one shard"),
        ] {
            let mut report = Report::default();
            compare_macros(
                &mut report,
                &hosts_of_shards(&shards.map(|shard| (shard, false))),
                &rows.map(row),
            );
            assert!(report.has_finding(Level::Error, SUBJECT, expected), "{report}");
        }
        let mut good = Report::default();
        let hosts = hosts_of_shards(&[("1", false), ("1", false), ("2", false)]);
        compare_macros(
            &mut good,
            &hosts,
            &[["1", "a", "01"], ["2", "b", "01"], ["3", "c", "02"]].map(row),
        );
        assert!(good.findings().is_empty(), "{good}");
        report_views(&mut good, &["fixes".to_owned()]);
        assert!(
            good.has_finding(Level::Error, SUBJECT, "fixes: reads one shard's table"),
            "{good}"
        );
    }
}
