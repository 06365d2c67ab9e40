//! `make map` runs the real programs, a fleet with an hour of history, and the live map, until
//! Ctrl-C.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use lab_stack::{ClickHouse, Settings, say, unix_ms};

use crate::fleet::{Fleet, LIVE_ACC_M};
use crate::publish::{self, Plan, Progress};
use crate::servers::{Servers, step};

/// Length of the history that is stored before the fleet starts.
const PAST_MS: i64 = 3_600_000;
/// Interval of the fixes in the history.
const PAST_STEP_MS: i64 = 15_000;
/// Drivers per insert of history.
const DRIVERS_AT_ONCE: u32 = 250;
/// Duration of the fleet in seconds: 30 days, so in practice until Ctrl-C.
const SECONDS: u64 = 30 * 86_400;

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// The milepost binary
    #[arg(long, default_value = "target/release/milepost")]
    milepost: PathBuf,
    /// The milepost-map binary
    #[arg(long, default_value = "target/release/milepost-map")]
    map: PathBuf,
    /// Number of drivers
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..))]
    drivers: u32,
    /// Messages a second, at QoS 1
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
}

/// Shows the map until it is interrupted.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let arguments = arguments.clone();
    lab_stack::in_scratch_folder("map-", move |folder| run_in(&arguments, folder))
}

fn run_in(arguments: &Arguments, folder: &Path) -> Result<bool> {
    let map = std::fs::canonicalize(&arguments.map)
        .with_context(|| format!("no binary at {}", arguments.map.display()))?;
    // With a spool, nothing is lost when the user kills ClickHouse.
    let with_spool = |settings: Settings| settings.with("SPOOL__DIR", "spool");
    let Servers { broker, clickhouse, milepost: _milepost } =
        Servers::start(&arguments.milepost, folder, with_spool)?;
    let plan = Plan {
        broker: format!("127.0.0.1:{}", broker.port),
        run: "map".to_owned(),
        drivers: arguments.drivers,
        rate: f64::from(arguments.rate),
        messages: u64::from(arguments.rate) * SECONDS,
        ..Plan::default()
    };
    step("an hour of history", || insert_history(&clickhouse, &plan))?;
    let (url, mqtt) = (clickhouse.url(), plan.broker.clone());
    std::thread::spawn(move || {
        let published = || -> Result<_> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(publish::run(&plan, Arc::new(Progress::default())))
        };
        if let Err(failure) = published() {
            eprintln!("loadgen: the fleet ended: {failure:#}");
        }
    });
    let map = step("milepost-map", || Settings::map(&map, folder, &url).run())?;
    say(&format!("\n  The map:     http://localhost:{}", map.port));
    say(&format!("  ClickHouse:  {url}"));
    say(&format!("  MQTT:        mqtt://{mqtt}"));
    say("  Press Enter to kill ClickHouse, and again to restart it. Ctrl-C ends everything.\n");
    toggle_on_enter(clickhouse)
}

/// Kills and restarts ClickHouse at each Enter, until Ctrl-C.
fn toggle_on_enter(clickhouse: ClickHouse) -> Result<bool> {
    let mut clickhouse = clickhouse;
    let mut is_up = true;
    loop {
        if std::io::stdin().read_line(&mut String::new())? == 0 {
            // Standard input is closed, so no Enter can arrive: wait for Ctrl-C.
            std::thread::sleep(Duration::from_secs(SECONDS));
        } else if is_up {
            clickhouse.kill()?;
            is_up = false;
            say("ClickHouse is down: milepost writes to its spool, and the map reports it. \
                 Press Enter to restart ClickHouse.");
        } else {
            clickhouse = step("starting ClickHouse again", || clickhouse.restart())?;
            is_up = true;
        }
    }
}

/// Inserts fixes of the last hour into ClickHouse. The history of a driver is the first hour of the
/// driver's track, in reverse, so it ends where the track starts. The fleet has the same seed, and
/// continues from there.
fn insert_history(clickhouse: &ClickHouse, plan: &Plan) -> Result<()> {
    let mut fleet = Fleet::new(&plan.run, 0..plan.drivers, plan.seed);
    let now_ms = unix_ms() - PAST_STEP_MS;
    for first in (0..plan.drivers).step_by(DRIVERS_AT_ONCE as usize) {
        let mut sql = "INSERT INTO fleet.positions (driver_id, ts, lat_e7, lng_e7, speed_cms, \
                       heading_cdeg, alt_dm, acc_dm, received_at) \
                       SETTINGS max_partitions_per_insert_block = 0 FORMAT TabSeparated\n"
            .to_owned();
        for n in first..(first + DRIVERS_AT_ONCE).min(plan.drivers) {
            for ahead_ms in (0..PAST_MS / PAST_STEP_MS).map(|step| step * PAST_STEP_MS) {
                let fix = fleet.fix(n, now_ms + ahead_ms, LIVE_ACC_M);
                let (ms, heading_deg) =
                    (now_ms - ahead_ms, (fix.heading_deg + 180.0).rem_euclid(360.0));
                let seconds = ms as f64 / 1_000.0;
                writeln!(
                    sql,
                    "{}\t{seconds:.3}\t{:.0}\t{:.0}\t{:.0}\t{:.0}\t2147483647\t50\t{seconds:.3}",
                    fleet.driver_id(n),
                    fix.lat * 1e7,
                    fix.lng * 1e7,
                    fix.speed_mps * 100.0,
                    heading_deg * 100.0
                )?;
            }
        }
        clickhouse.query(&sql)?;
    }
    // Refresh the roll-up now, so that trips and stops exist at once. The scheduled refresh may be
    // five minutes away.
    for sql in lab_stack::sql::REFRESH_ROLLUPS {
        clickhouse.query(&sql.replace("{db}", "fleet"))?;
    }
    Ok(())
}
