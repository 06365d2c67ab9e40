//! `milepost trace --live`: prints a driver's messages as they arrive, decoded, and when each fix
//! is stored. One JSON object per line.
//!
//! The command uses its own subscription and its own queries to ClickHouse, so it costs the
//! consumers nothing.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::BytesMut;
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use milepost_clickhouse::{ClickHouse, StoredFix};
use milepost_command::client::{self, BrokerTarget, Client, ClientError};
use milepost_command::rows::{json_lines, rfc3339};
use milepost_command::tables;
use milepost_config::{Config, Mqtt};
use milepost_core::Qos;
use milepost_core::error_chain;
use milepost_decode::position::{DriverId, Position, Timestamp};
use milepost_decode::{Decoded, Decoder};
use milepost_mqtt as codec;
use milepost_mqtt::{Grant, Packet};
use milepost_observe::now;

/// Interval between queries while a fix is not yet stored.
const QUERY_EVERY: Duration = Duration::from_secs(1);
/// Time after which a fix is reported as not stored if ClickHouse does not have it.
const STORED_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of fixes that wait to be stored. Further ones are never reported as stored.
const WAITING_MAX: usize = 1_000;
/// Interval between pings, which keep the connection open.
const PING_EVERY: Duration = Duration::from_secs(20);

/// A received fix that is not yet stored.
struct WaitingFix {
    fix: Position,
    waits_since: Instant,
    /// Whether the payload had no time. Then each process uses its own time of receipt as the `ts`,
    /// so the stored `ts` may differ from this one.
    is_undated: bool,
}

impl WaitingFix {
    /// Returns whether `stored` is this fix.
    fn is_stored_as(&self, stored: &StoredFix) -> bool {
        let Position { ts, seq, lat, lng, .. } = &self.fix;
        let difference_ms = stored.ts.abs_diff(ts.unix_ms());
        let has_same_time = difference_ms == 0
            || self.is_undated && u128::from(difference_ms) < STORED_TIMEOUT.as_millis();
        has_same_time && (stored.seq, stored.lat_e7, stored.lng_e7) == (*seq, lat.e7(), lng.e7())
    }
}

/// Passes the lines about a driver to `print` for `duration`, or until `print` returns `false`.
///
/// # Errors
/// The tables do not exist, a server refuses, or a connection is lost.
pub async fn follow(
    config: &Config,
    driver_id: DriverId,
    duration: Duration,
    mut print: impl FnMut(&str) -> Result<bool>,
) -> Result<()> {
    let clickhouse = tables::connect_if_migrated(config).await?;
    let decoder = Decoder::new(&config.sources, config.decode.clone());
    let mut probe = subscribe(&config.mqtt).await?;
    let began = Instant::now();
    let (until, mut ping_at, mut query_at) = (began + duration, began + PING_EVERY, began);
    let mut waiting = Vec::new();
    loop {
        // ClickHouse is queried only while fixes wait to be stored.
        let wake_at = if waiting.is_empty() { until } else { until.min(query_at) };
        let received =
            probe.wait_for(STORED_TIMEOUT, |packet| decode_for(packet, &decoder, &driver_id));
        let mut lines = String::new();
        match timeout_at(wake_at.min(ping_at), received).await {
            Ok(Ok((decoded, received_at))) => {
                lines += &received_lines(&decoded, config, received_at, &mut waiting)
            }
            Err(_) | Ok(Err(ClientError::Unanswered)) => {}
            Ok(Err(error)) => bail!("the broker: {}", error_chain(&error)),
        }
        let now = Instant::now();
        if now >= ping_at {
            let mut ping = BytesMut::new();
            codec::put_ping(&mut ping)?;
            probe.send(&ping).await.context("the broker")?;
            ping_at = now + PING_EVERY;
        }
        if !waiting.is_empty() && (now >= query_at || now >= until) {
            // Print the lines of the message before the query: the query may take long or fail.
            if !print(&std::mem::take(&mut lines))? {
                probe.leave().await;
                return Ok(());
            }
            lines += &take_outcomes(&clickhouse, &driver_id, &mut waiting).await?;
            query_at = now + QUERY_EVERY;
        }
        if !lines.is_empty() && !print(&lines)? || now >= until {
            probe.leave().await;
            return Ok(());
        }
    }
}

/// Subscribes to every source at QoS 0 and outside the share group, so that no consumer loses a
/// message to this client.
async fn subscribe(mqtt: &Mqtt) -> Result<Client> {
    let login = client::login(mqtt).context("mqtt.password_file cannot be read")?;
    let mut last_error = None;
    for node in &mqtt.nodes {
        let target = BrokerTarget { mqtt, node, login: login.as_ref() };
        let client_id = format!("{}-trace-{:08x}", mqtt.client_id, fastrand::u32(..));
        match Client::open_as(client_id, target, Duration::ZERO).await {
            Ok((mut probe, _)) => {
                // Some brokers close the connection instead of refusing a forbidden subscription.
                let grants = probe.subscribe(&mqtt.topics, Qos::AtMostOnce).await;
                let grants = grants.with_context(|| {
                    let topics = mqtt.topics.join(", ");
                    format!("{node}: the subscription to {topics} without a group failed")
                })?;
                for (topic, grant) in mqtt.topics.iter().zip(grants) {
                    if !matches!(grant, Grant::Granted(_)) {
                        bail!(
                            "the broker does not let this login subscribe to {topic} without a \
                             group: {grant:?}"
                        );
                    }
                }
                return Ok(probe);
            }
            Err(error) => last_error = Some(format!("{node}: {}", error_chain(&error))),
        }
    }
    bail!("no node of the broker can be used: {}", last_error.unwrap_or_default())
}

