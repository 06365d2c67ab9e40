//! Reads the `fences` table.

use clickhouse::Row;
use milepost_clickhouse::{ClickHouse, Error, FetchWhole as _, QUERY_TIMEOUT, within};
use serde::Deserialize;
use std::ops::Deref;

use super::rules::FenceRules;

/// An area as stored in the table.
#[derive(Debug)]
pub(crate) struct StoredFence {
    pub(crate) name: String,
    /// Start of the validity, in milliseconds since 1970.
    pub(crate) from: i64,
    /// End of the validity, exclusive.
    pub(crate) until: i64,
    /// Polygons as JSON.
    pub(crate) shape: String,
    pub(crate) rules: FenceRules,
}

#[derive(Row, Deserialize)]
struct FenceRow {
    name: String,
    from: i64,
    until: i64,
    shape: String,
    speed_limit_kmh: Option<f64>,
    stay_max_s: Option<u32>,
    silent_for_s: Option<u32>,
    hours: Option<String>,
    hours_zone: Option<String>,
    drivers: Vec<String>,
}

impl From<FenceRow> for StoredFence {
    fn from(row: FenceRow) -> Self {
        let FenceRow { name, from, until, shape, speed_limit_kmh, stay_max_s, .. } = row;
        let FenceRow { silent_for_s, hours, hours_zone, drivers, .. } = row;
        let rules =
            FenceRules { speed_limit_kmh, stay_max_s, silent_for_s, hours, hours_zone, drivers };
        Self { name, from, until, shape, rules }
    }
}

/// The queries for fences.
pub(crate) struct FenceStore<'a>(pub(crate) &'a ClickHouse);

impl Deref for FenceStore<'_> {
    type Target = ClickHouse;

    fn deref(&self) -> &ClickHouse {
        self.0
    }
}

impl FenceStore<'_> {
    /// Returns all areas, each from its newest row.
    pub(crate) async fn fences(&self) -> Result<Vec<StoredFence>, Error> {
        let sql = format!(
            "SELECT toValidUTF8(fences.name) AS name, toUnixTimestamp64Milli(valid_from) AS from, \
             toUnixTimestamp64Milli(valid_until) AS until, \
             translate(toString(polygons), '()', '[]') AS shape, speed_limit_kmh, stay_max_s, \
             silent_for_s, \
             toValidUTF8(fences.hours) AS hours, toValidUTF8(fences.hours_zone) AS hours_zone, \
             arrayMap(id -> toValidUTF8(id), fences.drivers) AS drivers FROM {}.fences FINAL",
            self.database
        );
        let rows = self.unbounded().query_raw(&sql).fetch_whole::<FenceRow>();
        let rows = within(QUERY_TIMEOUT, rows).await;
        let rows = rows.map_err(|error| self.failed("reading fences", error))?;
        Ok(rows.into_iter().map(StoredFence::from).collect())
    }
}
