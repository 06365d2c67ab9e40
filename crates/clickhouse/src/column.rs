//! The column of one field: its type, its expression over `attributes`, its comment.

use std::fmt::Write as _;

use milepost_config::{Field, FieldType};

/// Beginning of the [`origin`], milepost's own part of a column's comment.
const MARK: &str = "[field from ";

/// Content of the comment of a field's column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldComment {
    pub comment: String,
    /// Unit of the value; empty if it has none.
    pub unit: String,
    /// Attributes that the value is computed from. The first attribute that is not empty is used.
    pub from: Vec<String>,
}

impl FieldComment {
    /// The string in the comment of every field's column by which a query finds these columns.
    pub const MARK: &str = MARK;

    /// Parses a comment such as `Charge, in per cent [field from batt; max 100]`. Returns `None` if
    /// the column does not belong to a field.
    #[must_use]
    pub fn parse(comment: &str) -> Option<Self> {
        let origin = origin_in(comment)?;
        let text = comment[..comment.len() - origin.len()].trim_end();
        let (description, unit) = match text.rsplit_once(", in ") {
            Some((description, unit)) => (description, unit),
            None => text.strip_prefix("in ").map_or((text, ""), |unit| ("", unit)),
        };
        let from = origin.strip_prefix(MARK)?.strip_suffix(']')?.split("; ").next()?;
        Some(Self {
            comment: description.to_owned(),
            unit: unit.to_owned(),
            from: from.split(", ").map(str::to_owned).collect(),
        })
    }
}

/// Returns the column's type.
pub(super) fn column_type(kind: &FieldType) -> String {
    match kind {
        FieldType::LowCardinality => "LowCardinality(Nullable(String))".to_owned(),
        FieldType::Int(_)
        | FieldType::UInt(_)
        | FieldType::Float(_)
        | FieldType::Bool
        | FieldType::String
        | FieldType::DateTime64
        | FieldType::Enum8(_) => format!("Nullable({kind})"),
    }
}

/// Returns the column's compression codec.
const fn codec(kind: &FieldType) -> &'static str {
    match kind {
        FieldType::Int(_) | FieldType::UInt(_) => "T64, ZSTD(1)",
        FieldType::DateTime64 => "Delta(8), ZSTD(1)",
        FieldType::Float(_)
        | FieldType::Bool
        | FieldType::String
        | FieldType::LowCardinality
        | FieldType::Enum8(_) => "ZSTD(1)",
    }
}

/// Returns the part of a column's comment that is in brackets: the attributes from which the field
/// is computed, its limits, and the values that mean "unknown", such as
/// `[field from batt; min 0; max 100]`. `migrate` refuses to change this part of an existing
/// column.
pub(super) fn origin(field: &Field) -> String {
    let mut origin = format!("{MARK}{}", field.from.join(", "));
    for (name, limit) in [("min", field.min), ("max", field.max)] {
        if let Some(limit) = limit {
            let _ = write!(origin, "; {name} {limit}");
        }
    }
    if !field.unknown.is_empty() {
        let _ = write!(origin, "; unknown {}", field.unknown.join(", "));
    }
    origin + "]"
}

/// Returns the column's comment: the configured comment, the unit, and the [`origin`].
pub(super) fn comment(field: &Field) -> String {
    let unit = if field.unit.is_empty() { String::new() } else { format!("in {}", field.unit) };
    let parts = [field.comment.clone(), unit];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    format!("{} {}", parts.join(", "), origin(field)).trim_start().to_owned()
}

/// Returns the [`origin`] at the end of a column's comment; `None` if the column does not belong to
/// a field.
pub(super) fn origin_in(comment: &str) -> Option<&str> {
    let at = comment.rfind(MARK)?;
    comment.ends_with(']').then(|| &comment[at..])
}

/// Quotes a string for a statement, whatever its characters.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", escaped(text, '\''))
}

/// Quotes a name for a statement, whatever its characters.
pub(super) fn identifier(name: &str) -> String {
    format!("`{}`", escaped(name, '`'))
}

fn escaped(text: &str, quote: char) -> String {
    text.replace('\\', "\\\\").replace(quote, &format!("\\{quote}"))
}

/// Joins values with commas.
pub(super) fn list(values: impl IntoIterator<Item = String>) -> String {
    values.into_iter().collect::<Vec<_>>().join(", ")
}

/// Returns the definition of the column in a table, without a comma.
pub(super) fn stored_definition(field: &Field) -> String {
    format!(
        "`{}` {} MATERIALIZED {} CODEC({}) COMMENT {}",
        field.name,
        column_type(&field.kind),
        expression(field),
        codec(&field.kind),
        quoted(&comment(field))
    )
}

/// Returns the definition of the column in a view, without a comma.
pub(super) fn shown_definition(field: &Field) -> String {
    format!("`{}` {} COMMENT {}", field.name, column_type(&field.kind), quoted(&comment(field)))
}

/// Returns an SQL expression for the first attribute in `from` that is not empty. If all are empty,
/// the expression is an empty string.
fn first_nonempty(from: &[String]) -> String {
    let attribute = |path: &String| format!("attributes[{}]", quoted(path));
    let Some((last, others)) = from.split_last() else { return "''".to_owned() };
    if others.is_empty() {
        return attribute(last);
    }
    let tried = others.iter().map(|path| format!("{0} != '', {0}", attribute(path)));
    format!("multiIf({}, {})", list(tried), attribute(last))
}

