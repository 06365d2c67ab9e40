//! What can be counted from outside. A metric is one entry of [`COUNTED`] or one histogram: its name, its help, and where
//! its value comes from.
//!
//! Guarantee: the numbers of one scrape belong together. The consumer publishes its [`Totals`], a consistent snapshot, as
//! a whole, and a scrape reads one of them.

use std::sync::{Arc, Mutex};

use prometheus::core::{Collector, Desc};
use prometheus::proto::{self, Bucket, Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{Encoder, Histogram, HistogramOpts, IntCounterVec, IntGauge, Opts, Registry, TextEncoder};

use super::health::lock;
use crate::consumer::Totals;
use crate::consumer::broker_drops::DropReason;
use crate::delivery::events::{Outcome, Report};
use crate::delivery::sink::FailureKind;
use crate::intake::Ages;
use crate::pipeline::decode::{Field, Ignored};
use crate::pipeline::reject::Reason;

const PREFIX: &str = "milepost";
/// Upper bounds of latency buckets, in seconds.
const SECONDS: [f64; 15] =
    [0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Upper bounds of batch sizes, in rows.
const ROWS: [f64; 10] = [1.0, 10.0, 100.0, 500.0, 1_000.0, 2_500.0, 5_000.0, 10_000.0, 25_000.0, 50_000.0];

/// A metric whose value is in [`Totals`].
struct Counted {
    name: &'static str,
    help: &'static str,
    value: Value,
}

enum Value {
    Counter(fn(&Totals) -> u64),
    Gauge(fn(&Totals) -> u64),
    /// A label's name, and a value for each of its values.
    Counters(&'static str, fn(&Totals) -> Vec<(&'static str, u64)>),
    /// In seconds.
    Histogram(fn(&Totals) -> &Ages),
}

const fn counter(name: &'static str, help: &'static str, value: fn(&Totals) -> u64) -> Counted {
    Counted { name, help, value: Value::Counter(value) }
}

const fn gauge(name: &'static str, help: &'static str, value: fn(&Totals) -> u64) -> Counted {
    Counted { name, help, value: Value::Gauge(value) }
}

const fn counters(
    name: &'static str,
    help: &'static str,
    label: &'static str,
    values: fn(&Totals) -> Vec<(&'static str, u64)>,
) -> Counted {
    Counted { name, help, value: Value::Counters(label, values) }
}

static COUNTED: &[Counted] = &[
    counter("messages_received_total", "MQTT messages taken from the broker.", |t| {
        t.sessions.messages_received
    }),
    counter(
        "messages_redelivered_total",
        "Messages among these that the broker had sent before: their undated positions and rejects are there twice.",
        |t| t.sessions.messages_redelivered,
    ),
    counter(
        "messages_let_go_total",
        "MQTT messages left with the broker for want of room; it sends them again.",
        |t| t.sessions.messages_let_go,
    ),
    counter(
        "positions_received_total",
        "Points taken, good or broken, plus one for each message rejected whole.",
        |t| t.intake.received,
    ),
    counter("positions_inserted_total", "Positions durable in ClickHouse.", |t| t.delivery.inserted),
    counters(
        "positions_rejected_total",
        "Points and messages refused; each is a row of the rejects table, or counted in one.",
        "reason",
        |t| Reason::ALL.iter().map(|reason| (reason.name(), t.intake.rejected[*reason as usize])).collect(),
    ),
    counter(
        "positions_shed_total",
        "Points of QoS 0 messages dropped on a full buffer or while shutting down.",
        |t| t.intake.shed,
    ),
    counter(
        "positions_erased_total",
        "Points of drivers whose data is to be gone (milepost erase), dropped on their way.",
        Totals::erased,
    ),
    counter(
        "positions_abandoned_total",
        "Always 0: every position that was taken is inserted. Goes with the next major version.",
        |_| 0,
    ),
    counter(
        "positions_undated_total",
        "Positions without ts: they got the receive time, and a redelivery is a second row.",
        |t| t.intake.lacking.undated,
    ),
    counters(
        "positions_ignored_total",
        "Messages, or parts of one, that are in order and hold no fix; counted as received, too.",
        "kind",
        |t| Ignored::ALL.iter().map(|kind| (kind.name(), t.intake.ignored[*kind as usize])).collect(),
    ),
    counter(
        "attributes_cut_total",
        "Fields that a source keeps, and that were more than a point may keep: 64 names, 4,096 bytes.",
        |t| t.intake.lacking.attributes_cut,
    ),
    counter(
        "positions_quarantined_total",
        "Positions of damaged spool files, by the files' names, and single ones too large for something on the way to ClickHouse.",
        |t| t.delivery.quarantined,
    ),
    gauge(
        "positions_in_flight",
        "Positions received and neither in ClickHouse nor handed to the spool.",
        Totals::in_flight,
    ),
    gauge("positions_in_spool", "Positions on disk, to be replayed.", |t| t.delivery.in_spool),
    gauge("positions_in_spool_at_start", "Positions that an earlier process had left in the spool.", |t| {
        t.delivery.spool_at_start
    }),
    gauge("spool_bytes", "Size of the spool's files, those in quarantine too.", |t| t.delivery.spool_bytes),
    gauge("spool_batches", "Batches in the spool, to be replayed.", |t| t.delivery.spool_batches),
    counter("spool_quarantined_total", "Damaged spool files, put into quarantine.", |t| {
        t.delivery.files_quarantined
    }),
    counter(
        "spool_refused_total",
        "Batches the spool did not take, for want of room or because the disk refused.",
        |t| t.delivery.refused,
    ),
    counters(
        "fields_unknown_total",
        "Optional fields that were out of range or of the wrong type, and became NULL.",
        "field",
        |t| Field::ALL.iter().map(|field| (field.name(), t.intake.lacking.fields[*field as usize])).collect(),
    ),
    gauge("mqtt_connected", "Connections with a granted subscription.", |t| t.sessions.connected),
    counter("mqtt_reconnects_total", "Connections after the first of each session.", |t| {
        t.sessions.reconnects
    }),
    counter("mqtt_sessions_lost_total", "Sessions that the broker did not keep.", |t| {
        t.sessions.sessions_lost
    }),
    gauge(
        "mqtt_window",
        "Messages the broker lets us have unacknowledged, as far as known, over all connections.",
        |t| t.sessions.window,
    ),
    gauge("mqtt_unacked", "Messages taken and not yet acknowledged.", |t| t.sessions.unacked),
    counter(
        "mqtt_stalls_total",
        "Times a full buffer, or a clock that is off, made us leave messages with the broker.",
        |t| t.sessions.stalls + t.held_back,
    ),
    counter(
        "mqtt_foreign_total",
        "Messages on topics that no source matches: of a former subscription (mqtt.unsubscribe).",
        |t| t.intake.foreign_messages,
    ),
    counters(
        "broker_dropped_total",
        "Messages the broker says it dropped, of all its clients, since we listen (mqtt.broker_metrics). Every process counts the same.",
        "reason",
        |t| {
            DropReason::ALL.iter().map(|reason| (reason.name(), t.broker_dropped[*reason as usize])).collect()
        },
    ),
    Counted {
        name: "fix_age_seconds",
        help: "Time from a message's newest fix until the message came here: the device's delay and the broker's queue. Not of messages with undated fixes.",
        value: Value::Histogram(|t| &t.intake.ages),
    },
    counter("acks_total", "Acknowledgements given.", |t| t.sessions.acks),
    counter("batches_inserted_total", "Batches durable in ClickHouse.", |t| t.delivery.batches_inserted),
];

/// Every metric milepost has.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    totals: Arc<Mutex<Totals>>,
    batch_rows: Histogram,
    insert_duration: Histogram,
    insert_errors: IntCounterVec,
    ingest: Histogram,
    spool_bytes_max: IntGauge,
    in_flight_usual: IntGauge,
}

impl Default for Metrics {
    /// All at zero.
    fn default() -> Self {
        let registry = Registry::new_custom(Some(PREFIX.to_owned()), None).expect("the prefix is not empty");
        let totals = Arc::<Mutex<Totals>>::default();
        let insert_errors = Opts::new("insert_errors_total", "Failed attempts to insert.");
        let insert_errors =
            IntCounterVec::new(insert_errors, &["kind"]).expect("name and label are well formed");
        let metrics = Self {
            batch_rows: histogram("batch_rows", "Rows of a batch, positions and rejects.", &ROWS),
            insert_duration: histogram(
                "insert_duration_seconds",
                "Time of one successful INSERT, as ClickHouse's client sees it (what reports call flush).",
                &SECONDS,
            ),
            insert_errors,
            ingest: histogram(
                "ingest_seconds",
                "Time from the arrival of a batch's first row until the batch is durable.",
                &SECONDS,
            ),
            spool_bytes_max: IntGauge::new("spool_bytes_max", "spool.bytes_max, or 0 without a spool.")
                .expect("the name is well formed"),
            in_flight_usual: IntGauge::new(
                "positions_in_flight_usual",
                "(clickhouse.inserts_in_flight + 1) * batch.rows_max: with full batches, as many are in flight where ClickHouse keeps up.",
            )
            .expect("the name is well formed"),
            totals,
            registry,
        };
        let collectors: [Box<dyn Collector>; 7] = [
            Box::new(FromTotals(Arc::clone(&metrics.totals))),
            Box::new(metrics.batch_rows.clone()),
            Box::new(metrics.insert_duration.clone()),
            Box::new(metrics.insert_errors.clone()),
            Box::new(metrics.ingest.clone()),
            Box::new(metrics.spool_bytes_max.clone()),
            Box::new(metrics.in_flight_usual.clone()),
        ];
        for collector in collectors {
            metrics.registry.register(collector).expect("no name comes twice");
        }
        // A series that has not happened yet is 0, not absent: a rate over it must not miss the first one.
        for kind in
            [FailureKind::Transient, FailureKind::Ambiguous, FailureKind::Permanent, FailureKind::TooLarge]
        {
            drop(metrics.insert_errors.with_label_values(&[kind.name()]));
        }
        metrics
    }
}

impl Metrics {
    /// The consumer's counts and levels now, all of one moment.
    pub(crate) fn publish(&self, totals: Totals) {
        *lock(&self.totals) = totals;
    }

    /// What is configured, for alerts that compare with it.
    pub(crate) fn configured(&self, spool_bytes_max: u64, in_flight_usual: usize) {
        self.spool_bytes_max.set(i64::try_from(spool_bytes_max).unwrap_or(i64::MAX));
        self.in_flight_usual.set(i64::try_from(in_flight_usual).unwrap_or(i64::MAX));
    }

    /// As they were last published.
    #[must_use]
    pub(crate) fn totals(&self) -> Totals {
        lock(&self.totals).clone()
    }

    /// At least one connection had a granted subscription then.
    #[must_use]
    pub(crate) fn is_subscribed(&self) -> bool {
        lock(&self.totals).sessions.connected > 0
    }

    /// What became of something that delivery wanted.
    pub(crate) fn reported(&self, report: &Report) {
        match &report.outcome {
            Outcome::Inserted { took, .. } => self.insert_duration.observe(took.as_secs_f64()),
            Outcome::Failed { kind, .. } => self.insert_errors.with_label_values(&[kind.name()]).inc(),
            Outcome::Unsplittable
            | Outcome::Stored(_)
            | Outcome::Refused(_)
            | Outcome::Loaded(_)
            | Outcome::Removed
            | Outcome::Quarantined
            | Outcome::RowQuarantined => {}
        }
    }

    /// A batch of this many rows is durable, so many seconds after its first row came.
    pub(crate) fn durable(&self, rows: usize, seconds: f64) {
        self.batch_rows.observe(f64::from(u32::try_from(rows).unwrap_or(u32::MAX)));
        self.ingest.observe(seconds);
    }

    /// Prometheus' text format.
    ///
    /// # Panics
    /// If the encoder refuses the registry, which only a bug in a metric's name could cause.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = Vec::with_capacity(16 * 1024);
        TextEncoder::new()
            .encode(&self.registry.gather(), &mut text)
            .expect("names and labels are well formed");
        String::from_utf8(text).expect("names, labels and numbers are ASCII")
    }
}

