//! `lab faults` judges the promises, `lab replicas` those that need several servers, `lab bench`
//! the cost, `lab story` repeats the story's experiment; `floor` is the bench's yardstick.

mod replicas;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lab_stand_ins::floor;

/// Something does not hold, or could not be measured.
const NOT_GOOD: u8 = 1;
/// Nothing can be said: bad usage, or a part that does not start.
const CANNOT_TELL: u8 = 2;

/// The laboratory around milepost: what it promises, and what it costs.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The real parts with faults between them; a table of what was lost, doubled, and how long it
    /// took
    Faults(lab_faults::Arguments),
    /// Milepost on your own replicas, which your own commands kill, cut off and bring back
    Replicas(replicas::Arguments),
    /// Milepost beside Node, Telegraf and the floor under the same load; or another bench, with
    /// --what
    Bench(lab_bench::Arguments),
    /// milepost beside Node, Bun and an afternoon's Rust, from a thousand drivers to ten million
    Story(lab_story::Arguments),
    /// The least a consumer could cost
    Floor(floor::Arguments),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { CANNOT_TELL.into() } else { ExitCode::SUCCESS };
        }
    };
    let outcome = match arguments.command {
        Command::Faults(arguments) => lab_faults::run(&arguments),
        Command::Replicas(arguments) => replicas::run(&arguments),
        Command::Bench(arguments) => lab_bench::run(&arguments),
        Command::Story(arguments) => lab_story::run(&arguments),
        Command::Floor(arguments) => floor::run(&arguments),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => NOT_GOOD.into(),
        Err(failure) => {
            eprintln!("lab: {failure:#}");
            CANNOT_TELL.into()
        }
    }
}
