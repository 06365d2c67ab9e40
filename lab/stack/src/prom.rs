//! Prometheus' text format, as far as the tests and the laboratory read it.

/// Returns the sum of a metric over its labels, from a scrape. `None`: the scrape lacks the metric.
#[must_use]
pub fn value(scrape: &str, name: &str) -> Option<f64> {
    let sample = |line: &str| -> Option<f64> {
        let after_name = line.strip_prefix(name)?;
        let value = if after_name.starts_with('{') {
            after_name.rsplit_once("} ")?.1
        } else {
            after_name.strip_prefix(' ')?
        };
        value.parse().ok()
    };
    let values: Vec<f64> = scrape.lines().filter_map(sample).collect();
    (!values.is_empty()).then(|| values.iter().sum())
}

/// Returns the `q` quantile of a histogram, interpolated within its bucket as Prometheus does. `le`
/// must be the last label.
#[must_use]
pub fn quantile(scrape: &str, name: &str, q: f64) -> Option<f64> {
    Histogram::read(scrape, name).quantile(q)
}

/// A histogram of a scrape: upper bounds of the buckets, with cumulative counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Histogram(Vec<(f64, f64)>);

impl Histogram {
    /// Reads a histogram from a scrape; empty if the scrape lacks it. `le` must be the last label.
    #[must_use]
    pub fn read(scrape: &str, name: &str) -> Self {
        let bucket = |line: &str| -> Option<(f64, f64)> {
            let labels = line.strip_prefix(name)?.strip_prefix("_bucket{")?;
            let (bound, count) = labels.split_once("le=\"")?.1.split_once("\"} ")?;
            Some((bound.replace("+Inf", "inf").parse().ok()?, count.parse().ok()?))
        };
        Self(scrape.lines().filter_map(bucket).collect())
    }

    /// Returns the observations added since `before`, a scrape of the same process.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let earlier = |n: usize| before.0.get(n).map_or(0.0, |(_, count)| *count);
        Self(
            self.0
                .iter()
                .enumerate()
                .map(|(n, (bound, count))| (*bound, count - earlier(n)))
                .collect(),
        )
    }

    /// Returns the `q` quantile, interpolated within its bucket. `None` without observations.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let (_, all) = self.0.last().filter(|(_, count)| *count > 0.0)?;
        let rank = q * all;
        let (mut lower_bound, mut lower_count) = (0.0, 0.0);
        for &(bound, count) in &self.0 {
            if count >= rank && count > lower_count {
                let share = (rank - lower_count) / (count - lower_count);
                return Some(if bound.is_finite() {
                    lower_bound + (bound - lower_bound) * share
                } else {
                    lower_bound
                });
            }
            (lower_bound, lower_count) = (bound, count);
        }
        Some(lower_bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_and_quantile_are_read_from_a_scrape() {
        let bucket = |(bound, count): (&str, u32)| {
            format!("x_seconds_bucket{{a=\"b\",le=\"{bound}\"}} {count}\n")
        };
        let buckets = [("0.001", 0), ("0.0025", 1), ("0.005", 3), ("0.05", 4), ("+Inf", 4)]
            .map(bucket)
            .concat();
        let scrape = format!("# TYPE x_seconds histogram\n{buckets}x_seconds_count{{a=\"b\"}} 4\n");
        assert_eq!(value(&scrape, "x_seconds_count"), Some(4.0));
        let p50 = quantile(&scrape, "x_seconds", 0.5).unwrap();
        assert!((0.0025..=0.005).contains(&p50), "{p50}");
        assert_eq!(value(&scrape, "y"), None);
        let now = Histogram::read(&scrape, "x_seconds");
        assert_eq!(now.since(&now).quantile(0.5), None, "nothing was observed in between");
        assert_eq!(now.since(&Histogram::default()), now);
    }
}
