//! The configuration: defaults, the file and the environment become one validated [`Config`].
//!
//! ```text
//! defaults ◀ milepost.toml ◀ MILEPOST__SECTION__KEY ─▶ Config
//!                                                   └▶ all violations at once
//! ```
//!
//! The file overrides the defaults, and the environment overrides the file.
//!
//! Guarantee: either every value is usable and every key known, or all violations are reported at
//! once. Each violation names the key, what is wrong and what is valid. At most 100 violations are
//! listed; the rest are counted. Each key and its default are in one place: `sources.rs` for
//! `[[sources]]` and `[formats.NAME]`, `fields.rs` for `[fields.NAME]`, `sections.rs` for all other
//! keys.
//!
//! A secret is never shown. milepost does not start with an unknown key.

mod field;
mod fields;
mod rules;
mod secret;
mod sections;
mod setting;
mod settings;
mod sources;
mod types;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use self::field::{Field, FieldType};
pub use self::rules::{client_id, peers};
pub use self::secret::Secret;
pub use self::sections::STORED_DAYS_MIN;
pub use self::setting::Setting;
pub use self::settings::{Error, Settings};
pub use self::types::{
    ClickHouse, Events, Http, InsertQuorum, LeaveGroup, Log, LogFormat, Mqtt, Replication,
    Retention, Server, Shutdown, Spool, Tier, Webhook,
};
use milepost_core::batch;
use milepost_core::peers::Peer;
use milepost_decode as decode;
use milepost_decode::formats::Mapping;

/// Prefix of the environment variables that are settings: `MILEPOST__SECTION__KEY`.
const ENVIRONMENT_PREFIX: &str = "MILEPOST";
/// The file that is read if it exists, unless `--config` or `MILEPOST_CONFIG` names another one.
const DEFAULT_FILE: &str = "milepost.toml";

/// The validated configuration.
#[derive(Debug, Clone)]
pub struct Config {
    pub mqtt: Mqtt,
    /// The sources of `[[sources]]`, or of `mqtt.topics`.
    pub sources: Vec<decode::Source>,
    /// The mappings of `[formats.NAME]`, for `milepost import --format NAME`.
    pub formats: BTreeMap<String, Arc<Mapping>>,
    pub decode: decode::Limits,
    pub batch: batch::Limits,
    /// `batch.members_age_max`; zero if it is off.
    pub members_age_max: Duration,
    pub clickhouse: ClickHouse,
    /// `[spool]`; `None` if there is no spool.
    pub spool: Option<Spool>,
    pub http: Http,
    pub shutdown: Shutdown,
    /// Settings of `milepost events`.
    pub events: Events,
    /// `[webhook]`; `None` if events are not posted.
    pub webhook: Option<Webhook>,
    pub log: Log,
    /// Every key with its effective value as TOML; secrets are redacted.
    effective: Vec<(String, String)>,
}

impl Config {
    /// Reads the file `path`, or `./milepost.toml` if `path` is `None` and that file exists. The
    /// environment overrides the file.
    ///
    /// # Errors
    /// [`Error::Source`] for a file that is missing or not TOML, [`Error::Violations`] for invalid
    /// settings.
    pub fn load(path: Option<&Path>) -> Result<Self, Error> {
        Self::from_settings(&mut settings(path, DEFAULT_FILE, ENVIRONMENT_PREFIX)?)
    }

    /// Reads a configuration from the text of a file. Ignores the environment.
    ///
    /// # Errors
    /// Fails like [`Config::load`].
    pub fn parse(toml: &str) -> Result<Self, Error> {
        Self::from_settings(&mut merged(toml, None)?)
    }

    /// Returns the defaults.
    ///
    /// # Errors
    /// The host's name is not a valid client id. No other default can be invalid.
    pub fn defaults() -> Result<Self, Error> {
        Self::from_settings(&mut Settings::default())
    }

