//! Finds the driver's id in the topic or the payload.

use std::borrow::Cow;

use super::extract::Pointer;
use super::json::{Scalar, excerpt, resolution};
use super::refusal::Refusal;
use super::topic::Levels;
use crate::position::{DRIVER_ID_RULE, DriverId, OutOfRange};
use crate::reject::Reason;

/// The place of a driver's id: levels of the topic, or a value of the payload.
#[derive(Debug, Clone)]
pub enum Driver {
    Topic(Template),
    Payload(Pointer),
}

/// The driver of a message: the id from the topic, or the pointer to the id in the payload.
pub(super) enum Named<'s> {
    InTopic(DriverId),
    InPayload(&'s Pointer, OtherBytes),
}

impl Named<'_> {
    /// Returns the id in the topic if the topic names the driver, otherwise the value at the
    /// pointer in an object. If the object has no such value, returns `fallback`.
    ///
    /// # Errors
    /// The value is not a driver id, or there is neither a value nor a `fallback`.
    pub(super) fn id(&self, json: &[u8], fallback: Option<DriverId>) -> Result<DriverId, Refusal> {
        match self.id_in(json)? {
            Some(id) => Ok(id),
            None => self.id_or(fallback),
        }
    }

    /// Returns the id in the topic, or else the id in an object; `None` if the object has no value
    /// at the pointer.
    ///
    /// # Errors
    /// The value is not a driver id.
    pub(super) fn id_in(&self, json: &[u8]) -> Result<Option<DriverId>, Refusal> {
        let (pointer, other_bytes) = match self {
            Self::InTopic(id) => return Ok(Some(*id)),
            Self::InPayload(pointer, other_bytes) => (pointer, *other_bytes),
        };
        let value = pointer.value(json)?;
        if let Scalar::Number(_) = value
            && let Some(raw) = pointer.raw(json)?
        {
            let id = whole_number(raw).ok_or(OutOfRange).and_then(DriverId::new);
            return id.map(Some).map_err(|OutOfRange| bad_id(pointer, raw));
        }
        if value.is_missing() {
            return Ok(None);
        }
        parse_id(pointer, other_bytes, &value).map(Some)
    }

    /// Returns the id in the topic, or else `fallback`.
    ///
    /// # Errors
    /// The payload must name the driver, and there is no `fallback`.
    pub(super) fn id_or(&self, fallback: Option<DriverId>) -> Result<DriverId, Refusal> {
        match self {
            Self::InTopic(id) => Ok(*id),
            Self::InPayload(pointer, other_bytes) => {
                fallback.map_or_else(|| parse_id(pointer, *other_bytes, &Scalar::Missing), Ok)
            }
        }
    }
}

/// Parses `value`, which the payload has at `pointer`, as a driver id.
pub(super) fn parse_id(
    pointer: &Pointer,
    other_bytes: OtherBytes,
    value: &Scalar<'_>,
) -> Result<DriverId, Refusal> {
    let id = match value {
        Scalar::Text(text) if is_rounded(text) || means_none(text) => Err(OutOfRange),
        Scalar::Text(text) if has_exponent(text) => {
            whole_number(text.trim_ascii()).ok_or(OutOfRange).and_then(DriverId::new)
        }
        Scalar::Text(text) => other_bytes.id(text),
        Scalar::Integer(number) => DriverId::new(number.to_string()),
        Scalar::Missing | Scalar::Number(_) | Scalar::Other(_) => Err(OutOfRange),
    };
    id.map_err(|OutOfRange| match value {
        Scalar::Text(text) => bad_id(pointer, text),
        Scalar::Missing | Scalar::Integer(_) | Scalar::Number(_) | Scalar::Other(_) => {
            Refusal::new(
                Reason::BadDriver,
                format!("{} is {value}; {DRIVER_ID_RULE}", pointer.as_str()),
            )
        }
    })
}

