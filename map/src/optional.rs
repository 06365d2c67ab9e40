//! Replaces missing tables in queries, so that the map works with a database that an older
//! `milepost migrate` created. The query reads a missing table as empty instead of failing, so only
//! the part of the page that needs the table stays empty. No I/O.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time after which a query tries a missing table again.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// The optional tables. Each has a SELECT list with the names and types of the columns that queries
/// read.
const TABLES: [(&str, &str); 4] = [
    (
        "alerts_seen",
        "'' AS driver_id, toDateTime64(0, 3, 'UTC') AS ts, toUInt32(0) AS seq, '' AS kind,
            '' AS fence, '' AS seen_by, toDateTime64(0, 3, 'UTC') AS seen_at",
    ),
    (
        "drivers",
        "'' AS driver_id, '' AS name, '' AS `group`, '' AS vehicle, '' AS phone, '' AS note,
            toDateTime64(0, 3, 'UTC') AS written_at",
    ),
    (
        "events",
        "'' AS driver_id, toDateTime64(0, 3, 'UTC') AS ts, toUInt32(0) AS seq, '' AS kind,
            '' AS fence, toFloat64(0) AS lat, toFloat64(0) AS lng,
            CAST(NULL, 'Nullable(Float32)') AS speed, toDateTime64(0, 3, 'UTC') AS known_at",
    ),
    (
        "fences",
        "'' AS name, toDateTime64(0, 3, 'UTC') AS valid_from,
            toDateTime64(0, 3, 'UTC') AS valid_until,
            CAST([], 'Array(Array(Array(Tuple(Float64, Float64))))') AS polygons",
    ),
];

/// Records which optional tables are missing.
#[derive(Debug, Default)]
pub struct OptionalTables {
    /// The missing tables, each with the time of the last query that failed because of it.
    missing: Mutex<BTreeMap<&'static str, Instant>>,
    has_drivers: AtomicBool,
}

impl OptionalTables {
    /// Makes `drivers` a required table. The caller does this once the table has had rows, because
    /// these rows assign drivers to groups, and a viewer's scope depends on the groups. If the
    /// table then read as empty, a viewer could see drivers of another group.
    pub fn require_drivers(&self) {
        self.has_drivers.store(true, Relaxed);
    }

    /// Records the table that ClickHouse's `message` (`UNKNOWN_TABLE`) reports as missing, and logs
    /// the first report. Returns the table if it is optional; [`Self::apply`] replaces such a
    /// table.
    pub fn record(&self, database: &str, message: &str, now: Instant) -> Option<&'static str> {
        let table = reported(database, message)?;
        if table == "drivers" && self.has_drivers.load(Relaxed) {
            return None;
        }
        if self.lock().insert(table, now).is_none() {
            let hint = hint(&[table]);
            tracing::warn!(table, hint, "a part of the map is disabled");
        }
        Some(table)
    }

    /// Replaces each missing table in `sql` by a subquery without rows. `{db}` in the SQL stands
    /// for the database.
    pub fn apply(&self, sql: &str, now: Instant) -> String {
        let missing = self.missing(now);
        let tables = TABLES.iter().filter(|(table, _)| missing.contains(table));
        tables.fold(sql.to_owned(), |sql, (table, columns)| {
            let empty = format!("(SELECT {columns} WHERE 0) AS {table}");
            let name = format!("{{db}}.{table}");
            let mut parts = sql.split(&name);
            let first = parts.next().unwrap_or_default().to_owned();
            parts.fold(first, |before, after| match after.strip_prefix(" FINAL") {
                Some(after) => before + &empty + after,
                // The name goes on, so this is another table.
                None if after.starts_with(is_word) => before + &name + after,
                None => before + &empty + after,
            })
        })
    }

    /// Returns advice if some of these tables are missing; `None`: no table is missing.
    #[must_use]
    pub fn hint(&self, tables: &[&str], now: Instant) -> Option<String> {
        let missing = self.missing(now);
        let tables: Vec<&str> =
            tables.iter().copied().filter(|table| missing.contains(table)).collect();
        (!tables.is_empty()).then(|| hint(&tables))
    }

    /// Returns the missing tables, except those that it is time to try again ([`RETRY_AFTER`]).
    fn missing(&self, now: Instant) -> Vec<&'static str> {
        let recent = |at: &Instant| now - *at < RETRY_AFTER;
        self.lock().iter().filter(|(_, at)| recent(at)).map(|(table, _)| *table).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<&'static str, Instant>> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn hint(tables: &[&str]) -> String {
    format!("ClickHouse has no table {}: run milepost migrate", tables.join(", "))
}

