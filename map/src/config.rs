//! Builds a validated [`Config`] from defaults, file and environment, in this order: later sources
//! override earlier ones. Uses the same library and rules as milepost.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName};
use milepost_config::{Error, Log, Secret, Server, Settings, settings, settings_of, show};

use crate::access::{Access, viewers};
use crate::fleet::DRIVERS_MAX;

/// Prefix of environment variables, as in `MILEPOST_MAP__SECTION__KEY`.
const ENVIRONMENT_PREFIX: &str = "MILEPOST_MAP";
/// File that is read if it exists and neither `--config` nor `MILEPOST_MAP_CONFIG` names a file.
const DEFAULT_FILE: &str = "milepost-map.toml";

/// The whole configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// `[clickhouse]`
    pub clickhouse: ClickHouse,
    /// `[http]`
    pub http: Http,
    /// `[map]`
    pub map: Map,
    /// `[fences]`
    pub fences: Fences,
    /// `[access]`
    pub access: Access,
    /// `[log]`
    pub log: Log,
    effective: Vec<(String, String)>,
}

/// The ClickHouse server, and the limits of a query.
#[derive(Debug, Clone)]
pub struct ClickHouse {
    pub server: Server,
    /// Time limit of every query except those of the query loop.
    pub query_timeout: Duration,
    /// Maximum memory of one query on the server, in bytes.
    pub query_memory_bytes_max: u64,
    /// Maximum number of rows that one query may read.
    pub query_rows_max: u64,
    /// Maximum number of concurrent requests that query ClickHouse, over all viewers: for lists,
    /// tracks, cells, fences, alerts and so on.
    pub queries_max: usize,
}

/// Listener, logins and limits.
#[derive(Debug, Clone)]
pub struct Http {
    pub listen: SocketAddr,
    /// PEM: certificate and key; `None`: plain text.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// A proxy authenticates and encrypts.
    pub behind_proxy: bool,
    /// Name and password with which people log in (HTTP Basic).
    pub login: Option<(String, Secret)>,
    /// Header in which the proxy names the viewer; requests without it are refused.
    pub user_header: Option<HeaderName>,
    /// Bearer token with which programs log in; with `user_header`, only the proxy uses it.
    pub token: Option<Secret>,
    /// Maximum number of open pages.
    pub viewers_max: usize,
    /// Maximum number of open connections.
    pub connections_max: usize,
}

/// `[fences]`: the editors, and the ClickHouse login that writes for them.
#[derive(Debug, Clone)]
pub struct Fences {
    /// ClickHouse login that writes fences, cards of drivers, and acknowledgements of alerts;
    /// `None`: the map is read-only.
    pub writer: Option<Server>,
    /// Viewers who may edit, as named in `http.user_header`; empty: every viewer.
    pub editors: Vec<String>,
}

/// `[map]`: style, thresholds and limits of the page.
#[derive(Debug, Clone)]
pub struct Map {
    /// URL of a MapLibre style; `None`: the page draws its own background, or `basemap`.
    pub style_url: Option<String>,
    /// A PMTiles file in Protomaps' schema.
    pub basemap: Option<PathBuf>,
    /// A driver without a fix for this long counts as silent.
    pub silent_after: Duration,
    /// A driver without a fix for this long is drawn only on request.
    pub hidden_after: Duration,
    /// Attributes that hold drivers' names and groups.
    pub names: Names,
    /// Further origins from which the style loads tiles, glyphs and sprites.
    pub style_origins: Vec<String>,
    /// Maximum number of drivers in memory.
    pub drivers_max: usize,
    /// Maximum number of drivers in view that are shown one by one. If more drivers are in view,
    /// all are grouped.
    pub points_max: usize,
    /// Interval of a full read, which removes erased drivers.
    pub reread: Duration,
}

/// Attributes that name drivers; the table `drivers` overrides them.
#[derive(Debug, Clone, Default)]
pub struct Names {
    name_attribute: Option<String>,
    group_attribute: Option<String>,
}

impl Names {
    /// Returns whether drivers' names or groups come from attributes of their fixes.
    #[must_use]
    pub fn uses_attributes(&self) -> bool {
        self.name_attribute.is_some() || self.group_attribute.is_some()
    }

    /// Returns the attribute that holds a driver's name; empty: none.
    #[must_use]
    pub fn name_attribute(&self) -> &str {
        self.name_attribute.as_deref().unwrap_or_default()
    }

    /// Returns the attribute that holds a driver's group; empty: none.
    #[must_use]
    pub fn group_attribute(&self) -> &str {
        self.group_attribute.as_deref().unwrap_or_default()
    }
}

