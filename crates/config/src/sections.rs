//! Reads the keys of the fixed sections, each with its default and its rule. `sources.rs` reads
//! `[[sources]]` and `[formats.NAME]`, and `fields.rs` reads `[fields.NAME]`. Keys in `lab` are
//! constants that only tests and the laboratory change.

use std::net::SocketAddr;
use std::time::Duration;

use super::rules::{
    broker_addresses, client_id, cluster_name, group, host_name, http_url, http_urls, identifier,
    log_filter, peers, shown_webhook_url, storage_name, topic_prefix, topics, user_name,
    webhook_url,
};
use super::settings::Settings;
use super::sources;
use super::types::{
    ClickHouse, Events, Http, InsertQuorum, LeaveGroup, Log, LogFormat, Mqtt, Replication,
    Retention, Server, Shutdown, Spool, Tier, Webhook,
};
use milepost_core::Qos;
use milepost_core::batch;
use milepost_core::consumer::Connections;
use milepost_decode as decode;
use milepost_tls as tls;

impl Mqtt {
    pub(super) fn read(settings: &mut Settings) -> Self {
        let (nodes, with_tls) = settings.checked(
            "mqtt.url",
            vec!["mqtt://localhost:1883".to_owned()],
            broker_addresses,
        );
        let username = settings.optional("mqtt.username");
        let password = settings.secret("mqtt.password");
        if password.is_some() && username.is_none() {
            settings.add_violation("mqtt.username", "required with a password");
        }
        let (ca, cert, key) = (
            settings.path("mqtt.ca_file"),
            settings.path("mqtt.cert_file"),
            settings.path("mqtt.key_file"),
        );
        let tls = settings.tls(tls::Files { server: tls::Server::Broker, ca, cert, key }, with_tls);
        Self {
            nodes,
            tls,
            username,
            password,
            client_id: settings.checked("mqtt.client_id", host_name(), client_id),
            group: settings.checked("mqtt.group", "milepost".to_owned(), group),
            topics: Self::topics(settings),
            // Off by default: some brokers close the connection of a client that subscribes without
            // permission.
            broker_metrics: settings.value("mqtt.broker_metrics", false),
            // At QoS 0 the broker forgets a message once it is sent, so milepost could lose it.
            qos: settings.constant("qos", Qos::AtLeastOnce),
            connections: settings.value("mqtt.connections", Connections::Auto),
            // The broker's own limit may be lower. Above 32,767, packet ids of a resumed session
            // can collide in EMQX.
            receive_maximum: settings.constant("receive_maximum", 32_000),
            // A broker needs more than 5 s to resume a large session.
            connect_timeout: settings.constant("connect_timeout", Duration::from_secs(30)),
            session_expiry: settings.duration("mqtt.session_expiry", "2m", "1s", "1000d"),
            keep_alive: settings.constant("keep_alive", Duration::from_secs(10)),
            max_packet_bytes: settings.in_range(
                "mqtt.max_packet_bytes",
                1_048_576,
                1_024..=268_435_455,
            ),
            buffer_bytes_max: settings.in_range(
                "mqtt.buffer_bytes_max",
                67_108_864,
                1_048_576..=usize::MAX,
            ),
        }
    }

    /// Reads `mqtt.topics`; empty if `[[sources]]` are given.
    fn topics(settings: &mut Settings) -> Vec<String> {
        if !sources::are_given(settings) {
            return settings.checked("mqtt.topics", vec!["drivers/+/gps".to_owned()], topics);
        }
        if settings.forget(|key| key == "mqtt.topics") {
            settings.add_violation(
                "mqtt.topics",
                "set either mqtt.topics or [[sources]], not both: a topic of mqtt.topics equals a \
                 source with this topic and format = \"milepost\"",
            );
        }
        Vec::new()
    }
}

/// Maximum number of points per message. A packet of the default size has space for hardly more.
const POINTS_MAX: usize = 10_000;

