//! Parsers for arguments that several commands share.

use std::time::Duration;

/// Parses a duration of at most 1,000 days, so that adding the duration to a time never overflows.
pub fn span(text: &str) -> Result<Duration, String> {
    const SPAN_MAX: Duration = Duration::from_secs(1_000 * 24 * 3_600);
    let span = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if span <= SPAN_MAX { Ok(span) } else { Err("must be at most 1000d".to_owned()) }
}
