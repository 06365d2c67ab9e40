//! One step: fresh servers, one consumer, the load, the judge.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::cases::{Case, Source, Store, WARM_UP_SECONDS};
use crate::consumer::{Binaries, Consumer, Kind, Place};
use crate::engine::Work;
use crate::kill::{self, Kills};
use crate::limits::Limits;
use crate::servers::{Servers, broker_received};
use lab_harness::background::Background;
use lab_stack::procfs::{Usage, busy_time_of_machine, usage_of_tree};
use lab_stack::unix_ms;
use lab_stand_ins::firehose::Firehose;
use lab_stand_ins::tally;
use loadgen::manifest::Manifest;
use loadgen::publish::Plan;

/// Less than this share of the rate, and the generator fell behind.
pub(crate) const RATE_MIN: f64 = 0.98;
/// Rows that may be missing at any time without the consumer being behind: those of two batches that fill or travel.
const BATCHES_UNDER_WAY: f64 = 10_000.0;
/// At low rates, what comes while one fills for its second and another travels.
const SECONDS_UNDER_WAY: f64 = 2.0;
/// How long the last rows usually take after the load at most.
const STORED_WITHIN: Duration = Duration::from_secs(20);
/// How long one may take that has fallen behind, as long as it goes on storing.
pub(crate) const DRAINED_WITHIN: Duration = Duration::from_secs(180);
/// A store that has not grown for this long will not.
pub(crate) const QUIET: Duration = Duration::from_secs(4);
/// The same under the limits of the pod.
pub(crate) const QUIET_LIMITED: Duration = Duration::from_secs(30);
/// Memory still settles before.
const SLOPE_SECONDS_MIN: f64 = 60.0;
const SUBSCRIBED_WITHIN: Duration = Duration::from_secs(2);
const LEAVE_WITHIN: Duration = Duration::from_secs(10);
const MIB: f64 = 1_048_576.0;

/// What one step showed.
#[derive(Debug, Clone, Serialize, Default)]
pub(crate) struct Trial {
    pub(crate) case: String,
    pub(crate) consumer: String,
    pub(crate) repetition: u32,
    /// Why its figures do not count.
    pub(crate) refused: Vec<String>,
    /// The machine's doing, not the consumer's.
    #[serde(skip)]
    pub(crate) may_differ_next_time: bool,
    /// Of the whole step, warm-up included.
    pub(crate) messages: u64,
    /// Messages a second the generator held while it counted.
    pub(crate) rate_held: f64,
    /// Rows a second that were stored while it counted; only where that is not the generator's rate: it had none, or the
    /// consumer fell behind.
    pub(crate) stored_per_second: Option<f64>,
    pub(crate) cpu_us_per_message: f64,
    pub(crate) cpu_percent_of_core: f64,
    /// Cores that other processes, and other machines on our host, took while it counted.
    pub(crate) others_cores: f64,
    pub(crate) rss_peak_mib: f64,
    pub(crate) rss_mean_mib: f64,
    /// Least squares over the counted seconds, if there are enough.
    pub(crate) rss_mib_per_ten_minutes: Option<f64>,
    /// Median and 99th percentile by the consumer's own histogram, which knows no warm-up.
    pub(crate) flush_own_ms: Option<(f64, f64)>,
    /// The same as a proxy before ClickHouse, or the sink, saw it, without the warm-up: the engine's first insert
    /// takes longer than any other, and would be the 99th percentile of a step.
    pub(crate) flush_seen_ms: Option<(f64, f64)>,
    pub(crate) freshness_ms: Option<(f64, f64)>,
    /// CPU of the engine's process a row, the front before it included.
    pub(crate) store_cpu_us_per_row: Option<f64>,
    /// The same by the engine's own account, without the front.
    pub(crate) engine_cpu_us_per_row: Option<f64>,
    /// Of that, user time.
    pub(crate) engine_user_us_per_row: Option<f64>,
    /// Without what an insert costs whatever is in it; only for the Null table.
    pub(crate) parsing_us_per_row: Option<f64>,
    /// How many rows the engine merged for each that came; merges come by chance, and their CPU is in the engine's.
    pub(crate) merged_rows_per_row: Option<f64>,
    /// Of the whole step.
    pub(crate) rows_per_insert: Option<f64>,
    pub(crate) lost: Option<u64>,
    pub(crate) duplicates: Option<u64>,
    /// Each member's share of the messages.
    pub(crate) shares: Vec<f64>,
    pub(crate) start_to_subscribed_ms: f64,
    pub(crate) engine_version: Option<String>,
    /// Why the limits of the pod could not be set.
    pub(crate) unlimited: Option<String>,
    /// Only where the consumer was killed.
    pub(crate) kills: Option<Kills>,
    pub(crate) samples: Vec<Sample>,
}

