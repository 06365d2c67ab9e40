//! Geofences: every viewer sees the ones that are valid now. Editors write them with a ClickHouse login of its own, which can do nothing else.
//!
//! Guarantee: what is stored passed the rules of `milepost fences import`.

use clickhouse::Row;
use milepost::clickhouse::Reader;
use milepost::fences::MOMENTS_MS;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::history::failed;
use crate::store::{Error, Store};

/// In one answer.
const FENCES_MAX: usize = 5_000;
/// 2200-01-01, the table's word for "no end".
const END_MS: i64 = 7_258_118_400_000;

#[derive(Row, Serialize, Deserialize)]
struct Stored {
    name: String,
    valid_from: i64,
    valid_until: i64,
    polygons: String,
}

/// The fences that are valid now, as a GeoJSON FeatureCollection.
///
/// # Errors
/// In words.
pub async fn all(store: &Store) -> Result<Value, Error> {
    let sql = format!(
        "SELECT name, toUnixTimestamp64Milli(valid_from) AS valid_from,
            toUnixTimestamp64Milli(fences.valid_until) AS valid_until,
            toJSONString(arrayMap(polygon -> arrayMap(ring -> arrayMap(point -> [point.1, point.2], ring), polygon), polygons)) AS polygons
        FROM {{db}}.fences FINAL
        WHERE fences.valid_from <= now64(3) AND fences.valid_until > now64(3) ORDER BY name, valid_from LIMIT {FENCES_MAX}"
    );
    let stored = store.ask(&sql).fetch_all::<Stored>().await.map_err(|error| failed(store, &error))?;
    let feature = |fence: Stored| {
        let polygons: Value = serde_json::from_str(&fence.polygons).unwrap_or_default();
        json!({
            "type": "Feature",
            "properties": { "name": fence.name, "valid_from": fence.valid_from, "valid_until": fence.valid_until },
            "geometry": { "type": "MultiPolygon", "coordinates": polygons },
        })
    };
    Ok(
        json!({ "type": "FeatureCollection", "features": stored.into_iter().map(feature).collect::<Vec<_>>() }),
    )
}

/// Stores a GeoJSON Feature in the place of the one of its name and valid_from; without a geometry it is valid no longer. Without a
/// valid_from it takes the place of the one of its name that is valid now, or else follows the last one, until a planned one begins. Logs that `user` did so.
///
/// # Errors
/// What is wrong with it, or why ClickHouse did not take it.
pub async fn put(
    writer: &Reader,
    database: &str,
    feature: &Value,
    user: Option<&str>,
) -> Result<(), Refused> {
    let name = feature["properties"]["name"].as_str().unwrap_or_default();
    let moment = |key: &str, default: i64| {
        let given = &feature["properties"][key];
        let ms = if given.is_null() { Some(default) } else { given.as_i64() };
        ms.filter(|ms| MOMENTS_MS.contains(ms)).ok_or_else(|| {
            Refused::Invalid(format!(
                "properties.{key}: expected milliseconds since 1970, in the years 1900 to 2299"
            ))
        })
    };
    let (valid_from, valid_until) = (moment("valid_from", 0)?, moment("valid_until", END_MS)?);
    if valid_from >= valid_until {
        return Err(Refused::Invalid("properties.valid_until: expected a time after valid_from".to_owned()));
    }
    let from = if feature["properties"]["valid_from"].is_null() {
        // Of no rows, the greatest is 1970. One that is planned keeps its place.
        "(SELECT if(countIf(valid_from <= now64(3) AND valid_until > now64(3)) > 0,
            maxIf(valid_from, valid_from <= now64(3) AND valid_until > now64(3)), maxIf(valid_until, valid_until <= now64(3)))
            FROM {db}.fences FINAL WHERE name = {name:String})"
    } else {
        "fromUnixTimestamp64Milli({from:Int64})"
    };
    let until = if feature["properties"]["valid_from"].is_null() {
        "(SELECT if(countIf(valid_from > now64(3)) > 0,
            least(minIf(valid_from, valid_from > now64(3)), fromUnixTimestamp64Milli({until:Int64})), fromUnixTimestamp64Milli({until:Int64}))
            FROM {db}.fences FINAL WHERE name = {name:String})"
    } else {
        "fromUnixTimestamp64Milli({until:Int64})"
    };
    if feature["type"] != "Feature" || name.is_empty() {
        return Err(Refused::Invalid("expected a GeoJSON Feature with properties.name".to_owned()));
    }
    let Some(geometry) = feature.get("geometry") else {
        return Err(Refused::Invalid("expected a geometry; null ends the fence".to_owned()));
    };
    let is_end = geometry.is_null();
    let sql = if is_end {
        "INSERT INTO {db}.fences (name, valid_from, valid_until, polygons)
            SELECT name, fences.valid_from, now64(3), polygons FROM {db}.fences FINAL
            WHERE name = {name:String} AND fences.valid_from = {begin} AND fences.valid_until > now64(3)"
    } else {
        "INSERT INTO {db}.fences (name, valid_from, valid_until, polygons) SELECT {name:String}, {begin}, {end},
            JSONExtract({polygons:String}, 'Array(Array(Array(Tuple(Float64, Float64))))')"
    };
    let mut polygons = Value::Null;
    if !is_end {
        let checked = json!({ "type": "Feature", "properties": { "name": name }, "geometry": geometry });
        // Not on a thread that ticks: the sides of a polygon are compared with each other.
        let read = tokio::task::spawn_blocking(move || milepost::fences::read(&checked.to_string()));
        let read = read.await.expect("does not panic").map_err(Refused::Invalid)?;
        let Some(fence) = read.fences.first() else { return Err(Refused::Invalid(read.invalid.join("; "))) };
        polygons = json!(fence.polygons);
    }
    let sql = sql.replace("{begin}", from).replace("{end}", until).replace("{db}", database);
    let question = writer.client().query(&sql).param("name", name);
    let question = question
        .param("from", valid_from)
        .param("until", valid_until)
        .param("polygons", polygons.to_string());
    question.execute().await.map_err(|error| {
        tracing::warn!(%error, "a fence was not stored");
        let (code, advice) = writer.failed(&error);
        let why = advice.or_else(|| code.map(|code| format!("code {code}")));
        Refused::Away(format!(
            "ClickHouse did not store the fence: {}",
            why.unwrap_or_else(|| "no answer".to_owned())
        ))
    })?;
    tracing::info!(user, fence = ?name, "a fence was {}", if is_end { "ended" } else { "stored" });
    Ok(())
}

/// Why a fence was not stored.
#[derive(Debug)]
pub enum Refused {
    Invalid(String),
    Away(String),
}
