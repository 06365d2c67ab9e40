//! Defines the metrics of a member. Most are entries of [`TOTALS_METRICS`]: a name, a help text,
//! and a function that reads the value from [`ConsumerTotals`].
//!
//! Guarantee: all totals in a scrape belong to one moment. The consumer publishes its
//! [`ConsumerTotals`] as a whole, and a scrape reads the last published ones.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{self, Bucket, Metric, MetricFamily, MetricType};
use prometheus::{Histogram, HistogramOpts, IntCounterVec, IntGauge, Opts, Registry, TextEncoder};

use super::endpoints::{EndpointUse, EndpointsCollector, EndpointsSource};
use super::health::lock;
use super::logging;
use super::series::{family, gauge_metric, metric};
use crate::build;
use milepost_core::consumer::ConsumerTotals;
use milepost_core::consumer::broker_drops;
use milepost_core::consumer::nodes::Node;
use milepost_core::delivery::events::{Outcome, Report, StoreReason};
use milepost_core::delivery::sink::FailureKind;
use milepost_core::intake::{Ages, UnreadField};
use milepost_decode::reject::Reason;
use milepost_decode::{Field, Ignored};

const PREFIX: &str = "milepost";
/// Upper bounds of latency buckets, in seconds.
const SECONDS: [f64; 15] = [
    0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0,
];
/// Upper bounds of batch sizes, in rows.
const ROWS: [f64; 10] =
    [1.0, 10.0, 100.0, 500.0, 1_000.0, 2_500.0, 5_000.0, 10_000.0, 25_000.0, 50_000.0];

/// A metric whose value is in [`ConsumerTotals`].
struct TotalsMetric {
    name: &'static str,
    help: &'static str,
    value: Value,
}

enum Value {
    Counter(fn(&ConsumerTotals) -> u64),
    Gauge(fn(&ConsumerTotals) -> u64),
    /// A counter for each value of the label whose name comes first.
    Counters(&'static str, fn(&ConsumerTotals) -> Vec<(&'static str, u64)>),
    /// A gauge for each value of the label whose name comes first. The set of values changes at run
    /// time.
    Gauges(&'static str, fn(&ConsumerTotals) -> &[(Node, u64)]),
    /// A counter for each field of each source, with the labels `source` and `field`.
    Fields(fn(&ConsumerTotals) -> &[UnreadField]),
    /// A gauge in seconds.
    Seconds(fn(&ConsumerTotals) -> Duration),
    /// A histogram of ages in seconds.
    Histogram(fn(&ConsumerTotals) -> &Ages),
}

const fn counter(
    name: &'static str,
    help: &'static str,
    value: fn(&ConsumerTotals) -> u64,
) -> TotalsMetric {
    TotalsMetric { name, help, value: Value::Counter(value) }
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    value: fn(&ConsumerTotals) -> u64,
) -> TotalsMetric {
    TotalsMetric { name, help, value: Value::Gauge(value) }
}