/// Returns the SQL expression of the column's value: NULL for a value that is invalid or declared
/// unknown.
fn expression(field: &Field) -> String {
    let raw = first_nonempty(&field.from);
    if let Some([least, most]) = field.kind.number_range() {
        return number_expression(field, &raw, least, most);
    }
    // A further condition: the value is not one of those that stand for unknown.
    let and_known = match &field.unknown[..] {
        [] => String::new(),
        unknown => format!(" AND {raw} NOT IN ({})", list(unknown.iter().map(|text| quoted(text)))),
    };
    match &field.kind {
        FieldType::Bool => format!(
            "multiIf(lower({raw}) IN ('true', '1', 'on', 'yes'){and_known}, true, \
             lower({raw}) IN ('false', '0', 'off', 'no'){and_known}, false, NULL)"
        ),
        FieldType::DateTime64 => time_expression(&raw, &and_known),
        FieldType::Enum8(values) => {
            // Devices send a value's name or number. If a name equals the number of another value,
            // the name wins.
            let is_name = |text: &String| values.iter().any(|(name, _)| name == text);
            let names = values.iter().map(|(name, _)| (name.clone(), name.clone()));
            let numbers = values.iter().map(|(name, number)| (number.to_string(), name.clone()));
            let numbers = numbers.filter(|(number, _)| !is_name(number));
            let (sent, names): (Vec<_>, Vec<_>) =
                names.chain(numbers).map(|(sent, name)| (quoted(&sent), quoted(&name))).unzip();
            let (sent, names) = (list(sent), list(names));
            let name = format!("transform({raw}, [{sent}], [{names}], '')");
            format!(
                "accurateCastOrNull(if({name} != ''{and_known}, {name}, NULL), {})",
                quoted(&field.kind.to_string())
            )
        }
        FieldType::String | FieldType::LowCardinality => {
            format!("if({raw} != ''{and_known}, {raw}, NULL)")
        }
        FieldType::Int(_) | FieldType::UInt(_) | FieldType::Float(_) => {
            unreachable!("`number_expression` handles numeric types")
        }
    }
}

/// Returns the SQL expression of a number. `least`, `most`: the limits of the column's type.
fn number_expression(field: &Field, raw: &str, least: f64, most: f64) -> String {
    let number = format!("toFloat64OrNull({raw})");
    let (min, max) = (field.min.unwrap_or(least), field.max.unwrap_or(most));
    let mut is_valid = format!("{number} >= {min:?} AND {number} <= {max:?}");
    if !field.unknown.is_empty() {
        let unknown = field.unknown.iter().filter_map(|text| text.parse::<f64>().ok());
        let unknown = list(unknown.map(|unknown| format!("{unknown:?}")));
        let _ = write!(is_valid, " AND {number} NOT IN ({unknown})");
    }
    let kind = quoted(&field.kind.to_string());
    match field.kind {
        FieldType::Float(32) => format!("toFloat32(if({is_valid}, {number}, NULL))"),
        FieldType::Float(_) => format!("if({is_valid}, {number}, NULL)"),
        // A float cannot hold all digits of a 64-bit integer, so cast the string first.
        FieldType::Int(64) | FieldType::UInt(64) => format!(
            "if({is_valid}, ifNull(accurateCastOrNull(toInt128OrNull({raw}), {kind}), \
             accurateCastOrNull({number}, {kind})), NULL)"
        ),
        FieldType::Int(_)
        | FieldType::UInt(_)
        | FieldType::Bool
        | FieldType::String
        | FieldType::LowCardinality
        | FieldType::DateTime64
        | FieldType::Enum8(_) => {
            format!("accurateCastOrNull(if({is_valid}, {number}, NULL), {kind})")
        }
    }
}

/// Returns the SQL expression of a time. The magnitude of a number determines its unit: seconds,
/// milliseconds, microseconds or nanoseconds, as for `ts`.
fn time_expression(raw: &str, and_known: &str) -> String {
    let number = format!("toFloat64OrNull({raw})");
    let ms = format!(
        "round({number} * multiIf(abs({number}) < 1e11, 1000, abs({number}) < 1e14, 1, \
         abs({number}) < 1e17, 0.001, 0.000001))"
    );
    // DateTime64 holds the years 1900 to 2299.
    let is_in_range = format!("{ms} BETWEEN -2208988800000 AND 10413791999999");
    // Accept only strings that begin with year, month and day in this order. For any other string,
    // the server's parser would guess: it adds the current year to a time without a date, and may
    // mistake the day for the month.
    let is_dated = format!(
        "match({raw}, '^(19|2[0-2])[0-9]{{2}}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])\
         ($|[T ]([01][0-9]|2[0-3]):[0-5][0-9])')"
    );
    format!(
        "multiIf({number} IS NOT NULL AND {is_in_range}{and_known}, \
         fromUnixTimestamp64Milli(toInt64(if({is_in_range}, {ms}, 0)), 'UTC'), \
         {number} IS NULL AND {is_dated}{and_known}, \
         parseDateTime64BestEffortOrNull({raw}, 3, 'UTC'), NULL)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comment_is_parsed_as_it_was_written() {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        for (description, unit, from) in [
            ("Charge, of the phone", "per cent", &["batt", "io/113"][..]),
            ("", "V", &["v"]),
            ("Mode [of the engine]", "", &["mode"]),
            ("", "", &["a;b", "c"]),
        ] {
            let field = Field {
                name: "name".to_owned(),
                from: texts(from),
                kind: FieldType::Float(32),
                comment: description.to_owned(),
                unit: unit.to_owned(),
                min: Some(0.0),
                max: None,
                unknown: texts(&["-1", "[]"]),
            };
            let parsed = FieldComment::parse(&comment(&field)).expect("a field's comment");
            let written = FieldComment {
                comment: field.comment.clone(),
                unit: field.unit.clone(),
                from: field.from.clone(),
            };
            assert_eq!(parsed, written, "{}", comment(&field));
        }
        assert_eq!(FieldComment::parse("Charge of the phone"), None);
    }
}