/// Reads `[decode]`. `packet_bytes_max`: size of the largest packet that the broker may send, which
/// also limits the payload.
pub(super) fn decode_limits(settings: &mut Settings, packet_bytes_max: u32) -> decode::Limits {
    let payload_bytes_max = usize::try_from(packet_bytes_max).unwrap_or(usize::MAX);
    decode::Limits {
        payload_bytes_max: settings.constant("payload_bytes_max", payload_bytes_max),
        points_max: settings.constant("points_max", POINTS_MAX),
        // The maximum keeps fixes within the table's TTL, and keeps the number of monthly
        // partitions of one insert below ClickHouse's limit.
        fix_age_max: settings.duration("decode.fix_age_max", "30d", "1s", "390d"),
        fix_future_max: settings.duration("decode.fix_future_max", "5m", "0s", "30d"),
    }
}

/// Maximum bytes of a batch. ClickHouse inserts this much in a fraction of a second, and a process
/// holds only a few batches.
const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Reads `[batch]`.
pub(super) fn batch_limits(settings: &mut Settings) -> batch::Limits {
    batch::Limits {
        rows_max: settings.in_range("batch.rows_max", 5_000, 1..=1_000_000),
        age_max: settings.duration("batch.age_max", "1s", "10ms", "60s"),
        bytes_max: settings.constant("batch_bytes_max", BATCH_BYTES_MAX),
    }
}

/// Key of the maximum age of a batch in a large group, where batches wait longer for more rows.
const MEMBERS_AGE_MAX: &str = "batch.members_age_max";

/// Reads `batch.members_age_max`. `/readyz` reports 20 s without an acknowledgement as a stall, so
/// the key's maximum leaves 10 s for a slow insert.
pub(super) fn members_age_max(settings: &mut Settings, batch: &batch::Limits) -> Duration {
    let age = settings.duration(MEMBERS_AGE_MAX, "0s", "0s", "10s");
    if !age.is_zero() && age <= batch.age_max {
        settings.add_violation(
            MEMBERS_AGE_MAX,
            "must be more than batch.age_max, or \"0s\" to turn it off",
        );
    }
    age
}

/// Range of a retention in days: up to fifty years. ClickHouse computes when a row expires in a
/// `DateTime` of 32 bits, which ends in February 2106. A later time wraps around to the past, and
/// ClickHouse would remove every row at once.
const DAYS: std::ops::RangeInclusive<u32> = 1..=18_250;
/// Minimum number of days for which an accepted fix is stored.
pub const STORED_DAYS_MIN: u32 = 10;

impl Retention {
    fn read(settings: &mut Settings) -> Self {
        let positions_days = settings.in_range("clickhouse.retention.positions_days", 400, DAYS);
        let positions_policy = optional_name(settings, "clickhouse.retention.positions_policy");
        let volume = optional_name(settings, "clickhouse.retention.positions_volume");
        let after_days = settings.in_range("clickhouse.retention.positions_volume_days", 30, DAYS);
        if volume.is_some() && after_days >= positions_days {
            let why = "rows must move to the volume before they expire";
            let problem = format!("must be less than positions_days, {positions_days}: {why}");
            settings.add_violation("clickhouse.retention.positions_volume_days", problem);
        }
        Self {
            positions_days,
            positions_tier: volume.map(|volume| Tier { volume, after_days }),
            positions_policy,
            rejects_days: settings.in_range("clickhouse.retention.rejects_days", 30, DAYS),
            rollups_days: settings.in_range("clickhouse.retention.rollups_days", 400, DAYS),
        }
    }

    /// Checks that an accepted fix does not expire at once, and that roll-ups stay at least as long
    /// as positions.
    pub(super) fn check_against(&self, settings: &mut Settings, limits: &decode::Limits) {
        let day = Duration::from_secs(86_400);
        if limits.fix_age_max + day * STORED_DAYS_MIN > day * self.positions_days {
            let days_min =
                limits.fix_age_max.as_secs().div_ceil(86_400) + u64::from(STORED_DAYS_MIN);
            let why = format!(
                "{STORED_DAYS_MIN} more than decode.fix_age_max, otherwise an accepted fix may \
                 expire at once"
            );
            settings.add_violation(
                "clickhouse.retention.positions_days",
                format!("must be at least {days_min}: {why}"),
            );
        }
        if self.rollups_days < self.positions_days {
            let why = "a roll-up continues after its newest row, and would recompute expired \
                       quarters again and again";
            let problem =
                format!("must be at least {}, like positions_days: {why}", self.positions_days);
            settings.add_violation("clickhouse.retention.rollups_days", problem);
        }
    }
}

