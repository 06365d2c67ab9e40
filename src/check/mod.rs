//! `milepost check`: asks the configured servers and the disk what they are ready for, and names the setting to
//! change and where.
//!
//! Guarantee: it changes nothing, and does not disturb the members of the group: its sessions have a client id and a
//! share group of their own, and end with it. It says what it cannot see, and never calls that good.

mod broker;
mod disk;
mod probe;
mod replicas;
mod report;
mod server;
mod shards;

pub(crate) use self::report::{Level, Report};
use crate::config::Config;

/// Everything. `probe_topic`: where a message may be sent and is wanted back.
pub(crate) async fn all(config: &Config, probe_topic: Option<&str>, unix_ms: fn() -> i64) -> Report {
    let mut report = Report::default();
    broker::check(&mut report, config, probe_topic).await;
    server::check(&mut report, config, unix_ms).await;
    disk::check(&mut report, config.spool.as_ref());
    report
}

/// The spool's directory; blocks for as long as the disk takes.
#[must_use]
pub(crate) fn spool_at_start(config: &Config) -> Report {
    let mut report = Report::default();
    disk::check(&mut report, config.spool.as_ref());
    report
}

/// ClickHouse. A start does not ask the broker a second time: the sessions say themselves what is wrong.
pub(crate) async fn server_at_start(config: &Config, unix_ms: fn() -> i64) -> Report {
    let mut report = Report::default();
    server::check(&mut report, config, unix_ms).await;
    report
}

/// Why this topic cannot be probed.
#[must_use]
pub fn unusable_probe(config: &Config, topic: &str) -> Option<String> {
    if topic.is_empty() || topic.contains(['+', '#']) || topic.starts_with('$') {
        return Some("a topic is wanted, without + and #, not beginning with $".to_owned());
    }
    let source = config.sources.iter().find(|source| source.takes(topic))?;
    Some(format!(
        "the running group takes it for a fix ({}); give one that no source matches",
        source.topic()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_never_taken_for_a_fix() {
        let config = Config::defaults().unwrap();
        for bad in ["drivers/d1/gps", "drivers/+/gps-check", "", "$SYS/x", "a/#"] {
            assert!(unusable_probe(&config, bad).is_some(), "{bad}");
        }
        assert_eq!(unusable_probe(&config, "drivers/d1/gps-check"), None);
        assert_eq!(unusable_probe(&config, "drivers/d1/gps/check"), None);
    }
}
