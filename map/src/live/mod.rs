//! Live positions. While a page is open, one ClickHouse query per second updates the fleet in
//! memory, for any number of viewers. A cached tile is encoded from the fleet once per generation.
//! A new generation begins when drivers have moved or names have changed, and otherwise every 15 s.
//! Every open page receives a [`Tick`] once a second.
//!
//! Guarantee: a row is visible after the next query, even if its fix is old; a removed driver
//! disappears within `map.reread`. While ClickHouse is down, the last positions stay, and every
//! tick states the time of the first failed query. While no inserts arrive, every tick states the
//! time of the last insert, even if no page was open at that time.

mod reading;
mod tick;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use milepost_clickhouse::{check_list, check_rows, within};
use milepost_observe::now;
use tokio::sync::{Notify, watch};
use tracing::instrument::WithSubscriber as _;
use tracing::{Dispatch, info, warn};

use self::reading::{PERIOD, Reading, ms};
pub use self::tick::{State, States, Tick};
use crate::config;
use crate::fleet::Fleet;
use crate::fleet::filter::{Ages, Filter, Scope, Selection, Summary, summary};
use crate::fleet::parts::Parts;
use crate::geo::Tile;
use crate::metrics::Metrics;
use crate::store::{Changed, Error, Store};
use crate::tiles::{self, Kind};
use crate::wire::Part;

/// Timeout of a query. The server's own limit is shorter, but a hung server does not enforce it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(65);
/// Time without a row of a query's response after which ClickHouse counts as down. The response may
/// still arrive later.
const SILENT_AFTER: Duration = Duration::from_secs(10);
/// Time without a viewer after which the map stops querying ClickHouse.
const IDLE_AFTER: Duration = Duration::from_secs(10);
/// Longest wait of the first viewer for fresh positions. After this time, the viewer gets the last
/// known positions.
const FRESH_TIMEOUT: Duration = Duration::from_millis(1_500);
/// Number of rows that are added under one lock of the fleet. Readers can run in between.
const ROWS_AT_ONCE: usize = 4_096;
/// Memory limit of the cached tiles of one generation, in bytes; further tiles are not cached.
const TILES_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Memory of a cached tile in addition to its bytes: its key with a scope, and its allocations.
/// This counts, because most of the tiles that a program requests may be empty.
const TILE_OVERHEAD_BYTES: usize = 512;
/// Interval at which the map checks for new names and groups.
const NAMES_PERIOD: Duration = Duration::from_secs(10);
/// Time beyond `clickhouse.query_timeout` that a read of names may take. ClickHouse enforces that
/// limit itself, but a hung server does not.
const NAMES_GRACE: Duration = Duration::from_secs(5);

/// A tile that is encoded by the first request for it.
type LazyTile = Arc<OnceLock<Arc<Part>>>;

/// Cached tiles of one generation. Each tile is encoded once, even if several requests wait for it.
#[derive(Default)]
struct Tiles {
    generation: u64,
    by_key: HashMap<(Tile, Kind, Selection), LazyTile>,
    /// Memory of the encoded tiles.
    bytes: usize,
}

/// Counts per scope, as of one tick.
#[derive(Default)]
struct Summaries {
    /// Time of the tick.
    now: i64,
    by_scope: HashMap<Arc<Scope>, Summary>,
}

/// The fleet in memory and the query loop that keeps it current; see the module.
pub struct Live {
    fleet: RwLock<Fleet>,
    tiles: Mutex<Tiles>,
    tick: watch::Sender<Tick>,
    /// Notified when a query has ended, unlike `tick`, which is also sent while a query runs.
    query_ended: watch::Sender<()>,
    /// Time of the last request, in milliseconds since 1970.
    requested_ms: AtomicI64,
    viewer_arrived: Notify,
    /// Reason why the last read failed or is incomplete, as a line of `/readyz`; `None`: the last
    /// read is complete.
    unready_reason: Mutex<Option<String>>,
    /// Time of the last iteration of the query loop.
    last_iteration: Mutex<Instant>,
    summaries: Mutex<Summaries>,
    /// Notified when names must be read at once.
    names_changed: Notify,
    points_max: usize,
    drivers_max: usize,
    reread: Duration,
    pub ages: Ages,
    pub metrics: Arc<Metrics>,
}