/// Reads an optional name, which milepost puts into quotes in a statement.
fn optional_name(settings: &mut Settings, key: &str) -> Option<String> {
    let name = settings.optional(key)?;
    settings.valid(key, storage_name(name))
}

/// Default of `clickhouse.url`.
const DEFAULT_URL: &str = "http://localhost:8123";

/// Returns the index of a member's own endpoint. Members whose names end in consecutive numbers,
/// such as pods of a StatefulSet, get the endpoints in turn. For other members, a hash of the name
/// selects the endpoint.
fn home_index(member: &str, endpoints: usize) -> usize {
    let name = member.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = &member[name.len()..];
    // FNV-1a of 64 bits.
    let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = || member.bytes().fold(0xcbf2_9ce4_8422_2325, fnv);
    let index = number.parse::<u64>().unwrap_or_else(|_| hash()) % endpoints.max(1) as u64;
    usize::try_from(index).unwrap_or_default()
}

impl Server {
    /// Reads the settings of ClickHouse for milepost-map. Their keys and rules are those of
    /// milepost.
    pub fn read(settings: &mut Settings) -> Self {
        let (url, with_tls) = settings.checked("clickhouse.url", DEFAULT_URL.to_owned(), http_url);
        Self { url, ..Self::read_without_url(settings, with_tls) }
    }

    /// Reads all settings except the URL, which it leaves empty.
    fn read_without_url(settings: &mut Settings, with_tls: Option<bool>) -> Self {
        let ca = settings.path("clickhouse.ca_file");
        let tls = settings.tls(
            tls::Files { server: tls::Server::ClickHouse, ca, cert: None, key: None },
            with_tls,
        );
        Self {
            url: String::new(),
            tls,
            database: settings.checked("clickhouse.database", "fleet".to_owned(), identifier),
            user: settings.checked("clickhouse.user", "default".to_owned(), user_name),
            password: settings.secret("clickhouse.password"),
        }
    }
}

impl ClickHouse {
    /// Reads `[clickhouse]`. `member`: the member's name, which selects its own endpoint if there
    /// are several.
    pub(super) fn read(settings: &mut Settings, member: &str) -> Self {
        let (urls, with_tls) =
            settings.checked("clickhouse.url", vec![DEFAULT_URL.to_owned()], http_urls);
        let Server { url: _, tls, database, user, password } =
            Server::read_without_url(settings, with_tls);
        Self {
            home: home_index(member, urls.len()),
            urls,
            tls,
            database,
            user,
            password,
            inserts_in_flight: settings.constant("inserts_in_flight", 2),
            insert_timeout: settings.constant("insert_timeout", Duration::from_secs(60)),
            replication: settings.value("clickhouse.replication", Replication::None),
            cluster: settings.optional("clickhouse.cluster"),
            shards: settings.value("clickhouse.shards", false),
            insert_quorum: settings.value("clickhouse.insert_quorum", InsertQuorum::Auto),
            retention: Retention::read(settings),
            fields: Vec::new(),
        }
        .check_replication(settings)
    }

    /// Checks that each key for replicas and shards is set only together with the keys that it
    /// requires.
    fn check_replication(self, settings: &mut Settings) -> Self {
        if self.urls.len() > 1 && self.replication == Replication::None {
            settings.add_violation(
                "clickhouse.url",
                "several endpoints require replicated tables: set clickhouse.replication, or give \
                 one URL",
            );
        }
        if let Some(cluster) = &self.cluster {
            if let Err(why) = cluster_name(cluster) {
                settings.add_violation("clickhouse.cluster", why);
            } else if self.replication != Replication::Macros {
                settings.add_violation(
                    "clickhouse.cluster",
                    "requires clickhouse.replication = \"macros\"; a managed database reaches its \
                     hosts itself",
                );
            }
        }
        if self.shards && self.cluster.is_none() {
            settings.add_violation(
                "clickhouse.shards",
                "requires clickhouse.replication = \"macros\" and clickhouse.cluster, the cluster \
                 that has the shards",
            );
        }
        let has_quorum = matches!(self.insert_quorum, InsertQuorum::Replicas(2..));
        if has_quorum && self.replication == Replication::None {
            settings.add_violation(
                "clickhouse.insert_quorum",
                "requires replicated tables: set clickhouse.replication",
            );
        }
        self
    }
}

