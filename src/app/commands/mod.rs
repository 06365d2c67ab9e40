//! The commands other than `run`.

pub mod check;
pub mod decode;
pub mod drain;
pub mod erase;
pub mod events;
pub mod fences;
pub mod import;
mod insert;
mod lines;
pub mod migrate;
pub mod rejects;
pub mod spool;
pub mod top;
pub mod trace;

use std::fmt::Display;

/// A result that prints as a table, or with `--json` as one object on one line.
pub trait Shown: Display {
    fn json(&self) -> serde_json::Value;

    fn shown(&self, json: bool) -> String {
        if json { format!("{}\n", self.json()) } else { self.to_string() }
    }
}
