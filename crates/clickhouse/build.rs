//! Embeds the files `sql/NNN_name.sql` in order. Adding a migration means adding one file.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let sql = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("set by cargo")).join("../../sql");
    println!("cargo:rerun-if-changed={}", sql.display());

    let entries = fs::read_dir(&sql).expect("the sql folder is part of the source");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "sql"));
    // The columns that several migrations share; src/render.rs reads this file.
    files.retain(|file| !file.ends_with("columns.sql"));
    files.sort();

    let mut source =
        "/// The files of `sql/`, in order.\npub(super) const MIGRATIONS: &[Migration] = &[\n"
            .to_owned();
    for file in files {
        let name = file.file_stem().expect("has a name").to_string_lossy();
        let version: u32 = name
            .split_once('_')
            .and_then(|(number, _)| number.parse().ok())
            .unwrap_or_else(|| panic!("sql/{name}.sql: name it NNN_what_it_does.sql"));
        println!("cargo:rerun-if-changed={}", file.display());
        writeln!(
            source,
            "    Migration {{ version: {version}, name: {name:?}, sql: include_str!({:?}) }},",
            file.display().to_string()
        )
        .expect("writing to a String");
    }
    source.push_str("];\n");
    let out = Path::new(&env::var("OUT_DIR").expect("set by cargo")).join("migrations.rs");
    fs::write(out, source).expect("OUT_DIR is writable");
}
