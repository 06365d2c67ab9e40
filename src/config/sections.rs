//! Every setting, section by section: its key, its default, its rule.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::rules::{
    broker_address, client_id, cluster_name, former_filters, group, host_name, http_url, identifier,
    log_filter, peers, topics, user_name,
};
use super::settings::Settings;
use super::sources;
use super::types::{
    ClickHouse, Http, InsertQuorum, LeaveGroup, Log, LogFormat, Mqtt, Replication, Retention, Server,
    Shutdown, Spool,
};
use crate::consumer::Connections;
use crate::pipeline::{batch, decode};
use crate::session::events::Qos;
use crate::tls;

impl Mqtt {
    pub(super) fn read(s: &mut Settings) -> Self {
        let (host, port, with_tls) =
            s.checked("mqtt.url", "mqtt://localhost:1883".to_owned(), broker_address);
        let username = s.optional("mqtt.username");
        let password = s.secret("mqtt.password");
        if password.is_some() && username.is_none() {
            s.violations.push("mqtt.username: give the user name that the password belongs to".to_owned());
        }
        let (ca, cert, key) = (s.path("mqtt.ca_file"), s.path("mqtt.cert_file"), s.path("mqtt.key_file"));
        let tls = s.tls(tls::Files { server: tls::Server::Broker, ca, cert, key }, with_tls);
        Self {
            host,
            port,
            tls,
            username,
            password,
            client_id: s.checked("mqtt.client_id", host_name(), client_id),
            group: s.checked("mqtt.group", "milepost".to_owned(), group),
            topics: Self::topics(s),
            unsubscribe: s.checked("mqtt.unsubscribe", Vec::new(), former_filters),
            // Off: there are brokers that close the connection of who asks for what they do not grant.
            broker_metrics: s.value("mqtt.broker_metrics", false),
            qos: s.value("mqtt.qos", Qos::AtLeastOnce),
            connections: s.value("mqtt.connections", Connections::Auto),
            // Twice as many, and packet ids of a session that comes back can collide (EMQX).
            receive_maximum: s.within("mqtt.receive_maximum", 32_000, 1..=32_767),
            connect_timeout: s.duration("mqtt.connect_timeout", "30s", "1s", "10m"),
            session_expiry: s.duration("mqtt.session_expiry", "2m", "1s", "1000d"),
            keep_alive: s.duration("mqtt.keep_alive", "10s", "5s", "18h"),
            max_packet_bytes: s.within("mqtt.max_packet_bytes", 1_048_576, 1_024..=268_435_455),
            buffer_bytes_max: s.within("mqtt.buffer_bytes_max", 67_108_864, 1_048_576..=usize::MAX),
        }
    }
}

impl Mqtt {
    /// None where `[[sources]]` say them.
    fn topics(s: &mut Settings) -> Vec<String> {
        if !sources::are_given(s) {
            return s.checked("mqtt.topics", vec!["drivers/+/gps".to_owned()], topics);
        }
        if s.forget_key("mqtt.topics") {
            s.violations.push(
                "mqtt.topics: give either it or [[sources]], not both: a topic of mqtt.topics is a source with this \
                 topic and format = \"milepost\""
                    .to_owned(),
            );
        }
        Vec::new()
    }
}

impl decode::Limits {
    pub(super) fn read(s: &mut Settings) -> Self {
        Self {
            payload_bytes_max: s.within("decode.payload_bytes_max", 1_000_000, 1..=268_435_455),
            points_max: s.within("decode.points_max", 10_000, 1..=1_000_000),
            // More would reach past the table's TTL, and one insert touch more partitions than ClickHouse allows.
            fix_age_max: s.duration("decode.fix_age_max", "30d", "1s", "390d"),
            fix_future_max: s.duration("decode.fix_future_max", "5m", "0s", "30d"),
        }
    }
}

impl batch::Limits {
    pub(super) fn read(s: &mut Settings) -> Self {
        Self {
            rows_max: s.within("batch.rows_max", 5_000, 1..=1_000_000),
            age_max: s.duration("batch.age_max", "1s", "10ms", "60s"),
            bytes_max: s.within("batch.bytes_max", 8_388_608, 1_048_576..=1_073_741_824),
        }
    }
}

/// A hundred years are as good as for ever.
const DAYS: std::ops::RangeInclusive<u32> = 1..=36_500;
/// A fix that is taken stays at least so long.
const STAYS_DAYS_MIN: u32 = 10;

impl Retention {
    /// What is taken must not be gone at once.
    pub(super) fn against(self, s: &mut Settings, limits: &decode::Limits) {
        let day = Duration::from_secs(86_400);
        if limits.fix_age_max + day * STAYS_DAYS_MIN > day * self.positions_days {
            s.violations.push(format!(
                "clickhouse.retention.positions_days: {} is wanted at least, {STAYS_DAYS_MIN} more than decode.fix_age_max, or a \
                 fix that is taken may be gone at once",
                limits.fix_age_max.as_secs().div_ceil(86_400) + u64::from(STAYS_DAYS_MIN)
            ));
        }
        if self.rollups_days < self.positions_days {
            s.violations.push(format!(
                "clickhouse.retention.rollups_days: {} is wanted at least, as positions_days: a roll-up goes on after its newest row, \
                 and would count fixes again for ever that it may not keep",
                self.positions_days
            ));
        }
    }
}

