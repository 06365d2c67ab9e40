//! The command lines of `milepost decode`, `rejects`, `top` and `trace`.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use milepost_command::arguments::span;
use milepost_command::process::{
    as_bad_usage, open, put, put_some, read_file, success_if, with_logs, without_logs,
};
use milepost_command::{Companion, Run, Shown as _};
use milepost_config::Config;
use milepost_core::peers::Peer;
use milepost_decode::position::{DriverId, Timestamp};
use milepost_decode::reject::Reason;

use crate::arguments::{interval, moment, peer, reason};
use crate::{decode, rejects, top, trace};

/// The four commands, as `src/cli.rs` lists them.
pub const COMMANDS: &[Companion] = &[
    Companion::new::<Decode>(),
    Companion::new::<Rejects>(),
    Companion::new::<Top>(),
    Companion::new::<Trace>(),
];

/// Decode a payload and print each row, or why it is rejected, as JSON lines; contacts no server;
/// exit 1 on rejects
#[derive(Parser)]
#[command(name = "decode")]
struct Decode {
    /// Number of the source in the configuration, from 1 [default: the only one, or the one that
    /// matches --topic]
    #[arg(long)]
    source: Option<usize>,
    /// Topic of the message
    #[arg(long)]
    topic: Option<String>,
    /// Time of receipt, such as 2026-11-21T08:00:00Z, or an age such as 2h [default: now]
    #[arg(long, value_parser = moment)]
    received_at: Option<Timestamp>,
    /// Each line is a message, decoded as it arrives: a payload, or a line that
    /// `mosquitto_sub -F %j` printed
    #[arg(long)]
    lines: bool,
    /// File with the payload of one message, or - for standard input
    file: PathBuf,
}

impl Run for Decode {
    fn run(self, config: Config) -> anyhow::Result<ExitCode> {
        let Self { source, topic, received_at, lines, file } = self;
        let clock = move || received_at.unwrap_or_else(milepost_observe::now);
        let origin = decode::Origin { source, topic, received_at: clock() };
        if lines {
            return decode_lines(&config, origin, clock, &file);
        }
        let (rows, is_good) = as_bad_usage(decode::decode(&config, &origin, &read_file(&file)?))?;
        put(&rows, success_if(is_good))
    }
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
    // An error of printing is a failure; any other error is bad usage.
    if is_printed { as_bad_usage(decoded) } else { decoded }.map(success_if)
}

/// Replay rejected payloads
#[derive(Parser)]
#[command(name = "rejects")]
struct Rejects {
    #[command(subcommand)]
    command: RejectsCommand,
}

#[derive(Subcommand)]
enum RejectsCommand {
    /// Decode stored payloads again and insert those that are valid now; safe to repeat
    Replay {
        /// Reason of the rejects, as in the rejects table
        #[arg(long, value_parser = reason)]
        reason: Reason,
        /// Oldest time of receipt, such as 2026-11-21T08:00:00Z, or an age such as 2h [default:
        /// all]
        #[arg(long, value_parser = moment)]
        since: Option<Timestamp>,
        /// Print one JSON object instead of a table
        #[arg(long)]
        json: bool,
    },
}

impl Run for Rejects {
    fn run(self, config: Config) -> anyhow::Result<ExitCode> {
        let RejectsCommand::Replay { reason, since, json } = self.command;
        with_logs(config, async move |config| {
            let since = since.unwrap_or(Timestamp::from_unix_ms(0));
            let summary = rejects::replay(&config, reason, since).await?;
            put(&summary.shown(json), ExitCode::SUCCESS)
        })
    }
}

/// Show all members on one screen and refresh it: rates, lag, age of fixes, windows, spool, errors
#[derive(Parser)]
#[command(name = "top")]
struct Top {
    /// Refresh interval, such as 5s; rates cover this time
    #[arg(long, value_parser = interval, default_value = "2s")]
    every: Duration,
    /// Print one screen and exit
    #[arg(long)]
    once: bool,
    /// Print one JSON object per screen
    #[arg(long)]
    json: bool,
    /// Addresses of the members' http.listen, host:port [default: this configuration's, and
    /// shutdown.peers]
    #[arg(value_parser = peer)]
    members: Vec<Peer>,
}

impl Run for Top {
    fn run(self, config: Config) -> anyhow::Result<ExitCode> {
        let Self { every, once, json, members } = self;
        let is_screen = !once && !json && std::io::stdout().is_terminal();
        let clear = if is_screen { "\x1b[H\x1b[J" } else { "" };
        let print = |screen: &top::Screen| put_some(&format!("{clear}{}", screen.shown(json)));
        without_logs(top::top(&config, top::TopArgs { members, every, once }, print))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Report where a driver's fixes are: ClickHouse, rejects, erased, spool; exit 1 if ClickHouse has
/// none
#[derive(Parser)]
#[command(name = "trace")]
struct Trace {
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Print the driver's messages as they arrive, decoded, and when each fix is stored; one JSON
    /// object per line
    #[arg(long)]
    live: bool,
    /// Duration of --live
    #[arg(long = "for", value_name = "TIME", requires = "live", value_parser = span)]
    #[arg(default_value = "10m")]
    duration: Duration,
    /// Id of the driver
    #[arg(value_parser = DriverId::named)]
    driver: DriverId,
}

impl Run for Trace {
    fn run(self, config: Config) -> anyhow::Result<ExitCode> {
        let Self { json, live, duration, driver } = self;
        if live {
            without_logs(trace::follow(&config, driver, duration, put_some))?;
            return Ok(ExitCode::SUCCESS);
        }
        let trace = without_logs(trace::trace(&config, driver))?;
        put(&trace.shown(json), success_if(trace.is_found()))
    }
}
