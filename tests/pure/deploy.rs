//! Checks that the images and the container stack agree with each other and with the code. `make
//! containers` runs the stack if Docker is available.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use milepost_config::Config;
use milepost_observe::metrics::Metrics;
use serde_json::Value;

use crate::modules;

const COMPOSE: &str = "docker-compose.yml";
const DOCKERFILE: &str = "deploy/Dockerfile";
const WORKFLOW: &str = ".github/workflows/ci.yml";
const PRODUCTION: &str = "docs/production.md";
const PROMETHEUS: &str = "deploy/prometheus/prometheus.yml";
const ALERTS: &str = "deploy/prometheus/alerts.yml";
const DASHBOARD: &str = "deploy/grafana/dashboards/milepost.json";

fn exists(path: &str) -> bool {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path).exists()
}

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the name and definition of each service, with YAML anchors and merges resolved.
fn services() -> Vec<(String, Value)> {
    let services = yaml(COMPOSE)["services"].as_object().unwrap().clone();
    services.into_iter().collect()
}

/// Returns the services that run an image of this repository.
fn own_services() -> Vec<(String, Value)> {
    let ours: Vec<_> =
        services().into_iter().filter(|(_, service)| service.get("build").is_some()).collect();
    assert!(ours.len() >= 4, "expected migrate, two mileposts and loadgen");
    ours
}

/// Returns the strings of a list; empty if there is no list.
fn strings(value: &Value) -> Vec<&str> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .map(|item| item.as_str().expect("the list has only strings"))
        .collect()
}

/// Returns the words that begin with `prefix`. A word ends before the first character that is not
/// `allowed`.
fn words(text: &str, prefix: &str, allowed: fn(char) -> bool) -> BTreeSet<String> {
    let parts = text.split(|c| !allowed(c));
    parts.filter(|word| word.starts_with(prefix)).map(str::to_owned).collect()
}

fn upper(c: char) -> bool {
    c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'
}

fn lower(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'
}

fn default_of(key: &str) -> String {
    let defaults = Config::defaults().unwrap();
    let (_, value) = defaults.effective().iter().find(|(known, _)| known == key).unwrap();
    value.trim_matches('"').to_owned()
}

#[test]
fn every_variable_in_the_stack_is_a_setting() {
    let defaults = Config::defaults().unwrap();
    for file in [COMPOSE, DOCKERFILE, WORKFLOW, PRODUCTION] {
        let named = words(&read(file), "MILEPOST__", upper);
        assert!(!named.is_empty() || file == WORKFLOW, "{file} sets nothing");
        for variable in named {
            let key = variable.trim_start_matches("MILEPOST__").replace("__", ".").to_lowercase();
            assert!(
                defaults.effective().iter().any(|(known, _)| *known == key),
                "{file}: {variable} is not a setting"
            );
        }
    }
}

#[test]
fn every_metric_and_label_exists() {
    let rendered = Metrics::default().render();
    let mut known = BTreeSet::new();
    for line in rendered.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        let suffixes: &[&str] =
            if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        known.extend(suffixes.iter().map(|suffix| format!("{name}{suffix}")));
    }
    for file in [DASHBOARD, ALERTS] {
        let text = read(file).replace("\\\"", "\"");
        let named = words(&text, "milepost_", lower);
        assert!(named.len() >= 8, "{file} names {named:?}");
        for name in named {
            assert!(known.contains(&name), "{file}: there is no metric {name}");
        }
        for label in ["kind", "reason", "field"] {
            for value in text
                .split(&format!("{label}=\""))
                .skip(1)
                .map(|rest| rest.split('"').next().unwrap())
            {
                assert!(
                    rendered.contains(&format!("{label}=\"{value}\"")),
                    "{file}: no metric has {label}=\"{value}\""
                );
            }
        }
    }
}

