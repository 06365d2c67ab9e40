//! Tests `milepost check`. The command finds every planted fault and names the setting to change.
//! On a healthy stack, the command reports no fault.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use lab_harness::tls::{Authority, TlsFront};
use lab_stack::{Settings, free_port};
use rumqttc::v5::mqttbytes::v5::Packet;
use serde_json::Value;

use crate::scripted_broker::{Peer, ScriptedBroker};
use crate::secure::{
    ProxyAction, SecureBroker, broker_password, scripted_clickhouse, scripted_clickhouse_with_size,
    tls_lines, write_file,
};
use crate::world::{SOON, World, settings, unmigrated, world};

const PROBE: &str = "drivers/check/gps-check";

/// Level and text of each check's line, by the check's name. If a check has several lines, the map
/// contains the first line that is not ok.
type Lines = BTreeMap<String, (String, String)>;

/// Runs `milepost check`; returns the exit code and the findings.
fn check(settings: &Settings, arguments: &[&str]) -> Result<(i32, Lines)> {
    let (code, printed) = settings.call(&[&["check", "--json"], arguments].concat())?;
    let report: Value = serde_json::from_str(&printed).with_context(|| printed.clone())?;
    let mut lines = Lines::new();
    for line in report["checks"].as_array().context("checks")? {
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        let found = (text("level"), format!("{}; {}", text("found"), text("advice")));
        if lines.get(&text("what")).is_none_or(|(level, _)| level == "ok") {
            lines.insert(text("what"), found);
        }
    }
    assert_eq!(code == 1, report["errors"].as_u64() > Some(0), "{printed}");
    ensure!(code == 0 || code == 1, "{printed}");
    Ok((code, lines))
}

/// Asserts that the check `check_name` reports this level and these words, and that no line shows
/// the password that the tests set, `Wrong-Secret`.
fn expect_finding(
    settings: &Settings,
    arguments: &[&str],
    check_name: &str,
    level: &str,
    words: &str,
) -> Result<()> {
    let (_, lines) = check(settings, arguments)?;
    let (found, text) =
        lines.get(check_name).with_context(|| format!("no {check_name} in {lines:#?}"))?;
    ensure!(
        found == level && text.contains(words),
        "{check_name}: expected {level} and {words:?} in {lines:#?}"
    );
    ensure!(!format!("{lines:?}").contains("Secret"), "{lines:#?}");
    Ok(())
}

