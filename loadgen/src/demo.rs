//! `make demo`: the real parts on free ports, a fleet, the judge, a table and a picture. Nothing is left
//! running, also when it is interrupted.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;

use crate::manifest::Manifest;
use crate::picture;
use crate::publish::{self, Plan};
use crate::verify::{Verdict, verify};
use lab_stack::{Broker, ClickHouse, Milepost, Settings, procfs, unix_ms};

/// The engine wants more for its parts than the rows take.
const FREE_BYTES_MIN: u64 = 1 << 30;
const VERIFY_WITHIN: Duration = Duration::from_secs(30);

/// The load the published story had to carry: 5,000 drivers, twice a second.
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// The binary
    #[arg(long, default_value = "target/release/milepost")]
    milepost: PathBuf,
    /// How many drivers
    #[arg(long, default_value_t = 5_000)]
    drivers: u32,
    /// Messages a second, at QoS 1
    #[arg(long, default_value_t = 10_000)]
    rate: u32,
    /// How long
    #[arg(long, default_value_t = 30)]
    seconds: u32,
}

/// Runs the demo; `true` if nothing was lost or double.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let local = lab_stack::repository().join(".local");
    std::fs::create_dir_all(&local)?;
    ensure_space(&local)?;
    // Held here, not by the task: an interrupt removes it too.
    let folder = TempDir::with_prefix_in("demo-", &local)?;
    let (arguments, path) = (arguments.clone(), folder.path().to_owned());
    lab_stack::unless_interrupted(move || show(&arguments, &path))
}

fn show(arguments: &Arguments, folder: &Path) -> Result<bool> {
    let &Arguments { ref milepost, drivers, rate, seconds } = arguments;
    let binary =
        std::fs::canonicalize(milepost).with_context(|| format!("no binary at {}", milepost.display()))?;

    let step = Step::begin("starting Mosquitto and the ClickHouse engine");
    let broker = Broker::start(folder)?;
    let clickhouse = ClickHouse::start(folder)?;
    step.done();
    let step = Step::begin("milepost migrate, milepost run");
    let settings = Settings::new(&binary, folder, broker.port, &clickhouse.url());
    settings.migrate()?;
    let mut milepost = settings.run()?;
    step.done();

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
    let (cpu_before, began) = (procfs::cpu_time(milepost.process.pid())?, Instant::now());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let manifest = runtime.block_on(publish::run_with_bar(&plan))?;
    let took = began.elapsed();
    let cpu = procfs::cpu_time(milepost.process.pid())? - cpu_before;

    let step = Step::begin("comparing what was sent with what is stored");
    let verdict = verify(&clickhouse.store("fleet"), &manifest, VERIFY_WITHIN)?;
    step.done();
    let (_, peak_bytes) = procfs::resident_bytes(milepost.process.pid())?;
    let figures = Figures::read(&milepost, &manifest, cpu, took, peak_bytes)?;
    figures.print(&verdict);
    print_last_positions(&clickhouse)?;

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
    Ok(verdict.is_exact())
}

/// What milepost used and did.
struct Figures {
    rate_held: f64,
    cpu_us_per_message: f64,
    cpu_percent_of_core: f64,
    peak_mib: f64,
    batches: f64,
    rows_per_batch: f64,
    flush_p50_ms: f64,
    flush_p99_ms: f64,
}

impl Figures {
    fn read(
        milepost: &Milepost,
        manifest: &Manifest,
        cpu: Duration,
        took: Duration,
        peak_bytes: u64,
    ) -> Result<Self> {
        let batches = milepost.metric("batches_inserted_total")?;
        let messages = manifest.messages as f64;
        Ok(Self {
            rate_held: manifest.rate_held,
            cpu_us_per_message: cpu.as_secs_f64() * 1e6 / messages,
            cpu_percent_of_core: 100.0 * cpu.as_secs_f64() / took.as_secs_f64(),
            peak_mib: peak_bytes as f64 / f64::from(1 << 20),
            batches,
            rows_per_batch: milepost.metric("batch_rows_sum")? / batches.max(1.0),
            flush_p50_ms: 1e3 * milepost.quantile("insert_duration_seconds", 0.5)?,
            flush_p99_ms: 1e3 * milepost.quantile("insert_duration_seconds", 0.99)?,
        })
    }

    fn print(&self, verdict: &Verdict) {
        let freshness =
            verdict.freshness_ms.map_or("–".to_owned(), |(p50, p99)| format!("{p50:.0} / {p99:.0} ms"));
        let rows: [(&str, String, &str); 9] = [
            ("sent", format!("{} positions", verdict.sent), "acknowledged by the broker"),
            ("throughput", format!("{:.0} messages/s", self.rate_held), "held over the whole run"),
            ("lost", verdict.lost.to_string(), "by the set of (driver, seq)"),
            ("duplicates", verdict.duplicates_in_fixes.to_string(), "in the view analysts use"),
            ("freshness p50/p99", freshness, "published → in ClickHouse"),
            (
                "batches",
                format!("{:.0} of {:.0} rows", self.batches, self.rows_per_batch),
                "rows or one second, whichever is first",
            ),
            (
                "flush p50/p99",
                format!("{:.0} / {:.0} ms", self.flush_p50_ms, self.flush_p99_ms),
                "one INSERT, durable (fsync)",
            ),
            ("CPU", format!("{:.1} % of a core", self.cpu_percent_of_core), "of milepost"),
            ("memory", format!("{:.1} MiB", self.peak_mib), "of milepost, its peak"),
        ];
        say("");
        for (name, value, note) in rows {
            say(&format!("  {name:<18} {value:>22}   {note}"));
        }
        say(&format!("  {:<18} {:>19.1} µs   CPU a message", "", self.cpu_us_per_message));
    }
}

fn print_last_positions(clickhouse: &ClickHouse) -> Result<()> {
    say("\nFive of fleet.last_positions:\n");
    let sql = "SELECT driver_id, formatDateTime(ts, '%T') AS utc, round(lat, 5) AS lat, round(lng, 5) AS lng, \
               round(speed, 1) AS speed, round(heading) AS heading FROM fleet.last_positions \
               WHERE speed > 1 ORDER BY ts DESC, driver_id LIMIT 5 FORMAT PrettySpaceNoEscapes";
    say(clickhouse.query(sql)?.trim_end());
    Ok(())
}

fn ensure_space(folder: &Path) -> Result<()> {
    let output = std::process::Command::new("df").args(["--output=avail", "-B1"]).arg(folder).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let Some(free) = text.lines().nth(1).and_then(|line| line.trim().parse::<u64>().ok()) else {
        return Ok(());
    };
    if free < FREE_BYTES_MIN {
        bail!("{} MiB free at {}: the demo wants {} MiB", free >> 20, folder.display(), FREE_BYTES_MIN >> 20);
    }
    Ok(())
}

/// A line that says what takes so long, and how long it took.
struct Step {
    began: Instant,
}

impl Step {
    fn begin(what: &str) -> Self {
        eprint!("{what} … ");
        Self { began: Instant::now() }
    }

    fn done(self) {
        eprintln!("{:.1} s", self.began.elapsed().as_secs_f64());
    }
}

#[expect(clippy::print_stdout, reason = "the command's result")]
fn say(line: &str) {
    println!("{line}");
}
