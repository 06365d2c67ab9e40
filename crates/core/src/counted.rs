//! Formats a count with its noun: "1 row", "2 rows", "2 batches".

use std::fmt::Display;

/// Returns a count with its noun. Unless the count is 1, the noun gets an "s", or "es" if it ends
/// with "ch".
#[must_use]
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let plural = if noun.ends_with("ch") { "es" } else { "s" };
    let ending = if count == N::from(1) { "" } else { plural };
    format!("{count} {noun}{ending}")
}
