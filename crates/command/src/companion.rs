//! Defines companions: commands that the consumer does not need.

use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{ArgMatches, Command, Parser};
use tokio::sync::watch;

use milepost_config::Config;
use milepost_core::delivery::events::ServerStatus;
use milepost_observe::metrics::Metrics;

/// The parts of a starting consumer that its companions may use.
#[derive(Debug, Clone)]
pub struct StartupContext {
    pub config: Config,
    /// Latest known status of ClickHouse.
    pub server: watch::Receiver<ServerStatus>,
    pub metrics: Arc<Metrics>,
}

/// A task that a companion runs while the consumer starts. The task ends by itself.
pub type StartupTask = fn(StartupContext) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// A command as `src/cli.rs` lists it.
#[derive(Clone, Copy)]
pub struct Companion {
    /// Returns the definition of the command line.
    pub command: fn() -> Command,
    /// Runs the command with the parsed arguments.
    pub run: fn(&ArgMatches, Config) -> anyhow::Result<ExitCode>,
    /// Task that runs while the consumer starts, if the command has one.
    pub startup_task: Option<StartupTask>,
}

/// The arguments of a companion. `#[command(name)]` sets the name of the command.
pub trait Run: Parser {
    /// Runs the command, prints its result and returns its exit code.
    ///
    /// # Errors
    /// The command failed before it had a result.
    fn run(self, config: Config) -> anyhow::Result<ExitCode>;
}

impl Companion {
    /// Returns the companion with these arguments and no startup task.
    #[must_use]
    pub const fn new<Arguments: Run>() -> Self {
        Self {
            command: Arguments::command,
            run: |matches, config| Arguments::from_arg_matches(matches)?.run(config),
            startup_task: None,
        }
    }

    /// Adds a task that runs while the consumer starts.
    #[must_use]
    pub const fn with_startup_task(mut self, task: StartupTask) -> Self {
        self.startup_task = Some(task);
        self
    }
}
