//! The order of the house: who may name which library, which way imports run, what must be documented.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use milepost::config::Config;
use milepost::metrics::Metrics;

/// The rooms in the order in which data flows through them; a room may use those before it. The last column:
/// pure rooms hold no async, clock, I/O or metrics.
const ROOMS: [(&str, bool); 20] = [
    ("position", true),
    ("decode", true),
    ("wire", true),
    ("batch", true),
    ("tls", false),
    ("config", false),
    ("ack", true),
    ("window", true),
    ("lane", true),
    ("encode", true),
    ("health", false),
    ("metrics", false),
    ("spool", false),
    ("insert", false),
    ("replay", false),
    ("clickhouse", false),
    ("subscriber", false),
    ("check", false),
    ("http", false),
    ("app", false),
];

/// Libraries that belong to one room.
const OWNERS: [(&str, &str); 10] = [
    ("rumqttc", "wire"),
    ("tokio_rustls", "tls"),
    ("rustls_native_certs", "tls"),
    ("rustix", "check"),
    ("clickhouse", "clickhouse"),
    ("prometheus", "metrics"),
    ("serde_json", "decode"),
    ("config", "config"),
    ("chrono", "decode"),
    ("anyhow", "app"),
];

/// What a pure room may not reach for.
const IMPURE: [&str; 9] = [
    "async ",
    ".await",
    "tokio",
    "Instant::now",
    "SystemTime",
    "std::fs",
    "std::net",
    "tracing",
    "crate::metrics",
];

/// A file reads in ten minutes: lines of code, without tests and comments.
const LINES_MAX: usize = 560;

/// The code of every room, without its tests and comments.
fn source() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut rooms = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // A folder's files belong to the room of its name.
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let files = if path.is_dir() {
            fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect()
        } else {
            vec![path]
        };
        let room: &mut Vec<String> = rooms.entry(name).or_default();
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap();
            let code: Vec<&str> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            assert!(code.len() <= LINES_MAX, "{} has grown out of one room", file.display());
            room.push(code.join("\n"));
        }
    }
    rooms.into_iter().map(|(room, files)| (room, files.join("\n"))).collect()
}

#[test]
fn every_room_is_on_the_map() {
    let map = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap();
    let tour = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md")).unwrap();
    for name in source().keys().filter(|name| !["lib", "main"].contains(&name.as_str())) {
        assert!(
            ROOMS.iter().any(|(room, _)| room == name),
            "src/{name}.rs is a room the tidy test does not know"
        );
        assert!(map.contains(&format!("[`{name}`]")), "lib.rs does not list {name}");
        assert!(tour.contains(&format!("`{name}.rs`")), "ARCHITECTURE.md does not show {name}.rs");
    }
}

#[test]
fn a_library_is_named_by_its_room_alone() {
    for (library, owner) in OWNERS {
        for (room, code) in source() {
            let names = [
                format!("use {library}::"),
                format!(" {library}::"),
                format!("({library}::"),
                format!("<{library}::"),
            ];
            let named = names.iter().any(|name| code.contains(name.as_str()))
                // Our own room of that name is another matter.
                && !code.contains(&format!("crate::{library}::"))
                && !code.contains(&format!("use crate::{library};"))
                && !code.contains(&format!("milepost::{library}::"));
            assert!(
                !named || room == owner || room == "main",
                "src/{room}.rs names {library}, which belongs to {owner}.rs"
            );
        }
    }
}

#[test]
fn imports_run_one_way() {
    let rooms = source();
    for (index, (room, pure)) in ROOMS.iter().enumerate() {
        let code = &rooms[*room];
        for (later, _) in &ROOMS[index + 1..] {
            assert!(
                !code.contains(&format!("crate::{later}")),
                "src/{room}.rs uses {later}, which comes after it"
            );
        }
        for word in IMPURE.iter().filter(|_| *pure) {
            assert!(!code.contains(word), "src/{room}.rs is pure, and has {word:?}");
        }
    }
}

#[test]
fn the_readme_names_every_setting_with_its_default() {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    for (key, value) in Config::defaults().unwrap().effective() {
        let row = readme.lines().find(|line| line.starts_with(&format!("| `{key}` |")));
        let row = row.unwrap_or_else(|| panic!("README.md has no row for {key}"));
        let default =
            if key == "mqtt.client_id" || value == "\"\"" { String::new() } else { format!("`{value}`") };
        assert!(row.contains(&default), "{key}: the default is {value}, README.md says {row}");
    }
    let table = readme
        .lines()
        .filter(|line| line.starts_with("| `") && line.split('|').nth(1).unwrap().contains('.'));
    for row in table {
        let key = row.split('`').nth(1).unwrap();
        let known = Config::defaults().unwrap().effective().iter().any(|(known, _)| known == key);
        assert!(known || key.starts_with("fleet."), "README.md documents {key}, which does not exist");
    }
}

#[test]
fn the_readme_names_every_metric() {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let text = Metrics::new(1).render();
    for line in text.lines().filter(|line| line.starts_with("# TYPE ")) {
        let name = line.split(' ').nth(2).unwrap();
        assert!(readme.contains(&format!("`{name}")), "README.md does not name {name}");
        assert!(text.contains(&format!("# HELP {name} ")), "{name} has no help");
    }
}

#[test]
fn every_table_and_column_says_what_it_is() {
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("sql")).unwrap() {
        let path = entry.unwrap().path();
        let Ok(sql) = fs::read_to_string(&path) else { continue };
        assert!(sql.starts_with("-- "), "{}: begins with what it is for", path.display());
        for column in sql.lines().filter(|line| line.contains("CODEC(") || line.contains(" ALIAS ")) {
            assert!(column.contains("COMMENT '"), "{}: {column}", path.display());
        }
    }
}

#[test]
fn no_dependency_wants_a_newer_rust_than_we_state() {
    let rustc = std::process::Command::new("rustc").arg("-vV").output().unwrap();
    let rustc = String::from_utf8(rustc.stdout).unwrap();
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    // Offline, and so of this platform: others' crates were never fetched.
    let cargo = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", host])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&cargo.stdout).unwrap();
    let version =
        |text: &str| text.split('.').map(|part| part.parse::<u32>().unwrap()).take(2).collect::<Vec<_>>();
    let ours = version(env!("CARGO_PKG_RUST_VERSION"));
    for package in metadata["packages"].as_array().unwrap() {
        let Some(wanted) = package["rust_version"].as_str() else { continue };
        assert!(version(wanted) <= ours, "{} wants Rust {wanted}", package["name"]);
    }
}
