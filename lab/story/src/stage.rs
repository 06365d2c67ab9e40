//! Measures one consumer in one step: starts fresh servers, sends the load, causes the fault, and
//! counts the losses.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use lab_harness::background::Background;
use lab_stack::prom::Histogram;
use lab_stack::{Store, get, lock, unix_ms, wait_until};
use loadgen::publish::Plan as FleetPlan;
use loadgen::verify::{progress, verify};

use crate::consumer::{Recipe, Running};
use crate::limits::Limits;
use crate::plan::{Consumer, Hostile, Limit, Step};
use crate::programs::Program;
use crate::record::{MemoryMib, Outcome, Sample};
use crate::servers::Servers;
use crate::watch::{Sources, Target, quantiles_ms, sample, usage};

/// Wait between the subscription and the measurement of idle memory.
const IDLE: Duration = Duration::from_millis(500);
const SUBSCRIBED_WITHIN: Duration = Duration::from_secs(5);
/// A store that has not grown for this long counts as settled.
const QUIET: Duration = Duration::from_secs(5);
const SETTLED_WITHIN: Duration = Duration::from_secs(90);
const COUNT_EVERY: Duration = Duration::from_millis(200);
/// Longest wait for an insert before a kill. A consumer that inserts nothing is killed after this
/// wait.
const INSERT_WITHIN: Duration = Duration::from_secs(3);
/// Time in which the broker reads everything that a stopped consumer had sent.
const ACKS_READ_WITHIN: Duration = Duration::from_millis(300);
/// Half of a batch, in messages. The largest batch of every consumer is 5,000 rows.
const HALF_A_BATCH_MESSAGES: u32 = 2_500;
/// Share of the rate that a consumer must store. A consumer that stores less does not keep up.
const HOLDS_SHARE: f64 = 0.98;
/// Maximum number of rows in flight while a consumer keeps up: two batches, one open and one being
/// inserted.
const IN_FLIGHT_ROWS: f64 = 10_000.0;
/// At low rates, two batches hold the messages of this many seconds.
const IN_FLIGHT_SECONDS: f64 = 2.0;

/// The fault that occurs while the load is sent.
pub(crate) enum Fault<'a> {
    None,
    /// The consumer is killed with SIGKILL, at moments spread evenly over the load.
    Kill {
        times: u32,
    },
    /// ClickHouse is killed after a quarter of the load, and started again.
    Outage {
        away: Duration,
    },
    /// Messages that are not positions are published after a quarter of the load.
    Hostile(&'a Hostile),
}

/// The step to measure, with the servers and programs it uses.
pub(crate) struct Stage<'a> {
    pub(crate) part: &'a str,
    pub(crate) consumer: &'a Consumer,
    pub(crate) program: &'a Program,
    pub(crate) step: Step,
    pub(crate) warm_up: u32,
    pub(crate) seconds: u32,
    pub(crate) limit: Option<Limit>,
    pub(crate) fault: Fault<'a>,
    /// Address, `host:port`, of a broker that the laboratory did not start.
    pub(crate) broker: Option<&'a str>,
    pub(crate) folder: &'a Path,
}

enum Load<'a> {
    Fleet(Background),
    Firehose(&'a lab_stand_ins::firehose::Firehose),
}

impl Load<'_> {
    fn sent(&self) -> u64 {
        match self {
            Self::Fleet(fleet) => fleet.progress.sent.load(Ordering::Relaxed),
            Self::Firehose(firehose) => firehose.sent(),
        }
    }
}

