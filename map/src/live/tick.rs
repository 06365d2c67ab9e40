//! The server-sent event that every open page receives once a second.

use serde::Serialize;

use crate::fleet::filter::{State as DriverState, Summary};

/// State of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Ok,
    /// ClickHouse answers, but inserts have stopped.
    Stale,
    /// ClickHouse does not answer.
    Away,
}

/// The event that every page gets once a second.
#[derive(Debug, Clone, Serialize)]
pub struct Tick {
    /// The server's clock, in milliseconds since 1970.
    pub now: i64,
    /// Drivers in memory.
    pub drivers: usize,
    /// Drivers with a message in the last minute.
    pub seen_1m: usize,
    /// Drivers that moved, per second; a mean of ten seconds. `None`: the viewer sees only a part
    /// of the fleet.
    pub rate: Option<f64>,
    /// Arrival of the newest message at milepost, in milliseconds since 1970.
    pub newest: Option<i64>,
    pub state: State,
    /// Time at which the state began; for `stale`, the last insert. Milliseconds since 1970.
    pub since: i64,
    /// Increases when tiles may have changed. 0: nothing has been read yet.
    pub generation: u64,
    /// Number of drivers in each state.
    pub states: States,
    /// Increases when names or groups have changed.
    pub names: u64,
}

/// Number of drivers in each [`DriverState`].
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct States {
    pub moving: usize,
    pub standing: usize,
    pub silent: usize,
    pub unknown: usize,
    pub hidden: usize,
}

impl States {
    pub(super) fn new(
        [moving, standing, silent, unknown, hidden]: [usize; DriverState::ALL.len()],
    ) -> Self {
        Self { moving, standing, silent, unknown, hidden }
    }
}

impl Tick {
    /// Replaces the counts of the whole fleet with those of a part of it.
    pub(super) fn with_counts(self, part: &Summary) -> Self {
        Self {
            drivers: part.drivers,
            seen_1m: part.seen_1m,
            newest: part.newest_ms,
            states: States::new(part.states),
            ..self
        }
    }
}
