//! Defines the command line of `milepost import`, and runs it.

use std::process::ExitCode;

use clap::Parser;

use milepost_command::process::{as_bad_usage, put, success_if, with_logs};
use milepost_command::{Companion, Run, Shown as _};
use milepost_config::Config;

use crate::args::ImportArgs;
use crate::import::{import, open};

/// `milepost import`, as `src/cli.rs` lists it.
pub const COMMANDS: &[Companion] = &[Companion::new::<Arguments>()];

/// Import fixes from GPX, TCX, KML, GeoJSON, CSV, Google Timeline and OwnTracks Recorder files;
/// safe to repeat; exit 1 if a file is not read to its end
#[derive(Parser)]
#[command(name = "import")]
struct Arguments {
    #[command(flatten)]
    args: ImportArgs,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

impl Run for Arguments {
    fn run(self, config: Config) -> anyhow::Result<ExitCode> {
        let opened = as_bad_usage(open(&config, self.args))?;
        with_logs(config, async move |config| {
            let imported = import(&config, opened).await?;
            put(&imported.shown(self.json), success_if(!imported.has_failed()))
        })
    }
}
