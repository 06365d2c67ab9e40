//! Delivers closed batches: to ClickHouse, or to the spool until ClickHouse takes them.
//!
//! Input: batches. Output: the ids of batches that have become durable. [`policy`] decides the next
//! step of each batch; [`prepare`](mod@prepare) decides which rows of a batch an attempt sends.
//! `src/executor.rs` carries out the steps: it inserts into a [`sink`], writes to the spool's
//! directory, and reports the outcomes.
//!
//! Guarantee: a batch is reported as durable only when every row of it is committed, or fsynced
//! into the spool. Until then the batch is retried indefinitely. Two kinds of rows are left out.
//! Rows of erased drivers are dropped. Rows that are too large to insert are dropped and counted if
//! there is no spool.

pub mod events;
mod file;
pub mod policy;
pub mod prepare;
pub mod retry;
pub mod sink;

pub use self::file::{BATCH, File, SpoolInventory};
