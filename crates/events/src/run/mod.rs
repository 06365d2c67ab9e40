//! `milepost events`: reads what ClickHouse took since the last look, writes what it means into the
//! table `events`, and tells it over MQTT and to a webhook.
//!
//! Guarantee: an event is written before it is told, and told until the channel takes it, also
//! after kill -9: a new process plays the last quarter of an hour again, and the same fixes give
//! the same events with the same ids. So a channel may get an event twice, the table has it once.
//! No state but ClickHouse's.
//!
//! A process of its own, not the consumer's, whose path it must never be in; nor the map's, which
//! sees each driver's newest fix alone.

mod deliver;
mod publisher;
mod status;
mod tell;

use std::cell::Cell;
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tracing::{info, warn};

use self::deliver::{Answer, Channel, Ends, QUEUE_MAX};
use self::status::Status;
use self::tell::{Line, STATES, Telling};
use crate::fences::store::FenceStore;
use crate::watch::reader::Reader;
use crate::watch::store::{EventStore, Told};
use crate::watch::{Area, Event, Rules, Watch};
use milepost_clickhouse::{ClickHouse, Retry, Writer};
use milepost_command::{Outcome, Signals, tables};
use milepost_config::Config;
use milepost_core::erased::Erased;
use milepost_core::error_chain;
use milepost_core::throttle::Throttle;
use milepost_observe::http;

/// Between two looks at new fixes.
const EVERY: Duration = Duration::from_secs(1);
/// A new process plays again what was inserted in this time.
const AGAIN_MS: i64 = 900_000;
/// It becomes a level of a topic, perhaps three times as long, and a topic has at most 65,535
/// bytes.
const FENCE_NAME_BYTES_MAX: usize = 4_096;
/// How often fences, and who is erased, are read.
const READ_AGAIN: Duration = Duration::from_secs(10);
/// A replica that is behind the others by more is reported.
const LAG_MAX: Duration = Duration::from_secs(60);
/// Topics that are cleared at once of drivers who were erased; what a new process finds may be the
/// whole list.
const CLEARED_MAX: usize = 100_000;
/// Replicas whose clocks differ answer in turn.
const CLOCK_LOG_EVERY: Duration = Duration::from_secs(60);
const WRITING: &str = "writing events failed";
/// Our name in `/readyz`.
const PART: &str = "clickhouse";

/// See the module.
struct Events {
    clickhouse: ClickHouse,
    /// Every look tries again, and `/readyz` says why it waits.
    writer: Writer,
    config: Config,
    status: Arc<Status>,
    telling: Telling,
    watch: Watch,
    reader: Reader,
    /// ClickHouse did not answer the last time.
    is_away: bool,
    /// Found, and not written yet.
    unwritten: Vec<Told>,
    /// Ids that the table has, of the time that is looked at; oldest first.
    known: HashSet<String>,
    known_order: VecDeque<(i64, String)>,
    /// Their topics are cleared, and no channel gets an event of them.
    erased: watch::Sender<Arc<Erased>>,
    /// The broker may have lost what it retained.
    retained_lost: watch::Receiver<u64>,
    read_at: Option<Instant>,
    /// Names of fences that make no events, which is logged already.
    bad_fences: BTreeSet<String>,
    began: Instant,
    clock_log: Throttle,
    drivers_log: Throttle,
}

