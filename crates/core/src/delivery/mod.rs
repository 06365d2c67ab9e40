//! From closed batches to durable rows: in ClickHouse, or in the spool until ClickHouse takes them.
//!
//! [`policy`] decides what each batch does next; [`executor`] does it, against a [`sink`] and the spool's directory,
//! and reports. What goes in: batches. What comes out: "this batch is durable".
//!
//! Guarantee: a batch is called durable only when every row of it is committed, or its file is fsynced. Until then it is
//! tried for ever. It is never dropped and never changed.

pub mod events;
mod file;
pub mod policy;
pub mod retry;
pub mod sink;

pub use self::file::{BATCH, File, Left};
