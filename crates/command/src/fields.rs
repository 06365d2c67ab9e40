//! Computes the values of `[fields.NAME]` without a server, as ClickHouse computes them. A test
//! compares the results.

use serde_json::{Value, json};

use super::times::rfc3339;
use milepost_config::{Field, FieldType};
use milepost_decode::attributes::Attributes;
use milepost_decode::position::Timestamp;
use milepost_decode::rfc3339 as parse_rfc3339;

/// Range of a DateTime64 column in milliseconds since 1970: the years 1900 to 2299.
const DATETIME64_MS: std::ops::RangeInclusive<f64> = -2_208_988_800_000.0..=10_413_791_999_999.0;

/// Returns the column's value; null if the attribute is missing, invalid or listed in `unknown`.
pub(super) fn column_value(field: &Field, attributes: &Attributes) -> Value {
    let attribute = source_attribute(field, attributes);
    attribute.and_then(|(_, raw)| parse_value(field, raw)).unwrap_or(Value::Null)
}

/// Returns the name and the value of the attribute from which the column is computed.
fn source_attribute<'a>(
    field: &'a Field,
    attributes: &'a Attributes,
) -> Option<(&'a str, &'a str)> {
    let attribute = |path: &'a String| attributes.iter().find(|(name, _)| name == path);
    field.from.iter().filter_map(attribute).find(|(_, value)| !value.is_empty())
}

/// Explains why the column is NULL although the device sent a value. Returns `None` if the column
/// is not NULL, or if the value is listed in `unknown`.
pub(super) fn explain_null(field: &Field, attributes: &Attributes) -> Option<String> {
    let (name, raw) = source_attribute(field, attributes)?;
    let number: Option<f64> = raw.parse().ok();
    let is_unknown =
        |listed: &String| listed == raw || number.is_some() && listed.parse().ok() == number;
    if field.unknown.iter().any(is_unknown) || parse_value(field, raw).is_some() {
        return None;
    }
    let unlimited = Field { min: None, max: None, ..field.clone() };
    let why = if field.kind == FieldType::DateTime64 && number.is_none() {
        "not RFC 3339: ClickHouse reads more forms, and stores NULL for others".to_owned()
    } else if parse_value(&unlimited, raw).is_some() {
        "outside min and max: stored as NULL".to_owned()
    } else {
        format!("not {}: stored as NULL", field.kind)
    };
    Some(format!("{name} is \"{raw:.60}\", {why}; attributes keep the text"))
}

/// Returns the column's value for this string; `None` if the string is invalid, or is listed in
/// `unknown`.
fn parse_value(field: &Field, raw: &str) -> Option<Value> {
    if let Some([lowest, highest]) = field.kind.number_range() {
        return parse_number(field, raw, lowest, highest);
    }
    if field.unknown.iter().any(|unknown| unknown == raw) {
        return None;
    }
    match &field.kind {
        FieldType::Bool => match &*raw.to_lowercase() {
            "true" | "1" | "on" | "yes" => Some(true.into()),
            "false" | "0" | "off" | "no" => Some(false.into()),
            _ => None,
        },
        FieldType::Enum8(values) => {
            let by_name = values.iter().find(|(name, _)| name == raw);
            let by_number = || values.iter().find(|(_, number)| number.to_string() == raw);
            by_name.or_else(by_number).map(|(name, _)| name.clone().into())
        }
        FieldType::DateTime64 => parse_timestamp(raw),
        FieldType::String
        | FieldType::LowCardinality
        | FieldType::Int(_)
        | FieldType::UInt(_)
        | FieldType::Float(_) => Some(raw.into()),
    }
}

/// Returns the value of a numeric column. `lowest`, `highest`: the limits of the column's type.
fn parse_number(field: &Field, raw: &str, lowest: f64, highest: f64) -> Option<Value> {
    let number: f64 = raw.parse().ok()?;
    let limits = field.min.unwrap_or(lowest)..=field.max.unwrap_or(highest);
    let mut unknown = field.unknown.iter().filter_map(|unknown| unknown.parse::<f64>().ok());
    if !limits.contains(&number) || unknown.any(|unknown| unknown == number) {
        return None;
    }
    if matches!(field.kind, FieldType::Float(_)) {
        return Some(json!(number));
    }
    // A float cannot hold all digits of a 64-bit integer, so parse the string once more.
    let whole = match raw.parse::<i128>() {
        Ok(whole) => whole,
        Err(_) if number.fract() == 0.0 => whole_number(number),
        Err(_) => return None,
    };
    // A float cannot represent the largest 64-bit integer: `highest` is one above that integer.
    if matches!(field.kind, FieldType::UInt(_)) {
        u64::try_from(whole).map(Value::from).ok()
    } else {
        i64::try_from(whole).map(Value::from).ok()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the number is whole, and at most 2^64")]
fn whole_number(number: f64) -> i128 {
    number as i128
}

/// Returns the value of a DateTime64 column, from a Unix time or an RFC 3339 string.
#[expect(clippy::cast_possible_truncation, reason = "the range was checked")]
fn parse_timestamp(raw: &str) -> Option<Value> {
    let ms = match raw.parse::<f64>() {
        Ok(number) => {
            // The magnitude of a number determines its unit: s, ms, µs or ns.
            let factor = match number.abs() {
                ..1e11 => 1_000.0,
                ..1e14 => 1.0,
                ..1e17 => 1e-3,
                _ => 1e-6,
            };
            (number * factor).round()
        }
        Err(_) => return parse_rfc3339(raw).map(rfc3339),
    };
    DATETIME64_MS.contains(&ms).then(|| rfc3339(Timestamp::from_unix_ms(ms as i64)))
}