impl Config {
    /// Reads the file (`path`, or `./milepost-map.toml` if it exists), then the environment, which
    /// overrides the file.
    ///
    /// # Errors
    /// [`Error::Source`]: the file is missing or not TOML; [`Error::Violations`]: its content is
    /// invalid.
    pub fn load(path: Option<&Path>, behind_proxy: bool) -> Result<Self, Error> {
        Self::from_settings(&mut settings(path, DEFAULT_FILE, ENVIRONMENT_PREFIX)?, behind_proxy)
    }

    /// Parses the text of a file, without the environment.
    ///
    /// # Errors
    /// See [`Config::load`].
    pub fn parse(toml: &str) -> Result<Self, Error> {
        Self::from_settings(&mut settings_of(toml)?, false)
    }

    fn from_settings(settings: &mut Settings, behind_proxy: bool) -> Result<Self, Error> {
        let (clickhouse, http) = (ClickHouse::read(settings), Http::read(settings, behind_proxy));
        let fences = Fences::read(settings, &clickhouse.server, &http);
        let access = Access {
            viewers: settings.checked("access.viewers", Vec::new(), viewers),
            links_key: settings.secret("access.links_key"),
        };
        if !access.viewers.is_empty() && http.user_header.is_none() && http.login.is_none() {
            settings.violations.push(
                "access.viewers: requires http.user_header or http.username, which name viewers"
                    .to_owned(),
            );
        }
        if access.links_key.is_some() && !http.requires_login() && !http.behind_proxy {
            settings.violations.push(
                "access.links_key: requires a login or http.behind_proxy, because without one no \
                 link is needed"
                    .to_owned(),
            );
        }
        let (map, log) = (Map::read(settings), Log::read(settings));
        let effective = settings.finish()?;
        Ok(Self { clickhouse, http, map, fences, access, log, effective })
    }

    /// Returns every key with its effective value in TOML syntax; secrets redacted.
    #[must_use]
    pub fn effective(&self) -> &[(String, String)] {
        &self.effective
    }
}

impl fmt::Display for Config {
    /// Writes the effective configuration as a TOML file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(&self.effective, f)
    }
}

impl ClickHouse {
    fn read(settings: &mut Settings) -> Self {
        Self {
            server: Server::read(settings),
            query_timeout: settings.duration("clickhouse.query_timeout", "10s", "1s", "2m"),
            // The default is below what deploy/clickhouse/access.sql allows a reader.
            query_memory_bytes_max: settings.in_range(
                "clickhouse.query_memory_bytes_max",
                2_000_000_000,
                1 << 20..=u64::MAX / 2,
            ),
            query_rows_max: settings.in_range(
                "clickhouse.query_rows_max",
                1_000_000_000,
                1..=u64::MAX / 2,
            ),
            queries_max: settings.in_range("clickhouse.queries_max", 4, 1..=64),
        }
    }
}

impl Http {
    fn read(settings: &mut Settings, behind_proxy: bool) -> Self {
        let listen = settings.value("http.listen", SocketAddr::from(([127, 0, 0, 1], 9480)));
        let (cert, key) = (settings.path("http.cert_file"), settings.path("http.key_file"));
        let behind_proxy = settings.value("http.behind_proxy", false) || behind_proxy;
        let (username, password) =
            (settings.optional("http.username"), settings.secret("http.password"));
        let token = settings.secret("http.token");
        if cert.is_some() != key.is_some() {
            settings
                .violations
                .push("http.cert_file: set it and http.key_file, or neither".to_owned());
        }
        let tls = cert.zip(key);
        if let Some((cert, key)) = &tls {
            settings.violations.extend(crate::tls::read(cert, key).err());
        }
        if username.is_some() != password.is_some() {
            settings
                .violations
                .push("http.username: set it and http.password_file, or neither".to_owned());
        }
        if username
            .as_ref()
            .is_some_and(|name| name.contains(':') || name.chars().any(char::is_control))
        {
            settings
                .violations
                .push("http.username: must not contain : or control characters".to_owned());
        }
        let login = username.zip(password);
        let user_header = settings.optional("http.user_header").and_then(|name| {
            let header = HeaderName::try_from(&name);
            if header.is_err() {
                settings
                    .violations
                    .push(format!("http.user_header: \"{name}\" is not a valid header name"));
            }
            header.ok()
        });
        if user_header.is_some() && (!behind_proxy || login.is_some()) {
            let why = "http.user_header: requires http.behind_proxy = true and no http.username: \
                       the proxy logs people in";
            settings.violations.push(why.to_owned());
        }
        if user_header.is_some() && !listen.ip().is_loopback() && token.is_none() {
            settings.violations.push(format!(
                "http.user_header: anyone who reaches {listen} could send the header: set \
                 http.token_file, and let only the proxy send `Authorization: Bearer` with this \
                 token; or listen on the loopback address"
            ));
        }
        let is_guarded = tls.is_some() && (login.is_some() || token.is_some());
        if !listen.ip().is_loopback() && !behind_proxy && !is_guarded {
            settings.violations.push(format!(
                "http.listen: {listen} can be reached from other machines, and positions are \
                 personal data: set http.cert_file and http.key_file, and http.username and \
                 http.password_file (people) or http.token_file (programs); or, if a proxy in \
                 front of it authenticates and encrypts, http.behind_proxy = true (--behind-proxy)"
            ));
        }
        Self {
            listen,
            tls,
            behind_proxy,
            user_header,
            login,
            token,
            viewers_max: settings.in_range("http.viewers_max", 200, 1..=10_000),
            connections_max: settings.in_range("http.connections_max", 2_000, 8..=100_000),
        }
    }

