//! The steps of an erasure, and the data that is left after each.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow, bail, ensure};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use milepost_clickhouse::{ClickHouse, Error, Hosts, Traces};
use milepost_command::{ASK_WITHIN, Outcome, Shown, tables};
use milepost_config::Config;
use milepost_core::erased::ERASED_MAX;
use milepost_core::peers::decision::Next;
use milepost_decode::position::DriverId;
use milepost_observe::ask::{Unknown, hear};
use milepost_spool as spool;
use milepost_spool::erase::{Found, count};
use milepost_spool::{Kind, OpenError, Spool};

/// Time within which every running member has read the list of erased drivers, which it does
/// twice a minute.
const READ_WITHIN: Duration = Duration::from_secs(40);
/// Shortest and longest interval between scans; it grows by half with each scan.
const LOOK_EVERY: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(10)];
/// Consecutive clean scans required: a refresh in flight may have read rows before they were
/// hidden.
const CLEAN_LOOKS: u32 = 2;

/// Arguments of an erasure.
#[derive(Debug)]
pub(crate) struct Orders {
    pub driver_id: DriverId,
    /// Remove the data; otherwise it is only counted.
    pub yes: bool,
    /// Time limit of the whole run.
    pub within: Duration,
}

/// The data that is left of a driver, by place.
#[derive(Debug)]
pub(crate) struct Left {
    driver_id: DriverId,
    yes: bool,
    /// The driver is on the list of erased drivers.
    is_erased: bool,
    tables: Vec<Traces>,
    hosts: Hosts,
    /// Number of views that ClickHouse is refreshing.
    refreshes: u64,
    /// Inserts in flight that began before every member had read the list.
    inserts: u64,
    members: Members,
    /// State of the spool in words, and whether it holds nothing of the driver.
    spool: (String, bool),
    /// Enough consecutive scans were clean, and the last one was late enough.
    is_sure: bool,
}

/// The members of the group, by their answers.
#[derive(Debug, Default)]
struct Members {
    /// Members that use the current list and have no spool files.
    done: Vec<String>,
    /// All other members, one line each.
    others: Vec<String>,
    /// `shutdown.peers` is not set.
    unknown: bool,
}

impl Left {
    /// Returns the outcome for the exit code: clean if the last scans found nothing. A dry run is
    /// clean too, unless it finds data of a driver who is erased.
    #[must_use]
    pub(crate) fn outcome(&self) -> Outcome {
        let is_done = if self.yes {
            self.is_clean() && self.is_sure
        } else {
            self.is_clean() || !self.is_erased
        };
        if is_done { Outcome::Clean } else { Outcome::DataLeft }
    }

    /// Returns whether this scan found nothing.
    fn is_clean(&self) -> bool {
        let is_settled = self.refreshes == 0 && self.inserts == 0;
        let is_gone = is_settled && self.tables.iter().all(is_gone);
        is_gone && self.members.others.is_empty() && self.spool.1
    }
}

fn is_gone(traces: &Traces) -> bool {
    (traces.seen, traces.stored, traces.mutations, traces.old_parts) == (0, 0, 0, 0)
        && !traces.is_masked
}

