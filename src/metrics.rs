//! What can be observed from outside: one struct, one function an observation.
//!
//! Guarantee: the numbers of one scrape belong together. Each lane publishes its [`Totals`], a consistent
//! snapshot, as a whole; a scrape adds the lanes' latest snapshots up.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus::{
    Encoder, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};

use crate::decode::{Field, Reason};
use crate::lane::Totals;

/// Upper bounds of latency buckets, in seconds.
const SECONDS: [f64; 15] =
    [0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Upper bounds of batch sizes, in rows.
const ROWS: [f64; 10] = [1.0, 10.0, 100.0, 500.0, 1_000.0, 2_500.0, 5_000.0, 10_000.0, 25_000.0, 50_000.0];

/// Where every position is: `received + spool_at_start = inserted + rejected + ignored + shed + abandoned +
/// quarantined + in_spool + in_flight`. One value is one consistent snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    /// The lanes' latest snapshots.
    pub lanes: Vec<Totals>,
    /// Positions in the spool when it was opened.
    pub spool_at_start: u64,
    /// Positions in the spool that no lane holds any more.
    pub in_spool: u64,
    /// Positions of damaged spool files.
    pub quarantined: u64,
    /// Positions inserted from the spool.
    pub replayed: u64,
    /// Batches inserted from the spool.
    pub batches_replayed: u64,
}

impl Ledger {
    /// A count, over all lanes.
    #[must_use]
    pub fn sum(&self, of: fn(&Totals) -> u64) -> u64 {
        self.lanes.iter().map(of).sum()
    }

    /// Durable in ClickHouse, straight or through the spool.
    #[must_use]
    pub fn inserted(&self) -> u64 {
        self.sum(|totals| totals.inserted) + self.replayed
    }

    /// Whether both sides of the equation are equal.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        let rejected = self.sum(|totals| totals.rejected.iter().sum());
        let lost_or_left = self.sum(|totals| totals.ignored + totals.shed + totals.abandoned);
        let here = self.quarantined + self.in_spool + self.sum(|totals| totals.in_flight);
        self.sum(|totals| totals.received) + self.spool_at_start
            == self.inserted() + rejected + lost_or_left + here
    }
}

/// Every metric milepost has.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    ledger: Mutex<Ledger>,
    messages_received: IntCounter,
    positions_received: IntCounter,
    positions_inserted: IntCounter,
    positions_rejected: IntCounterVec,
    positions_shed: IntCounter,
    positions_abandoned: IntCounter,
    positions_undated: IntCounter,
    positions_in_flight: IntGauge,
    positions_ignored: IntCounter,
    positions_in_spool: IntGauge,
    positions_in_spool_at_start: IntGauge,
    positions_quarantined: IntCounter,
    spool_bytes: IntGauge,
    spool_batches: IntGauge,
    spool_quarantined: IntCounter,
    spool_refused: IntCounter,
    fields_unknown: IntCounterVec,
    mqtt_connected: IntGauge,
    mqtt_reconnects: IntCounter,
    mqtt_sessions_lost: IntCounter,
    mqtt_window: IntGauge,
    mqtt_unacked: IntGauge,
    mqtt_stalls: IntCounter,
    acks: IntCounter,
    batches_inserted: IntCounter,
    batch_rows: Histogram,
    insert_duration: Histogram,
    insert_errors: IntCounterVec,
    ingest: Histogram,
}

