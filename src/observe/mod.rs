//! Metrics, probes and logs.

pub(crate) mod events;
pub(crate) mod health;
pub mod http;
pub mod logging;
pub mod metrics;
mod read_in_time;