/// One second's figures; sums over all processes.
#[derive(Debug, Clone, Copy, Serialize, Default)]
pub(crate) struct Sample {
    pub(crate) seconds: f64,
    pub(crate) sent: u64,
    pub(crate) stored: u64,
    /// Inserts seen so far.
    pub(crate) inserts: usize,
    pub(crate) cpu_seconds: f64,
    pub(crate) rss_mib: f64,
    pub(crate) rss_peak_mib: f64,
    pub(crate) store_cpu_seconds: f64,
    /// By the engine's own account; only the first and the last sample that count have it.
    #[serde(skip)]
    pub(crate) engine: Option<Work>,
    /// Of everything that is neither ours nor idle.
    pub(crate) others_cpu_seconds: f64,
}

impl Trial {
    /// For the progress line.
    pub(crate) fn in_a_line(&self) -> String {
        if !self.refused.is_empty() {
            return format!("REFUSED: {}", self.refused.join("; "));
        }
        if let Some(kills) = &self.kills {
            return kills.in_a_line(self);
        }
        let lost = self.lost.map_or("?".to_owned(), |lost| lost.to_string());
        format!("{:.2} µs/message, {:.1} MiB, lost {lost}", self.cpu_us_per_message, self.rss_peak_mib)
    }

    pub(crate) fn refuse(&mut self, machine: bool, why: String) {
        self.may_differ_next_time |= machine;
        self.refused.push(why);
    }
}

/// What to measure, and with what.
pub(crate) struct Stage<'a> {
    pub(crate) case: &'a Case,
    pub(crate) kind: Kind,
    pub(crate) repetition: u32,
    pub(crate) binaries: &'a Binaries,
    pub(crate) folder: &'a Path,
}

impl Stage<'_> {
    /// A step that fails is a refused one.
    pub(crate) fn measure(&self) -> Trial {
        let mut trial = Trial {
            case: self.case.name.clone(),
            consumer: self.kind.name().to_owned(),
            repetition: self.repetition,
            ..Trial::default()
        };
        let folder = self.folder.join("step");
        if let Err(error) = self.run(&folder, &mut trial) {
            trial.refuse(true, format!("{error:#}"));
        }
        let _ = std::fs::remove_dir_all(&folder);
        trial
    }

    fn run(&self, folder: &PathBuf, trial: &mut Trial) -> Result<()> {
        let case = self.case;
        std::fs::create_dir_all(folder)?;
        let servers = Servers::start(case, self.kind, &self.binaries.milepost, folder)?;
        trial.engine_version = servers.engine_version();
        // Dropped after the consumers: only an empty group can be removed.
        let limits = case.limited.then(Limits::of_the_pod);
        let mut consumers = Vec::new();
        for member in 0..case.members {
            let (mqtt_port, url) = (servers.mqtt_port(), servers.clickhouse_url());
            let place = Place { folder, mqtt_port, clickhouse_url: &url, qos: case.qos, member };
            let consumer = Consumer::start(self.kind, self.binaries, &place)?;
            match &limits {
                Some(Ok(limits)) => limits.add(consumer.process.pid())?,
                Some(Err(error)) => trial.unlimited = Some(format!("{error:#}")),
                None => {}
            }
            consumers.push(consumer);
        }
        for consumer in &mut consumers {
            trial.start_to_subscribed_ms = consumer.wait_until_ready()?.as_secs_f64() * 1e3;
        }

        if case.kills > 0 {
            return kill::measure(self, folder, &servers, consumers.remove(0), trial);
        }
        let load = Load::start(case, &servers)?;
        trial.samples = sample(case, &load, &servers, &mut consumers)?;
        figures(trial, case)?;
        let sent = load.finish(&servers)?;
        trial.messages = sent.messages;
        judge(trial, case, &servers, &sent)?;

        let scrapes = consumers.iter().map(Consumer::scrape).collect::<Result<Vec<_>>>()?;
        trial.flush_own_ms = scrapes[0].flush_ms;
        let warm_up_inserts = trial.samples[WARM_UP_SECONDS as usize].inserts;
        let mut inserts = servers.inserts_took();
        figures_of_engine(trial, case, servers.stored(), inserts.len());
        trial.flush_seen_ms = quantiles_ms(inserts.split_off(warm_up_inserts));
        if let Some(empty) = servers.work_of_an_insert()? {
            let known = trial.engine_cpu_us_per_row.zip(trial.rows_per_insert);
            trial.parsing_us_per_row = known.map(|(engine, rows)| engine - empty.as_secs_f64() * 1e6 / rows);
        }
        let all: f64 = scrapes.iter().map(|scrape| scrape.messages).sum();
        trial.shares = scrapes.iter().map(|scrape| scrape.messages / all.max(1.0)).collect();
        for consumer in &mut consumers {
            consumer.process.signal("TERM")?;
        }
        for consumer in &mut consumers {
            // One that does not leave in time is killed; that it stored everything is known by now.
            let _ = consumer.process.wait(LEAVE_WITHIN);
        }
        Ok(())
    }
}