    /// Returns the viewer's name from the proxy's header; `None`: absent or ambiguous.
    #[must_use]
    pub fn user<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        // If the proxy appends its header to the client's instead of replacing it, the name cannot
        // be trusted.
        let mut given = headers.get_all(self.user_header.as_ref()?).iter();
        let (Some(name), None) = (given.next(), given.next()) else { return None };
        Some(str::from_utf8(name.as_bytes()).ok()?.trim()).filter(|name| !name.is_empty())
    }

    /// Returns whether requests need a login.
    #[must_use]
    pub fn requires_login(&self) -> bool {
        self.login.is_some() || self.token.is_some()
    }
}

impl Fences {
    fn read(settings: &mut Settings, server: &Server, http: &Http) -> Self {
        let (user, password) =
            (settings.optional("fences.user"), settings.secret("fences.password"));
        if password.is_some() && user.is_none() {
            settings.violations.push("fences.user: required with a password".to_owned());
        }
        let editors = settings.value("fences.editors", Vec::<String>::new());
        if !editors.is_empty() && http.user_header.is_none() {
            settings.violations.push(
                "fences.editors: requires http.user_header, which names the viewer".to_owned(),
            );
        }
        Self { writer: user.map(|user| Server { user, password, ..server.clone() }), editors }
    }
}

impl Map {
    fn read(settings: &mut Settings) -> Self {
        let style_url = settings.optional("map.style_url");
        let style_origins = settings.checked("map.style_origins", Vec::new(), origins);
        if let Some(Err(why)) = style_url.as_deref().map(origin) {
            settings.violations.push(format!("map.style_url: {why}"));
        }
        let silent_after = settings.duration("map.silent_after", "5m", "5s", "30d");
        let hidden_after = settings.duration("map.hidden_after", "30d", "1m", "36500d");
        if hidden_after <= silent_after {
            settings
                .violations
                .push("map.hidden_after: expected more than map.silent_after".to_owned());
        }
        let basemap = settings.path("map.basemap");
        if basemap.is_some() && style_url.is_some() {
            settings
                .violations
                .push("map.basemap: set either map.basemap or map.style_url, not both".to_owned());
        }
        Self {
            style_url,
            basemap,
            silent_after,
            hidden_after,
            names: Names {
                name_attribute: settings.optional("map.name_attribute"),
                group_attribute: settings.optional("map.group_attribute"),
            },
            style_origins,
            drivers_max: settings.in_range("map.drivers_max", 2_000_000, 1..=DRIVERS_MAX),
            points_max: settings.in_range("map.points_max", 20_000, 16..=1_000_000),
            reread: settings.duration("map.reread", "5m", "5s", "1d"),
        }
    }

    /// Returns the origins, besides the map's own, that the page may load from.
    #[must_use]
    pub fn origins(&self) -> Vec<String> {
        let style_origin = self.style_url.as_deref().and_then(|url| origin(url).ok());
        style_origin.into_iter().chain(self.style_origins.iter().cloned()).collect()
    }
}

fn origins(texts: Vec<String>) -> Result<Vec<String>, String> {
    texts.iter().filter(|text| !text.is_empty()).map(|text| origin(text)).collect()
}

/// Returns `scheme://host:port` of a URL, the form of a Content-Security-Policy.
fn origin(text: &str) -> Result<String, String> {
    let invalid = || format!("\"{text}\": expected https://host/…");
    let url = url::Url::parse(text).map_err(|_| invalid())?;
    let is_good = matches!(url.scheme(), "http" | "https")
        && url.username().is_empty()
        && url.password().is_none();
    if is_good { Ok(url.origin().ascii_serialization()) } else { Err(invalid()) }
}