/// Runs until SIGTERM.
///
/// # Errors
/// What ended the process outside a shutdown.
pub(crate) async fn run(config: Config) -> Result<Outcome> {
    let status = Arc::new(Status::new());
    status.health.set(PART, vec!["events: starting".to_owned()]);
    let mut signals = Signals::new()?;
    let listener = TcpListener::bind(config.http.listen)
        .await
        .with_context(|| format!("http.listen: cannot listen on {}", config.http.listen))?;
    info!(listen = %listener.local_addr()?, "serving /metrics, /livez and /readyz");
    let (served, mut tasks) = (Arc::clone(&status), JoinSet::new());
    tasks.spawn(http::serve(listener, move |path| served.respond(path)));

    let (sender, mut answers) = mpsc::channel(QUEUE_MAX);
    let erased = watch::Sender::new(Arc::default());
    let (retained_lost, lost) = watch::channel(0);
    let lines = channels(&config, &status, &sender, (&erased, &retained_lost), &mut tasks);
    let clickhouse = ClickHouse::new(&config.clickhouse)?;
    let waited = Cell::new(false);
    let waits = |why: &str| {
        waited.set(true);
        status.health.set(PART, vec![format!("clickhouse: {why}")]);
    };
    tokio::select! {
        ready = tables::until_ready(&clickhouse, waits) => ready?,
        () = signals.next() => return Ok(Outcome::Clean),
    }
    // A look may take as long as ClickHouse does: that is no reason for a restart.
    let beats = async {
        loop {
            status.health.beat(PART, std::time::Instant::now());
            sleep(EVERY).await;
        }
    };
    let mut events = Events {
        clickhouse,
        writer: Writer::new(config.clickhouse.insert_timeout, Retry::Never),
        config,
        status: Arc::clone(&status),
        telling: Telling::new(lines, Arc::clone(&status)),
        watch: Watch::default(),
        reader: Reader::default(),
        is_away: waited.get(),
        unwritten: Vec::new(),
        known: HashSet::new(),
        known_order: VecDeque::new(),
        erased,
        retained_lost: lost,
        read_at: None,
        bad_fences: BTreeSet::new(),
        began: Instant::now(),
        clock_log: Throttle::every(CLOCK_LOG_EVERY),
        drivers_log: Throttle::once(),
    };
    tokio::select! {
        () = events.watch_for_ever(&mut answers) => {}
        () = beats => {}
        () = signals.next() => info!("stopping: what no channel has taken yet is told by the next process"),
        Some(ended) = tasks.join_next() => bail!("a part ended: {:?}", ended.err()),
    }
    Ok(Outcome::Clean)
}

/// Starts the configured ones.
fn channels(
    config: &Config,
    status: &Arc<Status>,
    answers: &mpsc::Sender<Answer>,
    (erased, retained_lost): (&watch::Sender<Arc<Erased>>, &watch::Sender<u64>),
    tasks: &mut JoinSet<()>,
) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut line = |channel, prefix: &str| {
        let (orders, queue) = mpsc::channel(QUEUE_MAX);
        lines.push(Line::new(channel, prefix, orders));
        let ends = Ends {
            orders: queue,
            answers: answers.clone(),
            erased: erased.subscribe(),
            retained_lost: retained_lost.clone(),
        };
        (ends, Arc::clone(status))
    };
    if let Some(prefix) = config.events.topic.clone() {
        let (ends, status) = line(Channel::Mqtt, &prefix);
        tasks.spawn(deliver::mqtt(config.mqtt.clone(), prefix, ends, status));
    }
    if let Some(webhook) = config.webhook.clone() {
        let (ends, status) = line(Channel::Webhook, "");
        tasks.spawn(deliver::webhook(webhook, ends, status));
    }
    lines
}

impl Events {
    async fn watch_for_ever(&mut self, answers: &mut mpsc::Receiver<Answer>) {
        let mut log = Throttle::once();
        let mut has_begun = false;
        let mut looks = interval(EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let looked = async {
                if !has_begun {
                    self.begin().await?;
                    has_begun = true;
                }
                self.look(answers).await
            };
            match looked.await {
                Ok(lag) if lag > LAG_MAX => {
                    let why = format!("this replica is {} s behind the others", lag.as_secs());
                    if log.allow(std::time::Instant::now()) {
                        warn!(why, "events are late: look at system.replicas there");
                    }
                    self.status
                        .health
                        .set(PART, vec![format!("clickhouse: {why}: events are late")]);
                }
                Ok(_) => {
                    log.reset();
                    self.status.health.set(PART, Vec::new());
                }
                Err(error) => {
                    self.is_away = true;
                    let why = error_chain(error.as_ref());
                    if log.allow(std::time::Instant::now()) {
                        warn!(why, "waiting for ClickHouse: no event is found meanwhile");
                    }
                    self.status.health.set(PART, vec![format!("clickhouse: {why}")]);
                }
            }
        }
    }