#[test]
fn check_of_a_healthy_stack_finds_nothing_and_disturbs_nothing() -> Result<()> {
    let world = world("check_good")?;
    let mut milepost = world.settings.run()?;
    let (code, printed) = world.settings.call(&["check", "--probe-topic", PROBE])?;
    assert_eq!(code, 0, "{printed}");
    ensure!(printed.ends_with("0 errors, 0 warnings\n"), "{printed}");
    for words in [
        "answers in MQTT 5",
        "subscription         $share/milepost-check/drivers/+/gps granted",
        "published and received in",
        "all exist, with every column that milepost inserts",
    ] {
        ensure!(printed.contains(words), "{words} is not in {printed}");
    }
    let fix = format!(r#"{{"lat":1,"lng":2,"seq":1,"ts":{}}}"#, lab_stack::unix_ms());
    world.publish(&[("drivers/d1/gps", fix.as_bytes())])?;
    crate::world::wait_for_metric(&milepost, "acks_total", 1.0)?;
    assert_eq!(milepost.metric("mqtt_reconnects_total")?, 0.0);
    let log = milepost.process.log()?;
    ensure!(!log.contains("WARN"), "the start logs a warning: {log}");
    milepost.terminate(crate::world::SOON)?;
    let (code, printed) = world.settings.call(&["check", "--probe-topic", "drivers/d1/gps"])?;
    ensure!(
        code == 64 && printed.contains("the running group reads it as a fix"),
        "{code} {printed}"
    );
    Ok(())
}

#[test]
fn check_names_the_setting_if_the_broker_refuses_the_client() -> Result<()> {
    let world = unmigrated("check_doors")?;
    let folder = world.folder.path();
    let ca = Authority::new("ca")?;
    let acl = write_file(
        folder,
        "acl",
        "user reads\ntopic write drivers/#\nuser writes\ntopic read drivers/#\n",
    )?;
    let passwords = broker_password(folder, "milepost", "right")?;
    let tls = tls_lines(folder, "tls", &ca.pem, &ca.sign(&["localhost"])?)?;
    let broker = SecureBroker::start(
        folder,
        &[
            ("tls", format!("{tls}\nallow_anonymous true")),
            ("password", format!("password_file {passwords}")),
            ("acl", format!("acl_file {acl}\nallow_anonymous true")),
        ],
    )?;
    let at = |scheme: &str, listener: &str| {
        let url = format!("{scheme}://localhost:{}", broker.port(listener));
        world.settings.clone().with("MQTT__URL", url)
    };
    let closed_port =
        world.settings.clone().with("MQTT__URL", format!("mqtt://localhost:{}", free_port()?));
    expect_finding(
        &closed_port,
        &[],
        "broker",
        "error",
        "set mqtt.url to the host and port of a listener",
    )?;
    expect_finding(
        &at("mqtt", "tls"),
        &[],
        "broker",
        "error",
        "is this a TLS port? Then use mqtts:// in mqtt.url",
    )?;
    expect_finding(
        &at("mqtts", "plain"),
        &[],
        "broker",
        "error",
        "does not speak TLS on this port",
    )?;
    expect_finding(
        &at("mqtts", "tls"),
        &[],
        "broker",
        "error",
        "set mqtt.ca_file to the CA that signed it",
    )?;
    let with_ca = at("mqtts", "tls").with("MQTT__CA_FILE", write_file(folder, "ca.pem", &ca.pem)?);
    expect_finding(&with_ca, &[], "broker TLS", "ok", "the broker's certificate is signed by")?;
    let user = |name: &str, listener: &str| {
        at("mqtt", listener).with("MQTT__USERNAME", name).with("MQTT__PASSWORD", "Wrong-Secret")
    };
    expect_finding(
        &user("milepost", "password"),
        &[],
        "login",
        "error",
        "set mqtt.username and mqtt.password_file",
    )?;
    let probe = ["--probe-topic", PROBE];
    expect_finding(
        &user("reads", "acl"),
        &probe,
        "message",
        "error",
        "allow this user to publish, but not to read",
    )?;
    expect_finding(
        &user("writes", "acl"),
        &probe,
        "message",
        "warning",
        "publishing is not authorized",
    )
}

/// Accepts the connection with these properties of the CONNACK (0x20), and answers each SUBSCRIBE
/// with this reason code for each filter, in a SUBACK (0x90).
fn accept_client(peer: &mut Peer, properties: &[u8], code: u8) -> Result<()> {
    loop {
        let packet = peer.receive()?;
        if let Packet::Connect(..) = packet {
            let length = u8::try_from(properties.len())?;
            peer.send(&[&[0x20, 3 + length, 0, 0, length], properties].concat())?;
        } else if let Packet::Subscribe(subscribe) = packet {
            let [high, low] = subscribe.pkid.to_be_bytes();
            let codes = vec![code; subscribe.filters.len()];
            let length = 3 + u8::try_from(codes.len())?;
            peer.send(&[&[0x90, length, high, low, 0], &codes[..]].concat())?;
        }
    }
}

#[test]
fn check_compares_the_brokers_limits_with_the_settings() -> Result<()> {
    // Properties of CONNACK (MQTT 5, 3.2.2.3).
    const RECEIVE_MAXIMUM_32: &[u8] = b"\x21\x00\x20";
    const MAXIMUM_PACKET_SIZE_256_MIB: &[u8] = b"\x27\x10\x00\x00\x00";
    const SESSION_EXPIRY_10_S: &[u8] = b"\x11\x00\x00\x00\x0A";
    const NO_SHARED_SUBSCRIPTIONS: &[u8] = b"\x2A\x00";
    // Reason codes of SUBACK; 0 and 1 are the granted QoS.
    const NOT_AUTHORIZED: u8 = 0x87;
    const SHARED_SUBSCRIPTIONS_NOT_SUPPORTED: u8 = 0x9E;
    let world = unmigrated("check_terms")?;
    // Returns settings for a broker with these CONNACK properties and this code in each SUBACK.
    let settings_for = |properties: &'static [u8], code: u8| -> Result<Settings> {
        let broker = ScriptedBroker::start(move |peer| accept_client(peer, properties, code))?;
        Ok(world.settings.clone().with("MQTT__URL", format!("mqtt://127.0.0.1:{}", broker.port)))
    };
    expect_finding(
        &settings_for(RECEIVE_MAXIMUM_32, 1)?,
        &[],
        "window",
        "warning",
        "in EMQX set mqtt.max_inflight = 32000",
    )?;
    let one_connection = settings_for(RECEIVE_MAXIMUM_32, 1)?.with("MQTT__CONNECTIONS", "1");
    expect_finding(&one_connection, &[], "window", "error", "at most about 160 messages/s")?;
    let small_window = settings_for(b"", 1)?.with("LAB__RECEIVE_MAXIMUM", "100");
    expect_finding(
        &small_window,
        &[],
        "window",
        "warning",
        "set mqtt.connections = \"auto\", or to 150 (64 at most)",
    )?;
    expect_finding(
        &settings_for(MAXIMUM_PACKET_SIZE_256_MIB, 1)?,
        &[],
        "packet size",
        "warning",
        "EMQX: mqtt.max_packet_size = 1048576B",
    )?;
    expect_finding(
        &settings_for(SESSION_EXPIRY_10_S, 1)?,
        &[],
        "session expiry",
        "error",
        "mqtt.max_session_expiry_interval",
    )?;
    expect_finding(
        &settings_for(NO_SHARED_SUBSCRIPTIONS, 1)?,
        &[],
        "subscription",
        "error",
        "EMQX: mqtt.shared_subscription = true",
    )?;
    expect_finding(
        &settings_for(b"", NOT_AUTHORIZED)?,
        &[],
        "subscription",
        "error",
        "allow it: EMQX acl.conf",
    )?;
    expect_finding(
        &settings_for(b"", SHARED_SUBSCRIPTIONS_NOT_SUPPORTED)?,
        &[],
        "subscription",
        "error",
        "EMQX: mqtt.shared_subscription = true",
    )?;
    expect_finding(
        &settings_for(b"", 0)?,
        &[],
        "subscription",
        "error",
        "EMQX: mqtt.max_qos_allowed",
    )?;
    let with_counters = |code| {
        Ok::<_, anyhow::Error>(settings_for(b"", code)?.with("MQTT__BROKER_METRICS", "true"))
    };
    expect_finding(
        &with_counters(1)?,
        &[],
        "broker metrics",
        "ok",
        "$SYS/brokers/+/metrics/# granted",
    )?;
    expect_finding(&with_counters(1)?, &[], "queue drops", "ok", "milepost_broker_dropped_total")?;
    expect_finding(
        &settings_for(b"", 1)?,
        &[],
        "queue drops",
        "ok",
        "set mqtt.broker_metrics = true",
    )?;
    expect_finding(
        &with_counters(NOT_AUTHORIZED)?,
        &[],
        "queue drops",
        "ok",
        "the line \"broker metrics\" says why",
    )?;
    expect_finding(
        &with_counters(NOT_AUTHORIZED)?,
        &[],
        "broker metrics",
        "warning",
        "mqtt.broker_metrics = false",
    )
}

