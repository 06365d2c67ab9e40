//! Parses degrees in the notations and units of devices and files.

use crate::exponent;
use crate::json::{Scalar, number, resolution};
use crate::refusal::{Refusal, refuse};
use crate::reject::Reason;
use crate::unit::Quantity;

/// The unit of a coordinate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Degrees {
    /// Size of the unit in degrees; negative if a number without a sign is south or west.
    Factor(f64),
    /// `ddmm.mmmm`, as NMEA writes degrees and minutes.
    Minutes,
    /// `-ddmm.mmmm`: like `Minutes`, but a number without a sign is south or west.
    NegativeMinutes,
}

impl Degrees {
    /// Parses a unit of degrees.
    ///
    /// # Errors
    /// The unit is unknown; the error lists the valid ones.
    pub fn new(unit: &str) -> Result<Self, String> {
        // `-1 deg`: a number without a sign is south or west.
        let size = unit.strip_prefix('-').or_else(|| unit.strip_prefix('+')).unwrap_or(unit);
        let is_negative = unit.starts_with('-');
        if size == "ddmm.mmmm" {
            return Ok(if is_negative { Self::NegativeMinutes } else { Self::Minutes });
        }
        let sign = if is_negative { -1.0 } else { 1.0 };
        let factor = Quantity::Angle.factor(size).map(|factor| Self::Factor(sign * factor));
        factor.map_err(|why| why + "; or \"ddmm.mmmm\"")
    }

    /// Returns the unit without its sign, for the coordinate to which the sign does not apply.
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

    /// Returns whether the unit is `ddmm.mmmm`, with or without a sign.
    pub(super) fn has_minutes(self) -> bool {
        self.unsigned() == Self::Minutes
    }

    /// Checks the minutes of `ddmm.mmmm`.
    ///
    /// # Errors
    /// The minutes are 60 or more, so the number is in another unit.
    pub(super) fn check_minutes(self, value: &Scalar<'_>, slot: usize) -> Result<(), Refusal> {
        match value.as_f64().filter(|number| self.has_minutes() && number.abs() % 100.0 >= 60.0) {
            Some(number) => {
                let field = NAMES[slot];
                refuse(
                    Reason::WrongType,
                    format!(
                        "{field} {number} is not ddmm.mmmm, as it would have 60 minutes or more"
                    ),
                )
            }
            None => Ok(()),
        }
    }

    /// Returns the size of one unit in degrees; an approximation for `ddmm.mmmm`.
    pub(super) const fn factor(self) -> f64 {
        match self {
            Self::Factor(factor) => factor.abs(),
            Self::Minutes | Self::NegativeMinutes => 0.01,
        }
    }

