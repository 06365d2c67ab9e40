//! Two channels for events: MQTT, retained, and a webhook. Each has a queue and a task of its own,
//! so neither waits for the other.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::{Method, Request, StatusCode};
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout};
use tracing::{info, warn};

use super::publisher::connect;
use super::status::Status;
use crate::watch::{Event, Kind};
use milepost_clickhouse::Connector;
use milepost_command::client::Client;
use milepost_config::{Mqtt, Webhook};
use milepost_core::erased::Erased;
use milepost_core::error_chain;
use milepost_core::throttle::Throttle;
use milepost_tls::Tls;

/// Capacity of a channel's queue, in events. Further events are dropped and counted, except the
/// newest state of each MQTT topic.
pub(super) const QUEUE_MAX: usize = 10_000;
/// First pause before a failed channel is retried. The pause doubles up to [`RETRY_PAUSE_MAX`].
const RETRY_PAUSE_MIN: Duration = Duration::from_secs(1);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(30);
/// Time after which an event that the webhook has not accepted is dropped.
const WEBHOOK_PATIENCE: Duration = Duration::from_secs(900);
/// Maximum number of concurrent posts to the webhook.
const WEBHOOK_POSTS_MAX: usize = 8;
/// Maximum number of events among which the next post is chosen.
const WEBHOOK_WAITING_MAX: usize = 100;
const WEBHOOK_RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for reading the body of a response. Only a connection whose body was read can be reused.
const WEBHOOK_BODY_TIMEOUT: Duration = Duration::from_secs(1);
const WEBHOOK_ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Age from which on the end of a connection may mean that the broker has restarted. Younger ones
/// usually end because a second process uses the same client id.
const CONNECTION_AGE_MIN: Duration = Duration::from_secs(5);
/// Lowest MQTT reason code that is an error.
const ERROR_REASON_MIN: u8 = 0x80;
/// Reason codes with which the broker would refuse the same message again: topic name invalid,
/// packet too large, payload format invalid.
const REFUSED_FOR_EVER: [u8; 3] = [0x90, 0x95, 0x99];

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
    /// Clears the retained message of this topic.
    Clear(String),
}

/// A channel's answer for one event.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) channel: Channel,
    pub(super) id: String,
    /// `false`: the channel drops the event and will never deliver it.
    pub(super) is_accepted: bool,
}

/// A channel task's ends of the queues between it and the main task.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) orders: mpsc::Receiver<Order>,
    pub(super) answers: mpsc::Sender<Answer>,
    /// The erased drivers. Their events are dropped, however long they have waited.
    pub(super) erased: watch::Receiver<Arc<Erased>>,
    /// Counts how often the broker may have lost its retained messages. When it changes, the main
    /// task publishes every state again.
    pub(super) retained_lost: watch::Sender<u64>,
}

impl Ends {
    fn is_erased(&self, event: &Event) -> bool {
        self.erased.borrow().contains_bytes(event.driver_id.as_bytes())
    }

    async fn answer(&self, channel: Channel, id: String, is_accepted: bool) {
        let _ = self.answers.send(Answer { channel, id, is_accepted }).await; // fails only once the main task has ended
    }
}

/// Returns the topic of an event, below the configured one. Each topic holds one state of a
/// driver; `jump` and `off_hours` are not states.
pub(super) fn topic(prefix: &str, driver_id: &str, kind: Kind, fence: &str) -> String {
    let state = match kind {
        Kind::Entered | Kind::Overstayed | Kind::Left => format!("fence/{}", level(fence)),
        Kind::OffHours => format!("off_hours/{}", level(fence)),
        Kind::Silent | Kind::Heard => "contact".to_owned(),
        Kind::Fast | Kind::Slow if fence.is_empty() => "speed".to_owned(),
        Kind::Fast | Kind::Slow => format!("speed/{}", level(fence)),
        Kind::Jump => "jump".to_owned(),
    };
    format!("{prefix}/{driver_id}/{state}")
}

/// Escapes a fence's name so that it is one level of a topic. Also escapes control characters: a
/// broker may close the connection when it receives one, and would do so at every retry.
fn level(name: &str) -> String {
    let is_plain = |c: char| !c.is_control() && !"%/+#".contains(c);
    let percent = |c: char| c.to_string().bytes().map(|byte| format!("%{byte:02X}")).collect();
    name.chars().map(|c| if is_plain(c) { c.to_string() } else { percent(c) }).collect()
}

