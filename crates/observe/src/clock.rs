//! The wall clock. Only this module reads it; the core receives the time as an argument.

use std::time::{SystemTime, UNIX_EPOCH};

use milepost_decode::position::Timestamp;

/// Returns the wall clock's time.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "the only place that reads the wall clock; the core receives the time"
)]
pub fn now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix_ms(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

/// Returns the wall clock's time in milliseconds since 1970.
#[must_use]
pub fn now_ms() -> i64 {
    now().unix_ms()
}
