//! Axes: from a figure to its place, which ticks to write, and numbers as people read them.

/// How far apart figures stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    /// From zero.
    Linear,
    /// Equal ratios, equal distances.
    Log,
}

/// One axis of a plot.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    /// What it counts, and its unit.
    pub(super) label: String,
    pub(super) ticks: Vec<f64>,
    scale: Scale,
    from: f64,
    to: f64,
}

/// More ticks than this are not read.
const TICKS_MAX: usize = 7;

impl Axis {
    /// With round ticks around the values; `None`: there is nothing to show.
    pub(super) fn around(label: &str, scale: Scale, values: impl Iterator<Item = f64>) -> Option<Self> {
        let (least, most) = bounds(scale, values)?;
        let ticks = match scale {
            Scale::Linear => linear_ticks(most),
            Scale::Log => log_ticks(least, most),
        };
        let (from, to) = (*ticks.first()?, *ticks.last()?);
        Some(Self { label: label.to_owned(), ticks, scale, from, to })
    }

    /// From zero to the last value, without air after it: for time.
    pub(super) fn up_to_the_last(label: &str, values: impl Iterator<Item = f64>) -> Option<Self> {
        let (_, to) = bounds(Scale::Linear, values)?;
        let mut ticks = linear_ticks(to);
        ticks.retain(|tick| *tick <= to);
        Some(Self { label: label.to_owned(), ticks, scale: Scale::Linear, from: 0.0, to })
    }

    /// With a tick at each value, on a log scale: for what was set, not measured.
    pub(super) fn at(label: &str, values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut ticks: Vec<f64> = values.filter(|value| *value > 0.0).collect();
        ticks.sort_by(f64::total_cmp);
        ticks.dedup();
        let (mut from, mut to) = (*ticks.first()?, *ticks.last()?);
        if from >= to {
            (from, to) = (from / 2.0, to * 2.0);
        }
        Some(Self { label: label.to_owned(), ticks, scale: Scale::Log, from, to })
    }

    /// Where it stands between the axis' ends: 0 to 1.
    pub(super) fn share(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.from) / (self.to - self.from),
            Scale::Log => (value / self.from).ln() / (self.to / self.from).ln(),
        };
        share.clamp(0.0, 1.0)
    }
}

fn bounds(scale: Scale, values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    // A logarithm has no place for zero.
    let shown = values.filter(|value| value.is_finite() && (scale == Scale::Linear || *value > 0.0));
    shown.fold(None, |bounds, value| {
        let (least, most) = bounds.unwrap_or((value, value));
        Some((value.min(least), value.max(most)))
    })
}

fn linear_ticks(most: f64) -> Vec<f64> {
    let most = if most > 0.0 { most } else { 1.0 };
    let magnitude = 10_f64.powf((most / 5.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * magnitude);
    let step = steps.into_iter().find(|step| most / step <= 5.0).unwrap_or(steps[3]);
    let mut ticks = vec![0.0];
    for count in 1..=5 {
        if step * f64::from(count - 1) < most {
            ticks.push(step * f64::from(count));
        }
    }
    ticks
}

/// 1, 2, 5, 10, 20 … from below the least to above the most; the powers of ten alone where these are too many.
fn log_ticks(least: f64, most: f64) -> Vec<f64> {
    let within = |factors: &[f64]| -> Vec<f64> {
        let mut ladder = Vec::new();
        for power in -12..=12 {
            ladder.extend(factors.iter().map(|factor| factor * 10_f64.powi(power)));
        }
        let first = ladder.iter().rposition(|tick| *tick <= least * 1.000_001).unwrap_or(0);
        let last = ladder.iter().position(|tick| *tick >= most * 0.999_999).unwrap_or(ladder.len() - 1);
        ladder[first..=last.max(first + 1).min(ladder.len() - 1)].to_vec()
    };
    let fine = within(&[1.0, 2.0, 5.0]);
    if fine.len() <= TICKS_MAX { fine } else { within(&[1.0]) }
}

/// Three digits that say something: 0.26, 7.8, 164, 2.79M.
pub(super) fn short(value: f64) -> String {
    let (value, ending) = match value.abs() {
        size if size >= 999_500.0 => (value / 1e6, "M"),
        size if size >= 1_000.0 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 0.1 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    let text = if text == "-0" { "0" } else { text };
    format!("{text}{ending}")
}

/// A ratio; its sign stays on the same line.
pub(super) fn times(ratio: f64) -> String {
    format!("{}\u{a0}×", short(ratio))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_people_read_them() {
        let table = [(0.0, "0"), (0.26, "0.26"), (7.84, "7.84"), (163.8, "164"), (1_000.0, "1k")];
        let more = [(20_000.0, "20k"), (2_789_000.0, "2.79M"), (1e7, "10M"), (-0.0001, "0"), (0.05, "0.05")];
        for (value, wanted) in table.into_iter().chain(more) {
            assert_eq!(short(value), wanted);
        }
    }

    #[test]
    fn ticks_surround_the_values_and_are_few() {
        for (least, most) in [(0.7, 11.0), (0.5, 4_000.0), (3.0, 3.0), (1e-3, 1e7), (1.0, 1.0)] {
            for scale in [Scale::Linear, Scale::Log] {
                let axis = Axis::around("", scale, [least, most].into_iter()).unwrap();
                assert!(axis.ticks.len() <= 12, "{:?}", axis.ticks);
                assert!(axis.from <= least && axis.to >= most && axis.from < axis.to, "{axis:?}");
            }
        }
        assert!(Axis::around("", Scale::Linear, std::iter::empty()).is_none());
        assert!(Axis::around("", Scale::Log, [0.0].into_iter()).is_none());
        let one = Axis::at("", [5.0].into_iter()).unwrap();
        assert!((one.share(5.0) - 0.5).abs() < 1e-9);
    }
}
