//! Imports files: decodes them into batches, and inserts one batch at a time.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use super::args::ImportArgs;
use super::files::{self, ClosedBatch, Counts};
use super::known;
use super::pause::Pause;
use super::progress::{Bar, Progress, Resume};
use super::summary::FileSummary;
use milepost_clickhouse::ClickHouse;
use milepost_command::insert::{insert, retrying_writer};
use milepost_command::rows::{rfc3339, unusable};
use milepost_command::{Shown, tables};
use milepost_config::Config;
use milepost_decode::position::Timestamp;

/// Active parts of a partition above which the import waits. ClickHouse delays inserts from 1,000
/// on.
const PARTS_MAX: u64 = 100;
/// Interval between counts of the active parts.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);

/// Result of an import: the counts of the files, and of the inserted and skipped rows.
#[derive(Debug)]
pub struct Imported {
    dry_run: bool,
    counts: Counts,
    /// Positions whose insert ClickHouse confirmed.
    inserted: u64,
    /// Positions that were skipped because their driver is erased.
    erased: u64,
    /// Positions that were skipped because ClickHouse has them already: sent by a device with a
    /// `seq`, or stored with all of their fields.
    known: u64,
    took: Duration,
}

impl Imported {
    /// Returns whether a file was not read to its end, or the dry run found a reject.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        !self.counts.failures.is_empty() || self.dry_run && !self.counts.rejects.is_empty()
    }
}

