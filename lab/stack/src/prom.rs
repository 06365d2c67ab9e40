//! Prometheus' text format, as far as the bench reads and the floor writes it.

use std::fmt::Write as _;
use std::time::Duration;

/// Upper bounds of milepost's latency buckets, in seconds; every consumer of the bench has the same.
pub const SECONDS: [f64; 15] =
    [0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Counts of durations by bucket.
#[derive(Debug, Default, Clone)]
pub struct Histogram {
    counts: [u64; SECONDS.len()],
    count: u64,
    sum_seconds: f64,
}

impl Histogram {
    /// Counts one.
    pub fn observe(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        self.count += 1;
        self.sum_seconds += seconds;
        for (count, bound) in self.counts.iter_mut().zip(SECONDS) {
            *count += u64::from(seconds <= bound);
        }
    }

    /// As a scrape shows it.
    #[must_use]
    pub fn render(&self, name: &str) -> String {
        let mut out = format!("# TYPE {name} histogram\n");
        for (count, bound) in self.counts.iter().zip(SECONDS) {
            writeln!(out, "{name}_bucket{{le=\"{bound}\"}} {count}").expect("writing to a String");
        }
        let Self { count, sum_seconds, .. } = self;
        write!(out, "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {sum_seconds}\n{name}_count {count}\n")
            .expect("writing to a String");
        out
    }
}

/// The sum of a metric over its labels, in a scrape; `None`: it is not there.
#[must_use]
pub fn value(scrape: &str, name: &str) -> Option<f64> {
    let sample = |line: &str| -> Option<f64> {
        let rest = line.strip_prefix(name)?;
        let value = if rest.starts_with('{') { rest.rsplit_once("} ")?.1 } else { rest.strip_prefix(' ')? };
        value.parse().ok()
    };
    let values: Vec<f64> = scrape.lines().filter_map(sample).collect();
    (!values.is_empty()).then(|| values.iter().sum())
}

/// The `q` quantile of a histogram, interpolated within its bucket as Prometheus does; `le` is its last label.
#[must_use]
pub fn quantile(scrape: &str, name: &str, q: f64) -> Option<f64> {
    let bucket = |line: &str| -> Option<(f64, f64)> {
        let labels = line.strip_prefix(name)?.strip_prefix("_bucket{")?;
        let (bound, count) = labels.split_once("le=\"")?.1.split_once("\"} ")?;
        Some((bound.replace("+Inf", "inf").parse().ok()?, count.parse().ok()?))
    };
    let buckets: Vec<(f64, f64)> = scrape.lines().filter_map(bucket).collect();
    let rank = q * buckets.last()?.1;
    let mut below = (0.0, 0.0);
    for (bound, count) in buckets {
        if count >= rank && count > below.1 {
            let share = (rank - below.1) / (count - below.1);
            return Some(if bound.is_finite() { below.0 + (bound - below.0) * share } else { below.0 });
        }
        below = (bound, count);
    }
    Some(below.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_rendered_is_read() {
        let mut histogram = Histogram::default();
        for ms in [2, 3, 4, 40] {
            histogram.observe(Duration::from_millis(ms));
        }
        let scrape = histogram.render("x_seconds");
        assert_eq!(value(&scrape, "x_seconds_count"), Some(4.0));
        let p50 = quantile(&scrape, "x_seconds", 0.5).unwrap();
        assert!((0.0025..=0.005).contains(&p50), "{p50}");
        assert_eq!(value(&scrape, "y"), None);
    }

    #[test]
    fn the_buckets_are_milepost_s_and_the_peers() {
        let here = crate::repository();
        for (file, before, after) in [
            ("src/metrics.rs", "const SECONDS: [f64; 15] =", ";\n"),
            ("lab/bench/peers/consumer.js", "buckets: ", ", //"),
        ] {
            let text = std::fs::read_to_string(here.join(file)).unwrap();
            let list = text.split_once(before).unwrap().1.split_once(after).unwrap().0;
            let bounds: Vec<f64> = list
                .trim()
                .trim_matches(['[', ']'])
                .split(',')
                .map(|bound| bound.trim().replace('_', "").parse().unwrap())
                .collect();
            assert_eq!(bounds, SECONDS, "{file}");
        }
    }
}