/// Quarantine holds damaged files and single oversized rows; only damaged files are a sign of a
/// faulty disk.
#[test]
fn oversized_row_is_not_reported_as_a_damaged_file() {
    let alerts = yaml(ALERTS);
    let rules = alerts["groups"][0]["rules"].as_array().unwrap();
    let expr = |alert: &str| {
        rules.iter().find(|rule| rule["alert"] == alert).unwrap()["expr"].as_str().unwrap()
    };
    let (damaged, before_first_scrape) = expr("MilepostSpoolDamaged").split_once('\n').unwrap();
    assert_eq!(damaged, "increase(milepost_spool_quarantined_total[15m]) > 0");
    assert!(
        before_first_scrape.trim_start().starts_with("or milepost_spool_quarantined_total > 0")
    );
    let (counts, except) = expr("MilepostRowTooLarge").split_once(" unless ").unwrap();
    assert_eq!(counts, "increase(milepost_positions_quarantined_total[15m]) > 0");
    let dropped = "increase(milepost_positions_dropped_total[15m]) > 0 or \
                   increase(milepost_rejects_dropped_total[15m]) > 0";
    assert_eq!(except, format!("{damaged} or {dropped}"));
}

#[test]
fn prometheus_and_grafana_files_are_complete() {
    let guide = read("docs/operations.md");
    for rule in yaml(ALERTS)["groups"][0]["rules"].as_array().unwrap() {
        let name = rule["alert"].as_str().unwrap();
        let section =
            guide.split_once(&format!("\n### {name}\n\n**Meaning:** ")).map(|(_, rest)| rest);
        let section = section.unwrap_or_else(|| panic!("docs/operations.md has no section {name}"));
        let section = section.split("\n#").next().unwrap_or_default();
        for part in ["\n**First look:**", "\n**Fix:**"] {
            let text = section.split_once(part).map(|(_, rest)| rest.split("**").next().unwrap());
            assert!(
                text.is_some_and(|text| text.starts_with([' ', '\n']) && !text.trim().is_empty()),
                "docs/operations.md, {name}: no text after {part:?}"
            );
        }
        let url = format!("docs/operations.md#{}", name.to_lowercase());
        assert_eq!(rule["annotations"]["runbook_url"], url.as_str());
        for part in ["/alert", "/expr", "/labels/severity", "/annotations/summary"] {
            assert!(rule.pointer(part).is_some_and(Value::is_string), "{rule} has no {part}");
        }
    }
    assert_eq!(strings(&yaml(PROMETHEUS)["rule_files"]), [ALERTS.rsplit('/').next().unwrap()]);

    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).unwrap();
    let source = &yaml("deploy/grafana/provisioning/datasources/prometheus.yml")["datasources"][0];
    for panel in dashboard["panels"].as_array().unwrap() {
        assert_eq!(panel["datasource"]["uid"], source["uid"], "{}", panel["title"]);
        assert!(
            panel["targets"].as_array().is_some_and(|targets| !targets.is_empty()),
            "{}",
            panel["title"]
        );
    }
    let provider = &yaml("deploy/grafana/provisioning/dashboards/milepost.yml")["providers"][0];
    let mount =
        format!("./deploy/grafana/dashboards:{}:ro", provider["options"]["path"].as_str().unwrap());
    assert!(read(COMPOSE).contains(&mount), "{mount}");
}

#[test]
fn every_file_and_volume_exists_and_is_used() {
    let compose = yaml(COMPOSE);
    let declared: BTreeSet<&str> =
        compose["volumes"].as_object().unwrap().keys().map(String::as_str).collect();
    let services = services();
    let mut used = BTreeSet::new();
    for (name, service) in &services {
        for mount in strings(&service["volumes"]) {
            let from = mount.split(':').next().unwrap();
            if from.starts_with('.') {
                assert!(exists(from), "{name} mounts {from}");
                assert!(mount.ends_with(":ro"), "{name} mounts {from} writable");
            } else {
                used.insert(from);
            }
        }
        if let Some(build) = service.get("build") {
            let dockerfile = build["dockerfile"].as_str().unwrap();
            let stage = format!(" AS {}\n", build["target"].as_str().unwrap());
            assert!(read(dockerfile).contains(&stage), "{dockerfile} has no stage{stage}");
        }
    }
    assert_eq!(used, declared);
}

