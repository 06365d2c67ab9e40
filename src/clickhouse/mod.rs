//! ClickHouse: inserts, and the tables they go to. The only room that names the clickhouse crate, which asks questions and
//! makes tables; inserts go over HTTP without it ([`insert`]).

mod client;
mod compress;
mod connector;
mod errors;
mod insert;
mod login;
mod migrations;
mod rejects;

pub use self::client::{ClickHouse, Error};
pub use self::migrations::{MIGRATIONS, Migration};
pub use self::rejects::{StoredReject, StoredRejects};
