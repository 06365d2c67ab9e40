//! `milepost check`.

use anyhow::{Result, bail};

use crate::check::{self, Report};
use milepost_config::Config;
use milepost_observe::now_ms;

/// Asks the servers and the disk.
///
/// # Errors
/// A topic that cannot be probed.
pub async fn check(config: &Config, probe_topic: Option<&str>) -> Result<Report> {
    if let Some(why) = probe_topic.and_then(|topic| check::unusable_probe(config, topic)) {
        bail!("--probe-topic: {why}");
    }
    Ok(check::all(config, probe_topic, now_ms).await)
}