    /// Where everybody was, and what was known, a quarter of an hour ago; what came since is played
    /// again by the looks.
    async fn begin(&mut self) -> Result<()> {
        let since = self.clickhouse.clock().await? - AGAIN_MS;
        let mut watch = Watch::new(self.rules().await?);
        let silent_for = self.config.events.silent_for.unwrap_or_default();
        let fixes = EventStore(&self.clickhouse).last_fixes_before(since, silent_for).await?;
        fixes.into_iter().for_each(|fix| watch.begin_with(fix));
        let before = EventStore(&self.clickhouse).states_before(since).await?;
        before.iter().for_each(|told| watch.begin_with_event(&told.event));
        let known = EventStore(&self.clickhouse).events_since(since).await?;
        watch.begin_before(known.iter().map(|told| &told.event));
        watch.play_again(known.iter().map(|told| told.event.clone()).collect());
        info!(
            drivers = watch.drivers(),
            fences = watch.rules.areas.len(),
            known = known.len(),
            "watching"
        );
        (self.watch, self.reader) = (watch, Reader::new(since));
        known.iter().for_each(|told| self.note(&told.event));
        self.telling.take_over(before, known);
        if self.config.webhook.is_some() {
            let unposted = EventStore(&self.clickhouse).unposted_before(since).await?;
            if unposted > 0 {
                let to = Channel::Webhook.name();
                warn!(
                    to,
                    events = unposted,
                    "events of the last two days are older than a quarter of an hour and were not posted: they stay in the table alone"
                );
                self.status.dropped.with_label_values(&[to]).inc_by(unposted);
            }
        }
        Ok(())
    }

