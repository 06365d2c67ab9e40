//! `milepost erase`: hides a driver's rows, then removes them; later messages of the driver are
//! dropped.
//!
//! ```text
//! the list of erased drivers ─▶ every member skips the driver ─▶ delete the rows ─▶ count twice
//! ```
//!
//! Guarantee: data is reported as gone after two counts that found none, both taken after every
//! member that answers had confirmed that it skips the driver. The command keeps no state: after a
//! kill, run it again and it continues with the data that is left.
//!
//! Refuses: to remove anything without `--yes`; it prints what it would remove.

mod command;
mod erase;

pub use self::command::COMMANDS;
