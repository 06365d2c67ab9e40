//! Runs one row: creates the tables, starts broker, milepost and fleet, performs the steps, and
//! compares the fixes.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use lab_harness::background::Background;
use lab_harness::scripted_clickhouse::{Behaviour, HangAt, ScriptedClickHouse};
use lab_stack::fields::{ADDED, SATELLITES, SOURCE, TABLES};
use lab_stack::{Broker, Milepost, Settings, Store, in_scratch_folder, say, unix_ms, wait_until};
use loadgen::format::Format;
use loadgen::publish::Plan;
use loadgen::verify::progress;

use super::arguments::Arguments;
use super::judge::Verdict;
use super::rows::{Row, Step};

const MESSAGES_PER_SECOND: u32 = 500;
const DRIVERS: u32 = 200;
/// Number of the driver that a row erases.
const ERASED: usize = 7;
/// Shortest duration of the fleet. The fleet publishes until the last step is done.
const DURATION_MIN: Duration = Duration::from_secs(30);
/// Longest wait for a replica to recover. Its Keeper session must expire first, and failed fetches
/// are retried after up to a minute.
const RECOVERY_MAX: Duration = Duration::from_secs(150);
/// Longest wait for an event that is expected soon, or for fixes that are probably missing.
const SHORT_WAIT: Duration = Duration::from_secs(20);

pub(super) fn judge(arguments: &Arguments, row: &Row) -> Result<Verdict> {
    let database = format!("lab_{}_{}", row.name, unix_ms());
    let (arguments, row) = (arguments.clone(), row.clone());
    in_scratch_folder("replicas-", move |folder| {
        let outcome = Scene::start(&arguments, &row, folder, &database).and_then(Scene::run);
        // Drop the databases of the views first, then the databases that the views read.
        let databases =
            ["_ask", "", "_old_ask", "_old"].map(|suffix| format!("{database}{suffix}"));
        for (url, database) in
            arguments.replica.iter().flat_map(|url| databases.iter().map(move |name| (url, name)))
        {
            let _ = arguments.query(url, &format!("DROP DATABASE IF EXISTS {database} SYNC"));
        }
        outcome
    })
}

struct Scene<'a> {
    arguments: &'a Arguments,
    row: &'a Row,
    database: &'a str,
    broker: Broker,
    /// Proxy between milepost and the load balancer.
    proxy: ScriptedClickHouse,
    settings: Settings,
    milepost: Milepost,
    /// Name of the first replica in the Keeper.
    first: String,
    /// Rows of the erased driver that remained right after the `erase` commands, on all replicas.
    erased_left: u64,
}

impl<'a> Scene<'a> {
    fn start(
        arguments: &'a Arguments,
        row: &'a Row,
        folder: &Path,
        database: &'a str,
    ) -> Result<Self> {
        let broker = Broker::start(folder)?;
        let binary = arguments.milepost.canonicalize().context("--milepost")?;
        let proxy =
            ScriptedClickHouse::start(&[arguments.balancer.trim_end_matches('/').to_owned()])?;
        let settings = Settings::new(&binary, folder, broker.port, &proxy.url())
            .with("CLICKHOUSE__DATABASE", database)
            .with("CLICKHOUSE__REPLICATION", "macros")
            .with("CLICKHOUSE__INSERT_QUORUM", &arguments.insert_quorum)
            .with("LAB__INSERT_TIMEOUT", "10s")
            .with("SPOOL__DIR", "spool");
        let settings = match lab_stack::password() {
            Some(password) => settings
                .with("CLICKHOUSE__USER", lab_stack::user())
                .with("CLICKHOUSE__PASSWORD", password),
            None => settings,
        };
        let settings = if row.adds_field() { settings.with_all(&SOURCE) } else { settings };
        let first =
            arguments.query(&arguments.replica[0], "SELECT getMacro('replica')")?.trim().to_owned();
        let alone = settings
            .clone()
            .with("CLICKHOUSE__URL", &arguments.replica[0])
            .with("CLICKHOUSE__INSERT_QUORUM", "0");
        let milepost = if row.begins_alone() {
            let old = alone.clone().with("CLICKHOUSE__DATABASE", format!("{database}_old"));
            let old = old.with("CLICKHOUSE__REPLICATION", "none");
            let initial = if row.moves() { old } else { alone };
            initial.migrate()?;
            initial.run()?
        } else {
            for url in &arguments.replica {
                settings.clone().with("CLICKHOUSE__URL", url).migrate()?;
            }
            settings.run()?
        };
        Ok(Self {
            arguments,
            row,
            database,
            broker,
            proxy,
            settings,
            milepost,
            first,
            erased_left: 0,
        })
    }

