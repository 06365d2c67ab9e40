//! The steps of an erasure. A scan after each step counts the remaining data.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow, bail, ensure};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use milepost_clickhouse::{ClickHouse, Error, Hosts, Traces};
use milepost_command::{ASK_TIMEOUT, Outcome, Shown, tables};
use milepost_config::Config;
use milepost_core::counted::counted;
use milepost_core::erased::ERASED_MAX;
use milepost_core::peers::decision::FollowUp;
use milepost_decode::position::DriverId;
use milepost_observe::peers::{OnUnresolved, query_peers};

use crate::in_spool::{InSpool, count_or_erase_in_spool};

/// Longest time until every running member has read the list of erased drivers. A member reads the
/// list twice a minute.
const LIST_READ_TIME_MAX: Duration = Duration::from_secs(40);
/// Interval between scans at first. It grows by half with each scan, up to [`SCAN_INTERVAL_MAX`].
const SCAN_INTERVAL_MIN: Duration = Duration::from_millis(500);
const SCAN_INTERVAL_MAX: Duration = Duration::from_secs(10);
/// Number of consecutive clean scans required. One is not enough: a view that is being refreshed
/// may have read rows before they were hidden, and may still store them.
const CLEAN_SCANS_REQUIRED: u32 = 2;

/// Arguments of an erasure.
#[derive(Debug)]
pub(crate) struct EraseArgs {
    pub driver_id: DriverId,
    /// Remove the data; otherwise it is only counted.
    pub yes: bool,
    /// Time limit of the whole run.
    pub within: Duration,
}

/// The remaining data of a driver, by place.
#[derive(Debug)]
pub(crate) struct EraseReport {
    driver_id: DriverId,
    yes: bool,
    /// The driver is on the list of erased drivers.
    is_erased: bool,
    tables: Vec<Traces>,
    hosts: Hosts,
    /// Number of views that ClickHouse is refreshing.
    refreshes: u64,
    /// Number of inserts in flight that began before every member had read the list.
    inserts: u64,
    members: Members,
    spool: InSpool,
    /// Tables with rows of the driver that this command cannot remove.
    out_of_reach: Vec<String>,
    /// Fences that name the driver; `None` if the login cannot look at them.
    fences: Option<Vec<String>>,
    /// The last [`CLEAN_SCANS_REQUIRED`] scans were clean. A scan does not count if it was made
    /// less than [`LIST_READ_TIME_MAX`] after the driver was added to the list: a member may not
    /// have read the list by then.
    is_confirmed: bool,
}

/// The members of the group, by their answers.
#[derive(Debug, Default)]
struct Members {
    /// Members that use the current list and have no spool files.
    done: Vec<String>,
    /// Members that have not read the list, have spool files, or did not answer; one line each.
    pending: Vec<String>,
    /// `shutdown.peers` is not set.
    are_unknown: bool,
}

impl EraseReport {
    /// Returns the outcome for the exit code: clean if the last scans found nothing. A dry run is
    /// clean too, unless it finds data of an erased driver.
    #[must_use]
    pub(crate) fn outcome(&self) -> Outcome {
        let is_done = if self.yes {
            self.is_clean() && self.is_confirmed && self.is_all_in_reach()
        } else {
            self.is_clean() && self.is_all_in_reach() || !self.is_erased
        };
        if is_done { Outcome::Clean } else { Outcome::DataLeft }
    }

    /// Returns whether this command can remove all data: no table out of its reach has rows of the
    /// driver, and the fences were checked and do not name the driver.
    fn is_all_in_reach(&self) -> bool {
        self.out_of_reach.is_empty() && self.fences.as_ref().is_some_and(Vec::is_empty)
    }

    /// Returns whether this scan found nothing, but could not read the fences.
    fn are_only_fences_unknown(&self) -> bool {
        self.is_clean() && self.out_of_reach.is_empty() && self.fences.is_none()
    }

