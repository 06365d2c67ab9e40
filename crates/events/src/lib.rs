//! `milepost events`: derives events from drivers' fixes (entered, left, silent, fast, …), writes
//! them to a table and publishes them. `milepost fences`: imports the fences that events name.
//!
//! ```text
//! ClickHouse ─▶ watch::reader ─▶ watch ─▶ table events ─▶ run (MQTT, webhook)
//! GeoJSON ─▶ fences ─▶ table fences ─▶ watch::Area
//! ```
//!
//! Guarantee: an event is a function of the fixes before it, and is in the table before it is
//! published.
//!
//! Refuses to delay an insert: reads only fixes that ClickHouse has already stored.

mod command;
pub mod fences;
mod run;
pub mod watch;

pub use self::command::COMMANDS;