    /// Converts a number in this unit to degrees; returns other values unchanged.
    pub(super) fn to_degrees(self, value: Scalar<'_>) -> Scalar<'_> {
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
pub(super) const HEMISPHERE_LETTERS: [[char; 2]; 2] = [['N', 'S'], ['E', 'W']];

/// Rejects degrees such as `70.25W` if the unit is negative: the unit's sign would move the point
/// to the other hemisphere.
pub(super) fn refuse_letter(value: &Scalar<'_>, slot: usize) -> Result<(), Refusal> {
    let has_letter = |text: &&str| {
        parse_notation(text, HEMISPHERE_LETTERS[slot]).is_some_and(|notation| notation.has_letter)
    };
    match value.as_text().filter(has_letter) {
        Some(text) => refuse(
            Reason::WrongType,
            format!(
                "{} {text:.20} has its own letter, and its unit is negative: remove the unit's \
                 sign",
                NAMES[slot]
            ),
        ),
        None => Ok(()),
    }
}

/// Parses degrees in the usual notations: `33.9°S`, `W 70 39.25`, `52°31'12"N`, `-33.9°`. Returns
/// other values unchanged. A number with only a letter, such as `3330.0S`, is in `unit`. `slot`: 0
/// for lat, 1 for lng; `has_unit`: the configuration states the unit.
///
/// # Errors
/// A number lost its last digits, or the text states degrees although `unit` is not degrees.
pub(super) fn coordinate(
    value: Scalar<'_>,
    slot: usize,
    unit: Degrees,
    has_unit: bool,
) -> Result<Scalar<'_>, Refusal> {
    let Some(text) = value.as_text() else { return Ok(value) };
    // Plain numbers, the common case.
    if text.bytes().all(|byte| byte.is_ascii_digit() || b"+-. ".contains(&byte)) {
        return Ok(value);
    }
    if resolution(text).is_some() && number(text).is_some() {
        return exponent::check_degrees(text, NAMES[slot], unit.factor()).map(|()| value);
    }
    let Some(notation) = parse_notation(text, HEMISPHERE_LETTERS[slot]) else { return Ok(value) };
    if notation.has_marks && unit.unsigned() != Degrees::Factor(1.0) {
        let field = NAMES[slot];
        return refuse(
            Reason::WrongType,
            format!(
                "{field} {text:.20} states degrees, but the unit is another one: remove the unit"
            ),
        );
    }
    if !notation.has_marks && !has_unit {
        refuse_minutes(text, notation.degrees, slot, unit)?;
    }
    Ok(Scalar::Number(notation.degrees.into()))
}

/// Rejects a number that may be degrees and minutes, such as `0030`. The hemisphere of this number
/// is in another field.
pub(super) fn refuse_padded(value: &Scalar<'_>, slot: usize, unit: Degrees) -> Result<(), Refusal> {
    let Some(text) = value.as_text() else { return Ok(()) };
    let degrees = number(text).and_then(|number| number.as_f64());
    degrees.map_or(Ok(()), |degrees| refuse_minutes(text, degrees, slot, unit))
}

/// Rejects an ambiguous number with a hemisphere. If at least four digits are before the point, the
/// number may be degrees, or degrees and minutes: `0030N` may be 30 degrees or 30 minutes.
/// `0075.5N` is accepted: it can only be degrees, because 75 minutes are too many.
fn refuse_minutes(text: &str, degrees: f64, slot: usize, unit: Degrees) -> Result<(), Refusal> {
    let digits = text.chars().skip_while(|c| !c.is_ascii_digit());
    let digits = digits.take_while(char::is_ascii_digit).count();
    let may_be_degrees = degrees.abs() <= [90.0, 180.0][slot];
    let may_be_minutes = degrees.abs() % 100.0 < 60.0;
    let is_degrees = unit.unsigned() == Degrees::Factor(1.0);
    if digits > 3 && may_be_degrees && may_be_minutes && is_degrees {
        let field = NAMES[slot];
        return refuse(
            Reason::WrongType,
            format!(
                "{field} {text:.20} may be degrees and minutes: set lat_unit = \"ddmm.mmmm\" or \
                 lat_unit = \"deg\", or give --unit lat=ddmm.mmmm or lat=deg; or write degrees \
                 without zeros before them"
            ),
        );
    }
    Ok(())
}

/// A coordinate that was parsed from a notation with marks or a letter.
struct Notation {
    /// Degrees; without marks, a number in the unit of the field.
    degrees: f64,
    /// Marks or spaces separate degrees and minutes, or state degrees.
    has_marks: bool,
    has_letter: bool,
}

/// Parses degrees with a letter or a degree sign; `None` if the text is anything else.
fn parse_notation(text: &str, [positive, negative]: [char; 2]) -> Option<Notation> {
    let text = text.trim().to_uppercase();
    let is_letter = |c: char| c == positive || c == negative;
    let letter = text.chars().find(|c| is_letter(*c));
    let (rest, is_negative) = match letter {
        Some(letter) => {
            let rest = text.strip_prefix(letter).or_else(|| text.strip_suffix(letter))?;
            (rest, letter == negative)
        }
        None if text.contains(['°', 'º']) => {
            let unsigned = text.strip_prefix(['-', '−']);
            (unsigned.or_else(|| text.strip_prefix('+')).unwrap_or(&text), unsigned.is_some())
        }
        None => return None,
    };
    let rest = rest.trim();
    let has_marks = rest.contains(|c: char| !c.is_ascii_digit() && c != '.');
    let parts = split_marks(rest)?;
    let max = if has_marks { 180.0 } else { f64::MAX };
    let mut degrees = 0.0;
    for (part, (per_degree, max)) in parts.iter().zip([(1.0, max), (60.0, 60.0), (3_600.0, 60.0)]) {
        let number = Some(*part).filter(|number| *number <= max)?;
        degrees += number / per_degree;
    }
    let degrees = if is_negative { -degrees } else { degrees };
    Some(Notation { degrees, has_marks, has_letter: letter.is_some() })
}

/// Splits `52°31'12.5"` into degrees, minutes and seconds. A mark, a space or a colon follows each
/// number; after the last number, it may be missing. `50°47'.32` is 47.32 minutes, as in almanacs.
/// `None`: a mark is unknown or in the wrong place, or a number before the last one has a fraction.
fn split_marks(text: &str) -> Option<Vec<f64>> {
    const MARKS: [&[&str]; 3] = [
        &["", ":", "°", "º"],
        &["", ":", "'", "′", "’"],
        &["", ":", "\"", "″", "”", "''", "′′", "’’", "'", "′", "’"],
    ];
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let (mut numbers, mut rest) = (Vec::<String>::new(), text);
    while !rest.is_empty() {
        if numbers.last().is_some_and(|before| before.contains('.')) {
            return None;
        }
        let (number, after) = rest.split_at(rest.find(|c| !is_number(c)).unwrap_or(rest.len()));
        let (mark, after) = after.split_at(after.find(is_number).unwrap_or(after.len()));
        let (mark, marks) = (mark.trim(), MARKS.get(numbers.len()));
        match numbers.last_mut() {
            // A fraction after the mark of its number.
            Some(before) if number.starts_with('.') => {
                before.push_str(Some(number).filter(|_| mark.is_empty())?);
            }
            _ if marks?.contains(&mark) => numbers.push(number.to_owned()),
            _ => return None,
        }
        rest = after;
    }
    let numbers: Option<Vec<f64>> = numbers.iter().map(|number| number.parse().ok()).collect();
    numbers.filter(|numbers| !numbers.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn degrees_in_text_may_name_their_hemisphere() {
        for (text, slot, expected) in [
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
            // Each mark stands for its unit.
            ("50°47'.32N", 0, Some(50.0 + 47.32 / 60.0)),
            ("50 47 .32 N", 0, Some(50.0 + 47.32 / 60.0)),
            ("50°.5N", 0, Some(50.5)),
            ("33°56'12\".5S", 0, Some(-(33.0 + 56.0 / 60.0 + 12.5 / 3_600.0))),
            ("33° 56' 12'' S", 0, Some(-(33.0 + 56.0 / 60.0 + 12.0 / 3_600.0))),
            ("33°56′12′′S", 0, Some(-(33.0 + 56.0 / 60.0 + 12.0 / 3_600.0))),
            ("33° 56 12 S", 0, Some(-(33.0 + 56.0 / 60.0 + 12.0 / 3_600.0))),
            ("33°56'12'S", 0, Some(-(33.0 + 56.0 / 60.0 + 12.0 / 3_600.0))),
            ("N52°31.2", 0, Some(52.52)),
            ("52° 31.2'N", 0, Some(52.52)),
            ("33°56\"S", 0, None),
            ("26'S", 0, None),
            ("50'30\"N", 0, None),
            ("50°47.3'.32N", 0, None),
            ("50°47'.32'N", 0, None),
            ("50°47°N", 0, None),
            ("50.5 30 N", 0, None),
            ("1 2 3 4 N", 0, None),
            (". N", 0, None),
        ] {
            let read =
                parse_notation(text, HEMISPHERE_LETTERS[slot]).map(|notation| notation.degrees);
            let is_equal = match (read, expected) {
                (Some(read), Some(expected)) => (read - expected).abs() < 1e-12,
                (read, expected) => read == expected,
            };
            assert!(is_equal, "{text}: {read:?}");
        }
    }

    #[test]
    fn degree_sign_needs_no_letter_and_allows_no_other_unit() {
        let read = |text: &str, unit: &str| {
            let unit = Degrees::new(unit).unwrap();
            let value = coordinate(Scalar::Text(text.into()), 0, unit, false);
            value.map(|value| unit.to_degrees(value.or_number_in_text()).as_f64())
        };
        for (text, unit, expected) in [
            ("52.5°", "deg", Some(52.5)),
            ("-33.9°", "deg", Some(-33.9)),
            ("−33°54'", "deg", Some(-33.9)),
            ("-0°30'", "deg", Some(-0.5)),
            ("+52°30'36\"", "deg", Some(52.51)),
            ("70.25°", "-1 deg", Some(-70.25)),
            ("3330.0S", "ddmm.mmmm", Some(-33.5)),
            ("3330.0", "ddmm.mmmm", Some(33.5)),
            ("335000000S", "1e-7 deg", Some(-33.5)),
            // Ambiguous: which number has the decimals, and are these degrees at all?
            ("52.5°30'", "deg", None),
            ("52'30", "deg", None),
            ("52:30:00", "deg", None),
            ("52°70'", "deg", None),
            ("--52°", "deg", None),
            ("52°°N S", "deg", None),
        ] {
            assert_eq!(read(text, unit).ok().flatten(), expected, "{text} {unit}");
        }
        for unit in ["ddmm.mmmm", "1e-7 deg", "rad", "-ddmm.mmmm"] {
            for text in ["33.5°", "33°30'S", "33 30 S"] {
                let why = read(text, unit).unwrap_err().detail;
                assert!(why.contains("remove the unit"), "{text} {unit}: {why}");
            }
        }
    }
}
