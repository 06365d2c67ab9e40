//! The present: one ClickHouse query a second while a page is open, whatever the number of viewers; the fleet in memory; tiles cut from
//! it, each once a second.
//!
//! Guarantee: a row shows after the next query, however late its fix is; a removed driver disappears within `map.reread`. While ClickHouse
//! is down the last positions stay, and every tick says since when; so it does when nothing is inserted, whether or not anybody looked then.

use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use milepost_observe::now;
use serde::Serialize;
use tokio::sync::{Notify, watch};
use tracing::instrument::WithSubscriber as _;
use tracing::{Dispatch, info, warn};

use crate::config;
use crate::fleet::Fleet;
use crate::fleet::parts::Parts;
use crate::geo::Tile;
use crate::metrics::Metrics;
use crate::store::{Changed, Error, Store};
use crate::tiles::{self, Kind};
use crate::wire::Part;

/// Interval of the query.
const PERIOD: Duration = Duration::from_secs(1);
/// The server enforces its own time limit, unless it hangs; this one is the map's.
const ANSWER_WITHIN: Duration = Duration::from_secs(65);
/// Without a row for this long ClickHouse counts as down, though its answer may still come.
const SILENT_AFTER: Duration = Duration::from_secs(10);
/// After this long without a viewer the map stops asking ClickHouse.
const IDLE_AFTER: Duration = Duration::from_secs(10);
/// Without an insert for this long, after there were some, the state is `stale`.
const STALE_AFTER: Duration = Duration::from_secs(15);
/// The first viewer waits at most this long for fresh positions, then gets the last ones.
const FRESH_WITHIN: Duration = Duration::from_millis(1_500);
/// Rows per lock of the fleet, so that readers can run in between.
const ROWS_AT_ONCE: usize = 4_096;
/// Memory of the tiles of one second.
const TILES_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The rate is a mean over this many queries.
const RATE_TICKS: usize = 10;

/// State of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Ok,
    /// ClickHouse answers, but nothing is inserted, after something was.
    Stale,
    /// ClickHouse does not answer.
    Away,
}

/// The event that every page gets once a second.
#[derive(Debug, Clone, Serialize)]
pub struct Tick {
    /// The server's clock, in milliseconds since 1970.
    pub now: i64,
    /// Drivers in memory.
    pub drivers: usize,
    /// Drivers with a fix in the last minute.
    pub seen_1m: usize,
    /// Drivers that moved, per second; a mean of ten seconds.
    pub rate: f64,
    /// Arrival of the newest message at milepost.
    pub newest: Option<i64>,
    pub state: State,
    /// Since when the state holds; of `stale`, the last insert.
    pub since: i64,
    /// Changes when tiles may have changed. 0: nothing has been read yet.
    pub generation: u64,
}

/// Tiles of one generation; each is cut once, even if several requests wait for it.
#[derive(Default)]
struct Tiles {
    generation: u64,
    cut: HashMap<(Tile, Kind), Arc<OnceLock<Arc<Part>>>>,
    bytes: usize,
}

/// See the module.
pub struct Live {
    fleet: RwLock<Fleet>,
    tiles: Mutex<Tiles>,
    tick: watch::Sender<Tick>,
    /// A query has ended. Ticks also come while one runs.
    asked: watch::Sender<()>,
    /// Time of the last request, in milliseconds since 1970.
    looked: AtomicI64,
    somebody: Notify,
    /// The cause of missing news.
    trouble: Mutex<Option<String>>,
    beat: Mutex<Instant>,
    points_max: usize,
    drivers_max: usize,
    reread: Duration,
    pub metrics: Arc<Metrics>,
}

impl Live {
    /// Empty until [`Live::run`] has read everything once.
    #[must_use]
    pub fn new(config: &config::Map, metrics: Arc<Metrics>) -> Self {
        let now = now().unix_ms();
        let tick = Tick {
            now,
            drivers: 0,
            seen_1m: 0,
            rate: 0.0,
            newest: None,
            state: State::Away,
            since: now,
            generation: 0,
        };
        Self {
            fleet: RwLock::new(Fleet::new(config.drivers_max)),
            tiles: Mutex::default(),
            tick: watch::Sender::new(tick),
            asked: watch::Sender::new(()),
            looked: AtomicI64::new(now),
            somebody: Notify::new(),
            trouble: Mutex::new(Some("clickhouse: everybody's last position is being read".to_owned())),
            beat: Mutex::new(Instant::now()),
            points_max: config.points_max,
            drivers_max: config.drivers_max,
            reread: config.reread,
            metrics,
        }
    }