impl Stage<'_> {
    /// Runs the step. If the step fails, the outcome has the reason.
    pub(crate) fn measure(&self) -> Outcome {
        let mut outcome = Outcome {
            part: self.part.to_owned(),
            consumer: self.consumer.name.clone(),
            step: Some(self.step),
            limit: self.limit,
            ..Outcome::default()
        };
        let folder = self.folder.join("step");
        let result = std::fs::create_dir_all(&folder)
            .map_err(Into::into)
            .and_then(|()| self.run(&folder, &mut outcome));
        if let Err(error) = result {
            outcome.error = Some(format!("{error:#}"));
        }
        let _ = std::fs::remove_dir_all(&folder);
        outcome
    }

    fn run(&self, folder: &Path, outcome: &mut Outcome) -> Result<()> {
        let limits = match Limits::new(self.limit) {
            Ok(limits) => limits,
            Err(error) if self.limit.is_some() => return Err(error),
            // Without a cgroup, the step lacks only the memory that `docker stats` would show.
            Err(_) => Limits::default(),
        };
        let mut servers = Servers::start(&self.step, self.broker, folder)?;
        let recipe = Recipe {
            spec: self.consumer,
            program: self.program.path.clone(),
            folder,
            mqtt: servers.mqtt.clone(),
            clickhouse_url: servers.clickhouse_url.clone(),
            qos: self.step.qos,
            limits: &limits,
        };
        recipe.prepare()?;
        if self.consumer.prepare.is_empty()
            && let Some(engine) = &servers.engine
        {
            engine.create_tables("fleet")?;
        }
        let (mut running, ready) = recipe.start_until_ready()?;
        outcome.ready_ms = ready.as_secs_f64() * 1e3;
        sleep(IDLE);
        outcome.idle = usage(running.process.pid(), &limits)?.1;
        self.apply_load(&mut servers, &recipe, &mut running, outcome)?;
        outcome.throttled_share = limits.throttled_share();
        outcome.is_alive = running.process.ensure_alive().is_ok();
        outcome.holds = outcome.is_alive
            && outcome.lost == Some(0)
            && outcome.stored_per_s >= f64::from(self.step.rate) * HOLDS_SHARE;
        // End the consumer's processes before their control group is removed.
        running.process.kill_tree()?;
        servers.end_sessions(&self.consumer.sessions)
    }

    fn load_duration(&self) -> Duration {
        Duration::from_secs((self.warm_up + self.seconds).into())
    }

    /// Sends the load with its fault, and records the outcome.
    fn apply_load(
        &self,
        servers: &mut Servers,
        recipe: &Recipe<'_>,
        running: &mut Running,
        outcome: &mut Outcome,
    ) -> Result<()> {
        // An outage replaces the engine while the sampler runs, so a mutex guards the engine.
        let engine = Mutex::new(servers.engine.take());
        let servers = &*servers;
        let stored = || match &servers.sink {
            Some(sink) => Some(sink.rows()),
            None => {
                let url = lock(&engine).as_ref().map(lab_stack::ClickHouse::url)?;
                let count =
                    lab_stack::query(&url, None, "SELECT count() FROM fleet.positions").ok()?;
                count.trim().parse().ok()
            }
        };
        let run = format!("{:x}", unix_ms());
        let load = self.start_load(servers, &run)?;
        let target = Mutex::new(self.target(running));
        let is_over = AtomicBool::new(false);
        let sources = Sources {
            target: &target,
            limits: recipe.limits,
            sent: &|| load.sent(),
            stored: &stored,
            broker_cpu_seconds: &|| servers.broker_cpu_seconds(),
            inserts: &|| servers.insert_durations().len(),
        };
        let began = Instant::now();
        let (samples, fault) = scope(|scope| {
            let watching = scope.spawn(|| sample(&sources, &is_over));
            let fault = self.inject_fault(servers, &engine, recipe, running, &target, outcome);
            // Wait a little longer than the load, so that the last sample is taken.
            sleep(
                (self.load_duration() + Duration::from_millis(100)).saturating_sub(began.elapsed()),
            );
            is_over.store(true, Ordering::Relaxed);
            (watching.join().unwrap_or_default(), fault)
        });
        self.compute_figures(&samples, outcome);
        let warm_inserts = samples.get(self.warm_up as usize).map_or(0, |sample| sample.inserts);
        outcome.samples_seconds = samples.last().map_or(0.0, |sample| sample.seconds);
        outcome.samples = samples;
        outcome.flush_own_ms = self.flush_own_ms(running).or(outcome.flush_own_ms);
        self.compare(servers, &engine, &run, load, &stored, outcome)?;
        outcome.flush_seen_ms =
            exact_quantiles_ms(servers.insert_durations().split_off(warm_inserts));
        fault
    }

    fn target(&self, running: &Running) -> Target {
        Target {
            pid: running.process.pid(),
            http: running.http.clone(),
            flush: self.consumer.flush.clone(),
        }
    }

    fn start_load<'a>(&self, servers: &'a Servers, run: &str) -> Result<Load<'a>> {
        if let Some(firehose) = &servers.firehose {
            wait_until("the consumer has subscribed", SUBSCRIBED_WITHIN, || {
                Ok(firehose.subscribers() > 0)
            })?;
            firehose.open_at(self.step.rate);
            return Ok(Load::Firehose(firehose));
        }
        let plan = FleetPlan {
            broker: servers.mqtt.clone(),
            run: run.to_owned(),
            drivers: self.step.drivers,
            connections: 2,
            qos: self.step.qos,
            rate: f64::from(self.step.rate),
            messages: u64::from(self.step.rate) * self.load_duration().as_secs(),
            drain: Duration::from_secs(20),
            ..FleetPlan::default()
        };
        Ok(Load::Fleet(Background::start(plan, false)))
    }

    /// Causes the fault, and waits until the consumer or ClickHouse is back.
    fn inject_fault(
        &self,
        servers: &Servers,
        engine: &Mutex<Option<lab_stack::ClickHouse>>,
        recipe: &Recipe<'_>,
        running: &mut Running,
        target: &Mutex<Target>,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let (began, duration) = (Instant::now(), self.load_duration());
        match self.fault {
            Fault::None => {}
            Fault::Kill { times } => {
                for kill in 0..times {
                    let due = duration * (2 * kill + 1) / (2 * times + 1);
                    sleep(due.saturating_sub(began.elapsed()));
                    wait_for_half_a_batch(servers, self.step.rate);
                    // Stop the consumer, and let the broker read its last acknowledgements before
                    // the kill. A busy broker would lose these acknowledgements with the
                    // connection, and would redeliver the messages. A consumer that acknowledges
                    // too early would then lose nothing.
                    running.process.signal("STOP")?;
                    sleep(ACKS_READ_WITHIN);
                    let killed_at = Instant::now();
                    running.process.kill_tree()?;
                    outcome.kills += 1;
                    *running = recipe
                        .start_until_ready()
                        .context("the consumer did not come back after kill -9")?
                        .0;
                    outcome.back_after_ms.push(killed_at.elapsed().as_secs_f64() * 1e3);
                    *lock(target) = self.target(running);
                }
            }
            Fault::Outage { away } => {
                sleep((duration / 4).saturating_sub(began.elapsed()));
                let mut killed_engine =
                    lock(engine).take().context("the step has no ClickHouse to kill")?;
                killed_engine.kill()?;
                sleep(away);
                *lock(engine) = Some(killed_engine.restart()?);
            }
            Fault::Hostile(hostile) => {
                sleep(duration / 4);
                servers.publish_hostile(&hostile.messages, hostile.times)?;
            }
        }
        Ok(())
    }

    /// Computes the figures of the counted seconds.
    fn compute_figures(&self, samples: &[Sample], outcome: &mut Outcome) {
        let counted = samples.get(self.warm_up as usize..).unwrap_or_default();
        let Some((first, last)) = counted.first().zip(counted.last()) else { return };
        let seconds = (last.seconds - first.seconds).max(1e-3);
        let per_second = |total: fn(&Sample) -> f64| (total(last) - total(first)) / seconds;
        outcome.sent_per_s = per_second(|sample| sample.sent as f64);
        outcome.stored_per_s = per_second(|sample| sample.stored as f64);
        outcome.cores = per_second(|sample| sample.cpu_seconds);
        outcome.others_cores = per_second(|sample| sample.others_cpu_seconds).max(0.0);
        outcome.broker_cores = first
            .broker_cpu_seconds
            .zip(last.broker_cpu_seconds)
            .map(|(start, end)| (end - start) / seconds);
        let in_flight =
            (IN_FLIGHT_SECONDS * f64::from(self.step.rate)).min(IN_FLIGHT_ROWS) / seconds;
        // Some rows are in flight at the first and at the last sample. If the consumer keeps up
        // apart from these rows, count every message that was sent as stored.
        if outcome.stored_per_s >= outcome.sent_per_s * HOLDS_SHARE - in_flight {
            outcome.stored_per_s = outcome.sent_per_s;
        }
        let rate = outcome.stored_per_s;
        outcome.cpu_us_per_message = (rate > 0.0).then(|| outcome.cores / rate * 1e6);
        let largest = |kind: fn(&MemoryMib) -> f64| {
            counted.iter().map(|sample| kind(&sample.memory)).fold(0.0, f64::max)
        };
        outcome.memory = MemoryMib {
            resident: largest(|memory| memory.resident),
            private: largest(|memory| memory.private),
            docker: counted
                .iter()
                .any(|sample| sample.memory.docker.is_some())
                .then(|| largest(|memory| memory.docker.unwrap_or(0.0))),
        };
        outcome.slope_mib_per_min = slope_mib_per_min(&counted[counted.len() / 2..]);
    }

    /// Returns the median and 99th percentile of the duration of an insert, from the consumer's own
    /// histogram. The histogram includes the warm-up.
    fn flush_own_ms(&self, running: &Running) -> Option<(f64, f64)> {
        let scrape = get(&format!("{}/metrics", running.http)).ok()?;
        quantiles_ms(&Histogram::read(&scrape, &self.consumer.flush))
    }

    /// Ends the load, waits until nothing more is stored, and compares the sets of fixes.
    fn compare(
        &self,
        servers: &Servers,
        engine: &Mutex<Option<lab_stack::ClickHouse>>,
        run: &str,
        load: Load<'_>,
        stored: &dyn Fn() -> Option<u64>,
        outcome: &mut Outcome,
    ) -> Result<()> {
        match load {
            Load::Firehose(firehose) => {
                firehose.close();
                wait_until_quiet(|| Ok(firehose.sent()), |sent| sent >= firehose.assigned())?;
                outcome.messages = firehose.sent();
                wait_until_quiet(|| Ok(stored().unwrap_or(0)), |rows| rows >= firehose.sent())?;
                let Some(sink) = &servers.sink else {
                    let tables =
                        lock(engine).as_ref().context("ClickHouse is away")?.store("fleet");
                    return count_everyone(&tables, outcome);
                };
                let verdict = sink.tally().compare(&firehose.sent_by_driver());
                (outcome.lost, outcome.twice) =
                    (Some(verdict.lost), Some(verdict.duplicates + verdict.never_sent));
            }
            Load::Fleet(fleet) => {
                fleet.drain();
                let manifest = fleet.finish()?;
                outcome.messages = manifest.messages;
                if let Some(sink) = &servers.sink {
                    wait_until_quiet(|| Ok(sink.rows()), |rows| rows >= manifest.messages)?;
                    let verdict = sink.tally().compare(&manifest.last_seq);
                    outcome.lost = Some(verdict.lost);
                    outcome.twice = Some(verdict.duplicates + verdict.never_sent);
                    if verdict.lost > 0 && self.step.qos == 0 {
                        outcome.broker_dropped = servers.broker_dropped();
                    }
                    return Ok(());
                }
                let tables = lock(engine).as_ref().context("ClickHouse is away")?.store("fleet");
                wait_until_quiet(
                    || Ok(progress(&tables, &manifest)?.distinct),
                    |distinct| distinct >= manifest.sent(),
                )?;
                let verdict = verify(&tables, &manifest, Duration::ZERO)?;
                outcome.lost = Some(verdict.lost);
                outcome.twice = Some(verdict.duplicates_in_fixes + verdict.never_sent);
                outcome.freshness_ms = verdict.freshness_ms;
                if matches!(self.fault, Fault::Hostile(_)) {
                    let sql = format!(
                        "SELECT count() FROM fleet.positions WHERE NOT startsWith(driver_id, 'sim-{run}-')"
                    );
                    outcome.bad_stored = Some(tables.query(&sql)?.trim().parse()?);
                }
            }
        }
        Ok(())
    }
}