impl Shown for Left {
    fn json(&self) -> serde_json::Value {
        let table = |traces: &Traces| {
            let Traces { table, seen, stored, mutations, failure, is_masked: _, old_parts, named } =
                traces;
            serde_json::json!({
                "table": table.name, "rows_seen": seen, "rows_on_disk": stored, "mutations": mutations, "failure": failure,
                "old_parts": old_parts, "old_parts_named": named,
            })
        };
        serde_json::json!({
            "driver_id": self.driver_id.as_str(),
            "dry_run": !self.yes,
            "done": self.yes && self.outcome() == Outcome::Clean,
            "tables": self.tables.iter().map(table).collect::<Vec<_>>(),
            "refreshes": self.refreshes,
            "members_done": self.members.done,
            "members_left": self.members.others,
            "spool": self.spool.0,
        })
    }
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<28} {:>12} {:>12} {:>10} {:>10}",
            "table", "rows seen", "on disk", "mutations", "old parts"
        )?;
        for Traces { table, seen, stored, mutations, old_parts, named, failure, is_masked: _ } in
            &self.tables
        {
            writeln!(
                f,
                "{:<28} {seen:>12} {stored:>12} {mutations:>10} {old_parts:>10}",
                table.name
            )?;
            if !failure.is_empty() {
                writeln!(f, "  a mutation fails, and ClickHouse retries it: {failure}")?;
            }
            if !named.is_empty() {
                writeln!(f, "  old parts: {named}")?;
            }
        }
        if self.hosts == Hosts::ThisAlone {
            f.write_str(
                "counted on the replica that was asked, alone: run it on each, or set clickhouse.cluster\n",
            )?;
        }
        if self.refreshes > 0 {
            writeln!(f, "{} views are being counted again", self.refreshes)?;
        }
        if self.inserts > 0 {
            writeln!(
                f,
                "{} inserts under way began before every member knew of it: their rows may still come",
                self.inserts
            )?;
        }
        if self.members.unknown {
            f.write_str("members: shutdown.peers is not set, so nobody was asked\n")?;
        }
        let done = self.members.done.iter().map(|member| format!("{member} leaves them out"));
        for member in done.chain(self.members.others.iter().cloned()) {
            writeln!(f, "member {member}")?;
        }
        writeln!(f, "spool: {}", self.spool.0)?;
        let id = self.driver_id.as_str();
        match (self.yes, self.outcome()) {
            (false, Outcome::DataLeft) => {
                writeln!(f, "{id} was erased, and this is left: run it with --yes")
            }
            (false, Outcome::Clean) => {
                writeln!(f, "a dry run: nothing was changed. With --yes all of {id} is removed")
            }
            (true, Outcome::Clean) if self.hosts == Hosts::ThisAlone => {
                writeln!(f, "nothing of {id} is left on the replica that was asked")
            }
            (true, Outcome::Clean) => writeln!(f, "nothing of {id} is left"),
            (true, Outcome::DataLeft) if self.is_clean() => {
                writeln!(
                    f,
                    "not sure yet: a member may not know of it for {READ_WITHIN:?}; run it again"
                )
            }
            (true, Outcome::DataLeft) => {
                writeln!(f, "not done: run it again, it goes on with what is left")
            }
        }
    }
}

/// Removes a driver from the list: new data of the driver is stored again. Removed data stays
/// removed.
///
/// # Errors
/// The table does not exist, or the server refuses.
pub(crate) async fn lift(config: &Config, driver_id: DriverId) -> Result<String> {
    let clickhouse = tables::migrated(config).await?;
    if clickhouse.erased_for(&driver_id).await?.is_none() {
        return Ok(format!("{} is not erased\n", driver_id.as_str()));
    }
    clickhouse.erase(&driver_id, true).await?;
    let is_lifted = clickhouse.erased_for(&driver_id).await?.is_none();
    ensure!(is_lifted, "written, but the replica that answered has not got it yet: run it again");
    Ok(format!(
        "lifted: members take what comes of {} within {READ_WITHIN:?}\n",
        driver_id.as_str()
    ))
}

