//! The numbered files of `sql/`.

use twox_hash::XxHash3_128;

include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

/// The table that records migrations.
pub(super) const LEDGER: &str = "schema_migrations";
/// The table of drivers whose data is to be gone.
pub(super) const ERASED: &str = "erased";
/// The table that says how far `milepost backfill` is.
pub(super) const BACKFILLS: &str = "backfills";

/// What makes `positions` in the order of days, as migrations up to this number leave it; later ones change it, too.
pub(super) const BY_DAY_FILE: Migration = Migration {
    version: 61,
    name: "061_positions_by_day",
    sql: include_str!("../../sql/backfill/positions_by_day.sql"),
};

/// One numbered file of `sql/`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Migration {
    /// The number.
    pub version: u32,
    /// File name without `.sql`.
    pub name: &'static str,
    /// One statement, with `{database}` where the database's name goes.
    pub sql: &'static str,
}

impl Migration {
    /// Of its text, so that an edit is noticed.
    pub(super) fn checksum(&self) -> String {
        format!("{:032x}", XxHash3_128::oneshot(self.sql.as_bytes()))
    }

    /// The table that it makes, if it makes one.
    pub(super) fn table(&self) -> Option<&'static str> {
        self.makes().filter(|_| self.sql.contains("CREATE TABLE IF NOT EXISTS "))
    }

    /// The table or view that it makes, if it makes one.
    pub(super) fn makes(&self) -> Option<&'static str> {
        self.name_behind("IF NOT EXISTS {database}.")
    }

    /// The parameterised view that it makes, if it makes one.
    pub(super) fn makes_ask_view(&self) -> Option<&'static str> {
        self.name_behind("VIEW {database}_ask.")
    }

    fn name_behind(&self, words: &str) -> Option<&'static str> {
        let name = self.sql.split_once(words)?.1;
        name.split(|c: char| !c.is_alphanumeric() && c != '_').next()
    }
}
