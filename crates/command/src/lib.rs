//! Shared parts of the commands of milepost: arguments, logs, signals, exit codes, a small MQTT
//! client, and the check of the tables in ClickHouse.
//!
//! ```text
//! src/cli.rs ─▶ Companion ─▶ arguments ─▶ process (logs, runtime, signals) ─▶ the command
//!                                                     stdout and exit code ◀─ outcome, shown
//! ```
//!
//! Guarantee: a command's exit code is the same whether or not its output is read. No command
//! inserts positions before [`tables`] has confirmed that the tables are those of this binary.
//! `fences import` and `erase`, which insert no positions, only check that no migration is pending.
//!
//! This crate depends on no command. ARCHITECTURE.md says how to delete a [`Companion`].

pub mod arguments;
pub mod client;
mod companion;
mod fields;
pub mod insert;
pub mod lines;
mod outcome;
pub mod process;
pub mod rows;
mod shown;
pub mod tables;
mod times;

pub use self::companion::{Companion, Run, StartupContext, StartupTask};
pub use self::outcome::{Outcome, Signals};
pub use self::shown::Shown;

/// Timeout of a command's request to a member. It is long, so that a busy member does not count as
/// gone. Unlike a shutdown, a command has no grace period that limits the timeout.
pub const ASK_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);