/// Counts the data of a driver and, with `yes`, removes it.
///
/// # Errors
/// The tables do not exist, or the server refuses.
pub(crate) async fn erase(config: &Config, orders: Orders) -> Result<Left> {
    let driver_id = orders.driver_id;
    let clickhouse = tables::migrated(config).await?;
    let ends = Instant::now() + orders.within;
    let mut written_at = None;
    if orders.yes && clickhouse.erased_for(&driver_id).await?.is_none() {
        write(&clickhouse, &driver_id).await?;
        written_at = Some(Instant::now());
        info!("written: every member that reads it leaves this driver out");
    }
    // If this run wrote the row, its own clock counts too: the server's may have been set forward.
    let is_fresh = || written_at.is_some_and(|at| at.elapsed() < READ_WITHIN);
    let (mut clean, mut every) = (0, LOOK_EVERY[0]);
    loop {
        let age = written_at.map_or(Duration::MAX, |at| at.elapsed());
        let looked = async {
            let left = look(config, &clickhouse, driver_id, orders.yes, age).await?;
            let is_clean =
                left.is_clean() && !is_fresh() && !is_too_early(&clickhouse, &left).await?;
            Ok((left, is_clean))
        };
        let (mut left, is_clean) = match looked.await {
            Err(error) if may_pass(&error) && Instant::now() < ends => {
                warn!("{error:#}; it is tried again");
                clean = 0;
                sleep(every).await;
                every = later(every);
                continue;
            }
            looked => looked?,
        };
        clean = if is_clean { clean + 1 } else { 0 };
        left.is_sure = clean == CLEAN_LOOKS;
        let is_last = !left.yes || left.is_sure || Instant::now() >= ends;
        if let Some(stuck) = left
            .tables
            .iter()
            .find(|traces| !traces.failure.is_empty())
            .filter(|_| left.yes && is_last)
        {
            bail!(
                "{left}a mutation of {} fails: mend the cause, or end it with KILL MUTATION WHERE database = '{}' AND table = '{}' AND \
                 mutation_id = '…', and run this again",
                stuck.table.name,
                config.clickhouse.database,
                stuck.table.name
            );
        }
        if is_last {
            return Ok(left);
        }
        match go_on(&clickhouse, &left).await {
            Err(error) if may_pass(&error) => warn!("{error:#}; it is tried again"),
            done => done?,
        }
        sleep(every).await;
        every = later(every);
    }
}

fn later(every: Duration) -> Duration {
    LOOK_EVERY[1].min(every.mul_f64(1.5))
}

/// Returns whether the error is transient: the server is busy or away.
fn may_pass(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Error>().is_some_and(Error::may_pass)
}

