//! A field of `[fields.NAME]`, and the types that its column can have.

use std::fmt::{self, Display};

/// Maximum number of an Enum8's values.
const ENUM_VALUES_MAX: usize = 128;

/// A field of `[fields.NAME]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Name of the column.
    pub name: String,
    /// Paths in the payload, written as in `keep`. The first path that has a value is used.
    pub from: Vec<String>,
    pub kind: FieldType,
    /// Description in the column's comment; empty if none.
    pub comment: String,
    /// Unit of the value; empty if none.
    pub unit: String,
    /// Smallest valid value; only for numbers.
    pub min: Option<f64>,
    /// Largest valid value; only for numbers.
    pub max: Option<f64>,
    /// Values that the device sends for "unknown".
    pub unknown: Vec<String>,
}

/// Type of a field's column, which may be NULL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldType {
    /// Bits: 8, 16, 32 or 64.
    Int(u8),
    /// Bits: 8, 16, 32 or 64.
    UInt(u8),
    /// Bits: 32 or 64.
    Float(u8),
    Bool,
    String,
    LowCardinality,
    /// A time in UTC, in milliseconds.
    DateTime64,
    /// Names with their numbers, ordered by number.
    Enum8(Vec<(String, i8)>),
}

impl FieldType {
    /// The part of an error that lists the valid types.
    pub(super) const EXPECTED: &str = "must be UInt8 to UInt64, Int8 to Int64, Float32, Float64, \
        Bool, String, LowCardinality(String), DateTime64(3) or Enum8('off' = 0, 'on' = 1)";

    /// Parses a type.
    ///
    /// # Errors
    /// The type is not valid. The error lists the valid types.
    pub fn parse(text: &str) -> Result<Self, String> {
        let plain: String = text.split_whitespace().collect();
        Ok(match &*plain {
            "Bool" => Self::Bool,
            "String" => Self::String,
            "LowCardinality(String)" => Self::LowCardinality,
            "DateTime64(3)" | "DateTime64(3,'UTC')" => Self::DateTime64,
            "Float32" => Self::Float(32),
            "Float64" => Self::Float(64),
            "Int8" => Self::Int(8),
            "Int16" => Self::Int(16),
            "Int32" => Self::Int(32),
            "Int64" => Self::Int(64),
            "UInt8" => Self::UInt(8),
            "UInt16" => Self::UInt(16),
            "UInt32" => Self::UInt(32),
            "UInt64" => Self::UInt(64),
            _ if plain.starts_with("Nullable(") => {
                return Err(format!("\"{text}\": leave Nullable out: every field may be NULL"));
            }
            _ if plain.starts_with("Enum8(") => return enum8(text),
            _ => return Err(format!("\"{text}\": {}", Self::EXPECTED)),
        })
    }

    /// Returns the smallest and the largest number; `None` if the type holds no numbers.
    #[must_use]
    pub fn number_range(&self) -> Option<[f64; 2]> {
        match self {
            Self::Int(bits) => {
                let half = 2_f64.powi(i32::from(*bits) - 1);
                Some([-half, half - 1.0])
            }
            Self::UInt(bits) => Some([0.0, 2_f64.powi(i32::from(*bits)) - 1.0]),
            Self::Float(32) => Some([f64::from(f32::MIN), f64::from(f32::MAX)]),
            Self::Float(_) => Some([f64::MIN, f64::MAX]),
            Self::Bool
            | Self::String
            | Self::LowCardinality
            | Self::DateTime64
            | Self::Enum8(_) => None,
        }
    }
}

impl Display for FieldType {
    /// Writes the type as ClickHouse does, without `Nullable`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(bits) => write!(f, "Int{bits}"),
            Self::UInt(bits) => write!(f, "UInt{bits}"),
            Self::Float(bits) => write!(f, "Float{bits}"),
            Self::Bool => f.write_str("Bool"),
            Self::String => f.write_str("String"),
            Self::LowCardinality => f.write_str("LowCardinality(String)"),
            Self::DateTime64 => f.write_str("DateTime64(3, 'UTC')"),
            Self::Enum8(values) => {
                let values: Vec<String> =
                    values.iter().map(|(name, number)| format!("'{name}' = {number}")).collect();
                write!(f, "Enum8({})", values.join(", "))
            }
        }
    }
}

/// Parses `Enum8('off' = 0, 'on' = 1)`, or `Enum8('off', 'on')`, which counts from 1 as in
/// ClickHouse.
fn enum8(text: &str) -> Result<FieldType, String> {
    let expected = || {
        format!(
            "\"{text}\": must be like Enum8('off' = 0, 'on' = 1), with names of letters, digits, \
             spaces, _ and -, each once, and numbers in -128..=127, each once"
        )
    };
    let list = text.trim().strip_prefix("Enum8").map(str::trim_start);
    let list =
        list.and_then(|list| list.strip_prefix('(')?.strip_suffix(')')).ok_or_else(expected)?;
    let mut values: Vec<(String, i8)> = Vec::new();
    let mut next = 1_i16;
    for value in list.split(',') {
        let (name, number) = match value.split_once('=') {
            Some((name, number)) => (name, number.trim().parse().map_err(|_| expected())?),
            None => (value, next),
        };
        let name = name.trim().strip_prefix('\'').and_then(|name| name.strip_suffix('\''));
        let name = name.ok_or_else(expected)?;
        let is_name = !name.is_empty()
            && name.chars().all(|c| c.is_alphanumeric() || matches!(c, ' ' | '_' | '-'));
        let number_i8 = i8::try_from(number).map_err(|_| expected())?;
        let is_taken = |(other_name, other_number): &(String, i8)| {
            other_name == name || *other_number == number_i8
        };
        if !is_name || values.iter().any(is_taken) {
            return Err(expected());
        }
        values.push((name.to_owned(), number_i8));
        next = number + 1;
    }
    if values.len() > ENUM_VALUES_MAX {
        return Err(format!("must be an Enum8 of at most {ENUM_VALUES_MAX} values"));
    }
    values.sort_by_key(|(_, number)| *number);
    Ok(FieldType::Enum8(values))
}
