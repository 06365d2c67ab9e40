//! docs/map.md names every key with its default, and every metric.

use milepost_map::config::Config;
use milepost_map::metrics::Metrics;

fn docs() -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/map.md");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn every_setting_is_in_the_docs_with_its_default() {
    let docs = docs();
    let defaults = Config::parse("").unwrap();
    for (key, value) in defaults.effective() {
        let row = docs.lines().find(|line| line.starts_with(&format!("| `{key}` |")));
        let row = row.unwrap_or_else(|| panic!("docs/map.md has no row for {key}"));
        assert!(
            value == "\"\"" || row.contains(&format!("`{value}`")),
            "{key}: the default is {value}, docs/map.md says {row}"
        );
    }
    let keys = docs
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` |"))
        .map(|(key, _)| key);
    for key in keys.filter(|key| {
        ["clickhouse.", "http.", "fences.", "map.", "log."]
            .iter()
            .any(|section| key.starts_with(section))
    }) {
        assert!(
            defaults.effective().iter().any(|(known, _)| known == key),
            "docs/map.md documents {key}, which does not exist"
        );
    }
}

#[test]
fn every_metric_is_in_the_docs() {
    let (docs, metrics) = (docs(), Metrics::default());
    metrics.requests.with_label_values(&["/api/config", "200"]).inc();
    let text = metrics.render();
    let names: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert!(names.len() >= 10, "{names:?}");
    for name in names {
        assert!(docs.contains(&format!("`{name}`")), "docs/map.md does not name {name}");
    }
}
