//! `milepost backfill`: from the order of drivers to the order of days, while fixes come in.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};

use lab_stack::{Settings, Store, wait_until};

use crate::secure::{Scripted, scripted_clickhouse};
use crate::world::{World, finish, publish_in_background, unmigrated};

const COLUMNS: &str =
    "driver_id, ts, seq, lat_e7, lng_e7, speed_cms, heading_cdeg, alt_dm, acc_dm, received_at";
/// Four months of old fixes, a tenth of them there twice, in parts that overlap.
const HISTORY: &str = "SELECT concat('old-', toString(number % 700)), toDateTime64('2026-03-05 00:00:00', 3, 'UTC') + \
    toIntervalSecond(intDiv(number, 700) * 86400 + number), number, number * 7 % 900000000, number * 11 % 1800000000, 100, 200, 300, 40, \
    now64(3) FROM numbers(70000)";
const HISTORY_SET: &str = "SELECT count(), groupBitXor(cityHash64(driver_id, ts, seq, lat, lng)) FROM {db}.fixes WHERE startsWith(driver_id, 'old-')";

/// It copies all months on the way there.
const REACHED_WITHIN: Duration = Duration::from_secs(120);

/// A database with some history.
fn by_driver(name: &str) -> Result<World> {
    let world = unmigrated(name)?;
    world.settings.migrate()?;
    ensure!(order(&world)? == "driver_id", "nobody moves it unasked");
    for some in ["", " WHERE number % 10 = 0"] {
        world.query(&format!("INSERT INTO {{db}}.positions ({COLUMNS}) {HISTORY}{some}"))?;
    }
    Ok(world)
}

/// By what it is sorted first.
fn order(world: &World) -> Result<String> {
    world.query("SELECT splitByString(', ', sorting_key)[1] FROM system.tables WHERE database = '{db}' AND name = 'positions'")
}

const WRITERS: usize = 3;

/// Some write one fix after the other, of all months. Meanwhile one reads: has `fixes` what was taken before it asked?
struct Traffic {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<()>>>,
}

struct Shared {
    store: Store,
    stop: AtomicBool,
    /// Inserts that were answered.
    taken: AtomicUsize,
    /// Answers that the reader had.
    looks: AtomicUsize,
    /// So many may be in the other table alone: see [`Traffic::an_exchange_begins`].
    may_lack: AtomicUsize,
}

impl Shared {
    fn query(&self, sql: &str) -> Result<String> {
        let text = self.store.query(&sql.replace("{db}", &self.store.database))?;
        Ok(text.trim_end().to_owned())
    }