    pub fn fleet(&self) -> RwLockReadGuard<'_, Fleet> {
        self.fleet.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last tick.
    #[must_use]
    pub fn last_tick(&self) -> Tick {
        self.tick.borrow().clone()
    }

    #[must_use]
    pub fn ticks(&self) -> watch::Receiver<Tick> {
        self.tick.subscribe()
    }

    /// Causes of missing news, one line each; empty: none.
    #[must_use]
    pub fn troubles(&self) -> Vec<String> {
        lock(&self.trouble).iter().cloned().collect()
    }

    /// Time since the loop last turned.
    #[must_use]
    pub fn silent_for(&self) -> Duration {
        lock(&self.beat).elapsed()
    }

    /// Registers a viewer, and waits within a bound until the positions are fresh.
    ///
    /// # Errors
    /// Nothing has been read yet; the message gives the cause.
    pub async fn look(&self) -> Result<(), String> {
        let now_ms = now().unix_ms();
        let before = self.looked.fetch_max(now_ms, Ordering::Relaxed);
        let was_idle = now_ms - before > ms(IDLE_AFTER);
        if was_idle || self.tick.borrow().generation == 0 {
            let mut asked = self.asked.subscribe();
            self.somebody.notify_one();
            let fresh =
                async { while asked.changed().await.is_ok() && self.tick.borrow().generation == 0 {} };
            let _ = tokio::time::timeout(FRESH_WITHIN, fresh).await;
        }
        if self.tick.borrow().generation > 0 {
            return Ok(());
        }
        let why = lock(&self.trouble).clone();
        Err(format!("nothing has been read yet: {}", why.unwrap_or_default()))
    }

    /// How the tiles of a view are cut.
    #[must_use]
    pub fn kind(&self, view: impl Iterator<Item = Tile>) -> Kind {
        tiles::kind(&self.fleet(), view, self.points_max)
    }

    pub fn tile(&self, tile: Tile, kind: Kind) -> Arc<Part> {
        let generation = self.tick.borrow().generation;
        let place = {
            let mut tiles = lock(&self.tiles);
            if tiles.generation != generation {
                *tiles = Tiles { generation, ..Tiles::default() };
            }
            if tiles.bytes < TILES_BYTES_MAX {
                Arc::clone(tiles.cut.entry((tile, kind)).or_default())
            } else {
                tiles.cut.get(&(tile, kind)).map(Arc::clone).unwrap_or_default()
            }
        };
        let mut was_cut = false;
        let cut = place.get_or_init(|| {
            was_cut = true;
            let now_ms = self.tick.borrow().now;
            Arc::new(Part::new(tile, &tiles::cut(&self.fleet(), tile, kind, now_ms)))
        });
        if was_cut {
            self.metrics.tiles_cut.inc();
            let mut tiles = lock(&self.tiles);
            if tiles.generation == generation {
                tiles.bytes += cut.bytes();
            }
        }
        Arc::clone(cut)
    }

