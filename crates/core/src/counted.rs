//! Formats a count with its noun: "1 row", "2 rows".

use std::fmt::Display;

/// Returns a count with its noun, which gets an "s" unless the count is 1.
#[must_use]
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let ending = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{ending}")
}
