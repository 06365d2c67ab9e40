//! What one step measured.

use serde::Serialize;

#[derive(Debug, Clone, Serialize, Default)]
pub(crate) struct Trial {
    pub(crate) case: String,
    pub(crate) consumer: String,
    pub(crate) repetition: u32,
    /// Why its figures do not count.
    pub(crate) refused: Vec<String>,
    /// The machine caused that, not the consumer: the step is worth repeating.
    #[serde(skip)]
    pub(crate) may_differ_next_time: bool,
    /// Of the whole step, warm-up included.
    pub(crate) messages: u64,
    /// Messages per second of the generator while it counted.
    pub(crate) rate_held: f64,
    /// Rows per second while it counted; only where that is not the generator's rate: it had none,
    /// or the consumer fell behind.
    pub(crate) stored_per_second: Option<f64>,
    pub(crate) cpu_us_per_message: f64,
    /// The kernel's share of it: sockets and files.
    pub(crate) kernel_us_per_message: f64,
    /// Cores that other processes, and other guests of the host, used while it counted.
    pub(crate) others_cores: f64,
    pub(crate) rss_peak_mib: f64,
    /// Median and 99th percentile at a proxy before ClickHouse, or in the sink, without the
    /// warm-up: the engine's first insert is its slowest, and would be the 99th percentile of a
    /// step.
    pub(crate) flush_ms: Option<(f64, f64)>,
    pub(crate) freshness_ms: Option<(f64, f64)>,
    pub(crate) lost: Option<u64>,
    pub(crate) duplicates: Option<u64>,
    pub(crate) start_to_subscribed_ms: f64,
    pub(crate) engine_version: Option<String>,
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
    pub(crate) inserts: usize,
    pub(crate) cpu_seconds: f64,
    pub(crate) kernel_seconds: f64,
    pub(crate) rss_peak_mib: f64,
    /// Only in the first and the last sample that count.
    #[serde(skip)]
    pub(crate) engine_rows: Option<u64>,
    /// Of everything that is neither ours nor idle.
    pub(crate) others_cpu_seconds: f64,
}

impl Trial {
    pub(crate) fn in_a_line(&self) -> String {
        if !self.refused.is_empty() {
            return format!("REFUSED: {}", self.refused.join("; "));
        }
        let (lost, twice) = (self.lost.unwrap_or(0), self.duplicates.unwrap_or(0));
        if let Some(Kills { count, back_after_ms, gone, .. }) = &self.kills {
            let worst = back_after_ms.iter().copied().fold(0.0, f64::max) / 1e3;
            let back = format!("back after {worst:.2} s");
            let back = gone.as_ref().map_or(back, |why| format!("did not come back: {why}"));
            return format!("{count} kills, lost {lost}, twice {twice}, {back}");
        }
        format!(
            "{:.2} µs/message, {:.1} MiB, lost {lost}",
            self.cpu_us_per_message, self.rss_peak_mib
        )
    }

    pub(crate) fn refuse(&mut self, machine: bool, why: String) {
        self.may_differ_next_time |= machine;
        self.refused.push(why);
    }
}

/// What the kills showed, beside `lost` and `duplicates`.
#[derive(Debug, Clone, Serialize, Default)]
pub(crate) struct Kills {
    pub(crate) count: u32,
    /// From each kill to being subscribed again.
    pub(crate) back_after_ms: Vec<f64>,
    /// Rows of `positions` beyond one a fix; merges are stopped, so these are all that were
    /// inserted again.
    pub(crate) duplicates_raw: u64,
    /// Messages for which the broker had no session. It said so, and the fleet sent them again: no
    /// loss here, but one with devices that ignore the reason code.
    pub(crate) no_subscriber: u64,
    /// Why it did not come back.
    pub(crate) gone: Option<String>,
}
