//! Runs one case from beginning to end: a fleet, a fault, and milepost's reaction.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use lab_harness::background::Background;
use lab_harness::scripted_clickhouse::{Behaviour, HangAt, ScriptedClickHouse};
use lab_stack::{Broker, ClickHouse, Milepost, procfs, wait_until};
use loadgen::publish::Plan;
use tempfile::TempDir;

use super::{Case, Expect, Fault};
use crate::tables;
use crate::world::{DatabaseGuard, Engine, SOON, settings, shared_engine};

const MESSAGES_PER_SECOND: u32 = 50;
/// Limit of milepost's resident memory, whatever a server sends.
const RESIDENT_BYTES_MAX: u64 = 96 << 20;
/// Resident memory at which milepost is killed, to protect the other processes of this machine.
const RESIDENT_BYTES_FATAL: u64 = 512 << 20;
/// Largest growth of milepost's log during a fault.
const LOG_BYTES_MAX: usize = 64 << 10;
/// Log line of an insert that was cancelled because the engine, which other tests share, did not
/// respond for seconds. The outcome of such an insert is unknown, whatever the fault.
const ABORTED: &str = "aborted: ClickHouse answers again after a silence";
/// How long milepost may take to acknowledge the rows of its last insert on a busy machine.
const ACK_TIMEOUT: Duration = Duration::from_secs(30);
const OBSERVE_EVERY: Duration = Duration::from_millis(500);

/// Measurements of a case.
#[derive(Debug, Default)]
pub(super) struct Figures {
    /// Messages of the fleet.
    sent: u64,
    /// Largest number of messages seen as acknowledged but not stored.
    unstored: u64,
    /// Fixes missing at the end.
    lost: u64,
    resident_bytes: u64,
    log_bytes: usize,
    /// Time from the start of the fault until the log named the cause.
    logged_after: Option<Duration>,
    /// Time from the start of the fault until `/readyz` named the cause.
    unready_after: Option<Duration>,
    /// Time from the end of the fault until everything was stored and acknowledged, and milepost
    /// was ready.
    recovered_after: Option<Duration>,
    /// Failed inserts by kind.
    errors: BTreeMap<String, u64>,
    /// Messages that were stored during the fault, and were still unacknowledged at its end.
    stored_unacked: u64,
    /// Violated expectations.
    pub(super) problems: Vec<String>,
}

impl Figures {
    /// Returns whether the log and `/readyz` have named the cause that this case expects.
    fn is_reported(&self, case: &Case) -> bool {
        let is_refused = matches!(case.expect, Expect::Refused { .. });
        !is_refused || self.logged_after.is_some() && self.unready_after.is_some()
    }

    /// Records the problem unless the expectation holds.
    fn expect(&mut self, holds: bool, problem: impl FnOnce() -> String) {
        if !holds {
            self.problems.push(problem());
        }
    }
}

impl fmt::Display for Figures {
    /// Formats the figures as a row of the printed table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |took: Option<Duration>| {
            took.map_or("never".to_owned(), |took| format!("{:.1} s", took.as_secs_f64()))
        };
        let mib = self.resident_bytes as f64 / f64::from(1 << 20);
        let errors: Vec<String> =
            self.errors.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        write!(
            f,
            "{} | {} | {} | {mib:.0} MiB | {:.1} KiB | {} | {} | {} | {} | {}",
            self.sent,
            self.unstored,
            self.lost,
            self.log_bytes as f64 / 1024.0,
            seconds(self.logged_after),
            seconds(self.unready_after),
            seconds(self.recovered_after),
            errors.join(", "),
            if self.problems.is_empty() { "holds".to_owned() } else { self.problems.join("; ") },
        )
    }
}

/// Headings of the printed table: the case, then the figures as [`Figures`] formats them.
pub(super) const COLUMNS: &str = "case | sent | acked, not stored | lost | peak RSS | log | logged \
                                  after | unready after | back after | errors | verdict";

/// The processes of a case: milepost between a broker and the scripted server, and the engines
/// behind that server.
struct Stage {
    case: &'static Case,
    database: String,
    server: ScriptedClickHouse,
    first: Arc<Engine>,
    second: Option<Engine>,
    milepost: Milepost,
    broker: Broker,
    _database_guard: DatabaseGuard,
    _folder: TempDir,
}

