//! Defines a number as it was sent.

use std::ops::RangeInclusive;

/// Number of decimal digits that always fit an `i64`.
pub(crate) const DIGITS_MAX: usize = 18;

static POWERS_OF_TEN: [i64; DIGITS_MAX + 1] = {
    let (mut powers, mut exponent) = ([1; DIGITS_MAX + 1], 1);
    while exponent <= DIGITS_MAX {
        powers[exponent] = 10 * powers[exponent - 1];
        exponent += 1;
    }
    powers
};

/// A number as it was sent. A decimal keeps its digits. The columns also hold decimals, so most
/// numbers are never rounded.
#[derive(Debug, Clone, Copy)]
pub enum Number {
    /// `digits` / 10^`decimals`; at most [`DIGITS_MAX`] decimals.
    Decimal {
        digits: i64,
        decimals: usize,
    },
    Float(f64),
}

/// Number of decimal digits that a double holds exactly. A double also holds exactly each power of
/// ten with at most this many zeros. So the quotient of two such numbers is the double that is
/// nearest to the decimal.
const EXACT_DIGITS: usize = 15;

impl Number {
    /// Parses a decimal of at most [`EXACT_DIGITS`] digits, such as `-52.520008`. Nearly all
    /// decimals in files are that short. `None`: the text is an integer, another number, or no
    /// number.
    pub(crate) fn of_decimal(text: &[u8]) -> Option<Self> {
        let unsigned = text.strip_prefix(b"-");
        let (is_negative, unsigned) = (unsigned.is_some(), unsigned.unwrap_or(text));
        let (whole, whole_digits) = digits(0, unsigned);
        let fraction = unsigned.get(whole_digits..)?.strip_prefix(b".")?;
        let (digits, decimals) = digits(whole, fraction);
        if whole_digits == 0
            || decimals == 0
            || decimals < fraction.len()
            || whole_digits + decimals > EXACT_DIGITS
        {
            return None;
        }
        Some(match (is_negative, digits) {
            (true, 0) => Self::Float(-0.0),
            (true, _) => Self::Decimal { digits: -digits, decimals },
            (false, _) => Self::Decimal { digits, decimals },
        })
    }

    /// Returns the number as serde_json parses it: the digits of a decimal, divided once.
    #[expect(
        clippy::cast_precision_loss,
        reason = "as in serde_json, digits beyond 2^53 may be lost"
    )]
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Decimal { digits, decimals } => digits as f64 / POWERS_OF_TEN[decimals] as f64,
            Self::Float(number) => number,
        }
    }

    /// Returns whether the number is below 0; -0 is not.
    #[inline]
    pub(crate) fn is_negative(self) -> bool {
        match self {
            Self::Decimal { digits, .. } => digits < 0,
            Self::Float(number) => number < 0.0,
        }
    }

    /// Returns the number in units of 10^-`decimals`, rounded to the nearest. `units`: the allowed
    /// range, within `i32` and `T`. `None`: the number is NaN, or outside the range.
    ///
    /// A number of at most `decimals` decimals is converted from its digits, without a float. A
    /// float would give the same result, because its errors are far below half a unit.
    #[inline]
    pub fn in_units<T: TryFrom<i64>>(
        self,
        decimals: usize,
        units: RangeInclusive<i64>,
    ) -> Option<T> {
        if let Self::Decimal { digits, decimals: sent } = self
            && sent <= decimals
        {
            let exact = digits.checked_mul(POWERS_OF_TEN[decimals - sent])?;
            return if units.contains(&exact) { T::try_from(exact).ok() } else { None };
        }
        T::try_from(nearest(self.as_f64(), decimals, units)?).ok()
    }
}

/// Returns the float in units of 10^-`decimals`, rounded to the nearest. `units`: the allowed
/// range, within `i32`. `None`: the float is NaN, or outside the range.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "a value in range fits i32")]
#[expect(
    clippy::cast_precision_loss,
    reason = "powers of ten below 10^18 are exact enough for units of i32"
)]
fn nearest(value: f64, decimals: usize, units: RangeInclusive<i64>) -> Option<i64> {
    let units_per_one = POWERS_OF_TEN[decimals] as f64;
    let range = *units.start() as f64 / units_per_one..=*units.end() as f64 / units_per_one;
    if !range.contains(&value) {
        return None;
    }
    // Round by hand: f64::round would be a function call for each field of each fix.
    let units = value * units_per_one;
    let whole = units as i32;
    let fraction = units - f64::from(whole);
    Some(i64::from(whole + i32::from(fraction >= 0.5) - i32::from(fraction <= -0.5)))
}

impl From<f64> for Number {
    fn from(number: f64) -> Self {
        Self::Float(number)
    }
}

impl From<i64> for Number {
    fn from(digits: i64) -> Self {
        Self::Decimal { digits, decimals: 0 }
    }
}

/// Appends the digits at the start of `text` to `number`. Returns the new number and how many
/// digits were read. The number is meaningless if there are more than [`DIGITS_MAX`] digits.
#[inline(always)]
pub(crate) fn digits(mut number: i64, text: &[u8]) -> (i64, usize) {
    let mut count = 0;
    // Read the first eight digits without checking for the end of the text each time.
    if let Some(first) = text.first_chunk::<8>() {
        while count < first.len() {
            let digit = first[count] ^ b'0'; // above 9 if it is not a digit
            if digit > 9 {
                return (number, count);
            }
            number = number.wrapping_mul(10).wrapping_add(i64::from(digit));
            count += 1;
        }
    }
    while let Some(digit) = text.get(count).map(|byte| byte ^ b'0').filter(|digit| *digit <= 9) {
        number = number.wrapping_mul(10).wrapping_add(i64::from(digit));
        count += 1;
    }
    (number, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_decimal_equals_its_double_and_other_text_is_not_parsed() {
        for text in [
            "0.1",
            "-0.0",
            "0.0",
            "52.520008",
            "-13.404954",
            "007.50",
            "123456789012.345",
            "0.00000000000001",
            "99999999.9999999",
            "8.98846567431157",
            "-0.3",
        ] {
            let number = Number::of_decimal(text.as_bytes()).map(Number::as_f64).unwrap();
            assert_eq!(number.to_bits(), text.parse::<f64>().unwrap().to_bits(), "{text}");
        }
        for text in [
            "",
            "-",
            ".",
            "1",
            "-1",
            "1.",
            ".5",
            "+1.5",
            "1.5e3",
            "1,5",
            "1.5 ",
            "1.2.3",
            "--1.5",
            "1234567890.123456",
            "0.0000000000000001",
            "2026-01-31",
            "inf",
        ] {
            assert!(Number::of_decimal(text.as_bytes()).is_none(), "{text}");
        }
    }
}
