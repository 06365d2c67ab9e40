//! Defaults < file < environment → a validated [`Config`].
//!
//! Guarantee: either every value is usable and every key known, or all violations are told at once, each
//! with the key, what was wrong and what is right. Every setting is named once, in [`Config::read`], with
//! its default. Secrets are never shown.

mod setting;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use config::{Value, ValueKind};

use self::setting::Setting;
use crate::decode;
use crate::tls;

/// Prefix of variables that are settings: `MILEPOST__SECTION__KEY`.
const ENVIRONMENT_PREFIX: &str = "MILEPOST";
/// Read when neither `--config` nor `MILEPOST_CONFIG` names a file, if it is there.
const DEFAULT_FILE: &str = "milepost.toml";

/// Everything milepost can be told.
#[derive(Debug, Clone)]
pub struct Config {
    /// `[mqtt]`
    pub mqtt: Mqtt,
    /// `[decode]`
    pub decode: decode::Limits,
    /// `[batch]`
    pub batch: crate::batch::Limits,
    /// `[clickhouse]`
    pub clickhouse: ClickHouse,
    /// `[spool]`; `None`: off.
    pub spool: Option<Spool>,
    /// `[http]`
    pub http: Http,
    /// `[shutdown]`
    pub shutdown: Shutdown,
    /// `[log]`
    pub log: Log,
    effective: Vec<(String, String)>,
}

/// The broker, and our place in it.
#[derive(Debug, Clone)]
pub struct Mqtt {
    /// Broker.
    pub host: String,
    /// Broker.
    pub port: u16,
    /// `None`: plain text.
    pub tls: Option<tls::Files>,
    /// Login, if any.
    pub username: Option<String>,
    /// Login, if any.
    pub password: Option<Secret>,
    /// Lane `n` is `{client_id}-{n}`.
    pub client_id: String,
    /// The `x` of `$share/x/…`.
    pub group: String,
    /// Topic filters with one `+`.
    pub topics: Vec<String>,
    /// 0 or 1.
    pub qos: u8,
    /// Lanes in this process.
    pub connections: u16,
    /// Unacknowledged messages we ask for.
    pub receive_maximum: u16,
    /// How long the broker keeps our session.
    pub session_expiry: Duration,
    /// MQTT keep-alive.
    pub keep_alive: Duration,
    /// Maximum Packet Size; what is larger all the same is cut.
    pub max_packet_bytes: u32,
    /// Bytes of closed batches that may wait for an insert slot.
    pub buffer_bytes_max: usize,
}

/// The server, and how to insert.
#[derive(Debug, Clone)]
pub struct ClickHouse {
    /// `http://host:port` or `https://host:port`
    pub url: String,
    /// `None`: plain text.
    pub tls: Option<tls::Files>,
    /// Database of all tables.
    pub database: String,
    /// Login.
    pub user: String,
    /// Login, if any.
    pub password: Option<Secret>,
    /// Inserts under way at once, a lane.
    pub inserts_in_flight: usize,
    /// How long one attempt may take; doubles with every timeout.
    pub insert_timeout: Duration,
    /// Let the server collect inserts of many processes.
    pub async_insert: bool,
}

/// Where batches go while ClickHouse cannot take them.
#[derive(Debug, Clone)]
pub struct Spool {
    /// This process' own.
    pub dir: PathBuf,
    /// Of all files in it.
    pub bytes_max: u64,
}

/// `/metrics`, `/livez`, `/readyz`.
#[derive(Debug, Clone)]
pub struct Http {
    /// Address and port.
    pub listen: SocketAddr,
}

/// Leaving.
#[derive(Debug, Clone)]
pub struct Shutdown {
    /// How long flushing may take.
    pub grace: Duration,
    /// UNSUBSCRIBE first: only where other members stay.
    pub leave: bool,
}

