//! The names and the statements of the move, in the order in which they run. Nothing here asks a server.

use crate::clickhouse::files::{BACKFILLS, BY_DAY_FILE, ERASED, MIGRATIONS};
use crate::clickhouse::render::Layout;
use crate::config::{self, Replication};

pub(crate) const POSITIONS: &str = "positions";
/// The table in the order of days before the exchange, the one in the order of drivers after it.
pub(crate) const SECOND: &str = "positions_by_day";
pub(super) const VIEW: &str = "positions_by_day_mv";
/// What the table in the order of drivers is called in the end.
pub(crate) const OLD: &str = "positions_by_driver";
/// When ClickHouse took a row. Roll-ups count what came since they counted last, and go by it.
const INSERTED_AT: &str = "inserted_at";

/// In parts of this size, for some hundred MB of memory.
const IN_LARGE_BLOCKS: &str = "insert_deduplicate = 0, max_insert_threads = 1, min_insert_block_size_rows = 4000000, \
                               min_insert_block_size_bytes = 500000000";

/// The step that is recorded before the tables are exchanged.
pub(super) const EXCHANGE: &str = "exchange";

pub(super) fn create(layout: &Layout) -> String {
    layout.beside(&BY_DAY_FILE, MIGRATIONS, SECOND)
}

pub(super) fn view(columns: &[String]) -> String {
    format!(
        "CREATE MATERIALIZED VIEW IF NOT EXISTS {{database}}.{VIEW} TO {{database}}.{SECOND} AS {}",
        select(columns)
    )
}

pub(super) fn select(columns: &[String]) -> String {
    format!("SELECT {} FROM {{database}}.{POSITIONS}", columns.join(", "))
}

/// Of a month the drivers behind `after`, up to `until`; empty: no bound. Both in hexadecimal.
pub(super) fn only_of(month: &str, after: &str, until: &str) -> String {
    let mut only = format!("_partition_id = '{month}'");
    for (is, driver) in [(">", after), ("<=", until)] {
        if !driver.is_empty() {
            only += &format!(" AND driver_id {is} unhex('{driver}')");
        }
    }
    only
}

/// What was there before the view, a piece of it.
pub(super) fn copy(columns: &[String], only: &str, replication: Replication) -> String {
    copying(POSITIONS, SECOND, columns, only, replication)
}

pub(super) fn sync() -> String {
    format!("SYSTEM SYNC REPLICA {{database}}.{SECOND}")
}

pub(super) fn exchange() -> String {
    format!("EXCHANGE TABLES {{database}}.{POSITIONS} AND {{database}}.{SECOND}")
}

pub(super) fn drop_view() -> String {
    format!("DROP VIEW IF EXISTS {{database}}.{VIEW}")
}

/// The months of the older table in which something changed since an hour before the exchange.
pub(super) fn changed_since(database: &str) -> String {
    format!(
        "SELECT DISTINCT partition_id FROM system.parts WHERE database = '{database}' AND table = '{SECOND}' AND active AND \
         modification_time >= {} ORDER BY partition_id",
        since(database)
    )
}

/// Of such a month, what came since then. It counts as inserted now: roll-ups that have counted further would pass over it.
pub(super) fn last_pass(database: &str, columns: &[String], month: &str, replication: Replication) -> String {
    let columns: Vec<String> = columns.iter().filter(|name| *name != INSERTED_AT).cloned().collect();
    let only = format!("_partition_id = '{month}' AND {INSERTED_AT} >= {}", since(database));
    copying(SECOND, POSITIONS, &columns, &only, replication)
}

pub(super) fn rename() -> String {
    format!("RENAME TABLE {{database}}.{SECOND} TO {{database}}.{OLD}")
}

fn since(database: &str) -> String {
    format!("(SELECT max(done_at) FROM {database}.{BACKFILLS} WHERE step = '{EXCHANGE}') - INTERVAL 1 HOUR")
}

/// Without those who are erased.
fn copying(from: &str, to: &str, columns: &[String], only: &str, replication: Replication) -> String {
    let columns = columns.join(", ");
    let quorum = match replication {
        Replication::None => "",
        // What is recorded as copied must not be on one replica alone.
        Replication::Macros | Replication::Managed => {
            ", insert_quorum = 'auto', insert_quorum_timeout = 600000"
        }
    };
    format!(
        "INSERT INTO {{database}}.{to} ({columns}) SELECT {columns} FROM {{database}}.{from} WHERE {only} AND driver_id NOT IN \
         (SELECT driver_id FROM {{database}}.{ERASED} FINAL WHERE NOT is_lifted) SETTINGS {IN_LARGE_BLOCKS}{quorum}"
    )
}

/// Every statement, in order: what it is for, where it runs, and its text.
pub(crate) fn plan(config: &config::ClickHouse) -> Vec<(&'static str, String, String)> {
    let layout = Layout::new(config);
    let (replication, replicated) = (layout.replication(), layout.replication() != Replication::None);
    let ours = crate::pipeline::encode::POSITIONS.columns.iter().map(|(name, _)| *name);
    let columns: Vec<String> = ours.chain([INSERTED_AT]).map(str::to_owned).collect();
    let sync = replicated.then(|| ("until every replica has it", sync()));
    let steps = [
        ("what comes from now on", view(&columns)),
        (
            "each month, in pieces",
            copy(&columns, "_partition_id = '…' AND driver_id > '…' AND driver_id <= '…'", replication),
        ),
    ];
    let last = [
        ("the exchange, if positions is in the order of drivers", exchange()),
        ("the view goes", drop_view()),
        ("what inserts that were under way brought", last_pass(&config.database, &columns, "…", replication)),
        ("the older table, yours to drop", rename()),
    ];
    let place = |sql: &str| match sql.starts_with("INSERT") {
        true => "on the host that is asked".to_owned(),
        false => layout.place(),
    };
    let rest = steps.into_iter().chain(sync).chain(last);
    let rest = rest.map(|(what, sql)| (what, place(&sql), layout.statement(&sql)));
    [("the table in the order of days", layout.place(), create(&layout))].into_iter().chain(rest).collect()
}
