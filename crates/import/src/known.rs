//! Fixes that devices sent with a `seq`, which files do not have. `seq` is part of a fix's
//! identity, so imported without it they would be stored a second time.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use anyhow::{Context as _, Result};

use milepost_clickhouse::{ClickHouse, within};
use milepost_core::batch::Batch;

const DAY_MS: i64 = 86_400_000;
/// More drivers are not named in the query.
const DRIVERS_MAX: usize = 1_000;

/// Removes the positions without a `seq` whose driver has the same time and place with one; returns
/// how many.
pub(super) async fn leave_out_known(
    clickhouse: &ClickHouse,
    batch: &mut Batch,
    timeout: Duration,
) -> Result<u64> {
    let without_seq = || batch.positions.iter().filter(|position| position.seq == 0);
    let drivers: BTreeSet<&str> =
        without_seq().map(|position| position.driver_id.as_str()).collect();
    let days: BTreeSet<i64> =
        without_seq().map(|position| position.ts.unix_ms().div_euclid(DAY_MS)).collect();
    let (Some(first), Some(last)) = (days.first(), days.last()) else { return Ok(0) };
    // Ids have no quotes.
    let named = drivers.iter().map(|driver| format!("'{driver}'")).collect::<Vec<_>>().join(", ");
    let of_drivers = if drivers.len() > DRIVERS_MAX {
        String::new()
    } else {
        format!(" AND driver_id IN ({named})")
    };
    let listed = days.iter().map(|day| (*day * 86_400).to_string()).collect::<Vec<_>>().join(", ");
    let rows = format!(
        "FROM {} WHERE ts >= fromUnixTimestamp64Milli({}) AND ts < fromUnixTimestamp64Milli({}) AND seq != 0{of_drivers}",
        clickhouse.of_all("positions"),
        first * DAY_MS,
        (last + 1) * DAY_MS,
    );
    let days = format!("intDiv(toUnixTimestamp64Milli(ts), {DAY_MS}) * 86400 IN ({listed})");
    let sql =
        format!("SELECT driver_id, toUnixTimestamp64Milli(ts), lat_e7, lng_e7 {rows} AND {days}");
    let what = "looking for the fixes that devices sent";
    let mut cursor =
        clickhouse.client().query_raw(&sql).fetch::<(String, i64, i32, i32)>().context(what)?;
    let wanted: HashSet<(&str, i64, i32, i32)> = without_seq()
        .map(|fix| (fix.driver_id.as_str(), fix.ts.unix_ms(), fix.lat.e7(), fix.lng.e7()))
        .collect();
    let mut known = HashSet::new();
    while let Some((driver, ts, lat, lng)) = within(timeout, cursor.next()).await.context(what)? {
        if let Some(fix) = wanted.get(&(driver.as_str(), ts, lat, lng)) {
            known.insert((fix.0.to_owned(), ts, lat, lng));
        }
    }
    let all = batch.positions.len();
    batch.positions.retain(|fix| {
        let fix_key =
            (fix.driver_id.as_str().to_owned(), fix.ts.unix_ms(), fix.lat.e7(), fix.lng.e7());
        fix.seq != 0 || known.is_empty() || !known.contains(&fix_key)
    });
    Ok((all - batch.positions.len()) as u64)
}