    /// Returns whether this scan found no data, and no member, insert or view that may still add
    /// some. Data out of reach and fences do not count.
    fn is_clean(&self) -> bool {
        let is_settled = self.refreshes == 0 && self.inserts == 0;
        let no_rows_left = is_settled && self.tables.iter().all(has_no_traces);
        no_rows_left && self.members.pending.is_empty() && self.spool.is_clean
    }
}

fn has_no_traces(traces: &Traces) -> bool {
    (traces.seen, traces.stored, traces.mutations, traces.old_parts) == (0, 0, 0, 0)
        && !traces.is_masked
}

impl Shown for EraseReport {
    fn json(&self) -> serde_json::Value {
        let table = |traces: &Traces| {
            let Traces {
                table,
                seen,
                stored,
                mutations,
                failure,
                is_masked: _,
                old_parts,
                old_part_names,
            } = traces;
            serde_json::json!({
                "table": table.name, "rows_seen": seen, "rows_on_disk": stored,
                "mutations": mutations, "failure": failure,
                "old_parts": old_parts, "old_parts_named": old_part_names,
            })
        };
        let fences =
            self.fences.iter().flatten().map(|name| format!("fences (column drivers): {name}"));
        let out_of_reach: Vec<String> = self.out_of_reach.iter().cloned().chain(fences).collect();
        serde_json::json!({
            "driver_id": self.driver_id.as_str(),
            "dry_run": !self.yes,
            "done": self.yes && self.outcome() == Outcome::Clean,
            "tables": self.tables.iter().map(table).collect::<Vec<_>>(),
            "all_hosts_counted": self.hosts != Hosts::OthersUnknown,
            "refreshes": self.refreshes,
            "inserts": self.inserts,
            "members_asked": !self.members.are_unknown,
            "members_done": self.members.done,
            "members_left": self.members.pending,
            "spool": self.spool.description,
            "out_of_reach": out_of_reach,
            "fences_checked": self.fences.is_some(),
        })
    }
}

impl fmt::Display for EraseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<28} {:>12} {:>12} {:>10} {:>10}",
            "table", "rows seen", "on disk", "mutations", "old parts"
        )?;
        for Traces {
            table,
            seen,
            stored,
            mutations,
            old_parts,
            old_part_names,
            failure,
            is_masked: _,
        } in &self.tables
        {
            writeln!(
                f,
                "{:<28} {seen:>12} {stored:>12} {mutations:>10} {old_parts:>10}",
                table.name
            )?;
            if !failure.is_empty() {
                writeln!(f, "  a mutation fails, and ClickHouse retries it: {failure}")?;
            }
            if !old_part_names.is_empty() {
                writeln!(f, "  old parts: {old_part_names}")?;
            }
        }
        if self.hosts == Hosts::OthersUnknown {
            f.write_str(
                "counted on this replica only: run the command on each, or set \
                 clickhouse.cluster\n",
            )?;
        }
        if self.refreshes > 0 {
            let verb = if self.refreshes == 1 { "is" } else { "are" };
            writeln!(f, "{} {verb} being refreshed", counted(self.refreshes, "view"))?;
        }
        if self.inserts > 0 {
            writeln!(
                f,
                "{} in flight began before every member had read the list, and may still add rows",
                counted(self.inserts, "insert")
            )?;
        }
        if self.members.are_unknown {
            f.write_str("members: shutdown.peers is not set, so no member was asked\n")?;
        }
        let done = self.members.done.iter().map(|member| format!("{member} skips erased drivers"));
        for member in done.chain(self.members.pending.iter().cloned()) {
            writeln!(f, "member {member}")?;
        }
        writeln!(f, "spool: {}", self.spool.description)?;
        for table in &self.out_of_reach {
            writeln!(f, "table {table}, which erase does not reach: delete them by hand")?;
        }
        if self.fences.is_none() {
            f.write_str(
                "fences: not looked at, so a fence may name the driver: grant \
                 SELECT(name, valid_from, drivers) on fences to this login, \
                 and run the command again\n",
            )?;
        }
        for fence in self.fences.iter().flatten() {
            writeln!(
                f,
                "the fence {fence} names the driver in `drivers`: import it without the id; if \
                 this is its only driver, also end it with `valid_to`, or it is for all drivers"
            )?;
        }
        let id = self.driver_id.as_str();
        match (self.yes, self.outcome()) {
            (yes, Outcome::DataLeft)
                if self.are_only_fences_unknown() && (self.is_confirmed || !yes) =>
            {
                writeln!(f, "nothing of {id} was found, but the fences were not looked at")
            }
            (false, Outcome::DataLeft) => {
                writeln!(f, "{id} was erased, but this data is left: run the command with --yes")
            }
            (false, Outcome::Clean) => {
                writeln!(f, "dry run: nothing was changed. With --yes all data of {id} is removed")
            }
            (true, Outcome::Clean) if self.hosts == Hosts::OthersUnknown => {
                writeln!(f, "nothing of {id} is left on this replica")
            }
            (true, Outcome::Clean) => writeln!(f, "nothing of {id} is left"),
            (true, Outcome::DataLeft) if self.is_confirmed => {
                writeln!(f, "everything else of {id} is removed")
            }
            (true, Outcome::DataLeft) if self.is_clean() => {
                writeln!(
                    f,
                    "not certain yet: a member may take {LIST_READ_TIME_MAX:?} to read the list; \
                     run the command again"
                )
            }
            (true, Outcome::DataLeft) => {
                writeln!(
                    f,
                    "not finished: run the command again; it continues with the remaining data"
                )
            }
        }
    }
}

