//! `loadgen fleet` publishes positions, `loadgen verify` compares them with those stored,
//! `loadgen demo` does both once, and `loadgen map` shows a fleet on the live map.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, Parser, Subcommand};
use lab_stack::{Store, unix_ms};
use loadgen::format::Format;
use loadgen::manifest::Manifest;
use loadgen::publish::{self, EndedEarly, Plan};
use loadgen::{demo, map, verify};

/// Exit code if a fix was not acknowledged, is lost, was stored twice or was never sent.
const NOT_EXACT: u8 = 1;
/// Exit code if no verdict is possible: wrong usage, or a server that does not answer.
const NO_VERDICT: u8 = 2;

/// A simulated fleet for milepost, and a verifier of the stored fixes. Passwords come from
/// MQTT_PASSWORD and CLICKHOUSE_PASSWORD.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Publish a fleet's positions, and record which of them the broker acknowledged
    Fleet(FleetArguments),
    /// Compare the positions sent with those stored; exit code 0: exact, 1: lost or stored twice,
    /// 2: no verdict
    Verify(VerifyArguments),
    /// Run broker, ClickHouse, milepost and a fleet on free ports, verify the result, and print a
    /// table and a picture
    Demo(demo::Arguments),
    /// Run broker, ClickHouse, milepost, a fleet and its live map on free ports, until Ctrl-C
    Map(map::Arguments),
}

#[derive(Args)]
struct FleetArguments {
    /// Broker, host:port
    #[arg(long, default_value = "127.0.0.1:1883", value_parser = address)]
    broker: String,
    /// User name; the password comes from MQTT_PASSWORD
    #[arg(long)]
    username: Option<String>,
    /// Payload format of the devices; each format has its own topics. Prints the configuration with
    /// which milepost reads it
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Name of the run; its drivers are named sim-{run}-{n}. A name that was used before makes
    /// `verify` report the earlier fixes as duplicates. Default: the current time
    #[arg(long, value_parser = run_name)]
    run: Option<String>,
    /// Number of drivers
    #[arg(long, default_value_t = 1_000)]
    drivers: u32,
    /// Number of connections that publish for the drivers
    #[arg(long, default_value_t = 4, conflicts_with = "per_driver")]
    connections: u32,
    /// Open a connection for each driver
    #[arg(long)]
    per_driver: bool,
    /// QoS: 0 or 1
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    qos: u8,
    /// Messages a second
    #[arg(long, default_value_t = 1_000.0)]
    rate: f64,
    /// Number of messages to send
    #[arg(long, conflicts_with = "duration")]
    count: Option<u64>,
    /// How long to send, such as 30s
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration)]
    duration: Duration,
    /// Seed of the tracks: the same seed gives the same tracks
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Share of messages that are arrays of points buffered offline
    #[arg(long, default_value_t = 0.0)]
    bursts: f64,
    /// Number of points in an array that was buffered offline
    #[arg(long, default_value_t = 20)]
    burst_points: u32,
    /// Share of messages that arrive after newer ones
    #[arg(long, default_value_t = 0.0)]
    late: f64,
    /// Share of messages that are sent twice
    #[arg(long, default_value_t = 0.0)]
    duplicates: f64,
    /// File that records the positions sent
    #[arg(long, default_value = "manifest.json")]
    manifest: PathBuf,
}

impl FleetArguments {
    fn plan(&self) -> Result<Plan> {
        for (name, share) in
            [("bursts", self.bursts), ("late", self.late), ("duplicates", self.duplicates)]
        {
            if !(0.0..=1.0).contains(&share) {
                bail!("--{name} must be from 0 to 1: {share}");
            }
        }
        if !(self.rate > 0.0 && self.rate <= 1e8) || self.drivers == 0 || self.connections == 0 {
            bail!("--rate (at most 1e8), --drivers and --connections must be above 0");
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count of messages"
        )]
        let by_duration = (self.rate * self.duration.as_secs_f64()).round() as u64;
        let password = || {
            std::env::var("MQTT_PASSWORD")
                .context("--username needs MQTT_PASSWORD in the environment")
        };
        Ok(Plan {
            broker: self.broker.clone(),
            login: self
                .username
                .clone()
                .map(|name| password().map(|password| (name, password)))
                .transpose()?,
            format: self.format,
            run: self.run.clone().unwrap_or_else(|| format!("{:x}", unix_ms())),
            drivers: self.drivers,
            connections: if self.per_driver { self.drivers } else { self.connections },
            qos: self.qos,
            rate: self.rate,
            messages: self.count.unwrap_or(by_duration),
            seed: self.seed,
            burst_share: self.bursts,
            burst_points: self.burst_points,
            late_share: self.late,
            duplicate_share: self.duplicates,
            drain: Duration::from_secs(30),
        })
    }
}

