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

/// A number as it was sent. A decimal keeps its digits: the columns hold decimals too, so most
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

impl Number {
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

    /// Returns the number in units of 10^-`decimals`, rounded to the nearest. `None`: NaN, or
    /// outside `units`, which fit `i32` and `T`.
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

/// Returns the float in units of 10^-`decimals`, rounded to the nearest. `None`: NaN, or outside
/// `units`, which fit `i32`.
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
    // Rounds by hand: f64::round would be a function call for each field of each fix.
    let units = value * units_per_one;
    let whole = units as i32;
    let rest = units - f64::from(whole);
    Some(i64::from(whole + i32::from(rest >= 0.5) - i32::from(rest <= -0.5)))
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