    fn from_settings(settings: &mut Settings) -> Result<Self, Error> {
        let mut mqtt = Mqtt::read(settings);
        let fields = fields::read(settings);
        let (sources, formats) = sources::read(settings, &mqtt.topics, &fields);
        mqtt.topics = sources.iter().map(|source| source.topic().to_owned()).collect();
        let decode = sections::decode_limits(settings, mqtt.max_packet_bytes);
        let batch = sections::batch_limits(settings);
        let members_age_max = sections::members_age_max(settings, &batch);
        let clickhouse = ClickHouse { fields, ..ClickHouse::read(settings, &mqtt.client_id) };
        clickhouse.retention.check_against(settings, &decode);
        let spool = Spool::read(settings, &batch);
        let (http, shutdown) = (Http::read(settings), Shutdown::read(settings, members_age_max));
        let (events, webhook, log) =
            (Events::read(settings), Webhook::read(settings), Log::read(settings));
        let effective = settings.finish()?;
        Ok(Self {
            mqtt,
            sources,
            formats,
            decode,
            batch,
            members_age_max,
            clickhouse,
            spool,
            http,
            shutdown,
            events,
            webhook,
            log,
            effective,
        })
    }

    /// Returns the known addresses of members: `http.listen` on this host, then `shutdown.peers`.
    pub fn members(&self) -> Vec<Peer> {
        let (ip, port) = (self.http.listen.ip(), self.http.listen.port());
        let host = if ip.is_unspecified() { "127.0.0.1".to_owned() } else { ip.to_string() };
        let this_member = Peer { host, port };
        let peers = self.shutdown.peers.iter().filter(|peer| **peer != this_member).cloned();
        std::iter::once(this_member.clone()).chain(peers).collect()
    }

    /// Returns every key with its effective value as TOML, in order. Secrets are redacted.
    #[must_use]
    pub fn effective(&self) -> &[(String, String)] {
        &self.effective
    }
}

/// Reads the file `path`, or `default_file` if `path` is `None` and that file exists. Environment
/// variables that begin with `prefix` and two underscores override the file.
///
/// # Errors
/// [`Error::Source`] for a file that is missing or not TOML.
pub fn settings(path: Option<&Path>, default_file: &str, prefix: &str) -> Result<Settings, Error> {
    // Do not read the file with the config library: the library replaces bytes that are not UTF-8,
    // which would corrupt a password.
    let text = match (path, std::fs::read_to_string(path.unwrap_or(Path::new(default_file)))) {
        (_, Ok(text)) => text,
        (None, Err(error)) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        (path, Err(error)) => {
            let path = path.unwrap_or(Path::new(default_file)).display();
            return Err(Error::Source(format!("{path}: {error}")));
        }
    };
    let environment = Environment::read(prefix);
    let source = config::Environment::with_prefix(prefix).prefix_separator("__").separator("__");
    let merged = merged(&text, Some(source.source(Some(environment.given))));
    let with_path = |error| match error {
        Error::Source(why) if !text.is_empty() => {
            Error::Source(format!("{}: {why}", path.unwrap_or(Path::new(default_file)).display()))
        }
        error @ (Error::Source(_) | Error::Violations(_)) => error,
    };
    let mut settings = merged.map_err(with_path)?;
    settings.violations = environment.violations;
    settings.record_empty(environment.empty);
    settings.mistaken = (prefix.to_owned(), environment.mistaken);
    Ok(settings)
}

/// The environment variables with the prefix.
#[derive(Debug, Default)]
struct Environment {
    /// Values of the variables that are not empty, by name.
    given: config::Map<String, String>,
    /// Keys of empty variables. An empty variable counts as unset, so the file's value stays.
    empty: Vec<String>,
    /// Names with one underscore after the prefix, where two are required.
    mistaken: Vec<String>,
    /// One line for each variable whose value is not UTF-8.
    violations: Vec<String>,
}

