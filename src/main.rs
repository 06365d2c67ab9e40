//! Arguments → configuration → logging → run → exit code.

mod cli;

use std::fmt::Display;
use std::io::{BufRead, BufReader, ErrorKind, IsTerminal as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser as _;
use milepost::app::commands::{
    Shown as _, check, decode, drain, erase, events, fences, import, migrate, rejects, spool, top, trace,
};
use milepost::app::{Outcome, Signals, run};
use milepost::config::Config;
use milepost::observe::{http, logging};
use milepost::pipeline::position::Timestamp;
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
    let variable = std::env::var_os("MILEPOST_CONFIG").filter(|path| !path.is_empty());
    let path = arguments.config.or_else(|| variable.map(PathBuf::from));
    let config = match Config::load(path.as_deref()) {
        Ok(config) => config,
        Err(error) => {
            return failed(BAD_USAGE, format_args!("{:#}", anyhow::Error::from(error)));
        }
    };
    match arguments.command {
        Command::Config => print_result(Ok(config.to_string())),
        Command::Check { json, probe_topic } => check_servers(&config, probe_topic.as_deref(), json),
        Command::Decode { source, topic, received_at, lines, file } => {
            let clock = move || received_at.unwrap_or_else(milepost::app::now);
            let origin = decode::Origin { source, topic, received_at: clock() };
            if lines {
                decode_lines(&config, origin, clock, &file)
            } else {
                decode_file(&config, &origin, &file)
            }
        }
        Command::Drain { client_id, leave, within, json } => {
            let orders = drain::Orders { client_id, leave, within };
            with_logs_and_runtime(config, async move |config| {
                let drained = drain::drain(config, orders).await?;
                put(&drained.shown(json))?;
                Ok(code(drained.outcome()))
            })
        }
        Command::Spool { command: SpoolCommand::List { json } } => {
            print_result(spool::list(&config).map(|listing| listing.shown(json)))
        }
        Command::Spool { command: SpoolCommand::Export { dir } } => {
            let exported = spool::export(&config, &dir);
            finish(exported.and_then(|(text, outcome)| put(&text).map(|()| code(outcome))))
        }
        Command::Spool { command: SpoolCommand::Replay } => {
            with_logs_and_runtime(config, async |config| spool::replay(&config).await.map(code))
        }
        Command::Erase { driver, lift: true, .. } => with_logs(config, async move |config| {
            put(&erase::lift(&config, driver).await?)?;
            Ok(ExitCode::SUCCESS)
        }),
        Command::Erase { driver: driver_id, yes, lift: false, within, json } => {
            with_logs(config, async move |config| {
                let left = erase::erase(&config, erase::Orders { driver_id, yes, within }).await?;
                put(&left.shown(json))?;
                Ok(code(left.outcome()))
            })
        }
        Command::Fences { command: FencesCommand::Import { dry_run, skip_invalid, file, json } } => {
            import_fences(config, &file, fences::Orders { dry_run, skip_invalid }, json)
        }
        Command::Rejects { command: RejectsCommand::Replay { reason, since, json } } => {
            with_logs(config, async move |config| {
                let since = since.unwrap_or(Timestamp::from_unix_ms(0));
                let summary = rejects::replay(&config, reason, since).await?;
                put(&summary.shown(json))?;
                Ok(ExitCode::SUCCESS)
            })
        }
        Command::Import { kind, driver, fields, speed_unit, zone, keep, dry_run, resume, json, files } => {
            let orders =
                import::Orders { files, kind, driver, fields, speed_unit, zone, keep, dry_run, resume };
            let opened = match import::open(&config, orders) {
                Ok(opened) => opened,
                Err(failure) => return failed(BAD_USAGE, format_args!("{failure:#}")),
            };
            with_logs(config, async move |config| {
                let imported = import::import(&config, opened).await?;
                put(&imported.shown(json))?;
                Ok(good(!imported.has_failed()))
            })
        }
        Command::Top { every, once, json, members } => {
            let is_screen = !once && !json && std::io::stdout().is_terminal();
            let clear = if is_screen { "\x1b[H\x1b[J" } else { "" };
            let orders = top::Orders { members, every, once };
            let shown =
                top::top(&config, orders, |screen| put_some(&format!("{clear}{}", screen.shown(json))));
            finish(without_logs(shown).map(|()| ExitCode::SUCCESS))
        }
        Command::Trace { live: true, lasts, driver, .. } => {
            let followed = without_logs(trace::follow(&config, driver, lasts, put_some));
            finish(followed.map(|()| ExitCode::SUCCESS))
        }
        Command::Trace { json, driver, .. } => finish(without_logs(async {
            let trace = trace::trace(&config, driver).await?;
            put(&trace.shown(json))?;
            Ok(good(trace.is_found()))
        })),
        Command::Health => match http::ask_ready(config.http.listen) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => failed(FAILED, why),
        },
        Command::Migrate { plan: true } => print_result(Ok(migrate::plan(&config))),
        Command::Migrate { plan: false } => {
            with_logs(config, async |config| migrate::migrate(&config).await.map(|()| ExitCode::SUCCESS))
        }
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

/// Reads a file, or standard input for `-`.
fn read_file(file: &Path) -> Result<Vec<u8>, ExitCode> {
    let mut bytes = Vec::new();
    let read = open(file).and_then(|mut input| input.read_to_end(&mut bytes));
    read.map(|_| bytes).map_err(|error| failed(BAD_USAGE, format_args!("{}: {error}", file.display())))
}

fn import_fences(config: Config, file: &Path, orders: fences::Orders, json: bool) -> ExitCode {
    let bytes = match read_file(file) {
        Ok(bytes) => bytes,
        Err(code) => return code,
    };
    let areas = match String::from_utf8(bytes) {
        Ok(areas) => areas,
        Err(error) => return failed(FAILED, format_args!("{}: {error}", file.display())),
    };
    with_logs(config, async move |config| {
        let imported = fences::import(&config, &areas, orders).await?;
        put(&imported.shown(json))?;
        Ok(good(!imported.is_refused()))
    })
}

fn decode_file(config: &Config, origin: &decode::Origin, file: &Path) -> ExitCode {
    let payload = match read_file(file) {
        Ok(payload) => payload,
        Err(code) => return code,
    };
    match decode::decode(config, origin, &payload) {
        Ok((lines, is_good)) => printed(&lines, is_good),
        Err(failure) => failed(BAD_USAGE, format_args!("{failure:#}")),
    }
}

fn decode_lines(
    config: &Config,
    origin: decode::Origin,
    clock: impl Fn() -> Timestamp,
    file: &Path,
) -> ExitCode {
    let input = match open(file) {
        Ok(input) => input,
        Err(error) => return failed(BAD_USAGE, format_args!("{}: {error}", file.display())),
    };
    let mut code = BAD_USAGE;
    let put = |text: &str| put_some(text).inspect_err(|_| code = FAILED);
    match decode::decode_lines(config, origin, input, clock, put) {
        Ok(is_good) => good(is_good),
        Err(failure) => failed(code, format_args!("{failure:#}")),
    }
}

/// A file, or standard input for `-`.
fn open(file: &Path) -> std::io::Result<Box<dyn BufRead>> {
    Ok(if file == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(BufReader::new(std::fs::File::open(file)?))
    })
}

