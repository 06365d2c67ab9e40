//! What milepost can be told on the command line.

use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use clap::{Parser, Subcommand};
use milepost::app::now;
use milepost::pipeline::position::Timestamp;
use milepost::pipeline::reject::Reason;

/// Takes drivers' GPS positions from an MQTT broker and writes them to ClickHouse; acknowledges a message
/// only when its rows are durable.
#[derive(Parser)]
#[command(version)]
pub(crate) struct Arguments {
    /// TOML file; else $MILEPOST_CONFIG, else ./milepost.toml if there is one
    #[arg(long, global = true)]
    pub(crate) config: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Consume until SIGTERM; never migrates
    Run,
    /// Create or update the tables; safe to repeat, and from two places at once
    Migrate {
        /// Print every statement from nothing on, and where it would run, instead; asks no server
        #[arg(long)]
        plan: bool,
    },
    /// Put positions into the order of days, while fixes come in; goes on where it was stopped
    Backfill {
        /// Print every statement, and where it would run, instead; asks no server
        #[arg(long)]
        plan: bool,
    },
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
    /// Print what a payload becomes, row by row, or why it is refused; asks no server; exit 1 if anything is refused
    Decode {
        /// Which of the sources in the configuration, from 1; not needed if there is one, or with --topic
        #[arg(long)]
        source: Option<usize>,
        /// The topic the message is to have come on
        #[arg(long)]
        topic: Option<String>,
        /// When it is to have come, such as 2026-11-21T08:00:00Z, or an age such as 2h [default: now]
        #[arg(long, value_parser = moment)]
        received_at: Option<Timestamp>,
        /// A file with one message's payload, or - for standard input
        file: PathBuf,
    },
    /// Take what the broker holds for a member that is gone for good, and end its sessions; exit 75 if something is left
    Drain {
        /// The mqtt.client_id that it had
        #[arg(long)]
        client_id: String,
        /// Unsubscribe it though none of shutdown.peers is known to go on
        #[arg(long)]
        leave: bool,
        /// Not longer than this
        #[arg(long, value_parser = humantime::parse_duration, default_value = "10m")]
        within: Duration,
    },
    /// The batches in spool.dir: those of a volume whose pod is gone, for instance
    Spool {
        #[command(subcommand)]
        command: SpoolCommand,
    },
    /// Remove everything of a driver, and leave out what comes of them later; a dry run without --yes; exit 75 if something is left
    Erase {
        /// Whose
        #[arg(long)]
        driver: String,
        /// Do it
        #[arg(long)]
        yes: bool,
        /// Take again what comes of them; what is gone stays gone
        #[arg(long, conflicts_with = "yes")]
        lift: bool,
        /// Not longer than this; old parts stay on ClickHouse's disk for eight minutes
        #[arg(long, value_parser = humantime::parse_duration, default_value = "15m")]
        within: Duration,
    },
    /// Geofences
    Fences {
        #[command(subcommand)]
        command: FencesCommand,
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
pub(crate) enum SpoolCommand {
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
pub(crate) enum FencesCommand {
    /// Import areas from GeoJSON; may be repeated; exit 1, and nothing is imported, if any of them is invalid
    Import {
        /// Say what would be imported, and import nothing
        #[arg(long)]
        dry_run: bool,
        /// Import the others
        #[arg(long)]
        skip_invalid: bool,
        /// A FeatureCollection of Polygons and MultiPolygons with properties.name, and perhaps valid_from and valid_to; - for
        /// standard input
        file: PathBuf,
    },
}

#[derive(Subcommand)]
pub(crate) enum RejectsCommand {
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
        return Ok(Timestamp::from_unix_ms(now().unix_ms().saturating_sub(ms(age))));
    }
    let time = humantime::parse_rfc3339_weak(text).map_err(|error| error.to_string())?;
    Ok(Timestamp::from_unix_ms(time.duration_since(UNIX_EPOCH).map_or(0, ms)))
}
