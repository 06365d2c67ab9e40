//! `milepost trace`: reports where a driver's fixes are.

mod live;

use std::fmt;
use std::fs;
use std::io::ErrorKind;

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::json;
use tokio::task::spawn_blocking;

pub use self::live::follow;
use milepost_clickhouse::{LastFix, RejectedFor};
use milepost_command::{ASK_TIMEOUT, Shown, tables};
use milepost_config::Config;
use milepost_core::counted::counted;
use milepost_core::peers::decision::FollowUp;
use milepost_decode::position::DriverId;
use milepost_observe::peers::{OnUnresolved, query_peers};
use milepost_spool as spool;
use milepost_spool::{Kind, format};

/// Where a driver's fixes are.
#[derive(Debug)]
pub struct Trace {
    driver_id: DriverId,
    /// The driver's newest fix in ClickHouse; `None` if there is none.
    last: Option<LastFix>,
    /// Number of fixes with a `ts` in the last hour, and in the last day.
    fixes: [u64; 2],
    rejects: Vec<RejectedFor>,
    /// Seconds since the driver was erased; `None` if the driver is not erased.
    erased_s: Option<u64>,
    /// `None` if `spool.dir` is not set.
    spool: Option<InSpool>,
    /// One line for each of `shutdown.peers`.
    members: Vec<String>,
}

/// Rows of the driver in this machine's spool.
#[derive(Debug, Default, Serialize)]
struct InSpool {
    dir: String,
    rows: u64,
    files: u64,
    /// Files that cannot be read, or hold rows of a newer version.
    unreadable: u64,
}

impl Trace {
    /// Returns whether ClickHouse has a fix of the driver.
    #[must_use]
    pub fn is_found(&self) -> bool {
        self.last.is_some()
    }
}

impl Shown for Trace {
    fn json(&self) -> serde_json::Value {
        let Self { driver_id, last, fixes, rejects, erased_s, spool, members } = self;
        let number = |text: &str| text.parse::<f64>().ok(); // null: unknown
        let last = last.as_ref().map(|last| {
            let LastFix { ts, age_s, lat, lng, speed, received_at, inserted_at } = last;
            json!({
                "ts": ts, "age_seconds": age_s.parse::<i64>().ok(), "lat": number(lat),
                "lng": number(lng), "speed": number(speed),
                "received_at": received_at, "inserted_at": inserted_at,
            })
        });
        json!({
            "driver_id": driver_id.as_str(),
            "last": last,
            "fixes_last_hour": fixes[0], "fixes_last_day": fixes[1],
            "rejects_last_hour": rejects,
            "erased_seconds_ago": erased_s,
            "spool": spool,
            "members": members,
        })
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { driver_id, last, fixes, rejects, erased_s, spool, members } = self;
        match last {
            Some(LastFix { ts, age_s, lat, lng, speed, received_at, inserted_at }) => {
                let speed = if speed.is_empty() { String::new() } else { format!(", {speed} m/s") };
                writeln!(f, "last fix     {ts} UTC, {age_s} s ago, at {lat}, {lng}{speed}")?;
                writeln!(f, "             received {received_at}, inserted {inserted_at}")?;
            }
            None => writeln!(f, "last fix     ClickHouse has no fix of {}", driver_id.as_str())?,
        }
        writeln!(f, "fixes        {} in the last hour, {} in the last day", fixes[0], fixes[1])?;
        match erased_s {
            Some(seconds) => writeln!(f, "erased       {seconds} s ago: new messages are dropped")?,
            None => writeln!(f, "erased       no")?,
        }
        if rejects.is_empty() {
            writeln!(f, "rejects      none in the last hour")?;
        }
        for RejectedFor { reason, count, last, detail } in rejects {
            writeln!(
                f,
                "rejects      {count} {reason} in the last hour, the last one {last}: {detail}"
            )?;
        }
        match spool {
            None => writeln!(f, "spool        spool.dir is not set here")?,
            Some(InSpool { dir, rows, files, unreadable }) => {
                let (rows, files) = (counted(*rows, "row"), counted(*files, "file"));
                write!(f, "spool        {rows} in {files} of {dir}")?;
                match unreadable {
                    0 => writeln!(f)?,
                    _ => writeln!(f, "; {} cannot be read", counted(*unreadable, "file"))?,
                }
            }
        }
        members.iter().try_for_each(|member| writeln!(f, "member       {member}"))
    }
}