impl Metrics {
    /// All at zero; `lanes` is how many will publish.
    #[must_use]
    pub fn new(lanes: usize) -> Self {
        let r = &Registry::new_custom(Some("milepost".to_owned()), None).expect("the prefix is not empty");
        let build_info = gauge_vec(r, "build_info", "Always 1; the version is a label.", "version");
        build_info.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let metrics = Self {
            ledger: Mutex::new(Ledger { lanes: vec![Totals::default(); lanes], ..Ledger::default() }),
            messages_received: counter(r, "messages_received_total", "MQTT messages taken from the broker."),
            positions_received: counter(
                r,
                "positions_received_total",
                "Points taken, good or broken, plus one for each message rejected whole.",
            ),
            positions_inserted: counter(r, "positions_inserted_total", "Positions durable in ClickHouse."),
            positions_rejected: counter_vec(
                r,
                "positions_rejected_total",
                "Points and messages refused; each is a row of the rejects table, or counted in one.",
                "reason",
            ),
            positions_shed: counter(
                r,
                "positions_shed_total",
                "Points of QoS 0 messages dropped on a full buffer or while shutting down.",
            ),
            positions_abandoned: counter(
                r,
                "positions_abandoned_total",
                "Unsent positions of a dead connection that the broker sends again.",
            ),
            positions_undated: counter(
                r,
                "positions_undated_total",
                "Positions without ts: they got the receive time, and a redelivery is a second row.",
            ),
            positions_in_flight: gauge(
                r,
                "positions_in_flight",
                "Positions received and neither in ClickHouse nor handed to the spool.",
            ),
            positions_ignored: counter(r, "positions_ignored_total", "Messages of kinds that carry no fix."),
            positions_in_spool: gauge(r, "positions_in_spool", "Positions on disk, to be replayed."),
            positions_in_spool_at_start: gauge(
                r,
                "positions_in_spool_at_start",
                "Positions that an earlier process had left in the spool.",
            ),
            positions_quarantined: counter(
                r,
                "positions_quarantined_total",
                "Positions of damaged spool files, by the files' names.",
            ),
            spool_bytes: gauge(r, "spool_bytes", "Size of the spool's files, damaged ones too."),
            spool_batches: gauge(r, "spool_batches", "Batches in the spool."),
            spool_quarantined: counter(r, "spool_quarantined_total", "Damaged spool files, set aside."),
            spool_refused: counter(
                r,
                "spool_refused_total",
                "Batches the spool did not take, for want of room or because the disk refused.",
            ),
            fields_unknown: counter_vec(
                r,
                "fields_unknown_total",
                "Optional fields that were out of range or of the wrong type, and became NULL.",
                "field",
            ),
            mqtt_connected: gauge(r, "mqtt_connected", "Connections with a granted subscription."),
            mqtt_reconnects: counter(r, "mqtt_reconnects_total", "Connections after the first."),
            mqtt_sessions_lost: counter(
                r,
                "mqtt_sessions_lost_total",
                "Reconnects at which the broker had not kept our session.",
            ),
            mqtt_window: gauge(
                r,
                "mqtt_window",
                "Messages the broker lets us have unacknowledged, as far as known, over all connections.",
            ),
            mqtt_unacked: gauge(r, "mqtt_unacked", "Messages taken and not yet acknowledged."),
            mqtt_stalls: counter(r, "mqtt_stalls_total", "Times a full buffer stopped the reading."),
            acks: counter(r, "acks_total", "Acknowledgements given."),
            batches_inserted: counter(r, "batches_inserted_total", "Batches durable in ClickHouse."),
            batch_rows: histogram(r, "batch_rows", "Rows of a batch, positions and rejects.", &ROWS),
            insert_duration: histogram(
                r,
                "insert_duration_seconds",
                "Time of one successful INSERT, as ClickHouse's client sees it (what reports call flush).",
                &SECONDS,
            ),
            insert_errors: counter_vec(r, "insert_errors_total", "Failed attempts to insert.", "kind"),
            ingest: histogram(
                r,
                "ingest_seconds",
                "Time from the arrival of a batch's first row until the batch is durable.",
                &SECONDS,
            ),
            registry: r.clone(),
        };
        // A series that has not happened yet is 0, not absent: a rate over it must not miss the first one.
        Reason::ALL
            .iter()
            .for_each(|reason| drop(metrics.positions_rejected.with_label_values(&[reason.name()])));
        Field::ALL.iter().for_each(|field| drop(metrics.fields_unknown.with_label_values(&[field.name()])));
        for kind in ["transient", "ambiguous", "permanent"] {
            drop(metrics.insert_errors.with_label_values(&[kind]));
        }
        metrics
    }

    /// A lane's counts and levels now, all of one moment.
    pub fn lane(&self, lane: usize, totals: Totals) {
        self.ledger_now().lanes[lane] = totals;
    }

    /// The same, at the moment at which a lane hands a batch with this many positions to the spool.
    pub fn handed_to_spool(&self, lane: usize, totals: Totals, positions: u64) {
        let mut ledger = self.ledger_now();
        ledger.lanes[lane] = totals;
        ledger.in_spool += positions;
    }

    /// The spool was opened, and holds this many positions.
    pub fn spool_opened(&self, positions: u64) {
        let mut ledger = self.ledger_now();
        ledger.spool_at_start = positions;
        ledger.in_spool = positions;
    }

    /// What the spool has on disk.
    pub fn spool_level(&self, batches: u64, bytes: u64) {
        level(&self.spool_batches, batches);
        level(&self.spool_bytes, bytes);
    }

    /// A batch from the spool is in ClickHouse.
    pub fn replayed(&self, positions: u64) {
        let mut ledger = self.ledger_now();
        ledger.in_spool -= positions;
        ledger.replayed += positions;
        ledger.batches_replayed += 1;
    }

    /// A spool file is damaged.
    pub fn spool_set_aside(&self, positions: u64) {
        let mut ledger = self.ledger_now();
        ledger.in_spool -= positions;
        ledger.quarantined += positions;
        self.spool_quarantined.inc();
    }