    /// The loop: one query a second while a page is open. Never returns.
    pub async fn run(&self, store: &Store) {
        let mut reading = Reading::default();
        let mut next = tokio::time::interval(PERIOD);
        next.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            *lock(&self.beat) = Instant::now();
            tokio::select! {
                _ = next.tick() => {}
                () = self.somebody.notified() => next.reset(),
            }
            let looked = self.looked.load(Ordering::Relaxed);
            if self.tick.receiver_count() > 0 {
                self.looked.fetch_max(now().unix_ms(), Ordering::Relaxed);
            } else if now().unix_ms() - looked > ms(IDLE_AFTER) && reading.is_well() {
                reading.rest();
                continue;
            }
            let began = Instant::now();
            let outcome = {
                // The client enters a tracing span for every row, which costs 0.1 s of CPU if a subscriber is active.
                let read = self.read(store, &mut reading).with_subscriber(Dispatch::none());
                let mut read = pin!(tokio::time::timeout(ANSWER_WITHIN, read));
                let (mut rows, mut heard) = (self.metrics.rows_read.get(), began);
                loop {
                    tokio::select! {
                        read = &mut read => break read.unwrap_or(Err(clickhouse::error::Error::TimedOut)),
                        () = tokio::time::sleep(PERIOD) => {}
                    }
                    // It rises with every few thousand rows.
                    let rows_now = self.metrics.rows_read.get();
                    if rows_now != rows {
                        (rows, heard) = (rows_now, Instant::now());
                    }
                    self.tick_on(heard.elapsed() >= SILENT_AFTER);
                }
            };
            self.metrics.reads.observe(began.elapsed().as_secs_f64());
            self.tell(store, &mut reading, outcome);
        }
    }

    /// Sends ticks while a query is slow; a page without ticks would report that the map is down.
    fn tick_on(&self, is_silent: bool) {
        let now_ms = now().unix_ms();
        self.tick.send_modify(|tick| {
            tick.now = now_ms;
            if is_silent && tick.state != State::Away {
                (tick.state, tick.since) = (State::Away, now_ms);
                let words = format!("no row of an answer for {SILENT_AFTER:?}");
                warn!("{words}; waiting");
                *lock(&self.trouble) = Some(format!("clickhouse: {words}"));
            }
        });
    }

    /// Reads the new rows, or all of them; returns how many drivers moved.
    async fn read(&self, store: &Store, reading: &mut Reading) -> Result<usize, clickhouse::error::Error> {
        let began_ms = now().unix_ms();
        let is_pass = reading.wants_all(self.reread);
        let mut parts = if is_pass { Parts::default() } else { reading.parts.clone() };
        if is_pass {
            self.write(Fleet::begin_pass);
        }
        let mut rows = store.changes(&parts).fetch::<Changed<'_>>()?;
        let (mut names, mut fixes) = (Vec::new(), Vec::with_capacity(ROWS_AT_ONCE));
        let (mut last_part, mut age_ms) = (None, None);
        loop {
            let row = rows.next().await?;
            if let Some(row) = &row {
                if last_part != Some((row.first, row.last)) {
                    last_part = Some((row.first, row.last));
                    parts.add(row.first, row.last);
                }
                age_ms = Some(age_ms.map_or(row.age_ms, |least: i64| least.min(row.age_ms)));
                names.extend_from_slice(row.driver_id.as_bytes());
                fixes.push((row.driver_id.len(), row.fix()));
            }
            if fixes.len() == ROWS_AT_ONCE || row.is_none() {
                self.metrics.rows_read.inc_by(fixes.len() as u64);
                self.write(|fleet| {
                    let mut at = 0;
                    for (length, fix) in fixes.drain(..) {
                        fleet.take(&names[at..at + length], fix);
                        at += length;
                    }
                });
                names.clear();
            }
            if row.is_none() {
                break;
            }
        }
        if is_pass {
            self.write(Fleet::end_pass);
            reading.all_read = Some(Instant::now());
        }
        reading.parts = parts;
        if let Some(age_ms) = age_ms {
            reading.came(began_ms - age_ms.max(0));
        }
        Ok(self.write(Fleet::commit))
    }

    fn write<T>(&self, change: impl FnOnce(&mut Fleet) -> T) -> T {
        change(&mut self.fleet.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn tell(&self, store: &Store, reading: &mut Reading, outcome: Result<usize, clickhouse::error::Error>) {
        let (now_ms, now) = (now().unix_ms(), Instant::now());
        let mut tick = self.last_tick();
        let (state, since) = match outcome {
            Ok(moved) => {
                reading.answered(moved, now);
                if moved > 0 || tick.generation == 0 {
                    tick.generation += 1;
                }
                *lock(&self.trouble) = self.left_out();
                reading.stopped(now_ms).map_or((State::Ok, now_ms), |stopped| (State::Stale, stopped))
            }
            Err(error) => {
                self.metrics.read_errors.inc();
                let words = match store.error(&error) {
                    Error::TooMuch(words) | Error::Away(words) => words,
                };
                if reading.failed() {
                    warn!(%error, "{words}; trying again every second");
                }
                *lock(&self.trouble) = Some(format!("clickhouse: {words}"));
                (State::Away, now_ms)
            }
        };
        if state != tick.state && tick.state == State::Away {
            info!("ClickHouse answers");
        }
        // Something may have come, and stopped again, while nobody looked.
        if state != tick.state || state == State::Stale {
            (tick.state, tick.since) = (state, since);
        }
        let fleet = self.fleet();
        self.metrics.drivers.set(i64::try_from(fleet.len()).unwrap_or(i64::MAX));
        self.metrics.memory_bytes.set(i64::try_from(fleet.memory_bytes()).unwrap_or(i64::MAX));
        self.tick.send_replace(Tick {
            now: now_ms,
            drivers: fleet.len(),
            seen_1m: fleet.heard_since(now_ms - 60_000),
            rate: reading.rate(),
            newest: fleet.newest_ms(),
            ..tick
        });
        self.asked.send_replace(());
    }

    fn left_out(&self) -> Option<String> {
        let left_out = self.fleet().left_out();
        (left_out > 0).then(|| {
            format!(
                "map.drivers_max: there are more drivers than {}, and some are not shown",
                self.drivers_max
            )
        })
    }
}

/// State of the loop between two queries.
#[derive(Default)]
struct Reading {
    parts: Parts,
    /// Time of the last full read; `None`: the next one is full.
    all_read: Option<Instant>,
    /// Time of the last insert by this machine's clock, in milliseconds since 1970.
    came: Option<i64>,
    is_failing: bool,
    /// How many drivers moved, and when, newest last.
    counts: VecDeque<(Instant, usize)>,
}

impl Reading {
    /// Whether the next read is full.
    fn wants_all(&self, every: Duration) -> bool {
        self.all_read.is_none_or(|at| at.elapsed() >= every)
    }

    fn answered(&mut self, moved: usize, now: Instant) {
        self.is_failing = false;
        // In the first read every driver is new.
        let counted = if self.counts.is_empty() { 0 } else { moved };
        self.counts.push_back((now, counted));
        if self.counts.len() > RATE_TICKS + 1 {
            self.counts.pop_front();
        }
    }

    /// Rows were inserted then. The same moment, computed again, differs by milliseconds.
    fn came(&mut self, at_ms: i64) {
        if self.came.is_none_or(|known| at_ms > known + ms(PERIOD)) {
            self.came = Some(at_ms);
        }
    }

    /// The last insert, if it was long ago.
    fn stopped(&self, now_ms: i64) -> Option<i64> {
        self.came.filter(|came| now_ms - came >= ms(STALE_AFTER))
    }

    /// Mean per second between the first and the last query.
    fn rate(&self) -> f64 {
        let (Some((first, _)), Some((last, _))) = (self.counts.front(), self.counts.back()) else {
            return 0.0;
        };
        let seconds = last.duration_since(*first).as_secs_f64();
        let moved: usize = self.counts.iter().skip(1).map(|(_, moved)| moved).sum();
        if seconds > 0.0 { (moved as f64 / seconds * 10.0).round() / 10.0 } else { 0.0 }
    }

    /// Returns whether this is the first failure after an answer: a server that was down may have lost rows, so the next read is full.
    fn failed(&mut self) -> bool {
        self.all_read = None;
        !std::mem::replace(&mut self.is_failing, true)
    }

    fn is_well(&self) -> bool {
        self.all_read.is_some() && !self.is_failing
    }

    /// No viewer: later fixes do not count towards the rate.
    fn rest(&mut self) {
        self.counts.clear();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[tokio::test]
    async fn who_looks_first_waits_for_an_answer_and_not_for_the_clock() {
        let live = Live::new(&config::Config::parse("").expect("defaults").map, Arc::default());
        let mut context = Context::from_waker(Waker::noop());
        let tick =
            |now, generation| live.tick.send_modify(|tick| (tick.now, tick.generation) = (now, generation));
        // Somebody looked long ago.
        live.looked.store(0, Ordering::Relaxed);
        tick(0, 5);
        let mut look = pin!(live.look());
        assert!(look.as_mut().poll(&mut context).is_pending());
        tick(i64::MAX, 5);
        assert!(look.as_mut().poll(&mut context).is_pending(), "ClickHouse has not answered yet");
        live.asked.send_replace(());
        assert_eq!(look.as_mut().poll(&mut context), Poll::Ready(Ok(())));
        // Others do not wait.
        assert_eq!(pin!(live.look()).poll(&mut context), Poll::Ready(Ok(())));
    }
}
