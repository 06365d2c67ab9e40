//! Publishes events over MQTT, one after the other, and states as retained messages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{sleep, sleep_until};
use tracing::warn;

use super::deliver::{Channel, Order, Outage, QueueEnds, TOO_MANY_WAIT, payload, topic};
use super::lanes::{Lanes, Prospect, RETRY_PAUSE_MAX, RETRY_PAUSE_MIN, WAITING_MAX, Waiting};
use super::publisher::connect;
use super::status::Status;
use milepost_command::client::Client;
use milepost_config::Mqtt;
use milepost_core::error_chain;

/// If a connection of at least this age ends, the broker may have restarted. Younger connections
/// usually end because a second process uses the same client id.
const CONNECTION_AGE_MIN: Duration = Duration::from_secs(5);
/// Pause after a message that was not sound ([`Prospect`]) ended the connection. The pause applies
/// to all messages that failed before, for whatever reason. While a sound message is due, the pause
/// also applies to doubtful messages. Without the pause, hundreds of such messages would keep the
/// channel reconnecting while others wait.
const HANG_UP_PAUSE: Duration = Duration::from_secs(5);
/// Lowest MQTT reason code that is an error.
const ERROR_REASON_MIN: u8 = 0x80;
/// Reason codes with which the broker would refuse the same message again, in its answer or by
/// ending the connection: topic name invalid, packet too large, payload format invalid.
const REFUSED_FOR_EVER: [u8; 3] = [0x90, 0x95, 0x99];
/// Reason codes of a broker that may refuse every message for a while: unspecified error,
/// implementation specific error, quota exceeded.
const LIMITS: [u8; 3] = [0x80, 0x83, QUOTA_EXCEEDED];
const QUOTA_EXCEEDED: u8 = 0x97;
/// Time after a pause of all messages for which the broker still counts as limiting the rate.
/// Longer than a pause, so that the broker also counts as limiting the rate between two pauses.
const LIMIT_LASTS: Duration = Duration::from_secs(60);

/// Publishes orders until their sender is dropped, those of one driver in sequence. Stays connected
/// between them, and counts in `ends` how often the broker may have lost its retained messages.
///
/// If the broker does not accept an order, only the later orders of the same driver wait. If too
/// many orders wait, each further order takes the place of one that waits behind a refusal.
/// Exception: the broker limits the rate, or the next order of some driver is
/// [doubtful](Prospect::Doubtful). Meanwhile, further orders stay in the queue of the main task,
/// which keeps the newest state of each topic.
pub(super) async fn mqtt(mqtt: Mqtt, prefix: String, mut ends: QueueEnds, status: Arc<Status>) {
    let mut outage = Outage::new(Channel::Mqtt, status);
    let (mut nodes, mut backlog) = (mqtt.nodes.iter().cycle(), Backlog::default());
    let (mut node, mut connected) = (nodes.next(), None::<Client>);
    let mut presence = Presence::new(Instant::now());
    let mut pauses = Pauses::new(Instant::now());
    loop {
        let Some(address) = node else { return };
        let Some(publisher) = &mut connected else {
            match connect(&mqtt, address).await {
                Ok((publisher, is_resumed)) => {
                    if presence.handle_connect(is_resumed, Instant::now()) {
                        ends.retained_lost.send_modify(|times| *times += 1);
                    }
                    connected = Some(publisher);
                    outage.succeed(backlog.lanes.has_failed());
                }
                Err(error) => {
                    node = nodes.next();
                    presence.handle_unreachable();
                    outage.report_and_wait(&format!("{address}: {}", error_chain(&error))).await;
                }
            }
            continue;
        };
        let now = Instant::now();
        while backlog.can_pull(&pauses, now)
            && let Ok(order) = ends.orders.try_recv()
        {
            backlog.accept(order, now, &ends, &mut outage).await;
        }
        if backlog.take_gap() {
            ends.retained_lost.send_modify(|times| *times += 1);
        }
        let lanes = &mut backlog.lanes;
        outage.lapse(lanes.has_failed());
        let is_sound_due = lanes.is_due(Prospect::Sound, now);
        let is_allowed = |prospect: &Prospect| now >= pauses.end(*prospect, is_sound_due);
        let mut prospects = lanes.preferred().into_iter().filter(is_allowed);
        let next = prospects.find_map(|prospect| lanes.take(prospect, now));
        let Some(next) = next else {
            let is_sound_due = lanes.is_due(Prospect::Sound, now); // `take` may have changed it
            let pause_end = |prospect| pauses.end(prospect, is_sound_due);
            let next_at = |prospect| Some(lanes.next_at(prospect)?.max(pause_end(prospect)));
            let next_at = lanes.preferred().into_iter().filter_map(next_at).min();
            let wake_at = next_at.unwrap_or(now);
            let can_pull = backlog.can_pull(&pauses, now);
            tokio::select! {
                order = ends.orders.recv(), if can_pull => {
                    let Some(order) = order else { return };
                    backlog.accept(order, now, &ends, &mut outage).await;
                }
                () = sleep_until(wake_at.into()), if next_at.is_some() => {}
                _ = publisher.idle() => {
                    connected = None;
                    presence.handle_disconnect(false, Instant::now());
                    // Another client with the same id may have connected.
                    sleep(RETRY_PAUSE_MIN).await;
                }
            }
            continue;
        };
        let outcome = publish(publisher, &mqtt, &prefix, &next, &ends).await;
        let now = Instant::now();
        match outcome {
            Published::Done => {
                lanes.succeed(&next, now);
                pauses.succeed();
                outage.succeed(lanes.has_failed());
            }
            Published::Dropped { is_connected, why } => {
                if let Some(why) = why
                    && let Order::Publish(event) | Order::Republish(event) = &next.item
                {
                    outage.report_dropped(event, &why);
                }
                lanes.give_up(&next, now);
                if !is_connected {
                    presence.handle_disconnect(true, now);
                    connected = None;
                    sleep(RETRY_PAUSE_MIN).await;
                }
            }
            Published::Refused(reason, why) => {
                let pause = pauses.refuse(reason, next.prospect, now);
                let effect = pause.map(|pause| format!("; publishing pauses for {pause:?}"));
                outage.report(&format!("{address}: {why}{}", effect.unwrap_or_default()));
                lanes.requeue(next, now, now);
            }
            Published::Disconnected(why) => {
                let may_be_cause = next.prospect != Prospect::Sound;
                presence.handle_disconnect(may_be_cause, now);
                let mut effect = String::new();
                if may_be_cause {
                    pauses.suspect_message(now);
                    effect = format!(
                        "; events that failed before wait for {HANG_UP_PAUSE:?}, and while others \
                         can be published, so do events whose kind and fence failed last"
                    );
                }
                // The message is rarely the cause, so mark its rule as failing only if it failed
                // before.
                if next.has_failed {
                    lanes.retry(next, now, now);
                } else {
                    lanes.requeue(next, now, now);
                }
                (connected, node) = (None, nodes.next());
                outage.report_and_wait(&format!("{address}: {why}{effect}")).await;
            }
        }
    }
}

