//! Sends the load of a step, and takes a sample each second.

use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use lab_harness::background::Background;
use lab_stack::procfs::{busy_time_of_machine, usage_of_tree};
use lab_stack::{unix_ms, wait_until};
use lab_stand_ins::firehose::Firehose;
use loadgen::manifest::Manifest;
use loadgen::publish::Plan;

use crate::cases::{Case, Store, WARM_UP_SECONDS};
use crate::consumer::Consumer;
use crate::servers::{Servers, broker_received, inserted_rows};
use crate::trial::{Sample, Trial};

/// Longest time after the load in which a lagging consumer may still store rows.
pub(crate) const DRAINED_WITHIN: Duration = Duration::from_secs(180);
/// Time without new rows after which a store counts as settled.
pub(crate) const QUIET: Duration = Duration::from_secs(4);
const SUBSCRIBED_WITHIN: Duration = Duration::from_secs(2);
const MIB: f64 = 1_048_576.0;

/// The messages that a load has sent.
pub(crate) struct Sent {
    pub(crate) messages: u64,
    /// The fleet's record of its messages; `None` for the firehose.
    pub(crate) manifest: Option<Manifest>,
    /// Fixes sent, by driver.
    pub(crate) by_driver: Vec<u32>,
}

pub(crate) enum Load<'a> {
    Fleet(Background),
    Firehose(&'a Firehose),
}

impl<'a> Load<'a> {
    pub(crate) fn start(case: &Case, servers: &'a Servers) -> Result<Self> {
        if let Some(firehose) = &servers.firehose {
            wait_until("the consumer has subscribed", SUBSCRIBED_WITHIN, || {
                Ok(firehose.subscribers() > 0)
            })?;
            firehose.open();
            return Ok(Self::Firehose(firehose));
        }
        let rate = case.rate.context("the case has a fleet without a rate")?;
        let plan = Plan {
            broker: format!("127.0.0.1:{}", servers.mqtt_port),
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
                // Ignore a timeout: the verification reports a firehose that is still sending.
                let _ =
                    wait_until_quiet(|| firehose.sent(), |sent| sent == firehose.assigned(), QUIET);
                let _ = wait_until_quiet(
                    || servers.stored(),
                    |stored| stored >= firehose.sent(),
                    QUIET,
                );
                Ok(Sent {
                    messages: firehose.sent(),
                    manifest: None,
                    by_driver: firehose.sent_by_driver(),
                })
            }
        }
    }
}

/// Waits until the count is complete, or has not changed for `quiet`. Returns `false` if the count
/// still changes after [`DRAINED_WITHIN`].
pub(crate) fn wait_until_quiet(
    count: impl Fn() -> u64,
    is_complete: impl Fn(u64) -> bool,
    quiet: Duration,
) -> bool {
    let (began, mut before, mut changed) = (Instant::now(), count(), Instant::now());
    while !is_complete(before) && changed.elapsed() < quiet {
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

/// Takes one sample a second, the first one at the beginning.
pub(crate) fn sample(
    case: &Case,
    load: &Load<'_>,
    servers: &Servers,
    consumer: &mut Consumer,
) -> Result<Vec<Sample>> {
    let began = Instant::now();
    let mut samples = Vec::new();
    for second in 0..=u64::from(WARM_UP_SECONDS + case.seconds) {
        // A query costs CPU, so query the engine only in the first and the last counted second.
        let queries_engine =
            [WARM_UP_SECONDS, WARM_UP_SECONDS + case.seconds].map(u64::from).contains(&second);
        sleep(Duration::from_secs(second).saturating_sub(began.elapsed()));
        consumer.process.ensure_alive()?;
        let usage = usage_of_tree(consumer.process.pid())?;
        // Servers and consumers are child processes of this process. The generator and the sink are
        // threads of this process.
        let bench = usage_of_tree(std::process::id())?;
        samples.push(Sample {
            seconds: began.elapsed().as_secs_f64(),
            sent: load.sent(),
            stored: if case.store == Store::Sink { servers.stored() } else { 0 },
            inserts: servers.insert_durations().len(),
            cpu_seconds: usage.cpu.as_secs_f64(),
            kernel_seconds: usage.kernel.as_secs_f64(),
            rss_peak_mib: usage.peak_bytes as f64 / MIB,
            engine_rows: servers
                .engine()
                .ok()
                .filter(|_| queries_engine)
                .map(inserted_rows)
                .transpose()?,
            others_cpu_seconds: busy_time_of_machine()?.as_secs_f64() - bench.cpu.as_secs_f64(),
        });
    }
    Ok(samples)
}

/// Refuses the step if the broker counted another number of messages than the generator sent, or
/// left a message unacknowledged. The generator repeats a message without a subscriber, and each
/// attempt counts.
pub(crate) fn check_count(trial: &mut Trial, servers: &Servers, manifest: &Manifest) -> Result<()> {
    let written = manifest.messages + manifest.no_subscriber;
    let counted = broker_received(servers.mqtt_port, written)?;
    if counted != written {
        trial.refuse(
            true,
            format!("the generator sent {written} messages, the broker counted {counted}"),
        );
    }
    if !manifest.unacked.is_empty() {
        trial.refuse(
            true,
            format!("the broker did not acknowledge {} messages", manifest.unacked.len()),
        );
    }
    Ok(())
}
