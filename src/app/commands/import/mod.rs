//! `milepost import`: fixes of files, through the decoder of messages, into the same tables.
//!
//! Guarantee: idempotent. A fix is the same row however often it is imported, or if it came over MQTT before: its identity is its
//! content, and `received_at` is its `ts`, so that of two equal fixes `last_positions` keeps the one that a device sent. One insert is
//! under way at a time, of a whole batch, and none while ClickHouse has many parts to merge. It holds three batches at most.

mod orders;
mod plan;
mod progress;
mod read;
mod record;
mod work;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use twox_hash::XxHash3_128;

pub use self::orders::Orders;
use self::progress::{Bar, Resume};
use self::work::{Closed, Counts};
use super::{Shown, insert_until_done};
use crate::app::schema;
use crate::clickhouse::ClickHouse;
use crate::config::Config;
use crate::delivery::retry::Identity;
use crate::pipeline::batch::Batch;
use crate::pipeline::decode::Field;
use crate::pipeline::encode;
use crate::pipeline::position::Timestamp;
use crate::pipeline::reject::{Reason, Reject};

/// Above so many active parts of a partition the import waits. ClickHouse delays inserts from 1,000 on.
const PARTS_MAX: u64 = 100;
/// How often they are counted.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// What was in the files, and what became of it.
#[derive(Debug)]
pub struct Imported {
    dry_run: bool,
    counts: Counts,
    /// Positions that ClickHouse confirmed, and those left out because their driver is erased.
    inserted: u64,
    erased: u64,
    took: Duration,
}

impl Imported {
    /// A file was not read to its end, or the dry run found something to reject.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        !self.counts.failures.is_empty() || self.dry_run && self.counts.rejected() > 0
    }
}

impl Shown for Imported {
    fn json(&self) -> serde_json::Value {
        let Self { dry_run, counts, inserted, erased, took } = self;
        let rejected = counts.rejects().map(|(reason, count, _)| (reason.name().to_owned(), count.into()));
        serde_json::json!({
            "dry_run": dry_run, "fixes": counts.fixes, "positions": counts.positions, "inserted": inserted, "erased": erased,
            "skipped": counts.skipped, "ignored": counts.ignored, "seconds": took.as_secs_f64(),
            "rejected": rejected.collect::<serde_json::Map<_, _>>(),
            "fields_unknown": counts.fields().collect::<BTreeMap<_, _>>(), "attributes_cut": counts.attributes_cut,
            "oldest": counts.oldest.map(Timestamp::unix_ms), "newest": counts.newest.map(Timestamp::unix_ms),
            "failures": counts.failures,
        })
    }
}

impl fmt::Display for Imported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dry_run, counts, inserted, erased, took } = self;
        writeln!(f, "fixes read                {:>12}", counts.fixes)?;
        if counts.skipped > 0 {
            writeln!(f, "stored before             {:>12}   skipped, as --resume says", counts.skipped)?;
        }
        let rate = counts.positions as f64 / took.as_secs_f64().max(0.001);
        if *dry_run {
            writeln!(f, "valid                     {:>12}   {rate:.0}/s", counts.positions)?;
        } else {
            writeln!(f, "positions inserted        {inserted:>12}   {rate:.0}/s")?;
        }
        if *erased > 0 {
            writeln!(f, "left out                  {erased:>12}   of erased drivers")?;
        }
        writeln!(f, "without a fix             {:>12}", counts.ignored)?;
        for (reason, count, example) in counts.rejects() {
            writeln!(f, "rejected                  {count:>12}   {}: {example}", reason.name())?;
        }
        for (field, count) in counts.fields() {
            writeln!(f, "{field:<25} {count:>12}   could not be used, and is NULL")?;
        }
        if counts.attributes_cut > 0 {
            writeln!(
                f,
                "attributes left out       {:>12}   beyond the limits of a fix",
                counts.attributes_cut
            )?;
        }
        if let (Some(oldest), Some(newest)) = (counts.oldest, counts.newest) {
            let [oldest, newest] =
                [oldest, newest].map(|ts| super::decode::rfc3339(ts).to_string().replace('"', ""));
            writeln!(f, "times                     {oldest} to {newest}")?;
        }
        counts.failures.iter().try_for_each(|failure| writeln!(f, "{failure}"))?;
        if *dry_run { f.write_str("nothing is imported: a dry run\n") } else { Ok(()) }
    }
}

/// Files that can be imported as the user asks.
#[derive(Debug)]
pub struct Opened {
    orders: Orders,
    files: Vec<work::Input>,
    resume: Option<Resume>,
}

/// # Errors
/// A file cannot be opened, or the orders do not fit it: it does not name its drivers, say.
pub fn open(config: &Config, orders: Orders) -> Result<Opened> {
    let resume = orders.resume.as_deref().map(Resume::open).transpose()?;
    let files = work::files(config, &orders, resume.as_ref())?;
    Ok(Opened { orders, files, resume })
}