/// Returns the optional table that `message` reports as missing. Ignores the query that the message
/// may quote after it, because the query names other tables too.
fn reported(database: &str, message: &str) -> Option<&'static str> {
    let prefixes = ["identifier '", "Table "];
    let starts =
        prefixes.into_iter().filter_map(|prefix| Some(message.find(prefix)? + prefix.len()));
    let name = message[starts.min()?..].split(|c: char| c == '\'' || c.is_whitespace()).next()?;
    let name = name.replace('`', "");
    let name = name.strip_prefix(database)?.strip_prefix('.')?;
    TABLES.iter().map(|(table, _)| *table).find(|table| *table == name)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNKNOWN: &str = "Code: 60. DB::Exception: Unknown table expression identifier \
                           'fleet.drivers' in scope \
                           SELECT * FROM fleet.alerts_seen, fleet.drivers. (UNKNOWN_TABLE)";

    #[test]
    fn reported_table_is_the_first_in_the_message() {
        assert_eq!(reported("fleet", UNKNOWN), Some("drivers"));
        for (message, table) in [
            ("Table fleet.events does not exist. Maybe you meant fleet.fences?", Some("events")),
            ("Table `fleet`.`fences` does not exist", Some("fences")),
            (
                "Code: 60. DB::Exception: Unknown table expression identifier \
                 'fleet.last_positions' \
                 in scope SELECT driver_id FROM fleet.last_positions WHERE driver_id NOT IN \
                 (SELECT driver_id FROM fleet.drivers FINAL). (UNKNOWN_TABLE)",
                None,
            ),
            ("Unknown table expression identifier 'fleet.events_old' in scope fleet.events", None),
            ("Table fleet.events_old does not exist", None),
            ("Table fleet.positions does not exist", None),
            ("Table other.events does not exist", None),
        ] {
            assert_eq!(reported("fleet", message), table, "{message}");
        }
    }

    #[test]
    fn missing_table_reads_as_empty_until_it_is_tried_again() {
        let (optional, now) = (OptionalTables::default(), Instant::now());
        let sql = "SELECT name FROM {db}.drivers FINAL WHERE {db}.drivers_x, {db}.drivers";
        assert_eq!(optional.apply(sql, now), sql);
        assert_eq!(optional.record("fleet", UNKNOWN, now), Some("drivers"));
        let replaced = optional.apply(sql, now);
        assert!(
            replaced.contains("WHERE 0) AS drivers WHERE {db}.drivers_x, (SELECT"),
            "{replaced}"
        );
        assert!(optional.hint(&["drivers", "events"], now).unwrap().contains("table drivers:"));
        assert_eq!(optional.hint(&["events"], now), None);
        assert_eq!(optional.apply(sql, now + RETRY_AFTER), sql);
        assert_eq!(optional.hint(&["drivers"], now + RETRY_AFTER), None);
    }

    #[test]
    fn drivers_are_required_once_they_had_rows() {
        let (optional, now) = (OptionalTables::default(), Instant::now());
        optional.require_drivers();
        assert_eq!(optional.record("fleet", UNKNOWN, now), None);
        assert_eq!(optional.apply("{db}.drivers", now), "{db}.drivers");
    }
}
