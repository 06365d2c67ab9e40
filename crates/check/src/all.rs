//! The list of all checks, and of those that run when the consumer starts.

use std::time::Duration;

use tokio::time::timeout;

use milepost_config::Config;

use super::report::Report;
use super::{broker, cluster, disk, server, size};

/// Timeout of the search for the broker's nodes when the consumer starts.
const NODE_SEARCH_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs all checks. `probe_topic`: topic of a message to publish and receive; `None`: publish
/// nothing.
pub(crate) async fn check_all(
    config: &Config,
    probe_topic: Option<&str>,
    unix_ms: fn() -> i64,
) -> Report {
    let mut report = Report::default();
    broker::check(&mut report, config, probe_topic).await;
    server::check(&mut report, config, unix_ms).await;
    size::check(&mut report, config).await;
    disk::check(&mut report, config.spool.as_ref());
    report
}

/// Checks the spool's directory. Blocks as long as the disk takes.
pub(crate) fn spool_at_start(config: &Config) -> Report {
    let mut report = Report::default();
    disk::check(&mut report, config.spool.as_ref());
    report
}

/// Looks for nodes of the broker that `mqtt.url` lacks. Does not report connection errors, because
/// the sessions report them.
pub(crate) async fn broker_at_start(config: &Config) -> Report {
    let mut report = Report::default();
    let _ = timeout(NODE_SEARCH_TIMEOUT, cluster::compare_nodes(&mut report, &config.mqtt)).await;
    report
}

/// Checks ClickHouse, except for the insert size, whose measurement sends much data.
pub(crate) async fn server_at_start(config: &Config, unix_ms: fn() -> i64) -> Report {
    let mut report = Report::default();
    server::check(&mut report, config, unix_ms).await;
    report
}

/// Returns why a topic cannot be probed; `None` if it can.
#[must_use]
pub fn unusable_probe(config: &Config, topic: &str) -> Option<String> {
    if topic.is_empty() || topic.contains(['+', '#']) || topic.starts_with('$') {
        return Some("must be a topic without + and #, not beginning with $".to_owned());
    }
    let source = config.sources.iter().find(|source| source.takes(topic))?;
    Some(format!(
        "the running group reads it as a fix ({}); choose a topic that no source matches",
        source.topic()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_topic_never_matches_a_source() {
        let config = Config::defaults().unwrap();
        for bad in ["drivers/d1/gps", "drivers/+/gps-check", "", "$SYS/x", "a/#"] {
            assert!(unusable_probe(&config, bad).is_some(), "{bad}");
        }
        assert_eq!(unusable_probe(&config, "drivers/d1/gps-check"), None);
        assert_eq!(unusable_probe(&config, "drivers/d1/gps/check"), None);
    }
}
