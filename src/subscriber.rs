//! The lane's shell: one MQTT connection on a thread of its own. The only file that names rumqttc.
//!
//! Guarantee: only this loop polls the connection, and only it enqueues acknowledgements, between two polls:
//! so one of an old connection can never go out on a new one (rumqttc drops those still queued when a poll
//! fails, and the lane forgets the others). A pending poll is never dropped but to hang up, because rumqttc
//! connects, reads and writes inside it. Nothing here blocks for longer than [`PACE`].

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{
    ConnAck, DisconnectReasonCode, Filter, Packet, Publish, SubAck, SubscribeReasonCode,
};
use rumqttc::v5::{AsyncClient, ConnectionError, Event as MqttEvent, EventLoop, MqttOptions, StateError};
use rumqttc::{NetworkOptions, Outgoing};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep_until;
use tracing::{info, warn};

use crate::config;
use crate::health::Health;
use crate::insert::{Settled, Work, chain};
use crate::lane::{Command, Event, Lane, Link, Notice, Now, Totals};
use crate::metrics::Metrics;
use crate::position::Timestamp;
use crate::spool::Spool;

/// After a read that ran dry the thread sleeps this long. Brokers write each PUBLISH as a small segment, so
/// an eager reader pays an epoll and a recv for every message; this one pays them for a handful.
const PACE: Duration = Duration::from_millis(1);
/// An idle loop turns at least this often, to show that it lives.
const BEAT: Duration = Duration::from_secs(5);
/// How long TCP and MQTT connect may take together.
const CONNECT_SECONDS_MAX: u64 = 5;
/// Requests beside acknowledgements that can be queued: SUBSCRIBE, UNSUBSCRIBE of each topic, DISCONNECT.
const OTHER_REQUESTS_MAX: usize = 64;
/// Packet ids for SUBSCRIBE and UNSUBSCRIBE, which rumqttc takes from those for publishing.
const PACKET_IDS: u16 = 64;
/// Events handled in a row before the totals are published, when the connection never runs dry.
const EVENTS_PER_PUBLICATION: u32 = 1_024;

/// What `/readyz` says of a lane until its subscription is granted.
pub const NOT_SUBSCRIBED: &str = "not subscribed yet";

/// A lane's name in `/readyz` and `/livez`.
#[must_use]
pub fn part(lane: usize) -> String {
    format!("lane {lane}")
}

/// What a lane's thread works with.
#[derive(Debug)]
pub struct Wiring {
    /// Which lane.
    pub index: usize,
    /// The broker, and our place in it.
    pub mqtt: config::Mqtt,
    /// To the inserter: a place for every slot, and for what is spooled.
    pub work: mpsc::Sender<Work>,
    /// From the inserter.
    pub settled: mpsc::Receiver<Settled>,
    /// Where batches go that the lane gives away.
    pub spool: Option<Arc<Spool>>,
    /// Turns true when it is time to go.
    pub leave: watch::Receiver<bool>,
    /// Observations.
    pub metrics: Arc<Metrics>,
    /// Troubles.
    pub health: Arc<Health>,
}

/// Starts the lane's thread; the receiver gets its last totals, or an error if the thread died.
///
/// # Errors
/// The system gives no thread, or no runtime.
pub fn spawn(wiring: Wiring, lane: Lane) -> std::io::Result<oneshot::Receiver<Totals>> {
    let (ended, end) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name(format!("lane-{}", wiring.index)).spawn(move || {
        // Unconstrained: tokio's cooperative budget would make a full socket look dry.
        let totals = runtime.block_on(tokio::task::unconstrained(Subscriber::new(wiring, lane).run()));
        let _ = ended.send(totals);
    })?;
    Ok(end)
}

struct Subscriber {
    wiring: Wiring,
    lane: Lane,
    part: String,
    filters: Vec<String>,
    /// A PUBLISH with nothing but a packet id: what rumqttc wants in order to acknowledge one.
    ack: Publish,
    /// A publish came since the connection last ran dry.
    fresh: bool,
    events_unpublished: u32,
    last_event_at: Instant,
    /// Ours, or the server's where that is longer: nothing may be heard for as long as that.
    keep_alive: Duration,
    hang_up: bool,
    reported: Option<Link>,
}

