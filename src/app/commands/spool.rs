//! `milepost spool`: lists, exports or replays the batches of a directory, such as a volume whose
//! pod is gone.

use std::fmt::{self, Write as _};
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde::Serialize;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, sleep_until};
use tracing::{info, warn};

use crate::app::run::delivery_config;
use crate::executor::Executor;
use milepost_clickhouse::ClickHouse;
use milepost_command::{Outcome, Shown, Signals, tables};
use milepost_config::Config;
use milepost_core::counted::counted;
use milepost_core::delivery::events::{DeliveryCommand, Report, ServerStatus};
use milepost_core::delivery::policy::Delivery;
use milepost_core::encode::Insert;
use milepost_core::error_chain;
use milepost_core::screened::LIST_AGE_MAX;
use milepost_spool as spool;
use milepost_spool::{Kind, Listed, Spool, format};

/// Interval of log lines about the progress of a replay.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

fn settings(config: &Config) -> Result<&milepost_config::Spool> {
    config.spool.as_ref().context("spool.dir is not set: there is no spool")
}

fn files(config: &Config) -> Result<Vec<Listed>> {
    let dir = &settings(config)?.dir;
    spool::list(dir).with_context(|| format!("spool.dir: cannot read {}", dir.display()))
}

/// The files of a spool, with totals. `batches` and `positions` count only batch files whose name
/// milepost could have given; `bytes` counts all files.
#[derive(Debug)]
pub struct Listing {
    dir: PathBuf,
    files: Vec<File>,
    batches: u64,
    positions: u64,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct File {
    name: String,
    bytes: u64,
    /// Number of positions; `None` if the file name does not state it.
    positions: Option<u64>,
    /// `ok`, or why the file is not replayed.
    state: String,
}

impl Shown for Listing {
    fn json(&self) -> serde_json::Value {
        let Self { dir, files, batches, positions, bytes } = self;
        serde_json::json!({
            "dir": dir, "files": files, "batches": batches, "positions": positions, "bytes": bytes,
        })
    }
}

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<42} {:>12} {:>10}  state", "file", "bytes", "positions")?;
        for File { name, bytes, positions, state } in &self.files {
            let positions = positions.map_or("?".to_owned(), |positions| positions.to_string());
            writeln!(f, "{name:<42} {bytes:>12} {positions:>10}  {state}")?;
        }
        let Self { dir, batches, positions, bytes, files: _ } = self;
        writeln!(
            f,
            "{} with {}; {} in {}",
            counted(*batches, "batch"),
            counted(*positions, "position"),
            counted(*bytes, "byte"),
            dir.display()
        )
    }
}

/// Lists and verifies the files, for `milepost spool list`. Works while another process uses the
/// directory.
///
/// # Errors
/// `spool.dir` is not set, or cannot be read.
pub fn list(config: &Config) -> Result<Listing> {
    let dir = &settings(config)?.dir;
    let mut listing =
        Listing { dir: dir.clone(), files: Vec::new(), batches: 0, positions: 0, bytes: 0 };
    for file in files(config)? {
        let state = match (file.kind, &file.file) {
            (Kind::Unfinished, _) => "unfinished: being written, or left by a crash".to_owned(),
            (Kind::Damaged, _) => "damaged, in quarantine".to_owned(),
            (Kind::Row, _) => {
                "one row, too large for ClickHouse or a proxy in front of it, in quarantine"
                    .to_owned()
            }
            (Kind::Batch, None) => "not a file name of milepost: never replayed".to_owned(),
            (Kind::Batch, Some(_)) => match read(dir, &file) {
                Ok(_) => "ok".to_owned(),
                Err(error) => format!("{error:#}"),
            },
        };
        if let (Kind::Batch, Some(name)) = (file.kind, &file.file) {
            listing.batches += 1;
            listing.positions += name.positions;
        }
        listing.bytes += file.bytes;
        let positions = file.file.map(|name| name.positions);
        listing.files.push(File { name: file.name, bytes: file.bytes, positions, state });
    }
    Ok(listing)
}

/// Returns the inserts of a file. Fails if the file cannot be read, or is damaged.
fn read(dir: &Path, file: &Listed) -> Result<Vec<Insert>> {
    Ok(format::read(&fs::read(dir.join(&file.name))?.into())?)
}