    /// Takes what is new; how far its replica is behind the others.
    async fn look(&mut self, answers: &mut mpsc::Receiver<Answer>) -> Result<Duration> {
        let began = Instant::now();
        self.read_again().await?;
        if !self.unwritten.is_empty() {
            self.write(answers).await?; // or nothing more is read, and what waits stays bounded
        }
        if std::mem::take(&mut self.is_away) {
            self.reader.lost_clickhouse();
        }
        self.reader.begin(i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX));
        let mut found = Vec::new();
        loop {
            let inserted = EventStore(&self.clickhouse).fixes_of(self.reader.wanted()).await?;
            let is_more = self.reader.take(inserted, &mut self.watch, &mut found);
            // Of hours that are read at once, no more is kept than of one answer.
            self.keep(&mut found);
            self.write(answers).await?;
            if !is_more {
                break;
            }
        }
        if self.retained_lost.has_changed().unwrap_or(false) {
            self.retain_again().await?;
        }
        self.reader.end(&mut self.watch, &mut found);
        self.keep(&mut found);
        self.write(answers).await?;
        self.report();
        let lag = self.reader.lag();
        self.status.behind.set((began.elapsed() + lag).as_secs_f64());
        Ok(lag)
    }

    /// Publishes every state once more: at the start, and after the broker lost its sessions.
    async fn retain_again(&mut self) -> Result<()> {
        let states = EventStore(&self.clickhouse).states().await?;
        self.retained_lost.mark_unchanged();
        info!(states = states.len(), "publishing every state: the broker may not have them");
        self.telling.retain_again(states);
        Ok(())
    }

    fn report(&mut self) {
        self.status.missing.set(self.watch.missing());
        let (step_ms, now) = (self.reader.step_ms(), std::time::Instant::now());
        if step_ms != 0 && self.clock_log.allow(now) {
            warn!(
                step_ms,
                "ClickHouse's clock was set, or its replicas' clocks differ: no silence is found until events.silent_for has passed"
            );
        }
        if self.watch.passed_over > 0 && self.drivers_log.allow(now) {
            warn!(
                drivers = self.watch.drivers(),
                "the drivers beyond these make no events: the memory is full"
            );
        }
    }

    /// Of what was found, what the table does not have.
    fn keep(&mut self, found: &mut Vec<Event>) {
        for event in found.drain(..) {
            if !self.known.contains(&event.id()) {
                self.note(&event);
                self.status.events.with_label_values(&[event.kind.name()]).inc();
                self.unwritten.push(Told { event, mqtt_at: None, webhook_at: None });
            }
        }
    }

    /// Writes what was found and what was taken; what is written is told.
    async fn write(&mut self, answers: &mut mpsc::Receiver<Answer>) -> Result<()> {
        self.telling.follow(answers, milepost_observe::now_ms());
        if !self.unwritten.is_empty() {
            let insert = EventStore(&self.clickhouse).events_insert(&self.unwritten);
            self.writer
                .write(&self.clickhouse, &insert, milepost_clickhouse::fresh_identity(0))
                .await
                .context(WRITING)?;
            std::mem::take(&mut self.unwritten)
                .into_iter()
                .for_each(|told| self.telling.tell(told));
        }
        if !self.telling.retold.is_empty() {
            let insert = EventStore(&self.clickhouse).events_insert(&self.telling.retold);
            self.writer
                .write(&self.clickhouse, &insert, milepost_clickhouse::fresh_identity(0))
                .await
                .context(WRITING)?;
            self.telling.retold.clear();
        }
        Ok(())
    }

    /// Not found again while its fix may be read again.
    fn note(&mut self, event: &Event) {
        let oldest = event.known_at - 2 * AGAIN_MS;
        while self.known_order.front().is_some_and(|(known_at, _)| *known_at < oldest) {
            if let Some((_, id)) = self.known_order.pop_front() {
                self.known.remove(&id);
            }
        }
        if self.known.insert(event.id()) {
            self.known_order.push_back((event.known_at, event.id()));
        }
    }

    /// Fences as they are now. Who is erased is forgotten, and no topic keeps their state.
    async fn read_again(&mut self) -> Result<()> {
        if self.read_at.is_some_and(|at| at.elapsed() < READ_AGAIN) {
            return Ok(());
        }
        self.watch.rules = self.rules().await?;
        let erased = Arc::clone(self.clickhouse.erased().await?.erased());
        let is_erased = |id: &str| erased.contains_bytes(id.as_bytes());
        self.unwritten.retain(|told| !is_erased(&told.event.driver_id));
        self.telling.forget(is_erased);
        for (driver_id, fences) in self.watch.forget(is_erased) {
            self.telling.clear(&driver_id, &fences);
        }
        self.clear_unwatched(&erased);
        self.erased.send_replace(erased);
        self.read_at = Some(Instant::now());
        Ok(())
    }

    /// Who was erased while no process ran is not watched, and their rows are gone: any fence may
    /// have a topic.
    fn clear_unwatched(&mut self, erased: &Erased) {
        let fences: Vec<_> = self.watch.rules.areas.iter().map(|area| area.name.clone()).collect();
        let drivers_max = CLEARED_MAX / (STATES + fences.len());
        let known = self.erased.borrow();
        let mut new = erased.not_in(&known);
        new.by_ref().take(drivers_max).for_each(|driver_id| self.telling.clear(driver_id, &fences));
        let left = new.count();
        if left > 0 {
            warn!(
                drivers = left,
                "erased, and too many to clear their topics: look for retained messages at the broker"
            );
        }
    }

    async fn rules(&mut self) -> Result<Rules> {
        let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let (mut areas, mut bad) = (Vec::new(), BTreeSet::new());
        for (name, from, until, polygons) in FenceStore(&self.clickhouse).fences().await? {
            let why = if name.len() > FENCE_NAME_BYTES_MAX {
                format!(
                    "its name has {} bytes, and a topic has room for {FENCE_NAME_BYTES_MAX}",
                    name.len()
                )
            } else {
                match serde_json::from_str(&polygons) {
                    Ok(polygons) => {
                        areas.push(Area::new(name, from, until, polygons));
                        continue;
                    }
                    Err(error) => error.to_string(),
                }
            };
            if !self.bad_fences.contains(&name) {
                let begin: String = name.chars().take(100).collect();
                warn!(fence = begin, why, "a fence makes no events");
            }
            bad.insert(name);
        }
        self.bad_fences = bad;
        let events = &self.config.events;
        Ok(Rules { areas, silent_for: events.silent_for.map(ms), faster_than: events.faster_than })
    }
}