/// A CONNACK that refuses the client: "Server busy".
const CONNACK_BUSY: [u8; 5] = [0x20, 3, 0, 0x89, 0];

/// The broker accepts only the second connection of each client id, and refuses all others. EMQX
/// behaves similarly: it refuses a client id until it has cleaned up the former connection of this
/// id.
#[test]
fn busy_broker_is_retried_and_does_not_fail_a_check() -> Result<()> {
    let world = unmigrated("check_busy")?;
    let seen = Mutex::new(BTreeMap::<String, u32>::new());
    let broker = ScriptedBroker::start(move |peer| {
        let attempt = {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            let attempts = seen.entry(peer.client_id()?).or_default();
            *attempts += 1;
            *attempts
        };
        if attempt == 2 { accept_client(peer, b"", 1) } else { peer.send(&CONNACK_BUSY) }
    })?;
    let settings =
        world.settings.clone().with("MQTT__URL", format!("mqtt://127.0.0.1:{}", broker.port));
    for settings in [&settings, &settings.clone().with("MQTT__BROKER_METRICS", "true")] {
        let (_, lines) = check(settings, &[])?;
        for check_name in ["broker", "subscription", "queue drops", "message", "cluster"] {
            let (level, text) =
                lines.get(check_name).with_context(|| format!("no {check_name} in {lines:#?}"))?;
            ensure!(level == "ok", "{check_name}: {text}");
        }
        ensure!(!lines.contains_key("login"), "{lines:#?}");
        ensure!(lines.get("broker metrics").is_none_or(|(level, _)| level == "ok"), "{lines:#?}");
    }
    Ok(())
}

