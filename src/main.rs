//! Arguments → configuration → logging → run → exit code.

mod cli;

use std::io::{BufRead, BufReader, ErrorKind, IsTerminal as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use milepost::app::commands::{
    Shown as _, check, decode, drain, erase, events, fences, import, migrate, rejects, spool, top,
    trace,
};
use milepost::app::{Outcome, Signals, run};
use milepost_config::Config;
use milepost_decode::position::Timestamp;
use milepost_observe::{http, logging};
use tracing::{error, info};

use self::cli::{Arguments, Command, FencesCommand, RejectsCommand, SpoolCommand};

const FAILED: u8 = 1;
/// Bad usage or configuration (EX_USAGE of sysexits).
const BAD_USAGE: u8 = 64;
/// Data is left in the broker or the spool (EX_TEMPFAIL of sysexits).
const DATA_LEFT: u8 = 75;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { BAD_USAGE.into() } else { ExitCode::SUCCESS };
        }
    };
    execute(arguments).unwrap_or_else(|failure| {
        // Keep the exit code even if stderr is closed.
        let _ = writeln!(std::io::stderr(), "milepost: {failure:#}");
        if failure.is::<BadUsage>() { BAD_USAGE.into() } else { FAILED.into() }
    })
}

fn execute(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let variable = std::env::var_os("MILEPOST_CONFIG").filter(|path| !path.is_empty());
    let path = arguments.config.or_else(|| variable.map(PathBuf::from));
    let config = usage(Config::load(path.as_deref()))?;
    match arguments.command {
        Command::Config => put(&config.to_string(), ExitCode::SUCCESS),
        Command::Check { json, probe_topic } => {
            let report = usage(without_logs(check::check(&config, probe_topic.as_deref())))?;
            let text = if json { report.json() } else { report.to_string() };
            put(&text, good(!report.has_errors()))
        }
        Command::Decode { source, topic, received_at, lines, file } => {
            let clock = move || received_at.unwrap_or_else(milepost_observe::now);
            let origin = decode::Origin { source, topic, received_at: clock() };
            if lines {
                return decode_lines(&config, origin, clock, &file);
            }
            let (rows, is_good) = usage(decode::decode(&config, &origin, &read_file(&file)?))?;
            put(&rows, good(is_good))
        }
        Command::Drain { client_id, leave, within, json } => {
            let orders = drain::Orders { client_id, leave, within };
            with_logs_and_runtime(config, async move |config| {
                let drained = drain::drain(config, orders).await?;
                put(&drained.shown(json), code(drained.outcome()))
            })
        }
        Command::Spool { command: SpoolCommand::List { json } } => {
            put(&spool::list(&config)?.shown(json), ExitCode::SUCCESS)
        }
        Command::Spool { command: SpoolCommand::Export { dir } } => {
            let (text, outcome) = spool::export(&config, &dir)?;
            put(&text, code(outcome))
        }
        Command::Spool { command: SpoolCommand::Replay } => {
            with_logs_and_runtime(config, async |config| spool::replay(&config).await.map(code))
        }
        Command::Erase { driver, lift: true, .. } => with_logs(config, async move |config| {
            put(&erase::lift(&config, driver).await?, ExitCode::SUCCESS)
        }),
        Command::Erase { driver: driver_id, yes, lift: false, within, json } => {
            with_logs(config, async move |config| {
                let left = erase::erase(&config, erase::Orders { driver_id, yes, within }).await?;
                put(&left.shown(json), code(left.outcome()))
            })
        }
        Command::Fences {
            command: FencesCommand::Import { dry_run, skip_invalid, file, json },
        } => {
            let areas =
                String::from_utf8(read_file(&file)?).with_context(|| file.display().to_string())?;
            with_logs(config, async move |config| {
                let orders = fences::Orders { dry_run, skip_invalid };
                let imported = fences::import(&config, &areas, orders).await?;
                put(&imported.shown(json), good(!imported.is_refused()))
            })
        }
        Command::Rejects { command: RejectsCommand::Replay { reason, since, json } } => {
            with_logs(config, async move |config| {
                let since = since.unwrap_or(Timestamp::from_unix_ms(0));
                let summary = rejects::replay(&config, reason, since).await?;
                put(&summary.shown(json), ExitCode::SUCCESS)
            })
        }
        Command::Import { orders, json } => {
            let opened = usage(import::open(&config, orders))?;
            with_logs(config, async move |config| {
                let imported = import::import(&config, opened).await?;
                put(&imported.shown(json), good(!imported.has_failed()))
            })
        }
        Command::Top { every, once, json, members } => {
            let is_screen = !once && !json && std::io::stdout().is_terminal();
            let clear = if is_screen { "\x1b[H\x1b[J" } else { "" };
            let print = |screen: &top::Screen| put_some(&format!("{clear}{}", screen.shown(json)));
            without_logs(top::top(&config, top::Orders { members, every, once }, print))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Trace { live: true, lasts, driver, .. } => {
            without_logs(trace::follow(&config, driver, lasts, put_some))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Trace { json, driver, .. } => {
            let trace = without_logs(trace::trace(&config, driver))?;
            put(&trace.shown(json), good(trace.is_found()))
        }
        Command::Health => {
            http::ask_ready(config.http.listen).map_err(anyhow::Error::msg)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Migrate { plan: true, .. } => put(&migrate::plan(&config), ExitCode::SUCCESS),
        Command::Migrate { plan: false, drop_field } => with_logs(config, async |config| {
            migrate::migrate(&config, drop_field.as_deref()).await.map(|()| ExitCode::SUCCESS)
        }),
        Command::Events => with_logs_and_runtime(config, async |config| {
            log_start(&config);
            events::run(config).await.map(code)
        }),
        Command::Run => with_logs_and_runtime(config, async |config| {
            log_start(&config);
            run::run(config).await.map(code)
        }),
    }
}

/// A failure with which the process exits with [`BAD_USAGE`].
#[derive(Debug, thiserror::Error)]
#[error("{0:#}")]
struct BadUsage(anyhow::Error);

fn usage<T>(result: Result<T, impl Into<anyhow::Error>>) -> anyhow::Result<T> {
    result.map_err(|failure| BadUsage(failure.into()).into())
}

fn decode_lines(
    config: &Config,
    origin: decode::Origin,
    clock: impl Fn() -> Timestamp,
    file: &Path,
) -> anyhow::Result<ExitCode> {
    let mut is_printed = true;
    let put = |text: &str| put_some(text).inspect_err(|_| is_printed = false);
    let decoded = decode::decode_lines(config, origin, open(file)?, clock, put);
    if is_printed { usage(decoded) } else { decoded }.map(good)
}

/// Reads a file, or standard input for `-`.
fn open(file: &Path) -> anyhow::Result<Box<dyn BufRead>> {
    if file == Path::new("-") {
        return Ok(Box::new(std::io::stdin().lock()));
    }
    let opened = std::fs::File::open(file).with_context(|| file.display().to_string());
    Ok(Box::new(BufReader::new(usage(opened)?)))
}

fn read_file(file: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    usage(open(file)?.read_to_end(&mut bytes).with_context(|| file.display().to_string()))?;
    Ok(bytes)
}

fn without_logs<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(ended_by_signals(command))
}

/// Installs handlers for commands that have none. The kernel ends a process at an unhandled signal,
/// but not a container's first process.
async fn ended_by_signals<T>(
    command: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    if std::process::id() != 1 {
        return command.await;
    }
    let mut signals = Signals::new()?;
    tokio::select! {
        done = command => done,
        () = signals.next() => anyhow::bail!("ended by a signal"),
    }
}

fn good(is_good: bool) -> ExitCode {
    if is_good { ExitCode::SUCCESS } else { FAILED.into() }
}

fn code(outcome: Outcome) -> ExitCode {
    match outcome {
        Outcome::Clean => ExitCode::SUCCESS,
        Outcome::DataLeft => DATA_LEFT.into(),
    }
}

/// Writes a result to stdout. If the reader closes the pipe early (`head`), the exit code stays the
/// result's.
fn put(text: &str, code: ExitCode) -> anyhow::Result<ExitCode> {
    put_some(text).map(|_| code)
}

/// Writes one part of a result to stdout. Returns `false` once the reader has closed the pipe.
fn put_some(text: &str) -> anyhow::Result<bool> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true).context("stdout"),
    }
}

/// Logs the version. Long-running commands only: a one-shot command prints nothing before its
/// result.
fn log_start(config: &Config) {
    info!(configuration = %config.to_string().replace('\n', " "), version = milepost_observe::build::LONG, "milepost");
}

/// Runs a command that installs no signal handlers of its own.
fn with_logs(
    config: Config,
    command: impl AsyncFnOnce(Config) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    with_logs_and_runtime(config, async |config| ended_by_signals(command(config)).await)
}

fn with_logs_and_runtime(
    config: Config,
    command: impl AsyncFnOnce(Config) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    logging::start(&config.log);
    // One thread beside the driver's: encoding, inserting and serving metrics need a small part of
    // one core.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        let outcome = runtime.block_on(command(config));
        runtime.shutdown_background(); // a disk that hangs must not hold an exit
        outcome
    });
    let outcome = match outcome {
        // Else `main` reports it, whatever `log.filter` leaves out: nothing fails in silence.
        Err(failure) if tracing::enabled!(tracing::Level::ERROR) => {
            error!("{failure:#}");
            Ok(FAILED.into())
        }
        outcome => outcome,
    };
    logging::flush();
    outcome
}
