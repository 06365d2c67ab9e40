//! The `fences` table, read back.

use super::client::{ClickHouse, Error, QUESTION_TIMEOUT, within};

/// An area as it is stored: its name, both ends of its validity in milliseconds, and its polygons as JSON.
pub(crate) type StoredFence = (String, i64, i64, String);

impl ClickHouse {
    /// All areas, as the newest rows have them.
    pub(crate) async fn fences(&self) -> Result<Vec<StoredFence>, Error> {
        let sql = format!(
            "SELECT name, toUnixTimestamp64Milli(valid_from), toUnixTimestamp64Milli(valid_until), \
             translate(toString(polygons), '()', '[]') FROM {}.fences FINAL",
            self.database
        );
        let rows = self.unbounded().query_raw(&sql).fetch_all::<StoredFence>();
        within(QUESTION_TIMEOUT, rows).await.map_err(|error| self.failed("reading fences", error))
    }
}
