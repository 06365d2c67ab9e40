//! Arguments → configuration → logging → run → exit code.

mod cli;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser as _;
use milepost::app::commands::{backfill, check, decode, drain, erase, fences, migrate, rejects, spool};
use milepost::app::{Outcome, run};
use milepost::config::Config;
use milepost::observe::{http, logging};
use milepost::pipeline::position::Timestamp;
use tracing::error;

use self::cli::{Arguments, Command, FencesCommand, RejectsCommand, SpoolCommand};

const FAILED: u8 = 1;
/// Bad usage or configuration (sysexits' EX_USAGE).
const BAD_USAGE: u8 = 64;
/// Shut down with data left in the broker or the spool (EX_TEMPFAIL).
const DATA_LEFT: u8 = 75;

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
        Command::Check { json, probe_topic } => check_servers(&config, probe_topic.as_deref(), json),
        Command::Decode { source, topic, received_at, file } => {
            let received_at = received_at.unwrap_or_else(milepost::app::now);
            decode_file(&config, &decode::Origin { source, topic, received_at }, &file)
        }
        Command::Drain { client_id, leave, within } => {
            let orders = drain::Orders { client_id, leave, within };
            with_logs_and_runtime(config, async move |config| {
                let drained = drain::drain(config, orders).await?;
                let outcome = drained.outcome();
                print_result(Ok(drained.to_string()));
                Ok(outcome)
            })
        }
        Command::Spool { command: SpoolCommand::List } => print_result(spool::list(&config)),
        Command::Spool { command: SpoolCommand::Export { dir } } => {
            print_result(spool::export(&config, &dir))
        }
        Command::Spool { command: SpoolCommand::Replay } => {
            with_logs_and_runtime(config, async |config| spool::replay(&config).await)
        }
        Command::Erase { driver, lift: true, .. } => with_logs_and_runtime(config, async move |config| {
            print_result(Ok(erase::lift(&config, &driver).await?));
            Ok(Outcome::Clean)
        }),
        Command::Erase { driver: driver_id, yes, lift: false, within } => {
            with_logs_and_runtime(config, async move |config| {
                let left = erase::erase(&config, erase::Orders { driver_id, yes, within }).await?;
                print_result(Ok(left.to_string()));
                Ok(left.outcome())
            })
        }
        Command::Fences { command: FencesCommand::Import { dry_run, skip_invalid, file } } => {
            import_fences(config, &file, fences::Orders { dry_run, skip_invalid })
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
        Command::Migrate { plan: true } => print_result(Ok(migrate::plan(&config))),
        Command::Migrate { plan: false } => with_logs_and_runtime(config, async |config| {
            migrate::migrate(&config).await.map(|()| Outcome::Clean)
        }),
        Command::Backfill { plan: true } => print_result(Ok(backfill::plan(&config))),
        Command::Backfill { plan: false } => with_logs_and_runtime(config, async |config| {
            backfill::backfill(&config).await.map(|()| Outcome::Clean)
        }),
        Command::Run => with_logs_and_runtime(config, run::run),
    }
}

/// Of a file, or of standard input.
fn read_file(file: &Path) -> Result<Vec<u8>, ExitCode> {
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        std::io::stdin().lock().read_to_end(&mut bytes).map(drop)
    } else {
        std::fs::read(file).map(|all| bytes = all)
    };
    read.map(|()| bytes).map_err(|error| {
        eprintln!("milepost: {}: {error}", file.display());
        BAD_USAGE.into()
    })
}

fn import_fences(config: Config, file: &Path, orders: fences::Orders) -> ExitCode {
    let bytes = match read_file(file) {
        Ok(bytes) => bytes,
        Err(code) => return code,
    };
    let json = match String::from_utf8(bytes) {
        Ok(json) => json,
        Err(error) => {
            eprintln!("milepost: {}: {error}", file.display());
            return FAILED.into();
        }
    };
    let mut is_refused = false;
    let refused = &mut is_refused;
    let code = with_logs_and_runtime(config, async move |config| {
        let imported = fences::import(&config, &json, orders).await?;
        *refused = imported.is_refused();
        print_result(Ok(imported.to_string()));
        Ok(Outcome::Clean)
    });
    if is_refused { FAILED.into() } else { code }
}

fn decode_file(config: &Config, origin: &decode::Origin, file: &Path) -> ExitCode {
    let payload = match read_file(file) {
        Ok(payload) => payload,
        Err(code) => return code,
    };
    match decode::decode(config, origin, &payload) {
        Ok((lines, is_good)) => {
            print_result(Ok(lines));
            if is_good { ExitCode::SUCCESS } else { FAILED.into() }
        }
        Err(failure) => {
            eprintln!("milepost: {failure:#}");
            BAD_USAGE.into()
        }
    }
}

/// Without logs: its lines are the result.
fn check_servers(config: &Config, probe_topic: Option<&str>, json: bool) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let report = runtime
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(check::check(config, probe_topic)));
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
    logging::start(&config.log);
    tracing::info!(configuration = %config.to_string().replace('\n', " "), version = env!("CARGO_PKG_VERSION"), "milepost");
    // One thread beside the driver's: encoding, inserting and serving metrics take a small part of one core.
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
