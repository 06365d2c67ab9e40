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
//! | [`pipeline`] | a message's bytes → positions and rejects → a batch → the bytes of an insert |
//! | [`fences`] | GeoJSON → areas for the table, and what is wrong with the others |
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
//! | [`mqtt`] | the broker's bytes ↔ packets; the thread that drives the consumer |
//! | [`check`] | a configuration → what the servers and the disk are ready for |
//! | [`app`] | the commands: what `main` calls |
//!
//! A room uses only rooms above it in this list. `session`, `intake`, `consumer`, `pipeline`, `fences`, `delivery::policy` and
//! `peers::decision` are pure: they take `now`, and hold no clock, socket, task or file.

pub mod app;
pub mod check;
pub mod clickhouse;
pub mod config;
pub mod consumer;
pub mod delivery;
pub mod fences;
pub mod intake;
pub mod mqtt;
pub mod observe;
pub mod peers;
pub mod pipeline;
pub mod session;
pub mod spool;
pub mod tls;
