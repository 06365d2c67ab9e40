//! `milepost spool`: the batches of a directory, for instance of a volume whose pod is gone.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::sync::watch;
use tracing::info;

use super::{Outcome, Signals, spool_keeps, wait_until_migrated};
use crate::clickhouse::ClickHouse;
use crate::config::Config;
use crate::health::Health;
use crate::insert::Gate;
use crate::metrics::Metrics;
use crate::replay::Replayer;
use crate::spool::{self, Kind, Listed, Spool, format};

const PROGRESS_EVERY: Duration = Duration::from_secs(2);

fn settings(config: &Config) -> Result<&crate::config::Spool> {
    config.spool.as_ref().context("spool.dir is not set: there is no spool")
}

fn files(config: &Config) -> Result<Vec<Listed>> {
    let dir = &settings(config)?.dir;
    spool::list(dir).with_context(|| format!("spool.dir: cannot read {}", dir.display()))
}

/// `milepost spool list`: a line a file, and what is in it. Also while a process works there.
///
/// # Errors
/// There is no spool, or it cannot be read.
pub fn list(config: &Config) -> Result<String> {
    let dir = &settings(config)?.dir;
    let mut text = format!("{:<42} {:>12} {:>10}  state\n", "file", "bytes", "positions");
    let (mut batches, mut positions, mut bytes) = (0_u64, 0_u64, 0_u64);
    for file in files(config)? {
        let state = match (file.kind, &file.entry) {
            (Kind::Unfinished, _) => "being written, or left by a crash".to_owned(),
            (Kind::Damaged, _) => "damaged, set aside".to_owned(),
            (Kind::Batch, None) => "not a name of ours: left alone".to_owned(),
            (Kind::Batch, Some(_)) => match read(dir, &file) {
                Ok(_) => "ok".to_owned(),
                Err(error) => format!("{error:#}"),
            },
        };
        if let (Kind::Batch, Some(entry)) = (file.kind, &file.entry) {
            batches += 1;
            positions += entry.positions;
        }
        bytes += file.bytes;
        let rows = file.entry.map_or("?".to_owned(), |entry| entry.positions.to_string());
        writeln!(text, "{:<42} {:>12} {rows:>10}  {state}", file.name, file.bytes)?;
    }
    writeln!(text, "{batches} batches with {positions} positions; {bytes} bytes in {}", dir.display())?;
    Ok(text)
}

fn read(dir: &Path, file: &Listed) -> Result<Vec<crate::encode::Insert>> {
    Ok(format::read(&fs::read(dir.join(&file.name))?.into())?)
}

/// `milepost spool export`: each insert as a statement and its data, for `clickhouse-client` or curl.
///
/// # Errors
/// A file cannot be read, or the target not written; what was written stays.
pub fn export(config: &Config, target: &Path) -> Result<String> {
    let dir = &settings(config)?.dir;
    fs::create_dir_all(target).with_context(|| format!("cannot make {}", target.display()))?;
    let (mut text, mut left_out) = (String::new(), 0);
    for file in files(config)?.into_iter().filter(|file| file.kind == Kind::Batch && file.entry.is_some()) {
        let inserts = match read(dir, &file) {
            Ok(inserts) => inserts,
            Err(error) => {
                writeln!(text, "{}: not exported: {error:#}", file.name)?;
                left_out += 1;
                continue;
            }
        };
        for (index, insert) in inserts.iter().enumerate() {
            let stem = file.name.trim_end_matches(".batch");
            let (sql, data) = (format!("{stem}-{index}.sql"), format!("{stem}-{index}.rowbinary"));
            fs::write(target.join(&sql), &insert.statement).with_context(|| format!("cannot write {sql}"))?;
            fs::write(target.join(&data), &insert.body).with_context(|| format!("cannot write {data}"))?;
            writeln!(text, "{sql} {data} {} rows", insert.rows)?;
        }
    }
    ensure!(left_out == 0, "{text}{left_out} batches are not exported");
    text.push_str("insert one with: clickhouse-client --query \"$(cat FILE.sql)\" < FILE.rowbinary\n");
    Ok(text)
}

/// `milepost spool replay`: until nothing is left, or a signal.
///
/// # Errors
/// There is no spool, it is in use, or the tables are not those of this binary.
pub async fn replay(config: &Config) -> Result<Outcome> {
    let settings = settings(config)?;
    // A directory that is not there is a mistake here, not an empty spool.
    ensure!(settings.dir.is_dir(), "spool.dir: there is no {}", settings.dir.display());
    let metrics = Arc::new(Metrics::new(0));
    let health = Arc::new(Health::default());
    let spool = Arc::new(Spool::open(&settings.dir, settings.bytes_max, Arc::clone(&metrics))?);
    let clickhouse = Arc::new(ClickHouse::new(&config.clickhouse)?);
    let mut signals = Signals::new()?;
    info!(batches = spool.batches(), positions = metrics.ledger().in_spool, "replaying");
    let replay = async {
        wait_until_migrated(&clickhouse, &health, &watch::Sender::new(Gate::Unknown)).await?;
        let timeout = config.clickhouse.insert_timeout;
        let clickhouse = Arc::clone(&clickhouse);
        Replayer::new(clickhouse, Arc::clone(&spool), timeout, Arc::clone(&metrics), Arc::clone(&health))
            .drain()
            .await;
        Ok::<_, anyhow::Error>(())
    };
    let progress = async {
        loop {
            tokio::time::sleep(PROGRESS_EVERY).await;
            info!(batches_left = spool.batches(), inserted = metrics.ledger().replayed, "replaying");
        }
    };
    tokio::select! {
        replayed = replay => replayed?,
        () = progress => {}
        () = signals.next() => {}
    }
    let ledger = metrics.ledger();
    info!(inserted = ledger.replayed, quarantined = ledger.quarantined, "replayed, in positions");
    let left = spool_keeps(&spool) || ledger.quarantined > 0;
    Ok(if left { Outcome::DataLeft } else { Outcome::Clean })
}
