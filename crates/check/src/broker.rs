//! Checks the broker: the limits in its CONNACK, the granted subscriptions, and a message that is
//! published and received.

use std::time::{Duration, Instant};

use bytes::BytesMut;

use super::cluster;
use super::report::Report;
use milepost_command::client::{
    self, ANSWER_TIMEOUT, BrokerTarget, Client, ClientError, RETAINED_TIMEOUT, filter_in_own_group,
};
use milepost_config::Config;
use milepost_core::Qos;
use milepost_core::consumer::broker_drops::FILTER;
use milepost_core::consumer::{Connections, TYPICAL_ACK_TIME};
use milepost_core::error_chain;
use milepost_core::session::ConnAck;
use milepost_mqtt as codec;
use milepost_mqtt::{CodecError, Grant, Packet};
use milepost_tls as tls;
use milepost_tls::nodes;
use milepost_tls::{Address, Server};

/// Topic on which Mosquitto retains the number of messages that it dropped at full queues.
const DROPPED_TOPIC: &str = "$SYS/broker/publish/messages/dropped";
/// Reason code of a PUBACK: the client may not publish to this topic (MQTT 5, 3.4.2.1).
const NOT_AUTHORIZED: u8 = 0x87;
/// Lowest reason code of a PUBACK with which the broker refuses the message.
const ERROR_REASON_MIN: u8 = 0x80;

/// Checks whether each node answers. Checks the first node that answers in detail, until a step
/// fails.
pub(super) async fn check(report: &mut Report, config: &Config, probe_topic: Option<&str>) {
    let mqtt = &config.mqtt;
    let login = match client::login(mqtt) {
        Ok(login) => login,
        Err(error) => {
            return report.error_without_advice(
                "broker",
                format!("mqtt.password_file cannot be read: {error}"),
            );
        }
    };
    let nodes = nodes::resolve(&mqtt.nodes, &[]).await;
    let target = |node| BrokerTarget { mqtt, node, login: login.as_ref() };
    let mut open = Vec::new();
    for target in nodes.iter().map(target) {
        // Request the configured session expiry: the CONNACK says how much of it the broker grants.
        match Client::open(target, mqtt.session_expiry).await {
            Ok((probe, connack)) => {
                probe.leave().await;
                report.ok("broker", format!("{} answers in MQTT 5", target.node));
                open.push((target, connack));
            }
            Err(error) => report_connect_error(report, config, target.node, &error),
        }
    }
    let Some((target, connack)) = open.first() else { return };
    check_transport(report, config, *target);
    check_limits(report, config, connack, nodes.len());
    if let Err(error) = check_subscription(report, config, *target).await {
        return report.error_without_advice("subscription", error_chain(&error));
    }
    check_queue_drops(report, *target).await;
    if let Err(error) = check_message(report, *target, probe_topic).await {
        return report.error_without_advice("message", error_chain(&error));
    }
    let targets: Vec<_> = open.iter().map(|(target, _)| *target).collect();
    if let Err(error) = cluster::check(report, &targets, probe_topic).await {
        report.error_without_advice("cluster", error_chain(&error));
    }
}

fn report_connect_error(
    report: &mut Report,
    config: &Config,
    address: &Address,
    error: &ClientError,
) {
    let mqtt = &config.mqtt;
    let why = format!("{address}: {}", error_chain(error));
    match error {
        ClientError::NotReached(tls::Error::Unreachable(_)) => {
            report.error(
                "broker",
                why,
                "set mqtt.url to the host and port of a listener (MQTT 1883, TLS 8883), and allow \
                 connections to it",
            );
        }
        ClientError::NotReached(tls::Error::Handshake { .. } | tls::Error::File(_)) => {
            report.error_without_advice("broker", why)
        }
        // A starting broker may refuse a CONNECT as busy, but the client has already repeated the
        // CONNECT for as long as a start may take.
        ClientError::Codec(CodecError::Refused { reason, .. }) if client::BUSY.contains(reason) => {
            report.error("broker", why, "see the broker's log for why it accepts no clients");
        }
        ClientError::Codec(CodecError::Refused { .. }) => report.error_without_advice("login", why),
        ClientError::Codec(_)
        | ClientError::Broken(_)
        | ClientError::Closed
        | ClientError::Unanswered => {
            report.error("broker", why, tls::port_hint(Server::Broker, mqtt.tls.is_some()));
        }
    }
}

