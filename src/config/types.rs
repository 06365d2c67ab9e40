//! What each section holds once it is read.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::secret::Secret;
use crate::consumer::Connections;
use crate::peers::ask::Peer;
use crate::session::events::Qos;
use crate::tls;

/// The broker, and our place in it.
#[derive(Debug, Clone)]
pub struct Mqtt {
    pub host: String,
    pub port: u16,
    /// `None`: plain text.
    pub tls: Option<tls::Files>,
    pub username: Option<String>,
    pub password: Option<Secret>,
    /// Session `n` is `{client_id}-{n}`.
    pub client_id: String,
    /// The `x` of `$share/x/…`.
    pub group: String,
    /// The sources' topic filters.
    pub topics: Vec<String>,
    /// Former filters, with their groups, that sessions may still be subscribed to.
    pub unsubscribe: Vec<String>,
    /// Subscribe to the broker's own counters, too.
    pub broker_metrics: bool,
    /// Of the subscription.
    pub qos: Qos,
    /// Sessions of this process.
    pub connections: Connections,
    /// Unacknowledged messages we ask for.
    pub receive_maximum: u16,
    /// How long TCP, TLS and CONNACK may take together, and then SUBACK.
    pub connect_timeout: Duration,
    /// How long the broker keeps our session.
    pub session_expiry: Duration,
    pub keep_alive: Duration,
    /// Maximum Packet Size; what is larger all the same is cut.
    pub max_packet_bytes: u32,
    /// Bytes of closed batches that may wait for an insert slot.
    pub buffer_bytes_max: usize,
}

/// Where ClickHouse is, and who we are there.
#[derive(Debug, Clone)]
pub struct Server {
    /// `http://host:port` or `https://host:port`
    pub url: String,
    /// `None`: plain text.
    pub tls: Option<tls::Files>,
    /// Database of all tables.
    pub database: String,
    pub user: String,
    pub password: Option<Secret>,
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
    pub user: String,
    pub password: Option<Secret>,
    /// Inserts under way at once.
    pub inserts_in_flight: usize,
    /// How long one attempt may take; doubles with every timeout.
    pub insert_timeout: Duration,
    /// Let the server collect inserts of many processes.
    pub async_insert: bool,
    /// How the tables are replicated, if they are.
    pub replication: Replication,
    /// Of `ON CLUSTER`; with [`Replication::Macros`] alone.
    pub cluster: Option<String>,
    /// The cluster's shards have different drivers.
    pub shards: bool,
    /// How many replicas must have an insert before it counts as done.
    pub insert_quorum: InsertQuorum,
    pub retention: Retention,
}

/// How long rows stay, in days.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// After their `ts`.
    pub positions_days: u32,
    /// After their `inserted_at`.
    pub rejects_days: u32,
    /// After the quarter that they are of.
    pub rollups_days: u32,
}

/// Who says where the copies of a table are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replication {
    /// There is one server.
    None,
    /// The tables name a path, with the server's macros `{shard}` and `{replica}`.
    Macros,
    /// The database does: a Replicated one, or ClickHouse Cloud's.
    Managed,
}

/// What `insert_quorum` is sent with an insert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InsertQuorum {
    /// None where the tables are not replicated; else a majority, and at least two.
    Auto,
    /// So many; 0: none.
    Replicas(u8),
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
    /// Whether to unsubscribe first: only where other members stay.
    pub leave: LeaveGroup,
    /// The other members, and perhaps ourselves.
    pub peers: Vec<Peer>,
}

/// Whether a member that is told to go leaves the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaveGroup {
    /// As the peers' answers say; without peers it does not.
    Auto,
    Always,
    Never,
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
    Text,
    /// One object a line.
    Json,
}
