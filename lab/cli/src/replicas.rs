//! `lab replicas`: milepost on somebody's replicas, which the caller's own commands kill, cut off and bring back.
//!
//! A row holds when every fix the broker took is on each replica once in the end, and, where a replica stays away, on the
//! others or in the spool before it is back. Needs Mosquitto here; tables are made on each replica with
//! `clickhouse.replication = "macros"`, in databases that are dropped afterwards.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use lab_harness::background::Background;
use lab_harness::table::Table;
use lab_stack::{Broker, Settings, Store, in_scratch_folder, query, say, unix_ms, wait_until};
use loadgen::manifest::Manifest;
use loadgen::publish::Plan;
use loadgen::verify::verify;

const MESSAGES_PER_SECOND: u32 = 500;
const LASTS: Duration = Duration::from_secs(30);
/// Sessions with a Keeper end, failed fetches back off for a minute.
const BACK_WITHIN: Duration = Duration::from_secs(150);

/// Where the replicas are, and how they are harmed. A command is one for the shell; rows without theirs are left out.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Arguments {
    /// A replica's `http://host:port`; at least two, and the first one is harmed
    #[arg(long, required = true)]
    replica: Vec<String>,
    /// What balances them; it is to ask the first one first
    #[arg(long)]
    balancer: String,
    /// Kills the first replica
    #[arg(long)]
    kill: Option<String>,
    /// Starts it again, with its data
    #[arg(long)]
    start: Option<String>,
    /// Lets no replica fetch from it, nor it from them
    #[arg(long)]
    cut: Option<String>,
    /// Ends that
    #[arg(long)]
    heal: Option<String>,
    /// Takes the Keeper away
    #[arg(long)]
    keeper_stop: Option<String>,
    /// Brings it back
    #[arg(long)]
    keeper_start: Option<String>,
    /// Only this row; may be given several times
    #[arg(long)]
    only: Vec<String>,
    /// As clickhouse.insert_quorum; 0 breaks the rule on purpose
    #[arg(long, default_value = "auto")]
    insert_quorum: String,
    /// The binary
    #[arg(long, default_value = "target/release/milepost")]
    milepost: PathBuf,
}

/// What is done to the replicas, and when.
struct Row {
    name: &'static str,
    /// Seconds after the fleet's begin.
    harm: Vec<(u64, String)>,
    /// Done when the fleet has sent everything and what is left without them was looked at.
    afterwards: Vec<String>,
}

impl Arguments {
    fn rows(&self) -> Vec<Row> {
        let row = |name, harm: &[(u64, &Option<String>)], afterwards: &[&Option<String>]| {
            let harm = harm.iter().map(|(at, command)| Some((*at, (*command).clone()?)));
            let afterwards = afterwards.iter().map(|command| (*command).clone());
            Some(Row {
                name,
                harm: harm.collect::<Option<_>>()?,
                afterwards: afterwards.collect::<Option<_>>()?,
            })
        };
        let rows = [
            row("killed", &[(8, &self.kill), (18, &self.start)], &[]),
            row("cut_then_killed", &[(8, &self.cut), (14, &self.kill)], &[&self.start, &self.heal]),
            row("partition", &[(8, &self.cut), (18, &self.heal)], &[]),
            row("keeper_away", &[(8, &self.keeper_stop), (22, &self.keeper_start)], &[]),
        ];
        let wanted = |row: &Row| self.only.is_empty() || self.only.iter().any(|name| name == row.name);
        rows.into_iter().flatten().filter(wanted).collect()
    }
}

/// Whether every row holds.
pub(crate) fn run(arguments: &Arguments) -> Result<bool> {
    ensure!(arguments.replica.len() > 1, "at least two --replica are wanted");
    let rows = arguments.rows();
    ensure!(!rows.is_empty(), "no row has its commands: see --kill, --start, --cut, --heal, --keeper-stop");
    let mut table = Table::of(["row", "sent", "lost without it", "lost", "twice in fixes", "verdict"]);
    let mut holds = true;
    for row in rows {
        let (name, arguments) = (row.name, arguments.clone());
        let (cells, good) = in_scratch_folder("replicas-", move |folder| judge(&arguments, &row, folder))?;
        say(&format!("{name}: {}", cells.join(", ")));
        table.rows.push(std::iter::once(name.to_owned()).chain(cells).collect());
        holds &= good;
    }
    say(&table.markdown());
    Ok(holds)
}

