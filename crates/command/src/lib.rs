//! Shared parts of the commands of milepost: arguments, logs, signals, exit codes, a small MQTT
//! client, and the check of the tables in ClickHouse.
//!
//! ```text
//! src/cli.rs ─▶ Companion ─▶ arguments ─▶ process (logs, runtime, signals) ─▶ the command
//!                                                     stdout and exit code ◀─ outcome, shown
//! ```
//!
//! Guarantee: a command's exit code does not depend on whether its output is read. No command
//! inserts positions before [`tables`] has confirmed that the tables match this binary. `fences
//! import` and `erase` insert no positions, and only check that no migration is pending.
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

/// Timeout of a command's request to a member. The timeout is long, so that a busy member does not
/// count as gone. A command can wait this long: unlike a shutdown, it has no grace period.
pub const ASK_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);
