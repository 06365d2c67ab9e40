//! milepost: drivers' GPS positions from an MQTT broker into ClickHouse, acknowledged when they are durable.
//!
//! ```text
//! broker ── mqtt ──▶ session ─┐                                  ┌─▶ clickhouse
//!                    session ─┼─▶ intake ──▶ delivery::policy ──▶┤
//!                    session ─┘  (pipeline)   what is next?      └─▶ spool
//!              ▲                                     │
//!              └───── PUBACK ◀── "durable" ◀─────────┘
//! ```
//!
//! | room | what goes in, what comes out |
//! |---|---|
//! | [`codec`] | the broker's bytes ↔ MQTT packets; a message |
//! | [`throttle`] | a log line that would repeat → whether it is logged now |
//! | [`pipeline`] | a message's bytes → positions and rejects → a batch → the bytes of an insert |
//! | [`fences`] | GeoJSON → areas for the table, and what is wrong with the others |
//! | [`events`] | fixes in the order of their inserts → who entered, left, fell silent, was too fast |
//! | [`session`] | what happened on one connection → which message is taken, and acknowledged when |
//! | [`intake`] | messages of all sessions → batches; durable batches → complete messages |
//! | [`tls`] | certificates and a TCP connection → a TLS connection, or in words why not |
//! | [`peers`] | what members say of themselves → who goes on when this process goes |
//! | [`spool`] | an insert's bytes → a file, and back |
//! | [`delivery`] | batches → "durable": what each does next, and the executor that does it |
//! | [`consumer`] | sessions, intake and delivery as one value: the flow |
//! | [`config`] | defaults, file, environment → one checked configuration |
//! | [`clickhouse`] | inserts, migrations and questions → what the server said, sorted by what to do about it |
//! | [`observe`] | the consumer's totals → `/metrics`, `/readyz`, `/livez` |
//! | [`mqtt`] | connections to the broker: packets → the consumer, acknowledgements → the broker |
//! | [`check`] | a configuration → what the servers and the disk are ready for |
//! | [`app`] | the commands: what `main` calls; the thread that drives the consumer |
//!
//! A room uses only rooms above it in this list. `codec`, `session`, `intake`, `consumer`, `pipeline`, `fences`, `events`, `delivery::policy` and
//! `peers::decision` are pure: they take `now`, and hold no clock, socket, task or file.

pub mod app;
pub mod check;
pub mod clickhouse;
pub mod codec;
pub mod config;
pub mod consumer;
pub mod delivery;
pub mod events;
pub mod fences;
pub mod intake;
pub mod mqtt;
pub mod observe;
pub mod peers;
pub mod pipeline;
pub mod session;
pub mod spool;
mod throttle;
pub mod tls;

/// Which build this is, as `build.rs` found out.
pub mod build {
    pub const VERSION: &str = env!("CARGO_PKG_VERSION");
    /// Twelve hexadecimal digits; a `+` follows if tracked files had been changed. Empty if unknown, as in a debug build.
    pub const COMMIT: &str = env!("MILEPOST_BUILD_COMMIT");
    /// The day of the commit in UTC, such as `2026-11-22`. Empty if unknown.
    pub const DATE: &str = env!("MILEPOST_BUILD_DATE");
    /// What `--version` prints after the program's name: `0.1.0 (9b5362934c1d, 2026-11-22)`.
    pub const LONG: &str = env!("MILEPOST_BUILD");
}
