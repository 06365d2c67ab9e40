//! Prints the rows that a message becomes, as lines of JSON in the units of the tables' columns.

use std::fmt::Write as _;

use serde_json::json;

use super::fields::{column_value, explain_null};
pub use super::times::rfc3339;
use milepost_config as config;
use milepost_decode::position::{Accuracy, Altitude, Heading, Position, Speed};
use milepost_decode::{Decoded, Field, Omissions, suggested_field};

/// Maximum characters of a rejected payload that are printed.
const EXCERPT_CHARS_MAX: usize = 200;

/// Returns lines of JSON: one for each position, reject and ignored message, then one for each
/// field that was unusable or not read. If attributes were cut, the last line has their number. The
/// line of a position includes the columns of `typed_fields`.
#[must_use]
pub fn json_lines(decoded: &Decoded, typed_fields: &[config::Field]) -> String {
    let mut lines = String::new();
    for position in &decoded.positions {
        let is_undated = decoded.omissions.undated > 0 && position.ts == position.received_at;
        put_position(position, typed_fields, is_undated, &mut lines);
    }
    for reject in &decoded.rejects {
        let payload: String =
            String::from_utf8_lossy(&reject.payload).chars().take(EXCERPT_CHARS_MAX).collect();
        let (reason, detail) = (reject.reason.name(), &reject.detail);
        put_line(
            &mut lines,
            &json!({"reject": {"reason": reason, "detail": detail, "payload": payload}}),
        );
    }
    for kind in &decoded.ignored {
        put_line(&mut lines, &json!({"ignored": kind.name()}));
    }
    for (field, count) in unusable(&decoded.omissions) {
        put_line(&mut lines, &json!({"unusable": {"field": field, "times": count}}));
    }
    for field in typed_fields {
        let hints = decoded.positions.iter().filter_map(|fix| explain_null(field, &fix.attributes));
        let mut hints = hints.peekable();
        if let Some(hint) = hints.peek().cloned() {
            let field = &field.name;
            put_line(
                &mut lines,
                &json!({"unusable": {"field": field, "times": hints.count(), "hint": hint}}),
            );
        }
    }
    for name in &decoded.unread {
        let suggestion = suggested_field(name)
            .map(|field| format!("did you mean {field}? "))
            .unwrap_or_default();
        let hint = format!(
            "{suggestion}keep = [\"{name}\"] stores it as a string, \
             [fields.NAME] with from = \"{name}\" as a typed column"
        );
        put_line(&mut lines, &json!({"unread": {"field": name, "hint": hint}}));
    }
    if decoded.omissions.attributes_cut > 0 {
        put_line(&mut lines, &json!({"attributes_cut": decoded.omissions.attributes_cut}));
    }
    lines
}

/// Returns the optional fields that were invalid, each with its count.
pub fn unusable(omissions: &Omissions) -> impl Iterator<Item = (&'static str, u64)> {
    Field::ALL
        .iter()
        .map(|field| field.name())
        .zip(omissions.fields)
        .filter(|(_, count)| *count > 0)
}

/// Appends a position as a JSON line, in the units of the table's columns. `is_undated`: the
/// payload had no time, so `ts` is the time of receipt.
fn put_position(
    position: &Position,
    fields: &[config::Field],
    is_undated: bool,
    lines: &mut String,
) {
    let mut row = fix(position);
    for field in fields {
        row[&field.name] = column_value(field, &position.attributes);
    }
    if is_undated {
        row["undated"] = true.into();
    }
    put_line(lines, &json!({ "position": row }));
}

/// Returns a position as JSON, in the units of the table's columns.
#[must_use]
pub fn fix(position: &Position) -> serde_json::Value {
    // Returns null if the value is unknown. `per_unit`: stored steps per unit of the column.
    let if_known =
        |is_known: bool, steps: i32, per_unit: f64| is_known.then(|| f64::from(steps) / per_unit);
    let (speed, heading, alt, acc) = (position.speed, position.heading, position.alt, position.acc);
    let attributes: serde_json::Map<_, _> =
        position.attributes.iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    json!({
        "driver_id": position.driver_id.as_str(),
        "ts": rfc3339(position.ts),
        "seq": position.seq,
        "lat": f64::from(position.lat.e7()) / 1e7,
        "lng": f64::from(position.lng.e7()) / 1e7,
        "speed": if_known(speed != Speed::UNKNOWN, speed.cms().into(), 100.0),
        "heading": if_known(heading != Heading::UNKNOWN, heading.cdeg().into(), 100.0),
        "alt": if_known(alt != Altitude::UNKNOWN, alt.dm(), 10.0),
        "acc": if_known(acc != Accuracy::UNKNOWN, acc.dm().into(), 10.0),
        "attributes": attributes,
    })
}

fn put_line(lines: &mut String, line: &serde_json::Value) {
    writeln!(lines, "{line}").expect("writing to a String");
}