impl Spool {
    pub(super) fn read(settings: &mut Settings, batch: &batch::Limits) -> Option<Self> {
        let dir = settings.path("spool.dir");
        let bytes_max = settings.in_range(
            "spool.bytes_max",
            1_073_741_824,
            1_048_576..=u64::from(u32::MAX) * 1_024,
        );
        if dir.is_some() && bytes_max < batch.bytes_max as u64 {
            settings.add_violation(
                "spool.bytes_max",
                format!("must be at least {}, the largest batch", batch.bytes_max),
            );
        }
        dir.map(|dir| Self { dir, bytes_max })
    }
}

impl Http {
    pub(super) fn read(settings: &mut Settings) -> Self {
        Self { listen: settings.value("http.listen", SocketAddr::from(([127, 0, 0, 1], 9464))) }
    }
}

impl Shutdown {
    pub(super) fn read(settings: &mut Settings, members_age_max: Duration) -> Self {
        let read = Self {
            grace: settings.duration("shutdown.grace", "25s", "1s", "1h"),
            leave: settings.value("shutdown.leave", LeaveGroup::Auto),
            peers: settings.checked("shutdown.peers", Vec::new(), peers),
        };
        if !members_age_max.is_zero() && read.peers.is_empty() {
            let why = "requires shutdown.peers, from which milepost counts the members";
            settings.add_violation(MEMBERS_AGE_MAX, why);
        }
        read
    }
}

impl Events {
    pub(super) fn read(settings: &mut Settings) -> Self {
        let silent_for = settings.duration("events.silent_for", "10m", "0s", "30d");
        let silent_gaps = settings.in_range("events.silent_gaps", 2.5, 0.0..=1_000.0);
        let faster_than = settings.in_range("events.faster_than", 0.0, 0.0..=1_000.0);
        let fence_margin = settings.in_range("events.fence_margin", 30.0, 0.0..=1_000.0);
        // For this key, an empty string does not count as unset: it turns MQTT off. An empty
        // environment variable turns MQTT off too, even if the file sets a topic.
        let is_empty = settings.is_empty("events.topic");
        if is_empty {
            settings.forget(|key| key == "events.topic");
        }
        let default = if is_empty { "" } else { "fleet/events" };
        let topic = settings.checked("events.topic", default.to_owned(), topic_prefix);
        Self {
            topic: Some(topic).filter(|topic| !topic.is_empty()),
            silent_for: Some(silent_for).filter(|time| !time.is_zero()),
            silent_gaps,
            faster_than: Some(faster_than).filter(|speed| *speed > 0.0),
            fence_margin,
        }
    }
}

impl Webhook {
    pub(super) fn read(settings: &mut Settings) -> Option<Self> {
        let url: String = settings.read("webhook.url").unwrap_or_default();
        settings.add_effective("webhook.url", &shown_webhook_url(&url));
        let (url, with_tls) = settings.valid("webhook.url", webhook_url(url)).unwrap_or_default();
        let ca = settings.path("webhook.ca_file");
        let has_ca = ca.is_some();
        let tls = settings
            .tls(tls::Files { server: tls::Server::Webhook, ca, cert: None, key: None }, with_tls);
        let token = settings.secret("webhook.token");
        if token.is_some() && !settings.is_given("webhook.url") {
            settings.add_violation(
                "webhook.token",
                "nothing is sent without webhook.url; set it, or remove the token",
            );
        }
        if has_ca && !settings.is_given("webhook.url") {
            settings.add_violation(
                "webhook.ca_file",
                "nothing is sent without webhook.url; set it, or remove the file",
            );
        }
        with_tls.map(|_| Self { url, tls, token })
    }
}

impl Log {
    /// Reads `[log]`, for milepost and for milepost-map.
    pub fn read(settings: &mut Settings) -> Self {
        Self {
            format: settings.value("log.format", LogFormat::Text),
            filter: settings.checked("log.filter", "info".to_owned(), log_filter),
            // Enough for minutes of a busy log, or a burst.
            queue_bytes_max: settings.constant("log_queue_bytes_max", 1024 * 1024),
        }
    }
}
