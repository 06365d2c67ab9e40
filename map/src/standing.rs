//! Computes since when a driver has stayed at the place of the newest fix, from the stored stops
//! and the fixes after them.

use clickhouse::Row;
use clickhouse::error::Error as ClientError;
use milepost_clickhouse::FetchWhole as _;
use serde::{Deserialize, Serialize};

use crate::fleet::Fix;
use crate::history::{failed, iso};
use crate::store::{Error, Store};

/// Distance from the newest fix within which a driver has not left; the `radius_m` of a car
/// (docs/trips.md).
const RADIUS_M: f64 = 100.0;
/// Fixes are read from this long before the newest one, in milliseconds. Earlier stops are stored.
const FIXES_MS: i64 = 86_400_000;
/// Stored stops are read from this long before the newest fix, in milliseconds.
const STOPS_MS: i64 = 31 * 86_400_000;

/// The beginning of a stay. Times in milliseconds since 1970.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// Time of the newest fix.
    ts: i64,
    /// First fix of the stay.
    since: i64,
    /// The stay may have begun before `since`, because earlier fixes are not read.
    is_at_least: bool,
}

/// Start of the stay at the newest fix, according to the fixes.
#[derive(Row, Serialize, Deserialize)]
struct Stay {
    /// Time of the last fix elsewhere; 0: there is none.
    away_ms: i64,
    /// Time of the first fix after `away_ms`.
    since_ms: i64,
}

/// The newest stored episode.
#[derive(Row, Serialize, Deserialize)]
struct Newest {
    is_stop: bool,
    began_ms: i64,
    ended_ms: i64,
}

/// Returns the time since which a driver has stayed at the place of the newest fix.
///
/// # Errors
/// The query failed or exceeded a limit; the message is for the viewer.
pub async fn standing(store: &Store, driver: &str, fix: &Fix) -> Result<Standing, Error> {
    let reads = async { tokio::try_join!(stay(store, driver, fix), newest(store, driver, fix)) };
    let (stay, newest) = reads.await.map_err(|error| failed(store, &error))?;
    Ok(combined(fix.ts_ms, stay, newest))
}

/// Combines the fixes with the newest episode. By the fixes, the stay began when the driver arrived
/// at the newest place. If the episode is a stop that began before this arrival and did not end
/// before it, the stay began with the stop. A stored stop is more exact than the fixes: a single
/// wrong fix does not end it once its day has been computed. Until then, a stored stop ends before
/// the wrong fix, so the stay begins after that fix.
fn combined(ts_ms: i64, stay: Option<Stay>, newest: Option<Newest>) -> Standing {
    let (since, is_at_least) =
        stay.map_or((ts_ms, true), |stay| (stay.since_ms.min(ts_ms), stay.away_ms == 0));
    let stop = newest.filter(|newest| newest.is_stop && since <= newest.ended_ms);
    match stop {
        Some(stop) if stop.began_ms <= since => Standing {
            ts: ts_ms,
            since: stop.began_ms,
            is_at_least: stop.began_ms < ts_ms - STOPS_MS,
        },
        Some(_) | None => Standing { ts: ts_ms, since, is_at_least },
    }
}

async fn stay(store: &Store, driver: &str, fix: &Fix) -> Result<Option<Stay>, ClientError> {
    const SQL: &str = "WITH (SELECT max(near.ts) FROM {db}.fixes AS near
            WHERE driver_id = {driver:String}
                AND near.ts >= parseDateTime64BestEffort({from:String}, 3, 'UTC')
                AND near.ts <= parseDateTime64BestEffort({to:String}, 3, 'UTC')
                AND greatCircleDistance(lng, lat, {lng:Float64}, {lat:Float64})
                    > {radius:Float64}) AS away
        SELECT ifNull(toUnixTimestamp64Milli(away), 0) AS away_ms,
            toUnixTimestamp64Milli(min(fix.ts)) AS since_ms
        FROM {db}.fixes AS fix
        WHERE driver_id = {driver:String}
            AND fix.ts >= parseDateTime64BestEffort({from:String}, 3, 'UTC')
            AND fix.ts <= parseDateTime64BestEffort({to:String}, 3, 'UTC') AND fix.ts > away
        HAVING count() > 0";
    let query = store.query(SQL).param("driver", driver).param("radius", RADIUS_M);
    let query = query.param("from", iso(fix.ts_ms - FIXES_MS)).param("to", iso(fix.ts_ms));
    let query = query.param("lat", f64::from(fix.lat_e7) / 1e7);
    query.param("lng", f64::from(fix.lng_e7) / 1e7).fetch_whole_optional().await
}

async fn newest(store: &Store, driver: &str, fix: &Fix) -> Result<Option<Newest>, ClientError> {
    const SQL: &str = "SELECT toBool(kind = 'stop') AS is_stop,
            toUnixTimestamp64Milli(began) AS began_ms,
            toUnixTimestamp64Milli(ended) AS ended_ms
        FROM {db}_ask.episodes(driver = {driver:String}, from = {from:String}, to = {to:String},
            tz = 'UTC')
        ORDER BY began DESC, ended DESC LIMIT 1";
    let query = store.query(SQL).param("driver", driver);
    let query = query.param("from", iso(fix.ts_ms - STOPS_MS)).param("to", iso(fix.ts_ms + 1));
    query.fetch_whole_optional().await
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: i64 = 3_600_000;
    const NOW_MS: i64 = 1_760_000_000_000;

    fn stay(away_hours: Option<i64>, since_hours: i64) -> Option<Stay> {
        let away_ms = away_hours.map_or(0, |hours| NOW_MS - hours * HOUR_MS);
        Some(Stay { away_ms, since_ms: NOW_MS - since_hours * HOUR_MS })
    }

    fn episode(is_stop: bool, began_hours: i64, ended_hours: i64) -> Option<Newest> {
        let ms = |hours| NOW_MS - hours * HOUR_MS;
        Some(Newest { is_stop, began_ms: ms(began_hours), ended_ms: ms(ended_hours) })
    }

    #[test]
    fn stay_begins_with_the_stored_stop_or_the_fixes() {
        for (stay, newest, since_hours, is_at_least) in [
            (stay(Some(3), 2), None, 2, false),
            (stay(Some(3), 2), episode(false, 9, 3), 2, false),
            // The stop ended before the driver arrived at the newest place.
            (stay(Some(3), 2), episode(true, 9, 4), 2, false),
            // A wrong fix an hour ago does not end the stop.
            (stay(Some(1), 1), episode(true, 9, 0), 9, false),
            (stay(None, 24), episode(true, 90, 0), 90, false),
            (stay(None, 24), episode(true, 800, 0), 800, true),
            (stay(None, 24), None, 24, true),
            // The fixes show an earlier arrival than the stop.
            (stay(Some(3), 2), episode(true, 1, 0), 2, false),
            (None, None, 0, true),
        ] {
            let since = NOW_MS - since_hours * HOUR_MS;
            let expected = Standing { ts: NOW_MS, since, is_at_least };
            assert_eq!(combined(NOW_MS, stay, newest), expected);
        }
    }
}
