//! `milepost import`: fixes of files, through the decoder of messages, into the same tables.
//!
//! ```text
//! file ─▶ read (rows, points, features) ─▶ plan (names, units) ─▶ the decoder of messages
//!                                               batches ─▶ the writer that all commands share
//! ```
//!
//! Guarantee: idempotent. A fix is the same row however often it is imported, or if it came over
//! MQTT before: its identity is its content, and `received_at` is its `ts`, so that of two equal
//! fixes `last_positions` keeps the one that a device sent. One insert is under way at a time, of a
//! whole batch, and none while ClickHouse has many parts to merge. It holds three batches at most.
//!
//! Refuses: a file of which it does not know what a column means, before it stores anything.

mod columns;
mod command;
mod features;
mod import;
mod known;
mod orders;
mod plan;
mod progress;
mod read;
mod record;
mod text;
mod understood;
mod work;

pub use self::command::COMMANDS;
pub use self::import::{Imported, Opened, import, open};
pub use self::orders::Orders;