fn judge(arguments: &Arguments, row: &Row, folder: &Path) -> Result<(Vec<String>, bool)> {
    let database = format!("lab_{}_{}", row.name, unix_ms());
    let judged = in_database(arguments, row, folder, &database);
    let both = [format!("{database}_ask"), database]; // the views, then what they read
    for (url, database) in arguments.replica.iter().flat_map(|url| both.iter().map(move |name| (url, name))) {
        let _ = query(url, None, &format!("DROP DATABASE IF EXISTS {database} SYNC"));
    }
    judged
}

fn in_database(
    arguments: &Arguments,
    row: &Row,
    folder: &Path,
    database: &str,
) -> Result<(Vec<String>, bool)> {
    let broker = Broker::start(folder)?;
    let binary = arguments.milepost.canonicalize().context("--milepost")?;
    let at = |url: &str, quorum: &str| {
        Settings::new(&binary, folder, broker.port, url)
            .with("CLICKHOUSE__DATABASE", database)
            .with("CLICKHOUSE__REPLICATION", "macros")
            .with("CLICKHOUSE__INSERT_QUORUM", quorum)
            .with("CLICKHOUSE__INSERT_TIMEOUT", "10s")
            .with("SPOOL__DIR", "spool")
    };
    for url in &arguments.replica {
        at(url, "auto").migrate()?;
    }
    let mut milepost = at(&arguments.balancer, &arguments.insert_quorum).run()?;
    let began = Instant::now();
    let fleet = Background::start(
        Plan {
            broker: format!("127.0.0.1:{}", broker.port),
            run: row.name.replace('_', "-"),
            drivers: 200,
            rate: f64::from(MESSAGES_PER_SECOND),
            messages: u64::from(MESSAGES_PER_SECOND) * LASTS.as_secs(),
            ..Plan::default()
        },
        false,
    );
    for (seconds, command) in &row.harm {
        std::thread::sleep(Duration::from_secs(*seconds).saturating_sub(began.elapsed()));
        shell(command)?;
    }
    let manifest = fleet.finish()?;
    #[expect(clippy::cast_precision_loss, reason = "a count of messages")]
    let sent = manifest.sent() as f64;
    wait_until("everything is acknowledged", BACK_WITHIN, || Ok(milepost.metric("acks_total")? >= sent))?;

    let mut without = "–".to_owned();
    if !row.afterwards.is_empty() {
        // Nobody shall say that what is on its disk alone is safe: the others get what the spool holds.
        milepost.terminate(BACK_WITHIN)?;
        let (code, printed) = at(&arguments.replica[1], "0").call(&["spool", "replay"])?;
        ensure!(code == 0, "spool replay: {printed}");
        without = lost(&arguments.replica[1], database, &manifest, Duration::from_secs(20))?.0.to_string();
        for command in &row.afterwards {
            shell(command)?;
        }
    } else {
        wait_until("the spool is empty", BACK_WITHIN, || Ok(milepost.metric("spool_batches")? < 1.0))?;
        milepost.terminate(BACK_WITHIN)?;
    }
    let (mut worst, mut twice) = (0, 0);
    for url in &arguments.replica {
        wait_until("the replica answers", BACK_WITHIN, || Ok(query(url, None, "SELECT 1").is_ok()))?;
        let (lost, doubled) = lost(url, database, &manifest, BACK_WITHIN)?;
        (worst, twice) = (worst.max(lost), twice.max(doubled));
    }
    let holds = worst == 0 && twice == 0 && matches!(&*without, "–" | "0");
    let verdict = if holds { "holds" } else { "DOES NOT HOLD" };
    let cells =
        [manifest.sent().to_string(), without, worst.to_string(), twice.to_string(), verdict.to_owned()];
    Ok((cells.to_vec(), holds))
}

/// Fixes that are not on this replica, and those that are twice in `fixes`.
fn lost(url: &str, database: &str, manifest: &Manifest, within: Duration) -> Result<(u64, u64)> {
    let store = Store { url: url.to_owned(), password: None, database: database.to_owned() };
    let verdict = verify(&store, manifest, within)?;
    Ok((verdict.lost, verdict.duplicates_in_fixes))
}

fn shell(command: &str) -> Result<()> {
    let status = Command::new("sh").args(["-c", command]).status().context("sh")?;
    ensure!(status.success(), "{command}: {status}");
    Ok(())
}