/// Returns the event as the JSON object that subscribers and the webhook receive.
pub(super) fn payload(event: &Event) -> Vec<u8> {
    let Event { driver_id, kind, fence, ts, seq, lat, lng, speed, known_at: _ } = event;
    let mut payload = json!({
        "id": event.id(), "driver_id": driver_id, "event": kind.name(), "ts": ts, "seq": seq, "lat": lat,
        "lng": lng, "speed": speed,
    });
    if !fence.is_empty() {
        payload["fence"] = json!(fence);
    }
    payload.to_string().into_bytes()
}

/// Logs the first failure of an outage and its end, and delays the retries.
struct Outage {
    channel: Channel,
    status: Arc<Status>,
    log: Throttle,
    /// A failure was reported since the last success.
    has_failed: bool,
    retry_after: Duration,
}

impl Outage {
    fn new(channel: Channel, status: Arc<Status>) -> Self {
        Self {
            channel,
            status,
            log: Throttle::once(),
            has_failed: false,
            retry_after: RETRY_PAUSE_MIN,
        }
    }

    /// Reports a failure, then waits until the next retry.
    async fn report_and_wait(&mut self, why: &str) {
        self.report(why);
        sleep(self.retry_after).await;
        self.retry_after = RETRY_PAUSE_MAX.min(self.retry_after * 2);
    }

    /// Reports a failure. Logs the first one of an outage.
    fn report(&mut self, why: &str) {
        let name = self.channel.name();
        if self.log.allow(Instant::now()) {
            warn!(to = name, why, "the channel does not accept events: they wait until it does");
        }
        self.has_failed = true;
        self.status.health.set(name, vec![format!("{name}: {why}")]);
    }

    fn end(&mut self) {
        let name = self.channel.name();
        if std::mem::take(&mut self.has_failed) {
            info!(to = name, "the channel accepts events again");
        }
        self.log.reset();
        self.retry_after = RETRY_PAUSE_MIN;
        self.set_ready();
    }

    fn set_ready(&self) {
        self.status.health.set(self.channel.name(), Vec::new());
    }
}

/// Publishes orders in sequence until their sender is dropped. Stays connected between them, and
/// counts in `ends` how often the broker may have lost its retained messages.
pub(super) async fn mqtt(mqtt: Mqtt, prefix: String, mut ends: Ends, status: Arc<Status>) {
    let mut outage = Outage::new(Channel::Mqtt, status);
    let (mut nodes, mut batch) = (mqtt.nodes.iter().cycle(), Vec::new());
    let (mut node, mut connected, mut is_first) = (nodes.next(), None::<Client>, true);
    // The connection was lost, or an attempt to connect has failed. The broker may have restarted
    // from an old copy of its state. Such a broker may resume the session and still have lost
    // retained messages.
    let mut was_away = false;
    let mut connected_at = Instant::now();
    loop {
        let Some(address) = node else { return };
        let Some(publisher) = &mut connected else {
            match connect(&mqtt, address).await {
                Ok((publisher, is_resumed)) => {
                    if is_first || !is_resumed || was_away {
                        ends.retained_lost.send_modify(|times| *times += 1);
                    }
                    (connected, is_first, was_away) = (Some(publisher), false, false);
                    connected_at = Instant::now();
                    outage.end();
                }
                Err(error) => {
                    (node, was_away) = (nodes.next(), true);
                    outage.report_and_wait(&format!("{address}: {}", error_chain(&error))).await;
                }
            }
            continue;
        };
        if batch.is_empty() {
            tokio::select! {
                orders = ends.orders.recv_many(&mut batch, 100) => if orders == 0 { return },
                _ = publisher.idle() => {
                    connected = None;
                    was_away = connected_at.elapsed() >= CONNECTION_AGE_MIN;
                    sleep(RETRY_PAUSE_MIN).await; // another client with the same id may have connected
                }
            }
            continue;
        }
        match publish(publisher, &mqtt, &prefix, &mut batch, &ends).await {
            Ok(()) => outage.end(),
            Err(why) => {
                (connected, node) = (None, nodes.next());
                was_away = connected_at.elapsed() >= CONNECTION_AGE_MIN;
                outage.report_and_wait(&format!("{address}: {why}")).await;
            }
        }
    }
}

