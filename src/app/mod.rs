//! Wiring and supervision: the only module that uses every other one.
//!
//! Guarantee: every task and thread is owned here; any that ends outside a shutdown ends the
//! process with an error. A shutdown flushes within `shutdown.grace`, or logs that it could not.

pub mod commands;
mod driver;
mod leaving;
mod members;
mod read_delay;
pub mod run;
mod schema;