/// What the counted seconds say: differences between their first and last samples.
fn figures(trial: &mut Trial, case: &Case) -> Result<()> {
    let counted = &trial.samples[WARM_UP_SECONDS as usize..];
    let (first, last) = counted.first().zip(counted.last()).context("no samples")?;
    let seconds = last.seconds - first.seconds;
    let sent = (last.sent - first.sent) as f64;
    let stored = (last.stored - first.stored) as f64;
    let cpu = last.cpu_seconds - first.cpu_seconds;
    // Against the firehose a consumer's backlog is in the sockets' buffers, and one that cannot keep up with a fleet
    // has it in the broker's queue: only what is stored is done.
    let behind = case.store == Store::Sink && stored < sent * RATE_MIN - under_way(case);
    let done = if case.source == Source::Firehose || behind { stored } else { sent };
    trial.rate_held = sent / seconds;
    // The machine's clock ticks, ours does not: a quiet one may come out a little below nothing.
    trial.others_cores = ((last.others_cpu_seconds - first.others_cpu_seconds) / seconds).max(0.0);
    trial.cpu_us_per_message = cpu * 1e6 / done;
    trial.cpu_percent_of_core = cpu * 100.0 / seconds;
    let rss: Vec<(f64, f64)> = counted.iter().map(|sample| (sample.seconds, sample.rss_mib)).collect();
    trial.rss_mean_mib = rss.iter().map(|(_, mib)| mib).sum::<f64>() / rss.len() as f64;
    trial.rss_mib_per_ten_minutes = (seconds >= SLOPE_SECONDS_MIN).then(|| slope(&rss) * 600.0);
    trial.rss_peak_mib = last.rss_peak_mib;
    trial.stored_per_second = (case.source == Source::Firehose || behind).then_some(stored / seconds);
    if done == 0.0 {
        trial.refuse(true, "nothing was stored".to_owned());
    }
    // Towards a target the firehose sends what the consumer takes.
    let wanted = case.rate.map(f64::from).filter(|_| !case.name.starts_with("target-"));
    if let Some(wanted) = wanted.filter(|wanted| trial.rate_held < wanted * RATE_MIN) {
        let held = trial.rate_held;
        trial.refuse(true, format!("the generator held {held:.0} of {wanted:.0} messages a second"));
    }
    Ok(())
}

/// Rows that may be missing at any time without the consumer being behind.
fn under_way(case: &Case) -> f64 {
    case.rate.map_or(BATCHES_UNDER_WAY, |rate| (SECONDS_UNDER_WAY * f64::from(rate)).min(BATCHES_UNDER_WAY))
}

