//! Checks that acknowledged data would survive a power cut. A preloaded library records the system
//! calls of the program. A test that kills the process could not detect a missing fsync, because
//! the kernel still has the bytes.

use anyhow::{Result, ensure};
use lab_harness::proxy::{Fault, Proxy};

use crate::world::{wait_for_metric, world};

#[test]
fn puback_waits_for_fsync_of_file_and_directory() -> Result<()> {
    let world = world("durability")?;
    let folder = world.folder.path();
    let log = folder.join("calls");
    let proxy = Proxy::start(world.engine.server.port)?;
    let dir = folder.join("spool");
    let settings = world
        .settings
        .clone()
        .with("CLICKHOUSE__URL", format!("http://127.0.0.1:{}", proxy.port))
        .with("SPOOL__DIR", dir.display().to_string())
        .with_variable("DURABILITY_LOG", log.display().to_string())
        .with_preloaded("tests/real/durability.c")?;
    let milepost = settings.run()?;
    proxy.set(Fault::Refuse);
    for seq in 1..=3 {
        let fix = format!(r#"{{"lat":1,"lng":2,"seq":{seq}}}"#);
        world.publish(&[("drivers/d1/gps", fix.as_bytes())])?;
        wait_for_metric(&milepost, "acks_total", f64::from(seq))?;
    }

    let calls = std::fs::read_to_string(&log)?;
    // `durable`: number of files that were renamed before the directory was last synced.
    let (mut synced_file, mut renamed, mut durable, mut acks) = (String::new(), 0, 0, 0);
    for call in calls.lines() {
        match call.split_once(' ').unwrap_or((call, "")) {
            ("fsync", path) if path.ends_with(".unfinished") => path.clone_into(&mut synced_file),
            ("rename", path) if path.ends_with(".unfinished") => {
                ensure!(path == synced_file, "renamed before its fsync: {calls}");
                renamed += 1;
            }
            ("fsync", path) if path == dir.to_string_lossy() => durable = renamed,
            ("puback", _) => {
                acks += 1;
                ensure!(durable >= acks, "acknowledged before the directory's fsync: {calls}");
            }
            _ => {}
        }
    }
    ensure!(
        (renamed, acks) == (3, 3),
        "expected three batches and three acknowledgements: {calls}"
    );
    Ok(())
}
