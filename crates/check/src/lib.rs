//! `milepost check`: checks the configured servers and the disk, and names each setting to change
//! and where.
//!
//! ```text
//! a short session with the broker ─┐
//! queries to ClickHouse ───────────┼─▶ Report ─▶ lines or JSON; at the consumer's start, log lines
//! the spool's directory ───────────┘
//! ```
//!
//! Guarantee: the command changes nothing and does not disturb the members of the group. Its
//! sessions have client ids and share groups of their own. They end with the command, except for
//! one session on each node: it has no subscription, and ends after the session expiry. A setting
//! that the command cannot read is reported as not visible. A check that gets no answer reports
//! this as its finding.

mod all;
mod broker;
mod cluster;
mod command;
mod disk;
mod inserts;
mod replicas;
mod report;
mod server;
mod shards;
mod size;

pub use self::all::unusable_probe;
pub use self::command::COMMANDS;
