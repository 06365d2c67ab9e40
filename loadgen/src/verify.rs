//! Compares the fixes sent with the fixes stored. The fixes are compared as sets of (driver, seq),
//! and never only by row counts.
//!
//! The fixes of a driver are numbered 1, 2, 3, …. Therefore a driver's stored fixes are complete if
//! three things hold: as many distinct numbers are stored as were sent, the smallest is 1, and the
//! largest is the last number sent. All other drivers are compared number by number. In a format
//! without numbers, only the counts of distinct fixes (time and place) are compared.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use lab_stack::Store;
use serde::Serialize;

use crate::fleet::{LIVE_ACC_M, driver_id};
use crate::manifest::Manifest;

/// Interval of the queries that count the stored rows.
const POLL: Duration = Duration::from_millis(500);
/// Number of drivers that are compared number by number in one query.
const DRIVERS_PER_QUERY: usize = 100;
/// Maximum number of lost fixes that are listed.
const EXAMPLES_MAX: usize = 5;

/// Result of the comparison.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Verdict {
    /// Distinct fixes sent.
    pub sent: u64,
    /// Distinct fixes stored.
    pub stored: u64,
    /// Acknowledged fixes that are not stored.
    pub lost: u64,
    /// Fixes stored that were never sent.
    pub never_sent: u64,
    /// Duplicate rows of `positions` that a merge has not collapsed yet.
    pub duplicates_raw: u64,
    /// Duplicate rows in the view `fixes`.
    pub duplicates_in_fixes: u64,
    /// Rejected points and messages of this run, from the table `rejects`.
    pub rejects: u64,
    /// Time from the publishing of a live fix to its `inserted_at`, in milliseconds: median and
    /// 99th percentile.
    pub freshness_ms: Option<(f64, f64)>,
    /// Some of the lost fixes: driver and `seq`.
    pub examples: Vec<(u32, u32)>,
}

impl Verdict {
    /// Returns whether every acknowledged fix is stored exactly once, and no fix is stored that was
    /// never sent.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.lost == 0 && self.duplicates_in_fixes == 0 && self.never_sent == 0
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "sent                 {:>12}", self.sent)?;
        writeln!(f, "stored               {:>12}", self.stored)?;
        writeln!(f, "lost                 {:>12}", self.lost)?;
        writeln!(f, "duplicates in fixes  {:>12}", self.duplicates_in_fixes)?;
        writeln!(
            f,
            "duplicates raw       {:>12}   (rows of positions that a merge will collapse)",
            self.duplicates_raw
        )?;
        writeln!(f, "rejects              {:>12}", self.rejects)?;
        if let Some((p50, p99)) = self.freshness_ms {
            writeln!(f, "freshness            {p50:>9.0} ms   median, {p99:.0} ms at p99")?;
        }
        if self.never_sent > 0 {
            writeln!(
                f,
                "never sent           {:>12}   stored under driver ids of this run",
                self.never_sent
            )?;
        }
        for (driver, seq) in &self.examples {
            writeln!(f, "  lost: driver {driver}, seq {seq}")?;
        }
        Ok(())
    }
}

/// Rows of a run in `positions`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InPositions {
    /// Rows, merged or not.
    pub rows: u64,
    /// Distinct fixes.
    pub distinct: u64,
}

/// A driver's rows in one table.
struct Stored {
    rows: u64,
    distinct: u64,
    smallest: u32,
    largest: u32,
}

