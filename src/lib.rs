//! milepost stores drivers' GPS positions from an MQTT broker in ClickHouse. It acknowledges a
//! message only when its rows are durable.
//!
//! ```text
//! broker ─▶ mqtt::transport ─▶ milepost_core::consumer ─▶ executor ─▶ milepost_clickhouse
//!                ▲                    ▲                       │       or milepost_spool
//!                └────── PUBACK ──────┴────── reports ────────┘
//! ```
//!
//! This crate is the consumer: [`app`] wires the crates of `crates/` together, [`mqtt`] drives the
//! connections, [`executor`] executes the core's commands.
//!
//! Guarantee: if a task other than a startup task ends outside a shutdown, the process ends. This
//! crate does not decide what happens to a batch or a session: `milepost_core` does.

pub mod app;
pub mod cli;
pub mod executor;
pub mod mqtt;
