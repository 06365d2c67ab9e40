//! `milepost events`: what drivers' fixes mean (entered, left, silent, fast, …), written to a table
//! and published; and the fences that they are measured by.
//!
//! ```text
//! ClickHouse ─▶ watch::reader ─▶ watch ─▶ table events ─▶ run (MQTT, webhook)
//! GeoJSON ─▶ fences ─▶ table fences ─▶ watch::Area
//! ```
//!
//! Guarantee: an event is a function of the fixes before it, and is in the table before anybody
//! hears of it.
//!
//! Refuses: to stand in the way of an insert; it reads what ClickHouse has taken.

mod command;
pub mod fences;
mod run;
pub mod watch;

pub use self::command::COMMANDS;
