//! Tables that are spread over shards. Each shard has the tables of `sql/` with the rows of its own
//! drivers. For each such table, a Distributed table named `…_all` reads all shards and sends each
//! inserted row to its shard.
//!
//! All rows of a driver are on one shard. So FINAL, which each shard applies to its own rows, shows
//! each fix once; a subquery behind IN may read the shard's own table; and each shard computes the
//! roll-ups of its own drivers.

use milepost_core::encode::TABLES;

/// Returns the name of the Distributed table that reads this table on all shards.
pub(super) fn over(table: &str) -> String {
    format!("{table}_all")
}

/// Rewrites an insert for the table over all shards. Inserts are encoded and spooled for the table
/// itself.
pub(super) fn insert(statement: &str) -> String {
    TABLES.iter().fold(statement.to_owned(), |statement, table| {
        statement.replacen(&format!(".{} (", table.name), &format!(".{} (", over(table.name)), 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{MIGRATIONS, Migration};

    /// Small tables that exist whole on every host: each shard joins its fixes with all rows.
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
    /// The view that searches drivers on each shard by IN, and the table it searches.
    const BEHIND_IN: (&str, &str) = ("222_ask_in_box", "last_positions_state");

    #[test]
    fn every_table_is_spread_or_on_every_host() {
        for migration in MIGRATIONS {
            let Some(table) = migration.table() else { continue };
            assert!(
                migration.over().is_some() != ON_EVERY_HOST.contains(&table),
                "{table}: both, or neither"
            );
        }
    }

    #[test]
    fn views_read_all_shards() {
        let spread: Vec<_> = MIGRATIONS.iter().filter_map(Migration::over).collect();
        for migration in MIGRATIONS.iter().filter(|migration| {
            migration.sql.contains(" VIEW ") && !migration.sql.contains(" MATERIALIZED VIEW ")
        }) {
            if migration.over().is_some() {
                continue; // the Distributed table over it reads all shards
            }
            for table in &spread {
                let own = [" ", "\n", ")"].map(|end| format!("{{database}}.{table}{end}"));
                let of_one_shard: usize =
                    own.iter().map(|name| migration.sql.matches(name).count()).sum();
                let expected = usize::from((migration.name, *table) == BEHIND_IN);
                assert_eq!(of_one_shard, expected, "{} reads {table} of one shard", migration.name);
            }
        }
    }

    #[test]
    fn insert_goes_through_the_distributed_table() {
        assert_eq!(
            insert("INSERT INTO fleet.positions (a) FORMAT RowBinary"),
            "INSERT INTO fleet.positions_all (a) FORMAT RowBinary"
        );
        assert_eq!(
            insert("INSERT INTO rejects.rejects (a) X"),
            "INSERT INTO rejects.rejects_all (a) X"
        );
        assert_eq!(insert("INSERT INTO fleet.other (a) X"), "INSERT INTO fleet.other (a) X");
    }
}
