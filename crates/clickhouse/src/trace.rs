//! Queries for the rows of one driver.

use std::time::Duration;

use serde::Serialize;

use super::client::{ClickHouse, Error};
use milepost_decode::position::DriverId;

/// A driver's row of `last_positions`; times are in UTC.
#[derive(Debug)]
pub struct LastFix {
    pub ts: String,
    /// Age in seconds by the server's clock; negative if the fix's time is ahead of that clock.
    pub age_s: String,
    pub lat: String,
    pub lng: String,
    /// Speed in m/s; empty if unknown.
    pub speed: String,
    pub received_at: String,
    pub inserted_at: String,
}

/// Rejects of one reason.
#[derive(Debug, Serialize)]
pub struct RejectedFor {
    pub reason: String,
    pub count: u64,
    /// Time of receipt of the newest reject.
    pub last: String,
    /// Why the newest reject was invalid.
    pub detail: String,
}

/// The columns that identify a stored fix of a driver.
#[derive(Debug)]
pub struct StoredFix {
    /// Unix milliseconds.
    pub ts: i64,
    pub seq: u32,
    pub lat_e7: i32,
    pub lng_e7: i32,
}

// These queries contain ids without escaping: `DriverId` allows no character that ends an SQL
// string.
impl ClickHouse {
    /// Returns the driver's row of `last_positions`, if there is one.
    pub async fn last_fix(&self, driver_id: &DriverId) -> Result<Option<LastFix>, Error> {
        let sql = format!(
            "SELECT toString(ts), dateDiff('second', ts, now64(3)), lat, lng, \
             ifNull(toString(round(speed, 2)), ''), toString(received_at), toString(inserted_at) \
             FROM {}.last_positions WHERE driver_id = '{}'",
            self.database,
            driver_id.as_str()
        );
        let step = "reading the last position";
        let Some(row) = self.query_rows(step, &sql).await?.into_iter().next() else {
            return Ok(None);
        };
        let [ts, age_s, lat, lng, speed, received_at, inserted_at] = row;
        if age_s.parse::<i64>().is_err() {
            return Err(Error::not_clickhouse(step, "fix"));
        }
        Ok(Some(LastFix { ts, age_s, lat, lng, speed, received_at, inserted_at }))
    }

    /// Returns the number of fixes whose `ts` is in the last hour, and in the last day.
    pub async fn recent_fix_counts(&self, driver_id: &DriverId) -> Result<[u64; 2], Error> {
        let sql = format!(
            "SELECT countIf(ts > now64(3) - INTERVAL 1 HOUR), count() FROM {}.fixes \
             WHERE driver_id = '{}' AND ts > now64(3) - INTERVAL 1 DAY AND ts <= now64(3)",
            self.database,
            driver_id.as_str()
        );
        let counts: Option<[String; 2]> =
            self.query_rows("counting fixes", &sql).await?.into_iter().next();
        Ok(counts.map_or([0; 2], |counts| counts.map(|count| count.parse().unwrap_or(u64::MAX))))
    }

    /// Returns the rejects of the last hour that name the driver, grouped by reason. A reject names
    /// the driver if its `driver_id`, or any level of its topic, is the driver's id.
    pub async fn recent_rejects(&self, driver_id: &DriverId) -> Result<Vec<RejectedFor>, Error> {
        let sql = format!(
            "SELECT reason, sum(count), toString(max(received_at)), \
             replaceRegexpAll(argMax(detail, received_at), '[\\\\t\\\\n\\\\r]', ' ') \
             FROM {} WHERE received_at > now64(3) - INTERVAL 1 HOUR \
             AND (driver_id = '{id}' OR has(splitByChar('/', topic), '{id}')) \
             GROUP BY reason ORDER BY reason",
            self.table_on_all_shards("rejects"),
            id = driver_id.as_str()
        );
        let rows = self.query_rows("reading rejects", &sql).await?;
        Ok(rows
            .into_iter()
            .filter_map(|[reason, count, last, detail]| {
                Some(RejectedFor { reason, count: count.parse().ok()?, last, detail })
            })
            .collect())
    }

    /// Returns the driver's fixes whose `ts` is at most `margin` before or after one of the times.
    /// `times`: Unix milliseconds.
    pub async fn stored_fixes(
        &self,
        driver_id: &DriverId,
        times: &[i64],
        margin: Duration,
    ) -> Result<Vec<StoredFix>, Error> {
        let margin = i64::try_from(margin.as_millis()).unwrap_or(i64::MAX);
        let timestamp = |ms: i64| format!("fromUnixTimestamp64Milli({ms}, 'UTC')");
        let spans = spans(times, margin).into_iter().map(|[from, to]| {
            let (from, to) = (timestamp(from), timestamp(to));
            format!(
                "(toDate(ts) >= toDate({from}) AND toDate(ts) <= toDate({to}) \
                 AND ts >= {from} AND ts <= {to})"
            )
        });
        let sql = format!(
            "SELECT DISTINCT toUnixTimestamp64Milli(ts), seq, lat_e7, lng_e7 FROM {} \
             WHERE driver_id = '{}' AND ({})",
            self.table_on_all_shards("positions"),
            driver_id.as_str(),
            spans.collect::<Vec<_>>().join(" OR ")
        );
        let rows = self.query_rows("looking for fixes", &sql).await?;
        let fix = |[ts, seq, lat_e7, lng_e7]: [String; 4]| {
            let (ts, seq) = (ts.parse().ok()?, seq.parse().ok()?);
            Some(StoredFix { ts, seq, lat_e7: lat_e7.parse().ok()?, lng_e7: lng_e7.parse().ok()? })
        };
        Ok(rows.into_iter().filter_map(fix).collect())
    }
}

/// Returns the span of `margin` before and after each time, all in milliseconds, and joins spans
/// that overlap. A device's backlog of past days and its current fix remain two spans.
fn spans(times: &[i64], margin: i64) -> Vec<[i64; 2]> {
    let mut times = times.to_vec();
    times.sort_unstable();
    let mut spans: Vec<[i64; 2]> = Vec::new();
    for time in times {
        let [from, to] = [time.saturating_sub(margin), time.saturating_add(margin)];
        match spans.last_mut() {
            Some(last) if last[1] >= from => last[1] = to,
            _ => spans.push([from, to]),
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backlog_and_current_fix_are_two_spans() {
        assert_eq!(spans(&[1_000, 90, 100, 95], 10), [[80, 110], [990, 1_010]]);
    }
}