/// Decodes a message. Returns the driver's positions and rejects with the time of receipt. A
/// message of the driver without either, which milepost ignores, is returned too. Returns `None` if
/// the message is not of this driver.
fn decode_for(
    packet: Packet<'_>,
    decoder: &Decoder,
    driver_id: &DriverId,
) -> Option<(Decoded, Timestamp)> {
    let Packet::Published(message) = packet else { return None };
    let (mut decoded, received_at) = (Decoded::default(), now());
    decoder.decode(message, received_at, &mut decoded);
    decoded.positions.retain(|position| position.driver_id == *driver_id);
    decoded.rejects.retain(|reject| reject.driver_id == driver_id.as_str());
    let is_of_driver = !decoded.positions.is_empty()
        || !decoded.rejects.is_empty()
        || !decoded.ignored.is_empty()
            && decoder.find_driver(message, None).is_some_and(|found| found == *driver_id);
    is_of_driver.then_some((decoded, received_at))
}

/// Returns the lines of a message, and adds its positions to `waiting`, which holds at most
/// [`WAITING_MAX`]. Positions above that number are not added.
fn received_lines(
    decoded: &Decoded,
    config: &Config,
    received_at: Timestamp,
    waiting: &mut Vec<WaitingFix>,
) -> String {
    let waits_since = Instant::now();
    let capacity = WAITING_MAX.saturating_sub(waiting.len());
    waiting.extend(decoded.positions.iter().take(capacity).map(|fix| WaitingFix {
        fix: fix.clone(),
        waits_since,
        is_undated: decoded.omissions.undated > 0 && fix.ts == fix.received_at,
    }));
    format!(
        "{}\n{}",
        json!({"heard": rfc3339(received_at)}),
        json_lines(decoded, &config.clickhouse.fields)
    )
}

/// Removes from `waiting` the fixes that are stored or have waited for [`STORED_TIMEOUT`]. Returns
/// their lines.
async fn take_outcomes(
    clickhouse: &ClickHouse,
    driver_id: &DriverId,
    waiting: &mut Vec<WaitingFix>,
) -> Result<String> {
    let times: Vec<_> = waiting.iter().map(|entry| entry.fix.ts.unix_ms()).collect();
    let stored = clickhouse.stored_fixes(driver_id, &times, STORED_TIMEOUT).await?;
    let mut lines = String::new();
    waiting.retain(|entry| {
        let id = json!({"ts": rfc3339(entry.fix.ts), "seq": entry.fix.seq});
        let after = entry.waits_since.elapsed();
        let line = if stored.iter().any(|stored| entry.is_stored_as(stored)) {
            json!({"stored": id, "within_ms": after.as_millis()})
        } else if after >= STORED_TIMEOUT {
            json!({"not_stored": id, "after_ms": after.as_millis()})
        } else {
            return true;
        };
        lines += &format!("{line}\n");
        false
    });
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use milepost_decode::{Ignored, Message};

    use super::*;

    #[tokio::test]
    async fn error_names_the_subscription_that_the_broker_does_not_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("mqtt://{}", listener.local_addr().unwrap());
        let broker = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut packet = [0; 4096];
            let _ = stream.read(&mut packet).await; // CONNECT
            stream.write_all(&[0x20, 3, 0, 0, 0]).await.unwrap(); // CONNACK: success
            let _ = stream.read(&mut packet).await; // SUBSCRIBE; then the connection is closed
        };
        let config = Config::parse(&format!("mqtt.url = '{url}'")).unwrap();
        let (subscribed, ()) = tokio::join!(subscribe(&config.mqtt), broker);
        let error = format!("{:#}", subscribed.err().unwrap());
        assert!(error.contains("drivers/+/gps without a group failed: the broker"), "{error}");
    }

    /// A device that has no fix yet still reaches the broker.
    #[test]
    fn message_without_a_fix_is_shown_to_its_driver_only() {
        let config = Config::parse(
            "[[sources]]\ntopic = 'drivers/+/gps'\n\
             [[sources]]\ntopic = 'phones'\nformat = 'owntracks'\ndriver = '/tid'",
        )
        .unwrap();
        let decoder = Decoder::new(&config.sources, config.decode.clone());
        for (topic, payload, expected) in [
            ("drivers/d7/gps", "online", Ignored::Presence),
            ("phones", r#"{"_type":"lwt","tst":1767225600,"tid":"d7"}"#, Ignored::Lwt),
        ] {
            let decoded_for = |id: &str| {
                let message = Message::new(topic.as_bytes(), payload.as_bytes());
                decode_for(Packet::Published(message), &decoder, &DriverId::new(id).unwrap())
            };
            let (decoded, _) = decoded_for("d7").unwrap_or_else(|| panic!("{payload}"));
            assert_eq!(decoded.ignored, [expected]);
            assert!(decoded_for("d8").is_none(), "{payload}");
        }
    }
}
