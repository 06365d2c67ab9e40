//! Checks the structure of the crates (dependencies, import cycles, length of files), and that the
//! reference documents every key and metric.

use std::fs;
use std::path::{Path, PathBuf};

use milepost_config::Config;
use milepost_decode::reject::Reason;
use milepost_observe::metrics::Metrics;

use crate::modules;

/// Packages that a crate without I/O may not depend on, even indirectly.
const IO: [&str; 9] = [
    "anyhow",
    "clickhouse",
    "config",
    "hyper",
    "prometheus",
    "rumqttc",
    "rustls",
    "tokio",
    "tracing",
];

/// Maximum lines of code in a file, not counting tests and comments. A reader needs at most ten
/// minutes for such a file.
const LINES_MAX: usize = 480;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn no_crate_has_an_import_cycle_or_a_long_file() {
    let mut found = Vec::new();
    for folder in modules::crates() {
        let known = modules::module_code(&folder);
        let long = known.iter().filter(|(_, code)| code.lines().count() > LINES_MAX);
        found.extend(long.map(|(name, _)| {
            format!("{} {name:?}: more than {LINES_MAX} lines", folder.display())
        }));
        let cycles = modules::cycles(&known);
        found.extend(cycles.iter().map(|(name, imports)| {
            format!("{} {name:?} is in an import cycle with {imports:?}", folder.display())
        }));
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn documents_explain_every_reason_of_a_reject() {
    let read = |name: &str| fs::read_to_string(here().join("docs").join(name)).unwrap();
    let documents = read("drivers.md") + &read("formats.md");
    let missing: Vec<&str> = Reason::ALL
        .iter()
        .map(|reason| reason.name())
        .filter(|name| !documents.contains(&format!("`{name}`")))
        .collect();
    assert!(missing.is_empty(), "neither in docs/drivers.md nor in docs/formats.md: {missing:?}");
}

#[test]
fn architecture_lists_every_crate_and_each_states_its_guarantee() {
    let architecture = fs::read_to_string(here().join("ARCHITECTURE.md")).unwrap();
    for folder in
        modules::crates().iter().filter(|folder| folder.starts_with(here().join("crates")))
    {
        let name = folder.file_name().unwrap().to_str().unwrap();
        assert!(
            architecture.contains(&format!("`crates/{name}`")),
            "ARCHITECTURE.md does not list {name}"
        );
        let lib = fs::read_to_string(folder.join("src/lib.rs")).unwrap();
        let head: Vec<&str> = lib.lines().take_while(|line| line.starts_with("//!")).collect();
        assert!(
            head.iter().any(|line| line.contains("Guarantee: ")),
            "{name}: the head of lib.rs states no guarantee"
        );
    }
}

/// A path that begins with the name of a crate is relative to `crates/NAME/src/`; any other path is
/// relative to the root of the repository.
#[test]
fn architecture_names_only_files_that_exist() {
    let architecture = fs::read_to_string(here().join("ARCHITECTURE.md")).unwrap();
    let is_path = |word: &&str| {
        word.contains('/')
            && [".rs", ".sql", ".py", ".md"].iter().any(|end| word.ends_with(end))
            && word.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c))
    };
    let paths: Vec<&str> = architecture.split('`').skip(1).step_by(2).filter(is_path).collect();
    assert!(paths.len() > 40, "{paths:?}");
    let missing: Vec<&&str> = paths
        .iter()
        .filter(|path| {
            let (first, rest) = path.split_once('/').unwrap();
            !here().join(path).exists()
                && !here().join("crates").join(first).join("src").join(rest).exists()
        })
        .collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names {missing:?}");
}

/// Cargo enforces the dependencies of each manifest; this test checks the manifests.
#[test]
fn core_and_decode_depend_on_no_io() {
    for package in ["milepost-core", "milepost-decode"] {
        let tree = std::process::Command::new(env!("CARGO"))
            .args([
                "tree",
                "--offline",
                "--locked",
                "--edges",
                "normal",
                "--prefix",
                "none",
                "--format",
                "{p}",
            ])
            .args(["--package", package])
            .current_dir(here())
            .output()
            .unwrap();
        assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
        let tree = String::from_utf8(tree.stdout).unwrap();
        let packages: Vec<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
        assert!(packages.len() > 5, "{packages:?}");
        for io in IO {
            assert!(!packages.contains(&io), "{package} depends on {io}");
        }
    }
}

#[test]
fn the_reference_names_every_setting_with_its_default() {
    let reference = fs::read_to_string(here().join("docs/reference.md")).unwrap();
    for (key, value) in Config::defaults().unwrap().effective() {
        let row = reference.lines().find(|line| line.starts_with(&format!("| `{key}` |")));
        let row = row.unwrap_or_else(|| panic!("docs/reference.md has no row for {key}"));
        let default = if key == "mqtt.client_id" || value == "\"\"" {
            String::new()
        } else {
            format!("`{value}`")
        };
        assert!(
            row.contains(&default),
            "{key}: the default is {value}, docs/reference.md says {row}"
        );
    }
    let table = reference
        .lines()
        .filter(|line| line.starts_with("| `") && !line.starts_with("| `["))
        .filter(|line| line.split('|').nth(1).unwrap().contains('.'));
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
        let row = reference
            .lines()
            .find(|line| line.starts_with(&format!("| `milepost_{name}{{")))
            .unwrap();
        for series in text.lines().filter(|line| line.starts_with(&format!("milepost_{name}{{"))) {
            let label = series.split('"').nth(1).unwrap();
            assert!(
                row.contains(&format!("`{label}`")),
                "docs/reference.md does not name {label:?}: {row}"
            );
        }
    }
}