/// How polling the connection ended.
#[expect(
    clippy::large_enum_variant,
    reason = "made and taken apart at once, a message; boxing would cost more"
)]
enum Polled {
    Event(MqttEvent),
    Failed(ConnectionError),
    /// The lane does not want this connection any longer.
    HungUp,
    /// Neither message nor ping for three times the keep-alive.
    Silent,
}

impl From<Result<MqttEvent, ConnectionError>> for Polled {
    fn from(result: Result<MqttEvent, ConnectionError>) -> Self {
        match result {
            Ok(event) => Self::Event(event),
            Err(error) => Self::Failed(error),
        }
    }
}

impl Subscriber {
    fn new(wiring: Wiring, lane: Lane) -> Self {
        let mqtt = &wiring.mqtt;
        let share = |topic: &String| format!("$share/{}/{topic}", mqtt.group);
        Self {
            part: part(wiring.index),
            filters: mqtt.topics.iter().map(share).collect(),
            ack: Publish { qos: QoS::AtLeastOnce, ..Publish::default() },
            fresh: false,
            events_unpublished: 0,
            last_event_at: Instant::now(),
            keep_alive: wiring.mqtt.keep_alive,
            hang_up: false,
            reported: None,
            lane,
            wiring,
        }
    }

    async fn run(mut self) -> Totals {
        let (mut client, mut connection) = self.connect();
        loop {
            self.obey(&client);
            if self.hang_up {
                self.hang_up(&mut connection);
                continue;
            }
            match self.lane.link() {
                Link::Ended => break,
                Link::Resting { .. } => {
                    self.publish_totals();
                    self.wait().await;
                    self.last_event_at = Instant::now();
                    continue;
                }
                Link::Connecting | Link::Subscribing | Link::Live { .. } | Link::Closing { .. } => {}
            }
            match self.poll(&client, &mut connection).await {
                Polled::Event(event) => self.translate(event),
                Polled::Failed(error) => {
                    forget_old_connection(&mut connection);
                    self.disconnected(&error);
                    self.refresh(&mut connection.options);
                }
                Polled::HungUp => self.hang_up(&mut connection),
                Polled::Silent => {
                    warn!(
                        lane = self.wiring.index,
                        "the connection hangs: neither message nor ping; starting anew"
                    );
                    (client, connection) = self.connect();
                    self.last_event_at = Instant::now();
                    self.tell(Event::Disconnected { taken_over: false });
                }
            }
        }
        self.publish_totals();
        self.lane.totals()
    }

    /// Closes the connection, and sees to it that the lane knows: rows and acknowledgements of this one must
    /// not meet the next.
    fn hang_up(&mut self, connection: &mut EventLoop) {
        self.hang_up = false;
        connection.clean();
        forget_old_connection(connection);
        self.refresh(&mut connection.options);
        self.last_event_at = Instant::now();
        if !matches!(self.lane.link(), Link::Resting { .. } | Link::Ended) {
            self.tell(Event::Disconnected { taken_over: false });
        }
    }

    fn connect(&self) -> (AsyncClient, EventLoop) {
        let mqtt = &self.wiring.mqtt;
        let client_id = format!("{}-{}", mqtt.client_id, self.wiring.index);
        let mut options = MqttOptions::new(client_id, &mqtt.host, mqtt.port);
        let mut network = NetworkOptions::new();
        network.set_tcp_nodelay(true);
        options
            .set_keep_alive(mqtt.keep_alive)
            .set_manual_acks(true)
            .set_clean_start(false) // the default would throw the unacknowledged window away
            .set_receive_maximum(Some(mqtt.receive_maximum))
            .set_max_packet_size(Some(mqtt.max_packet_bytes))
            .set_outgoing_inflight_upper_limit(PACKET_IDS) // we publish nothing, and each slot is memory
            .set_connection_timeout(CONNECT_SECONDS_MAX)
            .set_network_options(network);
        self.refresh(&mut options);
        AsyncClient::new(options, usize::from(mqtt.receive_maximum) + OTHER_REQUESTS_MAX)
    }