/// `milepost spool export`: writes each insert as a statement and its data, for `clickhouse-client`
/// or curl. Returns the text to print, and [`Outcome::DataLeft`] if a damaged or unreadable file is
/// left out; the text names it. Unfinished files are skipped.
///
/// # Errors
/// The target cannot be written. Files that are already written stay.
pub fn export(config: &Config, target: &Path) -> Result<(String, Outcome)> {
    let dir = &settings(config)?.dir;
    let created = DirBuilder::new().recursive(true).mode(0o700).create(target);
    created.with_context(|| format!("cannot create {}", target.display()))?;
    let (mut text, mut exported, mut skipped) = (String::new(), 0, 0_u64);
    for file in files(config)? {
        let inserts = match file.kind {
            Kind::Unfinished => continue, // its messages were not acknowledged
            Kind::Damaged => Err(anyhow!("damaged, in quarantine")),
            Kind::Batch | Kind::Row => read(dir, &file),
        };
        let inserts = match inserts {
            Ok(inserts) => inserts,
            Err(error) => {
                writeln!(text, "{}: not exported: {error:#}", file.name)?;
                skipped += 1;
                continue;
            }
        };
        let note = if file.kind == Kind::Row {
            ", too large for ClickHouse or a proxy in front of it"
        } else {
            ""
        };
        for (index, insert) in inserts.iter().enumerate() {
            let stem = Path::new(&file.name).file_stem().unwrap_or_default().to_string_lossy();
            let (sql, data) = (format!("{stem}-{index}.sql"), format!("{stem}-{index}.rowbinary"));
            for (name, bytes) in [(&sql, insert.statement.as_bytes()), (&data, &insert.body[..])] {
                write_private(&target.join(name), bytes)
                    .with_context(|| format!("cannot write {name}"))?;
            }
            writeln!(text, "{sql} {data} {}{note}", counted(insert.rows, "row"))?;
            exported += 1;
        }
    }
    text.push_str(if exported > 0 {
        "insert one with: clickhouse-client --query \"$(cat FILE.sql)\" < FILE.rowbinary\n"
    } else {
        "no insert to export\n"
    });
    if skipped > 0 {
        writeln!(text, "{} not exported", counted(skipped, "file"))?;
        return Ok((text, Outcome::DataLeft));
    }
    Ok((text, Outcome::Clean))
}

/// Writes a file that only this user can read, as in the spool: positions are personal data.
fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    // An existing file may have other permissions.
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(bytes)
}