/// Logs, on stderr.
#[derive(Debug, Clone)]
pub struct Log {
    /// For people or for machines.
    pub format: LogFormat,
    /// `level` or `target=level,…`
    pub filter: String,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

/// A password, or the file that holds it. Never shown.
#[derive(Clone)]
pub enum Secret {
    /// Given as it is.
    Inline(String),
    /// Read when it is needed, so that it can change without a restart.
    File(PathBuf),
}

impl Secret {
    /// The secret; a trailing newline of the file does not belong to it.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&self) -> std::io::Result<String> {
        match self {
            Self::Inline(secret) => Ok(secret.clone()),
            Self::File(path) => Ok(std::fs::read_to_string(path)?.trim_end_matches(['\r', '\n']).to_owned()),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(_) => f.write_str("***"),
            Self::File(path) => write!(f, "in {}", path.display()),
        }
    }
}

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
    fn source(error: &config::ConfigError) -> Self {
        let text = error.to_string();
        let told: Vec<&str> = text.lines().filter(|line| !line.contains('|')).collect();
        Self::Source(told.join(" ").split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

impl Config {
    /// Reads the file (`path`, or `./milepost.toml` if there is one), then the environment over it.
    ///
    /// # Errors
    /// [`Error::Source`] for a file that is missing or not TOML, [`Error::Violations`] for what it says.
    pub fn load(path: Option<&Path>) -> Result<Self, Error> {
        // Read here, because the library takes bytes that are not UTF-8 for others: a password would be wrong.
        let text = match (path, std::fs::read_to_string(path.unwrap_or(Path::new(DEFAULT_FILE)))) {
            (_, Ok(text)) => text,
            (None, Err(error)) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            (path, Err(error)) => {
                let path = path.unwrap_or(Path::new(DEFAULT_FILE)).display();
                return Err(Error::Source(format!("{path}: {error}")));
            }
        };
        let file = config::File::from_str(&text, config::FileFormat::Toml);
        let environment =
            config::Environment::with_prefix(ENVIRONMENT_PREFIX).prefix_separator("__").separator("__");
        let merged = config::Config::builder().add_source(file).add_source(environment).build();
        let values =
            merged.and_then(|merged| merged.cache.into_table()).map_err(|error| Error::source(&error))?;
        Self::from_values(values)
    }

    /// The defaults alone.
    ///
    /// # Errors
    /// As [`Config::load`]; the only default that can be unusable is the host's name.
    pub fn defaults() -> Result<Self, Error> {
        Self::from_values(config::Map::new())
    }

    fn from_values(values: config::Map<String, Value>) -> Result<Self, Error> {
        let mut settings = Settings::new(values);
        let config = Self::read(&mut settings);
        settings.finish().map(|effective| Self { effective, ..config })
    }

    /// Every setting: its key, its default, its rule.
    fn read(s: &mut Settings) -> Self {
        let (host, port, with_tls) =
            s.checked("mqtt.url", "mqtt://localhost:1883".to_owned(), broker_address);
        let username = s.optional("mqtt.username");
        let password = s.secret("mqtt.password");
        if password.is_some() && username.is_none() {
            s.violations.push("mqtt.username: give the user name that the password belongs to".to_owned());
        }
        let (ca, cert, key) = (s.path("mqtt.ca_file"), s.path("mqtt.cert_file"), s.path("mqtt.key_file"));
        let tls = s.tls(tls::Files { section: "mqtt", ca, cert, key }, with_tls);
        let mqtt = Mqtt {
            host,
            port,
            tls,
            username,
            password,
            client_id: s.checked("mqtt.client_id", host_name(), client_id),
            group: s.checked("mqtt.group", "milepost".to_owned(), group),
            topics: s.checked("mqtt.topics", vec!["drivers/+/gps".to_owned()], topics),
            qos: s.within("mqtt.qos", 1, 0..=1),
            connections: s.within("mqtt.connections", 1, 1..=64),
            receive_maximum: s.within("mqtt.receive_maximum", 32_000, 1..=65_535),
            session_expiry: s.duration("mqtt.session_expiry", "60s", "1s", "1000d"),
            keep_alive: s.duration("mqtt.keep_alive", "10s", "5s", "18h"),
            max_packet_bytes: s.within("mqtt.max_packet_bytes", 1_048_576, 1_024..=268_435_455),
            buffer_bytes_max: s.within("mqtt.buffer_bytes_max", 67_108_864, 1_048_576..=usize::MAX),
        };
        let decode = decode::Limits {
            payload_bytes_max: s.within("decode.payload_bytes_max", 1_000_000, 1..=268_435_455),
            points_max: s.within("decode.points_max", 10_000, 1..=1_000_000),
            // More would reach past the table's TTL, and one insert touch more partitions than ClickHouse allows.
            fix_age_max: s.duration("decode.fix_age_max", "30d", "1s", "390d"),
            fix_future_max: s.duration("decode.fix_future_max", "5m", "0s", "30d"),
        };
        let batch = crate::batch::Limits {
            rows_max: s.within("batch.rows_max", 5_000, 1..=1_000_000),
            age_max: s.duration("batch.age_max", "1s", "10ms", "60s"),
            bytes_max: s.within("batch.bytes_max", 8_388_608, 1_048_576..=1_073_741_824),
        };
        let (url, with_tls) = s.checked("clickhouse.url", "http://localhost:8123".to_owned(), http_url);
        let ca = s.path("clickhouse.ca_file");
        let tls = s.tls(tls::Files { section: "clickhouse", ca, cert: None, key: None }, with_tls);
        let clickhouse = ClickHouse {
            url,
            tls,
            database: s.checked("clickhouse.database", "fleet".to_owned(), identifier),
            user: s.value("clickhouse.user", "default".to_owned()),
            password: s.secret("clickhouse.password"),
            inserts_in_flight: s.within("clickhouse.inserts_in_flight", 2, 1..=16),
            insert_timeout: s.duration("clickhouse.insert_timeout", "60s", "1s", "10m"),
            async_insert: s.value("clickhouse.async_insert", false),
        };
        let dir = s.optional("spool.dir").map(PathBuf::from);
        let bytes_max = s.within("spool.bytes_max", 1_073_741_824, 1_048_576..=u64::from(u32::MAX) * 1_024);
        if dir.is_some() && bytes_max < batch.bytes_max as u64 {
            s.violations
                .push("spool.bytes_max: at least batch.bytes_max, or a batch may never fit".to_owned());
        }
        let spool = dir.map(|dir| Spool { dir, bytes_max });
        let http = Http { listen: s.value("http.listen", SocketAddr::from(([127, 0, 0, 1], 9464))) };
        let shutdown = Shutdown {
            grace: s.duration("shutdown.grace", "25s", "1s", "1h"),
            leave: s.value("shutdown.leave", false),
        };
        let log = Log {
            format: s.value("log.format", LogFormat::Text),
            filter: s.checked("log.filter", "info".to_owned(), log_filter),
        };
        Self { mqtt, decode, batch, clickhouse, spool, http, shutdown, log, effective: Vec::new() }
    }

    /// Every key with its effective value as TOML would have it, in order; secrets redacted.
    #[must_use]
    pub fn effective(&self) -> &[(String, String)] {
        &self.effective
    }
}

impl fmt::Display for Config {
    /// The effective configuration as a TOML file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut open_section = "";
        for (key, value) in &self.effective {
            let (section, name) = key.split_once('.').unwrap_or(("", key));
            if section != open_section {
                writeln!(f, "{}[{section}]", if open_section.is_empty() { "" } else { "\n" })?;
                open_section = section;
            }
            writeln!(f, "{name} = {value}")?;
        }
        Ok(())
    }
}

/// Hands out settings by key, and remembers what was wrong and what is left.
struct Settings {
    given: BTreeMap<String, Value>,
    known: Vec<String>,
    effective: Vec<(String, String)>,
    violations: Vec<String>,
}

impl Settings {
    fn new(values: config::Map<String, Value>) -> Self {
        let mut given = BTreeMap::new();
        flatten("", values, &mut given);
        Self { given, known: Vec::new(), effective: Vec::new(), violations: Vec::new() }
    }

    /// The value of `key`, or `default`.
    fn value<T: Setting>(&mut self, key: &str, default: T) -> T {
        let value = self.given(key).unwrap_or(default);
        self.effective.push((key.to_owned(), value.show()));
        value
    }

    fn given<T: Setting>(&mut self, key: &str) -> Option<T> {
        self.known.push(key.to_owned());
        let value = self.given.remove(key)?;
        let parsed = T::parse(value);
        parsed.map_err(|wanted| self.violations.push(format!("{key}: {wanted}"))).ok()
    }

    /// An empty text is none: an environment often cannot say it otherwise.
    fn given_text(&mut self, key: &str) -> Option<String> {
        self.given(key).filter(|text: &String| !text.is_empty())
    }

    fn optional(&mut self, key: &str) -> Option<String> {
        let value = self.given_text(key);
        self.effective.push((key.to_owned(), value.clone().unwrap_or_default().show()));
        value
    }

    /// `key`, or the file that `{key}_file` names.
    fn secret(&mut self, key: &str) -> Option<Secret> {
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
            (Some(secret), None) => Some(Secret::Inline(secret)),
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

    fn path(&mut self, key: &str) -> Option<PathBuf> {
        self.optional(key).map(PathBuf::from)
    }

    /// The files of a section, if its URL says that they are used.
    fn tls(&mut self, files: tls::Files, with_tls: Option<bool>) -> Option<tls::Files> {
        let section = files.section;
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
    fn checked<T: Setting + Clone, U: Default>(
        &mut self,
        key: &str,
        default: T,
        check: fn(T) -> Result<U, String>,
    ) -> U {
        let value = self.value(key, default);
        check(value).map_err(|wanted| self.violations.push(format!("{key}: {wanted}"))).unwrap_or_default()
    }

    fn within<T>(&mut self, key: &str, default: T, range: std::ops::RangeInclusive<T>) -> T
    where
        T: Setting + PartialOrd + fmt::Display + Copy,
    {
        let value = self.value(key, default);
        if !range.contains(&value) {
            self.violations.push(format!("{key}: {value} is outside {}..={}", range.start(), range.end()));
        }
        value
    }

    fn duration(&mut self, key: &str, default: &str, min: &str, max: &str) -> Duration {
        let parse =
            |text| humantime::parse_duration(text).expect("the durations in this file are well formed");
        let value = self.value(key, parse(default));
        if value < parse(min) || value > parse(max) {
            self.violations
                .push(format!("{key}: {} is outside {min}..={max}", humantime::format_duration(value)));
        }
        value
    }

    fn finish(mut self) -> Result<Vec<(String, String)>, Error> {
        for key in self.given.keys() {
            let nearest = self.known.iter().min_by_key(|known| distance(known, key));
            self.violations
                .push(format!("{key}: unknown key; did you mean {}?", nearest.map_or("", |key| key)));
        }
        if self.violations.is_empty() { Ok(self.effective) } else { Err(Error::Violations(self.violations)) }
    }
}

fn flatten(prefix: &str, values: config::Map<String, Value>, into: &mut BTreeMap<String, Value>) {
    for (name, value) in values {
        let key = if prefix.is_empty() { name } else { format!("{prefix}.{name}") };
        if let ValueKind::Table(table) = value.kind {
            flatten(&key, table, into);
        } else {
            into.insert(key, value);
        }
    }
}

/// Letters that differ, roughly: enough to find the key that was meant.
fn distance(known: &str, given: &str) -> usize {
    let common = known.chars().zip(given.chars()).take_while(|(a, b)| a == b).count();
    let common_end = known.chars().rev().zip(given.chars().rev()).take_while(|(a, b)| a == b).count();
    (known.len() + given.len()).saturating_sub(2 * common + common_end)
}

/// Host, port, and whether with TLS.
fn broker_address(text: String) -> Result<(String, u16, Option<bool>), String> {
    let (url, tls) = server_url(&text, ["mqtt", "mqtts"], "mqtt.username and mqtt.password_file")?;
    // An IPv6 address stands in brackets.
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    Ok((host, url.port().unwrap_or(if tls { 8883 } else { 1883 }), Some(tls)))
}

/// The URL, and whether with TLS.
fn http_url(text: String) -> Result<(String, Option<bool>), String> {
    let (_, tls) = server_url(&text, ["http", "https"], "clickhouse.user and clickhouse.password_file")?;
    Ok((text, Some(tls)))
}

/// `scheme://host:port`; the second scheme is that with TLS. A URL that is refused is not repeated: it may hold
/// a password.
fn server_url(text: &str, schemes: [&str; 2], login_goes_to: &str) -> Result<(url::Url, bool), String> {
    let [plain, tls] = schemes;
    let wanted = format!("{plain}://host:port or {tls}://host:port is wanted");
    let url = url::Url::parse(text).map_err(|error| format!("not a URL ({error}): {wanted}"))?;
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        return Err(format!("put the login into {login_goes_to}, not into the URL"));
    }
    let complete = schemes.contains(&url.scheme()) && url.host_str().is_some_and(|host| !host.is_empty());
    if !complete || url.fragment().is_some() || !matches!(url.path(), "" | "/") {
        return Err(wanted);
    }
    let with_tls = url.scheme() == tls;
    Ok((url, with_tls))
}

fn client_id(text: String) -> Result<String, String> {
    if text.is_empty() || text.len() > 200 || text.chars().any(char::is_control) {
        return Err(
            "1-200 bytes without control characters are wanted, unique in the group and stable over \
                    restarts (the default is the host's name)"
                .to_owned(),
        );
    }
    Ok(text)
}

fn group(text: String) -> Result<String, String> {
    if text.is_empty() || text.contains(['/', '+', '#']) {
        return Err(format!("\"{text}\": a share group is a name without / + #"));
    }
    Ok(text)
}

fn topics(topics: Vec<String>) -> Result<Vec<String>, String> {
    if topics.is_empty() {
        return Err("at least one topic is wanted".to_owned());
    }
    for topic in &topics {
        let plus_levels = topic.split('/').filter(|level| *level == "+").count();
        if plus_levels != 1
            || topic.matches('+').count() != 1
            || topic.contains('#')
            || topic.starts_with('$')
        {
            return Err(format!(
                "\"{topic}\": a filter with exactly one level + (the driver's id) is wanted, \
                 without # and without $share/ (mqtt.group says that)"
            ));
        }
    }
    Ok(topics)
}

fn identifier(text: String) -> Result<String, String> {
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if text.is_empty() || !plain || text.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(format!(
            "\"{text}\": a name of letters, digits and _ is wanted, not beginning with a digit"
        ));
    }
    Ok(text)
}

fn log_filter(text: String) -> Result<String, String> {
    match text.parse::<tracing_subscriber::filter::Targets>() {
        Ok(_) => Ok(text),
        Err(error) => {
            Err(format!("\"{text}\" is not a filter such as \"info\" or \"milepost=debug,info\": {error}"))
        }
    }
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(toml: &str) -> Result<Config, Error> {
        let source = config::File::from_str(toml, config::FileFormat::Toml);
        let values =
            config::Config::builder().add_source(source).build().unwrap().cache.into_table().unwrap();
        Config::from_values(values)
    }

    fn violations(toml: &str) -> Vec<String> {
        match with(toml) {
            Err(Error::Violations(violations)) => violations,
            other => panic!("expected violations, got {other:?}"),
        }
    }

    #[test]
    fn the_defaults_are_usable_and_shown_as_the_file_that_gives_them() {
        let defaults = Config::defaults().unwrap();
        let again = with(&defaults.to_string()).unwrap();
        assert_eq!(defaults.effective(), again.effective());
        assert_eq!(defaults.batch.rows_max, 5_000);
        assert_eq!(defaults.mqtt.port, 1883);
    }

    #[test]
    fn a_url_says_whether_there_is_tls_and_where() {
        let address = |url: &str| broker_address(url.to_owned()).unwrap();
        assert_eq!(address("mqtt://h"), ("h".to_owned(), 1883, Some(false)));
        assert_eq!(address("mqtts://h"), ("h".to_owned(), 8883, Some(true)));
        assert_eq!(address("mqtts://[::1]:1"), ("::1".to_owned(), 1, Some(true)));
        assert!(broker_address("https://h".to_owned()).is_err());
        assert_eq!(http_url("https://h:8443".to_owned()).unwrap().1, Some(true));
        assert!(http_url("mqtt://h".to_owned()).is_err());
    }

    #[test]
    fn all_violations_are_told_at_once() {
        let told = violations(
            "[mqtt]\nurl = 'http://x'\ntopics = ['drivers/#', 'a/+/b']\nqos = 2\nkeep_alive = '1s'\nqoos = 1\n\
             [clickhouse]\ndatabase = 'a-b'\ninsert_timeout = 'soon'\n[log]\nformat = 'xml'\nfilter = 'a=b=c'\n",
        );
        for key in [
            "mqtt.url",
            "mqtt.topics",
            "mqtt.qos",
            "mqtt.keep_alive",
            "mqtt.qoos",
            "clickhouse.database",
            "clickhouse.insert_timeout",
            "log.format",
            "log.filter",
        ] {
            assert_eq!(
                told.iter().filter(|told| told.starts_with(&format!("{key}:"))).count(),
                1,
                "{key} in {told:#?}"
            );
        }
        assert_eq!(told.len(), 9, "{told:#?}");
        assert!(told.iter().any(|told| told.contains("did you mean mqtt.qos?")), "{told:#?}");
    }

    #[test]
    fn what_is_shown_can_be_read_again() {
        for name in ["Mu\u{308}nchen", "a\u{1}b", "quo\"te\\", "a\u{0}", "tab\t"] {
            let shown = name.to_owned().show();
            let again = with(&format!("[clickhouse]\nuser = {shown}")).unwrap();
            assert_eq!(again.clickhouse.user, name, "{shown}");
        }
    }

    #[test]
    fn a_spool_has_room_for_a_batch() {
        assert_eq!(violations("[spool]\ndir = '/s'\nbytes_max = 8388607").len(), 1);
        assert!(with("[spool]\nbytes_max = 8388607").is_ok(), "it is off");
        assert!(with("[spool]\ndir = '/s'\nbytes_max = 8388608").unwrap().spool.is_some());
    }

    #[test]
    fn topics_have_one_plus_and_no_share_prefix() {
        for bad in ["a/b", "+/+", "a+/b", "$share/g/a/+", "a/+/#", ""] {
            assert!(topics(vec![bad.to_owned()]).is_err(), "{bad}");
        }
        assert!(topics(vec!["drivers/+/gps".to_owned(), "+".to_owned()]).is_ok());
        assert!(topics(Vec::new()).is_err());
    }

    #[test]
    fn secrets_are_not_shown() {
        let config =
            with("[mqtt]\nusername = 'u'\npassword = 'hunter2'\n[clickhouse]\npassword = 'hunter3'").unwrap();
        let shown = format!("{config} {config:?}");
        assert!(!shown.contains("hunter"), "{shown}");
        assert_eq!(config.mqtt.password.unwrap().read().unwrap(), "hunter2");
    }

    #[test]
    fn secrets_that_were_put_in_a_wrong_place_are_not_shown_either() {
        for toml in [
            "[mqtt]\nurl = 'mqtt://u:hunter2@h'",
            "[mqtt]\nurl = 'mqtts://u:hunter2@h'",
            "[mqtt]\nurl = 'mqtt://u:hunter2@h:port'",
            "[mqtt]\nusername = 'u'\npassword_file = '/none'\n[clickhouse]\nurl = 'https://u:hunter2@h:8443'",
            "[clickhouse]\nurl = 'http://h:8123/?user=u&password=hunter2'",
        ] {
            let told = violations(toml).join("\n");
            assert!(!told.contains("hunter"), "{told}");
        }
        let source = config::File::from_str("[mqtt]\npassword = hunter2", config::FileFormat::Toml);
        let error = config::Config::builder().add_source(source).build().unwrap_err();
        let told = Error::source(&error).to_string();
        assert!(!told.contains("hunter") && told.contains("line 2"), "{told}");
    }

    #[test]
    fn a_secret_has_one_source_and_its_file_must_be_readable() {
        assert_eq!(violations("[clickhouse]\npassword = 'a'\npassword_file = '/b'").len(), 1);
        assert_eq!(violations("[clickhouse]\npassword_file = '/nowhere/at/all'").len(), 1);
        assert_eq!(violations("[mqtt]\npassword = 'whose?'").len(), 1);
    }
}
