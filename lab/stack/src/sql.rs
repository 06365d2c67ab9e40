//! The files of sql/, for programs that do not use milepost's own crates.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::process::repository;

/// Returns the migrations that `milepost migrate` applies and records, in order.
pub fn migrations() -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(repository().join("sql")).context("no sql/ in the checkout")?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let is_sql = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "sql");
    files.retain(|file| is_sql(file) && !file.ends_with("columns.sql"));
    files.sort();
    Ok(files)
}

/// Returns the two sections of columns.sql, which replace `{stored}` and `{shown}`.
pub fn columns() -> Result<[String; 2]> {
    let text = fs::read_to_string(repository().join("sql/columns.sql"))?;
    let sections: Vec<&str> = text.trim_end().split("\n\n").skip(1).collect();
    let sections: [&str; 2] =
        sections.try_into().ok().context("sql/columns.sql does not have two sections")?;
    Ok(sections.map(str::to_owned))
}

/// The statements that run the roll-ups now, in the order in which their schedule runs them every
/// five minutes. They start the views if they are stopped. `{db}` is the database.
pub const REFRESH_ROLLUPS: [&str; 6] = [
    "SYSTEM START VIEW {db}.touched_mv",
    "SYSTEM REFRESH VIEW {db}.touched_mv",
    "SYSTEM WAIT VIEW {db}.touched_mv",
    "SYSTEM START VIEW {db}.driver_days_mv",
    "SYSTEM REFRESH VIEW {db}.driver_days_mv",
    "SYSTEM WAIT VIEW {db}.driver_days_mv",
];