#[test]
fn ports_of_all_files_agree() {
    let port = default_of("http.listen").rsplit_once(':').unwrap().1.to_owned();
    let dockerfile = read(DOCKERFILE);
    assert!(dockerfile.contains(&format!("\nENV MILEPOST__HTTP__LISTEN=0.0.0.0:{port}\n")));
    assert!(dockerfile.contains(&format!("\nEXPOSE {port}\n")));

    // `milepost health` and `run` take the port from the same environment variable.
    let listening: BTreeSet<String> = own_services()
        .iter()
        .filter(|(_, service)| strings(&service["command"]) == ["run"])
        .map(|(name, service)| {
            assert_eq!(
                strings(&service["healthcheck"]["test"]),
                ["CMD", "/milepost", "health"],
                "{name}"
            );
            let listen = service["environment"]["MILEPOST__HTTP__LISTEN"].as_str().unwrap();
            format!(
                "{name}:{}",
                listen.strip_prefix("0.0.0.0:").expect("listens on all interfaces")
            )
        })
        .collect();
    let prometheus = yaml(PROMETHEUS);
    let jobs = prometheus["scrape_configs"].as_array().unwrap();
    let targets = |job: &Value| -> BTreeSet<String> {
        strings(&job["static_configs"][0]["targets"]).into_iter().map(str::to_owned).collect()
    };
    let milepost = jobs.iter().find(|job| job["job_name"] == "milepost").unwrap();
    assert_eq!(targets(milepost), listening);
    for target in jobs.iter().flat_map(targets) {
        let host = target.split(':').next().unwrap();
        assert!(services().iter().any(|(name, _)| name == host), "{target} is not a service");
    }
    for (name, service) in services() {
        for published in strings(&service["ports"]) {
            assert!(
                published.starts_with("127.0.0.1:"),
                "{name} publishes {published} to the world"
            );
        }
    }
}

#[test]
fn passwords_come_only_from_the_env_file() {
    let compose = read(COMPOSE).replace("$$", ""); // an escaped dollar sign
    let example = read(".env.example");
    let required: BTreeSet<&str> = compose
        .split("${")
        .skip(1)
        .map(|rest| {
            let (name, hint) =
                rest.split_once(":?").unwrap_or_else(|| panic!("${{{rest} has no hint"));
            assert!(
                hint.split('}').next().unwrap().ends_with("deploy/passwords writes .env"),
                "{name}: {hint}"
            );
            name
        })
        .collect();
    let lines = || example.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let documented: BTreeSet<&str> = lines().map(|line| line.split_once('=').unwrap().0).collect();
    assert_eq!(required, documented);
    // The service `credentials` refuses the value `change-me` because of its hyphen; CI tests that.
    assert!(lines().all(|line| line.ends_with("=change-me")), "a usable default password");
    let credentials = services().into_iter().find(|(name, _)| name == "credentials").unwrap().1;
    assert_eq!(
        credentials["environment"]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect::<BTreeSet<_>>(),
        documented
    );
    assert!(read(".gitignore").lines().any(|line| line == "/.env"));
}

#[test]
fn images_are_pinned() {
    let check_pinned = |image: &str| {
        let tag = image.rsplit('/').next().unwrap().split_once(':').map(|(_, tag)| tag);
        assert!(tag.is_some_and(|tag| !tag.is_empty() && !tag.starts_with("latest")), "{image}");
    };
    for (name, service) in services() {
        check_pinned(service["image"].as_str().unwrap_or_else(|| panic!("{name} has no image")));
    }
    let dockerfile = read(DOCKERFILE);
    let stages: Vec<&str> = dockerfile
        .lines()
        .filter_map(|line| line.split_once(" AS "))
        .map(|(_, stage)| stage)
        .collect();
    let images =
        dockerfile.lines().filter_map(|line| line.strip_prefix("FROM ")?.split(' ').next());
    images.filter(|image| !stages.contains(image)).for_each(check_pinned);
    let manifest = read("Cargo.toml");
    let rust = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "))
        .unwrap()
        .trim_matches('"');
    assert!(
        dockerfile.contains(&format!("FROM rust:{rust}-")),
        "the image is not built with Rust {rust}"
    );
}