fn bad_id(pointer: &Pointer, value: &str) -> Refusal {
    let at = pointer.as_str();
    let value = excerpt(value, 40);
    Refusal::new(
        Reason::BadDriver,
        if is_rounded(&value) || value.parse::<f64>().is_ok() && resolution(&value).is_some() {
            format!(
                "{at} is {value}, a number that has lost its last digits: send or save it as text"
            )
        } else if means_none(&value) {
            format!("{at} is {value:?}, which means that there is none: send the driver's id")
        } else {
            format!(
                "{at} is {value:?}; {DRIVER_ID_RULE}; to map other bytes, set driver_other of the \
                 source"
            )
        },
    )
}

/// Returns whether a string is a rounded number: a spreadsheet writes `3.56307E+14` for an id of 15
/// digits. Returns `false` for a string without `.`, `,` and `+`: `12e3` may be an id in
/// hexadecimal.
fn is_rounded(text: &str) -> bool {
    let begins_number = text.trim_ascii_start().starts_with(|c: char| "+-.,0123456789".contains(c));
    let has_mark = || text.bytes().any(|byte| b".,+".contains(&byte));
    begins_number
        && has_mark()
        && resolution(&text.replace(',', ".")).is_some_and(|last| last > 1.0)
}

/// Returns whether a string is a number with a decimal point and an exponent, such as `1.001E3`.
fn has_exponent(text: &str) -> bool {
    let begins_number = text.trim_ascii_start().starts_with(|c: char| c.is_ascii_digit());
    begins_number && text.contains('.') && resolution(text).is_some()
}

/// Returns whether a string is a program's word for a missing value, such as `NULL` or `None`. If
/// the word were accepted as an id, all fixes without a driver would belong to one driver.
fn means_none(text: &str) -> bool {
    let text = text.trim_ascii();
    text.len() <= 9
        && text.starts_with(['n', 'N', 'u', 'U', '-'])
        && (text.bytes().all(|byte| byte == b'-')
            || ["null", "none", "nan", "undefined"]
                .iter()
                .any(|word| text.eq_ignore_ascii_case(word)))
}

/// Returns the digits of a JSON number that is whole: `18446744073709551615`, `356307042441013.0`,
/// `3.5630704e7`. Returns `None` if the number is negative, has a fraction or a negative exponent,
/// or has an exponent that adds zeros that were not sent.
fn whole_number(raw: &str) -> Option<String> {
    let (mantissa, exponent) = raw.split_once(['e', 'E']).unwrap_or((raw, "0"));
    let (whole, decimals) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent = exponent.parse::<usize>().ok()?;
    let (shifted, fraction) = decimals.split_at_checked(exponent)?;
    let is_whole = fraction.bytes().all(|digit| digit == b'0');
    if !is_whole || raw.starts_with('-') {
        return None;
    }
    let digits = format!("{whole}{shifted}");
    // Leading zeros do not count: `0.5e1` is 5, not 05.
    let significant = digits.trim_start_matches('0');
    Some(if significant.is_empty() { "0".to_owned() } else { significant.to_owned() })
}

/// The treatment of bytes that a driver id must not contain, such as the @ of an e-mail address.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum OtherBytes {
    #[default]
    Refused,
    /// Each such character becomes `_`, so two ids may become one.
    Underscore,
    /// Each such byte becomes `_` and two hexadecimal digits: `jo@x.org` becomes `jo_40x.org`.
    Hexadecimal,
}

impl OtherBytes {
    /// Parses the configured value.
    ///
    /// # Errors
    /// The value is unknown; the error lists the valid ones.
    pub fn new(name: &str) -> Result<Self, String> {
        Ok(match name {
            "reject" => Self::Refused,
            "_" => Self::Underscore,
            "hex" => Self::Hexadecimal,
            _ => return Err(format!("\"{name}\": must be \"hex\", \"_\" or \"reject\"")),
        })
    }

    fn is_allowed(c: char) -> bool {
        c.is_ascii() && DriverId::new(c.encode_utf8(&mut [0; 4])).is_ok()
    }

    /// Parses an id, and maps its other bytes if the operator chose a mapping.
    pub(super) fn id(self, text: &str) -> Result<DriverId, OutOfRange> {
        let id = DriverId::new(text);
        if id.is_ok() || self == Self::Refused {
            return id;
        }
        let mut mapped = String::new();
        for c in text.chars() {
            match self {
                _ if Self::is_allowed(c) => mapped.push(c),
                Self::Hexadecimal => {
                    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                        mapped.push_str(&format!("_{byte:02X}"));
                    }
                }
                Self::Underscore | Self::Refused => mapped.push('_'),
            }
        }
        DriverId::new(mapped)
    }
}

