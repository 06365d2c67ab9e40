//! Commands for operators of a running fleet: `milepost top`, `trace`, `decode` and
//! `rejects replay`.
//!
//! ```text
//! members' /member, /metrics  ─▶ top ─▶ one screen
//! ClickHouse, spool, erased   ─▶ trace ─▶ where a driver's fixes are
//! a payload ─▶ the decoder ─▶ decode ─▶ lines of JSON
//! table rejects ─▶ the decoder ─▶ rejects replay ─▶ table positions
//! ```
//!
//! Guarantee: no command changes a member of the group or its sessions. Only `rejects replay`
//! writes rows, and it may be repeated.
//!
//! Every command that decodes payloads uses the consumer's decoder, so its results are those of the
//! consumer.

mod arguments;
mod command;
pub mod decode;
pub mod rejects;
pub mod top;
pub mod trace;

pub use self::command::COMMANDS;