#[test]
fn broker_that_stays_busy_is_not_reported_as_a_login_error() -> Result<()> {
    let world = unmigrated("check_always_busy")?;
    let broker = ScriptedBroker::start(|peer| peer.send(&CONNACK_BUSY))?;
    let settings =
        world.settings.clone().with("MQTT__URL", format!("mqtt://127.0.0.1:{}", broker.port));
    expect_finding(&settings, &[], "broker", "error", "the server is busy; see the broker's log")
}

/// Starts a broker that publishes its nodes' names as retained messages, as EMQX does.
fn broker_of_two_nodes() -> Result<ScriptedBroker> {
    ScriptedBroker::start(|peer| {
        loop {
            let packet = peer.receive()?;
            if let Packet::Connect(..) = packet {
                peer.send(&[0x20, 3, 0, 0, 0])?;
            } else if let Packet::Subscribe(subscribe) = packet {
                let [high, low] = subscribe.pkid.to_be_bytes();
                peer.send(&[0x90, 4, high, low, 0, 1])?;
                if subscribe.filters[0].path == "$SYS/brokers" {
                    peer.send(b"\x31\x17\x00\x0c$SYS/brokers\x00emqx@a,b")?;
                }
            }
        }
    })
}

#[test]
fn check_names_nodes_missing_from_the_url() -> Result<()> {
    let world = unmigrated("check_lacks_nodes")?;
    let broker = broker_of_two_nodes()?;
    let settings =
        world.settings.clone().with("MQTT__URL", format!("mqtt://127.0.0.1:{}", broker.port));
    let words =
        "2 nodes, of which milepost reaches 1: emqx@a b; set mqtt.url to a URL for each node";
    expect_finding(&settings, &[], "cluster", "warning", words)?;
    expect_finding(&settings, &[], "strategy", "ok", "emqx ctl conf show mqtt")
}

#[test]
fn run_warns_once_about_nodes_missing_from_the_url() -> Result<()> {
    let world = unmigrated("run_lacks_nodes")?;
    let broker = broker_of_two_nodes()?;
    let url = format!("mqtt://127.0.0.1:{}", broker.port);
    let milepost = world.settings.clone().with("MQTT__URL", url).start()?;
    lab_stack::wait_until("run names the nodes", SOON, || {
        Ok(milepost.process.log()?.contains("shared_subscription_strategy = local"))
    })?;
    let log = milepost.process.log()?;
    let warned: Vec<_> = log.lines().filter(|line| line.contains("of which mqtt.url")).collect();
    let [line] = warned[..] else { anyhow::bail!("{log}") };
    ensure!(
        line.contains("WARN")
            && line.contains("2 nodes, of which mqtt.url has 1: emqx@a b")
            && line.contains("a URL for each node"),
        "{line}"
    );
    Ok(())
}

