//! The command line of milepost-map.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// A live map of the drivers whose positions milepost stores. Reads ClickHouse. If `fences.user` is
/// set, also writes fences, cards of drivers, and acknowledgements of alerts.
#[derive(Parser)]
#[command(version = milepost_observe::build::LONG)]
pub(crate) struct Arguments {
    /// TOML file; else $MILEPOST_MAP_CONFIG, else ./milepost-map.toml if there is one
    #[arg(long, global = true)]
    pub(crate) config: Option<PathBuf>,
    /// A proxy in front of the map authenticates and encrypts: listen beyond the loopback without
    /// TLS and a login
    #[arg(long, global = true)]
    pub(crate) behind_proxy: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Serve until SIGTERM
    Run,
    /// Print the effective configuration, secrets redacted
    Config,
    /// Ask a running milepost-map whether it is ready; for container health checks
    Health,
}
