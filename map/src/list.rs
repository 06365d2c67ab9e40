//! Lists drivers by conditions. ClickHouse filters `last_positions`, because the attributes are not
//! in memory.

use clickhouse::Row;
use serde::{Deserialize, Serialize};

use crate::fleet::directory::Directory;
use crate::fleet::filter::{Ages, Scope};
use crate::history::failed;
use crate::params::Filter;
use crate::store::{Error, Store};

/// Maximum number of drivers in one response.
pub const DRIVERS_MAX: usize = 500;

/// A driver that meets all conditions of a list.
#[derive(Debug, Row, Serialize, Deserialize)]
pub struct Found {
    driver_id: String,
    ts: i64,
    lat: f64,
    lng: f64,
    speed: Option<f32>,
    name: String,
    in_group: String,
}

impl Found {
    /// Adds the driver's name and group.
    pub fn add_name(&mut self, directory: &Directory) {
        directory.name(&self.driver_id).clone_into(&mut self.name);
        directory
            .group_name(directory.group(self.driver_id.as_bytes()))
            .clone_into(&mut self.in_group);
    }
}

/// The condition of [`Filter::find`].
#[derive(Debug)]
pub struct Find {
    /// The text after [`fold`](crate::fleet::directory::fold), which ClickHouse compares with the
    /// ids. Empty: no condition.
    pub folded: String,
    /// Ids of the drivers whose name contains the text, up to one more than [`DRIVERS_MAX`]. The
    /// map searches the names in memory, because ClickHouse cannot ignore accents.
    pub named: Vec<String>,
}

/// Returns the matching drivers, ordered by id. Also returns `true` if more than [`DRIVERS_MAX`]
/// drivers match, or have a name that matches `find`. A condition on the speed holds only for a
/// driver with a fix within `ages.silent_s`: a driver who was silent for months is not "faster than
/// 30".
///
/// # Errors
/// The query failed or exceeded a limit; the message is for the viewer.
pub async fn list(
    store: &Store,
    scope: &Scope,
    filter: &Filter,
    find: Find,
    ages: Ages,
) -> Result<(Vec<Found>, bool), Error> {
    let sql = format!(
        "WITH (SELECT groupArrayArray(polygons) FROM {{db}}.fences FINAL
                WHERE name = {{fence:String}} AND valid_from <= now64(3)
                AND valid_until > now64(3)) AS polygons
        SELECT driver_id, toUnixTimestamp64Milli(last_positions.ts) AS ts, lat, lng, speed,
            '' AS name, '' AS in_group
        FROM {{db}}.last_positions
        WHERE {{in_scope}} AND startsWith(driver_id, {{prefix:String}})
            AND ({{find:String}} = '' OR positionCaseInsensitive(driver_id, {{find:String}}) > 0
                OR driver_id IN {{found:Array(String)}})
            AND (NOT {{has_group:Bool}} OR {in_group})
            AND ({{has_hidden:Bool}}
                OR last_positions.ts > now64(3) - toIntervalSecond({{hidden:Int64}}))
            AND ((NOT {{stopped:Bool}} AND {{faster:Float64}} = 0)
                OR last_positions.ts > now64(3) - toIntervalSecond({{recent:Int64}}))
            AND ({{silent:UInt32}} = 0
                OR received_at <= now64(3) - toIntervalSecond({{silent:UInt32}}))
            AND ({{faster:Float64}} = 0 OR ifNull(speed > {{faster:Float64}}, 0))
            AND (NOT {{stopped:Bool}} OR ifNull(speed < 0.5, 0))
            AND ({{name:String}} = '' OR mapContains(attributes, {{name:String}})
                AND ({{value:String}} = '' OR attributes[{{name:String}}] = {{value:String}}))
            AND ({{fence:String}} = ''
                OR arrayExists(polygon -> pointInPolygon((lng, lat), polygon), polygons))
        ORDER BY driver_id LIMIT {limit}",
        in_group = "driver_id IN (SELECT driver_id FROM {db}.drivers FINAL
                    WHERE `group` = {group:String})
                OR {group_attribute:String} != ''
                    AND attributes[{group_attribute:String}] = {group:String}
                    AND driver_id NOT IN (SELECT driver_id FROM {db}.drivers FINAL
                        WHERE `group` != '')",
        limit = DRIVERS_MAX + 1
    );
    let query = || {
        let query = store.query_in_scope(scope, &sql).param("prefix", &filter.prefix);
        let query = query.param("find", &find.folded).param("found", &find.named);
        let query = query.param("has_group", !filter.group.is_empty());
        let query = query.param("group", &filter.group).param("silent", filter.silent_s);
        let query = query.param("has_hidden", filter.has_hidden).param("hidden", ages.hidden_s);
        let query = query.param("recent", ages.silent_s);
        let query = query.param("faster", filter.faster_than).param("stopped", filter.is_stopped);
        let query = query.param("name", &filter.attribute_name);
        let query = query.param("value", &filter.attribute_value);
        query.param("fence", &filter.fence)
    };
    let found = store.fetch_all::<Found>(query).await;
    let mut found = found.map_err(|error| failed(store, &error))?;
    let is_more = found.len() > DRIVERS_MAX || find.named.len() > DRIVERS_MAX;
    found.truncate(DRIVERS_MAX);
    Ok((found, is_more))
}