/// Publishes the orders of `batch` and removes each once the broker has acknowledged it.
async fn publish(
    publisher: &mut Client,
    mqtt: &Mqtt,
    prefix: &str,
    batch: &mut Vec<Order>,
    ends: &Ends,
) -> Result<(), String> {
    while let Some(order) = batch.first() {
        let (topic, payload, is_retained, id) = match order {
            Order::Publish(event) | Order::Republish(event) if ends.is_erased(event) => {
                batch.remove(0);
                continue;
            }
            Order::Publish(event) | Order::Republish(event) => {
                let topic = topic(prefix, &event.driver_id, event.kind, &event.fence);
                let id = matches!(order, Order::Publish(_)).then(|| event.id());
                (topic, payload(event), event.kind.changes_state(), id)
            }
            Order::Clear(topic) => (topic.clone(), Vec::new(), true, None),
        };
        let reason = publisher.publish(&topic, &payload, is_retained).await;
        let reason = reason.map_err(|error| error_chain(&error))?;
        let is_accepted = reason < ERROR_REASON_MIN;
        if REFUSED_FOR_EVER.contains(&reason) {
            warn!(topic, reason, "the broker refused an event: it will not be published again");
        } else if !is_accepted {
            return Err(format!(
                "{topic}: the broker refused the message, reason {reason:#04x}: allow {} to publish to {prefix}/#",
                mqtt.username.as_deref().unwrap_or("this client")
            ));
        }
        batch.remove(0);
        if let Some(id) = id {
            ends.answer(Channel::Mqtt, id, is_accepted).await;
        }
    }
    Ok(())
}

/// An event on its way to the webhook.
struct Post {
    event: Event,
    /// Time of the first attempt.
    since: Instant,
    /// Time of the next attempt.
    next_at: Instant,
    /// Pause after the next failure; [`RETRY_PAUSE_MIN`] before the first one.
    pause: Duration,
}

/// Events that wait to be posted. If the webhook does not accept an event, only the later events of
/// the same driver are delayed.
#[derive(Default)]
struct Posts {
    waiting: VecDeque<Post>,
    /// Drivers with an event that is being posted.
    posting: HashSet<String>,
}

impl Posts {
    /// Returns, each with its position, the first waiting event of every driver that has no event
    /// in flight.
    fn candidates(&self) -> impl Iterator<Item = (usize, &Post)> {
        let mut seen = HashSet::new();
        self.waiting.iter().enumerate().filter(move |(_, post)| {
            let driver_id = post.event.driver_id.as_str();
            seen.insert(driver_id) && !self.posting.contains(driver_id)
        })
    }

    /// Removes and returns the first event that is due.
    fn take_due(&mut self, now: Instant) -> Option<Post> {
        let (at, _) = self.candidates().find(|(_, post)| post.next_at <= now)?;
        self.waiting.remove(at)
    }

    fn next_at(&self) -> Option<Instant> {
        self.candidates().map(|(_, post)| post.next_at).min()
    }

    /// Puts a failed post back in front of its driver's later events.
    fn retry(&mut self, mut post: Post, now: Instant) {
        post.next_at = now + post.pause;
        post.pause = RETRY_PAUSE_MAX.min(post.pause * 2);
        self.waiting.push_front(post);
    }

    /// Returns whether any waiting event has failed before.
    fn has_failed(&self) -> bool {
        self.waiting.iter().any(|post| post.pause != RETRY_PAUSE_MIN)
    }
}

