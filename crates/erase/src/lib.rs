//! `milepost erase`: hides a driver's rows, then removes them; later messages of the driver are
//! dropped.
//!
//! ```text
//! the list of erased drivers ─▶ every member skips the driver ─▶ delete the rows ─▶ count twice
//! ```
//!
//! Guarantee: data is reported as removed only after two scans that found none. Both scans are made
//! after every member that answers has confirmed that it skips the driver. The command keeps no
//! state: if it was killed, run it again, and it continues with the remaining data. Without `--yes`
//! it removes nothing, and prints what it would remove.

mod command;
mod erase;
mod in_spool;

pub use self::command::COMMANDS;
