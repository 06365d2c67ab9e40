//! ClickHouse: inserts, migrations and queries. The kind of each failure decides whether and how
//! the request is retried.
//!
//! ```text
//! Insert ─▶ insert (HTTP over hyper) ─▶ committed | transient | ambiguous | permanent | too large
//! sql/NNN_name.sql ─▶ render (one server, replicas, shards) ─▶ migrations
//! a query ─▶ client (the clickhouse crate, answers bounded by connector) ─▶ rows
//! ```
//!
//! Guarantee: `Ok` from an insert means that ClickHouse itself confirmed the commit of every row.
//! At most 8 KiB of the answer to an insert are read, and at most 8 MiB of the answer to a query.
//! Only queries that read whole tables, with [`ClickHouse::unbounded`], have no limit.
//!
//! An HTTP 200 from a proxy is not accepted as ClickHouse's confirmation.

mod client;
mod column;
mod compress;
mod connector;
mod endpoints;
mod erase;
mod errors;
#[cfg(test)]
mod failover_tests;
mod fields;
mod files;
mod insert;
mod login;
mod migrations;
mod query_names;
mod quorum;
mod reader;
mod rejects;
mod render;
mod retries;
mod rows_body;
#[cfg(test)]
mod scripted_server;
mod shards;
mod trace;
mod whole;
mod writer;

pub use self::client::{ClickHouse, Error, QUERY_TIMEOUT, within};
pub use self::column::FieldComment;
pub use self::connector::Connector;
pub use self::endpoints::{Cause, EndpointStatus};
pub use self::erase::{Hosts, Traces};
pub use self::fields::FieldChanges;
pub use self::files::Migration;
pub use self::migrations::{migration_names, plan};
pub use self::reader::Reader;
pub use self::rejects::StoredReject;
pub use self::retries::Retries;
pub use self::rows_body::now_with_suspends;
pub use self::trace::{LastFix, RejectedFor, StoredFix};
pub use self::whole::{FetchWhole, check_list, check_rows};
pub use self::writer::{Retry, Writer, Written, fresh_identity};
