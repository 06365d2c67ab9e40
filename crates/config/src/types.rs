//! The sections of the configuration, after validation.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::field::Field;
use super::secret::Secret;
use milepost_core::Qos;
use milepost_core::consumer::Connections;
use milepost_core::peers::Peer;
use milepost_tls as tls;
use milepost_tls::Address;

/// `[mqtt]`.
#[derive(Debug, Clone)]
pub struct Mqtt {
    /// The nodes of `mqtt.url`; at least one.
    pub nodes: Vec<Address>,
    /// The files for TLS; `None` if connections are plain text.
    pub tls: Option<tls::Files>,
    pub username: Option<String>,
    pub password: Option<Secret>,
    /// Client id of the member; session `n` is `{client_id}-{n}`.
    pub client_id: String,
    /// The share group: the `x` of `$share/x/…`.
    pub group: String,
    pub topics: Vec<String>,
    /// Whether to subscribe to the broker's own counters as well.
    pub broker_metrics: bool,
    /// QoS of the subscription. No key sets it; only the laboratory subscribes at QoS 0.
    pub qos: Qos,
    pub connections: Connections,
    /// Receive Maximum of each session. A constant: no key sets it.
    pub receive_maximum: u16,
    /// Timeout of TCP, TLS and CONNACK together; SUBACK then has the same timeout again. A
    /// constant: no key sets it.
    pub connect_timeout: Duration,
    /// How long the broker keeps a session without a connection.
    pub session_expiry: Duration,
    /// Keep Alive in CONNECT. A constant: no key sets it.
    pub keep_alive: Duration,
    /// Maximum Packet Size. A larger packet that the broker sends anyway is truncated and rejected.
    pub max_packet_bytes: u32,
    /// Maximum bytes of closed batches that wait for an insert slot.
    pub buffer_bytes_max: usize,
}

/// The settings of ClickHouse that milepost and milepost-map both read.
#[derive(Debug, Clone)]
pub struct Server {
    /// `http://host:port` or `https://host:port`
    pub url: String,
    /// The files for TLS; `None` if connections are plain text.
    pub tls: Option<tls::Files>,
    pub database: String,
    pub user: String,
    pub password: Option<Secret>,
}

/// `[clickhouse]` and `[fields.NAME]`.
#[derive(Debug, Clone)]
pub struct ClickHouse {
    /// `http://host:port` or `https://host:port`, at least one. One is in use at a time.
    pub urls: Vec<String>,
    /// Index of this member's own endpoint in `urls`.
    pub home: usize,
    /// The files for TLS; `None` if connections are plain text.
    pub tls: Option<tls::Files>,
    pub database: String,
    pub user: String,
    pub password: Option<Secret>,
    /// Maximum number of concurrent inserts of fresh batches. While that many inserts are in
    /// flight, the open batch grows. A constant: no key sets it.
    pub inserts_in_flight: usize,
    /// Timeout of the first attempt to insert a batch. It doubles after every timeout. A constant:
    /// no key sets it.
    pub insert_timeout: Duration,
    pub replication: Replication,
    /// The cluster for `ON CLUSTER`; set only with [`Replication::Macros`]. `None`: statements run
    /// on one host, or in a managed database.
    pub cluster: Option<String>,
    /// Whether the shards of the cluster hold different drivers.
    pub shards: bool,
    pub insert_quorum: InsertQuorum,
    pub retention: Retention,
    /// `[fields.NAME]`, by name: columns that ClickHouse computes from `attributes`.
    pub fields: Vec<Field>,
}

impl ClickHouse {
    /// Returns whether one statement changes every host: it runs ON CLUSTER, or in a managed
    /// database.
    #[must_use]
    pub fn changes_all_hosts(&self) -> bool {
        self.cluster.is_some() || self.replication == Replication::Managed
    }

    /// Returns the configuration with this member's own endpoint only. Then no request moves to
    /// another host, even while the host of this endpoint is down.
    #[must_use]
    pub fn pinned(&self) -> Self {
        let urls = self.urls.get(self.home).cloned().into_iter().collect();
        Self { urls, home: 0, ..self.clone() }
    }
}

/// `[clickhouse.retention]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// Retention of positions in days after their `ts`.
    pub positions_days: u32,
    /// The volume to which positions move before they expire; `None` if they do not move.
    pub positions_tier: Option<Tier>,
    /// The server's storage policy for positions; `None` for the server's default policy.
    pub positions_policy: Option<String>,
    /// Retention of rejects in days after their `inserted_at`.
    pub rejects_days: u32,
    /// Retention of roll-ups in days after the time that they cover.
    pub rollups_days: u32,
}

/// A cheaper volume of a storage policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tier {
    pub volume: String,
    /// Rows move after this many days.
    pub after_days: u32,
}

/// How the tables are replicated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replication {
    /// One server: the tables are not replicated, and inserts require no quorum.
    None,
    /// Each table has a path with the server's macros `{shard}` and `{replica}`.
    Macros,
    /// The database replicates the tables: its engine is Replicated, or Shared (ClickHouse Cloud).
    Managed,
}

/// The number of replicas that must have an insert before it counts as committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InsertQuorum {
    /// A majority, and at least two; no quorum if the tables are not replicated.
    Auto,
    /// This number of replicas; 0 means no quorum.
    Replicas(u8),
}

/// `[spool]`.
#[derive(Debug, Clone)]
pub struct Spool {
    /// A directory that no other process uses.
    pub dir: PathBuf,
    /// Maximum size of all files together, in bytes.
    pub bytes_max: u64,
}

/// `[http]`.
#[derive(Debug, Clone)]
pub struct Http {
    pub listen: SocketAddr,
}

/// `[shutdown]`.
#[derive(Debug, Clone)]
pub struct Shutdown {
    /// How long a shutdown may take.
    pub grace: Duration,
    pub leave: LeaveGroup,
    /// Addresses of the members; this process may be among them.
    pub peers: Vec<Peer>,
}

/// Whether a member unsubscribes before it stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaveGroup {
    /// Only if a member with a lower name, among `shutdown.peers`, stays subscribed.
    Auto,
    Always,
    Never,
}

/// `[log]`.
#[derive(Debug, Clone)]
pub struct Log {
    pub format: LogFormat,
    /// `level` or `target=level,…`
    pub filter: String,
    /// Maximum bytes of the lines that wait for stderr. A constant: no key sets it.
    pub queue_bytes_max: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    /// One JSON object per line.
    Json,
}

/// `[events]`: how `milepost events` detects and publishes events.
#[derive(Debug, Clone)]
pub struct Events {
    /// The topic levels before `/DRIVER/…`; `None` if events are not published over MQTT.
    pub topic: Option<String>,
    /// Time without a fix after which a driver is silent; `None`: only fences set such a time.
    pub silent_for: Option<Duration>,
    /// Minimum time without a fix before a driver is silent, as a multiple of the driver's usual
    /// gap between fixes.
    pub silent_gaps: f64,
    /// Speed in m/s above which a driver is fast; `None`: only fences set such a limit.
    pub faster_than: Option<f64>,
    /// Distance in metres beyond the border at which a driver has left a fence.
    pub fence_margin: f64,
}

/// A web service to which events are posted.
#[derive(Clone)]
pub struct Webhook {
    /// The URL, which may contain a secret.
    pub url: String,
    /// The files for TLS; `None` if connections are plain text.
    pub tls: Option<tls::Files>,
    /// The token, sent as a bearer token; `None` if none is configured.
    pub token: Option<Secret>,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook")
            .field("tls", &self.tls)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}