/// Runs a case. The figures contain violated expectations; an error means that the case could not
/// be run.
pub(super) fn judge(case: &'static Case) -> Result<Figures> {
    let mut stage = Stage::start(case)?;
    let mut figures = Figures::default();
    let fleet = stage.fleet();
    wait_until("messages are acknowledged", SOON, || {
        Ok(stage.milepost.metric("acks_total")? >= f64::from(MESSAGES_PER_SECOND))
    })?;
    let log_bytes_before = stage.milepost.process.log()?.len();

    let began = Instant::now();
    stage.begin_fault()?;
    let before = stage.stored_and_acked_before()?;
    while began.elapsed() < case.fault_duration()
        || !figures.is_reported(case) && began.elapsed() < case.report_timeout()
    {
        stage.observe(&mut figures, began, log_bytes_before)?;
        std::thread::sleep(OBSERVE_EVERY);
    }
    let manifest = fleet.finish()?;
    figures.sent = manifest.sent();
    if matches!(case.expect, Expect::StoresAll) {
        let all_stored = wait_until("every message is stored", SOON, || {
            stage.is_all_stored_and_acked(figures.sent)
        });
        figures.expect(all_stored.is_ok(), || {
            "not every message was stored during the fault".to_owned()
        });
    }
    figures.log_bytes = stage.milepost.process.log()?.len() - log_bytes_before;
    figures.errors = stage.errors()?;
    figures.stored_unacked = stage.stored_unacked(before)?;

    let ended = Instant::now();
    stage.end_fault()?;
    let recovery =
        wait_until("everything is stored and acknowledged", case.report_timeout(), || {
            Ok(stage.is_all_stored_and_acked(figures.sent)?
                && stage.milepost.get("/readyz").is_ok())
        });
    figures.recovered_after = recovery.is_ok().then(|| ended.elapsed());
    stage.observe(&mut figures, began, log_bytes_before)?;
    stage.check_expectations(&mut figures)?;
    Ok(figures)
}

impl Stage {
    fn start(case: &'static Case) -> Result<Self> {
        let folder = lab_stack::folder()?;
        let (first, broker) = (shared_engine()?, Broker::start(folder.path())?);
        let second = if case.fault == Fault::Script(Behaviour::RoundRobin) {
            let folder = lab_stack::folder()?;
            Some(Engine::start(folder)?)
        } else {
            None
        };
        let engines = [Some(&first.server), second.as_ref().map(|engine| &engine.server)];
        let urls: Vec<String> = engines.into_iter().flatten().map(ClickHouse::url).collect();
        let server = ScriptedClickHouse::start(&urls)?;
        let database = format!("impolite_{}", case.name);
        let settings_for = |url: &str| {
            settings(folder.path(), broker.port, url).with("CLICKHOUSE__DATABASE", &database)
        };
        let database_guard = DatabaseGuard::new(&first, &database);
        tables::create(&first, &database, &settings_for(&first.server.url()))?;
        if let Some(engine) = &second {
            settings_for(&engine.server.url()).migrate()?;
        }
        let replication = if case.on_replicas { "macros" } else { "none" };
        let milepost =
            settings_for(&server.url()).with("CLICKHOUSE__REPLICATION", replication).run()?;
        Ok(Self {
            case,
            database,
            server,
            first,
            second,
            milepost,
            broker,
            _database_guard: database_guard,
            _folder: folder,
        })
    }

    /// Starts a fleet that publishes until shortly before the fault ends.
    fn fleet(&self) -> Background {
        let messages = u64::from(MESSAGES_PER_SECOND) * self.case.fault_duration().as_secs();
        let plan = Plan {
            broker: format!("127.0.0.1:{}", self.broker.port),
            run: self.case.name.to_owned(),
            drivers: 20,
            connections: 1,
            rate: f64::from(MESSAGES_PER_SECOND),
            messages,
            ..Plan::default()
        };
        Background::start(plan, false)
    }

    fn begin_fault(&self) -> Result<()> {
        match self.case.fault {
            Fault::Script(behaviour) => self.server.set(behaviour),
            Fault::Engine { begin, .. } => drop(self.query(begin)?),
        }
        Ok(())
    }

    fn end_fault(&self) -> Result<()> {
        match self.case.fault {
            Fault::Script(_) => self.server.set(Behaviour::Honest),
            Fault::Engine { end, .. } => drop(self.query(end)?),
        }
        Ok(())
    }

    /// Queries the first engine; `{db}` is this case's database.
    fn query(&self, sql: &str) -> Result<String> {
        self.first.server.query(&sql.replace("{db}", &self.database))
    }

    /// Returns the driver and number of each fix that is stored on any engine.
    fn stored(&self) -> Result<BTreeSet<String>> {
        let sql = format!("SELECT driver_id, seq FROM {}.fixes", self.database);
        let mut fixes = BTreeSet::new();
        for engine in [Some(&*self.first), self.second.as_ref()].into_iter().flatten() {
            let rows = engine.server.query(&sql)?;
            let before = fixes.len();
            fixes.extend(rows.lines().map(str::to_owned));
            let one_engine = self.second.is_none();
            ensure!(
                !one_engine || fixes.len() - before == rows.lines().count(),
                "`fixes` returns a fix twice"
            );
        }
        Ok(fixes)
    }

