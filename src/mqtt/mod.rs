//! Connections to the broker: packets in → the [consumer](milepost_core::consumer), its
//! acknowledgements → the broker.
//!
//! Guarantee: bytes that were read or are to be written die with their connection.

mod broker_metrics;
mod connection;
mod dialer;
mod keep_alive;
pub(crate) mod shared;
pub(crate) mod transport;
