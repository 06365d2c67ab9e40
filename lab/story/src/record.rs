//! The record of a run, as JSON. From the record, scripts make the page, docs/story.md and the
//! picture in the README.

use std::collections::BTreeMap;

use lab_bench::machine::Machine;
use serde::{Deserialize, Serialize};

use crate::plan::{Limit, Price, Step};

/// One run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Command that repeats the run.
    pub(crate) command: String,
    pub(crate) machine: Machine,
    /// Cargo profile of the consumers in Rust.
    pub(crate) profile: String,
    pub(crate) broker: String,
    pub(crate) minutes: f64,
    pub(crate) price: Price,
    pub(crate) consumers: Vec<ConsumerRecord>,
    pub(crate) outcomes: Vec<Outcome>,
    /// The broker's ceiling at each QoS: the highest rate that any consumer stored through the
    /// broker. A QoS at which the broker was not at its limit has no ceiling.
    pub(crate) broker_ceilings: Vec<Ceiling>,
}

/// A consumer of the plan, with the findings against it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct ConsumerRecord {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) colour: String,
    pub(crate) version: String,
    /// Size in MiB of the program and the packages that must be shipped with it.
    pub(crate) shipped_mib: f64,
    /// Reason for which the consumer is unavailable.
    pub(crate) missing: Option<String>,
    /// Findings against the consumer, in the order of `outcomes` of the record.
    pub(crate) findings: Vec<Finding>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Finding {
    pub(crate) part: String,
    /// Kind of the finding: `loses`, `doubles`, `grows`, `stores` (rows of messages that are not
    /// positions), `dies` or `fails`.
    pub(crate) what: String,
    pub(crate) sentence: String,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Ceiling {
    pub(crate) qos: u8,
    pub(crate) rate: f64,
    pub(crate) broker_cores: f64,
}

/// One consumer in one step.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) part: String,
    pub(crate) consumer: String,
    pub(crate) step: Option<Step>,
    pub(crate) limit: Option<Limit>,
    /// Reason for which the step has no figures.
    pub(crate) error: Option<String>,
    /// Time from the start of the process to its subscription, in milliseconds.
    pub(crate) ready_ms: f64,
    /// Memory half a second after the subscription, before any message.
    pub(crate) idle: MemoryMib,
    /// Largest memory in the counted seconds, after the warm-up.
    pub(crate) memory: MemoryMib,
    pub(crate) sent_per_s: f64,
    pub(crate) stored_per_s: f64,
    pub(crate) cores: f64,
    pub(crate) cpu_us_per_message: Option<f64>,
    /// Median and 99th percentile of the duration of an insert, from the consumer's own /metrics.
    pub(crate) flush_own_ms: Option<(f64, f64)>,
    /// Median and 99th percentile of the duration of an insert, measured at a proxy in front of
    /// ClickHouse or in the sink.
    pub(crate) flush_seen_ms: Option<(f64, f64)>,
    /// Median and 99th percentile of the time from the publish to the row in ClickHouse.
    pub(crate) freshness_ms: Option<(f64, f64)>,
    pub(crate) messages: u64,
    pub(crate) lost: Option<u64>,
    /// Number of duplicate rows, plus number of stored fixes that were never sent.
    pub(crate) twice: Option<u64>,
    /// QoS 0 messages that the broker dropped; part of `lost`.
    pub(crate) broker_dropped: Option<u64>,
    pub(crate) broker_cores: Option<f64>,
    /// Cores that other processes used in the counted seconds.
    pub(crate) others_cores: f64,
    pub(crate) kills: u32,
    /// For each kill, the time until the restarted consumer was subscribed.
    pub(crate) back_after_ms: Vec<f64>,
    /// `true` if the process still runs at the end.
    pub(crate) is_alive: bool,
    /// Rows stored from messages that are not positions.
    pub(crate) bad_stored: Option<u64>,
    /// Number of drivers in `last_positions`.
    pub(crate) last_positions: Option<u64>,
    /// Duration of a query for one driver's last position.
    pub(crate) last_position_ms: Option<f64>,
    pub(crate) throttled_share: Option<f64>,
    /// `true` if the consumer kept up with the load and lost nothing.
    pub(crate) holds: bool,
    /// Growth of private memory in the second half of the counted seconds.
    pub(crate) slope_mib_per_min: Option<f64>,
    /// Seconds from the first to the last sample.
    pub(crate) samples_seconds: f64,
    pub(crate) samples: Vec<Sample>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct MemoryMib {
    /// Resident set, pages of files included.
    pub(crate) resident: f64,
    /// Resident set, pages of files excluded.
    pub(crate) private: f64,
    /// Memory as `docker stats` counts it; `None` without a cgroup.
    pub(crate) docker: Option<f64>,
}

/// One sample per second; counts are totals since the start.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) seconds: f64,
    pub(crate) sent: u64,
    pub(crate) stored: u64,
    pub(crate) cpu_seconds: f64,
    pub(crate) memory: MemoryMib,
    /// Median and 99th percentile of the duration of an insert since the last sample, from the
    /// consumer's own histogram.
    pub(crate) flush_own_ms: Option<(f64, f64)>,
    pub(crate) broker_cpu_seconds: Option<f64>,
    pub(crate) others_cpu_seconds: f64,
    /// Inserts answered, at the proxy or the sink.
    #[serde(skip)]
    pub(crate) inserts: usize,
}

impl Record {
    pub(crate) fn consumers_named(
        &mut self,
        name: &str,
    ) -> impl Iterator<Item = &mut ConsumerRecord> {
        self.consumers.iter_mut().filter(move |consumer| consumer.name == name)
    }

    /// Returns the record without its samples, as the repository keeps it.
    pub(crate) fn without_samples(&self) -> Self {
        let mut record = self.clone();
        for outcome in &mut record.outcomes {
            outcome.samples.clear();
        }
        record
    }

    /// Returns the versions of Node, Bun and Telegraf, by name, for [`Machine`]. A consumer without
    /// a version is left out.
    pub(crate) fn versions(consumers: &[ConsumerRecord]) -> BTreeMap<&'static str, String> {
        let version_of = |name: &'static str| {
            let consumer = consumers
                .iter()
                .find(|consumer| consumer.name == name && !consumer.version.is_empty())?;
            Some((name, consumer.version.clone()))
        };
        ["node", "bun", "telegraf"].into_iter().filter_map(version_of).collect()
    }
}
