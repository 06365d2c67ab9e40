//! Tests several endpoints in `clickhouse.url`. If the endpoint in use is down, hangs, is read-only
//! or has no tables, a process switches to another endpoint. Scripted servers in front of one
//! engine act as the replicas.
//!
//! Each member begins with its own endpoint, which depends on the number in the member's name:
//! `m-0` begins with the first endpoint, and `m-1` with the second one.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use lab_stack::{Settings, free_port, lock, wait_until};

use crate::events::Watcher;
use crate::secure::{ProxyAction, scripted_clickhouse};
use crate::world::{SOON, World, wait_for_metric, world};

/// A scripted server in front of the engine.
struct Endpoint {
    url: String,
    /// Tokens of the inserts into `positions` that this server received.
    tokens: Arc<Mutex<Vec<String>>>,
    /// ClickHouse error code with which this server refuses inserts into `positions`. 0: the server
    /// passes the inserts to the engine.
    code: Arc<AtomicU32>,
    /// Whether this server answers as if milepost's tables did not exist.
    has_no_tables: Arc<AtomicBool>,
}

impl Endpoint {
    fn start(world: &World) -> Result<Self> {
        let (tokens, code) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(AtomicU32::new(0)));
        let (received_tokens, refusal) = (Arc::clone(&tokens), Arc::clone(&code));
        let has_no_tables = Arc::new(AtomicBool::new(false));
        let (hides_tables, database) = (Arc::clone(&has_no_tables), world.database.clone());
        let url = scripted_clickhouse(world.engine.server.port, move |statement| {
            if hides_tables.load(Ordering::SeqCst) && statement.contains(&database) {
                let is_catalog = statement.contains("FROM system.");
                return if is_catalog {
                    ProxyAction::Answer(200, String::new())
                } else {
                    ProxyAction::Answer(404, "Code: 60. DB::Exception: No table.".to_owned())
                };
            }
            if !statement.contains("query=INSERT") || !statement.contains(".positions+") {
                return ProxyAction::Pass;
            }
            let token = statement.split(['?', '&']).find_map(|pair| {
                pair.strip_prefix("insert_deduplication_token=").map(str::to_owned)
            });
            lock(&received_tokens).push(token.unwrap_or_default());
            match refusal.load(Ordering::SeqCst) {
                0 => ProxyAction::Pass,
                code => ProxyAction::Answer(500, format!("Code: {code}. DB::Exception: Refused.")),
            }
        })?;
        Ok(Self { url, tokens, code, has_no_tables })
    }

    /// Refuses inserts into `positions` from now on, with this error code of ClickHouse.
    fn refuse(&self, code: u32) {
        self.code.store(code, Ordering::SeqCst);
    }

    fn set_has_no_tables(&self, has_no_tables: bool) {
        self.has_no_tables.store(has_no_tables, Ordering::SeqCst);
    }

    fn inserts(&self) -> usize {
        lock(&self.tokens).len()
    }

    fn first_token(&self) -> String {
        lock(&self.tokens).first().cloned().unwrap_or_default()
    }
}

/// Returns settings of a member with this client id and these endpoints.
fn member(world: &World, name: &str, urls: &[&str]) -> Settings {
    let settings = world.settings.clone().with("CLICKHOUSE__URL", urls.join(","));
    settings.with("CLICKHOUSE__REPLICATION", "macros").with("MQTT__CLIENT_ID", name)
}

