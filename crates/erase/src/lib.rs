//! `milepost erase`: a driver's rows are hidden, then removed, and what comes of them later is
//! dropped.
//!
//! ```text
//! the list of erased drivers ─▶ every member leaves them out ─▶ delete ─▶ count, count again
//! ```
//!
//! Guarantee: what it calls gone was counted, twice, after every member that answers had said that
//! it leaves the driver out. It keeps no state of its own: after a kill it is run again, and goes
//! on with what is left.
//!
//! Refuses: to remove anything without `--yes`; it says what it would remove.

mod command;
mod erase;

pub use self::command::COMMANDS;