#[test]
fn every_table_and_column_has_a_comment() {
    for entry in fs::read_dir(here().join("sql")).unwrap() {
        let path = entry.unwrap().path();
        let Ok(sql) = fs::read_to_string(&path) else { continue };
        assert!(
            sql.trim_start().starts_with("-- "),
            "{}: must begin with a comment about its purpose",
            path.display()
        );
        let declares = |line: &&str| line.contains("CODEC(") || line.contains(" ALIAS ");
        for column in sql.lines().filter(declares).filter(|line| !line.contains("MODIFY COLUMN ")) {
            assert!(column.contains("COMMENT '"), "{}: {column}", path.display());
        }
    }
}

#[test]
fn add_a_field_recipe_has_the_highest_migration_number() {
    let recipe = fs::read_to_string(here().join("docs/examples/add-a-field.diff")).unwrap();
    let number = |name: &str| name.split('_').next().unwrap().parse::<u32>().ok();
    let added: Vec<(&str, u32)> = recipe
        .lines()
        .filter_map(|line| line.strip_prefix("+++ b/sql/"))
        .filter_map(|name| Some((name, number(name)?)))
        .collect();
    let files = fs::read_dir(here().join("sql")).unwrap();
    let names = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    // If the recipe has been applied, its own file does not count.
    let last = names
        .filter(|name| added.iter().all(|(added, _)| added != name))
        .filter_map(|name| number(&name))
        .max();
    assert!(
        added.len() == 1 && Some(added[0].1) > last,
        "{added:?} must have a higher number than the last migration, {last:?}"
    );
}

#[test]
fn no_dependency_needs_a_newer_rust_than_declared() {
    let rustc = std::process::Command::new("rustc").arg("-vV").output().unwrap();
    let rustc = String::from_utf8(rustc.stdout).unwrap();
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    // Restrict the metadata to this platform: cargo runs offline, and has not fetched the crates of
    // other platforms.
    let cargo = std::process::Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--offline",
            "--filter-platform",
            host,
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&cargo.stdout).unwrap();
    let version = |text: &str| {
        text.split('.').map(|part| part.parse::<u32>().unwrap()).take(2).collect::<Vec<_>>()
    };
    let ours = version(env!("CARGO_PKG_RUST_VERSION"));
    for package in metadata["packages"].as_array().unwrap() {
        let Some(wanted) = package["rust_version"].as_str() else { continue };
        assert!(version(wanted) <= ours, "{} needs Rust {wanted}", package["name"]);
    }
}

/// By default, proptest writes failing seeds into a file beside the test.
#[test]
fn no_property_writes_into_the_tree() {
    let mut folders: Vec<_> = ["src", "crates", "tests", "map/src", "map/tests", "lab", "loadgen"]
        .map(|folder| here().join(folder))
        .into();
    let (mut properties, mut found) = (0, Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.extension().is_some_and(|kind| kind == "rs") {
                let text = fs::read_to_string(&entry).unwrap();
                let count =
                    |word: &str| text.lines().filter(|line| line.trim().starts_with(word)).count();
                let in_file = count("proptest! {");
                properties += in_file;
                if in_file != count("#![proptest_config(") {
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

#[test]
fn broker_drops_have_one_series_per_reason() {
    let rendered = Metrics::default().render();
    for reason in ["queue_full", "expired", "too_large", "qos0", "no_subscribers", "quota_exceeded"]
    {
        let series = format!("milepost_broker_dropped_total{{reason=\"{reason}\"}} 0\n");
        assert!(rendered.contains(&series), "{series}");
    }
}

/// First words with which a doc comment would only continue the line above it.
const DANGLING: [&str; 14] = [
    "And", "As", "But", "From", "Nor", "Not", "Of", "Or", "So", "The same", "To", "What", "Who",
    "With",
];

/// Returns the numbers of lines that begin a doc comment with a dangling word.
fn dangling(text: &str) -> Vec<usize> {
    let docs: Vec<Option<&str>> = text
        .lines()
        .map(str::trim_start)
        .map(|line| line.strip_prefix("///").or(line.strip_prefix("//!")).map(str::trim_start))
        .collect();
    let starts_comment = |at: usize| at == 0 || docs[at - 1].is_none_or(str::is_empty);
    let is_word = |doc: &str, word: &str| {
        doc.strip_prefix(word).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    };
    (0..docs.len())
        .filter(|at| docs[*at].is_some_and(|doc| DANGLING.iter().any(|word| is_word(doc, word))))
        .filter(|at| starts_comment(*at))
        .map(|at| at + 1)
        .collect()
}

/// Returns the file itself, or all files below a folder.
fn files(path: PathBuf) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path];
    }
    fs::read_dir(path).unwrap().flat_map(|entry| files(entry.unwrap().path())).collect()
}

/// Doc comments stand alone, in rustdoc and on hover: none begins with a word that continues
/// another line.
#[test]
fn doc_comments_do_not_begin_with_a_dangling_word() {
    const FOLDERS: [&str; 9] =
        ["crates", "src", "map/src", "map/tests", "tests", "lab", "loadgen", "benches", "fuzz"];
    assert_eq!(dangling("/// To the socket.\n/// Also fine.\n\n/// Total.\n"), [1]);

    let mut found = Vec::new();
    let is_rust = |file: &PathBuf| file.extension().is_some_and(|kind| kind == "rs");
    for file in FOLDERS.iter().flat_map(|folder| files(here().join(folder))).filter(is_rust) {
        let text = fs::read_to_string(&file).unwrap();
        found.extend(dangling(&text).into_iter().map(|line| format!("{}:{line}", file.display())));
    }
    assert!(found.is_empty(), "{found:#?}");
}