impl Server {
    /// For milepost and for who reads what it stored: the same keys, the same rules.
    pub fn read(s: &mut Settings) -> Self {
        let (url, with_tls) = s.checked("clickhouse.url", "http://localhost:8123".to_owned(), http_url);
        let ca = s.path("clickhouse.ca_file");
        let tls = s.tls(tls::Files { server: tls::Server::ClickHouse, ca, cert: None, key: None }, with_tls);
        Self {
            url,
            tls,
            database: s.checked("clickhouse.database", "fleet".to_owned(), identifier),
            user: s.checked("clickhouse.user", "default".to_owned(), user_name),
            password: s.secret("clickhouse.password"),
        }
    }
}

impl ClickHouse {
    pub(super) fn read(s: &mut Settings) -> Self {
        let Server { url, tls, database, user, password } = Server::read(s);
        Self {
            url,
            tls,
            database,
            user,
            password,
            inserts_in_flight: s.within("clickhouse.inserts_in_flight", 2, 1..=16),
            insert_timeout: s.duration("clickhouse.insert_timeout", "60s", "1s", "10m"),
            async_insert: s.value("clickhouse.async_insert", false),
            replication: s.value("clickhouse.replication", Replication::None),
            cluster: s.optional("clickhouse.cluster"),
            shards: s.value("clickhouse.shards", false),
            insert_quorum: s.value("clickhouse.insert_quorum", InsertQuorum::Auto),
            retention: Retention {
                positions_days: s.within("clickhouse.retention.positions_days", 400, DAYS),
                rejects_days: s.within("clickhouse.retention.rejects_days", 30, DAYS),
                rollups_days: s.within("clickhouse.retention.rollups_days", 400, DAYS),
            },
        }
        .for_replicas(s)
    }

    /// What belongs to replicas makes sense where there are some.
    fn for_replicas(self, s: &mut Settings) -> Self {
        if let Some(cluster) = &self.cluster {
            if let Err(wanted) = cluster_name(cluster) {
                s.violations.push(format!("clickhouse.cluster: {wanted}"));
            } else if self.replication != Replication::Macros {
                s.violations.push(
                    "clickhouse.cluster: only with clickhouse.replication = \"macros\"; a managed database reaches its \
                     hosts itself"
                        .to_owned(),
                );
            }
        }
        if self.shards && self.cluster.is_none() {
            s.violations.push(
                "clickhouse.shards: only with clickhouse.replication = \"macros\" and clickhouse.cluster, the name of the \
                 cluster with the shards"
                    .to_owned(),
            );
        }
        if self.shards && self.async_insert {
            s.violations.push(
                "clickhouse.shards: not with clickhouse.async_insert, whose answer says nothing of the shards".to_owned(),
            );
        }
        let asks = matches!(self.insert_quorum, InsertQuorum::Replicas(2..));
        if asks && self.replication == Replication::None {
            s.violations.push(
                "clickhouse.insert_quorum: only where the tables are replicated; clickhouse.replication says how"
                    .to_owned(),
            );
        }
        self
    }
}

impl Spool {
    /// `None`: off.
    pub(super) fn read(s: &mut Settings, batch: &batch::Limits) -> Option<Self> {
        let dir = s.optional("spool.dir").map(PathBuf::from);
        let bytes_max = s.within("spool.bytes_max", 1_073_741_824, 1_048_576..=u64::from(u32::MAX) * 1_024);
        if dir.is_some() && bytes_max < batch.bytes_max as u64 {
            s.violations
                .push("spool.bytes_max: at least batch.bytes_max, or a batch may never fit".to_owned());
        }
        dir.map(|dir| Self { dir, bytes_max })
    }
}

impl Http {
    pub(super) fn read(s: &mut Settings) -> Self {
        Self { listen: s.value("http.listen", SocketAddr::from(([127, 0, 0, 1], 9464))) }
    }
}

impl Shutdown {
    pub(super) fn read(s: &mut Settings) -> Self {
        Self {
            grace: s.duration("shutdown.grace", "25s", "1s", "1h"),
            leave: s.value("shutdown.leave", LeaveGroup::Auto),
            peers: s.checked("shutdown.peers", Vec::new(), peers),
        }
    }
}

impl Log {
    /// For all programs.
    pub fn read(s: &mut Settings) -> Self {
        Self {
            format: s.value("log.format", LogFormat::Text),
            filter: s.checked("log.filter", "info".to_owned(), log_filter),
        }
    }
}
