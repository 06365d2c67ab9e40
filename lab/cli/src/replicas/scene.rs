//! One row from beginning to end: tables, a broker, milepost, a fleet, the harm, and the comparison.

use std::net::ToSocketAddrs as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use lab_harness::background::Background;
use lab_harness::proxy::{Fault, Proxy};
use lab_stack::{Broker, Milepost, Settings, Store, in_scratch_folder, query, unix_ms, wait_until};
use loadgen::publish::Plan;
use loadgen::verify::progress;

use super::arguments::Arguments;
use super::judge::Verdict;
use super::rows::{Row, Step};

const MESSAGES_PER_SECOND: u32 = 500;
/// The fleet's, at least: it goes on until the harm is over.
const LASTS: Duration = Duration::from_secs(30);
/// Sessions with a Keeper end, failed fetches back off for a minute.
const BACK_WITHIN: Duration = Duration::from_secs(150);
/// What has not come by then never will, where something else did not.
const SOON: Duration = Duration::from_secs(20);

pub(super) fn judge(arguments: &Arguments, row: &Row) -> Result<Verdict> {
    let database = format!("lab_{}_{}", row.name, unix_ms());
    let (arguments, row) = (arguments.clone(), row.clone());
    in_scratch_folder("replicas-", move |folder| {
        let judged = Scene::set(&arguments, &row, folder, &database).and_then(Scene::play);
        // The views, then what they read.
        let all = ["_ask", "", "_old_ask", "_old"].map(|after| format!("{database}{after}"));
        for (url, database) in
            arguments.replica.iter().flat_map(|url| all.iter().map(move |name| (url, name)))
        {
            let _ = query(url, None, &format!("DROP DATABASE IF EXISTS {database} SYNC"));
        }
        judged
    })
}

struct Scene<'a> {
    arguments: &'a Arguments,
    row: &'a Row,
    database: &'a str,
    broker: Broker,
    /// Between milepost and the balancer.
    way: Proxy,
    settings: Settings,
    milepost: Milepost,
    /// The first replica's name among the others.
    first: String,
}

impl<'a> Scene<'a> {
    fn set(arguments: &'a Arguments, row: &'a Row, folder: &Path, database: &'a str) -> Result<Self> {
        let broker = Broker::start(folder)?;
        let binary = arguments.milepost.canonicalize().context("--milepost")?;
        let balancer = arguments.balancer.trim_start_matches("http://").trim_end_matches('/');
        let balancer = balancer.to_socket_addrs().context("--balancer")?.next().context("--balancer")?;
        let way = Proxy::before(balancer)?;
        let settings = Settings::new(&binary, folder, broker.port, &format!("http://127.0.0.1:{}", way.port))
            .with("CLICKHOUSE__DATABASE", database)
            .with("CLICKHOUSE__REPLICATION", "macros")
            .with("CLICKHOUSE__INSERT_QUORUM", &arguments.insert_quorum)
            .with("CLICKHOUSE__INSERT_TIMEOUT", "10s")
            .with("SPOOL__DIR", "spool");
        let first = query(&arguments.replica[0], None, "SELECT getMacro('replica')")?.trim().to_owned();
        let alone = settings
            .clone()
            .with("CLICKHOUSE__URL", &arguments.replica[0])
            .with("CLICKHOUSE__INSERT_QUORUM", "0");
        let milepost = if row.begins_alone() {
            let old = alone.clone().with("CLICKHOUSE__DATABASE", format!("{database}_old"));
            let old = old.with("CLICKHOUSE__REPLICATION", "none");
            let first = if row.moves() { old } else { alone };
            first.migrate()?;
            first.run()?
        } else {
            for url in &arguments.replica {
                settings.clone().with("CLICKHOUSE__URL", url).migrate()?;
            }
            settings.run()?
        };
        Ok(Self { arguments, row, database, broker, way, settings, milepost, first })
    }