/// Waits until as many distinct fixes are stored as were sent, or until no new fix has been stored
/// for `within`. Then compares the fixes sent with the fixes stored.
pub fn verify(store: &Store, manifest: &Manifest, within: Duration) -> Result<Verdict> {
    let (mut distinct_max, mut last_growth) = (0, Instant::now());
    loop {
        let distinct = progress(store, manifest)?.distinct;
        if distinct > distinct_max {
            (distinct_max, last_growth) = (distinct, Instant::now());
        }
        if distinct >= manifest.sent() || last_growth.elapsed() >= within {
            break;
        }
        std::thread::sleep(POLL);
    }
    let mut verdict = Verdict { sent: manifest.sent(), ..Verdict::default() };
    let positions = stored(store, "positions", manifest)?;
    let fixes = stored(store, "fixes", manifest)?;
    verdict.duplicates_raw = positions.values().map(|stored| stored.rows - stored.distinct).sum();
    verdict.duplicates_in_fixes = fixes.values().map(|stored| stored.rows - stored.distinct).sum();
    verdict.stored = fixes.values().map(|stored| stored.distinct).sum();

    let unacked: HashSet<(u32, u32)> = manifest.unacked.iter().copied().collect();
    let mut incomplete = Vec::new();
    for (n, last_seq) in (0_u32..).zip(&manifest.last_seq) {
        let is_complete = fixes.get(&n).is_some_and(|stored| {
            stored.distinct == u64::from(*last_seq)
                && stored.smallest == 1
                && stored.largest == *last_seq
        });
        if !is_complete && *last_seq > 0 {
            incomplete.push((n, *last_seq));
        }
    }
    if !manifest.format.has_seq() {
        compare_counts(&fixes, &incomplete, &unacked, &mut verdict);
        incomplete.clear();
    }
    for drivers in incomplete.chunks(DRIVERS_PER_QUERY) {
        compare(store, manifest, drivers, &unacked, &mut verdict)?;
    }
    let drivers = u32::try_from(manifest.last_seq.len())?;
    verdict.never_sent += fixes
        .iter()
        .filter(|(n, _)| **n >= drivers)
        .map(|(_, stored)| stored.distinct)
        .sum::<u64>();
    verdict.rejects = select_from(store, "rejects", "sum(count)", manifest)?.trim().parse()?;
    verdict.freshness_ms = freshness(store, manifest)?;
    Ok(verdict)
}

/// Compares the number of fixes of each driver, for formats without `seq`. `drivers`: the number of
/// each driver, and how many fixes the driver sent.
fn compare_counts(
    fixes: &HashMap<u32, Stored>,
    drivers: &[(u32, u32)],
    unacked: &HashSet<(u32, u32)>,
    verdict: &mut Verdict,
) {
    for (n, last_seq) in drivers {
        let stored = fixes.get(n).map_or(0, |stored| stored.distinct);
        let unacked_count = unacked.iter().filter(|(driver, _)| driver == n).count() as u64;
        verdict.lost += (u64::from(*last_seq)).saturating_sub(stored + unacked_count);
        verdict.never_sent += stored.saturating_sub((*last_seq).into());
    }
}

/// Compares the fixes of some drivers number by number. `drivers`: the number of each driver, and
/// the last `seq` that the driver sent.
fn compare(
    store: &Store,
    manifest: &Manifest,
    drivers: &[(u32, u32)],
    unacked: &HashSet<(u32, u32)>,
    verdict: &mut Verdict,
) -> Result<()> {
    let ids: Vec<String> =
        drivers.iter().map(|(n, _)| format!("'{}'", driver_id(&manifest.run, *n))).collect();
    let answer = store.query(&format!(
        "SELECT DISTINCT driver_id, seq FROM {}.fixes WHERE driver_id IN ({})",
        store.database,
        ids.join(",")
    ))?;
    let mut stored: HashMap<&str, HashSet<u32>> = HashMap::new();
    for line in answer.lines() {
        let [id, seq] = columns(line)?;
        stored.entry(id).or_default().insert(seq.parse()?);
    }
    for (n, last_seq) in drivers {
        let stored = stored.remove(driver_id(&manifest.run, *n).as_str()).unwrap_or_default();
        for seq in 1..=*last_seq {
            if !stored.contains(&seq) && !unacked.contains(&(*n, seq)) {
                verdict.lost += 1;
                if verdict.examples.len() < EXAMPLES_MAX {
                    verdict.examples.push((*n, seq));
                }
            }
        }
        verdict.never_sent +=
            stored.iter().filter(|seq| **seq == 0 || **seq > *last_seq).count() as u64;
    }
    Ok(())
}

