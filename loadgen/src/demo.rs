//! `make demo` runs the real programs, a fleet and the verifier on free ports. It prints a table
//! and draws a picture, and leaves nothing running, even after an interrupt.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lab_stack::{Milepost, procfs, say, unix_ms};

use crate::manifest::Manifest;
use crate::picture;
use crate::publish::{self, Plan};
use crate::servers::{Servers, step};
use crate::verify::{Verdict, verify};

/// The verifier stops waiting if no new fix has been stored for this long.
const VERIFY_WITHIN: Duration = Duration::from_secs(30);
const LAST_POSITIONS: &str = "SELECT driver_id, formatDateTime(ts, '%T') AS utc, \
    round(lat, 5) AS lat, round(lng, 5) AS lng, round(speed, 1) AS speed, \
    round(heading) AS heading FROM fleet.last_positions \
    WHERE speed > 1 ORDER BY ts DESC, driver_id LIMIT 5 FORMAT PrettySpaceNoEscapes";

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// The milepost binary
    #[arg(long, default_value = "target/release/milepost")]
    milepost: PathBuf,
    /// Number of drivers
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..))]
    drivers: u32,
    /// Messages a second, at QoS 1
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// Duration, in seconds
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
}

/// Runs the demo. Returns `true` if nothing was lost or stored twice.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let arguments = arguments.clone();
    lab_stack::in_scratch_folder("demo-", move |folder| run_in(&arguments, folder))
}

fn run_in(arguments: &Arguments, folder: &Path) -> Result<bool> {
    let &Arguments { ref milepost, drivers, rate, seconds } = arguments;
    let Servers { broker, clickhouse, mut milepost } =
        Servers::start(milepost, folder, |settings| settings)?;

    eprintln!("{drivers} drivers, {rate} messages a second at QoS 1, {seconds} s:");
    let plan = Plan {
        broker: format!("127.0.0.1:{}", broker.port),
        run: format!("{:x}", unix_ms()),
        drivers,
        connections: 4,
        rate: f64::from(rate),
        messages: u64::from(rate) * u64::from(seconds),
        ..Plan::default()
    };
    // Returns the CPU time of milepost and of ClickHouse so far, in seconds.
    let cpu_seconds = || -> Result<[f64; 2]> {
        let seconds = |pid| Ok::<f64, anyhow::Error>(procfs::cpu_time(pid)?.as_secs_f64());
        Ok([seconds(milepost.process.pid())?, seconds(clickhouse.pid())?])
    };
    let (cpu_before, began) = (cpu_seconds()?, Instant::now());
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let manifest = runtime.block_on(publish::run_with_bar(&plan))?;
    let took = began.elapsed();
    let cpu_after = cpu_seconds()?;
    let cpu = [0, 1].map(|index| cpu_after[index] - cpu_before[index]);

    let verdict = step("comparing what was sent with what is stored", || {
        verify(&clickhouse.store("fleet"), &manifest, VERIFY_WITHIN)
    })?;
    print_figures(&milepost, &manifest, &verdict, cpu, took.as_secs_f64())?;
    say("\nFive rows of fleet.last_positions:\n");
    say(clickhouse.query(LAST_POSITIONS)?.trim_end());

    let picture = folder.with_file_name("demo-tracks.svg");
    picture::draw(&clickhouse, &manifest.run, &picture)?;
    say(&format!("\nThe tracks just stored: {}", picture.display()));
    let code = milepost.terminate(Duration::from_secs(30))?;
    ensure!(code == 0, "milepost ended with exit code {code}: {}", milepost.process.log()?);
    say(if verdict.is_exact() {
        "Nothing lost, nothing twice. Nothing left running."
    } else {
        "NOT exact: see above."
    });
    say("To see such a fleet on a live map: make map");
    Ok(verdict.is_exact())
}

/// Prints the table. `cpu`, `clickhouse_cpu` and `took`: seconds.
fn print_figures(
    milepost: &Milepost,
    manifest: &Manifest,
    verdict: &Verdict,
    [cpu, clickhouse_cpu]: [f64; 2],
    took: f64,
) -> Result<()> {
    let freshness = verdict
        .freshness_ms
        .map_or("–".to_owned(), |(p50, p99)| format!("{p50:.0} / {p99:.0} ms"));
    let batches = milepost.metric("batch_rows_count")?;
    let rows = milepost.metric("batch_rows_sum")? / batches.max(1.0);
    let [p50, p99] =
        [0.5, 0.99].map(|q| milepost.quantile("insert_duration_seconds", q).map(|s| s * 1e3));
    let (_, peak_bytes) = procfs::resident_bytes(milepost.process.pid())?;
    let memory = peak_bytes as f64 / f64::from(1 << 20);
    let lines = [
        ("sent", format!("{} positions", verdict.sent), "acknowledged by the broker"),
        ("throughput", format!("{:.0} messages/s", manifest.rate_held), "held over the whole run"),
        ("lost", verdict.lost.to_string(), "by the set of (driver, seq)"),
        ("duplicates", verdict.duplicates_in_fixes.to_string(), "in the view analysts use"),
        ("freshness p50/p99", freshness, "published → in ClickHouse"),
        (
            "batches",
            format!("{batches:.0} of {rows:.0} rows"),
            "rows or one second, whichever is first",
        ),
        ("flush p50/p99", format!("{:.0} / {:.0} ms", p50?, p99?), "one INSERT, durable (fsync)"),
        ("CPU", format!("{:.1} % of a core", 100.0 * cpu / took), "of milepost"),
        ("memory", format!("{memory:.1} MiB"), "of milepost, its peak"),
        ("", format!("{:.1} µs", cpu * 1e6 / manifest.messages as f64), "CPU a message"),
        (
            "ClickHouse",
            format!("{:.1} µs", clickhouse_cpu * 1e6 / manifest.messages as f64),
            "CPU a position: inserts, merges so far, its HTTP front",
        ),
    ];
    say("");
    lines.iter().for_each(|(name, value, note)| say(&format!("  {name:<18} {value:>22}   {note}")));
    Ok(())
}
