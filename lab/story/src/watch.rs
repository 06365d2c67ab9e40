//! Samples a consumer and its servers once a second, during the load and the faults.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use lab_stack::procfs::{busy_time_of_machine, usage_of_tree};
use lab_stack::prom::Histogram;
use lab_stack::{get, lock};

use crate::limits::Limits;
use crate::record::{MemoryMib, Sample};

const SECOND: Duration = Duration::from_secs(1);
const MIB: f64 = 1_048_576.0;

/// The process to watch. A restarted consumer is a new target.
#[derive(Debug, Clone, Default)]
pub(crate) struct Target {
    pub(crate) pid: u32,
    pub(crate) http: String,
    pub(crate) flush: String,
}

/// Sources that are read each second, in addition to the process.
pub(crate) struct Sources<'a> {
    pub(crate) target: &'a Mutex<Target>,
    pub(crate) limits: &'a Limits,
    pub(crate) sent: &'a (dyn Fn() -> u64 + Sync),
    pub(crate) stored: &'a (dyn Fn() -> Option<u64> + Sync),
    pub(crate) broker_cpu_seconds: &'a (dyn Fn() -> Option<f64> + Sync),
    pub(crate) inserts: &'a (dyn Fn() -> usize + Sync),
}

/// Takes a sample at once, and then one each second until `is_over`.
pub(crate) fn sample(sources: &Sources<'_>, is_over: &AtomicBool) -> Vec<Sample> {
    let began = Instant::now();
    let mut samples = Vec::new();
    // `killed_cpu`: CPU seconds of the killed processes; `cpu`: CPU seconds of the running process.
    let (mut pid, mut killed_cpu, mut cpu, mut histogram) = (0, 0.0, 0.0, Histogram::default());
    while !is_over.load(Ordering::Relaxed) {
        let target = lock(sources.target).clone();
        if target.pid != pid {
            (pid, killed_cpu, cpu, histogram) =
                (target.pid, killed_cpu + cpu, 0.0, Histogram::default());
        }
        let mut sample = Sample {
            seconds: began.elapsed().as_secs_f64(),
            sent: (sources.sent)(),
            broker_cpu_seconds: (sources.broker_cpu_seconds)(),
            inserts: (sources.inserts)(),
            others_cpu_seconds: others_cpu_seconds().unwrap_or(0.0),
            ..Sample::default()
        };
        if let Ok((seconds, memory)) = usage(pid, sources.limits) {
            (cpu, sample.memory) = (seconds, memory);
        }
        sample.cpu_seconds = killed_cpu + cpu;
        let before = samples.last().map_or(0, |sample: &Sample| sample.stored);
        sample.stored = (sources.stored)().unwrap_or(before);
        if !target.flush.is_empty()
            && let Ok(scrape) = get(&format!("{}/metrics", target.http))
        {
            let now = Histogram::read(&scrape, &target.flush);
            sample.flush_own_ms = quantiles_ms(&now.since(&histogram));
            histogram = now;
        }
        samples.push(sample);
        let next = SECOND * u32::try_from(samples.len()).unwrap_or(u32::MAX);
        while began.elapsed() < next && !is_over.load(Ordering::Relaxed) {
            sleep(next.saturating_sub(began.elapsed()).min(Duration::from_millis(20)));
        }
    }
    samples
}

/// Returns CPU seconds and memory of a process and its descendants.
pub(crate) fn usage(pid: u32, limits: &Limits) -> Result<(f64, MemoryMib)> {
    let usage = usage_of_tree(pid)?;
    let memory = MemoryMib {
        resident: usage.resident_bytes as f64 / MIB,
        private: usage.private_bytes as f64 / MIB,
        docker: limits.docker_bytes().map(|bytes| bytes as f64 / MIB),
    };
    Ok((usage.cpu.as_secs_f64(), memory))
}

/// Returns the CPU time so far of everything on the machine outside the laboratory, in seconds. The
/// laboratory is this process with its children: servers and consumers. The generator and the sink
/// are threads of this process.
pub(crate) fn others_cpu_seconds() -> Result<f64> {
    Ok(busy_time_of_machine()?.as_secs_f64() - usage_of_tree(std::process::id())?.cpu.as_secs_f64())
}

/// Returns the median and 99th percentile of a histogram of seconds, in milliseconds.
pub(crate) fn quantiles_ms(histogram: &Histogram) -> Option<(f64, f64)> {
    let ms = |q: f64| histogram.quantile(q).map(|seconds| seconds * 1e3);
    ms(0.5).zip(ms(0.99))
}
