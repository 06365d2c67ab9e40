//! The structure of the crates: which room may name a library, which way imports run, how long a file is, and that the
//! reference documents every key and metric.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use milepost::config::Config;
use milepost::observe::metrics::Metrics;

use crate::modules::{self, Name};

/// milepost's rooms, from the floor up: a room may use those before it. The last column: a pure room holds no async,
/// clock, I/O or metrics.
const ROOMS: [(&str, bool); 19] = [
    ("codec", true),
    ("throttle", true),
    ("pipeline", true),
    ("fences", true),
    ("events", true),
    ("session", true),
    ("intake", true),
    ("tls", false),
    ("peers", false),
    ("spool", false),
    ("delivery", false),
    ("consumer", true),
    ("config", false),
    ("clickhouse", false),
    ("observe", false),
    ("mqtt", false),
    ("check", false),
    ("app", false),
    ("cli", false),
];

/// Pure places of rooms that are not.
const PURE: [&str; 4] = ["delivery/policy", "delivery/retry", "peers/decision", "peers/standing"];

/// Libraries that belong to one place.
const OWNERS: [(&str, &str); 10] = [
    ("rumqttc", "codec"),
    ("tokio_rustls", "tls"),
    ("rustls_native_certs", "tls"),
    ("rustix", "check/disk"),
    ("clickhouse", "clickhouse"),
    ("prometheus", "observe"),
    ("chrono", "pipeline/decode"),
    ("config", "config"),
    ("anyhow", "app"),
    ("quick_xml", "app/commands/import/read"),
];

/// What a pure place may not reach for.
const IMPURE: [&str; 9] = [
    "async ",
    ".await",
    "tokio::",
    "Instant::now",
    "SystemTime",
    "std::fs",
    "std::net",
    "tracing",
    "crate::observe",
];

/// A file reads in ten minutes: lines of code, without tests and comments.
const LINES_MAX: usize = 400;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn milepost() -> BTreeMap<Name, String> {
    modules::of_crate(here())
}

fn is_in(module: &Name, place: &str) -> bool {
    place.split('/').zip(module).filter(|(part, name)| part == name).count() == place.split('/').count()
}

