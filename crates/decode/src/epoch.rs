//! Converts Unix times of any unit to milliseconds.

/// Converts an epoch number to milliseconds. Its size gives its unit: seconds below 1e11,
/// milliseconds below 1e14, microseconds below 1e17, else nanoseconds.
pub(super) fn epoch_ms_from_integer(number: i64) -> i64 {
    match number.unsigned_abs() {
        0..100_000_000_000 => number * 1_000,
        100_000_000_000..100_000_000_000_000 => number,
        100_000_000_000_000..100_000_000_000_000_000 => number / 1_000,
        _ => number / 1_000_000,
    }
}

/// Like [`epoch_ms_from_integer`], for a number with a fraction.
pub(super) fn epoch_ms_from_float(number: f64) -> i64 {
    rounded(match number.abs() {
        ..1e11 => number * 1e3,
        ..1e14 => number,
        ..1e17 => number / 1e3,
        _ => number / 1e6,
    })
}

/// Rounds a time to whole milliseconds.
#[expect(
    clippy::cast_possible_truncation,
    reason = "`as` saturates; a saturated time is too old or too new"
)]
pub(super) fn rounded(ms: f64) -> i64 {
    ms.round() as i64
}
