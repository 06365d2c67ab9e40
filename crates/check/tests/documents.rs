//! Compares deploy/ and docs/ with `milepost check`.
#![expect(clippy::unwrap_used, reason = "a helper may panic, which fails its test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use milepost_config::Config;

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).unwrap()
}

#[test]
fn probe_topic_is_allowed_by_the_acl_and_matches_no_source() {
    let acl = read("deploy/emqx/acl.conf");
    let probe = "drivers/milepost-check/gps-check";
    assert!(acl.contains(&format!("{{allow, {{username, \"milepost\"}}, all, [\"{probe}\"]}}.")));
    assert_eq!(milepost_check::unusable_probe(&Config::defaults().unwrap(), probe), None);
}

/// Width of the first column of a report: the level, such as `warning`.
const LEVEL_WIDTH: usize = 9;
/// Width of the second column: the subject of the finding.
const SUBJECT_WIDTH: usize = 20;

#[test]
fn production_guide_shows_only_findings_of_the_check() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let sources: String = files.map(|file| fs::read_to_string(file).unwrap()).collect();
    let guide = read("docs/production.md");
    let mut shown = BTreeSet::new();
    for line in guide.lines().filter_map(|line| line.strip_prefix("    ")) {
        let Some((level, rest)) = line.split_at_checked(LEVEL_WIDTH) else { continue };
        if ["ok", "warning", "error"].contains(&level.trim_end()) {
            let subject = rest.get(..SUBJECT_WIDTH).unwrap_or(rest).trim_end();
            assert!(sources.contains(&format!("\"{subject}\"")), "no check reports {subject}");
            shown.insert(subject.to_owned());
        }
    }
    assert!(shown.len() >= 18, "the guide shows fewer findings than it did: {shown:?}");
}