/// Searches ClickHouse and this machine's spool for the driver, and asks `shutdown.peers` for the
/// number of files in their spools.
///
/// # Errors
/// The tables do not exist, or the server does not answer.
pub async fn trace(config: &Config, driver_id: DriverId) -> Result<Trace> {
    let clickhouse = tables::connect_if_migrated(config).await?;
    let erased = clickhouse.erased_for(&driver_id).await?;
    let mut members = Vec::new();
    query_peers(&config.shutdown.peers, ASK_TIMEOUT, OnUnresolved::Report, |address, answer| {
        members.push(match answer {
            Ok(status) if status.spool_files == 0 => {
                format!("{} at {address}: its spool is empty", status.name)
            }
            Ok(status) => format!(
                "{} at {address}: its spool has {}; run this command on its machine to search it",
                status.name,
                counted(status.spool_files, "file")
            ),
            Err(why) => format!("{address} could not be asked: {why}"),
        });
        FollowUp::Settled
    })
    .await;
    Ok(Trace {
        driver_id,
        last: clickhouse.last_fix(&driver_id).await?,
        fixes: clickhouse.recent_fix_counts(&driver_id).await?,
        rejects: clickhouse.recent_rejects(&driver_id).await?,
        erased_s: erased.map(|since| since.as_secs()),
        spool: count_in_spool(config, driver_id).await?,
        members,
    })
}

/// Counts the driver's rows in every spool file. Works while a process uses the directory, but then
/// misses files that the process inserts or writes at the same time. Returns `None` if `spool.dir`
/// is not set.
async fn count_in_spool(config: &Config, driver_id: DriverId) -> Result<Option<InSpool>> {
    let Some(settings) = &config.spool else { return Ok(None) };
    let dir = settings.dir.clone();
    let search = move || -> Result<InSpool> {
        let mut found = InSpool { dir: dir.display().to_string(), ..InSpool::default() };
        // `exists` would return `false` for a directory that this user may not look into.
        if !dir.try_exists()? {
            return Ok(found);
        }
        for file in spool::list(&dir)? {
            if !matches!(file.kind, Kind::Batch | Kind::Row | Kind::Damaged) {
                continue;
            }
            let bytes = match fs::read(dir.join(&file.name)) {
                // A running process has inserted and removed the file since `list`.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                bytes => bytes.ok(),
            };
            let rows = bytes.and_then(|bytes| {
                let inserts = format::read(&bytes.into()).ok()?;
                let is_driver = |id: &[u8]| id == driver_id.as_bytes();
                inserts
                    .iter()
                    .map(|insert| {
                        // `rows` is the number of rows that `without` removes: the driver's.
                        let (_, rows) = insert.without(is_driver)?;
                        Some(rows as u64)
                    })
                    .sum::<Option<u64>>()
            });
            match rows {
                Some(0) => {}
                Some(rows) => (found.rows, found.files) = (found.rows + rows, found.files + 1),
                None => found.unreadable += 1,
            }
        }
        Ok(found)
    };
    let searched = spawn_blocking(search).await?;
    searched.with_context(|| format!("spool.dir: cannot read {}", settings.dir.display())).map(Some)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    async fn count_in(dir: &Path) -> Result<Option<InSpool>> {
        let config = Config::parse(&format!("[spool]\ndir = '{}'", dir.display())).unwrap();
        count_in_spool(&config, DriverId::new("d7").unwrap()).await
    }

    #[tokio::test]
    async fn spool_that_cannot_be_searched_does_not_count_as_empty() {
        let folder = tempfile::tempdir().unwrap();
        let missing = count_in(&folder.path().join("missing")).await.unwrap().unwrap();
        assert_eq!((missing.rows, missing.unreadable), (0, 0), "{missing:?}");

        // As for a directory that this user may not enter, the error is not "not found". The test
        // may run as root, who may enter every directory.
        let inaccessible = Path::new("/dev/null/spool");
        let error = count_in(inaccessible).await.unwrap_err();
        assert!(error.to_string().contains("spool.dir: cannot read /dev/null/spool"), "{error:#}");

        // A directory that is named like a batch cannot be read as a file.
        fs::create_dir(folder.path().join("00000000000000000001-5-1.batch")).unwrap();
        let unreadable = count_in(folder.path()).await.unwrap().unwrap();
        assert_eq!((unreadable.rows, unreadable.unreadable), (0, 1), "{unreadable:?}");
    }
}