#[test]
fn build_context_has_every_member_of_the_workspace() {
    let (dockerfile, ignored) = (read(DOCKERFILE), read(".dockerignore"));
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    for folder in modules::crates().iter().filter(|folder| *folder != here) {
        let member = folder.strip_prefix(here).unwrap().to_str().unwrap();
        assert!(
            dockerfile.contains(&format!("\nCOPY {member}/Cargo.toml {member}/\n")),
            "{member} is not built"
        );
        let is_member_path = |path: &str| member == path || member.starts_with(&format!("{path}/"));
        let is_included =
            ignored.lines().filter_map(|line| line.strip_prefix('!')).any(is_member_path);
        assert!(is_included, "{member} is ignored");
    }
    for path in ignored.lines().filter_map(|line| line.strip_prefix('!')) {
        assert!(exists(path), ".dockerignore includes {path}, which does not exist");
    }
}

#[test]
fn own_containers_are_restricted_and_have_time_to_stop() {
    let grace = humantime::parse_duration(&default_of("shutdown.grace")).unwrap();
    for (name, service) in own_services() {
        assert_eq!(service["read_only"], true, "{name}");
        assert_eq!(strings(&service["cap_drop"]), ["ALL"], "{name}");
        assert!(strings(&service["security_opt"]).contains(&"no-new-privileges:true"), "{name}");
        let stop =
            humantime::parse_duration(service["stop_grace_period"].as_str().unwrap()).unwrap();
        assert!(
            stop >= grace + Duration::from_secs(5),
            "{name} is killed after {stop:?}, but may flush for {grace:?}"
        );
    }
    let hosts: Vec<_> = own_services()
        .into_iter()
        .filter(|(_, service)| strings(&service["command"]) == ["run"])
        .map(|(name, service)| (name, service["hostname"].as_str().map(str::to_owned)))
        .collect();
    assert!(
        hosts.iter().all(|(name, host)| host.as_ref() == Some(name)),
        "a hostname differs from its service, so client ids change: {hosts:?}"
    );
}

/// Containers of third-party images must drop their privileges, too.
#[test]
fn every_container_drops_all_privileges() {
    for (name, service) in services() {
        assert_eq!(strings(&service["cap_drop"]), ["ALL"], "{name}");
        assert!(strings(&service["security_opt"]).contains(&"no-new-privileges:true"), "{name}");
        let has_writable_root = ["emqx", "clickhouse"].contains(&&*name);
        assert_eq!(service["read_only"] == true, !has_writable_root, "{name}");
    }
}

/// A service shares a network with exactly the services that it must reach.
#[test]
fn networks_connect_only_services_that_communicate() {
    let services = services();
    let networks_of = |name: &str| -> BTreeSet<String> {
        let (_, service) = services.iter().find(|(known, _)| known == name).unwrap();
        strings(&service["networks"]).into_iter().map(str::to_owned).collect()
    };
    let known: BTreeSet<String> =
        yaml(COMPOSE)["networks"].as_object().unwrap().keys().cloned().collect();
    let connected_to = |peer: &str| -> String {
        let names = services.iter().map(|(name, _)| name.clone()).filter(|name| name != peer);
        names
            .filter(|name| !networks_of(name).is_disjoint(&networks_of(peer)))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect::<Vec<_>>()
            .join(" ")
    };
    for (name, service) in &services {
        assert!(networks_of(name).is_subset(&known), "{name}");
        assert_eq!(
            networks_of(name).is_empty(),
            service["network_mode"] == "none",
            "{name} is in the default network"
        );
    }
    assert_eq!(connected_to("door"), "emqx");
    assert_eq!(connected_to("clickhouse"), "grafana loadgen map migrate milepost-a milepost-b");
    // Only milepost and loadgen need port 1884. A network cannot separate port 1884 from the ports
    // that the other services query.
    assert_eq!(connected_to("emqx"), "door loadgen milepost-a milepost-b prometheus");
    assert_eq!(connected_to("grafana"), "clickhouse prometheus");
}

