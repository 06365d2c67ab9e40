//! `milepost fences import`: writes the areas of a GeoJSON file into the table `fences`.
//!
//! Guarantee: the areas are written with one insert, all or none. Exception: if a proxy refuses an
//! insert of this size, the areas are written with several smaller inserts. The import may be
//! repeated: it does not write areas again that the table already has.

use std::collections::HashMap;
use std::fmt;

use anyhow::{Result, anyhow};

use crate::fences::geometry::Polygon;
use crate::fences::store::FenceStore;
use crate::fences::{self, Fence};
use milepost_command::insert::retrying_writer;
use milepost_command::{Shown, tables};
use milepost_config::Config;

#[derive(Debug, Clone, Copy)]
pub(crate) struct FenceImportArgs {
    pub(crate) dry_run: bool,
    pub(crate) skip_invalid: bool,
}

/// The result of an import: the file's errors, and how many of its areas are new, changed or
/// unchanged compared to the table.
#[derive(Debug)]
pub(crate) struct Imported {
    args: FenceImportArgs,
    invalid: Vec<String>,
    invalid_features: usize,
    new: usize,
    changed: usize,
    unchanged: usize,
}

impl Imported {
    /// Returns whether nothing is imported because an area is invalid.
    #[must_use]
    pub(crate) fn is_refused(&self) -> bool {
        self.invalid_features > 0 && !self.args.skip_invalid
    }
}

impl Shown for Imported {
    fn json(&self) -> serde_json::Value {
        let Self { args, invalid, invalid_features, new, changed, unchanged } = self;
        let imported = !args.dry_run && !self.is_refused();
        serde_json::json!({
            "new": new, "changed": changed, "unchanged": unchanged, "invalid": invalid_features,
            "problems": invalid, "imported": imported,
        })
    }
}

impl fmt::Display for Imported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.invalid.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        writeln!(f, "new                       {:>10}", self.new)?;
        writeln!(f, "changed                   {:>10}", self.changed)?;
        writeln!(f, "already there             {:>10}", self.unchanged)?;
        writeln!(f, "invalid                   {:>10}", self.invalid_features)?;
        if self.is_refused() {
            f.write_str(
                "nothing is imported: correct the invalid areas, or skip them with \
                 --skip-invalid\n",
            )
        } else if self.args.dry_run {
            f.write_str("nothing is imported: a dry run\n")
        } else {
            Ok(())
        }
    }
}

/// Imports the areas of a file.
///
/// # Errors
/// The file is not GeoJSON, the table does not exist, or a query or the insert fails.
pub(crate) async fn import(config: &Config, json: &str, args: FenceImportArgs) -> Result<Imported> {
    let read = fences::read(json.trim_start_matches('\u{feff}')).map_err(|why| anyhow!(why))?;
    let clickhouse = tables::connect_if_migrated(config).await?;
    let mut stored = HashMap::new();
    for fence in FenceStore(&clickhouse).fences().await? {
        stored.insert((fence.name, fence.from), (fence.until, fence.shape, fence.rules));
    }
    let stored_as = |fence: &Fence| stored.get(&(fence.name.clone(), fence.valid_from.unix_ms()));
    let is_same = |fence: &Fence| {
        stored_as(fence).is_some_and(|(until, shape, rules)| {
            *until == fence.valid_until.unix_ms()
                && is_shape(shape, &fence.polygons)
                && *rules == fence.rules
        })
    };
    let in_file = read.fences.len();
    let to_write: Vec<Fence> = read.fences.into_iter().filter(|fence| !is_same(fence)).collect();
    let changed = to_write.iter().filter(|fence| stored_as(fence).is_some()).count();
    let imported = Imported {
        args,
        invalid: read.invalid,
        invalid_features: read.invalid_features,
        new: to_write.len() - changed,
        changed,
        unchanged: in_file - to_write.len(),
    };
    if !to_write.is_empty() && !args.dry_run && !imported.is_refused() {
        let insert = fences::insert(&to_write, &config.clickhouse.database);
        retrying_writer(config)
            .write(&clickhouse, &insert, milepost_clickhouse::fresh_identity(0))
            .await?;
    }
    Ok(imported)
}

/// Returns whether the table's text of a shape is that of these polygons. If the text cannot be
/// read, returns false, so that an import replaces it.
fn is_shape(stored: &str, polygons: &[Polygon]) -> bool {
    // Parse both from text. The parser of JSON may return a neighbour of the number that was
    // written, and another neighbour when the text of that result is parsed again.
    let parsed = |json: &str| serde_json::from_str::<Vec<Polygon>>(json).ok();
    let stored = parsed(stored);
    stored.is_some() && stored == parsed(&serde_json::json!(polygons).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_shape_is_recognised_in_spite_of_many_decimals() {
        let ring =
            "[[139.702168149459226,35.1],[139.8,35.1],[139.8,35.2],[139.702168149459226,35.1]]";
        let file = format!(
            r#"{{"type":"Feature","properties":{{"name":"a"}},
            "geometry":{{"type":"Polygon","coordinates":[{ring}]}}}}"#
        );
        let polygons = fences::read(&file).unwrap().fences[0].polygons.clone();
        // ClickHouse writes the shortest text of each number, as Rust does.
        let shape = format!("{polygons:?}");
        assert!(is_shape(&shape, &polygons), "{shape}");
        assert!(!is_shape(&shape.replace("35.2", "35.20000000000001"), &polygons));
        assert!(!is_shape("[[[[nan,1]]]]", &polygons));
    }
}