/// Counts the rows of a run in `positions`, and the distinct fixes among them.
pub fn progress(store: &Store, manifest: &Manifest) -> Result<InPositions> {
    let select = format!("count(), uniqExact(driver_id, {})", identity(manifest));
    let line = select_from(store, "positions", &select, manifest)?;
    let [rows, distinct] = columns(line.trim())?;
    Ok(InPositions { rows: rows.parse()?, distinct: distinct.parse()? })
}

/// Returns the rows of each driver of the run in a table, by the driver's number.
fn stored(store: &Store, table: &str, manifest: &Manifest) -> Result<HashMap<u32, Stored>> {
    let identity = identity(manifest);
    // Without `seq`, treat the fixes of a driver as if they were numbered from 1.
    let numbers = if manifest.format.has_seq() { "min(seq), max(seq)" } else { "1, different" };
    let select = format!("driver_id, count(), uniqExact({identity}) AS different, {numbers}");
    let prefix = driver_id(&manifest.run, 0);
    let prefix = prefix.trim_end_matches('0');
    let mut drivers = HashMap::new();
    for line in
        select_from(store, &format!("{table} GROUP BY driver_id"), &select, manifest)?.lines()
    {
        let [id, rows, distinct, smallest, largest] = columns(line)?;
        let n = id.strip_prefix(prefix).context("a driver of another run")?.parse()?;
        let (rows, distinct) = (rows.parse()?, distinct.parse()?);
        let stored =
            Stored { rows, distinct, smallest: smallest.parse()?, largest: largest.parse()? };
        ensure!(drivers.insert(n, stored).is_none(), "driver {n} is in the answer twice");
    }
    Ok(drivers)
}

/// Returns the columns that identify a fix of a driver.
fn identity(manifest: &Manifest) -> &'static str {
    if manifest.format.has_seq() { "seq" } else { "ts, lat, lng" }
}

/// Returns the median and the 99th percentile of the time from a live fix to its insert, in
/// milliseconds. Returns `None` if no live fix is stored.
fn freshness(store: &Store, manifest: &Manifest) -> Result<Option<(f64, f64)>> {
    let ms = "toUnixTimestamp64Milli(inserted_at) - toUnixTimestamp64Milli(ts)";
    let live = format!("acc = {LIVE_ACC_M}");
    let select =
        format!("countIf({live}), quantileIf(0.5)({ms}, {live}), quantileIf(0.99)({ms}, {live})");
    let line = select_from(store, "positions", &select, manifest)?;
    let [rows, p50, p99] = columns(line.trim())?;
    Ok(if rows == "0" { None } else { Some((p50.parse()?, p99.parse()?)) })
}

/// Selects from the rows of a run. `table` may be followed by further clauses, such as GROUP BY.
fn select_from(store: &Store, table: &str, select: &str, manifest: &Manifest) -> Result<String> {
    let (table, clauses) = table.split_once(' ').unwrap_or((table, ""));
    store.query(&format!(
        "SELECT {select} FROM {}.{table} WHERE {} {clauses}",
        store.database,
        run_condition(manifest)
    ))
}

/// Splits a line of tab-separated values. Fails if their number is not `COUNT`.
fn columns<const COUNT: usize>(line: &str) -> Result<[&str; COUNT]> {
    let columns: Vec<&str> = line.split('\t').collect();
    columns.try_into().map_err(|columns| anyhow!("{COUNT} columns expected: {columns:?}"))
}

/// Returns the condition for the rows of a run: ids `sim-{run}-{n}`, as a range of the tables' sort
/// order, without those of a run whose name only begins with this name, such as `{run}-2`.
fn run_condition(manifest: &Manifest) -> String {
    let Manifest { run, .. } = manifest;
    let number_at = format!("sim-{run}-").len() + 1;
    format!(
        "driver_id >= 'sim-{run}-' AND driver_id < 'sim-{run}.' \
         AND match(substring(driver_id, {number_at}), '^[0-9]+$')"
    )
}
