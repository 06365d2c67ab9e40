//! `/metrics`. The names are a contract: docs/map.md.

use prometheus::{
    Encoder as _, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
    TextEncoder,
};

/// Upper bounds of latency buckets, in seconds.
const SECONDS: [f64; 13] =
    [0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The map's metrics.
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
    pub viewer_queries: Histogram,
    pub logins_refused: IntCounter,
}

impl Default for Metrics {
    fn default() -> Self {
        let registry =
            Registry::new_custom(Some("milepost_map".to_owned()), None).expect("a valid prefix");
        let seconds = |name: &str, help: &str| {
            Histogram::with_opts(HistogramOpts::new(name, help).buckets(SECONDS.to_vec()))
                .expect("a valid name")
        };
        let counter = |name: &str, help: &str| IntCounter::new(name, help).expect("a valid name");
        let gauge = |name: &str, help: &str| IntGauge::new(name, help).expect("a valid name");
        let requests = Opts::new("http_requests_total", "Responses, by route and status");
        let this = Self {
            registry,
            requests: IntCounterVec::new(requests, &["route", "status"]).expect("valid names"),
            viewers: gauge("viewers", "Open pages: streams of ticks"),
            drivers: gauge("drivers", "Drivers in memory"),
            memory_bytes: gauge("fleet_bytes", "Memory used by the drivers, in bytes"),
            reads: seconds(
                "read_seconds",
                "Duration of the query that runs every second, incremental or full",
            ),
            rows_read: counter(
                "rows_read_total",
                "Rows of last_positions_state that the query of read_seconds read",
            ),
            read_errors: counter(
                "read_errors_total",
                "Failures of the query that runs every second",
            ),
            tiles_cut: counter("tiles_cut_total", "Tiles cut; viewers share them for a second"),
            viewer_queries: seconds(
                "question_seconds",
                "Duration of reads for requests: tracks, cells, lists, attributes, …",
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
            Box::new(this.viewer_queries.clone()),
            Box::new(this.logins_refused.clone()),
        ];
        for collector in all {
            this.registry.register(collector).expect("names are unique");
        }
        this
    }
}

impl Metrics {
    /// Returns all metrics in Prometheus' text format.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = Vec::new();
        let encoded = TextEncoder::new().encode(&self.registry.gather(), &mut text);
        encoded.expect("writing to memory does not fail");
        String::from_utf8_lossy(&text).into_owned()
    }
}