    fn acks(&self) -> Result<u64> {
        let acks = self.milepost.metric("acks_total")?;
        Ok(format!("{acks:.0}").parse()?)
    }

    fn is_all_stored_and_acked(&self, sent: u64) -> Result<bool> {
        Ok(self.acks()? >= sent && self.stored()?.len() as u64 == sent)
    }

    /// Waits until the inserts that began before the fault have ended. Returns the numbers of
    /// stored and of acknowledged messages at that time. If milepost cancelled such an insert, its
    /// rows may be stored and unacknowledged, but not because of the fault.
    fn stored_and_acked_before(&self) -> Result<(u64, u64)> {
        wait_until("the inserts that began before the fault have ended", SOON, || {
            Ok(self.server.honest_in_progress() == 0)
        })?;
        let acks = self.acks()?; // read first, because a row is stored before it is acknowledged
        Ok((self.stored()?.len() as u64, acks))
    }

    /// Returns how many messages were stored during the fault, but not acknowledged. `before`: the
    /// numbers of stored and of acknowledged messages before the fault.
    ///
    /// If every stored message should be acknowledged, waits for acknowledgements that are still on
    /// their way. If the fault leaves stored messages unacknowledged, counts from the start of the
    /// case and ignores `before`: on a busy machine, `before` may include rows that were stored
    /// during the fault.
    fn stored_unacked(&self, before: (u64, u64)) -> Result<u64> {
        let (stored, acks) = if self.leaves_unacked() { (0, 0) } else { before };
        let unacked = || -> Result<u64> {
            let newly_stored = (self.stored()?.len() as u64).saturating_sub(stored);
            Ok(newly_stored.saturating_sub(self.acks()?.saturating_sub(acks)))
        };
        if !self.leaves_unacked() {
            let _ = wait_until("every stored message is acknowledged", ACK_TIMEOUT, || {
                Ok(unacked()? == 0)
            });
        }
        unacked()
    }

    /// Returns whether the fault stores rows that milepost must not acknowledge.
    fn leaves_unacked(&self) -> bool {
        matches!(
            self.case.fault,
            Fault::Script(
                Behaviour::ViewFailed
                    | Behaviour::HonestWithoutSummary
                    | Behaviour::Hang(HangAt::AfterStoring)
                    | Behaviour::ClickHouseError { stored: true, .. }
            )
        )
    }

    /// Returns the failed inserts by kind.
    fn errors(&self) -> Result<BTreeMap<String, u64>> {
        let scrape = self.milepost.get("/metrics")?;
        let parse_kind = |line: &str| {
            let (kind, count) =
                line.strip_prefix("milepost_insert_errors_total{kind=\"")?.split_once("\"} ")?;
            Some((kind.to_owned(), count.parse().ok()?))
        };
        Ok(scrape.lines().filter_map(parse_kind).filter(|(_, count)| *count > 0).collect())
    }

    /// Updates the figures that need repeated observation: memory, messages that are acknowledged
    /// but not stored, and when the log and `/readyz` named the cause.
    fn observe(
        &mut self,
        figures: &mut Figures,
        began: Instant,
        log_bytes_before: usize,
    ) -> Result<()> {
        self.milepost.process.ensure_alive()?;
        let (resident, peak) = procfs::resident_bytes(self.milepost.process.pid())?;
        figures.resident_bytes = peak;
        if resident > RESIDENT_BYTES_FATAL {
            self.milepost.process.kill()?;
            bail!("killed, because it held {} MiB after {:.1?}", resident >> 20, began.elapsed());
        }
        // Read the number of acknowledgements first: messages acknowledged by now must be among the
        // rows that are counted next.
        let acks = self.acks()?;
        let stored = self.stored()?.len() as u64;
        figures.unstored = figures.unstored.max(acks.saturating_sub(stored));

        let Expect::Refused { causes, .. } = self.case.expect else { return Ok(()) };
        let names_cause = |text: &str| {
            let text = text.to_lowercase();
            causes.iter().any(|words| text.contains(&words.to_lowercase()))
        };
        let log = self.milepost.process.log()?;
        if figures.logged_after.is_none()
            && names_cause(log.get(log_bytes_before..).unwrap_or_default())
        {
            figures.logged_after = Some(began.elapsed());
        }
        let unready = self.milepost.get("/readyz").err();
        if figures.unready_after.is_none()
            && unready.is_some_and(|error| names_cause(&error.to_string()))
        {
            figures.unready_after = Some(began.elapsed());
        }
        Ok(())
    }