/// Posts events until the sender of the orders is dropped. Posts events of different drivers
/// concurrently, and those of one driver in order. After a failure, posts one event at a time until
/// the webhook accepts one.
pub(super) async fn webhook(webhook: Webhook, mut ends: Ends, status: Arc<Status>) {
    let tls = webhook.tls.clone().map(|files| Arc::new(Tls::new(files)));
    let client: legacy::Client<Connector, Full<Bytes>> =
        legacy::Client::builder(TokioExecutor::new()).build(Connector::new(tls));
    let target = Arc::new((client, webhook));
    let (mut outage, mut places) = (Outage::new(Channel::Webhook, status), WEBHOOK_POSTS_MAX);
    let (mut posts, mut running) = (Posts::default(), JoinSet::new());
    loop {
        while running.len() < places
            && let Some(post) = posts.take_due(Instant::now())
        {
            if ends.is_erased(&post.event) {
                continue;
            }
            posts.posting.insert(post.event.driver_id.clone());
            let target = Arc::clone(&target);
            running.spawn(async move {
                let (client, webhook) = &*target;
                let answer = self::post(client, webhook, &post.event).await;
                (post, answer)
            });
        }
        // If all concurrent posts are in use, the next thing to wait for is an answer.
        let next_at = posts.next_at().filter(|_| running.len() < places);
        let wake_at = next_at.unwrap_or_else(Instant::now);
        let (post, answer) = tokio::select! {
            Some(ended) = running.join_next() => ended.expect("a post neither panics nor is cancelled"),
            order = ends.orders.recv(), if posts.waiting.len() < WEBHOOK_WAITING_MAX => {
                let now = Instant::now();
                match order {
                    None => return,
                    Some(Order::Publish(event)) => {
                        let pause = RETRY_PAUSE_MIN;
                        posts.waiting.push_back(Post { event, since: now, next_at: now, pause });
                    }
                    Some(Order::Republish(_) | Order::Clear(_)) => {}
                }
                continue;
            }
            () = sleep_until(wake_at.into()), if next_at.is_some() => continue,
        };
        posts.posting.remove(&post.event.driver_id);
        let id = post.event.id();
        match answer {
            Ok(()) => {
                places = WEBHOOK_POSTS_MAX;
                // While another event is refused, the log must not alternate at each retry.
                if posts.has_failed() {
                    outage.set_ready();
                } else {
                    outage.end();
                }
                ends.answer(Channel::Webhook, id, true).await;
            }
            Err(Failure::Refused(why)) => {
                warn!(id, why, "the webhook refused an event: it will not be posted again");
                ends.answer(Channel::Webhook, id, false).await;
            }
            Err(Failure::Transient(why)) if post.since.elapsed() >= WEBHOOK_PATIENCE => {
                warn!(
                    id,
                    why,
                    "the webhook did not accept an event for a quarter of an hour: it will not be posted again"
                );
                ends.answer(Channel::Webhook, id, false).await;
            }
            Err(Failure::Transient(why)) => {
                outage.report(&why);
                posts.retry(post, Instant::now());
                places = 1;
            }
        }
    }
}

enum Failure {
    /// The webhook would refuse the same event again.
    Refused(String),
    Transient(String),
}

