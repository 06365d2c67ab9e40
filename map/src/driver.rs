//! One driver's properties besides its fix: the kept attributes of the newest fix, the columns of
//! `[fields.NAME]`, and the driver's card.

use std::collections::BTreeMap;

use clickhouse::Row;
use serde::{Deserialize, Serialize};

use crate::history::failed;
use crate::store::{Error, Store};

/// How milepost's own part of a field's comment begins.
const MARK: &str = "[field from ";

/// A row of the table `drivers`.
#[derive(Debug, Default, Row, Serialize, Deserialize)]
pub struct Card {
    name: String,
    group: String,
    vehicle: String,
    phone: String,
    note: String,
}

/// A column of `[fields.NAME]`, with the value of the newest fix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Field {
    name: String,
    /// Type of the value, without `Nullable`.
    #[serde(rename = "type")]
    kind: String,
    comment: String,
    /// Unit of the value; empty: none.
    unit: String,
    /// Attributes that the value comes from.
    from: Vec<String>,
    /// The value as text, a time in milliseconds since 1970; `None`: NULL.
    value: Option<String>,
}

impl Field {
    /// Reads a column's comment, such as `Charge, in per cent [field from batt; max 100]`.
    fn new(name: String, kind: &str, comment: &str) -> Option<Self> {
        let at = comment.rfind(MARK)?;
        let origin = comment[at + MARK.len()..].strip_suffix(']')?;
        let words = comment[..at].trim_end();
        let (words, unit) = match words.rsplit_once(", in ") {
            Some((words, unit)) => (words, unit),
            None => words.strip_prefix("in ").map_or((words, ""), |unit| ("", unit)),
        };
        let inner = kind.strip_prefix("LowCardinality(").and_then(|kind| kind.strip_suffix(')'));
        let kind = inner.unwrap_or(kind);
        let inner = kind.strip_prefix("Nullable(").and_then(|kind| kind.strip_suffix(')'));
        Some(Self {
            name,
            kind: inner.unwrap_or(kind).to_owned(),
            comment: words.to_owned(),
            unit: unit.to_owned(),
            from: origin.split(';').next()?.split(", ").map(str::to_owned).collect(),
            value: None,
        })
    }

    /// Returns the SQL of the value as `Nullable(String)`.
    fn sql(&self) -> String {
        let name = format!("last_positions.`{}`", self.name);
        if self.kind.starts_with("DateTime64") {
            return format!("toString(toUnixTimestamp64Milli({name}))");
        }
        format!("toString({name})")
    }
}

/// The answer about one driver.
#[derive(Debug, Serialize)]
pub struct Properties {
    /// Time of the newest fix in milliseconds since 1970; 0: the driver has no fix.
    ts: i64,
    attributes: BTreeMap<String, String>,
    fields: Vec<Field>,
    card: Card,
}

#[derive(Row, Serialize, Deserialize)]
struct Newest {
    ts: i64,
    attributes: Vec<(String, String)>,
    values: Vec<Option<String>>,
}

/// Returns a driver's attributes, fields and card.
///
/// # Errors
/// The reason, in words for the viewer.
pub async fn properties(store: &Store, driver: &str) -> Result<Properties, Error> {
    let (mut fields, card) = tokio::try_join!(fields(store), card(store, driver))?;
    let values: Vec<String> = fields.iter().map(Field::sql).collect();
    let sql = format!(
        "SELECT toUnixTimestamp64Milli(last_positions.ts) AS ts,
            CAST(last_positions.attributes, 'Array(Tuple(String, String))') AS attributes,
            CAST([{}], 'Array(Nullable(String))') AS values
        FROM {{db}}.last_positions WHERE driver_id = {{driver:String}}",
        values.join(", ")
    );
    let newest = store.ask(&sql).param("driver", driver).fetch_optional::<Newest>().await;
    let newest = newest.map_err(|error| failed(store, &error))?;
    let Some(newest) = newest else {
        return Ok(Properties { ts: 0, attributes: BTreeMap::new(), fields: Vec::new(), card });
    };
    for (field, value) in fields.iter_mut().zip(newest.values) {
        field.value = value;
    }
    let attributes = newest.attributes.into_iter().collect();
    Ok(Properties { ts: newest.ts, attributes, fields, card })
}

/// Returns the columns of fields that the view `last_positions` shows, without values.
async fn fields(store: &Store) -> Result<Vec<Field>, Error> {
    const SQL: &str = "SELECT name, type, comment FROM system.columns
        WHERE database = {database:String} AND table = 'last_positions' AND position(comment, {mark:String}) > 0
            AND match(name, '^[a-z][a-z0-9_]*$')
        ORDER BY position";
    let question = store.ask(SQL).param("database", store.database()).param("mark", MARK);
    let rows = question.fetch_all::<(String, String, String)>().await;
    let rows = rows.map_err(|error| failed(store, &error))?;
    Ok(rows
        .into_iter()
        .filter_map(|(name, kind, comment)| Field::new(name, &kind, &comment))
        .collect())
}

async fn card(store: &Store, driver: &str) -> Result<Card, Error> {
    const SQL: &str =
        "SELECT name, toString(`group`) AS `group`, vehicle, phone, note FROM {db}.drivers FINAL
        WHERE driver_id = {driver:String}";
    match store.ask(SQL).param("driver", driver).fetch_optional::<Card>().await {
        Err(error) if store.is_missing(&error) => Ok(Card::default()),
        card => Ok(card.map_err(|error| failed(store, &error))?.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_is_read_from_its_comment() {
        let field = |kind: &str, comment: &str| Field::new("battery".to_owned(), kind, comment);
        let full = "Charge, of the phone, in per cent [field from batt, io/113; min 0; max 100]";
        let battery = field("Nullable(UInt8)", full).unwrap();
        assert_eq!(
            (&*battery.kind, &*battery.comment, &*battery.unit),
            ("UInt8", "Charge, of the phone", "per cent")
        );
        assert_eq!(battery.from, ["batt", "io/113"]);
        let bare = field("LowCardinality(Nullable(String))", "[field from mode]").unwrap();
        assert_eq!((&*bare.kind, &*bare.comment, &*bare.unit), ("String", "", ""));
        assert_eq!(bare.from, ["mode"]);
        let unit = field("Nullable(Float32)", "in V [field from v]").unwrap();
        assert_eq!((&*unit.comment, &*unit.unit), ("", "V"));
        assert_eq!(field("Nullable(UInt8)", "Charge of the phone"), None);
    }

    #[test]
    fn time_is_selected_in_milliseconds() {
        let field =
            Field::new("due".to_owned(), "Nullable(DateTime64(3, 'UTC'))", "[field from due]");
        let sql = field.unwrap().sql();
        assert_eq!(sql, "toString(toUnixTimestamp64Milli(last_positions.`due`))");
    }
}