#[test]
fn every_command_exists_in_milepost() {
    let program = milepost::cli::command();
    let commands: Vec<String> =
        program.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    assert!(commands.contains(&"run".to_owned()), "{commands:?}");
    let check_exists = |command: &str| {
        assert!(commands.iter().any(|name| name == command), "milepost has no {command}")
    };
    for (_, service) in
        own_services().iter().filter(|(_, service)| service["build"]["target"] == "milepost")
    {
        check_exists(strings(&service["command"])[0]);
        if let Some(test) = service.pointer("/healthcheck/test") {
            check_exists(strings(test)[2]);
        }
    }
    let dockerfile = read(DOCKERFILE);
    check_exists(dockerfile.split_once("\nCMD [\"").unwrap().1.split('"').next().unwrap());
}

/// `docker compose up --wait` treats a service without a health check as healthy, even in a restart
/// loop.
#[test]
fn every_long_running_service_has_a_health_check() {
    for (name, service) in services() {
        let is_long_running = service.get("restart").is_some();
        assert_eq!(service.get("healthcheck").is_some(), is_long_running, "{name}");
    }
    let dockerfile = read(DOCKERFILE);
    for program in ["milepost", "milepost-map"] {
        assert!(dockerfile.contains(&format!(" CMD [\"/{program}\", \"health\"]\n")), "{program}");
    }
    assert!(
        !dockerfile.contains("# syntax"),
        "a syntax line makes every build fetch a front end, and nothing here needs it"
    );
}

/// Checks commented-out settings too: each must be valid when the operator removes the `# `.
#[test]
fn packaged_configuration_is_valid_when_uncommented() {
    let text = read("deploy/release/package/milepost.toml");
    Config::parse(&text).unwrap();
    let is_setting =
        |line: &str| line.split_once(" = ").is_some_and(|(key, _)| key.chars().all(lower));
    let mut known = BTreeSet::new();
    let mut section = "";
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        } else if let Some(setting) = line.strip_prefix("# ").filter(|line| is_setting(line)) {
            known.insert(setting.split_once(" = ").unwrap().0);
            // Parse one setting at a time, because two lines with the same key are alternatives.
            // Errors about files are allowed: the files that settings name do not exist on this
            // machine.
            let single = format!("[{section}]\n{setting}\n");
            let error =
                Config::parse(&single).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(!error.contains("unknown"), "{single}{error}");
            assert!(
                setting.contains("_file") || setting.contains("mqtts:") || error.is_empty(),
                "{single}{error}"
            );
        }
    }
    assert!(known.len() >= 10, "{known:?}");
}

/// The guide runs `milepost check` as the service's user before the first start. Only at that start
/// does systemd make the unit's StateDirectory.
#[test]
fn packages_contain_the_folder_of_the_spool() {
    let config = Config::parse(&read("deploy/release/package/milepost.toml")).unwrap();
    let dir = config.spool.unwrap().dir;
    assert_eq!(dir.parent(), Some(Path::new("/var/lib/milepost")));
    assert!(
        read("deploy/release/package/milepost.service").contains("\nStateDirectory=milepost\n")
    );
    let package = read("deploy/release/package/nfpm.yaml");
    let folder = package.lines().find(|line| line.contains("dst: \"/var/lib/${NAME}\""));
    let folder = folder.expect("nfpm.yaml lacks the folder");
    for part in ["type: dir", "mode: 0700", "owner: \"@NAME@\"", "group: \"@NAME@\""] {
        assert!(folder.contains(part), "{folder} has no {part}");
    }
}

#[test]
fn every_flag_exists_in_loadgen() {
    let source = read("loadgen/src/main.rs");
    let compose = yaml(COMPOSE);
    let mut lines = vec![strings(&compose["services"]["loadgen"]["command"]).join(" ")];
    for file in [COMPOSE, WORKFLOW] {
        let text = read(file).replace("\\\n", " ");
        let runs = text
            .lines()
            .filter_map(|line| line.split_once("docker compose run ")?.1.split_once(" loadgen "));
        lines.extend(runs.map(|(_, arguments)| arguments.to_owned()));
    }
    assert!(lines.len() >= 4, "{lines:?}");
    for line in lines {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap();
        let name = name[..1].to_uppercase() + &name[1..];
        let arguments = source.split_once(&format!("struct {name}Arguments {{"));
        let fields = arguments
            .unwrap_or_else(|| panic!("loadgen has no {line}"))
            .1
            .split_once("\n}")
            .unwrap()
            .0;
        for flag in words.filter_map(|word| word.strip_prefix("--")) {
            let field = format!("    {}: ", flag.replace('-', "_"));
            assert!(fields.contains(&field), "loadgen has no --{flag}: {line}");
        }
    }
}