    fn run(mut self) -> Result<Verdict> {
        let began = Instant::now();
        let plan = Plan {
            broker: format!("127.0.0.1:{}", self.broker.port),
            run: self.row.name.replace('_', "-"),
            drivers: DRIVERS,
            rate: f64::from(MESSAGES_PER_SECOND),
            messages: u64::from(MESSAGES_PER_SECOND) * DURATION_MIN.as_secs(),
            format: if self.row.adds_field() { Format::Teltonika } else { Format::default() },
            ..Plan::default()
        };
        let fleet = Background::start(plan, true);
        for (seconds, step) in &self.row.steps {
            std::thread::sleep(Duration::from_secs(*seconds).saturating_sub(began.elapsed()));
            self.perform(step)?;
        }
        let mut manifest = fleet.finish()?;
        ensure!(
            manifest.unacked.is_empty(),
            "the broker did not acknowledge {} fixes",
            manifest.unacked.len()
        );
        #[expect(clippy::cast_precision_loss, reason = "a count of messages")]
        let sent = manifest.sent() as f64;
        let milepost = &self.milepost;
        if self.row.restarts() {
            // A restarted process counts its acknowledgements from 0, so wait for the stored fixes.
            let first = self.store(&self.arguments.replica[0]);
            let is_stored = || Ok(progress(&first, &manifest)?.distinct >= manifest.sent());
            wait_until("everything is stored", RECOVERY_MAX, is_stored)?;
        } else {
            wait_until("everything is acknowledged", RECOVERY_MAX, || {
                Ok(milepost.metric("acks_total")? >= sent)
            })?;
        }

        let mut verdict = Verdict::default();
        if self.row.final_commands.is_empty() {
            let milepost = &self.milepost;
            let is_empty = || Ok(milepost.metric("spool_batches")? < 1.0);
            if wait_until("the spool is empty", RECOVERY_MAX, is_empty).is_err() {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a count of files"
                )]
                let batches = milepost.metric("spool_batches")? as u64;
                verdict.spooled = batches;
            }
            self.milepost.terminate(RECOVERY_MAX)?;
        } else {
            // The first replica is still away. The content of the spool must reach the second
            // replica. After that, the second replica must have every acknowledged fix.
            self.milepost.terminate(RECOVERY_MAX)?;
            let second = &self.arguments.replica[1];
            let settings = self.settings.clone().with("CLICKHOUSE__URL", second);
            let (code, printed) =
                settings.with("CLICKHOUSE__INSERT_QUORUM", "0").call(&["spool", "replay"])?;
            ensure!(code == 0, "spool replay: {printed}");
            let mut without = Verdict::default();
            without.compare(&[self.store(second)], &manifest, SHORT_WAIT)?;
            verdict.lost_without_first = Some(without.lost);
            for command in &self.row.final_commands {
                shell(command)?;
            }
        }
        for url in &self.arguments.replica {
            wait_until("the replica answers", RECOVERY_MAX, || {
                Ok(self.arguments.query(url, "SELECT 1").is_ok())
            })?;
        }
        if self.row.erases() {
            ensure!(manifest.last_seq[ERASED] > 0, "the driver to erase has sent nothing");
            manifest.last_seq[ERASED] = 0;
        }
        let replicas: Vec<Store> =
            self.arguments.replica.iter().map(|url| self.store(url)).collect();
        let within = if verdict.spooled > 0 { SHORT_WAIT } else { RECOVERY_MAX };
        verdict.compare(&replicas, &manifest, within)?;
        if self.row.erases() {
            let rows_at_end = self
                .arguments
                .replica
                .iter()
                .map(|url| self.rows_of_erased(url))
                .sum::<Result<u64>>()?;
            verdict.erased_left = self.erased_left + rows_at_end;
        }
        if self.row.adds_field() {
            let urls = self.arguments.replica.iter();
            verdict.without_value =
                urls.map(|url| self.rows_without_value(url)).sum::<Result<u64>>()?;
        }
        Ok(verdict)
    }

    fn perform(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Shell(command) => shell(command),
            Step::SwitchDuringInsert(command) => {
                let before = self.proxy.hits();
                self.proxy.set(Behaviour::Hang(HangAt::AfterStoring));
                // By now an insert is committed or about to be, and its answer is outstanding.
                // Switch the balancer to another replica.
                std::thread::sleep(Duration::from_secs(2));
                shell(command)?;
                self.proxy.set_for(1, Behaviour::SwallowAnswer);
                wait_until("an answer is lost", SHORT_WAIT, || Ok(self.proxy.hits() > before))
            }
            Step::ScaleOut => {
                self.milepost.terminate(RECOVERY_MAX)?;
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
                wait_until("the spool is empty", RECOVERY_MAX, || {
                    Ok(milepost.metric("spool_batches")? < 1.0)
                })?;
                self.milepost.terminate(RECOVERY_MAX)?;
                self.milepost = self.settings.run()?;
                (0..2).try_for_each(|_| self.copy())
            }
            Step::Erase => self.erase(),
            Step::AddField => self.add_field(),
            Step::Renew(commands) => {
                let others = &self.arguments.replica[1..];
                let forget =
                    format!("SYSTEM DROP REPLICA '{}' FROM DATABASE {}", self.first, self.database);
                // The replica counts as live until its Keeper session has ended.
                wait_until(
                    "the other replicas have forgotten the first one",
                    RECOVERY_MAX,
                    || Ok(self.arguments.query(&others[0], &forget).is_ok()),
                )?;
                commands.iter().try_for_each(|command| shell(command))?;
                let renewed = &self.arguments.replica[0];
                wait_until("the replica answers", RECOVERY_MAX, || {
                    Ok(self.arguments.query(renewed, "SELECT 1").is_ok())
                })?;
                self.settings.clone().with("CLICKHOUSE__URL", renewed).migrate()
            }
        }
    }

    /// Copies the history, one month at a time.
    fn copy(&self) -> Result<()> {
        let (first, new) = (&self.arguments.replica[0], self.database);
        let query = |sql: &str| self.arguments.query(first, sql);
        let columns = query(&format!(
            "SELECT arrayStringConcat(groupArray(name), ', ') FROM system.columns WHERE database = '{new}' AND table = 'positions' \
             AND default_kind = ''"
        ))?;
        for month in
            query(&format!("SELECT DISTINCT toYYYYMM(ts) FROM {new}_old.positions"))?.lines()
        {
            query(&format!(
                "INSERT INTO {new}.positions ({0}) SELECT {0} FROM {new}_old.positions WHERE toYYYYMM(ts) = {month} \
                 SETTINGS insert_quorum = 2, insert_quorum_parallel = 1",
                columns.trim()
            ))?;
        }
        Ok(())
    }

    /// Erases a driver. Without `clickhouse.cluster` the command runs on each replica, as in
    /// docs/privacy.md.
    fn erase(&mut self) -> Result<()> {
        let driver = format!("sim-{}-{ERASED}", self.row.name);
        for url in &self.arguments.replica {
            let condition =
                format!("WHERE database = '{}' AND engine LIKE '%MergeTree'", self.database);
            for table in self
                .arguments
                .query(url, &format!("SELECT name FROM system.tables {condition}"))?
                .lines()
            {
                // The default of eight minutes is too long for a test.
                let sql = format!(
                    "ALTER TABLE {}.{table} MODIFY SETTING old_parts_lifetime = 1",
                    self.database
                );
                self.arguments.query(url, &sql)?;
            }
        }
        let address = self.milepost.address().to_owned();
        for url in &self.arguments.replica {
            let settings = self
                .settings
                .clone()
                .with("CLICKHOUSE__URL", url)
                .with("SHUTDOWN__PEERS", &address);
            let (code, printed) =
                settings.call(&["erase", "--driver", &driver, "--yes", "--within", "90s"])?;
            if code != 0 {
                say(&format!("erase at {url}: {printed}"));
            }
            // Count the rows of the driver that are left right after the command.
            self.erased_left += self.rows_of_erased(url)?;
        }
        Ok(())
    }

    /// Adds two fields to the configuration and to the first replica, and restarts milepost with
    /// the new configuration. While that process inserts, adds the fields to the other replicas.
    fn add_field(&mut self) -> Result<()> {
        self.settings = self.settings.clone().with_all(&ADDED);
        let [first, others @ ..] = &*self.arguments.replica else { bail!("no replica") };
        self.settings.clone().with("CLICKHOUSE__URL", first).migrate()?;
        self.milepost.terminate(RECOVERY_MAX)?;
        self.milepost = self.settings.run()?;
        others
            .iter()
            .try_for_each(|url| self.settings.clone().with("CLICKHOUSE__URL", url).migrate())
    }

    /// Counts the rows of a replica that lack the value of a field. Every row must have
    /// `satellites`; every last position, and every row with the attribute `evt`, must have
    /// `tracker_event`.
    fn rows_without_value(&self, url: &str) -> Result<u64> {
        let count = |table: &&str| -> Result<u64> {
            let has_event =
                if table.starts_with("last") { "true" } else { "mapContains(attributes, 'evt')" };
            let sql = format!(
                "SELECT countIf(ifNull(satellites != {SATELLITES}, true) OR {has_event} AND tracker_event IS NULL) FROM {}.{table}",
                self.database
            );
            Ok(self.arguments.query(url, &sql)?.trim().parse()?)
        };
        TABLES.iter().map(count).sum()
    }

    /// Counts the rows of the erased driver on this replica's disk, including hidden rows.
    fn rows_of_erased(&self, url: &str) -> Result<u64> {
        let tables = self.arguments.query(
            url,
            &format!(
                "SELECT DISTINCT table FROM system.parts_columns WHERE database = '{}' AND column = 'driver_id' AND table != 'erased'",
                self.database
            ),
        )?;
        let count = |table: &str| -> Result<u64> {
            let sql = format!(
                "SELECT count() FROM {}.{table} WHERE driver_id = 'sim-{}-{ERASED}' SETTINGS apply_deleted_mask = 0",
                self.database, self.row.name
            );
            Ok(self.arguments.query(url, &sql)?.trim().parse()?)
        };
        tables.lines().map(count).sum()
    }

    fn store(&self, url: &str) -> Store {
        Store {
            url: url.to_owned(),
            password: lab_stack::password(),
            database: self.database.to_owned(),
        }
    }
}

fn shell(command: &str) -> Result<()> {
    let status = Command::new("sh").args(["-c", command]).status().context("sh")?;
    ensure!(status.success(), "{command}: {status}");
    Ok(())
}
