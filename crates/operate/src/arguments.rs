//! Parsers for the arguments of the operator commands.

use std::time::{Duration, UNIX_EPOCH};

use milepost_command::arguments::span;
use milepost_core::peers::Peer;
use milepost_decode::position::Timestamp;
use milepost_decode::reject::Reason;
use milepost_observe::now;

/// Shortest refresh interval of `milepost top`: each refresh queries every member over HTTP.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Parses a refresh interval of at least [`INTERVAL_MIN`].
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let interval = span(text)?;
    if interval >= INTERVAL_MIN { Ok(interval) } else { Err("must be at least 100ms".to_owned()) }
}

/// Parses a member's address, `host:port`.
pub(crate) fn peer(text: &str) -> Result<Peer, String> {
    milepost_config::peers(vec![text.to_owned()])?
        .pop()
        .ok_or_else(|| "must be host:port".to_owned())
}

/// Parses the name of a reason for which fixes are rejected.
pub(crate) fn reason(name: &str) -> Result<Reason, String> {
    Reason::ALL.into_iter().find(|reason| reason.name() == name).ok_or_else(|| {
        let names: Vec<&str> = Reason::ALL.iter().map(|reason| reason.name()).collect();
        format!("must be one of {}", names.join(", "))
    })
}

/// Parses a time, such as 2026-11-21T08:00:00Z, or an age, such as 2h.
pub(crate) fn moment(text: &str) -> Result<Timestamp, String> {
    let ms = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    if let Ok(age) = humantime::parse_duration(text) {
        return Ok(Timestamp::from_unix_ms(now().unix_ms().saturating_sub(ms(age))));
    }
    let expected = "must be a time such as 2026-11-21T08:00:00Z, or an age such as 2h";
    let time = humantime::parse_rfc3339_weak(text).map_err(|_| expected.to_owned())?;
    Ok(Timestamp::from_unix_ms(time.duration_since(UNIX_EPOCH).map_or(0, ms)))
}