#[test]
fn services_wait_for_their_dependencies() {
    let services = services();
    let find = |name: &str| {
        &services.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("{name}")).1
    };
    let mut finished = BTreeSet::new();
    for (name, service) in &services {
        for (dependency, options) in service["depends_on"].as_object().into_iter().flatten() {
            match options["condition"].as_str().unwrap() {
                "service_healthy" => {
                    assert!(
                        find(dependency).get("healthcheck").is_some(),
                        "{name} waits for {dependency}, which has no health check"
                    )
                }
                "service_completed_successfully" => {
                    finished.insert(dependency.clone());
                }
                other => panic!("{name} waits for {dependency}: unexpected condition {other}"),
            }
        }
    }
    // `up --wait` fails if a service ends, unless another service waits for its completion.
    for (name, service) in services.iter().filter(|(_, service)| service.get("profiles").is_none())
    {
        assert_eq!(finished.contains(name), service.get("restart").is_none(), "{name}");
    }
}

#[test]
fn users_and_grants_name_existing_objects() {
    let users = read("deploy/clickhouse/users.xml");
    let acl = read("deploy/emqx/acl.conf");
    for (name, service) in own_services() {
        for key in ["MILEPOST__CLICKHOUSE__USER", "CLICKHOUSE_USER"] {
            if let Some(user) = service["environment"][key].as_str() {
                assert!(
                    users.contains(&format!("<{user}>")),
                    "{name} logs in as {user}, which users.xml lacks"
                );
            }
        }
        if let Some(user) = service["environment"]["MILEPOST__MQTT__USERNAME"].as_str() {
            let topics = default_of("mqtt.topics").replace(['[', ']'], "");
            let rule = format!(
                "{{allow, {{username, \"{user}\"}}, subscribe, [{{eq, \"{}\"}}]}}.",
                topics.trim_matches('"')
            );
            assert!(acl.contains(&rule), "{rule}");
        }
    }
    let migrations: String = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("sql"))
        .unwrap()
        .filter_map(|entry| fs::read_to_string(entry.unwrap().path()).ok())
        .collect();
    for table in users.split("ON fleet.").skip(1).map(|rest| rest.split('<').next().unwrap()) {
        let created = format!(" {{database}}.{table}{{on_cluster}}");
        assert!(
            table == "*" || migrations.contains(&created),
            "users.xml has a grant on {table}, which no migration creates"
        );
    }
    assert_eq!(default_of("clickhouse.database"), "fleet");
    let compose = yaml(COMPOSE);
    for variable in users.split("from_env=\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(
            compose["services"]["clickhouse"]["environment"].get(variable).is_some(),
            "{variable}"
        );
    }
    assert!(acl.trim_end().ends_with("{deny, all}."), "the last rule must deny all");
}

#[test]
fn broker_allows_the_configured_receive_maximum() {
    let broker = read("deploy/emqx/emqx.conf");
    let setting = |name: &str| {
        let line = broker.lines().find_map(|line| line.trim().strip_prefix(&format!("{name} = ")));
        line.unwrap_or_else(|| panic!("emqx.conf does not set {name}")).to_owned()
    };
    let window: u32 = setting("max_inflight").parse().unwrap();
    assert!(window >= Config::defaults().unwrap().mqtt.receive_maximum.into());
    assert_eq!(
        (setting("max_packet_size"), default_of("mqtt.max_packet_bytes")),
        ("1MB".into(), "1048576".into())
    );
    assert_eq!(setting("no_match"), "deny");
    // `milepost check` learns the names of a cluster's nodes from a retained message.
    assert_eq!(setting("retainer.enable"), "false");
    assert!(read("deploy/emqx/cluster.conf").contains("\nretainer.enable = true\n"));
}

