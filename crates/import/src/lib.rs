//! `milepost import`: reads fixes from files with the decoder of messages, and inserts them into
//! the same tables.
//!
//! ```text
//! file ─▶ read (rows, points, features) ─▶ plan (names, units) ─▶ the decoder of messages
//!                                               batches ─▶ the writer that all commands share
//! ```
//!
//! Guarantee: an import is idempotent. A fix is the same row however often it is imported, even if
//! a device sent the fix over MQTT before, because the content of a fix is its identity. The
//! `received_at` of an imported fix is its `ts`. Of two equal fixes, `last_positions` keeps the one
//! that was received later, which is the one that a device sent. One insert of a whole batch is in
//! flight at a time, and no insert while ClickHouse has many parts to merge. At most three batches
//! are in memory.
//!
//! Before it stores anything, `import` refuses a file in which it cannot find a required field, or
//! whose unread columns change the meaning of the others (`row_checks.rs`).

mod args;
mod bounded;
mod cities;
mod columns;
mod command;
mod described;
mod encodings;
mod ending;
mod features;
mod fields;
mod files;
mod frames;
mod hemispheres;
mod import;
mod kml;
mod known;
mod name_units;
mod names;
mod numbers;
mod other_clocks;
mod paths;
mod pause;
mod plan;
mod progress;
mod read;
mod record;
mod row_checks;
mod seasons;
mod stated_unit;
mod stated_zone;
mod summary;
mod text;
mod timeline;
mod unix_columns;
mod values;
mod xml;
mod zones;

pub use self::args::ImportArgs;
pub use self::command::COMMANDS;
pub use self::import::{Imported, Opened, import, open};
