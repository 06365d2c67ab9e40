//! Parts that both channels share: orders and answers, an event's topic and JSON, and the report of
//! an outage. Each channel has a queue and a task of its own, so neither waits for the other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tracing::{info, warn};

use super::lanes::{RETRY_PAUSE_MAX, RETRY_PAUSE_MIN, Rule};
use super::status::Status;
use crate::watch::{Event, Kind};
use milepost_config::Config;
use milepost_core::erased::Erased;
use milepost_core::throttle::Throttle;
use milepost_decode::{Source, overlap};

/// Capacity of a channel's queue, in events. Further events are dropped and counted, except the
/// newest state of each MQTT topic.
pub(super) const QUEUE_MAX: usize = 10_000;
/// Why events are dropped while too many wait.
pub(super) const TOO_MANY_WAIT: &str =
    "10,000 events wait: further ones take the place of those that wait behind a failed one";
/// Interval between log lines about dropped events.
pub(super) const DROPPED_LOG_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    Mqtt,
    Webhook,
}

impl Channel {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Mqtt => "mqtt",
            Self::Webhook => "webhook",
        }
    }
}

/// An instruction to a channel's task.
#[derive(Debug)]
pub(super) enum Order {
    Publish(Event),
    /// Publishes again a state that the broker may have lost.
    Republish(Event),
    /// Clears the driver's retained message at the topic for events of this kind and fence.
    Clear {
        driver_id: String,
        kind: Kind,
        fence: String,
    },
}

impl Order {
    pub(super) fn driver_id(&self) -> &str {
        match self {
            Self::Publish(event) | Self::Republish(event) => &event.driver_id,
            Self::Clear { driver_id, .. } => driver_id,
        }
    }

    /// Returns the rule with which the order waits in the lanes. If the connection ends at an order
    /// that failed before and is tried again, the rule counts as failing.
    pub(super) fn rule(&self) -> Rule {
        match self {
            Self::Publish(event) | Self::Republish(event) => (event.kind, event.fence.clone()),
            Self::Clear { .. } => (Kind::Left, String::new()), // no event has this rule
        }
    }

    /// Returns whether the order sets a retained message.
    pub(super) fn sets_retained(&self) -> bool {
        match self {
            Self::Publish(event) | Self::Republish(event) => event.kind.changes_state(),
            Self::Clear { .. } => true,
        }
    }

    /// Returns whether this order makes the waiting order `older` needless, because both set the
    /// retained message of one topic. An event never replaces an order that clears the topic: if
    /// the event were dropped, the topic would not be cleared.
    pub(super) fn supersedes(&self, older: &Self) -> bool {
        let state = |order: &Self| match order {
            Self::Publish(event) | Self::Republish(event) => event.kind.state(&event.fence),
            Self::Clear { kind, fence, .. } => kind.state(fence),
        };
        let is_kept = matches!(older, Self::Clear { .. }) && !matches!(self, Self::Clear { .. });
        let is_same_driver = self.driver_id() == older.driver_id();
        !is_kept && self.sets_retained() && is_same_driver && state(self) == state(older)
    }

    /// Returns whether the order would only repeat the waiting order `older`.
    pub(super) fn repeats(&self, older: &Self) -> bool {
        match (self, older) {
            (Self::Republish(event), Self::Publish(older) | Self::Republish(older)) => {
                event.id() == older.id()
            }
            (Self::Publish(_) | Self::Republish(_) | Self::Clear { .. }, _) => false,
        }
    }
}

/// A channel's answer for one event.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) channel: Channel,
    pub(super) id: String,
    /// `false`: the channel drops the event. Only a later process may deliver it.
    pub(super) is_accepted: bool,
    /// The order was to publish a state again. Its event counts neither as delivered nor as
    /// dropped.
    pub(super) is_repeated: bool,
}

/// A channel task's ends of the queues between it and the main task.
#[derive(Debug)]
pub(super) struct QueueEnds {
    pub(super) orders: mpsc::Receiver<Order>,
    pub(super) answers: mpsc::Sender<Answer>,
    /// The erased drivers. Their events are dropped, however long they have waited.
    pub(super) erased: watch::Receiver<Arc<Erased>>,
    /// Counts how often the broker may have lost its retained messages, or the MQTT channel has
    /// dropped some. When the count changes, the main task publishes every state again.
    pub(super) retained_lost: watch::Sender<u64>,
}