    /// Compares the figures with the expectations of the case.
    fn check_expectations(&mut self, figures: &mut Figures) -> Result<()> {
        let (unstored, resident, logged) =
            (figures.unstored, figures.resident_bytes, figures.log_bytes);
        figures.lost = figures.sent.saturating_sub(self.stored()?.len() as u64);
        let lost = figures.lost;
        figures.expect(unstored == 0, || format!("{unstored} acknowledged and not stored"));
        figures.expect(lost == 0, || format!("{lost} lost"));
        figures.expect(resident <= RESIDENT_BYTES_MAX, || format!("{} MiB", resident >> 20));
        figures.expect(logged <= LOG_BYTES_MAX, || format!("{} KiB of log", logged >> 10));
        let timeout = self.case.report_timeout();
        figures
            .expect(figures.recovered_after.is_some(), || format!("not back within {timeout:?}"));
        if let Expect::Refused { kinds, .. } = self.case.expect {
            figures.expect(figures.logged_after.is_some(), || {
                format!("no cause in the log within {timeout:?}")
            });
            figures.expect(figures.unready_after.is_some(), || {
                format!("no cause in /readyz within {timeout:?}")
            });
            // A hung insert has not failed yet.
            let is_counted = self.case.hangs() || !figures.errors.is_empty();
            let aborted_inserts = self.milepost.process.log()?.matches(ABORTED).count();
            let is_expected_kind =
                |kind: &str| kinds.contains(&kind) || kind == "ambiguous" && aborted_inserts > 0;
            let only_expected_kinds =
                is_counted && figures.errors.keys().all(|kind| is_expected_kind(kind));
            figures.expect(only_expected_kinds, || {
                format!("a failed insert was not counted as one of {kinds:?}")
            });
            self.check_tokens(kinds, aborted_inserts, figures);
        }
        self.check_server(figures);
        let stale = self.drivers_whose_last_position_is_old()?;
        figures.expect(stale == 0, || format!("{stale} drivers have an old last position"));
        let exit = self.milepost.terminate(SOON)?;
        figures.expect(exit == 0, || format!("exit {exit}"));
        Ok(())
    }

    /// Asserts that the scripted server caused the fault, because otherwise the case proves
    /// nothing.
    fn check_server(&self, figures: &mut Figures) {
        let Fault::Script(behaviour) = self.case.fault else { return };
        let stored_unacked = figures.stored_unacked;
        figures.expect((stored_unacked > 0) == self.leaves_unacked(), || {
            format!("{stored_unacked} stored and not acknowledged")
        });
        let had_effect = if let Behaviour::Slow(delay) = behaviour {
            // On a busy machine, one or two inserts may be slow without the fault.
            self.server.insert_durations().iter().filter(|took| **took >= delay).count() > 5
        } else if let Some(second) = &self.second {
            let has_fixes = format!("SELECT count() > 0 FROM {}.fixes", self.database);
            second.server.query(&has_fixes).is_ok_and(|answer| answer.trim() == "1")
        } else {
            self.case.hangs() || !figures.errors.is_empty()
        };
        figures.expect(had_effect, || "the fault affected no insert".to_owned());
    }

    /// Asserts that a token never stands for different rows. If the rows of an attempt may be
    /// stored, its retry must have a new token; if they certainly are not, it must keep the token.
    fn check_tokens(&self, kinds: &[&str], aborted_inserts: usize, figures: &mut Figures) {
        let mut bodies = BTreeMap::<String, BTreeSet<u64>>::new();
        let mut tokens = BTreeMap::<u64, Vec<String>>::new();
        for received in self.server.received_inserts() {
            bodies.entry(received.token.clone()).or_default().insert(received.body_hash);
            tokens.entry(received.body_hash).or_default().push(received.token);
        }
        figures.expect(bodies.values().all(|bodies| bodies.len() == 1), || {
            "a token was reused for other rows".to_owned()
        });
        let mut attempts = tokens
            .values()
            .map(|tokens| (tokens.len(), tokens.iter().collect::<BTreeSet<_>>().len()));
        match kinds {
            ["ambiguous"] => figures
                .expect(attempts.all(|(inserts, tokens)| inserts == tokens), || {
                    "a retry kept its token although the rows may be stored".to_owned()
                }),
            kinds if !kinds.contains(&"ambiguous") => figures
                .expect(attempts.all(|(_, tokens)| tokens <= 1 + aborted_inserts), || {
                    "a retry has a new token after a definite failure".to_owned()
                }),
            _ => {}
        }
    }

    fn drivers_whose_last_position_is_old(&self) -> Result<u64> {
        if self.second.is_some() {
            return Ok(0); // each engine has only some of a driver's fixes
        }
        let sql = "SELECT count() FROM (SELECT driver_id, max(ts) AS ts FROM {db}.fixes \
                   GROUP BY driver_id) AS fixes LEFT JOIN {db}.last_positions AS last ON \
                   last.driver_id = fixes.driver_id WHERE last.ts != fixes.ts";
        self.query(sql)?.trim().parse().context("not a count")
    }
}
