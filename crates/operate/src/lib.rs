//! What operators ask a fleet that runs: `milepost top`, `trace`, `decode` and `rejects replay`.
//!
//! ```text
//! members' /member, /metrics ─▶ top ─▶ one screen
//! ClickHouse, spool, erased   ─▶ trace ─▶ where a driver's fixes are
//! a payload ─▶ the decoder ─▶ decode ─▶ lines of JSON
//! table rejects ─▶ the decoder ─▶ rejects replay ─▶ table positions
//! ```
//!
//! Guarantee: none of them changes a member of the group or its sessions; `rejects replay` alone
//! writes, and may be repeated.
//!
//! Refuses: to decode in a way of its own; all use the decoder of the consumer.

mod command;
pub mod decode;
pub mod rejects;
pub mod top;
pub mod trace;

pub use self::command::COMMANDS;