impl QueueEnds {
    pub(super) fn is_erased(&self, event: &Event) -> bool {
        self.erased.borrow().contains_bytes(event.driver_id.as_bytes())
    }

    /// Answers an order to publish an event for the first time.
    pub(super) async fn answer(&self, channel: Channel, id: String, is_accepted: bool) {
        self.send(Answer { channel, id, is_accepted, is_repeated: false }).await;
    }

    /// Answers an order of the MQTT channel. An order that clears a topic has no answer.
    pub(super) async fn answer_order(&self, order: &Order, is_accepted: bool) {
        let (id, is_repeated) = match order {
            Order::Publish(event) => (event.id(), false),
            Order::Republish(event) => (event.id(), true),
            Order::Clear { .. } => return,
        };
        self.send(Answer { channel: Channel::Mqtt, id, is_accepted, is_repeated }).await;
    }

    async fn send(&self, answer: Answer) {
        let _ = self.answers.send(answer).await; // fails only once the main task has ended
    }

    /// Returns the ends of a channel with no erased drivers, the sender of its orders, and its
    /// answers.
    #[cfg(test)]
    pub(super) fn for_test() -> (Self, mpsc::Sender<Order>, mpsc::Receiver<Answer>) {
        let (sender, orders) = mpsc::channel(QUEUE_MAX);
        let (answers, receiver) = mpsc::channel(QUEUE_MAX);
        let erased = watch::channel(Arc::default()).1;
        (Self { orders, answers, erased, retained_lost: watch::channel(0).0 }, sender, receiver)
    }
}

/// Returns the topic of an event, below the configured one. Each topic holds one state of a
/// driver; `jump` and `off_hours` are not states.
pub(super) fn topic(prefix: &str, driver_id: &str, kind: Kind, fence: &str) -> String {
    let state = match kind {
        Kind::Entered | Kind::Overstayed | Kind::Left => format!("fence/{}", topic_level(fence)),
        Kind::OffHours => format!("off_hours/{}", topic_level(fence)),
        Kind::Silent | Kind::Heard => "contact".to_owned(),
        Kind::Fast | Kind::Slow if fence.is_empty() => "speed".to_owned(),
        Kind::Fast | Kind::Slow => format!("speed/{}", topic_level(fence)),
        Kind::Jump => "jump".to_owned(),
    };
    format!("{prefix}/{driver_id}/{state}")
}

/// Checks that no source takes the topic of an event. An event has the driver, `ts` and `seq` of
/// the fix that caused it, so it would be stored in the place of that fix, without its attributes.
///
/// # Errors
/// A source takes such a topic.
pub(crate) fn check_topic(config: &Config) -> Result<()> {
    let Some(prefix) = &config.events.topic else { return Ok(()) };
    // One filter for each form of `topic`.
    for state in ["fence/+", "contact", "speed", "speed/+", "off_hours/+", "jump"] {
        let events = format!("{prefix}/+/{state}");
        let mut sources = config.sources.iter().map(Source::topic);
        if let Some(source) = sources.find(|source| overlap(source, &events)) {
            bail!(
                "events.topic: the source \"{source}\" takes messages of {events}, so milepost \
                 would store events as fixes: choose another topic, make the source narrower, or \
                 turn MQTT off with \"\""
            );
        }
    }
    Ok(())
}

/// Escapes a fence's name so that it is one level of a topic. Also escapes control characters: a
/// broker may close the connection when it receives one, and would do so at every retry.
fn topic_level(name: &str) -> String {
    let is_plain = |c: char| !c.is_control() && !"%/+#".contains(c);
    let percent = |c: char| c.to_string().bytes().map(|byte| format!("%{byte:02X}")).collect();
    name.chars().map(|c| if is_plain(c) { c.to_string() } else { percent(c) }).collect()
}

/// Returns the event as the JSON object that subscribers and the webhook receive.
pub(super) fn payload(event: &Event) -> Vec<u8> {
    let Event { driver_id, kind, fence, ts, seq, lat, lng, speed, known_at: _ } = event;
    let mut payload = json!({
        "id": event.id(), "driver_id": driver_id, "event": kind.name(), "ts": ts, "seq": seq,
        "lat": lat, "lng": lng, "speed": speed,
    });
    if !fence.is_empty() {
        payload["fence"] = json!(fence);
    }
    payload.to_string().into_bytes()
}