/// Adds the driver to the list. A list longer than [`ERASED_MAX`] would stop the inserts of all
/// members, so the entries are counted before and, because other runs may write too, afterwards.
async fn write(clickhouse: &ClickHouse, driver_id: &DriverId) -> Result<()> {
    let full = || anyhow!("{ERASED_MAX} drivers are erased: lift some (milepost erase --lift)");
    ensure!(clickhouse.erased().await?.erased().count() < ERASED_MAX, full());
    clickhouse.erase(driver_id, false).await?;
    match clickhouse.erased().await {
        Err(error) if !error.may_pass() => {
            clickhouse.erase(driver_id, true).await?;
            Err(full())
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Returns whether members that could not be asked, or a replay by hand, may still use an older
/// list.
async fn is_too_early(clickhouse: &ClickHouse, left: &Left) -> Result<bool> {
    let erased_for = clickhouse.erased_for(&left.driver_id).await?;
    let is_known = erased_for.is_some() || !left.yes;
    let id = left.driver_id.as_str();
    ensure!(
        is_known,
        "{id} is not erased on the replica that answered: it was lifted meanwhile, or the replica lags"
    );
    Ok(erased_for.is_some_and(|since| since < READ_WITHIN))
}

/// Scans the members first and the tables last, so that the tables are counted after every member
/// has answered.
///
/// `age`: how long ago this run added the driver to the list. The server's clock may disagree; the
/// shorter time counts.
async fn look(
    config: &Config,
    clickhouse: &ClickHouse,
    driver_id: DriverId,
    yes: bool,
    age: Duration,
) -> Result<Left> {
    let erased = Arc::clone(clickhouse.erased().await?.erased());
    // A replica without the new row has the same digest as a member that has not read the row.
    let digest = if yes && !erased.contains(&driver_id) { String::new() } else { erased.digest() };
    let members = members(config, &digest).await;
    let spool = in_spool(config, driver_id, yes).await?;
    let hosts = clickhouse.hosts().await?;
    let refreshes = clickhouse.refreshes(&hosts).await?;
    // Ask for inserts before the tables: rows that such an insert commits meanwhile are counted.
    let known_for = clickhouse.erased_for(&driver_id).await?.unwrap_or_default().min(age);
    let inserts = if yes {
        clickhouse.inserts_older_than(&hosts, known_for.saturating_sub(READ_WITHIN)).await?
    } else {
        0
    };
    let tables =
        clickhouse.traces(&hosts, &clickhouse.tables_of_drivers().await?, &driver_id).await?;
    let is_erased = erased.contains(&driver_id);
    Ok(Left {
        driver_id,
        yes,
        is_erased,
        tables,
        hosts,
        refreshes,
        inserts,
        members,
        spool,
        is_sure: false,
    })
}

/// Hides the visible rows; once none is visible, removes the hidden ones. A table with a mutation
/// in progress waits for a later scan.
async fn go_on(clickhouse: &ClickHouse, left: &Left) -> Result<()> {
    let is_seen = left.tables.iter().any(|traces| traces.seen > 0);
    for traces in left.tables.iter().filter(|traces| traces.mutations == 0) {
        if traces.seen > 0 {
            info!(table = traces.table.name, rows = traces.seen, "hiding");
            clickhouse.hide(&traces.table, &left.driver_id).await?;
        } else if (traces.stored > 0 || traces.is_masked) && !is_seen {
            info!(table = traces.table.name, rows = traces.stored, "removing");
            clickhouse.remove_hidden(&traces.table).await?;
        }
    }
    Ok(())
}

/// Asks every member whether it uses the list with this digest.
async fn members(config: &Config, digest: &str) -> Members {
    let peers = &config.shutdown.peers;
    let mut members = Members { unknown: peers.is_empty(), ..Members::default() };
    hear(peers, ASK_WITHIN, Unknown::Told, |address, answer| {
        match answer {
            Ok(theirs) if theirs.erased.as_deref() == Some(digest) && theirs.spool_files == 0 => {
                members.done.push(format!("{} at {address}", theirs.name));
            }
            Ok(theirs) if theirs.erased.as_deref() == Some(digest) => members.others.push(format!(
                "{} at {address} leaves them out; its spool has {} files: it drops them from a batch when it inserts it, and what is in \
                 quarantine wants it stopped, and this run where its spool is",
                theirs.name, theirs.spool_files
            )),
            Ok(theirs) => {
                members.others.push(format!("{} at {address} has not read that they are erased", theirs.name));
            }
            Err(why) => members.others.push(format!("{address} could not be asked: {why}")),
        }
        Next::Settled
    })
    .await;
    members
}

/// Searches this machine's spool, if there is one and no process uses it.
async fn in_spool(config: &Config, driver_id: DriverId, remove: bool) -> Result<(String, bool)> {
    let Some(settings) = config.spool.clone() else {
        return Ok(("spool.dir is not set here".to_owned(), true));
    };
    if !settings.dir.exists() {
        return Ok((format!("there is no {}", settings.dir.display()), true));
    }
    let dir = settings.dir.display().to_string();
    if !remove {
        let found =
            spawn_blocking(move || count(&settings.dir, |id| id == driver_id.as_bytes())).await??;
        let told =
            format!("{dir}: {} rows, {} files that cannot be read", found.rows, found.unreadable);
        return Ok((told, found == Found::default()));
    }
    // Rewritten files are smaller than the ones they replace, so no bound is needed.
    let is_gone = move |id: &[u8]| id == driver_id.as_bytes();
    let found = spawn_blocking(move || match Spool::open(&settings.dir, u64::MAX) {
        Ok((spool, left)) => {
            let found = spool.erase(&left, is_gone)?;
            Ok((
                format!("{} rows, {} files that cannot be read", found.rows, found.unreadable),
                found.unreadable == 0,
            ))
        }
        Err(OpenError::InUse(_)) => {
            let listed = spool::list(&settings.dir)?;
            let count =
                |kinds: &[Kind]| listed.iter().filter(|file| kinds.contains(&file.kind)).count();
            let (batches, kept) = (count(&[Kind::Batch]), count(&[Kind::Row, Kind::Damaged]));
            let mut found = format!(
                "a member works there, {batches} batches, and it leaves them out when it inserts these"
            );
            if kept > 0 {
                found += &format!(
                    "; {kept} files in quarantine, which it does not touch: stop it, and run this again"
                );
            }
            Ok((found, batches + kept == 0))
        }
        Err(error @ OpenError::Io { .. }) => Err(anyhow!(error)),
    });
    let (found, is_done) = found.await??;
    Ok((format!("{dir}: {found}"), is_done))
}
