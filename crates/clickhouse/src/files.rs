//! The numbered files of `sql/`.

use twox_hash::XxHash3_128;

include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

/// The table that records migrations.
pub(super) const LEDGER: &str = "schema_migrations";
/// The table of erased drivers.
pub(super) const ERASED: &str = "erased";

/// One numbered file of `sql/`: a template (see [`super::render`]).
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    pub version: u32,
    /// File name without `.sql`: a number and, for a file that creates a table or a view, its name.
    pub name: &'static str,
    pub sql: &'static str,
}

impl Migration {
    /// Returns a hash of the template, so that an edit is noticed.
    pub(super) fn checksum(&self) -> String {
        format!("{:032x}", XxHash3_128::oneshot(self.sql.as_bytes()))
    }

    /// Returns the table that the file creates, if any.
    pub(super) fn table(&self) -> Option<&'static str> {
        self.makes().filter(|_| self.sql.contains("{engine:"))
    }

    /// Returns the table or view that the file creates in the main database, if any.
    pub(super) fn makes(&self) -> Option<&'static str> {
        let name = self.object();
        let made =
            |words: &str| self.sql.contains(&format!("{words} {{database}}.{name}{{on_cluster}}"));
        (made("IF NOT EXISTS") || made("CREATE OR REPLACE VIEW")).then_some(name)
    }

    /// Returns the parameterised view that the file creates, if any.
    pub(super) fn makes_ask_view(&self) -> Option<&'static str> {
        let name = self.object().strip_prefix("ask_")?;
        let made = |words: &str| {
            self.sql.contains(&format!("{words} {{database}}_ask.{name}{{on_cluster}}"))
        };
        (made("VIEW IF NOT EXISTS") || made("CREATE OR REPLACE VIEW")).then_some(name)
    }

    /// Returns the table that the file creates, if each shard has its own rows of it. A table
    /// `…_all` then reads all shards.
    pub(super) fn over(&self) -> Option<&'static str> {
        self.makes().filter(|_| self.sql.contains("\n{shards}CREATE TABLE "))
    }

    fn object(&self) -> &'static str {
        self.name.split_once('_').map_or("", |(_, object)| object)
    }
}
