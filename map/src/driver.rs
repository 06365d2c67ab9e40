//! Reads the further properties of one driver: the kept attributes of the newest fix, the columns
//! of `[fields.NAME]`, and the driver's card.

use std::collections::BTreeMap;
use std::time::Duration;

use clickhouse::Row;
use milepost_clickhouse::{FetchWhole as _, FieldComment};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::history::failed;
use crate::store::{Error, Store};

/// Time for which the list of fields is cached. A new field appears after at most this time.
const COLUMNS_AGE_MAX: Duration = Duration::from_secs(60);

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
    /// Parses a row of `system.columns`; `None`: the column does not belong to a field.
    fn new(name: String, kind: &str, comment: &str) -> Option<Self> {
        let FieldComment { comment, unit, from } = FieldComment::parse(comment)?;
        let inner = kind.strip_prefix("LowCardinality(").and_then(|kind| kind.strip_suffix(')'));
        let kind = inner.unwrap_or(kind);
        let inner = kind.strip_prefix("Nullable(").and_then(|kind| kind.strip_suffix(')'));
        Some(Self {
            name,
            kind: inner.unwrap_or(kind).to_owned(),
            comment,
            unit,
            from,
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
    /// Time of the newest fix, in milliseconds since 1970; 0: the driver has no fix.
    ts: i64,
    attributes: BTreeMap<String, String>,
    fields: Vec<Field>,
    card: Card,
}

/// A driver's newest fix.
#[derive(Row, Serialize, Deserialize)]
struct Newest {
    ts: i64,
    attributes: Vec<(String, String)>,
    /// Values of the fields, in their order.
    values: Vec<Option<String>>,
}

/// The columns of `[fields.NAME]`, without values. Read at most once a minute, not for each
/// request.
#[derive(Debug, Default)]
pub struct Columns(Mutex<Option<(Instant, Vec<Field>)>>);

impl Columns {
    /// Returns the cached columns, or those of `query` if the cache is empty or too old.
    async fn read(
        &self,
        query: impl Future<Output = Result<Vec<Field>, Error>>,
    ) -> Result<Vec<Field>, Error> {
        let mut cached = self.0.lock().await;
        if let Some((at, fields)) = &*cached
            && at.elapsed() < COLUMNS_AGE_MAX
        {
            return Ok(fields.clone());
        }
        let fields = query.await?;
        *cached = Some((Instant::now(), fields.clone()));
        Ok(fields)
    }

    async fn clear(&self) {
        *self.0.lock().await = None;
    }
}

/// Returns a driver's attributes, fields and card.
///
/// # Errors
/// The query failed or exceeded a limit; the message is for the viewer.
pub async fn properties(
    store: &Store,
    columns: &Columns,
    driver: &str,
) -> Result<Properties, Error> {
    let (mut fields, card) =
        tokio::try_join!(columns.read(fields_without_values(store)), card(store, driver))?;
    let newest = match newest(store, driver, &fields).await {
        Err(error) if store.reader().lacks_column(&error) => {
            // A field was dropped after its column was listed.
            columns.clear().await;
            fields = columns.read(fields_without_values(store)).await?;
            newest(store, driver, &fields).await
        }
        newest => newest,
    };
    let Some(newest) = newest.map_err(|error| failed(store, &error))? else {
        return Ok(Properties { ts: 0, attributes: BTreeMap::new(), fields: Vec::new(), card });
    };
    for (field, value) in fields.iter_mut().zip(newest.values) {
        field.value = value;
    }
    let attributes = newest.attributes.into_iter().collect();
    Ok(Properties { ts: newest.ts, attributes, fields, card })
}

/// Returns a driver's newest fix with the values of these fields; `None`: the driver has no fix.
async fn newest(
    store: &Store,
    driver: &str,
    fields: &[Field],
) -> Result<Option<Newest>, clickhouse::error::Error> {
    let values: Vec<String> = fields.iter().map(Field::sql).collect();
    let sql = format!(
        "SELECT toUnixTimestamp64Milli(last_positions.ts) AS ts,
            CAST(last_positions.attributes, 'Array(Tuple(String, String))') AS attributes,
            CAST([{}], 'Array(Nullable(String))') AS values
        FROM {{db}}.last_positions WHERE driver_id = {{driver:String}}",
        values.join(", ")
    );
    store.query(&sql).param("driver", driver).fetch_whole_optional::<Newest>().await
}

/// Returns the columns of fields that the view `last_positions` shows, without values.
async fn fields_without_values(store: &Store) -> Result<Vec<Field>, Error> {
    const SQL: &str = "SELECT name, type, comment FROM system.columns
        WHERE database = {database:String} AND table = 'last_positions'
            AND position(comment, {mark:String}) > 0
            AND match(name, '^[a-z][a-z0-9_]*$')
        ORDER BY position";
    let query =
        store.query(SQL).param("database", store.database()).param("mark", FieldComment::MARK);
    let rows = query.fetch_whole::<(String, String, String)>().await;
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
    let cards = store.fetch_all(|| store.query(SQL).param("driver", driver)).await;
    let cards: Vec<Card> = cards.map_err(|error| failed(store, &error))?;
    Ok(cards.into_iter().next().unwrap_or_default())
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

    #[tokio::test(start_paused = true)]
    async fn columns_are_read_once_a_minute() {
        let (columns, query_count) = (Columns::default(), std::cell::Cell::new(0));
        let read = async || {
            let query = async {
                query_count.set(query_count.get() + 1);
                Ok(Vec::new())
            };
            columns.read(query).await.map(drop)
        };
        read().await.unwrap();
        tokio::time::advance(COLUMNS_AGE_MAX - Duration::from_secs(1)).await;
        read().await.unwrap();
        assert_eq!(query_count.get(), 1);
        let unavailable = async { Err(Error::Unavailable("unavailable".to_owned())) };
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(columns.read(unavailable).await.is_err());
        read().await.unwrap();
        assert_eq!(query_count.get(), 2);
    }

    #[test]
    fn time_is_selected_in_milliseconds() {
        let field =
            Field::new("due".to_owned(), "Nullable(DateTime64(3, 'UTC'))", "[field from due]");
        let sql = field.unwrap().sql();
        assert_eq!(sql, "toString(toUnixTimestamp64Milli(last_positions.`due`))");
    }
}
