//! Results that print as a table or as JSON.

use std::fmt::Display;

/// A result that prints as a table, or with `--json` as one object on one line.
pub trait Shown: Display {
    /// Returns the result for `--json`.
    fn json(&self) -> serde_json::Value;

    /// Returns the text to print.
    fn shown(&self, json: bool) -> String {
        if json { format!("{}\n", self.json()) } else { self.to_string() }
    }
}
