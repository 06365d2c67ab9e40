//! Metrics of ClickHouse's endpoints: which endpoint is in use, and how often milepost left each
//! endpoint, by reason.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use prometheus::core::{Collector, Desc};
use prometheus::proto::{MetricFamily, MetricType};

use super::health::lock;
use super::series::{family, metric};

const IN_USE: &str = "clickhouse_endpoint_in_use";
const IN_USE_HELP: &str = "1 for the endpoint of clickhouse.url that is in use, 0 for the others.";

/// One endpoint of `clickhouse.url`.
#[derive(Debug, Clone)]
pub struct EndpointUse {
    pub url: String,
    pub in_use: bool,
    /// Number of failovers from this endpoint to another one, by reason.
    pub failovers: Vec<(&'static str, u64)>,
}

/// A function that returns the endpoints as they are now.
type ReadEndpoints = Box<dyn Fn() -> Vec<EndpointUse> + Send>;

/// Reads the endpoints at each scrape.
#[derive(Default)]
pub(super) struct EndpointsSource(OnceLock<Mutex<ReadEndpoints>>);

impl fmt::Debug for EndpointsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EndpointsSource")
    }
}

impl EndpointsSource {
    /// Sets the function that returns the endpoints. Later calls have no effect.
    pub(super) fn set(&self, read: ReadEndpoints) {
        let _ = self.0.set(Mutex::new(read));
    }

    fn collect(&self) -> Vec<MetricFamily> {
        // Before the ClickHouse client exists, export one series with an empty endpoint.
        let placeholder =
            || EndpointUse { url: String::new(), in_use: false, failovers: Vec::new() };
        let endpoints = self.0.get().map_or_else(|| vec![placeholder()], |read| (*lock(read))());
        let in_use = endpoints.iter().map(|EndpointUse { url, in_use, .. }| {
            metric(&[("endpoint", url)], u64::from(*in_use), MetricType::GAUGE)
        });
        let failovers = endpoints.iter().flat_map(|EndpointUse { url, failovers, .. }| {
            failovers.iter().map(move |(reason, count)| {
                let labels = [("endpoint", url.as_str()), ("reason", reason)];
                metric(&labels, *count, MetricType::COUNTER)
            })
        });
        let in_use = family(IN_USE, IN_USE_HELP, MetricType::GAUGE, in_use.collect());
        let failovers = family(
            "clickhouse_endpoint_left_total",
            "Number of times that milepost left an endpoint for the next one, by reason.",
            MetricType::COUNTER,
            failovers.collect(),
        );
        // Prometheus' text encoder refuses a family without a series.
        [in_use, failovers].into_iter().filter(|family| !family.get_metric().is_empty()).collect()
    }
}

/// The collector that the registry holds.
pub(super) struct EndpointsCollector {
    endpoints: Arc<EndpointsSource>,
    /// Identifies this collector in the registry.
    desc: Desc,
}

impl EndpointsCollector {
    /// Creates the collector.
    ///
    /// # Panics
    /// If the registry refuses the name, which is a constant.
    pub(super) fn new(endpoints: Arc<EndpointsSource>) -> Self {
        let labels = vec!["endpoint".to_owned()];
        let desc = Desc::new(IN_USE.to_owned(), IN_USE_HELP.to_owned(), labels, HashMap::new());
        Self { endpoints, desc: desc.expect("the name is well formed") }
    }
}

impl Collector for EndpointsCollector {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.endpoints.collect()
    }
}