    /// The spool did not take a batch.
    pub fn spool_refused(&self) {
        self.spool_refused.inc();
    }

    /// One successful INSERT took this long.
    pub fn inserted(&self, took: Duration) {
        self.insert_duration.observe(took.as_secs_f64());
    }

    /// A batch of this many rows is durable, this long after its first row came.
    pub fn settled(&self, rows: usize, since_first_row: Duration) {
        self.batch_rows.observe(f64::from(u32::try_from(rows).unwrap_or(u32::MAX)));
        self.ingest.observe(since_first_row.as_secs_f64());
    }

    /// An attempt to insert failed.
    pub fn insert_failed(&self, kind: &str) {
        self.insert_errors.with_label_values(&[kind]).inc();
    }

    /// Where every position is now.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        self.ledger_now().clone()
    }

    fn ledger_now(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prometheus' text format.
    ///
    /// # Panics
    /// If the encoder refuses the registry, which only a bug in a metric's name could cause.
    #[must_use]
    pub fn render(&self) -> String {
        // Held until the text is there, so that two scrapes do not move the counters under each other.
        let ledger = self.ledger_now();
        let sum = |of: fn(&Totals) -> u64| ledger.sum(of);
        raise(&self.messages_received, sum(|t| t.messages_received));
        raise(&self.positions_received, sum(|t| t.received));
        raise(&self.positions_inserted, ledger.inserted());
        for reason in Reason::ALL {
            let count = ledger.lanes.iter().map(|t| t.rejected[reason as usize]).sum();
            raise(&self.positions_rejected.with_label_values(&[reason.name()]), count);
        }
        raise(&self.positions_shed, sum(|t| t.shed));
        raise(&self.positions_abandoned, sum(|t| t.abandoned));
        raise(&self.positions_undated, sum(|t| t.undated));
        raise(&self.positions_ignored, sum(|t| t.ignored));
        raise(&self.positions_quarantined, ledger.quarantined);
        level(&self.positions_in_flight, sum(|t| t.in_flight));
        level(&self.positions_in_spool, ledger.in_spool);
        level(&self.positions_in_spool_at_start, ledger.spool_at_start);
        for field in Field::ALL {
            let count = ledger.lanes.iter().map(|t| t.fields_unknown[field as usize]).sum();
            raise(&self.fields_unknown.with_label_values(&[field.name()]), count);
        }
        level(&self.mqtt_connected, sum(|t| u64::from(t.connected)));
        raise(&self.mqtt_reconnects, sum(|t| t.reconnects));
        raise(&self.mqtt_sessions_lost, sum(|t| t.sessions_lost));
        level(&self.mqtt_window, sum(|t| t.window));
        level(&self.mqtt_unacked, sum(|t| t.unacked));
        raise(&self.mqtt_stalls, sum(|t| t.stalls));
        raise(&self.acks, sum(|t| t.acks));
        raise(&self.batches_inserted, sum(|t| t.batches_inserted) + ledger.batches_replayed);

        let mut text = Vec::with_capacity(16 * 1024);
        TextEncoder::new()
            .encode(&self.registry.gather(), &mut text)
            .expect("names and labels are well formed");
        String::from_utf8(text).expect("names, labels and numbers are ASCII")
    }
}

/// Lanes keep the counts; a scrape brings the exported counter up to them.
fn raise(counter: &IntCounter, to: u64) {
    counter.inc_by(to.saturating_sub(counter.get()));
}

fn level(gauge: &IntGauge, to: u64) {
    gauge.set(i64::try_from(to).unwrap_or(i64::MAX));
}

/// Registers a metric; its name and help are constants of this file.
macro_rules! register {
    ($registry:expr, $metric:expr) => {{
        let metric = $metric.expect("names and labels are well formed");
        $registry.register(Box::new(metric.clone())).expect("no name comes twice");
        metric
    }};
}

fn counter(registry: &Registry, name: &str, help: &str) -> IntCounter {
    register!(registry, IntCounter::new(name, help))
}

fn gauge(registry: &Registry, name: &str, help: &str) -> IntGauge {
    register!(registry, IntGauge::new(name, help))
}

fn counter_vec(registry: &Registry, name: &str, help: &str, label: &str) -> IntCounterVec {
    register!(registry, IntCounterVec::new(Opts::new(name, help), &[label]))
}

fn gauge_vec(registry: &Registry, name: &str, help: &str, label: &str) -> IntGaugeVec {
    register!(registry, IntGaugeVec::new(Opts::new(name, help), &[label]))
}

fn histogram(registry: &Registry, name: &str, help: &str, buckets: &[f64]) -> Histogram {
    register!(registry, Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec())))
}
