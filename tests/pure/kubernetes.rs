//! Checks deploy/kubernetes and deploy/helm against the code; `deploy/kubernetes/test_manifests.py`
//! checks them against Kubernetes.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use milepost_config::Config;
use milepost_core::consumer::CONNECTIONS_MAX;
use milepost_core::peers::decision::order;
use milepost_observe::metrics::Metrics;
use serde_json::Value;

const MIB: usize = 1 << 20;

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(here(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn pod() -> Value {
    yaml("deploy/kubernetes/base/statefulset.yaml")["spec"]["template"]["spec"].clone()
}

fn variables(pod: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let environment = pod["containers"][0]["env"].as_array().unwrap().iter();
    environment.map(|variable| (text(&variable["name"]), text(&variable["value"]))).collect()
}

/// Parses a configuration file without its `ca_file`, which does not exist on this machine.
fn configuration(toml: &str) -> Config {
    let without_ca: Vec<_> = toml.lines().filter(|line| !line.starts_with("ca_file")).collect();
    Config::parse(&without_ca.join("\n")).unwrap_or_else(|error| panic!("{error}"))
}

/// Merges the pods' configuration file with their environment, as milepost does at start.
fn merged_configuration(toml: &str) -> Config {
    let mut toml = toml.to_owned();
    for (name, value) in variables(&pod()) {
        let Some((section, key)) =
            name.strip_prefix("MILEPOST__").and_then(|name| name.split_once("__"))
        else {
            continue;
        };
        let (section, key) = (section.to_lowercase(), key.to_lowercase());
        // Skip password files, which only a pod has, and values that Kubernetes composes.
        if key.ends_with("password_file") || value.contains("$(") {
            continue;
        }
        let head = format!("[{section}]\n");
        if !toml.contains(&head) {
            toml += &format!("\n{head}");
        }
        toml = toml.replace(&head, &format!("{head}{key} = '{value}'\n"));
    }
    configuration(&toml)
}

#[test]
fn every_variable_is_a_setting_and_every_file_is_valid() {
    let defaults = Config::defaults().unwrap();
    let job = yaml("deploy/kubernetes/base/migrate.yaml")["spec"]["template"]["spec"].clone();
    let patch = yaml("deploy/kubernetes/components/cert-manager/members.yaml");
    let added = patch
        .as_array()
        .unwrap()
        .iter()
        .filter(|change| change["path"].as_str().unwrap().contains("/env/"));
    let added =
        added.map(|change| (change["value"]["name"].as_str().unwrap().to_owned(), String::new()));
    let named = [variables(&pod()), variables(&job), added.collect()].concat();
    assert!(named.len() >= 12, "{named:?}");
    for (name, _) in named.iter().filter(|(name, _)| name.starts_with("MILEPOST__")) {
        let key = name.trim_start_matches("MILEPOST__").replace("__", ".").to_lowercase();
        assert!(
            defaults.effective().iter().any(|(known, _)| *known == key),
            "{name} is not a setting"
        );
    }
    let values = yaml("deploy/helm/milepost/values.yaml");
    for toml in [
        read("deploy/kubernetes/base/milepost.toml"),
        read("deploy/kubernetes/overlays/production/milepost.toml"),
        values["config"].as_str().unwrap().to_owned(),
    ] {
        let config = merged_configuration(&toml);
        assert!(config.spool.is_some() && config.http.listen.ip().is_unspecified());
        assert_eq!(config.shutdown.peers[0].port, config.http.listen.port());
    }
}

/// Every pod reads the members' milepost.toml. A key that needs one of the members' variables, as
/// `batch.members_age_max` does, would otherwise keep the other pods from starting.
#[test]
fn every_pod_has_the_peers_that_the_configuration_may_need() {
    let peers = |pod: &Value| {
        let mut variables = variables(pod).into_iter();
        variables.find(|(name, _)| name == "MILEPOST__SHUTDOWN__PEERS").expect("no peers").1
    };
    for file in [
        "base/migrate.yaml",
        "components/events/deployment.yaml",
        "components/spool-replay/job.yaml",
    ] {
        let workload = yaml(&format!("deploy/kubernetes/{file}"));
        assert_eq!(peers(&workload["spec"]["template"]["spec"]), peers(&pod()), "{file}");
    }
    let error = Config::parse("batch.members_age_max = '8s'").unwrap_err().to_string();
    assert!(error.contains("requires shutdown.peers"), "{error}");
}

#[test]
fn pod_has_enough_grace_period_and_memory() {
    for folder in ["base", "overlays/production"] {
        let config =
            merged_configuration(&read(&format!("deploy/kubernetes/{folder}/milepost.toml")));
        let grace = pod()["terminationGracePeriodSeconds"].as_u64().unwrap();
        assert!(grace > config.shutdown.grace.as_secs() + 5, "{folder}: {grace} s");
        // The memory bound that docs/operations.md states for a spool whose disk hangs.
        let batches = 2 * config.clickhouse.inserts_in_flight + 5;
        let message = config.mqtt.max_packet_bytes as usize;
        let connection = message + MIB / 16;
        let bound = config.mqtt.buffer_bytes_max
            + batches * config.batch.bytes_max
            + 33 * message
            + CONNECTIONS_MAX * connection;
        let limit =
            pod()["containers"][0]["resources"]["limits"]["memory"].as_str().unwrap().to_owned();
        let limit = limit.strip_suffix("Mi").unwrap().parse::<usize>().unwrap() * MIB;
        assert!(
            bound + 8 * MIB <= limit,
            "{folder}: {} MiB, limit {} MiB",
            bound / MIB,
            limit / MIB
        );
        assert!(pod()["containers"][0]["resources"]["limits"].get("cpu").is_none());
    }
}

#[test]
fn spool_fits_into_its_volume() {
    let gib = |text: &str| text.strip_suffix("Gi").unwrap().parse::<u64>().unwrap() << 30;
    let base = yaml("deploy/kubernetes/base/statefulset.yaml");
    let base = &base["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"];
    let production = yaml("deploy/kubernetes/overlays/production/volume.yaml");
    let chart = yaml("deploy/helm/milepost/values.yaml");
    for (folder, size) in [
        ("base", base.as_str().unwrap()),
        ("base", chart["spool"]["size"].as_str().unwrap()),
        ("overlays/production", production[0]["value"].as_str().unwrap()),
    ] {
        let config =
            merged_configuration(&read(&format!("deploy/kubernetes/{folder}/milepost.toml")));
        // Allow 10 % extra: files occupy whole blocks, and a file may be in the middle of being
        // written.
        assert!(config.spool.unwrap().bytes_max / 10 * 11 < gib(size), "{folder}: {size}");
    }
}

/// A member's name is its pod's name, followed by a suffix that all members share.
#[test]
fn members_are_ordered_like_their_pods() {
    let id = variables(&pod())
        .into_iter()
        .find(|(name, _)| name == "MILEPOST__MQTT__CLIENT_ID")
        .unwrap()
        .1;
    for suffix in ["a1b2", "77", "0f"] {
        let name = |n: u32| {
            id.replace("$(POD_NAME)", &format!("milepost-{n}"))
                .replace("$(CLIENT_ID_SUFFIX)", suffix)
        };
        assert!((0..12).all(|n| order(&name(n), &name(n + 1)) == Ordering::Less), "{}", name(10));
    }
}

#[test]
fn kubernetes_rules_equal_the_prometheus_rules() {
    let rules = yaml("deploy/kubernetes/components/monitoring/rules.yaml");
    let groups = rules["spec"]["groups"].as_array().unwrap();
    assert_eq!(
        groups[0],
        yaml("deploy/prometheus/alerts.yml")["groups"][0],
        "rules.yaml differs from alerts.yml: copy the group again"
    );
    let record = groups[1]["rules"][0]["record"].as_str().unwrap();
    let metrics = Metrics::default().render();
    let expression = groups[1]["rules"][0]["expr"].as_str().unwrap();
    let words = expression.split(|c: char| !(c.is_ascii_lowercase() || c == '_'));
    let named: BTreeSet<_> = words.filter(|word| word.starts_with("milepost_")).collect();
    assert!(!named.is_empty());
    for name in named {
        assert!(metrics.contains(&format!("# TYPE {name} ")), "there is no metric {name}");
    }
    // The recording rule, KEDA and the HPA state the same messages/s per member.
    let keda = yaml("deploy/kubernetes/components/keda/scaledobject.yaml");
    let trigger = &keda["spec"]["triggers"][0]["metadata"];
    assert!(trigger["query"].as_str().unwrap().starts_with(record));
    assert!(expression.contains(&format!("{} * count", trigger["threshold"].as_str().unwrap())));
    let hpa = yaml("deploy/kubernetes/components/hpa/autoscaler.yaml");
    let target = &hpa["spec"]["metrics"][0]["external"]["target"]["averageValue"];
    assert_eq!(
        target.as_str().unwrap().replace('k', "000"),
        trigger["threshold"].as_str().unwrap()
    );
    let behavior = "/spec/advanced/horizontalPodAutoscalerConfig/behavior";
    assert_eq!(keda.pointer(behavior).unwrap(), &hpa["spec"]["behavior"]);
}
