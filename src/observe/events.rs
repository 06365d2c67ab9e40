//! `/metrics`, `/livez` and `/readyz` of `milepost events`.

use std::time::Instant;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use prometheus::{Gauge, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder};

use super::health::Health;
use super::http::{TEXT, answer, verdict};

/// What is counted, and what is wrong.
pub(crate) struct Status {
    registry: Registry,
    pub(crate) health: Health,
    /// By kind.
    pub(crate) events: IntCounterVec,
    /// By channel: taken by the broker, or by the webhook.
    pub(crate) delivered: IntCounterVec,
    /// By channel: refused for good, given up, or beyond the bound of what waits.
    pub(crate) dropped: IntCounterVec,
    /// By channel.
    pub(crate) waiting: IntGaugeVec,
    /// Seconds.
    pub(crate) behind: Gauge,
}

impl Status {
    pub(crate) fn new() -> Self {
        let registry = Registry::new();
        let counter = |name: &str, help: &str, label: &str| {
            let counter = IntCounterVec::new(Opts::new(name, help), &[label]).expect("a valid name");
            registry.register(Box::new(counter.clone())).expect("a name is used once");
            counter
        };
        let events = counter("milepost_events_total", "Events found", "kind");
        let delivered =
            counter("milepost_events_delivered_total", "Events that this channel has taken", "to");
        let dropped = counter(
            "milepost_events_dropped_total",
            "Events that this channel will not get: it refused them, or too many waited",
            "to",
        );
        let waiting = IntGaugeVec::new(
            Opts::new("milepost_events_waiting", "Events that wait for this channel"),
            &["to"],
        )
        .expect("a valid name");
        let behind = Gauge::new(
            "milepost_events_behind_seconds",
            "Duration of the last look at new fixes, and how far its replica was behind",
        )
        .expect("a valid name");
        registry.register(Box::new(waiting.clone())).expect("a name is used once");
        registry.register(Box::new(behind.clone())).expect("a name is used once");
        Self { registry, health: Health::default(), events, delivered, dropped, waiting, behind }
    }

    pub(crate) fn respond(&self, path: &str) -> Response<Full<Bytes>> {
        let (status, text) = match path {
            "/metrics" => {
                let text = TextEncoder::new().encode_to_string(&self.registry.gather());
                (StatusCode::OK, text.unwrap_or_default())
            }
            "/livez" => verdict("alive", self.health.dead(Instant::now())),
            "/readyz" => verdict("ready", self.health.unready()),
            _ => (StatusCode::NOT_FOUND, "there are /metrics, /livez and /readyz\n".to_owned()),
        };
        answer(status, text, TEXT)
    }
}