    /// What may change between two connections: the password's file, and what rumqttc overwrote with the
    /// last server's wishes.
    fn refresh(&self, options: &mut MqttOptions) {
        let mqtt = &self.wiring.mqtt;
        let expiry_seconds = u32::try_from(mqtt.session_expiry.as_secs()).unwrap_or(u32::MAX);
        options.set_session_expiry_interval(Some(expiry_seconds));
        options.set_keep_alive(mqtt.keep_alive);
        let password = match mqtt.password.as_ref().map(config::Secret::read).transpose() {
            Ok(password) => password.unwrap_or_default(),
            Err(error) => {
                warn!(lane = self.wiring.index, %error, "mqtt.password_file cannot be read; keeping the last password");
                return;
            }
        };
        if let Some(username) = &mqtt.username {
            options.set_credentials(username, password);
        }
    }

    /// Polls until there is something to say to the lane about the connection; serves it meanwhile.
    async fn poll(&mut self, client: &AsyncClient, connection: &mut EventLoop) -> Polled {
        let mut poll = pin!(connection.poll());
        loop {
            if !self.lane.is_holding()
                && let Poll::Ready(result) = poll_fn(|cx| Poll::Ready(poll.as_mut().poll(cx))).await
            {
                self.last_event_at = Instant::now();
                self.serve_settled();
                return result.into();
            }
            self.publish_totals();
            if std::mem::take(&mut self.fresh) {
                thread::sleep(PACE);
            }
            let silent_at = self.last_event_at + 3 * self.keep_alive;
            tokio::select! {
                result = &mut poll, if !self.lane.is_holding() => {
                    self.last_event_at = Instant::now();
                    return result.into();
                }
                () = self.wait() => {}
            }
            self.obey(client);
            if self.hang_up || matches!(self.lane.link(), Link::Ended | Link::Resting { .. }) {
                return Polled::HungUp;
            }
            if self.lane.is_holding() {
                self.last_event_at = Instant::now();
            } else if Instant::now() >= silent_at {
                return Polled::Silent;
            }
        }
    }

    /// Waits for anything but the connection, and tells the lane.
    async fn wait(&mut self) {
        let beat = Instant::now() + BEAT;
        let until = self.lane.deadline().map_or(beat, |deadline| deadline.min(beat));
        tokio::select! {
            Some(settled) = self.wiring.settled.recv() => self.settled(&settled),
            Ok(()) = self.wiring.leave.changed() => self.tell(Event::Leave),
            () = sleep_until(until.into()) => self.tell(Event::Tick),
        }
    }

    /// What settled while a connection that never runs dry kept us busy.
    fn serve_settled(&mut self) {
        while let Ok(settled) = self.wiring.settled.try_recv() {
            self.settled(&settled);
        }
        self.events_unpublished += 1;
        if self.events_unpublished >= EVENTS_PER_PUBLICATION {
            self.publish_totals();
            if self.wiring.leave.has_changed().unwrap_or(false) {
                self.wiring.leave.mark_unchanged();
                self.tell(Event::Leave);
            }
        }
    }

    fn settled(&mut self, settled: &Settled) {
        self.tell(Event::Settled { batch: settled.batch, fate: settled.fate });
        if let (Some(entry), Some(spool)) = (settled.entry, &self.wiring.spool) {
            // Counted as the spool's before it can leave the spool.
            self.wiring.metrics.handed_to_spool(self.wiring.index, self.lane.totals(), entry.positions);
            spool.release(entry);
        }
    }

    fn tell(&mut self, event: Event<'_>) {
        self.lane.handle(event, read_clocks());
    }