/// By default, nginx accepts request bodies of up to 1 MiB.
#[test]
fn check_measures_the_size_that_a_proxy_refuses() -> Result<()> {
    let world = world("check_size")?;
    let proxy = |bytes_max: usize| {
        scripted_clickhouse_with_size(world.engine.server.port, move |statement, bytes| {
            let is_size_probe = statement.contains("JSONEachRow");
            if is_size_probe && bytes > bytes_max {
                return ProxyAction::Answer(413, "<html>413 Request Entity Too Large".to_owned());
            }
            ProxyAction::Pass
        })
    };
    let with_url = |url: String| world.settings.clone().with("CLICKHOUSE__URL", url);
    let limited_to = |bytes_max: usize| proxy(bytes_max).map(with_url);
    expect_finding(&limited_to(8 << 20)?, &[], "insert size", "ok", "takes an insert of 8 MiB")?;
    expect_finding(
        &limited_to(1 << 20)?,
        &[],
        "insert size",
        "warning",
        "takes 1024 KiB: milepost splits",
    )?;
    expect_finding(
        &limited_to(1 << 20)?,
        &[],
        "insert size",
        "warning",
        "nginx: client_max_body_size 8m",
    )?;
    expect_finding(
        &limited_to(64 << 10)?,
        &[],
        "insert size",
        "error",
        "takes 64 KiB: a single row",
    )?;
    // The second endpoint is checked even if the first one does not answer.
    let urls = format!("http://127.0.0.1:1,{}", proxy(64 << 10)?);
    expect_finding(
        &with_url(urls).with("CLICKHOUSE__REPLICATION", "macros"),
        &[],
        "insert size",
        "error",
        "takes 64 KiB: a single row",
    )?;
    assert_eq!(world.query("SELECT count() FROM {db}.positions")?, "0");
    let parts = "SELECT count() FROM system.parts WHERE database = '{db}' AND table = 'positions'";
    assert_eq!(world.query(parts)?, "0");
    Ok(())
}

/// Some managed brokers close the connection of a client that subscribes below `$SYS`.
#[test]
fn broker_that_closes_on_a_sys_subscription_does_not_fail_a_check() -> Result<()> {
    let world = unmigrated("check_hangs_up")?;
    let broker = ScriptedBroker::start(|peer| {
        loop {
            let packet = peer.receive()?;
            if let Packet::Connect(..) = packet {
                peer.send(&[0x20, 3, 0, 0, 0])?;
            } else if let Packet::Subscribe(subscribe) = packet {
                if subscribe.filters[0].path.starts_with("$SYS") {
                    return Ok(());
                }
                let [high, low] = subscribe.pkid.to_be_bytes();
                peer.send(&[0x90, 4, high, low, 0, 1])?;
            }
        }
    })?;
    let settings =
        world.settings.clone().with("MQTT__URL", format!("mqtt://127.0.0.1:{}", broker.port));
    expect_finding(&settings, &[], "queue drops", "ok", "not visible here")?;
    expect_finding(
        &settings,
        &[],
        "cluster",
        "ok",
        "whether the broker has more is not visible here",
    )?;
    let with_counters = settings.with("MQTT__BROKER_METRICS", "true");
    expect_finding(&with_counters, &[], "broker metrics", "warning", "EMQX acl.conf")
}

#[test]
fn check_names_the_statement_that_repairs_clickhouse() -> Result<()> {
    let world = world("check_tables")?;
    // `check` does not judge the settings of a table that the operator created.
    world.query(
        "CREATE MATERIALIZED VIEW {db}.my_mv ENGINE = MergeTree ORDER BY ts AS \
         SELECT driver_id, ts FROM {db}.positions",
    )?;
    for check_name in ["deduplication", "fsync"] {
        expect_finding(&world.settings, &[], check_name, "ok", "")?;
    }
    let expect_error = |check_name: &str, words: &str| {
        expect_finding(&world.settings, &[], check_name, "error", words)
    };
    world.query(
        "ALTER TABLE {db}.positions MODIFY SETTING non_replicated_deduplication_window = 0",
    )?;
    expect_error(
        "deduplication",
        "ALTER TABLE check_tables.positions MODIFY SETTING non_replicated_deduplication_window = \
         10000",
    )?;
    world.query(
        "ALTER TABLE {db}.positions MODIFY SETTING non_replicated_deduplication_window = 10000",
    )?;
    world.query("ALTER TABLE {db}.rejects MODIFY SETTING fsync_after_insert = 0")?;
    expect_error(
        "fsync",
        "ALTER TABLE check_tables.rejects MODIFY SETTING fsync_after_insert = 1",
    )?;
    let milepost = world.settings.run()?;
    lab_stack::wait_until("the start logs the risk", crate::world::SOON, || {
        Ok(milepost.process.log()?.contains("acknowledged rows do not survive a power failure"))
    })?;
    drop(milepost);
    world.query("ALTER TABLE {db}.rejects MODIFY SETTING fsync_after_insert = 1")?;
    world.query("ALTER TABLE {db}.rejects DROP COLUMN detail")?;
    expect_error("columns", "rejects.detail is missing; run ALTER TABLE")?;
    expect_finding(&world.settings, &[], "views", "ok", "all views of check_tables_ask exist")?;
    world.query("DROP VIEW {db}_ask.near")?;
    expect_finding(&world.settings, &[], "views", "warning", "near missing in check_tables_ask")?;
    world.query("RENAME TABLE {db}.last_positions_mv TO {db}.elsewhere")?;
    expect_error("tables", "last_positions_mv missing in check_tables")?;
    world.query("DROP DATABASE {db}")?;
    expect_error("migrations", "run milepost migrate as a user that may create tables")
}