/// Why an older state is dropped behind a message that the broker refuses.
const NEWER_WAITS: &str =
    "the broker refuses an event of the driver: only the newest state of each topic waits";

/// The orders that wait for the broker.
#[derive(Default)]
struct Backlog {
    lanes: Lanes<Order>,
    /// The newest order of a topic was dropped, so the broker lacks a state.
    has_gap: bool,
}

impl Backlog {
    /// Returns whether to take a further order from the queue: no sound order is due, and there is
    /// room. In full lanes, an order that the broker refused makes room, unless the broker limits
    /// the rate of all messages.
    fn can_pull(&self, pauses: &Pauses, now: Instant) -> bool {
        let has_room =
            !self.lanes.is_full() || (now >= pauses.limited_until && self.lanes.can_evict());
        has_room && !self.lanes.is_due(Prospect::Sound, now)
    }

    /// Enqueues an order. Reports the events that are dropped.
    async fn accept(&mut self, order: Order, now: Instant, ends: &QueueEnds, outage: &mut Outage) {
        for (dropped, why) in self.push(order, now) {
            if let Order::Publish(dropped) = &dropped {
                outage.report_dropped(dropped, why);
            }
            ends.answer_order(&dropped, false).await;
        }
    }

    /// Enqueues an order. Returns those that are dropped, and why. Behind a message that the broker
    /// refuses, only the newest state of each topic waits. An order that clears a topic is never
    /// dropped, and replaces the events of the topic.
    fn push(&mut self, order: Order, now: Instant) -> Vec<(Order, &'static str)> {
        let driver_id = order.driver_id().to_owned();
        if self.lanes.of_driver(&driver_id).any(|older| order.repeats(older)) {
            return Vec::new();
        }
        let is_refused = self.lanes.is_failing(&driver_id);
        let is_clear = matches!(order, Order::Clear { .. });
        let is_older = |older: &Order, newer: &Order| {
            // No event is lost: the driver is erased, or `older` only repeats a state.
            let is_lossless = is_clear || !matches!(older, Order::Publish(_));
            (is_refused || is_lossless) && newer.supersedes(older)
        };
        let rule = order.rule();
        match self.lanes.replace((&driver_id, rule.clone()), order, is_clear, now, is_older) {
            Ok(_) if is_clear => Vec::new(),
            Ok(older) => older.into_iter().map(|older| (older, NEWER_WAITS)).collect(),
            Err(order) if is_clear => {
                self.lanes.keep(driver_id, rule, order, now);
                Vec::new()
            }
            Err(order) => {
                let dropped = self.lanes.push(driver_id, rule, order, now);
                self.has_gap |= dropped.as_ref().is_some_and(Order::sets_retained);
                dropped.into_iter().map(|dropped| (dropped, TOO_MANY_WAIT)).collect()
            }
        }
    }

    /// Returns whether to publish every state again: the broker lacks some states, and the lanes
    /// have room. Returns true once for all states that were dropped.
    fn take_gap(&mut self) -> bool {
        let has_room = self.lanes.len() <= WAITING_MAX / 2;
        has_room && std::mem::take(&mut self.has_gap)
    }
}

/// Times until which messages wait although the channel is connected.
struct Pauses {
    /// End of the pause of all messages.
    resumes_at: Instant,
    /// Duration of the next pause of all messages.
    pause: Duration,
    /// Until this time, the broker may still limit the rate of all messages. A refusal for a reason
    /// other than [`LIMITS`] ends this time early. Without such a refusal, it ends [`LIMIT_LASTS`]
    /// after the pause.
    limited_until: Instant,
    /// End of the pause after a message that was not sound ended the connection.
    suspects_resume_at: Instant,
}

