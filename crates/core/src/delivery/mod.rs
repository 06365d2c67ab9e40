//! Delivers closed batches: to ClickHouse, or to the spool until ClickHouse takes them.
//!
//! Input: batches. Output: "this batch is durable". [`policy`] decides the next step of each batch;
//! `src/executor.rs` executes it against a [`sink`] and the spool's directory, and reports.
//!
//! Guarantee: a batch is reported as durable only when every row of it is committed, or its file is
//! fsynced. Until then it is retried without end. It is never dropped and never changed.

pub mod events;
mod file;
pub mod policy;
pub mod retry;
pub mod sink;

pub use self::file::{BATCH, File, SpoolInventory};
