//! The broker: its terms, what it grants, and a message there and back.

use std::io;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::{Report, is_this_machine};
use crate::config::{Config, Mqtt};
use crate::insert::chain;
use crate::position::Qos;
use crate::tls::{self, Stream, Tls};
use crate::wire::{self, Grant, Hello, Input, Packet, Welcome, WireError};

/// How long connecting may take, and then each answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How long what the broker has kept for new subscribers may take.
const KEPT_WITHIN: Duration = Duration::from_millis(500);
/// Mosquitto's counter of messages that met a full queue; it keeps the last value for new subscribers.
const DROPPED_TOPIC: &str = "$SYS/broker/publish/messages/dropped";
/// PUBACK's reasons (MQTT 5, 3.4.2.1).
const NOT_AUTHORIZED: u8 = 0x87;
const REFUSED_FROM: u8 = 0x80;

/// One a process: two checks at once must not throw each other out, and the second connection of one ends the session
/// of the first.
static TAG: LazyLock<u32> = LazyLock::new(|| fastrand::u32(..));

#[derive(Debug, thiserror::Error)]
enum ProbeError {
    #[error(transparent)]
    NotReached(#[from] tls::Error),
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("the connection broke{}", tls::explain("mqtt", .0).map_or(String::new(), |words| format!(": {words}")))]
    Broken(#[from] io::Error),
    #[error("the broker closed the connection")]
    Closed,
    #[error("no answer within {ANSWER_WITHIN:?}")]
    Unanswered,
}

/// One connection with one question at a time.
struct Probe {
    stream: Box<dyn Stream>,
    input: Input,
}

impl Probe {
    /// Connects; `expiry` is that of its session, which begins anew.
    async fn open(
        mqtt: &Mqtt,
        login: Option<&(String, String)>,
        expiry: Duration,
    ) -> Result<(Self, Welcome), ProbeError> {
        let tls = mqtt.tls.clone().map(|files| Arc::new(Tls::new(files)));
        let opened = timeout(ANSWER_WITHIN, tls::open(mqtt.host.clone(), mqtt.port, tls)).await;
        let stream = opened.map_err(|_| ProbeError::Unanswered)??;
        let bytes_max = usize::try_from(mqtt.max_packet_bytes).unwrap_or(usize::MAX);
        let mut probe = Self { stream, input: Input::new(bytes_max) };
        let hello = Hello {
            client_id: format!("{}-check-{:08x}", mqtt.client_id, *TAG),
            clean_start: true,
            login,
            keep_alive_seconds: 60,
            session_expiry_seconds: u32::try_from(expiry.as_secs()).unwrap_or(u32::MAX),
            receive_maximum: mqtt.receive_maximum,
            packet_bytes_max: mqtt.max_packet_bytes,
        };
        let mut bytes = BytesMut::new();
        wire::put_connect(hello, &mut bytes)?;
        probe.say(&bytes).await?;
        let welcome = probe.hear(ANSWER_WITHIN, |packet| match packet {
            Packet::Connected(welcome) => Some(welcome),
            Packet::Published(_)
            | Packet::Acked(_)
            | Packet::Subscribed(_)
            | Packet::Unsubscribed
            | Packet::Pong => None,
        });
        let welcome = welcome.await?;
        Ok((probe, welcome))
    }

    async fn say(&mut self, bytes: &[u8]) -> Result<(), ProbeError> {
        let sent = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        Ok(timeout(ANSWER_WITHIN, sent).await.map_err(|_| ProbeError::Unanswered)??)
    }

    /// The first packet of which `pick` makes something.
    async fn hear<T>(
        &mut self,
        within: Duration,
        mut pick: impl FnMut(Packet<'_>) -> Option<T>,
    ) -> Result<T, ProbeError> {
        let heard = async {
            loop {
                while let Some(packet) = self.input.packet()? {
                    if let Some(picked) = pick(packet) {
                        return Ok(picked);
                    }
                }
                match self.stream.read(self.input.space()).await {
                    Ok(0) => return Err(ProbeError::Closed),
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                        return Err(ProbeError::Closed);
                    }
                    Err(error) => return Err(error.into()),
                    Ok(bytes) => self.input.came(bytes),
                }
            }
        };
        timeout(within, heard).await.unwrap_or(Err(ProbeError::Unanswered))
    }

