//! The measurements of one step.

use serde::Serialize;

#[derive(Debug, Clone, Serialize, Default)]
pub(crate) struct Trial {
    pub(crate) case: String,
    pub(crate) consumer: String,
    pub(crate) repetition: u32,
    /// Reasons why the figures do not count. Empty: the figures count.
    pub(crate) refused: Vec<String>,
    /// Another attempt may succeed: the machine caused a refusal, not the consumer.
    #[serde(skip)]
    pub(crate) is_worth_repeating: bool,
    /// Messages sent in the whole step, warm-up included.
    pub(crate) messages: u64,
    /// Messages per second that the generator sent in the counted seconds.
    pub(crate) rate_held: f64,
    /// Rows stored per second in the counted seconds. Set only if the generator had no rate, or if
    /// the consumer fell behind.
    pub(crate) stored_per_second: Option<f64>,
    pub(crate) cpu_us_per_message: f64,
    /// The part of `cpu_us_per_message` that was spent in the kernel, for sockets and files.
    pub(crate) kernel_us_per_message: f64,
    /// CPU cores that other processes, and other guests of the host, used in the counted seconds.
    pub(crate) others_cores: f64,
    pub(crate) rss_peak_mib: f64,
    /// Median and 99th percentile of the duration of inserts, seen at a proxy in front of
    /// ClickHouse or in the sink. Inserts of the warm-up do not count: the engine's first insert is
    /// its slowest and would be the 99th percentile of a step.
    pub(crate) flush_ms: Option<(f64, f64)>,
    /// Median and 99th percentile of the time from the publish to the row in ClickHouse.
    pub(crate) freshness_ms: Option<(f64, f64)>,
    pub(crate) lost: Option<u64>,
    /// Number of duplicate rows, plus number of stored fixes that were never sent.
    pub(crate) duplicates: Option<u64>,
    pub(crate) start_to_subscribed_ms: f64,
    pub(crate) engine_version: Option<String>,
    /// Results of the kills; set only where the consumer was killed.
    pub(crate) kills: Option<Kills>,
    pub(crate) samples: Vec<Sample>,
}

/// Totals up to one sample. CPU and memory are sums over all processes of the consumer since their
/// start.
#[derive(Debug, Clone, Copy, Serialize, Default)]
pub(crate) struct Sample {
    /// Time since the first sample.
    pub(crate) seconds: f64,
    pub(crate) sent: u64,
    /// Rows in the sink; 0 if the store is the engine.
    pub(crate) stored: u64,
    /// Inserts answered, at the proxy or the sink.
    pub(crate) inserts: usize,
    pub(crate) cpu_seconds: f64,
    pub(crate) kernel_seconds: f64,
    pub(crate) rss_peak_mib: f64,
    /// Rows that the engine has written; set only in the first and the last counted sample.
    #[serde(skip)]
    pub(crate) engine_rows: Option<u64>,
    /// CPU time so far of everything on the machine outside the benchmark, in seconds.
    pub(crate) others_cpu_seconds: f64,
}

impl Trial {
    pub(crate) fn one_line(&self) -> String {
        if !self.refused.is_empty() {
            return format!("REFUSED: {}", self.refused.join("; "));
        }
        let (lost, twice) = (self.lost.unwrap_or(0), self.duplicates.unwrap_or(0));
        if let Some(Kills { count, back_after_ms, failure, .. }) = &self.kills {
            let worst = back_after_ms.iter().copied().fold(0.0, f64::max) / 1e3;
            let back = format!("back after {worst:.2} s");
            let back =
                failure.as_ref().map_or(back, |reason| format!("did not come back: {reason}"));
            return format!("{count} kills, lost {lost}, twice {twice}, {back}");
        }
        format!(
            "{:.2} µs/message, {:.1} MiB, lost {lost}",
            self.cpu_us_per_message, self.rss_peak_mib
        )
    }

    /// Marks the figures as refused, so that they do not count. `may_retry`: another attempt may
    /// succeed.
    pub(crate) fn refuse(&mut self, may_retry: bool, reason: String) {
        self.is_worth_repeating |= may_retry;
        self.refused.push(reason);
    }
}

/// The results of the kills, in addition to `lost` and `duplicates`.
#[derive(Debug, Clone, Serialize, Default)]
pub(crate) struct Kills {
    pub(crate) count: u32,
    /// Time from each kill until the consumer was subscribed again.
    pub(crate) back_after_ms: Vec<f64>,
    /// Duplicate rows of `positions`. Merges are stopped, so every row that was inserted again
    /// counts.
    pub(crate) duplicates_raw: u64,
    /// Messages that the broker answered with "no matching subscribers". The fleet sent them again,
    /// so they are not lost here; devices that ignore the reason code would lose them.
    pub(crate) no_subscriber: u64,
    /// Reason why the consumer did not subscribe again, or was dead at the end.
    #[serde(rename = "gone")]
    pub(crate) failure: Option<String>,
}