/// Starts a proxy in front of the engine. The proxy replaces each statement that contains `words`.
/// Returns settings with the proxy's URL.
fn with_replaced_statement(
    world: &World,
    words: &'static str,
    replacement: &'static str,
) -> Result<Settings> {
    let url = scripted_clickhouse(world.engine.server.port, move |statement| {
        if statement.contains(words) {
            ProxyAction::Replace(replacement.to_owned())
        } else {
            ProxyAction::Pass
        }
    })?;
    Ok(world.settings.clone().with("CLICKHOUSE__URL", url))
}

#[test]
fn check_names_the_setting_for_each_clickhouse_fault() -> Result<()> {
    let world = world("check_server")?;
    let old = "SELECT '23.3.1.2823', toString(toUnixTimestamp64Milli(now64(3)))";
    expect_finding(
        &with_replaced_statement(&world, "version()", old)?,
        &[],
        "version",
        "error",
        "update ClickHouse to",
    )?;
    let behind = "SELECT version(), toString(toUnixTimestamp64Milli(now64(3)) - 600000)";
    expect_finding(
        &with_replaced_statement(&world, "version()", behind)?,
        &[],
        "clocks",
        "error",
        "synchronise both hosts with NTP",
    )?;
    let ahead = "SELECT version(), toString(toUnixTimestamp64Milli(now64(3)) + 60000)";
    expect_finding(
        &with_replaced_statement(&world, "version()", ahead)?,
        &[],
        "clocks",
        "warning",
        "ahead of this host; synchronise both hosts",
    )?;
    let no_grant = with_replaced_statement(
        &world,
        "CHECK GRANT INSERT ON check_server.positions",
        "SELECT 0",
    )?;
    expect_finding(
        &no_grant,
        &[],
        "grants",
        "error",
        "GRANT INSERT ON check_server.positions TO default",
    )?;
    let profile = "SELECT 'insert_deduplicate', '0'";
    let profile = with_replaced_statement(&world, "system.settings", profile)?;
    expect_finding(
        &profile,
        &[],
        "profile",
        "error",
        "in the profile of this user: insert_deduplicate = 1",
    )?;
    let denied = scripted_clickhouse(world.engine.server.port, |_| {
        ProxyAction::Answer(
            403,
            "Code: 497. DB::Exception: milepost: Not enough privileges.".to_owned(),
        )
    })?;
    let denied = world.settings.clone().with("CLICKHOUSE__URL", denied);
    expect_finding(&denied, &[], "clickhouse", "error", "grant clickhouse.user what it lacks")?;

    let ca = Authority::new("ca")?;
    let https = TlsFront::start(&ca.sign(&["localhost"])?, world.engine.server.port)?;
    let at = |scheme: &str| {
        world
            .settings
            .clone()
            .with("CLICKHOUSE__URL", format!("{scheme}://localhost:{}", https.port))
    };
    expect_finding(&at("http"), &[], "clickhouse", "error", "use https:// in clickhouse.url")?;
    expect_finding(
        &at("https"),
        &[],
        "clickhouse",
        "error",
        "set clickhouse.ca_file to the CA that signed it",
    )?;
    let closed_port = world
        .settings
        .clone()
        .with("CLICKHOUSE__URL", format!("http://localhost:{}", free_port()?));
    expect_finding(
        &closed_port,
        &[],
        "clickhouse",
        "error",
        "set clickhouse.url to ClickHouse's HTTP port",
    )
}

