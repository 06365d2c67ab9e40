//! JSON values borrowed from the payload: a scalar, a string, an array's elements.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::pipeline::number::Number;

/// Limit for a client's string in an error.
const TEXT_CHARS_MAX: usize = 40;

pub(super) fn excerpt(text: &str, chars_max: usize) -> String {
    text.chars().take(chars_max).collect()
}

/// A string, borrowed from the payload unless it holds escapes.
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// A JSON value, as far as a field can use it. `null` counts as missing.
#[derive(Debug, Default)]
pub(super) enum Scalar<'a> {
    #[default]
    Missing,
    Integer(i64),
    /// No integer, or -0, or one beyond `i64`.
    Number(Number),
    Text(Cow<'a, str>),
    Other(&'static str),
}

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

    pub(super) const fn is_missing(&self) -> bool {
        matches!(self, Self::Missing)
    }

    /// Converts a number to another unit; other values stay.
    pub(super) fn times(self, factor: f64) -> Self {
        self.as_f64().map_or(self, |number| Self::Number((number * factor).into()))
    }

    /// For formats that send -1 for unknown.
    pub(super) fn unless_negative(self) -> Self {
        if self.as_f64().is_some_and(|number| number < 0.0) { Self::Missing } else { self }
    }

    /// For formats that send numbers as strings.
    pub(super) fn or_number_in_text(self) -> Self {
        match &self {
            Self::Text(text) => number(text).unwrap_or(self),
            Self::Missing | Self::Integer(_) | Self::Number(_) | Self::Other(_) => self,
        }
    }
}

/// A decimal number; neither "inf" nor "nan".
pub(super) fn number(text: &str) -> Option<Scalar<'static>> {
    let text = text.trim_ascii();
    let integer = text.parse().ok().map(Scalar::Integer);
    integer.or_else(|| {
        text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte)).then_some(())?;
        text.parse().ok().map(|number: f64| Scalar::Number(number.into()))
    })
}

impl fmt::Display for Scalar<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("missing"),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Number(number) => write!(f, "{}", number.as_f64()),
            Self::Text(text) => write!(f, "\"{}\"", excerpt(text, TEXT_CHARS_MAX)),
            Self::Other(kind) => f.write_str(kind),
        }
    }
}

impl<'de> Deserialize<'de> for Scalar<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Scalar::Missing)
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Scalar::Integer(number))
    }

    #[expect(clippy::cast_precision_loss, reason = "beyond i64 nothing fits any field")]
    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(i64::try_from(number).map_or(Scalar::Number((number as f64).into()), Scalar::Integer))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Scalar::Number(number.into()))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Scalar::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Scalar::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Scalar::Other("a boolean"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Scalar::Other("an array"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Scalar::Other("an object"))
    }
}

/// The elements of an array as raw JSON, so that an invalid one does not reject its neighbours. Elements beyond the limit are only
/// counted.
pub(super) struct RawPoints<'a> {
    pub(super) kept: Vec<&'a RawValue>,
    pub(super) count: usize,
}

impl<'a> RawPoints<'a> {
    pub(super) fn read(json: &'a str, points_max: usize) -> serde_json::Result<Self> {
        let mut deserializer = serde_json::Deserializer::from_str(json);
        let points = deserializer.deserialize_seq(RawPointsVisitor { points_max })?;
        deserializer.end()?;
        Ok(points)
    }
}

struct RawPointsVisitor {
    points_max: usize,
}

impl<'de> Visitor<'de> for RawPointsVisitor {
    type Value = RawPoints<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of points")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut points = RawPoints { kept: Vec::new(), count: 0 };
        while points.count < self.points_max
            && let Some(raw) = seq.next_element()?
        {
            points.kept.push(raw);
            points.count += 1;
        }
        if points.count == self.points_max {
            while seq.next_element::<IgnoredAny>()?.is_some() {
                points.count += 1;
            }
        }
        Ok(points)
    }
}
