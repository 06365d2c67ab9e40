//! What one step showed, as it stands in the report.

use serde::Serialize;

use crate::engine::Work;
use crate::words::{repetitions, thousands};

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
        if let Some(Kills { count, back_after_ms, gone, .. }) = &self.kills {
            let worst = back_after_ms.iter().copied().fold(0.0, f64::max) / 1e3;
            let back = format!("back after {worst:.2} s");
            let back = gone.as_ref().map_or(back, |why| format!("did not come back: {why}"));
            let (lost, twice) = (self.lost.unwrap_or(0), self.duplicates.unwrap_or(0));
            return format!("{count} kills, lost {lost}, twice {twice}, {back}");
        }
        let lost = self.lost.map_or("?".to_owned(), |lost| lost.to_string());
        format!("{:.2} µs/message, {:.1} MiB, lost {lost}", self.cpu_us_per_message, self.rss_peak_mib)
    }

    pub(crate) fn refuse(&mut self, machine: bool, why: String) {
        self.may_differ_next_time |= machine;
        self.refused.push(why);
    }
}

/// What the kills showed, beside lost and twice.
#[derive(Debug, Clone, Serialize, Default)]
pub(crate) struct Kills {
    /// Under load.
    pub(crate) count: u32,
    /// From each kill to being subscribed again.
    pub(crate) back_after_ms: Vec<f64>,
    /// Rows of `positions` beyond one a fix; merges are stopped, so these are all that were inserted again.
    pub(crate) duplicates_raw: u64,
    /// Messages for which the broker had no session any more. It said so, and the fleet sent them again: no loss here,
    /// but one with devices that do not listen.
    pub(crate) no_subscriber: u64,
    /// Why it did not come back.
    pub(crate) gone: Option<String>,
}

/// What was lost and stored twice in several steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Account {
    steps: u64,
    /// Killed, it did not come back: what it did not store may still be with the broker.
    pub(crate) gone: bool,
    pub(crate) messages: u64,
    pub(crate) lost: u64,
    pub(crate) twice: u64,
}

impl Account {
    /// Of the steps that count and that were judged; `None`: there are none.
    pub(crate) fn of<'a>(trials: impl Iterator<Item = &'a Trial>) -> Option<Self> {
        let mut sum = Self::default();
        for trial in trials.filter(|trial| trial.refused.is_empty()) {
            let Some((lost, twice)) = trial.lost.zip(trial.duplicates) else { continue };
            sum.steps += 1;
            sum.messages += trial.messages;
            sum.lost += lost;
            sum.twice += twice;
            sum.gone |= trial.kills.as_ref().is_some_and(|kills| kills.gone.is_some());
        }
        (sum.steps > 0).then_some(sum)
    }

    /// "5 of 60,000 lost, 12 stored twice, in 3 steps"
    pub(crate) fn in_words(&self) -> String {
        let Self { steps, messages, lost, twice, .. } = self;
        let steps = repetitions(*steps);
        let [messages, lost, twice] = [messages, lost, twice].map(|count| thousands(*count));
        format!("{lost} of {messages} lost, {twice} stored twice, in {steps}")
    }
}
