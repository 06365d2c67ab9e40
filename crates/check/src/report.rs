//! The findings of a check, as lines or as JSON.

use std::fmt;

use serde::Serialize;

use milepost_core::counted::counted;
use milepost_tls as tls;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// The check found nothing wrong, or milepost cannot see the setting.
    Ok,
    /// The setup works now, but may fail later.
    Warning,
    /// The setup fails or loses data now.
    Error,
}

impl Level {
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub level: Level,
    /// Subject of the check, in one to three words; `what` in JSON.
    #[serde(rename = "what")]
    pub subject: &'static str,
    pub found: String,
    /// Which setting to change, and where.
    pub advice: Option<String>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<8} {:<20} {}", self.level.name(), self.subject, self.found)?;
        self.advice.as_ref().map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

/// All findings, in the order of the checks.
#[derive(Debug, Default)]
pub(crate) struct Report {
    findings: Vec<Finding>,
}

impl Report {
    pub(super) fn ok(&mut self, subject: &'static str, found: impl Into<String>) {
        self.findings.push(Finding {
            level: Level::Ok,
            subject,
            found: found.into(),
            advice: None,
        });
    }

    pub(super) fn warning(
        &mut self,
        subject: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) {
        let advice = Some(advice.into());
        self.findings.push(Finding { level: Level::Warning, subject, found: found.into(), advice });
    }

    pub(super) fn error(
        &mut self,
        subject: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) {
        let advice = Some(advice.into());
        self.findings.push(Finding { level: Level::Error, subject, found: found.into(), advice });
    }

    /// Reports an error without advice: `found` already names the setting to change.
    pub(super) fn error_without_advice(&mut self, subject: &'static str, found: impl Into<String>) {
        self.findings.push(Finding {
            level: Level::Error,
            subject,
            found: found.into(),
            advice: None,
        });
    }

    /// Reports whether the connection to `peer` is encrypted. `files`: the TLS files of the
    /// connection; `None` without encryption. `advice`: how to encrypt the connection.
    pub(super) fn transport(
        &mut self,
        [subject, peer]: [&'static str; 2],
        files: Option<&tls::Files>,
        host: &str,
        advice: &str,
    ) {
        match files {
            Some(files) => {
                let signer = files
                    .ca
                    .as_ref()
                    .map_or("a public CA".to_owned(), |path| path.display().to_string());
                self.ok(
                    subject,
                    format!("the {peer}'s certificate is signed by {signer}, and valid for {host}"),
                );
            }
            None if tls::is_this_machine(host) => {
                self.ok(subject, format!("not needed: the {peer} runs on this machine"))
            }
            None => self.warning(
                subject,
                "positions and the password travel in plain text",
                format!("{advice}, or use a private network"),
            ),
        }
    }

    #[must_use]
    pub(crate) fn findings(&self) -> &[Finding] {
        &self.findings
    }

    #[must_use]
    pub(crate) fn has_errors(&self) -> bool {
        self.count(Level::Error) > 0
    }

    fn count(&self, level: Level) -> usize {
        self.findings.iter().filter(|finding| finding.level == level).count()
    }

    /// Returns one JSON object: `errors`, `warnings`, and `checks` with `level`, `what`, `found`
    /// and `advice` (or null).
    #[must_use]
    pub(crate) fn json(&self) -> String {
        #[derive(Serialize)]
        struct Json<'a> {
            errors: usize,
            warnings: usize,
            checks: &'a [Finding],
        }
        let (errors, warnings) = (self.count(Level::Error), self.count(Level::Warning));
        let json = Json { errors, warnings, checks: &self.findings };
        serde_json::to_string(&json).expect("strings and numbers always serialize") + "\n"
    }
}

#[cfg(test)]
impl Report {
    /// Returns whether a finding has this level and subject, and `expected` in its text or advice.
    pub(super) fn has_finding(&self, level: Level, subject: &str, expected: &str) -> bool {
        self.findings.iter().any(|finding| {
            let text =
                format!("{} {}", finding.found, finding.advice.as_deref().unwrap_or_default());
            finding.level == level && finding.subject == subject && text.contains(expected)
        })
    }
}

impl fmt::Display for Report {
    /// Writes one line per finding, then a line with the counts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        let (errors, warnings) = (self.count(Level::Error), self.count(Level::Warning));
        writeln!(f, "{}, {}", counted(errors, "error"), counted(warnings, "warning"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_prints_as_lines_or_json() {
        let mut report = Report::default();
        report.ok("login", "as \"x\"\n");
        report.warning("window", "32", "raise it");
        assert_eq!(
            report.to_string(),
            "ok       login                as \"x\"\n\nwarning  window               32; raise it\n\
             0 errors, 1 warning\n"
        );
        assert!(!report.has_errors());
        assert_eq!(
            report.json(),
            "{\"errors\":0,\"warnings\":1,\"checks\":[\
             {\"level\":\"ok\",\"what\":\"login\",\"found\":\"as \\\"x\\\"\\n\",\"advice\":null},\
             {\"level\":\"warning\",\"what\":\"window\",\"found\":\"32\",\
             \"advice\":\"raise it\"}]}\n"
        );
    }
}