/// Removes a driver from the list of erased drivers: new data of the driver is stored again.
/// Removed data stays removed.
///
/// # Errors
/// The table does not exist, or the server refuses.
pub(crate) async fn lift(config: &Config, driver_id: DriverId) -> Result<String> {
    let clickhouse = tables::connect_if_migrated(config).await?;
    if clickhouse.erased_for(&driver_id).await?.is_none() {
        return Ok(format!("{} is not erased\n", driver_id.as_str()));
    }
    clickhouse.erase(&driver_id, true).await?;
    let is_lifted = clickhouse.erased_for(&driver_id).await?.is_none();
    ensure!(
        is_lifted,
        "the change is written, but this replica has not received it yet: run the command again"
    );
    Ok(format!(
        "lifted: within {LIST_READ_TIME_MAX:?} all members will store new data of {}\n",
        driver_id.as_str()
    ))
}

/// Counts the data of a driver and, with `yes`, removes it.
///
/// # Errors
/// The tables do not exist, or the server refuses.
pub(crate) async fn erase(config: &Config, args: EraseArgs) -> Result<EraseReport> {
    let driver_id = args.driver_id;
    // Without a cluster, only one host's rows are counted. Pin that host: the counts would prove
    // nothing if other hosts answered some of the queries.
    let mut pinned = config.clone();
    if config.clickhouse.cluster.is_none() {
        pinned.clickhouse = config.clickhouse.pinned();
    }
    let config = &pinned;
    let clickhouse = tables::connect_if_migrated(config).await?;
    let deadline = Instant::now() + args.within;
    let mut added_at = None;
    if args.yes && clickhouse.erased_for(&driver_id).await?.is_none() {
        add_to_list(&clickhouse, &driver_id).await?;
        added_at = Some(Instant::now());
        info!("added to the list of erased drivers: every member that reads it skips this driver");
    }
    // If this run added the driver to the list, also measure the time with this host's clock: the
    // server's clock may have been set forward.
    let was_just_added = || added_at.is_some_and(|at| at.elapsed() < LIST_READ_TIME_MAX);
    let (mut clean_scans, mut interval) = (0, SCAN_INTERVAL_MIN);
    loop {
        let age = added_at.map_or(Duration::MAX, |at| at.elapsed());
        let scanned = async {
            let report = scan(config, &clickhouse, driver_id, args.yes, age).await?;
            let is_clean = report.is_clean()
                && !was_just_added()
                && !may_use_older_list(&clickhouse, &report).await?;
            Ok((report, is_clean))
        };
        let (mut report, is_clean) = match scanned.await {
            Err(error) if may_succeed_later(&clickhouse, &error) && Instant::now() < deadline => {
                warn!("{error:#}; retrying");
                clean_scans = 0;
                sleep(interval).await;
                interval = next_interval(interval);
                continue;
            }
            scanned => scanned?,
        };
        clean_scans = if is_clean { clean_scans + 1 } else { 0 };
        report.is_confirmed = clean_scans == CLEAN_SCANS_REQUIRED;
        let is_last = !report.yes || report.is_confirmed || Instant::now() >= deadline;
        if let Some(stuck) = report
            .tables
            .iter()
            .find(|traces| !traces.failure.is_empty())
            .filter(|_| report.yes && is_last)
        {
            bail!(
                "{report}a mutation of {} fails: fix the cause, or end it with KILL MUTATION \
                 WHERE database = '{}' AND table = '{}' AND \
                 mutation_id = '…', and run the command again",
                stuck.table.name,
                config.clickhouse.database,
                stuck.table.name
            );
        }
        if is_last {
            return Ok(report);
        }
        match advance(&clickhouse, &report).await {
            Err(error) if may_succeed_later(&clickhouse, &error) => warn!("{error:#}; retrying"),
            done => done?,
        }
        sleep(interval).await;
        interval = next_interval(interval);
    }
}

