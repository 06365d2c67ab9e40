//! `/metrics`. The names are a contract: docs/map.md.

use prometheus::{
    Encoder as _, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
    TextEncoder,
};

/// Upper bounds of latency buckets, in seconds.
const SECONDS: [f64; 13] =
    [0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Everything that is counted.
pub struct Metrics {
    registry: Registry,
    pub requests: IntCounterVec,
    pub viewers: IntGauge,
    pub drivers: IntGauge,
    pub memory_bytes: IntGauge,
    pub reads: Histogram,
    pub rows_read: IntCounter,
    pub read_errors: IntCounter,
    pub tiles_cut: IntCounter,
    pub questions: Histogram,
    pub logins_refused: IntCounter,
}

impl Default for Metrics {
    fn default() -> Self {
        let registry = Registry::new_custom(Some("milepost_map".to_owned()), None)
            .expect("the prefix is a name");
        let name = |name: &str, help: &str| Opts::new(name, help);
        let seconds = |name: &str, help: &str| {
            Histogram::with_opts(HistogramOpts::new(name, help).buckets(SECONDS.to_vec()))
                .expect("a name")
        };
        let counter = |name: &str, help: &str| IntCounter::new(name, help).expect("a name");
        let gauge = |name: &str, help: &str| IntGauge::new(name, help).expect("a name");
        let requests = name("http_requests_total", "Answers, by route and status");
        let this = Self {
            registry,
            requests: IntCounterVec::new(requests, &["route", "status"]).expect("names"),
            viewers: gauge("viewers", "Pages that are open: streams of ticks"),
            drivers: gauge("drivers", "Drivers held in memory"),
            memory_bytes: gauge("fleet_bytes", "Memory that they take"),
            reads: seconds(
                "read_seconds",
                "The question of every second: what has changed, or everything",
            ),
            rows_read: counter("rows_read_total", "Rows of last_positions_state that it read"),
            read_errors: counter(
                "read_errors_total",
                "Of these questions, those without an answer",
            ),
            tiles_cut: counter("tiles_cut_total", "Tiles made; viewers share them for a second"),
            questions: seconds(
                "question_seconds",
                "Questions of viewers to ClickHouse: tracks and cells of the past",
            ),
            logins_refused: counter("logins_refused_total", "Requests with a wrong login"),
        };
        let all: [Box<dyn prometheus::core::Collector>; 10] = [
            Box::new(this.requests.clone()),
            Box::new(this.viewers.clone()),
            Box::new(this.drivers.clone()),
            Box::new(this.memory_bytes.clone()),
            Box::new(this.reads.clone()),
            Box::new(this.rows_read.clone()),
            Box::new(this.read_errors.clone()),
            Box::new(this.tiles_cut.clone()),
            Box::new(this.questions.clone()),
            Box::new(this.logins_refused.clone()),
        ];
        for one in all {
            this.registry.register(one).expect("each name once");
        }
        this
    }
}

impl Metrics {
    /// In Prometheus' text format.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = Vec::new();
        let encoded = TextEncoder::new().encode(&self.registry.gather(), &mut text);
        encoded.expect("memory takes everything");
        String::from_utf8_lossy(&text).into_owned()
    }
}
