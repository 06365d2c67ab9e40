//! `milepost check`: asks the configured servers and the disk what they are ready for, and names the setting to
//! change and where.
//!
//! Guarantee: it changes nothing, and does not disturb the members of the group: its sessions have a client id and a
//! share group of their own and end with it. What it cannot see it says, and never calls it well.

mod broker;
mod disk;
mod probe;
mod server;

use std::fmt;
use std::net::IpAddr;

use serde::Serialize;

use crate::config::Config;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be, or nothing that can be seen from here.
    Ok,
    /// It works, and something will go wrong.
    Warning,
    /// It does not work, or it loses data.
    Error,
}

impl Level {
    /// As it is shown.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad.
    pub level: Level,
    /// What was looked at, in two or three words.
    pub what: &'static str,
    /// What was found.
    pub found: String,
    /// What to change, and where.
    pub advice: Option<String>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<8} {:<20} {}", self.level.name(), self.what, self.found)?;
        self.advice.as_ref().map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

/// Everything that was found, in the order in which it was looked at.
#[derive(Debug, Default)]
pub struct Report {
    findings: Vec<Finding>,
}

impl Report {
    fn ok(&mut self, what: &'static str, found: impl Into<String>) {
        self.findings.push(Finding { level: Level::Ok, what, found: found.into(), advice: None });
    }

    fn warning(&mut self, what: &'static str, found: impl Into<String>, advice: impl Into<String>) {
        let advice = Some(advice.into());
        self.findings.push(Finding { level: Level::Warning, what, found: found.into(), advice });
    }

    fn error(&mut self, what: &'static str, found: impl Into<String>, advice: impl Into<String>) {
        let advice = Some(advice.into());
        self.findings.push(Finding { level: Level::Error, what, found: found.into(), advice });
    }

    /// The reason says itself what to change.
    fn failure(&mut self, what: &'static str, found: impl Into<String>) {
        self.findings.push(Finding { level: Level::Error, what, found: found.into(), advice: None });
    }

    /// The lines.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Whether anything is an error.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.count(Level::Error) > 0
    }

    fn count(&self, level: Level) -> usize {
        self.findings.iter().filter(|finding| finding.level == level).count()
    }

    /// One object: `errors`, `warnings`, and `checks` with `level`, `what`, `found` and `advice` (or null).
    ///
    /// # Panics
    /// Texts and numbers can always be written.
    #[must_use]
    pub fn json(&self) -> String {
        #[derive(Serialize)]
        struct Json<'a> {
            errors: usize,
            warnings: usize,
            checks: &'a [Finding],
        }
        let (errors, warnings) = (self.count(Level::Error), self.count(Level::Warning));
        let json = Json { errors, warnings, checks: &self.findings };
        serde_json::to_string(&json).expect("texts and numbers") + "\n"
    }
}

impl fmt::Display for Report {
    /// A line a finding, and a last one that counts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        writeln!(f, "{} errors, {} warnings", self.count(Level::Error), self.count(Level::Warning))
    }
}

/// Everything. `probe_topic`: where a message may be sent and is wanted back.
pub async fn all(config: &Config, probe_topic: Option<&str>, unix_ms: fn() -> i64) -> Report {
    let mut report = Report::default();
    broker::check(&mut report, config, probe_topic).await;
    server::check(&mut report, config, unix_ms).await;
    disk::check(&mut report, config.spool.as_ref());
    report
}

/// The spool's directory; blocks for as long as the disk takes.
#[must_use]
pub fn spool_at_start(config: &Config) -> Report {
    let mut report = Report::default();
    disk::check(&mut report, config.spool.as_ref());
    report
}

/// ClickHouse. A start does not ask the broker a second time: the lanes tell of theirs themselves.
pub async fn server_at_start(config: &Config, unix_ms: fn() -> i64) -> Report {
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
    let taken = |filter: &&String| {
        let (mut filter, mut topic) = (filter.split('/'), topic.split('/'));
        loop {
            match (filter.next(), topic.next()) {
                (None, None) => return true,
                (Some(wanted), Some(level)) if wanted == "+" || wanted == level => {}
                (Some(_) | None, _) => return false,
            }
        }
    };
    let filter = config.mqtt.topics.iter().find(taken)?;
    Some(format!("the running group takes it for a fix ({filter}); give one that mqtt.topics does not match"))
}

/// A password may go there in plain text: it does not leave this machine.
fn is_this_machine(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
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

    #[test]
    fn a_report_is_lines_or_json() {
        let mut report = Report::default();
        report.ok("login", "as \"x\"\n");
        report.warning("window", "32", "raise it");
        assert_eq!(
            report.to_string(),
            "ok       login                as \"x\"\n\nwarning  window               32; raise it\n0 errors, 1 warnings\n"
        );
        assert!(!report.has_errors());
        assert_eq!(
            report.json(),
            "{\"errors\":0,\"warnings\":1,\"checks\":[\
             {\"level\":\"ok\",\"what\":\"login\",\"found\":\"as \\\"x\\\"\\n\",\"advice\":null},\
             {\"level\":\"warning\",\"what\":\"window\",\"found\":\"32\",\"advice\":\"raise it\"}]}\n"
        );
    }
}
