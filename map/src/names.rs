//! Cards of drivers: rows of the table `drivers`, from JSON or CSV.

use std::collections::HashMap;

use clickhouse::Row;
use milepost_clickhouse::{FetchWhole as _, Reader};
use serde::{Deserialize, Serialize};

use crate::store::Store;

/// Maximum number of cards in one request.
const CARDS_MAX: usize = 20_000;
/// Maximum number of drivers whose stored cards one query reads: their ids are in one parameter.
const IDS_AT_ONCE: usize = 100;

/// A row of the table `drivers`; an empty string means no value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Row, Serialize, Deserialize)]
pub struct Card {
    pub driver_id: String,
    pub name: String,
    pub group: String,
    pub vehicle: String,
    pub phone: String,
    pub note: String,
}

/// A change of a card. A value that is omitted or null keeps the stored one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardChange {
    pub driver_id: String,
    pub name: Option<String>,
    pub group: Option<String>,
    pub vehicle: Option<String>,
    pub phone: Option<String>,
    pub note: Option<String>,
}

impl CardChange {
    /// Returns whether the change sets every value, so that the stored card has no effect.
    fn is_whole(&self) -> bool {
        let values = [&self.name, &self.group, &self.vehicle, &self.phone, &self.note];
        values.iter().all(|value| value.is_some())
    }

    fn applied_to(self, stored: &Card) -> Card {
        let value = |new: Option<String>, stored: &String| new.unwrap_or_else(|| stored.clone());
        Card {
            driver_id: self.driver_id,
            name: value(self.name, &stored.name),
            group: value(self.group, &stored.group),
            vehicle: value(self.vehicle, &stored.vehicle),
            phone: value(self.phone, &stored.phone),
            note: value(self.note, &stored.note),
        }
    }
}

/// Applies changes to the stored cards, and returns the resulting cards, one per driver. Several
/// changes of a driver apply in their order.
///
/// # Errors
/// The query failed.
pub async fn merged(
    store: &Store,
    changes: Vec<CardChange>,
) -> Result<Vec<Card>, clickhouse::error::Error> {
    let partial = changes.iter().filter(|change| !change.is_whole());
    let ids: Vec<&str> = partial.map(|change| &*change.driver_id).collect();
    let mut stored = HashMap::new();
    for ids in ids.chunks(IDS_AT_ONCE) {
        let sql = "SELECT driver_id, name, toString(`group`) AS `group`, vehicle, phone, note
            FROM {db}.drivers FINAL WHERE driver_id IN {ids:Array(String)}";
        let cards = store.fetch_all::<Card>(|| store.query(sql).param("ids", ids)).await?;
        stored.extend(cards.into_iter().map(|card| (card.driver_id.clone(), card)));
    }
    Ok(applied(changes, stored))
}

/// Applies changes to cards in memory; see [`merged`].
fn applied(changes: Vec<CardChange>, mut stored: HashMap<String, Card>) -> Vec<Card> {
    let mut order = Vec::new();
    for change in changes {
        let id = change.driver_id.clone();
        let card = change.applied_to(stored.get(&id).unwrap_or(&Card::default()));
        stored.insert(id.clone(), card);
        order.push(id);
    }
    // `stored` has each driver's card after all changes. `remove` returns a card only once, so each
    // driver has one card in the result.
    order.iter().filter_map(|id| stored.remove(id)).collect()
}

/// Reads CSV (RFC 4180) whose first line names its columns, `driver_id` among them. A missing
/// column leaves the value unchanged; an empty field clears it.
///
/// # Errors
/// The text is not such CSV; the message says why.
pub fn csv(text: &str) -> Result<Vec<CardChange>, String> {
    let mut lines = records(text.trim_start_matches('\u{feff}'))?.into_iter();
    let columns = lines.next().unwrap_or_default();
    let known = ["driver_id", "name", "group", "vehicle", "phone", "note"];
    if let Some(unknown) = columns.iter().find(|column| !known.contains(&column.as_str())) {
        return Err(format!("column {unknown:?}: expected some of {}", known.join(", ")));
    }
    let is_repeated = |column: &&String| columns.iter().filter(|other| other == column).count() > 1;
    if let Some(column) = columns.iter().find(is_repeated) {
        return Err(format!("column {column:?} appears twice"));
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
        let mut card = CardChange::default();
        for (column, field) in columns.iter().zip(fields) {
            let value = match column.as_str() {
                "driver_id" => {
                    card.driver_id = field;
                    continue;
                }
                "name" => &mut card.name,
                "group" => &mut card.group,
                "vehicle" => &mut card.vehicle,
                "phone" => &mut card.phone,
                _ => &mut card.note,
            };
            *value = Some(field);
        }
        cards.push(card);
    }
    Ok(cards)
}

