//! Finds the erased drivers (`milepost erase`). The map stores no card and no acknowledgement of an
//! erased driver. The map does not check the column `drivers` of `fences`: `milepost erase` names
//! the fences whose column has an erased driver (docs/privacy.md).
//!
//! The map reads the list just before each write. If a driver is erased between the read and the
//! write, `milepost erase` still finds the row: it scans the tables for 40 s after it has written
//! the list.

use std::collections::HashSet;

use crate::store::Store;

/// Maximum number of drivers that one query names: their ids are in one parameter.
const IDS_AT_ONCE: usize = 100;

/// Returns the erased drivers among these.
///
/// # Errors
/// The query failed.
pub(crate) async fn erased_among(
    store: &Store,
    ids: &[&str],
) -> Result<HashSet<String>, clickhouse::error::Error> {
    let sql = "SELECT driver_id FROM {db}.erased FINAL WHERE NOT is_lifted \
               AND driver_id IN {ids:Array(String)}";
    let mut erased = HashSet::new();
    for ids in ids.chunks(IDS_AT_ONCE) {
        erased.extend(store.fetch_all::<String>(|| store.query(sql).param("ids", ids)).await?);
    }
    Ok(erased)
}