#[derive(Args)]
struct VerifyArguments {
    /// Manifest written by `loadgen fleet`
    #[arg(long, default_value = "manifest.json")]
    manifest: PathBuf,
    /// ClickHouse, http://host:port; the login comes from CLICKHOUSE_USER and CLICKHOUSE_PASSWORD
    #[arg(long, default_value = "http://127.0.0.1:8123")]
    clickhouse: String,
    /// Database
    #[arg(long, default_value = "fleet")]
    database: String,
    /// How long to wait for a further row
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration)]
    wait: Duration,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Longest name of a run, with which the id of driver 4,294,967,295 has 64 bytes.
const RUN_BYTES_MAX: usize = 49;

/// Checks a broker's address. A fleet waits for minutes for a broker that does not answer, so
/// something that can never be an address must fail before.
fn address(text: &str) -> Result<String, String> {
    let parts = text.rsplit_once(':').filter(|(host, _)| !host.is_empty() && !host.contains('/'));
    match parts.map(|(_, port)| port.parse()) {
        Some(Ok(1..=u16::MAX)) => Ok(text.to_owned()),
        Some(_) | None => Err("must be host:port, without mqtt://".to_owned()),
    }
}

/// Checks the name of a run, which is a part of driver ids and topics.
fn run_name(text: &str) -> Result<String, String> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    if text.len() <= RUN_BYTES_MAX && text.bytes().all(is_valid) {
        Ok(text.to_owned())
    } else {
        Err(format!("must have at most {RUN_BYTES_MAX} of A–Z a–z 0–9 . _ : -, as driver ids do"))
    }
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
        Command::Fleet(arguments) => fleet(&arguments),
        Command::Verify(arguments) => verify_manifest(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Map(arguments) => map::run(&arguments),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => NOT_EXACT.into(),
        Err(failure) => {
            eprintln!("loadgen: {failure:#}");
            NO_VERDICT.into()
        }
    }
}

/// Publishes a fleet. Returns `true` if everything was sent and, at QoS 1, acknowledged.
fn fleet(arguments: &FleetArguments) -> Result<bool> {
    let plan = arguments.plan()?;
    if plan.format != Format::Milepost {
        eprintln!(
            "loadgen: to read these messages, milepost needs this in its configuration:\n{}",
            plan.format.source()
        );
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (manifest, failure) = match runtime.block_on(publish::run_with_bar(&plan)) {
        Ok(manifest) => (manifest, None),
        Err(failure) => {
            let EndedEarly { manifest, .. } =
                failure.downcast_ref().context(format!("{failure:#}"))?;
            (manifest.clone(), Some(failure))
        }
    };
    manifest.save(&arguments.manifest)?;
    eprintln!(
        "run {}: {} messages, {} positions of {} drivers at {:.0} messages a second; \
         {} unacknowledged; see {}",
        manifest.run,
        manifest.messages,
        manifest.sent(),
        plan.drivers,
        manifest.rate_held,
        manifest.unacked.len(),
        arguments.manifest.display()
    );
    match failure {
        Some(failure) => {
            Err(failure
                .context("the fleet ended early; the manifest records what was sent until then"))
        }
        None => Ok(manifest.unacked.is_empty()),
    }
}

fn verify_manifest(arguments: &VerifyArguments) -> Result<bool> {
    let manifest = Manifest::load(&arguments.manifest)?;
    let store = Store {
        url: arguments.clickhouse.clone(),
        password: lab_stack::password(),
        database: arguments.database.clone(),
    };
    let verdict = verify::verify(&store, &manifest, arguments.wait)?;
    let text =
        if arguments.json { serde_json::to_string(&verdict)? + "\n" } else { verdict.to_string() };
    // If the reader closes the pipe early (`head`), keep the exit code of the verdict.
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => return Err(error.into()),
        Ok(()) | Err(_) => {}
    }
    Ok(verdict.is_exact())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_and_run_that_can_never_work_are_refused_at_once() {
        let is_accepted = |option: &str, value: &str| {
            Arguments::try_parse_from(["loadgen", "fleet", option, value]).is_ok()
        };
        for broker in ["localhost:1883", "10.0.0.7:1", "[::1]:1883", "emqx:1884"] {
            assert!(is_accepted("--broker", broker), "{broker}");
        }
        for broker in ["localhost", "mqtt://localhost:1883", "localhost:0", ":1883", "h:70000", ""]
        {
            assert!(!is_accepted("--broker", broker), "{broker}");
        }
        let longest = "r".repeat(RUN_BYTES_MAX);
        assert_eq!(loadgen::fleet::driver_id(&longest, u32::MAX).len(), 64);
        for run in ["night-2", "a.b_c:d", &longest] {
            assert!(is_accepted("--run", run), "{run}");
        }
        for run in ["north/1", "it's", "Köln", "a b", &format!("{longest}r")] {
            assert!(!is_accepted("--run", run), "{run}");
        }
    }
}