    async fn subscribe(&mut self, filters: &[String], qos: Qos) -> Result<Vec<Grant>, ProbeError> {
        let mut bytes = BytesMut::new();
        wire::put_subscribe(filters, qos, &mut bytes)?;
        self.say(&bytes).await?;
        let grants = self.hear(ANSWER_WITHIN, |packet| match packet {
            Packet::Subscribed(grants) => Some(grants),
            Packet::Published(_)
            | Packet::Connected(_)
            | Packet::Acked(_)
            | Packet::Unsubscribed
            | Packet::Pong => None,
        });
        grants.await
    }

    async fn leave(mut self) {
        let mut bytes = BytesMut::new();
        if wire::put_disconnect(&mut bytes).is_ok() {
            let _ = self.say(&bytes).await; // it is over either way
        }
    }
}

/// Goes on until something does not work.
pub(super) async fn check(report: &mut Report, config: &Config, probe_topic: Option<&str>) {
    let mqtt = &config.mqtt;
    let login = match mqtt.password.as_ref().map(crate::config::Secret::read).transpose() {
        Ok(password) => mqtt.username.clone().map(|username| (username, password.unwrap_or_default())),
        Err(error) => return report.failure("broker", format!("mqtt.password_file cannot be read: {error}")),
    };
    let address = format!("{}:{}", mqtt.host, mqtt.port);
    let (probe, welcome) = match Probe::open(mqtt, login.as_ref(), mqtt.session_expiry).await {
        Ok(opened) => opened,
        Err(error) => return not_open(report, config, &address, &error),
    };
    probe.leave().await;
    report.ok("broker", format!("{address} answers in MQTT 5"));
    transport(report, config, login.is_some());
    terms(report, config, &welcome);
    if let Err(error) = subscription(report, config, login.as_ref()).await {
        return report.failure("subscription", chain(&error));
    }
    if let Err(error) = messages(report, config, login.as_ref(), probe_topic).await {
        report.failure("message", chain(&error));
    }
}

fn not_open(report: &mut Report, config: &Config, address: &str, error: &ProbeError) {
    let mqtt = &config.mqtt;
    let why = format!("{address}: {}", chain(error));
    match error {
        ProbeError::NotReached(tls::Error::Unreachable(_)) => {
            report.error("broker", why, "mqtt.url wants the host and port of a listener (MQTT 1883, TLS 8883), and the network must let us there");
        }
        ProbeError::NotReached(tls::Error::Handshake { .. } | tls::Error::File(_)) => {
            report.failure("broker", why)
        }
        ProbeError::Wire(WireError::Refused(_)) => report.failure("login", why),
        ProbeError::Wire(_) | ProbeError::Broken(_) | ProbeError::Closed | ProbeError::Unanswered => {
            report.error("broker", why, tls::is_this_the_port("mqtt", mqtt.tls.is_some()));
        }
    }
}

fn transport(report: &mut Report, config: &Config, with_login: bool) {
    let mqtt = &config.mqtt;
    match &mqtt.tls {
        Some(files) => {
            let by = files.ca.as_ref().map_or("a public CA".to_owned(), |path| path.display().to_string());
            report.ok("broker TLS", format!("its certificate is signed by {by}, and for {}", mqtt.host));
        }
        None if is_this_machine(&mqtt.host) => report.ok("broker TLS", "none, and the broker is this machine"),
        None => report.warning(
            "broker TLS",
            "positions and password pass in plain text",
            "mqtts:// in mqtt.url (EMQX: listeners.ssl.default; Mosquitto: a listener with certfile and keyfile), or a network of their own",
        ),
    }
    let certificate = mqtt.tls.as_ref().is_some_and(|files| files.cert.is_some());
    if with_login || certificate {
        let how = if certificate { "with a certificate" } else { "with a password" };
        report
            .ok("broker login", format!("{} is taken {how}", mqtt.username.as_deref().unwrap_or("our name")));
    } else if is_this_machine(&mqtt.host) {
        report.ok("broker login", "none, and the broker is this machine");
    } else {
        report.warning(
            "broker login",
            "none: anybody may send positions",
            "mqtt.username and mqtt.password_file here; EMQX: authentication; Mosquitto: allow_anonymous false and password_file",
        );
    }
}

/// What CONNACK says.
fn terms(report: &mut Report, config: &Config, welcome: &Welcome) {
    let mqtt = &config.mqtt;
    let theirs = welcome.receive_maximum.unwrap_or(u16::MAX);
    let window = usize::from(theirs.min(mqtt.receive_maximum));
    let wanted = (config.clickhouse.inserts_in_flight + 1) * config.batch.rows_max;
    let found = format!("{window} messages unacknowledged, for batches of {}", config.batch.rows_max);
    if window >= wanted {
        report.ok("window", found);
    } else if theirs < mqtt.receive_maximum {
        report.warning(
            "window",
            format!("{found}: {wanted} keep {} inserts busy", config.clickhouse.inserts_in_flight),
            "the broker gives no more: EMQX: mqtt.max_inflight = 65535; Mosquitto: max_inflight_messages 65535",
        );
    } else {
        let advice = format!("milepost: mqtt.receive_maximum = {wanted}, at most 65535");
        report.warning(
            "window",
            format!("{found}: {wanted} keep {} inserts busy", config.clickhouse.inserts_in_flight),
            advice,
        );
    }

    let ours = mqtt.max_packet_bytes;
    match welcome.packet_bytes_max {
        Some(theirs) if theirs <= ours => report.ok("packet size", format!("the broker takes {theirs} bytes, and we {ours}")),
        theirs => report.warning(
            "packet size",
            format!(
                "the broker takes {}, and we {ours}: what is between is dropped there",
                theirs.map_or("any size".to_owned(), |bytes| format!("{bytes} bytes"))
            ),
            format!("EMQX: mqtt.max_packet_size = {ours}B; Mosquitto: max_packet_size {ours}; or raise mqtt.max_packet_bytes here"),
        ),
    }

    let asked = mqtt.session_expiry.as_secs();
    match welcome.session_expiry_seconds.map(u64::from) {
        Some(granted) if granted < asked => report.error(
            "session expiry",
            format!("{granted} s granted, {asked} s asked for: a longer absence loses what the broker had queued"),
            "EMQX from 6.3 on: mqtt.max_session_expiry_interval; Mosquitto: persistent_client_expiration; or lower mqtt.session_expiry here",
        ),
        Some(_) | None => report.ok("session expiry", format!("{asked} s granted; a restart must be shorter")),
    }
}

fn share(mqtt: &Mqtt, topic: &str) -> String {
    format!("$share/{}-check/{topic}", mqtt.group)
}

/// A group of this run alone: another check's would get its share of our messages.
fn share_alone(mqtt: &Mqtt, topic: &str) -> String {
    format!("$share/{}-check-{}/{topic}", mqtt.group, fastrand::u32(..))
}

/// Its group gets copies of what is published meanwhile; its session, and they, end with it.
async fn subscription(
    report: &mut Report,
    config: &Config,
    login: Option<&(String, String)>,
) -> Result<(), ProbeError> {
    const ACL: &str = "EMQX acl.conf: {allow, {username, \"…\"}, subscribe, [{eq, \"…\"}]}; Mosquitto acl_file: topic read …";
    let mqtt = &config.mqtt;
    let (mut probe, welcome) = Probe::open(mqtt, login, Duration::ZERO).await?;
    let qos = if mqtt.qos == 0 { Qos::AtMostOnce } else { Qos::AtLeastOnce };
    let filters: Vec<String> = mqtt.topics.iter().map(|topic| share(mqtt, topic)).collect();
    if !welcome.shared_subscriptions {
        report.error(
            "subscription",
            "the broker has no shared subscriptions",
            "EMQX: mqtt.shared_subscription = true; another broker may need a licence or a plugin for them",
        );
        return Ok(());
    }
    let grants = probe.subscribe(&filters, qos).await?;
    probe.leave().await;
    for (index, filter) in filters.iter().enumerate() {
        match grants.get(index) {
            Some(Grant::Granted(Qos::AtMostOnce)) if qos == Qos::AtLeastOnce => report.error(
                "subscription",
                format!("{filter}: only QoS 0 granted, so nothing is acknowledged"),
                "EMQX: mqtt.max_qos_allowed = 2; or mqtt.qos = 0 here if losses are acceptable",
            ),
            Some(Grant::Granted(Qos::AtMostOnce | Qos::AtLeastOnce)) => {
                report.ok("subscription", format!("{filter} granted at QoS {}", mqtt.qos));
            }
            Some(Grant::NotAuthorized) => {
                report.error("subscription", format!("{filter}: not authorized"), format!("allow it: {ACL}"))
            }
            Some(Grant::NoSharedSubscriptions) => report.error(
                "subscription",
                format!("{filter}: the broker has no shared subscriptions"),
                "EMQX: mqtt.shared_subscription = true",
            ),
            Some(Grant::Refused(why)) => report.error(
                "subscription",
                format!("{filter}: {why}"),
                format!("see the broker's log; {ACL}"),
            ),
            None => report.failure("subscription", format!("{filter}: the broker did not answer to it")),
        }
    }
    Ok(())
}

/// What the broker has dropped, where it tells, and a message of ours there and back.
async fn messages(
    report: &mut Report,
    config: &Config,
    login: Option<&(String, String)>,
    probe_topic: Option<&str>,
) -> Result<(), ProbeError> {
    let mqtt = &config.mqtt;
    let (mut probe, _) = Probe::open(mqtt, login, Duration::ZERO).await?;
    let mut filters = vec![DROPPED_TOPIC.to_owned()];
    filters.extend(probe_topic.map(|topic| share_alone(mqtt, topic)));
    let grants = probe.subscribe(&filters, Qos::AtLeastOnce).await?;
    let dropped = probe.hear(KEPT_WITHIN, |packet| match packet {
        Packet::Published(publish) if publish.topic == DROPPED_TOPIC.as_bytes() => {
            std::str::from_utf8(publish.payload).ok()?.parse::<u64>().ok()
        }
        Packet::Published(_)
        | Packet::Connected(_)
        | Packet::Subscribed(_)
        | Packet::Acked(_)
        | Packet::Unsubscribed
        | Packet::Pong => None,
    });
    match dropped.await {
        Ok(0) => report.ok("queue drops", "none since the broker's start"),
        Ok(dropped) => report.warning(
            "queue drops",
            format!("{dropped} messages met a full queue since the broker's start"),
            "Mosquitto: max_queued_messages; and see why a subscriber was slow or away",
        ),
        Err(ProbeError::Unanswered) => report.ok(
            "queue drops",
            "not to be seen from here; EMQX: emqx_delivery_dropped_queue_full on its dashboard's /api/v5/prometheus/stats",
        ),
        Err(error) => return Err(error),
    }
    let Some(topic) = probe_topic else {
        probe.leave().await;
        report.ok("message", "none sent; --probe-topic drivers/ID/gps-check sends one and wants it back");
        return Ok(());
    };
    if !matches!(grants.get(1), Some(Grant::Granted(_))) {
        report.error(
            "message",
            format!("{topic}: the subscription is refused"),
            format!("allow it: EMQX acl.conf: {{allow, {{username, \"…\"}}, all, [\"{topic}\"]}}"),
        );
        return Ok(());
    }
    let payload = format!("milepost check {}", fastrand::u64(..));
    let mut bytes = BytesMut::new();
    wire::put_publish(topic, payload.as_bytes(), &mut bytes)?;
    let began = Instant::now();
    probe.say(&bytes).await?;
    let (mut acked, mut came) = (None, None);
    let both = probe.hear(ANSWER_WITHIN, |packet| {
        match packet {
            Packet::Acked(reason) => acked = Some(reason),
            Packet::Published(publish) if publish.payload == payload.as_bytes() => {
                came = Some(began.elapsed())
            }
            Packet::Published(_)
            | Packet::Connected(_)
            | Packet::Subscribed(_)
            | Packet::Unsubscribed
            | Packet::Pong => {}
        }
        let refused = acked.is_some_and(|reason| reason >= REFUSED_FROM);
        (refused || acked.is_some() && came.is_some()).then_some(())
    });
    match both.await {
        Ok(()) | Err(ProbeError::Unanswered) => {}
        Err(error) => return Err(error),
    }
    probe.leave().await;
    match (acked, came) {
        (Some(NOT_AUTHORIZED), _) => report.warning(
            "message",
            format!("{topic}: publishing is not authorized, so the way back is not known"),
            format!(
                "milepost never publishes; for this check alone: EMQX acl.conf: {{allow, {{username, \"…\"}}, publish, [\"{topic}\"]}}; Mosquitto acl_file: topic readwrite {topic}"
            ),
        ),
        (Some(reason), _) if reason >= REFUSED_FROM => report.warning("message", format!("{topic}: refused, reason {reason:#04x}"), "see the broker's log"),
        (Some(_), Some(after)) => report.ok("message", format!("{topic}: there and back in {after:.1?}")),
        (Some(_), None) => report.error(
            "message",
            format!("{topic}: taken by the broker, and not delivered to us within {ANSWER_WITHIN:?}"),
            "the access rules let this user publish, and not read: EMQX acl.conf: subscribe; Mosquitto acl_file: topic read …, for mqtt.topics too",
        ),
        (None, _) => report.error("message", format!("{topic}: the broker does not acknowledge it"), "see the broker's log"),
    }
    Ok(())
}
