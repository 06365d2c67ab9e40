//! Wiring and supervision: the only module that uses all other modules.
//!
//! Guarantee: this module owns the consumer's tasks and the event loop's thread. If one of them
//! ends outside a shutdown, the process ends with an error. Only startup tasks may end earlier. A
//! shutdown flushes within `shutdown.grace`, or logs what it could not flush.

pub mod commands;
mod event_loop;
mod leaving;
mod members;
mod read_delay;
pub mod run;
mod schema;
