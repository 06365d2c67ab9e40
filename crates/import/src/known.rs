//! Finds fixes that devices have sent and that a file repeats with fewer fields. If the file lacks
//! the `seq`, which is part of a fix's identity, such a fix would be stored a second time. If the
//! file lacks speed, heading, altitude or accuracy, such a fix would replace the device's values.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use milepost_clickhouse::{ClickHouse, Error, check_rows, within};
use milepost_core::batch::Batch;
use milepost_decode::position::{Accuracy, Altitude, Heading, Position, Speed};

pub(super) const DAY_MS: i64 = 86_400_000;
/// Maximum number of drivers that the query names. For more drivers, the query reads all drivers.
const DRIVERS_MAX: usize = 1_000;

/// Returns the fields that a fix has besides time and place, one bit each.
fn known_fields(fix: &Position) -> u8 {
    u8::from(fix.speed != Speed::UNKNOWN)
        | u8::from(fix.heading != Heading::UNKNOWN) << 1
        | u8::from(fix.alt != Altitude::UNKNOWN) << 2
        | u8::from(fix.acc != Accuracy::UNKNOWN) << 3
        | u8::from(fix.attributes.iter().next().is_some()) << 4
}

/// [`known_fields`] as SQL.
const KNOWN_FIELDS: &str = "toUInt8((speed_cms != 65535) + 2 * (heading_cdeg != 65535) \
                            + 4 * (alt_dm != 2147483647) + 8 * (acc_dm != 65535) \
                            + 16 * notEmpty(mapKeys(attributes)))";

/// Removes each position without a `seq` that is already stored with a `seq`, or with at least the
/// same fields. Returns the number of removed positions. Stored rows without a `seq` whose
/// `received_at` equals their `ts` do not count: they were imported, and a later import may replace
/// them.
pub(super) async fn skip_known(
    clickhouse: &ClickHouse,
    batch: &mut Batch,
    timeout: Duration,
) -> Result<u64, Error> {
    let without_seq = || batch.positions.iter().filter(|position| position.seq == 0);
    let drivers: BTreeSet<&str> =
        without_seq().map(|position| position.driver_id.as_str()).collect();
    let times = || without_seq().map(|position| position.ts.unix_ms());
    let days: BTreeSet<i64> = times().map(|ms| ms.div_euclid(DAY_MS)).collect();
    let (Some(first), Some(last)) = (times().min(), times().max()) else { return Ok(0) };
    // Driver ids contain no quotes, so they need no escaping.
    let driver_list =
        drivers.iter().map(|driver| format!("'{driver}'")).collect::<Vec<_>>().join(", ");
    let driver_condition = if drivers.len() > DRIVERS_MAX {
        String::new()
    } else {
        format!(" AND driver_id IN ({driver_list})")
    };
    let day_list =
        days.iter().map(|day| (*day * 86_400).to_string()).collect::<Vec<_>>().join(", ");
    let from_and_where = format!(
        "FROM {} WHERE ts >= fromUnixTimestamp64Milli({}) AND ts <= fromUnixTimestamp64Milli({}) \
         AND (seq != 0 OR received_at != ts){driver_condition}",
        clickhouse.table_on_all_shards("positions"),
        first,
        last,
    );
    let day_condition =
        format!("intDiv(toUnixTimestamp64Milli(ts), {DAY_MS}) * 86400 IN ({day_list})");
    // A row with a `seq` counts as having all fields: 31 has all five bits of `known_fields`.
    let sql = format!(
        "SELECT driver_id, toUnixTimestamp64Milli(ts), lat_e7, lng_e7, \
         if(seq != 0, toUInt8(31), {KNOWN_FIELDS}) {from_and_where} AND {day_condition}"
    );
    let context = "looking for the fixes that devices sent";
    // Read the rows one by one, and keep only those of fixes in the batch: memory stays bounded,
    // however long the answer is. With `wait_end_of_query`, `check_rows` would find every cut
    // answer, but ClickHouse would buffer the whole answer before it sends the first row.
    let mut cursor = clickhouse
        .unbounded()
        .query_raw(&sql)
        .fetch::<(String, i64, i32, i32, u8)>()
        .map_err(|error| clickhouse.failed(context, error))?;
    // If the batch has a fix twice, the stored row must have the fields of both copies.
    let mut batch_fields: HashMap<(&str, i64, i32, i32), u8> = HashMap::new();
    for fix in without_seq() {
        let fix_key = (fix.driver_id.as_str(), fix.ts.unix_ms(), fix.lat.e7(), fix.lng.e7());
        *batch_fields.entry(fix_key).or_default() |= known_fields(fix);
    }
    // Fixes of the batch whose stored row has at least the same fields.
    let mut known_fixes = HashSet::new();
    while let Some((driver, ts, lat, lng, stored)) =
        within(timeout, cursor.next()).await.map_err(|error| clickhouse.failed(context, error))?
    {
        let fields = batch_fields.get(&(driver.as_str(), ts, lat, lng));
        if fields.is_some_and(|fields| fields & !stored == 0) {
            known_fixes.insert((driver, ts, lat, lng));
        }
    }
    check_rows(&cursor).map_err(|error| clickhouse.failed(context, error))?;
    let positions_before = batch.positions.len();
    batch.positions.retain(|fix| {
        let fix_key =
            (fix.driver_id.as_str().to_owned(), fix.ts.unix_ms(), fix.lat.e7(), fix.lng.e7());
        fix.seq != 0 || known_fixes.is_empty() || !known_fixes.contains(&fix_key)
    });
    Ok((positions_before - batch.positions.len()) as u64)
}