async fn post(
    client: &legacy::Client<Connector, Full<Bytes>>,
    webhook: &Webhook,
    event: &Event,
) -> Result<(), Failure> {
    let transient = |why: String| Failure::Transient(why);
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(&webhook.url)
        .header(CONTENT_TYPE, "application/json");
    if let Some(token) = &webhook.token {
        let token = token
            .read()
            .map_err(|error| transient(format!("webhook.token_file cannot be read: {error}")))?;
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request
        .body(Full::from(payload(event)))
        .map_err(|error| transient(format!("webhook.url or its token is invalid: {error}")))?;
    let answer = timeout(WEBHOOK_RESPONSE_TIMEOUT, client.request(request))
        .await
        .map_err(|_| transient(format!("no answer within {WEBHOOK_RESPONSE_TIMEOUT:?}")))?
        .map_err(|error| transient(error_chain(&error)))?;
    let status = answer.status();
    // The status code alone decides the result. If the body never ends, the only loss is that the
    // connection cannot be reused.
    let body = Limited::new(answer.into_body(), WEBHOOK_ANSWER_BYTES_MAX).collect();
    let _ = timeout(WEBHOOK_BODY_TIMEOUT, body).await;
    let is_busy = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status);
    // The operator can correct the token or the URL, here or at the webhook. Until then, events
    // wait.
    let may_be_corrected =
        [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::NOT_FOUND].contains(&status);
    if status.is_success() {
        Ok(())
    } else if status.is_client_error() && !is_busy && !may_be_corrected {
        Err(Failure::Refused(format!("it answers {status}")))
    } else {
        let advice = if status.is_redirection() {
            ": set webhook.url to the address to which it redirects"
        } else {
            ""
        };
        Err(Failure::Transient(format!("it answers {status}{advice}")))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn post(driver_id: &str, ts: i64, now: Instant) -> Post {
        let event = Event {
            driver_id: driver_id.to_owned(),
            kind: Kind::Entered,
            fence: "depot".to_owned(),
            ts,
            seq: 0,
            lat: 1.0,
            lng: 2.0,
            speed: None,
            known_at: 0,
        };
        Post { event, since: now, next_at: now, pause: RETRY_PAUSE_MIN }
    }

    #[test]
    fn refused_event_delays_only_later_events_of_its_driver() {
        let now = Instant::now();
        let mut posts = Posts::default();
        let all = [("p", 1), ("p", 2), ("a", 1), ("a", 2), ("b", 1)];
        posts.waiting.extend(all.map(|(driver_id, ts)| post(driver_id, ts, now)));
        let refused = posts.take_due(now).unwrap();
        assert_eq!((&*refused.event.driver_id, refused.event.ts), ("p", 1));
        posts.retry(refused, now);
        let mut due = Vec::new();
        while let Some(post) = posts.take_due(now) {
            due.push((post.event.driver_id.clone(), post.event.ts));
        }
        let names: Vec<_> = due.iter().map(|(id, ts)| (&**id, *ts)).collect();
        assert_eq!(names, [("a", 1), ("a", 2), ("b", 1)]);
        assert_eq!(posts.next_at(), Some(now + RETRY_PAUSE_MIN));
        assert!(posts.has_failed());
        let again = posts.take_due(now + RETRY_PAUSE_MIN).unwrap();
        assert_eq!((again.event.ts, again.pause), (1, 2 * RETRY_PAUSE_MIN));
    }

    #[test]
    fn events_of_a_driver_are_posted_one_after_the_other() {
        let now = Instant::now();
        let mut posts = Posts::default();
        posts.waiting.extend([("a", 1), ("a", 2)].map(|(id, ts)| post(id, ts, now)));
        let first = posts.take_due(now).unwrap();
        posts.posting.insert(first.event.driver_id.clone());
        assert!(posts.take_due(now).is_none() && posts.next_at().is_none());
        posts.posting.clear();
        assert_eq!(posts.take_due(now).unwrap().event.ts, 2);
    }

    /// A broker that crashed can be back within a second, from a save without the last states.
    #[tokio::test]
    async fn states_are_published_again_after_a_lost_connection() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("mqtt://{}", listener.local_addr().unwrap());
        let config = milepost_config::Config::parse(&format!("mqtt.url = '{url}'")).unwrap();
        let (_orders, queue) = mpsc::channel(1);
        let (answers, _answered) = mpsc::channel(1);
        let (retained_lost, mut lost) = watch::channel(0);
        let erased = watch::Sender::new(Arc::default()).subscribe();
        let ends = Ends { orders: queue, answers, erased, retained_lost };
        let status = Arc::new(Status::new());
        let publishing = tokio::spawn(mqtt(config.mqtt, "fleet".to_owned(), ends, status));
        // The broker resumes the session each time: Session Present is 1.
        let welcome = async || {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
            stream.write_all(&[0x20, 3, 1, 0, 0]).await.unwrap();
            stream
        };
        for (age, expected) in [(CONNECTION_AGE_MIN, 1), (Duration::ZERO, 2), (Duration::ZERO, 2)] {
            let stream = welcome().await;
            let counted = lost.wait_for(|n| *n == expected);
            assert!(timeout(Duration::from_secs(1), counted).await.is_ok(), "{expected}");
            sleep(age.max(Duration::from_millis(300))).await;
            assert_eq!(*lost.borrow(), expected);
            drop(stream);
        }
        publishing.abort();
    }

    #[test]
    fn fence_name_is_one_topic_level() {
        let names = ["Köln Süd", "a/b", "+", "#", "100 %", "nul\0", "line\n\u{85}"];
        let levels = ["Köln Süd", "a%2Fb", "%2B", "%23", "100 %25", "nul%00", "line%0A%C2%85"];
        assert_eq!(names.map(level), levels);
        assert_eq!(
            topic("fleet/events", "anna", Kind::Left, "a/b"),
            "fleet/events/anna/fence/a%2Fb"
        );
    }
}
