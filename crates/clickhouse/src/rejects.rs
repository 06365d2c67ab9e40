//! Reads the `rejects` table.

use clickhouse::query::RowCursor;

use super::client::{ClickHouse, Error, QUERY_TIMEOUT, within};
use super::whole::check_rows;
use milepost_decode::position::Timestamp;
use milepost_decode::reject::Reason;

/// A row of the `rejects` table.
#[derive(Debug)]
pub struct StoredReject {
    /// Time at which milepost received the message from the broker.
    pub received_at: Timestamp,
    pub topic: String,
    /// Driver id, if the topic or the payload has one; otherwise empty.
    pub driver_id: String,
    /// The invalid point, or the whole message; possibly truncated.
    pub payload: Vec<u8>,
    /// Length of the payload in bytes before it was truncated.
    pub payload_bytes: u64,
    /// Number of rejects (points or messages) that this row stands for: above the flood limit, it
    /// can be more than 1.
    pub count: u64,
}

/// The rejects that a query returns, read one at a time as the server sends them.
pub struct StoredRejects {
    rows: RowCursor<(i64, String, String, String, u64, u64)>,
}

impl ClickHouse {
    /// Returns the rejects for this reason that were received at `since` or later, oldest first.
    pub fn rejects(&self, reason: Reason, since: Timestamp) -> Result<StoredRejects, Error> {
        let sql = format!(
            "SELECT toUnixTimestamp64Milli(received_at), topic, driver_id, hex(payload), \
             payload_bytes, count \
             FROM {} WHERE reason = '{}' AND received_at >= fromUnixTimestamp64Milli({}) \
             ORDER BY received_at",
            self.table_on_all_shards("rejects"),
            reason.name(),
            since.unix_ms(),
        );
        // Not `with_complete_summary`: ClickHouse would buffer the whole answer, which may be as
        // long as the table.
        let rows = self.unbounded().query_raw(&sql).fetch().map_err(read_error)?;
        Ok(StoredRejects { rows })
    }
}

fn read_error(error: clickhouse::error::Error) -> Error {
    Error::server("reading rejects", error, None)
}

impl StoredRejects {
    /// Returns the next row; `None` after the last one.
    pub async fn next(&mut self) -> Result<Option<StoredReject>, Error> {
        let row = within(QUERY_TIMEOUT, self.rows.next()).await.map_err(read_error)?;
        if row.is_none() {
            check_rows(&self.rows).map_err(read_error)?;
        }
        Ok(row.map(|(received_ms, topic, driver_id, payload_hex, payload_bytes, count)| {
            StoredReject {
                received_at: Timestamp::from_unix_ms(received_ms),
                topic,
                driver_id,
                payload: from_hex(&payload_hex),
                payload_bytes,
                count,
            }
        }))
    }
}

/// Decodes the output of ClickHouse's `hex`.
fn from_hex(text: &str) -> Vec<u8> {
    let pairs = text.as_bytes().chunks_exact(2);
    pairs.filter_map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()).collect()
}