#[test]
fn read_only_endpoint_is_replaced_by_the_next_endpoint() -> Result<()> {
    let world = world("read_only_endpoint")?;
    let (home, other) = (Endpoint::start(&world)?, Endpoint::start(&world)?);
    let milepost = member(&world, "m-0", &[&home.url, &other.url]).run()?;
    world.publish(&[("drivers/d1/gps", br#"{"lat":1,"lng":2,"seq":1}"#)])?;
    wait_for_metric(&milepost, "acks_total", 1.0)?;
    assert_eq!((home.inserts(), other.inserts()), (1, 0), "the member uses its own endpoint");
    home.refuse(242);
    world.publish(&[("drivers/d1/gps", br#"{"lat":1,"lng":2,"seq":2}"#)])?;
    wait_for_metric(&milepost, "acks_total", 2.0)?;
    assert_eq!(
        (home.inserts(), other.inserts()),
        (2, 1),
        "the first endpoint refused once, and the second one stored the fix"
    );
    world.wait_for("SELECT count() FROM {db}.fixes", "2", SOON)
}

/// A server reports error 242 before it writes, so the retry keeps its token. After error 243 some
/// rows may have been written, so the retry at the next endpoint gets a new token.
#[test]
fn insert_tries_every_endpoint_that_cannot_write() -> Result<()> {
    let world = world("endpoints_refuse")?;
    let endpoints = (0..4).map(|_| Endpoint::start(&world)).collect::<Result<Vec<_>>>()?;
    for (endpoint, code) in endpoints.iter().zip([242, 243, 164]) {
        endpoint.refuse(code);
    }
    let urls: Vec<_> = endpoints.iter().map(|endpoint| &*endpoint.url).collect();
    let milepost = member(&world, "m-0", &urls).run()?;
    world.publish(&[("drivers/d1/gps", br#"{"lat":1,"lng":2,"seq":1}"#)])?;
    wait_for_metric(&milepost, "acks_total", 1.0)?;
    let inserts: Vec<_> = endpoints.iter().map(Endpoint::inserts).collect();
    assert_eq!(inserts, [1, 1, 1, 1], "each endpoint must be tried once");
    let tokens: Vec<_> = endpoints.iter().map(Endpoint::first_token).collect();
    assert_eq!(
        tokens[0], tokens[1],
        "the first endpoint refused before it wrote, so the retry keeps the token"
    );
    assert_ne!(
        tokens[1], tokens[2],
        "the second endpoint may have written, so the retry has a new token"
    );
    assert_eq!(
        tokens[2], tokens[3],
        "the third endpoint refused before it wrote, so the retry keeps the token"
    );
    let scrape = milepost.get("/metrics")?;
    for (url, (reason, in_use)) in
        urls.iter().zip([("read_only", 0), ("no_space", 0), ("read_only", 0), ("read_only", 1)])
    {
        // milepost has left every endpoint but the last one, which is in use.
        let left = format!(
            "milepost_clickhouse_endpoint_left_total{{endpoint=\"{url}\",reason=\"{reason}\"}} {}",
            1 - in_use
        );
        let used = format!("milepost_clickhouse_endpoint_in_use{{endpoint=\"{url}\"}} {in_use}");
        assert!(scrape.contains(&left) && scrape.contains(&used), "{left}, {used}: {scrape}");
    }
    world.wait_for("SELECT count() FROM {db}.fixes", "1", SOON)
}

#[test]
fn import_skips_unreachable_and_read_only_endpoints() -> Result<()> {
    let world = world("endpoints_import")?;
    let unreachable = format!("http://127.0.0.1:{}", free_port()?);
    let (read_only, other) = (Endpoint::start(&world)?, Endpoint::start(&world)?);
    read_only.refuse(242);
    let file = world.folder.path().join("fixes.csv");
    fs::write(&file, "driver_id,ts,lat,lng\nd1,2026-01-02T03:04:05Z,1,2\n")?;
    let settings = member(&world, "m-0", &[&unreachable, &read_only.url, &other.url]);
    let (code, printed) = settings.call(&["import", &*file.to_string_lossy()])?;
    assert_eq!((code, read_only.inserts(), other.inserts()), (0, 1, 1), "{printed}");
    world.wait_for("SELECT count() FROM {db}.fixes", "1", SOON)
}

#[test]
fn unreachable_endpoint_at_start_is_skipped() -> Result<()> {
    let world = world("endpoint_away")?;
    let other = Endpoint::start(&world)?;
    let unreachable = format!("http://127.0.0.1:{}", free_port()?);
    let milepost = member(&world, "m-0", &[&unreachable, &other.url]).run()?;
    world.publish(&[("drivers/d1/gps", br#"{"lat":1,"lng":2,"seq":1}"#)])?;
    wait_for_metric(&milepost, "acks_total", 1.0)?;
    assert_eq!(other.inserts(), 1);
    let (code, printed) = member(&world, "m-0", &[&unreachable, &other.url]).call(&["check"])?;
    assert!(
        code != 0 && printed.contains(&unreachable) && printed.contains(&other.url),
        "each endpoint must be checked: {printed}"
    );
    Ok(())
}

/// Two replicas have no tables yet, but the third one has them.
#[test]
fn endpoint_without_tables_is_replaced_by_an_endpoint_with_tables() -> Result<()> {
    let world = world("endpoint_no_tables")?;
    let endpoints = (0..3).map(|_| Endpoint::start(&world)).collect::<Result<Vec<_>>>()?;
    endpoints[0].set_has_no_tables(true);
    endpoints[1].set_has_no_tables(true);
    let urls: Vec<_> = endpoints.iter().map(|endpoint| &*endpoint.url).collect();
    let milepost = member(&world, "m-0", &urls).run()?;
    world.publish(&[("drivers/d1/gps", br#"{"lat":1,"lng":2,"seq":1}"#)])?;
    wait_for_metric(&milepost, "acks_total", 1.0)?;
    assert_eq!(endpoints.iter().map(Endpoint::inserts).collect::<Vec<_>>(), [0, 0, 1]);
    let log = milepost.process.log()?;
    let left: Vec<_> = log
        .lines()
        .filter(|line| line.contains("moved from a failing ClickHouse endpoint"))
        .collect();
    assert!(left.len() == 1 && left[0].contains("not migrated"), "{log}");
    let scrape = milepost.get("/metrics")?;
    let left_total = |reason: &str, number: u32| {
        let url = urls[0];
        format!("endpoint_left_total{{endpoint=\"{url}\",reason=\"{reason}\"}} {number}")
    };
    assert!(scrape.contains(&left_total("no_tables", 1)), "{scrape}");
    let file = world.folder.path().join("fixes.csv");
    fs::write(&file, "driver_id,ts,lat,lng\nd1,2026-01-02T03:04:05Z,1,2\n")?;
    let (code, printed) =
        member(&world, "m-0", &urls).call(&["import", &*file.to_string_lossy()])?;
    assert_eq!(
        (code, endpoints[2].inserts()),
        (0, 2),
        "a command must skip endpoints without tables, too: {printed}"
    );
    Ok(())
}

/// Takes 70 s, because a process waits for half a minute before it queries its own endpoint again.
#[test]
fn own_endpoint_is_used_again_once_it_has_tables() -> Result<()> {
    let world = world("endpoint_lost_tables")?;
    let (home, other) = (Endpoint::start(&world)?, Endpoint::start(&world)?);
    let milepost = member(&world, "m-0", &[&home.url, &other.url]).run()?;
    let publish = |seq: u32| {
        let payload = format!(r#"{{"lat":1,"lng":2,"seq":{seq}}}"#);
        world.publish(&[("drivers/d1/gps", payload.as_bytes())])
    };
    publish(1)?;
    wait_for_metric(&milepost, "acks_total", 1.0)?;
    home.set_has_no_tables(true);
    publish(2)?;
    wait_for_metric(&milepost, "acks_total", 2.0)?;
    for second in 0..35 {
        std::thread::sleep(Duration::from_secs(1));
        assert!(milepost.get("/readyz").is_ok(), "not ready after {second} s");
    }
    publish(3)?;
    wait_for_metric(&milepost, "acks_total", 3.0)?;
    assert_eq!((home.inserts(), other.inserts()), (1, 2), "an endpoint without tables was used");
    home.set_has_no_tables(false);
    wait_until("the member is back", Duration::from_secs(60), || {
        Ok(milepost.process.log()?.contains("back to this member's own ClickHouse endpoint"))
    })?;
    publish(4)?;
    wait_for_metric(&milepost, "acks_total", 4.0)?;
    assert_eq!((home.inserts(), other.inserts()), (2, 2));
    let log = milepost.process.log()?;
    assert_eq!(log.matches("moved from a failing ClickHouse endpoint").count(), 1, "{log}");
    Ok(())
}

#[test]
fn second_member_begins_with_the_second_endpoint() -> Result<()> {
    let world = world("endpoint_turns")?;
    let (first, second) = (Endpoint::start(&world)?, Endpoint::start(&world)?);
    let milepost = member(&world, "m-1", &[&first.url, &second.url]).run()?;
    world.publish(&[("drivers/d1/gps", br#"{"lat":1,"lng":2,"seq":1}"#)])?;
    wait_for_metric(&milepost, "acks_total", 1.0)?;
    assert_eq!((first.inserts(), second.inserts()), (0, 1));
    Ok(())
}

/// Takes 40 s, because a process waits for half a minute before it queries its own endpoint again.
#[test]
fn events_return_to_their_own_endpoint() -> Result<()> {
    let world = world("endpoint_events")?;
    let (is_broken, home_queries) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU32::new(0)));
    let (is_failing, count) = (Arc::clone(&is_broken), Arc::clone(&home_queries));
    let home = scripted_clickhouse(world.engine.server.port, move |_| {
        if is_failing.load(Ordering::SeqCst) {
            return ProxyAction::Answer(502, "Bad Gateway".to_owned());
        }
        count.fetch_add(1, Ordering::SeqCst);
        ProxyAction::Pass
    })?;
    let other = Endpoint::start(&world)?;
    let settings = member(&world, "m-0", &[&home, &other.url]);
    let mut watcher = Watcher::start_watching(&settings, &world, "events")?;
    is_broken.store(false, Ordering::SeqCst);
    wait_until("events return to their own endpoint", Duration::from_secs(90), || {
        watcher.process.ensure_alive()?;
        Ok(watcher.process.log()?.contains("back to this member's own ClickHouse endpoint"))
    })?;
    let queries_before = home_queries.load(Ordering::SeqCst);
    wait_until("events query their own endpoint", Duration::from_secs(90), || {
        watcher.process.ensure_alive()?;
        Ok(home_queries.load(Ordering::SeqCst) > queries_before + 1)
    })
}