const fn counters(
    name: &'static str,
    help: &'static str,
    label: &'static str,
    values: fn(&ConsumerTotals) -> Vec<(&'static str, u64)>,
) -> TotalsMetric {
    TotalsMetric { name, help, value: Value::Counters(label, values) }
}

static TOTALS_METRICS: &[TotalsMetric] = &[
    counter("messages_received_total", "MQTT messages taken from the broker.", |t| {
        t.sessions.messages_received
    }),
    counter(
        "messages_deferred_total",
        "MQTT messages left with the broker because the buffer is full or a clock is off. The \
         broker sends them again.",
        |t| t.sessions.messages_deferred,
    ),
    counter(
        "positions_received_total",
        "Points received, valid or invalid, plus one for each message that is rejected as a whole.",
        |t| t.intake.received,
    ),
    counter("positions_inserted_total", "Positions durable in ClickHouse.", |t| {
        t.delivery.inserted
    }),
    counters(
        "positions_rejected_total",
        "Points and messages rejected. Each is a row of the rejects table, or is counted in one.",
        "reason",
        |t| {
            Reason::ALL
                .iter()
                .map(|reason| (reason.name(), t.intake.rejected[*reason as usize]))
                .collect()
        },
    ),
    counter(
        "positions_shed_total",
        "Points of QoS 0 messages dropped because the buffer was full or the process was stopping.",
        |t| t.intake.shed,
    ),
    counter(
        "positions_erased_total",
        "Points dropped because their driver is erased (milepost erase).",
        ConsumerTotals::erased,
    ),
    counter(
        "positions_undated_total",
        "Positions without ts. They get the time of receipt, so a redelivery is a second row.",
        |t| t.intake.omissions.undated,
    ),
    TotalsMetric {
        name: "fields_unread_total",
        help: "Sampled messages with a field that milepost does not read. The sample: the first \
         message of each source, and one in 1,000. At most 20 names per source, then other.",
        value: Value::Fields(|t| &t.intake.unread),
    },
    counters(
        "positions_ignored_total",
        "Valid messages, or parts of one, without a fix. Counted as received as well.",
        "kind",
        |t| {
            Ignored::ALL
                .iter()
                .map(|kind| (kind.name(), t.intake.ignored[*kind as usize]))
                .collect()
        },
    ),
    counter(
        "positions_quarantined_total",
        "Positions in damaged or missing spool files, as counted in the files' names, and single \
         positions too large for ClickHouse or a proxy before it.",
        |t| t.delivery.quarantined,
    ),
    counter(
        "positions_dropped_total",
        "Single positions too large for ClickHouse or a proxy before it, dropped because there is \
         no spool.",
        |t| t.delivery.dropped,
    ),
    counter(
        "rejects_dropped_total",
        "Rejects too large for ClickHouse or a proxy before it, dropped because there is no \
         spool. They count as rejected, but are not in the table rejects.",
        |t| t.delivery.rejects_dropped,
    ),
    gauge(
        "positions_in_flight",
        "Positions in memory: received, and neither in ClickHouse nor in the spool.",
        ConsumerTotals::in_flight,
    ),
    gauge("positions_in_spool", "Positions in the spool, waiting for ClickHouse.", |t| {
        t.delivery.in_spool
    }),
    gauge(
        "positions_in_spool_at_start",
        "Positions that an earlier process left in the spool.",
        |t| t.delivery.spool_at_start,
    ),
    gauge("spool_bytes", "Size of the spool's files, quarantine included.", |t| {
        t.delivery.spool_bytes
    }),
    gauge("spool_batches", "Batches in the spool, waiting for ClickHouse.", |t| {
        t.delivery.spool_batches
    }),
    counter(
        "spool_quarantined_total",
        "Spool files that were damaged and moved to quarantine, or that are missing.",
        |t| t.delivery.files_quarantined,
    ),
    counter(
        "spool_refused_total",
        "Batches, and rows for quarantine, that the spool did not store, because it was full or \
         the disk failed.",
        |t| t.delivery.refused,
    ),
    counters(
        "fields_unknown_total",
        "Optional fields that became NULL: out of range, or of the wrong type. \
         field=\"attributes\": kept fields beyond 64 names or 4,096 bytes of one point, dropped.",
        "field",
        |t| {
            let omissions = &t.intake.omissions;
            let fields =
                Field::ALL.iter().map(|field| (field.name(), omissions.fields[*field as usize]));
            fields.chain([("attributes", omissions.attributes_cut)]).collect()
        },
    ),
    gauge("mqtt_connected", "Connections with a granted subscription.", |t| t.sessions.connected),
    TotalsMetric {
        name: "mqtt_node_sessions",
        help: "Sessions with a granted subscription on each of the broker's nodes.",
        value: Value::Gauges("node", |t| &t.nodes),
    },
    counter("mqtt_reconnects_total", "Connections after the first of each session.", |t| {
        t.sessions.reconnects
    }),
    counter(
        "mqtt_takeovers_total",
        "Connections that ended because another client connected with the same client id.",
        |t| t.sessions.takeovers,
    ),
    counter(
        "mqtt_sessions_lost_total",
        "Sessions that the broker had lost when milepost reconnected, and former ones that \
         expired or could not be emptied.",
        |t| t.sessions.sessions_lost + t.former_sessions.expired + t.former_sessions.unfinished,
    ),
    counter(
        "mqtt_sessions_lost_at_risk_total",
        "Lost sessions that may have held messages that are stored nowhere: messages left with \
         the broker, a full window, an expired session, a broker that was not restarted.",
        |t| {
            t.sessions.sessions_lost_at_risk
                + t.former_sessions.expired
                + t.former_sessions.unfinished
        },
    ),
    gauge(
        "mqtt_window",
        "Unacknowledged messages that the broker allows, over all connections, as far as it \
         reports a limit.",
        |t| t.sessions.window,
    ),
    gauge(
        "mqtt_window_full_seconds",
        "How long the fullest session's window has been full most of the time. Messages wait in \
         the broker for about as long.",
        |t| t.window_full_for.as_secs(),
    ),
    gauge("mqtt_unacked", "Messages received and not yet acknowledged.", |t| t.sessions.unacked),
    TotalsMetric {
        name: "batch_age_limit_seconds",
        help: "How long a batch waits for more rows: batch.age_max, or longer in a large group \
         (batch.members_age_max).",
        value: Value::Seconds(|t| t.batch_age_max),
    },
    counters("batches_spooled_total", "Batches stored in the spool, by reason.", "reason", |t| {
        StoreReason::ALL
            .iter()
            .map(|reason| (reason.name(), t.delivery.stored[*reason as usize]))
            .collect()
    }),
    counters(
        "broker_dropped_total",
        "Messages that the broker reports as dropped, over all its clients, since this process \
         subscribed to its counters (mqtt.broker_metrics). Every process counts the same drops.",
        "reason",
        |t| {
            let reasons = broker_drops::REASONS.iter().zip(t.broker_dropped);
            reasons.map(|((reason, _), dropped)| (*reason, dropped)).collect()
        },
    ),
    TotalsMetric {
        name: "fix_age_seconds",
        help: "Age of a message's newest fix at receipt: the device's delay and the broker's \
         queue. Messages with undated fixes do not count.",
        value: Value::Histogram(|t| &t.intake.ages),
    },
    counter("acks_total", "Messages acknowledged.", |t| t.sessions.acks),
    counter("log_lines_dropped_total", "Log lines dropped because nobody read stderr.", |_| {
        logging::dropped()
    }),
];

/// The metrics of a member, with the registry that a scrape reads.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    totals: Arc<Mutex<ConsumerTotals>>,
    endpoints: Arc<EndpointsSource>,
    batch_rows: Histogram,
    insert_duration: Histogram,
    insert_errors: IntCounterVec,
    ingest: Histogram,
    spool_bytes_max: IntGauge,
    in_flight_usual: IntGauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let registry =
            Registry::new_custom(Some(PREFIX.to_owned()), None).expect("the prefix is not empty");
        // Before the consumer names the nodes, export one series without a name.
        let mut totals =
            ConsumerTotals { nodes: vec![("".into(), 0)], ..ConsumerTotals::default() };
        // Before the consumer names its sources, export one series.
        let unread = UnreadField { source: "".into(), field: "other".into(), messages: 0 };
        totals.intake.unread = Arc::new(vec![unread]);
        let totals = Arc::new(Mutex::new(totals));
        registry
            .register(Box::new(TotalsCollector(Arc::clone(&totals))))
            .expect("names are unique");
        let endpoints = Arc::<EndpointsSource>::default();
        registry
            .register(Box::new(EndpointsCollector::new(Arc::clone(&endpoints))))
            .expect("names are unique");
        let histogram = |name: &str, help: &str, buckets: &[f64]| {
            let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
            registered(&registry, Histogram::with_opts(options))
        };
        let gauge = |name: &str, help: &str| registered(&registry, IntGauge::new(name, help));
        let insert_errors = Opts::new("insert_errors_total", "Failed INSERTs.");
        let metrics = Self {
            batch_rows: histogram(
                "batch_rows",
                "Rows of an inserted batch, positions and rejects.",
                &ROWS,
            ),
            insert_duration: histogram(
                "insert_duration_seconds",
                "Time of one successful INSERT, from the request to the answer.",
                &SECONDS,
            ),
            insert_errors: registered(&registry, IntCounterVec::new(insert_errors, &["kind"])),
            ingest: histogram(
                "ingest_seconds",
                "Time from the arrival of a batch's first row until the batch is durable.",
                &SECONDS,
            ),
            spool_bytes_max: gauge(
                "spool_bytes_max",
                "Configured limit of the spool (spool.bytes_max); 0 without a spool.",
            ),
            in_flight_usual: gauge(
                "positions_in_flight_usual",
                "Positions in flight when batches are full and ClickHouse keeps up: \
                 batch.rows_max for each insert in flight, and for the open batch.",
            ),
            totals,
            endpoints,
            registry,
        };
        // Create every series at the start, with the value 0: otherwise Prometheus' `rate` would
        // miss the first event of a series.
        for kind in [
            FailureKind::Transient,
            FailureKind::Ambiguous,
            FailureKind::Permanent,
            FailureKind::TooLarge,
        ] {
            drop(metrics.insert_errors.with_label_values(&[kind.name()]));
        }
        metrics
    }
}

