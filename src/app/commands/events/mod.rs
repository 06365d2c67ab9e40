//! `milepost events`: reads what ClickHouse took since the last look, writes what it means into the table `events`, and tells it over
//! MQTT and to a webhook.
//!
//! Guarantee: an event is written before it is told, and told until the channel takes it, also after kill -9: a new process plays the
//! last quarter of an hour again, and the same fixes give the same events with the same ids. So a channel may get an event twice, the
//! table has it once. No state but ClickHouse's.
//!
//! A process of its own, not the consumer's, whose path it must never be in; nor the map's, which sees each driver's newest fix alone.

mod deliver;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tracing::{info, warn};

use self::deliver::{Channel, Order, QUEUE_MAX, Taken};
use crate::app::{Outcome, Signals, schema};
use crate::clickhouse::{ClickHouse, Error, FIXES_MAX, Inserted, Told};
use crate::config::Config;
use crate::delivery::sink::error_chain;
use crate::events::{Area, Event, Fix, Kind, Rules, Watch};
use crate::observe::events::Status;
use crate::observe::http;
use crate::throttle::Throttle;

/// Between two looks at new fixes.
const EVERY: Duration = Duration::from_secs(1);
/// A new process plays again what was inserted in this time.
const AGAIN_MS: i64 = 900_000;
/// An insert gets its time before its rows can be read. Most looks go back by the shorter time, every tenth by the longer one.
const BACK_MS: [i64; 2] = [2_000, 30_000];
const LOOKS_BACK: u64 = 10;
/// How often fences, and who is erased, are read.
const READ_AGAIN: Duration = Duration::from_secs(10);
/// A replica that is behind the others by more is reported.
const LAG_MAX: Duration = Duration::from_secs(60);
/// Our name in `/readyz`.
const PART: &str = "clickhouse";

/// A channel's queue.
struct Line {
    channel: Channel,
    orders: mpsc::Sender<Order>,
}

/// See the module.
struct Events {
    clickhouse: ClickHouse,
    config: Config,
    status: Arc<Status>,
    lines: Vec<Line>,
    watch: Watch,
    /// Inserted so far is taken.
    cursor: i64,
    looks: u64,
    /// Found, and not written yet.
    unwritten: Vec<Told>,
    /// Written, and not taken by every channel.
    untold: HashMap<String, Told>,
    /// Taken, which the table does not say yet.
    retold: Vec<Told>,
    /// Ids that the table has, of the time that is looked at; oldest first.
    known: HashSet<String>,
    known_order: VecDeque<(i64, String)>,
    read_at: Option<Instant>,
}

/// Runs until SIGTERM.
///
/// # Errors
/// What ended the process outside a shutdown.
pub async fn run(config: Config) -> Result<Outcome> {
    let status = Arc::new(Status::new());
    status.health.set(PART, vec!["events: starting".to_owned()]);
    let mut signals = Signals::new()?;
    let listener = TcpListener::bind(config.http.listen)
        .await
        .with_context(|| format!("http.listen: cannot listen on {}", config.http.listen))?;
    info!(listen = %listener.local_addr()?, "serving /metrics, /livez and /readyz");
    let (served, mut tasks) = (Arc::clone(&status), JoinSet::new());
    tasks.spawn(http::serve(listener, move |path| served.respond(path)));

    let (taken, mut answers) = mpsc::channel(QUEUE_MAX);
    let lines = channels(&config, &status, &taken, &mut tasks);
    let clickhouse = ClickHouse::new(&config.clickhouse)?;
    let waits = |why: &str| status.health.set(PART, vec![format!("clickhouse: {why}")]);
    tokio::select! {
        ready = schema::until_ready(&clickhouse, waits) => ready?,
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
        config,
        status: Arc::clone(&status),
        lines,
        watch: Watch::default(),
        cursor: 0,
        looks: 0,
        unwritten: Vec::new(),
        untold: HashMap::new(),
        retold: Vec::new(),
        known: HashSet::new(),
        known_order: VecDeque::new(),
        read_at: None,
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
    taken: &mpsc::Sender<Taken>,
    tasks: &mut JoinSet<()>,
) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut line = |channel| {
        let (orders, queue) = mpsc::channel(QUEUE_MAX);
        lines.push(Line { channel, orders });
        (queue, taken.clone(), Arc::clone(status))
    };
    if let Some(prefix) = config.events.topic.clone() {
        let (queue, taken, status) = line(Channel::Mqtt);
        tasks.spawn(deliver::mqtt(config.mqtt.clone(), prefix, queue, taken, status));
    }
    if let Some(webhook) = config.webhook.clone() {
        let (queue, taken, status) = line(Channel::Webhook);
        tasks.spawn(deliver::webhook(webhook, queue, taken, status));
    }
    lines
}

