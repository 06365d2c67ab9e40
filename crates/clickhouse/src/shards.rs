//! Tables that are spread over shards. Each shard has the tables of `sql/` with the rows of its own
//! drivers. For each such table, a Distributed table named `…_all` reads all shards and sends each
//! inserted row to its shard.
//!
//! All rows of a driver are on one shard. This has three consequences. FINAL shows each fix once,
//! although each shard applies FINAL to its own rows only. The subquery in
//! `driver_id IN (SELECT …)` may read the shard's own table instead of `…_all`. Each shard computes
//! the roll-ups of its own drivers.

use milepost_core::encode::TABLES;

/// Returns the name of the Distributed table that reads and writes this table on all shards.
pub(super) fn distributed_name(table: &str) -> String {
    format!("{table}_all")
}

/// Redirects an INSERT statement to the Distributed table, because batches are encoded and spooled
/// with the name of the shard's own table.
pub(super) fn distributed_insert(statement: &str) -> String {
    TABLES.iter().fold(statement.to_owned(), |statement, table| {
        let distributed = distributed_name(table.name);
        statement.replacen(&format!(".{} (", table.name), &format!(".{distributed} ("), 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{MIGRATIONS, Migration};

    /// Small tables that every host stores completely, so that each shard can join its own fixes
    /// with them.
    const ON_EVERY_HOST: [&str; 9] = [
        "schema_migrations",
        "fences",
        "erased",
        "events",
        "event_states",
        "recent_events",
        "drivers",
        "alerts_seen",
        "trip_rules",
    ];
    /// The only view that may read a shard's own table (in the subquery of an IN): the name of the
    /// view's migration, and the table.
    const IN_SUBQUERY: (&str, &str) = ("222_ask_in_box", "last_positions_state");

    #[test]
    fn every_table_is_either_sharded_or_on_every_host() {
        for migration in MIGRATIONS {
            let Some(table) = migration.table() else { continue };
            assert!(
                migration.sharded_table().is_some() != ON_EVERY_HOST.contains(&table),
                "{table}: must be either sharded or in ON_EVERY_HOST"
            );
        }
    }

    #[test]
    fn views_read_all_shards() {
        let sharded: Vec<_> = MIGRATIONS.iter().filter_map(Migration::sharded_table).collect();
        for migration in MIGRATIONS.iter().filter(|migration| {
            migration.sql.contains(" VIEW ") && !migration.sql.contains(" MATERIALIZED VIEW ")
        }) {
            if migration.sharded_table().is_some() {
                // The file would also create the Distributed table, whose statement would name the
                // table.
                continue;
            }
            for table in &sharded {
                let references = [" ", "\n", ")"].map(|end| format!("{{database}}.{table}{end}"));
                let reads: usize =
                    references.iter().map(|name| migration.sql.matches(name).count()).sum();
                let expected = usize::from((migration.name, *table) == IN_SUBQUERY);
                assert_eq!(reads, expected, "{}: reads of {table} on one shard", migration.name);
            }
        }
    }

    #[test]
    fn insert_goes_through_the_distributed_table() {
        assert_eq!(
            distributed_insert("INSERT INTO fleet.positions (a) FORMAT RowBinary"),
            "INSERT INTO fleet.positions_all (a) FORMAT RowBinary"
        );
        assert_eq!(
            distributed_insert("INSERT INTO rejects.rejects (a) X"),
            "INSERT INTO rejects.rejects_all (a) X"
        );
        assert_eq!(
            distributed_insert("INSERT INTO fleet.other (a) X"),
            "INSERT INTO fleet.other (a) X"
        );
    }
}
