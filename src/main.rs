//! Arguments → configuration → logging → run → exit code.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use clap::{Parser, Subcommand};
use milepost::app::{self, Outcome, rejects, spooled};
use milepost::config::{Config, LogFormat};
use milepost::decode::Reason;
use milepost::http;
use milepost::position::Timestamp;
use tracing::error;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

const FAILED: u8 = 1;
/// Bad usage or configuration (sysexits' EX_USAGE).
const BAD_USAGE: u8 = 64;
/// Shut down with data left in the broker or the spool (EX_TEMPFAIL).
const DATA_LEFT: u8 = 75;

/// Takes drivers' GPS positions from an MQTT broker and writes them to ClickHouse; acknowledges a message
/// only when its rows are durable.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// TOML file; else $MILEPOST_CONFIG, else ./milepost.toml if there is one
    #[arg(long, global = true)]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Consume until SIGTERM; never migrates
    Run,
    /// Create or update the tables; safe to repeat, and from two places at once
    Migrate,
    /// Ask broker, ClickHouse and disk what they are ready for, and name the setting to change; exit 1 on errors
    Check {
        /// One JSON object instead of lines
        #[arg(long)]
        json: bool,
        /// Send a message there and want it back, such as drivers/ID/gps-check; one that no consumer takes
        #[arg(long)]
        probe_topic: Option<String>,
    },
    /// Print the effective configuration, secrets redacted
    Config,
    /// The batches in spool.dir: those of a volume whose pod is gone, for instance
    Spool {
        #[command(subcommand)]
        command: SpoolCommand,
    },
    /// What was refused
    Rejects {
        #[command(subcommand)]
        command: RejectsCommand,
    },
    /// Ask a running milepost whether it is ready; for container health checks
    Health,
}

#[derive(Subcommand)]
enum SpoolCommand {
    /// Name every file, and check it; also while a process works there
    List,
    /// Insert every batch, oldest first; ends when none is left
    Replay,
    /// Write every insert as a statement and its data, for other tools
    Export {
        /// Where to
        dir: PathBuf,
    },
}

#[derive(Subcommand)]
enum RejectsCommand {
    /// Decode stored payloads again, and insert what is good now; may be repeated
    Replay {
        /// Which; see the rejects table
        #[arg(long, value_parser = reason)]
        reason: Reason,
        /// Not those before: a time such as 2026-11-21T08:00:00Z, or an age such as 2h [default: all]
        #[arg(long, value_parser = moment)]
        since: Option<Timestamp>,
    },
}

fn reason(name: &str) -> Result<Reason, String> {
    Reason::ALL.into_iter().find(|reason| reason.name() == name).ok_or_else(|| {
        let names: Vec<&str> = Reason::ALL.iter().map(|reason| reason.name()).collect();
        format!("there are {}", names.join(", "))
    })
}

fn moment(text: &str) -> Result<Timestamp, String> {
    let ms = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    if let Ok(age) = humantime::parse_duration(text) {
        return Ok(Timestamp::from_unix_ms(app::now().unix_ms().saturating_sub(ms(age))));
    }
    let time = humantime::parse_rfc3339_weak(text).map_err(|error| error.to_string())?;
    Ok(Timestamp::from_unix_ms(time.duration_since(UNIX_EPOCH).map_or(0, ms)))
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { BAD_USAGE.into() } else { ExitCode::SUCCESS };
        }
    };
    let variable = std::env::var_os("MILEPOST_CONFIG").filter(|path| !path.is_empty());
    let path = arguments.config.or_else(|| variable.map(PathBuf::from));
    let config = match Config::load(path.as_deref()) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("milepost: {}", format_args!("{:#}", anyhow::Error::from(error)));
            return BAD_USAGE.into();
        }
    };
    match arguments.command {
        Command::Config => print_result(Ok(config.to_string())),
        Command::Check { json, probe_topic } => check(&config, probe_topic.as_deref(), json),
        Command::Spool { command: SpoolCommand::List } => print_result(spooled::list(&config)),
        Command::Spool { command: SpoolCommand::Export { dir } } => {
            print_result(spooled::export(&config, &dir))
        }
        Command::Spool { command: SpoolCommand::Replay } => {
            with_logs_and_runtime(config, async |config| spooled::replay(&config).await)
        }
        Command::Rejects { command: RejectsCommand::Replay { reason, since } } => {
            with_logs_and_runtime(config, async move |config| {
                let since = since.unwrap_or(Timestamp::from_unix_ms(0));
                let summary = rejects::replay(&config, reason, since).await?;
                print_result(Ok(summary.to_string()));
                Ok(Outcome::Clean)
            })
        }
        Command::Health => match http::ask_ready(config.http.listen) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("milepost: {why}");
                FAILED.into()
            }
        },
        Command::Migrate => {
            with_logs_and_runtime(config, async |config| app::migrate(&config).await.map(|()| Outcome::Clean))
        }
        Command::Run => with_logs_and_runtime(config, app::run),
    }
}

/// Without logs: its lines are the result.
fn check(config: &Config, probe_topic: Option<&str>, json: bool) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let report = runtime
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(app::check(config, probe_topic)));
    match report {
        Ok(report) => {
            print_result(Ok(if json { report.json() } else { report.to_string() }));
            if report.has_errors() { FAILED.into() } else { ExitCode::SUCCESS }
        }
        Err(failure) => {
            eprintln!("milepost: {failure:#}");
            BAD_USAGE.into()
        }
    }
}

#[expect(clippy::print_stdout, reason = "the command's result")]
fn print_result(result: anyhow::Result<String>) -> ExitCode {
    match result {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("milepost: {failure:#}");
            FAILED.into()
        }
    }
}

fn with_logs_and_runtime(
    config: Config,
    command: impl AsyncFnOnce(Config) -> anyhow::Result<Outcome>,
) -> ExitCode {
    start_logging(&config);
    tracing::info!(configuration = %config.to_string().replace('\n', " "), version = env!("CARGO_PKG_VERSION"), "milepost");
    // One thread beside the lanes': encoding, inserting and serving metrics take a small part of one core.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        let outcome = runtime.block_on(command(config));
        runtime.shutdown_background(); // a disk that hangs must not hold an exit
        outcome
    });
    match outcome {
        Ok(Outcome::Clean) => ExitCode::SUCCESS,
        Ok(Outcome::DataLeft) => DATA_LEFT.into(),
        Err(failure) => {
            error!("{failure:#}");
            FAILED.into()
        }
    }
}

fn start_logging(config: &Config) {
    let filter: Targets = config.log.filter.parse().expect("the configuration has checked it");
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    let lines = match config.log.format {
        LogFormat::Text => lines.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
}