fn histogram(name: &str, help: &str, buckets: &[f64]) -> Histogram {
    let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
    Histogram::with_opts(options).expect("the name is well formed")
}

/// All of [`COUNTED`], and the build's version.
struct FromTotals(Arc<Mutex<Totals>>);

impl Collector for FromTotals {
    /// None: names are this file's constants, and a test sees that none comes twice.
    fn desc(&self) -> Vec<&Desc> {
        Vec::new()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let totals = lock(&self.0).clone();
        let build = family(
            "build_info",
            "Always 1; the version is a label.",
            MetricType::GAUGE,
            vec![metric(Some(("version", env!("CARGO_PKG_VERSION"))), 1, MetricType::GAUGE)],
        );
        let counted = COUNTED.iter().map(|Counted { name, help, value }| match value {
            Value::Counter(of) => {
                family(name, help, MetricType::COUNTER, vec![metric(None, of(&totals), MetricType::COUNTER)])
            }
            Value::Gauge(of) => {
                family(name, help, MetricType::GAUGE, vec![metric(None, of(&totals), MetricType::GAUGE)])
            }
            Value::Counters(label, of) => {
                let values = of(&totals).into_iter();
                let metrics =
                    values.map(|(value, count)| metric(Some((label, value)), count, MetricType::COUNTER));
                family(name, help, MetricType::COUNTER, metrics.collect())
            }
            Value::Histogram(of) => {
                family(name, help, MetricType::HISTOGRAM, vec![histogram_of(of(&totals))])
            }
        });
        [build].into_iter().chain(counted).collect()
    }
}