/// Returns the block of a HOCON file that begins with this line.
fn block<'a>(text: &'a str, head: &str) -> &'a str {
    let (_, rest) =
        text.split_once(&format!("\n{head} {{\n")).unwrap_or_else(|| panic!("there is no {head}"));
    rest.split_once("\n}").unwrap_or_else(|| panic!("{head} has no end")).0
}

#[test]
fn devices_have_limits_and_milepost_has_its_own_listener() {
    let files = [("deploy/emqx/emqx.conf", "tcp"), ("deploy/emqx/tls.conf", "ssl")];
    for (file, transport) in files {
        let broker = read(file);
        let drivers = block(&broker, &format!("listeners.{transport}.default"));
        let ours = block(&broker, &format!("listeners.{transport}.milepost"));
        assert!(
            drivers.contains("zone = drivers") && drivers.contains("messages_rate = "),
            "{file}"
        );
        assert!(ours.contains("zone = milepost") && ours.contains("authentication = ["), "{file}");
        assert!(!ours.contains("_rate"), "{file}: a rate limit would also count acknowledgements");
    }
    let broker = read(files[0].0);
    assert!(block(&broker, "zones.drivers.mqtt").contains("use_username_as_clientid = true"));
    let ours = block(&broker, "listeners.tcp.milepost");
    let port = ours.lines().find_map(|line| line.trim().strip_prefix("bind = \"0.0.0.0:")).unwrap();
    let port = port.trim_end_matches('"');
    for (name, service) in mqtt_clients() {
        assert!(
            service.contains(&format!("emqx:{port}")),
            "{name} does not use milepost's listener"
        );
    }
    let published = services().into_iter().flat_map(|(_, service)| {
        strings(&service["ports"]).into_iter().map(str::to_owned).collect::<Vec<_>>()
    });
    assert!(
        published.into_iter().all(|published| !published.ends_with(port)),
        "{port} is published"
    );
}

/// Returns the services that connect to the broker by MQTT, each with its definition as JSON.
fn mqtt_clients() -> Vec<(String, String)> {
    let as_client = |(name, service): (String, Value)| {
        let text = service.to_string();
        text.contains("emqx:").then_some((name, text))
    };
    let found: Vec<_> = own_services().into_iter().filter_map(as_client).collect();
    assert!(found.len() >= 3, "expected two mileposts and loadgen");
    found
}

#[test]
fn broker_acl_allows_every_subscription_of_the_stack() {
    let acl = read("deploy/emqx/acl.conf");
    let is_enabled = own_services()
        .into_iter()
        .any(|(_, service)| service["environment"]["MILEPOST__MQTT__BROKER_METRICS"] == "true");
    assert!(is_enabled);
    let rule = r#"{allow, {username, "milepost"}, subscribe, [{eq, "$SYS/brokers/+/metrics/#"}]}."#;
    assert!(acl.contains(rule), "{rule}");
}

#[test]
fn listeners_for_other_networks_are_secured() {
    let broker = read("deploy/emqx/tls.conf");
    for line in [
        "listeners.tcp.default.bind = \"127.0.0.1:1883\"",
        "bind = \"0.0.0.0:8883\"",
        "versions = [\"tlsv1.3\", \"tlsv1.2\"]",
        "messages_rate = ",
        "max_conn_rate = ",
    ] {
        assert!(
            broker.lines().any(|found| found.trim().starts_with(line)),
            "tls.conf has no {line}"
        );
    }
    let server = read("deploy/clickhouse/tls.xml");
    for element in
        ["<https_port>8443<", "<http_port remove=", "<tcp_port remove=", "<certificateFile>"]
    {
        assert!(server.contains(element), "tls.xml has no {element}");
    }
}

#[test]
fn each_member_has_a_spool_of_its_own() {
    let volumes: Vec<String> = own_services()
        .iter()
        .filter(|(_, service)| strings(&service["command"]) == ["run"])
        .map(|(name, service)| {
            let dir = service["environment"]["MILEPOST__SPOOL__DIR"].as_str().unwrap();
            let mounts = strings(&service["volumes"]);
            let mount = mounts.iter().find_map(|mount| {
                let (volume, path) = mount.split_once(':')?;
                dir.starts_with(path).then(|| volume.to_owned())
            });
            mount.unwrap_or_else(|| panic!("{name}: {dir} is not on a volume"))
        })
        .collect();
    assert!(volumes.len() >= 2);
    assert_eq!(
        volumes.iter().collect::<BTreeSet<_>>().len(),
        volumes.len(),
        "{volumes:?}: two members share a spool"
    );
}

