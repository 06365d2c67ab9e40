//! Connections to the broker. They pass the broker's packets to the
//! [consumer](milepost_core::consumer), and the consumer's acknowledgements to the broker.
//!
//! Guarantee: the read and write buffers of a connection are dropped with the connection.

mod broker_metrics;
mod connection;
mod dialer;
mod keep_alive;
pub(crate) mod shared;
pub(crate) mod transport;