/// Imports the files, one after the other.
///
/// # Errors
/// The tables are not there, the server refuses, or how far it came cannot be saved.
pub async fn import(config: &Config, opened: Opened) -> Result<Imported> {
    let (began, Opened { orders, files, mut resume }) = (Instant::now(), opened);
    let clickhouse = if orders.dry_run { None } else { Some(schema::ready(config).await?) };
    let (dry_run, seen) = (orders.dry_run, Arc::default());
    let bar = Bar::start(Arc::clone(&seen), files.iter().map(|file| file.bytes).sum());
    let (to_insert, mut closed) = mpsc::channel(1);
    let reading = spawn_blocking({
        let (config, began) = (config.clone(), began.into_std());
        move || {
            work::read(files, &config, &orders, began, &seen, |batch| to_insert.blocking_send(batch).is_ok())
        }
    });
    let (mut inserted, mut erased, mut counted_at) = (0, 0, None);
    while let Some(Closed { batch, stored }) = closed.recv().await {
        let Some(clickhouse) = &clickhouse else { continue };
        if counted_at.is_none_or(|at: Instant| at.elapsed() >= COUNT_EVERY) {
            wait_for_merges(clickhouse, &bar).await?;
            counted_at = Some(Instant::now());
        }
        let (rows, left_out) = insert(config, clickhouse, batch, &stored).await?;
        (inserted, erased) = (inserted + rows, erased + left_out);
        bar.inserted(inserted);
        if let Some(resume) = &mut resume {
            resume.save(stored)?;
        }
    }
    let counts = reading.await??;
    drop(bar);
    Ok(Imported { dry_run, counts, inserted, erased, took: began.elapsed() })
}

/// Until no partition of ours has many parts: a consumer that inserts meanwhile must never be delayed.
async fn wait_for_merges(clickhouse: &ClickHouse, bar: &Bar) -> Result<()> {
    while clickhouse.parts_of_a_partition().await.context("system.parts says whether the import must wait")?
        > PARTS_MAX
    {
        bar.waits_for_merges();
        sleep(COUNT_EVERY).await;
    }
    Ok(())
}

/// Inserts a batch; returns how many positions that were, and how many were left out.
async fn insert(
    config: &Config,
    clickhouse: &ClickHouse,
    mut batch: Batch,
    stored: &[(PathBuf, u64)],
) -> Result<(u64, u64)> {
    // Asked for each batch: an import may go on for long after somebody was erased.
    let erased = clickhouse.erased().await?;
    let all = batch.positions.len();
    batch.positions.retain(|position| !erased.has(&position.driver_id));
    batch.rejects.retain(|reject| !erased.has_bytes(reject.driver_id.as_bytes()));
    let (positions, number) = (batch.positions.len(), batch.id);
    // Rejects have no identity in their table. The same ones again, from the same place of the files, have the same token.
    let rejects = (!batch.rejects.is_empty()).then(|| of_rejects(&batch.rejects, stored));
    let inserts = spawn_blocking({
        let database = config.clickhouse.database.clone();
        move || encode::encode(batch, &database)
    });
    for (index, insert) in inserts.await?.into_iter().enumerate() {
        let is_positions = index == 0 && positions > 0;
        let identity = match rejects.filter(|_| !is_positions) {
            Some(incarnation) => Identity { incarnation, number: 0 },
            None => Identity::fresh(number),
        };
        insert_until_done(clickhouse, &insert, identity, config.clickhouse.insert_timeout).await?;
    }
    Ok((positions as u64, (all - positions) as u64))
}

#[expect(clippy::cast_possible_truncation, reason = "a hash")]
fn of_rejects(rejects: &[Reject], stored: &[(PathBuf, u64)]) -> u64 {
    let mut rows = Vec::new();
    let mut put = |part: &[u8]| {
        rows.extend_from_slice(&(part.len() as u64).to_le_bytes());
        rows.extend_from_slice(part);
    };
    for Reject { topic, driver_id, reason, payload, payload_bytes, count, .. } in rejects {
        for part in [topic.as_bytes(), driver_id.as_bytes(), reason.name().as_bytes(), payload] {
            put(part);
        }
        put(&payload_bytes.to_le_bytes());
        put(&count.to_le_bytes());
    }
    for (path, fixes) in stored {
        put(path.as_os_str().as_encoded_bytes());
        put(&fixes.to_le_bytes());
    }
    XxHash3_128::oneshot(&rows) as u64
}

impl Counts {
    fn rejected(&self) -> u64 {
        self.rejects().map(|(_, count, _)| count).sum()
    }

    /// Each optional field that could not be used, and how often.
    fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Field::ALL
            .iter()
            .map(|field| (field.name(), self.fields[*field as usize]))
            .filter(|(_, count)| *count > 0)
    }

    /// Each reason that came, how often, and the first one in words.
    fn rejects(&self) -> impl Iterator<Item = (Reason, u64, &str)> {
        let reasons = Reason::ALL.into_iter().zip(&self.rejects);
        reasons
            .filter(|(_, (count, _))| *count > 0)
            .map(|(reason, (count, why))| (reason, *count, why.as_str()))
    }
}