impl Metrics {
    /// Replaces the totals that the next scrape reads.
    pub fn publish(&self, totals: ConsumerTotals) {
        *lock(&self.totals) = totals;
    }

    /// Sets the gauges of configured values. Alerts compare other metrics with these gauges.
    pub fn set_configured_limits(&self, spool_bytes_max: u64, in_flight_usual: usize) {
        self.spool_bytes_max.set(i64::try_from(spool_bytes_max).unwrap_or(i64::MAX));
        self.in_flight_usual.set(i64::try_from(in_flight_usual).unwrap_or(i64::MAX));
    }

    /// Sets the function that returns ClickHouse's endpoints at each scrape.
    pub fn watch_endpoints(&self, read: impl Fn() -> Vec<EndpointUse> + Send + 'static) {
        self.endpoints.set(Box::new(read));
    }

    /// Returns the last published totals.
    #[must_use]
    pub fn totals(&self) -> ConsumerTotals {
        lock(&self.totals).clone()
    }

    /// Returns whether any session has a granted subscription.
    #[must_use]
    pub fn is_subscribed(&self) -> bool {
        lock(&self.totals).sessions.connected > 0
    }

    /// Records the duration or the failure of an insert; ignores other outcomes.
    pub fn observe_report(&self, report: &Report) {
        match &report.outcome {
            Outcome::Inserted { took, .. } => self.insert_duration.observe(took.as_secs_f64()),
            Outcome::Failed { kind, .. } => {
                self.insert_errors.with_label_values(&[kind.name()]).inc()
            }
            Outcome::LeftOut { .. }
            | Outcome::UnknownColumns
            | Outcome::Stored(_)
            | Outcome::Refused(_)
            | Outcome::Loaded(_)
            | Outcome::Removed
            | Outcome::Quarantined
            | Outcome::RowQuarantined(_) => {}
        }
    }