impl Pauses {
    fn new(now: Instant) -> Self {
        Self {
            resumes_at: now,
            pause: RETRY_PAUSE_MIN,
            limited_until: now,
            suspects_resume_at: now,
        }
    }

    /// Returns the time until which messages of this prospect wait. A doubtful message may be
    /// accepted, so it waits longer than a sound one only while a sound one is due
    /// (`is_sound_due`).
    fn end(&self, prospect: Prospect, is_sound_due: bool) -> Instant {
        match prospect {
            Prospect::Sound => self.resumes_at,
            Prospect::Doubtful if !is_sound_due => self.resumes_at,
            Prospect::Doubtful | Prospect::Failed => self.resumes_at.max(self.suspects_resume_at),
        }
    }

    fn succeed(&mut self) {
        self.pause = RETRY_PAUSE_MIN;
    }

    /// Pauses all messages if the broker may refuse every one, and returns for how long. A message
    /// that was refused before may be the only one with such an error, so it causes no pause.
    fn refuse(&mut self, reason: u8, prospect: Prospect, now: Instant) -> Option<Duration> {
        let is_limit = LIMITS.contains(&reason);
        let concerns_all = reason == QUOTA_EXCEEDED || prospect == Prospect::Sound;
        let pause = (is_limit && concerns_all).then(|| {
            let pause = self.pause;
            self.resumes_at = now + pause;
            self.pause = RETRY_PAUSE_MAX.min(pause * 2);
            pause
        });
        if pause.is_some() {
            self.limited_until = self.resumes_at + LIMIT_LASTS;
        } else if !is_limit {
            self.limited_until = now;
        }
        pause
    }

    /// Records that the connection ended at a message that may be the cause.
    fn suspect_message(&mut self, now: Instant) {
        self.suspects_resume_at = now + HANG_UP_PAUSE;
    }
}

/// Judges at each connection whether the broker may have lost retained messages.
struct Presence {
    is_first: bool,
    /// The broker may have been away since the last connection began. It may have restarted from an
    /// old copy of its state, and may resume the session without the newest retained messages.
    was_away: bool,
    /// The broker has resumed a session. Until then, a new session does not prove that the broker
    /// lost one: it may keep no sessions at all.
    keeps_sessions: bool,
    /// The last connection ended at a message that may be the cause.
    is_explained: bool,
    connected_at: Instant,
}

impl Presence {
    fn new(now: Instant) -> Self {
        Self {
            is_first: true,
            was_away: false,
            keeps_sessions: false,
            is_explained: false,
            connected_at: now,
        }
    }

    /// Returns whether to publish every state again.
    fn handle_connect(&mut self, is_resumed: bool, now: Instant) -> bool {
        let is_session_lost = !is_resumed && (self.keeps_sessions || !self.is_explained);
        let is_lost = self.is_first || self.was_away || is_session_lost;
        let keeps_sessions = self.keeps_sessions || is_resumed;
        *self = Self { is_first: false, keeps_sessions, ..Self::new(now) };
        is_lost
    }

    /// Records the end of a connection. `is_explained`: it ended at a message that may be the
    /// cause, so the broker was probably not away. Without this distinction, each attempt to
    /// publish a message that the broker never accepts would cause every state to be published
    /// again.
    fn handle_disconnect(&mut self, is_explained: bool, now: Instant) {
        self.is_explained = is_explained;
        self.was_away = !is_explained && now - self.connected_at >= CONNECTION_AGE_MIN;
    }

    fn handle_unreachable(&mut self) {
        self.was_away = true;
    }
}

/// How an attempt to publish ended.
enum Published {
    Done,
    /// The driver is erased, and `why` is `None`; or the broker would refuse the same message
    /// again.
    Dropped {
        is_connected: bool,
        why: Option<String>,
    },
    /// The broker refused the message with this reason code. It may accept others.
    Refused(u8, String),
    Disconnected(String),
}

