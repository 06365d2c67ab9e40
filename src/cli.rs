//! The command line.

use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use clap::{Parser, Subcommand};
use milepost::app::commands::import;
use milepost_core::peers::Peer;
use milepost_decode::position::{DriverId, Timestamp};
use milepost_decode::reject::Reason;
use milepost_observe::now;

/// Consume drivers' GPS positions from an MQTT broker and store them in ClickHouse. A message is
/// acknowledged only when its rows are durable.
#[derive(Parser)]
#[command(version = milepost_observe::build::LONG)]
pub(crate) struct Arguments {
    /// TOML file [default: $MILEPOST_CONFIG, or ./milepost.toml if it exists]
    #[arg(long, global = true)]
    pub(crate) config: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Consume until SIGTERM; never change tables
    Run,
    /// Create or update the tables; safe to repeat, also from two places at once
    Migrate {
        /// Only print the statements for an empty server, and where each would run; contacts no
        /// server
        #[arg(long)]
        plan: bool,
        /// First drop the column of this field, such as one that [fields.NAME] no longer names; its
        /// values stay in attributes
        #[arg(long, value_name = "NAME", conflicts_with = "plan")]
        drop_field: Option<String>,
    },
    /// Check the broker, ClickHouse and the disk, and name each setting to change; exit 1 on errors
    Check {
        /// Print one JSON object instead of lines
        #[arg(long)]
        json: bool,
        /// Also publish a message to this topic and wait for it, such as drivers/ID/gps-check; the
        /// topic must not match a source
        #[arg(long)]
        probe_topic: Option<String>,
    },
    /// Print the effective configuration as TOML, secrets redacted
    Config,
    /// Decode a payload and print each row, or why it is rejected, as JSON lines; contacts no
    /// server; exit 1 on rejects
    Decode {
        /// Number of the source in the configuration, from 1 [default: the only one, or the one
        /// that matches --topic]
        #[arg(long)]
        source: Option<usize>,
        /// Topic of the message
        #[arg(long)]
        topic: Option<String>,
        /// Time of receipt, such as 2026-11-21T08:00:00Z, or an age such as 2h [default: now]
        #[arg(long, value_parser = moment)]
        received_at: Option<Timestamp>,
        /// Each line is a message, decoded as it arrives: a payload, or what `mosquitto_sub -F %j`
        /// prints
        #[arg(long)]
        lines: bool,
        /// File with the payload of one message, or - for standard input
        file: PathBuf,
    },
    /// Consume the backlog of a member that is gone for good, and end its sessions; exit 75 if a
    /// session is left
    Drain {
        /// The mqtt.client_id of that member
        #[arg(long, value_parser = client_id)]
        client_id: String,
        /// Unsubscribe it even if no member of shutdown.peers is known to stay
        #[arg(long)]
        leave: bool,
        /// Stop after this time
        #[arg(long, value_parser = span, default_value = "10m")]
        within: Duration,
        /// Print one JSON object instead of a table
        #[arg(long)]
        json: bool,
    },
    /// List, replay or export the batches in spool.dir, for example of a volume whose pod is gone
    Spool {
        #[command(subcommand)]
        command: SpoolCommand,
    },
    /// Remove all data of a driver and drop what arrives later; a dry run without --yes; exit 75 if
    /// data is left
    Erase {
        /// Id of the driver
        #[arg(long, value_parser = DriverId::named)]
        driver: DriverId,
        /// Remove the data; without this it is only counted
        #[arg(long)]
        yes: bool,
        /// Accept data of this driver again; removed data stays removed
        #[arg(long, conflicts_with = "yes")]
        lift: bool,
        /// Stop after this time; ClickHouse keeps old parts on its disk for eight minutes
        #[arg(long, value_parser = span, default_value = "15m")]
        within: Duration,
        /// Print one JSON object instead of a table
        #[arg(long, conflicts_with = "lift")]
        json: bool,
    },
    /// Report drivers who enter or leave a fence, fall silent, are too fast or jump: table events,
    /// MQTT, webhook; until SIGTERM
    Events,
    /// Import geofences
    Fences {
        #[command(subcommand)]
        command: FencesCommand,
    },
    /// Replay rejected payloads
    Rejects {
        #[command(subcommand)]
        command: RejectsCommand,
    },
    /// Import fixes of GPX, GeoJSON, CSV and OwnTracks Recorder files; safe to repeat; exit 1 if a
    /// file is not read to its end
    Import {
        #[command(flatten)]
        orders: import::Orders,
        /// Print one JSON object instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Show all members on one screen and refresh it: rates, lag, age of fixes, windows, spool,
    /// errors
    Top {
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
    },
    /// Report where a driver's fixes are: ClickHouse, rejects, erased, spool; exit 1 if ClickHouse
    /// has none
    Trace {
        /// Print one JSON object instead of a table
        #[arg(long)]
        json: bool,
        /// Print their messages as they pass, decoded, and when each fix is stored; one JSON object
        /// a line
        #[arg(long)]
        live: bool,
        /// How long, with --live
        #[arg(long = "for", value_name = "TIME", requires = "live", value_parser = span, default_value = "10m")]
        lasts: Duration,
        /// Id of the driver
        #[arg(value_parser = DriverId::named)]
        driver: DriverId,
    },
    /// Exit 0 if the running milepost is ready; for container health checks
    Health,
}

#[derive(Subcommand)]
pub(crate) enum SpoolCommand {
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

#[derive(Subcommand)]
pub(crate) enum FencesCommand {
    /// Import areas from GeoJSON; safe to repeat; imports nothing and exits 1 if an area is invalid
    Import {
        /// Only print what would be imported
        #[arg(long)]
        dry_run: bool,
        /// Import the valid areas although others are invalid
        #[arg(long)]
        skip_invalid: bool,
        /// Print one JSON object instead of a table
        #[arg(long)]
        json: bool,
        /// FeatureCollection of Polygons and MultiPolygons with properties.name and, optionally,
        /// valid_from and valid_to; - for standard input
        file: PathBuf,
    },
}

#[derive(Subcommand)]
pub(crate) enum RejectsCommand {
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

/// A clock can be put forward by so much.
fn span(text: &str) -> Result<Duration, String> {
    const SPAN_MAX: Duration = Duration::from_secs(1_000 * 24 * 3_600);
    let span = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if span <= SPAN_MAX { Ok(span) } else { Err("must be at most 1000d".to_owned()) }
}

/// Members answer that often.
fn interval(text: &str) -> Result<Duration, String> {
    let interval = span(text)?;
    if interval >= Duration::from_millis(100) {
        Ok(interval)
    } else {
        Err("must be at least 100ms".to_owned())
    }
}

fn client_id(text: &str) -> Result<String, String> {
    milepost_config::client_id(text.to_owned())
}

fn peer(text: &str) -> Result<Peer, String> {
    milepost_config::peers(vec![text.to_owned()])?
        .pop()
        .ok_or_else(|| "must be host:port".to_owned())
}

fn reason(name: &str) -> Result<Reason, String> {
    Reason::ALL.into_iter().find(|reason| reason.name() == name).ok_or_else(|| {
        let names: Vec<&str> = Reason::ALL.iter().map(|reason| reason.name()).collect();
        format!("must be one of {}", names.join(", "))
    })
}

fn moment(text: &str) -> Result<Timestamp, String> {
    let ms = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    if let Ok(age) = humantime::parse_duration(text) {
        return Ok(Timestamp::from_unix_ms(now().unix_ms().saturating_sub(ms(age))));
    }
    let wanted = "must be a time such as 2026-11-21T08:00:00Z, or an age such as 2h";
    let time = humantime::parse_rfc3339_weak(text).map_err(|_| wanted.to_owned())?;
    Ok(Timestamp::from_unix_ms(time.duration_since(UNIX_EPOCH).map_or(0, ms)))
}
