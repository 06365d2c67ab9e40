//! Degrees in the notations and units in which devices and files write them.

use crate::exponent;
use crate::json::{Scalar, number, resolution};
use crate::refusal::{Refusal, refuse};
use crate::reject::Reason;
use crate::unit::Quantity;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Degrees {
    Factor(f64),
    /// `ddmm.mmmm`, as NMEA writes degrees and minutes.
    Minutes,
    /// `-ddmm.mmmm`: the same numbers, of the southern or western half without a sign.
    NegativeMinutes,
}

impl Degrees {
    /// Parses a unit of degrees.
    ///
    /// # Errors
    /// The list of valid units.
    pub fn new(unit: &str) -> Result<Self, String> {
        // `-1 deg`: numbers of the southern or western half without a sign.
        let size = unit.strip_prefix('-').or_else(|| unit.strip_prefix('+')).unwrap_or(unit);
        let is_negative = unit.starts_with('-');
        if size == "ddmm.mmmm" {
            return Ok(if is_negative { Self::NegativeMinutes } else { Self::Minutes });
        }
        let sign = if is_negative { -1.0 } else { 1.0 };
        let factor = Quantity::Angle.factor(size).map(|factor| Self::Factor(sign * factor));
        factor.map_err(|why| why + "; or \"ddmm.mmmm\"")
    }

    /// Returns the unit without its sign: that of the other coordinate, whose half of the earth
    /// the sign does not concern.
    #[must_use]
    pub const fn unsigned(self) -> Self {
        match self {
            Self::Factor(factor) => Self::Factor(factor.abs()),
            Self::Minutes | Self::NegativeMinutes => Self::Minutes,
        }
    }

    pub(super) fn is_negative(self) -> bool {
        self != self.unsigned()
    }

    /// Returns about how many degrees one unit has.
    pub(super) const fn factor(self) -> f64 {
        match self {
            Self::Factor(factor) => factor.abs(),
            Self::Minutes | Self::NegativeMinutes => 0.01,
        }
    }

    pub(super) fn read(self, value: Scalar<'_>) -> Scalar<'_> {
        match self {
            Self::Factor(1.0) => value,
            Self::Factor(factor) => value.times(factor),
            Self::Minutes | Self::NegativeMinutes => {
                let sign = if self.is_negative() { -1.0 } else { 1.0 };
                let read = |number: f64| {
                    let degrees = (number / 100.0).trunc();
                    Scalar::Number((sign * (degrees + (number - degrees * 100.0) / 60.0)).into())
                };
                value.as_f64().map_or(value, read)
            }
        }
    }
}

/// Names of the coordinates by slot.
const NAMES: [&str; 2] = ["lat", "lng"];
/// Letters of the hemispheres, the positive one first.
pub(super) const HALVES: [[char; 2]; 2] = [['N', 'S'], ['E', 'W']];

/// Rejects degrees such as `70.25W` in a negative unit, which would move them to the other half of
/// the earth.
pub(super) fn refuse_letter(value: &Scalar<'_>, slot: usize) -> Result<(), Refusal> {
    match value.as_text().filter(|text| degrees_in(text, HALVES[slot]).is_some()) {
        Some(text) => refuse(
            Reason::WrongType,
            format!(
                "{} {text:.20} has its own letter, and its unit is negative: remove the unit's sign",
                NAMES[slot]
            ),
        ),
        None => Ok(()),
    }
}

/// Parses degrees in the usual notations, `33.9°S`, `W 70 39.25`, `52°31'12"N`; returns other
/// values unchanged. `slot`: of lat or lng. `factor`: degrees of one unit.
pub(super) fn coordinate(
    value: Scalar<'_>,
    slot: usize,
    factor: f64,
) -> Result<Scalar<'_>, Refusal> {
    let Some(text) = value.as_text() else { return Ok(value) };
    // Plain numbers, the common case.
    if text.bytes().all(|byte| byte.is_ascii_digit() || b"+-. ".contains(&byte)) {
        return Ok(value);
    }
    match resolution(text).filter(|_| number(text).is_some()) {
        Some(_) => exponent::check_degrees(text, NAMES[slot], factor).map(|()| value),
        None => {
            let degrees = degrees_in(text, HALVES[slot]);
            Ok(degrees.map_or(value, |degrees| Scalar::Number(degrees.into())))
        }
    }
}

fn degrees_in(text: &str, [positive, negative]: [char; 2]) -> Option<f64> {
    let text = text.trim().to_uppercase();
    let is_letter = |c: char| c == positive || c == negative;
    let letter = text.chars().find(|c| is_letter(*c))?;
    let rest = text.strip_prefix(letter).or_else(|| text.strip_suffix(letter))?;
    let marks = |c: char| {
        c.is_whitespace() || matches!(c, '°' | 'º' | '\'' | '′' | '’' | '"' | '″' | '”' | ':')
    };
    let parts: Vec<&str> = rest.split(marks).filter(|part| !part.is_empty()).collect();
    let plain = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if parts.is_empty() || parts.len() > 3 || !parts.iter().all(plain) {
        return None;
    }
    let mut degrees = 0.0;
    for (part, (unit, max)) in parts.iter().zip([(1.0, 180.0), (60.0, 60.0), (3_600.0, 60.0)]) {
        let number: f64 = part.parse().ok().filter(|number| *number <= max)?;
        degrees += number / unit;
    }
    Some(if letter == negative { -degrees } else { degrees })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn degrees_in_text_have_a_half_of_the_earth() {
        for (text, half, expected) in [
            ("33.9S", 0, Some(-33.9)),
            ("33.9° s", 0, Some(-33.9)),
            ("N 52 30", 0, Some(52.5)),
            ("52°30'0\"N", 0, Some(52.5)),
            ("70°39.0'W", 1, Some(-70.65)),
            ("13:24:00E", 1, Some(13.4)),
            ("13.4", 1, None),
            ("13.4N", 1, None),
            ("13,4E", 1, None),
            ("-13.4E", 1, None),
            ("13 70 E", 1, None),
            ("E", 1, None),
            ("", 0, None),
        ] {
            assert_eq!(degrees_in(text, HALVES[half]), expected, "{text}");
        }
    }
}