fn family(name: &str, help: &str, kind: MetricType, metrics: Vec<Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(kind);
    family.set_metric(metrics);
    family
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus' numbers are floats")]
fn metric(label: Option<(&str, &str)>, value: u64, kind: MetricType) -> Metric {
    let mut metric = Metric::default();
    if let Some((name, text)) = label {
        let mut pair = LabelPair::default();
        pair.set_name(name.to_owned());
        pair.set_value(text.to_owned());
        metric.set_label(vec![pair]);
    }
    if kind == MetricType::COUNTER {
        let mut counter = Counter::default();
        counter.set_value(value as f64);
        metric.set_counter(counter);
    } else {
        let mut gauge = Gauge::default();
        gauge.set_value(value as f64);
        metric.set_gauge(gauge);
    }
    metric
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus' numbers are floats")]
fn histogram_of(ages: &Ages) -> Metric {
    let seconds = |ms: i64| ms as f64 / 1e3;
    let buckets = ages.cumulative().map(|(bound_ms, count)| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(seconds(bound_ms));
        bucket.set_cumulative_count(count);
        bucket
    });
    let mut histogram = proto::Histogram::default();
    histogram.set_bucket(buckets.collect());
    histogram.set_sample_count(ages.count());
    histogram.set_sample_sum(ages.sum_ms() as f64 / 1e3);
    let mut metric = Metric::default();
    metric.set_histogram(histogram);
    metric
}
