//! The command lines of `milepost events` and `milepost fences`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};

use milepost_command::process::{
    as_bad_usage, exit_code, log_start, put, read_file, success_if, with_logs,
    with_logs_and_runtime,
};
use milepost_command::{Companion, Run, Shown as _};
use milepost_config::Config;

use crate::fences::import::{FenceImportArgs, import};
use crate::run;

/// The commands `events` and `fences`, for the list of commands in `src/cli.rs`.
pub const COMMANDS: &[Companion] = &[Companion::new::<Events>(), Companion::new::<Fences>()];

/// Report drivers who enter or leave a fence, fall silent, are too fast or jump: table events,
/// MQTT, webhook; until SIGTERM
#[derive(Parser)]
#[command(name = "events")]
struct Events {}

impl Run for Events {
    fn run(self, config: Config) -> anyhow::Result<ExitCode> {
        as_bad_usage(run::check_topic(&config))?;
        with_logs_and_runtime(config, async |config| {
            log_start(&config);
            run::run(config).await.map(exit_code)
        })
    }
}

/// Import geofences
#[derive(Parser)]
#[command(name = "fences")]
struct Fences {
    #[command(subcommand)]
    command: FencesCommand,
}

#[derive(Subcommand)]
enum FencesCommand {
    /// Import areas from GeoJSON; safe to repeat; imports nothing and exits 1 if an area is invalid
    Import {
        /// Only print what would be imported
        #[arg(long)]
        dry_run: bool,
        /// Import the valid areas even if others are invalid
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

impl Run for Fences {
    fn run(self, config: Config) -> anyhow::Result<ExitCode> {
        let FencesCommand::Import { dry_run, skip_invalid, json, file } = self.command;
        let areas =
            String::from_utf8(read_file(&file)?).with_context(|| file.display().to_string())?;
        with_logs(config, async move |config| {
            let imported =
                import(&config, &areas, FenceImportArgs { dry_run, skip_invalid }).await?;
            put(&imported.shown(json), success_if(!imported.is_refused()))
        })
    }
}