/// Reports whether the connection is encrypted, and how the client logs in.
fn check_transport(
    report: &mut Report,
    config: &Config,
    BrokerTarget { node, login, .. }: BrokerTarget<'_>,
) {
    let mqtt = &config.mqtt;
    let advice = "use mqtts:// in mqtt.url (EMQX: listeners.ssl.default; Mosquitto: a listener \
                  with certfile and keyfile)";
    report.transport(["broker TLS", "broker"], mqtt.tls.as_ref(), &node.host, advice);
    let has_certificate = mqtt.tls.as_ref().is_some_and(|files| files.cert.is_some());
    if login.is_some() || has_certificate {
        let how = match (has_certificate, &mqtt.password) {
            (true, _) => "with a certificate",
            (false, Some(_)) => "with a password",
            (false, None) => "without a password",
        };
        report.ok(
            "broker login",
            format!(
                "the broker accepts {} {how}",
                mqtt.username.as_deref().unwrap_or("the client")
            ),
        );
    } else if tls::is_this_machine(&node.host) {
        report.ok("broker login", "not needed: the broker runs on this machine");
    } else {
        report.warning(
            "broker login",
            "none: anyone can publish positions",
            "set mqtt.username and mqtt.password_file here; EMQX: authentication; Mosquitto: \
             allow_anonymous false and password_file",
        );
    }
}

/// Checks the window, the packet size and the session expiry of the CONNACK.
fn check_limits(report: &mut Report, config: &Config, connack: &ConnAck, nodes: usize) {
    check_window(report, config, connack, nodes);
    let mqtt = &config.mqtt;
    let own_max = mqtt.max_packet_bytes;
    match connack.packet_bytes_max {
        Some(broker_max) if broker_max <= own_max => report.ok(
            "packet size",
            format!("the broker accepts {broker_max} bytes, milepost {own_max}"),
        ),
        broker_max => report.warning(
            "packet size",
            format!(
                "the broker accepts {}, milepost {own_max}: the broker drops packets that milepost \
                 does not accept",
                broker_max.map_or("any size".to_owned(), |bytes| format!("{bytes} bytes"))
            ),
            format!(
                "EMQX: mqtt.max_packet_size = {own_max}B; Mosquitto: max_packet_size {own_max}; or \
                 raise mqtt.max_packet_bytes here"
            ),
        ),
    }

    let requested = mqtt.session_expiry.as_secs();
    match connack.session_expiry_seconds.map(u64::from) {
        Some(granted) if granted < requested => report.error(
            "session expiry",
            format!(
                "{granted} s granted, {requested} s requested: after a longer absence the broker \
                 drops the queued messages"
            ),
            "EMQX from 6.3 on: mqtt.max_session_expiry_interval; Mosquitto: \
             persistent_client_expiration; or lower mqtt.session_expiry here",
        ),
        Some(_) | None => {
            report.ok("session expiry", format!("{requested} s granted; a restart must take less"))
        }
    }
}

/// Throughput in messages per second below which even a small fleet loses messages.
const RATE_MIN: usize = 1_000;

/// Checks the throughput that the windows of all sessions allow.
fn check_window(report: &mut Report, config: &Config, connack: &ConnAck, nodes: usize) {
    let mqtt = &config.mqtt;
    let broker_max = connack.receive_maximum.unwrap_or(u16::MAX);
    let session_window = usize::from(broker_max.min(mqtt.receive_maximum)).max(1);
    // The windows should hold one batch per insert in flight, and the open batch.
    let wanted = (config.clickhouse.inserts_in_flight + 1) * config.batch.rows_max;
    let sessions = match mqtt.connections {
        Connections::Auto => Connections::auto(wanted.div_ceil(session_window).max(nodes)),
        Connections::Fixed(number) => number,
    };
    let window = session_window * sessions;
    let found = format!(
        "{window} messages in flight ({sessions} sessions of {session_window}), for batches of {}",
        config.batch.rows_max
    );
    if window >= wanted {
        return report.ok("window", found);
    }
    let rate = window * 1_000 / usize::try_from(TYPICAL_ACK_TIME.as_millis()).unwrap_or(usize::MAX);
    let found = format!(
        "{found}: at most about {rate} messages/s; above that the broker's queue overflows and \
         drops the oldest. {wanted} in flight keep {} inserts busy",
        config.clickhouse.inserts_in_flight
    );
    let advice = if broker_max < mqtt.receive_maximum {
        "the broker allows no more: in EMQX set mqtt.max_inflight = 32000 (in the zone of \
         milepost's listener), in Mosquitto max_inflight_messages 32000; also raise the queue: \
         mqtt.max_mqueue_len, max_queued_messages"
            .to_owned()
    } else {
        format!(
            "set mqtt.connections = \"auto\", or to {} (64 at most)",
            wanted.div_ceil(session_window)
        )
    };
    if rate < RATE_MIN {
        report.error("window", found, advice)
    } else {
        report.warning("window", found, advice)
    }
}

