//! Values of arguments that more than one command takes.

use std::time::{Duration, UNIX_EPOCH};

use milepost_core::peers::Peer;
use milepost_decode::position::Timestamp;
use milepost_decode::reject::Reason;
use milepost_observe::now;

/// Parses a duration of at most 1,000 days, so that adding it to a time never overflows.
pub fn span(text: &str) -> Result<Duration, String> {
    const SPAN_MAX: Duration = Duration::from_secs(1_000 * 24 * 3_600);
    let span = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if span <= SPAN_MAX { Ok(span) } else { Err("must be at most 1000d".to_owned()) }
}

/// Parses a refresh interval of at least 100 ms, which members can answer.
pub fn interval(text: &str) -> Result<Duration, String> {
    let interval = span(text)?;
    if interval >= Duration::from_millis(100) {
        Ok(interval)
    } else {
        Err("must be at least 100ms".to_owned())
    }
}

pub fn client_id(text: &str) -> Result<String, String> {
    milepost_config::client_id(text.to_owned())
}

pub fn peer(text: &str) -> Result<Peer, String> {
    milepost_config::peers(vec![text.to_owned()])?
        .pop()
        .ok_or_else(|| "must be host:port".to_owned())
}

pub fn reason(name: &str) -> Result<Reason, String> {
    Reason::ALL.into_iter().find(|reason| reason.name() == name).ok_or_else(|| {
        let names: Vec<&str> = Reason::ALL.iter().map(|reason| reason.name()).collect();
        format!("must be one of {}", names.join(", "))
    })
}

pub fn moment(text: &str) -> Result<Timestamp, String> {
    let ms = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    if let Ok(age) = humantime::parse_duration(text) {
        return Ok(Timestamp::from_unix_ms(now().unix_ms().saturating_sub(ms(age))));
    }
    let wanted = "must be a time such as 2026-11-21T08:00:00Z, or an age such as 2h";
    let time = humantime::parse_rfc3339_weak(text).map_err(|_| wanted.to_owned())?;
    Ok(Timestamp::from_unix_ms(time.duration_since(UNIX_EPOCH).map_or(0, ms)))
}