impl Live {
    /// Creates an empty fleet; [`Live::run`] fills it.
    #[must_use]
    pub fn new(config: &config::Map, metrics: Arc<Metrics>) -> Self {
        let now = now().unix_ms();
        let tick = Tick {
            now,
            drivers: 0,
            seen_1m: 0,
            rate: Some(0.0),
            newest: None,
            state: State::Away,
            since: now,
            generation: 0,
            states: States::default(),
            names: 0,
        };
        let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        Self {
            fleet: RwLock::new(Fleet::new(config.drivers_max)),
            tiles: Mutex::default(),
            tick: watch::Sender::new(tick),
            query_ended: watch::Sender::new(()),
            requested_ms: AtomicI64::new(now),
            viewer_arrived: Notify::new(),
            unready_reason: Mutex::new(Some(
                "clickhouse: the last positions are still being read".to_owned(),
            )),
            last_iteration: Mutex::new(Instant::now()),
            summaries: Mutex::default(),
            names_changed: Notify::new(),
            ages: Ages {
                silent_s: seconds(config.silent_after),
                hidden_s: seconds(config.hidden_after),
            },
            points_max: config.points_max,
            drivers_max: config.drivers_max,
            reread: config.reread,
            metrics,
        }
    }

    pub fn fleet(&self) -> RwLockReadGuard<'_, Fleet> {
        self.fleet.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the last tick.
    #[must_use]
    pub fn last_tick(&self) -> Tick {
        self.tick.borrow().clone()
    }

    /// Returns the tick with its counts limited to the drivers in a scope.
    #[must_use]
    pub fn tick_for(&self, scope: &Arc<Scope>, tick: &Tick) -> Tick {
        if scope.is_all() {
            return tick.clone();
        }
        let cached = {
            let mut summaries = lock(&self.summaries);
            if summaries.now != tick.now {
                *summaries = Summaries { now: tick.now, by_scope: HashMap::new() };
            }
            summaries.by_scope.get(scope).copied()
        };
        let counts = cached.unwrap_or_else(|| {
            let counts = summary(&self.fleet(), scope, self.ages, tick.now);
            let mut summaries = lock(&self.summaries);
            if summaries.now == tick.now {
                summaries.by_scope.insert(Arc::clone(scope), counts);
            }
            counts
        });
        Tick { rate: None, ..tick.clone().with_counts(&counts) }
    }

