//! `lab faults` tests the guarantees, and `lab replicas` tests the guarantees that need several
//! ClickHouse servers. `lab bench` measures the cost, and `lab story` repeats the experiment of the
//! story. `lab floor` is the cheapest possible consumer, the yardstick of the benchmark.

mod replicas;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lab_stand_ins::floor;

/// Exit code if a row does not hold, or a figure could not be measured.
const FAILED: u8 = 1;
/// Exit code if no verdict is possible: wrong usage, or a program that does not start.
const NO_VERDICT: u8 = 2;

/// The laboratory of milepost: tests its guarantees, and measures its cost.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Real programs with faults between them; prints losses, duplicates and recovery times
    Faults(lab_faults::Arguments),
    /// Milepost on your own replicas; your commands kill the replicas, cut them off and start them
    /// again
    Replicas(replicas::Arguments),
    /// Milepost compared with Node, Telegraf and the floor under the same load; or another
    /// benchmark, with --what
    Bench(lab_bench::Arguments),
    /// Milepost compared with Node, Bun and an afternoon's Rust, from a thousand drivers to ten
    /// million
    Story(lab_story::Arguments),
    /// The cheapest possible consumer
    Floor(floor::Arguments),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { NO_VERDICT.into() } else { ExitCode::SUCCESS };
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
        Ok(false) => FAILED.into(),
        Err(failure) => {
            eprintln!("lab: {failure:#}");
            NO_VERDICT.into()
        }
    }
}