/// Checks that the broker grants the topics of all sources. The subscriptions have a share group of
/// their own, which receives copies of messages until its session ends.
async fn check_subscription(
    report: &mut Report,
    config: &Config,
    target: BrokerTarget<'_>,
) -> Result<(), ClientError> {
    const ACL: &str = "EMQX acl.conf: {allow, {username, \"…\"}, subscribe, [{eq, \"…\"}]}; \
                       Mosquitto acl_file: topic read …";
    let mqtt = &config.mqtt;
    let (mut probe, connack) = Client::open(target, Duration::ZERO).await?;
    let qos = mqtt.qos;
    let filters: Vec<String> =
        mqtt.topics.iter().map(|topic| format!("$share/{}-check/{topic}", mqtt.group)).collect();
    if connack.no_shared_subscriptions {
        report.error(
            "subscription",
            "the broker has no shared subscriptions",
            "EMQX: mqtt.shared_subscription = true; another broker may need a licence or a plugin \
             for them",
        );
        return Ok(());
    }
    let grants = probe.subscribe(&filters, qos).await?;
    probe.leave().await;
    for (index, filter) in filters.iter().enumerate() {
        match grants.get(index) {
            Some(Grant::Granted(Qos::AtMostOnce)) if qos == Qos::AtLeastOnce => report.error(
                "subscription",
                format!("{filter}: only QoS 0 granted, so milepost cannot acknowledge"),
                "EMQX: mqtt.max_qos_allowed = 2",
            ),
            Some(Grant::Granted(Qos::AtMostOnce | Qos::AtLeastOnce)) => {
                report.ok("subscription", format!("{filter} granted at QoS {}", qos.number()));
            }
            Some(Grant::NotAuthorized) => report.error(
                "subscription",
                format!("{filter}: not authorized"),
                format!("allow it: {ACL}"),
            ),
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
            None => report.error_without_advice(
                "subscription",
                format!("{filter}: no answer from the broker"),
            ),
        }
    }
    Ok(())
}

/// Checks the counters of messages that the broker dropped: EMQX's if `mqtt.broker_metrics` is set,
/// else Mosquitto's.
async fn check_queue_drops(report: &mut Report, target: BrokerTarget<'_>) {
    if target.mqtt.broker_metrics {
        match check_broker_metrics(report, target).await {
            true => report
                .ok("queue drops", "counted while milepost runs: milepost_broker_dropped_total"),
            false => report.ok("queue drops", "not visible: the line \"broker metrics\" says why"),
        }
        return;
    }
    match dropped_messages(target).await {
        Ok(Some(0)) => report.ok("queue drops", "none since the broker's start"),
        Ok(Some(dropped)) => report.warning(
            "queue drops",
            format!("{dropped} messages dropped at a full queue since the broker's start"),
            "Mosquitto: max_queued_messages; and find out why a subscriber was slow or \
             disconnected",
        ),
        Ok(None) => report.ok(
            "queue drops",
            "not visible here; EMQX: set mqtt.broker_metrics = true, or read \
             emqx_delivery_dropped_queue_full on its dashboard's /api/v5/prometheus/stats",
        ),
        Err(error) => report.error_without_advice("queue drops", error_chain(&error)),
    }
}

/// Reports and returns whether the broker grants a subscription to its counters. Uses a separate
/// connection, because some brokers close the connection instead of refusing the subscription.
async fn check_broker_metrics(report: &mut Report, target: BrokerTarget<'_>) -> bool {
    const ACL: &str = "EMQX acl.conf: {allow, {username, \"…\"}, subscribe, [{eq, \
                       \"$SYS/brokers/+/metrics/#\"}]}; or mqtt.broker_metrics = false";
    let granted = async {
        let (mut probe, _) = Client::open(target, Duration::ZERO).await?;
        let grants = probe.subscribe(&[FILTER.to_owned()], Qos::AtMostOnce).await?;
        probe.leave().await;
        Ok::<_, ClientError>(matches!(grants.first(), Some(Grant::Granted(_))))
    };
    match granted.await {
        Ok(true) => {
            report.ok("broker metrics", format!("{FILTER} granted: milepost_broker_dropped_total"));
            return true;
        }
        Ok(false) => report.warning("broker metrics", format!("{FILTER}: not granted"), ACL),
        Err(error) if error.is_hang_up() => {
            report.warning(
                "broker metrics",
                format!("{FILTER}: no answer: {}", error_chain(&error)),
                ACL,
            );
        }
        // The connection failed, so the access rules are not the cause.
        Err(error) => report.error_without_advice("broker metrics", error_chain(&error)),
    }
    false
}