    /// Builds the filter of a selection, as of the last tick.
    #[must_use]
    pub fn filter<'a>(&self, fleet: &'a Fleet, selection: &Selection) -> Filter<'a> {
        Filter::new(fleet, selection, self.ages, self.tick.borrow().now)
    }

    #[must_use]
    pub fn ticks(&self) -> watch::Receiver<Tick> {
        self.tick.subscribe()
    }

    /// Returns why positions are stale or incomplete, one line per reason; empty: the map is ready.
    #[must_use]
    pub fn unready_reasons(&self) -> Vec<String> {
        lock(&self.unready_reason).iter().cloned().collect()
    }

    /// Returns the time since the last iteration of the query loop.
    #[must_use]
    pub fn silent_for(&self) -> Duration {
        lock(&self.last_iteration).elapsed()
    }

    /// Records a request, which keeps the query loop running. After an idle time, or before the
    /// first read, waits for the next query, at most `FRESH_TIMEOUT`.
    ///
    /// # Errors
    /// Nothing has been read yet; the message gives the cause.
    pub async fn wait_until_fresh(&self) -> Result<(), String> {
        let now_ms = now().unix_ms();
        let before = self.requested_ms.fetch_max(now_ms, Ordering::Relaxed);
        let was_idle = now_ms - before > ms(IDLE_AFTER);
        if was_idle || self.tick.borrow().generation == 0 {
            let mut query_ended = self.query_ended.subscribe();
            self.viewer_arrived.notify_one();
            let fresh = async {
                while query_ended.changed().await.is_ok() && self.tick.borrow().generation == 0 {}
            };
            let _ = tokio::time::timeout(FRESH_TIMEOUT, fresh).await;
        }
        if self.tick.borrow().generation > 0 {
            return Ok(());
        }
        let why = lock(&self.unready_reason).clone();
        Err(format!("nothing has been read yet: {}", why.unwrap_or_default()))
    }

    /// Returns the kind of the tiles of a view: a point for each driver, or cells that count
    /// drivers.
    #[must_use]
    pub fn kind(&self, view: impl Iterator<Item = Tile> + Clone, selection: &Selection) -> Kind {
        let fleet = self.fleet();
        tiles::kind(&fleet, view, &self.filter(&fleet, selection), self.points_max)
    }

    /// Returns a tile of the current generation, from the cache if possible.
    pub fn tile(&self, tile: Tile, kind: Kind, selection: &Selection) -> Arc<Part> {
        let generation = self.tick.borrow().generation;
        let lazy_tile = {
            let mut tiles = lock(&self.tiles);
            if tiles.generation != generation {
                *tiles = Tiles { generation, ..Tiles::default() };
            }
            if tiles.bytes < TILES_BYTES_MAX {
                Arc::clone(tiles.by_key.entry((tile, kind, selection.clone())).or_default())
            } else {
                tiles
                    .by_key
                    .get(&(tile, kind, selection.clone()))
                    .map(Arc::clone)
                    .unwrap_or_default()
            }
        };
        let mut was_encoded = false;
        let part = lazy_tile.get_or_init(|| {
            was_encoded = true;
            let now_ms = self.tick.borrow().now;
            let fleet = self.fleet();
            Arc::new(Part::new(
                tile,
                &tiles::cut(&fleet, tile, kind, &self.filter(&fleet, selection), now_ms),
            ))
        });
        if was_encoded {
            self.metrics.tiles_cut.inc();
            let mut tiles = lock(&self.tiles);
            if tiles.generation == generation {
                tiles.bytes += part.bytes() + TILE_OVERHEAD_BYTES;
            }
        }
        Arc::clone(part)
    }

    /// Runs the query loop: one query a second while a page is open. Never returns.
    pub async fn run(&self, store: &Store) {
        let mut reading = Reading::default();
        let mut next = tokio::time::interval(PERIOD);
        next.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            *lock(&self.last_iteration) = Instant::now();
            tokio::select! {
                _ = next.tick() => {}
                () = self.viewer_arrived.notified() => next.reset(),
            }
            let requested_ms = self.requested_ms.load(Ordering::Relaxed);
            if self.tick.receiver_count() > 0 {
                self.requested_ms.fetch_max(now().unix_ms(), Ordering::Relaxed);
            } else if now().unix_ms() - requested_ms > ms(IDLE_AFTER) && reading.is_healthy() {
                reading.reset_rate();
                continue;
            }
            let began = Instant::now();
            let outcome = {
                // The client library enters a tracing span for every row, which is slow if a
                // subscriber is active.
                let read = self.read(store, &mut reading).with_subscriber(Dispatch::none());
                let mut read = pin!(within(ANSWER_TIMEOUT, read));
                let (mut rows, mut last_row_at) = (self.metrics.rows_read.get(), began);
                loop {
                    tokio::select! {
                        read = &mut read => break read,
                        () = tokio::time::sleep(PERIOD) => {}
                    }
                    // The counter rises with every few thousand rows.
                    let rows_now = self.metrics.rows_read.get();
                    if rows_now != rows {
                        (rows, last_row_at) = (rows_now, Instant::now());
                    }
                    self.tick_while_reading(last_row_at.elapsed() >= SILENT_AFTER);
                }
            };
            self.metrics.reads.observe(began.elapsed().as_secs_f64());
            self.publish(store, &mut reading, outcome);
        }
    }

    /// Runs the loop that checks for new names and groups while a page is open, and reads them when
    /// they have changed. Never returns. `has_scopes`: some viewers may see only a part of the
    /// drivers. Groups decide which part, so the loop then also runs while no page is open.
    pub async fn poll_names(&self, store: &Store, has_scopes: bool) {
        let mut last_stamp = None;
        let mut was_failing = false;
        // Names may take two queries.
        let timeout = 2 * store.query_timeout() + NAMES_GRACE;
        loop {
            match within(timeout, store.names_stamp()).await {
                Ok(stamp) if last_stamp.as_ref() == Some(&stamp) => was_failing = false,
                Ok(stamp) => match within(timeout, store.names()).await {
                    Ok(directory) => {
                        (last_stamp, was_failing) = (Some(stamp), false);
                        self.write(|fleet| fleet.set_directory(Arc::new(directory)));
                        self.tick.send_modify(|tick| {
                            tick.names += 1;
                            tick.generation += u64::from(tick.generation > 0);
                        });
                    }
                    Err(error) => was_failing = warn_once(was_failing, &error),
                },
                Err(error) => was_failing = warn_once(was_failing, &error),
            }
            tokio::select! {
                () = tokio::time::sleep(NAMES_PERIOD) => {}
                () = self.names_changed.notified() => last_stamp = None,
            }
            while self.is_idle() && last_stamp.is_some() && !has_scopes {
                tokio::time::sleep(PERIOD).await;
            }
        }
    }

    /// Triggers a read of names and groups.
    pub fn read_names(&self) {
        self.names_changed.notify_one();
    }

    fn is_idle(&self) -> bool {
        let requested_ms = self.requested_ms.load(Ordering::Relaxed);
        self.tick.receiver_count() == 0 && now().unix_ms() - requested_ms > ms(IDLE_AFTER)
    }

    /// Sends ticks while a query is slow; a page without ticks would report that the map is down.
    fn tick_while_reading(&self, is_silent: bool) {
        let now_ms = now().unix_ms();
        self.tick.send_modify(|tick| {
            tick.now = now_ms;
            if is_silent && tick.state != State::Away {
                (tick.state, tick.since) = (State::Away, now_ms);
                let why = format!("no row of a response for {SILENT_AFTER:?}");
                warn!("{why}; waiting");
                *lock(&self.unready_reason) = Some(format!("clickhouse: {why}"));
            }
        });
    }

    /// Reads the new rows, or all rows if a full read is due. Returns how many drivers changed.
    async fn read(
        &self,
        store: &Store,
        reading: &mut Reading,
    ) -> Result<usize, clickhouse::error::Error> {
        let began_ms = now().unix_ms();
        let is_full = reading.is_full_read_due(self.reread);
        let mut parts = if is_full { Parts::default() } else { reading.parts.clone() };
        if is_full {
            self.write(Fleet::begin_full_read);
        }
        // The answer is streamed, so this query does not set `wait_end_of_query`. The map shows the
        // first drivers while ClickHouse still reads the others, and neither the map nor ClickHouse
        // buffers the whole answer.
        let mut rows = store.changes(&parts).fetch::<Changed<'_>>()?;
        let (mut ids, mut fixes) = (Vec::new(), Vec::with_capacity(ROWS_AT_ONCE));
        let (mut last_part, mut age_ms) = (None, None);
        loop {
            let row = rows.next().await?;
            if let Some(row) = &row {
                if last_part != Some((row.first, row.last)) {
                    last_part = Some((row.first, row.last));
                    parts.add(row.first, row.last);
                }
                age_ms = Some(age_ms.map_or(row.age_ms, |least: i64| least.min(row.age_ms)));
                ids.extend_from_slice(row.driver_id.as_bytes());
                fixes.push((row.driver_id.len(), row.fix()));
            }
            if fixes.len() == ROWS_AT_ONCE || row.is_none() {
                self.metrics.rows_read.inc_by(fixes.len() as u64);
                self.write(|fleet| {
                    let mut offset = 0;
                    for (length, fix) in fixes.drain(..) {
                        fleet.update(&ids[offset..offset + length], fix);
                        offset += length;
                    }
                });
                ids.clear();
            }
            if row.is_none() {
                break;
            }
        }
        if is_full {
            check_list(&rows)?; // the list must be complete: drivers that are not in it are removed
            self.write(Fleet::end_full_read);
            reading.last_full_read = Some(Instant::now());
        } else {
            check_rows(&rows)?;
        }
        reading.parts = parts;
        if let Some(age_ms) = age_ms {
            reading.record_insert(began_ms - age_ms.max(0));
        }
        Ok(self.write(Fleet::commit))
    }

    fn write<T>(&self, change: impl FnOnce(&mut Fleet) -> T) -> T {
        change(&mut self.fleet.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Updates the tick and the metrics after a read.
    fn publish(
        &self,
        store: &Store,
        reading: &mut Reading,
        outcome: Result<usize, clickhouse::error::Error>,
    ) {
        let (now_ms, now) = (now().unix_ms(), Instant::now());
        let mut tick = self.last_tick();
        let (state, since) = match outcome {
            Ok(moved) => {
                reading.record_answer(moved, now);
                if moved > 0 || tick.generation == 0 || reading.is_new_generation_due(now) {
                    tick.generation += 1;
                    reading.last_generation_at = Some(now);
                }
                *lock(&self.unready_reason) = self.drivers_max_reason();
                reading
                    .stale_since(now_ms)
                    .map_or((State::Ok, now_ms), |stopped| (State::Stale, stopped))
            }
            Err(error) => {
                self.metrics.read_errors.inc();
                let why = match store.error(&error) {
                    Error::LimitExceeded(why) | Error::Invalid(why) | Error::Unavailable(why) => {
                        why
                    }
                };
                if reading.record_failure() {
                    warn!(%error, "{why}; trying again every second");
                }
                *lock(&self.unready_reason) = Some(format!("clickhouse: {why}"));
                (State::Away, now_ms)
            }
        };
        if state != tick.state && tick.state == State::Away {
            info!("ClickHouse answers");
        }
        // Inserts may have resumed and stopped again while no page was open, which changes `since`
        // but not the state.
        if state != tick.state || state == State::Stale {
            (tick.state, tick.since) = (state, since);
        }
        let fleet = self.fleet();
        self.metrics.drivers.set(i64::try_from(fleet.len()).unwrap_or(i64::MAX));
        self.metrics.memory_bytes.set(i64::try_from(fleet.memory_bytes()).unwrap_or(i64::MAX));
        let all = summary(&fleet, &Arc::default(), self.ages, now_ms);
        // `poll_names` may have changed `generation` and `names` meanwhile.
        self.tick.send_modify(|sent| {
            tick.generation += u64::from(sent.names != tick.names);
            tick.names = sent.names;
            *sent = Tick { now: now_ms, rate: Some(reading.rate()), ..tick.with_counts(&all) };
        });
        self.query_ended.send_replace(());
    }

    /// Returns the line of `/readyz` about drivers above `map.drivers_max`; `None`: there are none.
    fn drivers_max_reason(&self) -> Option<String> {
        let left_out = self.fleet().left_out();
        (left_out > 0).then(|| {
            format!(
                "map.drivers_max: there are more drivers than {}, and some are not shown",
                self.drivers_max
            )
        })
    }
}

/// Logs a failure, unless the previous attempt failed too. Returns `true`, the new value of
/// `was_failing`.
fn warn_once(was_failing: bool, error: &clickhouse::error::Error) -> bool {
    if !was_failing {
        warn!(%error, "the names of drivers cannot be read; trying again");
    }
    true
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn empty_tiles_count_towards_the_limit_of_the_cache() {
        let live = Live::new(&config::Config::parse("").expect("defaults").map, Arc::default());
        for x in 0..10 {
            let tile = Tile::new(14, x, 0).expect("a tile");
            // The second request finds the tile in the cache.
            live.tile(tile, Kind::Points, &Selection::default());
            live.tile(tile, Kind::Points, &Selection::default());
        }
        let tiles = lock(&live.tiles);
        assert_eq!((tiles.by_key.len(), live.metrics.tiles_cut.get()), (10, 10));
        assert!((10 * TILE_OVERHEAD_BYTES..20 * TILE_OVERHEAD_BYTES).contains(&tiles.bytes));
    }

    #[tokio::test]
    async fn first_viewer_waits_for_a_query_not_a_tick() {
        let live = Live::new(&config::Config::parse("").expect("defaults").map, Arc::default());
        let mut context = Context::from_waker(Waker::noop());
        let tick = |now, generation| {
            live.tick.send_modify(|tick| (tick.now, tick.generation) = (now, generation))
        };
        // The last request is long ago.
        live.requested_ms.store(0, Ordering::Relaxed);
        tick(0, 5);
        let mut fresh = pin!(live.wait_until_fresh());
        assert!(fresh.as_mut().poll(&mut context).is_pending());
        tick(i64::MAX, 5);
        assert!(fresh.as_mut().poll(&mut context).is_pending(), "ClickHouse has not answered yet");
        live.query_ended.send_replace(());
        assert_eq!(fresh.as_mut().poll(&mut context), Poll::Ready(Ok(())));
        // Further requests do not wait.
        assert_eq!(pin!(live.wait_until_fresh()).poll(&mut context), Poll::Ready(Ok(())));
    }
}