/// A configuration of a cluster, and the line of `milepost check` that must report it.
struct ClusterCase {
    level: &'static str,
    check_name: &'static str,
    words: &'static str,
    settings: &'static [(&'static str, &'static str)],
    /// SQL condition on `system.tables`. The proxy reports a replicated engine for the MergeTree
    /// tables that match.
    replicated: &'static str,
    /// Row of `system.replicas` that the proxy reports: read-only, session expired, delay in
    /// seconds, queue size, replicas, active replicas.
    replica: &'static str,
    /// The proxy refuses statements that contain this string, as a server does for lack of a grant.
    /// Empty: the proxy refuses no statement.
    refused: &'static str,
}

const MACROS: &[(&str, &str)] = &[("REPLICATION", "macros")];
/// A correctly configured cluster.
const HEALTHY: ClusterCase = ClusterCase {
    level: "ok",
    check_name: "replicas",
    words: "3 of 3 live",
    settings: MACROS,
    replicated: "1",
    replica: "0, 0, 0, 0, 3, 3",
    refused: "",
};

/// Cases that differ from [`HEALTHY`] in the given fields.
const CLUSTER_CASES: [ClusterCase; 18] = [
    HEALTHY,
    ClusterCase { check_name: "insert quorum", words: "on more than one replica", ..HEALTHY },
    ClusterCase {
        level: "error",
        check_name: "insert quorum",
        words: "clickhouse.replication = \"macros\"",
        settings: &[],
        ..HEALTHY
    },
    ClusterCase {
        level: "error",
        check_name: "insert quorum",
        words: "clickhouse.insert_quorum = \"auto\"",
        settings: &[("REPLICATION", "macros"), ("INSERT_QUORUM", "0")],
        ..HEALTHY
    },
    ClusterCase {
        level: "error",
        check_name: "replication",
        words: "a quorum has no effect",
        replicated: "0",
        ..HEALTHY
    },
    ClusterCase {
        level: "error",
        check_name: "replication",
        words: "rejects: on one server alone",
        replicated: "name != 'rejects'",
        ..HEALTHY
    },
    ClusterCase {
        level: "error",
        words: "fewer than the 2",
        replica: "0, 0, 0, 0, 2, 1",
        ..HEALTHY
    },
    ClusterCase { level: "error", words: "another server", replica: "0, 0, 0, 0, 1, 1", ..HEALTHY },
    ClusterCase {
        level: "warning",
        words: "losing one stops inserts",
        replica: "0, 0, 0, 0, 2, 2",
        ..HEALTHY
    },
    ClusterCase {
        level: "warning",
        words: "start the servers that are down",
        replica: "0, 0, 0, 0, 3, 2",
        ..HEALTHY
    },
    ClusterCase {
        level: "error",
        check_name: "read-only replica",
        words: "SYSTEM RESTART REPLICA",
        replica: "1, 0, 0, 0, 3, 3",
        ..HEALTHY
    },
    ClusterCase {
        level: "error",
        check_name: "Keeper",
        words: "<zookeeper>",
        replica: "1, 1, 0, 0, 3, 3",
        ..HEALTHY
    },
    ClusterCase {
        level: "warning",
        check_name: "replica lag",
        words: "system.replication_queue",
        replica: "0, 0, 61, 9, 3, 3",
        ..HEALTHY
    },
    ClusterCase {
        level: "warning",
        check_name: "token window",
        words: "ALTER TABLE check_replicas.rejects",
        ..HEALTHY
    },
    ClusterCase {
        level: "error",
        check_name: "shards",
        words: "created without clickhouse.shards",
        settings: &[("REPLICATION", "macros"), ("CLUSTER", "c"), ("SHARDS", "true")],
        ..HEALTHY
    },
    ClusterCase {
        level: "error",
        check_name: "shards",
        words: "the cluster has 2 shards, but the view fixes shows only one",
        settings: &[("REPLICATION", "macros"), ("CLUSTER", "c")],
        ..HEALTHY
    },
    ClusterCase {
        level: "warning",
        words: "GRANT SELECT ON system.replicas",
        refused: "FROM system.replicas",
        ..HEALTHY
    },
    ClusterCase {
        level: "warning",
        check_name: "shards",
        words: "GRANT SELECT ON system.clusters",
        settings: &[("REPLICATION", "macros"), ("CLUSTER", "c")],
        refused: "FROM system.clusters",
        ..HEALTHY
    },
];

