//! Tests `milepost events`: events of drivers in a table, as retained messages and as posts to a
//! webhook.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use lab_stack::{Process, Settings, free_port, wait_until};
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::{Client, Event, Incoming, MqttOptions};
use serde_json::{Value, json};

use crate::secure::{ProxyAction, scripted_clickhouse};
use crate::world::{SOON, World, publish_with_retain, world};

/// A GeoJSON file with one fence, whose name contains a slash.
pub const YARD: &str = r#"{"type":"Feature","properties":{"name":"yard/1"},"geometry":{"type":"Polygon",
    "coordinates":[[[13.0,52.0],[13.1,52.0],[13.1,52.1],[13.0,52.1],[13.0,52.0]]]}}"#;
/// A longitude inside [`YARD`], at latitude 52.05.
const INSIDE: f64 = 13.05;
/// A longitude outside [`YARD`].
const OUTSIDE: f64 = 13.15;

/// A web service that answers with `status`, and records the posts.
struct Webhook {
    port: u16,
    /// HTTP status of the answers; 0: the service reads the post and never answers.
    status: Arc<AtomicU16>,
    /// If true, an answer with status 200 has a body that never ends.
    endless: Arc<AtomicBool>,
    /// Number of posts that were answered with status 200, by event id.
    posts: Arc<Mutex<BTreeMap<String, usize>>>,
    /// Values of the header `Authorization`.
    tokens: Arc<Mutex<Vec<String>>>,
}