/// Records how much of the firehose's load is stored in ClickHouse, and how long a query for a
/// driver's last position takes.
fn count_everyone(tables: &Store, outcome: &mut Outcome) -> Result<()> {
    let number = |sql: &str| -> Result<u64> { Ok(tables.query(sql)?.trim().parse()?) };
    let different = number("SELECT uniqExact(driver_id, seq) FROM fleet.positions")?;
    outcome.lost = Some(outcome.messages.saturating_sub(different));
    let fixes = number("SELECT count() FROM fleet.fixes")?;
    let duplicates = fixes.saturating_sub(different);
    outcome.twice = Some(duplicates + different.saturating_sub(outcome.messages));
    outcome.last_positions = Some(number("SELECT count() FROM fleet.last_positions")?);
    let began = Instant::now();
    number("SELECT count() FROM fleet.last_positions WHERE driver_id = 'sim-fh-0004711'")?;
    outcome.last_position_ms = Some(began.elapsed().as_secs_f64() * 1e3);
    Ok(())
}

/// Waits for the answer to an insert, at most for [`INSERT_WITHIN`], and then until half a batch
/// has arrived.
fn wait_for_half_a_batch(servers: &Servers, rate: u32) {
    let (began, before) = (Instant::now(), servers.insert_durations().len());
    while servers.insert_durations().len() == before && began.elapsed() < INSERT_WITHIN {
        sleep(Duration::from_millis(1));
    }
    sleep(Duration::from_secs(1) * HALF_A_BATCH_MESSAGES / rate);
}