/// Logs the first failure of an outage and its end, and delays the attempts to connect. An outage
/// ends when no event that failed waits any more. If it ended with the next accepted event,
/// `/readyz` and the log would alternate while the channel accepts some events and refuses others.
pub(super) struct Outage {
    channel: Channel,
    status: Arc<Status>,
    log: Throttle,
    dropped_log: Throttle,
    /// A failure was reported since the last outage ended.
    is_reported: bool,
    retry_after: Duration,
}

impl Outage {
    pub(super) fn new(channel: Channel, status: Arc<Status>) -> Self {
        Self {
            channel,
            status,
            log: Throttle::once(),
            dropped_log: Throttle::every(DROPPED_LOG_EVERY),
            is_reported: false,
            retry_after: RETRY_PAUSE_MIN,
        }
    }

    /// Reports a failure, then waits until the next attempt to connect.
    pub(super) async fn report_and_wait(&mut self, why: &str) {
        self.report(why);
        sleep(self.retry_after).await;
        self.retry_after = RETRY_PAUSE_MAX.min(self.retry_after * 2);
    }

    /// Reports a failure. Logs the first one of an outage.
    pub(super) fn report(&mut self, why: &str) {
        let name = self.channel.name();
        if self.log.allow(Instant::now()) {
            warn!(to = name, why, "the channel does not accept events: they wait until it does");
        }
        self.is_reported = true;
        self.status.health.set(name, vec![format!("{name}: {why}")]);
    }

    /// Logs that an event was dropped, at most once a minute, whatever the causes. The receiver of
    /// the answer counts the event.
    pub(super) fn report_dropped(&mut self, event: &Event, why: &str) {
        if self.dropped_log.allow(Instant::now()) {
            let (to, id) = (self.channel.name(), event.id());
            warn!(
                to,
                id,
                why,
                "the channel drops events: this process does not deliver them, but they are in the \
                 table"
            );
        }
    }

    /// Records that the channel is connected, or has accepted an event. `failed_event_waits`: an
    /// event that failed before still waits, so the outage continues.
    pub(super) fn succeed(&mut self, failed_event_waits: bool) {
        self.retry_after = RETRY_PAUSE_MIN;
        if failed_event_waits {
            return;
        }
        if self.is_reported {
            info!(to = self.channel.name(), "the channel accepts events again");
        }
        self.reset();
    }

    /// Ends an outage without a success if no event that failed waits any more.
    pub(super) fn lapse(&mut self, failed_event_waits: bool) {
        if self.is_reported && !failed_event_waits {
            self.reset();
        }
    }

    /// Ends the outage.
    fn reset(&mut self) {
        self.is_reported = false;
        self.log.reset();
        self.status.health.set(self.channel.name(), Vec::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fence_name_is_one_topic_level() {
        let names = ["Köln Süd", "a/b", "+", "#", "100 %", "nul\0", "line\n\u{85}"];
        let levels = ["Köln Süd", "a%2Fb", "%2B", "%23", "100 %25", "nul%00", "line%0A%C2%85"];
        assert_eq!(names.map(topic_level), levels);
        assert_eq!(
            topic("fleet/events", "anna", Kind::Left, "a/b"),
            "fleet/events/anna/fence/a%2Fb"
        );
    }

    #[test]
    fn no_source_may_take_the_topic_of_an_event() {
        let check = |toml: &str| {
            let config = Config::parse(&format!("mqtt.client_id = 'm-0'\n{toml}")).unwrap();
            check_topic(&config).map_err(|error| error.to_string())
        };
        let source = |topic: &str| format!("[[sources]]\ntopic = '{topic}'\ndriver = '{{1}}'\n");
        assert_eq!(check(""), Ok(()));
        assert_eq!(check(&source("fleet/events/+/gps")), Ok(()));
        assert_eq!(check(&format!("events.topic = ''\n{}", source("fleet/+/+/contact"))), Ok(()));
        for topic in ["fleet/+/+/contact", "+/+/+/+", "fleet/events/+/fence/yard"] {
            let why = check(&source(topic)).unwrap_err();
            assert!(why.starts_with("events.topic: the source \"") && why.contains(topic), "{why}");
        }
        let of_fences = Kind::ALL.map(|kind| (kind, "yard"));
        for (kind, fence) in of_fences.into_iter().chain([(Kind::Fast, "")]) {
            let taken = topic("fleet/events", "+", kind, fence);
            assert!(check(&source(&taken)).is_err(), "{taken}");
        }
        let why =
            check(&format!("events.topic = 'drivers'\n{}", source("drivers/+/+"))).unwrap_err();
        assert!(why.contains("drivers/+/contact"), "{why}");
    }
}
