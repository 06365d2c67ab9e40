//! Looks settings up by key, and collects all violations.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use config::{Value, ValueKind};

use super::secret::Secret;
use super::setting::Setting;
use milepost_tls as tls;

/// Maximum number of listed violations; further ones are counted.
const VIOLATIONS_MAX: usize = 100;

/// Why there is no usable configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is missing or not TOML.
    #[error("configuration cannot be read: {0}")]
    Source(String),
    #[error("configuration is not usable:\n  {}", .0.join("\n  "))]
    Violations(Vec<String>),
}

impl Error {
    /// Returns the parser's error without the line of the file that it quotes, because that line
    /// may contain a password.
    pub(super) fn source(error: &config::ConfigError) -> Self {
        let text = error.to_string();
        let lines: Vec<&str> = text.lines().filter(|line| !line.contains('|')).collect();
        Self::Source(lines.join(" ").split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

/// The values of the file and the environment. Reading them collects the effective configuration
/// and the violations.
#[derive(Default)]
pub struct Settings {
    /// Values that no section has read yet.
    values: BTreeMap<String, Value>,
    /// Keys that have been looked up, for suggestions after an unknown key or a mistaken variable.
    known: Vec<String>,
    /// Keys that are given, whether or not they have been read.
    given_keys: BTreeSet<String>,
    /// Keys that are set to an empty string. An empty string counts as unset, because a template of
    /// environment variables often cannot leave one out.
    empty_keys: BTreeSet<String>,
    /// A prefix, and the variables that begin with that prefix but lack the second underscore, such
    /// as `MILEPOST_MQTT_URL`.
    pub(super) mistaken: (String, Vec<String>),
    /// Every key with its effective value as TOML.
    effective: Vec<(String, String)>,
    /// One line per violation: the key, what is wrong, the valid values.
    pub violations: Vec<String>,
}

impl Settings {
    /// Creates settings from these values, none of which has been read yet.
    pub fn new(values: config::Map<String, Value>) -> Self {
        let mut given = BTreeMap::new();
        flatten("", values, &mut given);
        // Keep an empty topic in `[[sources]]`: otherwise an entry that has no other key would be
        // ignored without a violation.
        let is_needed = |key: &str| key.starts_with("sources[") && key.ends_with("].topic");
        let (empty, given): (BTreeMap<_, _>, BTreeMap<_, _>) =
            given.into_iter().partition(|(key, value)| is_empty_text(value) && !is_needed(key));
        let empty_keys = empty.into_keys().collect();
        let given_keys = given.keys().cloned().collect();
        Self { values: given, given_keys, empty_keys, ..Self::default() }
    }

    /// Adds a violation of `key`. `problem`: what is wrong, and the valid values.
    pub fn add_violation(&mut self, key: &str, problem: impl fmt::Display) {
        self.violations.push(format!("{key}: {problem}"));
    }

    /// Returns the value if `value` is `Ok`. Otherwise adds the error as a violation of `key`, and
    /// returns `None`.
    pub fn valid<T>(&mut self, key: &str, value: Result<T, impl fmt::Display>) -> Option<T> {
        value.map_err(|problem| self.add_violation(key, problem)).ok()
    }

    /// Returns the value of `key`, or `default`, and adds it to the effective configuration.
    pub fn value<T: Setting>(&mut self, key: &str, default: T) -> T {
        let value = self.read(key).unwrap_or(default);
        self.add_effective(key, &value);
        value
    }

    /// Returns whether a key with this prefix is given.
    pub(super) fn is_any_given(&self, prefix: &str) -> bool {
        self.given_keys.range(prefix.to_owned()..).next().is_some_and(|key| key.starts_with(prefix))
    }

    pub(super) fn is_given(&self, key: &str) -> bool {
        self.given_keys.contains(key)
    }

    pub(super) fn is_empty(&self, key: &str) -> bool {
        self.empty_keys.contains(key)
    }

    /// Records the keys of empty variables. An empty variable does not override the file, except
    /// for a key for which an empty string has a meaning.
    pub(super) fn record_empty(&mut self, keys: impl IntoIterator<Item = String>) {
        self.empty_keys.extend(keys);
    }

    /// Returns the names of the sections below `prefix`: each NAME of `[formats.NAME]`.
    pub(super) fn names_in(&self, prefix: &str) -> Vec<String> {
        let keys_below = self.given_keys.iter().filter_map(|key| key.strip_prefix(prefix));
        let names = keys_below.filter_map(|key| key.split_once('.').map(|(name, _)| name));
        let names: BTreeSet<&str> = names.collect();
        names.into_iter().map(str::to_owned).collect()
    }

    /// Drops the given keys that `matches` selects, so that they are not reported as unknown.
    /// Returns whether there were any.
    pub(super) fn forget(&mut self, matches: impl Fn(&str) -> bool) -> bool {
        let count_before = self.values.len();
        self.values.retain(|key, _| !matches(key));
        self.values.len() < count_before
    }

    /// Adds an effective value.
    pub(super) fn add_effective(&mut self, key: &str, value: &impl Setting) {
        self.effective.push((key.to_owned(), value.show()));
    }

    /// Returns the value of `key` if it is given. Does not add it to the effective configuration.
    pub fn read<T: Setting>(&mut self, key: &str) -> Option<T> {
        self.known.push(key.to_owned());
        let value = self.values.remove(key)?;
        self.valid(key, T::parse(value))
    }

    /// Returns a string that has no default, and adds it to the effective configuration.
    pub fn optional(&mut self, key: &str) -> Option<String> {
        let value: Option<String> = self.read(key);
        self.add_effective(key, &value.clone().unwrap_or_default());
        value
    }

    /// Returns the secret in `key`, or in the file that `{key}_file` names.
    pub fn secret(&mut self, key: &str) -> Option<Secret> {
        let inline: Option<String> = self.read(key);
        self.add_effective(key, &inline.as_ref().map(|_| "***".to_owned()).unwrap_or_default());
        let file_key = format!("{key}_file");
        match (inline, self.path(&file_key)) {
            (Some(_), Some(_)) => {
                self.add_violation(key, format!("set either {key} or {file_key}, not both"));
                None
            }
            (Some(secret), None) => {
                let secret = Secret::Inline(secret);
                self.valid(key, secret.read());
                Some(secret)
            }
            (None, Some(file)) => {
                let secret = Secret::File(file);
                self.valid(
                    &file_key,
                    secret.read().map_err(|error| format!("{secret:?}: {error}")),
                );
                Some(secret)
            }
            (None, None) => None,
        }
    }

    /// Returns a path that has no default, and adds it to the effective configuration.
    pub fn path(&mut self, key: &str) -> Option<PathBuf> {
        self.optional(key).map(PathBuf::from)
    }

    /// Returns the TLS files of a section, if the scheme of its URL uses TLS. `with_tls`: whether
    /// the scheme uses TLS; `None` if the URL is invalid or not set.
    pub fn tls(&mut self, files: tls::Files, with_tls: Option<bool>) -> Option<tls::Files> {
        let section = files.server.section();
        match with_tls {
            None => None, // an invalid URL is already reported
            Some(true) => {
                self.violations.extend(files.violations());
                Some(files)
            }
            Some(false) => {
                for (name, path) in
                    [("ca_file", files.ca), ("cert_file", files.cert), ("key_file", files.key)]
                {
                    if path.is_some() {
                        let problem = format!("only for TLS, but {section}.url is plain text");
                        self.add_violation(&format!("{section}.{name}"), problem);
                    }
                }
                None
            }
        }
    }

    /// Returns the value of `key` after `check`. If `check` fails, adds its error as a violation,
    /// and returns the type's default.
    pub fn checked<T: Setting + Clone, U: Default>(
        &mut self,
        key: &str,
        default: T,
        check: fn(T) -> Result<U, String>,
    ) -> U {
        let value = self.value(key, default);
        self.valid(key, check(value)).unwrap_or_default()
    }

    /// Returns a constant of the program. Tests and the laboratory set another value as `lab.NAME`,
    /// which is not documented, printed or suggested.
    pub(super) fn constant<T: Setting>(&mut self, name: &str, constant: T) -> T {
        let key = format!("lab.{name}");
        self.values
            .remove(&key)
            .and_then(|value| self.valid(&key, T::parse(value)))
            .unwrap_or(constant)
    }

    /// Returns a number, and adds it to the effective configuration. Adds a violation if the number
    /// is outside `range`.
    pub fn in_range<T>(&mut self, key: &str, default: T, range: std::ops::RangeInclusive<T>) -> T
    where
        T: Setting + PartialOrd + fmt::Display + Copy,
    {
        let violations_before = self.violations.len();
        let value = self.value(key, default);
        let allowed = format!("{}..={}", range.start(), range.end());
        // Reading adds a violation if the value is not a number.
        if let Some(not_a_number) = self.violations.get_mut(violations_before) {
            *not_a_number += &format!(" in {allowed}");
        } else if !range.contains(&value) {
            self.add_violation(key, format!("{value} is outside {allowed}"));
        }
        value
    }

    /// Returns a duration, and adds it to the effective configuration. Adds a violation if the
    /// duration is outside `min` to `max`, which are written as in the file, such as `10ms`.
    pub fn duration(&mut self, key: &str, default: &str, min: &str, max: &str) -> Duration {
        let parse = |text| {
            humantime::parse_duration(text).expect("the durations in the code are well formed")
        };
        let value = self.value(key, parse(default));
        if value < parse(min) || value > parse(max) {
            self.add_violation(key, format!("{} is outside {min}..={max}", value.show()));
        }
        value
    }

    /// Returns the effective values by key.
    ///
    /// # Errors
    /// All violations, including unknown keys.
    pub fn finish(&mut self) -> Result<Vec<(String, String)>, Error> {
        for (index, key) in std::mem::take(&mut self.values).into_keys().enumerate() {
            // Suggest no key for a violation that is not listed, because each suggestion compares
            // all known keys.
            let nearest = if index < VIOLATIONS_MAX { self.nearest(&key) } else { "" };
            // A key such as `fields.battery` has a value where a section is required.
            let is_bare_field = key.starts_with("fields") && !nearest.starts_with("fields.");
            let problem = if is_bare_field {
                "a field is a section of its own, such as [fields.battery], with from and type"
                    .to_owned()
            } else {
                format!("unknown key; did you mean {nearest}?")
            };
            self.add_violation(&key, problem);
        }
        self.report_mistaken();
        if !self.violations.is_empty() {
            let more = self.violations.len().saturating_sub(VIOLATIONS_MAX);
            self.violations.truncate(VIOLATIONS_MAX);
            if more > 0 {
                self.violations.push(format!("and {more} more"));
            }
            return Err(Error::Violations(std::mem::take(&mut self.violations)));
        }
        Ok(std::mem::take(&mut self.effective))
    }
}

impl Settings {
    /// Reports variables that differ from a key only in underscores and case.
    fn report_mistaken(&mut self) {
        let plain = |text: &str| text.replace(['_', '.'], "").to_uppercase();
        let (prefix, mistaken) = std::mem::take(&mut self.mistaken);
        let sources = ["source.topic", "source.format", "source.driver"];
        for name in mistaken {
            let keys = self.known.iter().map(String::as_str).chain(sources);
            let corrected =
                keys.map(|key| format!("{prefix}__{}", key.replace('.', "__").to_uppercase()));
            let corrected = corrected.into_iter().find(|key| plain(key) == plain(&name));
            if let Some(corrected) = corrected {
                self.add_violation(
                    &name,
                    format!("not read; write {corrected}, with two underscores"),
                );
            }
        }
    }

    /// Returns the known key that is most like `key`, if possible one of the same section.
    fn nearest(&self, key: &str) -> &str {
        let section = key.rsplit_once('.').map_or("", |(section, _)| section);
        let is_near =
            |known: &&String| known.rsplit_once('.').is_some_and(|(parent, _)| parent == section);
        let in_section = self.known.iter().filter(is_near).min_by_key(|known| distance(known, key));
        let any = || self.known.iter().min_by_key(|known| distance(known, key));
        in_section.or_else(any).map_or("", |known| known)
    }
}

/// Adds the values of all sections to `into`, by key: `section.name`, and `list[1].name` for the
/// first entry of a list of sections.
fn flatten(prefix: &str, values: config::Map<String, Value>, into: &mut BTreeMap<String, Value>) {
    for (name, value) in values {
        let key = if prefix.is_empty() { name } else { format!("{prefix}.{name}") };
        if let ValueKind::Table(mut table) = value.kind {
            if table.is_empty() && prefix == "fields" {
                // Keep an empty section, so that it is reported. An empty string would count as
                // unset.
                table.insert("from".to_owned(), Value::new(None, ValueKind::Array(Vec::new())));
            }
            flatten(&key, table, into);
        } else if let Some(sections) = sections(&value) {
            for (index, mut table) in sections.into_iter().enumerate() {
                if table.values().all(is_empty_text) {
                    // Keep an entry without values, so that it is reported.
                    table.insert("topic".to_owned(), "".into());
                }
                flatten(&format!("{key}[{}]", index + 1), table, into);
            }
        } else {
            into.insert(key, value);
        }
    }
}

/// Returns whether the value is an empty string, which counts as unset.
fn is_empty_text(value: &Value) -> bool {
    matches!(&value.kind, ValueKind::String(text) if text.is_empty())
}

/// Returns the sections of `[[name]]`; `None` if the value is not a list of sections.
fn sections(value: &Value) -> Option<Vec<config::Map<String, Value>>> {
    let ValueKind::Array(values) = &value.kind else { return None };
    let tables = values.iter().map(|value| value.clone().into_table().ok());
    tables.collect::<Option<Vec<_>>>().filter(|tables| !tables.is_empty())
}

/// Returns a rough edit distance, good enough to suggest a key.
fn distance(known: &str, given: &str) -> usize {
    let common = known.chars().zip(given.chars()).take_while(|(a, b)| a == b).count();
    let common_end =
        known.chars().rev().zip(given.chars().rev()).take_while(|(a, b)| a == b).count();
    (known.len() + given.len()).saturating_sub(2 * common + common_end)
}
