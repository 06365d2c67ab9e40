//! `milepost events`: reads the fixes that ClickHouse stored since the last poll, writes their
//! events into the table `events`, and delivers them over MQTT and to a webhook.
//!
//! Guarantee: an event is written before it is delivered. Delivery is retried until the channel
//! accepts the event. Exceptions: the channel refuses the event for good, the channel's queue is
//! full, or the webhook fails for a quarter of an hour.
//!
//! The guarantee holds even after kill -9: a new process replays the last quarter of an hour, and
//! the same fixes give the same events with the same ids. So a channel may receive an event twice,
//! but the table has it once. All state is in ClickHouse.
//!
//! This is a process of its own. It is not part of the consumer, because it must never delay an
//! insert. It is not part of the map server, whose polls read only each driver's newest fix.

mod channels;
mod deliver;
mod lanes;
mod leftovers;
mod mqtt;
mod publisher;
mod status;
mod webhook;

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

use self::channels::{ChannelQueue, Channels, TOPICS_PER_DRIVER, TOPICS_PER_FENCE};
pub(crate) use self::deliver::check_topic;
use self::deliver::{Answer, Channel, QUEUE_MAX, QueueEnds};
use self::leftovers::Leftovers;
use self::status::Status;
use crate::fences::store::{FenceStore, StoredFence};
use crate::watch::reader::{Reader, STEP_MS};
use crate::watch::store::{DeliveredEvent, EventStore, FIXES_MAX};
use crate::watch::{Area, Event, Limits, Rules, Watch};
use milepost_clickhouse::{ClickHouse, Retry, Writer};
use milepost_command::{Outcome, Signals, tables};
use milepost_config::Config;
use milepost_core::erased::Erased;
use milepost_core::error_chain;
use milepost_core::throttle::Throttle;
use milepost_observe::http;

/// Interval between two polls for new fixes.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// A new process replays the fixes that were inserted within this many milliseconds.
const REPLAY_MS: i64 = 900_000;
const DAY_MS: i64 = 86_400_000;
/// Maximum number of events whose ids are remembered.
const KNOWN_MAX: usize = 500_000;
/// Maximum length, in bytes, of the name of a fence that causes events. Escaped as a topic level, a
/// name is up to three times as long, and a topic has at most 65,535 bytes.
const FENCE_NAME_BYTES_MAX: usize = 4_096;
/// Interval between reads of the fences and of the erased drivers.
const REREAD_EVERY: Duration = Duration::from_secs(10);
/// Interval at which the rows of waiting events are written again; see [`Channels::renew_waiting`].
const RENEW_EVERY: Duration = Duration::from_secs(12 * 3_600);
/// Lag of a replica above which it is reported.
const LAG_MAX: Duration = Duration::from_secs(60);
/// Maximum number of topics of erased drivers that are cleared at once. For a new process, every
/// erased driver is new.
const CLEARED_MAX: usize = 100_000;
/// Interval between log lines about clock steps, which are frequent if replicas with different
/// clocks answer in turn. Also the interval between log lines about inserts with too many fixes.
const CLOCK_LOG_EVERY: Duration = Duration::from_secs(60);
const WRITE_FAILED: &str = "writing events failed";
/// The name of the polling task in `/readyz`.
const TASK: &str = "clickhouse";

/// State of the polling task; see the module.
struct Poller {
    clickhouse: ClickHouse,
    /// Writes events. Does not retry: the next poll tries again, and `/readyz` shows the error.
    writer: Writer,
    config: Config,
    status: Arc<Status>,
    channels: Channels,
    watch: Watch,
    reader: Reader,
    /// ClickHouse did not answer the last poll, or another replica answers now.
    had_outage: bool,
    /// Events found and not yet written.
    unwritten: Vec<DeliveredEvent>,
    /// Ids of recent events that were found already.
    known: HashSet<String>,
    /// Ids of `known` with their `known_at`, oldest first.
    known_order: VecDeque<(i64, String)>,
    /// The erased drivers. Their topics are cleared, and no channel gets their events.
    erased: watch::Sender<Arc<Erased>>,
    /// Changes when the broker may have lost its retained messages.
    retained_lost: watch::Receiver<u64>,
    /// Time of the last read of the fences and of the erased drivers; `None` before the first.
    read_at: Option<Instant>,
    /// Time at which the rows of waiting events were last written again; `None` before the first.
    renewed_at: Option<Instant>,
    /// Names of the invalid fences, which cause no events and are logged already.
    invalid_fences: BTreeSet<String>,
    began: Instant,
    /// Limits the log lines about clock steps.
    clock_log: Throttle,
    /// Limits the log lines about inserts with too many fixes.
    crowded_log: Throttle,
    /// Limits the log line about drivers that this process has no room to watch.
    drivers_log: Throttle,
}