impl Environment {
    fn read(prefix: &str) -> Self {
        let mut environment = Self::default();
        for (name, value) in std::env::vars_os() {
            let Ok(name) = name.into_string() else { continue };
            let upper = name.to_uppercase();
            match (upper.strip_prefix(&format!("{prefix}__")), value.into_string()) {
                (Some(key), Ok(value)) if value.is_empty() => {
                    environment.empty.push(key.to_lowercase().replace("__", "."));
                }
                (Some(_), Ok(value)) => drop(environment.given.insert(name, value)),
                // Reject the value here: the library's error would repeat the value, which may be
                // a password.
                (Some(_), Err(_)) => environment.violations.push(format!("{name}: must be UTF-8")),
                (None, _) if upper.starts_with(&format!("{prefix}_")) => {
                    environment.mistaken.push(name)
                }
                (None, _) => {}
            }
        }
        environment
    }
}

/// Reads settings from the text of a file. Ignores the environment.
///
/// # Errors
/// Fails like [`settings`].
pub fn settings_of(toml: &str) -> Result<Settings, Error> {
    merged(toml, None)
}

/// Merges a file's text with the environment, which overrides the file.
fn merged(toml: &str, environment: Option<config::Environment>) -> Result<Settings, Error> {
    let file = config::File::from_str(toml, config::FileFormat::Toml);
    reject_list_indexes(&file)?;
    let sources = config::Config::builder().add_source(file);
    let merged = match environment {
        Some(environment) => {
            reject_list_indexes(&environment)?;
            sources.add_source(environment).build()
        }
        None => sources.build(),
    };
    let values = merged.and_then(|merged| merged.cache.into_table());
    values.map(Settings::new).map_err(|error| Error::source(&error))
}

/// Rejects keys such as `"sources[9000000000].topic"`: the library would allocate a list of that
/// length.
fn reject_list_indexes(source: &impl config::Source) -> Result<(), Error> {
    let values = source.collect().map_err(|error| Error::source(&error))?;
    let indexed = values.keys().filter(|key| key.contains('['));
    let violations: Vec<String> =
        indexed.map(|key| format!("{key}: unknown key; write [[sources]] for a list")).collect();
    if violations.is_empty() { Ok(()) } else { Err(Error::Violations(violations)) }
}

impl fmt::Display for Config {
    /// Writes the effective configuration as a TOML file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(&self.effective, f)
    }
}

