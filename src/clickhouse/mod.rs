//! ClickHouse: inserts, and the tables they go to. The only room that names the clickhouse crate, which asks questions and
//! makes tables; inserts go over HTTP without it ([`insert`]).

mod client;
mod compress;
mod connector;
mod erase;
mod errors;
mod events;
mod fences;
mod files;
mod insert;
mod login;
mod migrations;
mod quorum;
mod reader;
mod rejects;
mod render;
mod shards;
mod trace;
mod writer;

pub(crate) use self::client::{ClickHouse, Error};
pub(crate) use self::connector::Connector;
pub(crate) use self::erase::{Hosts, Traces};
pub(crate) use self::events::Told;
pub(crate) use self::files::Migration;
pub(crate) use self::migrations::{named, plan};
pub use self::reader::Reader;
pub(crate) use self::rejects::StoredReject;
pub(crate) use self::trace::{LastFix, RejectedFor, StoredFix};
pub(crate) use self::writer::{Retry, Writer, Written};
