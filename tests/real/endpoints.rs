//! Several endpoints in `clickhouse.url`: one that is away, hangs or is read-only is left for the
//! next one. Scripted servers before one engine stand in for replicas.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::Result;
use lab_stack::{Settings, free_port};

use crate::secure::{Scripted, scripted_clickhouse};
use crate::world::{SOON, World, wait_for_metric, world};

/// An endpoint, the inserts of positions that it got, and the switch that makes it read-only.
struct Endpoint {
    url: String,
    inserts: Arc<AtomicUsize>,
    is_read_only: Arc<AtomicBool>,
}

impl Endpoint {
    fn before(world: &World) -> Result<Self> {
        let (inserts, is_read_only) =
            (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (seen, switch) = (Arc::clone(&inserts), Arc::clone(&is_read_only));
        let url = scripted_clickhouse(world.engine.server.port, move |statement| {
            if !statement.contains("query=INSERT") || !statement.contains(".positions+") {
                return Scripted::Pass;
            }
            seen.fetch_add(1, Ordering::SeqCst);
            if switch.load(Ordering::SeqCst) {
                Scripted::Answer(
                    500,
                    "Code: 242. DB::Exception: Table is in readonly mode.".to_owned(),
                )
            } else {
                Scripted::Pass
            }
        })?;
        Ok(Self { url, inserts, is_read_only })
    }

    fn inserts(&self) -> usize {
        self.inserts.load(Ordering::SeqCst)
    }
}

fn member(world: &World, name: &str, urls: &[&str]) -> Settings {
    let settings = world.settings.clone().with("CLICKHOUSE__URL", urls.join(","));
    settings.with("CLICKHOUSE__REPLICATION", "macros").with("MQTT__CLIENT_ID", name)
}

#[test]
fn read_only_endpoint_is_left_for_the_next_one() -> Result<()> {
    let world = world("read_only_endpoint")?;
    let (home, other) = (Endpoint::before(&world)?, Endpoint::before(&world)?);
    let milepost = member(&world, "m-0", &[&home.url, &other.url]).run()?;
    world.publish(&[("drivers/d1/gps", br#"{"lat":1,"lng":2,"seq":1}"#)])?;
    wait_for_metric(&milepost, "acks_total", 1.0)?;
    assert_eq!((home.inserts(), other.inserts()), (1, 0), "the member uses its own endpoint");
    home.is_read_only.store(true, Ordering::SeqCst);
    world.publish(&[("drivers/d1/gps", br#"{"lat":1,"lng":2,"seq":2}"#)])?;
    wait_for_metric(&milepost, "acks_total", 2.0)?;
    assert_eq!((home.inserts(), other.inserts()), (2, 1), "refused once, stored by the next");
    world.wait_for("SELECT count() FROM {db}.fixes", "2", SOON)
}

#[test]
fn endpoint_that_is_away_at_the_start_is_left() -> Result<()> {
    let world = world("endpoint_away")?;
    let other = Endpoint::before(&world)?;
    let away = format!("http://127.0.0.1:{}", free_port()?);
    let milepost = member(&world, "m-0", &[&away, &other.url]).run()?;
    world.publish(&[("drivers/d1/gps", br#"{"lat":1,"lng":2,"seq":1}"#)])?;
    wait_for_metric(&milepost, "acks_total", 1.0)?;
    assert_eq!(other.inserts(), 1);
    let (code, printed) = member(&world, "m-0", &[&away, &other.url]).call(&["check"])?;
    assert!(
        code != 0 && printed.contains(&away) && printed.contains(&other.url),
        "each is checked: {printed}"
    );
    Ok(())
}

#[test]
fn members_use_endpoints_in_turn() -> Result<()> {
    let world = world("endpoint_turns")?;
    let (first, second) = (Endpoint::before(&world)?, Endpoint::before(&world)?);
    let milepost = member(&world, "m-1", &[&first.url, &second.url]).run()?;
    world.publish(&[("drivers/d1/gps", br#"{"lat":1,"lng":2,"seq":1}"#)])?;
    wait_for_metric(&milepost, "acks_total", 1.0)?;
    assert_eq!((first.inserts(), second.inserts()), (0, 1));
    Ok(())
}