/// Publishes one order and waits until the broker has acknowledged it.
async fn publish(
    publisher: &mut Client,
    mqtt: &Mqtt,
    prefix: &str,
    waiting: &Waiting<Order>,
    ends: &QueueEnds,
) -> Published {
    let (topic, payload, is_retained) = match &waiting.item {
        Order::Publish(event) | Order::Republish(event) if ends.is_erased(event) => {
            return Published::Dropped { is_connected: true, why: None };
        }
        Order::Publish(event) | Order::Republish(event) => {
            let topic = topic(prefix, &event.driver_id, event.kind, &event.fence);
            (topic, payload(event), event.kind.changes_state())
        }
        Order::Clear { driver_id, kind, fence } => {
            (topic(prefix, driver_id, *kind, fence), Vec::new(), true)
        }
    };
    let (reason, is_connected) = match publisher.publish(&topic, &payload, is_retained).await {
        Ok(reason) => (reason, true),
        Err(error) => match error.disconnect_reason() {
            Some(reason) if REFUSED_FOR_EVER.contains(&reason) => (reason, false),
            _ => return Published::Disconnected(error_chain(&error)),
        },
    };
    let is_accepted = reason < ERROR_REASON_MIN;
    if !is_accepted && !REFUSED_FOR_EVER.contains(&reason) {
        let advice = match reason {
            QUOTA_EXCEEDED => "quota exceeded: raise the broker's limit for this client".to_owned(),
            _ if LIMITS.contains(&reason) => "the broker's log has the cause".to_owned(),
            _ => {
                let user = mqtt.username.as_deref().unwrap_or("this client");
                format!("allow {user} to publish to {prefix}/#")
            }
        };
        let why =
            format!("{topic}: the broker refused the message, reason {reason:#04x}: {advice}");
        return Published::Refused(reason, why);
    }
    ends.answer_order(&waiting.item, is_accepted).await;
    if is_accepted {
        return Published::Done;
    }
    if matches!(waiting.item, Order::Clear { .. }) {
        warn!(topic, reason, "the broker refused to clear the topic of an erased driver");
    }
    let why = format!("{topic}: the broker refused the message for good, reason {reason:#04x}");
    Published::Dropped { is_connected, why: Some(why) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::sync::{mpsc, watch};
    use tokio::time::timeout;

    use super::super::deliver::Answer;
    use super::*;
    use crate::watch::{Event, Kind};

    /// A broker that crashed can be back within a second, from a save without the last states.
    #[tokio::test]
    async fn states_are_published_again_after_a_lost_connection() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("mqtt://{}", listener.local_addr().unwrap());
        let config = milepost_config::Config::parse(&format!("mqtt.url = '{url}'")).unwrap();
        let (ends, _orders, _answers) = QueueEnds::for_test();
        let mut lost = ends.retained_lost.subscribe();
        let status = Arc::new(Status::new());
        let publishing = tokio::spawn(mqtt(config.mqtt, "fleet".to_owned(), ends, status));
        // The broker resumes the session each time: Session Present is 1.
        let welcome = async || {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
            stream.write_all(&[0x20, 3, 1, 0, 0]).await.unwrap();
            stream
        };
        // The first connection always counts. After a later one, states are published again only if
        // the connection before it lasted for CONNECTION_AGE_MIN.
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

    /// The broker closes the connection at each attempt to publish one message, twice a minute.
    #[test]
    fn message_that_ends_every_connection_republishes_no_states() {
        const RETRY: Duration = Duration::from_secs(30);
        for is_resumed in [true, false] {
            let mut now = Instant::now();
            let mut presence = Presence::new(now);
            assert!(presence.handle_connect(is_resumed, now));
            for _ in 0..9 {
                now += RETRY;
                presence.handle_disconnect(true, now);
                assert!(!presence.handle_connect(is_resumed, now), "{is_resumed}");
            }
            // Such a message must not hide that the broker was away.
            presence.handle_disconnect(true, now + RETRY);
            presence.handle_unreachable();
            assert!(presence.handle_connect(is_resumed, now + RETRY), "{is_resumed}");
            presence.handle_disconnect(false, now + RETRY * 2);
            assert!(presence.handle_connect(is_resumed, now + RETRY * 2), "{is_resumed}");
        }
    }

    #[test]
    fn lost_session_republishes_every_state() {
        let now = Instant::now();
        let mut presence = Presence::new(now);
        for (is_resumed, is_lost) in [(true, true), (true, false), (false, true), (true, false)] {
            assert_eq!(presence.handle_connect(is_resumed, now), is_lost);
            presence.handle_disconnect(true, now + CONNECTION_AGE_MIN);
        }
    }

    /// A reason code of DISCONNECT. PUBACK has no such code.
    const PACKET_TOO_LARGE: u8 = 0x95;

    /// An MQTT channel that publishes to a scripted broker.
    struct Broker {
        orders: mpsc::Sender<Order>,
        answers: mpsc::Receiver<Answer>,
        status: Arc<Status>,
        lost: watch::Receiver<u64>,
    }

    impl Broker {
        /// Starts a broker that serves one connection after the other and resumes the session each
        /// time. `respond` gets a message's text and the number of messages answered before it,
        /// and returns the reason code of the answer; `None` ends the connection.
        async fn start(respond: impl Fn(&str, usize) -> Option<u8> + Send + 'static) -> Self {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("mqtt://{}", listener.local_addr().unwrap());
            let config = milepost_config::Config::parse(&format!("mqtt.url = '{url}'")).unwrap();
            let (ends, orders, answers) = QueueEnds::for_test();
            let (status, lost) = (Arc::new(Status::new()), ends.retained_lost.subscribe());
            tokio::spawn(serve(listener, respond));
            tokio::spawn(mqtt(config.mqtt, "fleet".to_owned(), ends, Arc::clone(&status)));
            Self { orders, answers, status, lost }
        }

        async fn send(&self, driver_id: &str, kind: Kind) {
            let event = Event {
                driver_id: driver_id.to_owned(),
                kind,
                fence: String::new(),
                ts: 1,
                seq: 0,
                lat: 1.0,
                lng: 2.0,
                speed: None,
                known_at: 0,
            };
            self.orders.send(Order::Publish(event)).await.unwrap();
        }

        /// Returns the next answer of the channel.
        async fn answer(&mut self, within: Duration) -> Answer {
            timeout(within, self.answers.recv()).await.unwrap().unwrap()
        }
    }

    async fn serve(
        listener: tokio::net::TcpListener,
        respond: impl Fn(&str, usize) -> Option<u8>,
    ) -> Result<(), std::io::Error> {
        let (mut packet, mut earlier) = ([0; 4096], 0);
        loop {
            let (mut stream, _) = listener.accept().await?;
            assert!(stream.read(&mut packet).await? > 0);
            stream.write_all(&[0x20, 3, 1, 0, 0]).await?;
            loop {
                let read = stream.read(&mut packet).await?;
                if read == 0 {
                    break;
                }
                let text = String::from_utf8_lossy(&packet[..read]).into_owned();
                let Some(reason) = respond(&text, earlier) else { break };
                earlier += 1;
                if reason == PACKET_TOO_LARGE {
                    stream.write_all(&[0xe0, 1, reason]).await?;
                    break;
                }
                // The packet id follows the topic, whose length precedes it.
                let topic = packet.windows(6).position(|part| part == b"fleet/").unwrap();
                let length = usize::from(packet[topic - 1]);
                let id = &packet[topic + length..topic + length + 2];
                stream.write_all(&[0x40, 3, id[0], id[1], reason]).await?;
            }
        }
    }

    /// The access rules of a broker may forbid the topics of one driver, or end the connection.
    #[tokio::test]
    async fn event_that_the_broker_refuses_delays_no_other_driver() {
        let mut broker = Broker::start(|text, _| {
            let is_refused = text.contains("fleet/refused/");
            (!text.contains("fleet/hangs-up/")).then_some(if is_refused { 0x87 } else { 0 })
        })
        .await;
        for (driver_id, kind) in [
            ("refused", Kind::Silent),
            ("hangs-up", Kind::Silent),
            ("a", Kind::Silent),
            ("refused", Kind::Jump),
            ("b", Kind::Silent),
        ] {
            broker.send(driver_id, kind).await;
        }
        for driver_id in ["a", "b"] {
            let answer = broker.answer(Duration::from_secs(10)).await;
            assert!(answer.is_accepted && answer.id.starts_with(driver_id), "{answer:?}");
        }
    }

    /// Each new driver's event of a rule costs a connection, until the rule counts as failing.
    #[tokio::test]
    async fn rule_whose_events_end_the_connection_delays_no_other() {
        let mut broker = Broker::start(|text, _| (!text.contains("/jump")).then_some(0)).await;
        broker.send("x0", Kind::Jump).await;
        sleep(Duration::from_millis(3_500)).await; // it has failed twice
        for n in 1..20 {
            broker.send(&format!("x{n}"), Kind::Jump).await;
        }
        broker.send("a", Kind::Silent).await;
        let answer = broker.answer(Duration::from_secs(8)).await;
        assert!(answer.is_accepted && answer.id.starts_with('a'), "{answer:?}");
    }

    #[tokio::test]
    async fn outage_ends_when_its_last_failed_event_is_dropped() {
        let refusals =
            |_: &str, earlier| Some([0x87, REFUSED_FOR_EVER[0]][usize::from(earlier > 0)]);
        let mut broker = Broker::start(refusals).await;
        broker.send("a", Kind::Silent).await;
        sleep(Duration::from_millis(500)).await;
        assert!(!broker.status.health.unready().is_empty());
        assert!(!broker.answer(Duration::from_secs(5)).await.is_accepted);
        sleep(Duration::from_millis(300)).await;
        assert_eq!(broker.status.health.unready(), Vec::<String>::new());
    }

    /// The pause also delays events that the broker refused without ending the connection.
    #[tokio::test]
    async fn pause_after_an_event_ended_the_connection_is_reported() {
        let broker = Broker::start(|_, _| None).await;
        broker.send("a", Kind::Silent).await;
        let pause = "; events that failed before wait for 5s, and while others can be published, \
                     so do events whose kind and fence failed last";
        let is_reported = async {
            while !broker.status.health.unready().iter().any(|line| line.ends_with(pause)) {
                sleep(Duration::from_millis(20)).await;
            }
        };
        assert!(timeout(Duration::from_secs(30), is_reported).await.is_ok());
    }

    /// The broker refuses one event, and ends the connection at another one.
    #[tokio::test]
    async fn outage_lasts_while_a_failed_event_waits() {
        let mut broker = Broker::start(|text, _| {
            let is_refused = text.contains("fleet/refused/");
            (!text.contains("fleet/hangs-up/")).then_some(if is_refused { 0x87 } else { 0 })
        })
        .await;
        for driver_id in ["refused", "hangs-up", "a"] {
            broker.send(driver_id, Kind::Silent).await;
        }
        assert!(broker.answer(Duration::from_secs(10)).await.is_accepted);
        for _ in 0..200 {
            assert!(!broker.status.health.unready().is_empty());
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// The broker forbids one kind of event, until an operator mends its access rules.
    #[tokio::test]
    async fn refused_events_of_all_drivers_delay_no_other_kind() {
        const MANY: usize = WAITING_MAX + 10;
        let is_mended = Arc::new(AtomicBool::new(false));
        let is_allowed = Arc::clone(&is_mended);
        let mut broker = Broker::start(move |text, _| {
            let is_refused = text.contains("/contact") && !is_allowed.load(Ordering::Relaxed);
            Some(if is_refused { 0x87 } else { 0 })
        })
        .await;
        for n in 0..MANY {
            broker.send(&format!("d{n}"), Kind::Silent).await;
        }
        broker.send("a", Kind::Jump).await;
        let mut dropped = 0;
        loop {
            let answer = broker.answer(Duration::from_secs(30)).await;
            if answer.is_accepted {
                assert!(answer.id.starts_with("a/jump/"), "{answer:?}");
                break;
            }
            dropped += 1;
        }
        assert!((1..=11).contains(&dropped), "{dropped}");
        // The states that were dropped are published again once the broker accepts the others.
        is_mended.store(true, Ordering::Relaxed);
        let republished = broker.lost.wait_for(|times| *times == 2);
        assert!(timeout(Duration::from_secs(60), republished).await.is_ok());
    }

    fn order(kind: Kind, ts: i64, publish: fn(Event) -> Order) -> Order {
        let driver_id = "d".to_owned();
        let (fence, speed) = (String::new(), None);
        publish(Event {
            driver_id,
            kind,
            fence,
            ts,
            seq: 0,
            lat: 0.0,
            lng: 0.0,
            speed,
            known_at: 0,
        })
    }

    /// Returns the waiting orders, each as its kind and time.
    fn waiting(backlog: &Backlog) -> Vec<(Kind, i64)> {
        let orders = backlog.lanes.of_driver("d").map(|order| match order {
            Order::Publish(event) | Order::Republish(event) => (event.kind, event.ts),
            Order::Clear { .. } => unreachable!(),
        });
        orders.collect()
    }

    #[test]
    fn only_the_newest_state_of_a_topic_waits_behind_a_refusal() {
        let (now, mut backlog) = (Instant::now(), Backlog::default());
        let states = [Kind::Fast, Kind::Silent, Kind::Heard, Kind::Jump, Kind::Jump];
        for (kind, ts) in states.into_iter().zip(1..) {
            assert!(backlog.push(order(kind, ts, Order::Publish), now).is_empty());
        }
        let refused = backlog.lanes.take(Prospect::Sound, now).unwrap();
        backlog.lanes.retry(refused, now, now);
        let dropped = backlog.push(order(Kind::Slow, 6, Order::Publish), now);
        assert!(matches!(&*dropped, [(fast, NEWER_WAITS)] if fast.rule().0 == Kind::Fast));
        let expected = [
            (Kind::Silent, 2),
            (Kind::Heard, 3),
            (Kind::Jump, 4),
            (Kind::Jump, 5),
            (Kind::Slow, 6),
        ];
        assert_eq!(waiting(&backlog), expected);
        assert!(!backlog.has_gap && backlog.lanes.has_failed());
    }

    #[test]
    fn state_that_waits_is_not_enqueued_again_when_states_are_republished() {
        let (now, mut backlog) = (Instant::now(), Backlog::default());
        for kind in [Kind::Fast, Kind::Silent] {
            assert!(backlog.push(order(kind, 1, Order::Publish), now).is_empty());
        }
        assert!(backlog.push(order(Kind::Slow, 2, Order::Republish), now).is_empty());
        for _ in 0..2 {
            assert!(backlog.push(order(Kind::Silent, 1, Order::Republish), now).is_empty());
            assert!(backlog.push(order(Kind::Slow, 2, Order::Republish), now).is_empty());
        }
        assert_eq!(waiting(&backlog), [(Kind::Fast, 1), (Kind::Silent, 1), (Kind::Slow, 2)]);
        let older = backlog.push(order(Kind::Fast, 3, Order::Republish), now);
        assert!(matches!(&*older, [(Order::Republish(_), NEWER_WAITS)]));
    }

    #[test]
    fn all_older_states_of_a_topic_are_dropped_behind_a_refusal() {
        let (now, mut backlog) = (Instant::now(), Backlog::default());
        for (kind, ts) in [Kind::Jump, Kind::Silent, Kind::Heard].into_iter().zip(1..) {
            assert!(backlog.push(order(kind, ts, Order::Publish), now).is_empty());
        }
        let refused = backlog.lanes.take(Prospect::Sound, now).unwrap();
        backlog.lanes.requeue(refused, now, now);
        assert_eq!(backlog.push(order(Kind::Silent, 4, Order::Publish), now).len(), 2);
        assert_eq!(waiting(&backlog), [(Kind::Jump, 1), (Kind::Silent, 4)]);
        assert_eq!(backlog.lanes.len(), 2);
    }

    /// The rule of an event may be failing because the broker ended the connection at another
    /// driver's event.
    #[test]
    fn states_of_a_driver_without_a_failure_are_all_published() {
        let (now, mut backlog) = (Instant::now(), Backlog::default());
        backlog.lanes.push("x".to_owned(), (Kind::Silent, String::new()), silent("x"), now);
        let cause = backlog.lanes.take(Prospect::Sound, now).unwrap();
        backlog.lanes.retry(cause, now, now);
        for (kind, ts) in [(Kind::Silent, 1), (Kind::Heard, 2)] {
            assert!(backlog.push(order(kind, ts, Order::Publish), now).is_empty());
        }
        assert_eq!(waiting(&backlog), [(Kind::Silent, 1), (Kind::Heard, 2)]);
    }

    fn silent(driver_id: &str) -> Order {
        let Order::Publish(event) = order(Kind::Silent, 1, Order::Publish) else { unreachable!() };
        Order::Publish(Event { driver_id: driver_id.to_owned(), ..event })
    }

    /// Returns a backlog with full lanes, whose first order the broker refused.
    fn full(now: Instant) -> Backlog {
        let mut backlog = Backlog::default();
        assert!(backlog.push(silent("d0"), now).is_empty());
        let refused = backlog.lanes.take(Prospect::Sound, now).unwrap();
        backlog.lanes.requeue(refused, now, now);
        for n in 1..WAITING_MAX {
            assert!(backlog.push(silent(&format!("d{n}")), now).is_empty());
        }
        backlog
    }

    /// Requeues each sound order, as if the broker refused it.
    fn fail_sound(backlog: &mut Backlog, now: Instant) {
        while let Some(sound) = backlog.lanes.take(Prospect::Sound, now) {
            backlog.lanes.requeue(sound, now, now);
        }
    }

    /// If such an order were dropped, the retained message of an erased driver would stay at the
    /// broker.
    #[test]
    fn full_lanes_drop_no_order_that_clears_a_topic() {
        let now = Instant::now();
        let mut backlog = full(now);
        let clear = |driver_id: &str, kind| {
            let (driver_id, fence) = (driver_id.to_owned(), String::new());
            Order::Clear { driver_id, kind, fence }
        };
        for (driver_id, kind) in [("d0", Kind::Heard), ("d0", Kind::Fast), ("a", Kind::Silent)] {
            for _ in 0..2 {
                assert!(backlog.push(clear(driver_id, kind), now).is_empty());
            }
        }
        // The order that clears d0's contact topic replaced d0's event. This left room for one
        // order.
        assert!(backlog.push(silent("b"), now).is_empty());
        for n in 0..100 {
            assert_eq!(backlog.push(silent(&format!("c{n}")), now).len(), 1);
        }
        let clears = |driver_id| {
            let waiting = backlog.lanes.of_driver(driver_id);
            waiting.map(|order| matches!(order, Order::Clear { .. })).collect::<Vec<_>>()
        };
        assert_eq!((clears("d0"), clears("a")), (vec![true, true], vec![true]));
    }

    #[test]
    fn full_lanes_leave_orders_in_the_queue_while_the_broker_limits_the_rate() {
        let now = Instant::now();
        let (mut backlog, mut pauses) = (full(now), Pauses::new(now));
        fail_sound(&mut backlog, now);
        assert!(backlog.can_pull(&pauses, now));
        assert_eq!(pauses.refuse(0x87, Prospect::Sound, now), None);
        assert!(backlog.can_pull(&pauses, now));
        for (prospect, pause) in [(Prospect::Sound, Some(1)), (Prospect::Failed, None)] {
            assert_eq!(pauses.refuse(0x80, prospect, now), pause.map(Duration::from_secs));
            assert!(!backlog.can_pull(&pauses, now));
        }
        for pause in [2, 4, 8, 16, 30, 30] {
            let expected = Some(Duration::from_secs(pause));
            assert_eq!(pauses.refuse(QUOTA_EXCEEDED, Prospect::Failed, now), expected);
        }
        assert_eq!(pauses.end(Prospect::Sound, false), now + RETRY_PAUSE_MAX);
        assert!(!backlog.can_pull(&pauses, now));
    }

    /// If such a limit blocked the lanes, no order would be published any more: nothing else makes
    /// room.
    #[test]
    fn limit_that_ended_long_ago_does_not_block_full_lanes() {
        let now = Instant::now();
        let (mut backlog, mut pauses) = (full(now), Pauses::new(now));
        fail_sound(&mut backlog, now);
        pauses.refuse(QUOTA_EXCEEDED, Prospect::Sound, now);
        pauses.succeed();
        assert!(!backlog.can_pull(&pauses, now + LIMIT_LASTS));
        assert!(backlog.can_pull(&pauses, now + RETRY_PAUSE_MIN + LIMIT_LASTS));
    }

    /// A broker may always refuse one message with 0x83, and end the connection at all others.
    #[test]
    fn repeated_refusal_without_a_pause_extends_no_limit() {
        let now = Instant::now();
        let (mut backlog, mut pauses) = (full(now), Pauses::new(now));
        fail_sound(&mut backlog, now);
        let after = |s| now + Duration::from_secs(s);
        assert!(pauses.refuse(0x80, Prospect::Sound, now).is_some());
        assert_eq!(pauses.refuse(0x80, Prospect::Failed, after(50)), None);
        assert!(!backlog.can_pull(&pauses, after(60)));
        assert!(backlog.can_pull(&pauses, after(62)));
    }

    /// A broker limits the rate, and also refuses messages for another reason.
    #[tokio::test]
    async fn event_that_full_lanes_drop_between_two_limits_is_reported() {
        let now = Instant::now();
        let (mut backlog, mut pauses) = (full(now), Pauses::new(now));
        fail_sound(&mut backlog, now);
        pauses.refuse(QUOTA_EXCEEDED, Prospect::Failed, now);
        assert!(!backlog.can_pull(&pauses, now));
        pauses.refuse(0x87, Prospect::Failed, now);
        assert!(backlog.can_pull(&pauses, now));
        let (ends, _orders, mut answers) = QueueEnds::for_test();
        let mut outage = Outage::new(Channel::Mqtt, Arc::new(Status::new()));
        backlog.accept(silent("a"), now, &ends, &mut outage).await;
        let dropped = answers.try_recv().unwrap();
        assert!(!dropped.is_accepted && !dropped.is_repeated, "{dropped:?}");
        assert!(dropped.id.starts_with('d') && backlog.has_gap);
    }

    /// All orders are of a failing rule, and most were never tried: new orders must not replace
    /// these.
    #[test]
    fn full_lanes_leave_orders_in_the_queue_while_untried_ones_wait() {
        let now = Instant::now();
        let mut backlog = full(now);
        let cause = backlog.lanes.take(Prospect::Sound, now).unwrap();
        backlog.lanes.retry(cause, now, now);
        assert!(backlog.lanes.take(Prospect::Sound, now).is_none()); // all are of this rule
        assert!(backlog.lanes.is_full() && !backlog.can_pull(&Pauses::new(now), now));
    }

    /// A broker accepts a number of messages in each second.
    #[tokio::test]
    async fn broker_that_limits_the_rate_loses_no_state() {
        const MANY: usize = 2 * WAITING_MAX + 4_000;
        let window = std::sync::Mutex::new((Instant::now(), 0));
        let mut broker = Broker::start(move |_, _| {
            let (since, accepted) = &mut *window.lock().unwrap();
            if since.elapsed() >= Duration::from_secs(1) {
                (*since, *accepted) = (Instant::now(), 0);
            }
            *accepted += 1;
            Some(if *accepted > 4_000 { 0x97 } else { 0 })
        })
        .await;
        let orders = broker.orders.clone();
        tokio::spawn(async move {
            for n in 0..MANY {
                let Order::Publish(event) = order(Kind::Silent, 1, Order::Publish) else { return };
                let event = Event { driver_id: format!("d{n}"), ..event };
                orders.send(Order::Publish(event)).await.unwrap();
            }
        });
        for _ in 0..MANY {
            assert!(broker.answer(Duration::from_secs(20)).await.is_accepted);
        }
        assert_eq!(*broker.lost.borrow(), 1);
    }

    /// A broker ends the connection at a packet that is larger than it accepts.
    #[tokio::test]
    async fn event_that_is_too_large_for_the_broker_is_dropped() {
        let mut broker = Broker::start(|text, _| {
            Some(if text.contains("fleet/large/") { PACKET_TOO_LARGE } else { 0 })
        })
        .await;
        for (driver_id, is_accepted) in [("large", false), ("a", true)] {
            broker.send(driver_id, Kind::Silent).await;
            let answer = broker.answer(Duration::from_secs(5)).await;
            let is_of_driver = answer.id.starts_with(driver_id);
            assert!(is_of_driver && answer.is_accepted == is_accepted, "{answer:?}");
        }
    }

    #[tokio::test]
    async fn state_that_is_published_again_gets_an_answer() {
        let mut broker = Broker::start(|_, _| Some(0)).await;
        let orders =
            [Order::Republish, Order::Publish].map(|publish| order(Kind::Fast, 1, publish));
        for (order, is_repeated) in orders.into_iter().zip([true, false]) {
            broker.orders.send(order).await.unwrap();
            let answer = broker.answer(Duration::from_secs(5)).await;
            assert!(answer.is_accepted && answer.is_repeated == is_repeated, "{answer:?}");
        }
    }

    #[tokio::test]
    async fn event_behind_a_replaced_refused_event_is_published_soon() {
        let mut broker =
            Broker::start(|text, _| Some(if text.contains("/speed") { 0x87 } else { 0 })).await;
        broker.send("d", Kind::Fast).await;
        broker.send("d", Kind::Silent).await;
        sleep(Duration::from_millis(500)).await; // the first one is refused
        broker.send("d", Kind::Slow).await;
        for (kind, is_accepted) in [("fast", false), ("silent", true)] {
            let answer = broker.answer(Duration::from_secs(5)).await;
            assert!(answer.is_accepted == is_accepted && answer.id.contains(kind), "{answer:?}");
        }
    }

    /// The broker ends the connection at the events of some drivers.
    #[tokio::test]
    async fn driver_without_failures_does_not_wait_for_failing_drivers() {
        let mut broker = Broker::start(|text, _| (!text.contains("fleet/x")).then_some(0)).await;
        for n in 0..6 {
            broker.send(&format!("x{n}"), Kind::Silent).await;
        }
        sleep(Duration::from_secs(9)).await; // each has failed
        for driver_id in ["a", "b"] {
            broker.send(driver_id, Kind::Silent).await;
            let answer = broker.answer(Duration::from_secs(4)).await;
            assert!(answer.is_accepted && answer.id.starts_with(driver_id), "{answer:?}");
        }
    }

    /// Hundreds of drivers may have an event at which the broker hangs up.
    #[tokio::test]
    async fn messages_that_end_the_connection_leave_most_of_the_time_to_others() {
        let mut broker = Broker::start(|text, _| (!text.contains("/jump")).then_some(0)).await;
        for n in 0..100 {
            broker.send(&format!("x{n}"), Kind::Jump).await;
        }
        sleep(Duration::from_secs(4)).await; // some have failed
        for n in 0..200 {
            broker.send(&format!("a{n}"), Kind::Silent).await;
        }
        let delivered = async {
            for _ in 0..200 {
                assert!(broker.answers.recv().await.unwrap().is_accepted);
            }
        };
        assert!(timeout(Duration::from_secs(8), delivered).await.is_ok());
    }
}
