//! Reads the `fences` table.

use milepost_clickhouse::{ClickHouse, Error, QUESTION_TIMEOUT, within};
use std::ops::Deref;

/// An area as it is stored: its name, both ends of its validity in milliseconds, and its polygons
/// as JSON.
pub(crate) type StoredFence = (String, i64, i64, String);

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
            "SELECT toValidUTF8(name), toUnixTimestamp64Milli(valid_from), toUnixTimestamp64Milli(valid_until), \
             translate(toString(polygons), '()', '[]') FROM {}.fences FINAL",
            self.database
        );
        let rows = self.unbounded().query_raw(&sql).fetch_all::<StoredFence>();
        within(QUESTION_TIMEOUT, rows).await.map_err(|error| self.failed("reading fences", error))
    }
}