impl Webhook {
    fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let (status, posts, tokens) =
            (Arc::new(AtomicU16::new(200)), Arc::default(), Arc::default());
        let hook = Self { port, status, endless: Arc::default(), posts, tokens };
        let (status, posts, tokens) =
            (Arc::clone(&hook.status), Arc::clone(&hook.posts), Arc::clone(&hook.tokens));
        let endless = Arc::clone(&hook.endless);
        std::thread::spawn(move || {
            let mut open_connections = Vec::new();
            for stream in listener.incoming().map_while(Result::ok) {
                let mut reader = BufReader::new(stream);
                let (mut length, mut line) = (0, String::new());
                while reader.read_line(&mut line).is_ok_and(|read| read > 0) && line.trim() != "" {
                    let (name, value) = line.split_once(':').unwrap_or((&line, ""));
                    match name.to_ascii_lowercase().as_str() {
                        "content-length" => length = value.trim().parse().unwrap_or(0),
                        "authorization" => tokens
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .push(value.trim().to_owned()),
                        _ => {}
                    }
                    line.clear();
                }
                let mut body = vec![0; length];
                if reader.read_exact(&mut body).is_err() {
                    continue;
                }
                let answer = status.load(Ordering::SeqCst);
                if answer == 200 {
                    let event: Value = serde_json::from_slice(&body).expect("the body is an event");
                    let id = event["id"].as_str().expect("an event has an id").to_owned();
                    *posts.lock().unwrap_or_else(PoisonError::into_inner).entry(id).or_default() +=
                        1;
                }
                if answer == 0 {
                    open_connections.push(reader);
                    continue;
                }
                let is_endless = answer == 200 && endless.load(Ordering::SeqCst);
                let body =
                    if is_endless { "Transfer-Encoding: chunked" } else { "Content-Length: 0" };
                let head = format!("HTTP/1.1 {answer} x\r\n{body}\r\nConnection: close\r\n\r\n");
                let _ = reader.get_mut().write_all(head.as_bytes());
                if is_endless {
                    open_connections.push(reader);
                }
            }
        });
        Ok(hook)
    }

    fn has(&self, id: &str) -> bool {
        self.posts().contains_key(id)
    }

    fn posts(&self) -> BTreeMap<String, usize> {
        self.posts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Returns the broker's retained messages that match a filter.
pub fn retained(port: u16, filter: &str) -> Result<BTreeMap<String, Value>> {
    let options = MqttOptions::new(format!("looks-{}", fastrand::u32(..)), "127.0.0.1", port);
    let (client, mut connection) = Client::new(options, 8);
    client.subscribe(filter, QoS::AtLeastOnce)?;
    // The broker sends retained messages first, and then messages that are published after the
    // subscription. So the message on `end` shows that all retained messages have arrived.
    let end = format!("end/{}", fastrand::u32(..));
    client.subscribe(&end, QoS::AtLeastOnce)?;
    let mut messages = BTreeMap::new();
    let mut subscribed = 0;
    for event in connection.iter() {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the library has many other events")]
        match event? {
            Event::Incoming(Incoming::SubAck(_)) => {
                subscribed += 1;
                if subscribed == 2 {
                    client.publish(&end, QoS::AtLeastOnce, false, "end")?;
                }
            }
            Event::Incoming(Incoming::Publish(publish)) => {
                let topic = String::from_utf8(publish.topic.to_vec())?;
                if topic == end {
                    return Ok(messages);
                }
                if publish.payload.is_empty() {
                    messages.remove(&topic); // cleared during the read
                } else {
                    messages.insert(topic, serde_json::from_slice(&publish.payload)?);
                }
            }
            _ => {}
        }
    }
    anyhow::bail!("the broker closed the connection")
}

/// A running `milepost events`.
pub struct Watcher {
    pub process: Process,
    port: u16,
}

impl Watcher {
    /// Starts the process, and waits until it answers HTTP. `name` is the name of its log file.
    pub fn start(settings: &Settings, world: &World, name: &str) -> Result<Self> {
        let port = free_port()?;
        let settings = settings.clone().with("HTTP__LISTEN", format!("127.0.0.1:{port}"));
        let log = world.folder.path().join(format!("{name}.log"));
        let process = Process::start("milepost events", &mut settings.command(&["events"]), log)?;
        let mut watcher = Self { process, port };
        wait_until("/livez answers", SOON, || {
            watcher.process.ensure_alive()?;
            Ok(watcher.get("/livez").is_ok())
        })?;
        Ok(watcher)
    }

    /// Starts the process, and waits until it logs that it watches for events.
    pub fn start_watching(settings: &Settings, world: &World, name: &str) -> Result<Self> {
        let mut watcher = Self::start(settings, world, name)?;
        wait_until("the process watches", SOON, || {
            watcher.process.ensure_alive()?;
            Ok(watcher.process.log()?.contains("watching"))
        })?;
        Ok(watcher)
    }

    pub fn get(&self, path: &str) -> Result<String> {
        let mut stream = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

#[test]
fn event_is_stored_once_retained_and_posted_despite_crashes() -> Result<()> {
    let world = world("events")?;
    let yard = world.folder.path().join("yard.json");
    std::fs::write(&yard, YARD)?;
    let (code, printed) =
        world.settings.call(&["fences", "import", &yard.display().to_string()])?;
    ensure!(code == 0, "{printed}");
    let hook = Webhook::start()?;
    let token = world.folder.path().join("token");
    std::fs::write(&token, "s3cret\n")?;
    let settings = world
        .settings
        .clone()
        .with("EVENTS__FASTER_THAN", "27.78")
        .with("EVENTS__SILENT_FOR", "20s")
        .with("WEBHOOK__URL", format!("http://127.0.0.1:{}/hook?of=fleet", hook.port))
        .with("WEBHOOK__TOKEN_FILE", token.display().to_string());
    let mut milepost = world.settings.start()?;
    milepost.wait_until_ready()?;

    // Ten minutes ago, by the server's clock.
    let begin: i64 = world.query("SELECT toUnixTimestamp64Milli(now64(3)) - 600000")?.parse()?;
    // Returns a fix at `second`, in seconds after `begin`. `speed` is in m/s.
    let fix_at = |second: i64, lng: f64, speed: f64| {
        json!({"lat": 52.05, "lng": lng, "ts": begin + second * 1_000, "speed": speed}).to_string()
    };
    let publish = |driver: &str, payload: &str| {
        world.publish(&[(&*format!("drivers/{driver}/gps"), payload.as_bytes())])
    };
    let wait_for_count = |condition: &str, expected: &str| {
        world.wait_for(
            &format!("SELECT count() FROM {{db}}.events FINAL WHERE {condition}"),
            expected,
            SOON,
        )
    };

    let unreachable = settings.clone().with("CLICKHOUSE__URL", "http://127.0.0.1:1");
    let waiting = Watcher::start(&unreachable, &world, "waiting")?;
    wait_until("/readyz names ClickHouse", SOON, || {
        Ok(waiting.get("/readyz")?.contains("\nclickhouse: "))
    })?;
    drop(waiting);
    let mut first = Watcher::start_watching(&settings, &world, "first")?;
    publish("d1", &fix_at(0, OUTSIDE, 10.0))?;
    // The drive from OUTSIDE to INSIDE takes 100 s: a faster drive would count as a jump. The first
    // fix inside is sent twice, and the fix of second 50 is late.
    for (second, lng) in [(100, INSIDE), (100, INSIDE), (50, 13.1), (110, INSIDE)] {
        publish("d1", &fix_at(second, lng, 10.0))?;
    }
    wait_for_count("driver_id = 'd1' AND kind = 'entered' AND fence = 'yard/1'", "1")?;
    let entered = format!("d1/entered/{}/0/yard/1", begin + 100_000);
    wait_until("the event is posted", SOON, || Ok(hook.has(&entered)))?;
    wait_for_count("kind = 'entered' AND mqtt_at IS NOT NULL AND webhook_at IS NOT NULL", "1")?;
    let states = retained(world.broker.port, "fleet/events/#")?;
    let topic = "fleet/events/d1/fence/yard%2F1";
    let expected = json!({
        "id": entered, "driver_id": "d1", "event": "entered", "fence": "yard/1",
        "ts": begin + 100_000, "seq": 0, "lat": 52.05, "lng": INSIDE, "speed": 10.0,
    });
    assert_eq!(states.get(topic), Some(&expected), "{states:?}");
    assert!(
        hook.tokens
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .all(|token| token == "Bearer s3cret")
    );
    assert!(first.get("/metrics")?.contains("milepost_events_total{kind=\"entered\"} 1"));
    assert!(first.get("/readyz")?.starts_with("HTTP/1.1 200 "), "{}", first.get("/readyz")?);

    // The webhook is down. The process is killed when only the table and the broker have the event.
    hook.status.store(503, Ordering::SeqCst);
    publish("d1", &fix_at(210, OUTSIDE, 10.0))?;
    publish("d1", &fix_at(220, OUTSIDE, 10.0))?;
    wait_for_count("kind = 'left' AND mqtt_at IS NOT NULL AND webhook_at IS NULL", "1")?;
    wait_until("/readyz names the webhook", SOON, || {
        Ok(first.get("/readyz")?.contains("webhook: it answers 503"))
    })?;
    first.process.kill()?;
    // While no `milepost events` runs, the driver enters, leaves and drives too fast. The fixes are
    // in one message, so that one insert contains all of them.
    let fixes = [
        (310, INSIDE, 30.0),
        (320, INSIDE, 30.0),
        (410, OUTSIDE, 30.0),
        (415, OUTSIDE, 27.0),
        (420, OUTSIDE, 20.0),
    ];
    let fixes: Vec<Value> = fixes
        .iter()
        .map(|(second, lng, speed)| serde_json::from_str(&fix_at(*second, *lng, *speed)))
        .collect::<Result<_, _>>()?;
    publish("d1", &Value::from(fixes).to_string())?;
    world.wait_for("SELECT count() FROM {db}.fixes WHERE driver_id = 'd1'", "11", SOON)?;
    hook.status.store(200, Ordering::SeqCst);
    let mut second = Watcher::start_watching(&settings, &world, "second")?;
    for (kind, seconds) in
        [("left", 210), ("entered", 310), ("left", 410), ("fast", 310), ("slow", 420)]
    {
        let id = format!("d1/{kind}/{}/0", begin + seconds * 1_000);
        // The id of an event ends with a fence only if the event is about the fence.
        let id = if ["fast", "slow"].contains(&kind) { id } else { format!("{id}/yard/1") };
        wait_until(&format!("{id} is posted"), SOON, || Ok(hook.has(&id)))?;
    }
    // The table has exactly the six events of the drives: no duplicate, and no other event.
    wait_for_count("kind IN ('entered', 'left', 'fast', 'slow', 'jump')", "6")?;
    wait_for_count("webhook_at IS NULL AND kind NOT IN ('silent', 'heard')", "0")?;

    // The driver is silent, and then sends a fix that is older than `events.silent_for`. So a
    // second event `silent` may follow the event `heard` at once.
    wait_for_count(
        &format!("kind = 'silent' AND toUnixTimestamp64Milli(ts) = {}", begin + 420_000),
        "1",
    )?;
    publish("d1", &fix_at(500, OUTSIDE, 10.0))?;
    wait_until("the driver is heard again", SOON, || {
        let states = retained(world.broker.port, "fleet/events/d1/contact")?;
        Ok(states.values().any(|event| {
            event["event"] == "heard"
                || event["event"] == "silent" && event["ts"] == begin + 500_000
        }))
    })?;

    // The driver could reach and leave this fix only at an impossible speed.
    publish("d1", &fix_at(510, 14.15, 10.0))?;
    publish("d1", &fix_at(520, OUTSIDE, 10.0))?;
    wait_for_count(
        &format!("kind = 'jump' AND toUnixTimestamp64Milli(ts) = {}", begin + 510_000),
        "1",
    )?;
    wait_for_count("kind IN ('entered', 'left')", "4")?;

    // The retained states of an erased driver are cleared.
    world.query("INSERT INTO {db}.erased (driver_id) VALUES ('d1')")?;
    wait_until("no topic has a state of d1", SOON, || {
        Ok(retained(world.broker.port, "fleet/events/d1/#")?.is_empty())
    })?;
    second.process.signal("TERM")?;
    ensure!(second.process.wait(SOON)?.success(), "{}", second.process.log()?);
    assert_eq!(milepost.terminate(SOON)?, 0);
    Ok(())
}

#[test]
fn webhook_gets_no_event_of_a_driver_erased_meanwhile() -> Result<()> {
    let world = world("events_hook")?;
    world.query(
        "INSERT INTO {db}.fences (name, polygons) VALUES ('yard', [[[(13, 52), (13.1, 52), (13.1, \
         52.1), (13, 52.1)]]])",
    )?;
    let hook = Webhook::start()?;
    hook.status.store(503, Ordering::SeqCst);
    hook.endless.store(true, Ordering::SeqCst);
    let settings =
        world.settings.clone().with("WEBHOOK__URL", format!("http://127.0.0.1:{}/hook", hook.port));
    let _watcher = Watcher::start_watching(&settings, &world, "hook")?;
    let enter = |driver: &str| {
        world.query(&format!(
            "INSERT INTO {{db}}.positions (driver_id, ts, lat_e7, lng_e7) \
             SELECT '{driver}', now64(3) - number, 520500000, 130500000 FROM numbers(2)"
        ))
    };
    let wait_for_count = |condition: &str, expected: &str| {
        world.wait_for(
            &format!("SELECT count() FROM {{db}}.events FINAL WHERE {condition}"),
            expected,
            SOON,
        )
    };
    enter("d1")?;
    wait_for_count("driver_id = 'd1'", "1")?;
    enter("d2")?;
    wait_for_count("driver_id = 'd2'", "1")?;
    world.query("INSERT INTO {db}.erased (driver_id) VALUES ('d1')")?;
    wait_until("the topics of d1 are cleared", SOON, || {
        Ok(retained(world.broker.port, "fleet/events/d1/#")?.is_empty())
    })?;
    hook.status.store(200, Ordering::SeqCst);
    wait_for_count("driver_id = 'd2' AND webhook_at IS NOT NULL", "1")?;
    let posts = hook.posts();
    assert!(posts.iter().all(|(id, times)| id.starts_with("d2/") && *times == 1), "{posts:?}");
    Ok(())
}

/// At the start, one query takes 20 s. Then the webhook does not answer. Later, the query for
/// fences gets no answer.
#[test]
fn hung_service_is_named_and_delays_no_other_service() -> Result<()> {
    let world = world("events_hang")?;
    world.query(
        "INSERT INTO {db}.fences (name, polygons) VALUES ('yard', [[[(13, 52), (13.1, 52), (13.1, \
         52.1), (13, 52.1)]]])",
    )?;
    let fences_hang = Arc::new(AtomicBool::new(false));
    let is_hanging = Arc::clone(&fences_hang);
    let url = scripted_clickhouse(world.engine.server.port, move |statement| {
        if statement.contains("LIMIT 3 BY driver_id") {
            // Longer than the timeout of all other queries, 15 s.
            std::thread::sleep(Duration::from_secs(20));
        }
        let hangs = statement.contains(".fences FINAL") && is_hanging.load(Ordering::SeqCst);
        if hangs { ProxyAction::NoAnswer } else { ProxyAction::Pass }
    })?;
    let hook = Webhook::start()?;
    hook.status.store(0, Ordering::SeqCst);
    let settings =
        world.settings.clone().with("WEBHOOK__URL", format!("http://127.0.0.1:{}/hook", hook.port));
    let watcher = Watcher::start_watching(&settings.with("CLICKHOUSE__URL", url), &world, "hang")?;
    let log = watcher.process.log()?;
    assert!(
        !log.contains("waiting for ClickHouse"),
        "a slow query at the start must not count as an outage: {log}"
    );
    let wait_for_readyz =
        |words: &str| wait_until(words, SOON, || Ok(watcher.get("/readyz")?.contains(words)));
    world.query(
        "INSERT INTO {db}.positions (driver_id, ts, lat_e7, lng_e7) \
         SELECT 'd1', now64(3) - number, 520500000, 130500000 FROM numbers(2)",
    )?;
    wait_for_readyz("webhook: no answer within 10s")?;
    world.wait_for(
        "SELECT countIf(mqtt_at > 0), countIf(webhook_at > 0) FROM {db}.events FINAL",
        "1\t0",
        SOON,
    )?;
    fences_hang.store(true, Ordering::SeqCst);
    wait_for_readyz("clickhouse: reading fences failed")?;
    fences_hang.store(false, Ordering::SeqCst);
    hook.status.store(200, Ordering::SeqCst);
    world.wait_for("SELECT countIf(webhook_at > 0) FROM {db}.events FINAL", "1", SOON)?;
    wait_for_readyz("200 OK")
}

#[test]
fn wrong_fix_after_inaccurate_fixes_causes_no_crossing() -> Result<()> {
    let world = world("events_jump")?;
    world.query(
        "INSERT INTO {db}.fences (name, polygons) VALUES ('depot', [[[(13, 52), (13.1, 52), (13.1, \
         52.1), (13, 52.1)]]]), ('broken', [[[(nan, 52), (13.1, 52), (13.1, 52.1)]]])",
    )?;
    // Some minutes ago, the driver sent a good fix in the depot, three fixes that are too
    // inaccurate (300 m), a wrong fix far outside, and two good fixes in the depot. A start of
    // `milepost events` reads the period of the wrong fix again. Each fix: minutes ago, lng_e7,
    // acc_dm.
    let fixes = [
        (21, 130_500_000, 50),
        (18, 130_500_000, 3_000),
        (17, 130_500_000, 3_000),
        (16, 130_500_000, 3_000),
    ];
    let fixes =
        [&fixes[..], &[(14, 138_000_000, 50), (13, 130_500_000, 50), (12, 130_500_000, 50)]]
            .concat();
    for (minutes, lng_e7, acc_dm) in fixes {
        world.query(&format!(
            "INSERT INTO {{db}}.positions (driver_id, ts, inserted_at, lat_e7, lng_e7, acc_dm) \
             SELECT 'd1', now64(3) - INTERVAL {minutes} MINUTE AS then, then, 520500000, {lng_e7}, \
             {acc_dm}"
        ))?;
    }
    world.query(
        "INSERT INTO {db}.events (driver_id, ts, kind, fence, lat, lng, known_at, mqtt_at) \
         SELECT 'd1', now64(3) - INTERVAL 21 MINUTE AS then, 'entered', 'depot', 52.05, 13.05, \
         then, then",
    )?;
    let watcher = Watcher::start_watching(&world.settings, &world, "jump")?;
    world.wait_for("SELECT count() FROM {db}.events FINAL WHERE kind = 'jump'", "1", SOON)?;
    world.wait_for(
        "SELECT groupArray(kind) FROM {db}.events FINAL WHERE fence != ''",
        "['entered']",
        SOON,
    )?;
    // Fences are read periodically, but a faulty fence is logged once.
    let log = watcher.process.log()?;
    assert_eq!(log.matches("a fence causes no events").count(), 1, "{log}");
    Ok(())
}

#[test]
fn fence_rules_cause_events_and_a_driver_heard_hourly_is_not_silent() -> Result<()> {
    let world = world("events_rules")?;
    world.query(
        "INSERT INTO {db}.fences (name, polygons, speed_limit_kmh, stay_max_s, hours) \
         SELECT 'yard', [[[(13, 52), (13.1, 52), (13.1, 52.1), (13, 52.1)]]], 30, 60, \
         formatDateTime(now('UTC') + INTERVAL 6 HOUR, '%H:%i-') || formatDateTime(now('UTC') + \
         INTERVAL 7 HOUR, '%H:%i')",
    )?;
    // d1 drives into the yard and stays there; d2 reports hourly, and did so 20 minutes ago; d3
    // reported every minute until 20 minutes ago.
    world.query(
        "INSERT INTO {db}.positions (driver_id, ts, inserted_at, lat_e7, lng_e7, speed_cms) \
         SELECT 'd1', now64(3) - INTERVAL 600 - number * 10 SECOND AS then, then, 520500000, \
         130500000 + number, 1000 FROM numbers(2) UNION ALL \
         SELECT 'd2', now64(3) - INTERVAL 20 + number * 60 MINUTE AS then, then, 0, 0, 0 \
         FROM numbers(4) UNION ALL SELECT 'd3', now64(3) - INTERVAL 20 + number MINUTE AS then, \
         then, 0, 0, 0 FROM numbers(4)",
    )?;
    let _watcher = Watcher::start_watching(&world.settings, &world, "rules")?;
    world.wait_for(
        "SELECT groupArray((driver_id, kind, fence)) FROM (SELECT * FROM {db}.events FINAL \
         ORDER BY driver_id, kind)",
        "[('d1','entered','yard'),('d1','fast','yard'),('d1','off_hours','yard'),('d1','overstayed','yard'),('d1','silent',''),('d3','silent','')]",
        SOON,
    )?;
    world.wait_for(
        "SELECT groupArray((state, fence, kind)) FROM (SELECT * FROM {db}.event_states FINAL \
         WHERE driver_id = 'd1' ORDER BY state)",
        "[('contact','','silent'),('fence','yard','overstayed'),('speed','yard','fast')]",
        SOON,
    )?;
    wait_until("the states are retained", SOON, || {
        let states = retained(world.broker.port, "fleet/events/d1/#")?;
        let topics: Vec<_> = states.keys().map(String::as_str).collect();
        Ok(["fleet/events/d1/contact", "fleet/events/d1/fence/yard", "fleet/events/d1/speed/yard"]
            .iter()
            .all(|topic| topics.contains(topic))
            && topics.len() == 3)
    })?;
    Ok(())
}

/// ClickHouse's clock is set an hour ahead, and later back. The process is killed in the hour that
/// the clock shows twice.
#[test]
fn steps_of_the_servers_clock_neither_repeat_nor_lose_events() -> Result<()> {
    const HOUR_S: i64 = 3_600;
    let world = world("events_clock")?;
    world.query(
        "INSERT INTO {db}.fences (name, polygons) VALUES \
         ('depot', [[[(13, 52), (13.1, 52), (13.1, 52.1), (13, 52.1)]]])",
    )?;
    let ahead_s = Arc::new(AtomicI64::new(0));
    let shown_ahead_s = Arc::clone(&ahead_s);
    let url = scripted_clickhouse(world.engine.server.port, move |statement| {
        if !statement.contains("now64(3)") {
            return ProxyAction::Pass;
        }
        let now = format!("(now64(3) + INTERVAL {} SECOND)", shown_ahead_s.load(Ordering::SeqCst));
        ProxyAction::Replace(statement.replace("now64(3)", &now))
    })?;
    let settings = world.settings.clone().with("CLICKHOUSE__URL", url);
    // Each drive stores two fixes beyond the border, which cause an event. `expected`: the kinds of
    // all events so far, in the order in which they became known.
    let drive = |lng: f64, expected: &str| -> Result<()> {
        world.query(&format!(
            "INSERT INTO {{db}}.positions (driver_id, ts, inserted_at, lat_e7, lng_e7) \
             SELECT 'd1', now64(3) - INTERVAL 100 - number * 100 MILLISECOND, \
             now64(3) + INTERVAL {} SECOND, 520500000, {lng} * 1e7 FROM numbers(2)",
            ahead_s.load(Ordering::SeqCst)
        ))?;
        world.wait_for(
            "SELECT arrayStringConcat(groupArray(kind), ' ') FROM (SELECT * FROM {db}.events FINAL \
             ORDER BY known_at, ts)",
            expected,
            SOON,
        )?;
        let state = expected.rsplit(' ').next().unwrap_or_default();
        world.wait_for("SELECT kind FROM {db}.event_states FINAL", state, SOON)
    };
    // Longitudes on both sides of the border, which is at 13.1. They are less than 100 m apart, so
    // that a drive between them is no jump.
    let (inside, outside) = (13.0998, 13.1008);
    let mut watcher = Watcher::start_watching(&settings, &world, "before")?;
    drive(inside, "entered")?;
    ahead_s.store(HOUR_S, Ordering::SeqCst);
    drive(outside, "entered left")?;
    ahead_s.store(0, Ordering::SeqCst);
    drive(inside, "entered left entered")?;
    let log = watcher.process.log()?;
    ensure!(log.contains("ClickHouse's clock was set"), "{log}");
    watcher.process.kill()?;
    let watcher = Watcher::start_watching(&settings, &world, "after")?;
    drive(outside, "entered left entered left")?;
    drive(inside, "entered left entered left entered")?;
    let log = watcher.process.log()?;
    ensure!(log.contains("ClickHouse's clock was set back"), "{log}");
    Ok(())
}

#[test]
fn delivering_entered_keeps_overstayed_as_the_state() -> Result<()> {
    let world = world("events_overstayed")?;
    // A device sent all fixes of its stay at once, so both events have the same `known_at`.
    let write = |kind: &str, posted: &str| {
        world.query(&format!(
            "INSERT INTO {{db}}.events (driver_id, ts, kind, fence, lat, lng, known_at, \
             webhook_at) SELECT 'd1', '2026-11-26 08:00:00', '{kind}', 'depot', 52.05, 13.05, \
             '2026-11-26 09:00:00', {posted}"
        ))
    };
    write("entered", "NULL")?;
    write("overstayed", "NULL")?;
    write("entered", "now64(3)")?;
    let state = "SELECT kind, webhook_at IS NULL FROM {db}.event_states FINAL";
    assert_eq!(world.query(state)?, "overstayed\t1");
    write("overstayed", "now64(3)")?;
    assert_eq!(world.query(state)?, "overstayed\t0");
    // `milepost migrate` fills the table from older rows.
    world.query("DROP TABLE {db}.event_states_mv")?;
    world.query("DROP TABLE {db}.event_states")?;
    write("entered", "now64(3)")?;
    world.settings.migrate()?;
    assert_eq!(world.query(state)?, "overstayed\t0");
    Ok(())
}

#[test]
fn start_reads_fixes_as_old_as_the_longest_limit_of_a_fence() -> Result<()> {
    let world = world("events_patience")?;
    world.query(
        "INSERT INTO {db}.fences (name, polygons, stay_max_s, silent_for_s) VALUES \
         ('depot', [[[(13, 52), (13.1, 52), (13.1, 52.1), (13, 52.1)]]], 144120, 144060)",
    )?;
    // The silence and the stay reach their limits within seconds.
    world.query(
        "INSERT INTO {db}.positions (driver_id, ts, inserted_at, lat_e7, lng_e7) SELECT 'd1', \
         now64(3) - INTERVAL 144050 SECOND AS then, then, 520500000, 130500000",
    )?;
    world.query(
        "INSERT INTO {db}.events (driver_id, ts, kind, fence, lat, lng, known_at) SELECT 'd1', \
         now64(3) - INTERVAL 144115 SECOND AS then, 'entered', 'depot', 52.05, 13.05, then",
    )?;
    let _watcher = Watcher::start_watching(&world.settings, &world, "patience")?;
    world.wait_for(
        "SELECT arraySort(groupArray((driver_id, kind, fence))) FROM {db}.events FINAL",
        "[('d1','entered','depot'),('d1','overstayed','depot'),('d1','silent','')]",
        SOON,
    )
}

#[test]
fn restart_publishes_undelivered_states_and_keeps_long_silences() -> Result<()> {
    let world = world("events_again")?;
    let settings = world.settings.clone().with("EVENTS__SILENT_FOR", "2d");
    // The broker was down half an hour ago. Two events were not delivered; the newer event, `left`,
    // is the current state.
    world.query(
        "INSERT INTO {db}.events (driver_id, ts, kind, fence, lat, lng, known_at) \
         SELECT 'd1', known, ['entered', 'left'][number + 1], 'yard', 52, 13, \
         now64(3) - INTERVAL 30 - number MINUTE AS known FROM numbers(2)",
    )?;
    world.query(
        "INSERT INTO {db}.positions (driver_id, ts, inserted_at) \
         SELECT 'd2', then, now64(3) - INTERVAL 40 HOUR AS then",
    )?;
    let first = Watcher::start_watching(&settings, &world, "again")?;
    wait_until("the broker has the state", SOON, || {
        let states = retained(world.broker.port, "fleet/events/d1/fence/yard")?;
        Ok(states.values().any(|event| event["event"] == "left"))
    })?;
    world.wait_for("SELECT count() FROM {db}.events FINAL WHERE mqtt_at IS NOT NULL", "1", SOON)?;
    drop(first);
    let shorter = settings.with("EVENTS__SILENT_FOR", "39h");
    let second = Watcher::start_watching(&shorter, &world, "shorter")?;
    world.wait_for(
        "SELECT count() FROM {db}.events FINAL WHERE driver_id = 'd2' AND kind = 'silent'",
        "1",
        SOON,
    )?;
    wait_until("the broker keeps both states", SOON, || {
        Ok(retained(world.broker.port, "fleet/events/#")?.len() == 2)
    })?;
    drop(second);
    // Both drivers are erased while no process runs, and the tables have no rows of these drivers.
    world.query("INSERT INTO {db}.erased (driver_id) VALUES ('d1'), ('d2')")?;
    world.query("TRUNCATE TABLE {db}.events")?;
    world.query("TRUNCATE TABLE {db}.positions")?;
    world.query(
        "INSERT INTO {db}.fences (name, polygons) VALUES ('yard', [[[(13, 52), (14, 52), (14, \
         53)]]])",
    )?;
    let _third = Watcher::start_watching(&shorter, &world, "third")?;
    wait_until("the broker keeps nothing", SOON, || {
        Ok(retained(world.broker.port, "fleet/events/#")?.is_empty())
    })
}

/// The previous process could not publish for hours, because the broker refused a message. The next
/// start publishes the current states and old events that are not states, such as jumps. It counts
/// the other old events as dropped.
#[test]
fn start_publishes_old_jumps_and_counts_dropped_events() -> Result<()> {
    let world = world("events_waited")?;
    let insert = |driver: &str, kind: &str, minutes: u32| {
        let fence = if kind == "jump" { "" } else { "yard" };
        world.query(&format!(
            "INSERT INTO {{db}}.events (driver_id, ts, kind, fence, lat, lng, known_at) \
             SELECT '{driver}', known, '{kind}', '{fence}', 52, 13, now64(3) - INTERVAL {minutes} \
             MINUTE AS known"
        ))
    };
    // `left` replaces `entered` as the state of the fence.
    for (kind, minutes) in [("jump", 40), ("entered", 35), ("off_hours", 35), ("left", 30)] {
        insert("d1", kind, minutes)?;
    }
    insert("d2", "jump", 2_000)?;
    let hook = Webhook::start()?;
    let url = format!("http://127.0.0.1:{}/", hook.port);
    let settings = world.settings.clone().with("WEBHOOK__URL", url).with("WEBHOOK__TOKEN", "t");
    let published = "SELECT arraySort(groupArray((driver_id, CAST(kind AS String)))) \
                     FROM {db}.events FINAL WHERE mqtt_at > 0 AND driver_id != 'accepted'";
    // No event has been published yet, so `events.topic` may have been unset until now. In this
    // case, `milepost events` publishes only the current state.
    let first = Watcher::start_watching(&settings, &world, "waited_first")?;
    world.wait_for(published, "[('d1','left')]", SOON)?;
    drop(first);
    world.query(
        "INSERT INTO {db}.events (driver_id, ts, kind, lat, lng, known_at, mqtt_at, webhook_at) \
         SELECT 'accepted', at, 'jump', 52, 13, at, at, now64(3) - INTERVAL 3000 MINUTE AS at",
    )?;
    let watcher = Watcher::start_watching(&settings, &world, "waited")?;
    world.wait_for(
        published,
        "[('d1','jump'),('d1','left'),('d1','off_hours'),('d2','jump')]",
        SOON,
    )?;
    let metrics = watcher.get("/metrics")?;
    for (to, dropped) in [("mqtt", 1), ("webhook", 5)] {
        let line = format!("milepost_events_dropped_total{{to=\"{to}\"}} {dropped}\n");
        ensure!(metrics.contains(&line), "{line}: {metrics}");
    }
    let log = watcher.process.log()?;
    for kinds in ["entered: 1", "entered: 1, jump: 2, left: 1, off_hours: 1"] {
        ensure!(log.contains(&format!("\"{kinds}\"")), "{kinds}: {log}");
    }
    Ok(())
}

/// The table `events` keeps events for 400 days by default. So that its size does not matter, a
/// start reads only the newest states and the events of the last minutes.
#[test]
fn start_does_not_read_the_history_of_events() -> Result<()> {
    let world = world("events_grown")?;
    let history = format!("{}.events ", world.database);
    let url = scripted_clickhouse(world.engine.server.port, move |statement| {
        if statement.contains("SELECT")
            && statement.contains(&history)
            && !statement.contains("query=INSERT")
        {
            return ProxyAction::Answer(
                500,
                "Code: 241. DB::Exception: Memory limit exceeded".to_owned(),
            );
        }
        ProxyAction::Pass
    })?;
    // The newest state of d1 is hours old; the newest state of d2 is minutes old.
    for (driver, kind, minutes) in [
        ("d1", "entered", 900),
        ("d1", "left", 800),
        ("d1", "entered", 700),
        ("d2", "entered", 500),
        ("d2", "left", 3),
        ("d3", "fast", 600),
    ] {
        let fence = if kind == "fast" { "" } else { "yard" };
        world.query(&format!(
            "INSERT INTO {{db}}.events (driver_id, ts, kind, fence, lat, lng, known_at) \
             SELECT '{driver}', known, '{kind}', '{fence}', 52, 13, now64(3) - INTERVAL {minutes} \
             MINUTE AS known"
        ))?;
    }
    let settings =
        world.settings.clone().with("CLICKHOUSE__URL", url).with("EVENTS__FASTER_THAN", "30");
    let _watcher = Watcher::start_watching(&settings, &world, "grown")?;
    wait_until("the broker keeps the states", SOON, || {
        let states = retained(world.broker.port, "fleet/events/#")?;
        let kinds: Vec<_> =
            states.values().map(|event| event["event"].as_str().unwrap_or_default()).collect();
        Ok(kinds == ["entered", "left", "fast"])
    })?;
    // The process still knows that d1 is inside: two fixes outside cause the event `left`.
    world.query(
        "INSERT INTO {db}.positions (driver_id, ts, lat_e7, lng_e7) \
         SELECT 'd1', now64(3) - number, 100, 100 FROM numbers(2)",
    )?;
    world.wait_for(
        "SELECT count() FROM {db}.events FINAL WHERE driver_id = 'd1' AND kind = 'left' \
         AND known_at > now64(3) - INTERVAL 1 MINUTE",
        "1",
        SOON,
    )
}

/// The broker restarts without the states, but with a state of an erased driver, as if it had
/// loaded an old backup. `milepost events` is paused during the restart, and then continues.
#[test]
fn states_are_retained_again_after_the_broker_lost_them() -> Result<()> {
    let mut world = world("events_lost")?;
    for (driver, kind) in [("d1", "entered"), ("d2", "left")] {
        world.query(&format!(
            "INSERT INTO {{db}}.events (driver_id, ts, kind, fence, lat, lng, known_at, mqtt_at) \
             SELECT '{driver}', known, '{kind}', 'yard', 52, 13, now64(3) - INTERVAL 700 MINUTE AS \
             known, known"
        ))?;
    }
    let count_states = |world: &World| -> Result<usize> {
        Ok(retained(world.broker.port, "fleet/events/#")?.len())
    };
    world.query("INSERT INTO {db}.erased (driver_id) VALUES ('d3')")?;
    let watcher = Watcher::start_watching(&world.settings, &world, "lost")?;
    wait_until("the start retains the states", SOON, || Ok(count_states(&world)? == 2))?;
    world.broker.kill()?;
    watcher.process.signal("STOP")?;
    world.broker = world.broker.restart()?;
    let erased: (&str, &[u8]) = ("fleet/events/d3/contact", b"{}");
    publish_with_retain(world.broker.port, true, &[erased])?;
    assert_eq!(count_states(&world)?, 1);
    watcher.process.signal("CONT")?;
    wait_until("only the states are retained again", SOON, || {
        let states = retained(world.broker.port, "fleet/events/#")?;
        Ok(states.len() == 2 && !states.contains_key(erased.0))
    })?;
    drop(watcher);
    Ok(())
}

/// ClickHouse accepts any bytes as the name of a fence, but in an event the name must be UTF-8.
#[test]
fn fence_name_that_is_not_utf8_does_not_stop_events() -> Result<()> {
    let world = world("events_name")?;
    world.query(
        "INSERT INTO {db}.fences (name, polygons) SELECT unhex('ff61'), [[[(20, 52), (20.1, 52), \
         (20.1, 52.1), (20, 52.1)]]] UNION ALL SELECT 'yard', [[[(13, 52), (13.1, 52), (13.1, \
         52.1), (13, 52.1)]]]",
    )?;
    let _watcher = Watcher::start_watching(&world.settings, &world, "name")?;
    world.query(
        "INSERT INTO {db}.positions (driver_id, ts, lat_e7, lng_e7) \
         SELECT 'd1', now64(3) - number, 520500000, 130500000 FROM numbers(2)",
    )?;
    world.wait_for("SELECT count() FROM {db}.events FINAL WHERE fence = 'yard'", "1", SOON)
}

/// The webhook does not answer, so each post lasts until its timeout of ten seconds. Posts in
/// sequence would arrive ten seconds apart.
#[test]
fn webhook_gets_eight_concurrent_posts() -> Result<()> {
    let world = world("events_many")?;
    world.query(
        "INSERT INTO {db}.fences (name, polygons) VALUES ('yard', [[[(13, 52), (13.1, 52), (13.1, \
         52.1), (13, 52.1)]]])",
    )?;
    let hook = Webhook::start()?;
    hook.status.store(0, Ordering::SeqCst);
    let settings = world
        .settings
        .clone()
        .with("WEBHOOK__URL", format!("http://127.0.0.1:{}/services/s3cret", hook.port))
        .with("WEBHOOK__TOKEN", "t");
    // An event that was never posted and is too old by now.
    world.query(
        "INSERT INTO {db}.events (driver_id, ts, kind, fence, lat, lng, known_at) \
         SELECT 'old', known, 'entered', 'yard', 52, 13, now64(3) - INTERVAL 300 MINUTE AS known",
    )?;
    let watcher = Watcher::start_watching(&settings, &world, "many")?;
    let dropped = "milepost_events_dropped_total{to=\"webhook\"} 1";
    wait_until("the event that is too old is counted", SOON, || {
        Ok(watcher.get("/metrics")?.contains(dropped))
    })?;
    world.query(
        "INSERT INTO {db}.positions (driver_id, ts, lat_e7, lng_e7) \
         SELECT concat('d', toString(number % 20)), now64(3) - 600 + intDiv(number, 20) * 100, \
         520500000, 130500000 + (intDiv(number, 40) % 2) * 1000000 FROM numbers(120)",
    )?;
    let posts = || hook.tokens.lock().unwrap_or_else(PoisonError::into_inner).len();
    wait_until("a post has arrived", SOON, || Ok(posts() > 0))?;
    wait_until("eight posts are in flight", Duration::from_secs(9), || Ok(posts() == 8))?;
    hook.status.store(200, Ordering::SeqCst);
    world.wait_for("SELECT countIf(webhook_at > 0) FROM {db}.events FINAL", "60", SOON)?;
    let log = watcher.process.log()?;
    ensure!(!log.contains("s3cret"), "the webhook's path is a secret: {log}");
    Ok(())
}