/// What the counted seconds cost the engine and the consumer, by what the engine wrote in them: a consumer that lags
/// behind must not look cheap because its rows are still to come. `written` is what the engine wrote in all, in the rows
/// of all tables.
fn figures_of_engine(trial: &mut Trial, case: &Case, written: u64, inserts: usize) {
    let counted = &trial.samples[WARM_UP_SECONDS as usize..];
    let Some((first, last)) = counted.first().zip(counted.last()) else { return };
    let Some((before, after)) = first.engine.zip(last.engine) else { return };
    let (sent, seconds) = ((last.sent - first.sent) as f64, last.seconds - first.seconds);
    let stored_in_all = trial.messages.saturating_sub(trial.lost.unwrap_or(0)) as f64;
    let rows = (after.rows - before.rows) as f64 / written as f64 * stored_in_all;
    if after.rows == before.rows {
        return trial.refuse(true, "nothing was stored while it counted".to_owned());
    }
    let process = last.store_cpu_seconds - first.store_cpu_seconds;
    trial.store_cpu_us_per_row = Some(process * 1e6 / rows);
    trial.engine_cpu_us_per_row = Some((after.cpu - before.cpu).as_secs_f64() * 1e6 / rows);
    trial.engine_user_us_per_row = Some((after.user - before.user).as_secs_f64() * 1e6 / rows);
    trial.merged_rows_per_row = Some((after.merged_rows - before.merged_rows) as f64 / rows);
    trial.rows_per_insert = Some(stored_in_all / inserts as f64);
    if rows < sent * RATE_MIN - under_way(case) {
        trial.cpu_us_per_message *= sent / rows;
        trial.stored_per_second = Some(rows / seconds);
    }
}

/// What was sent.
pub(crate) struct Sent {
    messages: u64,
    /// The fleet's account, where there was one.
    pub(crate) manifest: Option<Manifest>,
    /// How many fixes each driver sent.
    by_driver: Vec<u32>,
}

/// A load under way.
pub(crate) enum Load<'a> {
    Fleet(Background),
    Firehose(&'a Firehose),
}

impl<'a> Load<'a> {
    pub(crate) fn start(case: &Case, servers: &'a Servers) -> Result<Self> {
        if let Some(firehose) = servers.firehose() {
            // Bento says that it is ready while its SUBSCRIBE is still on its way.
            lab_stack::wait_until("every member has subscribed", SUBSCRIBED_WITHIN, || {
                Ok(firehose.subscribers() == case.members as usize)
            })?;
            firehose.open();
            return Ok(Self::Firehose(firehose));
        }
        let rate = case.rate.context("a fleet has a rate")?;
        let plan = Plan {
            broker: format!("127.0.0.1:{}", servers.mqtt_port()),
            run: format!("{:x}", unix_ms()),
            drivers: case.drivers,
            connections: 2,
            qos: case.qos,
            rate: f64::from(rate),
            messages: u64::from(rate) * u64::from(WARM_UP_SECONDS + case.seconds),
            drain: Duration::from_secs(10),
            ..Plan::default()
        };
        Ok(Self::Fleet(Background::start(plan, false)))
    }

    pub(crate) fn sent(&self) -> u64 {
        match self {
            Self::Fleet(fleet) => fleet.progress.sent.load(Ordering::Relaxed),
            Self::Firehose(firehose) => firehose.sent(),
        }
    }

    pub(crate) fn finish(self, servers: &Servers) -> Result<Sent> {
        match self {
            Self::Fleet(fleet) => {
                let manifest = fleet.finish()?;
                let (messages, by_driver) = (manifest.messages, manifest.last_seq.clone());
                Ok(Sent { messages, manifest: Some(manifest), by_driver })
            }
            Self::Firehose(firehose) => {
                firehose.close();
                // What does not come to rest here is told by the judge.
                let _ = wait_until_quiet(|| firehose.sent(), |sent| sent == firehose.dealt(), QUIET);
                let _ = wait_until_quiet(|| servers.stored(), |stored| stored >= firehose.sent(), QUIET);
                Ok(Sent { messages: firehose.sent(), manifest: None, by_driver: firehose.sent_by_driver() })
            }
        }
    }
}

/// Until it is done, or the count has stood still for a while; `false`: it still moves after a long time.
fn wait_until_quiet(count: impl Fn() -> u64, done: impl Fn(u64) -> bool, quiet: Duration) -> bool {
    let (began, mut before, mut changed) = (Instant::now(), count(), Instant::now());
    while !done(before) && changed.elapsed() < quiet {
        if began.elapsed() >= DRAINED_WITHIN {
            return false;
        }
        sleep(Duration::from_millis(10));
        let now = count();
        if now != before {
            (before, changed) = (now, Instant::now());
        }
    }
    true
}

