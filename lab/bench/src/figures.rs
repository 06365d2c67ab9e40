//! Computes the figures of a step from its samples, one per second.

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::cases::{Case, Source, Store, WARM_UP_SECONDS};
use crate::trial::Trial;

/// Smallest share of its rate that the generator must hold. Below this share, the generator has
/// fallen behind.
const RATE_MIN: f64 = 0.98;
/// Maximum number of rows in flight while a consumer keeps up: two batches, one open and one being
/// inserted.
const ROWS_IN_FLIGHT: f64 = 10_000.0;
/// At low rates, two batches hold the messages of this many seconds: one batch is open for a second
/// while the other is being inserted.
const SECONDS_IN_FLIGHT: f64 = 2.0;

/// Computes the figures from the differences between the first and the last counted sample.
pub(crate) fn compute_figures(trial: &mut Trial, case: &Case) -> Result<()> {
    let counted = &trial.samples[WARM_UP_SECONDS as usize..];
    let (first, last) = counted.first().zip(counted.last()).context("no samples")?;
    let seconds = last.seconds - first.seconds;
    let sent = (last.sent - first.sent) as f64;
    let stored = (last.stored - first.stored) as f64;
    let cpu = last.cpu_seconds - first.cpu_seconds;
    // With the firehose, a consumer's backlog is in the socket buffers. With a fleet, the backlog
    // is in the broker's queue. If a consumer is behind, its cost is divided by the rows that it
    // stored, not by the messages that were sent.
    let is_behind = case.store == Store::Sink && stored < sent * RATE_MIN - rows_in_flight(case);
    let counts_stored = case.source == Source::Firehose || is_behind;
    let charged = if counts_stored { stored } else { sent };
    trial.rate_held = sent / seconds;
    // The kernel counts the machine's CPU time in ticks, and the CPU time of this process exactly.
    // On an idle machine, their difference may therefore be slightly below zero.
    trial.others_cores = ((last.others_cpu_seconds - first.others_cpu_seconds) / seconds).max(0.0);
    trial.cpu_us_per_message = cpu * 1e6 / charged;
    trial.kernel_us_per_message = (last.kernel_seconds - first.kernel_seconds) * 1e6 / charged;
    trial.rss_peak_mib = last.rss_peak_mib;
    trial.stored_per_second = counts_stored.then_some(stored / seconds);
    if charged == 0.0 {
        trial.refuse(true, "nothing was stored".to_owned());
    }
    if let Some(rate) = case.rate {
        check_rate(trial, f64::from(rate));
    }
    Ok(())
}

/// Refuses a step whose generator fell behind its rate, because its figures are not comparable.
pub(crate) fn check_rate(trial: &mut Trial, target: f64) {
    let held = trial.rate_held;
    if held < target * RATE_MIN {
        trial
            .refuse(true, format!("the generator held {held:.0} of {target:.0} messages a second"));
    }
}

/// Returns the maximum number of rows in flight while a consumer keeps up.
fn rows_in_flight(case: &Case) -> f64 {
    case.rate
        .map_or(ROWS_IN_FLIGHT, |rate| (SECONDS_IN_FLIGHT * f64::from(rate)).min(ROWS_IN_FLIGHT))
}

/// If the consumer lags, divides the cost of the counted seconds by the fixes that the engine
/// stored in these seconds. Divided by the messages sent, the cost would look too low. `written`:
/// number of rows that the engine wrote in the whole step, in all tables.
pub(crate) fn charge_by_engine_rows(trial: &mut Trial, case: &Case, written: u64) {
    let counted = &trial.samples[WARM_UP_SECONDS as usize..];
    let Some((first, last)) = counted.first().zip(counted.last()) else { return };
    let Some((before, after)) = first.engine_rows.zip(last.engine_rows) else { return };
    let (sent, seconds) = ((last.sent - first.sent) as f64, last.seconds - first.seconds);
    let stored_in_all = trial.messages.saturating_sub(trial.lost.unwrap_or(0)) as f64;
    let rows = (after - before) as f64 / written as f64 * stored_in_all;
    if after == before {
        return trial.refuse(true, "nothing was stored in the counted seconds".to_owned());
    }
    if rows < sent * RATE_MIN - rows_in_flight(case) {
        trial.cpu_us_per_message *= sent / rows;
        trial.kernel_us_per_message *= sent / rows;
        trial.stored_per_second = Some(rows / seconds);
    }
}

/// Returns the exact median and 99th percentile, in milliseconds.
pub(crate) fn quantiles_ms(mut took: Vec<Duration>) -> Option<(f64, f64)> {
    took.sort_unstable();
    let at = |share: f64| -> Option<f64> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
        let index = ((took.len() as f64 * share) as usize).min(took.len().checked_sub(1)?);
        Some(took[index].as_secs_f64() * 1e3)
    };
    at(0.5).zip(at(0.99))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::Sample;

    #[test]
    fn step_is_refused_when_its_generator_falls_behind() {
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
            compute_figures(&mut trial, &case).unwrap();
            trial
        };
        let held = step(20_000);
        assert_eq!(held.refused, Vec::<String>::new());
        assert!((held.cpu_us_per_message - 5.0).abs() < 1e-6, "{}", held.cpu_us_per_message);
        let behind = step(18_000);
        assert!(behind.refused[0].contains("held 18000 of 20000"), "{:?}", behind.refused);
        assert!(behind.is_worth_repeating);
    }

    /// Returns a step of 240,000 messages, at 20,000 a second. Its engine writes `written` rows in
    /// the counted seconds.
    fn engine_step(written: u64) -> Trial {
        let case = crate::cases::quick().remove(0);
        let sample = |second: u64| Sample {
            seconds: second as f64,
            sent: 20_000 * second,
            cpu_seconds: 0.1 * second as f64,
            engine_rows: Some(if second < 2 { 0 } else { 40_000 + written * (second - 2) / 10 }),
            ..Sample::default()
        };
        let samples = (0..=12).map(sample).collect();
        let mut trial = Trial { samples, messages: 240_000, lost: Some(0), ..Trial::default() };
        compute_figures(&mut trial, &case).unwrap();
        charge_by_engine_rows(&mut trial, &case, 240_000);
        trial
    }

    #[test]
    fn lagging_consumer_is_charged_by_rows_written() {
        let keeps_up = engine_step(200_000);
        assert!(
            (keeps_up.cpu_us_per_message - 5.0).abs() < 1e-6,
            "{}",
            keeps_up.cpu_us_per_message
        );
        assert_eq!(keeps_up.stored_per_second, None);
        let lags = engine_step(100_000);
        assert!((lags.cpu_us_per_message - 10.0).abs() < 1e-6, "{}", lags.cpu_us_per_message);
        assert_eq!(lags.stored_per_second, Some(10_000.0));
    }

    #[test]
    fn step_is_refused_when_nothing_is_stored() {
        let trial = engine_step(0);
        assert_eq!(trial.refused, ["nothing was stored in the counted seconds"]);
    }

    #[test]
    fn quantiles_are_exact() {
        let took = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(quantiles_ms(took), Some((51.0, 100.0)));
        assert_eq!(quantiles_ms(Vec::new()), None);
    }
}
