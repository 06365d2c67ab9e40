//! `/metrics`, `/livez` and `/readyz` of `milepost events`.

use std::time::Instant;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use prometheus::{Gauge, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use milepost_observe::health::Health;
use milepost_observe::http::{TEXT, answer, verdict};
use milepost_observe::metrics::{registered, text};

/// Metrics and health of `milepost events`.
pub(crate) struct Status {
    registry: Registry,
    pub(crate) health: Health,
    /// Events found, by kind.
    pub(crate) events: IntCounterVec,
    /// Events that the broker or the webhook accepted, by channel.
    pub(crate) delivered: IntCounterVec,
    /// Events that were refused for good, given up, or dropped by a full queue, by channel.
    pub(crate) dropped: IntCounterVec,
    /// Waiting events, by channel.
    pub(crate) waiting: IntGaugeVec,
    /// Duration of the last poll plus the lag of its replica, in seconds.
    pub(crate) behind: Gauge,
    /// Missing sequence numbers of all drivers.
    pub(crate) missing: IntGauge,
}

impl Status {
    pub(crate) fn new() -> Self {
        let registry = Registry::new();
        let counter = |name: &str, help: &str, label: &str| {
            registered(&registry, IntCounterVec::new(Opts::new(name, help), &[label]))
        };
        let waiting = Opts::new("milepost_events_waiting", "Events that wait for this channel");
        Self {
            events: counter("milepost_events_total", "Events found", "kind"),
            delivered: counter(
                "milepost_events_delivered_total",
                "Events that this channel accepted",
                "to",
            ),
            dropped: counter(
                "milepost_events_dropped_total",
                "Events that this channel will not get: it refused them, or too many were waiting",
                "to",
            ),
            waiting: registered(&registry, IntGaugeVec::new(waiting, &["to"])),
            behind: registered(
                &registry,
                Gauge::new(
                    "milepost_events_behind_seconds",
                    "Duration of the last poll for new fixes, plus the lag of the replica that \
                     answered it",
                ),
            ),
            missing: registered(
                &registry,
                IntGauge::new(
                    "milepost_positions_missing",
                    "Numbers between the first and the highest seq of each driver that were never \
                     received; late fixes reduce it",
                ),
            ),
            registry,
            health: Health::default(),
        }
    }

    /// Answers `/metrics`, `/livez` and `/readyz`; 404 for other paths.
    pub(crate) fn respond(&self, path: &str) -> Response<Full<Bytes>> {
        let (status, text) = match path {
            "/metrics" => (StatusCode::OK, text(&self.registry)),
            "/livez" => verdict("alive", self.health.dead(Instant::now())),
            "/readyz" => verdict("ready", self.health.unready()),
            _ => (
                StatusCode::NOT_FOUND,
                "not found: there are /metrics, /livez and /readyz\n".to_owned(),
            ),
        };
        answer(status, text, TEXT)
    }
}