/// Writes keys and their values as a TOML file.
///
/// # Errors
/// The formatter fails.
pub fn show(effective: &[(String, String)], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut open_section = "";
    for (key, value) in effective {
        let (section, name) = key.rsplit_once('.').unwrap_or(("", key));
        if section != open_section {
            let gap = if open_section.is_empty() { "" } else { "\n" };
            match section.split_once('[') {
                Some((list, _)) => writeln!(f, "{gap}[[{list}]]")?,
                None => writeln!(f, "{gap}[{section}]")?,
            }
            open_section = section;
        }
        writeln!(f, "{name} = {value}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::rules::{broker_addresses, http_url};
    use super::setting::Setting as _;
    use super::*;

    fn parse(toml: &str) -> Result<Config, Error> {
        Config::parse(toml)
    }

    fn violations(toml: &str) -> Vec<String> {
        match parse(toml) {
            Err(Error::Violations(violations)) => violations,
            other => panic!("expected violations, got {other:?}"),
        }
    }

    #[test]
    fn printed_defaults_parse_to_the_defaults() {
        let defaults = Config::defaults().unwrap();
        let parsed = parse(&defaults.to_string()).unwrap();
        assert_eq!(defaults.effective(), parsed.effective());
        assert_eq!(defaults.batch.rows_max, 5_000);
        assert_eq!(defaults.mqtt.nodes[0].to_string(), "localhost:1883");
    }

    #[test]
    fn url_scheme_decides_tls_and_default_port() {
        let shown = |urls: &[&str]| {
            let (nodes, tls) =
                broker_addresses(urls.iter().map(ToString::to_string).collect()).unwrap();
            (nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "), tls)
        };
        assert_eq!(shown(&["mqtt://h"]), ("h:1883".to_owned(), Some(false)));
        assert_eq!(shown(&["mqtts://h"]), ("h:8883".to_owned(), Some(true)));
        assert_eq!(shown(&["mqtts://[::1]:1"]), ("[::1]:1".to_owned(), Some(true)));
        assert_eq!(
            shown(&["mqtt://a", "mqtt://b:1884"]),
            ("a:1883 b:1884".to_owned(), Some(false))
        );
        assert_eq!(http_url("https://h:8443".to_owned()).unwrap().1, Some(true));
    }

    #[test]
    fn all_violations_are_reported_at_once() {
        let lines = violations(
            "[mqtt]\nurl = 'http://x'\ntopics = ['drivers/#', 'a/+/b']\nsession_expiry = '0s'\n\
             qoos = 1\n[clickhouse]\ndatabase = 'a-b'\ninsert_quorum = 'soon'\n\
             [log]\nformat = 'xml'\nfilter = 'a=b=c'\n",
        );
        for key in [
            "mqtt.url",
            "mqtt.topics",
            "mqtt.session_expiry",
            "mqtt.qoos",
            "clickhouse.database",
            "clickhouse.insert_quorum",
            "log.format",
            "log.filter",
        ] {
            assert_eq!(
                lines.iter().filter(|line| line.starts_with(&format!("{key}:"))).count(),
                1,
                "{key} in {lines:#?}"
            );
        }
        assert_eq!(lines.len(), 8, "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("did you mean mqtt.")), "{lines:#?}");
    }

    #[test]
    fn empty_string_counts_as_unset() {
        let defaults = Config::defaults().unwrap();
        for (key, _) in defaults.effective() {
            let config =
                parse(&format!("{key} = ''")).unwrap_or_else(|error| panic!("{key}: {error}"));
            if key == "events.topic" {
                assert_eq!(config.events.topic, None, "an empty topic turns MQTT off");
            } else {
                assert_eq!(config.effective(), defaults.effective(), "{key}");
            }
        }
        assert!(parse("source.topic = ''").is_ok());
        for toml in ["[[sources]]", "[[sources]]\nformat = ''\n[[sources]]\ntopic = 'a/+'"] {
            assert_one_violation(toml, "sources[1].topic: ");
        }
        assert!(parse("mqtt.topics = ''\nsource.topic = 'a/+'").is_ok());
    }

    /// Checks that there is exactly one violation, and that it begins with `start`.
    #[track_caller]
    fn assert_one_violation(toml: &str, start: &str) {
        let lines = violations(toml);
        assert!(lines.len() == 1 && lines[0].starts_with(start), "{toml}: {lines:#?}");
    }

    #[test]
    fn invalid_value_is_reported_once_with_its_key() {
        for (key, values) in [
            (
                "mqtt.url",
                &["'https://h'", "['mqtt://a', 'mqtts://b']", "'mqtt://a,mqtt://a:1883'", "[]"][..],
            ),
            (
                "mqtt.topics",
                &[
                    "'a/b'",
                    "'+/+'",
                    "'a+/b'",
                    "'$share/g/a/+'",
                    "'a/+/#'",
                    "['']",
                    "[]",
                    "\"a\tb/+\"",
                ],
            ),
            ("mqtt.topics", &["['a/+/gps', '+/x/gps']", "['a/+', 'a/+']"]),
            ("mqtt.group", &["'a/b'", "\"a\\u0000b\"", "\"a\\tb\""]),
            (
                "clickhouse.url",
                &["'mqtt://h'", "['http://a', 'http://b']", "['http://a', 'https://b']", "[]"],
            ),
            ("clickhouse.user", &["\"a\\nb\""]),
            ("clickhouse.password", &["\"a\\nb\""]),
            ("clickhouse.password_file", &["'/proc/self/status'", "'/nowhere/at/all'"]),
            ("clickhouse.cluster", &["'c'"]),
            ("clickhouse.shards", &["true"]),
            ("clickhouse.insert_quorum", &["2"]),
            ("clickhouse.replication", &["'zookeeper'"]),
            ("clickhouse.retention.positions_volume", &["'a b'", "\"a'b\""]),
            ("shutdown.leave", &["'perhaps'"]),
            (
                "shutdown.peers",
                &["'milepost'", "'milepost:0'", "'milepost:65536'", "':1'", "'a b:1'"],
            ),
            ("shutdown.peers", &["'http://milepost:9464'", "'::1:1'", "'[milepost]:1'"]),
            ("webhook.token", &["'for whom?'"]),
            ("log.filter", &["'inof'", "'milepost'", "'milepost=debgu'", "'info,inof'"]),
            ("log.filter", &["'milepost='", "'info,milepost= '", "','"]),
        ] {
            for value in values {
                assert_one_violation(&format!("{key} = {value}"), &format!("{key}: "));
            }
        }
    }

    #[test]
    fn conflicting_settings_are_reported_once() {
        for (toml, start) in [
            ("mqtt.password = 'whose?'", "mqtt.username: "),
            ("clickhouse = { password = 'a', password_file = '/b' }", "clickhouse.password: "),
            ("clickhouse = { replication = 'managed', cluster = 'c' }", "clickhouse.cluster: "),
            ("clickhouse = { replication = 'macros', cluster = \"it's\" }", "clickhouse.cluster: "),
            ("clickhouse = { replication = 'macros', shards = true }", "clickhouse.shards: "),
            (
                "clickhouse = { replication = 'macros', insert_quorum = 1 }",
                "clickhouse.insert_quorum: ",
            ),
            (
                "clickhouse = { replication = 'macros', insert_quorum = 'all' }",
                "clickhouse.insert_quorum: ",
            ),
            (
                "webhook.ca_file = '/etc/ca.pem'",
                "webhook.ca_file: nothing is sent without webhook.url",
            ),
            (
                "decode.fix_age_max = '30d'\nclickhouse.retention.positions_days = 39",
                "clickhouse.retention.positions_days: must be at least 40",
            ),
            (
                "clickhouse.retention.rejects_days = 0",
                "clickhouse.retention.rejects_days: 0 is outside",
            ),
            (
                "clickhouse.retention.rejects_days = 18251", // 2106 is too near
                "clickhouse.retention.rejects_days: 18251 is outside 1..=18250",
            ),
            (
                "clickhouse.retention.rollups_days = 7",
                "clickhouse.retention.rollups_days: must be at least 400",
            ),
            (
                "clickhouse.retention = { positions_volume = 'cold', positions_volume_days = 400 }",
                "clickhouse.retention.positions_volume_days: must be less",
            ),
            ("spool = { dir = '/s', bytes_max = 8388607 }", "spool.bytes_max: "),
            ("batch.members_age_max = '8s'", "batch.members_age_max: requires shutdown.peers"),
            (
                "batch = { age_max = '5s', members_age_max = '5s' }\nshutdown.peers = ['h:1']",
                "batch.members_age_max: must be more than batch.age_max",
            ),
            (
                "batch.members_age_max = '11s'\nshutdown.peers = ['h:1']",
                "batch.members_age_max: \"11s\" is outside 0s..=10s",
            ),
        ] {
            assert_one_violation(toml, start);
        }
        for toml in [
            "mqtt.topics = ['drivers/+/gps', '+']",
            "clickhouse.retention = { positions_days = 40, rollups_days = 40 }",
            "clickhouse.retention = { positions_days = 18250, rollups_days = 18250 }",
            "clickhouse.retention = { positions_policy = 'hot-cold', positions_volume = 's3.a' }",
            "spool.bytes_max = 8388607", // the spool is off
            "batch.members_age_max = '0s'",
            "batch.members_age_max = '8s'\nshutdown.peers = ['h:1']",
            "spool = { dir = '/s', bytes_max = 8388608 }",
            "log.filter = 'info'",
            "log.filter = 'OFF'",
            "log.filter = 'milepost=debug,info'",
            "log.filter = 'milepost=debug, warn'",
        ] {
            assert!(parse(toml).is_ok(), "{toml}");
        }
    }

    #[test]
    fn violation_states_the_valid_values() {
        for (toml, line) in [
            ("batch.rows_max = '5k'", "batch.rows_max: must be a whole number in 1..=1000000"),
            ("batch.rows_max = -1", "batch.rows_max: must be a whole number in 1..=1000000"),
            ("batch.rows_max = 0", "batch.rows_max: 0 is outside 1..=1000000"),
            ("batch.rows_max = 1.6", "batch.rows_max: must be a whole number in 1..=1000000"),
            ("batch.rows_max = true", "batch.rows_max: must be a whole number in 1..=1000000"),
            ("clickhouse.shards = 'yes'", "clickhouse.shards: must be true or false"),
            ("shutdown.leave = 5", "shutdown.leave: must be \"auto\", true or false"),
            ("events.faster_than = true", "events.faster_than: must be a number in 0..=1000"),
            ("events.faster_than = 'fast'", "events.faster_than: must be a number in 0..=1000"),
            (
                "decode.fix_age_max = '391d'\nclickhouse.retention.positions_days = 401\n\
                 clickhouse.retention.rollups_days = 401",
                "decode.fix_age_max: \"391d\" is outside 1s..=390d",
            ),
            (
                "mqtt.url = 'mqtt://h/path'",
                "mqtt.url: must be mqtt://host:port or mqtts://host:port, with nothing after the \
                 port; put a login into mqtt.username and mqtt.password_file",
            ),
        ] {
            assert_eq!(violations(toml), [line]);
        }
        assert_eq!(
            parse("decode.fix_age_max = '60d'").unwrap().to_string().matches("\"60d\"").count(),
            1
        );
    }

    #[test]
    fn thousands_of_equal_sources_are_checked_in_linear_time() {
        // Comparing and reporting every pair would take ten minutes or more: 200 million pairs, and
        // as many lines.
        let equal = "[[sources]]\ntopic = 'a/+'\nno_such_key = 1\n".repeat(20_000);
        let began = std::time::Instant::now();
        let lines = violations(&equal);
        assert!(lines.iter().any(|line| line.contains("20000 times")), "{lines:#?}");
        assert!(lines.len() <= 101, "{}", lines.len());
        assert!(began.elapsed() < std::time::Duration::from_secs(120), "{:?}", began.elapsed());
    }

    #[test]
    fn format_for_import_is_printed_and_is_known_despite_an_invalid_source() {
        let format = "[formats.acme]\nimport = true\nlat = '/y'\nlng = '/x'\n";
        let config = parse(format).unwrap();
        let again = parse(&config.to_string()).unwrap_or_else(|error| panic!("{error}: {config}"));
        assert_eq!(again.effective(), config.effective());
        let lines = violations(&format!("[[sources]]\ntopic = 'a/#'\n{format}"));
        assert!(lines.len() == 1 && lines[0].starts_with("sources[1].topic: "), "{lines:#?}");
        let lines = violations("[formats.'']\nimport = true\nlat = '/y'\nlng = '/x'\n");
        assert!(lines.len() == 1 && lines[0].contains("must be a name"), "{lines:#?}");
    }

    #[test]
    fn key_cannot_index_a_list() {
        let lines = violations("'sources[9000000000000].topic' = 'a/+'\n[mqtt]\nqos = 1");
        assert!(lines.len() == 1 && lines[0].contains("[[sources]]"), "{lines:#?}");
    }

    #[test]
    fn spaces_and_empty_parts_of_a_log_filter_have_no_meaning() {
        for (given, filter) in [
            ("milepost=debug, warn", "milepost=debug,warn"),
            ("warn, milepost = debug", "warn,milepost=debug"),
            ("info,", "info"),
        ] {
            let config = parse(&format!("log.filter = '{given}'")).unwrap();
            assert_eq!(config.log.filter, filter, "{given}");
        }
    }

    #[test]
    fn printed_string_parses_to_itself() {
        for name in ["Mu\u{308}nchen", "a\u{1}b", "quo\"te\\", "a\u{0}", "tab\t"] {
            let shown = name.to_owned().show();
            let parsed = parse(&format!("[mqtt]\nusername = {shown}")).unwrap();
            assert_eq!(parsed.mqtt.username.as_deref(), Some(name), "{shown}");
        }
    }

    #[test]
    fn shutdown_asks_peers_unless_leave_is_configured() {
        let shutdown = |toml: &str| parse(&format!("[shutdown]\n{toml}")).unwrap().shutdown;
        assert_eq!(shutdown("").leave, LeaveGroup::Auto);
        assert_eq!(shutdown("leave = true").leave, LeaveGroup::Always);
        assert_eq!(
            shutdown("leave = 'false'").leave,
            LeaveGroup::Never,
            "environment variables are strings"
        );
        let peers = shutdown("peers = 'milepost:9464,,[::1]:1,10.0.0.7:65535'").peers;
        let peers: Vec<_> = peers.iter().map(|peer| (peer.host.as_str(), peer.port)).collect();
        assert_eq!(peers, [("milepost", 9464), ("::1", 1), ("10.0.0.7", 65535)]);
    }

    #[test]
    fn replicated_tables_may_have_a_cluster_and_a_quorum() {
        let read = |toml: &str| parse(&format!("[clickhouse]\n{toml}")).unwrap().clickhouse;
        let single_server = read("insert_quorum = 0");
        assert_eq!(
            (single_server.replication, single_server.insert_quorum),
            (Replication::None, InsertQuorum::Replicas(0))
        );
        let macros = read("replication = 'macros'\ncluster = '{cluster}'\ninsert_quorum = '3'");
        assert_eq!(macros.replication, Replication::Macros);
        assert_eq!(macros.cluster.as_deref(), Some("{cluster}"));
        assert_eq!(macros.insert_quorum, InsertQuorum::Replicas(3));
        assert_eq!(read("replication = 'managed'").insert_quorum, InsertQuorum::Auto);
    }

    #[test]
    fn secrets_are_not_printed() {
        let config = parse(
            "[mqtt]\nusername = 'u'\npassword = 'hunter2'\n[clickhouse]\npassword = 'hunter3'",
        )
        .unwrap();
        let shown = format!("{config} {config:?}");
        assert!(!shown.contains("hunter"), "{shown}");
        assert_eq!(config.mqtt.password.unwrap().read().unwrap(), "hunter2");
    }

    #[test]
    fn misplaced_secrets_are_not_printed() {
        for toml in [
            "[mqtt]\nurl = 'mqtt://u:hunter2@h'",
            "[mqtt]\nurl = 'mqtts://u:hunter2@h'",
            "[mqtt]\nurl = 'mqtt://u:hunter2@h:port'",
            "[mqtt]\nusername = 'u'\npassword_file = '/none'\n\
             [clickhouse]\nurl = 'https://u:hunter2@h:8443'",
            "[clickhouse]\nurl = 'http://h:8123/?user=u&password=hunter2'",
            "[mqtt]\nurl = '[\"mqtt://u:hunter2@h\"]'",
            "[shutdown]\npeers = ['h:1', 'http://u:hunter2@x:1']",
        ] {
            let lines = violations(toml).join("\n");
            assert!(!lines.contains("hunter"), "{lines}");
        }
        let config = parse("[webhook]\nurl = 'https://h/hook?key=hunter2&to=me'").unwrap();
        assert!(config.to_string().contains("url = \"https://h/***\""), "{config}");
        assert!(!format!("{config:?}").contains("hunter"), "{config:?}");
        assert_eq!(config.webhook.unwrap().url, "https://h/hook?key=hunter2&to=me");
        for (url, shown) in [
            ("https:h?key=hunter2&to=a://b", "https://h/***"),
            (r"https:\h\hunter2", "https://h/***"),
            ("http://[::1]:8080/hunter2", "http://[::1]:8080/***"),
            ("https://h:8443/", "https://h:8443/"),
        ] {
            let config = parse(&format!("[webhook]\nurl = '{url}'")).unwrap();
            assert!(config.to_string().contains(&format!("url = \"{shown}\"")), "{config}");
        }
        let source = config::File::from_str("[mqtt]\npassword = hunter2", config::FileFormat::Toml);
        let error = config::Config::builder().add_source(source).build().unwrap_err();
        let lines = Error::source(&error).to_string();
        assert!(!lines.contains("hunter") && lines.contains("line 2"), "{lines}");
    }
}
