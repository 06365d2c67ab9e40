//! Hands out settings by key, and remembers what was wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use config::{Value, ValueKind};

use super::secret::Secret;
use super::setting::Setting;
use crate::tls;

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A source that cannot be read as a whole.
    #[error("configuration cannot be read: {0}")]
    Source(String),
    /// Everything that is wrong, a line each.
    #[error("configuration is not usable:\n  {}", .0.join("\n  "))]
    Violations(Vec<String>),
}

impl Error {
    /// A parser shows the line it stumbled over, and that may hold a password: only where and what are told.
    pub(super) fn source(error: &config::ConfigError) -> Self {
        let text = error.to_string();
        let told: Vec<&str> = text.lines().filter(|line| !line.contains('|')).collect();
        Self::Source(told.join(" ").split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

/// Hands out settings by key, and remembers what was wrong and what is left.
#[derive(Default)]
pub struct Settings {
    given: BTreeMap<String, Value>,
    known: Vec<String>,
    /// Keys that were given, whether or not they have been read.
    given_keys: BTreeSet<String>,
    /// Those among them that are an empty text, which is none.
    empty_keys: BTreeSet<String>,
    effective: Vec<(String, String)>,
    /// What was wrong, a line each.
    pub violations: Vec<String>,
}

impl Settings {
    /// Of what a file and the environment gave.
    pub fn new(values: config::Map<String, Value>) -> Self {
        let mut given = BTreeMap::new();
        flatten("", values, &mut given);
        let is_empty = |value: &Value| matches!(&value.kind, ValueKind::String(text) if text.is_empty());
        let empty = given.iter().filter(|(_, value)| is_empty(value));
        let empty_keys = empty.map(|(key, _)| key.clone()).collect();
        let given_keys = given.keys().cloned().collect();
        let (known, effective, violations) = (Vec::new(), Vec::new(), Vec::new());
        Self { given, known, given_keys, empty_keys, effective, violations }
    }

    /// The value of `key`, or `default`.
    pub fn value<T: Setting>(&mut self, key: &str, default: T) -> T {
        let value = self.given(key).unwrap_or(default);
        self.effective.push((key.to_owned(), value.show()));
        value
    }

    /// Some key that begins so was given.
    pub(super) fn is_given(&self, prefix: &str) -> bool {
        self.given_keys.iter().any(|key| key.starts_with(prefix))
    }

    /// An empty text is none.
    pub fn was_given(&self, key: &str) -> bool {
        self.given_keys.contains(key) && !self.empty_keys.contains(key)
    }

    /// The sections that were given, such as the NAMEs of `[formats.NAME]`.
    pub(super) fn names_in(&self, prefix: &str) -> Vec<String> {
        let rest = self.given_keys.iter().filter_map(|key| key.strip_prefix(prefix));
        let names: BTreeSet<&str> = rest.filter_map(|rest| Some(rest.split_once('.')?.0)).collect();
        names.into_iter().map(str::to_owned).collect()
    }

    /// What is wrong with these keys has been told; whether there were any.
    pub(super) fn forget(&mut self, prefix: &str) -> bool {
        let before = self.given.len();
        self.given.retain(|key, _| !key.starts_with(prefix));
        self.given.len() < before
    }

    pub(super) fn forget_key(&mut self, key: &str) -> bool {
        self.given.remove(key).is_some()
    }

    /// An effective value of a section that can come several times.
    pub(super) fn show(&mut self, key: String, value: &impl Setting) {
        self.effective.push((key, value.show()));
    }

    /// The value of `key` if it was given; it is not shown.
    pub fn given<T: Setting>(&mut self, key: &str) -> Option<T> {
        self.known.push(key.to_owned());
        let value = self.given.remove(key)?;
        let parsed = T::parse(value);
        parsed.map_err(|wanted| self.violations.push(format!("{key}: {wanted}"))).ok()
    }

    /// An empty text is none: an environment often cannot say it otherwise.
    pub(super) fn given_text(&mut self, key: &str) -> Option<String> {
        self.given(key).filter(|text: &String| !text.is_empty())
    }

    /// A text, or none; shown.
    pub fn optional(&mut self, key: &str) -> Option<String> {
        let value = self.given_text(key);
        self.effective.push((key.to_owned(), value.clone().unwrap_or_default().show()));
        value
    }

    /// `key`, or the file that `{key}_file` names.
    pub fn secret(&mut self, key: &str) -> Option<Secret> {
        let inline = self.given_text(key);
        let file = self.given_text(&format!("{key}_file"));
        let shown = if inline.is_some() { "***" } else { "" };
        self.effective.push((key.to_owned(), shown.to_owned().show()));
        self.effective.push((format!("{key}_file"), file.clone().unwrap_or_default().show()));
        match (inline, file) {
            (Some(_), Some(_)) => {
                self.violations.push(format!("{key}: give either {key} or {key}_file, not both"));
                None
            }
            (Some(secret), None) => {
                let secret = Secret::Inline(secret);
                self.violations.extend(secret.read().err().map(|error| format!("{key}: {error}")));
                Some(secret)
            }
            (None, Some(file)) => {
                let secret = Secret::File(file.into());
                if let Err(error) = secret.read() {
                    self.violations.push(format!("{key}_file: {secret:?}: {error}"));
                }
                Some(secret)
            }
            (None, None) => None,
        }
    }

    /// The path of a file, or none.
    pub fn path(&mut self, key: &str) -> Option<PathBuf> {
        self.optional(key).map(PathBuf::from)
    }

    /// The files of a section, if its URL says that they are used.
    pub fn tls(&mut self, files: tls::Files, with_tls: Option<bool>) -> Option<tls::Files> {
        let section = files.server.section();
        match with_tls {
            None => None, // that its URL is wrong has been told
            Some(true) => {
                self.violations.extend(files.violations());
                Some(files)
            }
            Some(false) => {
                for (name, path) in
                    [("ca_file", files.ca), ("cert_file", files.cert), ("key_file", files.key)]
                {
                    if path.is_some() {
                        self.violations
                            .push(format!("{section}.{name}: only for TLS, and {section}.url is plain"));
                    }
                }
                None
            }
        }
    }

    /// A value that `check` turns into what the program uses.
    pub fn checked<T: Setting + Clone, U: Default>(
        &mut self,
        key: &str,
        default: T,
        check: fn(T) -> Result<U, String>,
    ) -> U {
        let value = self.value(key, default);
        check(value).map_err(|wanted| self.violations.push(format!("{key}: {wanted}"))).unwrap_or_default()
    }

    /// A number within `range`.
    pub fn within<T>(&mut self, key: &str, default: T, range: std::ops::RangeInclusive<T>) -> T
    where
        T: Setting + PartialOrd + fmt::Display + Copy,
    {
        let value = self.value(key, default);
        if !range.contains(&value) {
            self.violations.push(format!("{key}: {value} is outside {}..={}", range.start(), range.end()));
        }
        value
    }

    /// A duration from `min` to `max`.
    pub fn duration(&mut self, key: &str, default: &str, min: &str, max: &str) -> Duration {
        let parse =
            |text| humantime::parse_duration(text).expect("the durations in this file are well formed");
        let value = self.value(key, parse(default));
        if value < parse(min) || value > parse(max) {
            self.violations
                .push(format!("{key}: {} is outside {min}..={max}", humantime::format_duration(value)));
        }
        value
    }

    /// The effective values by key, or everything that was wrong.
    pub fn finish(&mut self) -> Result<Vec<(String, String)>, Error> {
        for key in std::mem::take(&mut self.given).into_keys() {
            let nearest = self.known.iter().min_by_key(|known| distance(known, &key));
            self.violations
                .push(format!("{key}: unknown key; did you mean {}?", nearest.map_or("", |key| key)));
        }
        if !self.violations.is_empty() {
            return Err(Error::Violations(std::mem::take(&mut self.violations)));
        }
        Ok(std::mem::take(&mut self.effective))
    }
}

fn flatten(prefix: &str, values: config::Map<String, Value>, into: &mut BTreeMap<String, Value>) {
    for (name, value) in values {
        let key = if prefix.is_empty() { name } else { format!("{prefix}.{name}") };
        if let ValueKind::Table(table) = value.kind {
            flatten(&key, table, into);
        } else if let Some(sections) = sections(&value) {
            let numbered = sections.into_iter().enumerate();
            numbered.for_each(|(n, table)| flatten(&format!("{key}[{}]", n + 1), table, into));
        } else {
            into.insert(key, value);
        }
    }
}

/// `[[name]]`
fn sections(value: &Value) -> Option<Vec<config::Map<String, Value>>> {
    let ValueKind::Array(values) = &value.kind else { return None };
    let tables = values.iter().map(|value| value.clone().into_table().ok());
    tables.collect::<Option<Vec<_>>>().filter(|tables| !tables.is_empty())
}

/// Letters that differ, roughly: enough to find the key that was meant.
fn distance(known: &str, given: &str) -> usize {
    let common = known.chars().zip(given.chars()).take_while(|(a, b)| a == b).count();
    let common_end = known.chars().rev().zip(given.chars().rev()).take_while(|(a, b)| a == b).count();
    (known.len() + given.len()).saturating_sub(2 * common + common_end)
}
