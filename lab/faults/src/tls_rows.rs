//! A row with TLS to both servers. With `--tls`, the rows without a cluster use TLS, too.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result};
use lab_harness::proxy::Fault;
use lab_stack::wait_until;

use crate::row::{Row, SETTLE, row};
use crate::scene::Scene;

pub(crate) fn all() -> Vec<Row> {
    vec![
        row(
            "certificates",
            "over TLS: both servers' certificates expire under load, every connection is cut, \
             they are renewed, kill -9",
            (3_000, 20),
            certificates,
        )
        .over_tls()
        .spool(),
    ]
}

/// Lets the certificates expire twice, cuts all connections, and renews the certificates.
fn certificates(scene: &mut Scene) -> Result<()> {
    for _ in 0..2 {
        scene.wait_for_unacked(0)?;
        scene.certify_until(2001)?;
        scene.http.set(Fault::Cut);
        scene.wait_for_unacked(0)?;
        scene.mqtt.set(Fault::Cut);
        for message in ["no connection", "insert failed"] {
            wait_until("milepost reports that the certificate has expired", SETTLE, || {
                Ok(count_expired(scene, message)? > 0)
            })
            .context(message)?;
        }
        sleep(Duration::from_secs(2));
        scene.certify_until(2099)?;
        scene.wait_until_recovered(SETTLE)?;
    }
    let (lines, sessions) =
        (count_expired(scene, "no connection")?, scene.metric("mqtt_connected")?);
    if lines as f64 > 2.0 * sessions {
        scene.violation =
            Some(format!("{lines} log lines for {sessions} sessions that had no connection twice"));
    }
    scene.wait_for_unacked(0)?;
    scene.kill_and_restart(0)
}

/// Returns the number of log lines that contain `message` and report an expired certificate.
fn count_expired(scene: &Scene, message: &str) -> Result<usize> {
    let log = scene.members[0].milepost.process.log()?;
    Ok(log.lines().filter(|line| line.contains(message) && line.contains("has expired")).count())
}
