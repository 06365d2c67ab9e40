//! The command line: the consumer's own commands, and the list of the companions.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, CommandFactory as _, Parser, Subcommand};

use milepost_command::arguments::span;
use milepost_command::{Companion, StartupTask};

/// The companions: commands that the consumer does not need, each group in a crate of its own. To
/// build without one of these crates, remove its line here and in `Cargo.toml`.
const COMPANIONS: &[&[Companion]] = &[
    milepost_check::COMMANDS,
    milepost_erase::COMMANDS,
    milepost_events::COMMANDS,
    milepost_import::COMMANDS,
    milepost_operate::COMMANDS,
];

/// Consume drivers' GPS positions from an MQTT broker and store them in ClickHouse. A message is
/// acknowledged only when its rows are durable.
#[derive(Parser)]
#[command(version = milepost_observe::build::LONG)]
pub struct Arguments {
    /// TOML file [default: $MILEPOST_CONFIG, or ./milepost.toml if it exists]
    #[arg(long, global = true)]
    pub config: Option<PathBuf>,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Consume until SIGTERM; never change tables
    Run,
    /// Create or update the tables; safe to repeat, even from two places at once
    Migrate {
        /// Only print the statements for an empty server, and where each would run; contacts no
        /// server
        #[arg(long)]
        plan: bool,
        /// First drop the column of this field, for example because its section [fields.NAME] was
        /// removed; its values stay in attributes. If the section still exists, the column is then
        /// added and computed again. Repeat the option for several fields
        #[arg(long, value_name = "NAME", conflicts_with = "plan")]
        drop_field: Vec<String>,
    },
    /// Print the effective configuration as TOML, secrets redacted
    Config,
    /// Consume the backlog of a member that is gone for good, and end its sessions; exit 75 if a
    /// session is left
    Drain {
        /// The mqtt.client_id of that member
        #[arg(long, value_parser = |id: &str| milepost_config::client_id(id.to_owned()))]
        client_id: String,
        /// Unsubscribe that member even if no other member is known to be subscribed; without one,
        /// new messages are lost
        #[arg(long)]
        leave: bool,
        /// Drop a row that ClickHouse, or a proxy in front of it, refuses as too large. Without
        /// this option its message, and all messages after it, stay with the broker
        #[arg(long)]
        drop_too_large: bool,
        /// Stop after this time
        #[arg(long, value_parser = span, default_value = "10m")]
        within: Duration,
        /// Print one JSON object instead of a table
        #[arg(long)]
        json: bool,
    },
    /// List, replay or export the batches in spool.dir, for example if it is on a volume whose pod
    /// is gone
    Spool {
        #[command(subcommand)]
        command: SpoolCommand,
    },
    /// Exit 0 if the running milepost is ready; for container health checks
    Health,
}

#[derive(Subcommand)]
pub enum SpoolCommand {
    /// Verify and list every file; works while a process uses the directory
    List {
        /// Print one JSON object instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Insert every batch, oldest first, and exit
    Replay,
    /// Write each insert as a statement file and a data file, for clickhouse-client or curl
    Export {
        /// Target directory
        dir: PathBuf,
    },
}

/// Returns the definition of the whole command line.
#[must_use]
pub fn command() -> clap::Command {
    let companions = COMPANIONS.iter().copied().flatten();
    Arguments::command().subcommands(companions.map(|companion| (companion.command)()))
}

/// Returns the companion that was called, with its arguments; `None` if a command of the consumer
/// was called.
#[must_use]
pub fn companion(matches: &ArgMatches) -> Option<(&'static Companion, &ArgMatches)> {
    let (name, matches) = matches.subcommand()?;
    let mut companions = COMPANIONS.iter().copied().flatten();
    let called = companions.find(|companion| (companion.command)().get_name() == name)?;
    Some((called, matches))
}

/// Returns the tasks that the companions run while the consumer starts.
pub fn startup_tasks() -> impl Iterator<Item = StartupTask> {
    COMPANIONS.iter().copied().flatten().filter_map(|companion| companion.startup_task)
}