/// Returns Mosquitto's counter of dropped messages; `None` if the broker has none, or hides it from
/// this user.
async fn dropped_messages(target: BrokerTarget<'_>) -> Result<Option<u64>, ClientError> {
    let (mut probe, _) = Client::open(target, Duration::ZERO).await?;
    let received = async {
        probe.subscribe(&[DROPPED_TOPIC.to_owned()], Qos::AtMostOnce).await?;
        let counter = probe.wait_for(RETAINED_TIMEOUT, |packet| {
            let Packet::Published(publish) = packet else { return None };
            let dropped = std::str::from_utf8(publish.payload).ok()?.parse::<u64>().ok()?;
            (publish.topic == DROPPED_TOPIC.as_bytes()).then_some(dropped)
        });
        counter.await
    };
    match received.await {
        Ok(dropped) => {
            probe.leave().await;
            Ok(Some(dropped))
        }
        Err(error) if error.is_hang_up() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Publishes a message to the probe topic and waits for its acknowledgement and its delivery.
async fn check_message(
    report: &mut Report,
    target: BrokerTarget<'_>,
    probe_topic: Option<&str>,
) -> Result<(), ClientError> {
    let Some(topic) = probe_topic else {
        report.ok(
            "message",
            "none sent; --probe-topic drivers/ID/gps-check publishes one and waits for it",
        );
        return Ok(());
    };
    let (mut probe, _) = Client::open(target, Duration::ZERO).await?;
    let grants =
        probe.subscribe(&[filter_in_own_group(target.mqtt, topic)], Qos::AtLeastOnce).await?;
    if !matches!(grants.first(), Some(Grant::Granted(_))) {
        report.error(
            "message",
            format!("{topic}: the broker refuses the subscription"),
            format!("allow it: EMQX acl.conf: {{allow, {{username, \"…\"}}, all, [\"{topic}\"]}}"),
        );
        return Ok(());
    }
    let payload = format!("milepost check {}", fastrand::u64(..));
    let mut bytes = BytesMut::new();
    codec::put_publish(topic, payload.as_bytes(), false, &mut bytes)?;
    let began = Instant::now();
    probe.send(&bytes).await?;
    let (mut acked, mut received_after) = (None, None);
    let answers = probe.wait_for(ANSWER_TIMEOUT, |packet| {
        if let Packet::Acked(reason) = packet {
            acked = Some(reason);
        } else if let Packet::Published(publish) = packet
            && publish.payload == payload.as_bytes()
        {
            received_after = Some(began.elapsed());
        }
        let is_refused = acked.is_some_and(|reason| reason >= ERROR_REASON_MIN);
        (is_refused || acked.is_some() && received_after.is_some()).then_some(())
    });
    match answers.await {
        Ok(()) | Err(ClientError::Unanswered) => {}
        Err(error) => return Err(error),
    }
    probe.leave().await;
    match (acked, received_after) {
        (Some(NOT_AUTHORIZED), _) => report.warning(
            "message",
            format!("{topic}: publishing is not authorized, so delivery is untested"),
            format!(
                "`milepost run` never publishes; to let this check publish, add to EMQX acl.conf: \
                 {{allow, {{username, \"…\"}}, publish, [\"{topic}\"]}}; Mosquitto acl_file: topic \
                 readwrite {topic}"
            ),
        ),
        (Some(reason), _) if reason >= ERROR_REASON_MIN => report.warning(
            "message",
            format!("{topic}: refused, reason {reason:#04x}"),
            "see the broker's log",
        ),
        (Some(_), Some(after)) => {
            report.ok("message", format!("{topic}: published and received in {after:.1?}"))
        }
        (Some(_), None) => report.error(
            "message",
            format!("{topic}: accepted by the broker, but not delivered within {ANSWER_TIMEOUT:?}"),
            "the access rules allow this user to publish, but not to read: EMQX acl.conf: \
             subscribe; Mosquitto acl_file: topic read …, for the sources' topics too",
        ),
        (None, _) => report.error(
            "message",
            format!("{topic}: no acknowledgement from the broker"),
            "see the broker's log",
        ),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Level;

    #[test]
    fn login_without_a_password_is_reported_as_such() {
        for (password, expected) in
            [("password = 'secret'", "with a password"), ("", "accepts jo without a password")]
        {
            let config = Config::parse(&format!("[mqtt]\nusername = 'jo'\n{password}")).unwrap();
            let login = client::login(&config.mqtt).unwrap();
            let node = &config.mqtt.nodes[0];
            let target = BrokerTarget { mqtt: &config.mqtt, node, login: login.as_ref() };
            let mut report = Report::default();
            check_transport(&mut report, &config, target);
            assert!(report.has_finding(Level::Ok, "broker login", expected), "{report}");
        }
    }
}
