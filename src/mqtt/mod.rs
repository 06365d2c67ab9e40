//! Connections to the broker: they pass its packets to the [consumer](milepost_core::consumer), and
//! the consumer's acknowledgements to the broker.
//!
//! Guarantee: a connection's read and write buffers are dropped with it.

mod broker_metrics;
mod connection;
mod dialer;
mod keep_alive;
pub(crate) mod shared;
pub(crate) mod transport;
