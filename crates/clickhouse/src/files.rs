//! The numbered files of `sql/`.

use twox_hash::XxHash3_128;

include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

/// The table that records migrations.
pub(super) const SCHEMA_MIGRATIONS: &str = "schema_migrations";
/// The table of erased drivers.
pub(super) const ERASED: &str = "erased";

/// Files that were edited after their release: the version of each, and the checksum of the
/// released text.
///
/// In most of these files, only `--` comments were edited, which ClickHouse does not store. The
/// others create objects that later files change:
///
/// - A CREATE TABLE now includes the changes of the later files. A host that joins the replicas
///   later must create the table with the columns that Keeper has.
/// - A CREATE VIEW now includes the comments of a later file (sql/380), but not its query.
///
/// A host that ran the released text gets the same result from the later files. So the edited text
/// counts as the same migration as the released text.
const AMENDED: [(u32, &str); 37] = [
    (1, "f47401b0820a9d76abb2cf606fbd203a"),
    (10, "e543c6cf828173e83efb31ca232dfee1"),
    (11, "2c62092aed749c239c555d345fe622ee"),
    (20, "34db131208523dc6c1e30a26d2ea7bd6"),
    (21, "6f4fae29bab6997cf74e4e6d1efef382"),
    (22, "0acc12c7c62338dd193689a17cecdd1b"),
    (30, "68da2165cbceec1cd75d527a1fa2964a"),
    (40, "317217bb48556cd719cb0a212efa6500"),
    (50, "a2ca994b013b101ac09d483999e4c246"),
    (60, "a84d0f695fc8fb3076c9c3b12e202bbc"),
    (61, "ea172fc2f5449d0b298c05d523f22540"),
    (70, "d8bf93ab74a98ffd37184470e68a0092"),
    (100, "9c9d01c5576431aa56821974a5959b0c"),
    (101, "29f6d1505697e840e2fa394032441ab2"),
    (110, "4f9c553ac6870ad07b880d694f49bf26"),
    (111, "1f22577a43750fc5addc40a83862cc7c"),
    (112, "b9e2a38a68d9582414471bad6b3d6b0a"),
    (113, "19bb77066b564b822a29aee02b9b5d0e"),
    (114, "3bb940ec472b1da0af5340416ca6304e"),
    (120, "74826ae41ec72f5d7220999c9ab7c431"),
    (121, "306a5937a17b0e24a13cf31830e0f5ae"),
    (122, "97507022068183b84a8570fe1e840483"),
    (130, "5c0f6aa6b500fcaf4917efa807d244b0"),
    (210, "c99654072761d7d966d107e8b643bd7e"),
    (211, "1a8a1aef07da538f39995223b61429a2"),
    (212, "42760fee452a5755af954207aa5c6d72"),
    (220, "c04e8889d4a3ca8f1510a0a958e45d8d"),
    (222, "524aeebe9d68279f00e162304115ef90"),
    (223, "421b13ca08295dadb6979d403e450344"),
    (224, "56c5278aac2076dc48c58f160869857a"),
    (230, "b0f7cadab7f7fa35526501582c741c47"),
    (240, "4570ca16d83bdc0efe5134ebf91816b8"),
    (302, "990aa0888f37aa6d5510de349e1dac3c"),
    (304, "351bc4a5ff3cba8382f71b0b870fe1a7"),
    (305, "8655bcb48229709f9d386db6b25aa51c"),
    (306, "5451603864b9a0a56ca7098dd16d9108"),
    (307, "71abd1498c395fbc75d0aaf7be476206"),
];

/// One numbered file of `sql/`: a template (see [`super::render`]).
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    pub version: u32,
    /// File name without `.sql`, such as `010_positions`: the version, and the name of the table or
    /// view if the file creates one.
    pub name: &'static str,
    pub sql: &'static str,
}

impl Migration {
    /// Returns the checksum of the template, which shows whether the file was edited after it was
    /// applied. For a file in [`AMENDED`], returns the checksum of the released text.
    pub(super) fn checksum(&self) -> String {
        if let Some((_, released)) = AMENDED.iter().find(|(version, _)| *version == self.version) {
            return (*released).to_owned();
        }
        format!("{:032x}", XxHash3_128::oneshot(self.sql.as_bytes()))
    }

    /// Returns the table that the file creates, if any.
    pub(super) fn table(&self) -> Option<&'static str> {
        self.created_object().filter(|_| self.sql.contains("{engine:"))
    }

    /// Returns the table or view that the file creates in the main database, if any.
    pub(super) fn created_object(&self) -> Option<&'static str> {
        let name = self.name_after_version();
        let has_statement =
            |start: &str| self.sql.contains(&format!("{start} {{database}}.{name}{{on_cluster}}"));
        (has_statement("IF NOT EXISTS") || has_statement("CREATE OR REPLACE VIEW")).then_some(name)
    }

    /// Returns the parameterised view that the file creates in the database `…_ask`, if any.
    pub(super) fn created_ask_view(&self) -> Option<&'static str> {
        let name = self.name_after_version().strip_prefix("ask_")?;
        let has_statement = |start: &str| {
            self.sql.contains(&format!("{start} {{database}}_ask.{name}{{on_cluster}}"))
        };
        (has_statement("VIEW IF NOT EXISTS") || has_statement("CREATE OR REPLACE VIEW"))
            .then_some(name)
    }

    /// Returns the table that the file creates, if each shard has its own rows of that table. A
    /// Distributed table `…_all` then reads all shards.
    pub(super) fn sharded_table(&self) -> Option<&'static str> {
        self.created_object().filter(|_| self.sql.contains("\n{shards}CREATE TABLE "))
    }

    /// Returns the part of the file's name after the version.
    fn name_after_version(&self) -> &'static str {
        self.name.split_once('_').map_or("", |(_, object)| object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amended_file_keeps_the_checksum_of_its_released_text() {
        for (version, released) in AMENDED {
            let file = MIGRATIONS.iter().find(|migration| migration.version == version).unwrap();
            assert_eq!(file.checksum(), released);
            let actual = format!("{:032x}", XxHash3_128::oneshot(file.sql.as_bytes()));
            assert_ne!(actual, released, "{} is not amended", file.name);
        }
    }
}