/// Starts a proxy in front of the engine. The proxy reports the tables, replicas and clusters of
/// `case`. Returns settings with the proxy's URL.
fn settings_for_cluster(world: &World, case: &'static ClusterCase) -> Result<Settings> {
    let url = scripted_clickhouse(world.engine.server.port, move |statement| {
        if !case.refused.is_empty() && statement.contains(case.refused) {
            let why = "Code: 497. DB::Exception: milepost: Not enough privileges.";
            ProxyAction::Answer(500, why.to_owned())
        } else if statement.contains("engine_full FROM system.tables") {
            let is_replicated = format!("engine LIKE '%MergeTree' AND {}", case.replicated);
            let reported =
                format!("if({is_replicated}, concat('Replicated', engine), engine), engine_full");
            ProxyAction::Replace(statement.replace("engine, engine_full", &reported))
        } else if statement.contains("FROM system.replicas") {
            ProxyAction::Replace(format!("SELECT 'positions', {}, ''", case.replica))
        } else if statement.contains("FROM system.clusters") {
            ProxyAction::Replace("SELECT number + 1, 1 FROM numbers(2)".to_owned())
        } else {
            ProxyAction::Pass
        }
    })?;
    let settings = world.settings.clone().with("CLICKHOUSE__URL", url);
    let with = |settings: Settings, (key, value): &(&str, &str)| {
        settings.with(&format!("CLICKHOUSE__{key}"), *value)
    };
    Ok(case.settings.iter().fold(settings, with))
}

#[test]
fn check_names_the_setting_of_each_cluster_misconfiguration() -> Result<()> {
    let world = world("check_replicas")?;
    for case in &CLUSTER_CASES {
        expect_finding(
            &settings_for_cluster(&world, case)?,
            &[],
            case.check_name,
            case.level,
            case.words,
        )?;
    }
    Ok(())
}

#[test]
fn check_reports_many_small_inserts_with_the_setting() -> Result<()> {
    let world = world("check_inserts")?;
    let url = scripted_clickhouse(world.engine.server.port, |statement| {
        if statement.contains("level = 0") {
            // 4,800 inserts of 2,400,000 rows in the last five minutes.
            ProxyAction::Answer(200, "4800\t2400000\n".to_owned())
        } else {
            ProxyAction::Pass
        }
    })?;
    let settings = world.settings.clone().with("CLICKHOUSE__URL", url);
    expect_finding(
        &settings,
        &[],
        "inserts",
        "warning",
        "16.0 a second, with 500 rows on average",
    )?;
    expect_finding(&settings, &[], "inserts", "warning", "batch.members_age_max")?;
    expect_finding(&world.settings, &[], "inserts", "ok", "none in the last 5 minutes")
}

#[test]
fn check_reports_an_unusable_spool() -> Result<()> {
    let folder = lab_stack::folder()?;
    // `check` checks the disk even if neither the broker nor ClickHouse is reachable.
    let with = |dir: &str| settings(folder.path(), 1, "http://127.0.0.1:1").with("SPOOL__DIR", dir);
    expect_finding(&with("/dev/shm/milepost-check"), &[], "spool", "error", "is memory")?;
    ensure!(
        !Path::new("/dev/shm/milepost-check").exists(),
        "a check must not create the directory"
    );
    expect_finding(
        &with("/proc/milepost"),
        &[],
        "spool",
        "error",
        "to a directory that this user can write to",
    )?;
    let large = with("spool").with("SPOOL__BYTES_MAX", "4000000000000");
    expect_finding(&large, &[], "spool space", "error", "lower spool.bytes_max")?;
    expect_finding(&with("spool"), &[], "spool space", "ok", "bytes are free")
}