    fn translate(&mut self, event: MqttEvent) {
        let packet = match event {
            MqttEvent::Incoming(packet) => packet,
            MqttEvent::Outgoing(Outgoing::Disconnect) => return self.tell(Event::DisconnectSent),
            MqttEvent::Outgoing(_) => return,
        };
        match packet {
            Packet::Publish(publish) => {
                self.fresh = true;
                self.tell(Event::Published {
                    topic: &publish.topic,
                    payload: &publish.payload,
                    packet_id: (publish.qos != QoS::AtMostOnce).then_some(publish.pkid),
                });
            }
            Packet::ConnAck(answer) => self.connected(&answer),
            Packet::SubAck(answer) => {
                let refusals = self.refusals(&answer);
                self.tell(Event::Subscribed { refusals });
            }
            Packet::UnsubAck(_) => self.tell(Event::Unsubscribed),
            Packet::Auth(_)
            | Packet::Connect(..)
            | Packet::PubAck(_)
            | Packet::PingReq(_)
            | Packet::PingResp(_)
            | Packet::Subscribe(_)
            | Packet::PubRec(_)
            | Packet::PubRel(_)
            | Packet::PubComp(_)
            | Packet::Unsubscribe(_)
            | Packet::Disconnect(_) => {}
        }
    }

    fn connected(&mut self, answer: &ConnAck) {
        let properties = answer.properties.as_ref();
        let server_keep_alive = properties.and_then(|properties| properties.server_keep_alive);
        let server_keep_alive = Duration::from_secs(server_keep_alive.unwrap_or(0).into());
        self.keep_alive = self.wiring.mqtt.keep_alive.max(server_keep_alive);
        let asked = self.wiring.mqtt.session_expiry;
        if let Some(granted) = properties.and_then(|properties| properties.session_expiry_interval)
            && u64::from(granted) < asked.as_secs()
        {
            warn!(
                lane = self.wiring.index,
                granted_s = granted,
                asked_s = asked.as_secs(),
                "the broker keeps our session shorter than mqtt.session_expiry: a longer absence loses what it queued"
            );
        }
        self.tell(Event::Connected {
            session_present: answer.session_present,
            receive_maximum: properties.and_then(|properties| properties.receive_max),
        });
    }

    fn refusals(&self, answer: &SubAck) -> Vec<String> {
        let asked = wanted_qos(self.wiring.mqtt.qos);
        let refusal = |(filter, code): (&String, &SubscribeReasonCode)| match code {
            SubscribeReasonCode::Success(granted) if *granted >= asked => None,
            SubscribeReasonCode::Success(granted) => {
                Some(format!("{filter}: only {granted:?} granted; set mqtt.qos = 0 if losses are acceptable"))
            }
            SubscribeReasonCode::NotAuthorized => {
                Some(format!("{filter}: not authorized; let this user subscribe to it in the broker's ACL"))
            }
            SubscribeReasonCode::SharedSubscriptionsNotSupported => {
                Some(format!("{filter}: the broker has no shared subscriptions; enable them there"))
            }
            SubscribeReasonCode::Failure
            | SubscribeReasonCode::Unspecified
            | SubscribeReasonCode::ImplementationSpecific
            | SubscribeReasonCode::TopicFilterInvalid
            | SubscribeReasonCode::PkidInUse
            | SubscribeReasonCode::QuotaExceeded
            | SubscribeReasonCode::SubscriptionIdNotSupported
            | SubscribeReasonCode::WildcardSubscriptionsNotSupported => Some(format!("{filter}: {code:?}")),
        };
        self.filters.iter().zip(&answer.return_codes).filter_map(refusal).collect()
    }

    fn disconnected(&mut self, error: &ConnectionError) {
        let taken_over = matches!(
            error,
            ConnectionError::MqttState(StateError::ServerDisconnect {
                reason_code: DisconnectReasonCode::SessionTakenOver,
                ..
            })
        );
        let leaving = matches!(self.lane.link(), Link::Closing { .. });
        self.tell(Event::Disconnected { taken_over });
        if let Link::Resting { until } = self.lane.link() {
            let retry_in = until.saturating_duration_since(Instant::now());
            self.wiring.health.trouble(&self.part, format!("no connection: {}", chain(error)));
            warn!(
                lane = self.wiring.index,
                broker = %format_args!("{}:{}", self.wiring.mqtt.host, self.wiring.mqtt.port),
                ?retry_in,
                error = %chain(error),
                "no connection"
            );
        } else if leaving {
            info!(lane = self.wiring.index, "disconnected");
        }
    }

    /// Carries out what the lane wants. Everything here is a hand-over that cannot block.
    fn obey(&mut self, client: &AsyncClient) {
        self.obey_commands(client);
        if self.send_acks(client) {
            // Leaving waits for the last acknowledgement, and nothing else may come to wake it.
            self.tell(Event::Tick);
            self.obey_commands(client);
        }
    }