fn check_servers(config: &Config, probe_topic: Option<&str>, json: bool) -> ExitCode {
    match without_logs(check::check(config, probe_topic)) {
        Ok(report) => printed(&if json { report.json() } else { report.to_string() }, !report.has_errors()),
        Err(failure) => failed(BAD_USAGE, format_args!("{failure:#}")),
    }
}

fn without_logs<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(ended_by_signals(command))
}

/// The kernel ends a process at a signal that it does not take, but not the first one of a container.
async fn ended_by_signals<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    if std::process::id() != 1 {
        return command.await;
    }
    let mut signals = Signals::new()?;
    tokio::select! {
        done = command => done,
        () = signals.next() => anyhow::bail!("ended by a signal"),
    }
}

/// What a command that logs nothing ends with.
fn finish(code: anyhow::Result<ExitCode>) -> ExitCode {
    code.unwrap_or_else(|failure| failed(FAILED, format_args!("{failure:#}")))
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

fn print_result(result: anyhow::Result<String>) -> ExitCode {
    finish(result.and_then(|text| put(&text)).map(|()| ExitCode::SUCCESS))
}

fn printed(text: &str, is_good: bool) -> ExitCode {
    finish(put(text).map(|()| good(is_good)))
}

/// Writes a result to stdout. A reader that leaves early, such as `head`, has what it wants: the exit code stays the result's.
fn put(text: &str) -> anyhow::Result<()> {
    put_some(text).map(drop)
}

/// The same of a result that comes in parts: `false` once the reader has left.
fn put_some(text: &str) -> anyhow::Result<bool> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(anyhow::Error::from(error).context("stdout")),
        Ok(()) => Ok(true),
    }
}

/// Reports a failure on stderr, if somebody reads it; returns `code`.
fn failed(code: u8, why: impl Display) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "milepost: {why}");
    code.into()
}

/// Of a service alone: before the result of a command this line would only be in the way.
fn log_start(config: &Config) {
    info!(configuration = %config.to_string().replace('\n', " "), version = milepost::build::LONG, "milepost");
}

/// Of a command that takes no signals itself.
fn with_logs(config: Config, command: impl AsyncFnOnce(Config) -> anyhow::Result<ExitCode>) -> ExitCode {
    with_logs_and_runtime(config, async |config| ended_by_signals(command(config)).await)
}

fn with_logs_and_runtime(
    config: Config,
    command: impl AsyncFnOnce(Config) -> anyhow::Result<ExitCode>,
) -> ExitCode {
    logging::start(&config.log);
    // One thread beside the driver's: encoding, inserting and serving metrics need a small part of one core.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        let outcome = runtime.block_on(command(config));
        runtime.shutdown_background(); // a disk that hangs must not hold an exit
        outcome
    });
    let code = outcome.unwrap_or_else(|failure| {
        // Whatever `log.filter` leaves out: nothing fails in silence.
        if tracing::enabled!(tracing::Level::ERROR) {
            error!("{failure:#}");
            FAILED.into()
        } else {
            failed(FAILED, format_args!("{failure:#}"))
        }
    });
    logging::flush();
    code
}
