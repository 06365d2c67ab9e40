//! Cards of drivers: rows of the table `drivers`, from JSON or CSV.

use clickhouse::Row;
use milepost_clickhouse::Reader;
use serde::{Deserialize, Serialize};

/// Cards per request.
const CARDS_MAX: usize = 20_000;

/// A row of the table `drivers`; an empty string is no value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Row, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    pub driver_id: String,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub group: String,
    #[serde(default)]
    pub vehicle: String,
    #[serde(default)]
    pub phone: String,
    #[serde(default)]
    pub note: String,
}

/// Reads CSV (RFC 4180) whose first line names its columns, `driver_id` among them.
///
/// # Errors
/// The line that is wrong, and why.
pub fn csv(text: &str) -> Result<Vec<Card>, String> {
    let mut lines = records(text.trim_start_matches('\u{feff}'))?.into_iter();
    let columns = lines.next().unwrap_or_default();
    let known = ["driver_id", "name", "group", "vehicle", "phone", "note"];
    if let Some(other) = columns.iter().find(|column| !known.contains(&column.as_str())) {
        return Err(format!("column {other:?}: expected some of {}", known.join(", ")));
    }
    let is_twice = |column: &&String| columns.iter().filter(|other| other == column).count() > 1;
    if let Some(column) = columns.iter().find(is_twice) {
        return Err(format!("column {column:?}: twice"));
    }
    if !columns.iter().any(|column| column == "driver_id") {
        return Err(
            "expected a first line with the names of the columns, driver_id among them".to_owned()
        );
    }
    let mut cards = Vec::new();
    for (number, fields) in lines.enumerate() {
        if fields.len() != columns.len() {
            return Err(format!(
                "row {}: {} fields; expected {}",
                number + 2,
                fields.len(),
                columns.len()
            ));
        }
        let mut card = Card::default();
        for (column, field) in columns.iter().zip(fields) {
            *(match column.as_str() {
                "driver_id" => &mut card.driver_id,
                "name" => &mut card.name,
                "group" => &mut card.group,
                "vehicle" => &mut card.vehicle,
                "phone" => &mut card.phone,
                _ => &mut card.note,
            }) = field;
        }
        cards.push(card);
    }
    if cards.len() > CARDS_MAX {
        return Err(format!("{} rows; expected at most {CARDS_MAX}", cards.len()));
    }
    Ok(cards)
}

/// Splits CSV into records of fields. Empty lines are skipped.
fn records(text: &str) -> Result<Vec<Vec<String>>, String> {
    let (mut records, mut record, mut field) = (Vec::new(), Vec::new(), String::new());
    let (mut is_quoted, mut was_quoted) = (false, false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if is_quoted && chars.peek() == Some(&'"') => field.extend(chars.next()),
            '"' if is_quoted => is_quoted = false,
            _ if is_quoted => field.push(c),
            '"' if field.is_empty() => (is_quoted, was_quoted) = (true, true),
            ',' => record.push(std::mem::take(&mut field)),
            '\n' => {
                if !record.is_empty() || !field.is_empty() || was_quoted {
                    record.push(std::mem::take(&mut field));
                    records.push(std::mem::take(&mut record));
                }
                was_quoted = false;
            }
            '\r' if chars.peek().is_none_or(|next| *next == '\n') => {}
            _ => field.push(c),
        }
    }
    if is_quoted {
        return Err("a quoted field does not end".to_owned());
    }
    if !record.is_empty() || !field.is_empty() {
        record.push(field);
        records.push(record);
    }
    Ok(records)
}

/// Inserts cards in one insert.
///
/// # Errors
/// ClickHouse's.
pub async fn write(
    writer: &Reader,
    database: &str,
    cards: &[Card],
) -> Result<(), clickhouse::error::Error> {
    if cards.is_empty() {
        return Ok(());
    }
    // The rows are JSON in the statement's body, because a parameter would be part of the URL.
    let rows: Vec<String> =
        cards.iter().map(|card| serde_json::to_string(card).unwrap_or_default()).collect();
    let sql = format!(
        "INSERT INTO {database}.drivers (driver_id, name, `group`, vehicle, phone, note) FORMAT JSONEachRow\n{}",
        rows.join("\n")
    );
    writer.client().query_raw(&sql).execute().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_columns_come_in_any_order_with_quotes() {
        let cards = csv(
            "\u{feff}name,driver_id,note\r\n\"Anna \"\"A\"\", Jr.\",d1,\r\n\nBen,d2,\"two\nlines\"",
        )
        .unwrap();
        let card = |id: &str, name: &str, note: &str| Card {
            driver_id: id.to_owned(),
            name: name.to_owned(),
            note: note.to_owned(),
            ..Card::default()
        };
        assert_eq!(cards, [card("d1", "Anna \"A\", Jr.", ""), card("d2", "Ben", "two\nlines")]);
    }

    #[test]
    fn wrong_csv_is_explained() {
        for (text, why) in [
            ("", "expected a first line"),
            ("name\nAnna", "driver_id"),
            ("driver_id,age\nd1,7", "column \"age\""),
            ("driver_id,name\nd1", "row 2: 1 fields"),
            ("driver_id\n\"d1", "does not end"),
            ("driver_id,name,name\nd1,Anna,Ben", "column \"name\": twice"),
        ] {
            assert!(csv(text).unwrap_err().contains(why), "{text}: {:?}", csv(text));
        }
    }
}