/// One sample a second, the first at the beginning.
fn sample(
    case: &Case,
    load: &Load<'_>,
    servers: &Servers,
    consumers: &mut [Consumer],
) -> Result<Vec<Sample>> {
    let began = Instant::now();
    let mut samples = Vec::new();
    for second in 0..=u64::from(WARM_UP_SECONDS + case.seconds) {
        let counts = [WARM_UP_SECONDS, WARM_UP_SECONDS + case.seconds].map(u64::from).contains(&second);
        sleep(Duration::from_secs(second).saturating_sub(began.elapsed()));
        let mut sum = Usage::default();
        for consumer in consumers.iter_mut() {
            consumer.process.ensure_alive()?;
            let usage = usage_of_tree(consumer.process.pid())?;
            sum.cpu += usage.cpu;
            sum.resident_bytes += usage.resident_bytes;
            sum.peak_bytes += usage.peak_bytes;
        }
        // Servers and consumers are our children, generator and sink our threads.
        let ours = usage_of_tree(std::process::id())?;
        samples.push(Sample {
            seconds: began.elapsed().as_secs_f64(),
            sent: load.sent(),
            stored: if case.store == Store::Sink { servers.stored() } else { 0 },
            inserts: servers.inserts_took().len(),
            cpu_seconds: sum.cpu.as_secs_f64(),
            rss_mib: sum.resident_bytes as f64 / MIB,
            rss_peak_mib: sum.peak_bytes as f64 / MIB,
            store_cpu_seconds: servers.store_cpu()?.as_secs_f64(),
            engine: if counts { servers.work()? } else { None },
            others_cpu_seconds: busy_time_of_machine()?.as_secs_f64() - ours.cpu.as_secs_f64(),
        });
    }
    Ok(samples)
}

/// The broker must count what the generator sent, twice what met no session.
pub(crate) fn check_the_count(trial: &mut Trial, servers: &Servers, manifest: &Manifest) -> Result<()> {
    let written = manifest.messages + manifest.no_subscriber;
    let counted = broker_received(servers.mqtt_port(), written)?;
    if counted != written {
        trial.refuse(true, format!("the generator sent {written} messages, the broker counts {counted}"));
    }
    if !manifest.unacked.is_empty() {
        trial.refuse(true, format!("the broker did not take {} messages", manifest.unacked.len()));
    }
    Ok(())
}

/// What is there of what was sent, and whether the generator told the truth about that.
fn judge(trial: &mut Trial, case: &Case, servers: &Servers, sent: &Sent) -> Result<()> {
    if let Some(manifest) = &sent.manifest {
        check_the_count(trial, servers, manifest)?;
    }
    if let Some(firehose) = servers.firehose() {
        for fault in firehose.faults() {
            trial.refuse(false, fault);
        }
        if case.qos == 1 {
            // The acknowledgements of a batch follow its insert one by one.
            let _ = wait_until_quiet(|| firehose.acked(), |acked| acked >= firehose.sent(), QUIET);
        }
        let (sent, dealt, acked) = (firehose.sent(), firehose.dealt(), firehose.acked());
        if sent != dealt {
            trial.refuse(false, format!("{} messages could not be written", dealt - sent));
        }
        if case.qos == 1 && acked != sent {
            trial.refuse(false, format!("{} messages were never acknowledged", sent - acked));
        }
    }
    // A peer at its limits pauses for seconds.
    let quiet = if case.limited { QUIET_LIMITED } else { QUIET };
    let mut settled = true;
    let (lost, duplicates) = match (case.store, &sent.manifest) {
        (Store::Engine | Store::NoMerges, Some(manifest)) => {
            let mut verdict = servers.verify(manifest, STORED_WITHIN)?;
            if verdict.lost > 0 {
                settled = wait_until_quiet(|| servers.stored(), |_| false, quiet);
                verdict = servers.verify(manifest, Duration::ZERO)?;
            }
            trial.freshness_ms = verdict.freshness_ms;
            (verdict.lost, verdict.duplicates_in_fixes + verdict.never_sent)
        }
        _ => {
            settled = wait_until_quiet(|| servers.stored(), |stored| stored >= sent.messages, quiet);
            by_sets_or_counts(case, servers, sent)
        }
    };
    if !settled {
        trial.refuse(false, format!("it still stores {} s after the load", DRAINED_WITHIN.as_secs()));
    }
    (trial.lost, trial.duplicates) = (Some(lost), Some(duplicates));
    Ok(())
}

