//! Two channels for events: MQTT, retained, and a webhook. Each has a queue and a task of its own, so neither waits for the other.

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
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::status::Status;
use crate::check::probe::{self, Door, Probe};
use crate::events::{Event, Kind};
use milepost_clickhouse::Connector;
use milepost_config::{Mqtt, Webhook};
use milepost_core::erased::Erased;
use milepost_core::error_chain;
use milepost_core::throttle::Throttle;
use milepost_tls::Tls;

/// What waits for a channel; one more is dropped, and counted.
pub(super) const QUEUE_MAX: usize = 10_000;
/// A channel that fails is tried again after this, and then after longer times.
const AGAIN_AFTER: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];
/// An event that a webhook has not taken by then is dropped.
const WEBHOOK_PATIENCE: Duration = Duration::from_secs(900);
const WEBHOOK_ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The rest of an answer is read for so long and so far, to use the connection again.
const WEBHOOK_BODY_WITHIN: Duration = Duration::from_secs(1);
const WEBHOOK_ANSWER_BYTES_MAX: usize = 64 * 1024;
/// MQTT reason codes from here on are errors.
const REFUSED_FROM: u8 = 0x80;
/// Those that the same message gets again: topic name invalid, packet too large, payload format invalid.
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

/// What a channel is to do.
#[derive(Debug)]
pub(super) enum Order {
    Tell(Event),
    /// The state of this topic is not to be kept any more.
    Clear(String),
}

/// What became of an event.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) channel: Channel,
    pub(super) id: String,
    /// Or it is not tried again.
    pub(super) is_taken: bool,
}

/// What a channel's task has of the rest.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) orders: mpsc::Receiver<Order>,
    pub(super) answers: mpsc::Sender<Answer>,
    /// An event of an erased driver is not told, however long it has waited.
    pub(super) erased: watch::Receiver<Arc<Erased>>,
}

impl Ends {
    fn is_erased(&self, event: &Event) -> bool {
        self.erased.borrow().contains_bytes(event.driver_id.as_bytes())
    }

    async fn answer(&self, channel: Channel, id: String, is_taken: bool) {
        let _ = self.answers.send(Answer { channel, id, is_taken }).await; // the command has ended
    }
}

/// The topic of an event below the configured one: a state each, but for a jump, which is none.
pub(super) fn topic(prefix: &str, driver_id: &str, kind: Kind, fence: &str) -> String {
    let state = match kind {
        Kind::Entered | Kind::Left => format!("fence/{}", level(fence)),
        Kind::Silent | Kind::Heard => "contact".to_owned(),
        Kind::Fast | Kind::Slow => "speed".to_owned(),
        Kind::Jump => "jump".to_owned(),
    };
    format!("{prefix}/{driver_id}/{state}")
}

/// A name as one level of a topic. A broker may end the connection for a control character, each time anew.
fn level(name: &str) -> String {
    let is_plain = |c: char| !c.is_control() && !"%/+#".contains(c);
    let percent = |c: char| c.to_string().bytes().map(|byte| format!("%{byte:02X}")).collect();
    name.chars().map(|c| if is_plain(c) { c.to_string() } else { percent(c) }).collect()
}

/// What subscribers and the webhook get.
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

/// Logs the first failure of an outage, and its end.
struct Outage {
    channel: Channel,
    status: Arc<Status>,
    log: Throttle,
    again_after: Duration,
}

impl Outage {
    fn new(channel: Channel, status: Arc<Status>) -> Self {
        Self { channel, status, log: Throttle::once(), again_after: AGAIN_AFTER[0] }
    }

    async fn failed(&mut self, why: &str) {
        let name = self.channel.name();
        if self.log.allow(Instant::now()) {
            warn!(to = name, why, "events wait: the channel does not take them");
        }
        self.status.health.set(name, vec![format!("{name}: {why}")]);
        sleep(self.again_after).await;
        self.again_after = AGAIN_AFTER[1].min(self.again_after * 2);
    }

    fn is_over(&mut self) {
        let name = self.channel.name();
        if self.again_after != AGAIN_AFTER[0] {
            info!(to = name, "the channel takes events again");
        }
        self.log.reset();
        self.again_after = AGAIN_AFTER[0];
        self.status.health.set(name, Vec::new());
    }
}

/// Publishes what comes, in its order, until it is dropped. Connects for it each time: events are rare.
pub(super) async fn mqtt(mqtt: Mqtt, prefix: String, mut ends: Ends, status: Arc<Status>) {
    let mut outage = Outage::new(Channel::Mqtt, status);
    let mut node = 0;
    let mut batch = Vec::new();
    while ends.orders.recv_many(&mut batch, 100).await > 0 {
        while !batch.is_empty() {
            let published = publish(&mqtt, node, &prefix, &mut batch, &ends).await;
            match published {
                Ok(()) => outage.is_over(),
                Err(why) => {
                    node += 1;
                    outage.failed(&why).await;
                }
            }
        }
    }
}

