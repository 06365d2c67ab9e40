//! The process around a command: runtime, logs, signals, input, output and exit code.

use std::io::{BufRead, BufReader, ErrorKind, Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use tracing::{error, info};

use milepost_config::Config;
use milepost_observe::logging;

use crate::{Outcome, Signals};

/// The command failed, or found errors.
pub const FAILED: u8 = 1;
/// Bad usage or configuration (EX_USAGE of sysexits).
pub const BAD_USAGE: u8 = 64;
/// Data is left in the broker or the spool (EX_TEMPFAIL of sysexits).
pub const DATA_LEFT: u8 = 75;

/// An error that makes the process exit with [`BAD_USAGE`].
#[derive(Debug, thiserror::Error)]
#[error("{0:#}")]
pub struct BadUsage(anyhow::Error);

/// Marks the error of a result as bad usage, so that the process exits with [`BAD_USAGE`].
pub fn as_bad_usage<T>(result: Result<T, impl Into<anyhow::Error>>) -> anyhow::Result<T> {
    result.map_err(|failure| BadUsage(failure.into()).into())
}

/// Opens a file for reading, or standard input for `-`. A file that cannot be opened is bad usage.
pub fn open(file: &Path) -> anyhow::Result<Box<dyn BufRead>> {
    if file == Path::new("-") {
        return Ok(Box::new(std::io::stdin().lock()));
    }
    let opened = std::fs::File::open(file).with_context(|| file.display().to_string());
    Ok(Box::new(BufReader::new(as_bad_usage(opened)?)))
}

/// Reads a whole file, or standard input for `-`.
pub fn read_file(file: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = open(file)?.read_to_end(&mut bytes);
    as_bad_usage(read.with_context(|| file.display().to_string()))?;
    Ok(bytes)
}

/// Runs a command that prints its result and logs nothing.
pub fn without_logs<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(ended_by_signals(command))
}

/// Runs a command that has no signal handlers of its own, and ends it at SIGTERM or SIGINT. The
/// first process of a container (PID 1) needs handlers for this: without a handler, the kernel
/// ignores these signals for PID 1, although it ends any other process.
async fn ended_by_signals<T>(
    command: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    if std::process::id() != 1 {
        return command.await;
    }
    let mut signals = Signals::new()?;
    tokio::select! {
        result = command => result,
        () = signals.next() => anyhow::bail!("ended by a signal"),
    }
}

/// Returns success if `is_good`, else [`FAILED`].
pub fn success_if(is_good: bool) -> ExitCode {
    if is_good { ExitCode::SUCCESS } else { FAILED.into() }
}

/// Returns the exit code of a command that may leave data behind.
pub fn exit_code(outcome: Outcome) -> ExitCode {
    match outcome {
        Outcome::Clean => ExitCode::SUCCESS,
        Outcome::DataLeft => DATA_LEFT.into(),
    }
}

/// Writes a result to stdout and returns `code`, even if the reader closes the pipe early (`head`).
pub fn put(text: &str, code: ExitCode) -> anyhow::Result<ExitCode> {
    put_some(text).map(|_| code)
}

/// Writes one part of a result to stdout. Returns `false` once the reader has closed the pipe.
pub fn put_some(text: &str) -> anyhow::Result<bool> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true).context("cannot write to stdout"),
    }
}

/// Logs the version and the configuration. For long-running commands only: a one-shot command
/// prints nothing before its result.
pub fn log_start(config: &Config) {
    let configuration = config.to_string().replace('\n', " ");
    info!(%configuration, version = milepost_observe::build::LONG, "milepost");
}

/// Runs a command that logs. SIGTERM and SIGINT end it, because it has no handlers of its own.
pub fn with_logs(
    config: Config,
    command: impl AsyncFnOnce(Config) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    with_logs_and_runtime(config, async |config| ended_by_signals(command(config)).await)
}

/// Runs a command that logs and that handles signals itself. If the command fails, logs the error.
pub fn with_logs_and_runtime(
    config: Config,
    command: impl AsyncFnOnce(Config) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    logging::start(&config.log);
    // One thread is enough for encoding, inserting and serving metrics: they need a small share of
    // one core. The connections are polled by another thread, that of the event loop.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        let outcome = runtime.block_on(command(config));
        runtime.shutdown_background(); // a hung disk must not delay the exit
        outcome
    });
    let outcome = match outcome {
        // Log the failure. If `log.filter` drops error lines, `main` prints it instead.
        Err(failure) if tracing::enabled!(tracing::Level::ERROR) => {
            error!("{failure:#}");
            Ok(FAILED.into())
        }
        outcome => outcome,
    };
    logging::flush();
    outcome
}
