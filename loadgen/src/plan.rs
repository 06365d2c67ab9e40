//! The plan of a fleet, and its progress.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use crate::format::Format;

/// The load of a fleet: its broker, its messages and their rate.
#[derive(Clone)]
pub struct Plan {
    /// `host:port`
    pub broker: String,
    /// User name and password, if the broker needs a login.
    pub login: Option<(String, String)>,
    /// Format of the payloads.
    pub format: Format,
    /// Name of the run; part of the driver ids and of the client ids.
    pub run: String,
    pub drivers: u32,
    /// Number of connections that publish for the drivers.
    pub connections: u32,
    /// QoS of the messages: 0 or 1.
    pub qos: u8,
    /// Messages a second, over all connections.
    pub rate: f64,
    /// Messages to send, over all connections.
    pub messages: u64,
    /// Seed of the tracks: the same seed gives the same tracks.
    pub seed: u64,
    /// Share of messages that are arrays of points buffered offline.
    pub burst_share: f64,
    /// Number of points in an array that was buffered offline.
    pub burst_points: u32,
    /// Share of messages held back, and sent after newer ones.
    pub late_share: f64,
    /// Share of messages sent twice.
    pub duplicate_share: f64,
    /// How long to wait for the last acknowledgements.
    pub drain: Duration,
}

/// Counts of a running fleet, and flags with which another thread controls it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Number of messages written to the connections' buffers.
    pub sent: AtomicU64,
    /// Number of messages that the broker has acknowledged.
    pub acked: AtomicU64,
    /// While set, the fleet continues beyond its plan, up to five times the planned messages. This
    /// is for tests that need load for a time that is not known in advance.
    pub endless: AtomicBool,
    /// Ends the fleet at once. Messages that were generated but not acknowledged count as
    /// unacknowledged.
    pub stopped: AtomicBool,
    /// Ends the plan early: the fleet generates no further messages, but still sends those that it
    /// has generated.
    pub ends_early: AtomicBool,
    /// While set, the fleet generates no messages, but still sends those that it has generated.
    pub paused: AtomicBool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            broker: "127.0.0.1:1883".to_owned(),
            login: None,
            format: Format::Milepost,
            run: String::new(),
            drivers: 1,
            connections: 1,
            qos: 1,
            rate: 1.0,
            messages: 0,
            seed: 1,
            burst_share: 0.0,
            burst_points: 20,
            late_share: 0.0,
            duplicate_share: 0.0,
            drain: Duration::from_secs(30),
        }
    }
}
