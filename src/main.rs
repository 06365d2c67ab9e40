//! Parses the arguments, loads the configuration, runs the command, and returns its exit code.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::FromArgMatches as _;

use milepost::app::commands::{drain, migrate, spool};
use milepost::app::run;
use milepost::cli::{self, Arguments, Command, SpoolCommand};
use milepost_command::Shown as _;
use milepost_command::process::{
    BAD_USAGE, BadUsage, FAILED, as_bad_usage, exit_code, log_start, put, with_logs,
    with_logs_and_runtime,
};
use milepost_config::Config;
use milepost_observe::http;

fn main() -> ExitCode {
    let matches = match cli::command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => {
            // clap returns the texts of --help and --version as errors too, and prints them to
            // stdout.
            let _ = error.print();
            return if error.use_stderr() { BAD_USAGE.into() } else { ExitCode::SUCCESS };
        }
    };
    execute(&matches).unwrap_or_else(|failure| {
        // Keep the exit code even if stderr is closed.
        let _ = writeln!(std::io::stderr(), "milepost: {failure:#}");
        if failure.is::<BadUsage>() { BAD_USAGE.into() } else { FAILED.into() }
    })
}

fn execute(matches: &clap::ArgMatches) -> anyhow::Result<ExitCode> {
    let path_in_env = std::env::var_os("MILEPOST_CONFIG").filter(|path| !path.is_empty());
    let path = matches.get_one::<PathBuf>("config").cloned();
    let path = path.or_else(|| path_in_env.map(PathBuf::from));
    let config = as_bad_usage(Config::load(path.as_deref()))?;
    if let Some((companion, matches)) = cli::companion(matches) {
        return (companion.run)(matches, config);
    }
    match Arguments::from_arg_matches(matches)?.command {
        Command::Config => put(&config.to_string(), ExitCode::SUCCESS),
        Command::Drain { client_id, leave, drop_too_large, within, json } => {
            let args = drain::DrainArgs { client_id, leave, drop_too_large, within };
            with_logs_and_runtime(config, async move |config| {
                let drained = drain::drain(config, args).await?;
                put(&drained.shown(json), exit_code(drained.outcome()))
            })
        }
        Command::Spool { command: SpoolCommand::List { json } } => {
            put(&spool::list(&config)?.shown(json), ExitCode::SUCCESS)
        }
        Command::Spool { command: SpoolCommand::Export { dir } } => {
            let (text, outcome) = spool::export(&config, &dir)?;
            put(&text, exit_code(outcome))
        }
        Command::Spool { command: SpoolCommand::Replay } => {
            with_logs_and_runtime(config, async |config| {
                spool::replay(&config).await.map(exit_code)
            })
        }
        Command::Health => {
            http::ask_ready(config.http.listen).map_err(anyhow::Error::msg)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Migrate { plan: true, .. } => put(&migrate::plan(&config), ExitCode::SUCCESS),
        Command::Migrate { plan: false, drop_field } => with_logs(config, async |config| {
            migrate::migrate(&config, &drop_field).await.map(|()| ExitCode::SUCCESS)
        }),
        Command::Run => with_logs_and_runtime(config, async |config| {
            log_start(&config);
            run::run(config, cli::startup_tasks()).await.map(exit_code)
        }),
    }
}
