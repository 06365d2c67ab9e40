//! Drivers by what they do: ClickHouse filters `last_positions`, which has the attributes that are not in memory.

use std::collections::BTreeMap;

use clickhouse::Row;
use serde::{Deserialize, Serialize};

use crate::history::failed;
use crate::params::Filter;
use crate::store::{Error, Store};

/// Drivers in one answer.
pub const DRIVERS_MAX: usize = 500;

/// A driver that matches.
#[derive(Debug, Row, Serialize, Deserialize)]
pub struct Found {
    driver_id: String,
    ts: i64,
    lat: f64,
    lng: f64,
    speed: Option<f32>,
}

#[derive(Row, Serialize, Deserialize)]
struct Attributes {
    ts: i64,
    attributes: Vec<(String, String)>,
}

/// In the order of their ids, and whether there are more.
///
/// # Errors
/// In words.
pub async fn list(store: &Store, filter: &Filter) -> Result<(Vec<Found>, bool), Error> {
    let sql = format!(
        "WITH (SELECT groupArrayArray(polygons) FROM {{db}}.fences FINAL
                WHERE name = {{fence:String}} AND valid_from <= now64(3) AND valid_until > now64(3)) AS polygons
        SELECT driver_id, toUnixTimestamp64Milli(ts) AS ts, lat, lng, speed FROM {{db}}.last_positions
        WHERE startsWith(driver_id, {{prefix:String}})
            AND ({{silent:UInt32}} = 0 OR received_at <= now64(3) - toIntervalSecond({{silent:UInt32}}))
            AND ({{faster:Float64}} = 0 OR ifNull(speed > {{faster:Float64}}, 0))
            AND (NOT {{stopped:Bool}} OR ifNull(speed < 0.5, 0))
            AND ({{name:String}} = '' OR mapContains(attributes, {{name:String}})
                AND ({{value:String}} = '' OR attributes[{{name:String}}] = {{value:String}}))
            AND ({{fence:String}} = '' OR arrayExists(polygon -> pointInPolygon((lng, lat), polygon), polygons))
        ORDER BY driver_id LIMIT {}",
        DRIVERS_MAX + 1
    );
    let question = store.ask(&sql).param("prefix", &filter.prefix).param("silent", filter.silent_s);
    let question = question.param("faster", filter.faster_than).param("stopped", filter.is_stopped);
    let question = question.param("name", &filter.attribute.0).param("value", &filter.attribute.1);
    let found = question.param("fence", &filter.fence).fetch_all::<Found>().await;
    let mut found = found.map_err(|error| failed(store, &error))?;
    let is_more = found.len() > DRIVERS_MAX;
    found.truncate(DRIVERS_MAX);
    Ok((found, is_more))
}

/// What the source keeps of a driver's newest fix, and the time of that fix.
///
/// # Errors
/// In words.
pub async fn attributes(store: &Store, driver: &str) -> Result<(i64, BTreeMap<String, String>), Error> {
    const SQL: &str = "SELECT toUnixTimestamp64Milli(ts) AS ts, CAST(attributes, 'Array(Tuple(String, String))') AS attributes
        FROM {db}.last_positions WHERE driver_id = {driver:String}";
    let found = store.ask(SQL).param("driver", driver).fetch_optional::<Attributes>().await;
    let found = found.map_err(|error| failed(store, &error))?;
    Ok(found.map_or_else(Default::default, |found| (found.ts, found.attributes.into_iter().collect())))
}
