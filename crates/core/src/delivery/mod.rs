//! Delivers closed batches: to ClickHouse, or to the spool until ClickHouse takes them.
//!
//! Input: batches. Output: "this batch is durable". [`policy`] decides the next step of each batch,
//! and [`prepare`](mod@prepare) which of its rows an attempt sends; `src/executor.rs` executes both
//! against a [`sink`] and the spool's directory, and reports.
//!
//! Guarantee: a batch is reported as durable only when every row of it is committed, or its file is
//! fsynced. Until then it is retried indefinitely. Two kinds of rows are left out: those of erased
//! drivers, and, only without a spool, a row that is too large for ClickHouse, which is counted.

pub mod events;
mod file;
pub mod policy;
pub mod prepare;
pub mod retry;
pub mod sink;

pub use self::file::{BATCH, File, SpoolInventory};