    fn play(mut self) -> Result<Verdict> {
        let began = Instant::now();
        let plan = Plan {
            broker: format!("127.0.0.1:{}", self.broker.port),
            run: self.row.name.replace('_', "-"),
            drivers: 200,
            rate: f64::from(MESSAGES_PER_SECOND),
            messages: u64::from(MESSAGES_PER_SECOND) * LASTS.as_secs(),
            ..Plan::default()
        };
        let fleet = Background::start(plan, true);
        for (seconds, step) in &self.row.harm {
            std::thread::sleep(Duration::from_secs(*seconds).saturating_sub(began.elapsed()));
            self.take(step)?;
        }
        let manifest = fleet.finish()?;
        ensure!(manifest.unacked.is_empty(), "the broker did not take everything");
        #[expect(clippy::cast_precision_loss, reason = "a count of messages")]
        let sent = manifest.sent() as f64;
        let milepost = &self.milepost;
        if self.row.begins_alone() {
            // A process that was started again counts its own.
            let first = self.store(&self.arguments.replica[0]);
            let is_stored = || Ok(progress(&first, &manifest)?.different >= manifest.sent());
            wait_until("everything is stored", BACK_WITHIN, is_stored)?;
        } else {
            wait_until("everything is acknowledged", BACK_WITHIN, || {
                Ok(milepost.metric("acks_total")? >= sent)
            })?;
        }

        let mut verdict = Verdict::default();
        if self.row.afterwards.is_empty() {
            let milepost = &self.milepost;
            let is_empty = || Ok(milepost.metric("spool_batches")? < 1.0);
            if wait_until("the spool is empty", BACK_WITHIN, is_empty).is_err() {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a count of files"
                )]
                let left = milepost.metric("spool_batches")? as u64;
                verdict.left = left;
            }
            self.milepost.terminate(BACK_WITHIN)?;
        } else {
            // Nobody shall say that what is on its disk alone is safe: the others get what the spool holds.
            self.milepost.terminate(BACK_WITHIN)?;
            let second = &self.arguments.replica[1];
            let settings = self.settings.clone().with("CLICKHOUSE__URL", second);
            let (code, printed) =
                settings.with("CLICKHOUSE__INSERT_QUORUM", "0").call(&["spool", "replay"])?;
            ensure!(code == 0, "spool replay: {printed}");
            let mut without = Verdict::default();
            without.compare(&[self.store(second)], &manifest, SOON)?;
            verdict.lost_without_it = Some(without.lost);
            for command in &self.row.afterwards {
                shell(command)?;
            }
        }
        for url in &self.arguments.replica {
            wait_until("the replica answers", BACK_WITHIN, || Ok(query(url, None, "SELECT 1").is_ok()))?;
        }
        let replicas: Vec<Store> = self.arguments.replica.iter().map(|url| self.store(url)).collect();
        let within = if verdict.left > 0 { SOON } else { BACK_WITHIN };
        verdict.compare(&replicas, &manifest, within)?;
        Ok(verdict)
    }

    fn take(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Shell(command) => shell(command),
            Step::TurnInMidInsert(command) => {
                let before = self.way.inserts_hit();
                self.way.set(Fault::HangDown);
                // Committed, or on the way there; nobody has heard of it. Then it is cut, and the others are asked.
                std::thread::sleep(Duration::from_secs(2));
                shell(command)?;
                self.way.set(Fault::SwallowAnswer { count: 1 });
                wait_until("an answer is lost", SOON, || Ok(self.way.inserts_hit() > before))
            }
            Step::ScaleOut => {
                self.milepost.terminate(BACK_WITHIN)?;
                for url in &self.arguments.replica[1..] {
                    self.settings.clone().with("CLICKHOUSE__URL", url).migrate()?;
                }
                self.milepost = self.settings.run()?;
                Ok(())
            }
            Step::Move => {
                for url in &self.arguments.replica {
                    self.settings.clone().with("CLICKHOUSE__URL", url).migrate()?;
                }
                let milepost = &self.milepost;
                wait_until(
                    "the spool is empty",
                    BACK_WITHIN,
                    || Ok(milepost.metric("spool_batches")? < 1.0),
                )?;
                self.milepost.terminate(BACK_WITHIN)?;
                self.milepost = self.settings.run()?;
                (0..2).try_for_each(|_| self.copy())
            }
            Step::Renew(commands) => {
                let others = &self.arguments.replica[1..];
                let forget = format!("SYSTEM DROP REPLICA '{}' FROM DATABASE {}", self.first, self.database);
                // Until its session has ended it counts as live.
                wait_until("it is forgotten", BACK_WITHIN, || Ok(query(&others[0], None, &forget).is_ok()))?;
                commands.iter().try_for_each(|command| shell(command))?;
                let renewed = &self.arguments.replica[0];
                wait_until("the replica answers", BACK_WITHIN, || {
                    Ok(query(renewed, None, "SELECT 1").is_ok())
                })?;
                self.settings.clone().with("CLICKHOUSE__URL", renewed).migrate()
            }
        }
    }

    /// The history, a month at a time.
    fn copy(&self) -> Result<()> {
        let (first, new) = (&self.arguments.replica[0], self.database);
        let ask = |sql: &str| query(first, None, sql);
        let columns = ask(&format!(
            "SELECT arrayStringConcat(groupArray(name), ', ') FROM system.columns WHERE database = '{new}' AND table = 'positions' \
             AND default_kind = ''"
        ))?;
        for month in ask(&format!("SELECT DISTINCT toYYYYMM(ts) FROM {new}_old.positions"))?.lines() {
            ask(&format!(
                "INSERT INTO {new}.positions ({0}) SELECT {0} FROM {new}_old.positions WHERE toYYYYMM(ts) = {month} \
                 SETTINGS insert_quorum = 2, insert_quorum_parallel = 1",
                columns.trim()
            ))?;
        }
        Ok(())
    }

    fn store(&self, url: &str) -> Store {
        Store { url: url.to_owned(), password: None, database: self.database.to_owned() }
    }
}

fn shell(command: &str) -> Result<()> {
    let status = Command::new("sh").args(["-c", command]).status().context("sh")?;
    ensure!(status.success(), "{command}: {status}");
    Ok(())
}
