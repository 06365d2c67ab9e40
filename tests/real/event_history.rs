//! Measures the start of `milepost events` with a long history of events.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::events::Watcher;
use crate::world::world;

const DRIVERS: u64 = 10_000;
const MILLION: u64 = 1_000_000;
/// Milliseconds between two events of the fleet: 10,000 drivers have five events a day each.
const EVENT_INTERVAL_MS: u64 = 1_728;

/// 10,000 drivers with five events a day make 20 million events in 400 days. The environment
/// variable `EVENT_MILLIONS` sets another number of millions. The engine needs some seconds for
/// each million.
#[test]
#[ignore = "writes 20 million events: cargo test -p milepost --test real -- --ignored --nocapture \
            history"]
fn history_of_20_million_events_does_not_slow_the_start() -> Result<()> {
    let millions = std::env::var("EVENT_MILLIONS").unwrap_or_else(|_| "20".to_owned());
    let millions: u64 = millions.parse().context("EVENT_MILLIONS is a number")?;
    let world = world("event_history")?;
    let settings = world.settings.clone().with("EVENTS__FASTER_THAN", "30");
    let start = |name: &str| {
        let began = Instant::now();
        let watcher = Watcher::start_watching(&settings, &world, name)?;
        eprintln!("{name}: watching after {:.1?}", began.elapsed());
        Ok::<_, anyhow::Error>((watcher, began.elapsed()))
    };
    drop(start("empty")?);
    let began = Instant::now();
    for million in 0..millions {
        world.query(&format!(
            "INSERT INTO {{db}}.events (driver_id, ts, seq, kind, fence, lat, lng, known_at) \
             SELECT concat('d', toString(n % {DRIVERS})), now64(3) - \
             toIntervalMillisecond(({millions} * {MILLION} - n) * {EVENT_INTERVAL_MS}) - INTERVAL \
             1 HOUR AS at, toUInt32(n), if(intDiv(n, {DRIVERS}) % 2 = 0, 'entered', 'left'), \
             concat('fence-', toString(n % 20)), 52, 13, at \
             FROM (SELECT number + {million} * {MILLION} AS n FROM numbers({MILLION}))"
        ))?;
    }
    eprintln!("{millions} million events written in {:.0?}", began.elapsed());
    assert_eq!(world.query("SELECT count() FROM {db}.event_states FINAL")?, DRIVERS.to_string());
    let (watcher, took) = start("history")?;
    ensure!(took < Duration::from_secs(15), "a start took {took:?}");
    drop(watcher);
    Ok(())
}
