//! Wiring and supervision: the only room that knows every other.
//!
//! Guarantee: every task and thread is owned here; any that ends outside a shutdown ends the
//! process with an error. A shutdown flushes within `shutdown.grace`, and says so when it could
//! not.

pub mod commands;
mod driver;
mod leaving;
mod members;
mod read_delay;
pub mod run;
mod schema;