fn next_interval(interval: Duration) -> Duration {
    SCAN_INTERVAL_MAX.min(interval.mul_f64(1.5))
}

/// Returns whether the error may pass: the server is busy or cannot be reached, or the password
/// file does not have a rotated password yet.
fn may_succeed_later(clickhouse: &ClickHouse, error: &anyhow::Error) -> bool {
    error.downcast_ref::<Error>().is_some_and(|error| clickhouse.may_succeed_later(error))
}

/// Adds the driver to the list of erased drivers. A list longer than [`ERASED_MAX`] would stop the
/// inserts of all members. So the entries are counted before the change, and again after it,
/// because another run may have added a driver at the same time.
async fn add_to_list(clickhouse: &ClickHouse, driver_id: &DriverId) -> Result<()> {
    let full = || {
        anyhow!(
            "{ERASED_MAX} drivers are erased, which is the maximum: lift some \
             (milepost erase --lift)"
        )
    };
    ensure!(clickhouse.erased().await?.erased().count() < ERASED_MAX, full());
    clickhouse.erase(driver_id, false).await?;
    match clickhouse.erased().await {
        // Undo the change only if the list is too long. An error with a code does not mean that:
        // ClickHouse refused the query, so the length of the list is unknown.
        Err(error) if !error.may_succeed_on_retry() && error.code().is_none() => {
            clickhouse.erase(driver_id, true).await?;
            Err(full())
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Returns whether the driver was added to the list less than [`LIST_READ_TIME_MAX`] ago. Until
/// then, a member that could not be asked, or a replay that an operator started, may still use an
/// older list. With `yes`, fails if the driver is not on the list.
async fn may_use_older_list(clickhouse: &ClickHouse, report: &EraseReport) -> Result<bool> {
    let erased_for = clickhouse.erased_for(&report.driver_id).await?;
    let is_listed = erased_for.is_some() || !report.yes;
    let id = report.driver_id.as_str();
    ensure!(
        is_listed,
        "{id} is not erased on the replica that answered: another run lifted it, or the replica \
         lags"
    );
    Ok(erased_for.is_some_and(|since| since < LIST_READ_TIME_MAX))
}

/// Scans the members first and the tables last, so that the tables are counted after every member
/// has answered.
///
/// `age`: time since this run added the driver to the list, by this host's clock; the maximum if
/// this run did not add it. The server's clock may give another time; the shorter one is used.
async fn scan(
    config: &Config,
    clickhouse: &ClickHouse,
    driver_id: DriverId,
    yes: bool,
    age: Duration,
) -> Result<EraseReport> {
    let erased = Arc::clone(clickhouse.erased().await?.erased());
    // If this replica has not received the driver's row yet, its digest would match the members
    // that have not read that row either. An empty digest matches no member.
    let digest = if yes && !erased.contains(&driver_id) { String::new() } else { erased.digest() };
    let members = ask_members(config, &digest).await;
    let spool = count_or_erase_in_spool(config, driver_id, yes).await?;
    let hosts = clickhouse.hosts().await?;
    let refreshes = clickhouse.refreshes(&hosts).await?;
    // Query the running inserts before the tables. Then the counts of the tables include the rows
    // that such an insert commits in between.
    let erased_for = clickhouse.erased_for(&driver_id).await?.unwrap_or_default().min(age);
    let inserts = if yes {
        clickhouse.inserts_older_than(&hosts, erased_for.saturating_sub(LIST_READ_TIME_MAX)).await?
    } else {
        0
    };
    let tables =
        clickhouse.traces(&hosts, &clickhouse.tables_of_drivers().await?, &driver_id).await?;
    let is_erased = erased.contains(&driver_id);
    let out_of_reach = clickhouse.rows_out_of_reach(&driver_id).await?;
    let fences = clickhouse.fences_naming(&driver_id).await?;
    Ok(EraseReport {
        driver_id,
        yes,
        is_erased,
        tables,
        hosts,
        refreshes,
        inserts,
        members,
        spool,
        out_of_reach,
        fences,
        is_confirmed: false,
    })
}

/// Hides the visible rows; once none is visible, removes the hidden ones. A table with a mutation
/// in progress waits for a later scan.
async fn advance(clickhouse: &ClickHouse, report: &EraseReport) -> Result<()> {
    let any_visible = report.tables.iter().any(|traces| traces.seen > 0);
    for traces in report.tables.iter().filter(|traces| traces.mutations == 0) {
        if traces.seen > 0 {
            info!(table = traces.table.name, rows = traces.seen, "hiding rows");
            clickhouse.hide(&traces.table, &report.driver_id).await?;
        } else if (traces.stored > 0 || traces.is_masked) && !any_visible {
            info!(table = traces.table.name, rows = traces.stored, "removing hidden rows");
            clickhouse.remove_hidden(&traces.table).await?;
        }
    }
    Ok(())
}

/// Asks every member whether it uses the list with this digest.
async fn ask_members(config: &Config, digest: &str) -> Members {
    let peers = &config.shutdown.peers;
    let mut members = Members { are_unknown: peers.is_empty(), ..Members::default() };
    query_peers(peers, ASK_TIMEOUT, OnUnresolved::Report, |address, answer| {
        match answer {
            Ok(status) if status.erased.as_deref() == Some(digest) && status.spool_files == 0 => {
                members.done.push(format!("{} at {address}", status.name));
            }
            Ok(status) if status.erased.as_deref() == Some(digest) => members.pending.push(format!(
                "{} at {address} skips erased drivers; its spool has {}: it drops their rows when \
                 it inserts a batch. For files in quarantine, stop it and run the command on its \
                 machine",
                status.name, counted(status.spool_files, "file")
            )),
            Ok(status) => {
                let text = "has not read the current list yet";
                members.pending.push(format!("{} at {address} {text}", status.name));
            }
            Err(why) => members.pending.push(format!("{address} could not be asked: {why}")),
        }
        FollowUp::Settled
    })
    .await;
    members
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    /// Answers one request after another. Returns the number of requests that were inserts.
    fn serve(listener: std::net::TcpListener, answers: [(&str, &str); 3]) -> usize {
        use std::io::{Read as _, Write as _};
        let mut inserts = 0;
        for (head, body) in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut request, mut chunk) = (String::new(), [0; 4096]);
            while !request.contains("erased") {
                let read = stream.read(&mut chunk).unwrap();
                assert!(read > 0, "{request}");
                request += &String::from_utf8_lossy(&chunk[..read]);
            }
            inserts += usize::from(request.contains("INSERT"));
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
            stream.write_all(answer.as_bytes()).unwrap();
        }
        inserts
    }

    /// After the driver was added to the list, the server refuses the login (516) or the grant to
    /// read the list (497).
    #[tokio::test]
    async fn refused_query_does_not_lift_an_erasure() {
        for (code, status) in [(516, "403 Forbidden"), (497, "500 Internal Server Error")] {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let refused = format!("{status}\r\nX-ClickHouse-Exception-Code: {code}");
            let why = format!("Code: {code}. DB::Exception: refused");
            let server = std::thread::spawn(move || {
                const OK: &str = "200 OK\r\nX-ClickHouse-Summary: {\"result_rows\":\"1\"}";
                const STORED: &str = "200 OK\r\nX-ClickHouse-Summary: {\"written_rows\":\"1\"}";
                serve(listener, [(OK, "\t20\t2\t0\n"), (STORED, ""), (&refused, &why)])
            });
            let config =
                Config::parse(&format!("mqtt.client_id = 'm-0'\nclickhouse.url = '{url}'"));
            let clickhouse = ClickHouse::new(&config.unwrap().clickhouse).unwrap();
            add_to_list(&clickhouse, &DriverId::new("7").unwrap()).await.unwrap();
            assert_eq!(server.join().unwrap(), 1, "{code}: the erasure stays");
        }
    }

    /// The other replica may lag. Then its count would miss rows that the first replica has.
    #[tokio::test]
    async fn erase_without_a_cluster_asks_one_replica_only() {
        let unused_address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let urls = format!("['http://{unused_address}', 'http://{}']", other.local_addr().unwrap());
        for replication in ["macros", "managed"] {
            let toml = format!(
                "mqtt.client_id = 'm-0'\n\
                 clickhouse = {{ url = {urls}, replication = '{replication}' }}"
            );
            let config = Config::parse(&toml).unwrap();
            let driver_id = DriverId::new("7").unwrap();
            let args = EraseArgs { driver_id, yes: false, within: Duration::ZERO };
            let asked = tokio::select! {
                _ = other.accept() => true,
                erased = erase(&config, args) => erased.is_ok(),
            };
            assert!(!asked, "{replication}: the other replica must not be asked");
        }
        assert!(timeout(Duration::from_millis(10), other.accept()).await.is_err());
    }

    /// Returns the report of a finished erasure.
    fn report(fences: Option<Vec<String>>) -> EraseReport {
        EraseReport {
            driver_id: DriverId::new("7").unwrap(),
            yes: true,
            is_erased: true,
            tables: Vec::new(),
            hosts: Hosts::OnlyServer,
            refreshes: 0,
            inserts: 0,
            members: Members::default(),
            spool: InSpool { description: String::new(), is_clean: true },
            out_of_reach: Vec::new(),
            fences,
            is_confirmed: true,
        }
    }

    /// A script that reads the JSON must see what the text says.
    #[test]
    fn json_has_the_running_inserts_and_what_was_not_asked() {
        let json = report(Some(Vec::new())).json();
        assert_eq!(
            (json["all_hosts_counted"].as_bool(), json["inserts"].as_u64()),
            (Some(true), Some(0))
        );
        assert_eq!(json["members_asked"], true);
        let members = Members { are_unknown: true, ..Members::default() };
        let hosts = Hosts::OthersUnknown;
        let json = EraseReport { inserts: 2, hosts, members, ..report(Some(Vec::new())) }.json();
        assert_eq!((json["done"].as_bool(), json["inserts"].as_u64()), (Some(false), Some(2)));
        assert_eq!(json["all_hosts_counted"], false);
        assert_eq!(json["members_asked"], false);
    }

    #[test]
    fn erasure_is_not_done_while_fences_were_not_looked_at() {
        for fences in [None, Some(Vec::new())] {
            let is_checked = fences.is_some();
            let report = report(fences);
            let printed = report.to_string();
            assert_ne!(printed.contains("fences: not looked at"), is_checked);
            assert_ne!(printed.contains("grant SELECT(name, valid_from, drivers)"), is_checked);
            assert_eq!(printed.contains("nothing of 7 is left"), is_checked, "{printed}");
            assert_eq!(report.json()["fences_checked"], is_checked);
            assert_eq!(report.json()["done"], is_checked);
            assert_eq!(report.outcome() == Outcome::Clean, is_checked);
        }
        let named = report(Some(vec!["depot".to_owned()]));
        assert!(named.to_string().contains("the fence depot names the driver"));
        assert!(named.outcome() == Outcome::DataLeft);
    }
}
