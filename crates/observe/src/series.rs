//! Creates Prometheus' types from names, labels and numbers.

use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};

/// Creates a family: all series of one name.
pub(super) fn family(
    name: &str,
    help: &str,
    kind: MetricType,
    metrics: Vec<Metric>,
) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(kind);
    family.set_metric(metrics);
    family
}

/// Creates a counter, or a gauge if `kind` is another type.
#[expect(clippy::cast_precision_loss, reason = "Prometheus' numbers are floats")]
pub(super) fn metric(labels: &[(&str, &str)], value: u64, kind: MetricType) -> Metric {
    if kind != MetricType::COUNTER {
        return gauge_metric(labels, value as f64);
    }
    let mut metric = Metric::from_label(pairs(labels));
    let mut counter = Counter::default();
    counter.set_value(value as f64);
    metric.set_counter(counter);
    metric
}

pub(super) fn gauge_metric(labels: &[(&str, &str)], value: f64) -> Metric {
    let mut metric = Metric::from_label(pairs(labels));
    let mut gauge = Gauge::default();
    gauge.set_value(value);
    metric.set_gauge(gauge);
    metric
}

fn pairs(labels: &[(&str, &str)]) -> Vec<LabelPair> {
    let pairs = labels.iter().map(|(name, text)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value((*text).to_owned());
        pair
    });
    pairs.collect()
}