    /// Not faster than it is read.
    fn write(&self, writer: usize) -> Result<()> {
        let mut refused = Vec::new();
        for n in 1.. {
            let insert = format!(
                "INSERT INTO {{db}}.positions ({COLUMNS}) SELECT 'w{writer}', toDateTime64('2026-03-01 00:00:00', 3, 'UTC') + \
                 toIntervalHour({n} * 37 % 2900), {n}, 1, 2, 3, 4, 5, 6, now64(3)"
            );
            // What is refused is tried again, as milepost does.
            while let Err(error) = self.query(&insert) {
                refused.push(error.to_string());
                ensure!(refused.len() < 20, "{refused:#?}");
            }
            self.taken.fetch_add(1, Ordering::SeqCst);
            let looks = self.looks.load(Ordering::SeqCst);
            while self.looks.load(Ordering::SeqCst) == looks {
                if self.stop.load(Ordering::SeqCst) {
                    return Ok(());
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        Ok(())
    }

    fn read(&self, history: &str) -> Result<()> {
        while !self.stop.load(Ordering::SeqCst) {
            let (taken, before) = (self.taken.load(Ordering::SeqCst), self.may_lack.load(Ordering::SeqCst));
            let there: usize =
                self.query("SELECT count() FROM {db}.fixes WHERE driver_id LIKE 'w%'")?.parse()?;
            let may_lack = before.max(self.may_lack.load(Ordering::SeqCst));
            ensure!(there + may_lack >= taken, "{taken} were taken, {there} are there, {may_lack} may lack");
            let old = self.query(HISTORY_SET)?;
            ensure!(old == history, "after {taken}: the history was {history}, and is {old}");
            self.looks.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }
}

impl Traffic {
    fn start(world: &World) -> Result<Self> {
        let history = world.query(HISTORY_SET)?;
        let shared = Arc::new(Shared {
            store: world.engine.server.store(&world.database),
            stop: AtomicBool::new(false),
            taken: AtomicUsize::new(0),
            looks: AtomicUsize::new(0),
            may_lack: AtomicUsize::new(0),
        });
        let mut traffic = Self { shared: Arc::clone(&shared), threads: Vec::new() };
        let reader = Arc::clone(&shared);
        traffic.threads.push(std::thread::spawn(move || reader.read(&history)));
        for writer in 0..WRITERS {
            let shared = Arc::clone(&shared);
            traffic.threads.push(std::thread::spawn(move || shared.write(writer)));
        }
        Ok(traffic)
    }

    /// From now on each writer's insert that is under way may miss the view, until the last pass.
    fn an_exchange_begins(&self) {
        self.shared.may_lack.store(WRITERS, Ordering::SeqCst);
    }

    fn the_move_has_ended(&self) {
        self.shared.may_lack.store(0, Ordering::SeqCst);
    }

    fn ensure_well(&mut self) -> Result<()> {
        if self.threads.iter().any(JoinHandle::is_finished) {
            let taken = self.finish()?;
            bail!("a thread ended after {taken}");
        }
        Ok(())
    }

    /// How many fixes were taken.
    fn finish(&mut self) -> Result<usize> {
        self.shared.stop.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| anyhow!("a thread died"))??;
        }
        Ok(self.shared.taken.load(Ordering::SeqCst))
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

/// Where a backfill is stopped.
#[derive(Debug, Clone, Copy)]
struct Stop {
    /// At the first statement that has this in it,
    at: &'static str,
    /// and so many that have it before.
    after: usize,
    /// When it is done, but not answered.
    done: bool,
}

/// Between backfill and engine.
struct Gate {
    settings: Settings,
    stop: Arc<Mutex<Option<Stop>>>,
    reached: Receiver<()>,
    /// Statements that were let through.
    seen: Arc<Mutex<Vec<String>>>,
    /// Somebody has been inserting for long.
    busy: Arc<AtomicBool>,
    /// Who says nothing for so many seconds is taken for dead.
    silent_s: Arc<AtomicUsize>,
}

impl Gate {
    fn new(world: &World) -> Result<Self> {
        let (told, reached): (SyncSender<()>, Receiver<()>) = sync_channel(64);
        let stop: Arc<Mutex<Option<Stop>>> = Arc::default();
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let asked = AtomicUsize::new(0);
        let busy: Arc<AtomicBool> = Arc::default();
        let is_busy = Arc::clone(&busy);
        let silent_s = Arc::new(AtomicUsize::new(6));
        let silent = Arc::clone(&silent_s);
        // It is there until the tests end: it must not keep the engine.
        let engine = world.engine.server.store(&world.database);
        let (stops, statements) = (Arc::clone(&stop), Arc::clone(&seen));
        let told = Mutex::new(told);
        let url = scripted_clickhouse(world.engine.server.port, move |sql| {
            // Pieces of 6,000 fixes, so that a month has several.
            let silent = format!("INTERVAL {} SECOND", silent.load(Ordering::SeqCst));
            let sql = sql.replace("20000000", "6000").replace("INTERVAL 30 SECOND", &silent);
            lock(&statements).push(sql.clone());
            if sql.contains("system.processes")
                && (is_busy.load(Ordering::SeqCst) || asked.fetch_add(1, Ordering::SeqCst) < 2)
            {
                return Scripted::Answer(200, "1\n".to_owned()); // somebody is inserting
            }
            let mut stop = lock(&stops);
            match stop.as_mut() {
                Some(Stop { at, after: 0, done }) if sql.contains(*at) => {
                    if *done {
                        let _ = engine.query(&sql);
                    }
                    *stop = None;
                    let _ = lock(&told).send(());
                    Scripted::Answer(500, "it was killed".to_owned())
                }
                Some(Stop { at, after, .. }) if sql.contains(*at) => {
                    *after -= 1;
                    Scripted::Instead(sql)
                }
                Some(_) | None => Scripted::Instead(sql),
            }
        })?;
        let settings = world.settings.clone().with("CLICKHOUSE__URL", url);
        Ok(Self { settings, stop, reached, seen, busy, silent_s })
    }

    /// Begins, or goes on, and is killed there.
    fn kill(&self, stop: Stop) -> Result<()> {
        *lock(&self.stop) = Some(stop);
        let run = self.start()?;
        let reached = self.reached.recv_timeout(REACHED_WITHIN);
        drop(run);
        reached.with_context(|| format!("{stop:?} was not reached: {:#?}", lock(&self.seen)))
    }

    fn count(&self, what: &str) -> usize {
        lock(&self.seen).iter().filter(|sql| sql.contains(what)).count()
    }

    fn first(&self, what: &str) -> Result<usize> {
        lock(&self.seen).iter().position(|sql| sql.contains(what)).context(what.to_owned())
    }

    fn start(&self) -> Result<Run> {
        let mut command = self.settings.command(&["backfill"]);
        Ok(Run(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?))
    }
}

/// A backfill; killed if it has not ended.
struct Run(Child);

impl Run {
    /// Its exit code, and what it printed.
    fn end(mut self) -> Result<(i32, String)> {
        wait_until("it ends", REACHED_WITHIN, || Ok(self.0.try_wait()?.is_some()))?;
        let mut printed = String::new();
        if let Some(mut stdout) = self.0.stdout.take() {
            stdout.read_to_string(&mut printed)?;
        }
        if let Some(mut stderr) = self.0.stderr.take() {
            stderr.read_to_string(&mut printed)?;
        }
        Ok((self.0.wait()?.code().unwrap_or(-1), printed))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Else the next one waits, to see whether they were: see `one_at_a_time_moves_it`.
fn forget_who_was_killed(world: &World) -> Result<()> {
    world
        .query("INSERT INTO {db}.backfills (job, step, until) SELECT job, step, 'ended' FROM {db}.backfills FINAL WHERE job = 'run' AND until = ''")
        .map(drop)
}

const fn at(at: &'static str, after: usize, done: bool) -> Stop {
    Stop { at, after, done }
}

#[test]
fn nothing_is_missing_while_it_moves_however_often_it_is_killed() -> Result<()> {
    let world = by_driver("by_day")?;
    let history = world.query(HISTORY_SET)?;
    ensure!(history.starts_with("70000\t"), "{history}");
    let _milepost = world.settings.run()?;
    let fleet = publish_in_background(world.plan("during", 100, 5));
    let mut traffic = Traffic::start(&world)?;
    let gate = Gate::new(&world)?;

    for stop in [
        at("CREATE TABLE IF NOT EXISTS by_day.positions_by_day\n", 0, true),
        at("CREATE MATERIALIZED VIEW", 0, false),
        at("CREATE MATERIALIZED VIEW", 0, true),
        at("INSERT INTO by_day.positions_by_day ", 0, false),
        at("INSERT INTO by_day.positions_by_day ", 2, true),
        at("', '202603', '", 1, true),
        at("INSERT INTO by_day.positions_by_day ", 5, true),
        at("EXCHANGE TABLES by_day.", 0, false),
    ] {
        gate.kill(stop)?;
        traffic.ensure_well()?;
        forget_who_was_killed(&world)?;
    }
    traffic.an_exchange_begins();
    for stop in [
        at("EXCHANGE TABLES by_day.", 0, true),
        at("DROP VIEW", 0, true),
        at("INSERT INTO by_day.positions ", 0, true),
        at("RENAME TABLE", 0, false),
        at("RENAME TABLE", 0, true),
    ] {
        gate.kill(stop)?;
        traffic.ensure_well()?;
        forget_who_was_killed(&world)?;
        ensure!(order(&world)? == "toDate(ts)", "it was exchanged once, and not back");
    }
    for _ in 0..2 {
        let (code, printed) = gate.settings.call(&["backfill"])?;
        ensure!(code == 0 && printed.contains("nothing is left to do"), "{code}: {printed}");
        traffic.the_move_has_ended();
    }
    ensure!(gate.count("EXCHANGE TABLES by_day.") == 2, "the second was the last");

    let manifest = finish(fleet)?;
    let verdict = world.verify(&manifest)?;
    ensure!(verdict.is_exact(), "{verdict:?}");
    let looks = traffic.shared.looks.load(Ordering::SeqCst);
    wait_until("the reader looks once more", REACHED_WITHIN, || {
        traffic.ensure_well()?;
        Ok(traffic.shared.looks.load(Ordering::SeqCst) > looks + 1)
    })?;
    let taken = traffic.finish()?;
    ensure!(taken > 20, "{taken}");
    let there = world.query("SELECT count() FROM {db}.fixes WHERE driver_id LIKE 'w%'")?;
    ensure!(there == taken.to_string(), "{taken} were taken, {there} are there");
    ensure!(world.query(HISTORY_SET)? == history, "the history is as it was");
    views_go_on(&world)?;
    ensure!(world.query("SELECT countIf(startsWith(sorting_key, 'driver_id')), count() FROM system.tables WHERE database = '{db}' AND name LIKE 'positions%'")? == "1\t2", "the old one is kept, no view");
    Ok(())
}

#[test]
fn a_month_is_copied_once_however_often_it_is_killed() -> Result<()> {
    let world = by_driver("by_day_once")?;
    let gate = Gate::new(&world)?;
    let copied = || {
        let seen = lock(&gate.seen);
        let copies = seen.iter().filter(|sql| sql.starts_with("INSERT INTO by_day_once.positions_by_day "));
        copies.cloned().collect::<Vec<_>>()
    };
    // A piece of a month, then some that were recorded.
    gate.kill(at("', '202603', '", 1, true))?;
    let first = copied();
    ensure!(first.len() == 2, "two pieces: {first:#?}");
    forget_who_was_killed(&world)?;
    gate.kill(at("', '202604', '", 1, true))?;
    forget_who_was_killed(&world)?;
    let (code, printed) = gate.settings.call(&["backfill"])?;
    ensure!(code == 0, "{code}: {printed}");
    let copies = copied();
    let different: BTreeSet<&String> = copies.iter().collect();
    ensure!(copies.len() > 10, "months of several pieces: {copies:#?}");
    let again = copies.len() - different.len();
    ensure!(again == 0, "{again} pieces of {} were copied again after a kill", copies.len());
    ensure!(
        gate.first("INSERT INTO by_day_once.positions_by_day ")? > gate.first("system.processes")? + 2,
        "it waits for who inserts"
    );
    Ok(())
}

/// As an insert that began before the exchange and ended after it: it is in the older table alone, and roll-ups have counted further.
#[test]
fn what_an_insert_brought_into_the_older_table_is_copied() -> Result<()> {
    let world = by_driver("by_day_late")?;
    let gate = Gate::new(&world)?;
    gate.kill(at("EXCHANGE TABLES by_day_late.", 0, true))?;
    forget_who_was_killed(&world)?;
    refresh(&world)?;
    world.query(&format!(
        "INSERT INTO {{db}}.positions_by_day ({COLUMNS}, inserted_at) SELECT 'late', '2026-06-01 00:00:00', 1, 2, 3, 4, 5, 6, 7, \
         now64(3), now64(3) - INTERVAL 20 MINUTE"
    ))?;
    let late = "SELECT count() FROM {db}.fixes WHERE driver_id = 'late'";
    ensure!(world.query(late)? == "0", "it is in the older table alone");
    let (code, printed) = gate.settings.call(&["backfill"])?;
    ensure!(code == 0, "{code}: {printed}");
    ensure!(world.query(late)? == "1", "what came late is missing");
    views_go_on(&world)
}

fn refresh(world: &World) -> Result<()> {
    for view in ["driver_quarters", "driver_blocks", "episodes", "cell_quarters"] {
        for what in ["WAIT", "REFRESH", "WAIT"] {
            world.query(&format!("SYSTEM {what} VIEW {{db}}.{view}_mv"))?;
        }
    }
    Ok(())
}

/// Those that read positions by name.
fn views_go_on(world: &World) -> Result<()> {
    // Some minutes of standing: a stop, so that there is one.
    world.query(&format!(
        "INSERT INTO {{db}}.positions ({COLUMNS}) SELECT 'after', toDateTime64('2026-07-30 00:00:00', 3, 'UTC') + 60 * number, number, 1, 2, \
         3, 4, 5, 6, now64(3) FROM numbers(10)"
    ))?;
    let last = "SELECT (SELECT groupBitXor(cityHash64(driver_id, tupleElement(newest, 1), tupleElement(newest, 2))) FROM (SELECT driver_id, \
                max((ts, seq)) AS newest FROM {db}.fixes GROUP BY driver_id)) = (SELECT groupBitXor(cityHash64(driver_id, \
                tupleElement(last, 'ts'), tupleElement(last, 'seq'))) FROM {db}.last_positions_state FINAL)";
    ensure!(world.query(last)? == "1", "last_positions is not the newest of fixes");
    refresh(world)?;
    // What they do at once is bounded: as often as it takes.
    let pending = "SELECT name, pending, inserted_until FROM {db}.rollups WHERE pending > 0";
    for _ in 0..5 {
        if !world.query(pending)?.is_empty() {
            refresh(world)?;
        }
    }
    ensure!(world.query(pending)?.is_empty(), "the roll-ups are behind: {}", world.query(pending)?);
    let missing = "SELECT (SELECT count() FROM {db}.fixes) - (SELECT sum(fixes) FROM {db}.driver_quarters), \
                   (SELECT count() FROM {db}.fixes) - (SELECT sum(fixes) FROM {db}.cell_quarters)";
    ensure!(world.query(missing)? == "0\t0", "fixes that the roll-ups lack: {}", world.query(missing)?);
    let episodes = |from: &str| {
        world.query(&format!(
            "SELECT count(), sum(fixes), groupBitXor(cityHash64(driver_id, began, ended)) FROM {from}"
        ))
    };
    let rolled_up = episodes(
        "(SELECT driver_id, began, ended, fixes FROM {db}.trips UNION ALL SELECT driver_id, began, ended, fixes FROM {db}.stops)",
    )?;
    let asked = episodes(
        "{db}_ask.episodes(driver = '', from = '2020-01-01', to = '2100-01-01', tz = 'UTC') WHERE kind IN ('trip', 'stop')",
    )?;
    ensure!(rolled_up == asked, "trips and stops are {rolled_up}, of the fixes {asked}");
    Ok(())
}

#[test]
fn one_at_a_time_moves_it() -> Result<()> {
    let world = by_driver("by_day_alone")?;
    let gate = Gate::new(&world)?;
    // Who was killed is waited for, and then it goes on.
    gate.kill(at("CREATE MATERIALIZED VIEW", 0, true))?;
    gate.busy.store(true, Ordering::SeqCst);
    let mut first = gate.start()?;
    wait_until("the first waits for those who insert", REACHED_WITHIN, || {
        Ok(gate.count("system.processes") > 0)
    })?;
    // On a busy machine it is not heard of for some seconds, and not dead.
    gate.silent_s.store(600, Ordering::SeqCst);
    let (code, printed) = gate.start()?.end().context("a second one works beside the first")?;
    ensure!(code == 1 && printed.contains("another milepost backfill is at work"), "{code}: {printed}");
    ensure!(first.0.try_wait()?.is_none(), "the first goes on");
    gate.silent_s.store(6, Ordering::SeqCst);
    gate.busy.store(false, Ordering::SeqCst);
    let (code, printed) = first.end()?;
    ensure!(code == 0, "the first ends: {code}: {printed}");
    ensure!(order(&world)? == "toDate(ts)", "it was moved");
    let (code, printed) = gate.settings.call(&["backfill"])?;
    ensure!(code == 0, "who has ended is not waited for: {printed}");
    Ok(())
}

const BOTH: [&str; 2] = ["positions", "positions_by_day"];

#[test]
fn who_is_erased_is_not_moved_and_what_is_too_old_goes_from_both() -> Result<()> {
    let world = by_driver("by_day_erase")?;
    let gate = Gate::new(&world)?;
    gate.kill(at("', '202604', '", 0, true))?;
    let settings = world
        .settings
        .clone()
        .with("CLICKHOUSE__RETENTION__POSITIONS_DAYS", "3000")
        .with("CLICKHOUSE__RETENTION__ROLLUPS_DAYS", "3000");
    settings.migrate()?;
    for table in BOTH {
        let sql = format!(
            "SELECT engine_full LIKE '%toIntervalDay(3000)%' FROM system.tables WHERE database = '{{db}}' AND name = '{table}'"
        );
        ensure!(world.query(&sql)? == "1", "{table} keeps rows for as long as is configured");
        world.query(&format!("ALTER TABLE {{db}}.{table} MODIFY SETTING old_parts_lifetime = 1"))?;
    }
    let rows = |table: &str, driver: &str| {
        world.query(&format!(
            "SELECT count() > 0 FROM {{db}}.{table} WHERE driver_id = '{driver}' SETTINGS apply_deleted_mask = 0"
        ))
    };
    for table in BOTH {
        ensure!(rows(table, "old-7")? == "1", "{table} has them");
    }
    let erase = |within| settings.call(&["erase", "--driver", "old-7", "--yes", "--within", within]);
    let (code, printed) = erase("20s")?;
    ensure!(code != 0 && printed.contains("milepost backfill is under way"), "{code}: {printed}");
    for table in BOTH {
        ensure!(rows(table, "old-7")? == "0", "they are gone from {table}");
    }
    let (code, printed) = gate.settings.call(&["backfill"])?;
    ensure!(code == 0, "{code}: {printed}");
    for table in ["positions", "positions_by_driver"] {
        ensure!(rows(table, "old-7")? == "0" && rows(table, "old-8")? == "1", "{table}");
    }
    ensure!(world.query("SELECT uniqExact(driver_id) FROM {db}.fixes")? == "699", "all the others are there");
    let (_, printed) = erase("1s")?;
    ensure!(!printed.contains("milepost backfill"), "it has ended: {printed}");
    Ok(())
}

#[test]
fn what_somebody_changed_is_kept_or_told() -> Result<()> {
    let world = by_driver("by_day_own")?;
    world.query("ALTER TABLE {db}.positions MODIFY TTL toDateTime(ts) + INTERVAL 3000 DAY")?;
    world.query("ALTER TABLE {db}.positions ADD COLUMN mine UInt8 DEFAULT 7")?;
    world.query("CREATE TABLE {db}.positions_by_driver (a UInt8) ENGINE = Memory")?;
    let (code, printed) = world.settings.call(&["backfill"])?;
    ensure!(code == 1 && printed.contains("from an earlier move"), "{code}: {printed}");
    world.query("DROP TABLE {db}.positions_by_driver SYNC")?;
    let (code, printed) = world.settings.call(&["backfill"])?;
    ensure!(code == 1 && printed.contains("mine") && printed.contains("ADD COLUMN"), "{code}: {printed}");
    let views = "SELECT count() FROM system.tables WHERE database = '{db}' AND name = 'positions_by_day_mv'";
    ensure!(world.query(views)? == "0", "nothing is copied before");
    world.query("ALTER TABLE {db}.positions_by_day ADD COLUMN mine UInt8 DEFAULT 7")?;
    world.query("INSERT INTO {db}.positions (driver_id, ts, mine) VALUES ('m', '2026-06-01 00:00:00', 9)")?;
    let (code, printed) = world.settings.call(&["backfill"])?;
    ensure!(code == 0, "{code}: {printed}");
    ensure!(order(&world)? == "toDate(ts)", "it was moved");
    ensure!(
        world.query("SELECT mine FROM {db}.positions FINAL WHERE driver_id = 'm'")? == "9",
        "the column was copied"
    );
    let ttl = "SELECT engine_full LIKE '%toIntervalDay(3000)%' FROM system.tables WHERE database = '{db}' AND name = 'positions'";
    ensure!(world.query(ttl)? == "1", "the time-to-live is theirs");
    ensure!(world.query(HISTORY_SET)?.starts_with("70000\t"), "{}", world.query(HISTORY_SET)?);
    Ok(())
}

#[test]
fn an_empty_database_is_moved_in_a_moment() -> Result<()> {
    let world = unmigrated("by_day_new")?;
    world.settings.migrate()?;
    ensure!(order(&world)? == "driver_id", "nobody moves it unasked");
    let (code, printed) = world.settings.call(&["backfill"])?;
    ensure!(code == 0 && printed.contains("nothing is left to do"), "{code}: {printed}");
    ensure!(order(&world)? == "toDate(ts)", "{}", order(&world)?);
    let (_, printed) = world.settings.call(&["check"])?;
    ensure!(printed.contains("DROP TABLE by_day_new.positions_by_driver"), "{printed}");
    world.query("DROP TABLE {db}.positions_by_driver SYNC")?;
    world.settings.migrate()?;
    ensure!(order(&world)? == "toDate(ts)", "migrate leaves it so: {}", order(&world)?);
    let more = "SELECT count() FROM system.tables WHERE database = '{db}' AND name LIKE 'positions_%'";
    ensure!(world.query(more)? == "0", "migrate makes no second table");
    wait_until("check finds nothing of the move", Duration::from_secs(20), || {
        let (_, printed) = world.settings.call(&["check"])?;
        if printed.contains("backfill") {
            bail!("{printed}");
        }
        Ok(true)
    })
}
