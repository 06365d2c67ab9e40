//! Formats times as RFC 3339, for people.

use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use milepost_decode::position::Timestamp;

/// Returns the time as an RFC 3339 string. Returns a time before 1970 or after 9999 as a number, in
/// Unix milliseconds.
#[must_use]
pub fn rfc3339(ts: Timestamp) -> serde_json::Value {
    let mut text = String::new();
    match u64::try_from(ts.unix_ms()).map(|ms| UNIX_EPOCH + Duration::from_millis(ms)) {
        Ok(time) if write!(text, "{}", humantime::format_rfc3339_millis(time)).is_ok() => {
            text.into()
        }
        Ok(_) | Err(_) => ts.unix_ms().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn years_outside_1970_to_9999_are_milliseconds() {
        const LAST_OF_9999: i64 = 253_402_300_799_999;
        let first_of_10000 = LAST_OF_9999 + 1;
        for (ts, expected) in [
            (LAST_OF_9999, "\"9999-12-31T23:59:59.999Z\"".to_owned()),
            (first_of_10000, first_of_10000.to_string()),
            (-1, "-1".to_owned()),
        ] {
            assert_eq!(rfc3339(Timestamp::from_unix_ms(ts)).to_string(), expected);
        }
    }
}