impl Events {
    async fn watch_for_ever(&mut self, answers: &mut mpsc::Receiver<Taken>) {
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
                    self.status.health.set(PART, vec![format!("clickhouse: {why}: events are late")]);
                }
                Ok(_) => {
                    log.reset();
                    self.status.health.set(PART, Vec::new());
                }
                Err(error) => {
                    let why = error_chain(&error);
                    if log.allow(std::time::Instant::now()) {
                        warn!(why, "waiting for ClickHouse: no event is found meanwhile");
                    }
                    self.status.health.set(PART, vec![format!("clickhouse: {why}")]);
                }
            }
        }
    }

    /// Where everybody was, and what was known, a quarter of an hour ago; what came since is played again by the looks.
    async fn begin(&mut self) -> Result<(), Error> {
        let since = self.clickhouse.clock().await? - AGAIN_MS;
        let mut watch = Watch::new(self.rules().await?);
        self.clickhouse.last_fixes_before(since).await?.into_iter().for_each(|fix| watch.begin_with(fix));
        self.clickhouse
            .events_before(since)
            .await?
            .iter()
            .for_each(|told| watch.begin_with_event(&told.event));
        let known = self.clickhouse.events_since(since).await?;
        info!(drivers = watch.drivers(), fences = watch.rules.areas.len(), known = known.len(), "watching");
        (self.watch, self.cursor) = (watch, since);
        for told in known {
            self.note(&told.event);
            if !self.is_told(&told) {
                self.tell(told);
            }
        }
        Ok(())
    }

    /// Takes what is new; how far its replica is behind the others.
    async fn look(&mut self, answers: &mut mpsc::Receiver<Taken>) -> Result<Duration, Error> {
        let began = Instant::now();
        self.read_again().await?;
        self.looks += 1;
        let back = BACK_MS[usize::from(self.looks.is_multiple_of(LOOKS_BACK))];
        let mut from = self.cursor - back;
        let mut found = Vec::new();
        // Until then its replica has everything, or is too late: what it gets late must be taken before what is newer.
        let (mut complete_until, mut lag) = (i64::MAX, 0);
        loop {
            let Inserted { fixes, now, lag_ms } = self.clickhouse.fixes_since(from).await?;
            lag = lag.max(lag_ms);
            complete_until = complete_until.min(now - lag.min(AGAIN_MS));
            let (count, last) = (fixes.len(), fixes.last().map_or(from, |fix| fix.inserted_at));
            let is_complete = |fix: &Fix| lag == 0 || fix.inserted_at <= complete_until;
            for fix in fixes.into_iter().take_while(is_complete) {
                self.cursor = self.cursor.max(fix.inserted_at);
                self.watch.take(fix, &mut found);
            }
            self.keep(&mut found);
            // Rows of one moment may be on both sides of the limit.
            if count < FIXES_MAX || last - 1 <= from || last > complete_until {
                break;
            }
            from = last - 1;
        }
        self.cursor = self.cursor.max(complete_until - BACK_MS[0]);
        // Whoever was heard of in the last seconds is not silent, though the row cannot be read yet.
        let all_read_until = complete_until.min(complete_until + AGAIN_MS - lag);
        self.watch.tick(all_read_until - BACK_MS[0], &mut found);
        self.keep(&mut found);
        self.write(answers).await?;
        let lag = Duration::from_millis(u64::try_from(lag).unwrap_or(0));
        self.status.behind.set((began.elapsed() + lag).as_secs_f64());
        Ok(lag)
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
    async fn write(&mut self, answers: &mut mpsc::Receiver<Taken>) -> Result<(), Error> {
        let now = crate::app::now_ms();
        while let Ok((channel, id)) = answers.try_recv() {
            self.status.delivered.with_label_values(&[channel.name()]).inc();
            let Some(told) = self.untold.get_mut(&id) else { continue };
            match channel {
                Channel::Mqtt => told.mqtt_at = Some(now),
                Channel::Webhook => told.webhook_at = Some(now),
            }
            self.retold.push(told.clone());
            if self.untold.get(&id).is_some_and(|told| self.is_told(told)) {
                self.untold.remove(&id);
            }
        }
        for line in &self.lines {
            let waiting =
                i64::try_from(line.orders.max_capacity() - line.orders.capacity()).unwrap_or(i64::MAX);
            self.status.waiting.with_label_values(&[line.channel.name()]).set(waiting);
        }
        if !self.unwritten.is_empty() {
            self.clickhouse.write_events(&self.unwritten).await?;
            std::mem::take(&mut self.unwritten).into_iter().for_each(|told| self.tell(told));
        }
        if !self.retold.is_empty() {
            self.clickhouse.write_events(&self.retold).await?;
            self.retold.clear();
        }
        Ok(())
    }

    /// Every channel has taken it.
    fn is_told(&self, told: &Told) -> bool {
        self.lines.iter().all(|line| match line.channel {
            Channel::Mqtt => told.mqtt_at.is_some(),
            Channel::Webhook => told.webhook_at.is_some(),
        })
    }

    fn tell(&mut self, told: Told) {
        for line in &self.lines {
            let is_taken = match line.channel {
                Channel::Mqtt => told.mqtt_at.is_some(),
                Channel::Webhook => told.webhook_at.is_some(),
            };
            if !is_taken {
                self.order(line, Order::Tell(told.event.clone()));
            }
        }
        if !self.is_told(&told) && self.untold.len() < 2 * QUEUE_MAX {
            self.untold.insert(told.event.id(), told);
        }
    }

    fn order(&self, line: &Line, order: Order) {
        if line.orders.try_send(order).is_err() {
            let name = line.channel.name();
            let dropped = self.status.dropped.with_label_values(&[name]);
            if dropped.get() == 0 {
                warn!(
                    to = name,
                    "{QUEUE_MAX} events wait for this channel: what more is found is in the table alone"
                );
            }
            dropped.inc();
        }
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
    async fn read_again(&mut self) -> Result<(), Error> {
        if self.read_at.is_some_and(|at| at.elapsed() < READ_AGAIN) {
            return Ok(());
        }
        self.watch.rules = self.rules().await?;
        let erased = self.clickhouse.erased().await?;
        let is_erased = |id: &str| erased.has_bytes(id.as_bytes());
        self.unwritten.retain(|told| !is_erased(&told.event.driver_id));
        self.retold.retain(|told| !is_erased(&told.event.driver_id));
        self.untold.retain(|_, told| !is_erased(&told.event.driver_id));
        for (driver_id, fences) in self.watch.forget(is_erased) {
            let Some(prefix) = self.config.events.topic.clone() else { continue };
            let Some(line) = self.lines.iter().find(|line| line.channel == Channel::Mqtt) else { continue };
            let topic = |kind, fence: &str| Order::Clear(deliver::topic(&prefix, &driver_id, kind, fence));
            let states = [topic(Kind::Silent, ""), topic(Kind::Fast, "")];
            let states = states.into_iter().chain(fences.iter().map(|fence| topic(Kind::Left, fence)));
            states.for_each(|order| self.order(line, order));
        }
        self.read_at = Some(Instant::now());
        Ok(())
    }

    async fn rules(&self) -> Result<Rules, Error> {
        let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let mut areas = Vec::new();
        for (name, from, until, polygons) in self.clickhouse.fences().await? {
            match serde_json::from_str(&polygons) {
                Ok(polygons) => areas.push(Area::new(name, from, until, polygons)),
                Err(error) => warn!(fence = name, %error, "a fence cannot be read: it makes no events"),
            }
        }
        let events = &self.config.events;
        Ok(Rules { areas, silent_for: events.silent_for.map(ms), faster_than: events.faster_than })
    }
}