/// Runs until SIGTERM.
///
/// # Errors
/// The start failed, or a task ended unexpectedly.
pub(crate) async fn run(config: Config) -> Result<Outcome> {
    let status = Arc::new(Status::new());
    status.health.set(TASK, vec!["events: starting".to_owned()]);
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
    let queues = start_channels(&config, &status, &sender, (&erased, &retained_lost), &mut tasks);
    let clickhouse = ClickHouse::new(&config.clickhouse)?;
    let waited = Cell::new(false);
    let report_waiting = |why: &str| {
        waited.set(true);
        status.health.set(TASK, vec![format!("clickhouse: {why}")]);
    };
    tokio::select! {
        ready = tables::until_ready(&clickhouse, report_waiting) => ready?,
        () = signals.next() => return Ok(Outcome::Clean),
    }
    // Beat independently of the polls: a poll that waits for a slow ClickHouse must not make
    // `/livez` fail.
    let beats = async {
        loop {
            status.health.beat(TASK, std::time::Instant::now());
            sleep(POLL_EVERY).await;
        }
    };
    let mut poller = Poller {
        clickhouse,
        writer: Writer::new(config.clickhouse.insert_timeout, Retry::Never),
        config,
        status: Arc::clone(&status),
        channels: Channels::new(queues, Arc::clone(&status)),
        watch: Watch::default(),
        reader: Reader::default(),
        had_outage: waited.get(),
        unwritten: Vec::new(),
        known: HashSet::new(),
        known_order: VecDeque::new(),
        erased,
        retained_lost: lost,
        read_at: None,
        renewed_at: None,
        invalid_fences: BTreeSet::new(),
        began: Instant::now(),
        clock_log: Throttle::every(CLOCK_LOG_EVERY),
        crowded_log: Throttle::every(CLOCK_LOG_EVERY),
        drivers_log: Throttle::once(),
    };
    tokio::select! {
        () = poller.poll_forever(&mut answers) => {}
        () = beats => {}
        () = signals.next() => info!(
            "stopping: the next process delivers the events that wait, but posts none older than a \
             quarter of an hour"
        ),
        Some(ended) = tasks.join_next() => bail!("a task ended unexpectedly: {:?}", ended.err()),
    }
    Ok(Outcome::Clean)
}

/// Starts the tasks of the configured channels.
fn start_channels(
    config: &Config,
    status: &Arc<Status>,
    answers: &mpsc::Sender<Answer>,
    (erased, retained_lost): (&watch::Sender<Arc<Erased>>, &watch::Sender<u64>),
    tasks: &mut JoinSet<()>,
) -> Vec<ChannelQueue> {
    let mut queues = Vec::new();
    let mut open_queue = |channel, prefix: &str| {
        let (orders, queue) = mpsc::channel(QUEUE_MAX);
        queues.push(ChannelQueue::new(channel, prefix, orders));
        let ends = QueueEnds {
            orders: queue,
            answers: answers.clone(),
            erased: erased.subscribe(),
            retained_lost: retained_lost.clone(),
        };
        (ends, Arc::clone(status))
    };
    if let Some(prefix) = config.events.topic.clone() {
        let (ends, status) = open_queue(Channel::Mqtt, &prefix);
        tasks.spawn(mqtt::mqtt(config.mqtt.clone(), prefix, ends, status));
    }
    if let Some(webhook) = config.webhook.clone() {
        let (ends, status) = open_queue(Channel::Webhook, "");
        tasks.spawn(webhook::webhook(webhook, ends, status));
    }
    queues
}

