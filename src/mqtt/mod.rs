//! The broker's side: bytes and packets, connections, and the thread that drives them all.
//!
//! In: what the broker sends. Out: PUBLISHes to the [consumer](crate::consumer), its acknowledgements to the broker.

mod broker_metrics;
pub mod codec;
mod connection;
mod dialer;
pub(crate) mod driver;
mod keep_alive;
mod read_delay;
mod shared;
mod transport;