#[test]
fn no_crate_has_a_circle_of_imports_or_a_long_file() {
    let mut found = Vec::new();
    for folder in modules::crates() {
        let known = modules::of_crate(&folder);
        let long = known.iter().filter(|(_, code)| code.lines().count() > LINES_MAX);
        found.extend(
            long.map(|(name, _)| format!("{} {name:?}: more than {LINES_MAX} lines", folder.display())),
        );
        let circles = modules::circles(&known);
        found.extend(
            circles
                .iter()
                .map(|(name, uses)| format!("{} {name:?} in a circle with {uses:?}", folder.display())),
        );
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn every_room_is_on_the_map() {
    let map = fs::read_to_string(here().join("src/lib.rs")).unwrap();
    let tour = fs::read_to_string(here().join("ARCHITECTURE.md")).unwrap();
    for name in milepost().keys().filter_map(|name| name.first()) {
        assert!(ROOMS.iter().any(|(room, _)| room == name), "{name} is a room the tidy test does not know");
        assert!(name == "cli" || map.contains(&format!("[`{name}`]")), "lib.rs does not list {name}");
        let shown = tour.contains(&format!("`{name}/`")) || tour.contains(&format!("`{name}.rs`"));
        assert!(shown, "ARCHITECTURE.md does not show {name}");
    }
}

#[test]
fn imports_run_up_the_floors() {
    let known = milepost();
    for name in known.keys().filter(|name| !name.is_empty()) {
        let floor = |of: &str| ROOMS.iter().position(|(room, _)| *room == of).unwrap();
        for import in modules::imports(name, &known).iter().filter_map(|import| import.first()) {
            assert!(floor(import) <= floor(&name[0]), "{name:?} uses {import}, which is above it");
        }
    }
}

#[test]
fn what_is_pure_stays_pure() {
    let rooms = ROOMS.iter().filter(|(_, pure)| *pure).map(|(room, _)| *room);
    for place in rooms.chain(PURE) {
        let known = milepost();
        let inside: Vec<_> = known.iter().filter(|(name, _)| is_in(name, place)).collect();
        assert!(!inside.is_empty(), "there is no {place}");
        for (name, code) in inside {
            for word in IMPURE {
                assert!(!code.contains(word), "{name:?} is pure, and has {word:?}");
            }
        }
    }
}

#[test]
fn a_library_is_named_in_its_place_alone() {
    for (library, owner) in OWNERS {
        let own_room = format!("use crate::{library}"); // a room of ours can have a library's name
        for (name, code) in milepost().iter().filter(|(name, _)| !name.is_empty() && !is_in(name, owner)) {
            if code.contains(&own_room) {
                continue;
            }
            let named = [" ", "(", "<", "&", "["].map(|before| format!("{before}{library}::"));
            assert!(
                !named.iter().any(|named| code.contains(named)),
                "{name:?} names {library}, which belongs to {owner}"
            );
        }
    }
}

#[test]
fn the_reference_names_every_setting_with_its_default() {
    let reference = fs::read_to_string(here().join("docs/reference.md")).unwrap();
    for (key, value) in Config::defaults().unwrap().effective() {
        let row = reference.lines().find(|line| line.starts_with(&format!("| `{key}` |")));
        let row = row.unwrap_or_else(|| panic!("docs/reference.md has no row for {key}"));
        let default =
            if key == "mqtt.client_id" || value == "\"\"" { String::new() } else { format!("`{value}`") };
        assert!(row.contains(&default), "{key}: the default is {value}, docs/reference.md says {row}");
    }
    let table = reference
        .lines()
        .filter(|line| line.starts_with("| `") && line.split('|').nth(1).unwrap().contains('.'));
    for row in table {
        let key = row.split('`').nth(1).unwrap();
        let known = Config::defaults().unwrap().effective().iter().any(|(known, _)| known == key);
        assert!(
            known || key.starts_with("fleet."),
            "docs/reference.md documents {key}, which does not exist"
        );
    }
}

#[test]
fn the_reference_names_every_metric() {
    let reference = fs::read_to_string(here().join("docs/reference.md")).unwrap();
    let text = Metrics::default().render();
    for line in text.lines().filter(|line| line.starts_with("# TYPE ")) {
        let name = line.split(' ').nth(2).unwrap();
        assert!(reference.contains(&format!("`{name}")), "docs/reference.md does not name {name}");
        assert!(text.contains(&format!("# HELP {name} ")), "{name} has no help");
    }
    for name in ["insert_errors_total", "batches_spooled_total", "broker_dropped_total"] {
        let row = reference.lines().find(|line| line.starts_with(&format!("| `milepost_{name}{{"))).unwrap();
        for series in text.lines().filter(|line| line.starts_with(&format!("milepost_{name}{{"))) {
            let label = series.split('"').nth(1).unwrap();
            assert!(row.contains(&format!("`{label}`")), "docs/reference.md does not name {label:?}: {row}");
        }
    }
}

#[test]
fn every_table_and_column_says_what_it_is() {
    for entry in fs::read_dir(here().join("sql")).unwrap() {
        let path = entry.unwrap().path();
        let Ok(sql) = fs::read_to_string(&path) else { continue };
        assert!(sql.trim_start().starts_with("-- "), "{}: begins with what it is for", path.display());
        for column in sql.lines().filter(|line| line.contains("CODEC(") || line.contains(" ALIAS ")) {
            assert!(column.contains("COMMENT '"), "{}: {column}", path.display());
        }
    }
}

#[test]
fn the_recipe_for_a_field_takes_a_number_after_all_others() {
    let recipe = fs::read_to_string(here().join("docs/examples/add-a-field.diff")).unwrap();
    let number = |name: &str| name.split('_').next().unwrap().parse::<u32>().ok();
    let made: Vec<(&str, u32)> = recipe
        .lines()
        .filter_map(|line| line.strip_prefix("+++ b/sql/"))
        .filter_map(|name| Some((name, number(name)?)))
        .collect();
    let files = fs::read_dir(here().join("sql")).unwrap();
    let names = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    // It may have been followed.
    let last =
        names.filter(|name| made.iter().all(|(made, _)| made != name)).filter_map(|name| number(&name)).max();
    assert!(
        made.len() == 1 && Some(made[0].1) > last,
        "{made:?}: {last:?} would run after what it stands on"
    );
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

/// By default proptest writes what it finds beside the test.
#[test]
fn no_property_writes_into_the_tree() {
    let mut folders: Vec<_> =
        ["src", "tests", "map/src", "map/tests", "lab", "loadgen"].map(|folder| here().join(folder)).into();
    let (mut properties, mut found) = (0, Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.extension().is_some_and(|kind| kind == "rs") {
                let text = fs::read_to_string(&entry).unwrap();
                let count = |word: &str| text.lines().filter(|line| line.trim().starts_with(word)).count();
                let here = count("proptest! {");
                properties += here;
                if here != count("#![proptest_config(") {
                    found.push(entry);
                }
            }
        }
    }
    assert!(
        properties > 10 && found.is_empty(),
        "{properties} properties; without their configuration: {found:?}"
    );
}
