//! Tests every format end to end: a fleet publishes messages in this format, and all of its fixes
//! must be stored.

use anyhow::{Result, ensure};
use lab_stack::unix_ms;
use loadgen::format::Format;
use loadgen::publish::Plan;

use crate::world::{SOON, finish, publish_in_background, wait_for_metric, world};

/// One milepost reads all formats at the same time.
#[test]
fn every_fix_of_every_format_is_stored() -> Result<()> {
    let world = world("formats")?;
    let toml: String = Format::ALL.iter().map(|format| format.source()).collect();
    let file = world.folder.path().join("sources.toml");
    std::fs::write(&file, toml)?;
    let settings = world.settings.clone().with_variable("MILEPOST_CONFIG", file.to_string_lossy());
    let milepost = settings.run()?;
    for format in Format::ALL {
        let plan = Plan {
            format,
            drivers: 5,
            burst_share: 0.2,
            burst_points: 5,
            ..world.plan(format.name(), 60, 2)
        };
        let manifest = finish(publish_in_background(plan))?;
        let verdict = world.verify(&manifest)?;
        ensure!(
            verdict.is_exact() && verdict.rejects == 0 && verdict.stored > 0,
            "{}: {verdict}",
            format.name()
        );
    }
    // Speeds are in m/s, whatever unit the devices use; the fleet drives at most 30 m/s.
    let fastest = world.query(
        "SELECT max(speed) BETWEEN 10 AND 30.5 FROM {db}.fixes \
         WHERE driver_id NOT LIKE 'sim-milepost-%'",
    )?;
    ensure!(fastest == "1", "{fastest}");
    drop(milepost);
    Ok(())
}

/// Messages without a fix are counted by kind, and the counts at shutdown add up. Kept fields can
/// be queried.
#[test]
fn messages_without_a_fix_are_ignored_and_fields_are_kept() -> Result<()> {
    let world = world("kinds")?;
    let settings = world
        .settings
        .clone()
        .with("SOURCE__TOPIC", "owntracks/+/+")
        .with("SOURCE__DRIVER", "{1}:{2}")
        .with("SOURCE__FORMAT", "owntracks")
        .with("SOURCE__KEEP", "batt,inregions/0,tid");
    let mut milepost = settings.run()?;
    let tst = unix_ms() / 1_000;
    let fix = format!(
        r#"{{"_type":"location","lat":25.76,"lon":-80.19,"tst":{tst},"vel":54,"cog":270,"acc":12,"batt":80,"tid":"d7"}}"#
    );
    world.publish(&[
        ("owntracks/jo/phone", fix.as_bytes()),
        ("owntracks/jo/phone", fix.as_bytes()),
        ("owntracks/jo/phone", br#"{"_type":"lwt","tst":1}"#),
        ("owntracks/jo/phone", br#"{"_type":"encrypted","data":"AAAA"}"#),
        ("owntracks/jo/phone", b"offline"),
        ("owntracks/jo/phone", br#"{"_type":"news"}"#),
    ])?;
    world.wait_for(
        "SELECT driver_id, lat, lng, round(speed, 2), heading, acc, attributes['batt'], \
         attributes['tid'] FROM {db}.fixes",
        "jo:phone\t25.76\t-80.19\t15\t270\t12\t80\td7",
        SOON,
    )?;
    world.wait_for("SELECT reason, count FROM {rejects}", "unknown_format_kind\t1", SOON)?;
    wait_for_metric(&milepost, "positions_ignored_total", 3.0)?;
    let metrics = milepost.get("/metrics")?;
    for kind in ["lwt", "encrypted", "presence"] {
        let line = format!("milepost_positions_ignored_total{{kind=\"{kind}\"}} 1");
        ensure!(metrics.contains(&line), "{line} in {metrics}");
    }
    milepost.terminate(SOON)?;
    let log = std::fs::read_to_string(world.folder.path().join("milepost.log"))?;
    ensure!(
        log.contains("encrypted") && log.contains("ignored=3") && log.contains("adds_up=true"),
        "{log}"
    );
    Ok(())
}
