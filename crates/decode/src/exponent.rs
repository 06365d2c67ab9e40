//! Detects numbers whose exponent hides lost digits. For example, a spreadsheet and C's `%g` write
//! a time in milliseconds as `1.79555E+12`, which stands for any time within 2.8 hours.

use memchr::memchr2_iter;

use super::json::{Scalar, coarse_resolution_s, resolution};
use super::refusal::{Refusal, refuse};
use super::unit::TimeUnit;
use crate::number::Number;
use crate::reject::Reason;

/// Largest tolerated loss in degrees, about 11 m.
const DEGREES_LOST_MAX: f64 = 1e-4;
/// Maximum number of digits that C's `%g` and spreadsheets write.
const DIGITS_WRITTEN: usize = 6;

/// Returns whether a number may have been sent with an exponent. The reader keeps a number without
/// an exponent as a decimal, unless the number has very many digits or was multiplied by a unit's
/// factor.
#[inline]
pub(super) const fn may_have_exponent(value: &Scalar<'_>) -> bool {
    matches!(value, Scalar::Number(Number::Float(_)))
}

/// Returns whether the JSON may contain a number with an exponent, or a string such as `"1e3"`.
pub(super) fn is_in(json: &[u8]) -> bool {
    memchr2_iter(b'e', b'E', json).any(|at| {
        let (before, after) = (json[..at].last(), json.get(at + 1));
        before.is_some_and(u8::is_ascii_digit)
            && after.is_some_and(|next| next.is_ascii_digit() || b"+-".contains(next))
    })
}

/// Returns whether a number with an exponent has lost digits: it has few digits, or a plus in the
/// exponent, as in `e+09`. Other exponents do not mean lost digits: Java writes all digits of a
/// double, as in 1.7955108E9.
fn is_rounded(sent: &str) -> bool {
    let mantissa = sent.split(['e', 'E']).next().unwrap_or_default();
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).count();
    digits <= DIGITS_WRITTEN || sent.contains('+')
}

/// Checks a time that was sent as a string.
///
/// # Errors
/// The lost digits stand for more than one second.
pub(super) fn check_time(text: &str, unit: TimeUnit) -> Result<(), Refusal> {
    match coarse_resolution_s(text, unit) {
        Some(seconds) => refuse(
            Reason::BadTs,
            format!(
                "ts {text:.20} has lost its last digits, which stand for {seconds} s: {}",
                remedy(text)
            ),
        ),
        None => Ok(()),
    }
}

/// Like [`check_time`], for `sent`, the JSON of a number or another value.
///
/// # Errors
/// The lost digits stand for more than one second.
pub(super) fn check_time_sent(sent: &str, unit: TimeUnit) -> Result<(), Refusal> {
    // A larger number is not a time in any unit. A later check rejects it as too new.
    let may_be_time = sent.parse().is_ok_and(|number: f64| number.abs() < 1e20);
    if may_be_time && is_rounded(sent) { check_time(sent, unit) } else { Ok(()) }
}

/// Checks a coordinate that was sent as a string. `factor`: size of the coordinate's unit, in
/// degrees.
///
/// # Errors
/// The degrees may be more than 11 m off.
pub(super) fn check_degrees(text: &str, field: &str, factor: f64) -> Result<(), Refusal> {
    match resolution(text).filter(|last| last * factor > DEGREES_LOST_MAX) {
        Some(_) => refuse(
            Reason::WrongType,
            format!("{field} {text:.20} has lost its last digits: {}", remedy(text)),
        ),
        None => Ok(()),
    }
}

/// Like [`check_degrees`], for `sent`, the JSON of a number or another value. Checks only
/// coordinates in small units: these are large integers, and a program that rounds writes an
/// exponent only for large numbers.
///
/// # Errors
/// The degrees may be more than 11 m off.
pub(super) fn check_degrees_sent(sent: &str, field: &str, factor: f64) -> Result<(), Refusal> {
    let has_small_unit = factor < 1e-3;
    let is_checked = has_small_unit && is_number(sent) && is_rounded(sent);
    if is_checked { check_degrees(sent, field, factor) } else { Ok(()) }
}

fn is_number(sent: &str) -> bool {
    sent.starts_with(|first: char| first == '-' || first.is_ascii_digit())
}

fn remedy(text: &str) -> &'static str {
    if text.contains('+') {
        "a spreadsheet, %g or a float of 32 bits rounded it; save the file again with this column \
         as text, or send all digits"
    } else {
        "send or save all digits"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounded_number_is_refused_unless_complete() {
        let is_time_refused = |sent: &str| check_time_sent(sent, TimeUnit::BySize).is_err();
        for (sent, is_refused) in [
            ("1.79555e+12", true),
            ("1.7955e9", true),
            ("1.795511e+09", true),
            ("1.7955108E9", false),
            ("1.795510800123E9", false),
            ("1.795510800123e12", false),
            ("1795510800", false),
            ("\"1.7955e9\"", false),
            ("null", false),
        ] {
            assert_eq!(is_time_refused(sent), is_refused, "{sent}");
        }
        let is_lat_refused = |sent: &str, factor| check_degrees_sent(sent, "lat", factor).is_err();
        for sent in ["4.75e1", "47.5", "9e-7"] {
            assert!(!is_lat_refused(sent, 1.0), "{sent}");
        }
        assert!(!is_lat_refused("5.25200081E8", 1e-7) && is_lat_refused("5.252E+08", 1e-7));
    }

    #[test]
    fn exponent_is_found_in_a_number_but_not_in_a_key() {
        for (json, has_exponent) in [
            (r#"{"a":1e3}"#, true),
            (r#"{"a":1.5E+3}"#, true),
            (r#"{"a":1,"1e":2}"#, false),
            (r#"{"ele":1,"te":"se"}"#, false),
        ] {
            assert_eq!(is_in(json.as_bytes()), has_exponent, "{json}");
        }
    }
}