/// Takes from `batch` what the broker has acknowledged.
async fn publish(
    mqtt: &Mqtt,
    node: usize,
    prefix: &str,
    batch: &mut Vec<Order>,
    ends: &Ends,
) -> Result<(), String> {
    let login = probe::login(mqtt).map_err(|error| format!("mqtt.password_file cannot be read: {error}"))?;
    let node = &mqtt.nodes[node % mqtt.nodes.len()];
    let door = Door { mqtt, node, login: login.as_ref() };
    let opened = Probe::open_as(format!("{}-events", mqtt.client_id), door, Duration::ZERO).await;
    let (mut probe, _) = opened.map_err(|error| format!("{node}: {}", error_chain(&error)))?;
    while let Some(order) = batch.first() {
        let (topic, payload, is_kept, id) = match order {
            Order::Tell(event) if ends.is_erased(event) => {
                batch.remove(0);
                continue;
            }
            Order::Tell(event) => {
                let topic = topic(prefix, &event.driver_id, event.kind, &event.fence);
                (topic, payload(event), event.kind != Kind::Jump, Some(event.id()))
            }
            Order::Clear(topic) => (topic.clone(), Vec::new(), true, None),
        };
        let reason = probe.publish(&topic, &payload, is_kept).await;
        let reason = reason.map_err(|error| format!("{node}: {}", error_chain(&error)))?;
        let is_taken = reason < REFUSED_FROM;
        if REFUSED_FOR_EVER.contains(&reason) {
            warn!(topic, reason, "the broker refuses an event: it is not published again");
        } else if !is_taken {
            return Err(format!(
                "{topic}: the broker refuses the message, reason {reason:#04x}: allow {} to publish to {prefix}/#",
                mqtt.username.as_deref().unwrap_or("this client")
            ));
        }
        batch.remove(0);
        if let Some(id) = id {
            ends.answer(Channel::Mqtt, id, is_taken).await;
        }
    }
    probe.leave().await;
    Ok(())
}

/// Posts what comes, one after the other, until it is dropped.
pub(super) async fn webhook(webhook: Webhook, mut ends: Ends, status: Arc<Status>) {
    let tls = webhook.tls.clone().map(|files| Arc::new(Tls::new(files)));
    let client: legacy::Client<Connector, Full<Bytes>> =
        legacy::Client::builder(TokioExecutor::new()).build(Connector::new(tls));
    let mut outage = Outage::new(Channel::Webhook, status);
    while let Some(order) = ends.orders.recv().await {
        let Order::Tell(event) = order else { continue };
        let (began, id) = (Instant::now(), event.id());
        let is_taken = loop {
            if ends.is_erased(&event) {
                break None;
            }
            match post(&client, &webhook, &event).await {
                Ok(()) => {
                    outage.is_over();
                    break Some(true);
                }
                Err(Failure::Refused(why)) => {
                    warn!(id, why, "the webhook refuses an event: it is not posted again");
                    break Some(false);
                }
                Err(Failure::Passing(why)) if began.elapsed() >= WEBHOOK_PATIENCE => {
                    warn!(
                        id,
                        why,
                        "the webhook has not taken an event for a quarter of an hour: it is not posted again"
                    );
                    break Some(false);
                }
                Err(Failure::Passing(why)) => outage.failed(&why).await,
            }
        };
        if let Some(is_taken) = is_taken {
            ends.answer(Channel::Webhook, id, is_taken).await;
        }
    }
}

enum Failure {
    /// The same again would be refused, too.
    Refused(String),
    Passing(String),
}

async fn post(
    client: &legacy::Client<Connector, Full<Bytes>>,
    webhook: &Webhook,
    event: &Event,
) -> Result<(), Failure> {
    let passing = |why: String| Failure::Passing(why);
    let mut request =
        Request::builder().method(Method::POST).uri(&webhook.url).header(CONTENT_TYPE, "application/json");
    if let Some(token) = &webhook.token {
        let token =
            token.read().map_err(|error| passing(format!("webhook.token_file cannot be read: {error}")))?;
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request
        .body(Full::from(payload(event)))
        .map_err(|error| passing(format!("webhook.url or its token: {error}")))?;
    let answer = timeout(WEBHOOK_ANSWER_WITHIN, client.request(request))
        .await
        .map_err(|_| passing(format!("no answer within {WEBHOOK_ANSWER_WITHIN:?}")))?
        .map_err(|error| passing(error_chain(&error)))?;
    let status = answer.status();
    // The status decides: a body that does not end costs the connection alone.
    let body = Limited::new(answer.into_body(), WEBHOOK_ANSWER_BYTES_MAX).collect();
    let _ = timeout(WEBHOOK_BODY_WITHIN, body).await;
    let is_busy = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status);
    // A wrong token is mended there or here; until then events wait.
    let may_be_mended =
        [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::NOT_FOUND].contains(&status);
    if status.is_success() {
        Ok(())
    } else if status.is_client_error() && !is_busy && !may_be_mended {
        Err(Failure::Refused(format!("it answers {status}")))
    } else {
        let mend = if status.is_redirection() { ": set webhook.url to where it redirects" } else { "" };
        Err(Failure::Passing(format!("it answers {status}{mend}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_of_a_fence_is_one_level_of_a_topic() {
        let names = ["Köln Süd", "a/b", "+", "#", "100 %", "nul\0", "line\n\u{85}"];
        let levels = ["Köln Süd", "a%2Fb", "%2B", "%23", "100 %25", "nul%00", "line%0A%C2%85"];
        assert_eq!(names.map(level), levels);
        assert_eq!(topic("fleet/events", "anna", Kind::Left, "a/b"), "fleet/events/anna/fence/a%2Fb");
    }
}