impl Shown for Imported {
    fn json(&self) -> serde_json::Value {
        let Self { dry_run, counts, inserted, erased, known, took } = self;
        let rejected = counts.rejects.iter().map(|(reason, (count, _))| (reason.name(), count));
        let details = counts.rejects.iter().map(|(reason, (_, detail))| (reason.name(), detail));
        serde_json::json!({
            "dry_run": dry_run, "fixes": counts.fixes, "positions": counts.positions,
            "inserted": inserted, "erased": erased, "known": known,
            "skipped": counts.skipped, "ignored": counts.ignored, "seconds": took.as_secs_f64(),
            "rejected": rejected.collect::<BTreeMap<_, _>>(),
            "details": details.collect::<BTreeMap<_, _>>(),
            "fields_unknown": unusable(&counts.omissions).collect::<BTreeMap<_, _>>(),
            "attributes_cut": counts.omissions.attributes_cut,
            "oldest": counts.oldest.map(Timestamp::unix_ms),
            "newest": counts.newest.map(Timestamp::unix_ms),
            "failures": counts.failures,
            "understood": counts.summaries.iter().map(FileSummary::json).collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for Imported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dry_run, counts, inserted, erased, known, took } = self;
        counts.summaries.iter().try_for_each(|summary| writeln!(f, "{summary}"))?;
        writeln!(f, "fixes read                {:>12}", counts.fixes)?;
        if counts.skipped > 0 {
            writeln!(
                f,
                "skipped                   {:>12}   stored by an earlier run (--resume)",
                counts.skipped
            )?;
        }
        let rate = counts.positions as f64 / took.as_secs_f64().max(0.001);
        if *dry_run {
            writeln!(f, "valid                     {:>12}   {rate:.0}/s", counts.positions)?;
        } else {
            writeln!(f, "positions inserted        {inserted:>12}   {rate:.0}/s")?;
        }
        if *erased > 0 {
            writeln!(f, "skipped                   {erased:>12}   their drivers are erased")?;
        }
        if *known > 0 {
            writeln!(
                f,
                "skipped                   {known:>12}   a device had sent them: already stored"
            )?;
        }
        writeln!(f, "without a fix             {:>12}", counts.ignored)?;
        for (reason, (count, example)) in &counts.rejects {
            writeln!(f, "rejected                  {count:>12}   {}: {example}", reason.name())?;
        }
        for (field, count) in unusable(&counts.omissions) {
            let at = counts.unusable.get(field).map_or(String::new(), |at| format!(": {at}"));
            writeln!(f, "{field:<25} {count:>12}   could not be used, and is NULL{at}")?;
        }
        let dropped = counts.omissions.attributes_cut;
        if dropped > 0 {
            writeln!(f, "attributes dropped        {dropped:>12}   beyond the limits of a fix")?;
        }
        if let (Some(oldest), Some(newest)) = (counts.oldest, counts.newest) {
            let [oldest, newest] =
                [oldest, newest].map(|ts| rfc3339(ts).to_string().replace('"', ""));
            writeln!(f, "times                     {oldest} to {newest}")?;
        }
        counts.failures.iter().try_for_each(|failure| writeln!(f, "{failure}"))?;
        if *dry_run {
            f.write_str("nothing is imported: a dry run\n")?;
        }
        // A file without a fix does not change the exit code, so the last line names such files.
        let (count, names) = (counts.files_without_fix, &counts.names_without_fix);
        if let Some(more) = count.checked_sub(names.len() as u64).filter(|_| count > 0) {
            let more = if more > 0 { format!(" and {more} more files") } else { String::new() };
            writeln!(f, "no fix was found in {}{more}", names.join(", "))?;
        }
        Ok(())
    }
}

/// Files that were opened and checked against the arguments.
#[derive(Debug)]
pub struct Opened {
    args: ImportArgs,
    files: Vec<files::Input>,
    resume: Option<Resume>,
}

/// Opens the files and the state of `--resume`.
///
/// # Errors
/// A file cannot be opened, or the arguments do not fit the file. For example, neither of them
/// names the driver.
pub fn open(config: &Config, args: ImportArgs) -> Result<Opened> {
    let resume = args.resume.as_deref().map(Resume::open).transpose()?;
    let files = files::open_all(config, &args, resume.as_ref())?;
    Ok(Opened { args, files, resume })
}

/// Imports the files, one after the other.
///
/// # Errors
/// The tables do not exist, the server refuses an insert, or the state of `--resume` cannot be
/// saved.
pub async fn import(config: &Config, opened: Opened) -> Result<Imported> {
    let (began, Opened { args, files, mut resume }) = (Instant::now(), opened);
    let clickhouse = if args.dry_run { None } else { Some(tables::ready(config).await?) };
    let (dry_run, progress) = (args.dry_run, Arc::<Progress>::default());
    let bar = Bar::start(Arc::clone(&progress), files.iter().map(|file| file.bytes).sum());
    let (batch_sender, mut closed_batches) = mpsc::channel(1);
    let reading = spawn_blocking({
        let (config, began, progress) = (config.clone(), began.into_std(), Arc::clone(&progress));
        move || files::read_all(files, &config, &args, began, &progress, batch_sender)
    });
    let (mut inserted, mut erased, mut known, mut counted_at) = (0, 0, 0, None);
    let (mut writer, mut pause) = (retrying_writer(config), Pause::new());
    while let Some(ClosedBatch { mut batch, stored }) = closed_batches.recv().await {
        let Some(clickhouse) = &clickhouse else { continue };
        if counted_at.is_none_or(|at: Instant| at.elapsed() >= COUNT_INTERVAL) {
            wait_for_merges(clickhouse, &progress, &mut pause).await?;
            counted_at = Some(Instant::now());
        }
        let timeout = config.clickhouse.insert_timeout;
        known += loop {
            match known::skip_known(clickhouse, &mut batch, timeout).await {
                Ok(known) => break known,
                Err(error) => pause.wait_or_fail(clickhouse, error).await?,
            }
        };
        pause.reset();
        let fixes: Vec<_> = stored.iter().map(|(path, mark)| (path.clone(), mark.fixes)).collect();
        let written = insert(config, clickhouse, &mut writer, batch, &fixes).await?;
        (inserted, erased) = (inserted + written.rows, erased + written.erased);
        progress.inserted.store(inserted, Relaxed);
        progress.waits_for_merges.store(false, Relaxed);
        // Save only after the insert: the next run skips the fixes that the state file notes.
        if let Some(resume) = &mut resume {
            resume.save(stored)?;
        }
    }
    let counts = reading.await?;
    drop(bar);
    Ok(Imported { dry_run, counts, inserted, erased, known, took: began.elapsed() })
}

/// Waits until every partition of the tables has at most [`PARTS_MAX`] active parts. So an import
/// never makes ClickHouse delay the inserts of a consumer.
async fn wait_for_merges(
    clickhouse: &ClickHouse,
    progress: &Progress,
    pause: &mut Pause,
) -> Result<()> {
    loop {
        match clickhouse.parts_of_fullest_partition().await {
            Ok(parts) if parts <= PARTS_MAX => {
                pause.reset();
                return Ok(());
            }
            Ok(_) => {
                progress.waits_for_merges.store(true, Relaxed);
                sleep(COUNT_INTERVAL).await;
            }
            Err(error) => pause
                .wait_or_fail(clickhouse, error)
                .await
                .context("cannot read system.parts, which says whether the import must wait")?,
        }
    }
}