fn by_sets_or_counts(case: &Case, servers: &Servers, sent: &Sent) -> (u64, u64) {
    match servers.sink() {
        Some(sink) if case.drivers <= tally::DRIVERS_MAX => {
            let verdict = sink.tally().compare(&sent.by_driver);
            (verdict.lost, verdict.duplicates + verdict.never_sent)
        }
        _ => {
            let stored = servers.stored();
            (sent.messages.saturating_sub(stored), stored.saturating_sub(sent.messages))
        }
    }
}

/// Median and 99th percentile, exactly.
fn quantiles_ms(mut took: Vec<Duration>) -> Option<(f64, f64)> {
    took.sort_unstable();
    let at = |share: f64| -> Option<f64> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
        let index = ((took.len() as f64 * share) as usize).min(took.len().checked_sub(1)?);
        Some(took[index].as_secs_f64() * 1e3)
    };
    at(0.5).zip(at(0.99))
}

/// Least squares: y for one x.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
    let up: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let along: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    if along > 0.0 { up / along } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generator_that_fell_behind_is_not_reported() {
        let case = crate::cases::quick().remove(0);
        let step = |rate: u64| {
            let sample = |second: u64| Sample {
                seconds: second as f64,
                sent: rate * second,
                cpu_seconds: 0.1 * second as f64,
                ..Sample::default()
            };
            let samples = (0..=12).map(sample).collect();
            let mut trial = Trial { samples, ..Trial::default() };
            figures(&mut trial, &case).unwrap();
            trial
        };
        let held = step(20_000);
        assert_eq!(held.refused, Vec::<String>::new());
        assert!((held.cpu_us_per_message - 5.0).abs() < 1e-6, "{}", held.cpu_us_per_message);
        let behind = step(18_000);
        assert!(behind.refused[0].contains("held 18000 of 20000"), "{:?}", behind.refused);
        assert!(behind.may_differ_next_time);
    }

    /// A step before the engine: `written` rows in the counted seconds, of 240,000 messages at 20,000 a second.
    fn before_engine(written: u64) -> Trial {
        let case = crate::cases::quick().remove(0);
        let sample = |second: u64| Sample {
            seconds: second as f64,
            sent: 20_000 * second,
            cpu_seconds: 0.1 * second as f64,
            engine: Some(Work {
                cpu: Duration::from_millis(100 * second),
                rows: if second < 2 { 0 } else { 40_000 + written * (second - 2) / 10 },
                ..Work::default()
            }),
            ..Sample::default()
        };
        let samples = (0..=12).map(sample).collect();
        let mut trial = Trial { samples, messages: 240_000, lost: Some(0), ..Trial::default() };
        figures(&mut trial, &case).unwrap();
        figures_of_engine(&mut trial, &case, 240_000, 48);
        trial
    }

    #[test]
    fn who_lags_behind_before_the_engine_pays_by_what_is_written() {
        let keeps_up = before_engine(200_000);
        assert!((keeps_up.cpu_us_per_message - 5.0).abs() < 1e-6, "{}", keeps_up.cpu_us_per_message);
        assert!((keeps_up.engine_cpu_us_per_row.unwrap() - 5.0).abs() < 1e-6);
        assert_eq!(keeps_up.stored_per_second, None);
        let lags = before_engine(100_000);
        assert!((lags.cpu_us_per_message - 10.0).abs() < 1e-6, "{}", lags.cpu_us_per_message);
        assert!((lags.engine_cpu_us_per_row.unwrap() - 10.0).abs() < 1e-6);
        assert_eq!(lags.stored_per_second, Some(10_000.0));
    }

    #[test]
    fn who_writes_nothing_is_not_the_cheapest() {
        let trial = before_engine(0);
        assert_eq!(trial.refused, ["nothing was stored while it counted"]);
        assert_eq!(trial.engine_cpu_us_per_row, None);
    }

    #[test]
    fn quantiles_and_slopes() {
        let took = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(quantiles_ms(took), Some((51.0, 100.0)));
        assert_eq!(quantiles_ms(Vec::new()), None);
        assert!((slope(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]) - 2.0).abs() < 1e-9);
    }
}