#[test]
fn workflows_have_minimal_permissions() {
    let folder =
        std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".github/workflows")).unwrap();
    let files = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    for file in files {
        let path = format!(".github/workflows/{file}");
        let workflow = yaml(&path);
        assert_eq!(workflow["permissions"], serde_json::json!({"contents": "read"}), "{path}");
        for (name, job) in workflow["jobs"].as_object().unwrap() {
            // Only the release workflow has write permissions: for the release and its images.
            let expected = (file == "release.yml")
                .then(|| serde_json::json!({"contents": "write", "packages": "write"}));
            assert_eq!(job.get("permissions"), expected.as_ref(), "{path}: {name}");
            assert!(job["timeout-minutes"].is_u64(), "{path}: {name}");
            for action in
                job["steps"].as_array().unwrap().iter().filter_map(|step| step["uses"].as_str())
            {
                let hash = action.split_once('@').map_or("", |(_, hash)| hash);
                let is_hash = hash.len() == 40 && hash.chars().all(|c| c.is_ascii_hexdigit());
                assert!(is_hash, "{action}: pin a commit, because a tag can be moved");
            }
        }
        let text = read(&path);
        for target in
            text.split("run: make ").skip(1).map(|rest| rest.split_whitespace().next().unwrap())
        {
            assert!(read("Makefile").contains(&format!("\n{target}:")), "make {target}");
        }
    }
}

/// Returns the fixed words of a line of `/readyz`. Left out are the component's name, numbers, and
/// the ellipsis that stands for variable text.
fn fixed_words(line: &str) -> impl Iterator<Item = String> {
    let line = line.split_once(": ").map_or(line, |(_, line)| line);
    let words: Vec<&str> = line.split(' ').collect();
    let varies = |word: &&str| word.contains(|c: char| c.is_ascii_digit() || c == '…');
    let fixed =
        words.split(varies).map(|words| words.join(" ").trim_matches([':', ',']).to_owned());
    fixed.filter(|words| words.len() > 6).collect::<Vec<_>>().into_iter()
}

#[test]
fn readyz_lines_in_the_guide_match_the_code() {
    let mut sources = String::new();
    let mut folders =
        ["src", "crates"].map(|folder| Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).to_vec();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path)
            } else {
                sources += &fs::read_to_string(path).unwrap()
            }
        }
    }
    // Join each string literal that continues on the next line.
    let sources: String = sources.split("\\\n").map(str::trim_start).collect();
    let guide = read("docs/operations.md");
    let (_, rest) = guide.split_once("\n## /readyz\n").unwrap();
    let section = rest.split("\n## ").next().unwrap();
    let mut lines = 0;
    for cell in section.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next()) {
        for line in cell.split('`').step_by(2) {
            for words in fixed_words(line) {
                assert!(
                    sources.contains(&words),
                    "docs/operations.md: {words:?} is not in the code"
                );
            }
            lines += 1;
        }
    }
    assert!(lines >= 25, "{lines} lines");
}

#[test]
fn passwords_script_sets_distinct_passwords_and_keeps_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("env");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/passwords");
    let run = || std::process::Command::new(&script).arg(&file).output().unwrap();
    assert!(run().status.success());
    let written = fs::read_to_string(&file).unwrap();
    let passwords: BTreeSet<&str> = written
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(_, password)| password)
        .collect();
    let expected = read(".env.example").lines().filter(|line| line.ends_with("=change-me")).count();
    assert_eq!(passwords.len(), expected);
    assert!(passwords.iter().all(|password| password.len() == 48), "{written}");
    let again = run();
    assert!(!again.status.success(), "a second run must not change the passwords");
    assert_eq!(fs::read_to_string(&file).unwrap(), written);
}