    /// Records a durable batch. `seconds`: time since the arrival of its first row.
    pub fn observe_durable_batch(&self, rows: usize, seconds: f64) {
        self.batch_rows.observe(f64::from(u32::try_from(rows).unwrap_or(u32::MAX)));
        self.ingest.observe(seconds);
    }

    /// Returns the metrics in Prometheus' text format.
    ///
    /// # Panics
    /// If the encoder refuses the registry, which only a bug in a metric's name could cause.
    #[must_use]
    pub fn render(&self) -> String {
        text(&self.registry)
    }
}

/// Registers a metric.
///
/// # Panics
/// If the name is malformed or already used. Names are constants, so only a bug can cause this.
pub fn registered<M: Collector + Clone + 'static>(
    registry: &Registry,
    metric: prometheus::Result<M>,
) -> M {
    let metric = metric.expect("name and labels are well formed");
    registry.register(Box::new(metric.clone())).expect("names are unique");
    metric
}

/// Returns the registry's metrics in Prometheus' text format.
///
/// # Panics
/// If a metric's name is empty. Names are constants, so only a bug can cause this.
pub fn text(registry: &Registry) -> String {
    TextEncoder::new()
        .encode_to_string(&registry.gather())
        .expect("names and labels are well formed")
}

/// Collects [`TOTALS_METRICS`] and the build's version.
struct TotalsCollector(Arc<Mutex<ConsumerTotals>>);

impl Collector for TotalsCollector {
    /// Returns no descriptions: names are constants of this file, and a test checks that they are
    /// unique.
    fn desc(&self) -> Vec<&Desc> {
        Vec::new()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        use MetricType::{COUNTER, GAUGE, HISTOGRAM};
        let totals = lock(&self.0).clone();
        let build = [("version", build::VERSION), ("commit", build::COMMIT), ("date", build::DATE)];
        let build = family(
            "build_info",
            "Always 1; version, commit and date of the build are labels.",
            GAUGE,
            vec![metric(&build, 1, GAUGE)],
        );
        let metrics = TOTALS_METRICS.iter().map(|TotalsMetric { name, help, value }| {
            let (kind, metrics) = match value {
                Value::Counter(read) => (COUNTER, vec![metric(&[], read(&totals), COUNTER)]),
                Value::Seconds(read) => {
                    (GAUGE, vec![gauge_metric(&[], read(&totals).as_secs_f64())])
                }
                Value::Gauge(read) => (GAUGE, vec![metric(&[], read(&totals), GAUGE)]),
                Value::Counters(label, read) => {
                    let values = read(&totals).into_iter();
                    (
                        COUNTER,
                        values
                            .map(|(value, count)| metric(&[(label, value)], count, COUNTER))
                            .collect(),
                    )
                }
                Value::Gauges(label, read) => {
                    let values = read(&totals).iter();
                    (
                        GAUGE,
                        values
                            .map(|(value, count)| metric(&[(label, value)], *count, GAUGE))
                            .collect(),
                    )
                }
                Value::Fields(read) => {
                    let labelled = |UnreadField { source, field, messages }: &UnreadField| {
                        metric(&[("source", source), ("field", field)], *messages, COUNTER)
                    };
                    (COUNTER, read(&totals).iter().map(labelled).collect())
                }
                Value::Histogram(read) => (HISTOGRAM, vec![histogram_of(read(&totals))]),
            };
            family(name, help, kind, metrics)
        });
        [build].into_iter().chain(metrics).collect()
    }
}

/// Converts ages, which are in milliseconds, to a histogram in seconds.
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
