//! The command line of `milepost erase`.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use milepost_command::arguments::span;
use milepost_command::process::{exit_code, put, with_logs};
use milepost_command::{Companion, Run, Shown as _};
use milepost_config::Config;
use milepost_decode::position::DriverId;

use crate::erase::{self, EraseArgs};

/// `milepost erase`, as `src/cli.rs` lists it.
pub const COMMANDS: &[Companion] = &[Companion::new::<Arguments>()];

/// Remove all data of a driver and drop what arrives later; a dry run without --yes; exit 75 if
/// data is left
#[derive(Parser)]
#[command(name = "erase")]
struct Arguments {
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
}

impl Run for Arguments {
    fn run(self, config: Config) -> anyhow::Result<ExitCode> {
        let Self { driver: driver_id, yes, lift, within, json } = self;
        with_logs(config, async move |config| {
            if lift {
                return put(&erase::lift(&config, driver_id).await?, ExitCode::SUCCESS);
            }
            let report = erase::erase(&config, EraseArgs { driver_id, yes, within }).await?;
            put(&report.shown(json), exit_code(report.outcome()))
        })
    }
}
