//! TLS to both servers. With `--tls` all rows use it; this row always does.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result};
use lab_harness::proxy::Fault as Bad;
use lab_stack::wait_until;

use crate::row::{Row, SETTLE, row};
use crate::scene::Scene;

pub(crate) fn all() -> Vec<Row> {
    vec![
        row(
            "certificates",
            "over TLS: both servers' certificates expire under load, every connection is cut, they are renewed, kill -9",
            (3_000, 20),
            certificates,
        )
        .over_tls()
        .spool(),
    ]
}

fn certificates(scene: &mut Scene) -> Result<()> {
    for _ in 0..2 {
        scene.meet_unacked(0)?;
        scene.certify_until(2001)?;
        scene.http.set(Bad::Cut);
        scene.meet_unacked(0)?;
        scene.mqtt.set(Bad::Cut);
        for what in ["no connection", "insert failed"] {
            wait_until("milepost reports that the certificate has expired", SETTLE, || {
                Ok(expired(scene, what)? > 0)
            })
            .context(what)?;
        }
        sleep(Duration::from_secs(2));
        scene.certify_until(2099)?;
        scene.wait_until_recovered(SETTLE)?;
    }
    let (lines, sessions) = (expired(scene, "no connection")?, scene.metric("mqtt_connected")?);
    if lines as f64 > 2.0 * sessions {
        scene.violation =
            Some(format!("{lines} log lines for {sessions} sessions that had no connection twice"));
    }
    scene.meet_unacked(0)?;
    scene.kill_and_restart(0)
}

/// Returns the number of log lines that contain `what` and report an expired certificate.
fn expired(scene: &Scene, what: &str) -> Result<usize> {
    let log = scene.members[0].process.process.log()?;
    Ok(log.lines().filter(|line| line.contains(what) && line.contains("has expired")).count())
}
