//! Alerts: the events that `milepost events` detected, each with its acknowledgement.

use clickhouse::Row;
use milepost_clickhouse::FetchWhole as _;
use milepost_events::fences::MOMENTS_MS;
use serde::{Deserialize, Serialize};

use crate::fleet::filter::Scope;
use crate::history::failed;
use crate::params::driver;
use crate::store::{Error, Store};

/// Maximum number of alerts in one response; the newest are returned.
const ALERTS_MAX: usize = 200;

/// An event, identified by `driver_id`, `ts`, `seq`, `kind` and `fence`. Times are in milliseconds
/// since 1970.
#[derive(Debug, Clone, Row, Serialize, Deserialize)]
pub struct Alert {
    driver_id: String,
    ts: i64,
    seq: u32,
    /// `entered`, `overstayed`, `left`, `off_hours`, `silent`, `heard`, `fast`, `slow` or `jump`.
    kind: String,
    fence: String,
    lat: f64,
    lng: f64,
    speed: Option<f32>,
    /// Time at which the event became known, by ClickHouse's clock.
    known_at: i64,
    /// Name of the viewer who acknowledged the event; empty: not acknowledged.
    seen_by: String,
    /// Time of the acknowledgement; 0: not acknowledged.
    seen_at: i64,
}

/// Returns the alerts of the last `hours`, newest first.
///
/// # Errors
/// The query failed or exceeded a limit; the message is for the viewer.
pub async fn recent(store: &Store, scope: &Scope, hours: u32) -> Result<Vec<Alert>, Error> {
    // Use the newest acknowledgement of each event: several viewers may acknowledge the same event.
    let acknowledgements =
        "SELECT driver_id, ts, seq, kind, fence, argMax(seen_by, seen_at) AS viewer,
            max(seen_at) AS at
        FROM {db}.alerts_seen GROUP BY driver_id, ts, seq, kind, fence";
    let sql = format!(
        "SELECT event.driver_id AS driver_id, toUnixTimestamp64Milli(event.ts) AS ts,
            event.seq AS seq, toString(event.kind) AS kind, event.fence AS fence,
            event.lat AS lat, event.lng AS lng, event.speed AS speed,
            toUnixTimestamp64Milli(event.known_at) AS known_at, seen.viewer AS seen_by,
            toUnixTimestamp64Milli(seen.at) AS seen_at
        FROM
        (
            SELECT * FROM {{db}}.events FINAL
            WHERE {{in_scope}} AND known_at > now64(3) - toIntervalHour({{hours:UInt32}})
            ORDER BY known_at DESC, ts DESC, driver_id LIMIT {ALERTS_MAX}
        ) AS event
        LEFT JOIN ({acknowledgements}) AS seen USING (driver_id, ts, seq, kind, fence)
        ORDER BY event.known_at DESC, event.ts DESC, event.driver_id"
    );
    let query = || store.query_in_scope(scope, &sql).param("hours", hours);
    store.fetch_all(query).await.map_err(|error| failed(store, &error))
}

/// Key of an event in a request to acknowledge it.
#[derive(Debug, Deserialize)]
pub struct AlertKey {
    pub driver_id: String,
    pub ts: i64,
    pub seq: u32,
    pub kind: String,
    pub fence: String,
}

impl AlertKey {
    /// Checks the key of a request.
    ///
    /// # Errors
    /// No event can have this key; the message names the value and what is expected.
    pub fn check(&self) -> Result<(), String> {
        driver(&self.driver_id).map_err(|why| format!("driver_id: {why}"))?;
        if !MOMENTS_MS.contains(&self.ts) {
            return Err(
                "ts: expected milliseconds since 1970, in the years 1900 to 2299".to_owned()
            );
        }
        Ok(())
    }
}

/// Records that the viewer `by` acknowledged an event.
///
/// # Errors
/// The insert failed.
pub async fn acknowledge(
    writer: &milepost_clickhouse::Reader,
    database: &str,
    alert: &AlertKey,
    by: &str,
) -> Result<(), clickhouse::error::Error> {
    let sql = format!(
        "INSERT INTO {database}.alerts_seen (driver_id, ts, seq, kind, fence, seen_by)
        SELECT {{driver:String}}, fromUnixTimestamp64Milli({{ts:Int64}}), {{seq:UInt32}},
            {{kind:String}}, {{fence:String}}, {{by:String}}"
    );
    let query = writer.client().query(&sql).param("driver", &alert.driver_id).param("ts", alert.ts);
    let query =
        query.param("seq", alert.seq).param("kind", &alert.kind).param("fence", &alert.fence);
    query.param("by", by).insert_whole(1).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_that_no_event_can_have_is_refused() {
        let key = |driver_id: &str, ts: i64| AlertKey {
            driver_id: driver_id.to_owned(),
            ts,
            seq: 0,
            kind: "fast".to_owned(),
            fence: String::new(),
        };
        assert_eq!(key("van-1", 1_764_000_000_000).check(), Ok(()));
        assert!(key("", 1_764_000_000_000).check().unwrap_err().starts_with("driver_id: "));
        assert!(key("van 1", 0).check().unwrap_err().starts_with("driver_id: "));
        assert!(key("van-1", i64::MAX).check().unwrap_err().starts_with("ts: "));
    }
}
