//! milepost: drivers' GPS positions from an MQTT broker into ClickHouse, acknowledged when they are durable.
//!
//! The rooms, in the order in which data flows through them. Pure rooms hold no async, clock, I/O or metrics:
//! they are plain functions and state machines, and their shells stay thin. `ARCHITECTURE.md` is the tour.
//!
//! | room | job | pure |
//! |---|---|---|
//! | [`tls`] | certificates, handshakes, and why one failed | |
//! | [`config`] | defaults < file < environment | |
//! | [`position`] | a fix, its fields and their units | yes |
//! | [`decode`] | topic and payload → positions and rejects | yes |
//! | [`wire`] | bytes ↔ MQTT 5 packets | yes |
//! | [`batch`] | rows → batches | yes |
//! | [`ack`] | which messages may be acknowledged, in which order | yes |
//! | [`window`] | how many messages the broker lets us have | yes |
//! | [`lane`] | (event, now) → commands: the mind of one connection | yes |
//! | [`encode`] | a closed batch → the bytes of its inserts | yes |
//! | [`health`] | what is wrong right now | |
//! | [`metrics`] | what can be observed | |
//! | [`spool`] | batches on disk while ClickHouse cannot take them | |
//! | [`insert`] | retries until a batch is durable | |
//! | [`replay`] | from the spool to ClickHouse, oldest first | |
//! | [`clickhouse`] | the server behind it, and migrations | |
//! | [`subscriber`] | the lane's shell: one MQTT connection | |
//! | [`check`] | what servers and disk are ready for, and what to change | |
//! | [`http`] | `/metrics`, `/livez`, `/readyz` | |
//! | [`app`] | wiring and supervision | |

pub mod ack;
pub mod app;
pub mod batch;
pub mod check;
pub mod clickhouse;
pub mod config;
pub mod decode;
pub mod encode;
pub mod health;
pub mod http;
pub mod insert;
pub mod lane;
pub mod metrics;
pub mod position;
pub mod replay;
pub mod spool;
pub mod subscriber;
pub mod tls;
pub mod window;
pub mod wire;
