//! Reads the `fences` table.

use clickhouse::Row;
use milepost_clickhouse::{ClickHouse, Error, QUESTION_TIMEOUT, within};
use serde::Deserialize;
use std::ops::Deref;

use super::rules::FenceRules;

/// An area as it is stored.
#[derive(Debug, Row, Deserialize)]
pub(crate) struct StoredFence {
    pub(crate) name: String,
    /// Begin of the validity, in milliseconds since 1970.
    pub(crate) from: i64,
    /// End of the validity, exclusive.
    pub(crate) until: i64,
    /// Polygons as JSON.
    pub(crate) shape: String,
    speed_limit_kmh: Option<f64>,
    stay_max_s: Option<u32>,
    silent_for_s: Option<u32>,
    hours: Option<String>,
    hours_zone: Option<String>,
    drivers: Vec<String>,
}

impl StoredFence {
    pub(crate) fn rules(&self) -> FenceRules {
        FenceRules {
            speed_limit_kmh: self.speed_limit_kmh,
            stay_max_s: self.stay_max_s,
            silent_for_s: self.silent_for_s,
            hours: self.hours.clone(),
            hours_zone: self.hours_zone.clone(),
            drivers: self.drivers.clone(),
        }
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
            "SELECT toValidUTF8(fences.name) AS name, toUnixTimestamp64Milli(valid_from) AS from, toUnixTimestamp64Milli(valid_until) AS until, \
             translate(toString(polygons), '()', '[]') AS shape, speed_limit_kmh, stay_max_s, silent_for_s, \
             toValidUTF8(fences.hours) AS hours, toValidUTF8(fences.hours_zone) AS hours_zone, \
             arrayMap(id -> toValidUTF8(id), fences.drivers) AS drivers FROM {}.fences FINAL",
            self.database
        );
        let rows = self.unbounded().query_raw(&sql).fetch_all::<StoredFence>();
        within(QUESTION_TIMEOUT, rows).await.map_err(|error| self.failed("reading fences", error))
    }
}