/// A template for a driver's id from the levels of a topic: `{1}` is the level that the first `+`
/// matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Level(usize),
}

impl Template {
    /// Creates the template `{1}`.
    #[must_use]
    pub fn first() -> Self {
        Self(vec![Part::Level(0)])
    }

    /// Parses a template for a filter with this many `+`.
    ///
    /// # Errors
    /// The template is invalid; the error says why.
    pub fn new(text: &str, pluses: usize) -> Result<Self, String> {
        let (mut parts, mut literals) = (Vec::new(), String::new());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let invalid = || format!("\"{text}\": must be such as \"{{1}}\" or \"{{1}}:{{2}}\"");
            let (number, after) = after.split_once('}').ok_or_else(invalid)?;
            let number: usize = number.parse().map_err(|_| invalid())?;
            if number == 0 || number > pluses {
                return Err(format!(
                    "\"{text}\": there is no {{{number}}}: the topic has {pluses} `+`"
                ));
            }
            literals.push_str(before);
            parts.extend([Part::Text(before.to_owned()), Part::Level(number - 1)]);
            rest = after;
        }
        if parts.is_empty() {
            return Err(format!(
                "\"{text}\": must contain a level of the topic such as \"{{1}}\", or be a JSON \
                 pointer such as \"/device/id\""
            ));
        }
        literals.push_str(rest);
        if !literals.is_empty() && DriverId::new(&literals).is_err() {
            return Err(format!("\"{text}\": a driver id has only A-Z a-z 0-9 . _ : -"));
        }
        parts.push(Part::Text(rest.to_owned()));
        parts.retain(|part| *part != Part::Text(String::new()));
        Ok(Self(parts))
    }

    /// Returns whether the template is `{1}` alone.
    pub(super) fn is_first_level(&self) -> bool {
        self.0 == [Part::Level(0)]
    }

    /// Fills in the levels. Returns an empty id if a level that the template uses is empty.
    pub(super) fn fill<'l>(&self, levels: &Levels<'l>) -> Cow<'l, str> {
        if let [Part::Level(level)] = &self.0[..] {
            return levels[*level].into();
        }
        let mut id = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => id.push_str(text),
                Part::Level(level) if levels[*level].is_empty() => return "".into(),
                Part::Level(level) => id.push_str(levels[*level]),
            }
        }
        id.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounded_number_has_an_exponent_and_a_point_comma_or_plus() {
        for id in ["car.e7", "jo.ne5", "12e3", "356307042441013", "1.5"] {
            assert!(!is_rounded(id), "{id}");
        }
        for id in ["3.56307E+14", " 3.56307E14", "3,56307E+14", "+.5e9", "4E+14"] {
            assert!(is_rounded(id), "{id}");
        }
    }

    #[test]
    fn id_is_kept_unless_it_is_a_decimal_with_exponent_or_means_none() {
        let pointer = Pointer::new("/driver_id").expect("a pointer");
        let id = |text: &str| {
            parse_id(&pointer, OtherBytes::Refused, &Scalar::Text(text.into()))
                .map(|id| id.as_str().to_owned())
                .map_err(|refusal| refusal.detail)
        };
        for (text, expected) in [
            ("1.001E3", "1001"),
            ("3.56307042441013E14", "356307042441013"),
            ("12e3", "12e3"),
            ("1.5", "1.5"),
            ("4.e7b", "4.e7b"),
            ("Nana", "Nana"),
            ("none-1", "none-1"),
            ("-7", "-7"),
            ("a--b", "a--b"),
        ] {
            assert_eq!(id(text).expect(text), expected);
        }
        for text in ["NULL", "null", "None", "nan", "NaN", "undefined", "-", "--", "1.0005E3"] {
            let detail = id(text).expect_err(text);
            let is_none = detail.contains("there is none");
            assert_eq!(is_none, text != "1.0005E3", "{text}: {detail}");
        }
    }
}
