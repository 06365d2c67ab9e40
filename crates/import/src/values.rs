//! Recognises values of a CSV file: degrees, times of day, instants.

use milepost_decode::EAST_ASIAN_MERIDIEMS;

/// Parses a plain number of degrees, with a decimal point or a comma.
pub(super) fn degrees(value: &str) -> Option<f64> {
    value.replace(',', ".").parse().ok()
}

/// Returns whether `whole` is a number of degrees without a fraction, and `part`, the minutes or
/// seconds of these degrees, is not 0.
pub(super) fn is_split(whole: &str, part: &str) -> bool {
    let is_whole = degrees(whole).is_some_and(|degrees| degrees.fract() == 0.0);
    is_whole && degrees(part).is_some_and(|part| part != 0.0)
}

/// Returns whether a value begins like a time of day: `h:`, `hh:`, or `hhmmss` with or without a
/// fraction.
pub(super) fn is_time_of_day(value: &str) -> bool {
    let mut meridiems = EAST_ASIAN_MERIDIEMS.iter();
    let value = meridiems.find_map(|(word, _)| value.strip_prefix(word)).unwrap_or(value);
    let value = value.trim_start();
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    let after = value.as_bytes().get(digits).copied();
    matches!((digits, after), (1 | 2, Some(b':')) | (6, None | Some(b'.')))
}

/// Returns whether a value is a time of day as `hhmmss`, with or without a fraction.
pub(super) fn is_clock_in_digits(value: &str) -> bool {
    let is_below = |at: usize, end: u8| {
        let digits = value.get(at..at + 2).and_then(|digits| digits.parse::<u8>().ok());
        digits.is_some_and(|number| number < end)
    };
    let is_in_digits = is_time_of_day(value) && !value.contains(':');
    // A minute with a leap second has 61 seconds.
    is_in_digits && is_below(0, 24) && is_below(2, 60) && is_below(4, 61)
}

/// Returns whether two times of day differ by less than ten minutes. Then both seem to be in the
/// same zone.
pub(super) fn is_same_clock(time: &str, other_time: &str) -> bool {
    const DAY_SECONDS: u32 = 86_400;
    let seconds = seconds_of_day(time).zip(seconds_of_day(other_time));
    seconds.is_some_and(|(seconds, other_seconds)| {
        let difference = seconds.abs_diff(other_seconds);
        // Times before and after midnight are near each other, too.
        difference.min(DAY_SECONDS - difference) < 600
    })
}

/// Returns whether a time of day, which was in UTC in the first row, is in another zone now: it
/// differs from one in UTC by hours, give or take a minute. Returns `false` if `utc` has no colons,
/// because then `utc` may be the seconds of the GPS week.
pub(super) fn is_shifted_clock(time: &str, utc: &str) -> bool {
    const ERROR_S: u32 = 60;
    const HOUR_S: u32 = 3_600;
    let seconds = seconds_of_day(time).zip(seconds_of_day(utc).filter(|_| utc.contains(':')));
    seconds.is_some_and(|(seconds, utc_seconds)| {
        let difference = seconds.abs_diff(utc_seconds);
        let hours = (difference + HOUR_S / 2) / HOUR_S;
        // 01:00 PM and 13:00 seem to differ by 12 hours. No zone changes by so many.
        !matches!(hours, 0 | 12 | 24) && difference.abs_diff(hours * HOUR_S) <= ERROR_S
    })
}

/// Returns the time of day of a time such as `2026-01-31 08:00:00` or `080000`, in seconds.
fn seconds_of_day(value: &str) -> Option<u32> {
    let number = |text: &str| text.parse::<u32>().ok();
    let (hour, minute, second) = match value.split_once(':') {
        Some((before, after)) => {
            let hour = before.rsplit(|c: char| !c.is_ascii_digit()).next()?;
            (hour, after.get(..2)?, after.get(3..5).unwrap_or("0"))
        }
        None if is_clock_in_digits(value) => (&value[..2], &value[2..4], &value[4..6]),
        None => return None,
    };
    let seconds = number(hour)? * 3_600 + number(minute)? * 60 + number(second).unwrap_or(0);
    Some(seconds).filter(|seconds| *seconds < 86_400)
}

/// Returns whether a value is one instant: Unix time in seconds, milliseconds, microseconds or
/// nanoseconds, or a time with its zone.
pub(super) fn is_instant(time: &str) -> bool {
    // Numbers of other lengths are dates or times of day in digits.
    let digits = time.bytes().take_while(u8::is_ascii_digit).count();
    let is_number = time.parse::<f64>().is_ok();
    if is_number { matches!(digits, 10 | 13 | 16 | 19) } else { has_offset(time) }
}

/// Returns whether a time ends in Z, UTC, GMT, an offset or a zone in brackets.
pub(super) fn has_offset(time: &str) -> bool {
    let time = time.to_ascii_lowercase();
    let digits = time.trim_end_matches(|c: char| c.is_ascii_digit() || c == ':');
    ["z", "utc", "gmt", "]"].iter().any(|zone| time.ends_with(zone))
        || digits.ends_with(['+', '-']) && digits.contains(':')
}