/// Checks the number of cards in a request.
///
/// # Errors
/// There are too many.
pub fn check_count(count: usize) -> Result<(), String> {
    if count > CARDS_MAX {
        return Err(format!("{count} cards; expected at most {CARDS_MAX}"));
    }
    Ok(())
}

/// Splits CSV into records of fields. Empty lines are skipped.
fn records(text: &str) -> Result<Vec<Vec<String>>, String> {
    let (mut records, mut record, mut field) = (Vec::new(), Vec::new(), String::new());
    let (mut is_quoted, mut has_quoted_field) = (false, false);
    let mut chars = text.chars().peekable();
    while let Some(character) = chars.next() {
        match character {
            '"' if is_quoted && chars.peek() == Some(&'"') => field.extend(chars.next()),
            '"' if is_quoted => is_quoted = false,
            _ if is_quoted => field.push(character),
            '"' if field.is_empty() => (is_quoted, has_quoted_field) = (true, true),
            ',' => record.push(std::mem::take(&mut field)),
            '\n' => {
                if !record.is_empty() || !field.is_empty() || has_quoted_field {
                    record.push(std::mem::take(&mut field));
                    records.push(std::mem::take(&mut record));
                }
                has_quoted_field = false;
            }
            '\r' if chars.peek().is_none_or(|next| *next == '\n') => {}
            _ => field.push(character),
        }
    }
    if is_quoted {
        return Err("a quoted field does not end".to_owned());
    }
    if !record.is_empty() || !field.is_empty() || has_quoted_field {
        record.push(field);
        records.push(record);
    }
    Ok(records)
}

/// Stores cards in one insert. `writer`: a client whose login may insert into `drivers`.
///
/// # Errors
/// The query failed.
pub async fn write(
    writer: &Reader,
    database: &str,
    cards: &[Card],
) -> Result<(), clickhouse::error::Error> {
    if cards.is_empty() {
        return Ok(());
    }
    // The rows are JSON in the statement's body, because ClickHouse limits a parameter's length.
    let rows: Vec<String> =
        cards.iter().map(|card| serde_json::to_string(card).unwrap_or_default()).collect();
    let sql = format!(
        "INSERT INTO {database}.drivers (driver_id, name, `group`, vehicle, phone, note) \
         FORMAT JSONEachRow\n{}",
        rows.join("\n")
    );
    writer.client().query_raw(&sql).insert_whole(cards.len()).await
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
        let card = |id: &str, name: &str, note: &str| CardChange {
            driver_id: id.to_owned(),
            name: Some(name.to_owned()),
            note: Some(note.to_owned()),
            ..CardChange::default()
        };
        assert_eq!(cards, [card("d1", "Anna \"A\", Jr.", ""), card("d2", "Ben", "two\nlines")]);
        let last_is_quoted_and_empty = csv("driver_id\n\"\"").unwrap();
        assert_eq!(last_is_quoted_and_empty, csv("driver_id\n\"\"\n").unwrap());
    }

    #[test]
    fn omitted_column_keeps_its_value() {
        let card = |id: &str, name: &str, phone: &str| Card {
            driver_id: id.to_owned(),
            name: name.to_owned(),
            phone: phone.to_owned(),
            ..Card::default()
        };
        let stored = || HashMap::from([("d1".to_owned(), card("d1", "Anna", "+49 30"))]);
        let after = |text: &str| applied(csv(text).unwrap(), stored());
        assert_eq!(
            after("driver_id,name\nd1,Ann\nd2,Ben").as_slice(),
            [card("d1", "Ann", "+49 30"), card("d2", "Ben", ""),]
        );
        assert_eq!(after("driver_id,phone\nd1,"), [card("d1", "Anna", "")], "an empty field");
        assert_eq!(after("driver_id,name\nd1,A\nd1,B"), [card("d1", "B", "+49 30")]);
        assert!(!csv("driver_id,name\nd1,A").unwrap()[0].is_whole());
        let whole = "driver_id,name,group,vehicle,phone,note\nd1,A,,,,";
        assert!(csv(whole).unwrap()[0].is_whole());
    }

    #[test]
    fn wrong_csv_is_explained() {
        for (text, why) in [
            ("", "expected a first line"),
            ("name\nAnna", "driver_id"),
            ("driver_id,age\nd1,7", "column \"age\""),
            ("driver_id,name\nd1", "row 2: 1 fields"),
            ("driver_id\n\"d1", "does not end"),
            ("driver_id,name,name\nd1,Anna,Ben", "column \"name\" appears twice"),
        ] {
            assert!(csv(text).unwrap_err().contains(why), "{text}: {:?}", csv(text));
        }
    }
}
