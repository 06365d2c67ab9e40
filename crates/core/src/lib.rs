//! The consumer without I/O: sessions, intake, batches, the delivery policy, and the decision
//! whether a member of the group stays subscribed. Each of these state machines takes events and
//! the time, and returns commands. None uses a clock, socket, task, file or log.
//!
//! ```text
//! a connection's events ─▶ session ─▶ intake ─▶ delivery::policy ─▶ insert | store | wait
//!                             ▲          (milepost-decode, batch)          │
//!                             └── PUBACK ◀── complete below arrival n ◀────┘ reports
//! ```
//!
//! Guarantee: a message is acknowledged only after all its rows are durable; [`delivery`] names the
//! rows that are left out. Every wait has a deadline or a reason in `/readyz`. The crate's
//! `clippy.toml` rejects clocks, global randomness and sockets.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests start at the real time"))]

pub mod batch;
pub mod consumer;
pub mod counted;
pub mod delivery;
pub mod encode;
pub mod erased;
pub mod intake;
pub mod peers;
mod qos;
pub mod screened;
pub mod session;
pub mod throttle;

pub use self::delivery::sink::error_chain;
pub use self::qos::Qos;