/// `milepost spool replay`: inserts all batches, until none is left or a signal arrives. Waits
/// while the tables do not match this binary.
///
/// # Errors
/// - There is no spool, or another process uses it.
/// - A migration was edited after it was applied.
/// - The list of erased drivers cannot be read.
pub async fn replay(config: &Config) -> Result<Outcome> {
    let settings = settings(config)?;
    // A missing directory is a mistake here, not an empty spool.
    let dir = settings.dir.display();
    let found = fs::metadata(&settings.dir);
    let found = found.with_context(|| format!("spool.dir: {dir} cannot be looked at"))?;
    ensure!(found.is_dir(), "spool.dir: {dir} is not a directory");
    let (spool, inventory) = Spool::open(&settings.dir, settings.bytes_max)?;
    let clickhouse = Arc::new(ClickHouse::new(&config.clickhouse)?);
    let mut signals = Signals::new()?;
    let mut policy = Delivery::new(delivery_config(config), inventory);
    let totals = policy.totals();
    info!(batches = totals.spool_batches, positions = totals.in_spool, "replaying");
    tokio::select! {
        ready = tables::until_ready(&clickhouse, |_| {}) => ready?,
        // Nothing has been inserted: the tables were not yet known to match this binary.
        () = signals.next() => {
            let is_empty = totals.spool_batches == 0;
            if is_empty {
                return Ok(Outcome::Clean);
            }
            return Ok(log_data_left(settings, totals.spool_batches));
        }
    }
    let (erased_sender, erased) = watch::channel(clickhouse.erased().await?);
    let server = Arc::clone(&clickhouse);
    // A driver may be erased during a long replay, so read the list again at intervals. If the
    // query gets no answer, retry until the list is `LIST_AGE_MAX` old. If the login was refused,
    // retry for as long as the password file may change. Any other refusal ends the replay.
    let list_error = async move {
        let (mut read_at, mut pause) = (Instant::now(), tables::CHECK_INTERVAL_READY);
        loop {
            sleep(pause).await;
            let is_first_failure = std::mem::replace(&mut pause, tables::CHECK_INTERVAL_UNREADY)
                == tables::CHECK_INTERVAL_READY;
            match server.erased().await {
                Ok(snapshot) => {
                    (read_at, pause) = (Instant::now(), tables::CHECK_INTERVAL_READY);
                    erased_sender.send_replace(snapshot);
                }
                Err(error)
                    if server.awaits_password(&error)
                        || error.may_succeed_on_retry() && read_at.elapsed() < LIST_AGE_MAX =>
                {
                    if server.awaits_password(&error) {
                        read_at = Instant::now(); // a refusal is an answer: restart the age limit
                    }
                    if is_first_failure {
                        warn!(
                            why = error_chain(&error),
                            "the list of erased drivers could not be read; retrying"
                        );
                    }
                }
                Err(error) => return error,
            }
        }
    };
    let capacity = Delivery::commands_max(config.clickhouse.inserts_in_flight);
    let ((commands, command_queue), (report_sender, reports)) =
        (mpsc::channel(capacity), mpsc::channel(capacity));
    let executor = Executor {
        sink: Arc::clone(&clickhouse),
        spool: Some(Arc::new(spool)),
        database: config.clickhouse.database.clone(),
        erased,
        reports: report_sender,
    };
    policy.handle_server_status(ServerStatus::ready(), Instant::now());
    tokio::select! {
        () = executor.run(command_queue) => {}
        replayed = replay_all(&mut policy, &clickhouse, commands, reports) => replayed?,
        error = list_error => return Err(error.into()),
        () = signals.next() => {}
    }
    let totals = policy.totals();
    info!(
        inserted = totals.inserted,
        quarantined = totals.quarantined,
        "replay ended; the counts are positions"
    );
    if totals.spool_batches > 0 {
        return Ok(log_data_left(settings, totals.spool_batches));
    }
    let unreplayed = files(config)?.iter().filter(|file| file.kind != Kind::Unfinished).count();
    if unreplayed > 0 {
        warn!(
            dir = %settings.dir.display(), files = unreplayed,
            "files left unreplayed: see `milepost spool list` and `spool export`"
        );
    }
    Ok(if unreplayed > 0 || totals.quarantined > 0 { Outcome::DataLeft } else { Outcome::Clean })
}

fn log_data_left(settings: &milepost_config::Spool, batches: u64) -> Outcome {
    warn!(dir = %settings.dir.display(), batches, "batches left in the spool");
    Outcome::DataLeft
}

/// Replays until no file is left that this binary can replay.
async fn replay_all(
    policy: &mut Delivery,
    clickhouse: &ClickHouse,
    commands: mpsc::Sender<DeliveryCommand>,
    mut reports: mpsc::Receiver<Report>,
) -> Result<()> {
    let (mut reported_at, mut refusals_checked) = (Instant::now(), 0);
    while policy.has_batches_to_deliver() {
        let now = Instant::now();
        // This command has no watcher of ClickHouse. After a refused insert, check the tables here
        // before the next one.
        let refusals = policy.watcher_request(now).refusals;
        if refusals > refusals_checked {
            tables::until_ready(clickhouse, |_| {}).await?;
            refusals_checked = refusals;
        }
        policy.handle_server_status(ServerStatus { refusals, ..ServerStatus::ready() }, now);
        policy.handle_timeout(now);
        while let Some(command) = policy.poll_command() {
            if commands.send(command).await.is_err() {
                return Ok(());
            }
        }
        while let Some(notice) = policy.poll_notice() {
            if notice.is_warning() { warn!("{notice}") } else { info!("{notice}") }
        }
        if reported_at.elapsed() >= PROGRESS_EVERY {
            reported_at = now;
            let totals = policy.totals();
            info!(batches_left = totals.spool_batches, inserted = totals.inserted, "replaying");
        }
        let until = policy.poll_timeout(now).unwrap_or(now + PROGRESS_EVERY);
        tokio::select! {
            Some(report) = reports.recv() => policy.handle_report(report, Instant::now()),
            () = sleep_until(until.into()) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn replay_says_why_the_directory_cannot_be_used() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        for (dir, expected) in [
            (folder.path().join("missing"), "No such file"),
            (file.join("spool"), "Not a directory"),
            (file, "is not a directory"),
        ] {
            let config = Config::parse(&format!("[spool]\ndir = '{}'", dir.display())).unwrap();
            let error = replay(&config).await.unwrap_err();
            assert!(format!("{error:#}").contains(expected), "{error:#}");
        }
    }
}
