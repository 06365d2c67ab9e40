//! Defines JSON values borrowed from the payload: a scalar, a string, an array's elements.

use std::borrow::Cow;
use std::fmt;

use super::unit::TimeUnit;
use crate::number::Number;

/// Maximum characters of a device's string in an error.
const TEXT_CHARS_MAX: usize = 40;

/// Returns the first characters of a string, for an error.
pub(super) fn excerpt(text: &str, chars_max: usize) -> String {
    text.chars().take(chars_max).collect()
}

/// A JSON value in the forms that a field can use. `null` counts as missing.
#[derive(Debug, Default)]
pub(super) enum Scalar<'a> {
    #[default]
    Missing,
    Integer(i64),
    /// A number that is not an integer, is -0, or is beyond `i64`.
    Number(Number),
    Text(Cow<'a, str>),
    /// A boolean ([`TRUE`] or [`FALSE`]), or a value that no field can use, such as an object. It
    /// holds the name of the value's kind, for errors.
    Other(&'static str),
}

pub(super) const TRUE: Scalar<'static> = Scalar::Other("true");
pub(super) const FALSE: Scalar<'static> = Scalar::Other("false");

impl Scalar<'_> {
    pub(super) fn as_number(&self) -> Option<Number> {
        match self {
            Self::Integer(number) => Some((*number).into()),
            Self::Number(number) => Some(*number),
            Self::Missing | Self::Text(_) | Self::Other(_) => None,
        }
    }

    pub(super) fn as_f64(&self) -> Option<f64> {
        self.as_number().map(Number::as_f64)
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Missing | Self::Integer(_) | Self::Number(_) | Self::Other(_) => None,
        }
    }

    /// Returns whether the value may state a hemisphere: a string, a boolean, a sign (1 or -1) or
    /// the ASCII code of `S` or `W`.
    #[inline]
    pub(super) fn may_be_hemisphere(&self) -> bool {
        match self {
            Self::Text(_) => true,
            Self::Integer(number) => matches!(number, -1 | 1 | 83 | 87),
            Self::Other(kind) => ["true", "false"].contains(kind),
            Self::Missing | Self::Number(_) => false,
        }
    }

    /// Returns whether this is a flag that is not set: false, 0, or a string such as `no`.
    #[inline]
    pub(super) fn is_unset(&self) -> bool {
        match self {
            Self::Integer(number) => *number == 0,
            Self::Text(text) => is_unset(text),
            Self::Other(kind) => *kind == "false",
            Self::Missing | Self::Number(_) => false,
        }
    }

    pub(super) const fn is_number(&self) -> bool {
        matches!(self, Self::Integer(_) | Self::Number(_))
    }

    /// Returns whether this is an array or an object.
    #[inline]
    pub(super) fn is_container(&self) -> bool {
        matches!(self, Self::Other("an object" | "an array" | "a deeply nested value"))
    }

    /// Returns a string, an integer or a boolean as text; an empty string for other values.
    pub(super) fn to_word(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Integer(number) => number.to_string().into(),
            Self::Other(kind) => Cow::Borrowed(kind),
            Self::Missing | Self::Number(_) => Cow::Borrowed(""),
        }
    }

    pub(super) const fn is_missing(&self) -> bool {
        matches!(self, Self::Missing)
    }

    /// Multiplies a number by a unit's factor; returns other values unchanged.
    #[inline]
    pub(super) fn times(self, factor: f64) -> Self {
        self.as_f64().map_or(self, |number| Self::Number((number * factor).into()))
    }

    /// Replaces a negative number by `Missing`, for formats in which -1 means unknown.
    #[inline]
    pub(super) fn unless_negative(self) -> Self {
        if self.as_number().is_some_and(Number::is_negative) { Self::Missing } else { self }
    }

    /// Parses a number in a string, for formats that send numbers as strings. Returns other values
    /// unchanged.
    #[inline(always)]
    pub(super) fn or_number_in_text(self) -> Self {
        if self.as_text().is_some() { self.number_in_text() } else { self }
    }

    /// Parses a number in a string. Not inlined, because most devices send numbers.
    #[inline(never)]
    fn number_in_text(self) -> Self {
        self.as_text().and_then(number).unwrap_or(self)
    }
}

/// Words for a flag that is not set.
pub(super) const UNSET_WORDS: [&str; 5] = ["false", "0", "no", "n", "f"];
/// Words for a flag that is not set, in other languages.
pub(super) const UNSET_IN_OTHER_LANGUAGES: [&str; 19] = [
    "nein",
    "non",
    "não",
    "nao",
    "nee",
    "nej",
    "nei",
    "nie",
    "falsch",
    "falso",
    "faux",
    "falsk",
    "onwaar",
    "fałsz",
    "нет",
    "ложь",
    "否",
    "いいえ",
    "아니요",
];

/// Returns whether a string states that a flag is not set: `false`, `no`, `f`, `n`, `0`, or a word
/// of another language.
#[must_use]
pub fn is_unset(text: &str) -> bool {
    // No word of either list is longer. Longer strings are not copied to lower case.
    const BYTES_MAX: usize = 12;
    text.len() <= 5 && UNSET_WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
        || (3..=BYTES_MAX).contains(&text.len())
            && UNSET_IN_OTHER_LANGUAGES.contains(&&*text.to_lowercase())
}

/// Parses a decimal number, with or without an exponent. `None` for other strings, such as `inf`
/// and `nan`.
pub(super) fn number(text: &str) -> Option<Scalar<'static>> {
    let text = text.trim_ascii();
    if let Some(number) = Number::of_decimal(text.as_bytes()) {
        return Some(Scalar::Number(number));
    }
    let integer = text.parse().ok().map(Scalar::Integer);
    integer.or_else(|| {
        let is_part = |byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        text.bytes().all(is_part).then_some(())?;
        text.parse().ok().map(|number: f64| Scalar::Number(number.into()))
    })
}

/// Returns the value of one unit in the last digit of a number: 1e7 for `1.79555E+12`. `None` if
/// the number has no exponent.
pub(super) fn resolution(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.trim_ascii().split_once(['e', 'E'])?;
    let decimals = mantissa.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let exponent: i32 = exponent.parse().ok()?;
    Some(10_f64.powi(exponent.saturating_sub(i32::try_from(decimals).unwrap_or(i32::MAX))))
}

/// Returns the value, in seconds, of one unit in the last digit of a time. `None` if the time has
/// no exponent, or if the result is at most one second.
pub(super) fn coarse_resolution_s(text: &str, unit: TimeUnit) -> Option<f64> {
    let (value, resolution) = (number(text)?.as_f64()?, resolution(text)?);
    let per_second = match unit {
        TimeUnit::BySize => match value.abs() {
            ..1e11 => 1.0,
            ..1e14 => 1e3,
            ..1e17 => 1e6,
            _ => 1e9,
        },
        TimeUnit::Milliseconds => 1e3,
        TimeUnit::Microseconds => 1e6,
        TimeUnit::Nanoseconds => 1e9,
        TimeUnit::Seconds | TimeUnit::Rfc3339 | TimeUnit::Pattern => 1.0,
    };
    Some(resolution / per_second).filter(|seconds| *seconds > 1.0)
}

impl fmt::Display for Scalar<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("missing"),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Number(number) => write!(f, "{}", number.as_f64()),
            Self::Text(text) => write!(f, "\"{}\"", excerpt(text, TEXT_CHARS_MAX)),
            Self::Other("true" | "false") => f.write_str("a boolean"),
            Self::Other(kind) => f.write_str(kind),
        }
    }
}
