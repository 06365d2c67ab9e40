//! Observability: `/metrics`, `/readyz`, `/livez`, `/member` and log lines; and the requests that
//! members send each other.
//!
//! ```text
//! totals ─▶ metrics ─┐
//! reasons ─▶ health ─┼─▶ http ─▶ Prometheus, probes, operators
//! Member ────────────┘        ◀─ peers ─▶ other members' /member
//! log lines ─▶ logging (a bounded queue, a thread of its own) ─▶ stderr
//! ```
//!
//! Guarantee: all totals in a scrape belong to one moment. A client that stops reading its answer
//! blocks nothing else. A process that stops reading stderr blocks nothing either.
//!
//! At most 64 connections are open: a further one replaces the oldest. Request bodies are ignored.

pub mod build;
mod clock;
pub mod endpoints;
pub mod health;
pub mod http;
pub mod logging;
pub mod metrics;
pub mod peers;
mod read_in_time;
mod series;

pub use self::clock::{now, now_ms};