/// Waits until the count is complete or has not changed for [`QUIET`], at most for
/// [`SETTLED_WITHIN`].
fn wait_until_quiet(
    count: impl Fn() -> Result<u64>,
    is_complete: impl Fn(u64) -> bool,
) -> Result<()> {
    let (began, mut before, mut changed) = (Instant::now(), count()?, Instant::now());
    while !is_complete(before) && changed.elapsed() < QUIET && began.elapsed() < SETTLED_WITHIN {
        sleep(COUNT_EVERY);
        let now = count()?;
        if now != before {
            (before, changed) = (now, Instant::now());
        }
    }
    Ok(())
}

/// Returns the exact median and 99th percentile, in milliseconds.
fn exact_quantiles_ms(mut took: Vec<Duration>) -> Option<(f64, f64)> {
    took.sort_unstable();
    let at = |percent: usize| {
        Some(
            took.get((took.len() * percent / 100).min(took.len().checked_sub(1)?))?.as_secs_f64()
                * 1e3,
        )
    };
    at(50).zip(at(99))
}

/// Returns the growth of private memory in MiB per minute, by least squares.
fn slope_mib_per_min(samples: &[Sample]) -> Option<f64> {
    let points: Vec<(f64, f64)> = samples
        .iter()
        .filter(|sample| sample.memory.private > 0.0)
        .map(|sample| (sample.seconds / 60.0, sample.memory.private))
        .collect();
    let count = points.len() as f64;
    let mean_minute = points.iter().map(|(minute, _)| minute).sum::<f64>() / count;
    let mean_mib = points.iter().map(|(_, mib)| mib).sum::<f64>() / count;
    let (mut covariance, mut variance) = (0.0, 0.0);
    for (minute, mib) in &points {
        covariance += (minute - mean_minute) * (mib - mean_mib);
        variance += (minute - mean_minute).powi(2);
    }
    (points.len() > 2 && variance > 0.0).then(|| covariance / variance)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaking(mib_per_second: f64) -> Vec<Sample> {
        let sample = |second: u32| Sample {
            seconds: f64::from(second),
            memory: MemoryMib {
                private: 5.0 + mib_per_second * f64::from(second),
                ..MemoryMib::default()
            },
            ..Sample::default()
        };
        (0..30).map(sample).collect()
    }

    #[test]
    fn slope_is_mib_per_minute() {
        assert!((slope_mib_per_min(&leaking(1.0)).unwrap() - 60.0).abs() < 1e-6);
        assert!(slope_mib_per_min(&leaking(0.0)).unwrap().abs() < 1e-9);
        assert_eq!(slope_mib_per_min(&[]), None);
    }

    #[test]
    fn quantiles_are_exact() {
        let took = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(exact_quantiles_ms(took), Some((51.0, 100.0)));
        assert_eq!(exact_quantiles_ms(Vec::new()), None);
    }
}