impl Poller {
    async fn poll_forever(&mut self, answers: &mut mpsc::Receiver<Answer>) {
        let mut log = Throttle::once();
        let mut is_restored = false;
        let mut polls = interval(POLL_EVERY);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            polls.tick().await;
            let polled = async {
                if !is_restored {
                    self.restore().await?;
                    is_restored = true;
                }
                self.poll(answers).await
            };
            match polled.await {
                Ok(lag) if lag > LAG_MAX => {
                    let why = format!("this replica is {} s behind the others", lag.as_secs());
                    if log.allow(std::time::Instant::now()) {
                        warn!(why, "events are late: see system.replicas on that server");
                    }
                    self.status
                        .health
                        .set(TASK, vec![format!("clickhouse: {why}: events are late")]);
                }
                Ok(_) => {
                    log.reset();
                    self.status.health.set(TASK, Vec::new());
                }
                Err(error) => {
                    self.had_outage = true;
                    let why = error_chain(error.as_ref());
                    if log.allow(std::time::Instant::now()) {
                        warn!(why, "waiting for ClickHouse: no events are found meanwhile");
                    }
                    self.status.health.set(TASK, vec![format!("clickhouse: {why}")]);
                }
            }
        }
    }

    /// Restores the state of a quarter of an hour ago: the drivers' last fixes and known events.
    /// The polls then replay the fixes inserted since.
    async fn restore(&mut self) -> Result<()> {
        let now = self.clickhouse.clock().await?;
        let store = EventStore(&self.clickhouse);
        let known = store.events_since(now - REPLAY_MS).await?;
        let states = store.states().await?;
        // An event ahead of the clock shows that the clock was set back, so insert times no longer
        // show the order of the inserts. Search the states as well: `recent_events` keeps an event
        // for two days only.
        let newest = known.iter().chain(&states).map(|delivered| delivered.event.known_at).max();
        let newest = newest.filter(|known_at| *known_at > now + STEP_MS);
        // After such a step, replay nothing: the fixes from before the step have later insert times
        // than the fixes after it. Restore the fixes from before the step, although their insert
        // times are ahead of the clock.
        let (since, fixes_until) = match newest {
            Some(known_at) => (now, known_at.saturating_add(DAY_MS)),
            None => (now - REPLAY_MS, now - REPLAY_MS),
        };
        if newest.is_some() {
            warn!(
                "ClickHouse's clock was set back: fixes stored before this start are not replayed"
            );
        }
        let mut watch = Watch::new(self.rules().await?);
        let silence_limit = u64::try_from(watch.rules.longest_silence_limit()).unwrap_or_default();
        let silence_limit = Duration::from_millis(silence_limit);
        let fixes =
            EventStore(&self.clickhouse).last_fixes_before(fixes_until, silence_limit).await?;
        fixes.into_iter().for_each(|fix| watch.restore_fix(fix));
        let (mut before, ahead): (Vec<_>, Vec<_>) =
            states.into_iter().partition(|delivered| delivered.event.known_at <= since);
        before.iter().for_each(|delivered| watch.restore_event(&delivered.event));
        if let Some(known_at) = newest {
            ahead.iter().for_each(|delivered| watch.restore_event(&delivered.event));
            watch.handle_clock_step(now, known_at);
        } else {
            let events: Vec<_> = known.iter().map(|delivered| delivered.event.clone()).collect();
            watch.restore_states_before(events.iter());
            watch.replay_known(events);
        }
        info!(
            drivers = watch.drivers(),
            fences = watch.rules.areas.len(),
            known = known.len(),
            "watching"
        );
        let channels = (self.config.events.topic.is_some(), self.config.webhook.is_some());
        let mut leftovers =
            Leftovers::read(&EventStore(&self.clickhouse), now - REPLAY_MS, channels).await?;
        // The channels must know the erased drivers before they get the first event: after a crash,
        // the table may still have events of an erased driver.
        let erased = Arc::clone(self.clickhouse.erased().await?.erased());
        (self.watch, self.reader) = (watch, Reader::new(since));
        known.iter().for_each(|delivered| self.remember(&delivered.event));
        // Later events are in `known` already.
        before.retain(|delivered| delivered.event.known_at <= now - REPLAY_MS);
        before.append(&mut leftovers.unpublished);
        before.sort_by_key(|delivered| delivered.event.known_at);
        // Nothing below may fail: a repeated start would deliver the events again.
        self.erased.send_replace(erased);
        let outdated = self.channels.resume(before, known);
        leftovers.report(&outdated, &self.status);
        Ok(())
    }

    /// Polls for new fixes and writes and delivers their events. Returns how far the replica that
    /// answered lags behind the others.
    async fn poll(&mut self, answers: &mut mpsc::Receiver<Answer>) -> Result<Duration> {
        let began = Instant::now();
        self.reread().await?;
        if !self.unwritten.is_empty() {
            // If this fails, the poll reads nothing more, so `unwritten` stays bounded.
            self.write(answers).await?;
        }
        if std::mem::take(&mut self.had_outage) {
            self.reader.lost_clickhouse();
        }
        self.reader.begin(i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX));
        let mut found = Vec::new();
        loop {
            let inserted =
                EventStore(&self.clickhouse).fixes_inserted_in(self.reader.wanted()).await?;
            let is_more = self.reader.handle_answer(inserted, &mut self.watch, &mut found);
            // After an outage, one poll reads hours of fixes in many answers. Write the events
            // after each answer, so that memory holds the events of one answer only.
            self.record(&mut found);
            self.write(answers).await?;
            if !is_more {
                break;
            }
        }
        if self.retained_lost.has_changed().unwrap_or(false) {
            self.republish().await?;
        }
        self.reader.end(&mut self.watch, &mut found);
        self.record(&mut found);
        self.write(answers).await?;
        self.report();
        let lag = self.reader.lag();
        self.status.behind.set((began.elapsed() + lag).as_secs_f64());
        Ok(lag)
    }

    /// Publishes every state again, and clears the topics of all erased drivers: at the start, and
    /// when the broker may lack some states. For example, it may have restarted from an older copy
    /// of its retained messages.
    async fn republish(&mut self) -> Result<()> {
        let states = EventStore(&self.clickhouse).states().await?;
        self.retained_lost.mark_unchanged();
        info!(states = states.len(), "publishing every state: the broker may not have all of them");
        self.channels.republish(states);
        let erased = Arc::clone(&self.erased.borrow());
        self.clear_newly_erased(&erased, &Erased::default());
        Ok(())
    }

    /// Updates the count of missing numbers, and logs what may make events late, missing or wrong.
    fn report(&mut self) {
        self.status.missing.set(self.watch.missing());
        let (step_ms, now) = (self.reader.step_ms(), std::time::Instant::now());
        if step_ms != 0 && self.clock_log.allow(now) {
            warn!(
                step_ms,
                "ClickHouse's clock was set, or its replicas' clocks differ: no silence is \
                 reported until events.silent_for, or a fence's silent_for_s, has passed"
            );
        }
        if self.reader.is_crowded() && self.crowded_log.allow(now) {
            warn!(
                "{FIXES_MAX} fixes or more have one insert time: further ones cause no events, and \
                 their drivers may be reported silent. If batch.rows_max is above that, lower it"
            );
        }
        if self.watch.untracked_fixes > 0 && self.drivers_log.allow(now) {
            warn!(
                drivers = self.watch.drivers(),
                "as many drivers as this process can watch: fixes of further drivers cause no \
                 events and do not count in milepost_positions_missing. The usual cause is ids \
                 that change with each trip, or that come from the wrong field: mend them, and \
                 restart this process, which then watches the drivers of the last day"
            );
        }
    }

    /// Moves found events to `unwritten`, except known ones.
    fn record(&mut self, found: &mut Vec<Event>) {
        for event in found.drain(..) {
            if !self.known.contains(&event.id()) {
                self.remember(&event);
                self.status.events.with_label_values(&[event.kind.name()]).inc();
                self.unwritten.push(DeliveredEvent { event, mqtt_at: None, webhook_at: None });
            }
        }
    }

    /// Writes new events, then passes them to the channels. Also records which channel accepted
    /// which event.
    async fn write(&mut self, answers: &mut mpsc::Receiver<Answer>) -> Result<()> {
        self.channels.drain_answers(answers, milepost_observe::now_ms());
        if !self.unwritten.is_empty() {
            let insert = EventStore(&self.clickhouse).events_insert(&self.unwritten);
            self.writer
                .write(&self.clickhouse, &insert, milepost_clickhouse::fresh_identity(0))
                .await
                .context(WRITE_FAILED)?;
            std::mem::take(&mut self.unwritten)
                .into_iter()
                .for_each(|delivered| self.channels.enqueue(delivered));
        }
        if self.renewed_at.is_none_or(|at| at.elapsed() >= RENEW_EVERY) {
            let renew_ms = i64::try_from(RENEW_EVERY.as_millis()).unwrap_or(i64::MAX);
            let kept_ms = i64::from(self.config.clickhouse.retention.rollups_days) * DAY_MS;
            let now = milepost_observe::now_ms();
            self.channels.renew_waiting(now.saturating_sub(renew_ms), now.saturating_sub(kept_ms));
            self.renewed_at = Some(Instant::now());
        }
        if !self.channels.unrecorded.is_empty() {
            let insert = EventStore(&self.clickhouse).events_insert(&self.channels.unrecorded);
            self.writer
                .write(&self.clickhouse, &insert, milepost_clickhouse::fresh_identity(0))
                .await
                .context(WRITE_FAILED)?;
            self.channels.unrecorded.clear();
        }
        Ok(())
    }

    /// Remembers the event's id for as long as a poll may read its fix again.
    fn remember(&mut self, event: &Event) {
        let oldest = event.known_at - 2 * REPLAY_MS;
        // After the clock was set back, no remembered event counts as too old until the clock has
        // caught up. Until then, `KNOWN_MAX` bounds their number.
        while let Some((known_at, _)) = self.known_order.front()
            && (*known_at < oldest || self.known_order.len() >= KNOWN_MAX)
        {
            if let Some((_, id)) = self.known_order.pop_front() {
                self.known.remove(&id);
            }
        }
        if self.known.insert(event.id()) {
            self.known_order.push_back((event.known_at, event.id()));
        }
    }

    /// Reads the fences and the erased drivers. Forgets the erased drivers and clears their topics.
    async fn reread(&mut self) -> Result<()> {
        if self.read_at.is_some_and(|at| at.elapsed() < REREAD_EVERY) {
            return Ok(());
        }
        // After a change of endpoint, another replica answers. It may receive fixes later than the
        // previous one did, so handle the change like an outage.
        self.had_outage |= tables::return_to_own_endpoint(&self.clickhouse).await;
        self.watch.rules = self.rules().await?;
        let erased = Arc::clone(self.clickhouse.erased().await?.erased());
        let is_erased = |id: &str| erased.contains_bytes(id.as_bytes());
        self.unwritten.retain(|delivered| !is_erased(&delivered.event.driver_id));
        self.channels.forget(is_erased);
        for (driver_id, fences) in self.watch.forget(is_erased) {
            self.channels.clear(&driver_id, &fences);
        }
        let before = self.erased.send_replace(Arc::clone(&erased));
        // Skip the first read: `republish` clears the topics of all erased drivers once the broker
        // is connected.
        if self.read_at.replace(Instant::now()).is_some() {
            self.clear_newly_erased(&erased, &before);
        }
        Ok(())
    }

    /// Clears the topics of the erased drivers that are not in `before`. Clears them for every
    /// fence: if a driver was erased while no process ran, this process does not know which topics
    /// the driver has.
    fn clear_newly_erased(&mut self, erased: &Erased, before: &Erased) {
        let areas = self.watch.rules.areas.iter();
        let fences: BTreeSet<_> = areas.map(|area| area.name.clone()).collect();
        let fences = Vec::from_iter(fences);
        let drivers_max = CLEARED_MAX / (TOPICS_PER_DRIVER + TOPICS_PER_FENCE * fences.len());
        let mut new = erased.not_in(before);
        new.by_ref()
            .take(drivers_max)
            .for_each(|driver_id| self.channels.clear(driver_id, &fences));
        let uncleared = new.count();
        if uncleared > 0 {
            warn!(
                drivers = uncleared,
                "too many erased drivers to clear all their topics: remove their retained messages \
                 from the broker"
            );
        }
    }

    /// Reads the fences, and adds the limits of the configuration. Logs each invalid fence once.
    async fn rules(&mut self) -> Result<Rules> {
        let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let (mut areas, mut invalid) = (Vec::new(), BTreeSet::new());
        for fence in FenceStore(&self.clickhouse).fences().await? {
            let StoredFence { name, from, until, shape, rules } = fence;
            let limits = Limits::new(rules);
            let why = if name.len() > FENCE_NAME_BYTES_MAX {
                format!(
                    "its name has {} bytes; a topic holds at most {FENCE_NAME_BYTES_MAX}",
                    name.len()
                )
            } else {
                match (serde_json::from_str(&shape), limits) {
                    (Ok(polygons), Ok(limits)) => {
                        let area = Area::new(name, from, until, polygons);
                        areas.push(area.with_limits(limits));
                        continue;
                    }
                    (Err(error), _) => error.to_string(),
                    (_, Err(why)) => format!("hours: {why}"),
                }
            };
            if !self.invalid_fences.contains(&name) {
                let shortened: String = name.chars().take(100).collect();
                warn!(fence = shortened, why, "a fence causes no events");
            }
            invalid.insert(name);
        }
        self.invalid_fences = invalid;
        let events = &self.config.events;
        Ok(Rules {
            areas,
            silent_for: events.silent_for.map(ms),
            silent_gaps: events.silent_gaps,
            faster_than: events.faster_than,
            fence_margin: events.fence_margin,
        })
    }
}