    fn obey_commands(&mut self, client: &AsyncClient) {
        while let Some(command) = self.lane.command() {
            match command {
                Command::Insert(batch) => self.hand_over(Work::Insert(batch)),
                Command::Spool(batch) => self.hand_over(Work::Spool(batch)),
                Command::SaveUnderWay => self.hand_over(Work::SaveUnderWay),
                Command::Subscribe => {
                    let qos = wanted_qos(self.wiring.mqtt.qos);
                    let filters = self.filters.iter().map(|filter| Filter::new(filter, qos));
                    self.hang_up |= client.try_subscribe_many(filters).is_err();
                }
                Command::Unsubscribe => {
                    for filter in &self.filters {
                        self.hang_up |= client.try_unsubscribe(filter).is_err();
                    }
                }
                Command::Disconnect => self.hang_up |= client.try_disconnect().is_err(),
                Command::HangUp => self.hang_up = true,
                Command::Log(notice) => self.log(&notice),
            }
        }
    }

    /// There is a place for everything, so only an inserter that is gone refuses; and then the process is ending,
    /// and the broker still holds the batch.
    fn hand_over(&self, work: Work) {
        if self.wiring.work.try_send(work).is_err() {
            warn!(lane = self.wiring.index, "the inserter is gone: a batch stays with the broker");
        }
    }

    /// `true` if any was sent.
    fn send_acks(&mut self, client: &AsyncClient) -> bool {
        let mut sent_any = false;
        while let Some(packet_id) = self.lane.ack_due() {
            self.ack.pkid = packet_id;
            if client.try_ack(&self.ack).is_err() {
                break; // full: stays first, and is offered again after the next poll
            }
            self.lane.ack_sent();
            sent_any = true;
        }
        sent_any
    }

    fn log(&self, notice: &Notice) {
        let lane = self.wiring.index;
        match notice {
            Notice::Connected { .. } => info!(lane, "{notice}"),
            Notice::WindowSmall { .. }
            | Notice::SessionLost { .. }
            | Notice::Abandoned { .. }
            | Notice::SubscriptionRefused(_)
            | Notice::TakenOver
            | Notice::BufferFull
            | Notice::BufferStayedFull
            | Notice::Spooling { .. }
            | Notice::Shedding
            | Notice::SheddingWhileLeaving => warn!(lane, "{notice}"),
        }
        if let Notice::SubscriptionRefused(_) | Notice::TakenOver | Notice::BufferStayedFull = notice {
            self.wiring.health.trouble(&self.part, notice.to_string());
        }
    }

    /// Makes the lane's state visible.
    fn publish_totals(&mut self) {
        self.events_unpublished = 0;
        self.wiring.metrics.lane(self.wiring.index, self.lane.totals());
        self.wiring.health.beat(&self.part, Instant::now());
        let link = self.lane.link();
        if self.reported.replace(link) == Some(link) {
            return;
        }
        match link {
            Link::Live { .. } => {
                info!(lane = self.wiring.index, filters = ?self.filters, "subscribed");
                self.wiring.health.fine(&self.part);
            }
            Link::Connecting | Link::Subscribing => {
                self.wiring.health.trouble(&self.part, NOT_SUBSCRIBED);
            }
            Link::Closing { .. } | Link::Ended => {
                self.wiring.health.trouble(&self.part, "leaving");
            }
            // The reason was set where it happened, or the next state says it.
            Link::Resting { .. } => {}
        }
    }
}

/// Publishes already decoded, and requests not yet sent, belong to the connection that is gone.
fn forget_old_connection(connection: &mut EventLoop) {
    connection.state.events.clear();
    connection.pending.clear();
}

fn wanted_qos(qos: u8) -> QoS {
    if qos == 0 { QoS::AtMostOnce } else { QoS::AtLeastOnce }
}

#[expect(clippy::disallowed_methods, reason = "this is the shell that reads the clocks for the lane")]
fn read_clocks() -> Now {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let unix_ms = i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX);
    Now { instant: Instant::now(), wall: Timestamp::from_unix_ms(unix_ms) }
}
